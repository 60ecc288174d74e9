"""Writing facts: gate -> exact repeat -> neighbours -> decision -> one atomic commit.

The only way into L3, whether an agent saves, an event is promoted or a conversation is extracted. Embedding runs before
the write lock; everything that is checked and then written runs inside it. An agent never supersedes what a human
wrote: both stay, disputed, until a human has looked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from memory_anchor.base.hashing import content_hash
from memory_anchor.domain.activation import (
    merged_priority,
    with_highest_importance,
)
from memory_anchor.domain.errors import BadInput, Refused, retry_on_conflict
from memory_anchor.domain.model import (
    HISTORY,
    Actor,
    Citation,
    Layer,
    Memory,
    Origin,
    Outcome,
    Receipt,
    Relation,
    Similar,
    Status,
    Tag,
    WriteOutcome,
    point_id,
)
from memory_anchor.domain.ports import Entry
from memory_anchor.domain.rights import Action, have_same_readers, is_read_by_all_of, may
from memory_anchor.domain.versions import Draft, Revision, parse_version_id, revise
from memory_anchor.domain.where import OneOf, Where
from memory_anchor.ingest.letting_in import IN_FORCE, LetIn, let_in
from memory_anchor.ingest.reconcile import Decision
from memory_anchor.ingest.relations import wording
from memory_anchor.language.coverage import covers
from memory_anchor.language.safe_regex import late
from memory_anchor.language.terms import query_terms
from memory_anchor.layers.gate import ConfidenceGate, Verdict
from memory_anchor.layers.records import Records, Request, author_of, cited_by, outcome_to, with_receipt

SIMILAR_SHOWN = 3
PROMOTED_FROM = "promoted from "
"""How the reason of a fact begins that was made from an event, whose id follows."""
FORMER_READ, SUCCESSORS_FOLLOWED = 4, 20
"""Former versions that a text is compared with, and replacements followed from one to the memory that stands now."""
_SUPERSEDED_BY = late(r"superseded by ([a-z0-9]{6,16})\b")
REPEATS_ADD_UP_TO = 32
"""Tags, and sources, of one memory up to which repeats add theirs."""


Neighbours = Callable[[Actor, Memory], Sequence[tuple[Memory, float]]]
"""Live memories of the same layer near a new one, with their centred cosine, best first."""
Decide = Callable[[Memory, Sequence[tuple[Memory, float]]], Decision]


@dataclass(frozen=True, slots=True)
class _Write:
    """One save in progress. entry: the memory it would become. verdict: of the confidence gate.

    writes_seen: `records.written()` when repeats were looked for, None where that is not known.
    """

    actor: Actor
    draft: Draft
    entry: Entry
    verdict: Verdict
    gate: ConfidenceGate
    request: Request | None
    writes_seen: int | None


class FactWriter:
    def __init__(
        self,
        records: Records,
        gate: ConfidenceGate,
        neighbours: Neighbours,
        decide: Decide,
        *,
        ask_model: Decide | None = None,
    ) -> None:
        """decide: at once, under the writers' lock. ask_model: may take seconds (a language model), outside it."""
        self._records, self._gate, self._neighbours = records, gate, neighbours
        self._decide, self._ask_model = decide, ask_model

    def by_rules(self) -> FactWriter:
        """Return one that asks no model, for what waits for a human anyway."""
        return FactWriter(self._records, self._gate, self._neighbours, self._decide)

    def save(
        self, actor: Actor, draft: Draft, request: Request | None = None, *, gate: ConfidenceGate | None = None
    ) -> WriteOutcome:
        """Store a fact, or say why not; a repeated request gets its first answer."""
        gate = gate or self._gate
        verdict, memory = self._judged(actor, draft, gate)
        if memory is None:
            return WriteOutcome(
                Outcome.REJECTED, None, Layer.VERIFIED_FACT, None, verdict.reason, redactions=draft.redactions
            )
        writes_seen = self._records.written()
        known = self._known(actor, draft, memory, request, gate)
        if known is not None:
            return known
        entry = self._records.entry(memory, embed=True)
        by_model = None
        if self._ask_model is not None and not draft.replaces and (near := self._near(actor, memory)):
            by_model = self._ask_model(memory, near)
        write = _Write(actor, draft, entry, verdict, gate, request, writes_seen)
        with self._records.lock:
            return retry_on_conflict(lambda: self._decided(write, by_model))

    def _decided(self, write: _Write, by_model: Decision | None) -> WriteOutcome:
        """Decide by what is stored now, carry it out and return the answer. The caller holds the lock."""
        actor, draft, memory = write.actor, write.draft, write.entry.memory
        if write.writes_seen is None or write.writes_seen != self._records.written():  # others wrote meanwhile
            known = self._known(actor, draft, memory, write.request, write.gate)
            if known is not None:
                return known
        target = self._records.read(draft.replaces, actor.scope) if draft.replaces else None
        if target is not None:
            decision = _replacement(memory, target, displaces=may(Action.DISPLACE, actor.caller, [target]))
        else:
            near = self._near(actor, memory)
            is_current = by_model is not None and _is_up_to_date(by_model, near)
            decision = self._echo(memory) or (by_model if by_model and is_current else self._decided_near(memory, near))
            decision = self._with_former(memory, decision)
        target, outcome = decision.target, decision.outcome
        if target is not None and memory.status is Status.PENDING and outcome is not Outcome.SKIPPED:
            # What itself waits for a human can neither displace nor dispute a stored fact; it names what it would.
            if draft.replaces or decision.disagrees:
                names = target.version_id if draft.replaces else None
                waiting = replace(memory, disputes=(target.id,), previous_version_id=names)
                write = replace(write, entry=replace(write.entry, memory=waiting))
            return self._add(write, Outcome.PENDING, decision)
        match outcome:
            case Outcome.SKIPPED if target is not None and decision.relation in (Relation.CONTRADICTS, Relation.ECHO):
                # What stands is not touched: a contradiction is no support.
                return _answer(write, outcome, target, f"nothing stored: {decision.reason}", decision)
            case Outcome.SKIPPED if target is not None:
                why = "a fact that says the same"
                return self._strengthen(actor, draft, target, write.request, write.gate, why)
            case Outcome.UPDATED if target is not None and not may(Action.DISPLACE, actor.caller, [target]):
                return self._add(write, Outcome.ADDED, decision)
            case Outcome.UPDATED if target is not None:
                return self._update(write, target, decision)
            case Outcome.SUPERSEDED if target is not None and may(Action.DISPLACE, actor.caller, [target]):
                return self._supersede(write, target, decision)
            case Outcome.SUPERSEDED | Outcome.NEEDS_REVIEW if target is not None:
                return self._dispute(write, target, decision)
            case _:
                is_pending = memory.status is Status.PENDING
                return self._add(write, Outcome.PENDING if is_pending else Outcome.ADDED, decision)

    def _decided_near(self, memory: Memory, near: Sequence[tuple[Memory, float]]) -> Decision:
        """Return the decision by the rules; what waits for a human hides no contradiction of what is in force."""
        in_force = [pair for pair in near if pair[0].status is not Status.PENDING]
        decision = self._decide(memory, in_force)
        return decision if decision.disagrees or len(in_force) == len(near) else self._decide(memory, near)

    def predicted_outcome(
        self, actor: Actor, draft: Draft, request: Request | None, *, gate: ConfidenceGate | None = None
    ) -> Outcome:
        """Return the outcome that `save` would have, pending memories counted in; nothing is written."""
        _, memory = self._judged(actor, draft, gate or self._gate)
        if memory is None:
            return Outcome.REJECTED
        with self._records.lock:
            if self._records.replayed(request) is not None or self._records.same_content(memory) is not None:
                return Outcome.SKIPPED
            return self._decide(memory, self._near(actor, memory)).outcome

    def let_in(self, actor: Actor, memory: Memory, at: datetime, *, may_replace: bool) -> LetIn:
        """Return how a stored fact comes into force now, by the rules; the caller holds the lock and writes it.

        may_replace: also what its first version named is ended; else what it contradicts is disputed at most.
        """
        first = self._records.store.get(memory.layer.value, [point_id(memory.id, 1)]) if may_replace else []
        named = parse_version_id(first[0].memory.previous_version_id) if first else None
        near = [(m, score) for m, score in self._near(actor, memory) if m.id != memory.id and m.status in IN_FORCE]
        decision = self._decide(memory, near)
        known = self._current(memory, (*memory.disputes, *((named[0],) if named else ())))
        replaces = known.pop(named[0], None) if named else None
        return let_in(
            memory,
            named=list(known.values()),
            replaces=replaces,
            decision=decision,
            may_end=lambda other: may(Action.DISPLACE, actor.caller, [other]),
            opponents_of=self._opponents,
            at=at,
            author=author_of(actor),
        )

    def _current(self, memory: Memory, ids: Sequence[str]) -> dict[str, Memory]:
        """Return the current versions with these ids in the memory's layer, by id."""
        where = Where((OneOf("id", tuple(ids)),), (OneOf("state", (HISTORY,)),))
        return {m.id: m for m in self._records.store.find(memory.layer.value, where, limit=len(ids))} if ids else {}

    def _near(self, actor: Actor, memory: Memory) -> list[tuple[Memory, float]]:
        """Return the neighbours with the same readers: only those may be displaced or repeated.

        An answer is compared with nothing: without its question its words prove nothing.
        """
        near = () if memory.answers else self._neighbours(actor, memory)
        return [(m, score) for m, score in near if have_same_readers(m, memory) and not m.answers]

    def _known(
        self, actor: Actor, draft: Draft, memory: Memory, request: Request | None, gate: ConfidenceGate
    ) -> WriteOutcome | None:
        """Return the answer to a repeat: of the request, or of the same text."""
        with self._records.lock:
            first_answer = self._records.replayed(request)
            if first_answer is not None:
                return first_answer
            same = None if draft.replaces else self._records.same_content(memory)
            return None if same is None else self._strengthen(actor, draft, same, request, gate, "the same text")

    def _strengthen(
        self, actor: Actor, draft: Draft, known: Memory, request: Request | None, gate: ConfidenceGate, why: str
    ) -> WriteOutcome:
        """Count a repeat as one more use of the known memory; another origin also raises its confidence."""
        at = self._records.clock.now()
        confidence = gate.corroborated(known.confidence, known.origin, draft.confidence, draft.origin)
        is_corroborated = confidence != known.confidence
        priority = merged_priority(known.priority)
        tags, citations = _added_by_repeat(known, actor, draft)
        entrance, origin = None, Origin.HUMAN if draft.origin is Origin.HUMAN else known.origin
        if known.status is Status.PENDING and may(Action.ACCEPT, actor.caller):
            entrance = self.let_in(actor, replace(known, origin=origin), at, may_replace=True)
        status = entrance.memory.status if entrance else known.status
        parts = [f"{len(added)} {what}" for added, what in ((tags, "tags"), (citations, "sources")) if added]
        reason = f"nothing new: {why} is already known and was strengthened"
        reason += f", and has {' and '.join(parts)} more" if parts else ""
        reason += f"; {entrance.why}" if entrance and entrance.why else ""
        answer = WriteOutcome(Outcome.SKIPPED, known.id, known.layer, status, reason, redactions=draft.redactions)
        receipt = Receipt(request.key, request.fingerprint, outcome_to(answer)) if request else None
        if not is_corroborated and status is known.status and origin is known.origin and not parts:
            self._records.touch(replace(known, priority=priority), at=at, receipt=receipt)
            return answer
        stronger = replace(
            known,
            confidence=confidence,
            priority=priority,
            corroborated_at=at if is_corroborated else known.corroborated_at,
            status=status,
            origin=origin,
            disputes=entrance.memory.disputes if entrance else known.disputes,
            tags=(*known.tags, *tags),
            citations=(*known.citations, *citations),
        )
        why = "corroborated by another origin" if is_corroborated else "said again"
        step = self._revised(actor, known, stronger, at, why)
        step = replace(step, new=with_receipt(step.new, request, answer))
        met = entrance.revisions if entrance else ()
        self._records.commit(revisions=[step, *met], kind="corroborate", by=step.new.author)
        return answer

    def _echo(self, memory: Memory) -> Decision | None:
        """Return what becomes of a text that was replaced and comes again: nothing is stored or both are disputed.

        From the conversation that it came from it brings nothing; else it may be news, and a human is asked.
        """
        where = Where((OneOf("audience", (memory.audience,)), OneOf("state", (Status.SUPERSEDED.value, HISTORY))))
        hits = self._records.store.matching(memory.layer.value, query_terms(memory.content), where, limit=FORMER_READ)
        for entry in self._records.store.get(memory.layer.value, [hit.point_id for hit in hits]):
            former = entry.memory
            if not covers(former.content, memory.content):
                continue
            present = self._successor(former)
            if present is None or not have_same_readers(present, memory) or covers(present.content, memory.content):
                continue
            is_repeat = bool(memory.scope.conversation) and memory.scope.conversation == former.scope.conversation
            reason = f"it was replaced by {present.id}"
            similar = (Similar(present.id, present.content, 0.0),)
            outcome = Outcome.SKIPPED if is_repeat else Outcome.NEEDS_REVIEW
            return Decision(outcome, present, reason, None, similar, Relation.ECHO)
        return None

    def _with_former(self, memory: Memory, decision: Decision) -> Decision:
        """Return the decision with what was before, where a text takes back a change without saying to what."""
        target = decision.target
        if target is None or decision.outcome is not Outcome.NEEDS_REVIEW or not wording(memory.content).undoes:
            return decision
        named = parse_version_id(target.previous_version_id)
        former = self._current(memory, (named[0],) if named and named[0] != target.id else ())
        for before in former.values():
            shown = (Similar(before.id, before.content, 0.0), *decision.similar)
            return replace(decision, reason=f"{decision.reason}; before it stood {before.id}", similar=shown)
        return decision

    def _successor(self, former: Memory) -> Memory | None:
        """Return the live memory that stands in the place of a former version, None where there is none."""
        for _ in range(SUCCESSORS_FOLLOWED):
            if former.state == HISTORY:
                where = Where((OneOf("id", (former.id,)),), (OneOf("state", (HISTORY,)),))
            else:
                match = _SUPERSEDED_BY.search(former.reason)
                if match is None:
                    return None
                where = Where((OneOf("id", (match[1],)),), (OneOf("state", (HISTORY,)),))
            (former, *_) = [*self._records.store.find(former.layer.value, where, limit=1), former]
            if former.status in (Status.ACTIVE, Status.DISPUTED):
                return former
        return None

    def _add(self, write: _Write, outcome: Outcome, decision: Decision) -> WriteOutcome:
        memory, target = write.entry.memory, decision.target
        if target is not None and decision.relation is not None:
            memory = replace(memory, relations=(f"{decision.relation.value}:{target.id}",))
        reason = write.verdict.reason
        if outcome is Outcome.ADDED and target is not None:
            reason = f"{reason}; {decision.reason}"
        answer = _answer(write, outcome, memory, reason, decision)
        stored = replace(write.entry, memory=with_receipt(memory, write.request, answer))
        self._records.commit([stored], kind="save", by=stored.memory.author)
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
        answer = _answer(write, Outcome.UPDATED, step.new, decision.reason, replace(decision, similar=()))
        step = replace(step, new=with_receipt(step.new, write.request, answer))
        self._records.commit(revisions=[step], kind="update", by=step.new.author)
        return answer

    def _supersede(self, write: _Write, target: Memory, decision: Decision) -> WriteOutcome:
        """Supersede what the new fact says has changed; it takes over their disputes with others: it settles none."""
        at, new = self._records.clock.now(), replace(write.entry.memory, previous_version_id=target.version_id)
        more = [old for old in decision.ends if old.status in (Status.ACTIVE, Status.PENDING, Status.DISPUTED)]
        to_end = [
            old for old in more if is_read_by_all_of(new, old) and may(Action.DISPLACE, write.actor.caller, [old])
        ]
        kept = [old for old in more if old not in to_end and old.status in IN_FORCE and have_same_readers(new, old)]
        ended = {old.id for old in (target, *to_end)}
        met = [*(other for old in (target, *to_end) for other in self._opponents(old)), *kept]
        opponents = [*{other.id: other for other in met if other.id not in ended}.values()]
        outcome, reason = Outcome.SUPERSEDED, decision.reason
        if opponents:
            new = replace(new, status=Status.DISPUTED, disputes=tuple(other.id for other in opponents))
            against = " and ".join(new.disputes)
            outcome = Outcome.NEEDS_REVIEW
            reason += f"; {against} speaks against it too, they stand as disputed until `memory-anchor review`"
        steps = []
        for old in (target, *to_end):
            over = replace(old, status=Status.SUPERSEDED, valid_to=at)
            steps.append(self._revised(write.actor, old, over, at, f"superseded by {new.id}"))
        for other in opponents:
            disputes = tuple(dict.fromkeys((*(name for name in other.disputes if name not in ended), new.id)))
            why = f"disputed by {new.id}, which superseded {target.id}"
            disputed = replace(other, status=Status.DISPUTED, disputes=disputes)
            steps.append(self._revised(write.actor, other, disputed, at, why))
        answer = _answer(write, outcome, new, reason, decision)
        return self._commit_together(write, new, steps, answer, kind="supersede")

    def _opponents(self, memory: Memory) -> list[Memory]:
        """Return the live memories with which this one is in dispute."""
        if memory.status is not Status.DISPUTED or not memory.disputes:
            return []
        where = Where((OneOf("id", memory.disputes), OneOf("state", (Status.DISPUTED.value,))))
        return self._records.store.find(memory.layer.value, where, limit=len(memory.disputes))

    def _dispute(self, write: _Write, target: Memory, decision: Decision) -> WriteOutcome:
        new, at = write.entry.memory, self._records.clock.now()
        others = [old for old in decision.ends if old.status in IN_FORCE and have_same_readers(new, old)]
        new = replace(new, status=Status.DISPUTED, disputes=(target.id, *(old.id for old in others)))
        reason = f"{decision.reason}; both stand as disputed until `memory-anchor review`"
        outcome, status = Outcome.NEEDS_REVIEW, Status.DISPUTED
        if target.status is Status.PENDING:  # a dispute lets nothing in: it waits on, and says against what
            new, outcome, status, others = write.entry.memory, Outcome.ADDED, Status.PENDING, []
            reason = f"{write.verdict.reason}; {target.id}, which waits for `memory-anchor review`, says otherwise"
        answer = _answer(write, outcome, new, reason, decision)
        steps = []
        for old in (target, *others):
            disputed = replace(old, status=status, disputes=tuple(dict.fromkeys((*old.disputes, new.id))))
            steps.append(self._revised(write.actor, old, disputed, at, f"disputed by {new.id}"))
        return self._commit_together(write, new, steps, answer, kind="dispute")

    def _commit_together(
        self, write: _Write, new: Memory, steps: Sequence[Revision], answer: WriteOutcome, *, kind: str
    ) -> WriteOutcome:
        """Write a new memory and the next version of each memory it changes, in one batch and at one instant.

        One instant makes them one change to undo; the new memory was stamped before it was embedded.
        """
        at = max(step.new.recorded_at for step in steps)
        new = replace(new, recorded_at=at, valid_from=at if new.valid_from == new.recorded_at else new.valid_from)
        stored = replace(write.entry, memory=with_receipt(new, write.request, answer))
        self._records.commit([stored], revisions=steps, kind=kind, by=new.author)
        return answer

    def _revised(self, actor: Actor, target: Memory, changed: Memory, at: datetime, why: str) -> Revision:
        return revise(target, changed, at=at, author=author_of(actor), reason=why, written_in=actor.scope.conversation)

    def _judged(self, actor: Actor, draft: Draft, gate: ConfidenceGate) -> tuple[Verdict, Memory | None]:
        """Return the gate's verdict on a draft, and the memory it would become; None where it is rejected."""
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
        reason = "; ".join(filter(None, (draft.reason, verdict.reason if verdict.status is Status.PENDING else "")))
        begun = self._records.begun(actor, draft)
        return verdict, replace(begun, confidence=verdict.confidence, status=verdict.status, reason=reason)


