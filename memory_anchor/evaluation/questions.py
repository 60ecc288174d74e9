"""Questions with known answers: the bundled ones, and those of LoCoMo and LongMemEval files.

What an evaluation is made of: memories to store, questions to ask, and which memories answer each.

A `Case` is one store. Its memories go in by the same door an agent uses and in the order they were learned; its
questions are asked at one instant, so that "last week" means the same on every day it is run. The bundled case is our
own writing (`data/`), a year in the life of a small team, Chinese and English in one store.

LoCoMo and LongMemEval files, given by path, as cases. Nothing of either is shipped or special-cased.

LoCoMo (Maharana et al., 2024): one case a conversation, its turns as dated events, gold are the turns its evidence
names; categories 1 to 4, because the fifth has no answer to find. LongMemEval (Wu et al., 2025): one case a question,
gold are the turns marked `has_answer`; abstention questions have none and must stay unanswered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from memory_anchor.errors import BadInput
from memory_anchor.json_values import Json, items, record, records
from memory_anchor.language.terms import is_chinese
from memory_anchor.model import LAYER_OF_TYPE, Layer, MemoryType

BUNDLED = "bundled"
LANGUAGES = ("en", "zh")
UNANSWERABLE = "no answer"
"""The category of questions to which nothing is the right answer."""
DATA = Path(__file__).parent / "data"
LEARNED_AT = time(9, 0, tzinfo=UTC)
SERIES_STEP = timedelta(days=3)
OWN_FIELDS = frozenset(("id", "text", "at", "type", "key", "who", "where", "in", "tags"))
"""What a file says of a memory in words of its own."""
TOLD = (3, 10)
"""How often each series is told, in a store each."""


@dataclass(frozen=True, slots=True)
class CaseMemory:
    """One memory to be stored. name: what gold refers to; on: when it happened and was learned, aware UTC.

    more: further fields of the request that stores it, as they stand in the file.
    """

    name: str
    text: str
    on: datetime
    type: MemoryType = MemoryType.EVENT
    key: str = ""
    who: tuple[str, ...] = ()
    where: str = ""
    conversation: str = ""
    tags: tuple[str, ...] = ()
    more: Mapping[str, Json] = field(default_factory=dict)

    @property
    def layer(self) -> Layer:
        return LAYER_OF_TYPE[self.type]

    def fields(self) -> dict[str, Json]:
        """Return the fields of the request that stores it."""
        said = {"content": self.text, "type": self.type.value, "key": self.key, "tags": list(self.tags)}
        when = {"when": self.on.isoformat(), "where": self.where, "who": list(self.who)}
        given = said | (when if self.layer is Layer.EVENT_LOG else {})
        return {**self.more, **{name: value for name, value in given.items() if value}}


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
    memories: tuple[CaseMemory, ...]
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
    check_case(case)
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
    check_case(case)
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

    def memories(self, versions: int, *, before: datetime) -> tuple[CaseMemory, ...]:
        """Return the first `versions` values as memories, oldest first, the newest a day before `before`."""
        last = before - timedelta(days=1)
        return tuple(
            CaseMemory(
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
    check_case(made)
    return made


def check_case(case: Case) -> None:
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


def _material(entry: Mapping[str, Any]) -> CaseMemory:
    kind = MemoryType(entry.get("type", "event"))
    return CaseMemory(
        name=entry["id"],
        text=entry["text"],
        on=_instant(entry["at"]),
        type=kind,
        key=entry.get("key", ""),
        who=tuple(entry.get("who", ())),
        where=entry.get("where", ""),
        conversation=entry.get("in", ""),
        tags=tuple(entry.get("tags", ())),
        more={name: value for name, value in entry.items() if name not in OWN_FIELDS},
    )


def _instant(value: date | str) -> datetime:
    """Return a date at nine o'clock UTC, an ISO instant as it is."""
    return datetime.fromisoformat(value) if isinstance(value, str) else datetime.combine(value, LEARNED_AT)


def _yaml(name: str) -> Any:
    import yaml

    return yaml.safe_load((DATA / name).read_text(encoding="utf-8"))


FILE_BYTES_MAX = 4 << 30
TEXT_CHARS_MAX = 8_000
"""What one memory may hold; a longer turn is cut there."""
SESSIONS_MAX = 1_000
LOCOMO_CATEGORIES: Mapping[int, str] = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
_LOCOMO_DATE = re.compile(r"(\d{1,2}):(\d{1,2})\s{0,8}([ap]m) on (\d{1,2}) (\w{1,20}),? (\d{4})")
_LONG_DATE = re.compile(r"(\d{4})/(\d{2})/(\d{2})(?: \(\w{1,20}\))?(?: (\d{2}):(\d{2}))?")
_EVIDENCE = re.compile(r"D(\d{1,6}):(\d+)")


def locomo(path: Path, *, stores: int | None = None) -> Iterator[Case]:
    """Yield one case a conversation, the first `stores` of them. Raises BadInput: not LoCoMo, or no question in it."""
    yield from _with_questions(path, "LoCoMo", _conversations(path, stores))


def _conversations(path: Path, stores: int | None) -> Iterator[Case]:
    for number, sample in enumerate(_list(path, "LoCoMo", needs=("conversation", "qa"))):
        if stores is not None and number >= stores:
            return
        yield _conversation(path, sample, str(sample.get("sample_id", number)))


