"""Candidates: from a mirror that holds the whole store, and from the engine (strategy 7)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory_anchor.domain.errors import Unavailable
from memory_anchor.domain.model import Actor, Layer, Memory, MemoryType, Scope, SearchAnswer, Status
from memory_anchor.domain.ports import DENSE, CollectionSpec, Entry, Hit, VectorQuery
from memory_anchor.domain.where import Where
from memory_anchor.recall import index, mirror, vector_rows
from memory_anchor.recall.request import SearchRequest
from memory_anchor.recall.vector_rows import VectorRows
from memory_anchor.store.database import IN_MEMORY, Sqlite
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.testing import START, HashEmbedder, ManualClock, make_searcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_anchor.domain.ports import Matrix
    from memory_anchor.recall.ranking import Rows

MINE, OTHERS = Actor(scope=Scope(project="mine")), Actor(scope=Scope(project="others"))
SHARED = "postgresql"
"""A kind of store that other processes write to."""
TOPICS = ("ports of the gateway", "label printer jams", "invoice export", "登录超时", "路由配置的变更")


@pytest.fixture(autouse=True)
def _too_many_to_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every store has more versions than are followed, so that the engine answers what the mirror does not."""
    monkeypatch.setattr(index, "MAX_ROWS", -1)


class Shelf(SqlStore):
    """A store that counts what it is asked and can be made to fail or to be somebody else's too."""

    def __init__(self) -> None:
        super().__init__(Sqlite(IN_MEMORY))
        self.queries = 0
        self.away: str | None = None

    def query_batch(self, collection: str, queries: Sequence[VectorQuery], where: Where) -> list[list[Hit]]:
        self.queries += 1
        if collection == self.away:
            raise Unavailable("the disk is away")
        return super().query_batch(collection, queries, where)


class Room:
    """One store and a searcher that has read it whole."""

    def __init__(self) -> None:
        self.store, embedder, clock = Shelf(), HashEmbedder(dimensions=64), ManualClock()
        for layer in (Layer.EVENT_LOG, Layer.VERIFIED_FACT):
            self.store.open_collection(layer.value, CollectionSpec({DENSE: embedder.identity}))
        self.searcher = make_searcher(self.store, embedder, clock, cache_ttl_s=0)
        self.searcher.index.warm()
        self._number = 0

    def add(self, content: str, owner: Actor = MINE, **more: Any) -> Memory:
        self._number += 1
        at = START - timedelta(minutes=self._number)
        is_event = self._number % 2 == 0
        memory = Memory(
            id=f"m{self._number:04d}",
            content=content,
            layer=Layer.EVENT_LOG if is_event else Layer.VERIFIED_FACT,
            type=MemoryType.EVENT if is_event else MemoryType.FACT,
            scope=owner.scope,
            recorded_at=at,
            valid_from=at,
            when=at if is_event else None,
            **more,
        )
        self.write(self.searcher.index.entry_of(memory, embed=True))
        return memory

    def write(self, entry: Entry) -> None:
        self.store.put(entry.memory.layer.value, [entry])
        self.searcher.index.note_written(entry)

    def stored(self, memory: Memory) -> Entry:
        return self.store.get(memory.layer.value, [memory.point_id], with_vectors=True)[0]


def told(answer: SearchAnswer) -> list[tuple[str, float]]:
    return [(snippet.id, round(snippet.score, 3)) for snippet in answer.snippets]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    owned=st.lists(
        st.tuples(st.sampled_from(TOPICS), st.sampled_from([MINE, OTHERS]), st.sampled_from(list(Status))), max_size=30
    ),
    asked=st.sampled_from(TOPICS),
    layers=st.sampled_from([(), (Layer.EVENT_LOG,), (Layer.VERIFIED_FACT,)]),
)
def test_a_whole_mirror_answers_as_the_engine_does(
    owned: list[tuple[str, Actor, Status]], asked: str, layers: tuple[Layer, ...]
) -> None:
    """Rule search.derived: where candidates come from never changes an answer; scope and state hold in both."""
    room = Room()
    for number, (topic, owner, status) in enumerate(owned):
        room.add(f"{topic}, note {number}", owner, status=status)
    request = SearchRequest(asked, limit=20, layers=layers)
    before = room.store.queries
    whole = room.searcher.search(MINE, request)
    # What waits for review is asked of the engine, where nothing else answers and something waits.
    waits = any(owner == MINE and status is Status.PENDING for _, owner, status in owned)
    assert waits or room.store.queries == before
    room.store.kind = SHARED
    assert told(whole) == told(room.searcher.search(MINE, request))
    assert room.store.queries > before


