"""Small named texts that outlive a process, as files of one data directory.

A record is a file of its name, such as `team/keys.json`. It is replaced whole and synced, under one lock that tells two
writers apart. Its revision is what `stat` says of the file (a replaced one is another inode), so a look costs no
reading. Revision "": there is no such record.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from memory_anchor.base.files import file_error, file_lock, make_private, read_with_stat, remove_durably, write_atomic
from memory_anchor.domain.errors import BadInput, ChangedMeanwhile, TooLarge
from memory_anchor.domain.ports import ListedRecord, StoredRecord

BYTES_MAX = 64 << 20
LOCK_FILE = "records.lock"
HIDDEN = (".lock", ".tmp")


class FileRecords:
    """The port `SmallRecords`. Thread-safe, and safe across processes of one machine."""

    def __init__(self, data_dir: Path) -> None:
        self._root = data_dir

    def read(self, name: str) -> StoredRecord | None:
        path = self._path(name)
        try:
            file = read_with_stat(path, most_bytes=BYTES_MAX)
        except OSError as error:
            raise file_error(error, path) from error
        return None if file is None else StoredRecord(name, file[0], _revision(file[1]))

    def revisions(self, names: Sequence[str]) -> dict[str, str]:
        return {name: revision for name in names if (revision := _stored_revision(self._path(name)))}

    def write(self, name: str, content: bytes, *, before: str | None, durable: bool = True) -> str:
        if len(content) > BYTES_MAX:
            raise TooLarge(f"{name} would have {len(content)} bytes; allowed are {BYTES_MAX}")
        path = self._path(name)
        with file_lock(self._root / LOCK_FILE):
            if before is not None and _stored_revision(path) != before:
                raise ChangedMeanwhile(f"{path} was changed meanwhile; nothing was written, try again.")
            make_private(path.parent)
            write_atomic(path, content, durable=durable)
            return _stored_revision(path)

    def delete(self, name: str, *, before: str | None) -> None:
        path = self._path(name)
        with file_lock(self._root / LOCK_FILE):
            stored = _stored_revision(path)
            if stored and before is not None and stored != before:
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

    def unit(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()  # each file is written by itself

    def wipe(self) -> None:
        """Do nothing: a file that is gone leaves no log."""

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
