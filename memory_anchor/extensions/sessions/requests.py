"""Requests about sessions of agents: one model a use case, as in `requests`."""

from __future__ import annotations

from typing import Annotated

from memory_anchor.domain.requests.checks import PATH_MAX
from memory_anchor.domain.requests.fields import BaseRequest, Exact, Integer, Name, Query, Text, When, arg
from memory_anchor.domain.requests.requests import SEARCH_LIMIT_MAX

LISTED_MAX = 1_000
FolderOrName = Annotated[str, Exact(PATH_MAX, 0)]


class SessionsSearch(BaseRequest):
    """Search what was said and done in past sessions of agents on this machine."""

    query: Query = arg()
    limit: Integer = arg(5, ge=1, le=SEARCH_LIMIT_MAX)
    agent: Name = arg("", "Only this agent's.")
    project: FolderOrName = arg("", "Only of this project: an id, a folder, or its name.")
    since: When | None = arg(None, "Only from then on.")


class SessionsList(BaseRequest):
    """List past sessions of agents on this machine, newest first."""

    limit: Integer = arg(20, ge=1, le=LISTED_MAX)
    agent: Name = arg("", "Only this agent's.")
    project: FolderOrName = arg("", "Only of this project: an id, a folder, or its name.")
    since: When | None = arg(None, "Only from then on.")


class SessionsShow(BaseRequest):
    """Show one session: what was said and done in it."""

    session: Annotated[str, Text(PATH_MAX)] = arg(help="Its id, the beginning of it, or a citation's ref.")
    limit: Integer = arg(50, "Passages.", ge=1, le=LISTED_MAX)


class SessionsHandoff(BaseRequest):
    """Package a session for another agent: goal, decisions, open tasks, files, commands that worked."""

    session: Annotated[str, Text(PATH_MAX, 0)] = arg("", "Its id or the beginning of it; left out: the newest here.")
    agent: Name = arg("", "The agent that goes on, which is told how to look further.", option="to")
