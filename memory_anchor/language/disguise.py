"""A text as a program or a reader takes it, where a secret is written in other signs or in pieces.

`readings` returns up to two: with unseen characters dropped, and entities, percent and backslash escapes
undone; and with pieces of one string put together again (`"ab" + "cd"`, a broken line, marks of
bold). Each keeps where its characters come from, so that what is found in it is cut out of the text as it was written.
`skeleton` goes further (look-alike letters) for fences; a secret is copied by machines, which need the very signs.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\U000e0000-\U000e0fff"
)
"""Default-ignorable characters, as a class of an expression: nothing of them is shown, so any may stand anywhere."""
_WRITTEN = re.compile(
    rf"[{UNSEEN}]+|&(?:#\d{{1,7}}|#[xX][0-9a-fA-F]{{1,6}}|[a-zA-Z]{{2,8}});"
    r"|%[2-7][0-9a-fA-F]|\\u00[2-7][0-9a-fA-F]|\\x[2-7][0-9a-fA-F]|\\[\"'/]"
)
_IN_PIECES = re.compile(
    r"[\"'`]\s{0,8}+[+.]?\s{0,200}+[\"'`](?=[A-Za-z0-9+/=_-])|\\\r?\n\s{0,40}+"
    r"|(?<=[A-Za-z0-9+/_-])\r?\n[> \t]{0,40}+(?=[A-Za-z0-9+/=_-]{12})|(?<=\w)\*{2,3}|\*{2,3}(?=\w)|(?<=\w)<wbr/?>"
)
_LINE_JOIN = re.compile(r"[A-Za-z0-9+/_-]{12}\Z")


@dataclass(frozen=True, slots=True)
class PlainReading:
    """A text as it is read. places: where each replaced piece begins in the reading; shifts: from there on, how far the
    original is ahead; pieces: (start, end) of the original for what was replaced."""

    text: str
    places: tuple[int, ...]
    starts: tuple[tuple[int, int, int], ...]

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Return where a stretch of the reading stands in the original; a replaced sign counts whole."""
        return self._at(start)[0], self._at(end - 1)[1]

    def _at(self, place: int) -> tuple[int, int]:
        index = bisect_right(self.places, place) - 1
        if index < 0:
            return place, place + 1
        first, last, length = self.starts[index]
        inside = place - self.places[index]
        return (first, last) if inside < length else (last + inside - length, last + inside - length + 1)


def readings(text: str) -> Iterator[PlainReading]:
    """Yield the readings in which the text is another; none for most texts."""
    written = None
    if _may_be_written(text):
        written = _replaced(text, _WRITTEN, _sign)
        if written.text != text:
            yield written
    if _IN_PIECES.search(text):
        joined = _replaced(text, _IN_PIECES, _joint)
        if joined.text != text:
            yield joined


def _may_be_written(text: str) -> bool:
    return "&" in text or "%" in text or "\\" in text or not text.isascii()


def _sign(found: re.Match[str]) -> str:
    written = found.group()
    if written[0] == "&":
        made = html.unescape(written)
        return made if len(made) == 1 and made.isprintable() else written
    if written[0] == "%":
        return chr(int(written[1:], 16))
    if written[0] == "\\":
        return chr(int(written[2:], 16)) if written[1] in "ux" else written[1]
    return ""


def _joint(found: re.Match[str]) -> str:
    if found.group()[0] in "\r\n" and not _LINE_JOIN.search(found.string, max(0, found.start() - 12), found.start()):
        return found.group()
    return ""


def _replaced(text: str, pattern: re.Pattern[str], made: Callable[[re.Match[str]], str]) -> PlainReading:
    parts: list[str] = []
    places: list[int] = []
    starts: list[tuple[int, int, int]] = []
    reached = length = 0
    for found in pattern.finditer(text):
        new = made(found)
        if new == found.group():
            continue
        parts += (text[reached : found.start()], new)
        length += found.start() - reached
        places.append(length)
        starts.append((found.start(), found.end(), len(new)))
        length += len(new)
        reached = found.end()
    parts.append(text[reached:])
    return PlainReading("".join(parts), tuple(places), tuple(starts))
