"""L2 `event_log`: what happened, with when, where and who (strategy section 2, L2).

Events are searchable by words at once and embedded in the background. Within a conversation each gets the next sequence
number (turns often share one time) and the text of the one before as extra searchable context. Expiry archives;
promotion keeps the event as the fact's source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime

from cachetools import LRUCache

from memory_anchor.domain.model import (
    SEARCHABLE_STATES,
    Actor,
    Layer,
    Memory,
    Outcome,
    Scope,
    Status,
    Visibility,
    WriteOutcome,
    audiences,
)
from memory_anchor.domain.rights import Action, refusal
from memory_anchor.domain.versions import Draft, expired_by
from memory_anchor.domain.where import Between, Condition, OneOf, StartsWith, Where
from memory_anchor.language.indexing import conversation_context
from memory_anchor.language.timespans import horizon
from memory_anchor.layers.records import Records, Request, author_of, with_receipt

CONVERSATIONS_REMEMBERED = 1_000

_OUTCOMES = {Status.PENDING: Outcome.PENDING, Status.ARCHIVED: Outcome.ARCHIVED}

_Position = tuple[int, str, tuple[str, date] | None]
"""Of the last event of a conversation: sequence number, text, audience and day."""


class EventLog:
    def __init__(self, records: Records) -> None:
        self._records = records
        self._last: LRUCache[tuple[str, str, str], _Position] = LRUCache(CONVERSATIONS_REMEMBERED)

    def log(self, actor: Actor, draft: Draft, request: Request | None = None) -> WriteOutcome:
        """Store one event and return `added`, or the stored answer when this request was answered before."""
        with self._records.lock:
            done = self._records.replayed(request)
            if done is not None:
                return done
            in_conversation = bool(actor.scope.conversation)
            seq, before, readers_before = self._position(actor.scope)
            memory = self._memory(actor, draft, seq=seq + 1 if in_conversation else None)
            # The text before is searched with this event, so only for the very same readers and the same day.
            readers = memory.audience, memory.happened_at.date()
            memory = replace(memory, context=draft.context or (before if readers == readers_before else ""))
            outcome = WriteOutcome(
                _OUTCOMES.get(memory.status, Outcome.ADDED),
                memory.id,
                Layer.EVENT_LOG,
                memory.status,
                memory.reason,
                redactions=draft.redactions,
            )
            entry = self._records.entry(with_receipt(memory, request, outcome), embed=False)
            self._records.commit([entry], kind="log", by=author_of(actor))
            if in_conversation:
                self._last[_conversation(actor.scope)] = (seq + 1, conversation_context(draft.content), readers)
            return outcome

    def clear_cache(self) -> None:
        """Forget the last event of every conversation; it is read from the store again."""
        with self._records.lock:
            self._last.clear()

    def now(self) -> datetime:
        """Return the instant at which an event logged now happened."""
        return self._records.clock.now()

    def recent(self, reader: Scope, limit: int) -> list[Memory]:
        """Return what happened last, newest first, without what is planned for later."""
        return self.find(reader, end=horizon(self.now()), limit=limit)

    def find(
        self,
        reader: Scope,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        where: str | None = None,
        who: Sequence[str] = (),
        limit: int,
    ) -> list[Memory]:
        """Return events by time alone: readable, live, not expired, in [start, end), place by prefix, any of these
        people. What happened is newest first; plans beyond the horizon of what is due follow, soonest first."""
        conditions: list[Condition] = [
            OneOf("audience", tuple(sorted(audiences(reader)))),
            OneOf("state", tuple(sorted(SEARCHABLE_STATES))),
        ]
        if start is not None or end is not None:
            conditions.append(Between("when", at_least=start, below=end))
        if where:
            conditions.append(StartsWith("where", where))
        if who:
            conditions.append(OneOf("who", tuple(who)))
        now = self.now()

        def ordered(*more: Condition, limit: int, descending: bool) -> list[Memory]:
            where = Where((*conditions, *more), (expired_by(now),))
            name = Layer.EVENT_LOG.value
            return self._records.store.find(name, where, limit=limit, order_by="when", descending=descending)

        ahead = horizon(now)
        past = ordered(Between("when", below=ahead), limit=limit, descending=True)
        if len(past) == limit or (end is not None and end <= ahead):
            return past
        return [*past, *ordered(Between("when", at_least=ahead), limit=limit - len(past), descending=False)]

    def _position(self, scope: Scope) -> _Position:
        """Return the position after the last event of this conversation."""
        name = _conversation(scope)
        if scope.conversation and name not in self._last and (last := self._records.last_of_conversation(scope)):
            readers = (last.audience, last.happened_at.date())
            self._last[name] = (last.conversation_seq or 0, conversation_context(last.content), readers)
        return self._last.get(name, (0, "", None)) if scope.conversation else (0, "", None)

    def _memory(self, actor: Actor, draft: Draft, *, seq: int | None) -> Memory:
        begun = replace(self._records.begun(actor, draft), conversation_seq=seq)
        if draft.expires_at is not None and draft.expires_at <= begun.recorded_at:
            ended = f"its time to live of {draft.ttl_days} days ended on {draft.expires_at:%Y-%m-%d}"
            return replace(begun, status=Status.ARCHIVED, reason=ended)
        waits = refusal(Action.SAVE_FOR_ACCOUNT, actor.caller) if draft.visibility is Visibility.ACCOUNT else ""
        return replace(begun, status=Status.PENDING, reason=waits) if waits else begun


def _conversation(scope: Scope) -> tuple[str, str, str]:
    return (scope.account, scope.project, scope.conversation)
