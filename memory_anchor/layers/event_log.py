"""L2 `event_log`: what happened, with when, where and who (strategy section 2, L2).

Events are stored with their words at once and embedded behind. Within a conversation each gets the next sequence number
(turns often share one time) and the text of the one before as extra searchable context. Expiry archives; promotion
keeps the event as the fact's source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from cachetools import LRUCache

from memory_anchor.activation import HasImportance, Weight, first_priority, with_highest_importance
from memory_anchor.hashing import content_hash
from memory_anchor.language.indexing import conversation_context
from memory_anchor.layers.records import Records, Request, author_of, cited_by, with_receipt
from memory_anchor.model import (
    FOUND_STATES,
    Actor,
    Citation,
    Layer,
    Memory,
    MemoryType,
    Origin,
    Outcome,
    Scope,
    Status,
    Tag,
    Visibility,
    WriteMode,
    WriteOutcome,
    audiences,
)
from memory_anchor.rights import Deed, refusal
from memory_anchor.versions import expired_by
from memory_anchor.where import Between, Condition, OneOf, StartsWith, Where

CONVERSATIONS_REMEMBERED = 1_000

_Position = tuple[int, str, tuple[str, date] | None]
"""Of the last event of a conversation: sequence number, text, audience and day."""


@dataclass(frozen=True, slots=True)
class EventDraft(Weight):
    """A checked wish to log an event; times are aware UTC."""

    content: str
    when: datetime
    type: MemoryType = MemoryType.EVENT
    key: str = ""
    where: str | None = None
    who: tuple[str, ...] = ()
    ttl_days: int | None = None
    tags: tuple[Tag, ...] = ()
    citations: tuple[Citation, ...] = ()
    confidence: float = 0.9
    sentiment: float | None = None
    half_life_days: float | None = None
    written_at: datetime | None = None
    visibility: Visibility = Visibility.PROJECT
    origin: Origin = Origin.AGENT
    write_mode: WriteMode = WriteMode.TOOL_CALL
    extractor_model: str | None = None
    questions: tuple[str, ...] = ()
    redactions: tuple[str, ...] = ()

    @classmethod
    def like(cls, one: HasImportance, content: str, when: datetime) -> EventDraft:
        """Return a wish to log this text under the key and with the weight of what says it."""
        return cls(content, when, key=one.key).with_importance_of(one)


class EventLog:
    def __init__(self, records: Records) -> None:
        self._records = records
        self._last: LRUCache[tuple[str, str, str], _Position] = LRUCache(CONVERSATIONS_REMEMBERED)

    def log(self, actor: Actor, draft: EventDraft, request: Request | None = None) -> WriteOutcome:
        """Store one event and return `added`, or the first answer when this request was answered before."""
        return self.log_all(actor, [draft], request)[0]

    def log_all(self, actor: Actor, drafts: Sequence[EventDraft], request: Request | None = None) -> list[WriteOutcome]:
        """Store events in order, all of them or none. `request` covers the batch and is kept with its first event."""
        with self._records.lock:
            done = self._records.replayed(request)
            if done is not None:
                return [done]
            seq, before, told_before = self._position(actor.scope)
            memories: list[Memory] = []
            outcomes: list[WriteOutcome] = []
            for draft in drafts:
                if actor.scope.conversation:
                    seq += 1
                memory = self._memory(actor, draft, seq=seq if actor.scope.conversation else None)
                # What went before is searched with this event, so only for the very same readers and of the same talk.
                told = memory.audience, memory.happened_at.date()
                memory = replace(memory, context=before if told == told_before else "")
                before, told_before = conversation_context(draft.content) if actor.scope.conversation else "", told
                waits = memory.status is Status.PENDING
                outcome = WriteOutcome(
                    Outcome.PENDING if waits else Outcome.ADDED,
                    memory.id,
                    Layer.EVENT_LOG,
                    memory.status,
                    memory.reason,
                    redactions=draft.redactions,
                )
                memories.append(memory if memories else with_receipt(memory, request, outcome))
                outcomes.append(outcome)
            entries = [self._records.entry(memory, embed=False) for memory in memories]
            self._records.commit(entries, kind="log", by=author_of(actor))
            self._last[_conversation(actor.scope)] = (seq, before, told_before)
            return outcomes

    def clear_cache(self) -> None:
        """Forget what was said last in every conversation; the store tells it anew."""
        with self._records.lock:
            self._last.clear()

    def now(self) -> datetime:
        """Return the instant at which an event logged now happened."""
        return self._records.clock.now()

    def find(
        self,
        reader: Scope,
        *,
        start: datetime | None,
        end: datetime | None,
        where: str | None,
        who: Sequence[str],
        limit: int,
    ) -> list[Memory]:
        """Return events by time alone, newest first. end: exclusive."""
        return self._records.store.find(
            Layer.EVENT_LOG.value,
            event_filter(reader, start=start, end=end, where=where, who=who, now=self._records.clock.now()),
            limit=limit,
            order_by="when",
            descending=True,
        )

    def _position(self, scope: Scope) -> _Position:
        """Return the last sequence number of this conversation, the text before, who reads that and its day."""
        if not scope.conversation:
            return 0, "", None
        name = _conversation(scope)
        if name not in self._last:
            last = self._records.last_of_conversation(scope)
            told = (last.audience, last.happened_at.date()) if last else None
            self._last[name] = (
                (last.conversation_seq or 0, conversation_context(last.content), told) if last else (0, "", None)
            )
        return self._last[name]

    def _memory(self, actor: Actor, draft: EventDraft, *, seq: int | None) -> Memory:
        now = self._records.clock.now()
        author = author_of(actor)
        waits = refusal(Deed.SAVE_FOR_ACCOUNT, actor.caller) if draft.visibility is Visibility.ACCOUNT else ""
        memory = Memory(
            id=self._records.new_id(),
            content=draft.content,
            layer=Layer.EVENT_LOG,
            type=draft.type,
            scope=replace(actor.scope, across=()),
            recorded_at=now,
            valid_from=draft.when,
            key=draft.key,
            tags=draft.tags,
            priority=first_priority(draft),
            confidence=draft.confidence,
            sentiment=draft.sentiment,
            half_life_days=draft.half_life_days,
            content_at=draft.written_at,
            origin=draft.origin,
            write_mode=draft.write_mode,
            extractor_model=draft.extractor_model,
            visibility=draft.visibility,
            status=Status.PENDING if waits else Status.ACTIVE,
            reason=waits,
            conversation_seq=seq,
            citations=cited_by(actor, draft.origin, draft.citations),
            when=draft.when,
            where=draft.where,
            who=draft.who,
            ttl_days=draft.ttl_days,
            # Age counts from when it was recorded: an old event told today still lives its days.
            expires_at=now + timedelta(days=draft.ttl_days) if draft.ttl_days else None,
            questions=draft.questions,
            content_hash=content_hash(draft.content),
            author=author,
        )
        return with_highest_importance(memory, [draft])


def event_filter(
    reader: Scope,
    *,
    start: datetime | None,
    end: datetime | None,
    where: str | None,
    who: Sequence[str],
    now: datetime,
) -> Where:
    """Return the filter of `search_events`: readable, live, not expired, in [start, end), place by prefix, any of these
    people."""
    conditions: list[Condition] = [
        OneOf("audience", tuple(sorted(audiences(reader)))),
        OneOf("state", tuple(sorted(FOUND_STATES))),
    ]
    if start is not None or end is not None:
        conditions.append(Between("when", at_least=start, below=end))
    if where:
        conditions.append(StartsWith("where", where))
    if who:
        conditions.append(OneOf("who", tuple(who)))
    return Where(tuple(conditions), (expired_by(now),))


def _conversation(scope: Scope) -> tuple[str, str, str]:
    return (scope.account, scope.project, scope.conversation)
