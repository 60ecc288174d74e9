"""Optimistic locking for a store that several engines share: which stored state of a version a writer has read.

Every stored point carries a revision, `VERSION.TOKEN`, renewed by each write of the whole point. A memory keeps the
revision it was read with (`dataclasses.replace` does too), so a write says by itself what it was decided on: the same
version must still be stored as it was read, and a next version must not be there yet. A memory that was made here has
none and is written as it is. `revised` lists the revisions before, so that a writer recognises its own write although
another engine continued from it. Usage counts renew nothing: two engines may overwrite each other's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memory_anchor.adapters.payload import REVISION
from memory_anchor.adapters.system import new_token
from memory_anchor.base.json_values import Json, text, texts
from memory_anchor.domain.errors import ChangedMeanwhile
from memory_anchor.domain.model import Memory

REVISED = "revised"
EARLIER_MAX = 8
"""Revisions before the present one that a point remembers."""
TOKEN_CHARS = 16


def with_revision(payload: dict[str, Json], before: Mapping[str, Json] | None) -> dict[str, Json]:
    """Return the payload with a revision of its own. before: what is stored in its place, None for nothing."""
    earlier = revision_history(before)[:EARLIER_MAX]
    revision = f"{payload['version']}.{new_token()[:TOKEN_CHARS]}"
    return {**payload, REVISION: revision, **({REVISED: earlier} if earlier else {})}


def revision_history(payload: Mapping[str, Json] | None) -> list[str]:
    """Return the revision of a stored payload and those before it, newest first."""
    if not payload:
        return []
    return [revision for revision in (text(payload.get(REVISION), ""), *texts(payload.get(REVISED))) if revision]


def check(memory: Memory, stored: Mapping[str, Json] | None) -> None:
    """Raise ChangedMeanwhile when a memory was not made of what is stored in its place."""
    if memory.revision is None:
        return
    version, _, token = memory.revision.partition(".")
    expected = token if version == str(memory.version) else None  # made of an older version: a new point
    stored_token = None if stored is None else str(stored.get(REVISION) or ".").partition(".")[2]
    if expected != stored_token:
        raise conflict([memory])


def conflict(memories: Sequence[Memory]) -> ChangedMeanwhile:
    """Return the error that names the memory another engine changed."""
    return ChangedMeanwhile(
        f"memory {memories[0].id!r} was changed by another engine meanwhile; nothing was written, try again."
    )
