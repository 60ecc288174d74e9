"""The map between the strategy's rules and the tests, both ways."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from rules import RULES  # noqa: E402

CITES = re.compile(r"^(Rules? (L[0-4]\.\w+|\d(\.\d)?)\b|Strategy|Red line)")


def every_test() -> dict[str, str]:
    """Return `module::name` -> first line of its docstring."""
    found: dict[str, str] = {}
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
                found[f"{path.stem}::{node.name}"] = (ast.get_docstring(node) or "").split("\n")[0]
    return found


def test_every_rule_of_the_strategy_has_tests_that_exist() -> None:
    """Rule map: a rule without a test, or with one that is gone, is no rule."""
    known = every_test()

    missing = [name for rule in RULES for name in rule.tests if name not in known]

    assert missing == []
    assert all(rule.tests for rule in RULES)


def test_every_test_that_cites_the_strategy_is_in_the_map() -> None:
    """Rule map: the other way round."""
    mapped = {name for rule in RULES for name in rule.tests}

    unmapped = [name for name, says in every_test().items() if CITES.match(says) and name not in mapped]

    assert unmapped == []
