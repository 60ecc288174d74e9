"""Bad conversations, models and providers through the command line and the tool: one sentence, nothing half-written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from memory_anchor.domain.errors import BadInput, Unavailable
from memory_anchor.domain.model import Actor
from memory_anchor.front import mcp_answers
from memory_anchor.process.app import build_core
from memory_anchor.settings import Settings
from memory_anchor.testing import HashEmbedder, ManualClock, ScriptedLanguageModel, memory_store
from memory_anchor.use_cases.memory import MemoryAnchor

GOOD = {"role": "user", "content": "We decided to use PostgreSQL 16 because of logical replication."}
MANY = 10_000
BAD: Mapping[str, tuple[Any, str]] = {
    "ten thousand turns": ([GOOD] * MANY, "messages holds 10000 turns; allowed are 1 to 5000"),
    "no turn": ([], "holds 0"),
    "an unknown role": ([GOOD, {"role": "wizard", "content": "abracadabra"}], "role is 'wizard'"),
    "a role that is no text": ([GOOD, {"role": 7, "content": "x"}], "role is '7'"),
    "no object": ([GOOD, "hello"], "messages[1] is text"),
    "content that is no text": ([GOOD, {"role": "user", "content": {"a": 1}}], "content is an object"),
    "calls that are no list": ([GOOD, {"role": "assistant", "content": "", "tool_calls": "ls"}], "tool_calls is text"),
    "a call without a name": ([GOOD, {"role": "assistant", "tool_calls": [{"arguments": {}}]}], "call without a name"),
    "one endless message": ([GOOD, {"role": "user", "content": "x" * 200_001}], "200001 characters"),
}


def stored(here: MemoryAnchor) -> list[str]:
    return [memory.content for memory in here.curation.listing()]


@pytest.mark.parametrize("name", BAD)
def test_the_tool_refuses_it_in_one_sentence_and_stores_nothing(anchor: MemoryAnchor, name: str) -> None:
    """Rule bad-input: the good turn beside the bad one is not stored either."""
    messages, sentence = BAD[name]

    with pytest.raises(BadInput) as refused:
        mcp_answers.answer(anchor, "remember_conversation", {"messages": messages})

    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400
    assert stored(anchor) == []


def test_binary_junk_in_a_turn_gives_nothing_and_costs_nothing(anchor: MemoryAnchor) -> None:
    """Rule bad-input: what is no text is not learned from; the rest of the conversation is."""
    junk = {"role": "user", "content": "I prefer \x00\x01\x02\ufffd\ufffd\x07" * 200}

    done = mcp_answers.answer(anchor, "remember_conversation", {"messages": [junk, GOOD]})

    assert len(done["outcomes"]) == len(stored(anchor)) == 1


FILES: Mapping[str, tuple[bytes, str]] = {
    "no turn": (b"[]", "0 turns"),
    "an empty file": (b"", "no transcript"),
    "an unknown role": (json.dumps([{"role": "wizard", "content": "x"}]).encode(), "role is 'wizard'"),
    "binary junk": (bytes(range(256)) * 40, "no JSON"),
    "an archive": (b"PK\x03\x04" + b"\x00" * 200, "no JSON"),
    "prose": (b"Dear diary, today I learned nothing.\n" * 10, "no JSON"),
    "half a file": (json.dumps([GOOD] * 3).encode()[:-20], "no JSON"),
}


@pytest.mark.parametrize("name", FILES)
def test_the_command_refuses_it_in_one_sentence_and_stores_nothing(
    run: Callable[..., Result], anchor: MemoryAnchor, tmp_path: Path, name: str
) -> None:
    """Rule bad-input: exit code 2, also where the dry run is left out."""
    raw, sentence = FILES[name]
    file = tmp_path / "talk.jsonl"
    file.write_bytes(raw)

    for options in ((), ("--yes",)):
        said = run("extract", str(file), *options)
        assert said.exit_code == 2, said.output
        assert sentence in " ".join(said.output.split())
        assert "Traceback" not in said.output
    assert stored(anchor) == []


@pytest.mark.slow
def test_a_transcript_of_ten_thousand_turns_is_read(
    run: Callable[..., Result], anchor: MemoryAnchor, tmp_path: Path
) -> None:
    """Rule bad-input: longer files go through the command; what is said ten thousand times is one memory."""
    file = tmp_path / "long.json"
    file.write_text(json.dumps([GOOD, {"role": "assistant", "content": "Understood."}] * (MANY // 2)), encoding="utf-8")

    said = run("extract", str(file), "--yes", "--json")

    assert said.exit_code == 0
    assert len(stored(anchor)) == 1


NONSENSE = (
    {"memories": "none"},
    {"memories": [{"content": "", "type": "poem"}]},
    {"answer": 42},
    Unavailable("The language model did not answer within 30 s."),
    Unavailable("The key for the language model was refused (403); check llm.api_key."),
)


@pytest.mark.parametrize("answer", NONSENSE, ids=str)
def test_a_model_that_answers_nonsense_late_or_never_costs_a_note(
    tmp_path: Path, agent: Actor, answer: Mapping[str, Any] | Exception
) -> None:
    """Rule bad-input: rules do the work, one sentence says why, and each memory is stored once."""
    core = build_core(
        Settings(),
        data_dir=tmp_path / "own",
        clock=ManualClock(),
        store=memory_store(),
        embedder=HashEmbedder(),
        model=ScriptedLanguageModel(answer),
    )
    here = core.anchor(agent)
    talk = [GOOD, {"role": "assistant", "content": "Understood."}]

    told = mcp_answers.answer(here, "remember_conversation", {"messages": talk, "mode": "factual"})

    (note,) = told["notes"]
    assert "by rules" in note
    assert "\n" not in note
    assert len(stored(here)) == 1
