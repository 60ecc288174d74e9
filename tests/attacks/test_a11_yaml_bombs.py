"""YAML that stands for more than it is: one sentence in milliseconds, and everything else goes on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.base.bounded_yaml import MAX_DEPTH, TooMuchYaml, check
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import Actor, ProposalAction
from memory_anchor.identity.constitution_text import parse
from memory_anchor.process.wiring import Core
from memory_anchor.settings import with_project_file

LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9)
)
ENTRIES = "entries:\n" + "".join(f"- {{id: e{n}, content: c{n}, priority: 0}}\n" for n in range(20_000))
DEEP = "a: " + "[" * 50_000
NESTED = "entries:\n- id: a\n  content: x\n  more: " + LAUGHS.replace("\n", "\n    ").replace("a: &a", "\n    a: &a", 1)
KEYS = "\n".join(f"k{n}: v" for n in range(50_000))
MEMBERS = "a: &a [*a]"
BOMBS = [LAUGHS, ENTRIES, DEEP, NESTED, KEYS, MEMBERS, "- " * 100_000, "? " * 100_000, "&a " * 50_000, "{" * 90_000]
CPU_S = 0.25
"""Ten times what the slowest costs; processor time, so that a busy machine does not decide."""


@pytest.mark.parametrize("bomb", BOMBS, ids=range(len(BOMBS)))
def test_a_bomb_costs_milliseconds_wherever_yaml_is_read(core: Core, project: Path, approve: Any, bomb: str) -> None:
    """Attacks A11, A12: as constitution, settings and proposal of a project; searches and the served text go on."""
    (project / "constitution.yaml").write_text("entries:\n- {id: goal, content: Be kind}\n", encoding="utf-8")
    anchor = approve(core.anchor(Actor(project_dir=str(project))))
    made = anchor.project.identity.propose(
        content="a rule", reason="asked", action=ProposalAction.ADD, entry_id=None, from_id=None, by="agent"
    )
    (project / "constitution.yaml").write_text(bomb, encoding="utf-8")
    (project / ".ai" / "proposals" / "p-0123456789.yaml").write_text(bomb, encoding="utf-8")
    (project / ".ai" / "proposals" / "approved.yaml").write_text(bomb, encoding="utf-8")

    started = time.process_time()
    served = anchor.constitution()
    proposals = anchor.project.identity.proposals()
    spent = time.process_time() - started

    assert [entry.content for entry in served.entries] == ["Be kind"]
    assert len(served.warnings) == 1
    assert [one.id for one in proposals] == [made.id]
    assert spent < CPU_S
    (project / "memory-anchor.yaml").write_text(bomb[:200_000], encoding="utf-8")
    started = time.process_time()
    with pytest.raises(BadInput, match=r"memory-anchor\.yaml"):
        with_project_file(core.settings, str(project))
    assert time.process_time() - started < CPU_S


def test_what_a_person_writes_is_within_the_bounds() -> None:
    """Attack A11, the other way round: anchors that repeat a little are no bomb, and twenty entries pass."""
    check("a: &a {x: 1}\nb: *a\nc: [*a, *a]\n")
    twenty = "version: 1\nentries:\n" + "".join(f"- id: e{n}\n  content: c{n}\n  priority: {n}\n" for n in range(20))
    assert parse(twenty).problems == () and len(parse(twenty).entries) == 20
    with pytest.raises(TooMuchYaml, match=f"{MAX_DEPTH} levels"):
        check("[" * (MAX_DEPTH + 1))


def test_twenty_thousand_entries_are_told_in_one_sentence(core: Core, project: Path) -> None:
    """Attack A11: before an approval, too; the sentence says what is wrong and names the line."""
    (project / "constitution.yaml").write_text(ENTRIES, encoding="utf-8")
    served = core.anchor(Actor(project_dir=str(project))).constitution()
    assert served.entries == ()
    assert "beyond the 500 values allowed" in served.warnings[0] and "line " in served.warnings[0]
