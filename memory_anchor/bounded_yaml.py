"""YAML from elsewhere, measured before anything is built from it.

A project's files come with whoever wrote the repository. 700 bytes of aliases stand for a gigabyte, and a list of
20,000 entries keeps a parser in Python busy for a minute. So a text's events are counted first, as libyaml reads them,
and the reading ends at the first that is too many: an alias counts what it stands for, so what passes is small however
it is expanded afterwards. Rejected: counting characters that look like aliases, which comments and quoted text hold.

`read_file` reads a settings file so: a name said twice in it is an error, and nothing here knows a setting's name.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

import yaml

from memory_anchor import beneath
from memory_anchor.errors import BadInput
from memory_anchor.json_values import Json, kind_of

LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""Ten times quicker where PyYAML was built with libyaml; plain strings, no objects."""
MAX_NODES = 5_000
"""Scalars, lists and mappings of one file, aliases expanded: a settings file has some 200, a constitution under 200."""
MAX_DEPTH = 16

MAX_SETTINGS_BYTES = 256 * 1024


class TooMuchYaml(yaml.YAMLError):
    """The text stands for more than is allowed; one clause, which names the line and never quotes the text."""


def check(text: str, *, most_nodes: int = MAX_NODES) -> None:
    """Return when building `text` makes at most `most_nodes` nodes, `MAX_DEPTH` deep.

    Raises TooMuchYaml: it would make more, or an alias stands inside what it names. yaml.YAMLError: it is no YAML.
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


class _Doubled(Exception):
    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line


class _EachOnce(yaml.SafeLoader):
    """Takes no name twice in one mapping; YAML itself would keep the last one silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Json]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for at, (key, _) in enumerate(node.value):
            if isinstance(key, yaml.ScalarNode) and key.value in names[:at]:
                raise _Doubled(key.start_mark.line + 1)
        return super().construct_mapping(node, deep)


def read_file(path: Path, *, is_foreign: bool = False) -> dict[str, Json]:
    """Return what a YAML file sets, nothing where there is none.

    is_foreign: whoever wrote the repository wrote it, so that no link is followed: errors quote what was read.
    Raises BadInput: too large, or not a mapping that YAML can read.
    """
    if not path.is_file() and not (is_foreign and path.is_symlink()):
        return {}
    if path.is_file() and path.stat().st_size > MAX_SETTINGS_BYTES:
        raise BadInput(f"settings file {path} is {path.stat().st_size} bytes; allowed are {MAX_SETTINGS_BYTES}")
    try:
        told = beneath.read(path.parent, path.name, most_bytes=MAX_SETTINGS_BYTES) if is_foreign else path.read_bytes()
        text = (told or b"").decode("utf-8")
        check(text)
        value = yaml.load(text, _EachOnce)  # noqa: S506 - a safe loader
    except OSError as error:
        raise BadInput(f"settings file {path} cannot be read ({error.strerror}); mend it or move it away") from None
    except TooMuchYaml as error:
        raise BadInput(f"settings file {path}: {error}; mend it or move it away") from None
    except RecursionError:
        raise BadInput(f"settings file {path} is nested too deeply; mend it or move it away") from None
    except _Doubled as error:
        raise BadInput(f"settings file {path} says at line {error.line} what it said before; keep one") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        at = f" at line {line + 1}" if line is not None else ""
        raise BadInput(f"settings file {path} is not readable YAML{at}; mend it or move it away") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput(f"settings file {path} holds {kind_of(value)}; allowed is a mapping of settings")
    return {str(name): inner for name, inner in value.items()}
