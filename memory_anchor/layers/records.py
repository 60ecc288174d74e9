"""Reading versions, and making the next ones of what a request decided.

Every write of L2 and L3 goes through `commit`: derived words and vectors are made here, new versions and the closed old
ones of one collection land in one atomic upsert, the audit record follows, and search indexes are updated. `lock`
serialises read-check-write, so two agents changing one memory are compared, never overwritten; embedding comes first.

Requests are idempotent: the outcome is stored with the memory it wrote (`Receipt`), found again by a keyword index, so
a repeat after a crash gets the first answer. Across collections the authoritative record is written first.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from datetime import datetime
from itertools import islice

from memory_anchor.base.hashing import content_hash, stable_hash
from memory_anchor.base.json_values import Json, number, optional_text, records, text, texts
from memory_anchor.domain.activation import first_priority
from memory_anchor.domain.errors import BadInput, NotFound
from memory_anchor.domain.model import (
    FOREVER,
    HISTORY,
    RECEIPTS_KEPT,
    TRUST_OF_ORIGIN,
    USAGE_KEPT,
    Actor,
    Citation,
    Layer,
    Memory,
    Origin,
    Outcome,
    Receipt,
    Relation,
    Scope,
    Similar,
    Status,
    Usage,
    WriteOutcome,
    audiences,
)
from memory_anchor.domain.ports import Clock, Entry, MemoryStore, Trail
from memory_anchor.domain.rights import is_human
from memory_anchor.domain.versions import Draft, Revision
from memory_anchor.domain.where import Between, Condition, OneOf, Where
from memory_anchor.language.indexing import embedded_text
from memory_anchor.language.timespans import recency
from memory_anchor.layers.commits import Commits, audit_of

VERSIONS_PAGE = 500
"""Versions of one memory that are read at once; it may have any number."""
ALSO_SEARCHED = ("key", "tags", "questions", "where", "who", "citations", "context")
"""Fields a memory is found by besides its embedded text; see `searched_words`."""
RECORD_COLLECTIONS = (Layer.VERIFIED_FACT.value, Layer.EVENT_LOG.value)


@dataclass(frozen=True, slots=True)
class Request:
    """What makes a repeat recognisable: the key to look under, and a hash of what was requested.

    explicit: the caller named the request, so the same name with other content is an error.
    """

    key: str
    fingerprint: str
    explicit: bool


def request_of(actor: Actor, request_id: str, tool: str, asked: Mapping[str, Json]) -> Request | None:
    """Return how this call is recognised again: by `request_id`, else by the transport's nonce, else not at all."""
    fingerprint = stable_hash(tool, json.dumps(asked, ensure_ascii=False, sort_keys=True, default=str))
    if request_id:
        scope = actor.scope  # one name in two projects or conversations, or of two clients or people, is two requests
        person = (actor.person,) if actor.person else ()
        owner = (scope.account, scope.project, actor.client, scope.conversation, *person)
        return Request(stable_hash("request", *owner, request_id), fingerprint, True)
    return Request(stable_hash("nonce", actor.nonce), fingerprint, False) if actor.nonce else None


