"""How two short statements about the same slot differ, read by rules in English and Chinese.

Similarity finds statements about the same thing; it cannot tell "dark mode" from "light mode" (the contradiction is
often the closer one). This module reads what a vector blurs: numbers, what is denied or replaced, opposites, names,
and the places where two wordings differ. `read` analyses one statement, `contrast` compares two readings. Pure, no
model, well under a millisecond. The words are lists that a person can check (`words.toml`); their weights are learned.

Rejected: a parser (heavy, and one a language); rules, agreements and renamings by lists (without them the model errs as
rarely on pairs it did not see). Invariant: nothing here decides an outcome; `ingest/reconcile` weighs it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import Match, SequenceMatcher
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from memory_anchor.language.quantities import Number, numbers
from memory_anchor.language.safe_regex import bounded, late
from memory_anchor.language.terms import terms
from memory_anchor.language.words import LETTERS, either, listed, pattern, sides

CJK = "\u3400-\u4dbf\u4e00-\u9fff"
CLAUSE = bounded(r"[,;!?，；。！？、\n]|\.(?!\d)|(?<![a-z])(?:but|because|so that)(?![a-z])|但是?|因为")

STOPS = frozenset(listed("left_out", "slots"))

CHANGE = bounded(either("change", edges=LETTERS))
CHANGED_TO = bounded(either("changed_to", edges=LETTERS))
DENY = bounded(either("denial", edges=LETTERS))
IMPLIED = bounded(either("implied_denial", edges=LETTERS))
BOUND = bounded(pattern("slots", "bound"))
CONTRAST = bounded(pattern("slots", "contrast"))
FROM = bounded(pattern("slots", "from"))

VERBS = bounded(r"^[\s用要能会再是有需得许使再让]{0,3}")

OPPOSITES = sides("opposites", between="/", within="|")
RULE_WORDS = bounded(either("rule_words", edges=LETTERS))
ASIDES = sides("asides", between="|", within="=")
PREDICATE = bounded(either("predicate", edges=LETTERS))
PLACED = bounded(pattern("slots", "placed"))
NUMERAL = bounded(r"[0-9零一二两三四五六七八九十百千万]")
COPULAS = frozenset(("is", "are", "was", "were", "是"))
PRONOUNS = frozenset("我你他她它")
SINGLE = bounded(pattern("slots", "single"))
MANY = bounded(pattern("slots", "many"))
ONLY = bounded(either("only", edges=LETTERS))
EXCLUSIVE = bounded(either("held_by_one", edges=LETTERS))


NAME = bounded(pattern("slots", "name"))
ASCII_WORD = bounded(r"[A-Za-z][A-Za-z0-9_.+#-]*[A-Za-z0-9]")
NOT_A_NAME = frozenset(listed("left_out", "names"))


READ_CHARS = 1_000
"""Only this much of a statement is read: a slot is stated early, and the bound keeps the alignment cheap."""
ALIGNED_TOKENS = 120
READINGS_KEPT = 4_096
ALIGNED_KEPT = 64
ASIDE_TOKENS = 2
ALIKE, SWAPPED_IN, PARALLEL = 0.45, 0.4, 0.55
"""Alignment from which two wordings count as one sentence with a word exchanged."""

_DENIED_IMPLIED = bounded(rf"(?:{DENY.pattern})\s?(?:\w{{1,24}}+\s)?(?:{IMPLIED.pattern})")
_TOKEN = late(rf"[{CJK}]|[a-z0-9_]++(?:[.'’/+#:-]++[a-z0-9_]++)*")


@dataclass(frozen=True, slots=True)
class Reading:
    """One analysed statement. tokens: in order, without stop words. refused: tokens it denies or replaces.

    subject: how many of the tokens stand before the predicate; the first alone where none is known. sides: (pair, side)
    of each of `OPPOSITES` it has a word of; `asides` likewise of `ASIDES`.
    """

    folded: str
    tokens: tuple[str, ...]
    content: frozenset[str]
    numbers: frozenset[Number]
    names: frozenset[str]
    refused: frozenset[str]
    asserted: frozenset[str]
    denied: bool
    changed: bool
    subject: int
    predicate: str
    sides: frozenset[tuple[int, int]]
    asides: frozenset[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Contrast:
    """How two statements differ.

    overlap: share of the shorter one's content terms that the other has, 0 to 1. wording: how parallel both are, 0 to
    1. other_subject: they are parallel but about different things. counted: some unit differs in number. listed: they
    differ in one value of a predicate that holds many. opposites: each has one side of a pair. denied: one denies or
    replaces what the other says. swapped: names are exchanged. span: one stretch of words is all the difference. value:
    the same subject and single-valued predicate end differently. news: the new one itself says that something changed.
    """

    overlap: float
    wording: float
    other_subject: bool
    counted: bool
    listed: bool
    opposites: bool
    denied: bool
    swapped: bool
    span: bool
    value: bool
    news: bool


def _names(text: str) -> frozenset[str]:
    """Return proper names: capitalised words inside an English sentence, any ASCII word in Chinese text."""
    chinese = re.search(rf"[{CJK}]", text) is not None
    names: set[str] = set()
    for match in (ASCII_WORD if chinese else NAME).finditer(text):
        word = match.group()
        opens = not chinese and (
            match.start() == 0 or text[max(0, match.start() - 2) : match.start()].strip()[-1:] in {".", "!", "?"}
        )
        if word.lower() in NOT_A_NAME or (opens and word[1:].islower()):
            continue
        names.add(word.lower())
    return frozenset(names)


def _stems(text: str) -> frozenset[str]:
    return frozenset(term for term in terms(text) if term not in STOPS and not (len(term) == 1 and term >= "\u3400"))


@lru_cache(maxsize=READINGS_KEPT)
def read(text: str) -> Reading:
    """Return one statement analysed; only the first `READ_CHARS` characters are read."""
    plain = unicodedata.normalize("NFKC", text[:READ_CHARS])
    folded = " ".join(plain.lower().split()).strip(" .。!！")
    without_bounds = BOUND.sub(" ", folded)
    refused: set[str] = set()
    for match in FROM.finditer(folded):
        refused |= _stems(next(filter(None, match.groups())))
    placed = PLACED.sub(lambda match: "lives in" if match.group().isascii() else "在", folded)
    for match in CONTRAST.finditer(without_bounds):
        tail = CLAUSE.split(without_bounds[match.end() :])[0]
        refused |= _stems(" ".join(tail.split()[:3]) if tail.isascii() else tail[:6])
    clauses = [clause for clause in CLAUSE.split(CONTRAST.sub("，", without_bounds)) if clause.strip()]
    denied = [clause for clause in clauses if DENY.search(clause)]
    asserted = frozenset().union(*(_stems(clause) for clause in clauses if clause not in denied)) - refused
    for clause in denied:
        tail = DENY.split(clause, maxsplit=1)[-1]
        refused |= _stems(" ".join(tail.split()[:2]) if tail.isascii() else VERBS.sub("", tail)[:2])
    tokens = tuple(token for token in _TOKEN.findall(placed) if token not in STOPS)[:ALIGNED_TOKENS]
    # The first verb that can be the predicate: a Chinese subject has two characters unless it is a pronoun (库存服务).
    verb = PREDICATE.search(placed, 1 if placed[:1].isascii() or placed[:1] in PRONOUNS else 2)
    before = [token for token in _TOKEN.findall(placed[: verb.start()]) if token not in STOPS] if verb else []
    return Reading(
        folded=folded,
        tokens=tokens,
        content=_stems(placed),
        numbers=numbers(folded),
        names=_names(plain),
        refused=frozenset(refused),
        asserted=asserted,
        denied=bool(denied),
        changed=CHANGE.search(folded) is not None,
        subject=len(before) or 1,
        predicate=verb.group() if verb else "",
        sides=_SIDES.places(tokens, folded),
        asides=_ASIDES.places(tokens, folded),
    )


def _differing_units(old: Reading, new: Reading) -> frozenset[str]:
    """Return the units that both count, with no number in common."""
    units = set()
    for unit in {unit for unit, _ in old.numbers} & {unit for unit, _ in new.numbers}:
        mine = {value for name, value in old.numbers if name == unit}
        theirs = {value for name, value in new.numbers if name == unit}
        if not mine & theirs and not (unit == "time" and "1" in mine | theirs):
            units.add(unit)
    return frozenset(units)


class _Groups:
    """An index of word groups: single English words by token, the rest as parts of the text."""

    def __init__(self, groups: Sequence[Sequence[frozenset[str]]]) -> None:
        self._words: dict[str, list[tuple[int, int]]] = {}
        self._parts: list[tuple[str, tuple[int, int]]] = []
        for group, members in enumerate(groups):
            for member, spellings in enumerate(members):
                for word in spellings:
                    if word.isascii() and " " not in word:
                        self._words.setdefault(word, []).append((group, member))
                    else:
                        self._parts.append((word, (group, member)))

    def places(self, tokens: Sequence[str], folded: str) -> frozenset[tuple[int, int]]:
        """Return (group, member) of every group that a statement has a word of."""
        places = {place for token in tokens for place in self._words.get(token, ())}
        return frozenset(places.union(place for part, place in self._parts if part in folded))


_SIDES, _ASIDES = _Groups(OPPOSITES), _Groups(ASIDES)


def _opposed(old: Reading, new: Reading) -> bool:
    """Return whether one statement has a word of a pair and the other only its opposite."""
    return any(
        (pair, 1 - side) in new.sides and (pair, side) not in new.sides and (pair, 1 - side) not in old.sides
        for pair, side in old.sides
    )


def _other_aside(old: Reading, new: Reading) -> bool:
    """Return whether both name one of several places, times or kinds, and not the same one."""
    named = {group for group, _ in old.asides} & {group for group, _ in new.asides}
    return any(all(group != common for common, _ in old.asides & new.asides) for group in named)


def _other_subject(old: Reading, new: Reading, swaps: Sequence[tuple[str, int, int, int, int]]) -> bool:
    """Return whether words before both predicates differ, and neither statement has those of the other."""
    if EXCLUSIVE.search(old.folded) and EXCLUSIVE.search(new.folded):
        return False
    for _, i, j, k, m in swaps:
        gone, come = old.tokens[i:j], new.tokens[k:m]
        if DENY.search("".join(gone)) or DENY.search("".join(come)):
            continue
        if j <= old.subject and m <= new.subject and not any(token[0].isdigit() for token in (*gone, *come)):
            return not (set(gone) & set(new.tokens) or set(come) & set(old.tokens))
    return False


def _change_words(folded: str) -> frozenset[str]:
    """Return the words of change in it, each by its first word, in Chinese by its first character."""
    phrases = (match.group() for match in CHANGE.finditer(folded))
    return frozenset(phrase.split()[0] if phrase.isascii() else phrase[0] for phrase in phrases)


def _news(old: Reading, new: Reading, edits: Sequence[tuple[str, int, int, int, int]]) -> bool:
    """Return whether of two statements about a change the new one is a further change.

    A change word in both may be about two things, or none (changed files, the left column). It is news where the new
    one ends what the old one says, and where all that differs is a number or follows the same verb as its new value.
    """
    if _change_words(new.folded) - _change_words(old.folded) or new.refused & old.asserted:
        return True
    if len(edits) != 1:
        return False
    _, i, j, k, m = edits[0]
    exchanged = (*old.tokens[i:j], *new.tokens[k:m])
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(old.folded, new.folded, strict=False))
    same_until = "".join(character for character, _ in alike)
    counts = bool(_differing_units(old, new)) and all(NUMERAL.match(token) for token in exchanged)
    return counts or CHANGED_TO.search(same_until) is not None


def _same_word(old: Reading, new: Reading, swap: tuple[str, int, int, int, int]) -> bool:
    """Return whether the exchanged words differ only in inflection, or only forbid alike: never push, do not push."""
    _, i, j, k, m = swap
    gone, come = (
        RULE_WORDS.sub("", (" " if "".join(tokens).isascii() else "").join(tokens)).strip()
        for tokens in (old.tokens[i:j], new.tokens[k:m])
    )
    return not (gone and come) or bool(_stems(gone) and _stems(gone) == _stems(come))


def _both_negative(old: Reading, new: Reading) -> bool:
    """Return whether one denies in words what the other denies by its meaning: no sugar, unsweetened."""
    return any(
        other.denied and IMPLIED.search(one.folded) is not None and not _DENIED_IMPLIED.search(other.folded)
        for one, other in ((old, new), (new, old))
    )


def _kind_differs(old: Reading, new: Reading, swap: tuple[str, int, int, int, int]) -> bool:
    """Return whether a number is exchanged for a word: on port 8080 and on Debian are two facts."""
    _, i, j, k, m = swap
    return any(token[0].isdigit() for token in old.tokens[i:j]) != any(token[0].isdigit() for token in new.tokens[k:m])


def _other_value(old: Reading, new: Reading, alignment: Alignment) -> bool:
    """Return whether subject and single-valued predicate are the same and what follows shares nothing."""
    first = alignment.blocks[0]
    if first.a or first.b or first.size < max(old.subject, new.subject) or old.predicate != new.predicate:
        return False
    rest, come = old.tokens[first.size :], new.tokens[first.size :]
    kind_differs = any(token[0].isdigit() for token in rest) != any(token[0].isdigit() for token in come)
    if not rest or not come or kind_differs or not SINGLE.fullmatch(old.predicate):
        return False
    return not _stems(" ".join(rest)) & _stems(" ".join(come))


def _turned(old: Reading, new: Reading) -> Reading:
    """Return the old reading in the order of the new one: X is Y and Y is X say the same."""
    if old.predicate not in COPULAS or new.predicate not in COPULAS:
        return old
    head, tail = old.tokens[: old.subject], old.tokens[old.subject :]
    about = set(new.tokens[: new.subject])
    if len(about & set(tail)) <= len(about & set(head)) or not head:
        return old
    return replace(old, tokens=(*tail, *head), subject=len(tail))


class Alignment(NamedTuple):
    """Two lists of words side by side. edits: (tag, i, j, k, m) of what differs; blocks: of what is alike, as difflib
    gives both; ratio: 0 to 1. A value, since threads share it: difflib's own object fills its lists while it is asked.
    """

    edits: tuple[tuple[str, int, int, int, int], ...]
    blocks: tuple[Match, ...]
    ratio: float


@lru_cache(maxsize=ALIGNED_KEPT)
def aligned(old: tuple[str, ...], new: tuple[str, ...]) -> Alignment:
    """Return the two lists of words side by side; a pair is asked about several times in a row."""
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    edits = tuple(edit for edit in matcher.get_opcodes() if edit[0] != "equal")
    return Alignment(edits, tuple(matcher.get_matching_blocks()), matcher.ratio())


def contrast(old: Reading, new: Reading) -> Contrast:
    """Return how the two readings differ."""
    old = _turned(old, new)
    alignment = aligned(old.tokens, new.tokens)
    edits, wording = alignment.edits, alignment.ratio
    swaps = [edit for edit in edits if edit[0] == "replace"]
    one_stretch = len(edits) == 1 and len(swaps) == 1
    units = _differing_units(old, new)
    overlap = len(old.content & new.content) / (min(len(old.content), len(new.content)) or 1)
    # Each names something that the other does not mention at all.
    named_apart = any(name not in new.folded for name in old.names) and any(n not in old.folded for n in new.names)
    swapped = max(overlap, wording) >= SWAPPED_IN and named_apart
    holds_many = all(MANY.search(r.folded) and not ONLY.search(r.folded) for r in (old, new))
    one_denies = (old.denied or bool(old.refused)) != (new.denied or bool(new.refused))
    exchanged = one_stretch and not _same_word(old, new, swaps[0])
    just_aside = one_stretch and swaps[0][2] - swaps[0][1] <= ASIDE_TOKENS
    other_aside = _other_aside(old, new)
    reworded = (new.changed and not old.changed) or one_denies or (other_aside and just_aside)
    other_slot = other_aside or (wording >= ALIKE and _other_subject(old, new, swaps))
    return Contrast(
        overlap=overlap,
        wording=wording,
        other_subject=other_slot and not reworded,
        counted=bool(units),
        listed=holds_many and (swapped or (exchanged and wording >= SWAPPED_IN)),
        opposites=_opposed(old, new),
        denied=not _both_negative(old, new)
        and (
            bool(old.refused & new.asserted or new.refused & old.asserted)
            or (one_denies and max(overlap, wording) >= ALIKE)
        ),
        swapped=swapped,
        span=exchanged and wording >= PARALLEL and not _kind_differs(old, new, swaps[0]),
        value=_other_value(old, new, alignment),
        news=new.changed and (not old.changed or _news(old, new, edits)),
    )
