"""What nobody asked for: memories that decide a prompt, and those that name a file, an identifier or a command.

Beside `Searcher`, whose parts these put together in another way; a model (`moments.npz`) judges what they find.

Which memories a prompt should bring up unasked: a small model of its own, since a prompt is no question.

"Ship it tomorrow, the tests are green" and "no releases on Fridays" share neither words nor a question's shape. Three
things tell: whether the prompt needs to know anything of this project at all (read from its vector: small talk, general
knowledge and small edits do not), how near a memory is once the direction that all prompts share is taken off (first
among 240 memories for 42 % instead of 21 % of our English prompts), and how far it stands above the store's own level.
The numbers (3 KB) are made by scripts/train_moments.py; docs/retrieval.md has what they score.

Rejected: the relevance of a search (a question's answer), one bar for the cosine (each store has its own level), and a
learned map from prompts to memories (fewer right than without it, on the pairs we have).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.hashing import stable_hash
from memory_anchor.language.indexing import phrase_text
from memory_anchor.language.terms import normal
from memory_anchor.model import Actor, Memory, RetrievedSnippet
from memory_anchor.recall import ranking
from memory_anchor.recall.centring import script_of
from memory_anchor.recall.relevance import spread_of
from memory_anchor.recall.request import SearchRequest, admits
from memory_anchor.recall.scoring import PreparedQuery, Scored
from memory_anchor.recall.search_context import SearchContext
from memory_anchor.recall.snippets import RankedMemory, snippet

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.ports import EmbedderIdentity, Matrix
    from memory_anchor.recall.relevance import Evidence
    from memory_anchor.recall.search import Searcher

    Numbers = NDArray[np.float32]

NUMBERS = Path(__file__).with_name("moments.npz")
BAR, SURE = 0.01, 0.2
"""How likely a memory must be to decide a prompt: one that surely needs to know anything of the project, and one that
does not seem to. The first is low, since whatever such a prompt is about, knowing a rule too many costs a line."""
DOUBTED, NEEDED = -0.5, 1.5
"""Log-odds of needing any memory up to which `SURE` holds, and from which `BAR` does; between, the bar falls evenly."""
BELOW_BEST = 0.1
"""Share of the likeliest one's chance that another must have beside it."""
BACKGROUND = slice(5, 40)
"""By falling cosine, the memories that stand for the store's own level."""
FORM_PARTS = 7
"""The last parts of a path, by which a memory may name it."""


@cache
def _numbers() -> dict[str, Numbers]:
    with np.load(NUMBERS) as stored:
        return {name: stored[name].astype(np.float32) for name in stored.files}


def is_known(identity: EmbedderIdentity) -> bool:
    """Return whether the numbers were learned with this embedder's vectors."""
    return bool(_numbers()["model"].view(np.uint32)[0] == _mark(identity)) and identity.dimensions == _width()


def _mark(identity: EmbedderIdentity) -> int:
    return int(stable_hash(identity.model)[:8], 16)


def _width() -> int:
    return int(_numbers()["prompts"].shape[1])


@dataclass(frozen=True, slots=True)
class PromptRow:
    """A prompt's row less what all prompts share, as a search takes it; needs: log-odds that it needs any memory."""

    row: Matrix
    needs: float


def prompt_row(row: Matrix, script: int, means: Numbers) -> PromptRow:
    """Return what a prompt's raw query row says. means: (scripts, dimensions) that a search takes off queries."""
    numbers = _numbers()
    own = row - numbers["prompts"][script]
    unit = own / max(float(np.linalg.norm(own)), 1e-9)
    needs = float(unit @ numbers["needs"] + numbers["bias"][script])
    return PromptRow(own + means[script], needs)


def figures(seen: Evidence, needs: float) -> Numbers:
    """Return (n, 14) figures of the memories that a prompt may bring up, a constant first."""
    count = len(seen.cosines)
    near, share, level, best, most, few = spread_of(seen, BACKGROUND)

    def whole(value: float) -> Numbers:
        return np.full(count, value, dtype=np.float32)

    both = (
        whole(1),
        near,
        near - level,
        near - best,
        share,
        share - most,
        near * share,
        share * few,
        whole(seen.coverage),
        whole(few),
        whole(np.clip(needs, -4, 4)),
        (near - level) * np.float32(np.clip(needs, -4, 4)),
        seen.same_script.astype(np.float32),
        whole(best - level),
    )
    return np.stack(both, axis=1).astype(np.float32)


def bar_of(chances: Numbers, needs: float) -> float:
    """Return how likely a memory must be to be brought up. needs: log-odds that the prompt needs any."""
    doubt = min(max((NEEDED - needs) / (NEEDED - DOUBTED), 0.0), 1.0)
    return max(float(BAR * (SURE / BAR) ** doubt), BELOW_BEST * float(chances.max(initial=0.0)))


def judged(seen: Evidence, needs: float) -> Numbers:
    """Return how likely each memory decides what the prompt asks for, 0 to 1."""
    if not len(seen.cosines):
        return np.zeros(0, dtype=np.float32)
    logit = figures(seen, needs) @ _numbers()["pair"]
    return ranking.sigmoid(logit)


