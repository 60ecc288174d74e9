"""What people type for what a request asks: a time in words, the beginning of an id.

Only commands take these. A tool's caller has the whole id and a clock; a guess there would hide a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from memory_anchor.errors import BadInput, NotFound
from memory_anchor.front.cli.link import Failed, call, preamble
from memory_anchor.language.timewords import time_range

LATEST = frozenset({"until"})
"""Fields for which a day or week counts to its end."""
LISTED_MAX = 1_000
NAMED_MAX = 5
BEGINNING = re.compile(r"[0-9a-z]{4,12}")

Values = dict[str, Any]


def moment(field: str, said: str) -> str:
    """Return a time said in words ("yesterday 10:00", "上周") as ISO 8601; what is none stays, for its own sentence."""
    try:
        datetime.fromisoformat(said.strip())
        return said
    except ValueError:
        pass
    now, zone = datetime.now(UTC), preamble().zone or "UTC"
    if (found := time_range(said, now=now, zone=zone)) is not None and not re.search(r"\d:\d", said):
        return (found.end if field in LATEST else found.start).isoformat()
    import dateparser

    read = {"TIMEZONE": zone, "RETURN_AS_TIMEZONE_AWARE": True, "PREFER_DATES_FROM": "past"}
    at = dateparser.parse(said, languages=["en", "zh"], settings=read)
    return said if at is None else at.isoformat()


def with_whole_id(ask: Callable[..., dict[str, Any]], values: Values) -> dict[str, Any]:
    """Ask; where the id names nothing and begins exactly one that is there, ask again with that.

    Raises BadInput: it begins several. What `ask` raises.
    """
    try:
        return ask(**values)
    except (NotFound, Failed) as error:
        is_missing = isinstance(error, NotFound) or getattr(error, "exit_code", 0) == _NOT_FOUND
        if not is_missing or not BEGINNING.fullmatch(str(values.get("id", ""))):
            raise
        found = _begun(values["id"])
        if not found:
            raise
    if len(found) > 1:
        named = ", ".join(sorted(found)[:NAMED_MAX]) + (" and more" if len(found) > NAMED_MAX else "")
        raise BadInput(f"id {values['id']!r} begins {len(found)} ids: {named}; give more of it")
    return ask(**{**values, "id": found.pop()})


_NOT_FOUND = 3


def _begun(prefix: str) -> set[str]:
    """Return the ids that begin so, among the newest thousand of each state."""
    listed: list[Mapping[str, Any]] = []
    for status in (None, "archived", "superseded"):
        listed += call("list", status=status, limit=LISTED_MAX)["memories"]
    return {str(one["id"]) for one in listed if str(one["id"]).startswith(prefix)}
