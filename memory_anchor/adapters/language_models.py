"""Language models that fill a strict schema: one budgeted model over any server, Anthropic's Messages API, or none.

A structured answer is requested as one forced tool call whose input schema is the answer's: that works on every server
that speaks the Messages API, where the newer `output_config` format does not. The input is validated here all the
same; an answer as JSON text is accepted too. One deadline covers retries and backoff, and holds against a server that
drips bytes for ever: the call runs on a thread of its own and is abandoned when its time is up. After several failures
in a row a circuit opens, so that a dead server costs nothing. A counter that the caller passes in keeps the monthly
token budget, because where it is stored is not this module's business.

Invariants: every failure is `Unavailable`, in one sentence, without the key or any of the text; nothing is retried
that cannot get better (a refused key, a bad request); credentials come from arguments, never from the environment.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from memory_anchor.adapters.retries import retried
from memory_anchor.base.circuit import CircuitBreaker
from memory_anchor.base.files import write_atomic
from memory_anchor.base.json_values import Json
from memory_anchor.domain.errors import Unavailable
from memory_anchor.domain.ports import Clock, ModelUsage

if TYPE_CHECKING:
    import anthropic
    from pydantic import BaseModel

    from memory_anchor.domain.ports import Answer

ANTHROPIC_URL = "https://api.anthropic.com"
DEFAULT_MODEL = "claude-haiku-4-5"
MAX_OUTPUT_TOKENS = 4_096
MAX_ATTEMPTS = 3
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 8.0
LEAST_TIME_S = 0.05
"""With less than this left no further attempt is made."""
TOOL, TOOL_HELP = "answer", "Give the answer."
ANSWER_CHARS = 200_000


class TokenCounter:
    """Counts the tokens of each month (`2026-11`) and its calls for one process's life; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    def spent(self, month: str) -> int:
        with self._lock:
            return self._read().get(month, 0)

    def add(self, month: str, tokens: int) -> None:
        with self._lock:
            counts = self._read()
            calls = f"{month} calls"
            self._write({**counts, month: counts.get(month, 0) + tokens, calls: counts.get(calls, 0) + 1})

    def _read(self) -> dict[str, int]:
        return self._counts

    def _write(self, counts: dict[str, int]) -> None:
        self._counts = counts


class FileCounter(TokenCounter):
    """A counter in a small JSON file, replaced whole at each write; an unreadable file counts as nothing spent."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def _read(self) -> dict[str, int]:
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return {str(month): int(tokens) for month, tokens in stored.items()} if isinstance(stored, Mapping) else {}

    def _write(self, counts: dict[str, int]) -> None:
        write_atomic(self._path, json.dumps(counts).encode())


class NoModel:
    """No language model: a normal mode, in which rules do the work and results say so."""

    name = "none"

    def fill(self, shape: type[Answer], *, system: str, prompt: str, deadline_s: float) -> tuple[Answer, ModelUsage]:
        del shape, system, prompt, deadline_s
        raise Unavailable("No language model is set up; llm.kind may be anthropic, openai or command.")


@dataclass(frozen=True, slots=True)
class ModelQuestion:
    """What a model is asked. schema: the JSON Schema of its answer."""

    model: str
    system: str
    prompt: str
    schema: dict[str, Json]


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What a model answers. tool_input: of the tool it called, None where it called none and wrote `text`."""

    text: str
    tool_input: Json = None
    is_cut: bool = False
    input_tokens: int = 0
    output_tokens: int = 0


class ModelServer(Protocol):
    """What a question is sent to. Raises TransientFailure, Declined, or what its library raises."""

    def answer(self, question: ModelQuestion, timeout_s: float) -> ModelAnswer: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """monthly_token_budget: with 0 no model is ever asked; input and output count alike. now, sleep: seconds."""

    clock: Clock
    monthly_token_budget: int = 2_000_000
    counter: TokenCounter = field(default_factory=TokenCounter)
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def check_budget(self) -> None:
        """Raise Unavailable where the month's tokens are used up."""
        spent = self.counter.spent(self.month())
        if spent >= self.monthly_token_budget:
            raise Unavailable(
                f"The month's budget of {self.monthly_token_budget} tokens is used up ({spent}); llm.monthly_tokens "
                "sets it."
            )

    def month(self) -> str:
        return self.clock.now().strftime("%Y-%m")