@pytest.mark.parametrize("more", [{"types": ("event",)}, {"until": START}, {"include_pending": True}, {"as_of": START}])
def test_any_further_limit_is_pushed_down(more: dict[str, Any]) -> None:
    """Rule search.filters: what the request limits, the engine filters."""
    room = Room()
    room.add(TOPICS[0])
    room.searcher.search(MINE, SearchRequest(TOPICS[0], **more))
    assert room.store.queries == 2


def test_a_store_that_others_write_to_is_asked_every_time() -> None:
    """Rule search.derived: what another process wrote is found at once."""
    room = Room()
    room.store.kind = SHARED
    near = room.add(TOPICS[0])
    entry = room.searcher.index.entry_of(replace(near, id="elsewhere", content=TOPICS[1]), embed=True)
    room.store.put(near.layer.value, [entry])
    snippets = room.searcher.search(MINE, SearchRequest(TOPICS[1])).snippets
    assert [snippet.id for snippet in snippets if not snippet.weak] == ["elsewhere"]
    assert room.store.queries == 2


def test_a_change_of_state_counts_at_once() -> None:
    """Rule search.derived: what was archived goes, what came back is found again."""
    room = Room()
    memory = room.add(TOPICS[2])
    for status, found in ((Status.ARCHIVED, []), (Status.ACTIVE, [memory.id])):
        room.write(replace(room.stored(memory), memory=replace(memory, status=status)))
        assert [snippet.id for snippet in room.searcher.search(MINE, SearchRequest(TOPICS[2])).snippets] == found


def test_what_is_written_while_the_store_is_read_counts_and_not_the_page_from_before() -> None:
    """Rule search.derived: a page that was read before a write does not undo it."""
    room = Room()
    memory = room.add(TOPICS[3])
    late = make_searcher(room.store, HashEmbedder(dimensions=64), ManualClock(), cache_ttl_s=0)
    whole = room.store.scan

    def slow(collection: str, where: Where, **paging: Any) -> tuple[list[Entry], str | None]:
        page = whole(collection, where, **paging)
        if any(entry.memory.id == memory.id for entry in page[0]):
            entry = replace(room.stored(memory), memory=replace(memory, status=Status.ARCHIVED))
            room.store.put(memory.layer.value, [entry])
            late.index.note_written(entry)
        return page

    room.store.scan = slow  # type: ignore[method-assign]
    late.index.warm()
    before = room.store.queries
    assert late.search(MINE, SearchRequest(TOPICS[3])).snippets == ()
    assert room.store.queries == before


def test_a_mirror_that_is_emptied_while_it_is_read_is_not_taken_for_whole() -> None:
    """Rule search.derived: after an import or a reindex the engine answers until everything was read again."""
    room = Room()
    memory = room.add(TOPICS[0])
    late = make_searcher(room.store, HashEmbedder(dimensions=64), ManualClock(), cache_ttl_s=0)
    whole = room.store.scan

    def emptied(collection: str, where: Where, **paging: Any) -> tuple[list[Entry], str | None]:
        page = whole(collection, where, **paging)
        late.index.invalidate()
        return page

    room.store.scan = emptied  # type: ignore[method-assign]
    late.index.warm()
    assert not late.index.in_memory()["complete"]
    room.store.queries = 0
    assert [snippet.id for snippet in late.search(MINE, SearchRequest(TOPICS[0])).snippets] == [memory.id]
    assert room.store.queries == 2
    room.store.scan = whole  # type: ignore[method-assign]
    late.index.embed_pending(1)
    assert late.index.in_memory() == {"versions": 1, "complete": True}
    late.search(MINE, SearchRequest(TOPICS[0]))
    assert room.store.queries == 2


