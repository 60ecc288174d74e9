"""A job killed anywhere loses nothing and doubles nothing, and the next run brings it to the same end.

The fast form stops the job before and after every single write to the reference store. The slow form sends SIGKILL to
a process that has the embedded engine open, fifty times a job with MEMORY_ANCHOR_FULL_FIGURES=1.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import time
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from figures import figure, one_in
from fresh import passed_alone
from stores import file_store, records_in
from timekit import EMBEDDER, T0, a_memory, current, day, put, upkeep

from memory_anchor.domain.model import Citation, MemoryType, Origin, Scope, Status, Tag
from memory_anchor.domain.ports import DENSE, CollectionSpec
from memory_anchor.domain.where import Where
from memory_anchor.store.audit_rows import SqlAudit
from memory_anchor.store.database import UnitLock
from memory_anchor.testing import ManualClock
from memory_anchor.upkeep.forgetting import expire_events, forget
from memory_anchor.upkeep.job_kit import COLLECTIONS_KEPT
from memory_anchor.upkeep.registry import consolidate, merge_duplicates
from memory_anchor.upkeep.settling import (
    RENEWED,
    finish_supersedes,
    mark_to_verify,
    rebuild_tags,
    reconsolidate,
    renew_words,
)
from memory_anchor.upkeep.statistics import UsageBuffer

NIGHT = day(200)
KILLS = figure(2, 50)


def chat(name, many):
    at = [T0 + timedelta(minutes=i) for i in range(many)]
    return [
        a_memory(
            f"{name}{i}",
            f"{name} turn {i}. What else was said about it took a while and does not change what happened.",
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
    "expire_events": (expire_events, [a_memory(f"e{i}", ttl_days=7, expires_at=day(7)) for i in range(60)]),
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
    "mark_to_verify": (mark_to_verify, [extracted(f"f{i}", f"fact number {i}") for i in range(60)]),
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
    "renew_words": (
        partial(renew_words, on_renewed=lambda: None),
        [a_memory(f"w{i}", f"went to place number {i}") for i in range(120)],
    ),
    "rebuild_tags": (rebuild_tags, [a_memory(f"t{i}", tags=(Tag("x"), Tag(f"y{i % 3}"))) for i in range(9)]),
}
RULES = {"max_archived_share": 1.0}


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
        up = replace(upkeep(**RULES), records=records_in(tmp_path / str(number)))
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
        uses = UsageBuffer(fused(up, Fuse(moment, blow)).store, ManualClock(NIGHT), up.lock, records=up.records)
        uses.record_use(*current(up).values())
        with pytest.raises(Killed):
            uses.flush()
        UsageBuffer(up.store, ManualClock(NIGHT), up.lock, records=up.records).flush()

        assert all(m.usage.count <= 1 for m in current(up).values())


def _open(folder):
    store = file_store(folder / "store")
    for name in RENEWED:
        store.open_collection(name, CollectionSpec({DENSE: EMBEDDER.identity}))
    up = replace(upkeep(store, **RULES), audit=SqlAudit(store.database))
    return replace(up, lock=UnitLock(store.database), records=records_in(folder / "state"))


def _child(work):
    """Run `work` in a forked process and return its id. The parent has imported all and never opens the engine."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return pid


def _status(pid):
    return os.waitpid(pid, 0)[1]


def _audited(up):
    """Assert that the trail holds every version that a job wrote, each once."""
    whats = [record["what"] for record in up.audit.records()]
    told = [(one["id"], one["version"]) for what in whats for one in what.get("memories", [what])]
    pages = [up.store.scan(name, Where(), page=10_000)[0] for name in COLLECTIONS_KEPT]
    written = [e.memory for page in pages for e in page if e.memory.author.startswith("job:")]
    assert sorted(told) == sorted((m.id, m.version) for m in written)
    assert up.audit.verify() is None


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.parametrize("name", one_in(3, SCENES))
def test_a_process_killed_in_the_middle_of_a_job_loses_and_doubles_nothing(name, tmp_path, request):
    """Rule: kill -9 in the middle of each job 50 times: no loss, no double, the next run completes.

    Every other kill comes right before or after a write, the others at any instant of the job. Each starts from a copy
    of one filled store, in a process forked from this one, so that a kill costs about a second.
    """
    if passed_alone(request):
        return
    job, memories = SCENES[name]

    def fill():
        up = _open(tmp_path / "filled")
        put(up, *memories)
        up.store.close()

    def whole():
        up = _open(tmp_path / "whole")
        fuse = Fuse(-1, blow)
        began = time.perf_counter()
        job(fused(up, fuse), NIGHT)
        took = time.perf_counter() - began
        job(up, NIGHT)
        _audited(up)
        (tmp_path / "expected.json").write_text(json.dumps([fuse.moments, took, end_state(up)]))
        up.store.close()

    assert _status(_child(fill)) == 0
    shutil.copytree(tmp_path / "filled", tmp_path / "whole")
    assert _status(_child(whole)) == 0
    moments, took, expected = json.loads((tmp_path / "expected.json").read_text())
    draw = random.Random(name)
    for kill in range(KILLS):
        folder = tmp_path / f"kill-{kill}"
        shutil.copytree(tmp_path / "filled", folder)
        moment = draw.randrange(moments) if moments and kill % 2 else -1
        began, begins = os.pipe()

        def die(folder=folder, moment=moment, begins=begins):
            up = _open(folder)
            os.write(begins, b"!")
            job(fused(up, Fuse(moment, lambda: os.kill(os.getpid(), signal.SIGKILL))), NIGHT)
            signal.pause()

        def finish(folder=folder):
            up = _open(folder)
            job(up, NIGHT)
            assert end_state(up) == expected
            _audited(up)
            up.store.close()

        pid = _child(die)
        if moment < 0:
            assert os.read(began, 1) == b"!"
            time.sleep(draw.uniform(0, took))
            os.kill(pid, signal.SIGKILL)
        assert os.WTERMSIG(_status(pid)) == signal.SIGKILL
        os.close(began)
        os.close(begins)
        assert _status(_child(finish)) == 0, f"kill {kill}, at moment {moment} of {moments}"
        shutil.rmtree(folder)
