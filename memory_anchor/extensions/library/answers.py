"""What the library answers: the JSON of the front ends (`front/views.py`) as typed values that print well.

The names are those of the tools, the commands and HTTP. Cheap to import: nothing of the memory itself is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TypeVar, overload

from memory_anchor.base.json_values import (
    Json,
    Record,
    items,
    number,
    optional_text,
    record,
    records,
    text,
    texts,
    whole,
)

T = TypeVar("T")
SHOWN_CHARS = 100


def _at(value: Json) -> datetime | None:
    return datetime.fromisoformat(value) if isinstance(value, str) else None


def _names(value: Json) -> tuple[str, ...]:
    """Return the names of tags that come as {name, weight}."""
    return tuple(text(record(tag).get("name"), "") for tag in items(value))


def _short(words: str) -> str:
    line = " ".join(words.split())
    return line if len(line) <= SHOWN_CHARS else f"{line[: SHOWN_CHARS - 1]}…"


class _Printed:
    """A value whose repr leaves out what is at its default."""

    def __repr__(self) -> str:
        said = ", ".join(
            f"{each.name}={value!r}"
            for each in fields(self)  # type: ignore[arg-type]
            if each.repr and (value := getattr(self, each.name)) != each.default
        )
        return f"{type(self).__name__}({said})"


@dataclass(frozen=True, slots=True, repr=False)
class Snippet(_Printed):
    """One hit of a search. relevance: how likely it is right, 0 to 1. weak: it may be beside the point.

    when: of an event when it happened, of a fact since when it is known. more: what else the search says about it.
    """

    id: str
    text: str
    score: float
    layer: str
    type: str
    when: datetime | None = None
    relevance: float | None = None
    weak: bool = False
    tags: tuple[str, ...] = ()
    status: str = "active"
    citations: tuple[Record, ...] = ()
    more: Record = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, hit: Record) -> Snippet:
        relevance = hit.get("relevance")
        return cls(
            id=text(hit["id"]),
            text=text(hit["text"]),
            score=number(hit["score"]),
            layer=text(hit["layer"]),
            type=text(hit["type"]),
            when=_at(hit.get("when")),
            relevance=None if relevance is None else number(relevance),
            weak=bool(hit.get("weak")),
            tags=_names(hit.get("tags")),
            status=text(hit.get("status"), "active"),
            citations=tuple(records(hit.get("citations"))),
            more=_rest(hit, cls),
        )

    def __str__(self) -> str:
        about = [self.type, f"{self.when:%Y-%m-%d}" if self.when else "", "weak" if self.weak else ""]
        return f"{_short(self.text)} ({', '.join(filter(None, about))})"


@dataclass(frozen=True, slots=True, repr=False)
class Found(_Printed, Sequence[Snippet]):
    """The snippets of a search, best first. conflicts: pairs of ids that contradict each other."""

    snippets: tuple[Snippet, ...]
    conflicts: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, answer: Record) -> Found:
        return cls(
            tuple(map(Snippet.of, records(answer["snippets"]))),
            tuple(tuple(texts(pair)) for pair in items(answer.get("conflicts"))),
            tuple(texts(answer.get("notes"))),
        )

    @overload
    def __getitem__(self, place: int) -> Snippet: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Snippet]: ...
    def __getitem__(self, place: int | slice) -> Snippet | Sequence[Snippet]:
        return self.snippets[place]

    def __iter__(self) -> Iterator[Snippet]:
        return iter(self.snippets)

    def __len__(self) -> int:
        return len(self.snippets)

    def __str__(self) -> str:
        return "\n".join(map(str, self.snippets)) or "Nothing is remembered."


@dataclass(frozen=True, slots=True, repr=False)
class Written(_Printed):
    """What became of a write. outcome: added, updated, superseded, skipped, pending, rejected, needs_review, archived.

    id: of the memory that holds it now, None where nothing was stored.
    """

    outcome: str
    id: str | None
    layer: str
    status: str | None
    reason: str
    target_id: str = ""
    relation: str = ""
    similar: tuple[Record, ...] = ()
    redactions: tuple[str, ...] = ()

    @classmethod
    def of(cls, answer: Record) -> Written:
        return cls(
            outcome=text(answer["outcome"]),
            id=optional_text(answer.get("id")),
            layer=text(answer["layer"]),
            status=optional_text(answer.get("status")),
            reason=text(answer.get("reason"), ""),
            target_id=text(answer.get("target_id"), ""),
            relation=text(answer.get("relation"), ""),
            similar=tuple(records(answer.get("similar"))),
            redactions=tuple(texts(answer.get("redactions"))),
        )

    def __str__(self) -> str:
        return f"{self.outcome} {self.id or ''}".rstrip() + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True, slots=True, repr=False)
class StoredMemory(_Printed):
    """One memory or event as it is stored, or one version of it. more: its further fields, as `get_memory` has them."""

    id: str
    content: str
    layer: str
    type: str
    key: str = ""
    status: str = "active"
    tags: tuple[str, ...] = ()
    version: int = 1
    confidence: float | None = None
    importance: float | None = None
    origin: str = ""
    when: datetime | None = None
    where: str = ""
    who: tuple[str, ...] = ()
    recorded_at: datetime | None = None
    citations: tuple[Record, ...] = ()
    more: Record = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, shown: Record) -> StoredMemory:
        sure, weight = shown.get("confidence"), shown.get("importance")
        return cls(
            id=text(shown["id"]),
            content=text(shown["content"]),
            layer=text(shown["layer"]),
            type=text(shown["type"]),
            key=text(shown.get("key"), ""),
            status=text(shown.get("status"), "active"),
            tags=_names(shown.get("tags")),
            version=whole(shown.get("version"), 1),
            confidence=None if sure is None else number(sure),
            importance=None if weight is None else number(weight),
            origin=text(shown.get("origin"), ""),
            when=_at(shown.get("when")),
            where=text(shown.get("where"), ""),
            who=tuple(texts(shown.get("who"))),
            recorded_at=_at(shown.get("recorded_at")),
            citations=tuple(records(shown.get("citations"))),
            more=_rest(shown, cls),
        )

    @property
    def text(self) -> str:
        """Its words, by the name that a search has for them."""
        return self.content

    def __str__(self) -> str:
        at = self.when or self.recorded_at
        about = [self.type, f"{at:%Y-%m-%d}" if at else "", self.status if self.status != "active" else ""]
        return f"{_short(self.content)} ({', '.join(filter(None, about))})"


@dataclass(frozen=True, slots=True, repr=False)
class TaskContext(_Printed):
    """What a task needs to know, in one text for a prompt. report: what it cost and what was left out."""

    text: str
    citations: tuple[Record, ...] = ()
    report: Record = field(default_factory=dict, repr=False)
    report_id: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, answer: Record) -> TaskContext:
        found, notes = tuple(records(answer.get("citations"))), tuple(texts(answer.get("notes")))
        id = text(answer.get("report_id"), "")
        return cls(text(answer["text"]), found, record(answer.get("report", {})), id, notes)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, repr=False)
class ApprovedRules(_Printed):
    """L0: the rules that humans approved. entries: {id, content, priority, source}. tokens: their cost in a prompt."""

    entries: tuple[Record, ...]
    version: str = ""
    warnings: tuple[str, ...] = ()
    tokens: int = 0

    @classmethod
    def of(cls, answer: Record) -> ApprovedRules:
        version = text(answer.get("version"), "")
        warnings, tokens = tuple(texts(answer.get("warnings"))), whole(answer.get("tokens"), 0)
        return cls(tuple(records(answer["entries"])), version, warnings, tokens)

    def __str__(self) -> str:
        return "\n".join(f"- {entry['content']}" for entry in self.entries)


def _rest(shown: Record, kind: type) -> Mapping[str, Json]:
    """Return the fields for which a kind has no name of its own."""
    known = {each.name for each in fields(kind)}
    return {name: value for name, value in shown.items() if name not in known}
