"""The audit trail: append-only JSON lines, each carrying the hash of the one before.

So a trail is kept in a directory of the old layout, and in backups; in a database it is rows (`store.audit_rows`). A
record is durable (fsync) before `append` returns. Several processes may append: an OS lock covers reading the chain's
end and writing after it.

- A head file beside the trail says how far it was acknowledged, so cutting records off the end shows: the next append
  first records the gap, numbering continues from the head, and `verify` reports the gap for ever.
- A kill in the middle of a write leaves a torn last line, never acknowledged. It is kept, closed with a line break, and
  the next record carries its hash; from then on it is part of the chain.
- A write and its record were two files, so the write was noted before and the note removed after. What a kill left
  noted and stored is recorded by the upgrade (`complete`), marked as recovered.

Invariant: any changed byte before the acknowledged end makes `verify` report a line. Out of reach: a process of the
same user that rewrites the whole chain and its head.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import FileIO
from itertools import islice
from pathlib import Path

from memory_anchor.adapters.audit_chain import (
    GAP,
    MAX_RECORD_BYTES,
    NEEDS_HEAD,
    START,
    BrokenLink,
    broken_link,
    chain_record,
    chained_line,
    link_fault,
    made_here,
)
from memory_anchor.base.files import PRIVATE, file_error, file_lock, sync_folder, sync_handle
from memory_anchor.base.json_values import Json, Record, items, parsed, records, text, whole
from memory_anchor.domain.ports import AuditRecord

TORN = "torn"
RECOVERED = "recovered"
"""A record of versions that were stored before a power cut and whose own record was not on disk yet."""
NOT_STORED = "not_stored"
"""A record of versions that the trail names and the store lost in a power cut, before anybody was answered."""
_VERSION_FIELDS = {"id", "version", "layer", "content_hash"}
STORED_IN_A_ROW = 64
"""Stored records in a row at which `reconcile` stops looking back: a power cut takes the end of a log, and one
collection's is on disk before the next is written to. The row leaves room for writers that worked at the same time."""
RECOVERED_EACH = 50
ENDS_RECONCILING = frozenset({"purge", "purge_begun", "sync_moved", NOT_STORED, RECOVERED, "torn", "gap"})
NOTES = "pending"
"""The folder of notes beside the trail: one small file a write in progress."""
NOTES_MAX = 10_000
TAIL_BYTES = 8 * 1024 * 1024
"""How far back the trail is searched for the versions of a note: thousands of records."""
IMPORTS_BYTES = 64_000
_HEAD = re.compile(rb"(\d{12}) ([0-9a-f]{64})\n")
_HEAD_BYTES = 78


@dataclass(frozen=True, slots=True)
class _End:
    """Where the chain ends. torn: bytes of an unfinished last line, not yet closed."""

    number: int
    hash: str
    size: int
    torn: bytes = b""


