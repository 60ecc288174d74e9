"""The use cases that write: allowed, made safe, idempotent.

Every method takes a checked request, refuses what a caller may not do, strips private parts and secrets, and hands a
draft to the layer it belongs to. A repeated request gets its first answer.

What a collection is used for decides who may write to it without being asked.

`memory`: agents and what is extracted from conversations write; documents do not belong there. `knowledge`: people
manage it by hand and documents are taken in; nothing writes automatically. `hybrid`: both. A human may always write.
Source: the write-back RFC, section 2.3 (usage of a knowledge base).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from memory_anchor import inputs, rights
from memory_anchor.errors import BadInput, Refused, VersionConflict
from memory_anchor.hashing import content_hash, stable_hash
from memory_anchor.ingest.writing import FactDraft
from memory_anchor.json_values import Json
from memory_anchor.language import safety
from memory_anchor.layers.event_log import EventDraft
from memory_anchor.layers.gate import DEFAULT_CONFIDENCE
from memory_anchor.layers.records import Request, author_of, request_of, with_receipt
from memory_anchor.model import (
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
from memory_anchor.pausing import Pause, pause_of
from memory_anchor.requests import (
    EndSession,
    ForgetMemory,
    LogEvent,
    PromoteToFact,
    ProposeChange,
    SaveMemory,
    SetActiveContext,
    WriteRequest,
)
from memory_anchor.rights import Deed
from memory_anchor.services import Project, Services
from memory_anchor.versions import revise

HOME_OF = {
    Layer.IDENTITY_SCHEMA: "propose_constitution_change",
    Layer.ACTIVE_CONTEXT: "set_active_context",
    Layer.OPERATIONAL_KNOWLEDGE: "an editor: developers write .ai/operations/ in Git",
}
IMPORT = "import"
Draft = TypeVar("Draft", FactDraft, EventDraft)
STORED_LAYERS = (Layer.EVENT_LOG, Layer.VERIFIED_FACT)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file that is taken in: what names it when it comes again, whose word it is, and what it says of that.

    since: of a fact, since when it holds. dry: only say what would come of it.
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
    room: Project
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
            raise BadInput(f"content is empty; allowed is text of 1 to {inputs.CONTENT_MAX} characters")
        if request.from_id:
            fact = self.services.records.read(request.from_id, self.actor.scope)
            if fact.layer is not Layer.VERIFIED_FACT:
                raise BadInput(
                    f"from_id {request.from_id!r} is in {fact.layer.value}; allowed is a fact (promote the event first)"
                )
        return self.room.identity.propose(
            content=request.content,
            reason=request.reason,
            action=request.action,
            entry_id=request.entry_id or None,
            from_id=request.from_id or None,
            by=author_of(self.actor),
        )

    def set_active(self, request: SetActiveContext) -> datetime:
        """Keep one JSON value in mind for this conversation; return when it expires."""
        self.check_writable()
        name = self.made_safe(request.key, "key")[0]
        encoded = json.dumps(safety.cleaned_value(request.value, name), ensure_ascii=False, separators=(",", ":"))
        active, scope = self.services.active, self.actor.scope
        recognised = (stable_hash("set_active", name, encoded, str(request.ttl_s)), scope.account, self.actor.nonce)
        until = datetime.fromisoformat(
            self.services.answers.note_once(lambda: active.expiry_of(request.ttl_s).isoformat(), *recognised)
        )
        active.set(scope, name, encoded, expires_at=until)
        return until

    def end_session(self, asked: EndSession) -> list[WriteOutcome]:
        """Turn L1 and the summary into one L2 event; nothing in mind and no summary means nothing to write."""
        self.check_writable()
        clean, kinds = self.made_safe(asked.summary, "summary") if asked.summary else ("", ())
        request = self.request("end_session", summary=clean)
        if (done := self.replayed(request)) is not None:
            return [done]  # what came into mind since then stays there
        with self.services.active.take(self.actor.scope) as values:
            content = session_text(clean, values)
            if not content:
                return []
            own, _ = self._source(None)
            draft = EventDraft(
                content,
                self.services.clock.now(),
                type=MemoryType.SUMMARY if clean else MemoryType.EVENT,
                key="session ended",
                who=(self.actor.scope.agent,) if self.actor.scope.agent else (),
                visibility=self._visibility(None),
                origin=own,
                redactions=kinds,
            )
            return [self.services.events.log(self.actor, draft, request)]

    # --- L2 -------------------------------------------------------------------------------------------------

    def log_event(self, asked: LogEvent, *, line: Line | None = None) -> WriteOutcome:
        """Store what happened; by words at once, by meaning as soon as it is embedded."""
        self.check_writable()
        now = self.services.clock.now()
        safe = inputs.public("content", asked.content)
        if safety.only_secrets(safe.text):
            return _nothing_left(Layer.EVENT_LOG, safe.kinds)
        days = self.services.settings.lifecycle.default_ttl_days if asked.ttl_days is None else asked.ttl_days
        when = asked.when.begins(self.actor.zone) if asked.when is not None else now
        draft = replace(
            self._filled(EventDraft.like(asked, safe.text, when), asked, line, Layer.EVENT_LOG),
            type=asked.type,
            where=asked.where or None,
            who=tuple(dict.fromkeys((*asked.who, *((asked.author,) if asked.author else ())))),
            ttl_days=days or None,
            redactions=safe.kinds,
        )
        resolved: dict[str, Json] = {
            "confidence": draft.confidence,
            "when": str(draft.when) if asked.when is not None else None,
            "where": draft.where,
            "ttl_days": draft.ttl_days,
        }
        request = self._request("log_event", asked, draft, resolved, line)
        if line is not None and line.dry:
            known = self.services.records.replayed(request) is not None
            return WriteOutcome(Outcome.SKIPPED if known else Outcome.ADDED, None, Layer.EVENT_LOG, None, "")
        return self.services.events.log(self.actor, draft, request)

    # --- L3 ------------------------------------------------------------------------------------------------------

    def save_memory(self, asked: SaveMemory, *, line: Line | None = None) -> WriteOutcome:
        """Store a memory in the layer its type belongs to; facts pass the gate and are reconciled."""
        self.check_writable()
        home = asked.layer or LAYER_OF_TYPE[asked.type]
        if home is Layer.IDENTITY_SCHEMA:
            raise Refused("layer is identity_schema, which only humans change; call propose_constitution_change")
        if home not in STORED_LAYERS:
            raise BadInput(f"layer is {home.value!r}; allowed are event_log and verified_fact ({HOME_OF[home]})")
        if home is Layer.EVENT_LOG:
            if asked.replaces:
                raise BadInput("replaces is given for an event; allowed is only for facts")
            return self.log_event(LogEvent.like(asked), line=line)
        safe = inputs.public("content", asked.content)
        if safety.only_secrets(safe.text):
            return _nothing_left(Layer.VERIFIED_FACT, safe.kinds)
        claim, doubt = self.room.gate.assess(safe.text) if asked.confidence is None else (asked.confidence, "")
        filled = self._filled(FactDraft.like(asked, safe.text), asked, line, Layer.VERIFIED_FACT)
        draft = replace(
            filled,
            type=asked.type,
            confidence=claim,
            doubt=doubt,
            who=(asked.author,) if asked.author else (),
            written_at=min(line.since, self.services.clock.now()) if line and line.since else filled.written_at,
            replaces=asked.replaces or None,
            redactions=safe.kinds,
        )
        claimed_or_not = DEFAULT_CONFIDENCE if asked.confidence is None else asked.confidence
        resolved: dict[str, Json] = {"replaces": draft.replaces, "confidence": claimed_or_not}
        request = self._request("save_memory", asked, draft, resolved, line)
        if line is not None and line.dry:
            foreseen = self.services.facts.foreseen(self.actor, draft, request, gate=self.room.gate)
            return WriteOutcome(foreseen, None, Layer.VERIFIED_FACT, None, "")
        return self.services.facts.save(self.actor, draft, request, gate=self.room.gate)

    def took(self, content: str, line: Line) -> bool:
        """Return whether this line of an import was taken in before. Raises BadInput: the content."""
        request = self._of_line(line, inputs.public("content", content).text)
        return self.services.records.replayed(request) is not None

    def promote(self, asked: PromoteToFact) -> WriteOutcome:
        """Turn an event into a fact: the fact cites the event, the event is marked promoted and stays."""
        self.check_writable()
        text, kinds = self.made_safe(asked.content, "content") if asked.content is not None else ("", ())
        recognised = asked.asked(
            content=text, confidence=DEFAULT_CONFIDENCE if asked.confidence is None else asked.confidence
        )
        request = request_of(self.actor, asked.request_id, "promote_to_fact", recognised)
        done = self.replayed(request)
        event = self.services.records.read(asked.event_id, self.actor.scope)
        if event.layer is not Layer.EVENT_LOG:
            raise BadInput(f"event_id {asked.event_id!r} is in {event.layer.value}; allowed is an event of event_log")
        if done is not None:
            return self._promoted(event, done)
        if event.promoted_to:
            return WriteOutcome(
                Outcome.SKIPPED,
                event.promoted_to,
                Layer.VERIFIED_FACT,
                Status.ACTIVE,
                f"event {asked.event_id} was promoted before",
                target_id=asked.event_id,
            )
        said = text or event.content
        claim, doubt = self.room.gate.assess(said) if asked.confidence is None else (asked.confidence, "")
        draft = replace(
            FactDraft.like(event, said),
            type=MemoryType.FACT,
            tags=event.tags,
            confidence=claim,
            doubt=doubt,
            visibility=event.visibility,
            citations=(
                Citation("event", event.id, title=event.key or None, scope=event.scope, observed_at=event.when),
                *event.citations,
            ),
            origin=event.origin if event.origin is Origin.DOCUMENT else self._source(None)[0],
            redactions=kinds,
        )
        self.check_usage(Layer.VERIFIED_FACT, draft.origin, draft.visibility)
        return self._promoted(event, self.services.facts.save(self.actor, draft, request, gate=self.room.gate))

    def _promoted(self, event: Memory, outcome: WriteOutcome) -> WriteOutcome:
        """Return the answer to a promotion, its event marked; a kill may have come between the two."""
        if outcome.id is not None and not event.promoted_to:
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
        self.services.usage.used(event)

    # --- changing what is there ------------------------------------------------------------------------------

    def forget(self, asked: ForgetMemory) -> WriteOutcome:
        """Archive a memory: out of every search, restorable, nothing erased."""
        self.check_writable()
        why = asked.reason or "asked to forget"
        request = self.request("forget", id=asked.id, reason=why)
        if (done := self.replayed(request)) is not None:
            return done
        current = self.services.records.read(asked.id, self.actor.scope)
        if current.status is Status.ARCHIVED:
            return WriteOutcome(Outcome.SKIPPED, asked.id, current.layer, current.status, "it is archived already")
        rights.check(Deed.FORGET, self.actor.caller, [current])
        return self.change(
            asked.id,
            lambda memory: replace(memory, status=Status.ARCHIVED),
            reason=why,
            kind="forget",
            outcome=Outcome.ARCHIVED,
            request=request,
        )

    def change(
        self,
        name: str,
        changed: Callable[[Memory], Memory],
        *,
        reason: str,
        kind: str,
        outcome: Outcome,
        request: Request | None,
        redactions: tuple[str, ...] = (),
        expected_version: int | None = None,
    ) -> WriteOutcome:
        """Write the next version of a memory, what `changed` makes of it; the caller has been checked.

        request: was looked for before the caller's checks, and is once more under the lock.

        Raises VersionConflict: `expected_version` is given and somebody wrote another one meanwhile.
        """
        records = self.services.records
        with records.lock:
            done = records.replayed(request)
            if done is not None:
                return done
            current = records.read(name, self.actor.scope)
            if expected_version is not None and current.version != expected_version:
                raise VersionConflict(
                    f"{name} is at version {current.version}, not {expected_version}; read it again and retry"
                )
            wanted = changed(current)
            step = revise(
                current,
                replace(wanted, content_hash=content_hash(wanted.content)),
                at=self.services.clock.now(),
                author=author_of(self.actor),
                reason=reason,
                written_in=self.actor.scope.conversation,
            )
            answer = WriteOutcome(outcome, name, step.new.layer, step.new.status, reason, redactions=redactions)
            told = replace(step, new=with_receipt(step.new, request, answer))
            records.commit(revisions=[told], kind=kind, by=step.new.author)
        return answer

    # --- shared checks ---------------------------------------------------------------------------------------------

    def check_writable(self) -> None:
        """Raise Refused: read-only, or paused for everyone but humans."""
        paused = self.services.paused() and not rights.may(Deed.WRITE_PAUSED, self.actor.caller)
        check_may_write(
            read_only=self.actor.read_only or self.room.settings.read_only,
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
        own = self.actor.scope.collection if visibility is Visibility.AGENT else ""
        for name in (layer.value, *((own,) if own else ())):
            chosen = self.room.settings.collections.get(name)
            check_writer(name, chosen.usage if chosen is not None else "memory", origin)

    def made_safe(self, text: str, what: str) -> tuple[str, tuple[str, ...]]:
        """Return text without private parts and secrets, and the kinds that were redacted.

        Raises BadInput: nothing is left.
        """
        safe = inputs.storable_content(what, text)
        return safe.text, safe.kinds

    def _source(self, source: str | None) -> tuple[Origin, WriteMode]:
        """Return who is behind a write and how it came about; a claim to be human counts only for a human caller.

        source: an origin, or a write mode of the write-back RFC; both are called so.
        """
        own = {Caller.HUMAN: Origin.HUMAN, Caller.SYSTEM: Origin.SYSTEM, Caller.AGENT: Origin.AGENT}[self.actor.caller]
        if source is None:
            return own, WriteMode.TOOL_CALL
        if source in tuple(WriteMode):
            return own, WriteMode(source)
        claimed = inputs.choice("source", source, Origin, ORIGIN_ALIASES)
        return (claimed if claimed in (own, Origin.DOCUMENT, Origin.EXTRACTED) else own), WriteMode.TOOL_CALL

    def _filled(self, draft: Draft, asked: WriteRequest, line: Line | None, layer: Layer) -> Draft:
        """Return a draft with what every write says alike: what it rests on, who reads it, whose word it is, and when
        it was written down (what lies ahead is now). Cited files get a hash of their lines as they stand.

        Raises Refused: it says that it is somebody else's than this caller's; the collection is used for something
        else. BadInput: a file, the source or the visibility.
        """
        scope, now = self.actor.scope, self.services.clock.now()
        own = {"account_id": scope.account, "user_id": scope.user, "conversation_id": scope.conversation}
        for name, value in asked.scope:
            if value != own[name]:
                raise Refused(f"scope.{name} is {value!r}; this caller may write for {own[name]!r} only")
        origin, write_mode = self._source(asked.source)
        cited: tuple[Citation, ...] = inputs.file_citations(asked.files, observed_at=now) if asked.files else ()
        if cited and self.room.sources is not None:
            cited = self.room.sources.with_line_hashes(cited)
        filled = replace(
            draft,
            tags=asked.tags,
            citations=(*cited, *asked.sources, *(line.cites if line else ())),
            sentiment=asked.sentiment,
            half_life_days=asked.decay,
            written_at=min(asked.written_at.begins(self.actor.zone), now) if asked.written_at is not None else None,
            visibility=self._visibility(asked.visibility),
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

    def request(self, tool: str, **asked: Json) -> Request | None:
        """Return how this call is recognised again: over what was asked, never over a state that the call changes."""
        return request_of(self.actor, "", tool, asked)

    def replayed(self, request: Request | None) -> WriteOutcome | None:
        """Return the first answer to this request, to be looked for before any check of what it has changed."""
        return self.services.records.replayed(request)

    def _request(
        self,
        tool: str,
        asked: WriteRequest,
        draft: FactDraft | EventDraft,
        resolved: dict[str, Json],
        line: Line | None,
    ) -> Request | None:
        """Return how a repeat of this write is recognised; the clock's part is left out."""
        if line is not None:
            return self._of_line(line, draft.content)
        files = [(cited.ref, cited.locator.line_start, cited.locator.line_end) for cited in draft.citations]
        whole = asked.asked(content=draft.content, visibility=draft.visibility.value, files=files, **resolved)
        return request_of(self.actor, asked.request_id, tool, whole)

    def _of_line(self, line: Line, safe: str) -> Request | None:
        return request_of(self.actor, f"import-{line.name}", IMPORT, {"text": safe})


