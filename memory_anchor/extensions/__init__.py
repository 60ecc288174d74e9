"""The only list of extensions. The core imports this list alone, and meets an extension as an `Extension`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory_anchor.extensions.extension import Extension

NAMES: tuple[str, ...] = ("evaluation", "transfer", "service", "dashboard", "lorebook", "devices", "knowledge")
NAMES += ("sessions", "prompts", "more_agents")
"""In the order of their commands in `memory-anchor --help`."""


@cache
def installed() -> tuple[Extension, ...]:
    """Return every extension."""
    return tuple(import_module(f"{__name__}.{name}.extension").EXTENSION for name in NAMES)
