"""Evaluation: the bundled case, data set files, a run through the whole memory, runs compared, settings under test."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from memory_anchor.adapters.dict_store import DictStore
from memory_anchor.errors import BadInput
from memory_anchor.evaluation import metrics, questions, runner
from memory_anchor.evaluation.golden import variant
from memory_anchor.evaluation.metrics import CachedRows
from memory_anchor.evaluation.questions import UNANSWERABLE, Case, CaseMemory, Question, bundled, check_case, week
from memory_anchor.language.terms import is_chinese
from memory_anchor.model import Layer, MemoryType
from memory_anchor.settings import Settings
from memory_anchor.testing import HashEmbedder

NOW = datetime(2025, 12, 15, 12, tzinfo=UTC)
STRATEGY_QUESTIONS = {"项目目标", "技术栈", "今天修复了什么", "为什么用 Qdrant", "上周完成了什么"}


class CountingEmbedder(HashEmbedder):
    """Counts the texts it is asked to embed."""

    def __init__(self) -> None:
        super().__init__()
        self.memories = 0
        self.asked = 0

    def documents(self, texts):
        self.memories += len(texts)
        return super().documents(texts)

    def queries(self, texts):
        self.asked += len(texts)
        return super().queries(texts)


def small_case(*, name: str = "small") -> Case:
    memories = (
        CaseMemory("db", "We use Qdrant as the vector database.", NOW - timedelta(days=30), MemoryType.DECISION),
        CaseMemory("bug", "Fixed the login timeout on node seven.", NOW - timedelta(days=5), who=("Ana",)),
        CaseMemory("port", "The gateway listens on port 8088.", NOW - timedelta(days=3), MemoryType.FACT),
    )
    questions = (
        Question("q1", "which vector database do we use", frozenset({"db"}), "decision", "en"),
        Question("q2", "what did Ana fix on node seven", frozenset({"bug"}), "event", "en"),
        Question("q3", "gateway port 8088", frozenset({"port"}), "fact", "en"),
        Question("q4", "violin concerto", frozenset(), UNANSWERABLE, "en"),
        Question("q5", "what is the goal of this project", frozenset({"goal"}), "identity", "en"),
    )
    return Case(name, memories, questions, NOW, constitution={"goal": "The goal of this project is to remember."})


def evaluate(cases: Iterable[Case], settings: Settings | None = None) -> dict:
    return runner.run(cases, settings or Settings(), HashEmbedder(), say=lambda _: None, make_store=DictStore)


# --- the bundled case ------------------------------------------------------------------------------------------------


def test_the_bundled_questions_cover_both_languages_and_the_strategys_own() -> None:
    """Rule eval.bundled: at least 50 questions a language, the five of the strategy document (7.1) among them."""
    case = bundled()
    texts = {question.text for question in case.questions}

    for language in ("en", "zh"):
        asked = [question for question in case.questions if question.language == language]
        assert sum(question.answerable for question in asked) >= 50
        assert any(question.category == "cross-language" for question in asked)
        assert any(not question.answerable for question in asked)
    assert texts >= STRATEGY_QUESTIONS
    assert {memory.layer for memory in case.memories} == {Layer.EVENT_LOG, Layer.VERIFIED_FACT}


@pytest.mark.slow
def test_the_bundled_memories_are_all_stored_as_they_are(tmp_path: Path) -> None:
    """Rule eval.bundled: none is rejected, merged or doubted on its way in, so each can be found."""
    tally = runner.Tally()
    runner.run_case(bundled(), Settings(), HashEmbedder(), tally, say=lambda _: None, store=DictStore())

    assert set(tally.writes) <= {"added"}
    assert sum(tally.writes.values()) == len(bundled().memories)
    assert len(tally.answers) == len(bundled().questions)


def test_a_gold_that_names_nothing_is_refused() -> None:
    """Rule eval.gold: a question that nothing could answer by mistake would only look like bad recall."""
    case = small_case()
    strange = Question("q9", "?", frozenset({"nowhere"}), "x", "en")

    with pytest.raises(BadInput, match="'nowhere'"):
        check_case(Case(case.name, case.memories, (strange,), NOW))
    with pytest.raises(BadInput, match="two memories named 'db'"):
        check_case(Case(case.name, (case.memories[0], case.memories[0]), (), NOW))


# --- a run -----------------------------------------------------------------------------------------------------------


def test_a_run_says_what_was_found_how_fast_and_for_how_many_tokens() -> None:
    """Rule eval.run: recall over what has an answer, emptiness over what has none, time and tokens over all."""
    said: list[str] = []
    figures = runner.run([small_case()], Settings(), HashEmbedder(), say=said.append, make_store=DictStore)

    assert figures["questions"] == 5
    assert figures["overall"]["R@5"] == 1.0
    assert figures["by_category"]["decision"]["questions"] == 1
    assert figures["by_language"]["en"]["questions"] == 4
    assert figures["unanswerable"]["questions"] == 1
    assert 0 < figures["ms"]["p50"] <= figures["ms"]["p95"]
    assert figures["answer_tokens"]["mean"] > figures["answer_tokens_beyond_text"]["mean"] > 0
    assert figures["structured_tokens_beyond_text"]["mean"] > figures["answer_tokens_beyond_text"]["mean"]
    assert [result["id"] for result in figures["results"]] == ["q1", "q2", "q3", "q4", "q5"]
    assert figures["writes"] == {"added": 3}
    assert said == ["small: 3 memories, 5 questions"]


def test_an_evaluation_never_touches_the_users_own_places(tmp_path: Path) -> None:
    """Rule eval.scratch: own folders, no user's store, no cached answers, never paused."""
    own = Settings.model_validate(
        {
            "data_dir": str(tmp_path / "mine"),
            "paused": True,
            "read_only": True,
            "store": {"kind": "qdrant", "url": "http://127.0.0.1:1"},
            "scope": {"project": "mine"},
            "retrieval": {"priors": False},
        }
    )
    used = runner.scratch(own)

    assert used.store.kind == "edge"
    assert not used.paused
    assert not used.read_only
    assert used.scope.project == ""
    assert used.retrieval.cache_ttl_s == 0
    assert not used.retrieval.priors
    assert evaluate([small_case()], own)["overall"]["R@5"] == 1.0
    assert not (tmp_path / "mine").exists()


