"""Entries of L0 that live in the store rather than in the file: second to the file, and never lost with the store.

What the store said last is kept beside the approved text (0600). So a store that cannot be read takes nothing from the
identity, and a command that opens no store still counts them against the limits.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from memory_anchor.errors import MemoryAnchorError
from memory_anchor.files import make_private, read_bounded, write_whole
from memory_anchor.layers.constitution_text import MAX_BYTES, MAX_ENTRIES, Document, in_order
from memory_anchor.model import ConstitutionEntry

FILE = "supplements.json"
Source = Callable[[], Sequence[ConstitutionEntry]]


class Supplements:
    """What the store adds to one project's identity. source: asks the store; None: this process has none."""

    def __init__(self, home: Path, source: Source | None) -> None:
        self._path = home / FILE
        self._source = source
        self._last: tuple[ConstitutionEntry, ...] | None = None

    def read(self) -> tuple[tuple[ConstitutionEntry, ...], tuple[str, ...]]:
        """Return the supplements, and a warning when they are only those last seen."""
        if self._source is None:
            return self._kept(), ()
        try:
            found = tuple(replace(one, source="qdrant") for one in self._source())
        except MemoryAnchorError:
            return self._kept(), ("the store cannot be read: supplements to the constitution are those last seen",)
        if found != self._last and (found or self._path.exists()):
            self._keep(found)
        self._last = found
        return found, ()

    def _keep(self, found: Sequence[ConstitutionEntry]) -> None:
        with contextlib.suppress(MemoryAnchorError):  # a read-only data folder only forgets them for next time
            make_private(self._path.parent)
            write_whole(self._path, json.dumps([asdict(one) for one in found]).encode())

    def _kept(self) -> tuple[ConstitutionEntry, ...]:
        if self._last is None or self._source is None:
            try:
                listed = json.loads(read_bounded(self._path, most_bytes=MAX_BYTES) or b"[]")
                self._last = tuple(
                    ConstitutionEntry(str(one["id"]), str(one["content"]), int(one["priority"]), "qdrant")
                    for one in listed[:MAX_ENTRIES]
                )
            except (OSError, ValueError, KeyError, TypeError, RecursionError):
                self._last = ()
        return self._last


def merged(
    document: Document, supplements: Sequence[ConstitutionEntry]
) -> tuple[tuple[ConstitutionEntry, ...], tuple[str, ...]]:
    """Return at most 20 entries in order of priority, the file's own first in line, and what is left out."""
    ids = {one.id for one in document.entries}
    mine = in_order(document.entries)
    extra = in_order([one for one in supplements if one.id not in ids])
    entries = (*mine[:MAX_ENTRIES], *extra[: max(0, MAX_ENTRIES - len(mine))])
    left = len(mine) + len(extra) - len(entries)
    warning = f"{left} entries over the {MAX_ENTRIES} allowed are not served; remove or merge some"
    return in_order(entries), (warning,) if left else ()
