"""The list of promises in README and docs, both ways."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from functools import cache
from pathlib import Path

import pytest
from quoted import PAGES, sentences

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
sys.path.insert(0, str(TESTS))

from promises import NO_PROMISE, PROMISES  # noqa: E402

PROMISING = re.compile(
    r"\b(?:never|always|at most|cannot|only (?:a )?humans?|no (?:[a-z]+ ){1,3}(?:can|may)"
    r"|(?<!if )(?<!when )(?<!that )nothing (?:[a-z']+ ){0,4}(?:is|are|can|may|counts))\b",
    re.IGNORECASE,
)
ANCHOR = "memory_anchor."


def promising(text: str) -> list[str]:
    """Return the sentences that promise; code in backquotes is a name and no word."""
    return [sentence for sentence in sentences(text) if PROMISING.search(re.sub(r"`[^`]*`", "", sentence))]


def listed(page: str) -> list[str]:
    return [*PROMISES.get(page, {}), *NO_PROMISE.get(page, ())]


@cache
def every_test() -> frozenset[str]:
    """Return every test there is, as `module::name`."""
    return frozenset(
        f"{path.stem}::{node.name}"
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )


def constant(path: str) -> object:
    """Return what a dotted name means, a class's field included. Raises AttributeError: nothing."""
    parts = path.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            fields = getattr(value, "__dataclass_fields__", {})
            value = fields[name].default if name in fields else getattr(value, name)
        return value
    raise AttributeError(path)


def trouble_with(holder: str) -> str:
    """Return what is wrong with one holder, "" for nothing."""
    if holder.startswith(ANCHOR):
        name, _, said = holder.partition("=")
        value = constant(name)
        return "" if repr(value) == said else f"{name} is {value!r}; the sentence and its list say {said}"
    if "::" in holder:
        return "" if holder in every_test() else f"there is no test {holder}"
    return "" if (ROOT / holder).is_file() else f"there is no file {holder}"


@pytest.mark.parametrize("page", PAGES)
def test_every_sentence_that_promises_has_a_holder(page: str) -> None:
    """Claims: a promise that no test and no figure holds is none."""
    said = promising((ROOT / page).read_text("utf-8"))

    unlisted = [one for one in said if not any(one.startswith(begins) for begins in listed(page))]

    assert unlisted == [], (
        f"{page} promises these; name the test that holds each in tests/promises.py, or reword it: {unlisted}"
    )


@pytest.mark.parametrize("page", sorted({*PROMISES, *NO_PROMISE}))
def test_every_listed_sentence_stands_in_its_page_once(page: str) -> None:
    """Claims, the other way round: a list of what is no longer said holds nothing."""
    said = promising((ROOT / page).read_text("utf-8")) if page in PAGES else []
    counts = {begins: sum(one.startswith(begins) for one in said) for begins in listed(page)}

    assert {begins: count for begins, count in counts.items() if count != 1} == {}, (
        f"each stands once in {page} as a sentence that promises: drop from tests/promises.py what is gone (0), "
        "lengthen the beginning of what is not the only one (2 or more)"
    )
    assert len(counts) == len(listed(page)), f"{page}: one beginning is both a promise and none"


def test_every_holder_exists_and_every_bound_is_the_one_that_is_said() -> None:
    """Claims: tests by name, measured figures by script, bounds by the constant that the code applies."""
    holders = {holder for held in PROMISES.values() for names in held.values() for holder in names}

    assert [said for holder in sorted(holders) if (said := trouble_with(holder))] == []
    assert all(names for held in PROMISES.values() for names in held.values())


def test_the_walk_finds_what_it_is_for() -> None:
    """The reader of pages sees a promise in prose, in a list, in a table, and none in code."""
    page = "One. It never\nfails: always.\n\n- at most two\n\n| a | cannot |\n\n```\nnever\n```\n\n`always` is a name."

    assert promising(page) == ["It never fails: always.", "at most two", "| a | cannot |"]
    assert trouble_with("test_promises::test_of_nothing") and trouble_with("scripts/nothing")
    assert trouble_with("memory_anchor.domain.errors.TRIES=9") and not trouble_with(
        "memory_anchor.domain.errors.TRIES=8"
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_file_of_the_tree_that_a_page_names_is_there(page: str) -> None:
    """Claims: who asks "how do you know?" finds the test, the script or the module that the page names."""
    named = set(re.findall(r"`((?:memory_anchor|tests|scripts|deploy)/[\w/.-]+)", (ROOT / page).read_text("utf-8")))

    assert [path for path in sorted(named) if not (ROOT / path.rstrip(".")).exists()] == []


def test_the_number_of_bad_inputs_is_the_number_that_is_said() -> None:
    """Claims: docs/security.md counts the cases that every interface answers in one sentence."""
    cases = (TESTS / "corpora" / "bad_inputs.jsonl").read_text("utf-8").splitlines()

    assert f"{len(cases)} cases" in " ".join((ROOT / "docs" / "security.md").read_text("utf-8").split())


def test_nothing_in_the_package_can_open_a_pickle() -> None:
    """Claims: a pickle runs what it holds; nothing imports what reads one, and NumPy is told not to."""
    readers = {"pickle", "cPickle", "_pickle", "dill", "joblib", "shelve", "marshal"}
    for path in (ROOT / "memory_anchor").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not readers & {name.partition(".")[0] for name in names}, path
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant) and node.value.value is False, path
