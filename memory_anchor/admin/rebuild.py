"""Reindex (new words and vectors in place) and migration (every version into another store).

Reindex makes derived data again: words, payload indexes, and vectors when the embedder changed or on request. The new
vectors are filled in under a second name and replace the old ones when all are there: until then searches answer as
before. Each step is recorded, so a killed run continues where it was; a repeated step has the same result. Payloads,
history and use do not change. Rejected: dropping the vectors first and embedding in the background, which leaves a
large store without vectors for an hour.

embed -> switch (old vectors go, the name is the new embedder's) -> fill (rows copied, words made) -> drop -> local (the
bundled model's rows next to an API's, in place: they stay comparable) -> done; if the vectors may stay: words -> renew
-> done.

Migration moves only the store: audit trail, constitution, projects and settings stay in the data directory. A page is
read with its vectors and put unchanged (points have our ids, so a repeat changes nothing); vectors of an embedder that
the target lacks are left out and made in the background. The progress is recorded after each page, so a killed run
continues there. At the end both sides are read completely: the number of versions, a hash over what is current, and one
over every version with its history, use and receipts. Nothing is deleted. Rejected: a snapshot of the source, which no
other engine reads; export and import, which make all vectors again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, TypedDict

from memory_anchor.adapters.payload import to_payload
from memory_anchor.base.files import make_private, remove_durably, write_atomic
from memory_anchor.domain.errors import Refused, Unavailable, retry_on_conflict
from memory_anchor.domain.model import COLLECTIONS
from memory_anchor.domain.ports import (
    DENSE,
    DENSE_LOCAL,
    CollectionSpec,
    Embedder,
    EmbedderIdentity,
    Entry,
    MemoryStore,
)
from memory_anchor.domain.where import HasVector, Where
from memory_anchor.language.indexing import searched_words
from memory_anchor.recall.embedding import document_rows
from memory_anchor.upkeep.job_kit import pages

DENSE_NEXT = "dense_next"
"""The named vector under which the new embedder's rows wait."""
STATE_FILE = "reindex.json"
EMBED_BATCH = 16
PAGE = 500

