"""A2: no command that a repository's Git configuration names ever runs, whatever we ask about the repository."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import demo
import pytest
from repos import git

from memory_anchor.adapters import git as ours
from memory_anchor.adapters.git import WorkingTree
from memory_anchor.adapters.projects import locate
from memory_anchor.domain.freshness import FreshnessChecker, with_line_hash
from memory_anchor.domain.model import Actor, Citation, Locator
from memory_anchor.process.wiring import Core

LONG = "".join(f"line number {n}\n" for n in range(1, 40))
HOOKS = (
    "applypatch-msg",
    "fsmonitor-watchman",
    "post-checkout",
    "post-index-change",
    "pre-auto-gc",
    "reference-transaction",
    "proc-receive",
)
SIGNATURE = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQEzBAABCAAdFiEE\n -----END PGP SIGNATURE-----\n"


class Trap:
    """A repository whose every setting that names a command names one that leaves a marker."""

    def __init__(self, folder: Path, markers: Path) -> None:
        self.folder, self._markers = folder, markers
        markers.mkdir()
        folder.mkdir()
        git(folder, "init", "-q")
        (folder / "gone.py").write_text(LONG, encoding="utf-8")
        (folder / "kept.py").write_text(LONG.replace("line", "row"), encoding="utf-8")
        (folder / "staged.py").write_text(LONG.replace("line", "col"), encoding="utf-8")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "first")
        git(folder, "mv", "gone.py", "renamed.py")
        git(folder, "commit", "-qm", "second")
        self._sign()
        (folder / "gone later.py").write_text("x = 1\n" * 30, encoding="utf-8")
        git(folder, "add", "-A")
        git(folder, "worktree", "add", "-q", str(folder.parent / "tree"), "HEAD~0")
        git(folder, "mv", "staged.py", "moved by hand.py")
        self._arm()

    @property
    def repository(self) -> ours.Repository:
        found = ours.find_repository(str(self.folder))
        assert found is not None
        return found

    @property
    def sprung(self) -> list[str]:
        return sorted(path.name for path in self._markers.iterdir())

    def stall(self, packs: str) -> None:
        """Put pipes that nobody writes to among the objects."""
        folder = self.folder / ".git" / "objects" / "pack"
        folder.mkdir(exist_ok=True)
        for letter in packs:
            os.mkfifo(folder / f"pack-{letter * 40}.idx")
            (folder / f"pack-{letter * 40}.pack").write_bytes(b"PACK")

    def command(self, name: str) -> str:
        script = self._markers.parent / "commands" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\ntouch '{self._markers}/{name}'\ncat\n", encoding="utf-8")
        script.chmod(0o755)
        return str(script)

    def _sign(self) -> None:
        """Make the commit that renamed a signed one: showing its signature runs gpg.program."""
        raw = git(self.folder, "cat-file", "commit", "HEAD")
        head, _, message = raw.partition("\n\n")
        signed = git(
            self.folder, "hash-object", "-t", "commit", "-w", "--stdin", stdin=f"{head}\n{SIGNATURE}\n{message}\n"
        )
        git(self.folder, "update-ref", "HEAD", signed)

    def _arm(self) -> None:
        folder, place = self.folder, self.folder / ".git"
        run = self.command
        included = place / "included"
        included.write_text(f"[alias]\n rev-parse = !{run('included')}\n[core]\n fsmonitor = {run('include.path')}\n")
        (place / "config").write_text(
            (place / "config").read_text()
            + f"""
[include]
 path = {included}
[includeIf "gitdir:**"]
 path = included
[core]
 fsmonitor = {run("core.fsmonitor")}
 hooksPath = {self._markers.parent / "commands"}
 pager = {run("core.pager")}
 editor = {run("core.editor")}
 sshCommand = {run("core.sshCommand")}
 gitProxy = {run("core.gitProxy")}
 askPass = {run("core.askPass")}
 alternateRefsCommand = {run("core.alternateRefsCommand")}
 attributesFile = {place / "attributes"}
 worktree = {folder}
[pager]
 log = {run("pager.log")}
 diff = {run("pager.diff")}
[interactive]
 diffFilter = {run("interactive.diffFilter")}
[gpg]
 program = {run("gpg.program")}
[gpg "ssh"]
 program = {run("gpg.ssh.program")}
[log]
 showSignature = true
[diff]
 external = {run("diff.external")}
 trustExitCode = true
