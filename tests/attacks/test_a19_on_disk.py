"""Attack A19, on disk: secrets go through every door, the refused and the broken ones too; no file holds one."""

from __future__ import annotations

import json
from pathlib import Path

import disk
import pytest
from doors import House, answer

from memory_anchor.runtime import engine, wire

SECRET = "ghp_" + "Zq7Xv2Lm9Tr4Wy6Kp1Nd8Bs3Hf5Jc0Ga7Ue"
KEY = "sk-ant-api03-" + "Rt5Yu8Io2Pa4Sd6Fg9Hj1Kl3Zx7Cv0Bn" * 2


def leaks(data: Path) -> list[str]:
    """Return the files of the data folder that hold a planted secret, or half of one."""
    planted = [part.encode() for one in (SECRET, KEY) for part in (one, one[8:28], one[-20:])]
    return [str(file.relative_to(data)) for file in disk.holding(data, *planted)]


@pytest.mark.slow
def test_no_file_of_the_data_folder_holds_a_secret_that_went_through_a_door(tmp_path: Path) -> None:
    """Attack A19: logs, spool, outbox, notes of environments, reports, proposals, audit and store."""
    house = House(tmp_path, settings="remote: {url: 'http://127.0.0.1:9', key: away}\n", private=True)
    env = {"MEMORY_ANCHOR_EMBEDDER__KIND": "none", "MEMORY_ANCHOR_LLM__API_KEY": KEY}
    told = f"The deploy token is {SECRET} and the key is {KEY}"
    try:
        agent = house.bridge("here", **env)
        answer(agent, "save_memory", content=told, key=told[:150], tags=["deploy"])
        answer(agent, "log_event", content=told, where=SECRET, who=[SECRET])
        answer(agent, "set_active_context", key="token", value={"token": SECRET, "nested": [told]})
        answer(agent, "end_session", summary=told)
        agent.tool("propose_constitution_change", content=f"Never print it: {told}", reason=told)
        answer(agent, "remember_conversation", messages=[{"role": "user", "content": f"Remember: {told}"}])
        answer(agent, "search_memory", query=told)
        answer(agent, "build_context", task=told)
        for tool, arguments in {
            "save_memory": {"content": told, "type": SECRET},
            "get_memory": {"id": SECRET},
            "forget_memory": {"id": SECRET, "reason": told},
            SECRET: {"content": told},
            "log_event": {"content": told, "when": SECRET},
            "resolve_conflict": {"id": SECRET, "resolution": SECRET},
        }.items():
            agent.tool(tool, **arguments)
        for line in (
            {"jsonrpc": "2.0", "id": 900, "method": SECRET, "params": {"x": told}},
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": [SECRET]},
            {
                "jsonrpc": "2.0",
                "id": SECRET,
                "method": "resources/read",
                "params": {"uri": f"memory://memories/{SECRET}"},
            },
            {
                "jsonrpc": "2.0",
                "id": 901,
                "method": "tools/call",
                "params": {"name": "save_memory", "arguments": [told]},
            },
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": told, "progress": told}},
        ):
            agent.send(line)
        answer(agent, "search_events")
        data = str(house.data)
        for kind, more in {
            "call": {"name": SECRET, "arguments": {"content": told}},
            "hook": {"event": SECRET, "payload": {"prompt": told, "transcript_path": f"/tmp/{SECRET}"}},
            SECRET: {},
        }.items():
            wire.ask(data, kind, wire.Preamble(conversation="c"), timeout_s=20, **more)
        wire.ask(data, "call", wire.Preamble(), timeout_s=20, name="list", arguments={"bogus": told})
        talk = house.home / "talk.jsonl"
        talk.write_text(
            "\n".join(
                json.dumps({"type": who, "uuid": f"u{n}", "sessionId": "s", "message": {"role": who, "content": words}})
                for n, (who, words) in enumerate((("user", f"Remember: {told}"), ("assistant", f"Noted: {told}")))
            )
        )
        heard = {"session_id": "s", "transcript_path": str(talk), "cwd": str(house.project("here")), "prompt": told}
        for event in ("UserPromptSubmit", "PreCompact", "Stop", "SessionEnd"):
            house.run("hook", event, stdin=json.dumps(heard).encode(), **env)
        payload = {"session_id": "s", "transcript_path": f"/nowhere/{SECRET}", "compact_summary": told, "prompt": told}
        for event in ("SessionStart", "UserPromptSubmit", "PreCompact", "PostCompact", "Stop", "SessionEnd"):
            house.run("hook", event, stdin=json.dumps(payload).encode(), **env)
        house.run("add", told, **env)
        house.run("add", told, "--type", SECRET, **env)
        file = house.home / "import.jsonl"
        file.write_text(json.dumps({"id": "a", "content": told}) + "\n" + told + "\n")
        house.run("import", str(file), **env)
        house.run("constitution", "propose", told, "--reason", told, **env)
        assert engine.stop(house.data)
        for event in ("PostCompact", "SessionEnd", "PreCompact"):  # nobody serves: these wait on disk
            house.run("hook", event, stdin=json.dumps(payload).encode(), **env)
        assert list((house.data / "remote" / "outbox").iterdir())
        assert leaks(house.data) == []
        proposed = house.project("here") / ".ai" / "proposals"
        assert any(file.is_file() for file in proposed.rglob("*"))
        assert leaks(proposed.parent) == []
    finally:
        house.close()
