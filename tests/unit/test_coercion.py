"""Arguments as clients really send them: values as JSON in a text, and words for "left out"; through every door."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from event_loop import in_event_loop
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client
from serving import Served, bearer, core_to_serve, key_for

from memory_anchor.base.json_schema import schema_of
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.requests import requests
from memory_anchor.domain.requests.fields import BaseRequest
from memory_anchor.extensions.knowledge import requests as of_knowledge
from memory_anchor.extensions.lorebook import requests as of_lorebooks
from memory_anchor.extensions.prompts import requests as of_prompts
from memory_anchor.extensions.service.http_api import build_http
from memory_anchor.extensions.transfer import requests as of_transfer
from memory_anchor.front.mcp_server import build_server
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ManualClock

MODELS = sorted(
    {
        model
        for module in (requests, of_knowledge, of_lorebooks, of_prompts, of_transfer)
        for model in vars(module).values()
        if isinstance(model, type) and issubclass(model, BaseRequest)
    },
    key=lambda model: model.__name__,
)
EXAMPLES: dict[str, Any] = {
    "layers": ["event_log", "verified_fact"],
    "types": ["fact"],
    "sources": [{"kind": "url", "ref": "https://example.org/a"}],
    "messages": [{"role": "user", "content": "[1, 2]"}],
    "tools": [{"name": "search"}],
    "decay": {"half_life_days": 30},
    "scope": {"user_id": "kim"},
    "projects": {},
    "aliases": {"p1": ["path:/a"]},
    "lines": [[1, "{}"]],
    "epistemic": "verified",
    "resolution": "keep_new",
    "instant": "2026-01-31T09:30:00Z",
}
"""Of fields whose schema does not say what is valid."""
FIELDS = [(model, name) for model in MODELS for name in model.model_fields]
NO_TEXT = [one for one in FIELDS if schema_of(one[0])["properties"][one[1]].get("type") not in ("string", None)]
OPTIONAL = [one for one in FIELDS if one[1] not in one[0].required()]
LEFT_OUT = ("", "  ", "null", " null\n")


def named(field: tuple[type[BaseRequest], str]) -> str:
    return f"{field[0].__name__}.{field[1]}"


def values(model: type[BaseRequest], name: str) -> st.SearchStrategy[Any]:
    """Return valid values of a field, by its schema."""
    field = schema_of(model)["properties"][name]
    if name in EXAMPLES and field.get("type") != "string":
        return st.just(EXAMPLES[name])
    match field.get("type"):
        case "integer":
            return st.integers(int(field["minimum"]), int(field["maximum"]))
        case "number":
            return st.floats(field["minimum"], field["maximum"])
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=4, unique=True)
    least = field.get("minLength", 1)
    return st.just(EXAMPLES.get(name, "x" * max(least, 1)))


def required(model: type[BaseRequest]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: values(model, name) for name in model.required()})


@pytest.mark.parametrize("field", NO_TEXT, ids=named)
@given(data=st.data())
@settings(max_examples=10)
def test_a_value_as_json_in_a_text_is_that_value(field: tuple[type[BaseRequest], str], data: st.DataObject) -> None:
    """Contract: JSON in a string for lists and objects, `"5"`, `"true"`: the schema leaves no other reading."""
    model, name = field
    given = data.draw(required(model))
    value = data.draw(values(model, name))
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    text = text.title() if isinstance(value, bool) and data.draw(st.booleans()) else text

    assert model.read(given | {name: f" {text}\n"}, "call") == model.read(given | {name: value}, "call")


@pytest.mark.parametrize("field", OPTIONAL, ids=named)
@given(data=st.data())
@settings(max_examples=6)
def test_what_is_optional_may_be_empty_or_null(field: tuple[type[BaseRequest], str], data: st.DataObject) -> None:
    """Contract: `""` and `"null"` for what is optional is the field left out."""
    model, name = field
    given = data.draw(required(model))

    assert model.read(given | {name: data.draw(st.sampled_from(LEFT_OUT))}, "call") == model.read(given, "call")


@pytest.mark.parametrize("text", ["null", "[1, 2]", '["a", "b"]', "5", "true", '{"a": 1}', '"quoted"'])
def test_a_text_that_looks_like_json_stays_a_text(text: str) -> None:
    """Contract: where a text is allowed, what looks like JSON is that text."""
    assert requests.SaveMemory.of(text).content == text
    assert requests.SearchMemory.of(text).query == text
    assert requests.SetActiveContext.of("k", text).value == text
    assert requests.SearchMemory.of("q", tags=[text]).tags == (text,)


@pytest.mark.parametrize("text", ["five", "5 days", "[5]", "0x5", "NaN", "true"])
def test_a_text_that_is_no_number_is_refused_as_it_was_sent(text: str) -> None:
    with pytest.raises(BadInput, match="allowed is a whole number from 1 to 50"):
        requests.SearchMemory.of("q", limit=text)


SENT: dict[str, Any] = {
    "content": "The cache port is 6380",
    "tags": '["ports", "cache"]',
    "importance": "0.7",
    "confidence": "0.95",
    "files": "[]",
    "replaces": "null",
    "visibility": "",
}
ASKED: dict[str, Any] = {
    "query": "cache port",
    "tags": '["cache", "x"]',
    "layers": '["verified_fact"]',
    "limit": "3",
    "include_pending": "true",
    "since": "",
    "until": "null",
}


@in_event_loop
async def test_an_mcp_client_may_send_texts_for_values(core: Core, project: Path) -> None:
    server = build_server(core, profile="compat", read_only=False, project_dir=str(project))
    async with Client(server) as client:

        async def ask(tool: str, **arguments: Any) -> dict[str, Any]:
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, result.content[0].text
            return result.structured_content or json.loads(result.content[0].text)

        saved = await ask("save_memory", **SENT)
        found = await ask("search_memory", **ASKED)
        older = await ask("memory_search", query="cache port", limit="3", filter='{"tags": "[\\"cache\\"]"}')
        stored = await ask("add_memory", text="The queue port is 5672", metadata='{"tags": ["ports"]}')
        memory = await ask("get_memory", id=stored["id"])

    assert [snippet["id"] for snippet in found["snippets"]] == [saved["id"]]
    assert [snippet["id"] for snippet in older["snippets"]] == [saved["id"]]
    assert [tag["name"] for tag in memory["tags"]] == ["ports"]


@pytest.fixture
def served(tmp_path: Path, project: Path, clock: ManualClock) -> Iterator[tuple[Served, dict[str, str]]]:
    with core_to_serve(tmp_path / "served", project, clock) as core:
        key = bearer(key_for(core, "acme", user="eve")[0])
        made = Served(build_http(core, core.settings, secret="secret"))
        yield made, key
        made.close()


def test_an_http_client_may_send_texts_for_values(served: tuple[Served, dict[str, str]]) -> None:
    server, key = served
    saved = server.ask("POST", "/v1/memory/store", headers=key, json=SENT | {"agent_id": "null", "zone": ""}).json()
    found = server.ask("POST", "/v1/memory/search", headers=key, json=ASKED).json()

    assert [snippet["id"] for snippet in found["snippets"]] == [saved["id"]]


def test_a_command_takes_texts_for_values(run: Callable[..., Any]) -> None:
    saved = run("add", SENT["content"], "--tag", SENT["tags"], "--visibility", "", "--json")
    assert saved.exit_code == 0, saved.output
    found = run("search", "cache port", "--tag", ASKED["tags"], "--since", "", "--until", "null", "--json")

    assert [snippet["id"] for snippet in json.loads(found.stdout)["snippets"]] == [json.loads(saved.stdout)["id"]]
