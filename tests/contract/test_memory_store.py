"""The MemoryStore port: one suite over every store. The dict store says what is meant; the engines must agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pgserver import Cluster
from reference_store import DictStore

from memory_anchor.base.hashing import content_hash
from memory_anchor.domain.errors import BadInput, ChangedMeanwhile, WrongEmbedder
from memory_anchor.domain.model import (
    HISTORY,
    Layer,
    Memory,
    MemoryType,
    Receipt,
    Scope,
    Status,
    Tag,
    Usage,
    Visibility,
)
from memory_anchor.domain.ports import (
    DENSE,
    DENSE_LOCAL,
    WORDS,
    CollectionSpec,
    EmbedderIdentity,
    Entry,
    Mark,
    SparseVector,
)
from memory_anchor.domain.where import AnyOf, Between, HasVector, OneOf, StartsWith, Where
from memory_anchor.store.database import IN_MEMORY, Sqlite
from memory_anchor.store.postgresql import Postgresql
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.store.tables import inverse_frequency

FACTS = "verified_fact"
EVENTS = "event_log"
NOON = datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC)
SPEC = CollectionSpec({DENSE: EmbedderIdentity("tiny", 4)})
Store = DictStore | SqlStore


def _dict(_folder: Path) -> Iterator[Store]:
    with closing(DictStore()) as store:
        yield store


def _sqlite(folder: Path) -> Iterator[Store]:
    with closing(SqlStore(Sqlite(folder / "data" / "memory.db"))) as store:
        yield store


def _in_memory(_folder: Path) -> Iterator[Store]:
    with closing(SqlStore(Sqlite(IN_MEMORY))) as store:
        yield store


def _postgresql(server: Cluster) -> Iterator[Store]:
    with closing(SqlStore(Postgresql(server.emptied()))) as store:
        yield store


MAKERS: dict[str, Callable[[Path], Iterator[Store]]] = {
    "dict": _dict,
    "sqlite": _sqlite,
    "memory": _in_memory,
}


@pytest.fixture(params=[*MAKERS, "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An open store with an empty `verified_fact`."""
    is_server = request.param == "postgresql"
    for made in _postgresql(request.getfixturevalue("postgres")) if is_server else MAKERS[request.param](tmp_path):
        made.open_collection(FACTS, SPEC)
        yield made


def memory(name: str, **changes: Any) -> Memory:
    fields: dict[str, Any] = {
        "content": f"about {name}",
        "layer": Layer.VERIFIED_FACT,
        "type": MemoryType.FACT,
        "scope": Scope(),
        "recorded_at": NOON,
        "valid_from": NOON,
    }
    return Memory(id=name, **(fields | changes))


def row(*numbers: float) -> Any:
    vector = np.asarray(numbers, dtype=np.float32)
    return vector / np.linalg.norm(vector)


def words(**weights: float) -> SparseVector:
    """words(t1=1.0) is a vector with term 1."""
    return SparseVector(tuple(int(name[1:]) for name in weights), tuple(weights.values()))


def ids(memories: list[Memory]) -> list[str]:
    return [each.id for each in memories]


def found(store: Store, *conditions: Any, none_of: tuple[Any, ...] = ()) -> set[str]:
    """The ids that a filter lets through; `count` must agree."""
    where = Where(conditions, none_of)
    memories = store.find(FACTS, where, limit=100)
    assert store.count(FACTS, where) == len(memories)
    return set(ids(memories))


def put(store: Store, *memories: Memory) -> None:
    store.put(FACTS, [Entry(each) for each in memories])


# --- records ---------------------------------------------------------------------------------------------------------


def test_what_is_put_is_got_back_whole_in_the_order_asked(store: Store) -> None:
    """Port get: those that exist, in the order asked; unknown ids are left out."""
    one = memory(
        "one", content="用户偏好：深色主题 😀", tags=(Tag("界面", 0.5), Tag("ui")), gap={"why": ["a", 1, None, 2.5]}
    )
    two = memory("two", receipts=(Receipt("k1", "f1", {"outcome": "added", "id": "two"}),))
    store.put(FACTS, [Entry(one, {DENSE: row(1, 0, 0, 0)}, words(t1=1.0)), Entry(two)])

    got = store.get(FACTS, [two.point_id, memory("nobody").point_id, one.point_id])

    assert [entry.memory for entry in got] == [two, one]
    assert all(not entry.vectors and entry.words is None for entry in got)
    assert store.get(FACTS, []) == []