def _conversation(path: Path, sample: Mapping[str, Json], name: str) -> Case:
    talk = record(sample["conversation"])
    turns: list[CaseMemory] = []
    for number in range(1, SESSIONS_MAX):
        if f"session_{number}" not in talk:
            continue
        at = _locomo_date(path, str(talk.get(f"session_{number}_date_time", "")))
        turns += [_turn(turn, at, conversation=str(number)) for turn in records(talk[f"session_{number}"])]
    held = {turn.name for turn in turns}
    questions = []
    for place, asked in enumerate(records(sample["qa"])):
        kind = asked.get("category")
        category = LOCOMO_CATEGORIES.get(kind) if isinstance(kind, int) else None
        named = _EVIDENCE.findall(" ".join(map(str, items(asked.get("evidence")))).replace("D:", "D"))
        gold = frozenset(f"D{int(session)}:{int(turn)}" for session, turn in named) & held
        if category and gold:
            questions.append(Question(f"{name}#{place}", str(asked["question"]), gold, category, "en"))
    now = max((turn.on for turn in turns), default=datetime.now(UTC)) + timedelta(days=1)
    return Case(name, tuple(turns), tuple(questions), now)


def _turn(turn: Mapping[str, Json], at: datetime, *, conversation: str) -> CaseMemory:
    speaker = str(turn["speaker"])
    photo = f" [shared a photo: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
    text = f"[{at.day} {at:%B %Y}] {speaker}: {str(turn['text']).strip()}{photo}"
    return CaseMemory(str(turn["dia_id"]), text[:TEXT_CHARS_MAX], at, who=(speaker,), conversation=conversation)


def _locomo_date(path: Path, text: str) -> datetime:
    found = _LOCOMO_DATE.search(text)
    if found is None:
        raise BadInput(f"{path} has the session date {text[:40]!r}; allowed are dates like '1:56 pm on 8 May, 2023'")
    hour, minute, half, day, month, year = found.groups()
    at = datetime.strptime(f"{day} {month} {year}", "%d %B %Y").replace(tzinfo=UTC)
    return at.replace(hour=int(hour) % 12 + (12 if half == "pm" else 0), minute=int(minute))


def longmemeval(path: Path, *, stores: int | None = None) -> Iterator[Case]:
    """Yield one case a question, the first `stores` of them. Raises BadInput: not LongMemEval, or no question in it."""
    yield from _with_questions(path, "LongMemEval", _haystacks(path, stores))


def _haystacks(path: Path, stores: int | None) -> Iterator[Case]:
    needs = ("question_id", "question", "haystack_sessions", "haystack_session_ids", "haystack_dates")
    for number, sample in enumerate(_list(path, "LongMemEval", needs=needs)):
        if stores is not None and number >= stores:
            return
        yield _haystack(path, sample)


def _haystack(path: Path, sample: Mapping[str, Json]) -> Case:
    turns, gold = [], set()
    parts = (items(sample[f"haystack_{part}"]) for part in ("session_ids", "dates", "sessions"))
    for place, (session, day, said) in enumerate(zip(*parts, strict=False)):
        at = _long_date(path, str(day))
        for number, turn in enumerate(records(said)):
            text = str(turn.get("content", "")).strip()[:TEXT_CHARS_MAX]
            if not text:
                continue
            # The same session may stand twice in one haystack, so its place is part of the name.
            name = f"{place}:{session}_{number}"
            turns.append(CaseMemory(name, text, at, who=(str(turn["role"]),), conversation=f"{place}:{session}"))
            if turn.get("has_answer"):
                gold.add(name)
    name = str(sample["question_id"])
    abstains = name.endswith("_abs")
    question = Question(
        name,
        str(sample["question"]),
        frozenset() if abstains else frozenset(gold),
        UNANSWERABLE if abstains else str(sample.get("question_type", "all")),
        "en",
    )
    asked = sample.get("question_date")
    now = _long_date(path, str(asked)) if asked else max(turn.on for turn in turns) + timedelta(days=1)
    return Case(name, tuple(turns), (question,) if abstains or gold else (), now)


def _long_date(path: Path, text: str) -> datetime:
    found = _LONG_DATE.search(text)
    if found is None:
        raise BadInput(f"{path} has the date {text[:40]!r}; allowed are dates like '2023/05/20 (Sat) 02:21'")
    year, month, day, hour, minute = (int(part or 0) for part in found.groups())
    return datetime(year, month, day, hour, minute, tzinfo=UTC)


def _with_questions(path: Path, kind: str, cases: Iterable[Case]) -> Iterator[Case]:
    """Yield the cases. Raises BadInput behind the last: none of them asks anything, which would measure nothing."""
    asked = 0
    for case in cases:
        asked += len(case.questions)
        yield case
    if not asked:
        raise BadInput(f"{path} holds no question that can be measured; allowed is a {kind} file with one")


def _list(path: Path, kind: str, *, needs: tuple[str, ...]) -> list[dict[str, Json]]:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise BadInput(f"{path} is {path.stat().st_size} bytes; allowed are {FILE_BYTES_MAX}")
        samples = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); allowed is a {kind} file") from None
    except ValueError:
        raise BadInput(f"{path} is not JSON; allowed is a {kind} file") from None
    entries = samples if isinstance(samples, list) else [samples]
    for entry in entries:
        missing = [name for name in needs if not isinstance(entry, dict) or name not in entry]
        if missing:
            raise BadInput(f"{path} has an entry without {missing[0]!r}; allowed is a {kind} file")
    return entries
