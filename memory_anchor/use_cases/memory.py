"""MemoryAnchor: the door of every front end, for one caller (`Actor`) in one project.

It is cheap to make, so each request gets its own. Its methods are what agents ask of the layers; the rest is in its
parts (`curation`, `maintenance`), which share one process's services (`Services`) and
one project's settings (`Project`). A use case takes its request model, or the model's fields, and returns domain
values, which front ends format.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Json
from memory_anchor.context.context import BuiltContext
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import (
    HISTORY,
    LAYER_OF_TYPE,
    SEARCHABLE_STATES,
    Actor,
    Constitution,
    Layer,
    Memory,
    MemoryType,
    OperationPassage,
    Origin,
    Proposal,
    RetrievedSnippet,
    SearchAnswer,
    Status,
    Visibility,
    WriteMode,
    WriteOutcome,
    audiences,
)
from memory_anchor.domain.requests import requests
from memory_anchor.domain.requests.fields import Moment, use_case
from memory_anchor.domain.versions import parse_version_id
from memory_anchor.domain.where import OneOf, Where
from memory_anchor.ingest.candidates import Candidate
from memory_anchor.ingest.conversation_learning import KNOWN_MAX, CandidateOutcome, Extract, Extracted, extract_through
from memory_anchor.ingest.messages import Message, conversation, fold
from memory_anchor.ingest.model_calls import Style
from memory_anchor.ingest.profile import ProfileLine, profile_of
from memory_anchor.language.perspective import Perspective
from memory_anchor.layers.links import MemoryLink, links_of
from memory_anchor.recall.fixes import Failure, fixes_for
from memory_anchor.recall.order import with_freshness
from memory_anchor.recall.relevance import STRONG, max_weak
from memory_anchor.recall.request import SearchRequest
from memory_anchor.recall.routing import wants, with_identity, with_operations
from memory_anchor.recall.unprompted import cosines_with, mentioning, recall_for_prompt, sharing_terms
from memory_anchor.settings import AgentSettings
from memory_anchor.upkeep import history as versions_of
from memory_anchor.use_cases.curation import Curation
from memory_anchor.use_cases.due import DATED_MAX, DUE, READ, DueFile, DueMemory, due_of
from memory_anchor.use_cases.maintenance import Maintenance
from memory_anchor.use_cases.services import Project, Services
from memory_anchor.use_cases.used_memories import USED_MEMORIES_FILE, UsedMemories
from memory_anchor.use_cases.writes import STORED_LAYERS, Writes

if TYPE_CHECKING:
    from memory_anchor.process.wiring import Core

TOPIC_KEYS = ("current_topic", "topic")
"""Keys of L1 under which an agent says what a conversation is about, the first one first."""
TOPIC_CHARS = 300


OWN_WORDS = frozenset({MemoryType.INSTRUCTION, MemoryType.PREFERENCE, MemoryType.DECISION})
"""Types of what a user lays down: what they say of it is so."""
PROFILED_MAX = 1_000
"""The newest live facts that a profile is made from."""


class Conversations:
    def __init__(self, writes: Writes) -> None:
        self._writes = writes
        self.services, self.project, self.actor = writes.services, writes.project, writes.actor

    def remember(self, request: requests.RememberConversation) -> tuple[list[CandidateOutcome], list[str]]:
        """Store what is worth keeping of a conversation; return what became of each part, and notes.

        mode: the settings' of this agent when left out.
        """
        self._writes.check_writable()
        for layer in STORED_LAYERS:
            self._writes.check_usage(layer, Origin.EXTRACTED, Visibility.AGENT)
        known = self._known_at_first(stable_hash("learn", json.dumps(request.canonical(), sort_keys=True, default=str)))
        extracted, write_mode, notes = self.extract(request, known)
        if request.waits:
            gate, turns = self.project.gate, conversation(request.messages)
            facts = tuple(
                candidate
                if self._counts_at_once(candidate, turns[candidate.seq])
                else replace(candidate, confidence=min(candidate.confidence, gate.unsure))
                for candidate in extracted.candidates
                if LAYER_OF_TYPE[candidate.type] is Layer.VERIFIED_FACT
            )
            extracted = replace(extracted, candidates=facts)
        return self.services.learner.store(self.actor, extracted, gate=self.project.gate, mode=write_mode), notes

    def _counts_at_once(self, candidate: Candidate, said_in: Message) -> bool:
        """Return whether a candidate is a rule, preference or decision in its user's own words, without a doubt and
        without a secret: the strategy lets a quotation in at 0.9."""
        settings, gate = self.project.agent_settings(self.actor.scope.agent).extraction, self.project.gate
        is_own = said_in.role == "user" and not candidate.context and fold(candidate.content) in fold(said_in.content)
        is_plain = not candidate.redactions and not gate.assess(candidate.content)[1]
        return settings.active and is_own and is_plain and candidate.type in OWN_WORDS

    def extract(
        self, request: requests.RememberConversation, known: Sequence[Memory] | None = None
    ) -> tuple[Extracted, WriteMode, list[str]]:
        """Return what `remember` would store; nothing is written. known: None for what is known now."""
        turns = conversation(request.messages)
        settings = self.project.agent_settings(self.actor.scope.agent).extraction
        write_mode = request.mode or WriteMode(WriteMode.TOOL_CALL if settings.mode == "auto" else settings.mode)
        style = Style(write_mode, Perspective(settings.perspective), settings.prompt_template)
        extract: Extract | None = None
        notes = []
        model = self.services.model_named(settings.model)
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
        extracted = self.services.learner.find(turns, before, user_facts_only=request.only is not None, extract=extract)
        return extracted, write_mode, [*notes, *extracted.notes]

    def profile(self) -> tuple[ProfileLine, ...]:
        """Return what is known of this caller's user and project, each line citing its fact."""
        return profile_of(self._known_here(PROFILED_MAX))

    def _known_at_first(self, fingerprint: str) -> list[Memory]:
        """Return what was known when this request came first: of what it stored itself it would find nothing new."""
        nonce, now = self.actor.nonce, self._known_here()
        ids = self.services.answers.note_once(
            lambda: [memory.point_id for memory in now], fingerprint, self.actor.scope.account, nonce
        )
        if ids == [memory.point_id for memory in now]:
            return now
        stored = {
            entry.memory.point_id: entry.memory for entry in self.services.store.get(Layer.VERIFIED_FACT.value, ids)
        }
        return [stored[point] for point in ids if point in stored]

    def _known_here(self, limit: int = KNOWN_MAX) -> list[Memory]:
        """Return the newest live facts this caller reads: what an extraction need not say again."""
        where = Where(
            (
                OneOf("audience", tuple(sorted(audiences(self.actor.scope)))),
                OneOf("state", tuple(sorted(SEARCHABLE_STATES | {Status.PENDING.value}))),
            )
        )
        return self.services.store.find(
            Layer.VERIFIED_FACT.value, where, limit=limit, order_by="recorded_at", descending=True
        )


