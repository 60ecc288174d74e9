"""The real engine and bridge around a small server: elected, shared, killed, hung, replaced, idle.

Timers are never asserted; `until` waits for what another process does.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
from pathlib import Path

import pytest
from labs import Lab, until

from memory_anchor.runtime import engine, spool, wire


def who(answer: dict) -> dict:
    return answer["result"]["structuredContent"]


@pytest.mark.parametrize("modern", [False, True])
def test_a_cold_bridge_starts_the_engine_and_carries_who_calls(lab: Lab, modern: bool) -> None:
    """Rule bridge.preamble: the engine acts for the bridge's conversation and project, never for its own cwd."""
    agent = lab.agent(modern=modern, CLAUDE_CODE_SESSION_ID="conversation-7")

    seen = who(agent.tool("whoami"))

    assert seen["conversation"] == "conversation-7"
    assert seen["project"] == lab.env["MEMORY_ANCHOR_PROJECT_DIR"]
    assert seen["pid"] == lab.serving() != agent.process.pid
    assert Path(f"/proc/{seen['pid']}/environ").read_bytes().count(b"conversation-7") == 0
    assert agent.close() == 0


@pytest.mark.parametrize("modern", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_killed_engine_is_replaced_and_the_agent_sees_only_answers(lab: Lab, modern: bool) -> None:
    """Rule bridge.survival: idle or in the middle of a call, kill -9 of the engine costs no request its answer."""
    first = lab.start_engine()
    agent = lab.agent(modern=modern)
    lab.kill(first)
    second = who(agent.tool("whoami"))["pid"]
    assert second != first

    running = agent.start_tool("slow", name="held", ms=400)
    until(lambda: lab.log("slow"), "the call has begun")
    lab.kill(second)
    answer = agent.answer(running)

    third = lab.serving(other_than=second)
    assert answer["result"]["content"][0]["text"] == f"held by {third}"
    assert lab.log("slow") == ["held", "held"]
    assert agent.notes == []


@pytest.mark.slow
def test_a_request_that_kills_the_engine_is_sent_three_times_and_then_refused(lab: Lab) -> None:
    """Rule bridge.resend: at most two resends, then a JSON-RPC error; the next request is served again."""
    lab.start_engine()
    agent = lab.agent()

    answer = agent.tool("die", name="poison")

    assert answer["error"]["code"] == -32000
    assert lab.log("die") == ["poison"] * 3
    assert who(agent.tool("whoami"))["pid"] == lab.serving()


@pytest.mark.slow
def test_six_cold_bridges_share_one_engine(lab: Lab) -> None:
    """Rule engine.one: whoever starts at the same moment, one engine serves a data directory."""
    agents = [lab.agent(greet=False, CLAUDE_CODE_SESSION_ID=f"c{number}") for number in range(6)]
    for agent in agents:
        agent.greet()

    seen = [who(agent.tool("whoami")) for agent in agents]

    assert len({one["pid"] for one in seen}) == 1
    assert [one["conversation"] for one in seen] == [f"c{number}" for number in range(6)]
    assert lab.log("loaded") == [seen[0]["pid"]]


@pytest.mark.slow
def test_the_packaged_handshake_answers_while_no_engine_can_be_had(lab: Lab) -> None:
    """Rule bridge.handshake: the tools are there at once even when the engine fails to load."""
    for modern in (False, True):
        agent = lab.agent(modern=modern, LAB_FAIL="1")
        assert "save_memory" in agent.greeting["result"]["instructions"]
        assert "save_memory" in {tool["name"] for tool in agent.call("tools/list", {})["result"]["tools"]}
        error = agent.tool("whoami")["error"]
        assert error["message"].endswith("the lab store is damaged; run the lab doctor")


def test_an_engine_takes_over_from_the_handshake_file(lab: Lab) -> None:
    """Rule bridge.takeover: what the file answered is replayed, and the agent hears each answer once."""
    agent = lab.agent()

    assert agent.call("tools/list", {})["result"]["tools"]
    assert who(agent.tool("whoami"))["protocol"] == "2025-06-18"


@pytest.mark.slow
def test_stop_answers_what_is_in_work_and_leaves_nothing_behind(lab: Lab) -> None:
    """Rule engine.drain: SIGTERM and stop answer running calls, close the memory, and free the directory."""
    pid = lab.start_engine()
    agent = lab.agent()
    running = agent.start_tool("slow", name="last", ms=300)
    until(lambda: lab.log("slow"), "the call has begun")

    os.kill(pid, signal.SIGTERM)

    assert agent.answer(running)["result"]["content"][0]["text"] == f"last by {pid}"
    until(lambda: lab.log("ended") == [pid], "the memory is closed")
    until(lambda: not list((lab.data / "run").iterdir()), "socket and state file are gone")
    assert who(agent.tool("whoami"))["pid"] != pid


@pytest.mark.slow
def test_a_hung_engine_is_noticed_and_replaced(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule bridge.heartbeat: an engine that is stopped dead is ended, and the waiting request answered by the next."""
    first = lab.start_engine()
    agent = lab.agent()
    os.kill(first, signal.SIGSTOP)

    answer = agent.tool("whoami")

    assert who(answer)["pid"] == lab.serving(other_than=first)
    assert not Path(f"/proc/{first}").exists() or "Z" in Path(f"/proc/{first}/stat").read_text().split()[2]


@pytest.mark.slow
def test_an_idle_engine_ends_by_itself(lab: Lab) -> None:
    """Rule engine.idle: no bridge, no live context, the time is over: it closes the memory and goes."""
    pid = lab.start_engine(LAB_IDLE_S="0.2")

    until(lambda: lab.log("ended") == [pid], "it ended")

    assert engine.status(lab.data) is None


@pytest.mark.slow
def test_an_engine_whose_directory_was_deleted_goes(lab: Lab) -> None:
    """Rule engine.leak: nothing can reach it any more, so it must not stay behind."""
    pid = lab.start_engine(LAB_IDLE_S="1")

    def gone() -> bool:
        shutil.rmtree(lab.data, ignore_errors=True)  # the engine may be writing a file into it
        return not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2]

    until(gone, "the process has ended")


def test_only_the_owner_can_reach_the_engine(lab: Lab) -> None:
    """Rule engine.private: folder 0700, socket, state and logs 0600."""
    lab.start_engine()
    for path in [lab.data, lab.data / "run", lab.data / "logs"]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in [*(lab.data / "run").iterdir(), *(lab.data / "logs").iterdir()]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_over_loopback_a_connection_without_the_token_is_refused(lab: Lab) -> None:
    """Rule engine.token: where there are no Unix sockets, only who can read the state file gets an answer."""
    lab.start_engine(ANCHOR_WIRE="tcp")
    assert (engine.status(lab.data) or {})["ok"]
    agent = lab.agent()
    assert who(agent.tool("whoami"))["pid"] == lab.serving()

    link, state = wire.connect(str(lab.data))
    with link:
        link.settimeout(20)
        link.sendall(wire.greeting("status", wire.Preamble(), {"address": {"token": "0" * 64}}))
        assert link.recv(100) == b""
    assert "tcp" in state["address"]


@pytest.mark.slow
def test_a_data_directory_with_a_long_path_is_served(lab: Lab) -> None:
    """Rule engine.socket: a path longer than the kernel takes goes to a private folder."""
    lab.data = lab.data / ("深" * 40)
    lab.env["MEMORY_ANCHOR_DATA_DIR"] = str(lab.data)

    lab.start_engine()

    socket_path = Path((wire.read_state(str(lab.data)) or {})["address"]["unix"])
    assert stat.S_IMODE(socket_path.parent.stat().st_mode) == 0o700
    assert who(lab.agent().tool("whoami"))["pid"] == lab.serving()


def test_what_a_hook_left_on_disk_is_taken_in_once_by_the_next_engine(lab: Lab) -> None:
    """Rule hook.spool: undelivered hooks reach the memory in order, and their files go."""
    lab.data.mkdir(mode=0o700)
    caller = wire.Preamble(conversation="c1", nonce="n1")
    for event in ("PostCompact", "SessionEnd"):
        assert spool.keep(str(lab.data), caller, event, {"event": event})

    lab.start_engine()

    until(lambda: len(lab.log("hook")) == 2, "both are taken in")
    assert lab.log("hook") == ["PostCompact", "SessionEnd"]
    until(lambda: not list((lab.data / spool.FOLDER).iterdir()), "their files are gone")


def test_a_command_reaches_the_engine_and_reads_its_failures(lab: Lab) -> None:
    """Rule engine.call: a command's call runs in the engine for the command's project; our errors keep their code."""
    lab.start_engine()
    caller = wire.Preamble(project_dir="/p")

    answer = wire.ask(str(lab.data), "call", caller, timeout_s=20, name="echo", arguments={"a": "记忆"})
    failure = wire.ask(str(lab.data), "call", caller, timeout_s=20, name="nothing", arguments={})

    assert answer["result"] == {"echo": {"a": "记忆"}, "project": "/p"}
    assert failure["error"] == {"code": "bad_input", "message": "no call 'nothing'"}


@pytest.mark.slow
def test_a_store_that_something_else_holds_is_named(lab: Lab) -> None:
    """Rule engine.busy: when no engine but another program holds the lock, the agent reads who."""
    from memory_anchor.runtime.lock import DirectoryLock

    with DirectoryLock.acquire(lab.data, role="reindex"):
        agent = lab.agent(greet=False)
        answer = agent.call("tools/call", {"name": "whoami", "arguments": {}})

    assert f"pid {os.getpid()}" in answer["error"]["message"]