def test_vectors_come_back_only_when_asked_for(store: Store) -> None:
    """Port get: with_vectors returns the dense rows and the words."""
    one = memory("one")
    store.put(FACTS, [Entry(one, {DENSE: row(3, 4, 0, 0)}, words(t7=0.5, t4294967295=2.0)), Entry(memory("bare"))])

    entry, bare = store.get(FACTS, [one.point_id, memory("bare").point_id], with_vectors=True)

    assert np.allclose(entry.vectors[DENSE], [0.6, 0.8, 0, 0], atol=1e-6)
    assert entry.words == words(t7=0.5, t4294967295=2.0)
    assert bare.vectors == {} and bare.words is None


def test_putting_a_version_again_replaces_it_whole(store: Store) -> None:
    """Port put: insert or replace; a replaced version's old vectors are gone."""
    store.put(FACTS, [Entry(memory("one"), {DENSE: row(1, 0, 0, 0)}, words(t1=1.0))])

    put(store, memory("one", content="newer", where="src"))

    (entry,) = store.get(FACTS, [memory("one").point_id], with_vectors=True)
    assert (entry.memory.content, entry.vectors, entry.words) == ("newer", {}, None)
    assert store.matching(FACTS, words(t1=1.0), Where(), limit=5) == []
    assert store.count(FACTS, Where()) == 1


def test_superseding_is_one_batch(store: Store) -> None:
    """Strategy: the new version and the closed old one are written together; searches see one live version."""
    old = memory("one", content="uses sqlite")
    put(store, old)
    later = NOON + timedelta(days=1)
    new = replace(old, content="uses qdrant", version=2, recorded_at=later, previous_version_id=old.version_id)

    put(store, new, old.closed(later))

    assert found(store, OneOf("state", ("active", "disputed"))) == {"one"}
    assert [each.content for each in store.find(FACTS, Where((OneOf("state", ("active",)),)), limit=5)] == [
        "uses qdrant"
    ]
    (closed,) = store.find(FACTS, Where((OneOf("state", (HISTORY,)),)), limit=5)
    assert (closed.version, closed.recorded_to, closed.is_current) == (1, later, False)


def test_a_batch_with_one_bad_vector_writes_nothing(store: Store) -> None:
    """Port put: all of them or none; a wrong length names the embedder, not a number is bad input."""
    with pytest.raises(WrongEmbedder, match=r"3 dimensions.*tiny.*reindex"):
        store.put(FACTS, [Entry(memory("good")), Entry(memory("bad"), {DENSE: np.ones(3, dtype=np.float32)})])
    with pytest.raises(WrongEmbedder, match="'other'"):
        store.put(FACTS, [Entry(memory("good")), Entry(memory("bad"), {"other": row(1, 0, 0, 0)})])
    with pytest.raises(BadInput, match="not finite"):
        store.put(FACTS, [Entry(memory("good")), Entry(memory("bad"), {DENSE: np.full(4, np.nan, dtype=np.float32)})])

    assert store.count(FACTS, Where()) == 0


def test_usage_moves_outside_the_content(store: Store) -> None:
    """Port set_usage: replaces the mutable part only, and unused ids are ignored."""
    one, two = memory("one", content_hash=content_hash(memory("one").content)), memory("two")
    store.put(FACTS, [Entry(one, {DENSE: row(1, 0, 0, 0)}), Entry(two)])
    usage = Usage(count=3, shown=9, last_at=NOON, accesses=(NOON - timedelta(hours=1), NOON))

    store.set_usage(FACTS, {one.point_id: usage, memory("nobody").point_id: usage})

    (entry,) = store.get(FACTS, [one.point_id], with_vectors=True)
    assert entry.memory == replace(one, usage=usage)
    assert np.allclose(entry.vectors[DENSE], [1, 0, 0, 0])
    assert found(store, Between("last_at", at_least=NOON)) == {"one"}

    store.set_usage(FACTS, {one.point_id: Usage()})
    assert store.get(FACTS, [one.point_id])[0].memory == one
    assert found(store, Between("last_at", at_least=NOON)) == set()
    assert store.count(FACTS, Where()) == 2


