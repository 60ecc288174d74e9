"""`memory-anchor projects`: list, link, move, merge; a merge survives a kill and is undone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.adapters.projects import Projects
from memory_anchor.admin.merges import Merges
from memory_anchor.domain.errors import BadInput, NotFound, Refused
from memory_anchor.domain.model import Actor, Caller
from memory_anchor.front import calls
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ManualClock, ephemeral_core

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    folders = tmp_path / "old", tmp_path / "new"
    for folder in folders:
        folder.mkdir()
    return folders


@pytest.fixture
def at(core: Core, agent: Actor) -> Callable[[Path], Any]:
    return lambda folder: core.anchor(replace(agent, project_dir=str(folder)))


@pytest.fixture
def human(core: Core, agent: Actor) -> Ask:
    """Ask as the human at a terminal does, in a folder."""

    def ask(name: str, folder: Path, **given: Any) -> dict[str, Any]:
        actor = replace(agent, project_dir=str(folder), caller=Caller.HUMAN)
        return calls.answer(name, core.anchor(actor), given)

    return ask


def vault(anchor: Any) -> bool:
    return "vault" in repr(anchor.search("where does the password live"))


def test_a_moved_folder_without_git_is_linked(two: tuple[Path, Path], at: Any, human: Ask) -> None:
    """Issue 12, project identity: a folder that never had Git finds its memory by one command."""
    old, new = two
    at(old).save_memory("The password lives in the blue vault.")
    owner = at(old).actor.scope.project
    at(new).save_memory("The new place has one memory.")
    assert not vault(at(new))

    answer = human("projects_link", new, project=owner)

    assert (answer["project"], answer["folder"], answer["left_behind"]) == (owner, str(new), 1)
    assert vault(at(new))
    assert at(old).actor.scope.project == owner


def test_a_project_that_moved_is_in_its_new_folder_alone(
    two: tuple[Path, Path], at: Any, human: Ask, core: Core
) -> None:
    """Issue 12, project identity: `move` leaves the old folder to be something else."""
    old, new = two
    owner = at(old).actor.scope.project

    human("projects_link", new, project=owner, moved=True)

    assert at(new).actor.scope.project == owner
    assert at(old).actor.scope.project != owner
    (record,) = [record for record in core.audit.records() if record["kind"] == "project.linked"]
    assert record["what"]["moved"] is True


def test_a_merge_moves_every_version_and_is_undone(two: tuple[Path, Path], at: Any, human: Ask, core: Core) -> None:
    """Issue 12, project identity: audited; history, pending and archived versions too; undone to the last one."""
    old, new = two
    mine = at(old)
    memory_id = mine.save_memory("The password lives in the blue vault.", key="password").id
    mine.save_memory("The password now lives in the green vault.", key="password")
    gone = mine.save_memory("We use tabs.").id
    mine.forget(gone)
    mine.log_event("The vault was opened.")
    at(new).save_memory("The build takes nine minutes.")
    source, target = mine.actor.scope.project, at(new).actor.scope.project
    before = [memory.version for memory in mine.history(memory_id)]

    told = human("projects_merge", new, source=source, target=target)
    again = human("projects_merge", new, source=source, target=target)

    assert told["versions"] >= 4
    assert again["versions"] == told["versions"]
    assert at(old).actor.scope.project == target
    assert vault(at(new))
    assert [memory.version for memory in at(new).history(memory_id)] == before
    assert {record["kind"] for record in core.audit.records()} >= {"project.merged"}

    human("projects_merge", new, source=source, undo=True)

    assert at(old).actor.scope.project == source
    assert vault(at(old))
    assert not vault(at(new))
    assert "nine minutes" in repr(at(new).search("how long does the build take"))
    with pytest.raises(NotFound, match="was not merged"):
        human("projects_merge", new, source=source, undo=True)


def test_a_merge_that_was_killed_is_finished_by_the_next_start(
    two: tuple[Path, Path], tmp_path: Path, clock: ManualClock, agent: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 12, project identity: what is to move is written down before it moves."""
    core = ephemeral_core(tmp_path / "killed", clock=clock)
    old, new = (core.anchor(replace(agent, project_dir=str(folder))) for folder in two)
    for number in range(4):
        old.save_memory(f"Number {number} lives in the vault of floor {number}.")
    source, target = old.actor.scope.project, new.actor.scope.project
    merges = Merges(core.data_dir, core.services.store, core.services.records.lock)
    merge = merges.begin(source, target, core.projects.known(source).aliases)
    monkeypatch.setattr("memory_anchor.admin.merges.MERGED_AT_ONCE", 2)
    put = core.services.store.put
    calls: list[int] = []

    def cut_off(collection: str, entries: Any) -> None:
        calls.append(len(entries))
        if len(calls) > 1:
            raise OSError("killed")
        put(collection, entries)

    with monkeypatch.context() as dying:
        dying.setattr(core.services.store, "put", cut_off)
        with pytest.raises(OSError, match="killed"):
            merges.carry_out(merge)

    core._finish_merges()

    found = core.anchor(replace(agent, project_dir=str(two[1]))).search("which vault", limit=10)
    assert len(found.snippets) == 4
    assert core.projects.of(str(two[0]))[0] == target
    assert merges.unfinished() == []
    core.close()


