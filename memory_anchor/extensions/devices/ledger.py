"""One device's record of the exchange: names of versions, what was sent, how far each device was read. No text.

One small SQLite file next to the store. All of it can be rebuilt from the store and the segments: a lost or damaged
ledger starts empty, and the folder is read from its start.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from memory_anchor.base.files import PRIVATE, make_private
from memory_anchor.domain.errors import Unavailable
from memory_anchor.domain.model import point_id

FILE = "ledger.sqlite"
SCHEMA = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS known (name TEXT PRIMARY KEY, id TEXT, said TEXT, hint INTEGER, number INTEGER, point TEXT,
  parents TEXT, own INTEGER, sent INTEGER, device TEXT, generation INTEGER, segment INTEGER);
CREATE INDEX IF NOT EXISTS known_id ON known (id);
CREATE INDEX IF NOT EXISTS known_point ON known (point);
CREATE TABLE IF NOT EXISTS left_out (name TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS gone (id TEXT PRIMARY KEY, signed TEXT, sent INTEGER);
CREATE TABLE IF NOT EXISTS seen (device TEXT PRIMARY KEY, generation INTEGER, segment INTEGER, hash TEXT);
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT);
"""
_NAMES_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One version of one memory. number: in this store. own: whether this device sends it to others."""

    name: str
    id: str
    digest: str
    hint: int
    number: int
    parents: frozenset[str]
    own: bool = False
    sent: bool = False
    device: str = ""
    generation: int = 0
    segment: int = 0


@dataclass(frozen=True, slots=True)
class ChainPosition:
    """How far a device's chain was read: generation and number of the last segment, and the hash of its file."""

    generation: int = 0
    segment: int = 0
    hash: str = ""