class BudgetedModel:
    """A model on a server, with one deadline over retries, a circuit and a month's budget.

    url: where it is, and needs_key whether asking it without one is useless. connect: makes a connection; it is called
    again after a call that hung.
    """

    def __init__(
        self,
        name: str,
        limits: ModelLimits,
        *,
        url: str,
        connect: Callable[[], ModelServer],
        needs_key: bool = False,
    ) -> None:
        self.name = name
        self._limits = limits
        self._url = url
        self._connect = connect
        self._needs_key = needs_key
        self._circuit = CircuitBreaker(limits.now)
        self._client: ModelServer | None = None
        self._lock = threading.Lock()

    def fill(self, shape: type[Answer], *, system: str, prompt: str, deadline_s: float) -> tuple[Answer, ModelUsage]:
        """Return one validated answer within `deadline_s` seconds, retries included.

        Raises Unavailable: no key, no permission, no budget, circuit open, too late, or an answer that does not fit.
        """
        self._check_key()
        self._circuit.check(f"The language model {self.name}")
        self._limits.check_budget()
        ends = self._limits.now() + deadline_s
        question = ModelQuestion(self.name, system, prompt, _schema(shape))
        try:
            answer = self._with_retries(shape, question, ends)
        except Declined as declined:
            self._circuit.note(ok=True)  # the server works; asking again would not help
            raise Unavailable(str(declined)) from declined.__cause__
        except Unavailable:
            self._circuit.note(ok=False)
            raise
        self._circuit.note(ok=True)
        return answer

    def state(self) -> str:
        """Return what this asks and how much of the month's budget is spent. Raises Unavailable: it cannot ask now."""
        self._check_key()
        self._limits.check_budget()
        spent, budget = self._limits.counter.spent(self._limits.month()), self._limits.monthly_token_budget
        return f"{self.name} at {self._url}; {spent} of {budget} tokens this month"

    def _with_retries(self, shape: type[Answer], question: ModelQuestion, ends: float) -> tuple[Answer, ModelUsage]:
        try:
            return retried(
                partial(self._once, shape, question, ends),
                TransientFailure,
                attempts=MAX_ATTEMPTS,
                first_wait_s=FIRST_WAIT_S,
                longest_wait_s=LONGEST_WAIT_S,
                sleep=self._limits.sleep,
                may_wait=lambda wait_s: ends - self._limits.now() - wait_s >= LEAST_TIME_S,
            )
        except TransientFailure as failed:
            raise Unavailable(str(failed)) from failed.__cause__

    def _once(self, shape: type[Answer], question: ModelQuestion, ends: float) -> tuple[Answer, ModelUsage]:
        remaining_s = ends - self._limits.now()
        if remaining_s < LEAST_TIME_S:
            raise TransientFailure(f"The language model {self.name} did not answer in time.")
        message = self._ask(question, remaining_s)
        usage = ModelUsage(message.input_tokens, message.output_tokens, message.is_cut)
        self._limits.counter.add(self._limits.month(), usage.input_tokens + usage.output_tokens)
        return _answer(shape, message, self.name), usage

    def _ask(self, question: ModelQuestion, left: float) -> ModelAnswer:
        """Return the server's message; a call that takes longer than `left` seconds is abandoned on its thread."""
        with self._lock:
            client = self._client = self._client or self._connect()
        answers: list[ModelAnswer] = []
        errors: list[BaseException] = []

        def call() -> None:
            try:
                answers.append(client.answer(question, left))
            except Exception as error:
                errors.append(error)

        worker = threading.Thread(target=call, name="language-model", daemon=True)
        worker.start()
        worker.join(left)
        if worker.is_alive():
            self._drop(client)
            raise TransientFailure(f"The language model {self.name} did not answer in time.")
        if errors:
            raise _translated(errors[0], self.name)
        return answers[0]

    def _drop(self, client: ModelServer) -> None:
        """Close a client whose call hangs, which ends the call too; the next one gets a new connection pool."""
        with self._lock:
            if self._client is client:
                self._client = None
        threading.Thread(target=client.close, daemon=True).start()

    def _check_key(self) -> None:
        if self._needs_key:
            raise Unavailable("llm.api_key is not set, so the language model cannot be asked.")


class _Messages:
    """Anthropic's client, asked for one call of one tool."""

    def __init__(self, client: anthropic.Anthropic) -> None:
        self._client = client
        self.close = client.close

    def answer(self, question: ModelQuestion, timeout_s: float) -> ModelAnswer:
        message = self._client.messages.create(
            model=question.model,
            max_tokens=MAX_OUTPUT_TOKENS,
            system=question.system,
            messages=[{"role": "user", "content": question.prompt}],
            tools=[{"name": TOOL, "description": TOOL_HELP, "input_schema": {**question.schema}}],
            tool_choice={"type": "tool", "name": TOOL, "disable_parallel_tool_use": True},
            timeout=timeout_s,
        )
        # The library does not check what it read: other servers leave blocks, fields and usage out.
        blocks = getattr(message, "content", None) or []
        usage = getattr(message, "usage", None)
        counts = [getattr(usage, name, 0) for name in ("input_tokens", "output_tokens")]
        return ModelAnswer(
            "".join(getattr(block, "text", None) or "" for block in blocks),
            next((block.input for block in blocks if getattr(block, "type", "") == "tool_use"), None),
            getattr(message, "stop_reason", None) == "max_tokens",
            *(count if isinstance(count, int) else 0 for count in counts),
        )


