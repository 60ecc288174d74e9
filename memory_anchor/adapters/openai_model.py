"""A language model behind the chat completions API: OpenAI's, and every server that speaks it, local ones too.

What is bounded and refused is `AnthropicModel`'s business (deadline, retries, budget, circuit); here only the request
and the answer are put into the other words. The schema goes as a tool that must be called; a server that ignores tools
may answer in JSON text. Redirects are not followed, so that a key reaches nobody but the server that was named.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from memory_anchor.adapters.language_models import AnthropicModel, Declined, TransientFailure
from memory_anchor.json_values import Json, items, records

OPENAI_URL = "https://api.openai.com/v1"
ANSWER_BYTES = 4 * 1024 * 1024
STATUS_KEY, STATUS_UNKNOWN, STATUS_MANY, STATUS_BROKEN = (401, 403), 404, 429, 500
LOCAL = ("://127.0.0.1", "://localhost", "://[::1]")


class OpenAIModel(AnthropicModel):
    """A model by the name its server knows. base_url: up to and without `/chat/completions`."""

    home = OPENAI_URL

    def _opened(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = _Chat(self._url.rstrip("/"), self._key, self.name)
            return self._client


class _Chat:
    """Looks like the Messages API to its caller: `messages.create` and `close`."""

    def __init__(self, url: str, key: str, name: str) -> None:
        import httpx2

        local = any(sign in url for sign in LOCAL)
        self._http = httpx2.Client(trust_env=not local, follow_redirects=False)
        self._url, self._key, self._name = url, key, name
        self.messages = self

    def close(self) -> None:
        self._http.close()

    def create(self, *, timeout: float, **request: Any) -> Any:
        """Return the answer as a message. Raises TransientFailure, Declined."""
        import httpx2

        headers = {"authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            with self._http.stream(
                "POST", f"{self._url}/chat/completions", json=_asked(request), headers=headers, timeout=timeout
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


def _asked(request: Mapping[str, Json]) -> dict[str, Json]:
    (tool,) = records(request["tools"])
    function = {"name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]}
    return {
        "model": request["model"],
        "max_tokens": request["max_tokens"],
        "messages": [{"role": "system", "content": request["system"]}, *items(request["messages"])],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": tool["name"]}},
    }


def _message(body: bytes, name: str) -> Any:
    """Return a completion in the shape of a message: blocks, why it stopped, tokens."""
    import json

    try:
        answer = json.loads(body)
        choice = answer["choices"][0]
        said = choice["message"]
        calls = said.get("tool_calls") or []
        text = calls[0]["function"]["arguments"] if calls else said.get("content") or ""
        used = answer.get("usage") or {}
        usage = SimpleNamespace(
            input_tokens=int(used.get("prompt_tokens") or 0), output_tokens=int(used.get("completion_tokens") or 0)
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        raise TransientFailure(f"The server of the language model {name} gave something that is no message.") from None
    stop = "max_tokens" if choice.get("finish_reason") == "length" else "end_turn"
    return SimpleNamespace(content=[SimpleNamespace(type="text", text=str(text))], stop_reason=stop, usage=usage)
