"""Make what is derived anew: words, payload indexes, and vectors when the embedder changed or is asked to.

The new vectors are filled in beside the old ones, under a second name, and take their place when all are there: until
then searches by meaning answer as before. Each step is written down, so a run that was killed goes on where it was;
whatever a step repeats it repeats to the same end. Payloads, history and use are not touched. Rejected: dropping the
vectors first and embedding behind, which leaves a large store without meaning for an hour.

embed -> switch (old vectors go, the name is the new embedder's) -> fill (rows copied, words made) -> drop -> local (the
bundled model's rows beside an API's, in place: they are comparable all along) -> done; when the vectors may stay: words
-> renew -> done.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from memory_anchor.errors import decided_anew
from memory_anchor.files import make_private, write_whole
from memory_anchor.language.indexing import searched_words
from memory_anchor.model import COLLECTIONS
from memory_anchor.ports import DENSE, DENSE_LOCAL, CollectionSpec, Embedder, EmbedderIdentity, MemoryStore
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
                many, after = decided_anew(partial(self._rewrite_page, name, stage, after))
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
        write_whole(self._file, json.dumps(told).encode())
