"""What a command shows: JSON when asked, else a few quiet lines; an error is one sentence on stderr.

What is stored came from agents, so it never reaches the terminal as it is: both consoles spell out what a terminal
would obey or hide, and `shown` also keeps a field on its one line, so that no text can pass for a line of ours.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from memory_anchor.errors import BadInput, MemoryAnchorError, report
from memory_anchor.front.cli.link import Failed, used
from memory_anchor.runtime.wire import Misread
from memory_anchor.terminal import visible, visible_json, visible_lines

P = ParamSpec("P")
R = TypeVar("R")
TEXT_SHOWN = 300
JsonOption = Annotated[bool, typer.Option("--json", help="Answer as JSON.")]
HumanOption = Annotated[bool, typer.Option("--human", help="Count as human: asks for the passphrase on the terminal.")]
AtOption = Annotated[str | None, typer.Option("--at", metavar="ISO", help="Look as of another time (for checks).")]


class Terminal(Console):
    """A console that spells out control, direction and unseen signs, in cells of tables too."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(visible_lines(text), **how)


out = Terminal(highlight=False, soft_wrap=True, emoji=False)
err = Terminal(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def shown(value: object) -> str:
    """Return a stored value as one line of markup that shows all there is of it."""
    return escape(visible(str(value)))


def block(text: str, indent: str = "") -> str:
    """Return a stored text with a bar before each of its lines when it has several: none can pass for one of ours."""
    bar = "│ " if "\n" in text else ""
    return escape("\n".join(f"{indent}{bar}{line}" for line in visible_lines(text).split("\n")))


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Return the command with our failures shown as one sentence and their exit code."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            done = command(*args, **kwargs)
            if used():
                from memory_anchor.front.cli.claim import ask_once

                ask_once()
            return done
        except MemoryAnchorError as error:
            fail(error)
        except Misread as error:
            fail(BadInput(str(error)))
        except BrokenPipeError:  # `memory-anchor export - | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None

    return run


def fail(error: MemoryAnchorError) -> NoReturn:
    code = error.exit_code if isinstance(error, Failed) else report(error).exit_code
    err.print(f"[bold red]error:[/] {shown(error)}")
    raise typer.Exit(code)


def show_json(value: Any) -> None:
    sys.stdout.write(visible_json(json.dumps(value, ensure_ascii=False, indent=2)) + "\n")


def show_outcome(answer: Mapping[str, Any], as_json: bool) -> None:
    """Show what became of a write."""
    if as_json:
        show_json(answer)
        return
    colour = {"rejected": "red", "needs_review": "yellow", "pending": "yellow"}.get(answer["outcome"], "green")
    line = f"[{colour}]{answer['outcome']}[/] {shown(answer.get('id') or '')}"
    if answer.get("target_id"):
        line += f" [dim](about {shown(answer['target_id'])})[/]"
    out.print(line)
    if answer.get("reason"):
        out.print(f"  [dim]{shown(answer['reason'])}[/]")
    if answer.get("redactions"):
        out.print(f"  [yellow]redacted:[/] {', '.join(answer['redactions'])}")
    for other in answer.get("similar", ()):
        out.print(f"  [dim]similar:[/] {shown(other['id'])} {shown(clipped(other.get('text', '')))}")


def memory_table(memories: Iterable[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("id", "layer", "type", "status", "when", "text"):
        table.add_column(column, no_wrap=column != "text", overflow="fold")
    for m in memories:
        when = str(m.get("when") or m.get("recorded_at") or "")[:16].replace("T", " ")
        mark = "📌 " if m.get("pinned") else ""
        table.add_row(
            shown(m["id"]),
            {"event_log": "L2", "verified_fact": "L3", "identity_schema": "L0"}.get(m["layer"], shown(m["layer"])),
            shown(m["type"]),
            shown(m.get("status", "active")),
            shown(when),
            mark + shown(clipped(m["content"])),
        )
    return table


def clipped(text: str, most: int = TEXT_SHOWN) -> str:
    """Return one line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def quiet(message: str) -> None:
    out.print(f"[dim]{shown(message)}[/]")