class JsonlAudit:
    """The `AuditLog` port over one file (0600) in a private folder; thread-safe, and safe across processes."""

    def __init__(self, path: Path) -> None:
        self.path, self.place = path, str(path)
        self._head = path.with_name(path.name + ".head")
        self._lock_file = path.with_name(path.name + ".lock")
        self._notes = path.parent / NOTES
        self._imports = path.with_name(path.name + ".imported")
        self._lock = threading.Lock()
        self._end: _End | None = None

    def size(self) -> int:
        """Return the bytes of the trail."""
        return self.path.stat().st_size if self.path.exists() else 0

    def append(self, kind: str, what: Mapping[str, Json], *, by: str, at: datetime) -> str:
        """Append one record, durable on return; return its hash (64 hex digits).

        what: JSON values, never a memory's text or a secret.
        Raises BadInput: over `MAX_RECORD_BYTES`. Refused, DiskFull, Unavailable: it cannot be written.
        """
        with self._lock, file_lock(self._lock_file):
            try:
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, PRIVATE)
                with os.fdopen(handle, "r+b", buffering=0) as file:
                    end = self._chain_end(file)
                    if end is not self._end:  # a file new to this process, or another one wrote
                        end = self._mended(file, end, at)
                    end = self._write(file, end, kind, what, by=by, at=at)
                    sync_handle(handle)
                    is_first = not self._head.exists()  # from then on, a trail without a head is known to be cut
                    self._write_head(end.number, end.hash)  # after the record is on disk: it never runs ahead
                    if is_first:
                        sync_folder(self.path.parent)
            except OSError as error:
                self._end = None
                raise file_error(error, self.path) from error
            self._end = end
        return end.hash

    def complete(self, stored: Callable[[Mapping[str, Json]], bool], *, now: datetime) -> int:
        """Record what a killed process noted and stored but did not record; return how many versions.

        stored: whether a version (`{id, version, layer, content_hash}`) is there. Called before anything is written.
        Raises what `append` raises.
        """
        notes = sorted(self._notes.glob("*.json"))[:NOTES_MAX] if self._notes.is_dir() else []
        logged = _versions_in(self._tail()) if notes else frozenset()
        count = 0
        for path in notes:
            note = _note(path)
            for what in records(note.get("whats")):
                missing = [memory for memory in _memories_in(what) if _version(memory) not in logged and stored(memory)]
                if missing:
                    recovered: Record = {"memories": missing, "recovered_at": now.isoformat()}
                    by, at = text(note["by"]), datetime.fromisoformat(text(note["at"]))
                    self.append(text(note["kind"]), recovered, by=by, at=at)
                    count += len(missing)
            path.unlink()
        return count

    def reconcile(
        self,
        stored: Callable[[Mapping[str, Json]], bool],
        since: Callable[[datetime | None], Iterable[Mapping[str, Json]]],
        *,
        now: datetime,
    ) -> tuple[int, int]:
        """Compare the end of the trail with the store: a power cut may leave either behind the other.

        stored: as for `complete`. since(at): the store's versions recorded from `at` on (None: ever), as a record names
        them. What is stored and not recorded is recorded (`RECOVERED`); what is recorded, never acknowledged and not
        stored is recorded as lost (`NOT_STORED`). Returns how many versions of each. Raises what `append` raises.
        """
        tail = self._tail()
        logged = _versions_in(tail)
        lost, at = _not_stored(tail, stored)
        missing = (record for record in since(at) if _version(record) not in logged)
        return self._append_each(RECOVERED, missing, now), self._append_each(NOT_STORED, lost, now)

    def _append_each(self, kind: str, versions: Iterable[Mapping[str, Json]], now: datetime) -> int:
        """Append records of these versions, `RECOVERED_EACH` in one; return how many versions there were."""
        remaining, count = iter(versions), 0
        while part := [dict(version) for version in islice(remaining, RECOVERED_EACH)]:
            self.append(kind, {"memories": part}, by="system", at=now)
            count += len(part)
        return count

    def _tail(self) -> list[AuditRecord]:
        try:
            with self.path.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return []
        return [record for raw in lines if (record := chain_record(raw)) is not None]

    def verify(self) -> BrokenLink | None:
        """Return the first broken link, None when the whole chain holds.

        A recorded gap counts as one and is reported with the next. A trail that is gone breaks at its first line when
        the head says that there was one.
        """
        if not self.path.parent.exists():
            return None
        with self._lock, file_lock(self._lock_file):
            return broken_link(self._lines(), self._read_head(), self._head.name)

    def settled(self, at: datetime) -> tuple[int, str] | None:
        """Close what a kill left at the end of the trail; return how far it is acknowledged, None for no trail."""
        if not self.path.exists():
            return None
        with self._lock, file_lock(self._lock_file):
            with self.path.open("r+b", buffering=0) as file:
                file.seek(0, os.SEEK_END)
                self._mended(file, self._chain_end(file), at)
            self._end = None
            return self._read_head()

    def lines(self) -> Iterator[tuple[bytes, bool]]:
        """Yield every line as it stands, and whether it came with an import; not a torn one that is accounted for."""
        imported = self._imported()
        for _, raw in self._lines():
            record = chain_record(raw)
            yield raw, record is not None and any(first <= record["n"] <= last for first, last in imported)

    def records(self, kinds: str = "") -> Iterator[AuditRecord]:
        """Yield every readable record whose kind begins with `kinds`, oldest first, without verifying it."""
        mark = b'"kind":"%s' % kinds.encode()
        for _, raw in self._lines():
            record = chain_record(raw) if mark in raw else None
            if record is not None and str(record["kind"]).startswith(kinds) and raw.endswith(b"\n"):
                yield record

    def first(self, kind: str) -> dict[str, Json] | None:
        """Return the `what` of the first record of a kind that was appended here, None without one."""
        imported = self._imported()
        found = (record for _, raw in self._lines() if (record := made_here(raw, kind, imported)))
        record = next(found, None)
        return record["what"] if record is not None else None

    def latest(self, kind: str) -> dict[str, Json] | None:
        """Return the `what` of the last record of a kind that was made here, None without one; reads the whole file."""
        imported = self._imported()
        last: dict[str, Json] | None = None
        for _, raw in self._lines():
            if record := made_here(raw, kind, imported):
                last = record["what"]
        return last

    def _imported(self) -> list[tuple[int, int]]:
        """Return the numbers (first, last) of records that came with an import, from another installation."""
        try:
            lines = self._imports.read_bytes()[:IMPORTS_BYTES].split(b"\n")
            return [(int(first), int(last)) for first, _, last in (line.partition(b" ") for line in lines if line)]
        except (OSError, ValueError):
            return []

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield numbered lines, leaving out a torn one whose bytes the next record accounts for."""
        torn: tuple[int, bytes] | None = None
        try:
            with self.path.open("rb") as file:
                for line, raw in enumerate(file, start=1):
                    record = chain_record(raw)
                    if torn is not None:
                        content = torn[1].removesuffix(b"\n")
                        what = record["what"] if record and record["kind"] in (TORN, GAP) else {}
                        if (what.get("bytes"), what.get("sha256")) != (
                            len(content),
                            hashlib.sha256(content).hexdigest(),
                        ):
                            yield torn
                    torn = (line, raw) if record is None else None
                    if torn is None:
                        yield line, raw
        except FileNotFoundError:
            return
        except OSError as error:
            raise file_error(error, self.path) from error
        if torn is not None:
            yield torn

    def _chain_end(self, file: FileIO) -> _End:
        """Return where to append; reads the last lines only when another process wrote since."""
        size = os.fstat(file.fileno()).st_size
        if self._end is not None and self._end.size == size:
            return self._end
        file.seek(max(0, size - 3 * MAX_RECORD_BYTES))
        body, _, torn = file.read().rpartition(b"\n")
        for raw in reversed(body.split(b"\n")):
            if record := chain_record(raw):
                return _End(record["n"], record["hash"], size, torn)
        return _End(0, START, size, torn)

    def _mended(self, file: FileIO, end: _End, at: datetime) -> _End:
        """Close a torn last line, record what of the chain is gone, and return where it continues."""
        what: dict[str, Json] = {}
        if end.torn:
            file.write(b"\n")
            record = chain_record(end.torn)
            if record is not None and not link_fault(record, end.torn + b"\n", number=end.number, previous=end.hash):
                end = _End(record["n"], record["hash"], end.size + 1)  # only its line break was missing
            else:
                what = {"bytes": len(end.torn), "sha256": hashlib.sha256(end.torn).hexdigest()}
                end = _End(end.number, end.hash, end.size + 1)
        head = self._read_head()
        same = head is not None and head[0] == end.number and head[1] == end.hash
        if end.number >= NEEDS_HEAD if head is None else head[0] >= end.number and not same:
            what |= {"expected": None if head is None else head[0], "found": end.number}
            end = _End(max(end.number, head[0] if head else 0), end.hash, end.size)
            return self._write(file, end, GAP, what, by="system", at=at)
        return self._write(file, end, TORN, what, by="system", at=at) if what else end

    def _write(self, file: FileIO, end: _End, kind: str, what: Mapping[str, Json], *, by: str, at: datetime) -> _End:
        line, hashed = chained_line(end.number, end.hash, kind, what, by=by, at=at)
        if file.write(line) != len(line):
            raise OSError(28, "short write", str(self.path))
        return _End(end.number + 1, hashed, end.size + len(line))

    def _write_head(self, number: int, hashed: str) -> None:
        # In place and, but for a new one, without fsync: after a power cut it may lag behind, which does no harm.
        is_new = not self._head.exists()
        with os.fdopen(os.open(self._head, os.O_WRONLY | os.O_CREAT, PRIVATE), "r+b", buffering=0) as file:
            file.write(b"%012d %s\n" % (number, hashed.encode()))
            if is_new:
                os.fsync(file.fileno())

    def _read_head(self) -> tuple[int, str] | None:
        try:
            match = _HEAD.fullmatch(self._head.read_bytes()[:_HEAD_BYTES])
        except FileNotFoundError:
            return None
        except OSError as error:
            raise file_error(error, self._head) from error
        return (int(match[1]), match[2].decode()) if match else None


def _version(memory: Record) -> tuple[str, int]:
    return text(memory["id"]), whole(memory["version"])


def _memories_in(what: Record) -> list[Record]:
    """Return the versions that a record names: several, or the one it is."""
    return [entry for entry in items(what.get("memories", [what])) if isinstance(entry, dict)]


def _versions_in(records: Iterable[AuditRecord]) -> frozenset[tuple[str, int]]:
    """Return (id, version) of the versions that these records name."""
    memories = (memory for record in records for memory in _memories_in(record["what"]))
    return frozenset(_version(memory) for memory in memories if {"id", "version"} <= set(memory))


def _not_stored(tail: Sequence[AuditRecord], stored: Callable[[Record], bool]) -> tuple[list[Record], datetime | None]:
    """Return the versions at the end of a trail that are not stored, newest first, and from when on it was searched.

    Back to `STORED_IN_A_ROW` records that are stored, or to one that took versions away, before which all was on disk.
    """
    lost: list[Record] = []
    at, in_a_row = None, 0
    for record in reversed(tail):
        is_end = record["kind"] in ENDS_RECONCILING
        versions = (
            [] if is_end else [memory for memory in _memories_in(record["what"]) if memory.keys() >= _VERSION_FIELDS]
        )
        if versions or is_end:
            recorded_at = datetime.fromisoformat(record["at"])
            at = recorded_at if at is None else min(at, recorded_at)
            missing = [version for version in versions if not stored(version)]
            lost, in_a_row = lost + missing, 0 if missing else in_a_row + 1
        if is_end or in_a_row >= STORED_IN_A_ROW:
            break
    return lost, at


def _note(path: Path) -> Record:
    """Return a note; one that was cut short was written before anything was stored, and is empty."""
    try:
        note = parsed(path.read_bytes())
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}
