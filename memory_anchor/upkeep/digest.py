"""An ordered digest: what remains readable of several memories when no language model writes their story.

Oldest first, one line each, the opening sentence of each cut at a word; the order carries what came of what. The
sources are cited and stay stored, so a digest may lose detail without losing memory. Deterministic, both languages.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b32encode
from collections.abc import Sequence

from memory_anchor.model import Citation, Memory, Trust

LINE_CHARS = 160
LINES_MAX = 40
DIGEST_CHARS = 7_500
"""Below the longest content a memory may have."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[\u3002\uff01\uff1f\uff1b])|\n")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")


def opening(text: str) -> str:
    """Return the first sentence of `text`, at most `LINE_CHARS` characters, cut at a word and marked when cut.

    >>> opening("Deploy failed. The disk was full.")
    'Deploy failed.'
    """
    first = next((part.strip() for part in _SENTENCE_END.split(text) if part.strip()), "")
    if len(first) <= LINE_CHARS:
        return first
    cut = first[: LINE_CHARS - 1]
    at = cut.rfind(" ")
    return (cut[:at] if at > LINE_CHARS // 2 else cut).rstrip() + "…"


def is_mostly_chinese(texts: Sequence[str]) -> bool:
    """Return whether a reader of these texts expects Chinese: a fifth of the characters is enough."""
    joined = "".join(texts)
    return len(_CHINESE.findall(joined)) * 5 >= max(1, len(joined))


def ordered_digest(memories: Sequence[Memory]) -> str:
    """Return the digest of at least one memory, in the order in which things happened."""
    ordered = in_order(memories)
    first, last = ordered[0].happened_at.date(), ordered[-1].happened_at.date()
    chinese = is_mostly_chinese([m.content for m in ordered])
    span = f"{first}" if first == last else (f"{first} 至 {last}" if chinese else f"{first} to {last}")
    head = f"{len(ordered)} 条记忆的摘要({span})" if chinese else f"Digest of {len(ordered)} memories ({span})"
    lines = [f"{head}:"]
    said: set[str] = set()
    for memory in ordered:
        line = opening(memory.content)
        if line and line not in said and len(said) < LINES_MAX:
            said.add(line)
            lines.append(f"- {line}" if first == last else f"- {memory.happened_at.date()}: {line}")
    return "\n".join(lines)[:DIGEST_CHARS]


def in_order(memories: Sequence[Memory]) -> list[Memory]:
    """Return memories by sequence number within a conversation, else by when they happened."""
    return sorted(memories, key=lambda m: (m.happened_at, m.conversation_seq or 0, m.id))


def cited(memories: Sequence[Memory]) -> tuple[Citation, ...]:
    """Return one citation a source memory, naming the very version that was read."""
    return tuple(
        Citation(kind="memory_entry", ref=memory.version_id, observed_at=memory.happened_at, trust=Trust.SEMI_TRUSTED)
        for memory in in_order(memories)
    )


def stable_id(prefix: str, *parts: str) -> str:
    """Return a 13-character id that the same parts always give: a job run twice writes the same memory."""
    digest = hashlib.blake2b("\x1f".join(parts).encode(), digest_size=8).digest()
    return prefix + b32encode(digest).decode().lower().rstrip("=")[: 13 - len(prefix)]
