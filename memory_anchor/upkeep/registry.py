"""Every job there is, in the order in which they run when several are due.

What frees and finishes comes first (counts, half-done writes), then what makes new memories of old ones, then what
archives: a conversation is told before its events may fade.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from memory_anchor.upkeep.consolidation import consolidate, merge_duplicates
from memory_anchor.upkeep.forgetting import expire_events, forget
from memory_anchor.upkeep.jobs import Job
from memory_anchor.upkeep.settling import finish_supersedes, mark_to_verify, rebuild_tags, reconsolidate, renew_words
from memory_anchor.upkeep.upkeep import JobReport, Limits, Upkeep

EMBED_BATCH = 16
EMBED_BATCHES_MAX = 10_000
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


class _Usage(Protocol):
    def flush(self, stand_aside: Callable[[], None], /) -> int: ...


class _Searcher(Protocol):
    def embed_pending(self, limit: int, /) -> int: ...


class _Knowledge(Protocol):
    def look_again(self) -> int: ...


class _Services(Protocol):
    @property
    def usage(self) -> _Usage: ...

    @property
    def searcher(self) -> _Searcher: ...

    @property
    def knowledge(self) -> _Knowledge: ...

    def read_anew(self) -> None: ...


class Host(Protocol):
    """The process whose buffers jobs write."""

    @property
    def services(self) -> _Services: ...


def all_jobs(host: Host, intervals_h: Mapping[str, float]) -> tuple[Job, ...]:
    """Return the jobs of one process; `host` is asked when they run, not now.

    intervals_h: job -> hours between two runs, where the user set them.
    """

    def flush_usage(up: Upkeep, at: datetime, limits: Limits) -> JobReport:
        if limits.dry_run:
            return JobReport("flush_usage", at, dry_run=True)
        return JobReport("flush_usage", at, counts={"memories": host.services.usage.flush(up.stand_aside)})

    def embed_pending(up: Upkeep, at: datetime, limits: Limits) -> JobReport:
        done = 0
        for _ in range(0 if limits.dry_run else EMBED_BATCHES_MAX):
            up.stand_aside()
            embedded = host.services.searcher.embed_pending(EMBED_BATCH)
            done += embedded
            if not embedded:
                return JobReport("embed_pending", at, counts={"embedded": done})
            if limits.should_stop():
                break
        return JobReport(
            "embed_pending", at, left=not limits.dry_run, dry_run=limits.dry_run, counts={"embedded": done}
        )

    def words(up: Upkeep, at: datetime, limits: Limits) -> JobReport:
        return renew_words(up, at, limits, on_renewed=host.services.read_anew)

    def knowledge(up: Upkeep, at: datetime, limits: Limits) -> JobReport:
        del up
        queued = 0 if limits.dry_run else host.services.knowledge.look_again()
        return JobReport("look_at_sources", at, dry_run=limits.dry_run, counts={"sources": queued})

    jobs = (
        Job("flush_usage", "write counted uses of memories", MINUTE, flush_usage),
        Job("finish_supersedes", "end memories whose successor was written and they were not", HOUR, finish_supersedes),
        Job("renew_words", "index words anew after an update that cuts text otherwise", HOUR, words),
        Job("embed_pending", "embed what was stored without its meaning", HOUR, embed_pending),
        Job("consolidate", "tell ended conversations as one story each", 15 * MINUTE, consolidate),
        Job("merge_duplicates", "merge extracted facts that say the same, citing both", DAY, merge_duplicates),
        Job(
            "reconsolidate",
            "find contradictions among recalled facts, settle what newer words decide",
            DAY,
            reconsolidate,
        ),
        Job("rebuild_tags", "count which tags occur together", DAY, rebuild_tags),
        Job("mark_to_verify", "mark facts whose confidence has faded", DAY, mark_to_verify),
        Job("look_at_sources", "read what changed in the sources of knowledge", 15 * MINUTE, knowledge),
        Job("expire_events", "archive events past their time to live", HOUR, expire_events),
        Job("forget", "archive what faded, up to the night's cap", DAY, forget),
    )
    return tuple(
        replace(job, every=timedelta(hours=intervals_h[job.name])) if job.name in intervals_h else job for job in jobs
    )
