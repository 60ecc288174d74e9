"""Who speaks in a text, and how sure they are.

- `without_opening` makes a memory of what was said: a piece of it, verbatim. Rewording it is no longer what was said,
  and conjugating verbs by their ending makes "previouslies".
- `worded_for` returns a memory as its reader should see it. One written in the first person (`first-person`,
  `ghostwriter`) speaks as the agent that had the experience: that agent gets it unchanged, anybody else with the
  speaker's name in front (the write-back RFC, section 2.6). What a user was heard to say of themselves has `User:` in
  front, or an agent would read their "I" as its own. The stored text never changes, and all of it is shown.
- `hedge` finds the word by which a statement doubts itself. Such a statement is no fact yet: saved without a confidence
  it waits for a human. Quotes and code say nothing about the statement (`maybe_users`, "are you sure?"), a capital
  inside an English sentence makes a name, and rough numbers are no doubt. Rejected: every "may", "should", 应该 and
  "likely to", which in rules allow, order and count. `scripts/data/writer_hedges.tsv` has cases and their opposites.
"""

from __future__ import annotations

import re
from enum import StrEnum

from memory_anchor.domain.model import Layer, Memory, Origin, Scope, WriteMode
from memory_anchor.language.safe_regex import bounded, late
from memory_anchor.language.terms import is_chinese
from memory_anchor.language.words import any_phrase, either

TITLE_CHARS = 80
USER = "user"
"""Among the people of a memory that was captured: it is what the user said themselves."""


class Perspective(StrEnum):
    FIRST_PERSON = "first-person"
    THIRD_PERSON = "third-person"


_OPENING = bounded(rf"^(?:(?:{any_phrase('opening', 'english')})\s?[,!]+\s?)+(?=\S)", re.I)
_OPENING_ZH = bounded(rf"^(?:(?:{any_phrase('opening', 'chinese')})\s?[,，、！!]+\s?)+(?=\S)")
"""Only what a comma or an exclamation mark sets apart is an opening: "No deploys on Mondays" and 请假 begin with a word
that carries the statement."""
_SPEAKS = bounded(r"(?<![A-Za-z])(?:I|I['’](?:m|ve|d|ll)|my|me|mine|myself)(?![A-Za-z'’])")


def without_opening(text: str) -> str:
    """Return what was said, verbatim, from its first word that says something.

    >>> without_opening("By the way, I prefer dark mode.")
    'I prefer dark mode.'
    >>> without_opening("No deploys before 11 CET on Mondays.")
    'No deploys before 11 CET on Mondays.'
    """
    return (_OPENING_ZH if is_chinese(text) else _OPENING).sub("", " ".join(text.split())).strip()


def by_user(text: str) -> str:
    """Return the user's words with `User:` in front where they say "I".

    >>> by_user("I prefer dark mode."), by_user("我对花生过敏。"), by_user("我们周五不发版。")
    ('User: I prefer dark mode.', '用户：我对花生过敏。', '我们周五不发版。')
    """
    if is_chinese(text):
        return f"用户：{text}" if re.search(r"我(?!们)", text) else text
    return f"User: {text}" if _SPEAKS.search(text) else text


def title(content: str) -> str:
    """Return the first `TITLE_CHARS` characters at a word's end, without closing punctuation."""
    if len(content) <= TITLE_CHARS:
        return content.rstrip(" .。!！;；,，")
    cut = content[:TITLE_CHARS]
    space = cut.rfind(" ")
    return (cut[:space] if space > TITLE_CHARS // 2 else cut).rstrip(" .。!！;；,，")


_FIRST_PERSON_MODES = frozenset({WriteMode.FIRST_PERSON, WriteMode.GHOSTWRITER})
_QUOTED_OR_CODE = late(
    r"```(?:[^`]++|`(?!``))*(?:```)?|`[^`\n]*+`|\"[^\"\n]*+\""
    r"|“[^“”\n]*+”|「[^「」\n]*+」|^>.*+$",
    re.S | re.M,
)
_FIRST_PERSON = late(
    r"(?<![A-Za-z0-9_])(?:I|I['’](?:m|ve|d|ll)|me|my|mine|myself|we|our|ours|us)(?![A-Za-z0-9_])|我|咱"
)
_BLOCK = ("```", "~~~", "|", "#", "-", "*", ">", "    ", "\t")
"""How a text begins that must start on a new line."""


def worded_for(memory: Memory, reader: Scope) -> str:
    """Return its text for this reader: another agent's as `codex: I broke it`, a reply as `8443 (context: Port?)`."""
    if memory.origin is Origin.EXTRACTED and (USER in memory.who or memory.context):
        said = by_user(memory.content) if USER in memory.who else memory.content
        around = "（上下文：{}）" if is_chinese(said + memory.context) else " (context: {})"
        return said + around.format(memory.context) if memory.context and memory.layer is Layer.VERIFIED_FACT else said
    if memory.write_mode not in _FIRST_PERSON_MODES or memory.scope.agent == reader.agent or not memory.scope.agent:
        return memory.content
    if not _FIRST_PERSON.search(_QUOTED_OR_CODE.sub(" ", memory.content)):
        return memory.content
    between = "\n" if memory.content.startswith(_BLOCK) else " "
    return f"{memory.scope.agent}:{between}{memory.content}"


READ_CHARS = 4_000
BEFORE, SHOWN = 12, 24
"""Characters read before a word for the start of its sentence, and characters of it that are returned."""
_QUOTED = bounded(r"`[^`\n]*`|\"[^\"\n]*\"|“[^”\n]*”|「[^」\n]*」|《[^》\n]*》|(?<![\w'])'[^'\n]{2,}'(?!\w)")
_HEDGE = bounded(either("doubt", edges=(r"(?<![\w-])", r"(?![\w-])")), re.IGNORECASE)
_QUESTION = bounded(r"(?<=\w)\s?[?？](?=[\s)）]|$)|(?:吗|(?<![什怎那这多要])么)(?=[。！\s]|$)")
_INSIDE = bounded(r"[\w,;:]\s+$")


def hedge(text: str) -> str:
    """Return the first word of doubt as it stands in the text, the mark of a question, or "" where there is none.

    >>> hedge("Maybe the port is 8080."), hedge("Option types are called Maybe."), hedge("周五发版吗？")
    ('Maybe', '', '？')
    """
    plain = _QUOTED.sub(lambda quote: "\u0001" * len(quote.group()), text[:READ_CHARS])
    for match in _HEDGE.finditer(plain):
        word = match.group()
        before = plain[max(0, match.start() - BEFORE) : match.start()]
        is_name = word[:1].isupper() and word[:1] not in "IW" and _INSIDE.search(before) is not None
        if not is_name:
            return word[-SHOWN:]
    question = _QUESTION.search(plain)
    return plain[question.start() : question.end() + 1].strip() if question else ""
