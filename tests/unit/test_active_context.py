"""L1: what a conversation has in mind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stores import file_store

from memory_anchor.domain.errors import BadInput, DiskFull
from memory_anchor.domain.model import Actor, Layer, Scope
from memory_anchor.domain.where import Where
from memory_anchor.layers.active_context import CONVERSATIONS_MAX, KEYS_MAX
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ManualClock, ephemeral_core
from memory_anchor.upkeep.job_kit import Limits
from memory_anchor.use_cases.memory import MemoryAnchor

NESTED: Any = []
for _ in range(200):
    NESTED = [NESTED]


def test_a_value_is_kept_for_its_conversation_alone(core: Core, agent: Actor, anchor: MemoryAnchor) -> None:
    """Rule L1.scope: lookup by key, per conversation."""
    anchor.set_active("current_topic", {"about": "search", "open": [1, 2]})
    other = core.anchor(replace(agent, scope=Scope(agent="claude-code", conversation="another")))

    assert anchor.active("current_topic")["current_topic"][0] == {"about": "search", "open": [1, 2]}
    assert other.active() == {}


def test_a_value_ends_at_its_own_deadline(anchor: MemoryAnchor, clock: ManualClock) -> None:
    """Rule L1.ttl: one hour unless said otherwise; each entry has its own deadline."""
    anchor.set_active("soon", 1, ttl_s=60)
    anchor.set_active("later", 2)

    clock.advance(seconds=61)
    assert list(anchor.active()) == ["later"]
    clock.advance(hours=1)
    assert anchor.active() == {}


def test_a_value_that_is_set_by_a_repeat_ends_when_it_did(core: Core, agent: Actor, clock: ManualClock) -> None:
    """Idempotency x time to live: a request that is sent again lengthens no life."""
    sent = core.anchor(replace(agent, nonce="n1"))
    until = sent.set_active("soon", 1, ttl_s=60)
    clock.advance(seconds=50)

    assert sent.set_active("soon", 1, ttl_s=60) == until
    clock.advance(seconds=11)

    assert sent.active() == {}


def test_nothing_of_it_is_written_to_the_store(core: Core, anchor: MemoryAnchor) -> None:
    """Rule L1.store: never written to Qdrant."""
    anchor.set_active("task_status", "debugging")

    assert core.stats()["total"] == 0


def test_ending_the_session_turns_it_into_one_event(anchor: MemoryAnchor) -> None:
    """Rule 3.1: L1 becomes L2 at the end of the conversation, once."""
    anchor.set_active("current_topic", "优化 search_memory 性能")
    anchor.set_active("pending_questions", ["是否需要添加缓存？"])

    (ended,) = anchor.end_session("Profiled search_memory.")

    event = anchor.get(ended.id)
    assert event.layer is Layer.EVENT_LOG
    assert "Profiled search_memory." in event.content
    assert "优化 search_memory 性能" in event.content
    assert "是否需要添加缓存" in event.content
    assert anchor.active() == {}
    assert anchor.end_session() == []


def test_a_client_that_goes_away_leaves_its_context_as_an_event(core: Core, agent: Actor, anchor: MemoryAnchor) -> None:
    """Rule 3.1: so does a connection that closes."""
    anchor.set_active("current_topic", "flaky test_edge")

    core.end_conversation(agent)

    assert ["flaky test_edge" in event.content for event in anchor.search_events()] == [True]


def test_closing_the_process_keeps_what_was_in_mind(tmp_path: Path, agent: Actor) -> None:
    """Rule 3.1: a process that drains writes L1 before it ends."""
    core = ephemeral_core(tmp_path / "closing", store=file_store(tmp_path / "store"))
    core.anchor(agent).set_active("current_topic", "release notes")

    core.close()

    (event,) = file_store(tmp_path / "store").scan("event_log", Where())[0]
    assert "release notes" in event.memory.content


def test_a_conversation_that_must_make_room_becomes_an_event(core: Core, agent: Actor) -> None:
    """Rule L1.bounds: what is pushed out by other conversations is not lost."""
    for number in range(CONVERSATIONS_MAX + 1):
        scope = Scope(agent="a", conversation=f"c{number}")
        core.anchor(replace(agent, scope=scope)).set_active("topic", f"topic {number}")

    assert [event.content for event in core.anchor(agent).search_events()] == ["topic: topic 0"]


@pytest.mark.parametrize(
    ("key", "value", "ttl_s", "sentence"),
    [
        ("", 1, 60, "key is empty"),
        ("k", {1, 2}, 60, "value is a set that is not JSON"),
        ("k", float("nan"), 60, "not JSON"),
        ("k", "x" * 20_000, 60, "value is 20002 bytes"),
        ("k", NESTED, 60, "nested too deep; allowed are 32"),
        ("k", 1, 0, "ttl_s is 0"),
        ("k", 1, 90_000, "ttl_s is 90000"),
    ],
)
def test_bad_input_is_one_sentence(anchor: MemoryAnchor, key: str, value: object, ttl_s: object, sentence: str) -> None:
    """Rule bad-input: JSON values, bounded."""
    with pytest.raises(BadInput, match=sentence):
        anchor.set_active(key, value, ttl_s=ttl_s)


def test_keys_are_bounded(anchor: MemoryAnchor) -> None:
    """Rule L1.bounds: at most so many keys; an old key may still be set."""
    for number in range(KEYS_MAX):
        anchor.set_active(f"k{number}", number)

    with pytest.raises(BadInput, match=f"allowed are {KEYS_MAX}"):
        anchor.set_active("one-more", 1)
    anchor.set_active("k0", "new")
    assert anchor.active("k0")["k0"][0] == "new"


def test_secrets_do_not_stay_in_mind_either(anchor: MemoryAnchor) -> None:
    """Rule safety: redacted before it is kept."""
    anchor.set_active("env", "密码:password=hunter2-Very-Long!")

    assert "hunter2" not in str(anchor.active())


@pytest.mark.parametrize(
    ("key", "value", "kept"),
    [
        ("db", {"password": "hunter2secret", "port": 5432}, {"password": "[redacted:password]", "port": 5432}),
        ("db", {"password": "hunter2secret", "user": "bob"}, {"password": "[redacted:password]", "user": "bob"}),
        (
            "db",
            [{"password": ["hunter2secret"]}, True, None, 0.5],
            [{"password": ["[redacted:password]"]}, True, None, 0.5],
        ),
        ("db", {"password": 20251215}, {"password": "[redacted:password]"}),
        ("password", "hunter2secret", "[redacted:password]"),
        ("db", {"ghp_0123456789abcdefghij": 1}, {"[redacted:token]": 1}),
        ("db", {"a <private>b</private>": "c <private>d", "e": "f"}, {"a": "c", "e": "f"}),
        ("db", {"x<private>1</private>": 1, "x<private>2</private>": 2}, {"x": 1, "x 2": 2}),
        (
            "db",
            {"hash": "d2c7f7b1", "at": "12:30", "n": 1734264000},
            {"hash": "d2c7f7b1", "at": "12:30", "n": 1734264000},
        ),
    ],
)
def test_a_secret_inside_a_value_goes_and_the_rest_of_the_value_stays(
    anchor: MemoryAnchor, key: str, value: Any, kept: Any
) -> None:
    """Rule safety: texts inside a value are cleaned one by one, and what a key names is judged with the key."""
    anchor.set_active(key, value)

    assert anchor.active(key)[key][0] == kept
    assert anchor.build_context("what is the db").text
    (ended,) = anchor.end_session()
    assert "hunter2" not in anchor.get(ended.id).content


def test_a_key_is_found_by_the_name_it_was_set_with(anchor: MemoryAnchor) -> None:
    """Rule safety: a key is cleaned where it is set and where it is asked for."""
    anchor.set_active("plan <private>of mine</private>", 1)

    assert anchor.active("plan <private>of mine</private>") == {"plan": anchor.active()["plan"]}


def test_a_value_that_cannot_be_read_costs_no_other(core: Core, agent: Actor, anchor: MemoryAnchor) -> None:
    """Rule L1.robust: it is told as its text; readers and the session's end go on."""
    anchor.set_active("topic", "search")
    active = core.services.active
    active.set(core.anchor(agent).actor.scope, "torn", '{"a":', expires_at=active.expiry_of(60))

    assert {key: value for key, (value, _) in anchor.active().items()} == {"topic": "search", "torn": '{"a":'}
    (ended,) = anchor.end_session()
    assert anchor.get(ended.id).content == 'topic: search\ntorn: {"a":'


