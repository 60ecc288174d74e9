"""The knowledge of one process: sources, the queue of documents to read, passages in a collection of the store.

A passage is one point: its id is made of its source and of its text (sha256), so a text is stored once a source however
often it stands there, a file that moved only moves its places, and an edit changes nothing but the passages that
changed. A vector is copied from any passage of the same text, in any source: no text is embedded twice.

Order of writing, so that a kill loses and doubles nothing: points first (ids repeat), then the document's places in one
transaction, then the points without a place are emptied. After a kill the unfinished part is done again. A step works
for a moment and returns, so that requests and memories go first; one thread works at a time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from memory_anchor.base.hashing import content_hash
from memory_anchor.base.json_values import Json
from memory_anchor.base.quarantine import Quarantine
from memory_anchor.domain.errors import (
    BadInput,
    DiskFull,
    MemoryAnchorError,
    NotFound,
    Refused,
    StoreDamaged,
    Unavailable,
)
from memory_anchor.domain.model import Scope, Status, Trust, Visibility, audiences
from memory_anchor.domain.ports import AuditLog, Clock, Embedder, Entry, MemoryStore
from memory_anchor.domain.where import HasVector, OneOf, Where
from memory_anchor.extensions.knowledge.catalogue import (
    QUEUE_MAX,
    SOURCES_MAX,
    SYNC,
    TRIES_MAX,
    Catalogue,
    PassagePlace,
    QueuedWork,
    SourceState,
)
from memory_anchor.extensions.knowledge.index import ACTIVE, COLLECTION, PassageIndex
from memory_anchor.extensions.knowledge.points import (
    INDEX_VERSION,
    ReadDocument,
    audience_of,
    context_of,
    contexts_in,
    embed_passages,
    emptied,
    known_vectors,
    memory_of,
    passages_of,
    point_of,
    read_document,
)
from memory_anchor.extensions.knowledge.sources import (
    HUMANS,
    LISTING,
    Listing,
    ReadingGuard,
    Source,
    SourceDocument,
    SourceKind,
    SyncProgress,
)
from memory_anchor.language.indexing import searched_words

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("memory_anchor")
BATCH_PASSAGES = 200
BATCH_DOCUMENTS = 64
EMBEDDED_AT_ONCE = 4
EMPTIED_AT_ONCE = 500
RESCAN_S = 30.0
RESCAN_SHARE = 50
"""Searches start a background scan at most every `RESCAN_S`, and for at most one second in `RESCAN_SHARE`."""
SCANNED_KINDS = frozenset({SourceKind.REPO_DOCS, SourceKind.GIT_HISTORY, SourceKind.FILES})
"""Kinds that change by themselves; the others are pushed."""


class Library:
    """The knowledge of one process. Thread-safe. has_worker: whether a thread of its own reads and embeds."""

    def __init__(
        self,
        store: MemoryStore,
        clock: Clock,
        data_dir: Path,
        *,
        audit: AuditLog,
        embedders: Mapping[str, Embedder],
        new_id: Callable[[], str],
        on_waiting: Callable[[], None],
        quarantine: Quarantine,
        cpu_s: Callable[[], float],
    ) -> None:
        """on_waiting: called when there is something to read or to embed.
        cpu_s: CPU seconds of the calling thread.
        """
        self.data_dir = data_dir
        self.catalogue = Catalogue(data_dir)
        self.store, self.clock = store, clock
        self.embedders = embedders
        self.index = PassageIndex(store, {name: embedder.identity for name, embedder in embedders.items()})
        self._audit, self._new_id = audit, new_id
        self._on_waiting = on_waiting
        self._quarantine = quarantine
        self._guard = ReadingGuard(self._quarantine, cpu_s)
        self._work_lock, self._blob_lock = threading.Lock(), threading.Lock()
        self._reading: tuple[QueuedWork, Iterator[None], SyncProgress] | None = None
        self._last_progress: SyncProgress | None = None
        self._may_embed = True
        self._rescan_wanted, self._rescan_at, self.has_worker = False, clock.now(), False

    @property
    def is_used(self) -> bool:
        return self.catalogue.is_used

    # --- sources ---------------------------------------------------------------------------------------------------

    def readable(self, reader: Scope) -> list[Source]:
        """Return the sources a reader may read, by the one rule of visibility."""
        if not self.is_used:
            return []
        allowed = audiences(reader)
        return [source for source in self.catalogue.sources() if audience_of(source) in allowed]

    def states(self, reader: Scope) -> list[SourceState]:
        allowed = audiences(reader)
        return [
            replace(state, reading=self.progress()) if self.is_reading(state.source.id) else state
            for state in self.catalogue.states()
            if audience_of(state.source) in allowed
        ]

    def source_named(self, name: str, reader: Scope) -> Source:
        """Return a source by its id, by the ref it was added by, or by its kind where there is one of it.

        Raises NotFound: the reader has none of that name. BadInput: several.
        """
        readable = self.readable(reader)
        for key in ("id", "ref", "kind"):
            matches = [source for source in readable if str(getattr(source, key)) == name]
            if len(matches) == 1:
                return matches[0]
            if matches:
                raise BadInput(f"{len(matches)} sources are called {name!r}; name one by its id: `knowledge list`")
        known = ", ".join(f"{s.id} ({s.kind})" for s in readable[:20]) or "none"
        raise NotFound(f"no source {name!r}; there are: {known}")

    def add(
        self,
        scope: Scope,
        kind: SourceKind,
        ref: str,
        *,
        trust: Trust | None = None,
        visibility: Visibility = Visibility.PROJECT,
        options: Mapping[str, str] | None = None,
        task: str = SYNC,
        content: bytes | None = None,
        by_human: bool = False,
    ) -> Source:
        """Add a source and queue it; durable on return. Added again, it is read again.

        trust: None leaves it unchanged, a new source untrusted. task: see `QueuedWork`. content: the pushed bytes.
        """
        key = (kind, ref, visibility)
        named = [s for s in self.readable(scope) if (s.kind, s.ref, s.visibility) == key]
        if content is not None:  # what a human pushed lies apart: no agent overwrites it by its name
            named = [s for s in named if (HUMANS in s.options) is by_human]
        existing = next(iter(named), None)
        if existing is None and len(self.catalogue.sources(live=False)) >= SOURCES_MAX:
            raise BadInput(f"there are {SOURCES_MAX} sources already; remove one: `memory-anchor knowledge remove`")
        if self.catalogue.count_waiting() >= QUEUE_MAX:
            raise Unavailable(f"{QUEUE_MAX} documents wait to be read; try again when they are")
        owner = replace(scope, conversation="", across=())
        source = existing or Source(self._new_id(), kind, ref, Trust.UNTRUSTED, owner, self.clock.now(), visibility)
        options = {**(source.options if options is None else options), **({HUMANS: "yes"} if by_human else {})}
        source = replace(source, trust=trust or source.trust, options=options)
        if by_human:
            self._guard.take_up(source, self._places(source))
        source = self.catalogue.put_source(source, task, now=self.clock.now(), content=content)
        self._on_waiting()
        return source

    def upload(
        self, scope: Scope, kind: SourceKind, ref: str, content: bytes, *, name: str, mime: str, by_human: bool = False
    ) -> Source:
        """Store pushed bytes as a blob and queue them; durable on return."""
        sha = hashlib.sha256(content).hexdigest()
        upload = {"sha": sha, "name": name, "mime": mime, "at": self.clock.now().isoformat()}
        with self._blob_lock:  # nothing refers to the blob until it is queued
            task = json.dumps(upload, ensure_ascii=False)
            return self.add(scope, kind, ref, task=task, content=content, by_human=by_human)

    def sync(self, source: Source) -> None:
        self.catalogue.queue(source.id, SYNC, now=self.clock.now())
        self._on_waiting()

    def note_search(self) -> None:
        """Have the sources scanned in the background, so that the next search finds files that changed."""
        if not self._rescan_wanted and self.clock.now() >= self._rescan_at:
            self._rescan_wanted = True
            self._on_waiting()

    def queue_rescan(self) -> int:
        """Queue every source that can be scanned again and is not queued yet; return how many."""
        if not self.is_used:
            return 0
        self._rescan_wanted, self._rescan_at = False, self.clock.now() + timedelta(seconds=RESCAN_S)
        idle = [state.source for state in self.catalogue.states() if state.state == "live" and not state.waiting]
        to_scan = [source for source in idle if source.kind in SCANNED_KINDS]
        for source in to_scan:
            self.catalogue.queue(source.id, SYNC, now=self.clock.now())
        self._on_waiting()
        return len(to_scan)

    def remove(self, source: Source, *, by: str) -> dict[str, Json]:
        """Erase everything of a source; return the certificate. No search returns it from the first moment on."""
        self.catalogue.mark_removing(source.id)
        with self._work_lock:
            if self.is_reading(source.id):
                self._reading = None
            return self._erase(source, by=by)

    def pages(self, source: Source, *, with_vectors: bool = False) -> Iterator[Sequence[Entry]]:
        """Yield every stored passage of a source, a page at a time."""
        after: str | None = None
        while True:
            page, after = self.store.scan(COLLECTION, passages_of(source), after=after, with_vectors=with_vectors)
            yield page
            if after is None:
                return

    def _erase(self, source: Source, *, by: str) -> dict[str, Json]:
        points = [entry.memory.point_id for page in self.pages(source) for entry in page]
        if points:
            self.store.erase(COLLECTION, points)
            self.index.drop(points)
        remaining = self.store.count(COLLECTION, passages_of(source))
        documents = len(self.catalogue.stamps(source.id))
        with self._blob_lock:
            blobs = self.catalogue.drop_source(source.id)
        counts = {"passages": len(points), "documents": documents, "blobs": blobs, "clean": remaining == 0}
        certificate: dict[str, Json] = {"source": source.id, "kind": source.kind.value, **counts}
        self._audit.append("knowledge.removed", certificate, by=by, at=self.clock.now())
        return certificate | {"ref": source.ref, "at": self.clock.now().isoformat()}

    # --- the queue -------------------------------------------------------------------------------------------------

    def step(self, goes_on: Callable[[], bool]) -> bool:
        """Read batches while `goes_on` allows it; return whether any was read. None while another thread reads."""
        if not self.is_used or not self._work_lock.acquire(blocking=False):
            return False
        has_read = False
        try:
            while self._read_batch():
                has_read = True
                if not goes_on():
                    break
        finally:
            self._work_lock.release()
        return has_read

    def is_reading(self, source_id: str) -> bool:
        """Return whether a source is being read now; a sync queued meanwhile is dropped when that ends."""
        reading = self._reading
        return reading is not None and reading[0].source == source_id

    def progress(self) -> SyncProgress | None:
        """Return the progress of the current reading, else of the last one."""
        reading = self._reading
        return reading[2] if reading is not None else self._last_progress

    def _read_batch(self) -> bool:
        """Read one batch of what is queued; return whether there was any."""
        if self._reading is None:
            for source in self.catalogue.unfinished_removals():
                self._erase(source, by="system")
            work = self.catalogue.next_work(now=self.clock.now())
            if work is None:
                return False
            progress = SyncProgress(began_at=self.clock.now())
            self._reading = (work, self._batches(work, progress), progress)
        work, batches, progress = self._reading
        try:
            next(batches)
        except StopIteration:
            now = self.clock.now()
            self.catalogue.mark_done(work)
            self._reading, self._last_progress = None, progress
            progress.took_s = (now - progress.began_at).total_seconds()
            self._rescan_at = max(self._rescan_at, now + RESCAN_SHARE * (now - progress.began_at))
            if work.task != SYNC:
                with self._blob_lock:
                    self.catalogue.drop_blobs()  # no document refers to an upload that could not be read
        except (MemoryAnchorError, OSError) as error:
            self._reading = None
            tries = TRIES_MAX - 1 if isinstance(error, Refused) else work.tries  # set aside: no later try
            self.catalogue.mark_failed(replace(work, tries=tries), str(error), now=self.clock.now())
        return True

    def _batches(self, work: QueuedWork, progress: SyncProgress) -> Iterator[None]:
        """Do queued work, yielding after each batch."""
        from memory_anchor.extensions.knowledge.reading import SCANS, pushed

        source = next((source for source in self.catalogue.sources() if source.id == work.source), None)
        if source is None:
            return
        if work.task != SYNC:
            upload = json.loads(work.task)
            listing = Listing(
                {upload["name"]: f"{upload['sha']}:{upload['mime']}"},
                lambda _: pushed(partial(self.catalogue.queued_bytes, work), upload),
            )
            yield from self._read_documents(source, listing, [upload["name"]], progress)
            self._note_sync(source, progress)
        elif source.kind in SCANS:  # what is pushed cannot be scanned again
            yield from self._guard.steps(
                source, self._sync(source, progress), lambda: self._places(source)[progress.listed]
            )
        else:
            return
        yield from self._clean_up(source)

    def _sync(self, source: Source, progress: SyncProgress) -> Iterator[None]:
        """List a source and read what changed, yielding after each step."""
        from memory_anchor.extensions.knowledge.reading import SCANS

        mark = f"{INDEX_VERSION}:{source.trust.value}:"  # both are part of a passage's point
        cursor = self.catalogue.cursor(source.id)
        scan = SCANS[source.kind]
        listing = scan(source, cursor.removeprefix(mark) if cursor.startswith(mark) else "", progress)
        progress.listed, progress.documents = True, len(listing.stamps)
        yield
        if listing.is_unchanged:
            return
        listing = replace(listing, stamps={ref: mark + stamp for ref, stamp in listing.stamps.items()})
        stamps = self.catalogue.stamps(source.id)
        changed = [ref for ref, stamp in listing.stamps.items() if stamps.get(ref) != stamp]
        yield from self._read_documents(source, listing, changed, progress)
        removed = [ref for ref in self.catalogue.stamps(source.id) if ref not in listing.stamps]
        for start in range(0, len(removed), BATCH_DOCUMENTS):
            self._store_batch(source, {}, removed=removed[start : start + BATCH_DOCUMENTS])
            yield
        progress.removed = len(removed)
        self._note_sync(source, progress, cursor=mark + listing.cursor)

    def _places(self, source: Source) -> tuple[str, str]:
        """Return the places at which a reading may stand, see `ReadingGuard`: before and after the listing."""
        return LISTING, f"what follows {self.catalogue.count_documents(source.id)} documents"

    def _note_sync(self, source: Source, progress: SyncProgress, *, cursor: str = "") -> None:
        """Record the result of a sync, with every document that is left out, also those read before."""
        for sentence in self.catalogue.problems_of(source.id):
            progress.skip(sentence)
        now, counted = self.clock.now(), dict(progress.counted)
        self.catalogue.note_sync(source.id, now=now, cursor=cursor, skipped=progress.skipped, counted=counted)

    def _read_documents(
        self, source: Source, listing: Listing, refs: Sequence[str], progress: SyncProgress
    ) -> Iterator[None]:
        """Read documents in batches, a transaction each. One that cannot be read is left out with its sentence."""
        batch: dict[str, ReadDocument] = {}
        for ref in refs:
            batch[ref] = result = read_document(source, listing, ref, self._quarantine)
            progress.read += 1
            progress.passages += len(result.passages)
            progress.bytes += len(result.document.text)
            if sum(len(read.passages) for read in batch.values()) >= BATCH_PASSAGES or len(batch) >= BATCH_DOCUMENTS:
                self._store_batch(source, batch)
                batch = {}
                yield
        if batch:
            self._store_batch(source, batch)
            yield

    def _store_batch(self, source: Source, batch: Mapping[str, ReadDocument], *, removed: Sequence[str] = ()) -> None:
        """Store the new passages of these documents, and retire those that are in no document any more."""
        before = self.catalogue.places(source.id, refs=[*batch, *removed])
        places: dict[str, list[PassagePlace]] = {}
        for read in batch.values():
            for _, place in read.passages:
                places.setdefault(place.passage, []).append(place)
        affected = dict.fromkeys([*places, *(place.passage for place in before)])
        for place in self.catalogue.places(source.id, passages=affected):
            if place.ref not in batch and place.ref not in removed:
                places.setdefault(place.passage, []).append(place)
        stored = {e.memory.id: e for e in self.store.get(COLLECTION, list(map(point_of, places)), with_vectors=True)}
        entries = self._changed_entries(source, batch, places, stored)
        self._may_embed = self._may_embed or bool(entries)
        # Recorded as retired until the document's places are stored: after a kill no point is unknown.
        new = {p: places[p][0] for p in places if p not in stored or stored[p].memory.status is not Status.ACTIVE}
        retired = {place.passage: place for place in before if place.passage not in places}
        self.catalogue.announce(source.id, new)
        self.put(entries)
        rows = {
            ref: (read.stamp, read.document.sha, read.document.title, [place.row for _, place in read.passages])
            for ref, read in batch.items()
        }
        self.catalogue.replace(source.id, rows, removed=removed, retired=retired)
        self._empty(list(retired))

    def _changed_entries(
        self,
        source: Source,
        batch: Mapping[str, ReadDocument],
        places: Mapping[str, list[PassagePlace]],
        stored: Mapping[str, Entry],
    ) -> list[Entry]:
        """Return the entries of passages that are new or changed. places, stored: of each passage."""
        texts: dict[str, str] = {}
        documents: dict[str, SourceDocument] = {}
        contexts: dict[tuple[str, int], str] = {}
        for read in batch.values():
            contexts |= contexts_in(read.passages)
            for text, place in read.passages:
                texts[place.passage] = text
                documents.setdefault(place.passage, read.document)
        unembedded = [content_hash(texts[p]) for p in places if p in texts and not (p in stored and stored[p].vectors)]
        vectors_of = known_vectors(self.store, unembedded if self.embedders else ())
        entries = []
        for passage, its_places in places.items():
            entry = stored.get(passage)
            old = entry.memory if entry is not None else None
            text = texts.get(passage) or (old.content if old is not None else "")
            if not text:
                continue
            its_places.sort(key=lambda place: (place.ref, place.number))
            first = its_places[0]
            is_read = first.ref in batch
            context = contexts.get((first.ref, first.number), "") if is_read else self._context(source, first, text)
            document = documents.get(passage)
            memory = memory_of(source, text, its_places, document, old, context=context, now=self.clock.now())
            if old == memory:
                continue
            vectors = entry.vectors if entry is not None else None
            vectors = dict(vectors or vectors_of.get(memory.content_hash, {}))
            entries.append(Entry(memory, vectors, searched_words(memory)))
        return entries

    def _context(self, source: Source, place: PassagePlace, text: str) -> str:
        """Return what a passage carries of the one before it, for a document outside of the batch."""
        above = [p for p in self.catalogue.places(source.id, refs=[place.ref]) if p.number < place.number]
        entries = self.store.get(COLLECTION, [point_of(above[-1].passage)]) if above else []
        return context_of(entries[0].memory.content, above[-1], text, place) if entries else ""

    def put(self, entries: Sequence[Entry]) -> None:
        """Store passages, for the next search on."""
        self.store.put(COLLECTION, entries)
        self.index.update(entries)

    def _empty(self, passages: Sequence[str]) -> None:
        """Remove the text of retired passages from the store."""
        if passages:
            entries = self.store.get(COLLECTION, list(map(point_of, passages)))
            self.put([Entry(emptied(entry.memory)) for entry in entries])
            self.catalogue.mark_emptied(passages)

    def _clean_up(self, source: Source) -> Iterator[None]:
        """Empty retired passages that a kill left with their text, and erase empty points once there are many."""
        while passages := self.catalogue.to_empty(source.id, limit=BATCH_PASSAGES):
            self._empty(passages)
            yield
        empty = Where((OneOf("state", (Status.ARCHIVED.value,)),))
        if self.store.count(COLLECTION, empty) >= EMPTIED_AT_ONCE:
            memories = self.store.find(COLLECTION, empty, limit=100 * EMPTIED_AT_ONCE)
            self.store.erase(COLLECTION, [memory.point_id for memory in memories])
            yield

    # --- in the background -----------------------------------------------------------------------------------------

    def embed(self, limit: int = EMBEDDED_AT_ONCE) -> int:
        """Embed a few passages that have no vector; return how many. Raises Unavailable, WrongEmbedder."""
        if not self.is_used or not self._may_embed:
            return 0
        count = embed_passages(self.store, self.index, self.embedders, self._quarantine, limit)
        self._may_embed = count > 0
        return count

    def work_a_little(self, yield_to_requests: Callable[[], None]) -> int:
        """Read a batch or embed a few passages; return 0 where there was nothing to do.

        A full disk or a damaged catalogue is only logged, so that memories are still embedded. Raises Unavailable,
        WrongEmbedder.
        """
        if not self.is_used:
            return 0
        yield_to_requests()
        try:
            if self._rescan_wanted:
                self.queue_rescan()
            done = int(self.step(lambda: False) or self.index.load_page())
            return done or (self.embed() if self._may_embed else 0)
        except (DiskFull, StoreDamaged) as error:
            log.warning("knowledge waits: %s", error)
            return 0

    def unembedded(self) -> int:
        """Return how many passages have no vector yet."""
        if not self.is_used:
            return 0
        return sum(self.store.count(COLLECTION, ACTIVE.but_not(HasVector(name))) for name in self.embedders)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Keep catalogue, blobs and passages unchanged: nothing is read, queued or removed meanwhile, and a reading
        under way starts again after it."""
        with self._work_lock, self._blob_lock, self.catalogue.frozen():
            self._reading = None
            yield

    def close(self) -> None:
        with self._work_lock:
            self._reading = None
            self.catalogue.close()