class Records:
    def __init__(
        self,
        store: MemoryStore,
        clock: Clock,
        audit: Trail,
        *,
        new_id: Callable[[], str],
        entry_of: Callable[..., Entry],
        on_write: Callable[[Sequence[Entry]], None],
        lock: AbstractContextManager[bool | None] | None = None,
        written: Callable[[], int] | None = None,
    ) -> None:
        """entry_of(memory, embed=bool): makes a version's words, and its vector when `embed`, else in the background.

        on_write: gets every version that was stored, as stored. lock: the writers' lock, reentrant. written: how
        often the store was written to, by anybody; None where that is not known.
        """
        self.store = store
        self.clock = clock
        self.new_id = new_id
        self.entry = entry_of
        self.lock: AbstractContextManager[bool | None] = lock or threading.RLock()
        self.written: Callable[[], int | None] = written or (lambda: None)
        self._commits = Commits(store, audit, on_write)

    # --- reading ---------------------------------------------------------------------------------------------

    def read(self, memory_id: str, reader: Scope | None) -> Memory:
        """Return the current version, whatever its status. Raises NotFound: no such id within the reader's scope."""
        conditions: list[OneOf] = [OneOf("id", (memory_id,))]
        if reader is not None:
            conditions.append(OneOf("audience", tuple(sorted(audiences(reader)))))
        where = Where(tuple(conditions), (OneOf("state", (HISTORY,)),))
        for collection in RECORD_COLLECTIONS:
            for memory in self.store.find(collection, where, limit=1):
                return memory
        raise NotFound(f"no memory {memory_id!r} here; `search_memory` or `memory-anchor list` gives the ids there are")

    def versions(
        self, memory_id: str, reader: Scope | None, *, below: int | None = None, most: int | None = None
    ) -> list[Memory]:
        """Return the newest versions below a number, oldest first; without limits every version. Raises NotFound."""
        newest = self.newest_versions(self.read(memory_id, reader), below=below)
        return list(islice(newest, most))[::-1]

    def newest_versions(self, memory: Memory, *, below: int | None = None) -> Iterator[Memory]:
        """Yield the versions of one memory, newest first."""
        return newest_versions(self.store, memory.layer.value, OneOf("id", (memory.id,)), below=below)

    def same_content(self, memory: Memory) -> Memory | None:
        """Return the oldest live memory of the same layer and audience with exactly this content, if any."""
        live = tuple(s.value for s in (Status.ACTIVE, Status.DISPUTED, Status.PENDING))
        where = Where(
            (
                OneOf("content_hash", (memory.content_hash,)),
                OneOf("audience", (memory.audience,)),
                OneOf("state", live),
            )
        )
        repeats = self.store.find(memory.layer.value, where, limit=16)
        alike = [m for m in repeats if m.context == memory.context or not (m.answers or memory.answers)]
        return min(alike, key=lambda m: (m.recorded_at, m.id), default=None)

    def last_of_conversation(self, scope: Scope) -> Memory | None:
        """Return the latest event of this conversation by sequence number, if any."""
        where = Where(
            (
                OneOf("conversation", (scope.conversation,)),
                OneOf("project", (scope.project,)),
                OneOf("account", (scope.account,)),
                Between("recorded_to", at_least=FOREVER),
            )
        )
        events = self.store.find(Layer.EVENT_LOG.value, where, limit=1, order_by="conversation_seq", descending=True)
        return events[0] if events else None

    # --- idempotence -----------------------------------------------------------------------------------------

    def replayed(self, request: Request | None) -> WriteOutcome | None:
        """Return the stored outcome of this request, if it was answered before.

        Raises BadInput: the same request_id was used for something else.
        """
        if request is None:
            return None
        for collection in RECORD_COLLECTIONS:
            for memory in self.store.find(collection, Where((OneOf("request_keys", (request.key,)),)), limit=4):
                for receipt in (receipt for receipt in memory.receipts if receipt.key == request.key):
                    if receipt.fingerprint == request.fingerprint:
                        return outcome_from(receipt.outcome)
                    if request.explicit:
                        raise BadInput(
                            "this request_id was used before with other content; "
                            "allowed is one request_id for one write, repeated unchanged"
                        )
        return None

    # --- writing ---------------------------------------------------------------------------------------------

    def begun(self, actor: Actor, draft: Draft) -> Memory:
        """Return version 1 of what a draft is to become, as this caller writes it now; active, if nothing waits."""
        now = self.clock.now()
        kept = {each.name: getattr(draft, each.name) for each in fields(Memory)}
        given = {
            "id": self.new_id(),
            "scope": replace(actor.scope, across=()),
            "recorded_at": now,
            "valid_from": draft.when or draft.content_at or now,
            "priority": first_priority(draft),
            "citations": cited_by(actor, draft.origin, draft.citations),
            "content_hash": content_hash(draft.content),
            "author": author_of(actor),
        }
        return Memory(**kept | given)

    def commit(self, new: Sequence[Entry] = (), *, revisions: Sequence[Revision] = (), kind: str, by: str) -> None:
        """Write new memories, next versions and the closed ones before: one atomic batch a collection, then audit,
        then the search indexes.

        new: in the order in which their collections must be written. Closed versions keep their vectors.
        """
        at = self.clock.now()
        old_points: dict[str, list[str]] = {}
        for step in revisions:
            old_points.setdefault(step.closed.layer.value, []).append(step.closed.point_id)
        before = {
            entry.memory.point_id: entry
            for collection, points in old_points.items()
            for entry in self.store.get(collection, points, with_vectors=True)
        }
        entries = [*new, *(self._next_entry(step, before.get(step.closed.point_id)) for step in revisions)]
        closed = [step.closed for step in revisions if step.closed.point_id in before]
        self._commits.put(
            [*entries, *(replace(before[version.point_id], memory=version) for version in closed)],
            records=[audit_of([entry.memory for entry in entries])],
            kind=kind,
            by=by,
            at=at,
        )

    def _next_entry(self, step: Revision, before: Entry | None) -> Entry:
        """Return the entry of a new version; its vector and words are reused where their text did not change."""
        new, closed = step.new, step.closed
        if before is None or embedded_text(new) != embedded_text(closed):
            return self.entry(new, embed=new.layer is Layer.VERIFIED_FACT)
        if all(getattr(new, name) == getattr(closed, name) for name in ALSO_SEARCHED):
            return replace(before, memory=new)
        return replace(self.entry(new, embed=False), vectors=before.vectors)

    def touch(self, memory: Memory, *, at: datetime, receipt: Receipt | None) -> None:
        """Strengthen a memory in place: one more use, a receipt, no new version."""
        stored = self.store.get(memory.layer.value, [memory.point_id], with_vectors=True)
        if not stored:
            raise NotFound(f"no memory {memory.id!r} here; it was erased meanwhile")
        receipts = (*memory.receipts, receipt)[-RECEIPTS_KEPT:] if receipt else memory.receipts
        used = replace(memory, usage=used_at(memory.usage, at), receipts=receipts)
        self._commits.put([replace(stored[0], memory=used)], records=(), kind="", by="", at=at)


