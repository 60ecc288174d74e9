"""Memories recalled without a question: those that decide a prompt, and those that name a file or a command.

They use the parts of `Searcher` in another way. Which memories a prompt should recall is for a small model of its own
(`moments.npz`), since a prompt is no question: "Ship it tomorrow, the tests are green" and "no releases on Fridays"
share neither words nor a question's shape. Three things matter: whether the prompt needs to know anything of this
project at all (read from its vector: small talk, general knowledge and small edits do not), how near a memory is once
the direction that all prompts share is taken off (first among 240 memories for 42 % instead of 21 % of our English
prompts), and how far it is above the store's own level. The numbers (3 KB) are made by scripts/train_moments.py;
docs/retrieval.md has what they score.

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

from memory_anchor.base.hashing import stable_hash
from memory_anchor.domain.model import Actor, Memory, RetrievedSnippet
from memory_anchor.language.indexing import phrase_text
from memory_anchor.language.terms import normal, term_id
from memory_anchor.recall import ranking
from memory_anchor.recall.centring import script_of
from memory_anchor.recall.relevance import spread_of
from memory_anchor.recall.request import SearchRequest, admits
from memory_anchor.recall.scoring import PreparedQuery, Scored
from memory_anchor.recall.search_context import SearchContext
from memory_anchor.recall.snippets import RankedMemory, snippet

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.domain.ports import EmbedderIdentity, Matrix
    from memory_anchor.recall.relevance import Evidence
    from memory_anchor.recall.search import Searcher

    Numbers = NDArray[np.float32]

NUMBERS = Path(__file__).with_name("moments.npz")
BAR, SURE = 0.01, 0.2
"""How likely a memory must be to decide a prompt that surely needs to know anything of the project, and one that does
not seem to. The first is low, since whatever such a prompt is about, knowing a rule too many costs a line."""
DOUBTED, NEEDED = -0.5, 1.5
"""Log-odds of needing any memory up to which `SURE` holds, and from which `BAR` does; between, the bar falls evenly."""
BELOW_BEST = 0.1
"""Share of the likeliest one's chance that another must have."""
BACKGROUND = slice(5, 40)
"""By falling cosine, the memories taken for the store's own level."""
FORM_PARTS = 7
"""The last parts of a path, by which a memory may name it."""


@cache
def _numbers() -> dict[str, Numbers]:
    with np.load(NUMBERS) as stored:
        return {name: stored[name].astype(np.float32) for name in stored.files}


def is_known(identity: EmbedderIdentity) -> bool:
    """Return whether the numbers were learned with this embedder's vectors."""
    numbers = _numbers()
    is_model = bool(numbers["model"].view(np.uint32)[0] == _mark(identity))
    return is_model and identity.dimensions == numbers["prompts"].shape[1]


def _mark(identity: EmbedderIdentity) -> int:
    return int(stable_hash(identity.model)[:8], 16)


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


def features(evidence: Evidence, needs: float) -> Numbers:
    """Return (n, 14) features of the memories that a prompt may recall, a constant first."""
    count = len(evidence.cosines)
    near, share, level, best, most, few = spread_of(evidence, BACKGROUND)

    def constant(value: float) -> Numbers:
        return np.full(count, value, dtype=np.float32)

    both = (
        constant(1),
        near,
        near - level,
        near - best,
        share,
        share - most,
        near * share,
        share * few,
        constant(evidence.coverage),
        constant(few),
        constant(np.clip(needs, -4, 4)),
        (near - level) * np.float32(np.clip(needs, -4, 4)),
        evidence.same_script.astype(np.float32),
        constant(best - level),
    )
    return np.stack(both, axis=1).astype(np.float32)


def bar_of(chances: Numbers, needs: float) -> float:
    """Return how likely a memory must be to be recalled. needs: log-odds that the prompt needs any."""
    doubt = min(max((NEEDED - needs) / (NEEDED - DOUBTED), 0.0), 1.0)
    return max(float(BAR * (SURE / BAR) ** doubt), BELOW_BEST * float(chances.max(initial=0.0)))


def probabilities(evidence: Evidence, needs: float) -> Numbers:
    """Return how likely each memory decides what the prompt asks for, 0 to 1."""
    if not len(evidence.cosines):
        return np.zeros(0, dtype=np.float32)
    return ranking.sigmoid(features(evidence, needs) @ _numbers()["pair"])


def name_pattern(names: Sequence[str]) -> re.Pattern[str] | None:
    """Return a pattern of any of these names as words of normalised text, None for no names."""
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


