"""What one process leaves to the next: the mirror as a file, and the store's last word on every version of it."""

from __future__ import annotations

import stat
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory_anchor.adapters import snapshot_file
from memory_anchor.adapters.snapshot_file import SNAPSHOT_FILE, SnapshotFile
from memory_anchor.admin import backup
from memory_anchor.domain.model import Actor, Layer, Memory, MemoryType, Scope, Status, Tag, Visibility
from memory_anchor.domain.ports import DENSE, CollectionSpec, Entry, FollowedRows
from memory_anchor.process.app import build_core
from memory_anchor.recall import index, mirror
from memory_anchor.recall.request import SearchRequest
from memory_anchor.recall.search import Searcher
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.store.database import IN_MEMORY, Sqlite
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.testing import START, HashEmbedder, ManualClock, make_searcher

ME = Actor(scope=Scope(project="mine", agent="anna"))
TOPICS = ("ports of the gateway", "label printer jams", "invoice export", "登录超时", "路由配置的变更")
LAYERS = (Layer.EVENT_LOG, Layer.VERIFIED_FACT)


class MemorySnapshot:
    """A snapshot in memory."""

    def __init__(self) -> None:
        self.arrays: Mapping[str, Any] | None = None

    def read(self) -> Mapping[str, Any] | None:
        return self.arrays

    def put(self, arrays: Mapping[str, Any]) -> None:
        self.arrays = {name: array.copy() for name, array in arrays.items()}

    def drop(self) -> None:
        self.arrays = None


class CountedStore(SqlStore):
    """A store that counts the versions of which all that a mirror needs was read."""

    def __init__(self) -> None:
        super().__init__(Sqlite(IN_MEMORY))
        self.read = 0
        self.meanwhile: Callable[[], None] = lambda: None

    def versions(self, collections: Sequence[str], *, above: int) -> FollowedRows | None:
        return self._counted(super().versions(collections, above=above))

    def of_numbers(self, collections: Sequence[str], numbers: Sequence[int]) -> FollowedRows | None:
        return self._counted(super().of_numbers(collections, numbers))

    def get(self, collection: str, point_ids: Sequence[str], *, with_vectors: bool = False) -> list[Entry]:
        entries = super().get(collection, point_ids, with_vectors=with_vectors)
        happens, self.meanwhile = self.meanwhile, lambda: None
        happens()
        return entries

    def _counted(self, rows: FollowedRows | None) -> FollowedRows | None:
        self.read += 0 if rows is None else len(rows.numbers)
        return rows


class Machine:
    """One store and its snapshot, which outlive the searchers of several processes."""

    def __init__(self, *, dimensions: int = 64) -> None:
        self.store, self.snapshot = CountedStore(), MemorySnapshot()
        self.embedder = HashEmbedder(dimensions=dimensions)
        for layer in LAYERS:
            self.store.open_collection(layer.value, CollectionSpec({DENSE: self.embedder.identity}))
        self._number = 0

    def process(self, *, snapshot: bool = True) -> Searcher:
        used = self.snapshot if snapshot else None
        return make_searcher(self.store, self.embedder, ManualClock(), cache_ttl_s=0, snapshot=used)

    def memory(self, content: str, **more: Any) -> Memory:
        self._number += 1
        at = START - timedelta(minutes=self._number)
        is_event = self._number % 2 == 0
        return Memory(
            id=f"m{self._number:04d}",
            content=content,
            **(
                {
                    "layer": LAYERS[self._number % 2],
                    "type": MemoryType.EVENT if is_event else MemoryType.FACT,
                    "recorded_at": at,
                    "valid_from": at,
                    "when": at if is_event else None,
                    "scope": ME.scope,
                }
                | more
            ),
        )

    def write(self, searcher: Searcher, memory: Memory, *, embed: bool = True) -> Memory:
        entry = searcher.index.entry_of(memory, embed=embed)
        self.store.put(memory.layer.value, [entry])
        searcher.index.note_written(entry)
        return memory

    def life(self, *contents: str) -> list[Memory]:
        """One process from its start to its end; return what it wrote."""
        searcher = self.process()
        searcher.index.warm()
        written = [self.write(searcher, self.memory(content)) for content in contents]
        searcher.index.save()
        return written


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "SAVED_FROM", 1)


def results(searcher: Searcher, query: str, *, weak: int = 0) -> list[tuple[str, float]]:
    answer = searcher.search(ME, SearchRequest(query, limit=20, weak=weak))
    return [(snippet.id, snippet.score) for snippet in answer.snippets]


def test_the_next_process_reads_no_text_of_what_the_last_one_knew() -> None:
    """Rule hot path: a start costs what has changed, not what is there."""
    machine = Machine()
    machine.life(*(f"{topic}, note {number}" for number in range(8) for topic in TOPICS))
    machine.store.read = 0

    searcher = machine.process()
    searcher.index.warm()

    assert machine.store.read == 0
    assert searcher.index.in_memory() == {"versions": 40, "complete": True}
    assert len(results(searcher, TOPICS[0], weak=20)) == 20


