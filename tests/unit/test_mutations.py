"""The lists of mutations cannot rot: each text stands where it is changed, and the tests that must notice are there."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "mutate"


@pytest.fixture(scope="module")
def mutate() -> Any:
    loader = SourceFileLoader("mutate", str(SCRIPT))
    spec = spec_from_loader("mutate", loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules["mutate"] = module  # dataclasses look their module up
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = kept
    return module


def test_every_mutation_can_be_made_and_has_its_tests(mutate: Any) -> None:
    listed = mutate.mutations()
    assert len(mutate.mutations(lists=["first"])) >= 120 and len(mutate.mutations(lists=["between"])) >= 80
    assert mutate.faults(listed) == []
    assert all(one.breaks and one.tests and one.find != one.replace for one in listed)


def test_what_is_wrong_with_a_list_is_said(mutate: Any) -> None:
    one = mutate.mutations(["gate-01"])[0]
    moved = mutate.Mutation("x-01", one.file, "stands nowhere", "", one.tests, "nothing")
    broken = mutate.Mutation("x-02", one.file, one.find, "confidence = (", ("tests/unit/test_gone.py",), "nothing")
    told = mutate.faults([moved, broken, broken])
    assert f"x-01: its text stands 0 times in {one.file}" in told
    assert "x-02: stands twice" in told
    assert "x-02: no tests/unit/test_gone.py" in told
    assert any(line.startswith("x-02: what it leaves is no program") for line in told)
