"""Requests for a whole prompt."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from memory_anchor.domain.requests.fields import AnyJson, BaseRequest, Flag, Integer, Messages, Name, Text, arg
from memory_anchor.domain.requests.requests import TASK_MAX

WINDOW_TOKENS, WINDOW_MAX = 200_000, 100_000_000


class AssemblePrompt(BaseRequest):
    """Complete a whole prompt with what memory knows for its task, within the model's window."""

    messages: Messages = arg((), "{role, content, ...} in order, as the model's API takes them.")
    tools: Messages = arg(None, "As the model's API takes them.")
    context_window_tokens: Annotated[Integer, Field(ge=1, le=WINDOW_MAX)] = arg(WINDOW_TOKENS)
    reserved_output_tokens: Annotated[Integer, Field(ge=0, le=WINDOW_MAX)] = arg(0)
    task: Annotated[str, Text(TASK_MAX, 0)] = arg("", "What memory is searched for; default: the user's last message.")
    strict_tools: Flag = arg(False, "Make the tools' argument schemas strict.")


class PromptInFile(BaseRequest):
    """A whole prompt under one name, so that none of its own names is an argument of the call."""

    prompt: AnyJson = arg()


class PromptOverHttp(AssemblePrompt):
    """A prompt of one account, which the credential must be bound to; one that comes by a key need not name it."""

    account_id: Name = arg("")
    user_id: Name = arg("")
    conversation_id: Name = arg("")
    project_id: Name = arg("")
    agent_id: Name = arg("")