def named_by(names: Sequence[str]) -> re.Pattern[str] | None:
    """Return what finds any of these names in normalised text as words of their own, None for no names."""
    forms = {normal(form) for name in names for form in forms_of(name)}
    if not forms:
        return None
    return re.compile("|".join(rf"(?<![a-z0-9_]){re.escape(form)}(?![a-z0-9_])" for form in sorted(forms)))


def forms_of(name: str) -> list[str]:
    """Return how a memory may name this: itself, and of a path its file's name and its folders of two parts or more.

    >>> forms_of("src/billing/round.py")
    ['src/billing/round.py', 'billing/round.py', 'round.py', 'src/billing']
    """
    parts = [part for part in name.split("/") if part not in ("", ".", "..")][-FORM_PARTS:]
    if len(parts) < 2:
        return [name] if name.strip() else []
    ends = ["/".join(parts[start:]) for start in range(len(parts) - 1)]
    file = [parts[-1]] if "." in parts[-1] else []
    folders = ["/".join(parts[start:end]) for end in range(len(parts) - 1, 1, -1) for start in range(end - 1)]
    return list(dict.fromkeys([*ends, *file, *folders]))


SPARE = 4
"""Memories read beyond the limit, for the last check."""
NAMED_READ = 24
"""Memories read to see which of them hold a name."""


def weighed(searcher: Searcher, actor: Actor, prompt: str) -> tuple[Scored, float] | None:
    """Return what a prompt comes near, scored, and the log-odds that it needs any memory; None for nothing.

    The direction that prompts share is taken off its row. None too where no such numbers fit.
    """
    script, meant = script_of(prompt), searcher.query_embedder.asked(prompt, fits=is_known)
    if meant.row is None:
        return None
    searcher.drain()
    centring = searcher.centring(meant.using)
    if centring is None:
        return None
    own = prompt_row(meant.row, script, centring.means())
    question = PreparedQuery.of(prompt, project=f"{actor.scope.account}|{actor.scope.project}")
    question = replace(question, row=own.row, using=meant.using)
    scored, _ = searcher.scores(SearchContext(actor, SearchRequest(prompt), question, searcher.clock.now(), None, {}))
    return (scored, own.needs) if scored is not None else None


@dataclass(frozen=True, slots=True)
class PromptRecall:
    """What decides a prompt, the likeliest first. needs: log-odds that the prompt needs to know anything at all."""

    snippets: tuple[RetrievedSnippet, ...]
    needs: float


def brought_up(searcher: Searcher, actor: Actor, request: SearchRequest) -> PromptRecall | None:
    """Return the memories that decide what a prompt asks for; None as of `weighed`.

    request: the prompt, and how many at most.
    """
    found = weighed(searcher, actor, request.query)
    if found is None:
        return None
    scored, needs = found
    chances, now = judged(scored.seen, needs), searcher.clock.now()
    likely = np.argsort(-chances, kind="stable")[: request.limit + SPARE]
    bar = bar_of(chances, needs)
    places = [int(place) for place in likely if chances[place] >= bar]
    points = [scored.mirror.points[int(scored.rows[place])] for place in places]
    memories = searcher.memories(scored.mirror, points)
    ranked = [
        RankedMemory(memories[point], float(chances[place]), place, relevance=float(chances[place]))
        for place, point in zip(places, points, strict=True)
        if point in memories and admits(actor, request, memories[point], now=now)
    ]
    shaped = partial(snippet, reader=actor.scope, now=now, detail=False, activation=searcher.activation)
    told = [shaped(one, before="") for one in ranked[: request.limit]]
    return PromptRecall(tuple(replace(one, weak=False) for one in told), needs)


def naming(searcher: Searcher, actor: Actor, names: Sequence[str], *, limit: int) -> list[Memory]:
    """Return current memories that hold one of these names, those with most of their words first; no embedding.

    Of a path its file's name and its folders of two parts or more count too ("src/billing" for "src/billing/a.py").
    """
    wanted = named_by(names)
    if wanted is None:
        return []
    project = f"{actor.scope.account}|{actor.scope.project}"
    found = holding_most(searcher, actor, PreparedQuery.of(" ".join(names), project=project), most=NAMED_READ)
    return [one for one in found[1] if wanted.search(phrase_text(one))][:limit] if found is not None else []


def holding_most(
    searcher: Searcher, actor: Actor, question: PreparedQuery, *, most: int
) -> tuple[Scored, list[Memory]] | None:
    """Return what shares words with a question, scored, and of those that share most what the caller may read; None
    for nothing."""
    request, now = SearchRequest(question.text), searcher.clock.now()
    searcher.drain()
    scored, _ = searcher.scores(SearchContext(actor, request, question, now, None, {}))
    if scored is None:
        return None
    order = np.argsort(-scored.share, kind="stable")[:most]
    points = [scored.mirror.points[int(scored.rows[place])] for place in order if scored.share[place] > 0]
    memories = searcher.memories(scored.mirror, points)
    found = (memories[point] for point in points if point in memories)
    return scored, [one for one in found if admits(actor, request, one, now=now)]
