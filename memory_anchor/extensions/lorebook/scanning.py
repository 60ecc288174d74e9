"""Which lorebook entries a conversation admits within a budget, and why each other entry is dropped. Pure.

The entries are matched in passes: first the last messages, then the texts of admitted entries (recursion). Each text is
matched by itself, so that no key is found across two. Nothing here depends on a clock, on randomness or on an earlier
scan: the same messages give the same result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from memory_anchor.extensions.lorebook.key_index import Key, KeyIndex, keys_of, secondary_keys_of
from memory_anchor.extensions.lorebook.reading import Lorebook, LoreEntry, capped
from memory_anchor.extensions.lorebook.settings import LorebookSettings
from memory_anchor.language.tokens import count_tokens

TEXT_CHARS_MAX = 100_000
"""Characters of one message; the rest is not scanned."""
PASSES_MAX = 200
COUNTS_CACHED = 4_096
TRIM_LEAST_TOKENS = 24
"""A trimmed entry with fewer tokens is of no use."""
CUT = " […]"


class Why(StrEnum):
    """Why an entry was admitted, or dropped."""

    CONSTANT = "constant"
    KEY = "key"
    NO_KEY = "no key matched"
    SECONDARY = "secondary keys"
    DISABLED = "disabled"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class LoreMessage:
    content: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class LoreVerdict:
    """The result for one entry. key: the one that matched. pass_number: of the last pass that examined it, from 1.
    text, tokens: as admitted. detail: the number that decided."""

    book: str
    entry: LoreEntry
    why: Why
    key: str = ""
    pass_number: int = 1
    text: str = ""
    tokens: int = 0
    detail: str = ""

    @property
    def id(self) -> str:
        return f"{self.book}/{self.entry.uid}"


@dataclass(frozen=True, slots=True)
class LoreScan:
    """admitted: in the order of admission. dropped: those with a key in some text. The keys of all others are in none,
    or they are disabled."""

    admitted: tuple[LoreVerdict, ...]
    dropped: tuple[LoreVerdict, ...]
    budget_tokens: int
    passes: int
    overflowed: bool
    notes: tuple[str, ...]

    @property
    def tokens(self) -> int:
        return sum(verdict.tokens for verdict in self.admitted)

    def in_prompt_order(self) -> list[LoreVerdict]:
        """Return the admitted entries in the order of a prompt: by position, then by order, the highest last."""
        admitted = (verdict for verdict in self.admitted if verdict.text)
        return sorted(admitted, key=lambda verdict: (verdict.entry.place != "prefix", verdict.entry.order))


class LoreScanner:
    """Scans some books; built once, used for each message. count: tokens of a text."""

    def __init__(
        self,
        books: Sequence[Lorebook],
        settings: LorebookSettings | None = None,
        *,
        count: Callable[[str], int] = count_tokens,
    ) -> None:
        self.settings = settings or LorebookSettings()
        self.books = tuple(books)
        self.entries = tuple((book, entry) for book in books for entry in book.entries)
        self.keys = KeyIndex([entry for _, entry in self.entries])
        self.count = lru_cache(COUNTS_CACHED)(count)

    def scan(self, messages: Sequence[LoreMessage], *, budget_tokens: int) -> LoreScan:
        """Return the entries that messages (oldest first) admit, in at most `budget_tokens` tokens."""
        return _Run(self, budget_tokens).result(messages)

    def depth(self, book: Lorebook) -> int:
        return self.settings.scan_depth if book.scan_depth is None else book.scan_depth

    def recurses(self, book: Lorebook) -> bool:
        return self.settings.recursive if book.recursive is None else book.recursive


class _Run:
    """One scan. index: an entry's number in the scanner."""

    def __init__(self, scanner: LoreScanner, budget: int) -> None:
        self.scanner, self.keys, self.budget = scanner, scanner.keys, budget
        self.notes: list[str] = []
        self.admitted: dict[int, LoreVerdict] = {}
        self.dropped: dict[int, LoreVerdict] = {}
        self.used: Counter[str] = Counter()
        """Tokens by book."""
        self.overflowed = False
        self.passes = 0
        self.candidates = {index for index, (_, entry) in enumerate(scanner.entries) if entry.constant}
        self.spoken: list[frozenset[Key]] = [frozenset()]
        """The keys in no message, in the newest, in the two newest, ..."""
        self.recursed: frozenset[Key] = frozenset()
        """The keys in the texts of admitted entries."""

    def result(self, messages: Sequence[LoreMessage]) -> LoreScan:
        deepest = max(map(self.scanner.depth, self.scanner.books), default=0)
        for message in messages[::-1][:deepest]:
            if len(message.content) > TEXT_CHARS_MAX:
                self.notes.append(f"a message has {len(message.content)} characters; {TEXT_CHARS_MAX} were scanned")
            text = f"{message.name}: {message.content}" if message.name else message.content
            self.spoken.append(self.spoken[-1] | self._keys_in(text))
        while texts := self._pass():
            if self.overflowed or self.passes == self.scanner.settings.max_recursion_steps:
                break
            if self.passes == PASSES_MAX:
                self.notes.append(f"the scan ended after {PASSES_MAX} passes")
                break
            self.recursed |= frozenset().union(*map(self._keys_in, texts))
        notes = (*self.notes, *capped(self.keys.problems))
        admitted, dropped = tuple(self.admitted.values()), tuple(self.dropped.values())
        return LoreScan(admitted, dropped, self.budget, self.passes, self.overflowed, notes)

    def _keys_in(self, text: str) -> frozenset[Key]:
        """Return the keys in a text; the next pass examines the entries that have one of them."""
        keys = self.keys.keys_in(text[:TEXT_CHARS_MAX])
        self.candidates.update(index for key in keys for index in self.keys.entries_of.get(key, ()))
        return keys

    def _pass(self) -> list[str]:
        """Examine every entry with a key in a text, admit what matches and fits; return the texts to match next."""
        self.passes += 1
        matched: list[tuple[int, LoreVerdict]] = []
        for index in sorted(self.candidates - self.admitted.keys()):
            verdict = self._verdict(index)
            if verdict.why in (Why.CONSTANT, Why.KEY):
                matched.append((index, verdict))
            else:
                self.dropped[index] = verdict
        matched.sort(key=lambda match: (match[1].why is Why.KEY, -(match[1].entry.priority or 0)))
        known = set(self.admitted)
        self._admit(matched)
        return [
            verdict.text
            for index, verdict in self.admitted.items()
            if index not in known and verdict.text and not verdict.entry.prevent_recursion
            if self.scanner.recurses(self.scanner.entries[index][0])
        ]

    def _verdict(self, index: int) -> LoreVerdict:
        """Return why an entry is to be admitted, or the first reason why it is not."""
        book, entry = self.scanner.entries[index]
        visible = self.spoken[min(self.scanner.depth(book), len(self.spoken) - 1)]
        if self.scanner.recurses(book) and not entry.exclude_recursion:
            visible |= self.recursed
        key = next((key for key in keys_of(entry) if key in visible), None)
        if not entry.enabled:
            why = Why.DISABLED
        elif entry.constant:
            why = Why.CONSTANT
        elif key is None:
            why = Why.NO_KEY
        else:
            why = Why.KEY if _secondary_hold(entry, visible) else Why.SECONDARY
        text = key.text if key is not None and why in (Why.KEY, Why.SECONDARY) else ""
        return LoreVerdict(book.id, entry, why, text, self.passes)

    def _admit(self, matched: Sequence[tuple[int, LoreVerdict]]) -> None:
        """Admit the entries that fit, by their order; the first that does not stops the rest. Those with a weight share
        what the others leave: who needs least is served first, and what one does not need goes to the others."""
        weighted: list[tuple[float, int, LoreVerdict]] = []
        for index, verdict in matched:
            text = verdict.entry.content
            whole = replace(verdict, text=text, tokens=self.scanner.count(text) if text else 0)
            if weight := verdict.entry.budget_weight:
                weighted.append((whole.tokens / weight, index, whole))
            elif not self.overflowed and whole.tokens <= self._left(whole):
                self._take(index, whole)
            else:
                self.overflowed = True
                self.dropped[index] = replace(verdict, why=Why.BUDGET, detail=f"{whole.tokens} tokens")
        weights = sum(verdict.entry.budget_weight for _, _, verdict in weighted)
        for _, index, verdict in sorted(weighted, key=lambda one: one[:2]):
            share = (self.budget - self.used.total()) * verdict.entry.budget_weight / weights
            trimmed = self._trimmed(verdict, min(int(share), self._left(verdict)))
            weights -= verdict.entry.budget_weight
            if trimmed is not None:
                self._take(index, trimmed)
            else:
                self.dropped[index] = replace(verdict, why=Why.BUDGET, text="", detail=f"{verdict.tokens} tokens")

    def _take(self, index: int, verdict: LoreVerdict) -> None:
        self.admitted[index] = verdict
        self.dropped.pop(index, None)
        self.used[verdict.book] += verdict.tokens

    def _left(self, verdict: LoreVerdict) -> int:
        """Return the tokens left for an entry, by the whole budget and by its book's."""
        left = self.budget - self.used.total()
        of_book = next(book.token_budget for book in self.scanner.books if book.id == verdict.book)
        return left if of_book is None else min(left, of_book - self.used[verdict.book])

    def _trimmed(self, verdict: LoreVerdict, share: int) -> LoreVerdict | None:
        """Return the entry in its share of tokens, None where too little of it would be left."""
        if verdict.tokens <= share:
            return verdict
        low, high = 0, len(verdict.text)
        while low < high:  # at most log2(len) counts
            middle = (low + high + 1) // 2
            fits = self.scanner.count(verdict.text[:middle] + CUT) <= share
            low, high = (middle, high) if fits else (low, middle - 1)
        text = verdict.text[:low].rstrip() + CUT
        tokens = self.scanner.count(text)
        if not low or not TRIM_LEAST_TOKENS <= tokens <= share:
            return None
        return replace(verdict, text=text, tokens=tokens, detail=f"trimmed from {verdict.tokens} tokens")


def _secondary_hold(entry: LoreEntry, visible: frozenset[Key]) -> bool:
    matches = [key in visible for key in secondary_keys_of(entry)]
    if not matches:
        return True
    if entry.logic.endswith("any"):
        return any(matches) is (entry.logic == "and_any")
    return all(matches) is (entry.logic == "and_all")