class TransientFailure(Exception):
    """A failure that a retry may mend."""


class Declined(Exception):
    """A failure that a retry would not mend."""


def _schema(shape: type[BaseModel]) -> dict[str, Json]:
    schema = shape.model_json_schema()
    schema.pop("title", None)
    return schema


def _answer(shape: type[Answer], message: ModelAnswer, name: str) -> Answer:
    """Return the validated answer of a message: its tool input, else its text as JSON."""
    from pydantic import ValidationError

    called = message.tool_input
    try:
        if called is not None:
            return shape.model_validate(json.loads(complete_json(called)) if isinstance(called, str) else called)
        return shape.model_validate_json(complete_json(message.text))
    except (ValidationError, ValueError) as wrong:
        if message.is_cut:
            raise Declined(f"The language model {name} was cut off at {MAX_OUTPUT_TOKENS} tokens.") from None
        faults = wrong.error_count() if isinstance(wrong, ValidationError) else 1
        raise TransientFailure(
            f"The language model {name} gave an answer that does not fit {shape.__name__} ({faults} faults)."
        ) from None


def complete_json(text: str) -> str:
    """Return the JSON object in a text; of one that was cut off, its complete part with the brackets closed.

    >>> complete_json('Here: {"memories": [{"key": "a"}, {"key": "b"}, {"ke')
    '{"memories": [{"key": "a"}, {"key": "b"}]}'
    """
    start = text.find("{")
    if start < 0:
        return text
    open_brackets: list[str] = []
    end, closing = start, ""
    quoted = escaped = False
    for at in range(start, min(len(text), ANSWER_CHARS)):
        sign = text[at]
        if quoted:
            quoted, escaped = escaped or sign != '"', sign == "\\" and not escaped
        elif sign == '"':
            quoted = True
        elif sign in "{[":
            open_brackets.append("}" if sign == "{" else "]")
        elif sign in "}]" and open_brackets:
            open_brackets.pop()
            end, closing = at + 1, "".join(reversed(open_brackets))
            if not open_brackets:
                break
    return text[start:end] + closing


def _translated(error: BaseException, name: str) -> Exception:
    """Return our failure for the SDK's; its message, which may quote the request, stays out."""
    if isinstance(error, TransientFailure | Declined):
        return error
    import anthropic

    server = f"The server of the language model {name}"
    match error:
        case anthropic.APITimeoutError():
            ours: Exception = TransientFailure(f"The language model {name} did not answer in time.")
        case anthropic.APIConnectionError():
            ours = TransientFailure(f"{server} cannot be reached.")
        case anthropic.APIStatusError():
            ours = error_of_status(error.status_code, name)
        case _:
            ours = TransientFailure(f"{server} gave something that is no message.")
    ours.__cause__ = None
    return ours


def error_of_status(status: int, name: str) -> TransientFailure | Declined:
    """Return our failure for an HTTP status of the server that serves the model `name`."""
    server = f"The server of the language model {name}"
    if status in (401, 403):
        return Declined(f"The key for the language model {name} was refused ({status}); check llm.api_key.")
    if status == 404:
        return Declined(f"The server knows no language model {name} (404); check llm.model and llm.base_url.")
    if status == 429 or status >= 500:
        return TransientFailure(f"{server} is overloaded or broken ({status}).")
    return Declined(f"{server} refused the request ({status}).")


def anthropic_model(model: str, limits: ModelLimits, *, api_key: str = "", base_url: str = "") -> BudgetedModel:
    """Return a model behind the Messages API. base_url: another server that speaks it; it may need no key."""

    def connect() -> ModelServer:
        import anthropic

        # A key is always passed, so that the client never looks into the environment for one.
        return _Messages(anthropic.Anthropic(api_key=api_key or "none", base_url=url, max_retries=0))

    url = base_url or ANTHROPIC_URL
    needs_key = not api_key and url == ANTHROPIC_URL
    return BudgetedModel(model or DEFAULT_MODEL, limits, url=url, connect=connect, needs_key=needs_key)
