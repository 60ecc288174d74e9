"""What every job works with, and the only way in which jobs write.

A job gets a frozen `Upkeep` of ports and settings, an instant and its limits, and returns a report. It changes memories
only through `write`: revisions of one collection in one atomic batch, under the writers' lock, each compared with what
is stored now. A memory that changed since the job read it is skipped, so jobs never hold the lock while they think, and
a killed job leaves complete memories and finds less to do next time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

from memory_anchor.base.json_values import Record
from memory_anchor.base.request_gate import FairLock
from memory_anchor.domain.activation import DEFAULTS, ActivationSettings
from memory_anchor.domain.errors import retry_on_conflict
from memory_anchor.domain.model import HISTORY, Memory, MemoryType, Scope, Status
from memory_anchor.domain.ports import Entry, LanguageModel, MemoryStore, PageReader, SmallRecords, Trail
from memory_anchor.domain.versions import Revision
from memory_anchor.domain.where import Condition, OneOf, Where
from memory_anchor.language.indexing import embedded_text, searched_words
from memory_anchor.layers.commits import Commits, audit_of
from memory_anchor.recall.cooccurrence import TagNeighbours
from memory_anchor.settings import AgentLifecycle, AgentSettings, LifecycleSettings, Settings
from memory_anchor.upkeep.job_state import state_record

if TYPE_CHECKING:
    from memory_anchor.upkeep.disagreements import RecalledTogether

COLLECTIONS_KEPT = ("event_log", "verified_fact")
"""The collections whose memories fade, merge and are undone, in the order jobs visit them."""
"""The folder of the records in which jobs store what they can compute again."""
BATCH = 25
"""Revisions per write, two points each: a few milliseconds of store time, so that no search waits longer."""
PAGE = 50
"""Memories per read: the engine returns a page in one piece, 2 ms during which other threads wait."""
YIELD_EVERY = 10
"""Memories between two checks whether a request waits: under a millisecond of work."""
SCAN_MAX = 1_000_000
"""Most memories one job reads."""
PLANNED_SHOWN = 1_000
"""Lines of a dry run."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The ports of a job. lock: taken by every writer of this store. on_write: gets what was written, for searches.

    records: for what jobs can compute again (progress, tables). segment: events of a
    conversation in order -> the same grouped by topic. extract: saves the facts in them and returns how many; a repeat
    must save nothing twice. tags: replaced when tags were counted. recalled: what searches showed together. asks_user:
    types whose contradictions wait for the user. yield_to_requests: returns when no request waits for an answer, or
    soon; called between small pieces of work, never with `lock` held. batch_item: held while one item of a pushed batch
    is read and written, and by a purge. ended_at: when a conversation was ended, if it was.
    """

    store: MemoryStore
    audit: Trail
    lock: AbstractContextManager[bool | None]
    on_write: Callable[[Sequence[Entry]], None]
    yield_to_requests: Callable[[], None]
    records: SmallRecords
    model: LanguageModel | None = None
    settings: Settings = field(default_factory=Settings)
    asks_user: frozenset[MemoryType] = frozenset()
    activation: ActivationSettings = DEFAULTS
    segment: Callable[[Sequence[Memory]], Sequence[Sequence[Memory]]] | None = None
    extract: Callable[[Sequence[Memory]], int] | None = None
    tags: TagNeighbours | None = None
    recalled: RecalledTogether | None = None
    batch_item: AbstractContextManager[bool | None] = field(default_factory=FairLock)
    ended_at: Callable[[Scope], datetime | None] = lambda _: None

    @property
    def commits(self) -> Commits:
        return Commits(self.store, self.audit, self.on_write)

    @property
    def lifecycle(self) -> LifecycleSettings:
        return self.settings.lifecycle

    def agent(self, name: str) -> AgentLifecycle:
        """Return how jobs treat the memories of this agent."""
        return self.settings.agents.get(name, AgentSettings()).lifecycle


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one run may do. should_stop: called between batches; a stopped run continues the next time."""

    max_changes: int = 100_000
    dry_run: bool = False
    should_stop: Callable[[], bool] = lambda: False


UNLIMITED = Limits()


@dataclass(frozen=True, slots=True)
class Planned:
    """One thing a dry run would do."""

    id: str
    action: str
    reason: str


