"""Which shown memories were used: what they alone name appears in what the agent wrote or did afterwards.

A told line leaves traces: its identifiers, files, options and values. A trace counts when it stands in what the agent
wrote or in what its tools were given, and in nothing that the user said: then it came from memory. What is told ten
times and never heeded sinks: it is brought up only where it is more likely than not what decides. A tally by layer and
hook and by memory lies beside the store: ids and counts, no text. Rejected: asking the agent, which says what pleases.
A memory without any trace ("be brief") is counted as told and never sinks.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memory_anchor.files import write_atomic
from memory_anchor.json_values import Json
from memory_anchor.language.bounded import bounded
from memory_anchor.language.terms import normal

USED_MEMORIES_FILE = "heeded.json"
UNUSED_SHOWINGS_MAX = 10
"""Times told, and never heeded, after which a memory must be more likely right than not."""
KEPT = 5_000
TRACES = 12
TRACE_CHARS = 3
LOOKED_CHARS = 400_000
_TRACE = bounded(
    r"[A-Za-z0-9_.-]*/[A-Za-z0-9_./-]+|--?[a-z][a-z0-9-]{2,}|[A-Za-z_][A-Za-z0-9]*(?:[_.-][A-Za-z0-9]+)+|"
    r"[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+|[A-Z][A-Z0-9]{2,}|\d[\d.,:]*[A-Za-z%]*"
)
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class ShownMemory:
    """A memory that a hook told. traces: what it names, normalised; empty where it names nothing."""

    id: str
    layer: str
    hook: str
    traces: tuple[str, ...]


def traces_in(text: str) -> tuple[str, ...]:
    """Return the identifiers, files, options, values and names of a memory.

    >>> traces_of("Use pnpm-9 with --frozen-lockfile in web/app, port 8099")
    ('pnpm-9', '--frozen-lockfile', 'web/app', '8099')
    """
    found = (normal(one.strip(".,:/")) for one in _TRACE.findall(text[:4_000]))
    return tuple(dict.fromkeys(one for one in found if len(one) >= TRACE_CHARS))[:TRACES]


def used_ids(told: Iterable[ShownMemory], *, written: str, said: str) -> frozenset[str]:
    """Return the ids of those of which a trace stands in what the agent wrote, and not in what the user said."""
    wrote, asked = normal(written[-LOOKED_CHARS:]), normal(said[-LOOKED_CHARS:])
    return frozenset(
        one.id for one in told if any(_stands(trace, wrote) and not _stands(trace, asked) for trace in one.traces)
    )


def _stands(trace: str, text: str) -> bool:
    return trace in text and re.search(rf"(?<![a-z0-9_]){re.escape(trace)}(?![a-z0-9_])", text) is not None


class UsedMemories:
    """Counts by layer and hook, and by memory. A missing or torn file counts as empty."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, told: Sequence[ShownMemory], heeded: frozenset[str]) -> None:
        """Add a conversation's tellings, and which of them were heeded."""
        if not told:
            return
        with _lock:
            stored = self._read()
            by, each = stored["by"], stored["memories"]
            for one in told:
                row = by.setdefault(f"{one.layer}/{one.hook}", [0, 0])
                own = each.pop(one.id, [0, 0]) if one.traces else [0, 0]
                for counts in (row, own):
                    counts[0] += 1
                    counts[1] += one.id in heeded
                if one.traces:
                    each[one.id] = own
            stored["memories"] = dict(list(each.items())[-KEPT:])
            write_atomic(self._path, json.dumps(stored).encode())

    def never_used(self) -> frozenset[str]:
        """Return the ids of what was told often and never heeded."""
        return frozenset(
            name
            for name, (told, heeded) in self._read()["memories"].items()
            if told >= UNUSED_SHOWINGS_MAX and not heeded
        )

    def table(self) -> list[dict[str, Json]]:
        """Return told and heeded by layer and hook."""
        rows: list[dict[str, Json]] = []
        for name, (told, heeded) in sorted(self._read()["by"].items()):
            layer, _, hook = name.partition("/")
            rows.append({"layer": layer, "hook": hook, "told": told, "heeded": heeded})
        return rows

    def _read(self) -> dict[str, dict[str, list[int]]]:
        empty: dict[str, dict[str, list[int]]] = {"by": {}, "memories": {}}
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return empty
        for name in empty:
            part = stored.get(name) if isinstance(stored, Mapping) else None
            if isinstance(part, Mapping):
                empty[name] = {str(k): [int(v[0]), int(v[1])] for k, v in part.items() if _is_pair(v)}
        return empty


def _is_pair(value: Json) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(one, int) for one in value)
