"""What one device knows of the exchange: names of versions, what was sent, how far every device was read. No text.

One small SQLite file beside the store. All of it can be made anew from the store and the segments (a lost or damaged
ledger is begun again and the folder is read from its start), so the store stays the record.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from memory_anchor.errors import Unavailable
from memory_anchor.files import PRIVATE, make_private
from memory_anchor.model import point_id

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
_ASKED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class KnownVersion:
    """One version of one memory by its names. number: what it has in this store. own: this device tells of it."""

    name: str
    id: str
    said: str
    hint: int
    number: int
    parents: frozenset[str]
    own: bool = False
    sent: bool = False
    device: str = ""
    generation: int = 0
    segment: int = 0


@dataclass(frozen=True, slots=True)
class Reached:
    """How far one device was read: its generation, the number of its last segment and that file's hash."""

    generation: int = 0
    segment: int = 0
    hash: str = ""


class Ledger:
    """Used by one thread at a time."""

    def __init__(self, folder: Path) -> None:
        make_private(folder)
        self._path = folder / FILE
        self._path.touch(mode=PRIVATE)
        self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            self._begin()
        except sqlite3.DatabaseError:
            self._db.close()
            self._path.unlink(missing_ok=True)
            self._path.touch(mode=PRIVATE)
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            self._begin()

    def _begin(self) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(_TABLES)
        if self.meta("schema") != str(SCHEMA):
            self.clear()

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Keep what the block says, all of it or nothing, durable at its end."""
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
        """Forget everything, to be learnt anew; what humans signed and the generation of the own chain stay."""
        with self.changing():
            for table in ("known", "left_out", "seen"):
                self._db.execute(f"DELETE FROM {table}")  # noqa: S608 - names of ours
            self._db.execute("UPDATE gone SET sent = 0")
            self._db.execute("DELETE FROM meta WHERE name NOT IN ('generation', 'card')")
            self.set_meta("schema", str(SCHEMA))

    # --- versions --------------------------------------------------------------------------------------------------

    def of(self, memory_id: str) -> list[KnownVersion]:
        return self._read("WHERE id = ?", memory_id)

    def to_send(self, most: int) -> list[KnownVersion]:
        """Return what no segment of this device holds, what was written over after what it was written over."""
        return self._read("WHERE own = 1 AND sent = 0 ORDER BY hint, rowid LIMIT ?", most)

    def count_to_send(self) -> int:
        return int(self._db.execute("SELECT COUNT(*) FROM known WHERE own = 1 AND sent = 0").fetchone()[0])

    def count(self) -> int:
        return int(self._db.execute("SELECT COUNT(*) FROM known").fetchone()[0])

    def points(self) -> set[str]:
        return {one for (one,) in self._db.execute("SELECT point FROM known WHERE number > 0")}

    def knows(self, names: Iterable[str]) -> set[str]:
        """Return those of these versions that are in the store here, or were left out on purpose."""
        wanted, found = list(names), set()
        for start in range(0, len(wanted), _ASKED_AT_ONCE):
            part = wanted[start : start + _ASKED_AT_ONCE]
            marks = ",".join("?" * len(part))
            for table in ("known WHERE number > 0 AND", "left_out WHERE"):
                rows = self._db.execute(f"SELECT name FROM {table} name IN ({marks})", part)  # noqa: S608
                found |= {one for (one,) in rows}
        return found

    def keep(self, versions: Iterable[KnownVersion]) -> None:
        """Write versions down; one that is known gets its number here, and every parent that was ever named."""
        for one in versions:
            before = self._read("WHERE name = ?", one.name)
            parents = one.parents | (before[0].parents if before else frozenset())
            own = one.own or bool(before and before[0].own)
            sent = one.sent or bool(before and before[0].sent)
            origin = before[0] if before and before[0].device else one
            self._db.execute(
                "INSERT OR REPLACE INTO known VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
                (
                    *(one.name, one.id, one.said, one.hint, one.number, point_id(one.id, one.number)),
                    *(json.dumps(sorted(parents)), int(own), int(sent)),
                    *(origin.device, origin.generation, origin.segment),
                ),
            )

    def leave_out(self, names: Iterable[str]) -> None:
        self._db.executemany("INSERT OR IGNORE INTO left_out VALUES (?)", ((name,) for name in names))

    def sent(self, names: Sequence[str]) -> None:
        self._db.executemany("UPDATE known SET sent = 1 WHERE name = ?", ((name,) for name in names))

    def send_again(self) -> None:
        """Begin a new generation of the own chain: everything that this device tells of is to be sent."""
        self._db.execute("UPDATE known SET sent = 0 WHERE own = 1")
        self._db.execute("UPDATE gone SET sent = 0")
        self.set_meta("generation", str(self.generation + 1))

    def take_over(self, device: str, last: Reached) -> int:
        """Make own what a revoked device told beyond its last counted segment; return how many versions."""
        beyond = "device = ? AND own = 0 AND (generation > ? OR (generation = ? AND segment > ?))"
        done = self._db.execute(
            f"UPDATE known SET own = 1, sent = 0 WHERE {beyond}",  # noqa: S608
            (device, last.generation, last.generation, last.segment),
        )
        return done.rowcount

    def _read(self, where: str, *values: str | int) -> list[KnownVersion]:
        rows = self._db.execute(
            "SELECT name, id, said, hint, number, parents, own, sent, device, generation, segment FROM known "  # noqa: S608
            + where,
            values,
        )
        return [
            KnownVersion(name, of, said, hint, number, frozenset(json.loads(parents)), bool(own), bool(sent), *origin)
            for name, of, said, hint, number, parents, own, sent, *origin in rows
        ]

    # --- what was purged -------------------------------------------------------------------------------------------

    def gone(self) -> dict[str, str]:
        """Return memory id -> the human's signed word that it is purged, "" where no human signed it yet."""
        return dict(self._db.execute("SELECT id, signed FROM gone"))

    def unsigned(self) -> list[str]:
        return [one for (one,) in self._db.execute("SELECT id FROM gone WHERE signed = '' ORDER BY id")]

    def note_gone(self, ids: Iterable[str], signed: str = "") -> None:
        """Write down that memories are purged, and drop what is known of their versions."""
        for one in ids:
            self._db.execute("INSERT OR IGNORE INTO gone VALUES (?, '', 0)", (one,))
            if signed:
                self._db.execute("UPDATE gone SET signed = ? WHERE id = ? AND signed = ''", (signed, one))
            self._db.execute("DELETE FROM known WHERE id = ?", (one,))

    def gone_to_send(self) -> list[str]:
        """Return the signed words that no segment of this device holds."""
        rows = self._db.execute("SELECT DISTINCT signed FROM gone WHERE signed != '' AND sent = 0")
        return [one for (one,) in rows]

    def gone_sent(self, signed: Sequence[str]) -> None:
        self._db.executemany("UPDATE gone SET sent = 1 WHERE signed = ?", ((one,) for one in signed))

    # --- how far ---------------------------------------------------------------------------------------------------

    def reached(self, device: str) -> Reached:
        row = self._db.execute("SELECT generation, segment, hash FROM seen WHERE device = ?", (device,)).fetchone()
        return Reached(*row) if row else Reached()

    def reach(self, device: str, last: Reached) -> None:
        row = (device, last.generation, last.segment, last.hash)
        self._db.execute("INSERT OR REPLACE INTO seen VALUES (?,?,?,?)", row)

    @property
    def generation(self) -> int:
        return int(self.meta("generation") or "1")

    def meta(self, name: str) -> str:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else ""

    def set_meta(self, name: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?,?)", (name, value))
