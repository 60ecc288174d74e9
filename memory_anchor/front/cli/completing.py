"""Values that a shell completes: ids by their beginning, projects, settings, and the words of what takes one of few.

Each is a function of what is typed so far, given to an option or argument as `autocompletion`. What is asked of the
memory is what an agent may read; a failure completes nothing and says nothing, since nobody could read it there.
No text of a memory is shown beside its id: zsh evaluates what a completion prints, and agents write memories. Names
that others chose are left out unless they are plain words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import get_args

from memory_anchor.errors import MemoryAnchorError
from memory_anchor.fields import Moment
from memory_anchor.front.cli.link import call
from memory_anchor.front.cli.output import LAYERS, layer_name, local
from memory_anchor.json_values import Record, items, record, records
from memory_anchor.model import Layer
from memory_anchor.runtime.wire import Misread

Completes = Callable[[str], list[tuple[str, str]]]
"""What is typed so far -> the values that begin so, each with what a shell may say beside it."""
IDS_MAX = 200
PLAIN, PLAIN_TEXT = re.compile(r"[\w.@=+/-]{1,200}"), re.compile(r"[\w.@=+/,-][\w .@=+/,-]{0,60}|")
SPOKEN = ("yesterday", "last Monday", "3 days ago", "last week", "昨天", "上周")


def words(*allowed: str) -> Completes:
    """Return what completes one of a few words."""
    return lambda incomplete: [(word, "") for word in allowed if word.startswith(incomplete)]


def of_kind(annotation: object) -> Completes | None:
    """Return what completes a request's field: the words of its enumeration or literal, times; None for any other."""
    kinds = list(_inner(annotation))
    if Layer in kinds:
        return words(*LAYERS.values(), *(one.value for one in Layer))
    if Moment in kinds:
        return words(*SPOKEN)
    named = [one for kind in kinds if isinstance(kind, type) and issubclass(kind, Enum) for one in kind]
    told = [str(one.value) for one in named] or [one for one in kinds if isinstance(one, str)]
    return words(*told) if told else None


def _inner(annotation: object) -> Iterator[object]:
    yield annotation
    for part in get_args(annotation):
        yield from _inner(part)


def _asked(incomplete: str, ask: Callable[[], Iterable[tuple[object, object]]]) -> list[tuple[str, str]]:
    """Return what was answered, begins so, and is plain to every shell."""
    try:
        found = [(str(value), str(about)) for value, about in ask()]
    except (MemoryAnchorError, Misread, OSError, KeyError):
        return []
    plain = [(value, about) for value, about in found if PLAIN.fullmatch(value) and value.startswith(incomplete)]
    return [(value, about if PLAIN_TEXT.fullmatch(about) else "") for value, about in plain]


def ids(incomplete: str) -> list[tuple[str, str]]:
    """The newest memories, and with some of an id those that begin so, whatever their state."""

    def ask() -> Iterator[tuple[object, object]]:
        for status in (None, "archived", "superseded") if incomplete else (None,):
            for one in records(call("list", status=status, limit=1_000 if incomplete else IDS_MAX)["memories"]):
                yield one["id"], _about(one)

    return _asked(incomplete, ask)


def pending(incomplete: str) -> list[tuple[str, str]]:
    """What waits for review."""

    def ask() -> Iterator[tuple[object, object]]:
        for one in records(call("inbox")["items"]):
            yield record(one["memory"])["id"], _about(record(one["memory"]))

    return _asked(incomplete, ask)


def _about(memory: Record) -> str:
    when = local(memory.get("when") or memory.get("recorded_at") or "")[:10]
    return f"{layer_name(memory['layer'])} {memory['type']} {when}"


def projects(incomplete: str) -> list[tuple[str, str]]:
    return _asked(
        incomplete,
        lambda: (
            (one["id"], next(iter(items(one["paths"])), "")) for one in records(call("projects_list")["projects"])
        ),
    )


def jobs(incomplete: str) -> list[tuple[str, str]]:
    return _asked(incomplete, lambda: ((one["name"], one["about"]) for one in records(call("jobs_list")["jobs"])))


def sources(incomplete: str) -> list[tuple[str, str]]:
    """Sources of knowledge by their id and by their kind."""

    def ask() -> Iterator[tuple[object, object]]:
        for one in records(call("knowledge_sources")["sources"]):
            yield one["id"], one["ref"]
            yield one["kind"], ""

    return _asked(incomplete, ask)


def lorebooks(incomplete: str) -> list[tuple[str, str]]:
    return _asked(incomplete, lambda: ((one["name"], one["file"]) for one in records(call("lorebook_list")["books"])))


def settings(incomplete: str) -> list[tuple[str, str]]:
    from memory_anchor.front.cli.setup import flat
    from memory_anchor.settings import Settings

    return _asked(incomplete, lambda: flat(Settings().model_dump(mode="json")))


def variants(incomplete: str) -> list[tuple[str, str]]:
    """Settings as `eval --variant` takes them; the last of several, behind a comma."""
    before, comma, last = incomplete.rpartition(",")
    return [(f"{before}{comma}{name}=", about) for name, about in settings(last)]


def reports(incomplete: str) -> list[tuple[str, str]]:
    return _asked(
        incomplete,
        lambda: ((one["id"], one["recorded_at"]) for one in records(call("context_reports")["reports"])),
    )


def keys(incomplete: str) -> list[tuple[str, str]]:
    """Ids of access keys, which lie in a file."""
    from memory_anchor.front.cli.served import keys_here

    return _asked(
        incomplete, lambda: ((one.id, f"{one.account} {one.role.value}") for one in keys_here().all().values())
    )


def proposals(incomplete: str) -> list[tuple[str, str]]:
    """Open proposals for the constitution."""
    from memory_anchor.front.cli.setup import identity

    return _asked(incomplete, lambda: ((one.id, one.status.value) for one in identity().proposals()))


def devices(incomplete: str) -> list[tuple[str, str]]:
    return _asked(
        incomplete,
        lambda: ((one["name"], "") for one in records(call("sync_status").get("devices", ())) if not one["here"]),
    )


OF_FIELDS: Mapping[str, Completes] = {"id": ids, "replaces": ids, "done": ids, "source": sources}
"""Of requests' fields that are no enumeration, by their name."""
