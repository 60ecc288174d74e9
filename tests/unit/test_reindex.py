"""Reindex: what is derived is made anew beside the old, searches go on, and a killed run goes on where it was."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stores import records_in
from timekit import a_memory, day, upkeep

from memory_anchor.admin.rebuild import DENSE_NEXT, Reindex
from memory_anchor.domain.model import COLLECTIONS
from memory_anchor.domain.ports import DENSE, DENSE_LOCAL, CollectionSpec, Entry
from memory_anchor.domain.where import HasVector, Where
from memory_anchor.language.indexing import embedded_text
from memory_anchor.testing import HashEmbedder, memory_store
from memory_anchor.upkeep.job_kit import Limits
from memory_anchor.upkeep.settling import renew_words

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
    store = shelf(memory_store())

    list(a_run(store, tmp_path).steps())

    assert dict(store.embedders(EVENTS)) == {DENSE: NEW.identity}
    assert store.count(EVENTS, Where((HasVector(),))) == 40
    assert near(store, NEW) == [a_memory("m7").point_id]
    (entry,) = store.get(EVENTS, [a_memory("m7").point_id], with_vectors=True)
    assert entry.words is not None
    assert not (tmp_path / "reindex.json").exists()


def test_searches_by_meaning_go_on_until_the_new_rows_are_there(tmp_path):
    """Rule reindex.side-by-side: while rows are made, the old ones answer; then the new ones do."""
    store = shelf(memory_store())

    for step in a_run(store, tmp_path).steps():
        if step.stage == "embed":
            assert near(store, OLD) == [a_memory("m7").point_id]

    assert near(store, NEW) == [a_memory("m7").point_id]


@pytest.mark.parametrize("steps", range(9))
def test_a_run_that_was_cut_off_goes_on(tmp_path, steps):
    """Rule reindex.resume: whatever step it stopped after, the next run ends the same, and makes no row twice."""
    store = shelf(memory_store())
    run = a_run(store, tmp_path).steps()
    for _ in range(steps):
        next(run)
    ready = store.count(EVENTS, Where((HasVector(DENSE_NEXT),)))
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
    store = shelf(memory_store())
    store.set_vectors(EVENTS, {a_memory("m7").point_id: {DENSE: OLD.documents(["something else"])[0]}})

    list(a_run(store, tmp_path, OLD).steps())
    assert near(store, OLD, "something else") == [a_memory("m7").point_id]
    list(a_run(store, tmp_path, OLD, vectors=True).steps())

    assert near(store, OLD) == [a_memory("m7").point_id]


def test_without_an_embedder_vectors_stay_as_they_are(tmp_path):
    """Rule reindex.words: a machine without a model may still mend words and indexes."""
    store = shelf(memory_store())

    list(a_run(store, tmp_path, None).steps())

    assert dict(store.embedders(EVENTS)) == {DENSE: OLD.identity}
    assert near(store, OLD) == [a_memory("m7").point_id]


@pytest.mark.parametrize("cut_after", [0, 2, 5, 9, 12])
def test_the_second_vector_beside_an_api_is_made_anew_as_well(tmp_path, cut_after):
    """Rule reindex.vectors: both rows are made anew, by a run that was cut off too; without `vectors` they stay."""
    store, local = memory_store(), HashEmbedder(dimensions=16, model="bundled")
    for name in COLLECTIONS:
        store.open_collection(name, CollectionSpec({DENSE: OLD.identity, DENSE_LOCAL: local.identity}))
    memories = [a_memory(f"m{n}", f"deploy number {n} went well") for n in range(40)]
    wrong = local.documents(["something else"])[0]
    store.put(EVENTS, [Entry(m, {DENSE: OLD.documents([m.content])[0], DENSE_LOCAL: wrong}) for m in memories])

    def second(memory):
        (entry,) = store.get(EVENTS, [memory.point_id], with_vectors=True)
        return entry.vectors[DENSE_LOCAL]

    list(a_run(store, tmp_path, OLD, local=local).steps())
    assert all((second(memory) == wrong).all() for memory in memories)

    run = a_run(store, tmp_path, OLD, local=local, vectors=True).steps()
    for _ in range(cut_after):
        next(run)
    list(a_run(store, tmp_path, OLD, local=local, vectors=True).steps())

    rows = local.documents([embedded_text(m) for m in memories])
    assert all(np.allclose(second(memory), row, atol=1e-6) for memory, row in zip(memories, rows, strict=True))


def test_a_store_that_moves_to_an_api_gets_the_second_vectors_it_lacks(tmp_path):
    """Rule reindex: afterwards search by meaning survives the API's absence."""
    store, local = shelf(memory_store()), HashEmbedder(dimensions=16, model="bundled")

    list(a_run(store, tmp_path, NEW, local=local).steps())

    assert dict(store.embedders(EVENTS)) == {DENSE: NEW.identity, DENSE_LOCAL: local.identity}
    assert store.count(EVENTS, Where((HasVector(DENSE_LOCAL),))) == 40


