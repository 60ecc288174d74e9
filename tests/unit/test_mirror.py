"""The mirror of a store that numbers its writes: whatever was written, by whom, it answers as the exact search does."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_payload import MEMORY, plain
from test_sql_store import wheres

from memory_anchor.adapters.snapshot_file import SnapshotFile
from memory_anchor.domain.model import Actor, Layer, Memory, RetrievedSnippet, Scope, Status, Tag, Usage
from memory_anchor.domain.ports import DENSE, CollectionSpec, Entry, Hit, SparseVector, VectorQuery
from memory_anchor.domain.where import AnyOf, Between, HasVector, OneOf, StartsWith, Where
from memory_anchor.language.terms import query_terms
from memory_anchor.recall import index, mirror, vector_rows, word_table
from memory_anchor.recall.point_table import PointTable, packed_points, point_texts
from memory_anchor.recall.request import SearchRequest
from memory_anchor.recall.search import Searcher
from memory_anchor.store import sql_store
from memory_anchor.store.database import IN_MEMORY, Database, Sqlite
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.testing import HashEmbedder, ManualClock, make_searcher

FACTS, EVENTS = Layer.VERIFIED_FACT.value, Layer.EVENT_LOG.value
EMBEDDER = HashEmbedder(dimensions=8)
SPEC = CollectionSpec({DENSE: EMBEDDER.identity})
ALL = 1_000
ROW = st.lists(st.floats(-1, 1, width=32), min_size=8, max_size=8).map(lambda row: np.asarray(row, np.float32))
WORDS = st.dictionaries(st.integers(0, 6), st.floats(0.25, 2, width=32), max_size=4).map(
    lambda words: SparseVector(tuple(words), tuple(words.values()))
)


def over(database: Database) -> SqlStore:
    """A store object of its own, as another process has it: exact, nobody answers in its place."""
    store = SqlStore(database)
    for name in (FACTS, EVENTS):
        store.open_collection(name, SPEC)
    return store


@pytest.fixture
def database() -> Iterator[Database]:
    with closing(Sqlite(IN_MEMORY)) as made:
        yield made


def searcher(store: SqlStore) -> Searcher:
    return make_searcher(store, EMBEDDER, ManualClock())


def by_point(hits: list[Hit]) -> dict[str, float]:
    return {hit.point_id: hit.score for hit in hits}


def assert_same(mirrored: SqlStore, exact: SqlStore, row: Any, words: SparseVector, where: Where) -> None:
    """Same versions, same scores as far as 8 bits a component tell, best first."""
    assert mirrored.searched_by is not None and exact.searched_by is None
    for collection in (FACTS, EVENTS):
        near = mirrored.nearest(collection, row, where, limit=ALL)
        assert by_point(near) == pytest.approx(by_point(exact.nearest(collection, row, where, limit=ALL)), abs=0.02)
        assert [hit.score for hit in near] == sorted((hit.score for hit in near), reverse=True)
        matching = mirrored.matching(collection, words, where, limit=ALL)
        expected = exact.matching(collection, words, where, limit=ALL)
        assert by_point(matching) == pytest.approx(by_point(expected), rel=1e-4, abs=1e-6)


@st.composite
def entries(draw: st.DrawFn) -> list[Entry]:
    memories = draw(st.lists(MEMORY, max_size=6, unique_by=lambda memory: memory.point_id))
    return [
        Entry(memory, {DENSE: draw(ROW)} if draw(st.booleans()) else {}, draw(st.none() | WORDS)) for memory in memories
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_any_search_finds_what_the_exact_one_finds(data: st.DataObject) -> None:
    """Mirror == SQL + exact: any memories, any filter over any field, by meaning and by words."""
    stored = data.draw(entries())
    with closing(Sqlite(IN_MEMORY)) as database:
        mirrored, exact = over(database), over(database)
        searcher(mirrored)
        exact.put(FACTS, stored[:4])
        exact.put(EVENTS, stored[4:])

        for _ in range(3):
            where = data.draw(wheres([entry.memory for entry in stored]))
            assert_same(mirrored, exact, data.draw(ROW), data.draw(WORDS), where)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_whatever_any_process_writes_is_found_by_the_next_search(data: st.DataObject) -> None:
    """Follows `changed` and `gone`: puts, states, vectors, usage, erasing and the same point again, in any order."""
    with closing(Sqlite(IN_MEMORY)) as database:
        mirrored, exact = over(database), over(database)
        searcher(mirrored)
        held: dict[str, Entry] = {}
        for _ in range(data.draw(st.integers(1, 8))):
            writer = data.draw(st.sampled_from([mirrored, exact]))
            memory = replace(
                plain(),
                id=data.draw(st.sampled_from("abc")),
                content=data.draw(st.sampled_from(["one", "two"])),
                status=data.draw(st.sampled_from([Status.ACTIVE, Status.ARCHIVED])),
                tags=data.draw(st.sampled_from([(), (Tag("x"),), (Tag("x"), Tag("y"))])),
            )
            point = memory.point_id
            match data.draw(st.sampled_from(["put", "vector", "usage", "erase", "read"])):
                case "put":
                    held[point] = Entry(memory, {DENSE: data.draw(ROW)}, data.draw(WORDS))
                    writer.put(FACTS, [held[point]])
                case "vector":
                    writer.set_vectors(FACTS, {point: {DENSE: data.draw(ROW)}})
                case "usage":
                    writer.set_usage(FACTS, {point: Usage(count=2)})
                case "erase":
                    writer.erase(FACTS, [point])
                    held.pop(point, None)
                case _:
                    mirrored.nearest(FACTS, data.draw(ROW), Where(), limit=1)
            where = data.draw(st.sampled_from([Where(), Where((OneOf("tag", ("y",)),)), Where((HasVector(),))]))
            assert_same(mirrored, exact, data.draw(ROW), data.draw(WORDS), where)


def test_times_and_lists_are_filtered_as_the_store_filters_them(database: Database) -> None:
    """Columns: half-open ranges to the microsecond, what has no time is in none; lists by one value they share."""
    mirrored, exact = over(database), over(database)
    searcher(mirrored)
    at = plain().recorded_at
    memories = [
        replace(plain(), id="bare"),
        replace(plain(), id="dated", when=at, content_at=at, tags=(Tag("t"),), who=("Anna",)),
        replace(plain(), id="two", when=at, tags=(Tag("t"), Tag("u")), where="src/a"),
    ]
    exact.put(
        FACTS, [Entry(memory, {DENSE: np.ones(8, np.float32)}, SparseVector((1,), (1.0,))) for memory in memories]
    )
    held, dated = {memory.id: memory.point_id for memory in memories}, Between("when", at_least=at)

    def ids(*conditions: Any, none_of: Any = ()) -> set[str]:
        hits = mirrored.nearest(FACTS, np.ones(8, np.float32), Where(conditions, none_of), limit=ALL)
        return {name for name, point in held.items() if point in by_point(hits)}

    assert ids(dated) == {"dated", "two"}
    assert ids(Between("when", below=at)) == set()
    assert ids(none_of=(dated,)) == {"bare"}
    assert ids(Between("content_at", at_least=at)) == {"dated"}
    assert ids(OneOf("tag", ("t",)), OneOf("tag", ("u", "v"))) == {"two"}
    assert ids(OneOf("tag", ("t",)), OneOf("who", ("Anna",)), dated) == {"dated"}
    assert ids(StartsWith("where", "src/"), dated) == {"two"}
    assert ids(AnyOf((Where((dated,), (OneOf("type", ("fact",)),)), Where((Between("content_at", at_least=at),))))) == {
        "dated"
    }


def test_a_search_with_any_filter_finds_what_another_process_just_wrote(database: Database) -> None:
    """Follow: before any answer, a kept one too, one query says whether anything was written since."""
    mirrored, elsewhere = over(database), over(database)
    asking, me = searcher(mirrored), Actor(scope=Scope(project="mine", agent="anna"))
    memory = replace(plain(), content="The red tram is late", scope=me.scope, tags=(Tag("city"),))
    requests = [SearchRequest("red tram"), SearchRequest("red tram", tags=("city",))]
    assert [asking.search(me, request).snippets for request in requests] == [(), ()]

    elsewhere.put(FACTS, [asking.index.entry_of(memory, embed=True)])
    found = [[snippet.id for snippet in asking.search(me, request).snippets] for request in requests]
    elsewhere.erase(FACTS, [memory.point_id])

    assert found == [[memory.id], [memory.id]]
    assert [asking.search(me, request).snippets for request in requests] == [(), ()]


def test_what_waits_for_its_vector_is_counted_as_the_store_counts_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule figures: once the mirror is whole it counts, whoever writes; the store would look at all."""
    mirrored, exact = over(database), over(database)
    found = searcher(mirrored).index
    lacking = Where((OneOf("state", ("active", "disputed", "pending")),), (HasVector(DENSE),))
    words, row = SparseVector((1,), (1.0,)), {DENSE: np.ones(8, np.float32)}

    def entry(name: str, status: Status, rows: dict[str, Any]) -> Entry:
        return Entry(replace(plain(), id=name, status=status), rows, words)

    def counts() -> tuple[int, int]:
        return found.unembedded(), sum(exact.count(name, lacking) for name in (FACTS, EVENTS))

    exact.put(FACTS, [entry("a", Status.ACTIVE, {}), entry("b", Status.PENDING, {}), entry("c", Status.ACTIVE, row)])
    exact.put(EVENTS, [entry("d", Status.ARCHIVED, {}), entry("e", Status.ACTIVE, {})])
    assert counts() == (3, 3)
    found.warm()
    monkeypatch.setattr(mirrored, "count", lambda *_: pytest.fail("the store was asked"))
    assert counts() == (3, 3)
    exact.put(FACTS, [entry("f", Status.ACTIVE, {}), entry("a", Status.SUPERSEDED, {})])
    exact.set_vectors(EVENTS, {entry("e", Status.ACTIVE, {}).memory.point_id: row})
    assert counts() == (2, 2)
    exact.erase(FACTS, [entry("f", Status.ACTIVE, {}).memory.point_id])
    assert counts() == (1, 1)


