"""What a command prints: JSON when asked, else a few plain lines; an error is one sentence on stderr.

Stored text came from agents, so it never reaches the terminal as it is: both consoles spell out what a terminal would
obey or hide, and `escaped` also keeps a field on one line, so that no text can pass for a line of ours.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec, TextIO, TypeVar

import typer

from memory_anchor.base.json_values import Json, Record, optional_text, records, text, texts
from memory_anchor.base.json_values import number as number_of
from memory_anchor.base.terminal import visible, visible_json, visible_lines
from memory_anchor.domain.errors import BadInput, DiskFull, MemoryAnchorError, report
from memory_anchor.front.cli.spinner import CLEAR, Spinner
from memory_anchor.runtime.wire import InvalidSetting, local_zone

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memory_anchor.front.cli.drawing import Terminal

P = ParamSpec("P")
R = TypeVar("R")
TEXT_SHOWN = 300
PROMPT_ROOM = 6
"""Columns that a prompt leaves for its default and the answer: ` [s]: `."""
INTERRUPTED = 130
"""The exit code after Ctrl-C."""
FORCED = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""What rich takes for a terminal where there is none."""
TAG = re.compile(r"(?<!\\)(\\*+)(\[[a-z#/@][^\[\]]*+\])")
"""What rich reads as a tag of its markup; after an odd number of backslashes it is text."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
SHOWN_IDS: list[str] = []
"""Ids of the memories that the running command showed, in order; `guide` names the first at its end."""
TABLE_COLUMNS = 100
"""From this width on a list is a table; below it each memory has its text on separate lines."""
LAYERS = {"identity_schema": "L0", "active_context": "L1", "event_log": "L2", "verified_fact": "L3"}
LAYERS |= {"operational_knowledge": "L4"}
JsonOption = Annotated[bool, typer.Option("--json", help="Answer as JSON.")]
HumanOption = Annotated[bool, typer.Option("--human", help="Count as human: asks for the passphrase on the terminal.")]
ServerOption = Annotated[str, typer.Option("--server", metavar="URL", help="A served memory instead of this one.")]
KeyFileOption = Annotated[
    str, typer.Option("--key-file", metavar="FILE", help="With --server: holds the access key; - is standard input.")
]
AtOption = Annotated[str | None, typer.Option("--at", metavar="ISO", help="Look as of another time (for checks).")]


class Printer:
    """Prints lines with markup: a pipe gets them plain, and only a terminal loads what draws (`drawing`)."""

    def __init__(self, *, stderr: bool = False) -> None:
        self._stderr = stderr

    @functools.cached_property
    def console(self) -> Terminal:
        from memory_anchor.front.cli.drawing import Terminal

        return Terminal(stderr=self._stderr, highlight=False, soft_wrap=True, emoji=False)

    @property
    def _stream(self) -> TextIO:
        return sys.stderr if self._stderr else sys.stdout

    @property
    def is_terminal(self) -> bool:
        """Return whether somebody sees it drawn; a setting of the environment may say so of a pipe."""
        draws = "console" in vars(self) or self._stream.isatty() or any(name in os.environ for name in FORCED)
        return draws and self.console.is_terminal

    @property
    def width(self) -> int:
        return self.console.width

    def print(self, *objects: RenderableType, **how: Any) -> None:
        """Print as rich does; one text alone, to a pipe, without it."""
        one = objects[0] if len(objects) == 1 else None
        if how or not isinstance(one, str) or self.is_terminal or "\t" in one:
            self.console.print(*objects, **how)
            return
        self._stream.write(unmarked(visible_lines(one)) + "\n")
        self._stream.flush()


out = Printer()
err = Printer(stderr=True)


def escape(text: str) -> str:
    """Return a text as markup that shows it.

    >>> escape("a[b]"), unmarked(escape("a[b]\\\\"))
    ('a\\\\[b]', 'a[b]\\\\')
    """
    marked = TAG.sub(lambda tag: f"{tag[1]}{tag[1]}\\{tag[2]}", text)
    return marked + "\\" if marked.endswith("\\") and not marked.endswith("\\\\") else marked


def unmarked(markup: str) -> str:
    """Return the text of markup, without its tags.

    >>> unmarked("[bold red]error:[/] no \\\\[such] file")
    'error: no [such] file'
    """
    parts, position = [], 0
    for tag in TAG.finditer(markup):
        parts.append(markup[position : tag.start()].replace("\\[", "["))
        pairs, is_escaped = divmod(len(tag[1]), 2)
        parts.append("\\" * pairs + tag[2] * is_escaped)
        position = tag.end()
    return "".join([*parts, markup[position:].replace("\\[", "[")])


def cells(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fitted(question: str) -> str:
    """Return what a prompt asks, broken between words where the terminal is narrow."""
    if not out.is_terminal:
        return question
    import textwrap

    return "\n".join(textwrap.wrap(question, max(20, out.width - PROMPT_ROOM)))


def escaped(value: Json) -> str:
    """Return a stored value as one line of markup, with invisible characters spelled out."""
    return escape(visible(str(value)))


def block(text: str, indent: str = "") -> str:
    """Return a stored text, each line after a bar when it has several, so that none can pass for one of ours."""
    bar = "│ " if "\n" in text else ""
    return escape("\n".join(f"{indent}{bar}{line}" for line in visible_lines(text).split("\n")))


def handle_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Return the command with our errors shown as one sentence (and with --json an object) and the exit code."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        as_json = bool(kwargs.get("json_"))
        try:
            result = command(*args, **kwargs)
            sys.stdout.flush()
            return result
        except MemoryAnchorError as error:
            fail(error, as_json=as_json)
        except InvalidSetting as error:
            fail(BadInput(str(error)), as_json=as_json)
        except KeyboardInterrupt:
            if sys.stderr.isatty():
                sys.stderr.write(CLEAR)
            err.print(Ticker.stopped())
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:  # `memory-anchor export - | head`
            _give_up_stdout()
            raise typer.Exit(0) from None
        except OSError as error:
            if error.errno not in FULL or error.filename is not None:
                raise
            _give_up_stdout()  # `memory-anchor list > FILE` on a full disk
            fail(DiskFull(f"the output could not be written: {error.strerror}; free some space and run it again"))

    return run


def _give_up_stdout() -> None:
    """Send what is still buffered to /dev/null, so that the end of the process fails no second time."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(error: MemoryAnchorError, *, as_json: bool = False) -> NoReturn:
    kind = report(error)
    if as_json:
        show_failure(kind.code, str(error))
    err.print(f"[bold red]error:[/] {escaped(str(error))}")
    raise typer.Exit(kind.exit_code)


