"""Do two statements say the same, contradict each other, or speak of different things: a small trained model.

Four classes: a repeat, a contradiction, one that says itself that something changed, neither. Sixty figures that the
engine computes anyway (cosine, words the one has and the other lacks, numbers, names, denials, where the wordings
differ) are weighed once, and the likeliest class follows. The numbers (4 KB) and what they scored on pairs they never
saw stand in `pair_model.json`; `scripts/train_pairs.py` makes them. Rejected: the nine thresholds that stood here
(tuned on our own pairs, they lost 17 of 60 contradictions written in another voice), trees (better on what they saw,
worse on the rest), the vectors themselves (1,152 more numbers, no gain on unseen pairs).
Invariant: nothing here decides what is lost; `coverage` does.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache, lru_cache
from pathlib import Path

from memory_anchor.language.bounded import bounded
from memory_anchor.language.coverage import words
from memory_anchor.language.slots import Reading, contrast, read
from memory_anchor.language.terms import is_chinese

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
def judged(old: str, new: str, cosine: float) -> Judgement:
    """Return how the new statement relates to the old one. cosine: centred, -1 to 1."""
    found = figures(old, new, cosine)
    weights = _weights()
    scores = [
        row[0] + sum(weight * found[name] for name, weight in zip(_names(), row[1:], strict=True)) for row in weights
    ]
    most = max(scores)
    shares = [math.exp(score - most) for score in scores]
    repeat, contradiction, change, other = (share / sum(shares) for share in shares)
    if found["counted"] or (found["crossed"] and found["opposites"]):
        # The same unit with another number, or an opposite in the other language: whatever is alike, no repeat.
        repeat, contradiction = 0.0, contradiction + repeat
    marked = any(found[name] for name in ("news", "has_le", "has_done", "has_moved"))
    return Judgement(repeat, contradiction, change, other, marked)


def figures(old: str, new: str, cosine: float) -> dict[str, float]:
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
def _model() -> dict[str, object]:
    return dict(json.loads(NUMBERS.read_text(encoding="utf-8")))


@cache
def _names() -> tuple[str, ...]:
    names = _model()["figures"]
    return tuple(str(name) for name in names) if isinstance(names, list) else ()


@cache
def _weights() -> tuple[tuple[float, ...], ...]:
    """Return for each class its constant and one weight a figure."""
    rows = _model()["weights"]
    return tuple(tuple(float(one) for one in row) for row in rows) if isinstance(rows, list) else ()
