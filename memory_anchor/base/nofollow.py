"""Files below one untrusted folder: no link is followed, nothing outside is touched, no call blocks.

A repository may come from a stranger, and any name in it may be a link to the user's keys, a pipe that nobody writes
to, or a file of any size. Each part of a path is opened below the one before it
(`openat` with `O_NOFOLLOW`), so that nothing can be swapped between a check and its use. Rejected: resolving the path
and comparing, which looks at one file and opens another. Where the system has no `openat` (Windows) the path is
resolved and compared after all; docs/security.md says so.

`root` itself may be reached through links, because the caller names it; nothing below it may.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath

from memory_anchor.base.files import SHARED, file_error, shared_at
from memory_anchor.domain.errors import Refused

PARTS_MAX = 64
"""Folders between `root` and a file."""
_HAS_OPENAT = os.open in os.supports_dir_fd and os.scandir in os.supports_fd and hasattr(os, "O_NOFOLLOW")
_COMMON = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _COMMON
_FILE = os.O_RDONLY | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0) | _COMMON
LINK = "it is a link, or lies behind one, and links are not followed"
TOO_DEEP = "it lies too many folders down"
_NOT_REGULAR = "it is not a regular file"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """One name found by `walk`. ref: its path below the root. problem: why it is not a file to read, else ""."""

    ref: str
    mtime_ns: int
    size: int
    inode: int
    problem: str = ""


def read(root: Path, ref: PurePath | str, *, most_bytes: int) -> bytes | None:
    """Return the bytes of a regular file below `root`, None when there is none.

    Raises OSError: a link, no regular file, not readable, or more than `most_bytes`. Never waits.
    """
    try:
        handle = _open(root, ref)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, _NOT_REGULAR, str(ref))
        content = file.read(most_bytes + 1) if status.st_size <= most_bytes else b""
    if max(status.st_size, len(content)) > most_bytes:
        raise OSError(errno.EFBIG, f"it holds more than {most_bytes} bytes", str(ref))
    return content


def status(root: Path, ref: PurePath | str) -> os.stat_result | None:
    """Return the status of a regular file below `root`; None when there is none, or only behind a link."""
    try:
        handle = _open(root, ref)
    except OSError:
        return None
    try:
        result = os.fstat(handle)
    finally:
        os.close(handle)
    return result if stat.S_ISREG(result.st_mode) else None


def walk(root: Path, folder: PurePath | str, *, most: int, depth: int) -> Iterator[FoundFile]:
    """Yield every name below a folder in order, at most `most`; links and other oddities with their problem.

    depth: how many folders down. Nothing is yielded where there is no such folder.
    Raises OSError: `folder` is a link or cannot be listed.
    """
    parts = _parts(folder)
    try:
        start = _open_folder(root, parts)
    except (FileNotFoundError, NotADirectoryError):
        return
    with _closing(start):
        yield from _walk(start, PurePosixPath(*parts).as_posix() if parts else "", [most], depth)


def write(root: Path, ref: PurePath | str, content: bytes, *, mode: int = SHARED) -> None:
    """Replace a file below `root`, all of it or not at all, durable on return; missing folders are made.

    An existing file keeps its mode. Raises Refused: the file or a folder above it is a link, or it does not lie below
    `root`; nothing was written.
    """
    path = root / ref
    if (shared := shared_at(path)) is not None:
        shared.change(path, content, lambda: _write(root, ref, content, mode))
        return
    _write(root, ref, content, mode)


def _write(root: Path, ref: PurePath | str, content: bytes, mode: int) -> None:
    path = root / ref
    *above, name = _parts_to_write(root, ref)
    temporary = f".{name[:40]}.{os.getpid()}.{threading.get_ident()}.tmp"
    try:
        root.mkdir(parents=True, exist_ok=True)
        folder = _open_folder(root, above, make=True)
        with _closing(folder):
            old_mode = _mode_of(folder, name)
            with contextlib.suppress(FileNotFoundError):
                _unlink(folder, temporary)  # left by a killed process with this pid
            handle = _open_in(folder, temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _COMMON, mode)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                    file.flush()
                    if old_mode is not None and hasattr(os, "fchmod"):
                        os.fchmod(file.fileno(), old_mode)
                    os.fsync(file.fileno())
                _replace(folder, temporary, name)
            except OSError:
                with contextlib.suppress(OSError):
                    _unlink(folder, temporary)
                raise
            _sync(folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Refused(f"{path} was not written: {LINK}; put a file or folder of its own there") from None
        raise file_error(error, path) from error


def make_folder(root: Path, ref: PurePath | str) -> bool:
    """Make a folder below `root` with those above it; return whether it was missing. Raises as `write`."""
    path, parts = root / ref, _parts_to_write(root, ref)
    try:
        folder = _open_folder(root, parts[:-1], make=True)
        with _closing(folder):
            is_new = _mkdir(folder, parts[-1])
            _close(_open_subfolder(folder, parts[-1]))
            return is_new
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Refused(f"{path} was not made: {LINK}; put a folder of its own there") from None
        raise file_error(error, path) from error


# --- one part at a time ----------------------------------------------------------------------------------------------

OpenFolder = int | str
"""An open folder's descriptor; where there is no `openat`, its path."""


def _parts(ref: PurePath | str) -> list[str]:
    path = os.fspath(ref).replace(os.sep, "/")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or "\0" in path or ".." in parts or len(parts) > PARTS_MAX or Path(path).drive:
        raise OSError(errno.EINVAL, "it is not a path below its folder", path)
    return parts