[diff "evil"]
 command = {run("diff.command")}
 textconv = {run("diff.textconv")}
 cachetextconv = false
[filter "evil"]
 clean = {run("filter.clean")}
 smudge = {run("filter.smudge")}
 process = {run("filter.process")}
 required = true
[merge "evil"]
 driver = {run("merge.driver")}
[credential]
 helper = !{run("credential.helper")}
[extensions]
 partialClone = origin
[remote "origin"]
 url = ext::{run("protocol.ext")} %S
 promisor = true
 uploadpack = {run("remote.uploadpack")}
 vcs = {run("remote.vcs")}
[protocol]
 allow = always
[submodule "sub"]
 url = ext::{run("submodule.url")}
 update = !{run("submodule.update")}
 active = true
[uploadpack]
 packObjectsHook = {run("uploadpack.packObjectsHook")}
[alias]
"""
            + "".join(
                f" {name} = !{run('alias')}\n"
                for name in ("rev-parse", "log", "diff", "ls-files", "ls-tree", "config", "rev-list", "cat-file")
            )
        )
        attributes = "* filter=evil diff=evil merge=evil ident\n"
        for target in (folder / ".gitattributes", place / "attributes", place / "info" / "attributes"):
            target.parent.mkdir(exist_ok=True)
            target.write_text(attributes)
        (folder / ".gitmodules").write_text('[submodule "sub"]\n path = sub\n url = ext::x\n update = !touch x\n')
        for name in HOOKS:
            run(name)
            (place / "hooks").mkdir(exist_ok=True)
            (place / "hooks" / name).write_text(f"#!/bin/sh\ntouch '{self._markers}/hook-{name}'\n")
            (place / "hooks" / name).chmod(0o755)


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path / "unpacked", tmp_path / "markers")


@pytest.fixture
def _hostile_environment(trap: Trap, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a hostile `.envrc` sets before an agent is started."""
    for name in ("GIT_EXTERNAL_DIFF", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_PAGER", "GIT_ASKPASS", "GIT_PROXY_COMMAND"):
        monkeypatch.setenv(name, trap.command(f"environment-{name}"))
    for at, (name, value) in enumerate((("core.fsmonitor", "fsmonitor"), ("diff.external", "external"))):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{at}", name)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{at}", trap.command(f"environment-{value}"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "2")
    monkeypatch.setenv("GIT_EXEC_PATH", str(trap.folder))
    monkeypatch.setenv("GIT_DIR", str(trap.folder / ".git"))
    yield


def cited(root: Path, *refs: str) -> dict[str, tuple[str | None, str]]:
    """Return the freshness and the path of citations of lines 20 to 22."""
    texts = {"gone.py": LONG, "staged.py": LONG.replace("line", "col"), "gone later.py": "x = 1\n" * 30}
    made = [with_line_hash(Citation("file", ref, locator=Locator(20, 22)), texts[ref]) for ref in refs]
    checked = FreshnessChecker(WorkingTree(root)).with_freshness(made)
    return {was.ref: (now.freshness, now.ref) for was, now in zip(made, checked, strict=True)}


def test_git_itself_would_run_them(trap: Trap) -> None:
    """Attack A2: the trap is armed; plain Git, asked as it was, springs it."""
    (trap.folder / "kept.py").write_text("changed\n")
    subprocess.run(["git", "-C", str(trap.folder), "diff", "--no-ext-diff", "HEAD"], capture_output=True)
    subprocess.run(["git", "-C", str(trap.folder), "log", "-1"], capture_output=True)

    assert {"gpg.program", "core.fsmonitor"} <= set(trap.sprung)
    assert {"filter.process", "filter.clean"} & set(trap.sprung)


@pytest.mark.usefixtures("_hostile_environment")
def test_looking_at_a_hostile_repository_runs_nothing(trap: Trap, core: Core, agent: Actor) -> None:
    """Attack A2: project identity, cited files that are gone, renamed, staged, in a worktree and a subfolder."""
    (trap.folder / "kept.py").write_text("changed\n")
    (trap.folder / "gone later.py").unlink()
    (trap.folder / "sub").mkdir()

    for folder in (trap.folder, trap.folder / "sub", trap.folder.parent / "tree"):
        place = locate(folder)
        assert place.repository is not None
        assert ours.root_commit(place.repository) is not None
        actor = Actor(agent.caller, agent.scope, client="codex", project_dir=str(folder))
        anchor = core.anchor(actor)
        saved = anchor.save_memory("The parser is in gone.py", files=["gone.py:20-22", "kept.py:1"])
        anchor.get(saved.id)
        anchor.search("where is the parser")
        anchor.build_context("the parser")
    citations = cited(trap.folder, "gone.py", "staged.py", "gone later.py")

    assert citations["gone.py"] == ("moved", "renamed.py")
    assert citations["staged.py"] == ("moved", "moved by hand.py")
    assert citations["gone later.py"][0] == "gone"
    assert trap.sprung == []


def test_the_demo_reads_a_hostile_history_and_runs_nothing(trap: Trap) -> None:
    """Attack A2: the demo in a repository with signed commits and a pager."""
    assert [event["content"].split(" (")[0] for event in demo._commits(trap.folder)] == ["first", "second"]
    assert trap.sprung == []


@pytest.mark.slow
@pytest.mark.usefixtures("_hostile_environment")
def test_every_command_in_a_hostile_repository_runs_nothing(
    trap: Trap, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack A2: through the command line."""
    monkeypatch.chdir(trap.folder)

    for command in ("doctor", "add x", "search x", "list", "stats", "config", "projects list"):
        run(*command.split())

    assert trap.sprung == []


def test_a_missing_object_is_not_fetched(trap: Trap) -> None:
    """Attack A2: a promisor remote makes Git run `remote.uploadpack` for an object that is not there."""
    repository = trap.repository

    assert ours.run_git(repository, "cat-file", "-p", "1" * 40) is None
    assert ours.run_git(repository, "log", "-1", "--format=%H", ours.head_commit(repository) or "") is not None
    assert trap.sprung == []


def test_an_answer_of_git_is_bounded_in_bytes_and_time(trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack A2: what a repository makes Git print or wait for has an end."""
    repository = trap.repository
    commit = ours.head_commit(repository) or ""

    assert ours.run_git(repository, "ls-tree", "-r", commit, most_bytes=10) is None
    monkeypatch.setattr(ours, "TIMEOUT_S", 0.2)
    trap.stall("a")
    assert ours.run_git(repository, "cat-file", "-p", "2" * 40) is None


def test_a_repository_that_stalls_git_stalls_one_call(trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack A2, tried on the mend: pipes among the objects held up every citation for two seconds a call."""
    started: list[str] = []
    monkeypatch.setattr(ours, "TIMEOUT_S", 0.3)
    bounded = ours._bounded
    monkeypatch.setattr(ours, "_bounded", lambda command, *rest: started.append(command[-1]) or bounded(command, *rest))
    trap.stall("abc")

    cited(trap.folder, "gone.py", "staged.py", "gone later.py")

    assert len(started) == 1


@pytest.mark.parametrize("name", ["HEAD", "config", "packed-refs"])
def test_a_pipe_or_a_huge_file_in_the_git_folder_holds_nothing_up(name: str, trap: Trap) -> None:
    """Attack A2, tried on the mend: what we read ourselves is a regular file of bounded size."""
    place = trap.folder / ".git" / name
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    locate(trap.folder)
    place.unlink()
    with place.open("wb") as file:
        file.truncate(1 << 40)
    if name == "packed-refs":
        (trap.folder / ".git" / "HEAD").write_text("ref: refs/heads/nowhere\n")

    found = locate(trap.folder)

    assert found.repository is None or ours.root_commit(found.repository) is None or name == "config"


def test_a_million_folders_are_not_walked(trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack A2, tried on the mend: a walk is bounded in folders too, of which none need hold a file."""
    monkeypatch.setattr(ours, "FOLDERS_MAX", 10)
    for number in range(30):
        (trap.folder / f"empty {number}").mkdir()

    assert len({path.parent for path in ours._files(trap.folder)}) <= 10


@pytest.mark.parametrize("name", ["git", "sub/git"])
def test_the_program_comes_from_absolute_folders_of_the_path(
    name: str, trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack A2: a `git` in the current folder is not the one that is run."""
    fake = trap.folder / name
    fake.parent.mkdir(exist_ok=True)
    fake.write_text(Path(trap.command("path")).read_text())
    fake.chmod(0o755)
    monkeypatch.chdir(trap.folder)
    monkeypatch.setenv("PATH", os.pathsep.join([".", "sub", "", os.environ["PATH"]]))
    ours._program.cache_clear()

    repository = trap.repository
    assert ours.root_commit(repository) is not None
    ours._program.cache_clear()
    assert trap.sprung == []
