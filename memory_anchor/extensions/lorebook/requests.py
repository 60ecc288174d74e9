"""Requests about lorebooks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from memory_anchor.domain.requests.checks import NAME_MAX
from memory_anchor.domain.requests.fields import BaseRequest, Exact, Integer, Messages, Name, Path, arg
from memory_anchor.domain.requests.requests import BUDGET_MAX

FILE_CONTENT_MAX = 14_000_000
"""10 MB in base64."""


class AddLorebook(BaseRequest):
    """Add a lorebook to this project: world info, a character card as JSON, or our YAML."""

    file: Path = arg(help="Its file; the book is known by its name.")
    content: Annotated[str, Exact(FILE_CONTENT_MAX)] = arg()


class ListLorebooks(BaseRequest):
    """List the lorebooks of this project."""


class ShowLorebook(BaseRequest):
    """Show a lorebook's entries, and which parts of its file could not be read."""

    name: Annotated[str, Exact(NAME_MAX)] = arg()


class RemoveLorebook(ShowLorebook):
    """Erase a lorebook."""


class ScanLorebook(BaseRequest):
    """Scan messages with one lorebook, or all of the project, and explain why each entry is in or out."""

    name: Name = arg("", "A lorebook's name; without one, all of the project.")
    messages: Messages = arg((), "{role, content, name?} in order.")
    budget_tokens: Annotated[Integer, Field(ge=1, le=BUDGET_MAX)] | None = arg(None, option="budget")
