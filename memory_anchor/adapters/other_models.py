"""Language models that are not Anthropic's API: chat completions, and a program.

Limits and refusals (deadline, retries, budget, circuit) are `BudgetedModel`'s; here is only what differs.

- `openai_model`: the chat completions API, OpenAI's and that of every server that speaks it. The schema is sent as a
  tool that must be called; a server that ignores tools may answer in JSON text. Redirects are not followed, so that a
  key reaches nobody but the server that was named.
- `CommandModel`: a client the user has anyway (`claude -p`, `codex exec`), or any other program. It gets the task, the
  answer's JSON Schema and the text on its standard input, and prints JSON, maybe among other words (a log, a client's
  own envelope with `result`). It takes many seconds and may itself ask this memory, so it only runs in the background
  (jobs, hooks that were answered), so many times a day, with so much text. It runs in an empty folder of its own with
  `MEMORY_ANCHOR_READ_ONLY`, so that the hooks of the client learn nothing from the question. No shell reads the
  command. Rejected: the prompt as an argument, which every process of the machine can read.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from functools import partial

from memory_anchor.adapters.language_models import (
    MAX_OUTPUT_TOKENS,
    TOOL,
    TOOL_HELP,
    BudgetedModel,
    Declined,
    ModelAnswer,
    ModelLimits,
    ModelQuestion,
    TransientFailure,
    error_of_status,
)
from memory_anchor.base.json_values import Json, Record, items, parsed, record
from memory_anchor.base.request_gate import is_background
from memory_anchor.domain.errors import Unavailable
from memory_anchor.domain.ports import ModelUsage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memory_anchor.domain.ports import Answer

OPENAI_URL = "https://api.openai.com/v1"
ANSWER_BYTES = 4 * 1024 * 1024
LOCAL = ("://127.0.0.1", "://localhost", "://[::1]")


def openai_model(name: str, limits: ModelLimits, *, api_key: str = "", base_url: str = "") -> BudgetedModel:
    """Return a model by the name its server knows. base_url: up to and without `/chat/completions`."""
    url = base_url or OPENAI_URL
    needs_key = not api_key and url == OPENAI_URL
    connect = partial(_Chat, url.rstrip("/"), api_key, name)
    return BudgetedModel(name, limits, url=url, connect=connect, needs_key=needs_key)


class _Chat:
    """The server, asked for one call of one tool."""

    def __init__(self, url: str, key: str, name: str) -> None:
        import httpx2

        local = any(sign in url for sign in LOCAL)
        self._http = httpx2.Client(trust_env=not local, follow_redirects=False)
        self._url, self._key, self._name = url, key, name

    def close(self) -> None:
        self._http.close()

    def answer(self, question: ModelQuestion, timeout_s: float) -> ModelAnswer:
        import httpx2

        headers = {"authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            with self._http.stream(
                "POST", f"{self._url}/chat/completions", json=_as_messages(question), headers=headers, timeout=timeout_s
            ) as response:
                body = b""
                for part in response.iter_bytes():
                    body += part
                    if len(body) > ANSWER_BYTES:
                        raise Declined(f"The language model {self._name} answered more than {ANSWER_BYTES} bytes.")
                status = response.status_code
        except httpx2.TimeoutException:
            raise TransientFailure(f"The language model {self._name} did not answer in time.") from None
        except httpx2.HTTPError:
            raise TransientFailure(f"The server of the language model {self._name} cannot be reached.") from None
        if not 200 <= status < 300:
            raise error_of_status(status, self._name)
        return _message(body, self._name)


def _as_messages(question: ModelQuestion) -> dict[str, Json]:
    function: Record = {"name": TOOL, "description": TOOL_HELP, "parameters": question.schema}
    return {
        "model": question.model,
        "max_tokens": MAX_OUTPUT_TOKENS,
        "messages": [{"role": "system", "content": question.system}, {"role": "user", "content": question.prompt}],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": TOOL}},
    }


def _message(body: bytes, name: str) -> ModelAnswer:
    """Return the answer in a completion."""
    try:
        completion = record(parsed(body))
        choice = record(items(completion["choices"])[0])
        message = record(choice["message"])
        calls = items(message.get("tool_calls"))
        answer = record(record(calls[0])["function"])["arguments"] if calls else message.get("content") or ""
        usage = record(completion.get("usage"))
        tokens = [int(str(usage.get(name) or 0)) for name in ("prompt_tokens", "completion_tokens")]
    except (ValueError, LookupError):
        raise TransientFailure(f"The server of the language model {name} gave something that is no message.") from None
    return ModelAnswer(str(answer), None, choice.get("finish_reason") == "length", *tokens)


PROMPT_BYTES, OUTPUT_BYTES = 256 * 1024, 4 * 1024 * 1024
CHARS_A_TOKEN = 4
PASSED_ENV = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TERM",
    "TMPDIR",
    "SYSTEMROOT",
    "USERPROFILE",
)
"""Variables of the engine's environment that the program gets, besides its own settings (prefixes in `OWN_ENV`)."""
OWN_ENV = ("XDG_", "CLAUDE_CONFIG", "ANTHROPIC_", "OPENAI_", "CODEX_HOME", "SSL_", "HTTP_PROXY", "HTTPS_PROXY")
ENVELOPES = ("result", "response", "content", "output")


