"""When a write is on disk: one fsync of a file serves everyone who wrote to it before that fsync began.

The engine's log and the audit trail stay in the page cache until an fsync; a power cut loses the rest (measured: 101
of 272 acknowledged batches). So every write is noted here (`note_write`) and acknowledged after `sync_by_mode`. Under
`store.sync: always` that waits; concurrent writers share the fsync that the first of them runs (group commit). Under
`batch` it does not wait, and a timer syncs after `store.sync_ms`: a power cut loses at most what was written within
that time. `SyncedLock` is the writers' lock that syncs after it is released, so that the next writer decides and writes
while this one waits for the disk.

Invariants: what an answer reports was synced before the answer (`always`). Two files of one group (two collections)
reach the disk in the order in which they were written, so that no version is closed on disk without its successor. A
failed fsync never counts as done: the kernel has dropped those pages, so every later write is refused until the
process restarts.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Literal

from memory_anchor.domain.errors import MemoryAnchorError, Unavailable

SYNC_MS = 200
"""How long `batch` may leave a write unsynced, unless `store.sync_ms` says otherwise."""
SYNC_THREADS = 4
"""Files synced at once in addition to the one that the caller syncs itself."""
_syncing: ThreadPoolExecutor  # a new thread for each save took 5 % of it
Sync = Callable[[], None]
Mode = Literal["always", "batch"]


def _open_pool() -> None:
    global _syncing
    _syncing = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="syncing")


_open_pool()
# A fork has the pool but none of its threads: what is submitted to it would wait for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open_pool)


class _LockDepth(threading.local):
    """How often this thread has entered the writers' lock."""

    depth = 0


class Durability:
    """The unsynced writes of one process. Thread-safe."""

    def __init__(self, mode: Mode = "always", *, sync_ms: int = SYNC_MS) -> None:
        """sync_ms: the delay of `batch`; unused for `always`."""
        self.mode = mode
        self.sync_ms = sync_ms
        self._changed = threading.Condition()
        self._due: dict[tuple[str, str], Sync] = {}
        self._running: frozenset[tuple[str, str]] = frozenset()
        self.written = 0
        """Number of writes so far."""
        self._synced = 0
        self._busy = False
        self._failed = ""
        self._timer: threading.Timer | None = None
        self.lock_depth = _LockDepth()

    def check(self) -> None:
        """Raise Unavailable when an fsync failed: this process writes nothing more."""
        if self._failed:
            raise Unavailable(
                f"the disk did not confirm what was last written ({self._failed}); whether it is stored is unknown and "
                "nothing more is written; look at the disk, run `memory-anchor engine stop`, then retry."
            )

    def sync_others(self, group: str, name: str) -> None:
        """Return when earlier writes to the group's other files are on disk; called before writing to `name`."""
        self.check()
        with self._changed:
            has_others = any(file[0] == group and file[1] != name for file in (*self._due, *self._running))
        if has_others:
            self.sync()

    def note_write(self, group: str, name: str, sync: Sync) -> None:
        """Record that `name` was written to; `sync` makes it durable. Syncs by mode unless under the lock."""
        with self._changed:
            self.written += 1
            self._due[group, name] = sync
        if not self.lock_depth.depth:
            self.sync_by_mode()

    def sync_by_mode(self) -> None:
        """Return when everything written so far is on disk (`always`), or at once with a sync due soon (`batch`)."""
        if self.mode == "always":
            self.sync()
            return
        with self._changed:
            if self._synced < self.written and self._timer is None:
                self._timer = threading.Timer(self.sync_ms / 1000, self._sync_due)
                self._timer.daemon = True
                self._timer.start()

    def sync(self) -> None:
        """Return when everything written so far is on disk, whatever the mode. Raises Unavailable: it did not work."""
        with self._changed:
            target = self.written
            while self._synced < target:
                self.check()
                if not self._busy:
                    break
                self._changed.wait()
            else:
                return
            self._busy = True
            syncs, self._due, upto = self._due, {}, self.written
            self._running = frozenset(syncs)
        failed = "stopped half-way"
        try:
            failed = _all_synced(list(syncs.values()))
        finally:
            with self._changed:
                self._busy = False
                self._running = frozenset()
                self._failed = self._failed or failed
                if not failed:
                    self._synced = upto
                self._changed.notify_all()
        self.check()

    def _sync_due(self) -> None:
        with self._changed:
            self._timer = None
        with contextlib.suppress(Unavailable):  # the next write reports it
            self.sync()


def _all_synced(syncs: Sequence[Sync]) -> str:
    """Run them in parallel and return what went wrong, "" for nothing: a journal writes pending syncs together.

    With the log and the trail one after the other a save on a slow disk takes twice as long.
    """
    waits: list[Sync] = [*syncs[:1]]  # the first runs in this thread, while the others run in the pool
    for sync in syncs[1:]:
        try:
            waits.append(_syncing.submit(sync).result)
        except RuntimeError:  # the interpreter is shutting down and takes no more work: one after the other, then
            waits.append(sync)
    failed: list[str] = []
    for wait in waits:
        try:
            wait()
        except (OSError, MemoryAnchorError) as error:
            failed.append(str(error))
    return "; ".join(failed)


class SyncedLock:
    """The writers' lock: reentrant; when the outermost block has ended, its writes are synced by mode."""

    def __init__(self, durability: Durability) -> None:
        self._durability = durability
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._durability.lock_depth.depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The order matters: first release, then wait for the disk, also when the block failed.
        self._durability.lock_depth.depth -= 1
        self._lock.release()
        if not self._durability.lock_depth.depth:
            self._durability.sync_by_mode()
