"""Knowledge of several replicas: whose turn it is to read the queue, and the records they share.

One replica reads at a time, under a lease that expires; a replica with nothing left to read releases it. A removal on
another replica goes first: the reader yields between two batches. A single process always has the turn.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from memory_anchor.adapters.system import SystemClock, new_token
from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Json
from memory_anchor.domain.errors import MemoryAnchorError, Unavailable
from memory_anchor.extensions.knowledge.catalogue import PassagePlace, Row, insert_document, source_row
from memory_anchor.extensions.knowledge.sources import Source
from memory_anchor.upkeep.leases import RUNNER_FILE, Lease, NoLease, StoreLease, runner_id

if TYPE_CHECKING:
    import sqlite3

    from memory_anchor.domain.ports import MemoryStore

NAME = "knowledge"
LEASE_S, RENEW_S = 20.0, 5.0
"""After `LEASE_S` another replica continues the work of a killed one."""
WAIT_S, PAUSE_S = 30.0, 0.05


class ReadingTurn:
    """The turn to read the queue. Thread-safe. on_taken: called when another replica may have had the turn before."""

    def __init__(
        self, lease: Lease | None, monotonic: Callable[[], float], on_taken: Callable[[], None] = lambda: None
    ) -> None:
        """lease: None for a single process."""
        self._monotonic = monotonic
        self._lease: Lease = lease or NoLease()
        self._on_taken = on_taken
        self._renewed_at = float("-inf")
        self.is_ours = False

    @classmethod
    def of_replica(
        cls, store: MemoryStore, data_dir: Path, monotonic: Callable[[], float], on_taken: Callable[[], None]
    ) -> ReadingTurn:
        holder = runner_id(data_dir / RUNNER_FILE, new_token)
        lease = StoreLease(store, SystemClock(), holder, name=NAME, lasts_s=LEASE_S, renew_s=RENEW_S)
        return cls(lease, monotonic, on_taken)

    def take(self) -> bool:
        """Return whether the turn is ours, after taking it if it is free. Raises Unavailable."""
        was_ours, self.is_ours = self.is_ours, self._lease.held()
        if self.is_ours:
            now = self._monotonic()
            if not was_ours or now - self._renewed_at > LEASE_S:
                self._on_taken()
            self._renewed_at = now
        return self.is_ours

    def renew(self) -> None:
        """Keep the turn while a step takes long."""
        if self.is_ours and self._lease.held():
            self._renewed_at = self._monotonic()

    def release(self) -> None:
        if self.is_ours:
            self.is_ours = False
            self._lease.release()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the turn during the block, after waiting for another replica. Raises Unavailable: it took too long."""
        end, pause = self._monotonic() + WAIT_S, threading.Event()
        while not self.take():
            if self._monotonic() > end:
                raise Unavailable("another replica reads knowledge at this moment; ask again in a minute")
            pause.wait(PAUSE_S)
        try:
            yield
        finally:
            with contextlib.suppress(MemoryAnchorError):
                self.release()


class TurnPoll:
    """Renews the turn while a document takes long, and looks for what others accepted and could not read."""

    def __init__(self, turn: ReadingTurn, look: Callable[[], None]) -> None:
        self._turn, self._look = turn, look
        self._ending = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="knowledge poll", daemon=True).start()

    def end(self) -> None:
        self._ending.set()

    def _run(self) -> None:
        while not self._ending.wait(RENEW_S):
            with contextlib.suppress(MemoryAnchorError):
                if self._turn.is_ours:
                    self._turn.renew()
                self._look()


# --- records: their names, and the rows of the local copy ------------------------------------------------------------

SOURCES, DOCS, QUEUE, BLOBS = (f"knowledge/{part}" for part in ("sources", "docs", "queue", "blobs"))
BUCKETS = 64
NAME_CHARS = 26
COPIED_TABLE = """
CREATE TABLE IF NOT EXISTS copied(name TEXT PRIMARY KEY, source TEXT, revision TEXT, content TEXT DEFAULT '');
"""
"""The revision of each record as it was copied; of a source its content too."""


