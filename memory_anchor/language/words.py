"""The words that the readers of language know one by one: `words.toml`, English and Chinese side by side, read once.

Tables are data, so that whoever adds a word touches no code; how words stand together is told by expressions in the
modules that read them. Rejected: whole expressions in the tables, which nothing could check there.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from memory_anchor.json_values import Json, text, texts


@lru_cache(maxsize=1)
def _tables() -> Mapping[str, Mapping[str, Json]]:
    return tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))


def listed(group: str, name: str) -> tuple[str, ...]:
    """Return the words of one list, in its order.

    >>> listed("calendar", "months")[:2]
    ('January', 'February')
    """
    return tuple(text(_tables()[group][name]).split())


def table(group: str) -> Mapping[str, Json]:
    """Return a group of lists as it stands."""
    return _tables()[group]


def placed(group: str, name: str, *, first: int = 0) -> dict[str, int]:
    """Return each word of a list in lower case and its place, counted from `first`."""
    return {word.lower(): place for place, word in enumerate(listed(group, name), start=first)}


def sides(name: str, *, between: str, within: str) -> tuple[tuple[frozenset[str], ...], ...]:
    """Return a list of the slots: for each line its sides, and of each side the words."""
    lines = texts(_tables()["slots"][name])
    return tuple(
        tuple(frozenset(side.replace("+", " ").split(within)) for side in line.split(between)) for line in lines
    )


def base_forms() -> dict[str, str]:
    """Return irregular form -> base form, lower case: stemming only cuts endings, and questions ask for "go" where
    memories say "went" (+0.7 R@1 and +0.4 R@5 on LoCoMo, docs/retrieval.md).

    A form that is also a word of its own ("saw", "left") meets both its meanings, in queries alike.
    """
    said = "|".join(text(_tables()["irregular"][name]) for name in ("verbs", "nouns"))
    families = (family.split() for family in said.replace("\n", "|").split("|"))
    return {form: base for base, *forms in filter(None, families) for form in forms}
