"""`memory-anchor lorebook`: add, list, show, scan, remove. The caller's process reads a file and sends its bytes."""

from __future__ import annotations

import base64
from pathlib import Path

import typer

from memory_anchor.base.json_values import Record, record, records, text, texts
from memory_anchor.domain.errors import BadInput
from memory_anchor.front.cli import completing, generated
from memory_anchor.front.cli.generated import Command, Values, option
from memory_anchor.front.cli.guide import group
from memory_anchor.front.cli.memories import read_prompt
from memory_anchor.front.cli.output import block, clipped, escaped, out, print_dim

FILE_BYTES_MAX = 10_500_000
"""Their Base64 is as long as a request allows (`requests.FILE_CONTENT_MAX`)."""
DROPPED_SHOWN = 20
HELP = "World books: entries that come in when the conversation names them."


def register(app: typer.Typer) -> None:
    generated.register(group(app, "lorebook", HELP), *COMMANDS)


def _read_base64(path: Path) -> str:
    """Return a file's bytes in base64. Raises BadInput."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); allowed is a lorebook's file") from None
    if len(content) > FILE_BYTES_MAX:
        raise BadInput(f"{path} has more than {FILE_BYTES_MAX} bytes; split the lorebook")
    if not content:
        raise BadInput(f"{path} is empty; allowed is a lorebook: world info, a character card, or our YAML")
    return base64.b64encode(content).decode()


def _add_calls(values: Values) -> list[tuple[str, Values]]:
    path = Path(text(values["file"]))
    return [("lorebook_add", values | {"file": str(path.absolute()), "content": _read_base64(path)})]


def _scan_calls(values: Values) -> list[tuple[str, Values]]:
    messages = values.pop("messages")
    if not isinstance(messages, str):
        raise BadInput("messages are missing; give --messages FILE, or - for standard input")
    return [("lorebook_scan", values | {"messages": read_prompt(messages)["messages"]})]


def _show_added(answer: Record, _: Values) -> None:
    print_dim(f"{answer['name']}: {answer['entries']} entries ({answer['format']}), trust {answer['trust']}")
    _problems(texts(answer["problems"]))


def _show_list(answer: Record, _: Values) -> None:
    for book in records(answer["books"]):
        about = f"[dim]{book['bytes']} bytes, {book['trust']}, {escaped(book['file'])}[/]"
        out.print(f"[cyan]{escaped(book['name'])}[/] {escaped(book['title'])} {about}")
    if not answer["books"]:
        print_dim("no lorebook here yet; `memory-anchor lorebook add FILE` brings one")


def _show_book(answer: Record, _: Values) -> None:
    for entry in records(answer["entries"]):
        how = "off" if not entry["enabled"] else "constant" if entry["constant"] else ", ".join(texts(entry["keys"]))
        about = f"[dim]({escaped(clipped(how))}; {entry['place']})[/]"
        out.print(f"[cyan]{escaped(entry['id'])}[/] {escaped(entry['title'])} {about}")
        out.print(block(clipped(text(entry["content"])), "  "))
    _problems(texts(answer["problems"]))


def _show_scan(answer: Record, _: Values) -> None:
    for snippet in records(answer["snippets"]):
        out.print(f"[cyan]{escaped(snippet['id'])}[/]")
        out.print(block(text(snippet["text"]), "  "))
    report = record(answer["report"])
    for way, colour in (("admitted", "[green]in [/]"), ("dropped", "[yellow]out[/]")):
        for entry in records(report[way]):
            by = f" by {entry['key']!r}" if entry.get("key") else ""
            tokens = f", {entry['tokens']} tokens" if "tokens" in entry else ""
            more = f"; {entry['detail']}" if entry.get("detail") else ""
            reason = f"{entry['why']}{by} in pass {entry['pass']}{tokens}{more}"
            out.print(f"{colour} {escaped(entry['id'])} {escaped(entry['title'])}: {escaped(reason)}")
    tokens = f"{report['tokens']} of {report['budget_tokens']} tokens in {report['passes']} passes"
    print_dim(f"{tokens}; {report['left_out']} more entries are out")
    _problems(texts(report["notes"]))


def _problems(problems: list[str]) -> None:
    for problem in problems[:DROPPED_SHOWN]:
        out.print(f"[yellow]note[/] {escaped(problem)}")


def _show_removed(answer: Record, _: Values) -> None:
    print_dim(f"{answer['source']} is removed, nothing of it is left" if answer["clean"] else "something of it is left")


MESSAGES = option(
    "messages", str | None, None, "A file with {role, content, name?} as JSON or a line each; - for stdin."
)
NAMED = {"name": completing.lorebooks}
COMMANDS = (
    Command("add", _show_added, ("file",), ("content",), call="lorebook_add", human=True, calls=_add_calls),
    Command("list", _show_list, call="lorebook_list"),
    Command("show", _show_book, ("name",), call="lorebook_show", completes=NAMED),
    Command(
        "scan",
        _show_scan,
        ("name",),
        ("messages",),
        call="lorebook_scan",
        extra=(MESSAGES,),
        calls=_scan_calls,
        completes=NAMED,
    ),
    Command("remove", _show_removed, ("name",), call="lorebook_remove", human=True, completes=NAMED),
)
