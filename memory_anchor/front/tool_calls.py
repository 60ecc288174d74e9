"""What each tool does: one use case, one shape. Plain functions, run on worker threads.

Arguments come under our own names, checked for existence only; `MemoryAnchor` checks the values. Nothing here words an
error or knows a protocol, so the same table could serve any front end that speaks in tools.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from memory_anchor import inputs, shapes
from memory_anchor.anchor import MemoryAnchor
from memory_anchor.curation import Curation
from memory_anchor.front.tool_specs import TOOLS, Arguments
from memory_anchor.hashing import stable_hash
from memory_anchor.language.persons import worded
from memory_anchor.model import Memory
from memory_anchor.shapes import Json

WRITING = frozenset(spec.name for spec in TOOLS if spec.writes)
LASTING = frozenset({"remember_conversation"})
"""Writes whose answer is of many memories, and is kept beside the store; the others' lies with what they wrote."""
Tool = Callable[[MemoryAnchor, Arguments], Json]


def get_constitution(anchor: MemoryAnchor, _: Arguments) -> Json:
    return shapes.constitution(anchor.constitution())


def search_memory(anchor: MemoryAnchor, given: Arguments) -> Json:
    return shapes.search_answer(anchor.search(**given), reader=anchor.actor.scope)


def save_memory(anchor: MemoryAnchor, given: Arguments) -> Json:
    return shapes.outcome(anchor.save_memory(**given))


def log_event(anchor: MemoryAnchor, given: Arguments) -> Json:
    return shapes.outcome(anchor.log_event(**given))


def promote_to_fact(anchor: MemoryAnchor, given: Arguments) -> Json:
    return shapes.outcome(anchor.promote(**given))


def propose_constitution_change(anchor: MemoryAnchor, given: Arguments) -> Json:
    return shapes.proposal(anchor.propose(**given))


def search_events(anchor: MemoryAnchor, given: Arguments) -> Json:
    return shapes.events(anchor.search_events(**given), reader=anchor.actor.scope)


def get_memory(anchor: MemoryAnchor, given: Arguments) -> Json:
    wanted = inputs.flag("history", given.get("history", False))
    memory = anchor.get(given["id"])
    shaped = shaped_memory(anchor, memory) | {"content": worded(memory, anchor.actor.scope)}
    if not wanted:
        return shaped
    return shapes.with_history(
        shaped,
        anchor.history(memory.id),
        now=anchor.services.clock.now(),
        reader=anchor.actor.scope,
        activation=anchor.services.activation,
    )


def shaped_memory(anchor: MemoryAnchor, memory: Memory) -> Json:
    """Return a memory as this caller may see it now."""
    now, reader = anchor.services.clock.now(), anchor.actor.scope
    return shapes.memory(memory, now=now, reader=reader, activation=anchor.services.activation)


def forget_memory(anchor: MemoryAnchor, given: Arguments) -> Json:
    return shapes.outcome(anchor.forget(given["id"], given.get("reason")))


def get_active_context(anchor: MemoryAnchor, given: Arguments) -> Json:
    return shapes.active(anchor.active(**given), now=anchor.services.clock.now())


def set_active_context(anchor: MemoryAnchor, given: Arguments) -> Json:
    return {"ok": True, "expires_at": shapes.time_text(anchor.set_active(**given))}


def end_session(anchor: MemoryAnchor, given: Arguments) -> Json:
    return shapes.outcomes(anchor.end_session(**given))


def find_operations(anchor: MemoryAnchor, given: Arguments) -> Json:
    return shapes.operations(anchor.find_operations(**given))


def build_context(anchor: MemoryAnchor, given: Arguments) -> Json:
    return shapes.built_context(anchor.build_context(**given), reader=anchor.actor.scope)


def remember_conversation(anchor: MemoryAnchor, given: Arguments) -> Json:
    done, notes = anchor.remember_conversation(**given)
    return shapes.remembered(done, notes)


def resolve_conflict(anchor: MemoryAnchor, given: Arguments) -> Json:
    return shapes.outcome(Curation(anchor).settle(given["id"], given["resolution"]))


CALLS: Mapping[str, Tool] = {
    call.__name__: call
    for call in (
        get_constitution,
        search_memory,
        save_memory,
        log_event,
        promote_to_fact,
        propose_constitution_change,
        search_events,
        get_memory,
        forget_memory,
        get_active_context,
        set_active_context,
        end_session,
        find_operations,
        build_context,
        remember_conversation,
        resolve_conflict,
    )
}
"""Tool name -> what it does. A tool of `tool_specs` without a call here is not registered."""


def run(anchor: MemoryAnchor, name: str, given: Mapping[str, Any]) -> str:
    """Return a tool's answer as one compact JSON text."""
    actor = anchor.actor

    def work() -> str:
        return shapes.compact(CALLS[name](anchor, dict(given)))

    if name not in WRITING or not actor.nonce:
        return work()
    # Over the request as it came: a resent one gets its first answer, also one that stored nothing to find it by.
    asked = stable_hash(name, json.dumps(given, sort_keys=True, default=str))
    key = stable_hash("tool", actor.scope.account, actor.nonce)
    return anchor.services.answers.once(key, asked, work, lasting=name in LASTING)
