"""Reading a conversation's events again when it has ended: its topics, and the facts that were never saved.

What was logged is primary text and goes through the same rules, gate and reconciling as a conversation. What was itself
extracted, or came from a document, is never read again as if somebody had said it; what only one conversation or agent
may see gives no facts to others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from memory_anchor.ingest.messages import Message
from memory_anchor.ingest.remembering import EMBEDDED_MAX, Extracted, Rememberer, Rows
from memory_anchor.ingest.segmentation import episodes
from memory_anchor.layers.gate import Gate
from memory_anchor.model import LAYER_OF_TYPE, Actor, Caller, Layer, Memory, Origin, Outcome, Visibility, WriteMode

CLIENT = "consolidation"
SPOKEN = frozenset({Origin.HUMAN, Origin.AGENT})
SHARED = frozenset({Visibility.PROJECT, Visibility.USER, Visibility.ACCOUNT})
NEW = frozenset({Outcome.ADDED, Outcome.UPDATED, Outcome.SUPERSEDED, Outcome.PENDING, Outcome.NEEDS_REVIEW})


@dataclass(frozen=True, slots=True)
class EventReader:
    """rows: centred rows of texts, None when nothing can embed now. gate: what a claim must pass."""

    rememberer: Rememberer
    rows: Rows
    gate: Callable[[], Gate]

    def topics(self, events: Sequence[Memory]) -> list[Sequence[Memory]]:
        """Return one conversation's events in whole topics, in order; one topic when nothing can embed now."""
        rows = self.rows([event.content for event in events]) if len(events) <= EMBEDDED_MAX else None
        if rows is None or not events:
            return [events]
        return [events[one.start : one.end] for one in episodes(_messages(events), rows)]

    def save_facts(self, events: Sequence[Memory]) -> int:
        """Save the facts that the events of one conversation hold; return how many were new. A repeat saves none."""
        spoken = [event for event in events if event.origin in SPOKEN and event.visibility in SHARED]
        if not spoken:
            return 0
        found = self.rememberer.find(_messages(spoken), (), user_facts_only=False, extract=None)
        facts = tuple(one for one in found.candidates if LAYER_OF_TYPE[one.type] is Layer.VERIFIED_FACT)
        actor = Actor(Caller.SYSTEM, spoken[-1].scope, client=CLIENT)
        done = self.rememberer.store(
            actor, Extracted(found.episodes, facts, found.by), gate=self.gate(), mode=WriteMode.FACTUAL
        )
        return sum(one.outcome.outcome in NEW for one in done)


def _messages(events: Sequence[Memory]) -> list[Message]:
    """Return events as turns: a human's as the user's, any other as the assistant's."""
    turn = Message("assistant", "")
    return [
        replace(turn, role="user" if event.origin is Origin.HUMAN else "assistant", content=event.content, seq=number)
        for number, event in enumerate(events)
    ]