def newest_versions(
    store: MemoryStore, collection: str, *conditions: Condition, below: int | None = None
) -> Iterator[Memory]:
    """Yield the versions of one memory, newest first, however many there are. below: only those before this number."""
    while True:
        where = Where((*conditions, *((Between("version", below=below),) if below is not None else ())))
        page = store.find(collection, where, limit=VERSIONS_PAGE, order_by="version", descending=True)
        yield from page
        if len(page) < VERSIONS_PAGE:
            return
        below = page[-1].version


def used_at(usage: Usage, at: datetime) -> Usage:
    """Return usage after one more use at `at`."""
    return replace(usage, count=usage.count + 1, last_at=at, accesses=(*usage.accesses, at)[-USAGE_KEPT:])


def with_receipt(memory: Memory, request: Request | None, outcome: WriteOutcome) -> Memory:
    """Return the version with the answer to this request among its receipts."""
    if request is None:
        return memory
    receipt = Receipt(request.key, request.fingerprint, outcome_to(outcome))
    return replace(memory, receipts=(*memory.receipts, receipt)[-RECEIPTS_KEPT:])


def outcome_to(outcome: WriteOutcome) -> dict[str, Json]:
    """Return an outcome as JSON; texts of similar memories are not kept (they may be purged)."""
    return {
        "outcome": outcome.outcome.value,
        "id": outcome.id,
        "layer": outcome.layer.value,
        "status": outcome.status.value if outcome.status else None,
        "reason": outcome.reason,
        "target_id": outcome.target_id,
        "relation": outcome.relation.value if outcome.relation else None,
        "redactions": list(outcome.redactions),
        "similar": [{"id": s.id, "score": s.score} for s in outcome.similar],
    }


def outcome_from(stored: Mapping[str, Json]) -> WriteOutcome:
    return WriteOutcome(
        outcome=Outcome(text(stored["outcome"])),
        id=optional_text(stored["id"]),
        layer=Layer(text(stored["layer"])),
        status=Status(text(stored["status"])) if stored["status"] else None,
        reason=text(stored["reason"]),
        target_id=optional_text(stored.get("target_id")),
        relation=Relation(text(stored["relation"])) if stored.get("relation") else None,
        redactions=tuple(texts(stored.get("redactions"))),
        similar=tuple(Similar(text(near["id"]), "", number(near["score"])) for near in records(stored.get("similar"))),
    )


def author_of(actor: Actor) -> str:
    """Return who wrote it, as history and audit show it: `agent:claude-code`, `human:me`, `system:…`.

    A person with an access key comes after the agent: `agent:codex for eve`.
    """
    if is_human(actor.caller):
        return f"{actor.caller.value}:{actor.scope.user}"
    person = f" for {actor.person}" if actor.person else ""
    return f"{actor.caller.value}:{actor.scope.agent or actor.client}{person}"


def newest_first(memories: Iterable[Memory], now: datetime) -> list[Memory]:
    """Return what happened, newest first, then what is planned for later, soonest first."""
    return sorted(memories, key=lambda m: (*recency(m.happened_at, now), m.recorded_at, m.id), reverse=True)


def cited_by(actor: Actor, origin: Origin, citations: Iterable[Citation]) -> tuple[Citation, ...]:
    """Return citations with the writer's scope, and no more trust than the writer has."""
    scope, trust = replace(actor.scope, across=()), TRUST_OF_ORIGIN[origin]
    return tuple(replace(citation, scope=citation.scope or scope, trust=trust) for citation in citations)
