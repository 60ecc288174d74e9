"""Which lorebook entries a conversation admits within a budget, and why each other entry is dropped. Pure.

The entries are matched in passes: first the last messages, then the texts of admitted entries (recursion), then, where
too few were admitted, one message more at a time. Each text is matched by itself, so that no key is found across two.
Nothing here depends on a clock or on randomness: probability and groups are drawn from a hash of the conversation, the
message and the entry, and timed effects follow from one number for each entry, the message count at which it was last
admitted. So a repeated scan gives the same result. Rejected: effects as running counters, which a repeated or undone
message would count twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache

from memory_anchor.knowledge.lorebook import Logic, Lorebook, LoreEntry
from memory_anchor.knowledge.lorebook_keys import KeyIndex, substituted
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

    FORCED = "forced"
    CONSTANT = "constant"
    STICKY = "sticky"
    KEY = "key"
    NO_KEY = "no key matched"
    SECONDARY = "secondary keys"
    PROBABILITY = "probability"
    DISABLED = "disabled"
    TRIGGER = "trigger"
    FILTER = "scope filter"
    DELAY = "delay"
    COOLDOWN = "cooldown"
    DELAYED = "delayed until recursion"
    EXCLUDED = "excluded from recursion"
    GROUP = "group"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class LoreMessage:
    content: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class ScanInput:
    """What is scanned. messages: oldest first. count: messages of the whole conversation, where these are its end (0:
    these are all). started: `book/uid` -> message count at which a timed entry was admitted, from the scan before.
    sources: name -> text, see `lorebook.SOURCES`. names: the values of `{{user}}` and `{{char}}`. forced: `book/uid`
    of entries to admit anyway."""

    messages: Sequence[LoreMessage]
    conversation: str = ""
    count: int = 0
    trigger: str = "normal"
    character: str = ""
    tags: frozenset[str] = frozenset()
    sources: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    forced: frozenset[str] = frozenset()
    started: Mapping[str, int] = field(default_factory=dict)

    @property
    def at(self) -> int:
        return max(self.count, len(self.messages))


@dataclass(frozen=True, slots=True)
class LoreVerdict:
    """The result for one entry. key: the one that matched. pass_number: of the last pass that examined it, from 1.

    text, tokens: as admitted. whole_tokens: before the budget trimmed it. detail: the group or number that decided.
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
    """admitted: in the order of admission. examined: dropped, with a key in some text. started: for the next scan.
    others: yields the verdicts on all other entries, of which there may be thousands."""

    admitted: tuple[LoreVerdict, ...]
    examined: tuple[LoreVerdict, ...]
    started: Mapping[str, int]
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

        def key(verdict: LoreVerdict) -> tuple[int, str, int, int]:
            entry = verdict.entry
            return ("prefix", "tail", "outlet").index(entry.place), entry.outlet, -entry.depth, entry.order

        return sorted((verdict for verdict in self.admitted if verdict.text), key=key)


def budget_for(settings: LorebookSettings, window_tokens: int) -> int:
    """Return how many tokens of a window entries may take.

    >>> budget_for(LorebookSettings(budget_tokens=0, budget_percent=10, budget_cap=50), 400)
    40
    >>> budget_for(LorebookSettings(budget_tokens=0, budget_cap=50), 4_000)
    50
    """
    tokens = settings.budget_tokens or window_tokens * settings.budget_percent // 100
    return min(tokens, settings.budget_cap) if settings.budget_cap else tokens


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
        self.ids = tuple(f"{book.id}/{entry.uid}" for book in books for entry in book.entries)
        self.always = [index for index, entry in enumerate(self.entries) if entry.constant or entry.forced]
        self.index_of = {id: index for index, id in enumerate(self.ids)}
        self.levels = sorted({entry.delay_until_recursion for entry in self.entries} - {0})
        depths = (self.settings.scan_depth if book.scan_depth is None else book.scan_depth for book in self.books)
        self.depth = max(depths, default=0)
        self.deepest = max((entry.scan_depth or 0 for entry in self.entries), default=0)

    def scan(self, scanned: ScanInput, *, budget_tokens: int) -> LoreScan:
        """Return the entries that a conversation admits now, in at most `budget_tokens` tokens."""
        return _Run(self, scanned, budget_tokens).result()


