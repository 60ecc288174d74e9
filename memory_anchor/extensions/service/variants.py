"""The recall variant of an HTTP request, and what its answer says about it; the same for `/v1` and `/mcp`.

A request names a variant in a header or in its address (`/variants/NAME/...`, for clients that can only set an
address); a conversation stays with the one that it named last. Its answer's citations and cost reports name variant,
index and algorithm; `views` adds them, so that none is missed and the answer keeps its size limit. Callers without
HTTP get the default and nothing is added.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Json, Record, records
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import Actor
from memory_anchor.domain.requests.checks import shortened
from memory_anchor.extensions.service.keys import FOLDER
from memory_anchor.extensions.service.telemetry import Conversation, StickyVariants, VariantUse
from memory_anchor.front import views
from memory_anchor.front.callers import VARIANT_HEADER
from memory_anchor.language.terms import TERMS_VERSION
from memory_anchor.language.tokens import count_tokens
from memory_anchor.runtime.wire import VERSION

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from memory_anchor.process.wiring import Core

DEFAULT_VARIANT = "default"


class VariantChoice:
    """The variants of one server. Thread-safe."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._searcher = core.services.searcher
        self._sticky = StickyVariants()
        self.use = VariantUse(core.data_dir / FOLDER, time.monotonic)

    @property
    def names(self) -> tuple[str, ...]:
        return (DEFAULT_VARIANT, *self._searcher.variants)

    def choose(self, request: HTTPConnection, actor: Actor, conversation: str) -> str:
        """Return the variant of a request: the one it names, else its conversation's. Raises BadInput: no such one.

        conversation: as the caller named it; "" for none, and then no variant sticks.
        """
        name = request.headers.get(VARIANT_HEADER, "")
        if name and name not in self.names:
            raise BadInput(f"X-KM-Variant is {shortened(repr(name))}; allowed are {', '.join(self.names)}")
        if not conversation:
            return name or DEFAULT_VARIANT
        return self._sticky.named(_conversation_of(actor), name, DEFAULT_VARIANT)

    @contextmanager
    def answering(self, variant: str) -> Iterator[None]:
        """Run the searches of this block by a variant, and name it in their citations."""
        other = "" if variant == DEFAULT_VARIANT else variant
        with self._searcher.with_variant(other), views.cited_with(self.versions(variant)):
            yield

    def versions(self, variant: str = DEFAULT_VARIANT) -> dict[str, str]:
        return self._versions[variant]

    @cached_property
    def _versions(self) -> dict[str, dict[str, str]]:
        """The index is named by embedder and terms, the algorithm by the package and the settings of recall."""
        settings, embedder = self._core.settings, self._core.services.embedder
        rows = f"{embedder.identity.model}/{embedder.identity.dimensions}" if embedder is not None else "words"
        recalls = {DEFAULT_VARIANT: settings.retrieval}
        recalls |= {name: variant.retrieval for name, variant in settings.variants.items()}
        return {
            name: {
                "variant": name,
                "index_version": f"{rows}+terms{TERMS_VERSION}",
                "algo_version": f"{VERSION}+{stable_hash(recall.model_dump_json())[:8]}",
            }
            for name, recall in recalls.items()
        }

    def count_search(self, variant: str, actor: Actor, answer: Record, seconds: float) -> None:
        """Count a search's answer, where several variants are served."""
        if not self._searcher.variants:
            return
        tokens = count_tokens(views.lines(answer, now=self._core.clock.now()))
        conversation, snippets = _conversation_of(actor), records(answer["snippets"])
        self.use.count_search(variant, conversation, ms=seconds * 1000, tokens=tokens, snippets=snippets)

    def count_used(self, actor: Actor, messages: Json) -> None:
        """Count the recalled memories that a conversation's agent used, by its pushed transcript."""
        if self._searcher.variants and (conversation := _conversation_of(actor)):
            self.use.count_used(conversation, messages)


def _conversation_of(actor: Actor) -> Conversation:
    """Return a conversation's key among those of all callers; empty where it has no name."""
    scope = actor.scope
    return (scope.account, actor.project, scope.user, scope.conversation) if scope.conversation else ()