class Ledger:
    """The ledger of one device, for one thread at a time."""

    def __init__(self, folder: Path) -> None:
        make_private(folder)
        self._path = folder / FILE
        try:
            self._open()
        except sqlite3.DatabaseError:
            self._db.close()
            self._path.unlink(missing_ok=True)
            self._open()

    def _open(self) -> None:
        self._path.touch(mode=PRIVATE)
        self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(_TABLES)
        if self.meta("schema") != str(SCHEMA):
            self.clear()

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Write the changes of the block, all or none, durable at its end."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise Unavailable(f"{self._path} cannot be written ({error}); nothing of it was changed") from error

    def clear(self) -> None:
        """Delete everything that can be rebuilt; signed purges and the own chain's generation stay."""
        with self.changing():
            for table in ("known", "left_out", "seen"):
                self._db.execute(f"DELETE FROM {table}")  # noqa: S608 - names of ours
            self._db.execute("UPDATE gone SET sent = 0")
            self._db.execute("DELETE FROM meta WHERE name NOT IN ('generation', 'card')")
            self.set_meta("schema", str(SCHEMA))

    # --- versions --------------------------------------------------------------------------------------------------

    def versions_of(self, memory_id: str) -> list[LedgerRow]:
        return self._read("WHERE id = ?", memory_id)

    def to_send(self, most: int) -> list[LedgerRow]:
        """Return versions that are in no segment of this device yet, each after its parents."""
        return self._read("WHERE own = 1 AND sent = 0 ORDER BY hint, rowid LIMIT ?", most)

    def count_to_send(self) -> int:
        return int(self._db.execute("SELECT COUNT(*) FROM known WHERE own = 1 AND sent = 0").fetchone()[0])

    def count(self) -> int:
        return int(self._db.execute("SELECT COUNT(*) FROM known").fetchone()[0])

    def points(self) -> set[str]:
        return {point for (point,) in self._db.execute("SELECT point FROM known WHERE number > 0")}

    def known_names(self, names: Iterable[str]) -> set[str]:
        """Return those of these versions that are in the store here, or were left out on purpose."""
        listed, known = list(names), set()
        for start in range(0, len(listed), _NAMES_AT_ONCE):
            batch = listed[start : start + _NAMES_AT_ONCE]
            placeholders = ",".join("?" * len(batch))
            for table in ("known WHERE number > 0 AND", "left_out WHERE"):
                rows = self._db.execute(f"SELECT name FROM {table} name IN ({placeholders})", batch)  # noqa: S608
                known |= {name for (name,) in rows}
        return known

    def record(self, versions: Iterable[LedgerRow]) -> None:
        """Write versions; an existing row gets the new number and all parents of both."""
        for version in versions:
            existing = next(iter(self._read("WHERE name = ?", version.name)), version)
            origin = existing if existing.device else version
            self._db.execute(
                "INSERT OR REPLACE INTO known VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
                (
                    *(version.name, version.id, version.digest, version.hint, version.number),
                    *(point_id(version.id, version.number), json.dumps(sorted(version.parents | existing.parents))),
                    *(version.own or existing.own, version.sent or existing.sent),
                    *(origin.device, origin.generation, origin.segment),
                ),
            )

    def leave_out(self, names: Iterable[str]) -> None:
        self._db.executemany("INSERT OR IGNORE INTO left_out VALUES (?)", ((name,) for name in names))

    def mark_sent(self, names: Sequence[str]) -> None:
        self._db.executemany("UPDATE known SET sent = 1 WHERE name = ?", ((name,) for name in names))

    def send_again(self) -> None:
        """Start a new generation of the own chain, in which this device sends everything again.

        With what others wrote of its memories: two new chains, each begun with a version written over one in the other,
        would keep a device that read neither before waiting for both.
        """
        every = "own OR number AND id IN (SELECT id FROM known WHERE own)"
        self._db.execute(f"UPDATE known SET own = 1, sent = 0 WHERE {every}")  # noqa: S608 - words of ours
        self._db.execute("UPDATE gone SET sent = 0")
        self.set_meta("generation", str(self.generation + 1))

    def take_over(self, device: str, last: ChainPosition) -> int:
        """Make the versions of a revoked device after its last counted segment our own; return how many."""
        beyond = "device = ? AND own = 0 AND (generation > ? OR (generation = ? AND segment > ?))"
        changed = self._db.execute(
            f"UPDATE known SET own = 1, sent = 0 WHERE {beyond}",  # noqa: S608
            (device, last.generation, last.generation, last.segment),
        )
        return changed.rowcount

    def _read(self, where: str, *values: str | int) -> list[LedgerRow]:
        rows = self._db.execute(
            "SELECT name, id, said, hint, number, parents, own, sent, device, generation, segment FROM known "  # noqa: S608
            + where,
            values,
        )
        return [
            LedgerRow(name, id, digest, hint, number, frozenset(json.loads(parents)), bool(own), bool(sent), *origin)
            for name, id, digest, hint, number, parents, own, sent, *origin in rows
        ]

    # --- purged memories -------------------------------------------------------------------------------------------

    def purged(self) -> dict[str, str]:
        """Return memory id -> the signed statement that it is purged, "" where no human signed it yet."""
        return dict(self._db.execute("SELECT id, signed FROM gone"))

    def unsigned(self) -> list[str]:
        return [id for (id,) in self._db.execute("SELECT id FROM gone WHERE signed = '' ORDER BY id")]

    def note_purged(self, ids: Iterable[str], signed: str = "") -> None:
        """Record that memories are purged, and delete the rows of their versions."""
        for id in ids:
            self._db.execute("INSERT OR IGNORE INTO gone VALUES (?, '', 0)", (id,))
            if signed:
                self._db.execute("UPDATE gone SET signed = ? WHERE id = ? AND signed = ''", (signed, id))
            self._db.execute("DELETE FROM known WHERE id = ?", (id,))

    def drop_names(self, ids: Iterable[str]) -> None:
        """Delete the rows of these memories' versions, which get names again as they are stored now."""
        self._db.executemany("DELETE FROM known WHERE id = ?", ((id,) for id in ids))

    def purges_to_send(self) -> list[str]:
        """Return the signed statements that are in no segment of this device yet."""
        rows = self._db.execute("SELECT DISTINCT signed FROM gone WHERE signed != '' AND sent = 0")
        return [signed for (signed,) in rows]

    def mark_purges_sent(self, signed: Sequence[str]) -> None:
        self._db.executemany("UPDATE gone SET sent = 1 WHERE signed = ?", ((statement,) for statement in signed))

    # --- positions -------------------------------------------------------------------------------------------------

    def position(self, device: str) -> ChainPosition:
        row = self._db.execute("SELECT generation, segment, hash FROM seen WHERE device = ?", (device,)).fetchone()
        return ChainPosition(*row) if row else ChainPosition()

    def set_position(self, device: str, position: ChainPosition) -> None:
        row = (device, position.generation, position.segment, position.hash)
        self._db.execute("INSERT OR REPLACE INTO seen VALUES (?,?,?,?)", row)

    @property
    def generation(self) -> int:
        return int(self.meta("generation") or "1")

    def meta(self, name: str) -> str:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else ""

    def set_meta(self, name: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?,?)", (name, value))
