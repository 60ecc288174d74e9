"""Measure what consolidation does to answers: their tokens and their content, before and after, in three settings.

    python scripts/bench_stories.py              # JSON
    python scripts/bench_stories.py --held       # another month, whose misses nobody read
    python scripts/bench_stories.py --misses     # also what each answer does not tell, and its lines

A working month in each language (`scripts/data/stories.yaml`: 12 conversations, 112 events, 12 questions), written with
`log_event` into the embedded store under the bundled embedder, a clock moved by hand. Settings: `no_model`;
`own_summaries`: every second conversation ends with `end_session(summary)`; `model`: a scripted language model at its
port gives what a careful one writes of each conversation. Every question is put to `search_memory` (5) from a
conversation of its own, before the job `consolidate` and after it. Tokens are those of the lines that an agent reads
(`json_tokens`: of the structured answer). Told: an identifier or value that the question wants stands in a shown text.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import sys
import tempfile
from collections.abc import Iterable
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from bench_recall import CachedEmbedder

from memory_anchor.domain.errors import Unavailable
from memory_anchor.domain.model import Actor, Scope
from memory_anchor.domain.ports import Answer, ModelUsage
from memory_anchor.front import views
from memory_anchor.front.table import ROWS
from memory_anchor.language.terms import terms
from memory_anchor.language.tokens import count_tokens
from memory_anchor.process.app import build_core
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.store.database import Sqlite
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.testing import START, ManualClock
from memory_anchor.upkeep.registry import Story

DATA = Path(__file__).parent / "data" / "stories.yaml"
HELD = DATA.with_name("stories_held.yaml")
SETTINGS = ("no_model", "own_summaries", "model")
LIMIT = 5
MINUTES_BETWEEN = 7
REPORTED = ("stories", "by_model", "by_summary", "left_as_they_are", "extracted", "tokens_without", "tokens_with")


SENTENCE_END = re.compile(r"(?<=[.])\s(?=[A-Z0-9a-z])|(?<=[。；])")


class CarefulModel:
    """A language model that has read the month: of the events it is shown it tells what was written for them.

    A narrative is of a whole conversation; of a part of one the sentences are told that say more of this part than of
    the rest. parts: how many of a conversation's events each call showed.
    """

    name = "scripted"

    def __init__(self, month: Iterable[dict[str, Any]]) -> None:
        self._month = list(month)
        self.parts: list[str] = []

    def fill(self, shape: type[Answer], *, system: str, prompt: str, deadline_s: float) -> tuple[Answer, ModelUsage]:  # noqa: ARG002
        """Return the narrative of the conversation that the prompt shows; Unavailable for whatever is no story."""
        if shape is not Story:
            raise Unavailable("The scripted model only writes stories.")
        shown = {one["id"]: sum(event in prompt for event in one["events"]) for one in self._month}
        best = next(one for one in self._month if shown[one["id"]] == max(shown.values()))
        self.parts.append(f"{best['id']}: {shown[best['id']]} of {len(best['events'])}")
        here = set(terms("\n".join(one for one in best["events"] if one in prompt)))
        rest = set(terms("\n".join(one for one in best["events"] if one not in prompt)))
        sentences = SENTENCE_END.split(best["narrative"])
        told = [one for one in sentences if len(here & set(terms(one))) >= len(rest & set(terms(one)))]
        return shape.model_validate({"story": " ".join(told) or sentences[0]}), ModelUsage(0, 0)


def fill(core: Core, clock: ManualClock, month: list[dict[str, Any]], *, summaries: bool) -> None:
    """Write a month as agents do; the clock stands a day after its end."""
    for one in month:
        clock.set(START + timedelta(days=one["day"] - 1))
        here = core.anchor(Actor(scope=Scope(conversation=one["id"], agent="bench")))
        for event in one["events"]:
            row = ROWS["log"]
            row.use_case(here, row.request.of(content=event))
            clock.advance(minutes=MINUTES_BETWEEN)
        if summaries and "summary" in one:
            row = ROWS["end_session"]
            row.use_case(here, row.request.of(summary=one["summary"]))
    while core.services.searcher.index.embed_pending(64):
        pass
    clock.advance(days=1)


def asked(core: Core, clock: ManualClock, questions: list[dict[str, Any]], round_: str) -> list[dict[str, Any]]:
    """Return of each question the tokens of its answer, and which of the wanted it tells."""
    answers = []
    for one in questions:
        here = core.anchor(Actor(scope=Scope(conversation=f"asking {one['of']} {round_}", agent="bench")))
        row = ROWS["search"]
        answer = row.answer(here, row.request.of(query=one["query"], limit=LIMIT))
        texts = "\n".join(snippet["text"] for snippet in answer["snippets"]).casefold()
        lines = views.lines(answer, now=clock.now())
        answers.append(
            {
                "of": one["of"],
                "tokens": count_tokens(lines),
                "json_tokens": count_tokens(json.dumps(answer, ensure_ascii=False)),
                "snippets": len(answer["snippets"]),
                "told": {wanted for wanted in one["wanted"] if wanted.casefold() in texts},
                "wanted": len(one["wanted"]),
                "lines": lines,
            }
        )
    return answers


def summed(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a round of questions cost and told."""
    tokens, items = sum(one["tokens"] for one in answers), sum(len(one["told"]) for one in answers)
    return {
        "tokens": tokens,
        "median_tokens": statistics.median(one["tokens"] for one in answers),
        "json_tokens": sum(one["json_tokens"] for one in answers),
        "snippets": sum(one["snippets"] for one in answers),
        "items_told": items,
        "items_wanted": sum(one["wanted"] for one in answers),
        "questions_told_whole": sum(len(one["told"]) == one["wanted"] for one in answers),
        "questions": len(answers),
        "tokens_an_item": round(tokens / max(items, 1), 1),
    }


