"""Every job there is, run together as the engine runs them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from stores import records_in
from timekit import a_memory, current, day, put, upkeep

from memory_anchor.domain.model import Status
from memory_anchor.upkeep.job_kit import Limits
from memory_anchor.upkeep.jobs import BY_HAND, Scheduler
from memory_anchor.upkeep.registry import JobCalls, all_jobs


@dataclass
class Host:
    pending: int = 40
    flushed: int = 0
    invalidated: int = 0

    @property
    def calls(self):
        return JobCalls(
            flush_usage=self.flush,
            embed_pending=self.embed_pending,
            invalidate_caches=self.invalidate_caches,
        )

    def flush(self, yield_to_requests):
        self.flushed += 1
        return 3

    def embed_pending(self, limit):
        done = min(limit, self.pending)
        self.pending -= done
        return done

    def invalidate_caches(self):
        self.invalidated += 1


def test_all_jobs_run_at_the_first_start_in_their_order_and_report(tmp_path):
    """Rule: overdue jobs run at engine start; counts first, forgetting last; what is run by hand waits for a hand."""
    up, host = upkeep(max_archived_share=1.0), Host()
    put(up, a_memory("old"), a_memory("new", recorded_at=day(59)))
    scheduler = Scheduler(all_jobs(host.calls), up, records=records_in(tmp_path))

    reports = scheduler.run_due(day(60))

    assert [r.job for r in reports] == [job.name for job in all_jobs(host.calls) if job.every != BY_HAND]
    assert (reports[0].job, reports[-1].job) == ("flush_usage", "forget")
    assert (host.pending, host.flushed) == (0, 1)
    assert current(up)["old"].status is Status.ARCHIVED
    assert scheduler.due(day(60)) == []


@pytest.mark.parametrize("name", [job.name for job in all_jobs(Host().calls)])
def test_every_job_has_a_dry_run_that_changes_nothing(name, tmp_path):
    """Rule: every job lists before it changes."""
    up, host = upkeep(max_archived_share=1.0), Host()
    put(up, *(a_memory(f"m{i}", ttl_days=7, expires_at=day(7)) for i in range(5)))
    before = current(up)

    report = Scheduler(all_jobs(host.calls), up, records=records_in(tmp_path)).run(name, day(60), Limits(dry_run=True))

    assert (report.job, report.changed, report.dry_run) == (name, 0, True)
    assert current(up) == before
    assert (host.pending, host.flushed) == (40, 0)
    assert up.audit.records == []


@pytest.mark.parametrize("name", [job.name for job in all_jobs(Host().calls)])
def test_every_job_runs_on_an_empty_store(name, tmp_path):
    """Rule: nothing to do is a report, not an error."""
    report = Scheduler(all_jobs(Host().calls), upkeep(), records=records_in(tmp_path)).run(name, day(0))

    assert (report.changed, report.left) == (0, False)
