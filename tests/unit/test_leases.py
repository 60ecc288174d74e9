"""Several engines, one store: one of them runs the jobs, and another takes over when it is gone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from timekit import T0, upkeep

from memory_anchor.adapters.dict_store import DictStore
from memory_anchor.adapters.file_records import FileRecords
from memory_anchor.adapters.qdrant_store import QdrantStore
from memory_anchor.domain.errors import StoreBusy, Unavailable
from memory_anchor.testing import ManualClock, ephemeral_core
from memory_anchor.upkeep.job_kit import JobReport, Limits
from memory_anchor.upkeep.jobs import Job, Scheduler
from memory_anchor.upkeep.leases import LEASE_S, RENEW_S, StoreLease, runner_id

DAILY = timedelta(days=1)


@pytest.fixture(params=["dict", "qdrant"])
def store(request):
    made = DictStore() if request.param == "dict" else QdrantStore(path=":memory:")
    yield made
    made.close()


class Engine:
    """An engine's scheduler over the shared store. meanwhile: called in the middle of the job."""

    def __init__(self, name, store, clock, folder, meanwhile=lambda: None):
        self.ran, self.stopped, self.meanwhile, self.clock = 0, False, meanwhile, clock

        def run(up, at, limits):
            self.ran += 1
            self.meanwhile()
            self.stopped = limits.should_stop()
            return JobReport("job", at, left=self.stopped)

        lease = StoreLease(store, clock, name)
        self.jobs = Scheduler(
            [Job("job", "", DAILY, run)], upkeep(DictStore()), records=FileRecords(folder / name), lease=lease
        )

    def run(self, **limits):
        return self.jobs.run("job", self.clock.now(), Limits(**limits))


def test_while_one_engine_runs_jobs_another_is_told_so(store, tmp_path):
    """Rule: one runner a store across processes; a dry run changes nothing and needs no lease."""
    clock = ManualClock(T0)
    other = Engine("b", store, clock, tmp_path)
    one = Engine("a", store, clock, tmp_path)

    def meanwhile():
        with pytest.raises(StoreBusy, match="another engine"):
            other.run()
        other.run(dry_run=True)

    one.meanwhile = meanwhile
    one.run()
    assert (one.ran, other.ran, one.stopped) == (1, 1, False)
    other.run()
    assert other.ran == 2


def test_an_engine_that_died_is_followed_by_another_after_a_while(store, tmp_path):
    """Rule: a lease ends by itself; whoever finds it lost stops at the next batch."""
    clock = ManualClock(T0)
    other = Engine("b", store, clock, tmp_path)

    def asleep():
        with pytest.raises(StoreBusy):
            other.run()
        clock.advance(seconds=LEASE_S)
        assert other.jobs.run_due(clock.now())[0].left is False
        other.meanwhile = lambda: None

    other.meanwhile = lambda: None
    one = Engine("a", store, clock, tmp_path, meanwhile=asleep)
    kept = StoreLease(store, clock, "b")
    one.run()

    assert (one.ran, one.stopped, other.ran) == (1, False, 1)  # b gave it back at its end, so a goes on
    assert kept.held()
    with pytest.raises(StoreBusy):
        one.run()


def test_a_lease_taken_over_is_lost_to_the_one_who_slept(store):
    """Rule: two never hold it beyond the moment of renewal."""
    clock = ManualClock(T0)
    one, other = StoreLease(store, clock, "a"), StoreLease(store, clock, "b")
    assert one.held()
    assert not other.held()
    clock.advance(seconds=LEASE_S)
    assert other.held()
    assert not one.held()
    one.release()
    assert other.held()
    other.release()
    assert one.held()


def test_a_lease_that_is_renewed_does_not_end(store):
    """Rule: renewed while its holder lives."""
    clock = ManualClock(T0)
    one, other = StoreLease(store, clock, "a"), StoreLease(store, clock, "b")
    for _ in range(10):
        assert one.held()
        clock.advance(seconds=RENEW_S)
        assert not other.held()


def test_the_same_engine_started_again_need_not_wait(store, tmp_path):
    """Rule: a restart after a crash goes on with its own lease."""
    clock, file = ManualClock(T0), tmp_path / "jobs" / "runner"
    names = iter(["first", "second"])
    assert StoreLease(store, clock, runner_id(file, lambda: next(names))).held()

    assert StoreLease(store, clock, runner_id(file, lambda: next(names))).held()


def test_two_cores_on_one_store_do_not_both_run_jobs(tmp_path):
    """Rule: wired."""
    store = DictStore()
    one = ephemeral_core(tmp_path / "a", store=store)
    other = ephemeral_core(tmp_path / "b", store=store)
    seen = []

    def from_within():
        with pytest.raises(StoreBusy, match="another engine"):
            other.scheduler.run("rebuild_tags", other.clock.now())
        seen.append(True)

    one.scheduler._upkeep = replace(one.upkeep, yield_to_requests=from_within)
    one.scheduler.run("rebuild_tags", one.clock.now())

    assert seen


def test_a_server_that_is_away_is_asked_again_later(tmp_path):
    """Rule: no answer is no lease, and no end of the background thread."""

    class Away(DictStore):
        def claim(self, *_, **__):
            raise Unavailable("the server does not answer")

    engine = Engine("a", Away(), ManualClock(T0), tmp_path)
    with pytest.raises(Unavailable):
        engine.run()
    engine.jobs.start(engine.clock, every_s=0.001)
    engine.jobs._stop.wait(0.05)
    assert engine.jobs.started
    engine.jobs.stop()
    assert engine.ran == 0


def test_a_lease_whose_release_lost_its_answer_is_not_believed_held(monkeypatch):
    """Rule: two engines never hold one lease; the store may have released it although the answer did not arrive."""
    store, clock = DictStore(), ManualClock(T0)
    first, second = (StoreLease(store, clock, name) for name in ("a", "b"))
    assert first.held()
    claim = store.claim

    def claim_without_answer(*args, **named):
        claim(*args, **named)
        raise Unavailable("the connection was lost")

    with monkeypatch.context() as patched:
        patched.setattr(store, "claim", claim_without_answer)
        with pytest.raises(Unavailable):
            first.release()
    assert second.held()
    assert not first.held()
