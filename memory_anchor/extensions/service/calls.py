"""What `variants report` asks of the process that holds the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from memory_anchor.base.json_values import Json, Record
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor

if TYPE_CHECKING:
    from memory_anchor.extensions.extension import Call


def variants(core: Core, anchor: MemoryAnchor, given: dict[str, Json]) -> Record:
    """Return the recall variants that are served, their versions, and their counts."""
    from memory_anchor.extensions.service.variants import VariantChoice

    choice = VariantChoice(core)
    counts = choice.use.counts()
    return {"variants": [{**choice.versions(name), "served": counts.get(name)} for name in choice.names]}


CALLS: Mapping[str, Call] = {"variants": variants}
