"""The files of one project as citations name them: read only, inside the project, of bounded size.

A citation's path was written by an agent, so it is resolved with its links and refused when it leaves the project.
"""

from __future__ import annotations

from pathlib import Path

FILE_BYTES_MAX = 4 * 1024 * 1024


class WorkingTree:
    """root: absolute path of the project."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def stamp(self, ref: str) -> str | None:
        """Return modification time, size and inode of the file; None when it is not a readable file inside."""
        path = self._inside(ref)
        try:
            if path is None or not path.is_file():
                return None
            seen = path.stat()
        except OSError:
            return None
        return f"{seen.st_mtime_ns}:{seen.st_size}:{seen.st_ino}"

    def text(self, ref: str) -> str | None:
        """Return the file's text; None when it is not there, too large or not UTF-8."""
        path = self._inside(ref)
        try:
            if path is None or not path.is_file() or path.stat().st_size > FILE_BYTES_MAX:
                return None
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def _inside(self, ref: str) -> Path | None:
        if not ref or "\x00" in ref:
            return None
        try:
            path = (self._root / ref).resolve()
        except (OSError, RuntimeError):  # a loop of links
            return None
        return path if path.is_relative_to(self._root) else None
