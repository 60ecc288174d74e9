"""Whether one text contains every statement of another: the proof that a write brings nothing new.

Strict on purpose: what cannot be proven is stored. Words are compared by their stem, numbers, names and signs exactly,
Chinese character by character; articles, "is" and 是, 的 are ignored. A sentence is contained where it runs through
one of the other text without a gap, and nothing before it, or after it in the same clause, may reverse it. Rejected:
shares of words ("90 % covered" threw away the dose), and similarity (an addition is always similar).
Invariant: `covers(old, new)` is false where `new` has a word, number, name or denial that `old` lacks.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from memory_anchor.language.bounded import bounded
from memory_anchor.language.terms import CJK, stem
from memory_anchor.language.words import LETTERS, either, listed

COMPARED_CHARS = 2_000
"""A longer text is never proven to be covered."""
READINGS_KEPT = 2_048
_IGNORED = frozenset(listed("left_out", "coverage"))
_SENTENCE = re.compile(r"[。！？!?；;\n]|\.(?=\s|$)")
_PIECE = re.compile(
    rf"(?P<han>[{CJK}])|(?P<word>[^\W{CJK}]++(?:[._/\\:@#+'’-]++[^\W{CJK}]++)*+[+#]*+)"
    rf"|(?P<minus>(?<![^\s(])-(?=\d))|(?P<clause>[,，:：()（）—–])|(?P<sign>[^\w\s.。、\"“”'‘’「」『』《》`*…\[\]-])"
)
CLAUSE_END = ","
COSINE_AT_LEAST, COSINE_BY_WORDS = 0.19, 0.79
DENIES = bounded(either("reversal", edges=LETTERS))
TURNS = bounded(either("condition", edges=LETTERS))


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
            if word and word not in _IGNORED:
                words.append(word)
        if any(word != CLAUSE_END for word in words):
            result.append(tuple(words))
    return tuple(result)


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
    return bool(stated) and all(any(_is_contained(sentence, other) for other in known) for sentence in stated)


def contains(new: str, old: str) -> bool:
    """Return whether `new` has every sentence of `old` in it without a gap, whatever else it says.

    >>> contains("Use pnpm, never npm.", "Use pnpm.")
    True
    """
    if max(len(old), len(new)) > COMPARED_CHARS:
        return False
    return bool(sentences(old)) and all(
        any(_find(_words(sentence), _words(other)) >= 0 for other in sentences(new)) for sentence in sentences(old)
    )


def _words(sentence: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word in sentence if word != CLAUSE_END)


def _find(part: Sequence[str], whole: Sequence[str]) -> int:
    """Return where a run of words begins in another, -1 where it does not occur."""
    size, first = len(part), part[0]
    starts = (at for at in range(len(whole) - size + 1) if whole[at] == first)
    return next((at for at in starts if tuple(whole[at : at + size]) == tuple(part)), -1)


def _is_contained(sentence: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether a sentence runs through another and nothing there reverses it.

    Also where it is the other with its two parts exchanged: X is Y, Y is X; before Y do X.
    """
    part, whole = _words(sentence), _words(other)
    if len(part) == len(whole) and any(whole[at:] + whole[:at] == part for at in range(1, len(whole))):
        return True
    # The words again, an end of a clause as a comma behind its word.
    with_ends = "\0".join(other).replace("\0,\0", ",\0").split("\0")
    bare = [word.rstrip(CLAUSE_END) for word in with_ends]
    at = _find(part, bare)
    if at < 0:
        return False
    after = at + len(part)
    if not with_ends[after - 1].endswith(CLAUSE_END):
        end = next((place for place in range(after, len(bare)) if with_ends[place].endswith(CLAUSE_END)), len(bare))
        if DENIES.search(_joined(bare[after : end + 1])):
            return False
    before = _joined(bare[:at])
    return not DENIES.search(before) and not TURNS.search(before)


def _joined(part: Sequence[str]) -> str:
    """Return words as text, without spaces between Chinese characters, as patterns expect."""
    return re.sub(rf"(?<=[{CJK}]) (?=[{CJK}])", "", " ".join(part))
