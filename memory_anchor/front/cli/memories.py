"""Commands that read and write memories (options made from the requests, see `generated`) or build contexts of them.

`context build` takes a task or a whole prompt: a file or standard input, as JSON (an object with `messages`, or the
messages alone) or JSON lines, one message a line. Any other content is refused without quoting it. A mistyped path is
not taken for a task: text that can only be a path must name a file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from memory_anchor.base.json_values import Json, Record, items, parsed, record, records, text
from memory_anchor.base.lines import text_lines
from memory_anchor.domain.errors import BadInput, Unavailable
from memory_anchor.front.cli import completing, generated
from memory_anchor.front.cli.generated import Command, Values, option
from memory_anchor.front.cli.guide import group
from memory_anchor.front.cli.link import call
from memory_anchor.front.cli.output import (
    SHOWN_IDS,
    JsonOption,
    block,
    clipped,
    escape,
    escaped,
    handle_errors,
    layer_name,
    local_time,
    out,
    print_dim,
    print_paragraph,
    show_json,
    show_memories,
    show_outcome,
)
from memory_anchor.front.cli.shorthand import only_match


def _search(answer: Record, values: Values) -> None:
    if "reasons" in answer:
        _why_not(answer, values)
        return
    SHOWN_IDS.extend(str(snippet["id"]) for snippet in records(answer["snippets"]))
    for snippet in records(answer["snippets"]):
        when = local_time(snippet.get("when", ""))
        status = "" if snippet.get("status", "active") == "active" else f" [yellow]{escaped(snippet['status'])}[/]"
        about = f"{layer_name(snippet['layer'])} {snippet['type']} {when}{' (weak)' * bool(snippet.get('weak'))}"
        chance = snippet.get("relevance")  # the chance that it is right; none where nothing was asked
        figure = f"{snippet['score']:.3f}" if chance is None else f"{chance:.0%}"
        out.print(f"[cyan]{snippet['id']}[/] {figure} [dim]{escaped(about)}[/]{status}")
        print_paragraph(clipped(text(snippet["text"]), 1000))
        for name, value in (record(snippet.get("signals") or {})).items():
            out.print(f"    [dim]{name}:[/] {escaped(json.dumps(value, ensure_ascii=False))}")
    if not answer["snippets"]:
        print_dim("nothing is remembered")
    for note in items(answer.get("notes", ())):
        print_dim(text(note))
        if "not embedded yet" in text(note):
            print_dim("an engine embeds them: `memory-anchor engine start`, or an agent's next session")


def _search_calls(values: Values) -> list[tuple[str, Values]]:
    why_not = values.pop("why_not", None)
    if why_not is None:
        return [("search", values)]
    return [("why_not", {"id": why_not, "query": values["query"], "at": values.get("at")})]


def _pin_calls(values: Values) -> list[tuple[str, Values]]:
    return [("unpin" if values.pop("off", False) else "pin", values)]


def _why_not(answer: Record, values: Values) -> None:
    SHOWN_IDS.append(str(values["id"]))
    for reason in items(answer["reasons"]):
        out.print(f"- {escaped(reason)}")


def _outcome(answer: Record, _: Values) -> None:
    show_outcome(answer, False)


def _list_calls(values: Values) -> list[tuple[str, Values]]:
    """Return the call that lists a layer: L0 is the constitution, which is in no store."""
    is_constitution = str(values["layer"] or "").lower() in ("l0", "identity_schema")
    return [("constitution", {}) if is_constitution else ("list", values)]


def _list(answer: Record, _: Values) -> None:
    if "entries" in answer:
        for entry in records(answer["entries"]):
            out.print(f"[cyan]{escaped(entry['id'])}[/] [dim]L0[/]")
            print_paragraph(text(entry["content"]))
        for warning in items(answer["warnings"]):
            print_dim(text(warning))
    elif answer["memories"]:
        show_memories(records(answer["memories"]))
    else:
        print_dim("nothing here yet; `memory-anchor add TEXT` saves the first memory")


TIME_FIELDS = frozenset({"when", "recorded_to", "valid_from", "valid_to"})


def _show(answer: Record, _: Values) -> None:
    memory = {name: value for name, value in answer.items() if name != "memory"}
    SHOWN_IDS.append(str(memory.get("id", "")))
    content = str(memory.pop("content"))
    if "\n" in content:
        out.print(block(content))
    else:
        print_paragraph(content, 0)
    for name, value in memory.items():
        print_paragraph(_field_text(name, value), 4, head=f"{name}: ")


def _field_text(name: str, value: Json) -> str:
    if name in TIME_FIELDS or name.endswith("_at"):
        return local_time(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_field_text(str(key), inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return "; ".join(_field_text(name, inner) for inner in value)
    return layer_name(value) if name == "layer" else str(value)


def _profile(answer: Record, _: Values) -> None:
    out.print(block(text(answer["text"] or "Nothing is known of the user or the project yet.")))


def _history(answer: Record, values: Values) -> None:
    id = ""
    for step in records(answer["steps"]):
        why = f": {escaped(step['why'])}" if step["why"] else ""
        out.print(f"[cyan]{step['version_id']}[/] [dim]{local_time(step['at'])}[/] {escaped(step['by'])}{why}")
        before, id = id, text(step["version_id"]).partition("@")[0]
        if values["story"] and id != before:
            out.print(f"    {escaped(clipped(text(step['content'])))}")
        for name, change in record(step["changes"]).items():
            old, new = items(change)
            print_paragraph(f"{name}: {old} -> {new}", 4)
        for line in items(step["diff"]):
            print_paragraph(text(line), 4)
    if "before" in answer and not values["story"]:
        print_dim(f"these are the newest; older ones: memory-anchor history {id} --before {answer['before']}")
    SHOWN_IDS.extend([id] if id else [])


def _add_calls(values: Values) -> list[tuple[str, Values]]:
    """Return the call that saves the memory, or those that save a file's observations."""
    file = values.pop("observation")
    if file is None:
        return [("add", values)]
    from memory_anchor.front.cli.observations import Observation

    names = {"save_memory": "add", "log_event": "log"}
    calls = [observation.to_call() for observation in Observation.read_all(_read_json(Path(str(file))))]
    return [(names[call.use_case], dict(call.arguments)) for call in calls]


