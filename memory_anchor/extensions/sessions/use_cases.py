"""The use cases of sessions for one caller: whose sessions are shown, and how a passage is cited.

A session belongs to the project whose folder is the closest above its own; which that is, is decided when it is asked
for, so that a merged or moved project takes its sessions along. Callers without a folder on this machine get nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast

from memory_anchor.adapters.projects import PATH, Projects
from memory_anchor.domain import rights
from memory_anchor.domain.errors import BadInput, NotFound
from memory_anchor.domain.model import Citation, Layer, Locator, Origin, RetrievedSnippet, SearchAnswer, Tag, Trust
from memory_anchor.domain.requests.fields import Moment, use_case
from memory_anchor.domain.rights import Action
from memory_anchor.extensions.sessions import requests
from memory_anchor.extensions.sessions.archive import SessionsFile, parts_of
from memory_anchor.extensions.sessions.handoff import handoff_of
from memory_anchor.extensions.sessions.names import FILE
from memory_anchor.extensions.sessions.search import FoundPassage, search
from memory_anchor.ingest.proposals import SENTENCE
from memory_anchor.language.coverage import covers

if TYPE_CHECKING:
    from memory_anchor.extensions.sessions.meaning import PassageVectors
    from memory_anchor.ingest.proposals import ReadSteps
    from memory_anchor.use_cases.memory import MemoryAnchor

KIND = "session"
JOIN_MAX, LOOKED_AT = 2, 6
"""Passages behind the memories that a search found, and of how many some may be folded."""
NAME_CHARS_MIN = 4
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One session as it is listed. state: changes with its file, and is no other session's. project: its id, or its
    folder's name where no project is known."""

    id: int
    agent: str
    name: str
    cwd: str
    branch: str
    title: str
    began: float
    ended: float
    passages: int
    parent: str
    state: str
    project: str = ""
    is_known: bool = False

    @property
    def ref(self) -> str:
        """What citations call it."""
        return f"{self.agent}:{self.name}"


