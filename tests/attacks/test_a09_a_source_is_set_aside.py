"""Attack A9: a source over which the process dies, or stalls, each time it reads it: after twice it goes on without.

The processes are real and die by SIGKILL, at the place where a hostile folder would end them: while its documents are
listed, or while one of them is opened. What stalls is a clock of CPU time that the test moves.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.base import quarantine
from memory_anchor.domain.model import Actor
from memory_anchor.extensions.knowledge import reading
from memory_anchor.extensions.knowledge.sources import (
    STEP_CPU_S,
    Listing,
    ReadingGuard,
    Source,
    SourceKind,
    SyncProgress,
)
from memory_anchor.extensions.knowledge.use_cases import knowledge_of, library_of
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor
from tests.unit.knowledgekit import human, read_all, texts

ENGINE = """
import json, os, signal, sys
from pathlib import Path
from memory_anchor.process.app import build_core
from memory_anchor.extensions.knowledge import reading
from memory_anchor.extensions.knowledge.use_cases import knowledge_of, library_of
from memory_anchor.domain.model import Actor, Caller
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.testing import HashEmbedder

data, hostile, good, how = Path(sys.argv[1]), *sys.argv[2:5]
kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
listed, opened = reading.SCANS["files"], reading.document
def scan(source, cursor, progress):
    if source.ref == hostile and how == "listed":
        kill()
    return listed(source, cursor, progress)
def document(ref, *rest, **more):
    if ref == "b_hostile.md" and how == "opened":
        kill()
    return opened(ref, *rest, **more)
reading.SCANS = {**reading.SCANS, "files": scan}
reading.document = document
with DirectoryLock.acquire(data, role="test") as lock:
    core = build_core(Settings(), data_dir=data, lock=lock, embedder=HashEmbedder())
    anchor = core.anchor(Actor(Caller.HUMAN if how == "human" else Caller.AGENT, project_dir=str(Path(hostile).parent)))
    if not knowledge_of(anchor).sources() or how == "human":
        knowledge_of(anchor).add(good, "files")
        knowledge_of(anchor).add(hostile, "files")
    if how != "human":
        knowledge_of(anchor).sync("", True)
    while library_of(core.services).step(lambda: False):
        pass
    states = {Path(s.source.ref).name: [s.error, s.documents, s.source.id] for s in knowledge_of(anchor).sources()}
    found = [p.text for p in knowledge_of(anchor).search("when does the gate open")]
    print(json.dumps({"states": states, "found": found}))
    core.close()
"""


@pytest.fixture
def folders(tmp_path: Path) -> Mapping[str, Path]:
    made = {name: tmp_path / "project" / name for name in ("good", "hostile")}
    for name, folder in made.items():
        folder.mkdir(parents=True)
        (folder / f"b_{name}.md").write_text(f"# {name}\nThe gate opens at nine, says the {name} one.\n")
        (folder / "a_first.md").write_text(f"# First of {name}\nAnother sentence.\n")
    return made


def ran(tmp_path: Path, folders: Mapping[str, Path], how: str) -> dict[str, Any] | None:
    """Return what the process found, None when it was killed."""
    script = tmp_path / "engine.py"
    script.write_text(ENGINE, encoding="utf-8")
    command = [sys.executable, str(script), str(tmp_path / "data"), str(folders["hostile"]), str(folders["good"]), how]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False, timeout=110)
    if done.returncode == -signal.SIGKILL:
        return None
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.parametrize("how", ["listed", "opened"])
def test_a_source_that_ended_two_processes_is_set_aside_and_a_human_takes_it_up_again(
    how: str, tmp_path: Path, folders: Mapping[str, Path]
) -> None:
    """Attack A9: the third process starts, reads the rest and answers; `doctor` and the list name the source."""
    assert ran(tmp_path, folders, how) is None
    assert ran(tmp_path, folders, how) is None
    for _ in range(2):  # an agent that asks for it anew changes nothing
        third = ran(tmp_path, folders, how)
        assert third is not None
        wrong, _, source = third["states"]["hostile"]
        assert "is set aside: twice the engine ended" in wrong and f"knowledge remove {source}" in wrong
        assert third["states"]["good"][:2] == ["", 2]
        assert any("the good one" in text for text in third["found"])
        assert not any("the hostile one" in text for text in third["found"])
    named = [finding for finding, _ in quarantine.findings(tmp_path / "data")]
    assert len(named) == 1 and f"source {source}" in named[0] and str(folders["hostile"]) in named[0]
    fourth = ran(tmp_path, folders, "human")
    assert fourth is not None
    assert fourth["states"]["hostile"][:2] == ["", 2]
    assert any("the hostile one" in text for text in fourth["found"])
    assert list(quarantine.findings(tmp_path / "data")) == []


def test_processes_that_end_at_different_places_set_nothing_aside(tmp_path: Path, folders: Mapping[str, Path]) -> None:
    """Attack A9: a machine that is switched off while it reads is no fault of the source."""
    assert ran(tmp_path, folders, "opened") is None
    assert ran(tmp_path, folders, "listed") is None
    last = ran(tmp_path, folders, "never")
    assert last is not None and last["states"]["hostile"][:2] == ["", 2]


@pytest.fixture
def slow_docs(core: Core, project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose listing takes more CPU than it may."""
    folder, spent = project / "slow", [0.0]
    folder.mkdir()
    (folder / "guide.md").write_text("# Guide\nThe gate opens at nine.\n")
    library_of(core.services)._guard = ReadingGuard(core.quarantine, lambda: spent[0])
    listed = reading.SCANS[SourceKind.FILES]

    def scan(source: Source, cursor: str, progress: SyncProgress) -> Listing:
        if "slow" in source.ref:
            spent[0] += STEP_CPU_S + 1
        return listed(source, cursor, progress)

    monkeypatch.setattr(reading, "SCANS", {**reading.SCANS, SourceKind.FILES: scan})
    yield folder


def test_a_source_that_stalled_twice_is_set_aside_with_what_was_read(
    slow_docs: Path, project: Path, core: Core, agent: Actor, anchor: MemoryAnchor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack A9: nobody waits a third time; others are read as ever, what was indexed answers, a human tries again."""
    knowledge_of(anchor).add(str(slow_docs), "files")
    read_all(anchor)
    read_all(anchor, begin=True)
    (slow_docs / "guide.md").write_text("# Guide\nThe gate opens at ten.\n")
    other = project / "other"
    other.mkdir()
    (other / "b.md").write_text("# Other\nThe tower closes at eight.\n")
    knowledge_of(anchor).add(str(other), "files")
    read_all(anchor, begin=True)
    states = {Path(state.source.ref).name: state for state in knowledge_of(anchor).sources()}
    assert f"took over {STEP_CPU_S:.0f} s of CPU" in states["slow"].error and not states["other"].error
    assert texts(anchor, "when does the gate open") == ["# Guide\nThe gate opens at nine."]
    assert texts(anchor, "when does the tower close")
    with pytest.raises(Exception, match="human"):
        knowledge_of(anchor).add(str(slow_docs), "files", trust="trusted")
    knowledge_of(anchor).add(str(slow_docs), "files")  # an agent
    read_all(anchor)
    assert {Path(s.source.ref).name: s for s in knowledge_of(anchor).sources()}["slow"].error
    monkeypatch.undo()
    knowledge_of(human(core, replace(agent))).add(str(slow_docs), "files")
    read_all(anchor)
    assert {Path(s.source.ref).name: s.error for s in knowledge_of(anchor).sources()}["slow"] == ""
    assert texts(anchor, "when does the gate open") == ["# Guide\nThe gate opens at ten."]
