"""From a conversation to memories, through the same gate as everything else."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pytest

from memory_anchor.adapters.language_models import NoModel
from memory_anchor.domain.errors import BadInput, Unavailable
from memory_anchor.domain.model import Actor, MemoryType, Origin, Outcome, Status, Visibility, WriteMode
from memory_anchor.ingest.candidates import Candidate, stored_as
from memory_anchor.ingest.conversation_learning import Episode, Extracted
from memory_anchor.ingest.extraction import extract_by_rules
from memory_anchor.ingest.messages import conversation
from memory_anchor.ingest.relations import Kind, replacement
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.use_cases.memory import MemoryAnchor

TALK = [
    {"role": "user", "content": "I always prefer short answers and never long ones."},
    {"role": "assistant", "content": "Of course."},
    {"role": "user", "content": "From now on always run the tests with scripts/test."},
    {"role": "assistant", "content": "Understood."},
    {"role": "user", "content": "我们决定改用 PostgreSQL 作为主数据库，因为需要事务。"},
    {"role": "assistant", "content": "好的，已记录。"},
]


def test_a_conversation_becomes_memories_with_their_quotes(anchor: MemoryAnchor) -> None:
    """Rule write-path: extracted claims carry a quote, their origin, and are the user's or the project's."""
    done, notes = anchor.remember_conversation(TALK)

    stored = [anchor.get(one.outcome.id) for one in done if one.outcome.id]
    assert notes == []
    assert {memory.origin for memory in stored} == {Origin.EXTRACTED}
    assert any("short answers" in m.content and m.visibility is Visibility.USER for m in stored)
    assert any("PostgreSQL" in memory.content for memory in stored)
    assert all(one.quote in "\n".join(turn["content"] for turn in TALK) for one in done)


@pytest.mark.parametrize(
    ("first", "then", "kept"),
    [
        ("以后都用 npm。", "算了，以后都用 pnpm。", "pnpm"),
        ("From now on always use npm here.", "Scratch that, from now on always use pnpm here.", "pnpm"),
    ],
)
def test_what_is_taken_back_in_the_talk_is_not_kept(anchor: MemoryAnchor, first: str, then: str, kept: str) -> None:
    """Rule: of two statements of one talk only the later counts where it takes the earlier back."""
    roles = ("user", "assistant", "user")
    talk = [{"role": role, "content": said} for role, said in zip(roles, (first, "OK.", then), strict=True)]

    done, _ = anchor.remember_conversation(talk)

    stored = [anchor.get(one.outcome.id).content for one in done if one.outcome.id]
    assert stored and all(kept in text for text in stored)


def test_by_default_no_write_no_search_and_no_night_asks_a_language_model(
    anchor: MemoryAnchor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """README: no model is called in the background; by default there is none."""
    asked: list[str] = []

    def fill(self: NoModel, shape: type[object], *, system: str, prompt: str, deadline_s: float) -> NoReturn:
        asked.append(prompt)
        raise Unavailable("none")

    monkeypatch.setattr(NoModel, "fill", fill)

    anchor.remember_conversation(TALK)
    anchor.save_memory("The database is MySQL.")
    anchor.save_memory("The database is Postgres.")
    for step in range(12):
        anchor.log_event(f"Step {step} of moving the cache to Valkey: node {step} is done.")
    anchor.end_session(summary="Moved the cache.")
    anchor.search("which database?")
    ran = [anchor.maintenance.run_job(job) for job in ("consolidate", "merge_duplicates", "reconsolidate", "forget")]

    assert Settings().llm.kind == "none"
    assert [report.job for report in ran] == ["consolidate", "merge_duplicates", "reconsolidate", "forget"]
    assert asked == []


def test_replaying_a_conversation_adds_nothing(anchor: MemoryAnchor) -> None:
    """Rule replay: twenty times the same conversation is once."""
    anchor.remember_conversation(TALK)
    before = [(m.id, m.version, m.content) for m in anchor.curation.listing()]

    for _ in range(19):
        anchor.remember_conversation(TALK)

    assert [(m.id, m.version, m.content) for m in anchor.curation.listing()] == before


def test_what_was_decided_side_by_side_is_proposed_side_by_side(anchor: MemoryAnchor) -> None:
    """Rule extraction: what was said earlier in a conversation reaches the gate too, and once."""
    talk = [{"role": "user", "content": text} for text in ("我们决定账本用 PostgreSQL。", "我们决定消息队列用 Kafka。")]

    done, _ = anchor.remember_conversation(talk)
    before = [(m.id, m.version, m.content) for m in anchor.curation.listing()]
    anchor.remember_conversation(talk)

    assert [one.quote for one in done] == [turn["content"] for turn in talk]
    assert [(m.id, m.version, m.content) for m in anchor.curation.listing()] == before


def test_recalled_memories_in_a_conversation_are_not_extracted_again(core: Core, anchor: MemoryAnchor) -> None:
    """Rule loop: what was recalled and pasted in never becomes new memory."""
    anchor.remember_conversation(TALK)
    before = {m.id for m in anchor.curation.listing()}
    context = anchor.build_context("which database and which answers").text

    anchor.remember_conversation([{"role": "user", "content": context}, *TALK])

    assert {m.id for m in anchor.curation.listing()} == before


def test_only_user_facts_can_be_asked_for(anchor: MemoryAnchor) -> None:
    """Rule kinds: about the user, shared by that user's agents."""
    done, _ = anchor.remember_conversation(TALK, only="user_facts")

    assert done
    assert all(anchor.get(one.outcome.id).visibility is Visibility.USER for one in done)