def test_an_unanswerable_question_is_right_only_when_nothing_comes() -> None:
    """Rule eval.unanswerable: an empty answer is found, five bad ones are not."""
    nothing = Question("q", "penguins", frozenset(), UNANSWERABLE, "en")

    assert runner.Answered(nothing, (), 1.0).found
    assert not runner.Answered(nothing, ("a",), 1.0).found
    figures = runner.figures([runner.Answered(nothing, (), 1.0), runner.Answered(nothing, ("a",), 1.0)])
    assert figures["unanswerable"] == {"questions": 2, "empty": 1}
    assert figures["overall"] == {}


# --- data sets by path -----------------------------------------------------------------------------------------------


def locomo_file(folder: Path) -> Path:
    sample = {
        "sample_id": "conv-1",
        "conversation": {
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ida", "dia_id": "D1:1", "text": "I bought a kayak."},
                {"speaker": "Bo", "dia_id": "D1:2", "text": "Nice!", "blip_caption": "a red kayak"},
            ],
            "session_3_date_time": "12:05 am on 1 June, 2023",
            "session_3": [{"speaker": "Ida", "dia_id": "D3:1", "text": "We paddled to the island."}],
        },
        "qa": [
            {"question": "What did Ida buy?", "evidence": ["D1:1"], "category": 4},
            {"question": "Was the red kayak paddled to the island?", "evidence": ["D3:1; D1:02"], "category": 1},
            {"question": "No evidence", "evidence": [], "category": 2},
            {"question": "Adversarial", "evidence": ["D1:1"], "category": 5},
        ],
    }
    path = folder / "locomo.json"
    path.write_text(json.dumps([sample, sample]), encoding="utf-8")
    return path


def test_a_locomo_file_becomes_dated_turns_with_their_evidence(tmp_path: Path) -> None:
    """Rule eval.locomo: date and speaker in the text, sessions as conversations, categories 1 to 4 with evidence."""
    case = next(questions.locomo(locomo_file(tmp_path)))

    assert [memory.name for memory in case.memories] == ["D1:1", "D1:2", "D3:1"]
    assert case.memories[0].text == "[8 May 2023] Ida: I bought a kayak."
    assert case.memories[1].text.endswith("[shared a photo: a red kayak]")
    assert case.memories[0].on == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    assert case.memories[2].on == datetime(2023, 6, 1, 0, 5, tzinfo=UTC)
    assert [(q.category, q.gold) for q in case.questions] == [("single-hop", {"D1:1"}), ("multi-hop", {"D3:1", "D1:2"})]
    assert len(list(questions.locomo(locomo_file(tmp_path), stores=1))) == 1


def test_a_locomo_file_runs_through_the_memory(tmp_path: Path) -> None:
    """Rule eval.locomo: what is loaded can be measured."""
    figures = evaluate(questions.locomo(locomo_file(tmp_path)))

    assert figures["stores"] == 2
    assert figures["overall"]["R@10"] == 1.0


