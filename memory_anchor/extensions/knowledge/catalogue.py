"""The catalogue of sources: their documents, the places of their passages, and the queue. One SQLite file.

The store holds the texts and their vectors; this file maps passages to places in their sources and is the durable
queue: accepted work is on disk (`synchronous=FULL`), and a document's places are replaced in one transaction. It holds
no text of a document. The first source that is added creates it. Deleted rows are overwritten (`secure_delete`).
Rejected: payloads in the store, which has no transactions over documents.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_anchor.base import nofollow
from memory_anchor.base.files import file_error, make_private, sync_folder, write_atomic
from memory_anchor.base.json_values import Json, Record, record, text
from memory_anchor.domain.errors import DiskFull, StoreDamaged
from memory_anchor.domain.model import Scope, Trust, Visibility
from memory_anchor.extensions.knowledge.sources import Source, SourceKind, SyncProgress

if TYPE_CHECKING:
    import sqlite3


Row = list[Any]
"""Columns of a table."""
DocumentRow = tuple[str, str, str, Sequence[Row]]
"""A document as it was read: stamp, sha, title and the rows of its places."""
FILE = "knowledge.sqlite"
SOURCES_MAX = 1_000
QUEUE_MAX = 10_000
BLOB_BYTES_MAX = 16 << 20
SYNC = "sync"
"""Work that is no upload: scan the whole source."""
TRIES_MAX = 6
BACKOFF_S = 5.0
RETIRED_MAX = 20_000
"""Passages of a source that are gone and whose citations still open."""
_VALUES_AT_ONCE = 400
_PLACE = "ref,number,passage,sha,line_start,line_end,page,heading"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS source(id TEXT PRIMARY KEY, kind TEXT, ref TEXT, trust TEXT, account TEXT, project TEXT,
  user TEXT, agent TEXT, visibility TEXT, options TEXT, added_at TEXT, state TEXT DEFAULT 'live', synced_at TEXT,
  cursor TEXT DEFAULT '', skipped TEXT DEFAULT '[]', counted TEXT DEFAULT '{}');
CREATE TABLE IF NOT EXISTS document(source TEXT, ref TEXT, stamp TEXT, sha TEXT, title TEXT, PRIMARY KEY(source, ref))
  WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS place(source TEXT, ref TEXT, number INTEGER, passage TEXT, sha TEXT, line_start INTEGER,
  line_end INTEGER, page INTEGER, heading TEXT, PRIMARY KEY(source, ref, number)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS place_passage ON place(source, passage);
CREATE TABLE IF NOT EXISTS retired(passage TEXT PRIMARY KEY, source TEXT, ref TEXT, sha TEXT, line_start INTEGER,
  line_end INTEGER, heading TEXT, emptied INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS queue(id INTEGER PRIMARY KEY, source TEXT, what TEXT, tries INTEGER DEFAULT 0, due TEXT,
  wrong TEXT DEFAULT '');
"""


@dataclass(frozen=True, slots=True)
class PassagePlace:
    """Where one passage of a source is; a text that occurs twice has two places. sha: of its document."""

    ref: str
    number: int
    passage: str
    sha: str
    line_start: int
    line_end: int
    page: int | None = None
    heading: tuple[str, ...] = ()

    @property
    def row(self) -> Row:
        """Return what is stored of a place below its document."""
        return [self.number, self.passage, self.sha, self.line_start, self.line_end, self.page, list(self.heading)]


@dataclass(frozen=True, slots=True)
class QueuedWork:
    """Work that was accepted. id: names it in its catalogue. task: `SYNC`, or JSON of an upload."""

    id: int | str
    source: str
    task: str
    tries: int


@dataclass(frozen=True, slots=True)
class SourceState:
    """How far a source is read. skipped: a sentence for each document left out. counted: reason -> how many were.

    reading: the progress, while it is read.
    """

    source: Source
    state: str
    documents: int
    passages: int
    synced_at: str
    waiting: int
    error: str
    skipped: tuple[str, ...] = ()
    counted: Mapping[str, int] = field(default_factory=dict)
    reading: SyncProgress | None = None


