"""Writing facts: gate -> exact repeat -> neighbours -> decision -> one atomic commit.

The only way into L3, whether an agent saves, an event is promoted or a conversation is extracted. Embedding runs before
the write lock; everything that is checked and then written runs inside it. What a human wrote is never superseded by
an agent: both stand as disputed until a human has looked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from memory_anchor.activation import HasImportance, Weight, first_priority, merged_priority, with_highest_importance
from memory_anchor.errors import BadInput, Refused, retry_on_conflict
from memory_anchor.hashing import content_hash
from memory_anchor.ingest.reconcile import Decision, Relation
from memory_anchor.json_values import Json
from memory_anchor.layers.gate import ConfidenceGate, Verdict
from memory_anchor.layers.records import Records, Request, author_of, cited_by, outcome_to, with_receipt
from memory_anchor.model import (
    Actor,
    Citation,
    Layer,
    Memory,
    MemoryType,
    Origin,
    Outcome,
    Receipt,
    Similar,
    Status,
    Tag,
    Visibility,
    WriteMode,
    WriteOutcome,
)
from memory_anchor.ports import Entry
from memory_anchor.rights import Deed, may
from memory_anchor.versions import Revision, revise
from memory_anchor.where import OneOf, Where

SIMILAR_SHOWN = 3
BESIDE_MAX = 32
"""Tags, and sources, of one memory up to which repeats add theirs."""


@dataclass(frozen=True, slots=True)
class FactDraft(Weight):
    """A checked wish to store a fact; text already redacted."""

    content: str
    type: MemoryType = MemoryType.FACT
    key: str = ""
    tags: tuple[Tag, ...] = ()
    confidence: float = 0.9
    doubt: str = ""
    """The word for which the gate assessed it lower; "" where the confidence was claimed."""
    visibility: Visibility = Visibility.PROJECT
    citations: tuple[Citation, ...] = ()
    replaces: str | None = None
    ends: tuple[str, ...] = ()
    """Further memories that what replaces the first leaves nothing of."""
    origin: Origin = Origin.AGENT
    write_mode: WriteMode = WriteMode.TOOL_CALL
    quoted: bool = False
    extractor_model: str | None = None
    questions: tuple[str, ...] = ()
    sentiment: float | None = None
    half_life_days: float | None = None
    who: tuple[str, ...] = ()
    written_at: datetime | None = None
    """When an observation was written down, where that is not now."""
    gap: dict[str, Json] | None = None
    redactions: tuple[str, ...] = ()

    @classmethod
    def like(cls, one: HasImportance, content: str) -> FactDraft:
        """Return a wish to store this text under the key and with the weight of what says it."""
        return cls(content, key=one.key).with_importance_of(one)


Neighbours = Callable[[Actor, Memory], Sequence[tuple[Memory, float]]]
"""Live memories of the same layer near a new one, with their centred cosine, best first."""
Decide = Callable[[Memory, Sequence[tuple[Memory, float]]], Decision]


@dataclass(frozen=True, slots=True)
class _Write:
    """One save on its way: who asks, what for, and what the gate said. entry: the memory it would become.

    looked: how often the store had been written to when repeats were looked for, None where nobody knows.
    """

    actor: Actor
    draft: FactDraft
    entry: Entry
    verdict: Verdict
    gate: ConfidenceGate
    request: Request | None
    looked: int | None


class FactWriter:
    def __init__(
        self,
        records: Records,
        gate: ConfidenceGate,
        neighbours: Neighbours,
        decide: Decide,
        *,
        ponder: Decide | None = None,
    ) -> None:
        """decide: at once, under the writers' lock. ponder: may take seconds (a language model), outside it."""
        self._records = records
        self._gate = gate
        self._neighbours = neighbours
        self._decide = decide
        self._ponder = ponder

    def save(
        self, actor: Actor, draft: FactDraft, request: Request | None = None, *, gate: ConfidenceGate | None = None
    ) -> WriteOutcome:
        """Store a fact, or say why not; a repeated request gets its first answer."""
        judge = gate or self._gate
        verdict, memory = self._judged(actor, draft, judge)
        if memory is None:
            return WriteOutcome(
                Outcome.REJECTED, None, Layer.VERIFIED_FACT, None, verdict.reason, redactions=draft.redactions
            )
        looked = self._records.written()
        known = self._known(actor, draft, memory, request, judge)
        if known is not None:
            return known
        entry = self._records.entry(memory, embed=True)
        pondered = None if self._ponder is None or draft.replaces else self._pondered(self._ponder, actor, memory)
        write = _Write(actor, draft, entry, verdict, judge, request, looked)
        with self._records.lock:
            return retry_on_conflict(lambda: self._decided(write, pondered))

    def _decided(self, write: _Write, pondered: Decision | None) -> WriteOutcome:
        """Decide by what is stored now, carry it out and return the answer. The caller holds the lock."""
        actor, draft, memory = write.actor, write.draft, write.entry.memory
        if write.looked is None or write.looked != self._records.written():  # while it was embedded, others wrote
            known = self._known(actor, draft, memory, write.request, write.gate)
            if known is not None:
                return known
        target = self._records.read(draft.replaces, actor.scope) if draft.replaces else None
        if target is not None:
            decision = _replacement(target)
        else:
            near = self._near(actor, memory)
            decision = self._decide(memory, near) if pondered is None else self._still(pondered, memory, near)
        target, outcome, similar = decision.target, decision.outcome, tuple(decision.similar[:SIMILAR_SHOWN])
        if target is not None and memory.status is Status.PENDING and outcome is not Outcome.SKIPPED:
            # What itself waits for a human can neither displace nor dispute what stands.
            return self._add(write, Outcome.PENDING, similar, target_id=target.id)
        match outcome:
            case Outcome.SKIPPED if target is not None and decision.relation is Relation.CONFLICT:
                return _kept_old(write, target, decision, similar)
            case Outcome.SKIPPED if target is not None:
                why = "a fact that says the same"
                return self._strengthen(actor, draft, target, write.request, write.gate, why)
            case Outcome.UPDATED if target is not None and not may(Deed.DISPLACE, actor.caller, [target]):
                return self._add(write, Outcome.ADDED, similar)
            case Outcome.UPDATED if target is not None:
                return self._update(write, target, decision)
            case Outcome.SUPERSEDED if target is not None and may(Deed.DISPLACE, actor.caller, [target]):
                return self._supersede(write, target, decision, similar)
            case Outcome.SUPERSEDED | Outcome.NEEDS_REVIEW if target is not None:
                return self._dispute(write, target, decision, similar)
            case _:
                return self._add(write, Outcome.PENDING if memory.status is Status.PENDING else Outcome.ADDED, similar)

    def foreseen(
        self, actor: Actor, draft: FactDraft, request: Request | None, *, gate: ConfidenceGate | None = None
    ) -> Outcome:
        """Return what `save` would find, what waits for review included: added, skipped, updated, superseded,
        needs_review or rejected. Nothing is written.
        """
        _, memory = self._judged(actor, draft, gate or self._gate)
        if memory is None:
            return Outcome.REJECTED
        with self._records.lock:
            if self._records.replayed(request) is not None or self._records.same_content(memory) is not None:
                return Outcome.SKIPPED
            return self._decide(memory, self._near(actor, memory)).outcome

    def _near(self, actor: Actor, memory: Memory) -> list[tuple[Memory, float]]:
        """Return the neighbours that the very same readers see: only those may be displaced or repeated."""
        return [(m, score) for m, score in self._neighbours(actor, memory) if m.audience == memory.audience]

    def _pondered(self, ponder: Decide, actor: Actor, memory: Memory) -> Decision | None:
        near = self._near(actor, memory)
        return ponder(memory, near) if near else None

    def _still(self, pondered: Decision, memory: Memory, near: list[tuple[Memory, float]]) -> Decision:
        """Return what was pondered, unless its target changed meanwhile: then what rules say now."""
        target = pondered.target
        if target is None or any(m.version_id == target.version_id for m, _ in near):
            return pondered
        return self._decide(memory, near)

    def _known(
        self, actor: Actor, draft: FactDraft, memory: Memory, request: Request | None, gate: ConfidenceGate
    ) -> WriteOutcome | None:
        """Return the answer to a repeat: of the request, or of the very same fact."""
        with self._records.lock:
            done = self._records.replayed(request)
            if done is not None:
                return done
            same = None if draft.replaces else self._records.same_content(memory)
            return None if same is None else self._strengthen(actor, draft, same, request, gate, "the same text")

    def _strengthen(
        self, actor: Actor, draft: FactDraft, known: Memory, request: Request | None, gate: ConfidenceGate, why: str
    ) -> WriteOutcome:
        """Count a repeat as one more use of what is known; another origin also raises its confidence."""
        at = self._records.clock.now()
        confidence = gate.corroborated(known.confidence, known.origin, draft.confidence, draft.origin)
        priority = merged_priority(known.priority)
        tags, cited = _news_beside(known, actor, draft)
        status = known.status
        if status is Status.PENDING and may(Deed.ACCEPT, actor.caller):
            status = Status.ACTIVE
        outcome = WriteOutcome(
            Outcome.SKIPPED,
            known.id,
            known.layer,
            status,
            f"nothing new: {why} is already known and was strengthened{_with_news(tags, cited)}",
            redactions=draft.redactions,
        )
        receipt = Receipt(request.key, request.fingerprint, outcome_to(outcome)) if request else None
        if confidence == known.confidence and status is known.status and not tags and not cited:
            self._records.touch(replace(known, priority=priority), at=at, receipt=receipt)
            return outcome
        stronger = replace(
            known,
            confidence=confidence,
            priority=priority,
            corroborated_at=at if confidence != known.confidence else known.corroborated_at,
            status=status,
            tags=(*known.tags, *tags),
            citations=(*known.citations, *cited),
        )
        why = "corroborated by another origin" if confidence != known.confidence else "said again"
        step = self._revised(actor, known, stronger, at, why)
        told = replace(step, new=with_receipt(step.new, request, outcome))
        self._records.commit(revisions=[told], kind="corroborate", by=step.new.author)
        return outcome

    def _add(
        self, write: _Write, outcome: Outcome, similar: tuple[Similar, ...], target_id: str | None = None
    ) -> WriteOutcome:
        memory, redactions = write.entry.memory, write.draft.redactions
        reason = write.verdict.reason
        answer = WriteOutcome(outcome, memory.id, memory.layer, memory.status, reason, target_id, similar, redactions)
        stored = replace(write.entry, memory=with_receipt(memory, write.request, answer))
        self._records.commit([stored], kind="save", by=memory.author)
        return answer

    def _update(self, write: _Write, target: Memory, decision: Decision) -> WriteOutcome:
        at, draft = self._records.clock.now(), write.draft
        merged = decision.merged_content or target.content
        names = {tag.name for tag in target.tags}
        both = replace(
            target,
            content=merged,
            content_hash=content_hash(merged),
            tags=(*target.tags, *(tag for tag in draft.tags if tag.name not in names)),
            citations=(*target.citations, *draft.citations),
            priority=merged_priority(target.priority, draft),
            corroborated_at=at,
        )
        step = self._revised(write.actor, target, with_highest_importance(both, (target, draft)), at, decision.reason)
        answer = WriteOutcome(
            Outcome.UPDATED,
            target.id,
            target.layer,
            step.new.status,
            decision.reason,
            target.id,
            redactions=draft.redactions,
        )
        told = replace(step, new=with_receipt(step.new, write.request, answer))
        self._records.commit(revisions=[told], kind="update", by=step.new.author)
        return answer

    def _supersede(
        self, write: _Write, target: Memory, decision: Decision, similar: tuple[Similar, ...]
    ) -> WriteOutcome:
        """End the target for the new fact, which takes over what speaks against it: a change is no verdict on that."""
        at, new = self._records.clock.now(), replace(write.entry.memory, previous_version_id=target.version_id)
        others = self._speaking_against(target)
        outcome, reason = Outcome.SUPERSEDED, decision.reason
        if others:
            new = replace(new, status=Status.DISPUTED, disputes=tuple(other.id for other in others))
            against = " and ".join(new.disputes)
            outcome = Outcome.NEEDS_REVIEW
            reason += f"; {against} speaks against it too, they stand as disputed until `memory-anchor review`"
        steps = [
            self._revised(write.actor, one, ended, at, f"superseded by {new.id}")
            for one in (target, *self._ended_too(write, target))
            for ended in (replace(one, status=Status.SUPERSEDED, valid_to=at),)
        ]
        for other in others:
            disputes = tuple(dict.fromkeys(new.id if one == target.id else one for one in other.disputes))
            why = f"disputed by {new.id}, which superseded {target.id}"
            disputed = replace(other, status=Status.DISPUTED, disputes=disputes)
            steps.append(self._revised(write.actor, other, disputed, at, why))
        redactions = write.draft.redactions
        answer = WriteOutcome(outcome, new.id, new.layer, new.status, reason, target.id, similar, redactions)
        return self._commit_beside(write, new, steps, answer, kind="supersede")

    def _ended_too(self, write: _Write, target: Memory) -> list[Memory]:
        """Return what a new fact ends beside its target: undisputed and this caller's to displace."""
        named = [self._records.read(name, write.actor.scope) for name in write.draft.ends if name != target.id]
        may_end = [one for one in named if may(Deed.DISPLACE, write.actor.caller, [one])]
        return [one for one in may_end if one.status in (Status.ACTIVE, Status.PENDING)]

    def _speaking_against(self, memory: Memory) -> list[Memory]:
        """Return the live memories with which this one is in dispute."""
        if memory.status is not Status.DISPUTED or not memory.disputes:
            return []
        where = Where((OneOf("id", memory.disputes), OneOf("state", (Status.DISPUTED.value,))))
        return self._records.store.find(memory.layer.value, where, limit=len(memory.disputes))

    def _dispute(self, write: _Write, target: Memory, decision: Decision, similar: tuple[Similar, ...]) -> WriteOutcome:
        new = replace(write.entry.memory, status=Status.DISPUTED, disputes=(target.id,))
        reason = f"{decision.reason}; both stand as disputed until `memory-anchor review`"
        redactions, review = write.draft.redactions, Outcome.NEEDS_REVIEW
        answer = WriteOutcome(review, new.id, new.layer, new.status, reason, target.id, similar, redactions)
        disputes = tuple(dict.fromkeys((*target.disputes, new.id)))
        disputed = replace(target, status=Status.DISPUTED, disputes=disputes)
        step = self._revised(write.actor, target, disputed, self._records.clock.now(), f"disputed by {new.id}")
        return self._commit_beside(write, new, [step], answer, kind="dispute")

    def _commit_beside(
        self, write: _Write, new: Memory, steps: Sequence[Revision], answer: WriteOutcome, *, kind: str
    ) -> WriteOutcome:
        """Write a new memory and the next version of each that it speaks against, in one batch and at one instant.

        One instant is what makes them one change to undo; the new memory was stamped before it was embedded.
        """
        at = max(step.new.recorded_at for step in steps)
        new = replace(new, recorded_at=at, valid_from=at if new.valid_from == new.recorded_at else new.valid_from)
        stored = replace(write.entry, memory=with_receipt(new, write.request, answer))
        self._records.commit([stored], revisions=steps, kind=kind, by=new.author)
        return answer

    def _revised(self, actor: Actor, target: Memory, changed: Memory, at: datetime, why: str) -> Revision:
        return revise(target, changed, at=at, author=author_of(actor), reason=why, written_in=actor.scope.conversation)

    def _judged(self, actor: Actor, draft: FactDraft, gate: ConfidenceGate) -> tuple[Verdict, Memory | None]:
        """Return what the gate says of a draft, and the memory it would become; None where it is turned away."""
        verdict = gate.judge(
            draft.confidence,
            origin=draft.origin,
            caller=actor.caller,
            visibility=draft.visibility,
            quoted=draft.quoted,
            doubt=draft.doubt,
        )
        if verdict.status is None:
            return verdict, None
        now = self._records.clock.now()
        memory = Memory(
            id=self._records.new_id(),
            content=draft.content,
            layer=Layer.VERIFIED_FACT,
            type=draft.type,
            scope=replace(actor.scope, across=()),
            recorded_at=now,
            valid_from=draft.written_at or now,
            content_at=draft.written_at,
            half_life_days=draft.half_life_days,
            who=draft.who,
            key=draft.key,
            tags=draft.tags,
            priority=first_priority(draft),
            confidence=verdict.confidence,
            sentiment=draft.sentiment,
            origin=draft.origin,
            write_mode=draft.write_mode,
            extractor_model=draft.extractor_model,
            visibility=draft.visibility,
            status=verdict.status,
            citations=cited_by(actor, draft.origin, draft.citations),
            questions=draft.questions,
            gap=draft.gap,
            content_hash=content_hash(draft.content),
            author=author_of(actor),
            reason=verdict.reason if verdict.status is Status.PENDING else "",
        )
        return verdict, with_highest_importance(memory, [draft])


