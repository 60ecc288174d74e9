"""Language models: the adapter against a real HTTP server that speaks the Messages API, well and badly."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from answering import Answering
from pydantic import BaseModel, Field

from memory_anchor.adapters.language_models import (
    BudgetedModel,
    FileCounter,
    ModelLimits,
    NoModel,
    anthropic_model,
    complete_json,
)
from memory_anchor.adapters.other_models import openai_model
from memory_anchor.base.circuit import FAILURES_TO_OPEN, OPEN_FOR_S
from memory_anchor.domain.errors import BadInput, Unavailable
from memory_anchor.process.app import make_model
from memory_anchor.testing import ManualClock, ScriptedLanguageModel

SECRET_TEXT = "my very private question"


class Verdict(BaseModel):
    outcome: str = Field(max_length=20)
    score: float = Field(ge=0, le=1)


GOOD = {"outcome": "added", "score": 0.5}


def message(block: dict[str, Any], stop: str = "tool_use") -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [block],
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 100, "output_tokens": 5},
    }


def called(value: dict[str, Any]) -> dict[str, Any]:
    return message({"type": "tool_use", "id": "toolu_1", "name": "answer", "input": value})


class Server:
    """Answers each request with the next step: a body, a status, `slow`, `drip` or `hang up`; the last one repeats."""

    def __init__(self) -> None:
        self.steps: list[Any] = []
        self.requests: list[dict[str, Any]] = []
        self.let_go = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                outer.requests.append({"path": self.path, "key": self.headers.get("authorization"), **json.loads(body)})
                step = outer.steps.pop(0) if len(outer.steps) > 1 else outer.steps[0]
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    outer.answer(self, step)

        self.http = Answering(Handler)
        self.url = self.http.url

    def answer(self, handler: BaseHTTPRequestHandler, step: Any) -> None:
        if step == "slow":
            self.let_go.wait(20)
        if step == "hang up":
            handler.connection.close()
            return
        status = step if isinstance(step, int) else 200
        body = json.dumps(step).encode() if isinstance(step, dict) else b'{"error": {"message": "no"}}'
        body = step if isinstance(step, bytes) else body
        handler.send_response(status)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", "1000000" if step == "drip" else str(len(body)))
        handler.end_headers()
        if step == "drip":
            while not self.let_go.wait(0.02):
                handler.wfile.write(b" ")
                handler.wfile.flush()
        else:
            handler.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.let_go.set()
    found.http.close()


class Time:
    """Seconds that only pass by sleeping."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


def limits(**options: Any) -> ModelLimits:
    passing = Time()
    return ModelLimits(**{"clock": ManualClock(), "now": passing.now, "sleep": passing.sleep, **options})


def model(server: Server, *, api_key: str = "k-test", **options: Any) -> BudgetedModel:
    return anthropic_model("tester-1", limits(**options), api_key=api_key, base_url=server.url)


def ask(asked: BudgetedModel, deadline_s: float = 20.0) -> Verdict:
    return asked.fill(Verdict, system="be brief", prompt=SECRET_TEXT, deadline_s=deadline_s)[0]


def refusal(asked: BudgetedModel, deadline_s: float = 20.0) -> str:
    with pytest.raises(Unavailable) as caught:
        ask(asked, deadline_s)
    text = str(caught.value)
    assert "k-test" not in text
    assert SECRET_TEXT not in text
    assert "\n" not in text
    return text


def test_the_schema_is_one_forced_tool_and_its_input_the_answer(server: Server) -> None:
    server.steps = [called(GOOD)]
    answer, usage = model(server).fill(Verdict, system="be brief", prompt="x", deadline_s=20)
    assert answer == Verdict(**GOOD)
    assert (usage.input_tokens, usage.output_tokens) == (100, 5)
    sent = server.requests[0]
    assert sent["path"] == "/v1/messages"
    assert sent["model"] == "tester-1"
    assert sent["key"] == "Bearer k-test"
    assert sent["tool_choice"]["name"] == sent["tools"][0]["name"]
    assert sent["tools"][0]["input_schema"]["required"] == ["outcome", "score"]


