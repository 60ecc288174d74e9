"""Repeat a call that failed for a passing reason, after random waits that grow: tenacity did no more for us."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def retried(
    work: Callable[[], T],
    passing: type[Exception],
    *,
    attempts: int,
    first_wait_s: float,
    longest_wait_s: float,
    sleep: Callable[[float], None] = time.sleep,
    may_wait: Callable[[float], bool] = lambda _: True,
) -> T:
    """Return what `work` returns, called again after a `passing` failure; any other is raised at once.

    attempts: calls in all, >= 1. The wait before the n-th repeat is random, below first_wait_s * 2**(n - 1) and
    longest_wait_s. may_wait: whether there is time left for so many seconds; without it the failure is raised.
    """
    for repeat in range(attempts - 1):
        try:
            return work()
        except passing:
            wait_s = random.uniform(0, min(longest_wait_s, first_wait_s * 2**repeat))
            if not may_wait(wait_s):
                raise
        sleep(wait_s)
    return work()
