"""Commands made from requests: options, bounds and help come from the model, the answer from the engine.

A `Command` says only what a request cannot know: which fields are positional, whether `--human` and `--at` make sense,
and how the answer looks to a person. `--json` is one option, here. Names of options are those of the fields, in the
singular where they repeat.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Annotated, get_args

import typer
from pydantic.fields import FieldInfo

from memory_anchor.fields import BaseRequest, Moment
from memory_anchor.front.cli import completing
from memory_anchor.front.cli.completing import Completes
from memory_anchor.front.cli.link import call
from memory_anchor.front.cli.output import AtOption, HumanOption, JsonOption, guarded, show_json
from memory_anchor.front.cli.passphrase import human_signer
from memory_anchor.front.cli.spoken import moment, with_whole_id
from memory_anchor.json_values import Json, Record, text
from memory_anchor.requests import ENTRY_FIELDS

Values = dict[str, Json]
Shown = Callable[[Record, Values], None]
SINGULAR = {"layers": "layer", "types": "type", "tags": "tag", "files": "file"}


TIME = "TIME"
"""How help calls a time: ISO 8601, or in words."""
NO_OPTIONS = ENTRY_FIELDS | {"source", "seen", "request_id", "waits"}


@dataclass(frozen=True, slots=True)
class Command:
    """One command. call: the row it asks. show(answer, values): prints it. arguments: fields without a name.

    left_out: fields that have no option. piped: fields that standard input may bring instead. human: has --human.
    signs(values): whether a human must sign it. extra: options that are not the request's. before(values): what is
    asked instead, each as (call, values). completes: values of fields that neither their type nor their name tells.
    """

    name: str
    call: str
    request: type[BaseRequest]
    show: Shown
    arguments: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    human: bool = False
    signs: Callable[[Values], bool] | None = None
    at: bool = False
    about: str = ""
    piped: tuple[str, ...] = ()
    extra: tuple[inspect.Parameter, ...] = ()
    before: Callable[[Values], list[tuple[str, Values]]] | None = None
    completes: Mapping[str, Completes] = field(default_factory=dict)

    def made(self) -> Callable[..., None]:
        """Return the function that typer reads and runs."""
        named = dict(self._fields())
        times = [name for name in named.values() if _kind(self.request.model_fields[name].annotation)[1] == TIME]

        def run(**given: Json) -> None:
            as_json, wants_human = given.pop("json_"), bool(given.pop("human", False))
            values = {named.get(name, name): value for name, value in given.items()}
            steps = self.before(values) if self.before is not None else [(self.call, values)]
            answers = []
            for asked, values in steps:
                signs = wants_human or (self.signs is not None and self.signs(values))
                values |= {name: moment(name, text(values[name])) for name in (*times, "at") if values.get(name)}
                ask = partial(call, asked, human=human_signer(signs))
                answers.append(answer := with_whole_id(ask, values))
                if not as_json:
                    self.show(answer, values)
            if as_json:
                show_json(answers[0] if len(answers) == 1 else {"outcomes": answers})

        parameters = [self._parameter(option, field) for option, field in named.items()]
        parameters += self.extra
        parameters += [_own("human", HumanOption, False)] * self.human + [_own("at", AtOption, None)] * self.at
        parameters.append(_own("json_", JsonOption, False))
        parameters.sort(key=lambda one: one.default is not inspect.Parameter.empty)
        run.__doc__ = self.about or inspect.getdoc(self.request)
        run.__name__ = self.name.replace("-", "_")
        made = guarded(run)
        made.__annotations__ = {one.name: one.annotation for one in parameters}
        made.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return made

    def _parameter(self, name: str, field: str) -> inspect.Parameter:
        """Return what typer reads of a field."""
        known = self.request.model_fields[field]
        kind, metavar = _kind(known.annotation)
        default = known.default.value if isinstance(known.default, StrEnum) else known.default
        if field in self.piped or default == "":
            kind, default = str | None, None
        elif known.is_required():
            default = inspect.Parameter.empty
        elif kind == list[str] | None:
            default = None
        values = self.completes.get(field) or completing.OF_FIELDS.get(field) or completing.of_kind(known.annotation)
        if field in self.arguments:
            argument = typer.Argument(help=known.description, autocompletion=values)
            return _own(name, Annotated[kind, argument], default)
        told = typer.Option(f"--{name.replace('_', '-')}", help=_help(known), metavar=metavar, autocompletion=values)
        return _own(name, Annotated[kind, told], default)

    def _fields(self) -> list[tuple[str, str]]:
        """Return (option, field), positional ones first."""
        fields = self.request.model_fields
        ordered = [*self.arguments, *(name for name in fields if name not in self.arguments)]
        hidden = {*self.left_out, *self.request.unlisted & NO_OPTIONS}
        extra = {name: dict(fields[name].json_schema_extra or {}) for name in ordered}  # type: ignore[arg-type]
        return [
            (str(extra[name].get("option") or SINGULAR.get(name, name)), name) for name in ordered if name not in hidden
        ]


def register(app: typer.Typer, *commands: Command) -> None:
    for command in commands:
        app.command(command.name)(command.made())


def option(
    name: str, kind: object, default: Json, help: str, *names: str, metavar: str | None = None
) -> inspect.Parameter:
    """Return an option that is no field of the request."""
    return _own(name, Annotated[kind, typer.Option(*names, help=help, metavar=metavar)], default)


def _own(name: str, annotation: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _help(field: FieldInfo) -> str | None:
    """Return the bounds of a number, then what its field says."""
    inner = [one for part in get_args(field.annotation) for one in getattr(part, "__metadata__", ())]
    limits = {
        name: getattr(one, name) for one in (*field.metadata, *inner) for name in ("ge", "le") if hasattr(one, name)
    }
    bounds = f"{limits['ge']:g} to {limits['le']:g}" if {"ge", "le"} <= set(limits) else ""
    return "; ".join(one for one in (bounds, field.description) if one) or None


def _kind(annotation: object) -> tuple[object, str | None]:
    """Return the type that typer reads a field as, and its metavar."""
    parts = [one for one in get_args(annotation) if one is not type(None)]
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
