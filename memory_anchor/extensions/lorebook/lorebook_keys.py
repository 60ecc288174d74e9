"""An index of the keys of many lorebooks, built once: which of them are in a text.

Of each literal key the rarest run of eight letters is indexed (a shorter key whole); the runs of a text select the few
keys that may be in it, and only those are searched for, so 5,000 entries cost no more than the few in the text. An
expression (`/regex/flags`) runs in linear time (`bounded.linear`), so that no pattern can hang a scan. Rejected: one
large alternation (it says that some key matches, not which).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from memory_anchor.extensions.lorebook.lorebook import LoreEntry, Problems
from memory_anchor.language.safe_regex import linear
from memory_anchor.language.terms import CJK, normal

KEYS_MAX = 100_000
"""Keys of one index."""
REGEX_REPEATS_MAX = 100
"""Bound on the product of an expression's counted repetitions: each may take 90 KB (`\\w{100}`: 9 MB)."""
REGEX_UNITS_MAX = 1_500
"""Of all expressions of one index, each counted by its repetitions: together they may take 140 MB."""
TEXTS_CACHED = 128
"""Texts whose keys are cached."""
GRAM = 8
"""Letters of a run. With 3, keys of few syllables gave 5,000 candidates for each text (21 ms instead of 2)."""
_CJK = re.compile(f"[{CJK}]")
_REGEX = re.compile(r"/(.+)/([a-z]{0,8})", re.S)
_COUNTED = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")
_FLAGS = {"i": "i", "m": "m", "s": "s", "u": "", "g": "", "y": ""}


@dataclass(frozen=True, slots=True)
class _Key:
    """A literal key. whole: it matches whole words only."""

    needle: str
    case: bool
    whole: bool

    @classmethod
    def of(cls, text: str, *, case: bool, whole: bool) -> _Key:
        """Return a key. A key of several words, or with CJK, whose words nothing separates, is never `whole`."""
        is_word = not any(char.isspace() for char in text) and not _CJK.search(text)
        return cls(text if case else normal(text), case, whole and is_word)

    def is_in(self, text: str, lowered: str) -> bool:
        haystack = text if self.case else lowered
        start = haystack.find(self.needle)
        while self.whole and start >= 0:
            end = start + len(self.needle)
            if not (_in_word(haystack, start - 1) or _in_word(haystack, end)):
                return True
            start = haystack.find(self.needle, start + 1)
        return start >= 0


def _in_word(text: str, index: int) -> bool:
    """Return whether a letter of a word is at an index; a CJK sign next to a Latin word does not belong to it."""
    return 0 <= index < len(text) and (text[index].isalnum() or text[index] == "_") and not _CJK.match(text[index])


class _KeyExpression:
    """An expression between slashes. units: how many are left. Raises ValueError: the problem, in one clause."""

    def __init__(self, source: str, flags: str, *, units: int) -> None:
        if unknown := set(flags) - set(_FLAGS):
            raise ValueError(f"has the flag {min(unknown)!r}; allowed are {''.join(_FLAGS)}")
        repeats = 1
        for counted in _COUNTED.finditer(source):
            repeats *= max(1, int(counted[2] or counted[1]))
        if repeats > REGEX_REPEATS_MAX:
            raise ValueError(f"repeats {repeats} times; allowed are {REGEX_REPEATS_MAX}")
        self.units = repeats
        if repeats > units:
            raise ValueError("is beyond the expressions allowed at once")
        inline_flags = "".join(_FLAGS[flag] for flag in dict.fromkeys(flags))
        pattern = (f"(?{inline_flags})" if inline_flags else "") + source
        self.is_in = linear(pattern)