def _edit_calls(values: Values) -> list[tuple[str, Values]]:
    """Return the call that changes the text, or with --epistemic the one that judges it."""
    judgement = {name: values.pop(name) for name in ("epistemic", "shown_by")}
    if judgement["epistemic"] is not None:
        return [("judge", {"id": values["id"], **judgement})]
    return [("edit", values)]


def _read_json(path: Path) -> Json:
    try:
        content = path.read_bytes().decode("utf-8-sig")
        try:
            return parsed(content)
        except ValueError:  # one observation a line
            return [parsed(line) for line in text_lines(content) if line.strip()]
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); allowed is a JSON file") from None
    except ValueError:
        raise BadInput(f"{path} is not JSON; allowed is an observation as in .ai/operations/templates") from None


OBSERVATION = option("observation", Path | None, None, "An observation as JSON (.ai/operations/templates).")
WHY_NOT = option("why_not", str | None, None, "Explain why this memory is not among them.", "--why-not", metavar="ID")
OFF = option("off", bool, False, "Unpin it.", "--off")
JUDGEMENT = (
    option("epistemic", str | None, None, "hypothesis, verified or refuted, instead of a text."),
    option("shown_by", str | None, None, "The command or link that showed it."),
)
COMMANDS = (
    Command("search", _search, ("query",), at=True, extra=(WHY_NOT,), calls=_search_calls),
    Command(
        "add",
        _outcome,
        ("content",),
        is_piped=True,
        human=True,
        extra=(OBSERVATION,),
        calls=_add_calls,
    ),
    Command("log", _outcome, ("content",), is_piped=True, human=True),
    Command("list", _list, at=True, calls=_list_calls),
    Command("show", _show, ("id",), at=True),
    Command(
        "edit",
        _outcome,
        ("id", "content"),
        is_piped=True,
        human=True,
        extra=JUDGEMENT,
        calls=_edit_calls,
    ),
    Command("pin", _outcome, ("id",), human=True, extra=(OFF,), calls=_pin_calls),
    Command("unpin", _outcome, ("id",), human=True),
    Command("forget", _outcome, ("id",), human=True),
    Command("restore", _outcome, ("id",), human=True),
    Command("profile", _profile, at=True),
    Command("history", _history, ("id",)),
    Command("why-not", _why_not, ("id", "query"), at=True),
)


