"""Definitions of source code: by grammars where the extra is installed, else between blank lines."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from memory_anchor.extensions.knowledge.reading import WITHOUT_GRAMMARS
from memory_anchor.extensions.knowledge.use_cases import knowledge_of
from memory_anchor.language import grammars
from memory_anchor.language.passages import cut
from memory_anchor.use_cases.memory import MemoryAnchor
from tests.unit.knowledgekit import added, states, texts

SHOP = """// Money is kept in cents.
import { tax } from "./tax";

/** Adds up a basket.
 * Rounds once, at the end. */
export function total(basket) {
  function inner() {}

  return basket;
}

export class Till {
  // opens with a key
  open(key) { return key; }
  static of() {}
}
const half = (x) => x / 2;
"""
SAMPLES = {
    "js": (SHOP, [(4, 10, "total"), (12, 16, "Till"), (13, 14, "Till.open"), (15, 15, "Till.of"), (17, 17, "half")]),
    "go": ("package main\n\n// Run runs.\nfunc Run() {}\n\ntype P struct { X int }\n", [(3, 4, "Run"), (6, 6, "P")]),
    "rs": (
        "/// doc\n#[derive(Debug)]\npub struct P {}\n\nimpl P {\n    /// new\n    pub fn new() -> P { P{} }\n}\n",
        [(1, 3, "P"), (5, 8, "P"), (6, 7, "P.new")],
    ),
    "c": (
        "/* adds */\nstatic int *add(int a)\n{\n  return a;\n}\nstruct point { int x; };\nstruct point p;\nint f();\n",
        [(1, 5, "add"), (6, 6, "point")],
    ),
    "cpp": ("namespace a { class B { int go() { return 1; } }; }\n", [(1, 1, "a"), (1, 1, "a.B"), (1, 1, "a.B.go")]),
    "java": ("/** Doc */\nclass A {\n  int go() { }\n  A() {}\n}\n", [(1, 5, "A"), (3, 3, "A.go"), (4, 4, "A.A")]),
    "ts": ("interface A { b: string }\nexport const f = async (): Promise<void> => {};\n", [(1, 1, "A"), (2, 2, "f")]),
    "rb": ("module A\n  class B\n    def go\n    end\n  end\nend\n", [(1, 6, "A"), (2, 5, "A.B"), (3, 4, "A.B.go")]),
    "php": ("<?php\n/** doc */\nfunction go($a) { return $a; }\n", [(2, 3, "go")]),
    "cs": ("class A { int Go(int a) { return a; } }\n", [(1, 1, "A"), (1, 1, "A.Go")]),
}


@pytest.mark.parametrize("suffix", SAMPLES)
def test_a_definition_has_its_lines_with_the_comments_above_it(suffix: str) -> None:
    """Knowledge: functions first; what is inside of a function is that function's."""
    pytest.importorskip("tree_sitter")
    text, expected = SAMPLES[suffix]

    found = grammars.definitions(text, suffix)

    assert [(one.first + 1, one.last + 1, ".".join(one.names)) for one in found] == expected


def test_symbols_are_the_headings_of_code(project: Path, anchor: MemoryAnchor) -> None:
    """Knowledge: a function is a passage with its name and its comment; every line is in one passage."""
    pytest.importorskip("tree_sitter")
    (project / "shop.js").write_text(SHOP, encoding="utf-8")
    added(anchor, project)

    (found, *_) = knowledge_of(anchor).search("rounds once at the end of a basket")

    assert (found.citations[0].locator.heading, found.citations[0].locator.line_start) == (("total",), 4)
    pieces = list(cut(SHOP, "code", "shop.js"))
    covered = {line for one in pieces for line in range(one.line_start, one.line_end + 1)}
    assert {at for at, line in enumerate(SHOP.split("\n"), 1) if line.strip()} <= covered
    assert knowledge_of(anchor).open(found.id).freshness == "fresh"


def test_without_the_extra_code_is_cut_between_blank_lines_and_says_so(
    project: Path, anchor: MemoryAnchor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Knowledge: no grammar is fetched; one sentence names the extra."""
    monkeypatch.setattr(grammars, "_parser", lambda _: None)
    (project / "shop.js").write_text(SHOP, encoding="utf-8")
    (project / "till.js").write_text(SHOP, encoding="utf-8")

    added(anchor, project)

    assert states(anchor)["files"].skipped == (WITHOUT_GRAMMARS,)
    assert any("Rounds once" in one for one in texts(anchor, "rounds once at the end of a basket"))


@pytest.mark.parametrize("unit", ["function f(){", "/*", "class A{", "((((", "`${", '"\\'])
def test_hostile_code_is_read_in_linear_time(unit: str) -> None:
    """Attack K7: deep nesting and open ends are bounded, and nothing is raised."""
    pytest.importorskip("tree_sitter")
    started = time.process_time()

    list(cut(unit * (200_000 // len(unit)), "code", "a.js"))

    assert time.process_time() - started < 2