def _news_beside(known: Memory, actor: Actor, draft: FactDraft) -> tuple[tuple[Tag, ...], tuple[Citation, ...]]:
    """Return the tags and sources that a repeat brings and the known one lacks, conversations left aside."""
    names = {tag.name for tag in known.tags}
    there = {one.place for one in known.citations}
    cited = [
        one
        for one in cited_by(actor, draft.origin, draft.citations)
        if one.kind != "conversation" and one.place not in there
    ]
    tags = [tag for tag in draft.tags if tag.name not in names]
    room = max(0, BESIDE_MAX - len(known.citations))
    return tuple(tags[: max(0, BESIDE_MAX - len(known.tags))]), tuple(cited[:room])


def _with_news(tags: Sequence[Tag], cited: Sequence[Citation]) -> str:
    """Return what a repeat added, for the answer."""
    parts = [f"{len(found)} {what}" for found, what in ((tags, "tags"), (cited, "sources")) if found]
    return f", and has {' and '.join(parts)} more" if parts else ""


def _kept_old(write: _Write, target: Memory, decision: Decision, similar: tuple[Similar, ...]) -> WriteOutcome:
    """Return the answer where the settings keep the old version: it is not touched, a contradiction is no support."""
    reason, redactions = f"nothing stored: {decision.reason}", write.draft.redactions
    return WriteOutcome(Outcome.SKIPPED, target.id, target.layer, target.status, reason, target.id, similar, redactions)


def _replacement(target: Memory) -> Decision:
    if target.layer is not Layer.VERIFIED_FACT:
        raise Refused(f"replaces names {target.id!r}, which is an event; log another event instead")
    if target.status in (Status.SUPERSEDED, Status.ARCHIVED):
        raise BadInput(
            f"replaces names {target.id!r}, which is {target.status.value}; allowed is a memory that is live"
        )
    return Decision(Outcome.SUPERSEDED, target, f"replaces {target.id}", None, ())
