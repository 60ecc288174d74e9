"""Which lorebook entries a conversation admits within a budget, and why each other entry is dropped. Pure.

The entries are matched in passes: first the last messages, then the texts of admitted entries (recursion). Each text is
matched by itself, so that no key is found across two. Nothing here depends on a clock, on randomness or on an earlier
scan: the same messages give the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from memory_anchor.extensions.lorebook.lorebook import Logic, Lorebook, LoreEntry
from memory_anchor.extensions.lorebook.lorebook_keys import KeyIndex
from memory_anchor.language.tokens import count_tokens
from memory_anchor.settings import LorebookSettings

TEXT_CHARS_MAX = 100_000
"""Characters of one message; the rest is not scanned."""
MESSAGES_MAX = 1_000
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

    text, tokens: as admitted. whole_tokens: before the budget trimmed it. detail: the number that decided.
    """

    book: str
    entry: LoreEntry
    admitted: bool
    why: Why
    key: str = ""
    pass_number: int = 1
    text: str = ""
    tokens: int = 0
    whole_tokens: int = 0
    detail: str = ""

    @property
    def id(self) -> str:
        return f"{self.book}/{self.entry.uid}"


@dataclass(frozen=True, slots=True)
class LoreScan:
    """admitted: in the order of admission. examined: dropped, with a key in some text. others: yields the verdicts on
    all other entries, of which there may be thousands."""

    admitted: tuple[LoreVerdict, ...]
    examined: tuple[LoreVerdict, ...]
    budget_tokens: int
    passes: int
    overflowed: bool
    notes: tuple[str, ...]
    others: Callable[[], Iterator[LoreVerdict]]

    @property
    def dropped(self) -> tuple[LoreVerdict, ...]:
        """The verdicts on all entries that were not admitted."""
        return (*self.examined, *self.others())

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
        self.entries = tuple(entry for book in books for entry in book.entries)
        self.book_of = tuple(book for book in books for _ in book.entries)
        case_sensitive, whole_words = self.settings.case_sensitive, self.settings.match_whole_words
        self.keys = KeyIndex(self.entries, case_sensitive=case_sensitive, whole_words=whole_words)
        self.count = lru_cache(COUNTS_CACHED)(count)
        self.always = [index for index, entry in enumerate(self.entries) if entry.constant]
        depths = (self.settings.scan_depth if book.scan_depth is None else book.scan_depth for book in self.books)
        self.depth = max((*depths, *(entry.scan_depth or 0 for entry in self.entries)), default=0)

    def scan(self, messages: Sequence[LoreMessage], *, budget_tokens: int) -> LoreScan:
        """Return the entries that messages (oldest first) admit, in at most `budget_tokens` tokens."""
        return _Run(self, messages, budget_tokens).result()


