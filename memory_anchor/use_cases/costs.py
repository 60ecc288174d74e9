"""What the memory costs its users: calls of a language model, tokens shown, what it changes of a cached prefix, space.

Counted in memory at each hook and kept at the end of an answer or a session, so that no tool call writes a file. A
start of a conversation that differs from the one before, though nothing was written between, is counted in bytes: it
would break a client's prompt cache. Rejected: a log of every hook, which grows with what it measures.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from datetime import datetime
from itertools import takewhile
from pathlib import Path

from cachetools import LRUCache

from memory_anchor.base.files import write_atomic
from memory_anchor.base.json_values import Json
from memory_anchor.language.tokens import estimate_tokens

COSTS_FILE = "costs.json"
MODEL_TOKENS_FILE = "tokens.json"
STARTS_KEPT = 200
BLOCK_BYTES = 512
SESSIONS, PROMPTS, TOOL_CALLS, PREFIX = "SessionStart", "UserPromptSubmit", "PreToolUse", "prefix_bytes"
AT_ACTS = (TOOL_CALLS, "PostToolUse", "PostToolUseFailure")
COUNTED = (SESSIONS, PROMPTS, *AT_ACTS, "PreCompact")
"""Hooks that may show something. Any other name is the caller's own text, and is not kept."""


class ShownCosts:
    """Thread-safe. What hooks were asked and showed: `asked EVENT`, `tokens EVENT` and `prefix_bytes`, counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._new: Counter[str] = Counter()
        self._starts: LRUCache[tuple[str, ...], tuple[int, bytes]] = LRUCache(STARTS_KEPT)

    def note(self, event: str, text: str) -> None:
        """Count one hook and what it showed."""
        if event not in COUNTED:
            return
        tokens = round(estimate_tokens(text)) if text else 0
        with self._lock:
            self._new.update({f"asked {event}": 1, f"tokens {event}": tokens})

    def note_start(self, whose: tuple[str, ...], state: int, text: str) -> None:
        """Count the bytes of a start that differ from the last one of the same state (a number of the store's)."""
        start = text.encode()
        with self._lock:
            before = self._starts.get(whose)
            self._starts[whose] = state, start
            if before is not None and before[0] == state and before[1] != start:
                same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before[1], start, strict=False)))
                self._new[PREFIX] += len(start) - same

    def kept(self, data_dir: Path) -> Counter[str]:
        """Write what is new to the data directory; return all counts."""
        path = data_dir / COSTS_FILE
        with self._lock:
            try:
                stored = json.loads(path.read_text(encoding="utf-8"))
                counts = Counter({str(name): int(count) for name, count in stored.items()})
            except (OSError, ValueError, AttributeError, TypeError):
                counts = Counter()
            if self._new:
                counts.update(self._new)
                self._new.clear()
                write_atomic(path, json.dumps(counts).encode())
        return counts


def cost_report(costs: ShownCosts, data_dir: Path, *, model: str, now: datetime) -> dict[str, Json]:
    """Return what the memory cost so far. model: the kind of language model that is set up."""
    counts = costs.kept(data_dir)
    tokens = {name.removeprefix("tokens "): count for name, count in counts.items() if name.startswith("tokens ")}
    calls, spent = _model_calls(data_dir / MODEL_TOKENS_FILE, f"{now:%Y-%m}")
    asked = {name: counts[f"asked {name}"] for name in (SESSIONS, PROMPTS, TOOL_CALLS)}
    at_acts = sum(tokens.get(event, 0) for event in AT_ACTS)
    return {
        "model": model,
        "model_calls": calls,
        "model_tokens": spent,
        "sessions": asked[SESSIONS],
        "prompts": asked[PROMPTS],
        "tool_calls": asked[TOOL_CALLS],
        "tokens_shown": dict(sorted(tokens.items())),
        "tokens_per_session": _rate(tokens.get(SESSIONS, 0), asked[SESSIONS], 1),
        "tokens_per_100_prompts": _rate(tokens.get(PROMPTS, 0), asked[PROMPTS], 100),
        "tokens_per_1000_tool_calls": _rate(at_acts, asked[TOOL_CALLS], 1_000),
        "prefix_bytes_changed": counts[PREFIX],
        "disk_bytes": _disk_bytes(data_dir),
        "memory_bytes": _memory_bytes(),
    }


def _rate(tokens: int, asked: int, of: int) -> float:
    return round(of * tokens / asked, 1) if asked else 0.0


def _model_calls(path: Path, month: str) -> tuple[int, int]:
    """Return how often a language model was called this month, and its tokens."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return int(stored.get(f"{month} calls", 0)), int(stored.get(month, 0))
    except (OSError, ValueError, AttributeError, TypeError):
        return 0, 0


def _disk_bytes(folder: Path) -> int:
    """Return what a folder takes on the disk; files that vanish meanwhile count as none."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                status = Path(place, name).lstat()
            except OSError:
                continue
            total += getattr(status, "st_blocks", 0) * BLOCK_BYTES or status.st_size
    return total


def _memory_bytes() -> int:
    """Return the resident size of this process, 0 where /proc does not tell it."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
