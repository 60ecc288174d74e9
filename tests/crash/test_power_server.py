"""The plug is pulled while agents and a human work through the real server: what was answered is there afterwards.

Each kind of work runs against the real engine over MCP stdio (or the real command on a terminal), on a disk of its own.
At a random moment the disk stops taking anything (`powercut`), everything is killed, the disk is mounted again, and a
new process must find every acknowledged thing, once, in a store that opens; whoever got no answer repeats with the same
`request_id`. MEMORY_ANCHOR_POWER_CUTS sets how often each kind is cut (default 1; the figures are for 10),
MEMORY_ANCHOR_POWER_SEED at which moments.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import powercut
from powerhome import COMMAND, CUTS, NO_ANSWER, Home, Writing, outcome, texts

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(powercut.why_not()), reason=powercut.why_not() or "-")]


def test_writes_survive_and_a_repeat_adds_nothing(home: Home) -> None:
    """Rule power: acknowledged lost 0, doubled 0; the first cut comes in the first seconds of a new data directory."""
    wanted: Counter[str] = Counter()
    for _ in range(CUTS):
        writing = Writing(home)
        writing.number = home.cuts * 10_000
        home.cut(writing.work, before_s=6.0)
        writing.check(wanted)
    home.check_audit(home.stored())


@pytest.mark.nightly
def test_a_superseded_fact_is_followed_by_the_new_one(home: Home) -> None:
    """Rule power: of a chain of replacements exactly one is current, and it is the last acknowledged or a later one."""
    agent = home.agent()
    first = outcome(agent.tool("save_memory", content="The port is 1000", request_id="p0"))["id"]
    state = {"id": first, "number": 0}

    def work() -> None:
        try:
            agent = home.agent()
            while True:
                number = state["number"] + 1
                saved = outcome(
                    agent.tool(
                        "save_memory",
                        content=f"The port is {1000 + number}",
                        replaces=state["id"],
                        request_id=f"p{number}",
                    )
                )
                state.update(id=saved["id"], number=number)
        except NO_ANSWER:
            return

    for _ in range(CUTS):
        home.cut(work, before_s=4.0)
        versions = home.stored()
        current = [m for m in versions if m.is_current and m.status.value == "active"]
        assert len(current) == 1, current
        number = int(current[0].content.removeprefix("The port is ")) - 1000
        assert state["number"] <= number <= state["number"] + 1
        # The one that was cut off, asked for again under its name: either way the chain is one longer.
        text = f"The port is {1001 + state['number']}"
        again = home.agent().tool(
            "save_memory", content=text, replaces=state["id"], request_id=f"p{state['number'] + 1}"
        )
        state.update(id=outcome(again)["id"], number=state["number"] + 1)
    home.check_audit(home.stored())


@pytest.mark.nightly
def test_what_was_forgotten_stays_archived(home: Home) -> None:
    """Rule power: an acknowledged `forget_memory` holds, and no other memory is touched."""
    agent = home.agent()
    ids = [outcome(agent.tool("log_event", content=f"Delivery {n} arrived"))["id"] for n in range(25 * CUTS)]
    sent: set[str] = set()
    answered: set[str] = set()

    def work() -> None:
        try:
            agent = home.agent()
            for id in ids:
                if id not in sent:
                    sent.add(id)
                    outcome(agent.tool("forget_memory", id=id))
                    answered.add(id)
                    time.sleep(0.03)
        except NO_ANSWER:
            return

    for _ in range(CUTS):
        home.cut(work)
        current = {m.id: m.status.value for m in home.stored() if m.is_current}
        assert set(current) == set(ids)
        assert {id for id in answered if current[id] != "archived"} == set()
        assert {id for id, status in current.items() if status == "archived"} <= sent
    home.check_audit(home.stored())


def test_a_purge_leaves_one_truth(home: Home) -> None:
    """Rule power: a purge that was confirmed is done; one that was cut is finished by the next start or as before."""
    home.init()
    agent = home.agent()
    for turn in range(CUTS):
        ids = [
            outcome(agent.tool(tool, content=f"{turn}: truck {n} carries plutonium", request_id=f"{turn}.{n}"))["id"]
            for n, tool in enumerate(("save_memory", "log_event", "save_memory"))
        ]
        other = outcome(agent.tool("save_memory", content=f"Gate {turn} opens at nine"))["id"]
        result: list[int] = []

        def work(ids: list[str] = ids, result: list[int] = result) -> None:
            code, screen = home.typed("purge", *ids, "--yes")
            result.append(code if "erased" in screen else 1)

        home.cut(work, before_s=5.0)
        home.run("list")
        versions = home.stored()
        left = {m.id for m in versions} & set(ids)
        assert other in {m.id for m in versions}
        assert left in (set(), set(ids)), f"half purged: {left}"
        if result == [0]:
            assert not left
            grep = subprocess.run(["grep", "-rlaF", f"{turn}: truck", str(home.data)], capture_output=True, check=False)
            assert not grep.stdout, grep.stdout.decode()
        agent = home.agent()


@pytest.mark.nightly
def test_a_reindex_goes_on_where_it_was(home: Home) -> None:
    """Rule power: nothing is lost by a reindex that is cut, and the next one ends."""
    agent = home.agent()
    wanted = {f"Delivery {n} arrived at gate {n % 7}" for n in range(40)}
    for text in sorted(wanted):
        outcome(agent.tool("log_event", content=text))
    for _ in range(CUTS):
        home.cut(lambda: void(home.run("reindex")), before_s=4.0)
        assert texts(home.stored()) == Counter(wanted)
    code, output = home.run("reindex")
    assert code == 0, output
    assert texts(home.stored()) == Counter(wanted)


def void(value: object) -> None:
    del value


@pytest.mark.nightly
def test_a_backup_that_was_reported_can_be_restored(home: Home) -> None:
    """Rule power: the file a backup named is whole, with what was acknowledged before it began."""
    agent = home.agent()
    outcome(agent.tool("log_event", content="Before every backup"))
    made: list[Path] = []

    def work() -> None:
        for number in range(50):
            file = home.disk.mount / f"b{home.cuts}-{number}.tar.gz"
            code, _ = home.run("backup", "create", str(file))
            if code != 0:
                return
            made.append(file)

    for turn in range(CUTS):
        home.cut(work, before_s=6.0)
        for file in made:
            other = {**home.env, "MEMORY_ANCHOR_DATA_DIR": str(home.disk.mount.parent / f"restored-{turn}-{file.stem}")}
            done = subprocess.run(
                [*COMMAND, "backup", "restore", str(file)], env=other, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            file.unlink()
        made.clear()
        assert texts(home.stored()) == Counter(["Before every backup"])


def test_an_approval_that_was_confirmed_counts(home: Home) -> None:
    """Rule power: a confirmation that the terminal showed is there; L0 is the old text or the new, and signed."""
    home.init()
    agent = home.agent()
    for turn in range(CUTS):
        text = f"Rule {turn}: run the tests before every commit"
        proposal = outcome(agent.tool("propose_constitution_change", content=text, reason="safety"))["proposal_id"]
        done: list[int] = []

        def work(proposal: str = proposal, done: list[int] = done) -> None:
            for _ in range(3):
                code, _ = home.typed("constitution", "approve", proposal)
                if code != 0:
                    return
                done.append(code)

        home.cut(work, before_s=9.0)
        agent = home.agent()
        constitution = outcome(agent.tool("get_constitution"))
        served = {entry["content"] for entry in constitution["entries"]}
        assert (text in served) >= (len(done) == 3)
        for _ in range(3 - len(done) if text not in served else 0):
            home.typed("constitution", "approve", proposal)
        constitution = outcome(agent.tool("get_constitution"))
        assert text in {entry["content"] for entry in constitution["entries"]}, (
            len(done),
            constitution,
            home.run("constitution", "list"),
        )


def test_a_job_of_the_night_that_is_cut_is_done_by_the_next_one(home: Home) -> None:
    """Rule power: every expired event is archived once, none is lost."""
    agent = home.agent()
    wanted = {f"Delivery {n} arrived" for n in range(60)}
    for text in sorted(wanted):
        outcome(agent.tool("log_event", content=text, ttl_days=1))
    late = "2031-01-01T03:00:00Z"
    for _ in range(CUTS):
        home.cut(lambda: void(home.run("jobs", "run", "expire_events", "--at", late)), before_s=4.0)
        versions = home.stored()
        assert {m.content for m in versions if m.is_current} == wanted
        assert all(n == 1 for n in Counter(m.id for m in versions if m.is_current).values())
    code, output = home.run("jobs", "run", "expire_events", "--at", late)
    assert code == 0, output
    versions = home.stored()
    assert {m.status.value for m in versions if m.is_current} == {"archived"}
    home.check_audit(versions)
