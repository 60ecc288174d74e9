"""Copying folders whose files are mostly holes: an empty shard is 166 MB long and 0.5 MB on disk.

Only the written parts are copied, by asking the file system where they are (SEEK_DATA); where it cannot say, zeros are
read and skipped. Files come out 0600 and folders 0700, whatever they were.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

_CHUNK_BYTES = 1 << 18
_PROBE_BYTES = 1 << 16
_ZEROS = bytes(_CHUNK_BYTES)


def keeps_holes(folder: Path) -> bool:
    """Return whether a hole of a mapped file stays one when it is read, as on a disk; tmpfs allocates a page."""
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
            with entry.open("rb") as stream:
                _write_file(target / entry.name, os.fstat(stream.fileno()).st_size, _parts(stream))


class FileImage(NamedTuple):
    """A file by its name below a folder: its size, and its parts that are not zero as (position, content)."""

    name: str
    size: int
    parts: tuple[tuple[int, bytes], ...]


class TreeImage(NamedTuple):
    """The content of a folder. folders: below it, parents first."""

    folders: tuple[str, ...]
    files: tuple[FileImage, ...]


def image_of(source: Path) -> TreeImage:
    """Return the content of the folder `source`, to be written again with `write_tree`. Raises OSError."""
    folders, files = [], []
    for path in sorted(source.rglob("*")):
        name = str(path.relative_to(source))
        if path.is_dir():
            folders.append(name)
        elif path.is_file():
            with path.open("rb") as stream:
                files.append(FileImage(name, os.fstat(stream.fileno()).st_size, tuple(_parts(stream))))
    return TreeImage(tuple(folders), tuple(files))


def write_tree(image: TreeImage, target: Path) -> None:
    """Create the folder `target`, which must not exist, with the image's content. Raises OSError."""
    target.mkdir(mode=0o700)
    for name in image.folders:
        (target / name).mkdir(mode=0o700)
    for file in image.files:
        _write_file(target / file.name, file.size, file.parts)


def _write_file(target: Path, size: int, parts: Iterable[tuple[int, bytes]]) -> None:
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    with os.fdopen(handle, "wb") as write:
        for offset, chunk in parts:
            write.seek(offset)
            write.write(chunk)
        write.truncate(size)


def _parts(source: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield (position, content) of what is not zero in an open file."""
    for start, end in data_ranges(source.fileno(), os.fstat(source.fileno()).st_size):
        source.seek(start)
        while (offset := source.tell()) < end:
            chunk = source.read(min(_CHUNK_BYTES, end - offset))
            if chunk != _ZEROS[: len(chunk)]:  # a comparison is one memcmp; stripping took seconds a shard set
                yield offset, chunk


def data_ranges(handle: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges (start, end) of an open file that hold data."""
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