class KeyIndex:
    """The keys of many entries, by number. primary, secondary: the keys of each entry, in order.

    entries_of: key -> entries that have it as a primary key. problems: about keys that cannot be matched.
    """

    def __init__(self, entries: Sequence[LoreEntry], *, case_sensitive: bool, whole_words: bool) -> None:
        """case_sensitive, whole_words: for entries that do not say."""
        self.primary: list[tuple[int, ...]] = []
        self.secondary: list[tuple[int, ...]] = []
        self.texts: list[str] = []
        self.entries_of: dict[int, list[int]] = {}
        self.problems = Problems()
        self._numbers: dict[tuple[str, bool, bool], int] = {}
        self._literal: dict[int, _Key] = {}
        self._regex: dict[int, _KeyExpression] = {}
        self._units = 0
        for number, entry in enumerate(entries):
            case = case_sensitive if entry.case_sensitive is None else entry.case_sensitive
            whole = whole_words if entry.whole_words is None else entry.whole_words
            self.primary.append(self._add_all(entry, entry.keys, case=case, whole=whole))
            self.secondary.append(self._add_all(entry, entry.secondary, case=case, whole=whole))
            for key in self.primary[-1]:
                self.entries_of.setdefault(key, []).append(number)
        self._grams = self._rarest_runs()
        self._sizes = sorted({len(run) for run in self._grams})
        # The last messages are scanned again with the next one, and texts of entries in every pass.
        self._search = lru_cache(TEXTS_CACHED)(self._search_text)

    def keys_in(self, text: str) -> frozenset[int]:
        """Return the keys that are in a text."""
        return self._search(text) if text else frozenset()

    def _search_text(self, text: str) -> frozenset[int]:
        lowered = normal(text)
        grams = {lowered[start : start + size] for size in self._sizes for start in range(len(lowered) - size + 1)}
        candidates = (key for gram in grams & self._grams.keys() for key in self._grams[gram])
        hits = {key for key in candidates if self._literal[key].is_in(text, lowered)}
        hits.update(key for key, expression in self._regex.items() if expression.is_in(text))
        return frozenset(hits)

    def _add_all(self, entry: LoreEntry, keys: Iterable[str], *, case: bool, whole: bool) -> tuple[int, ...]:
        """Return the numbers of an entry's keys, adding new ones; keys that cannot be matched are left out."""
        numbers = (
            self._numbers[text, case, whole]
            if (text, case, whole) in self._numbers
            else self._add(entry, text, case=case, whole=whole)
            for text in keys
        )
        return tuple(number for number in numbers if number is not None)

    def _add(self, entry: LoreEntry, text: str, *, case: bool, whole: bool) -> int | None:
        """Return the number of a new key, None where it cannot be matched."""
        number = len(self.texts)
        if number >= KEYS_MAX:
            self.problems.add(
                f"entry {entry.uid}: its keys are beyond the {KEYS_MAX} allowed at once; split the lorebook"
            )
            return None
        if expression := _REGEX.fullmatch(text):
            try:
                regex = _KeyExpression(expression[1], expression[2], units=REGEX_UNITS_MAX - self._units)
                self._regex[number], self._units = regex, self._units + regex.units
            except ValueError as error:
                self.problems.add(f"entry {entry.uid}: the key {text[:40]!r} {error}; it is left out")
                return None
        else:
            key = _Key.of(text, case=case, whole=whole)
            if not key.needle:
                return None
            self._literal[number] = key
        self.texts.append(text)
        self._numbers[text, case, whole] = number
        return number

    def _rarest_runs(self) -> dict[str, list[int]]:
        """Return run -> the literal keys that are indexed by it."""
        runs_by_key = {number: _runs(normal(key.needle)) for number, key in self._literal.items()}
        counts = Counter(run for runs in runs_by_key.values() for run in runs)
        index: dict[str, list[int]] = {}
        for number, runs in runs_by_key.items():
            index.setdefault(min(runs, key=lambda run: (counts[run], run)), []).append(number)
        return index


def _runs(text: str) -> set[str]:
    """Return the runs of `GRAM` letters near the start of a text, or the whole text where it is shorter."""
    last = min(len(text), 2 * GRAM) - GRAM
    return {text[start : start + GRAM] for start in range(last + 1)} if last >= 0 else {text}
