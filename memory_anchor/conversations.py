"""The use cases that learn from a conversation: what is worth keeping of it is found, then stored like any other write.

Who extracts is the agent's choice (`agents.NAME.extraction`): a language model in a chosen style, or rules, which are a
normal mode and say so where a model was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from memory_anchor import inputs
from memory_anchor.errors import BadInput
from memory_anchor.hashing import stable_hash
from memory_anchor.ingest.messages import conversation
from memory_anchor.ingest.prompts import Style
from memory_anchor.ingest.remembering import KNOWN_MAX, Extract, Extracted, Remembered, extract_through
from memory_anchor.language.perspective import Perspective
from memory_anchor.model import FOUND_STATES, Layer, Memory, Origin, Status, Visibility, WriteMode, audiences
from memory_anchor.settings import AgentSettings
from memory_anchor.where import OneOf, Where
from memory_anchor.writes import STORED_LAYERS, Writes


class Conversations(Writes):
    @property
    def own(self) -> AgentSettings:
        """What the settings say about this agent."""
        return self.room.settings.agents.get(self.actor.scope.agent, AgentSettings())

    def remember_conversation(
        self, messages: object, *, mode: object = None, only: object = None
    ) -> tuple[list[Remembered], list[str]]:
        """Store what is worth keeping of a conversation; return what became of each part, and notes.

        mode: first-person, ghostwriter or factual (the settings of this agent when left out). only: "user_facts".
        """
        self.check_writable()
        for layer in STORED_LAYERS:
            self.check_usage(layer, Origin.EXTRACTED, Visibility.AGENT)
        asked = stable_hash("learn", json.dumps([messages, mode, only], sort_keys=True, default=str))
        known = self._known_first(asked)
        found, write_mode, notes = self.found_in(messages, mode=mode, only=only, known=known)
        return self.services.rememberer.store(self.actor, found, gate=self.room.gate, mode=write_mode), notes

    def found_in(
        self, messages: object, *, mode: object = None, only: object = None, known: Sequence[Memory] | None = None
    ) -> tuple[Extracted, WriteMode, list[str]]:
        """Return what `remember_conversation` would store; nothing is written. known: None for what is known now."""
        turns = conversation(messages)
        if only is not None and only != "user_facts":
            raise BadInput(f"only is {str(only)[:40]!r}; allowed is user_facts")
        own = self.own.extraction
        write_mode = inputs.choice("mode", mode if mode is not None else own.mode, WriteMode)
        style = Style(write_mode, Perspective(own.perspective), own.prompt_template)
        extract: Extract | None = None
        notes = []
        model = self.services.model_named(own.model)
        if model is not None and write_mode is not WriteMode.TOOL_CALL:
            extract = partial(
                extract_through,
                model=model,
                style=style,
                deadline_s=self.services.settings.llm.deadline_s,
                now=self.services.monotonic,
            )
        elif write_mode in (WriteMode.FIRST_PERSON, WriteMode.GHOSTWRITER):
            notes.append(f"no language model is configured, so rules extracted in factual mode, not {write_mode.value}")
            write_mode = WriteMode.FACTUAL
        before = self._known_here() if known is None else known
        found = self.services.rememberer.find(turns, before, user_facts_only=only is not None, extract=extract)
        return found, write_mode, [*notes, *found.notes]

    def _known_first(self, asked: str) -> list[Memory]:
        """Return what was known when this request came first: of what it stored itself it would find nothing new."""
        nonce, now = self.actor.nonce, self._known_here()
        ids = self.services.answers.first(lambda: [one.point_id for one in now], asked, self.actor.scope.account, nonce)
        if ids == [one.point_id for one in now]:
            return now
        held = {e.memory.point_id: e.memory for e in self.services.store.get(Layer.VERIFIED_FACT.value, ids)}
        return [held[one] for one in ids if one in held]

    def _known_here(self) -> list[Memory]:
        """Return the newest live facts this caller reads: what an extraction need not say again."""
        where = Where(
            (
                OneOf("audience", tuple(sorted(audiences(self.actor.scope)))),
                OneOf("state", tuple(sorted(FOUND_STATES | {Status.PENDING.value}))),
            )
        )
        return self.services.store.find(
            Layer.VERIFIED_FACT.value, where, limit=KNOWN_MAX, order_by="recorded_at", descending=True
        )
