"""Requests about exports and imports: many small calls, which no tool offers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field, model_validator

from memory_anchor.domain.requests.fields import BaseRequest, Files, Flag, Identifier, arg, from_json
from memory_anchor.domain.requests.requests import IMPORTED_FIELDS, Aliases, LogEvent, SaveMemory

LINES_MAX = 1_000


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


class ImportedLine(SaveMemory, LogEvent):
    """A line of another tool's export: the fields that are taken from it; the rest is ignored.

    when: of a fact, since when it holds. cites: its source, `mem0:ab12` or an address.
    """

    unlisted = frozenset({"cites"})

    cites: Files = arg(())

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, given: dict[str, object]) -> dict[str, object]:
        return {name: value for name, value in given.items() if name in IMPORTED_FIELDS}