def test_a_vector_may_come_later(store: Store) -> None:
    """Port set_vectors: a memory is found by words at once, by meaning when its vector comes."""
    store.put(FACTS, [Entry(memory("one"), words=words(t1=1.0))])
    assert store.nearest(FACTS, row(1, 0, 0, 0), Where(), limit=5) == []
    assert found(store, none_of=(HasVector(DENSE),)) == {"one"}

    point = memory("one").point_id
    store.set_vectors(FACTS, {point: {DENSE: row(1, 0, 0, 0)}, memory("nobody").point_id: {DENSE: row(1, 0, 0, 0)}})

    assert [hit.point_id for hit in store.nearest(FACTS, row(1, 0, 0, 0), Where(), limit=5)] == [point]
    assert [hit.point_id for hit in store.matching(FACTS, words(t1=1.0), Where(), limit=5)] == [point]
    assert found(store, HasVector(DENSE)) == {"one"}
    assert store.get(FACTS, [point])[0].memory == memory("one")
    with pytest.raises(WrongEmbedder):
        store.set_vectors(FACTS, {point: {DENSE: np.ones(3, dtype=np.float32)}})


# --- several engines -------------------------------------------------------------------------------------------------


def shared(store: Store) -> Store:
    if store.kind == "edge":
        pytest.skip("an embedded store has one process, and its lock sees to that")
    return store


def next_of(read: Memory, content: str) -> list[Memory]:
    """The two versions that a revision writes."""
    later = NOON + timedelta(days=1)
    return [
        replace(read, content=content, version=read.version + 1, recorded_at=later, receipts=()),
        read.closed(later),
    ]


def test_of_two_engines_that_revise_one_memory_one_is_told_it_was_late(store: Store) -> None:
    """Port put: optimistic; the second writes nothing, reads again and goes on from the first."""
    put(shared(store), memory("one"), memory("two"))
    first, second = (store.find(FACTS, Where((OneOf("id", ("one",)),)), limit=1)[0] for _ in range(2))
    other = store.get(FACTS, [memory("two").point_id])[0].memory

    put(store, *next_of(first, "by the first"))
    with pytest.raises(ChangedMeanwhile, match=r"'one' was changed by another engine.*nothing was written"):
        put(store, *next_of(other, "beside it"), *next_of(second, "by the second"))

    assert store.count(FACTS, Where()) == 3
    (current,) = store.find(FACTS, Where((OneOf("id", ("one",)),), (OneOf("state", (HISTORY,)),)), limit=5)
    assert current.content == "by the first"
    put(store, *next_of(current, "by the second"))
    assert store.count(FACTS, Where((OneOf("id", ("one",)),))) == 3


def test_what_was_closed_meanwhile_is_not_opened_again(store: Store) -> None:
    """Port put: a use counted in place, or fresh words, never undo another engine's revision."""
    put(shared(store), memory("one"))
    used, revised = (store.get(FACTS, [memory("one").point_id], with_vectors=True)[0] for _ in range(2))
    put(store, *next_of(revised.memory, "newer"))

    with pytest.raises(ChangedMeanwhile):
        store.put(FACTS, [replace(used, memory=replace(used.memory, receipts=(Receipt("k", "f", {}),)))])

    assert found(store, OneOf("state", (HISTORY,))) == {"one"}
    (entry,) = store.get(FACTS, [memory("one").point_id])
    again = replace(entry.memory, receipts=(Receipt("k", "f", {}),))
    put(store, again)
    assert store.get(FACTS, [memory("one").point_id])[0].memory.receipts == again.receipts


# --- filters ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def shelf(store: Store) -> Store:
    """Five memories that differ in every filtered field."""
    day = timedelta(days=1)
    agent = Scope(agent="codex", conversation="c2", project="p2")
    store.put(
        FACTS,
        [
            Entry(
                memory("a", tags=(Tag("db"), Tag("数据库")), where="src/api/x.py", who=("ann",)),
                {DENSE: row(1, 0, 0, 0)},
            ),
            Entry(memory("b", tags=(Tag("ui"),), where="src/ui", recorded_at=NOON + day, status=Status.DISPUTED)),
            Entry(
                memory("c", scope=agent, recorded_at=NOON + 2 * day, pinned=True, conversation_seq=7), words=words(t1=1)
            ),
            Entry(memory("d", version=3, status=Status.ARCHIVED, valid_to=NOON, conversation_seq=8, when=NOON)),
            Entry(
                memory("e", visibility=Visibility.USER, is_current=False, recorded_to=NOON + day, who=("bob", "ann"))
            ),
        ],
    )
    return store


