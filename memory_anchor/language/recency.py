"""Whether a query asks for the newest or the oldest of what it names ("latest", "现在", "第一次"), Chinese and English.

These words are in no memory: they say which of several is meant, and are cut from what is looked for. A period ("last
week", "最近7天") is none of them (`timewords`). Held by `evaluation/data/recency.yaml`: half of its series were never
looked at.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from memory_anchor.language.bounded import bounded
from memory_anchor.language.timesaid import tells_of_the_past

End = Literal["newest", "oldest"]
_SPAN = (
    r"(?:(?:\d+|few|couple of|two|three|four|five|six|seven|ten|several|many) )?(?:second|minute|hour|day|night|"
    r"weekend|week|month|quarter|year|summer|winter|spring|autumn|(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
)
_NEWEST = bounded(
    r"\b(?:newest|latest|(?:most )?recent(?:ly)?|current(?:ly)?|right now|now(?! that\b)|nowadays|these days|"
    r"at (?:the moment|present)|at this (?:time|point)|last time|"
    rf"(?<!at )last(?! {_SPAN}s?\b)(?! (?:but|name|resort|mile)\b))\b|"
    r"最近(?:的?一[次回个版]|(?![\d一二两三四五六七八九十几半]))|最新(?:的?一?[次回个版])?|目前|现在|当前|眼下|如今|上一[次回]|上[次回]|最后一[次回]|至今",
    re.IGNORECASE,
)
_OLDEST = bounded(
    r"\b(?:first time|earliest|initially|originally|initial|original|"
    rf"(?:very )?(?<!at )(?<!do )first(?! {_SPAN}s?\b)(?! (?:of all|name|thing)\b)(?!\s*[?.!]*$))\b|"
    r"第一[次回]|首次|最早(?:的?一?[次回个])?|最初|一开始|起初",
    re.IGNORECASE,
)
_FIRST_AT_END = bounded(r"(?<!\bat )\bfirst(?=\s*[?.!]*$)", re.IGNORECASE)
"""The oldest only of what has happened: "whom did we ask first", and not "what should I do first"."""
_QUOTED = bounded(r'["“「『《`][^"”」』》`\n“「『《]{1,200}["”」』》`]')


class EndAsked(NamedTuple):
    """end: which of several is meant, None where all are alike. rest: the query without the words that say so."""

    end: End | None
    rest: str


def end_asked(query: str) -> EndAsked:
    """Return which end of the time line a query asks for.

    >>> end_asked("what was the last deploy")
    EndAsked(end='newest', rest='what was the deploy')
    >>> end_asked("what did we do last week").end
    """
    read = _QUOTED.sub(lambda quoted: "\0" * len(quoted[0]), query)
    kinds: tuple[tuple[End, re.Pattern[str]], ...] = (("oldest", _OLDEST), ("newest", _NEWEST))
    for end, words in kinds:
        found = list(words.finditer(read))
        if end == "oldest" and not found and tells_of_the_past(read):
            found = list(_FIRST_AT_END.finditer(read))
        if found:
            kept, at = "", 0
            for match in found:
                kept += query[at : match.start()]
                at = match.end()
            rest = " ".join((kept + query[at:]).split())
            return EndAsked(end, rest.replace(" ?", "?") if re.search(r"\w", rest) else query)
    return EndAsked(None, query)
