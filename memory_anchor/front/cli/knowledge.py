"""Commands about knowledge: add, list, sync, push, remove, search, show.

Long work shows its progress on stderr. A command is an agent's unless --human says otherwise, and what an agent adds is
untrusted.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from memory_anchor import knowledge_requests as asks
from memory_anchor.errors import BadInput
from memory_anchor.front.cli import completing, generated, lorebooks
from memory_anchor.front.cli.generated import Command, Values
from memory_anchor.front.cli.guide import group
from memory_anchor.front.cli.link import call
from memory_anchor.front.cli.output import (
    SHOWN,
    HumanOption,
    JsonOption,
    block,
    err,
    guarded,
    out,
    quiet,
    show_json,
    shown,
)
from memory_anchor.front.cli.passphrase import human_signer
from memory_anchor.json_values import Record, items, number, record, records, text, texts

HELP = "What stands written elsewhere: documents, code and Git history, with citations that open."
NO_SOURCE = "no source yet; `memory-anchor knowledge add .` reads this checkout's documents"
KINDS = ("repo_docs", "git_history", "files", "lorebook")
SENTENCES = 20
"""Of one source, about documents that were left out."""
PUSH_BYTES_MAX = 12 * 1024 * 1024


def register(app: typer.Typer) -> None:
    knowledge = group(app, "knowledge", HELP)
    knowledge.command("add")(add)
    knowledge.command("push")(push)
    knowledge.command("sync")(sync)
    generated.register(knowledge, *COMMANDS)


@guarded
def add(
    ref: Annotated[str, typer.Argument(help="A folder or a file.")],
    kind: Annotated[
        str,
        typer.Option(
            help="repo_docs, git_history, files or lorebook.",
            autocompletion=completing.words(*KINDS),
        ),
    ] = "",
    trust: Annotated[
        str | None,
        typer.Option(
            help="trusted, semi_trusted or untrusted; needs --human.",
            autocompletion=completing.words("trusted", "semi_trusted", "untrusted"),
        ),
    ] = None,
    visibility: Annotated[
        str | None,
        typer.Option(
            help="project (default), user or account.", autocompletion=completing.words("project", "user", "account")
        ),
    ] = None,
    converter: Annotated[str | None, typer.Option(metavar="CMD", help="Makes Markdown of other formats.")] = None,
    human: HumanOption = False,
    json_: JsonOption = False,
) -> None:
    """Add a source and read it: a checkout's documents or Git history, or a folder."""
    place = Path(ref).expanduser().absolute()
    if kind and kind not in KINDS:
        raise BadInput(f"--kind is {kind[:80]!r}; allowed are {', '.join(KINDS)}")
    if kind == "lorebook":
        lorebooks.add_file(place, human=human, as_json=json_)
        return
    chosen = kind or ("repo_docs" if (place / ".git").exists() else "files")
    given = {"ref": str(place), "kind": chosen, "trust": trust, "visibility": visibility, "converter": converter}
    source = call("knowledge_add", human=human_signer(human), **given)["source"]
    _read_on(text(record(source)["id"]), begin=False)
    _show_one(text(record(source)["id"]), json_)


