"""What a row of the table is, and how one is made; an extension brings its own (`Extension.rows`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from memory_anchor.base.json_values import Record
from memory_anchor.domain.requests.fields import BaseRequest
from memory_anchor.use_cases.memory import MemoryAnchor

A = TypeVar("A")
Shelf = Literal["minimal", "standard", "full"]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What an agent is shown of a row. shelf: the smallest profile that lists it. row, request: of the row that has it.

    effect: reads; adds, so that a repeat adds once more; sets, and a repeat changes nothing more; removes likewise.
    """

    name: str
    description: str
    shelf: Shelf = "standard"
    effect: Literal["reads", "adds", "sets", "removes"] = "reads"
    row: str = ""
    request: type[BaseRequest] = BaseRequest


@dataclass(frozen=True, slots=True)
class Row:
    """answer(anchor, request): the use case's answer to this request, as JSON."""

    name: str
    request: type[BaseRequest]
    use_case: Callable[..., object]
    answer: Callable[[MemoryAnchor, BaseRequest], Record]
    tool: ToolSpec | None = None


def as_is(answer: Record, _: MemoryAnchor) -> Record:
    """Return an answer that is JSON already."""
    return answer


def row(
    name: str,
    request: type[BaseRequest],
    use_case: Callable[..., A],
    view: Callable[[A, MemoryAnchor], Record],
    tool: ToolSpec | None = None,
) -> Row:
    """Return a row. view: turns the use case's answer into what this caller is shown. tool: under which name an agent
    may call it, None for none."""
    told = None if tool is None else replace(tool, row=name, request=request)
    return Row(name, request, use_case, lambda anchor, request: view(use_case(anchor, request), anchor), told)


def for_reader(view: Callable[..., Record]) -> Callable[[object, MemoryAnchor], Record]:
    """Return the view of an answer whose shape depends on who reads it."""
    return lambda answer, anchor: view(answer, reader=anchor.actor.scope)
