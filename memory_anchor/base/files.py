"""Small durable files: read with a bound, replaced whole, shared between processes under one lock.

Keys, approved texts, proposals and the audit trail are a few kilobytes each and must survive a kill or a power cut at
any moment: written to a temporary file, fsync'ed, renamed into place, and the folder fsync'ed. `file_lock` is an OS
lock, which the kernel releases however the holder dies; its file is never deleted. The errors of the operating system
become ours here and nowhere else.

A folder may be *shared* (`share`): its files are copies of what a database holds, for other machines too. What is
written, removed or locked there then goes through the database, and `refresh` brings the copies up to date.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from memory_anchor.domain.errors import BadInput, DiskFull, MemoryAnchorError, NotFound, Refused, Unavailable

PRIVATE = 0o600
SHARED = 0o644
_SYNCED_AT_ONCE = 16
PIECE_BYTES = 1 << 20
PATH_SHOWN = 80
ASIDE_MAX = 1_000
"""Names tried for what is moved aside."""

if sys.platform == "win32":
    import msvcrt

    _LOCK, _UNLOCK = msvcrt.LK_LOCK, msvcrt.LK_UNLCK

    def _set_lock(handle: int, how: int) -> None:
        os.lseek(handle, 0, os.SEEK_SET)
        msvcrt.locking(handle, how, 1)

    def sync_handle(handle: int) -> None:
        """Return when what was written to an open file is on disk."""
        os.fsync(handle)

else:
    import fcntl

    _LOCK, _UNLOCK, _set_lock = fcntl.LOCK_EX, fcntl.LOCK_UN, fcntl.flock

    def sync_handle(handle: int) -> None:
        """Return when what was written to an open file is on disk."""
        full = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync alone leaves it in the drive's cache
        if full is not None:
            with contextlib.suppress(OSError):
                fcntl.fcntl(handle, full)
                return
        os.fsync(handle)


class SharedFolder(Protocol):
    """A folder whose small files are copies of what a database holds."""

    def shares(self, path: Path) -> bool:
        """Return whether a file below it is such a copy."""
        ...

    def refresh(self) -> None:
        """Bring the copies up to date."""
        ...

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Keep every other writer out, the copies up to date; what the block changes is stored whole or not at all."""
        ...

    def change(self, path: Path, content: bytes | None, here: Callable[[], None]) -> None:
        """Store a file's content (None: it is removed), and change the copy by `here`."""
        ...


_SHARED: dict[Path, SharedFolder] = {}


def share(folder: Path, by: SharedFolder | None) -> None:
    """Let a folder of this process be shared from now on; None: no longer."""
    if by is None:
        _SHARED.pop(folder, None)
    else:
        _SHARED[folder] = by


def refresh(path: Path) -> None:
    """Bring a shared folder up to date, itself or one above it; any other is as it is."""
    for folder in (path, *path.parents) if _SHARED else ():
        if (shared := _SHARED.get(folder)) is not None:
            shared.refresh()
            return


def shared_at(path: Path) -> SharedFolder | None:
    """Return who shares a file, None for one of this machine alone."""
    for folder in path.parents if _SHARED else ():
        if (shared := _SHARED.get(folder)) is not None:
            return shared if shared.shares(path) else None
    return None


def file_error(error: OSError, path: Path) -> MemoryAnchorError:
    """Return the error of ours that says why `path` could not be written or locked."""
    why = error.strerror or type(error).__name__
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Refused(f"{path} cannot be written ({why}); nothing was changed; make it writable and retry.")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{path} has no room; nothing was changed; free some space and retry.")
    return Unavailable(f"{path} cannot be used ({why}); nothing was changed.")


def make_folder(folder: Path, *, mode: int = 0o777) -> None:
    """Make `folder` and its parents where they are missing, their names durable on return. Raises OSError."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(mode=mode, exist_ok=True)
        sync_folder(new.parent)


def make_private(folder: Path) -> None:
    """Make `folder` readable by its owner alone; parents too where they are new."""
    try:
        make_folder(folder, mode=0o700)
        if stat.S_IMODE(folder.stat().st_mode) & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise file_error(error, folder) from error


def read_own_file(path: Path, *, most: int, last: int = 0, start: int = 0) -> bytes:
    """Return the bytes of a regular file of this user whose path came from an untrusted caller: a hook's payload.

    last: only so many at its end; start: from there on; 0 for all of it. Opened without blocking and without following
    a final link, judged by the open handle and read in pieces: a device or a pipe that nobody writes to costs neither
    memory nor a thread.
    Raises NotFound: no such file. BadInput: no regular file, another user's, above `most` bytes, or not readable.
    """
    flags = os.O_RDONLY
    for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_BINARY"):
        flags |= getattr(os, name, 0)
    try:
        handle = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"There is no file {path}.") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}.") from None
    except ValueError:
        raise BadInput(f"{str(path)[:PATH_SHOWN]!r} is no path of a file.") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise BadInput(f"{path} is no regular file; nothing was read of it.")
        if hasattr(os, "getuid") and status.st_uid != os.getuid():
            raise BadInput(f"{path} belongs to another user; nothing was read of it.")
        if status.st_size > most:
            raise BadInput(f"{path.name} has {status.st_size} bytes; allowed are {most}.")
        if 0 < last < status.st_size:
            start = status.st_size - last
        os.lseek(handle, start, os.SEEK_SET)
        pieces: list[bytes] = []
        remaining = most + 1
        while remaining > 0 and (piece := os.read(handle, min(PIECE_BYTES, remaining))):
            pieces.append(piece)
            remaining -= len(piece)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}.") from None
    finally:
        os.close(handle)
    if remaining <= 0:
        raise BadInput(f"{path.name} grew above {most} bytes while it was read.")
    return b"".join(pieces)


@contextlib.contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, waiting until it is free; threads of one process exclude each other too.

    Its folder is made private. Keep what is inside short (no prompt, no network): the wait has no bound of its own.
    """
    if (shared := shared_at(path)) is not None:
        with shared.lock():
            yield
        return
    make_private(path.parent)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), PRIVATE)
    except OSError as error:
        raise file_error(error, path) from error
    try:
        _set_lock(handle, _LOCK)
        try:
            yield
        finally:
            _set_lock(handle, _UNLOCK)
    finally:
        os.close(handle)


