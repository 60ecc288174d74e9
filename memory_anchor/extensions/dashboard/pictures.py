"""Pictures of time and links as numbers that templates draw as SVG. Pure; a table beside each says the same in words.

Rejected: a charting script, which shows nothing without JavaScript, nothing to a screen reader, and weighed 24 kB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import cos, floor, log10, pi, sin

WIDTH, HEIGHT = 720, 150
LEFT, BOTTOM, TOP = 56, 24, 16
"""Room for the labels of the axes, in the units of the picture's own coordinates."""
TICKS = 4
DAY_LABELS, DAY_CHARS = 6, 5
"""Days that are named below a picture, as month and day."""
UNITS = ((1_000_000, "M"), (1_000, "k"))
AROUND_MAX = 12
"""Memories drawn around one; the list beside it has all."""
GRAPH_WIDTH, GRAPH_HEIGHT, GRAPH_TEXT = 720, 360, 44
CHAIN_STEP = 56
MARK_WIDTH = 44.0
"""Of versions nearer than this one mark is drawn, wide enough for `10–20`."""


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Bar:
    """series: its number, from 0. label, value: what it counts, and how many."""

    x: float
    y: float
    width: float
    height: float
    series: int
    label: str
    value: int


@dataclass(frozen=True, slots=True)
class Bars:
    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    names: tuple[Tick, ...]


@dataclass(frozen=True, slots=True)
class LifeMark:
    """A moment of a memory's life. kind: `version`, `used` or `now`."""

    x: float
    label: str
    kind: str