@dataclass(eq=False)
class MemoryAnchor:
    services: Services
    project: Project
    actor: Actor
    process: Core

    @cached_property
    def writes(self) -> Writes:
        return Writes(self.services, self.project, self.actor)

    @cached_property
    def conversations(self) -> Conversations:
        return Conversations(self.writes)

    @cached_property
    def curation(self) -> Curation:
        return Curation(self.writes)

    @cached_property
    def maintenance(self) -> Maintenance:
        return Maintenance(self.writes, self.process)

    @property
    def agent_settings(self) -> AgentSettings:
        """The settings of this agent."""
        return self.project.agent_settings(self.actor.scope.agent)

    # --- layers ---------------------------------------------------------------------------------------------------

    def constitution(self) -> Constitution:
        """Return L0 whole: the approved text, with a warning where the file differs. Never fails."""
        return self.project.identity.load()

    @use_case(requests.ProposeChange)
    def propose(self, request: requests.ProposeChange) -> Proposal:
        """File a wish to change L0; only humans can make it effective."""
        return self.writes.propose(request)

    @use_case(requests.GetActiveContext)
    def active(self, request: requests.GetActiveContext) -> dict[str, tuple[Json, datetime]]:
        """Return key -> (value, expires_at) of this conversation, or only `key` (empty when it has expired)."""
        values = self.services.active.values(self.actor.scope)
        if request.key is None:
            return values
        return {request.key: values[request.key]} if request.key in values else {}

    @use_case(requests.SetActiveContext)
    def set_active(self, request: requests.SetActiveContext) -> datetime:
        """Set one value of L1 for this conversation; return when it expires."""
        return self.writes.set_active(request)

    @use_case(requests.EndSession)
    def end_session(self, request: requests.EndSession) -> list[WriteOutcome]:
        """Turn L1 and the summary into one L2 event; without either nothing is written."""
        return self.writes.end_session(request)

    @use_case(requests.LogEvent)
    def log_event(self, request: requests.LogEvent) -> WriteOutcome:
        """Store what happened; by words at once, by meaning as soon as it is embedded."""
        remote = self.services.remote
        with self.services.save_health.watched():
            outcome = self.writes.log_event(request)
            return outcome if remote is None else remote.queue(self.actor, "memory/log", request, outcome)

    @use_case(requests.SearchEvents)
    def search_events(self, request: requests.SearchEvents) -> list[Memory]:
        """Return events newest first, or best first with a query. `end` given as a date includes that day."""
        since, until = self._period(start=request.start, end=request.end)
        where = request.where or None
        if not request.query:
            return self.services.events.find(
                self.actor.scope, start=since, end=until, where=where, who=request.who, limit=request.limit
            )
        of_events = SearchRequest(request.query, (Layer.EVENT_LOG,), limit=request.limit, where=where, who=request.who)
        answer = self.services.searcher.search(self.actor, replace(of_events, since=since, until=until))
        rank = {snippet.id: position for position, snippet in enumerate(answer.snippets)}
        if not rank:
            return []
        current = Where((OneOf("id", tuple(rank)),), (OneOf("state", (HISTORY,)),))
        events = self.services.store.find(Layer.EVENT_LOG.value, current, limit=len(rank))
        return sorted(events, key=lambda event: rank[event.id])

    @use_case(requests.SaveMemory)
    def save_memory(self, request: requests.SaveMemory) -> WriteOutcome:
        """Store a memory in the layer its type belongs to; facts pass the gate and are reconciled."""
        remote = self.services.remote
        with self.services.save_health.watched():
            outcome = self.writes.save_memory(request)
            return outcome if remote is None else remote.queue(self.actor, "memory/store", request, outcome)

    @use_case(requests.PromoteToFact)
    def promote(self, request: requests.PromoteToFact) -> WriteOutcome:
        """Turn an event into a fact: the fact cites the event, the event is marked promoted and stays."""
        return self.writes.promote(request)

    # --- search ---------------------------------------------------------------------------------------------------

    @use_case(requests.SearchMemory)
    def search(self, request: requests.SearchMemory) -> SearchAnswer:
        """Return snippets that answer the query, relevant ones first, weak ones marked (`recall/relevance.py`)."""
        remote, locally = self.services.remote, self._search_locally
        return locally(request) if remote is None else remote.search(self.actor, request, locally)

    def _search_locally(self, request: requests.SearchMemory) -> SearchAnswer:
        search = self._search_request(request)
        now = self.services.clock.now()
        searcher, entries = self.services.searcher, cache(self.project.identity.entries)
        preload: Callable[[], object] = entries if wants(search, Layer.IDENTITY_SCHEMA, signal=True) else lambda: None
        answer = searcher.search(self.actor, search, meanwhile=preload) if search.searched() else SearchAnswer(())
        self.services.recalled_together.note(answer.snippets)
        answer = self._counted_as_shown(answer)
        answer = with_operations(answer, search, self.project.operations.find, now=now)
        is_unlikely = all(snippet.weak and (snippet.relevance or 0.0) < STRONG for snippet in answer.snippets)
        if search.is_unfiltered and not search.layers and is_unlikely:
            passages = [hit for one in self.services.extensions.values() for hit in one.passages(self, search.query)]
            answer = replace(answer, snippets=(*passages, *answer.snippets)[: search.limit])
        if search.is_unfiltered and not search.layers and len(answer.snippets) < search.limit:
            for one in self.services.extensions.values():
                answer = one.besides(self, search.query, answer)
            answer = replace(answer, snippets=answer.snippets[: search.limit])
        if self.actor.project_dir and (note := self.services.project_note(self.actor.scope.project)):
            answer = replace(answer, notes=(*answer.notes, note))
        return with_identity(answer, search, entries, self.services.nearness.of, now=now)

    def _counted_as_shown(self, answer: SearchAnswer) -> SearchAnswer:
        """Return the answer with its citations checked; its memories count as shown once more."""
        answer = with_freshness(answer, self.project.sources)
        self.services.usage.record_shown((snippet.layer, snippet.id) for snippet in answer.snippets)
        return answer

    def recall_unprompted(self, prompt: str, *, limit: int) -> list[RetrievedSnippet]:
        """Return memories of L2, L3 and L4 that decide a prompt that asked for none; often there are none.

        With an embedder that `recall/unprompted.py` does not know: what a search calls strong.
        """
        searcher, search = self.services.searcher, SearchRequest(prompt, limit=limit, weak=0)
        decisive = recall_for_prompt(searcher, self.actor, search)
        answer = searcher.search(self.actor, search) if decisive is None else SearchAnswer(decisive.snippets)
        answer = self._counted_as_shown(answer)
        needs, find = 0.0 if decisive is None else decisive.needs, self.project.operations.find
        answer = with_operations(answer, search, find, now=self.services.clock.now(), needs=needs)
        never_used = UsedMemories(self.services.data_dir / USED_MEMORIES_FILE).never_used()
        return [
            snippet
            for snippet in answer.snippets
            if not snippet.weak and (snippet.id not in never_used or (snippet.relevance or 0) >= STRONG)
        ][:limit]

    def mentioning(self, names: Sequence[str], *, limit: int = 4) -> list[Memory]:
        """Return current memories whose words name one of these files, identifiers or phrases, rarest first."""
        return mentioning(self.services.searcher, self.actor, names, limit=limit)

    def sharing_terms(self, words: Sequence[str], *, limit: int) -> list[Memory]:
        """Return the current memories that share most of these terms, rare ones first; no embedding."""
        return sharing_terms(self.services.searcher, self.actor, words, most=limit)

    def cosines_with(self, text: str, memories: Sequence[Memory]) -> list[float]:
        """Return how near each of these memories is to a text in meaning; it embeds the text."""
        return cosines_with(self.services.searcher, text, memories)

    def fixes_for(self, failure: Failure, kinds: Collection[MemoryType]) -> list[Memory]:
        """Return memories of these types that fix a failed command; often there are none."""
        fixes = fixes_for(self.services.searcher, self.actor, failure, kinds)
        self.services.usage.record_shown((memory.layer, memory.id) for memory in fixes)
        return fixes

    @use_case(requests.ListDue)
    def due(self, request: requests.ListDue) -> list[DueMemory]:
        """Return open tasks and dates that are due; `done` marks one of them as done first."""
        file, now = DueFile(self.services.data_dir / DUE), self.services.clock.now()
        if request.done:
            self.writes.check_writable()
            file.note([self.services.records.read(request.done, self.actor.scope).id], f"{now:%Y-%m-%d}", what="done")
        layers = (Layer.VERIFIED_FACT.value, Layer.EVENT_LOG.value)
        memories = {memory.id: memory for memory in self.curation.dated(limit=DATED_MAX)}
        memories |= {memory.id: memory for layer in layers for memory in self.curation.listing(layer=layer, limit=READ)}
        return due_of(memories.values(), now=now, zone=self.actor.zone, done=file.done(), ahead_days=request.days)

    @use_case(requests.WhyNot)
    def why_not(self, request: requests.WhyNot) -> dict[str, Json]:
        """Return why a memory does or does not answer a query: found, reason, and its rank and signals when scored."""
        memory = self.services.records.read(request.id, self.actor.scope)
        search = self._search_request(requests.SearchMemory.of(request.query))
        return self.services.searcher.why_not(self.actor, search, memory)

    def _search_request(self, request: requests.SearchMemory) -> SearchRequest:
        """Return the search that this caller's request asks for, at this moment."""
        now = self.services.clock.now()
        since, until = self._period(since=request.since, until=request.until)
        # From now on is what is believed now: the plain search, with all its evidence.
        as_of = request.as_of.start(self.actor.zone) if request.as_of is not None else None
        ranking = self.agent_settings.retrieval
        return SearchRequest(
            query=request.query,
            layers=request.layers,
            types=request.types,
            tags=request.tags,
            since=since,
            until=until,
            as_of=as_of if as_of is not None and as_of < now else None,
            limit=request.limit,
            weak=max_weak(request.limit),
            include_pending=request.include_pending,
            detail=request.detail,
            topic=self._topic() if self.services.settings.retrieval.lens else "",
            before=self.services.recent_prompts.last_before(self.actor.scope, request.query),
            counts_use=ranking.apply_frequency_boost,
            counts_age=ranking.apply_time_decay,
        )

    def _period(self, **ends: Moment | None) -> tuple[datetime | None, datetime | None]:
        """Return the two ends of a range by their names; a date as its end includes that day. Raises BadInput."""
        (first, begins), (last, ends_at) = ends.items()
        since = begins.start(self.actor.zone) if begins is not None else None
        until = ends_at.end(self.actor.zone) if ends_at is not None else None
        if begins is not None and ends_at is not None and since is not None and until is not None and since >= until:
            raise BadInput(
                f"{first} {begins.text!r} is after {last} {ends_at.text!r}; allowed is {first} before {last}"
            )
        return since, until

    def _topic(self) -> str:
        """Return what this conversation says it is about, "" for nothing."""
        values = self.services.active.values(self.actor.scope)
        topic = next((values[key][0] for key in TOPIC_KEYS if key in values), "")
        return topic[:TOPIC_CHARS] if isinstance(topic, str) else ""

    @use_case(requests.GetMemory)
    def get(self, request: requests.GetMemory) -> Memory:
        """Return one memory, its citations checked against the project; fetching it counts as a use."""
        memory = self.services.records.read(request.id, self.actor.scope)
        self.services.usage.record_use(memory)
        if self.project.sources is None:
            return memory
        return replace(memory, citations=self.project.sources.with_freshness(memory.citations))

    @use_case(requests.ShowMemory)
    def show(self, request: requests.ShowMemory) -> Memory:
        """Return one memory: as it is, as it was believed at `as_of`, or one version of it (`ID@2`)."""
        store, reader = self.services.store, self.actor.scope
        if request.as_of is not None:
            return versions_of.as_of(store, request.id, request.as_of.start(self.actor.zone), reader)
        if parse_version_id(request.id) is not None:
            return versions_of.version_named(store, request.id, reader)
        return self.get(request.id)

    def links(self, memory: Memory) -> tuple[MemoryLink, ...]:
        """Return the memories connected with one, those this caller may read."""
        return links_of(self.services.store, memory, self.actor.scope)

    @use_case(requests.ReadProfile)
    def profile(self, _: requests.ReadProfile) -> tuple[ProfileLine, ...]:
        """Return what is known of the user and the project: one page, each line citing its fact."""
        return self.conversations.profile()

    def history(self, memory_id: str, **bounds: int | None) -> list[Memory]:
        """Return every version of one memory, oldest first, or the newest of it; see `Records.versions`."""
        return self.services.records.versions(memory_id, self.actor.scope, **bounds)

    @use_case(requests.ShowHistory)
    def steps(self, request: requests.ShowHistory) -> tuple[list[Memory], tuple[versions_of.Step, ...]]:
        """Return the newest versions and what changed; with `story` also of the memories that it superseded."""
        versions = self.history(request.id, below=request.before, most=request.limit + 1)  # one more to compare with
        if request.story:
            return versions[-request.limit :], versions_of.trajectory(self.services.store, request.id, self.actor.scope)
        return versions[-request.limit :], versions_of.history(versions)[-request.limit :]

    # --- L4, context, conversations --------------------------------------------------------------------------------

    @use_case(requests.FindOperations)
    def find_operations(self, request: requests.FindOperations) -> list[OperationPassage]:
        """Return passages of `.ai/operations/` that say how a task is done; empty when none fits."""
        return self.project.operations.find(request.task, limit=request.limit)

    @use_case(requests.BuildContext)
    def build_context(self, request: requests.BuildContext) -> BuiltContext:
        """Return the context for a task within a token budget, with its cost report."""
        return self.process.context_builder(self).build(request.task, request.budget_tokens)

    def context_within(self, request: requests.BuildContext, size: Callable[[BuiltContext], int]) -> BuiltContext:
        """Return the context such that the whole answer, as `size` counts it, keeps the budget."""
        return self.process.context_builder(self).build(request.task, request.budget_tokens, size)

    @use_case(requests.RememberConversation)
    def remember_conversation(self, request: requests.RememberConversation) -> tuple[list[CandidateOutcome], list[str]]:
        """Store what is worth keeping of a conversation; return what became of each part, and notes."""
        return self.conversations.remember(request)

    @use_case(requests.RememberConversation)
    def extract(self, request: requests.RememberConversation) -> tuple[Extracted, WriteMode, list[str]]:
        """Return what `remember_conversation` would store; nothing is written."""
        return self.conversations.extract(request)

    # --- changing what is there -----------------------------------------------------------------------------------

    @use_case(requests.ForgetMemory)
    def forget(self, request: requests.ForgetMemory) -> WriteOutcome:
        """Archive a memory: out of every search, restorable, nothing erased."""
        remote, forget = self.services.remote, self.writes.forget
        return forget(request) if remote is None else remote.forget(self.actor, request, forget)