def test_no_text_is_read_to_begin(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start: what the mirror needs is stored with the words; a text is read where that is missing or damaged."""
    exact = over(database)
    exact.put(FACTS, [Entry(replace(plain(), id=name), words=SparseVector((1,), (1.0,))) for name in "ab"])
    read: list[Memory] = []
    traits_of = index.traits_of
    monkeypatch.setattr(index, "traits_of", lambda memory: read.append(memory) or traits_of(memory))
    assert searcher(over(database)).index.warm() == 2
    assert read == []

    database.write(lambda link: link.run("update vec set traits = ? where seq = 1", (b"older",)))

    assert searcher(over(database)).index.warm() == 2
    assert [memory.id for memory in read] == ["a"]


def test_a_damaged_vector_counts_for_nothing(database: Database) -> None:
    """Checksum: one flipped bit in an exponent would outweigh all other vectors in the means."""
    store = over(database)
    entry = Entry(plain(), {DENSE: np.ones(8, np.float32)}, SparseVector((1,), (1.0,)))
    store.put(FACTS, [entry])
    database.write(lambda link: link.run("update vec set dense = ?", (np.full(8, 1e30, np.float32).tobytes(),)))

    searcher(store)

    assert store.nearest(FACTS, np.ones(8, np.float32), Where(), limit=ALL) == []


def test_among_many_a_shortlist_by_signs_keeps_the_nearest(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortlist: above `COMPARED` rows; of the nearest ten nine in ten are the same."""
    monkeypatch.setattr(vector_rows, "COMPARED", 100)
    monkeypatch.setattr(vector_rows, "SHORTLIST_LEAST", 250)
    rng = np.random.default_rng(3)
    embedder = HashEmbedder(dimensions=64)
    rows = rng.normal(size=(600, 64)).astype(np.float32)
    stores = [SqlStore(database), SqlStore(database)]
    for store in stores:
        store.open_collection(FACTS, CollectionSpec({DENSE: embedder.identity}))
    mirrored, exact = stores
    exact.put(FACTS, [Entry(replace(plain(), id=f"m{number}"), {DENSE: row}) for number, row in enumerate(rows)])
    make_searcher(mirrored, embedder, ManualClock())

    kept = 0
    for query in rng.normal(size=(20, 64)).astype(np.float32):
        near, expected = (by_point(store.nearest(FACTS, query, Where(), limit=10)) for store in stores)
        kept += len(near.keys() & expected.keys())

    assert len(near) == 10 and kept >= 180


def test_who_is_the_last_found_is_decided_by_the_stored_vectors(database: Database) -> None:
    """Nearest: of rows that 8 bits a component cannot tell apart those are found that exact search finds."""
    mirrored, exact = over(database), over(database)
    rng = np.random.default_rng(5)
    one = rng.normal(size=8).astype(np.float32)
    rows = one + rng.normal(scale=0.02, size=(300, 8)).astype(np.float32)
    exact.put(FACTS, [Entry(replace(plain(), id=f"m{number}"), {DENSE: row}) for number, row in enumerate(rows)])
    exact.put(FACTS, [Entry(replace(plain(), id=f"same{number}"), {DENSE: one}) for number in range(300)])
    searcher(mirrored)

    for query in rng.normal(size=(20, 8)).astype(np.float32):
        for where in (Where(), Where((StartsWith("id", "m"),))):
            near, expected = (store.nearest(FACTS, query, where, limit=20) for store in (mirrored, exact))
            assert [hit.score for hit in near] == pytest.approx([hit.score for hit in expected], abs=1e-2)
            if where != Where():
                assert by_point(near).keys() == by_point(expected).keys()


def test_more_than_the_mirror_holds_is_searched_in_the_store(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Limit: above `MAX_ROWS` versions the store answers itself."""
    monkeypatch.setattr(index, "MAX_ROWS", 2)
    store = over(database)
    searcher(store)
    store.put(FACTS, [Entry(replace(plain(), id=name), {DENSE: np.ones(8, np.float32)}) for name in "abc"])

    assert store.searched_by is not None
    assert store.searched_by.query_batch(FACTS, [VectorQuery(np.ones(8, np.float32), ALL)], Where()) is None
    assert len(store.nearest(FACTS, np.ones(8, np.float32), Where(), limit=ALL)) == 3


def many(count: int, *, first: int = 0) -> list[Entry]:
    words = SparseVector((1,), (1.0,))
    return [Entry(replace(plain(), id=f"m{first + at}"), {DENSE: np.ones(8, np.float32)}, words) for at in range(count)]


def test_what_grew_too_many_while_they_were_read_are_searched_in_the_store(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Limit: a mirror that began anew on the way lacks what was read before, and does not answer."""
    for module in (index, mirror):
        monkeypatch.setattr(module, "MAX_ROWS", 4)
    monkeypatch.setattr(sql_store, "FOLLOWED_AT_ONCE", 2)
    mirrored, exact = over(database), over(database)
    exact.put(FACTS, many(4))
    searcher(mirrored)
    versions, later = mirrored.versions, many(3, first=4)

    def while_they_are_read(*asked: Any, **options: Any) -> Any:
        exact.put(FACTS, [later.pop()] if later else [])
        return versions(*asked, **options)

    monkeypatch.setattr(mirrored, "versions", while_they_are_read)
    found = [len(mirrored.nearest(FACTS, np.ones(8, np.float32), Where(), limit=ALL)) for _ in range(2)]

    assert later == [] and found == [7, 7]


def test_what_is_written_to_more_than_is_followed_is_found(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit: of a store with too many old versions the current ones are in memory, and what is written next too."""
    monkeypatch.setattr(index, "MAX_ROWS", 2)
    store, me = over(database), Actor(scope=Scope(project="mine", agent="anna"))
    store.put(FACTS, [replace(entry, memory=replace(entry.memory, is_current=False)) for entry in many(3)])
    asking = searcher(store)
    asking.index.warm()
    written = asking.index.entry_of(replace(plain(), content="The red tram is late", scope=me.scope), embed=True)

    store.put(FACTS, [written])
    asking.index.note_written(written)

    assert [snippet.id for snippet in asking.search(me, SearchRequest("red tram")).snippets] == [written.memory.id]


def test_the_answer_is_the_same_over_a_store_that_is_followed_and_one_that_is_not(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scoring: traits and words that were stored give the scores of texts that were read."""
    me = Actor(scope=Scope(project="mine", agent="anna", conversation="c1"))
    texts = [
        "The red tram is late",
        "Anna bought nine pears at 10:30",
        "Is the tram red?",
        "路由配置的变更",
        "Pears are red",
    ]
    memories = [
        replace(
            plain(), id=f"m{at}", content=text, scope=me.scope, who=("Anna",), tags=(Tag("city"),), conversation_seq=at
        )
        for at, text in enumerate(texts)
    ]
    answers = []
    for most, store in ((-1, over(Sqlite(IN_MEMORY))), (index.MAX_ROWS, over(database))):
        monkeypatch.setattr(index, "MAX_ROWS", most)
        asking = make_searcher(store, EMBEDDER, ManualClock())
        store.put(FACTS, [asking.index.entry_of(memory, embed=True) for memory in memories])
        asking.index.warm()
        questions = ["red tram", "when did Anna buy pears", "路由"]
        found = [asking.search(me, SearchRequest(question, detail=True)).snippets for question in questions]
        hits = [(question, hit) for question, answer in zip(questions, found, strict=True) for hit in answer]
        answers.append({(question, hit.id): scores(hit) for question, hit in hits})

    assert answers[0] == answers[1] and len(answers[0]) > 3


def scores(snippet: RetrievedSnippet) -> dict[str, Any]:
    """What a hit got for what; places among equals differ with the order of the rows."""
    return {
        name: {part: value for part, value in signal.items() if part != "rank"} if isinstance(signal, dict) else signal
        for name, signal in (snippet.signals or {}).items()
    }


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.booleans()), max_size=60))
def test_a_point_has_the_row_it_was_given_last(steps: list[tuple[int, int, bool]]) -> None:
    """Points: in any order of adding, giving up and sorting in, many of them alike in their first half."""
    table, rows = PointTable(100), dict[str, int]()
    for start, end, is_there in steps:
        point = f"0000000{start}-0000-0000-0000-00000000000{end}"
        if is_there and point not in rows:
            rows[point] = len(table)
            table.add(packed_points([point]))
        elif not is_there and point in rows:
            table.forget(np.array([rows.pop(point)]))
        if start == end:
            table.settle()
        assert (table.get(point) is not None) == (point in rows)

    assert table.rows(packed_points(rows)).tolist() == list(rows.values())
    assert table.texts(np.array(list(rows.values()), np.int64)) == list(rows)


