"""The tools as an agent sees them: profiles, aliases, sizes, argument names."""

import json

import pytest

from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.requests.requests import SearchMemory, SetActiveContext
from memory_anchor.front import mcp_answers, tool_specs
from memory_anchor.front.mcp_server import _tool
from memory_anchor.front.table import ROWS
from memory_anchor.front.tool_specs import (
    ALIASES,
    MINIMAL_TOKENS_MAX,
    STANDARD_TOKENS_MAX,
    TOOLS,
    callable_tools,
    listed_tools,
    resolve,
    schema_of,
)
from memory_anchor.language.tokens import count_tokens

MINIMAL = ["get_constitution", "search_memory", "save_memory", "log_event", "promote_to_fact"]
EVERY = [spec.name for spec in TOOLS]


def _names(profile, read_only=False):
    return [spec.name for spec in listed_tools(profile, read_only=read_only, available=EVERY)]


def _wire(profile):
    return [
        {"name": spec.name, "description": spec.description, "inputSchema": schema_of(spec)}
        for spec in listed_tools(profile, read_only=False, available=mcp_answers.CALLS)
    ]


@pytest.mark.parametrize(("profile", "most"), [("standard", STANDARD_TOKENS_MAX), ("minimal", MINIMAL_TOKENS_MAX)])
def test_with_its_annotations_a_list_costs_what_is_promised_as_it_is_sent(profile, most):
    """Contract: at most 1,500 and 700 o200k tokens over the wire, hints included, in the protocol's own form."""
    listed = [
        _tool(spec).model_dump(by_alias=True, exclude_none=True, mode="json")
        for spec in listed_tools(profile, read_only=False, available=mcp_answers.CALLS)
    ]

    assert all("annotations" in tool for tool in listed)
    assert count_tokens(json.dumps(listed, separators=(",", ":"))) <= most
    assert count_tokens(json.dumps(_wire("standard"))) <= 1_500, "as a client that writes spaces repeats it"


def test_each_profile_lists_what_the_smaller_one_lists_and_more():
    assert _names("minimal") == MINIMAL
    assert set(_names("minimal")) < set(_names("standard")) < set(_names("full")) < set(_names("compat"))
    assert len(_names("standard")) == 14


def test_only_compat_lists_the_older_names():
    assert set(_names("compat")) - set(_names("full")) == set(ALIASES)
    assert not set(_names("full")) & set(ALIASES)


def test_read_only_mode_has_no_tool_that_writes():
    """Contract: in read-only mode write tools are not registered, under no name."""
    for profile in ("minimal", "standard", "full", "compat"):
        shown = listed_tools(profile, read_only=True, available=EVERY)
        assert shown
        assert not [spec.name for spec in shown if spec.effect != "reads"]
    with pytest.raises(BadInput, match="read-only"):
        resolve("memory_store", {"text": "x"}, callable_tools(read_only=True, available=EVERY))


def test_a_tool_without_a_use_case_is_not_listed():
    assert "end_session" not in [
        spec.name for spec in listed_tools("full", read_only=False, available=[n for n in EVERY if n != "end_session"])
    ]


def test_every_registered_call_has_a_specification_and_every_required_argument_exists():
    assert set(mcp_answers.CALLS) <= set(EVERY)
    for spec in TOOLS:
        assert set(ROWS[spec.row].request.required()) <= set(schema_of(spec)["properties"])
    for alias in ALIASES.values():
        assert alias.target in EVERY


def test_schemas_are_plain():
    """Titles, null unions, defaults and limits are left out: clients drop or choke on them."""
    schemas = json.dumps([schema_of(spec) for spec in TOOLS])
    for word in ('"title"', '"anyOf"', '"null"', '"default"', '"minimum"', '"$ref"'):
        assert word not in schemas


@pytest.mark.parametrize(
    ("name", "given", "tool", "arguments"),
    [
        ("memory_store", {"text": "a", "metadata": {"type": "decision", "tags": ["t"]}}, "save_memory",
         {"content": "a", "type": "decision", "tags": ["t"]}),
        ("add_memory", {"content": "a", "layer": "fact"}, "save_memory", {"content": "a", "layer": "fact"}),
        ("memory_search", {"query": "q", "limit": 3, "filter": {"layer": ["fact"], "since": "2025-01-01"}},
         "search_memory", {"query": "q", "limit": 3, "layers": ["fact"], "since": "2025-01-01"}),
        ("memory_get", {"id": "m1"}, "get_memory", {"id": "m1"}),
        ("memory_get", {"citation": {"kind": "memory_entry", "ref": "m1"}}, "get_memory", {"id": "m1"}),
        ("memory_forget", {"id": "m1"}, "forget_memory", {"id": "m1"}),
        ("promote_event_to_fact", {"event_id": "e1", "confidence": 0.9}, "promote_to_fact",
         {"event_id": "e1", "confidence": 0.9}),
    ],
)  # fmt: skip
def test_older_names_are_accepted_with_their_own_arguments(name, given, tool, arguments):
    """Contract: aliases are always accepted on call, `text`, `metadata` and `filter` included."""
    name_of_tool, request = resolve(name, given, callable_tools(read_only=False, available=EVERY))
    assert (name_of_tool, request) == (tool, type(request).of(**arguments))


def test_a_null_counts_as_not_given_unless_the_argument_is_required():
    tools = callable_tools(read_only=False, available=EVERY)
    assert resolve("search_memory", {"query": "q", "layers": None}, tools)[1] == SearchMemory.of("q")
    assert resolve("set_active_context", {"key": "k", "value": None}, tools)[1] == SetActiveContext.of("k", None)


@pytest.mark.parametrize(
    ("name", "given", "why"),
    [
        ("search_memory", {"query": "q", "top_k": 3}, "unknown argument 'top_k'; allowed are query, layers"),
        ("save_memory", {}, "lacks the argument 'content'"),
        ("memory_search", {"query": "q", "filter": {"colour": 1}}, "unknown filter 'colour'; allowed are layers"),
        ("memory_store", {"text": "a", "metadata": "b"}, "metadata as text; allowed is an object"),
        ("remember", {}, "no tool 'remember'; there are get_constitution"),
        ("get_constitution", {"x": 1}, "allowed are no arguments"),
    ],
)
def test_a_wrong_argument_name_is_refused_in_one_sentence(name, given, why):
    with pytest.raises(BadInput) as failure:
        resolve(name, given, callable_tools(read_only=False, available=EVERY))
    assert why in str(failure.value)
    assert "\n" not in str(failure.value)


def test_only_forgetting_and_settling_count_as_destructive():
    assert {spec.name for spec in TOOLS if spec.effect == "removes"} == {"forget_memory", "resolve_conflict"}
    assert tool_specs.TOOLS[1].effect == "reads"
