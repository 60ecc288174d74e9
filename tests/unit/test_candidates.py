"""Candidates: with and without the engine's filter, and when a layer fails (strategy 7)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
import pytest

from memory_anchor.adapters.dict_store import DictStore
from memory_anchor.errors import Unavailable
from memory_anchor.model import FOUND_STATES, Actor, Layer, Memory, MemoryType, Scope, Status
from memory_anchor.ports import DENSE, CollectionSpec, Entry, Hit
from memory_anchor.retrieval.candidates import CANDIDATES, OPEN_DEPTH, Candidates
from memory_anchor.retrieval.request import SearchRequest
from memory_anchor.testing import START, HashEmbedder
from memory_anchor.where import Where

if TYPE_CHECKING:
    from memory_anchor.ports import Matrix

EVENTS = Layer.EVENT_LOG.value
MINE, OTHERS = Actor(scope=Scope(project="mine")), Actor(scope=Scope(project="others"))
PLENTY = OPEN_DEPTH * CANDIDATES + 50


class Shelf(DictStore):
    """The reference store, which tells how often it was asked with a filter and without."""

    def __init__(self) -> None:
        super().__init__()
        self.filtered, self.unfiltered = 0, 0

    def nearest(self, collection: str, vector: Matrix, where: Where, *, limit: int, using: str = DENSE) -> list[Hit]:
        self.filtered += bool(where.all_of)
        self.unfiltered += not where.all_of
        return super().nearest(collection, vector, where, limit=limit, using=using)


class Room:
    """Random vectors of two projects, some of them archived, and a mirror's word on who may read them."""

    def __init__(self, *, mine: int, others: int, archived: int = 0) -> None:
        self.store = Shelf()
        embedder = HashEmbedder(dimensions=16)
        for layer in (Layer.EVENT_LOG, Layer.VERIFIED_FACT):
            self.store.open_collection(layer.value, CollectionSpec({DENSE: embedder.identity}))
        chance = np.random.default_rng(5)
        owners = [MINE] * mine + [OTHERS] * others + [MINE] * archived
        self.memories: dict[str, Memory] = {}
        for number, owner in enumerate(owners):
            at = START - timedelta(minutes=number)
            memory = Memory(
                id=f"m{number:04d}",
                content=f"note {number}",
                layer=Layer.EVENT_LOG,
                type=MemoryType.EVENT,
                scope=owner.scope,
                recorded_at=at,
                valid_from=at,
                when=at,
                status=Status.ARCHIVED if number >= mine + others else Status.ACTIVE,
            )
            row = chance.standard_normal(16).astype(np.float32)
            self.memories[memory.point_id] = memory
            self.store.put(EVENTS, [Entry(memory, {DENSE: row / np.linalg.norm(row)})])
        self.row = np.ones(16, dtype=np.float32) / 4
        self.is_warm = True

    def readable(self, collection: str, points: Sequence[str], audiences: Sequence[str]) -> list[bool] | None:
        assert collection in (EVENTS, Layer.VERIFIED_FACT.value)
        if not self.is_warm:
            return None
        found = [self.memories[point] for point in points]
        return [one.audience in audiences and one.state in FOUND_STATES for one in found]

    def asked(self, finder: Candidates, request: SearchRequest | None = None) -> set[str]:
        return set(finder.points(MINE, request or SearchRequest("?"), self.row, using=DENSE, notes={}))


@pytest.mark.parametrize(("mine", "others", "archived"), [(PLENTY, 40, 40), (PLENTY, 3 * PLENTY, 0), (30, 50, 10)])
def test_the_nearest_of_all_that_may_be_read_are_the_nearest_of_the_filter(
    mine: int, others: int, archived: int
) -> None:
    """Rule search.scope: leaving the filter out of the engine's scan never changes what is found."""
    room = Room(mine=mine, others=others, archived=archived)
    open_scan = room.asked(Candidates(room.store, room.readable))
    room.is_warm = False
    assert open_scan == room.asked(Candidates(room.store, room.readable))
    assert open_scan


def test_a_reader_among_many_others_goes_back_to_the_filter() -> None:
    """Rule search.scope: once too few of the nearest were readable, the filter is used at once."""
    room = Room(mine=PLENTY, others=3 * PLENTY)
    finder = Candidates(room.store, room.readable)
    room.asked(finder)
    before = room.store.unfiltered
    room.asked(finder, SearchRequest("?", layers=(Layer.EVENT_LOG,)))
    assert room.store.unfiltered == before
    assert room.store.filtered >= 2


@pytest.mark.parametrize("more", [{"types": ("event",)}, {"until": START}, {"include_pending": True}, {"as_of": START}])
def test_any_further_limit_is_pushed_down(more: dict[str, object]) -> None:
    """Rule search.filters: what the request limits, the engine filters."""
    room = Room(mine=20, others=20)
    room.asked(Candidates(room.store, room.readable), SearchRequest("?", **more))  # type: ignore[arg-type]
    assert (room.store.unfiltered, room.store.filtered) == (0, 2)


def test_a_layer_that_fails_is_left_out_and_said() -> None:
    """Rule search.degrade: the other layers answer."""
    room = Room(mine=5, others=0)
    whole = room.store.nearest

    def failing(collection: str, vector: Matrix, where: Where, *, limit: int, using: str = DENSE) -> list[Hit]:
        if collection == Layer.VERIFIED_FACT.value:
            raise Unavailable("the disk is away")
        return whole(collection, vector, where, limit=limit, using=using)

    room.store.nearest = failing  # type: ignore[method-assign]
    finder, notes = Candidates(room.store, room.readable), dict[str, bool]()
    points = finder.points(MINE, SearchRequest("?"), room.row, using=DENSE, notes=notes)
    assert len(points) == 5
    assert notes == {"verified_fact was skipped: the disk is away": True}
