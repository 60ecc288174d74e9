"""Whose turn it is to read knowledge that waits: of several replicas one at a time, by a lease that ends by itself.

Who has nothing left to do gives it back. A removal on another replica goes first: whoever reads stands aside between
two batches. Alone it is always this process's turn.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.adapters.system import SystemClock, new_token
from memory_anchor.errors import MemoryAnchorError, Unavailable
from memory_anchor.upkeep.leases import RUNNER_FILE, Lease, NoLease, StoreLease, runner_id

if TYPE_CHECKING:
    from memory_anchor.ports import MemoryStore

NAME = "knowledge"
LEASE_S, RENEW_S = 20.0, 5.0
"""What a replica that was killed had begun goes on elsewhere after so long."""
WAIT_S, PAUSE_S = 30.0, 0.05


class ReadingTurn:
    """Thread-safe. on_taken: called when others may have had it before."""

    def __init__(
        self, lease: Lease | None, monotonic: Callable[[], float], on_taken: Callable[[], None] = lambda: None
    ) -> None:
        """lease: None for the only process there is."""
        self._monotonic = monotonic
        self._lease: Lease = lease or NoLease()
        self._is_shared, self._on_taken = lease is not None, on_taken
        self._had_at = float("-inf")
        self.is_ours = False

    @classmethod
    def of(
        cls, store: MemoryStore, data_dir: Path, monotonic: Callable[[], float], on_taken: Callable[[], None]
    ) -> ReadingTurn:
        """Return the turn of one of several replicas."""
        holder = runner_id(data_dir / RUNNER_FILE, new_token)
        lease = StoreLease(store, SystemClock(), holder, name=NAME, lasts_s=LEASE_S, renew_s=RENEW_S)
        return cls(lease, monotonic, on_taken)

    def held(self) -> bool:
        """Return whether it is ours now, taking it where nobody has it. Raises Unavailable."""
        if not self._is_shared:
            return True
        self.is_ours, was = self._lease.held(), self.is_ours
        now = self._monotonic()
        if self.is_ours and (not was or now - self._had_at > LEASE_S):
            self._on_taken()
        self._had_at = now if self.is_ours else self._had_at
        return self.is_ours

    def renew(self) -> None:
        """Keep it while a step takes long."""
        if self.is_ours and self._lease.held():
            self._had_at = self._monotonic()

    def over(self) -> None:
        """Let others have it."""
        if self.is_ours:
            self.is_ours = False
            self._lease.release()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold it for the block, waiting for who has it. Raises Unavailable: it takes too long."""
        end, pause = self._monotonic() + WAIT_S, threading.Event()
        while not self.held():
            if self._monotonic() > end:
                raise Unavailable("another replica reads knowledge at this moment; ask again in a minute")
            pause.wait(PAUSE_S)
        try:
            yield
        finally:
            with contextlib.suppress(MemoryAnchorError):
                self.over()


class Poll:
    """Keeps a turn while a document takes long, and looks for what others accepted and could not read."""

    def __init__(self, turn: ReadingTurn, look: Callable[[], None]) -> None:
        self._turn, self._look = turn, look
        self._ending = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="knowledge poll", daemon=True).start()

    def end(self) -> None:
        self._ending.set()

    def _run(self) -> None:
        while not self._ending.wait(RENEW_S):
            with contextlib.suppress(MemoryAnchorError):
                if self._turn.is_ours:
                    self._turn.renew()
                self._look()
