"""Episodes: where one topic of a conversation ends and the next begins, so that each memory unit is whole.

Two channels, as in HiMem. Topic shift: how far what follows a point is from what was said before it (means of a few
messages, so that one odd remark is no new topic). Surprise: how unusual that is in this conversation, in standard
deviations. A boundary is a peak of the shift that is clear by itself, or smaller and surprising. All cosines are
centred: on raw e5 cosines, which lie between 0.75 and 0.95 whatever is said, the 0.7 and 0.8 of the design documents
would never fire or always fire. The thresholds were chosen on one half of tests/corpora/topics.txt
(`scripts/bench_writepath.py`, docs/write-path.md).

Rejected: a fixed number of turns (cuts topics in two), and comparing each message with a running mean (F1 0.72 where
this has more, docs/write-path.md). Invariant: episodes cover the conversation, in order, without
gaps or overlap, each with 1 to `MAX_TURNS` messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from memory_anchor.errors import BadInput
from memory_anchor.ingest.messages import Message

if TYPE_CHECKING:
    from memory_anchor.ports import Matrix

MIN_TURNS, MAX_TURNS = 2, 40
SHORT_CHARS = 12
"""Shorter messages ("yes", "好的") say nothing about the topic and never open an episode."""


@dataclass(frozen=True, slots=True)
class Boundaries:
    """shift: 1 - cosine between what was said before and after a point (0 to 2) that alone ends an episode there.

    least_shift: the least that ends one when it is also `surprise` standard deviations above the conversation's usual.
    window: messages compared on each side.
    """

    shift: float = 0.9
    least_shift: float = 0.65
    surprise: float = 0.3
    window: int = 2


DEFAULT_BOUNDARIES = Boundaries()


@dataclass(frozen=True, slots=True)
class Episode:
    """Messages `start` to `end` (exclusive). why: what ended it. shift, surprise: as measured at its end."""

    start: int
    end: int
    why: Literal["topic", "surprise", "length", "end"]
    shift: float = 0.0
    surprise: float = 0.0

    def __len__(self) -> int:
        return self.end - self.start


def episodes(
    messages: Sequence[Message], vectors: Matrix, *, boundaries: Boundaries = DEFAULT_BOUNDARIES
) -> list[Episode]:
    """Return the episodes of a conversation.

    vectors: one centred, L2-normalised row a message, (n, dimensions). Raises BadInput: another number of rows.
    """
    import numpy as np

    if len(messages) != len(vectors):
        raise BadInput(f"{len(vectors)} vectors for {len(messages)} messages; one row a message is needed.")
    if not messages:
        return []
    shifts = _shifts(vectors, boundaries.window)
    usual, spread = float(np.mean(shifts or [0.0])), float(np.std(shifts or [0.0])) or 1.0
    found: list[Episode] = []
    start = 0
    for place in range(1, len(messages)):
        shift = shifts[place - 1]
        surprise = (shift - usual) / spread
        why: Literal["topic", "surprise", "length"] | None = None
        if place - start >= MAX_TURNS:
            why = "length"
        elif place - start >= MIN_TURNS and _opens(messages[place]) and _peak(shifts, place - 1):
            if shift >= boundaries.shift:
                why = "topic"
            elif shift >= boundaries.least_shift and surprise >= boundaries.surprise:
                why = "surprise"
        if why is not None:
            found.append(Episode(start, place, why, round(shift, 3), round(surprise, 3)))
            start = place
    found.append(Episode(start, len(messages), "end"))
    return found


def _shifts(vectors: Matrix, window: int) -> list[float]:
    """Return, for each point between two messages, 1 - cosine of the mean before it and the mean after it."""
    import numpy as np

    found = []
    for place in range(1, len(vectors)):
        before = vectors[max(0, place - window) : place].sum(axis=0)
        after = vectors[place : place + window].sum(axis=0)
        found.append(1.0 - float(before @ after / (np.linalg.norm(before) * np.linalg.norm(after) + 1e-9)))
    return found


def _peak(shifts: Sequence[float], at: int) -> bool:
    """Return whether the shift is the largest within `MIN_TURNS` points: a change is felt on both sides of it."""
    return shifts[at] >= max(shifts[max(0, at - MIN_TURNS + 1) : at + MIN_TURNS])


def _opens(message: Message) -> bool:
    """Return whether a message may open an episode: no tool's answer, no mere yes or no."""
    return message.role != "tool" and len(message.content.strip()) >= SHORT_CHARS * _width(message)


def _width(message: Message) -> float:
    """Return the size of a character against a Latin one: a Chinese one says about twice as much."""
    return 0.5 if any("\u4e00" <= character <= "\u9fff" for character in message.content[:40]) else 1.0
