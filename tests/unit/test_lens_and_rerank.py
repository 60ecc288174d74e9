"""The topic of a conversation, a reranker and the priors of an agent, through the whole memory (strategy section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.front import mcp_answers
from memory_anchor.process.wiring import Core
from memory_anchor.recall.order import LATE
from memory_anchor.settings import Settings
from memory_anchor.testing import HashEmbedder, ManualClock, ephemeral_core
from memory_anchor.use_cases.memory import MemoryAnchor


class Judge:
    """A reranker that prefers texts holding `word`; late when `word` is empty."""

    name = "judge"

    def __init__(self, word: str) -> None:
        self.word = word
        self.deadlines: list[float] = []

    def scores(self, query: str, texts: Sequence[str], *, deadline_s: float) -> list[float] | None:
        self.deadlines.append(deadline_s)
        return [float(self.word in text) for text in texts] if self.word else None


def memory_with(folder: Path, *, reranker: Judge | None = None, clock: ManualClock | None = None, **given: Any) -> Core:
    return ephemeral_core(
        folder,
        settings=Settings.model_validate(given),
        embedder=HashEmbedder(dimensions=256),
        reranker=reranker,
        clock=clock,
    )


def door(core: Core, conversation: str = "c1", agent: str = "codex") -> MemoryAnchor:
    return core.anchor(Actor(Caller.AGENT, Scope(agent=agent, conversation=conversation), client=agent))


def ids(anchor: MemoryAnchor, query: str, **more: Any) -> list[str]:
    return [snippet.id for snippet in anchor.search(query, **more).snippets]


def two_deploys(anchor: MemoryAnchor) -> tuple[str, str]:
    """Save two facts that answer "how is it deployed" equally well; return the website's and the billing's id."""
    website = anchor.save_memory("The deployment of the website runs nightly").id
    billing = anchor.save_memory("The deployment of the billing runs nightly").id
    assert website and billing
    return website, billing


def test_the_conversations_topic_settles_a_near_tie(tmp_path: Path) -> None:
    """Rule lens: with a topic in L1 the memory about it comes first, in that conversation alone; detail shows why."""
    core = memory_with(tmp_path, retrieval={"lens": 0.2})
    told, other = door(core, "told"), door(core, "other")
    website, billing = two_deploys(told)
    plain = ids(other, "when does the deployment run")

    for topic, first in (("the billing", billing), ("the website", website)):
        told.set_active("current_topic", topic)
        snippets = told.search("when does the deployment run", detail=True).snippets
        assert snippets[0].id == first
        assert snippets[0].signals is not None
        assert snippets[0].signals["lens"] == {"topic": topic, "weight": 0.2}
    assert ids(other, "when does the deployment run") == plain


def test_a_topic_counts_without_a_setting(tmp_path: Path) -> None:
    """Rule lens.default: a question that leaves its subject out is read under the topic (docs/retrieval.md)."""
    anchor = door(memory_with(tmp_path))
    website, billing = two_deploys(anchor)

    for topic, first in (("the billing", billing), ("the website", website)):
        anchor.set_active("topic", topic)
        assert ids(anchor, "when does the deployment run")[0] == first


def test_a_topic_never_buries_what_is_asked_for(tmp_path: Path) -> None:
    """Rule lens.small: a memory that answers the question stays before one that only fits the topic."""
    core = memory_with(tmp_path, retrieval={"lens": 0.2})
    anchor = door(core)
    answer = anchor.save_memory("Pull requests need two reviewers before merging").id
    anchor.save_memory("The billing service keeps its invoices for ten years")
    anchor.set_active("topic", "the billing service and its invoices")

    assert ids(anchor, "how many reviewers do pull requests need")[0] == answer


@pytest.mark.parametrize("lens", [0.0, 0.2])
def test_without_a_topic_or_a_weight_nothing_bends(tmp_path: Path, lens: float) -> None:
    """Rule lens.only-when: no topic (or one that is no text), or weight 0: the very same scores, no word in detail."""
    core = memory_with(tmp_path, retrieval={"lens": lens, "cache_ttl_s": 0})
    anchor = door(core)
    two_deploys(anchor)
    before = anchor.search("when does the deployment run", detail=True).snippets
    anchor.set_active("current_topic", {"not": "a text"} if lens else "the billing")

    after = anchor.search("when does the deployment run", detail=True).snippets

    assert [(one.id, one.score) for one in after] == [(one.id, one.score) for one in before]
    assert all(one.signals is not None and "lens" not in one.signals for one in after)


def test_the_reranker_of_the_settings_has_its_say_and_its_deadline(tmp_path: Path) -> None:
    """Rule rerank: its favourite comes first and detail shows what it gave."""
    judge = Judge("billing")
    core = memory_with(tmp_path, reranker=judge, retrieval={"reranker_deadline_s": 0.7, "weights": {"rerank": 0.8}})
    anchor = door(core)
    _, billing = two_deploys(anchor)

    found = anchor.search("when does the deployment run", detail=True)

    assert found.snippets[0].id == billing
    assert found.snippets[0].signals is not None
    assert found.snippets[0].signals["reranker"] == 1.0
    assert judge.deadlines == [0.7]
    assert not found.notes


def test_a_reranker_past_its_deadline_leaves_the_order_and_a_note(tmp_path: Path) -> None:
    """Rule rerank.deadline: never worse off for its absence."""
    late, without = memory_with(tmp_path / "a", reranker=Judge("")), memory_with(tmp_path / "b")
    for core in (late, without):
        two_deploys(door(core))

    found = door(late).search("when does the deployment run")
    plain = door(without).search("when does the deployment run")

    assert [(snippet.text, snippet.score) for snippet in found.snippets] == [
        (one.text, one.score) for one in plain.snippets
    ]
    assert found.notes == (LATE,)


def test_a_reranker_without_its_model_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """Rule settings.reranker: `llm` needs a language model."""
    with pytest.raises(BadInput, match=r"retrieval\.reranker is 'llm' but llm\.kind is none"):
        memory_with(tmp_path, retrieval={"reranker": "llm"})


def test_a_reranker_without_its_folder_costs_a_note(tmp_path: Path) -> None:
    """Rule rerank.absent: the settings name a folder without a model; the order stays and the note says so."""
    core = memory_with(tmp_path, retrieval={"reranker": "fastembed", "reranker_path": str(tmp_path / "none")})
    anchor = door(core)
    two_deploys(anchor)

    found = anchor.search("when does the deployment run")

    assert len(found.snippets) == 2
    assert found.notes[0].startswith("Not reranked: fastembed has no reranker")


def test_an_agent_may_leave_use_out_and_let_age_count(tmp_path: Path) -> None:
    """Rule agents.retrieval: the two switches change the prior of that agent's searches alone."""
    clock = ManualClock()
    core = memory_with(
        tmp_path,
        clock=clock,
        agents={"codex": {"retrieval": {"apply_frequency_boost": False, "apply_time_decay": True}}},
    )
    anchor = door(core)
    used = anchor.save_memory("The deployment of the website runs nightly").id
    for _ in range(10):
        anchor.get(used)
    core.services.usage.flush()

    def prior(agent: str) -> float:
        (found,) = door(core, agent=agent).search("when does the deployment run", detail=True).snippets
        assert found.signals is not None
        return float(found.signals["prior"])

    assert prior("codex") == 0.0
    assert prior("claude") > 0.0
    clock.advance(days=2000)
    assert prior("codex") < 0.0
    assert prior("claude") > 0.0