def test_one_of_looks_into_scalars_lists_and_numbers(shelf: Store) -> None:
    """Filter OneOf: the field holds one of these values; lists share one."""
    assert found(shelf, OneOf("state", ("active", "disputed"))) == {"a", "b", "c"}
    assert found(shelf, OneOf("tag", ("数据库", "ui"))) == {"a", "b"}
    assert found(shelf, OneOf("who", ("ann",))) == {"a", "e"}
    assert found(shelf, OneOf("version", (3, 4))) == {"d"}
    assert found(shelf, OneOf("pinned", ("yes",))) == {"c"}
    assert found(shelf, OneOf("audience", ("u|local|me",))) == {"e"}
    assert found(shelf, OneOf("agent", ("codex",)), OneOf("project", ("p2",)), OneOf("conversation", ("c2",))) == {"c"}
    assert found(shelf, OneOf("id", ("a", "zz"))) == {"a"}
    assert found(shelf, OneOf("state", ())) == set()
    assert found(shelf, OneOf("state", ("nothing",))) == set()


def test_between_is_closed_below_and_open_above(shelf: Store) -> None:
    """Filter Between: at_least <= field < below, to the microsecond; missing fields never match."""
    day = timedelta(days=1)
    assert found(shelf, Between("recorded_at", NOON, NOON + day)) == {"a", "d", "e"}
    assert found(shelf, Between("recorded_at", NOON + timedelta(microseconds=1))) == {"b", "c"}
    assert found(shelf, Between("recorded_at", below=NOON)) == set()
    assert found(shelf, Between("conversation_seq", 7, 8)) == {"c"}
    assert found(shelf, Between("conversation_seq", at_least=7)) == {"c", "d"}
    assert found(shelf, Between("when", at_least=NOON - day)) == {"d"}


def test_an_open_end_is_for_ever(shelf: Store) -> None:
    """Two times: what is believed now has recorded_to beyond any instant asked about."""
    now = NOON + timedelta(days=300)
    assert found(shelf, Between("recorded_to", at_least=now)) == {"a", "b", "c", "d"}
    assert found(shelf, Between("valid_to", at_least=now)) == {"a", "b", "c", "e"}


def test_starts_with_takes_the_beginning_only(shelf: Store) -> None:
    """Filter StartsWith: a prefix of a keyword."""
    assert found(shelf, StartsWith("where", "src/")) == {"a", "b"}
    assert found(shelf, StartsWith("where", "src/api")) == {"a"}
    assert found(shelf, StartsWith("where", "api")) == set()
    assert found(shelf, StartsWith("tag", "数据")) == {"a"}


def test_has_vector_tells_what_is_embedded(shelf: Store) -> None:
    """Filter HasVector: dense and words apart."""
    assert found(shelf, HasVector()) == {"a"}
    assert found(shelf, HasVector(WORDS)) == {"c"}


def test_filters_combine(shelf: Store) -> None:
    """Where: all of all_of, none of none_of; AnyOf nests whole filters."""
    live = OneOf("state", ("active", "disputed"))
    either = AnyOf((Where((OneOf("tag", ("db",)),)), Where((OneOf("agent", ("codex",)),), (HasVector(),))))
    assert found(shelf, live, either) == {"a", "c"}
    assert found(shelf, either, none_of=(OneOf("pinned", ("yes",)),)) == {"a"}
    assert found(shelf, none_of=(live, StartsWith("where", "src"))) == {"d", "e"}
    assert found(shelf, AnyOf(())) == set()
    assert found(shelf, AnyOf((Where(),)), live) == {"a", "b", "c"}
    assert found(shelf, AnyOf((Where((AnyOf((Where((HasVector(),)),)),)),))) == {"a"}
    assert found(shelf) == {"a", "b", "c", "d", "e"}


def test_filters_hold_in_both_searches(shelf: Store) -> None:
    """Scope: nothing that the filter keeps out is a hit."""
    where = Where((OneOf("project", ("nowhere",)),))
    assert shelf.nearest(FACTS, row(1, 0, 0, 0), where, limit=5) == []
    assert shelf.matching(FACTS, words(t1=1.0), where, limit=5) == []
    assert len(shelf.nearest(FACTS, row(1, 0, 0, 0), Where(), limit=5)) == 1
    assert len(shelf.matching(FACTS, words(t1=1.0), Where((OneOf("pinned", ("yes",)),)), limit=5)) == 1


