"""Requests are types: what is asked is stated once, checked in one sentence, and recognised when it comes again."""

from __future__ import annotations

import inspect
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pytest

from memory_anchor.base.json_schema import schema_of
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import Memory, MemoryType
from memory_anchor.domain.requests import requests as asks
from memory_anchor.domain.requests.fields import BaseRequest, Moment, tool_schema
from memory_anchor.extensions.transfer.requests import ImportedLine
from memory_anchor.front.cli import care, memories
from memory_anchor.front.cli.generated import Command
from memory_anchor.front.table import ROWS
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor
from memory_anchor.use_cases.writes import CARRIED

COMMANDS = [*memories.COMMANDS, *care.COMMANDS, *care.JOBS]


@pytest.mark.parametrize(
    ("request_type", "given", "message"),
    [
        (asks.SaveMemory, {}, "save lacks the argument 'content'; required are content"),
        (asks.SaveMemory, {"content": 5}, "content is a number; allowed is text of 1 to 8000 characters"),
        (asks.SaveMemory, {"content": " "}, "content is empty; allowed is text of 1 to 8000 characters"),
        (asks.SaveMemory, {"content": "x" * 8001}, "content is 8001 characters long; allowed are 1 to 8000"),
        (asks.SaveMemory, {"content": "a\0b"}, "content has a NUL character at position 1; allowed is text"),
        (asks.SaveMemory, {"content": "\ud800"}, "content has a lone surrogate; allowed is valid Unicode text"),
        (asks.SaveMemory, {"content": "a", "importance": 2}, "importance is 2; allowed is a number from 0 to 1"),
        (asks.SaveMemory, {"content": "a", "confidence": True}, "confidence is True; allowed is a number from 0 to 1"),
        (asks.SaveMemory, {"content": "a", "tags": [5]}, "tags[0] is 5; allowed is text of 1 to 64 characters"),
        (asks.SaveMemory, {"content": "a", "visibility": "me"}, "visibility is 'me'; allowed are conversation, agent"),
        (asks.LogEvent, {"content": "a", "ttl_days": -1}, "ttl_days is -1; allowed is a whole number from 0 to 36500"),
        (asks.LogEvent, {"content": "a", "when": "soon"}, "when is 'soon'; allowed is an ISO 8601 time such as"),
        (asks.SearchMemory, {"query": "a", "limit": 51}, "limit is 51; allowed is a whole number from 1 to 50"),
        (asks.SearchMemory, {"query": "a", "layers": ["x"]}, "layers[0] is 'x'; allowed are identity_schema"),
        (asks.SearchMemory, {"quary": "a"}, "save got the unknown argument 'quary'; allowed are query, layers"),
        (asks.ResolveConflict, {"id": "a", "resolution": "x"}, "resolution is 'x'; allowed are keep_new, keep_old"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(request_type: type[BaseRequest], given: Any, message: str) -> None:
    """Rule errors: what, the value, what is allowed; from the model's own bounds."""
    with pytest.raises(BadInput) as refused:
        request_type.read(given, "save")
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


def test_every_field_that_a_request_and_a_memory_share_is_decided_on(anchor: MemoryAnchor, core: Core) -> None:
    """Writes: it is carried over as it was given, or first made out; a new one belongs to one of both."""
    given: dict[str, Any] = {"author": "ann", "content": "The ferry left at nine", "importance": 0.25, "key": "ferry"}
    given |= {"sentiment": -0.5, "tags": ("sea",), "type": MemoryType.EPISODE, "ttl_days": 9, "where": "pier 4"}
    made_out = {"confidence", "layer", "scope", "visibility", "when", "who"}
    shared = {field.name for field in fields(Memory)}
    shared &= asks.SaveMemory.model_fields.keys() | asks.LogEvent.model_fields.keys()
    assert (shared & CARRIED, shared - CARRIED) == (given.keys(), made_out)

    logged = anchor.log_event(**given)
    kept = anchor.save_memory(**{name: given[name] for name in given.keys() - {"ttl_days", "where", "type"}})

    for outcome, names in ((logged, given.keys()), (kept, given.keys() - {"ttl_days", "where", "type"})):
        memory = core.services.records.read(outcome.id or "", None)
        tags = tuple(tag.name for tag in memory.tags)
        assert {name: tags if name == "tags" else getattr(memory, name) for name in names} == {
            name: given[name] for name in names
        } | {"author": memory.author}
        assert "ann" in memory.who


def test_values_leave_in_one_kind() -> None:
    """One text is a list of one, repeats go, names come in any case, older ones too, secrets never leave."""
    search = asks.SearchMemory.of("  q ", layers="Fact", tags=["a", "a"], limit=5.0)
    save = asks.SaveMemory.of(
        "x", tags=["a", {"name": "a", "weight": 2}], key="token ghp_" + "a1B2" * 9, type="EPISODIC"
    )

    assert (search.query, [one.value for one in search.layers], search.tags, search.limit) == (
        "q",
        ["verified_fact"],
        ("a",),
        5,
    )
    assert [(tag.name, tag.weight) for tag in save.tags] == [("a", 2)]
    assert "ghp_" not in save.key
    assert save.type.value == "episode"


def test_a_date_is_a_whole_day_where_its_caller_is() -> None:
    """Contract: a time without a zone is local; a bare date as an end counts to the end of that day."""
    day = asks.SearchMemory.of("q", since="2026-01-02").since
    assert isinstance(day, Moment)

    assert day.start("Asia/Shanghai") == datetime(2026, 1, 1, 16, tzinfo=UTC)
    assert day.end("Asia/Shanghai") == datetime(2026, 1, 2, 16, tzinfo=UTC)
    assert asks.LogEvent.of("x", when="2026-01-02T03:00:00+08:00").when.start("UTC").day == 1


def test_a_request_tells_itself_from_others_by_what_was_asked() -> None:
    """Rule idempotence: what a receipt's hash is over; how it is named and ranked is not part of it."""
    one = asks.SaveMemory.of("x", importance=0.1, request_id="a", source="agent")

    assert one.canonical() == asks.SaveMemory.of("x", request_id="b").canonical()
    assert one.canonical() != asks.SaveMemory.of("x", replaces="m1").canonical()
    assert set(one.canonical()) == {"content", "key", "tags", "visibility", "files", "type", "confidence", "replaces"}


def test_a_line_of_an_import_claims_nothing_but_what_counts() -> None:
    """Attack A28: ids, states, origins and requests of a foreign line are nobody's to claim."""
    line = ImportedLine.read(
        {"content": "x", "id": "m1", "origin": "human", "request_id": "r", "pinned": True}, "line 1"
    )

    assert (line.content, line.request_id, line.source) == ("x", "", None)


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.name)
def test_a_row_asks_the_door_by_its_request(row: Any) -> None:
    """Rule door: one method a request; defaults are within their own bounds."""
    method = inspect.signature(inspect.unwrap(row.use_case))
    assert next(iter(method.parameters)) in ("self", "anchor")
    for name, field in schema_of(row.request)["properties"].items():
        if "minimum" in field and field.get("default") is not None:
            assert field["minimum"] <= field["default"] <= field["maximum"], name


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_option_of_a_command_is_a_field_of_its_request(command: Command) -> None:
    """Rule once: options are made from the request; only what no request knows is stated beside it."""
    beside = {"json_", "human", "at", *(one.name for one in command.extra)}
    options = set(command.callback().__annotations__) - beside
    fields = {name for _, name in command._fields()}

    assert len(options) == len(fields) <= len(ROWS[command.call_name].request.model_fields)


def test_a_tools_schema_says_in_words_what_the_model_bounds() -> None:
    """Contract: limits and defaults stand in words, since some clients drop them elsewhere."""
    shown = tool_schema(asks.SearchMemory)

    assert shown["required"] == ["query"]
    assert shown["properties"]["limit"] == {"type": "integer", "description": "1-50, default 5"}
    assert "source" not in tool_schema(asks.SaveMemory)["properties"]


def test_a_refused_value_is_shown_cleaned_and_in_at_most_40_characters() -> None:
    """Rule safety.door: who is told what was wrong reads little of it, and no secret though the cut runs through it."""
    secret = "password=hunter2secret-9917"

    with pytest.raises(BadInput) as refused:
        asks.SaveMemory.of("The port is 8080.", visibility="z" * 30 + " " + secret + "z" * 300)

    said = str(refused.value)
    assert "hunter2" not in said and "z" * 30 in said
    assert "z" * 41 not in said and len(said) < 200
