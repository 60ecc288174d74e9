"""A store, an embedder and a searcher for tests of searches, and short ways to fill them."""

from __future__ import annotations

from typing import Any

from memory_anchor.base.hashing import content_hash
from memory_anchor.domain.model import Actor, Layer, Memory, MemoryType, Scope, SearchAnswer
from memory_anchor.domain.ports import DENSE, CollectionSpec, Embedder
from memory_anchor.language.indexing import conversation_context
from memory_anchor.recall.request import SearchRequest
from memory_anchor.testing import HashEmbedder, ManualClock, make_searcher, memory_store

ACTOR = Actor()


def ids(answer: SearchAnswer) -> list[str]:
    return [snippet.id for snippet in answer.snippets]


class Bench:
    """A store, an embedder and a searcher, and short ways to fill them."""

    def __init__(self, *, embedder: Embedder | None = None, **options: Any) -> None:
        self.store, self.clock = memory_store(), ManualClock()
        self.embedder = embedder or HashEmbedder(dimensions=256)
        for layer in (Layer.EVENT_LOG, Layer.VERIFIED_FACT):
            self.store.open_collection(layer.value, CollectionSpec({DENSE: self.embedder.identity}))
        self.searcher = make_searcher(self.store, self.embedder, self.clock, **options)
        self._number = 0

    def add(self, memory: Memory, *, embed: bool = True) -> Memory:
        entry = self.searcher.index.entry_of(memory, embed=embed)
        self.store.put(memory.layer.value, [entry])
        self.searcher.index.note_written(entry)
        return memory

    def fact(self, content: str, *, embed: bool = True, **more: Any) -> Memory:
        return self.add(self._memory(content, Layer.VERIFIED_FACT, MemoryType.FACT, **more), embed=embed)

    def event(self, content: str, *, embed: bool = True, **more: Any) -> Memory:
        more.setdefault("when", self.clock.now())
        kind = more.pop("type", MemoryType.EVENT)
        return self.add(self._memory(content, Layer.EVENT_LOG, kind, **more), embed=embed)

    def talk(self, name: str, *lines: tuple[str, str]) -> list[Memory]:
        told: list[Memory] = []
        for place, (who, content) in enumerate(lines):
            before = told[-1] if told else None
            told.append(
                self.event(
                    content,
                    who=(who,),
                    scope=Scope(conversation=name),
                    conversation_seq=place,
                    context=conversation_context(before.content) if before else "",
                )
            )
        return told

    def _memory(self, content: str, layer: Layer, kind: MemoryType, **more: Any) -> Memory:
        self._number += 1
        now = self.clock.now()
        fields: dict[str, Any] = {"scope": Scope(), "recorded_at": now, "valid_from": now} | more
        return Memory(
            id=f"m{self._number:03d}",
            content=content,
            layer=layer,
            type=kind,
            content_hash=content_hash(content),
            **fields,
        )

    def search(self, query: str, actor: Actor = ACTOR, **more: Any) -> SearchAnswer:
        return self.searcher.search(actor, SearchRequest(query, **more))

    def ask(self, query: str, actor: Actor = ACTOR, **more: Any) -> list[str]:
        return ids(self.search(query, actor, **more))
