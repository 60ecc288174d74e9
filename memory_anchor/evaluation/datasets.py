"""LoCoMo and LongMemEval files, given by path, as cases. Nothing of either is shipped or special-cased.

LoCoMo (Maharana et al., 2024): one case a conversation, its turns as dated events, gold are the turns its evidence
names; categories 1 to 4, because the fifth has no answer to find. LongMemEval (Wu et al., 2025): one case a question,
gold are the turns marked `has_answer`; abstention questions have none and must stay unanswered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from memory_anchor.errors import BadInput
from memory_anchor.evaluation.questions import UNANSWERABLE, Case, Material, Question
from memory_anchor.json_values import Json, items, record, records

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
    turns: list[Material] = []
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


def _turn(turn: Mapping[str, Json], at: datetime, *, conversation: str) -> Material:
    speaker = str(turn["speaker"])
    photo = f" [shared a photo: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
    text = f"[{at.day} {at:%B %Y}] {speaker}: {str(turn['text']).strip()}{photo}"
    return Material(str(turn["dia_id"]), text[:TEXT_CHARS_MAX], at, who=(speaker,), conversation=conversation)


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
            turns.append(Material(name, text, at, who=(str(turn["role"]),), conversation=f"{place}:{session}"))
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
