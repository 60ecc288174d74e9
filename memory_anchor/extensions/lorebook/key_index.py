"""The keys of many lorebooks, made ready once: which of them are in a text.

A word is looked up among the words of a text, any other literal key is searched for, and an expression
(`/regex/flags`) runs in linear time (`safe_regex.linear`), so that no pattern can hang a scan. Rejected: one large
alternation (it says that some key matches, not which), and an index by runs of letters (80 lines for a third of the
time of a scan that a context hardly notices).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from memory_anchor.extensions.lorebook.reading import LoreEntry
from memory_anchor.language.safe_regex import late, linear
from memory_anchor.language.terms import CJK, normal

KEYS_MAX = 30_000
"""Keys of all books of a scan: each may be searched for in 100,000 characters of a message."""
REGEX_REPEATS_MAX = 100
"""Bound on the product of an expression's counted repetitions: each may take 90 KB (`\\w{100}`: 9 MB)."""
REGEX_UNITS_MAX = 1_500
"""Of all expressions of a scan, each counted by its repetitions: together they may take 140 MB."""
TEXTS_CACHED = 128
"""Texts whose keys are cached."""
FLAGS = "imsugy"
_WORD = late(rf"[^\W{CJK}]+")
_REGEX = late(r"/(.+)/([a-z]{0,8})", re.S)
_COUNTED = late(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")


def key_expression(source: str, flags: str, *, units: int) -> tuple[Callable[[str], bool], int]:
    """Return the search for an expression between slashes, and how many units it takes.

    units: how many are left. Raises ValueError: the problem, in one clause.
    """
    if unknown := set(flags) - set(FLAGS):
        raise ValueError(f"has the flag {min(unknown)!r}; allowed are {FLAGS}")
    repeats = 1
    for counted in _COUNTED.finditer(source):
        repeats *= max(1, int(counted[2] or counted[1]))
    if repeats > REGEX_REPEATS_MAX:
        raise ValueError(f"repeats {repeats} times; allowed are {REGEX_REPEATS_MAX}")
    if repeats > units:
        raise ValueError("is beyond the expressions allowed at once")
    inline = "".join(flag for flag in "ims" if flag in flags)
    return linear(f"(?{inline}){source}" if inline else source), repeats


class Key(NamedTuple):
    """A key of an entry. case: it counts. whole: a word matches whole words only."""

    text: str
    case: bool
    whole: bool


def keys_of(entry: LoreEntry) -> list[Key]:
    return [Key(text, entry.case_sensitive, entry.whole_words) for text in entry.keys]


def secondary_keys_of(entry: LoreEntry) -> list[Key]:
    return [Key(text, entry.case_sensitive, entry.whole_words) for text in entry.secondary_keys]


class KeyIndex:
    """The keys of many entries. entries_of: key -> the numbers of entries that have it as a primary key.

    problems: about keys that cannot be matched; they are left out.
    """

    def __init__(self, entries: Sequence[LoreEntry]) -> None:
        self.entries_of: dict[Key, list[int]] = {}
        self.problems: list[str] = []
        self._units = REGEX_UNITS_MAX
        self._words: dict[tuple[bool, str], list[Key]] = {}
        self._parts: list[tuple[str, Key]] = []
        self._expressions: list[tuple[Callable[[str], bool], Key]] = []
        known: set[Key] = set()
        for number, entry in enumerate(entries):
            for key in keys_of(entry):
                self.entries_of.setdefault(key, []).append(number)
            for key in {*keys_of(entry), *secondary_keys_of(entry)} - known:
                try:
                    self._add(key, is_beyond=len(known) >= KEYS_MAX)
                except ValueError as error:
                    self.problems.append(f"entry {entry.uid}: the key {key.text[:40]!r} {error}; it is left out")
                known.add(key)
        # The last messages are scanned again with the next one, and texts of entries in every pass.
        self.keys_in = lru_cache(TEXTS_CACHED)(self._keys_in)

    def _keys_in(self, text: str) -> frozenset[Key]:
        """Return the keys that are in a text."""
        folded = normal(text)
        words = {(False, word) for word in _WORD.findall(folded)} | {(True, word) for word in _WORD.findall(text)}
        found = {key for word in words & self._words.keys() for key in self._words[word]}
        found.update(key for part, key in self._parts if part in (text if key.case else folded))
        found.update(key for is_in, key in self._expressions if is_in(text))
        return frozenset(found)

    def _add(self, key: Key, *, is_beyond: bool) -> None:
        """Make a key ready. Raises ValueError: it cannot be matched, or there are too many."""
        if is_beyond:
            raise ValueError(f"is beyond the {KEYS_MAX} allowed at once")
        needle = key.text if key.case else normal(key.text)
        if expression := _REGEX.fullmatch(key.text):
            is_in, units = key_expression(expression[1], expression[2], units=self._units)
            self._expressions.append((is_in, key))
            self._units -= units
        elif key.whole and _WORD.fullmatch(needle):
            self._words.setdefault((key.case, needle), []).append(key)
        else:
            self._parts.append((needle, key))