def test_a_server_that_ignores_tools_may_answer_in_json_text(server: Server) -> None:
    server.steps = [message({"type": "text", "text": f"Here you are: {json.dumps(GOOD)}"}, "end_turn")]
    assert ask(model(server)) == Verdict(**GOOD)


def test_an_answer_that_was_cut_off_is_read_as_far_as_it_is_whole(server: Server) -> None:
    """Rule capture.model: what came before the token limit is kept, and the usage says so."""
    cut = json.dumps(GOOD) + ', {"outcome": "add'
    server.steps = [message({"type": "text", "text": cut}, "max_tokens")]
    answer, usage = model(server).fill(Verdict, system="s", prompt="p", deadline_s=20)
    assert (answer, usage.cut) == (Verdict(**GOOD), True)
    assert complete_json('{"memories": [{"a": "}"}, {"b') == '{"memories": [{"a": "}"}]}'


def test_passing_failures_are_tried_again(server: Server) -> None:
    server.steps = [529, "hang up", called(GOOD)]
    assert ask(model(server)).outcome == "added"
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("step", "words", "requests"),
    [
        (401, "was refused", 1),
        (403, "was refused", 1),
        (404, "knows no language model", 1),
        (400, "refused the request", 1),
        (429, "overloaded", 3),
        (500, "overloaded or broken", 3),
        ("hang up", "cannot be reached", 3),
        (called({"outcome": "added", "score": 7}), "does not fit Verdict", 3),
        (message({"type": "text", "text": "I would rather not."}, "end_turn"), "does not fit Verdict", 3),
        (message({"type": "text", "text": ""}, "max_tokens"), "cut off", 1),
        (b"<html>", "does not fit|no message", 3),
        (b"", "does not fit|no message", 3),
    ],
)
def test_each_failure_is_one_sentence_and_hopeless_ones_are_not_repeated(
    server: Server, step: Any, words: str, requests: int
) -> None:
    """Rule: nonsense, no permission, a broken server: Unavailable, without key or text."""
    server.steps = [step]
    text = refusal(model(server))
    assert any(word in text for word in words.split("|")), text
    assert len(server.requests) == requests


@pytest.mark.parametrize("step", ["slow", "drip"])
def test_a_model_that_answers_too_late_or_never_is_left_behind(server: Server, step: str) -> None:
    """Rule: the deadline holds whatever the server does."""
    server.steps = [step]
    assert "in time" in refusal(model(server, now=time.monotonic, sleep=lambda _: None), deadline_s=0.3)


def test_a_server_that_keeps_failing_is_not_asked_until_a_while_has_passed(server: Server) -> None:
    """Rule: the circuit opens after several failures in a row and closes with the next success."""
    passing = Time()
    asked = model(server, now=passing.now, sleep=passing.sleep)
    server.steps = [500]
    for _ in range(FAILURES_TO_OPEN):
        refusal(asked)
    made = len(server.requests)
    assert "in a row" in refusal(asked)
    assert len(server.requests) == made
    passing.at += OPEN_FOR_S + 1
    server.steps = [called(GOOD)]
    assert ask(asked).outcome == "added"
    assert ask(asked).outcome == "added"


def test_the_months_budget_is_kept_over_processes(server: Server, tmp_path: Path) -> None:
    """Rule: input and output tokens count against the month; a new month begins anew."""
    server.steps = [called(GOOD)]
    clock = ManualClock()
    options = {"clock": clock, "monthly_token_budget": 200}
    ask(model(server, counter=FileCounter(tmp_path / "tokens.json"), **options))
    again = model(server, counter=FileCounter(tmp_path / "tokens.json"), **options)
    ask(again)
    assert "budget of 200 tokens" in refusal(again)
    clock.advance(days=31)
    assert ask(again).outcome == "added"


