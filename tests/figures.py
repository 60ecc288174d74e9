"""How much a slow test does: a sample by default, the full figures where MEMORY_ANCHOR_FULL_FIGURES=1 is set."""

from __future__ import annotations

import os
from typing import TypeVar

Figure = TypeVar("Figure")
FULL = os.environ.get("MEMORY_ANCHOR_FULL_FIGURES") == "1"


def figure(sample: Figure, full: Figure) -> Figure:
    """Return what is done by default, or the figure that the issue asks for when somebody has the time."""
    return full if FULL else sample
