"""What waits in records beside the store and may hold a text that is purged: pushed batches, notes of requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from memory_anchor.errors import retry_on_conflict
from memory_anchor.json_values import Json
from memory_anchor.ports import SharedRecords

BATCHES = "team/ingest"
"""Where a served memory keeps batches that wait."""
PURGED_ITEM = {"kind": "purged"}
"""What stands in a batch in the place of an item that was purged."""


@dataclass(frozen=True, slots=True)
class WholeRecord:
    """A record on the server that replicas share: removed altogether when it holds the text."""

    records: SharedRecords
    record: str

    @property
    def name(self) -> str:
        return self.record.rpartition("/")[2]

    def erase(self, matches: Callable[[str], bool]) -> int:
        return retry_on_conflict(lambda: self._erased(matches))

    def says(self, content: bytes) -> str:
        """Return every text in its content."""
        return unescaped(content.decode(errors="surrogateescape"))

    def _erased(self, matches: Callable[[str], bool]) -> int:
        held = self.records.read(self.record)
        if held is None or not matches(self.says(held.content)):
            return 0
        self.records.delete(self.record, before=held.revision)
        return 1


@dataclass(frozen=True, slots=True)
class WaitingBatch(WholeRecord):
    """A batch that was accepted and waits: the items that hold the text leave it, the others are done as promised."""

    def _erased(self, matches: Callable[[str], bool]) -> int:
        held = self.records.read(self.record)
        if held is None:
            return 0
        try:
            batch = json.loads(held.content)
            items = batch["items"]
            if isinstance(items, int):  # worked off: what is left is its report, without texts
                return 0
            items = list(items)
        except (ValueError, KeyError, TypeError, RecursionError):  # no batch of ours
            return WholeRecord._erased(self, matches)
        found = [matches("\n".join([json.dumps(one, ensure_ascii=False), *texts_in(one)])) for one in items]
        if any(found):
            left = [dict(PURGED_ITEM) if gone else one for one, gone in zip(items, found, strict=True)]
            content = json.dumps({**batch, "items": left}, ensure_ascii=False).encode()
            self.records.write(self.record, content, before=held.revision)
        return sum(found)


def unescaped(line: str) -> str:
    """Return a line together with its JSON reading and the texts in it, so that an escaped text is recognised too."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return line
    return "\n".join([line, json.dumps(value, ensure_ascii=False), *texts_in(value)])


def texts_in(value: Json) -> list[str]:
    """Return every text inside a value once, names included; an alias is followed once."""
    found: list[str] = []
    seen: set[int] = set()
    left: list[Json] = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, (dict, list)) and id(one) not in seen:
            seen.add(id(one))
            left += [*one, *one.values()] if isinstance(one, dict) else one
    return found