def test_without_a_key_only_another_server_is_asked(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule: credentials come from arguments, never from the environment."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k-from-the-environment")
    with pytest.raises(Unavailable, match="api_key is not set"):
        ask(anthropic_model("m", limits()))
    server.steps = [called(GOOD)]
    ask(model(server, api_key=""))
    assert server.requests[0]["key"] == "Bearer none"


def completion(message: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    usage = {"prompt_tokens": 100, "completion_tokens": 5}
    return {"choices": [{"message": {"role": "assistant", **message}, "finish_reason": finish}], "usage": usage}


def tool_call(arguments: str) -> dict[str, Any]:
    return {"content": None, "tool_calls": [{"type": "function", "function": {"name": "a", "arguments": arguments}}]}


def compatible(server: Server, **options: Any) -> BudgetedModel:
    return openai_model("local-7b", limits(**options), api_key="k-test", base_url=f"{server.url}/v1")


@pytest.mark.parametrize(
    "step",
    [
        completion(tool_call(json.dumps(GOOD)), "tool_calls"),
        completion({"content": f"Here you are: {json.dumps(GOOD)}"}),
        completion(tool_call(json.dumps(GOOD) + ', {"outcome": "ad'), "length"),
    ],
)
def test_any_server_that_speaks_chat_completions_may_answer(server: Server, step: dict[str, Any]) -> None:
    """Rule capture.model: kind openai is any compatible endpoint, also one that ignores tools or is cut off."""
    server.steps = [503, step]
    answer, usage = compatible(server).fill(Verdict, system="be brief", prompt="x", deadline_s=20)

    assert answer == Verdict(**GOOD)
    assert (usage.input_tokens, usage.output_tokens) == (100, 5)
    assert usage.cut == (step["choices"][0]["finish_reason"] == "length")
    sent = server.requests[-1]
    assert (sent["path"], sent["key"], sent["model"]) == ("/v1/chat/completions", "Bearer k-test", "local-7b")
    assert sent["tools"][0]["function"]["parameters"]["required"] == ["outcome", "score"]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (401, "check llm.api_key"),
        (404, "check llm.model"),
        (302, "refused the request"),
        ({"no": "choices"}, "no message"),
        (b"nonsense", "no message"),
        (completion({"content": "no JSON here"}), "does not fit"),
        (500, "overloaded or broken"),
    ],
)
def test_a_compatible_server_that_fails_is_one_sentence(server: Server, step: Any, words: str) -> None:
    """Rule capture.model: whatever the server does, Unavailable, without key or text."""
    server.steps = [step]
    assert words in refusal(compatible(server))


@pytest.mark.parametrize("step", ["slow", "drip"])
def test_a_compatible_server_that_is_too_late_is_left_behind(server: Server, step: str) -> None:
    server.steps = [step]
    assert "in time" in refusal(compatible(server, now=time.monotonic, sleep=lambda _: None), deadline_s=0.3)


def test_openai_needs_the_name_of_a_model() -> None:
    with pytest.raises(BadInput, match=r"llm\.model"):
        make_model("openai", limits())
    assert make_model("openai", limits(), model="m").name == "m"


def test_no_model_says_so() -> None:
    with pytest.raises(Unavailable, match="No language model"):
        NoModel().fill(Verdict, system="", prompt="", deadline_s=1)
    assert make_model("none", limits()).name == "none"
    assert make_model("anthropic", limits(), model="m").name == "m"


def test_the_scripted_model_keeps_the_ports_promises() -> None:
    scripted = ScriptedLanguageModel(GOOD, {"outcome": 3}, Unavailable("gone"))
    assert scripted.fill(Verdict, system="s", prompt="p", deadline_s=1)[0] == Verdict(**GOOD)
    for _ in range(2):
        with pytest.raises(Unavailable):
            scripted.fill(Verdict, system="s", prompt="p", deadline_s=1)
    assert scripted.asked[0] == "s\np"
