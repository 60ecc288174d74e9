"""Commands that read and write memories, and build contexts of them.

Commands that read and write memories; their options come from the requests (`generated`).

`memory-anchor context`: build a context for a task or a whole prompt, and look again at what one cost.

A whole prompt comes from a file of any name or from standard input, as JSON (an object with `messages`, or the messages
alone) or as JSON lines, one message a line: what a session's log is. What is neither is said in one sentence, without a
word of its content. A mistyped path is no task: what can only be meant as a file must be one.

An observation: what an agent or a hook writes down in a file, in the strategy document's form (section 4.1).

The same fields as the strategy's JSON Schema, generalised to every type and to the old layer names. Its JSON Schema is
generated from this model into `.ai/operations/templates/observation.json`, and a test fails when the two drift. The
summary becomes a memory's key, the details its content; nothing else is stored than what `save_memory` and `log_event`
check themselves, so a file gains no right that a tool call lacks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from rich.markup import escape

from memory_anchor import inputs
from memory_anchor import requests as asks
from memory_anchor.errors import BadInput, Unavailable
from memory_anchor.fields import sentence, without_titles
from memory_anchor.front.cli import completing, generated
from memory_anchor.front.cli.generated import Command, Values, option
from memory_anchor.front.cli.guide import group
from memory_anchor.front.cli.link import call
from memory_anchor.front.cli.output import (
    SHOWN,
    JsonOption,
    block,
    clipped,
    guarded,
    layer_name,
    local,
    out,
    quiet,
    say,
    show_json,
    show_memories,
    show_outcome,
    shown,
)
from memory_anchor.front.cli.spoken import the_one
from memory_anchor.json_values import Json, Record, items, kind_of, optional_text, parsed, record, records, text
from memory_anchor.model import LAYER_OF_TYPE, Layer


def _search(answer: Record, _: Values) -> None:
    SHOWN.extend(str(snippet["id"]) for snippet in records(answer["snippets"]))
    for snippet in records(answer["snippets"]):
        when = local(snippet.get("when", ""))
        status = "" if snippet.get("status", "active") == "active" else f" [yellow]{shown(snippet['status'])}[/]"
        about = f"{layer_name(snippet['layer'])} {snippet['type']} {when}{' (weak)' * bool(snippet.get('weak'))}"
        out.print(f"[cyan]{snippet['id']}[/] {snippet['score']:.3f} [dim]{shown(about)}[/]{status}")
        say(clipped(text(snippet["text"]), 1000))
        for name, value in (record(snippet.get("signals") or {})).items():
            out.print(f"    [dim]{name}:[/] {shown(json.dumps(value, ensure_ascii=False))}")
    if not answer["snippets"]:
        quiet("nothing is remembered")
    for note in items(answer.get("notes", ())):
        quiet(text(note))


def _why_not(answer: Record, values: Values) -> None:
    SHOWN.append(str(values["id"]))
    for reason in items(answer["reasons"]):
        out.print(f"- {shown(reason)}")


def _outcome(answer: Record, _: Values) -> None:
    show_outcome(answer, False)


def _listed(values: Values) -> list[tuple[str, Values]]:
    """Return what lists a layer: L0 is the constitution, which no store holds."""
    if str(values["layer"] or "").lower() in ("l0", "identity_schema"):
        return [("constitution", {})]
    return [("list", values)]


def _list(answer: Record, _: Values) -> None:
    if "entries" in answer:
        for one in records(answer["entries"]):
            out.print(f"[cyan]{shown(one['id'])}[/] [dim]L0[/]")
            say(text(one["content"]))
        for warning in items(answer["warnings"]):
            quiet(text(warning))
    elif answer["memories"]:
        show_memories(records(answer["memories"]))
    else:
        quiet("nothing here yet; `memory-anchor add TEXT` saves the first memory")


TIMES = frozenset({"when", "recorded_to", "valid_from", "valid_to"})


def _show(answer: Record, _: Values) -> None:
    memory = dict(record(answer["memory"]))
    SHOWN.append(str(memory.get("id", "")))
    content = str(memory.pop("content"))
    if "\n" in content:
        out.print(block(content))
    else:
        say(content, 0)
    for name, value in memory.items():
        say(_worded(name, value), 4, head=f"{name}: ")


def _worded(name: str, value: Json) -> str:
    """Return a field's value as a person reads it."""
    if name in TIMES or name.endswith("_at"):
        return local(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_worded(str(key), inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return "; ".join(_worded(name, inner) for inner in value)
    return layer_name(value) if name == "layer" else str(value)


def _profile(answer: Record, _: Values) -> None:
    out.print(block(text(answer["text"] or "Nothing is known of the user or the project yet.")))


def _history(answer: Record, values: Values) -> None:
    last = ""
    SHOWN.extend(str(step["version_id"]).partition("@")[0] for step in records(items(answer["steps"])[-1:]))
    for step in records(answer["steps"]):
        why = f": {shown(step['why'])}" if step["why"] else ""
        out.print(f"[cyan]{step['version_id']}[/] [dim]{local(step['at'])}[/] {shown(step['by'])}{why}")
        if values["story"] and text(step["version_id"]).partition("@")[0] != last:
            last = text(step["version_id"]).partition("@")[0]
            out.print(f"    {shown(clipped(text(step['content'])))}")
        for name, (before, after) in ((one, items(both)) for one, both in record(step["changes"]).items()):
            say(f"{name}: {before} -> {after}", 4)
        for line in items(step["diff"]):
            say(text(line), 4)


def _added(values: Values) -> list[tuple[str, Values]]:
    """Return the memory that is saved, or those of a file of observations."""
    observation = values.pop("observation")
    if observation is None:
        return [("add", values | {"content": _text(optional_text(values["content"]))})]

    calls = {"save_memory": "add", "log_event": "log"}
    every = [one.asks() for one in Observation.read_all(_read_json(Path(str(observation))))]
    return [(calls[asked.use_case], dict(asked.arguments)) for asked in every]


def _logged(values: Values) -> list[tuple[str, Values]]:
    return [("log", values | {"content": _text(optional_text(values["content"]))})]


def _edited(values: Values) -> list[tuple[str, Values]]:
    """Return the new text, or with --epistemic what is thought of the old one."""
    judged = {name: values.pop(name) for name in ("epistemic", "shown_by")}
    if judged["epistemic"] is not None:
        return [("judge", {"id": values["id"], **judged})]
    return [("edit", values | {"content": _text(optional_text(values["content"]))})]


def _text(content: str | None) -> str:
    if content is None or content == "-":
        if sys.stdin.isatty():
            raise BadInput("content is missing; give it as an argument, or pipe it in")
        return sys.stdin.read()
    return content


def _read_json(path: Path) -> Json:
    try:
        written = path.read_text(encoding="utf-8")
        try:
            return parsed(written)
        except ValueError:  # one observation a line
            return [parsed(line) for line in written.splitlines() if line.strip()]
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); allowed is a JSON file") from None
    except ValueError:
        raise BadInput(f"{path} is not JSON; allowed is an observation as in .ai/operations/templates") from None


OBSERVATION = option("observation", Path | None, None, "An observation as JSON (.ai/operations/templates).")
JUDGEMENT = (
    option("epistemic", str | None, None, "hypothesis, verified or refuted, instead of a text."),
    option("shown_by", str | None, None, "The command or link that showed it."),
)
COMMANDS = (
    Command("search", "search", asks.SearchMemory, _search, ("query",), at=True),
    Command(
        "add",
        "add",
        asks.SaveMemory,
        _outcome,
        ("content",),
        piped=("content",),
        human=True,
        extra=(OBSERVATION,),
        before=_added,
    ),
    Command(
        "log",
        "log",
        asks.LogEvent,
        _outcome,
        ("content",),
        tuple(asks.NOT_OFFERED_FOR_EVENTS),
        piped=("content",),
        human=True,
        before=_logged,
    ),
    Command("list", "list", asks.ListMemories, _list, at=True, before=_listed),
    Command("show", "show", asks.ShowMemory, _show, ("id",), at=True),
    Command(
        "edit",
        "edit",
        asks.EditMemory,
        _outcome,
        ("id", "content"),
        piped=("content",),
        human=True,
        extra=JUDGEMENT,
        before=_edited,
    ),
    Command("pin", "pin", asks.PinMemory, _outcome, ("id",), human=True),
    Command("unpin", "unpin", asks.UnpinMemory, _outcome, ("id",), human=True),
    Command("forget", "forget", asks.ForgetMemory, _outcome, ("id",), human=True),
    Command("restore", "restore", asks.RestoreMemory, _outcome, ("id",), human=True),
    Command("profile", "profile", asks.ReadProfile, _profile, at=True),
    Command("history", "history", asks.ShowHistory, _history, ("id",)),
    Command("why-not", "why_not", asks.WhyNot, _why_not, ("id", "query"), at=True),
)


def register(app: typer.Typer) -> None:
    generated.register(app, *COMMANDS)


STDIN = "-"
PROMPT_BYTES_MAX = 64 * 1024 * 1024
WANTED = 'allowed is JSON: {"messages": [...]}, a list of messages, or one message a line'
FILE_SUFFIXES = (".json", ".jsonl", ".md", ".txt", ".yaml", ".yml")
"""What the files end in that people hand over; any other name counts as one only with a separator."""


def register_contexts(app: typer.Typer) -> None:
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
    text = _prompt_text(source, name)
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


SUMMARY_MAX = 200
OBSERVATIONS_MAX = 100
"""Of one file."""

ObservationType = Literal[
    "decision",
    "bugfix",
    "refactor",
    "preference",
    "fact",
    "instruction",
    "workflow",
    "project_state",
    "bookmark",
    "event",
    "discovery",
    "note",
    "emotion",
    "episode",
    "summary",
]
ObservationLayer = Literal["identity_schema", "event_log", "verified_fact", "constitution", "fact", "session"]
_Name = Annotated[str, Field(min_length=1, max_length=inputs.NAME_MAX)]


@dataclass(frozen=True, slots=True)
class Asked:
    """What an observation asks for: the use case, and its arguments by name."""

    use_case: Literal["save_memory", "log_event"]
    arguments: Mapping[str, Json]


class Observation(BaseModel):
    """One thing worth remembering, written down as a file. Times without a zone are local."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="Observation")

    type: ObservationType = Field(description="What kind of memory it is; decides the layer it belongs to.")
    summary: str = Field(min_length=1, max_length=SUMMARY_MAX, description="One line; becomes the memory's key.")
    details: str | None = Field(
        None, min_length=1, max_length=inputs.CONTENT_MAX, description="The memory's text; the summary when left out."
    )
    files: tuple[str, ...] = Field((), max_length=inputs.FILES_MAX, description="`path` or `path:10-20`.")
    layer: ObservationLayer = Field(
        description="event_log or verified_fact; identity_schema is only changed by a proposal. Old names are accepted."
    )
    when: datetime | None = Field(None, description="When it happened; created_at when left out.")
    where: _Name | None = Field(None, description="A file, a service, a place.")
    who: tuple[_Name, ...] = Field((), max_length=inputs.PEOPLE_MAX, description="Who took part.")
    tags: tuple[str, ...] = Field((), max_length=inputs.TAGS_MAX)
    created_at: datetime = Field(description="When it was written down.")
    author: _Name = Field(description="Who wrote it down.")

    @classmethod
    def read_all(cls, value: Json) -> list[Observation]:
        """Return the checked observations of a file: one, or a list of them. Raises BadInput as `read` does."""
        values = value if isinstance(value, list) else [value]
        if not 1 <= len(values) <= OBSERVATIONS_MAX:
            raise BadInput(f"the file holds {len(values)} observations; allowed are 1 to {OBSERVATIONS_MAX}")
        return [cls.read(one) for one in values]

    @classmethod
    def read(cls, value: Json) -> Observation:
        """Return the checked observation.

        Raises BadInput: not an object, a field missing, unknown or of the wrong kind; one sentence on the first.
        """
        if not isinstance(value, Mapping):
            raise BadInput(f"an observation is {kind_of(value)}; allowed is a JSON object")
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise BadInput(sentence(error.errors(include_url=False)[0], cls, "the observation")) from None

    def asks(self) -> Asked:
        """Return the use case and arguments that store it.

        Raises Refused, later and from the use case itself, when the layer is one that only humans change.
        """
        layer = inputs.layer(self.layer)
        arguments: dict[str, Json] = {"content": self.details or self.summary, "type": self.type}
        if self.details:
            arguments["key"] = self.summary
        if self.tags:
            arguments["tags"] = list(self.tags)
        if self.files:
            arguments["files"] = list(self.files)
        arguments |= {"author": self.author, "written_at": self.created_at.isoformat()}
        if layer is not Layer.EVENT_LOG:
            if layer is not LAYER_OF_TYPE[inputs.memory_type(self.type)]:
                arguments["layer"] = layer.value
            return Asked("save_memory", arguments)
        arguments["when"] = (self.when or self.created_at).isoformat()
        arguments["who"] = list(self.who) or [self.author]
        if self.where:
            arguments["where"] = self.where
        return Asked("log_event", arguments)


def observation_schema() -> dict[str, Json]:
    """Return the JSON Schema of an observation file: plain, closed, without titles and null unions."""
    made = record(without_titles(Observation.model_json_schema(), defaults=False))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Observation", **made}


if __name__ == "__main__":  # python -m memory_anchor.front.cli.memories > .ai/operations/templates/observation.json
    print(json.dumps(observation_schema(), ensure_ascii=False, indent=2))
