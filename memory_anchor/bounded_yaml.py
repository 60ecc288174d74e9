"""YAML from elsewhere, measured before anything is built from it. Pure.

A project's files come with whoever wrote the repository. 700 bytes of aliases stand for a gigabyte, and a list of
20,000 entries keeps a parser in Python busy for a minute. So a text's events are counted first, as libyaml reads them,
and the reading ends at the first that is too many: an alias counts what it stands for, so what passes is small however
it is expanded afterwards. Rejected: counting characters that look like aliases, which comments and quoted text hold.
"""

from __future__ import annotations

import yaml

LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""Ten times quicker where PyYAML was built with libyaml; plain strings, no objects."""
MAX_NODES = 5_000
"""Scalars, lists and mappings of one file, aliases expanded: a settings file has some 200, a constitution under 200."""
MAX_DEPTH = 16


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
