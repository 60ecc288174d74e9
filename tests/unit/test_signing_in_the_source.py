"""What the source itself shows of signatures: who signs, and that no value of an answer is signed unlooked at."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from commandtable import that_ask

import memory_anchor
from memory_anchor.front.cli.app import app
from memory_anchor.front.cli.typing_ahead import may_ask
from memory_anchor.identity import keys
from memory_anchor.identity.statements import Statement

PACKAGE = Path(memory_anchor.__file__).parent
CALLERS = {
    "confirm": {"identity/approval.py:confirm", "identity/proposals.py:sign", "identity/identity_schema.py:reject"},
    "seal": {"identity/approved.py:sign_link", "identity/approved.py:put", "identity/approved.py:add"},
    "decide": {"identity/signed_requests.py:sign_request"},
    "purge": {"extensions/devices/commands.py:sign_purge"},
    "vouch": {"identity/keys.py:vouch", "extensions/service/keys.py:new_key"},
}
"""The one way to each kind of signature: where its statement is made."""
KINDS = {kind.__name__ for kind in Statement.__subclasses__()}
SOURCES = {"call", "ask", "ask_server", "_ask_engine", "_through_engine"}
"""What an engine or a server answers comes from these."""
SHOWS = {"print", "tell", "show_sides", "show_memories", "_show_versions", "_show_purged", "edit_text", "fullmatch"}
"""A value that is handed to one of these was shown to the human, or is checked to be of a shape that says nothing."""
LOOKS = {
    "version_stamps",
    "purge_digest",
    "full_id",
    "full_project_id",
    "with_full_ids",
    "fromisoformat",
    "_ask_likely",
}
"""What these return is made of what was shown."""


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                yield f"{file.relative_to(PACKAGE).as_posix()}:{node.name}", node


FUNCTIONS = list(functions())


def called(node: ast.AST) -> str:
    """Return the last name of what a call calls, "" for anything else."""
    func = node.func if isinstance(node, ast.Call) else None
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _signs_bytes(function: ast.FunctionDef) -> bool:
    return any(called(node) == "sign" and "_key" in ast.unparse(node) for node in ast.walk(function))


def test_the_key_signs_in_one_place_and_typed_statements_alone() -> None:
    """Rule: there is no method that signs bytes or a record; each of the five takes its own kinds."""
    users = {
        where
        for where, function in FUNCTIONS
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.attr == "_signed" or (node.attr == "_key" and node.value.id in ("signer", "human"))
    }
    assert users == {f"identity/keys.py:{name}" for name in ("_seal", *CALLERS)}
    raw = {where for where, function in FUNCTIONS if where.startswith("identity/") and _signs_bytes(function)}
    assert raw == {"identity/keys.py:_signed"}
    public = {name for name in vars(keys.Signer) if not name.startswith("_")} - {"approver", "rules", "installation"}
    assert public == CALLERS.keys()


@pytest.mark.parametrize("method", CALLERS)
def test_each_kind_of_statement_is_signed_where_it_is_made(method: str) -> None:
    """Rule: a new caller of a signature is looked at before it is added here."""
    found = set()
    for where, function in FUNCTIONS:
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method:
                base = node.func.value
                name = base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""
                if name in ("signer", "human"):
                    found.add(where)
    assert found == CALLERS[method]


def test_no_statement_is_made_of_a_record() -> None:
    """Rule: `Purged(**said)` would sign whatever a socket, a file or a server put into `said`."""
    unpacked = {
        where
        for where, function in FUNCTIONS
        for node in ast.walk(function)
        if called(node) in KINDS and isinstance(node, ast.Call)
        if any(keyword.arg is None for keyword in node.keywords) or any(isinstance(a, ast.Starred) for a in node.args)
    }
    assert unpacked == {"extensions/service/keys.py:admitted"}  # the fields of a key that was made in this very process


class Answers:
    """The names of one function that hold what an engine or a server answered, and which of them were looked at."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.function = function
        self.held: set[str] = set()
        self.looked: set[str] = set()
        for _ in range(3):
            for node in ast.walk(function):
                self._learn(node)

    def _learn(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value) if self.unlooked(value):
                self.held |= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
            case ast.For(target=target, iter=source) | ast.comprehension(target=target, iter=source):
                names = {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
                if self.unlooked(source):
                    self.held |= names
                if names & self.looked:
                    self.looked |= _names(source)
            case ast.Call() if called(node) in SHOWS:
                self.looked |= {name for argument in node.args for name in _names(argument)}

    def unlooked(self, value: ast.AST) -> bool:
        """Return whether an expression holds something of an answer that nobody looked at."""
        if called(value) in LOOKS:
            return False
        if called(value) in SOURCES:
            return True
        if isinstance(value, ast.Name):
            return value.id in self.held and value.id not in self.looked
        return any(self.unlooked(part) for part in ast.iter_child_nodes(value))

    def signed(self) -> Iterator[ast.AST]:
        """Yield every expression that a human signs here."""
        for node in ast.walk(self.function):
            if not isinstance(node, ast.Call):
                continue
            human = next((keyword.value for keyword in node.keywords if keyword.arg == "human"), None)
            if called(node) in SOURCES and human is not None and not isinstance(human, ast.Constant):
                yield from node.args
                yield from (keyword.value for keyword in node.keywords if keyword.arg != "human")
            elif called(node) in KINDS:
                yield from node.args
                yield from (keyword.value for keyword in node.keywords)


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def faults(function: ast.FunctionDef) -> list[str]:
    answers = Answers(function)
    return [ast.unparse(value) for value in answers.signed() if answers.unlooked(value)]


def test_no_value_of_an_answer_is_signed_unlooked_at() -> None:
    """Rule: what an engine or a server answered is shown, or checked, before any of it is part of a signature."""
    found = {where: wrong for where, function in FUNCTIONS if (wrong := faults(function))}
    assert found == {}
    assert sum(1 for _, function in FUNCTIONS for _ in Answers(function).signed()) > 20


@pytest.mark.parametrize(
    "source",
    [
        "def f(human):\n    said = call('sync_unsigned')['said']\n    call('sync_signed', said=said, human=human)",
        "def f(human):\n    preview = call('purge_preview')\n    call('purge', seen=preview['seen'], human=human)",
        "def f(human):\n    for one in call('list')['ids']:\n        call('forget', id=one, human=human)",
        "def f(human):\n    call('forget', id=call('list')['id'], human=human)",
        "def f(human, server):\n    ids = ask_server(server)['ids']\n    human.purge(Purged('f', tuple(ids), 'now'))",
    ],
)
def test_the_source_that_signs_an_answer_is_noticed(source: str) -> None:
    """The test itself: the two ways in which it was done, and three like them."""
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef) and faults(function)


def test_every_command_that_asks_hides_what_is_typed_before() -> None:
    """Passphrases: all but `init`, which asks visibly first; a new one is in `typing_ahead` or takes --human."""
    root = typer.main.get_command(app)

    def takes_human(name: str) -> bool:
        command: Any = root
        for word in name.split():
            command = command.commands[word]
        return any("--human" in parameter.opts for parameter in command.params)

    shown = {name for name in that_ask() if not may_ask(name.split()) and not takes_human(name)}

    assert shown == {"init"}
    assert may_ask(["add", "text", "--human"]) and not may_ask(["list"]) and not may_ask(["backup", "create"])
