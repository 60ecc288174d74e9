"""What a terminal is drawn with: rich, which costs a command more than its answer does, so a pipe goes without it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from memory_anchor.base.terminal import visible, visible_lines

ENDING = "，。；：、！？）】》」』”’"
CONTINUED = 2
"""Blanks by which a line that goes on stands deeper."""


class Terminal(Console):
    """A console that spells out control, direction and invisible characters, in table cells too.

    On a terminal a line that is too long goes on deeper than it began, broken between words, so that no text of a
    memory can make its rest look like a line of ours; elsewhere it stays one line.
    """

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(visible_lines(text), **how)

    def print(self, *objects: Any, **how: Any) -> None:
        if self.is_terminal and not how and len(objects) == 1 and isinstance(objects[0], str | Text):
            text = self.render_str(objects[0]) if isinstance(objects[0], str) else objects[0]
            objects = (Text("\n").join(wrapped(text, self)),)
        super().print(*objects, **how)


def wrapped(text: Text, on: Console) -> list[Text]:
    """Return the lines of a text, none wider than the console."""
    lines: list[Text] = []
    for line in text.split("\n", allow_blank=True):
        if line.cell_len <= on.width:
            lines.append(line)
            continue
        indent = len(line.plain) - len(line.plain.lstrip(" "))
        bar = "│ " if line.plain[indent:].startswith("│ ") else ""
        deeper = min(indent + (0 if bar else CONTINUED), on.width // 2)
        first, *rest = broken(line[indent + len(bar) :], on, max(1, on.width - deeper - len(bar)))
        lines.append(Text(" " * indent + bar) + first)
        lines += [Text(" " * deeper + bar) + part for part in rest]
    return lines


def broken(text: Text, on: Console, width: int) -> list[Text]:
    """Return a text in lines, broken between words; a sign that ends something begins none, as Chinese is set."""
    lines = [*text.wrap(on, width, overflow="fold")]
    if not any(line.plain[:1] in ENDING for line in lines[1:] if line):
        return lines
    lines = [*text.wrap(on, max(2, width - 2), overflow="fold")]
    for before, number in zip(lines, range(1, len(lines)), strict=False):
        while lines[number].plain[:1] in ENDING and lines[number] and before.cell_len + 2 <= width:
            before.append_text(lines[number][:1])
            lines[number] = lines[number][1:]
    return [line for line in lines if line] or lines[:1]


def paragraph(text: str, on: Console, indent: int, *, head: str) -> Iterator[Text]:
    """Yield the lines of a stored text, indented below its head; see `output.print_paragraph`."""
    lines = broken(Text.assemble((head, "dim"), visible(text)), on, max(on.width - indent, 20))
    for number, line in enumerate(lines):
        line.rstrip()
        yield Text(" " * (indent - 2 * bool(head and not number))) + line


def table(rows: Sequence[Sequence[str]]) -> Table:
    """Return a list of memories."""
    made = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("id", "layer", "type", "status", "when", "text"):
        made.add_column(column, no_wrap=column != "text", overflow="fold")
    for row in rows:
        made.add_row(*(Text(visible(cell)) for cell in row))
    return made
