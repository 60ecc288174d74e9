"""The embedding APIs that are known: a new one that speaks a known format is added here, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ApiEmbedderKind = Literal["openai", "zhipu", "gemini", "ollama"]
"""The keys of `PROVIDERS`, as `embedder.kind` may have them."""


@dataclass(frozen=True, slots=True)
class Provider:
    """How one API differs from another. batch: texts a request. widths: those its model has; empty: any."""

    name: str
    base_url: str
    model: str
    dimensions: int
    batch: int
    widths: tuple[int, ...] = ()
    is_local: bool = False


PROVIDERS: Mapping[str, Provider] = {
    "openai": Provider("openai", "https://api.openai.com/v1", "text-embedding-3-small", 384, 256),
    "zhipu": Provider(
        "zhipu", "https://open.bigmodel.cn/api/paas/v4", "embedding-3", 512, 64, widths=(256, 512, 1024, 2048)
    ),
    # text-embedding-004 was shut down; its successor answers in any width up to 3,072 and normalises none below.
    "gemini": Provider("gemini", "https://generativelanguage.googleapis.com/v1beta", "gemini-embedding-001", 768, 100),
    "ollama": Provider("ollama", "http://127.0.0.1:11434", "embeddinggemma", 768, 32, is_local=True),
}
