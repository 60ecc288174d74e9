"""A trail in a file and the Qdrant store beside it may end at different places; the upgrade names every version."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from memory_anchor.adapters import audit as audit_module
from memory_anchor.adapters.audit import NOT_STORED, NOTES, RECOVERED, JsonlAudit
from memory_anchor.admin import checks, purge
from memory_anchor.admin.checks import compare_trail
from memory_anchor.domain.model import Actor, Caller, Scope, point_id
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ManualClock

WRITER = Actor(Caller.AGENT, Scope(agent="a"))
KEPT, LOST = 5, 90
"""Versions before the cut, and those of which one of the two places lost all: more than `STORED_IN_A_ROW`."""
NOW = ManualClock().now()


def logged(core: Core, first: int, last: int) -> list[str]:
    anchor = core.anchor(WRITER)
    return [str(anchor.log_event(f"Delivery {at} came in").id) for at in range(first, last)]


def in_a_file(core: Core, folder: Path) -> JsonlAudit:
    """Return the trail as a directory of the old layout has it."""
    core.audit.write_files(folder)
    return JsonlAudit(folder / "audit.jsonl")


def compared(core: Core, trail: JsonlAudit) -> JsonlAudit:
    """Compare both as the upgrade does, twice: what it found is said once."""
    for _ in range(2):
        compare_trail(core.services.store, trail, NOW)
    return trail


def named(trail: JsonlAudit, kind: str) -> list[Any]:
    found = [record["what"]["memories"] for record in trail.records(kind) if record["kind"] == kind]
    return [version["id"] for versions in found for version in versions]  # type: ignore[union-attr]


def lose(core: Core, ids: Iterable[str]) -> None:
    core.services.store.erase("event_log", [point_id(memory_id, 1) for memory_id in ids])


@pytest.mark.parametrize(("lost", "kind"), [("store", NOT_STORED), ("audit", RECOVERED)])
def test_every_version_that_one_of_the_two_lost_is_named(
    core: Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str, kind: str
) -> None:
    """Rule power: all 90, not the newest 64, read from the store page by page; and once."""
    monkeypatch.setattr(checks, "RECONCILE_PAGE", 20)
    logged(core, 0, KEPT)
    before = in_a_file(core, tmp_path / "before")
    more = logged(core, KEPT, KEPT + LOST)
    if lost == "store":
        lose(core, more)

    trail = compared(core, before if lost == "audit" else in_a_file(core, tmp_path / "after"))

    assert sorted(named(trail, kind)) == sorted(more)
    assert trail.verify() is None


def test_what_was_purged_is_not_taken_for_lost(core: Core, tmp_path: Path) -> None:
    """Rule power: a store and a trail that lost nothing get no record."""
    saved = core.anchor(WRITER).save_memory("The codeword is zanzibar")
    core.anchor(WRITER).save_memory("The gate opens at nine")
    purge.purge_ids(core.upkeep, [str(saved.id)], caller=Caller.HUMAN, at=core.clock.now(), by="human:me")
    trail = in_a_file(core, tmp_path / "trail")
    before = trail.path.read_bytes()

    assert compared(core, trail).path.read_bytes() == before


def test_a_whole_memory_is_looked_at_no_further_than_the_row(
    core: Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule start: what is asked of a store that lost nothing does not grow with it."""
    logged(core, 0, 30)
    monkeypatch.setattr(audit_module, "STORED_IN_A_ROW", 8)
    looked_at = Mock(side_effect=checks._is_stored)
    monkeypatch.setattr(checks, "_is_stored", looked_at)
    trail = in_a_file(core, tmp_path / "trail")

    compare_trail(core.services.store, trail, NOW)

    assert looked_at.call_count == 8 and not named(trail, NOT_STORED)


def noted(trail: JsonlAudit, version: dict[str, Any]) -> Path:
    """Leave the note of a release that noted a write before it stored it, and was killed."""
    note = trail.path.parent / NOTES / "a.json"
    note.parent.mkdir(exist_ok=True)
    note.write_text(json.dumps({"kind": "write", "by": "agent:a", "at": NOW.isoformat(), "whats": [version]}))
    return note


def test_a_write_that_was_noted_and_stored_is_recorded_and_one_that_was_not_stored_is_not(
    core: Core, tmp_path: Path
) -> None:
    """Rule: what a kill left noted is recorded where it was stored, marked as recovered; the note goes."""
    trail = in_a_file(core, tmp_path / "trail")
    (event,) = logged(core, 0, 1)
    hashed = core.services.records.read(event, None).content_hash
    for memory_id in (event, "nobody"):
        note = noted(trail, {"id": memory_id, "version": 1, "layer": "event_log", "content_hash": hashed})
        compare_trail(core.services.store, trail, NOW)

        assert named(trail, "write") == [event] and not note.exists()
    assert [record["what"]["recovered_at"] for record in trail.records("write")] == [NOW.isoformat()]


def test_a_note_cut_short_says_nothing(core: Core, tmp_path: Path) -> None:
    """Rule: it was written before anything was stored."""
    trail = in_a_file(core, tmp_path / "trail")
    note = noted(trail, {})
    note.write_text('{"kind": "wri')

    compare_trail(core.services.store, trail, NOW)

    assert not note.exists() and not trail.size()
