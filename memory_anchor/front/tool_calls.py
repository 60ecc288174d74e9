"""A tool's call: its row of the table, asked once however often the client sends it. No protocol, no arguments."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

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
    actor = anchor.actor
    if name in WRITING and (request_id := _request_id(asked)):
        whose = (actor.scope.account, actor.scope.project, actor.client, actor.scope.conversation, actor.person)
        with anchor.services.turn_of(stable_hash("tool", name, *whose, request_id)):
            return _once(anchor, name, asked)
    return _once(anchor, name, asked)


def _request_id(asked: BaseRequest | Record) -> str:
    found = asked.get("request_id") if isinstance(asked, dict) else getattr(asked, "request_id", "")
    return found if isinstance(found, str) else ""


def _once(anchor: MemoryAnchor, name: str, asked: BaseRequest | Record) -> str:
    actor = anchor.actor
    if name not in WRITING or not actor.nonce:
        return shapes.compact(answer(anchor, name, asked))
    # Over the request as it came: a resent one gets its first answer, also one that stored nothing to find it by.
    key, what = stable_hash("tool", actor.scope.account, actor.nonce), stable_hash(name, repr(asked))
    work = partial(_compact, anchor, name, asked)
    return anchor.services.answers.once(key, what, work, lasting=name in LASTING)


def _compact(anchor: MemoryAnchor, name: str, asked: BaseRequest | Record) -> str:
    return shapes.compact(answer(anchor, name, asked))
