"""Questions with known answers: the bundled ones, and those of LoCoMo and LongMemEval files.

A `Case` is one store: memories in the order they were learned, and questions asked at one instant, so that "last week"
means the same on every day it is run. The bundled case is our own writing (`data/`), a year in the life of a small
team, Chinese and English in one store.

LoCoMo and LongMemEval files are given by path; nothing of either is shipped or special-cased. LoCoMo (Maharana et al.,
2024): one case a conversation, its turns as dated events, gold are the turns its evidence names; categories 1 to 4,
since the fifth has no answer. LongMemEval (Wu et al., 2025): one case a question, gold are the turns marked
`has_answer`; abstention questions have none and must stay unanswered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from memory_anchor.base.json_values import Json, Record, items, record, records, texts
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import LAYER_OF_TYPE, Layer, MemoryType
from memory_anchor.language.terms import is_chinese

BUNDLED = "bundled"
LANGUAGES = ("en", "zh")
UNANSWERABLE = "no answer"
"""The category of questions to which nothing is the right answer."""
DATA = Path(__file__).parent / "data"
LEARNED_AT = time(9, 0, tzinfo=UTC)
SERIES_STEP = timedelta(days=3)
OWN_FIELDS = frozenset(("id", "text", "at", "type", "key", "who", "where", "in", "tags"))
"""Names in a file that are no fields of the request."""
TOLD = (3, 10)
"""How many versions of each series a store has."""


@dataclass(frozen=True, slots=True)
class CaseMemory:
    """One memory to be stored. name: what gold refers to; on: when it happened and was learned, aware UTC.

    more: further fields of the request that stores it, as in the file.
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
        fields = {"content": self.text, "type": self.type.value, "key": self.key, "tags": list(self.tags)}
        if self.layer is Layer.EVENT_LOG:
            fields |= {"when": self.on.isoformat(), "where": self.where, "who": list(self.who)}
        return {**self.more, **{name: value for name, value in fields.items() if value}}


@dataclass(frozen=True, slots=True)
class Question:
    """gold: names of all memories that answer it; empty when nothing does."""

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
    questions = [
        _question(f"{language}-{number:02d}", entry, language)
        for language in LANGUAGES
        for number, entry in enumerate(_yaml(f"questions_{language}.yaml"), 1)
    ]
    return _case(BUNDLED, _yaml("memories.yaml"), questions)


@cache
def week() -> Case:
    """Return our own week: sixty memories in two languages, asked in both, procedures of L4 among the answers."""
    file = _yaml("week.yaml")
    questions = [
        _question(f"week-{number:02d}", entry, "zh" if is_chinese(entry["ask"]) else "en")
        for number, entry in enumerate(file["questions"], 1)
    ]
    return _case("week", file, questions)


def _question(name: str, entry: Record, language: str) -> Question:
    gold, before = frozenset(texts(entry["gold"])), str(entry.get("before", ""))
    return Question(name, str(entry["ask"]), gold, str(entry["about"]), language, before)


def _case(name: str, file: Record, questions: Sequence[Question]) -> Case:
    memories = tuple(map(_memory, records(file["memories"])))
    constitution, operations = (
        {name: str(text) for name, text in record(file.get(layer)).items()} for layer in ("constitution", "operations")
    )
    now = datetime.fromisoformat(str(file["now"]))
    case = Case(name, memories, tuple(questions), now, constitution, operations)
    check_case(case)
    return case


@dataclass(frozen=True, slots=True)
class Series:
    """Something that happens repeatedly. ask: ("newest" or "oldest", question) pairs."""

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
                f"{self.id}-{index}", self.text.format(value), last - SERIES_STEP * (versions - 1 - index), self.type
            )
            for index, value in enumerate(self.values[:versions])
        )


