"""Which passages answer a question: words over fields, at most three of a session, equal texts once.

Two indexes are asked, that of the passages (said 3, command 1, result 0.5) and that of the sessions (title and first
request), so that a session's subject counts for each of its passages and is stored once. Rejected: one index with the
head in each passage (a fifth more disk, the same order), and a weight for recency, which never repairs a reversed
decision and costs hits: the two are linked instead (`later`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memory_anchor.extensions.sessions.archive import SessionsFile, parts_of
from memory_anchor.extensions.sessions.passages import shown
from memory_anchor.language.terms import terms

FIELDS, HEAD = (3.0, 1.0, 0.5), 2.0
"""Weights of what was said, of commands, of results; and of the session's head."""
CANDIDATES, OF_A_SESSION = 200, 3
TERMS_MAX = 64


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Which sessions are searched; None: all. ids: of sessions."""

    ids: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """A passage that answers, better with a higher score. first: offset of its first line. later: what a later
    decision says instead, "" for none."""

    id: int
    session: int
    text: str
    at: float
    score: float
    first: int
    later: str = ""


def search(archive: SessionsFile, query: str, which: SessionFilter, *, limit: int) -> list[FoundPassage]:
    """Return the passages that answer best; empty where no word of the question occurs."""
    wanted = list(dict.fromkeys(terms(query)))[:TERMS_MAX]
    if not wanted or which.ids == frozenset():
        return []
    match = " OR ".join(f'"{term}"' for term in wanted)
    ranked = _candidates(archive, match, which)
    chosen: list[FoundPassage] = []
    of_session: dict[int, int] = {}
    texts: set[str] = set()
    for id, session, at, score in ranked:
        if of_session.get(session, 0) == OF_A_SESSION:
            continue
        ((parts, first),) = archive.rows("select parts, first from passage where id = ?", (id,))
        text = shown(parts_of(parts))
        if text in texts:
            continue
        texts.add(text)
        of_session[session] = of_session.get(session, 0) + 1
        chosen.append(FoundPassage(id, session, text, at, score, int(first or 0)))
        if len(chosen) == limit:
            break
    return chosen


def _candidates(archive: SessionsFile, match: str, which: SessionFilter) -> list[tuple[int, int, float, float]]:
    """Return (passage, session, when, score), best first."""
    said, command, result = FIELDS
    limit = CANDIDATES if which.ids is None else -1
    heads: Mapping[int, float] = {
        int(id or 0): -float(rank or 0)
        for id, rank in archive.rows("select rowid, bm25(heads) from heads where heads match ?", (match,))
    }
    rows = archive.rows(
        "select p.id, p.session, p.at, w.rank from (select rowid, bm25(words, ?, ?, ?) as rank from words "
        "where words match ? order by rank limit ?) w join passage p on p.id = w.rowid",
        (said, command, result, match, limit),
    )
    scored: Sequence[tuple[int, int, float, float]] = [
        (int(id or 0), int(session or 0), float(at or 0), -float(rank or 0) + HEAD * heads.get(int(session or 0), 0.0))
        for id, session, at, rank in rows
        if which.ids is None or session in which.ids
    ]
    return sorted(scored, key=lambda one: (-one[3], -one[2], one[0]))
