"""The index beside the store, every kind of it: whatever is written, and whenever it dies, index == store."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import disk
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_anchor.adapters.edge_index import EdgeIndex
from memory_anchor.adapters.qdrant_index import QdrantIndex
from memory_anchor.adapters.qdrant_layout import Layout
from memory_anchor.adapters.qdrant_link import Access, addresses
from memory_anchor.domain.model import Layer, Memory, MemoryType, Scope, Status, Usage
from memory_anchor.domain.ports import (
    DENSE,
    CollectionSpec,
    EmbedderIdentity,
    Entry,
    SearchIndex,
    SparseVector,
    VectorQuery,
)
from memory_anchor.domain.where import Where
from memory_anchor.store.database import Sqlite
from memory_anchor.store.index_follower import FOLLOWED, LOOKS_AGAIN_S, IndexFollower
from memory_anchor.store.point_source import PointSource
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.testing import START

FACTS, EVENTS = FOLLOWED
SPEC = CollectionSpec({DENSE: EmbedderIdentity("tiny", 4)})
KINDS = ("edge", "local", *(("server",) if os.environ.get("QDRANT_TEST_URL") else ()))
LAYOUT = Layout(
    shard_number=int(os.environ.get("QDRANT_TEST_SHARDS", "0")),
    replication_factor=int(os.environ.get("QDRANT_TEST_REPLICAS", "0")),
)


class Bench:
    """A store with an index beside it, in a folder that outlives both."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = folder, kind
        self.store = SqlStore(database := Sqlite(folder / "store" / "memory.db"))
        for name in FOLLOWED:
            self.store.open_collection(name, SPEC)
        self.source = PointSource(database)
        self.has_space = True
        self.index = self._index()
        self.follower = self._follower()

    def _index(self) -> SearchIndex:
        if self.kind == "edge":
            return EdgeIndex(self.folder / "index")
        place = ":memory:" if self.kind == "in memory" else str(self.folder / "local")
        access = Access(addresses(os.environ["QDRANT_TEST_URL"])) if self.kind == "server" else Access(path=place)
        return QdrantIndex(self.kind, access, LAYOUT, owner=self.source.database_id())

    def _follower(self) -> IndexFollower:
        return IndexFollower(self.source, self.index, self.store.embedders, has_space=lambda: self.has_space)

    def put(self, *names: str, layer: str = FACTS, **changes: object) -> None:
        self.store.put(layer, [entry(name, **changes) for name in names])

    def assert_index_is_store(self) -> None:
        """Every point with its state; a search of it answers."""
        self.index.begin({name: self.store.embedders(name) for name in FOLLOWED}, anew=False)
        for name in FOLLOWED:
            there = sorted(self.index.marks(name), key=lambda mark: mark.point_id)
            assert there == sorted(self.source.marks(name), key=lambda mark: mark.point_id)
            query = np.ones(4, np.float32)
            found = {hit.point_id for hit in self.index.query_batch(name, [VectorQuery(query, 1_000)])[0]}
            assert found == {hit.point_id for hit in self.store.nearest(name, query, Where(), limit=1_000)}
        self.index.end()

    def close(self) -> None:
        self.follower.close()
        self.index.give_up()
        self.store.close()
        if isinstance(self.index, QdrantIndex):
            self.index.close()


def entry(name: str, **changes: object) -> Entry:
    memory = Memory(name, f"about {name}", Layer.VERIFIED_FACT, MemoryType.FACT, Scope(), START, START)
    row = np.random.default_rng(len(name) + sum(map(ord, name))).normal(size=4).astype(np.float32)
    return Entry(replace(memory, **changes), {DENSE: row}, SparseVector((1, 7), (0.5, 2.0)))  # type: ignore[arg-type]


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "server":
        emptied()
    with closing(Bench(tmp_path, request.param)) as made:
        yield made


def emptied() -> None:
    """Remove the collections of a real server."""
    from qdrant_client import QdrantClient

    with closing(QdrantClient(url=os.environ["QDRANT_TEST_URL"].split(",")[0], check_compatibility=False)) as client:
        for name in FOLLOWED:
            client.delete_collection(name)


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[Bench]:
    with closing(Bench(tmp_path, "edge")) as made:
        yield made


def test_every_point_is_there_whole_and_found_by_meaning_and_by_words(bench: Bench) -> None:
    """Card: events and facts live in collections, with payload, vectors and words."""
    bench.put("one", "two")
    bench.put("said", layer=EVENTS)

    assert bench.follower.catch_up()

    bench.assert_index_is_store()
    bench.index.begin({FACTS: SPEC.embedders}, anew=False)
    row, words = entry("one").vectors[DENSE], SparseVector((7,), (1.0,))
    asked = [VectorQuery(row, 1), VectorQuery(SparseVector((), ()), 5), VectorQuery(words, 5), VectorQuery(row, 5)]
    near, nothing, sharing, all_near = bench.index.query_batch(FACTS, asked)
    assert [hit.point_id for hit in near] == [entry("one").memory.point_id] and nothing == []
    assert len(sharing) == len(all_near) == 2 and all_near[0] == near[0]
    bench.index.end()


