"""Sampling: how a language model of ours asks the client of the current call, if its front end allows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientQuestion:
    """A question for a client's model. timeout_s: after which the answer is no longer awaited."""

    system: str
    prompt: str
    max_tokens: int
    timeout_s: float


AsksClient = Callable[[ClientQuestion], tuple[str, bool]]
"""Returns the answer of the client's model, and whether it was cut off. Raises TimeoutError, or anything else where
the client refuses."""
_CLIENT: ContextVar[AsksClient | None] = ContextVar("sampling_client", default=None)


@contextmanager
def sampling_client(client: AsksClient | None) -> Iterator[None]:
    """Let a model of kind `sampling` ask this client within the block; None for no client."""
    before = _CLIENT.set(client)
    try:
        yield
    finally:
        _CLIENT.reset(before)


def current_client() -> AsksClient | None:
    """Return the function that asks the client of this call, None where there is none."""
    return _CLIENT.get()