def test_a_longmemeval_file_becomes_one_store_a_question(tmp_path: Path) -> None:
    """Rule eval.longmemeval: gold are the marked turns; abstention has none; a session may stand twice."""
    turns = [{"role": "user", "content": "I moved to Oslo.", "has_answer": True}, {"role": "assistant", "content": ""}]
    sample = {
        "question_id": "q7",
        "question_type": "single-session-user",
        "question": "Where do I live?",
        "question_date": "2023/05/30 (Tue) 23:40",
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 02:21"],
        "haystack_session_ids": ["s1", "s1"],
        "haystack_sessions": [turns, turns],
    }
    path = tmp_path / "long.json"
    path.write_text(json.dumps([sample, sample | {"question_id": "q8_abs"}]), encoding="utf-8")
    answerable, abstaining = questions.longmemeval(path)

    assert [memory.name for memory in answerable.memories] == ["0:s1_0", "1:s1_0"]
    assert answerable.questions[0].gold == {"0:s1_0", "1:s1_0"}
    assert answerable.now == datetime(2023, 5, 30, 23, 40, tzinfo=UTC)
    assert abstaining.questions[0].category == UNANSWERABLE
    assert not abstaining.questions[0].answerable


@pytest.mark.parametrize("text", ["not json", "[1]", '[{"qa": []}]'])
def test_a_file_of_another_kind_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    """Rule eval.files: what is wrong and what is allowed."""
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(BadInput, match="allowed is a LoCoMo file"):
        list(questions.locomo(path))
    with pytest.raises(BadInput, match="cannot be read"):
        list(questions.longmemeval(tmp_path / "none.json"))


@pytest.mark.parametrize("load", [questions.locomo, questions.longmemeval])
@pytest.mark.parametrize("text", ["[]", None])
def test_a_file_without_a_question_is_refused_in_one_sentence(tmp_path: Path, load, text: str | None) -> None:
    """Rule eval.files: an empty table would look like a measurement."""
    turn = {"role": "user", "content": "I bought a kayak."}
    unasked = {
        "conversation": {},
        "qa": [{"question": "What?", "evidence": ["D9:9"], "category": 4}],
        "question_id": "1",
        "question": "What?",
        "question_date": "2023/05/20",
        "haystack_sessions": [[turn]],
        "haystack_session_ids": ["s"],
        "haystack_dates": ["2023/05/20"],
    }
    path = tmp_path / "x.json"
    path.write_text(text or json.dumps([unasked]), encoding="utf-8")

    with pytest.raises(BadInput, match=r"x\.json holds no question"):
        evaluate(load(path))


# --- rows that are kept ----------------------------------------------------------------------------------------------


def test_a_second_evaluation_embeds_only_its_questions(tmp_path: Path) -> None:
    """Rule eval.rows: memories' rows come from the file, questions are embedded each time, and no text is written."""
    first = CountingEmbedder()
    kept = CachedRows(first, tmp_path / "rows")
    rows = kept.documents(["one memory", "another", "one memory"])
    kept.save()
    second = CountingEmbedder()
    again = CachedRows(second, tmp_path / "rows")

    assert np.array_equal(again.documents(["another", "one memory"]), rows[[1, 0]])
    again.queries(["a question"])
    assert (first.memories, second.memories, second.asked) == (2, 0, 1)
    assert kept.documents([]).shape == (0, 64)
    for file in (tmp_path / "rows").iterdir():
        assert b"another" not in file.read_bytes()


def test_a_damaged_file_of_rows_is_made_anew(tmp_path: Path) -> None:
    """Rule eval.rows: derived, so never an error."""
    kept = CachedRows(HashEmbedder(), tmp_path / "rows")
    kept.documents(["one"])
    kept.save()
    next((tmp_path / "rows").iterdir()).write_bytes(b"PK damaged")

    assert CachedRows(HashEmbedder(), tmp_path / "rows").documents(["one"]).shape == (1, 64)


# --- runs compared ---------------------------------------------------------------------------------------------------


def figures_of(*results: tuple[str, int | None, bool], recall: float = 0.5) -> dict:
    return {
        "overall": {"R@5": recall, "MRR": 0.5},
        "results": [{"id": i, "query": f"query {i}", "rank": rank, "found": found} for i, rank, found in results],
        "ms": {"p50": 10.0, "p95": 20.0},
        "answer_tokens": {"mean": 400.0},
        "settings": {},
    }


