"""Commands that look after memories: review, undo, jobs, statistics, pause."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from memory_anchor import requests as asks
from memory_anchor.errors import BadInput
from memory_anchor.front.cli import completing, generated
from memory_anchor.front.cli.devices import sign_purges
from memory_anchor.front.cli.generated import Command, Values, option
from memory_anchor.front.cli.guide import group
from memory_anchor.front.cli.link import call
from memory_anchor.front.cli.output import (
    SHOWN,
    JsonOption,
    err,
    guarded,
    layer_name,
    local,
    out,
    quiet,
    show_json,
    show_outcome,
    shown,
)
from memory_anchor.front.cli.passphrase import ask_hidden, ask_human, human_beside_input
from memory_anchor.front.cli.review import review
from memory_anchor.front.cli.review import stamps as stamps
from memory_anchor.front.cli.spoken import whole_id
from memory_anchor.json_values import Record, items, number, record, records, text, texts

EXTRACT_AT_ONCE = 400
"""Turns handed over in one call; more are taken in parts."""


def register(app: typer.Typer) -> None:
    app.command()(review)
    app.command()(purge)
    app.command()(extract)
    generated.register(app, *COMMANDS)
    jobs = group(app, "jobs", "What runs in the background: list, run, start, stop, stats.")
    generated.register(jobs, *JOBS)


def _undone(answer: Record, values: Values) -> None:
    done = "nothing to undo" if not answer["steps"] else "undone" if values["apply"] else "would undo"
    out.print(f"{done}: {shown(answer['what'])}")
    for step in records(answer["steps"]):
        out.print(f"  {step['action']} [cyan]{step['id']}[/] [dim]{shown(step['reason'])}[/]")
    for left in records(answer["left"]):
        out.print(f"  [yellow]left alone[/] {left['id']}: {shown(left['reason'])}")
    if answer["steps"] and not values["apply"]:
        quiet("nothing was changed; add --yes to do it")


@guarded
def purge(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID]...", help="Whole memories; with --matching the text.", autocompletion=completing.ids
        ),
    ] = None,
    matching: Annotated[
        bool, typer.Option("--matching", help="Erase all with a text: asked unseen, or - for standard input.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask once more.")] = False,
    json_: JsonOption = False,
) -> None:
    """Erase for good, in every version, the store's log, reports and spool; needs the passphrase."""
    given = list(ids or ())
    is_piped = matching and given == ["-"] and not sys.stdin.isatty()
    if is_piped and not (yes or json_):
        raise BadInput("--matching - reads standard input, where nothing can be confirmed; add --yes or --json")
    text = _text_to_purge(given) if matching else None
    signer = human_beside_input() if is_piped else ask_human()
    named = [] if matching else [whole_id(one) for one in given]
    preview = call("purge_preview", ids=named, text=text, human=signer)
    if not json_:
        for memory in records(preview["memories"]):
            out.print(f"  [cyan]{memory['id']}[/] [dim]{memory['versions']} versions[/] {shown(memory['content'])}")
    if not (json_ or yes) and not typer.confirm("Erase for good? Nothing brings it back", default=False):
        quiet("nothing was erased")
        return
    answer = call("purge", ids=named, text=text, seen=preview["seen"], human=signer)
    sign_purges(signer)
    if json_:
        show_json(answer)
        return
    out.print(f"erased {answer['versions']} versions; emptied the search context of {len(items(answer['emptied']))}")
    for collection, gone in record(answer["removed"]).items():
        out.print(f"  {collection}: {', '.join(texts(gone))}")
    for name, many in record(answer["files"]).items():
        if many:
            out.print(f"  {shown(name)}: {many}")
    for mention in items(answer["mentions"]):
        out.print(f"  [yellow]quotes it, left for you to decide[/] {shown(mention)}")
    for place in items(answer["still_in"]):
        out.print(f"  [yellow]may still hold it, delete it yourself[/] {shown(place)}")
    if not answer["clean"]:
        out.print("[red]something was still found afterwards; run it again[/]")
    for place in items(answer["out_of_reach"]):
        out.print(f"  [dim]out of reach: {shown(place)}[/]")


