"""The right to do what one of several processes on a memory does: run jobs, work off batches.

A SQLite file has one engine, by the lock of its directory. On PostgreSQL one of the replicas holds an advisory lock,
as long as its connection lives: free at once when its process ends, however it ends. A replica that lost it stops at
the next batch. Jobs change nothing that changed since they read it, so two runners for a moment cost work, no memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from memory_anchor.store.postgresql import Postgresql

if TYPE_CHECKING:
    from memory_anchor.store.database import Database

JOBS = "jobs"


class Lease(Protocol):
    """The right to run jobs."""

    def held(self) -> bool:
        """Return whether this process has it now; takes it if possible. Raises Unavailable: no answer."""
        ...

    def release(self) -> None:
        """Let another process have it."""
        ...


class NoLease:
    """The lease of a store's only process."""

    def held(self) -> bool:
        return True

    def release(self) -> None:
        pass


class ConnectionLease:
    """A lease that a connection to the store's database holds."""

    def __init__(self, database: Postgresql, name: str) -> None:
        self._database, self._name = database, name

    def held(self) -> bool:
        return self._database.holds(self._name)

    def release(self) -> None:
        self._database.let_go(self._name)


def lease_of(database: Database, name: str) -> Lease:
    """Return the lease of that name over a database; one that has one process needs none."""
    return ConnectionLease(database, name) if isinstance(database, Postgresql) else NoLease()
