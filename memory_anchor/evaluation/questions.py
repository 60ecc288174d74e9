"""What an evaluation is made of: memories to store, questions to ask, and which memories answer each.

A `Case` is one store. Its memories go in by the same door an agent uses and in the order they were learned; its
questions are asked at one instant, so that "last week" means the same on every day it is run. The bundled case is our
own writing (`data/`), a year in the life of a small team, Chinese and English in one store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from memory_anchor.errors import BadInput
from memory_anchor.json_values import Json
from memory_anchor.language.terms import is_chinese
from memory_anchor.model import LAYER_OF_TYPE, PLAIN_IMPORTANCE, Layer, MemoryType

BUNDLED = "bundled"
LANGUAGES = ("en", "zh")
UNANSWERABLE = "no answer"
"""The category of questions to which nothing is the right answer."""
DATA = Path(__file__).parent / "data"
LEARNED_AT = time(9, 0, tzinfo=UTC)
SERIES_STEP = timedelta(days=3)
TOLD = (3, 10)
"""How often each series is told, in a store each."""


@dataclass(frozen=True, slots=True)
class Material:
    """One memory to be stored. name: what gold refers to; on: when it happened and was learned, aware UTC."""

    name: str
    text: str
    on: datetime
    type: MemoryType = MemoryType.EVENT
    key: str = ""
    who: tuple[str, ...] = ()
    where: str = ""
    conversation: str = ""
    tags: tuple[str, ...] = ()
    importance: float = PLAIN_IMPORTANCE

    @property
    def layer(self) -> Layer:
        return LAYER_OF_TYPE[self.type]

    def fields(self) -> dict[str, Json]:
        """Return the fields of the request that stores it."""
        said = {"content": self.text, "type": self.type.value, "key": self.key, "tags": list(self.tags)}
        when = {"when": self.on.isoformat(), "where": self.where, "who": list(self.who)}
        given = said | (when if self.layer is Layer.EVENT_LOG else {})
        return {"importance": self.importance, **{name: value for name, value in given.items() if value}}


@dataclass(frozen=True, slots=True)
class Question:
    """gold: names of the memories that answer it, all of them; none when nothing does."""

    id: str
    text: str
    gold: frozenset[str]
    category: str
    language: str
    before: str = ""
    """What the user said before it in the same conversation."""

    @property
    def answerable(self) -> bool:
        return bool(self.gold)


@dataclass(frozen=True, slots=True)
class Case:
    """One store and what is asked of it.

    now: when the questions are asked. constitution: entry id -> text of L0. operations: file name -> text of L4; a
    question's gold names an entry or a file by that same id.
    """

    name: str
    memories: tuple[Material, ...]
    questions: tuple[Question, ...]
    now: datetime
    constitution: Mapping[str, str] = field(default_factory=dict)
    operations: Mapping[str, str] = field(default_factory=dict)


@cache
def bundled() -> Case:
    """Return our own case: at least 50 questions in each language over one store."""
    world = _yaml("memories.yaml")
    memories = tuple(_material(entry) for entry in world["memories"])
    questions = []
    for language in LANGUAGES:
        for number, entry in enumerate(_yaml(f"questions_{language}.yaml"), 1):
            questions.append(
                Question(
                    id=f"{language}-{number:02d}",
                    text=entry["ask"],
                    gold=frozenset(entry["gold"]),
                    category=entry["about"],
                    language=language,
                )
            )
    case = Case(
        BUNDLED,
        memories,
        tuple(questions),
        datetime.fromisoformat(world["now"]),
        constitution=world["constitution"],
        operations=world["operations"],
    )
    check(case)
    return case


@cache
def week() -> Case:
    """Return our own week: sixty memories in two languages, asked in both, procedures of L4 among the answers."""
    world = _yaml("week.yaml")
    asked = tuple(
        Question(
            id=f"week-{number:02d}",
            text=entry["ask"],
            gold=frozenset(entry["gold"]),
            category=entry["about"],
            language="zh" if is_chinese(entry["ask"]) else "en",
            before=entry.get("before", ""),
        )
        for number, entry in enumerate(world["questions"], 1)
    )
    memories = tuple(_material(entry) for entry in world["memories"])
    case = Case("week", memories, asked, datetime.fromisoformat(world["now"]), operations=world["operations"])
    check(case)
    return case


@dataclass(frozen=True, slots=True)
class Series:
    """What happens again and again. ask: whether the newest or the oldest is meant, and the question."""

    id: str
    part: str
    type: MemoryType
    text: str
    values: tuple[str, ...]
    ask: tuple[tuple[str, str], ...]

    @property
    def language(self) -> str:
        return self.id[:2]

    def memories(self, versions: int, *, before: datetime) -> tuple[Material, ...]:
        """Return the first `versions` values as memories, oldest first, the newest a day before `before`."""
        last = before - timedelta(days=1)
        return tuple(
            Material(
                f"{self.id}-{place}",
                self.text.format(value),
                last - SERIES_STEP * (versions - 1 - place),
                self.type,
            )
            for place, value in enumerate(self.values[:versions])
        )


@cache
def series() -> tuple[Series, ...]:
    """Return our own series, twenty of them with two questions each."""
    return tuple(
        Series(
            one["id"],
            one["part"],
            MemoryType(one["type"]),
            one["text"],
            tuple(map(str, one["values"])),
            tuple((end, ask) for end, ask in one["ask"]),
        )
        for one in _yaml("recency.yaml")
    )


@cache
def repeated(versions: int) -> Case:
    """Return a case of all series, each told so often beside the bundled memories."""
    case = bundled()
    told = {one: one.memories(versions, before=case.now) for one in series()}
    asked = [
        Question(
            id=f"{one.id}-{place}",
            text=ask,
            gold=frozenset({told[one][-1 if end == "newest" else 0].name}),
            category=end,
            language=one.language,
        )
        for one in told
        for place, (end, ask) in enumerate(one.ask, 1)
    ]
    every = sorted((*case.memories, *(memory for group in told.values() for memory in group)), key=lambda m: m.on)
    made = Case(f"newest of {versions}", tuple(every), tuple(asked), case.now)
    check(made)
    return made


def check(case: Case) -> None:
    """Raise BadInput where a question's gold names what the case does not hold, or a name stands twice."""
    names = [memory.name for memory in case.memories] + [*case.constitution, *case.operations]
    known = set(names)
    if len(known) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise BadInput(f"case {case.name} has two memories named {twice[0]!r}; allowed is one each")
    for question in case.questions:
        strange = sorted(question.gold - known)
        if strange:
            raise BadInput(f"question {question.id} of case {case.name} wants {strange[0]!r}, which it does not hold")


def _material(entry: Mapping[str, Any]) -> Material:
    kind = MemoryType(entry.get("type", "event"))
    return Material(
        name=entry["id"],
        text=entry["text"],
        on=_instant(entry["at"]),
        type=kind,
        key=entry.get("key", ""),
        who=tuple(entry.get("who", ())),
        where=entry.get("where", ""),
        conversation=entry.get("in", ""),
        tags=tuple(entry.get("tags", ())),
        importance=float(entry.get("importance", PLAIN_IMPORTANCE)),
    )


def _instant(value: date | str) -> datetime:
    """Return a date at nine o'clock UTC, an ISO instant as it is."""
    return datetime.fromisoformat(value) if isinstance(value, str) else datetime.combine(value, LEARNED_AT)


def _yaml(name: str) -> Any:
    import yaml

    return yaml.safe_load((DATA / name).read_text(encoding="utf-8"))
