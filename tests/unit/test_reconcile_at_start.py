"""After a power cut the audit trail and the store may end at different places; the next start names every version."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.adapters import audit as audit_module
from memory_anchor.adapters.audit import NOT_STORED, RECOVERED, JsonlAudit
from memory_anchor.adapters.sparse_files import copy_tree
from memory_anchor.app import build_core
from memory_anchor.care import checks
from memory_anchor.model import Actor, Caller, Scope
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import EmbedderSettings, Settings

WRITER = Actor(Caller.AGENT, Scope(agent="a"))
KEPT, LOST = 5, 90
"""Versions before the cut, and those of which one of the two places lost all: more than `STORED_IN_A_ROW`."""


def session(data: Path, first: int, last: int) -> list[str]:
    """Open the memory, log events, close it; return their ids. Nothing is synced one by one: only the end counts."""
    settings = Settings(embedder=EmbedderSettings(kind="none"), store={"sync": "batch"})
    with (
        DirectoryLock.acquire(data, role="test") as lock,
        closing(build_core(settings, data_dir=data, lock=lock)) as core,
    ):
        anchor = core.anchor(WRITER)
        return [str(anchor.log_event(f"Delivery {at} came in").id) for at in range(first, last)]


def named(data: Path, kind: str) -> list[str]:
    records = JsonlAudit(data / "audit" / "audit.jsonl").records(kind)
    return [one["id"] for record in records if record["kind"] == kind for one in record["what"]["memories"]]


@pytest.fixture
def cut(tmp_path: Path) -> dict[str, Any]:
    """The same directory before and after 90 more events."""
    data = tmp_path / "d"
    session(data, 0, KEPT)
    copy_tree(data, tmp_path / "before")
    more = session(data, KEPT, KEPT + LOST)
    return {"data": data, "before": tmp_path / "before", "more": more}


def test_every_version_that_the_store_lost_is_named(cut: dict[str, Any]) -> None:
    """Rule power: all 90, not the newest 64; and once."""
    shutil.rmtree(cut["data"] / "store")
    shutil.move(cut["before"] / "store", cut["data"] / "store")

    session(cut["data"], 0, 0)
    assert sorted(named(cut["data"], NOT_STORED)) == sorted(cut["more"])
    session(cut["data"], 0, 0)
    assert len(named(cut["data"], NOT_STORED)) == LOST
    assert JsonlAudit(cut["data"] / "audit" / "audit.jsonl").verify() is None


@pytest.mark.slow
def test_every_version_that_the_trail_lost_is_recorded(cut: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule power: read from the store page by page, however many there are; and once."""
    monkeypatch.setattr(checks, "RECONCILE_PAGE", 20)
    shutil.rmtree(cut["data"] / "audit")
    shutil.move(cut["before"] / "audit", cut["data"] / "audit")

    session(cut["data"], 0, 0)
    assert sorted(named(cut["data"], RECOVERED)) == sorted(cut["more"])
    session(cut["data"], 0, 0)
    assert len(named(cut["data"], RECOVERED)) == LOST


@pytest.mark.slow
def test_a_whole_memory_is_looked_at_no_further_than_the_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule start: what a start asks of a store that lost nothing does not grow with it."""
    session(tmp_path / "d", 0, 30)
    monkeypatch.setattr(audit_module, "STORED_IN_A_ROW", 8)
    asked = []
    is_stored = checks._is_stored

    def counted(store: Any, written: Any) -> bool:
        asked.append(written["id"])
        return is_stored(store, written)

    monkeypatch.setattr(checks, "_is_stored", counted)
    session(tmp_path / "d", 0, 0)

    assert len(asked) == 8 and not named(tmp_path / "d", NOT_STORED)
