"""What becomes of a new memory beside those it resembles: add, update, supersede, skip, or ask.

Two proofs first: a text that stands in a stored one word for word is skipped, one that holds a stored one replaces it
(`language/coverage`). Else a small model says of each neighbour whether it repeats, contradicts or neither
(docs/write-path.md has its scores), and nothing it says loses a word. It supersedes only where the new statement
says itself that something changed.

The model knows four classes: a repeat, a contradiction, one that says itself that something changed, neither. Sixty
figures that the engine computes anyway (cosine, words the one has and the other lacks, numbers, names, denials, where
the wordings differ) are weighed once, and the likeliest class follows. The numbers (4 KB) and what they scored on pairs
they never saw stand in `pair_model.json`; `scripts/train_pairs.py` makes them.

Rejected: one similarity threshold (no cosine tells a duplicate from a contradiction; the contradiction is often
closer); nine of them (tuned on our own pairs, they lost 17 of 60 contradictions written in another voice); trees
(better on what they saw, worse on the rest); the vectors themselves (1,152 more numbers, no gain on unseen pairs).
Invariant: a decision names only a memory among the neighbours it was shown; nothing is ever decided to be destroyed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.hashing import content_hash
from memory_anchor.language.bounded import bounded
from memory_anchor.language.coverage import contains, covers, words
from memory_anchor.language.slots import Reading, contrast, read
from memory_anchor.language.terms import is_chinese
from memory_anchor.model import Layer, Memory, MemoryType, Origin, Outcome, Similar

if TYPE_CHECKING:
    from numpy.typing import NDArray

NUMBERS = Path(__file__).with_name("pair_model.json")
JUDGED_KEPT = 4_096
COSINE_MOST = 0.9
"""Above it a cosine says no more: a denial of a short statement is as near as its repeat."""
CLASSES = ("repeat", "contradiction", "change", "other")
CONTRAST_FIGURES = (
    "overlap",
    "wording",
    "other_subject",
    "counted",
    "listed",
    "opposites",
    "denied",
    "swapped",
    "span",
    "value",
    "news",
)
_DONE = bounded(
    r"(?<![a-z])(?:was|were|has|have|had|been|got|went|gone|since|starting|anymore|yesterday|(?<!\w)\w+['’]ve"
    r"|(?<!\w)\w+['’]s been)(?![a-z])|(?<![a-z])(?<!is )(?<!are )(?<!be )[a-z]{3,}ed (?:to|from|by|with)(?![a-z])"
)
"""English of something that has happened."""
_MOVED = re.compile(r"[改换搬迁升降涨调]")


@dataclass(frozen=True, slots=True)
class Judgement:
    """How likely each class is, 0 to 1, together 1. marked: the new statement has a word of something that happened."""

    repeat: float
    contradiction: float
    change: float
    other: float
    marked: bool


@lru_cache(maxsize=JUDGED_KEPT)
def judge_pair(old: str, new: str, cosine: float) -> Judgement:
    """Return how the new statement relates to the old one. cosine: centred, -1 to 1."""
    found, (names, weights) = pair_features(old, new, cosine), _model()
    scores = weights @ np.asarray([1.0, *(found[name] for name in names)])
    shares = np.exp(scores - scores.max())
    repeat, contradiction, change, other = (shares / shares.sum()).tolist()
    if found["counted"] or (found["crossed"] and found["opposites"]):
        # The same unit with another number, or an opposite in the other language: whatever is alike, no repeat.
        repeat, contradiction = 0.0, contradiction + repeat
    marked = any(found[name] for name in ("news", "has_le", "has_done", "has_moved"))
    return Judgement(repeat, contradiction, change, other, marked)


def pair_features(old: str, new: str, cosine: float) -> dict[str, float]:
    """Return the figures of a pair by name, in the order in which they are weighed."""
    before, after = read(old), read(new)
    seen, cosine = contrast(before, after), min(cosine, COSINE_MOST)
    crossed = float(is_chinese(old) != is_chinese(new))
    found = {
        "cosine": cosine,
        "cosine_5": max(0.0, cosine - 0.5),
        "cosine_7": max(0.0, cosine - 0.7),
        "cosine_85": max(0.0, cosine - 0.85),
        "crossed": crossed,
        "crossed_cosine": crossed * cosine,
        "chinese": float(is_chinese(new)),
    }
    found |= {name: float(getattr(seen, name)) for name in CONTRAST_FIGURES}
    found |= {
        "changed": float(after.changed),
        "was_changed": float(before.changed),
        "one_denies": float(before.denied != after.denied),
        "both_deny": float(before.denied and after.denied),
        "number_came": float(bool(after.numbers) and not before.numbers),
        "number_went": float(bool(before.numbers) and not after.numbers),
        "same_numbers": float(bool(before.numbers) and before.numbers == after.numbers),
        "same_predicate": float(bool(before.predicate) and before.predicate == after.predicate),
        "same_subject": float(before.tokens[: before.subject] == after.tokens[: after.subject]),
        "names_shared": float(bool(before.names & after.names)),
        "names_each": float(bool(before.names - after.names and after.names - before.names)),
        "names_came": float(bool(after.names - before.names)),
        "names_went": float(bool(before.names - after.names)),
        "refuses": float(bool(before.refused & after.content or after.refused & before.content)),
    }
    found |= _places(before, after) | _words(old, new) | _happened(before.folded, after.folded)
    if seen.counted or seen.opposites or seen.denied or seen.news:
        found["listed"] = 0.0
    for name in ("denied", "one_denies", "counted", "opposites", "one_swap", "news"):
        found[f"{name}_shared"] = found[name] * found["shared"]
    found["counted_elsewhere"] = found["counted"] * found["other_subject"]
    return found


def _words(old: str, new: str) -> dict[str, float]:
    """Return how many words of either the other lacks."""
    mine, theirs = words(old), words(new)
    common = len(mine & theirs)
    return {
        "uncovered_new": 1 - common / (len(theirs) or 1),
        "uncovered_old": 1 - common / (len(mine) or 1),
        "shared": common / (len(mine | theirs) or 1),
        "longer": math.log((len(theirs) + 1) / (len(mine) + 1)),
    }


def _places(before: Reading, after: Reading) -> dict[str, float]:
    """Return where the two wordings differ: at the head, in the subject, behind it, in one stretch or in several."""
    matcher = SequenceMatcher(None, before.tokens, after.tokens, autojunk=False)
    edits = [edit for edit in matcher.get_opcodes() if edit[0] != "equal"]
    swaps = [edit for edit in edits if edit[0] == "replace"]
    blocks = [block for block in matcher.get_matching_blocks() if block.size]
    ends = (len(before.tokens), len(after.tokens))
    head = blocks[0].size if blocks and blocks[0].a == blocks[0].b == 0 else 0
    last = blocks[-1] if blocks else None
    tail = last.size if last and (last.a + last.size, last.b + last.size) == ends else 0
    shorter = min(ends) or 1
    of_subject = any(edit[2] <= before.subject and edit[4] <= after.subject for edit in swaps)
    of_value = any(edit[1] >= before.subject and edit[3] >= after.subject for edit in swaps)
    return {
        "edits": float(min(6, len(edits))),
        "swaps": float(min(4, len(swaps))),
        "one_swap": float(len(edits) == len(swaps) == 1),
        "two_swaps": float(len(edits) == len(swaps) == 2),
        "only_inserts": float(bool(edits) and all(edit[0] == "insert" for edit in edits)),
        "only_deletes": float(bool(edits) and all(edit[0] == "delete" for edit in edits)),
        "head": head / shorter,
        "tail": tail / shorter,
        "no_head": float(head == 0),
        "no_tail": float(tail == 0),
        "of_subject": float(of_subject),
        "of_value": float(of_value),
        "of_both": float(of_subject and of_value),
    }


def _happened(old: str, new: str) -> dict[str, float]:
    """Return the words of something that happened: in the new one alone, or in the old one."""
    done = _DONE.search(old) is not None
    return {
        "has_le": float("了" in new and "了" not in old),
        "has_done": float(not done and _DONE.search(new) is not None),
        "had_done": float(done or "了" in old),
        "has_moved": float(_MOVED.search(new) is not None and _MOVED.search(old) is None),
    }


@cache
def _model() -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Return the figures' names, and (classes, 1 + figures): for each class its constant and one weight a figure."""
    stored = json.loads(NUMBERS.read_text(encoding="utf-8"))
    return tuple(stored["figures"]), np.asarray(stored["weights"], dtype=np.float64)


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
    seen = judge_pair(old, new, round(cosine, 3))
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
    same = content_hash(new.content)
    for memory, _ in nearest:
        if content_hash(memory.content) == same:
            reason = "the same text is stored already"
            return Decision(Outcome.SKIPPED, memory, reason, None, similar, Relation.DUPLICATE)
        if covers(memory.content, new.content):
            return decide_repeat(new, memory, similar)
    for memory, cosine in nearest:
        kind, changed = relation(memory.content, new.content, cosine, thresholds=policy.thresholds)
        retracts = kind is Relation.CONFLICT and changed and not covers(new.content, memory.content)
        if contains(new.content, memory.content) and not retracts:
            return decide_repeat(new, memory, similar)
        if kind is Relation.CONFLICT:
            return _contradiction(new, memory, changed=changed, policy=policy, similar=similar)
        if kind is Relation.DUPLICATE:
            return decide_repeat(new, memory, similar)
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
    guarded = why_not_replace(new, old)
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
        reason = "it contradicts this memory without saying that something changed"
    return Decision(outcome, old, reason, None, similar, Relation.CONFLICT)


