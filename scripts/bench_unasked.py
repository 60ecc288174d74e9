"""Measure unprompted recall by the prompt hook: memories that decide the task, and noise where nothing does.

    python scripts/bench_unasked.py [--cache FOLDER] [--data FILE] [--json FILE] [--misses]

One store for each language: its 30 deciding memories (`scripts/data/unasked.yaml`, our own) among the bundled memories
of `memory-anchor eval`. Each prompt comes in a conversation of its own. Printed: the share of deciding memories that
were told with their prompt, the tokens told with them beside the right one, and the tokens told a prompt that nothing
stored decides.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from bench_recall import CachedEmbedder
from evaluation.cases import bundled

from memory_anchor.domain.model import LAYER_OF_TYPE, Actor, Caller, Layer, MemoryType, Scope
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.language.tokens import estimate_tokens
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ephemeral_core

DATA = Path(__file__).resolve().parent / "data" / "unasked.yaml"


@contextmanager
def bundled_store(embedder: CachedEmbedder) -> Iterator[tuple[Core, Actor, Path]]:
    """Yield a memory of its own that holds the bundled memories, an agent in it, and its project's folder."""
    with tempfile.TemporaryDirectory() as folder:
        data, project = Path(folder, "data"), Path(folder, "project")
        data.mkdir()
        project.mkdir()
        core = ephemeral_core(data, embedder=embedder)
        scope = Scope(project="p", agent="bench", conversation="first")
        actor = replace(Actor(Caller.AGENT, scope), project_dir=str(project))
        for material in bundled().memories:
            save(core.anchor(actor), material.type.value, material.text)
        yield core, actor, project
        core.close()


def measured(content: dict[str, Any], embedder: CachedEmbedder, *, misses: bool) -> dict[str, float]:
    with bundled_store(embedder) as (core, actor, project):
        anchor = core.anchor(actor)
        names = {memory: save(anchor, kind, memory) for kind, memory, _ in content["decides"]}
        while core.services.searcher.index.embed_pending(64):
            pass
        right = beside = noise = told_to_others = 0
        hooks = Hooks()
        for number, (_, memory, prompt) in enumerate(content["decides"]):
            text = prompted(core, hooks, actor, project, f"d{number}", prompt)
            found = names[memory] in text or memory in text
            right += found
            beside += max(0, estimate_tokens(text) - (estimate_tokens(memory) if found else 0))
            if misses and not found:
                print(f"  not told: {prompt}", file=sys.stderr)
        for number, prompt in enumerate(content["others"]):
            text = prompted(core, hooks, actor, project, f"o{number}", prompt)
            noise += estimate_tokens(text)
            told_to_others += bool(text)
            if misses and text:
                print(f"  told although nothing decides it: {prompt}", file=sys.stderr)
    prompts, others = len(content["decides"]), len(content["others"])
    return {
        "told_of_deciding": round(100 * right / prompts, 1),
        "tokens_beside_the_right_one": round(beside / prompts, 1),
        "noise_tokens_a_prompt": round(noise / others, 1),
        "other_prompts_told_something": round(100 * told_to_others / others, 1),
        "prompts": prompts,
        "others": others,
    }


def save(anchor: Any, kind: str, text: str) -> str:
    event = LAYER_OF_TYPE[MemoryType(kind)] is Layer.EVENT_LOG
    outcome = anchor.log_event(text, type=kind) if event else anchor.save_memory(text, type=kind)
    return str(outcome.id)


def prompted(core: Any, hooks: Hooks, actor: Actor, project: Path, conversation: str, prompt: str) -> str:
    own = replace(actor, scope=replace(actor.scope, conversation=conversation))
    return hooks.answer(core.anchor(replace(own, project_dir=str(project))), "UserPromptSubmit", {"prompt": prompt})


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, default=DATA)
    options.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "memory-anchor-rows")
    options.add_argument("--json", type=Path)
    options.add_argument("--misses", action="store_true", help="name the prompts that went wrong")
    chosen = options.parse_args()
    embedder = CachedEmbedder(chosen.cache)
    content = yaml.safe_load(chosen.data.read_text(encoding="utf-8"))
    figures = {}
    for language, part in content.items():
        figures[language] = measured(part, embedder, misses=chosen.misses)
        print(language, figures[language], flush=True)
        embedder.save()
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
