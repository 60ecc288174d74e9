"""A trail in a file and the Qdrant store beside it may end at different places; the next start names every version."""

from __future__ import annotations

import shutil
from contextlib import closing
from copy import deepcopy
from pathlib import Path
from unittest.mock import Mock

import pytest

from memory_anchor.adapters import audit as audit_module
from memory_anchor.adapters.audit import NOT_STORED, RECOVERED, JsonlAudit
from memory_anchor.adapters.dict_store import DictStore
from memory_anchor.admin import checks
from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.process.app import build_core
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.testing import HashEmbedder

WRITER = Actor(Caller.AGENT, Scope(agent="a"))
KEPT, LOST = 5, 90
"""Versions before the cut, and those of which one of the two places lost all: more than `STORED_IN_A_ROW`."""


class KeptStore(DictStore):
    """A store that outlives its core, as files do."""

    def close(self) -> None: ...

    def copied(self) -> KeptStore:
        made = KeptStore()
        made._collections = deepcopy(self._collections)
        return made


def session(data: Path, store: KeptStore, first: int, last: int) -> list[str]:
    """Open a memory whose trail is a file, as those of an old layout are; log events, close it, return their ids."""
    with (
        DirectoryLock.acquire(data, role="test") as lock,
        closing(build_core(Settings(), data_dir=data, lock=lock, store=store, embedder=HashEmbedder())) as core,
    ):
        anchor = core.anchor(WRITER)
        return [str(anchor.log_event(f"Delivery {at} came in").id) for at in range(first, last)]


def named(data: Path, kind: str) -> list[str]:
    records = JsonlAudit(data / "audit" / "audit.jsonl").records(kind)
    return [version["id"] for record in records if record["kind"] == kind for version in record["what"]["memories"]]


@pytest.mark.parametrize(("lost", "kind"), [("store", NOT_STORED), ("audit", RECOVERED)])
def test_every_version_that_one_of_the_two_lost_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str, kind: str
) -> None:
    """Rule power: all 90, not the newest 64, read from the store page by page; and once."""
    monkeypatch.setattr(checks, "RECONCILE_PAGE", 20)
    data, store = tmp_path / "d", KeptStore()
    session(data, store, 0, KEPT)
    before = store.copied()
    shutil.copytree(data / "audit", tmp_path / "audit")
    more = session(data, store, KEPT, KEPT + LOST)
    if lost == "audit":
        shutil.rmtree(data / "audit")
        shutil.move(tmp_path / "audit", data / "audit")
    left = before if lost == "store" else store

    session(data, left, 0, 0)
    assert sorted(named(data, kind)) == sorted(more)
    session(data, left, 0, 0)
    assert len(named(data, kind)) == LOST
    if lost == "store":
        assert JsonlAudit(data / "audit" / "audit.jsonl").verify() is None


@pytest.mark.slow
def test_a_whole_memory_is_looked_at_no_further_than_the_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule start: what a start asks of a store that lost nothing does not grow with it."""
    store = KeptStore()
    session(tmp_path / "d", store, 0, 30)
    monkeypatch.setattr(audit_module, "STORED_IN_A_ROW", 8)
    looked_at = Mock(side_effect=checks._is_stored)
    monkeypatch.setattr(checks, "_is_stored", looked_at)
    session(tmp_path / "d", store, 0, 0)

    assert looked_at.call_count == 8 and not named(tmp_path / "d", NOT_STORED)