def register(app: typer.Typer) -> None:
    generated.register(app, *COMMANDS)
    context = group(app, "context", "Contexts: build one, or show what earlier ones cost.")
    context.command("build")(context_build)
    context.command("show")(context_show)


STDIN = "-"
PROMPT_BYTES_MAX = 64 * 1024 * 1024
WANTED = 'allowed is JSON: {"messages": [...]}, a list of messages, or one message a line'
FILE_SUFFIXES = (".json", ".jsonl", ".md", ".txt", ".yaml", ".yml")
"""Endings by which a word counts as a file's name; any other needs a separator."""


@handle_errors
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
    print_dim(
        f"{total} tokens; `memory-anchor context show {answer.get('report_id', 'ID')}` says what they were spent on"
    )


@handle_errors
def context_show(
    id: Annotated[
        str | None, typer.Argument(help="A report's id; without it, all of them.", autocompletion=completing.reports)
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Show what an earlier context cost and why."""
    if id:
        id = only_match(id, (text(report["id"]) for report in records(call("context_reports")["reports"])))
    answer = call("context_report", id=id) if id is not None else call("context_reports")
    if json_:
        show_json(answer)
        return
    for report in records(answer.get("reports", ())):
        out.print(f"{report['id']}  [dim]{local_time(report['recorded_at'])}[/]")
    if "report" in answer:
        report = record(answer["report"])
        for section in records(report["sections"]):
            out.print(f"{section['part']:<7} {section['name']:<24} {section['tokens']:>6}")
        for decision in records(report["decisions"]):
            out.print(f"[yellow]{escaped(decision['action'])}[/] {escaped(clipped(str(decision.get('reason', ''))))}")


def read_prompt(source: str) -> Record:
    """Return the prompt in a file, "-" for standard input.

    Raises BadInput: too large, not text, no JSON, or neither an object with messages nor messages. Unavailable: the
    file cannot be read.
    """
    name = "standard input" if source == STDIN else source
    text = _prompt_text(source, name)
    try:
        prompt: Json = parsed(text)
    except ValueError:
        prompt = _json_lines(text, name)
    if isinstance(prompt, list):
        return {"messages": prompt}
    if isinstance(prompt, dict) and "role" in prompt and "messages" not in prompt:  # a log of one line
        return {"messages": [prompt]}
    if not isinstance(prompt, dict) or "messages" not in prompt:
        raise BadInput(f"{name} is JSON and no prompt; {WANTED}")
    return prompt


def _prompt_text(source: str, name: str) -> str:
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


def _json_lines(text: str, name: str) -> list[Json]:
    values: list[Json] = []
    for number, line in enumerate(text_lines(text), 1):
        if line.strip():
            try:
                values.append(parsed(line))
            except ValueError:
                where = f" (line {number})" if values else ""
                raise BadInput(f"{name} is no JSON{where}; {WANTED}") from None
    return values


def _is_file(task: str) -> bool:
    try:
        return Path(task).is_file()
    except (OSError, ValueError):  # too long for a name, or with a NUL: a task
        return False


def _reads_as_path(task: str) -> bool:
    """Return whether text can only be a path: one word, or led like a path, with a separator or a file's ending.

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