def _text_to_purge(given: list[str]) -> str:
    """Return the text of `--matching`: typed unseen, piped in for `-`, or the argument itself."""
    match given:
        case []:
            return ask_hidden("Text to erase everywhere: ")
        case ["-"]:
            return ask_hidden("Text to erase everywhere: ") if sys.stdin.isatty() else sys.stdin.read().rstrip("\n")
        case [text]:
            err.print("[yellow]an argument stays in the shell's history; without one the text is asked unseen[/]")
            return text
    raise BadInput(f"--matching got {len(given)} texts; allowed is one, or none to be asked unseen")


@guarded
def extract(
    file: Annotated[Path, typer.Argument(help="A Claude Code or Codex transcript, or JSON [{role, content}].")],
    yes: Annotated[bool, typer.Option("--yes", help="Store it; without this it is only shown.")] = False,
    mode: Annotated[
        str | None,
        typer.Option(
            help="first-person, ghostwriter or factual.",
            autocompletion=completing.words("first-person", "ghostwriter", "factual"),
        ),
    ] = None,
    user_facts: Annotated[bool, typer.Option("--user-facts", help="Only what concerns the user.")] = False,
    json_: JsonOption = False,
) -> None:
    """Take what is worth remembering out of a conversation; shows it first."""
    from memory_anchor.ingest.transcripts import read_transcript

    messages, kind = read_transcript(file)
    pieces: list[list[Record]] = [[]]
    for message in messages:
        if message.role == "user" and len(pieces[-1]) >= EXTRACT_AT_ONCE:  # a tool's answer stays with its call
            pieces.append([])
        calls: list[Record] = [{"name": one.name, "arguments": dict(one.arguments)} for one in message.tool_calls]
        pieces[-1].append({"role": message.role, "content": message.content, "tool_calls": calls})
    answers = []
    for part, piece in enumerate(pieces, 1):
        if len(pieces) > 1:
            err.print(f"[dim]part {part} of {len(pieces)}[/]")
        answers.append(
            call(
                "extract",
                messages=piece,
                mode=mode,
                only="user_facts" if user_facts else None,
                apply=yes,
            )
        )
    if json_:
        show_json({"format": kind, "parts": answers})
        return
    for answer in answers:
        for one in records(answer.get("candidates", ())):
            out.print(
                f"[cyan]{one['type']}[/] {shown(one['content'])} [dim]{shown(one['about'])}, {one['confidence']}[/]"
            )
        for one in records(answer.get("outcomes")):
            show_outcome(one, False)
        for note in items(answer.get("notes", ())):
            quiet(text(note))
    if not yes:
        quiet("nothing was stored; add --yes to do it")


def _stats(answer: Record, _: Values) -> None:
    for one in records(answer.get("heeded", ())):
        share = round(100 * number(one["heeded"]) / number(one["told"]))
        out.print(f"[cyan]{one['layer']}[/] {one['hook']}: {one['heeded']} of {one['told']} heeded ({share} %)")
    if answer.get("heeded") == []:
        quiet("nothing was told and looked at yet")
    if "total" not in answer:
        return
    counts = {
        name.removeprefix("by_"): value
        for name, value in answer.items()
        if isinstance(value, dict) and name != "by_layer"
    }
    megabytes = number(answer["size_bytes"]) / 1e6
    out.print(f"[bold]{answer['total']}[/] memories in {answer['versions']} versions, {megabytes:.1f} MB")
    for name, value in counts.items():
        words = [f"{_counted(name, key)} {count}" for key, count in value.items() if count]
        out.print(f"[dim]{name.replace('_', ' ')}:[/] {shown(', '.join(words) or 'none')}")
    out.print(f"[dim]writes, a day each:[/]  {answer['writes_sparkline']}")
    out.print(f"[dim]recalls, a day each:[/] {answer['recalls_sparkline']}")
    if answer["unembedded"]:
        quiet(f"{answer['unembedded']} wait for their vectors and are found by words until then")


