"""Texts made to be slow to read, from the expressions themselves, and what in the package reads text.

Nothing is listed by hand: expressions and functions are found by walking the modules, so that a new one is covered the
day it is written. Pieces come from an expression's own parse tree (`re._parser`): a sample of it, its beginnings, its
classes, each repeated to the full length, with and without an end that fits nothing.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import importlib.util
import inspect
import json
import pkgutil
import random
import re
import subprocess
import sys
import time
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from re import _compiler, _parser  # type: ignore[attr-defined]
from re import _constants as sre  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any

from cases import words

import memory_anchor

LENGTH = 16_000
CPU_S = 0.050
BEST_OF = 5
LOOP_ROUNDS = 400_000
LOOP_S = 0.007
"""What `_loop` takes on a core that nothing else uses; where it takes longer, so does everything that is measured."""
SAMPLES = 4
DEPTH = 12
_SIGNS = (
    " |\n|\t|\u3000|\r\n|a|A|Aa|0|1|一|十|的|。|，|.|,|-|_|/|:|：|<|>|＜|(|（|[|【|{|\"|'|“|「|`|#|*|@|&|%|="
    '|あ|😀|a |a. |a\n|1 |1,|1.|- |我|我是|i |the |my |we |/a|a/|a.b|a-|-a|"a|“a|<a|&#|&amp;|\\n|\\|x='
    "|\n- |\n\n|\n \n|。 |aA|1a|a1|\ud800"
)
RUNS = (*_SIGNS.split("|"), "|", "| ", "|-")


ADAPTED = {"langgraph": "langgraph", "openai_agents": "agents", "pydantic_ai": "pydantic_ai", "strands": "strands"}
"""Module of an adapter -> what it adapts, which is installed where somebody uses it."""


def modules() -> Iterator[ModuleType]:
    for info in pkgutil.walk_packages(memory_anchor.__path__, "memory_anchor."):
        if not info.name.endswith("__main__") and has_what_it_adapts(info.name):
            yield importlib.import_module(info.name)


def has_what_it_adapts(name: str) -> bool:
    """Return whether a module can be imported here: what adapts a framework needs it."""
    adapted = name.startswith("memory_anchor.integrations.") and ADAPTED.get(name.rpartition(".")[2])
    return not adapted or importlib.util.find_spec(adapted) is not None


def _held(value: Any, name: str, seen: set[int], depth: int = 0) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield every expression in a value: in collections, fields, defaults, closures and constants of classes."""
    if isinstance(value, re.Pattern):
        if isinstance(value.pattern, str):
            yield name, value
        return
    if depth > 6 or id(value) in seen or isinstance(value, (str, bytes, int, float, ModuleType)):
        return
    seen.add(id(value))
    inner: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        inner = [(f"{name}[{key!r:.30}]", one) for key, one in value.items()]
        inner += [(f"{name}.key", key) for key in value]
    elif isinstance(value, (tuple, list, set, frozenset)):
        inner = [(f"{name}[{place}]", one) for place, one in enumerate(value)]
    elif inspect.isfunction(value):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell.cell_contents is not None]
        inner = [(f"{name}()", one) for one in (*cells, *(value.__defaults__ or ()))]
    elif type(value).__module__.startswith("memory_anchor"):
        slots = {slot for kind in type(value).__mro__ for slot in getattr(kind, "__slots__", ())}
        names = slots | set(getattr(value, "__dict__", {}))
        inner = [(f"{name}.{one}", getattr(value, one)) for one in sorted(names) if hasattr(value, one)]
    elif inspect.isclass(value) and value.__module__.startswith("memory_anchor"):
        inner = [(f"{name}.{key}", one) for key, one in vars(value).items()]
    for label, one in inner:
        yield from _held(one, label, seen, depth + 1)


def _is_of_re(called: ast.expr) -> bool:
    return isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "re"


