"""The words of pages: sentences in two languages, times as people read them, differences of two texts. Pure.

Stored text came from agents: `plain` spells out every control or invisible character, and the template escapes the
rest, so none of it is ever markup.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

from memory_anchor.base.json_values import Json, Record, record
from memory_anchor.base.lines import text_lines
from memory_anchor.base.terminal import visible, visible_lines
from memory_anchor.front.cli.review import word_diff
from memory_anchor.language.timespans import recency

WORDS = Path(__file__).parent / "words"
LANGUAGES: Mapping[str, str] = {"en": "English", "zh": "中文"}
CONVERSATION_CHARS = 60
SPANS = (("year", 31_536_000), ("month", 2_592_000), ("day", 86_400), ("hour", 3_600), ("minute", 60))


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """Return key -> sentence of one language; keys of nested tables are joined with dots."""
    return dict(_flat(tomllib.loads((WORDS / f"{language}.toml").read_text(encoding="utf-8"))))


@cache
def _shapes() -> Mapping[str, re.Pattern[str]]:
    """Return what a search may say, as expressions with the places to fill."""
    said = {key: re.escape(text) for key, text in catalogue("en").items() if key.startswith("said.")}
    return {key: re.compile(re.sub(r"\\{(\w{1,9})\\}", r"(?P<\1>.{1,999})", text)) for key, text in said.items()}


def _flat(table: Record, prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, inner in table.items():
        if isinstance(inner, dict):
            yield from _flat(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(inner)


def language_of(cookie: str, accepted: str) -> str:
    """Return the page's language: the reader's choice, else the browser's best known one.

    >>> language_of("", "fr, zh-CN;q=0.8, en;q=0.5"), language_of("en", "zh")
    ('zh', 'en')
    """
    if cookie in LANGUAGES:
        return cookie
    offered = []
    for part in accepted[:1_000].split(","):
        name, _, weight = part.strip().partition(";q=")
        try:
            offered.append((float(weight or 1), name.strip().split("-")[0].lower()))
        except ValueError:
            continue
    best = [name for weight, name in sorted(offered, key=lambda offer: -offer[0]) if name in LANGUAGES and weight]
    return best[0] if best else "en"


class Words:
    """The sentences of one page, and times in its reader's language. zone: IANA name."""

    def __init__(self, language: str, *, zone: str, now: datetime) -> None:
        self.language = language
        self.now = now
        self._known = catalogue(language)
        self._zone = ZoneInfo(zone or "UTC")

    def __call__(self, key: str, /, **filled: Json) -> str:
        """Return a sentence; `key_one` where `n` is 1. Raises KeyError: no such sentence."""
        if filled.get("n") == 1 and f"{key}_one" in self._known:
            key = f"{key}_one"
        return self._known[key].format(**filled) if filled else self._known[key]

    def word(self, group: str, name: Json, otherwise: str = "") -> str:
        """Return the word for a value of a fixed set; `otherwise` or the value itself where it has none."""
        return self._known.get(f"{group}.{name}", otherwise or str(name).replace("_", " "))

    def said(self, text: str) -> str:
        """Return what a search says in the reader's language; as it is where the catalogue has no such sentence."""
        found = ((key, shape.fullmatch(text)) for key, shape in _shapes().items())
        return next((self._known[key].format(**match.groupdict()) for key, match in found if match), text)

    def ago(self, iso: str) -> str:
        """Return how long ago or ahead an instant is, in the largest whole unit."""
        seconds = (self.now - instant(iso)).total_seconds()
        side = "ago" if seconds >= 0 else "ahead"
        for unit, size in SPANS:
            if abs(seconds) >= size:
                return self(f"{side}.{unit}", n=int(abs(seconds) // size))
        return self(f"{side}.now")

    def exact(self, iso: str) -> str:
        """Return an instant in the reader's zone, to the second, with the zone."""
        at = instant(iso).astimezone(self._zone)
        return f"{at:%Y-%m-%d %H:%M:%S} {at.tzname()}"

    def day(self, iso: str) -> str:
        """Return the calendar day of an instant in the reader's zone."""
        return f"{instant(iso).astimezone(self._zone):%Y-%m-%d}"

    def date(self, day: str) -> str:
        """Return a calendar day with its weekday; today and yesterday by name."""
        at = date.fromisoformat(day)
        weekday, month = self(f"weekday.{at.isoweekday()}"), self(f"month.{at.month}")
        sentence = self("form.date", day=at.day, year=at.year, weekday=weekday, month=month)
        back = (date.fromisoformat(self.day(self.now.isoformat())) - at).days
        return self(f"form.day_{back}", date=sentence) if back in (0, 1) else sentence

    def conversation(self, memories: Sequence[Record]) -> str:
        """Return what a conversation is called: who led it, on which day, and what was written of it first."""
        first = min(memories, key=lambda memory: instant(str(memory.get("when") or memory["recorded_at"])))
        scope, day = record(first["scope"]), self.day(str(first.get("when") or first["recorded_at"]))
        if not scope.get("conversation"):
            return self("timeline.no_talk")
        agent, words = str(scope.get("agent") or ""), oneline(first["content"], CONVERSATION_CHARS)
        return " · ".join(filter(None, (agent, self.date(day), words)))

    def clock(self, iso: str) -> str:
        return f"{instant(iso).astimezone(self._zone):%H:%M}"

    def size(self, count: int) -> str:
        """Return a size in bytes, rounded, with its unit."""
        for unit in ("B", "kB", "MB"):
            if count < 1_000:
                return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
            count /= 1_000  # type: ignore[assignment]
        return f"{count:.1f} GB"


def instant(iso: str) -> datetime:
    """Return an instant; one without a zone is UTC."""
    at = datetime.fromisoformat(iso)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def proposal_diff(text: str) -> list[list[tuple[str, str]]]:
    """Return the lines of a unified diff, each as (kind, text) parts; a replaced line is compared word by word."""
    lines: list[list[tuple[str, str]]] = []
    gone: list[str] = []
    for line in [*(line for line in text_lines(text) if not line.startswith(("---", "+++", "@@"))), " "]:
        if line.startswith("-"):
            gone.append(line[1:])
        elif line.startswith("+") and gone:
            lines.append(word_diff(gone.pop(0), line[1:]))
        else:
            lines += [[("gone", old)] for old in gone]
            gone = []
            lines.append([("new" if line.startswith("+") else "same", line[1:])])
    return lines[:-1]


def plain(text: Json) -> str:
    """Return stored text with control and invisible characters spelled out; line breaks stay."""
    return visible_lines(str(text))


def oneline(text: Json, most: int = 0) -> str:
    """Return stored text as one line, cut with an ellipsis to `most` characters."""
    line = visible(" ".join(str(text).split()))
    return line if not most or len(line) <= most else f"{line[: most - 1]}…"


def told(value: Json) -> str:
    """Return a field's value as a reader writes it: a list with commas, nothing as a dash."""
    return ", ".join(map(str, value)) or "–" if isinstance(value, list) else str(value)


def pages_of(count: int, each: int, at: int) -> list[int]:
    """Return the numbers of the pages that a page links to: the first, the last and those beside it; 0 for a gap.

    >>> pages_of(90, 10, 5), pages_of(25, 20, 1), pages_of(3, 20, 1)
    ([1, 0, 4, 5, 6, 0, 9], [1, 2], [])
    """
    last = -(-count // each)
    near = [number for number in range(1, last + 1) if number in (1, last) or abs(number - at) <= 1]
    gaps = [number for one, after in pairwise(near) for number in ((one, 0) if after > one + 1 else (one,))]
    return [*gaps, near[-1]] if len(near) > 1 else []


def by_day(memories: Sequence[Record], words: Words) -> list[tuple[str, list[tuple[str, list[Record]]]]]:
    """Return days, each with its conversations and their memories, all in the order given."""
    days: dict[str, dict[str, list[Record]]] = {}
    for memory in memories:
        conversations = days.setdefault(words.day(str(memory.get("when") or memory["recorded_at"])), {})
        conversations.setdefault(str(record(memory["scope"]).get("conversation", "")), []).append(memory)
    return [(day, list(conversations.items())) for day, conversations in days.items()]


def newest_first(memories: Sequence[Record], now: datetime) -> list[Record]:
    """Return what happened, newest first, then what is planned for later, soonest first."""

    def key(memory: Record) -> tuple[bool, float]:
        return recency(instant(str(memory.get("when") or memory["recorded_at"])), now)

    return sorted(memories, key=key, reverse=True)
