"""A job killed anywhere loses nothing and doubles nothing, and the next run brings it to the same end.

The fast form stops the job before and after every single write to the reference store. The slow form sends SIGKILL to
a process that has the embedded engine open, fifty times a job.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from timekit import EMBEDDER, T0, ListAudit, a_memory, current, day, put, upkeep

from memory_anchor.lifecycle.consolidation import consolidate, merge_duplicates
from memory_anchor.lifecycle.forgetting import expire_events, forget
from memory_anchor.lifecycle.settling import finish_supersedes, mark_to_verify, rebuild_tags, reconsolidate
from memory_anchor.lifecycle.upkeep import LifecycleRules, Upkeep
from memory_anchor.lifecycle.usage import UsageBuffer
from memory_anchor.model import COLLECTIONS, Citation, MemoryType, Origin, Scope, Status, Tag
from memory_anchor.ports import DENSE, CollectionSpec
from memory_anchor.testing import ManualClock
from memory_anchor.where import Where

NIGHT = day(200)
KILLS = 50


def chat(name, many):
    at = [T0 + timedelta(minutes=i) for i in range(many)]
    return [
        a_memory(
            f"{name}{i}",
            f"{name} turn {i}",
            scope=Scope(conversation=name),
            recorded_at=t,
            when=t,
            conversation_seq=i + 1,
        )
        for i, t in enumerate(at)
    ]


def extracted(memory_id, content, **changes):
    return a_memory(memory_id, content, MemoryType.FACT, **{"origin": Origin.EXTRACTED, **changes})


SCENES = {
    "expire_events": (expire_events, [a_memory(f"e{i}", ttl_days=7, expires_at=day(7)) for i in range(230)]),
    "forget": (
        forget,
        [
            *chat("a", 4),
            *chat("b", 5),
            *(a_memory(f"s{i}", recorded_at=day(i)) for i in range(30)),
            *(extracted(f"f{i}", f"fact number {i}") for i in range(5)),
        ],
    ),
    "consolidate": (consolidate, [*chat("a", 4), *chat("b", 70), *chat("c", 3)]),
    "merge_duplicates": (
        merge_duplicates,
        [
            extracted(
                f"{i}{copy}", f"The service number {i} listens on port {8000 + i} for the team", recorded_at=day(190)
            )
            for i in range(6)
            for copy in "xy"
        ],
    ),
    "finish_supersedes": (
        finish_supersedes,
        [
            extracted("old", "Use pip"),
            extracted("new", "Use uv", previous_version_id="old@1", recorded_at=day(199)),
            a_memory("event"),
            extracted("rule", "uv", citations=(Citation("event", "event"),), recorded_at=day(199)),
        ],
    ),
    "mark_to_verify": (mark_to_verify, [extracted(f"f{i}", f"fact number {i}") for i in range(230)]),
    "reconsolidate": (
        reconsolidate,
        [
            m
            for i in range(4)
            for m in (
                extracted(f"o{i}", f"Server {i} runs on port 80", status=Status.DISPUTED, disputes=(f"n{i}",)),
                extracted(
                    f"n{i}",
                    f"Server {i} now runs on port 90",
                    status=Status.DISPUTED,
                    disputes=(f"o{i}",),
                    recorded_at=day(1),
                ),
            )
        ],
    ),
    "rebuild_tags": (rebuild_tags, [a_memory(f"t{i}", tags=(Tag("x"), Tag(f"y{i % 3}"))) for i in range(9)]),
}
RULES = {"max_archived_share": 1.0, "merge_threshold": 0.95}


class Killed(BaseException):
    """The process ends here."""


class Fuse:
    """Counts the moments before and after every write, and blows at one of them."""

    def __init__(self, blow_at, blow):
        self.blow_at, self.blow, self.moments = blow_at, blow, 0

    def moment(self):
        if self.moments == self.blow_at:
            self.blow()
        self.moments += 1

    def around(self, call):
        def wrapped(*args, **kinds):
            self.moment()
            answer = call(*args, **kinds)
            self.moment()
            return answer

        return wrapped


class Fused:
    """A port whose writes pass the fuse."""

    def __init__(self, inner, fuse, *names):
        self._inner = inner
        for name in names:
            setattr(self, name, fuse.around(getattr(inner, name)))

    def __getattr__(self, name):
        return getattr(self._inner, name)


class FusedAudit:
    """An audit trail whose records pass the fuse."""

    def __init__(self, inner, fuse):
        self._inner, self._fuse = inner, fuse

    @contextlib.contextmanager
    def recording(self, *args, **kinds):
        with self._inner.recording(*args, **kinds):
            yield
        self._fuse.moment()


def fused(up, fuse):
    return replace(up, store=Fused(up.store, fuse, "put", "set_usage"), audit=FusedAudit(up.audit, fuse))


def end_state(up):
    """What the store says in the end: one current version an id, whatever its number and time of writing."""
    versions = [
        e.memory for name in ("event_log", "verified_fact") for e in up.store.scan(name, Where(), page=10_000)[0]
    ]
    now = [m for m in versions if m.is_current]
    assert len({m.id for m in now}) == len(now), "two current versions of one memory"
    assert {m.id for m in versions} == {m.id for m in now}, "a memory without a current version"
    return {
        m.id: [
            m.status.value,
            m.content,
            sorted(t.name for t in m.tags),
            m.promoted_to,
            list(m.disputes),
            sorted(c.ref for c in m.citations),
        ]
        for m in now
    }


def blow():
    raise Killed


@pytest.mark.parametrize("name", SCENES)
def test_stopped_before_or_after_any_write_a_job_comes_to_the_same_end(name, tmp_path):
    """Rule: no loss, no double, the next run completes."""
    job, memories = SCENES[name]

    def scene(number):
        up = replace(upkeep(**RULES), state_dir=tmp_path / str(number))
        put(up, *memories)
        return up

    whole = scene("whole")
    counter = Fuse(-1, blow)
    job(fused(whole, counter), NIGHT)
    job(whole, NIGHT)
    expected = end_state(whole)

    for moment in range(counter.moments):
        up = scene(moment)
        with pytest.raises(Killed):
            job(fused(up, Fuse(moment, blow)), NIGHT)
        job(up, NIGHT)
        job(up, NIGHT)
        assert end_state(up) == expected, f"killed at moment {moment} of {counter.moments}"


def test_a_flush_cut_short_counts_nothing_twice():
    """Rule: a crash may lose a minute of counts, never double one."""
    memories = [*(a_memory(f"u{i}") for i in range(230)), extracted("f", "a fact")]
    for moment in range(6):
        up = upkeep()
        put(up, *memories)
        uses = UsageBuffer(fused(up, Fuse(moment, blow)).store, ManualClock(NIGHT), up.lock)
        uses.used(*current(up).values())
        with pytest.raises(Killed):
            uses.flush()
        UsageBuffer(up.store, ManualClock(NIGHT), up.lock).flush()

        assert all(m.usage.count <= 1 for m in current(up).values())


def _open(folder):
    from memory_anchor.adapters.edge_store import EdgeStore
    from memory_anchor.runtime.lock import DirectoryLock

    store = EdgeStore(folder / "store", lock=DirectoryLock.acquire(folder, role="test"), reserve_bytes=0)
    for name in COLLECTIONS:
        store.open_collection(name, CollectionSpec({DENSE: EMBEDDER.identity}))
    return Upkeep(store, ListAudit(), threading.RLock(), rules=LifecycleRules(**RULES), state_dir=folder / "state")


def _in_child(work):
    """Run `work` in a forked process; return its exit status. The parent never opens the engine."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.parametrize("name", SCENES)
