"""What a collection is used for decides who may write to it without being asked.

`memory`: agents and what is extracted from conversations write; documents do not belong there. `knowledge`: people
manage it by hand and documents are taken in; nothing writes automatically. `hybrid`: both. A human may always write.
Source: the write-back RFC, section 2.3 (usage of a knowledge base).
"""

from __future__ import annotations

from collections.abc import Mapping

from memory_anchor.errors import Refused
from memory_anchor.model import Origin

WRITERS: Mapping[str, frozenset[Origin]] = {
    "memory": frozenset({Origin.HUMAN, Origin.SYSTEM, Origin.AGENT, Origin.EXTRACTED}),
    "knowledge": frozenset({Origin.HUMAN, Origin.SYSTEM, Origin.DOCUMENT}),
    "hybrid": frozenset(Origin),
}
"""usage -> origins that may write."""


def check_writer(collection: str, usage: str, origin: Origin) -> None:
    """Raise Refused: this collection does not take what comes from there."""
    if origin not in WRITERS[usage]:
        raise Refused(
            f"collection {collection} is used as {usage}, which takes no writes of {origin.value} origin; "
            f"allowed are {', '.join(sorted(one.value for one in WRITERS[usage]))}"
        )
