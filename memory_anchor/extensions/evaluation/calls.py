"""What `eval` asks of the process that holds the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from memory_anchor.base.json_values import Json, Record, text
from memory_anchor.domain.errors import BadInput
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor

if TYPE_CHECKING:
    from memory_anchor.extensions.extension import Call


def ask_golden(core: Core, anchor: MemoryAnchor, given: dict[str, Json]) -> Record:
    """Run golden questions against this store; see `evaluation.golden`."""
    from memory_anchor.extensions.evaluation.golden import ask

    name = given.get("variant", "")
    if name and name not in core.services.searcher.variants:
        raise BadInput(f"variant is {str(name)[:80]!r}; allowed are {', '.join(core.services.searcher.variants)}")
    with core.services.searcher.with_variant(text(name)):
        return ask(anchor, given.get("questions"))


CALLS: Mapping[str, Call] = {"ask_golden": ask_golden}
