"""Does one text hold every word of another? The proof that lets a write be answered with "nothing new".

Strict on purpose: what is not shown here is kept. Words are compared by their stem, numbers, names and signs as they
stand, Chinese character by character, and only articles, "is" and 是, 的 count for nothing. A sentence is held where it
runs through one of the other text without a gap, and nothing before it, or after it in the same clause, may turn it
round. Rejected: shares of words ("90 % covered" threw away the dose), and similarity (an addition is always similar).
Invariant: `covers(old, new)` never holds where `new` has a word, number, name or denial that `old` lacks.
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
_EMPTY = frozenset(listed("left_out", "coverage"))
_SENTENCE = re.compile(r"[。！？!?；;\n]|\.(?=\s|$)")
_PIECE = re.compile(
    rf"(?P<han>[{CJK}])|(?P<word>[^\W{CJK}]++(?:[._/\\:@#+'’-]++[^\W{CJK}]++)*+[+#]*+)"
    rf"|(?P<minus>(?<![^\s(])-(?=\d))|(?P<clause>[,，:：()（）—–])|(?P<sign>[^\w\s.。、\"“”'‘’「」『』《》`*…\[\]-])"
)
CLAUSE_END = ","
ALIKE_AT_LEAST, ALIKE_BY_WORDS = 0.19, 0.79
DENIES = bounded(either("reversal", edges=LETTERS))
TURNS = bounded(either("condition", edges=LETTERS))


@lru_cache(maxsize=READINGS_KEPT)
def sentences(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the words of each sentence, ends of clauses as `CLAUSE_END`; what counts for nothing is left out."""
    plain = unicodedata.normalize("NFKC", text[:COMPARED_CHARS]).lower()
    found = []
    for part in _SENTENCE.split(plain):
        words: list[str] = []
        for match in _PIECE.finditer(part):
            word = match.group()
            if match.lastgroup == "clause":
                word = CLAUSE_END
            elif match.lastgroup == "word":
                word = stem(re.sub(r"['’]s$", "", word))
            if word and word not in _EMPTY:
                words.append(word)
        if any(word != CLAUSE_END for word in words):
            found.append(tuple(words))
    return tuple(found)


def words(text: str) -> frozenset[str]:
    """Return every word of a text."""
    return frozenset(word for sentence in sentences(text) for word in sentence) - {CLAUSE_END}


def alike(one: str, other: str) -> float:
    """Return the centred cosine that two texts with so many words in common are likely to have, 0.19 to 0.98.

    A line through 1,100 of our own pairs, correlation 0.88 (`scripts/train_pairs.py` reads the same ones); what stands
    in for a cosine where nothing embeds.
    """
    mine, theirs = words(one), words(other)
    return ALIKE_AT_LEAST + ALIKE_BY_WORDS * math.sqrt(len(mine & theirs) / (len(mine | theirs) or 1))


def covers(old: str, new: str) -> bool:
    """Return whether `old` provably says all that `new` says.

    >>> covers("The limit is 100 a minute and 5 a key.", "The limit is 100 a minute.")
    True
    >>> covers("Never use tabs.", "Use tabs.")
    False
    """
    if max(len(old), len(new)) > COMPARED_CHARS:
        return False
    known = sentences(old)
    return bool(sentences(new)) and all(any(_held(sentence, other) for other in known) for sentence in sentences(new))


def contains(new: str, old: str) -> bool:
    """Return whether `new` has every sentence of `old` in it without a gap, whatever it says beside it.

    >>> contains("Use pnpm, never npm.", "Use pnpm.")
    True
    """
    if max(len(old), len(new)) > COMPARED_CHARS:
        return False
    return bool(sentences(old)) and all(
        any(_place(_bare(sentence), _bare(other)) >= 0 for other in sentences(new)) for sentence in sentences(old)
    )


def _bare(sentence: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word in sentence if word != CLAUSE_END)


def _place(part: Sequence[str], whole: Sequence[str]) -> int:
    """Return where a run of words stands in another, -1 where it does not."""
    size, first = len(part), part[0]
    starts = (at for at in range(len(whole) - size + 1) if whole[at] == first)
    return next((at for at in starts if tuple(whole[at : at + size]) == tuple(part)), -1)


def _held(sentence: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether a sentence runs through another and nothing there turns it round.

    Also where it is the other with its two parts exchanged: X is Y, Y is X; before Y do X.
    """
    part, bare = _bare(sentence), _bare(other)
    starts = (at for at in range(1, len(bare)) if bare[at] == part[0]) if len(part) == len(bare) else ()
    if any(bare[at:] + bare[:at] == part for at in starts):
        return True
    clauses = "\0".join(other).replace("\0,\0", ",\0").split("\0")
    whole = [word.rstrip(CLAUSE_END) for word in clauses]
    at = _place(part, whole)
    if at < 0:
        return False
    after = at + len(part)
    if not clauses[after - 1].endswith(CLAUSE_END):
        end = next((place for place in range(after, len(whole)) if clauses[place].endswith(CLAUSE_END)), len(whole))
        if DENIES.search(_joined(whole[after : end + 1])):
            return False
    before = _joined(whole[:at])
    return not DENIES.search(before) and not TURNS.search(before)


def _joined(part: Sequence[str]) -> str:
    """Return words as text: Chinese close together, as its patterns stand."""
    return re.sub(rf"(?<=[{CJK}]) (?=[{CJK}])", "", " ".join(part))
