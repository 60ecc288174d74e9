"""Small durable files: read with a bound, replaced whole, shared between processes under one lock.

Keys, approved texts, proposals and the audit trail are a few kilobytes each and must survive a kill at any moment:
written beside their place, fsync'ed, and renamed over it. `exclusive` is an OS lock, which the kernel lets go of
however the holder dies; its file is never deleted. Foreign errors become ours here and nowhere else.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from memory_anchor.errors import DiskFull, MemoryAnchorError, Refused, Unavailable

PRIVATE = 0o600
SHARED = 0o644

if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> None:
        os.lseek(handle, 0, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_LOCK, 1)

    def _unlock(handle: int) -> None:
        os.lseek(handle, 0, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX)

    def _unlock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)


def ours(error: OSError, path: Path) -> MemoryAnchorError:
    """Return the error of ours that says why `path` could not be written or locked."""
    why = error.strerror or type(error).__name__
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Refused(f"{path} cannot be written ({why}); nothing was changed; make it writable and retry.")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{path} has no room; nothing was changed; free some space and retry.")
    return Unavailable(f"{path} cannot be used ({why}); nothing was changed.")


def make_private(folder: Path) -> None:
    """Make `folder` and its parents, readable by their owner alone where they are new."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if stat.S_IMODE(folder.stat().st_mode) & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise ours(error, folder) from error


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, waiting for whoever has it; threads of one process exclude each other too.

    Keep what is inside short (no prompt, no network): the wait has no bound of its own.
    """
    make_private(path.parent)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), PRIVATE)
    except OSError as error:
        raise ours(error, path) from error
    try:
        _lock(handle)
        try:
            yield
        finally:
            _unlock(handle)
    finally:
        os.close(handle)


def read_bounded(path: Path, *, most_bytes: int) -> bytes | None:
    """Return the bytes of a regular file, None when there is none.

    Raises OSError: it is no file, cannot be read, or holds more than `most_bytes`. Never waits on a pipe or a device.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"more than {most_bytes} bytes", str(path))
    return content


def write_whole(path: Path, content: bytes, *, mode: int = PRIVATE) -> None:
    """Replace `path` by `content`, all of it or not at all, durable on return.

    An existing file keeps its mode unless `mode` is private. A symbolic link is replaced, never followed.
    """
    kept = _mode_of(path) if mode != PRIVATE else None
    beside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.unlink(missing_ok=True)
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                if kept is not None:
                    beside.chmod(kept)
                os.fsync(file.fileno())
            beside.replace(path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise ours(error, path) from error


def _mode_of(path: Path) -> int | None:
    """Return the permissions of a regular file that is there already."""
    try:
        found = path.lstat().st_mode
    except OSError:
        return None
    return stat.S_IMODE(found) if stat.S_ISREG(found) else None


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; file systems without that notion are left in peace."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
