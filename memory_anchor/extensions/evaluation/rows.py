"""What `eval` asks of the process that holds the store."""

from __future__ import annotations

from collections.abc import Sequence

from memory_anchor.base.json_values import Record
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.requests.fields import AnyJson, BaseRequest, Name, arg
from memory_anchor.front.rows import Row, as_is, row
from memory_anchor.use_cases.memory import MemoryAnchor


class AskGolden(BaseRequest):
    """Run golden questions against this store; see `evaluation.golden`."""

    questions: AnyJson = arg(())
    variant: Name = arg("")


def _ask(anchor: MemoryAnchor, request: AskGolden) -> Record:
    from memory_anchor.extensions.evaluation.golden import ask

    searcher, name = anchor.services.searcher, request.variant
    if name and name not in searcher.variants:
        raise BadInput(f"variant is {name[:80]!r}; allowed are {', '.join(searcher.variants)}")
    with searcher.with_variant(name):
        return ask(anchor, request.questions)


ROWS: Sequence[Row] = (row("ask_golden", AskGolden, _ask, as_is),)
