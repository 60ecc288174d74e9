"""How one version of a memory becomes the next: pure, the only place that counts versions.

A version's content never changes once stored. Whatever alters a memory (an edit, an approval, forgetting, undoing)
writes a new version and closes the old one in one batch, so that history, `as_of` and undo need no separate log. Usage
and receipts belong to the memory and not to a version: they move on to the new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import TypeAlias

from memory_anchor.base.json_values import Json
from memory_anchor.domain.model import FOREVER, SEARCHABLE_STATES, Citation, Memory, Scope, Tag
from memory_anchor.domain.where import Between, Condition

FieldValue: TypeAlias = "Json | Enum | datetime | Tag | Citation | Sequence[Tag | Citation]"
"""The value of a field of meaning."""
BOOKKEEPING = frozenset(
    {
        "id",
        "version",
        "previous_version_id",
        "recorded_at",
        "recorded_to",
        "first_recorded_at",
        "content_at",
        "is_current",
        "author",
        "reason",
        "written_in",
        "usage",
        "receipts",
        "revision",
    }
)
"""Fields that say which version this is, who wrote it and how it was used; the others say what is remembered."""

MEANING = tuple(each.name for each in fields(Memory) if each.name not in BOOKKEEPING)
"""Fields that a revision may change and that undo gives back."""
RAISED_IN_PLACE = "priority"
"""A repeat raises it without a new version, so two versions that differ in it alone say the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft(Memory):
    """A memory to be: checked, redacted, without an id, an owner and its times, which writing it gives.

    confidence: as claimed, or as the gate assessed it for the word `doubt`. quoted: extracted with a verbatim quote.
    replaces: the id of what it corrects. redactions: kinds of what was taken out of its text.
    """

    id: str = ""
    scope: Scope = field(default_factory=Scope)
    recorded_at: datetime = FOREVER
    valid_from: datetime = FOREVER
    doubt: str = ""
    quoted: bool = False
    replaces: str | None = None
    redactions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Revision:
    """The two points that one change writes in one batch."""

    new: Memory
    closed: Memory


def revise(
    current: Memory, changed: Memory, *, at: datetime, author: str, reason: str, written_in: str = ""
) -> Revision:
    """Return the next version of `current`, and `current` closed at the same instant.

    changed: `current` with the new values, bookkeeping untouched.
    at: when the change was made; a clock that went back counts as the instant `current` was recorded, so that no
    version ends before it began. written_in: the conversation that made the change, "" for jobs.
    Raises ValueError: `current` is history already, or `changed` differs in a bookkeeping field.

    >>> from datetime import UTC
    >>> from memory_anchor.domain.model import Layer, MemoryType, Scope, Status
    >>> t = datetime(2026, 1, 1, tzinfo=UTC)
    >>> first = Memory("m1", "Use uv", Layer.VERIFIED_FACT, MemoryType.DECISION, Scope(), recorded_at=t, valid_from=t)
    >>> stale = replace(first, status=Status.ARCHIVED)
    >>> step = revise(first, stale, at=t.replace(month=2), author="me", reason="stale")
    >>> step.new.version_id, step.new.state, step.new.learned_at == t, step.closed.state
    ('m1@2', 'archived', True, 'history')
    """
    if not current.is_current:
        raise ValueError(f"{current.version_id} is history; only the current version can be revised")
    refused = sorted(name for name in BOOKKEEPING if getattr(changed, name) != getattr(current, name))
    if refused:
        raise ValueError(f"a revision cannot change {', '.join(refused)}")
    at = max(at, current.recorded_at)
    new = replace(
        changed,
        version=current.version + 1,
        previous_version_id=current.version_id,
        recorded_at=at,
        recorded_to=None,
        first_recorded_at=current.learned_at,
        content_at=current.stated_at if changed.content == current.content else None,
        author=author,
        reason=reason,
        written_in=written_in,
    )
    return Revision(new, replace(current.closed(at), receipts=()))


def parse_version_id(version_id: str | None) -> tuple[str, int] | None:
    """Return (id, version) of `m1@2`, None for anything else.

    >>> parse_version_id("m1@2"), parse_version_id("m1"), parse_version_id(None)
    (('m1', 2), None, None)
    """
    memory_id, at, number = (version_id or "").rpartition("@")
    return (memory_id, int(number)) if at and number.isdigit() else None


def with_meaning_of(current: Memory, source: Memory) -> Memory:
    """Return `current` with every field of meaning taken from another version."""
    return replace(current, **{name: getattr(source, name) for name in MEANING})


def same_meaning(first: Memory, second: Memory) -> bool:
    """Return whether two versions say the same, whoever wrote them and whenever."""
    return changed_fields(first, second).keys() <= {RAISED_IN_PLACE}


def changed_fields(older: Memory, newer: Memory) -> dict[str, tuple[FieldValue, FieldValue]]:
    """Return field -> (before, after) for every field of meaning in which two versions differ."""
    return {
        name: (getattr(older, name), getattr(newer, name))
        for name in MEANING
        if getattr(older, name) != getattr(newer, name)
    }


def written_by(memory: Memory) -> str:
    """Return the conversation that wrote this version; version 1 was written in its own scope's conversation."""
    return memory.written_in or (memory.scope.conversation if memory.version == 1 else "")


def believed_at(versions: Iterable[Memory], instant: datetime) -> Memory | None:
    """Return the version that was believed at `instant` (recorded_at <= instant < recorded_to), if any.

    Versions of one memory never overlap, so there is at most one; the highest wins should a crash have left two.
    """
    believed = (v for v in versions if v.recorded_at <= instant and (v.recorded_to is None or instant < v.recorded_to))
    return max(believed, key=lambda v: v.version, default=None)


def has_expired(memory: Memory, at: datetime) -> bool:
    """Return whether an event's time to live is over at `at` (rule L2.ttl), archived already or not."""
    return memory.expires_at is not None and memory.expires_at <= at


def expired_by(at: datetime) -> Condition:
    """Return the condition, for `none_of` of a filter, that an event has expired; no TTL, no such field."""
    return Between("expires_at", below=at + timedelta(microseconds=1))


def was_searchable(version: Memory) -> bool:
    """Return whether a plain search could find this version while it was the current one."""
    return version.status.value in SEARCHABLE_STATES
