"""What becomes of a new memory beside the ones it resembles: add, update, supersede, skip, or ask.

Two proofs first: a text that stands in a stored one word for word is skipped, one that holds a stored one replaces it
(`language/coverage`). Else a small model says of each neighbour whether it repeats, contradicts or neither
(`pair_model`; docs/write-path.md has its scores), and nothing it says loses a word. It supersedes only where the new
statement says itself that something changed.

Rejected: one similarity threshold. No cosine tells a duplicate from a contradiction; the contradiction is often closer.
Invariant: a decision names only a memory among the neighbours it was shown; nothing is ever decided to be destroyed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from memory_anchor.hashing import content_hash
from memory_anchor.ingest.pair_model import judged
from memory_anchor.language.coverage import contains, covers, words
from memory_anchor.language.terms import is_chinese
from memory_anchor.model import Layer, Memory, MemoryType, Origin, Outcome, Similar

SIMILAR_SHOWN = 5
"""Neighbours listed in a decision, best first."""
NEIGHBOURS_READ = 10
"""Neighbours compared word by word; further ones are less similar than these."""
CONTRADICTS_FROM = 0.53
"""Share of the model's belief from which it is a contradiction, marked as a change or not."""
FAR = 0.5
FAR_CONTRADICTS_FROM = 0.8
"""Below that centred cosine the model has to be this sure: most neighbours of a real store lie there, and none of 117
bundled facts may end another (at 0.5, nine of them did)."""
JOINED_CHARS = 600
"""Two wordings of one thing stand together up to this length; longer ones stay two memories."""
ENDS = (".", "。", "!", "！", "?", "？", ";", "；", "…")


class Resolution(StrEnum):
    """What is done about a contradiction that does not say itself that something changed."""

    ASK_USER = "ask_user"
    KEEP_NEW = "keep_new"
    KEEP_OLD = "keep_old"
    MERGE = "merge"


class Relation(StrEnum):
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    RELATED = "related"
    UNRELATED = "unrelated"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Centred cosines, -1 to 1. compared: below it two statements have nothing to do with each other. related: from it
    a neighbour is shown. same: what counts as the same slot where no cosine is at hand.
    """

    compared: float = 0.3
    related: float = 0.45
    same: float = 0.68


DEFAULT_THRESHOLDS = Thresholds()


def relation(
    old: str, new: str, cosine: float, *, thresholds: Thresholds = DEFAULT_THRESHOLDS
) -> tuple[Relation, bool]:
    """Return how the new statement relates to the old one, and whether it says itself that something changed.

    >>> relation("The timeout is 30 seconds.", "The timeout is 60 seconds.", 0.9)
    (<Relation.CONFLICT: 'conflict'>, False)
    """
    if content_hash(old) == content_hash(new):
        return Relation.DUPLICATE, False
    if cosine < thresholds.compared:
        return Relation.UNRELATED, False
    seen = judged(old, new, round(cosine, 3))
    if seen.contradiction + seen.change >= (CONTRADICTS_FROM if cosine >= FAR else FAR_CONTRADICTS_FROM):
        return Relation.CONFLICT, seen.marked and seen.change > seen.contradiction
    if seen.repeat >= seen.other:
        return Relation.DUPLICATE, False
    return (Relation.RELATED if cosine >= thresholds.related else Relation.UNRELATED), False


@dataclass(frozen=True, slots=True)
class Policy:
    """How contradictions are settled. by_type: the type of the new memory -> resolution; unlisted types ask the user.

    KEEP_NEW supersedes also without a change marker and KEEP_OLD skips: a human chose so in the settings. MERGE needs
    words that rules do not have, so without a model it asks.
    """

    thresholds: Thresholds = DEFAULT_THRESHOLDS
    by_type: Mapping[MemoryType, Resolution] = field(default_factory=dict)

    def resolution(self, kind: MemoryType) -> Resolution:
        return self.by_type.get(kind, Resolution.ASK_USER)


DEFAULT_POLICY = Policy()


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with one new memory. target: the neighbour it concerns, always one of those shown.

    merged_content: the target's next text when the outcome is `updated`. relation: why. by: `rules` or a model's name.
    note: one sentence when something other than the usual way was taken.
    """

    outcome: Outcome
    target: Memory | None = None
    reason: str = ""
    merged_content: str | None = None
    similar: tuple[Similar, ...] = ()
    relation: Relation = Relation.UNRELATED
    by: str = "rules"
    note: str = ""


