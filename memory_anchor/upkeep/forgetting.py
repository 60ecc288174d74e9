"""Forgetting: faded memories are archived, and a digest of groups of them stays searchable.

Forgetting never erases: an archived memory leaves search, keeps its id and comes back with `restore`. Two jobs.
`expire_events` archives events past their time to live. `forget` archives what faded, by one of five policies (the
six-strategy survey "Forgetful but Faithful" without FIFO, which LRU covers):

- priority_decay: strength, which priority raises and days without access lower; the weakest first.
- reflection_summary: only what can be folded: groups of faded events become one digest that cites them.
- lru: nothing until `max_entries` is passed, then the least recently used. Meant for caches.
- random_drop: of what is no longer vivid, a seeded share per night.
- hybrid (default): priority_decay, and groups are folded into a digest as they go.

Safe under every policy: pinned, written by a human, instructions, used within the last days, and every L3 fact that was
not extracted unless the user opted its type in. One night archives at most `max_archived_share` of the active memories
plus as many as were written in a recent day (at least three, so that a small store can fold too): a store in balance
loses what it gains. The share alone kept events alive long after their strength was gone; a peer's consolidation
without a cap ate 26 % of a store in four days. What a killed run archived that night counts against the next run's cap,
since the versions name their author.

A digest is what stays of several memories when no language model summarises them: oldest first, one line each, the
first sentence cut at a word. The sources are cited and stay stored. Deterministic, in both languages.
"""

from __future__ import annotations

import hashlib
import heapq
from base64 import b32encode
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from memory_anchor.base.hashing import content_hash
from memory_anchor.domain.activation import FADING, age_days, last_used_at, strength_of, with_highest_importance
from memory_anchor.domain.model import Caller, Citation, Layer, Memory, MemoryType, Origin, Status, Trust, WriteMode
from memory_anchor.domain.rights import HUMAN_AUTHOR, Action, may
from memory_anchor.domain.versions import revise
from memory_anchor.domain.where import Between, OneOf
from memory_anchor.language.safe_regex import late
from memory_anchor.upkeep.job_kit import (
    BATCH,
    COLLECTIONS_KEPT,
    PAGE,
    UNLIMITED,
    Change,
    JobReport,
    Limits,
    Upkeep,
    carry_out,
    live,
    scan,
    write,
)

LINE_CHARS = 160
LINES_MAX = 40
DIGEST_CHARS = 7_500
"""Below the longest content a memory may have."""
_SENTENCE_END = late(r"(?<=[.!?])\s|(?<=[\u3002\uff01\uff1f\uff1b])|\n")
_CHINESE = late(r"[\u4e00-\u9fff]")


