"""Reindex: what is derived is made anew beside the old, searches go on, and a killed run goes on where it was."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest
from timekit import a_memory

from memory_anchor.adapters.dict_store import DictStore
from memory_anchor.lifecycle.reindex import BESIDE, Reindex
from memory_anchor.model import COLLECTIONS
from memory_anchor.ports import DENSE, CollectionSpec, Entry
from memory_anchor.testing import HashEmbedder
from memory_anchor.where import HasVector, Where

OLD, NEW = HashEmbedder(), HashEmbedder(dimensions=32, model="newer")
EVENTS = "event_log"


def shelf(store, count=40):
    for name in COLLECTIONS:
        store.open_collection(name, CollectionSpec({DENSE: OLD.identity}))
    memories = [a_memory(f"m{n}", f"deploy number {n} went well") for n in range(count)]
    rows = OLD.documents([m.content for m in memories])
    store.put(EVENTS, [Entry(m, {DENSE: row}) for m, row in zip(memories, rows, strict=True)])
    return store


def a_run(store, folder: Path, embedder=NEW, **more):
    return Reindex(store, embedder, lock=threading.RLock(), state_dir=folder, **more)


def near(store, embedder, text="deploy number 7 went well"):
    return [hit.point_id for hit in store.nearest(EVENTS, embedder.queries([text])[0], Where(), limit=1)]


def test_a_new_embedder_takes_the_place_of_the_old_one(tmp_path):
    """Rule reindex: every version has the new row, none the old or the one beside; words were made as well."""
    store = shelf(DictStore())

    list(a_run(store, tmp_path).steps())

    assert dict(store.embedders(EVENTS)) == {DENSE: NEW.identity}
    assert store.count(EVENTS, Where((HasVector(),))) == 40
    assert near(store, NEW) == [a_memory("m7").point_id]
    (entry,) = store.get(EVENTS, [a_memory("m7").point_id], with_vectors=True)
    assert entry.words is not None
    assert not (tmp_path / "reindex.json").exists()


def test_searches_by_meaning_go_on_until_the_new_rows_are_there(tmp_path):
    """Rule reindex.side-by-side: while rows are made, the old ones answer; then the new ones do."""
    store = shelf(DictStore())

    for step in a_run(store, tmp_path).steps():
        if step.stage == "embed":
            assert near(store, OLD) == [a_memory("m7").point_id]

    assert near(store, NEW) == [a_memory("m7").point_id]


@pytest.mark.parametrize("steps", range(9))
def test_a_run_that_was_cut_off_goes_on(tmp_path, steps):
    """Rule reindex.resume: whatever step it stopped after, the next run ends the same, and makes no row twice."""
    store = shelf(DictStore())
    run = a_run(store, tmp_path).steps()
    for _ in range(steps):
        next(run)
    ready = store.count(EVENTS, Where((HasVector(BESIDE),)))
    made = []

    class Counting(HashEmbedder):
        def documents(self, texts):
            made.extend(texts)
            return super().documents(texts)

    list(a_run(store, tmp_path, Counting(dimensions=32, model="newer")).steps())

    assert len(made) == (40 - ready if made else 0)
    assert dict(store.embedders(EVENTS)) == {DENSE: NEW.identity}
    assert near(store, NEW) == [a_memory("m7").point_id]
    assert store.count(EVENTS, Where((HasVector(),))) == 40


def test_the_same_embedder_keeps_its_rows_unless_asked_otherwise(tmp_path):
    """Rule reindex.words: without another embedder only words and indexes are made, with `vectors` the rows too."""
    store = shelf(DictStore())
    store.set_vectors(EVENTS, {a_memory("m7").point_id: {DENSE: OLD.documents(["something else"])[0]}})

    list(a_run(store, tmp_path, OLD).steps())
    assert near(store, OLD, "something else") == [a_memory("m7").point_id]
    list(a_run(store, tmp_path, OLD, vectors=True).steps())

    assert near(store, OLD) == [a_memory("m7").point_id]


def test_without_an_embedder_vectors_stay_as_they_are(tmp_path):
    """Rule reindex.words: a machine without a model may still mend words and indexes."""
    store = shelf(DictStore())

    list(a_run(store, tmp_path, None).steps())

    assert dict(store.embedders(EVENTS)) == {DENSE: OLD.identity}
    assert near(store, OLD) == [a_memory("m7").point_id]


@pytest.mark.slow
def test_the_edge_store_is_moved_to_another_embedder(tmp_path):
    """Rule reindex: the way out of WrongEmbedder, on the real engine, and it opens with the new one afterwards."""
    from memory_anchor.adapters.edge_store import EdgeStore
    from memory_anchor.runtime.lock import DirectoryLock

    with DirectoryLock.acquire(tmp_path, role="test") as lock:
        with closing(EdgeStore(tmp_path / "store", lock=lock)) as store:
            shelf(store)
            run = a_run(store, tmp_path / "jobs").steps()
            next(run)  # and the process ends here
        with closing(EdgeStore(tmp_path / "store", lock=lock)) as store:
            for name in COLLECTIONS:
                store.open_collection(name, CollectionSpec({}))
            list(a_run(store, tmp_path / "jobs").steps())
        with closing(EdgeStore(tmp_path / "store", lock=lock)) as store:
            for name in COLLECTIONS:
                store.open_collection(name, CollectionSpec({DENSE: NEW.identity}))
            assert near(store, NEW) == [a_memory("m7").point_id]
            assert dict(store.embedders(EVENTS)) == {DENSE: NEW.identity}
