"""A language model behind the chat completions API: OpenAI's, and every server that speaks it, local ones too.

What is bounded and refused is `AnthropicModel`'s business (deadline, retries, budget, circuit); here only the request
and the answer are put into the other words. The schema goes as a tool that must be called; a server that ignores tools
may answer in JSON text. Redirects are not followed, so that a key reaches nobody but the server that was named.
"""

from __future__ import annotations

from memory_anchor.adapters.language_models import (
    MAX_OUTPUT_TOKENS,
    TOOL,
    TOOL_HELP,
    AnthropicModel,
    Declined,
    ModelAnswer,
    ModelQuestion,
    ModelServer,
    TransientFailure,
)
from memory_anchor.json_values import Json, Record, items, parsed, record

OPENAI_URL = "https://api.openai.com/v1"
ANSWER_BYTES = 4 * 1024 * 1024
STATUS_KEY, STATUS_UNKNOWN, STATUS_MANY, STATUS_BROKEN = (401, 403), 404, 429, 500
LOCAL = ("://127.0.0.1", "://localhost", "://[::1]")


class OpenAIModel(AnthropicModel):
    """A model by the name its server knows. base_url: up to and without `/chat/completions`."""

    home = OPENAI_URL

    def _opened(self) -> ModelServer:
        with self._lock:
            if self._client is None:
                self._client = _Chat(self._url.rstrip("/"), self._key, self.name)
            return self._client


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
                "POST", f"{self._url}/chat/completions", json=_asked(question), headers=headers, timeout=timeout_s
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
        self._check(status)
        return _message(body, self._name)

    def _check(self, status: int) -> None:
        if status in STATUS_KEY:
            raise Declined(f"The key for the language model {self._name} was refused ({status}); check llm.api_key.")
        if status == STATUS_UNKNOWN:
            raise Declined(f"The server knows no language model {self._name} (404); check llm.model and llm.base_url.")
        if status == STATUS_MANY or status >= STATUS_BROKEN:
            raise TransientFailure(f"The server of the language model {self._name} is overloaded or broken ({status}).")
        if not 200 <= status < 300:
            raise Declined(f"The server of the language model {self._name} refused the request ({status}).")


def _asked(question: ModelQuestion) -> dict[str, Json]:
    function: Record = {"name": TOOL, "description": TOOL_HELP, "parameters": question.schema}
    return {
        "model": question.model,
        "max_tokens": MAX_OUTPUT_TOKENS,
        "messages": [{"role": "system", "content": question.system}, {"role": "user", "content": question.prompt}],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": TOOL}},
    }


def _message(body: bytes, name: str) -> ModelAnswer:
    """Return what a completion says."""
    try:
        completion = record(parsed(body))
        choice = record(items(completion["choices"])[0])
        said = record(choice["message"])
        calls = items(said.get("tool_calls"))
        answer = record(record(calls[0])["function"])["arguments"] if calls else said.get("content") or ""
        used = record(completion.get("usage"))
        tokens = [int(str(used.get(one) or 0)) for one in ("prompt_tokens", "completion_tokens")]
    except (ValueError, LookupError):
        raise TransientFailure(f"The server of the language model {name} gave something that is no message.") from None
    return ModelAnswer(str(answer), None, choice.get("finish_reason") == "length", *tokens)
