"""Tests written as coroutines, each in an event loop of its own; anyio's pytest plugin costs a second a process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any

import anyio


def in_event_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Return a test that runs a coroutine to its end; it takes the same fixtures."""

    @wraps(test)
    def run(*fixtures: Any, **named: Any) -> None:
        anyio.run(partial(test, *fixtures, **named))

    return run
