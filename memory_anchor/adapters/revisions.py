"""Which stored state of a version a writer has seen: optimistic locking for a store that several engines share.

Every stored point carries a revision, `VERSION.TOKEN`, renewed by each write of the whole point. A memory brings along
the revision it was read with, and `dataclasses.replace` keeps it, so what callers write says by itself what it was
decided upon: the same version must still be stored as it was read, and a next version must not be there yet. A memory
that was made here has none and is written as it is. `revised` lists the revisions before, so that a writer finds its
own write although somebody went on from it. Counting uses renews nothing: two engines may count over each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memory_anchor.adapters.payload import REVISION
from memory_anchor.adapters.system import new_token
from memory_anchor.errors import ChangedMeanwhile
from memory_anchor.json_values import Json, text, texts
from memory_anchor.model import Memory

REVISED = "revised"
KEPT = 8
"""Revisions before the present one that a point remembers."""
TOKEN_CHARS = 16


def stamped(payload: dict[str, Json], before: Mapping[str, Json] | None) -> dict[str, Json]:
    """Return the payload with a revision of its own. before: what is stored in its place, None for nothing."""
    earlier = lineage(before)[:KEPT]
    own = {REVISION: f"{payload['version']}.{new_token()[:TOKEN_CHARS]}"}
    return {**payload, **own, **({REVISED: earlier} if earlier else {})}


def lineage(payload: Mapping[str, Json] | None) -> list[str]:
    """Return the revision of a stored payload and those before it, newest first."""
    if not payload:
        return []
    return [one for one in (text(payload.get(REVISION), ""), *texts(payload.get(REVISED))) if one]


def seen(memory: Memory, payload: Mapping[str, Json]) -> str:
    """Return the revision under which a payload is read; one from before there were revisions has an empty token."""
    return str(payload.get(REVISION) or f"{memory.version}.")


def is_compared(memory: Memory) -> bool:
    """Return whether a memory may only be written where nobody was first."""
    return memory.revision is not None


def check(memory: Memory, stored: Mapping[str, Json] | None) -> None:
    """Raise ChangedMeanwhile when what is stored in a memory's place is not what it was made of."""
    if memory.revision is None:
        return
    read_of, _, token = memory.revision.partition(".")
    wanted = token if read_of == str(memory.version) else None  # made of an older version: a new point
    found = None if stored is None else str(stored.get(REVISION) or ".").partition(".")[2]
    if wanted != found:
        raise conflict([memory])


def conflict(memories: Sequence[Memory]) -> ChangedMeanwhile:
    """Return the error that says which memory another engine changed."""
    return ChangedMeanwhile(
        f"memory {memories[0].id!r} was changed by another engine meanwhile; nothing was written, try again."
    )