def decide(new: Memory, neighbours: Sequence[tuple[Memory, float]], *, policy: Policy = DEFAULT_POLICY) -> Decision:
    """Return what becomes of `new` beside its neighbours, by rules alone.

    neighbours: live memories of the same layer and audience, each with its centred cosine to `new` (-1 to 1), any
    order. An event is never reconciled: it happened whatever else did.
    """
    if new.layer is Layer.EVENT_LOG:
        return Decision(Outcome.ADDED, reason="an event is kept beside every other")
    nearest = sorted(neighbours, key=lambda pair: -pair[1])[:NEIGHBOURS_READ]
    similar = similar_to(nearest, floor=policy.thresholds.related)
    for memory, _ in nearest:
        if content_hash(memory.content) == content_hash(new.content):
            reason = "the same text is stored already"
            return Decision(Outcome.SKIPPED, memory, reason, None, similar, Relation.DUPLICATE)
        if covers(memory.content, new.content):
            return repeat(new, memory, similar)
    for memory, cosine in nearest:
        kind, changed = relation(memory.content, new.content, cosine, thresholds=policy.thresholds)
        retracts = kind is Relation.CONFLICT and changed and not covers(new.content, memory.content)
        if contains(new.content, memory.content) and not retracts:
            return repeat(new, memory, similar)
        if kind is Relation.CONFLICT:
            return _contradiction(new, memory, changed=changed, policy=policy, similar=similar)
        if kind is Relation.DUPLICATE:
            return repeat(new, memory, similar)
    kind = Relation.RELATED if similar else Relation.UNRELATED
    reason = "related memories exist, none in the same slot" if similar else "nothing similar is stored"
    return Decision(Outcome.ADDED, None, reason, None, similar, kind)


def similar_to(nearest: Sequence[tuple[Memory, float]], *, floor: float) -> tuple[Similar, ...]:
    """Return the neighbours worth showing: at least `floor` near, best first."""
    near = [Similar(memory.id, memory.content, round(cosine, 3)) for memory, cosine in nearest if cosine >= floor]
    return tuple(near[:SIMILAR_SHOWN])


def _contradiction(
    new: Memory, old: Memory, *, changed: bool, policy: Policy, similar: tuple[Similar, ...]
) -> Decision:
    """Return how a contradiction is settled: superseded only on the statement's own word, or the settings'."""
    guarded = outranked(new, old)
    resolution = policy.resolution(new.type)
    if guarded:
        outcome, reason = Outcome.NEEDS_REVIEW, guarded
    elif changed:
        outcome, reason = Outcome.SUPERSEDED, "it contradicts this memory and says that something changed"
    elif resolution is Resolution.KEEP_NEW:
        outcome, reason = (
            Outcome.SUPERSEDED,
            f"it contradicts this memory, and the policy for {new.type} keeps the new one",
        )
    elif resolution is Resolution.KEEP_OLD:
        outcome, reason = (
            Outcome.SKIPPED,
            f"it contradicts this memory, and the policy for {new.type} keeps the old one",
        )
    else:
        outcome = Outcome.NEEDS_REVIEW
        reason = "it contradicts this memory without saying that something changed; `memory-anchor review` settles it"
    return Decision(outcome, old, reason, None, similar, Relation.CONFLICT)


def outranked(new: Memory, old: Memory) -> str:
    """Return why `new` may not replace `old` by itself, or "" when it may."""
    if old.pinned:
        return "it contradicts a pinned memory"
    if new.origin is Origin.DOCUMENT:
        return "a document contradicts this memory, and documents replace nothing by themselves"
    if new.origin is Origin.EXTRACTED and old.origin is Origin.HUMAN:
        return "an extracted claim contradicts what a person wrote"
    return ""


def repeat(new: Memory, old: Memory, similar: tuple[Similar, ...]) -> Decision:
    """Return what becomes of what is taken for the same thing in other words; not a word of either is lost.

    Skipped only where the stored text provably holds the new one. Else the fuller text stands; where neither holds the
    other both do, one after the other, as long as that is short.
    """
    if covers(old.content, new.content):
        return Decision(Outcome.SKIPPED, old, "this memory says the same", None, similar, Relation.DUPLICATE)
    both = joined(old.content, new.content)
    fuller = contains(new.content, old.content)
    if outranked(new, old) or (len(both) > JOINED_CHARS and not fuller):
        reason = "much like a stored memory, with details of its own"
        return Decision(Outcome.ADDED, None, reason, None, similar, Relation.RELATED)
    if fuller or words(old.content) <= words(new.content):
        reason = "the new wording says what this memory says, and more"
        return Decision(Outcome.UPDATED, old, reason, new.content, similar, Relation.DUPLICATE)
    reason = "this memory says the same in other words; both wordings stand"
    return Decision(Outcome.UPDATED, old, reason, both, similar, Relation.DUPLICATE)


def joined(old: str, new: str) -> str:
    """Return two texts one after the other."""
    first = old.rstrip()
    if first[-1:] not in ENDS:
        first += "。" if is_chinese(first) else "."
    return first + ("" if first.endswith("。") else " ") + new.strip()