def why_not_replace(new: Memory, old: Memory) -> str:
    """Return why `new` may not replace `old` by itself, or "" when it may."""
    if old.pinned:
        return "it contradicts a pinned memory"
    if new.origin is Origin.DOCUMENT:
        return "a document contradicts this memory, and documents replace nothing by themselves"
    if new.origin is Origin.EXTRACTED and old.origin is Origin.HUMAN:
        return "an extracted claim contradicts what a person wrote"
    return ""


def decide_repeat(new: Memory, old: Memory, similar: tuple[Similar, ...]) -> Decision:
    """Return what becomes of what is taken for the same thing in other words; not a word of either is lost.

    Skipped only where the stored text provably holds the new one. Else the fuller text stands; where neither holds the
    other both do, one after the other, as long as that is short.
    """
    if covers(old.content, new.content):
        return Decision(Outcome.SKIPPED, old, "this memory says the same", None, similar, Relation.DUPLICATE)
    both = joined_texts(old.content, new.content)
    fuller = contains(new.content, old.content)
    if why_not_replace(new, old) or (len(both) > JOINED_CHARS and not fuller):
        reason = "much like a stored memory, with details of its own"
        return Decision(Outcome.ADDED, None, reason, None, similar, Relation.RELATED)
    if fuller or words(old.content) <= words(new.content):
        reason = "the new wording says what this memory says, and more"
        return Decision(Outcome.UPDATED, old, reason, new.content, similar, Relation.DUPLICATE)
    reason = "this memory says the same in other words; both wordings stand"
    return Decision(Outcome.UPDATED, old, reason, both, similar, Relation.DUPLICATE)


def joined_texts(old: str, new: str) -> str:
    """Return two texts one after the other."""
    first = old.rstrip()
    if first[-1:] not in ENDS:
        first += "。" if is_chinese(first) else "."
    return first + ("" if first.endswith("。") else " ") + new.strip()
