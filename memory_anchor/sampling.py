"""Whether the client of this call may be asked, and how: between the front end that serves it and the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientQuestion:
    """What a client's model is asked. timeout_s: from when on nobody waits for it."""

    system: str
    prompt: str
    max_tokens: int
    timeout_s: float


AsksClient = Callable[[ClientQuestion], tuple[str, bool]]
"""Returns what the client's model says, and whether it was cut off. Raises TimeoutError, or anything: it would
not."""
_CLIENT: ContextVar[AsksClient | None] = ContextVar("sampling_client", default=None)


@contextmanager
def offered(client: AsksClient | None) -> Iterator[None]:
    """Say whom a model of kind `sampling` may ask in here; None for nobody."""
    before = _CLIENT.set(client)
    try:
        yield
    finally:
        _CLIENT.reset(before)


def current_client() -> AsksClient | None:
    """Return how the client of this call is asked, None where there is none to ask."""
    return _CLIENT.get()
