"""Proposals from sessions in the inbox: drafts that wait for a human, each with the session and day that it is from.

A look reads the sessions of each project anew when any of them changed. What is new waits in the inbox; what nothing
says any more (its session was forgotten or purged, a later one took it back) and still waits is taken out again. What a
human decided stays decided: a key that was proposed once is not proposed again. Invariant: nothing proposed here is
ever active by itself, whatever the gate's threshold, and no model is asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from memory_anchor.base.hashing import stable_hash
from memory_anchor.domain.errors import NotFound
from memory_anchor.domain.model import Actor, Caller, Layer, Origin, Outcome, Scope, Status, Tag, WriteMode
from memory_anchor.domain.requests.requests import ForgetMemory
from memory_anchor.domain.versions import Draft
from memory_anchor.extensions.sessions.archive import SessionsFile, parts_of
from memory_anchor.extensions.sessions.passages import shape_of
from memory_anchor.extensions.sessions.search import FoundPassage
from memory_anchor.extensions.sessions.use_cases import SessionArchive, StoredSession, citation_of
from memory_anchor.ingest.proposals import ReadSteps, SessionProposal, SessionStep, of_project, read_steps
from memory_anchor.language.safety import cleaned
from memory_anchor.layers.records import Request

if TYPE_CHECKING:
    from memory_anchor.process.wiring import Core
    from memory_anchor.use_cases.memory import MemoryAnchor

SESSIONS_MAX, WAITING_MAX = 500, 40
"""Sessions of a project that are read, the newest, and its proposals that wait at a time."""
CLIENT, STATE = "sessions", "proposed"
NO_GATE = 2.0
"""A confidence that nothing has: whatever passes the gate waits."""
CONFIDENCE = 0.85
GONE = "no session says it any more"


def propose(core: Core, part: SessionArchive, wait: Callable[[], None]) -> int:
    """Propose what the sessions of known projects hold, and take back what none says any more; return how many are
    new. wait: lets requests go first."""
    archive = part.archive()
    if archive is None or core.settings.read_only or core.services.paused():
        return 0
    sessions = part.sessions("", "", 0.0)
    for gone in part.steps_read.keys() - {one.id for one in sessions}:
        del part.steps_read[gone]
    projects: dict[str, list[StoredSession]] = {project: [] for project in part.folders().values()}
    for one in sessions:
        if one.is_known and not one.parent and len(projects[one.project]) < SESSIONS_MAX:
            projects[one.project].append(one)
    count = 0
    for project, own in projects.items():
        state = stable_hash(*(f"{one.agent}:{one.name}:{one.passages}:{one.ended}" for one in own))
        note = f"{STATE} {project}"
        if archive.note(note) != state and (own or archive.note(note)):
            count += _propose_to(core, archive, project, own, part.steps_read, wait)
            archive.keep_note(note, state)
    return count


def _propose_to(
    core: Core,
    archive: SessionsFile,
    project: str,
    sessions: list[StoredSession],
    steps_read: dict[int, tuple[tuple[int, float], ReadSteps]],
    wait: Callable[[], None],
) -> int:
    known = {one.id: one for one in sessions}
    read = []
    for session in reversed(sessions):
        state = session.passages, session.ended
        if session.id not in steps_read or steps_read[session.id][0] != state:
            wait()
            steps_read[session.id] = state, read_steps(session.id, list(_steps(archive, session.id)))
        read.append(steps_read[session.id][1])
    wanted = {one.key: one for one in of_project(read)}
    before = archive.proposed(project)
    anchor = core.anchor(Actor(Caller.SYSTEM, Scope(account="", user="", agent=""), client=CLIENT, project=project))
    waiting = {key: memory for key, memory in before.items() if memory and _still_waits(anchor, memory)}
    for key, memory in before.items():
        if memory and (key not in waiting or key not in wanted):
            wait()
            if key in waiting:
                anchor.forget(ForgetMemory(id=waiting.pop(key), reason=GONE))
            archive.keep_proposal(project, key, "")
    count = 0
    for key, one in wanted.items():
        if key in before or len(waiting) + count >= WAITING_MAX:
            continue
        wait()
        memory = _draft(anchor, one, known[one.session])
        archive.keep_proposal(project, key, memory)
        count += bool(memory)
    return count


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


def _still_waits(anchor: MemoryAnchor, memory: str) -> bool:
    try:
        return anchor.services.records.read(memory, anchor.actor.scope).status is Status.PENDING
    except NotFound:
        return False


def _draft(anchor: MemoryAnchor, one: SessionProposal, session: StoredSession) -> str:
    """Return the id of the memory that waits now, "" where it is known already or the gate keeps it out."""
    safe = cleaned(one.text)
    hit = FoundPassage(0, one.session, one.text, one.at, 0.0, one.first)
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
    if facts.predicted_outcome(anchor.actor, draft, None, gate=gate) is Outcome.SKIPPED:
        return ""
    outcome = facts.save(anchor.actor, draft, Request(key, key, explicit=False), gate=gate)
    return str(outcome.id or "") if outcome.status is Status.PENDING else ""
