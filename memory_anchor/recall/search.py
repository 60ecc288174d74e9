"""Search: candidates from the store, scores from the mirror, memories back from the store.

Each layer's collection gives its nearest and its matching versions with every filter pushed down; the events next to
the best of them join; `scoring` ranks them all together; only the memories that are returned are decoded, and each is
checked once more against the request. Going on without something (no embedder, a layer that fails, events not yet
embedded) adds a note. Weak memories come after strong ones, in a number that the request bounds.

`Searcher._rank` gives the order of an answer; `order.ORDER` lists its steps.

Rejected: asking the engine to fuse (ranks only, and each engine its own way), and keeping decoded memories between
searches (their usage and state move, and decoding the few that are shown costs under a millisecond).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.base.json_values import Json
from memory_anchor.domain.activation import GREATEST, ActivationSettings, strength_of
from memory_anchor.domain.model import Actor, Layer, Memory, Scope, SearchAnswer, Status
from memory_anchor.domain.model import audiences as audiences_of
from memory_anchor.domain.ports import DENSE, DENSE_LOCAL
from memory_anchor.domain.where import OneOf
from memory_anchor.language.indexing import phrase_text
from memory_anchor.language.questions import end_asked
from memory_anchor.language.terms import holds, phrases
from memory_anchor.language.timespans import horizon
from memory_anchor.language.timewords import TimeWords
from memory_anchor.recall import candidates, linked, scoring
from memory_anchor.recall.centring import script_of
from memory_anchor.recall.cooccurrence import TagNeighbours
from memory_anchor.recall.index import Index
from memory_anchor.recall.mirror import ROWS_OF_A_TEXT
from memory_anchor.recall.order import FOLDING, ORDER, SAME_THING, Ordering, rank_key
from memory_anchor.recall.ranking import SearchOptions
from memory_anchor.recall.relevance import STRONG, SURE, asks
from memory_anchor.recall.request import SearchRequest, admits, refusal, where_of
from memory_anchor.recall.routing import preferred_layer
from memory_anchor.recall.scoring import PreparedQuery, Scored
from memory_anchor.recall.search_context import (
    FOLLOWS,
    Meanwhile,
    Notes,
    PrecomputedWords,
    SearchContext,
    is_outside,
    names_day_in,
    next_midnight,
    nothing_similar,
    other_times,
    period_of,
    prepared_query,
    words_of,
)
from memory_anchor.recall.snippets import (
    RankedMemory,
    as_weak,
    asks_about,
    behind_the_best,
    holding_phrases,
    prior,
    replaced_texts,
    snippet,
)
from memory_anchor.recall.unprompted import is_known

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.domain.ports import Clock, Reranker
    from memory_anchor.recall.mirror import Mirror

SMALL_PERIOD = timedelta(days=2)
SMALL_PERIOD_HOLDS = 10
"""A period so short, with so little in it, is shown where nothing in it resembles the question."""
SPARE = 4
"""Memories read beyond the limit, for priors, folding and the last check."""
PHRASE_PAGE = 200
"""Memories read at once when a quoted phrase must match."""
CACHED_ANSWERS = 256
DEGRADED_TTL = timedelta(seconds=1)
"""How long an answer is cached that lacks something: what was late or away may be back for the next question."""
_VARIANT: ContextVar[SearchOptions | None] = ContextVar("memory_anchor_variant", default=None)
BEFORE_SIMILAR = 3
"""Candidates read per similar memory asked for: raw and centred cosines order a little differently."""


@dataclass(frozen=True, slots=True)
class _Cached:
    generation: int
    since: datetime
    until: datetime
    answer: SearchAnswer


class Searcher:
    """Finds memories for an actor. Thread-safe; embedding and the store run outside its lock.

    cache_ttl_s 0: no answers are cached. activation: how strength is counted. tags: which occur together. variants:
    other options by name (`with_variant`).

    A writer must call `index.note_written`, or stale answers live for the cache's TTL.
    """

    def __init__(
        self,
        index: Index,
        clock: Clock,
        options: SearchOptions,
        *,
        cache_ttl_s: float,
        reranker: Reranker | None,
        rerank_deadline_s: float,
        activation: ActivationSettings,
        tags: TagNeighbours,
        variants: Mapping[str, SearchOptions],
    ) -> None:
        self.index, self._store, self._tags, self.clock = index, index.store, tags, clock
        self._reranker, self._rerank_deadline_s, self.activation = reranker, rerank_deadline_s, activation
        self._default_options = options
        self.variants = variants
        self._ttl = timedelta(seconds=cache_ttl_s)
        self._answers: OrderedDict[tuple[Scope, str, SearchRequest, SearchOptions], _Cached] = OrderedDict()
        self._hits = self._misses = 0

    @property
    def options(self) -> SearchOptions:
        """Return the options of the variant in force."""
        return _VARIANT.get() or self._default_options

    @contextmanager
    def with_variant(self, variant: str) -> Iterator[None]:
        """Let searches of this block use the variant of this name; "" is the searcher's own options."""
        token = _VARIANT.set(self.variants[variant] if variant else None)
        try:
            yield
        finally:
            _VARIANT.reset(token)

    # --- searching -------------------------------------------------------------------------------------------------

    def search(self, actor: Actor, request: SearchRequest, *, meanwhile: Meanwhile | None = None) -> SearchAnswer:
        """Return the best snippets for an already validated request, strong ones first, best first.

        meanwhile: called once on another thread while the query is embedded; not where the answer is cached.
        """
        now = self.clock.now()
        key = (actor.scope, actor.zone, request, self.options)
        # Where others write and nobody follows what they do, the generation does not move with it: nothing is kept.
        keeps = self.index.follow() or self._store.kind in candidates.WRITTEN_HERE
        with self.index.lock:
            cached = self._answers.get(key) if keeps else None
            if cached and cached.generation == self.index.generation and cached.since <= now < cached.until:
                self._hits += 1
                return cached.answer
            self._misses += 1
            generation = self.index.generation
        notes: Notes = {}
        answer, ends_at = self._answer(actor, request, now, notes, meanwhile)
        with self.index.lock:
            if self._ttl and keeps:
                ttl = min(self._ttl, DEGRADED_TTL) if any(notes.values()) else self._ttl
                self._answers[key] = _Cached(generation, now, min(now + ttl, ends_at), answer)
            while len(self._answers) > CACHED_ANSWERS:
                self._answers.popitem(last=False)
        return answer

    def forget(self, query: str) -> None:
        """Drop the cached answers and vectors of a query: the next search for it takes its full time."""
        request = SearchRequest(query)
        for text in {query, words_of(request, period_of(Actor(), request, self.clock.now()))}:
            self.index.query_embedder.forget(text)
        with self.index.lock:
            for key in [key for key in self._answers if key[2].query == query]:
                del self._answers[key]

    def cache_counts(self) -> tuple[int, int]:
        """Return how many searches were answered from the cache so far, and how many were not."""
        with self.index.lock:
            return self._hits, self._misses

    def _answer(
        self, actor: Actor, request: SearchRequest, now: datetime, notes: Notes, meanwhile: Meanwhile | None = None
    ) -> tuple[SearchAnswer, datetime]:
        """Return an answer, and until when it holds: the first expiry of what it shows, at most midnight."""
        self.index.embed_last_writes()
        context = self.prepare(actor, request, now, notes, period_of(actor, request, now), meanwhile=meanwhile)
        period, is_filter = context.period, context.period is not None and context.period.is_hard
        if period is not None and is_filter:
            hits = self._inside(context, period)
        elif period is not None and not period.rest:
            hits = self._dated(context, period)
        else:
            hits = self._rank(context)
            if not any(hit.relevance >= STRONG for hit in hits):
                if period is not None and period.start <= now and period.end - period.start <= SMALL_PERIOD:
                    within = self._all_within(context, period, request.limit)
                    shown = {hit.memory.id for hit in within}
                    hits = [*within, *(hit for hit in hits if hit.memory.id not in shown)][: request.limit]
                elif period is None and request.before and self.options.conversation:
                    hits = self._following(context, hits)
        if not any(hit.relevance >= STRONG for hit in hits) and (unseen := self._waiting(context)):
            notes[f"{unseen} of what waits for review would answer this: `memory-anchor review`."] = False
        if request.is_unfiltered and not is_filter and self.options.conversation:
            hits = linked.with_linked(hits, context, self.index, self._store)
        if context.query.row is not None and (waiting := self.index.without_vector(context.query.using)):
            notes[f"{waiting} memories are not embedded yet and are found by their words only."] = True
        shown = {hit.memory.id for hit in hits}
        conflicts = {
            (min(hit.memory.id, other), max(hit.memory.id, other))
            for hit in hits
            for other in hit.memory.disputes
            if other in shown
        }
        to_snippet = partial(snippet, reader=actor.scope, now=now, detail=request.detail, activation=self.activation)
        replaced = replaced_texts(hits, self._store)
        snippets = tuple(to_snippet(hit, before=replaced.get(hit.memory.id, "")) for hit in hits)
        if self._may_lack_the_answer(context, hits):
            snippets = tuple(replace(one, weak=True) for one in snippets)
        expiries = [one.expires_at for hit in hits for one in (hit.memory, *hit.siblings) if one.expires_at is not None]
        ends_at = min([next_midnight(now, actor.zone), *expiries])
        return SearchAnswer(snippets, tuple(sorted(conflicts)), tuple(notes)), ends_at

    def _may_lack_the_answer(self, context: SearchContext, hits: Sequence[RankedMemory]) -> bool:
        """Return whether a question may have found no more than its subject; a quoted phrase is there or not."""
        query, text = context.query, context.request.query
        is_asked = query.row is not None and asks(text) and not query.is_statement and not phrases(text)
        is_learned = is_asked and is_known(self.index.query_embedder.identities[query.using])
        return is_learned and all(hit.relevance < SURE for hit in hits)

    def _waiting(self, context: SearchContext) -> int:
        """Return how many memories answer the query well that nobody has let in yet."""
        if context.request.include_pending or not candidates.any_pending(self._store, context.actor):
            return 0
        hits = self._rank(replace(context, request=replace(context.request, include_pending=True, weak=0)))
        return sum(hit.memory.status is Status.PENDING and hit.relevance >= STRONG for hit in hits)

    def _dated(self, context: SearchContext, period: TimeWords) -> list[RankedMemory]:
        """Return what happened in a period, which is all that the query asks for, then what names a day in it.

        Where there is neither, what is found whatever the time.
        """
        limit = context.request.limit
        hits = self._rank(context.within(period))
        if len(hits) == limit:
            return hits
        anytime, shown = self._rank(context), {hit.memory.id for hit in hits}
        naming = [hit for hit in anytime if hit.memory.id not in shown and names_day_in(hit.memory, period)]
        if anytime and not (hits or naming):
            context.notes[other_times(period)] = False
        return [*hits, *naming][:limit] or anytime

    def _inside(self, context: SearchContext, period: TimeWords) -> list[RankedMemory]:
        """Return what lies in a period that filters; where nothing there is strong, what is strong outside joins.

        Of a small period all is shown then: "why did we roll back on Thursday" may be answered by what that day holds,
        in words that are not the question's.
        """
        limit = context.request.limit
        hits = self._rank(context.within(period))
        if not period.rest or any(hit.relevance >= STRONG for hit in hits):
            return hits
        if period.end - period.start <= SMALL_PERIOD:
            hits = self._all_within(context, period, min(limit, SMALL_PERIOD_HOLDS))
        shown = {hit.memory.id for hit in hits}
        # Whatever the time; a text may use the very words that name it ("last summer").
        anytime = self.prepare(context.actor, context.request, context.now, context.notes, None)
        outside = self._rank(anytime) or self._rank(replace(context, period=None))
        outside = [hit for hit in outside if hit.memory.id not in shown]
        strong = [hit for hit in outside if hit.relevance >= STRONG]
        if strong or not hits:
            context.notes[other_times(period, inside=bool(hits), outside=bool(outside))] = False
        return [*hits, *strong][:limit] if hits else outside

    def _all_within(self, context: SearchContext, period: TimeWords, limit: int) -> list[RankedMemory]:
        """Return what lies in a period, strong or not; all of it where nothing in it is found by the query."""
        everything = replace(context, request=replace(context.request, weak=limit, limit=limit))
        hits = self._rank(everything.within(period))
        hits = hits or as_weak(self._rank(everything.within(replace(period, rest=False))))
        if hits:
            context.notes[nothing_similar(period)] = False
        return hits

    def _following(self, context: SearchContext, hits: list[RankedMemory]) -> list[RankedMemory]:
        """Return the hits, joined by what is strong where the query is read after what was said before it."""
        request = replace(context.request, query=f"{context.request.before}\n{context.request.query}", weak=0)
        both = self.prepare(context.actor, request, context.now, context.notes, context.period)
        joined = behind_the_best(hits, [hit for hit in self._rank(both) if hit.relevance >= STRONG])
        if joined != hits:
            context.notes[FOLLOWS] = False
        return joined[: context.request.limit]

    def prepare(
        self,
        actor: Actor,
        request: SearchRequest,
        now: datetime,
        notes: Notes,
        period: TimeWords | None,
        *,
        meanwhile: Meanwhile | None = None,
    ) -> SearchContext:
        """Return the search for this period, its query embedded. meanwhile: as of `search`."""
        end = None if period is not None and period.is_hard else end_asked(request.query).end
        text = end_asked(words_of(request, period)).rest if end else words_of(request, period)

        def complete(query: PreparedQuery) -> PreparedQuery:
            wanted = self._tags.wanted(query.terms, audiences_of(actor.scope))
            layer = None if request.layers else preferred_layer(text)
            with self.index.lock:
                mirror = self.index.mirror
                words = mirror.words(query.term_ids, query.project, query.abroad)
                precomputed = PrecomputedWords(mirror, mirror.changes, words)
            if meanwhile is not None:
                meanwhile()
            return replace(query, tags=wanted, layer=layer, end=end, precomputed=precomputed)

        query, note = prepared_query(
            self.index.query_embedder,
            text,
            project=f"{actor.scope.account}|{actor.scope.project}",
            topic=request.topic,
            share=self.options.lens,
            complete=complete,
        )
        if note:
            notes[note] = bool(self.index.query_embedder.embedders)  # without any, words alone are all there is
        return SearchContext(actor, request, query, now, period, notes)

    def _rank(self, context: SearchContext) -> list[RankedMemory]:
        """Return the memories of an answer in their order: the one place where it is decided.

        By score, strong before weak; the newest of a kind first where that is asked for, and all of a period newest
        first where everything in it is. Memories are read, their priors added; `ORDER` does the rest.
        """
        scored, rows = self.scores(context)
        if scored is None or not len(rows):
            return []
        request, query = context.request, context.query
        if context.lists_period:
            scored = scoring.by_time(scored, events=scored.mirror.within(scored.rows, Layer.EVENT_LOG.value))
        elif query.end is not None:
            scored = self._newest_of_kind(scored, query, horizon(context.now).timestamp())
        if not (request.weak or phrases(request.query) or (scored.relevance >= STRONG).any()):
            return []  # before anything is read: nothing weak is asked for
        seen = Ordering(
            request,
            context.notes,
            0.0 if query.end is not None else self.options.weights.newer,
            # Under a filter the events of a summary may have been left out, not missed.
            scored.mirror.points if request.is_unfiltered and context.period is None else (),
            self._reranker,
            partial(self._other_sides, context),
            self.options.weights.rerank,
            self._rerank_deadline_s,
        )
        order = scored.best_first()
        if phrases(request.query):
            ranked = self._fold(self._quoted(context, scored, order), scored, seen, query.using)
        else:
            read: list[RankedMemory] = []
            ranked, page = [], request.limit + SPARE
            # Folding leaves fewer: read on until there are as many as asked for.
            while len(order) and len(linked.answer_places(ranked)) < request.limit:
                read += self._read(context, scored, order[:page])
                ranked = self._fold(sorted(read, key=rank_key), scored, seen, query.using)
                order, page = order[page:], 2 * page
        for step in ORDER[len(FOLDING) :]:
            ranked = step(ranked, seen)
        return ranked

    def scores(self, context: SearchContext, also: Memory | None = None) -> tuple[Scored | None, NDArray[np.int64]]:
        """Return the scores of what is found by meaning or by words, every filter applied, and the rows found.

        also: a memory that is scored whether it is found or not. Scores None: nothing to score. A row's place and its
        words are taken under one lock, or a write between them would give rows that the words do not know.
        """
        mirror = self.index.filled({also.point_id: also.layer.value} if also is not None else {})
        if not context.lists_period and self.index.finds(context.request):
            asked = candidates.asked_of_index(self.index, context)
            with self.index.lock:
                if mirror.is_whole:
                    return self._score(context, mirror, asked, also)
        query, vector = context.query, context.query.row
        with self.index.lock:
            centring = mirror.centring(query.using)
            if vector is not None and centring is not None:
                # Less its mean: the engine's raw cosine then orders almost as the centred one does.
                vector = centring.query(vector, query.script)
        points = candidates.from_store(self._store, context, vector)
        self.index.filled(points, mirror)
        with self.index.lock:
            return self._score(context, mirror, list(points), also)

    def _score(
        self, context: SearchContext, mirror: Mirror, found_by: Sequence[str] | candidates.Asked, also: Memory | None
    ) -> tuple[Scored | None, NDArray[np.int64]]:
        """Return what `scores` does. found_by: points that the engine found, or what the mirror, locked, finds by."""
        query, precomputed = context.query, context.query.precomputed
        if precomputed is not None and precomputed.mirror is mirror and precomputed.changes == mirror.changes:
            words = precomputed.words
        else:
            words = mirror.words(query.term_ids, query.project, query.abroad)
        if isinstance(found_by, Mapping):
            found = candidates.from_mirror(mirror, context, words, found_by)
        else:
            found = np.sort(mirror.rows(found_by))
        rows = found if also is None else np.union1d(found, mirror.rows([also.point_id]))
        if not len(rows):
            return None, found
        options = self.options
        with_conversations = options.conversation and context.request.as_of is None
        readers = audiences_of(context.actor.scope) if with_conversations else None
        scored = scoring.score(
            mirror, query, rows, words, weights=options.weights, readers=readers, period=context.period
        )
        return scored, found

    def _newest_of_kind(self, scored: Scored, query: PreparedQuery, ahead: float) -> Scored:
        assert query.end is not None  # noqa: S101 - the caller looked
        chosen = scored.best_first()[: scoring.KINDRED]
        mirror, rows, using = scored.mirror, scored.rows[chosen], query.using
        with self.index.lock:
            cosines, embedded = mirror.pairwise_cosines(rows, using=using), mirror.embedded(rows, using=using)
        if not embedded.all():  # what was just logged is compared by its words
            points = mirror.points.texts(rows)
            memories = self.index.memories(mirror, points)
            texts = [memories[point].content if point in memories else "" for point in points]
            cosines = scoring.with_word_similarity(cosines, embedded, texts)
        return scoring.newest_of_kind_first(scored, query.end, cosines, chosen, ahead)

    def _read(self, context: SearchContext, scored: Scored, order: NDArray[np.int64]) -> list[RankedMemory]:
        """Return the memories of an order, priors added, in their new order."""
        request, options = context.request, self.options
        places = [int(place) for place in order]
        points = [scored.mirror.points[int(scored.rows[place])] for place in places]
        memories = self.index.memories(scored.mirror, points)
        signals = scoring.signals(scored, places, options.weights) if request.detail else {}
        lens: dict[str, Json] = (
            {"lens": {"topic": request.topic, "weight": options.lens}} if options.lens and request.topic else {}
        )
        weight = options.weights.prior if options.priors else 0.0
        ranked = []
        for place, point in zip(places, points, strict=True):
            memory = memories.get(point)
            if memory is None or not admits(context.actor, request, memory, now=context.now):
                continue
            strength = GREATEST
            if request.counts_age:
                strength = strength_of(memory, context.now, self.activation, with_noise=False)
            bonus = weight * prior(memory, counts_use=request.counts_use, strength=strength) if weight else 0.0
            explained = {**signals[place], "prior": round(bonus, 4), **lens} if request.detail else {}
            score, relevance = float(scored.total[place]) + bonus, float(scored.relevance[place])
            ranked.append(RankedMemory(memory, score, place, explained, relevance=relevance))
        return sorted(ranked, key=rank_key)

    def _quoted(self, context: SearchContext, scored: Scored, order: NDArray[np.int64]) -> list[RankedMemory]:
        """Return those that hold every quoted phrase, read page by page until there are some.

        Where none does and the query asks about the phrase, the best of all stand in and a note says so.
        """
        query, wanted = context.request.query, phrases(context.request.query)
        read: list[RankedMemory] = []
        for start in range(0, len(order), PHRASE_PAGE):
            read += self._read(context, scored, order[start : start + PHRASE_PAGE])
            if hits := holding_phrases(read, query, wanted):
                return hits
        few = f"None of the {len(order)} likeliest memories holds the quoted words."
        context.notes["No memory holds the quoted words." if len(order) < candidates.QUOTED else few] = False
        return read[:PHRASE_PAGE] if asks_about(query, wanted) else []

    def _fold(self, ranked: list[RankedMemory], scored: Scored, seen: Ordering, using: str) -> list[RankedMemory]:
        """Return the list after the steps that need to know which memories say nearly the same."""
        if not self.options.fold or len(ranked) < 2:
            return ranked
        places = [hit.place for hit in ranked]
        with self.index.lock:
            cosines = scored.mirror.pairwise_cosines(scored.rows[places], using=using)
        pairs = zip(*np.nonzero(np.triu(cosines >= SAME_THING, 1)), strict=True)
        similar = {(places[first], places[second]): float(cosines[first, second]) for first, second in pairs}
        seen = replace(seen, similar=similar)
        for step in FOLDING:
            ranked = step(ranked, seen)
        return ranked

    def _other_sides(
        self, context: SearchContext, hit: RankedMemory, known: Mapping[str, RankedMemory], shown: Collection[str]
    ) -> list[RankedMemory]:
        """Return what disputes a memory and was not shown yet, from the ranking or the store."""
        wanted = [other for other in hit.memory.disputes if other not in shown]
        sides = [known[other] for other in wanted if other in known]
        if missing := tuple(other for other in wanted if other not in known):
            where = where_of(context.actor, context.request, hit.memory.layer).and_(OneOf("id", missing))
            others = self._store.find(hit.memory.layer.value, where, limit=len(missing))
            sides += [replace(hit, memory=other, siblings=()) for other in others if context.admits(other)]
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
        answer, _ = self._answer(actor, request, now, notes)
        context = self.prepare(actor, request, now, notes, period_of(actor, request, now))
        period = context.period
        scored, found = self.scores(context, also=memory)
        assert scored is not None  # noqa: S101 - this memory is in it
        row = int(scored.mirror.rows([memory.point_id])[0])
        place = int(np.flatnonzero(scored.rows == row)[0])
        signals = scoring.signals(scored, [place], self.options.weights)[place]
        if rank := _rank_in(answer, memory.id):
            return {"found": True, "reason": "it is among the answers", "rank": rank, "signals": signals}
        # What the same search would show with room for all: what comes before it there is what comes before it.
        everything, _ = self._answer(actor, replace(request, limit=request.limit + len(scored.rows)), now, {})
        rank = _rank_in(everything, memory.id)
        citing = (
            snippet.id
            for snippet in everything.snippets
            if any(cited.ref.partition("@")[0] == memory.id for cited in snippet.citations)
        )
        if rank > request.limit:
            reason = f"{rank - 1} others rank above it and {request.limit} are shown"
        elif rank:
            reason = "the other side of a disputed memory takes its place"
        elif same := next(citing, ""):
            reason = f"it says the same as {same}, which cites it"
        elif (
            period is not None and is_outside(actor, request, memory, period, now) and other_times(period) not in notes
        ):
            reason = f"it lies outside of {period.text!r}, which the query names"
        elif not all(holds(phrase_text(memory), phrase) for phrase in phrases(request.query)):
            reason = "it does not hold the quoted words"
        elif row not in found and self._is_crowded_out(actor, scored.mirror, row, memory):
            reason = f"the newest {ROWS_OF_A_TEXT} that say the very same stand for it"
        elif row not in found:
            reason = f"neither meaning nor words bring it among the first {candidates.CANDIDATES}"
        else:
            reason = f"it is weak, and no more than {request.weak} weak ones are shown"
        rank = rank or 1 + int((scored.total > scored.total[place]).sum())
        return {"found": False, "reason": reason, "rank": rank, "signals": signals}

    def _is_crowded_out(self, actor: Actor, mirror: Mirror, row: int, memory: Memory) -> bool:
        with self.index.lock:
            return mirror.is_whole and row not in mirror.readable_in(memory.layer.value, candidates.audience_key(actor))

    # --- similar memories ------------------------------------------------------------------------------------------

    def similar(self, actor: Actor, text: str, *, layer: Layer, limit: int) -> list[tuple[Memory, float]]:
        """Return the readable memories of a layer nearest to `text` as a memory, with their centred cosine, best first.

        From 0.30 on they are related, from 0.55 on they may be the same fact (docs/retrieval.md). Pending ones too.
        Without an embedder what shares its words. Raises Unavailable: no embedder can run now.
        """
        vector = self.index.query_embedder.embed_document(text)
        if vector is None:
            return candidates.similar_by_words(self._store, actor, text, layer, limit=limit)
        using, row = vector
        request = SearchRequest(query=text, layers=(layer,), include_pending=True)
        collection, where = layer.value, where_of(actor, request, layer)
        hits = self._store.nearest(collection, row, where, limit=BEFORE_SIMILAR * limit, using=using)
        points = [hit.point_id for hit in hits]
        near = self.index.cosines(points, row, script_of(text), using=using, collection=collection)[:limit]
        entries = self._store.get(collection, [point for point, _ in near])
        memories, now = {entry.memory.point_id: entry.memory for entry in entries}, self.clock.now()
        return [
            (memories[point], cosine)
            for point, cosine in near
            if point in memories and admits(actor, request, memories[point], now=now)
        ]

    def alike(self, memories: Sequence[Memory]) -> NDArray[np.float32]:
        """Return the (n, n) centred cosines among stored versions, in their order; 0 where one is not embedded."""
        points = [memory.point_id for memory in memories]
        mirror = self.index.filled({memory.point_id: memory.layer.value for memory in memories})
        using = DENSE_LOCAL if DENSE_LOCAL in self.index.query_embedder.embedders else DENSE
        found = np.zeros((len(points), len(points)), np.float32)
        with self.index.lock:
            known = [at for at, point in enumerate(points) if point in mirror.points]
            rows = mirror.rows([points[at] for at in known])
            found[np.ix_(known, known)] = mirror.pairwise_cosines(rows, using=using)
        return found


def _rank_in(answer: SearchAnswer, memory_id: str) -> int:
    """Return the place of a memory in an answer, from 1; 0 where it is not there."""
    return next((rank for rank, one in enumerate(answer.snippets, 1) if one.id == memory_id), 0)
