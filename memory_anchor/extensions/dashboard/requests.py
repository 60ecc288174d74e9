"""What the pages ask that no agent and no other command asks."""

from __future__ import annotations

from typing import Annotated, Literal

from memory_anchor.domain.requests.checks import PATH_MAX, QUERY_MAX
from memory_anchor.domain.requests.fields import BaseRequest, Exact, Name, Text, arg

Moment = Literal["start", "first_prompt", "prompt", "command", "edit", "failure", "after_compaction"]


class PreviewHook(BaseRequest):
    """Show what a client's hook would print now, and the memories in it; nothing counts as shown."""

    moment: Moment = arg("start", "When the hook runs.")
    text: Annotated[str, Text(QUERY_MAX, 0)] = arg("", "The prompt, the command, or the error of a failed one.")
    file: Annotated[str, Exact(PATH_MAX, 0)] = arg("", "The file of an edit.")
    client: Name = arg("claude-code", "The agent that would get it.")


class ReadShown(BaseRequest):
    """List what agents of this project were shown by hooks, the newest sessions first, and what of it they used."""


class ReadCosts(BaseRequest):
    """List what the last contexts of this project cost, the newest first."""
