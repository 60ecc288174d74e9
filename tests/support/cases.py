"""Tables of cases, several a line: `each_query("a | b | c")` runs a test for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import pytest

Result = TypeVar("Result")


def cases(table: str) -> list[str]:
    """Return the cases between " | ", over as many lines as there are."""
    return [case.strip() for case in table.replace("\n", " ").split(" | ")]


def each_query(table: str) -> pytest.MarkDecorator:
    """Run the test for each case of the table as `query`."""
    return pytest.mark.parametrize("query", cases(table))


def by_result(table: Mapping[Result, str]) -> list[tuple[str, Result]]:
    """Return (case, result) for each case of a table that has them by their result."""
    return [(case, result) for result, listed in table.items() for case in cases(listed)]


def words(table: str) -> list[str]:
    """Return the cases between white space."""
    return table.split()
