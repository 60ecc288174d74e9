"""The use cases that write: checked, sanitised, idempotent.

Every method takes a checked request, refuses what a caller may not do, strips private parts and secrets, and hands a
draft to the layer it belongs to. A repeated request gets its first answer.

What a collection is used for decides who may write to it without being asked.

`memory`: agents and what is extracted from conversations write; documents do not belong there. `knowledge`: people
manage it by hand and documents are imported; nothing writes automatically. `hybrid`: both. A human may always write.
Source: the write-back RFC, section 2.3 (usage of a knowledge base).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta

from memory_anchor.base.hashing import content_hash, stable_hash
from memory_anchor.base.json_values import Json
from memory_anchor.base.pausing import check_may_write, pause_of
from memory_anchor.domain import rights
from memory_anchor.domain.errors import BadInput, NotFound, Refused, VersionConflict
from memory_anchor.domain.model import (
    LAYER_OF_TYPE,
    ORIGIN_ALIASES,
    Actor,
    Caller,
    Citation,
    Layer,
    Memory,
    MemoryType,
    Origin,
    Outcome,
    Proposal,
    ProposalAction,
    Status,
    Visibility,
    WriteMode,
    WriteOutcome,
)
from memory_anchor.domain.requests import checks
from memory_anchor.domain.requests.requests import (
    EndSession,
    ForgetMemory,
    LogEvent,
    PromoteToFact,
    ProposeChange,
    SaveMemory,
    SetActiveContext,
    WriteRequest,
)
from memory_anchor.domain.rights import Action
from memory_anchor.domain.versions import Draft, Revision, revise
from memory_anchor.ingest.letting_in import IN_FORCE
from memory_anchor.ingest.writing import PROMOTED_FROM
from memory_anchor.language import safety
from memory_anchor.layers.gate import DEFAULT_CONFIDENCE
from memory_anchor.layers.records import Request, author_of, request_of, with_receipt
from memory_anchor.use_cases.services import Project, Services

HOME_OF = {
    Layer.IDENTITY_SCHEMA: "propose_constitution_change",
    Layer.ACTIVE_CONTEXT: "set_active_context",
    Layer.OPERATIONAL_KNOWLEDGE: "an editor: developers write .ai/operations/ in Git",
}
IMPORT = "import"
ORIGIN_OF_CALLER = {Caller.HUMAN: Origin.HUMAN, Caller.SYSTEM: Origin.SYSTEM, Caller.AGENT: Origin.AGENT}
STORED_LAYERS = (Layer.EVENT_LOG, Layer.VERIFIED_FACT)
CARRIED = {each.name for each in fields(Memory)} - {*("layer", "scope", "visibility", "confidence", "when", "who")}
"""Fields of a memory that are as its request has them; a time, a place, a reader or a claim is first made out."""


@dataclass(frozen=True, slots=True)
class Line:
    """What an import adds to one line: a name that recognises a repeat, its origin and citations.

    since: of a fact, since when it is true. dry: only report what would happen.
    """

    name: str
    origin: Origin
    cites: tuple[Citation, ...] = ()
    since: datetime | None = None
    dry: bool = False


@dataclass(frozen=True, slots=True)
class Writes:
    """What one caller writes to one project."""

    services: Services
    project: Project
    actor: Actor

    @property
    def author(self) -> str:
        """Who this caller is in history and audit."""
        return author_of(self.actor)

    # --- L0 and L1 ------------------------------------------------------------------------------------------

    def propose(self, request: ProposeChange) -> Proposal:
        """File a wish to change L0; only humans can make it effective."""
        self.check_writable()
        if request.action is ProposalAction.ADOPT:
            raise BadInput("action is 'adopt'; allowed are add, replace, remove")
        if not request.content and request.action is not ProposalAction.REMOVE:
            raise BadInput(f"content is empty; allowed is text of 1 to {checks.CONTENT_MAX} characters")
        if request.from_id:
            fact = self.services.records.read(request.from_id, self.actor.scope)
            if fact.layer is not Layer.VERIFIED_FACT:
                raise BadInput(
                    f"from_id {request.from_id!r} is in {fact.layer.value}; allowed is a fact (promote the event first)"
                )
        return self.project.identity.propose(
            content=request.content,
            reason=request.reason,
            action=request.action,
            entry_id=request.entry_id or None,
            from_id=request.from_id or None,
            by=author_of(self.actor),
        )

    def set_active(self, request: SetActiveContext) -> datetime:
        """Set one value of L1 for this conversation; return when it expires."""
        self.check_writable()
        name = checks.with_words("key", request.key)
        encoded = json.dumps(request.value, ensure_ascii=False, separators=(",", ":"))
        active, scope = self.services.active, self.actor.scope
        repeat = (stable_hash("set_active", name, encoded, str(request.ttl_s)), scope.account, self.actor.nonce)
        until = datetime.fromisoformat(
            self.services.answers.note_once(lambda: active.expiry_of(request.ttl_s).isoformat(), *repeat)
        )
        active.set(scope, name, encoded, expires_at=until)
        return until

    def end_session(self, request: EndSession) -> list[WriteOutcome]:
        """Turn L1 and the summary into one L2 event; without either nothing is written."""
        self.check_writable()
        clean = checks.with_words("summary", request.summary) if request.summary else ""
        idempotency = self.idempotency("end_session", summary=clean)
        if (answer := self.replayed(idempotency)) is not None:
            return [answer]  # values set since then stay in L1
        with self.services.active.take(self.actor.scope) as values:
            content = session_text(clean, values)
            if not content:
                return []
            origin, _ = self._source(None)
            draft = Draft(
                content,
                Layer.EVENT_LOG,
                MemoryType.SUMMARY if clean else MemoryType.EVENT,
                when=self.services.clock.now(),
                key="session ended",
                who=(self.actor.scope.agent,) if self.actor.scope.agent else (),
                visibility=self._visibility(None),
                origin=origin,
                redactions=request.redactions,
            )
            return [self.services.events.log(self.actor, draft, idempotency)]

    # --- L2 -------------------------------------------------------------------------------------------------

    def log_event(self, request: LogEvent, *, line: Line | None = None) -> WriteOutcome:
        """Store what happened; by words at once, by meaning as soon as it is embedded."""
        self.check_writable()
        now = self.services.clock.now()
        if safety.only_secrets(request.content):
            return _nothing_left(Layer.EVENT_LOG, request.redactions)
        days = self.services.settings.lifecycle.default_ttl_days if request.ttl_days is None else request.ttl_days
        when = request.when.start(self.actor.zone) if request.when is not None else now
        # A time to live that was asked for counts from what happened; the default does not end what is told late.
        lives_from = when if request.ttl_days is not None else max(when, now)
        draft = replace(
            self._draft(request, line, Layer.EVENT_LOG),
            when=when,
            where=request.where or None,
            ttl_days=days or None,
            expires_at=lives_from + timedelta(days=days) if days else None,
        )
        resolved: dict[str, Json] = {
            "confidence": draft.confidence,
            "when": str(draft.when) if request.when is not None else None,
            "where": draft.where,
            "ttl_days": draft.ttl_days,
        }
        idempotency = self._idempotency("log_event", request, draft, resolved, line)
        if line is not None and line.dry:
            is_repeat = self.services.records.replayed(idempotency) is not None
            return WriteOutcome(Outcome.SKIPPED if is_repeat else Outcome.ADDED, None, Layer.EVENT_LOG, None, "")
        return self.services.events.log(self.actor, draft, idempotency)

    # --- L3 ------------------------------------------------------------------------------------------------------

    def save_memory(self, request: SaveMemory, *, line: Line | None = None) -> WriteOutcome:
        """Store a memory in the layer its type belongs to; facts pass the gate and are reconciled."""
        self.check_writable()
        home = request.layer or LAYER_OF_TYPE[request.type]
        if home is Layer.IDENTITY_SCHEMA:
            raise Refused("layer is identity_schema, which only humans change; call propose_constitution_change")
        if home not in STORED_LAYERS:
            raise BadInput(f"layer is {home.value!r}; allowed are event_log and verified_fact ({HOME_OF[home]})")
        if home is Layer.EVENT_LOG:
            if request.replaces:
                raise BadInput("replaces is given for an event; allowed is only for facts")
            return self.log_event(LogEvent.like(request), line=line)
        text = request.content
        if safety.only_secrets(text):
            return _nothing_left(Layer.VERIFIED_FACT, request.redactions)
        claim, doubt = self.project.gate.assess(text) if request.confidence is None else (request.confidence, "")
        draft = self._draft(request, line, Layer.VERIFIED_FACT)
        draft = replace(draft, confidence=claim, doubt=doubt, replaces=request.replaces or None)
        if line and line.since:
            draft = replace(draft, content_at=min(line.since, self.services.clock.now()))
        claimed_or_not = DEFAULT_CONFIDENCE if request.confidence is None else request.confidence
        resolved: dict[str, Json] = {"replaces": draft.replaces, "confidence": claimed_or_not}
        idempotency = self._idempotency("save_memory", request, draft, resolved, line)
        if draft.replaces and request.visibility is None:  # for the same readers, unless the caller says otherwise
            target = self.services.records.read(draft.replaces, self.actor.scope)
            if self.replayed(idempotency) is None:
                draft = replace(draft, visibility=target.visibility)
        if line is not None and line.dry:
            predicted = self.services.facts.predicted_outcome(self.actor, draft, idempotency, gate=self.project.gate)
            return WriteOutcome(predicted, None, Layer.VERIFIED_FACT, None, "")
        return self.services.facts.save(self.actor, draft, idempotency, gate=self.project.gate)

    def was_imported(self, content: str, line: Line) -> bool:
        """Return whether this line was imported before. Raises BadInput: the content."""
        idempotency = self._of_line(line, content)
        return self.services.records.replayed(idempotency) is not None

    def promote(self, request: PromoteToFact) -> WriteOutcome:
        """Turn an event into a fact: the fact cites the event, the event is marked promoted and stays."""
        self.check_writable()
        text = checks.with_words("content", request.content) if request.content is not None else ""
        canonical = request.canonical(
            content=text, confidence=DEFAULT_CONFIDENCE if request.confidence is None else request.confidence
        )
        idempotency = request_of(self.actor, request.request_id, "promote_to_fact", canonical)
        answer = self.replayed(idempotency)
        event = self.services.records.read(request.event_id, self.actor.scope)
        if event.layer is not Layer.EVENT_LOG:
            raise BadInput(f"event_id {request.event_id!r} is in {event.layer.value}; allowed is an event of event_log")
        if answer is not None:
            return self._promoted(event, answer)
        rights.check(Action.PROMOTE, self.actor.caller, [event])
        if (before := self._promoted_before(event)) is not None:
            return before
        content = text or event.content
        claim, doubt = self.project.gate.assess(content) if request.confidence is None else (request.confidence, "")
        draft = Draft(
            content,
            Layer.VERIFIED_FACT,
            MemoryType.FACT,
            key=event.key,
            importance=event.importance,
            tags=event.tags,
            confidence=claim,
            doubt=doubt,
            visibility=event.visibility,
            citations=(
                Citation("event", event.id, title=event.key or None, scope=event.scope, observed_at=event.when),
                *event.citations,
            ),
            origin=event.origin if event.origin is Origin.DOCUMENT else self._source(None)[0],
            redactions=request.redactions,
            reason=f"{PROMOTED_FROM}{event.id}",
        )
        self.check_usage(Layer.VERIFIED_FACT, draft.origin, draft.visibility)
        return self._promoted(event, self.services.facts.save(self.actor, draft, idempotency, gate=self.project.gate))

    def _promoted_before(self, event: Memory) -> WriteOutcome | None:
        """Return the answer to a second promotion: the fact as it is now; None where it was erased or is not read."""
        if not event.promoted_to:
            return None
        try:
            fact = self.services.records.read(event.promoted_to, self.actor.scope)
        except NotFound:
            return None
        reason = f"event {event.id} was promoted before, to {fact.id}"
        if fact.status is Status.ARCHIVED:
            reason += f", which is archived; `memory-anchor restore {fact.id}` brings it back"
        elif fact.status is not Status.ACTIVE:
            reason += f", which is {fact.status.value}"
        return WriteOutcome(Outcome.SKIPPED, fact.id, fact.layer, fact.status, reason, target_id=event.id)

    def _promoted(self, event: Memory, outcome: WriteOutcome) -> WriteOutcome:
        """Return the answer to a promotion, once the event names its fact: a crash may have lost only that."""
        if outcome.id not in (None, event.promoted_to) and self._promoted_before(event) is None:
            self._mark_promoted(event.id, outcome.id)
        return replace(outcome, target_id=outcome.target_id or event.id)

    def _mark_promoted(self, event_id: str, fact_id: str) -> None:
        """Close the loop on the event; should it be lost in a crash, the job `finish_supersedes` does it."""
        records = self.services.records
        with records.lock:
            event = records.read(event_id, self.actor.scope)
            step = revise(
                event,
                replace(event, promoted_to=fact_id),
                at=self.services.clock.now(),
                author=author_of(self.actor),
                reason=f"promoted to {fact_id}",
                written_in=self.actor.scope.conversation,
            )
            records.commit(revisions=[step], kind="promote", by=step.new.author)
        self.services.usage.record_use(event)

    # --- changing what is there ------------------------------------------------------------------------------

    def forget(self, request: ForgetMemory) -> WriteOutcome:
        """Archive a memory: out of every search, restorable, nothing erased."""
        self.check_writable()
        why = request.reason or "asked to forget"
        idempotency = self.idempotency("forget", id=request.id, reason=why)
        if (answer := self.replayed(idempotency)) is not None:
            return answer
        current = self.services.records.read(request.id, self.actor.scope)
        if current.status is Status.ARCHIVED:
            return WriteOutcome(Outcome.SKIPPED, request.id, current.layer, current.status, "it is archived already")
        rights.check(Action.FORGET, self.actor.caller, [current])
        return self.change(
            request.id,
            lambda memory: replace(memory, status=Status.ARCHIVED),
            reason=why,
            kind="forget",
            outcome=Outcome.ARCHIVED,
            idempotency=idempotency,
        )

    def change(
        self,
        name: str,
        changed: Callable[[Memory], Memory],
        *,
        reason: str,
        kind: str,
        outcome: Outcome,
        idempotency: Request | None,
        redactions: tuple[str, ...] = (),
        expected_version: int | None = None,
        replaces: bool | None = None,
    ) -> WriteOutcome:
        """Write the next version of a memory, what `changed` makes of it; the caller has been checked.

        idempotency: was looked for before the caller's checks, and is once more under the lock. replaces: a fact comes
        into force by this change; whether it ends what it was saved to replace. None: it does not, or was before.

        Raises VersionConflict: `expected_version` is given and somebody wrote another one meanwhile.
        """
        records = self.services.records
        with records.lock:
            first_answer = records.replayed(idempotency)
            if first_answer is not None:
                return first_answer
            current = records.read(name, self.actor.scope)
            if expected_version is not None and current.version != expected_version:
                raise VersionConflict(
                    f"{name} is at version {current.version}, not {expected_version}; read it again and retry"
                )
            new, at = changed(current), self.services.clock.now()
            new = replace(new, content_hash=content_hash(new.content))
            met: Sequence[Revision] = ()
            target_id, why = None, reason
            if replaces is not None and new.status in IN_FORCE and new.layer is Layer.VERIFIED_FACT:
                entrance = self.services.facts.let_in(self.actor, new, at, may_replace=replaces)
                new, met, target_id = entrance.memory, entrance.revisions, entrance.target_id
                outcome, why = entrance.outcome, f"{reason}; {entrance.why}" if entrance.why else reason
            step = revise(
                current,
                new,
                at=at,
                author=author_of(self.actor),
                reason=reason,
                written_in=self.actor.scope.conversation,
            )
            answer = WriteOutcome(outcome, name, new.layer, new.status, why, target_id, redactions=redactions)
            step = replace(step, new=with_receipt(step.new, idempotency, answer))
            records.commit(revisions=[step, *met], kind=kind, by=step.new.author)
        return answer

    # --- shared checks ---------------------------------------------------------------------------------------------

    def check_writable(self) -> None:
        """Raise Refused: read-only, or paused for everyone but humans."""
        paused = self.services.paused() and not rights.may(Action.WRITE_PAUSED, self.actor.caller)
        check_may_write(
            read_only=self.actor.read_only or self.project.settings.read_only,
            paused=paused,
            pause=pause_of(self.services.data_dir, self.services.clock.now()) if paused else None,
        )

    @property
    def may_write(self) -> bool:
        """Whether `check_writable` would let this caller through."""
        try:
            self.check_writable()
        except Refused:
            return False
        return True

    def check_usage(self, layer: Layer, origin: Origin, visibility: Visibility) -> None:
        """Raise Refused: the layer's collection, or this agent's own, is used for something else."""
        agents_own = self.actor.scope.collection if visibility is Visibility.AGENT else ""
        for name in filter(None, (layer.value, agents_own)):
            collection = self.project.settings.collections.get(name)
            check_writer(name, collection.usage if collection is not None else "memory", origin)

    def _source(self, source: str | None) -> tuple[Origin, WriteMode]:
        """Return the origin and write mode of a write; only a human caller may claim to be human.

        source: an origin or a write mode; both go by this name (the latter in the write-back RFC).
        """
        default = ORIGIN_OF_CALLER[self.actor.caller]
        if source is None:
            return default, WriteMode.TOOL_CALL
        if source in tuple(WriteMode):
            return default, WriteMode(source)
        claimed = checks.choice("source", source, Origin, ORIGIN_ALIASES)
        return (claimed if claimed in (default, Origin.DOCUMENT, Origin.EXTRACTED) else default), WriteMode.TOOL_CALL

    def _draft(self, request: WriteRequest, line: Line | None, layer: Layer) -> Draft:
        """Return what a request asks to write: its fields that a memory has too, its citations, readers and origin.

        A time in the future becomes now. Cited files get a hash of their lines as they are now.
        Raises Refused: a scope that is not this caller's; a collection used for something else. BadInput: a file, the
        source or the visibility.
        """
        scope, now = self.actor.scope, self.services.clock.now()
        owner = {"account_id": scope.account, "user_id": scope.user, "conversation_id": scope.conversation}
        for name, value in request.scope:
            if value != owner[name]:
                raise Refused(f"scope.{name} is {value!r}; this caller may write for {owner[name]!r} only")
        origin, write_mode = self._source(request.source)
        cited: tuple[Citation, ...] = checks.file_citations(request.files, observed_at=now) if request.files else ()
        if cited and self.project.sources is not None:
            cited = self.project.sources.with_line_hashes(cited)
        shared = {name: getattr(request, name) for name in CARRIED & type(request).model_fields.keys()}
        written = (*getattr(request, "who", ()), *filter(None, (request.author,)))
        filled = Draft(
            **shared,
            layer=layer,
            citations=(*cited, *request.sources, *(line.cites if line else ())),
            half_life_days=request.decay,
            content_at=min(request.written_at.start(self.actor.zone), now) if request.written_at is not None else None,
            who=tuple(dict.fromkeys(written)),
            redactions=request.redactions,
            visibility=self._visibility(request.visibility),
            origin=line.origin if line else origin,
            write_mode=write_mode,
        )
        if line is None:
            self.check_usage(layer, filled.origin, filled.visibility)
        return filled

    def _visibility(self, chosen: Visibility | None) -> Visibility:
        if chosen is None:
            return Visibility.AGENT if self.actor.scope.collection else Visibility.PROJECT
        if chosen is Visibility.CONVERSATION and not self.actor.scope.conversation:
            raise BadInput("visibility is conversation and this call belongs to none; allowed are the wider ones")
        return chosen

    def idempotency(self, tool: str, **arguments: Json) -> Request | None:
        """Return what recognises a repeat of this call: made from its arguments, never from state that it changes."""
        return request_of(self.actor, "", tool, arguments)

    def replayed(self, idempotency: Request | None) -> WriteOutcome | None:
        """Return the stored answer to a repeat, else None; comes before any check of what the call changes."""
        return self.services.records.replayed(idempotency)

    def _idempotency(
        self,
        tool: str,
        request: WriteRequest,
        draft: Draft,
        resolved: dict[str, Json],
        line: Line | None,
    ) -> Request | None:
        """Return what recognises a repeat of this write; a time taken from the clock is left out."""
        if line is not None:
            return self._of_line(line, draft.content)
        files = [(cited.ref, cited.locator.line_start, cited.locator.line_end) for cited in draft.citations]
        arguments = request.canonical(content=draft.content, visibility=draft.visibility.value, files=files, **resolved)
        return request_of(self.actor, request.request_id, tool, arguments)

    def _of_line(self, line: Line, safe: str) -> Request | None:
        return request_of(self.actor, f"import-{line.name}", IMPORT, {"text": safe})


def _nothing_left(layer: Layer, kinds: tuple[str, ...]) -> WriteOutcome:
    """Return the answer to a write of which only placeholders would be left."""
    return WriteOutcome(Outcome.REJECTED, None, layer, None, f"content {checks.only_kinds(kinds)}", redactions=kinds)


def session_text(summary: str, values: Mapping[str, Json]) -> str:
    """Return the text of a conversation's last event: the summary, then the values of L1, cut at the maximum.

    Redacted as a whole: a name and its value may be a secret only together.
    """
    lines = [summary] if summary else []
    lines += [
        f"{key}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for key, value in values.items()
    ]
    text = safety.cleaned("\n".join(lines)).text
    if len(text) > checks.CONTENT_MAX:
        text = text[: checks.CONTENT_MAX - 2].rstrip() + " …"
    return text


WRITERS: Mapping[str, frozenset[Origin]] = {
    "memory": frozenset({Origin.HUMAN, Origin.SYSTEM, Origin.AGENT, Origin.EXTRACTED}),
    "knowledge": frozenset({Origin.HUMAN, Origin.SYSTEM, Origin.DOCUMENT}),
    "hybrid": frozenset(Origin),
}
"""usage -> origins that may write."""


def check_writer(collection: str, usage: str, origin: Origin) -> None:
    """Raise Refused: this collection takes no writes of this origin."""
    if origin not in WRITERS[usage]:
        raise Refused(
            f"collection {collection} is used as {usage}, which takes no writes of {origin.value} origin; "
            f"allowed are {', '.join(sorted(origin.value for origin in WRITERS[usage]))}"
        )
