"""The writer throws away nothing: `skipped` needs a proof, and what doubts itself waits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.domain.model import Actor, Outcome, Status
from memory_anchor.ingest.reconcile import likeness
from memory_anchor.language.coverage import alike, covers, words
from memory_anchor.language.perspective import hedge
from memory_anchor.process.app import build_core
from memory_anchor.process.wiring import Core
from memory_anchor.settings import EmbedderSettings, Settings
from memory_anchor.testing import ManualClock, memory_store
from memory_anchor.use_cases.memory import MemoryAnchor

DATA = Path(__file__).parent.parent.parent / "scripts" / "data"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The limit is 100 a minute and 5 a key.", "The limit is 100 a minute."),
        ("Use pnpm, never npm.", "Use pnpm."),
        ("Ana is the product owner.", "The product owner is Ana."),
        ("安娜是产品负责人。", "产品负责人是安娜。"),
        ("Anna has a cat. Anna has a dog.", "Anna has a dog."),
        ("用户对花生过敏，严重时需要用肾上腺素笔。", "用户对花生过敏。"),
    ],
)
def test_what_runs_through_a_stored_text_is_nothing_new(old: str, new: str) -> None:
    """Rule: skipped where words, numbers, names and denials are covered."""
    assert covers(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Never use tabs.", "Use tabs."),
        ("Use tabs.", "Never use tabs."),
        ("User likes dogs and hates cats.", "User likes cats."),
        ("用户喜欢狗，讨厌猫。", "用户喜欢猫。"),
        ("Anna reports to Tom.", "Tom reports to Anna."),
        ("小王管小李。", "小李管小王。"),
        ("User prefers tabs over spaces.", "User prefers spaces over tabs."),
        ("The limit is 100.", "The limit is 1000."),
        ("It is -5 outside.", "It is 5 outside."),
        ("Values must be >= 3.", "Values must be <= 3."),
        ("User used to work at Bosch.", "User work at Bosch."),
        ("如果下雨，用户坐地铁。", "用户坐地铁。"),
        ("The API accepts XML no longer.", "The API accepts XML."),
        ("Anna is allergic to peanuts.", "Anna is allergic to peanuts; give her the pen at once."),
        ("用户不喝咖啡。", "用户喝咖啡。"),
        ("It is written in C.", "It is written in C++."),
        # half of the day, units, and what a number counts
        ("Maintenance starts at 11 pm.", "Maintenance starts at 11 am."),
        ("Maintenance starts at 11 pm.", "Maintenance starts at 11."),
        ("维护下午 9 点开始。", "9 点开始。"),
        ("The cache holds 512 MB.", "The cache holds 512."),
        # a denial, a condition, a question or a change around it, before it and behind it
        ("Never push to main directly.", "Push to main directly."),
        ("改表结构不需要审批。", "改表结构需要审批。"),
        ("禁止访客可以导出报表。", "访客可以导出报表。"),
        ("No, deploys wait for Monday.", "No deploys wait for Monday."),
        ("Guests can export reports, except in the trial.", "Guests can export reports in the trial."),
        ("It is no longer true that guests can export reports.", "Guests can export reports."),
        ("GraphQL for the partner API was a mistake.", "GraphQL for the partner API."),
        ("Deploys are on Monday. Deploys moved to Tuesday.", "Deploys are on Monday."),
        ("Is the upload limit 50 MB?", "The upload limit is 50 MB."),
        ("迁移脚本是手工执行的吗？", "迁移脚本手工执行。"),
        # more of a subject is another subject
        ("Hotfix deploys need a review.", "Deploys need a review."),
        ("紧急发布需要审批。", "发布需要审批。"),
        ("发布需要审批人在线。", "发布需要审批。"),
    ],
)
def test_what_is_not_proven_to_be_covered_is_kept(old: str, new: str) -> None:
    """Rule: a denial, an order of words, a sign, a condition or one more word is something new."""
    assert not covers(old, new)


@given(st.text(max_size=80), st.text(max_size=80))
def test_a_covered_text_has_no_word_of_its_own(old: str, new: str) -> None:
    """Rule: whatever the texts, `covers` never holds where a word is missing."""
    if covers(old, new):
        assert words(new) <= words(old)


def _pairs(kind: str) -> list[tuple[str, str]]:
    lines = (DATA / "writer_pairs.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return [(first, second) for _, name, first, second in rows if name == kind]


@pytest.mark.parametrize(("first", "second"), _pairs("enrich")[::4])
def test_an_enrichment_is_kept(anchor: MemoryAnchor, first: str, second: str) -> None:
    """Rule: what says all of a known fact and more is never answered with "nothing new"."""
    known = anchor.save_memory(first)

    saved = anchor.save_memory(second)

    assert saved.outcome in (Outcome.UPDATED, Outcome.ADDED)
    assert second in [memory.content for memory in anchor.curation.listing()]
    assert first in [version.content for version in anchor.history(str(known.id))]


def _taken_for(kind: str) -> Counter[str]:
    """Return what the test half's pairs of a kind are taken for by their words alone."""
    lines = (DATA / "writer_pairs.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line.startswith("test")]
    return Counter(likeness(row, two, alike(row, two))[0].value for _, name, row, two in rows if name == kind)


def test_pairs_the_model_never_saw_are_told_apart_without_an_embedder() -> None:
    """Rule: of the test half, by words alone, both-hold pairs stay apart and contradictions are seldom silent."""
    apart = _taken_for("hold")
    assert apart["related"] + apart["unrelated"] >= 57, apart
    assert sum(_taken_for(kind)["conflict"] for kind in ("conflict", "changed")) >= 50  # of 60


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [
        ("The default timeout is 30 seconds.", "The default timeout is now 60 seconds.", Outcome.SUPERSEDED),
        ("The nightly build runs on Jenkins.", "The nightly build no longer runs on Jenkins.", Outcome.SUPERSEDED),
        ("默认超时是30秒。", "默认超时是60秒。", Outcome.NEEDS_REVIEW),
        ("用户喝咖啡。", "用户不喝咖啡。", Outcome.NEEDS_REVIEW),
    ],
)
def test_a_contradiction_is_told_without_an_embedder(
    tmp_path: Path, agent: Actor, first: str, second: str, outcome: Outcome
) -> None:
    """Rule: `embedder.kind none` makes no contradiction silent that words can show."""
    settings = Settings(embedder=EmbedderSettings(kind="none"))
    core = build_core(settings, data_dir=tmp_path / "core", clock=ManualClock(), store=memory_store())
    anchor = core.anchor(agent)
    known = anchor.save_memory(first)

    saved = anchor.save_memory(second)

    assert (saved.outcome, saved.target_id) == (outcome, known.id)
    core.close()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The deploy key is rotated every 60 days.", "Every 60 days the key for the deploy is rotated."),
        ("The image cache holds 512 MB.", "The queue holds 512 MB."),
        ("Squash every PR.", "Do not squash every PR."),
        ("Push to main directly.", "Never push to main directly."),
        ("Maintenance starts at 11 pm.", "Maintenance starts at 11 am."),
        ("改表结构需要审批。", "改表结构不需要审批。"),
        ("Timestamps are stored in UTC.", "时间戳统一按 UTC 存储。"),
        ("测试环境有三台机器。", "生产环境有三台机器。"),
    ],
)
def test_only_a_text_that_contains_the_other_joins_it(anchor: MemoryAnchor, first: str, second: str) -> None:
    """Rule: in either order both texts stand word for word, each in a memory of its own."""
    for one, two in ((first, second), (second, first)):
        known, saved = anchor.save_memory(one), anchor.save_memory(two)

        assert {one, two} <= {memory.content for memory in anchor.curation.listing()}
        for outcome in (known, saved):
            anchor.forget(str(outcome.id), reason="the other order comes next")


