"""When a write is on disk: one fsync of a file serves everyone who wrote to it before that fsync began.

The engine's log and the audit trail lie in the page cache until somebody asks for them; a power cut takes what nobody
asked for (measured: 101 of 272 acknowledged batches). So whoever writes says so here (`wrote`), and is answered after
`settle`. Under `store.sync: always` that waits; concurrent writers share the fsync that the first of them runs (group
commit). Under `batch` it waits for nothing, and a timer syncs what is due after `store.sync_ms`: a cut takes at most
what was written within that time. `SyncedLock` is the writers' lock that settles after letting go, so that the next
writer decides and writes while this one waits for the disk.

Invariants: what an answer says was asked for by fsync before the answer (`always`). Two files of one group (two
collections) reach the disk in the order in which they were written, so that no version is closed on disk whose
successor is not. An fsync that failed is never taken for one that worked: the kernel has forgotten those pages, so
every later write is refused until the process starts anew.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Literal

from memory_anchor.errors import MemoryAnchorError, Unavailable

SYNC_MS = 200
"""How long `batch` may leave a write unsynced, unless `store.sync_ms` says otherwise."""
SYNCED_BESIDE = 4
"""Files synced at once beside the one that the caller syncs itself."""
_TO_MS = 1000.0
_syncing: ThreadPoolExecutor  # a thread a save took 5 % of it
Sync = Callable[[], None]
Mode = Literal["always", "batch"]


def _open_pool() -> None:
    global _syncing
    _syncing = ThreadPoolExecutor(SYNCED_BESIDE, thread_name_prefix="syncing")


_open_pool()
# A fork has the pool and none of its threads: what is given to it would wait for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open_pool)


class _Held(threading.local):
    """How often this thread is inside of the writers' lock."""

    depth = 0


class Durability:
    """What was written and is not yet synced, of one process. Thread-safe."""

    def __init__(self, mode: Mode = "always", *, sync_ms: int = SYNC_MS) -> None:
        """sync_ms: the bound of `batch`; without meaning for `always`."""
        self.mode = mode
        self.sync_ms = sync_ms
        self._changed = threading.Condition()
        self._due: dict[tuple[str, str], Sync] = {}
        self._running: frozenset[tuple[str, str]] = frozenset()
        self.written = 0
        """How often something was written so far."""
        self._synced = 0
        self._busy = False
        self._failed = ""
        self._timer: threading.Timer | None = None
        self.held = _Held()

    def check(self) -> None:
        """Raise Unavailable when an fsync failed: nothing more is promised by this process."""
        if self._failed:
            raise Unavailable(
                f"the disk did not confirm what was last written ({self._failed}); whether it is stored is unknown and "
                "nothing more is written; look at the disk, run `memory-anchor engine stop`, then retry."
            )

    def sync_others(self, group: str, name: str) -> None:
        """Return when what was written to the group's other files is on disk; called before writing to `name`."""
        self.check()
        with self._changed:
            others = any(one[0] == group and one[1] != name for one in (*self._due, *self._running))
        if others:
            self.sync()

    def note_write(self, group: str, name: str, sync: Sync) -> None:
        """Say that `name` was written to, after it was; `sync` makes it durable. Settles unless under the lock."""
        with self._changed:
            self.written += 1
            self._due[group, name] = sync
        if not self.held.depth:
            self.sync_by_mode()

    def sync_by_mode(self) -> None:
        """Return when everything written so far is on disk (`always`), or at once with a sync due soon (`batch`)."""
        if self.mode == "always":
            self.sync()
            return
        with self._changed:
            if self._synced < self.written and self._timer is None:
                self._timer = threading.Timer(self.sync_ms / _TO_MS, self._when_due)
                self._timer.daemon = True
                self._timer.start()

    def sync(self) -> None:
        """Return when everything written so far is on disk, whatever the mode. Raises Unavailable: it did not work."""
        with self._changed:
            wanted = self.written
            while self._synced < wanted:
                self.check()
                if not self._busy:
                    break
                self._changed.wait()
            else:
                return
            self._busy = True
            due, self._due, upto = self._due, {}, self.written
            self._running = frozenset(due)
        failed = "stopped half-way"
        try:
            failed = _all_synced(list(due.values()))
        finally:
            with self._changed:
                self._busy = False
                self._running = frozenset()
                self._failed = self._failed or failed
                if not failed:
                    self._synced = upto
                self._changed.notify_all()
        self.check()

    def _when_due(self) -> None:
        with self._changed:
            self._timer = None
        with contextlib.suppress(Unavailable):  # the next write says so
            self.sync()


def _all_synced(syncs: Sequence[Sync]) -> str:
    """Run them at once and return what went wrong, "" for nothing: a journal writes what waits for it together.

    With the log and the trail one after the other a save on a slow disk takes twice as long.
    """
    ends: list[Sync] = [*syncs[:1]]
    for sync in syncs[1:]:
        try:
            ends.append(_syncing.submit(sync).result)
        except RuntimeError:  # the interpreter is ending and takes no more work: one after the other, then
            ends.append(sync)
    failed: list[str] = []
    for end in ends:  # the first is done here, beside the others
        try:
            end()
        except (OSError, MemoryAnchorError) as error:
            failed.append(str(error))
    return "; ".join(failed)


class SyncedLock:
    """The writers' lock: reentrant, and when the outermost block has ended, what was written in it is on disk."""

    def __init__(self, durability: Durability) -> None:
        self._durability = durability
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._durability.held.depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The order matters: first let go, then wait for the disk, also when the block failed.
        self._durability.held.depth -= 1
        self._lock.release()
        if not self._durability.held.depth:
            self._durability.sync_by_mode()
