"""Measure the hook after a failed command: it should show the fix if one is stored, and nothing otherwise.

    python scripts/bench_failures.py [--cache FOLDER] [--data FILE] [--half first|second] [--json FILE] [--misses]

Twenty failures whose fix is stored and twenty that nothing stored fixes, in both languages, with the output of many
tools (`scripts/data/failures.yaml`, our own). Asked over thirty fixes among sixty other memories, and again over the
fixes alone, each failure in its own conversation. Prints how many get their fix, how many of those also get another
line, how many unfixable ones get any line, and CPU milliseconds per failure next to those of an embedding.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from bench_recall import CachedEmbedder
from bench_unasked import save

from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.testing import ephemeral_core

DATA = Path(__file__).resolve().parent / "data" / "failures.yaml"
LINE = "\n- ["
EVENT = "PostToolUseFailure"


def measured(
    content: dict[str, Any], embedder: CachedEmbedder, *, half: str, others: bool, misses: bool
) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        core = ephemeral_core(Path(folder), embedder=embedder)
        actor = Actor(Caller.AGENT, Scope(project="p", agent="bench", conversation="first"))
        anchor = core.anchor(actor)
        for kind, text in content["others"] if others else ():
            save(anchor, kind, text)
        names = {name: save(anchor, kind, text) for name, (kind, text) in content["fixes"].items()}
        told_as = {memory: name for name, memory in names.items()}
        while core.services.searcher.index.embed_pending(64):
            pass
        hooks, right, beside, wrong, ms = Hooks(), 0, 0, 0, []
        asked = [*halved(content["known"], half), *halved(content["unknown"], half)]
        for number, case in enumerate(asked):
            own = core.anchor(replace(actor, scope=replace(actor.scope, conversation=f"f{number}")))
            began = time.process_time()
            text = hooks.answer(own, EVENT, payload(case))
            ms.append((time.process_time() - began) * 1e3)
            fix, found = case.get("fix", ""), text.count(LINE) + text.startswith("- [")
            right += bool(fix) and names[fix] in text
            beside += bool(fix) and found > (names[fix] in text)
            wrong += not fix and found > 0
            told = [name for memory, name in told_as.items() if memory in text]
            if misses and (told or [""])[:2] != [fix]:
                print(f"  {case['command'][:50]}: {fix or 'nothing'} expected, {told or found} told", file=sys.stderr)
        core.close()
    known, unknown = (len(halved(content[name], half)) for name in ("known", "unknown"))
    return {
        "known": known,
        "told_right": right,
        "told_beside": beside,
        "unknown": unknown,
        "told_wrong": wrong,
        "cpu_ms_p50": round(sorted(ms)[len(ms) // 2], 1),
    }


def halved(cases: list[dict[str, str]], half: str) -> list[dict[str, str]]:
    return cases[half == "second" :: 2] if half else cases


def payload(case: dict[str, str]) -> dict[str, Any]:
    """Return what Claude Code passes to its hook after a failed command."""
    given = {"command": case["command"]}
    printed = f"Exit code 1\n{case['output']}"
    return {"hook_event_name": EVENT, "tool_name": "Bash", "tool_input": given, "error": printed}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, default=DATA)
    options.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "memory-anchor-rows")
    options.add_argument("--half", choices=("first", "second"), default="")
    options.add_argument("--json", type=Path)
    options.add_argument("--misses", action="store_true", help="name the failures that went wrong")
    chosen = options.parse_args()
    content = yaml.safe_load(chosen.data.read_text(encoding="utf-8"))
    embedder = CachedEmbedder(chosen.cache)
    report = {
        name: measured(content, embedder, half=chosen.half, others=others, misses=chosen.misses)
        for name, others in (("fixes among others", True), ("fixes alone", False))
    }
    embedder.save()
    for name, told in report.items():
        print(name, told)
    if chosen.json:
        chosen.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
