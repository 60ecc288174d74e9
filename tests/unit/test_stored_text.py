"""No field takes a secret or private text to disk: every argument of every tool and command that writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import disk
import pytest
from stores import file_store
from typer.testing import Result

from memory_anchor.domain.model import Actor
from memory_anchor.front import mcp_answers
from memory_anchor.front.clients import hooks as hook
from memory_anchor.front.tool_specs import TOOLS, ToolSpec, schema_of
from memory_anchor.process.wiring import Core
from memory_anchor.runtime import spool
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.testing import ephemeral_core

TOKEN = "ghp_" + "0123456789abcdefABCDEF"
PLANTED = f"lighthouse {TOKEN} <private>cellar</private>"
NEVER = (TOKEN.encode(), b"cellar", b"hunter2", b"rivate>")
MESSAGES = [
    {"role": "user", "content": f"I prefer the lighthouse theme. My lighthouse key is {TOKEN}. <private>cellar"},
    *(
        {"role": "assistant", "content": "", "tool_calls": [{"name": "Bash", "arguments": {"command": f"make {said}"}}]}
        for said in [PLANTED] * 4
    ),
]
IDS = {"event_id", "id", "from_id", "replaces"}
"""Names of memories: anything else is not found."""
CHOSEN = {"type", "layer", "visibility", "when", "action", "entry_id", "mode", "only", "resolution"}
"""Checked against a list or a form: anything else is bad input."""


@pytest.fixture
def core(tmp_path: Path) -> Iterator[Core]:
    """A memory on the embedded engine, so that its files can be read."""
    data = tmp_path / "data"
    lock = DirectoryLock.acquire(data, role="test")
    made = ephemeral_core(data, store=file_store(data / "store"))
    yield made
    made.close()
    lock.release()


def left_on_disk(core: Core, project: Path) -> list[tuple[str, bytes]]:
    """Return which file holds what it never may, once the process has ended."""
    core.close()
    texts = {path: disk.content(path) for path in disk.files(core.data_dir, project)}
    assert any(b"lighthouse" in text for text in texts.values())
    return [(path.name, never) for path, text in texts.items() for never in NEVER if never in text]


def planted(spec: ToolSpec) -> dict[str, Any]:
    """Return the tool's arguments, with what must not be stored wherever text may stand."""
    arguments: dict[str, Any] = {}
    for name, schema in schema_of(spec)["properties"].items():
        match schema.get("type"):
            case "string" if name not in IDS | CHOSEN:
                arguments[name] = PLANTED
            case "array":
                arguments[name] = MESSAGES if name == "messages" else [PLANTED]
            case None:
                arguments[name] = {"password": "hunter2secret", PLANTED: [PLANTED, 5432]}
            case _:
                continue
    return arguments


def test_every_text_of_every_tool_is_cleaned(core: Core, agent: Actor, project: Path) -> None:
    """Rule safety: keys, tags, reasons, places, people, files, values and what was said pass the same rules."""
    anchor = core.anchor(agent)
    event = anchor.log_event("the lighthouse was painted").id
    wrong = anchor.save_memory("the lighthouse is green").id
    known = {"event_id": event, "id": wrong}

    for spec in TOOLS:
        if spec.effect == "reads" or spec.name == "resolve_conflict":
            continue
        arguments = planted(spec) | {name: known[name] for name in known if name in schema_of(spec)["properties"]}
        if "request_id" in arguments:
            arguments["request_id"] += spec.name
        mcp_answers.run(anchor, spec.name, arguments)
        if spec.name == "set_active_context":
            assert anchor.active()["lighthouse [redacted:token]"][0] == {
                "password": "[redacted:password]",
                "lighthouse [redacted:token]": ["lighthouse [redacted:token]", 5432],
            }

    assert left_on_disk(core, project) == []


@pytest.mark.slow
def test_a_human_s_words_are_cleaned_too(core: Core, agent: Actor, project: Path) -> None:
    """Rule safety: what was edited in, and what showed that a memory holds."""
    curation = core.anchor(agent).curation
    name = core.anchor(agent).save_memory("the lighthouse is green").id
    curation.edit(name, PLANTED)
    curation.judge(name, "verified", PLANTED)
    curation.judge(name, "refuted", f"https://lighthouse.example/?access_token={TOKEN}")

    assert left_on_disk(core, project) == []


def test_every_command_that_writes_cleans_what_it_was_given(
    core: Core, project: Path, tmp_path: Path, run: Callable[..., Result]
) -> None:
    """Rule safety: the shell is one more way in, for proposals, observations and golden questions as well."""
    observation = {
        "type": "event",
        "summary": PLANTED,
        "details": PLANTED,
        "files": [f"{PLANTED}:10-20"],
        "layer": "event_log",
        "where": PLANTED,
        "who": [PLANTED],
        "tags": [PLANTED],
        "created_at": "2025-12-15T10:00:00Z",
        "author": PLANTED,
    }
    (tmp_path / "seen.json").write_text(json.dumps(observation))
    commands = (
        ("log", PLANTED, "--who", PLANTED, "--where", PLANTED, "--tag", PLANTED),
        ("add", PLANTED, "--key", PLANTED, "--tag", PLANTED, "--file", PLANTED),
        ("add", "--observation", str(tmp_path / "seen.json")),
        ("constitution", "propose", PLANTED, "--reason", PLANTED, "--from-id", PLANTED, "--as", PLANTED),
        ("eval", "--save", PLANTED),
    )
    for words in commands:
        done = run(*words, "--json")
        assert done.exit_code == 0, (words[0], done.output)
    stored = json.loads(run("add", "another lighthouse", "--json").stdout)["id"]
    assert run("forget", stored, "--reason", PLANTED, "--json").exit_code == 0

    assert list((project / ".ai" / "proposals").glob("p-*.yaml"))
    assert left_on_disk(core, project) == []


def test_what_a_client_said_is_cleaned_before_it_waits_on_disk(core: Core, project: Path) -> None:
    """Rule hook.spool: a summary waits as it will be stored, and nothing that no memory is made of waits with it."""
    payload = {"compact_summary": PLANTED, "last_assistant_message": PLANTED, "transcript_path": "/t.jsonl"}
    caller = hook.caller_of({"HOME": "/h"}, payload, cwd=str(project), pid=1, nonce="n")

    hook._undelivered(str(core.data_dir), caller, "PostCompact", payload, ConnectionRefusedError())

    (waits,) = spool.waiting(core.data_dir)
    assert waits.payload == {"compact_summary": "lighthouse [redacted:token]", "transcript_path": "/t.jsonl"}
    assert left_on_disk(core, project) == []


@pytest.mark.parametrize("off", ["paused", "read_only"])
def test_nothing_is_proposed_where_nothing_may_be_written(
    core: Core, run: Callable[..., Result], project: Path, monkeypatch: pytest.MonkeyPatch, off: str
) -> None:
    """Rule pause: a proposal is a write, from the shell as from a tool."""
    if off == "paused":
        (core.data_dir / "paused").touch()
    else:
        monkeypatch.setenv("MEMORY_ANCHOR_READ_ONLY", "true")

    done = run("constitution", "propose", "Test first.", "--reason", "asked", "--json")

    assert (done.exit_code, json.loads(done.stdout)["error"]) == (4, "refused")
    assert not (project / ".ai").exists()