class SessionArchive:
    """What one process knows of sessions. Nothing is opened or made before somebody has adopted."""

    def __init__(
        self,
        data_dir: Path,
        projects: Projects,
        vectors: PassageVectors | None = None,
        on_waiting: Callable[[], None] = lambda: None,
    ) -> None:
        """vectors: None for words alone. on_waiting: called when passages may wait for a vector."""
        self._file, self._projects = data_dir / FILE, projects
        self.vectors, self._on_waiting = vectors, on_waiting
        self.steps_read: dict[int, tuple[str, ReadSteps]] = {}
        """What sessions propose by themselves, in which state."""
        self._opening = threading.Lock()
        self._archive: SessionsFile | None = None

    @property
    def is_adopted(self) -> bool:
        return self._archive is not None or self._file.exists()

    def archive(self) -> SessionsFile | None:
        with self._opening:
            if self._archive is None and self._file.exists():
                self._archive = SessionsFile(self._file)
            return self._archive

    def embed_some(self, wait: Callable[[], None]) -> int:
        """Embed some passages that wait; return how many. Raises Unavailable."""
        archive = self.archive()
        return self.vectors.embed(archive, wait) if archive is not None and self.vectors is not None else 0

    def search(self, query: str, ids: frozenset[int] | None, limit: int) -> list[FoundPassage]:
        """Return the passages that answer best; what was read by another process gets its vectors from now on."""
        archive = self.archive()
        if archive is None:
            return []
        if self.vectors is not None and archive.rows("select 1 from waiting limit 1"):
            self._on_waiting()
        return search(archive, query, ids, limit=limit, vectors=self.vectors)

    def close(self) -> None:
        with self._opening:
            if self._archive is not None:
                self._archive.close()
            self._archive = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Keep everybody from writing, while a backup copies the file and its log."""
        archive = self.archive()
        with archive.unit() if archive is not None else nullcontext():
            yield

    def folders(self) -> dict[str, str]:
        """Return folder -> project id."""
        aliases = self._projects.all().items()
        return {alias.removeprefix(PATH): id for id, names in aliases for alias in names if alias.startswith(PATH)}

    def sessions(self, agent: str, project: str, since: float) -> list[StoredSession]:
        """Return the sessions of an agent and a project ("": of all) that ended after an instant, newest first."""
        archive = self.archive()
        if archive is None:
            return []
        rows = archive.rows(
            "select s.id, s.agent, name, cwd, branch, case when title = '' then request else title end, began, ended, "
            "passages, parent, s.agent || ':' || name || ':' || f.id || ':' || f.size || ':' || f.mtime_ns "
            "from session s join source f on f.id = s.source where ended >= ? and passages > 0 "
            "order by ended desc, s.id",
            (since,),
        )
        folders, owners = self.folders(), dict[str, str | None]()
        found = []
        for id, who, name, cwd, branch, title, began, ended, passages, parent, state in rows:
            place = str(cwd)
            if place not in owners:
                owners[place] = owner_of(place, folders)
            owner = owners[place]
            if agent and not str(who).startswith(agent):
                continue
            one = StoredSession(
                int(id or 0), str(who), str(name), place, str(branch), str(title), float(began or 0),
                float(ended or 0), int(passages or 0), str(parent), str(state), owner or Path(place).name,
                owner is not None,
            )  # fmt: skip
            if not project or _is_of(one, owner, project):
                found.append(one)
        return found


def owner_of(cwd: str, folders: Mapping[str, str]) -> str | None:
    """Return the project whose folder is the closest above a session's; None for none.

    >>> owner_of("/w/app/web/src", {"/w/app": "a", "/w/app/web": "b", "/w/ap": "c"})
    'b'
    """
    for folder in (cwd, *(str(above) for above in Path(cwd).parents)) if os.path.isabs(cwd) else ():  # noqa: PTH117
        if folder in folders:
            return folders[folder]
    return None


def _is_of(session: StoredSession, owner: str | None, project: str) -> bool:
    if os.path.isabs(project):  # noqa: PTH117
        return session.cwd == project or session.cwd.startswith(project.rstrip("/") + "/")
    return project in (owner, Path(session.cwd).name)


class SessionUseCases:
    def __init__(self, anchor: MemoryAnchor, part: SessionArchive) -> None:
        self._part, self._actor = part, anchor.actor
        self._settings = anchor.services.settings

    @use_case(requests.SessionsSearch)
    def search(self, request: requests.SessionsSearch) -> list[tuple[FoundPassage, StoredSession]]:
        """Return passages with their sessions, best first."""
        self._check()
        sessions = {one.id: one for one in self._sessions(request.agent, request.project, request.since)}
        is_narrow = bool(request.agent or request.project or request.since)
        return self._found(request.query, sessions, request.limit, is_narrow=is_narrow)

    def _found(
        self, query: str, sessions: Mapping[int, StoredSession], limit: int, *, is_narrow: bool
    ) -> list[tuple[FoundPassage, StoredSession]]:
        hits = self._part.search(query, frozenset(sessions) if is_narrow else None, limit) if sessions else []
        return [(hit, sessions[hit.session]) for hit in hits if hit.session in sessions]

    def snippets(self, query: str, limit: int) -> list[RetrievedSnippet]:
        """Return passages of the caller's own project; none for a caller who has no folder here."""
        self._check()
        if not self._actor.project_dir or not self._part.is_adopted:
            return []
        own = self._part.sessions("", self._actor.scope.project, 0.0)
        sessions = {one.id: one for one in own if one.is_known}
        return [snippet_of(hit, one) for hit, one in self._found(query, sessions, limit, is_narrow=True)]

    def joined(self, answer: SearchAnswer, query: str) -> SearchAnswer:
        """Return an answer with what past sessions say behind its memories; what one of these says already is cited
        there and not shown again."""
        snippets = list(answer.snippets)
        shown = 0
        for hit in self.snippets(query, LOOKED_AT):
            (cited,) = hit.citations
            place = next((at for at, one in enumerate(snippets) if one.source != KIND and _says(one, hit, cited)), -1)
            if place >= 0 and all(known.ref != cited.ref for known in snippets[place].citations):
                snippets[place] = replace(snippets[place], citations=(*snippets[place].citations, cited))
            elif place < 0 and shown < JOIN_MAX:
                shown += 1
                snippets.append(hit)
        return replace(answer, snippets=tuple(snippets))

    @use_case(requests.SessionsList)
    def list(self, request: requests.SessionsList) -> Sequence[StoredSession]:
        """Return sessions, newest first."""
        self._check()
        return self._sessions(request.agent, request.project, request.since)[: request.limit]

    @use_case(requests.SessionsShow)
    def show(self, request: requests.SessionsShow) -> tuple[StoredSession, Sequence[FoundPassage]]:
        """Return a session and its passages from the beginning, or from the one that was cited. Raises NotFound."""
        self._check()
        name, _, offset = request.session.partition("@")
        session = self.named(name.rpartition(":")[2])
        begin, archive = int(offset) if offset.isdigit() else 0, self._part.archive()
        sql = "select id, at, first, parts from passage where session = ? and first >= ? order by first, id limit ?"
        rows = archive.rows(sql, (session.id, begin, request.limit)) if archive is not None else []
        return session, [
            FoundPassage(int(id or 0), session.id, float(at or 0), int(first or 0), 0.0, parts_of(parts))
            for id, at, first, parts in rows
        ]

    @use_case(requests.SessionsHandoff)
    def handoff(self, request: requests.SessionsHandoff) -> tuple[StoredSession, str]:
        """Return what a session leaves to the next one. Raises NotFound."""
        self._check()
        session = self.named(request.session) if request.session else self.newest()
        archive = self._part.archive()
        if archive is None:
            raise NotFound("nothing was adopted yet; `memory-anchor adopt` reads what is here")
        return session, handoff_of(archive, session.id)

    def named(self, name: str) -> StoredSession:
        """Return the session of an id or of its beginning. Raises NotFound; BadInput: several begin so."""
        matching = [one for one in self._part.sessions("", "", 0.0) if one.name.startswith(name)]
        exact = [one for one in matching if one.name == name] or matching
        if not exact or (len(name) < NAME_CHARS_MIN and exact[0].name != name):
            raise NotFound(f"no session {name[:80]!r} was read; `memory-anchor sessions list` names them")
        if len(exact) > 1:
            raise BadInput(f"{len(exact)} sessions begin with {name[:80]!r}; allowed is more of the id")
        return exact[0]

    def newest(self) -> StoredSession:
        """Return the newest session of the caller's project. Raises NotFound."""
        for one in self._part.sessions("", self._actor.scope.project, 0.0):
            if not one.parent:
                return one
        raise NotFound("no session of this project was read; `memory-anchor adopt` reads what is here")

    def _sessions(self, agent: str, project: str, since: Moment | None) -> Sequence[StoredSession]:
        if project == ".":
            project = self._actor.scope.project
        elif "/" in project:
            project = os.path.realpath(Path(self._actor.project_dir or "/", Path(project).expanduser()))
        start = since.start(self._actor.zone) if since is not None else None
        return self._part.sessions(agent, project, start.timestamp() if start is not None else 0.0)

    def _check(self) -> None:
        rights.check(Action.READ, self._actor.caller)
        scope = self._settings.scope
        if self._actor.scope.account != scope.account:
            raise NotFound("sessions are kept for the person of this machine; there are none for this account")


