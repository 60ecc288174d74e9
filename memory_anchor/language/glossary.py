"""What a question's words are called in the other language, Chinese or English: 部署 is deploy, "rollback" is 回滚.

The embedder brings two languages only roughly together, and words never meet. `glossary.txt` names what developers and
people at home talk about, so that a question in one language also finds memories in the other by words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from memory_anchor.language.terms import CJK, is_chinese, stem, terms

Phrase = tuple[str, ...]
"""The terms of one word or phrase; a text says it where it has all of them."""
CONCEPTS_MAX = 12
"""Words of one question that are looked up."""
LONGEST = 6
"""Signs of the longest Chinese word that is looked for."""
_HAN = re.compile(rf"[{CJK}]{{1,400}}")
_WORD = re.compile(r"[a-z0-9][a-z0-9+#-]{0,40}")


def abroad(text: str) -> tuple[tuple[Phrase, ...], ...]:
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
