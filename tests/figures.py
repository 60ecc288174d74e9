"""How much a slow test does: a sample by default, the full figures where MEMORY_ANCHOR_FULL_FIGURES=1 is set.

Of a test with many long cases CI runs some (`one_in`); all are run every night (`scripts/nightly`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest

Figure = TypeVar("Figure")
FULL = os.environ.get("MEMORY_ANCHOR_FULL_FIGURES") == "1"


def figure(sample: Figure, full: Figure) -> Figure:
    """Return what is done by default, or the figure that the issue asks for when somebody has the time."""
    return full if FULL else sample


def one_in(share: int, cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a test, all but each `share`-th of them, the first among these, marked `nightly`."""

    def marked(case: Any) -> Any:
        return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.nightly)

    return [case if place % share == 0 else marked(case) for place, case in enumerate(cases)]
