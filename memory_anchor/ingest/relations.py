"""How two statements stand to each other, as far as their words prove it: the part of writing that may end or dispute.

Two texts are compared as sequences of words. Where they are the same but for one stretch in the middle, that stretch
decides: a denial on one side, or two values of one kind behind the same subject, contradict; two subjects, names or
identifiers are two facts. A statement that itself reports a change replaces another where it names the same subject,
brings a value of the same kind, and holds everything else that the other says. Where it names the old value as over but
something else would be lost, a human is asked.

What is asked, supposed or true for some days only stands beside everything. The comparison of two statements is the
same in both orders; which of them reports a change is read from their words, not from their order.

Rejected: shares of words and cosines (a denial and another subject are the nearest neighbours of all), and a trained
model, which joined opposites and ended true facts; it still ranks and links (`reconcile`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise, product

from memory_anchor.language.quantities import Number, numbers
from memory_anchor.language.safe_regex import bounded
from memory_anchor.language.slots import DENY, EXCLUSIVE, SINGLE, contrast, read
from memory_anchor.language.terms import CJK, stem
from memory_anchor.language.words import LETTERS, either, listed, pattern

READ_CHARS = 1_000
READINGS_KEPT = 4_096
STRETCH_MAX, STRETCH_SHARE = 8, 0.6
"""Words of a differing stretch, and its share of the statement, up to which two statements are one but for it."""
CLAUSES_MAX = 4
NAME_WORDS, VALUE_WORDS = 4, 6
CLAUSE = bounded(r"[,;!?，；。！？：:\n—–]|\.(?!\w)|(?<![a-z])(?:but|because|so that)(?![a-z])|但是?|因为|而是")
REPLACES = bounded(either("replacement", edges=LETTERS), re.IGNORECASE)
ALSO = bounded(either("also", edges=LETTERS))
SUPPOSED = bounded(either("supposed", edges=LETTERS))
FOR_NOW = bounded(either("for_now", edges=LETTERS))
OVER = bounded(pattern("relations", "over"))
HAPPENED = bounded(either("came_about", edges=LETTERS))
ENDS = bounded(either("ends", edges=LETTERS))
UNDOES = bounded(either("undoes", edges=LETTERS))
_TOKEN = re.compile(
    rf"(?P<time>每[天日晚]|凌晨|早上|早晨|上午|中午|下午|傍晚|晚上|夜里|(?:周|星期|礼拜)[一二三四五六日天](?!次))"
    rf"|(?P<count>[零〇一二两三四五六七八九十百千万半]++(?=[点分秒天周月年日号个次条名人台小岁元成]))|(?P<han>[{CJK}])"
    rf"|(?P<number>\d++(?:[.,:]\d++){{0,8}}(?![.,:]\d)%?(?![A-Za-z_]|-\w))"
    rf"|(?P<word>[./\\@#$~-]{{0,8}}+[^\W{CJK}]++(?:[._/\\:@#+'’-]++[^\W{CJK}]++)*[+#]*+)"
)
_STOPS = frozenset(listed("left_out", "relations"))
_TIMES = frozenset(word.lower() for name in ("months", "weekdays") for word in listed("calendar", name))
_COUNTS = frozenset(listed("numbers", "english"))
_ORDINAL_DAY = bounded(
    rf"(?<![^\W_])((?:{'|'.join(listed('calendar', 'months'))})\.? \d{{1,2}})(?:st|nd|rd|th)(?![^\W_])", re.IGNORECASE
)
"""October 15th is October 15: a value of a kind, not a name."""
_HALVES = frozenset(("am", "pm", "a.m", "p.m", "noon", "midnight"))
_COPULAS = frozenset(("is", "are", "was", "were", "是"))
_PLACED = frozenset(("in", "at", "on", "to", "by", "with", "as"))
_HAN_SINGLE = frozenset("在是叫归由属住")
_HAN_VERBS = frozenset("用跑开在走放存写发是叫归由属住每从")
_PERSONS = frozenset("我你他她们户")
_VERB = bounded(either("predicate", edges=(r"(?<![a-z])", r"(?![a-z])")))


class Kind(StrEnum):
    """What the words of two statements prove. opposed: they contradict. replaced: one replaces the other whole.
    over: one names what the other says as over, and says less or other things besides. none: nothing.
    """

    OPPOSED = "opposed"
    REPLACED = "replaced"
    OVER = "over"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Word:
    """raw: lower case. base: its stem. kind: han, number, name or word."""

    raw: str
    base: str
    kind: str


@dataclass(frozen=True, slots=True)
class Wording:
    """One text, read once. over: the bases that it names as no longer so. changes, undoes: it reports a change, one
    that takes something back. happened: it tells of something that came about. supposed: it is asked or supposed.
    passing: so, or true for some days only: it changes nothing.
    """

    text: str
    words: tuple[Word, ...]
    clauses: tuple[tuple[Word, ...], ...]
    bases: frozenset[str]
    numbers: frozenset[Number]
    over: frozenset[str]
    changes: bool
    undoes: bool
    happened: bool
    supposed: bool
    passing: bool

    @property
    def reports(self) -> bool:
        """Whether it tells of something new, in whatever words."""
        return (self.changes or self.happened) and not self.supposed


@lru_cache(maxsize=READINGS_KEPT)
def wording(text: str) -> Wording:
    """Return a text as the comparison reads it."""
    plain = _ORDINAL_DAY.sub(r"\1", " ".join(unicodedata.normalize("NFKC", text[:READ_CHARS]).split()))
    lower = plain.lower()
    words = tuple(_words(plain))
    is_question = plain.endswith("?") or plain.rstrip("。.").endswith(("吗", "呢"))
    is_supposed = is_question or SUPPOSED.search(lower) is not None
    over = {word.base for match in OVER.finditer(lower) for word in _words(next(filter(None, match.groups()), ""))}
    return Wording(
        text=plain,
        words=words,
        clauses=tuple(filter(None, (tuple(_words(part)) for part in CLAUSE.split(plain))))[:CLAUSES_MAX],
        bases=frozenset(word.base for word in words),
        numbers=numbers(lower),
        over=frozenset(over - _STOPS),
        changes=REPLACES.search(lower) is not None,
        undoes=UNDOES.search(lower) is not None,
        happened=HAPPENED.search(lower) is not None,
        supposed=is_supposed,
        passing=is_supposed or FOR_NOW.search(lower) is not None,
    )


def _words(text: str) -> Iterator[Word]:
    """Yield the words of a text; articles and 的, 了 are left out."""
    is_chinese = re.search(rf"[{CJK}]", text) is not None
    for match in _TOKEN.finditer(text):
        raw = match.group()
        lower = raw.lower()
        if lower in {"a", "an", "the", "please", "的", "了", "请"}:
            continue
        kind = str(match.lastgroup)
        if kind in ("time", "count") or lower in _TIMES or lower.rstrip("s") in _TIMES or lower in _COUNTS | _HALVES:
            kind = "number"
        elif kind == "word":
            inner = any(letter.isupper() for letter in raw[1:]) or re.search(r"[\d._/\\:@#+~-]", raw)
            is_name = is_chinese or inner or (raw[0].isupper() and match.start() > 0)
            kind = "name" if is_name else "word"
        yield Word(lower, stem(re.sub(r"['’]s$", "", lower)), kind)


def compare(one: str, other: str) -> Kind:
    """Return what two statements prove of each other; the same in both orders.

    >>> compare("The retro is on Tuesday", "The retro is on Thursday"), compare("Push to main", "Never push to main")
    (<Kind.OPPOSED: 'opposed'>, <Kind.OPPOSED: 'opposed'>)
    >>> compare("The read timeout is 30 s", "The write timeout is 30 s")
    <Kind.NONE: 'none'>
    """
    found = {replacement(one, other), replacement(other, one)}
    for kind in (Kind.REPLACED, Kind.OVER):
        if kind in found:
            return kind
    return Kind.OPPOSED if opposed(one, other) else Kind.NONE


def opposed(one: str, other: str) -> bool:
    """Return whether two statements are one but for a denial, an opposite, or two values of one kind."""
    left, right = wording(one), wording(other)
    if left.passing != right.passing or left.supposed or right.supposed:
        return False
    pairs = ((left.words, right.words), *product(left.clauses, right.clauses))
    return any(_differ_in_value(first, second, one, other) for first, second in pairs)


def may_repeat(one: str, other: str) -> bool:
    """Return whether nothing in their words speaks against two statements being the same in other words.

    Not where a denial or an opposite differs, each has a name that the other lacks, or the subjects differ. Numbers are
    the model's: half past six and 6:30 are no two values.
    """
    left, right = wording(one), wording(other)
    difference = contrast(read(one), read(other))
    if left.passing != right.passing or difference.other_subject or opposed(one, other):
        return False
    if _is_chinese(left.words) != _is_chinese(right.words):
        return True
    names, others = ({word.base for word in side.words if word.kind == "name"} for side in (left, right))
    are_named_apart = names - right.bases and others - left.bases
    return not (are_named_apart or difference.opposites or _denies(left.words) != _denies(right.words))


def shares_words(one: str, other: str) -> bool:
    """Return whether two statements have a word in common that says what they are about; in Chinese two in a row."""
    left, right = wording(one), wording(other)
    if any(word.kind != "han" and word.base in right.bases and word.base not in _STOPS for word in left.words):
        return True
    pairs = ({(a.raw, b.raw) for a, b in pairwise(side.words) if a.kind == b.kind == "han"} for side in (left, right))
    return bool(set.intersection(*pairs))


def _is_chinese(words: Sequence[Word]) -> bool:
    return any(word.kind == "han" for word in words)


def _differ_in_value(left: Sequence[Word], right: Sequence[Word], one: str, other: str) -> bool:
    parts = _stretches(left, right)
    if parts is None:
        return False
    before, mine, theirs, behind = parts
    frame = (*before, *behind)
    if not any(word.base not in _STOPS and word.kind != "number" for word in frame):
        return False
    if _denies(mine) != _denies(theirs):
        return _is_denial_of(mine, theirs) or _is_denial_of(theirs, mine)
    if not mine or not theirs:
        return False
    difference = contrast(read(one), read(other))
    if difference.opposites and max(len(mine), len(theirs)) <= 2 and before and not difference.other_subject:
        return True
    if all(_is_number(word, before) for word in (*mine, *theirs)):
        return _is_value_place(before, behind)
    return _is_single_value(before, mine, theirs, behind)


def _stretches(
    left: Sequence[Word], right: Sequence[Word]
) -> tuple[Sequence[Word], Sequence[Word], Sequence[Word], Sequence[Word]] | None:
    """Return what both have before, the differing stretches, and what both have behind; None if they differ more."""
    most = min(len(left), len(right))
    head = next((at for at in range(most) if left[at].base != right[at].base), most)
    tail = next((at for at in range(most - head) if left[-1 - at].base != right[-1 - at].base), most - head)
    mine, theirs = left[head : len(left) - tail], right[head : len(right) - tail]
    longest = max(len(mine), len(theirs))
    if not longest or longest > STRETCH_MAX or longest > STRETCH_SHARE * (head + tail + longest) + 1:
        return None
    return left[:head], mine, theirs, left[len(left) - tail :]


def _text(words: Sequence[Word]) -> str:
    return re.sub(rf"(?<=[{CJK}]) (?=[{CJK}])", "", " ".join(word.raw for word in words))


def _denies(words: Sequence[Word]) -> bool:
    return DENY.search(_text(words)) is not None


def _is_denial_of(denied: Sequence[Word], said: Sequence[Word]) -> bool:
    """Return whether a stretch denies and says nothing else that the other does not."""
    if not _denies(denied):
        return False
    rest = [word.base for word in _words(DENY.sub(" ", _text(denied))) if word.base not in _STOPS]
    other = [word.base for word in said if word.base not in _STOPS]
    is_short = len(other) <= (2 if all(len(base) == 1 for base in other) else 1)
    return other[: len(rest)] == rest if rest else is_short


def _is_number(word: Word, before: Sequence[Word]) -> bool:
    """Return whether a word is part of a quantity: a number, a time, or the unit right after one."""
    is_unit = bool(before) and before[-1].kind == "number" and not _is_identifier(word)
    is_named = word.raw.isalpha() and not numbers(f"5 {word.raw}") <= {("count", "5")}
    return word.kind == "number" or is_unit or is_named


def _has_predicate(words: Sequence[Word]) -> bool:
    latin = " ".join(word.raw for word in words if word.kind in ("word", "name"))
    return _VERB.search(latin) is not None or _verb_at(words) is not None


def _verb_at(words: Sequence[Word]) -> int | None:
    """Return where a verb that no list has stands: "listens on", "expires after"."""
    for at in range(1, len(words) - 1):
        word, after = words[at], words[at + 1]
        if word.kind == "word" and word.raw.endswith("s") and (after.raw in _PLACED or after.kind == "number"):
            return at
    return None


def _is_value_place(before: Sequence[Word], behind: Sequence[Word]) -> bool:
    """Return whether what stands between these is said of a subject, not part of one: floor 3 has a printer."""
    subject = [word for word in before if word.kind == "han" or (word.base not in _STOPS and word.kind != "number")]
    if not subject:
        return False
    if any(word.kind == "han" for word in subject):
        return len(subject) > 1 and (not behind or behind[0].raw != "的")
    return _has_predicate(before) or not _has_predicate(behind)


def _is_single_value(
    before: Sequence[Word], mine: Sequence[Word], theirs: Sequence[Word], behind: Sequence[Word]
) -> bool:
    """Return whether both stretches are the one value of a subject: where it is, what it is called, who owns it."""
    if max(len(mine), len(theirs)) > NAME_WORDS or any(_is_identifier(word) for word in (*mine, *theirs)):
        return False
    han = [all(word.kind == "han" for word in words) for words in (mine, theirs)]
    names = [all(word.kind == "name" or word.base in _STOPS for word in words) for words in (mine, theirs)]
    if not before:
        owns = EXCLUSIVE.search(_text(behind)) is not None and (behind[0].raw.endswith("s") or behind[0].kind == "han")
        single = len(mine) == len(theirs) == 1 or (all(han) and min(len(mine), len(theirs)) > 1)
        return owns and single
    last = before[-1].raw
    if last in _HAN_SINGLE:
        said_of = [word for word in before[:-1] if word.kind != "number"]
        ends = not behind or all(word.raw in {"管", "里", "上", "负", "责"} for word in behind)
        named = all(names) or (all(han) and min(len(mine), len(theirs)) > 1)
        return ends and named and len(said_of) > 1 and not (last == "是" and {word.raw for word in said_of} & _PERSONS)
    if last in _COPULAS:
        return all(names) and not behind and len(before) > 1
    verb = before[-2].raw if last in _PLACED and len(before) > 1 else last
    if verb in _COPULAS:
        return all(names) and not behind
    return SINGLE.fullmatch(verb) is not None and not behind


def _is_identifier(word: Word) -> bool:
    return re.search(r"[^\W\d_]", word.raw) is not None and re.search(r"[\d_]", word.raw) is not None


def replacement(old: str, new: str) -> Kind:
    """Return whether `new` reports a change of what `old` says: replaced whole, over in part, or none."""
    was, now = wording(old), wording(new)
    if not now.changes or now.passing or was.passing:
        return Kind.NONE
    before, after = (tuple(_words(REPLACES.sub(" ", side.text))) for side in (was, now))
    if [word.base for word in after] == [word.base for word in before]:
        return Kind.REPLACED if ENDS.search(now.text.lower()) and not ENDS.search(was.text.lower()) else Kind.NONE
    adds = ALSO.search(now.text.lower()) is not None
    if not adds and not _denies(before) and not _denies(after) and _differ_in_value(before, after, old, new):
        return Kind.REPLACED
    value = _old_value(was, now)
    if value is None:
        return Kind.NONE
    subject = _subject(was)
    about = {word.base for word in subject} - _STOPS - value
    rest = {word.base for word in was.words if word.kind != "number"} - _STOPS - value - was.over
    lost = rest - now.bases - _verbs(was)
    shared = (about or rest) & now.bases
    if not shared:
        return Kind.OVER if now.undoes and value & now.over else Kind.NONE
    brings_value = _brings_value(was, now, value)
    left = [word for word in subject if word.base not in value]
    if not lost and brings_value and _is_same_subject(left, was, now):
        return Kind.REPLACED
    return Kind.OVER if value & now.over or (now.undoes and not about - now.bases) else Kind.NONE


def _verbs(was: Wording) -> set[str]:
    """Return the bases of the predicate: a change is said with another verb."""
    verbs = {
        word.base
        for word in was.words
        if word.kind == "word" and (_VERB.fullmatch(word.raw) or SINGLE.fullmatch(word.raw))
    }
    if not verbs and (at := _verb_at(was.words)) is not None:
        verbs.add(was.words[at].base)
    return verbs | _HAN_VERBS


def _old_value(was: Wording, now: Wording) -> set[str] | None:
    """Return the bases of the value that is over: named as such, or all that the new statement lacks; None for none."""
    subject = {word.base for word in _subject(was)}
    said = {word.base for word in was.words} - _STOPS - was.over
    named = (said & now.over) - _verbs(was)
    if named - subject:
        return named - subject
    units = {unit for unit, _ in was.numbers} & {unit for unit, _ in now.numbers - was.numbers}
    if units and not ALSO.search(now.text.lower()):
        return {word.base for word in was.words if word.kind == "number"}
    gone = [word for word in was.words if word.base in said - now.bases - _verbs(was)]
    if gone and all(word.kind == "han" for word in gone):  # what stands behind 是, 由, 归 and the like is one value
        at = max((at for at, word in enumerate(was.words) if word.raw in _HAN_SINGLE), default=len(was.words))
        behind = was.words[at + 1 :]
        return {word.base for word in behind} if 0 < len(behind) <= NAME_WORDS and gone[0] in behind else None
    if gone and len(gone) <= VALUE_WORDS and was.words[-1] in gone and all(word.kind == "name" for word in gone):
        return {word.base for word in gone}
    return named or (set() if now.undoes and subject <= now.bases else None)


def _brings_value(was: Wording, now: Wording, value: set[str]) -> bool:
    """Return whether the new statement gives another value of the kind of the old one."""
    come = [word for word in now.words if word.base not in was.bases | now.over | _STOPS]
    if any(word.kind == "number" for word in was.words if word.base in value):
        units = {unit for unit, _ in was.numbers}
        news = now.numbers - was.numbers
        return any(unit in units for unit, _ in news) or (bool(value & now.over) and bool(news))
    is_han = bool(value) and all(re.fullmatch(rf"[{CJK}]", base) for base in value)
    brings = any(word.kind == "name" or (is_han and word.kind == "han") for word in come)
    return brings or (bool(value & now.over) and bool(come))


def _subject(was: Wording) -> tuple[Word, ...]:
    """Return the words before the predicate; all but the last stretch of names and numbers where there is none."""
    words = was.words
    for at, word in enumerate(words):
        is_verb = (word.kind == "word" and _VERB.fullmatch(word.raw)) or (at > 1 and word.raw in _HAN_VERBS)
        if at and is_verb:
            return words[:at]
    if (verb := _verb_at(words)) is not None:
        return words[:verb]
    end = len(words)
    while end and words[end - 1].kind in ("number", "name"):
        end -= 1
    return words[:end]


def _is_same_subject(subject: Sequence[Word], was: Wording, now: Wording) -> bool:
    """Return whether the new statement names the subject whole, and nothing that makes it another one."""
    wanted = [word.base for word in subject if word.base not in _STOPS]
    if not wanted:
        return True
    bases = [word.base for word in now.words]
    content = [at for at, base in enumerate(bases) if base in wanted]
    for at in content:
        run = [base for base in bases[at : at + len(subject) + 2] if base not in _STOPS]
        if run[: len(wanted)] != wanted:
            continue
        before = now.words[at - 1] if at else None
        if before is None or _may_stand_before(before, was, now):
            return True
    return set(wanted) <= set(bases) and not _VERB.search(_text(was.words))


def _may_stand_before(word: Word, was: Wording, now: Wording) -> bool:
    """Return whether a word before the subject leaves it the same: no adjective, no name, no other noun."""
    if word.base in _STOPS or word.base in was.bases or REPLACES.search(_text([word])) or word.kind == "number":
        return True
    place = now.text.lower().find(word.raw)
    behind = now.text[place + len(word.raw) : place + len(word.raw) + 1]
    return behind in ",;:，；：。.!！" or (word.kind == "han" and word.raw in "把将的给对让和与，换改正")


def missing(text: str, other: str, *, replaced: bool = False) -> frozenset[str]:
    """Return the numbers, names and denied words of a text that another one lacks.

    replaced: what the other gives another of its kind for, a number of its unit or a name, does not count.
    """
    said, kept = wording(text), wording(other)
    units = {unit for unit, _ in kept.numbers}
    lost = {value for unit, value in said.numbers - kept.numbers if not (replaced and unit in units)}
    news = {word.base for word in kept.words if word.kind == "name"} - said.bases
    if not (replaced and news):
        lost |= {word.raw for word in said.words if word.kind == "name" and word.base not in kept.bases}
    return frozenset(lost | {f"not {base}" for base in _denied(said) - _denied(kept)})


def _denied(said: Wording) -> set[str]:
    """Return the word right behind each denial."""
    lower = said.text.lower()
    behind = (next((w for w in _words(lower[m.end() :]) if w.base not in _STOPS), None) for m in DENY.finditer(lower))
    return {word.base for word in behind if word is not None}
