"""A trail in a file and the Qdrant store beside it may end at different places; the next start names every version."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from memory_anchor.adapters import audit as audit_module
from memory_anchor.adapters.audit import NOT_STORED, RECOVERED, JsonlAudit
from memory_anchor.admin import checks
from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.process.app import build_core
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import EmbedderSettings, Settings

WRITER = Actor(Caller.AGENT, Scope(agent="a"))
KEPT, LOST = 5, 90
"""Versions before the cut, and those of which one of the two places lost all: more than `STORED_IN_A_ROW`."""


def session(data: Path, first: int, last: int) -> list[str]:
    """Open the memory, log events, close it; return their ids. Nothing is synced one by one: only the end counts."""
    store = {"kind": "qdrant", "path": str(data / "store"), "sync": "batch"}
    settings = Settings(embedder=EmbedderSettings(kind="none"), store=store)
    with (
        DirectoryLock.acquire(data, role="test") as lock,
        closing(build_core(settings, data_dir=data, lock=lock)) as core,
    ):
        anchor = core.anchor(WRITER)
        return [str(anchor.log_event(f"Delivery {at} came in").id) for at in range(first, last)]


def named(data: Path, kind: str) -> list[str]:
    records = JsonlAudit(data / "audit" / "audit.jsonl").records(kind)
    return [version["id"] for record in records if record["kind"] == kind for version in record["what"]["memories"]]


@pytest.fixture
def cut(tmp_path: Path) -> dict[str, Any]:
    """The same directory before and after 90 more events."""
    data = tmp_path / "d"
    session(data, 0, KEPT)
    shutil.copytree(data, tmp_path / "before")
    more = session(data, KEPT, KEPT + LOST)
    return {"data": data, "before": tmp_path / "before", "more": more}


@pytest.mark.parametrize(
    ("lost", "kind"), [("store", NOT_STORED), pytest.param("audit", RECOVERED, marks=pytest.mark.slow)]
)
def test_every_version_that_one_of_the_two_lost_is_named(
    cut: dict[str, Any], monkeypatch: pytest.MonkeyPatch, lost: str, kind: str
) -> None:
    """Rule power: all 90, not the newest 64, read from the store page by page; and once."""
    monkeypatch.setattr(checks, "RECONCILE_PAGE", 20)
    data = cut["data"]
    shutil.rmtree(data / lost)
    shutil.move(cut["before"] / lost, data / lost)

    session(data, 0, 0)
    assert sorted(named(data, kind)) == sorted(cut["more"])
    session(data, 0, 0)
    assert len(named(data, kind)) == LOST
    if lost == "store":
        assert JsonlAudit(data / "audit" / "audit.jsonl").verify() is None


@pytest.mark.slow
def test_a_whole_memory_is_looked_at_no_further_than_the_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule start: what a start asks of a store that lost nothing does not grow with it."""
    session(tmp_path / "d", 0, 30)
    monkeypatch.setattr(audit_module, "STORED_IN_A_ROW", 8)
    looked_at = Mock(side_effect=checks._is_stored)
    monkeypatch.setattr(checks, "_is_stored", looked_at)
    session(tmp_path / "d", 0, 0)

    assert looked_at.call_count == 8 and not named(tmp_path / "d", NOT_STORED)
