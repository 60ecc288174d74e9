"""Commands that read and write memories."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from memory_anchor.errors import BadInput
from memory_anchor.front.cli.link import call
from memory_anchor.front.cli.output import (
    block,
    clipped,
    guarded,
    memory_table,
    out,
    quiet,
    show_json,
    show_outcome,
    shown,
)
from memory_anchor.front.cli.passphrase import human_signer

Json = Annotated[bool, typer.Option("--json", help="Answer as JSON.")]
Human = Annotated[bool, typer.Option("--human", help="Count as human: asks for the passphrase on the terminal.")]
At = Annotated[str | None, typer.Option("--at", metavar="ISO", help="Look as of another time (for checks).")]
Many = list[str] | None


def register(app: typer.Typer) -> None:
    for command in (search, add, log, list_, show, edit, pin, unpin, forget, restore, history):
        app.command(command.__name__.removesuffix("_"))(command)
    app.command("why-not")(why_not)


@guarded
def search(
    query: str,
    layer: Annotated[Many, typer.Option(help="Only this layer; repeatable.")] = None,
    type: Annotated[Many, typer.Option(help="Only this type; repeatable.")] = None,
    tag: Annotated[Many, typer.Option(help="Any of these tags.")] = None,
    since: Annotated[str | None, typer.Option(metavar="ISO")] = None,
    until: Annotated[str | None, typer.Option(metavar="ISO")] = None,
    as_of: Annotated[str | None, typer.Option(metavar="ISO", help="What was believed then.")] = None,
    limit: Annotated[int, typer.Option(help="1 to 50.")] = 5,
    pending: Annotated[bool, typer.Option("--pending", help="Also what waits for review.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show each channel's rank, score and weight.")] = False,
    at: At = None,
    json_: Json = False,
) -> None:
    """Find memories by meaning, words and time."""
    answer = call(
        "search",
        query=query,
        layers=layer,
        types=type,
        tags=tag,
        since=since,
        until=until,
        as_of=as_of,
        limit=limit,
        include_pending=pending,
        detail=explain,
        at=at,
    )
    if json_:
        show_json(answer)
        return
    for snippet in answer["snippets"]:
        when = str(snippet.get("when", ""))[:16].replace("T", " ")
        status = "" if snippet.get("status", "active") == "active" else f" [yellow]{shown(snippet['status'])}[/]"
        about = f"{snippet['layer']} {snippet['type']} {when}{' (weak)' * snippet.get('weak', False)}"
        out.print(f"[cyan]{snippet['id']}[/] {snippet['score']:.3f} [dim]{shown(about)}[/]{status}")
        out.print(f"  {shown(clipped(snippet['text'], 1000))}")
        for name, value in (snippet.get("signals") or {}).items():
            out.print(f"    [dim]{name}:[/] {shown(json.dumps(value, ensure_ascii=False))}")
    if not answer["snippets"]:
        quiet("nothing is remembered")
    for note in answer.get("notes", ()):
        quiet(note)


@guarded
def why_not(
    id: str,
    query: str,
    at: At = None,
    json_: Json = False,
) -> None:
    """Say why a memory did not come back for a query."""
    answer = call("why_not", id=id, query=query, at=at)
    if json_:
        show_json(answer)
        return
    for reason in answer["reasons"]:
        out.print(f"- {shown(reason)}")


@guarded
def add(
    content: Annotated[str | None, typer.Argument(help="The memory's text; - reads standard input.")] = None,
    observation: Annotated[Path | None, typer.Option(help="An observation as JSON (.ai/operations/templates).")] = None,
    type: Annotated[str, typer.Option()] = "fact",
    key: Annotated[str | None, typer.Option(help="A short title.")] = None,
    layer: Annotated[str | None, typer.Option()] = None,
    tag: Annotated[Many, typer.Option()] = None,
    importance: Annotated[float, typer.Option(help="0 to 1.")] = 0.5,
    confidence: Annotated[float | None, typer.Option(help="0 to 1; default: by its words.")] = None,
    visibility: Annotated[str | None, typer.Option()] = None,
    file: Annotated[Many, typer.Option(help="path or path:10-20; repeatable.")] = None,
    replaces: Annotated[str | None, typer.Option(metavar="ID")] = None,
    request_id: Annotated[str | None, typer.Option()] = None,
    human: Human = False,
    json_: Json = False,
) -> None:
    """Save a memory; facts pass the gate and are reconciled with what is known."""
    if observation is not None:
        from memory_anchor.observation import Observation

        asked = Observation.read(_read_json(observation)).asks()
        name = {"save_memory": "add", "log_event": "log"}[asked.use_case]
        show_outcome(call(name, **asked.arguments, human=human_signer(human)), json_)
        return
    answer = call(
        "add",
        content=_text(content),
        type=type,
        key=key,
        layer=layer,
        tags=tag,
        importance=importance,
        confidence=confidence,
        visibility=visibility,
        files=file,
        replaces=replaces,
        request_id=request_id,
        human=human_signer(human),
    )
    show_outcome(answer, json_)


@guarded
def log(
    content: Annotated[str | None, typer.Argument(help="What happened; - reads standard input.")] = None,
    when: Annotated[str | None, typer.Option(metavar="ISO")] = None,
    where: Annotated[str | None, typer.Option()] = None,
    who: Annotated[Many, typer.Option()] = None,
    ttl_days: Annotated[int | None, typer.Option(help="0: for ever.")] = None,
    type: Annotated[str, typer.Option()] = "event",
    tag: Annotated[Many, typer.Option()] = None,
    file: Annotated[Many, typer.Option()] = None,
    request_id: Annotated[str | None, typer.Option()] = None,
    human: Human = False,
    json_: Json = False,
) -> None:
    """Log an event: what happened, when, where, who."""
    answer = call(
        "log",
        content=_text(content),
        when=when,
        where=where,
        who=who,
        ttl_days=ttl_days,
        type=type,
        tags=tag,
        files=file,
        request_id=request_id,
        human=human_signer(human),
    )
    show_outcome(answer, json_)


@guarded
def list_(
    layer: Annotated[str | None, typer.Option()] = None,
    type: Annotated[str | None, typer.Option()] = None,
    status: Annotated[str | None, typer.Option(help="active, pending, archived, superseded, disputed.")] = None,
    tag: Annotated[str | None, typer.Option()] = None,
    limit: Annotated[int, typer.Option(help="1 to 1000.")] = 50,
    at: At = None,
    json_: Json = False,
) -> None:
    """List memories, newest first."""
    answer = call("list", layer=layer, type=type, status=status, tag=tag, limit=limit, at=at)
    if json_:
        show_json(answer)
    elif answer["memories"]:
        out.print(memory_table(answer["memories"]))
    else:
        quiet("nothing here yet; `memory-anchor add TEXT` saves the first memory")


@guarded
def show(
    id: Annotated[str, typer.Argument(help="A memory, or one version of it: ID@2.")],
    as_of: Annotated[str | None, typer.Option(metavar="ISO", help="As it was believed then.")] = None,
    at: At = None,
    json_: Json = False,
) -> None:
    """Show one memory whole."""
    memory: dict[str, Any] = call("show", id=id, as_of=as_of, at=at)["memory"]
    if json_:
        show_json({"memory": memory})
        return
    out.print(block(memory.pop("content")))
    for name, value in memory.items():
        out.print(
            f"  [dim]{name}:[/] {shown(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))}"
        )


@guarded
def history(
    id: str,
    story: Annotated[bool, typer.Option("--story", help="Begin with the memories it took the place of.")] = False,
    json_: Json = False,
) -> None:
    """Show every version of a memory: who, when, why, and what changed."""
    answer = call("history", id=id, story=story or None)
    if json_:
        show_json(answer)
        return
    told = ""
    for step in answer["steps"]:
        out.print(f"[cyan]{step['version_id']}[/] [dim]{step['at']}[/] {shown(step['by'])}: {shown(step['why'])}")
        if story and step["version_id"].partition("@")[0] != told:
            told = step["version_id"].partition("@")[0]
            out.print(f"    {shown(clipped(step['content']))}")
        for name, (before, after) in step["changes"].items():
            out.print(f"    {name}: {shown(before)} -> {shown(after)}")
        for line in step["diff"]:
            out.print(f"    {shown(line)}")


@guarded
def edit(
    id: str,
    content: Annotated[str | None, typer.Argument(help="The new text; - reads standard input.")] = None,
    expected_version: Annotated[int | None, typer.Option()] = None,
    epistemic: Annotated[str | None, typer.Option(help="hypothesis, verified or refuted, instead of a text.")] = None,
    shown_by: Annotated[str | None, typer.Option(help="The command or link that showed it.")] = None,
    human: Human = False,
    json_: Json = False,
) -> None:
    """Write a new version of a memory with another text, or say how far it holds."""
    if epistemic is not None:
        signer = human_signer(human)
        show_outcome(call("judge", id=id, epistemic=epistemic, shown_by=shown_by, human=signer), json_)
        return
    show_outcome(
        call(
            "edit",
            id=id,
            content=_text(content),
            expected_version=expected_version,
            human=human_signer(human),
        ),
        json_,
    )


@guarded
def pin(id: str, human: Human = False, json_: Json = False) -> None:
    """Pin a memory: no job ever forgets it."""
    show_outcome(call("pin", id=id, human=human_signer(human)), json_)


@guarded
def unpin(id: str, human: Human = False, json_: Json = False) -> None:
    """Let a pinned memory go again."""
    show_outcome(call("unpin", id=id, human=human_signer(human)), json_)


@guarded
def forget(
    id: str,
    reason: Annotated[str | None, typer.Option()] = None,
    human: Human = False,
    json_: Json = False,
) -> None:
    """Archive a memory: out of every search, restorable."""
    show_outcome(call("forget", id=id, reason=reason, human=human_signer(human)), json_)


@guarded
def restore(id: str, human: Human = False, json_: Json = False) -> None:
    """Bring an archived memory back."""
    show_outcome(call("restore", id=id, human=human_signer(human)), json_)


def _text(content: str | None) -> str:
    if content is None or content == "-":
        if sys.stdin.isatty():
            raise BadInput("content is missing; give it as an argument, or pipe it in")
        return sys.stdin.read()
    return content


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); allowed is a JSON file") from None
    except ValueError:
        raise BadInput(f"{path} is not JSON; allowed is an observation as in .ai/operations/templates") from None
