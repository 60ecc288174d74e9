"""Shared records as files of one data directory, and turns: one request at a time, wherever records are.

A record is a file of its name: what a laptop and a single server have. It is replaced whole and synced, under one lock
that tells two writers apart. Its revision is what `stat` says of the file (a replaced one is another inode), so a look
costs no reading.

A turn serves one request that reaches two replicas at the same moment: the second waits until the first is answered.
The turn is a record that exists meanwhile; whoever finds it waits until it goes, and then finds by its receipt what the
first one did. A replica that was killed holds it for `HELD_S` at most. Rejected: a write that carries its request as
its point's id, since what a request stores is decided after it was recognised.
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

from memory_anchor.base.files import file_error, file_lock, make_private, read_with_stat, remove_durably, write_atomic
from memory_anchor.base.hashing import stable_hash
from memory_anchor.domain.errors import BadInput, ChangedMeanwhile, MemoryAnchorError, TooLarge, Unavailable
from memory_anchor.domain.ports import ListedRecord, SharedRecord, SharedRecords

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
            file = read_with_stat(path, most_bytes=BYTES_MAX)
        except OSError as error:
            raise file_error(error, path) from error
        return None if file is None else SharedRecord(name, file[0], _revision(file[1]))

    def revisions(self, names: Sequence[str]) -> dict[str, str]:
        return {name: revision for name in names if (revision := _stored_revision(self._path(name)))}

    def write(self, name: str, content: bytes, *, before: str, durable: bool = True) -> str:
        if len(content) > BYTES_MAX:
            raise TooLarge(f"{name} would have {len(content)} bytes; allowed are {BYTES_MAX}")
        path = self._path(name)
        with file_lock(self._root / LOCK_FILE):
            if _stored_revision(path) != before:
                raise ChangedMeanwhile(f"{path} was changed meanwhile; nothing was written, try again.")
            make_private(path.parent)
            write_atomic(path, content, durable=durable)
            return _stored_revision(path)

    def delete(self, name: str, *, before: str) -> None:
        path = self._path(name)
        with file_lock(self._root / LOCK_FILE):
            stored = _stored_revision(path)
            if stored and stored != before:
                raise ChangedMeanwhile(f"{path} was changed meanwhile; nothing was removed, try again.")
            try:
                if stored:
                    remove_durably(path)
            except OSError as error:
                raise file_error(error, path) from error

    def listed(self, folder: str) -> list[ListedRecord]:
        records = []
        for path in sorted(self._path(folder).rglob("*")):
            with contextlib.suppress(OSError):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode) and path.suffix not in HIDDEN:
                    name = path.relative_to(self._root).as_posix()
                    records.append(ListedRecord(name, _revision(status), status.st_mtime))
        return records

    def _path(self, name: str) -> Path:
        return self._root / checked_name(name)


def checked_name(name: str) -> str:
    """Return a name that stays below the data directory. Raises BadInput."""
    path = PurePosixPath(name)
    if not name or len(name) > 200 or path.is_absolute() or ".." in path.parts or path.as_posix() != name:
        raise BadInput(f"{name[:80]!r} is no name of a record; allowed are up to 200 characters such as team/keys.json")
    return name


def _stored_revision(path: Path) -> str:
    try:
        status = path.lstat()
    except OSError:
        return ""
    return _revision(status) if stat.S_ISREG(status.st_mode) else ""


def _revision(status: os.stat_result) -> str:
    return f"{status.st_ino}.{status.st_size}.{status.st_mtime_ns}.{status.st_ctime_ns}"


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
        """Hold the turn of the request `key` for the block; "" names no request and waits for nothing.

        Raises Unavailable: another replica works on it all the time.
        """
        if not key:
            yield
            return
        name = f"{FOLDER}/{stable_hash('turn', key)[:NAME_CHARS]}"
        revision = self._take(name)
        try:
            yield
        finally:
            with contextlib.suppress(MemoryAnchorError):  # it expires by itself
                self._records.delete(name, before=revision)

    def _take(self, name: str) -> str:
        end, pause, before = time.monotonic() + WAIT_S, threading.Event(), ""
        while True:
            try:
                return self._records.write(name, json.dumps(time.time() + HELD_S).encode(), before=before)
            except ChangedMeanwhile:
                turn = self._records.read(name)
                before = turn.revision if turn is not None and float(json.loads(turn.content)) < time.time() else ""
            if time.monotonic() > end:
                raise Unavailable("another replica does the same request at this moment; send it again")
            pause.wait(PAUSE_S)
