"""A tool's call: its row of the table, asked once however often the client sends it. No protocol, no arguments."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from memory_anchor import shapes
from memory_anchor.fields import BaseRequest
from memory_anchor.front.table import ROWS, Row
from memory_anchor.front.tool_specs import TOOLS
from memory_anchor.hashing import stable_hash
from memory_anchor.json_values import Record
from memory_anchor.memory import MemoryAnchor

CALLS: Mapping[str, Row] = {spec.name: ROWS[spec.row] for spec in TOOLS if spec.row in ROWS}
"""Tool name -> what it does. A tool of `tool_specs` without a row is not registered."""
WRITING = frozenset(spec.name for spec in TOOLS if spec.writes)
LASTING = frozenset({"remember_conversation"})
"""Writes whose answer is of many memories, and is kept beside the store; the others' lies with what they wrote."""


def answer(anchor: MemoryAnchor, name: str, asked: BaseRequest | Record) -> Record:
    """Return a tool's answer. asked: the checked request, or its arguments under our names. Raises BadInput."""
    row = CALLS[name]
    return row.answer(anchor, asked if isinstance(asked, BaseRequest) else row.request.read(asked, name))


def run(anchor: MemoryAnchor, name: str, asked: BaseRequest | Record) -> str:
    """Return a tool's answer as one compact JSON text; of a write that is sent again the first one."""
    row, actor, services = CALLS[name], anchor.actor, anchor.services
    request = asked if isinstance(asked, BaseRequest) else row.request.read(asked, name)

    def work() -> str:
        return shapes.compact(row.answer(anchor, request))

    if name not in WRITING:
        return work()
    turn: AbstractContextManager[None] = nullcontext()
    if request_id := getattr(request, "request_id", ""):
        whose = (actor.scope.account, actor.scope.project, actor.client, actor.scope.conversation, actor.person)
        turn = services.turn_of(stable_hash("tool", name, *whose, request_id))
    with turn:
        if not actor.nonce:
            return work()
        # Over the request as it came: a resent one gets its first answer, also one that stored nothing to find it by.
        key, what = stable_hash("tool", actor.scope.account, actor.nonce), stable_hash(name, repr(request))
        return services.answers.once(key, what, work, lasting=name in LASTING)
