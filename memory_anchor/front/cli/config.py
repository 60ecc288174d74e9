"""`memory-anchor config`: every setting with its origin, and `config set NAME VALUE`, which writes the user's own file.

`set` changes one value in place and leaves every other character of the file as it is, comments too. What the file
would say then is read as a start would read it, before anything is written.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
import yaml

from memory_anchor.base.bounded_yaml import read_content
from memory_anchor.base.files import file_lock, make_folder, write_atomic
from memory_anchor.base.json_values import Json, Record, record
from memory_anchor.domain.errors import BadInput, StoreBusy
from memory_anchor.front.cli import completing
from memory_anchor.front.cli.link import check_writable, data_dir, preamble
from memory_anchor.front.cli.output import JsonOption, escape, flat, handle_errors, out, print_dim, show_json
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
    check_writable()
    path = Path(wire.user_config_file(os.environ)).resolve()  # a link to where one keeps such files stays one
    if path.exists() and not path.is_file():
        raise BadInput(f"{path} is no regular file; allowed is a settings file")
    if any(sign in value for sign in "\n\r\0"):
        raise BadInput(f"the value of {name[:60]} has a line break or NUL; write it by hand in {path}")
    make_folder(path.parent, mode=0o700)
    with file_lock(data_dir() / "config.lock"):
        before = path.read_bytes() if path.exists() else b""
        after = _accepted(before, name, value, path)
        if (path.read_bytes() if path.exists() else b"") != before:  # by another data directory's command, or an editor
            raise StoreBusy(f"{path} was written meanwhile; nothing was changed, try again.")
        write_atomic(path, after)
    if as_json:
        show_json({"name": name, "file": str(path), "changed": before != after})
    else:
        print_dim(f"{name} is written in {path}; a running engine reads it when it starts: memory-anchor engine stop")


def _accepted(before: bytes, name: str, value: str, path: Path) -> bytes:
    """Return the file with the value in the first form in which a start takes it; raise what it says of the first.

    Raises BadInput, too, where anything else would read otherwise than before: a name that two places share.
    """
    from memory_anchor.settings import load_settings

    old, refusals = read_content(before, path), []
    load_settings(env={}, user_file=path)  # a file that is damaged already is not ours to mend
    for shown in _forms(value):
        after = with_value(before.decode(), name, shown).encode()
        new = read_content(after, path)
        if new != _with(old, name.split("."), yaml.safe_load(shown)):
            raise BadInput(f"{name} cannot be changed alone where it stands; change it by hand in {path}")
        try:
            load_settings(env={}, user_file=None, arguments=new)
        except BadInput as error:
            refusals.append(str(error).replace(" in argument", f" in {path}"))
            continue
        return after
    raise BadInput(refusals[0])


def _with(values: Record, names: list[str], value: Json) -> Record:
    """Return nested values with one of them set."""
    inner = values.get(names[0])
    set_ = value if len(names) == 1 else _with(record(inner) if inner is not None else {}, names[1:], value)
    return {**values, names[0]: set_}


def _forms(value: str) -> list[str]:
    """Return how a value may stand on one line of YAML: a list or a mapping as such, a number or a switch, then text.

    Raises BadInput: it begins like a list or a mapping and is none.
    """
    read: Json = value
    with suppress(yaml.YAMLError, ValueError, RecursionError):
        read = yaml.safe_load(value)
    if value.startswith(("[", "{")):
        if not isinstance(read, (list, dict)):
            raise BadInput("the value begins like a list or a mapping and is none; allowed is JSON or plain text")
        return [_line(read)]
    return [*([_line(read)] if isinstance(read, (bool, int, float)) else []), _line(value)]


def with_value(text: str, name: str, shown: str) -> str:
    """Return the text of a settings file with one dotted name set, and nothing else changed.

    shown: the value as one line of YAML. Raises BadInput: a part of the name holds a value already, or is written in a
    form that is changed by hand alone.
    """
    *groups, last = name.split(".")
    line = f"{_line(last)}: {shown}\n"
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
    return text[:start] + gap + shown + text[end:]


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
    rows = [f"{INDENT * depth}{_line(group)}:\n" for depth, group in enumerate(groups)]
    return "".join(rows) + INDENT * len(groups) + line


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _line(value: Json) -> str:
    """Return a value as one line of YAML."""
    shown = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6)
    return str(shown.removesuffix("...\n").rstrip("\n").replace("\n", " "))
