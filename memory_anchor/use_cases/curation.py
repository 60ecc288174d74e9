"""The use cases of a human at the keyboard: look through, edit, pin, restore, review, settle.

Whatever is to count as human has passed the passphrase before it comes here; from an agent's shell the same commands
run as an agent, and what waits for a human is refused. Approving is therefore out of every agent's reach.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from memory_anchor.base.hashing import content_hash
from memory_anchor.domain import rights
from memory_anchor.domain.activation import merged_priority
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import (
    HISTORY,
    SEARCHABLE_STATES,
    Citation,
    Epistemic,
    Layer,
    Memory,
    Origin,
    Outcome,
    Relation,
    Status,
    WriteOutcome,
    audiences,
)
from memory_anchor.domain.requests import checks
from memory_anchor.domain.requests.fields import use_case
from memory_anchor.domain.requests.requests import (
    LIST_LIMIT_MAX,
    AcceptPending,
    EditMemory,
    JudgeMemory,
    ListMemories,
    PinMemory,
    RejectPending,
    ResolveConflict,
    RestoreMemory,
    ReviewInbox,
    ReviewSides,
    UnpinMemory,
)
from memory_anchor.domain.rights import Action
from memory_anchor.domain.versions import Revision, expired_by, revise
from memory_anchor.domain.where import Condition, OneOf, Where
from memory_anchor.ingest.conversation_learning import KNOWN_MAX
from memory_anchor.ingest.letting_in import IN_FORCE
from memory_anchor.language.indexing import DATED
from memory_anchor.layers.records import RECORD_COLLECTIONS, newest_first, with_receipt
from memory_anchor.recall.snippets import marked
from memory_anchor.use_cases.writes import Writes

LIVE = SEARCHABLE_STATES | {Status.PENDING.value}


@dataclass(frozen=True, slots=True)
class ReviewItem:
    """What waits: a pending memory, or a disputed one with what it contradicts."""

    memory: Memory
    against: tuple[Memory, ...] = ()
    needs_human: bool = True


@dataclass(frozen=True, slots=True)
class Inbox:
    """total: how many items wait in all, whatever part of them is listed."""

    items: list[ReviewItem]
    total: int


MAY_CONTRADICT = Relation.MAY_CONTRADICT
LINKS_LOOKED_AT = 200
"""Newest facts among which the inbox looks for links that a human has not looked at."""
READ_AT = {
    Layer.IDENTITY_SCHEMA: "`memory-anchor constitution show` shows the constitution",
    Layer.ACTIVE_CONTEXT: "an agent reads its own with get_active_context",
    Layer.OPERATIONAL_KNOWLEDGE: "operations are the files of .ai/operations/",
}
"""Where what is in no collection is read."""


class Curation:
    def __init__(self, writes: Writes) -> None:
        self._writes = writes
        self._records = writes.services.records

    @use_case(ListMemories)
    def listing(self, request: ListMemories) -> list[Memory]:
        """Return readable memories, newest first; without a status everything but archived and superseded ones.

        What lies beyond the horizon of what is due comes last.
        """
        live = (Status.ACTIVE.value, Status.DISPUTED.value, Status.PENDING.value)
        states = (request.status.value,) if request.status is not None else live
        conditions: list[Condition] = [
            OneOf("audience", tuple(sorted(audiences(self._writes.actor.scope)))),
            OneOf("state", states),
        ]
        if request.type is not None:
            conditions.append(OneOf("type", (request.type.value,)))
        if request.tag is not None:
            conditions.append(OneOf("tag", (request.tag,)))
        layers = (request.layer,) if request.layer is not None else (Layer.VERIFIED_FACT, Layer.EVENT_LOG)
        now = self._writes.services.clock.now()
        expired = (expired_by(now),) if set(states) <= LIVE else ()
        memories: list[Memory] = []
        for layer in layers:
            if layer.value not in (Layer.VERIFIED_FACT.value, Layer.EVENT_LOG.value):
                raise BadInput(f"layer is {layer.value!r}; allowed are event_log and verified_fact ({READ_AT[layer]})")
            memories += self._records.store.find(
                layer.value,
                Where(tuple(conditions), expired),
                limit=request.limit,
                order_by="recorded_at",
                descending=True,
            )
        return newest_first(memories, now)[: request.limit]

    def dated(self, *, limit: int) -> list[Memory]:
        """Return the readable facts and events that may be due, by their words, at most `limit` of each layer."""
        readers, now = tuple(sorted(audiences(self._writes.actor.scope))), self._writes.services.clock.now()
        live = (Status.ACTIVE.value, Status.DISPUTED.value)
        where = Where((OneOf("audience", readers), OneOf("state", live)), (expired_by(now),))
        store, found = self._records.store, list[Memory]()
        for layer in (Layer.VERIFIED_FACT.value, Layer.EVENT_LOG.value):
            points = [hit.point_id for hit in store.matching(layer, DATED, where, limit=limit)]
            found += [entry.memory for entry in store.get(layer, points)]
        return found

    @use_case(EditMemory)
    def edit(self, request: EditMemory) -> WriteOutcome:
        """Write a new version with another text; the old one stays in its history."""
        self._writes.check_writable()
        name = request.id
        text = checks.with_words("content", request.content)
        idempotency = self._writes.idempotency("edit", id=name, content=text, version=request.expected_version)
        if (answer := self._writes.replayed(idempotency)) is not None:
            return answer
        current = self._changeable(name, Action.EDIT)
        if current.content == text:
            return WriteOutcome(Outcome.SKIPPED, name, current.layer, current.status, "the text is the same already")
        return self._writes.change(
            name,
            lambda memory: _by_human(memory, text) if self._is_human else replace(memory, content=text),
            reason="edited",
            kind="edit",
            outcome=Outcome.UPDATED,
            idempotency=idempotency,
            redactions=request.redactions,
            expected_version=request.expected_version,
        )

    @use_case(JudgeMemory)
    def judge(self, request: JudgeMemory) -> WriteOutcome:
        """Say how far a memory holds: hypothesis, verified or refuted; a refuted idea stays findable as a warning.

        shown_by: the command or link that showed it, needed for verified and refuted; a link becomes a citation.
        """
        self._writes.check_writable()
        name, judged = request.id, request.epistemic
        if not request.shown_by and judged is not Epistemic.HYPOTHESIS:
            raise BadInput(f"shown_by is empty; allowed is text of 1 to {checks.REASON_MAX} characters")
        evidence = checks.with_words("shown_by", request.shown_by) if request.shown_by else ""
        idempotency = self._writes.idempotency("judge", id=name, epistemic=judged.value, shown_by=evidence)
        if (answer := self._writes.replayed(idempotency)) is not None:
            return answer
        self._changeable(name, Action.JUDGE)
        at = self._writes.services.clock.now()
        is_link = evidence.startswith(("https://", "http://"))
        cited = (Citation("url", evidence, title=judged.value, observed_at=at),) if is_link else ()

        def changed(memory: Memory) -> Memory:
            return replace(
                memory,
                epistemic=judged,
                tags=marked(memory.tags, judged),
                citations=tuple(dict.fromkeys((*memory.citations, *cited))) if cited else memory.citations,
                corroborated_at=at if judged is Epistemic.VERIFIED else memory.corroborated_at,
            )

        reason = f"{judged.value}: {evidence}" if evidence else judged.value
        return self._writes.change(
            name, changed, reason=reason, kind="judge", outcome=Outcome.UPDATED, idempotency=idempotency
        )

    @use_case(PinMemory)
    def pin(self, request: PinMemory) -> WriteOutcome:
        """Pin a memory, so that no job forgets it."""
        return self._pin(request.id, pinned=True)

    @use_case(UnpinMemory)
    def unpin(self, request: UnpinMemory) -> WriteOutcome:
        """Let a pinned memory go again."""
        return self._pin(request.id, pinned=False)

    def _pin(self, name: str, *, pinned: bool) -> WriteOutcome:
        self._writes.check_writable()
        word = "pinned" if pinned else "unpinned"
        idempotency = self._writes.idempotency(word, id=name)
        with self._records.lock:
            if (answer := self._writes.replayed(idempotency)) is not None:
                return answer
            current = self._changeable(name, Action.PIN if pinned else Action.UNPIN)
            # A human's pin over an agent's is written: from then on it is a human's.
            same = current.pinned is pinned and not (pinned and self._is_human and not self._pinned_by_a_human(current))
            if same:
                return WriteOutcome(Outcome.SKIPPED, name, current.layer, current.status, f"it is {word} already")
            return self._writes.change(
                name,
                lambda memory: replace(memory, pinned=pinned),
                reason=word,
                kind=word,
                outcome=Outcome.UPDATED,
                idempotency=idempotency,
            )

    @use_case(RestoreMemory)
    def restore(self, request: RestoreMemory) -> WriteOutcome:
        """Bring an archived memory back into every search; a superseded one must be settled instead."""
        self._writes.check_writable()
        name = request.id
        idempotency = self._writes.idempotency("restore", id=name)
        if (answer := self._writes.replayed(idempotency)) is not None:
            return answer
        current = self._records.read(name, self._writes.actor.scope)
        if current.status is not Status.ARCHIVED:
            raise BadInput(f"{name} is {current.status.value}; allowed is an archived memory")
        rights.check(Action.RESTORE, self._writes.actor.caller, [current])
        versions = self._records.newest_versions(current)
        before = next((m for m in versions if m.state == HISTORY and m.status is not Status.ARCHIVED), None)
        status = self._status_again(current, before)
        return self._writes.change(
            name,
            lambda memory: replace(memory, status=status),
            reason="restored",
            kind="restore",
            outcome=Outcome.UPDATED,
            idempotency=idempotency,
            replaces=False,
        )

    def _status_again(self, archived: Memory, before: Memory | None) -> Status:
        """Return the status that a restored memory gets. before: its last version that was not archived, if any.

        An agent brings nothing into force that never was here, or that would not pass the gate by itself.
        """
        if self._is_human:
            return before.status if before is not None else Status.ACTIVE
        status = before.status if before is not None else Status.PENDING
        if status not in IN_FORCE or archived.layer is not Layer.VERIFIED_FACT or rights.is_human_owned(archived):
            return status
        verdict = self._writes.project.gate.judge(
            archived.confidence,
            origin=archived.origin,
            caller=self._writes.actor.caller,
            visibility=archived.visibility,
            quoted=True,
        )
        return status if verdict.status is Status.ACTIVE else Status.PENDING

    @use_case(ReviewInbox)
    def inbox(self, request: ReviewInbox) -> Inbox:
        """Return what waits for a decision: pending memories with what they contradict, then contradictions, oldest
        first."""
        pending, disputes = self._pending(), self._contradictions()
        until = request.offset + request.limit
        waiting = self._oldest(pending, until)[request.offset :]
        count = sum(self._records.store.count(layer, pending) for layer in RECORD_COLLECTIONS)
        items = [ReviewItem(memory, self._met(memory)) for memory in waiting]
        items += disputes[max(0, request.offset - count) : max(0, until - count)]
        return Inbox(items, count + len(disputes))

    def _pending(self) -> Where:
        readers = tuple(sorted(audiences(self._writes.actor.scope)))
        conditions = (OneOf("audience", readers), OneOf("state", (Status.PENDING.value,)))
        return Where(conditions, (expired_by(self._writes.services.clock.now()),))

    def _oldest(self, where: Where, most: int) -> list[Memory]:
        """Return the memories of both layers that were recorded first."""
        found = [
            memory
            for layer in RECORD_COLLECTIONS
            for memory in self._records.store.find(layer, where, limit=most, order_by="recorded_at")
        ]
        return sorted(found, key=_age)[:most]

    def _contradictions(self) -> list[ReviewItem]:
        """Return the newer side of each contradiction, oldest first, then what may contradict another."""
        disputed = self.listing(
            ListMemories.of(status=Status.DISPUTED, layer=Layer.VERIFIED_FACT, limit=LIST_LIMIT_MAX)
        )
        by_id = {m.id: m for m in disputed}
        items: list[ReviewItem] = []
        for memory in reversed(disputed):
            against = tuple(by_id[other] for other in memory.disputes if other in by_id)
            if against and all(_age(memory) > _age(other) for other in against):
                items.append(ReviewItem(memory, against, self._waits_for_user(memory, against)))
        newest = self.listing(ListMemories.of(status=Status.ACTIVE, layer=Layer.VERIFIED_FACT, limit=LINKS_LOOKED_AT))
        linked = (
            (memory, self._met(memory))
            for memory in reversed(newest)
            if memory.related(MAY_CONTRADICT) and not rights.is_human_owned(memory)
        )
        return items + [ReviewItem(m, against, self._waits_for_user(m, against)) for m, against in linked if against]

    def waiting(self, most: int) -> tuple[int, list[Memory]]:
        """Return how many facts wait for review, and those of the newest that matter most."""
        audience = OneOf("audience", tuple(sorted(audiences(self._writes.actor.scope))))
        layer, where = Layer.VERIFIED_FACT.value, Where((audience, OneOf("state", (Status.PENDING.value,))))
        count = self._records.store.count(layer, where)
        if not (count and most):
            return count, []
        newest = self.listing(ListMemories.of(status=Status.PENDING, layer=layer, limit=KNOWN_MAX))
        return count, sorted(newest, key=lambda memory: -memory.priority)[:most]

    @use_case(ReviewSides)
    def sides(self, request: ReviewSides) -> list[Memory]:
        """Return what a decision on this memory is about: the memory, then those it contradicts."""
        memory = self._records.read(request.id, self._writes.actor.scope)
        return [memory, *self._met(memory)]

    def _met(self, memory: Memory) -> tuple[Memory, ...]:
        """Return what this caller reads of what a memory contradicts: of one that waits, what is in force."""
        names = memory.related(MAY_CONTRADICT) if memory.status is Status.ACTIVE else memory.disputes
        if not names or memory.status not in (Status.PENDING, *IN_FORCE):
            return ()
        states = (Status.DISPUTED,) if memory.status is Status.DISPUTED else IN_FORCE
        where = Where(
            (
                OneOf("id", names),
                OneOf("state", tuple(state.value for state in states)),
                OneOf("audience", tuple(sorted(audiences(self._writes.actor.scope)))),
            )
        )
        found = {m.id: m for m in self._records.store.find(memory.layer.value, where, limit=len(names))}
        return tuple(found[name] for name in names if name in found)

    @use_case(AcceptPending)
    def accept(self, request: AcceptPending) -> WriteOutcome:
        """Let a pending memory in (humans only), with another text when `content` is given.

        From then on it counts as a human's. A fact ends what it was to replace, or what it says has changed; against
        anything else that it contradicts it stands as disputed. seen: the stamps (`rights.version_stamp`) of the
        version that was shown, and of what was shown beside it. Raises Refused: one of them changed since.
        """
        text = None if request.content is None else checks.with_words("content", request.content)
        reason = rights.ACCEPTED if text is None else f"edited and {rights.ACCEPTED}"

        def changed(memory: Memory) -> Memory:
            accepted = replace(memory, origin=Origin.HUMAN) if text is None else _by_human(memory, text)
            return replace(accepted, status=Status.ACTIVE)

        return replace(
            self._decide(request, Action.ACCEPT, Outcome.UPDATED, reason, changed, text), redactions=request.redactions
        )

    @use_case(RejectPending)
    def reject(self, request: RejectPending) -> WriteOutcome:
        """Archive a pending memory (humans only). seen: as in `accept`."""
        return self._decide(
            request,
            Action.REJECT,
            Outcome.ARCHIVED,
            "rejected in review",
            lambda memory: replace(memory, status=Status.ARCHIVED),
        )

    @use_case(ResolveConflict)
    def settle(self, request: ResolveConflict) -> WriteOutcome:
        """End a contradiction: keep_new, keep_old, keep_both, or merge into `content`, else into both texts.

        Also of a memory that may contradict another: whatever is chosen, the link asks no more.

        seen: of a human's decision, the stamps of every side that was shown. Raises Refused: it waits for the user, or
        a side changed since.
        """
        self._writes.check_writable()
        name, resolution = request.id, request.resolution
        records = self._records
        if request.content is not None and resolution != "merge":
            raise BadInput(f"content is given with {resolution}; allowed is with merge")
        text = None if request.content is None else checks.with_words("content", request.content)
        words = {} if text is None else {"content": text}  # what is asked without it keeps the fingerprint that it had
        idempotency = self._writes.idempotency("settle", id=name, resolution=resolution, **words)
        with records.lock:
            if (answer := records.replayed(idempotency)) is not None:
                return answer
            memory = records.read(name, self._writes.actor.scope)
            is_disputed = memory.status is Status.DISPUTED and bool(memory.disputes)
            others = list(self._met(memory)) if is_disputed or memory.status is Status.ACTIVE else []
            if not is_disputed and not others:
                raise BadInput(f"{name} is {memory.status.value}; allowed is a memory of an open contradiction")
            action = Action.MERGE if resolution == "merge" else Action.SETTLE
            caller = self._writes.actor.caller
            rights.check(action, caller, [memory, *others], asks_user=self._writes.project.asks_user)
            if self._is_human:
                rights.check_seen(request.seen, [memory, *others])
            new, *old = sorted([memory, *others], key=_age, reverse=True)
            steps = self._resolved(new, old, resolution, text)
            winner = next(s.new for s in steps if s.new.status is Status.ACTIVE)
            outcome = Outcome.UPDATED if resolution in ("merge", "keep_both") else Outcome.SUPERSEDED
            loser = next((s.new.id for s in steps if s.new.status is Status.SUPERSEDED), None)
            answer = WriteOutcome(outcome, winner.id, winner.layer, winner.status, f"settled: {resolution}", loser)
            answer = replace(answer, redactions=request.redactions)
            stored = with_receipt(winner, idempotency, answer)
            steps = [replace(step, new=stored) if step.new is winner else step for step in steps]
            records.commit(revisions=steps, kind="settle", by=stored.author)
        return answer

    def _resolved(self, new: Memory, old: list[Memory], resolution: str, text: str | None) -> list[Revision]:
        at = self._writes.services.clock.now()
        author = self._writes.author

        def step(memory: Memory, changed: Memory) -> Revision:
            reason = f"settled: {resolution}"
            rest = (one for one in memory.relations if not one.startswith(MAY_CONTRADICT.value))
            looked_at = (f"{Relation.RELATED.value}:{other.id}" for other in old if memory.id == new.id)
            relations = tuple(dict.fromkeys((*rest, *looked_at)))
            changed = replace(changed, disputes=(), relations=relations)
            return revise(memory, changed, at=at, author=author, reason=reason)

        def keep(memory: Memory) -> Revision:
            return step(memory, replace(memory, status=Status.ACTIVE, origin=self._decided_origin(memory)))

        def supersede(memory: Memory) -> Revision:
            return step(memory, replace(memory, status=Status.SUPERSEDED, valid_to=at))

        if not old:  # what contradicted it was superseded on another device meanwhile
            return [keep(new)]
        if resolution == "keep_both":
            return [keep(new), *(keep(m) for m in old)]
        if resolution == "keep_new":
            return [keep(new), *(supersede(m) for m in old)]
        if resolution == "keep_old":
            kept, *rest = old
            return [keep(kept), supersede(new), *(supersede(m) for m in rest)]
        merged = text or "\n".join([*(m.content for m in reversed(old)), new.content])
        if len(merged) > checks.CONTENT_MAX:
            raise BadInput(f"merged text would be {len(merged)} characters; allowed are {checks.CONTENT_MAX}")
        both = replace(
            new,
            status=Status.ACTIVE,
            origin=self._decided_origin(new),
            content=merged,
            content_hash=content_hash(merged),
            priority=merged_priority(new.priority),
            citations=tuple(dict.fromkeys([*new.citations, *(c for m in old for c in m.citations)])),
        )
        return [step(new, both), *(supersede(m) for m in old)]

    def _decided_origin(self, memory: Memory) -> Origin:
        """Return the origin of what a dispute leaves: a human's where a human decided."""
        return Origin.HUMAN if self._is_human else memory.origin

    def _decide(
        self,
        request: AcceptPending | RejectPending,
        action: Action,
        outcome: Outcome,
        reason: str,
        changed: Callable[[Memory], Memory],
        content: str | None = None,
    ) -> WriteOutcome:
        self._writes.check_writable()
        rights.check(action, self._writes.actor.caller)
        name = request.id
        idempotency = self._writes.idempotency("review", id=name, decision=reason, content=content)
        with self._records.lock:
            if (answer := self._writes.replayed(idempotency)) is not None:
                return answer
            current = self._records.read(name, self._writes.actor.scope)
            if current.status is not Status.PENDING:
                raise BadInput(f"{name} is {current.status.value}; allowed is a pending memory")
            rights.check_seen(request.seen, [current], beside=self._met(current))
            return self._writes.change(
                name, changed, reason=reason, kind="review", outcome=outcome, idempotency=idempotency, replaces=True
            )

    def _waits_for_user(self, memory: Memory, against: Sequence[Memory]) -> bool:
        return rights.waits_for_user((memory, *against), self._writes.project.asks_user)

    def _changeable(self, name: str, action: Action) -> Memory:
        """Return the current version. Raises Refused: this caller may not do this to it."""
        current = self._records.read(name, self._writes.actor.scope)
        versions = list(self._records.newest_versions(current)) if action is Action.UNPIN else ()
        rights.check(action, self._writes.actor.caller, [current], versions=versions)
        return current

    def _pinned_by_a_human(self, memory: Memory) -> bool:
        return rights.pinned_by_human(list(self._records.newest_versions(memory)))

    @property
    def _is_human(self) -> bool:
        return rights.is_human(self._writes.actor.caller)


def _by_human(memory: Memory, text: str) -> Memory:
    """Return the memory as a human at the keyboard says it."""
    return replace(memory, content=text, origin=Origin.HUMAN, confidence=1.0)


def _age(memory: Memory) -> tuple[datetime, str]:
    """Return what orders the sides of a contradiction: the newest is the one that was learned last."""
    return memory.learned_at, memory.id
