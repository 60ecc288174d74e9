"""Vectors of memories: the memory's own text, what came before it, and the rest of a long one.

One vector a memory. An event in a conversation is embedded alone and again after the event before it, and keeps the sum
of the two rows: its cosine is then the mean of both, which finds "Yes, last week!" (+2 R@10, docs/retrieval.md)
without a second vector in every engine. A long memory is the sum of its first 256 tokens and the mean of the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.domain.model import Layer
from memory_anchor.language.indexing import embedded_text, embedded_with_context
from memory_anchor.language.safe_regex import late
from memory_anchor.language.tokens import estimate_tokens

if TYPE_CHECKING:
    from memory_anchor.domain.model import Memory
    from memory_anchor.domain.ports import Embedder, Matrix

PIECE_TOKENS = 220
"""Estimated, so that a piece stays under the 256 tokens that an embedder reads."""
AWAITED_TOKENS = 64
"""Estimated. Embedding 64 tokens takes some 50 ms, 256 of Chinese half a second."""
AWAITED_OF_LONG = 32
"""Of what is longer: its own row is made in the background all the same, and an import waits for each."""
_CHARS_A_TOKEN = 8
MAX_PIECES = 12
_SENTENCE = late(r"[^。！？!?\n.]+[。！？!?\n.]*|[。！？!?\n.]+")
_LONGEST_SENTENCE = 400


def pieces(text: str) -> list[str]:
    """Return the text cut at sentence ends into at most 12 pieces of about 220 tokens; the first one comes first."""
    parts: list[str] = [""]
    size = 0
    for sentence in _SENTENCE.findall(text):
        for start in range(0, len(sentence), _LONGEST_SENTENCE):
            part = sentence[start : start + _LONGEST_SENTENCE]
            cost = estimate_tokens(part)
            if parts[-1] and size + cost > PIECE_TOKENS:
                parts.append("")
                size = 0
            parts[-1] += part
            size += cost
    return parts[:MAX_PIECES]


def awaited_text(text: str) -> str:
    """Return what of a memory's text a write waits for: all of it up to `AWAITED_TOKENS`, else its first few words.

    The row of this much finds the neighbours; a longer memory gets its own row later and is reconciled again.
    """
    if len(text) <= AWAITED_TOKENS:
        return text
    cut = text[: AWAITED_TOKENS * _CHARS_A_TOKEN]  # what is longer than that is never read whole
    if len(cut) == len(text) and estimate_tokens(text) <= AWAITED_TOKENS:
        return text
    while (estimate := estimate_tokens(cut)) > AWAITED_OF_LONG:
        cut = cut[: min(len(cut) - 1, int(len(cut) * AWAITED_OF_LONG / estimate))]
    return cut


def is_long(memory: Memory) -> bool:
    """Return whether a memory has more text than one row reads."""
    return len(memory.content) > PIECE_TOKENS and len(pieces(embedded_text(memory))) > 1


def document_rows(embedder: Embedder, memories: Sequence[Memory], *, whole: bool, headed: bool = False) -> Matrix:
    """Return one normalised row a memory.

    whole: also read the context and the rest of long ones (a passage's context is for words alone); without it only the
    memory's first tokens, which is what a caller waits for. headed: say the key before every piece: what a passage is
    about stands in its headings.
    """
    texts: list[str] = []
    shares: list[tuple[int, float]] = []
    for number, memory in enumerate(memories):
        own = embedded_text(memory)
        first, *rest = pieces(own) if whole else [own]
        if headed and memory.key:
            rest = [f"{memory.key}: {part}" for part in rest]
        parts = [(first if rest else own, 1.0), *((part, 1.0 / len(rest)) for part in rest)]
        if whole and memory.context and not rest and memory.layer is not Layer.OPERATIONAL_KNOWLEDGE:
            parts.append((embedded_with_context(memory), 1.0))
        for text, share in parts:
            texts.append(text)
            shares.append((number, share))
    rows = embedder.documents(texts)
    summed = np.zeros((len(memories), embedder.identity.dimensions), dtype=np.float32)
    for row, (number, share) in zip(rows, shares, strict=True):
        summed[number] += share * row
    return np.asarray(summed / np.maximum(np.linalg.norm(summed, axis=1, keepdims=True), 1e-9), dtype=np.float32)
