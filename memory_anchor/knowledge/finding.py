"""Knowledge found and cited: the hybrid of memory over passages, and citations that open.

Candidates come from the engine by meaning and by words, every filter pushed down (who may read, source, kind, trust,
path); scores are fused as memory's are, with exact identifiers and the time a question names, and the judge of memory
says how relevant each is. Near-duplicates (versions of one text in several files or sources) are folded into the best
one, whose citations then name all places. A passage is checked against its source when it is shown: fresh, moved (with
its new lines), changed (with a diff) or gone.
"""

from __future__ import annotations

import difflib
import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from memory_anchor.errors import MemoryAnchorError, NotFound
from memory_anchor.knowledge.catalogue import Place
from memory_anchor.knowledge.library import COLLECTION, Library, citation
from memory_anchor.knowledge.sources import Source, SourceKind
from memory_anchor.language.passages import plain
from memory_anchor.language.safety import cleaned
from memory_anchor.language.terms import is_chinese, is_compound, query_terms, term_id, terms
from memory_anchor.language.timewords import time_range
from memory_anchor.model import (
    Actor,
    Citation,
    Memory,
    Origin,
    RetrievedSnippet,
    Status,
    Tag,
    Visibility,
    audiences,
    point_id,
)
from memory_anchor.ports import Entry
from memory_anchor.recall.centring import Centring, script_of
from memory_anchor.recall.meaning import QueryEmbedder, QueryRow
from memory_anchor.recall.ranking import scaled, stretched
from memory_anchor.recall.relevance import ACROSS, STRONG, Evidence, asks, judged, weak_shown
from memory_anchor.where import Condition, OneOf, StartsWith, Where

CANDIDATES = 30
"""Hits a channel, or as many as are asked for: 30, 40 and 60 answered alike (docs/knowledge.md); each is read whole."""
DENSE_WEIGHT, WORDS_WEIGHT, IDENTIFIER_WEIGHT, TIME_WEIGHT = 0.5, 0.35, 0.15, 0.15
SAME_TEXT = 0.9
"""Share of terms in common from which two passages are versions of one text."""
AROUND_LINES = 3
OCCURRENCES_MAX = 100
LINES_CHARS_MAX = 20_000
DIFF_LINES_MAX = 200
TERMS_MAX = 64


@dataclass(frozen=True, slots=True)
class KnowledgeQuery:
    query: str
    limit: int = 5
    source: str = ""
    trust: str = ""
    path: str = ""
    visibility: Visibility | None = None
    detail: bool = False


Standing = Literal["fresh", "moved", "changed", "gone"]


@dataclass(frozen=True, slots=True)
class Opened:
    """A citation as it was opened. text: the passage as it is indexed, "" when only its place is known still."""

    id: str
    source: Source
    text: str
    citations: tuple[Citation, ...]
    standing: Standing
    lines: tuple[int, int] | None
    around: str
    diff: str = ""


