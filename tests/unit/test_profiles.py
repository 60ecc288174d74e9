"""Which tools a prompt shows, in every form tools are declared in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cases import by_result

from memory_anchor.domain.errors import BadInput
from memory_anchor.extensions.prompts.profiles import PROFILES, group_of, narrow, read_tools, strict_schema
from memory_anchor.language.tokens import count_tokens

ANTHROPIC = {"name": "read_file", "description": "Read", "input_schema": {"type": "object"}}
OPENAI = {"type": "function", "function": {"name": "web_search", "parameters": {"type": "object"}}}
MCP = {"name": "mcp__memory-anchor__log_event", "inputSchema": {"type": "object"}}
SCHEMA = {"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}, {"type": "null"}]}}}
HOSTED = {"type": "bash_20250124", "name": "bash"}


@pytest.mark.parametrize(
    ("name", "group"),
    by_result(
        {
            "fs": "Read | MultiEdit | str_replace_based_edit_tool | mcp__filesystem__list_directory",
            "devtools": "Bash | git_read_file | runTests",
            "web": "WebFetch | read_web_page | browser_click",
            "memory": "search_memory | mcp__memory-anchor__end_session | set_active_context",
            "other": "send_mail | 查询天气",
        }
    ),
)
def test_the_words_of_a_name_tell_the_group(name: str, group: str) -> None:
    """Groups fs, memory, web, devtools; other people's tools need no configuration."""
    assert group_of(name) == group


def test_tools_are_read_in_every_form_and_go_back_as_they_came() -> None:
    """Content-block APIs, function APIs, MCP and hosted tools."""
    given = [ANTHROPIC, OPENAI, MCP, HOSTED]

    tools = read_tools(given)

    assert [tool.name for tool in tools] == ["read_file", "web_search", "mcp__memory-anchor__log_event", "bash"]
    assert [tool.group for tool in tools] == ["fs", "web", "memory", "devtools"]
    assert all(tool.shown is one for tool, one in zip(tools, given, strict=True))
    assert tools[0].tokens == count_tokens(json.dumps(ANTHROPIC, separators=(",", ":")))
    assert read_tools(None) == ()


def test_a_tool_says_its_own_group_and_whether_it_may_be_pruned_and_the_marks_come_off() -> None:
    """Marks stand beside the name or in _meta; model APIs refuse keys they do not know."""
    meta = {"memory-anchor/group": "devtools", "memory-anchor/prunable": False, "other": 1}
    plain, marked = read_tools([{**ANTHROPIC, "group": "web", "prunable": False}, {**MCP, "_meta": meta}])

    assert (plain.group, plain.prunable, plain.shown) == ("web", False, ANTHROPIC)
    assert (marked.group, marked.prunable, marked.shown) == ("devtools", False, {**MCP, "_meta": {"other": 1}})
    assert read_tools([{**MCP, "_meta": {"memory-anchor/group": "fs"}}])[0].shown == MCP


def test_profiles_are_nested_from_minimal_to_full() -> None:
    """Each profile shows what the narrower one shows, and more."""
    assert PROFILES["minimal"] < PROFILES["coding"] < PROFILES["web"]


def test_the_widest_profile_that_saves_enough_is_taken() -> None:
    """No more tools go than must; steps that would change nothing are passed over."""
    tools = read_tools([ANTHROPIC, OPENAI, MCP, {"name": "send_mail"}])

    assert narrow(tools, need=1, required=frozenset()).profile == "web"
    assert narrow(tools, need=10, required=frozenset()).dropped == ("web_search", "send_mail")
    assert narrow(tools, need=10**6, required=frozenset()).profile == "minimal"
    assert narrow(tools, need=10**6, required=frozenset({"send_mail"})).dropped == ("read_file", "web_search")
    assert narrow(tools, need=10**6, required=frozenset(), steps=1).profile == "web"
    assert narrow(read_tools([MCP]), need=10**6, required=frozenset()).profile == "full"


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ("read_file", "tools is text"),
        ({"name": "x"}, "tools is an object"),
        (["read_file"], r"tools\[0\] is text"),
        ([{"description": "no name"}], r"tools\[0\] has no name"),
        ([{"type": "function", "function": {}}], r"tools\[0\] has no name"),
        ([{"name": "x", "group": "games"}], "group is 'games'; allowed are fs, memory, web, devtools"),
        ([{"name": "x", "prunable": "no"}], "prunable is 'no'; allowed are true and false"),
        ([{"name": "x", "input_schema": {1, 2}}], r"tools\[0\] holds what is not JSON"),
    ],
)
def test_tools_that_cannot_be_read_are_refused(tools: Any, words: str) -> None:
    """One sentence: which tool, what it holds, what is allowed."""
    with pytest.raises(BadInput, match=words):
        read_tools(tools)


@pytest.mark.parametrize(
    ("tool", "schema_of"),
    [
        ({"name": "a", "input_schema": SCHEMA}, lambda tool: tool["input_schema"]),
        ({"name": "a", "inputSchema": SCHEMA, "group": "fs"}, lambda tool: tool["inputSchema"]),
        ({"type": "function", "function": {"name": "a", "parameters": SCHEMA}}, lambda t: t["function"]["parameters"]),
    ],
)
def test_schemas_come_back_strict_on_request_in_every_form(tool: Any, schema_of: Any) -> None:
    """Rule tools.strict: in Anthropic's, MCP's and OpenAI's form; what was handed in stays as it was."""
    before = json.dumps(tool)
    [plain], [strict] = read_tools([tool]), read_tools([tool], strict=True)
    assert schema_of(plain.shown) == SCHEMA
    assert schema_of(strict.shown) == strict_schema(SCHEMA) != SCHEMA
    assert json.dumps(tool) == before
    assert strict.tokens != plain.tokens, "what is sent is what is counted"


def test_a_tool_without_a_schema_stays_and_a_broken_one_is_named() -> None:
    """Rule tools.strict: one sentence with the place of what cannot be followed."""
    [tool] = read_tools([{"type": "web_search"}], strict=True)
    assert tool.shown == {"type": "web_search"}
    with pytest.raises(BadInput, match=r"tools\[0\]\.input_schema: .*nowhere"):
        read_tools([{"name": "a", "input_schema": {"$ref": "#/$defs/nowhere"}}], strict=True)
