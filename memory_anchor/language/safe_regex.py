"""Regular expressions over a user's text, with every repetition bounded.

Rules about sentences are written as usual, with `\\s*` and `\\w+`; over 16,000 blanks or one long word each such
repetition starts again at every character, and microseconds become seconds. `bounded` compiles a rule with an upper
bound for every unbounded repetition, by what is repeated: blanks between words, a group, a run of characters.
Rejected: bounds by hand (143 of 458 expressions had forgotten one), and only cutting the text (2,000 characters are
slow enough). Expressions that must match a whole run, such as tokens, use possessive repetitions instead.
`tests/attacks/test_a10_text_is_linear.py` finds what does neither.

An expression that somebody else wrote (a glob of a folder, a key of a lorebook) goes to `linear`: pydantic's Rust
engine, whose time is linear in the text whatever the expression says. Rejected: `re` under a time limit (the same text
would match on one day and not on another), `google-re2` (one more compiled package beside what is installed anyway).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import AnyStr, cast

BLANKS_MAX = 8
"""The most blanks between two words of one rule."""
GROUPS_MAX = 8
"""The most repetitions of a group (`(?:please |also )*`)."""
RUN_MAX = 64
"""The longest run of characters for one element of a rule: the length of a word."""
_BLANK = frozenset({r"\s", " ", r"[ \t]"})
_OPENING = re.compile(r"\((?:\?(?:P<\w{1,60}>|P=\w{1,60}|<?[=!]|>|[a-zA-Z-]{0,8}:|[a-zA-Z]{1,8}(?=\))))?")
_USES = (
    *("search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split"),
    *("pattern", "flags", "groups", "groupindex"),
)
_REPEATED = re.compile(
    r"(?:(?P<sign>[*+])|\{(?P<least>\d{1,5}),\}|(?P<closed>\?|\{\d{1,5}\}|\{\d{0,5},\d{1,5}\}))(?P<how>[?+]?)"
)


class _Late:
    """An expression that is compiled by its first use, and passes for a compiled one until then."""

    __class__ = property(lambda _: re.Pattern)

    def __init__(self, pattern: str | bytes, flags: int, *, is_bounded: bool) -> None:
        self._made_of = pattern, flags, is_bounded

    def __getattr__(self, name: str) -> object:
        if name not in _USES:
            raise AttributeError(name)
        pattern, flags, is_bounded = self._made_of
        self.pattern = bounded_source(pattern) if is_bounded and isinstance(pattern, str) else pattern
        if name != "pattern":
            compiled = re.compile(self.pattern, flags)
            vars(self).update({use: getattr(compiled, use) for use in _USES})  # found without a detour from now on
        found: object = vars(self)[name]
        return found


def late(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return an expression that is compiled by its first use: a command uses few of the thousand that there are."""
    return cast("re.Pattern[AnyStr]", _Late(pattern, flags, is_bounded=False))


def bounded(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return the `late` expression with every `*`, `+` and `{n,}` bounded; lazy and possessive ones stay so.

    >>> bounded(r"(?:very )*good\\s*\\w+").pattern
    '(?:very ){0,8}good\\\\s{0,8}\\\\w{1,64}'
    """
    return cast("re.Pattern[str]", _Late(pattern, flags, is_bounded=True))


def linear(pattern: str) -> Callable[[str], bool]:
    """Return a search in linear time for an expression that came from outside. Raises ValueError: it cannot be run.

    >>> linear(r"^(?:.+/)?[^/]*a[^/]*a[^/]*b$")("docs/aab"), linear("(a+)+$")("a" * 40_000 + "b")
    (True, False)
    """
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        return SchemaValidator(
            core_schema.str_schema(pattern=pattern, regex_engine="rust-regex", strict=True)
        ).isinstance_python
    except SchemaError as error:
        why = str(error).strip().split("\n")[-1].removeprefix("error: ").strip()
        raise ValueError(f"cannot be run in linear time: {why}") from None


def bounded_source(pattern: str) -> str:
    """Return the source of an expression with every repetition bounded."""
    parts: list[str] = []
    atom, at = "", 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            atom = pattern[at : at + 2]
        elif character == "[":
            atom = pattern[at : _class_end(pattern, at)]
        elif atom and (repeated := _REPEATED.match(pattern, at)):
            parts += (_with_bound(atom, repeated), repeated["how"])
            at, atom = repeated.end(), ""
            continue
        elif character == "(":
            opening = _OPENING.match(pattern, at)
            parts.append(opening.group() if opening else character)
            at = opening.end() if opening else at + 1
            atom = ""
            continue
        else:
            atom = character
        parts.append(atom)
        at += len(atom)
    return "".join(parts)


def _class_end(pattern: str, start: int) -> int:
    """Return where a character class ends."""
    at = start + 1 + (pattern[start + 1] == "^")
    at += pattern[at] == "]"
    while pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at + 1


def _with_bound(atom: str, repeated: re.Match[str]) -> str:
    """Return a repetition with an upper bound, unchanged where it has one."""
    if repeated["closed"]:
        return repeated["closed"]
    least = int(repeated["least"] or repeated["sign"] == "+")
    most = BLANKS_MAX if atom in _BLANK else GROUPS_MAX if atom == ")" else RUN_MAX
    return f"{{{least},{max(most, least)}}}"
