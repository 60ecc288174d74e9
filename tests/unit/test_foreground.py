"""Requests first: background work stands aside while somebody waits, for a bounded time."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from timekit import a_memory, current, day, put, upkeep

from memory_anchor.base.request_gate import FairLock, RequestGate
from memory_anchor.domain.model import Status
from memory_anchor.testing import ephemeral_core
from memory_anchor.upkeep.forgetting import forget
from memory_anchor.upkeep.job_kit import UNLIMITED, live, scan

FOR_EVER = 60.0
WAIT_S = 10.0


def passes(foreground: RequestGate) -> threading.Event:
    """Return an event that is set once background work was let pass, in a thread of its own."""
    passed = threading.Event()
    threading.Thread(target=lambda: (foreground.wait_until_quiet(), passed.set()), daemon=True).start()
    return passed


def test_nothing_waits_where_nobody_asks():
    """Rule: asking costs nothing while no request is in work."""
    assert passes(RequestGate(time.monotonic, patience_s=FOR_EVER)).wait(WAIT_S)


def test_background_work_goes_on_when_the_last_request_is_answered():
    """Rule: it stands aside while any request is in work, and no longer."""
    foreground, passed = RequestGate(time.monotonic, patience_s=FOR_EVER), threading.Event()

    def background():
        foreground.wait_until_quiet()
        passed.set()

    with foreground:
        with foreground:
            worker = threading.Thread(target=background)
            worker.start()
        assert not passed.is_set()
    worker.join(WAIT_S)

    assert passed.is_set()


def test_the_pause_between_two_requests_is_no_time_for_background_work():
    """Rule: an agent that asks several things in a row is not answered beside a job."""
    foreground = RequestGate(time.monotonic, patience_s=FOR_EVER, quiet_s=FOR_EVER)
    with foreground:
        pass

    assert not passes(foreground).wait(0.05)


def test_the_background_goes_on_once_it_is_quiet():
    """Rule: quiet is a moment, not the end of the day."""
    foreground = RequestGate(time.monotonic, patience_s=FOR_EVER, quiet_s=0.001)
    with foreground:
        pass
    worker = threading.Thread(target=foreground.wait_until_quiet, daemon=True)
    worker.start()
    worker.join(WAIT_S)

    assert not worker.is_alive()


def test_a_request_that_fails_is_no_longer_in_work():
    """Rule: an error ends a request too; background work that waited for it goes on."""
    foreground = RequestGate(time.monotonic, patience_s=FOR_EVER)
    with pytest.raises(ValueError, match="failed"), foreground:
        passed = passes(foreground)
        assert not passed.wait(0.05)
        raise ValueError("failed")

    assert passed.wait(WAIT_S)


def test_a_long_request_slows_a_job_and_never_stops_it():
    """Rule: patience is bounded."""
    foreground = RequestGate(time.monotonic, patience_s=0.001)
    up = replace(upkeep(max_archived_share=1.0), yield_to_requests=foreground.wait_until_quiet)
    put(up, *(a_memory(f"e{i}") for i in range(40)))

    with foreground:
        forget(up, day(60))

    assert all(current(up)[f"e{i}"].status is Status.ARCHIVED for i in range(40))


def test_a_job_asks_often_and_never_while_it_holds_the_writers_lock():
    """Rule: small pieces; a request that needs the lock would wait for a job that waits for the request."""
    up = upkeep(max_archived_share=1.0)
    asked = []

    def yield_to_requests():
        asked.append(True)
        free = []

        def try_it():
            if up.lock.acquire(blocking=False):
                free.append(True)
                up.lock.release()

        other = threading.Thread(target=try_it)
        other.start()
        other.join()
        assert free == [True]

    watched = replace(up, yield_to_requests=yield_to_requests)
    put(up, *(a_memory(f"e{i}") for i in range(95)))
    list(scan(watched, "event_log", live(), UNLIMITED))
    looked = len(asked)
    forget(watched, day(60))

    assert looked >= 10
    assert len(asked) > looked


def test_a_core_gives_its_jobs_the_requests_to_yield_to(tmp_path):
    """Rule: wired."""
    core = ephemeral_core(tmp_path)

    assert core.upkeep.yield_to_requests == core.foreground.wait_until_quiet


def test_a_started_core_says_once_that_it_has_settled(tmp_path):
    """Rule: what was loaded is looked at once by the garbage collector, when all of it is there."""
    core, told = ephemeral_core(tmp_path), threading.Event()

    core.start(settled=told.set)

    assert told.wait(WAIT_S)
    core.close()


class Asked:
    """A lock that says when somebody waits for it."""

    def __init__(self) -> None:
        self._lock, self.wanted = threading.Lock(), threading.Event()

    def acquire(self, *, blocking: bool = True) -> bool:
        if self._lock.acquire(blocking=False):
            return True
        self.wanted.set()
        return self._lock.acquire(blocking=blocking)

    def release(self) -> None:
        self._lock.release()


def test_a_loop_over_a_lock_lets_in_who_waits():
    """Rule: a purge that waits for an item of a batch is next, however many items the batch still has."""
    lock, inner, order = FairLock(), Asked(), []
    lock._lock = inner

    def purge():
        with lock:
            order.append("purge")

    other = threading.Thread(target=purge)
    with lock:
        other.start()
        assert inner.wanted.wait(WAIT_S)
        order.append("first item")
    with lock:
        order.append("second item")
    other.join(WAIT_S)

    assert order == ["first item", "purge", "second item"]
