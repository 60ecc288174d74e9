"""What faded leaves search, and the digest that remains readable of it.

An ordered digest: what remains readable of several memories when no language model writes their story.

Oldest first, one line each, the opening sentence of each cut at a word; the order carries what came of what. The
sources are cited and stay stored, so a digest may lose detail without losing memory. Deterministic, both languages.

Forgetting archives, it never erases: what faded leaves search, keeps its id and comes back with `restore`.

Two jobs. `expire_events` archives what its writer gave a time to live. `forget` archives what faded, by one of five
policies (the six-strategy survey "Forgetful but Faithful" without FIFO, which LRU covers):

- priority_decay: strength, which priority raises and days without access lower; the weakest first.
- reflection_summary: only what can be folded: groups of faded events become one digest that cites them.
- lru: nothing until `max_entries` is passed, then the least recently used. Meant for caches.
- random_drop: of what is no longer vivid, a seeded share a night.
- hybrid (default): priority_decay, and groups are folded into a digest as they go.

Who is safe, whatever the policy: pinned, written by a human, instructions, used within the last days, and every L3
fact that was not extracted unless the user opted its type in. One night archives at most `max_archived_share` of the
active memories (three in a small store, so that it can fold too) and as many as were written a day of late: a
store in balance loses what it gains. The share alone kept events alive long after their strength was gone; a peer's
consolidation without a cap ate 26 % of a store in four days. What a killed run archived that night counts against the
cap of the next, since the versions themselves say who wrote them.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from base64 import b32encode
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from memory_anchor.activation import FADING, age_days, last_used_at, strength_of, with_highest_importance
from memory_anchor.hashing import content_hash
from memory_anchor.model import Caller, Citation, Layer, Memory, MemoryType, Origin, Status, Trust, WriteMode
from memory_anchor.rights import HUMAN_AUTHOR, Deed, may
from memory_anchor.upkeep.upkeep import (
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
from memory_anchor.versions import revise
from memory_anchor.where import Between, OneOf

LINE_CHARS = 160
LINES_MAX = 40
DIGEST_CHARS = 7_500
"""Below the longest content a memory may have."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[\u3002\uff01\uff1f\uff1b])|\n")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")


