"""Core: one process's memory, over whatever adapters it was given.

It serves every project, hands out a `MemoryAnchor` a request, embeds behind, runs jobs and ends conversations. Which
adapter stands behind which port is `app`'s business.
"""

from __future__ import annotations

import importlib.metadata
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from cachetools import LRUCache

from memory_anchor import inputs, services
from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.adapters.file_records import FileRecords, RequestTurns
from memory_anchor.adapters.git import WorkingTree
from memory_anchor.adapters.projects import DEFAULT, Projects
from memory_anchor.adapters.system import Ids, SystemClock, new_token
from memory_anchor.care.checks import mend_at_start
from memory_anchor.context.context import ContextBuilder, ContextSources
from memory_anchor.context.context_reports import ContextReports, owner_of
from memory_anchor.context.parallel_calls import CircuitBreaker
from memory_anchor.devices.sync_job import DeviceSync
from memory_anchor.durability import Durability, SyncedLock
from memory_anchor.errors import Refused, Unavailable
from memory_anchor.files import remove_durably, write_atomic
from memory_anchor.foreground import RequestGate
from memory_anchor.freshness import FreshnessChecker
from memory_anchor.identity.elsewhere import KeyOpens, no_key_opens
from memory_anchor.identity.identity_schema import IdentitySchema
from memory_anchor.identity.keys import Approver
from memory_anchor.identity.signed_requests import Challenges, SignedCall
from memory_anchor.ingest.model_calls import decide_with_model
from memory_anchor.ingest.reconcile import decide
from memory_anchor.ingest.remembering import EventReader, Rememberer
from memory_anchor.ingest.writing import FactWriter
from memory_anchor.json_values import Json
from memory_anchor.knowledge.library import Library
from memory_anchor.knowledge.lorebooks import LorebookStore
from memory_anchor.knowledge.sharing import TurnPoll
from memory_anchor.knowledge.watching import SourceWatcher
from memory_anchor.language.indexing import embedded_text
from memory_anchor.layers.active_context import ActiveContext
from memory_anchor.layers.event_log import EventDraft, EventLog
from memory_anchor.layers.operational_knowledge import OperationalKnowledge
from memory_anchor.layers.records import Records
from memory_anchor.maintenance import merges_of, purged_elsewhere
from memory_anchor.memory import MemoryAnchor
from memory_anchor.model import (
    COLLECTIONS,
    FOUND_STATES,
    Actor,
    Caller,
    Layer,
    Memory,
    Origin,
    RetrievedSnippet,
    Scope,
    SearchAnswer,
    audiences,
)
from memory_anchor.pausing import pause_of
from memory_anchor.ports import (
    Clock,
    Embedder,
    Entry,
    LanguageModel,
    MemoryStore,
    Reranker,
    SharedRecords,
    Sharing,
    Snapshot,
)
from memory_anchor.quarantine import Quarantine
from memory_anchor.recall.candidates import WRITTEN_HERE
from memory_anchor.recall.cooccurrence import TagNeighbours
from memory_anchor.recall.embedding import awaited_text
from memory_anchor.recall.embedding_queue import EmbeddingThread
from memory_anchor.recall.nearness import Nearness
from memory_anchor.recall.query_embedder import QueryEmbedder
from memory_anchor.recall.search import Searcher
from memory_anchor.recall.snippets import RankedMemory, snippet
from memory_anchor.repeats import FOLDER, FirstAnswers
from memory_anchor.services import Project, Services, rules_home
from memory_anchor.settings import API_EMBEDDERS, Settings, with_project_file
from memory_anchor.upkeep.disagreements import RecalledTogether
from memory_anchor.upkeep.jobs import SETTLE_S, Scheduler
from memory_anchor.upkeep.leases import RUNNER_FILE, SharedInTurn, StoreLease, runner_id
from memory_anchor.upkeep.registry import all_jobs
from memory_anchor.upkeep.settling import TAG_STATE
from memory_anchor.upkeep.statistics import UsageBuffer, statistics
from memory_anchor.upkeep.upkeep import Upkeep, load_state
from memory_anchor.where import OneOf, Where
from memory_anchor.writes import session_text

