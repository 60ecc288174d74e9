"""Expressions over a user's text, in which nothing is repeated without end.

A rule about a sentence is written as people write expressions, with `\\s*` and `\\w+`; read over 16,000 blanks or one
long word each such repetition starts again at every character, and what took microseconds takes seconds. `bounded`
compiles a rule with every endless repetition given an end, by what is repeated: blanks between words, a group, a run of
signs. Rejected: giving each its bound by hand (143 of 458 expressions had forgotten one), and cutting the text alone
(a query of 2,000 characters was slow enough). Expressions that must take a run whole, such as those that make tokens,
are written with possessive repetitions instead. `tests/attacks/test_a10_text_is_linear.py` finds what does neither.
"""

from __future__ import annotations

import re

BLANKS_MAX = 8
"""Blanks in a row that still stand between two words of one rule."""
GROUPS_MAX = 8
"""Times that a group (`(?:please |also )*`) is repeated."""
RUN_MAX = 64
"""Signs in a row that one element of a rule takes: the length of a word."""
_BLANK = frozenset({r"\s", " ", r"[ \t]"})
_OPENING = re.compile(r"\((?:\?(?:P<\w{1,60}>|P=\w{1,60}|<?[=!]|>|[a-zA-Z-]{0,8}:|[a-zA-Z]{1,8}(?=\))))?")
_REPEATED = re.compile(
    r"(?:(?P<sign>[*+])|\{(?P<least>\d{1,5}),\}|(?P<closed>\?|\{\d{1,5}\}|\{\d{0,5},\d{1,5}\}))(?P<how>[?+]?)"
)


def bounded(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return the compiled expression with every `*`, `+` and `{n,}` ended; lazy and possessive ones stay so.

    >>> bounded(r"(?:very )*good\\s*\\w+").pattern
    '(?:very ){0,8}good\\\\s{0,8}\\\\w{1,64}'
    """
    return re.compile(ended(pattern), flags)


def ended(pattern: str) -> str:
    """Return the source of an expression with every endless repetition ended."""
    made: list[str] = []
    atom, at = "", 0
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            atom = pattern[at : at + 2]
        elif sign == "[":
            atom = pattern[at : _class_end(pattern, at)]
        elif atom and (repeated := _REPEATED.match(pattern, at)):
            made += (_end(atom, repeated), repeated["how"])
            at, atom = repeated.end(), ""
            continue
        elif sign == "(":
            opening = _OPENING.match(pattern, at)
            made.append(opening.group() if opening else sign)
            at = opening.end() if opening else at + 1
            atom = ""
            continue
        else:
            atom = sign
        made.append(atom)
        at += len(atom)
    return "".join(made)


def _class_end(pattern: str, start: int) -> int:
    """Return where a character class ends."""
    at = start + 1 + (pattern[start + 1] == "^")
    at += pattern[at] == "]"
    while pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at + 1


def _end(atom: str, repeated: re.Match[str]) -> str:
    """Return a repetition with an end; one that has it as it stands."""
    if repeated["closed"]:
        return repeated["closed"]
    least = int(repeated["least"] or repeated["sign"] == "+")
    most = BLANKS_MAX if atom in _BLANK else GROUPS_MAX if atom == ")" else RUN_MAX
    return f"{{{least},{max(most, least)}}}"
