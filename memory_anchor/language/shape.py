"""The shape of a text: is it a question, does it have a time or a number, how long is it.

A question matches a question's words best, yet its answer is the text after it; and "when" is answered by a text with a
time. That holds for a chat turn and a project fact, in English and Chinese.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from memory_anchor.language.safe_regex import late
from memory_anchor.language.words import pattern

_LEAD = late(r"\A\s*+[\[【][^\]】\n]{1,40}[\]】]\s*+")
_TITLES = late(r"\A(?:\s*+#{1,6}[ \t][^\n]*+\n)+")
_NOTE = late(r"[\[【(（][^\]】)）\n]{0,200}+[\]】)）]\Z")
NOTE_CHARS = 200
"""A longer note at the end belongs to the text."""
_TIME = late(pattern("shape", "time"), re.IGNORECASE)
_NUMBER = late(pattern("shape", "number"), re.IGNORECASE)
_WHEN = late(r"\bwhen\b", re.IGNORECASE)
_ASKS_WHEN = late(pattern("shape", "asks_when"), re.IGNORECASE)
_ASKS_ELSE = late(pattern("shape", "asks_else"), re.IGNORECASE)
_WANTS_TIME = late(pattern("shape", "wants_time"), re.IGNORECASE)
_WANTS_NUMBER = late(r"\bhow (?:many|much|often|old)\b|多少|几[个次天年人只条页项遍种岁]|多大", re.IGNORECASE)
_WORD = late(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+")
LEAST_WORDS = 5
"""Shorter texts count as this long."""


@dataclass(frozen=True, slots=True)
class Shape:
    """asks: ends as a question. tells_time, tells_number: has one. said: log of its number of words, from ln 5."""

    asks: bool
    tells_time: bool
    tells_number: bool
    said: float


def shape_of(content: str) -> Shape:
    """Return the shape of a text, without headings and a date in brackets at its head or a note at its end.

    A heading only names what follows: "## 3. Costs" has no number.
    """
    body = _LEAD.sub("", _TITLES.sub("", content, count=1), count=1)
    end = body.rstrip()[-NOTE_CHARS:]
    asks = _NOTE.sub("", end).rstrip().endswith(("?", "？"))
    said = math.log(LEAST_WORDS + len(set(_WORD.findall(body.lower()))))
    return Shape(asks, bool(_TIME.search(body)), bool(_NUMBER.search(body)), said)


def wants_time(query: str) -> bool:
    """Return whether a query asks when or how long.

    Next to another question "when" is a condition: "what happens when the disk is full" asks for no time.

    >>> wants_time("when was it"), wants_time("what breaks when it is full"), wants_time("when and why did it break")
    (True, False, True)
    """
    is_asked = _ASKS_WHEN.search(query) or (_WHEN.search(query) and not _ASKS_ELSE.search(query))
    return bool(is_asked or _WANTS_TIME.search(query))


def wants_number(query: str) -> bool:
    """Return whether a query asks how many, how much or how old."""
    return bool(_WANTS_NUMBER.search(query))