def test_facet_counts_each_value_once_a_memory(shelf: Store) -> None:
    """Port facet: value -> how many matching versions hold it."""
    assert shelf.facet(FACTS, "who", Where()) == {"ann": 2, "bob": 1}
    assert shelf.facet(FACTS, "state", Where(none_of=(OneOf("state", (HISTORY,)),))) == {
        "active": 2,
        "disputed": 1,
        "archived": 1,
    }
    assert shelf.facet(FACTS, "tag", Where((OneOf("state", ("none",)),))) == {}


# --- order and pages -------------------------------------------------------------------------------------------------


def test_find_orders_by_times_and_numbers(shelf: Store) -> None:
    """Port find: order_by leaves out what lacks the field; the limit takes the first."""
    latest = shelf.find(FACTS, Where(), limit=2, order_by="recorded_at", descending=True)
    assert ids(latest) == ["c", "b"]
    assert ids(shelf.find(FACTS, Where(), limit=9, order_by="conversation_seq")) == ["c", "d"]
    assert ids(shelf.find(FACTS, Where(), limit=9, order_by="recorded_at"))[-2:] == ["b", "c"]


def test_scan_pages_through_everything_once(store: Store) -> None:
    """Port scan: point-id order, a cursor until the end, no memory twice or never."""
    memories = [memory(f"m{number}", conversation_seq=number) for number in range(11)]
    store.put(FACTS, [Entry(each, {DENSE: row(1, 2, 3, 4)}) for each in memories])
    where = Where(none_of=(OneOf("id", ("m3",)),))

    seen: list[Entry] = []
    after, pages = None, 0
    while pages == 0 or after is not None:
        entries, after = store.scan(FACTS, where, page=4, after=after, with_vectors=True)
        seen += entries
        pages += 1

    points = [entry.memory.point_id for entry in seen]
    assert pages == 3 and points == sorted(points)
    assert {entry.memory.id for entry in seen} == {f"m{number}" for number in range(11)} - {"m3"}
    assert all(DENSE in entry.vectors for entry in seen)
    assert store.scan(FACTS, Where((OneOf("id", ()),))) == ([], None)


def test_marks_are_what_scan_says_may_move(store: Store) -> None:
    """Port marks: the same pages as scan, with state and audience alone."""
    memories = [
        memory("m0"),
        memory("m1", status=Status.ARCHIVED),
        memory("m2", recorded_to=NOON, is_current=False),
        memory("m3", scope=Scope(project="p1", agent="a1"), visibility=Visibility.AGENT),
        memory("m4"),
    ]
    store.put(FACTS, [Entry(each) for each in memories])

    marks: list[Mark] = []
    scanned: list[Entry] = []
    after = also = None
    while not marks or after is not None:
        found, after = store.marks(FACTS, Where(), page=2, after=after)
        entries, also = store.scan(FACTS, Where(), page=2, after=also)
        assert after == also
        marks += found
        scanned += entries

    assert marks == [Mark(one.memory.point_id, one.memory.state, one.memory.audience) for one in scanned]
    assert len(marks) == len(memories)


# --- ranking ---------------------------------------------------------------------------------------------------------


def test_nearest_ranks_by_cosine(store: Store) -> None:
    """Port nearest: cosine, best first, whatever the query's length."""
    rows = {"same": row(1, 0, 0, 0), "close": row(4, 3, 0, 0), "far": row(0, 0, 1, 0), "against": row(-1, 0, 0, 0)}
    store.put(FACTS, [Entry(memory(name), {DENSE: each}) for name, each in rows.items()])

    hits = store.nearest(FACTS, np.asarray([10, 0, 0, 0], dtype=np.float32), Where(), limit=4)

    names = {memory(name).point_id: name for name in rows}
    assert [names[hit.point_id] for hit in hits] == ["same", "close", "far", "against"]
    assert np.allclose([hit.score for hit in hits], [1.0, 0.8, 0.0, -1.0], atol=1e-4)
    assert len(store.nearest(FACTS, row(1, 0, 0, 0), Where(), limit=2)) == 2
    assert store.nearest(FACTS, row(1, 0, 0, 0), Where(), limit=2, using=DENSE_LOCAL) == []


