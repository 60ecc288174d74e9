"""Memories that an earlier version joined from two texts are found and parted, each with its own dates."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from memory_anchor.base.hashing import content_hash
from memory_anchor.domain.model import Memory, Status
from memory_anchor.domain.versions import revise
from memory_anchor.front.doctor import probe
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ManualClock
from memory_anchor.upkeep.job_kit import Limits
from memory_anchor.upkeep.parting import APPENDED, REPLACED
from memory_anchor.use_cases.memory import MemoryAnchor


def joined_by_an_earlier_version(
    core: Core, anchor: MemoryAnchor, clock: ManualClock, first: str, both: str, reason: str
) -> Memory:
    """Store a fact and the version that an earlier version of the package made of it."""
    saved = anchor.save_memory(first)
    clock.advance(days=3)
    old = core.services.records.read(str(saved.id), None)
    new = replace(old, content=both, content_hash=content_hash(both))
    step = revise(old, new, at=clock.now(), author="agent:early", reason=reason)
    core.services.records.commit(revisions=[step], kind="update", by="agent:early")
    return old


@pytest.mark.parametrize(
    ("first", "second", "both", "reason", "status"),
    [
        ("缓存占 512 MB", "队列占 512 MB", "缓存占 512 MB。队列占 512 MB", APPENDED, Status.ACTIVE),
        (
            "The image cache holds 512 MB",
            "The queue holds 512 MB",
            "The image cache holds 512 MB. The queue holds 512 MB",
            APPENDED,
            Status.ACTIVE,
        ),
        (
            "Push to main directly",
            "Never push to main directly",
            "Never push to main directly",
            REPLACED,
            Status.DISPUTED,
        ),
    ],
)
def test_what_was_joined_is_offered_and_parted_with_each_text_s_own_dates(
    core: Core,
    anchor: MemoryAnchor,
    clock: ManualClock,
    first: str,
    second: str,
    both: str,
    reason: str,
    status: Status,
) -> None:
    """Rule repair: `doctor` names them; the job, by hand alone, gives both texts back; opposites wait for a human."""
    old = joined_by_an_earlier_version(core, anchor, clock, first, both, reason)
    checks = {check.name: check for check in probe(core)}
    assert "1 memories" in checks["joined memories"].finding
    assert "part_joined" in checks["joined memories"].fix
    assert "part_joined" not in {job.name for job in core.scheduler.due(clock.now() + timedelta(days=400))}
    assert core.scheduler.run("part_joined", clock.now(), Limits(dry_run=True)).planned
    assert len(anchor.curation.listing()) == 1

    clock.advance(days=1)
    core.scheduler.run("part_joined", clock.now())

    live = {memory.content: memory for memory in anchor.curation.listing()}
    assert set(live) == {first, second}
    assert live[first].id == old.id
    assert live[first].learned_at == old.recorded_at
    assert live[second].valid_from == old.recorded_at + timedelta(days=3)
    assert {memory.status for memory in live.values()} == {status}
    assert "joined memories" not in {check.name for check in probe(core)}
    assert core.scheduler.run("part_joined", clock.now()).changed == 0


def test_an_update_that_holds_the_old_text_stays_one_memory(core: Core, anchor: MemoryAnchor) -> None:
    """Rule repair: what the words prove is no join to part."""
    anchor.save_memory("Emails go out through Postmark")
    anchor.save_memory("Emails go out through Postmark, on two streams")

    assert core.scheduler.run("part_joined", core.clock.now()).changed == 0