def first_sentence(text: str) -> str:
    """Return the first sentence of `text`, at most `LINE_CHARS` characters, cut at a word and marked when cut.

    >>> first_sentence("Deploy failed. The disk was full.")
    'Deploy failed.'
    """
    first = next((part.strip() for part in _SENTENCE_END.split(text) if part.strip()), "")
    if len(first) <= LINE_CHARS:
        return first
    cut = first[: LINE_CHARS - 1]
    at = cut.rfind(" ")
    return (cut[:at] if at > LINE_CHARS // 2 else cut).rstrip() + "…"


def is_mostly_chinese(texts: Sequence[str]) -> bool:
    """Return whether these texts are for a reader of Chinese: a fifth of the characters is enough."""
    joined = "".join(texts)
    return len(_CHINESE.findall(joined)) * 5 >= max(1, len(joined))


def ordered_digest(memories: Sequence[Memory]) -> str:
    """Return the digest of at least one memory, in the order in which things happened."""
    ordered = chronological(memories)
    first, last = ordered[0].happened_at.date(), ordered[-1].happened_at.date()
    chinese = is_mostly_chinese([m.content for m in ordered])
    span = f"{first}" if first == last else (f"{first} 至 {last}" if chinese else f"{first} to {last}")
    head = f"{len(ordered)} 条记忆的摘要({span})" if chinese else f"Digest of {len(ordered)} memories ({span})"
    dates: dict[str, str] = {}
    for memory in ordered:
        dates.setdefault(first_sentence(memory.content), f"{memory.happened_at.date()}: " if first != last else "")
    lines = [f"- {date}{sentence}" for sentence, date in dates.items() if sentence][:LINES_MAX]
    return "\n".join([f"{head}:", *lines])[:DIGEST_CHARS]


def chronological(memories: Sequence[Memory]) -> list[Memory]:
    """Return memories by when they happened, within one instant by their number in the conversation."""
    return sorted(memories, key=lambda m: (m.happened_at, m.conversation_seq or 0, m.id))


def citations_of(memories: Sequence[Memory]) -> tuple[Citation, ...]:
    """Return one citation per source memory, naming the exact version that was read."""
    return tuple(
        Citation(kind="memory_entry", ref=memory.version_id, observed_at=memory.happened_at, trust=Trust.SEMI_TRUSTED)
        for memory in chronological(memories)
    )


def stable_id(prefix: str, *parts: str) -> str:
    """Return a 13-character id, the same for the same parts: a job run twice writes the same memory."""
    digest = hashlib.blake2b("\x1f".join(parts).encode(), digest_size=8).digest()
    return prefix + b32encode(digest).decode().lower().rstrip("=")[: 13 - len(prefix)]


FORGET = "forget"
EXPIRE = "expire_events"
FORGET_AUTHOR = "job:forget"
EXPIRE_AUTHOR = "job:expire_events"
NIGHT = timedelta(hours=20)
DROP_SHARE = 0.05
"""Of the faded, what `random_drop` takes in a night."""
"""Runs closer together than this share one cap."""
WEEK_DAYS = 7
FOLD_LEAST = 3
"""Fewer memories than this are archived as they are; a digest of two saves nothing."""
FOLD_MOST = 20
FOLDED_TYPES = frozenset(
    {MemoryType.EVENT, MemoryType.EPISODE, MemoryType.NOTE, MemoryType.DISCOVERY, MemoryType.EMOTION}
)
FOLDING = ("reflection_summary", "hybrid")
POLICIES = ("priority_decay", "reflection_summary", "lru", "random_drop", "hybrid")


@dataclass(frozen=True, slots=True)
class FadingMemory:
    """A memory that forgetting may take: only what choosing needs, since a night reads every memory there is.

    strength: 0 to 100, as `show` gives it. has_faded: below its threshold. group: name of the group it can be folded
    with, "" for none.
    """

    id: str
    point: str
    collection: str
    strength: float
    idle_days: float
    has_faded: bool
    group: str
    agent: str


@dataclass(frozen=True, slots=True)
class Choice:
    """chosen: what to archive, first to go first, as many as the night's cap allows. total: how many would go."""

    chosen: tuple[FadingMemory, ...]
    total: int


def may_forget(memory: Memory, at: datetime, up: Upkeep) -> bool:
    """Return whether forgetting may take this memory at `at`; the module's docstring says which are safe."""
    if not may(Action.FORGET, Caller.SYSTEM, [memory]) or memory.type is MemoryType.INSTRUCTION:
        return False
    if not up.agent(memory.scope.agent).enabled:
        return False
    if memory.author.startswith(HUMAN_AUTHOR):  # edited or restored by hand: a human wants it here
        return False
    if memory.status is not Status.ACTIVE or not memory.is_current:
        return False
    if age_days(last_used_at(memory), at) < up.lifecycle.recent_days:
        return False
    if memory.layer is Layer.VERIFIED_FACT:
        return memory.origin is Origin.EXTRACTED or memory.type.value in up.lifecycle.forget_facts
    return memory.layer is Layer.EVENT_LOG


def expire_events(up: Upkeep, at: datetime, limits: Limits = UNLIMITED) -> JobReport:
    """Archive events past their time to live; a pinned one stays. Not counted against the cap of `forget`."""
    where = live(
        Between("expires_at", below=at),
        OneOf("pinned", ("no",)),
        states=(Status.ACTIVE, Status.PENDING, Status.DISPUTED),
    )
    changes = (
        _archive(memory, at, EXPIRE_AUTHOR, f"its time to live of {memory.ttl_days or 0} days ended")
        for memory in scan(up, Layer.EVENT_LOG.value, where, limits)
        if memory.expires_at is not None
    )
    return carry_out(up, EXPIRE, changes, at=at, limits=limits, action="archive")


def forget(up: Upkeep, at: datetime, limits: Limits = UNLIMITED) -> JobReport:
    """Archive what faded by the user's policy, weakest first, up to the night's cap.

    Raises ValueError: a policy that does not exist.
    """
    if up.lifecycle.policy not in POLICIES:
        raise ValueError(f"policy {up.lifecycle.policy!r}; allowed are {', '.join(POLICIES)}")
    active = sum(up.store.count(name, live()) for name in COLLECTIONS_KEPT)
    before = _archived_this_night(up, at)
    cap = max(FOLD_LEAST, int(up.lifecycle.max_archived_share * (active + before)) + _written_a_day(up, at))
    most = max(0, min(cap - before, limits.max_changes))
    over = {name: max(0, held - limit) for name, limit, held in _limited_agents(up)}
    choice = choose(list(candidates(up, at, limits)), up, at, active=active, most=most, over_of=over)
    is_unfinished = choice.total > len(choice.chosen)
    reasons = {c.id: _reason(c, up) for c in choice.chosen}
    memories = _memories(up, choice.chosen, at)
    counts = {"active": float(active), "faded": float(choice.total), "cap": float(cap)}
    changes = (_archive(memory, at, FORGET_AUTHOR, reasons[memory.id]) for memory in memories)
    if limits.dry_run:
        report = carry_out(up, FORGET, changes, at=at, limits=limits, action="archive", counts=counts)
        return replace(report, left=is_unfinished)
    groups = _groups(memories) if up.lifecycle.policy in FOLDING else []
    folded, digests = _fold(up, groups, reasons, at=at, limits=limits)
    others = (change for change in changes if change.revision.new.id not in folded)
    report = carry_out(up, FORGET, others, at=at, limits=limits, action="archive")
    notes = (f"stopped at {cap} of {active + before} active memories; goes on the next night",) if is_unfinished else ()
    archived = report.changed + len(folded)
    counts |= {"archived": float(archived), "digests": float(digests)}
    return replace(report, changed=archived, left=is_unfinished or report.left, notes=notes, counts=counts)


def _archive(memory: Memory, at: datetime, author: str, reason: str) -> Change:
    return Change(revise(memory, replace(memory, status=Status.ARCHIVED), at=at, author=author, reason=reason))


def candidates(up: Upkeep, at: datetime, limits: Limits = UNLIMITED) -> Iterable[FadingMemory]:
    """Yield every memory that forgetting may take, with its strength."""
    old_enough = Between("recorded_at", below=at - timedelta(days=up.lifecycle.recent_days))
    for collection in COLLECTIONS_KEPT:
        where = live(old_enough, OneOf("pinned", ("no",)))
        for memory in scan(up, collection, where, limits):
            if not may_forget(memory, at, up):
                continue
            strength = strength_of(memory, at, up.activation)
            idle = age_days(last_used_at(memory), at)
            group, agent = _group_of(memory), memory.scope.agent
            own = up.agent(agent).forget_threshold
            faded = strength < (up.lifecycle.forget_below if own is None else own)
            yield FadingMemory(memory.id, memory.point_id, collection, strength, idle, faded, group, agent)


def _limited_agents(up: Upkeep) -> Iterable[tuple[str, int, int]]:
    """Yield (agent, its `max_entries`, its active memories) of those that have a limit of their own."""
    for name in up.settings.agents:
        if (limit := up.agent(name).max_entries) is not None:
            held = sum(up.store.count(collection, live(OneOf("agent", (name,)))) for collection in COLLECTIONS_KEPT)
            yield name, limit, held


def choose(
    fading: Sequence[FadingMemory],
    up: Upkeep,
    at: datetime,
    *,
    active: int,
    most: int,
    over_of: Mapping[str, int] = MappingProxyType({}),
) -> Choice:
    """Return what the policy would archive; pure apart from the seeded draw.

    active: how many memories are active; what exceeds `max_entries` goes too, under every policy. most: that may go.
    over_of: agent -> how many of its own exceed its limit.
    """
    chosen_ids = _ids_to_forget(fading, up, at)
    over = min(max(0, active - up.lifecycle.max_entries - len(chosen_ids)), len(fading) - len(chosen_ids))
    order = _longest_unused if up.lifecycle.policy == "lru" else _weakest
    going = [c for c in fading if c.id in chosen_ids]
    sizes = Counter(c.group for c in going if c.group) if up.lifecycle.policy in FOLDING else Counter()
    weakest: dict[str, float] = {}
    for c in going:
        if sizes[c.group] >= FOLD_LEAST:
            weakest[c.group] = min(weakest.get(c.group, c.strength), c.strength)
    # Not a sort of all, which would stop every other thread until it is done; nsmallest works in small steps.
    chosen = heapq.nsmallest(most, going, key=lambda c: (weakest.get(c.group, c.strength), c.group, order(c)))
    # A digest's memories go together; of a group that the cap cuts too short, nothing goes yet.
    fitting = Counter(c.group for c in chosen)
    chosen = [c for c in chosen if c.group not in weakest or fitting[c.group] >= FOLD_LEAST]
    others = [c for c in fading if c.id not in chosen_ids]
    beyond = heapq.nsmallest(over, others, key=order)
    taken, ids = Counter(c.agent for c in (*going, *beyond)), {c.id for c in beyond}
    for agent, more in over_of.items():
        own = (c for c in others if c.agent == agent and c.id not in ids)
        beyond += heapq.nsmallest(max(0, more - taken[agent]), own, key=order)
    chosen += beyond[: most - len(chosen)]
    return Choice(tuple(chosen), len(chosen_ids) + len(beyond))


def _ids_to_forget(fading: Sequence[FadingMemory], up: Upkeep, at: datetime) -> set[str]:
    """Return the ids that the policy takes, however many memories there are."""
    match up.lifecycle.policy:
        case "lru":
            return set()
        case "random_drop":
            day, seed = at.toordinal(), up.activation.seed
            return {c.id for c in fading if c.strength < FADING and _draw(c.id, day, seed) < DROP_SHARE}
        case "reflection_summary":
            sizes = Counter(c.group for c in fading if c.has_faded and c.group)
            return {c.id for c in fading if c.has_faded and sizes[c.group] >= FOLD_LEAST}
        case _:
            return {c.id for c in fading if c.has_faded}


def _weakest(candidate: FadingMemory) -> tuple[float, float, str]:
    return candidate.strength, -candidate.idle_days, candidate.id


def _longest_unused(candidate: FadingMemory) -> tuple[float, str]:
    return -candidate.idle_days, candidate.id


def _memories(up: Upkeep, chosen: Sequence[FadingMemory], at: datetime) -> list[Memory]:
    """Return the chosen memories as stored now, in their order, without those that became safe meanwhile."""
    stored: dict[str, Memory] = {}
    for collection in COLLECTIONS_KEPT:
        points = [c.point for c in chosen if c.collection == collection]
        for start in range(0, len(points), PAGE):
            entries = up.store.get(collection, points[start : start + PAGE])
            stored |= {entry.memory.point_id: entry.memory for entry in entries}
    current = (stored.get(c.point) for c in chosen)
    return [memory for memory in current if memory is not None and may_forget(memory, at, up)]


def _draw(memory_id: str, day: int, seed: int) -> float:
    """Return a number from 0 to 1, the same for one memory all day."""
    import random

    return random.Random(f"drop|{seed}|{memory_id}|{day}").random()


def _reason(candidate: FadingMemory, up: Upkeep) -> str:
    if candidate.has_faded:
        return f"faded to strength {candidate.strength:.0f}, unused for {candidate.idle_days:.0f} days"
    if up.lifecycle.policy == "random_drop":
        return f"dropped at random among the faded, unused for {candidate.idle_days:.0f} days"
    limit = up.agent(candidate.agent).max_entries or up.lifecycle.max_entries
    return f"more than {limit} memories; unused for {candidate.idle_days:.0f} days"


def _archived_this_night(up: Upkeep, at: datetime) -> int:
    """Return how many memories `forget` archived in the hours before `at`, in any run."""
    where = live(
        OneOf("author", (FORGET_AUTHOR,)),
        Between("recorded_at", at_least=at - NIGHT, below=at + timedelta(microseconds=1)),
        states=(Status.ARCHIVED,),
    )
    return sum(up.store.count(name, where) for name in COLLECTIONS_KEPT)


def _written_a_day(up: Upkeep, at: datetime) -> int:
    """Return how many of the active memories were written in the last day, or per day of the last week if more.

    The week, since nothing is written on a weekend; the day, since what fades within days is no longer active.
    """

    def since(days: int) -> int:
        fresh = live(Between("recorded_at", at_least=at - timedelta(days=days), below=at))
        digests = live(OneOf("author", (FORGET_AUTHOR,)), *fresh.all_of[1:])
        return sum(up.store.count(name, fresh) - up.store.count(name, digests) for name in COLLECTIONS_KEPT)

    return max(since(1), since(WEEK_DAYS) // WEEK_DAYS)


def _groups(memories: Sequence[Memory]) -> list[list[Memory]]:
    """Return groups of events of one audience that can share a digest: a conversation's, else a day's."""
    groups: dict[str, list[Memory]] = defaultdict(list)
    for memory in memories:
        if name := _group_of(memory):
            groups[name].append(memory)
    parts = (group[start : start + FOLD_MOST] for group in groups.values() for start in range(0, len(group), FOLD_MOST))
    return [part for part in parts if len(part) >= FOLD_LEAST]


def _group_of(memory: Memory) -> str:
    """Return the name of the group a memory may be folded with, "" for none."""
    if memory.layer is not Layer.EVENT_LOG or memory.type not in FOLDED_TYPES:
        return ""
    group = memory.scope.conversation or memory.happened_at.date().isoformat()
    return "\n".join((memory.audience, memory.scope.user, memory.scope.agent, group))


def _fold(
    up: Upkeep, groups: Sequence[Sequence[Memory]], reasons: Mapping[str, str], *, at: datetime, limits: Limits
) -> tuple[set[str], int]:
    """Write one digest per group and archive its members, each group in one atomic batch.

    Return the ids of those archived, and the number of digests.
    """
    folded: set[str] = set()
    digests = 0
    for group in groups:
        if limits.should_stop():
            break
        summary = digest_memory(group, at=at, author=FORGET_AUTHOR)
        changes = [
            _archive(memory, at, FORGET_AUTHOR, f"{reasons[memory.id]}; kept in digest {summary.id}")
            for memory in group[:BATCH]
        ]
        written = {m.id for m in write(up, changes, added=[summary], kind=FORGET, by=FORGET_AUTHOR, at=at)}
        folded |= written & {m.id for m in group}
        digests += summary.id in written
    return folded, digests


def digest_memory(group: Sequence[Memory], *, at: datetime, author: str) -> Memory:
    """Return the summary of a group of one audience, as important as its most important, as trusted as its least."""
    first = group[0]
    text = ordered_digest(group)
    summary = Memory(
        id=stable_id("d", *sorted(m.id for m in group)),
        content=text,
        layer=Layer.EVENT_LOG,
        type=MemoryType.SUMMARY,
        scope=first.scope,
        recorded_at=at,
        valid_from=min(m.happened_at for m in group),
        when=max(m.happened_at for m in group),
        confidence=min(m.confidence for m in group),
        # A summary of what a document said is no better than the document.
        origin=Origin.DOCUMENT if any(m.origin is Origin.DOCUMENT for m in group) else Origin.EXTRACTED,
        write_mode=WriteMode.GHOSTWRITER,
        extractor_model="digest",
        visibility=first.visibility,
        citations=citations_of(group),
        content_hash=content_hash(text),
        author=author,
        reason=f"stands for {len(group)} archived memories",
    )
    return with_highest_importance(summary, group)