def _counted(name: str, key: str) -> str:
    """Return what is counted, as a person says it."""
    if name == "age":
        return "older" if key == "older" else f"up to {key} days:" if key != "1" else "up to a day:"
    return layer_name(key) if name in ("layer", "layers") else key


def _paused(answer: Record, _: Values) -> None:
    if not answer["paused"]:
        quiet("agents may write again")
        return
    until = f" until {local(answer['until'])}" if "until" in answer else ""
    quiet(f"paused{until}: agents read and do not write" + (", and are told nothing unasked" * ("silent" in answer)))


def _due(answer: Record, _: Values) -> None:
    SHOWN.extend(str(record(one["memory"])["id"]) for one in records(answer["due"]))
    for one in records(answer["due"]):
        when = f"due {local(one['due_at'])[:10]}" if one["due_at"] else "open task"
        out.print(f"[cyan]{record(one['memory'])['id']}[/] [dim]{when}[/] {shown(record(one['memory'])['content'])}")
    if not answer["due"]:
        quiet("nothing is due")


def _jobs(answer: Record, _: Values) -> None:
    if not answer["running"]:
        quiet("nothing runs by itself here: no engine serves, or `memory-anchor jobs stop` was said")
    for job in records(answer["jobs"]):
        due = " [yellow]due[/]" if job["due"] else ""
        out.print(f"[cyan]{job['name']}[/]{due} [dim]{job['about']}[/]")
        if job["runs"] or job["failures"]:
            failed = f", {job['failures']} failed ({shown(job['last_failure'])})" if job["failures"] else ""
            last = local(job["last_at"]) if job["last_at"] else "never"
            out.print(f"  [dim]last {last}; {job['runs']} runs, {job['changed']} changed{failed}[/]")


def _job_run(answer: Record, values: Values) -> None:
    done = f"would change {len(items(answer['planned']))}" if values["dry_run"] else f"{answer['changed']} changed"
    out.print(f"{answer['job']}: {done}{', more is left' if answer['left'] else ''}")
    if counts := ", ".join(f"{name.replace('_', ' ')} {count:g}" for name, count in record(answer["counts"]).items()):
        out.print(f"  [dim]{shown(counts)}[/]")
    for step in records(answer["planned"]):
        out.print(f"  {step['action']} [cyan]{step['id']}[/] [dim]{shown(step['reason'])}[/]")


def _switched(answer: Record, _: Values) -> None:
    quiet("jobs run when they fall due" if answer["running"] else "jobs only run when you start them by name")


def _switch(name: str, *, on: bool, about: str) -> Command:
    return Command(
        name,
        "jobs_switch",
        asks.SwitchJobs,
        _switched,
        left_out=("on",),
        about=about,
        before=lambda _: [("jobs_switch", {"on": on})],
    )


COMMANDS = (
    Command("undo", "undo", asks.Undo, _undone, ("what",), human=True),
    Command("stats", "stats", asks.ReadStats, _stats, at=True),
    Command("due", "due", asks.ListDue, _due),
    Command(
        "pause",
        "pause",
        asks.PauseAgents,
        _paused,
        left_out=("lasting",),
        signs=lambda values: bool(values["off"]),
        extra=(option("lasting", str, "", "End by itself after that long: 30m, 2h, 1d.", "--for", metavar="2h"),),
    ),
)
LIST_JOBS = Command("list", "jobs_list", asks.ListJobs, _jobs)
JOBS = (
    LIST_JOBS,
    Command("run", "jobs_run", asks.RunJob, _job_run, ("name",), at=True, completes={"name": completing.jobs}),
    _switch("start", on=True, about="Let the engine run jobs by itself."),
    _switch("stop", on=False, about="Keep the engine from running jobs by itself."),
    replace(LIST_JOBS, name="stats"),
)