def search(library: Library, meaning: QueryEmbedder, actor: Actor, asked: KnowledgeQuery) -> list[RetrievedSnippet]:
    """Return the passages that answer, strong ones first and few weak ones behind; none where nothing fits.

    Raises NotFound, BadInput: the source named is none, or several.
    """
    sources = {source.id: source for source in library.readable(actor.scope)}
    if asked.source:
        named = library.named(asked.source, actor.scope)
        sources = {named.id: named}
    sources = {
        name: source
        for name, source in sources.items()
        if (not asked.trust or source.trust.value == asked.trust) and asked.visibility in (None, source.visibility)
    }
    if not sources:
        return []
    row, points, entries = _candidates(library, meaning, asked, _where(library, sources, asked))
    held = audiences(actor.scope)
    entries = [e for e in entries if e.memory.audience in held and _source_id(e.memory) in sources and e.memory.content]
    if not entries:
        return []
    memories = [entry.memory for entry in entries]
    cosines = np.full(len(entries), np.nan, dtype=np.float32)
    known = [at for at, entry in enumerate(entries) if row.row is not None and row.using in entry.vectors]
    if known and row.row is not None:
        centring = Centring(meaning.embedders[row.using].identity)
        scripts = np.array([script_of(memories[at].content) for at in known], dtype=np.int8)
        rows = centring.documents(np.stack([entries[at].vectors[row.using] for at in known]), scripts)
        cosines[known] = rows @ centring.query(row.row, script_of(asked.query))
    bags = [frozenset(entry.words.indices if entry.words else ()) for entry in entries]
    own = is_chinese(asked.query)
    foreign = np.asarray([is_chinese(memory.content) != own for memory in memories])
    near = np.where(foreign, np.float32(ACROSS) * cosines, cosines)
    scores, shares, terms_known = _scores(library, actor, asked, memories, bags, near, foreign, points)
    seen = Evidence(
        near,
        shares,
        (scores - scores.max(initial=0.0)) / 2,
        ~foreign,
        coverage=float(shares.max(initial=0.0)),
        terms=terms_known,
        asks=asks(asked.query),
    )
    relevance = judged(seen)
    order = np.lexsort((np.arange(len(scores)), -scores, relevance < STRONG))
    snippets: list[RetrievedSnippet] = []
    weak = 0
    for at, siblings in _folded([int(one) for one in order], bags, [one.content_hash for one in memories]):
        chance = float(relevance[at])
        if chance < STRONG:
            weak += 1
            if weak > weak_shown(asked.limit):
                continue
        found = _snippet(sources, memories[at], [memories[one] for one in siblings], float(scores[at]), chance)
        snippets.append(
            replace(found, signals={"cosine": float(cosines[at]), "share": float(shares[at])})
            if asked.detail
            else found
        )
        if len(snippets) == asked.limit:
            break
    return [replace(one, citations=tuple(_marked(library, sources, one))) for one in snippets]


def _where(library: Library, sources: Mapping[str, Source], asked: KnowledgeQuery) -> Where:
    """Return the filter that the engine applies: one keyword, or none where every source there is may answer.

    A source has one audience, so its tag says who may read it; what is emptied has neither words nor a vector. Each
    condition costs the engine a look at every passage. Whatever comes back is checked once more before it is shown.
    """
    conditions: list[Condition] = []
    if {source.id for source in library.catalogue.sources(live=False)} != set(sources):
        conditions.append(OneOf("tag", tuple(f"source:{name}" for name in sorted(sources))))
    if asked.path:
        conditions.append(StartsWith("where", asked.path))
    return Where(tuple(conditions))


def _candidates(
    library: Library, meaning: QueryEmbedder, asked: KnowledgeQuery, where: Where
) -> tuple[QueryRow, dict[str, float], list[Entry]]:
    """Return the query's row, point -> its score by words, and the points. Words are looked for while it is embedded:
    most of that time is spent outside of Python, and reading a candidate inside."""
    store, words, limit = library.store, query_terms(asked.query), max(CANDIDATES, asked.limit)

    def by_words() -> tuple[dict[str, float], list[Entry]]:
        hits = store.matching(COLLECTION, words, where, limit=limit) if words.indices else []
        scores = {hit.point_id: hit.score for hit in hits}
        return scores, store.get(COLLECTION, list(scores), with_vectors=True)

    with ThreadPoolExecutor(1, thread_name_prefix="words") as beside:
        asked_words = beside.submit(by_words)
        row = meaning.asked(asked.query)
        scores, entries = asked_words.result()
    if row.row is not None:
        aimed = Centring(meaning.embedders[row.using].identity).query(row.row, script_of(asked.query))
        hits = store.nearest(COLLECTION, aimed, where, limit=limit, using=row.using)
        more = [hit.point_id for hit in hits if hit.point_id not in scores]
        scores |= dict.fromkeys(more, 0.0)
        entries += store.get(COLLECTION, more, with_vectors=True)
    return row, scores, entries