def test_matching_scores_are_the_same_numbers_on_every_engine(store: Store) -> None:
    """Port matching: sum of query weight * stored weight * ln((N - df + 0.5) / (df + 0.5) + 1)."""
    stored = {"one": words(t1=1.0, t2=0.5), "two": words(t2=2.0), "three": words(t2=1.0, t3=1.5), "four": words(t9=1.0)}
    store.put(FACTS, [*(Entry(memory(name), words=each) for name, each in stored.items()), Entry(memory("wordless"))])

    hits = store.matching(FACTS, words(t1=1.0, t2=3.0, t77=1.0), Where(), limit=9)

    rare, common = inverse_frequency(1, 4), inverse_frequency(3, 4)
    expected = {"one": rare + 1.5 * common, "two": 6 * common, "three": 3 * common}
    names = {memory(name).point_id: name for name in expected}
    assert [names[hit.point_id] for hit in hits] == sorted(expected, key=lambda name: -expected[name])
    for hit in hits:
        assert hit.score == pytest.approx(expected[names[hit.point_id]], abs=1e-4)
    assert store.matching(FACTS, SparseVector((), ()), Where(), limit=9) == []


def test_idf_counts_the_whole_collection_whatever_the_filter(store: Store) -> None:
    """Port matching: a filter chooses hits; it does not change a term's rarity."""
    store.put(FACTS, [Entry(memory(f"m{number}"), words=words(t1=1.0)) for number in range(5)])
    store.put(FACTS, [Entry(memory("other", pinned=True), words=words(t1=1.0, t2=1.0))])

    (hit,) = store.matching(FACTS, words(t1=1.0), Where((OneOf("pinned", ("yes",)),)), limit=9)

    assert hit.score == pytest.approx(inverse_frequency(6, 6), abs=1e-4)


def test_engines_rank_random_memories_like_the_reference(store: Store) -> None:
    """One contract: the same order and numbers as the dict store, after replacements too."""
    rng = np.random.default_rng(7)
    reference = DictStore()
    reference.open_collection(FACTS, SPEC)
    entries = []
    for number in range(60):
        terms = sorted({int(term) for term in rng.integers(1, 30, size=6)})
        sparse = SparseVector(tuple(terms), tuple(float(weight) for weight in rng.random(len(terms)).round(3) + 0.1))
        name = f"m{number % 50}"  # ten are replaced
        entries.append(Entry(memory(name, pinned=number % 2 == 0), {DENSE: row(*rng.normal(size=4))}, sparse))
    for chosen in (store, reference):
        chosen.put(FACTS, entries[:50])
        chosen.put(FACTS, entries[50:])
    where = Where((OneOf("pinned", ("yes",)),))
    query, terms = row(*rng.normal(size=4)), words(t1=1.0, t5=1.0, t9=2.0)

    for got, meant in (
        (store.nearest(FACTS, query, where, limit=20), reference.nearest(FACTS, query, where, limit=20)),
        (store.matching(FACTS, terms, where, limit=20), reference.matching(FACTS, terms, where, limit=20)),
    ):
        assert [hit.point_id for hit in got] == [hit.point_id for hit in meant]
        assert np.allclose([hit.score for hit in got], [hit.score for hit in meant], atol=1e-4)


# --- collections -----------------------------------------------------------------------------------------------------


def test_collections_do_not_mix(store: Store) -> None:
    """Collections: each layer has its own records."""
    store.open_collection(EVENTS, SPEC)
    put(store, memory("fact"))
    assert store.count(EVENTS, Where()) == 0
    with pytest.raises(ValueError, match="not one of the collections"):
        store.open_collection("elsewhere", SPEC)


def test_another_embedder_is_refused_by_name(store: Store) -> None:
    """Embedder identity: model, dimensions and roles are checked; the sentence names both and what to run."""
    put(store, memory("one"))
    for other in (EmbedderIdentity("other", 4), EmbedderIdentity("tiny", 8), EmbedderIdentity("tiny", 4, "symmetric")):
        with pytest.raises(WrongEmbedder, match=r"tiny \(4 dim.*memory-anchor reindex") as refused:
            store.open_collection(FACTS, CollectionSpec({DENSE: other}))
        assert other.model in str(refused.value)
    store.open_collection(FACTS, SPEC)
    assert store.count(FACTS, Where()) == 1


