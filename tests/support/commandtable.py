"""Every command of the table, and whether it can ask for the passphrase: read from the source, so none is forgotten."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import typer
from typer.main import get_command_name

import memory_anchor
from memory_anchor.front.cli import generated
from memory_anchor.front.cli.app import app

ASKERS = {"ask_human", "ask_human_on_tty", "human_signer", "ask_passphrase", "_ask_hidden", "_ask_twice", "unlock"}
"""The functions that ask for it."""
PACKAGE = Path(next(iter(memory_anchor.__path__)))
FILES = (*(PACKAGE / "front" / "cli").glob("*.py"), *(PACKAGE / "extensions").glob("*/commands.py"))
AROUND = {"handle_errors"}
"""What wraps every command; after a failure it offers to link the folder, as `projects link` does."""
Function = tuple[str, str]


class Uses:
    """What each function of the commands' modules uses: (module, name) -> (module, name)s."""

    def __init__(self) -> None:
        self.of: dict[Function, set[Function]] = {}
        for file in FILES:
            tree = ast.parse(file.read_text(encoding="utf-8"))
            module = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
            imported = {
                (alias.asname or alias.name): (str(node.module), alias.name)
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith(memory_anchor.__name__)
                for alias in node.names
            }
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    self.of.setdefault((module, node.name), set()).update(_used(node, module, imported))

    def asks(self, start: Function) -> bool:
        """Return whether a function, or one that it uses, asks for the passphrase."""
        seen: set[Function] = set()
        left = [start]
        while left:
            one = left.pop()
            if one[1] in ASKERS:
                return True
            if one not in seen and one[1] not in AROUND:
                seen.add(one)
                left += self.of.get(one, ())
        return False


def _used(node: ast.AST, module: str, imported: dict[str, Function]) -> Iterator[Function]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield imported.get(part.id, (module, part.id))
        elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id in imported:
            yield ".".join(imported[part.value.id]), part.attr  # a function of an imported module


def commands(of: typer.Typer = app, before: str = "") -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield (`backup create`, its function) for every command."""
    for info in of.registered_commands:
        assert info.callback is not None
        yield before + (info.name or get_command_name(info.callback.__name__)), inspect.unwrap(info.callback)
    for group in of.registered_groups:
        assert group.typer_instance is not None
        yield from commands(group.typer_instance, f"{before}{group.name or group.typer_instance.info.name} ")


def that_ask() -> set[str]:
    """Return the commands that can ask for the passphrase."""
    uses = Uses()
    asking: set[str] = set()
    for name, function in commands():
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        made = next((cell for cell in cells if isinstance(cell, generated.Command)), None)
        if made is not None:
            asks = made.human or made.signs is not None
        else:
            asks = uses.asks((function.__module__, function.__name__))
        if asks:
            asking.add(name)
    return asking
