"""Search: candidates from the store, scores from the mirror, memories back from the store.

Each layer's collection gives its nearest and its matching versions with every filter pushed down; the events beside the
best of them join; `scoring` ranks them all together; only the memories that are returned are decoded, and each is
checked once more against the request. Going on without something (no embedder, a layer that fails, events not yet
embedded) is said in `notes`. What is weak comes behind what is strong, in a number that the request bounds.

Rejected: asking the engine to fuse (ranks only, and each engine its own way), and keeping decoded memories between
searches (their usage and state move, and decoding the few that are shown costs under a millisecond).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.activation import DEFAULTS, GREATEST, ActivationSettings, strength_of
from memory_anchor.json_values import Json
from memory_anchor.language.indexing import phrase_text
from memory_anchor.language.questions import end_asked
from memory_anchor.language.terms import holds, phrases
from memory_anchor.language.timewords import TimeWords
from memory_anchor.model import Actor, Layer, Memory, Scope, SearchAnswer
from memory_anchor.model import audiences as audiences_of
from memory_anchor.ports import DENSE, DENSE_LOCAL
from memory_anchor.quarantine import Quarantine
from memory_anchor.recall import candidates, linked, ranking, scoring
from memory_anchor.recall.centring import script_of
from memory_anchor.recall.cooccurrence import TagNeighbours
from memory_anchor.recall.index import Index
from memory_anchor.recall.mirror import ROWS_OF_A_TEXT
from memory_anchor.recall.order import DEADLINE_S, ordered, reranked
from memory_anchor.recall.order import key as order_key
from memory_anchor.recall.parallel import Meanwhile, PrecomputedWords, nothing
from memory_anchor.recall.query_embedder import QueryEmbedder
from memory_anchor.recall.ranking import RankingWeights
from memory_anchor.recall.relevance import STRONG
from memory_anchor.recall.request import SearchRequest, admits, refusal, where_of
from memory_anchor.recall.routing import preferred_layer
from memory_anchor.recall.scoring import PreparedQuery, Scored
from memory_anchor.recall.search_context import (
    FOLLOWS,
    Notes,
    SearchContext,
    elsewhere,
    is_outside,
    names_day_in,
    nothing_like_it,
    period_of,
    prepared_query,
    words_of,
)
from memory_anchor.recall.snippets import (
    RankedMemory,
    as_weak,
    asks_about,
    behind_the_best,
    folded,
    nearly_same,
    newer_first,
    prior,
    quoting,
    replaced_by,
    snippet,
)
from memory_anchor.where import OneOf

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.ports import Clock, Embedder, MemoryStore, Reranker, Snapshot
    from memory_anchor.recall.mirror import Mirror

SMALL_PERIOD = timedelta(days=2)
SMALL_PERIOD_HOLDS = 10
"""A period so short, with so little in it, is told where nothing in it resembles the question."""
ABOVE_ALL = 100.0
"""More than any score: what is strong comes before what is weak."""
SPARE = 4
"""Memories read beyond the limit, for priors, folding and the last check."""
PHRASE_PAGE = 200
"""Memories read at once when a quoted phrase must match."""
CACHED_ANSWERS = 256
DEGRADED_TTL = timedelta(seconds=1)
"""How long an answer is kept that lacks something: what was late or away may be back for the next question."""
_WAYS: ContextVar[SearchOptions | None] = ContextVar("memory_anchor_ways", default=None)
BEFORE_SIMILAR = 3
"""Candidates read per similar memory asked for: raw and centred cosines order a little differently."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The switches of the settings that a search goes by.

    lens: share of the conversation's topic (`SearchRequest.topic`) in the query's vector.
    """

    weights: RankingWeights = field(default_factory=RankingWeights)
    conversation: bool = True
    fold: bool = True
    priors: bool = True
    lens: float = 0.0


@dataclass(frozen=True, slots=True)
class _Cached:
    generation: int
    since: datetime
    until: datetime
    answer: SearchAnswer


class Searcher(Index):
    """Finds memories for an actor. Thread-safe; embedding and the store run outside its lock.

    embedder None: words alone. ways: the switches of the settings. cache_ttl_s 0: no answers are kept. activation:
    how strength is counted. local, prompt: the embedders beside an API's (`QueryEmbedder`). tags: which occur
    together. stand_aside: returns when no request waits, or soon (`Foreground`). snapshot: see `Index`. variants:
    other ways by name (`with_variant`).

    Whoever writes calls `note_written`, or stale answers live for the cache's TTL.
    """

    def __init__(
        self,
        store: MemoryStore,
        embedder: Embedder | None,
        clock: Clock,
        ways: SearchOptions | None = None,
        *,
        cache_ttl_s: float = 60.0,
        reranker: Reranker | None = None,
        rerank_deadline_s: float = DEADLINE_S,
        activation: ActivationSettings = DEFAULTS,
        local: Embedder | None = None,
        prompt: Embedder | None = None,
        tags: TagNeighbours | None = None,
        stand_aside: Callable[[], None] = lambda: None,
        snapshot: Snapshot | None = None,
        quarantine: Quarantine | None = None,
        variants: Mapping[str, SearchOptions] | None = None,
    ) -> None:
        self._tags = tags or TagNeighbours()
        super().__init__(store, QueryEmbedder(embedder, local=local, prompt=prompt), stand_aside, snapshot, quarantine)
        self.clock = clock
        self._reranker, self._rerank_deadline_s, self.activation = reranker, rerank_deadline_s, activation
        self._own = ways or SearchOptions()
        self.variants = variants or {}
        self._ttl = timedelta(seconds=cache_ttl_s)
        self._answers: OrderedDict[tuple[Scope, str, SearchRequest, SearchOptions], _Cached] = OrderedDict()
        self._hits = self._misses = 0

    @property
    def _ways(self) -> SearchOptions:
        return _WAYS.get() or self._own

    @property
    def weights(self) -> RankingWeights:
        """Return what each signal counts, in the variant that is gone by."""
        return self._ways.weights

    @contextmanager
    def with_variant(self, variant: str) -> Iterator[None]:
        """Let searches of this block go by the variant of this name; "" is the searcher's own way."""
        token = _WAYS.set(self.variants[variant] if variant else None)
        try:
            yield
        finally:
            _WAYS.reset(token)

    # --- searching -------------------------------------------------------------------------------------------------

    def search(self, actor: Actor, request: SearchRequest, *, meanwhile: Meanwhile = nothing) -> SearchAnswer:
        """Return the best snippets for an already validated request, strong ones first, best first.

        meanwhile: called once on another thread while the query is embedded; not where the answer is kept.
        """
        now = self.clock.now()
        key = (actor.scope, actor.zone, request, self._ways)
        with self._lock:
            cached = self._answers.get(key)
            if cached and cached.generation == self._generation and cached.since <= now < cached.until:
                self._hits += 1
                return cached.answer
            self._misses += 1
            generation = self._generation
        notes: Notes = {}
        answer = self._answer(actor, request, now, notes, meanwhile)
        with self._lock:
            if self._ttl:
                kept = min(self._ttl, DEGRADED_TTL) if any(notes.values()) else self._ttl
                self._answers[key] = _Cached(generation, now, now + kept, answer)
            while len(self._answers) > CACHED_ANSWERS:
                self._answers.popitem(last=False)
        return answer

    def forget(self, query: str) -> None:
        """Let go of what is kept of a query, its answers and its rows: the next search for it takes its full time."""
        request = SearchRequest(query)
        for text in {query, words_of(request, period_of(Actor(), request, self.clock.now()))}:
            self.query_embedder.forget(text)
        with self._lock:
            for key in [key for key in self._answers if key[2].query == query]:
                del self._answers[key]

    def cache_counts(self) -> tuple[int, int]:
        """Return how many searches were answered from the cache so far, and how many were not."""
        with self._lock:
            return self._hits, self._misses

    def _answer(
        self, actor: Actor, request: SearchRequest, now: datetime, notes: Notes, meanwhile: Meanwhile = nothing
    ) -> SearchAnswer:
        self.drain()
        asked = self.inquiry(actor, request, now, notes, period_of(actor, request, now), meanwhile=meanwhile)
        period, using = asked.period, asked.question.using
        if period is not None and period.is_hard:
            found = self._inside(asked, period)
        elif period is not None and not period.rest:
            found = self._then(asked, period)
        else:
            found = self._ranked(asked)
            lacks = not any(one.relevance >= STRONG for one in found)
            is_past = period is not None and period.start <= now and period.end - period.start <= SMALL_PERIOD
            if period is not None and is_past and lacks:
                lying = self._lying(asked, period, request.limit)
                shown = {one.memory.id for one in lying}
                found = [*lying, *(one for one in found if one.memory.id not in shown)][: request.limit]
            elif lacks and period is None and request.before and self._ways.conversation:
                found = self._following(asked, found)
        if request.is_unfiltered and not (period is not None and period.is_hard) and self._ways.conversation:
            found = linked.joined(found, asked, self, self._store)
        if asked.question.row is not None and (waiting := self._without_row(using)):
            notes[f"{waiting} memories are not embedded yet and are found by their words only."] = True
        shown = {one.memory.id for one in found}
        conflicts = {
            (min(one.memory.id, other), max(one.memory.id, other))
            for one in found
            for other in one.memory.disputes
            if other in shown
        }
        shaped = partial(snippet, reader=actor.scope, now=now, detail=request.detail, activation=self.activation)
        replaced = replaced_by(found, self._store)
        snippets = tuple(shaped(one, before=replaced.get(one.memory.id, "")) for one in found)
        return SearchAnswer(snippets, tuple(sorted(conflicts)), tuple(notes))

    def _then(self, asked: SearchContext, period: TimeWords) -> list[RankedMemory]:
        """Return what happened in a dated period, all that the query asks for, then what tells of it.

        What is found otherwise stands in where nothing lies in the period.
        """
        limit = asked.request.limit
        found = self._ranked(asked.within(period))
        if len(found) == limit:
            return found
        about = self._ranked(asked)
        shown = {one.memory.id for one in found}
        told = [one for one in about if one.memory.id not in shown and names_day_in(one.memory, period)]
        if about and not (found or told):
            asked.notes[elsewhere(period)] = False
        return [*found, *told][:limit] or about

    def _inside(self, asked: SearchContext, period: TimeWords) -> list[RankedMemory]:
        """Return what lies in a period that filters; where nothing there is strong, what is strong outside joins.

        Of a small period all is shown then: "why did we roll back on Thursday" may be answered by what that day holds,
        in words that are not the question's.
        """
        limit = asked.request.limit
        found = self._ranked(asked.within(period))
        if not period.rest or any(one.relevance >= STRONG for one in found):
            return found
        if period.end - period.start <= SMALL_PERIOD:
            found = self._lying(asked, period, min(limit, SMALL_PERIOD_HOLDS))
        shown = {one.memory.id for one in found}
        others = [one for one in self._elsewhere(asked) if one.memory.id not in shown]
        strong = [one for one in others if one.relevance >= STRONG]
        if strong or not found:
            asked.notes[elsewhere(period, inside=bool(found), outside=bool(others))] = False
        return [*found, *strong][:limit] if found else others

    def _lying(self, asked: SearchContext, period: TimeWords, limit: int) -> list[RankedMemory]:
        """Return what lies in a period, strong or not; all of it where nothing has a word or a meaning of the query."""
        every = replace(asked, request=replace(asked.request, weak=limit, limit=limit))
        found = self._ranked(every.within(period)) or as_weak(self._ranked(every.within(replace(period, rest=False))))
        if found:
            asked.notes[nothing_like_it(period)] = False
        return found

    def _following(self, asked: SearchContext, found: list[RankedMemory]) -> list[RankedMemory]:
        """Return what is found, joined by what is strong where the query is read after what was said before it."""
        read = f"{asked.request.before}\n{asked.request.query}"
        request = replace(asked.request, query=read, weak=0)
        whole = self.inquiry(asked.actor, request, asked.now, asked.notes, asked.period)
        joined = behind_the_best(found, [one for one in self._ranked(whole) if one.relevance >= STRONG])
        if joined != found:
            asked.notes[FOLLOWS] = False
        return joined[: asked.request.limit]

    def _elsewhere(self, asked: SearchContext) -> list[RankedMemory]:
        """Return what is found whatever the time; a text may use the very words that name it ("last summer")."""
        whole = self.inquiry(asked.actor, asked.request, asked.now, asked.notes, None)
        return self._ranked(whole) or self._ranked(replace(asked, period=None))

    def inquiry(
        self,
        actor: Actor,
        request: SearchRequest,
        now: datetime,
        notes: Notes,
        period: TimeWords | None,
        *,
        meanwhile: Meanwhile = nothing,
    ) -> SearchContext:
        """Return what is asked about this period; what is looked for is embedded here. meanwhile: as of `search`."""
        end = None if period is not None and period.is_hard else end_asked(request.query).end
        text = end_asked(words_of(request, period)).rest if end else words_of(request, period)
        project = f"{actor.scope.account}|{actor.scope.project}"
        topic, lens = request.topic, self._ways.lens

        def completed(question: PreparedQuery) -> PreparedQuery:
            wanted = self._tags.wanted(question.terms, audiences_of(actor.scope))
            leans = None if request.layers else preferred_layer(text)
            with self._lock:
                mirror = self._mirror
                words = mirror.words(question.term_ids, question.project, question.abroad)
                ahead = PrecomputedWords(mirror, mirror.changes, words)
            meanwhile()
            return replace(question, tags=wanted, leans=leans, end=end, ahead=ahead)

        question, note = prepared_query(
            self.query_embedder, text, project=project, topic=topic, share=lens, completed=completed
        )
        if note:
            notes[note] = bool(self.query_embedder.embedders)  # without any, words alone are all there is
        return SearchContext(actor, request, question, now, period, notes)

    def _ranked(self, asked: SearchContext) -> list[RankedMemory]:
        """Return what is found, in order and ready to be shown."""
        scored, found = self.scores(asked)
        if scored is None or not len(found):
            return []
        request = asked.request
        if asked.question.end is not None and not asked.lists:
            scored = self._newest_of_a_kind(asked, scored)
        if asked.lists:
            scored = scoring.listed(scored, events=scored.mirror.within(scored.rows, Layer.EVENT_LOG.value))
        ties = -scored.facts.happened.astype(np.int64)
        order = ranking.best_first(scored.total + (scored.relevance >= STRONG) * ABOVE_ALL, ties)
        if phrases(request.query):
            ranked = self._arranged(self._quoted(asked, scored, order), scored, asked)
        else:
            ranked = self._distinct(asked, scored, order)
        if self._reranker is not None and ranked:
            ranked, note = reranked(
                self._reranker,
                request.query,
                ranked,
                share=self._ways.weights.rerank,
                deadline_s=self._rerank_deadline_s,
            )
            if note:
                asked.notes[note] = True
        answer, alone = ordered(
            ranked, limit=request.limit, weak=request.weak, other_sides=partial(self._other_sides, asked)
        )
        for disputed in alone:
            asked.notes[f"{disputed} is disputed; a higher limit shows the other side too."] = False
        return answer

    def scores(self, asked: SearchContext, also: Memory | None = None) -> tuple[Scored | None, NDArray[np.int64]]:
        """Return the scores of what is found by meaning or by words, every filter applied, and the rows found.

        also: a memory that is scored whether it is found or not. Scores None: nothing to score. A row's place and its
        words are taken under one lock, or a write between them would give rows that the words do not know.
        """
        mirror = self._filled({also.point_id: also.layer.value} if also is not None else {})
        if asked.request.is_unfiltered and self._store.kind in candidates.WRITTEN_HERE:
            with self._lock:
                if mirror.is_whole:
                    return self._score(asked, mirror, None, also)
        question, aimed = asked.question, asked.question.row
        with self._lock:
            centring = mirror.centring(question.using)
            if aimed is not None and centring is not None:
                # Less its mean: the engine's raw cosine then orders almost as the centred one does.
                aimed = centring.query(aimed, question.script)
        points = candidates.asked(self._store, asked, aimed)
        self._filled(points, mirror)
        with self._lock:
            return self._score(asked, mirror, list(points), also)

    def _score(
        self, asked: SearchContext, mirror: Mirror, points: Sequence[str] | None, also: Memory | None
    ) -> tuple[Scored | None, NDArray[np.int64]]:
        """Return what `scores` does. points: what the engine found, None for what the mirror finds, which is locked."""
        question, ahead = asked.question, asked.question.ahead
        if ahead is not None and ahead.mirror is mirror and ahead.changes == mirror.changes:
            words = ahead.words
        else:
            words = mirror.words(question.term_ids, question.project, question.abroad)
        found = candidates.held(mirror, asked, words) if points is None else np.sort(mirror.rows(points))
        rows = found if also is None else np.union1d(found, mirror.rows([also.point_id]))
        if not len(rows):
            return None, found
        talks = self._ways.conversation and asked.request.as_of is None
        readers = audiences_of(asked.actor.scope) if talks else None
        weights, period = self._ways.weights, asked.period
        return scoring.score(mirror, question, rows, words, weights=weights, readers=readers, period=period), found

    def _newest_of_a_kind(self, asked: SearchContext, scored: Scored) -> Scored:
        assert asked.question.end is not None  # noqa: S101 - the caller looked
        ties = -scored.facts.happened.astype(np.int64)
        chosen = ranking.best_first(scored.total + (scored.relevance >= STRONG) * ABOVE_ALL, ties)[: scoring.KINDRED]
        mirror, rows, using = scored.mirror, scored.rows[chosen], asked.question.using
        with self._lock:
            alike, meant = mirror.alike(rows, using=using), mirror.embedded(rows, using=using)
        if not meant.all():  # what was just logged is of a kind by its words
            points = [mirror.points[row] for row in rows.tolist()]
            memories = self.memories(mirror, points)
            alike = scoring.with_word_similarity(
                alike, meant, [memories[one].content if one in memories else "" for one in points]
            )
        return scoring.newest_of_kind_first(scored, asked.question.end, alike, chosen)

    def _distinct(self, asked: SearchContext, scored: Scored, order: NDArray[np.int64]) -> list[RankedMemory]:
        """Return the best of an order with near-duplicates folded, read on until there are as many as asked for."""
        read: list[RankedMemory] = []
        kept: list[RankedMemory] = []
        page = asked.request.limit + SPARE
        while len(order) and len(linked.places(kept)) < asked.request.limit:
            read += self._read(asked, scored, order[:page])
            kept = self._arranged(sorted(read, key=order_key), scored, asked)
            order, page = order[page:], 2 * page
        return kept

    def _read(self, asked: SearchContext, scored: Scored, order: NDArray[np.int64]) -> list[RankedMemory]:
        """Return the memories of an order, priors added, in their new order."""
        request = asked.request
        places = [int(place) for place in order]
        points = [scored.mirror.points[int(scored.rows[place])] for place in places]
        memories = self.memories(scored.mirror, points)
        signals = scoring.signals(scored, places, self._ways.weights) if request.detail else {}
        weight, counts_age = self._ways.weights.prior if self._ways.priors else 0.0, request.counts_age
        ranked = []
        for place, point in zip(places, points, strict=True):
            memory = memories.get(point)
            if memory is None or not admits(asked.actor, request, memory, now=asked.now):
                continue
            strength = strength_of(memory, asked.now, self.activation, with_noise=False) if counts_age else GREATEST
            bonus = weight * prior(memory, counts_use=request.counts_use, strength=strength) if weight else 0.0
            told = {**signals[place], "prior": round(bonus, 4), **self._seen_through(request)} if request.detail else {}
            relevance = float(scored.relevance[place])
            ranked.append(RankedMemory(memory, float(scored.total[place]) + bonus, place, told, relevance=relevance))
        return sorted(ranked, key=order_key)

    def _quoted(self, asked: SearchContext, scored: Scored, order: NDArray[np.int64]) -> list[RankedMemory]:
        """Return those that hold every quoted phrase, read page by page until there are some.

        Where none does and the query asks about the phrase, the best of all stand in and a note says so.
        """
        query = asked.request.query
        wanted = phrases(query)
        read: list[RankedMemory] = []
        for start in range(0, len(order), PHRASE_PAGE):
            read += self._read(asked, scored, order[start : start + PHRASE_PAGE])
            if found := quoting(read, query, wanted):
                return found
        among = "No memory" if len(order) < candidates.QUOTED else f"None of the {len(order)} likeliest memories"
        asked.notes[f"{among} holds the quoted words."] = False
        return read[:PHRASE_PAGE] if asks_about(query, wanted) else []

    def _seen_through(self, request: SearchRequest) -> dict[str, Json]:
        """Return how the topic bent the query, for explain; nothing where it did not."""
        return (
            {"lens": {"topic": request.topic, "weight": self._ways.lens}} if self._ways.lens and request.topic else {}
        )

    def _arranged(self, ranked: list[RankedMemory], scored: Scored, asked: SearchContext) -> list[RankedMemory]:
        question = asked.question
        if not self._ways.fold or len(ranked) < 2:
            return ranked
        with self._lock:
            cosines = scored.mirror.alike(scored.rows[[one.place for one in ranked]], using=question.using)
        alike = nearly_same([one.place for one in ranked], cosines)
        if alike and question.end is None:
            ranked = newer_first(ranked, alike, self._ways.weights.newer)
        everything = (
            asked.request.is_unfiltered and asked.period is None
        )  # else what a story tells may have been left aside
        findable = scored.mirror.row_of if everything else ()
        return linked.summaries_or_events(folded(ranked, alike), asked.request, findable)

    def _other_sides(
        self, asked: SearchContext, one: RankedMemory, known: Mapping[str, RankedMemory], shown: Collection[str]
    ) -> list[RankedMemory]:
        """Return what disputes a memory and was not shown yet, from the ranking or the store."""
        wanted = [other for other in one.memory.disputes if other not in shown]
        sides = [known[other] for other in wanted if other in known]
        if missing := tuple(other for other in wanted if other not in known):
            where = where_of(asked.actor, asked.request, one.memory.layer).and_(OneOf("id", missing))
            others = self._store.find(one.memory.layer.value, where, limit=len(missing))
            allowed = partial(admits, asked.actor, asked.request, now=asked.now)
            sides += [replace(one, memory=other, siblings=()) for other in others if allowed(other)]
        return sides

    def why_not(self, actor: Actor, request: SearchRequest, memory: Memory) -> dict[str, Json]:
        """Return why this memory does or does not answer the request.

        found: whether it is within the limit. rank: its place in the answer, from 1, were it long enough, else among
        all that was scored. reason: a clause. signals: as in a detailed search, when it was scored.
        """
        now = self.clock.now()
        if reason := refusal(actor, request, memory, now=now):
            return {"found": False, "reason": reason}
        notes: Notes = {}
        answer = self._answer(actor, request, now, notes)
        asked = self.inquiry(actor, request, now, notes, period_of(actor, request, now))
        period = asked.period
        scored, found = self.scores(asked, also=memory)
        assert scored is not None  # noqa: S101 - this memory is in it
        own = int(scored.mirror.rows([memory.point_id])[0])
        place = int(np.flatnonzero(scored.rows == own)[0])
        signals = scoring.signals(scored, [place], self._ways.weights)[place]
        if any(one.id == memory.id for one in answer.snippets):
            rank = next(number for number, one in enumerate(answer.snippets, 1) if one.id == memory.id)
            return {"found": True, "reason": "it is among the answers", "rank": rank, "signals": signals}
        # What the same search would show with room for all: what comes before it there is what comes before it.
        everything = self._answer(actor, replace(request, limit=request.limit + len(scored.rows)), now, {}).snippets
        rank = next((number for number, one in enumerate(everything, 1) if one.id == memory.id), 0)
        same = next(
            (one.id for one in everything if any(cited.ref.partition("@")[0] == memory.id for cited in one.citations)),
            "",
        )
        if rank > request.limit:
            reason = f"{rank - 1} others rank above it and {request.limit} are shown"
        elif rank:
            reason = "the other side of a disputed memory takes its place"
        elif same:
            reason = f"it says the same as {same}, which cites it"
        elif period is not None and is_outside(actor, request, memory, period, now) and elsewhere(period) not in notes:
            reason = f"it lies outside of {period.text!r}, which the query names"
        elif not all(holds(phrase_text(memory), phrase) for phrase in phrases(request.query)):
            reason = "it does not hold the quoted words"
        elif own not in found and self._is_crowded_out(actor, scored.mirror, own, memory):
            reason = f"the newest {ROWS_OF_A_TEXT} that say the very same stand for it"
        elif own not in found:
            reason = f"neither meaning nor words bring it among the first {candidates.CANDIDATES}"
        else:
            reason = f"it is weak, and no more than {request.weak} weak ones are shown"
        rank = rank or 1 + int((scored.total > scored.total[place]).sum())
        return {"found": False, "reason": reason, "rank": rank, "signals": signals}

    def _is_crowded_out(self, actor: Actor, mirror: Mirror, row: int, memory: Memory) -> bool:
        with self._lock:
            return mirror.is_whole and row not in mirror.readable_in(memory.layer.value, candidates.audience_key(actor))

    # --- similar memories ------------------------------------------------------------------------------------------

    def similar(self, actor: Actor, text: str, *, layer: Layer, limit: int) -> list[tuple[Memory, float]]:
        """Return the readable memories of a layer nearest to `text` as a memory, with their centred cosine, best first.

        From 0.30 on they are related, from 0.55 on they may be the same fact (docs/retrieval.md). Pending ones too.
        Without an embedder what shares its words. Raises Unavailable: no embedder can run now.
        """
        found = self.query_embedder.written(text)
        if found is None:
            return candidates.similar_by_words(self._store, actor, text, layer, limit=limit)
        using, row = found
        request = SearchRequest(query=text, layers=(layer,), include_pending=True)
        collection = layer.value
        where = where_of(actor, request, layer)
        hits = self._store.nearest(collection, row, where, limit=BEFORE_SIMILAR * limit, using=using)
        mirror = self._filled({hit.point_id: collection for hit in hits})
        with self._lock:
            rows = mirror.rows([hit.point_id for hit in hits])
            cosines = mirror.cosines(row, script_of(text), rows, using=using)
            order = ranking.best_first(np.nan_to_num(cosines, nan=-1.0), rows)[:limit]
            near = [(mirror.points[int(rows[place])], float(cosines[place])) for place in order]
        entries = self._store.get(collection, [point for point, _ in near])
        if len(entries) < len(near):  # in the order asked for; each says which it is, at 8 µs, only where some are gone
            there = {entry.memory.point_id for entry in entries}
            near = [(point, cosine) for point, cosine in near if point in there]
        now = self.clock.now()
        return [
            (entry.memory, cosine)
            for entry, (_, cosine) in zip(entries, near, strict=True)
            if admits(actor, request, entry.memory, now=now)
        ]

    def alike(self, memories: Sequence[Memory]) -> NDArray[np.float32]:
        """Return the (n, n) centred cosines among stored versions, in their order; 0 where one is not embedded."""
        mirror = self._filled({memory.point_id: memory.layer.value for memory in memories})
        using = DENSE_LOCAL if DENSE_LOCAL in self.query_embedder.embedders else DENSE
        with self._lock:
            return mirror.alike(mirror.rows([memory.point_id for memory in memories]), using=using)