def compared(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> dict[str, Any]:
    """Return both rounds and what became of the answers."""
    first, second = summed(before), summed(after)
    pairs = list(zip(before, after, strict=True))
    return {
        "before": first,
        "after": second,
        "after_to_before": round(second["tokens"] / first["tokens"], 3),
        "after_to_before_median": round(statistics.median(new["tokens"] / old["tokens"] for old, new in pairs), 3),
        "after_to_before_json": round(second["json_tokens"] / first["json_tokens"], 3),
        "items_lost": sum(len(old["told"] - new["told"]) for old, new in pairs),
        "items_won": sum(len(new["told"] - old["told"]) for old, new in pairs),
    }


def measured(language: str, setting: str, whole: dict[str, Any], embedder: CachedEmbedder, *, misses: bool) -> Any:
    """Return a setting's figures in one language, and what its job reported."""
    month, questions = whole[language], [one for one in whole["questions"] if one["language"] == language]
    model = CarefulModel(month) if setting == "model" else None
    with tempfile.TemporaryDirectory(prefix="stories-") as folder:
        clock = ManualClock()
        store = SqlStore(Sqlite(Path(folder) / "store" / "memory.db"))
        core = build_core(
            Settings(), data_dir=Path(folder) / "data", clock=clock, store=store, embedder=embedder, model=model
        )
        fill(core, clock, month, summaries=setting == "own_summaries")
        before = asked(core, clock, questions, "before")
        report = core.scheduler.run("consolidate", clock.now())
        while core.services.searcher.index.embed_pending(64):
            pass
        after = asked(core, clock, questions, "after")
        core.close()
    if misses:
        for old, new, one in zip(before, after, questions, strict=True):
            lost, missing = old["told"] - new["told"], set(one["wanted"]) - new["told"]
            head = f"{setting} {one['of']} {one['query']} | {old['tokens']} -> {new['tokens']}"
            print(f"\n{head} lost {lost or ''} not told {missing or ''}\n{new['lines']}", file=sys.stderr)
        print(model.parts if model else "", file=sys.stderr)
    counts = {name: report.counts[name] for name in REPORTED}
    return {**compared(before, after), "job": counts}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "memory-anchor-rows")
    options.add_argument("--misses", action="store_true", help="print every answer and what it lacks to stderr")
    options.add_argument("--held", action="store_true", help="the month that nothing was chosen on")
    options.add_argument("--setting", choices=SETTINGS, action="append", help="only this one")
    chosen = options.parse_args()
    whole = yaml.safe_load((HELD if chosen.held else DATA).read_text(encoding="utf-8"))
    embedder = CachedEmbedder(chosen.cache)
    found = {
        setting: {one: measured(one, setting, whole, embedder, misses=chosen.misses) for one in ("en", "zh")}
        for setting in chosen.setting or SETTINGS
    }
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    versions = {name: version(name) for name in ("memory-anchor", "qdrant-edge-py")}
    told = {"machine": machine, "python": platform.python_version(), "versions": versions, "limit": LIMIT, **found}
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
