"""Several engines over one store: what each was told is what is there, whoever was first."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from threads import at_once

from memory_anchor.adapters.qdrant_store import QdrantStore
from memory_anchor.domain.errors import VersionConflict
from memory_anchor.domain.model import Actor, Caller, Outcome, Scope, Status
from memory_anchor.testing import ephemeral_core

ENGINES, EDITS = 2, 4


def test_no_edit_of_another_engine_is_lost(tmp_path: Path) -> None:
    """Service: optimistic versions; every acknowledged edit is a version of its own, in one unbroken line."""
    with closing(QdrantStore(path=":memory:")) as store:
        cores = [ephemeral_core(tmp_path / str(number), store=store) for number in range(ENGINES)]
        doors = [core.anchor(Actor(Caller.HUMAN, Scope("local", "p1", "me", "a"), project="p1")) for core in cores]
        name = doors[0].save_memory("The service listens on port 1000.").id
        acknowledged: list[str] = []
        refused: list[str] = []

        def edits(number: int) -> None:
            for edit in range(EDITS):
                text = f"The service listens on port {number}{edit}000."
                try:
                    doors[number].curation.edit(name, text)
                    acknowledged.append(text)
                except VersionConflict as late:
                    refused.append(str(late))

        at_once(*(partial(edits, number) for number in range(ENGINES)))
        versions = doors[0].history(name)

    assert len(acknowledged) + len(refused) == ENGINES * EDITS and len(acknowledged) > EDITS
    assert sorted(v.content for v in versions[1:]) == sorted(acknowledged)
    assert [v.version for v in versions] == list(range(1, len(versions) + 1))
    assert [v.is_current for v in versions] == [False] * (len(versions) - 1) + [True]
    assert all(version.recorded_to is not None for version in versions[:-1])


def test_a_save_that_another_engine_forestalled_is_decided_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Service: its commit found another version than it had read; it reads, decides and commits once more."""
    with closing(QdrantStore(path=":memory:")) as store:
        mine, other = (
            ephemeral_core(tmp_path / str(number), store=store).anchor(
                Actor(Caller.AGENT, Scope("local", "p1", "me", "a"), project="p1")
            )
            for number in range(ENGINES)
        )
        name = mine.save_memory("The service listens on port 1000.").id
        edited = "The service listens on port 1000 at night."
        put, late = store.put, [lambda: other.curation.edit(name, edited)]

        def forestalled(*given: Any) -> None:
            if late:
                late.pop()()
            put(*given)

        monkeypatch.setattr(store, "put", forestalled)
        done = mine.save_memory("The service listens on port 2000.", replaces=name)
        versions = mine.history(name)

        assert (done.outcome, done.target_id) == (Outcome.SUPERSEDED, name)
        assert [(one.content == edited, one.status) for one in versions[1:]] == [
            (True, Status.ACTIVE),
            (True, Status.SUPERSEDED),
        ]
        assert [one.id for one in mine.curation.listing()] == [done.id]
