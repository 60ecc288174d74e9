"""The use cases that learn from a conversation: what is worth keeping of it is found, then stored like any other write.

Who extracts is the agent's choice (`agents.NAME.extraction`): a language model in a chosen style, or rules, which are a
normal mode and say so where a model was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from memory_anchor.hashing import stable_hash
from memory_anchor.ingest.messages import conversation
from memory_anchor.ingest.model_calls import Style
from memory_anchor.ingest.profile import ProfileLine, profile_of
from memory_anchor.ingest.remembering import KNOWN_MAX, Extract, Extracted, Remembered, extract_through
from memory_anchor.language.perspective import Perspective
from memory_anchor.model import (
    FOUND_STATES,
    LAYER_OF_TYPE,
    Layer,
    Memory,
    Origin,
    Status,
    Visibility,
    WriteMode,
    audiences,
)
from memory_anchor.requests import RememberConversation
from memory_anchor.where import OneOf, Where
from memory_anchor.writes import STORED_LAYERS, Writes

PROFILED_MAX = 1_000
"""The newest live facts that a profile is made from."""


class Conversations:
    def __init__(self, writes: Writes) -> None:
        self._writes = writes
        self.services, self.room, self.actor = writes.services, writes.room, writes.actor

    def remember(self, asked: RememberConversation) -> tuple[list[Remembered], list[str]]:
        """Store what is worth keeping of a conversation; return what became of each part, and notes.

        mode: the settings' of this agent when left out.
        """
        self._writes.check_writable()
        for layer in STORED_LAYERS:
            self._writes.check_usage(layer, Origin.EXTRACTED, Visibility.AGENT)
        known = self._known_first(stable_hash("learn", json.dumps(asked.asked(), sort_keys=True, default=str)))
        found, write_mode, notes = self.found_in(asked, known)
        if asked.waits:
            unsure = self.room.gate.unsure
            waiting = (replace(one, confidence=min(one.confidence, unsure)) for one in found.candidates)
            facts = tuple(one for one in waiting if LAYER_OF_TYPE[one.type] is Layer.VERIFIED_FACT)
            found = replace(found, candidates=facts)
        return self.services.rememberer.store(self.actor, found, gate=self.room.gate, mode=write_mode), notes

    def found_in(
        self, asked: RememberConversation, known: Sequence[Memory] | None = None
    ) -> tuple[Extracted, WriteMode, list[str]]:
        """Return what `remember` would store; nothing is written. known: None for what is known now."""
        turns = conversation(asked.messages)
        own = self.room.of_agent(self.actor.scope.agent).extraction
        write_mode = asked.mode or WriteMode(WriteMode.TOOL_CALL if own.mode == "auto" else own.mode)
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
        found = self.services.rememberer.find(turns, before, user_facts_only=asked.only is not None, extract=extract)
        return found, write_mode, [*notes, *found.notes]

    def profile(self) -> tuple[ProfileLine, ...]:
        """Return what is known of this caller's user and project, each line citing its fact."""
        return profile_of(self._known_here(PROFILED_MAX))

    def _known_first(self, asked: str) -> list[Memory]:
        """Return what was known when this request came first: of what it stored itself it would find nothing new."""
        nonce, now = self.actor.nonce, self._known_here()
        ids = self.services.answers.first(lambda: [one.point_id for one in now], asked, self.actor.scope.account, nonce)
        if ids == [one.point_id for one in now]:
            return now
        held = {e.memory.point_id: e.memory for e in self.services.store.get(Layer.VERIFIED_FACT.value, ids)}
        return [held[one] for one in ids if one in held]

    def _known_here(self, limit: int = KNOWN_MAX) -> list[Memory]:
        """Return the newest live facts this caller reads: what an extraction need not say again."""
        where = Where(
            (
                OneOf("audience", tuple(sorted(audiences(self.actor.scope)))),
                OneOf("state", tuple(sorted(FOUND_STATES | {Status.PENDING.value}))),
            )
        )
        return self.services.store.find(
            Layer.VERIFIED_FACT.value, where, limit=limit, order_by="recorded_at", descending=True
        )
