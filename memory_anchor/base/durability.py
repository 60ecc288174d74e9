"""When a write is on disk: one fsync of a file serves everyone who wrote to it before that fsync began.

The audit trail of a store that is no database is a file, and stays in the page cache until an fsync. So every write to
it is noted here (`note_write`) and acknowledged after `sync`; concurrent writers share the fsync that the first of them
runs. `SyncedLock` is the writers' lock that syncs after it is released: the next writer decides and writes while
this one waits for the disk. A database does this itself (`store/group_commit.py`).

Invariants: what an answer reports was synced before the answer. A failed fsync never counts as done: the kernel has
dropped those pages, so every later write is refused until the process restarts.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from memory_anchor.domain.errors import MemoryAnchorError, Unavailable

SYNC_THREADS = 4
"""Files synced at once in addition to the one that the caller syncs itself."""
_syncing: ThreadPoolExecutor  # a new thread for each save took 5 % of it
Sync = Callable[[], None]


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

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[tuple[str, str], Sync] = {}
        self.written = 0
        """Number of writes so far."""
        self._synced = 0
        self._busy = False
        self._failed = ""
        self.lock_depth = _LockDepth()

    def check(self) -> None:
        """Raise Unavailable when an fsync failed: this process writes nothing more."""
        if self._failed:
            raise Unavailable(
                f"the disk did not confirm what was last written ({self._failed}); whether it is stored is unknown and "
                "nothing more is written; look at the disk, run `memory-anchor engine stop`, then retry."
            )

    def note_write(self, group: str, name: str, sync: Sync) -> None:
        """Record that `name` was written to; `sync` makes it durable. Syncs unless under the lock."""
        with self._changed:
            self.written += 1
            self._due[group, name] = sync
        if not self.lock_depth.depth:
            self.sync()

    def sync(self) -> None:
        """Return when everything written so far is on disk. Raises Unavailable: it did not work."""
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
        failed = "stopped half-way"
        try:
            failed = _all_synced(list(syncs.values()))
        finally:
            with self._changed:
                self._busy = False
                self._failed = self._failed or failed
                if not failed:
                    self._synced = upto
                self._changed.notify_all()
        self.check()


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
    """The writers' lock: reentrant; when the outermost block has ended, its writes are synced."""

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
            self._durability.sync()