Stage = Literal["embed", "switch", "fill", "drop", "local", "words", "renew", "done"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one collection came: `done` of `total` versions in this stage."""

    collection: str
    stage: Stage
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class _StageState:
    """A collection's progress. after, done: within a stage that reads all its pages."""

    stage: Stage
    after: str | None = None
    done: int = 0


class Reindex:
    """One run over all collections of a store. `steps` may be stopped anywhere and continued by another object."""

    def __init__(
        self,
        store: MemoryStore,
        embedder: Embedder | None,
        *,
        lock: AbstractContextManager[bool | None],
        state_dir: Path,
        vectors: bool = False,
        local: Embedder | None = None,
    ) -> None:
        """embedder: None leaves the vectors as they are. vectors: embed again although the embedder is the same.

        local: makes the second vector next to an API's. With `vectors` all of them are made again, else the missing
        ones if the embedder changed; otherwise that happens in the background.
        """
        self._store = store
        self._embedder = embedder
        self._lock = lock
        self._file = state_dir / STATE_FILE
        self._local = local
        self._second = {DENSE_LOCAL: local.identity} if local is not None else {}
        self._vectors = vectors
        self._identity = asdict(embedder.identity) if embedder is not None else None
        self._at = self._saved_progress() or {
            name: _StageState(self._first_stage(name, vectors)) for name in COLLECTIONS
        }

    def steps(self) -> Iterator[Progress]:
        """Do the work; yield after each bounded step. Raises Unavailable: the embedder cannot run now."""
        for name in COLLECTIONS:
            while (stage := self._at[name].stage) != "done":
                next_stage = yield from self._stage(name, stage)
                self._note(name, _StageState(next_stage))
                yield Progress(name, next_stage, 1, 1)
        self._store.flush()
        self._file.unlink(missing_ok=True)

    def _stage(self, name: str, stage: Stage) -> Generator[Progress, None, Stage]:
        """Do one stage of one collection and return the next one."""
        match stage:
            case "embed":
                yield from self._embed(name)
                return "switch"
            case "switch":
                self._reindex(name, {DENSE: self._new_identity(), DENSE_NEXT: self._new_identity(), **self._second})
                return "fill"
            case "fill":
                yield from self._rewrite(name, "fill")
                return "drop"
            case "drop":
                self._reindex(name, {DENSE: self._new_identity(), **self._second})
                return "local"
            case "local":
                yield from self._embed_local(name)
                return "done"
            case "words":
                yield from self._rewrite(name, "words")
                return "renew"
            case "renew":
                embedders = dict(self._store.embedders(name))
                if self._embedder is not None:
                    embedders.pop(DENSE_LOCAL, None)
                self._reindex(name, embedders | self._second)
                return "done"
            case _:
                return "done"

    def _embed(self, name: str) -> Iterator[Progress]:
        """Add every version's new row next to the old one, current and historical ones alike."""
        if self._embedder is None:
            return
        embedders = self._store.embedders(name)
        if embedders.get(DENSE_NEXT) != self._new_identity():
            self._reindex(name, {**embedders, DENSE_NEXT: self._new_identity()})
        total = self._store.count(name, Where())
        while memories := self._store.find(name, Where((), (HasVector(DENSE_NEXT),)), limit=EMBED_BATCH):
            rows = document_rows(self._embedder, memories, whole=True)
            self._store.set_vectors(
                name, {memory.point_id: {DENSE_NEXT: row} for memory, row in zip(memories, rows, strict=True)}
            )
            yield Progress(name, "embed", self._store.count(name, Where((HasVector(DENSE_NEXT),))), total)

    def _embed_local(self, name: str) -> Iterator[Progress]:
        """Make the bundled model's row for every version, or only where it is missing; nothing if it cannot run."""
        if self._local is None or not self._local.available():
            return
        where = Where() if self._vectors else Where((), (HasVector(DENSE_LOCAL),))
        total, after, done = self._store.count(name, where), self._at[name].after, self._at[name].done
        while True:
            page, after = self._store.scan(name, where, page=EMBED_BATCH, after=after)
            memories = [entry.memory for entry in page]
            if memories:
                pairs = zip(memories, document_rows(self._local, memories, whole=True), strict=True)
                self._store.set_vectors(name, {memory.point_id: {DENSE_LOCAL: row} for memory, row in pairs})
            done += len(page)
            if after is None:
                return
            self._note(name, _StageState("local", after, done))
            yield Progress(name, "local", done, max(total, done))

    def _rewrite(self, name: str, stage: Stage) -> Iterator[Progress]:
        """Put every version again with new words, and in `fill` with its new row under the searched name."""
        total, after, done = self._store.count(name, Where()), self._at[name].after, self._at[name].done
        while True:
            with self._lock:  # nobody may close a version between reading and writing it
                count, after = retry_on_conflict(partial(self._rewrite_page, name, stage, after))
            done += count
            if after is None:
                return
            self._note(name, _StageState(stage, after, done))
            yield Progress(name, stage, done, total)

    def _rewrite_page(self, name: str, stage: Stage, after: str | None) -> tuple[int, str | None]:
        page, after_page = self._store.scan(name, Where(), page=PAGE, after=after, with_vectors=True)
        fresh = [
            replace(
                entry,
                words=searched_words(entry.memory),
                vectors={**entry.vectors, DENSE: entry.vectors[DENSE_NEXT]}
                if stage == "fill" and DENSE_NEXT in entry.vectors
                else entry.vectors,
            )
            for entry in page
        ]
        self._store.put(name, fresh)
        return len(page), after_page

    def _reindex(self, name: str, embedders: Mapping[str, EmbedderIdentity]) -> None:
        self._store.reindex(name, CollectionSpec(embedders))

    def _new_identity(self) -> EmbedderIdentity:
        if self._embedder is None:
            raise ValueError("a stage with vectors needs an embedder")
        return self._embedder.identity

    def _first_stage(self, name: str, vectors: bool) -> Stage:
        same = self._embedder is None or self._store.embedders(name).get(DENSE) == self._embedder.identity
        return "words" if same and not (vectors and self._embedder is not None) else "embed"

    # --- how far it came ---------------------------------------------------------------------------------------

    def _saved_progress(self) -> dict[str, _StageState] | None:
        """Return where an earlier run stopped, None if there is none for this embedder."""
        try:
            state = json.loads(self._file.read_text(encoding="utf-8"))
            if state["identity"] != self._identity or set(state["at"]) != set(COLLECTIONS):
                return None
            self._vectors = self._vectors or state["vectors"]
            return {name: _StageState(**stage) for name, stage in state["at"].items()}
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _note(self, name: str, state: _StageState) -> None:
        self._at[name] = state
        _save(self._file, {"identity": self._identity, "vectors": self._vectors}, self._at)


MIGRATION_FILE = "migrate.json"
COPIED_AT_ONCE = 250
"""Versions per page: with vectors some 3 MB as JSON, far below what a server takes in one request."""


class PlannedCopy(TypedDict):
    """What is to copy of a collection. vectors: how many are copied too. copied: versions that are there already."""

    versions: int
    vectors: dict[str, int]
    copied: int


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """How far one collection came: `done` of `total` versions copied, or compared."""

    collection: str
    doing: str
    done: int
    total: int


@dataclass(slots=True)
class StoreSums:
    """The sums of one side of a collection. embedded: versions with each named vector."""

    versions: int = 0
    current: str = ""
    history: str = ""
    embedded: dict[str, int] = field(default_factory=dict)

    def same_memories(self, other: StoreSums) -> bool:
        """Return whether both sides hold the same memories; vectors may differ."""
        return (self.versions, self.current, self.history) == (other.versions, other.current, other.history)


@dataclass(frozen=True, slots=True)
class _CopyState:
    after: str | None = None
    done: int = 0
    is_copied: bool = False


class Migration:
    """One move from one store to another. Both are opened here; a run may be stopped anywhere and repeated."""

    def __init__(
        self,
        source: MemoryStore,
        target: MemoryStore,
        *,
        names: tuple[str, str],
        embedders: Mapping[str, EmbedderIdentity],
        state_dir: Path,
    ) -> None:
        """names: of both stores, for messages and the recorded progress. embedders: of the settings; {} takes those of
        the source.

        Raises Refused: the target holds memories that did not come from this migration, or another one is unfinished.
        """
        self._source, self._target, self._names = source, target, names
        self._file = state_dir / MIGRATION_FILE
        states = saved_progress(self._file, names)
        for name in COLLECTIONS:
            source.open_collection(name, CollectionSpec({}))
            target.open_collection(name, CollectionSpec(embedders or source.embedders(name)))
        if states is None:
            self._check_empty()
        self._at = states or dict.fromkeys(COLLECTIONS, _CopyState())
        self.is_resumed = states is not None

    def copy(self) -> Iterator[CopyProgress]:
        """Copy what is not there yet; yield after each page."""
        for name in COLLECTIONS:
            shared, state = self._shared_vectors(name), self._at[name]
            total = self._source.count(name, Where())
            while not state.is_copied:
                page, after = self._source.scan(
                    name, Where(), page=COPIED_AT_ONCE, after=state.after, with_vectors=True
                )
                self._target.put(name, [_target_entry(entry, shared) for entry in page])
                state = _CopyState(after, state.done + len(page), after is None)
                self._note(name, state)
                yield CopyProgress(name, "copied", state.done, total)
        self._target.flush()

    def compare(self) -> Iterator[CopyProgress | tuple[str, StoreSums, StoreSums]]:
        """Read both sides completely; yield the progress, and after each collection its two sums."""
        for name in COLLECTIONS:
            total = 2 * self._source.count(name, Where())
            sides = []
            for number, store in enumerate((self._source, self._target)):
                sums = StoreSums()
                for step in _sum_up(store, name, sums):
                    yield CopyProgress(name, "compared", step + number * total // 2, total)
                sides.append(sums)
            yield name, sides[0], sides[1]

    def finish(self) -> None:
        """Delete the recorded progress, after both sides were compared."""
        remove_durably(self._file)

    def _shared_vectors(self, name: str) -> frozenset[str]:
        """Return the named vectors that are the same embedder's on both sides."""
        target_embedders = self._target.embedders(name)
        source_embedders = self._source.embedders(name)
        return frozenset(
            vector for vector, embedder in source_embedders.items() if target_embedders.get(vector) == embedder
        )

    def _check_empty(self) -> None:
        for name in COLLECTIONS:
            _check_empty(self._names[1], name, self._target.count(name, Where()))

    def _note(self, name: str, state: _CopyState) -> None:
        self._at[name] = state
        _save(self._file, {"from": self._names[0], "to": self._names[1]}, self._at)


def _save(
    file: Path, header: Mapping[str, object], states: Mapping[str, _StageState] | Mapping[str, _CopyState]
) -> None:
    """Write a run's progress durably. states: by collection."""
    make_private(file.parent)
    by_collection = {name: asdict(state) for name, state in states.items()}
    write_atomic(file, json.dumps({**header, "at": by_collection}).encode())


def _check_empty(store: str, name: str, versions: int) -> None:
    if versions:
        raise Refused(
            f"{store} holds {versions} versions in {name} already and nothing was changed; migrate into an empty "
            "store: move that one away, or name another"
        )


def saved_progress(file: Path, names: tuple[str, str]) -> dict[str, _CopyState] | None:
    """Return a migration's progress, None if it never began. Raises Refused: another one is unfinished."""
    try:
        state = json.loads(file.read_text(encoding="utf-8"))
        recorded_names = str(state["from"]), str(state["to"])
        states = {collection: _CopyState(**saved) for collection, saved in state["at"].items()}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if recorded_names != names or set(states) != set(COLLECTIONS):
        raise Refused(
            f"a migration from {recorded_names[0]} to {recorded_names[1]} was cut off and nothing was changed; run "
            f"that one again to finish it, or delete {file} to give it up"
        )
    return states


def plan_copy(
    source: MemoryStore,
    target: MemoryStore | None,
    *,
    names: tuple[str, str],
    embedders: Mapping[str, EmbedderIdentity],
    state_dir: Path,
) -> dict[str, PlannedCopy]:
    """Return what is to copy, by collection.

    Changes nothing on either side. target: None if it does not exist yet. Raises Refused, as `Migration`.
    """
    states = saved_progress(state_dir / MIGRATION_FILE, names)
    plan: dict[str, PlannedCopy] = {}
    for name in COLLECTIONS:
        total, made_by = source.peek(name) or (0, {})
        count, target_embedders = (target.peek(name) if target is not None else None) or (0, embedders or made_by)
        if states is None:
            _check_empty(names[1], name, count)
        shared = sorted(vector for vector, embedder in made_by.items() if target_embedders.get(vector) == embedder)
        vectors = {vector: source.count(name, Where((HasVector(vector),))) for vector in shared}
        plan[name] = {"versions": total, "vectors": vectors, "copied": states[name].done if states else 0}
    return plan


def difference(name: str, source: StoreSums, target: StoreSums, names: tuple[str, str]) -> Unavailable:
    """Return the error that says how two sides differ."""
    return Unavailable(
        f"{name} is not the same on both sides: {source.versions} versions in {names[0]}, {target.versions} in "
        f"{names[1]}; somebody wrote meanwhile. Your settings are as they were: stop all engines, empty the target, "
        "run it again"
    )


def _target_entry(entry: Entry, shared: frozenset[str]) -> Entry:
    vectors = {name: row for name, row in entry.vectors.items() if name in shared}
    return replace(entry, memory=replace(entry.memory, revision=None), vectors=vectors)


def _sum_up(store: MemoryStore, name: str, sums: StoreSums) -> Iterator[int]:
    """Fill in `sums`, page by page in point-id order, which is the same in every store."""
    current, history = hashlib.sha256(), hashlib.sha256()
    for page in pages(store, name, Where(), size=COPIED_AT_ONCE):
        for entry in page:
            payload = json.dumps(to_payload(entry.memory), sort_keys=True, ensure_ascii=False).encode()
            history.update(payload + b"\n")
            if entry.memory.is_current:
                current.update(f"{entry.memory.id}\0{entry.memory.content}\n".encode())
        sums.versions += len(page)
        yield sums.versions
    sums.current, sums.history = current.hexdigest(), history.hexdigest()
    sums.embedded = {
        embedder: store.count(name, Where((HasVector(embedder),))) for embedder in sorted(store.embedders(name))
    }
