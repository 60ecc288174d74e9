"""The plug is pulled while agents and a human work through the real server: what was answered is there afterwards.

Each kind of work runs against the real engine over MCP stdio (or the real command on a terminal), on a disk of its own.
At a random moment the disk stops taking anything (`powercut`), everything is killed, the disk is mounted again, and a
new process must find every acknowledged thing, once, in a store that opens; whoever got no answer repeats with the same
`request_id`. MEMORY_ANCHOR_POWER_CUTS sets how often each kind is cut (default 1; the figures are for 10),
MEMORY_ANCHOR_POWER_SEED at which moments.
"""

from __future__ import annotations

import json
import os
import pty
import queue
import random
import select
import subprocess
import sys
import termios
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.adapters.edge_store import EdgeStore
from memory_anchor.model import COLLECTIONS, Memory
from memory_anchor.ports import CollectionSpec
from memory_anchor.runtime import launch
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.where import Where

sys.path.insert(0, str(Path(__file__).resolve().parent))

import powercut
from agent import Agent
from homes import environment

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(powercut.why_not()), reason=powercut.why_not() or "-")]

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "memory_anchor"]
CUTS = int(os.environ.get("MEMORY_ANCHOR_POWER_CUTS", "1"))
SEED = int(os.environ.get("MEMORY_ANCHOR_POWER_SEED", "12"))
PASS = "correct horse battery staple"
LONGEST_WORK_S = 2.5
COMMAND_WAIT_S = 90.0
NO_ANSWER = (AssertionError, OSError, ValueError, KeyError, queue.Empty)
"""What a call raises when the bridge died under it."""