def test_an_exact_repeat_raises_priority_by_ten_up_to_two_hundred(anchor: MemoryAnchor, core: Core) -> None:
    """Rule: repeats raise priority by 10, bounded at 200."""
    first = anchor.save_memory("Tabs, not spaces")
    for _ in range(2):
        anchor.save_memory("Tabs, not spaces")
    assert core.services.records.read(str(first.id), None).priority == 70

    for _ in range(20):
        anchor.save_memory("Tabs, not spaces")
    assert core.services.records.read(str(first.id), None).priority == 200


def _hedges() -> list[tuple[str, str]]:
    lines = (DATA / "writer_hedges.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line.startswith("dev")]
    return [(kind, text) for _, kind, text in rows]


@pytest.mark.parametrize(("kind", "text"), _hedges())
def test_a_hedge_is_told_from_a_plain_statement(kind: str, text: str) -> None:
    """Rule assess: a word of doubt or a question, outside of quotes, code and names."""
    assert bool(hedge(text)) is (kind == "hedge")


@pytest.mark.parametrize(
    ("text", "word"), [("Maybe the port is 8080", "Maybe"), ("端口可能是8080", "可能"), ("Is the port 8080?", "?")]
)
def test_a_fact_that_doubts_itself_waits_and_the_reason_says_why(anchor: MemoryAnchor, text: str, word: str) -> None:
    """Rule assess: without a confidence it starts below the threshold; with one the claim counts."""
    saved = anchor.save_memory(text)

    assert (saved.outcome, saved.status) == (Outcome.PENDING, Status.PENDING)
    assert f'"{word}"' in saved.reason
    assert anchor.save_memory(f"{text} indeed", confidence=0.95).outcome is not Outcome.PENDING
    assert anchor.save_memory("The mailer listens on 25").status is Status.ACTIVE


def test_a_promoted_event_that_hedges_waits_too(anchor: MemoryAnchor) -> None:
    """Rule assess: promotion passes the same gate."""
    event = anchor.log_event("I think the leak comes from the image loader")

    saved = anchor.promote(event.id)

    assert saved.outcome is Outcome.PENDING
    assert "I think" in saved.reason


def test_what_waits_disputes_nothing(anchor: MemoryAnchor) -> None:
    """Rule: a guess that contradicts a fact is named beside it and leaves it undisputed."""
    known = anchor.save_memory("The default timeout of the client is 30 seconds")

    saved = anchor.save_memory("Maybe the default timeout of the client is 60 seconds")

    assert (saved.outcome, saved.target_id) == (Outcome.PENDING, known.id)
    assert anchor.get(known.id).status is Status.ACTIVE
