"""Commands about knowledge: add, list, sync, push, remove, search, show.

Long work shows its progress on stderr. Without --human a command acts as an agent, and what an agent adds is untrusted.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from memory_anchor.base.json_values import Record, items, record, records, text, texts
from memory_anchor.domain.errors import BadInput
from memory_anchor.front.cli import completing, generated
from memory_anchor.front.cli.generated import Command, Values
from memory_anchor.front.cli.guide import group
from memory_anchor.front.cli.link import call
from memory_anchor.front.cli.output import (
    SHOWN_IDS,
    HumanOption,
    JsonOption,
    block,
    escaped,
    handle_errors,
    out,
    print_dim,
    progress_line,
    show_json,
    show_progress,
)
from memory_anchor.front.cli.passphrase import human_signer

HELP = "What others wrote: documents, code and Git history, with citations that open."
NO_SOURCE = "no source yet; `memory-anchor knowledge add .` reads this checkout's documents"
KINDS = ("repo_docs", "git_history", "files")
SENTENCES = 20
"""How many documents that were left out are named, by source."""
PUSH_BYTES_MAX = 12 * 1024 * 1024


def register(app: typer.Typer) -> None:
    knowledge = group(app, "knowledge", HELP)
    knowledge.command("add")(add)
    knowledge.command("push")(push)
    knowledge.command("sync")(sync)
    generated.register(knowledge, *COMMANDS)


@handle_errors
def add(
    ref: Annotated[str, typer.Argument(help="A folder or a file.")],
    kind: Annotated[str, completing.choice(*KINDS)] = "",
    trust: Annotated[
        str | None, completing.choice("trusted", "semi_trusted", "untrusted", note="; needs --human")
    ] = None,
    visibility: Annotated[
        str | None, completing.choice("project", "user", "account", note="; project when left out")
    ] = None,
    converter: Annotated[str | None, typer.Option(metavar="CMD", help="Makes Markdown of other formats.")] = None,
    human: HumanOption = False,
    json_: JsonOption = False,
) -> None:
    """Add a source and read it: a checkout's documents or Git history, or a folder."""
    place = Path(ref).expanduser().absolute()
    if kind and kind not in KINDS:
        raise BadInput(f"--kind is {kind[:80]!r}; allowed are {', '.join(KINDS)}")
    chosen = kind or ("repo_docs" if (place / ".git").exists() else "files")
    arguments = {"ref": str(place), "kind": chosen, "trust": trust, "visibility": visibility, "converter": converter}
    source = call("knowledge_add", human=human_signer(human), **arguments)["source"]
    _read_and_show(text(record(source)["id"]), json_)


