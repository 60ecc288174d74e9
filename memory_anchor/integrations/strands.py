"""Strands Agents (extra `strands`): a memory store for its `MemoryManager`.

`Agent(memory_manager=MemoryManager(stores=[StrandsStore(memory, user="u-17")]))`. Extraction is done here, by rules and
without a model's call (`add_messages`), unless a configuration says otherwise.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

import anyio.to_thread
from strands.memory import MemoryEntry, MemoryStore

from memory_anchor.extensions.library.memory import Memory, Whose


class StrandsStore(MemoryStore):
    """Strands' `MemoryStore` on a `Memory`."""

    def __init__(
        self,
        memory: Memory,
        *,
        name: str = "memory-anchor",
        description: str | None = "Long-term memory: decisions, rules, preferences, fixes and events.",
        max_search_results: int | None = 5,
        writable: bool = True,
        extraction: Any = True,
        **whose: Unpack[Whose],
    ) -> None:
        self.name, self.description, self.max_search_results = name, description, max_search_results
        self.writable, self.extraction = writable, extraction if writable else None
        self._memory, self._whose = memory, whose

    async def search(self, query: str, options: Any = None) -> list[MemoryEntry]:
        limit = (options or {}).get("max_search_results") or self.max_search_results or 5
        found = await anyio.to_thread.run_sync(partial(self._memory.search, query, limit=limit, **self._whose))
        return [
            MemoryEntry(
                content=hit.text,
                metadata={"id": hit.id, "score": hit.score, "type": hit.type, "weak": hit.weak},
            )
            for hit in found
        ]

    async def add(self, content: str, metadata: Any = None) -> Any:
        kind = str((metadata or {}).get("type", "fact"))
        return await anyio.to_thread.run_sync(partial(self._memory.save, content, type=kind, **self._whose))

    async def add_messages(self, messages: list[Any], context: Any = None) -> Any:  # noqa: ARG002
        said = [{"role": each["role"], "content": _text(each)} for each in messages if _text(each)]
        if said:
            return await anyio.to_thread.run_sync(partial(self._memory.remember, said, **self._whose))
        return []


def _text(message: Any) -> str:
    return "\n".join(str(block["text"]) for block in message["content"] if "text" in block)
