"""What becomes of a new memory that resembles stored ones: add, update, supersede, skip, or ask.

Two certain cases first: a text that a stored one contains word for word is skipped, one that contains a stored one
replaces it (`language/coverage`); nothing else joins two texts. What the words prove decides next (`relations`): a
stated change of the same subject supersedes, two values of one subject are disputed. Last a small model guesses of each
neighbour whether it is a repeat, a contradiction or neither (docs/write-path.md has its scores); a guess links two
memories and may ask a human, it ends, rewrites and joins none.

The model is linear over sixty features of a pair: cosine, words that one has and the other lacks, numbers, names,
denials, where the wordings differ. Its weights (4 KB) and scores on unseen pairs are in `pair_model.json`, made by
`scripts/train_pairs.py`.

Rejected: one similarity threshold (no cosine tells a duplicate from a contradiction; the contradiction is often
closer); nine of them (tuned on our own pairs, they lost 17 of 60 contradictions by another author); trees (better on
seen pairs, worse on unseen ones); the vectors themselves (1,152 more weights, no gain on unseen pairs).
Invariant: a decision names only a memory among the neighbours it was shown; none destroys a memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.base.hashing import content_hash
from memory_anchor.domain.model import Layer, Memory, MemoryType, Origin, Outcome, Relation, Similar, Status
from memory_anchor.ingest.relations import Kind, may_repeat, opposed, own_subjects, replacement, shares_words, wording
from memory_anchor.language.coverage import covers, words
from memory_anchor.language.safe_regex import bounded, late
from memory_anchor.language.slots import Reading, aligned, contrast, read
from memory_anchor.language.terms import is_chinese

if TYPE_CHECKING:
    from numpy.typing import NDArray

NUMBERS = Path(__file__).with_name("pair_model.json")
JUDGED_KEPT = 4_096
COSINE_MAX = 0.9
"""Higher cosines are cut to this: a denial of a short statement is as near as its repeat."""
CLASSES = ("repeat", "contradiction", "change", "other")
CONTRAST_FEATURES = (
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
_MOVED = late(r"[改换搬迁升降涨调]")


@dataclass(frozen=True, slots=True)
class Judgement:
    """How likely each class is; they sum to 1. marked: the new statement has a word for something that happened."""

    repeat: float
    contradiction: float
    change: float
    other: float
    marked: bool


@lru_cache(maxsize=JUDGED_KEPT)
def judge_pair(old: str, new: str, cosine: float) -> Judgement:
    """Return how the new statement relates to the old one. cosine: centred, -1 to 1."""
    features, (names, weights) = pair_features(old, new, cosine), _model()
    scores = weights @ np.asarray([1.0, *(features[name] for name in names)])
    shares = np.exp(scores - scores.max())
    repeat, contradiction, change, other = (shares / shares.sum()).tolist()
    if features["counted"] or (features["crossed"] and features["opposites"]):
        # The same unit with another number, or an opposite in the other language: however alike, no repeat.
        repeat, contradiction = 0.0, contradiction + repeat
    marked = any(features[name] for name in ("news", "has_le", "has_done", "has_moved"))
    return Judgement(repeat, contradiction, change, other, marked)


def pair_features(old: str, new: str, cosine: float) -> dict[str, float]:
    """Return the features of a pair by name, in the model's order."""
    before, after = read(old), read(new)
    difference, cosine = contrast(before, after), min(cosine, COSINE_MAX)
    crossed = float(is_chinese(old) != is_chinese(new))
    features = {
        "cosine": cosine,
        "cosine_5": max(0.0, cosine - 0.5),
        "cosine_7": max(0.0, cosine - 0.7),
        "cosine_85": max(0.0, cosine - 0.85),
        "crossed": crossed,
        "crossed_cosine": crossed * cosine,
        "chinese": float(is_chinese(new)),
    }
    features |= {name: float(getattr(difference, name)) for name in CONTRAST_FEATURES}
    features |= {
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
    features |= _edit_features(before, after) | _word_features(old, new) | _tense_features(before.folded, after.folded)
    if difference.counted or difference.opposites or difference.denied or difference.news:
        features["listed"] = 0.0
    for name in ("denied", "one_denies", "counted", "opposites", "one_swap", "news"):
        features[f"{name}_shared"] = features[name] * features["shared"]
    features["counted_elsewhere"] = features["counted"] * features["other_subject"]
    return features


def _word_features(old: str, new: str) -> dict[str, float]:
    """Return how many words each text has that the other lacks."""
    before, after = words(old), words(new)
    common = len(before & after)
    return {
        "uncovered_new": 1 - common / (len(after) or 1),
        "uncovered_old": 1 - common / (len(before) or 1),
        "shared": common / (len(before | after) or 1),
        "longer": math.log((len(after) + 1) / (len(before) + 1)),
    }


def _edit_features(before: Reading, after: Reading) -> dict[str, float]:
    """Return where the two wordings differ: at the start, in the subject, after it, in one stretch or in several."""
    edits, all_blocks, _ = aligned(before.tokens, after.tokens)
    swaps = [edit for edit in edits if edit[0] == "replace"]
    blocks = [block for block in all_blocks if block.size]
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


def _tense_features(old: str, new: str) -> dict[str, float]:
    """Return whether words for something that happened are in the new text alone, or in the old one."""
    done = _DONE.search(old) is not None
    return {
        "has_le": float("了" in new and "了" not in old),
        "has_done": float(not done and _DONE.search(new) is not None),
        "had_done": float(done or "了" in old),
        "has_moved": float(_MOVED.search(new) is not None and _MOVED.search(old) is None),
    }


@cache
def _model() -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Return the features' names, and weights (classes, 1 + features), the constants first."""
    stored = json.loads(NUMBERS.read_text(encoding="utf-8"))
    return tuple(stored["figures"]), np.asarray(stored["weights"], dtype=np.float64)


SIMILAR_SHOWN = 5
"""Neighbours listed in a decision, best first."""
NEIGHBOURS_READ = 10
"""Neighbours compared word by word; further ones are less similar than these."""
CONTRADICTS_FROM = 0.53
"""Probability from which it is a contradiction, marked as a change or not."""
FAR = 0.5
FAR_CONTRADICTS_FROM = 0.8
"""The same below that centred cosine, where most neighbours in a real store are: none of 117 bundled facts may end
another (at 0.5, nine of them did)."""


class Resolution(StrEnum):
    """What is done about a contradiction that does not say itself that something changed."""

    ASK_USER = "ask_user"
    KEEP_NEW = "keep_new"
    KEEP_OLD = "keep_old"
    MERGE = "merge"


class Likeness(StrEnum):
    """What the model takes two statements for; it ranks and links, and proves nothing."""

    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    RELATED = "related"
    UNRELATED = "unrelated"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Centred cosines, -1 to 1. compared: below it two statements are unrelated. related: from it a neighbour is shown.
    same: assumed for two statements of the same slot where no cosine is known.
    """

    compared: float = 0.3
    related: float = 0.45
    same: float = 0.68


DEFAULT_THRESHOLDS = Thresholds()


def likeness(
    old: str, new: str, cosine: float, *, thresholds: Thresholds = DEFAULT_THRESHOLDS
) -> tuple[Likeness, bool]:
    """Return what the model takes a statement for beside another, and whether it takes it for a stated change.

    >>> likeness("The timeout is 30 seconds.", "The timeout is 60 seconds.", 0.9)
    (<Likeness.CONFLICT: 'conflict'>, False)
    """
    if content_hash(old) == content_hash(new):
        return Likeness.DUPLICATE, False
    if cosine < thresholds.compared:
        return Likeness.UNRELATED, False
    judgement = judge_pair(old, new, round(cosine, 3))
    least = CONTRADICTS_FROM if cosine >= FAR else FAR_CONTRADICTS_FROM
    if judgement.contradiction + judgement.change >= least:
        return Likeness.CONFLICT, judgement.marked and judgement.change > judgement.contradiction
    if judgement.repeat >= judgement.other:
        return Likeness.DUPLICATE, False
    return (Likeness.RELATED if cosine >= thresholds.related else Likeness.UNRELATED), False


@dataclass(frozen=True, slots=True)
class Policy:
    """How contradictions are settled. by_type: type of the new memory -> resolution; unlisted types ask the user.

    By the user's settings KEEP_NEW supersedes also where no change is stated, and KEEP_OLD skips. MERGE needs a model;
    without one it asks.
    """

    thresholds: Thresholds = DEFAULT_THRESHOLDS
    by_type: Mapping[MemoryType, Resolution] = field(default_factory=dict)


DEFAULT_POLICY = Policy()


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with one new memory. target: the neighbour it concerns, always one of those shown.

    merged_content: the target's next text where it is updated. relation: to the target. ends: further memories that it
    replaces with the target. by: `rules` or a model's name. note: one sentence where a model was asked in vain.
    """

    outcome: Outcome
    target: Memory | None = None
    reason: str = ""
    merged_content: str | None = None
    similar: tuple[Similar, ...] = ()
    relation: Relation | None = None
    ends: tuple[Memory, ...] = ()
    by: str = "rules"
    note: str = ""

    @property
    def disagrees(self) -> bool:
        """Whether it finds that the new memory and its target cannot both stand as they are."""
        keeps_old = self.outcome is Outcome.SKIPPED and self.relation is Relation.CONTRADICTS
        return keeps_old or self.outcome in (Outcome.SUPERSEDED, Outcome.NEEDS_REVIEW)


def decide(new: Memory, neighbours: Sequence[tuple[Memory, float]], *, policy: Policy = DEFAULT_POLICY) -> Decision:
    """Return what becomes of `new`, by rules alone. An event is always added: it happened whatever else did.

    neighbours: live memories of the same layer and audience, in any order, with their centred cosines to `new`.
    """
    if new.layer is Layer.EVENT_LOG:
        return Decision(Outcome.ADDED, reason="an event is kept beside every other")
    nearest = sorted(neighbours, key=lambda pair: -pair[1])[:NEIGHBOURS_READ]
    similar = similar_to(nearest, floor=policy.thresholds.related)
    same = content_hash(new.content)
    for memory, _ in nearest:
        if content_hash(memory.content) == same:
            return Decision(Outcome.SKIPPED, memory, SAME_TEXT, None, similar, Relation.REPEATS)
        if covers(memory.content, new.content):
            return decide_repeat(new, memory, similar)
    found = [(replacement(memory.content, new.content), memory) for memory, _ in nearest]
    replaced = [memory for kind, memory in found if kind is Kind.REPLACED]
    if replaced:
        decision = _contradiction(new, replaced[0], changed=True, policy=policy, similar=similar)
        return replace(decision, ends=tuple(replaced[1:]))
    against = [memory for memory, _ in nearest if opposed(memory.content, new.content)]
    if against:
        decision = _contradiction(new, against[0], changed=False, policy=policy, similar=similar)
        return replace(decision, ends=tuple(against[1:]))
    for kind, memory in found:
        if kind is Kind.OVER:
            return Decision(Outcome.NEEDS_REVIEW, memory, PARTLY_OVER, None, similar, Relation.CHANGES)
    for memory, _ in nearest:
        if replacement(new.content, memory.content) is not Kind.NONE:
            return Decision(Outcome.NEEDS_REVIEW, memory, IS_OVER, None, similar, Relation.ECHO)
    return _linked(new, nearest, similar)


SAME_TEXT = "the same text is stored already"
PARTLY_OVER = "it says that something changed of what this memory says, and holds not all of the rest"
IS_OVER = "this memory says that what it states has changed"


def _linked(new: Memory, near: Sequence[tuple[Memory, float]], similar: tuple[Similar, ...]) -> Decision:
    """Return what becomes of a memory of which nothing proves that it contradicts or replaces another.

    Here the model is heard: it may link two as a repeat or a likely contradiction, and where the new one reports a
    change itself, have a human asked.
    """
    is_passing = wording(new.content).passing and new.status is not Status.PENDING
    guesses = [
        (Likeness.RELATED if is_passing else _guess(memory.content, new.content, cosine), memory, cosine)
        for memory, cosine in near
    ]
    stated = wording(new.content)
    for guess, memory, cosine in guesses:
        is_change = stated.changes and likeness(memory.content, new.content, cosine)[1]
        if guess is Likeness.CONFLICT and is_change and not own_subjects(memory.content, new.content):
            return Decision(Outcome.NEEDS_REVIEW, memory, MAY_BE_OVER, None, similar, Relation.MAY_CONTRADICT)
    for memory, _ in near:
        if covers(new.content, memory.content):
            return decide_repeat(new, memory, similar)
    nearest = max([IMPLIED_FROM, *(cosine for _, cosine in near)])
    reason, kind = "", Relation.RELATED
    target = None
    for guess, memory, cosine in guesses:
        is_near = cosine >= nearest or (cosine >= SHARING_FROM and shares_words(memory.content, new.content))
        implied = is_near and stated.reports != wording(memory.content).reports
        if guess is Likeness.CONFLICT or (implied and guess is not Likeness.DUPLICATE):
            reason, kind, target = "it may contradict this memory; both stand", Relation.MAY_CONTRADICT, memory
            break
        if guess is Likeness.DUPLICATE:
            reason, kind, target = "it says the same in other words; both stand", Relation.REPEATS, memory
            break
    if target is not None:
        known = {one.id for one in similar}
        shown = similar if target.id in known else (Similar(target.id, target.content, 0.0), *similar)
        return Decision(Outcome.ADDED, target, reason, None, shown, kind)
    reason = "related memories exist, none in the same slot" if similar else "nothing similar is stored"
    return Decision(Outcome.ADDED, None, reason, None, similar, Relation.RELATED if similar else None)


IMPLIED_FROM, SHARING_FROM = 0.24, 0.12
"""What tells of something that came about is linked with the nearest memory from this cosine on: "just joined X" shares
few words with where somebody worked before, and a link in vain costs an order of two. Lower where they share words."""
MAY_BE_OVER = "it says that something changed, perhaps of what this memory says"


def _guess(old: str, new: str, cosine: float) -> Likeness:
    """Return what the model takes two statements for in either order; a repeat only where nothing speaks against it."""
    if wording(old).passing:
        return Likeness.RELATED
    kinds = {likeness(old, new, cosine)[0], likeness(new, old, cosine)[0]}
    if Likeness.CONFLICT in kinds:
        return Likeness.RELATED if words(new) <= words(old) or words(old) <= words(new) else Likeness.CONFLICT
    is_repeat = kinds == {Likeness.DUPLICATE} and may_repeat(old, new)
    return Likeness.DUPLICATE if is_repeat else Likeness.RELATED


def similar_to(nearest: Sequence[tuple[Memory, float]], *, floor: float) -> tuple[Similar, ...]:
    """Return the neighbours worth showing: at least `floor` near, best first."""
    near = [Similar(memory.id, memory.content, round(cosine, 3)) for memory, cosine in nearest if cosine >= floor]
    return tuple(near[:SIMILAR_SHOWN])


def _contradiction(
    new: Memory, old: Memory, *, changed: bool, policy: Policy, similar: tuple[Similar, ...]
) -> Decision:
    """Return how a contradiction is settled: superseded only where the new statement or the settings say so."""
    resolution = policy.by_type.get(new.type)
    if guarded := why_not_replace(new, old):
        outcome, reason = Outcome.NEEDS_REVIEW, guarded
    elif changed:
        outcome, reason = Outcome.SUPERSEDED, "it contradicts this memory and says that something changed"
    elif resolution in (Resolution.KEEP_NEW, Resolution.KEEP_OLD):
        keeps_new = resolution is Resolution.KEEP_NEW
        outcome = Outcome.SUPERSEDED if keeps_new else Outcome.SKIPPED
        which = "new" if keeps_new else "old"
        reason = f"it contradicts this memory, and the policy for {new.type} keeps the {which} one"
    else:
        outcome = Outcome.NEEDS_REVIEW
        reason = "it contradicts this memory without saying that something changed"
    is_change = changed and outcome is not Outcome.SKIPPED
    return Decision(outcome, old, reason, None, similar, Relation.CHANGES if is_change else Relation.CONTRADICTS)


def why_not_replace(new: Memory, old: Memory) -> str:
    """Return why `new` may not replace `old` without a human, "" when it may."""
    if old.pinned:
        return "it contradicts a pinned memory"
    if new.origin is Origin.DOCUMENT:
        return "a document contradicts this memory, and documents replace nothing by themselves"
    if new.origin is Origin.EXTRACTED and old.origin is Origin.HUMAN:
        return "an extracted claim contradicts what a person wrote"
    return ""


def decide_repeat(new: Memory, old: Memory, similar: tuple[Similar, ...]) -> Decision:
    """Return what becomes of a memory that says the same; only where one text contains the other they become one."""
    if covers(old.content, new.content):
        return Decision(Outcome.SKIPPED, old, "this memory says the same", None, similar, Relation.CONTAINED)
    if covers(new.content, old.content):
        if not why_not_replace(new, old):
            reason = "the new wording says what this memory says, and more"
            return Decision(Outcome.UPDATED, old, reason, new.content, similar, Relation.CONTAINS)
        return Decision(Outcome.ADDED, old, "it says what this memory says, and more", None, similar, Relation.CONTAINS)
    return Decision(Outcome.ADDED, old, "it says the same in other words; both stand", None, similar, Relation.REPEATS)
