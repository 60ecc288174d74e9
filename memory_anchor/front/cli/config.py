"""`memory-anchor config`: every setting with its origin, and `config set NAME VALUE`, which writes the user's own file.

`set` changes one value in place and leaves every other character of the file as it is, comments too. What the file
would say then is read as a start would read it, before anything is written.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.markup import escape

from memory_anchor.base.files import file_lock, make_folder, write_atomic
from memory_anchor.base.json_values import Json
from memory_anchor.domain.errors import BadInput
from memory_anchor.front.cli import completing
from memory_anchor.front.cli.link import data_dir, preamble
from memory_anchor.front.cli.output import JsonOption, flat, handle_errors, out, print_dim, show_json
from memory_anchor.runtime import wire

INDENT = "  "


def register(app: typer.Typer) -> None:
    app.command()(config)


@handle_errors
def config(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME] | set NAME VALUE",
            help="Only settings whose name begins so; or the one to set in your own file.",
            autocompletion=completing.settings,
            show_default=False,
        ),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Show every setting, its value and where it came from; `config set NAME VALUE` writes one in your own file."""
    match words or []:
        case ["set", name, value]:
            _set(name, value, json_)
        case ["set", *rest]:
            raise BadInput(
                f"config set needs a name and a value, not {len(rest)} words; e.g. config set read_only true"
            )
        case [] | [_]:
            _show("".join(words or []), json_)
        case [name, *rest]:
            raise BadInput(f"config shows one name, not {1 + len(rest)} words; to change it: config set {name} VALUE")


def _show(prefix: str, as_json: bool) -> None:
    from memory_anchor.process.app import loaded_settings
    from memory_anchor.runtime import environment

    ignored = environment.accepted(os.environ, str(data_dir()))
    loaded = loaded_settings(os.environ, preamble().project_dir)
    rows = [
        {"name": name, "value": value, "origin": loaded.origins.get(name, "default")}
        for name, value in flat(loaded.settings.model_dump(mode="json"))
        if name.startswith(prefix)
    ]
    if not rows:
        raise BadInput(f"no setting begins with {prefix[:60]!r}; `memory-anchor config` shows every one")
    if as_json:
        files = {"data_dir": str(data_dir()), "user_file": wire.user_config_file(os.environ)}
        show_json({"settings": rows, **files, "not_taken_by_engines": ignored.left})
        return
    for row in rows:
        origin = "" if row["origin"] == "default" else f" [cyan]{escape(str(row['origin']))}[/]"
        out.print(f"{row['name']} = {escape(str(row['value']))}{origin}")
    print_dim(f"data directory {data_dir()}; your file {wire.user_config_file(os.environ)}")
    if ignored.left:
        print_dim(f"for this command alone, not for a shared engine: {', '.join(ignored.left)}; {ignored.reason}")


def _set(name: str, value: str, as_json: bool) -> None:
    from memory_anchor.settings import load_settings

    path = Path(wire.user_config_file(os.environ))
    load_settings(env={}, user_file=path)  # a file that is damaged already is not ours to mend
    make_folder(path.parent, mode=0o700)
    with file_lock(data_dir() / "config.lock"):
        before = path.read_bytes().decode("utf-8") if path.is_file() else ""
        after = with_value(before, name, value)
        trial = data_dir() / "config.trial.yaml"
        write_atomic(trial, after.encode())
        try:
            load_settings(env={}, user_file=trial)
        except BadInput as error:
            raise BadInput(str(error).replace(str(trial), str(path))) from None
        finally:
            trial.unlink(missing_ok=True)
        write_atomic(path, after.encode())
    if as_json:
        show_json({"name": name, "file": str(path), "changed": before != after})
    else:
        print_dim(f"{name} is written in {path}; a running engine reads it when it starts: memory-anchor engine stop")


def with_value(text: str, name: str, value: str) -> str:
    """Return the text of a settings file with one dotted name set, and nothing else changed.

    Raises BadInput: a part of the name holds a value already, or is written in a form that is changed by hand alone.
    """
    *groups, last = name.split(".")
    line = f"{_yaml(last, as_text=True)}: {_yaml(value)}\n"
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if node is None:
        return _ended(text) + _nested(groups, line)
    for depth, part in enumerate((*groups, last)):
        if not isinstance(node, yaml.MappingNode) or node.flow_style:
            where = ".".join(groups[:depth]) or "the file"
            raise BadInput(f"{where} is not written as lines `name: value`; change it by hand in your settings file")
        found = next((inner for key, inner in node.value if key.value == part), None)
        if found is None:
            at, indent = _end_of(node, text), INDENT * depth
            if node.value:
                indent = " " * node.value[0][0].start_mark.column
            added = "".join(f"{indent}{row}\n" for row in _nested(groups[depth:], line).split("\n") if row)
            return _ended(text[:at]) + added + text[at:]
        node = found
    start, end = node.start_mark.index, node.end_mark.index
    if isinstance(node, yaml.MappingNode) and not node.flow_style:
        raise BadInput(f"{name} is a group of settings; name one of them, as `memory-anchor config {name}` lists them")
    if isinstance(node, yaml.SequenceNode) and not node.flow_style:
        raise BadInput(f"{name} is written as lines of a list; change it by hand in your settings file")
    gap = "" if start and text[start - 1] in " \t" else " "
    return text[:start] + gap + _yaml(value) + text[end:]


def _end_of(node: yaml.MappingNode, text: str) -> int:
    """Return where a mapping's last line ends: its own mark stands behind the comments that follow."""
    if not node.value:
        return int(node.end_mark.index)
    last = node.value[-1][1]
    while isinstance(last, (yaml.MappingNode, yaml.SequenceNode)) and not last.flow_style and last.value:
        inner = last.value[-1]
        last = inner[1] if isinstance(inner, tuple) else inner
    end = text.find("\n", max(last.start_mark.index, last.end_mark.index - 1))
    return len(text) if end < 0 else end + 1


def _nested(groups: list[str], line: str) -> str:
    rows = [f"{INDENT * depth}{_yaml(group, as_text=True)}:\n" for depth, group in enumerate(groups)]
    return "".join(rows) + INDENT * len(groups) + line


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _yaml(value: str, *, as_text: bool = False) -> str:
    """Return a value as one line of YAML: a number, a switch, a list in brackets as such, all else as text."""
    try:
        read: Json = value if as_text else yaml.safe_load(value)
    except yaml.YAMLError:
        read = value
    if not isinstance(read, (bool, int, float, str, list, dict)):
        read = value
    shown = yaml.safe_dump(read, default_flow_style=True, allow_unicode=True, width=10**6)
    return shown.removesuffix("...\n").rstrip("\n").replace("\n", " ")
