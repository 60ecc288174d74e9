"""What a process writes to its log, without the secrets that an error quotes.

An exception of a library tells the value it choked on, and a traceback shows the line; both are written by others, so
the finished line is cleaned, not the places that write. A line is cut, so that no error fills the disk.
"""

from __future__ import annotations

import logging
import traceback
from types import TracebackType
from typing import TypeAlias

LINE_CHARS = 16_000
"""Of one record, with its traceback."""

ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class CleanFormatter(logging.Formatter):
    """Formats a record, then takes secrets and private parts out of all of it."""

    def format(self, record: logging.LogRecord) -> str:
        from memory_anchor.language.safety import cleaned  # 50 ms, at the first line that is written

        written = super().format(record)
        cut = len(written) - LINE_CHARS
        return cleaned(written[:LINE_CHARS]).text + (f" ... ({cut} characters cut)" if cut > 0 else "")

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802 - logging's name
        """Return kind and place of an exception: its text and its source lines may hold a memory."""
        at = ei[2]
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        where = f" at {at.tb_frame.f_code.co_filename}:{at.tb_lineno}" if at is not None else ""
        return f"{getattr(ei[0], '__name__', 'an exception')}{where}"


def log_bug(what: str, bug: BaseException) -> None:
    """Log where it happened, on stderr and without its message: that may quote a memory."""
    frames = traceback.extract_tb(bug.__traceback__)
    at = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"
    logging.getLogger("memory_anchor.front").error("%s failed: %s at %s", what, type(bug).__name__, at)
