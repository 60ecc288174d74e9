"""Contradictions that only show when two memories are recalled together.

Writing compares a new fact with its neighbours, but facts are also imported, edited, stored while nothing could embed
or before a long text had its row, or have too many neighbours. So what one answer showed is noted (microseconds, on
the searching thread) and compared later by the job `reconsolidate`, with the rules and the policy that hold for writes;
a fact stored without its row likewise, with what is near it by then. Which of two is the newer goes by when each was
first learned.

Bounds: a full queue drops the newest, since what matters is recalled again; a pair is compared once a version. The
rules decide what is a contradiction; a language model, where there is one, may only say that it is none.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from cachetools import LRUCache

from memory_anchor.ingest.reconcile import DEFAULT_THRESHOLDS, Decision, Relation
from memory_anchor.model import FOUND_STATES, Layer, Memory, Outcome, RetrievedSnippet
from memory_anchor.rights import is_a_humans
from memory_anchor.where import OneOf, Where

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memory_anchor.ingest.writing import Decide
    from memory_anchor.ports import MemoryStore

ANSWERS_WAITING = 64
"""Answers not looked at yet; further ones are dropped."""
COMPARED_TOGETHER = 12
"""Facts of one answer, best first, of which every two are compared: at most 66 pairs."""
ANSWERS_A_RUN = 32
FOUND_A_RUN = 20
ANSWERS_REMEMBERED = 512
PAIRS_REMEMBERED = 8_192
FACTS = Layer.VERIFIED_FACT.value

Cosines = Callable[[Sequence[Memory]], "NDArray[np.float32]"]
"""Centred cosines among current versions, (n, n); 0 where one is not embedded."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two facts that contradict each other. outcome: superseded (the older), skipped (the newer), or needs_review."""

    older: Memory
    newer: Memory
    outcome: Outcome
    reason: str


class RecalledTogether:
    """What answers showed together and nobody has compared yet. Thread-safe.

    decide: rules, at once. ponder: a model, may take seconds. near: live facts beside a stored one. on_news: told when
    there is something to compare.
    """

    def __init__(
        self,
        store: MemoryStore,
        cosines: Cosines,
        decide: Decide,
        *,
        ponder: Decide | None = None,
        near: Callable[[Memory], Sequence[Memory]] = lambda _: (),
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._cosines, self._decide, self._ponder = store, cosines, decide, ponder
        self._near, self.on_news = near, on_news
        self._lock = threading.Lock()
        self._waiting: deque[tuple[str, ...]] = deque()
        self._answers: LRUCache[tuple[str, ...], bool] = LRUCache(ANSWERS_REMEMBERED)
        self._pairs: LRUCache[tuple[str, str], bool] = LRUCache(PAIRS_REMEMBERED)

    def note(self, snippets: Iterable[RetrievedSnippet]) -> None:
        """Remember which facts were shown together; never waits, never compares."""
        ids = tuple(one.id for one in snippets if one.layer is Layer.VERIFIED_FACT)[:COMPARED_TOGETHER]
        if len(ids) < 2:
            return
        with self._lock:
            if ids in self._answers or len(self._waiting) >= ANSWERS_WAITING:
                return
            self._answers[ids] = True
            self._waiting.append(ids)
        self.on_news()

    def note_behind(self, memory_id: str) -> None:
        """Remember a fact that was stored before its own row was known: its neighbours are compared when it is."""
        with self._lock:
            if len(self._waiting) >= ANSWERS_WAITING:
                return
            self._waiting.append((memory_id,))
        self.on_news()

    def changed(self) -> None:
        """Take note that memories were written: answers seen before may disagree now."""
        with self._lock:
            self._answers.clear()

    def found(self, *, keep: bool = False) -> list[Disagreement]:
        """Return the contradictions among what waits, each once; no memory is in two of them.

        keep: leave the queue as it is (a dry run).
        """
        with self._lock:
            answers = list(self._waiting)[:ANSWERS_A_RUN]
            if not keep:
                for _ in answers:
                    self._waiting.popleft()
        disagreements: list[Disagreement] = []
        taken: set[str] = set()
        for ids in answers:
            facts = self._current(ids)
            if len(ids) == 1 and facts:
                facts = [*facts, *self._near(facts[0])]
            again = False
            for one, other, cosine in self._new_pairs(facts):
                if {one.id, other.id} & taken or len(disagreements) >= FOUND_A_RUN:
                    again = True  # compared when the first decision is written
                    continue
                seen = self._compared(one, other, cosine)
                if not keep:
                    self._remember(one, other)
                if seen is not None:
                    disagreements.append(seen)
                    taken |= {one.id, other.id}
            if again and not keep:
                with self._lock:
                    self._waiting.append(ids)
                self.on_news()
        return disagreements

    def _current(self, ids: Sequence[str]) -> list[Memory]:
        where = Where((OneOf("id", tuple(ids)), OneOf("state", tuple(sorted(FOUND_STATES)))))
        return self._store.find(FACTS, where, limit=len(ids))

    def _new_pairs(self, facts: Sequence[Memory]) -> Iterable[tuple[Memory, Memory, float]]:
        """Yield (older, newer, cosine) of what the same readers see, is near, and was not compared yet."""
        if len(facts) < 2:
            return
        facts = sorted(facts, key=lambda fact: (fact.learned_at, fact.id))
        cosines = self._cosines(facts)
        for (place, older), (beside, newer) in combinations(enumerate(facts), 2):
            cosine = float(cosines[place, beside])
            known = newer.id in older.disputes or older.id in newer.disputes or older.audience != newer.audience
            if known or cosine < DEFAULT_THRESHOLDS.compared:
                continue
            with self._lock:
                compared = (older.version_id, newer.version_id) in self._pairs
            if not compared:
                yield older, newer, cosine

    def _remember(self, older: Memory, newer: Memory) -> None:
        with self._lock:
            self._pairs[older.version_id, newer.version_id] = True

    def _compared(self, older: Memory, newer: Memory, cosine: float) -> Disagreement | None:
        decision = self._decide(newer, [(older, cosine)])
        if decision.relation is Relation.CONFLICT and self._ponder is not None:
            decision = self._ponder(newer, [(older, cosine)])
        if decision.relation is not Relation.CONFLICT:
            return None
        return Disagreement(older, newer, _outcome(decision, older, newer), decision.reason)


def _outcome(decision: Decision, older: Memory, newer: Memory) -> Outcome:
    """Return what becomes of the pair; a human's or pinned word waits, and so does what is disputed already."""
    loser = newer if decision.outcome is Outcome.SKIPPED else older
    waits = is_a_humans(loser) or older.disputes or newer.disputes
    return Outcome.NEEDS_REVIEW if waits else decision.outcome