@pytest.mark.slow
def test_an_installations_store_is_moved_to_another_embedder(tmp_path):
    """Rule reindex: the way out of WrongEmbedder, on the real engine, and it opens with the new one afterwards."""
    from stores import file_store

    from memory_anchor.runtime.lock import DirectoryLock

    with DirectoryLock.acquire(tmp_path, role="test"):
        with closing(file_store(tmp_path / "store")) as store:
            shelf(store)
            run = a_run(store, tmp_path / "jobs").steps()
            next(run)  # and the process ends here
        with closing(file_store(tmp_path / "store")) as store:
            for name in COLLECTIONS:
                store.open_collection(name, CollectionSpec({}))
            list(a_run(store, tmp_path / "jobs").steps())
        with closing(file_store(tmp_path / "store")) as store:
            for name in COLLECTIONS:
                store.open_collection(name, CollectionSpec({DENSE: NEW.identity}))
            assert near(store, NEW) == [a_memory("m7").point_id]
            assert dict(store.embedders(EVENTS)) == {DENSE: NEW.identity}


def words_of(store, name="m7"):
    (entry,) = store.get(EVENTS, [a_memory(name).point_id], with_vectors=True)
    return entry.words


def test_words_cut_by_an_older_version_are_made_anew_once(tmp_path):
    """Rule words.version: another way of cutting text reaches what was stored before, with its vectors kept."""
    store, told = shelf(memory_store()), []
    up = replace(upkeep(store), records=records_in(tmp_path))
    assert words_of(store) is None

    first = renew_words(up, day(1), on_renewed=lambda: told.append(1))
    again = renew_words(up, day(2), on_renewed=lambda: told.append(2))

    assert words_of(store) is not None
    assert near(store, OLD) == [a_memory("m7").point_id]
    assert (first.changed, again.changed, told) == (40, 0, [1])


def test_renewing_words_stops_when_told_and_goes_on(tmp_path):
    """Rule jobs.bounded: a stopped run is taken up again, and only then counts as done."""
    store = shelf(memory_store())
    up = replace(upkeep(store), records=records_in(tmp_path))

    assert renew_words(up, day(1), Limits(should_stop=lambda: True), on_renewed=lambda: None).left
    assert not renew_words(up, day(1), on_renewed=lambda: None).left
    assert words_of(store) is not None


def test_a_dry_run_renews_no_words(tmp_path):
    """Rule jobs.dry-run: it says how many and writes nothing."""
    store = shelf(memory_store())
    report = renew_words(
        replace(upkeep(store), records=records_in(tmp_path)), day(1), Limits(dry_run=True), on_renewed=lambda: None
    )
    assert (report.counts, report.left) == ({"memories": 40}, True)
    assert words_of(store) is None
    assert not (tmp_path / "jobs" / "words.json").exists()
