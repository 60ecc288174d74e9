"""What every job works with, and the one way in which jobs write.

A job gets a frozen `Upkeep` of ports and settings, an instant and its limits, and returns a report. It changes memories
only through `write`: revisions of one collection in one atomic batch, under the writers' lock, each compared with what
is stored now. A memory that somebody changed since the job looked is left alone, so jobs never need to hold the lock
while they think, and a job killed anywhere leaves whole memories and simply finds less to do next time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path

from memory_anchor.activation import DEFAULTS, ActivationSettings
from memory_anchor.errors import retry_on_conflict
from memory_anchor.files import make_private, remove_durably, write_atomic
from memory_anchor.foreground import FairLock
from memory_anchor.json_values import Json, Record, parsed
from memory_anchor.language.indexing import embedded_text, searched_words
from memory_anchor.layers.records import audit_of
from memory_anchor.model import HISTORY, Memory, MemoryType, Status
from memory_anchor.ports import AuditLog, Entry, LanguageModel, MemoryStore
from memory_anchor.recall.cooccurrence import TagNeighbours
from memory_anchor.upkeep.disagreements import RecalledTogether
from memory_anchor.versions import Revision
from memory_anchor.where import Condition, OneOf, Where

COLLECTIONS_KEPT = ("event_log", "verified_fact")
"""The collections whose memories fade, merge and are undone, in the order jobs visit them."""
BATCH = 25
"""Revisions a write, two points each: a few milliseconds of store time, so that no search waits longer."""
PAGE = 50
"""Memories a read: the engine hands a page over in one piece, 2 ms of it, and other threads wait for it."""
ASIDE_EVERY = 10
"""Memories between two looks at whether a request waits: under a millisecond of work."""
SCAN_MAX = 1_000_000
"""Memories one job looks at, at most."""
PLANNED_SHOWN = 1_000
"""Lines of a dry run."""


@dataclass(frozen=True, slots=True)
class AgentRules:
    """What one agent's memories go by instead (`agents.NAME.lifecycle`); None: as everybody's.

    tended: jobs may forget and merge its memories at all; a time to live ends all the same.
    """

    tended: bool = True
    forget_below: float | None = None
    merge_threshold: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryRules:
    """What one memory goes by, in the units of `LifecycleRules`."""

    tended: bool
    forget_below: float
    merge_threshold: float


@dataclass(frozen=True, slots=True)
class LifecycleRules:
    """The user's settings of lifecycle jobs, in the units of their names.

    forget_below: strength 0 to 100 under which a memory is archived. max_archived_share: of the active memories, a
    night. forget_facts: L3 types the user lets jobs archive. recent_days: a memory used within them is never archived.
    asks_user: types whose contradictions wait for the user.
    """

    max_entries: int = 20_000
    max_archived_share: float = 0.02
    forget_below: float = 20.0
    policy: str = "hybrid"
    forget_facts: frozenset[MemoryType] = frozenset()
    asks_user: frozenset[MemoryType] = frozenset()
    recent_days: float = 7.0
    drop_share: float = 0.05
    idle_conversation_s: int = 1800
    merge_threshold: float = 0.95
    agents: Mapping[str, AgentRules] = field(default_factory=dict)

    def of(self, memory: Memory) -> MemoryRules:
        """Return what the memory goes by: its agent's rules where they say something, else these."""
        own = self.agents.get(memory.scope.agent, AgentRules())
        return MemoryRules(
            own.tended,
            self.forget_below if own.forget_below is None else own.forget_below,
            self.merge_threshold if own.merge_threshold is None else own.merge_threshold,
        )


def _nobody_waits() -> None:
    """The default of `Upkeep.stand_aside`: no requests beside."""


def _nobody_listens(entries: Sequence[Entry]) -> None:
    """The default of `Upkeep.on_write`: no search cache to tell."""
    del entries


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The ports of a job. `lock` is the one that every writer of this store takes; `on_write` tells searches.

    state_dir: where jobs keep what can be made anew (how far they came, tables); None keeps nothing. segment: events of
    a conversation in order -> the same in whole topics. extract: saves the facts they hold, returns how many; a repeat
    must save nothing twice. tags: told when tags were counted anew. recalled: what searches showed together.
    stand_aside: returns when no request waits for an answer, or soon; asked between small pieces of work, never with
    `lock` held. batch_item: held while one item of a pushed batch is read and written, and by a purge.
    """

    store: MemoryStore
    audit: AuditLog
    lock: AbstractContextManager[bool | None]
    on_write: Callable[[Sequence[Entry]], None] = _nobody_listens
    model: LanguageModel | None = None
    rules: LifecycleRules = field(default_factory=LifecycleRules)
    activation: ActivationSettings = DEFAULTS
    state_dir: Path | None = None
    segment: Callable[[Sequence[Memory]], Sequence[Sequence[Memory]]] | None = None
    extract: Callable[[Sequence[Memory]], int] | None = None
    tags: TagNeighbours | None = None
    recalled: RecalledTogether | None = None
    stand_aside: Callable[[], None] = _nobody_waits
    batch_item: AbstractContextManager[bool | None] = field(default_factory=FairLock)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one run may do. should_stop is asked between batches; a stopped run goes on the next time."""

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
    """What one run did. changed: versions written; left: there was more to do; counts: whatever the job counts."""

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
    """One revision to write. source: the older version whose text the new one repeats, so that its vectors serve."""

    revision: Revision
    source: Memory | None = None


