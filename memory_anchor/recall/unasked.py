"""What nobody asked for: memories that decide a prompt, and those that name a file, an identifier or a command.

Beside `Searcher`, whose parts these put together in another way; `moments` judges what they find.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.language.indexing import phrase_text
from memory_anchor.model import Actor, Memory, RetrievedSnippet
from memory_anchor.recall import moments
from memory_anchor.recall.assembling import Ranked, snippet
from memory_anchor.recall.centring import script_of
from memory_anchor.recall.inquiry import Inquiry
from memory_anchor.recall.request import SearchRequest, admits
from memory_anchor.recall.scoring import PreparedQuery, Scored

if TYPE_CHECKING:
    from memory_anchor.recall.search import Searcher

SPARE = 4
"""Memories read beyond the limit, for the last check."""
NAMED_READ = 24
"""Memories read to see which of them hold a name."""


def weighed(searcher: Searcher, actor: Actor, prompt: str) -> tuple[Scored, float] | None:
    """Return what a prompt comes near, scored, and the log-odds that it needs any memory; None for nothing.

    The direction that prompts share is taken off its row (`moments`). None too where no such numbers fit.
    """
    script, meant = script_of(prompt), searcher.meaning.asked(prompt)
    if meant.row is None or not moments.is_known(searcher.meaning.identities[meant.using]):
        return None
    searcher.drain()
    centring = searcher.centring(meant.using)
    if centring is None:
        return None
    own = moments.prompt_row(meant.row, script, centring.means())
    question = PreparedQuery.of(prompt, script=script, project=f"{actor.scope.account}|{actor.scope.project}")
    question = replace(question, row=own.row, using=meant.using)
    scored, _ = searcher.scores(Inquiry(actor, SearchRequest(prompt), question, searcher.clock.now(), None, {}))
    return (scored, own.needs) if scored is not None else None


def brought_up(searcher: Searcher, actor: Actor, request: SearchRequest) -> list[RetrievedSnippet] | None:
    """Return the memories that decide what a prompt asks for, the likeliest first; None as of `weighed`.

    request: the prompt, and how many at most.
    """
    found = weighed(searcher, actor, request.query)
    if found is None:
        return None
    scored, needs = found
    chances, now = moments.judged(scored.seen, needs), searcher.clock.now()
    likely = np.argsort(-chances, kind="stable")[: request.limit + SPARE]
    bar = moments.bar_of(chances, needs)
    places = [int(place) for place in likely if chances[place] >= bar]
    points = [scored.mirror.points[int(scored.rows[place])] for place in places]
    memories = searcher.memories(scored.mirror, points)
    ranked = [
        Ranked(memories[point], float(chances[place]), place, relevance=float(chances[place]))
        for place, point in zip(places, points, strict=True)
        if point in memories and admits(actor, request, memories[point], now=now)
    ]
    shaped = partial(snippet, reader=actor.scope, now=now, detail=False, activation=searcher.activation)
    told = [shaped(one, before="") for one in ranked[: request.limit]]
    return [replace(one, weak=False) for one in told]


def naming(searcher: Searcher, actor: Actor, names: Sequence[str], *, limit: int) -> list[Memory]:
    """Return current memories that hold one of these names, those with most of their words first; no embedding.

    Of a path its file's name and its folders of two parts or more count too ("src/billing" for "src/billing/a.py").
    """
    wanted = moments.named_by(names)
    if wanted is None:
        return []
    request, now = SearchRequest(" ".join(names)), searcher.clock.now()
    searcher.drain()
    project = f"{actor.scope.account}|{actor.scope.project}"
    question = PreparedQuery.of(request.query, script=script_of(request.query), project=project)
    scored, _ = searcher.scores(Inquiry(actor, request, question, now, None, {}))
    if scored is None:
        return []
    order = np.argsort(-scored.share, kind="stable")[:NAMED_READ]
    points = [scored.mirror.points[int(scored.rows[place])] for place in order if scored.share[place] > 0]
    memories = searcher.memories(scored.mirror, points)
    found = [memories[point] for point in points if point in memories]
    held = [one for one in found if wanted.search(phrase_text(one))]
    return [one for one in held if admits(actor, request, one, now=now)][:limit]
