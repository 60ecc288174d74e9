"""Untrusted YAML, measured before anything is built from it.

A project's files come from whoever wrote the repository. 700 bytes of aliases expand to a gigabyte, and a list of
20,000 entries keeps a parser in Python busy for a minute. So a text's events are counted first, as libyaml reads them,
up to the first beyond the bound: an alias counts what it stands for, so what passes stays small when it is expanded.
Rejected: counting characters that look like aliases, which comments and quoted text have too.

`read_file` reads a settings file this way, in which a repeated name is an error; it knows no setting's name.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

import yaml

from memory_anchor.base import nofollow
from memory_anchor.base.json_values import Json, kind_of
from memory_anchor.domain.errors import BadInput

LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""Ten times quicker where PyYAML was built with libyaml; plain strings, no objects."""
MAX_NODES = 5_000
"""Scalars, lists and mappings of one file, aliases expanded: a settings file has some 200, a constitution under 200."""
MAX_DEPTH = 16

MAX_SETTINGS_BYTES = 256 * 1024


class TooMuchYaml(yaml.YAMLError):
    """The text expands beyond the bounds; the message names the line and never quotes the text."""


def check(text: str, *, most_nodes: int = MAX_NODES) -> None:
    """Check that building `text` makes at most `most_nodes` nodes, `MAX_DEPTH` deep.

    Raises TooMuchYaml: it would make more, or an alias is inside of its own anchor. yaml.YAMLError: it is no YAML.
    """
    sizes: dict[str, int] = {}
    opened: list[tuple[str | None, int]] = []
    nodes = 0
    for event in yaml.parse(text, Loader=LOADER):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, nodes))
            nodes += 1
            if len(opened) > MAX_DEPTH:
                raise TooMuchYaml(f"line {line} is nested deeper than the {MAX_DEPTH} levels allowed")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            if anchor is not None:
                sizes[anchor] = nodes - before
        elif isinstance(event, yaml.ScalarEvent):
            nodes += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise TooMuchYaml(f"line {line} refers to what is not complete there")
            nodes += sizes[event.anchor]
        if nodes > most_nodes:
            raise TooMuchYaml(f"line {line} is beyond the {most_nodes} values allowed, aliases counted in full")


class _RepeatedName(Exception):
    """Its argument is the line."""


class _UniqueNames(yaml.SafeLoader):
    """Refuses a name that is repeated in one mapping; YAML itself would keep the last one silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Json]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for at, (key, _) in enumerate(node.value):
            if isinstance(key, yaml.ScalarNode) and key.value in names[:at]:
                raise _RepeatedName(key.start_mark.line + 1)
        return super().construct_mapping(node, deep)


def read_file(path: Path, *, is_foreign: bool = False) -> dict[str, Json]:
    """Return the settings of a YAML file, nothing where there is none.

    is_foreign: it comes with a repository, so no link is followed: errors would quote the file it leads to.
    Raises BadInput: too large, or not a mapping that YAML can read.
    """
    try:
        if not path.is_file() and not (is_foreign and path.is_symlink()):
            return {}
        if path.is_file() and path.stat().st_size > MAX_SETTINGS_BYTES:
            raise BadInput(f"settings file {path} is {path.stat().st_size} bytes; allowed are {MAX_SETTINGS_BYTES}")
        raw = nofollow.read(path.parent, path.name, most_bytes=MAX_SETTINGS_BYTES) if is_foreign else path.read_bytes()
    except OSError as error:
        raise BadInput(f"settings file {path} cannot be read ({error.strerror}); mend it or move it away") from None
    return read_content(raw or b"", path)


def read_content(raw: bytes, path: Path) -> dict[str, Json]:
    """Return the settings in the content of a file. Raises BadInput: not a mapping that YAML can read."""
    try:
        text = raw.decode("utf-8")
        check(text)
        value = yaml.load(text, _UniqueNames)  # noqa: S506 - a safe loader
    except TooMuchYaml as error:
        raise BadInput(f"settings file {path}: {error}; mend it or move it away") from None
    except RecursionError:
        raise BadInput(f"settings file {path} is nested too deeply; mend it or move it away") from None
    except _RepeatedName as error:
        raise BadInput(f"settings file {path} says at line {error} what it said before; keep one") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        at = f" at line {line + 1}" if line is not None else ""
        raise BadInput(f"settings file {path} is not readable YAML{at}; mend it or move it away") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput(f"settings file {path} holds {kind_of(value)}; allowed is a mapping of settings")
    return {str(name): inner for name, inner in value.items()}