def _parts_to_write(root: Path, ref: PurePath | str) -> list[str]:
    """Return the parts of a path that is written to. Raises Refused: it does not lie below `root`."""
    with contextlib.suppress(OSError):
        if parts := _parts(ref):
            return parts
    raise Refused(f"{str(ref)!r} is not a path below {root}; nothing was written")


def _open(root: Path, ref: PurePath | str) -> int:
    *above, name = _parts(ref) or [""]
    folder = _open_folder(root, above)
    with _closing(folder):
        try:
            return _open_in(folder, name, _FILE)
        except OSError as error:
            raise _link_error(error, folder, name) from None


def _open_folder(root: Path, parts: list[str], *, make: bool = False) -> OpenFolder:
    folder: OpenFolder = (
        os.open(root, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)) if _HAS_OPENAT else os.path.realpath(root)
    )
    for part in parts:
        try:
            if make:
                _mkdir(folder, part)
            below = _open_subfolder(folder, part)
        finally:
            _close(folder)
        folder = below
    return folder


def _open_subfolder(folder: OpenFolder, name: str) -> OpenFolder:
    if not isinstance(folder, int):
        return _path_without_links(folder, name)
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except OSError as error:
        raise _link_error(error, folder, name) from None


def _open_in(folder: OpenFolder, name: str, flags: int, mode: int = 0o600) -> int:
    if isinstance(folder, int):
        return os.open(name, flags, mode, dir_fd=folder)
    return os.open(_path_without_links(folder, name), flags, mode)


def _path_without_links(folder: str, name: str) -> str:
    """Return the path of a name in a folder. Raises OSError: it is a link of any kind."""
    path = os.path.join(folder, name)  # noqa: PTH118
    if os.path.normcase(os.path.realpath(path)) != os.path.normcase(path):
        raise OSError(errno.ELOOP, LINK, path)
    return path


def _link_error(error: OSError, folder: OpenFolder, name: str) -> OSError:
    """Return ELOOP where the name is a link, whatever the system calls it; else the error."""
    if isinstance(folder, int) and error.errno in (errno.ENOTDIR, errno.EMLINK, errno.ELOOP):
        with contextlib.suppress(OSError):
            if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                return OSError(errno.ELOOP, LINK, name)
    return error


def _walk(folder: OpenFolder, ref: str, names_left: list[int], depth: int) -> Iterator[FoundFile]:
    names = []
    with os.scandir(folder) as entries:  # read to its bound before it is sorted: a folder may hold a million names
        for entry in entries:
            if names_left[0] <= 0:
                break
            names_left[0] -= 1
            names.append(entry.name)
    for name in sorted(names):
        path = f"{ref}/{name}" if ref else name
        try:
            status = _status(folder, name)
            if stat.S_ISDIR(status.st_mode):
                if depth <= 1:
                    yield FoundFile(path, 0, 0, 0, TOO_DEEP)
                    continue
                below = _open_subfolder(folder, name)
        except FileNotFoundError:
            continue
        except OSError as error:
            problem = LINK if error.errno == errno.ELOOP else f"it cannot be read ({error.strerror})"
            yield FoundFile(path, 0, 0, 0, problem)
            continue
        if stat.S_ISDIR(status.st_mode):
            with _closing(below):
                yield from _walk(below, path, names_left, depth - 1)
            continue
        problem = LINK if stat.S_ISLNK(status.st_mode) else "" if stat.S_ISREG(status.st_mode) else _NOT_REGULAR
        yield FoundFile(path, status.st_mtime_ns, status.st_size, status.st_ino, problem)


def _status(folder: OpenFolder, name: str) -> os.stat_result:
    if isinstance(folder, int):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    return Path(_path_without_links(folder, name)).lstat()


def _mode_of(folder: OpenFolder, name: str) -> int | None:
    """Return the permissions of the file that is there. Raises OSError: it is a link."""
    try:
        mode = _status(folder, name).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, LINK, name)
    return stat.S_IMODE(mode) if stat.S_ISREG(mode) else None


def _mkdir(folder: OpenFolder, name: str) -> bool:
    try:
        if isinstance(folder, int):
            os.mkdir(name, dir_fd=folder)
        else:
            os.mkdir(os.path.join(folder, name))  # noqa: PTH102, PTH118
    except FileExistsError:
        return False
    _sync(folder)
    return True


def _replace(folder: OpenFolder, old: str, new: str) -> None:
    if isinstance(folder, int):
        os.replace(old, new, src_dir_fd=folder, dst_dir_fd=folder)
    else:
        os.replace(os.path.join(folder, old), os.path.join(folder, new))  # noqa: PTH105, PTH118


def _unlink(folder: OpenFolder, name: str) -> None:
    if isinstance(folder, int):
        os.unlink(name, dir_fd=folder)
    else:
        os.unlink(os.path.join(folder, name))  # noqa: PTH108, PTH118


def _sync(folder: OpenFolder) -> None:
    if isinstance(folder, int):
        with contextlib.suppress(OSError):
            os.fsync(folder)


def _close(folder: OpenFolder) -> None:
    if isinstance(folder, int):
        os.close(folder)


@contextlib.contextmanager
def _closing(folder: OpenFolder) -> Iterator[None]:
    try:
        yield
    finally:
        _close(folder)
