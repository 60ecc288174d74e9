"""The catalogue of several replicas of one service: records on the server, and in each data directory a copy of them.

What was accepted is a record of its own (`knowledge/queue/SOURCE/ID`: what it is, then its bytes), made once. What is
known of a source is its record (`knowledge/sources/KEY.json`) and its documents with their places, in at most `BUCKETS`
records (`knowledge/docs/SOURCE/NN.json`); bytes of a document that was read lie under its name
(`knowledge/blobs/SOURCE/NAME`). The copy is the SQLite file that a process alone has as its truth, so everything is
read as ever; a look at most `FRESH_S` old says which records changed.

One replica at a time reads what waits (`library`). It writes over the very revisions that its copy was made of: source
(passages that are about to be stored), points, bytes, buckets, source again (what is gone), and the queued record goes
last. A kill in between leaves that record, and whoever does it again makes the same. One that slept past its turn finds
other revisions, and has changed nothing that counts. A source is the record of its key: made by two at once it is one.
Rejected: places out of the points alone, which name eight of them; one record a document (ten thousand to look at).
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
    BACKOFF_S,
    TRIES_MAX,
    Catalogue,
    Place,
    QueuedWork,
    SourceState,
    matches_any,
)
from memory_anchor.knowledge.sharing import (
    BLOBS,
    COPIED,
    DOCS,
    NAME_CHARS,
    QUEUE,
    SOURCES,
    Json,
    as_wanted,
    blob_of,
    bucket_of,
    copy_bucket,
    copy_source,
    json_of_source,
    read_json,
    retired_row,
    source_named,
    source_of_json,
    without,
    written_json,
)
from memory_anchor.knowledge.sources import Source
from memory_anchor.model import audience

if TYPE_CHECKING:
    from memory_anchor.ports import SharedRecords

FRESH_S = 0.5
"""How old a look may be: what another replica accepted, read or removed is known here after this."""
RETIRED_MAX = 2_000
"""Passages of a source that are gone and whose citations still say so."""
LEFT_S = 3_600.0
"""After which what belongs to no source was left by a process that was killed."""
REMOVING_S = 40.0
"""After which a removal that nobody ended is ended by whoever reads what waits."""
NAMES_MAX = 8
"""Records of one key: sources that moved to another project keep theirs."""


class SharedCatalogue(Catalogue):
    """Thread-safe. on_changed: told the passages that another replica changed, and may have changed."""

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
        self._began: dict[str, str] = {}
        """Of the source that is read now: name of each of its records -> the revision that was copied."""

    # --- the copy --------------------------------------------------------------------------------------------------

    @property
    def is_used(self) -> bool:
        with contextlib.suppress(Unavailable):
            self.fresh()
        return bool(self._queue or self._rows("SELECT 1 FROM source LIMIT 1"))

    def fresh(self, *, whole: bool = False, taken: bool = False) -> None:
        """Bring what others changed, unless that was looked at a moment ago. whole: everything, and now.

        taken: now, and whole the sources of which something waits: whoever read them may have been killed before it
        said what it changed. Raises Unavailable: the server does not answer.
        """
        with self._lock:
            if not (whole or taken) and self._monotonic() - self._looked_at < FRESH_S:
                return
            at = self._monotonic()
            try:
                self._look(whole=whole, taken=taken)
            except StoreDamaged:  # a copy is made anew
                self.close()
                shutil.rmtree(self.folder, ignore_errors=True)
                self._look(whole=True)
            finally:
                self._looked_at = at

    def _look(self, *, whole: bool, taken: bool = False) -> None:
        there = {one.name: one.revision for one in self._records.listed(SOURCES)}
        self._queue = {one.name: one.at for one in self._records.listed(QUEUE)}
        if not there and not self._is_made:
            return
        rows = self._rows("SELECT name, source, revision FROM copied WHERE name LIKE ?", f"{SOURCES}/%")
        known = {name: (source, revision) for name, source, revision in rows}
        for name in known.keys() - there.keys():
            self._forget(known[name][0])
        waiting = set(map(source_named, self._queue)) if taken else set()
        for name, revision in there.items():
            source, copied = known.get(name, ("", ""))
            if whole or copied != revision or source in waiting:
                self._copy(name)

    def _copy(self, name: str) -> None:
        """Take one source with what changed of its documents."""
        held = self._records.read(name)
        if held is None:
            for (source,) in self._rows("SELECT source FROM copied WHERE name=?", name):
                self._forget(source)
            return
        told = read_json(held.content, name)
        id_ = str(told["source"]["id"])
        rows = self._rows("SELECT name, revision FROM copied WHERE source=? AND name LIKE ?", id_, f"{DOCS}/%")
        known = dict(rows)
        there = {one.name: one.revision for one in self._records.listed(f"{DOCS}/{id_}")}
        buckets = {}
        for one, revision in there.items():
            if known.get(one) != revision and (bucket := self._records.read(one)) is not None:
                buckets[one] = (read_json(bucket.content, one), bucket.revision)
        before = set() if not buckets else {one.passage for one in self.places(id_, refs=self._refs(id_, buckets))}
        with self._transaction() as db:
            copy_source(db, name, told, held.revision)
            for one, (docs, revision) in buckets.items():
                copy_bucket(db, id_, one, docs, revision)
            for one in known.keys() - there.keys():
                copy_bucket(db, id_, one, {}, "")
        after = {one[2] for docs, _ in buckets.values() for doc in docs.values() for one in doc[3]}
        if before | after:
            self._on_changed([*(before | after)])

    def _refs(self, source: str, buckets: Iterable[str]) -> list[str]:
        names = set(buckets)
        return [ref for ref in self.stamps(source) if bucket_of(source, ref) in names]

    def _forget(self, source: str) -> None:
        passages = [row[0] for row in self._rows("SELECT DISTINCT passage FROM place WHERE source=?", source)]
        super().drop_source(source)
        with self._transaction() as db:
            db.execute("DELETE FROM copied WHERE source=?", (source,))
        self._on_changed(passages)

    def _held(self, source: str) -> tuple[str, Json, str]:
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
            name, told, before = self._held(source)
            if told["state"] != "live":
                raise NotFound(f"the source {source} is being removed")
            if began and self._began.get(name) != before:
                raise ChangedMeanwhile(f"{name} was changed by another replica meanwhile")
            now = change(told)
            if now is None:
                return
            try:
                revision = self._records.write(name, written_json(now), before=before)
            except ChangedMeanwhile:
                self._copy(name)
                self._held(source)  # or it is gone
                raise
            if began:
                self._began[name] = revision
            with self._transaction() as db:
                copy_source(db, name, now, revision)

    def _rewrite(self, source: str, change: Callable[[Json], Json | None]) -> None:
        """As `_write`, decided anew upon what others wrote."""
        retry_on_conflict(lambda: self._write(source, change))

    # --- sources ---------------------------------------------------------------------------------------------------

    def sources(self, *, live: bool = True) -> list[Source]:
        self._seen()
        return super().sources(live=live)

    def states(self) -> list[SourceState]:
        self._seen()
        waiting = Counter(map(source_named, self._queue))
        return [changed(one, waiting=waiting[one.source.id]) for one in super().states()]

    def _seen(self) -> None:
        with contextlib.suppress(Unavailable):  # what is known is told; the store says the rest
            self.fresh()

    def put_source(self, source: Source, what: str, *, now: datetime, content: bytes | None = None) -> Source:
        """Keep a source and what was pushed into it: accepted once this returns. Return the source as it is kept.

        Raises Unavailable: it is being removed at this moment.
        """
        kept = retry_on_conflict(lambda: self._kept(source))
        if content is None:
            return kept
        head = json.dumps({"what": what, "at": now.isoformat()}, ensure_ascii=False).encode()
        name = f"{QUEUE}/{kept.id}/{stable_hash(what)[:NAME_CHARS]}"
        try:
            revision = self._records.write(name, head + b"\n" + content, before="")
        except ChangedMeanwhile:  # the very push, sent twice
            return kept
        if not self._is_live(kept.id):  # whoever removes it may have looked through the queue already
            with contextlib.suppress(ChangedMeanwhile):
                self._records.delete(name, before=revision)
            raise Unavailable(f"the source {kept.ref!r} is being removed at this moment; push it again")
        with self._lock:
            self._queue[name] = now.timestamp()
        return kept

    def _is_live(self, source: str) -> bool:
        with contextlib.suppress(NotFound):
            name, _, _ = self._held(source)
            held = self._records.read(name)
            told: Json = read_json(held.content, name) if held is not None else {"state": "", "source": {"id": ""}}
            return bool(told["state"] == "live" and told["source"]["id"] == source)
        return False

    def _kept(self, source: Source) -> Source:
        """Return a source as its record has it, made where there is none. Raises ChangedMeanwhile, Unavailable."""
        self.fresh()
        key = (audience(source.scope, source.visibility), source.kind.value, source.ref)
        with contextlib.suppress(NotFound):
            self._rewrite(source.id, lambda told: as_wanted(told, source))
            return source
        for number in range(NAMES_MAX):
            name = f"{SOURCES}/{stable_hash(*key, str(number))[:NAME_CHARS]}.json"
            held = self._records.read(name)
            if held is None:
                told: Json = {"source": json_of_source(source), "state": "live", "tries": {}, "retired": {}}
                told |= {"synced_at": "", "cursor": "", "skipped": [], "counted": {}}
                revision = self._records.write(name, written_json(told), before="")
                with self._transaction() as db:
                    copy_source(db, name, told, revision)
                return source
            theirs = read_json(held.content, name)
            known = source_of_json(theirs["source"])
            if (audience(known.scope, known.visibility), known.kind.value, known.ref) != key:
                continue  # moved to another project
            if theirs["state"] != "live":
                raise Unavailable(f"the source {source.ref!r} is being removed at this moment; try again")
            self._copy(name)
            return known
        raise Unavailable(f"{NAMES_MAX} sources were called {source.ref!r} here; take another name")

    def queue(self, source: str, what: str, *, now: datetime) -> None:
        """Nothing to look at again: what is pushed is read once."""

    def move(self, sources: Sequence[str], project: str) -> None:
        for one in sources:
            self._rewrite(one, lambda told: {**told, "source": {**told["source"], "project": project}})

    def mark_removing(self, source: str, *, now: datetime) -> None:
        def change(told: Json) -> Json:
            return {**told, "state": "removing", "removing_at": now.isoformat()}

        self.fresh()
        self._rewrite(source, change)

    def left_of_removals(self, now: datetime) -> list[Source]:
        old = (now - timedelta(seconds=REMOVING_S)).isoformat()
        return [source for source, at in self._removing() if at < old]

    def is_stood_aside_for(self, now: datetime) -> bool:
        """Return whether a removal on another replica waits for its turn."""
        old = (now - timedelta(seconds=REMOVING_S)).isoformat()
        return any(at >= old for _, at in self._removing())

    def _removing(self) -> list[tuple[Source, str]]:
        live = {one.id for one in self.sources()}
        gone = [one for one in self.sources(live=False) if one.id not in live]
        return [(one, str(self._held(one.id)[1].get("removing_at", ""))) for one in gone]

    def drop_source(self, source: str) -> int:
        """Forget everything about a source, its record last; return how many blobs there were."""
        name, _, _ = self._held(source)
        blobs = self._drop_parts(source)
        self._delete(name)
        self._forget(source)
        return blobs

    def sweep(self, now: datetime) -> None:
        """Remove what a killed process left of sources that are gone."""
        self.fresh()
        known = {str(row[0]) for row in self._rows("SELECT id FROM source")}
        for folder in (QUEUE, BLOBS, DOCS):
            for one in self._records.listed(folder):
                if source_named(one.name) not in known and now.timestamp() - one.at > LEFT_S:
                    self._delete(one.name)

    def drop_left(self, source: str) -> bool:
        """Remove what was written of a source after it was removed; return whether it was."""
        self.fresh()
        if any(one.id == source for one in super().sources()):
            return False
        self._drop_parts(source)
        return True

    def _drop_parts(self, source: str) -> int:
        blobs = 0
        for folder in (QUEUE, BLOBS, DOCS):
            for one in self._records.listed(f"{folder}/{source}"):
                self._delete(one.name)
                self._queue.pop(one.name, None)
                blobs += folder != DOCS
        return blobs

    def _delete(self, name: str) -> None:
        def delete() -> None:
            revision = self._records.revisions([name]).get(name)
            if revision is not None:
                self._records.delete(name, before=revision)

        retry_on_conflict(delete)

    def noted_sync(
        self, source: str, *, now: datetime, cursor: str, skipped: Sequence[str], counted: Mapping[str, int]
    ) -> None:
        def change(told: Json) -> Json:
            noted = {"synced_at": now.isoformat(), "cursor": cursor, "skipped": list(skipped), "counted": dict(counted)}
            emptied = [one for one, row in told["retired"].items() if row[5]]
            for one in emptied[: max(0, len(emptied) - RETIRED_MAX)]:
                del told["retired"][one]
            return told | noted

        self._rewrite(source, change)

    # --- the queue -------------------------------------------------------------------------------------------------

    def _waits(self) -> list[tuple[str, tuple[int, str]]]:
        """Return what waits of live sources, oldest first, with its tries and when it is due."""
        with self._lock:
            self._seen()
            queued = sorted(self._queue.items(), key=lambda one: (one[1], one[0]))
        live = {one.id for one in super().sources()}
        tried = {row[0]: (row[1], row[2]) for row in self._rows("SELECT what, tries, due FROM queue")}
        return [(name, tried.get(name, (0, ""))) for name, _ in queued if source_named(name) in live]

    def next(self, *, now: datetime) -> QueuedWork | None:
        for name, (tries, due) in self._waits():
            if tries >= TRIES_MAX or due > now.isoformat():
                continue
            held = self._records.read(name)
            if held is None:
                self._queue.pop(name, None)
                continue
            head, _, content = held.content.partition(b"\n")
            self._open = (name, content)
            return QueuedWork(name, source_named(name), str(read_json(head, name)["what"]), tries)
        return None

    def due(self, *, now: datetime) -> int:
        return sum(tries < TRIES_MAX and due <= now.isoformat() for _, (tries, due) in self._waits())

    def waiting(self) -> int:
        return sum(tries < TRIES_MAX for _, (tries, _) in self._waits())

    def done(self, work: QueuedWork) -> None:
        if work.tries:
            with contextlib.suppress(NotFound):
                self._rewrite(work.source, lambda told: {**told, "tries": without(told["tries"], str(work.id))})
        self._delete(str(work.id))
        self._queue.pop(str(work.id), None)
        self._open = ("", b"")

    def failed(self, work: QueuedWork, wrong: str, *, now: datetime) -> None:
        due = now + timedelta(seconds=BACKOFF_S * 2**work.tries)
        row = [work.tries + 1, due.isoformat(), wrong[:500]]
        with contextlib.suppress(NotFound):
            self._rewrite(work.source, lambda told: {**told, "tries": {**told["tries"], str(work.id): row}})

    # --- documents and places --------------------------------------------------------------------------------------

    def begin(self, source: str) -> None:
        with self._lock:
            self._began = dict(self._rows("SELECT name, revision FROM copied WHERE source=?", source))

    def intend(self, source: str, passages: Mapping[str, Place], gone: Mapping[str, Place]) -> None:
        noted = {one: retired_row(place) for one, place in {**passages, **gone}.items()}
        if not noted:
            return

        def change(told: Json) -> Json:
            return {**told, "retired": {**told["retired"], **noted}}

        self._write(source, change, began=True)

    def replace(
        self,
        source: str,
        documents: Mapping[str, tuple[str, str, str, Sequence[Place]]],
        *,
        removed: Iterable[str],
        retired: Mapping[str, Place],
    ) -> None:
        name, content = self._open
        buckets: dict[str, Json] = {}
        for ref, (stamp, sha, title, places) in documents.items():
            if sha and source_named(name) == source:
                self._keep_bytes(source, ref, content)
            rows = [[p.number, p.passage, p.sha, p.line_start, p.line_end, p.page, list(p.heading)] for p in places]
            buckets.setdefault(bucket_of(source, ref), {})[ref] = [stamp, sha, title, rows]
        for ref in removed:
            buckets.setdefault(bucket_of(source, ref), {})[ref] = None
        for bucket, docs in buckets.items():
            self._put_docs(source, bucket, docs)
        named = {p.passage for _, _, _, places in documents.values() for p in places}

        def change(told: Json) -> Json:
            kept = {one: row for one, row in told["retired"].items() if one not in named}
            return {**told, "retired": {**kept, **{one: retired_row(p) for one, p in retired.items()}}}

        self._write(source, change, began=True)

    def _put_docs(self, source: str, bucket: str, docs: Json) -> None:
        before = self._began.get(bucket, "")
        held = self._records.read(bucket) if before else None
        if before and (held is None or held.revision != before):
            raise ChangedMeanwhile(f"{bucket} was changed by another replica meanwhile")
        told = {**(read_json(held.content, bucket) if held is not None else {}), **docs}
        told = {ref: doc for ref, doc in told.items() if doc is not None}
        self._began[bucket] = revision = self._records.write(bucket, written_json(told), before=before)
        with self._transaction() as db:
            copy_bucket(db, source, bucket, told, revision)

    def _keep_bytes(self, source: str, ref: str, content: bytes) -> None:
        name = blob_of(source, ref)

        def keep() -> None:
            self._records.write(name, content, before=self._records.revisions([name]).get(name, ""))

        retry_on_conflict(keep)

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
        wanted: list[str] = list(passages)
        mine: dict[str, list[str]] = {}
        for at in range(0, len(wanted), 400):
            some = wanted[at : at + 400]
            marks = ",".join("?" * len(some))
            for passage, source in self._rows(f"SELECT passage, source FROM retired WHERE passage IN ({marks})", *some):  # noqa: S608
                mine.setdefault(source, []).append(passage)
        for source, gone in mine.items():

            def change(told: Json, gone: Sequence[str] = gone) -> Json | None:
                rows = {one: [*told["retired"][one][:5], 1] for one in gone if one in told["retired"]}
                return {**told, "retired": {**told["retired"], **rows}} if rows else None

            self._rewrite(source, change)

    def forget_names(self, matches: Callable[[str], bool]) -> int:
        self.fresh(whole=True)
        done = 0
        for source in self.sources(live=False):
            found = self._forget_in_docs(source.id, matches)

            def change(told: Json, found: int = found) -> Json | None:
                kept = json.dumps(told, ensure_ascii=False)
                told["skipped"] = [] if matches_any(matches, told["skipped"]) else told["skipped"]
                for row in told["retired"].values():
                    row[4] = [] if matches_any(matches, row[4]) else row[4]
                for row in told["tries"].values():
                    row[2] = "" if matches(row[2]) else row[2]
                return told if found or json.dumps(told, ensure_ascii=False) != kept else None

            before = self._held(source.id)[2]
            with contextlib.suppress(NotFound):
                self._rewrite(source.id, change)
                done += found or int(self._held(source.id)[2] != before)
        return done

    def _forget_in_docs(self, source: str, matches: Callable[[str], bool]) -> int:
        done = 0
        for one in self._records.listed(f"{DOCS}/{source}"):
            held = self._records.read(one.name)
            told, found = (read_json(held.content, one.name) if held is not None else {}), 0
            for doc in told.values():
                found += matches(doc[2]) + sum(matches_any(matches, row[6]) for row in doc[3])
                doc[2] = "" if matches(doc[2]) else doc[2]
                for row in doc[3]:
                    row[6] = [] if matches_any(matches, row[6]) else row[6]
            if found and held is not None:
                revision = self._records.write(one.name, written_json(told), before=held.revision)
                with self._transaction() as db:
                    copy_bucket(db, source, one.name, told, revision)
            done += found
        return done

    # --- bytes -----------------------------------------------------------------------------------------------------

    def drop_blobs(self) -> int:
        """Nothing: bytes go with their document, or with their source."""
        return 0

    def pushed(self, work: QueuedWork) -> bytes | None:
        if self._open[0] != work.id:
            held = self._records.read(str(work.id))
            return None if held is None else held.content.partition(b"\n")[2]
        return self._open[1]

    def kept(self, source: str, ref: str) -> bytes | None:
        held = self._records.read(blob_of(source, ref))
        return None if held is None else held.content

    def bytes_elsewhere(self) -> list[tuple[SharedRecords, str]]:
        return [(self._records, one.name) for folder in (QUEUE, BLOBS) for one in self._records.listed(folder)]
