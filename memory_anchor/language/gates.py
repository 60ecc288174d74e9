"""Whether a text may match an expression at all, in a fiftieth of the time that looking for a match takes.

Cleaning asks some seventy expressions of each text, and nearly all find nothing. `gate` makes of an expression one that
matches whenever it does and needs no look around: edges and back references dropped, possessive signs taken as greedy,
long bounds as open ones. The automata behind `linear` answer that in one pass. What cannot
be translated has a gate that is always open. Rejected: a list of words for each expression, which has to be kept.
An automaton takes 2 ms to build, as long as looking through some twenty short texts takes without one: a gate is built
when so many were asked about, so a command that cleans one text builds none.
Invariant: where the expression matches, its gate is open (a test asks every one of them).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from memory_anchor.language.safe_regex import late, linear

UNGATED, UNGATED_CHARS = 16, 2_000
"""So many texts, none longer than this, are looked through before a gate is built."""
BOUND_MAX = 40
"""A longer repetition has no upper bound in a gate."""
_EDGES = ("(?=", "(?!", "(?<=", "(?<!")
_SPACE, _WORD = r"\s\x1c-\x1f", r"\p{L}\p{N}_"
"""What Python calls white space, and parts of words: with ² and ①, without marks alone."""
_REPEAT = late(r"\{(\d+),(\d*)\}|\{(\d+)\}")


def gate(*patterns: re.Pattern[str]) -> Callable[[str], bool]:
    """Return a function that says False only where none of these expressions matches anywhere in a text."""
    built: list[Callable[[str], bool]] = []
    left = UNGATED

    def may_match(text: str) -> bool:
        nonlocal left
        if not built and left > 0 and len(text) <= UNGATED_CHARS:
            left -= 1
            return True
        if not built:
            built.append(built_gate(*patterns))
        return built[0](text)

    return may_match


def built_gate(*patterns: re.Pattern[str]) -> Callable[[str], bool]:
    """Return a `gate` that is there at once."""
    try:
        source = "|".join(f"(?{_flags(one)}:{_without_edges(one.pattern)})" for one in patterns)
        matches = linear(source)
    except ValueError:
        return lambda _: True
    return lambda text: matches(text) or not (text.isascii() or _is_whole(text))


def _is_whole(text: str) -> bool:
    """Return whether a text has no half of a character, which no automaton reads."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _flags(pattern: re.Pattern[str]) -> str:
    return "".join(name for name, flag in (("i", re.I), ("m", re.M), ("s", re.S), ("x", re.X)) if pattern.flags & flag)


def _without_edges(source: str) -> str:
    """Return an expression of Rust's that matches wherever this one does. Raises ValueError: there is none."""
    parts: list[str] = []
    at, in_class = 0, False
    while at < len(source):
        sign = source[at]
        if sign == "\\":
            parts.append(_escape(source[at + 1], in_class=in_class))
            at += 2
        elif in_class:
            in_class = sign != "]"
            parts.append(f"\\{sign}" if sign in "[&~" else sign)
            at += 1
        elif sign == "[":
            in_class = True
            end = at + 1 + source.startswith("^", at + 1)
            literal = source.startswith("]", end)  # right after the opening it is a character
            parts.append(source[at:end] + ("\\]" if literal else ""))
            at = end + literal
        elif sign == "$":  # which also is before a last line break
            at += 1
        elif source.startswith(_EDGES, at):
            at = _end_of_group(source, at)
        elif source.startswith("(?(", at) or source.startswith("(?P=", at):
            raise ValueError("conditions have no gate")
        elif source.startswith("(?>", at):
            parts.append("(?:")
            at += 3
        elif source.startswith("(?P<", at):  # a name may stand once in Rust, also over several expressions
            parts.append("(?:")
            at = source.index(">", at) + 1
        elif sign == "{" and (repeat := _REPEAT.match(source, at)):
            low, high = repeat[1] or repeat[3], repeat[2] if repeat[3] is None else repeat[3]
            is_long = int(high or 0) > BOUND_MAX
            parts.append(f"{{{min(int(low), BOUND_MAX)},}}" if is_long else repeat.group())
            at = _after_possessive(source, repeat.end())
        elif sign in "*+?" and parts:
            parts.append(sign)
            at = _after_possessive(source, at + 1)
        else:
            parts.append(sign)
            at += 1
    return "".join(parts)


def _after_possessive(source: str, at: int) -> int:
    return at + 1 if source.startswith("+", at) else at


def _escape(sign: str, *, in_class: bool) -> str:
    if sign in "sw":
        named = _SPACE if sign == "s" else _WORD
        return named if in_class else f"[{named}]"
    if sign == "W":
        return f"[^{_WORD}]"
    if sign.isdigit() and sign != "0":
        return "(?s:.*)"  # what a group said before
    if sign in "bB":
        return "" if not in_class else "\\x08"
    if sign == "Z":
        return ""
    return sign if sign in "<>" else f"\\{sign}"


def _end_of_group(source: str, at: int) -> int:
    """Return where the group that begins here ends."""
    depth, opened, start = 0, -1, at
    while at < len(source):
        sign = source[at]
        if sign == "\\":
            at += 2
            continue
        if opened >= 0:
            is_first = at == opened + 1 + source.startswith("^", opened + 1)
            opened = opened if sign != "]" or is_first else -1
        elif sign == "[":
            opened = at
        elif sign == "(":
            depth += 1
        elif sign == ")":
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    raise ValueError(f"a group at {start} has no end")