CHANGES = ("supersede", "archive", "erase", "hide", "embed", "add", "own")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    contents=st.lists(st.tuples(st.sampled_from(TOPICS), st.booleans()), min_size=1, max_size=20),
    changes=st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(0, 19)), max_size=12),
    query=st.sampled_from(TOPICS),
)
def test_a_loaded_mirror_answers_as_one_that_was_read(
    contents: list[tuple[str, bool]], changes: list[tuple[str, int]], query: str
) -> None:
    """Rule search.derived: whatever another process did meanwhile, an old snapshot never changes an answer."""
    machine = Machine()
    first = machine.process()
    first.index.warm()
    known = [
        machine.write(
            first,
            machine.memory(
                f"{topic}, note {number}",
                scope=replace(ME.scope, conversation="talk" if number % 3 else ""),
                conversation_seq=number if number % 3 else None,
                tags=(Tag("ops", 0.5),) if number % 4 == 0 else (),
                who=("Anna",) if number % 5 == 0 else (),
            ),
            embed=embed,
        )
        for number, (topic, embed) in enumerate(contents)
    ]
    first.index.save()
    other = machine.process(snapshot=False)
    for change, number in changes:
        _change(machine, other, known, change, number % len(known))

    loaded, read = machine.process(), machine.process(snapshot=False)
    loaded.index.warm()
    read.index.warm()

    assert loaded.index.in_memory()["complete"]
    # The means are sums in another order: the last digits differ, and what ties may change places.
    assert dict(results(loaded, query)) == pytest.approx(dict(results(read, query)), abs=2e-3)


def _change(machine: Machine, other: Searcher, known: list[Memory], change: str, number: int) -> None:
    memory = known[number]
    stored = machine.store.get(memory.layer.value, [memory.point_id], with_vectors=True)
    if change == "add":
        known.append(machine.write(other, machine.memory(f"{TOPICS[number % 5]}, told later")))
    elif not stored:
        return
    elif change == "erase":
        machine.store.erase(memory.layer.value, [memory.point_id])
    elif change == "embed":
        machine.store.set_vectors(
            memory.layer.value, {memory.point_id: {DENSE: machine.embedder.documents([memory.content])[0]}}
        )
    elif change == "supersede":
        machine.store.put(memory.layer.value, [replace(stored[0], memory=replace(memory, is_current=False))])
        known[number] = machine.write(other, replace(memory, version=memory.version + 1, content="changed since"))
    else:
        moved: dict[str, Any] = {
            "archive": {"status": Status.ARCHIVED},
            "hide": {"visibility": Visibility.CONVERSATION},
        }
        known[number] = replace(memory, **moved.get(change, {"visibility": Visibility.AGENT}))
        machine.store.put(memory.layer.value, [replace(stored[0], memory=known[number])])


def test_a_talk_closes_around_what_was_forgotten_since() -> None:
    """Rule search.conversation: the answer after a question is found beside it, whatever lay between them once."""
    machine = Machine()
    first = machine.process()
    first.index.warm()
    lines = ("which port does the gateway use?", "let me look it up", "it is 8443")
    talk = [
        machine.write(
            first,
            machine.memory(
                line,
                layer=Layer.EVENT_LOG,
                type=MemoryType.EVENT,
                when=START,
                scope=replace(ME.scope, conversation="c"),
                conversation_seq=place,
            ),
        )
        for place, line in enumerate(lines)
    ]
    forgotten = replace(talk[1], status=Status.ARCHIVED)
    machine.store.put(forgotten.layer.value, [Entry(forgotten)])
    first.index.note_written(Entry(forgotten))
    first.index.save()

    searcher = machine.process()
    searcher.index.warm()

    assert [id for id, _ in results(searcher, "gateway port", weak=20)][:2] == [talk[0].id, talk[2].id]


def test_a_snapshot_of_which_little_holds_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule: what nobody finds any more takes no memory for ever."""
    machine = Machine()
    old = machine.life(*(f"note {number} about lunch" for number in range(10)))
    for memory in old[:6]:
        machine.store.erase(memory.layer.value, [memory.point_id])

    searcher = machine.process()
    searcher.index.warm()

    assert searcher.index.in_memory() == {"versions": 4, "complete": True}


def test_a_search_that_has_begun_goes_on_with_the_rows_it_knows() -> None:
    """Rule search.derived: what takes the mirror's place never mixes up what a search has found."""
    machine = Machine()
    machine.life(*(f"{topic}, note {number}" for number in range(4) for topic in TOPICS))
    searcher = machine.process(snapshot=False)
    searcher.index.warm()
    before = results(searcher, TOPICS[2])

    machine.store.meanwhile = searcher.index.invalidate
    during = results(searcher, TOPICS[2])

    assert before and during == before


