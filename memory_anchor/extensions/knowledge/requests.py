"""Requests about knowledge: one model a use case, as in `requests`; the use cases are in `knowledge/use_cases`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from memory_anchor.domain.model import VISIBILITY_ALIASES, Trust, Visibility
from memory_anchor.domain.requests.checks import NAME_MAX, PATH_MAX, REASON_MAX
from memory_anchor.domain.requests.fields import (
    BaseRequest,
    EncodedDocument,
    Exact,
    Flag,
    Integer,
    Label,
    Name,
    Path,
    Query,
    Text,
    arg,
    clean,
    enum_name,
)
from memory_anchor.domain.requests.requests import SEARCH_LIMIT_MAX

AROUND_MAX = 50
PUSHED_CHARS = 8 * 1024 * 1024
SourceTrust = Annotated[
    Literal[Trust.TRUSTED, Trust.SEMI_TRUSTED, Trust.UNTRUSTED], enum_name(), WithJsonSchema({"type": "string"})
]
"""How far a source can be trusted; `agent` is a memory's."""
SourceAudience = Annotated[
    Literal[Visibility.PROJECT, Visibility.USER, Visibility.ACCOUNT],
    enum_name(VISIBILITY_ALIASES),
    WithJsonSchema({"type": "string"}),
]


class KnowledgeSearch(BaseRequest):
    """Find passages of documents, code and Git history, with citations."""

    query: Query = arg()
    limit: Integer = arg(5, tool="{}", ge=1, le=SEARCH_LIMIT_MAX)
    source: Name = arg("", "A source's id or kind, or `sessions`: past conversations.", tool="id, kind, or sessions")
    path: Name = arg("", "Only documents whose path begins so.", tool="path prefix")
    trust: SourceTrust | None = arg(None, "trusted, semi_trusted or untrusted.", tool="")
    scope: SourceAudience | None = arg(None, "Only what is kept for project, user or account.", tool="")
    detail: Flag = arg(False, "Show what was measured.", tool="", option="explain")


class KnowledgeGet(BaseRequest):
    """Open a citation: the passage, the lines around it, and whether it is unchanged."""

    citation: Annotated[str, Text(PATH_MAX)] = arg(tool="id of a snippet, or a citation's ref")
    around: Integer = arg(3, "Lines before and after.", tool="", ge=0, le=AROUND_MAX)


class KnowledgeAdd(BaseRequest):
    """Add a source of knowledge; it is read in the background, and again by `sync`."""

    ref: Path = arg(help="A folder or a file.")
    kind: Literal["repo_docs", "git_history", "files"] = arg("repo_docs")
    trust: SourceTrust | None = arg(None, "trusted, semi_trusted or untrusted; more is a human's to say.")
    visibility: SourceAudience | None = arg(None, "project (default), user or account.")
    converter: Annotated[str, Exact(REASON_MAX, 0)] = arg("", "A command that makes Markdown of other formats.")


class KnowledgePush(BaseRequest):
    """Push one document: its text, or the page of a URL as the caller fetched it."""

    encoded = frozenset({"base64"})

    name: Annotated[str, Text(PATH_MAX)] = arg(help="A file's name or a URL.")
    text: Annotated[str, Field(max_length=PUSHED_CHARS), AfterValidator(clean)] = arg("", "Its text.")
    base64: Annotated[EncodedDocument, Field(max_length=2 * PUSHED_CHARS)] = arg("", "Its bytes, for what is no text.")
    mime: Name = arg("")
    into: Label = arg("uploads", "The name of the source it goes into.")


class KnowledgeSources(BaseRequest):
    """List the sources of knowledge and how far each is read."""


class KnowledgeSync(BaseRequest):
    """Read what changed in the sources for a short time; repeat while `left` is not 0."""

    source: Name = arg("", "Only this one.")
    begin: Flag = arg(True)
    embed: Flag = arg(False, "Embed too what was read, where no engine does.")


class KnowledgeRemove(BaseRequest):
    """Erase a source and everything from it, with a certificate."""

    source: Annotated[str, Exact(NAME_MAX)] = arg()
