"""Observation files: the strategy's fields, generalised, and their generated schema."""

import json
from pathlib import Path

import pytest

from memory_anchor.domain.errors import BadInput, Refused
from memory_anchor.domain.model import Actor, Scope
from memory_anchor.front.cli.observations import Observation, observation_schema
from memory_anchor.testing import ephemeral_core

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
    """What `python -m memory_anchor.front.cli.observations` prints is the template in `.ai/operations/templates`."""
    assert json.loads(TEMPLATE.read_text(encoding="utf-8")) == observation_schema()


def test_the_schema_requires_the_strategys_five_fields_and_knows_every_type():
    schema = observation_schema()
    assert set(schema["required"]) == {"type", "summary", "layer", "created_at", "author"}
    assert set(schema["properties"]["type"]["enum"]) == TYPES
    assert schema["properties"]["summary"]["maxLength"] == 200
    assert "null" not in json.dumps(schema)


def test_an_observation_becomes_a_fact_with_its_summary_as_key():
    asked = Observation.read(BUGFIX).to_call()
    assert asked.use_case == "save_memory"
    assert asked.arguments["key"] == "Empty queries return an empty list"
    assert asked.arguments["content"] == "search_memory('') returned None."
    assert asked.arguments["files"] == ["backend/memory.py:10-20"]


def test_an_observation_of_an_event_keeps_when_where_and_who():
    asked = Observation.read(EVENT).to_call()
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
        asked = Observation.read(wanted).to_call()
        outcome = getattr(anchor, asked.use_case)(**asked.arguments)
        assert outcome.id is not None


def test_author_and_time_of_an_observation_are_kept(tmp_path: Path):
    """Rule observation: who wrote it down and when are fields of what is stored, of facts and events."""
    core = ephemeral_core(tmp_path)
    here = core.anchor(Actor(scope=Scope(conversation="c", agent="tester")))
    earlier = {"files": [], "created_at": "2025-12-14T09:30:00Z"}
    fact = here.get(here.save_memory(**Observation.read(BUGFIX | earlier).to_call().arguments).id)
    event = here.get(here.log_event(**Observation.read(EVENT | earlier).to_call().arguments).id)

    for memory in (fact, event):
        assert memory.who == ("claude-code",)
        assert memory.stated_at.isoformat() == "2025-12-14T09:30:00+00:00"


def test_a_file_may_hold_several_observations():
    assert [observation.summary for observation in Observation.read_all([BUGFIX, EVENT])] == [
        BUGFIX["summary"],
        EVENT["summary"],
    ]
    with pytest.raises(BadInput, match="1 to 100"):
        Observation.read_all([])


def test_the_strategys_memory_entry_is_taken_whole(tmp_path: Path):
    """Rule entry: kind, scope, decay, sources, sentiment and `visibility: private` are accepted and mean something."""
    core = ephemeral_core(tmp_path)
    here = core.anchor(Actor(scope=Scope(account="acme", user="lena", conversation="c", agent="tester")))
    entry = {
        "content": "用户喜欢赛博朋克风格",
        "kind": "preference",
        "scope": {"account_id": "acme", "user_id": "lena", "conversation_id": "c"},
        "visibility": "private",
        "importance": 0.6,
        "decay": {"half_life_days": 30},
        "sources": [
            {"kind": "dag_node", "ref": "node-7"},
            {"kind": "file", "ref": "a.py", "locator": {"line_start": 3}},
        ],
        "sentiment": 0.8,
    }

    stored = here.get(here.save_memory(**entry).id)

    assert (stored.type.value, stored.visibility.value) == ("preference", "agent")
    assert (stored.half_life_days, stored.sentiment) == (30, 0.8)
    assert [(citation.kind, citation.ref, citation.locator.line_start) for citation in stored.citations] == [
        ("conversation", "node-7", None),
        ("file", "a.py", 3),
    ]
    stranger = core.anchor(Actor(scope=Scope(account="acme", user="lena", conversation="c", agent="another")))
    assert stranger.search("赛博朋克").snippets == ()
    for wrong, told in (
        ({"scope": {"user_id": "eve"}}, "scope.user_id is 'eve'"),
        ({"decay": {"half_life_days": 0}}, "half_life_days"),
        ({"sources": [{"kind": "rumour", "ref": "x"}]}, "kind one of"),
        ({"sentiment": 2}, "sentiment"),
        ({"scope": {"planet": "mars"}}, "account_id"),
    ):
        with pytest.raises((BadInput, Refused), match=told):
            here.save_memory(**entry | {"content": "another text"} | wrong)


def test_a_repeat_that_brings_tags_or_files_adds_them(tmp_path: Path):
    """Rule writer: a skipped save drops nothing that it says beside its text."""
    here = ephemeral_core(tmp_path).anchor(Actor(scope=Scope(conversation="c", agent="tester")))
    first = here.save_memory("Run smoke tests before a release", tags=["ci"], files=["ci.yml"])
    again = here.save_memory("Run smoke tests before a release", tags=["ci", "release"], files=["ci.yml", "deploy.sh"])

    assert (again.outcome.value, again.id) == ("skipped", first.id)
    stored = here.get(first.id)
    assert [tag.name for tag in stored.tags] == ["ci", "release"]
    assert [citation.ref for citation in stored.citations] == ["ci.yml", "deploy.sh"]
    version = stored.version
    here.save_memory("Run smoke tests before a release", tags=["ci"])
    assert here.get(first.id).version == version