class Home:
    """A data directory and a project on a disk whose plug can be pulled, and who works there."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = powercut.Disk(folder)
        self.data, self.project = self.disk.mount / "data", self.disk.mount / "project"
        self.project.mkdir()
        more = {"MEMORY_ANCHOR_PROJECT_DIR": str(self.project), "MEMORY_ANCHOR_TEST_CLOCK": "1"}
        self.env = environment(folder, self.data, **more)
        self.cuts = 0

    def agent(self, name: str = "power") -> Agent:
        return Agent([*COMMAND, "mcp"], {**self.env, "CLAUDE_CODE_SESSION_ID": name})

    def run(self, *words: str) -> tuple[int, str]:
        """Run a command without a terminal; return its exit code and what it said."""
        done = subprocess.run(
            [*COMMAND, *words],
            env=self.env,
            cwd=self.disk.mount.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_WAIT_S,
            check=False,
        )
        return done.returncode, done.stdout.decode("utf-8", "replace")

    def typed(self, *words: str) -> tuple[int, str]:
        """Run a command as a human on a terminal: the passphrase where nothing is echoed, yes where it is asked."""
        child, master = pty.fork()
        if not child:
            os.chdir(self.project)
            os.execvpe(COMMAND[0], [*COMMAND, *words], self.env)  # noqa: S606
        screen, answered = "", 0
        until = time.monotonic() + COMMAND_WAIT_S
        try:
            while time.monotonic() < until:
                if select.select([master], [], [], 0.1)[0]:
                    try:
                        got = os.read(master, 65536)
                    except OSError:
                        break
                    if not got:
                        break
                    screen += got.decode("utf-8", "replace")
                    continue
                if len(screen) > answered and screen.rstrip().endswith((":", "?", "]")):
                    hidden = not termios.tcgetattr(master)[3] & termios.ECHO
                    os.write(master, (PASS if hidden else "y").encode() + b"\n")
                    answered = len(screen)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), screen
        finally:
            os.close(master)

    def init(self) -> None:
        code, screen = self.typed("init")
        assert code == 0, screen

    def cut(self, work: Callable[[], None], *, before_s: float | None = None) -> None:
        """Start `work` on a thread, pull the plug at a random moment, end everything, and plug in again."""
        worker = threading.Thread(target=work)
        worker.start()
        time.sleep(self.rng.uniform(0, LONGEST_WORK_S if before_s is None else before_s))
        if self.rng.random() < 0.5:
            self.disk.write_back_some(self.rng)
        self.disk.cut()
        powercut.end_all(self.data)
        worker.join(COMMAND_WAIT_S)
        assert not worker.is_alive()
        launch.reap()
        self.disk.repaired()
        self.cuts += 1

    def stored(self) -> list[Memory]:
        """Return every version there is, read from the store itself once its engine has stopped."""
        self.run("engine", "stop")
        powercut.end_all(self.data)
        found: list[Memory] = []
        with (
            DirectoryLock.acquire(self.data, role="test") as lock,
            closing(EdgeStore(self.data / "store", lock=lock)) as store,
        ):
            for name in COLLECTIONS:
                store.open_collection(name, CollectionSpec({}))
                after: str | None = None
                while True:
                    page, after = store.scan(name, Where(), after=after)
                    found += [entry.memory for entry in page]
                    if after is None:
                        break
        return found

    def check_audit(self, versions: list[Memory]) -> None:
        """Every version is in the trail, what is in the trail and not in the store is named, and the chain holds."""
        audit = JsonlAudit(self.data / "audit" / "audit.jsonl")
        assert audit.verify() is None
        recorded: set[tuple[str, int]] = set()
        missing: set[tuple[str, int]] = set()
        for record in audit.records():
            for one in record["what"].get("memories", [record["what"]]):
                if "id" in one and "version" in one:
                    (missing if record["kind"] == "not_stored" else recorded).add((one["id"], one["version"]))
        there = {(m.id, m.version) for m in versions}
        assert there <= recorded, f"stored without a record: {there - recorded}"
        unnamed = recorded - missing - there
        assert not unnamed, f"recorded, not stored, and not named: {unnamed}"

    def close(self) -> None:
        powercut.end_all(self.data)
        launch.reap()
        self.disk.unmount()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    print(f"seed {SEED}")
    made = Home(tmp_path, SEED)
    yield made
    made.close()


def outcome(answer: dict[str, Any]) -> dict[str, Any]:
    """Return what a tool answered. Raises ValueError: an error."""
    result = answer.get("result") or {"isError": True, "content": [{"text": str(answer)}]}
    if result.get("isError"):
        raise ValueError(result["content"][0]["text"])
    told: dict[str, Any] = result.get("structuredContent") or json.loads(result["content"][0]["text"])
    return told


def texts(versions: list[Memory]) -> Counter[str]:
    return Counter(m.content for m in versions if m.is_current)


class Writing:
    """Two agents that save and log, numbered; `asked` are the calls, `told` the answers that came."""

    def __init__(self, home: Home) -> None:
        self.home, self.number = home, 0
        self.asked: dict[str, tuple[str, str]] = {}
        self.told: dict[str, str] = {}
        self.lock = threading.Lock()

    def work(self) -> None:
        threads = [threading.Thread(target=self._one, args=(name,)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _one(self, name: str) -> None:
        try:
            agent = self.home.agent(f"power-{name}")
            while True:
                with self.lock:
                    self.number += 1
                    request = f"r{self.number}"
                    text = f"Delivery {self.number} of truck {name} went to gate {self.home.rng.getrandbits(40):x}"
                    tool = "save_memory" if self.number % 2 else "log_event"
                    self.asked[request] = (tool, text)
                told = outcome(agent.tool(tool, content=text, request_id=request))
                with self.lock:
                    self.told[request] = told["id"]
        except NO_ANSWER:
            return

    def repeat(self) -> None:
        """Ask once more what was asked in the last round, answered or not: each under its first name."""
        agents = {name: self.home.agent(f"power-{name}") for name in ("a", "b")}
        for request, (tool, text) in self.asked.items():
            agent = agents["a" if "truck a" in text else "b"]
            told = outcome(agent.tool(tool, content=text, request_id=request))
            if request in self.told:
                assert told["id"] == self.told[request], "another answer than the first one"


def test_writes_survive_and_a_repeat_adds_nothing(home: Home) -> None:
    """Rule power: acknowledged lost 0, doubled 0; the first cut comes in the first seconds of a new data directory."""
    wanted: Counter[str] = Counter()
    for _ in range(CUTS):
        writing = Writing(home)
        writing.number = home.cuts * 10_000
        home.cut(writing.work, before_s=6.0)
        there = texts(home.stored())
        lost = [request for request in writing.told if writing.asked[request][1] not in there]
        assert not lost, f"acknowledged and lost: {lost}"
        writing.repeat()
        wanted.update(text for _, text in writing.asked.values())
        assert texts(home.stored()) == wanted
    home.check_audit(home.stored())


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
                told = outcome(
                    agent.tool(
                        "save_memory",
                        content=f"The port is {1000 + number}",
                        replaces=state["id"],
                        request_id=f"p{number}",
                    )
                )
                state.update(id=told["id"], number=number)
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


def test_what_was_forgotten_stays_archived(home: Home) -> None:
    """Rule power: an acknowledged `forget_memory` holds, and no other memory is touched."""
    agent = home.agent()
    ids = [outcome(agent.tool("log_event", content=f"Delivery {n} arrived"))["id"] for n in range(25 * CUTS)]
    asked: set[str] = set()
    told: set[str] = set()

    def work() -> None:
        try:
            agent = home.agent()
            for one in ids:
                if one not in asked:
                    asked.add(one)
                    outcome(agent.tool("forget_memory", id=one))
                    told.add(one)
                    time.sleep(0.03)
        except NO_ANSWER:
            return

    for _ in range(CUTS):
        home.cut(work)
        current = {m.id: m.status.value for m in home.stored() if m.is_current}
        assert set(current) == set(ids)
        assert {one for one in told if current[one] != "archived"} == set()
        assert {one for one, status in current.items() if status == "archived"} <= asked
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
        kept = outcome(agent.tool("save_memory", content=f"Gate {turn} opens at nine"))["id"]
        result: list[int] = []

        def work(ids: list[str] = ids, result: list[int] = result) -> None:
            code, screen = home.typed("purge", *ids, "--yes")
            result.append(code if "erased" in screen else 1)

        home.cut(work, before_s=5.0)
        home.run("list")
        versions = home.stored()
        left = {m.id for m in versions} & set(ids)
        assert kept in {m.id for m in versions}
        assert left in (set(), set(ids)), f"half purged: {left}"
        if result == [0]:
            assert not left
            held = subprocess.run(["grep", "-rlaF", f"{turn}: truck", str(home.data)], capture_output=True, check=False)
            assert not held.stdout, held.stdout.decode()
        agent = home.agent()


def test_a_reindex_goes_on_where_it_was(home: Home) -> None:
    """Rule power: nothing is lost by a reindex that is cut, and the next one ends."""
    agent = home.agent()
    wanted = {f"Delivery {n} arrived at gate {n % 7}" for n in range(40)}
    for text in sorted(wanted):
        outcome(agent.tool("log_event", content=text))
    for _ in range(CUTS):
        home.cut(lambda: void(home.run("reindex")), before_s=4.0)
        assert texts(home.stored()) == Counter(wanted)
    code, said = home.run("reindex")
    assert code == 0, said
    assert texts(home.stored()) == Counter(wanted)


def void(value: object) -> None:
    del value


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
        told = outcome(agent.tool("get_constitution"))
        served = {entry["content"] for entry in told["entries"]}
        assert (text in served) >= (len(done) == 3)
        for _ in range(3 - len(done) if text not in served else 0):
            home.typed("constitution", "approve", proposal)
        told = outcome(agent.tool("get_constitution"))
        assert text in {entry["content"] for entry in told["entries"]}, (
            len(done),
            told,
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
    code, said = home.run("jobs", "run", "expire_events", "--at", late)
    assert code == 0, said
    versions = home.stored()
    assert {m.status.value for m in versions if m.is_current} == {"archived"}
    home.check_audit(versions)
