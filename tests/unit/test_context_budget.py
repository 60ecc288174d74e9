"""A context stays within its budget and keeps what answers; a small period is told where nothing resembles."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stores import file_store

from memory_anchor.context.sections import TEXT_SECTIONS, Body, Recalled, Trust, _drop_last, fit
from memory_anchor.domain.model import Actor
from memory_anchor.front import mcp_answers
from memory_anchor.hooks.brief import RECALLED_TOKENS_MAX, RULES_TOKENS_MAX
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.language.tokens import count_tokens, estimate_tokens
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.testing import ephemeral_core
from memory_anchor.use_cases.memory import MemoryAnchor

WHY_7 = "why was release 7 rolled back"
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=400)


@cache
def o200k() -> Any:
    """Return the tokenizer; importing it loads three of them."""
    import bpe_openai

    return bpe_openai.get_encoding("o200k_base")


def test_a_small_budget_holds_and_keeps_the_event_that_answers(anchor: MemoryAnchor) -> None:
    """N7: 400 tokens by our count and by o200k, with facts beside the event that the question is about."""
    for number in range(12):
        anchor.save_memory(
            f"Decision {number}: the data of service {number} lies in region eu-{number}, for latency; 第{number}条。",
            type="decision",
        )
        anchor.log_event(f"Rolled back release {number} on staging: health check {500 + number}; 回滚了版本 {number}。")
    for budget in (150, 200, 300, 400):
        built = anchor.build_context("why was release 7 rolled back", budget_tokens=budget)

        assert count_tokens(built.text) <= budget
        assert len(o200k().encode(built.text)) <= budget
        assert "release 7 " in built.text


def test_the_whole_answer_of_the_tool_keeps_the_budget(anchor: MemoryAnchor) -> None:
    """Rule context.answer: clients show a model the JSON, so the report and the citations count as the text does."""
    for number in range(12):
        anchor.save_memory(
            f"The data of service {number} lies in region eu-{number}; 第{number}条规则。", type="decision"
        )
        anchor.log_event(f"Rolled back release {number} on staging: health check {500 + number}; 回滚了版本 {number}。")
    lengths = []
    for budget in (200, 250, 400, 800, 1_500, 3_000):
        text = mcp_answers.run(anchor, "build_context", {"task": WHY_7, "budget_tokens": budget})
        answer = json.loads(text)

        assert count_tokens(text) <= budget
        assert "release 7 " in answer["text"]
        assert answer["report"]["estimated_tokens"]["total"] == count_tokens(answer["text"])
        assert {one["ref"] for one in answer["citations"] if one["kind"] in ("event", "memory_entry")}
        lengths.append(count_tokens(answer["text"]))
    assert all(length >= 0.4 * budget for length, budget in zip(lengths, (200, 250, 400, 800), strict=False))
    for budget in range(150, 400, 7):
        assert (
            count_tokens(mcp_answers.run(anchor, "build_context", {"task": WHY_7, "budget_tokens": budget})) <= budget
        )
    assert set(answer["report"]) >= {"stage_ms", "cache", "variant", "sections", "decisions"}


def test_as_many_texts_go_as_it_takes() -> None:
    """Law (N7, mutation): where headings and seams count more than was foreseen, one text less may not be enough."""
    texts = tuple(
        Recalled.of(f"Decision number {at}", id=f"m{at}", source="s", trust=Trust.AGENT, more="m") for at in range(6)
    )
    body = Body((), {"facts": texts})
    kept = replace(body, texts={"facts": texts[:2]})

    assert _drop_last(body, count_tokens(kept.text())) == kept


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    contents=st.fixed_dictionaries({name: st.lists(TEXTS, max_size=6) for name in TEXT_SECTIONS}),
    total=st.integers(1, 3000),
    best=st.integers(0, 5),
)
def test_no_contents_and_no_budget_make_a_context_too_long(
    contents: dict[str, list[str]], total: int, best: int
) -> None:
    """Law (N7, A12): whatever is recalled, the text counts no more than was asked."""
    texts = {
        name: tuple(
            Recalled.of(text, id=f"{name}{at}", source="s", trust=Trust.AGENT, more="m")
            for at, text in enumerate(items)
        )
        for name, items in contents.items()
    }
    if len(texts["events"]) > best:
        texts["events"] = tuple(replace(item, best=at == best) for at, item in enumerate(texts["events"]))
    caps = {"operations": 500, "facts": 2000, "events": 500, "active_context": 500}

    fitted = fit(Body((), texts, time="Now: 2026-11-22T10:00"), total=total, caps=caps)

    assert count_tokens(fitted.body.text()) <= total
    assert len(o200k().encode(fitted.body.text())) <= total


def test_a_small_period_with_nothing_alike_is_told_with_a_note(core: Core, anchor: MemoryAnchor, clock: Any) -> None:
    """N7: "本周四为什么回滚" is answered by what Thursday holds, in other words than the question's."""
    day = clock.now() - dt.timedelta(days=1)
    anchor.log_event("Health check 503 on staging, old image deployed again", when=day.isoformat())
    anchor.log_event("Lunch with the team", when=(day - dt.timedelta(days=20)).isoformat())

    found = anchor.search("昨天为什么回滚")

    assert [snippet.text for snippet in found.snippets] == ["Health check 503 on staging, old image deployed again"]
    assert any("resembles" in note for note in found.notes)


def test_a_small_period_is_told_where_nothing_has_a_vector_yet(tmp_path: Path, clock: Any) -> None:
    """N7: where no engine runs, "nothing is recorded" was said of a day whose events share no word with it."""
    day = clock.now() - dt.timedelta(days=1)
    with DirectoryLock.acquire(tmp_path, role="test"):
        store = file_store(tmp_path / "store")
        wrote = ephemeral_core(tmp_path / "wrote", store=store, clock=clock)
        for text, days in (("Health check 503 on staging, old image deployed again", 0), ("Lunch with the team", 20)):
            wrote.anchor(Actor()).log_event(text, when=(day - dt.timedelta(days=days)).isoformat())
        asked = ephemeral_core(tmp_path / "asked", store=store, clock=clock)
        for question in ("昨天为什么回滚", "why did we roll back yesterday?"):
            found = asked.anchor(Actor()).search(question)

            assert [(snippet.text, snippet.weak) for snippet in found.snippets] == [
                ("Health check 503 on staging, old image deployed again", True)
            ]
            assert any("resembles" in note for note in found.notes)
        store.close()


def test_a_hook_prints_a_bounded_text_whatever_the_settings_say(core: Core, project: Path, approve: Any) -> None:
    """Attack A12: a large approved L0 and a large budget of events; what is left out is named."""
    entries = "".join(f"- {{id: e{n}, content: '{'rule ' * 1500}{n}'}}\n" for n in range(20))
    (project / "constitution.yaml").write_text(f"entries:\n{entries}", encoding="utf-8")
    here = core.anchor(Actor(project_dir=str(project)))
    here.project.identity._budget_tokens = 1_000_000  # as `budget.identity` of a user who wants so
    approve(here)
    for number in range(40):
        here.log_event(f"{number} " + "word " * 1_500)

    text = Hooks().answer(here, "SessionStart", {"source": "compact"}, budget_tokens=999_999)

    assert estimate_tokens(text) <= RULES_TOKENS_MAX + RECALLED_TOKENS_MAX
    assert "more: call get_constitution now)" in text
