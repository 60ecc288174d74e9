"""The data of the language room, read once: lists of words, phrases and expressions, English beside Chinese.

`words.toml` has the words, `times.toml` the rules of time expressions, `secrets.toml` the shapes of secrets, so that a
new word needs no code. A phrase may be an expression of its own (`needs?`). Expressions that are mostly words are data
too; those that describe how a text is built are in the modules.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from memory_anchor.base.json_values import Json, record, text, texts

LETTERS = (r"(?<![a-z])", r"(?![a-z])")
"""The edges of an English phrase that may touch Chinese: for `\\b` both are word characters."""


@lru_cache(maxsize=1)
def _tables() -> Mapping[str, Mapping[str, Json]]:
    files = (Path(__file__).with_name(name) for name in ("words.toml", "secrets.toml", "times.toml", "acts.toml"))
    return {group: lists for file in files for group, lists in tomllib.loads(file.read_text("utf-8")).items()}


def listed(group: str, name: str) -> tuple[str, ...]:
    """Return the words of one list, in its order.

    >>> listed("calendar", "months")[:2]
    ('January', 'February')
    """
    return tuple(text(_tables()[group][name]).split())


def table(group: str) -> Mapping[str, Json]:
    """Return a whole group of lists."""
    return _tables()[group]


def placed(group: str, name: str, *, first: int = 0) -> dict[str, int]:
    """Return each word of a list in lower case -> its place, counted from `first`."""
    return {word.lower(): place for place, word in enumerate(listed(group, name), start=first)}


def any_phrase(name: str, language: str) -> str:
    """Return the source of an expression that matches one of the phrases of a list, in its order."""
    phrases = re.split(r"\s\|\s|\n", text(record(table("phrases")[name])[language]).strip())
    return "|".join(phrases)


def either(name: str, *, edges: tuple[str, str] = (r"\b", r"\b")) -> str:
    """Return the source that matches a phrase of a list: English ones between these edges, Chinese ones anywhere.

    >>> either("only", edges=LETTERS)
    '(?<![a-z])(?:only|exactly|solely|just)(?![a-z])|只|仅|唯一'
    """
    before, after = edges
    chinese = f"|{any_phrase(name, 'chinese')}" if "chinese" in record(table("phrases")[name]) else ""
    return f"{before}(?:{any_phrase(name, 'english')}){after}{chinese}"


def filled(pattern: str, parts: Mapping[str, str]) -> str:
    """Return an expression with each `{name}` replaced by that part, which may have parts itself.

    >>> filled("{day}{1,2}", {"day": "[0-3]{digit}", "digit": "[0-9]"})
    '[0-3][0-9]{1,2}'
    """
    return re.sub(r"\{([a-z_]{1,40})\}", lambda match: filled(parts[match[1]], parts), pattern)


def pattern(group: str, name: str, **parts: str) -> str:
    """Return the source of an expression; `{other}` in it is another one of its group, or one of the parts."""
    sources = {key: text(source) for key, source in record(table("patterns")[group]).items()} | parts
    return filled(sources[name], sources)


def sides(name: str, *, between: str, within: str) -> tuple[tuple[frozenset[str], ...], ...]:
    """Return a list of the slots: for each line its sides, and of each side the words."""
    lines = texts(_tables()["slots"][name])
    return tuple(
        tuple(frozenset(side.replace("+", " ").split(within)) for side in line.split(between)) for line in lines
    )


def base_forms() -> dict[str, str]:
    """Return irregular form -> base form, lower case: stemming only cuts endings, and questions ask for "go" where
    memories say "went" (+0.7 R@1 and +0.4 R@5 on LoCoMo, docs/retrieval.md).

    A form that is also another word ("saw", "left") matches both meanings, in queries too.
    """
    lists = "|".join(text(_tables()["irregular"][name]) for name in ("verbs", "nouns"))
    families = (family.split() for family in lists.replace("\n", "|").split("|"))
    return {form: base for base, *forms in filter(None, families) for form in forms}
