"""The plug is pulled while the store itself is handed over, renewed, repaired or embedded anew: it opens, all is there.

Beside `test_power_server`, which cuts what agents and humans ask for. MEMORY_ANCHOR_POWER_CUTS and _SEED as there.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from archives import unpack

sys.path.insert(0, str(Path(__file__).resolve().parent))

import powercut
from powerhome import CUTS, NO_ANSWER, Home, Writing, outcome, texts

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(powercut.why_not()), reason=powercut.why_not() or "-")]

STORES = Path(__file__).resolve().parents[1] / "stores"
RELEASE = "0.1.0"


def exported(home: Home) -> Counter[str]:
    """Return the text of every memory, as a command of a new process reads it; several versions may say the same."""
    code, said = home.run("export", "-", "--versions")
    assert code == 0, said
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return Counter(text for _, text in {(one["id"], one["content"]) for one in lines if "content" in one})


def test_a_hand_over_loses_nothing_and_the_mirror_is_not_trusted_blindly(home: Home) -> None:
    """Rule power: an engine that stops, saves its mirror and gives its lock away is cut; what was answered is found."""
    stop = threading.Event()

    def stopping(writing: Writing) -> None:
        over = threading.Thread(target=handing_over)
        over.start()
        try:
            writing.work()
        finally:
            stop.set()
            over.join()

    def handing_over() -> None:
        try:
            while not stop.is_set():
                outcome(home.agent("power-c").tool("search_memory", query="Which truck went to the gate?"))
                home.run("engine", "stop")
                time.sleep(0.2)
        except NO_ANSWER:
            return

    wanted: Counter[str] = Counter()
    for _ in range(CUTS):
        stop.clear()
        writing = Writing(home)
        writing.number = home.cuts * 10_000
        home.cut(lambda writing=writing: stopping(writing), before_s=9.0)  # type: ignore[misc]
        writing.check(wanted)
        for _, text in list(writing.sent.values())[-3:]:
            found = outcome(home.agent().tool("search_memory", query=text))["snippets"]
            assert text in {one["text"] for one in found}, "stored and not found"
    home.check_audit(home.stored())


@pytest.mark.nightly
def test_the_first_opening_of_an_older_store_may_be_cut(home: Home) -> None:
    """Rule power: a release's store whose first engine, first write or first renewal is cut still holds all it held."""
    unpack(STORES / f"{RELEASE}.tar.xz", home.disk.mount)
    for folder, _, _ in os.walk(home.data):
        Path(folder).chmod(0o700)
    os.sync()
    told = json.loads((STORES / f"{RELEASE}.json").read_text("utf-8"))["lines"]
    wanted = Counter(text for _, text in {(one["id"], one["content"]) for one in told if "content" in one})
    home.env["MEMORY_ANCHOR_SCOPE__PROJECT"] = "lighthouse"
    new: list[str] = []

    def work() -> None:
        try:
            agent = home.agent()
            for number in range(50):
                text = f"The foghorn of rock {home.cuts}.{number} is silent"
                outcome(agent.tool("save_memory", content=text, request_id=text))
                new.append(text)
            home.run("reindex")
        except NO_ANSWER:
            return

    for _ in range(CUTS):
        home.cut(work, before_s=8.0)
        there = exported(home)
        assert not wanted - there, f"gone: {wanted - there}"
        assert not Counter(new) - there, "acknowledged and lost"
        assert all(there[text] == 1 for text in new), "doubled"


@pytest.mark.nightly
def test_a_salvage_that_is_cut_is_done_by_the_next_one(home: Home) -> None:
    """Rule power: a damaged store is the damaged one or the mended one, never neither."""
    agent = home.agent()
    wanted = {f"Delivery {n} arrived at gate {n % 7}" for n in range(40)}
    for text in sorted(wanted):
        outcome(agent.tool("log_event", content=text, request_id=text))
    assert home.run("jobs", "run", "backup")[0] == 0
    for _ in range(CUTS):
        home.run("engine", "stop")
        database = home.data / "store" / "memory.db"
        with database.open("r+b") as file:
            file.seek(database.read_bytes().index(b"Delivery 17 arrived") // 4096 * 4096)
            file.write(b"\xff" * 4096)
        os.sync()
        home.cut(lambda: void(home.run("doctor", "--salvage")), before_s=4.0)
        home.run("doctor", "--salvage")
        assert texts(home.stored()) == Counter(wanted)
        code, said = home.run("doctor", "--salvage")
        assert code == 0, said


@pytest.mark.nightly
def test_vectors_made_anew_may_be_cut(home: Home) -> None:
    """Rule power: `reindex --vectors` with the bundled model is taken up again, and every text is found by meaning."""
    home.env["MEMORY_ANCHOR_EMBEDDER__KIND"] = "auto"
    agent = home.agent()
    wanted = {f"Delivery {n} arrived at gate {n % 7}" for n in range(24)}
    for text in sorted(wanted):
        outcome(agent.tool("log_event", content=text, request_id=text))
    for _ in range(CUTS):
        home.cut(lambda: void(home.run("reindex", "--vectors")), before_s=6.0)
        assert exported(home) == Counter(wanted)
    code, said = home.run("reindex", "--vectors")
    assert code == 0, said
    assert exported(home) == Counter(wanted)
    _, said = home.run("doctor", "--deep", "--json")
    (vectors,) = [one for one in json.loads(said[said.index("{") :])["checks"] if one["name"] == "vectors"]
    assert vectors["state"] == "ok", vectors


def void(value: object) -> None:
    del value
