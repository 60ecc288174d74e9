"""Proposals from sessions in the inbox: drafts that wait for a human, each with the session and day that it is from.

A look reads the sessions of each project anew when any of them changed. What is new waits in the inbox; what nothing
says any more, or a later statement took back, and still waits is taken out again; a limit takes nothing out. What a
human decided stays decided: a key that was proposed once is not proposed again. Of a session that was forgotten or
purged what nobody accepted is erased. Invariant: nothing proposed here is ever active by itself, whatever the gate's
threshold, and no model is asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memory_anchor.admin.purge import FORGOTTEN, forget_sources, source_of
from memory_anchor.base.hashing import stable_hash
from memory_anchor.domain.model import Actor, Caller, Layer, Memory, Origin, Outcome, Scope, Status, Tag, WriteMode
from memory_anchor.domain.requests.requests import ForgetMemory
from memory_anchor.domain.rights import Action, may
from memory_anchor.domain.versions import Draft
from memory_anchor.domain.where import OneOf
from memory_anchor.extensions.sessions.archive import SessionsFile, parts_of
from memory_anchor.extensions.sessions.names import AGENTS
from memory_anchor.extensions.sessions.passages import shape_of
from memory_anchor.extensions.sessions.search import FoundPassage
from memory_anchor.extensions.sessions.use_cases import SessionArchive, StoredSession, citation_of
from memory_anchor.ingest.proposals import LIMIT, ReadSteps, SessionProposal, SessionStep, of_project, read_steps
from memory_anchor.language.safety import cleaned
from memory_anchor.layers.records import Request
from memory_anchor.upkeep.job_kit import current_where

if TYPE_CHECKING:
    from memory_anchor.process.wiring import Core
    from memory_anchor.use_cases.memory import MemoryAnchor

SESSIONS_MAX, WAITING_MAX = 500, 40
"""Sessions of a project that are read, the newest, and its proposals that wait at a time."""
CLIENT, STATE, MOVED = "sessions", "proposed", "~"
NO_GATE = 2.0
"""A confidence that nothing has: whatever passes the gate waits."""
CONFIDENCE = 0.85
UNSAID = "the sessions of this project do not propose it any more"


def propose(core: Core, part: SessionArchive, wait: Callable[[], None]) -> int:
    """Propose what the sessions of known projects hold, and take back what none says any more; return how many are
    new. While the memory is paused nothing is proposed. wait: lets requests go first."""
    archive = part.archive()
    if archive is None or core.settings.read_only:
        return 0
    sessions = part.sessions("", "", 0.0)
    for gone in part.steps_read.keys() - {one.id for one in sessions}:
        part.steps_read.pop(gone, None)
    projects: dict[str, list[StoredSession]] = {project: [] for project in part.folders().values()}
    for one in sessions:
        if one.is_known and not one.parent:
            projects[one.project].append(one)
    forget_gone(core, archive, projects, {one.ref for one in sessions})
    if core.services.paused():
        return 0
    count = 0
    for project, own in projects.items():
        state = stable_hash(*(one.state for one in own))
        note = f"{STATE} {project}"
        if archive.note(note) != state and (own or archive.note(note)):
            count += _propose_to(core, archive, project, own, part.steps_read, wait)
            archive.keep_note(note, state)
    return count


def forget_gone(core: Core, archive: SessionsFile, projects: Iterable[str], stored: Collection[str]) -> None:
    """Erase what was proposed from sessions that are not stored any more and that nobody accepted; what was accepted
    says that its source was forgotten. What another session proposes too may be proposed from that one."""
    proposed = {project: archive.proposed(project) for project in projects}
    ids = [memory for keys in proposed.values() for memory in keys.values() if memory]
    memories = _read(core, ids)
    sources = {source for memory in memories.values() for source in _sources(memory)}
    if not (gone := sources - set(stored)):
        return
    erased = forget_sources(core.upkeep, gone, at=core.clock.now(), by=f"system:{CLIENT}")
    core.services.invalidate_caches()
    for project, keys in proposed.items():
        for key, name in keys.items():
            if name in erased:
                archive.keep_proposal(project, key, None if memories[name].status is Status.PENDING else "")


def _read(core: Core, ids: Sequence[str]) -> dict[str, Memory]:
    where = current_where().and_(OneOf("id", tuple(ids)))
    found = core.services.store.find(Layer.VERIFIED_FACT.value, where, limit=len(ids)) if ids else []
    return {memory.id: memory for memory in found}


def _sources(memory: Memory) -> set[str]:
    """Return the sessions that a memory cites and that it does not call forgotten, as agent and id."""
    return {
        name
        for cited in memory.citations
        if cited.title != FORGOTTEN and (name := source_of(cited)).partition(":")[0] in AGENTS
    }


def _propose_to(
    core: Core,
    archive: SessionsFile,
    project: str,
    sessions: list[StoredSession],
    steps_read: dict[int, tuple[str, ReadSteps]],
    wait: Callable[[], None],
) -> int:
    known, before = {one.id: one for one in sessions}, archive.proposed(project)
    anchor = core.anchor(Actor(Caller.SYSTEM, Scope(account="", user="", agent=""), client=CLIENT, project=project))
    memories = _read(core, [memory for memory in before.values() if memory])
    waiting = {name: one for name, one in memories.items() if one.status is Status.PENDING}
    cited = {source for one in waiting.values() for source in _sources(one)}
    within = [one for at, one in enumerate(sessions) if at < SESSIONS_MAX or one.ref in cited]
    read = []
    for session in reversed(within):
        if (steps := steps_read.get(session.id)) is None or steps[0] != session.state:
            wait()
            steps = session.state, read_steps(session.id, list(_steps(archive, session.id)))
            steps_read[session.id] = steps
        read.append(steps[1])
    said = {one.key: one for one in of_project(read)}
    for key, name in before.items():
        if name not in waiting or ((one := said.get(key.partition(MOVED)[0])) is None and len(within) < len(sessions)):
            continue  # of what recurs, those that are not read may say it
        why = UNSAID if one is None else one.kept_out
        if why not in ("", LIMIT) and may(Action.FORGET, anchor.actor.caller, [waiting[name]]):
            wait()
            anchor.forget(ForgetMemory(id=name, reason=why))
            del waiting[name]
    count, earlier = 0, {key.partition(MOVED)[0] for key in before}
    for key, one in said.items():
        if one.kept_out or key in earlier or len(waiting) + count >= WAITING_MAX:
            continue
        wait()
        session = known[one.session]
        if not archive.rows("select 1 from session where agent = ? and name = ?", (session.agent, session.name)):
            steps_read.pop(session.id, None)  # it was forgotten or purged since it was read
            continue
        memory = _draft(anchor, one, session)
        archive.keep_proposal(project, key, memory)
        count += bool(memory)
    return count


@dataclass(frozen=True, slots=True)
class ProjectProposals:
    """What was proposed to projects that are merged; see `admin/merges`. A moved key names its project."""

    part: SessionArchive

    def of_project(self, project: str, target: str) -> list[str]:
        del target
        archive = self.part.archive()
        return list(archive.proposed(project)) if archive is not None else []

    def move(self, names: Sequence[str], old: str, new: str, *, back: bool = False) -> None:
        left, got = (f"{MOVED}{new}", "") if back else ("", f"{MOVED}{old}")
        rows = [(f"{new}/{name}{got}", f"{old}/{name}{left}") for name in names]
        if (archive := self.part.archive()) is not None:
            archive.write(lambda link: link.run_many("update or replace proposal set key = ? where key = ?", rows))


def _steps(archive: SessionsFile, session: int) -> Iterator[SessionStep]:
    """Yield what a session holds as steps, in their order."""
    actions: dict[int, list[SessionStep]] = defaultdict(list)
    rows = archive.rows(
        "select a.passage, a.kind, a.text, a.path, a.exit, a.shape, p.first, p.at from action a join passage p "
        "on p.id = a.passage where a.session = ? order by a.id",
        (session,),
    )
    for passage, kind, text, path, exit, shape, first, at in rows:
        code = None if exit is None else int(exit)
        step = SessionStep(str(kind), str(text), int(first or 0), float(at or 0), code, str(shape), str(path))
        actions[int(passage or 0)].append(step)
    failed: list[SessionStep] = []
    passages = archive.rows("select id, first, at, parts from passage where session = ? order by first, id", (session,))
    for id, first, at, parts in passages:
        waiting = iter(actions[int(id or 0)])
        for part, text in parts_of(parts):
            if part in ("user", "agent"):
                yield SessionStep(part, text, int(first or 0), float(at or 0))
            elif part == "call" and (act := next(waiting, None)) is not None:
                failed += [act] if act.exit and act.shape else []
                yield act
            elif part == "result" and (act := next((one for one in failed if one.shape == shape_of(text)), None)):
                failed.remove(act)
                act.printed = text
        yield from waiting


def _draft(anchor: MemoryAnchor, one: SessionProposal, session: StoredSession) -> str:
    """Return the id of the memory that waits now, "" where it is known already or the gate keeps it out."""
    safe = cleaned(one.text)
    hit = FoundPassage(0, one.session, one.at, one.first, 0.0, ())
    draft = Draft(
        content=safe.text,
        layer=Layer.VERIFIED_FACT,
        type=one.type,
        key=f"{one.kind}: {session.agent}",
        tags=(Tag(one.kind), Tag(CLIENT)),
        confidence=CONFIDENCE,
        citations=(citation_of(hit, session),),
        origin=Origin.EXTRACTED,
        write_mode=WriteMode.FACTUAL,
        quoted=True,
        redactions=safe.kinds,
        reason=f"proposed from a session of {session.agent}",
    )
    gate = replace(anchor.project.gate, active=NO_GATE)
    facts, key = anchor.services.facts.by_rules(), stable_hash(CLIENT, anchor.actor.scope.project, one.key)
    request = Request(key, key, explicit=False)
    outcome = anchor.services.records.replayed(request)  # of a look that was killed before it noted this
    if outcome is None:
        if facts.predicted_outcome(anchor.actor, draft, None, gate=gate) is Outcome.SKIPPED:
            return ""
        outcome = facts.save(anchor.actor, draft, request, gate=gate)
    return str(outcome.id or "") if outcome.status is Status.PENDING else ""
