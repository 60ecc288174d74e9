"""Tests written as coroutines, each in its own event loop; anyio's pytest plugin costs a second a process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import anyio

DEADLINE_S = 200.0


def in_event_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Return a test that runs the coroutine within `DEADLINE_S`; it takes the same fixtures."""

    @wraps(test)
    def run(**fixtures: Any) -> None:
        async def bounded() -> None:
            with anyio.fail_after(DEADLINE_S):
                await test(**fixtures)

        anyio.run(bounded)

    return run
