"""Passphrases that were refused: counted on disk, slower with each, and told to the human who gets in.

The wait follows the last refusal and is bounded, so nobody is locked out; it slows whoever types, not whoever copies
the key file away: against those the key's derivation and the passphrase's strength stand. A count that cannot be
written is no reason to refuse.
"""

from __future__ import annotations

import contextlib
import json
from datetime import datetime
from pathlib import Path

from memory_anchor.errors import MemoryAnchorError
from memory_anchor.files import read_bounded, write_whole

TRIES_FILE = "refused_tries.json"
MAX_BYTES = 4_000
FREE_TRIES = 3
"""Refused ones that a mistyping human may make before there is a wait."""
WAIT_MAX_S = 30.0
COUNT_MAX = 1_000_000


class Tries:
    """The refused tries of one key ring since its last success. folder: `<data_dir>/identity`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / TRIES_FILE

    def wait_s(self, now: datetime) -> float:
        """Return the seconds to wait before the next try, 0 to `WAIT_MAX_S`."""
        count, _, last = self._read()
        if count < FREE_TRIES or last is None:
            return 0.0
        pause = min(WAIT_MAX_S, 2.0 ** min(count - FREE_TRIES, 10))
        return min(max(0.0, pause - (now - last).total_seconds()), pause)

    def note(self, now: datetime) -> None:
        """Count one more."""
        count, since, _ = self._read()
        told = {"count": min(count + 1, COUNT_MAX), "since": (since or now).isoformat(), "last": now.isoformat()}
        with contextlib.suppress(MemoryAnchorError):
            write_whole(self._path, (json.dumps(told) + "\n").encode())

    def take(self) -> str:
        """Return one sentence about the tries that were refused, "" for none, and count from nothing again."""
        count, since, last = self._read()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        if not count or since is None or last is None:
            return ""
        if count == 1:
            return f"1 refused try at your passphrase, {last:%Y-%m-%d %H:%M:%S} UTC"
        return (
            f"{count} refused tries at your passphrase since {since:%Y-%m-%d %H:%M:%S} UTC, the last at "
            f"{last:%Y-%m-%d %H:%M:%S} UTC"
        )

    def _read(self) -> tuple[int, datetime | None, datetime | None]:
        try:
            said = json.loads(read_bounded(self._path, most_bytes=MAX_BYTES) or b"{}")
            since, last = (datetime.fromisoformat(said[name]) for name in ("since", "last"))
            count = int(said["count"])
            if since.tzinfo is None or last.tzinfo is None or not 0 <= count <= COUNT_MAX:
                raise ValueError("no count")
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return 0, None, None
        return count, since, last
