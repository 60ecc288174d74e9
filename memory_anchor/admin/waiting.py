"""Small records that may hold a purged text: pushed batches that wait, first answers, what jobs counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from memory_anchor.base.json_values import Json
from memory_anchor.domain.errors import retry_on_conflict
from memory_anchor.domain.ports import SmallRecords

BATCHES = "team/ingest"
"""Folder of a served memory's waiting batches."""
PURGED_ITEM = {"kind": "purged"}
"""Replaces a purged item in a batch."""


@dataclass(frozen=True, slots=True)
class WholeRecord:
    """A record that is removed when it holds the text."""

    records: SmallRecords
    record: str

    @property
    def name(self) -> str:
        return self.record.rpartition("/")[2]

    def erase(self, matches: Callable[[str], bool]) -> int:
        stored = self.records.read(self.record)
        if stored is None or not matches(unescaped(stored.content.decode("utf-8", "surrogateescape"))):
            return 0
        self.records.delete(self.record, before=None)
        return 1


@dataclass(frozen=True, slots=True)
class WaitingBatch:
    """An accepted batch that waits: items that hold the text are removed, the others are processed.

    What is no batch of ours is deleted when it holds the text.
    """

    records: SmallRecords
    record: str

    @property
    def name(self) -> str:
        return self.record.rpartition("/")[2]

    def erase(self, matches: Callable[[str], bool]) -> int:
        return retry_on_conflict(lambda: self._erased(matches))

    def _erased(self, matches: Callable[[str], bool]) -> int:
        stored = self.records.read(self.record)
        if stored is None:
            return 0
        try:
            batch = json.loads(stored.content)
            items = batch["items"]
            if isinstance(items, int):  # processed: only its report is left, without texts
                return 0
            items = list(items)
        except (ValueError, KeyError, TypeError, RecursionError):
            if not matches(unescaped(stored.content.decode(errors="surrogateescape"))):
                return 0
            self.records.delete(self.record, before=stored.revision)
            return 1
        doomed = [matches("\n".join([json.dumps(item, ensure_ascii=False), *texts_in(item)])) for item in items]
        if any(doomed):
            items = [dict(PURGED_ITEM) if gone else item for item, gone in zip(items, doomed, strict=True)]
            content = json.dumps({**batch, "items": items}, ensure_ascii=False).encode()
            self.records.write(self.record, content, before=stored.revision)
        return sum(doomed)


def unescaped(line: str) -> str:
    """Return a line with its decoded JSON and the texts in it, so that an escaped text is recognised too."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return line
    return "\n".join([line, json.dumps(value, ensure_ascii=False), *texts_in(value)])


def texts_in(value: Json) -> list[str]:
    """Return every text inside a value, names included; an alias is followed once."""
    texts: list[str] = []
    seen: set[int] = set()
    remaining: list[Json] = [value]
    while remaining:
        part = remaining.pop()
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, (dict, list)) and id(part) not in seen:
            seen.add(id(part))
            remaining += [*part, *part.values()] if isinstance(part, dict) else part
    return texts
