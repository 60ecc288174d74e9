"""Golden questions: what a user asks of their own memory, and which memories must answer.

They live beside the store, one JSON line each, and are asked through the same `MemoryAnchor` as an agent's searches, so
that the figures are those of the user's own store. A memory that was merged or superseded since is followed by nobody:
the question then counts as lost, and the comparison with the last run says so. Lines that cannot be read are refused,
not skipped: a question that silently vanished would look like better recall.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memory_anchor import inputs, shapes
from memory_anchor.errors import BadInput
from memory_anchor.evaluation.questions import Question
from memory_anchor.evaluation.runner import ASKED_DEPTH, SHOWN, Answered, ranked_names
from memory_anchor.files import exclusive, make_private, read_bounded, write_whole
from memory_anchor.json_values import Json, Record, number, texts, whole
from memory_anchor.language.terms import is_chinese
from memory_anchor.language.tokens import count_tokens
from memory_anchor.memory import MemoryAnchor

FILE = "golden.jsonl"
CATEGORY = "golden"
QUESTIONS_MAX = 2_000
EXPECTED_MAX = 20
FILE_BYTES_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class Golden:
    """expects: ids of the memories that must answer; none: nothing may."""

    query: str
    expects: tuple[str, ...]

    def question(self, number: int) -> Question:
        language = "zh" if is_chinese(self.query) else "en"
        category = CATEGORY if self.expects else "no answer"
        return Question(f"golden-{number}", self.query, frozenset(self.expects), category, language)


def load(folder: Path) -> list[Golden]:
    """Return the saved questions, oldest first. Raises BadInput: a line that is not one."""
    try:
        raw = read_bounded(folder / FILE, most_bytes=FILE_BYTES_MAX)
    except OSError as error:
        raise BadInput(f"{folder / FILE} cannot be read ({error.strerror}); mend it or move it away") from None
    lines = raw.decode("utf-8", "replace").splitlines() if raw else []
    return [_read(folder / FILE, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def save(folder: Path, query: Json, expects: Json) -> Golden:
    """Save one question; the same query again gets the new ids. Raises BadInput: too many, or not a question."""
    asked = checked(query, expects)
    make_private(folder)
    with exclusive(folder / f"{FILE}.lock"):
        kept = [one for one in load(folder) if one.query != asked.query]
        if len(kept) >= QUESTIONS_MAX:
            raise BadInput(f"there are {len(kept)} golden questions; allowed are {QUESTIONS_MAX}")
        _write(folder, [*kept, asked])
    return asked


def remove(folder: Path, query: str) -> bool:
    """Take one question away again; return whether there was one."""
    make_private(folder)
    with exclusive(folder / f"{FILE}.lock"):
        before = load(folder)
        kept = [one for one in before if one.query != query.strip()]
        if len(kept) < len(before):
            _write(folder, kept)
    return len(kept) < len(before)


def checked(query: Json, expects: Json) -> Golden:
    """Return a question of checked parts. Raises BadInput."""
    return Golden(
        inputs.text("query", query, most=inputs.QUERY_MAX),
        inputs.strings("expects", expects, most=EXPECTED_MAX, each=inputs.NAME_MAX),
    )


def ask(anchor: MemoryAnchor, questions: Json) -> dict[str, Json]:
    """Ask the caller's own store; return for each question ids best first, milliseconds, and tokens of the answer.

    questions: a list of texts. A time is that of the first search for a text in a process that has searched before: one
    is asked unmeasured, and what is kept of each is forgotten first. Raises BadInput.
    """
    asked = inputs.strings("questions", questions, most=QUESTIONS_MAX, each=inputs.QUERY_MAX)
    answers: list[Record] = []
    for query in asked[:1]:
        anchor.search(query, limit=1)  # the first search of a process loads what the others find loaded
    for query in asked:
        anchor.services.searcher.forget(query)
        started = time.perf_counter()
        found = anchor.search(query, limit=ASKED_DEPTH)
        ms = (time.perf_counter() - started) * 1000
        shown = anchor.search(query, limit=SHOWN)
        tokens = count_tokens(
            shapes.lines(shapes.search_answer(shown, reader=anchor.actor.scope), now=anchor.services.clock.now())
        )
        own = sum(count_tokens(one.text) for one in shown.snippets)
        answers.append({"ids": ranked_names(found.snippets, {}), "ms": ms, "tokens": tokens, "own": own})
    return {"answers": answers}


def answered(questions: Sequence[Golden], answers: Sequence[Mapping[str, Json]]) -> list[Answered]:
    """Return the questions with what `ask` said of them, in the same order."""
    return [
        Answered(
            golden.question(place),
            tuple(texts(answer["ids"])),
            number(answer["ms"]),
            whole(answer["tokens"]),
            max(0, whole(answer["tokens"]) - whole(answer["own"])),
        )
        for place, (golden, answer) in enumerate(zip(questions, answers, strict=True), 1)
    ]


def _write(folder: Path, questions: Sequence[Golden]) -> None:
    lines = [json.dumps({"query": one.query, "expects": one.expects}, ensure_ascii=False) for one in questions]
    write_whole(folder / FILE, "".join(f"{line}\n" for line in lines).encode())


def _read(path: Path, number: int, line: str) -> Golden:
    try:
        entry = json.loads(line)
        return checked(entry["query"], entry["expects"])
    except (ValueError, KeyError, TypeError, BadInput):
        raise BadInput(f"line {number} of {path} is not a golden question; mend it or take it out") from None