def _scores(
    library: Library,
    actor: Actor,
    asked: KnowledgeQuery,
    memories: Sequence[Memory],
    bags: Sequence[frozenset[int]],
    near: np.ndarray,
    foreign: np.ndarray,
    points: Mapping[str, float],
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the fused scores, the share of the query's rarity that each holds, and how many terms it has."""
    said = list(dict.fromkeys(terms(asked.query)))[:TERMS_MAX]
    wanted = [term_id(term) for term in said]
    rarity = {term: math.log(1 + (len(bags) + 1) / (1 + sum(term in bag for bag in bags))) for term in wanted}
    mass = sum(rarity.values()) or 1.0
    shares = np.array([sum(rarity[t] for t in wanted if t in bag) / mass for bag in bags], dtype=np.float32)
    by_words = np.array([points.get(memory.point_id, 0.0) for memory in memories], dtype=np.float32)
    worded = scaled(by_words, low=0.0)
    meaning = stretched(near)
    if not np.isnan(near).all():  # as memory has it: each stands in for the other where there is none of it
        meaning = np.where(np.isnan(near), worded, meaning)
        worded = np.where(foreign, np.maximum(worded, meaning), worded)
    total = DENSE_WEIGHT * meaning + WORDS_WEIGHT * worded * float(shares.max(initial=0.0))
    exact = [term_id(term) for term in said if is_compound(term)]
    total = total + IDENTIFIER_WEIGHT * np.array([any(t in bag for t in exact) for bag in bags], dtype=np.float32)
    period = time_range(asked.query, now=library.clock.now(), zone=actor.zone)
    if period is not None:
        within = [m.when is not None and period.start <= m.when < period.end for m in memories]
        total = total + TIME_WEIGHT * np.array(within, dtype=np.float32)
    return np.asarray(total, dtype=np.float32), shares, len(wanted)


def _folded(
    order: Sequence[int], bags: Sequence[frozenset[int]], hashes: Sequence[str]
) -> Iterator[tuple[int, list[int]]]:
    """Yield each place with those behind it that are versions of the same text."""
    taken: set[int] = set()
    for at in order:
        if at in taken:
            continue
        alike = [
            one
            for one in order
            if one not in taken and one != at and (hashes[at] == hashes[one] or _is_version(bags[at], bags[one]))
        ]
        taken.update([at, *alike])
        yield at, alike


def _is_version(one: frozenset[int], other: frozenset[int]) -> bool:
    """Return whether two texts share so many terms that they are versions of one."""
    if min(len(one), len(other)) < SAME_TEXT * max(len(one), len(other)):
        return False
    common = len(one & other)
    return common >= SAME_TEXT * (len(one) + len(other) - common) > 0


def _snippet(
    sources: Mapping[str, Source], memory: Memory, siblings: Sequence[Memory], score: float, relevance: float
) -> RetrievedSnippet:
    source = sources[_source_id(memory)]
    cited = [replace(one, trust=source.trust, observed_at=memory.recorded_at) for one in memory.citations]
    for other in siblings:
        cited += [replace(one, trust=sources[_source_id(other)].trust) for one in other.citations[:1]]
    return RetrievedSnippet(
        id=memory.id,
        text=memory.content,
        score=round(score, 4),
        layer=memory.layer,
        type=source.kind.value,
        when=memory.when,
        tags=(Tag("knowledge"),),
        citations=tuple(cited),
        relevance=round(relevance, 2),
        weak=relevance < STRONG,
        origin=Origin.DOCUMENT,
    )


def _source_id(memory: Memory) -> str:
    return memory.author.removeprefix("source:")


# --- citations that open ---------------------------------------------------------------------------------------------


def opened(library: Library, actor: Actor, name: str, *, around: int = AROUND_LINES) -> Opened:
    """Return a passage with the lines around it as its source has them now. Raises NotFound: no such citation."""
    name = name.strip().removeprefix("knowledge:")
    sources = {source.id: source for source in library.readable(actor.scope)}
    held = library.store.get(COLLECTION, [point_id(name, 1)]) if sources else []
    memory = held[0].memory if held else None
    if memory is not None and memory.status is Status.ACTIVE and _source_id(memory) in sources:
        source = sources[_source_id(memory)]
        places = library.catalogue.places(source.id, passages=[name])
        cited = tuple(citation(source, place) for place in places) or memory.citations
        return _compared(library, source, memory, places, cited, around)
    last = library.catalogue.retired(name) if library.is_used else None
    if last is None or last[0] not in sources:
        raise NotFound(f"no citation {name!r} that you may read; `memory-anchor knowledge search` gives them")
    source, place = sources[last[0]], last[1]
    text = _text_now(library, source, place.ref)
    cited = (citation(source, place),)
    if text is None:
        return Opened(name, source, "", cited, "gone", None, "")
    return Opened(name, source, "", cited, "changed", None, _around(text, place.line_start, place.line_end, around))


def _compared(
    library: Library, source: Source, memory: Memory, places: Sequence[Place], cited: tuple[Citation, ...], around: int
) -> Opened:
    place = places[0] if places else Place(memory.where or "", 0, memory.id, "", 1, 1)
    text = _text_now(library, source, place.ref)
    if text is None:
        return Opened(memory.id, source, memory.content, cited, "gone", None, "")
    standing, lines = standing_of(memory.content, text, place)
    diff = ""
    if standing == "changed":
        now = text.split("\n")[place.line_start - 1 : place.line_end]
        told = difflib.unified_diff(memory.content.split("\n"), now, "cited", "now", lineterm="", n=1)
        diff = cleaned("\n".join(list(told)[:DIFF_LINES_MAX])).text
    shown = lines or (place.line_start, place.line_end)
    return Opened(memory.id, source, memory.content, cited, standing, lines, _around(text, *shown, around), diff)


def standing_of(passage: str, text: str, place: Place) -> tuple[Standing, tuple[int, int] | None]:
    """Return whether a passage stands where it stood, elsewhere, or no more, and its lines now.

    One that was stored without a secret is compared with its own lines alone, less what is secret in them.
    """
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    first = _line_of(text, passage, place.line_start, starts)
    if first is not None:
        return ("fresh" if first == place.line_start else "moved"), (first, first + passage.count("\n"))
    lines = "\n".join(text.split("\n", place.line_end)[place.line_start - 1 : place.line_end])
    if len(lines) <= LINES_CHARS_MAX and passage in cleaned(lines).text:
        return "fresh", (place.line_start, place.line_end)
    return "changed", None


def _line_of(text: str, passage: str, line: int, starts: Sequence[int]) -> int | None:
    """Return the line on which a passage begins, of several the nearest to `line`; None when it is not there."""
    if not passage:
        return None
    found = text.find(passage, starts[line - 1]) if line <= len(starts) else -1
    if found >= 0 and bisect_right(starts, found) == line:
        return line
    best, found = None, -len(passage)
    for _ in range(OCCURRENCES_MAX):
        found = text.find(passage, found + len(passage))
        if found < 0:
            break
        at = bisect_right(starts, found)
        best = at if best is None or abs(at - line) < abs(best - line) else best
    return best


def _text_now(library: Library, source: Source, ref: str) -> str | None:
    """Return what a document says now, None when it is gone."""
    from memory_anchor.knowledge.reading import now_of

    try:
        document = now_of(library, source, ref)
    except MemoryAnchorError:
        return None
    return plain(document.text) if document is not None else None


def _around(text: str, start: int, end: int, more: int) -> str:
    lines = text.split("\n")
    first = max(1, start - more)
    numbered = enumerate(lines[first - 1 : end + more], first)
    told = "\n".join(f"{'>' if start <= number <= end else ' '} {number:>5}  {line}" for number, line in numbered)
    return cleaned(told).text


def _marked(library: Library, sources: Mapping[str, Source], snippet: RetrievedSnippet) -> Iterator[Citation]:
    """Yield the citations of a snippet, the first one checked against its source where that is a file."""
    for number, cited in enumerate(snippet.citations):
        source = sources.get((cited.title or "").rpartition(" ")[2])
        if number or source is None or source.kind not in (SourceKind.FILES, SourceKind.REPO_DOCS):
            yield cited
            continue
        text = _text_now(library, source, cited.ref)
        if text is None:
            yield replace(cited, freshness="gone")
            continue
        start, end = cited.locator.line_start or 1, cited.locator.line_end or 1
        standing, lines = standing_of(snippet.text, text, Place(cited.ref, 0, snippet.id, "", start, end))
        if lines is not None and standing == "moved":
            cited = replace(cited, locator=replace(cited.locator, line_start=lines[0], line_end=lines[1]))
        yield replace(cited, freshness="stale" if standing == "changed" else standing)
