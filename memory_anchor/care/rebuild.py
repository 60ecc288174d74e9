"""A store made anew: its words and vectors in place, or every version in another store.

Make what is derived anew: words, payload indexes, and vectors when the embedder changed or is asked to.

The new vectors are filled in beside the old ones, under a second name, and take their place when all are there: until
then searches by meaning answer as before. Each step is written down, so a run that was killed goes on where it was;
whatever a step repeats it repeats to the same end. Payloads, history and use are not touched. Rejected: dropping the
vectors first and embedding behind, which leaves a large store without meaning for an hour.

embed -> switch (old vectors go, the name is the new embedder's) -> fill (rows copied, words made) -> drop -> local (the
bundled model's rows beside an API's, in place: they are comparable all along) -> done; when the vectors may stay: words
-> renew -> done.

Move every version of a store into another one, page by page, and prove that both hold the same.

Only the store moves: audit trail, constitution, projects and settings stay in the data directory. A page is read with
its vectors and put as it is (points have our ids, so putting it twice is putting it once); vectors of an embedder that
the target has not are left out and made by the engine behind. After each page the place is written down, so a run that
was killed goes on there. At the end both sides are read whole: the number of versions, a hash over what is current, and
one over every version with its history, use and receipts. Nothing is deleted. Rejected: a snapshot of the source, which
no other engine reads; export and import, which make all vectors anew.
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
from memory_anchor.errors import Refused, Unavailable, retry_on_conflict
from memory_anchor.files import make_private, remove_durably, write_atomic
from memory_anchor.language.indexing import searched_words
from memory_anchor.model import COLLECTIONS
from memory_anchor.ports import DENSE, DENSE_LOCAL, CollectionSpec, Embedder, EmbedderIdentity, Entry, MemoryStore
from memory_anchor.recall.embedding import document_rows
from memory_anchor.where import HasVector, Where

BESIDE = "dense_next"
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
class _Resume:
    """Where a collection stands. after, done: within a stage that goes through all its pages."""

    stage: Stage
    after: str | None = None
    done: int = 0


class Reindex:
    """One run over all collections of a store. `steps` may be left at any point and taken up by another object."""

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
        """embedder: None leaves the vectors as they are. vectors: embed anew although the embedder is the same.

        local: makes the second vector beside an API's. With `vectors` all of them are made anew, else those it lacks
        when the embedder changed, and otherwise behind.
        """
        self._store = store
        self._embedder = embedder
        self._lock = lock
        self._file = state_dir / STATE_FILE
        self._local = local
        self._beside = {DENSE_LOCAL: local.identity} if local is not None else {}
        self._vectors = vectors
        self._identity = asdict(embedder.identity) if embedder is not None else None
        self._at = self._taken_up() or {name: _Resume(self._first(name, vectors)) for name in COLLECTIONS}

    def steps(self) -> Iterator[Progress]:
        """Do the work, telling after each bounded step. Raises Unavailable: the embedder cannot run now."""
        for name in COLLECTIONS:
            while (stage := self._at[name].stage) != "done":
                following = yield from self._stage(name, stage)
                self._note(name, _Resume(following))
                yield Progress(name, following, 1, 1)
        self._store.flush()
        self._file.unlink(missing_ok=True)

    def _stage(self, name: str, stage: Stage) -> Generator[Progress, None, Stage]:
        """Do one stage of one collection and return the next one."""
        match stage:
            case "embed":
                yield from self._embed(name)
                return "switch"
            case "switch":
                self._become(name, {DENSE: self._new(), BESIDE: self._new(), **self._beside})
                return "fill"
            case "fill":
                yield from self._rewrite(name, "fill")
                return "drop"
            case "drop":
                self._become(name, {DENSE: self._new(), **self._beside})
                return "local"
            case "local":
                yield from self._embed_local(name)
                return "done"
            case "words":
                yield from self._rewrite(name, "words")
                return "renew"
            case "renew":
                held = dict(self._store.embedders(name))
                if self._embedder is not None:
                    held.pop(DENSE_LOCAL, None)
                self._become(name, held | self._beside)
                return "done"
            case _:
                return "done"

    def _embed(self, name: str) -> Iterator[Progress]:
        """Give every version its row beside the old one; the live ones of a batch and their history alike."""
        if self._embedder is None:
            return
        held = self._store.embedders(name)
        if held.get(BESIDE) != self._new():
            self._become(name, {**held, BESIDE: self._new()})
        total = self._store.count(name, Where())
        while waiting := self._store.find(name, Where((), (HasVector(BESIDE),)), limit=EMBED_BATCH):
            rows = document_rows(self._embedder, waiting, whole=True)
            self._store.set_vectors(
                name, {memory.point_id: {BESIDE: row} for memory, row in zip(waiting, rows, strict=True)}
            )
            yield Progress(name, "embed", self._store.count(name, Where((HasVector(BESIDE),))), total)

    def _embed_local(self, name: str) -> Iterator[Progress]:
        """Give every version the bundled model's row anew, or only those that lack it; nothing where it cannot run."""
        if self._local is None or not self._local.available():
            return
        wanted = Where() if self._vectors else Where((), (HasVector(DENSE_LOCAL),))
        total, place = self._store.count(name, wanted), self._at[name]
        after, done = place.after, place.done
        while True:
            page, after = self._store.scan(name, wanted, page=EMBED_BATCH, after=after)
            memories = [entry.memory for entry in page]
            if memories:
                rows = document_rows(self._local, memories, whole=True)
                told = zip(memories, rows, strict=True)
                self._store.set_vectors(name, {memory.point_id: {DENSE_LOCAL: row} for memory, row in told})
            done += len(page)
            if after is None:
                return
            self._note(name, _Resume("local", after, done))
            yield Progress(name, "local", done, max(total, done))

    def _rewrite(self, name: str, stage: Stage) -> Iterator[Progress]:
        """Put every version again with fresh words, and in `fill` with its new row under the name that is searched."""
        total, place = self._store.count(name, Where()), self._at[name]
        after, done = place.after, place.done
        while True:
            with self._lock:  # nobody may close a version between reading and writing it
                many, after = retry_on_conflict(partial(self._rewrite_page, name, stage, after))
            done += many
            if after is None:
                return
            self._note(name, _Resume(stage, after, done))
            yield Progress(name, stage, done, total)

    def _rewrite_page(self, name: str, stage: Stage, after: str | None) -> tuple[int, str | None]:
        page, following = self._store.scan(name, Where(), page=PAGE, after=after, with_vectors=True)
        fresh = [
            replace(
                entry,
                words=searched_words(entry.memory),
                vectors={**entry.vectors, DENSE: entry.vectors[BESIDE]}
                if stage == "fill" and BESIDE in entry.vectors
                else entry.vectors,
            )
            for entry in page
        ]
        self._store.put(name, fresh)
        return len(page), following

    def _become(self, name: str, embedders: Mapping[str, EmbedderIdentity]) -> None:
        self._store.reindex(name, CollectionSpec(embedders))

    def _new(self) -> EmbedderIdentity:
        if self._embedder is None:
            raise ValueError("a stage with vectors needs an embedder")
        return self._embedder.identity

    def _first(self, name: str, vectors: bool) -> Stage:
        same = self._embedder is None or self._store.embedders(name).get(DENSE) == self._embedder.identity
        return "words" if same and not (vectors and self._embedder is not None) else "embed"

    # --- how far it came ---------------------------------------------------------------------------------------

    def _taken_up(self) -> dict[str, _Resume] | None:
        """Return where a run was cut off, None when there is none for this embedder."""
        try:
            held = json.loads(self._file.read_text(encoding="utf-8"))
            if held["identity"] != self._identity or set(held["at"]) != set(COLLECTIONS):
                return None
            self._vectors = self._vectors or held["vectors"]
            return {name: _Resume(**place) for name, place in held["at"].items()}
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _note(self, name: str, place: _Resume) -> None:
        self._at[name] = place
        make_private(self._file.parent)
        told = {
            "identity": self._identity,
            "vectors": self._vectors,
            "at": {one: asdict(held) for one, held in self._at.items()},
        }
        write_atomic(self._file, json.dumps(told).encode())


