"""L1: what a conversation has in mind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memory_anchor.adapters.dict_store import DictStore
from memory_anchor.anchor import MemoryAnchor
from memory_anchor.core import Core
from memory_anchor.errors import BadInput
from memory_anchor.layers.active_context import CONVERSATIONS_MAX, KEYS_MAX
from memory_anchor.model import Actor, Layer, Scope
from memory_anchor.testing import ManualClock, ephemeral_core
from memory_anchor.where import Where


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


class KeptStore(DictStore):
    """The reference store, still readable after it was closed."""

    def close(self) -> None:
        self.flush()


def test_closing_the_process_keeps_what_was_in_mind(tmp_path: Path, agent: Actor) -> None:
    """Rule 3.1: a process that drains writes L1 before it ends."""
    store = KeptStore()
    core = ephemeral_core(tmp_path / "closing", store=store)
    core.anchor(agent).set_active("current_topic", "release notes")

    core.close()

    (event,) = store.scan("event_log", Where())[0]
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
