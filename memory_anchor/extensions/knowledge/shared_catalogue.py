"""The catalogue of several replicas of one service: records on the server, and a copy of them in each data directory.

An accepted push is a record of its own (`knowledge/queue/SOURCE/ID`: a line that describes it, then its bytes), written
once. A source is a record (`knowledge/sources/KEY.json`); its documents with their places are in at most `BUCKETS`
records (`knowledge/docs/SOURCE/NN.json`), and the bytes of a document that was read are one more
(`knowledge/blobs/SOURCE/NAME`). The copy is the same SQLite file that a single process has as its catalogue, so reads
are the same; a list of revisions, at most `FRESH_S` old, says which records changed.

One replica at a time reads the queue (`library`). Each write requires the revisions that its copy was made of, in the
order: source (passages about to be stored), points, bytes, buckets, source again (retired passages); the queued record
is deleted last. A kill in between leaves that record, and the next reader writes the same again. A replica that slept
past its turn finds other revisions and fails before it changes anything visible. A source's record is named by its key,
so two replicas that add it at once make one. Rejected: places from the points alone, which cite only eight; one record
a document (ten thousand to list).
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.base.hashing import stable_hash
from memory_anchor.domain.errors import ChangedMeanwhile, NotFound, StoreDamaged, Unavailable, retry_on_conflict
from memory_anchor.domain.model import audience
from memory_anchor.extensions.knowledge.catalogue import (
    TRIES_MAX,
    Catalogue,
    DocumentRow,
    PassagePlace,
    QueuedWork,
    SourceState,
    matches_any,
    retry_at,
    source_fields,
    source_from,
)
from memory_anchor.extensions.knowledge.sharing import (
    BLOBS,
    COPIED_TABLE,
    DOCS,
    NAME_CHARS,
    QUEUE,
    SOURCES,
    Documents,
    SourceRecord,
    blob_of,
    bucket_of,
    copy_bucket,
    copy_source,
    decoded,
    encoded,
    retired_row,
    source_of,
    with_settings_of,
)
from memory_anchor.extensions.knowledge.sources import Source

if TYPE_CHECKING:
    from memory_anchor.domain.ports import SharedRecords

FRESH_S = 0.5
"""How old the list of revisions may be, and so how late another replica's changes are seen here."""
RETIRED_MAX = 2_000
"""Passages of a source that are gone and whose citations still open."""
ORPHAN_S = 3_600.0
"""After which a record that belongs to no source is deleted: a killed process left it."""
REMOVING_S = 40.0
"""After which an unfinished removal is finished by the replica that reads the queue."""
NAMES_MAX = 8
"""Records of one key: a source that moved to another project keeps its record."""