def test_a_process_killed_in_the_middle_of_a_job_loses_and_doubles_nothing(name, tmp_path):
    """Rule: kill -9 in the middle of each job 50 times: no loss, no double, the next run completes."""
    job, memories = SCENES[name]

    def whole():
        up = _open(tmp_path / "whole")
        put(up, *memories)
        fuse = Fuse(-1, blow)
        job(fused(up, fuse), NIGHT)
        job(up, NIGHT)
        (tmp_path / "expected.json").write_text(json.dumps([fuse.moments, end_state(up)]))
        up.store.close()

    assert _in_child(whole) == 0
    moments, expected = json.loads((tmp_path / "expected.json").read_text())
    draw = random.Random(name)
    for kill in range(KILLS if moments else 1):
        folder = tmp_path / str(kill)
        moment = draw.randrange(moments) if moments else None

        def die(folder=folder, moment=moment):
            up = _open(folder)
            put(up, *memories)
            if moment is not None:
                job(fused(up, Fuse(moment, lambda: os.kill(os.getpid(), signal.SIGKILL))), NIGHT)

        def finish(folder=folder):
            up = _open(folder)
            job(up, NIGHT)
            assert end_state(up) == expected
            up.store.close()

        status = _in_child(die)
        assert moment is None or os.WTERMSIG(status) == signal.SIGKILL
        assert _in_child(finish) == 0, f"killed at moment {moment} of {moments}"