def test_an_agent_lists_and_links_nothing(two: tuple[Path, Path], at: Any, core: Core) -> None:
    """Issue 12, who may do what: whose memory a folder reads is a human's to say."""
    old, new = two
    owner = at(old).actor.scope.project
    agent = at(new)

    listed = calls.answer("projects_list", agent, {})["projects"]

    assert {project["id"] for project in listed} == {owner, agent.actor.scope.project}
    assert [project["id"] for project in listed if project["here"]] == [agent.actor.scope.project]
    for name, given in (
        ("projects_link", {"project": owner}),
        ("projects_merge", {"source": agent.actor.scope.project, "target": owner}),
        ("projects_merge", {"source": owner, "undo": True}),
    ):
        with pytest.raises(Refused, match="humans"):
            calls.answer(name, agent, given)


def test_what_cannot_be_linked_or_merged_is_told_in_one_sentence(two: tuple[Path, Path], at: Any, human: Ask) -> None:
    """Contract, exit codes: not found 3, bad input 2."""
    old, new = two
    owner = at(old).actor.scope.project

    with pytest.raises(NotFound, match="no project 'nix'"):
        human("projects_link", new, project="nix")
    with pytest.raises(BadInput, match="into itself"):
        human("projects_merge", new, source=owner, target=owner)
    with pytest.raises(BadInput):
        human("projects_merge", new, source="../../etc", target=owner)


def test_the_commands_show_and_refuse(run: Callable[..., Any], two: tuple[Path, Path]) -> None:
    """Contract, commands: --json, help with two examples, exit code 4 without a human."""
    listed = run("projects", "list", "--json")
    assert (listed.exit_code, '"here": true' in listed.output) == (0, True)
    assert run("projects", "list").exit_code == 0
    for command in ("list", "link", "move", "merge"):
        told = run("projects", command, "--help").output
        assert told.count("memory-anchor projects") >= 2, command
    assert run("projects", "link", "nix").exit_code == 4
    assert run("projects", "merge", "a").exit_code == 2


def test_projects_know_aliases_through_link_and_merge(tmp_path: Path) -> None:
    """Projects: a remote stays with the project that has other folders too."""
    projects = Projects(tmp_path / "projects.json", iter(["p0", "p1"]).__next__)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        projects.of(str(tmp_path / name))

    assert projects.link(str(tmp_path / "b"), "p0") == "p1"
    assert projects.all()["p0"] == (f"path:{tmp_path / 'a'}", f"path:{tmp_path / 'b'}")
    assert projects.all()["p1"] == ()
