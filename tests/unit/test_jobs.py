"""The scheduler: what is due runs once, failures do not stop the others, and its memory survives anything."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from stores import records_in
from timekit import day, upkeep

from memory_anchor.domain.errors import BadInput, StoreBusy, Unavailable
from memory_anchor.testing import ManualClock
from memory_anchor.upkeep.job_kit import JobReport, Limits
from memory_anchor.upkeep.jobs import Job, JobState, Scheduler
from memory_anchor.upkeep.leases import NoLease

DAILY = timedelta(days=1)


def scheduler(tmp_path, *jobs, **kinds):
    return Scheduler(jobs, upkeep(), records=records_in(tmp_path), **kinds)


def counting(name="count", every=DAILY, **report):
    ran = []

    def run(up, at, limits):
        ran.append(at)
        return JobReport(name, at, **{"changed": 1, **report})

    return Job(name, "counts", every, run), ran


def test_what_never_ran_is_overdue_and_what_ran_waits_its_time(tmp_path):
    """Rule: overdue jobs run at start; the schedule counts from the last run."""
    job, ran = counting()
    jobs = scheduler(tmp_path, job)

    for at in (0, 0.5, 0.99, 1, 1.5, 9):
        jobs.run_due(day(at))

    assert ran == [day(0), day(1), day(9)]


def test_another_process_goes_on_where_this_one_stopped(tmp_path):
    """Rule: when each job last ran is kept beside the store."""
    job, _ = counting()
    scheduler(tmp_path, job).run_due(day(0))
    later = scheduler(tmp_path, job)

    assert later.due(day(0.5)) == []
    assert later.stats()["count"] == JobState(last_at=day(0), runs=1, changed=1, last_changed=1)


def test_a_job_runs_when_asked_due_or_not_and_at_the_instant_asked(tmp_path):
    """Rule: force, and --at moves time."""
    job, ran = counting()
    jobs = scheduler(tmp_path, job)

    jobs.run("count", day(3))
    jobs.run("count", day(3))

    assert ran == [day(3), day(3)]
    with pytest.raises(BadInput, match="no job 'nap'; jobs are count"):
        jobs.run("nap", day(3))


def test_a_dry_run_is_not_remembered_as_a_run(tmp_path):
    """Rule: dry run changes nothing, not even when the job is due."""
    job, _ = counting(dry_run=True)
    jobs = scheduler(tmp_path, job)

    jobs.run("count", day(0), Limits(dry_run=True))

    assert jobs.stats()["count"] == JobState()


def test_a_failing_job_is_recorded_and_the_next_one_runs(tmp_path, caplog):
    """Rule: failures are reported; a bug is one too, is in the log, and stops no other job."""
    job, ran = counting()

    def fail(up, at, limits):
        raise Unavailable("no model")

    def bug(up, at, limits):
        raise ZeroDivisionError

    jobs = scheduler(tmp_path, Job("fail", "", DAILY, fail), Job("bug", "", DAILY, bug), job)
    reports = jobs.run_due(day(0))

    assert [r.notes for r in reports] == [("failed: unavailable",), ("failed: failure",), ()]
    assert ran == [day(0)]
    assert (jobs.stats()["fail"].failures, jobs.stats()["fail"].last_at) == (1, None)
    assert (jobs.stats()["bug"].failures, jobs.stats()["bug"].last_at) == (1, None)
    assert "the job bug failed" in caplog.text and "ZeroDivisionError" in caplog.text
    assert ([j.name for j in jobs.due(day(0.5))], [j.name for j in jobs.due(day(1))]) == (
        ["fail"],
        ["fail", "bug", "count"],
    )
    jobs.queue("bug")
    jobs.queue("count")
    assert sorted(r.notes for r in jobs.run_queued(day(1))) == [(), ("failed: failure",)]
    with pytest.raises(ZeroDivisionError):
        jobs.run("bug", day(1))


def test_a_run_cut_short_is_due_again_at_once(tmp_path):
    """Rule: stopped in the middle, it goes on the next time."""
    job, _ = counting(left=True)
    jobs = scheduler(tmp_path, job)

    jobs.run("count", day(0), Limits(should_stop=lambda: True))
    assert [j.name for j in jobs.due(day(0))] == ["count"]

    jobs.run("count", day(0))
    assert jobs.due(day(0.5)) == []


@pytest.mark.parametrize("torn", ["", "{", "[]", '{"count": 3}', '{"count": {"last_at": "soon"}}'])
def test_a_torn_state_file_only_makes_jobs_run_again(tmp_path, torn):
    """Rule: losing the state loses no memory and stops nothing."""
    job, ran = counting()
    records = records_in(tmp_path)
    records.write("jobs.json", torn.encode(), before=None)

    scheduler(tmp_path, job).run_due(day(0))

    assert ran == [day(0)]
    assert json.loads(records.read("jobs.json").content)["count"]["runs"] == 1


def test_a_clock_that_was_ahead_does_not_put_jobs_off_for_years(tmp_path):
    """Rule: a last run far in the future counts as never."""
    job, ran = counting()
    jobs = scheduler(tmp_path, job)
    jobs.run("count", day(5000))

    jobs.run_due(day(1))

    assert ran[-1] == day(1)


def test_a_second_runner_is_told_that_jobs_are_running(tmp_path):
    """Rule: one runner a store; across processes see `test_leases`."""
    inside, go = threading.Event(), threading.Event()

    def slow(up, at, limits):
        inside.set()
        go.wait(10)
        return JobReport("slow", at)

    jobs = scheduler(tmp_path, Job("slow", "", DAILY, slow))
    thread = threading.Thread(target=jobs.run, args=("slow", day(0)))
    thread.start()
    inside.wait(10)
    with pytest.raises(StoreBusy, match="running already"):
        jobs.run("slow", day(0))
    go.set()
    thread.join()


def test_started_it_runs_what_is_overdue_and_stops_when_told(tmp_path):
    """Rule: start and stop; starting twice is the same as once."""
    done = threading.Event()

    def run(up, at, limits):
        done.set()
        return JobReport("once", at)

    clock = ManualClock(day(0))
    jobs = scheduler(tmp_path, Job("once", "", DAILY, run))
    jobs.start(clock, every_s=0.01)
    jobs.start(clock)
    assert done.wait(10)
    jobs.stop()

    assert not jobs.started
    assert jobs.stats()["once"].runs == 1


def test_stopping_reaches_into_a_running_job(tmp_path):
    """Rule: stop ends a job after the batch in hand."""
    entered = threading.Event()

    def run(up, at, limits):
        entered.set()
        while not limits.should_stop():
            pass
        return JobReport("long", at, left=True)

    jobs = scheduler(tmp_path, Job("long", "", DAILY, run))
    jobs.start(ManualClock(day(0)))
    assert entered.wait(10)
    jobs.stop()

    assert replace(jobs.stats()["long"], runs=0, left=False) == JobState()


def test_a_queued_job_runs_once_due_or_not_and_a_failure_does_not_stop_the_next(tmp_path):
    """Rule: what happens may ask for a job; however often it does, it runs once."""

    def fails(up, at, limits):
        raise Unavailable("gone")

    job, ran = counting()
    jobs = scheduler(tmp_path, job, Job("broken", "fails", DAILY, fails))
    jobs.run("count", day(0))
    for _ in range(3):
        jobs.queue("count")
        jobs.queue("broken")

    reports = jobs.run_queued(day(0.1))

    assert sorted(report.job for report in reports) == ["broken", "count"]
    assert ran == [day(0), day(0.1)]
    assert jobs.stats()["broken"].failures == 1
    assert jobs.run_queued(day(0.2)) == []


def test_a_job_queued_while_others_run_waits_for_its_turn(tmp_path):
    """Rule: one runner a store; nothing that was asked for is lost."""
    job, ran = counting()

    class Lease(NoLease):
        busy = True

        def held(self):
            return not self.busy

    lease = Lease()
    jobs = scheduler(tmp_path, job, lease=lease)
    jobs.queue("count")
    with pytest.raises(StoreBusy):
        jobs.run_queued(day(0))
    lease.busy = False

    assert len(jobs.run_queued(day(1))) == 1
    assert ran == [day(1)]