def opening(text: str) -> str:
    """Return the first sentence of `text`, at most `LINE_CHARS` characters, cut at a word and marked when cut.

    >>> opening("Deploy failed. The disk was full.")
    'Deploy failed.'
    """
    first = next((part.strip() for part in _SENTENCE_END.split(text) if part.strip()), "")
    if len(first) <= LINE_CHARS:
        return first
    cut = first[: LINE_CHARS - 1]
    at = cut.rfind(" ")
    return (cut[:at] if at > LINE_CHARS // 2 else cut).rstrip() + "…"


def is_mostly_chinese(texts: Sequence[str]) -> bool:
    """Return whether a reader of these texts expects Chinese: a fifth of the characters is enough."""
    joined = "".join(texts)
    return len(_CHINESE.findall(joined)) * 5 >= max(1, len(joined))


def ordered_digest(memories: Sequence[Memory]) -> str:
    """Return the digest of at least one memory, in the order in which things happened."""
    ordered = in_order(memories)
    first, last = ordered[0].happened_at.date(), ordered[-1].happened_at.date()
    chinese = is_mostly_chinese([m.content for m in ordered])
    span = f"{first}" if first == last else (f"{first} 至 {last}" if chinese else f"{first} to {last}")
    head = f"{len(ordered)} 条记忆的摘要({span})" if chinese else f"Digest of {len(ordered)} memories ({span})"
    lines = [f"{head}:"]
    said: set[str] = set()
    for memory in ordered:
        line = opening(memory.content)
        if line and line not in said and len(said) < LINES_MAX:
            said.add(line)
            lines.append(f"- {line}" if first == last else f"- {memory.happened_at.date()}: {line}")
    return "\n".join(lines)[:DIGEST_CHARS]


def in_order(memories: Sequence[Memory]) -> list[Memory]:
    """Return memories by sequence number within a conversation, else by when they happened."""
    return sorted(memories, key=lambda m: (m.happened_at, m.conversation_seq or 0, m.id))


def cited(memories: Sequence[Memory]) -> tuple[Citation, ...]:
    """Return one citation a source memory, naming the very version that was read."""
    return tuple(
        Citation(kind="memory_entry", ref=memory.version_id, observed_at=memory.happened_at, trust=Trust.SEMI_TRUSTED)
        for memory in in_order(memories)
    )


def stable_id(prefix: str, *parts: str) -> str:
    """Return a 13-character id that the same parts always give: a job run twice writes the same memory."""
    digest = hashlib.blake2b("\x1f".join(parts).encode(), digest_size=8).digest()
    return prefix + b32encode(digest).decode().lower().rstrip("=")[: 13 - len(prefix)]


FORGET = "forget"
EXPIRE = "expire_events"
FORGET_AUTHOR = "job:forget"
EXPIRE_AUTHOR = "job:expire_events"
NIGHT = timedelta(hours=20)
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
    """A memory that forgetting may take: as little of it as choosing needs, since a night looks at every one there is.

    strength: as `show` gives it. has_faded: below its own threshold. story: what it can be folded with, "" for not at
    all.
    """

    id: str
    point: str
    collection: str
    strength: float
    idle_days: float
    has_faded: bool
    story: str


@dataclass(frozen=True, slots=True)
class Choice:
    """chosen: the first to go, first to go first, as many as there is room for. victims: how many would go."""

    chosen: tuple[FadingMemory, ...]
    victims: int


def may_forget(memory: Memory, at: datetime, up: Upkeep) -> bool:
    """Return whether forgetting may ever take this memory at `at`: the rule of who is safe."""
    if not may(Deed.FORGET, Caller.SYSTEM, [memory]) or memory.type is MemoryType.INSTRUCTION:
        return False
    if not up.rules.of(memory).tended:
        return False
    if memory.author.startswith(HUMAN_AUTHOR):  # edited or restored by hand: a human wants it here
        return False
    if memory.status is not Status.ACTIVE or not memory.is_current:
        return False
    if age_days(last_used_at(memory), at) < up.rules.recent_days:
        return False
    if memory.layer is Layer.VERIFIED_FACT:
        return memory.origin is Origin.EXTRACTED or memory.type in up.rules.forget_facts
    return memory.layer is Layer.EVENT_LOG


def expire_events(up: Upkeep, at: datetime, limits: Limits = UNLIMITED) -> JobReport:
    """Archive events past their time to live; a pinned one stays. Not counted against the cap of `forget`."""
    where = live(
        Between("expires_at", below=at),
        OneOf("pinned", ("no",)),
        states=(Status.ACTIVE, Status.PENDING, Status.DISPUTED),
    )
    ended = (
        _archived(memory, at, EXPIRE_AUTHOR, f"its time to live of {memory.ttl_days or 0} days ended")
        for memory in scan(up, Layer.EVENT_LOG.value, where, limits)
        if memory.expires_at is not None
    )
    return carry_out(up, EXPIRE, ended, at=at, limits=limits, action="archive")


def forget(up: Upkeep, at: datetime, limits: Limits = UNLIMITED) -> JobReport:
    """Archive what faded by the user's policy, weakest first, up to the night's cap.

    Raises ValueError: a policy that does not exist.
    """
    if up.rules.policy not in POLICIES:
        raise ValueError(f"policy {up.rules.policy!r}; allowed are {', '.join(POLICIES)}")
    active = sum(up.store.count(name, live()) for name in COLLECTIONS_KEPT)
    before = _archived_this_night(up, at)
    cap = max(FOLD_LEAST, int(up.rules.max_archived_share * (active + before)) + _written_a_day(up, at))
    room = max(0, min(cap - before, limits.max_changes))
    choice = choose(list(candidates(up, at, limits)), up, at, active=active, room=room)
    left = choice.victims > len(choice.chosen)
    reasons = {c.id: _reason(c, up) for c in choice.chosen}
    memories = _memories(up, choice.chosen, at)
    counts = {"active": float(active), "faded": float(choice.victims), "cap": float(cap)}
    goes = (_archived(memory, at, FORGET_AUTHOR, reasons[memory.id]) for memory in memories)
    if limits.dry_run:
        return replace(carry_out(up, FORGET, goes, at=at, limits=limits, action="archive", counts=counts), left=left)
    groups = _groups(memories) if up.rules.policy in FOLDING else []
    folded = _fold(up, groups, reasons, at=at, limits=limits)
    rest = (change for change in goes if change.revision.new.id not in folded.taken)
    report = carry_out(up, FORGET, rest, at=at, limits=limits, action="archive")
    notes = (f"stopped at {cap} of {active + before} active memories; goes on the next night",) if left else ()
    archived = report.changed + len(folded.taken)
    counts |= {"archived": float(archived), "digests": float(folded.digests)}
    return replace(report, changed=archived, left=left or report.left, notes=notes, counts=counts)


def _archived(memory: Memory, at: datetime, author: str, reason: str) -> Change:
    return Change(revise(memory, replace(memory, status=Status.ARCHIVED), at=at, author=author, reason=reason))


def candidates(up: Upkeep, at: datetime, limits: Limits = UNLIMITED) -> Iterable[FadingMemory]:
    """Yield every memory that forgetting may take, with its strength."""
    old_enough = Between("recorded_at", below=at - timedelta(days=up.rules.recent_days))
    for collection in COLLECTIONS_KEPT:
        where = live(old_enough, OneOf("pinned", ("no",)))
        for memory in scan(up, collection, where, limits):
            if not may_forget(memory, at, up):
                continue
            strength = strength_of(memory, at, up.activation)
            idle = age_days(last_used_at(memory), at)
            faded = strength < up.rules.of(memory).forget_below
            yield FadingMemory(memory.id, memory.point_id, collection, strength, idle, faded, _story(memory))


def choose(found: Sequence[FadingMemory], up: Upkeep, at: datetime, *, active: int, room: int) -> Choice:
    """Return what the policy would archive; pure apart from the seeded draw.

    active: how many memories are active; what exceeds `max_entries` goes too, under every policy. room: how many may
    go.
    """
    taken = _taken(found, up, at)
    over = min(max(0, active - up.rules.max_entries - len(taken)), len(found) - len(taken))
    order = _longest_unused if up.rules.policy == "lru" else _weakest
    # A sort of them all would hold every other thread up until it is done; this one is done in small steps.
    going = [c for c in found if c.id in taken]
    together = Counter(c.story for c in going if c.story) if up.rules.policy in FOLDING else Counter()
    weakest: dict[str, float] = {}
    for one in going:
        if together[one.story] >= FOLD_LEAST:
            weakest[one.story] = min(weakest.get(one.story, one.strength), one.strength)
    chosen = heapq.nsmallest(room, going, key=lambda c: (weakest.get(c.story, c.strength), c.story, order(c)))
    # What one digest can keep goes together; of a group that the cap cuts too short, nothing goes yet.
    fit = Counter(c.story for c in chosen)
    chosen = [c for c in chosen if c.story not in weakest or fit[c.story] >= FOLD_LEAST]
    chosen += heapq.nsmallest(min(over, room - len(chosen)), (c for c in found if c.id not in taken), key=order)
    return Choice(tuple(chosen), len(taken) + over)


def _taken(found: Sequence[FadingMemory], up: Upkeep, at: datetime) -> set[str]:
    """Return the ids that the policy takes however many memories there are."""
    match up.rules.policy:
        case "lru":
            return set()
        case "random_drop":
            day, seed, share = at.toordinal(), up.activation.seed, up.rules.drop_share
            return {c.id for c in found if c.strength < FADING and _draw(c.id, day, seed) < share}
        case "reflection_summary":
            together = Counter(c.story for c in found if c.has_faded and c.story)
            return {c.id for c in found if c.has_faded and together[c.story] >= FOLD_LEAST}
        case _:
            return {c.id for c in found if c.has_faded}


def _weakest(candidate: FadingMemory) -> tuple[float, float, str]:
    return candidate.strength, -candidate.idle_days, candidate.id


def _longest_unused(candidate: FadingMemory) -> tuple[float, str]:
    return -candidate.idle_days, candidate.id


def _memories(up: Upkeep, chosen: Sequence[FadingMemory], at: datetime) -> list[Memory]:
    """Return the chosen ones as they stand now, in their order; what became safe meanwhile is left out."""
    stored: dict[str, Memory] = {}
    for collection in COLLECTIONS_KEPT:
        points = [c.point for c in chosen if c.collection == collection]
        for start in range(0, len(points), PAGE):
            entries = up.store.get(collection, points[start : start + PAGE])
            stored |= {entry.memory.point_id: entry.memory for entry in entries}
    found = (stored.get(c.point) for c in chosen)
    return [memory for memory in found if memory is not None and may_forget(memory, at, up)]


def _draw(memory_id: str, day: int, seed: int) -> float:
    """Return a number 0 to 1, the same for one memory on one day."""
    import random

    return random.Random(f"drop|{seed}|{memory_id}|{day}").random()


def _reason(candidate: FadingMemory, up: Upkeep) -> str:
    if candidate.has_faded:
        return f"faded to strength {candidate.strength:.0f}, unused for {candidate.idle_days:.0f} days"
    if up.rules.policy == "random_drop":
        return f"dropped at random among the faded, unused for {candidate.idle_days:.0f} days"
    return f"more than {up.rules.max_entries} memories; unused for {candidate.idle_days:.0f} days"


def _archived_this_night(up: Upkeep, at: datetime) -> int:
    """Return how many memories `forget` has archived in the hours before `at`, by any run of it."""
    where = live(
        OneOf("author", (FORGET_AUTHOR,)),
        Between("recorded_at", at_least=at - NIGHT, below=at + timedelta(microseconds=1)),
        states=(Status.ARCHIVED,),
    )
    return sum(up.store.count(name, where) for name in COLLECTIONS_KEPT)


def _written_a_day(up: Upkeep, at: datetime) -> int:
    """Return how many of the active memories were written in the last day, or a day in the last week if that is more.

    The week, since a weekend writes nothing; the day, since what fades within days is active no more.
    """

    def since(days: int) -> int:
        fresh = live(Between("recorded_at", at_least=at - timedelta(days=days), below=at))
        digests = live(OneOf("author", (FORGET_AUTHOR,)), *fresh.all_of[1:])
        return sum(up.store.count(name, fresh) - up.store.count(name, digests) for name in COLLECTIONS_KEPT)

    return max(since(1), since(WEEK_DAYS) // WEEK_DAYS)


@dataclass(frozen=True, slots=True)
class _Folded:
    taken: frozenset[str]
    digests: int


def _groups(memories: Sequence[Memory]) -> list[list[Memory]]:
    """Return groups of events that belong together and have one audience: a conversation's, else a day's."""
    by_story: dict[str, list[Memory]] = defaultdict(list)
    for memory in memories:
        if story := _story(memory):
            by_story[story].append(memory)
    return [
        group[start : start + FOLD_MOST]
        for group in by_story.values()
        for start in range(0, len(group), FOLD_MOST)
        if len(group[start : start + FOLD_MOST]) >= FOLD_LEAST
    ]


def _story(memory: Memory) -> str:
    """Return what names the group a memory may be folded with, "" where it may not."""
    if memory.layer is not Layer.EVENT_LOG or memory.type not in FOLDED_TYPES:
        return ""
    story = memory.scope.conversation or memory.happened_at.date().isoformat()
    return "\n".join((memory.audience, memory.scope.user, memory.scope.agent, story))


def _fold(
    up: Upkeep, groups: Sequence[Sequence[Memory]], reasons: Mapping[str, str], *, at: datetime, limits: Limits
) -> _Folded:
    """Write one digest a group and archive its members, each group in one atomic batch."""
    taken: set[str] = set()
    digests = 0
    for group in groups:
        if limits.should_stop():
            break
        summary = digest_memory(group, at=at, author=FORGET_AUTHOR)
        changes = [
            _archived(memory, at, FORGET_AUTHOR, f"{reasons[memory.id]}; kept in digest {summary.id}")
            for memory in group[:BATCH]
        ]
        written = write(up, changes, added=[summary], kind=FORGET, by=FORGET_AUTHOR, at=at)
        taken |= {m.id for m in written} & {m.id for m in group}
        digests += any(m.id == summary.id for m in written)
    return _Folded(frozenset(taken), digests)


def digest_memory(group: Sequence[Memory], *, at: datetime, author: str) -> Memory:
    """Return the summary that stands for a group of one audience.

    It is as important as the most important of them and as trusted as the least trusted.
    """
    first = group[0]
    text = ordered_digest(group)
    told = Memory(
        id=stable_id("d", *sorted(m.id for m in group)),
        content=text,
        layer=Layer.EVENT_LOG,
        type=MemoryType.SUMMARY,
        scope=first.scope,
        recorded_at=at,
        valid_from=min(m.happened_at for m in group),
        when=max(m.happened_at for m in group),
        confidence=min(m.confidence for m in group),
        # A story of what a document said is no better than the document.
        origin=Origin.DOCUMENT if any(m.origin is Origin.DOCUMENT for m in group) else Origin.EXTRACTED,
        write_mode=WriteMode.GHOSTWRITER,
        extractor_model="digest",
        visibility=first.visibility,
        citations=cited(group),
        content_hash=content_hash(text),
        author=author,
        reason=f"stands for {len(group)} archived memories",
    )
    return with_highest_importance(told, group)