@cache
def series() -> tuple[Series, ...]:
    """Return our own series, twenty of them with two questions each."""
    return tuple(
        Series(
            entry["id"],
            entry["part"],
            MemoryType(entry["type"]),
            entry["text"],
            tuple(map(str, entry["values"])),
            tuple((end, ask) for end, ask in entry["ask"]),
        )
        for entry in _yaml("recency.yaml")
    )


@cache
def repeated(versions: int) -> Case:
    """Return a case of all series in so many versions each, stored with the bundled memories."""
    case = bundled()
    memories = list(case.memories)
    questions = []
    for each in series():
        repeats = each.memories(versions, before=case.now)
        memories += repeats
        for number, (end, ask) in enumerate(each.ask, 1):
            gold = frozenset({repeats[-1 if end == "newest" else 0].name})
            questions.append(Question(f"{each.id}-{number}", ask, gold, end, each.language))
    memories.sort(key=lambda memory: memory.on)
    result = Case(f"newest of {versions}", tuple(memories), tuple(questions), case.now)
    check_case(result)
    return result


def check_case(case: Case) -> None:
    """Raise BadInput where a question's gold names a memory that the case lacks, or two have one name."""
    names = [memory.name for memory in case.memories] + [*case.constitution, *case.operations]
    name_set = set(names)
    if len(name_set) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise BadInput(f"case {case.name} has two memories named {twice[0]!r}; allowed is one each")
    for question in case.questions:
        unknown = sorted(question.gold - name_set)
        if unknown:
            raise BadInput(f"question {question.id} of case {case.name} wants {unknown[0]!r}, which it does not hold")


def _memory(entry: Mapping[str, Any]) -> CaseMemory:
    kind, at = MemoryType(entry.get("type", "event")), entry["at"]
    return CaseMemory(
        name=entry["id"],
        text=entry["text"],
        on=datetime.fromisoformat(at) if isinstance(at, str) else datetime.combine(at, LEARNED_AT),
        type=kind,
        key=entry.get("key", ""),
        who=tuple(entry.get("who", ())),
        where=entry.get("where", ""),
        conversation=entry.get("in", ""),
        tags=tuple(entry.get("tags", ())),
        more={name: value for name, value in entry.items() if name not in OWN_FIELDS},
    )


def _yaml(name: str) -> Any:
    import yaml

    return yaml.safe_load((DATA / name).read_text(encoding="utf-8"))


FILE_BYTES_MAX = 4 << 30
TEXT_CHARS_MAX = 8_000
"""Of one memory; longer turns are cut."""
SESSIONS_MAX = 1_000
LOCOMO_CATEGORIES: Mapping[int, str] = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
_LOCOMO_DATE = re.compile(r"(\d{1,2}):(\d{1,2})\s{0,8}([ap]m) on (\d{1,2}) (\w{1,20}),? (\d{4})")
_LONG_DATE = re.compile(r"(\d{4})/(\d{2})/(\d{2})(?: \(\w{1,20}\))?(?: (\d{2}):(\d{2}))?")
_EVIDENCE = re.compile(r"D(\d{1,6}):(\d+)")


def locomo(path: Path, *, stores: int | None = None) -> Iterator[Case]:
    """Yield one case a conversation, the first `stores` of them. Raises BadInput: not LoCoMo, or no question in it."""
    samples = enumerate(_list(path, "LoCoMo", needs=("conversation", "qa"))[:stores])
    cases = (_conversation(path, sample, str(sample.get("sample_id", number))) for number, sample in samples)
    yield from _with_questions(path, "LoCoMo", cases)


