"""What a process writes to its log, without the secrets that an error quotes.

An exception of a library tells the value it choked on, and a traceback shows the line; both are written by others, so
the finished line is cleaned, not the places that write. A line is cut, so that no error fills the disk.
"""

from __future__ import annotations

import logging

LINE_CHARS = 16_000
"""Of one record, with its traceback."""


class CleanFormatter(logging.Formatter):
    """Formats a record, then takes secrets and private parts out of all of it."""

    def format(self, record: logging.LogRecord) -> str:
        from memory_anchor.safety import cleaned  # 50 ms, at the first line that is written

        written = super().format(record)
        cut = len(written) - LINE_CHARS
        return cleaned(written[:LINE_CHARS]).text + (f" ... ({cut} characters cut)" if cut > 0 else "")
