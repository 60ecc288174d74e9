"""Compare how long memories live with what their displayed strength promises, through the tools that agents use.

    python scripts/bench_life.py            # the defaults, then other rates, noise, intervals and policies
    python scripts/bench_life.py --days 45  # a quick look

A simulated clock over a whole memory on the reference store: events and notes are written four times a day among facts
that stay, half of them are recalled (`get_memory`, which renews them), and `flush_usage` and `forget` run when the
settings say so. A memory's life is the days until it was archived; its promised life ends when the formula's strength,
with its own uses and without noise, falls below `lifecycle.forget_below`, to the hour. Memories whose promised life
ends in the last days are left out: they had no time to be archived. Prints the medians by group and their ratio, the
median of single ratios (`each`, which mixes no types), and how many are still alive.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from memory_anchor.domain.activation import ActivationSettings, strength_of
from memory_anchor.domain.model import Actor, Memory, Scope, Status
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.testing import START, ManualClock, ephemeral_core

DAYS, FACTS, A_STEP, STEP_H = 90, 60, 6, 6
TAIL_DAYS = 30
"""What is written in these days at the end is not counted: what noise lets live longer must have time to go."""
FINE_H = 1
RECALLED: dict[int, tuple[float, ...]] = {0: (), 1: (), 2: (), 3: (0.3,), 4: (0.3,), 5: (0.15, 0.3)}
"""When a memory is recalled, in shares of the life first shown, by its number modulo six: so early that noise has
hardly taken any of them before."""
ARMS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "no noise": {"noise": 0},
    "noise 0.5": {"noise": 0.5},
    "half-life of events 5 days, of notes 7": {"half_life_days": {"event": 5, "note": 7}},
    "renewed by recalls, 1.5 and 2 days, every 6 hours": {
        "half_life_days": {"event": 1.5, "note": 2},
        "recent_days": 1,
        "intervals_h": {"forget": 6},
    },
    "forget every 6 hours": {"intervals_h": {"forget": 6}},
    "forget every 3 days": {"intervals_h": {"forget": 72}},
    "priority_decay, seed formula": {"policy": "priority_decay", "activation": "seed"},
    "linear": {"activation": "linear"},
}
JOBS = ("flush_usage", "forget")


def lives(own: dict[str, Any], *, days: int, seed: int) -> list[tuple[str, float, float | None]]:
    """Return (group, life shown, life) of every memory whose life shown ends in time; None: it lives still."""
    with tempfile.TemporaryDirectory(prefix="life-") as folder:
        clock = ManualClock()
        settings = Settings.model_validate({"lifecycle": own})
        core = ephemeral_core(Path(folder), clock=clock, settings=settings)
        draw = random.Random(seed)
        anchor = core.anchor(Actor(scope=Scope(conversation="facts")))
        for number in range(FACTS):
            anchor.save_memory(f"Shelf {number} holds box {number * 7919 % 100_003} of lot {number * 31}.")
        written: list[tuple[str, float]] = []
        recalls: list[tuple[float, str]] = []
        for step in range(days * 24 // STEP_H):
            at = step * STEP_H / 24
            clock.set(START + timedelta(days=at))
            here = core.anchor(Actor(scope=Scope(conversation=f"talk {step}")))
            for number in range(A_STEP):
                said = f"Run {len(written)} ended with code {draw.randrange(10**6)} on host {draw.randrange(10**6)}."
                name = here.log_event(said, type=("event", "note")[number % 2]).id or ""
                first = shown_life(
                    core.services.records.read(name, here.actor.scope),
                    core.upkeep.activation,
                    core.upkeep.lifecycle.forget_below,
                )
                recalls += [(at + first * share, name) for share in RECALLED[len(written) % len(RECALLED)]]
                written.append((name, at))
            for due, name in [one for one in recalls if one[0] <= at]:
                recalls.remove((due, name))
                if anchor.services.records.read(name, anchor.actor.scope).status is Status.ACTIVE:
                    anchor.get(name)
            waiting = {job.name for job in core.scheduler.due(clock.now())}
            for job in JOBS:
                if job in waiting:
                    core.scheduler.run(job, clock.now())
        return [
            one
            for name, began in written
            if began < days - TAIL_DAYS and (one := _life(core, name, began, days)) is not None
        ]


def _life(core: Core, name: str, began: float, days: int) -> tuple[str, float, float | None] | None:
    versions = core.anchor(Actor(scope=Scope(conversation="facts"))).history(name)
    gone = next((one for one in versions if one.status is Status.ARCHIVED), None)
    last = max(versions, key=lambda one: one.version)
    shown = shown_life(
        replace(versions[0], usage=last.usage), core.upkeep.activation, core.upkeep.lifecycle.forget_below
    )
    if began + shown > days - TAIL_DAYS / 3:
        return None
    group = f"{last.type.value}, {last.usage.count} recalls"
    return group, shown, None if gone is None else (gone.recorded_at - START).total_seconds() / 86_400 - began


def shown_life(memory: Memory, by: ActivationSettings, below: float) -> float:
    """Return the days after which the strength of the formula is below a bound, uses as they were."""
    calm = replace(by, noise=0.0)
    last = max([memory.learned_at, *memory.usage.accesses])
    hours = (last - memory.learned_at).total_seconds() / 3_600
    while strength_of(memory, memory.learned_at + timedelta(hours=hours), calm) >= below:
        hours += FINE_H
    return hours / 24


def told(found: list[tuple[str, float, float | None]]) -> dict[str, Any]:
    """Return both medians, their ratio, and the same by group; who lives still lives longest."""

    def of(some: list[tuple[str, float, float | None]]) -> dict[str, Any]:
        shown = statistics.median(one[1] for one in some)
        life = statistics.median(float("inf") if one[2] is None else one[2] for one in some)
        each = statistics.median(float("inf") if one[2] is None else one[2] / one[1] for one in some)
        alive = sum(one[2] is None for one in some)
        return {
            "memories": len(some),
            "shown": round(shown, 2),
            "life": round(life, 2),
            "ratio": round(life / shown, 3),
            "each": round(each, 3),
            "alive": alive,
        }

    groups = sorted({one[0] for one in found})
    return {**of(found), "by": {group: of([one for one in found if one[0] == group]) for group in groups}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", default="", help="arms whose name has this in it")
    given = parser.parse_args()
    for name, own in ARMS.items():
        if given.only in name:
            print(name, json.dumps(told(lives(own, days=given.days, seed=given.seed))), flush=True)


if __name__ == "__main__":
    main()
