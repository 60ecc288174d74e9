"""The MCP client's own model: the client is asked, while it waits for the answer to a call of its own.

Only where the client says that it offers sampling, and only in the calls a front end offers it for: reading a
conversation. A save, a search and a job have nobody to ask, so rules decide there. What is bounded and refused is
`AnthropicModel`'s business; a client may let its user refuse, which is not asked again.
"""

from __future__ import annotations

import json

from memory_anchor.adapters.command_model import CHARS_A_TOKEN, answer_in
from memory_anchor.adapters.language_models import (
    MAX_OUTPUT_TOKENS,
    AnthropicModel,
    Declined,
    ModelAnswer,
    ModelQuestion,
    TokenCounter,
    TransientFailure,
)
from memory_anchor.errors import Unavailable
from memory_anchor.ports import Clock
from memory_anchor.sampling import ClientQuestion, client_offered

NAME = "sampling"
ANSWER_CHARS = 400_000


class SamplingModel(AnthropicModel):
    """The model of whichever client is served."""

    home = ""

    def __init__(
        self, *, clock: Clock, monthly_token_budget: int = 2_000_000, counter: TokenCounter | None = None
    ) -> None:
        super().__init__(NAME, clock=clock, monthly_token_budget=monthly_token_budget, counter=counter)
        self._url = "sampling:"

    def state(self) -> str:
        """Return what is left of the month. Raises Unavailable: nothing is."""
        self._check_budget()
        spent = self._counter.spent(self._month())
        return (
            f"the MCP client's own, asked only while it has a conversation read; {spent} of {self._budget} tokens spent"
        )

    def _ask(self, question: ModelQuestion, left: float) -> ModelAnswer:
        client = client_offered()
        if client is None:
            raise Declined("The language model is the MCP client's own, and this is no call in which one can be asked.")
        schema = json.dumps(question.schema, ensure_ascii=False)
        task = f"{question.system}\n\nAnswer with one JSON object alone that fits this JSON Schema:\n{schema}"
        try:
            said, cut = client(ClientQuestion(task, question.prompt, MAX_OUTPUT_TOKENS, left))
        except TimeoutError:
            raise Declined("The MCP client's model did not answer in time.") from None
        except (Declined, TransientFailure, Unavailable):
            raise
        except Exception:
            raise Declined("The MCP client did not let its model be asked.") from None
        answer = said[:ANSWER_CHARS] if cut else answer_in(said[:ANSWER_CHARS])
        asked = len(task) + len(question.prompt)
        return ModelAnswer(answer, None, cut, asked // CHARS_A_TOKEN, len(said) // CHARS_A_TOKEN)
