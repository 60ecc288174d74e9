"""Past and present sessions of the agents on this machine, as a source."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from memory_anchor.extensions.extension import Extension, Running

if TYPE_CHECKING:
    from datetime import datetime

    from memory_anchor.admin.purge import Holder
    from memory_anchor.domain.model import SearchAnswer
    from memory_anchor.process.wiring import Core
    from memory_anchor.use_cases.memory import MemoryAnchor

LOOK_EVERY = timedelta(minutes=15)


def _start(core: Core) -> Running:
    from memory_anchor.admin.purge import Cache
    from memory_anchor.extensions.sessions.adopting import look_again
    from memory_anchor.extensions.sessions.meaning import PassageVectors
    from memory_anchor.extensions.sessions.names import LOOK
    from memory_anchor.extensions.sessions.proposing import ProjectProposals, propose
    from memory_anchor.extensions.sessions.settings import SessionsSettings
    from memory_anchor.extensions.sessions.use_cases import SessionArchive, sessions_of
    from memory_anchor.settings import API_EMBEDDERS
    from memory_anchor.upkeep.job_kit import JobReport, Limits, Upkeep
    from memory_anchor.upkeep.jobs import Job

    shared = core.services
    made_here = shared.local if core.settings.embedder.kind in API_EMBEDDERS else shared.embedder
    vectors = PassageVectors(made_here, core.quarantine) if made_here is not None else None
    part = SessionArchive(core.data_dir, core.projects, vectors, core.wake)
    keep = core.settings.group(SessionsSettings).keep

    def look(up: Upkeep, at: datetime, limits: Limits) -> JobReport:
        del up
        archive = part.archive()
        passages = proposals = 0
        if archive is not None and not limits.dry_run:
            wait = core.foreground.wait_until_quiet
            passages = 0 if core.services.paused() else look_again(archive, at, keep=keep, wait=wait)
            proposals = propose(core, part, wait)
            core.wake()
        return JobReport(LOOK, at, dry_run=limits.dry_run, counts={"passages": passages, "proposals": proposals})

    def on_hook(event: str) -> None:
        if event == "SessionEnd" and part.is_adopted:
            core.scheduler.queue(LOOK)  # in the background: a client that ends waits for nobody

    def besides(anchor: MemoryAnchor, query: str, answer: SearchAnswer) -> SearchAnswer:
        return sessions_of(anchor).joined(answer, query) if part.is_adopted and anchor.actor.project_dir else answer

    def holders() -> list[Holder]:
        archive = part.archive()
        read = Cache("what sessions propose", part.steps_read.clear)
        return [] if archive is None else [archive, read]

    job = Job(LOOK, "read what is new in agents' sessions, once they were adopted", LOOK_EVERY, look)
    return Running(
        part=part,
        jobs=[job],
        on_hook=on_hook,
        idle=part.embed_some,
        besides=besides,
        frozen=part.frozen,
        close=part.close,
        holders=holders,
        moves=lambda _: {"proposals": ProjectProposals(part)},
    )


EXTENSION = Extension(name="sessions", commands=("adopt", "sessions", "handoff"), has_settings=True, start=_start)
