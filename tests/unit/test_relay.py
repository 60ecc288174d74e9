"""The bridge's state machine: lines in, lines out; both protocol eras; one answer for each request, whatever dies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from figures import figure
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_anchor.runtime.relay import MAX_SENDS, UNAVAILABLE, Relay, known_result
from memory_anchor.runtime.wire import HOOK_TOOL

HANDSHAKE = {
    "latest": "2025-11-25",
    "versions": {
        "2025-06-18": {"initialize": 0, "tools/list": 2},
        "2025-11-25": {"initialize": 1, "tools/list": 2},
        "2026-07-28": {"server/discover": 3, "tools/list": 4},
    },
    "results": [{"v": "06"}, {"v": "11"}, {"tools": ["old"]}, {"modern": True}, {"tools": ["new"]}],
}


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def answer(request: int | str) -> bytes:
    return line(id=request, result={})


def initialize(version: str = "2025-06-18") -> bytes:
    return line(id=0, method="initialize", params={"protocolVersion": version})


INITIALIZED = line(method="notifications/initialized")
CALL = line(id=1, method="tools/call", params={"name": "save_memory"})


def test_a_request_passes_at_once_while_an_engine_serves_and_waits_while_none_does() -> None:
    """Rule relay.order: nothing is lost and nothing overtakes."""
    relay = Relay()
    assert relay.from_client(CALL) == (None, None)
    assert relay.engine_ready() == [CALL]
    later = line(id=2, method="ping")
    assert relay.from_client(later) == (later, None)


def test_a_hook_over_the_connection_waits_for_no_engine_and_starts_none() -> None:
    """Rule relay.hooks: while no engine serves it says nothing at once, and so it does when one is lost."""
    relay = Relay()
    hook = line(id=7, method="tools/call", params={"name": HOOK_TOOL, "arguments": {"event": "PreToolUse"}})
    onward, back = relay.from_client(hook)
    assert onward is None and json.loads(back or b"")["result"] == {"content": []}
    assert relay.unanswered() == 0
    relay.engine_ready()
    assert relay.from_client(hook) == (hook, None)
    assert [json.loads(one)["result"] for one in relay.engine_lost()] == [{"content": []}]
    assert relay.engine_ready() == []


def test_a_new_engine_hears_the_handshake_and_the_agent_does_not_hear_it_twice() -> None:
    """Rule relay.replay: initialize is replayed, its second answer swallowed; then come the unanswered requests."""
    relay = Relay()
    relay.engine_ready()
    relay.from_client(initialize())
    assert relay.from_engine(answer(0)) == answer(0)
    relay.from_client(INITIALIZED)
    relay.from_client(CALL)

    assert relay.engine_lost() == []
    assert relay.engine_ready() == [initialize(), INITIALIZED, CALL]
    assert relay.from_engine(answer(0)) is None
    assert relay.from_engine(answer(1)) == answer(1)


def test_the_modern_era_has_nothing_to_replay() -> None:
    """Rule relay.replay: without an initialize only the unanswered requests are resent."""
    relay = Relay()
    relay.engine_ready()
    relay.from_client(CALL)
    relay.engine_lost()
    assert relay.engine_ready() == [CALL]


def test_a_request_is_sent_three_times_and_then_fails_as_json_rpc() -> None:
    """Rule bridge.resend: what ends three engines is refused; what came with it only once goes on."""
    relay = Relay()
    relay.from_client(CALL)
    for _ in range(MAX_SENDS - 1):
        relay.engine_ready()
        assert relay.engine_lost() == []
    relay.engine_ready()
    innocent = line(id=2, method="tools/list")
    relay.from_client(innocent)

    (error,) = relay.engine_lost()

    assert json.loads(error)["id"] == 1
    assert json.loads(error)["error"]["code"] == UNAVAILABLE
    assert relay.engine_ready() == [innocent]


def test_an_orderly_end_does_not_count_against_a_request() -> None:
    """Rule bridge.handover: an engine that says goodbye was not ended by what it left unanswered."""
    relay = Relay()
    relay.from_client(CALL)
    for _ in range(10):
        assert relay.engine_ready() == [CALL]
        assert relay.engine_lost(orderly=True) == []


def test_listening_is_resumed_for_ever_and_subscriptions_are_renewed() -> None:
    """Rule relay.subscriptions: a listening request never counts; an old subscription is asked again, unheard."""
    relay = Relay()
    relay.engine_ready()
    relay.from_client(initialize())
    relay.from_engine(answer(0))
    listen = line(id=7, method="subscriptions/listen", params={})
    relay.from_client(listen)
    relay.from_client(line(id=8, method="resources/subscribe", params={"uri": "memory://stats"}))
    relay.from_engine(answer(8))
    for _ in range(6):
        assert relay.engine_lost() == []
        _, subscribe, last = relay.engine_ready()
        assert last == listen
        assert json.loads(subscribe)["params"] == {"uri": "memory://stats"}
        assert relay.from_engine(answer(json.loads(subscribe)["id"])) is None


def test_a_cancelled_request_is_not_resent_and_an_answer_to_a_dead_engine_is_dropped() -> None:
    """Rule relay.generations: what belonged to one engine never reaches the next."""
    relay = Relay()
    relay.engine_ready()
    relay.from_client(CALL)
    relay.from_client(line(method="notifications/cancelled", params={"requestId": 1}))
    elicit = line(id="e1", method="elicitation/create", params={})
    assert relay.from_engine(elicit) == elicit
    relay.engine_lost()
    assert relay.engine_ready() == []
    assert relay.from_client(answer("e1")) == (None, None)

    assert relay.from_engine(elicit) == elicit
    assert relay.from_client(answer("e1")) == (answer("e1"), None)


def test_the_handshake_file_answers_each_era_in_its_own_words() -> None:
    """Rule bridge.handshake: by the version the agent speaks; a call is never answered from it."""
    relay = Relay(HANDSHAKE)
    relay.from_client(initialize())
    assert [json.loads(message)["result"] for message in relay.from_handshake()] == [{"v": "06"}]
    relay.from_client(line(id=1, method="tools/list"))
    relay.from_client(line(id=2, method="tools/call", params={"name": "x"}))
    assert [json.loads(message)["result"] for message in relay.from_handshake()] == [{"tools": ["old"]}]
    assert list(relay.waiting) == [2]

    modern = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
    assert known_result(HANDSHAKE, {"method": "server/discover", "params": modern}, "") == {"modern": True}
    assert known_result(HANDSHAKE, {"method": "tools/list", "params": modern}, "") == {"tools": ["new"]}
    assert known_result(HANDSHAKE, {"method": "tools/list", "params": {**modern, "cursor": "2"}}, "") is None
    unknown = {"method": "initialize", "params": {"protocolVersion": "1999-01-01"}}
    assert known_result(HANDSHAKE, unknown, "") == {"v": "11"}


def test_what_is_no_json_rpc_is_answered_and_not_forwarded() -> None:
    """Rule bridge.input: broken lines and batches get an error with a null id."""
    relay = Relay()
    relay.engine_ready()
    for raw in (b"{broken\n", b"[]\n", b"3\n", b"[" * 100_000 + b"\n"):
        onward, back = relay.from_client(raw)
        assert onward is None
        assert json.loads(back or b"")["id"] is None


@settings(max_examples=figure(60, 200), deadline=None)
@given(st.lists(st.sampled_from(["ask", "answer", "lost", "bye", "ready", "give up", "file"]), max_size=60))
def test_every_request_gets_exactly_one_answer(steps: list[str]) -> None:
    """Law: over any order of losses, returns and answers no request is answered twice or forgotten."""
    relay = Relay(HANDSHAKE)
    asked, answered = 0, []

    def heard(lines: list[bytes]) -> None:
        answered.extend(json.loads(line)["id"] for line in lines)

    for step in steps:
        if step == "ask":
            asked += 1
            relay.from_client(line(id=asked, method="tools/call", params={}))
        elif step == "answer" and relay.ready and relay.waiting:
            sent = relay.from_engine(answer(next(iter(relay.waiting))))
            heard([sent] if sent else [])
        elif step in ("lost", "bye") and relay.ready:
            heard(relay.engine_lost(orderly=step == "bye"))
        elif step == "ready" and not relay.ready:
            relay.engine_ready()
        elif step == "give up" and not relay.ready:
            heard(relay.give_up("gone"))
        elif step == "file":
            heard(relay.from_handshake())
    assert len(answered) == len(set(answered))
    assert set(answered) | set(relay.waiting) == set(range(1, asked + 1))


@pytest.mark.parametrize("request_id", [1, 0, -3, 2**62, "x", "", "1", "a b", 'q"uote', "back\\slash", "长", "a" * 300])
@pytest.mark.parametrize("spacing", [(",", ":"), (", ", ": ")])
@pytest.mark.parametrize("kind", [{"result": {"id": 9, "method": "x"}}, {"error": {"code": -32000, "message": "no"}}])
def test_whose_answer_a_line_is_does_not_depend_on_how_it_is_written(request_id, spacing, kind):
    """Rule: an answer goes back as it came, once, to the request of its id: a number and its text are two ids."""
    relay = Relay()
    relay.engine_ready()
    relay.from_client(line(id=request_id, method="tools/call", params={}))
    other = "1" if request_id == 1 else 1
    answer = (json.dumps({"jsonrpc": "2.0", "id": request_id, **kind}, separators=spacing) + "\n").encode()
    foreign = (json.dumps({"jsonrpc": "2.0", "id": other, **kind}, separators=spacing) + "\n").encode()
    assert request_id == other or relay.from_engine(foreign) is None
    assert relay.from_engine(answer) == answer
    assert relay.from_engine(answer) is None
    assert not relay.waiting


def test_a_request_of_the_engine_is_no_answer_though_it_has_an_id():
    """Rule: what the engine asks the client passes, and its answer goes to the engine that asked."""
    relay = Relay()
    relay.engine_ready()
    asked = b'{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"result":1}}\n'
    assert relay.from_engine(asked) == asked
    sent = line(id=1, result={})
    assert relay.from_client(sent) == (sent, None)
