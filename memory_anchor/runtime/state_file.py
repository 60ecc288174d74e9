"""How an engine announces itself to bridges, hooks and commands: `run/engine.json`, and why none could start."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

from memory_anchor.base.installation import damage
from memory_anchor.base.json_values import Record
from memory_anchor.domain.errors import MemoryAnchorError, report
from memory_anchor.runtime import wire


class StateFile:
    """The state file of this engine, written only by the holder of the lock.

    took: digests of the settings that came from its environment; None for a server that a human started.
    """

    def __init__(self, run: Path, address: Record, *, took: dict[str, str] | None = None) -> None:
        self.run = run
        self.address = address
        self.took = took
        self.started_at = time.time()

    def publish(self, state: str) -> None:
        """Publish the engine's state: loading, serving or draining."""
        content = {
            "pid": os.getpid(),
            "version": wire.VERSION,
            "wire": wire.WIRE,
            "state": state,
            "address": self.address,
            "started_at": self.started_at,
            "took": self.took,
            "data": str(self.run.parent.resolve()),
        }
        wire.write_private(str(self.run / wire.STATE_FILE), json.dumps(content))
        if state == "serving":
            (self.run / wire.FAILURE_FILE).unlink(missing_ok=True)

    def is_ours(self) -> bool:
        """Return whether the state file still names this process; False when the data directory was deleted."""
        return (wire.read_json(str(self.run / wire.STATE_FILE)) or {}).get("pid") == os.getpid()

    def remove(self) -> None:
        """Remove the socket and the file, while the lock is still held: they are nobody else's yet."""
        if path := self.address.get("unix"):
            Path(str(path)).unlink(missing_ok=True)
        (self.run / wire.STATE_FILE).unlink(missing_ok=True)


def write_failure(run: Path, error: Exception) -> None:
    """Write why no engine could start, for the bridges that wait for one."""
    if not (message := damage(error)):
        ours = isinstance(error, MemoryAnchorError | OSError)
        message = str(error) if ours else f"a bug ended it ({type(error).__name__}); see {run.parent / 'logs'}"
    content = {"at": time.time(), "pid": os.getpid(), "code": report(error).code, "message": message}
    with contextlib.suppress(OSError):  # a full disk: the bridge then reports that nothing started
        wire.write_private(str(run / wire.FAILURE_FILE), json.dumps(content))
