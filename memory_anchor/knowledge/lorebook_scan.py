"""What lorebooks have to say to a conversation: entries admitted within a budget, and why each other is not. Pure.

Passes over the same entries: first the last messages, then what admitted entries themselves say (recursion), then,
where too few were found, one message deeper at a time. Each text is matched once, by itself, so that no key is found
across two. Nothing here knows a clock or chance: probability and groups are drawn from a hash of the conversation, the
message and the entry, and timed effects follow from one number an entry, the message count at which it was last
admitted. So a scan that is asked again answers the same. Rejected: effects kept as running counters, which a repeated
or taken back message would count twice.
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

TEXT_CHARS_MAX = 100_000
"""Of one message; what is beyond is not looked at."""
MESSAGES_MAX = 1_000
PASSES_MAX = 200
COUNTS_KEPT = 4_096
TRIM_LEAST_TOKENS = 24
"""Below this what is left of a trimmed entry says nothing."""
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
class ScanSettings:
    """How books are scanned that do not say it themselves. budget_tokens: 0 for `budget_percent` of the window.
    budget_cap, min_activations_depth: 0 for none. max_recursion_steps: passes, 1 for no recursion, 0 without end."""

    scan_depth: int = 2
    include_names: bool = True
    case_sensitive: bool = False
    match_whole_words: bool = True
    recursive: bool = False
    max_recursion_steps: int = 0
    min_activations: int = 0
    min_activations_depth: int = 0
    group_scoring: bool = False
    budget_percent: int = 25
    budget_tokens: int = 0
    budget_cap: int = 0

    def budget(self, window_tokens: int) -> int:
        """Return what entries may take of a window.

        >>> ScanSettings(budget_percent=10, budget_cap=50).budget(400), ScanSettings(budget_cap=50).budget(4_000)
        (40, 50)
        """
        tokens = self.budget_tokens or window_tokens * self.budget_percent // 100
        return min(tokens, self.budget_cap) if self.budget_cap else tokens


@dataclass(frozen=True, slots=True)
class Scanned:
    """What is scanned. messages: oldest first. count: of the whole conversation, where these are its end (0: all there
    are). started: `book/uid` -> message count at which a timed entry was admitted, from the scan before. sources: name
    -> text, see `lorebook.SOURCES`. names: what `{{user}}` and `{{char}}` mean. forced: `book/uid` from outside."""

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
    """What became of one entry. key: the one that matched. passed: the pass it was last looked at in, from 1.

    text, tokens: as admitted. whole_tokens: before the budget trimmed it. detail: which group or number decided.
    """

    book: str
    entry: LoreEntry
    admitted: bool
    why: Why
    key: str = ""
    passed: int = 1
    text: str = ""
    tokens: int = 0
    whole_tokens: int = 0
    detail: str = ""

    @property
    def id(self) -> str:
        return f"{self.book}/{self.entry.uid}"


@dataclass(frozen=True, slots=True)
class LoreScan:
    """admitted: in the order of admission. looked_at: dropped after a text came near them. started: for the next scan.
    rest: makes the verdicts on every other entry, of which there may be thousands."""

    admitted: tuple[LoreVerdict, ...]
    looked_at: tuple[LoreVerdict, ...]
    started: Mapping[str, int]
    budget_tokens: int
    passes: int
    overflowed: bool
    notes: tuple[str, ...]
    rest: Callable[[], Iterator[LoreVerdict]]

    @property
    def dropped(self) -> tuple[LoreVerdict, ...]:
        """Every entry that was not admitted."""
        return (*self.looked_at, *self.rest())

    @property
    def tokens(self) -> int:
        return sum(one.tokens for one in self.admitted)

    def placed(self) -> list[LoreVerdict]:
        """Return what was admitted as it stands in a prompt: by place, then by order, the highest last."""
        places = ("prefix", "tail", "outlet")
        return sorted(
            (one for one in self.admitted if one.text),
            key=lambda one: (places.index(one.entry.place), one.entry.outlet, -one.entry.depth, one.entry.order),
        )


class LoreScanner:
    """Scans some books; made once for them, used for every message. count: tokens of a text."""

    def __init__(
        self,
        books: Sequence[Lorebook],
        settings: ScanSettings | None = None,
        *,
        count: Callable[[str], int] = count_tokens,
    ) -> None:
        self.settings = settings or ScanSettings()
        self.books = tuple(books)
        self.entries = tuple(entry for book in books for entry in book.entries)
        self.book_of = tuple(book for book in books for _ in book.entries)
        self.index = KeyIndex.of(self.entries, self.settings)
        self.count = lru_cache(COUNTS_KEPT)(count)
        self.ids = tuple(f"{book.id}/{one.uid}" for book, one in zip(self.book_of, self.entries, strict=True))
        self.always = [place for place, one in enumerate(self.entries) if one.constant or one.forced]
        self.place_of = {id: place for place, id in enumerate(self.ids)}
        self.levels = sorted({one.delay_until_recursion for one in self.entries if one.delay_until_recursion})
        own = (self.settings.scan_depth if book.scan_depth is None else book.scan_depth for book in self.books)
        self.depth = max(own, default=0)
        self.deepest = max((one.scan_depth or 0 for one in self.entries), default=0)

    def scan(self, scanned: Scanned, *, budget_tokens: int) -> LoreScan:
        """Return what these books say to a conversation as it is now, in at most `budget_tokens` tokens."""
        return _Run(self, scanned, budget_tokens).result()


class _Run:
    """One scan at work."""

    def __init__(self, scanner: LoreScanner, scanned: Scanned, budget: int) -> None:
        self.of, self.scanned, self.budget, self.settings = scanner, scanned, budget, scanner.settings
        self.notes: list[str] = []
        self.admitted: dict[int, LoreVerdict] = {}
        self.dropped: dict[int, LoreVerdict] = {}
        self.unlucky: set[int] = set()
        self.taken: dict[str, int] = {}
        """Group -> the entry of it that was admitted."""
        self.used = 0
        self.used_by_book: dict[str, int] = {}
        self.overflowed = False
        self.passed, self.deeper, self.is_recursion = 1, 0, False
        self.levels = list(scanner.levels)
        self.level = self.levels.pop(0) if self.levels else 0
        self.messages: list[frozenset[int]] = []
        """Of the newest message, of the two newest, ...: the keys that stand in them."""
        self.recursed: frozenset[int] = frozenset()
        self.beside = {
            name: scanner.index.found(text[:TEXT_CHARS_MAX], scanned.names) for name, text in scanned.sources.items()
        }
        self.touched: set[int] = set(scanner.always)
        self.touched |= {scanner.place_of[one] for one in scanned.forced if one in scanner.place_of}
        self.touched |= {
            scanner.place_of[id]
            for id in scanned.started
            if id in scanner.place_of and self._sticks(scanner.place_of[id])
        }
        for keys in self.beside.values():
            self._touch(keys)
        last = scanned.messages[-1].content if scanned.messages else ""
        self.seed = hashlib.blake2b(
            f"{scanned.conversation}\0{scanned.at}\0{last}".encode("utf-8", "surrogatepass")
        ).hexdigest()

    def result(self) -> LoreScan:
        self._read_messages(max(self.of.depth, self.of.deepest))
        while True:
            self._pass()
            if not self._next():
                break
        started = {id: at for id, at in self.scanned.started.items() if id in self.of.place_of and self._runs(id)}
        for place, verdict in self.admitted.items():
            if (verdict.entry.sticky or verdict.entry.cooldown) and not self._sticks(place):
                started[self.of.ids[place]] = self.scanned.at
        return LoreScan(
            admitted=tuple(self.admitted.values()),
            looked_at=tuple(self.dropped.values()),
            started=started,
            budget_tokens=self.budget,
            passes=self.passed,
            overflowed=self.overflowed,
            notes=(*self.notes, *self.of.index.wrong.all()),
            rest=self._untouched,
        )

    # --- passes --------------------------------------------------------------------------------------------------

    def _pass(self) -> None:
        """Look at every entry that may be meant, and admit what passes checks, groups, chance and the budget."""
        matched: list[tuple[int, Why, str]] = []
        for place in sorted(self.touched):
            if place in self.admitted:
                continue
            entry = self.of.entries[place]
            if why := self._held_back(place):
                self._drop(place, why)
                continue
            if self.of.ids[place] in self.scanned.forced or entry.forced:
                matched.append((place, Why.FORCED, ""))
            elif entry.constant:
                matched.append((place, Why.CONSTANT, ""))
            elif self._sticks(place):
                matched.append((place, Why.STICKY, ""))
            else:
                why, key = self._by_keys(place)
                if why is Why.KEY:
                    matched.append((place, why, key))
                else:
                    self._drop(place, why, key=key)
        matched.sort(key=lambda one: (not self._sticks(one[0]), one[1] is Why.KEY, -self.of.entries[one[0]].priority))
        new = [one for one in self._chosen_of_groups(matched) if self._is_lucky(one[0])]
        self.fresh = self._within_budget(new)

    def _next(self) -> bool:
        """Return whether another pass is due, made ready: recursion, then a message deeper, then the next level."""
        if self.passed >= PASSES_MAX:
            self.notes.append(f"the scan ended after {PASSES_MAX} passes")
            return False
        limit = self.settings.max_recursion_steps
        may_recurse = not self.overflowed and not (limit and self.passed >= limit)
        spoken = [place for place in self.fresh if self._speaks(place)]
        self.is_recursion = False
        if may_recurse and spoken:
            for place in spoken:
                self.recursed |= self._touch(
                    self.of.index.found(self.admitted[place].text[:TEXT_CHARS_MAX], self.scanned.names)
                )
            self.is_recursion = True
        elif not self.overflowed and self._is_deeper():
            self.deeper += 1
        elif may_recurse and self.levels and any(self._speaks(place) for place in self.admitted):
            self.level = self.levels.pop(0)
            self.is_recursion = True
        else:
            return False
        self.passed += 1
        return True

    def _is_deeper(self) -> bool:
        """Return whether too few entries were found and there is a message that was not looked at, which is read."""
        depth = self.of.depth + self.deeper + 1
        most = self.settings.min_activations_depth or MESSAGES_MAX
        if len(self.admitted) >= self.settings.min_activations or depth > min(most, len(self.scanned.messages)):
            return False
        self._read_messages(depth)
        return True

    def _speaks(self, place: int) -> bool:
        entry = self.of.entries[place]
        return self._recurses(place) and not entry.prevent_recursion and bool(self.admitted[place].text)

    def _recurses(self, place: int) -> bool:
        own = self.of.book_of[place].recursive
        return self.settings.recursive if own is None else own

    def _read_messages(self, depth: int) -> None:
        """Match the newest messages, down to `depth` of them."""
        messages = self.scanned.messages
        for back in range(len(self.messages), min(depth, len(messages), MESSAGES_MAX)):
            message = messages[-1 - back]
            text = message.content[:TEXT_CHARS_MAX]
            if len(message.content) > TEXT_CHARS_MAX:
                self.notes.append(f"a message has {len(message.content)} characters; {TEXT_CHARS_MAX} were looked at")
            if self.settings.include_names and message.name:
                text = f"{message.name}: {text}"
            keys = self._touch(self.of.index.found(text, self.scanned.names))
            self.messages.append(keys | self.messages[-1] if self.messages else keys)

    def _touch(self, keys: frozenset[int]) -> frozenset[int]:
        """Note the entries that have one of these keys; return the keys."""
        for key in keys:
            self.touched.update(self.of.index.entries_of.get(key, ()))
        return keys

    # --- one entry -----------------------------------------------------------------------------------------------

    def _held_back(self, place: int) -> Why | None:
        """Return what keeps an entry out before its keys are asked, None when nothing does; in the known order."""
        if place in self.unlucky:
            return Why.PROBABILITY
        if (why := self._kept_out(place)) or self._sticks(place):
            return why
        if self._waits(place):
            return Why.DELAYED
        return Why.EXCLUDED if self.of.entries[place].exclude_recursion and self.is_recursion else None

    def _kept_out(self, place: int) -> Why | None:
        """Return what keeps an entry out in every pass."""
        entry = self.of.entries[place]
        if not entry.enabled:
            return Why.DISABLED
        if entry.triggers and self.scanned.trigger not in entry.triggers:
            return Why.TRIGGER
        if self._filtered(entry):
            return Why.FILTER
        if self.scanned.at < entry.delay:
            return Why.DELAY
        return Why.COOLDOWN if self._cools(place) and not self._sticks(place) else None

    def _filtered(self, entry: LoreEntry) -> bool:
        """Return whether the entry is for other characters: by name, or by a tag."""
        if not entry.names and not entry.tags:
            return False
        meant = self.scanned.character in entry.names or bool(self.scanned.tags & entry.tags)
        return meant if entry.excludes else not meant

    def _waits(self, place: int) -> bool:
        level = self.of.entries[place].delay_until_recursion
        return bool(level) and (not self.is_recursion or level > self.level or not self._recurses(place))

    def _depth(self, place: int) -> int:
        """Return how many messages an entry is matched against: its own word, its book's, or the settings'."""
        own = self.of.entries[place].scan_depth
        if own is not None:
            return own
        of_book = self.of.book_of[place].scan_depth
        return (self.settings.scan_depth if of_book is None else of_book) + self.deeper

    def _seen(self, place: int) -> tuple[frozenset[int], ...]:
        """Return the sets of keys that stand in the texts an entry is matched against."""
        entry, depth = self.of.entries[place], self._depth(place)
        messages = self.messages[min(depth, len(self.messages)) - 1] if depth and self.messages else frozenset()
        beside = tuple(self.beside[name] for name in entry.sources if depth and name in self.beside)
        takes = self._recurses(place) and not entry.exclude_recursion
        return (messages, *beside, self.recursed if takes else frozenset())

    def _by_keys(self, place: int) -> tuple[Why, str]:
        """Return (KEY and the key that matched, or why none did and what stood against it)."""
        seen = self._seen(place)
        key = next((one for one in self.of.index.primary[place] if any(one in keys for keys in seen)), None)
        if key is None:
            return Why.NO_KEY, ""
        first = self.of.index.texts[key]
        if not self.of.entries[place].secondary:
            return Why.KEY, first
        stands = [any(one in keys for keys in seen) for one in self.of.index.secondary[place]]
        holds = {
            Logic.AND_ANY: any(stands),
            Logic.NOT_ALL: not all(stands),
            Logic.NOT_ANY: not any(stands),
            Logic.AND_ALL: all(stands),
        }[self.of.entries[place].logic]
        return (Why.KEY if holds else Why.SECONDARY), first

    def _score(self, place: int) -> int:
        """Return how many keys of an entry stand in its texts, as groups count them."""
        seen = self._seen(place)
        hits, more = (
            sum(any(one in keys for keys in seen) for one in numbers)
            for numbers in (self.of.index.primary[place], self.of.index.secondary[place])
        )
        match self.of.entries[place].logic:
            case Logic.AND_ANY:
                return hits + more
            case Logic.AND_ALL:
                return hits + (more if more == len(self.of.index.secondary[place]) else 0)
            case _:
                return hits

    def _drop(self, place: int, why: Why, *, key: str = "", detail: str = "") -> None:
        entry, book = self.of.entries[place], self.of.book_of[place].id
        self.dropped[place] = LoreVerdict(book, entry, False, why, key, self.passed, detail=detail)

    def _untouched(self) -> Iterator[LoreVerdict]:
        """Yield the verdict on every entry that no text came near."""
        for place, entry in enumerate(self.of.entries):
            if place not in self.admitted and place not in self.dropped:
                why = self._kept_out(place) or Why.NO_KEY
                yield LoreVerdict(self.of.book_of[place].id, entry, False, why, passed=self.passed)

    # --- timed effects, chance ------------------------------------------------------------------------------------

    def _sticks(self, place: int) -> bool:
        entry, start = self.of.entries[place], self.scanned.started.get(self.of.ids[place])
        return start is not None and start < self.scanned.at < start + entry.sticky

    def _cools(self, place: int) -> bool:
        """Return whether an entry rests: after it was admitted, or after it was sticky."""
        entry, start = self.of.entries[place], self.scanned.started.get(self.of.ids[place])
        return start is not None and start < self.scanned.at < start + entry.sticky + entry.cooldown

    def _runs(self, id: str) -> bool:
        place = self.of.place_of[id]
        return self._sticks(place) or self._cools(place)

    def _drawn(self, *what: str) -> float:
        """Return the number from 0 to 1 that this conversation's message draws for something."""
        digest = hashlib.blake2b("\0".join((self.seed, *what)).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64

    def _is_lucky(self, place: int) -> bool:
        entry = self.of.entries[place]
        if entry.probability >= 100 or self._sticks(place):
            return True
        if self._drawn("entry", self.of.ids[place]) * 100 < entry.probability:
            return True
        self.unlucky.add(place)
        self._drop(place, Why.PROBABILITY, detail=f"{entry.probability:g} %")
        return False

    # --- groups and budget ----------------------------------------------------------------------------------------

    def _chosen_of_groups(self, matched: list[tuple[int, Why, str]]) -> list[tuple[int, Why, str]]:
        """Return what is left when of each inclusion group one entry is taken."""
        out: set[int] = set()
        groups: dict[str, list[int]] = {}
        for place, _, _ in matched:
            for group in self.of.entries[place].groups:
                groups.setdefault(group, []).append(place)
        for group, every in groups.items():
            members = [place for place in every if place not in out]
            winner = self.taken[group] if group in self.taken else self._winner(group, members)
            for place in members:
                if place != winner:
                    out.add(place)
                    self._drop(place, Why.GROUP, detail=f"{group}: {self.of.entries[winner].uid} was taken")
        return [one for one in matched if one[0] not in out]

    def _winner(self, group: str, members: list[int]) -> int:
        """Return who is taken: one that is sticky, the best score, one that overrides, or by weight."""
        entries = self.of.entries
        members = [place for place in members if self._sticks(place)] or members
        scoring = [
            place
            for place in members
            if (self.settings.group_scoring if entries[place].group_scoring is None else entries[place].group_scoring)
        ]
        if scoring:
            best = max(self._score(place) for place in members)
            members = [place for place in members if place not in scoring or self._score(place) == best]
        if over := [place for place in members if entries[place].group_override]:
            return max(over, key=lambda place: (entries[place].order, -place))
        members.sort()
        total = sum(entries[place].group_weight for place in members)
        left = self._drawn("group", group) * total
        for place in members:
            left -= entries[place].group_weight
            if left < 0:
                return place
        return members[-1] if members else -1

    def _within_budget(self, new: list[tuple[int, Why, str]]) -> list[int]:
        """Admit what fits, and return it; entries with a weight share fairly what the others leave."""
        fresh: list[int] = []
        weighted: list[tuple[LoreVerdict, int]] = []
        for place, why, key in new:
            entry, book = self.of.entries[place], self.of.book_of[place]
            text = substituted(entry.content, self.scanned.names).strip()
            is_late = self.overflowed and not entry.ignore_budget and not entry.budget_weight
            tokens = 0 if is_late or not text else self.of.count(text)
            verdict = LoreVerdict(book.id, entry, True, why, key, self.passed, text, tokens, tokens)
            if entry.budget_weight and not entry.ignore_budget:
                weighted.append((verdict, place))
            elif entry.ignore_budget or (not self.overflowed and tokens <= self._room(place)):
                self._admit(place, verdict)
                fresh.append(place)
            else:
                self.overflowed = True
                self._drop(place, Why.BUDGET, key=key, detail="" if is_late else f"{tokens} tokens")
        for verdict, place in self._shares(weighted):
            if verdict.tokens <= self._room(place) and (verdict.text or not verdict.whole_tokens):
                self._admit(place, verdict)
                fresh.append(place)
            else:
                self._drop(place, Why.BUDGET, key=verdict.key, detail=f"{verdict.whole_tokens} tokens")
        return fresh

    def _room(self, place: int) -> int:
        """Return the tokens left to an entry: of the whole budget, and of its book's."""
        book = self.of.book_of[place]
        own = self.budget if book.token_budget is None else book.token_budget - self.used_by_book.get(book.id, 0)
        return min(self.budget - self.used, own)

    def _admit(self, place: int, verdict: LoreVerdict) -> None:
        self.admitted[place] = verdict
        self.taken.update(dict.fromkeys(verdict.entry.groups, place))
        self.dropped.pop(place, None)
        self.used += verdict.tokens
        self.used_by_book[verdict.book] = self.used_by_book.get(verdict.book, 0) + verdict.tokens

    def _shares(self, weighted: list[tuple[LoreVerdict, int]]) -> list[tuple[LoreVerdict, int]]:
        """Return the entries cut to their shares: by weight, and what one does not need goes to the others."""
        room = max(0, self.budget - self.used)
        left, open_ = room, list(weighted)
        shares: dict[int, int] = {}
        while open_:
            total = sum(one.entry.budget_weight for one, _ in open_)
            small = [(one, at) for one, at in open_ if one.tokens * total <= left * one.entry.budget_weight]
            if not small:
                shares |= {at: int(left * one.entry.budget_weight / total) for one, at in open_}
                break
            shares |= {at: one.tokens for one, at in small}
            left -= sum(one.tokens for one, _ in small)
            open_ = [one for one in open_ if one[1] not in shares]
        return [(self._trimmed(one, min(shares[at], max(0, self._room(at)))), at) for one, at in weighted]

    def _trimmed(self, verdict: LoreVerdict, share: int) -> LoreVerdict:
        if verdict.tokens <= share:
            return verdict
        low, high = 0, len(verdict.text)
        while low < high:  # at most log2(len) counts
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.of.count(verdict.text[:middle] + CUT) <= share else (low, middle - 1)
        text = verdict.text[:low].rstrip() + CUT
        tokens = self.of.count(text)
        if low and TRIM_LEAST_TOKENS <= tokens <= share:
            return replace(verdict, text=text, tokens=tokens, detail=f"trimmed from {verdict.tokens} tokens")
        return replace(verdict, text="", tokens=0)
