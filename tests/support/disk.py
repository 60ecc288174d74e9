"""What files hold, read without their holes: an empty shard is 166 MB long and 0.5 MB on disk."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from memory_anchor.adapters.sparse_files import data_ranges

BLOCK = 1 << 16
ZEROS = bytes(BLOCK)


def content(path: Path) -> bytes:
    """Return what a file holds, a zero for each hole and for each block of zeros: tmpfs gives a mapped hole pages."""
    with path.open("rb") as file:
        handle, parts = file.fileno(), []
        for start, end in data_ranges(handle, os.fstat(handle).st_size):
            blocks = (os.pread(handle, min(BLOCK, end - at), at) for at in range(start, end, BLOCK))
            parts += [b"\0" if block == ZEROS[: len(block)] else block for block in blocks]
            parts.append(b"\0")
        return b"".join(parts)


def holding(folder: Path, *sought: str | bytes) -> list[Path]:
    """Return the files below a folder that hold any of these."""
    signs = [sign.encode() if isinstance(sign, str) else sign for sign in sought]
    return [path for path in files(folder) if any(sign in content(path) for sign in signs)]


def files(*folders: Path) -> Iterable[Path]:
    return (path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file())
