"""Who may do what: the table in code and the one for people are the same, and nothing else decides by the caller."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

from memory_anchor.domain.model import Caller
from memory_anchor.domain.rights import (
    BROUGHT,
    CHANGES,
    NO_PAGE,
    PRINCIPAL_OF_CALLER,
    RIGHTS,
    Action,
    Alteration,
    Brought,
    Effect,
    Principal,
    Right,
    Target,
)

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "security.md"
TELLS_WHO = {"rights.py", "model.py", "callers.py"}
"""Where callers are named: the table, the type, and what turns a transport into a caller."""


def table() -> list[str]:
    """Return the table as the page holds it."""
    head = f"| use case | {' | '.join(who.value for who in Principal)} |"
    rows = [f"| {action.value} | {' | '.join(RIGHTS[action][who].value for who in Principal)} |" for action in Action]
    return [head, f"|{'---|' * (len(Principal) + 1)}", *rows]


def test_the_page_holds_the_table_of_the_code() -> None:
    """Issue 12, who may do what: one table in the docs and one function in code, the same."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = lines.index(table()[0]) if table()[0] in lines else 0

    assert lines[start : start + len(table())] == table()


def cell(pair: tuple[Effect, Effect]) -> str:
    """Return a cell as the page holds it: for an agent / for a human, once where both are the same."""
    agent, human = pair
    return agent.value if agent is human else f"{agent.value} / {human.value}"


def test_the_page_holds_the_tables_of_changes() -> None:
    """Rule rights: what is written x who reads it x whose the target is and how it stands x who calls."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    changes = [f"| a change, and to what | {' | '.join(target.value for target in Target)} |"]
    changes += [f"|{'---|' * (len(Target) + 1)}"]
    changes += [
        f"| {one.value} | {' | '.join(cell(CHANGES[one][target]) for target in Target)} |" for one in Alteration
    ]
    brought = [
        "| what is new here | becomes |",
        "|---|---|",
        *(f"| {one.value} | {cell(BROUGHT[one])} |" for one in Brought),
    ]
    for table_here in (changes, brought):
        start = lines.index(table_here[0]) if table_here[0] in lines else 0
        assert lines[start : start + len(table_here)] == table_here


def test_every_use_case_has_a_cell_for_everybody() -> None:
    """Issue 12: no cell is left to chance; who has no door yet may do nothing."""
    assert set(RIGHTS) == set(Action)
    assert all(set(row) == set(Principal) for row in RIGHTS.values())
    assert set(PRINCIPAL_OF_CALLER) == set(Caller)
    assert {RIGHTS[action][Principal.BROWSER] for action in NO_PAGE} == {Right.LATER}
    assert all(
        RIGHTS[action][Principal.BROWSER] is RIGHTS[action][Principal.TERMINAL]
        for action in Action
        if action not in NO_PAGE
    )
    for less, more in itertools.pairwise(
        (Principal.READER_KEY, Principal.WRITER_KEY, Principal.APPROVER_KEY, Principal.ADMIN_KEY)
    ):
        assert all(RIGHTS[action][more] is not Right.NO for action in Action if RIGHTS[action][less] is not Right.NO)


def test_nothing_else_compares_who_is_calling() -> None:
    """Issue 12: every door asks one function; a comparison with a caller elsewhere would be a second table."""
    for path in sorted((ROOT / "memory_anchor").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if path.name not in TELLS_WHO else ():
            if isinstance(node, ast.Compare):
                named = {ast.unparse(one) for one in (node.left, *node.comparators)}
                assert not any(name.startswith("Caller.") for name in named), f"{path.name}:{node.lineno}"