def _says(memory: RetrievedSnippet, hit: RetrievedSnippet, cited: Citation) -> bool:
    """Return whether a memory is from a passage, or says provably what a line of it says and no more."""
    if any(known.ref == cited.ref for known in memory.citations):
        return True
    lines = (line.partition(": ")[2] or line for line in hit.text.split("\n"))
    return any(covers(part, memory.text) for line in lines for part in (line, *SENTENCE.split(line)) if part)


def ref_of(hit: FoundPassage, session: StoredSession) -> str:
    return f"{session.ref}@{hit.first}"


def when_of(at: float) -> datetime | None:
    return EPOCH + timedelta(seconds=at) if at else None


def citation_of(hit: FoundPassage, session: StoredSession) -> Citation:
    title = f"{session.agent} {session.title}".strip()[:120]
    return Citation(
        "conversation",
        ref_of(hit, session),
        title=" ".join(title.split()),
        locator=Locator(),
        observed_at=when_of(hit.at),
        trust=Trust.UNTRUSTED,
    )


def snippet_of(hit: FoundPassage, session: StoredSession) -> RetrievedSnippet:
    return RetrievedSnippet(
        id=ref_of(hit, session),
        text=hit.text,
        score=round(hit.score, 4),
        layer=Layer.OPERATIONAL_KNOWLEDGE,
        type=KIND,
        when=when_of(hit.at),
        tags=(Tag(KIND), Tag(session.agent)),
        citations=(citation_of(hit, session),),
        origin=Origin.DOCUMENT,
        source=KIND,
    )


def sessions_of(anchor: MemoryAnchor) -> SessionUseCases:
    """Return the use cases of sessions for this caller."""
    return SessionUseCases(anchor, cast("SessionArchive", anchor.services.extensions["sessions"].part))