def _conversation(path: Path, sample: Mapping[str, Json], name: str) -> Case:
    sessions = record(sample["conversation"])
    turns: list[CaseMemory] = []
    for number in range(1, SESSIONS_MAX):
        if f"session_{number}" not in sessions:
            continue
        at = _locomo_date(path, str(sessions.get(f"session_{number}_date_time", "")))
        turns += [_turn(turn, at, conversation=str(number)) for turn in records(sessions[f"session_{number}"])]
    known = {turn.name for turn in turns}
    questions = []
    for index, entry in enumerate(records(sample["qa"])):
        kind = entry.get("category")
        category = LOCOMO_CATEGORIES.get(kind) if isinstance(kind, int) else None
        evidence = _EVIDENCE.findall(" ".join(map(str, items(entry.get("evidence")))).replace("D:", "D"))
        gold = frozenset(f"D{int(session)}:{int(turn)}" for session, turn in evidence) & known
        if category and gold:
            questions.append(Question(f"{name}#{index}", str(entry["question"]), gold, category, "en"))
    now = max((turn.on for turn in turns), default=datetime.now(UTC)) + timedelta(days=1)
    return Case(name, tuple(turns), tuple(questions), now)


def _turn(turn: Mapping[str, Json], at: datetime, *, conversation: str) -> CaseMemory:
    speaker = str(turn["speaker"])
    photo = f" [shared a photo: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
    text = f"[{at.day} {at:%B %Y}] {speaker}: {str(turn['text']).strip()}{photo}"
    return CaseMemory(str(turn["dia_id"]), text[:TEXT_CHARS_MAX], at, who=(speaker,), conversation=conversation)


def _locomo_date(path: Path, text: str) -> datetime:
    match = _LOCOMO_DATE.search(text)
    if match is None:
        raise BadInput(f"{path} has the session date {text[:40]!r}; allowed are dates like '1:56 pm on 8 May, 2023'")
    hour, minute, half, day, month, year = match.groups()
    at = datetime.strptime(f"{day} {month} {year}", "%d %B %Y").replace(tzinfo=UTC)
    return at.replace(hour=int(hour) % 12 + (12 if half == "pm" else 0), minute=int(minute))


def longmemeval(path: Path, *, stores: int | None = None) -> Iterator[Case]:
    """Yield one case a question, the first `stores` of them. Raises BadInput: not LongMemEval, or no question in it."""
    needs = ("question_id", "question", "haystack_sessions", "haystack_session_ids", "haystack_dates")
    samples = _list(path, "LongMemEval", needs=needs)[:stores]
    yield from _with_questions(path, "LongMemEval", (_haystack(path, sample) for sample in samples))


def _haystack(path: Path, sample: Mapping[str, Json]) -> Case:
    turns, gold = [], set()
    parts = (items(sample[f"haystack_{part}"]) for part in ("session_ids", "dates", "sessions"))
    for index, (session, day, session_turns) in enumerate(zip(*parts, strict=False)):
        at = _long_date(path, str(day))
        for number, turn in enumerate(records(session_turns)):
            text = str(turn.get("content", "")).strip()[:TEXT_CHARS_MAX]
            if not text:
                continue
            # A haystack may have the same session twice, so its index is part of the name.
            name = f"{index}:{session}_{number}"
            turns.append(CaseMemory(name, text, at, who=(str(turn["role"]),), conversation=f"{index}:{session}"))
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
    asked_on = sample.get("question_date")
    now = _long_date(path, str(asked_on)) if asked_on else max(turn.on for turn in turns) + timedelta(days=1)
    return Case(name, tuple(turns), (question,) if abstains or gold else (), now)


def _long_date(path: Path, text: str) -> datetime:
    match = _LONG_DATE.search(text)
    if match is None:
        raise BadInput(f"{path} has the date {text[:40]!r}; allowed are dates like '2023/05/20 (Sat) 02:21'")
    year, month, day, hour, minute = (int(part or 0) for part in match.groups())
    return datetime(year, month, day, hour, minute, tzinfo=UTC)


def _with_questions(path: Path, kind: str, cases: Iterable[Case]) -> Iterator[Case]:
    """Yield the cases. Raises BadInput after the last: none of them has a question, so nothing would be measured."""
    questions = 0
    for case in cases:
        questions += len(case.questions)
        yield case
    if not questions:
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