class _Run:
    """One scan. index: an entry's number in the scanner."""

    def __init__(self, scanner: LoreScanner, messages: Sequence[LoreMessage], budget: int) -> None:
        self.scanner, self.budget, self.settings = scanner, budget, scanner.settings
        self.notes: list[str] = []
        self.admitted: dict[int, LoreVerdict] = {}
        self.dropped: dict[int, LoreVerdict] = {}
        self.new: list[int] = []
        """Entries admitted by the last pass."""
        self.used = 0
        self.used_by_book: dict[str, int] = {}
        self.overflowed = False
        self.pass_number = 1
        self.candidates: set[int] = set(scanner.always)
        self.messages: list[frozenset[int]] = []
        """The keys in the newest message, in the two newest, ..."""
        self.recursed: frozenset[int] = frozenset()
        """The keys in the texts of admitted entries."""
        self._read(messages)

    def result(self) -> LoreScan:
        self._pass()
        while self._next():
            self._pass()
        return LoreScan(
            admitted=tuple(self.admitted.values()),
            examined=tuple(self.dropped.values()),
            budget_tokens=self.budget,
            passes=self.pass_number,
            overflowed=self.overflowed,
            notes=(*self.notes, *self.scanner.keys.problems.all()),
            others=self._unexamined,
        )

    # --- passes --------------------------------------------------------------------------------------------------

    def _pass(self) -> None:
        """Examine every entry with a key in a text; admit those whose keys match and that fit the budget."""
        matched: list[tuple[int, Why, str]] = []
        for index in sorted(self.candidates - self.admitted.keys()):
            why, key = self._reason(index)
            if why in (Why.CONSTANT, Why.KEY):
                matched.append((index, why, key))
            else:
                self._drop(index, why, key=key)
        matched.sort(key=lambda match: (match[1] is Why.KEY, -self.scanner.entries[match[0]].priority))
        self.new = self._within_budget(matched)

    def _next(self) -> bool:
        """Match the texts of entries that the last pass admitted; return whether another pass is due."""
        if self.pass_number >= PASSES_MAX:
            self.notes.append(f"the scan ended after {PASSES_MAX} passes")
            return False
        limit = self.settings.max_recursion_steps
        scannable = [index for index in self.new if self._is_scannable(index)]
        if self.overflowed or (limit and self.pass_number >= limit) or not scannable:
            return False
        for index in scannable:
            self.recursed |= self._add_candidates(self._keys_in(self.admitted[index].text))
        self.pass_number += 1
        return True

    def _is_scannable(self, index: int) -> bool:
        """Return whether an admitted entry's text may admit others."""
        entry = self.scanner.entries[index]
        return self._recurses(index) and not entry.prevent_recursion and bool(self.admitted[index].text)

    def _recurses(self, index: int) -> bool:
        of_book = self.scanner.book_of[index].recursive
        return self.settings.recursive if of_book is None else of_book

    def _read(self, messages: Sequence[LoreMessage]) -> None:
        """Match the newest messages, as deep as any entry looks."""
        for message in messages[::-1][: min(self.scanner.depth, MESSAGES_MAX)]:
            text = message.content
            if len(text) > TEXT_CHARS_MAX:
                self.notes.append(f"a message has {len(text)} characters; {TEXT_CHARS_MAX} were scanned")
            if self.settings.include_names and message.name:
                text = f"{message.name}: {text[:TEXT_CHARS_MAX]}"
            keys = self._add_candidates(self._keys_in(text))
            self.messages.append(keys | self.messages[-1] if self.messages else keys)

    def _keys_in(self, text: str) -> frozenset[int]:
        return self.scanner.keys.keys_in(text[:TEXT_CHARS_MAX])

    def _add_candidates(self, keys: frozenset[int]) -> frozenset[int]:
        """Have the next pass examine the entries with one of these keys; return the keys."""
        for key in keys:
            self.candidates.update(self.scanner.keys.entries_of.get(key, ()))
        return keys

    # --- one entry -----------------------------------------------------------------------------------------------

    def _reason(self, index: int) -> tuple[Why, str]:
        """Return why an entry is to be admitted (KEY with the key that matched), or why it is not."""
        entry = self.scanner.entries[index]
        if not entry.enabled:
            return Why.DISABLED, ""
        return (Why.CONSTANT, "") if entry.constant else self._by_keys(index)

    def _depth(self, index: int) -> int:
        """Return how many messages an entry is matched against: its own setting, else its book's, else the default."""
        of_entry = self.scanner.entries[index].scan_depth
        if of_entry is not None:
            return of_entry
        of_book = self.scanner.book_of[index].scan_depth
        return self.settings.scan_depth if of_book is None else of_book

    def _visible_keys(self, index: int) -> frozenset[int]:
        """Return the keys in the texts that an entry is matched against."""
        entry, depth = self.scanner.entries[index], self._depth(index)
        messages = self.messages[min(depth, len(self.messages)) - 1] if depth and self.messages else frozenset()
        return messages | self.recursed if self._recurses(index) and not entry.exclude_recursion else messages

    def _by_keys(self, index: int) -> tuple[Why, str]:
        """Return KEY and the key that matched, else why the entry does not match and the key that decided."""
        visible = self._visible_keys(index)
        keys = self.scanner.keys
        key = next((key for key in keys.primary[index] if key in visible), None)
        if key is None:
            return Why.NO_KEY, ""
        entry = self.scanner.entries[index]
        matches = [other in visible for other in keys.secondary[index]]
        holds = (
            not entry.secondary
            or {
                Logic.AND_ANY: any(matches),
                Logic.NOT_ALL: not all(matches),
                Logic.NOT_ANY: not any(matches),
                Logic.AND_ALL: all(matches),
            }[entry.logic]
        )
        return (Why.KEY if holds else Why.SECONDARY), keys.texts[key]

    def _drop(self, index: int, why: Why, *, key: str = "", detail: str = "") -> None:
        entry, book = self.scanner.entries[index], self.scanner.book_of[index].id
        self.dropped[index] = LoreVerdict(book, entry, False, why, key, self.pass_number, detail=detail)

    def _unexamined(self) -> Iterator[LoreVerdict]:
        """Yield the verdict on each entry that no pass examined."""
        for index, entry in enumerate(self.scanner.entries):
            if index not in self.admitted and index not in self.dropped:
                why = Why.NO_KEY if entry.enabled else Why.DISABLED
                yield LoreVerdict(self.scanner.book_of[index].id, entry, False, why, pass_number=self.pass_number)

    # --- budget ---------------------------------------------------------------------------------------------------

    def _within_budget(self, new: list[tuple[int, Why, str]]) -> list[int]:
        """Admit the entries that fit, and return them; entries with a weight share what the others leave."""
        new_indexes: list[int] = []
        weighted: list[tuple[LoreVerdict, int]] = []
        for index, why, key in new:
            entry, book = self.scanner.entries[index], self.scanner.book_of[index]
            text = entry.content.strip()
            is_late = self.overflowed and not entry.budget_weight
            tokens = 0 if is_late or not text else self.scanner.count(text)
            verdict = LoreVerdict(book.id, entry, True, why, key, self.pass_number, text, tokens, tokens)
            if entry.budget_weight:
                weighted.append((verdict, index))
            elif not self.overflowed and tokens <= self._tokens_left(index):
                self._admit(index, verdict)
                new_indexes.append(index)
            else:
                self.overflowed = True
                self._drop(index, Why.BUDGET, key=key, detail="" if is_late else f"{tokens} tokens")
        for verdict, index in self._shares(weighted):
            if verdict.tokens <= self._tokens_left(index) and (verdict.text or not verdict.whole_tokens):
                self._admit(index, verdict)
                new_indexes.append(index)
            else:
                self._drop(index, Why.BUDGET, key=verdict.key, detail=f"{verdict.whole_tokens} tokens")
        return new_indexes

    def _tokens_left(self, index: int) -> int:
        """Return the tokens left for an entry, by the whole budget and by its book's."""
        book = self.scanner.book_of[index]
        of_book = self.budget if book.token_budget is None else book.token_budget - self.used_by_book.get(book.id, 0)
        return min(self.budget - self.used, of_book)

    def _admit(self, index: int, verdict: LoreVerdict) -> None:
        self.admitted[index] = verdict
        self.dropped.pop(index, None)
        self.used += verdict.tokens
        self.used_by_book[verdict.book] = self.used_by_book.get(verdict.book, 0) + verdict.tokens

    def _shares(self, weighted: list[tuple[LoreVerdict, int]]) -> list[tuple[LoreVerdict, int]]:
        """Return the entries trimmed to their shares by weight; what one does not need goes to the others."""
        tokens, pending = max(0, self.budget - self.used), list(weighted)
        shares: dict[int, int] = {}
        while pending:
            total = sum(verdict.entry.budget_weight for verdict, _ in pending)
            small = [(v, index) for v, index in pending if v.tokens * total <= tokens * v.entry.budget_weight]
            if not small:
                shares |= {index: int(tokens * v.entry.budget_weight / total) for v, index in pending}
                break
            shares |= {index: verdict.tokens for verdict, index in small}
            tokens -= sum(verdict.tokens for verdict, _ in small)
            pending = [(verdict, index) for verdict, index in pending if index not in shares]
        return [
            (self._trimmed(v, min(shares[index], max(0, self._tokens_left(index)))), index) for v, index in weighted
        ]

    def _trimmed(self, verdict: LoreVerdict, share: int) -> LoreVerdict:
        if verdict.tokens <= share:
            return verdict
        low, high = 0, len(verdict.text)
        while low < high:  # at most log2(len) counts
            middle = (low + high + 1) // 2
            fits = self.scanner.count(verdict.text[:middle] + CUT) <= share
            low, high = (middle, high) if fits else (low, middle - 1)
        text = verdict.text[:low].rstrip() + CUT
        tokens = self.scanner.count(text)
        if low and TRIM_LEAST_TOKENS <= tokens <= share:
            return replace(verdict, text=text, tokens=tokens, detail=f"trimmed from {verdict.tokens} tokens")
        return replace(verdict, text="", tokens=0)
