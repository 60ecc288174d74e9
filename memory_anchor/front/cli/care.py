"""Commands that maintain memories: review, purge, extract, undo, jobs, statistics, due, pause, projects."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from memory_anchor.base.json_values import Record, items, number, record, records, text, texts
from memory_anchor.base.json_values import text as text_of
from memory_anchor.domain.errors import BadInput, Refused
from memory_anchor.extensions import installed
from memory_anchor.front.cli import completing, generated
from memory_anchor.front.cli.generated import Command, Values, option
from memory_anchor.front.cli.guide import group
from memory_anchor.front.cli.link import call
from memory_anchor.front.cli.linking import link_folder
from memory_anchor.front.cli.output import (
    SHOWN_IDS,
    JsonOption,
    block,
    err,
    escaped,
    handle_errors,
    layer_name,
    local_time,
    out,
    print_dim,
    show_json,
    show_outcome,
)
from memory_anchor.front.cli.passphrase import ask_hidden, ask_human, ask_human_on_tty
from memory_anchor.front.cli.review import review
from memory_anchor.front.cli.shorthand import full_id, full_project_id
from memory_anchor.front.cli.spinner import Spinner
from memory_anchor.front.cli.typing_ahead import show_typing

EXTRACT_AT_ONCE = 400
"""Messages of one call, beyond which the next message of the user begins another."""


def register(app: typer.Typer) -> None:
    app.command()(review)
    app.command()(purge)
    app.command()(extract)
    generated.register(app, *COMMANDS)
    jobs = group(app, "jobs", "What runs in the background: list, run, start, stop, stats.")
    generated.register(jobs, *JOBS)
    projects = group(app, "projects", "Which folders share one memory: list, link, move, merge.")
    projects.command("list")(projects_list)
    projects.command("link")(projects_link)
    projects.command("move")(projects_move)
    projects.command("merge")(projects_merge)


def _undone(answer: Record, values: Values) -> None:
    if "outcome" in answer:
        show_outcome(answer, False)
        return
    done = "nothing to undo" if not answer["steps"] else "undone" if values["apply"] else "would undo"
    out.print(f"{done}: {escaped(answer['what'])}")
    for step in records(answer["steps"]):
        out.print(f"  {step['action']} [cyan]{step['id']}[/] [dim]{escaped(step['reason'])}[/]")
    for left in records(answer["left"]):
        out.print(f"  [yellow]left alone[/] {left['id']}: {escaped(left['reason'])}")
    if answer["steps"] and not values["apply"]:
        print_dim("nothing was changed; add --yes to do it")


@handle_errors
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
    arguments = list(ids or ())
    is_piped = matching and arguments == ["-"] and not sys.stdin.isatty()
    if is_piped and not (yes or json_):
        raise BadInput("--matching - reads standard input, where nothing can be confirmed; add --yes or --json")
    text = _text_to_purge(arguments) if matching else None
    full_ids = [] if matching else [full_id(prefix, shows=True) for prefix in arguments]
    signer = ask_human_on_tty() if is_piped else ask_human()
    memories = records(call("purge_preview", ids=full_ids, text=text, human=signer)["memories"])
    shown = _show_versions(memories)
    if full_ids and not set(shown) <= set(full_ids):
        raise Refused("other memories than you named would be erased; nothing was: see `memory-anchor doctor`")
    if not (json_ or yes) and not typer.confirm("Erase for good? Nothing brings it back", default=False):
        print_dim("nothing was erased")
        return
    with Spinner("erasing"):
        from memory_anchor.domain.rights import purge_digest

        answer = call("purge", ids=full_ids, text=text, seen=purge_digest(memories), human=signer)
        for extension in installed():
            extension.purged(signer, shown)
    if json_:
        show_json(answer)
        return
    out.print(f"erased {answer['versions']} versions; took what was copied out of {len(items(answer['emptied']))} more")
    for collection, gone in record(answer["removed"]).items():
        out.print(f"  {collection}: {', '.join(texts(gone))}")
    for name, many in record(answer["files"]).items():
        if many:
            out.print(f"  {escaped(name)}: {many}")
    for mention in items(answer["mentions"]):
        out.print(f"  [yellow]cites or quotes it, left for you to decide[/] {escaped(mention)}")
    for place in items(answer["still_in"]):
        out.print(f"  [yellow]may still hold it, delete it yourself[/] {escaped(place)}")
    for place in items(answer["failed"]):
        out.print(f"  [red]could not be searched[/] {escaped(place)}")
    if not (answer["clean"] or answer["failed"] or answer["still_in"]):
        out.print("[red]something was still found afterwards; run it again[/]")
    for place in items(answer["out_of_reach"]):
        out.print(f"  [dim]out of reach: {escaped(place)}[/]")


def _show_versions(memories: list[Record]) -> list[str]:
    """Show every version that goes, each whole; return the ids of the memories. What is signed is made of this."""
    for memory in memories:
        versions = records(memory["versions"])
        err.print(f"[cyan]{escaped(memory['id'])}[/] [dim]{len(versions)} versions[/]")
        for version in versions:
            err.print(f"  [dim]version {escaped(version['version'])}[/]")
            err.print(block(text_of(version["content"]), "    "))
    return [text_of(memory["id"]) for memory in memories]


def _text_to_purge(arguments: list[str]) -> str:
    """Return the text of `--matching`: typed without echo, piped in for `-`, or the argument itself."""
    match arguments:
        case ["-"] if not sys.stdin.isatty():
            return sys.stdin.read().rstrip("\n")
        case [] | ["-"]:
            return ask_hidden("Text to erase everywhere: ")
        case [text]:
            err.print("[yellow]an argument stays in the shell's history; without one the text is asked unseen[/]")
            return text
    raise BadInput(f"--matching got {len(arguments)} texts; allowed is one, or none to be asked unseen")


@handle_errors
def extract(
    file: Annotated[Path, typer.Argument(help="A Claude Code or Codex transcript, or JSON [{role, content}].")],
    yes: Annotated[bool, typer.Option("--yes", help="Store it; without this it is only shown.")] = False,
    mode: Annotated[str | None, completing.choice("first-person", "ghostwriter", "factual")] = None,
    user_facts: Annotated[bool, typer.Option("--user-facts", help="Only what concerns the user.")] = False,
    json_: JsonOption = False,
) -> None:
    """Take what is worth remembering out of a conversation; shows it first."""
    from memory_anchor.ingest.transcripts import read_transcript

    messages, kind = read_transcript(file)
    parts: list[list[Record]] = [[]]
    for message in messages:
        if message.role == "user" and len(parts[-1]) >= EXTRACT_AT_ONCE:  # a tool's answer stays with its call
            parts.append([])
        calls: list[Record] = [{"name": use.name, "arguments": dict(use.arguments)} for use in message.tool_calls]
        parts[-1].append({"role": message.role, "content": message.content, "tool_calls": calls})
    answers, only = [], "user_facts" if user_facts else None
    for index, part in enumerate(parts, 1):
        if len(parts) > 1:
            err.print(f"[dim]part {index} of {len(parts)}[/]")
        answers.append(call("extract", messages=part, mode=mode, only=only, apply=yes))
    if json_:
        show_json({"format": kind, "parts": answers})
        return
    for answer in answers:
        for candidate in records(answer.get("candidates", ())):
            about = f"{escaped(candidate['about'])}, {candidate['confidence']}"
            out.print(f"[cyan]{candidate['type']}[/] {escaped(candidate['content'])} [dim]{about}[/]")
        for outcome in records(answer.get("outcomes")):
            show_outcome(outcome, False)
        for note in items(answer.get("notes", ())):
            print_dim(text(note))
    if not yes:
        print_dim("nothing was stored; add --yes to do it")


def _stats(answer: Record, _: Values) -> None:
    for row in records(answer.get("heeded", ())):
        share = round(100 * number(row["heeded"]) / number(row["shown"]))
        out.print(f"[cyan]{row['layer']}[/] {row['hook']}: {row['heeded']} of {row['shown']} heeded ({share} %)")
    if isinstance(cost := answer.get("cost"), dict):
        _cost(cost)
    if answer.get("heeded") == []:
        print_dim("nothing was told and looked at yet")
    if "total" not in answer:
        return
    counts = {
        name.removeprefix("by_"): value
        for name, value in answer.items()
        if isinstance(value, dict) and name not in ("by_layer", "in_memory")
    }
    megabytes = number(answer["size_bytes"]) / 1e6
    out.print(f"[bold]{answer['total']}[/] memories in {answer['versions']} versions, {megabytes:.1f} MB")
    if waiting := answer.get("waiting"):
        out.print(f"{waiting} wait for you: memory-anchor review")
    for name, value in counts.items():
        words = [f"{_counted(name, key)} {count}" for key, count in value.items() if count]
        out.print(f"[dim]{name.replace('_', ' ')}:[/] {escaped(', '.join(words) or 'none')}")
    loaded = record(answer["in_memory"])
    out.print(f"[dim]in memory:[/] {loaded['versions']} versions{', all' if loaded['complete'] else ', more to come'}")
    out.print(f"[dim]writes, a day each:[/]  {answer['writes_sparkline']}")
    out.print(f"[dim]recalls, a day each:[/] {answer['recalls_sparkline']}")
    if answer["unembedded"]:
        print_dim(f"{answer['unembedded']} wait for their vectors and are found by words until then")


def _cost(cost: Record) -> None:
    out.print(f"[bold]{cost['model_calls']}[/] calls of a language model this month, {cost['model_tokens']} tokens")
    rates = (("tokens_per_session", "at a session's start"), ("tokens_per_100_prompts", "per 100 prompts"))
    for name, of in (*rates, ("tokens_per_1000_tool_calls", "per 1,000 tool calls")):
        out.print(f"{number(cost[name]):g} tokens shown {of}")
    out.print(f"{cost['prefix_bytes_changed']} bytes of a cached prefix changed by us")
    disk, memory = (number(cost[f"{name}_bytes"]) / 1e6 for name in ("disk", "memory"))
    out.print(f"{disk:.1f} MB on disk, {memory:.0f} MB in memory")


def _counted(name: str, key: str) -> str:
    if name == "age":
        return "older" if key == "older" else f"up to {key} days:" if key != "1" else "up to a day:"
    return layer_name(key) if name in ("layer", "layers") else key


def _paused(answer: Record, _: Values) -> None:
    if not answer["paused"]:
        print_dim("agents may write again")
        return
    until = f" until {local_time(answer['until'])}" if "until" in answer else ""
    print_dim(
        f"paused{until}: agents read and do not write" + (", and are told nothing unasked" * ("silent" in answer))
    )


def _due(answer: Record, _: Values) -> None:
    SHOWN_IDS.extend(str(record(item["memory"])["id"]) for item in records(answer["due"]))
    for item in records(answer["due"]):
        memory = record(item["memory"])
        when = f"due {local_time(item['due_at'])[:10]}" if item["due_at"] else "open task"
        when = f"[red]over{when}[/]" if item["overdue"] else f"[dim]{when}[/]"
        out.print(f"[cyan]{memory['id']}[/] {when} {escaped(memory['content'])}")
    if not answer["due"]:
        print_dim("nothing is due")


def _jobs(answer: Record, _: Values) -> None:
    if not answer["running"]:
        print_dim("no job runs by itself: no engine is running, or `memory-anchor jobs stop` was used")
    for job in records(answer["jobs"]):
        due = " [yellow]due[/]" if job["due"] else ""
        out.print(f"[cyan]{job['name']}[/]{due} [dim]{job['about']}[/]")
        if job["runs"] or job["failures"]:
            failed = f", {job['failures']} failed ({escaped(job['last_failure'])})" if job["failures"] else ""
            last = local_time(job["last_at"]) if job["last_at"] else "never"
            out.print(f"  [dim]last {last}; {job['runs']} runs, {job['changed']} changed{failed}[/]")


def _job_run(answer: Record, values: Values) -> None:
    done = f"would change {len(items(answer['planned']))}" if values["dry_run"] else f"{answer['changed']} changed"
    out.print(f"{answer['job']}: {done}{', more is left' if answer['left'] else ''}")
    if counts := ", ".join(f"{name.replace('_', ' ')} {count:g}" for name, count in record(answer["counts"]).items()):
        out.print(f"  [dim]{escaped(counts)}[/]")
    for step in records(answer["planned"]):
        out.print(f"  {step['action']} [cyan]{step['id']}[/] [dim]{escaped(step['reason'])}[/]")


def _switched(answer: Record, _: Values) -> None:
    print_dim("jobs run when they fall due" if answer["running"] else "jobs only run when you start them by name")


@handle_errors
def projects_list(json_: JsonOption = False) -> None:
    """Show every project with its folders, its memories, and which other one it may be."""
    answer = call("projects_list")
    if json_:
        show_json(answer)
        return
    for project in records(answer["projects"]):
        mark = " [green](here)[/]" if project["here"] else ""
        out.print(f"[cyan]{escaped(project['id'])}[/]{mark} [dim]{project['memories']} memories[/]")
        for path in items(project["paths"]):
            out.print(f"  {escaped(path)}")
        for remote in items(project["remotes"]):
            out.print(f"  [dim]{escaped(remote)}[/]")
        if project["may_be"]:
            out.print(f"  [yellow]may be {escaped(project['may_be'])}: {escaped(project['why'])}[/]")
    if not answer["projects"]:
        print_dim("no project is known yet; the first agent or command in a folder makes one")


@handle_errors
def projects_link(
    project: Annotated[
        str,
        typer.Argument(
            help="The project's id; left out: the one this folder may be.", autocompletion=completing.projects
        ),
    ] = "",
    folder: Annotated[Path | None, typer.Option(help="Another folder than this one.")] = None,
    json_: JsonOption = False,
) -> None:
    """Say that this folder belongs to a known project; needs the passphrase."""
    link_folder(full_project_id(project) if project else _ask_likely(), folder, moved=False, as_json=json_)


@handle_errors
def projects_move(
    project: Annotated[str, typer.Argument(help="The project's id.", autocompletion=completing.projects)],
    folder: Annotated[Path | None, typer.Option(help="Where it is now; left out: here.")] = None,
    json_: JsonOption = False,
) -> None:
    """Say that a project is in this folder now, and in none of its old ones; needs the passphrase."""
    link_folder(full_project_id(project), folder, moved=True, as_json=json_)


@handle_errors
def projects_merge(
    source: Annotated[str, typer.Argument(help="The project whose memories move.", autocompletion=completing.projects)],
    target: Annotated[str, typer.Argument(help="The project they move to.", autocompletion=completing.projects)] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Move back what merging SOURCE moved.")] = False,
    json_: JsonOption = False,
) -> None:
    """Move every memory and folder of one project to another; needs the passphrase, and --undo takes it back."""
    if bool(target) == undo:
        raise BadInput("merge needs SOURCE and TARGET, or SOURCE with --undo")
    source, target = full_project_id(source), full_project_id(target)
    answer = call("projects_merge", source=source, target=target or None, undo=undo or None, human=ask_human())
    if json_:
        show_json(answer)
    elif undo:
        print_dim(f"{answer['versions']} versions are {source}'s again")
    else:
        print_dim(f"{answer['versions']} versions are {target}'s now; `memory-anchor projects merge {source} --undo`")


def _ask_likely() -> str:
    projects = records(call("projects_list")["projects"])
    here = next((project for project in projects if project["here"] and project["may_be"]), None)
    if here is None:
        raise BadInput("this folder looks like no other project; name one: `memory-anchor projects list`")
    out.print(f"this folder may be [cyan]{escaped(record(here)['may_be'])}[/]: {escaped(here['why'])}")
    show_typing()
    if not typer.confirm("Is it that project?", default=False):
        print_dim("nothing was linked")
        raise typer.Exit(0)
    return str(record(here)["may_be"])


def _switch(name: str, *, on: bool, about: str) -> Command:
    calls: list[tuple[str, Values]] = [("jobs_switch", {"on": on})]
    return Command(name, _switched, left_out=("on",), call="jobs_switch", about=about, calls=lambda _: calls)


def _undo_calls(values: Values) -> list[tuple[str, Values]]:
    """Return the call that undoes what was said: of an id, its archiving."""
    what = str(values["what"] or "")
    return [("restore", {"id": full_id(what)})] if what not in ("", "last") else [("undo", values)]


COMMANDS = (
    Command("undo", _undone, ("what",), human=True, calls=_undo_calls),
    Command("stats", _stats, at=True),
    Command("due", _due),
    Command(
        "pause",
        _paused,
        left_out=("lasting",),
        signs=lambda values: bool(values["off"]),
        extra=(option("lasting", str, "", "End by itself after that long: 30m, 2h, 1d.", "--for", metavar="2h"),),
    ),
)
LIST_JOBS = Command("list", _jobs, call="jobs_list")
JOBS = (
    LIST_JOBS,
    Command("run", _job_run, ("name",), call="jobs_run", at=True, completes={"name": completing.jobs}),
    _switch("start", on=True, about="Let the engine run jobs by itself."),
    _switch("stop", on=False, about="Keep the engine from running jobs by itself."),
    replace(LIST_JOBS, name="stats"),
)
