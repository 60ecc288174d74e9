"""Copying folders whose files are mostly holes: an empty shard is 166 MB long and 0.5 MB on disk.

Only the written parts are copied, by asking the file system where they are (SEEK_DATA); where it cannot say, zeros are
read and skipped. Files come out 0600 and folders 0700, whatever they were.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

_CHUNK_BYTES = 1 << 18
_PROBE_BYTES = 1 << 16
_ZEROS = bytes(_CHUNK_BYTES)


def keeps_holes(folder: Path) -> bool:
    """Return whether a hole of a mapped file stays one when it is read, as on a disk; tmpfs gives it a page."""
    if not hasattr(os, "SEEK_DATA"):
        return True
    with tempfile.TemporaryFile(dir=folder) as file:
        file.truncate(_PROBE_BYTES)
        with mmap.mmap(file.fileno(), _PROBE_BYTES, access=mmap.ACCESS_READ) as mapped:
            _ = mapped[:: mmap.PAGESIZE]
        return os.fstat(file.fileno()).st_blocks == 0


def copy_tree(source: Path, target: Path) -> None:
    """Copy the folder `source` to `target`, which must not exist, holes as holes. Raises OSError."""
    target.mkdir(mode=0o700)
    for entry in sorted(source.iterdir()):
        if entry.is_dir():
            copy_tree(entry, target / entry.name)
        elif entry.is_file():
            _copy_file(entry, target / entry.name)


def _copy_file(source: Path, target: Path) -> None:
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    with source.open("rb") as read, os.fdopen(handle, "wb") as write:
        size = os.fstat(read.fileno()).st_size
        for start, end in written_parts(read.fileno(), size):
            read.seek(start)
            while (at := read.tell()) < end:
                chunk = read.read(min(_CHUNK_BYTES, end - at))
                if chunk != _ZEROS[: len(chunk)]:  # a comparison is one memcmp; stripping took seconds a shard set
                    write.seek(at)
                    write.write(chunk)
        write.truncate(size)


def written_parts(handle: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts (start, end) of an open file that hold data."""
    if not hasattr(os, "SEEK_DATA"):
        yield 0, size
        return
    end = 0
    while end < size:
        try:
            start = os.lseek(handle, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only holes from here on
                return
            yield end, size
            return
        end = os.lseek(handle, start, os.SEEK_HOLE)
        yield start, end
