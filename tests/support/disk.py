"""What files hold, read without their holes: an empty shard is 166 MB long and 0.5 MB on disk."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from memory_anchor.adapters.sparse_files import written_parts


def content(path: Path) -> bytes:
    """Return the written parts of a file, one after the other, a zero between them."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        return b"\0".join(
            os.pread(file.fileno(), end - start, start) for start, end in written_parts(file.fileno(), size)
        )


def holding(folder: Path, *sought: str | bytes) -> list[Path]:
    """Return the files below a folder that hold any of these."""
    signs = [one.encode() if isinstance(one, str) else one for one in sought]
    return [path for path in files(folder) if any(sign in content(path) for sign in signs)]


def files(*folders: Path) -> Iterable[Path]:
    return (path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file())