class SourceRecord(TypedDict):
    """The record of a source. state: live or removing. tries: queued record -> tries, due, error.

    retired: passage -> ref, sha, first line, last line, heading, whether its text is out of the store.
    """

    source: dict[str, Json]
    state: str
    tries: dict[str, Row]
    retired: dict[str, Row]
    synced_at: str
    cursor: str
    skipped: list[str]
    counted: dict[str, int]
    removing_at: NotRequired[str]


Documents = dict[str, Row]
"""Ref -> stamp, sha, title, rows of places: the content of a bucket."""


def bucket_of(source: str, ref: str) -> str:
    """Return the name of the record that a document is in."""
    return f"{DOCS}/{source}/{int(stable_hash(ref)[:8], 16) % BUCKETS:02}.json"


def blob_of(source: str, ref: str) -> str:
    return f"{BLOBS}/{source}/{stable_hash(ref)[:NAME_CHARS]}"


def source_of(name: str) -> str:
    """Return the source in a record's name; "" for "".

    >>> source_of("knowledge/queue/0abc/x")
    '0abc'
    """
    return PurePosixPath(name).parent.name


def retired_row(place: PassagePlace) -> Row:
    return [place.ref, place.sha, place.line_start, place.line_end, list(place.heading), 0]


def with_settings_of(source: Source, content: SourceRecord) -> SourceRecord | None:
    """Return a source's record with the trust and options of `source`, None where it has them."""
    fields: dict[str, Json] = {**content["source"], "trust": source.trust.value, "options": dict(source.options)}
    return None if content["source"] == fields else {**content, "source": fields}


def copy_source(db: sqlite3.Connection, name: str, content: SourceRecord, revision: str) -> None:
    """Make the copy of a source equal to its record."""
    source = content["source"]["id"]
    row = [*source_row(content["source"]), content["state"], content["synced_at"], content["cursor"]]
    row += [json.dumps(content["skipped"]), json.dumps(content["counted"])]
    db.execute(f"INSERT OR REPLACE INTO source VALUES({','.join('?' * len(row))})", row)
    db.execute("DELETE FROM retired WHERE source=?", (source,))
    db.executemany(
        "INSERT OR REPLACE INTO retired VALUES(?,?,?,?,?,?,?,?)",
        [
            (passage, source, *place, json.dumps(heading, ensure_ascii=False), emptied)
            for passage, (*place, heading, emptied) in content["retired"].items()
        ],
    )
    db.execute("DELETE FROM queue WHERE source=?", (source,))
    db.executemany(
        "INSERT INTO queue(source, what, tries, due, wrong) VALUES(?,?,?,?,?)",
        [(source, queued, *row) for queued, row in content["tries"].items()],
    )
    copied = (name, source, revision, json.dumps(content, ensure_ascii=False))
    db.execute("INSERT OR REPLACE INTO copied VALUES(?,?,?,?)", copied)


def copy_bucket(db: sqlite3.Connection, source: str, name: str, documents: Documents, revision: str) -> None:
    """Make the copy of some documents equal to their record."""
    for (ref,) in db.execute("SELECT ref FROM document WHERE source=?", (source,)).fetchall():
        if bucket_of(source, ref) == name:
            db.execute("DELETE FROM document WHERE source=? AND ref=?", (source, ref))
            db.execute("DELETE FROM place WHERE source=? AND ref=?", (source, ref))
    for ref, (stamp, sha, title, places) in documents.items():
        insert_document(db, source, ref, (stamp, sha, title, places))
    db.execute("DELETE FROM copied WHERE name=?", (name,))
    if revision:
        db.execute("INSERT INTO copied VALUES(?,?,?,'')", (name, source, revision))


def encoded(content: SourceRecord | Documents) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")


def decoded(content: bytes, name: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise Unavailable(f"the record {name} on the server cannot be read; restore a backup of the store") from None
