"""Who speaks in a memory that is made of a conversation: the user is named in front of what they say of themselves.

A memory that keeps the speaker's "I" is read by an agent as its own; one rewritten is no longer what was said, and
verbs that are conjugated by their ending come out as "previouslies". So what was said stays, its speaker before it.
How a memory is worded for whoever reads it is `persons`. Invariant: deterministic;
text that needs no change comes back unchanged.
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
_NAME_OF = {"user": ("User", "用户"), "assistant": ("The agent", "助手")}


_SPEAKS = bounded(r"(?<![A-Za-z])(?:I|I['’](?:m|ve|d|ll)|my|me|mine|myself)(?![A-Za-z'’])")


def spoken_by(text: str, *, speaker: str) -> str:
    """Return what was said, verbatim, with its speaker put in front where it says "I"; "" for nobody.

    >>> spoken_by("By the way, I prefer dark mode.", speaker="user")
    'User: I prefer dark mode.'
    """
    chinese = is_chinese(text)
    said = (_OPENING_ZH if chinese else _OPENING).sub("", " ".join(text.split())).strip()
    if not said or not speaker:
        return said
    name = _NAME_OF.get(speaker, _NAME_OF["user"])[chinese]
    if not chinese:
        return f"{name}: {said}" if _SPEAKS.search(said) else said
    if said.startswith("我") and len(re.findall(r"我(?!们)", said)) == 1 and not said.startswith("我们"):
        return name + said[1:]
    return f"{name}：{said}" if re.search(r"我(?!们)", said) else said


def title(content: str) -> str:
    """Return the first `TITLE_CHARS` characters at a word's end, without closing punctuation."""
    if len(content) <= TITLE_CHARS:
        return content.rstrip(" .。!！;；,，")
    cut = content[:TITLE_CHARS]
    space = cut.rfind(" ")
    return (cut[:space] if space > TITLE_CHARS // 2 else cut).rstrip(" .。!！;；,，")
