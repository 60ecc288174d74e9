"""What `variants report` asks of the process that holds the store."""

from __future__ import annotations

from collections.abc import Sequence

from memory_anchor.base.json_values import Record
from memory_anchor.domain.requests.fields import BaseRequest
from memory_anchor.front.rows import Row, as_is, row
from memory_anchor.use_cases.memory import MemoryAnchor


class ListVariants(BaseRequest):
    """List the recall variants that are served, their versions, and their counts."""


def _variants(anchor: MemoryAnchor, _: ListVariants) -> Record:
    from memory_anchor.extensions.service.variants import VariantChoice

    choice = VariantChoice(anchor.process)
    counts = choice.use.counts()
    return {"variants": [{**choice.versions(name), "served": counts.get(name)} for name in choice.names]}


ROWS: Sequence[Row] = (row("variants", ListVariants, _variants, as_is),)
