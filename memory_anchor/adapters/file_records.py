"""Shared records as files, and the turn of a request that is made of one record, wherever records are.

Shared records as files of one data directory, each a file of its name: what a laptop and a single server have.

Replaced whole and synced; two processes that write at once are told apart under one lock. A revision is what `stat`
says of the file (a replaced one is another inode), so a look costs no reading.

One request that is sent to two replicas in the same moment: the second waits until the first is answered.

A record made once is the turn. Whoever finds it there waits until it goes, and then finds by its receipt what the first
one did. A replica that was killed holds it for `HELD_S` at most. Rejected: a write that carries its request as its
point's id, since what a request stores is decided after it was recognised.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from memory_anchor.errors import BadInput, ChangedMeanwhile, MemoryAnchorError, TooLarge, Unavailable
from memory_anchor.files import file_lock, make_private, ours, read_with_stat, remove_durably, write_atomic
from memory_anchor.hashing import stable_hash
from memory_anchor.ports import ListedRecord, SharedRecord, SharedRecords

BYTES_MAX = 64 << 20
LOCK_FILE = "records.lock"
HIDDEN = (".lock", ".tmp")


class FileRecords:
    """Thread-safe, and safe across processes of one machine."""

    is_shared = False

    def __init__(self, data_dir: Path) -> None:
        self._root = data_dir

    def read(self, name: str) -> SharedRecord | None:
        path = self._path(name)
        try:
            found = read_with_stat(path, most_bytes=BYTES_MAX)
        except OSError as error:
            raise ours(error, path) from error
        return None if found is None else SharedRecord(name, found[0], _of(found[1]))

    def revisions(self, names: Sequence[str]) -> dict[str, str]:
        return {name: found for name in names if (found := _stamp(self._path(name)))}

    def write(self, name: str, content: bytes, *, before: str, durable: bool = True) -> str:
        if len(content) > BYTES_MAX:
            raise TooLarge(f"{name} would have {len(content)} bytes; allowed are {BYTES_MAX}")
        path = self._path(name)
        with file_lock(self._root / LOCK_FILE):
            if _stamp(path) != before:
                raise ChangedMeanwhile(f"{path} was changed meanwhile; nothing was written, try again.")
            make_private(path.parent)
            write_atomic(path, content, durable=durable)
            return _stamp(path)

    def delete(self, name: str, *, before: str) -> None:
        path = self._path(name)
        with file_lock(self._root / LOCK_FILE):
            held = _stamp(path)
            if held and held != before:
                raise ChangedMeanwhile(f"{path} was changed meanwhile; nothing was removed, try again.")
            try:
                if held:
                    remove_durably(path)
            except OSError as error:
                raise ours(error, path) from error

    def listed(self, folder: str) -> list[ListedRecord]:
        found = []
        for path in sorted(self._path(folder).rglob("*")):
            try:
                seen = path.lstat()
            except OSError:
                continue
            if stat.S_ISREG(seen.st_mode) and path.suffix not in HIDDEN:
                found.append(ListedRecord(path.relative_to(self._root).as_posix(), _of(seen), seen.st_mtime))
        return found

    def _path(self, name: str) -> Path:
        return self._root / checked_name(name)


def checked_name(name: str) -> str:
    """Return a name that stays below the data directory. Raises BadInput."""
    path = PurePosixPath(name)
    if not name or len(name) > 200 or path.is_absolute() or ".." in path.parts or path.as_posix() != name:
        raise BadInput(f"{name[:80]!r} is no name of a record; allowed are up to 200 characters such as team/keys.json")
    return name


def _stamp(path: Path) -> str:
    try:
        found = path.lstat()
    except OSError:
        return ""
    return _of(found) if stat.S_ISREG(found.st_mode) else ""


def _of(found: os.stat_result) -> str:
    return f"{found.st_ino}.{found.st_size}.{found.st_mtime_ns}.{found.st_ctime_ns}"


FOLDER = "turns"
HELD_S = 20.0
WAIT_S = 25.0
PAUSE_S = 0.02
NAME_CHARS = 40


class RequestTurns:
    """Thread-safe."""

    def __init__(self, records: SharedRecords) -> None:
        self._records = records

    @contextlib.contextmanager
    def of(self, key: str) -> Iterator[None]:
        """Hold a request's turn for the block; a request that nothing names has none to wait for.

        Raises Unavailable: it is at work elsewhere all the time.
        """
        if not key:
            yield
            return
        name = f"{FOLDER}/{stable_hash('turn', key)[:NAME_CHARS]}"
        revision = self._taken(name)
        try:
            yield
        finally:
            with contextlib.suppress(MemoryAnchorError):  # it ends by itself
                self._records.delete(name, before=revision)

    def _taken(self, name: str) -> str:
        end, pause, before = time.monotonic() + WAIT_S, threading.Event(), ""
        while True:
            try:
                return self._records.write(name, json.dumps(time.time() + HELD_S).encode(), before=before)
            except ChangedMeanwhile:
                held = self._records.read(name)
                before = held.revision if held is not None and float(json.loads(held.content)) < time.time() else ""
            if time.monotonic() > end:
                raise Unavailable("another replica does the same request at this moment; send it again")
            pause.wait(PAUSE_S)
