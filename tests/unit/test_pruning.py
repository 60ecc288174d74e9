"""Whole prompts: what is given up over budget, in which order, and what is never touched."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from contextkit import IDENTITY, World, actions, event, fact
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_anchor.domain.errors import BadInput
from memory_anchor.extensions.prompts.assembly import AssembledContext, PromptAssembler, PrunePolicy, soft_trim
from memory_anchor.extensions.prompts.requests import AssemblePrompt
from memory_anchor.language.tokens import count_tokens

OUTPUT = "\n".join(f"{n:04d} tests/unit/test_store.py::test_case_{n} PASSED" for n in range(120))
ORDER = ["drop_memory_results", "prune_tool_results", "shrink_history", "request_compaction", "reduce_profile"]
MEMORY = [fact(f"f{n}", f"Decision {n}: " + "we keep one sparse vector with our own terms. " * 4) for n in range(8)]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def blocks_turn(n: int, output: str = OUTPUT, tool: str = "read_file") -> list[dict[str, Any]]:
    """One turn in content blocks: question, call, result, answer."""
    return [
        user(f"Question {n}: look at file {n}"),
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": f"t{n}", "name": tool, "input": {"path": f"f{n}.py"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{n}", "content": output}]},
        {"role": "assistant", "content": f"Answer {n}."},
    ]


def calls_turn(n: int, output: str = OUTPUT, tool: str = "read_file") -> list[dict[str, Any]]:
    """The same turn with tool_calls and a tool message."""
    function = {"name": tool, "arguments": json.dumps({"path": f"f{n}.py"})}
    return [
        user(f"Question {n}: look at file {n}"),
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"t{n}", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": f"t{n}", "content": output},
        {"role": "assistant", "content": f"Answer {n}."},
    ]


FORMS = {"blocks": blocks_turn, "calls": calls_turn}
TOOLS = [
    {"name": "read_file", "description": "Read a file. " * 20, "input_schema": {"type": "object"}},
    {"name": "search_memory", "description": "Search. " * 20, "input_schema": {"type": "object"}},
    {"name": "browser_open", "description": "Open a page. " * 20, "input_schema": {"type": "object"}},
    {"name": "send_mail", "description": "Send. " * 20, "input_schema": {"type": "object"}},
]


def assemble(
    messages: Any, tools: Any = None, *, window: int = 100_000, world: World | None = None
) -> AssembledContext:
    assembler = PromptAssembler((world or World(found=MEMORY)).builder())
    return assembler.assemble(messages, tools, context_window_tokens=window, reserved_output_tokens=100)


def orphans(messages: list[Any]) -> list[str]:
    """Return the ids of tool results without a call before them."""
    called: set[str] = set()
    lost: list[str] = []
    for message in messages:
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        called.update(block["id"] for block in blocks if block["type"] == "tool_use")
        called.update(call["id"] for call in message.get("tool_calls") or ())
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        answered += [message["tool_call_id"]] if message["role"] == "tool" else []
        lost += [one for one in answered if one not in called]
    return lost


def unanswered(messages: list[Any]) -> set[str]:
    text = json.dumps(messages)
    return {f"t{n}" for n in range(20) if f'"id": "t{n}"' in text and f'_id": "t{n}"' not in text}


@pytest.mark.parametrize("form", FORMS)
def test_a_prompt_that_fits_comes_back_as_it_was_with_its_context(form: str) -> None:
    """Nothing is given up that need not be."""
    messages = [{"role": "system", "content": "Be brief."}, *FORMS[form](1), *FORMS[form](2)]

    made = assemble(messages, TOOLS)

    assert made.messages == messages
    assert made.tools == TOOLS
    assert made.report.decisions == ()
    assert IDENTITY[0] in made.text
    assert "Decision 0" in made.text
    assert {citation.ref for citation in made.citations} >= {"f0", "f7"}


def test_the_report_accounts_for_every_token_of_the_prompt() -> None:
    """estimated_tokens: the parts add up, the sections too, prefix and tail apart."""
    made = assemble([{"role": "system", "content": "Be brief."}, *blocks_turn(1)], TOOLS)

    tokens = made.report.estimated_tokens
    parts = {name: value for name, value in tokens.items() if name not in ("total", "by_layer")}
    assert sum(parts.values()) == tokens["total"] == sum(section.tokens for section in made.report.sections)
    assert all(value > 0 for value in parts.values())
    assert tokens["tool_results"] >= count_tokens(OUTPUT)
    assert parts["injections"] + parts["memory_knowledge"] == count_tokens(made.text)
    assert [one.name for one in made.report.sections][:3] == ["tools", "system", "rule"]
    assert {one.name: one.part for one in made.report.sections}["history"] == "tail"
    assert made.report.context_window_tokens == 100_000
    assert made.report.reserved_output_tokens == 100


@pytest.mark.parametrize("form", FORMS)
def test_degradation_goes_in_its_order_and_only_as_far_as_needed(form: str) -> None:
    """Snippets, old tool results, old turns, a compaction asked for, the tool profile: never one before another."""
    messages = [message for n in range(6) for message in FORMS[form](n)]
    whole = assemble(messages, TOOLS).report.estimated_tokens["total"] + 100
    seen: list[list[str]] = []
    for window in range(whole, 400, -150):
        made = assemble(messages, TOOLS, window=window)
        steps = list(dict.fromkeys(actions(made.report)))
        assert steps == [action for action in ORDER if action in steps]
        assert orphans(made.messages) == []
        assert unanswered(made.messages) == set()
        seen.append(steps)
    assert seen[0] == []
    assert ORDER[:1] in seen
    assert ORDER[:2] in seen
    assert ORDER[:3] in seen
    assert seen[-1] == ORDER


@pytest.mark.parametrize("form", FORMS)
def test_old_results_are_trimmed_before_any_is_cleared_and_the_last_two_turns_stay(form: str) -> None:
    """protected_turns = 2; a soft trim keeps head and tail, a hard clear says how to fetch again."""
    messages = [message for n in range(5) for message in FORMS[form](n)]
    whole = assemble(messages, world=World()).report.estimated_tokens["total"] + 100

    trimmed = assemble(messages, window=whole - 500, world=World())
    cleared = assemble(messages, window=whole - 3 * count_tokens(OUTPUT) + 700, world=World())

    assert [(decision["action"], decision["strategy"]) for decision in trimmed.report.decisions] == [
        ("prune_tool_results", "soft_trim")
    ]
    first = json.dumps(trimmed.messages[2])
    assert "test_case_0 " in first
    assert "test_case_119" in first
    assert "tokens left out; call read_file again" in first
    assert [one["strategy"] for one in cleared.report.decisions] == ["soft_trim", "hard_clear"]
    assert "repeat call t0 above to fetch it again" in json.dumps(cleared.messages[2])
    assert cleared.messages[-8:] == messages[-8:]
    assert cleared.report.decisions[0]["protected_turns"] == 2


def test_a_tool_that_is_not_prunable_keeps_its_results() -> None:
    """prunable per tool; our own marks are taken off before the tools go back."""
    messages = [message for n in range(5) for message in blocks_turn(n)]
    tools = [{**TOOLS[0], "prunable": False}]
    whole = assemble(messages, tools, world=World()).report.estimated_tokens["total"] + 100

    made = assemble(messages, tools, window=whole - 500, world=World())

    assert actions(made.report) == ["shrink_history"]
    assert made.messages == messages[4:]
    assert made.tools == [TOOLS[0]]


def test_a_trim_keeps_images_and_the_form_of_the_content() -> None:
    """Blocks stay blocks; what is not text stays where it is."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    content = [{"type": "text", "text": OUTPUT}, image]
    turn = blocks_turn(0)
    turn[2]["content"][0]["content"] = content
    turn[2]["content"][0]["is_error"] = True
    messages = [*turn, *blocks_turn(1, "ok"), *blocks_turn(2, "ok")]
    whole = assemble(messages, world=World()).report.estimated_tokens["total"] + 100

    made = assemble(messages, window=whole - 200, world=World())

    block = made.messages[2]["content"][0]
    assert block["is_error"] is True
    assert block["content"][1] == image
    assert "left out" in block["content"][0]["text"]