@dataclass(frozen=True, slots=True)
class Life:
    """spans: (from, to, status) in turn. curve: the points of a polyline, the strength to come."""

    spans: tuple[tuple[float, float, str], ...]
    marks: tuple[LifeMark, ...]
    curve: str
    ticks: tuple[Tick, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A linked memory around the middle. anchor: of its text, so that it stays within the picture."""

    x: float
    y: float
    id: str
    kind: str
    text: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Graph:
    """top, height: of what is drawn, in the picture's own coordinates."""

    nodes: tuple[Node, ...]
    top: int
    height: int


@dataclass(frozen=True, slots=True)
class Chain:
    """Memories from the top down, each at its y, over this height."""

    places: tuple[Tick, ...]
    height: int


def ticks(most: float) -> list[int]:
    """Return round numbers from 0 to at least `most`, evenly spaced, at most six.

    >>> ticks(0), ticks(1), ticks(7), ticks(100_000)
    ([0, 1], [0, 1], [0, 2, 4, 6, 8], [0, 50000, 100000])
    """
    wanted = max(1.0, most) / TICKS
    power = 10.0 ** floor(log10(wanted)) if wanted >= 1 else 1.0
    step = next(int(power * factor) for factor in (1, 2, 5, 10) if power * factor >= wanted)
    return list(range(0, int(-(-max(1.0, most) // step)) * step + 1, step))


def _short(count: int) -> str:
    """Return a round number in four signs: 2000, 100k, 5M."""
    return next(
        (f"{count // unit}{sign}" for unit, sign in UNITS if count >= 10 * unit and not count % unit), str(count)
    )


def _height(value: float, most: float) -> float:
    return round((HEIGHT - TOP - BOTTOM) * value / most, 1)


def bars(rows: Sequence[tuple[str, Sequence[int]]]) -> Bars:
    """Return a bar for each count of each row (label, counts), side by side, over an axis from 0."""
    steps = ticks(max((count for _, counts in rows for count in counts), default=0))
    each, floor_at = (WIDTH - LEFT) / max(1, len(rows)), HEIGHT - BOTTOM
    drawn = []
    for at, (label, counts) in enumerate(rows):
        width = each * 0.8 / max(1, len(counts))
        for series, count in enumerate(counts):
            height = _height(count, steps[-1])
            x = LEFT + at * each + each * 0.1 + series * width
            drawn.append(Bar(round(x, 1), floor_at - height, round(width, 1), height, series, label, count))
    every = -(-len(rows) // DAY_LABELS) or 1
    names = [
        Tick(round(LEFT + (at + 0.5) * each, 1), row[0][-DAY_CHARS:]) for at, row in enumerate(rows) if at % every == 0
    ]
    levels = [Tick(floor_at - _height(step, steps[-1]), _short(step)) for step in steps]
    return Bars(tuple(drawn), tuple(levels), tuple(names))


def life(
    versions: Sequence[tuple[datetime, str, str]],
    uses: Sequence[tuple[datetime, str]],
    strength: Sequence[tuple[int, int]],
    now: datetime,
) -> Life:
    """Return one memory's life: what it was from when on, when it was used, and its strength from now on.

    versions: (from, status, label), the oldest first. uses: (at, label). strength: (days from now, 0 to 100).
    """
    start = min((at for at, _, _ in versions), default=now)
    past, ahead = (
        max(1.0, (now - start).total_seconds() / 86_400),
        float(max((days for days, _ in strength), default=1)),
    )
    begin = LEFT + MARK_WIDTH / 2
    middle = begin + (WIDTH - begin) * min(0.7, max(0.3, past / (past + ahead)))

    def x_of(at: datetime) -> float:
        days = (at - start).total_seconds() / 86_400
        return round(begin + (middle - begin) * min(1.0, max(0.0, days / past)), 1)

    edges = [*(x_of(at) for at, _, _ in versions), round(middle, 1)]
    spans = tuple((edges[n], edges[n + 1], status) for n, (_, status, _) in enumerate(versions))
    marks = [
        *_together([(x_of(at), label) for at, _, label in versions]),
        *(LifeMark(x_of(at), label, "used") for at, label in uses),
        LifeMark(round(middle, 1), "", "now"),
    ]
    curve = " ".join(
        f"{middle + (WIDTH - middle) * days / ahead:.1f},{HEIGHT - BOTTOM - _height(value, 100):.1f}"
        for days, value in strength
    )
    levels = tuple(Tick(HEIGHT - BOTTOM - _height(value, 100), str(value)) for value in (0, 50, 100))
    return Life(spans, tuple(marks), curve, levels)


def _together(versions: Sequence[tuple[float, str]]) -> list[LifeMark]:
    """Return a mark for each version, one for those that would lie over each other: "2–4"."""
    marks: list[LifeMark] = []
    for x, label in versions:
        if marks and x - marks[-1].x < MARK_WIDTH:
            first = marks[-1].label.partition("–")[0]
            marks[-1] = LifeMark(marks[-1].x, f"{first}–{label}", "version")
        else:
            marks.append(LifeMark(x, label, "version"))
    return marks


def graph(links: Sequence[Mapping[str, str]]) -> Graph:
    """Return the linked memories around one, the first at the top, clockwise. links: each with id, kind and text."""
    shown = links[:AROUND_MAX]
    nodes = []
    for at, link in enumerate(shown):
        angle = 2 * pi * at / len(shown) - pi / 2
        x, y = GRAPH_WIDTH / 2 + 200 * cos(angle), GRAPH_HEIGHT / 2 + 145 * sin(angle)
        side = cos(angle)
        anchor = "middle" if abs(side) < 0.2 else "start" if side > 0 else "end"
        nodes.append(Node(round(x, 1), round(y, 1), link["id"], link["kind"], link["text"], anchor))
    rows = [GRAPH_HEIGHT / 2, *(node.y for node in nodes)]
    top = min(rows) - GRAPH_TEXT
    return Graph(tuple(nodes), round(top), round(max(rows) + GRAPH_TEXT - top))


def chain(names: Sequence[str]) -> Chain:
    """Return where memories that replaced each other stand, the oldest at the top.

    >>> [place.at for place in chain(["a", "b"]).places], chain(["a", "b"]).height
    ([24, 80], 112)
    """
    return Chain(tuple(Tick(24 + at * CHAIN_STEP, name) for at, name in enumerate(names)), len(names) * CHAIN_STEP)