@guarded
def push(
    file: Annotated[str, typer.Argument(help="A file, or - for standard input.")],
    name: Annotated[str | None, typer.Option(help="Its name, or the URL of a page.")] = None,
    mime: Annotated[str | None, typer.Option()] = None,
    into: Annotated[
        str | None, typer.Option(help="The source it goes into.", autocompletion=completing.sources)
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Push one document: a copy is kept, whatever becomes of the file."""
    if file == "-" and name is None:
        raise BadInput("--name is missing; allowed is a file's name or a URL")
    try:
        content = sys.stdin.buffer.read(PUSH_BYTES_MAX + 1) if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise BadInput(f"{file} cannot be read ({error.strerror}); allowed is a file") from None
    if not 0 < len(content) <= PUSH_BYTES_MAX:
        raise BadInput(f"{file} has {len(content)} bytes; allowed are 1 to {PUSH_BYTES_MAX}")
    encoded = base64.b64encode(content).decode()
    pushed = call("knowledge_push", name=name or Path(file).name, base64=encoded, mime=mime, into=into)
    source = text(record(pushed["source"])["id"])
    _read_on(source, begin=False)
    _show_one(source, json_)


@guarded
def sync(
    source: Annotated[
        str, typer.Argument(help="Only this one, by its id or kind.", autocompletion=completing.sources)
    ] = "",
    json_: JsonOption = False,
) -> None:
    """Read what changed in the sources."""
    _read_on(source, begin=True)
    _show_one("", json_)


def _read_on(source: str, *, begin: bool) -> None:
    """Ask until nothing waits; each call reads for a moment, and embeds where no engine does."""
    more = True
    while more:
        answer = call("knowledge_sync", source=source or None, begin=begin, embed=True)
        begin, more = False, bool(answer["left"] or answer.get("unembedded"))
        if answer.get("unembedded") or answer.get("read"):
            show_progress(answer, more=more)


def show_progress(answer: Record, *, more: bool) -> None:
    """Write how far an answer of `knowledge_sync` says reading came, on a terminal, over the line before."""
    waits = answer.get("unembedded")
    if err.is_terminal:
        told = f"{waits} passages to embed" if waits else _progress(answer)
        err.print(f"[dim]{told}[/]", end="\r" if more else "\n")


def _progress(of: Record) -> str:
    return (
        f"{of['read']} of {of['documents'] or '?'} documents, {of['passages']} passages, "
        f"{number(of['bytes']) / 1e6:.1f} MB, {of['mb_s']} MB/s"
    )


def _show_one(source: str, as_json: bool) -> None:
    answer = call("knowledge_sources")
    if source:
        answer = {"sources": [one for one in records(answer["sources"]) if one["id"] == source]}
    if as_json:
        show_json(answer)
    else:
        _list(answer, {})


def _list(answer: Record, _: Values) -> None:
    for one in records(answer["sources"]):
        out.print(f"[cyan]{one['id']}[/] {one['kind']} [dim]{one['trust']}[/] {shown(one['ref'])}")
        waits = f", {one['waiting']} waiting" if one.get("waiting") else ""
        out.print(f"  {one['documents']} documents, {one['passages']} passages{waits}")
        if one.get("reading"):
            out.print(f"  [dim]reading: {_progress(record(one['reading']))}[/]")
        if left := one.get("left_out"):
            out.print(
                f"  [dim]left out: {', '.join(f'{count} {shown(why)}' for why, count in record(left).items())}[/]"
            )
        skipped = items(one.get("skipped"))
        for sentence in [*skipped[:SENTENCES], *filter(None, [one.get("wrong")])]:
            out.print(f"  [yellow]{shown(str(sentence))}[/]")
        if len(skipped) > SENTENCES:
            out.print(f"  [dim]and others; `memory-anchor knowledge list --json` tells {len(skipped)}[/]")
    for one in records(answer.get("lorebooks", ())):
        out.print(f"[cyan]{shown(one['name'])}[/] lorebook [dim]{one['trust']}[/] {shown(one['file'])}")
    if not answer["sources"] and not answer.get("lorebooks"):
        quiet(NO_SOURCE)
    elif answer.get("unembedded"):
        quiet(
            f"{answer['unembedded']} passages are found by words until an engine has embedded them, or `knowledge sync`"
        )


def _search(answer: Record, _: Values) -> None:
    SHOWN.extend(str(one["id"]) for one in records(answer["snippets"]))
    for one in records(answer["snippets"]):
        cited = records(one["citations"])[0]
        place = record(cited.get("locator"))
        lines = f":{place['line_start']}-{place['line_end']}" if "line_start" in place else ""
        weak = " [dim]weak[/]" if one.get("weak") else ""
        stale = f" [yellow]{cited['freshness']}[/]" if cited.get("freshness") not in (None, "fresh") else ""
        out.print(
            f"[cyan]{one['id']}[/] {shown(cited['ref'])}{lines} [dim]{cited.get('trust', 'agent')}[/]{weak}{stale}"
        )
        if record(place).get("heading"):
            out.print(f"  [dim]{shown(' > '.join(texts(record(place)['heading'])))}[/]")
        out.print(block(text(one["text"]), "  "))
        for name, value in record(one.get("signals") or {}).items():
            out.print(f"    [dim]{name}:[/] {shown(json.dumps(value, ensure_ascii=False))}")
        if near := record(one.get("beside")):
            first, last = items(near["lines"])
            out.print(f"  [dim]{near['side']} it, lines {first}-{last}[/]")
            out.print(block(text(near["text"]), "    "))
    if not answer["snippets"] and any(record(call("knowledge_sources")).values()):
        quiet("nothing fits")
    elif not answer["snippets"]:
        quiet(NO_SOURCE)


def _show(answer: Record, _: Values) -> None:
    colour = {"fresh": "green", "moved": "yellow"}.get(text(answer["standing"]), "red")
    lines = ", lines {}-{}".format(*items(answer["lines"])) if answer.get("lines") else ""
    cited = records(answer["citations"])[0]
    out.print(f"[{colour}]{answer['standing']}[/]{lines} {shown(cited['ref'])} [dim]{cited.get('trust', 'agent')}[/]")
    if answer.get("diff"):
        out.print(block(text(answer["diff"]), "  "))
    out.print(block(text(answer.get("around") or answer["text"] or "(its text is gone)"), "  "))


def _removed(answer: Record, _: Values) -> None:
    word = "nothing of it is left" if answer["clean"] else "[red]something of it is left[/]"
    out.print(
        f"[green]removed[/] {answer['source']}: {answer['passages']} passages, {answer['documents']} documents; {word}"
    )


COMMANDS = (
    Command("list", "knowledge_sources", asks.KnowledgeSources, _list),
    Command("search", "knowledge_search", asks.KnowledgeSearch, _search, ("query",)),
    Command("show", "knowledge_get", asks.KnowledgeGet, _show, ("citation",)),
    Command("remove", "knowledge_remove", asks.KnowledgeRemove, _removed, ("source",), human=True),
)