def test_a_mirror_full_of_old_versions_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule search.derived: beyond the most it holds it begins again, and is whole again behind."""
    monkeypatch.setattr(mirror, "MAX_ROWS", 5)
    room = Room()
    memory = room.add(TOPICS[1])
    for version in range(2, 8):
        closed = memory.closed(START)
        room.write(replace(room.stored(memory), memory=closed))
        memory = replace(memory, version=version)
        room.write(room.searcher.index.entry_of(memory, embed=True))
    assert not room.searcher.index.in_memory()["complete"]
    assert [snippet.id for snippet in room.searcher.search(MINE, SearchRequest(TOPICS[1])).snippets] == [memory.id]
    room.searcher.index.embed_pending(1)
    assert room.searcher.index.in_memory()["complete"]
    assert [one.id for one in room.searcher.search(MINE, SearchRequest(TOPICS[1])).snippets] == [memory.id]


def test_a_layer_that_fails_is_left_out_and_said() -> None:
    """Rule search.degrade: the other layer answers."""
    room = Room()
    for number in range(4):
        room.add(f"{TOPICS[0]} {number}")
    room.store.kind, room.store.away = SHARED, Layer.VERIFIED_FACT.value
    answer = room.searcher.search(MINE, SearchRequest(TOPICS[0]))
    assert {snippet.layer for snippet in answer.snippets} == {Layer.EVENT_LOG}
    assert "verified_fact was skipped: the disk is away" in answer.notes


# --- the nearest by signs ------------------------------------------------------------------------------------------


def rows_of(chance: np.random.Generator, number: int, *, dimensions: int, lean: float) -> Matrix:
    """Rows around a common mean, as a model's are: `lean` is how much of each is the mean."""
    rows = lean + chance.standard_normal((number, dimensions))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def filled(rows: Matrix) -> VectorRows:
    held = VectorRows(HashEmbedder(dimensions=rows.shape[1]).identity, len(rows))
    give(held, np.arange(len(rows)), rows)
    return held


def give(held: VectorRows, places: Rows, rows: Matrix) -> None:
    held.put(places, rows, np.zeros(len(rows), dtype=np.int8), counts=np.ones(len(rows), dtype=bool))


@pytest.mark.parametrize("dimensions", [8, 100, 384])
@pytest.mark.parametrize("number", [5, 300])
def test_among_few_rows_the_nearest_are_exact(number: int, dimensions: int) -> None:
    """Rule search.candidates: a shortlist that holds every row leaves nothing out."""
    chance = np.random.default_rng(dimensions)
    rows = rows_of(chance, number, dimensions=dimensions, lean=1)
    held, scripts = filled(rows), np.zeros(number, dtype=np.int8)
    asked = held.centring.query(rows[0], 0)
    limit = number // vector_rows.SHORTLIST + 1
    found = held.nearest(asked, [np.arange(number)], scripts, limit=limit)
    cosines = held.cosines(asked, np.arange(number), scripts)
    assert set(found.tolist()) == set(np.argsort(-cosines)[:limit].tolist())


def test_among_many_rows_few_of_the_nearest_are_missed() -> None:
    """Rule search.candidates: of rows around 80 topics, 9 in 10 of the nearest 80."""
    chance = np.random.default_rng(3)
    topics = rows_of(chance, 80, dimensions=384, lean=2)
    rows = np.repeat(topics, 75, axis=0) + 0.04 * chance.standard_normal((6000, 384)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    held, scripts, every = filled(rows), np.zeros(len(rows), dtype=np.int8), np.arange(len(rows))
    shares: list[float] = []
    for place in range(20):
        asked = held.centring.query(rows[place * 75], 0)
        order = np.argsort(-held.cosines(asked, every, scripts))
        found = set(held.nearest(asked, [every], scripts, limit=80).tolist())
        assert order[0] in found
        shares.append(len(found & set(order[:80].tolist())) / 80)
    assert np.mean(shares) > 0.9


def test_groups_are_searched_apart_and_rows_without_a_vector_never_found() -> None:
    """Rule search.candidates: each group gives its own nearest."""
    rows = rows_of(np.random.default_rng(4), 40, dimensions=32, lean=1)
    held = VectorRows(HashEmbedder(dimensions=32).identity, 64)
    give(held, np.arange(0, 40, 2), rows[::2])
    held.grow(128)
    scripts, groups = np.zeros(100, dtype=np.int8), [np.arange(10), np.arange(10, 60), np.empty(0, dtype=np.int64)]
    found = held.nearest(held.centring.query(rows[0], 0), groups, scripts, limit=4).tolist()
    assert sorted(place < 10 for place in found) == [False] * 4 + [True] * 4
    assert all(place % 2 == 0 and place < 40 for place in found)


def test_the_means_follow_what_is_found() -> None:
    """Rule search.derived: rows that went and rows that never came leave the same means, so a restart changes none."""
    rows = rows_of(np.random.default_rng(6), 80, dimensions=32, lean=1)
    held, stays, scripts = filled(rows), np.arange(80) % 4 == 0, np.zeros(80, dtype=np.int8)
    held.count(np.arange(80), stays, scripts)
    assert np.allclose(held.centring.means(), filled(rows[stays]).centring.means(), atol=1e-6)
    held.count(np.arange(80), np.ones(80, dtype=bool), scripts)
    assert np.allclose(held.centring.means(), filled(rows).centring.means(), atol=1e-6)
    again = rows[::-1]
    give(held, np.arange(80), again)
    assert np.allclose(held.centring.means(), filled(again).centring.means(), atol=1e-6)