@pytest.mark.parametrize(("activation", "word"), [("act_r", "fading"), ("linear", "faded")])
def test_strength_is_counted_as_the_settings_say(tmp_path: Path, activation: str, word: str) -> None:
    """Rule lifecycle.activation: search, get and forgetting agree on how present a memory is."""
    clock = ManualClock()
    core = memory_with(tmp_path, clock=clock, lifecycle={"activation": activation, "noise": 0})
    anchor = door(core)
    kept = anchor.save_memory("The deployment of the website runs nightly").id
    clock.advance(days=43)

    (found,) = anchor.search("when does the deployment run").snippets
    shaped = mcp_answers.answer(anchor, "get_memory", {"id": kept})

    assert found.strength == word
    assert (shaped["strength"] >= 40) == (word == "fading")


def test_an_answer_that_lacks_something_is_not_kept(tmp_path: Path) -> None:
    """Rule search.cache.degraded: what was late is there again a second later; a whole answer is kept for its time."""
    judge, clock = Judge(""), ManualClock()
    core = memory_with(tmp_path, reranker=judge, clock=clock)
    anchor = door(core)
    two_deploys(anchor)
    query = "when does the deployment run"
    assert LATE in anchor.search(query).notes

    judge.word = "billing"
    clock.advance(seconds=2)
    asked = len(judge.deadlines)
    assert not anchor.search(query).notes
    clock.advance(seconds=2)
    assert not anchor.search(query).notes
    assert len(judge.deadlines) == asked + 1, "the whole answer came from the cache"


def test_a_context_says_what_the_cache_did(tmp_path: Path) -> None:
    """Rule report.cache: hits and misses of the search behind this very context."""
    anchor = door(memory_with(tmp_path))
    two_deploys(anchor)
    assert anchor.build_context("when does the deployment run").report.cache == {"hits": 0, "misses": 1}
    assert anchor.build_context("when does the deployment run").report.cache == {"hits": 1, "misses": 0}
