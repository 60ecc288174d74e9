"""Knowledge found and cited, with what stands beside a passage that says too little alone.

What stands beside a passage where it alone says too little: a bounded part of its neighbour, with its own lines.

A section longer than a passage is cut; what was cut off from its section's head is shown with the end of the passage
before it, and a list, a table or code that goes on with the beginning of the passage after it. One neighbour a passage,
of the same document and heading, at most `BESIDE_BYTES` (150 tokens), whole lines. Only the first strong passages of an
answer get one. Nothing of it reaches a context: what is injected there is the passage alone. Rejected: passages that
overlap (the same words twice in an answer, and an edit embeds two).

Knowledge found and cited: the hybrid of memory over passages, and citations that open.

There is one order: passages are found, scored and judged as memories are (`index`, `recall.scoring`); what narrows a
search (source, kind, trust, path) is pushed down to the engine. Near-duplicates (versions of one text in several files
or sources) are folded into the best one, whose citations then name all places. A passage is checked against its source
when it is shown: fresh, moved (with its new lines), changed (with a diff) or gone.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from memory_anchor.errors import MemoryAnchorError, NotFound
from memory_anchor.knowledge.catalogue import Place
from memory_anchor.knowledge.index import COLLECTION, counted_for
from memory_anchor.knowledge.library import Library
from memory_anchor.knowledge.points import ALGO_VERSION, TAG, citation, point_of
from memory_anchor.knowledge.sources import Source, SourceKind
from memory_anchor.language.passages import plain
from memory_anchor.language.safety import cleaned
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
from memory_anchor.recall import scoring
from memory_anchor.recall.centring import script_of
from memory_anchor.recall.relevance import STRONG, max_weak
from memory_anchor.recall.search_context import prepared_query
from memory_anchor.where import Condition, OneOf, StartsWith, Where

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.knowledge.sources import SourceDocument
    from memory_anchor.recall.query_embedder import QueryEmbedder
    from memory_anchor.recall.ranking import RankingWeights
    from memory_anchor.recall.scoring import Scored

BESIDE_BYTES = 600
"""About 150 tokens of English or of Chinese, as passages are measured."""
BESIDE_MAX = 3
"""Passages of an answer that are shown with a neighbour."""
_FENCE = re.compile(r"^[ \t]{0,40}(?:```|~~~)", re.MULTILINE)
_KINDS = tuple(map(re.compile, (r"[ \t]{0,40}\|", r"[ \t]{0,40}(?:[-*+•]|\d{1,3}[.)])\s", r"(?: {4}|\t)\S")))
"""A row of a table, an item of a list, an indented line of code."""


def neighbour(library: Library, source: Source, passage: Memory, cited: Citation) -> Mapping[str, Any] | None:
    """Return what stands beside a passage where it is cut there; None where it is whole. cited: its place."""
    number, heading = cited.locator.chunk_index, cited.locator.heading
    if number is None:
        return None
    around = [one for one in library.catalogue.places(source.id, refs=[cited.ref]) if one.heading == heading]
    after = min((one for one in around if one.number > number), key=lambda one: one.number, default=None)
    before = max((one for one in around if one.number < number), key=lambda one: one.number, default=None)
    beside = [one for one in (after, before) if one is not None and one.number - number in (1, -1)]
    said = _texts(library, [one for one in beside if one.passage != passage.id])
    if after is not None and _goes_on(passage.content, said.get(after.passage, "")):
        return _part(after, said[after.passage], is_after=True)
    if before is not None and said.get(before.passage):
        return _part(before, said[before.passage], is_after=False)
    return None


def _texts(library: Library, places: Sequence[Place]) -> dict[str, str]:
    held = library.store.get(COLLECTION, [point_of(one.passage) for one in places])
    return {one.memory.id: one.memory.content for one in held if one.memory.status is Status.ACTIVE}


def _goes_on(text: str, then: str) -> bool:
    """Return whether what a text ends with is what the next one begins with: a list, a table, code."""
    if not then:
        return False
    last, first = text.rstrip().rpartition("\n")[2], then.split("\n", 1)[0]
    if len(_FENCE.findall(text)) % 2:
        return True
    return any(kind.match(last) and kind.match(first) for kind in _KINDS)


def _part(place: Place, text: str, *, is_after: bool) -> Mapping[str, Any] | None:
    """Return as many whole lines of a passage as there is room for, from its beginning or up to its end."""
    lines = text.split("\n")
    kept, room = 0, BESIDE_BYTES
    for line in lines if is_after else reversed(lines):
        room -= len(line.encode("utf-8", "replace")) + 1
        if room < 0:
            break
        kept += 1
    first, last = (0, kept) if is_after else (len(lines) - kept, len(lines))
    while first < last and not lines[first].strip():
        first += 1
    while first < last and not lines[last - 1].strip():
        last -= 1
    if first == last:
        return None
    start, end = place.line_start, place.line_end
    if len(lines) == end - start + 1:  # no secret of several lines was left out
        start, end = start + first, start + last - 1
    side, part = "after" if is_after else "before", "\n".join(lines[first:last])
    return {"side": side, "text": part, "ref": place.ref, "lines": [start, end]}


SPARE = 10
"""Passages read beyond the limit, for versions of one text and the last check."""
SAME_TEXT = 0.9
"""Share of terms in common from which two passages are versions of one text."""
AROUND_LINES = 3
OCCURRENCES_MAX = 100
LINES_CHARS_MAX = 20_000
DIFF_LINES_MAX = 200
ALIGNED_LINES_MAX = 5_000
"""Of texts whose lines are laid beside each other to find where a passage went."""


@dataclass(frozen=True, slots=True)
class KnowledgeQuery:
    query: str
    limit: int = 5
    source: str = ""
    trust: str = ""
    path: str = ""
    visibility: Visibility | None = None
    detail: bool = False
    beside: bool = False


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
    beside: Mapping[str, Any] | None = None
    mime: str = ""


def search(
    library: Library, meaning: QueryEmbedder, weights: RankingWeights, actor: Actor, asked: KnowledgeQuery
) -> list[RetrievedSnippet]:
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
    held = audiences(actor.scope)
    period = time_range(asked.query, now=library.clock.now(), zone=actor.zone)
    text = period.remaining if period is not None and period.rest and period.remaining else asked.query
    question, _ = prepared_query(meaning, text, project=counted_for(held))
    scored = library.index.scored(
        question,
        _where(library, sources, asked),
        readers=held,
        weights=weights,
        period=replace(period, is_hard=False) if period is not None else None,  # it favours, and hides nothing
    )
    if scored is None:
        return []
    ties = np.arange(len(scored.total))
    order = np.lexsort((ties, -scored.total, scored.relevance < STRONG))

    def may_read(memory: Memory) -> bool:
        return memory.audience in held and _source_id(memory) in sources and bool(memory.content)

    snippets: list[RetrievedSnippet] = []
    for place, memory, siblings in _distinct(library, scored, order, may_read, asked.limit, question.script):
        chance = float(scored.relevance[place])
        found = _snippet(sources, memory, siblings, float(scored.total[place]), chance)
        signals = scoring.signals(scored, [place], weights)[place] if asked.detail else None
        is_shown = asked.beside and not found.weak and len(snippets) < BESIDE_MAX
        near = neighbour(library, sources[_source_id(memory)], memory, memory.citations[0]) if is_shown else None
        snippets.append(replace(found, signals=signals, beside=near))
    return [replace(one, citations=tuple(_marked(library, sources, one))) for one in snippets]


def _distinct(
    library: Library,
    scored: Scored,
    order: NDArray[np.intp],
    may_read: Callable[[Memory], bool],
    limit: int,
    script: int,
) -> list[tuple[int, Memory, list[Memory]]]:
    """Return the best places of an order with their passages, each with those behind it that are versions of the same
    text; read on until there are as many as asked for.

    Few weak ones are shown. One in another language than the question's (script) is not counted among them: what is
    measured across two languages says less, and the right one is often called weak.
    """
    kept: list[tuple[int, Memory, list[Memory]]] = []
    bags: list[frozenset[int]] = []
    weak, page = 0, limit + SPARE
    for start in range(0, len(order), page):
        places = {scored.mirror.points[int(scored.rows[at])]: int(at) for at in order[start : start + page]}
        for entry in library.store.get(COLLECTION, list(places), with_vectors=True):  # words come with them
            memory, bag = entry.memory, frozenset(entry.words.indices if entry.words else ())
            if not may_read(memory):
                continue
            place = places[memory.point_id]
            same = next(
                (n for n, other in enumerate(bags) if kept[n][1].content == memory.content or _is_version(bag, other)),
                None,
            )
            if same is not None:
                kept[same][2].append(memory)
                continue
            is_weak = bool(scored.relevance[place] < STRONG)
            counts = is_weak and script_of(memory.content) == script
            if len(kept) < limit and not (counts and weak == max_weak(limit)):
                weak += counts
                kept.append((place, memory, []))
                bags.append(bag)
        if len(kept) == limit or weak == max_weak(limit):
            break
    return kept


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
    cited = [
        replace(one, trust=source.trust, observed_at=memory.recorded_at, variant=ALGO_VERSION)
        for one in memory.citations
    ]
    for other in siblings:
        cited += [replace(one, trust=sources[_source_id(other)].trust) for one in other.citations[:1]]
    return RetrievedSnippet(
        id=memory.id,
        text=memory.content,
        score=round(score, 4),
        layer=memory.layer,
        type=source.kind.value,
        when=memory.when,
        tags=(Tag(TAG),),
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
        near = neighbour(library, source, memory, cited[0]) if cited else None
        return replace(_compared(library, source, memory, places, cited, around), beside=near)
    last = library.catalogue.retired(name) if library.is_used else None
    if last is None or last[0] not in sources:
        raise NotFound(f"no citation {name!r} that you may read; `memory-anchor knowledge search` gives them")
    source, place = sources[last[0]], last[1]
    cited = (citation(source, place),)
    # A document that is no part of its source any more (deleted, ignored) is not read for a citation of it.
    now = _now(library, source, place.ref) if place.ref in library.catalogue.stamps(source.id) else None
    if now is None:
        return Opened(name, source, "", cited, "gone", None, "")
    diff, lines, then = "", (place.line_start, place.line_end), then_of(source, place.ref, place.sha)
    if then is not None:
        lines = lines_now(then, now.text, lines)
        diff = _diff(_lines(then, place.line_start, place.line_end), _lines(now.text, *lines))
    return Opened(name, source, "", cited, "changed", None, _around(now.text, *lines, around), diff, mime=now.mime)


def _compared(
    library: Library, source: Source, memory: Memory, places: Sequence[Place], cited: tuple[Citation, ...], around: int
) -> Opened:
    place = places[0] if places else Place(memory.where or "", 0, memory.id, "", 1, 1)
    now = _now(library, source, place.ref)
    if now is None:
        return Opened(memory.id, source, memory.content, cited, "gone", None, "")
    standing, lines = standing_of(memory.content, now.text, place)
    shown, diff = lines or (place.line_start, place.line_end), ""
    if standing == "changed":
        if (then := then_of(source, place.ref, place.sha)) is not None:
            shown = lines_now(then, now.text, shown)
        diff = _diff(memory.content, _lines(now.text, *shown))
    told = _around(now.text, *shown, around)
    return Opened(memory.id, source, memory.content, cited, standing, lines, told, diff, mime=now.mime)


def _lines(text: str, start: int, end: int) -> str:
    return "\n".join(text.split("\n", end)[start - 1 : end])


def _diff(then: str, now: str) -> str:
    told = difflib.unified_diff(then.split("\n"), now.split("\n"), "cited", "now", lineterm="", n=1)
    return cleaned("\n".join(list(told)[:DIFF_LINES_MAX])).text


def lines_now(then: str, now: str, lines: tuple[int, int]) -> tuple[int, int]:
    """Return where lines of an older text stand in the newer one; its own lines where the texts are very long.

    >>> lines_now("a\\nb\\nc", "new\\na\\nB\\nc", (2, 2))
    (3, 3)
    """
    old, new = then.split("\n"), now.split("\n")
    if max(len(old), len(new)) > ALIGNED_LINES_MAX:
        return lines
    first, last = len(new), 0
    for tag, one, other, start, end in difflib.SequenceMatcher(None, old, new).get_opcodes():
        if other < lines[0] or one >= lines[1]:
            continue
        is_same = tag == "equal"
        first = min(first, start + max(0, lines[0] - 1 - one) if is_same else start)
        last = max(last, min(end, start + lines[1] - one) if is_same else end)
    return first + 1, max(first + 1, last)


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


def _now(library: Library, source: Source, ref: str) -> SourceDocument | None:
    """Return a document as it is now, its text as passages are cut of it; None when it is gone."""
    from memory_anchor.knowledge.reading import now_of

    try:
        document = now_of(library, source, ref)
    except MemoryAnchorError:
        return None
    return replace(document, text=plain(document.text)) if document is not None else None


def then_of(source: Source, ref: str, sha: str) -> str | None:
    """Return what a document of a checkout said as it was cited, where Git still has it."""
    from memory_anchor.knowledge.reading import cited_of

    try:
        document = cited_of(source, ref, sha)
    except MemoryAnchorError:
        return None
    return plain(document.text) if document is not None else None


def _around(text: str, start: int, end: int, more: int) -> str:
    lines = text.split("\n")
    first = max(1, start - more)
    numbered = enumerate(lines[first - 1 : end + more], first)
    told = "\n".join(f"{'>' if start <= number <= end else ' '} {number:>5}  {line}" for number, line in numbered)
    indent = told[: len(told) - len(told.lstrip(" "))]  # which cleaning takes away
    return indent + cleaned(told).text


def _marked(library: Library, sources: Mapping[str, Source], snippet: RetrievedSnippet) -> Iterator[Citation]:
    """Yield the citations of a snippet, the first one checked against its source where that is a file."""
    for number, cited in enumerate(snippet.citations):
        source = sources.get((cited.title or "").rpartition(" ")[2])
        if number or source is None or source.kind not in (SourceKind.FILES, SourceKind.REPO_DOCS):
            yield cited
            continue
        now = _now(library, source, cited.ref)
        if now is None:
            yield replace(cited, freshness="gone")
            continue
        start, end = cited.locator.line_start or 1, cited.locator.line_end or 1
        standing, lines = standing_of(snippet.text, now.text, Place(cited.ref, 0, snippet.id, "", start, end))
        if lines is not None and standing == "moved":
            cited = replace(cited, locator=replace(cited.locator, line_start=lines[0], line_end=lines[1]))
        yield replace(cited, freshness="stale" if standing == "changed" else standing)
