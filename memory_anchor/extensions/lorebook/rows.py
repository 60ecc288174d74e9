"""The use cases of lorebooks, and how their answers are shown."""

from __future__ import annotations

from collections.abc import Sequence

from memory_anchor.domain.model import Scope
from memory_anchor.extensions.lorebook import requests as asks
from memory_anchor.extensions.lorebook.use_cases import ScannedLore, lore_of
from memory_anchor.front import views
from memory_anchor.front.rows import Row, as_is, for_reader, row


def shown_lore(value: ScannedLore, *, reader: Scope) -> views.Shown:
    """Return {snippets, report}; a snippet's tags have its position."""
    return {"snippets": [views.snippet(hit, reader=reader) for hit in value["snippets"]], "report": value["report"]}


ROWS: Sequence[Row] = (
    row("lorebook_add", asks.AddLorebook, lambda anchor, asked: lore_of(anchor).add(asked), as_is),
    row("lorebook_list", asks.ListLorebooks, lambda anchor, asked: lore_of(anchor).books(asked), as_is),
    row("lorebook_show", asks.ShowLorebook, lambda anchor, asked: lore_of(anchor).show(asked), as_is),
    row("lorebook_remove", asks.RemoveLorebook, lambda anchor, asked: lore_of(anchor).remove(asked), as_is),
    row("lorebook_scan", asks.ScanLorebook, lambda anchor, asked: lore_of(anchor).scan(asked), for_reader(shown_lore)),
)