@pytest.mark.parametrize(
    "end",
    [lambda core, agent: core.anchor(agent).end_session("done"), lambda core, agent: core.end_conversation(agent)],
    ids=["end_session", "end_conversation"],
)
def test_what_could_not_be_logged_stays_in_mind(
    core: Core, agent: Actor, anchor: MemoryAnchor, monkeypatch: pytest.MonkeyPatch, end: Callable[[Core, Actor], Any]
) -> None:
    """Rule 3.1: L1 is forgotten once its event is written, never before; what was set meanwhile is newer."""

    def full(*_: object) -> None:
        anchor.set_active("later", 2)
        anchor.set_active("file", "new.py")
        raise DiskFull("no room")

    anchor.set_active("topic", "search")
    anchor.set_active("file", "old.py")
    with monkeypatch.context() as patched:
        patched.setattr(core.services.events, "log", full)
        with pytest.raises(DiskFull):
            end(core, agent)

    kept = {key: value for key, (value, _) in anchor.active().items()}
    assert kept == {"topic": "search", "later": 2, "file": "new.py"}
    end(core, agent)
    assert "topic: search" in anchor.search_events()[0].content
    assert anchor.active() == {}


def test_a_conversation_that_cannot_be_logged_keeps_no_other_from_it(
    tmp_path: Path, agent: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 3.1: closing goes on to the next conversation, and to the store."""
    core = ephemeral_core(tmp_path / "closing", store=file_store(tmp_path / "store"))
    for name in ("a", "b"):
        core.anchor(replace(agent, scope=Scope(agent="x", conversation=name))).set_active("topic", name)
    log = core.services.events.log

    def torn(actor: Actor, *rest: Any) -> Any:
        if actor.scope.conversation == "a":
            raise DiskFull("no room")
        return log(actor, *rest)

    monkeypatch.setattr(core.services.events, "log", torn)
    core.close()

    events, _ = file_store(tmp_path / "store").scan("event_log", Where())
    assert [event.memory.content for event in events] == ["topic: b"]


def _talk(anchor: MemoryAnchor, clock: ManualClock, subject: str) -> None:
    more = " What else was said about it took a good while and is not needed to know what had happened."
    for step in ("was slow", "was measured", "got an index", "was fast again"):
        anchor.log_event(f"The {subject} {step}.{more}")
        clock.advance(minutes=1)


def _stories(core: Core, clock: ManualClock) -> int:
    return int(core.scheduler.run("consolidate", clock.now(), Limits()).counts["stories"])


@pytest.mark.parametrize("how", ["end_session", "twice", "with a value", "the client goes"])
def test_an_ended_conversation_is_told_at_the_next_run(
    core: Core, agent: Actor, anchor: MemoryAnchor, clock: ManualClock, how: str
) -> None:
    """Rule consolidate.ended: told once its session ends, also with nothing to store; others wait."""
    _talk(anchor, clock, "report")
    _talk(core.anchor(replace(agent, scope=Scope(agent="claude-code", conversation="another"))), clock, "import")
    assert _stories(core, clock) == 0

    if how == "with a value":
        anchor.set_active("current_topic", "the report")
    for _ in range(1 + (how == "twice")):
        if how == "the client goes":
            core.end_conversation(agent)
        else:
            anchor.end_session()

    assert _stories(core, clock) == 1


def test_a_conversation_that_goes_on_after_its_end_waits_again(
    core: Core, anchor: MemoryAnchor, clock: ManualClock
) -> None:
    """Rule consolidate.ended: what is said after an end is told after the next one, and nothing twice."""
    _talk(anchor, clock, "report")
    anchor.end_session()
    clock.advance(minutes=1)
    _talk(anchor, clock, "export")

    assert _stories(core, clock) == 0
    anchor.end_session()
    assert _stories(core, clock) == 1
    assert _stories(core, clock) == 0
