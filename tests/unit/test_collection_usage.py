"""Usage of a collection: knowledge, memory, hybrid, against everybody who may write."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_anchor.domain.errors import Refused
from memory_anchor.domain.model import Actor, Origin
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.writes import WRITERS, check_writer

MATRIX = {
    ("memory", Origin.HUMAN): True,
    ("memory", Origin.SYSTEM): True,
    ("memory", Origin.AGENT): True,
    ("memory", Origin.EXTRACTED): True,
    ("memory", Origin.DOCUMENT): False,
    ("knowledge", Origin.HUMAN): True,
    ("knowledge", Origin.SYSTEM): True,
    ("knowledge", Origin.AGENT): False,
    ("knowledge", Origin.EXTRACTED): False,
    ("knowledge", Origin.DOCUMENT): True,
    ("hybrid", Origin.HUMAN): True,
    ("hybrid", Origin.SYSTEM): True,
    ("hybrid", Origin.AGENT): True,
    ("hybrid", Origin.EXTRACTED): True,
    ("hybrid", Origin.DOCUMENT): True,
}


@pytest.mark.parametrize(("usage", "origin"), MATRIX, ids=lambda value: str(value))
def test_usage_and_origin_decide_who_may_write(usage: str, origin: Origin) -> None:
    """Rule usage: the whole matrix."""
    if MATRIX[usage, origin]:
        check_writer("verified_fact", usage, origin)
    else:
        with pytest.raises(Refused, match=f"used as {usage}"):
            check_writer("verified_fact", usage, origin)


def test_the_matrix_is_whole() -> None:
    """Rule usage: no usage and no origin is forgotten."""
    assert set(MATRIX) == {(usage, origin) for usage in WRITERS for origin in Origin}


def test_a_project_that_keeps_knowledge_takes_no_agents_facts(core: Core, agent: Actor, project: Path) -> None:
    """Rule usage: a project's own file may choose it, and it holds for that project."""
    (project / "memory-anchor.yaml").write_text("collections: {verified_fact: {usage: knowledge}}\n", encoding="utf-8")
    anchor = core.anchor(agent)

    with pytest.raises(Refused, match="used as knowledge"):
        anchor.save_memory("We use uv")
    with pytest.raises(Refused, match="used as knowledge"):
        anchor.remember_conversation([{"role": "user", "content": "I prefer short answers."}])
    assert anchor.log_event("CI flaked").id