class _Run:
    """One scan. index: an entry's number in the scanner."""

    def __init__(self, scanner: LoreScanner, scanned: ScanInput, budget: int) -> None:
        self.scanner, self.scanned, self.budget, self.settings = scanner, scanned, budget, scanner.settings
        self.notes: list[str] = []
        self.admitted: dict[int, LoreVerdict] = {}
        self.dropped: dict[int, LoreVerdict] = {}
        self.not_drawn: set[int] = set()
        """Entries that their probability left out."""
        self.winners: dict[str, int] = {}
        """Group -> its entry that was admitted."""
        self.used = 0
        self.used_by_book: dict[str, int] = {}
        self.overflowed = False
        self.pass_number, self.deeper, self.is_recursion = 1, 0, False
        self.levels = list(scanner.levels)
        self.level = self.levels.pop(0) if self.levels else 0
        self.messages: list[frozenset[int]] = []
        """The keys in the newest message, in the two newest, ..."""
        self.recursed: frozenset[int] = frozenset()
        """The keys in the texts of admitted entries."""
        self.sources = {name: self._keys_in(text) for name, text in scanned.sources.items()}
        self.candidates: set[int] = set(scanner.always)
        self.candidates |= {scanner.index_of[id] for id in scanned.forced if id in scanner.index_of}
        started = (scanner.index_of[id] for id in scanned.started if id in scanner.index_of)
        self.candidates |= {index for index in started if self._sticks(index)}
        for keys in self.sources.values():
            self._add_candidates(keys)
        last = scanned.messages[-1].content if scanned.messages else ""
        seed = f"{scanned.conversation}\0{scanned.at}\0{last}"
        self.seed = hashlib.blake2b(seed.encode("utf-8", "surrogatepass")).hexdigest()

    def result(self) -> LoreScan:
        self._read_messages(max(self.scanner.depth, self.scanner.deepest))
        self._pass()
        while self._next():
            self._pass()
        indexes = self.scanner.index_of
        started = {
            id: at for id, at in self.scanned.started.items() if id in indexes and self._sticks_or_cools(indexes[id])
        }
        for index, verdict in self.admitted.items():
            if (verdict.entry.sticky or verdict.entry.cooldown) and not self._sticks(index):
                started[self.scanner.ids[index]] = self.scanned.at
        return LoreScan(
            admitted=tuple(self.admitted.values()),
            examined=tuple(self.dropped.values()),
            started=started,
            budget_tokens=self.budget,
            passes=self.pass_number,
            overflowed=self.overflowed,
            notes=(*self.notes, *self.scanner.keys.problems.all()),
            others=self._unexamined,
        )

    # --- passes --------------------------------------------------------------------------------------------------

    def _pass(self) -> None:
        """Examine every entry with a key in a text; admit those that pass checks, groups, probability and budget."""
        matched: list[tuple[int, Why, str]] = []
        for index in sorted(self.candidates - self.admitted.keys()):
            why, key = self._reason(index)
            if why in (Why.FORCED, Why.CONSTANT, Why.STICKY, Why.KEY):
                matched.append((index, why, key))
            else:
                self._drop(index, why, key=key)
        matched.sort(key=lambda m: (not self._sticks(m[0]), m[1] is Why.KEY, -self.scanner.entries[m[0]].priority))
        drawn = [match for match in self._group_winners(matched) if self._is_drawn(match[0])]
        self.new = self._within_budget(drawn)

    def _next(self) -> bool:
        """Prepare another pass: recursion, else one message more, else the next level. Return whether there is one."""
        if self.pass_number >= PASSES_MAX:
            self.notes.append(f"the scan ended after {PASSES_MAX} passes")
            return False
        limit = self.settings.max_recursion_steps
        may_recurse = not self.overflowed and not (limit and self.pass_number >= limit)
        scannable = [index for index in self.new if self._is_scannable(index)]
        self.is_recursion = False
        if may_recurse and scannable:
            for index in scannable:
                self.recursed |= self._add_candidates(self._keys_in(self.admitted[index].text))
            self.is_recursion = True
        elif not self.overflowed and self._read_deeper():
            self.deeper += 1
        elif may_recurse and self.levels and any(self._is_scannable(index) for index in self.admitted):
            self.level = self.levels.pop(0)
            self.is_recursion = True
        else:
            return False
        self.pass_number += 1
        return True

    def _read_deeper(self) -> bool:
        """Match one message more where too few entries were admitted; return whether there was one."""
        depth = self.scanner.depth + self.deeper + 1
        most = self.settings.min_activations_depth or MESSAGES_MAX
        if len(self.admitted) >= self.settings.min_activations or depth > min(most, len(self.scanned.messages)):
            return False
        self._read_messages(depth)
        return True

    def _is_scannable(self, index: int) -> bool:
        """Return whether an admitted entry's text may admit others."""
        entry = self.scanner.entries[index]
        return self._recurses(index) and not entry.prevent_recursion and bool(self.admitted[index].text)

    def _recurses(self, index: int) -> bool:
        of_book = self.scanner.book_of[index].recursive
        return self.settings.recursive if of_book is None else of_book

    def _read_messages(self, depth: int) -> None:
        """Match the newest messages, up to `depth` of them."""
        messages = self.scanned.messages
        for back in range(len(self.messages), min(depth, len(messages), MESSAGES_MAX)):
            message = messages[-1 - back]
            text = message.content[:TEXT_CHARS_MAX]
            if len(message.content) > TEXT_CHARS_MAX:
                self.notes.append(f"a message has {len(message.content)} characters; {TEXT_CHARS_MAX} were scanned")
            if self.settings.include_names and message.name:
                text = f"{message.name}: {text}"
            keys = self._add_candidates(self._keys_in(text, most=None))
            self.messages.append(keys | self.messages[-1] if self.messages else keys)

    def _keys_in(self, text: str, *, most: int | None = TEXT_CHARS_MAX) -> frozenset[int]:
        return self.scanner.keys.keys_in(text[:most], self.scanned.names)

    def _add_candidates(self, keys: frozenset[int]) -> frozenset[int]:
        """Have the next pass examine the entries with one of these keys; return the keys."""
        for key in keys:
            self.candidates.update(self.scanner.keys.entries_of.get(key, ()))
        return keys

    # --- one entry -----------------------------------------------------------------------------------------------

    def _reason(self, index: int) -> tuple[Why, str]:
        """Return why an entry is to be admitted (KEY with the key that matched), or why it is not."""
        entry = self.scanner.entries[index]
        if why := self._blocked(index):
            return why, ""
        if self.scanner.ids[index] in self.scanned.forced or entry.forced:
            return Why.FORCED, ""
        if entry.constant:
            return Why.CONSTANT, ""
        return (Why.STICKY, "") if self._sticks(index) else self._by_keys(index)

    def _blocked(self, index: int) -> Why | None:
        """Return what blocks an entry before its keys are compared, None for nothing; in SillyTavern's order."""
        if index in self.not_drawn:
            return Why.PROBABILITY
        if (why := self._always_blocked(index)) or self._sticks(index):
            return why
        if self._is_delayed(index):
            return Why.DELAYED
        return Why.EXCLUDED if self.scanner.entries[index].exclude_recursion and self.is_recursion else None

    def _always_blocked(self, index: int) -> Why | None:
        """Return what blocks an entry in every pass, None for nothing."""
        entry = self.scanner.entries[index]
        if not entry.enabled:
            return Why.DISABLED
        if entry.triggers and self.scanned.trigger not in entry.triggers:
            return Why.TRIGGER
        if self._is_filtered(entry):
            return Why.FILTER
        if self.scanned.at < entry.delay:
            return Why.DELAY
        return Why.COOLDOWN if self._sticks_or_cools(index) and not self._sticks(index) else None

    def _is_filtered(self, entry: LoreEntry) -> bool:
        """Return whether the entry is for other characters: by name, or by a tag."""
        if not entry.names and not entry.tags:
            return False
        matches = self.scanned.character in entry.names or bool(self.scanned.tags & entry.tags)
        return matches if entry.excludes else not matches

    def _is_delayed(self, index: int) -> bool:
        level = self.scanner.entries[index].delay_until_recursion
        return bool(level) and (not self.is_recursion or level > self.level or not self._recurses(index))

    def _depth(self, index: int) -> int:
        """Return how many messages an entry is matched against: its own setting, else its book's, else the default."""
        of_entry = self.scanner.entries[index].scan_depth
        if of_entry is not None:
            return of_entry
        of_book = self.scanner.book_of[index].scan_depth
        return (self.settings.scan_depth if of_book is None else of_book) + self.deeper

    def _visible_keys(self, index: int) -> frozenset[int]:
        """Return the keys in the texts that an entry is matched against."""
        entry, depth = self.scanner.entries[index], self._depth(index)
        messages = self.messages[min(depth, len(self.messages)) - 1] if depth and self.messages else frozenset()
        sources = [self.sources[name] for name in entry.sources if depth and name in self.sources]
        if self._recurses(index) and not entry.exclude_recursion:
            sources.append(self.recursed)
        return messages.union(*sources) if any(sources) else messages

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

    def _score(self, index: int) -> int:
        """Return how many keys of an entry are in its texts, as groups count them."""
        visible = self._visible_keys(index)
        primary, secondary = self.scanner.keys.primary[index], self.scanner.keys.secondary[index]
        hits = sum(key in visible for key in primary)
        more = sum(key in visible for key in secondary)
        logic = self.scanner.entries[index].logic
        counts = logic is Logic.AND_ANY or (logic is Logic.AND_ALL and more == len(secondary))
        return hits + more if counts else hits

    def _drop(self, index: int, why: Why, *, key: str = "", detail: str = "") -> None:
        entry, book = self.scanner.entries[index], self.scanner.book_of[index].id
        self.dropped[index] = LoreVerdict(book, entry, False, why, key, self.pass_number, detail=detail)

    def _unexamined(self) -> Iterator[LoreVerdict]:
        """Yield the verdict on each entry that no pass examined."""
        for index, entry in enumerate(self.scanner.entries):
            if index not in self.admitted and index not in self.dropped:
                why = self._always_blocked(index) or Why.NO_KEY
                yield LoreVerdict(self.scanner.book_of[index].id, entry, False, why, pass_number=self.pass_number)

    # --- timed effects, probability -------------------------------------------------------------------------------

    def _sticks(self, index: int) -> bool:
        return self._is_running(index, self.scanner.entries[index].sticky)

    def _sticks_or_cools(self, index: int) -> bool:
        """Return whether an entry is sticky, or in the cooldown after that or after it was admitted."""
        return self._is_running(index, self.scanner.entries[index].sticky + self.scanner.entries[index].cooldown)

    def _is_running(self, index: int, messages: int) -> bool:
        start = self.scanned.started.get(self.scanner.ids[index])
        return start is not None and start < self.scanned.at < start + messages

    def _draw(self, *subject: str) -> float:
        """Return a number from 0 to 1 that depends on the conversation, the message and the subject."""
        seed = "\0".join((self.seed, *subject)).encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest(), "big") / 2**64

    def _is_drawn(self, index: int) -> bool:
        entry = self.scanner.entries[index]
        if entry.probability >= 100 or self._sticks(index):
            return True
        if self._draw("entry", self.scanner.ids[index]) * 100 < entry.probability:
            return True
        self.not_drawn.add(index)
        self._drop(index, Why.PROBABILITY, detail=f"{entry.probability:g} %")
        return False

    # --- groups and budget ----------------------------------------------------------------------------------------

    def _group_winners(self, matched: list[tuple[int, Why, str]]) -> list[tuple[int, Why, str]]:
        """Return the matches with only one entry of each inclusion group."""
        losers: set[int] = set()
        groups: dict[str, list[int]] = {}
        for index, _, _ in matched:
            for group in self.scanner.entries[index].groups:
                groups.setdefault(group, []).append(index)
        for group, indexes in groups.items():
            members = [index for index in indexes if index not in losers]
            winner = self.winners[group] if group in self.winners else self._winner(group, members)
            for index in members:
                if index != winner:
                    losers.add(index)
                    self._drop(index, Why.GROUP, detail=f"{group}: {self.scanner.entries[winner].uid} was taken")
        return [match for match in matched if match[0] not in losers]

    def _winner(self, group: str, members: list[int]) -> int:
        """Return the entry to admit: a sticky one, the best score, one that overrides, else drawn by weight."""
        entries = self.scanner.entries
        members = [index for index in members if self._sticks(index)] or members
        scoring = [
            index
            for index in members
            if (self.settings.group_scoring if entries[index].group_scoring is None else entries[index].group_scoring)
        ]
        if scoring:
            best = max(self._score(index) for index in members)
            members = [index for index in members if index not in scoring or self._score(index) == best]
        if overriding := [index for index in members if entries[index].group_override]:
            return max(overriding, key=lambda index: (entries[index].order, -index))
        members.sort()
        total = sum(entries[index].group_weight for index in members)
        remaining = self._draw("group", group) * total
        for index in members:
            remaining -= entries[index].group_weight
            if remaining < 0:
                return index
        return members[-1] if members else -1

    def _within_budget(self, new: list[tuple[int, Why, str]]) -> list[int]:
        """Admit the entries that fit, and return them; entries with a weight share what the others leave."""
        new_indexes: list[int] = []
        weighted: list[tuple[LoreVerdict, int]] = []
        for index, why, key in new:
            entry, book = self.scanner.entries[index], self.scanner.book_of[index]
            text = substituted(entry.content, self.scanned.names).strip()
            is_late = self.overflowed and not entry.ignore_budget and not entry.budget_weight
            tokens = 0 if is_late or not text else self.scanner.count(text)
            verdict = LoreVerdict(book.id, entry, True, why, key, self.pass_number, text, tokens, tokens)
            if entry.budget_weight and not entry.ignore_budget:
                weighted.append((verdict, index))
            elif entry.ignore_budget or (not self.overflowed and tokens <= self._tokens_left(index)):
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
        self.winners.update(dict.fromkeys(verdict.entry.groups, index))
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