class Catalogue:
    """The catalogue of one process. Thread-safe; one connection, opened on first use. more: further tables."""

    def __init__(self, data_dir: Path, name: str = "knowledge", *, more: str = "") -> None:
        self.folder = data_dir / name
        self.blobs = self.folder / "blobs"
        self._schema = _SCHEMA + more
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None

    @property
    def is_used(self) -> bool:
        """Return whether any source was ever added here."""
        return self._db is not None or (self.folder / FILE).exists()

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Keep the file unchanged: no transaction runs meanwhile."""
        with self._lock:
            yield

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        import sqlite3

        with self._lock:
            try:
                db = self._db or self._open_file()
                with db:
                    yield db
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                    raise DiskFull(f"{self.folder} has no room; nothing was changed; free some space.") from error
                raise StoreDamaged(f"{self.folder / FILE} cannot be used ({error}); run `doctor`.") from error
            except sqlite3.DatabaseError as error:
                raise StoreDamaged(
                    f"{self.folder / FILE} is damaged ({error}); move it away and add the sources again."
                ) from error

    def _open_file(self) -> sqlite3.Connection:
        import sqlite3

        make_private(self.folder)
        path = self.folder / FILE
        is_new = not path.exists()
        db = sqlite3.connect(path, check_same_thread=False)
        pragmas = "PRAGMA journal_mode=TRUNCATE; PRAGMA synchronous=FULL; PRAGMA secure_delete=ON;"
        db.executescript(pragmas + self._schema)
        if is_new:
            path.chmod(0o600)
            sync_folder(self.folder)
        self._db = db
        return db

    def _rows(self, sql: str, *values: str | int) -> list[Any]:
        if not self.is_used:
            return []
        with self._transaction() as db:
            return db.execute(sql, values).fetchall()

    def _rows_in(self, sql: str, members: Iterable[str], *values: str) -> Iterator[Row]:
        """Yield the rows of a query that ends with `IN `, a few hundred members at a time."""
        listed = list(members)
        for start in range(0, len(listed), _VALUES_AT_ONCE):
            batch = listed[start : start + _VALUES_AT_ONCE]
            yield from self._rows(f"{sql}({','.join('?' * len(batch))})", *values, *batch)

    # --- sources ---------------------------------------------------------------------------------------------------

    def sources(self, *, live: bool = True) -> list[Source]:
        """Return the sources; those that are being removed only if `live` is False."""
        rows = self._rows("SELECT * FROM source WHERE state='live' OR ? ORDER BY added_at, id", not live)
        return [_source(row) for row in rows]

    def states(self) -> list[SourceState]:
        documents = dict(
            self._rows("SELECT source, count(*) FROM document WHERE NOT (sha='' AND title<>'') GROUP BY source")
        )
        passages = dict(self._rows("SELECT source, count(DISTINCT passage) FROM place GROUP BY source"))
        queued = {
            row[0]: row[1:] for row in self._rows("SELECT source, count(*), max(wrong) FROM queue GROUP BY source")
        }
        states = []
        for row in self._rows("SELECT * FROM source ORDER BY added_at, id"):
            state, synced_at, _, skipped, counted = row[11:]
            waiting, error = queued.get(row[0], (0, ""))
            states.append(
                SourceState(
                    source=_source(row),
                    state=state,
                    documents=documents.get(row[0], 0),
                    passages=passages.get(row[0], 0),
                    synced_at=synced_at or "",
                    waiting=waiting,
                    error=error,
                    skipped=tuple(json.loads(skipped)),
                    counted=json.loads(counted),
                )
            )
        return states

    def put_source(self, source: Source, task: str, *, now: datetime, content: bytes | None = None) -> Source:
        """Add a source, or change its trust and options, and queue its reading; durable on return.

        content: pushed bytes, stored as a blob. Return the source as stored.
        """
        if content is not None:
            self._store_blob(str(json.loads(task)["sha"]), content)
        with self._transaction() as db:
            db.execute(
                "INSERT INTO source(id,kind,ref,trust,account,project,user,agent,visibility,options,added_at) VALUES"
                "(?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT(id) DO UPDATE SET trust=excluded.trust, options=excluded.options,"
                " cursor=CASE WHEN trust=excluded.trust AND options=excluded.options THEN cursor ELSE '' END",
                source_row(source_fields(source)),
            )
            _queue(db, source.id, task, now)
        return source

    def queue(self, source: str, task: str, *, now: datetime) -> None:
        with self._transaction() as db:
            _queue(db, source, task, now)

    def move(self, sources: Sequence[str], project: str) -> None:
        """Move sources to a project."""
        if sources:
            with self._transaction() as db:
                db.executemany("UPDATE source SET project=? WHERE id=?", [(project, name) for name in sources])

    def mark_removing(self, source: str) -> None:
        with self._transaction() as db:
            db.execute("UPDATE source SET state='removing' WHERE id=?", (source,))
            db.execute("DELETE FROM queue WHERE source=?", (source,))

    def unfinished_removals(self) -> list[Source]:
        """Return the sources whose removal was interrupted."""
        live = self.sources()
        return [source for source in self.sources(live=False) if source not in live]

    def drop_source(self, source: str) -> int:
        """Delete everything about a source; return how many blobs were deleted.

        The file is packed, so that no free page still holds its rows.
        """
        with self._transaction() as db:
            for table in ("document", "place", "retired", "queue"):
                db.execute(f"DELETE FROM {table} WHERE source=?", (source,))  # noqa: S608 - our own names
            db.execute("DELETE FROM source WHERE id=?", (source,))
        with self._lock:
            if self._db is not None:
                self._db.execute("VACUUM")
        return self.drop_blobs()

    def note_sync(
        self, source: str, *, now: datetime, cursor: str, skipped: Sequence[str], counted: Mapping[str, int]
    ) -> None:
        """Record the result of a sync, and delete the oldest of too many retired passages."""
        with self._transaction() as db:
            db.execute(
                "UPDATE source SET synced_at=?, cursor=?, skipped=?, counted=? WHERE id=?",
                (now.isoformat(), cursor, json.dumps(list(skipped)), json.dumps(dict(counted)), source),
            )
            db.execute(
                "DELETE FROM retired WHERE source=? AND emptied=1 AND rowid NOT IN"
                " (SELECT rowid FROM retired WHERE source=? ORDER BY rowid DESC LIMIT ?)",
                (source, source, RETIRED_MAX),
            )

    def cursor(self, source: str) -> str:
        rows = self._rows("SELECT cursor FROM source WHERE id=?", source)
        return str(rows[0][0]) if rows else ""

    # --- the queue -------------------------------------------------------------------------------------------------

    def next_work(self, *, now: datetime) -> QueuedWork | None:
        """Return the work to do next; failed work only once it is due."""
        rows = self._rows(
            "SELECT id, source, what, tries FROM queue WHERE due<=? AND tries<? ORDER BY due, id LIMIT 1",
            now.isoformat(),
            TRIES_MAX,
        )
        return QueuedWork(*rows[0]) if rows else None

    def count_due(self, *, now: datetime) -> int:
        """Return how much work is due now."""
        rows = self._rows("SELECT count(*) FROM queue WHERE due<=? AND tries<?", now.isoformat(), TRIES_MAX)
        return int(rows[0][0]) if rows else 0

    def count_waiting(self) -> int:
        rows = self._rows("SELECT count(*) FROM queue WHERE tries<?", TRIES_MAX)
        return int(rows[0][0]) if rows else 0

    def mark_done(self, work: QueuedWork) -> None:
        with self._transaction() as db:
            db.execute("DELETE FROM queue WHERE id=?", (work.id,))

    def mark_failed(self, work: QueuedWork, error: str, *, now: datetime) -> None:
        """Leave the work for later, or for good after `TRIES_MAX`."""
        with self._transaction() as db:
            row = (work.tries + 1, retry_at(work, now), error[:500], work.id)
            db.execute("UPDATE queue SET tries=?, due=?, wrong=? WHERE id=?", row)

    # --- documents and places --------------------------------------------------------------------------------------

    def stamps(self, source: str) -> dict[str, str]:
        """Return document -> its stamp when it was read."""
        return dict(self._rows("SELECT ref, stamp FROM document WHERE source=?", source))

    def count_documents(self, source: str) -> int:
        rows = self._rows("SELECT count(*) FROM document WHERE source=?", source)
        return int(rows[0][0]) if rows else 0

    def problems_of(self, source: str) -> list[str]:
        """Return the sentence of each document that could not be read: the title of one without bytes."""
        rows = self._rows("SELECT title FROM document WHERE source=? AND sha='' AND title<>'' ORDER BY ref", source)
        return [str(row[0]) for row in rows]

    def places(self, source: str, *, refs: Iterable[str] = (), passages: Iterable[str] = ()) -> list[PassagePlace]:
        """Return the places of these documents and of these passages, in the order of their lines."""
        places: dict[tuple[str, int], PassagePlace] = {}
        for column, values in (("ref", refs), ("passage", passages)):
            sql = f"SELECT {_PLACE} FROM place WHERE source=? AND {column} IN "  # noqa: S608 - our own names
            for *row, heading in self._rows_in(sql, values, source):
                ref, number, passage, sha, start, end, page = row
                place = PassagePlace(ref, number, passage, sha, start, end, page, tuple(json.loads(heading)))
                places[ref, number] = place
        return [places[key] for key in sorted(places)]

    def replace(
        self,
        source: str,
        documents: Mapping[str, DocumentRow],
        *,
        removed: Iterable[str],
        retired: Mapping[str, PassagePlace],
    ) -> None:
        """Replace what is stored of documents, by ref, all of it or nothing."""
        with self._transaction() as db:
            for ref in (*documents, *removed):
                db.execute("DELETE FROM place WHERE source=? AND ref=?", (source, ref))
            db.executemany("DELETE FROM document WHERE source=? AND ref=?", [(source, ref) for ref in removed])
            for ref, document in documents.items():
                insert_document(db, source, ref, document)
                db.executemany("DELETE FROM retired WHERE passage=?", [(passage,) for _, passage, *_ in document[3]])
            _retire(db, source, retired)

    def announce(self, source: str, passages: Mapping[str, PassagePlace]) -> None:
        """Record points that are about to be stored; they count as retired until `replace` stores their places."""
        if passages:
            with self._transaction() as db:
                _retire(db, source, passages)

    def to_empty(self, source: str, *, limit: int) -> list[str]:
        """Return retired passages whose text may still be in the store."""
        rows = self._rows(
            "SELECT passage FROM retired WHERE source=? AND emptied=0 AND NOT EXISTS"
            " (SELECT 1 FROM place WHERE place.source=retired.source AND place.passage=retired.passage) LIMIT ?",
            source,
            limit,
        )
        return [str(row[0]) for row in rows]

    def mark_emptied(self, passages: Iterable[str]) -> None:
        with self._transaction() as db:
            db.executemany("UPDATE retired SET emptied=1 WHERE passage=?", [(passage,) for passage in passages])

    def retired(self, passage: str) -> tuple[str, PassagePlace] | None:
        """Return the source and last place of a retired passage."""
        rows = self._rows("SELECT source,ref,sha,line_start,line_end,heading FROM retired WHERE passage=?", passage)
        if not rows:
            return None
        source, ref, sha, start, end, heading = rows[0]
        return str(source), PassagePlace(ref, 0, passage, sha, start, end, None, tuple(json.loads(heading)))

    def forget_names(self, matches: Callable[[str], bool]) -> int:
        """Empty every heading, title and sentence that matches; return how many."""
        count = 0
        with self._transaction() as db:
            for table, column, empty in (
                ("place", "heading", "[]"),
                ("retired", "heading", "[]"),
                ("document", "title", ""),
                ("source", "skipped", "[]"),
                ("queue", "wrong", ""),
            ):
                for (value,) in db.execute(f"SELECT DISTINCT {column} FROM {table}").fetchall():  # noqa: S608
                    if matches(value) or matches_any(matches, _texts(value)):
                        update = f"UPDATE {table} SET {column}=? WHERE {column}=?"  # noqa: S608
                        count += db.execute(update, (empty, value)).rowcount
        return count

    # --- blobs -----------------------------------------------------------------------------------------------------

    def _store_blob(self, sha: str, content: bytes) -> None:
        """Store the bytes of an upload under their hash, durable on return."""
        make_private(self.blobs)
        try:
            if not (self.blobs / sha).exists():
                write_atomic(self.blobs / sha, content)
        except OSError as error:
            raise file_error(error, self.blobs) from error

    def queued_bytes(self, work: QueuedWork) -> bytes | None:
        """Return the bytes of a queued upload, None where they are deleted. Raises OSError."""
        return self._blob(str(json.loads(work.task)["sha"]))

    def document_bytes(self, source: str, ref: str) -> bytes | None:
        """Return the bytes of an upload that was read, None where they are deleted. Raises OSError."""
        return self._blob(self.stamps(source).get(ref, "").partition(":")[0])

    def _blob(self, sha: str) -> bytes | None:
        return nofollow.read(self.blobs, sha, most_bytes=BLOB_BYTES_MAX)

    def drop_blobs(self) -> int:
        """Delete every blob that no document and no queued work refers to; return how many."""
        used = {str(row[0]) for row in self._rows("SELECT DISTINCT sha FROM document")}
        uploads = self._rows("SELECT what FROM queue WHERE what<>?", SYNC)
        used |= {str(json.loads(task)["sha"]) for (task,) in uploads}
        removed = 0
        if self.blobs.is_dir():
            for path in self.blobs.iterdir():
                if path.name not in used:
                    with contextlib.suppress(OSError):
                        os.truncate(path, 0)
                        path.unlink()
                        removed += 1
            sync_folder(self.blobs)
        return removed


def matches_any(matches: Callable[[str], bool], texts: Sequence[str]) -> bool:
    """Return whether one of these texts matches, or all of them line by line."""
    return any(map(matches, texts)) or matches("\n".join(texts))


def _texts(value: str) -> list[str]:
    """Return the texts of a list as it is stored, or the one text."""
    try:
        listed = json.loads(value)
    except ValueError:
        return [value]
    return list(map(str, listed)) if isinstance(listed, list) else [value]


def retry_at(work: QueuedWork, now: datetime) -> str:
    """Return when failed work is tried again: each time twice as late."""
    return (now + timedelta(seconds=BACKOFF_S * 2**work.tries)).isoformat()


def insert_document(db: sqlite3.Connection, source: str, ref: str, document: DocumentRow) -> None:
    """Write one document with its places."""
    stamp, sha, title, places = document
    db.execute("INSERT OR REPLACE INTO document VALUES(?,?,?,?,?)", (source, ref, stamp, sha, title))
    db.executemany(
        "INSERT INTO place VALUES(?,?,?,?,?,?,?,?,?)",
        [(source, ref, *place, json.dumps(heading, ensure_ascii=False)) for *place, heading in places],
    )


def _retire(db: sqlite3.Connection, source: str, passages: Mapping[str, PassagePlace]) -> None:
    db.executemany(
        "INSERT OR REPLACE INTO retired(passage,source,ref,sha,line_start,line_end,heading) VALUES(?,?,?,?,?,?,?)",
        [
            (name, source, p.ref, p.sha, p.line_start, p.line_end, json.dumps(p.heading, ensure_ascii=False))
            for name, p in passages.items()
        ],
    )


def _queue(db: sqlite3.Connection, source: str, task: str, now: datetime) -> None:
    """Queue work once; queued again it is tried at once."""
    queued = db.execute("SELECT id FROM queue WHERE source=? AND what=?", (source, task)).fetchone()
    if queued:
        db.execute("UPDATE queue SET due=?, tries=0 WHERE id=?", (now.isoformat(), queued[0]))
    else:
        db.execute("INSERT INTO queue(source, what, due) VALUES(?,?,?)", (source, task, now.isoformat()))


# --- a source as JSON and as a row -----------------------------------------------------------------------------------


_COLUMNS = ("id", "kind", "ref", "trust", "account", "project", "user", "agent", "visibility", "options", "added_at")


def source_fields(source: Source) -> dict[str, Json]:
    """Return a source as JSON."""
    return {
        "id": source.id,
        "kind": source.kind.value,
        "ref": source.ref,
        "trust": source.trust.value,
        **{name: getattr(source.scope, name) for name in ("account", "project", "user", "agent")},
        "visibility": source.visibility.value,
        "options": dict(source.options),
        "added_at": source.added_at.isoformat(),
    }


def source_row(fields: Record) -> Row:
    """Return the first columns of a source's row."""
    return [json.dumps(fields[name]) if name == "options" else fields[name] for name in _COLUMNS]


def source_from(fields: Record) -> Source:
    return Source(
        id=text(fields["id"]),
        kind=SourceKind(text(fields["kind"])),
        ref=text(fields["ref"]),
        trust=Trust(text(fields["trust"])),
        scope=Scope(text(fields["account"]), text(fields["project"]), text(fields["user"]), text(fields["agent"])),
        added_at=datetime.fromisoformat(text(fields["added_at"])),
        visibility=Visibility(text(fields["visibility"])),
        options={name: text(value) for name, value in record(fields["options"]).items()},
    )


def _source(row: Row) -> Source:
    fields = dict(zip(_COLUMNS, row, strict=False))
    return source_from(fields | {"options": json.loads(fields["options"])})
