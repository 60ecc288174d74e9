"""Shared records as files of one data directory, each a file of its name: what a laptop and a single server have.

Replaced whole and synced; two processes that write at once are told apart under one lock. A revision is what `stat`
says of the file (a replaced one is another inode), so a look costs no reading.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from memory_anchor.errors import BadInput, ChangedMeanwhile, TooLarge, Unavailable
from memory_anchor.files import exclusive, make_private, ours, read_bounded, remove_durably, write_whole
from memory_anchor.ports import ListedRecord, SharedRecord

BYTES_MAX = 64 << 20
LOCK_FILE = "records.lock"
HIDDEN = (".lock", ".tmp")
READS = 5
"""Tries to read a file that is replaced again and again."""


class FileRecords:
    """Thread-safe, and safe across processes of one machine."""

    is_shared = False

    def __init__(self, data_dir: Path) -> None:
        self._root = data_dir

    def read(self, name: str) -> SharedRecord | None:
        path = self._path(name)
        for _ in range(READS):
            before = _stamp(path)
            try:
                content = read_bounded(path, most_bytes=BYTES_MAX)
            except OSError as error:
                raise ours(error, path) from error
            if content is None:
                return None
            if before and before == _stamp(path):
                return SharedRecord(name, content, before)
        raise Unavailable(f"{path} is written all the time; try again.")

    def revisions(self, names: Sequence[str]) -> dict[str, str]:
        return {name: found for name in names if (found := _stamp(self._path(name)))}

    def write(self, name: str, content: bytes, *, before: str, durable: bool = True) -> str:
        if len(content) > BYTES_MAX:
            raise TooLarge(f"{name} would have {len(content)} bytes; allowed are {BYTES_MAX}")
        path = self._path(name)
        with exclusive(self._root / LOCK_FILE):
            if _stamp(path) != before:
                raise ChangedMeanwhile(f"{path} was changed meanwhile; nothing was written, try again.")
            make_private(path.parent)
            write_whole(path, content, durable=durable)
            return _stamp(path)

    def delete(self, name: str, *, before: str) -> None:
        path = self._path(name)
        with exclusive(self._root / LOCK_FILE):
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
