"""Entries that a prompt's words bring in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memory_anchor.extensions.extension import Extension, Running

if TYPE_CHECKING:
    from memory_anchor.admin.purge import Holder
    from memory_anchor.process.wiring import Core


def _start(core: Core) -> Running:
    from memory_anchor.admin.purge import Cache
    from memory_anchor.extensions.lorebook.books import LorebookStore, ProjectBooks, texts_below
    from memory_anchor.extensions.lorebook.use_cases import lore_of

    books = LorebookStore()

    def holders() -> list[Holder]:
        return [*texts_below(core.data_dir / "lorebooks"), Cache("what lorebooks say", books.clear_cache)]

    return Running(
        part=books,
        context=lambda anchor, sources: replace(sources, lore=lore_of(anchor).for_context),
        holders=holders,
        moves=lambda accounts: {"lorebooks": ProjectBooks(books, core.data_dir, accounts)},
    )


EXTENSION = Extension(name="lorebook", commands=("lorebook",), has_settings=True, start=_start)