def test_what_was_pruned_once_is_left_as_it_is() -> None:
    """Assembling a pruned prompt again trims nothing twice."""
    messages = [message for n in range(5) for message in calls_turn(n)]
    whole = assemble(messages, world=World()).report.estimated_tokens["total"] + 100
    once = assemble(messages, window=whole - 3 * count_tokens(OUTPUT) + 700, world=World())

    again = assemble(once.messages, window=once.report.estimated_tokens["total"] + 100, world=World())

    assert again.messages == once.messages
    assert again.report.decisions == ()


def test_turns_between_which_a_pair_lies_apart_go_together() -> None:
    """A user who interrupts between call and result does not make an orphan."""
    turn = blocks_turn(0, "short")
    messages = [*turn[:2], user("wait"), *turn[2:], user("next"), user("and next"), user("last")]

    for window in range(180, 320, 10):
        made = assemble(messages, window=window, world=World(identity=()))
        assert orphans(made.messages) == []
        assert unanswered(made.messages) == set()
        assert made.messages in (messages, messages[5:], messages[6:])


def test_an_id_used_again_answers_the_latest_call() -> None:
    """Some servers count call ids from 0 in every answer."""
    first, second = blocks_turn(0), blocks_turn(0, tool="run_tests")
    made = assemble([*first, *second, user("a"), user("b")], window=430, world=World(identity=()))

    assert orphans(made.messages) == []
    assert "result of read_file cleared" in json.dumps(made.messages[2])
    assert "result of run_tests cleared" in json.dumps(made.messages[6])


