"""Pydantic AI (extra `pydantic-ai`): the memory as a toolset, `Agent(..., toolsets=[memory_toolset(memory)])`."""

from __future__ import annotations

from typing import Any, Unpack

from pydantic_ai.toolsets import FunctionToolset

from memory_anchor.extensions.library.memory import Memory, Whose
from memory_anchor.integrations.tools import functions


def memory_toolset(memory: Memory, **whose: Unpack[Whose]) -> FunctionToolset[Any]:
    """Return `search_memory`, `save_memory` and `log_event`. whose: the user, agent and conversation of every call."""
    return FunctionToolset(functions(memory, whose), id="memory-anchor")