def _added_by_repeat(known: Memory, actor: Actor, draft: Draft) -> tuple[tuple[Tag, ...], tuple[Citation, ...]]:
    """Return the tags and sources (no conversations) that a repeat adds to the known memory."""
    names = {tag.name for tag in known.tags}
    places = {citation.place for citation in known.citations}
    citations = [
        citation
        for citation in cited_by(actor, draft.origin, draft.citations)
        if citation.kind != "conversation" and citation.place not in places
    ]
    tags = [tag for tag in draft.tags if tag.name not in names]
    return (
        tuple(tags[: max(0, REPEATS_ADD_UP_TO - len(known.tags))]),
        tuple(citations[: max(0, REPEATS_ADD_UP_TO - len(known.citations))]),
    )


def _answer(write: _Write, outcome: Outcome, memory: Memory, reason: str, decision: Decision) -> WriteOutcome:
    target, similar = decision.target, tuple(decision.similar[:SIMILAR_SHOWN])
    return WriteOutcome(
        outcome,
        memory.id,
        memory.layer,
        memory.status,
        reason,
        target.id if target else None,
        similar,
        write.draft.redactions,
        decision.relation if target else None,
    )


def _is_up_to_date(decision: Decision, near: Sequence[tuple[Memory, float]]) -> bool:
    """Return whether a decision's target is still the version that it was made about."""
    target = decision.target
    return target is None or any(memory.version_id == target.version_id for memory, _ in near)


def _replacement(new: Memory, target: Memory, *, displaces: bool) -> Decision:
    """Return the decision of a write that names what it replaces. Raises Refused, BadInput: it may not or cannot.

    displaces: whether the caller may end the target; else both would stand as disputed.
    """
    if target.layer is not Layer.VERIFIED_FACT:
        raise Refused(f"replaces names {target.id!r}, which is an event; log another event instead")
    if target.status in (Status.SUPERSEDED, Status.ARCHIVED):
        raise BadInput(
            f"replaces names {target.id!r}, which is {target.status.value}; allowed is a memory that is live"
        )
    ends = displaces and target.status is not Status.DISPUTED
    if not (is_read_by_all_of(new, target) if ends else have_same_readers(new, target)):
        raise Refused(
            f"replaces names {target.id!r}, which others read than this memory (visibility {target.visibility.value}, "
            f"not {new.visibility.value}); nothing was stored: save it with visibility {target.visibility.value}"
        )
    return Decision(Outcome.SUPERSEDED, target, f"replaces {target.id}", None, (), Relation.CHANGES)