def _written_in_place(module: ModuleType) -> Iterator[re.Pattern[str]]:
    """Yield the expressions that stand as a literal in a call such as `re.search(...)`, and look for something."""
    for node in ast.walk(ast.parse(Path(module.__file__ or "").read_text("utf-8"))):
        if isinstance(node, ast.Call) and _is_of_re(node.func) and node.args:
            if ast.unparse(node.func) in ("re.match", "re.fullmatch"):
                continue
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                flags = re.MULTILINE if any("M" in ast.unparse(one) for one in node.args[2:]) else 0
                yield re.compile(first.value, flags)


@cache
def expressions() -> dict[str, re.Pattern[str]]:
    """Return every compiled expression of the package, and those written where they are used, by where they are."""
    found: dict[str, re.Pattern[str]] = {}
    known: set[tuple[str, int]] = set()
    seen: set[int] = set()
    for module in modules():
        short = module.__name__.removeprefix("memory_anchor.")
        for name, value in vars(module).items():
            for label, pattern in _held(value, f"{short}.{name}", seen):
                if (pattern.pattern, pattern.flags) not in known:
                    known.add((pattern.pattern, pattern.flags))
                    found[label] = pattern
        for pattern in _written_in_place(module):
            if pattern.pattern not in {text for text, _ in known}:
                known.add((pattern.pattern, pattern.flags))
                found[f"{short}:{pattern.pattern}"] = pattern
    return found


