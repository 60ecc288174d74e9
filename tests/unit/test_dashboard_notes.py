"""What a search says of its answer, and of a memory that is not in it, on pages in Chinese."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from browser import Browser
from dashhouse import House

from memory_anchor.extensions.dashboard.wording import Words, catalogue
from memory_anchor.recall import candidates, order, query_embedder, request, search, search_context


@pytest.fixture
def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    house = House(tmp_path)
    with house.here(monkeypatch):
        house.add("add", "The port is 8080")
        yield house.browser()
    house.core.close()


def said_by(module: ModuleType) -> set[str]:
    """Return the sentences that a module of recall puts in notes or gives as reasons, each place to fill as 7."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("notes"):
            said: list[ast.AST] = [node.slice]
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("reason", "few", "FOLLOWS", "LATE"):
            said = [node.value]
        elif isinstance(node, ast.Dict):
            said = [
                value
                for key, value in zip(node.keys, node.values, strict=True)
                if key and ast.unparse(key) == "'reason'"
            ]
        elif isinstance(node, ast.FunctionDef) and node.name == "refusal":
            said = [*node.body[1:]]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("QueryVector", "refuted.append"):
            said = [*node.args, *(one.value for one in node.keywords)]
        else:
            continue
        found |= {text for one in said for text in sentences(one) if " " in text}
    return found


def sentences(node: ast.AST) -> Iterator[str]:
    """Yield the texts of an expression; the parts of a formatted one are one text."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "7" for part in node.values)
    elif isinstance(node, ast.Constant):
        yield from (node.value,) if isinstance(node.value, str) else ()
    else:
        for inner in ast.iter_child_nodes(node):
            yield from sentences(inner)


def test_what_a_search_says_is_in_the_readers_language(browser: Browser) -> None:
    """Rule: each note and each reason of recall has a sentence in Chinese; what has none is marked as English."""
    may: Any = SimpleNamespace(text="May 2023")
    other_times, nothing_similar = search_context.other_times, search_context.nothing_similar
    sides: tuple[dict[str, bool], ...] = ({}, {"inside": True}, {"outside": False})
    code = (search, order, candidates, query_embedder, request, search_context)
    said = set.union(*map(said_by, code), {other_times(may, **one) for one in sides}, {nothing_similar(may)})
    words = Words("zh", zone="", now=datetime.now(UTC))

    assert len(said) == len([key for key in catalogue("zh") if key.startswith("said.")])
    assert {text for text in said if words.said(text) == text} == set()
    assert {text for text in said if Words("en", zone="", now=words.now).said(text) != text} == set()
    browser.language = "zh"
    assert "没有记忆含有引号里的词。" in browser.get('/search?q="no+such+phrase"+port').text
