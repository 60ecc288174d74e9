"""Core: one process's memory, over whatever adapters it was given.

It serves every project, makes a `MemoryAnchor` for each request, embeds in the background, runs jobs and ends
conversations. `app` decides which adapter stands behind which port.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from cachetools import LRUCache

from memory_anchor.adapters.git import WorkingTree
from memory_anchor.adapters.projects import DEFAULT, Projects
from memory_anchor.adapters.system import Ids, new_token
from memory_anchor.admin.checks import repair_at_start
from memory_anchor.base.files import refresh, remove_durably, write_atomic
from memory_anchor.base.idempotency import FirstAnswers
from memory_anchor.base.json_values import Json
from memory_anchor.base.parallel_calls import call_circuit
from memory_anchor.base.pausing import pause_of
from memory_anchor.base.quarantine import Quarantine
from memory_anchor.base.request_gate import RequestGate, in_background
from memory_anchor.context.context import ContextBuilder, ContextSources
from memory_anchor.context.context_reports import ContextReports, owner_of
from memory_anchor.domain.errors import Refused, Unavailable
from memory_anchor.domain.freshness import FreshnessChecker
from memory_anchor.domain.model import (
    COLLECTIONS,
    SEARCHABLE_STATES,
    Actor,
    Caller,
    Layer,
    Memory,
    MemoryType,
    Origin,
    RetrievedSnippet,
    Scope,
    SearchAnswer,
    Status,
    audiences,
)
from memory_anchor.domain.ports import (
    Clock,
    Embedder,
    Entry,
    LanguageModel,
    Reranker,
    Snapshot,
)
from memory_anchor.domain.requests import checks
from memory_anchor.domain.versions import Draft
from memory_anchor.domain.where import OneOf, Where
from memory_anchor.extensions import installed
from memory_anchor.identity.keys import Approver
from memory_anchor.identity.opening import identity_of, rules_folder
from memory_anchor.identity.signed_requests import Challenges, SignedCall
from memory_anchor.ingest.conversation_learning import ConversationLearner, EventReader
from memory_anchor.ingest.model_calls import decide_with_model
from memory_anchor.ingest.reconcile import decide
from memory_anchor.ingest.writing import FactWriter
from memory_anchor.language.indexing import embedded_text
from memory_anchor.layers.active_context import ActiveContext
from memory_anchor.layers.event_log import EventLog
from memory_anchor.layers.operational_knowledge import OperationalKnowledge
from memory_anchor.layers.records import Records
from memory_anchor.recall.cooccurrence import TagNeighbours
from memory_anchor.recall.embedding import awaited_text
from memory_anchor.recall.embedding_queue import EmbeddingThread
from memory_anchor.recall.index import Index
from memory_anchor.recall.nearness import Nearness
from memory_anchor.recall.query_embedder import QueryEmbedder
from memory_anchor.recall.relevance import STRONG
from memory_anchor.recall.search import Searcher
from memory_anchor.recall.snippets import RankedMemory, snippet
from memory_anchor.runtime.wire import VERSION
from memory_anchor.settings import API_EMBEDDERS, Settings, with_project_file
from memory_anchor.store.audit_rows import SqlAudit
from memory_anchor.store.database import Sqlite, UnitLock
from memory_anchor.store.record_rows import SqlRecords
from memory_anchor.store.shared_files import SharedFiles, is_served_by_many
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.upkeep.disagreements import RecalledTogether
from memory_anchor.upkeep.job_kit import Upkeep
from memory_anchor.upkeep.job_state import load_state, state_record
from memory_anchor.upkeep.jobs import SETTLE_S, Scheduler
from memory_anchor.upkeep.leases import JOBS, Lease, lease_of
from memory_anchor.upkeep.registry import JobCalls, all_jobs, with_interval
from memory_anchor.upkeep.settling import TAG_STATE
from memory_anchor.upkeep.statistics import UsageBuffer, statistics
from memory_anchor.use_cases import services
from memory_anchor.use_cases.maintenance import merges_of
from memory_anchor.use_cases.memory import MemoryAnchor
from memory_anchor.use_cases.services import Extensions, Project, Services
from memory_anchor.use_cases.writes import session_text

if TYPE_CHECKING:
    from memory_anchor.domain.ports import Matrix

log = logging.getLogger("memory_anchor")
PROJECTS_KEPT = 64
NEIGHBOURS = 8
JOBS_OFF = "jobs-off"
EMBED_BATCH = 16
NAME_SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """What stands behind the ports of one process; `app` makes them from the settings.

    local, prompt: embedders beside one behind an API, see `query_embedder`. model_named: a model by its name (default:
    always `model`). test_clock: this store was made for checks, which may move its time. snapshot, rows: see
    `recall.index` and `recall.nearness`.
    """

    store: SqlStore
    embedder: Embedder | None
    model: LanguageModel | None
    clock: Clock
    reranker: Reranker | None = None
    local: Embedder | None = None
    prompt: Embedder | None = None
    model_named: Callable[[str], LanguageModel | None] | None = None
    test_clock: bool = False
    snapshot: Snapshot | None = None
    rows: Snapshot | None = None


class Core:
    """One process's memory. Thread-safe; `close` drains it.

    late: extensions begin when they are asked for, as a command needs that makes one call.
    """

    def __init__(self, settings: Settings, *, data_dir: Path, adapters: Adapters, late: bool = False) -> None:
        self.settings, self.data_dir, self.clock = settings, data_dir, adapters.clock
        self.test_clock = adapters.test_clock
        self.started_at = self.clock.now()
        self._closed = False
        self.new_id = Ids(self.clock).new
        self._store, self._database = adapters.store, adapters.store.database
        self.records = SqlRecords(self._database, self.clock.now)
        self.audit = SqlAudit(self._database)
        by_many = is_served_by_many(self.records)
        self._shared = SharedFiles(data_dir, self.records, self._files_changed) if by_many else None
        if self._shared is not None:
            self._shared.begin()
        self.projects = Projects(data_dir / "projects.json", self.new_id, joined=self._joined)
        self.reports = ContextReports(data_dir / "contexts", now=self.clock.now, new_id=self.new_id)
        self._challenges = Challenges(new_token)
        self._circuit = call_circuit(time.monotonic)
        self.foreground = RequestGate(time.monotonic)
        self.quarantine = Quarantine(data_dir, release=VERSION, run=self.new_id())
        # Loaded before it is first waited for; an API has nothing to load.
        preloads = adapters.local if settings.embedder.kind in API_EMBEDDERS else adapters.embedder
        self._embedding = EmbeddingThread(self._embed_some, preloads, before=self._finish_merges)
        made_here, wake = adapters.local or adapters.embedder, self._embedding.wake
        self.nearness = Nearness(made_here, wake, self.quarantine, adapters.rows)
        self.services = self._make_services(adapters)
        self.running = self.services.extensions
        self.upkeep = self._make_upkeep(adapters)
        repair_at_start(self.upkeep, data_dir, self.clock.now())
        usage, index, invalidate = self.services.usage, self.services.searcher.index, self.services.invalidate_caches
        hours = {str(job): every for job, every in settings.lifecycle.intervals_h.items()}
        calls = JobCalls(usage.flush, index.embed_pending, invalidate)
        self.scheduler = Scheduler(
            [with_interval(job, hours) for job in all_jobs(calls)],
            self.upkeep,
            records=self.records,
            lease=self.lease(JOBS),
            more=lambda: [with_interval(job, hours) for one in self.running.values() for job in one.jobs],
        )
        if not late:
            len(self.running)  # all begin
        self._projects: LRUCache[tuple[str, str], tuple[int, Project]] = LRUCache(PROJECTS_KEPT)
        self._projects_lock = threading.Lock()

    # --- composition ---------------------------------------------------------------------------------------------

    def _files_changed(self, names: set[str]) -> None:
        if "projects.json" in names:
            self.projects.file_changed()

    def _writes_seen(self) -> Callable[[], int] | None:
        """Return what counts the writes to the store, None where others write to it too."""
        return self._database.rows_written if isinstance(self._database, Sqlite) else None

    def lease(self, name: str) -> Lease:
        """Return the right to do what one of several processes on a memory does: run jobs, work off batches."""
        return lease_of(self._database, name)

    def _make_services(self, adapters: Adapters) -> Services:
        """Return what every project of this process shares."""
        settings, store, embedder = self.settings, adapters.store, adapters.embedder
        tags = TagNeighbours(lambda: load_state(self.records, TAG_STATE))
        meaning = QueryEmbedder(embedder, local=adapters.local, prompt=adapters.prompt)
        searcher = self._make_searcher(adapters, meaning, tags)
        records = Records(
            store,
            self.clock,
            self.audit,
            new_id=self.new_id,
            entry_of=searcher.index.entry_of,
            on_write=self._stored,
            lock=UnitLock(self._database),
            written=self._writes_seen(),
        )
        policy = services.policy(settings)
        by_rules = partial(decide, policy=policy)
        ask_model = (
            partial(decide_with_model, model=adapters.model, policy=policy, deadline_s=settings.llm.deadline_s)
            if adapters.model
            else None
        )
        events = EventLog(records)
        facts = FactWriter(records, services.gate(settings), self._neighbours, by_rules, ask_model=ask_model)
        recalled = RecalledTogether(
            *(store, searcher.alike, by_rules),
            ask_model=ask_model,
            near=self._near_stored,
            on_news=lambda: self.scheduler.queue("reconsolidate"),
        )
        return Services(
            settings=settings,
            data_dir=self.data_dir,
            store=store,
            embedder=embedder,
            local=adapters.local,
            model=adapters.model,
            model_named=adapters.model_named or (lambda _: adapters.model),
            clock=self.clock,
            audit=self.audit,
            records=records,
            events=events,
            facts=facts,
            learner=ConversationLearner(facts, events, self._message_rows, self.nearness.embedder),
            active=ActiveContext(self.clock, self._end_evicted),
            searcher=searcher,
            usage=UsageBuffer(store, self.clock, records.lock, records=self.records),
            nearness=self.nearness,
            paused=self._paused,
            monotonic=time.monotonic,
            activation=searcher.activation,
            tag_neighbours=tags,
            recalled_together=recalled,
            answers=FirstAnswers(self.records),
            project_note=self.projects.note,
            extensions=Extensions(lambda: {one.name: one.start(self) for one in installed() if one.start is not None}),
        )

    def _make_searcher(self, adapters: Adapters, meaning: QueryEmbedder, tags: TagNeighbours) -> Searcher:
        retrieval, wait = self.settings.retrieval, self.foreground.wait_until_quiet
        return Searcher(
            Index(adapters.store, meaning, wait, adapters.snapshot, self.quarantine),
            self.clock,
            services.search_options(retrieval),
            cache_ttl_s=retrieval.cache_ttl_s,
            reranker=adapters.reranker,
            rerank_deadline_s=retrieval.reranker_deadline_s,
            activation=services.activation(self.settings),
            tags=tags,
            variants=services.variants(self.settings),
        )

    def _make_upkeep(self, adapters: Adapters) -> Upkeep:
        shared, settings, store = self.services, self.settings, adapters.store
        reader = EventReader(shared.learner, self._message_rows, lambda: services.gate(settings))
        return Upkeep(
            store,
            self.audit,
            shared.records.lock,
            on_write=self._stored,
            model=adapters.model,
            settings=settings,
            asks_user=services.asks_user(settings),
            activation=shared.activation,
            records=self.records,
            tags=shared.tag_neighbours,
            recalled=shared.recalled_together,
            yield_to_requests=self.foreground.wait_until_quiet,
            segment=reader.topics,
            extract=reader.save_facts,
            ended_at=shared.active.ended_at,
        )

    # --- requests ------------------------------------------------------------------------------------------------

    def anchor(self, actor: Actor) -> MemoryAnchor:
        """Return the `MemoryAnchor` of one caller: the project by its folder, missing names from the settings."""
        refresh(self.data_dir)
        project_id, root = self.projects.of(actor.project_dir)
        project_id = checks.project_id(actor.project or self.settings.scope.project or project_id)
        name = actor.scope.agent or self.settings.scope.agent or "agent"
        agent_settings = self.settings.agents.get(name)
        scope = replace(
            actor.scope,
            account=actor.scope.account or self.settings.scope.account,
            user=actor.scope.user or self.settings.scope.user,
            agent=name,
            project=project_id,
            collection=agent_settings.collection if agent_settings is not None else "",
            across=self._across(project_id) if self.settings.scope.agent_across_projects else (),
        )
        actor = replace(actor, scope=scope, project_dir=root)
        home = rules_folder(scope, root, local_account=self.settings.scope.account)
        project = self.project_for(home, root, scope.account)
        return MemoryAnchor(self.services, project, actor, self)

    def _joined(self, project_id: str, folder: str, why: str) -> None:
        """Record that a folder belongs to a known project and now uses its memory."""
        record = {"project": project_id, "folder": folder, "why": why}
        self.audit.append("project.joined", record, by="system", at=self.clock.now())

    def _across(self, project_id: str) -> tuple[str, ...]:
        """Return the other projects whose agent memories a caller reads, by the user's word: all."""
        return tuple(sorted({*self.projects.all(), DEFAULT} - {project_id}))

    def project_for(self, project_id: str, root: str, account: str) -> Project:
        """Return the project of this id (`rules_folder`), read again when its settings file changes.

        account: the caller's; a folder of this machine is its own account's.
        """
        stamp = 0
        if root:
            with suppress(OSError):
                stamp = (Path(root) / "memory-anchor.yaml").stat().st_mtime_ns
        with self._projects_lock:
            cached = self._projects.get((project_id, root))
            if cached is not None and cached[0] == stamp:
                return cached[1]
            settings = with_project_file(self.settings, root)
            project = Project(
                project_id=project_id,
                root=root,
                settings=settings,
                gate=services.gate(settings),
                identity=identity_of(
                    *(settings, project_id, root),
                    data_dir=self.data_dir,
                    clock=self.clock,
                    audit=self.audit,
                    account=self.settings.scope.account if root else account,
                ),
                operations=OperationalKnowledge(Path(root) if root else None, self.quarantine, self.nearness),
                sources=FreshnessChecker(WorkingTree(Path(root))) if root else None,
            )
            self._projects[(project_id, root)] = (stamp, project)
            return project

    def challenge(self, actor: Actor) -> dict[str, str]:
        """Return the challenge that a human's terminal signs with its next request."""
        scope = self.anchor(actor).actor.scope
        return {"challenge": self._challenges.issue(self.clock.now(), account=scope.account, project=scope.project)}

    def as_human(self, actor: Actor, signed: SignedCall, *, approver: Approver | None = None) -> Actor:
        """Return the actor as a human who signed this very call; the challenge is used up.

        approver: who may sign; None for the one here.
        Raises Refused: it is not signed so, or the key here is not the installation's.
        """
        anchor = self.anchor(actor)
        identity, scope, now = anchor.project.identity, anchor.actor.scope, self.clock.now()
        if about_key := identity.key_warning():
            raise Refused(about_key)
        approver = approver or identity.approver()
        try:
            self._challenges.check(signed, account=scope.account, project=scope.project, approver=approver, now=now)
        except Refused:
            record = {"call": signed.call[:NAME_SHOWN]}
            self.audit.append("human.refused", record, by=anchor.writes.author, at=now)
            raise
        return replace(actor, caller=Caller.HUMAN)

    # --- conversations -------------------------------------------------------------------------------------------

    def end_conversation(self, actor: Actor) -> None:
        """Turn a conversation's L1 into one event; an empty one writes nothing."""
        scope = self.anchor(actor).actor.scope
        with self.services.active.take(scope) as values:
            self._log_ended(scope, values, actor)

    def has_live_context(self) -> bool:
        return bool(self.services.active.scopes())

    def _end_evicted(self, scope: Scope, values: dict[str, Json]) -> None:
        self._log_ended(scope, values, Actor(Caller.SYSTEM, scope))

    def _log_ended(self, scope: Scope, values: Mapping[str, Json], actor: Actor) -> None:
        if content := session_text("", values):
            draft = Draft(
                content,
                Layer.EVENT_LOG,
                MemoryType.EVENT,
                when=self.clock.now(),
                key="session ended",
                origin=Origin.SYSTEM,
            )
            self.services.events.log(replace(actor, caller=Caller.SYSTEM, scope=scope, nonce=""), draft)

    # --- background ----------------------------------------------------------------------------------------------

    def start(self, *, settled: Callable[[], None] | None = None) -> None:
        """Embed and run due jobs, each on a background thread, until `close`.

        settled: called once, when what a search needs is in memory and nothing is left to embed.
        """
        self._embedding.start(settled)
        for extension in self.running.values():
            extension.begin()
        if not (self.data_dir / JOBS_OFF).exists():
            self.scheduler.start(self.clock, settle_s=SETTLE_S)

    def wake(self) -> None:
        """Let the background thread look for work now."""
        self._embedding.wake()

    def enable_jobs(self, on: bool) -> None:
        """Switch due jobs on or off; off, a job runs only when started by name. Kept over restarts."""
        if on:
            remove_durably(self.data_dir / JOBS_OFF)
            self.scheduler.start(self.clock)
        else:
            write_atomic(self.data_dir / JOBS_OFF, b"")
            self.scheduler.stop()

    def close(self) -> None:
        """End every conversation, write what is buffered, close the store. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._embedding.end()
        for extension in self.running.begun.values():
            extension.end()
        self.scheduler.stop()
        self._embedding.join()
        for scope in self.services.active.scopes():
            try:
                with self.services.active.take(scope) as values:
                    self._log_ended(scope, values, Actor(Caller.SYSTEM, scope))
            except Exception:  # one conversation must not keep the others, or the store, from being written
                log.exception("the active context of a conversation could not be logged")
        self.services.usage.flush()
        self.services.searcher.index.save()
        self.nearness.save()
        for extension in self.running.begun.values():
            extension.close()
        self.audit.close()
        if self._shared is not None:
            self._shared.end()
        self.services.store.close()
        self.quarantine.close()

    def clear_tags(self) -> None:
        """Forget which tags occur together until the job counts them again: tags of erased memories must not stay."""
        self.services.tag_neighbours.clear()
        self.records.delete(state_record(TAG_STATE), before=None)

    def _embed_some(self) -> int:
        with in_background():
            embedded = self.nearness.embed_waiting(EMBED_BATCH)
            embedded += self.services.searcher.index.embed_pending(EMBED_BATCH)
        wait = self.foreground.wait_until_quiet
        return embedded or next((n for one in self.running.values() if (n := one.idle(wait))), 0)

    def _finish_merges(self) -> None:
        """Finish merges of projects that a crash cut off."""
        merges = merges_of(self.services)
        for merge in merges.unfinished():
            self.projects.merge(merge.source, merge.target)
            moved = merges.carry_out(merge)
            self.services.invalidate_caches()
            log.warning("merging %s into %s was cut off; %d versions were left", merge.source, merge.target, moved)

    def _stored(self, entries: Sequence[Entry]) -> None:
        """Update searches with what was stored, once it is committed."""
        follow: list[Callable[[], None]] = [partial(self._show, entry) for entry in entries]
        self._database.afterwards(*follow, self.services.recalled_together.changed)

    def _show(self, entry: Entry) -> None:
        if self.services.searcher.index.note_written(entry):
            self._embedding.wake()
        memory = entry.memory
        is_new = memory.version == 1 and memory.layer is Layer.VERIFIED_FACT and memory.state in SEARCHABLE_STATES
        if is_new and not entry.vectors and self.services.embedder is not None:
            self.services.recalled_together.note_unembedded(memory.id)

    # --- parts ---------------------------------------------------------------------------------------------------

    def _neighbours(self, actor: Actor, memory: Memory) -> Sequence[tuple[Memory, float]]:
        """Return live facts near a new one, whose row was embedded a moment ago and is still cached."""
        text = awaited_text(embedded_text(memory))
        try:
            return self.services.searcher.similar(actor, text, layer=Layer.VERIFIED_FACT, limit=NEIGHBOURS)
        except Unavailable:  # stored, but its neighbours are unknown
            return []

    def _near_stored(self, memory: Memory) -> Sequence[Memory]:
        """Return the live facts near a stored one."""
        near = self._neighbours(Actor(Caller.SYSTEM, memory.scope), memory)
        return [other for other, _ in near if other.id != memory.id]

    def _message_rows(self, texts: Sequence[str]) -> Matrix | None:
        """Return centred rows of a conversation's messages, None when nothing can embed now."""
        try:
            return self.nearness.rows(texts)
        except Unavailable:
            return None

    def _paused(self) -> bool:
        return self.settings.paused or pause_of(self.data_dir, self.clock.now()) is not None

    def context_builder(self, anchor: MemoryAnchor) -> ContextBuilder:
        """Return a builder that reads as this caller, in this caller's zone."""

        def search(query: str, layers: Sequence[Layer], limit: int) -> SearchAnswer:
            answer: SearchAnswer = anchor.search(query, layers=layers, limit=limit)
            likely = (s for s in answer.snippets if s.linked or not s.weak or (s.relevance or 0.0) >= STRONG)
            return replace(answer, snippets=tuple(likely))

        def recent(limit: int) -> Sequence[RetrievedSnippet]:
            reader, now, activation = anchor.actor.scope, self.clock.now(), self.upkeep.activation
            shown = partial(snippet, reader=reader, now=now, detail=False, activation=activation)
            return [shown(RankedMemory(event, 0.0, 0)) for event in self.services.events.recent(reader, limit)]

        sources = ContextSources(
            constitution=anchor.constitution,
            search=search,
            recent_events=recent,
            operations=lambda task, limit: anchor.find_operations(task, limit=limit),
            active_context=lambda: {key: value for key, (value, _) in anchor.active().items()},
            now=lambda: self.clock.now().astimezone(ZoneInfo(anchor.actor.zone)),
            cache=self.services.searcher.cache_counts,
            record=partial(self.reports.record, owner=owner_of(anchor.actor.scope)),
        )
        for extension in self.running.values():
            sources = extension.context(anchor, sources)
        return ContextBuilder(sources, anchor.project.settings.budget, circuit=self._circuit, monotonic=time.monotonic)

    def stats(self, reader: Scope | None = None) -> dict[str, Json]:
        """Return counts by layer, type, strength and age of what `reader` may read (None: of all).

        Counts of unembedded and loaded memories, recalls a day and the size are of the whole store.
        """
        store = self.services.store
        readable = () if reader is None else (OneOf("audience", tuple(sorted(audiences(reader)))),)
        current = Where(readable, (OneOf("state", ("history",)),))
        counts = statistics(
            store,
            self.clock.now(),
            reader=reader,
            daily=self.services.usage.daily(),
            activation=self.upkeep.activation,
            unembedded=self.services.searcher.index.unembedded(),
        )
        return {
            "layers": {**counts.current, COLLECTIONS[2]: store.count(COLLECTIONS[2], current)},
            **counts.as_dict(),
            "waiting": store.count(
                Layer.VERIFIED_FACT.value, Where((*readable, OneOf("state", (Status.PENDING.value,))))
            ),
            "in_memory": self.services.searcher.index.in_memory(),
        }