class CommandModel:
    """A program by its command line. runs_a_day: how often it may be started."""

    def __init__(self, command: str, limits: ModelLimits, *, runs_a_day: int) -> None:
        self._argv = shlex.split(command)
        self.name = os.path.basename(self._argv[0]) if self._argv else "command"  # noqa: PTH119
        self._limits = limits
        self._runs_a_day = runs_a_day
        self._model = BudgetedModel(self.name, limits, url="command:", connect=lambda: self)

    @property
    def program(self) -> str | None:
        """The program's path, None where it is not found."""
        return shutil.which(self._argv[0]) if self._argv else None

    @property
    def runs_left(self) -> int:
        """How many runs are left today."""
        return max(0, self._runs_a_day - self._limits.counter.spent(self._today()))

    def state(self) -> str:
        """Return the program and how many runs are left today. Raises Unavailable: it cannot be started now."""
        self._check_program()
        self._limits.check_budget()
        return f"{self.program}, behind only; {self.runs_left} of {self._runs_a_day} runs left today"

    def fill(self, shape: type[Answer], *, system: str, prompt: str, deadline_s: float) -> tuple[Answer, ModelUsage]:
        """Return a validated answer. Raises Unavailable also: in the foreground, text too long, no run left."""
        if not is_background():
            raise Unavailable(f"The language model {self.name} is a command, which only jobs and answered hooks run.")
        self._check_program()
        if len((system + prompt).encode()) > PROMPT_BYTES:
            raise Unavailable(f"The text for the language model {self.name} has more than {PROMPT_BYTES} bytes.")
        if not self.runs_left:
            raise Unavailable(f"The {self._runs_a_day} runs of {self.name} for today are used up; llm.runs_a_day.")
        return self._model.fill(shape, system=system, prompt=prompt, deadline_s=deadline_s)

    def _check_program(self) -> None:
        if self.program is None:
            raise Unavailable(f"llm.command names {self.name!r}, which is no program on the PATH of the engine.")

    def _today(self) -> str:
        return self._limits.clock.now().strftime("runs %Y-%m-%d")

    def answer(self, question: ModelQuestion, timeout_s: float) -> ModelAnswer:
        """Return what the program prints. Raises TransientFailure, Declined."""
        self._limits.counter.add(self._today(), 1)
        return _run(self._argv, question, timeout_s=timeout_s, name=self.name)

    def close(self) -> None:
        """Do nothing: no process outlives its question."""


def _run(argv: list[str], question: ModelQuestion, *, timeout_s: float, name: str) -> ModelAnswer:
    schema = json.dumps(question.schema, ensure_ascii=False)
    prompt = (
        f"{question.system}\n\nAnswer with one JSON object alone, without a word around it, that fits this JSON "
        f"Schema; use no tool:\n{schema}\n\n{question.prompt}"
    )
    env = {name: value for name, value in os.environ.items() if name in PASSED_ENV or name.startswith(OWN_ENV)}
    env["MEMORY_ANCHOR_READ_ONLY"] = "1"
    with tempfile.TemporaryDirectory(prefix="memory-anchor-model-") as folder:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=env,
                cwd=folder,
                start_new_session=True,
            )
        except OSError as error:
            raise Declined(f"The command {name} cannot be started ({error.strerror}); check llm.command.") from None
        try:
            printed, _ = process.communicate(prompt.encode(), timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise TransientFailure(f"The command {name} did not answer in time.") from None
        finally:
            _end(process)
    if process.returncode:
        raise TransientFailure(f"The command {name} ended with {process.returncode}.")
    text = last_json_object(printed[:OUTPUT_BYTES].decode("utf-8", "replace"))
    return ModelAnswer(text, input_tokens=len(prompt) // CHARS_A_TOKEN, output_tokens=len(printed) // CHARS_A_TOKEN)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the program and what it started, if it still runs."""
    if process.poll() is not None:
        return
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    process.wait()


def last_json_object(text: str) -> str:
    """Return the last JSON object that a program printed, out of the envelope some clients put around it.

    >>> last_json_object('warming up {0} done\\n{"type": "result", "result": "{\\\\"memories\\\\": []}"}')
    '{"memories": []}'
    """
    decoder, at, last = json.JSONDecoder(), 0, ""
    while (at := text.find("{", at)) >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        last, at = text[at:end], end
        inner = next((value[name] for name in ENVELOPES if isinstance(value.get(name), str)), None)
        if inner is not None and "{" in inner:
            last = last_json_object(inner) or last
    return last or text
