"""Commands made from requests: options, bounds and help come from the model, the answer from the engine.

A `Command` says only what a request cannot know: which fields are positional, whether `--human` and `--at` make sense,
and how its answer is printed. Options are named as the fields, in the singular where they repeat; every command has
`--json`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, get_args

import typer
from pydantic.fields import FieldInfo

from memory_anchor.base.json_values import Json, Record, optional_text, text
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.requests.fields import BaseRequest, Moment, is_left_out
from memory_anchor.domain.requests.requests import ENTRY_FIELDS
from memory_anchor.front.cli import completing
from memory_anchor.front.cli.completing import Completer
from memory_anchor.front.cli.link import call
from memory_anchor.front.cli.output import AtOption, HumanOption, JsonOption, handle_errors, show_json
from memory_anchor.front.cli.passphrase import human_signer
from memory_anchor.front.cli.shorthand import parse_time, with_full_ids

Values = dict[str, Json]
Printer = Callable[[Record, Values], None]
SINGULAR = {"layers": "layer", "types": "type", "tags": "tag", "files": "file"}
TIME = "TIME"
"""How help calls a time: ISO 8601, or in words."""
NO_OPTIONS = ENTRY_FIELDS | {"source", "seen", "request_id", "waits"}


@dataclass(frozen=True, slots=True)
class Command:
    """One command. show(answer, values): prints an answer. arguments: the positional fields.

    left_out: fields without an option. is_piped: standard input may bring `content`. human: has --human.
    signs(values): whether a human must sign it. call: what it calls, where that is not named as the command.
    extra: options that are not the request's. calls(values): the calls instead of that one, each as (name, values).
    completes: the values of fields for which neither type nor name says them.
    """

    name: str
    request: type[BaseRequest]
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
        named = dict(self._fields())
        times = [name for name in named.values() if _kind(self.request.model_fields[name].annotation)[1] == TIME]

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
                    if not is_left_out(values.get(time))
                }
                whole = with_full_ids(values, shows=signs)
                answers.append(call(name, human=human_signer(signs), **whole))
                if not as_json:
                    self.show(answers[-1], values)
            if as_json:
                show_json(answers[0] if len(answers) == 1 else {"outcomes": answers})

        parameters = [self._parameter(option, field) for option, field in named.items()]
        parameters += self.extra
        parameters += [_own("human", HumanOption, False)] * self.human + [_own("at", AtOption, None)] * self.at
        parameters.append(_own("json_", JsonOption, False))
        parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)
        run.__doc__ = self.about or inspect.getdoc(self.request)
        run.__name__ = self.name.replace("-", "_")
        command = handle_errors(run)
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return command

    def _parameter(self, name: str, field: str) -> inspect.Parameter:
        """Return what typer reads of a field."""
        info = self.request.model_fields[field]
        kind, metavar = _kind(info.annotation)
        default = info.default.value if isinstance(info.default, StrEnum) else info.default
        if (self.is_piped and field == "content") or default == "":
            kind, default = str | None, None
        elif info.is_required():
            default = inspect.Parameter.empty
        elif kind == list[str] | None:
            default = None
        values = (
            self.completes.get(field) or completing.BY_NAME.get(field) or completing.for_annotation(info.annotation)
        )
        if field in self.arguments:
            argument = typer.Argument(help=info.description, autocompletion=values)
            return _own(name, Annotated[kind, argument], default)
        option = typer.Option(f"--{name.replace('_', '-')}", help=_help(info), metavar=metavar, autocompletion=values)
        return _own(name, Annotated[kind, option], default)

    def _fields(self) -> list[tuple[str, str]]:
        """Return (option, field), positional ones first."""
        fields = self.request.model_fields
        ordered = [*self.arguments, *(name for name in fields if name not in self.arguments)]
        hidden = {*self.left_out, *self.request.unlisted & NO_OPTIONS}
        extra = {name: dict(fields[name].json_schema_extra or {}) for name in ordered}  # type: ignore[arg-type]
        names = {name: str(extra[name].get("option") or SINGULAR.get(name, name)) for name in ordered}
        return [(names[name], name) for name in ordered if name not in hidden]


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
    for command in commands:
        app.command(command.name)(command.callback())


def option(
    name: str, kind: object, default: Json, help: str, *names: str, metavar: str | None = None
) -> inspect.Parameter:
    """Return an option that is no field of the request."""
    return _own(name, Annotated[kind, typer.Option(*names, help=help, metavar=metavar)], default)


def _own(name: str, annotation: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _help(field: FieldInfo) -> str | None:
    """Return the bounds of a number, then what its field says."""
    inner = [bound for part in get_args(field.annotation) for bound in getattr(part, "__metadata__", ())]
    limits = {n: getattr(bound, n) for bound in (*field.metadata, *inner) for n in ("ge", "le") if hasattr(bound, n)}
    bounds = f"{limits['ge']:g} to {limits['le']:g}" if {"ge", "le"} <= set(limits) else ""
    return "; ".join(part for part in (bounds, field.description) if part) or None


def _kind(annotation: object) -> tuple[object, str | None]:
    """Return the type that typer reads a field as, and its metavar."""
    parts = [part for part in get_args(annotation) if part is not type(None)]
    is_optional = type(None) in get_args(annotation)
    base = parts[0] if is_optional and parts else annotation
    base = getattr(base, "__origin__", base) if hasattr(base, "__metadata__") else base
    if getattr(base, "__origin__", None) is tuple:
        return list[str] | None, None
    if base is Moment:
        return str | None, TIME
    if base in (bool, int, float):
        return (base | None if is_optional else base), None
    return (str | None if is_optional else str), None
