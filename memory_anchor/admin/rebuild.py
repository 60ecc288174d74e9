"""Reindex: new words and vectors in place.

Reindex makes derived data again: words, payload indexes, and vectors when the embedder changed or on request. The new
vectors are filled in under a second name and replace the old ones when all are there: until then searches answer as
before. Each step is recorded, so a killed run continues where it was; a repeated step has the same result. Payloads,
history and use do not change. Rejected: dropping the vectors first and embedding in the background, which leaves a
large store without vectors for an hour.

embed -> switch (old vectors go, the name is the new embedder's) -> fill (rows copied, words made) -> drop -> local (the
bundled model's rows next to an API's, in place: they stay comparable) -> done; if the vectors may stay: words -> renew
-> done.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from memory_anchor.base.files import make_private, write_atomic
from memory_anchor.domain.errors import retry_on_conflict
from memory_anchor.domain.model import COLLECTIONS
from memory_anchor.domain.ports import (
    DENSE,
    DENSE_LOCAL,
    CollectionSpec,
    Embedder,
    EmbedderIdentity,
    MemoryStore,
)
from memory_anchor.domain.where import HasVector, Where
from memory_anchor.language.indexing import searched_words
from memory_anchor.recall.embedding import document_rows

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
        make_private(self._file.parent)
        at = {collection: asdict(stage) for collection, stage in self._at.items()}
        write_atomic(self._file, json.dumps({"identity": self._identity, "vectors": self._vectors, "at": at}).encode())
