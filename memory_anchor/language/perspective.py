"""Who speaks in a text, and how sure they are.

Who speaks in a memory that is made of a conversation: the user is named in front of what they say of themselves.

A memory that keeps the speaker's "I" is read by an agent as its own; one rewritten is no longer what was said, and
verbs that are conjugated by their ending come out as "previouslies". So what was said stays, its speaker before it.
How a memory is worded for whoever reads it is `persons`. Invariant: deterministic;
text that needs no change comes back unchanged.

The word by which a statement says itself that it is not certain, in English and Chinese.

Such a statement is no fact yet: saved without a confidence it waits for a human. What is quoted or stands in code says
nothing about the statement (`maybe_users`, "are you sure?"), and a capital inside an English sentence makes a name.
Numbers given roughly are no doubt about the fact. Rejected: every "may", "should", 应该 and "likely to": in rules they
allow, order and count. `scripts/data/writer_hedges.tsv` has cases and their opposites.
"""

from __future__ import annotations

import re
from enum import StrEnum

from memory_anchor.language.bounded import bounded
from memory_anchor.language.terms import is_chinese
from memory_anchor.language.words import any_phrase, either

TITLE_CHARS = 80


class Perspective(StrEnum):
    FIRST_PERSON = "first-person"
    THIRD_PERSON = "third-person"


_OPENING = bounded(rf"^(?:(?:{any_phrase('opening', 'english')})[,!\s]+)+(?=\S)", re.I)
_OPENING_ZH = bounded(rf"^(?:(?:{any_phrase('opening', 'chinese')})[,，、！!\s]*)+(?=\S)")
_NAME_OF = {"user": ("User", "用户"), "assistant": ("The agent", "助手")}


_SPEAKS = bounded(r"(?<![A-Za-z])(?:I|I['’](?:m|ve|d|ll)|my|me|mine|myself)(?![A-Za-z'’])")


def with_speaker(text: str, *, speaker: str) -> str:
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


READ_CHARS = 4_000
BEFORE, SHOWN = 12, 24
"""Characters looked at before a word for the start of its sentence, and characters of it that an answer names."""
_QUOTED = bounded(r"`[^`\n]*`|\"[^\"\n]*\"|“[^”\n]*”|「[^」\n]*」|《[^》\n]*》|(?<![\w'])'[^'\n]{2,}'(?!\w)")
_SELF = r"(?:['’](?:m|d|re))? (?:also |just |only |personally |really |still )?"
_HEDGE = bounded(either("doubt", edges=(r"(?<![\w-])", r"(?![\w-])")), re.IGNORECASE)
_QUESTION = bounded(r"(?<=\w)\s?[?？](?=[\s)）]|$)|(?:吗|(?<![什怎那这多要])么)(?=[。！\s]|$)")
_INSIDE = bounded(r"[\w,;:]\s+$")


def hedge(text: str) -> str:
    """Return the first word of doubt as it stands in the text, the mark of a question, or "" where there is none.

    >>> hedge("Maybe the port is 8080."), hedge("Option types are called Maybe."), hedge("周五发版吗？")
    ('Maybe', '', '吗？')
    """
    plain = _QUOTED.sub(lambda found: "\u0001" * len(found.group()), text[:READ_CHARS])
    for found in _HEDGE.finditer(plain):
        word = found.group()
        opens = plain[max(0, found.start() - BEFORE) : found.start()]
        is_name = word[:1].isupper() and word[:1] not in "IW" and _INSIDE.search(opens) is not None
        if not is_name:
            return word[-SHOWN:]
    asked = _QUESTION.search(plain)
    return plain[asked.start() : asked.end() + 1].strip() if asked else ""