def test_a_mode_that_needs_a_model_falls_back_to_rules_and_says_so(anchor: MemoryAnchor) -> None:
    """Rule no-model: rules are a normal mode; results say so."""
    done, notes = anchor.remember_conversation(TALK, mode="ghostwriter")

    assert any(one.outcome.outcome is Outcome.ADDED for one in done)
    assert "no language model" in notes[0]


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([], "holds 0 turns"),
        ("hello", "messages is text"),
        ([{"role": "ghost", "content": "boo"}], "role is 'ghost'"),
        ([{"role": "user", "content": 7}], "content is a number"),
    ],
)
def test_a_conversation_that_cannot_be_read_stores_nothing(
    anchor: MemoryAnchor, messages: object, sentence: str
) -> None:
    """Rule bad-input: one sentence each, nothing half-written."""
    with pytest.raises(BadInput, match=sentence):
        anchor.remember_conversation(messages)
    assert anchor.curation.listing() == []


def test_what_was_said_about_one_project_stays_there(core: Core, agent: Actor, anchor: MemoryAnchor) -> None:
    """Rule kinds: a decision is the project's, a preference follows the user."""
    anchor.remember_conversation(TALK)
    elsewhere = core.anchor(replace(agent, project_dir=""))

    contents = [m.content for m in elsewhere.curation.listing()]
    assert any("short answers" in content for content in contents)
    assert not any("PostgreSQL" in content for content in contents)


def test_the_same_conversation_in_another_project_or_account_is_learned_there_too(
    core: Core, agent: Actor, anchor: MemoryAnchor
) -> None:
    """Mutation repeat-09: a repeat is one of the same agent in the same place; nobody else gets its answers."""
    mine = {one.outcome.id for one in anchor.remember_conversation(TALK)[0]}
    for stranger in (replace(agent, project_dir=""), replace(agent, scope=replace(agent.scope, account="another"))):
        other = core.anchor(stranger)
        other.remember_conversation(TALK)
        (own,) = [one.id for one in other.curation.listing() if "PostgreSQL" in one.content]
        assert own not in mine


def test_a_later_rule_for_the_same_names_ends_the_earlier_one_in_another_session(anchor: MemoryAnchor) -> None:
    """Rule capture: a later rule on the same slot supersedes across sessions; another slot's stays.

    A prefix and a suffix are two slots of one name.
    """
    for text in (
        "From now on always start all function names with 'fn_'.",
        "From now on always start all variable names with 'v_'.",
        "From now on always end all function names with '_b'.",
        "Please never forget it: always end all function names with '_b', in every service that we ever write.",
        "From now on always end all function names with '_c' and your method names with '_m'.",
        "From now on always start all function names with 'g_'.",
    ):
        anchor.remember_conversation([{"role": "user", "content": text}])

    live = [memory.content for memory in anchor.curation.listing()]
    for sign, stands in {"fn_": False, "v_": True, "_b": False, "_c": True, "_m": True, "g_": True}.items():
        assert any(f"'{sign}'" in content for content in live) is stands, sign
    anchor.remember_conversation([{"role": "user", "content": "From now on always end all method names with '_n'."}])
    live = [memory.content for memory in anchor.curation.listing()]
    assert any("'_n'" in content for content in live)
    assert any("'_c'" in content for content in live), "of two rules in one memory one still holds"


RULES = (
    ("Always end all function names with '_fn'.", "Please always end every function name with '_f'."),
    ("所有函数名一律以“fn_”开头。", "函数名必须一律以“do_”开头。"),
)


