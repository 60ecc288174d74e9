"""Knowledge as one process has it: sources, the queue behind them, and passages in the store's own collection.

A passage is one point: its id is made of its source and of its text (sha256), so a text is stored once a source however
often it stands there, a file that moved only moves its places, and an edited one changes nothing but the passages that
changed. A vector is copied from any passage of the same text, in any source: no text is embedded twice.

Order of writing, so that a kill loses and doubles nothing: points first (ids repeat), then the document's places in one
transaction, then the points that nothing names are emptied. What a kill leaves between is done again. A step works for
a moment and returns, so that requests and memories go first; one thread works at a time.
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
from typing import TYPE_CHECKING, Any

from memory_anchor.errors import (
    TRIES,
    BadInput,
    ChangedMeanwhile,
    DiskFull,
    MemoryAnchorError,
    NotFound,
    Refused,
    StoreDamaged,
    Unavailable,
)
from memory_anchor.hashing import content_hash
from memory_anchor.knowledge.catalogue import (
    QUEUE_MAX,
    SOURCES_MAX,
    SYNC,
    Catalogue,
    Place,
    QueuedWork,
    SourceState,
)
from memory_anchor.knowledge.index import ACTIVE, COLLECTION, PassageIndex
from memory_anchor.knowledge.points import (
    INDEX_VERSION,
    audience_of,
    context_of,
    embed_rows,
    emptied,
    memory_of,
    passage_id,
    passages_of,
    point_of,
    read_before,
    rows_of,
)
from memory_anchor.knowledge.sharing import ReadingTurn
from memory_anchor.knowledge.sources import (
    Listing,
    Source,
    SourceDocument,
    SourceKind,
    SyncProgress,
)
from memory_anchor.language.indexing import searched_words
from memory_anchor.model import (
    Scope,
    Status,
    Trust,
    Visibility,
    audiences,
)
from memory_anchor.ports import AuditLog, Clock, Embedder, Entry, MemoryStore
from memory_anchor.quarantine import Quarantine
from memory_anchor.where import HasVector, OneOf, Where

if TYPE_CHECKING:
    from pathlib import Path

    from memory_anchor.ports import SharedRecords

log = logging.getLogger("memory_anchor")
BATCH_PASSAGES = 200
BATCH_DOCUMENTS = 64
EMBEDDED_AT_ONCE = 4
TO_READ = ""
"""The stamp of a document that is to be read at the next sync whatever it looks like."""
EMPTIED_AT_ONCE = 500
LOOK_AGAIN_S = 30.0
LOOK_SHARE = 50
"""A search has sources looked at behind it, at most so often, and for at most one in so many seconds."""
LOOKED_AT = frozenset({SourceKind.REPO_DOCS, SourceKind.GIT_HISTORY, SourceKind.FILES})
"""Kinds that change by themselves; the others are pushed."""


class Library:
    """Thread-safe. on_waiting: told when there is something to read or to embed. on_sources: when sources come or go.

    took: source -> how many seconds its last look took. is_worked_behind: whether a thread reads and embeds by itself.
    """

    def __init__(
        self,
        store: MemoryStore,
        clock: Clock,
        data_dir: Path,
        *,
        audit: AuditLog,
        embedders: Mapping[str, Embedder],
        new_id: Callable[[], str],
        on_waiting: Callable[[], None] = lambda: None,
        on_sources: Callable[[], None] = lambda: None,
        quarantine: Quarantine | None = None,
        records: SharedRecords | None = None,
        monotonic: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """records: of several replicas, which have their sources there; see `shared_catalogue`. monotonic: seconds."""
        self.data_dir = data_dir
        self.catalogue, self.turn = Catalogue(data_dir), ReadingTurn(None, monotonic)
        if records is not None:
            from memory_anchor.knowledge.shared_catalogue import SharedCatalogue

            self.catalogue = SharedCatalogue(data_dir, records, monotonic, self._changed_elsewhere)
            self.turn = ReadingTurn.of(store, data_dir, monotonic, self._taken)
        self.store, self.clock = store, clock
        self.embedders = embedders
        self.index = PassageIndex(store, {name: one.identity for name, one in embedders.items()})
        self._audit, self._new_id = audit, new_id
        self._on_waiting, self._on_sources = on_waiting, on_sources
        self.took: dict[str, float] = {}
        self._quarantine = quarantine or Quarantine()
        self._working, self._blobs = threading.Lock(), threading.Lock()
        self._at_work: tuple[QueuedWork, Iterator[None], SyncProgress] | None = None
        self._last: SyncProgress | None = None
        self._asked_embedding, self._changes = True, 0
        self._looks, self._look_at, self.is_worked_behind = False, clock.now(), False

    @property
    def is_used(self) -> bool:
        return self.catalogue.is_used

    # --- sources ---------------------------------------------------------------------------------------------------

    def readable(self, reader: Scope) -> list[Source]:
        """Return the sources a reader may read, by the one rule of visibility."""
        if not self.is_used:
            return []
        held = audiences(reader)
        return [source for source in self.catalogue.sources() if audience_of(source) in held]

    def states(self, reader: Scope) -> list[SourceState]:
        held = audiences(reader)
        found = [one for one in self.catalogue.states() if audience_of(one.source) in held]
        return [replace(one, reading=self.progress()) if self.reads(one.source.id) else one for one in found]

    def named(self, name: str, reader: Scope) -> Source:
        """Return a source by its id, by the way it was added, or by its kind where there is one of it.

        Raises NotFound: the reader has none of that name. BadInput: several.
        """
        readable = self.readable(reader)
        for key in ("id", "ref", "kind"):
            found = [source for source in readable if str(getattr(source, key)) == name]
            if len(found) == 1:
                return found[0]
            if found:
                raise BadInput(f"{len(found)} sources are called {name!r}; name one by its id: `knowledge list`")
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
        what: str = SYNC,
        content: bytes | None = None,
    ) -> Source:
        """Keep a source and queue its reading; on disk once this returns. Added again it is read again.

        trust: None keeps what it was, and is untrusted for a new one. content: what was pushed.
        Raises Refused: replicas of one service were to read what lies on one machine.
        """
        if self.catalogue.is_shared and kind in LOOKED_AT:
            raise Refused(
                f"{ref} is a path of one machine, and this service has replicas (store.records); push its documents: "
                "`memory-anchor knowledge push`, or /v1/ingest"
            )
        known = next(
            (s for s in self.readable(scope) if (s.kind, s.ref, s.visibility) == (kind, ref, visibility)), None
        )
        if known is None and len(self.catalogue.sources(live=False)) >= SOURCES_MAX:
            raise BadInput(f"there are {SOURCES_MAX} sources already; remove one: `memory-anchor knowledge remove`")
        if self.catalogue.waiting() >= QUEUE_MAX:
            raise Unavailable(f"{QUEUE_MAX} documents wait to be read; try again when they are")
        bare = replace(scope, conversation="", across=())
        made = known or Source(
            self._new_id(), kind, ref, Trust.UNTRUSTED, bare, self.clock.now(), visibility, dict(options or {})
        )
        source = replace(made, trust=trust or made.trust, options=dict(made.options if options is None else options))
        source = self.catalogue.put_source(source, what, now=self.clock.now(), content=content)
        self._on_waiting()
        if known is None:
            self._on_sources()
        return source

    def upload(
        self, scope: Scope, kind: SourceKind, ref: str, content: bytes, *, name: str, mime: str, **how: Any
    ) -> Source:
        """Keep pushed bytes as a blob and queue them; durable on return."""
        sha = hashlib.sha256(content).hexdigest()
        what = {"sha": sha, "name": name, "mime": mime, "at": self.clock.now().isoformat()}
        with self._blobs:  # nothing names the blob until it is queued
            return self.add(scope, kind, ref, what=json.dumps(what, ensure_ascii=False), content=content, **how)

    def sync(self, source: Source) -> None:
        self.catalogue.queue(source.id, SYNC, now=self.clock.now())
        self._on_waiting()

    def note_search(self) -> None:
        """Have the sources looked at behind: who asks now, asks again, and files change meanwhile."""
        if not self._looks and self.clock.now() >= self._look_at:
            self._looks = True
            self._on_waiting()

    def look_again(self) -> int:
        """Queue every source that can be looked at again; return how many. One that waits after a failure is left."""
        if not self.is_used:
            return 0
        self._looks, self._look_at = False, self.clock.now() + timedelta(seconds=LOOK_AGAIN_S)
        idle = [one.source for one in self.catalogue.states() if one.state == "live" and not one.waiting]
        chosen = [source for source in idle if source.kind in LOOKED_AT]
        for source in chosen:
            self.catalogue.queue(source.id, SYNC, now=self.clock.now())
        self._on_waiting()
        return len(chosen)

    def remove(self, source: Source, *, by: str) -> dict[str, Any]:
        """Erase everything of a source; return the certificate. Gone from every search at once."""
        self.catalogue.mark_removing(source.id, now=self.clock.now())
        with self._working:
            if self._at_work is not None and self._at_work[0].source == source.id:
                self._at_work = None
            with self.turn.alone():
                return self._erased(source, by=by)

    def _changed_elsewhere(self, passages: Sequence[str]) -> None:
        self.index.drop(map(point_of, passages))

    def _taken(self) -> None:
        """Begin anew: others may have read what waited, and been killed."""
        self._at_work, self._asked_embedding = None, True
        self.catalogue.fresh(taken=True)

    def look(self) -> None:
        """Have what waits done here where nobody else does it: for replicas, from time to time."""
        if self.is_used:
            self._asked_embedding = True
            self._on_waiting()

    def _erased(self, source: Source, *, by: str) -> dict[str, Any]:
        mine = passages_of(source)
        points, after = [], None
        while True:
            entries, after = self.store.scan(COLLECTION, mine, after=after)
            points += [entry.memory.point_id for entry in entries]
            if after is None:
                break
        if points:
            self.store.erase(COLLECTION, points)
            self.index.drop(points)
        left = self.store.count(COLLECTION, mine)
        documents = len(self.catalogue.stamps(source.id))
        with self._blobs:
            blobs = self.catalogue.drop_source(source.id)
        self.catalogue.sweep(self.clock.now())
        self._on_sources()
        told = {"source": source.id, "kind": source.kind.value, "passages": len(points), "documents": documents}
        told |= {"blobs": blobs, "clean": left == 0}
        self._audit.append("knowledge.removed", told, by=by, at=self.clock.now())
        return told | {"ref": source.ref, "at": self.clock.now().isoformat()}

    # --- the queue -------------------------------------------------------------------------------------------------

    def step(self, goes_on: Callable[[], bool]) -> bool:
        """Read on while `goes_on` says so; return whether anything was done. Another thread's step goes first."""
        if not self.is_used or not self._working.acquire(blocking=False):
            return False
        did = False
        try:
            while self._may_read() and self._next():
                did = True
                if not goes_on():
                    break
        finally:
            self._working.release()
        return did

    def _may_read(self) -> bool:
        """Return whether what waits is read here: of replicas by one at a time, and a removal goes first."""
        if not self.catalogue.is_shared:
            return True
        now = self.clock.now()
        if self.catalogue.is_stood_aside_for(now):
            self.turn.over()
            return False
        waits = self._at_work is not None or self.catalogue.due(now=now) or self.catalogue.left_of_removals(now)
        return bool(waits) and self.turn.held()

    def reads(self, source_id: str) -> bool:
        """Return whether a source is being read now: what is queued of it meanwhile is done with that reading."""
        at_work = self._at_work
        return at_work is not None and at_work[0].source == source_id

    def progress(self) -> SyncProgress | None:
        """Return how far the source that is read now has come, else what the last reading came to."""
        at_work = self._at_work
        return at_work[2] if at_work is not None else self._last

    def _next(self) -> bool:
        """Do one batch of what is queued; return whether there was any."""
        if self._at_work is None:
            for source in self.catalogue.left_of_removals(self.clock.now()):
                self._erased(source, by="system")
            work = self.catalogue.next(now=self.clock.now())
            if work is None:
                return False
            progress = SyncProgress(began_at=self.clock.now())
            self._at_work = (work, self._reading(work, progress), progress)
        work, steps, progress = self._at_work
        try:
            next(steps)
        except StopIteration:
            now = self.clock.now()
            self.catalogue.done(work)
            self._at_work, self._last = None, progress
            self.took[work.source] = progress.took_s = (now - progress.began_at).total_seconds()
            self._look_at = max(self._look_at, now + LOOK_SHARE * (now - progress.began_at))
            self._changes = 0
            if work.what != SYNC:
                with self._blobs:
                    self.catalogue.drop_blobs()  # what could not be read is named by nothing now
        except ChangedMeanwhile as error:  # another replica was first: begun anew upon what it left
            self._at_work, self._changes = None, self._changes + 1
            if self._changes >= TRIES:
                self.catalogue.failed(work, str(error), now=self.clock.now())
        except (MemoryAnchorError, OSError) as error:
            self._at_work = None
            self.catalogue.failed(work, str(error), now=self.clock.now())
        return True

    def _reading(self, work: QueuedWork, progress: SyncProgress) -> Iterator[None]:
        source = next((one for one in self.catalogue.sources() if one.id == work.source), None)
        if source is None:
            return
        if work.what != SYNC:
            yield from self._pushed(source, work, progress)
            return
        from memory_anchor.knowledge.reading import SCANS

        scan = SCANS.get(source.kind)
        if scan is None:  # what is pushed has nothing to look at again
            return
        mark = f"{INDEX_VERSION}:{source.trust.value}:"  # what a passage's point says of both
        cursor = self.catalogue.cursor(source.id)
        listing = scan(source, cursor.removeprefix(mark) if cursor.startswith(mark) else "", progress)
        if not listing.is_unchanged:
            listing = replace(listing, stamps={ref: mark + stamp for ref, stamp in listing.stamps.items()})
            known = self.catalogue.stamps(source.id)
            changed = [ref for ref, stamp in listing.stamps.items() if known.get(ref) != stamp]
            progress.documents = len(listing.stamps)
            yield from self._read(source, listing, changed, progress)
            gone = [ref for ref in self.catalogue.stamps(source.id) if ref not in listing.stamps]
            for at in range(0, len(gone), BATCH_DOCUMENTS):
                self._put(source, {}, removed=gone[at : at + BATCH_DOCUMENTS])
                yield
            progress.removed = len(gone)
            self._note_sync(source, progress, cursor=mark + listing.cursor)
        yield from self._tidy(source)

    def _pushed(self, source: Source, work: QueuedWork, progress: SyncProgress) -> Iterator[None]:
        """Read one upload; what cannot be read is told with the source."""
        from memory_anchor.knowledge.reading import pushed

        what = json.loads(work.what)
        read = partial(pushed, partial(self.catalogue.pushed, work), what)
        listing = Listing({what["name"]: f"{what['sha']}:{what['mime']}"}, lambda _: read())
        yield from self._read(source, listing, [what["name"]], progress)
        self._note_sync(source, progress)
        yield from self._tidy(source)

    def _note_sync(self, source: Source, progress: SyncProgress, *, cursor: str = "") -> None:
        """Note what a sync came to; every document that is left out is told again, whenever it was read."""
        for sentence in self.catalogue.left_out(source.id):
            progress.skip(sentence)
        now, told = self.clock.now(), dict(progress.counted)
        self.catalogue.noted_sync(source.id, now=now, cursor=cursor, skipped=progress.skipped, counted=told)

    def _read(self, source: Source, listing: Listing, refs: Sequence[str], progress: SyncProgress) -> Iterator[None]:
        """Read documents in batches, a transaction each. One that cannot be read is left out with its sentence."""
        from memory_anchor.knowledge.reading import passages_of as cut_of

        batch: dict[str, tuple[str, SourceDocument, list[tuple[str, Place]]]] = {}
        size = 0
        for ref in refs:
            stamp = listing.stamps[ref]
            try:
                document = listing.open(ref)
                if self._quarantine.is_quarantined(document.text):
                    stamp = TO_READ
                    raise BadInput(f"{ref!r} is left out: the engine ended while it read it")
                with self._quarantine.reading({ref: document.text}):
                    found = [
                        (said, replace(place, passage=passage_id(source.id, said)))
                        for said, place in cut_of(source, document)
                    ]
            except BadInput as error:
                found, document = [], _left_out(ref, str(error))
            except MemoryAnchorError:
                raise
            except Exception:  # whatever a parser makes of a stranger's text: it must not end what embeds memories
                log.exception("a document of source %s could not be parsed", source.id)
                said = f"{ascii(ref)[1:-1][:120]} is left out: it cannot be parsed; save it as plain text"
                found, document = [], _left_out(ref, said)
            batch[ref] = (stamp, document, found)
            size += len(found)
            progress.read += 1
            progress.passages += len(found)
            progress.bytes += len(document.text)
            if size >= BATCH_PASSAGES or len(batch) >= BATCH_DOCUMENTS:
                self._put(source, batch)
                batch, size = {}, 0
                yield
        if batch:
            self._put(source, batch)
            yield

    def _put(
        self,
        source: Source,
        batch: Mapping[str, tuple[str, SourceDocument, list[tuple[str, Place]]]],
        *,
        removed: Sequence[str] = (),
    ) -> None:
        """Store what documents hold now in place of what they held."""
        self.catalogue.begin(source.id)
        before = self.catalogue.places(source.id, refs=[*batch, *removed])
        texts: dict[str, str] = {}
        dated: dict[str, SourceDocument] = {}
        now: dict[str, list[Place]] = {}
        led: dict[tuple[str, int], str] = {}
        for _, document, found in batch.values():
            led |= read_before(found)
            for said, place in found:
                texts[place.passage] = said
                dated.setdefault(place.passage, document)
                now.setdefault(place.passage, []).append(place)
        touched = dict.fromkeys([*now, *(place.passage for place in before)])
        replaced = {*batch, *removed}
        for place in self.catalogue.places(source.id, passages=touched):
            if place.ref not in replaced:
                now.setdefault(place.passage, []).append(place)
        held = {e.memory.id: e for e in self.store.get(COLLECTION, [point_of(one) for one in now], with_vectors=True)}
        bare = [content_hash(texts[one]) for one in now if one in texts and not (one in held and held[one].vectors)]
        rows = rows_of(self.store, bare if self.embedders else ())
        entries = []
        for name, places in now.items():
            old = held.get(name)
            said = texts.get(name) or (old.memory.content if old is not None else "")
            if not said:
                continue
            places.sort(key=lambda place: (place.ref, place.number))
            first, known = places[0], old.memory if old is not None else None
            context = (
                led.get((first.ref, first.number), "") if first.ref in batch else self._before(source, first, said)
            )
            memory = memory_of(source, said, places, dated.get(name), known, context=context, now=self.clock.now())
            if old is not None and old.memory == memory:
                continue
            if self.catalogue.is_shared and known is not None:  # written over as it was read
                memory = replace(memory, revision=known.revision)
            vectors = dict(old.vectors) if old is not None and old.vectors else rows.get(memory.content_hash, {})
            entries.append(Entry(memory, vectors, searched_words(memory)))
            self._asked_embedding = True
        # Noted as gone until the document's places are there: a kill in between leaves no point that nothing names.
        fresh = {one: now[one][0] for one in now if one not in held or held[one].memory.status is not Status.ACTIVE}
        gone = {place.passage: place for place in before if place.passage not in now}
        self.catalogue.intend(source.id, fresh, gone)
        self.put(entries)
        documents = {
            ref: (stamp, document.sha, document.title, [place for _, place in found])
            for ref, (stamp, document, found) in batch.items()
        }
        try:
            self.catalogue.replace(source.id, documents, removed=removed, retired=gone)
        except (NotFound, ChangedMeanwhile):
            if self.catalogue.drop_left(source.id):  # another replica removed it meanwhile: nothing of it comes back
                self.store.erase(COLLECTION, points := [entry.memory.point_id for entry in entries])
                self.index.drop(points)
            raise
        self._empty(list(gone))

    def _before(self, source: Source, place: Place, said: str) -> str:
        """Return what a passage carries of the one before it, in a document that is not read now."""
        above = [one for one in self.catalogue.places(source.id, refs=[place.ref]) if one.number < place.number]
        held = self.store.get(COLLECTION, [point_of(above[-1].passage)]) if above else []
        return context_of(held[0].memory.content, above[-1], said, place) if held else ""

    def put(self, entries: Sequence[Entry]) -> None:
        """Store passages, for searches of this moment on."""
        self.store.put(COLLECTION, entries)
        self.index.note(entries)

    def _empty(self, passages: Sequence[str]) -> None:
        """Take the text of passages that are gone out of the store; they are found by nothing from now on."""
        if not passages:
            return
        held = self.store.get(COLLECTION, [point_of(one) for one in passages])
        self.put([Entry(emptied(entry.memory)) for entry in held])
        self.catalogue.emptied(passages)

    def _tidy(self, source: Source) -> Iterator[None]:
        """Empty what a kill left, and pack the store once much of it is empty."""
        while left := self.catalogue.to_empty(source.id, limit=BATCH_PASSAGES):
            self._empty(left)
            yield
        empty = Where((OneOf("state", (Status.ARCHIVED.value,)),))
        if self.store.count(COLLECTION, empty) >= EMPTIED_AT_ONCE:
            points = [one.point_id for one in self.store.find(COLLECTION, empty, limit=100 * EMPTIED_AT_ONCE)]
            self.store.erase(COLLECTION, points)
            yield

    # --- embedding -------------------------------------------------------------------------------------------------

    def embed(self, limit: int = EMBEDDED_AT_ONCE) -> int:
        """Embed a few passages that have no row; return how many. Raises Unavailable, WrongEmbedder."""
        if not self.is_used or not self._asked_embedding:
            return 0
        done = embed_rows(self.store, self.index, self.embedders, self._quarantine, limit)
        self._asked_embedding = done > 0
        return done

    def behind(self, stand_aside: Callable[[], None]) -> int:
        """Do a little of what waits, reading before embedding; return whether anything was done.

        A full disk or a damaged catalogue is logged: memories are embedded all the same. Raises Unavailable,
        WrongEmbedder.
        """
        if not self.is_used:
            return 0
        stand_aside()
        try:
            if self._looks:
                self.look_again()
            done = int(self.step(lambda: False) or self.index.read_on()) or self._embed_in_turn()
            if not done:
                self.turn.over()
            return done
        except (DiskFull, StoreDamaged) as error:
            log.warning("knowledge waits: %s", error)
            return 0

    def _embed_in_turn(self) -> int:
        return self.embed() if self._asked_embedding and self.turn.held() else 0

    def unembedded(self) -> int:
        if not self.is_used:
            return 0
        return sum(self.store.count(COLLECTION, ACTIVE.but_not(HasVector(name))) for name in self.embedders)

    @contextlib.contextmanager
    def still(self, *, everywhere: bool = False) -> Iterator[None]:
        """Hold catalogue, blobs and passages as they are: nothing is read, queued or removed meanwhile, and what was
        being read begins anew. everywhere: on no other replica either."""
        alone = self.turn.alone() if everywhere else contextlib.nullcontext()
        with self._working, alone, self._blobs, self.catalogue.still():
            self._at_work = None
            yield

    def close(self) -> None:
        with self._working:
            self._at_work = None
            with contextlib.suppress(MemoryAnchorError):
                self.turn.over()
            self.catalogue.close()


def _left_out(ref: str, sentence: str) -> SourceDocument:
    """Return a document without bytes or text whose title says why; see `Catalogue.left_out`."""
    return SourceDocument(ref, "", "", title=sentence)
