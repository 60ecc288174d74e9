"""How two statements stand to each other, as far as their words prove it: the part of writing that may end or dispute.

Two texts are compared as sequences of words. Where they are the same but for one stretch in the middle, that stretch
decides: a denial on one side, or two values of one kind behind the same subject, contradict; two subjects, names or
identifiers are two facts. A statement that itself reports a change replaces another where, without its words of change,
it is the other but for one stretch, and both stretches are values of one kind (`_restates`). Where it names the old
value as over, or takes back what the other says, but something else would be lost, a human is asked.

What is asked, supposed or true for some days only stands beside everything. The comparison of two statements is the
same in both orders; which of them reports a change is read from their words, not from their order.

Rejected: shares of words and cosines (a denial and another subject are the nearest neighbours of all), and a trained
model, which joined opposites and ended true facts; it still ranks and links (`reconcile`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise, product

from memory_anchor.ingest.naming import naming_rules, other_signs
from memory_anchor.language.quantities import Number, numbers
from memory_anchor.language.safe_regex import bounded, late
from memory_anchor.language.slots import DENY, EXCLUSIVE, PLACED, RULE_WORDS, SINGLE, contrast, read
from memory_anchor.language.terms import CJK, stem
from memory_anchor.language.words import LETTERS, either, listed, pattern

READ_CHARS, READINGS_KEPT = 1_000, 4_096
STRETCH_MAX, STRETCH_SHARE = 8, 0.6
"""Words of a differing stretch, and its share of the statement, up to which two statements are one but for it."""
CLAUSES_MAX = 4
NAME_WORDS, VALUE_WORDS = 4, 6
CLAUSE = bounded(r"[,;!?，；。！？：\n—–]|:(?!\d)|\.(?!\w)|(?<![a-z])(?:but|because|so that)(?![a-z])|但是?|因为|而是")
SINCE = bounded(either("since", edges=LETTERS), re.IGNORECASE)
LATELY = bounded(f"{either('lately', edges=LETTERS)}|{SINCE.pattern}")
REPLACES = bounded(f"{LATELY.pattern}|{either('replacement', edges=LETTERS)}", re.IGNORECASE)
DENIED = bounded(rf"(?:{either('denial', edges=LETTERS)})(?![^,;:，；。]{{0,16}}(?:and|but|而)\b)[^,;:，；。]{{0,24}}$")
ALSO = bounded(either("also", edges=LETTERS))
SUPPOSED = bounded(either("supposed", edges=LETTERS))
FOR_NOW = bounded(either("for_now", edges=LETTERS))
OVER = bounded(pattern("relations", "over"))
REASON = bounded(pattern("relations", "reason"), re.IGNORECASE)
HAPPENED = bounded(either("came_about", edges=LETTERS))
ANNOUNCES = bounded(either("announces", edges=LETTERS))
BECOMES = bounded(either("becomes", edges=LETTERS))
RENAMED = bounded(either("renamed", edges=LETTERS))
ENDS = bounded(either("ends", edges=LETTERS))
UNDOES = bounded(either("undoes", edges=LETTERS))
_TOKEN = late(
    rf"(?P<time>每[天日晚]|凌晨|早上|早晨|上午|中午|下午|傍晚|晚上|夜里|(?:周|星期|礼拜)[一二三四五六日天](?!次))"
    rf"|(?P<count>[零〇一二两三四五六七八九十百千万半]++(?=[点分秒天周月年日号个次条名人台小岁元成]))|(?P<han>[{CJK}])"
    rf"|(?P<number>\d++(?:[.,:]\d++){{0,8}}(?![.,:]\d)%?(?![A-Za-z_]|-\w))"
    rf"|(?P<word>[./\\@#$~-]{{0,8}}+[^\W{CJK}]++(?:[._/\\:@#+'’-]++[^\W{CJK}]++)*[+#]*+)"
)
_STOPS = frozenset(listed("left_out", "relations"))
_TIMES = frozenset(word.lower() for name in ("months", "weekdays") for word in listed("calendar", name))
_COUNTS = frozenset((*listed("numbers", "english"), "am", "pm", "a.m", "p.m", "noon", "midnight"))
_ORDINAL_DAY = bounded(
    rf"(?<![^\W_])((?:{'|'.join(listed('calendar', 'months'))})\.? \d{{1,2}})(?:st|nd|rd|th)(?![^\W_])", re.IGNORECASE
)
"""October 15th is October 15: a value of a kind, not a name."""
_COPULAS = frozenset(("is", "are", "was", "were", "是"))
_PLACED = frozenset(("in", "at", "on", "to", "by", "with", "as"))
_HAN_SINGLE = frozenset("在是叫归由属住")
_HAN_VERBS = frozenset("用跑开在走放存写发是叫归由属住每从")
_PERSONS = frozenset("我你他她们户")
_PERSON_OF = {word: one.split("/")[0] for one in listed("left_out", "persons") for word in one.split("/")}
_LIMITS = frozenset(("every", "each", "per", "all", "before", "within", "每"))
_HAN_UNITS = frozenset("零〇一二两三四五六七八九十百千万点半刻分秒天周月年日号个次条名人台岁元时")
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
    """One text, read once. bare: its words but those of change. gone: those that it names as no longer so. changes,
    dated, undoes: it reports a change, one by its time alone (from now on), one that takes something back. happened: it
    tells of something that came about. supposed: it is asked or supposed. passing: so, or true for some days only: it
    changes nothing. announces: it says that a rule beside it is a changed one. signs: what it asks of names (`naming`).
    """

    text: str
    words: tuple[Word, ...]
    bare: tuple[Word, ...]
    clauses: tuple[tuple[Word, ...], ...]
    bases: frozenset[str]
    numbers: frozenset[Number]
    gone: tuple[Word, ...]
    changes: bool
    dated: bool
    undoes: bool
    happened: bool
    supposed: bool
    passing: bool
    announces: bool
    signs: Mapping[tuple[str, str], str]

    @property
    def over(self) -> set[str]:
        """The bases of what is gone."""
        return {word.base for word in self.gone} - _STOPS

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
    is_dated = all(LATELY.fullmatch(found.group()) for found in REPLACES.finditer(lower))
    ends = OVER.finditer(" ".join(SINCE.sub(" ", lower).split()))
    # Where nothing moves, "import it from A to all modules" names nothing as over.
    told = (next(filter(None, end.groups()), "") for end in ends if not (is_dated and end[0].startswith("from ")))
    return Wording(
        text=plain,
        words=words,
        bare=tuple(_words(REPLACES.sub(" ", plain))),
        clauses=tuple(filter(None, (tuple(_words(part)) for part in CLAUSE.split(plain))))[:CLAUSES_MAX],
        bases=frozenset(word.base for word in words),
        numbers=numbers(lower),
        gone=tuple(word for part in told for word in _words(part)),
        changes=_reports_change(lower),
        dated=is_dated,
        undoes=UNDOES.search(lower) is not None,
        happened=HAPPENED.search(lower) is not None,
        supposed=is_supposed,
        passing=is_supposed or FOR_NOW.search(lower) is not None,
        announces=ANNOUNCES.search(lower) is not None,
        signs=naming_rules(plain),
    )


def _reports_change(lower: str) -> bool:
    """Return whether a text has a word of change that it does not deny: it was not moved, 没有换成."""
    return any(
        LATELY.fullmatch(match.group()) is not None or DENIED.search(lower[: match.start()]) is None
        for match in REPLACES.finditer(lower)
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
        if kind in ("time", "count") or lower in _TIMES or lower.rstrip("s") in _TIMES or lower in _COUNTS:
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


@lru_cache(maxsize=READINGS_KEPT)
def opposed(one: str, other: str) -> bool:
    """Return whether two statements are one but for a denial, an opposite, or two values of one kind."""
    left, right = wording(one), wording(other)
    if other_signs(left.signs, right.signs):
        return True
    if left.passing != right.passing or left.supposed or right.supposed:
        return False
    pairs = ((left.words, right.words), *product(left.clauses, right.clauses))
    return any(_differ_in_value(first, second, one, other) for first, second in pairs)


def _rules_besides(was: Wording) -> bool:
    """Return whether a text that asks for signs in names asks for something else, too: an identifier, another rule."""
    signs = was.signs.values()
    if any(word.raw[0] in "@-" and word.raw not in signs for word in was.words):
        return True
    ruling = [part for part in CLAUSE.split(was.text.lower()) if RULE_WORDS.search(part) or DENY.search(part)]
    besides = (RULE_WORDS.sub(" ", DENY.sub(" ", part)) for part in ruling if not any(sign in part for sign in signs))
    return any(sum(word.base not in _STOPS for word in _words(part)) > 1 for part in besides)


def may_repeat(one: str, other: str) -> bool:
    """Return whether nothing in their words speaks against two statements being the same in other words.

    Not where a denial or an opposite differs, each has a name that the other lacks, or the subjects differ: by their
    words, or because one sentence opens with two different things (测试环境 and 生产环境, 小王 and 小汪). Numbers are
    the model's: half past six and 6:30 are no two values.
    """
    left, right = wording(one), wording(other)
    difference = contrast(read(one), read(other))
    if left.passing != right.passing or difference.other_subject or opposed(one, other):
        return False
    if _is_chinese(left.words) != _is_chinese(right.words):
        return True
    if _open_with_two_things(left.words, right.words):
        return False
    names, others = ({word.base for word in side.words if word.kind == "name"} for side in (left, right))
    are_named_apart = names - right.bases and others - left.bases
    return not (are_named_apart or difference.opposites or _denies(left.words) != _denies(right.words))


def _open_with_two_things(left: Sequence[Word], right: Sequence[Word]) -> bool:
    """Return whether two sentences are one but for a word or two at their beginning, behind an article or 小 or 老."""
    before, mine, theirs, behind = _stretches(left, right) or ((), (), (), ())
    opens = all(word.base in _STOPS for word in before) or (len(before) == 1 and before[0].kind == "han")
    return opens and bool(mine and theirs and behind) and max(len(mine), len(theirs)) <= 2


def shares_words(one: str, other: str) -> bool:
    """Return whether two statements have a word in common that says what they are about; in Chinese two in a row."""
    left, right = wording(one), wording(other)
    return bool(_terms(left.words) & _terms(right.words))


def _terms(words: Sequence[Word]) -> set[str]:
    """Return the bases that say something by themselves; of Chinese every two signs in a row."""
    pairs = {a.base + b.base for a, b in pairwise(words) if a.kind == b.kind == "han" and {a.base, b.base} - _STOPS}
    return pairs | {word.base for word in words if word.kind != "han" and word.base not in _STOPS}


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
    if abs(len(left) - len(right)) > STRETCH_MAX:
        return None
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
    if not (now.changes or now.announces):
        return Kind.NONE
    if changed := other_signs(was.signs, now.signs):
        return Kind.REPLACED if changed == was.signs.keys() and not _rules_besides(was) else Kind.OVER
    if now.passing or was.passing or not now.changes:
        return Kind.NONE
    before, after = was.bare, now.bare
    if [word.base for word in after] == [word.base for word in before]:
        return Kind.REPLACED if ENDS.search(now.text.lower()) and not ENDS.search(was.text.lower()) else Kind.NONE
    adds = ALSO.search(now.text.lower()) is not None
    is_plain = now.dated or not (_denies(before) or _denies(after))
    parts = _stretches(before, after) or ((), (), (), ())
    may_hold_both = all(parts[:3]) and parts[0][-1].raw == "是" and not _are_alike(now, parts[1], parts[2])
    if not adds and is_plain and not may_hold_both and _differ_in_value(before, after, old, new):
        return Kind.REPLACED
    if not adds and _restates(was, wording(REASON.sub("", now.text))):
        return Kind.REPLACED
    if now.undoes and _opening(was.words) <= now.bases:
        return Kind.OVER
    verbs, gone = _verbs(was), _terms(now.gone)
    said = _terms(before) - _terms(was.gone) - verbs
    named = said & gone
    takes_back = now.undoes and 2 * len(named) >= len(gone)
    if named and not own_subjects(old, new) and (len(named) > 1 or takes_back or (said - named) & _terms(after)):
        return Kind.OVER
    units, others = ({unit for unit, _ in one} for one in (was.numbers - now.numbers, now.numbers - was.numbers))
    about = {word.base for word in was.words if word.kind != "number"} - _STOPS - was.over - verbs
    return Kind.OVER if units & others and about and about <= now.bases else Kind.NONE


def own_subjects(one: str, other: str) -> bool:
    """Return whether either opens, words of change aside, with what the other lacks; "never mind" has no subject."""
    left, right = wording(one), wording(other)
    if left.undoes or right.undoes or _is_chinese(left.words) != _is_chinese(right.words):
        return False
    return not (_opening(left.bare) <= right.bases or _opening(right.bare) <= left.bases)


def _opening(words: Sequence[Word]) -> set[str]:
    """Return the first word that says what a statement is about; in Chinese with the sign behind it."""
    at = next((n for n, word in enumerate(words) if word.base not in _STOPS and not _is_number(word, words[:n])), 0)
    return {word.base for word in words[at : at + 1 + _is_chinese(words[at : at + 1])]}


def _restates(was: Wording, now: Wording) -> bool:
    """Return whether the new statement is the old one but for its value, and the value is one of the same kind.

    What is compared is what both say without words of change, without what is named as over, and without the predicate,
    for which a verb of change may stand. So the subject is the same, nothing is lost, and nothing restricts the change.
    """
    if not now.over <= was.bases | _STOPS:
        return False
    known, parts = _bare_parts(was, was), _bare_parts(was, now)
    old, said = (tuple(word for part in side for word in part) for side in (known, parts))
    persons, others = ({_PERSON_OF.get(word.raw, "") for word in side} - {""} for side in (old, said))
    limits, further = ({word.raw for word in side} & _LIMITS for side in (old, said))
    if _denies(old) != _denies(said) or not further <= limits or (persons ^ others) - {"we"}:
        return False
    verbs = _verbs(was) | _participles(was.words)
    before, after = (tuple(word for word in side if word.base not in _STOPS | verbs) for side in (old, said))
    if (found := _exchanged(before, after)) is None:
        return False
    rest, mine, theirs = found
    # In one go: "GCS for new projects" is a value with a condition.
    wanted, size = [id(word) for word in theirs], len(theirs)
    is_one_run = any([id(word) for word in part[at : at + size]] == wanted for part in parts for at in range(len(part)))
    return is_one_run and bool(rest or persons) and _is_same_kind(was, now, (old, said), mine, theirs)


def _bare_parts(was: Wording, side: Wording) -> list[tuple[Word, ...]]:
    """Return the words of each part without words of change and what they name as over, unless it is the subject."""
    text = SINCE.sub(";", side.text)
    lower = text.lower()
    subject = next((word.base for word in was.words if word.base not in _STOPS), "")
    for match in reversed(list(OVER.finditer(lower)) if len(lower) == len(text) else []):
        over = [word.base for word in _words(match[match.lastindex or 0])]
        if subject not in over or match.start() != match.start(match.lastindex or 0):
            text = f"{text[: match.start()]};{text[match.end() :]}"
    return [tuple(_words(part)) for part in CLAUSE.split(REPLACES.sub(";", text))]


def _participles(words: Sequence[Word]) -> set[str]:
    """Return what is said passively of a subject, and where: capped at, shipped with."""
    triples = zip(words, words[1:], words[2:], strict=False)
    between = (word for before, word, after in triples if before.raw in _COPULAS and after.raw in _STOPS)
    return {word.base for word in between if word.kind == "word" and word.raw.endswith(("ed", "t", "n"))}


def _exchanged(
    before: Sequence[Word], after: Sequence[Word]
) -> tuple[tuple[Word, ...], tuple[Word, ...], tuple[Word, ...]] | None:
    """Return what both have and the one stretch of each that the other lacks, the shortest; None for none."""
    longer = len(after) - len(before)
    for size in range(max(1, 1 - longer), VALUE_WORDS + 1):
        come = size + longer
        if come > VALUE_WORDS:
            return None
        rests = {tuple(w.base for w in (*after[:at], *after[at + come :])): at for at in range(len(after) - come + 1)}
        for start in range(len(before) - size + 1):
            rest = (*before[:start], *before[start + size :])
            at = rests.get(tuple(word.base for word in rest))
            if at is not None:
                return rest, tuple(before[start : start + size]), tuple(after[at : at + come])
    return None


def _is_same_kind(
    was: Wording,
    now: Wording,
    bare: tuple[Sequence[Word], Sequence[Word]],
    mine: Sequence[Word],
    theirs: Sequence[Word],
) -> bool:
    """Return whether the exchanged words are values of one kind.

    Quantities of one unit, versions and identifiers of one form, what is named as over and what stands for it, or two
    values of a predicate that holds one.
    """
    mine = _placed_value(bare[0], mine)
    both = (*mine, *theirs)
    if all(map(_counts, both)):
        before, after = (numbers(_text(side)) for side in bare)
        return {unit for unit, _ in before - after} == {unit for unit, _ in after - before}
    if any(word.kind == "number" for word in mine) != any(word.kind == "number" for word in theirs):
        return False
    is_han = all(word.kind == "han" for word in both)
    if {word.base for word in mine} <= now.over:
        return is_han or len(theirs) <= (NAME_WORDS if all(word.kind != "word" for word in theirs) else 2)
    if any(_is_identifier(word) or word.kind == "number" for word in both):
        return len(both) == 2 and _form(mine[0]) == _form(theirs[0])
    if all(RENAMED.search(side.text.lower()) for side in (was, now)):
        return len(both) <= NAME_WORDS or is_han
    is_value = all(word.kind == "name" for word in both) or is_han
    signs = _sign_before(bare[0], mine[0]), _sign_before(bare[1], theirs[0])
    return is_value and _holds_one(was, now, *signs) and ("是" not in signs or _are_alike(now, mine, theirs))


def _are_alike(now: Wording, mine: Sequence[Word], theirs: Sequence[Word]) -> bool:
    """Return whether what a Chinese subject is called by 是 is of one kind: 主库 and 只读 may both be true of it.

    Only a word that says what became of it, a name in letters or one head (the last sign) tells that they are.
    """
    ends = [[word.raw for word in side if word.raw != "的"][-1:] for side in (mine, theirs)]
    is_han = all(word.kind == "han" for word in (*mine, *theirs))
    return BECOMES.search(now.text.lower()) is not None or not is_han or ends[0] == ends[1]


def _placed_value(words: Sequence[Word], stretch: Sequence[Word]) -> tuple[Word, ...]:
    """Return a value without the Chinese verb before 在, 是, 由 and the like: 部署 in 部署在阿里云."""
    first, last = (next(at for at, word in enumerate(words) if word is end) for end in (stretch[0], stretch[-1]))
    inner = next((at for at in range(first, min(last, first + 3)) if words[at].raw in _HAN_SINGLE | {"于"}), None)
    return tuple(words[first : last + 1] if inner is None else words[inner + 1 : last + 1])


def _counts(word: Word) -> bool:
    """Return whether a word is a number, with its unit or not, or a unit."""
    is_unit = word.raw.isalpha() and (word.raw in _HAN_UNITS or not numbers(f"5 {word.raw}") <= {("count", "5")})
    return word.kind == "number" or is_unit or re.match(r"\d++[a-z]*+$", word.raw) is not None


def _form(word: Word) -> str:
    """Return an identifier with every number as 0; where it has several parts, with every word as a."""
    plain = re.sub(r"\d++", "0", word.raw)
    return re.sub(r"[a-z]++", "a", plain) if len(re.findall(r"[-_./:]", plain)) > 1 else plain


def _holds_one(was: Wording, now: Wording, before: str, after: str) -> bool:
    """Return whether a subject has one of what both say of it: is, is called, lives in; in Chinese 是, 由, 叫, 在."""
    lower = now.text.lower()
    becomes = BECOMES.search(lower) is not None
    if _is_chinese(was.words):
        moved = before == "在" and PLACED.search(lower) is not None
        return moved or (before in _HAN_SINGLE and (before == after or (before != "在" and becomes)))
    before, after = (read(side.text).predicate for side in (was, now))
    if before in _COPULAS:
        is_same = after in _COPULAS and all(LATELY.fullmatch(found.group()) for found in REPLACES.finditer(lower))
        return (is_same or becomes) and _participles(was.words) <= now.bases
    return SINGLE.fullmatch(before) is not None and stem(before) == stem(after)


def _sign_before(words: Sequence[Word], value: Word) -> str:
    """Return the nearest of the signs that a Chinese value stands behind, at most two words before it."""
    at = next((at for at, word in enumerate(words) if word is value), 0)
    return next((word.raw for word in reversed(words[max(0, at - 2) : at]) if word.raw in _HAN_SINGLE), "")


def _verbs(was: Wording) -> set[str]:
    """Return the bases of the predicate: a change is said with another verb."""
    verbs = {w.base for w in was.words if w.kind == "word" and (_VERB.fullmatch(w.raw) or SINGLE.fullmatch(w.raw))}
    if not verbs and (at := _verb_at(was.words)) is not None:
        verbs.add(was.words[at].base)
    return verbs | _HAN_VERBS


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
    """Return the first word between each denial and the next."""
    parts = DENY.split(said.text.lower())[1:]
    behind = (next((word for word in _words(part) if word.base not in _STOPS), None) for part in parts)
    return {word.base for word in behind if word is not None}