def live(*conditions: Condition, states: Iterable[Status] = (Status.ACTIVE,)) -> Where:
    """Return the filter for current versions in these states."""
    return Where((OneOf("state", tuple(s.value for s in states)), *conditions))


def every_current() -> Where:
    """Return the filter for current versions whatever their status."""
    return Where((), (OneOf("state", (HISTORY,)),))


def scan(up: Upkeep, collection: str, where: Where, limits: Limits = UNLIMITED) -> Iterable[Memory]:
    """Yield every matching version, a page at a time, without holding anything between pages."""
    after: str | None = None
    for _ in range(SCAN_MAX // PAGE):
        up.stand_aside()
        entries, after = up.store.scan(collection, where, page=PAGE, after=after)
        for number, entry in enumerate(entries):
            if number % ASIDE_EVERY == 0:
                up.stand_aside()
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

    A change whose memory was revised or erased since is left out; `whole`: then all of them are. `added` are written
    only where no version of that id and number exists, so a repeat after a kill adds nothing twice.
    """
    collection = _collection([*(c.revision.new for c in changes), *added])
    if collection is None:
        return []
    up.stand_aside()

    def put() -> tuple[list[Entry], list[Memory]]:
        entries, written = _entries(up, collection, changes, added)
        if not written or (whole and len(written) < len(changes) + len(added)):
            return [], []
        with up.audit.recording(kind, [audit_of(written)], by=by, at=at):
            up.store.put(collection, entries)
        return entries, written

    with up.lock:
        entries, written = retry_on_conflict(put)
    if written:
        up.on_write(entries)
    return written


def _collection(memories: Sequence[Memory]) -> str | None:
    names = {memory.layer.value for memory in memories}
    if len(names) > 1:
        raise ValueError(f"one batch writes one collection, not {sorted(names)}")
    return names.pop() if names else None


def _entries(
    up: Upkeep, collection: str, changes: Sequence[Change], added: Sequence[Memory]
) -> tuple[list[Entry], list[Memory]]:
    wanted = [change.revision.closed.point_id for change in changes]
    wanted += [change.source.point_id for change in changes if change.source is not None]
    wanted += [memory.point_id for memory in added]
    stored = {e.memory.point_id: e for e in up.store.get(collection, list(dict.fromkeys(wanted)), with_vectors=True)}
    entries: list[Entry] = []
    written: list[Memory] = []
    for change in changes:
        old = stored.get(change.revision.closed.point_id)
        if old is None or not old.memory.is_current:
            continue
        # Uses counted since the job looked belong to the memory and move on with it.
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
    """Return an entry with words; its meaning is embedded behind, by the job that does that for every write."""
    return Entry(memory, {}, searched_words(memory))


def load_state(state_dir: Path | None, name: str) -> Json:
    """Return what a job kept under this name, None when there is nothing or it is torn."""
    if state_dir is None:
        return None
    try:
        return parsed((state_dir / f"{name}.json").read_bytes())
    except (OSError, ValueError):
        return None


def save_state(up: Upkeep, name: str, state: Record) -> None:
    """Keep JSON under this name, replaced whole."""
    if up.state_dir is None:
        return
    make_private(up.state_dir)
    write_atomic(up.state_dir / f"{name}.json", json.dumps(state, ensure_ascii=False).encode())


def drop_state(up: Upkeep, name: str) -> None:
    """Remove what was kept under this name, for good also where the power is cut right after."""
    if up.state_dir is not None:
        remove_durably(up.state_dir / f"{name}.json")


def batches(changes: Iterable[Change], size: int = BATCH) -> Iterable[Sequence[Change]]:
    """Yield the changes in batches of one collection each, in order, each as soon as it is full."""
    held: dict[str, list[Change]] = {name: [] for name in COLLECTIONS_KEPT}
    for change in changes:
        own = held[change.revision.new.layer.value]
        own.append(change)
        if len(own) >= size:
            yield tuple(own)
            own.clear()
    yield from (tuple(own) for own in held.values() if own)


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
    """Write changes as they are found, batch by batch, or only plan them; return the job's report.

    What is not needed any more is let go of at once: a night looks at every memory there is, and a hundred thousand
    objects kept are a fifth of a second in which the garbage collector stops every thread.
    """
    wanted = islice(changes, limits.max_changes)
    if limits.dry_run:
        planned, found = [], 0
        for change in wanted:
            found += 1
            if found <= PLANNED_SHOWN:
                planned.append(Planned(change.revision.new.id, action, change.revision.new.reason))
        told = {**(counts or {}), f"would_{action}": float(found)}
        return JobReport(job, at, dry_run=True, planned=tuple(planned), counts=told)
    changed, left = 0, False
    for batch in batches(wanted):
        if limits.should_stop():
            left = True
            break
        changed += len(write(up, batch, kind=job, by=f"job:{job}", at=at))
    return JobReport(job, at, changed=changed, left=left, counts={**(counts or {}), "changed": float(changed)})
