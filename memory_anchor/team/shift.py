"""Which replica of a service works accepted batches off: one at a time, by a lease that ends by itself."""

from __future__ import annotations

from pathlib import Path

from memory_anchor.adapters.system import SystemClock, new_token
from memory_anchor.ports import MemoryStore
from memory_anchor.upkeep.leases import RUNNER_FILE, Lease, NoLease, StoreLease, runner_id

NAME = "ingest"
LEASE_S, RENEW_S = 20.0, 5.0
"""A replica that was killed is followed by another one after so long."""


def shift_of(store: MemoryStore, data_dir: Path, *, is_shared: bool) -> Lease:
    """Return the right to work batches off; alone it is always held."""
    if not is_shared:
        return NoLease()
    holder = runner_id(data_dir / RUNNER_FILE, new_token)
    return StoreLease(store, SystemClock(), holder, name=NAME, lasts_s=LEASE_S, renew_s=RENEW_S)
