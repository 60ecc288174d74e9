"""Observation files: the strategy's fields, generalised, and their generated schema."""

import json
from pathlib import Path

import pytest

from memory_anchor.errors import BadInput
from memory_anchor.observation import Observation, observation_schema

TEMPLATE = Path(__file__).parents[2] / ".ai" / "operations" / "templates" / "observation.json"
BUGFIX = {
    "type": "bugfix",
    "summary": "Empty queries return an empty list",
    "details": "search_memory('') returned None.",
    "files": ["backend/memory.py:10-20"],
    "layer": "verified_fact",
    "tags": ["search"],
    "created_at": "2025-12-15T14:30:00Z",
    "author": "claude-code",
}
TYPES = {
    *("decision", "bugfix", "refactor", "preference", "fact", "instruction", "workflow", "project_state", "bookmark"),
    *("event", "discovery", "note", "emotion", "episode", "summary"),
}
"""As the contract lists them: nine facts, six events."""
EVENT = {**BUGFIX, "type": "event", "layer": "session", "when": "2025-12-15T14:00:00+08:00", "where": "memory.py"}


def test_the_template_is_what_the_model_says():
    """`.ai/operations/templates/observation.json` is generated: `python -m memory_anchor.observation` prints it."""
    assert json.loads(TEMPLATE.read_text(encoding="utf-8")) == observation_schema()


def test_the_schema_requires_the_strategys_five_fields_and_knows_every_type():
    schema = observation_schema()
    assert set(schema["required"]) == {"type", "summary", "layer", "created_at", "author"}
    assert set(schema["properties"]["type"]["enum"]) == TYPES
    assert schema["properties"]["summary"]["maxLength"] == 200
    assert "null" not in json.dumps(schema)


def test_an_observation_becomes_a_fact_with_its_summary_as_key():
    asked = Observation.read(BUGFIX).asks()
    assert asked.use_case == "save_memory"
    assert asked.arguments["key"] == "Empty queries return an empty list"
    assert asked.arguments["content"] == "search_memory('') returned None."
    assert asked.arguments["files"] == ["backend/memory.py:10-20"]


def test_an_observation_of_an_event_keeps_when_where_and_who():
    asked = Observation.read(EVENT).asks()
    assert asked.use_case == "log_event"
    assert asked.arguments["when"] == "2025-12-15T14:00:00+08:00"
    assert (asked.arguments["where"], asked.arguments["who"]) == ("memory.py", ["claude-code"])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"summary": "x" * 201}, "summary"),
        ({"type": "rumour"}, "type"),
        ({"colour": "red"}, "unknown argument 'colour'; allowed are type"),
        ({"layer": "moon"}, "layer"),
        ({"created_at": "soon"}, "created_at"),
    ],
)
def test_a_wrong_field_is_named_in_one_sentence(change, told):
    with pytest.raises(BadInput) as failure:
        Observation.read({**BUGFIX, **change})
    assert told in str(failure.value)
    assert "\n" not in str(failure.value)


def test_a_missing_field_is_named_with_all_that_are_required():
    with pytest.raises(BadInput, match="lacks the argument 'author'; required are type, summary"):
        Observation.read({name: value for name, value in BUGFIX.items() if name != "author"})
    with pytest.raises(BadInput, match="a list"):
        Observation.read([])


def test_an_observation_can_be_stored(anchor):
    for wanted in (BUGFIX, EVENT):
        asked = Observation.read(wanted).asks()
        outcome = getattr(anchor, asked.use_case)(**asked.arguments)
        assert outcome.id is not None