def test_what_changed_and_what_was_erased_follows(bench: Bench) -> None:
    """Follow: a new state, new vectors, use, and what is gone."""
    bench.put("one", "two", "three")
    assert bench.follower.catch_up()

    bench.put("one", status=Status.ARCHIVED)
    bench.store.set_usage(FACTS, {entry("two").memory.point_id: Usage(count=3)})
    bench.store.erase(FACTS, [entry("three").memory.point_id])
    assert bench.follower.state().behind > 0
    assert bench.follower.catch_up()

    bench.assert_index_is_store()
    assert bench.follower.state().behind == 0


def live(bench: Bench, pick: Callable[[Sequence[str]], str], steps: int) -> None:
    """Do so many things to a store and its index, then hold one against the other."""
    for _ in range(steps):
        name, layer = pick("abcdef"), pick(FOLLOWED)
        match pick(["put", "archive", "erase", "catch up", "die", "lose"]):
            case "put":
                bench.put(*(f"{name}{number}" for number in range(20)), layer=layer)
            case "archive":
                bench.put(f"{name}1", layer=layer, status=Status.ARCHIVED)
            case "erase":
                bench.store.erase(layer, [entry(f"{name}2").memory.point_id])
            case "catch up":
                assert bench.follower.catch_up()
            case "lose":
                shutil.rmtree(bench.folder / "index" / layer, ignore_errors=True)
            case _:
                dies_after(bench, int(pick("012345678")))
                bench.follower.catch_up()
                lives(bench)
    while not bench.follower.catch_up():
        pass
    bench.assert_index_is_store()


@settings(deadline=None)
@given(data=st.data())
def test_after_any_writes_and_any_stop_the_index_is_the_store(data: st.DataObject) -> None:
    """Staleness is the greatest risk: puts, states, erasing, and a session that ends anywhere, in any order."""
    with tempfile.TemporaryDirectory() as folder, closing(Bench(Path(folder), "in memory")) as bench:
        live(bench, lambda options: data.draw(st.sampled_from(options)), data.draw(st.integers(1, 12)))


@pytest.mark.parametrize("seed", [1, 2])
def test_after_any_writes_and_any_kill_of_the_child_the_index_is_the_store(seed: int, edge: Bench) -> None:
    """The same with a process that is killed, and collections that are thrown away while nothing runs."""
    live(edge, random.Random(seed).choice, 8)


def dies_after(bench: Bench, calls: int) -> None:
    """Let the next session lose its process at one of its first calls; without one, let it stop there."""
    left = [calls]

    def has_space() -> bool:
        left[0] -= 1
        if left[0] < 0 and isinstance(bench.index, EdgeIndex) and bench.index.pid is not None:
            os.kill(bench.index.pid, signal.SIGKILL)
        elif left[0] < 0:
            return False
        return True

    bench.follower._has_space = has_space


def lives(bench: Bench) -> None:
    bench.follower._has_space = lambda: True


def test_an_index_that_cannot_be_opened_twice_is_made_again(edge: Bench) -> None:
    """Torn while nothing ran: two tries, then a new one from the store, every point of it."""
    edge.put("one", "two")
    assert edge.follower.catch_up()
    for path in sorted((edge.folder / "index" / FACTS).rglob("*")):
        if path.is_file():
            path.write_bytes(b"torn")

    tries = [edge.follower.catch_up() for _ in range(3)]

    assert tries[-1], edge.follower.state()
    edge.assert_index_is_store()


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def largest(folder: Path) -> Path:
    return max(files(folder), key=lambda path: path.stat().st_size)


def flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(bytes(byte ^ 0xFF for byte in content[:64]) + content[64:])


def swap(folder: Path) -> None:
    other = folder.with_name(EVENTS if folder.name == FACTS else FACTS)
    folder.rename(folder.with_name("third"))
    other.rename(folder)
    folder.with_name("third").rename(other)


