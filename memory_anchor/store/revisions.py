"""Optimistic locking for a store that several engines share: which stored state of a version a writer has read.

Every stored version carries a revision, `VERSION.TOKEN`, renewed by each write of the whole version. A memory keeps the
revision it was read with (`dataclasses.replace` does too), so a write says by itself what it was decided on: the same
version must still be stored as it was read, and a next version must not be there yet. A memory that was made here has
none and is written as it is. Usage counts renew nothing: two engines may overwrite each other's.
"""

from __future__ import annotations

from collections.abc import Mapping

from memory_anchor.adapters.payload import REVISION
from memory_anchor.adapters.system import new_token
from memory_anchor.base.json_values import Json
from memory_anchor.domain.errors import ChangedMeanwhile
from memory_anchor.domain.model import Memory

TOKEN_CHARS = 16


def with_revision(payload: dict[str, Json]) -> dict[str, Json]:
    """Return the payload with a revision of its own."""
    return {**payload, REVISION: f"{payload['version']}.{new_token()[:TOKEN_CHARS]}"}


def check(memory: Memory, stored: Mapping[str, Json] | None) -> None:
    """Raise ChangedMeanwhile when a memory was not made of what is stored in its place."""
    if memory.revision is None:
        return
    version, _, token = memory.revision.partition(".")
    expected = token if version == str(memory.version) else None  # made of an older version: a new one
    stored_token = None if stored is None else str(stored.get(REVISION) or ".").partition(".")[2]
    if expected != stored_token:
        raise ChangedMeanwhile(
            f"memory {memory.id!r} was changed by another engine meanwhile; nothing was written, try again."
        )
