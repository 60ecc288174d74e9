"""A8: what an unpacked archive says of itself gets it nobody else's memory; clones and moved folders keep theirs."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from repos import git, repository

from memory_anchor.adapters import git as reading
from memory_anchor.adapters.projects import Projects, normalised_remote
from memory_anchor.domain.errors import BadInput, NotFound
from memory_anchor.domain.model import Actor
from memory_anchor.extensions.knowledge.use_cases import knowledge_of
from memory_anchor.hooks import brief
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor
from tests.unit.knowledgekit import read_all

REMOTE = "git@example.org:team/app.git"
SECRET = "The staging password lives in the blue vault."


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    return repository(tmp_path / "victim", message="the victim's own first commit", remote=REMOTE)


def at(core: Core, agent: Actor, folder: Path) -> MemoryAnchor:
    return core.anchor(replace(agent, project_dir=str(folder)))


def forged(tmp_path: Path, victim: Path, how: str) -> Path:
    """Return a folder as it comes out of a hostile archive, made without reading the victim's."""
    folder = repository(tmp_path / "downloads" / "app", message="evil")
    match how:
        case "remote":
            git(folder, "remote", "add", "origin", "https://example.org/team/app")
        case "worktree setting":
            git(folder, "config", "core.worktree", str(victim))
        case "git file":
            shutil.rmtree(folder / ".git")
            (folder / ".git").write_text(f"gitdir: {victim / '.git'}\n")
        case "git file of a worktree":
            git(victim, "worktree", "add", "-q", str(tmp_path / "feature"))
            shutil.rmtree(folder / ".git")
            (folder / ".git").write_text(f"gitdir: {victim / '.git' / 'worktrees' / 'feature'}\n")
        case "common folder":
            (folder / ".git" / "commondir").write_text(f"{victim / '.git'}\n")
        case "link":
            shutil.rmtree(folder / ".git")
            (folder / ".git").symlink_to(victim / ".git")
        case "linked head":
            git(folder, "remote", "add", "origin", REMOTE)
            (folder / ".git" / "HEAD").unlink()
            (folder / ".git" / "HEAD").symlink_to(victim / ".git" / "HEAD")
            shutil.rmtree(folder / ".git" / "refs")
            (folder / ".git" / "refs").symlink_to(victim / ".git" / "refs")
            (folder / ".git" / "objects" / "info").mkdir(exist_ok=True)
            (folder / ".git" / "objects" / "info" / "alternates").write_text(f"{victim / '.git' / 'objects'}\n")
        case "included remote":
            (folder / ".git" / "config").write_text(f"[include]\n path = {victim / '.git' / 'config'}\n")
    return folder


FORGERIES = ("remote", "worktree setting", "git file", "git file of a worktree", "common folder", "link")


@pytest.mark.parametrize("how", [*FORGERIES, "linked head", "included remote"])
def test_an_archive_that_claims_the_victims_repository_gets_nothing(
    how: str, tmp_path: Path, victim: Path, core: Core, agent: Actor
) -> None:
    """Attack A8: it reads nothing of the victim's memory and writes nothing into it."""
    mine = at(core, agent, victim)
    mine.save_memory(SECRET)
    evil = at(core, agent, forged(tmp_path, victim, how))

    evil.save_memory("Deploys go straight to production.")

    assert evil.actor.scope.project != mine.actor.scope.project
    assert "vault" not in repr(evil.search("where does the staging password live"))
    assert "production" not in repr(mine.search("where do deploys go"))
    assert core.projects.of(str(victim))[0] == mine.actor.scope.project


def test_a_claim_is_told_once_with_the_command_that_links(
    tmp_path: Path, victim: Path, core: Core, agent: Actor
) -> None:
    """Attack A8: a legitimate copy without history is one command away, and nobody is asked twice."""
    owner = at(core, agent, victim).actor.scope.project
    copy = at(core, agent, forged(tmp_path, victim, "remote"))

    (note,) = copy.search("anything").notes

    assert f"memory-anchor projects link {owner}" in note
    assert copy.search("anything else").notes == ()
    assert "projects link" not in brief.start(copy, "startup").text

    before = core.projects.link(str(tmp_path / "downloads" / "app"), owner)
    assert before == copy.actor.scope.project
    assert at(core, agent, tmp_path / "downloads" / "app").actor.scope.project == owner


def test_a_clone_and_a_worktree_share_without_a_question(
    tmp_path: Path, victim: Path, core: Core, agent: Actor
) -> None:
    """Attack A8, the other side: the same remote and the same first commit; it is written down."""
    owner = at(core, agent, victim).actor.scope.project
    git(tmp_path, "clone", "-q", str(victim), str(tmp_path / "clone"))
    git(tmp_path / "clone", "remote", "set-url", "origin", "https://user:token@example.org/team/app.git")
    git(victim, "worktree", "add", "-q", str(tmp_path / "feature"))

    for folder in ("clone", "feature"):
        anchor = at(core, agent, tmp_path / folder)
        assert anchor.actor.scope.project == owner, folder
        assert anchor.search("anything").notes == ()
    joined = [one for one in core.audit.records() if one["kind"] == "project.joined"]
    assert [one["what"]["folder"] for one in joined] == [str(tmp_path / "clone")]
    assert "token" not in (core.data_dir / "projects.json").read_text()