def test_a_second_model_is_added_beside_the_first(store: Store) -> None:
    """An API embedder keeps the bundled model's vector beside its own."""
    store.put(FACTS, [Entry(memory("one"), {DENSE: row(1, 0, 0, 0)})])
    store.open_collection(FACTS, CollectionSpec({**SPEC.embedders, DENSE_LOCAL: EmbedderIdentity("bundled", 3)}))

    store.set_vectors(FACTS, {memory("one").point_id: {DENSE_LOCAL: row(0, 1, 0)}})

    assert len(store.nearest(FACTS, row(0, 1, 0), Where(), limit=5, using=DENSE_LOCAL)) == 1
    assert len(store.nearest(FACTS, row(1, 0, 0, 0), Where(), limit=5)) == 1
    assert found(store, HasVector(DENSE_LOCAL)) == {"one"}


def test_reindex_keeps_memories_and_words_and_drops_the_old_vectors(store: Store) -> None:
    """Vectors are derived: changing the embedder loses nothing but them."""
    store.put(FACTS, [Entry(memory("one"), {DENSE: row(1, 0, 0, 0)}, words(t1=1.0))])
    wider = CollectionSpec({DENSE: EmbedderIdentity("wider", 6)})

    store.reindex(FACTS, wider)

    store.open_collection(FACTS, wider)
    assert found(store, none_of=(HasVector(),)) == {"one"}
    assert len(store.matching(FACTS, words(t1=1.0), Where(), limit=5)) == 1
    store.set_vectors(FACTS, {memory("one").point_id: {DENSE: row(1, 0, 0, 0, 0, 0)}})
    assert len(store.nearest(FACTS, row(1, 0, 0, 0, 0, 0), Where(), limit=5)) == 1


def test_a_new_model_is_made_ready_beside_the_old_one_and_takes_its_place(store: Store) -> None:
    """Reindex: a second named vector is filled while the first answers; dropping either leaves the other whole."""
    (old,) = store.embedders(FACTS).values()
    new = EmbedderIdentity("wider", 6)
    store.put(FACTS, [Entry(memory("one"), {DENSE: row(1, 0, 0, 0)}, words(t1=1.0))])

    store.reindex(FACTS, CollectionSpec({DENSE: old, "beside": new}))
    assert dict(store.embedders(FACTS)) == {DENSE: old, "beside": new}
    assert len(store.nearest(FACTS, row(1, 0, 0, 0), Where(), limit=5)) == 1
    store.set_vectors(FACTS, {memory("one").point_id: {"beside": row(0, 1, 0, 0, 0, 0)}})
    store.reindex(FACTS, CollectionSpec({DENSE: new, "beside": new}))
    assert found(store, none_of=(HasVector(),)) == {"one"}
    assert found(store, HasVector("beside")) == {"one"}
    (entry,) = store.get(FACTS, [memory("one").point_id], with_vectors=True)
    store.set_vectors(FACTS, {memory("one").point_id: {DENSE: entry.vectors["beside"]}})
    store.reindex(FACTS, CollectionSpec({DENSE: new}))

    assert dict(store.embedders(FACTS)) == {DENSE: new}
    assert found(store, HasVector()) == {"one"}
    assert len(store.matching(FACTS, words(t1=1.0), Where(), limit=5)) == 1


def test_erase_takes_exactly_what_it_is_told(store: Store) -> None:
    """Purge: the erased are gone from every answer, the rest is untouched, numbers included."""
    store.put(
        FACTS, [Entry(memory(name), {DENSE: row(1, 0, 0, 0)}, words(t1=1.0)) for name in ("keep", "gone", "also")]
    )

    store.erase(FACTS, [memory("gone").point_id, memory("also").point_id, memory("nobody").point_id])

    assert found(store) == {"keep"}
    assert len(store.nearest(FACTS, row(1, 0, 0, 0), Where(), limit=5)) == 1
    (hit,) = store.matching(FACTS, words(t1=1.0), Where(), limit=5)
    assert hit.score == pytest.approx(inverse_frequency(1, 1), abs=1e-4)
    put(store, memory("after"))
    assert found(store) == {"keep", "after"}


def test_the_small_calls_answer(store: Store) -> None:
    """Port: size_bytes and an empty put are always allowed."""
    store.put(FACTS, [])
    store.set_usage(FACTS, {})
    store.set_vectors(FACTS, {})
    store.erase(FACTS, [])
    assert store.size_bytes() >= 0
    assert store.kind in ("dict", "sqlite", "postgresql")