def test_a_memory_of_few_versions_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule: what is kept is worth it."""
    monkeypatch.setattr(index, "SAVED_FROM", 2000)
    machine = Machine()
    machine.life("the gateway listens on port 8443")

    assert machine.snapshot.arrays is None


def test_what_is_invalid_is_not_left_to_the_next_process() -> None:
    """Rule: an import, a purge and a reindex forget the snapshot as they do every other trace."""
    machine = Machine()
    machine.life("the gateway listens on port 8443")

    machine.process().index.invalidate()

    assert machine.snapshot.arrays is None


def test_a_snapshot_of_another_embedder_or_format_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule: rows of two models are never compared; another way to derive begins anew."""
    narrow = Machine(dimensions=32)
    narrow.life("the gateway listens on port 8443")
    machine = Machine()
    machine.life("the gateway listens on port 8443")
    right, machine.snapshot.arrays = machine.snapshot.arrays, narrow.snapshot.arrays
    machine.store.read = 0
    machine.process().index.warm()
    assert machine.store.read == 1

    machine.snapshot.arrays = right
    monkeypatch.setattr(mirror, "FORMAT", mirror.FORMAT + 1)
    machine.process().index.warm()
    assert machine.store.read == 2


# --- the file ---------------------------------------------------------------------------------------------------------


def test_the_file_is_private_and_gives_back_what_was_put(tmp_path: Path) -> None:
    """Port snapshot: read returns what put was given; the file is its owner's alone."""
    file = SnapshotFile(tmp_path / SNAPSHOT_FILE)
    file.put({"rows": np.arange(5), "empty": np.zeros((0, 3), dtype=np.float32)})

    assert stat.S_IMODE((tmp_path / SNAPSHOT_FILE).stat().st_mode) == 0o600
    taken = file.read()
    assert taken is not None and taken["rows"].tolist() == [0, 1, 2, 3, 4] and taken["empty"].shape == (0, 3)
    file.drop()
    assert file.read() is None and not list(tmp_path.glob("*mirror*"))


@pytest.mark.parametrize("damage", ["cut", "flipped", "no zip", "zip of the future", "folder", "other version"])
def test_a_damaged_file_counts_as_none(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Port snapshot: what a crash leaves is never half read."""
    path = tmp_path / SNAPSHOT_FILE
    file = SnapshotFile(path)
    file.put({"rows": np.arange(5_000)})
    whole = path.read_bytes()
    if damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "flipped":
        middle = len(whole) // 2
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    elif damage == "zip of the future":
        entry = whole.index(b"PK\x01\x02")
        path.write_bytes(whole[: entry + 6] + b"\xff" + whole[entry + 7 :])
    elif damage == "no zip":
        path.write_text("rows")
    elif damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        monkeypatch.setattr(snapshot_file, "VERSION", "0.0.1")

    assert file.read() is None
    assert damage == "folder" or not path.exists()


def test_where_there_is_no_room_nothing_is_kept_and_nothing_fails(tmp_path: Path) -> None:
    """Port snapshot: it is never worth an error."""
    (tmp_path / "not a folder").write_text("")
    file = SnapshotFile(tmp_path / "not a folder" / SNAPSHOT_FILE)

    file.put({"rows": np.arange(5)})

    assert file.read() is None


# --- in a whole memory -----------------------------------------------------------------------------------------------


def test_a_closed_memory_leaves_its_mirror_without_any_text_and_outside_of_backups(tmp_path: Path) -> None:
    """Rule security: what lies beside the store holds no text; a backup holds the store and not what is derived."""
    data, embedder = tmp_path / "data", HashEmbedder(dimensions=64)
    with DirectoryLock.acquire(data, role="test") as lock:
        core = build_core(Settings(), data_dir=data, lock=lock, embedder=embedder)
        core.services.searcher.index.warm()
        saved = core.anchor(Actor()).save_memory("the nightingale sings at port 8443", importance=0.7)
        core.close()
    held = (data / SNAPSHOT_FILE).read_bytes()
    assert b"nightingale" not in held and b"8443" not in held

    with DirectoryLock.acquire(data, role="test") as lock:
        core = build_core(Settings(), data_dir=data, lock=lock, embedder=embedder)
        core.services.searcher.index.warm()
        found = core.anchor(Actor()).search("which port does the nightingale sing at")
        assert [snippet.id for snippet in found.snippets] == [saved.id]
        core.close()
        core = build_core(Settings(), data_dir=data, lock=lock, embedder=embedder)
        backup.create(core, tmp_path / "all.tar.gz")
        core.close()
    with tarfile.open(tmp_path / "all.tar.gz") as archive:
        assert not [name for name in archive.getnames() if SNAPSHOT_FILE in name]