def score_prompt(searcher: Searcher, actor: Actor, prompt: str) -> tuple[Scored, float] | None:
    """Return the candidates of a prompt, scored, and the log-odds that it needs any memory; None for nothing.

    The direction that prompts share is taken off its row. None too where the numbers fit no embedder.
    """
    script, embedded = script_of(prompt), searcher.index.query_embedder.embed_query(prompt, fits=is_known)
    if embedded.row is None:
        return None
    searcher.index.embed_last_writes()
    centring = searcher.index.centring(embedded.using)
    if centring is None:
        return None
    own = prompt_row(embedded.row, script, centring.means())
    question = PreparedQuery.of(prompt, project=f"{actor.scope.account}|{actor.scope.project}")
    question = replace(question, row=own.row, using=embedded.using)
    scored, _ = searcher.scores(SearchContext(actor, SearchRequest(prompt), question, searcher.clock.now(), None, {}))
    return (scored, own.needs) if scored is not None else None


@dataclass(frozen=True, slots=True)
class PromptRecall:
    """The memories that decide a prompt, the likeliest first. needs: log-odds that it needs any."""

    snippets: tuple[RetrievedSnippet, ...]
    needs: float


def recall_for_prompt(searcher: Searcher, actor: Actor, request: SearchRequest) -> PromptRecall | None:
    """Return the memories that decide what a prompt asks for; None as of `score_prompt`.

    request: the prompt, and how many at most.
    """
    result = score_prompt(searcher, actor, request.query)
    if result is None:
        return None
    scored, needs = result
    chances, now = probabilities(scored.evidence, needs), searcher.clock.now()
    likely = np.argsort(-chances, kind="stable")[: request.limit + SPARE]
    bar = bar_of(chances, needs)
    places = [int(place) for place in likely if chances[place] >= bar]
    points = [scored.mirror.points[int(scored.rows[place])] for place in places]
    memories = searcher.index.memories(scored.mirror, points)
    ranked = [
        RankedMemory(memories[point], float(chances[place]), place, relevance=float(chances[place]))
        for place, point in zip(places, points, strict=True)
        if point in memories and admits(actor, request, memories[point], now=now)
    ]
    to_snippet = partial(snippet, reader=actor.scope, now=now, detail=False, activation=searcher.activation)
    snippets = (to_snippet(hit, before="") for hit in ranked[: request.limit])
    return PromptRecall(tuple(replace(snippet, weak=False) for snippet in snippets), needs)


def mentioning(searcher: Searcher, actor: Actor, names: Sequence[str], *, limit: int) -> list[Memory]:
    """Return current memories that hold one of these names (`forms_of`), those with most of their words first; no
    embedding."""
    pattern = name_pattern(names)
    if pattern is None:
        return []
    project = f"{actor.scope.account}|{actor.scope.project}"
    result = sharing_words(searcher, actor, PreparedQuery.of(" ".join(names), project=project), most=NAMED_READ)
    if result is None:
        return []
    return [memory for memory in result[1] if pattern.search(phrase_text(memory))][:limit]


def sharing_terms(searcher: Searcher, actor: Actor, words: Sequence[str], *, most: int) -> list[Memory]:
    """Return the current memories that share most of these terms; no embedding."""
    result = sharing_words(searcher, actor, of_terms(actor, words), most=most)
    return [] if result is None else result[1]


def cosines_with(searcher: Searcher, text: str, memories: Sequence[Memory]) -> list[float]:
    """Return the centred cosine of a text with each of these memories, 0 where one has no vector; one embedding."""
    embedded = searcher.index.query_embedder.embed_query(text, fits=is_known)
    if embedded.row is None or not memories:
        return [0.0] * len(memories)
    mirror = searcher.index.filled({memory.point_id: memory.layer.value for memory in memories})
    with searcher.index.lock:
        rows = mirror.rows([memory.point_id for memory in memories])
        if len(rows) < len(memories):
            return [0.0] * len(memories)
        cosines = mirror.cosines(embedded.row, script_of(text), rows, using=embedded.using)
    return [float(cosine) for cosine in np.nan_to_num(cosines)]


def of_terms(actor: Actor, words: Sequence[str]) -> PreparedQuery:
    """Return the question that these terms are, without a row."""
    text, project = " ".join(words), f"{actor.scope.account}|{actor.scope.project}"
    return PreparedQuery(text, script_of(text), tuple(words), tuple(map(term_id, words)), project)


def sharing_words(
    searcher: Searcher, actor: Actor, question: PreparedQuery, *, most: int
) -> tuple[Scored, list[Memory]] | None:
    """Return what shares words with a question, scored, and of those that share most what the caller may read; None
    for nothing."""
    request, now = SearchRequest(question.text), searcher.clock.now()
    searcher.index.embed_last_writes()
    scored, _ = searcher.scores(SearchContext(actor, request, question, now, None, {}))
    if scored is None:
        return None
    order = np.argsort(-scored.share, kind="stable")[:most]
    points = [scored.mirror.points[int(scored.rows[place])] for place in order if scored.share[place] > 0]
    memories = searcher.index.memories(scored.mirror, points)
    found = (memories[point] for point in points if point in memories)
    return scored, [memory for memory in found if admits(actor, request, memory, now=now)]
