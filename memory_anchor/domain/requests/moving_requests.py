"""Requests about projects, exports and imports: many small calls, which no tool offers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from memory_anchor.domain.requests.checks import PATH_MAX
from memory_anchor.domain.requests.fields import BaseRequest, Exact, Flag, Identifier, Name, arg, from_json

LINES_MAX = 1_000
Aliases = Annotated[dict[str, list[str]], from_json(dict)]
"""Project id -> its aliases."""


class BeginExport(BaseRequest):
    """Return the instant that an export shows, and the caller's project."""

    everything: Flag = arg(False)


class ExportPage(BaseRequest):
    """Read the next versions of one collection."""

    collection: Identifier = arg()
    instant: datetime = arg()
    versions: Flag = arg(False)
    own_project: Flag = arg(False)
    everything: Flag = arg(False)
    after: str | None = arg(None)


class ImportProjects(BaseRequest):
    """Register the projects of an export that a human imports; return which have another id here."""

    projects: Aliases = arg({})


class ImportLines(BaseRequest):
    """Import lines of an export.

    projects: ids in the file -> ids here. audited: the file's trail was adopted. dry: only say what would come of it.
    """

    lines: Annotated[tuple[tuple[int, str], ...], Field(max_length=LINES_MAX), from_json(list)] = arg(())
    projects: Annotated[dict[str, str], from_json(dict)] = arg({})
    audited: Flag = arg(False)
    dry: Flag = arg(False)


class ListProjects(BaseRequest):
    """List every project: its folders, how it is recognised, how many memories it has, and which other it may be.

    aliases: of projects elsewhere; the answer says which of them are known here under another id.
    """

    aliases: Aliases = arg({})


class LinkProject(BaseRequest):
    """Make the caller's folder, or `folder`, part of a project; with `moved` it is where that project is now."""

    project: Name = arg("")
    folder: Annotated[str, Exact(PATH_MAX, 0)] = arg("")
    moved: Flag = arg(False)


class MergeProjects(BaseRequest):
    """Move every memory of one project to another, or with `undo` those that a merge moved back."""

    source: Name = arg("")
    target: Name = arg("")
    undo: Flag = arg(False)