@dataclass(frozen=True, slots=True)
class JobReport:
    """What one run did. changed: versions written. left: there was more to do. counts: the job's own figures."""

    job: str
    at: datetime
    changed: int = 0
    left: bool = False
    dry_run: bool = False
    notes: tuple[str, ...] = ()
    counts: Mapping[str, float] = field(default_factory=dict)
    planned: tuple[Planned, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """One revision to write. source: the older version whose text the new one repeats, to reuse its vectors."""

    revision: Revision
    source: Memory | None = None


def live(*conditions: Condition, states: Iterable[Status] = (Status.ACTIVE,)) -> Where:
    """Return the filter for current versions in these states."""
    return Where((OneOf("state", tuple(s.value for s in states)), *conditions))


def current_where() -> Where:
    """Return the filter for current versions of any status."""
    return Where((), (OneOf("state", (HISTORY,)),))


def pages(
    store: PageReader, collection: str, where: Where, *, size: int, with_vectors: bool = False
) -> Iterator[list[Entry]]:
    """Yield every matching entry, page by page; at least one page, which may be empty."""
    after: str | None = None
    while True:
        entries, after = store.scan(collection, where, page=size, after=after, with_vectors=with_vectors)
        yield entries
        if after is None:
            return


def scan(up: Upkeep, collection: str, where: Where, limits: Limits = UNLIMITED) -> Iterable[Memory]:
    """Yield every matching version, page by page; no lock is held in between."""
    after: str | None = None
    for _ in range(SCAN_MAX // PAGE):
        up.yield_to_requests()
        entries, after = up.store.scan(collection, where, page=PAGE, after=after)
        for number, entry in enumerate(entries):
            if number % YIELD_EVERY == 0:
                up.yield_to_requests()
            yield entry.memory
        if after is None or limits.should_stop():
            return


def write(
    up: Upkeep,
    changes: Sequence[Change],
    *,
    added: Sequence[Memory] = (),
    kind: str,
    by: str,
    at: datetime,
    whole: bool = False,
) -> list[Memory]:
    """Write revisions and new memories of one collection in one batch; return the new versions that were written.

    A change whose memory was revised or erased since is skipped; with `whole` all of them are. `added` are written only
    if no version of that id and number exists, so a repeat after a kill adds nothing twice.
    """
    names = {memory.layer.value for memory in (*(change.revision.new for change in changes), *added)}
    if not names:
        return []
    if len(names) > 1:
        raise ValueError(f"one batch writes one collection, not {sorted(names)}")
    collection = names.pop()
    up.yield_to_requests()

    def put() -> list[Memory]:
        entries, written = _entries(up, collection, changes, added)
        if not written or (whole and len(written) < len(changes) + len(added)):
            return []
        up.commits.put(entries, records=[audit_of(written)], kind=kind, by=by, at=at)
        return written

    with up.lock:
        return retry_on_conflict(put)


def _entries(
    up: Upkeep, collection: str, changes: Sequence[Change], added: Sequence[Memory]
) -> tuple[list[Entry], list[Memory]]:
    point_ids = [change.revision.closed.point_id for change in changes]
    point_ids += [change.source.point_id for change in changes if change.source is not None]
    point_ids += [memory.point_id for memory in added]
    stored = {e.memory.point_id: e for e in up.store.get(collection, list(dict.fromkeys(point_ids)), with_vectors=True)}
    entries: list[Entry] = []
    written: list[Memory] = []
    for change in changes:
        old = stored.get(change.revision.closed.point_id)
        if old is None or not old.memory.is_current:
            continue
        # Uses counted since the job read the memory move to the new version.
        usage, revision = old.memory.usage, old.memory.revision
        new = replace(change.revision.new, receipts=old.memory.receipts, usage=usage, revision=revision)
        source = stored.get(change.source.point_id, old) if change.source is not None else old
        entries += [
            entry_like(new, source),
            replace(old, memory=replace(change.revision.closed, usage=usage, revision=revision)),
        ]
        written.append(new)
    for memory in added:
        if memory.point_id not in stored:
            entries.append(new_entry(memory))
            written.append(memory)
    return entries, written


def entry_like(new: Memory, source: Entry) -> Entry:
    """Return the entry of `new`, with the vectors of `source` when both embed the same text."""
    if embedded_text(new) == embedded_text(source.memory) and new.context == source.memory.context:
        return Entry(new, source.vectors, source.words if new.tags == source.memory.tags else searched_words(new))
    return new_entry(new)


def new_entry(memory: Memory) -> Entry:
    """Return an entry with words; its vector is made in the background, by the job that embeds what waits."""
    return Entry(memory, {}, searched_words(memory))


def save_state(up: Upkeep, name: str, state: Record) -> None:
    """Store JSON under this name, replaced whole; in a database with the unit that it is called in."""
    up.records.write(state_record(name), json.dumps(state, ensure_ascii=False).encode(), before=None)


def drop_state(up: Upkeep, name: str) -> None:
    """Remove what was stored under this name, durable on return."""
    up.records.delete(state_record(name), before=None)


def batches(changes: Iterable[Change]) -> Iterable[Sequence[Change]]:
    """Yield the changes in batches of one collection each, in order, each as soon as it is full."""
    waiting: dict[str, list[Change]] = {name: [] for name in COLLECTIONS_KEPT}
    for change in changes:
        batch = waiting[change.revision.new.layer.value]
        batch.append(change)
        if len(batch) >= BATCH:
            yield tuple(batch)
            batch.clear()
    yield from (tuple(batch) for batch in waiting.values() if batch)


def carry_out(
    up: Upkeep,
    job: str,
    changes: Iterable[Change],
    *,
    at: datetime,
    limits: Limits,
    action: str,
    counts: Mapping[str, float] | None = None,
) -> JobReport:
    """Write changes as they come, batch by batch, or only plan them; return the job's report.

    Nothing is kept longer than needed: a night reads every memory there is, and a hundred thousand objects are a fifth
    of a second in which the garbage collector stops every thread.
    """
    changes = islice(changes, limits.max_changes)
    if limits.dry_run:
        planned = [Planned(c.revision.new.id, action, c.revision.new.reason) for c in islice(changes, PLANNED_SHOWN)]
        total = len(planned) + sum(1 for _ in changes)
        counts = {**(counts or {}), f"would_{action}": float(total)}
        return JobReport(job, at, dry_run=True, planned=tuple(planned), counts=counts)
    changed, left = 0, False
    for batch in batches(changes):
        if limits.should_stop():
            left = True
            break
        changed += len(write(up, batch, kind=job, by=f"job:{job}", at=at))
    return JobReport(job, at, changed=changed, left=left, counts={**(counts or {}), "changed": float(changed)})
