"""First on a process's PYTHONPATH, this puts the clock's port off by the seconds in the file that WRONG_CLOCK names."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

if os.environ.get("WRONG_CLOCK"):
    from memory_anchor.adapters.system import SystemClock

    def now(_: object) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=float(Path(os.environ["WRONG_CLOCK"]).read_text()))

    SystemClock.now = now  # type: ignore[method-assign]
