"""Contradictions found because two memories are recalled together.

Writing compares a new fact with its neighbours, but facts are also imported, edited, stored before their vector was
made, or have too many neighbours. So the facts of each answer are queued (microseconds, on the searching thread) and
compared later by the job `reconsolidate`, with the rules and the policy of writes; so is a fact stored without its
vector, with its neighbours by then. The newer of two is the one first learned later.

Bounds: a full queue drops the newest, since what matters is recalled again; a pair of versions is compared once. The
rules decide what is a contradiction; a language model, if there is one, may only say that it is none.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from cachetools import LRUCache

from memory_anchor.domain.model import SEARCHABLE_STATES, Layer, Memory, Outcome, Relation, RetrievedSnippet
from memory_anchor.domain.rights import have_same_readers, is_human_owned
from memory_anchor.domain.where import OneOf, Where
from memory_anchor.ingest.reconcile import DEFAULT_THRESHOLDS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memory_anchor.domain.ports import MemoryStore
    from memory_anchor.ingest.writing import Decide

ANSWERS_WAITING = 64
"""Answers not compared yet; further ones are dropped."""
COMPARED_TOGETHER = 12
"""Facts of one answer, best first, that are compared pairwise: at most 66 pairs."""
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
    """The facts that answers showed together and that wait to be compared. Thread-safe.

    decide: by rules, at once. ask_model: may take seconds. near: returns active facts near a stored one. on_news:
    called when there is something to compare.
    """

    def __init__(
        self,
        store: MemoryStore,
        cosines: Cosines,
        decide: Decide,
        *,
        ask_model: Decide | None,
        near: Callable[[Memory], Sequence[Memory]],
        on_news: Callable[[], None],
    ) -> None:
        self._store, self._cosines, self._decide, self._ask_model = store, cosines, decide, ask_model
        self._near, self.on_news = near, on_news
        self._lock = threading.Lock()
        self._waiting: deque[tuple[str, ...]] = deque()
        self._answers: LRUCache[tuple[str, ...], bool] = LRUCache(ANSWERS_REMEMBERED)
        self._pairs: LRUCache[tuple[str, str], bool] = LRUCache(PAIRS_REMEMBERED)

    def note(self, snippets: Iterable[RetrievedSnippet]) -> None:
        """Queue the facts that were shown together; never waits, never compares."""
        ids = tuple(snippet.id for snippet in snippets if snippet.layer is Layer.VERIFIED_FACT)[:COMPARED_TOGETHER]
        if len(ids) < 2:
            return
        with self._lock:
            if ids in self._answers or len(self._waiting) >= ANSWERS_WAITING:
                return
            self._answers[ids] = True
            self._waiting.append(ids)
        self.on_news()

    def note_unembedded(self, memory_id: str) -> None:
        """Queue a fact that was stored before its vector was made, to be compared with its neighbours then."""
        with self._lock:
            if len(self._waiting) >= ANSWERS_WAITING:
                return
            self._waiting.append((memory_id,))
        self.on_news()

    def changed(self) -> None:
        """Compare answers again that were queued before: memories were written, so they may disagree now."""
        with self._lock:
            self._answers.clear()

    def find(self, *, keep: bool = False) -> list[Disagreement]:
        """Return the contradictions among the queued facts, each once; no memory is in two of them.

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
            for older, newer, cosine in self._new_pairs(facts):
                if {older.id, newer.id} & taken or len(disagreements) >= FOUND_A_RUN:
                    again = True  # compared when the first decision is written
                    continue
                disagreement = self._compare(older, newer, cosine)
                if not keep:
                    with self._lock:
                        self._pairs[older.version_id, newer.version_id] = True
                if disagreement is not None:
                    disagreements.append(disagreement)
                    taken |= {older.id, newer.id}
            if again and not keep:
                with self._lock:
                    self._waiting.append(ids)
                self.on_news()
        return disagreements

    def _current(self, ids: Sequence[str]) -> list[Memory]:
        where = Where((OneOf("id", tuple(ids)), OneOf("state", tuple(sorted(SEARCHABLE_STATES)))))
        return self._store.find(FACTS, where, limit=len(ids))

    def _new_pairs(self, facts: Sequence[Memory]) -> Iterable[tuple[Memory, Memory, float]]:
        """Yield (older, newer, cosine) of pairs that the same readers see, are near, and were not compared yet."""
        if len(facts) < 2:
            return
        facts = sorted(facts, key=lambda fact: (fact.learned_at, fact.id))
        cosines = self._cosines(facts)
        for (row, older), (column, newer) in combinations(enumerate(facts), 2):
            cosine = float(cosines[row, column])
            known = {older.id, newer.id} & {*older.disputes, *newer.disputes, *newer.related(Relation.RELATED)}
            if known or not have_same_readers(older, newer) or cosine < DEFAULT_THRESHOLDS.compared:
                continue
            with self._lock:
                compared = (older.version_id, newer.version_id) in self._pairs
            if not compared:
                yield older, newer, cosine

    def _compare(self, older: Memory, newer: Memory, cosine: float) -> Disagreement | None:
        decision = self._decide(newer, [(older, cosine)])
        if decision.disagrees and self._ask_model is not None:
            decision = self._ask_model(newer, [(older, cosine)])
        if not decision.disagrees:
            return None
        loser = newer if decision.outcome is Outcome.SKIPPED else older
        waits = is_human_owned(loser) or older.disputes or newer.disputes
        return Disagreement(older, newer, Outcome.NEEDS_REVIEW if waits else decision.outcome, decision.reason)
