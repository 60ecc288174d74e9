"""`memory-anchor context`: build a context for a task or a whole prompt, and look again at what one cost.

A whole prompt comes from a file of any name or from standard input, as JSON (an object with `messages`, or the messages
alone) or as JSON lines, one message a line: what a session's log is. What is neither is said in one sentence, without a
word of its content. A mistyped path is no task: what can only be meant as a file must be one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from memory_anchor.errors import BadInput, Unavailable
from memory_anchor.front.cli import completing
from memory_anchor.front.cli.guide import group
from memory_anchor.front.cli.link import call
from memory_anchor.front.cli.output import JsonOption, clipped, guarded, local, out, quiet, show_json, shown
from memory_anchor.front.cli.spoken import the_one
from memory_anchor.json_values import Json, Record, parsed, record, records, text

STDIN = "-"
PROMPT_BYTES_MAX = 64 * 1024 * 1024
WANTED = 'allowed is JSON: {"messages": [...]}, a list of messages, or one message a line'
FILE_SUFFIXES = (".json", ".jsonl", ".md", ".txt", ".yaml", ".yml")
"""What the files end in that people hand over; any other name counts as one only with a separator."""


def register(app: typer.Typer) -> None:
    context = group(app, "context", "Contexts: build one, or show what earlier ones cost.")
    context.command("build")(context_build)
    context.command("show")(context_show)


@guarded
def context_build(
    task: Annotated[str, typer.Argument(metavar="TASK|FILE|-", help="A task in words, or a prompt: a file or stdin.")],
    budget: Annotated[int | None, typer.Option(help="Tokens, for a task.")] = None,
    json_: JsonOption = False,
) -> None:
    """Build what an agent should know for a task, or assemble a whole prompt from a file."""
    if task == STDIN or _is_file(task):
        if budget is not None:
            raise BadInput("--budget is given with a whole prompt; allowed is context_window_tokens in the prompt")
        answer = call("assemble", prompt=read_prompt(task))
    elif _reads_as_path(task):
        raise BadInput(f"{clipped(task)!r} reads as a path and names no file; allowed is a file, or a task in words")
    else:
        answer = call("context", task=task, budget_tokens=budget)
    if json_:
        show_json(answer)
        return
    out.print(escape(text(answer["text"])))
    total = record(record(answer["report"])["estimated_tokens"]).get("total")
    quiet(f"{total} tokens; `memory-anchor context show {answer.get('report_id', 'ID')}` says what they were spent on")


@guarded
def context_show(
    id: Annotated[
        str | None,
        typer.Argument(
            help="A report's id; without one, the reports that are kept.", autocompletion=completing.reports
        ),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Show what an earlier context cost and why."""
    if id:
        id = the_one(
            id,
            {text(one["id"]) for one in records(call("context_reports")["reports"]) if text(one["id"]).startswith(id)},
        )
    answer = call("context_report", id=id) if id is not None else call("context_reports")
    if json_:
        show_json(answer)
        return
    for kept in records(answer.get("reports", ())):
        out.print(f"{kept['id']}  [dim]{local(kept['recorded_at'])}[/]")
    if "report" in answer:
        _show_report(record(answer["report"]))


def _show_report(report: Record) -> None:
    for section in records(report["sections"]):
        out.print(f"{section['part']:<7} {section['name']:<24} {section['tokens']:>6}")
    for decision in records(report["decisions"]):
        out.print(f"[yellow]{shown(decision['action'])}[/] {shown(clipped(str(decision.get('reason', ''))))}")


def read_prompt(source: str) -> Record:
    """Return the prompt in a file, "-" for standard input.

    Raises BadInput: too large, not text, no JSON, or neither an object with messages nor messages. Unavailable: the
    file cannot be read.
    """
    name = "standard input" if source == STDIN else source
    text = _text(source, name)
    try:
        found: Json = parsed(text)
    except ValueError:
        found = _lines(text, name)
    if isinstance(found, list):
        return {"messages": found}
    if isinstance(found, dict) and "role" in found and "messages" not in found:  # a log of one line
        return {"messages": [found]}
    if not isinstance(found, dict) or "messages" not in found:
        raise BadInput(f"{name} is JSON and no prompt; {WANTED}")
    return found


def _text(source: str, name: str) -> str:
    try:
        if source == STDIN:
            content = sys.stdin.buffer.read(PROMPT_BYTES_MAX + 1)
        else:
            with Path(source).open("rb") as file:
                content = file.read(PROMPT_BYTES_MAX + 1)
    except OSError as error:
        raise Unavailable(f"{name} cannot be read: {error.strerror}") from error
    if len(content) > PROMPT_BYTES_MAX:
        raise BadInput(f"{name} has more than {PROMPT_BYTES_MAX >> 20} MB; allowed is less")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{name} is not UTF-8 text; {WANTED}") from None
    if not text.strip():
        raise BadInput(f"{name} is empty; {WANTED}")
    return text


def _lines(text: str, name: str) -> list[Json]:
    found: list[Json] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                found.append(parsed(line))
            except ValueError:
                where = f" (line {number})" if found else ""
                raise BadInput(f"{name} is no JSON{where}; {WANTED}") from None
    return found


def _is_file(task: str) -> bool:
    try:
        return Path(task).is_file()
    except (OSError, ValueError):  # too long for a name, or with a NUL: a task
        return False


def _reads_as_path(task: str) -> bool:
    """Return whether text can only be meant as a path: one word, or led like one, with a separator or a file's ending.

    A link is a task, and so is a slash between two words of a language that writes none apart.

    >>> [_reads_as_path(text) for text in ("notes/prompt", "prompt.json", "./my notes/a.md", "C:\\\\logs\\\\a.txt")]
    [True, True, True, True]
    >>> [_reads_as_path(text) for text in ("mend README.md", "the CI/CD job", "https://example.org/a", "修复登录/注册")]
    [False, False, False, False]
    """
    text = task.strip()
    ends = text.lower().endswith(FILE_SUFFIXES)
    if "://" in text or "\n" in text:
        return False
    if any(letter.isspace() for letter in text):
        return ends and text.startswith(("/", "./", "../", "~/"))
    return ends or (text.isascii() and ("/" in text or "\\" in text))
