"""The scheduler: overdue jobs run at engine start, later ones when due, one runner per store.

A job is a bounded, resumable, idempotent function of (ports, instant, limits) that returns a report. When each last ran
is one small record: losing it only makes jobs run once more, which changes nothing. The
instant is an argument everywhere, so that tests can move time. A failure is recorded and the next job runs. A bug is
a failure too, with its place in the log, once each time that the job would run: it stops no other job.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from memory_anchor.base.request_gate import in_background
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, StoreBusy, StoreDamaged, Unavailable, report
from memory_anchor.domain.ports import Clock, SmallRecords
from memory_anchor.upkeep.job_kit import UNLIMITED, JobReport, Limits, Upkeep
from memory_anchor.upkeep.leases import Lease, NoLease

STATE_RECORD = "jobs.json"
CHECK_EVERY_S = 60.0
SETTLE_S = 8.0
"""From the start until overdue jobs run: the request that started the engine is answered first."""
QUEUED_AFTER_S = 2.0
"""From queueing a job until it runs: the request that caused it is answered by then."""
STOP_WAIT_S = 10.0
"""How long `stop` waits for the current batch; a daemon thread never delays the end of the process."""


log = logging.getLogger("memory_anchor")
BY_HAND = timedelta(days=36_500)


@dataclass(frozen=True, slots=True)
class Job:
    """about: one line for `jobs list`. every: time from one run to the next; `BY_HAND` for one that nothing starts."""

    name: str
    about: str
    every: timedelta
    run: Callable[[Upkeep, datetime, Limits], JobReport]


@dataclass(frozen=True, slots=True)
class JobState:
    """The history of one job. last_at: the instant of its last complete run, None for never."""

    last_at: datetime | None = None
    runs: int = 0
    changed: int = 0
    last_changed: int = 0
    left: bool = False
    failures: int = 0
    last_failure: str = ""


class Scheduler:
    """Runs jobs of one store.

    lease: needed to run anything, so that a second process gets StoreBusy. more: further jobs, asked for when needed.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        upkeep: Upkeep,
        *,
        records: SmallRecords,
        lease: Lease | None = None,
        more: Callable[[], Sequence[Job]] = tuple,
    ) -> None:
        self._own, self._more, self._added = jobs, more, list[Job]()
        self._upkeep = upkeep
        self._records = records
        self._lease = lease or NoLease()
        self._running = threading.Lock()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._queued: set[str] = set()
        self._bugs: dict[str, datetime] = {}
        self._thread: threading.Thread | None = None

    def add(self, job: Job) -> None:
        """Add a job as the last one. Before `start`."""
        self._added.append(job)

    @property
    def jobs(self) -> Mapping[str, Job]:
        return {job.name: job for job in (*self._own, *self._more(), *self._added)}

    def stats(self) -> dict[str, JobState]:
        """Return the state of every job, also of those that never ran."""
        states = _load(self._records)
        return {name: states.get(name, JobState()) for name in self.jobs}

    def due(self, at: datetime) -> list[Job]:
        """Return the jobs whose time has come, in the order of registration; one with a bug waits for its next time."""
        states = self.stats()
        states |= {name: replace(states[name], last_at=failed_at) for name, failed_at in self._bugs.items()}
        return [job for job in self.jobs.values() if _is_due(job, states[job.name], at)]

    def run(self, name: str, at: datetime, limits: Limits = UNLIMITED) -> JobReport:
        """Run one job now, due or not.

        Raises BadInput: no such job. StoreBusy: jobs of this store are running already.
        """
        job = self.jobs.get(name)
        if job is None:
            raise BadInput(f"no job {name!r}; jobs are {', '.join(sorted(self.jobs))}")
        with self._alone(leased=not limits.dry_run):
            return self._run(job, at, limits)

    def queue(self, name: str) -> None:
        """Have a job run soon, due or not, on the background thread; without one, it runs when due.

        Returns at once and may be called any number of times: a job is queued once.
        """
        if name not in self._queued:
            self._queued.add(name)
            self._wake.set()

    def run_queued(self, at: datetime, limits: Limits = UNLIMITED) -> list[JobReport]:
        """Run the queued jobs; a job that fails is recorded and the next one runs. Raises StoreBusy."""
        reports = []
        while self._queued and not limits.should_stop():
            name = self._queued.pop()
            try:
                reports.append(self.run(name, at, limits))
            except StoreBusy:
                self._queued.add(name)
                raise
            except Exception as error:  # of one job, which stops no other
                reports.append(_failed(name, at, error))
        return reports

    def run_due(self, at: datetime, limits: Limits = UNLIMITED) -> list[JobReport]:
        """Run what is due, one after the other; a job that fails is recorded and the next one runs.

        Raises StoreBusy: jobs of this store are running already.
        """
        reports: list[JobReport] = []
        with self._alone():
            for job in self.due(at):
                if limits.should_stop():
                    break
                try:
                    reports.append(self._run(job, at, limits))
                except Exception as error:  # of one job, which stops no other
                    reports.append(_failed(job.name, at, error))
        return reports

    def start(self, clock: Clock, *, every_s: float = CHECK_EVERY_S, settle_s: float = 0.0) -> None:
        """Run what is overdue, later the rest as it falls due, on one background thread; twice is the same as once.

        settle_s: pause before the first check.
        """
        if self.started:
            return
        self._stop.clear()
        self._thread = threading.Thread(target=self._loop, args=(clock, every_s, settle_s), name="jobs", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the background thread after the current batch; does nothing when none runs."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(STOP_WAIT_S)
            self._thread = None
        self._give_back()

    @property
    def started(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _loop(self, clock: Clock, every_s: float, settle_s: float) -> None:
        self._stop.wait(settle_s)
        limits = replace(UNLIMITED, should_stop=self._stop.is_set)
        while not self._stop.is_set():
            # They run by hand or in another engine, or the store's server is away: check again next time.
            with contextlib.suppress(StoreBusy, Unavailable):
                self.run_due(clock.now(), limits)
                self.run_queued(clock.now(), limits)
            if self._wake.wait(every_s):
                self._stop.wait(QUEUED_AFTER_S)
                self._wake.clear()

    @contextlib.contextmanager
    def _alone(self, *, leased: bool = True) -> Iterator[None]:
        if not self._running.acquire(blocking=False):
            raise StoreBusy(
                "jobs of this store are running already; wait for them to end, or `memory-anchor jobs stop`"
            )
        try:
            if leased and not self._lease.held():
                raise StoreBusy("another engine runs the jobs of this store; one does for all")
            yield
            if not self.started:  # run by hand: another process may have it next
                self._give_back()
        finally:
            self._running.release()

    def _give_back(self) -> None:
        with contextlib.suppress(Unavailable):  # it expires by itself
            self._lease.release()

    def _run(self, job: Job, at: datetime, limits: Limits) -> JobReport:
        should_stop = limits.should_stop
        limits = replace(limits, should_stop=lambda: should_stop() or not (limits.dry_run or self._lease.held()))
        states = _load(self._records)
        state = states.get(job.name, JobState())
        try:
            with in_background():
                job_report = job.run(self._upkeep, at, limits)
        except Exception as error:
            if not isinstance(error, MemoryAnchorError):
                self._bugs[job.name] = at
                log.exception("the job %s failed", job.name)
            states[job.name] = replace(state, failures=state.failures + 1, last_failure=report(error).code)
            _save(self._records, states)
            raise
        self._bugs.pop(job.name, None)
        if not limits.dry_run:
            cut_short = limits.should_stop() and job_report.left
            states[job.name] = replace(
                state,
                last_at=state.last_at if cut_short else at,
                runs=state.runs + 1,
                changed=state.changed + job_report.changed,
                last_changed=job_report.changed,
                left=job_report.left,
            )
            _save(self._records, states)
        return job_report


def _failed(name: str, at: datetime, error: Exception) -> JobReport:
    return JobReport(name, at, notes=(f"failed: {report(error).code}",))


def _is_due(job: Job, state: JobState, at: datetime) -> bool:
    # A clock that was once ahead must not delay jobs for years.
    if job.every >= BY_HAND:
        return False
    return state.last_at is None or at - state.last_at >= job.every or state.last_at > at + job.every


def _load(records: SmallRecords) -> dict[str, JobState]:
    """Return the states of the record, none if it is missing or damaged."""
    try:
        stored = records.read(STATE_RECORD)
        return {
            name: JobState(
                last_at=datetime.fromisoformat(state["last_at"]) if state["last_at"] else None,
                runs=int(state["runs"]),
                changed=int(state["changed"]),
                last_changed=int(state["last_changed"]),
                left=bool(state["left"]),
                failures=int(state["failures"]),
                last_failure=str(state["last_failure"]),
            )
            for name, state in (json.loads(stored.content) if stored is not None else {}).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, StoreDamaged):
        return {}


def _save(records: SmallRecords, states: Mapping[str, JobState]) -> None:
    content = {
        name: {**asdict(state), "last_at": state.last_at.isoformat() if state.last_at else None}
        for name, state in states.items()
    }
    records.write(STATE_RECORD, json.dumps(content, indent=1).encode(), before=None)
