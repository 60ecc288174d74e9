"""MemoryAnchor: one method per use case, the only door for every front end.

A `MemoryAnchor` acts for one caller (`Actor`) in one project; it is cheap to make, so each request gets its own. Values
come in raw and are checked here, text is made safe here, and what comes out are domain values that front ends only
shape. The machinery behind it (`Services`) is shared by every project of one process;
a `Project` is what one project adds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from memory_anchor import inputs
from memory_anchor.context.context import BuiltContext, ContextBuilder
from memory_anchor.conversations import Conversations
from memory_anchor.errors import BadInput
from memory_anchor.language.safety import cleaned
from memory_anchor.model import HISTORY, Actor, Constitution, Layer, Memory, OperationPassage, SearchAnswer
from memory_anchor.recall.freshness_order import standing
from memory_anchor.recall.relevance import weak_shown
from memory_anchor.recall.request import SearchRequest
from memory_anchor.recall.routing import asks_how, with_identity, with_operations
from memory_anchor.services import Project, Services
from memory_anchor.where import OneOf, Where

SEARCH_LIMIT_MAX = 50
EVENTS_LIMIT_MAX = 200
OPERATIONS_LIMIT_MAX = 20
TOPIC_KEYS = ("current_topic", "topic")
"""Keys of L1 under which an agent says what a conversation is about, the first one first."""
TOPIC_CHARS = 300


class MemoryAnchor(Conversations):
    def __init__(self, services: Services, room: Project, actor: Actor, context: Callable[..., ContextBuilder]) -> None:
        super().__init__(services, room, actor)
        self._context = context

    # --- layers ---------------------------------------------------------------------------------------------------

    def constitution(self) -> Constitution:
        """Return L0 whole: the approved text, with a warning where the file differs. Never fails."""
        return self.room.identity.load()

    def active(self, key: object = None) -> dict[str, tuple[Any, datetime]]:
        """Return key -> (value, expires_at) of this conversation, or the one asked for (empty when it is gone)."""
        values = self.services.active.values(self.actor.scope)
        if key is None:
            return values
        name = cleaned(inputs.text("key", key, most=inputs.KEY_MAX)).text
        return {name: values[name]} if name in values else {}

    def search_events(
        self,
        *,
        start: object = None,
        end: object = None,
        query: object = None,
        where: object = None,
        who: object = None,
        limit: object = 20,
    ) -> list[Memory]:
        """Return events newest first, or best first with a query. `end` given as a date includes that day."""
        now = self.services.clock.now()
        since = inputs.instant("start", start, zone=self.actor.zone, now=now) if start is not None else None
        until = inputs.end_instant("end", end, zone=self.actor.zone, now=now) if end is not None else None
        if since is not None and until is not None and since >= until:
            raise BadInput(f"start {start!r} is after end {end!r}; allowed is start before end")
        place = inputs.text("where", where, most=inputs.NAME_MAX, required=False) or None
        people = inputs.strings("who", who, most=inputs.PEOPLE_MAX, each=inputs.NAME_MAX)
        most = inputs.limit(limit, most=EVENTS_LIMIT_MAX)
        asked = inputs.text("query", query, most=inputs.QUERY_MAX, required=False)
        if not asked:
            return self.services.events.find(
                self.actor.scope, start=since, end=until, where=place, who=people, limit=most
            )
        request = SearchRequest(
            query=asked, layers=(Layer.EVENT_LOG,), since=since, until=until, limit=most, where=place, who=people
        )
        found = self.services.searcher.search(self.actor, request)
        places = {snippet.id: place for place, snippet in enumerate(found.snippets)}
        if not places:
            return []
        current = Where((OneOf("id", tuple(places)),), (OneOf("state", (HISTORY,)),))
        events = self.services.store.find(Layer.EVENT_LOG.value, current, limit=len(places))
        return sorted(events, key=lambda event: places[event.id])

    # --- search ---------------------------------------------------------------------------------------------------

    def search(
        self,
        query: object,
        *,
        layers: object = None,
        types: object = None,
        tags: object = None,
        since: object = None,
        until: object = None,
        as_of: object = None,
        limit: object = 5,
        include_pending: object = False,
        detail: object = False,
    ) -> SearchAnswer:
        """Return what answers the query, strong ones first; what is weak is marked (`recall/relevance.py`)."""
        request = self.search_request(
            query,
            layers=layers,
            types=types,
            tags=tags,
            since=since,
            until=until,
            as_of=as_of,
            limit=limit,
            include_pending=include_pending,
            detail=detail,
        )
        now = self.services.clock.now()
        searcher = self.services.searcher
        answer = searcher.search(self.actor, request) if request.searched() else SearchAnswer(())
        self.services.recalled.note(answer.snippets)
        answer = standing(answer, self.room.sources)
        self.services.usage.shown((snippet.layer, snippet.id) for snippet in answer.snippets)
        answer = with_operations(answer, request, self.room.operations.find, now=now)
        if note := self.services.project_note(self.actor.scope.project):
            answer = replace(answer, notes=(*answer.notes, note))
        return with_identity(answer, request, self.constitution, self.services.nearness.of, now=now)

    def why_not(self, memory_id: object, query: object) -> dict[str, Any]:
        """Return why a memory does or does not answer a query: found, reason, and its rank and signals when scored."""
        memory = self.services.records.read(inputs.text("id", memory_id, most=inputs.NAME_MAX), self.actor.scope)
        return self.services.searcher.why_not(self.actor, self.search_request(query), memory)

    def search_request(
        self,
        query: object,
        *,
        layers: object = None,
        types: object = None,
        tags: object = None,
        since: object = None,
        until: object = None,
        as_of: object = None,
        limit: object = 5,
        include_pending: object = False,
        detail: object = False,
    ) -> SearchRequest:
        """Return the checked request behind `search`; `why-not` asks about the same one."""
        now = self.services.clock.now()
        zone = self.actor.zone
        start = inputs.instant("since", since, zone=zone, now=now) if since is not None else None
        end = inputs.end_instant("until", until, zone=zone, now=now) if until is not None else None
        if start is not None and end is not None and start >= end:
            raise BadInput(f"since {since!r} is after until {until!r}; allowed is since before until")
        # From now on is what is believed now: the plain search, with all its evidence.
        then = inputs.instant("as_of", as_of, zone=zone, now=now) if as_of is not None else None
        own, most = self.own.retrieval, inputs.limit(limit, most=SEARCH_LIMIT_MAX)
        return SearchRequest(
            query=inputs.text("query", query, most=inputs.QUERY_MAX),
            layers=tuple(inputs.layer(one, "layers") for one in inputs.strings("layers", layers, most=5, each=40)),
            types=tuple(inputs.memory_type(one, "types") for one in inputs.strings("types", types, most=15, each=40)),
            tags=inputs.strings("tags", tags, most=inputs.TAGS_MAX, each=inputs.TAG_MAX),
            since=start,
            until=end,
            as_of=then if then is not None and then < now else None,
            limit=most,
            weak=weak_shown(most),
            include_pending=inputs.flag("include_pending", include_pending),
            detail=inputs.flag("detail", detail),
            topic=self._topic(),
            counts_use=own.apply_frequency_boost,
            counts_age=own.apply_time_decay,
        )

    def _topic(self) -> str:
        """Return what this conversation says it is about, where the settings let that bend a search; else ""."""
        if not self.services.settings.retrieval.lens:
            return ""
        values = self.services.active.values(self.actor.scope)
        told = next((values[key][0] for key in TOPIC_KEYS if key in values), "")
        return told[:TOPIC_CHARS] if isinstance(told, str) else ""

    def get(self, memory_id: object) -> Memory:
        """Return one memory, its citations checked against the project; fetching it counts as a use."""
        memory = self.services.records.read(inputs.text("id", memory_id, most=inputs.NAME_MAX), self.actor.scope)
        self.services.usage.used(memory)
        if self.room.sources is None:
            return memory
        return replace(memory, citations=self.room.sources.checked(memory.citations))

    def history(self, memory_id: object) -> list[Memory]:
        """Return every version of one memory, oldest first."""
        return self.services.records.versions(inputs.text("id", memory_id, most=inputs.NAME_MAX), self.actor.scope)

    # --- L4 and context --------------------------------------------------------------------------------------------

    def find_operations(self, task: object, *, limit: object = 3) -> list[OperationPassage]:
        """Return how the project says a task is done; empty when nothing fits."""
        asked = inputs.text("task", task, most=inputs.QUERY_MAX)
        most = inputs.limit(limit, most=OPERATIONS_LIMIT_MAX)
        return self.room.operations.find(asked, limit=most, waits=asks_how(asked))

    def build_context(self, task: object, *, budget_tokens: object = None) -> BuiltContext:
        """Return what an agent should know for a task, within a budget, with what it cost."""
        return self._context(self).build(task, budget_tokens)
