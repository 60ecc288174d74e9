"""Attack A9: a memory, a heading or an import that ends the engine, and ends it again after every restart."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from doors import House, answer

from memory_anchor.use_cases.memory import MemoryAnchor

WIDE = "\u3000"
IMPORT_CPU_S = 2.0
PROCESS_CPU_S = 20.0
"""A whole command: it starts, loads and writes in some 3 s here; the import alone took 166."""
POISONS = (" ", WIDE, "\n", "a", "1", "一", "“", "[", "密码", "&#1;", "- ", "\u200b")


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.close()


@pytest.mark.slow
def test_a_poisonous_memory_and_heading_leave_the_engine_alive_also_after_a_restart(house: House) -> None:
    """Attack A9: 8,000 full-width blanks saved and logged, a heading of 64,000 blanks; the engine's pid stays."""
    folder = house.project("here") / ".ai" / "operations"
    folder.mkdir(parents=True)
    (folder / "deploy.md").write_text(f"# {WIDE * 64_000}\nRoll back with make rollback.\n#{' ' * 64_000}x\n")
    agent = house.bridge("here")
    agent.greet()
    for poison in (WIDE, " ", "1", "a"):
        answer(agent, "save_memory", content=f"The deploy{poison * 7_900} runs on Friday {poison}")
        answer(agent, "log_event", content=f"Deployed{poison * 7_900} {poison}")
    pid = house.state()["pid"]
    for restarted in (False, True):
        if restarted:
            house.run("engine", "stop")
            agent = house.bridge("here")
            agent.greet()
        assert answer(agent, "search_memory", query=f"deploy{WIDE * 3_900}Friday")["snippets"]
        assert answer(agent, "find_operations", task="roll back")["operations"]
        assert "text" in answer(agent, "build_context", task=f"deploy on Friday {WIDE * 1_000}")
        if not restarted:
            assert house.state()["pid"] == pid


@pytest.mark.parametrize("poison", POISONS)
def test_a_conversation_of_100000_characters_is_learned_from_in_two_seconds(anchor: MemoryAnchor, poison: str) -> None:
    """Attack A9: what took 166 s; CPU time, so that a busy machine does not count."""
    text = f"I like tea. {poison * (100_000 // len(poison))} I prefer uv to pip."
    begun = time.process_time()
    anchor.remember_conversation([{"role": "user", "content": text}])
    assert time.process_time() - begun <= IMPORT_CPU_S


@pytest.mark.slow
def test_an_import_of_100000_characters_is_done_in_two_seconds(house: House) -> None:
    """Attack A9: through the real command, 13 lines of 7,900 characters each; user time of a whole process."""
    lines = [json.dumps({"content": f"Note {n} {POISONS[n % 12] * 7_000}"[:7_900]}) for n in range(13)]
    file = house.project("here") / "import.jsonl"
    file.write_text("\n".join(lines))
    begun = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = house.run("import", str(file))
    assert done.returncode == 0, done.stderr
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begun < PROCESS_CPU_S