if TYPE_CHECKING:
    from memory_anchor.ports import Matrix
    from memory_anchor.remote.memory import RemoteMemory

log = logging.getLogger("memory_anchor")
ROOMS_KEPT = 64
NEIGHBOURS = 8
JOBS_OFF = "jobs-off"
EMBED_BATCH = 16
NAME_SHOWN = 80


def _release() -> str:
    try:
        return importlib.metadata.version("memory-anchor")
    except importlib.metadata.PackageNotFoundError:  # run from its source
        return ""


class Core:
    """One process's memory. Thread-safe; `close` drains it."""

    def __init__(
        self,
        settings: Settings,
        *,
        data_dir: Path,
        store: MemoryStore,
        embedder: Embedder | None,
        model: LanguageModel | None,
        clock: Clock,
        reranker: Reranker | None = None,
        local: Embedder | None = None,
        prompt: Embedder | None = None,
        model_named: Callable[[str], LanguageModel | None] | None = None,
        test_clock: bool = False,
        snapshot: Snapshot | None = None,
        shared: tuple[SharedRecords, Sharing] | None = None,
        remote: RemoteMemory | None = None,
    ) -> None:
        """local, prompt: beside an embedder behind an API, see `retrieval.meaning`. snapshot: see `retrieval.index`.
        model_named: a model by its name (default: always `model`).

        test_clock: this store was made for checks, which may move its time. shared: with other replicas, None alone.
        remote: a served memory that is asked first.
        """
        self.settings = settings
        self.shared = shared
        self.records: SharedRecords = shared[0] if shared else FileRecords(data_dir)
        self.sharing = shared[1] if shared else None
        self.test_clock = test_clock
        self.data_dir = data_dir
        self.clock = clock
        self.started_at = clock.now()
        ids = Ids(clock)
        counted: Durability | None = getattr(store, "durability", None)
        durability = counted or Durability()
        self.audit = self._trail(durability, ids)
        self.projects = Projects(data_dir / "projects.json", ids.new, joined=self._joined)
        # Loaded before it is first waited for; an API has nothing to load.
        preloads = local if settings.embedder.kind in API_EMBEDDERS else embedder
        self._closed = False
        self._embedding = EmbeddingThread(self._embed_some, preloads, before=self._finish_merges)
        self.reports = ContextReports(data_dir / "contexts", now=clock.now, new_id=ids.new)
        self._challenges = Challenges(new_token, self.records if shared else None)
        self._circuit = CircuitBreaker(time.monotonic)
        self.foreground = RequestGate(time.monotonic)
        self.quarantine = Quarantine(data_dir, release=_release(), run=ids.new())
        self.nearness = Nearness(local or embedder, self._embedding.wake, self.quarantine)
        tags = TagNeighbours(lambda: load_state(data_dir / "jobs", TAG_STATE))
        activation = services.activation(settings)
        searcher = Searcher(
            store,
            embedder,
            clock,
            services.ways(settings.retrieval),
            cache_ttl_s=settings.retrieval.cache_ttl_s if store.kind in WRITTEN_HERE else 0,
            reranker=reranker,
            rerank_deadline_s=settings.retrieval.reranker_deadline_s,
            activation=activation,
            local=local,
            prompt=prompt,
            tags=tags,
            stand_aside=self.foreground.wait_until_quiet,
            snapshot=snapshot,
            quarantine=self.quarantine,
            variants=services.variants(settings),
        )
        records = Records(
            store,
            clock,
            self.audit,
            new_id=ids.new,
            entry_of=searcher.entry_of,
            on_write=self._stored,
            lock=SyncedLock(durability),
            written=(lambda: counted.written) if counted is not None else None,
        )
        events = EventLog(records)
        policy = services.policy(settings)
        by_rules = partial(decide, policy=policy)
        ponder = (
            partial(decide_with_model, model=model, policy=policy, deadline_s=settings.llm.deadline_s)
            if model
            else None
        )
        facts = FactWriter(records, services.gate(settings), self._neighbours, by_rules, ponder=ponder)
        recalled = RecalledTogether(
            store,
            searcher.alike,
            by_rules,
            ponder=ponder,
            near=self._beside,
            on_news=self._compare_recalled,
        )
        usage = UsageBuffer(store, clock, records.lock, tally_file=data_dir / "usage.json")
        meaning = QueryEmbedder(embedder, local=local, prompt=prompt)
        self.knowledge = Library(
            store,
            clock,
            data_dir,
            audit=self.audit,
            embedders=meaning.embedders,
            new_id=ids.new,
            on_waiting=self._embedding.wake,
            on_sources=lambda: self.watcher.renew(),
            quarantine=self.quarantine,
            records=self.records if shared else None,
            monotonic=time.monotonic,
        )
        self._poll = TurnPoll(self.knowledge.turn, self.knowledge.wake)
        self.watcher = SourceWatcher(self.knowledge, monotonic=time.monotonic)
        self.upkeep = Upkeep(
            store,
            self.audit,
            records.lock,
            on_write=self._stored,
            model=model,
            rules=services.rules(settings),
            activation=activation,
            state_dir=data_dir / "jobs",
            tags=tags,
            recalled=recalled,
            stand_aside=self.foreground.wait_until_quiet,
        )
        if shared is not None:
            runner = runner_id(data_dir / RUNNER_FILE, ids.new)
            turn = SharedInTurn(store, SystemClock(), runner, time.monotonic)
            self.upkeep = replace(self.upkeep, batch_item=turn)
        self.services = Services(
            settings=settings,
            data_dir=data_dir,
            store=store,
            embedder=embedder,
            local=local,
            model=model,
            model_named=model_named or (lambda _: model),
            clock=clock,
            audit=self.audit,
            records=records,
            events=events,
            facts=facts,
            rememberer=Rememberer(facts, events, self._message_rows, self.nearness.embedder),
            active=ActiveContext(clock, self._end_evicted),
            searcher=searcher,
            usage=usage,
            nearness=self.nearness,
            paused=self._paused,
            monotonic=time.monotonic,
            activation=activation,
            tags=tags,
            recalled=recalled,
            knowledge=self.knowledge,
            meaning=meaning,
            answers=FirstAnswers(data_dir / FOLDER, self.records if shared else None),
            remote=remote,
            project_note=self.projects.note,
            turn_of=RequestTurns(self.records).of if shared else lambda _: nullcontext(),
            lorebooks=LorebookStore(shared[1].lorebooks() if shared else None),
        )
        reader = EventReader(self.services.rememberer, self._message_rows, lambda: services.gate(settings))
        self.upkeep = replace(self.upkeep, segment=reader.topics, extract=reader.save_facts)
        mend_at_start(self.upkeep, self.audit, data_dir, clock.now(), alone=shared is None)
        lease = StoreLease(store, SystemClock(), runner_id(data_dir / RUNNER_FILE, ids.new))
        self.scheduler = Scheduler(
            all_jobs(self, {str(job): hours for job, hours in settings.lifecycle.intervals_h.items()}),
            self.upkeep,
            state_file=data_dir / "jobs.json",
            lease=lease,
        )
        purge = partial(purged_elsewhere, self.services, self)
        self.devices = DeviceSync(self.upkeep, data_dir, clock, self.projects, purge, new_token, self._paused)
        self.scheduler.add(self.devices.job())
        self._rooms: LRUCache[tuple[str, str], tuple[int, Project]] = LRUCache(ROOMS_KEPT)
        self._rooms_lock = threading.Lock()
        self.key_opens: KeyOpens = no_key_opens

    def _trail(self, durability: Durability, ids: Ids) -> JsonlAudit:
        path = self.data_dir / "audit" / "audit.jsonl"
        if self.shared is None:
            return JsonlAudit(path, durability=durability)
        from memory_anchor.adapters.shared_audit import SharedAudit

        return SharedAudit(path, self.records, runner_id(self.data_dir / RUNNER_FILE, ids.new), durability=durability)

    # --- requests ------------------------------------------------------------------------------------------------

    def anchor(self, actor: Actor) -> MemoryAnchor:
        """Return the door for one caller: its project is found from its folder, its names filled in from settings."""
        if self.sharing is not None:
            with suppress(Unavailable):  # what is here is read on; a key is let in by none but the newest
                self.sharing.fresh()
        project_id, root = self.projects.of(actor.project_dir)
        project_id = inputs.project_id(actor.project or self.settings.scope.project or project_id)
        name = actor.scope.agent or self.settings.scope.agent or "agent"
        own = self.settings.agents.get(name)
        scope = replace(
            actor.scope,
            account=actor.scope.account or self.settings.scope.account,
            user=actor.scope.user or self.settings.scope.user,
            agent=name,
            project=project_id,
            collection=own.collection if own is not None else "",
            across=self._across(project_id) if self.settings.scope.agent_across_projects else (),
        )
        known = replace(actor, scope=scope, project_dir=root)
        home = rules_home(scope, root, own=self.settings.scope.account)
        return MemoryAnchor(self.services, self.room(home, root, scope.account), known, self._context_builder, self)

    def _joined(self, project_id: str, folder: str, why: str) -> None:
        """Record that a folder was found to be a known project: from now on it reads and writes its memory."""
        record = {"project": project_id, "folder": folder, "why": why}
        self.audit.append("project.joined", record, by="system", at=self.clock.now())

    def _across(self, project_id: str) -> tuple[str, ...]:
        """Return the other projects whose agent memories a caller reads, by the user's word: all."""
        return tuple(sorted({*self.projects.all(), DEFAULT} - {project_id}))

    def room(self, project_id: str, root: str, account: str) -> Project:
        """Return what this project (by its `rules_home`) adds; read anew when its settings file changes.

        account: the caller's; a folder of this machine is its own account's.
        """
        stamp = 0
        if root:
            with suppress(OSError):
                stamp = (Path(root) / "memory-anchor.yaml").stat().st_mtime_ns
        with self._rooms_lock:
            held = self._rooms.get((project_id, root))
            if held is not None and held[0] == stamp:
                return held[1]
            settings = project_settings(self.settings, root)
            room = Project(
                project_id=project_id,
                root=root,
                settings=settings,
                gate=services.gate(settings),
                identity=IdentitySchema(
                    project_dir=Path(root) if root else None,
                    project_id=project_id,
                    home=self.data_dir / "identity" / project_id,
                    clock=self.clock,
                    audit=self.audit,
                    budget_tokens=settings.budget.identity,
                    min_interval_s=settings.constitution.min_interval_s,
                    distinct_approvers=settings.constitution.distinct_approvers,
                    sharing=self.sharing,
                    is_open=lambda key: self.key_opens(key),
                    account=self.settings.scope.account if root else account,
                ),
                operations=OperationalKnowledge(Path(root) if root else None, self.nearness.of, self.quarantine),
                sources=FreshnessChecker(WorkingTree(Path(root))) if root else None,
            )
            self._rooms[(project_id, root)] = (stamp, room)
            return room

    def challenge(self, actor: Actor) -> dict[str, str]:
        """Return what a human's terminal signs with its next request, and for which account and project that counts."""
        scope = self.anchor(actor).actor.scope
        challenge, until = self._challenges.issue(self.clock.now())
        return {"challenge": challenge, "expires_at": until, "account": scope.account, "project": scope.project}

    def as_human(self, actor: Actor, signed: SignedCall, *, approver: Approver | None = None) -> Actor:
        """Return the actor as a human who signed this very call; the challenge is used up.

        approver: who may sign; None for the one here.
        Raises Refused: it is not signed so, or the key here is not the installation's.
        """
        anchor = self.anchor(actor)
        identity, scope, now = anchor.room.identity, anchor.actor.scope, self.clock.now()
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
        """Turn what a conversation had in mind into one event; without anything in mind nothing is written."""
        scope = self.anchor(actor).actor.scope
        with self.services.active.take(scope) as values:
            self._log_ended(scope, values, actor)

    def has_live_context(self) -> bool:
        return bool(self.services.active.scopes())

    def _end_evicted(self, scope: Scope, values: dict[str, Json]) -> None:
        self._log_ended(scope, values, Actor(Caller.SYSTEM, scope))

    def _log_ended(self, scope: Scope, values: Mapping[str, Json], actor: Actor) -> None:
        content = session_text("", values)
        if not content:
            return
        draft = EventDraft(content, self.clock.now(), key="session ended", origin=Origin.SYSTEM)
        self.services.events.log(replace(actor, caller=Caller.SYSTEM, scope=scope, nonce=""), draft)

    # --- background ----------------------------------------------------------------------------------------------

    def start(self, *, settled: Callable[[], None] | None = None) -> None:
        """Embed behind, run jobs as they fall due and follow sources, each on a thread of its own, until `close`.

        settled: called once, when what a search needs is in memory and nothing is left to embed.
        """

        def ready() -> None:
            if settled is not None:
                settled()
            self.watcher.start()

        self._embedding.start(ready)
        self.knowledge.has_worker = True
        if self.shared is not None:
            self._poll.start()
        if not (self.data_dir / JOBS_OFF).exists():
            self.scheduler.start(self.clock, settle_s=SETTLE_S)

    def let_jobs_run(self, on: bool) -> None:
        """Run due jobs by itself, or only when one is started by name; remembered over restarts."""
        if on:
            remove_durably(self.data_dir / JOBS_OFF)
            self.scheduler.start(self.clock)
        else:
            write_atomic(self.data_dir / JOBS_OFF, b"")
            self.scheduler.stop()

    def close(self) -> None:
        """End every conversation, write what is buffered, close the store. Twice is the same as once."""
        if self._closed:
            return
        self._closed = True
        self._embedding.end()
        self._poll.end()
        self.watcher.end()
        self.scheduler.stop()
        self._embedding.join()
        for scope in self.services.active.scopes():
            try:
                with self.services.active.take(scope) as values:
                    self._log_ended(scope, values, Actor(Caller.SYSTEM, scope))
            except Exception:  # one conversation must not keep the others, or the store, from being written
                log.exception("what a conversation had in mind could not be logged")
        self.services.usage.flush()
        self.services.searcher.save()
        self.knowledge.close()
        self.services.store.flush()
        self.services.store.close()
        self.quarantine.close()

    def forget_tags(self) -> None:
        """Forget which tags occur together until the job counts them anew: tags of what was erased must not stay."""
        self.services.tags.clear()
        (self.data_dir / "jobs" / f"{TAG_STATE}.json").unlink(missing_ok=True)

    def _embed_some(self) -> int:
        done = self.nearness.embed_waiting(EMBED_BATCH) + self.services.searcher.embed_pending(EMBED_BATCH)
        return done or self.knowledge.work_a_little(self.foreground.wait_until_quiet)

    def _finish_merges(self) -> None:
        """Carry out what a kill left of merging projects."""
        merges = merges_of(self.services)
        for merge in merges.unfinished():
            self.projects.merge(merge.source, merge.target)
            moved = merges.carry_out(merge)
            self.services.read_anew()
            log.warning("merging %s into %s was cut off; %d versions were left", merge.source, merge.target, moved)

    def _compare_recalled(self) -> None:
        self.scheduler.queue("reconsolidate")

    def _stored(self, entries: Sequence[Entry]) -> None:
        """Tell searches what was stored, as it was stored."""
        for entry in entries:
            self.services.searcher.note_written(entry)
            memory = entry.memory
            is_new = memory.version == 1 and memory.layer is Layer.VERIFIED_FACT and memory.state in FOUND_STATES
            if is_new and not entry.vectors and self.services.embedder is not None:
                self.services.recalled.note_behind(memory.id)
        self.services.recalled.changed()
        self._embedding.wake()

    # --- parts ---------------------------------------------------------------------------------------------------

    def _neighbours(self, actor: Actor, memory: Memory) -> Sequence[tuple[Memory, float]]:
        """Return live facts near a new one; its row was embedded a moment ago and is remembered."""
        text = awaited_text(embedded_text(memory))
        try:
            return self.services.searcher.similar(actor, text, layer=Layer.VERIFIED_FACT, limit=NEIGHBOURS)
        except Unavailable:  # stored by its words; what is near is not known now
            return []

    def _beside(self, memory: Memory) -> Sequence[Memory]:
        """Return the live facts near one that is stored already."""
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

    def _context_builder(self, anchor: MemoryAnchor) -> ContextBuilder:
        """Return a builder that reads as this caller, in this caller's zone."""

        def search(query: str, layers: Sequence[Layer], limit: int) -> SearchAnswer:
            answer: SearchAnswer = anchor.search(query, layers=layers, limit=limit)
            return replace(answer, snippets=tuple(one for one in answer.snippets if one.linked or not one.weak))

        def recent(limit: int) -> Sequence[RetrievedSnippet]:
            told = partial(
                snippet,
                reader=anchor.actor.scope,
                now=self.clock.now(),
                detail=False,
                activation=self.upkeep.activation,
            )
            return [
                told(RankedMemory(event, 0.0, place)) for place, event in enumerate(anchor.search_events(limit=limit))
            ]

        sources = ContextSources(
            constitution=anchor.constitution,
            search=search,
            recent_events=recent,
            operations=lambda task, limit: anchor.find_operations(task, limit=limit),
            active_context=lambda: {key: value for key, (value, _) in anchor.active().items()},
            now=lambda: self.clock.now().astimezone(ZoneInfo(anchor.actor.zone)),
            cache=self.services.searcher.cache_counts,
            record=partial(self.reports.record, owner=owner_of(anchor.actor.scope)),
            knowledge=anchor.knowledge.strong_passages if self.knowledge.is_used else None,
            lore=anchor.lore.for_context,
        )
        return ContextBuilder(sources, anchor.room.settings.budget, circuit=self._circuit, monotonic=time.monotonic)

    def stats(self, reader: Scope | None = None) -> dict[str, Json]:
        """Return counts by layer, type, strength and age of what `reader` may read (None: of all).

        What is not embedded yet, what is in memory, recalls a day and the size are the whole store's.
        """
        store = self.services.store
        seen = () if reader is None else (OneOf("audience", tuple(sorted(audiences(reader)))),)
        current = Where(seen, (OneOf("state", ("history",)),))
        told = statistics(
            store, self.clock.now(), reader=reader, daily=self.services.usage.daily(), activation=self.upkeep.activation
        ).as_dict()
        return {
            "layers": {name: store.count(name, current) for name in COLLECTIONS[:3]},
            **told,
            "unembedded": self.services.searcher.unembedded(),
            "in_memory": self.services.searcher.in_memory(),
        }


def project_settings(settings: Settings, root: str) -> Settings:
    """Return the settings as they hold for the project at `root` ("" for none)."""
    return with_project_file(settings, Path(root)) if root else settings