class SharedCatalogue(Catalogue):
    """The catalogue of one replica. Thread-safe. on_changed: called with passages that another may have changed."""

    is_shared = True

    def __init__(
        self,
        data_dir: Path,
        records: SharedRecords,
        monotonic: Callable[[], float],
        on_changed: Callable[[Sequence[str]], None],
    ) -> None:
        super().__init__(data_dir, "knowledge-copy", more=COPIED_TABLE)
        self._records, self._monotonic, self._on_changed = records, monotonic, on_changed
        self._compared_at = float("-inf")
        self._queue: dict[str, float] = {}
        self._last_queued: tuple[str, bytes] = ("", b"")
        """Name and bytes of the queued record that was read last."""
        self._base: dict[str, str] = {}
        """Name of each record of the source that is being read -> the revision that the changes are based on."""

    # --- the copy --------------------------------------------------------------------------------------------------

    @property
    def is_used(self) -> bool:
        self._try_refresh()
        return bool(self._queue or self._rows("SELECT 1 FROM source LIMIT 1"))

    def refresh(self, *, everything: bool = False, queued: bool = False) -> None:
        """Copy what other replicas changed, unless that was done a moment ago. everything: copy all, and now.

        queued: now, and all of each source that has queued work: the replica that read it may have been killed before
        it wrote its changes. Raises Unavailable: the server does not answer.
        """
        with self._lock:
            now = self._monotonic()
            if not (everything or queued) and now - self._compared_at < FRESH_S:
                return
            try:
                self._compare(everything=everything, queued=queued)
            except StoreDamaged:  # a copy is made anew
                self.close()
                shutil.rmtree(self.folder, ignore_errors=True)
                self._compare(everything=True)
            finally:
                self._compared_at = now

    def _try_refresh(self) -> None:
        with contextlib.suppress(Unavailable):  # the copy answers; the store reports the failure
            self.refresh()

    def _compare(self, *, everything: bool, queued: bool = False) -> None:
        """Copy the sources whose revisions on the server are not those of the copy."""
        revisions = {record.name: record.revision for record in self._records.listed(SOURCES)}
        self._queue = {record.name: record.at for record in self._records.listed(QUEUE)}
        if not revisions and not self._is_made:
            return
        rows = self._rows("SELECT name, source, revision FROM copied WHERE name LIKE ?", f"{SOURCES}/%")
        copies = {name: (source, revision) for name, source, revision in rows}
        for name in copies.keys() - revisions.keys():
            self._drop_copy(copies[name][0])
        to_reread = set(map(source_of, self._queue)) if queued else set()
        for name, revision in revisions.items():
            source, copied_revision = copies.get(name, ("", ""))
            if everything or copied_revision != revision or source in to_reread:
                self._copy(name)

    def _copy(self, name: str) -> None:
        """Copy one source and those of its buckets that changed."""
        record = self._records.read(name)
        if record is None:
            for (source,) in self._rows("SELECT source FROM copied WHERE name=?", name):
                self._drop_copy(source)
            return
        content: SourceRecord = decoded(record.content, name)
        source = str(content["source"]["id"])
        copied = dict(
            self._rows("SELECT name, revision FROM copied WHERE source=? AND name LIKE ?", source, f"{DOCS}/%")
        )
        revisions = {listed.name: listed.revision for listed in self._records.listed(f"{DOCS}/{source}")}
        buckets: dict[str, tuple[Documents, str]] = {}
        for bucket, revision in revisions.items():
            if copied.get(bucket) != revision and (stored := self._records.read(bucket)) is not None:
                buckets[bucket] = (decoded(stored.content, bucket), stored.revision)
        refs = [ref for ref in self.stamps(source) if bucket_of(source, ref) in buckets] if buckets else []
        before = {place.passage for place in self.places(source, refs=refs)}
        with self._transaction() as db:
            copy_source(db, name, content, record.revision)
            for bucket, (documents, revision) in buckets.items():
                copy_bucket(db, source, bucket, documents, revision)
            for bucket in copied.keys() - revisions.keys():
                copy_bucket(db, source, bucket, {}, "")
        after = {
            place[1] for documents, _ in buckets.values() for document in documents.values() for place in document[3]
        }
        if before | after:
            self._on_changed([*(before | after)])

    def _drop_copy(self, source: str) -> None:
        passages = [row[0] for row in self._rows("SELECT DISTINCT passage FROM place WHERE source=?", source)]
        super().drop_source(source)
        with self._transaction() as db:
            db.execute("DELETE FROM copied WHERE source=?", (source,))
        self._on_changed(passages)

    def _copied(self, source: str) -> tuple[str, SourceRecord, str]:
        """Return name, content and revision of a source's record as copied. Raises NotFound: it was removed."""
        rows = self._rows(
            "SELECT name, content, revision FROM copied WHERE source=? AND name LIKE ?", source, f"{SOURCES}/%"
        )
        if not rows:
            raise NotFound(f"the source {source} was removed")
        name, content, revision = rows[0]
        return name, json.loads(content), revision

    def _write(
        self, source: str, change: Callable[[SourceRecord], SourceRecord | None], *, on_base: bool = False
    ) -> None:
        """Write a source's record over the copied revision. change: returns None for nothing to write.

        on_base: only if that is still the revision of `begin_changes`. Raises NotFound: the source is being removed.
        ChangedMeanwhile: another replica was first, nothing was written.
        """
        with self._lock:
            name, content, before = self._copied(source)
            if content["state"] != "live":
                raise NotFound(f"the source {source} is being removed")
            if on_base and self._base.get(name) != before:
                raise ChangedMeanwhile(f"{name} was changed by another replica meanwhile")
            changed = change(content)
            if changed is None:
                return
            try:
                revision = self._records.write(name, encoded(changed), before=before)
            except ChangedMeanwhile:
                self._copy(name)
                self._copied(source)  # raises NotFound if that removed it
                raise
            if on_base:
                self._base[name] = revision
            with self._transaction() as db:
                copy_source(db, name, changed, revision)

    def _rewrite(self, source: str, change: Callable[[SourceRecord], SourceRecord | None]) -> None:
        """Write a source's record; the change is made again after each conflict with another replica."""
        retry_on_conflict(lambda: self._write(source, change))

    # --- sources ---------------------------------------------------------------------------------------------------

    def sources(self, *, live: bool = True) -> list[Source]:
        self._try_refresh()
        return super().sources(live=live)

    def states(self) -> list[SourceState]:
        self._try_refresh()
        with self._lock:
            waiting = Counter(map(source_of, self._queue))
        return [replace(state, waiting=waiting[state.source.id]) for state in super().states()]

    def put_source(self, source: Source, task: str, *, now: datetime, content: bytes | None = None) -> Source:
        """Add a source and the document pushed into it; accepted once this returns. Return the source as stored.

        Raises Unavailable: the source is being removed at this moment.
        """
        stored = retry_on_conflict(lambda: self._add_record(source))
        if content is None:
            return stored
        head = json.dumps({"what": task, "at": now.isoformat()}, ensure_ascii=False).encode()
        name = f"{QUEUE}/{stored.id}/{stable_hash(task)[:NAME_CHARS]}"
        revision = ""
        with contextlib.suppress(ChangedMeanwhile):  # the same push, sent twice
            revision = self._records.write(name, head + b"\n" + content, before="")
        if not self._is_live(stored.id):  # its removal may have deleted the queued records already
            if revision:
                with contextlib.suppress(ChangedMeanwhile):
                    self._records.delete(name, before=revision)
            raise Unavailable(f"the source {stored.ref!r} is being removed at this moment; push it again")
        if revision:
            with self._lock:
                self._queue[name] = now.timestamp()
        return stored

    def _is_live(self, source: str) -> bool:
        """Return whether a source is live on the server; its copy is not asked."""
        with contextlib.suppress(NotFound):
            name, _, _ = self._copied(source)
            if (record := self._records.read(name)) is not None:
                content: SourceRecord = decoded(record.content, name)
                return content["state"] == "live" and content["source"]["id"] == source
        return False

    def _add_record(self, source: Source) -> Source:
        """Return a source as stored, after writing its record where there is none.

        Raises ChangedMeanwhile, Unavailable.
        """
        self.refresh()
        key = _key(source)
        with contextlib.suppress(NotFound):
            self._rewrite(source.id, lambda content: with_settings_of(source, content))
            return source
        for number in range(NAMES_MAX):
            name = f"{SOURCES}/{stable_hash(*key, str(number))[:NAME_CHARS]}.json"
            record = self._records.read(name)
            if record is None:
                content: SourceRecord = {
                    "source": source_fields(source),
                    "state": "live",
                    "tries": {},
                    "retired": {},
                    "synced_at": "",
                    "cursor": "",
                    "skipped": [],
                    "counted": {},
                }
                revision = self._records.write(name, encoded(content), before="")
                with self._transaction() as db:
                    copy_source(db, name, content, revision)
                return source
            existing: SourceRecord = decoded(record.content, name)
            stored = source_from(existing["source"])
            if _key(stored) != key:
                continue  # moved to another project
            if existing["state"] != "live":
                raise Unavailable(f"the source {source.ref!r} is being removed at this moment; try again")
            self._copy(name)
            return stored
        raise Unavailable(f"{NAMES_MAX} sources were called {source.ref!r} here; take another name")

    def queue(self, source: str, task: str, *, now: datetime) -> None:
        """Do nothing: a pushed document is queued by `put_source`, and read once."""

    def move(self, sources: Sequence[str], project: str) -> None:
        for source in sources:
            self._rewrite(source, lambda content: {**content, "source": {**content["source"], "project": project}})

    def mark_removing(self, source: str, *, now: datetime) -> None:
        self.refresh()
        self._rewrite(source, lambda content: {**content, "state": "removing", "removing_at": now.isoformat()})

    def unfinished_removals(self, now: datetime) -> list[Source]:
        return [source for source, is_overdue in self._removing(now) if is_overdue]

    def has_pending_removal(self, now: datetime) -> bool:
        return any(not is_overdue for _, is_overdue in self._removing(now))

    def _removing(self, now: datetime) -> list[tuple[Source, bool]]:
        """Return the sources that are being removed, and whether their removal is overdue."""
        cutoff = (now - timedelta(seconds=REMOVING_S)).isoformat()
        live = {source.id for source in self.sources()}
        removing: list[tuple[Source, bool]] = []
        for source in self.sources(live=False):
            with contextlib.suppress(NotFound):  # another thread has just finished its removal
                if source.id not in live:
                    removing.append((source, self._copied(source.id)[1].get("removing_at", "") < cutoff))
        return removing

    def drop_source(self, source: str) -> int:
        """Delete everything about a source, its record last; return how many blobs there were."""
        name, _, _ = self._copied(source)
        blobs = self._drop_parts(source)
        self._delete(name)
        self._drop_copy(source)
        return blobs

    def sweep(self, now: datetime) -> None:
        """Delete records that a killed process left of removed sources."""
        self.refresh()
        sources = {str(row[0]) for row in self._rows("SELECT id FROM source")}
        for folder in (QUEUE, BLOBS, DOCS):
            for record in self._records.listed(folder):
                if source_of(record.name) not in sources and now.timestamp() - record.at > ORPHAN_S:
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
                self._unqueue(record.name)
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
        def change(content: SourceRecord) -> SourceRecord:
            emptied = [passage for passage, row in content["retired"].items() if row[5]]
            for passage in emptied[: max(0, len(emptied) - RETIRED_MAX)]:
                del content["retired"][passage]
            return {
                **content,
                "synced_at": now.isoformat(),
                "cursor": cursor,
                "skipped": list(skipped),
                "counted": dict(counted),
            }

        self._rewrite(source, change)

    # --- the queue -------------------------------------------------------------------------------------------------

    def _unqueue(self, name: str) -> None:
        with self._lock:
            self._queue.pop(name, None)

    def _waiting(self) -> list[tuple[str, tuple[int, str]]]:
        """Return the queued records of live sources, oldest first, with their tries and when each is due."""
        with self._lock:
            self._try_refresh()
            queued = sorted(self._queue, key=lambda name: (self._queue[name], name))
        live = {source.id for source in super().sources()}
        tries = {row[0]: (row[1], row[2]) for row in self._rows("SELECT what, tries, due FROM queue")}
        return [(name, tries.get(name, (0, ""))) for name in queued if source_of(name) in live]

    def next_work(self, *, now: datetime) -> QueuedWork | None:
        for name, (tries, due) in self._waiting():
            if tries >= TRIES_MAX or due > now.isoformat():
                continue
            record = self._records.read(name)
            if record is None:
                self._unqueue(name)
                continue
            head, _, content = record.content.partition(b"\n")
            self._last_queued = (name, content)
            return QueuedWork(name, source_of(name), str(decoded(head, name)["what"]), tries)
        return None

    def count_due(self, *, now: datetime) -> int:
        return sum(tries < TRIES_MAX and due <= now.isoformat() for _, (tries, due) in self._waiting())

    def count_waiting(self) -> int:
        return sum(tries < TRIES_MAX for _, (tries, _) in self._waiting())

    def mark_done(self, work: QueuedWork) -> None:
        def change(content: SourceRecord) -> SourceRecord:
            return {**content, "tries": {name: row for name, row in content["tries"].items() if name != work.id}}

        if work.tries:
            with contextlib.suppress(NotFound):
                self._rewrite(work.source, change)
        self._delete(str(work.id))
        self._unqueue(str(work.id))
        self._last_queued = ("", b"")

    def mark_failed(self, work: QueuedWork, error: str, *, now: datetime) -> None:
        row = [work.tries + 1, retry_at(work, now), error[:500]]
        with contextlib.suppress(NotFound):
            self._rewrite(work.source, lambda content: {**content, "tries": {**content["tries"], str(work.id): row}})

    # --- documents and places --------------------------------------------------------------------------------------

    def begin_changes(self, source: str) -> None:
        with self._lock:
            self._base = dict(self._rows("SELECT name, revision FROM copied WHERE source=?", source))

    def announce(self, source: str, passages: Mapping[str, PassagePlace], gone: Mapping[str, PassagePlace]) -> None:
        rows = {passage: retired_row(place) for passage, place in {**passages, **gone}.items()}
        if rows:
            self._write(source, lambda content: {**content, "retired": {**content["retired"], **rows}}, on_base=True)

    def replace(
        self,
        source: str,
        documents: Mapping[str, DocumentRow],
        *,
        removed: Iterable[str],
        retired: Mapping[str, PassagePlace],
    ) -> None:
        queued, pushed = self._last_queued
        buckets: dict[str, dict[str, DocumentRow | None]] = {}
        for ref, document in documents.items():
            if document[1] and source_of(queued) == source:
                self._store_bytes(source, ref, pushed)
            buckets.setdefault(bucket_of(source, ref), {})[ref] = document
        for ref in removed:
            buckets.setdefault(bucket_of(source, ref), {})[ref] = None
        for bucket, changes in buckets.items():
            self._change_bucket(source, bucket, changes)
        passages = {passage for document in documents.values() for _, passage, *_ in document[3]}

        def change(content: SourceRecord) -> SourceRecord:
            others = {passage: row for passage, row in content["retired"].items() if passage not in passages}
            return {**content, "retired": others | {passage: retired_row(p) for passage, p in retired.items()}}

        self._write(source, change, on_base=True)

    def _change_bucket(self, source: str, bucket: str, changes: Mapping[str, DocumentRow | None]) -> None:
        """Write documents into their bucket; None deletes one."""
        before = self._base.get(bucket, "")
        record = self._records.read(bucket) if before else None
        if before and (record is None or record.revision != before):
            raise ChangedMeanwhile(f"{bucket} was changed by another replica meanwhile")
        documents: Documents = decoded(record.content, bucket) if record is not None else {}
        for ref, document in changes.items():
            if document is not None:
                documents[ref] = list(document)
            else:
                documents.pop(ref, None)
        self._base[bucket] = revision = self._records.write(bucket, encoded(documents), before=before)
        with self._transaction() as db:
            copy_bucket(db, source, bucket, documents, revision)

    def _store_bytes(self, source: str, ref: str, content: bytes) -> None:
        name = blob_of(source, ref)

        def write() -> None:
            self._records.write(name, content, before=self._records.revisions([name]).get(name, ""))

        retry_on_conflict(write)

    def mark_emptied(self, passages: Iterable[str]) -> None:
        by_source: dict[str, list[str]] = {}
        for passage, source in self._rows_in("SELECT passage, source FROM retired WHERE passage IN ", passages):
            by_source.setdefault(source, []).append(passage)
        for source, names in by_source.items():

            def change(content: SourceRecord, names: Sequence[str] = names) -> SourceRecord | None:
                retired = content["retired"]
                rows = {passage: [*retired[passage][:5], 1] for passage in names if passage in retired}
                return {**content, "retired": {**retired, **rows}} if rows else None

            self._rewrite(source, change)

    def forget_names(self, matches: Callable[[str], bool]) -> int:
        self.refresh(everything=True)
        total = 0
        for source in self.sources(live=False):
            count = self._forget_in_docs(source.id, matches)

            def change(content: SourceRecord, count: int = count) -> SourceRecord | None:
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
                total += count or int(self._copied(source.id)[2] != before)
        return total

    def _forget_in_docs(self, source: str, matches: Callable[[str], bool]) -> int:
        total = 0
        for name in [listed.name for listed in self._records.listed(f"{DOCS}/{source}")]:
            record = self._records.read(name)
            if record is None:
                continue
            documents: Documents = decoded(record.content, name)
            count = 0
            for document in documents.values():
                count += matches(document[2]) + sum(matches_any(matches, row[6]) for row in document[3])
                document[2] = "" if matches(document[2]) else document[2]
                for row in document[3]:
                    row[6] = [] if matches_any(matches, row[6]) else row[6]
            if count:
                revision = self._records.write(name, encoded(documents), before=record.revision)
                with self._transaction() as db:
                    copy_bucket(db, source, name, documents, revision)
            total += count
        return total

    # --- bytes -----------------------------------------------------------------------------------------------------

    def drop_blobs(self) -> int:
        """Do nothing: bytes are deleted with their document or their source."""
        return 0

    def queued_bytes(self, work: QueuedWork) -> bytes | None:
        if self._last_queued[0] == work.id:
            return self._last_queued[1]
        record = self._records.read(str(work.id))
        return None if record is None else record.content.partition(b"\n")[2]

    def document_bytes(self, source: str, ref: str) -> bytes | None:
        record = self._records.read(blob_of(source, ref))
        return None if record is None else record.content

    def pushed_records(self) -> list[tuple[SharedRecords, str]]:
        return [(self._records, record.name) for folder in (QUEUE, BLOBS) for record in self._records.listed(folder)]


def _key(source: Source) -> tuple[str, str, str]:
    return audience(source.scope, source.visibility), source.kind.value, source.ref
