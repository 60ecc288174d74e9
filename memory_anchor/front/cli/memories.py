"""Commands that read and write memories; their options come from the requests (`generated`)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import typer

from memory_anchor import requests as asks
from memory_anchor.errors import BadInput
from memory_anchor.front.cli import generated
from memory_anchor.front.cli.generated import Command, Values, option
from memory_anchor.front.cli.output import (
    SHOWN,
    block,
    clipped,
    layer_name,
    local,
    out,
    quiet,
    say,
    show_memories,
    show_outcome,
    shown,
)
from memory_anchor.json_values import Json, Record, items, optional_text, parsed, record, records, text


def _search(answer: Record, _: Values) -> None:
    SHOWN.extend(str(snippet["id"]) for snippet in records(answer["snippets"]))
    for snippet in records(answer["snippets"]):
        when = local(snippet.get("when", ""))
        status = "" if snippet.get("status", "active") == "active" else f" [yellow]{shown(snippet['status'])}[/]"
        about = f"{layer_name(snippet['layer'])} {snippet['type']} {when}{' (weak)' * bool(snippet.get('weak'))}"
        out.print(f"[cyan]{snippet['id']}[/] {snippet['score']:.3f} [dim]{shown(about)}[/]{status}")
        say(clipped(text(snippet["text"]), 1000))
        for name, value in (record(snippet.get("signals") or {})).items():
            out.print(f"    [dim]{name}:[/] {shown(json.dumps(value, ensure_ascii=False))}")
    if not answer["snippets"]:
        quiet("nothing is remembered")
    for note in items(answer.get("notes", ())):
        quiet(text(note))


def _why_not(answer: Record, values: Values) -> None:
    SHOWN.append(str(values["id"]))
    for reason in items(answer["reasons"]):
        out.print(f"- {shown(reason)}")


def _outcome(answer: Record, _: Values) -> None:
    show_outcome(answer, False)


def _listed(values: Values) -> list[tuple[str, Values]]:
    """Return what lists a layer: L0 is the constitution, which no store holds."""
    if str(values["layer"] or "").lower() in ("l0", "identity_schema"):
        return [("constitution", {})]
    return [("list", values)]


def _list(answer: Record, _: Values) -> None:
    if "entries" in answer:
        for one in records(answer["entries"]):
            out.print(f"[cyan]{shown(one['id'])}[/] [dim]L0[/]")
            say(text(one["content"]))
        for warning in items(answer["warnings"]):
            quiet(text(warning))
    elif answer["memories"]:
        show_memories(records(answer["memories"]))
    else:
        quiet("nothing here yet; `memory-anchor add TEXT` saves the first memory")


TIMES = frozenset({"when", "recorded_to", "valid_from", "valid_to"})


def _show(answer: Record, _: Values) -> None:
    memory = dict(record(answer["memory"]))
    SHOWN.append(str(memory.get("id", "")))
    content = str(memory.pop("content"))
    if "\n" in content:
        out.print(block(content))
    else:
        say(content, 0)
    for name, value in memory.items():
        say(_worded(name, value), 4, head=f"{name}: ")


def _worded(name: str, value: Json) -> str:
    """Return a field's value as a person reads it."""
    if name in TIMES or name.endswith("_at"):
        return local(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_worded(str(key), inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return "; ".join(_worded(name, inner) for inner in value)
    return layer_name(value) if name == "layer" else str(value)


def _profile(answer: Record, _: Values) -> None:
    out.print(block(text(answer["text"] or "Nothing is known of the user or the project yet.")))


def _history(answer: Record, values: Values) -> None:
    last = ""
    SHOWN.extend(str(step["version_id"]).partition("@")[0] for step in records(items(answer["steps"])[-1:]))
    for step in records(answer["steps"]):
        why = f": {shown(step['why'])}" if step["why"] else ""
        out.print(f"[cyan]{step['version_id']}[/] [dim]{local(step['at'])}[/] {shown(step['by'])}{why}")
        if values["story"] and text(step["version_id"]).partition("@")[0] != last:
            last = text(step["version_id"]).partition("@")[0]
            out.print(f"    {shown(clipped(text(step['content'])))}")
        for name, (before, after) in ((one, items(both)) for one, both in record(step["changes"]).items()):
            say(f"{name}: {before} -> {after}", 4)
        for line in items(step["diff"]):
            say(text(line), 4)


def _added(values: Values) -> list[tuple[str, Values]]:
    """Return the memory that is saved, or those of a file of observations."""
    observation = values.pop("observation")
    if observation is None:
        return [("add", values | {"content": _text(optional_text(values["content"]))})]
    from memory_anchor.observation import Observation

    calls = {"save_memory": "add", "log_event": "log"}
    every = [one.asks() for one in Observation.read_all(_read_json(Path(str(observation))))]
    return [(calls[asked.use_case], dict(asked.arguments)) for asked in every]


def _logged(values: Values) -> list[tuple[str, Values]]:
    return [("log", values | {"content": _text(optional_text(values["content"]))})]


def _edited(values: Values) -> list[tuple[str, Values]]:
    """Return the new text, or with --epistemic what is thought of the old one."""
    judged = {name: values.pop(name) for name in ("epistemic", "shown_by")}
    if judged["epistemic"] is not None:
        return [("judge", {"id": values["id"], **judged})]
    return [("edit", values | {"content": _text(optional_text(values["content"]))})]


def _text(content: str | None) -> str:
    if content is None or content == "-":
        if sys.stdin.isatty():
            raise BadInput("content is missing; give it as an argument, or pipe it in")
        return sys.stdin.read()
    return content


def _read_json(path: Path) -> Json:
    try:
        written = path.read_text(encoding="utf-8")
        try:
            return parsed(written)
        except ValueError:  # one observation a line
            return [parsed(line) for line in written.splitlines() if line.strip()]
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); allowed is a JSON file") from None
    except ValueError:
        raise BadInput(f"{path} is not JSON; allowed is an observation as in .ai/operations/templates") from None


OBSERVATION = option("observation", Path | None, None, "An observation as JSON (.ai/operations/templates).")
JUDGEMENT = (
    option("epistemic", str | None, None, "hypothesis, verified or refuted, instead of a text."),
    option("shown_by", str | None, None, "The command or link that showed it."),
)
COMMANDS = (
    Command("search", "search", asks.SearchMemory, _search, ("query",), at=True),
    Command(
        "add",
        "add",
        asks.SaveMemory,
        _outcome,
        ("content",),
        piped=("content",),
        human=True,
        extra=(OBSERVATION,),
        before=_added,
    ),
    Command(
        "log",
        "log",
        asks.LogEvent,
        _outcome,
        ("content",),
        ("key", "importance", "visibility"),
        piped=("content",),
        human=True,
        before=_logged,
    ),
    Command("list", "list", asks.ListMemories, _list, at=True, before=_listed),
    Command("show", "show", asks.ShowMemory, _show, ("id",), at=True),
    Command(
        "edit",
        "edit",
        asks.EditMemory,
        _outcome,
        ("id", "content"),
        piped=("content",),
        human=True,
        extra=JUDGEMENT,
        before=_edited,
    ),
    Command("pin", "pin", asks.PinMemory, _outcome, ("id",), human=True),
    Command("unpin", "unpin", asks.UnpinMemory, _outcome, ("id",), human=True),
    Command("forget", "forget", asks.ForgetMemory, _outcome, ("id",), human=True),
    Command("restore", "restore", asks.RestoreMemory, _outcome, ("id",), human=True),
    Command("profile", "profile", asks.ReadProfile, _profile, at=True),
    Command("history", "history", asks.ShowHistory, _history, ("id",)),
    Command("why-not", "why_not", asks.WhyNot, _why_not, ("id", "query"), at=True),
)


def register(app: typer.Typer) -> None:
    generated.register(app, *COMMANDS)