@pytest.mark.parametrize(("first", "later"), RULES)
def test_a_rule_of_the_same_slot_without_a_word_of_change_is_asked_about(
    anchor: MemoryAnchor, first: str, later: str
) -> None:
    """Rule writing.values: nobody said that it changed, so nothing ends, by whichever door it came."""
    for text in (first, later):
        anchor.remember_conversation([{"role": "user", "content": text}])
    learned = {memory.content: memory.status for memory in anchor.curation.listing()}
    assert learned == dict.fromkeys((first, later), Status.DISPUTED)


def test_an_announced_update_is_the_word_of_change_of_the_rule_beside_it() -> None:
    """Rule capture.announced: the sentence that says so is kept with the rule, which then replaces the former."""
    text = "This is an update to our convention. Please always start every variable name with 'w_'."
    (kept,) = extract_by_rules(conversation([{"role": "user", "content": text}]), rows=None)

    assert kept.content == text
    assert replacement("Always start your variable names with 'z_'.", kept.content) is Kind.REPLACED
    assert replacement("Always log in English.", kept.content) is Kind.NONE


@pytest.mark.parametrize("talks", [1, 2])
def test_a_change_is_about_what_it_changes(anchor: MemoryAnchor, talks: int) -> None:
    """Rule capture.about: a rule guessed the project's and its change guessed the user's do not both stand."""
    said = ("提交信息用中文写。", "算了，我改主意了，以后提交信息都用英文写。")
    for turns in (said,) if talks == 1 else ((text,) for text in said):
        anchor.remember_conversation([{"role": "user", "content": text} for text in turns])

    found = {memory.content: memory for memory in anchor.curation.listing()}
    assert found[said[1]].status is Status.ACTIVE
    assert said[0] not in found or found[said[0]].status is Status.PENDING
    assert len({memory.visibility for memory in found.values()}) == 1


def test_a_yes_takes_nothing_of_what_is_said_behind_it(anchor: MemoryAnchor) -> None:
    """Rule capture.assents: what is agreed to is one memory, a rule in the same message another."""
    anchor.remember_conversation(
        [
            {"role": "user", "content": "We train on TPUs here."},
            {"role": "assistant", "content": "Do we have enough of them for our projects?"},
            {"role": "user", "content": "Yes, we do. From now on always end all attribute names with '_t'."},
        ]
    )
    assert any("'_t'" in memory.content for memory in anchor.curation.listing())


def test_an_answer_is_a_quotation_with_its_question_as_context(core: Core, anchor: MemoryAnchor) -> None:
    """Rule capture.context: the same words to another question are another memory, to the same one a repeat; both are
    shown and found with what was asked."""
    questions = (
        "Which port does the gateway use?",
        "Which port does the dashboard use?",
        "Which port does the gateway use?",
    )
    talk = Episode(0, len(questions), "end")
    candidates = tuple(
        Candidate(
            "8443",
            **stored_as(MemoryType.FACT, 0.8),
            key="8443",
            confidence=0.92,
            quote="8443",
            about="project",
            seq=at,
            questions=(question,),
            context=question,
        )
        for at, question in enumerate(questions)
    )

    done = core.services.learner.store(
        anchor.actor, Extracted((talk,), candidates, "rules"), gate=anchor.project.gate, mode=WriteMode.TOOL_CALL
    )

    gateway, dashboard, again = (one.outcome.id for one in done)
    assert gateway == again != dashboard
    assert [anchor.get(name or "").content for name in (gateway, dashboard)] == ["8443", "8443"]
    found = anchor.search("dashboard port").snippets
    assert [snippet.text for snippet in found if snippet.id == dashboard] == [
        "8443 (context: Which port does the dashboard use?)"
    ]


def test_a_rule_that_the_same_talk_ended_in_other_words_is_not_ended_twice(core: Core, anchor: MemoryAnchor) -> None:
    """Rule naming.ended: a later rule of names goes on where what it would end does not stand any more."""
    texts = (
        "Function names start with 'fn_'.",
        "From now on function names no longer start with 'fn_'.",
        "Function names start with 'do_'.",
    )
    talk = Episode(0, len(texts), "end")
    candidates = tuple(
        Candidate(
            text,
            **stored_as(MemoryType.INSTRUCTION, 0.8),
            key=text,
            confidence=0.92,
            quote=text,
            about="project",
            seq=at,
        )
        for at, text in enumerate(texts)
    )

    done = core.services.learner.store(
        anchor.actor, Extracted((talk,), candidates, "rules"), gate=anchor.project.gate, mode=WriteMode.TOOL_CALL
    )

    assert done[1].outcome.target_id == done[0].outcome.id
    assert anchor.get(done[2].outcome.id or "").status is Status.ACTIVE