def compiled_at_import() -> list[tuple[str, re.Pattern[str]]]:
    """Return every expression that a fresh process makes while it imports the package, by module and line.

    Told by `re.compile` and by `safe_regex` themselves, so that none can hide from `expressions`, which looks into what
    modules hold.
    """
    script = (
        "import json, re, sys\n"
        "real, made = re.compile, []\n"
        "def note(done, frame):\n"
        "    while frame and frame.f_code.co_filename.endswith('safe_regex.py'): frame = frame.f_back\n"
        "    name = frame.f_globals.get('__name__', '') if frame else ''\n"
        "    if name.startswith('memory_anchor') and isinstance(done.pattern, str):\n"
        "        made.append((f'{name}:{frame.f_lineno}', done.pattern, done.flags))\n"
        "def compile(pattern, flags=0):\n"
        "    done = real(pattern, flags)\n"
        "    note(done, sys._getframe(1))\n"
        "    return done\n"
        "re.compile = compile\n"
        "from memory_anchor.language import safe_regex\n"
        "class Noted(safe_regex._Late):\n"
        "    def __init__(self, *given, **named):\n"
        "        super().__init__(*given, **named)\n"
        "        note(self, sys._getframe(1))\n"
        "safe_regex._Late = Noted\n"
        "import pkgutil, importlib, memory_anchor\n"
        "for info in pkgutil.walk_packages(memory_anchor.__path__, 'memory_anchor.'):\n"
        f"    if info.name in {[module.__name__ for module in modules()]}: importlib.import_module(info.name)\n"
        "json.dump(made, sys.stdout)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    return [(where, re.compile(pattern, flags)) for where, pattern, flags in json.loads(done.stdout)]


def built_where_used() -> dict[str, re.Pattern[str]]:
    """Return the expressions that are put together inside a function, by where; a sign stands for what is put in."""
    found: dict[str, re.Pattern[str]] = {}
    for module in modules():
        for node in ast.walk(ast.parse(Path(module.__file__ or "").read_text("utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called.startswith("re.") and isinstance(node, ast.Call) and node.args:
                first = node.args[0]
                if isinstance(first, ast.JoinedStr):
                    text = "".join(one.value if isinstance(one, ast.Constant) else "x" for one in first.values)
                    with contextlib.suppress(re.error):  # what is put in was a class or a group
                        found[f"{module.__name__}:{node.lineno}"] = re.compile(text)
    return found


_USED = re.compile(
    r"(?<![A-Za-z0-9_])([A-Z_][A-Z0-9_]+)\.(search|match|fullmatch|finditer|findall|sub|subn|split|pattern)\b"
)


@cache
def _uses() -> Mapping[str, frozenset[str]]:
    """Return how the package uses each constant that is an expression; a private one is its own module's."""
    found: dict[str, set[str]] = {}
    for module in modules():
        short = module.__name__.removeprefix("memory_anchor.")
        for name, how in _USED.findall(Path(module.__file__ or "").read_text("utf-8")):
            found.setdefault(f"{short}.{name}" if name.startswith("_") else name, set()).add(how)
    return {name: frozenset(uses) for name, uses in found.items()}


def tried_in_one_place(name: str) -> bool:
    """Return whether an expression is only ever held against one place of a text, never looked for."""
    bare = name.rsplit(".", 1)[-1]
    uses = _uses().get(name if bare.startswith("_") else bare, frozenset())
    return bool(uses) and uses <= {"match", "fullmatch"}


def endless(pattern: re.Pattern[str]) -> list[str]:
    """Return the repetitions that have no end, can give back, and stand before something that may not fit.

    Each of them begins anew at every sign of a run it fails in: the square of the text's length.
    """
    tree = list(_parser.parse(pattern.pattern, pattern.flags))
    if tree and tree[0][0] is sre.AT and tree[0][1] in {sre.AT_BEGINNING, sre.AT_BEGINNING_STRING}:
        return []
    return list(_endless(tree, False))


def _endless(tree: Sequence[Any], refusable: bool) -> Iterator[str]:
    """Yield them. refusable: whether what follows the tree may refuse what it took."""
    for place, (kind, value) in enumerate(tree):
        after = refusable or any(
            not (other in {sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT} and inner[0] == 0)
            for other, inner in tree[place + 1 :]
        )
        if kind in {sre.MAX_REPEAT, sre.MIN_REPEAT}:
            _, most, inner = value
            if most >= LENGTH and after:
                yield str(inner)[:80]
            yield from _endless(list(inner), after or most > 1)
        elif kind is sre.SUBPATTERN:
            yield from _endless(list(value[3]), after)
        elif kind is sre.BRANCH:
            for one in value[1]:
                yield from _endless(list(one), after)
        elif kind in {sre.ASSERT, sre.ASSERT_NOT}:
            yield from _endless(list(value[1]), True)


def by_patch_release(pattern: re.Pattern[str]) -> list[str]:
    """Return what one release of an interpreter reads otherwise than the next: groups that give nothing back.

    Possessive repetitions of more than one sign, and atomic groups: Python 3.11.2 reads an alternation in one wrongly,
    3.11.7 ends with a SystemError where one captures. A possessive repetition of a single sign is sound.
    """
    return list(_by_patch_release(_parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)))


def _by_patch_release(tree: Any) -> Iterator[str]:
    if isinstance(tree, (list, tuple)):
        if len(tree) == 2 and tree[0] is sre.ATOMIC_GROUP:
            yield f"atomic {tree[1]}"[:90]
        if len(tree) == 2 and tree[0] is sre.POSSESSIVE_REPEAT and not _compiler._simple(tree[1][2]):
            yield f"possessive {tree[1][2]}"[:90]
    if isinstance(tree, (list, tuple, _parser.SubPattern)):
        for one in tree:
            yield from _by_patch_release(one)


# --- samples of an expression -------------------------------------------------------------------------------------

_CATEGORY = {
    sre.CATEGORY_DIGIT: "1",
    sre.CATEGORY_SPACE: " ",
    sre.CATEGORY_WORD: "a",
    sre.CATEGORY_NOT_DIGIT: "a",
    sre.CATEGORY_NOT_SPACE: "a",
    sre.CATEGORY_NOT_WORD: " ",
}


def _one_of(items: Sequence[Any], rng: random.Random) -> str:
    negated = items[0][0] is sre.NEGATE
    choices: list[str] = []
    for kind, value in items[1:] if negated else items:
        if kind is sre.LITERAL:
            choices.append(chr(value))
        elif kind is sre.RANGE:
            choices.append(chr(rng.randint(*value)))
        elif kind is sre.CATEGORY:
            choices.append(_CATEGORY.get(value, "a"))
    if negated:
        return next((one for one in rng.sample("a1 。-一A.\n", 9) if one not in choices), "é")
    return rng.choice(choices or ["a"])


def _sample(tree: Any, rng: random.Random, depth: int = 0) -> list[str]:
    """Return pieces that together are likely to fit, one for each element of the tree."""
    pieces: list[str] = []
    for kind, value in tree:
        if kind is sre.LITERAL:
            pieces.append(chr(value))
        elif kind is sre.NOT_LITERAL:
            pieces.append("b" if value == ord("a") else "a")
        elif kind is sre.ANY:
            pieces.append(rng.choice("a 一"))
        elif kind is sre.IN:
            pieces.append(_one_of(value, rng))
        elif kind is sre.BRANCH:
            pieces += _sample(rng.choice(value[1]), rng, depth + 1)
        elif kind is sre.SUBPATTERN:
            pieces += _sample(value[3], rng, depth + 1)
        elif kind is sre.ATOMIC_GROUP:
            pieces += _sample(value, rng, depth + 1)
        elif kind in {sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT}:
            low, high, inner = value
            times = max(low, rng.choice((0, 1, 1, 2, 3) if depth < DEPTH else (0,)))
            for _ in range(min(times, int(high), 40)):
                pieces += _sample(inner, rng, depth + 1)
        elif kind in {sre.ASSERT} and value[0] > 0:
            pieces += _sample(value[1], rng, depth + 1)
    return pieces


def pieces(pattern: re.Pattern[str], *, seed: int = 0, samples: int = SAMPLES) -> list[str]:
    """Return strings to repeat: samples of the expression, their beginnings, parts and signs."""
    rng = random.Random(f"{seed}{pattern.pattern}")
    tree = _parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
    found: dict[str, None] = {}
    for _ in range(samples):
        parts = _sample(tree, rng)
        whole = "".join(parts)
        found[whole] = None
        if len(parts) > 1:
            cut = rng.randrange(1, len(parts))
            first, second = sorted(rng.sample(range(len(parts) + 1), 2))
            for one in (parts[:cut], parts[:-1], parts[cut:], parts[first:second]):
                found["".join(one)] = None
        for character in set(whole):
            if not character.isalnum() or rng.random() < 0.1:
                found[character] = None
    return [one for one in found if one]


def always_has(pattern: re.Pattern[str], characters: frozenset[str]) -> bool:
    """Return whether every match has one of these characters, whatever its case."""
    return _always_has(list(_parser.parse(pattern.pattern, pattern.flags)), characters)


def _always_has(tree: Sequence[Any], characters: frozenset[str]) -> bool:
    def has(kind: Any, value: Any) -> bool:
        if kind is sre.LITERAL:
            return chr(value).lower() in characters
        if kind is sre.IN:
            return all(one is sre.LITERAL and chr(code).lower() in characters for one, code in value)
        if kind is sre.BRANCH:
            return all(_always_has(branch, characters) for branch in value[1])
        if kind is sre.SUBPATTERN:
            return _always_has(value[3], characters)
        return kind in {sre.MAX_REPEAT, sre.MIN_REPEAT} and value[0] > 0 and _always_has(value[2], characters)

    return any(has(kind, value) for kind, value in tree)


def long_texts(piece: str, length: int = LENGTH) -> Iterator[str]:
    """Yield the piece repeated; its last sign behind it, its first sign before it."""
    yield (piece * (length // len(piece) + 1))[:length]
    if len(piece) > 1:
        yield (piece + piece[-1] * length)[:length]
        yield (piece[0] * length)[: length - len(piece)] + piece


# --- functions ----------------------------------------------------------------------------------------------------

ROOMS = tuple(
    words("""
    language ingest recall context inputs base.terminal observation layers identity upkeep versions
    front.prompts front.instructions conversations hooks knowledge.convert
""")
)
"""Where functions take a user's text and touch neither files nor processes."""
ELSEWHERE = ("identity.constitution_text",)
"""What parses YAML is bounded by size and depth before it parses (A11), not by this."""
_NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def _argument(annotation: Any, text: str) -> Any:
    origin = typing.get_origin(annotation)
    if annotation is str:
        return text
    if annotation is datetime:
        return _NOW
    if annotation is int:
        return 1_000
    if annotation is float:
        return 0.5
    if annotation is bool:
        return False
    if origin in {list, tuple} or (origin is not None and getattr(origin, "__name__", "") in {"Sequence", "Iterable"}):
        inside = [one for one in typing.get_args(annotation) if one is not Ellipsis]
        if len(inside) == 1 and inside[0] is str:
            return [text]
    raise TypeError


def functions() -> dict[str, Callable[[str], Any]]:
    """Return every public function of the rooms above that a text alone is enough to call."""
    found: dict[str, Callable[[str], Any]] = {}
    for module in modules():
        short = module.__name__.removeprefix("memory_anchor.")
        if not short.startswith(ROOMS) or short.startswith(ELSEWHERE):
            continue
        for name, function in vars(module).items():
            plain = inspect.unwrap(function) if callable(function) else function
            if not inspect.isfunction(plain) or plain.__module__ != module.__name__ or name.startswith("_"):
                continue
            try:
                hints = typing.get_type_hints(plain)
                needed = [
                    one
                    for one in inspect.signature(plain).parameters.values()
                    if one.default is one.empty and one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD}
                ]
                if not any(hints.get(one.name) is str for one in needed):
                    continue
                for one in needed:
                    _argument(hints.get(one.name), "")
            except (TypeError, NameError):
                continue

            def call(text: str, plain: Any = plain, needed: Any = needed, hints: Any = hints) -> Any:
                given = {
                    one.name: _argument(hints[one.name], text) for one in needed if one.kind != one.POSITIONAL_ONLY
                }
                made = plain(**given)
                return list(made) if inspect.isgenerator(made) else made

            found[f"{short}.{name}"] = call
    return found


def _loop() -> float:
    """Return the CPU seconds that a fixed loop takes now: on a shared core even CPU time grows."""
    begun = time.thread_time()
    for _ in range(LOOP_ROUNDS):
        pass
    return time.thread_time() - begun


def cpu_s(call: Callable[[], Any], *, best_of: int = BEST_OF, enough: float = CPU_S) -> float:
    """Return the least CPU seconds of some tries; one that is quick enough is not repeated.

    Of this thread alone and without the collector, whose pass over the heap of all tests says nothing about a text. A
    try that is too slow counts by how slow the core is at that moment.
    """
    best = float("inf")
    for _ in range(best_of):
        collected = gc.isenabled()
        gc.disable()
        try:
            begun = time.thread_time()
            with contextlib.suppress(Exception):  # a refusal is an answer; only its time counts here
                call()
            took = time.thread_time() - begun
        finally:
            if collected:
                gc.enable()
        if took > enough:
            took /= max(1.0, _loop() / LOOP_S)
        best = min(best, took)
        if best <= enough or best > 10 * enough:
            break
    return best


def slowest(call: Callable[[str], Any], texts: Sequence[str], *, limit: float = CPU_S) -> tuple[float, str]:
    """Return the CPU seconds of the slowest text; a short one is read first, and what it promises is not waited for."""
    worst, which = 0.0, ""
    for text in texts:
        for length in (len(text) // 16, len(text) // 4, len(text)):
            took = cpu_s(lambda text=text, length=length: call(text[:length]), enough=limit)
            if took > worst:
                worst, which = took, text[:length]
            if took > limit:
                break
    return worst, which


def read_with(name: str, pattern: re.Pattern[str]) -> Callable[[str], Any]:
    """Return what reads a text with an expression in every way the package does: one only matched is only matched."""
    if tried_in_one_place(name):
        return pattern.match

    def read(text: str) -> None:
        for _ in pattern.finditer(text):  # the first of them is what `search` finds
            pass

    return read