def test_words_are_found_however_many_came_and_whenever_they_were_sorted_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words: settled, beside them and new, with more weights than have a number of their own."""
    monkeypatch.setattr(word_table, "TAIL_MOST", 9_000)
    rng, words = np.random.default_rng(1), word_table.WordTable()
    held: dict[int, dict[int, float]] = {}
    for row in range(400):
        terms = rng.choice(np.array([*range(60), (1 << 32) - 1], np.uint32), 20, replace=False)
        weights = rng.uniform(0.5, 2.2, 20).astype(np.float32)
        words.add(terms, np.full(20, row), weights)
        for term, weight in zip(terms.tolist(), weights.tolist(), strict=True):
            held.setdefault(term, {})[row] = weight
        if row % 150 == 149:
            words.settle()
        if row % 40 == 39:
            for term, expected in held.items():
                found = words.of(term)
                assert found is not None
                assert dict(zip(found[0].tolist(), found[1].tolist(), strict=True)) == pytest.approx(expected, abs=2e-3)

    assert words.of(70) is None


@pytest.mark.parametrize("is_committed", [True, False])
def test_nobody_else_finds_what_is_not_committed(is_committed: bool, tmp_path: Path) -> None:
    """Follow: the unit that writes finds it, by meaning and by words, and not what it closed; others the reverse."""
    me = Actor(scope=Scope(project="mine", agent="anna"))
    closed, fresh = (replace(plain(), id=name, content=f"The red tram is {name}", scope=me.scope) for name in "ab")
    with closing(Sqlite(tmp_path / "memory.db")) as database:
        store = over(database)
        asking = searcher(store)
        store.put(FACTS, [asking.index.entry_of(closed, embed=True)])
        live, vector = Where((OneOf("state", ("active",)),)), EMBEDDER.documents(["The red tram"])[0]
        written = asking.index.entry_of(fresh, embed=True)

        def found() -> tuple[set[str], set[str], set[str], set[str]]:
            near = store.nearest(FACTS, vector, live, limit=9)
            matching = store.matching(FACTS, query_terms("red tram"), live, limit=9)
            similar = asking.similar(me, "The red tram", layer=Layer.VERIFIED_FACT, limit=9)
            answer = asking.search(me, SearchRequest("red tram")).snippets if not store.in_unit else ()
            names = {memory.point_id: memory.id for memory in (closed, fresh)}
            hits = [{names[hit.point_id] for hit in hits} for hits in (near, matching)]
            return *hits, {memory.id for memory, _ in similar}, {snippet.id for snippet in answer}

        def attempt() -> None:
            try:
                with database.unit():
                    store.put(FACTS, [Entry(replace(closed, status=Status.ARCHIVED), written.vectors, written.words)])
                    store.put(FACTS, [written])
                    seen.append(found())
                    seen.append(others.submit(found).result())
                    if not is_committed:
                        raise KeyError
            except KeyError:
                pass

        seen: list[Any] = []
        with ThreadPoolExecutor(1) as others:
            before = others.submit(found).result()
            attempt()
            after = found()

    assert before == ({"a"}, {"a"}, {"a"}, {"a"})
    assert seen == [({"b"}, {"b"}, {"b"}, set()), before]
    assert after == (({"b"}, {"b"}, {"b"}, {"b"}) if is_committed else before)


def test_what_a_unit_wrote_takes_no_place_of_what_was_there(database: Database) -> None:
    """Follow: of the settled and of what is not committed as many are found by words as are asked for."""
    store = over(database)
    store.put(FACTS, many(3))
    searcher(store).index.warm()
    with database.unit():
        store.put(FACTS, many(2, first=3))
        found = by_point(store.matching(FACTS, SparseVector((1,), (1.0,)), Where(), limit=3))

    assert found.keys() == {entry.memory.point_id for entry in many(5)}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SnapshotFile:
    monkeypatch.setattr(index, "SAVED_FROM", 1)
    return SnapshotFile(tmp_path / "mirror.npz")


@pytest.mark.parametrize("part", ["rows", "numbers", "starts"])
def test_words_that_do_not_fit_together_are_read_anew(part: str, database: Database, kept: SnapshotFile) -> None:
    """Start: a saved list that is one too short is not half believed."""
    exact = over(database)
    exact.put(FACTS, many(3))
    make_searcher(over(database), EMBEDDER, ManualClock(), snapshot=kept).index.warm()
    saved = dict(kept.read() or {})
    kept.put(saved | {f"words.{part}": saved[f"words.{part}"][:-1]})

    mirrored = over(database)
    make_searcher(mirrored, EMBEDDER, ManualClock(), snapshot=kept)

    assert_same(mirrored, exact, np.ones(8, np.float32), SparseVector((1,), (1.0,)), Where())


def test_what_is_of_another_embedder_does_not_stay(
    database: Database, kept: SnapshotFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Start: a saved mirror that nobody can use is removed, since nobody removes from it what is erased."""
    over(database).put(FACTS, many(3))
    make_searcher(over(database), EMBEDDER, ManualClock(), snapshot=kept).index.warm()
    assert kept.read() is not None
    monkeypatch.setattr(index, "SAVED_FROM", 100)

    make_searcher(over(database), HashEmbedder(dimensions=8, model="other"), ManualClock(), snapshot=kept).index.warm()

    assert kept.read() is None


