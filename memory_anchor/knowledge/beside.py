"""What stands beside a passage where it alone says too little: a bounded part of its neighbour, with its own lines.

A section longer than a passage is cut; what was cut off from its section's head is shown with the end of the passage
before it, and a list, a table or code that goes on with the beginning of the passage after it. One neighbour a passage,
of the same document and heading, at most `BESIDE_BYTES` (150 tokens), whole lines. Only the first strong passages of an
answer get one. Nothing of it reaches a context: what is injected there is the passage alone. Rejected: passages that
overlap (the same words twice in an answer, and an edit embeds two).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memory_anchor.knowledge.index import COLLECTION
from memory_anchor.knowledge.points import point_of
from memory_anchor.model import Status

if TYPE_CHECKING:
    from memory_anchor.knowledge.catalogue import Place
    from memory_anchor.knowledge.library import Library
    from memory_anchor.knowledge.sources import Source
    from memory_anchor.model import Citation, Memory

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
