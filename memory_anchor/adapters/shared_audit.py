"""The audit trail of one of several replicas, with a copy of it on the server they share; theirs is read from there.

Each replica has a chain of its own, in its data directory as ever. Once the lines of a write are synced, their bytes go
into the records `audit/CHAIN/OFFSET.jsonl` before anybody is answered, so a replica that is lost takes no acknowledged
line along. Put one behind the other these records are the file, byte for byte, and verify as it does. Where the server
does not take them the lines wait, and nothing more is written here until it does. A data directory that went back in
time (a backup) begins another chain beside the first: nothing on the server is written over but the last record, by
more of the same.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath

from memory_anchor.adapters.audit import BrokenLink, JsonlAudit
from memory_anchor.durability import Durability
from memory_anchor.errors import ChangedMeanwhile, MemoryAnchorError, Unavailable, retry_on_conflict
from memory_anchor.files import make_private, ours, write_atomic
from memory_anchor.json_values import Json
from memory_anchor.ports import SharedRecords

log = logging.getLogger("memory_anchor")
FOLDER = "audit"
SEGMENT_BYTES = 128 << 10
"""From which on the next lines begin another record: each write sends the last one anew."""
SHIPPED_BYTES = 8 << 20
"""Sent in one record where much waits."""
CHAINS_OF_ONE = 100
READ = "replicas"
"""Beside the trail: other chains as they were read last."""


class SharedAudit(JsonlAudit):
    """chain: the replica's name; thread-safe, and safe across processes of one data directory."""

    def __init__(self, path: Path, records: SharedRecords, chain: str, *, durability: Durability | None = None) -> None:
        super().__init__(path, durability=durability)
        self._records, self._replica = records, chain
        self._chain, self._segment, self._shipped_until, self._revision = "", 0, 0, ""
        self._shipping = threading.Lock()
        self._owes = False

    def append(self, kind: str, what: Mapping[str, Json], *, by: str, at: datetime) -> str:
        if self._owes:
            self.ship()
        return super().append(kind, what, by=by, at=at)

    def _sync(self) -> None:
        super()._sync()
        try:
            self.ship()
        except MemoryAnchorError as error:  # on disk here; what is written next waits for the server
            self._owes = True
            log.warning("audit lines wait for the server: %s", error)

    def ship(self) -> None:
        """Send what the server does not have yet. Raises Unavailable and what the server's errors become."""
        with self._shipping:
            retry_on_conflict(self._ship)
            self._owes = False

    def _ship(self) -> None:
        self._chain = self._chain or self._found()
        while fresh := self._read(self._shipped_until, SHIPPED_BYTES):
            if self._shipped_until - self._segment >= SEGMENT_BYTES:
                self._segment, self._revision = self._shipped_until, ""
            held = self._read(self._segment, self._shipped_until - self._segment)
            try:
                self._revision = self._records.write(
                    _segment(self._chain, self._segment), held + fresh, before=self._revision
                )
            except ChangedMeanwhile:  # another process of this folder sent some of it
                self._chain = ""
                raise
            self._shipped_until += len(fresh)

    def _found(self) -> str:
        """Return this file's chain on the server: the newest one that it goes on from, or a new one."""
        for number in range(CHAINS_OF_ONE):
            chain = f"{self._replica}-{number}" if number else self._replica
            names = [one.name for one in self._records.listed(f"{FOLDER}/{chain}")]
            if not names:
                self._segment, self._shipped_until, self._revision = 0, 0, ""
                return chain
            last = self._records.read(names[-1])
            begin = int(PurePosixPath(names[-1]).stem)
            if last is not None and self._read(begin, len(last.content), whole=False) == last.content:
                self._segment, self._shipped_until, self._revision = begin, begin + len(last.content), last.revision
                return chain
        raise Unavailable(f"{CHAINS_OF_ONE} chains of {self._replica} are on the server; start with an empty folder")

    def _read(self, begin: int, count: int, *, whole: bool = True) -> bytes:
        """Return bytes of the file, up to the end of a line."""
        try:
            with self.path.open("rb") as file:
                file.seek(begin)
                found = file.read(count)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise ours(error, self.path) from error
        return found[: found.rfind(b"\n") + 1] if whole else found

    # --- every replica's -------------------------------------------------------------------------------------------

    def chains(self) -> list[str]:
        """Return every chain of the service, this one among them."""
        return sorted({PurePosixPath(one.name).parent.name for one in self._records.listed(FOLDER)})

    def verify_all(self) -> Iterator[tuple[Path, int, BrokenLink | None]]:
        """Yield each chain as a file to read, how many records it has, and its first broken link."""
        for chain in self.chains():
            trail = self.brought(chain)
            yield trail.path, sum(1 for _ in trail.records()), trail.verify()

    def brought(self, chain: str) -> JsonlAudit:
        """Return a chain as the server has it, in a file of its own beside this trail."""
        folder = self.path.parent / READ
        make_private(folder)
        trail = _BroughtTrail(folder / f"{chain}.jsonl")
        names = [one.name for one in self._records.listed(f"{FOLDER}/{chain}")]
        trail.bring([held.content for name in names if (held := self._records.read(name)) is not None])
        return trail


class _BroughtTrail(JsonlAudit):
    """Another replica's chain."""

    def bring(self, parts: Sequence[bytes]) -> None:
        """Become these bytes, acknowledged up to their end."""
        write_atomic(self.path, b"".join(parts))
        self._head.unlink(missing_ok=True)
        last = next(iter(deque(self.records(), maxlen=1)), None)
        if last is not None:
            self._write_head(last["n"], last["hash"])


def _segment(chain: str, begin: int) -> str:
    return f"{FOLDER}/{chain}/{begin:012}.jsonl"