def check_may_write(*, read_only: bool, paused: bool, pause: Pause | None = None) -> None:
    """Raise Refused where nothing may be written now. pause: names when it ends, where it does by itself."""
    if read_only:
        raise Refused("this connection is read-only; nothing was written")
    if paused:
        ends = f"; it ends at {pause.until:%Y-%m-%d %H:%M} UTC" if pause is not None and pause.until else ""
        raise Refused(rights.refusal(Deed.WRITE_PAUSED, Caller.AGENT) + ends)


def _nothing_left(layer: Layer, kinds: tuple[str, ...]) -> WriteOutcome:
    """Return the answer to a write of which only placeholders would be left."""
    return WriteOutcome(Outcome.REJECTED, None, layer, None, f"content {inputs.only_kinds(kinds)}", redactions=kinds)


def session_text(summary: str, values: Mapping[str, Json]) -> str:
    """Return the text of the event that a conversation leaves: the summary, then what was in mind, within bounds.

    Cleaned as a whole: a name and the value after it may be a secret only together.
    """
    lines = [summary] if summary else []
    lines += [
        f"{key}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for key, value in values.items()
    ]
    text = safety.cleaned("\n".join(lines)).text
    if len(text) > inputs.CONTENT_MAX:
        text = text[: inputs.CONTENT_MAX - 2].rstrip() + " …"
    return text


WRITERS: Mapping[str, frozenset[Origin]] = {
    "memory": frozenset({Origin.HUMAN, Origin.SYSTEM, Origin.AGENT, Origin.EXTRACTED}),
    "knowledge": frozenset({Origin.HUMAN, Origin.SYSTEM, Origin.DOCUMENT}),
    "hybrid": frozenset(Origin),
}
"""usage -> origins that may write."""


def check_writer(collection: str, usage: str, origin: Origin) -> None:
    """Raise Refused: this collection does not take what comes from there."""
    if origin not in WRITERS[usage]:
        raise Refused(
            f"collection {collection} is used as {usage}, which takes no writes of {origin.value} origin; "
            f"allowed are {', '.join(sorted(one.value for one in WRITERS[usage]))}"
        )