def show_failure(code: str, message: str) -> None:
    """Write a failure as JSON to stdout, where a program reads the answer: its code, as over HTTP, and message."""
    show_json({"error": code, "message": message})


def show_json(value: Mapping[str, object] | Sequence[object]) -> None:
    sys.stdout.write(visible_json(json.dumps(value, ensure_ascii=False, indent=2)) + "\n")


def show_outcome(answer: Record, as_json: bool) -> None:
    """Print the outcome of a write."""
    SHOWN_IDS.extend(filter(None, [optional_text(answer.get("id"))]))
    if as_json:
        show_json(answer)
        return
    colour = {"rejected": "red", "needs_review": "yellow", "pending": "yellow"}.get(text(answer["outcome"]), "green")
    line = f"[{colour}]{answer['outcome']}[/] {escaped(answer.get('id') or '')}"
    if answer.get("target_id"):
        line += f" [dim](about {escaped(answer['target_id'])})[/]"
    out.print(line)
    if answer.get("reason"):
        out.print(f"  [dim]{escaped(answer['reason'])}[/]")
    if answer.get("redactions"):
        out.print(f"  [yellow]redacted:[/] {', '.join(texts(answer['redactions']))}")
    for other in records(answer.get("similar", ())):
        out.print(f"  [dim]similar:[/] {escaped(other['id'])} {escaped(clipped(text(other.get('text', ''))))}")


def layer_name(layer: Json) -> str:
    """Return a layer's short name, as commands take it: L2."""
    return LAYERS.get(str(layer), str(layer))


def local_time(moment: Json | datetime) -> str:
    """Return an instant to the minute in this terminal's named zone; other text is returned as it is."""
    try:
        at = datetime.fromisoformat(str(moment))
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return at.astimezone(_zone(local_zone(os.environ))).strftime("%Y-%m-%d %H:%M %Z")
    except (ValueError, OverflowError, KeyError):  # a KeyError: no such zone
        return str(moment)


def _zone(name: str) -> tzinfo | None:
    if name in ("", "UTC"):
        return UTC if name else None
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


