"""Logging without the secrets that an error may quote.

A library's exception may have the value it failed on, and a traceback shows the line; so the finished line is
redacted, not the places that write. Lines are cut, so that no error fills the disk.
"""

from __future__ import annotations

import logging
import traceback
from types import TracebackType
from typing import TypeAlias

from memory_anchor.base.installation import damage

LINE_CHARS = 16_000
"""Of one record, with its traceback."""

ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class CleanFormatter(logging.Formatter):
    """Formats a record, then removes secrets and private parts."""

    def format(self, record: logging.LogRecord) -> str:
        from memory_anchor.language.safety import cleaned  # 50 ms, at the first line that is written

        line = super().format(record)
        cut = len(line) - LINE_CHARS
        clean = cleaned(line[: 2 * LINE_CHARS]).text[:LINE_CHARS]  # cut first, half a secret would stay
        return clean + (f" ... ({cut} characters cut)" if cut > 0 else "")

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802 - logging's name
        """Return type and place of an exception: its text and source lines may quote a memory."""
        at = ei[2]
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        where = f" at {at.tb_frame.f_code.co_filename}:{at.tb_lineno}" if at is not None else ""
        return f"{getattr(ei[0], '__name__', 'an exception')}{where}"


def log_bug(what: str, bug: BaseException) -> str:
    """Log where it happened, without its message, which may quote a memory; return what may be said of it.

    That is "", or where the installation is damaged, the command that mends it.
    """
    frames = traceback.extract_tb(bug.__traceback__)
    at = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"
    logging.getLogger("memory_anchor.front").error("%s failed: %s at %s", what, type(bug).__name__, at)
    return damage(bug)
