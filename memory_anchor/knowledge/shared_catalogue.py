"""The catalogue of several replicas of one service: records on the server, and a copy of them in each data directory.

What was accepted is a record of its own (`knowledge/queue/SOURCE/ID`: what it is, then its bytes), written once. What
is known of a source is its record (`knowledge/sources/KEY.json`) and its documents with their places, in at most
`BUCKETS` records (`knowledge/docs/SOURCE/NN.json`); bytes of a document that was read have its name
(`knowledge/blobs/SOURCE/NAME`). The copy is the SQLite file that is the truth of a process alone, so reading is the
same; a list of revisions, at most `FRESH_S` old, says which records changed.

One replica at a time reads what waits (`library`). It writes over the very revisions that its copy was made of: source
(passages that are about to be stored), points, bytes, buckets, source again (what is gone), and deletes the queued
record last. A kill in between leaves that record, and whoever does it again writes the same. One that slept past its
turn finds other revisions, and has changed nothing that counts. A source's record is named by its key: added by two at
once it is one. Rejected: places out of the points alone, which name eight of them; one record a document (ten thousand
to list).
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace as changed
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.errors import ChangedMeanwhile, NotFound, StoreDamaged, Unavailable, retry_on_conflict
from memory_anchor.hashing import stable_hash
from memory_anchor.knowledge.catalogue import (
    TRIES_MAX,
    Catalogue,
    PassagePlace,
    QueuedWork,
    SourceState,
    due_again,
    matches_any,
    source_fields,
    source_from,
)
from memory_anchor.knowledge.sharing import (
    BLOBS,
    COPIED,
    DOCS,
    NAME_CHARS,
    QUEUE,
    SOURCES,
    Json,
    added_again,
    blob_of,
    bucket_of,
    copy_bucket,
    copy_source,
    read_json,
    retired_row,
    source_named,
    written_json,
)
from memory_anchor.knowledge.sources import Source
from memory_anchor.model import audience

if TYPE_CHECKING:
    from memory_anchor.ports import SharedRecords

FRESH_S = 0.5
"""How old the list of revisions may be: what another replica did is known here after this."""
RETIRED_MAX = 2_000
"""Passages of a source that are gone and whose citations still say so."""
LEFT_S = 3_600.0
"""After which what belongs to no source was left by a process that was killed."""
REMOVING_S = 40.0
"""After which a removal that nobody finished is finished by whoever reads what waits."""
NAMES_MAX = 8
"""Records of one key: sources that moved to another project keep theirs."""


class SharedCatalogue(Catalogue):
    """Thread-safe. on_changed: called with the passages that another replica changed, or may have changed."""

    is_shared = True

    def __init__(
        self,
        data_dir: Path,
        records: SharedRecords,
        monotonic: Callable[[], float],
        on_changed: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> None:
        super().__init__(data_dir, "knowledge-copy", more=COPIED)
        self._records, self._monotonic, self._on_changed = records, monotonic, on_changed
        self._looked_at = float("-inf")
        self._queue: dict[str, float] = {}
        self._open: tuple[str, bytes] = ("", b"")
        """Name and bytes of the queued record that was read last."""
        self._began: dict[str, str] = {}
        """Of the source that is read now: name of each of its records -> the revision that was copied."""

    # --- the copy --------------------------------------------------------------------------------------------------

    @property
    def is_used(self) -> bool:
        self._try_refresh()
        return bool(self._queue or self._rows("SELECT 1 FROM source LIMIT 1"))

    def refresh(self, *, whole: bool = False, taken: bool = False) -> None:
        """Bring in what others changed, unless that was done a moment ago. whole: everything, and now.

        taken: now, and all of each source of which something waits: whoever read it may have been killed before it
        wrote what it changed. Raises Unavailable: the server does not answer.
        """
        with self._lock:
            now = self._monotonic()
            if not (whole or taken) and now - self._looked_at < FRESH_S:
                return
            try:
                self._compare(whole=whole, taken=taken)
            except StoreDamaged:  # a copy is made anew
                self.close()
                shutil.rmtree(self.folder, ignore_errors=True)
                self._compare(whole=True)
            finally:
                self._looked_at = now

    def _try_refresh(self) -> None:
        with contextlib.suppress(Unavailable):  # the copy answers; the store says the rest
            self.refresh()

    def _compare(self, *, whole: bool, taken: bool = False) -> None:
        revisions = {record.name: record.revision for record in self._records.listed(SOURCES)}
        self._queue = {record.name: record.at for record in self._records.listed(QUEUE)}
        if not revisions and not self._is_made:
            return
        rows = self._rows("SELECT name, source, revision FROM copied WHERE name LIKE ?", f"{SOURCES}/%")
        known = {name: (source, revision) for name, source, revision in rows}
        for name in known.keys() - revisions.keys():
            self._forget(known[name][0])
        waiting = set(map(source_named, self._queue)) if taken else set()
        for name, revision in revisions.items():
            source, copied = known.get(name, ("", ""))
            if whole or copied != revision or source in waiting:
                self._copy(name)

    def _copy(self, name: str) -> None:
        """Copy one source with what changed of its documents."""
        record = self._records.read(name)
        if record is None:
            for (source,) in self._rows("SELECT source FROM copied WHERE name=?", name):
                self._forget(source)
            return
        content = read_json(record.content, name)
        source = str(content["source"]["id"])
        known = dict(
            self._rows("SELECT name, revision FROM copied WHERE source=? AND name LIKE ?", source, f"{DOCS}/%")
        )
        revisions = {listed.name: listed.revision for listed in self._records.listed(f"{DOCS}/{source}")}
        buckets = {}
        for bucket, revision in revisions.items():
            if known.get(bucket) != revision and (read := self._records.read(bucket)) is not None:
                buckets[bucket] = (read_json(read.content, bucket), read.revision)
        refs = [ref for ref in self.stamps(source) if bucket_of(source, ref) in buckets] if buckets else []
        before = {place.passage for place in self.places(source, refs=refs)}
        with self._transaction() as db:
            copy_source(db, name, content, record.revision)
            for bucket, (docs, revision) in buckets.items():
                copy_bucket(db, source, bucket, docs, revision)
            for bucket in known.keys() - revisions.keys():
                copy_bucket(db, source, bucket, {}, "")
        after = {place[1] for docs, _ in buckets.values() for doc in docs.values() for place in doc[3]}
        if before | after:
            self._on_changed([*(before | after)])

    def _forget(self, source: str) -> None:
        """Drop the copy of a source."""
        passages = [row[0] for row in self._rows("SELECT DISTINCT passage FROM place WHERE source=?", source)]
        super().drop_source(source)
        with self._transaction() as db:
            db.execute("DELETE FROM copied WHERE source=?", (source,))
        self._on_changed(passages)

    def _copied(self, source: str) -> tuple[str, Json, str]:
        """Return name, content and revision of a source's record as it was copied. Raises NotFound: it is removed."""
        rows = self._rows(
            "SELECT name, content, revision FROM copied WHERE source=? AND name LIKE ?", source, f"{SOURCES}/%"
        )
        if not rows:
            raise NotFound(f"the source {source} was removed")
        name, content, revision = rows[0]
        return name, json.loads(content), revision

    def _write(self, source: str, change: Callable[[Json], Json | None], *, began: bool = False) -> None:
        """Write a source's record over the one that was copied. change: returns None for nothing to write.

        began: over the one that was copied when `begin` was called. Raises NotFound: it is being removed.
        ChangedMeanwhile: nothing was written.
        """
        with self._lock:
            name, content, before = self._copied(source)
            if content["state"] != "live":
                raise NotFound(f"the source {source} is being removed")
            if began and self._began.get(name) != before:
                raise ChangedMeanwhile(f"{name} was changed by another replica meanwhile")
            now = change(content)
            if now is None:
                return
            try:
                revision = self._records.write(name, written_json(now), before=before)
            except ChangedMeanwhile:
                self._copy(name)
                self._copied(source)  # or it is gone
                raise
            if began:
                self._began[name] = revision
            with self._transaction() as db:
                copy_source(db, name, now, revision)

    def _rewrite(self, source: str, change: Callable[[Json], Json | None]) -> None:
        """Write a source's record, deciding the change anew after each write of another replica."""
        retry_on_conflict(lambda: self._write(source, change))

    # --- sources ---------------------------------------------------------------------------------------------------

    def sources(self, *, live: bool = True) -> list[Source]:
        self._try_refresh()
        return super().sources(live=live)

    def states(self) -> list[SourceState]:
        self._try_refresh()
        waiting = Counter(map(source_named, self._queue))
        return [changed(state, waiting=waiting[state.source.id]) for state in super().states()]

    def put_source(self, source: Source, what: str, *, now: datetime, content: bytes | None = None) -> Source:
        """Add a source and what was pushed into it: accepted once this returns. Return the source as it is stored.

        Raises Unavailable: it is being removed at this moment.
        """
        stored = retry_on_conflict(lambda: self._stored(source))
        if content is None:
            return stored
        head = json.dumps({"what": what, "at": now.isoformat()}, ensure_ascii=False).encode()
        name = f"{QUEUE}/{stored.id}/{stable_hash(what)[:NAME_CHARS]}"
        try:
            revision = self._records.write(name, head + b"\n" + content, before="")
        except ChangedMeanwhile:  # the very push, sent twice
            return stored
        if not self._is_live(stored.id):  # whoever removes it may have looked through the queue already
            with contextlib.suppress(ChangedMeanwhile):
                self._records.delete(name, before=revision)
            raise Unavailable(f"the source {stored.ref!r} is being removed at this moment; push it again")
        with self._lock:
            self._queue[name] = now.timestamp()
        return stored

    def _is_live(self, source: str) -> bool:
        """Return whether a source's record on the server, not its copy, is live."""
        with contextlib.suppress(NotFound):
            name, _, _ = self._copied(source)
            if (record := self._records.read(name)) is not None:
                content = read_json(record.content, name)
                return bool(content["state"] == "live" and content["source"]["id"] == source)
        return False

    def _stored(self, source: Source) -> Source:
        """Return a source as its record has it, written where there is none. Raises ChangedMeanwhile, Unavailable."""
        self.refresh()
        key = _key(source)
        with contextlib.suppress(NotFound):
            self._rewrite(source.id, lambda content: added_again(content, source))
            return source
        for number in range(NAMES_MAX):
            name = f"{SOURCES}/{stable_hash(*key, str(number))[:NAME_CHARS]}.json"
            record = self._records.read(name)
            if record is None:
                content: Json = {"source": source_fields(source), "state": "live", "tries": {}, "retired": {}}
                content |= {"synced_at": "", "cursor": "", "skipped": [], "counted": {}}
                revision = self._records.write(name, written_json(content), before="")
                with self._transaction() as db:
                    copy_source(db, name, content, revision)
                return source
            theirs = read_json(record.content, name)
            known = source_from(theirs["source"])
            if _key(known) != key:
                continue  # moved to another project
            if theirs["state"] != "live":
                raise Unavailable(f"the source {source.ref!r} is being removed at this moment; try again")
            self._copy(name)
            return known
        raise Unavailable(f"{NAMES_MAX} sources were called {source.ref!r} here; take another name")

    def queue(self, source: str, what: str, *, now: datetime) -> None:
        """Do nothing: what is pushed is read once."""

    def move(self, sources: Sequence[str], project: str) -> None:
        for source in sources:
            self._rewrite(source, lambda content: {**content, "source": {**content["source"], "project": project}})

    def mark_removing(self, source: str, *, now: datetime) -> None:
        self.refresh()
        self._rewrite(source, lambda content: {**content, "state": "removing", "removing_at": now.isoformat()})

    def unfinished_removals(self, now: datetime) -> list[Source]:
        old = (now - timedelta(seconds=REMOVING_S)).isoformat()
        return [source for source, at in self._removing() if at < old]

    def has_pending_removal(self, now: datetime) -> bool:
        old = (now - timedelta(seconds=REMOVING_S)).isoformat()
        return any(at >= old for _, at in self._removing())

    def _removing(self) -> list[tuple[Source, str]]:
        """Return the sources that are being removed and since when."""
        live = {source.id for source in self.sources()}
        gone = [source for source in self.sources(live=False) if source.id not in live]
        return [(source, str(self._copied(source.id)[1].get("removing_at", ""))) for source in gone]

    def drop_source(self, source: str) -> int:
        """Delete everything about a source, its record last; return how many blobs there were."""
        name, _, _ = self._copied(source)
        blobs = self._drop_parts(source)
        self._delete(name)
        self._forget(source)
        return blobs

    def sweep(self, now: datetime) -> None:
        """Remove what a killed process left of sources that are gone."""
        self.refresh()
        known = {str(row[0]) for row in self._rows("SELECT id FROM source")}
        for folder in (QUEUE, BLOBS, DOCS):
            for record in self._records.listed(folder):
                if source_named(record.name) not in known and now.timestamp() - record.at > LEFT_S:
                    self._delete(record.name)

    def drop_if_removed(self, source: str) -> bool:
        self.refresh()
        if any(other.id == source for other in super().sources()):
            return False
        self._drop_parts(source)
        return True

    def _drop_parts(self, source: str) -> int:
        blobs = 0
        for folder in (QUEUE, BLOBS, DOCS):
            for record in self._records.listed(f"{folder}/{source}"):
                self._delete(record.name)
                self._queue.pop(record.name, None)
                blobs += folder != DOCS
        return blobs

    def _delete(self, name: str) -> None:
        def delete() -> None:
            revision = self._records.revisions([name]).get(name)
            if revision is not None:
                self._records.delete(name, before=revision)

        retry_on_conflict(delete)

    def note_sync(
        self, source: str, *, now: datetime, cursor: str, skipped: Sequence[str], counted: Mapping[str, int]
    ) -> None:
        def change(content: Json) -> Json:
            noted = {"synced_at": now.isoformat(), "cursor": cursor, "skipped": list(skipped), "counted": dict(counted)}
            emptied = [passage for passage, row in content["retired"].items() if row[5]]
            for passage in emptied[: max(0, len(emptied) - RETIRED_MAX)]:
                del content["retired"][passage]
            return content | noted

        self._rewrite(source, change)

    # --- the queue -------------------------------------------------------------------------------------------------

    def _waiting(self) -> list[tuple[str, tuple[int, str]]]:
        """Return what waits of live sources, oldest first, with its tries and when it is due."""
        with self._lock:
            self._try_refresh()
            queued = sorted(self._queue, key=lambda name: (self._queue[name], name))
        live = {source.id for source in super().sources()}
        tried = {row[0]: (row[1], row[2]) for row in self._rows("SELECT what, tries, due FROM queue")}
        return [(name, tried.get(name, (0, ""))) for name in queued if source_named(name) in live]

    def next(self, *, now: datetime) -> QueuedWork | None:
        for name, (tries, due) in self._waiting():
            if tries >= TRIES_MAX or due > now.isoformat():
                continue
            record = self._records.read(name)
            if record is None:
                self._queue.pop(name, None)
                continue
            head, _, content = record.content.partition(b"\n")
            self._open = (name, content)
            return QueuedWork(name, source_named(name), str(read_json(head, name)["what"]), tries)
        return None

    def due(self, *, now: datetime) -> int:
        return sum(tries < TRIES_MAX and due <= now.isoformat() for _, (tries, due) in self._waiting())

    def count_waiting(self) -> int:
        return sum(tries < TRIES_MAX for _, (tries, _) in self._waiting())

    def done(self, work: QueuedWork) -> None:
        def change(content: Json) -> Json:
            return {**content, "tries": {name: row for name, row in content["tries"].items() if name != work.id}}

        if work.tries:
            with contextlib.suppress(NotFound):
                self._rewrite(work.source, change)
        self._delete(str(work.id))
        self._queue.pop(str(work.id), None)
        self._open = ("", b"")

    def failed(self, work: QueuedWork, error: str, *, now: datetime) -> None:
        row = [work.tries + 1, due_again(work, now), error[:500]]
        with contextlib.suppress(NotFound):
            self._rewrite(work.source, lambda content: {**content, "tries": {**content["tries"], str(work.id): row}})

    # --- documents and places --------------------------------------------------------------------------------------

    def begin(self, source: str) -> None:
        with self._lock:
            self._began = dict(self._rows("SELECT name, revision FROM copied WHERE source=?", source))

    def intend(self, source: str, passages: Mapping[str, PassagePlace], gone: Mapping[str, PassagePlace]) -> None:
        noted = {passage: retired_row(place) for passage, place in {**passages, **gone}.items()}
        if noted:
            self._write(source, lambda content: {**content, "retired": {**content["retired"], **noted}}, began=True)

    def replace(
        self,
        source: str,
        documents: Mapping[str, tuple[str, str, str, Sequence[PassagePlace]]],
        *,
        removed: Iterable[str],
        retired: Mapping[str, PassagePlace],
    ) -> None:
        queued, pushed = self._open
        buckets: dict[str, Json] = {}
        for ref, (stamp, sha, title, places) in documents.items():
            if sha and source_named(queued) == source:
                self._store_bytes(source, ref, pushed)
            rows = [[p.number, p.passage, p.sha, p.line_start, p.line_end, p.page, list(p.heading)] for p in places]
            buckets.setdefault(bucket_of(source, ref), {})[ref] = [stamp, sha, title, rows]
        for ref in removed:
            buckets.setdefault(bucket_of(source, ref), {})[ref] = None
        for bucket, docs in buckets.items():
            self._put_docs(source, bucket, docs)
        named = {place.passage for _, _, _, places in documents.values() for place in places}

        def change(content: Json) -> Json:
            others = {passage: row for passage, row in content["retired"].items() if passage not in named}
            return {**content, "retired": others | {passage: retired_row(p) for passage, p in retired.items()}}

        self._write(source, change, began=True)

    def _put_docs(self, source: str, bucket: str, docs: Json) -> None:
        before = self._began.get(bucket, "")
        record = self._records.read(bucket) if before else None
        if before and (record is None or record.revision != before):
            raise ChangedMeanwhile(f"{bucket} was changed by another replica meanwhile")
        content = {**(read_json(record.content, bucket) if record is not None else {}), **docs}
        content = {ref: doc for ref, doc in content.items() if doc is not None}
        self._began[bucket] = revision = self._records.write(bucket, written_json(content), before=before)
        with self._transaction() as db:
            copy_bucket(db, source, bucket, content, revision)

    def _store_bytes(self, source: str, ref: str, content: bytes) -> None:
        name = blob_of(source, ref)

        def write() -> None:
            self._records.write(name, content, before=self._records.revisions([name]).get(name, ""))

        retry_on_conflict(write)

    def to_empty(self, source: str, *, limit: int) -> list[str]:
        rows = self._rows(
            "SELECT passage FROM retired WHERE source=? AND emptied=0 AND passage NOT IN"
            " (SELECT passage FROM place WHERE source=?) LIMIT ?",
            source,
            source,
            limit,
        )
        return [str(row[0]) for row in rows]

    def emptied(self, passages: Iterable[str]) -> None:
        by_source: dict[str, list[str]] = {}
        for passage, source in self._rows_in("SELECT passage, source FROM retired WHERE passage IN ", passages):
            by_source.setdefault(source, []).append(passage)
        for source, gone in by_source.items():

            def change(content: Json, gone: Sequence[str] = gone) -> Json | None:
                retired = content["retired"]
                rows = {passage: [*retired[passage][:5], 1] for passage in gone if passage in retired}
                return {**content, "retired": {**retired, **rows}} if rows else None

            self._rewrite(source, change)

    def forget_names(self, matches: Callable[[str], bool]) -> int:
        self.refresh(whole=True)
        done = 0
        for source in self.sources(live=False):
            count = self._forget_in_docs(source.id, matches)

            def change(content: Json, count: int = count) -> Json | None:
                before = json.dumps(content, ensure_ascii=False)
                content["skipped"] = [] if matches_any(matches, content["skipped"]) else content["skipped"]
                for row in content["retired"].values():
                    row[4] = [] if matches_any(matches, row[4]) else row[4]
                for row in content["tries"].values():
                    row[2] = "" if matches(row[2]) else row[2]
                return content if count or json.dumps(content, ensure_ascii=False) != before else None

            before = self._copied(source.id)[2]
            with contextlib.suppress(NotFound):
                self._rewrite(source.id, change)
                done += count or int(self._copied(source.id)[2] != before)
        return done

    def _forget_in_docs(self, source: str, matches: Callable[[str], bool]) -> int:
        done = 0
        for name in [listed.name for listed in self._records.listed(f"{DOCS}/{source}")]:
            record = self._records.read(name)
            if record is None:
                continue
            docs, count = read_json(record.content, name), 0
            for doc in docs.values():
                count += matches(doc[2]) + sum(matches_any(matches, row[6]) for row in doc[3])
                doc[2] = "" if matches(doc[2]) else doc[2]
                for row in doc[3]:
                    row[6] = [] if matches_any(matches, row[6]) else row[6]
            if count:
                revision = self._records.write(name, written_json(docs), before=record.revision)
                with self._transaction() as db:
                    copy_bucket(db, source, name, docs, revision)
            done += count
        return done

    # --- bytes -----------------------------------------------------------------------------------------------------

    def drop_blobs(self) -> int:
        """Do nothing: bytes go with their document, or with their source."""
        return 0

    def queued_bytes(self, work: QueuedWork) -> bytes | None:
        if self._open[0] == work.id:
            return self._open[1]
        record = self._records.read(str(work.id))
        return None if record is None else record.content.partition(b"\n")[2]

    def document_bytes(self, source: str, ref: str) -> bytes | None:
        record = self._records.read(blob_of(source, ref))
        return None if record is None else record.content

    def pushed_records(self) -> list[tuple[SharedRecords, str]]:
        return [(self._records, one.name) for folder in (QUEUE, BLOBS) for one in self._records.listed(folder)]


def _key(source: Source) -> tuple[str, str, str]:
    return audience(source.scope, source.visibility), source.kind.value, source.ref