def show_memories(memories: Iterable[Record]) -> None:
    """List memories: a table, short blocks in a narrow terminal, a line each in a pipe."""
    rows = [
        (
            str(m["id"]),
            layer_name(m["layer"]),
            str(m["type"]),
            str(m.get("status", "active")),
            local_time(m.get("when") or m.get("recorded_at") or ""),
            "📌 " * bool(m.get("pinned")) + visible(clipped(text(m["content"]))),
        )
        for m in memories
    ]
    SHOWN_IDS.extend(row[0] for row in rows)
    if not out.is_terminal:
        for row in align_columns(rows):
            out.print(escape(row))
    elif out.width < TABLE_COLUMNS:
        for name, layer, kind, status, when, content in rows:
            mark = "" if status == "active" else f" [yellow]{escaped(status)}[/]"
            out.print(f"[cyan]{escaped(name)}[/] [dim]{layer} {escaped(kind)}, {escaped(when)}[/]{mark}")
            print_paragraph(content)
    else:
        from memory_anchor.front.cli.drawing import table

        out.print(table(rows), soft_wrap=False)


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return one line a row; all columns but the last are as wide as their widest cell on a terminal."""
    widths = [max(cells(visible(cell)) for cell in column) for column in zip(*rows, strict=True)][:-1]
    return [
        "  ".join([*(visible(c) + " " * (w - cells(visible(c))) for c, w in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]


def print_paragraph(text: str, indent: int = 2, *, head: str = "") -> None:
    """Print a stored text as one paragraph, indented below its head; in a pipe it is one line.

    head: text of ours, on the first line, two columns to the left.
    """
    if not out.is_terminal:
        out.print(f"{' ' * (indent - 2 * bool(head))}[dim]{head}[/]{escaped(text)}")
        return
    from memory_anchor.front.cli.drawing import paragraph

    for line in paragraph(text, out.console, indent, head=head):
        out.print(line)


def clipped(text: str, most: int = TEXT_SHOWN) -> str:
    """Return one line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def print_dim(message: str) -> None:
    out.print(f"[dim]{escaped(message)}[/]")


class Ticker:
    """Progress on stderr: one line that changes on a terminal, else a line every `every` steps."""

    last = ""
    """What was shown last in this process, until that ended."""

    @staticmethod
    def stopped() -> str:
        """Return what is said at Ctrl-C."""
        if at := f"at: {escaped(Ticker.last)}" if Ticker.last else Spinner.current and f"while {Spinner.current}":
            return f"stopped {at}; it is safe to run the same command again"
        return "stopped; look with `memory-anchor list` at what was done before you run it again"

    def __init__(self, what: str, *, every: int = 1_000) -> None:
        self._what = what
        self._every = every
        self._shown = 0
        self._live = sys.stderr.isatty()

    def at(self, done: int, total: int | None = None, what: str = "") -> None:
        of = f" of {total}" if total else ""
        text = Ticker.last = f"{what or self._what} {done}{of}"
        if self._live:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
        elif done - self._shown >= self._every or done < self._shown:
            self._shown = done
            sys.stderr.write(f"{text}\n")

    def read(self, done: int) -> None:
        self.at(done, what="read")

    def end(self) -> None:
        """Clear the line; work that an exception cuts off, Ctrl-C too, did not end and is still named."""
        if sys.exception() is None:
            Ticker.last = ""
        if self._live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def show_progress(answer: Record, *, more: bool) -> None:
    """Print the progress that `knowledge_sync` answered, on a terminal, over the line before."""
    if err.is_terminal:
        left = answer.get("unembedded")
        line = Ticker.last = f"{left} passages to embed" if left else progress_line(answer)
        err.print(f"[dim]{line}[/]", end="\r" if more else "\n")


def progress_line(counts: Record) -> str:
    return (
        f"{counts['read']} of {counts['documents'] or '?'} documents, {counts['passages']} passages, "
        f"{number_of(counts['bytes']) / 1e6:.1f} MB, {counts['mb_s']} MB/s"
    )


def flat(value: Record, prefix: str = "") -> list[tuple[str, Json]]:
    """Return nested settings as (dotted name, value)."""
    rows: list[tuple[str, Json]] = []
    for name, inner in value.items():
        dotted = f"{prefix}{name}"
        if isinstance(inner, dict) and inner:
            rows += flat(inner, f"{dotted}.")
        else:
            rows.append((dotted, inner))
    return rows
