"""Which shown memories were used: what only they name appears in what the agent wrote or did afterwards.

A memory leaves traces: its identifiers, files, options and values. A trace counts when it is in what the agent wrote or
in the input of its tools, and in nothing that the user said: then it came from memory. What is shown ten times and
never used is recalled only where it is more likely right than not. A tally by layer and hook and by memory lies in the
data directory: ids and counts, no text. Rejected: asking the agent, which says what pleases. A memory without any trace
("be brief") is counted as shown and never held back.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from memory_anchor.base.files import write_atomic
from memory_anchor.base.json_values import Json, Record, parsed, records
from memory_anchor.domain.model import Scope
from memory_anchor.language.safe_regex import bounded
from memory_anchor.language.terms import normal

USED_MEMORIES_FILE = "heeded.json"
SHOWN_SESSIONS_FILE = "shown.json"
SESSIONS_KEPT = 100
UNUSED_SHOWINGS_MAX = 10
"""Times shown, and never used, after which a memory must be more likely right than not."""
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
    """A memory that a hook showed. traces: what it names, normalised; empty where it names nothing."""

    id: str
    layer: str
    hook: str
    traces: tuple[str, ...]


def traces_in(text: str) -> tuple[str, ...]:
    """Return the identifiers, files, options, values and names of a memory.

    >>> traces_of("Use pnpm-9 with --frozen-lockfile in web/app, port 8099")
    ('pnpm-9', '--frozen-lockfile', 'web/app', '8099')
    """
    found = (normal(trace.strip(".,:/")) for trace in _TRACE.findall(text[:4_000]))
    return tuple(dict.fromkeys(trace for trace in found if len(trace) >= TRACE_CHARS))[:TRACES]


def used_ids(shown: Iterable[ShownMemory], *, by_agent: str, by_user: str) -> frozenset[str]:
    """Return the ids of those of which a trace is in what the agent wrote, and not in what the user said."""
    agent, user = normal(by_agent[-LOOKED_CHARS:]), normal(by_user[-LOOKED_CHARS:])
    return frozenset(
        memory.id for memory in shown if any(_has(agent, trace) and not _has(user, trace) for trace in memory.traces)
    )


def _has(text: str, trace: str) -> bool:
    return trace in text and re.search(rf"(?<![a-z0-9_]){re.escape(trace)}(?![a-z0-9_])", text) is not None


class UsedMemories:
    """Counts by layer and hook, and by memory. A missing or torn file counts as empty."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, shown: Sequence[ShownMemory], used: frozenset[str]) -> None:
        """Add what a conversation was shown, and which of it was used."""
        if not shown:
            return
        with _lock:
            stored = self._read()
            by_hook, by_memory = stored["by"], stored["memories"]
            for memory in shown:
                counts = [by_hook.setdefault(f"{memory.layer}/{memory.hook}", [0, 0])]
                if memory.traces:
                    by_memory[memory.id] = by_memory.pop(memory.id, [0, 0])  # the newest last
                    counts.append(by_memory[memory.id])
                for count in counts:
                    count[0] += 1
                    count[1] += memory.id in used
            stored["memories"] = dict(list(by_memory.items())[-KEPT:])
            write_atomic(self._path, json.dumps(stored).encode())

    def never_used(self) -> frozenset[str]:
        """Return the ids of what was shown often and never used."""
        memories = self._read()["memories"]
        return frozenset(id for id, (shown, used) in memories.items() if shown >= UNUSED_SHOWINGS_MAX and not used)

    def table(self) -> list[dict[str, Json]]:
        """Return how many were shown and used, by layer and hook."""
        rows: list[dict[str, Json]] = []
        for name, (shown, used) in sorted(self._read()["by"].items()):
            layer, _, hook = name.partition("/")
            rows.append({"layer": layer, "hook": hook, "shown": shown, "heeded": used})
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


class ShownSessions:
    """The last sessions: what each was shown, and whether it was used; ids, no text. A torn file counts as empty."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, scope: Scope, at: datetime, shown: Sequence[ShownMemory], used: frozenset[str]) -> None:
        """Add one look at what a conversation did with what it was shown."""
        if not shown:
            return
        who: Record = {"account": scope.account, "project": scope.project, "agent": scope.agent, "at": at.isoformat()}
        lines: list[Json] = [{"id": one.id, "hook": one.hook, "used": one.id in used} for one in shown]
        with _lock:
            write_atomic(self._path, json.dumps([*self._read(), {**who, "shown": lines}][-SESSIONS_KEPT:]).encode())

    def of(self, scope: Scope) -> list[Record]:
        """Return {agent, at, shown: [{id, hook, used}]} of this project's sessions, the newest first."""
        whose = (scope.account, scope.project)
        return [one for one in reversed(self._read()) if (one.get("account"), one.get("project")) == whose]

    def _read(self) -> list[Record]:
        try:
            return records(parsed(self._path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return []


def _is_pair(value: Json) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(count, int) for count in value)