def test_the_tool_profile_narrows_step_by_step_and_keeps_what_the_messages_call() -> None:
    """full, web, coding, minimal: the groups go, called tools stay."""
    messages = [user("hello " * 200)]
    world = World(identity=())
    whole = assemble(messages, TOOLS, world=world).report.estimated_tokens["total"] + 100

    web = assemble(messages, TOOLS, window=whole - 10, world=world)
    coding = assemble(messages, TOOLS, window=whole - 100, world=world)
    minimal = assemble(messages, TOOLS, window=whole - 180, world=world)
    called = assemble([*messages, *blocks_turn(1, "ok")], TOOLS, window=300, world=world)

    assert [tool["name"] for tool in web.tools] == ["read_file", "search_memory", "browser_open"]
    assert [tool["name"] for tool in coding.tools] == ["read_file", "search_memory"]
    assert [tool["name"] for tool in minimal.tools] == ["search_memory"]
    assert [tool["name"] for tool in called.tools] == ["read_file", "search_memory"]
    assert [decision["action"] for decision in minimal.report.decisions] == ["request_compaction", "reduce_profile"]
    assert minimal.report.decisions[1]["to"] == "minimal"
    assert minimal.report.decisions[0]["still_over_tokens"] == 0


def test_fewer_tools_are_shown_when_retrieval_is_large() -> None:
    """Retrieved text above a quarter of the room shows one profile less, though everything fits."""
    made = assemble([user("why one vector")], TOOLS, window=2_000)

    assert actions(made.report) == ["reduce_profile"]
    assert [tool["name"] for tool in made.tools] == ["read_file", "search_memory", "browser_open"]
    assert "retrieved text takes" in made.report.decisions[0]["reason"]


def test_protected_turns_that_are_too_much_come_back_whole_with_by_how_much() -> None:
    """Nothing protected is cut: the report asks for a compaction and says what is still too much."""
    messages = [*blocks_turn(0), *blocks_turn(1)]

    made = assemble(messages, window=1000)

    assert made.messages == messages
    request = made.report.decisions[-1]
    assert request["action"] == "request_compaction"
    assert request["still_over_tokens"] == made.report.estimated_tokens["total"] - 900


def test_system_messages_stay_wherever_they_stand() -> None:
    """A system message is no history."""
    note = {"role": "system", "content": "The user prefers Chinese."}
    messages = [note, *calls_turn(0), note, *calls_turn(1, "ok"), *calls_turn(2, "ok")]

    made = assemble(messages, window=320, world=World(identity=()))

    assert "shrink_history" in actions(made.report)
    assert [message for message in made.messages if message["role"] == "system"] == [note, note]


def test_without_a_task_memory_is_asked_for_what_the_user_said_last() -> None:
    """task is optional in a whole prompt."""
    world = World()
    assemble([user("first"), {"role": "assistant", "content": "hm"}, user("为什么用 Qdrant")], world=world)

    assert ("search", "为什么用 Qdrant") in world.asked


def test_an_empty_conversation_gets_recent_events_and_no_search() -> None:
    """Nothing asked is nothing searched for."""
    world = World(recent=[event("e1", "Deployed")])

    made = assemble([], world=world)

    assert "Deployed" in made.text
    assert [name for name, _ in world.asked] == ["recent_events"]


CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "ls", "input": {}}]}


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ("hello", "messages is text"),
        (None, "messages is null"),
        ({"role": "user"}, "messages is an object"),
        (["hello"], r"messages\[0\] is text"),
        ([{"role": "robot", "content": "x"}], "role is 'robot'; allowed are system"),
        ([{"content": "x"}], "role is 'None'"),
        ([{"role": "user"}], "content is null"),
        ([{"role": "user", "content": 5}], "content is a number"),
        ([{"role": "user", "content": ["x"]}], r"content\[0\] is text without a type"),
        ([{"role": "user", "content": [{"type": "text"}]}], "text is null"),
        ([{"role": "tool", "content": "x"}], "tool_call_id is 'None'"),
        ([{"role": "tool", "content": "x", "tool_call_id": "t9"}], "call 't9', which no message before it makes"),
        ([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t9"}]}], "tool result for call 't9'"),
        ([{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "b"}]}], "tool_use in a user message"),
        ([{"role": "assistant", "content": [{"type": "tool_use", "name": "b"}]}], "id is 'None'"),
        ([{"role": "assistant", "content": "", "tool_calls": {}}], "tool_calls is an object"),
        ([{"role": "assistant", "content": "", "tool_calls": [{"id": "a"}]}], "function is null"),
        (
            [CALL, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": 1}]}],
            "is a number",
        ),
        ([{"role": "user", "content": "a\ud800"}], "not valid Unicode"),
        ([{"role": "user", "content": "a", "x": {1, 2}}], "not JSON"),
    ],
)
def test_messages_that_no_model_would_take_are_refused(messages: Any, words: str) -> None:
    """One sentence: which message, what it holds, what is allowed."""
    with pytest.raises(BadInput, match=words):
        assemble(messages)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"context_window_tokens": 0}, "context_window_tokens is 0"),
        ({"context_window_tokens": "big"}, "context_window_tokens is 'big'"),
        ({"context_window_tokens": 1000, "reserved_output_tokens": 1000}, "less than the window of 1000"),
        ({"context_window_tokens": 1000, "reserved_output_tokens": -1}, "reserved_output_tokens is -1"),
        ({"context_window_tokens": 1000, "task": 7}, "task is a number"),
    ],
)
def test_sizes_out_of_range_are_refused(sizes: dict[str, Any], words: str) -> None:
    """A window that leaves no room is an error, not an empty prompt."""
    with pytest.raises(BadInput, match=words):
        request = AssemblePrompt.of([user("x")], **sizes)
        PromptAssembler(World().builder()).assemble(
            request.messages,
            context_window_tokens=request.context_window_tokens,
            reserved_output_tokens=request.reserved_output_tokens,
        )


def test_a_policy_that_protects_nothing_is_refused() -> None:
    """The last user turn is always protected."""
    with pytest.raises(BadInput, match="0 protected turns"):
        PrunePolicy(protected_turns=0)


def test_a_soft_trim_of_chinese_keeps_whole_characters_at_both_ends() -> None:
    """Cutting is by tokens and never inside a character."""
    text = "".join(f"第{n}行：记忆检索策略。" for n in range(300))

    trimmed = soft_trim(text, tool="read_file", policy=PrunePolicy())

    assert trimmed.startswith("第0行")
    assert trimmed.endswith("策略。")
    assert count_tokens(trimmed) < 450


# --- laws -------------------------------------------------------------------------------------------------------

outputs = st.sampled_from(["ok", "x " * 30, OUTPUT[:2000], OUTPUT])
turns = st.tuples(st.sampled_from(sorted(FORMS)), outputs, st.sampled_from(["read_file", "browser_open"]))


@settings(max_examples=60, deadline=None)
@given(
    conversation=st.lists(turns, max_size=7),
    opening=st.booleans(),
    trailing=st.booleans(),
    window=st.integers(150, 9000),
)
def test_whatever_is_given_up_the_prompt_stays_whole_and_the_input_untouched(
    conversation: list[tuple[str, str, str]], opening: bool, trailing: bool, window: int
) -> None:
    """Budget never exceeded but by what is protected; no orphan; order kept; last turns as they were."""
    messages: list[dict[str, Any]] = [{"role": "assistant", "content": "Hello!"}] if opening else []
    for n, (form, output, tool) in enumerate(conversation):
        messages += FORMS[form](n, output, tool)
    messages += [user("one more thing")] if trailing else []
    before, tools_before = copy.deepcopy(messages), copy.deepcopy(TOOLS)

    made = assemble(messages, TOOLS, window=window)

    assert messages == before
    assert tools_before == TOOLS
    assert orphans(made.messages) == []
    assert unanswered(made.messages) == set()
    steps = list(dict.fromkeys(actions(made.report)))
    assert steps == [action for action in ORDER if action in steps]
    starts = [at for at, one in enumerate(messages) if one["role"] == "user" and isinstance(one["content"], str)]
    protected = messages[starts[-2] :] if len(starts) > 1 else messages
    assert made.messages[len(made.messages) - len(protected) :] == protected
    assert [message["role"] for message in made.messages] == [one["role"] for one in messages[-len(made.messages) :]][
        : len(made.messages)
    ]
    total = made.report.estimated_tokens["total"]
    if total > window - 100:
        request = next(decision for decision in made.report.decisions if decision["action"] == "request_compaction")
        assert request["still_over_tokens"] == total - (window - 100)
        assert made.messages[-len(protected) :] == protected
        assert len(made.messages) == len(protected)
        assert made.report.estimated_tokens["memory_knowledge"] == 0
    called = {"read_file", "browser_open"} & {tool for _, _, tool in conversation}
    text = json.dumps(made.messages)
    shown = {tool["name"] for tool in made.tools}
    assert {tool for tool in called if f'"name": "{tool}"' in text} <= shown
