"""A language model that is a program: a client the user has anyway (`claude -p`, `codex exec`), or any other.

The program gets the task, the answer's JSON Schema and the text on its standard input, and prints JSON; around it may
stand other words (a log, a client's own envelope with `result`). What is bounded and refused is `AnthropicModel`'s
business, but for three things: it only runs behind (jobs, hooks that were answered), since it takes many seconds and
may itself ask this memory; so many times a day; with so much text.

It runs in an empty folder of its own with `MEMORY_ANCHOR_READ_ONLY`, so that the hooks of a client that is asked learn
nothing from the question. No shell reads the command. Rejected: the prompt as an argument, which every process of the
machine can read.
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

from memory_anchor.adapters.language_models import (
    AnthropicModel,
    Declined,
    ModelAnswer,
    ModelQuestion,
    TokenCounter,
    TransientFailure,
)
from memory_anchor.errors import Unavailable
from memory_anchor.foreground import is_behind
from memory_anchor.ports import Clock, ModelUsage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memory_anchor.ports import Answer

PROMPT_BYTES, ANSWER_BYTES = 256 * 1024, 4 * 1024 * 1024
CHARS_A_TOKEN = 4
KEPT_ENV = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TERM", "TMPDIR", "SYSTEMROOT", "USERPROFILE")
"""What the program sees of the engine's environment, and what begins as its own settings do (`OWN_ENV`)."""
OWN_ENV = ("XDG_", "CLAUDE_CONFIG", "ANTHROPIC_", "OPENAI_", "CODEX_HOME", "SSL_", "HTTP_PROXY", "HTTPS_PROXY")
ENVELOPES = ("result", "response", "content", "output")


class CommandModel(AnthropicModel):
    """A program by its command line. runs_a_day: how often it may be started."""

    home = ""

    def __init__(
        self,
        command: str,
        *,
        runs_a_day: int,
        clock: Clock,
        monthly_token_budget: int = 2_000_000,
        counter: TokenCounter | None = None,
    ) -> None:
        self._argv = shlex.split(command)
        name = os.path.basename(self._argv[0]) if self._argv else "command"  # noqa: PTH119
        super().__init__(name, clock=clock, monthly_token_budget=monthly_token_budget, counter=counter)
        self._url = "command:"
        self._runs_a_day = runs_a_day

    @property
    def program(self) -> str | None:
        """Where the program is, None where it is not found."""
        return shutil.which(self._argv[0]) if self._argv else None

    @property
    def runs_left(self) -> int:
        """How many more runs today has."""
        return max(0, self._runs_a_day - self._counter.spent(self._today()))

    def state(self) -> str:
        """Return the program and what is left of today. Raises Unavailable: it could not be started now."""
        self._check_program()
        self._check_budget()
        return f"{self.program}, behind only; {self.runs_left} of {self._runs_a_day} runs left today"

    def fill(self, shape: type[Answer], *, system: str, prompt: str, deadline_s: float) -> tuple[Answer, ModelUsage]:
        """As every model's. Raises Unavailable besides: not behind, too long a text, no run left today."""
        if not is_behind():
            raise Unavailable(f"The language model {self.name} is a command, which only jobs and answered hooks run.")
        self._check_program()
        if len((system + prompt).encode()) > PROMPT_BYTES:
            raise Unavailable(f"The text for the language model {self.name} has more than {PROMPT_BYTES} bytes.")
        if not self.runs_left:
            raise Unavailable(f"The {self._runs_a_day} runs of {self.name} for today are used up; llm.runs_a_day.")
        return super().fill(shape, system=system, prompt=prompt, deadline_s=deadline_s)

    def _check_program(self) -> None:
        if self.program is None:
            raise Unavailable(f"llm.command names {self.name!r}, which is no program on the PATH of the engine.")

    def _today(self) -> str:
        return self._clock.now().strftime("runs %Y-%m-%d")

    def _opened(self) -> CommandModel:
        return self

    def answer(self, question: ModelQuestion, timeout_s: float) -> ModelAnswer:
        """Return what the program says. Raises TransientFailure, Declined."""
        self._counter.add(self._today(), 1)
        return _run(self._argv, question, timeout_s=timeout_s, name=self.name)

    def close(self) -> None:
        """Nothing is held between two questions."""


def _run(argv: list[str], question: ModelQuestion, *, timeout_s: float, name: str) -> ModelAnswer:
    asked = _asked(question)
    env = {one: value for one, value in os.environ.items() if one in KEPT_ENV or one.startswith(OWN_ENV)}
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
            said, _ = process.communicate(asked.encode(), timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise TransientFailure(f"The command {name} did not answer in time.") from None
        finally:
            _end(process)
    if process.returncode:
        raise TransientFailure(f"The command {name} ended with {process.returncode}.")
    text = answer_in(said[:ANSWER_BYTES].decode("utf-8", "replace"))
    return ModelAnswer(text, input_tokens=len(asked) // CHARS_A_TOKEN, output_tokens=len(said) // CHARS_A_TOKEN)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program and what it started, if it still runs."""
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


def _asked(question: ModelQuestion) -> str:
    schema = json.dumps(question.schema, ensure_ascii=False)
    return (
        f"{question.system}\n\nAnswer with one JSON object alone, without a word around it, that fits this JSON "
        f"Schema; use no tool:\n{schema}\n\n{question.prompt}"
    )


def answer_in(text: str) -> str:
    """Return the last JSON object that a program printed, out of the envelope some clients put around it.

    >>> answer_in('warming up {0} done\\n{"type": "result", "result": "{\\\\"memories\\\\": []}"}')
    '{"memories": []}'
    """
    decoder, at, last = json.JSONDecoder(), 0, ""
    while (at := text.find("{", at)) >= 0:
        try:
            found, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        last, at = text[at:end], end
        inner = next((found[one] for one in ENVELOPES if isinstance(found.get(one), str)), None)
        if inner is not None and "{" in inner:
            last = answer_in(inner) or last
    return last or text
