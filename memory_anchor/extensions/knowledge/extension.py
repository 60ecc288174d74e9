"""Text that others wrote: sources, passages, citations."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from memory_anchor.extensions.extension import Extension, Running

if TYPE_CHECKING:
    from datetime import datetime

    from memory_anchor.context.context import ContextSources
    from memory_anchor.process.wiring import Core
    from memory_anchor.use_cases.memory import MemoryAnchor


LOOK = "look_at_sources"
LOOK_EVERY = timedelta(minutes=15)


def _start(core: Core) -> Running:
    from memory_anchor.extensions.knowledge.library import Library
    from memory_anchor.extensions.knowledge.use_cases import ProjectSources, knowledge_of, text_holders
    from memory_anchor.upkeep.job_kit import JobReport, Limits, Upkeep
    from memory_anchor.upkeep.jobs import Job

    library = Library(
        core.services.store,
        core.clock,
        core.data_dir,
        audit=core.audit,
        embedders=core.services.searcher.index.query_embedder.embedders,
        new_id=core.new_id,
        on_waiting=core.wake,
        quarantine=core.quarantine,
        cpu_s=time.thread_time,
    )

    def begin() -> None:
        library.has_worker = True

    def look(up: Upkeep, at: datetime, limits: Limits) -> JobReport:
        del up
        queued = 0 if limits.dry_run else library.queue_rescan()
        return JobReport(LOOK, at, dry_run=limits.dry_run, counts={"sources": queued})

    def context(anchor: MemoryAnchor, sources: ContextSources) -> ContextSources:
        return replace(sources, knowledge=knowledge_of(anchor).strong_passages) if library.is_used else sources

    return Running(
        part=library,
        jobs=[Job(LOOK, "read what changed in knowledge sources", LOOK_EVERY, look)],
        begin=begin,
        close=library.close,
        idle=library.work_a_little,
        invalidate=library.index.invalidate,
        context=context,
        passages=lambda anchor, query: knowledge_of(anchor).strong_passages(query) if library.is_used else (),
        frozen=library.frozen,
        holders=lambda: text_holders(library),
        moves=lambda _: {"sources": ProjectSources(library)},
    )


EXTENSION = Extension(name="knowledge", commands=("knowledge",), start=_start)
