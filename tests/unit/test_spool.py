"""What a hook could not deliver is stored by the next engine, once, and is never lost to a failure."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from memory_anchor.domain.errors import Unavailable
from memory_anchor.domain.model import Actor, Caller, Layer, Scope
from memory_anchor.front.backend import MemoryBackend
from memory_anchor.process.wiring import Core
from memory_anchor.runtime import spool, wire
from memory_anchor.runtime.service import Service
from memory_anchor.runtime.state_file import StateFile


@pytest.fixture
def service(core: Core) -> Service:
    with socket.socket() as listener:
        post = StateFile(core.data_dir, {})
        return Service(lambda: MemoryBackend(core), data=core.data_dir, listener=listener, state_file=post)


def kept(core: Core, project: Path, event: str, number: int = 0, **payload: object) -> None:
    caller = wire.Preamble(project_dir=str(project), conversation="c", client="claude-code", nonce=f"n{number}")
    assert spool.keep(str(core.data_dir), caller, event, payload)


def facts(core: Core, project: Path) -> list[str]:
    actor = Actor(Caller.AGENT, Scope(agent="claude-code"), project_dir=str(project))
    return [memory.content for memory in core.anchor(actor).curation.listing(layer=Layer.VERIFIED_FACT.value)]


def events(core: Core, project: Path) -> list[str]:
    actor = Actor(Caller.AGENT, Scope(agent="claude-code"), project_dir=str(project))
    return [memory.content for memory in core.anchor(actor).curation.listing(layer=Layer.EVENT_LOG.value)]


def test_a_spooled_hook_that_fails_stays_and_is_taken_next_time(
    core: Core, project: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule spool.kept: a failure of ours or a bug; what came after it is taken all the same."""
    kept(core, project, "PostCompact", 1, compact_summary="first summary")
    kept(core, project, "PostCompact", 2, compact_summary="second summary")
    backend = MemoryBackend(core)
    real = backend.hook
    for failure in (Unavailable("the store is busy"), RuntimeError("bug with first summary in it")):

        def failing(preamble: wire.Preamble, event: str, payload: dict[str, object], failure=failure) -> str:  # type: ignore[no-untyped-def]
            if payload.get("compact_summary") == "first summary":
                raise failure
            return real(preamble, event, payload)

        monkeypatch.setattr(backend, "hook", failing)
        service._process_spool(backend)
        assert len(list(spool.waiting(core.data_dir))) == 1
    monkeypatch.setattr(backend, "hook", real)
    service._process_spool(backend)
    service._process_spool(backend)
    assert list(spool.waiting(core.data_dir)) == []
    assert sorted(events(core, project)) == ["first summary", "second summary"]


def test_a_spooled_hook_taken_twice_is_one_event(core: Core, project: Path, service: Service) -> None:
    """Promise 1: an engine that ends between storing and taking the file away leaves one event."""
    backend = MemoryBackend(core)
    kept(core, project, "PostCompact", compact_summary="a summary")
    (item,) = spool.waiting(core.data_dir)
    backend.hook(item.preamble, item.event, item.payload)
    service._process_spool(backend)
    assert events(core, project) == ["a summary"]


def test_a_spooled_transcript_is_learned_from(core: Core, project: Path, service: Service, tmp_path: Path) -> None:
    """Rule spool.learned: what a compaction would have taught is learned when an engine comes."""
    said = [
        ("user", "We decided to use Postgres for the job queue since Redis lost some."),
        ("assistant", "Understood."),
    ]
    lines = [
        json.dumps({"type": role, "message": {"role": role, "content": [{"type": "text", "text": text}]}})
        for role, text in said
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    kept(core, project, "PreCompact", transcript_path=str(tmp_path / "t.jsonl"))
    service._process_spool(MemoryBackend(core))
    assert any("Postgres" in content for content in facts(core, project))
    assert list(spool.waiting(core.data_dir)) == []


def test_a_hook_that_never_can_be_taken_is_set_aside_after_a_week(
    core: Core, project: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule spool.bounded: kept beside, not deleted, and no longer tried."""
    kept(core, project, "PostCompact", compact_summary="x")
    (item,) = spool.waiting(core.data_dir)
    item.failed()
    assert len(list(spool.waiting(core.data_dir))) == 1
    monkeypatch.setattr(spool, "KEPT_DAYS", -1)
    item.failed()
    assert list(spool.waiting(core.data_dir)) == []
    assert len(list((core.data_dir / spool.FOLDER).glob("*.bad"))) == 1


def test_a_file_that_cannot_be_opened_keeps_no_other_hook_waiting(core: Core, project: Path, service: Service) -> None:
    """Rule spool.kept: what came after it is taken; the file stays for the next time."""
    folder = core.data_dir / spool.FOLDER
    (folder / f"{1:020d}-1.json").mkdir(parents=True)
    kept(core, project, "PostCompact", compact_summary="the summary behind it")

    service._process_spool(MemoryBackend(core))

    assert "the summary behind it" in " ".join(events(core, project))
    assert [path.name for path in folder.iterdir()] == [f"{1:020d}-1.json"]


def test_what_was_set_aside_leaves_room_for_new_hooks(
    core: Core, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule spool.kept: the limit is for hooks that wait; the oldest that was set aside goes for a new one."""
    monkeypatch.setattr(spool, "MAX_FILES", 2)
    folder = core.data_dir / spool.FOLDER
    folder.mkdir()
    for number in (1, 2):
        (folder / f"{number:020d}-1.bad").write_text("no hook")

    for number in (1, 2):
        kept(core, project, "PostCompact", number, compact_summary=f"summary {number}")

    assert len(list(spool.waiting(core.data_dir))) == 2 and len(list(folder.iterdir())) == 2
    caller = wire.Preamble(project_dir=str(project), conversation="c", client="claude-code", nonce="n3")
    assert not spool.keep(str(core.data_dir), caller, "PostCompact", {"compact_summary": "one too many"})
