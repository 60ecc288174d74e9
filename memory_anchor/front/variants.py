"""Which way of recall a request over HTTP goes by, and what its answer says of it; the same for `/v1` and `/mcp`.

A request names a variant in its header, or has it in its address (`/variants/NAME/...`, for clients that are given an
address alone); a conversation goes by the first that it asked for to its end. While it is answered, every citation and
cost report that is shaped says variant, index and algorithm: where they are shaped, so that none is left out and an
answer stays as long as it may be. Off HTTP nobody is asked and nothing is added.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from memory_anchor import json_values, shapes
from memory_anchor.errors import BadInput
from memory_anchor.front.callers import VARIANT_HEADER
from memory_anchor.hashing import stable_hash
from memory_anchor.language.terms import TERMS_VERSION
from memory_anchor.language.tokens import count_tokens
from memory_anchor.model import Actor
from memory_anchor.runtime.wire import VERSION
from memory_anchor.team.keys import FOLDER
from memory_anchor.team.telemetry import Conversation, StickyVariants, VariantUse

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from memory_anchor.core import Core

OWN_WAY = "default"


class VariantChoice:
    """One server's. Thread-safe."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._searcher = core.services.searcher
        self._talks = StickyVariants()
        self.use = VariantUse(core.data_dir / FOLDER, time.monotonic)

    @property
    def names(self) -> tuple[str, ...]:
        return (OWN_WAY, *self._searcher.variants)

    def chosen(self, request: HTTPConnection, actor: Actor, conversation: str) -> str:
        """Return the variant of a request: its conversation's, else what it asks for. Raises BadInput: none of ours.

        conversation: what the caller named; "" for one that named none, which sticks to nothing.
        """
        asked = request.headers.get(VARIANT_HEADER, OWN_WAY)
        if asked not in self.names:
            raise BadInput(f"X-KM-Variant is {asked[:80]!r}; allowed are {', '.join(self.names)}")
        return self._talks.of(self.talk(actor), asked) if conversation else asked

    @staticmethod
    def talk(actor: Actor) -> Conversation:
        """Return what names a conversation among those of everybody; empty where it has no name."""
        scope = actor.scope
        own = (scope.account, actor.project, scope.user, scope.conversation)
        return own if scope.conversation else ()

    @contextmanager
    def answering(self, variant: str) -> Iterator[None]:
        """Let searches of this block go by a variant, and what is cited in it say so."""
        own = "" if variant == OWN_WAY else variant
        with self._searcher.with_variant(own), shapes.cited_with(self.versions(variant)):
            yield

    def versions(self, variant: str = OWN_WAY) -> dict[str, str]:
        """Return {variant, index_version, algo_version}."""
        return self._versions[variant]

    @cached_property
    def _versions(self) -> dict[str, dict[str, str]]:
        """Embedder and terms tell indexes apart; the package and the settings of recall tell ways of recall apart."""
        settings, embedder = self._core.settings, self._core.services.embedder
        rows = f"{embedder.identity.model}/{embedder.identity.dimensions}" if embedder is not None else "words"
        ways = {OWN_WAY: settings.retrieval, **{name: one.retrieval for name, one in settings.variants.items()}}
        return {
            name: {
                "variant": name,
                "index_version": f"{rows}+terms{TERMS_VERSION}",
                "algo_version": f"{VERSION}+{stable_hash(chosen.model_dump_json())[:8]}",
            }
            for name, chosen in ways.items()
        }

    def searched(self, variant: str, actor: Actor, answer: json_values.Record, seconds: float) -> None:
        """Count a search's answer, where there is anything to compare."""
        if not self._searcher.variants:
            return
        lines = shapes.lines(answer, now=self._core.clock.now())
        tokens, shown = count_tokens(lines), json_values.records(answer["snippets"])
        self.use.searched(variant, self.talk(actor), ms=seconds * 1000, tokens=tokens, snippets=shown)

    def heard(self, actor: Actor, messages: json_values.Json) -> None:
        """Count what of its answers a conversation's agent used, from the transcript that was pushed."""
        if self._searcher.variants and (talk := self.talk(actor)):
            self.use.heard(talk, messages)