def test_a_comparison_names_the_questions_that_were_lost_and_found() -> None:
    """Rule eval.compare: question by question, because means hide a trade."""
    before = figures_of(("a", 1, True), ("b", None, False), ("c", 2, True), ("old", 1, True))
    after = figures_of(("a", None, False), ("b", 3, True), ("c", 1, True), ("new", 1, True))
    after |= {"overall": {"R@5": 0.75, "MRR": 0.5}, "settings": {"retrieval.priors": False}}
    changes = metrics.compared(before, after)

    assert [change["id"] for change in changes["lost"]] == ["a"]
    assert [(change["id"], change["was"], change["is"]) for change in changes["found"]] == [("b", None, 3)]
    assert [change["id"] for change in changes["moved"]] == ["c"]
    assert changes["metrics"] == {"R@5": 0.25}
    assert (changes["new_questions"], changes["gone_questions"]) == (1, 1)
    assert changes["settings"] == {"retrieval.priors": [None, False]}


def test_the_last_run_of_the_same_kind_is_found_and_few_are_kept(tmp_path: Path) -> None:
    """Rule eval.runs: like with like, the newest first, a bounded number, a damaged one passed over."""
    for number in range(metrics.RUNS_KEPT + 3):
        metrics.keep(tmp_path, "bundled", figures_of(recall=number / 100), at=NOW + timedelta(minutes=number))
    metrics.keep(tmp_path, "golden", figures_of(recall=0.99), at=NOW + timedelta(days=1))

    assert len(list(tmp_path.glob("run-bundled-*"))) == metrics.RUNS_KEPT
    assert metrics.last(tmp_path, "bundled")["overall"]["R@5"] == pytest.approx((metrics.RUNS_KEPT + 2) / 100)
    assert metrics.last(tmp_path, "locomo-x") is None
    max(tmp_path.glob("run-bundled-*")).write_text("{")
    assert metrics.last(tmp_path, "bundled")["overall"]["R@5"] == pytest.approx((metrics.RUNS_KEPT + 1) / 100)
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.glob("run-*"))


def test_a_kind_is_one_content_not_one_name(tmp_path: Path) -> None:
    """Rule eval.runs: two files of one name are two kinds once their content differs."""
    path = tmp_path / "x.json"
    path.write_text("[]")
    first = metrics.kind_of_file("locomo", path)
    path.write_text("[1]")

    assert first != metrics.kind_of_file("locomo", path)
    assert first.startswith("locomo-")


def test_settings_are_told_where_they_differ_and_never_a_secret() -> None:
    """Rule eval.settings: names and values that are not the default, keys and tokens left out."""
    changed = {
        "retrieval": {"priors": False, "lens": 0.0},
        "embedder": {"api_key": "s3cret"},
        "http": {"tokens": {"t": 1}},
    }
    usual = {"retrieval": {"priors": True, "lens": 0.0}, "embedder": {"api_key": ""}, "http": {"tokens": {}}}

    assert metrics.changed_settings(changed, usual) == {"retrieval.priors": False}


# --- variants --------------------------------------------------------------------------------------------------------


def test_a_variant_is_a_file_or_names_with_values(tmp_path: Path) -> None:
    """Rule eval.variant: dotted names, values read as YAML; a file with the same shape as every settings file."""
    given = variant("retrieval.priors=false,retrieval.weights.dense=0.7", {})
    file = tmp_path / "v.yaml"
    file.write_text("retrieval: {priors: false, weights: {dense: 0.7}}")

    assert not given.settings.retrieval.priors
    assert given.settings.retrieval.weights == {"dense": 0.7}
    assert variant(str(file), {}).settings == given.settings
    assert variant("as set", {}).settings.retrieval.priors


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("retrieval.wieghts=1", "unknown setting 'retrieval.wieghts'"),
        ("no-such-file.yaml", "cannot be read"),
        ("retrieval=1,retrieval.lens=0.5", "below a name"),
        ("=1", "has no value"),
    ],
)
def test_a_variant_that_cannot_be_meant_is_refused(text: str, says: str) -> None:
    """Rule eval.variant: a misspelt weight must not look like a setting without effect."""
    with pytest.raises(BadInput, match=says):
        variant(text, {})


def test_the_own_week_is_asked_in_both_languages_and_across_them() -> None:
    """Rule eval.bundled: sixty memories of one week, thirty questions in their language, more across languages."""
    case = week()
    about = Counter(question.category for question in case.questions)
    assert len(case.memories) == 60
    assert about["week"] == 30
    assert about["across"] == 13
    assert about["zh over en"] == 12
    assert about["follows"] == sum(bool(question.before) for question in case.questions) == 40
    assert about[UNANSWERABLE] == sum(not question.answerable for question in case.questions)
    languages = {memory.name: is_chinese(memory.text) for memory in case.memories}
    for question in case.questions:
        if question.category in ("across", "zh over en"):
            assert all(languages[name] != is_chinese(question.text) for name in question.gold), question.text
