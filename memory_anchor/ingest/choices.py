"""What somebody usually chooses against what the tool calls of a conversation show: a prediction and its gap.

A habit is a line of the profile that says what is usual and names the value; a choice is a short value that a call was
given by name. Both are about the same thing where they share a word, or are near in meaning (the habit may be Chinese
and the tool English). Rejected: a memory for each call; five calls of one turn are one change of taste.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_anchor.ingest.messages import Message
from memory_anchor.language.bounded import bounded

if TYPE_CHECKING:
    from memory_anchor.ports import Matrix

GREATEST_GAP = 0.6
LINE_WIDTH = 300
HABITS_MAX = 24
"""Habits, and choices of a conversation, that are compared."""
ABOUT_THE_SAME, LEAD = 0.34, 0.1
"""Centred cosine from which a habit and a choice are about the same thing, and how far the next one lies behind
(a Chinese habit over English calls: .35 against .17; unrelated ones reach .33, close together)."""
_HABIT = bounded(
    r"(?<![a-z])(?:usually|normally|always|mostly|often|prefers?|likes?|loves?|favou?rite|tends)(?![a-z])"
    r"|通常|一般|总是|平时|经常|常用|喜欢|偏好|偏爱|习惯|最爱",
    re.I,
)
_CHOICE = re.compile(r"[^\s/\\{}<>=]{2,24}(?: [^\s/\\{}<>=]{2,24}){0,2}")
_VALUE = bounded(r"[A-Za-z][\w+#]*(?:[.-][\w+#]+)*|(?<=[「“'\"])[^「」“”'\"]{1,24}(?=[」”'\"])")


@dataclass(frozen=True, slots=True)
class OtherChoice:
    """A habit, and what was chosen instead: argument `name` of a tool was given `value`. size: of the gap, 0 to 1."""

    habit: str
    tool: str
    name: str
    value: str
    size: float
    seq: int


def deviation(other: int, expected: int) -> float:
    """Return how far counts of something else lie from what was expected: half of the greatest where both are alike."""
    return round(GREATEST_GAP * other / (other + expected), 2)


def other_choices(
    messages: Sequence[Message], known: Sequence[str], rows: Callable[[Sequence[str]], Matrix | None] | None
) -> list[OtherChoice]:
    """Return for each habit among the known texts the choice that deviates from it the most clearly, if any."""
    habits = [text for text in known if _HABIT.search(text) and len(text) <= LINE_WIDTH][:HABITS_MAX]
    chosen, seqs = _choices(messages) if habits else (Counter[tuple[str, str, str]](), {})
    options = list(chosen)[:HABITS_MAX]
    if not options:
        return []
    told = [" ".join([*_parts(tool), *_parts(name), value]) for tool, name, value in options]
    made = rows([*habits, *told]) if rows is not None else None
    found = []
    for at, habit in enumerate(habits):
        usual = {word.lower() for word in _VALUE.findall(_HABIT.split(habit, maxsplit=1)[-1])}
        as_usual = {one for one in options if one[2].lower() in usual}
        near: list[tuple[float, tuple[str, str, str]]] = []
        for number, one in enumerate(options if usual else ()):
            if one in as_usual:
                continue
            shares = {*_parts(one[0]), *_parts(one[1])} & usual or any(one[:2] == other[:2] for other in as_usual)
            cosine = float(made[at] @ made[len(habits) + number]) if made is not None else 0.0
            near.append((1.0 if shares else cosine, one))
        near.sort(key=lambda pair: -pair[0])
        leads = len(near) < 2 or near[0][0] - near[1][0] >= LEAD or near[0][0] == 1.0
        if near and near[0][0] >= ABOUT_THE_SAME and leads:
            best = near[0][1]
            size = deviation(chosen[best], sum(chosen[one] for one in as_usual if one[:2] == best[:2]))
            found.append(OtherChoice(habit, *best, size, seqs[best]))
    return found


def _choices(messages: Sequence[Message]) -> tuple[Counter[tuple[str, str, str]], dict[tuple[str, str, str], int]]:
    """Return (tool, argument, value) with how often and where last."""
    chosen: Counter[tuple[str, str, str]] = Counter()
    seqs: dict[tuple[str, str, str], int] = {}
    for message in messages:
        for call in message.tool_calls:
            for name, value in call.arguments.items():
                if isinstance(value, str) and _CHOICE.fullmatch(value):
                    choice = (call.name, name, value)
                    chosen[choice] += 1
                    seqs[choice] = message.seq
    return chosen, seqs


def _parts(name: str) -> list[str]:
    return [word for word in re.split(r"[_\W]+", name.lower()) if word]
