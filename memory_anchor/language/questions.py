"""What a question asks for beyond its words: the other language, the newest of several, why and what else.

Whether a question asks for more than one statement holds: why something is so, or what else was said with it.

What a question's words are called in the other language, Chinese or English: 部署 is deploy, "rollback" is 回滚.

The embedder brings two languages only roughly together, and words never meet. `glossary.txt` names what developers and
people at home talk about, so that a question in one language also finds memories in the other by words.

Whether a query asks for the newest or the oldest of what it names ("latest", "现在", "第一次"), Chinese and English.

These words are in no memory: they say which of several is meant, and are cut from what is looked for. A period ("last
week", "最近7天") is none of them (`timewords`). Held by `evaluation/data/recency.yaml`: half of its series were never
looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from memory_anchor.language.bounded import bounded
from memory_anchor.language.terms import CJK, is_chinese, stem, terms
from memory_anchor.language.timespans import says_it_happened


class Beyond(StrEnum):
    WHY = "why"
    ELSE = "else"


_WHY = bounded(r"\bwhy\b|\bhow come\b|\breasons?\b|为什么|为何|为啥|怎么会|原因|理由", re.IGNORECASE)
_ELSE = bounded(
    r"\bwhat (?:else|other)\b|\banything else\b|"
    r"还.{0,8}(?:什么|哪些|啥)|(?:别的|其他|其它|另外)的?.{0,4}(?:什么|哪些|吗)",
    re.IGNORECASE,
)


def asks_beyond(query: str) -> Beyond | None:
    """Return what a question asks for beyond the statement that answers it; None for most.

    >>> asks_beyond("What else was agreed?"), asks_beyond("为什么不用缓存？"), asks_beyond("Which port?")
    (<Beyond.ELSE: 'else'>, <Beyond.WHY: 'why'>, None)
    """
    if _ELSE.search(query):
        return Beyond.ELSE
    return Beyond.WHY if _WHY.search(query) else None


Phrase = tuple[str, ...]
"""The terms of one word or phrase; a text says it where it has all of them."""
CONCEPTS_MAX = 12
"""Words of one question that are looked up."""
LONGEST = 6
"""Signs of the longest Chinese word that is looked for."""
_HAN = re.compile(rf"[{CJK}]{{1,400}}")
_WORD = re.compile(r"[a-z0-9][a-z0-9+#-]{0,40}")


def phrases_in_other_language(text: str) -> tuple[tuple[Phrase, ...], ...]:
    """Return, for each word of a text that the glossary knows, the phrases that say it in the other language.

    >>> abroad("怎么部署？")
    ((('deploy',),),)
    """
    chinese, english = _glossary()
    found = _chinese_words(text, chinese) if is_chinese(text) else _english_words(text, english)
    return tuple(dict.fromkeys(found))[:CONCEPTS_MAX]


def _chinese_words(text: str, known: Mapping[str, tuple[Phrase, ...]]) -> list[tuple[Phrase, ...]]:
    """Return what the longest words say, from left to right; a sign belongs to one word."""
    found = []
    for run in _HAN.findall(text):
        at = 0
        while at < len(run):
            size = next((n for n in range(min(LONGEST, len(run) - at), 0, -1) if run[at : at + n] in known), 0)
            if size:
                found.append(known[run[at : at + size]])
            at += size or 1
    return found


def _english_words(text: str, known: Mapping[str, tuple[Phrase, ...]]) -> list[tuple[Phrase, ...]]:
    words = [stem(word) for word in _WORD.findall(text.lower())]
    found, at = [], 0
    while at < len(words):
        size = next((n for n in (3, 2, 1) if " ".join(words[at : at + n]) in known), 0)
        if size:
            found.append(known[" ".join(words[at : at + size])])
        at += size or 1
    return found


@lru_cache(maxsize=1)
def _glossary() -> tuple[Mapping[str, tuple[Phrase, ...]], Mapping[str, tuple[Phrase, ...]]]:
    """Return Chinese word -> English phrases, and stemmed English phrase -> Chinese ones."""
    chinese: dict[str, tuple[Phrase, ...]] = {}
    english: dict[str, tuple[Phrase, ...]] = {}
    for line in Path(__file__).with_name("glossary.txt").read_text(encoding="utf-8").splitlines():
        han, said, latin = line.partition(" = ")
        if not said or line.startswith("#"):
            continue
        said_so = (tuple(terms(phrase.replace("+", " "))) for phrase in latin.split())
        phrases = tuple(dict.fromkeys(filter(None, said_so)))  # a stop word is never searched for
        words = tuple(_signs(word) for word in han.split())
        for word in han.split():
            chinese[word] = tuple(dict.fromkeys((*chinese.get(word, ()), *phrases)))
        for phrase in latin.split():
            key = " ".join(stem(word) for word in phrase.split("+"))
            english[key] = tuple(dict.fromkeys((*english.get(key, ()), *words)))
    return chinese, english


def _signs(word: str) -> Phrase:
    """Return the terms of a Chinese word: its pairs of signs, which tell it better than each sign."""
    found = tuple(terms(word))
    return tuple(term for term in found if len(term) > 1) or found


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
        if end == "oldest" and not found and _FIRST_AT_END.search(read) and says_it_happened(read):
            found = list(_FIRST_AT_END.finditer(read))
        if found:
            kept, at = "", 0
            for match in found:
                kept += query[at : match.start()]
                at = match.end()
            rest = " ".join((kept + query[at:]).split())
            return EndAsked(end, rest.replace(" ?", "?") if re.search(r"\w", rest) else query)
    return EndAsked(None, query)
