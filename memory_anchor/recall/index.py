"""What searches read of the store, kept in step with it: the mirror, the embedding queues, and when they changed.

A store that numbers its writes is followed: the first search reads what the mirror needs of all versions, without their
texts (a second for 100,000), and every search first takes in what was written since, by whatever process, with one
cheap query where that is nothing. The mirror then answers every search, the store's own too (`searched_by`), up to
`MAX_ROWS`. Of a store with more: a writer calls `note_written`; everything else comes from the store, at once for what
a search needs (`filled`) or page by page in the background (`warm`).

The generation moves with every change, so that no older answer is used.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.base.json_values import Json
from memory_anchor.base.quarantine import Quarantine
from memory_anchor.domain.errors import MemoryAnchorError, Unavailable, WrongEmbedder
from memory_anchor.domain.model import SEARCHABLE_STATES, Layer, Memory, Status
from memory_anchor.domain.ports import DENSE, DENSE_LOCAL, Entry, FollowedStore, Hit, SparseVector, VectorQuery
from memory_anchor.domain.where import Between, OneOf, Where
from memory_anchor.language.indexing import embedded_text, searched_words
from memory_anchor.language.traits import packed, traits_of, unpacked
from memory_anchor.recall.candidates import WRITTEN_HERE, points_to_read
from memory_anchor.recall.centring import Centring
from memory_anchor.recall.embedding import awaited_text, is_long
from memory_anchor.recall.embedding_queue import EmbeddingQueue, quarantine_name
from memory_anchor.recall.kept_mirror import WARM_PAGE, kept_mirror
from memory_anchor.recall.mirror import MAX_ROWS, ROOM_SHARE, Mirror
from memory_anchor.recall.mirror_row import rows_of_followed
from memory_anchor.recall.point_table import point_texts
from memory_anchor.recall.request import SEARCHED_LAYERS, SearchRequest
from memory_anchor.recall.row_columns import asked_of_store

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.domain.ports import FollowedRows, Matrix, Snapshot
    from memory_anchor.recall.query_embedder import QueryEmbedder

    _Part = tuple[Mirror, NDArray[np.int64]]

DRAINED_BY_SEARCH = 3
"""Memories a search embeds first when no more are waiting: about 0.3 s of CPU at most."""
SAVED_FROM = 2000
"""Versions from which the mirror is worth a file; fewer are read in 0.3 s."""
CURRENT = Where(all_of=(OneOf("state", (*sorted(SEARCHABLE_STATES), Status.PENDING.value)),))
"""What the mirror holds."""


def _content(entry: Entry) -> str:
    return entry.memory.content


class Index:
    """Thread-safe; embedding and the store run outside its lock. yield_to_requests: returns when none waits, or soon
    (`Foreground`). snapshot: where the mirror is saved."""

    def __init__(
        self,
        store: FollowedStore,
        query_embedder: QueryEmbedder,
        yield_to_requests: Callable[[], None],
        snapshot: Snapshot | None,
        quarantine: Quarantine,
    ) -> None:
        self.store, self.query_embedder, self._yield_to_requests = store, query_embedder, yield_to_requests
        self._quarantine = quarantine
        self._snapshot = snapshot
        self.mirror = Mirror(query_embedder.identities)
        self.lock = threading.RLock()
        self._warming = threading.Lock()
        self.generation = 0
        self._is_cold = True
        self._written_meanwhile: set[str] | None = None
        self._followed: FollowedStore | None = store
        self._following, self._seen = threading.Lock(), 0
        self._saved = 0
        """Rows of the mirror that is saved."""
        store.searched_by = self
        self._counted: dict[str, tuple[int, int]] = {}
        makers, computes_here = query_embedder.embedders, query_embedder.computes_here
        waits = {name: yield_to_requests if computes_here(name) else None for name in makers}
        self._queues = {
            name: EmbeddingQueue(
                store, embedder, partial(self._embedded, name), using=name, quarantine=quarantine, wait=waits[name]
            )
            for name, embedder in makers.items()
        }

    # --- writing ---------------------------------------------------------------------------------------------------

    def entry_of(self, memory: Memory, *, embed: bool) -> Entry:
        """Return the memory with the vectors to store it with.

        embed: wait for a row, as facts do; a text of more than `AWAITED_TOKENS` gets it in the background all the same,
        and so does every text while the embedder is away.
        """
        if self._quarantine.is_quarantined(memory.content):  # stored all the same, and read by its id alone
            self._quarantine.rename(memory.content, quarantine_name(memory))
            return Entry(memory, {}, SparseVector((), ()))
        if embed:
            self.follow()  # before the writers' lock is taken: what is written is compared there with what is stored
        with self._quarantine.reading({quarantine_name(memory): memory.content}):
            text = embedded_text(memory)
            vector = None
            with contextlib.suppress(Unavailable):
                vector = self.query_embedder.embed_document(text) if embed and awaited_text(text) == text else None
            return Entry(memory, dict([vector]) if vector else {}, searched_words(memory))

    def note_written(self, written: Memory | Entry) -> bool:
        """Make a stored version searchable at once: cached answers go, words count, a missing row is queued.

        Return whether the background has something to do: a row is missing, or the mirror began anew.
        """
        entry = written if isinstance(written, Entry) else Entry(written)
        memory, collection = entry.memory, entry.memory.layer.value
        if memory.layer not in SEARCHED_LAYERS or self._quarantine.is_quarantined(memory.content):
            return False
        with self.lock:
            self.generation += 1
            if self._written_meanwhile is not None:
                self._written_meanwhile.add(memory.point_id)
            queues = [q for name, q in self._queues.items() if name not in entry.vectors or is_long(memory)]
            may_wait = bool(queues) and isinstance(written, Entry) and memory.state in SEARCHABLE_STATES
            is_new, era = may_wait and memory.point_id not in self.mirror.points, self.mirror.era
            if not self.mirror.is_whole or self._followed is None:
                self.mirror.add_all({memory.point_id: entry}, collection)
            self._is_cold |= self.mirror.era != era  # full of old versions: it began anew
            for queue in queues if is_new else ():
                queue.add(collection, memory.point_id)
            return bool(queues) or self._is_cold

    def invalidate(self) -> None:
        """Drop every cached answer and all that is derived: after an import, a restore or a reindex."""
        with self.lock:
            self.generation += 1
            self.mirror = self._next_mirror()
            self._is_cold = True
            self._drop_saved()

    def warm(self) -> int:
        """Read every current version into the mirror, page by page; return how many. Searching goes on meanwhile.

        The mirror is whole afterwards, unless it was emptied meanwhile. A page is older than what was written since.
        """
        if self.follow():
            if not self._saved:  # a process that is killed saves nothing
                self.save()
            return len(self.mirror)
        with self._warming:  # one at a time: `_written_meanwhile` is for one reading
            with self.lock:
                era, self._written_meanwhile = self.mirror.era, set()
            try:
                read = sum(self._read_all(layer.value, era) for layer in SEARCHED_LAYERS)
                with self.lock:
                    self.mirror.is_whole = self.mirror.era == era
            finally:
                with self.lock:
                    self._written_meanwhile = None
        return read

    # --- following -------------------------------------------------------------------------------------------------

    def follow(self) -> bool:
        """Take in what any process wrote since; return whether the mirror now answers every search.

        The first time everything is read. False: the store is not followed, or holds more than the mirror. Whoever
        holds the writers' lock sees what is not committed: it stays out of the mirror, and is looked through beside it.
        """
        store = self._followed
        if store is None:
            return False
        if store.in_unit:
            return self.mirror.is_whole
        last = store.last_change()
        if last != self._seen or not self.mirror.is_whole:
            with self._following:
                if not self.mirror.is_whole and not self._load(store):
                    return False
                self._take_in(store, last)
        return self.mirror.is_whole

    def _load(self, store: FollowedStore) -> bool:
        """Read what the mirror needs of all versions; return whether they fit. More of them are no longer followed.

        What is written meanwhile has a higher number, and is taken in later. One that overflows is not whole.
        """
        seen, era, layers = store.last_change(), self.mirror.era, [layer.value for layer in SEARCHED_LAYERS]
        count = sum(self.store.count(layer, Where()) for layer in layers)
        if count > MAX_ROWS:
            self._followed = None
            return False
        found = kept_mirror(self._snapshot, store, layers, self._next_mirror(), self._put) if self._snapshot else None
        loaded, saved = found or (self._next_mirror(), 0)
        if found is None:
            loaded.is_whole, above = True, 0
            loaded.reserve(count + count // ROOM_SHARE)
            while (versions := store.versions(layers, above=above)) is not None:
                self._put(loaded, versions)
                above = int(versions.numbers[-1])
        loaded.settle()
        with self.lock:
            self.generation += 1
            if self.mirror.era == era and loaded.is_whole:
                self.mirror, self._seen, self._saved = loaded, seen, saved
        return self.mirror.is_whole

    def _take_in(self, store: FollowedStore, last: int) -> None:
        """Take in the writes up to this number."""
        above, layers = self._seen, [layer.value for layer in SEARCHED_LAYERS]
        if last <= above:
            return
        gone = [point for _, point in store.gone(above=above, up_to=last)]
        with self.lock:
            mirror = self.mirror
            self.generation += bool(gone)
            mirror.drop(gone)
            if gone:
                self._drop_saved()
        while (changed := store.changes(layers, above=above, up_to=last)) is not None:
            above = int(changed.changed[-1])
            with self.lock:
                self.generation += self._put(mirror, changed)
        self._seen = last

    def _put(self, mirror: Mirror, versions: FollowedRows) -> bool:
        """Put versions into a mirror; return whether anything changed. Texts are read only where traits are missing."""
        stored, traits = list(versions.traits), unpacked(versions.traits)
        if not traits.is_known.all():
            points, collections = point_texts(versions.points), versions.names["collection"]
            unread = {points[at]: at for at in np.flatnonzero(~traits.is_known).tolist()}
            for layer in SEARCHED_LAYERS:
                wanted = [point for point, at in unread.items() if collections[at] == layer.value]
                entries = self.store.get(layer.value, wanted) if wanted else []
                for group in self._quarantine.safe_groups(entries, _content):
                    with self._quarantine.reading({quarantine_name(entry.memory): _content(entry) for entry in group}):
                        for entry in group:
                            stored[unread[entry.memory.point_id]] = packed(traits_of(entry.memory))
            traits = unpacked(stored)
        rows = rows_of_followed(versions, traits)
        return mirror.follow(rows.taken(np.flatnonzero(traits.is_known)))

    def finds(self, request: SearchRequest) -> bool:
        """Return whether the mirror, once it is whole, finds what a request does: of a store that it follows always."""
        if self._followed is not None:
            return True
        return request.is_unfiltered and self.store.kind in WRITTEN_HERE

    def asked_of_store(self, collection: str, where: Where) -> list[int] | None:
        """Return the numbers of the versions that fulfil what the mirror's columns do not know of a filter."""
        asked, store = asked_of_store(where, self.query_embedder.identities), self._followed
        return None if asked is None or store is None else store.numbers(collection, asked)

    def query_batch(self, collection: str, queries: Sequence[VectorQuery], where: Where) -> list[list[Hit]] | None:
        dense = {query.using for query in queries if not isinstance(query.vector, SparseVector)}
        parts = self._fulfilling(collection, where) if dense <= self.query_embedder.identities.keys() else None
        return None if parts is None else [self._hits(collection, query, parts) for query in queries]

    def _hits(self, collection: str, query: VectorQuery, parts: Sequence[_Part]) -> list[Hit]:
        vector, limit = query.vector, query.limit
        if isinstance(vector, SparseVector):
            with self.lock:
                found = [mirror.matching_hits(vector, collection, rows, limit=limit) for mirror, rows in parts]
            limit *= len(parts)  # rarity among the few that are not committed says nothing, so neither takes places
        else:
            row = np.asarray(vector, np.float32)
            found = [self._nearest_in(*part, row, limit, query.using) for part in parts]
        return found[0] if len(parts) == 1 else sorted(chain(*found), key=lambda hit: -hit.score)[:limit]

    def _nearest_in(self, mirror: Mirror, rows: NDArray[np.int64], query: Matrix, limit: int, using: str) -> list[Hit]:
        with self.lock:
            hits, doubtful = mirror.nearest_hits(query, rows, limit=limit, using=using)
        if len(hits) > limit and self._followed is not None:
            exact = self._followed.rows(list(doubtful.values()), using)
            length = float(np.linalg.norm(query)) or 1.0
            for place, number in doubtful.items():
                if (row := exact.get(number)) is not None:
                    cosine = float(row @ query) / (length * (float(np.linalg.norm(row)) or 1.0))
                    hits[place] = Hit(hits[place].point_id, cosine)
            hits.sort(key=lambda hit: -hit.score)
        return hits[:limit]

    def _fulfilling(self, collection: str, where: Where) -> list[_Part] | None:
        """Return the rows of the whole mirror that fulfil a filter, and of what only the unit of this thread sees; None
        where the mirror does not hold the collection."""
        if collection not in {layer.value for layer in SEARCHED_LAYERS} or not self.follow():
            return None
        numbers = self.asked_of_store(collection, where)
        unit = self._seen_by_unit()
        with self.lock:
            mirror = self.mirror
            if not mirror.is_whole:
                return None
            parts = [(mirror, mirror.fulfilling(collection, where, numbers))]
            if unit is not None:
                fresh, written = unit
                parts = [(mirror, np.setdiff1d(parts[0][1], mirror.rows(written)))]
                parts.append((fresh, fresh.fulfilling(collection, where, numbers)))
            return parts

    def _seen_by_unit(self) -> tuple[Mirror, list[str]] | None:
        """Return what the unit of this thread sees beyond the mirror, and which points were written or erased; None
        outside of a unit, and where it sees nothing more."""
        store = self._followed
        if store is None or not store.in_unit:
            return None
        above, last = self._seen, store.last_change()
        if last <= above:
            return None
        layers = [layer.value for layer in SEARCHED_LAYERS]
        fresh, written = self._next_mirror(), [point for _, point in store.gone(above=above, up_to=last)]
        while (changed := store.changes(layers, above=above, up_to=last)) is not None:
            above = int(changed.changed[-1])
            self._put(fresh, changed)
            written += point_texts(changed.points)
        with self.lock:
            fresh.compare_as(self.mirror)
        return fresh, written

    def cosines(
        self, points: Sequence[str], row: Matrix, script: int, *, using: str, collection: str
    ) -> list[tuple[str, float]]:
        """Return these points with their centred cosine to a raw row, nearest first; those not embedded come last."""
        mirror, unit = self.filled(dict.fromkeys(points, collection)), self._seen_by_unit()
        fresh, written = unit or (None, [])
        near: list[tuple[str, float]] = []
        with self.lock:
            for part, wanted in (
                (mirror, [point for point in points if point not in written]),
                (fresh, [point for point in points if point in written]),
            ):
                if part is not None:
                    rows = part.rows(wanted)
                    found = np.nan_to_num(part.cosines(row, script, rows, using=using), nan=-1.0)
                    order = np.lexsort((rows, -found))
                    near += zip(part.points.texts(rows[order]), found[order].tolist(), strict=True)
        return near if fresh is None else sorted(near, key=lambda pair: -pair[1])

    # --- reading more than is followed -----------------------------------------------------------------------------

    def _read_all(self, collection: str, era: int) -> int:
        """Read a collection into the mirror and return how many; it stops where the mirror is emptied meanwhile."""
        read, after = 0, None
        while True:
            self._yield_to_requests()
            page, after = self.store.scan(collection, CURRENT, page=WARM_PAGE, after=after, with_vectors=True)
            if not self._add_page(page, collection, era):
                return read
            read += len(page)
            if after is None:
                return read

    def _add_page(self, page: Sequence[Entry], collection: str, era: int) -> bool:
        """Add what was read to the mirror, less what was written since; False where it was emptied meanwhile."""
        entries = {entry.memory.point_id: entry for entry in page}
        with self.lock:
            if self.mirror.era != era:
                return False
            newer = self._written_meanwhile or set()
            fresh = [entry for point, entry in entries.items() if point not in newer]
            for group in self._quarantine.safe_groups(fresh, _content):
                with self._quarantine.reading({quarantine_name(entry.memory): _content(entry) for entry in group}):
                    self.mirror.add_all({entry.memory.point_id: entry for entry in group}, collection)
            self.mirror.sign()
        return True

    def save(self) -> None:
        """Save the mirror for the next process, where it is whole, large enough and holds nothing that was erased."""
        if not self.mirror.is_whole:  # nobody searched here, and nothing is read at the end to be written
            return
        with contextlib.suppress(MemoryAnchorError):  # what was written last is read once more at the next start
            self.follow()
        with self.lock:
            size, mirror = len(self.mirror), self.mirror
            if self._snapshot is None or not mirror.is_whole or size < SAVED_FROM or size == self._saved:
                return
            if self._followed is not None and not mirror.points.has_gaps:
                self._snapshot.put(mirror.to_arrays())
                self._saved = size

    def _drop_saved(self) -> None:
        """Remove what is saved, under the lock: what is being saved meanwhile goes too."""
        self._saved = 0
        if self._snapshot is not None:
            self._snapshot.drop()

    def _next_mirror(self) -> Mirror:
        mirror = Mirror(self.query_embedder.identities)
        mirror.era = self.mirror.era + 1
        return mirror

    def in_memory(self) -> dict[str, Json]:
        """Return how many versions searches need not read from the store, and whether these are all."""
        with self.lock:
            return {"versions": len(self.mirror), "complete": self.mirror.is_whole}

    def unembedded(self) -> int:
        """Return how many searchable versions lack the row of the store's embedder; 0 without one."""
        if (queue := self._queues.get(DENSE)) is None:
            return 0
        known = self._known_to_lack(queue)
        return queue.unembedded() if known is None else known

    def _known_to_lack(self, queue: EmbeddingQueue) -> int | None:
        """Return how many searchable versions lack a row, None where the mirror does not hold all that is stored.

        The store has to look at every version's vectors, 11 ms of CPU at 10,000.
        """
        if not self.mirror.is_whole or not self.follow():
            return None
        with self.lock:
            return sum(len(self.mirror.fulfilling(layer.value, queue.lacking, None)) for layer in SEARCHED_LAYERS)

    def embed_pending(self, limit: int) -> int:
        """Embed up to `limit` memories that wait, writes of this process first; return how many were done.

        Made for a background loop: its first call also reads the store into memory (`warm`).
        Raises Unavailable, WrongEmbedder: nothing was done, the embedder cannot run now.
        """
        with self.lock:
            is_cold, self._is_cold = self._is_cold, False
        if is_cold:
            try:
                self.warm()
            except MemoryAnchorError:
                self._is_cold = True
                raise
        lack = {name for name, queue in self._queues.items() if queue.waiting or self._known_to_lack(queue) != 0}
        done = self._queues[DENSE_LOCAL].embed(limit) if DENSE_LOCAL in lack else 0
        if DENSE in lack:
            try:
                done += self._queues[DENSE].embed(limit)
            except (Unavailable, WrongEmbedder):
                if not done:
                    raise
        return done

    # --- for searches ----------------------------------------------------------------------------------------------

    def embed_last_writes(self) -> None:
        """Embed the last few writes first; a longer queue is left to the background and gets a note."""
        for name, queue in self._queues.items():
            embedder = self.query_embedder.prompt[name]
            if 0 < len(queue.waiting) <= DRAINED_BY_SEARCH and embedder.available():
                with contextlib.suppress(Unavailable, WrongEmbedder):  # `prepared_query` notes it
                    queue.embed(DRAINED_BY_SEARCH, by=embedder)

    def without_vector(self, using: str) -> int:
        """Return how many versions are found by words only, as far as is known; counted once a change."""
        with self.lock:
            if self.mirror.is_whole:
                return self.mirror.without_row(using)
            generation, counted = self._counted.get(using, (-1, 0))
            if generation == self.generation:
                return counted
            generation = self.generation
        try:
            counted = self._queues[using].unembedded()
        except MemoryAnchorError:  # the search itself says what failed
            return len(self._queues[using].waiting)
        with self.lock:
            self._counted[using] = generation, counted
        return counted

    def centring(self, using: str) -> Centring | None:
        """Return the means of one embedder's rows; None where there is no such embedder."""
        with self.lock:
            return self.mirror.centring(using)

    def memories(self, mirror: Mirror, points: Sequence[str]) -> dict[str, Memory]:
        """Return the memories of these points that the store still holds, by point, less what is set aside."""
        with self.lock:
            rows = mirror.rows(points)
            known = np.asarray(mirror.points.texts(rows), dtype=object)
            inside = {layer.value: known[mirror.within(rows, layer.value)].tolist() for layer in SEARCHED_LAYERS}
        found: dict[str, Memory] = {}
        for collection, wanted in inside.items():
            memories = [entry.memory for entry in self.store.get(collection, wanted)] if wanted else []
            # They come in the order asked for; `point_id` takes 8 µs and is needed only where some are gone.
            is_complete = len(memories) == len(wanted)
            found |= zip(wanted if is_complete else [memory.point_id for memory in memories], memories, strict=True)
        return {point: one for point, one in found.items() if not self._quarantine.is_quarantined(one.content)}

    def same_conversation(
        self, memory: Memory, readers: Iterable[str], within: timedelta, *, layers: Sequence[Layer], limit: int
    ) -> list[Memory]:
        """Return current memories of the same conversation so near in time, for these audiences: those of the first
        layer first, the nearest first; by the engine's index where the mirror is not whole."""
        if not memory.scope.conversation:
            return []
        with self.lock:
            mirror, row, points = self.mirror, self.mirror.points.get(memory.point_id), list[str]()
            if row is not None and mirror.is_whole:
                near = mirror.same_conversation(row, within.total_seconds())
                near = near[mirror.readable(near, readers)]
                rows = [near_row for layer in layers for near_row in near[mirror.within(near, layer.value)].tolist()]
                points = mirror.points.texts(np.asarray(rows[:limit], np.int64))
        if row is not None and mirror.is_whole:
            memories = self.memories(mirror, points) if points else {}
            return [memories[point] for point in points if point in memories]
        at = memory.recorded_at
        where = (
            CURRENT.and_(OneOf("conversation", (memory.scope.conversation,)))
            .and_(Between("recorded_at", at_least=at - within, below=at + within))
            .and_(OneOf("audience", tuple(sorted(readers))))
        )
        found = [other for layer in layers for other in self.store.find(layer.value, where, limit=limit)]
        found.sort(key=lambda other: (layers.index(other.layer), abs((other.recorded_at - at).total_seconds())))
        return [other for other in found if other.id != memory.id][:limit]

    def _embedded(self, using: str, vectors: Mapping[str, Matrix]) -> None:
        with self.lock:
            self.generation += 1
            if self._followed is None or not self.mirror.is_whole:
                self.mirror.set_vectors(vectors, using)
            if self._written_meanwhile is not None:
                self._written_meanwhile.update(vectors)

    def filled(self, points: Mapping[str, str], mirror: Mirror | None = None) -> Mirror:
        """Return this mirror, or the current one, once it knows these versions (point id -> collection).

        A search stays with one mirror, whatever replaces it meanwhile: its rows are numbers of this one.
        """
        if mirror is None:
            self.follow()
        with self.lock:
            mirror = self.mirror if mirror is None else mirror
            if self._followed is not None and mirror.is_whole:
                return mirror
            missing = points_to_read(self.store, mirror, list(points), self.query_embedder.identities)
        for layer in SEARCHED_LAYERS if missing else ():
            wanted = [point for point in missing if points[point] == layer.value]
            entries = self.store.get(layer.value, wanted, with_vectors=True)
            for group in self._quarantine.safe_groups(entries, _content):
                with (
                    self._quarantine.reading({quarantine_name(entry.memory): _content(entry) for entry in group}),
                    self.lock,
                ):
                    mirror.add_all({entry.memory.point_id: entry for entry in group}, layer.value)
        return mirror
