"""MemoryAnchor: one method a request, the only door for every front end.

A `MemoryAnchor` acts for one caller (`Actor`) in one project; it is cheap to make, so each request gets its own. It is
put together of parts (what reads, writes, curates, learns), which share the machinery of one process (`Services`) and
what one project adds (`Project`). A method takes its request, or the request's fields; domain values come out, which
front ends only show.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, cached_property

from memory_anchor import knowledge_requests as wanted
from memory_anchor import moving_requests as moved
from memory_anchor import requests as asks
from memory_anchor.context.assembly import AssembledContext, PromptAssembler
from memory_anchor.context.context import BuiltContext, ContextBuilder
from memory_anchor.context.context_reports import RecordedReport
from memory_anchor.curation import Conversations, Curation, ReviewItem
from memory_anchor.due import DUE, READ, DueFile, DueMemory, due_of
from memory_anchor.errors import BadInput
from memory_anchor.fields import Moment, use_case
from memory_anchor.ingest.profile import ProfileLine
from memory_anchor.ingest.remembering import Extracted, Remembered
from memory_anchor.json_values import Json
from memory_anchor.knowledge.catalogue import SourceState
from memory_anchor.knowledge.desk import KnowledgeDesk
from memory_anchor.knowledge.finding import Opened
from memory_anchor.knowledge.sources import Source
from memory_anchor.language.safety import cleaned
from memory_anchor.layers.links import MemoryLink, links_of
from memory_anchor.lore import Lore, ScannedLore
from memory_anchor.maintenance import Maintenance, Moving
from memory_anchor.model import (
    HISTORY,
    Actor,
    Constitution,
    Layer,
    Memory,
    MemoryType,
    OperationPassage,
    Proposal,
    RetrievedSnippet,
    SearchAnswer,
    WriteMode,
    WriteOutcome,
)
from memory_anchor.recall.fixes import Failure, fixes_for
from memory_anchor.recall.order import with_freshness
from memory_anchor.recall.relevance import STRONG, max_weak
from memory_anchor.recall.request import SearchRequest
from memory_anchor.recall.routing import asks_how, wants, with_identity, with_operations
from memory_anchor.recall.unprompted import mentioning, recall_for_prompt
from memory_anchor.services import Process, Project, Services
from memory_anchor.settings import AgentSettings
from memory_anchor.upkeep import history as past
from memory_anchor.upkeep.upkeep import JobReport
from memory_anchor.used_memories import USED_MEMORIES_FILE, UsedMemories
from memory_anchor.where import OneOf, Where
from memory_anchor.writes import Writes

TOPIC_KEYS = ("current_topic", "topic")
"""Keys of L1 under which an agent says what a conversation is about, the first one first."""
TOPIC_CHARS = 300


@dataclass(eq=False)
class MemoryAnchor:
    services: Services
    room: Project
    actor: Actor
    _context: Callable[..., ContextBuilder]
    _process: Process

    @cached_property
    def writes(self) -> Writes:
        return Writes(self.services, self.room, self.actor)

    @cached_property
    def conversations(self) -> Conversations:
        return Conversations(self.writes)

    @cached_property
    def curation(self) -> Curation:
        return Curation(self.writes)

    @cached_property
    def maintenance(self) -> Maintenance:
        return Maintenance(self.writes, self._process)

    @cached_property
    def moving(self) -> Moving:
        return Moving(self.writes, self._process)

    @cached_property
    def knowledge(self) -> KnowledgeDesk:
        services = self.services
        return KnowledgeDesk(
            services.knowledge,
            services.searcher,
            self.actor,
            author=self.writes.author,
            check_writable=self.writes.check_writable,
            monotonic=services.monotonic,
        )

    @cached_property
    def lore(self) -> Lore:
        return Lore(self.writes)

    @property
    def own(self) -> AgentSettings:
        """What the settings say about this agent."""
        return self.room.of_agent(self.actor.scope.agent)

    # --- layers ---------------------------------------------------------------------------------------------------

    def constitution(self) -> Constitution:
        """Return L0 whole: the approved text, with a warning where the file differs. Never fails."""
        return self.room.identity.load()

    @use_case(asks.ProposeChange)
    def propose(self, asked: asks.ProposeChange) -> Proposal:
        """File a wish to change L0; only humans can make it effective."""
        return self.writes.propose(asked)

    @use_case(asks.GetActiveContext)
    def active(self, asked: asks.GetActiveContext) -> dict[str, tuple[Json, datetime]]:
        """Return key -> (value, expires_at) of this conversation, or the one asked for (empty when it is gone)."""
        values = self.services.active.values(self.actor.scope)
        if asked.key is None:
            return values
        name = cleaned(asked.key).text
        return {name: values[name]} if name in values else {}

    @use_case(asks.SetActiveContext)
    def set_active(self, asked: asks.SetActiveContext) -> datetime:
        """Keep one JSON value in mind for this conversation; return when it expires."""
        return self.writes.set_active(asked)

    @use_case(asks.EndSession)
    def end_session(self, asked: asks.EndSession) -> list[WriteOutcome]:
        """Turn L1 and the summary into one L2 event; nothing in mind and no summary means nothing to write."""
        return self.writes.end_session(asked)

    @use_case(asks.LogEvent)
    def log_event(self, asked: asks.LogEvent) -> WriteOutcome:
        """Store what happened; by words at once, by meaning as soon as it is embedded."""
        remote = self.services.remote
        with self.services.saving.watched():
            done = self.writes.log_event(asked)
            return done if remote is None else remote.told(self.actor, "memory/log", asked, done)

    @use_case(asks.SearchEvents)
    def search_events(self, asked: asks.SearchEvents) -> list[Memory]:
        """Return events newest first, or best first with a query. `end` given as a date includes that day."""
        since, until = self._period(start=asked.start, end=asked.end)
        place = asked.where or None
        if not asked.query:
            return self.services.events.find(
                self.actor.scope, start=since, end=until, where=place, who=asked.who, limit=asked.limit
            )
        request = SearchRequest(
            query=asked.query,
            layers=(Layer.EVENT_LOG,),
            since=since,
            until=until,
            limit=asked.limit,
            where=place,
            who=asked.who,
        )
        found = self.services.searcher.search(self.actor, request)
        places = {snippet.id: place for place, snippet in enumerate(found.snippets)}
        if not places:
            return []
        current = Where((OneOf("id", tuple(places)),), (OneOf("state", (HISTORY,)),))
        events = self.services.store.find(Layer.EVENT_LOG.value, current, limit=len(places))
        return sorted(events, key=lambda event: places[event.id])

    @use_case(asks.SaveMemory)
    def save_memory(self, asked: asks.SaveMemory) -> WriteOutcome:
        """Store a memory in the layer its type belongs to; facts pass the gate and are reconciled."""
        remote = self.services.remote
        with self.services.saving.watched():
            done = self.writes.save_memory(asked)
            return done if remote is None else remote.told(self.actor, "memory/store", asked, done)

    @use_case(asks.PromoteToFact)
    def promote(self, asked: asks.PromoteToFact) -> WriteOutcome:
        """Turn an event into a fact: the fact cites the event, the event is marked promoted and stays."""
        return self.writes.promote(asked)

    # --- search ---------------------------------------------------------------------------------------------------

    @use_case(asks.SearchMemory)
    def search(self, asked: asks.SearchMemory) -> SearchAnswer:
        """Return what answers the query, strong ones first; what is weak is marked (`recall/relevance.py`)."""
        remote = self.services.remote
        return self._found_here(asked) if remote is None else remote.search(self.actor, asked, self._found_here)

    def _found_here(self, asked: asks.SearchMemory) -> SearchAnswer:
        request = self._search_request(asked)
        now = self.services.clock.now()
        searcher, entries = self.services.searcher, cache(self.room.identity.entries)
        ready: Callable[[], object] = entries if wants(request, Layer.IDENTITY_SCHEMA, signal=True) else lambda: None
        answer = searcher.search(self.actor, request, meanwhile=ready) if request.searched() else SearchAnswer(())
        self.services.recalled.note(answer.snippets)
        answer = with_freshness(answer, self.room.sources)
        self.services.usage.shown((snippet.layer, snippet.id) for snippet in answer.snippets)
        answer = with_operations(answer, request, self.room.operations.find, now=now)
        has_other = self.services.knowledge.is_used and request.is_unfiltered and not request.layers
        if has_other and all(one.weak for one in answer.snippets):
            joined = self.knowledge.joining(request.query)
            answer = replace(answer, snippets=(*joined, *answer.snippets)[: request.limit])
        if self.actor.project_dir and (note := self.services.project_note(self.actor.scope.project)):
            answer = replace(answer, notes=(*answer.notes, note))
        return with_identity(answer, request, entries, self.services.nearness.of, now=now)

    def brought_up(self, prompt: str, *, limit: int) -> list[RetrievedSnippet]:
        """Return what decides a prompt that asked memory nothing, of L2, L3 and L4; nothing where nothing does.

        With an embedder that `recall/unprompted.py` does not know, what a search calls strong.
        """
        searcher, request = self.services.searcher, SearchRequest(prompt, limit=limit, weak=0)
        found = recall_for_prompt(searcher, self.actor, request)
        answer = searcher.search(self.actor, request) if found is None else SearchAnswer(found.snippets)
        answer = with_freshness(answer, self.room.sources)
        self.services.usage.shown((snippet.layer, snippet.id) for snippet in answer.snippets)
        needs, find = None if found is None else found.needs > 0, self.room.operations.find
        joined = with_operations(answer, request, find, now=self.services.clock.now(), is_task=needs)
        never_used = UsedMemories(self.services.data_dir / USED_MEMORIES_FILE).never_used()
        lively = (one for one in joined.snippets if one.id not in never_used or (one.relevance or 0) >= STRONG)
        return [one for one in lively if not one.weak][:limit]

    def heeded(self) -> list[dict[str, Json]]:
        """Return how many memories hooks told agents, and how many these used, by layer and hook."""
        return UsedMemories(self.services.data_dir / USED_MEMORIES_FILE).table()

    def naming(self, names: Sequence[str], *, limit: int = 4) -> list[Memory]:
        """Return current memories that name one of these files, identifiers or phrases, the rarest first; by words."""
        return mentioning(self.services.searcher, self.actor, names, limit=limit)

    def mending(self, failure: Failure, kinds: Collection[MemoryType]) -> list[Memory]:
        """Return the stored memories of these types that mend a command which failed; nothing where none seems to."""
        found = fixes_for(self.services.searcher, self.actor, failure, kinds)
        self.services.usage.shown((one.layer, one.id) for one in found)
        return found

    @use_case(asks.ListDue)
    def due(self, asked: asks.ListDue) -> list[DueMemory]:
        """Return open tasks and dates that are due; with `done` that one is no more."""
        file, now = DueFile(self.services.data_dir / DUE), self.services.clock.now()
        if asked.done:
            self.writes.check_writable()
            file.note([self.services.records.read(asked.done, self.actor.scope).id], f"{now:%Y-%m-%d}", what="done")
        layers = (Layer.VERIFIED_FACT.value, Layer.EVENT_LOG.value)
        memories = [one for layer in layers for one in self.listing(layer=layer, limit=READ)]
        return due_of(memories, now=now, zone=self.actor.zone, done=file.done(), ahead_days=asked.days)

    @use_case(asks.WhyNot)
    def why_not(self, asked: asks.WhyNot) -> dict[str, Json]:
        """Return why a memory does or does not answer a query: found, reason, and its rank and signals when scored."""
        memory = self.services.records.read(asked.id, self.actor.scope)
        request = self._search_request(asks.SearchMemory.of(asked.query))
        return self.services.searcher.why_not(self.actor, request, memory)

    def _search_request(self, asked: asks.SearchMemory) -> SearchRequest:
        """Return the request as a search of this caller reads it, now."""
        now = self.services.clock.now()
        since, until = self._period(since=asked.since, until=asked.until)
        # From now on is what is believed now: the plain search, with all its evidence.
        then = asked.as_of.begins(self.actor.zone) if asked.as_of is not None else None
        own = self.room.of_agent(self.actor.scope.agent).retrieval
        return SearchRequest(
            query=asked.query,
            layers=asked.layers,
            types=asked.types,
            tags=asked.tags,
            since=since,
            until=until,
            as_of=then if then is not None and then < now else None,
            limit=asked.limit,
            weak=max_weak(asked.limit),
            include_pending=asked.include_pending,
            detail=asked.detail,
            topic=self._topic() if self.services.settings.retrieval.lens else "",
            before=self.services.said.before(self.actor.scope, asked.query),
            counts_use=own.apply_frequency_boost,
            counts_age=own.apply_time_decay,
        )

    def _period(self, **ends: Moment | None) -> tuple[datetime | None, datetime | None]:
        """Return the two ends of a range by their names; a date as its end includes that day. Raises BadInput."""
        (first, begins), (last, ends_at) = ends.items()
        since = begins.begins(self.actor.zone) if begins is not None else None
        until = ends_at.ends(self.actor.zone) if ends_at is not None else None
        if begins is not None and ends_at is not None and since is not None and until is not None and since >= until:
            raise BadInput(
                f"{first} {begins.said!r} is after {last} {ends_at.said!r}; allowed is {first} before {last}"
            )
        return since, until

    def _topic(self) -> str:
        """Return what this conversation says it is about, "" for nothing."""
        values = self.services.active.values(self.actor.scope)
        told = next((values[key][0] for key in TOPIC_KEYS if key in values), "")
        return told[:TOPIC_CHARS] if isinstance(told, str) else ""

    @use_case(asks.GetMemory)
    def get(self, asked: asks.GetMemory) -> Memory:
        """Return one memory, its citations checked against the project; fetching it counts as a use."""
        memory = self.services.records.read(asked.id, self.actor.scope)
        self.services.usage.used(memory)
        if self.room.sources is None:
            return memory
        return replace(memory, citations=self.room.sources.with_freshness(memory.citations))

    @use_case(asks.ShowMemory)
    def show(self, asked: asks.ShowMemory) -> Memory:
        """Return one memory: as it is, as it was believed at `as_of`, or one version of it (`ID@2`)."""
        store, reader = self.services.store, self.actor.scope
        if asked.as_of is not None:
            return past.as_of(store, asked.id, asked.as_of.begins(self.actor.zone), reader)
        if past.parse_version_id(asked.id) is not None:
            return past.version_named(store, asked.id, reader)
        return self.get(asked.id)

    def links(self, memory: Memory) -> tuple[MemoryLink, ...]:
        """Return what a memory is connected with, as far as this caller may read it."""
        return links_of(self.services.store, memory, self.actor.scope)

    @use_case(asks.ReadProfile)
    def profile(self, _: asks.ReadProfile) -> tuple[ProfileLine, ...]:
        """Return what is known of the user and the project: one page, each line citing its fact."""
        return self.conversations.profile()

    def history(self, memory_id: str) -> list[Memory]:
        """Return every version of one memory, oldest first."""
        return self.services.records.versions(memory_id, self.actor.scope)

    @use_case(asks.ShowHistory)
    def steps(self, asked: asks.ShowHistory) -> tuple[list[Memory], tuple[past.Step, ...]]:
        """Return every version and what changed; with `story` also in those memories that it took the place of."""
        versions = self.history(asked.id)
        if asked.story:
            return versions, past.trajectory(self.services.store, versions[0].id, self.actor.scope)
        return versions, past.history(versions)

    # --- L4, context, conversations --------------------------------------------------------------------------------

    @use_case(asks.FindOperations)
    def find_operations(self, asked: asks.FindOperations) -> list[OperationPassage]:
        """Return how the project says a task is done; empty when nothing fits."""
        return self.room.operations.find(asked.task, limit=asked.limit, waits=asks_how(asked.task))

    @use_case(asks.BuildContext)
    def build_context(self, asked: asks.BuildContext) -> BuiltContext:
        """Return what an agent should know for a task, within a budget, with what it cost."""
        return self._context(self).build(asked.task, asked.budget_tokens)

    def context_within(self, asked: asks.BuildContext, size: Callable[[BuiltContext], int]) -> BuiltContext:
        """Return it with the whole answer, as `size` counts it, within the budget."""
        return self._context(self).build(asked.task, asked.budget_tokens, size)

    @use_case(asks.AssemblePrompt)
    def assemble(self, asked: asks.AssemblePrompt) -> AssembledContext:
        """Return a whole prompt made to fit its window, with its context and what it cost. Raises BadInput."""
        return PromptAssembler(self._context(self)).assemble(
            asked.messages,
            asked.tools,
            context_window_tokens=asked.context_window_tokens,
            reserved_output_tokens=asked.reserved_output_tokens,
            task=asked.task,
            strict_tools=asked.strict_tools,
        )

    @use_case(asks.RememberConversation)
    def remember_conversation(self, asked: asks.RememberConversation) -> tuple[list[Remembered], list[str]]:
        """Store what is worth keeping of a conversation; return what became of each part, and notes."""
        return self.conversations.remember(asked)

    @use_case(asks.RememberConversation)
    def found_in(self, asked: asks.RememberConversation) -> tuple[Extracted, WriteMode, list[str]]:
        """Return what `remember_conversation` would store; nothing is written."""
        return self.conversations.found_in(asked)

    # --- changing what is there -----------------------------------------------------------------------------------

    @use_case(asks.ForgetMemory)
    def forget(self, asked: asks.ForgetMemory) -> WriteOutcome:
        """Archive a memory: out of every search, restorable, nothing erased."""
        remote, forget = self.services.remote, self.writes.forget
        return forget(asked) if remote is None else remote.forgotten(self.actor, asked, forget)

    @use_case(asks.ListMemories)
    def listing(self, asked: asks.ListMemories) -> list[Memory]:
        """Return readable memories, newest first; without a status everything but archived and superseded ones."""
        return self.curation.listing(asked)

    @use_case(asks.EditMemory)
    def edit(self, asked: asks.EditMemory) -> WriteOutcome:
        """Write a new version with another text; the old one stays in its history."""
        return self.curation.edit(asked)

    @use_case(asks.JudgeMemory)
    def judge(self, asked: asks.JudgeMemory) -> WriteOutcome:
        """Say how far a memory holds; a refuted idea stays findable as a warning."""
        return self.curation.judge(asked)

    @use_case(asks.PinMemory)
    def pin(self, asked: asks.PinMemory) -> WriteOutcome:
        """Pin a memory, so that no job forgets it."""
        return self.curation.pin(asked.id, pinned=True)

    @use_case(asks.UnpinMemory)
    def unpin(self, asked: asks.UnpinMemory) -> WriteOutcome:
        """Let a pinned memory go again."""
        return self.curation.pin(asked.id, pinned=False)

    @use_case(asks.RestoreMemory)
    def restore(self, asked: asks.RestoreMemory) -> WriteOutcome:
        """Bring an archived memory back into every search; a superseded one must be settled instead."""
        return self.curation.restore(asked.id)

    @use_case(asks.ReviewInbox)
    def inbox(self, asked: asks.ReviewInbox) -> list[ReviewItem]:
        """Return what waits for a decision: pending memories, then contradictions, oldest first."""
        return self.curation.inbox(asked.limit)

    @use_case(asks.ReviewSides)
    def sides(self, asked: asks.ReviewSides) -> list[Memory]:
        """Return what a decision on this memory is about: itself, then what it stands against."""
        return self.curation.sides(asked.id)

    @use_case(asks.AcceptPending)
    def accept(self, asked: asks.AcceptPending) -> WriteOutcome:
        """Let a pending memory in (humans only), with another text when `content` is given."""
        return self.curation.accept(asked)

    @use_case(asks.RejectPending)
    def reject(self, asked: asks.RejectPending) -> WriteOutcome:
        """Archive a pending memory (humans only)."""
        return self.curation.reject(asked)

    @use_case(asks.ResolveConflict)
    def settle(self, asked: asks.ResolveConflict) -> WriteOutcome:
        """End a contradiction: keep_new, keep_old or merge."""
        return self.curation.settle(asked)

    # --- looking after --------------------------------------------------------------------------------------------

    @use_case(asks.PauseAgents)
    def pause(self, asked: asks.PauseAgents) -> dict[str, Json]:
        """Stop agents from writing, or let them go on, which only a human does."""
        return self.maintenance.pause(asked)

    @use_case(asks.Undo)
    def undo(self, asked: asks.Undo) -> dict[str, Json]:
        """Return the plan of what is given back, carried out with `apply`."""
        return self.maintenance.undo(asked)

    @use_case(asks.PreviewPurge)
    def preview_purge(self, asked: asks.PreviewPurge) -> dict[str, Json]:
        """Return the memories that a purge would erase; for a human alone."""
        return self.maintenance.preview_purge(asked)

    @use_case(asks.Purge)
    def purge(self, asked: asks.Purge) -> dict[str, Json]:
        """Erase memories for good by id or by a text: a human's call alone."""
        return self.maintenance.purge(asked)

    @use_case(asks.RunJob)
    def run_job(self, asked: asks.RunJob) -> JobReport:
        """Run one job now, or only say what it would do."""
        return self.maintenance.run_job(asked)

    @use_case(asks.SwitchJobs)
    def switch_jobs(self, asked: asks.SwitchJobs) -> dict[str, Json]:
        """Keep the engine from running jobs by itself, or let it again."""
        return self.maintenance.switch_jobs(asked)

    @use_case(asks.ReadReport)
    def report(self, asked: asks.ReadReport) -> RecordedReport:
        """Return a context's report without what this reader may not see of it."""
        return self.maintenance.report(asked)

    @use_case(asks.ReindexStore)
    def reindex(self, asked: asks.ReindexStore) -> dict[str, Json]:
        """Go on with making words, indexes and vectors anew, for a moment."""
        return self.maintenance.reindex(asked)

    @use_case(moved.ListProjects)
    def projects(self, asked: moved.ListProjects) -> dict[str, Json]:
        """Return every project, and which one it may be."""
        return self.maintenance.projects(asked)

    @use_case(moved.LinkProject)
    def link_project(self, asked: moved.LinkProject) -> dict[str, Json]:
        """Make a folder part of a project."""
        return self.maintenance.link(asked)

    @use_case(moved.MergeProjects)
    def merge_projects(self, asked: moved.MergeProjects) -> dict[str, Json]:
        """Move every memory of one project to another, or back."""
        return self.maintenance.merge(asked)

    @use_case(asks.AddLorebook)
    def add_lorebook(self, asked: asks.AddLorebook) -> dict[str, Json]:
        """Keep a lorebook for this project; return what was read of it, and what was left out."""
        return self.lore.add(asked)

    @use_case(asks.ListLorebooks)
    def lorebooks(self, _: asks.ListLorebooks) -> dict[str, Json]:
        """Return the lorebooks of this project."""
        return self.lore.books()

    @use_case(asks.ShowLorebook)
    def show_lorebook(self, asked: asks.ShowLorebook) -> dict[str, Json]:
        """Return a lorebook's entries and problems."""
        return self.lore.show(asked)

    @use_case(asks.RemoveLorebook)
    def remove_lorebook(self, asked: asks.RemoveLorebook) -> dict[str, Json]:
        """Erase a lorebook and the timed effects of its entries."""
        return self.lore.remove(asked.name)

    @use_case(asks.ExportLorebook)
    def export_lorebook(self, asked: asks.ExportLorebook) -> dict[str, Json]:
        """Return a lorebook's bytes as they came, in base64."""
        return self.lore.export(asked)

    @use_case(asks.ScanLorebook)
    def scan_lorebook(self, asked: asks.ScanLorebook) -> ScannedLore:
        """Return what lorebooks say to messages, with why each entry is in or out."""
        return self.lore.scan(asked)

    @use_case(asks.LorebookReport)
    def lorebook_report(self, asked: asks.LorebookReport) -> dict[str, Json]:
        """Return the last scan of a conversation that was kept."""
        return self.lore.report(asked)

    @use_case(moved.BeginExport)
    def begin_export(self, asked: moved.BeginExport) -> dict[str, Json]:
        """Return the instant an export shows, and the caller's project."""
        return self.moving.begin_export(asked)

    @use_case(moved.ExportPage)
    def export_page(self, asked: moved.ExportPage) -> dict[str, Json]:
        """Return the next versions that this caller may read."""
        return self.moving.export_page(asked)

    @use_case(moved.ImportProjects)
    def import_projects(self, asked: moved.ImportProjects) -> dict[str, Json]:
        """Learn the projects of an export; return which go by another id here."""
        return self.moving.import_projects(asked)

    @use_case(moved.ImportLines)
    def import_lines(self, asked: moved.ImportLines) -> dict[str, Json]:
        """Take in lines of an export; what cannot be taken is told by its line."""
        return self.moving.import_lines(asked)

    # --- knowledge --------------------------------------------------------------------------------------------------

    @use_case(wanted.KnowledgeSearch)
    def knowledge_search(self, asked: wanted.KnowledgeSearch) -> list[RetrievedSnippet]:
        """Return passages of documents, code and history that answer, with their citations."""
        return self.knowledge.search(asked)

    @use_case(wanted.KnowledgeGet)
    def knowledge_get(self, asked: wanted.KnowledgeGet) -> Opened:
        """Open a citation."""
        return self.knowledge.open(asked)

    @use_case(wanted.KnowledgeAdd)
    def knowledge_add(self, asked: wanted.KnowledgeAdd) -> Source:
        """Add a source of knowledge."""
        return self.knowledge.add(asked)

    @use_case(wanted.KnowledgePush)
    def knowledge_push(self, asked: wanted.KnowledgePush) -> Source:
        """Keep a document that was pushed."""
        return self.knowledge.push(asked)

    @use_case(wanted.KnowledgeSources)
    def knowledge_sources(self, _: wanted.KnowledgeSources) -> list[SourceState]:
        """Return the sources there are."""
        return self.knowledge.sources()

    @use_case(wanted.KnowledgeSync)
    def knowledge_sync(self, asked: wanted.KnowledgeSync) -> dict[str, Json]:
        """Read what changed, for a moment."""
        return self.knowledge.sync(asked)

    @use_case(wanted.KnowledgeRemove)
    def knowledge_remove(self, asked: wanted.KnowledgeRemove) -> dict[str, Json]:
        """Erase a source and all that came of it."""
        return self.lore.remove(asked.source) if self.lore.has(asked.source) else self.knowledge.remove(asked)
