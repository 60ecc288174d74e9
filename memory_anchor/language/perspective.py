"""Who speaks in a memory that is made of a conversation: the user's "I" becomes "User".

A memory that keeps the speaker's "I" is read by an agent as its own; one rewritten freely is no longer what was said.
So only the persons are changed, word by word, and the verbatim quote is kept beside it. How a memory is worded for
whoever reads it is `text.persons`. Invariant: deterministic; text that needs no change comes back unchanged.
"""

from __future__ import annotations

import re
from enum import StrEnum

from memory_anchor.language.bounded import bounded
from memory_anchor.language.terms import is_chinese

TITLE_CHARS = 80


class Perspective(StrEnum):
    FIRST_PERSON = "first-person"
    THIRD_PERSON = "third-person"


_OPENING = bounded(
    r"^(?:(?:well|so|and|but|also|oh|ok(?:ay)?|actually|btw|by the way|fyi|honestly|yeah|yes|no|hmm|hi|hey|hello|sure"
    r"|great|thanks|please|just so you know)[,!\s]+)+(?=\S)",
    re.I,
)
_OPENING_ZH = bounded(
    r"^(?:(?:其实|对了|另外|还有|顺便说一下|哦|嗯|那个|不过|但是|而且|你好|您好|好的|谢谢"
    r"|请)[,，、！!\s]*)+(?=\S)"
)
_ADVERB = r"(?:(?:really|always|usually|also|never|often|still|generally|typically|normally|only|just|now|much) )"
_FIRST = bounded(
    rf"(?<![A-Za-z])(?:I(?P<short>['’](?:m|ve|d|ll))|I (?P<be>am|have|don['’]t|do not)"
    rf"|I (?P<adverb>{_ADVERB}{{0,3}})(?P<verb>[a-z]+)|(?P<other>my|me|mine|myself|I))(?![A-Za-z'’])",
    re.I,
)
_SHORT = {"m": "is", "ve": "has", "d": "would", "ll": "will"}
_THEY = {"m": "are", "ve": "have", "d": "would", "ll": "will"}
_PAST = bounded(
    r"(?:[^e]ed|ught|was|had|did|went|left|quit|grew|got|began|made|took|saw|said|chose|wrote|ran|met|felt"
    r"|gave|would|will"
    r"|can|could|should|must|may|might|cannot|spoke|built|broke|drove|flew|knew|kept|lost|paid|put|set|told|won)$"
)
_NAME_OF = {"user": ("User", "用户"), "assistant": ("The agent", "助手")}


def _third(verb: str) -> str:
    """Return the third person singular of a present verb; past and modal forms stay."""
    if _PAST.search(verb):
        return verb
    if verb.endswith(("s", "x", "z", "ch", "sh", "o")):
        return f"{verb}es"
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        return f"{verb[:-1]}ies"
    return f"{verb}s"


def stated(sentence: str, *, about: str, speaker: str) -> str:
    """Return the sentence as a statement about its speaker, in the language it was said in.

    about: `agent` keeps the words, which address the agent. speaker: `user` or `assistant`.

    >>> stated("I prefer dark mode.", about="user", speaker="user")
    'User prefers dark mode.'
    >>> stated("我喜欢深色模式。", about="user", speaker="user")
    '用户喜欢深色模式。'
    """
    text = " ".join(sentence.split())
    if about == "agent":
        return text
    english, chinese = _NAME_OF.get(speaker, _NAME_OF["user"])
    if is_chinese(text):
        text = _OPENING_ZH.sub("", text)
        return (
            re.sub(r"我(?!们)", chinese, text, count=1)
            .replace("我们", "\x00")
            .replace("我", "自己")
            .replace("\x00", "我们")
        )
    text = _OPENING.sub("", text)
    named = False

    def person(match: re.Match[str]) -> str:
        nonlocal named
        who, named_before, named = ("they" if named else english), named, True
        if match["short"]:
            ending = match["short"][1:].lower()
            return f"{who} {(_THEY if named_before else _SHORT)[ending]}"
        if match["be"]:
            return f"{who} {_be(match['be'].lower(), many=named_before)}"
        if match["verb"]:
            verb = match["verb"] if named_before else _third(match["verb"].lower())
            return f"{who} {match['adverb']}{verb}"
        other = match["other"].lower()
        if other == "my":
            return "their" if named_before else f"{english}'s"
        return who if other == "i" else {"me": "them", "mine": "theirs", "myself": "themselves"}[other]

    text = _FIRST.sub(person, text)
    return text[:1].upper() + text[1:]


def _be(form: str, *, many: bool) -> str:
    if form == "am":
        return "are" if many else "is"
    if form == "have":
        return "have" if many else "has"
    return "do not" if many else "does not"


def title(content: str) -> str:
    """Return the first `TITLE_CHARS` characters at a word's end, without closing punctuation."""
    if len(content) <= TITLE_CHARS:
        return content.rstrip(" .。!！;；,，")
    cut = content[:TITLE_CHARS]
    space = cut.rfind(" ")
    return (cut[:space] if space > TITLE_CHARS // 2 else cut).rstrip(" .。!！;；,，")
