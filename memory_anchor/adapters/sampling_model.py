"""The MCP client's own model: the client is asked, while it waits for the answer to a call of its own.

Only where the client says that it offers sampling, and only in the calls a front end offers it for: reading a
conversation. A save, a search and a job have nobody to ask, so rules decide there. What is bounded and refused is
`AnthropicModel`'s business; a client may let its user refuse, which is not asked again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from memory_anchor.adapters.command_model import CHARS_A_TOKEN, answer_in
from memory_anchor.adapters.language_models import AnthropicModel, Declined, TransientFailure
from memory_anchor.errors import Unavailable
from memory_anchor.json_values import Json, records, text, whole
from memory_anchor.sampling import ClientQuestion, client_offered

NAME = "sampling"
ANSWER_CHARS = 400_000


class SamplingModel(AnthropicModel):
    """The model of whichever client is served."""

    home = ""

    def __init__(self, **more: Any) -> None:
        super().__init__(NAME, **more)
        self._url = "sampling:"

    def state(self) -> str:
        """Return what is left of the month. Raises Unavailable: nothing is."""
        self._check_budget()
        spent = self._counter.spent(self._month())
        return (
            f"the MCP client's own, asked only while it has a conversation read; {spent} of {self._budget} tokens spent"
        )

    def _ask(self, request: Mapping[str, Json], left: float) -> Any:
        client = client_offered()
        if client is None:
            raise Declined("The language model is the MCP client's own, and this is no call in which one can be asked.")
        (tool,), (message,) = records(request["tools"]), records(request["messages"])
        question = text(message["content"])
        schema = json.dumps(tool["input_schema"], ensure_ascii=False)
        task = f"{request['system']}\n\nAnswer with one JSON object alone that fits this JSON Schema:\n{schema}"
        try:
            said, cut = client(ClientQuestion(task, question, whole(request["max_tokens"]), left))
        except TimeoutError:
            raise Declined("The MCP client's model did not answer in time.") from None
        except (Declined, TransientFailure, Unavailable):
            raise
        except Exception:
            raise Declined("The MCP client did not let its model be asked.") from None
        answer = said[:ANSWER_CHARS] if cut else answer_in(said[:ANSWER_CHARS])
        used = SimpleNamespace(
            input_tokens=(len(task) + len(question)) // CHARS_A_TOKEN,
            output_tokens=len(said) // CHARS_A_TOKEN,
        )
        block = SimpleNamespace(type="text", text=answer)
        return SimpleNamespace(content=[block], stop_reason="max_tokens" if cut else "end_turn", usage=used)
