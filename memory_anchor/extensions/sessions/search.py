"""Which passages answer a question: words over fields and meaning, at most three of a session, equal texts once.

Words count by the rarity that they reach a word of the question, so that a question in another language, of which
hardly a word occurs, is answered by meaning (docs/sessions.md has what each part gains). Two indexes are asked, that of
the passages (said 3, command 1, result 0.5) and that of the sessions (title and first request), so that a session's
subject counts for each of its passages and is stored once. Rejected: one index with the head in each passage (a fifth
more disk, the same order), a vector of the head (no gain), and a weight for recency, which never repairs a reversed
decision and costs hits: the two are linked instead (`later`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from memory_anchor.extensions.sessions.archive import SessionsFile, parts_of
from memory_anchor.extensions.sessions.meaning import PassageVectors
from memory_anchor.extensions.sessions.passages import Part, shown
from memory_anchor.ingest.proposals import SHARED_LEAST, STATEMENT_CHARS
from memory_anchor.ingest.relations import wording
from memory_anchor.language.terms import terms
from memory_anchor.store.group_commit import Row

FIELDS, HEAD = (3.0, 1.0, 0.5), 0.5
"""Weights of what was said, of commands, of results; and of the session's head."""
WORD, MEANING = 1 / 6, 1.5
"""Weights of what the words of a question reach, a word, and of its centred cosine."""
CANDIDATES, CANDIDATES_NARROW, OF_A_SESSION = 200, 20_000, 3
"""Passages that are looked at, read from the index where only some sessions count, and shown of one session."""
TERMS_MAX = 64


@dataclass(slots=True)
class FoundPassage:
    """A passage that answers, better with a higher score. first: offset of its first line. cwd: of its session. later:
    what a later decision says instead, "" for none."""

    id: int
    session: int
    at: float
    first: int
    score: float
    parts: Sequence[Part]
    cwd: str = ""
    later: str = ""

    @property
    def text(self) -> str:
        return shown(self.parts)


def search(
    archive: SessionsFile, query: str, ids: Collection[int] | None, *, limit: int, vectors: PassageVectors | None = None
) -> list[FoundPassage]:
    """Return the passages that answer best; empty where no word of the question occurs and nothing is near it. ids: of
    the sessions that are searched; None: all."""
    wanted = list(dict.fromkeys(terms(query)))[:TERMS_MAX]
    if not wanted or ids == frozenset():
        return []
    match = " OR ".join(f'"{term}"' for term in wanted)
    ranked: Sequence[FoundPassage] = _candidates(archive, match, ids)
    if vectors is not None:
        ranked = _with_meaning(archive, query, ids, ranked, vectors, words=len(wanted))
    chosen: list[FoundPassage] = []
    of_session: dict[int, int] = {}
    texts: set[str] = set()
    for one in ranked:
        text = one.text
        if of_session.get(one.session, 0) == OF_A_SESSION or text in texts:
            continue
        texts.add(text)
        of_session[one.session] = of_session.get(one.session, 0) + 1
        chosen.append(one)
        if len(chosen) == limit:
            break
    return _with_later(chosen, ranked, limit)


def _with_later(chosen: Sequence[FoundPassage], ranked: Sequence[FoundPassage], limit: int) -> list[FoundPassage]:
    """Return what was chosen; a decision that a later one reverses stands behind that one, and names it."""
    found: dict[int, FoundPassage] = {}
    for one in chosen:
        later, said = _reversal(one, ranked)
        if later is not None:
            one.later = said if one.id not in found else one.later
            found.setdefault(later.id, later)
        found.setdefault(one.id, one)
    return list(found.values())[:limit]


def _reversal(one: FoundPassage, ranked: Sequence[FoundPassage]) -> tuple[FoundPassage | None, str]:
    """Return the passage of the same folder in which a person later takes back what one says here, and its words.

    Both are statements of the person, not what was pasted; the later one reports a change, and they share words that
    few others have. That orders and names, and ends nothing: a memory needs the proof of `ingest.relations`.
    """
    said = {term for text in _statements(one) for term in terms(text)}
    best: tuple[int, FoundPassage | None, str] = (SHARED_LEAST - 1, None, "")
    for other in ranked if said else ():
        if other.cwd != one.cwd or (other.at, other.first) <= (one.at, one.first) or other.id == one.id:
            continue
        for text in _statements(other):
            shared = sum(len(term) > 1 for term in said & set(terms(text)))
            if shared > best[0] and wording(text).reports:
                best = (shared, other, text)
    return best[1], best[2]


def _statements(one: FoundPassage) -> list[str]:
    """Return what the person said in a passage, without what was pasted or quoted."""
    texts = (text for kind, text in one.parts if kind == "user" and len(text) <= STATEMENT_CHARS)
    return [text for text in texts if "\n>" not in text and "```" not in text]


def _with_meaning(
    archive: SessionsFile,
    query: str,
    ids: Collection[int] | None,
    ranked: Sequence[FoundPassage],
    vectors: PassageVectors,
    *,
    words: int,
) -> Sequence[FoundPassage]:
    """Return the candidates and what is near in meaning, best first; unchanged where nothing has a vector."""
    by_words = {one.id: one for one in ranked}
    cosines = vectors.near(archive, query, ids, by_words)
    if not cosines:
        return ranked
    near = [id for id in cosines if id not in by_words]
    rows = archive.rows(
        "select p.id, p.session, p.at, p.first, 0.0, p.parts, s.cwd from passage p join session s on s.id = p.session "
        "where p.id in (select value from json_each(?))",
        (json.dumps(near),),
    )
    candidates = [*ranked, *map(_candidate, rows)]
    for one in candidates:
        one.score = WORD * one.score / words + MEANING * cosines.get(one.id, 0.0)
    return sorted(candidates, key=_order)[:CANDIDATES]


def _candidates(archive: SessionsFile, match: str, ids: Collection[int] | None) -> list[FoundPassage]:
    """Return the passages in which words of the question occur, best first."""
    said, command, result = FIELDS
    heads: Mapping[int, float] = {
        int(id or 0): -float(rank or 0)
        for id, rank in archive.rows("select rowid, bm25(heads) from heads where heads match ?", (match,))
    }
    rows = archive.rows(
        "select p.id, p.session, p.at, p.first, w.rank, p.parts, s.cwd from (select rowid, bm25(words, ?, ?, ?) as "
        "rank from words where words match ? order by rank limit ?) w join passage p on p.id = w.rowid "
        "join session s on s.id = p.session",
        (said, command, result, match, CANDIDATES if ids is None else CANDIDATES_NARROW),
    )
    found = [_candidate(row) for row in rows if ids is None or row[1] in ids]
    for one in found:
        one.score += HEAD * heads.get(one.session, 0.0)
    return sorted(found, key=_order)[:CANDIDATES]


def _candidate(row: Row) -> FoundPassage:
    id, session, at, first, rank, parts, cwd = row
    return FoundPassage(
        int(id or 0), int(session or 0), float(at or 0), int(first or 0), -float(rank or 0), parts_of(parts), str(cwd)
    )


def _order(one: FoundPassage) -> tuple[float, float, int]:
    return -one.score, -one.at, one.id