def move_aside(path: Path, *, folder: bool = False) -> None:
    """Rename a link or anything else that takes the place of a regular file (or folder) of ours. Raises OSError."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode):
        return
    free = (path.with_name(f".{path.name}.aside-{number}") for number in range(ASIDE_MAX))
    path.rename(next((name for name in free if not os.path.lexists(name)), path.with_name(f".{path.name}.aside")))
    sync_folder(path.parent)


def read_bounded(path: Path, *, most_bytes: int) -> bytes | None:
    """Return the bytes of a regular file, None when there is none.

    Raises OSError: it is no file, cannot be read, or holds more than `most_bytes`. Never waits on a pipe or a device.
    """
    result = read_with_stat(path, most_bytes=most_bytes)
    return None if result is None else result[0]


def read_with_stat(path: Path, *, most_bytes: int) -> tuple[bytes, os.stat_result] | None:
    """Return the bytes of a regular file and the `stat` of the same open file; else as `read_bounded`."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if status.st_size > most_bytes:
            raise OSError(errno.EFBIG, f"more than {most_bytes} bytes", str(path))
        file = os.fdopen(handle, "rb")
    except OSError:
        os.close(handle)  # fdopen does not close what it refuses: a folder read often would use up the descriptors
        raise
    with file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"more than {most_bytes} bytes", str(path))
    return content, status


def write_atomic(path: Path, content: bytes, *, mode: int = PRIVATE, durable: bool = True) -> None:
    """Replace `path` by `content`, all of it or not at all, durable on return unless a kill is all it must outlive.

    An existing file keeps its mode unless `mode` is private. A symbolic link is replaced, never followed.
    """
    if (shared := shared_at(path)) is not None:
        shared.change(path, content, lambda: replace_file(path, content, mode=mode, durable=durable))
        return
    replace_file(path, content, mode=mode, durable=durable)


def replace_file(path: Path, content: bytes, *, mode: int = PRIVATE, durable: bool = True) -> None:
    """Replace a file of this machine alone, as `write_atomic` does."""
    old_mode = _mode_of(path) if mode != PRIVATE else None
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        make_folder(path.parent)
        temporary.unlink(missing_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                if old_mode is not None:
                    temporary.chmod(old_mode)
                if durable:
                    sync_handle(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        if durable:
            sync_folder(path.parent)
    except OSError as error:
        raise file_error(error, path) from error


def _mode_of(path: Path) -> int | None:
    """Return the permissions of a regular file that is there already."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    return stat.S_IMODE(mode) if stat.S_ISREG(mode) else None


def replace_durably(temporary: Path, path: Path) -> None:
    """Rename a written temporary file into place, durable on return. Raises OSError."""
    sync_file(temporary)
    temporary.replace(path)
    sync_folder(path.parent)


def remove_durably(path: Path) -> None:
    """Remove a file; it does not come back after a power cut. Raises OSError."""
    if (shared := shared_at(path)) is not None:
        shared.change(path, None, lambda: path.unlink(missing_ok=True))
        return
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Return when a file's content is on disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
    try:
        sync_handle(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Make a rename durable; does nothing on file systems that cannot."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_tree(root: Path) -> None:
    """Return when every file and folder below `root`, and its own name, is on disk. Raises OSError.

    Many at once: a journal writes pending syncs together (300 files of a shard: 20 ms instead of 90).
    """
    folders = [root.parent, *(Path(folder) for folder, _, _ in os.walk(root))]
    files = [Path(folder) / name for folder, _, names in os.walk(root) for name in names]
    from concurrent.futures import ThreadPoolExecutor  # late: every command imports this file

    with ThreadPoolExecutor(_SYNCED_AT_ONCE) as pool:
        list(pool.map(_sync_if_there, files))  # raises the first error
        list(pool.map(sync_folder, folders))


def _sync_if_there(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        sync_file(path)
