"""What `doctor --audit` finds of the other replicas of a service: the audit trail of each, as the server has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.errors import MemoryAnchorError
from memory_anchor.front.doctor_machine import Check, failed

if TYPE_CHECKING:
    from memory_anchor.settings import Settings


def trails(settings: Settings, data_dir: Path) -> Iterator[Check]:
    """Yield a finding for each replica's chain, left as a file beside this one's; nothing for a process alone."""
    from memory_anchor.adapters.shared_audit import READ, SharedAudit
    from memory_anchor.app import shared_of

    try:
        shared = shared_of(settings.store, data_dir)
        if shared is None:
            return
        path = data_dir / "audit" / "audit.jsonl"
        for chain, count, broken in SharedAudit(path, shared[0], "doctor").verify_all():
            file = path.parent / READ / f"{chain}.jsonl"
            if broken is None:
                yield Check("audit of a replica", "ok", f"{chain}: {count} records, the whole chain holds ({file})")
                continue
            fix = "compare it with the file in that replica's directory, or with a backup of the store"
            told = f"{chain} breaks at line {broken.line} of {file}: {broken.why}"
            yield Check("audit of a replica", "failed", told, fix, 6)
    except MemoryAnchorError as error:
        yield failed("audit of a replica", error)
