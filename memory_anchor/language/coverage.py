"""Whether one text contains every statement of another: the proof that nothing is lost where one of them goes.

Strict on purpose: what cannot be proven is stored. Words are compared by their stem, numbers with their unit and half
of the day, names and signs exactly, Chinese character by character; articles, "is" and 是, 的 are ignored. A sentence
is contained where it is a clause of the other text, from that clause's first word, without a gap, and no denial,
condition, question or word of change around it may reverse or restrict it. Rejected: shares of words ("90 % covered"
threw away the dose), similarity (an addition is always similar), and a run anywhere ("hotfix deploys need a review"
holds "deploys need a review", which is about other deploys).
Invariant: `covers(old, new)` is false where `new` has a word, number, name or denial that `old` lacks.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence, Set
from functools import lru_cache

from memory_anchor.language.quantities import numbers
from memory_anchor.language.safe_regex import bounded, late
from memory_anchor.language.terms import CJK, stem
from memory_anchor.language.words import LETTERS, either, listed

COMPARED_CHARS = 2_000
"""A longer text is never proven to be covered."""
READINGS_KEPT = 2_048
_IGNORED = frozenset(listed("left_out", "coverage"))
_SENTENCE = late(r"[。！!；;\n]|(?<=\?)|\.(?=\s|$)")
_PIECE = late(
    rf"(?P<han>[{CJK}])|(?P<word>[^\W{CJK}]++(?:[._/\\:@#+'’-]++[^\W{CJK}]++)*[+#]*+)"
    rf"|(?P<minus>(?<![^\s(])-(?=\d))|(?P<clause>[,，:：()（）—–])|(?P<sign>[^\w\s.。、\"“”'‘’「」『』《》`*…\[\]-])"
)
CLAUSE_END = ","
COSINE_AT_LEAST, COSINE_BY_WORDS = 0.19, 0.79
DENIES = bounded(either("reversal", edges=LETTERS))
TURNS = bounded(either("condition", edges=LETTERS))
CHANGES = bounded(either("change", edges=LETTERS))
QUESTION = "?"
_HAN = late(rf"[{CJK}]")
_HALVES = frozenset(("am", "pm"))


@lru_cache(maxsize=READINGS_KEPT)
def sentences(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the words of each sentence, ends of clauses as `CLAUSE_END`; ignored words are left out."""
    plain = unicodedata.normalize("NFKC", text[:COMPARED_CHARS]).lower()
    result = []
    for part in _SENTENCE.split(plain):
        words: list[str] = []
        for match in _PIECE.finditer(part):
            word = match.group()
            if match.lastgroup == "clause":
                word = CLAUSE_END
            elif match.lastgroup == "word":
                word = stem(re.sub(r"['’]s$", "", word))
            of_a_time = word in _HALVES and bool(words) and words[-1][:1].isdigit()
            if word and (word not in _IGNORED or of_a_time):
                words.append(word)
        if any(word != CLAUSE_END for word in words):
            result.append(tuple(words))
    return tuple(result)


@lru_cache(maxsize=READINGS_KEPT)
def words(text: str) -> frozenset[str]:
    """Return every word of a text."""
    return frozenset(word for sentence in sentences(text) for word in sentence) - {CLAUSE_END}


def alike(one: str, other: str) -> float:
    """Return the centred cosine that two texts with so many words in common are likely to have, 0.19 to 0.98.

    A line through 1,100 of our own pairs, correlation 0.88 (`scripts/train_pairs.py` reads the same ones); used in
    place of a cosine where there is no embedder.
    """
    left, right = words(one), words(other)
    return COSINE_AT_LEAST + COSINE_BY_WORDS * math.sqrt(len(left & right) / (len(left | right) or 1))


def covers(old: str, new: str) -> bool:
    """Return whether `old` provably says all that `new` says.

    >>> covers("The limit is 100 a minute and 5 a key.", "The limit is 100 a minute.")
    True
    >>> covers("Never use tabs.", "Use tabs.")
    False
    """
    if max(len(old), len(new)) > COMPARED_CHARS:
        return False
    known, stated = sentences(old), sentences(new)
    # A save asks this of each neighbour in both orders, and words are read once: numbers only where they do not tell.
    if not stated or not words(new) <= words(old) or not numbers(new.lower()) <= numbers(old.lower()):
        return False
    if any(CHANGES.search(_joined(other)) for other in known if other not in stated and len(known) > 1):
        return False
    return all(any(_is_contained(sentence, other) for other in known) for sentence in stated)


def _words(sentence: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word in sentence if word != CLAUSE_END)


def _is_contained(sentence: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether a sentence is a clause of another and nothing there reverses or restricts it.

    Also where it is the other with its two parts exchanged: X is Y, Y is X; before Y do X.
    """
    part, whole = _words(sentence), _words(other)
    if DENIES.search(_joined(part)) and "\0".join(sentence) not in "\0".join(other):
        return False  # "no, deploys wait" is not "no deploys wait"
    if part == whole or (len(part) == len(whole) and _is_turned(part, whole)):
        return True
    clause_starts = {0}
    bare: list[str] = []
    for word in other:
        if word == CLAUSE_END:
            clause_starts.add(len(bare))
        else:
            bare.append(word)
    size = len(part)
    starts = (at for at in sorted(clause_starts) if tuple(bare[at : at + size]) == part)
    return any(_stands(bare, clause_starts, at, at + size) for at in starts)


def _is_turned(part: Sequence[str], whole: Sequence[str]) -> bool:
    return any((*whole[at:], *whole[:at]) == tuple(part) for at in range(1, len(whole)))


def _stands(bare: Sequence[str], clause_starts: Set[int], start: int, end: int) -> bool:
    """Return whether the run from `start` to `end` is said without reserve by the words around it."""
    clause_end = min((at for at in clause_starts if at >= end), default=len(bare))
    before, beside, after = _joined(bare[:start]), bare[end:clause_end], _joined(bare[clause_end:])
    if beside and _HAN.match(beside[0]) and _HAN.match(bare[end - 1]):
        return False  # 审批 goes on as 审批人: where a Chinese word ends is not known
    clause = _joined(beside)
    if any(found.search(text) for found in (DENIES, TURNS) for text in (before, clause)) or QUESTION in bare[end:]:
        return False
    return not any(CHANGES.search(text) for text in (before, clause, after))


def _joined(part: Sequence[str]) -> str:
    """Return words as text, without spaces between Chinese characters, as patterns expect."""
    return re.sub(rf"(?<=[{CJK}]) (?=[{CJK}])", "", " ".join(part))