@handle_errors
def push(
    file: Annotated[str, typer.Argument(help="A file, or - for standard input.")],
    name: Annotated[str | None, typer.Option(help="Its name, or the URL of a page.")] = None,
    mime: Annotated[str | None, typer.Option()] = None,
    into: Annotated[str | None, typer.Option(help="Its source.", autocompletion=completing.sources)] = None,
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
    _read_and_show(text(record(pushed["source"])["id"]), json_)


@handle_errors
def sync(
    source: Annotated[
        str, typer.Argument(help="Only this one, by its id or kind.", autocompletion=completing.sources)
    ] = "",
    json_: JsonOption = False,
) -> None:
    """Read what changed in the sources."""
    _read_all(source, begin=True)
    _show_sources("", json_)


def _read_and_show(source: str, as_json: bool) -> None:
    _read_all(source, begin=False)
    _show_sources(source, as_json)


def _read_all(source: str, *, begin: bool) -> None:
    """Call until nothing is left; each call reads for a moment, and embeds where no engine does."""
    more = True
    while more:
        answer = call("knowledge_sync", source=source or None, begin=begin, embed=True)
        begin, more = False, bool(answer["left"] or answer.get("unembedded"))
        if answer.get("unembedded") or answer.get("read"):
            show_progress(answer, more=more)


def _show_sources(source: str, as_json: bool) -> None:
    answer = call("knowledge_sources")
    if source:
        answer = {"sources": [row for row in records(answer["sources"]) if row["id"] == source]}
    if as_json:
        show_json(answer)
    else:
        _list(answer, {})


def _list(answer: Record, _: Values) -> None:
    for source in records(answer["sources"]):
        out.print(f"[cyan]{source['id']}[/] {source['kind']} [dim]{source['trust']}[/] {escaped(source['ref'])}")
        waits = f", {source['waiting']} waiting" if source.get("waiting") else ""
        out.print(f"  {source['documents']} documents, {source['passages']} passages{waits}")
        if source.get("reading"):
            out.print(f"  [dim]reading: {progress_line(record(source['reading']))}[/]")
        if left := source.get("left_out"):
            counts = ", ".join(f"{count} {escaped(why)}" for why, count in record(left).items())
            out.print(f"  [dim]left out: {counts}[/]")
        skipped = items(source.get("skipped"))
        for sentence in [*skipped[:SENTENCES], *filter(None, [source.get("wrong")])]:
            out.print(f"  [yellow]{escaped(str(sentence))}[/]")
        if len(skipped) > SENTENCES:
            out.print(f"  [dim]and others; `memory-anchor knowledge list --json` tells {len(skipped)}[/]")
    if not answer["sources"]:
        print_dim(NO_SOURCE)
    elif answer.get("unembedded"):
        left = answer["unembedded"]
        print_dim(f"{left} passages are found by words alone until an engine or `knowledge sync` has embedded them")


def _search(answer: Record, _: Values) -> None:
    SHOWN_IDS.extend(str(snippet["id"]) for snippet in records(answer["snippets"]))
    for snippet in records(answer["snippets"]):
        cited = records(snippet["citations"])[0]
        locator = record(cited.get("locator"))
        lines = f":{locator['line_start']}-{locator['line_end']}" if "line_start" in locator else ""
        weak = " [dim]weak[/]" if snippet.get("weak") else ""
        stale = f" [yellow]{cited['freshness']}[/]" if cited.get("freshness") not in (None, "fresh") else ""
        trust = f" [dim]{cited.get('trust', 'agent')}[/]"
        out.print(f"[cyan]{snippet['id']}[/] {escaped(cited['ref'])}{lines}{trust}{weak}{stale}")
        if locator.get("heading"):
            out.print(f"  [dim]{escaped(' > '.join(texts(locator['heading'])))}[/]")
        out.print(block(text(snippet["text"]), "  "))
        for name, value in record(snippet.get("signals") or {}).items():
            out.print(f"    [dim]{name}:[/] {escaped(json.dumps(value, ensure_ascii=False))}")
        if near := record(snippet.get("beside")):
            first, last = items(near["lines"])
            out.print(f"  [dim]{near['side']} it, lines {first}-{last}[/]")
            out.print(block(text(near["text"]), "    "))
    if not answer["snippets"] and any(record(call("knowledge_sources")).values()):
        print_dim("nothing fits")
    elif not answer["snippets"]:
        print_dim(NO_SOURCE)


def _show(answer: Record, _: Values) -> None:
    colour = {"fresh": "green", "moved": "yellow"}.get(text(answer["standing"]), "red")
    lines = ", lines {}-{}".format(*items(answer["lines"])) if answer.get("lines") else ""
    cited = records(answer["citations"])[0]
    out.print(f"[{colour}]{answer['standing']}[/]{lines} {escaped(cited['ref'])} [dim]{cited.get('trust', 'agent')}[/]")
    if answer.get("diff"):
        out.print(block(text(answer["diff"]), "  "))
    out.print(block(text(answer.get("around") or answer["text"] or "(its text is gone)"), "  "))


def _removed(answer: Record, _: Values) -> None:
    word = "nothing of it is left" if answer["clean"] else "[red]something of it is left[/]"
    out.print(
        f"[green]removed[/] {answer['source']}: {answer['passages']} passages, {answer['documents']} documents; {word}"
    )


COMMANDS = (
    Command("list", _list, call="knowledge_sources"),
    Command("search", _search, ("query",), call="knowledge_search"),
    Command("show", _show, ("citation",), call="knowledge_get"),
    Command("remove", _removed, ("source",), call="knowledge_remove", human=True),
)
