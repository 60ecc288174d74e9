"""Shell completion: ids by their beginning, projects, settings, and the words of options that take one of few.

Each completer is a function of what is typed so far, given to an option or argument as `autocompletion`. It reads what
an agent may read; a failure completes nothing, silently, since nobody could read a message there. No memory's text is
shown next to its id: zsh evaluates what a completion prints, and agents write memories. Names that others chose are
left out unless they are plain words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import typer

from memory_anchor.base.json_values import Record, items, record, records
from memory_anchor.domain.errors import MemoryAnchorError
from memory_anchor.front.cli.link import call
from memory_anchor.front.cli.output import flat, layer_name, local_time
from memory_anchor.runtime.wire import InvalidSetting

Completer = Callable[[str], list[tuple[str, str]]]
"""What is typed so far -> the values that begin so, each with a description for the shell."""
IDS_MAX = 200
PLAIN, PLAIN_TEXT = re.compile(r"[\w.@=+/-]{1,200}"), re.compile(r"[\w.@=+/,-][\w .@=+/,-]{0,60}|")


def words(*allowed: str) -> Completer:
    """Return what completes one of a few words."""
    return lambda incomplete: [(word, "") for word in allowed if word.startswith(incomplete)]


def choice(*allowed: str, note: str = "") -> object:
    """Return an option that takes one of a few words, which its help names. note: follows them."""
    named = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
    return typer.Option(help=f"{named}{note}.", autocompletion=words(*allowed))


def completed(incomplete: str, values: Callable[[], Iterable[tuple[object, object]]]) -> list[tuple[str, str]]:
    """Return the (value, description) that begin so and are plain to every shell."""
    try:
        pairs = [(str(value), str(about)) for value, about in values()]
    except (MemoryAnchorError, InvalidSetting, OSError, KeyError):
        return []
    plain = [(value, about) for value, about in pairs if PLAIN.fullmatch(value) and value.startswith(incomplete)]
    return [(value, about if PLAIN_TEXT.fullmatch(about) else "") for value, about in plain]


def _rows(name: str, key: str, value: str, about: str = "") -> Completer:
    """Return the completer of one field of the rows that a call answers. about: the field that describes a row."""

    def complete(incomplete: str) -> list[tuple[str, str]]:
        return completed(
            incomplete, lambda: ((row[value], row[about] if about else "") for row in records(call(name)[key]))
        )

    return complete


jobs = _rows("jobs_list", "jobs", "name", "about")
lorebooks = _rows("lorebook_list", "books", "name", "file")
reports = _rows("context_reports", "reports", "id", "recorded_at")


def ids(incomplete: str) -> list[tuple[str, str]]:
    """The newest memories; with some of an id typed, those that begin so in every state."""
    states, most = ((None, "archived", "superseded"), 1_000) if incomplete else ((None,), IDS_MAX)
    return completed(
        incomplete,
        lambda: (
            (memory["id"], _about(memory))
            for status in states
            for memory in records(call("list", status=status, limit=most)["memories"])
        ),
    )


def pending(incomplete: str) -> list[tuple[str, str]]:
    """Memories that wait for review."""
    return completed(
        incomplete,
        lambda: (
            (memory["id"], _about(memory))
            for memory in (record(item["memory"]) for item in records(call("inbox")["items"]))
        ),
    )


def _about(memory: Record) -> str:
    when = local_time(memory.get("when") or memory.get("recorded_at") or "")[:10]
    return f"{layer_name(memory['layer'])} {memory['type']} {when}"


def projects(incomplete: str) -> list[tuple[str, str]]:
    return completed(
        incomplete,
        lambda: (
            (row["id"], next(iter(items(row["paths"])), "")) for row in records(call("projects_list")["projects"])
        ),
    )


def sources(incomplete: str) -> list[tuple[str, str]]:
    """Sources of knowledge by their id and by their kind."""
    return completed(
        incomplete,
        lambda: (
            pair
            for row in records(call("knowledge_sources")["sources"])
            for pair in ((row["id"], row["ref"]), (row["kind"], ""))
        ),
    )


def settings(incomplete: str) -> list[tuple[str, str]]:
    from memory_anchor.settings import Settings

    return completed(incomplete, lambda: flat(Settings().model_dump(mode="json")))


def variants(incomplete: str) -> list[tuple[str, str]]:
    """Settings as `eval --variant` takes them; the last of several, after a comma."""
    before, comma, last = incomplete.rpartition(",")
    return [(f"{before}{comma}{name}=", about) for name, about in settings(last)]


def proposals(incomplete: str) -> list[tuple[str, str]]:
    """Open proposals for the constitution."""
    from memory_anchor.front.cli.passphrase import identity

    return completed(incomplete, lambda: ((row.id, row.status.value) for row in identity().proposals()))


def devices(incomplete: str) -> list[tuple[str, str]]:
    """The other devices."""
    return completed(
        incomplete,
        lambda: ((row["name"], "") for row in records(call("sync_status").get("devices", ())) if not row["here"]),
    )


BY_NAME: Mapping[str, Completer] = {"id": ids, "replaces": ids, "done": ids, "source": sources}
"""Of requests' fields that are no enumeration, by their name."""
