"""What a question asks for beyond its words: why and what else, the other language, the newest of several.

- `asks_beyond`: whether a question asks why something is so, or what else was said with it.
- `phrases_in_other_language`: what a question's words are called in the other language, Chinese or English: 部署 is
  deploy, "rollback" is 回滚. The embedder brings two languages only roughly together, and words never meet.
  `glossary.txt` has the words of developers and of people at home.
- `end_asked`: whether a query asks for the newest or the oldest of what it names ("latest", "现在", "第一次"). These
  words are in no memory, so they are cut from what is searched. A period ("last week", "最近7天") is none of them
  (`timewords`). Held by `scripts/evaluation/data/recency.yaml`: half of its series were never looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from memory_anchor.language.safe_regex import bounded, late
from memory_anchor.language.terms import CJK, is_chinese, stem, terms
from memory_anchor.language.timespans import says_it_happened
from memory_anchor.language.words import pattern


class Beyond(StrEnum):
    WHY = "why"
    ELSE = "else"


_WHY = bounded(r"\bwhy\b|\bhow come\b|\breasons?\b|为什么|为何|为啥|怎么会|原因|理由", re.IGNORECASE)
_ELSE = bounded(pattern("questions", "else"), re.IGNORECASE)


def asks_beyond(query: str) -> Beyond | None:
    """Return what a question asks for beyond the statement that answers it; None for most.

    >>> asks_beyond("What else was agreed?"), asks_beyond("为什么不用缓存？"), asks_beyond("Which port?")
    (<Beyond.ELSE: 'else'>, <Beyond.WHY: 'why'>, None)
    """
    if _ELSE.search(query):
        return Beyond.ELSE
    return Beyond.WHY if _WHY.search(query) else None


Phrase = tuple[str, ...]
"""The terms of one word or phrase; a text contains it where it has all of them."""
CONCEPTS_MAX = 12
"""Words of one question that are translated."""
LONGEST = 6
"""Characters of the longest Chinese word in the glossary."""
_HAN = late(rf"[{CJK}]{{1,400}}")
_WORD = late(r"[a-z0-9][a-z0-9+#-]{0,40}")


def phrases_in_other_language(text: str) -> tuple[tuple[Phrase, ...], ...]:
    """Return, for each word of a text in the glossary, the phrases that translate it.

    >>> phrases_in_other_language("怎么部署？")
    ((('deploy',),),)
    """
    chinese, english = _glossary()
    translations = _of_chinese(text, chinese) if is_chinese(text) else _of_english(text, english)
    return tuple(dict.fromkeys(translations))[:CONCEPTS_MAX]


def _of_chinese(text: str, glossary: Mapping[str, tuple[Phrase, ...]]) -> Iterator[tuple[Phrase, ...]]:
    """Yield the translations of the longest words from left to right; a character belongs to one word."""
    for run in _HAN.findall(text):
        at = 0
        while at < len(run):
            size = next((n for n in range(min(LONGEST, len(run) - at), 0, -1) if run[at : at + n] in glossary), 0)
            if size:
                yield glossary[run[at : at + size]]
            at += size or 1


def _of_english(text: str, glossary: Mapping[str, tuple[Phrase, ...]]) -> Iterator[tuple[Phrase, ...]]:
    words, at = [stem(word) for word in _WORD.findall(text.lower())], 0
    while at < len(words):
        size = next((n for n in (3, 2, 1) if " ".join(words[at : at + n]) in glossary), 0)
        if size:
            yield glossary[" ".join(words[at : at + size])]
        at += size or 1


@lru_cache(maxsize=1)
def _glossary() -> tuple[Mapping[str, tuple[Phrase, ...]], Mapping[str, tuple[Phrase, ...]]]:
    """Return Chinese word -> English phrases, and stemmed English phrase -> Chinese ones."""
    chinese: dict[str, tuple[Phrase, ...]] = {}
    english: dict[str, tuple[Phrase, ...]] = {}
    for line in Path(__file__).with_name("glossary.txt").read_text(encoding="utf-8").split("\n"):
        left, is_entry, right = line.partition(" = ")
        if not is_entry or line.startswith("#"):
            continue
        translated = (tuple(terms(phrase.replace("+", " "))) for phrase in right.split())
        phrases = tuple(dict.fromkeys(filter(None, translated)))  # a stop word is never searched for
        words = tuple(_pairs(word) for word in left.split())
        for word in left.split():
            chinese[word] = tuple(dict.fromkeys((*chinese.get(word, ()), *phrases)))
        for phrase in right.split():
            key = " ".join(stem(word) for word in phrase.split("+"))
            english[key] = tuple(dict.fromkeys((*english.get(key, ()), *words)))
    return chinese, english


def _pairs(word: str) -> Phrase:
    """Return the terms of a Chinese word: its pairs of characters, which are more specific than each character."""
    found = tuple(terms(word))
    return tuple(term for term in found if len(term) > 1) or found


End = Literal["newest", "oldest"]
_NEWEST = bounded(pattern("questions", "newest"), re.IGNORECASE)
_OLDEST = bounded(pattern("questions", "oldest"), re.IGNORECASE)
_FIRST_AT_END = bounded(r"(?<!\bat )\bfirst(?=\s*[?.!]*$)", re.IGNORECASE)
"""The oldest only of what has happened: "whom did we ask first", and not "what should I do first"."""
_QUOTED = bounded(r'["“「『《`][^"”」』》`\n“「『《]{1,200}["”」』》`]')


class EndAsked(NamedTuple):
    """end: which of several is meant, None for any. rest: the query without the words that say so."""

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
        matches = list(words.finditer(read))
        if end == "oldest" and not matches and _FIRST_AT_END.search(read) and says_it_happened(read):
            matches = list(_FIRST_AT_END.finditer(read))
        if matches:
            starts = [0, *(match.end() for match in matches)]
            ends = [*(match.start() for match in matches), len(query)]
            rest = " ".join("".join(query[start:stop] for start, stop in zip(starts, ends, strict=True)).split())
            return EndAsked(end, rest.replace(" ?", "?") if re.search(r"\w", rest) else query)
    return EndAsked(None, query)
