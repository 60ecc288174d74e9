"""Attack A10: an expression that is made of what somebody else wrote, with hostile pieces.

Where one is made is found by walking the source: whoever adds a place has to say here what it is made of. One of our
own words only is held by `test_a10_text_is_linear`; one of somebody's input is fuzzed here under the same law, from the
pieces that make such expressions slow, over texts that make them try everything.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pathological
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pathological import CPU_S, LENGTH, cpu_s

from memory_anchor.domain.model import Scope, Trust
from memory_anchor.extensions.knowledge import reading
from memory_anchor.extensions.knowledge.reading import (
    EXCEPTIONS_MAX,
    IGNORE_BYTES_MAX,
    PATTERN_CHARS_MAX,
    PATTERNS_MAX,
    SCANS,
)
from memory_anchor.extensions.knowledge.sources import IGNORE_FILE, Source, SourceKind, SyncProgress
from memory_anchor.extensions.knowledge.use_cases import knowledge_of
from memory_anchor.extensions.lorebook.key_index import REGEX_UNITS_MAX, key_expression
from memory_anchor.hooks import at_the_act
from memory_anchor.language.safe_regex import linear
from memory_anchor.language.terms import holds
from memory_anchor.recall import scoring
from memory_anchor.recall.unprompted import name_pattern
from memory_anchor.use_cases import used_memories
from memory_anchor.use_cases.memory import MemoryAnchor
from tests.unit.knowledgekit import read_all

MAKERS = {"bounded", "late", "linear", "core_schema.str_schema", "expression"}
"""What makes an expression of a string, beside everything of `re`."""
OF_OUR_WORDS = {
    "extensions.dashboard.wording._shapes": "sentences of en.toml, with bounded places between",
    "front.cli.init._write_goal": "a constant",
    "front.clients.install._toml_removed": "names of our own entries",
    "language.acts._class": "acts.toml",
    "language.acts._cue": "acts.toml",
    "language.gates.built_gate": "expressions of ours, run in linear time",
    "language.safe_regex._Late.__getattr__": "what calls it is walked",
    "language.safe_regex.linear": "runs in linear time whatever it is given: `test_any_expression_is_linear`",
    "language.secret_context._pattern": "secrets.toml",
    "language.secret_rules._rules": "secrets.toml",
    "language.timerules._rules": "times.toml",
    "language.timewords._refinements": "times.toml",
    "recall.routing._words": "constants",
}
OF_INPUT = {
    "hooks.at_the_act._in_full",
    "hooks.at_the_act.path_pattern",
    "extensions.lorebook.key_index.key_expression",
    "extensions.knowledge.reading._ignored",
    "extensions.knowledge.reading._rule",
    "language.terms.holds",
    "recall.scoring._named",
    "recall.unprompted.name_pattern",
    "use_cases.used_memories._has",
}
NAMES_MAX = 16
"""More than a hook takes of a prompt, a command and a patch together."""


def made_of_no_literal() -> Iterator[str]:
    """Yield each function that makes an expression of anything but a literal."""
    for module in pathological.modules():
        tree = ast.parse(Path(module.__file__ or "").read_text("utf-8"))
        short = module.__name__.removeprefix("memory_anchor.")
        yield from _makers(tree, short)


def _makers(node: ast.AST, path: str, inside: bool = False) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _makers(child, f"{path}.{child.name}", inside or not isinstance(child, ast.ClassDef))
            continue
        if inside and isinstance(child, ast.Call) and _makes(child):
            yield path
        yield from _makers(child, path, inside)


def _makes(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    if not (name in MAKERS or (name.startswith("re.") and name != "re.escape" and "(" not in name)):
        return False
    given = [*call.args[:1], *(word.value for word in call.keywords if word.arg == "pattern")]
    return not all(map(_is_literal, given))


def _is_literal(value: ast.expr) -> bool:
    """Return whether a string is written in place, with constants of the module in it or none."""
    if isinstance(value, ast.JoinedStr):
        put_in = [part.value for part in value.values if isinstance(part, ast.FormattedValue)]
        return all(isinstance(name, ast.Name) and name.id.isupper() for name in put_in)
    return isinstance(value, ast.Constant)


def test_every_expression_that_is_made_of_input_is_listed_and_fuzzed() -> None:
    """Attack A10: a new place that makes an expression of anything but a literal is named here, with its fuzz."""
    assert set(made_of_no_literal()) == OF_OUR_WORDS.keys() | OF_INPUT
    assert FUZZED.keys() == OF_INPUT


# --- globs -----------------------------------------------------------------------------------------------------------

DEEP = "/".join("ab" for _ in range(28))
GLOBS = (
    "**/",
    "**",
    "*",
    "?",
    "*a",
    "?*",
    "a/**/",
    "[a-z]*",
    "[!b]*",
    "a",
    "/",
    "!",
    "\\",
    "[",
    "中*",
    "{a,b}",
    "(a+)+$",
)
QUICK = settings(deadline=None, max_examples=40)
READ_S = 2.0


def made_hostile(folder: Path) -> Path:
    """Return a folder with the names over which a backtracking pattern tries everything."""
    (folder / DEEP).mkdir(parents=True)
    (folder / DEEP / f"{'a' * 200}.md").write_text("# Guide\nThe gate opens at nine.\n")
    (folder / f"{'ab' * 100}b.md").write_text("# Guide\nThe gate closes at ten.\n")
    return folder


def scan(folder: Path) -> tuple[set[str], SyncProgress]:
    now = datetime(2026, 11, 20, tzinfo=UTC)
    progress = SyncProgress(now)
    source = Source("s", SourceKind.FILES, str(folder), Trust.UNTRUSTED, Scope("a", "p", "u", "g"), now)
    return set(SCANS[SourceKind.FILES](source, "", progress).stamps), progress


@QUICK
@given(lines=st.lists(st.lists(st.sampled_from(GLOBS), min_size=1, max_size=40).map("".join), min_size=1, max_size=6))
def test_no_ignore_file_is_slow(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    """Attack A10: read and matched against the deepest path under the law, with twice the lines that are allowed."""
    folder = made_hostile(tmp_path_factory.mktemp("hostile") / "docs")
    made = [lines[number % len(lines)] + str(number) for number in range(2 * PATTERNS_MAX)]
    (folder / IGNORE_FILE).write_text("\n".join(made), "utf-8")
    scan(folder)
    assert cpu_s(lambda: scan(folder), enough=2 * CPU_S) <= 2 * CPU_S  # once to read it, once to match


def test_a_hostile_ignore_file_freezes_nothing(project: Path, anchor: MemoryAnchor) -> None:
    """Attack A10: twelve `**/` before a name and a deep path, which took hours: the source is read and answers."""
    folder = made_hostile(project / "docs")
    (folder / IGNORE_FILE).write_text("**/" * 12 + "x\n" + "*a" * 30 + "c\n")

    def read() -> None:
        knowledge_of(anchor).add(str(folder), "files")
        read_all(anchor)

    assert cpu_s(read, best_of=1) <= READ_S
    assert [passage.text for passage in knowledge_of(anchor).search("when does the gate open")]


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        (["drafts/"], {"a.md", "sub/b.md", "keep.txt"}),
        (["*.md", "!a.md"], {"a.md", "keep.txt"}),
        (["/a.md", "  ", "# all", "sub/**"], {"drafts/c.md", "keep.txt"}),
        (["**/b.md\r", "\\#x", "[ac].md"], {"keep.txt"}),
        (["*", "!*.txt"], {"keep.txt"}),
    ],
)
def test_an_ignore_file_says_what_a_gitignore_says(tmp_path: Path, lines: list[str], left: set[str]) -> None:
    """Rule knowledge.ignored: the last pattern that fits decides."""
    for name in ("a.md", "sub/b.md", "drafts/c.md", "keep.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / IGNORE_FILE).write_text("\n".join(lines))
    assert scan(tmp_path)[0] - {IGNORE_FILE} == left


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a\n" * (PATTERNS_MAX + 7), f"7 patterns of {IGNORE_FILE} are left out, the first is line {PATTERNS_MAX + 1}"),
        ("!a\n" * (EXCEPTIONS_MAX + 1), f"{EXCEPTIONS_MAX} of them with !"),
        ("ok.md\n" + "a" * (PATTERN_CHARS_MAX + 1), f"the first is line 2 (it has {PATTERN_CHARS_MAX + 1} characters"),
        ("[[:alpha:]]x\n", "the first is line 1 (cannot be run in linear time"),
        ("[z-a]\n!\n", f"2 patterns of {IGNORE_FILE} are left out"),
        ("#" * (IGNORE_BYTES_MAX + 1), f"{IGNORE_FILE} is left out: "),
    ],
)
def test_what_is_left_out_of_an_ignore_file_is_one_sentence(tmp_path: Path, content: str, said: str) -> None:
    """Attack A10: more patterns than are allowed, too long ones, and those that no engine takes are named."""
    (tmp_path / IGNORE_FILE).write_text(content)
    (sentence,) = scan(tmp_path)[1].skipped
    assert said in sentence


# --- any expression --------------------------------------------------------------------------------------------------

PIECES = (
    "(a+)+",
    "(a|a)*",
    "(.*a){9}",
    "\\w+\\s*",
    "[^/]*a",
    "(?:.+/)?",
    "a{1,9}",
    "$",
    "^",
    "b",
    "(?i:A)*",
    ".*",
    "\\d*",
)


@QUICK
@given(pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=12), text=st.sampled_from(("a", "a ", "a/", "1a")))
def test_any_expression_is_linear(pieces: list[str], text: str) -> None:
    """Attack A10: what ends `re` is under the law here, or refused in one sentence."""
    try:
        search = linear("".join(pieces))
    except ValueError as refused:
        assert "cannot be run in linear time" in str(refused)
        return
    long = (text * LENGTH)[:LENGTH] + "!"
    assert cpu_s(lambda: search(long)) <= CPU_S


# --- names -----------------------------------------------------------------------------------------------------------


def _keys(names: list[str], text: str) -> Any:
    return [key_expression(name, "i", units=REGEX_UNITS_MAX)[0](text) for name in names if name]


def _people(names: list[str], text: str) -> Any:
    traits: Any = SimpleNamespace(people=[frozenset(names)], group=np.zeros(1, dtype=np.int64))
    return scoring._named(traits, text)


def _pattern_of_names(names: list[str], text: str) -> Any:
    pattern = name_pattern(names)
    return pattern and pattern.search(text)


def _paths(names: list[str], text: str) -> None:
    for name in names:
        if (pattern := at_the_act.path_pattern(name, folders=True)) is not None:
            pattern.search(text)


FUZZED: dict[str, Callable[[list[str], str], Any]] = {
    "hooks.at_the_act._in_full": lambda names, text: at_the_act._in_full(
        SimpleNamespace(content=text),  # type: ignore[arg-type]
        names,
    ),
    "hooks.at_the_act.path_pattern": _paths,
    "extensions.lorebook.key_index.key_expression": _keys,
    "extensions.knowledge.reading._ignored": lambda *_: None,  # its own test: `test_no_ignore_file_is_slow`
    "extensions.knowledge.reading._rule": lambda names, _: [
        reading._rule(name[:PATTERN_CHARS_MAX], []) for name in names
    ],
    "language.terms.holds": lambda names, text: [holds(text, name) for name in names],
    "recall.scoring._named": _people,
    "recall.unprompted.name_pattern": _pattern_of_names,
    "use_cases.used_memories._has": lambda names, text: [used_memories._has(text, name) for name in names],
}
LETTERS = ("a", "a-", "a_", "a/", "ab", "a.", "A", "中", "(a", "a+", "\\", " ", "*", "1")


@pytest.mark.parametrize("place", sorted(OF_INPUT))
@QUICK
@given(
    names=st.lists(
        st.lists(st.sampled_from(LETTERS), min_size=1, max_size=6).flatmap(
            lambda letters: st.integers(1, 60).map(lambda times: ("".join(letters) * times)[:120])
        ),
        min_size=1,
        max_size=NAMES_MAX,
    ),
    letter=st.sampled_from(LETTERS),
)
def test_no_name_makes_an_expression_slow(place: str, names: list[str], letter: str) -> None:
    """Attack A10: names of memories, of people, of files and keys, where they nearly fit everywhere."""
    text = (letter * LENGTH)[: LENGTH - 1] + "!"
    assert cpu_s(lambda: FUZZED[place](names, text)) <= CPU_S