def test_a_shallow_clone_is_its_own_until_it_is_linked(tmp_path: Path, victim: Path, core: Core, agent: Actor) -> None:
    """Attack A8: the commit a shallow clone begins with is not the first one; an archive can say the same."""
    git(victim, "commit", "-q", "--allow-empty", "-m", "second")
    owner = at(core, agent, victim).actor.scope.project
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{victim}", str(tmp_path / "shallow"))
    git(tmp_path / "shallow", "remote", "set-url", "origin", REMOTE)

    shallow = at(core, agent, tmp_path / "shallow")

    assert shallow.actor.scope.project != owner
    assert owner in shallow.search("anything").notes[0]


def test_a_moved_folder_without_a_remote_is_found_by_its_first_commit(tmp_path: Path, core: Core, agent: Actor) -> None:
    """N2: `mv project project2` hid all memories; a copy beside the original is its own, and told so."""
    first = repository(tmp_path / "old place", message="begun")
    at(core, agent, first).save_memory(SECRET)
    owner = at(core, agent, first).actor.scope.project
    shutil.copytree(first, tmp_path / "copied")

    copied = at(core, agent, tmp_path / "copied")
    assert copied.actor.scope.project != owner
    assert owner in copied.search("anything").notes[0]

    first.rename(tmp_path / "project2")
    moved = at(core, agent, tmp_path / "project2")
    assert moved.actor.scope.project == owner
    assert "vault" in repr(moved.search("where does the staging password live"))


def test_a_checkout_of_another_user_is_no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack A8: `/tmp/.git` of another local user does not become the project of folders below it."""
    top = repository(tmp_path / "shared")
    (top / "mine").mkdir()
    assert reading.find_repository(str(top / "mine")) is not None

    monkeypatch.setattr(os, "geteuid", lambda: 4_242)
    assert reading.find_repository(str(top / "mine")) is None


def test_a_submodule_is_its_own_project(tmp_path: Path, victim: Path, core: Core, agent: Actor) -> None:
    """Attack A8: a submodule's Git folder lies in the outer one, and names its work tree back."""
    library = repository(tmp_path / "library", message="library")
    git(victim, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "lib")

    inner, outer = at(core, agent, victim / "lib").actor, at(core, agent, victim).actor

    assert inner.project_dir == str(victim / "lib")
    assert inner.scope.project != outer.scope.project


def test_two_processes_that_meet_a_folder_give_it_one_id(tmp_path: Path) -> None:
    """Projects: an engine that runs and a command each held a copy; the later writer dropped the other's ids."""
    ids = iter(f"p{n}" for n in range(9))
    one, other = (Projects(tmp_path / "projects.json", lambda: next(ids)) for _ in range(2))
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    assert one.of(str(tmp_path / "a")) == other.of(str(tmp_path / "a"))
    assert other.of(str(tmp_path / "b")) == one.of(str(tmp_path / "b"))
    assert set(Projects(tmp_path / "projects.json", str).all()) == {"p0", "p1"}


def test_linking_to_no_project_names_those_there_are(tmp_path: Path) -> None:
    """Contract: one clear sentence with the next command."""
    projects = Projects(tmp_path / "projects.json", lambda: "p0")
    projects.of(str(tmp_path))

    with pytest.raises(NotFound, match=r"no project 'nix'; there are p0 \(`memory-anchor projects list`\)"):
        projects.link(str(tmp_path), "nix")


@pytest.mark.parametrize("url", ["https://example.org/a b", "https://example.org/a\x1b[2J", f"git@h:{'a' * 400}"])
def test_a_remote_that_is_no_name_is_no_alias(url: str) -> None:
    """Attack A8: what is told to people and models holds no sentence of a stranger."""
    assert normalised_remote(url) is None


@pytest.mark.parametrize("told_before", [False, True])
def test_a_human_is_asked_once_whoever_was_told_before(
    told_before: bool, tmp_path: Path, victim: Path, core: Core, agent: Actor
) -> None:
    """Attack A8: what an agent was told on its search takes no question away from the human at a terminal."""
    owner = at(core, agent, victim).actor.scope.project
    folder = str(forged(tmp_path, victim, "remote"))
    copy = at(core, agent, Path(folder))
    if told_before:
        copy.search("anything")
    projects = Projects(core.data_dir / "projects.json", str)

    _, hint = projects.link_question(folder, on_terminal=False)
    questions = [projects.link_question(folder, on_terminal=True) for _ in range(2)]

    assert bool(hint) is not told_before
    assert [project for project, _ in questions] == [owner, ""]
    assert f"projects link {owner}" in questions[0][1]
    assert projects.link_question(str(victim), on_terminal=True) == ("", "")


