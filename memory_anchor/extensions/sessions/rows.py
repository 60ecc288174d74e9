"""The use cases of sessions, and how their answers are shown."""

from __future__ import annotations

from collections.abc import Sequence

from memory_anchor.base.json_values import Record
from memory_anchor.extensions.sessions import requests as wanted
from memory_anchor.extensions.sessions.search import FoundPassage
from memory_anchor.extensions.sessions.use_cases import StoredSession, citation_of, sessions_of, when_of
from memory_anchor.front import views
from memory_anchor.front.rows import Row, as_is, row
from memory_anchor.use_cases.memory import MemoryAnchor

FURTHER = {
    "": "More of it: `memory-anchor sessions show {session}`.",
    "codex": "More of it: run `memory-anchor sessions show {session}` in the shell.",
}
"""How an agent is told to look further."""


def shown_session(one: StoredSession) -> views.Shown:
    """Return {session, agent, project, folder, title, began, ended, passages, branch?, parent?}."""
    shaped: views.Shown = {"session": one.name, "agent": one.agent, "project": one.project, "folder": one.cwd}
    shaped |= {"title": one.title, "began": _time(one.began), "ended": _time(one.ended), "passages": one.passages}
    return shaped | {name: value for name in ("branch", "parent") if (value := getattr(one, name))}


def _time(at: float) -> str | None:
    when = when_of(at)
    return views.time_text(when, seconds=True) if when is not None else None


def _found(hits: Sequence[tuple[FoundPassage, StoredSession]], anchor: MemoryAnchor) -> Record:
    reader = anchor.actor.scope
    passages: list[views.Shown] = []
    for hit, one in hits:
        shaped: views.Shown = {"session": one.name, "agent": one.agent, "project": one.project}
        shaped |= {"when": _time(hit.at), "text": hit.text}
        shaped["citation"] = views.citation(citation_of(hit, one), reader=reader)
        passages.append(shaped | ({"later": hit.later} if hit.later else {}))
    return views.shortened({"passages": passages}, "passages", "ask for fewer with limit")


def _listed(sessions: Sequence[StoredSession], _: MemoryAnchor) -> Record:
    listed: views.Shown = {"sessions": [shown_session(one) for one in sessions]}
    return views.shortened(listed, "sessions", "ask for fewer with limit")


def _one(answer: tuple[StoredSession, Sequence[FoundPassage]], _: MemoryAnchor) -> Record:
    session, passages = answer
    texts: list[views.Shown] = [{"when": _time(one.at), "at": one.first, "text": one.text} for one in passages]
    how = f"go on with {session.agent}:{session.name}@OFFSET"
    return views.shortened({**shown_session(session), "passages": texts}, "passages", how)


def _handoff(anchor: MemoryAnchor, request: wanted.SessionsHandoff) -> Record:
    """Return {session, agent, text}: what the next agent begins with, fenced as what it is."""
    session, left = sessions_of(anchor).handoff(request)
    how = FURTHER.get(request.agent, FURTHER[""]).format(session=session.name)
    text = f"What a session of {session.agent} leaves (quoted, untrusted), {session.name}:\n\n{left}\n\n{how}"
    return {"session": session.name, "agent": session.agent, "text": text}


ROWS: Sequence[Row] = (
    row("sessions_search", wanted.SessionsSearch, lambda anchor, asked: sessions_of(anchor).search(asked), _found),
    row("sessions_list", wanted.SessionsList, lambda anchor, asked: sessions_of(anchor).list(asked), _listed),
    row("sessions_show", wanted.SessionsShow, lambda anchor, asked: sessions_of(anchor).show(asked), _one),
    row("sessions_handoff", wanted.SessionsHandoff, _handoff, as_is),
)