MIGRATION_FILE = "migrate.json"
COPIED_AT_ONCE = 250
"""Versions a page: with vectors some 3 MB as JSON, far below what a server takes in one request."""


class PlannedCopy(TypedDict):
    """What there is to do for a collection. vectors: how many are carried; copied: versions that are there already."""

    versions: int
    vectors: dict[str, int]
    copied: int


@dataclass(frozen=True, slots=True)
class Passed:
    """How far one collection came: `done` of `total` versions copied, or compared."""

    collection: str
    doing: str
    done: int
    total: int


@dataclass(slots=True)
class Sums:
    """What one side of a collection comes to. embedded: versions with each named vector."""

    versions: int = 0
    current: str = ""
    history: str = ""
    embedded: dict[str, int] = field(default_factory=dict)

    def holds_as(self, other: Sums) -> bool:
        """Return whether both sides hold the same memories; vectors may be made anew."""
        return (self.versions, self.current, self.history) == (other.versions, other.current, other.history)


@dataclass(frozen=True, slots=True)
class _Place:
    after: str | None = None
    done: int = 0
    is_copied: bool = False


class Migration:
    """One move from one store to another. Both are opened here; a run may be left at any point and made again."""

    def __init__(
        self,
        source: MemoryStore,
        target: MemoryStore,
        *,
        names: tuple[str, str],
        embedders: Mapping[str, EmbedderIdentity],
        state_dir: Path,
    ) -> None:
        """names: what both are called in messages and in the record of how far it came. embedders: of the settings,
        {} keeps the vectors of whoever made them.

        Raises Refused: the target holds memories that did not come from this migration, or another one was cut off.
        """
        self._source, self._target, self._names = source, target, names
        self._file = state_dir / MIGRATION_FILE
        places = taken_up(self._file, names)
        for name in COLLECTIONS:
            source.open_collection(name, CollectionSpec({}))
            target.open_collection(name, CollectionSpec(embedders or source.embedders(name)))
        if places is None:
            self._check_empty()
        self._at = places or dict.fromkeys(COLLECTIONS, _Place())
        self.is_resumed = places is not None

    def copy(self) -> Iterator[Passed]:
        """Copy what is not there yet, telling after each page."""
        for name in COLLECTIONS:
            carried, place = self._carried(name), self._at[name]
            total = self._source.count(name, Where())
            while not place.is_copied:
                page, after = self._source.scan(
                    name, Where(), page=COPIED_AT_ONCE, after=place.after, with_vectors=True
                )
                self._target.put(name, [_carried_over(entry, carried) for entry in page])
                place = _Place(after, place.done + len(page), after is None)
                self._note(name, place)
                yield Passed(name, "copied", place.done, total)
        self._target.flush()

    def compare(self) -> Iterator[Passed | tuple[str, Sums, Sums]]:
        """Read both sides whole; yield how far it is, and at the end of each collection its two sums."""
        for name in COLLECTIONS:
            total = 2 * self._source.count(name, Where())
            sides = []
            for number, store in enumerate((self._source, self._target)):
                sums = Sums()
                for step in _summed(store, name, sums):
                    yield Passed(name, "compared", step + number * total // 2, total)
                sides.append(sums)
            yield name, sides[0], sides[1]

    def finish(self) -> None:
        """Forget how far it came. What says so is that both sides were compared."""
        remove_durably(self._file)

    def _carried(self, name: str) -> frozenset[str]:
        """Return the named vectors that are the same embedder's on both sides."""
        there = self._target.embedders(name)
        return frozenset(vector for vector, who in self._source.embedders(name).items() if there.get(vector) == who)

    def _check_empty(self) -> None:
        for name in COLLECTIONS:
            _check_empty(self._names[1], name, self._target.count(name, Where()))

    def _note(self, name: str, place: _Place) -> None:
        self._at[name] = place
        make_private(self._file.parent)
        told = {
            "from": self._names[0],
            "to": self._names[1],
            "at": {one: asdict(held) for one, held in self._at.items()},
        }
        write_atomic(self._file, json.dumps(told).encode())


def _check_empty(place: str, name: str, many: int) -> None:
    if many:
        raise Refused(
            f"{place} holds {many} versions in {name} already and nothing was changed; migrate into an empty store: "
            "move that one away, or name another"
        )


def taken_up(file: Path, names: tuple[str, str]) -> dict[str, _Place] | None:
    """Return how far a migration came, None when it was never begun. Raises Refused: another one was cut off."""
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
        begun, places = (str(held["from"]), str(held["to"])), {n: _Place(**at) for n, at in held["at"].items()}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if begun != names or set(places) != set(COLLECTIONS):
        raise Refused(
            f"a migration from {begun[0]} to {begun[1]} was cut off and nothing was changed; run that one again to "
            f"finish it, or delete {file} to give it up"
        )
    return places


def planned(
    source: MemoryStore,
    target: MemoryStore | None,
    *,
    names: tuple[str, str],
    embedders: Mapping[str, EmbedderIdentity],
    state_dir: Path,
) -> dict[str, PlannedCopy]:
    """Return what there is to do, by collection.

    Looks, and makes nothing on either side. target: None where nothing is there yet. Raises Refused, as `Migration`.
    """
    places = taken_up(state_dir / MIGRATION_FILE, names)
    plan: dict[str, PlannedCopy] = {}
    for name in COLLECTIONS:
        total, own = source.peek(name) or (0, {})
        known = target.peek(name) if target is not None else None
        many, there = known or (0, embedders or own)
        if places is None:
            _check_empty(names[1], name, many)
        carried = sorted(vector for vector, who in own.items() if there.get(vector) == who)
        vectors = {one: source.count(name, Where((HasVector(one),))) for one in carried}
        plan[name] = {"versions": total, "vectors": vectors, "copied": places[name].done if places else 0}
    return plan


def differing(name: str, one: Sums, other: Sums, names: tuple[str, str]) -> Unavailable:
    """Return the error that says how two sides differ."""
    return Unavailable(
        f"{name} is not the same on both sides: {one.versions} versions in {names[0]}, {other.versions} in {names[1]}; "
        "somebody wrote meanwhile. Your settings are as they were: stop all engines, empty the target, run it again"
    )


def _carried_over(entry: Entry, carried: frozenset[str]) -> Entry:
    vectors = {name: row for name, row in entry.vectors.items() if name in carried}
    return replace(entry, memory=replace(entry.memory, revision=None), vectors=vectors)


def _summed(store: MemoryStore, name: str, sums: Sums) -> Iterator[int]:
    """Fill in `sums`, page by page in point-id order, which every store has alike."""
    current, history = hashlib.sha256(), hashlib.sha256()
    after: str | None = None
    while True:
        page, after = store.scan(name, Where(), page=COPIED_AT_ONCE, after=after)
        for entry in page:
            payload = json.dumps(to_payload(entry.memory), sort_keys=True, ensure_ascii=False).encode()
            history.update(payload + b"\n")
            if entry.memory.is_current:
                current.update(f"{entry.memory.id}\0{entry.memory.content}\n".encode())
        sums.versions += len(page)
        yield sums.versions
        if after is None:
            break
    sums.current, sums.history = current.hexdigest(), history.hexdigest()
    sums.embedded = {one: store.count(name, Where((HasVector(one),))) for one in sorted(store.embedders(name))}
