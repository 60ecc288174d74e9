"""What becomes of a new memory that resembles stored ones: add, update, supersede, skip, or ask.

Two certain cases first: a text that a stored one contains word for word is skipped, one that contains a stored one
replaces it (`language/coverage`); nothing else joins two texts. Else a small model says of each neighbour whether it is
a repeat, a contradiction, a contradiction that itself says that something changed, or neither (docs/write-path.md has
its scores). Only a stated change supersedes, and no decision loses a word.

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
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.base.hashing import content_hash
from memory_anchor.language.bounded import bounded
from memory_anchor.language.coverage import covers, words
from memory_anchor.language.slots import Reading, contrast, read
from memory_anchor.language.terms import is_chinese
from memory_anchor.model import Layer, Memory, MemoryType, Origin, Outcome, Similar

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
_MOVED = re.compile(r"[改换搬迁升降涨调]")


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


class Relation(StrEnum):
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
    judgement = judge_pair(old, new, round(cosine, 3))
    least = CONTRADICTS_FROM if cosine >= FAR else FAR_CONTRADICTS_FROM
    if judgement.contradiction + judgement.change >= least:
        return Relation.CONFLICT, judgement.marked and judgement.change > judgement.contradiction
    if judgement.repeat >= judgement.other:
        return Relation.DUPLICATE, False
    return (Relation.RELATED if cosine >= thresholds.related else Relation.UNRELATED), False


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

    merged_content: the target's next text where it is updated. by: `rules` or a model's name. note: one sentence where
    a model was asked in vain.
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
            reason = "the same text is stored already"
            return Decision(Outcome.SKIPPED, memory, reason, None, similar, Relation.DUPLICATE)
        if covers(memory.content, new.content):
            return decide_repeat(new, memory, similar)
    held = next((memory for memory, _ in nearest if covers(new.content, memory.content)), None)
    repeated = held
    for memory, cosine in nearest:
        if memory is held:
            continue
        kind, changed = relation(memory.content, new.content, cosine, thresholds=policy.thresholds)
        if kind is Relation.CONFLICT:
            return _contradiction(new, memory, changed=changed, policy=policy, similar=similar)
        if kind is Relation.DUPLICATE and repeated is None:
            repeated = memory
    if repeated is not None:
        return decide_repeat(new, repeated, similar)
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
    return Decision(outcome, old, reason, None, similar, Relation.CONFLICT)


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
        return Decision(Outcome.SKIPPED, old, "this memory says the same", None, similar, Relation.DUPLICATE)
    if covers(new.content, old.content) and not why_not_replace(new, old):
        reason = "the new wording says what this memory says, and more"
        return Decision(Outcome.UPDATED, old, reason, new.content, similar, Relation.DUPLICATE)
    near = similar or (Similar(old.id, old.content, 0.0),)
    return Decision(Outcome.ADDED, None, "much like a stored memory; both stand", None, near, Relation.RELATED)
