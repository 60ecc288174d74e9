"""Search over passages, with citations that open, and the neighbour of a passage that is cut.

Passages are found, scored and ranked as memories are (`index`, `recall.scoring`); source and path narrow a search by a
filter of the engine. Near-duplicates (versions of one text in several files or sources) are folded into the best one,
whose citations then name all places. A passage is checked against its source when it is shown: fresh, moved (with its
new lines), changed (with a diff) or gone.

A section longer than a passage is cut. A passage cut off from its section's head is shown with the end of the passage
before it; a list, a table or code that continues, with the beginning of the passage after it: one neighbour a passage,
of the same document and heading, whole lines, at most `NEIGHBOUR_BYTES`, for the first strong passages of an answer
only. A context gets no neighbours. Rejected: overlapping passages (an answer repeats the same words, and an edit embeds
two).
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from memory_anchor.base.json_values import Record
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, NotFound
from memory_anchor.domain.model import (
    Actor,
    Citation,
    Memory,
    Origin,
    RetrievedSnippet,
    Status,
    Tag,
    audiences,
    point_id,
)
from memory_anchor.domain.where import Condition, OneOf, StartsWith, Where
from memory_anchor.extensions.knowledge.catalogue import PassagePlace
from memory_anchor.extensions.knowledge.index import COLLECTION, counted_for
from memory_anchor.extensions.knowledge.library import Library
from memory_anchor.extensions.knowledge.points import ALGO_VERSION, TAG, citation_of, point_of
from memory_anchor.extensions.knowledge.requests import KnowledgeSearch
from memory_anchor.extensions.knowledge.sources import Source, SourceKind
from memory_anchor.language.passages import plain
from memory_anchor.language.safe_regex import late
from memory_anchor.language.safety import cleaned
from memory_anchor.language.timewords import time_range
from memory_anchor.recall import scoring
from memory_anchor.recall.centring import script_of
from memory_anchor.recall.relevance import STRONG, max_weak
from memory_anchor.recall.search_context import prepared_query

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.extensions.knowledge.sources import SourceDocument
    from memory_anchor.recall.query_embedder import QueryEmbedder
    from memory_anchor.recall.ranking import RankingWeights
    from memory_anchor.recall.scoring import Scored

SPARE = 10
"""Passages read beyond the limit, for versions of one text and the last check."""
SAME_TEXT = 0.9
"""Share of terms in common from which two passages are versions of one text."""
NEIGHBOUR_BYTES = 600
"""About 150 tokens of English or of Chinese, as passages are measured."""
NEIGHBOURS_MAX = 3
"""Passages of an answer that are shown with a neighbour."""
AROUND_LINES = 3
_REF_LINES = late(r":(\d{1,9})(?:-\d{1,9})?\Z", re.ASCII)
OCCURRENCES_MAX = 100
LINES_CHARS_MAX = 20_000
DIFF_LINES_MAX = 200
ALIGNED_LINES_MAX = 5_000
"""Of texts that are aligned line by line to find where a passage went."""
_FENCE = late(r"^[ \t]{0,40}(?:```|~~~)", re.MULTILINE)
_LINE_KINDS = tuple(map(re.compile, (r"[ \t]{0,40}\|", r"[ \t]{0,40}(?:[-*+•]|\d{1,3}[.)])\s", r"(?: {4}|\t)\S")))
"""A row of a table, an item of a list, an indented line of code."""
PassageFreshness = Literal["fresh", "moved", "changed", "gone"]


@dataclass(frozen=True, slots=True)
class OpenedCitation:
    """An opened citation. text: the passage as indexed, "" when only its place is still known."""

    id: str
    source: Source
    text: str
    citations: tuple[Citation, ...]
    freshness: PassageFreshness
    lines: tuple[int, int] | None = None
    around: str = ""
    diff: str = ""
    beside: Record | None = None
    mime: str = ""


# --- search ----------------------------------------------------------------------------------------------------------


def search_passages(
    library: Library,
    embedder: QueryEmbedder,
    weights: RankingWeights,
    actor: Actor,
    request: KnowledgeSearch,
    *,
    with_neighbours: bool,
) -> list[RetrievedSnippet]:
    """Return the passages that answer a query: strong ones, then a few weak ones; none where nothing fits.

    Raises NotFound, BadInput: no source has the name, or several have.
    """
    chosen = [library.source_named(request.source, actor.scope)] if request.source else library.readable(actor.scope)
    sources = {
        source.id: source
        for source in chosen
        if request.trust in (None, source.trust) and request.scope in (None, source.visibility)
    }
    if not sources:
        return []
    readers = audiences(actor.scope)
    period = time_range(request.query, now=library.clock.now(), zone=actor.zone)
    text = period.remaining if period is not None and period.rest and period.remaining else request.query
    question, _ = prepared_query(embedder, text, project=counted_for(readers))
    scored = library.index.scored(
        question,
        _where(library, sources, request.path),
        readers=readers,
        weights=weights,
        period=replace(period, is_hard=False) if period is not None else None,  # a preference, no filter
    )
    if scored is None:
        return []
    order = np.lexsort((np.arange(len(scored.total)), -scored.total, scored.relevance < STRONG))

    def may_read(memory: Memory) -> bool:
        return memory.audience in readers and _source_id(memory) in sources and bool(memory.content)

    snippets: list[RetrievedSnippet] = []
    for rank, memory, siblings in _distinct(library, scored, order, may_read, request.limit, question.script):
        snippet = _snippet(sources, memory, siblings, float(scored.total[rank]), float(scored.relevance[rank]))
        signals = scoring.signals(scored, [rank], weights)[rank] if request.detail else None
        wants_neighbour = with_neighbours and not snippet.weak and len(snippets) < NEIGHBOURS_MAX
        source = sources[_source_id(memory)]
        neighbour = _neighbour(library, source, memory, memory.citations[0]) if wants_neighbour else None
        snippets.append(replace(snippet, signals=signals, beside=neighbour))
    return [replace(snippet, citations=tuple(_checked(library, sources, snippet))) for snippet in snippets]


def _where(library: Library, sources: Mapping[str, Source], path: str) -> Where:
    """Return the filter that the engine applies: the tags of the sources, or nothing where all of them are searched.

    A source has one audience, so its tag decides who may read it; an emptied passage has neither words nor a vector.
    Each condition makes the engine check every passage. Results are checked once more before they are shown.
    """
    conditions: list[Condition] = []
    if {source.id for source in library.catalogue.sources(live=False)} != set(sources):
        conditions.append(OneOf("tag", tuple(f"source:{name}" for name in sorted(sources))))
    if path:
        conditions.append(StartsWith("where", path))
    return Where(tuple(conditions))


def _distinct(
    library: Library,
    scored: Scored,
    order: NDArray[np.intp],
    may_read: Callable[[Memory], bool],
    limit: int,
    script: int,
) -> list[tuple[int, Memory, list[Memory]]]:
    """Return (rank, passage, further versions of its text) of the best passages, at most `limit`.

    Only a few weak ones are taken. One in another language than the question's (script) does not count as weak: a score
    across two languages means less, and the right passage often gets a low one.
    """
    results: list[tuple[int, Memory, list[Memory]]] = []
    bags: list[frozenset[int]] = []
    weak, page = 0, limit + SPARE
    for start in range(0, len(order), page):
        ranks = {scored.mirror.points[int(scored.rows[rank])]: int(rank) for rank in order[start : start + page]}
        for entry in library.store.get(COLLECTION, list(ranks), with_vectors=True):  # with their words
            memory, bag = entry.memory, frozenset(entry.words.indices if entry.words else ())
            if not may_read(memory):
                continue
            versions = next(
                (
                    versions
                    for (_, other, versions), words in zip(results, bags, strict=True)
                    if other.content == memory.content or _is_version(bag, words)
                ),
                None,
            )
            if versions is not None:
                versions.append(memory)
                continue
            rank = ranks[memory.point_id]
            is_weak = bool(scored.relevance[rank] < STRONG) and script_of(memory.content) == script
            if len(results) < limit and not (is_weak and weak == max_weak(limit)):
                weak += is_weak
                results.append((rank, memory, []))
                bags.append(bag)
        if len(results) == limit or weak == max_weak(limit):
            break
    return results


def _is_version(words: frozenset[int], others: frozenset[int]) -> bool:
    """Return whether two texts share so many terms that they are versions of one."""
    if min(len(words), len(others)) < SAME_TEXT * max(len(words), len(others)):
        return False
    common = len(words & others)
    return common >= SAME_TEXT * (len(words) + len(others) - common) > 0


def _snippet(
    sources: Mapping[str, Source], memory: Memory, siblings: Sequence[Memory], score: float, relevance: float
) -> RetrievedSnippet:
    source = sources[_source_id(memory)]
    citations = [
        replace(citation, trust=source.trust, observed_at=memory.recorded_at, variant=ALGO_VERSION)
        for citation in memory.citations
    ]
    for sibling in siblings:
        trust = sources[_source_id(sibling)].trust
        citations += [replace(citation, trust=trust) for citation in sibling.citations[:1]]
    return RetrievedSnippet(
        id=memory.id,
        text=memory.content,
        score=round(score, 4),
        layer=memory.layer,
        type=source.kind.value,
        when=memory.when,
        tags=(Tag(TAG),),
        citations=tuple(citations),
        relevance=round(relevance, 2),
        weak=relevance < STRONG,
        origin=Origin.DOCUMENT,
    )


def _checked(library: Library, sources: Mapping[str, Source], snippet: RetrievedSnippet) -> Iterator[Citation]:
    """Yield the citations of a snippet, the first one checked against its source where that is a file."""
    for number, citation in enumerate(snippet.citations):
        source = sources.get((citation.title or "").rpartition(" ")[2])
        if number or source is None or source.kind not in (SourceKind.FILES, SourceKind.REPO_DOCS):
            yield citation
            continue
        document = _current_document(library, source, citation.ref)
        if document is None:
            yield replace(citation, freshness="gone")
            continue
        locator = citation.locator
        freshness, lines = freshness_of(snippet.text, document.text, locator.line_start or 1, locator.line_end or 1)
        if lines is not None and freshness == "moved":
            locator = replace(locator, line_start=lines[0], line_end=lines[1])
        yield replace(citation, locator=locator, freshness="stale" if freshness == "changed" else freshness)


def _source_id(memory: Memory) -> str:
    return memory.author.removeprefix("source:")


# --- neighbours ------------------------------------------------------------------------------------------------------


def _neighbour(library: Library, source: Source, passage: Memory, citation: Citation) -> Record | None:
    """Return part of the passage before or after one that was cut there; None where it is whole."""
    number, heading = citation.locator.chunk_index, citation.locator.heading
    if number is None:
        return None
    by_number = {
        place.number: place
        for place in library.catalogue.places(source.id, refs=[citation.ref])
        if place.heading == heading
    }
    after, before = by_number.get(number + 1), by_number.get(number - 1)
    names = [place.passage for place in (after, before) if place is not None and place.passage != passage.id]
    entries = library.store.get(COLLECTION, [point_of(name) for name in names])
    texts = {e.memory.id: e.memory.content for e in entries if e.memory.status is Status.ACTIVE}
    if after is not None and _continues(passage.content, texts.get(after.passage, "")):
        return _part(after, texts[after.passage], is_after=True)
    if before is not None and texts.get(before.passage):
        return _part(before, texts[before.passage], is_after=False)
    return None


def _continues(text: str, following: str) -> bool:
    """Return whether a text ends within a list, a table or code that the following text begins with."""
    if not following:
        return False
    last, first = text.rstrip().rpartition("\n")[2], following.split("\n", 1)[0]
    if len(_FENCE.findall(text)) % 2:
        return True
    return any(kind.match(last) and kind.match(first) for kind in _LINE_KINDS)


def _part(place: PassagePlace, text: str, *, is_after: bool) -> Record | None:
    """Return as many whole lines of a passage as fit, from its beginning or up to its end."""
    lines = text.split("\n")
    count, budget = 0, NEIGHBOUR_BYTES
    for line in lines if is_after else reversed(lines):
        budget -= len(line.encode("utf-8", "replace")) + 1
        if budget < 0:
            break
        count += 1
    first, last = (0, count) if is_after else (len(lines) - count, len(lines))
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


# --- citations that open ---------------------------------------------------------------------------------------------


def open_citation(library: Library, actor: Actor, name: str, *, around: int = AROUND_LINES) -> OpenedCitation:
    """Return a passage with the lines around it in the current source. name: its id, or a citation's `ref`, as
    `guide.md` or `guide.md:6-9`. Raises NotFound: no such citation. BadInput: several sources have this `ref`."""
    name = name.strip().removeprefix("knowledge:")
    sources = {source.id: source for source in library.readable(actor.scope)}
    name = _cited_at(library, sources, name) or name
    entries = library.store.get(COLLECTION, [point_id(name, 1)]) if sources else []
    memory = entries[0].memory if entries else None
    if memory is not None and memory.status is Status.ACTIVE and _source_id(memory) in sources:
        return _open_passage(library, sources[_source_id(memory)], memory, around)
    retired = library.catalogue.retired(name) if library.is_used else None
    if retired is None or retired[0] not in sources:
        raise NotFound(f"no citation {name!r} that you may read; `memory-anchor knowledge search` gives them")
    source, place = sources[retired[0]], retired[1]
    opened = OpenedCitation(name, source, "", (citation_of(source, place),), "gone")
    if place.ref not in library.catalogue.stamps(source.id):  # no part of its source any more: deleted, or ignored
        return opened
    document = _current_document(library, source, place.ref)
    if document is None:
        return opened
    diff, lines, cited_text = "", (place.line_start, place.line_end), _cited_text(source, place)
    if cited_text is not None:
        lines = lines_now(cited_text, document.text, lines)
        diff = _diff(_lines(cited_text, place.line_start, place.line_end), _lines(document.text, *lines))
    text = _around(document.text, *lines, around)
    return replace(opened, freshness="changed", around=text, diff=diff, mime=document.mime)


def _cited_at(library: Library, sources: Iterable[str], ref: str) -> str:
    """Return the passage that begins a document or is at its line, "" where no source has such a document."""
    lines = _REF_LINES.search(ref)
    line, refs = (int(lines[1]), [ref, ref[: lines.start()]]) if lines else (1, [ref])
    passages = set()
    for source in sources:
        if places := library.catalogue.places(source, refs=refs):
            before = [place for place in places if place.line_start <= line]
            passages.add((before or places[:1])[-1].passage)
    if len(passages) > 1:
        raise BadInput(f"{ref!r} is in {len(passages)} sources; allowed is the id of one passage of it")
    return next(iter(passages), "")


def _open_passage(library: Library, source: Source, memory: Memory, around: int) -> OpenedCitation:
    places = library.catalogue.places(source.id, passages=[memory.id])
    citations = tuple(citation_of(source, place) for place in places) or memory.citations
    neighbour = _neighbour(library, source, memory, citations[0]) if citations else None
    opened = OpenedCitation(memory.id, source, memory.content, citations, "gone", beside=neighbour)
    place = places[0] if places else PassagePlace(memory.where or "", 0, memory.id, "", 1, 1)
    document = _current_document(library, source, place.ref)
    if document is None:
        return opened
    freshness, lines = freshness_of(memory.content, document.text, place.line_start, place.line_end)
    shown_lines, diff = lines or (place.line_start, place.line_end), ""
    if freshness == "changed":
        if (cited_text := _cited_text(source, place)) is not None:
            shown_lines = lines_now(cited_text, document.text, shown_lines)
        diff = _diff(memory.content, _lines(document.text, *shown_lines))
    text = _around(document.text, *shown_lines, around)
    return replace(opened, freshness=freshness, lines=lines, around=text, diff=diff, mime=document.mime)


def _lines(text: str, start: int, end: int) -> str:
    return "\n".join(text.split("\n", end)[start - 1 : end])


def _diff(cited: str, current: str) -> str:
    lines = difflib.unified_diff(cited.split("\n"), current.split("\n"), "cited", "now", lineterm="", n=1)
    return cleaned("\n".join(list(lines)[:DIFF_LINES_MAX])).text


def lines_now(old_text: str, new_text: str, lines: tuple[int, int]) -> tuple[int, int]:
    """Return where lines of an older text are in the newer one; the same lines where the texts are very long.

    >>> lines_now("a\\nb\\nc", "new\\na\\nB\\nc", (2, 2))
    (3, 3)
    """
    old, new = old_text.split("\n"), new_text.split("\n")
    if max(len(old), len(new)) > ALIGNED_LINES_MAX:
        return lines
    first, last = len(new), 0
    for tag, old_start, old_end, start, end in difflib.SequenceMatcher(None, old, new).get_opcodes():
        if old_end < lines[0] or old_start >= lines[1]:
            continue
        is_same = tag == "equal"
        first = min(first, start + max(0, lines[0] - 1 - old_start) if is_same else start)
        last = max(last, min(end, start + lines[1] - old_start) if is_same else end)
    return first + 1, max(first + 1, last)


def freshness_of(passage: str, text: str, start: int, end: int) -> tuple[PassageFreshness, tuple[int, int] | None]:
    """Return whether a passage is still at its lines (start to end), elsewhere, or not in a text; its lines now.

    A passage from which a secret was cut is compared with its own lines only, without their secrets.
    """
    starts = [0, *(newline.end() for newline in re.finditer("\n", text))]
    first = _line_of(text, passage, start, starts)
    if first is not None:
        return ("fresh" if first == start else "moved"), (first, first + passage.count("\n"))
    lines = _lines(text, start, end)
    if len(lines) <= LINES_CHARS_MAX and passage in cleaned(lines).text:
        return "fresh", (start, end)
    return "changed", None


def _line_of(text: str, passage: str, line: int, starts: Sequence[int]) -> int | None:
    """Return the line on which a passage begins, of several the nearest to `line`; None when there is none."""
    if not passage:
        return None
    offset = text.find(passage, starts[line - 1]) if line <= len(starts) else -1
    if offset >= 0 and bisect_right(starts, offset) == line:
        return line
    best, offset = None, -len(passage)
    for _ in range(OCCURRENCES_MAX):
        offset = text.find(passage, offset + len(passage))
        if offset < 0:
            break
        other = bisect_right(starts, offset)
        best = other if best is None or abs(other - line) < abs(best - line) else best
    return best


def _current_document(library: Library, source: Source, ref: str) -> SourceDocument | None:
    """Return a document as it is now, with the text that passages are cut from; None when it is gone."""
    from memory_anchor.extensions.knowledge.reading import current_document

    try:
        document = current_document(library, source, ref)
    except MemoryAnchorError:
        return None
    return replace(document, text=plain(document.text)) if document is not None else None


def _cited_text(source: Source, place: PassagePlace) -> str | None:
    """Return the text of a checkout's document at the cited version, where Git still has it."""
    from memory_anchor.extensions.knowledge.reading import cited_document

    try:
        document = cited_document(source, place.ref, place.sha)
    except MemoryAnchorError:
        return None
    return plain(document.text) if document is not None else None


def _around(text: str, start: int, end: int, margin: int) -> str:
    """Return the lines from start to end with `margin` lines before and after, numbered, without secrets."""
    first = max(1, start - margin)
    numbered = enumerate(text.split("\n")[first - 1 : end + margin], first)
    shown = "\n".join(f"{'>' if start <= number <= end else ' '} {number:>5}  {line}" for number, line in numbered)
    indent = shown[: len(shown) - len(shown.lstrip(" "))]  # `cleaned` strips it
    return indent + cleaned(shown).text