def test_a_mirror_whose_file_was_removed_is_saved_again(database: Database, kept: SnapshotFile) -> None:
    """End: what came and was erased in between costs the file, and not the next process its start."""
    exact = over(database)
    exact.put(FACTS, many(3))
    asking = make_searcher(over(database), EMBEDDER, ManualClock(), snapshot=kept)
    asking.index.warm()
    (brief,) = many(1, first=3)
    exact.put(FACTS, [brief])
    exact.erase(FACTS, [brief.memory.point_id])
    asking.index.follow()
    assert kept.read() is None

    asking.index.save()

    assert len((kept.read() or {})["points"]) == 3


def changed(data: st.DataObject, store: SqlStore) -> None:
    """Do one thing to a store: two in five times a memory is erased."""
    points = [mark.point_id for mark in store.marks(FACTS, Where())[0]]
    match data.draw(st.sampled_from(["put", "vector", "erase", "erase all", "erase", "nothing"])):
        case "put":
            store.put(FACTS, data.draw(entries()))
        case "vector" if points:
            store.set_vectors(FACTS, {data.draw(st.sampled_from(points)): {DENSE: data.draw(ROW)}})
        case "erase" if points:
            store.erase(FACTS, [data.draw(st.sampled_from(points))])
        case "erase all":
            store.erase(FACTS, points[len(points) // 2 :])
        case _:
            pass


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_a_saved_mirror_is_used_as_far_as_it_is_the_stores(data: st.DataObject) -> None:
    """Start: whatever was written, erased or put in the store's place since, every search finds what exact search does.

    Bytes: of what was erased nothing is left in the file, whether it was erased before a start, after it, or so much of
    it that the file is of no use; whether or not the process saves.
    """
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        kept = SnapshotFile(Path(folder) / "mirror.npz")
        stores = []
        with closing(Sqlite(IN_MEMORY)) as first, closing(Sqlite(IN_MEMORY)) as second:
            for number, database in enumerate((first, second)):
                stores.append(over(database))
                stored = {entry.memory.point_id: entry for entry in data.draw(entries()) + many(8, first=9 * number)}
                stores[-1].put(FACTS, list(stored.values()))
            for _ in range(data.draw(st.integers(1, 4))):
                exact = data.draw(st.sampled_from(stores))
                changed(data, exact)
                patch.setattr(index, "SAVED_FROM", data.draw(st.sampled_from([1, 1, ALL])))
                mirrored = over(exact.database)
                make_searcher(mirrored, EMBEDDER, ManualClock(), snapshot=kept).index.warm()
                for _ in range(2):
                    assert_same(mirrored, exact, data.draw(ROW), data.draw(WORDS), Where())
                    saved = kept.read()
                    if saved is not None:
                        there = {mark.point_id for name in (FACTS, EVENTS) for mark in exact.marks(name, Where())[0]}
                        assert set(point_texts(saved["points"])) <= there
                    changed(data, exact)