TORN: dict[str, Callable[[Path], object]] = {
    "thrown away": shutil.rmtree,
    "all thrown away": lambda folder: shutil.rmtree(folder.parent),
    "emptied": lambda folder: [shutil.rmtree(folder), folder.mkdir()],
    "a file is gone": lambda folder: files(folder)[0].unlink(),
    "every file is empty": lambda folder: [os.truncate(path, 0) for path in files(folder)],
    "half of a file": lambda folder: os.truncate(largest(folder), largest(folder).stat().st_size // 2),
    "other bytes": lambda folder: flip(largest(folder)),
    "other bytes everywhere": lambda folder: [flip(path) for path in files(folder)],
    "more bytes": lambda folder: files(folder)[-1].write_bytes(files(folder)[-1].read_bytes() + b"more"),
    "the other collection": swap,
}


@pytest.mark.slow
@pytest.mark.parametrize("collection", FOLLOWED)
@pytest.mark.parametrize("way", TORN)
def test_whatever_happens_to_its_files_all_is_found_again(way: str, collection: str, edge: Bench) -> None:
    """Torn while nothing runs: searches are answered meanwhile, and the index is the store after four sessions."""
    for layer in FOLLOWED:
        edge.put("one", "two", "three", layer=layer)
    assert edge.follower.catch_up()
    query = np.ones(4, np.float32)
    expected = edge.store.nearest(collection, query, Where(), limit=9)
    answers = []

    def asks() -> bool:
        answers.append(edge.store.nearest(collection, query, Where(), limit=9))
        return True

    TORN[way](edge.folder / "index" / collection)
    edge.put("four")
    edge.follower._has_space = asks
    expected = edge.store.nearest(collection, query, Where(), limit=9)

    assert any(edge.follower.catch_up() for _ in range(4)), edge.follower.state()
    assert answers == [expected] * len(answers) and len(answers) > 0
    edge.assert_index_is_store()


def test_without_space_it_is_behind_and_says_so(bench: Bench) -> None:
    """Reserve: below it nothing is written to the index; the store goes on."""
    bench.put("one")
    bench.has_space = False
    assert not bench.follower.catch_up()
    assert "too little free space" in bench.follower.state().note and bench.follower.state().behind > 0

    bench.has_space = True
    assert bench.follower.catch_up()
    bench.assert_index_is_store()


def test_what_was_erased_is_in_no_file_of_the_index(edge: Bench) -> None:
    """Purge: an engine keeps deleted text; the collection is made again beside the old one, which goes."""
    edge.put("one", content="purple elephants in the cellar")
    edge.put("two")
    assert edge.follower.catch_up()
    assert disk.holding(edge.folder / "index", "purple elephants") != []

    edge.store.erase(FACTS, [entry("one").memory.point_id])
    assert edge.follower.catch_up()

    assert disk.holding(edge.folder / "index", "purple elephants") == []
    edge.assert_index_is_store()


def test_another_embedder_makes_the_collections_again(edge: Bench) -> None:
    """Reindex: the vectors of the index are those of the store."""
    edge.put("one")
    assert edge.follower.catch_up()
    edge.store.reindex(FACTS, CollectionSpec({DENSE: EmbedderIdentity("other", 3)}))
    edge.store.set_vectors(FACTS, {entry("one").memory.point_id: {DENSE: np.ones(3, np.float32)}})

    assert edge.follower.catch_up()

    edge.index.begin({FACTS: edge.store.embedders(FACTS)}, anew=False)
    assert len(edge.index.query_batch(FACTS, [VectorQuery(np.ones(3, np.float32), 5)])[0]) == 1
    edge.index.end()


def test_many_writes_in_a_row_are_looked_at_a_few_times(edge: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs: while writes wait for a rest no file of the index is looked at and nothing is counted each time."""
    assert edge.follower.catch_up()
    looks, others = [], []
    last, fingerprint, count = edge.source.last_change, edge.index.fingerprint, edge.source.count
    monkeypatch.setattr(edge.source, "last_change", lambda: (looks.append(1), last())[1])
    monkeypatch.setattr(edge.index, "fingerprint", lambda: (others.append("files"), fingerprint())[1])
    monkeypatch.setattr(edge.source, "count", lambda name: (others.append(name), count(name))[1])
    follower = IndexFollower(edge.source, edge.index, edge.store.embedders, rest_s=600)
    edge.put("first")
    began = time.monotonic()
    with closing(follower):
        follower.start()
        for number in range(100):
            edge.put(f"n{number}")
            follower.wake()
            threading.Event().wait(0.005)
        passed = time.monotonic() - began

    assert 1 <= len(looks) <= 3 + passed / LOOKS_AGAIN_S and others == []


def test_the_thread_begins_when_many_changes_wait_or_after_a_rest(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions: nobody asks for one; what is written is in the index some time after the last write."""
    done, keep = threading.Event(), bench.source.keep

    def kept(name: str, value: str) -> None:
        keep(name, value)
        if '"is_open": 0' in value:
            done.set()

    monkeypatch.setattr(bench.source, "keep", kept)
    follower = IndexFollower(bench.source, bench.index, bench.store.embedders, rest_s=0.01)
    with closing(follower):
        bench.put("one")
        follower.start()
        follower.wake()
        assert done.wait(60)
    bench.assert_index_is_store()
