"""Commands made from requests: options, bounds and help come from the model, the answer from the engine.

A `Command` says only what a request cannot know: which fields are positional, whether `--human` and `--at` make sense,
and how its answer is printed. Options are named as the fields, in the singular where they repeat; every command has
`--json`. What the models say is packaged (`packaged.json`, written by `scripts/make_commands.py`): pydantic and the
models cost more than all the rest of a command that an engine answers.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

import typer

from memory_anchor.base.json_values import Json, Record, optional_text, record, text, texts
from memory_anchor.domain.errors import BadInput
from memory_anchor.front.cli import completing
from memory_anchor.front.cli.completing import Completer
from memory_anchor.front.cli.guide import packaged
from memory_anchor.front.cli.link import call
from memory_anchor.front.cli.output import AtOption, HumanOption, JsonOption, handle_errors, show_json
from memory_anchor.front.cli.passphrase import human_signer
from memory_anchor.front.cli.shorthand import parse_time, with_full_ids

Values = dict[str, Json]
Printer = Callable[[Record, Values], None]
TIME = "TIME"
"""How help calls a time: ISO 8601, or in words."""
KINDS: Mapping[str, object] = {"bool": bool, "int": int, "float": float, "str": str, "list": list[str]}


@dataclass(frozen=True, slots=True)
class Command:
    """One command. show(answer, values): prints an answer. arguments: the positional fields of the call's request.

    left_out: fields without an option. is_piped: standard input may bring `content`. human: has --human.
    signs(values): whether a human must sign it. call: what it calls, where that is not named as the command.
    extra: options that are not the request's. calls(values): the calls instead of that one, each as (name, values).
    completes: the values of fields for which neither type nor name says them.
    """

    name: str
    show: Printer
    arguments: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    call: str = ""
    human: bool = False
    signs: Callable[[Values], bool] | None = None
    at: bool = False
    about: str = ""
    is_piped: bool = False
    extra: tuple[inspect.Parameter, ...] = ()
    calls: Callable[[Values], list[tuple[str, Values]]] | None = None
    completes: Mapping[str, Completer] = field(default_factory=dict)

    @property
    def call_name(self) -> str:
        return self.call or self.name.replace("-", "_")

    def callback(self) -> Callable[..., None]:
        """Return the function that typer reads and runs."""
        request = record(packaged("options")[self.call_name])
        fields, named = record(request["fields"]), dict(self._fields())
        times = [name for name in named.values() if record(fields[name]).get("time")]

        def run(**options: Json) -> None:
            as_json, wants_human = options.pop("json_"), bool(options.pop("human", False))
            given = {named.get(name, name): _only(value) for name, value in options.items()}
            calls = self.calls(given) if self.calls is not None else [(self.call_name, given)]
            answers = []
            for name, values in calls:
                if self.is_piped and values is given:
                    values["content"] = _content(optional_text(values["content"]))
                signs = wants_human or (self.signs is not None and self.signs(values))
                values |= {
                    time: parse_time(time, text(values[time]))
                    for time in (*times, "at")
                    if text(values.get(time), "").strip() not in ("", "null")
                }
                whole = with_full_ids(values, shows=signs)
                answers.append(call(name, human=human_signer(signs), **whole))
                if not as_json:
                    self.show(answers[-1], values)
            if as_json:
                show_json(answers[0] if len(answers) == 1 else {"outcomes": answers})

        parameters = [self._parameter(option, name, record(fields[name])) for option, name in named.items()]
        parameters += self.extra
        parameters += [_own("human", HumanOption, False)] * self.human + [_own("at", AtOption, None)] * self.at
        parameters.append(_own("json_", JsonOption, False))
        parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)
        run.__doc__ = self.about or text(request["about"])
        run.__name__ = self.name.replace("-", "_")
        command = handle_errors(run)
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return command

    def _parameter(self, name: str, field: str, told: Record) -> inspect.Parameter:
        """Return what typer reads of a field."""
        kind: object = KINDS[text(told["kind"])]
        default: object = told.get("default")
        if self.is_piped and field == "content":
            kind = str | None
        elif told.get("required"):
            default = inspect.Parameter.empty
        elif default is None:
            kind = kind | None  # type: ignore[operator]
        words = texts(told.get("words", ()))
        values = self.completes.get(field) or completing.BY_NAME.get(field)
        values = values or (completing.words(*words) if words else None)
        about = optional_text(told.get("help"))
        if field in self.arguments:
            argument = typer.Argument(help=about, autocompletion=values)
            return _own(name, Annotated[kind, argument], default)
        bounded = "; ".join(filter(None, (optional_text(told.get("bounds")), about))) or None
        metavar = TIME if told.get("time") else None
        option = typer.Option(f"--{name.replace('_', '-')}", help=bounded, metavar=metavar, autocompletion=values)
        return _own(name, Annotated[kind, option], default)

    def _fields(self) -> list[tuple[str, str]]:
        """Return (option, field), positional ones first."""
        fields = record(record(packaged("options")[self.call_name])["fields"])
        ordered = [*self.arguments, *(name for name in fields if name not in self.arguments)]
        return [(text(record(fields[name])["option"]), name) for name in ordered if name not in self.left_out]


def _only(value: Json) -> Json:
    """Return an option that was given once without its list: its text may be JSON of a list."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _content(given: str | None) -> str:
    """Return the content given, or standard input where it is left out or "-"."""
    if given is not None and given != "-":
        return given
    if sys.stdin.isatty():
        raise BadInput("content is missing; give it as an argument, or pipe it in")
    return sys.stdin.read()


def register(app: typer.Typer, *commands: Command) -> None:
    """Add commands, whose callbacks `app.command_line` makes: of those that it keeps."""
    for command in commands:
        app.command(command.name)(partial(Command.callback, command))


def option(
    name: str, kind: object, default: Json, help: str, *names: str, metavar: str | None = None
) -> inspect.Parameter:
    """Return an option that is no field of the request."""
    return _own(name, Annotated[kind, typer.Option(*names, help=help, metavar=metavar)], default)


def _own(name: str, annotation: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
