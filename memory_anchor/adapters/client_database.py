"""SQLite files of other programs, read beside them: a program must not notice that it is read.

A database with a log (WAL) is read in one transaction, which no writer waits for; one without is read as if it could
not change, which takes no lock and makes no file, and again when it changed meanwhile. Rejected: `mode=ro` for both,
which leaves a log and an index beside a database at rest, and holds up commits where there is no log; a copy, which
may be gigabytes at each look.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from memory_anchor.domain.errors import BadInput, NotFound

T = TypeVar("T")
Select = Callable[..., Iterator[dict[str, "str | int | float | None"]]]
"""A statement and its values -> rows by name; a text above `TEXT_BYTES_MAX` is empty."""
TRIES, TEXT_BYTES_MAX, ALL_BYTES_MAX = 3, 8 * 1024 * 1024, 256 * 1024 * 1024
"""Of one text, and of all that a body selects."""
_HOT = bytes.fromhex("d9d505f920a163d7")
"""How a journal begins whose transaction is being written to its database."""


def queried(path: Path, body: Callable[[Select], T]) -> T:
    """Return what a body selects of a database, all of it as of one moment; it may be run again.

    Raises BadInput: it is none, damaged, another user's, or written at each try. NotFound: there is no file.
    """
    for _ in range(TRIES):
        before, has_log = _state(path)
        how = "mode=ro" if has_log else "mode=ro&immutable=1"
        try:
            with closing(sqlite3.connect(f"file:{quote(str(path))}?{how}", uri=True, isolation_level=None)) as link:
                link.text_factory = _Texts().decoded
                link.row_factory = lambda at, row: dict(zip([one[0] for one in at.description], row, strict=True))
                link.execute("begin")
                result = body(link.execute)
        except sqlite3.Error as error:
            if _state(path)[0] == before:
                raise BadInput(f"the database cannot be read: {error}") from None
            continue
        if has_log or (_state(path)[0] == before and not _head(f"{path}-journal").startswith(_HOT)):
            return result
    raise BadInput("it was being written at each try; the next look reads it")


class _Texts:
    def __init__(self) -> None:
        self._left = ALL_BYTES_MAX

    def decoded(self, raw: bytes) -> str:
        """Return a text, "" for one above the bound. Raises BadInput: all of them are above theirs."""
        self._left -= len(raw)
        if self._left < 0:
            raise BadInput(f"it holds more than {ALL_BYTES_MAX} bytes of text")
        return raw.decode("utf-8", "replace") if len(raw) <= TEXT_BYTES_MAX else ""


def _state(path: Path) -> tuple[tuple[int | bytes, ...], bool]:
    """Return what changes with each commit to a file, and whether its newest pages are in a log."""
    try:
        status = path.lstat()
    except OSError as error:
        raise NotFound(f"{path} cannot be opened: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode) or (hasattr(os, "getuid") and status.st_uid != os.getuid()):
        raise BadInput(f"{path} is no regular file of this user; nothing was read of it.")
    return (status.st_ino, status.st_size, status.st_mtime_ns, _head(str(path))), bool(_head(f"{path}-wal"))


def _head(path: str) -> bytes:
    """Return how a file begins; nothing for none."""
    try:
        with Path(path).open("rb") as file:
            return file.read(32)
    except OSError:
        return b""