def borrowing(folder: Path, victim: Path, how: str) -> None:
    """Let a checkout's object folder lead to the victim's, and its HEAD name the victim's commit."""
    objects, theirs = folder / ".git" / "objects", victim / ".git" / "objects"
    (objects / "info").mkdir(exist_ok=True)
    alternates = objects / "info" / "alternates"
    commit = git(victim, "rev-parse", "HEAD")
    match how:
        case "alternates":
            alternates.write_text(f"{theirs}\n")
        case "relative alternates":
            alternates.write_text(f"# note\n\n{os.path.relpath(theirs, objects)}\n")
        case "quoted alternates":
            alternates.write_text(f'"{theirs}"\n')
        case "alternates of alternates":
            inner = folder / "inner"
            (inner / "info").mkdir(parents=True)
            alternates.write_text(f"{inner}\n")
            (inner / "info" / "alternates").write_text(f"{theirs}\n")
        case "alternates behind a link inside":
            (folder / "inner").symlink_to(theirs)
            alternates.write_text(f"{folder / 'inner'}\n")
        case "a linked alternates file":
            (folder / "list").write_text(f"{theirs}\n")
            alternates.symlink_to(folder / "list")
        case "alternates without end":
            alternates.write_text(f"{folder / '.git' / 'objects'}\n")
            git(folder, "update-ref", "--no-deref", "HEAD", git(folder, "rev-parse", "HEAD"))
        case "a linked pack folder":
            git(victim, "repack", "-adq")
            shutil.rmtree(objects / "pack", ignore_errors=True)
            (objects / "pack").symlink_to(theirs / "pack")
        case "linked packs":
            git(victim, "repack", "-adq")
            for pack in (theirs / "pack").iterdir():
                (objects / "pack").mkdir(exist_ok=True)
                (objects / "pack" / pack.name).symlink_to(pack)
        case "a linked object":
            (objects / commit[:2]).mkdir(exist_ok=True)
            (objects / commit[:2] / commit[2:]).symlink_to(theirs / commit[:2] / commit[2:])
        case "a linked fan-out folder":
            (objects / commit[:2]).symlink_to(theirs / commit[:2])
    if how != "alternates without end":
        (folder / ".git" / "HEAD").write_text(f"{commit}\n")


BORROWED = (
    *("alternates", "relative alternates", "quoted alternates", "alternates of alternates", "alternates without end"),
    *("alternates behind a link inside", "a linked alternates file"),
    *("a linked pack folder", "linked packs", "a linked object", "a linked fan-out folder"),
)


@pytest.mark.parametrize("how", BORROWED)
def test_a_checkout_reads_no_object_of_another_and_says_so(
    how: str, tmp_path: Path, victim: Path, core: Core, agent: Actor
) -> None:
    """Attack A8: who packs an archive knows the id of a commit; Git would follow the folder of objects to it."""
    (victim / "plan.md").write_text("The vault opens at nine.\n")
    git(victim, "add", "plan.md")
    git(victim, "commit", "-q", "-m", "plan: the vault opens at nine, which nobody else may know")
    folder = repository(tmp_path / "downloads" / "app", message="evil: a first commit that says a lot of words")
    borrowing(folder, victim, how)
    found = reading.find_repository(str(folder))
    commit = git(victim, "rev-parse", "HEAD")
    assert found is not None
    assert reading.run_git(found, "cat-file", "-p", commit) is None
    evil = at(core, agent, folder)
    for kind in ("git_history", "repo_docs"):
        with pytest.raises(BadInput, match="has objects outside of itself: "):
            knowledge_of(evil).add(str(folder), kind)
    assert knowledge_of(evil).sources() == []


def test_a_source_that_borrows_later_is_read_no_more_and_named(
    tmp_path: Path, victim: Path, core: Core, agent: Actor
) -> None:
    """Attack A8: what was added whole and borrows since keeps what it had; the source says what is wrong."""
    folder = repository(tmp_path / "app", message="app: queue retries three times and then gives up")
    mine = at(core, agent, folder)
    knowledge_of(mine).add(str(folder), "git_history")
    read_all(mine)
    borrowing(folder, victim, "alternates")
    read_all(mine, begin=True)
    (state,) = knowledge_of(mine).sources()
    assert "its info/alternates borrows those of" in state.error and state.passages == 1


def test_objects_that_the_checkout_itself_holds_are_its_own(tmp_path: Path) -> None:
    """Attack A8: a folder of objects below the checkout, and the one that a worktree shares, are read as ever."""
    folder = repository(tmp_path / "app", message="one")
    inner = folder / "vendor" / "objects"
    inner.mkdir(parents=True)
    shutil.move(folder / ".git" / "objects" / git(folder, "rev-parse", "HEAD")[:2], inner)
    (folder / ".git" / "objects" / "info" / "alternates").write_text("../../vendor/objects\n")
    git(folder, "worktree", "add", "-q", str(tmp_path / "feature"))
    for place in (folder, tmp_path / "feature"):
        found = reading.find_repository(str(place))
        assert found is not None
        commit = reading.head_commit(found)
        assert "one" in str(reading.run_git(found, "cat-file", "-p", str(commit)))
