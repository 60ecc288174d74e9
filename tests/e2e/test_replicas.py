"""Two real `serve` processes on one real PostgreSQL: one memory, whatever is killed meanwhile."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest
from labs import until
from pgserver import Cluster
from replicas import Office, Replica, team
from threads import at_once

from memory_anchor.adapters.system import SystemClock
from memory_anchor.domain.model import Actor, Caller
from memory_anchor.domain.rights import purge_digest
from memory_anchor.domain.where import OneOf, Where
from memory_anchor.identity.opening import identity_of
from memory_anchor.process.app import build_core
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.testing import PASSPHRASE, cheap_keys

WRITERS = 4
RULES = "entries:\n  - id: friday\n    content: Never deploy on a Friday.\n    priority: 90\n"


@dataclass(frozen=True)
class Desk:
    """What the tests of this file work with; each takes an account of its own, so none sees another's memories."""

    office: Office
    one: Replica
    two: Replica
    folder: Path
    url: str


@pytest.fixture(scope="module")
def desk(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder, url = tmp_path_factory.mktemp("team"), postgres.emptied()
    with team(folder, url) as (office, (one, two)):
        yield Desk(office, one, two, folder, url)


@dataclass
class Writers:
    """Threads that log events through whoever answers; each sends a write again, with its request id, until it is
    acknowledged or refused for good."""

    key: str
    replicas: list[Replica]
    acknowledged: dict[str, str] = field(default_factory=dict)
    refusals: Counter[str] = field(default_factory=Counter)
    enough: threading.Event = field(default_factory=threading.Event)

    def run(self, name: int, count: int, *, most: int = 60) -> None:
        for number in range(count):
            request = f"w{name}-{number}"
            text = f"Writer {name} wrote line {number}."
            for attempt in range(most * 10):
                replica = self.replicas[(name + attempt) % len(self.replicas)]
                try:
                    answered = replica.ask("memory/log", {"content": text, "request_id": request}, key=self.key)
                except httpx2.HTTPError:
                    threading.Event().wait(0.1)
                    continue
                if answered.status_code == 200:
                    self.acknowledged[text] = answered.json()["id"]
                    break
                self.refusals[answered.json()["message"]] += 1
                assert answered.status_code == 503, answered.text
                threading.Event().wait(0.1)
            else:
                raise AssertionError(f"{request} was never acknowledged: {self.refusals}")
            if len(self.acknowledged) >= 10:
                self.enough.set()


def stored(replica: Replica, key: str) -> Counter[str]:
    """Return every event's text, and how often it is there, as one replica lists them."""
    listed = replica.answer("memory/list", {"limit": 1000, "layer": "event_log"}, key=key)["memories"]
    return Counter(memory["content"] for memory in listed)


def test_a_replica_finds_what_another_wrote_in_its_next_answer(desk: Desk) -> None:
    """Also where it has just given, and kept, an answer to the same question."""
    key = desk.office.key("ann", account="ann")
    for number in range(5):
        for writes, reads in ((desk.one, desk.two), (desk.two, desk.one)):
            before = reads.found("which ship carries the order", key=key)
            text = f"Order {number} goes by the ship {writes.data.name}"
            answer = writes.answer("memory/store", {"content": text, "type": "fact"}, key=key)

            assert text not in before
            assert text in reads.found("which ship carries the order", key=key, limit=20)
            assert reads.answer("memory/get", {"id": answer["id"]}, key=key)["content"] == text


def test_a_correction_at_one_replica_is_what_the_other_answers(desk: Desk) -> None:
    """Correction x replica: the version before is history everywhere."""
    key = desk.office.key("ben", account="ben")
    first = desk.one.answer("memory/store", {"content": "The export runs by cron.", "type": "fact"}, key=key)
    assert desk.two.found("how does the export run", key=key) == ["The export runs by cron."]

    second = {"content": "The export runs by a systemd timer.", "type": "fact", "replaces": first["id"]}
    desk.two.answer("memory/store", second, key=key)

    for replica in (desk.one, desk.two):
        assert replica.found("how does the export run", key=key) == ["The export runs by a systemd timer."]


def test_of_two_corrections_at_once_both_replicas_hold_the_same_line_of_versions(desk: Desk) -> None:
    """Under one lock the second decides by what the first wrote."""
    key = desk.office.key("bea", account="bea")
    fact = desk.one.answer("memory/store", {"content": "The port is 8080.", "type": "fact"}, key=key)

    def correct(replica: Replica, port: int) -> Callable[[], None]:
        body = {"content": f"The port is {port}.", "type": "fact", "replaces": fact["id"]}
        return lambda: print(replica.ask("memory/store", body, key=key).status_code)

    at_once(correct(desk.one, 8081), correct(desk.two, 8082))

    lines = [replica.answer("memory/history", {"id": fact["id"]}, key=key) for replica in (desk.one, desk.two)]
    assert lines[0] == lines[1]
    found = [replica.found("which port", key=key) for replica in (desk.one, desk.two)]
    assert found[0] == found[1] and "The port is 8080." not in found[0]


def test_what_is_private_stays_so_at_every_replica(desk: Desk) -> None:
    """Scope x replica: another account's and another user's searches find nothing of it."""
    mine, hers, theirs = desk.office.key("cat"), desk.office.key("dan"), desk.office.key("eve", account="acme")
    text = {"content": "The vault code is in the blue book.", "type": "fact", "visibility": "private"}
    saved = desk.one.answer("memory/store", text, key=mine)

    for replica in (desk.one, desk.two):
        assert replica.found("vault code", key=mine) == ["The vault code is in the blue book."]
        for other in (hers, theirs):
            assert replica.found("vault code", key=other) == []
            assert replica.ask("memory/get", {"id": saved["id"]}, key=other).status_code == 404


def test_the_same_request_at_two_replicas_at_once_has_one_effect(desk: Desk) -> None:
    """Idempotency by `request_id`: the repeat is looked up under the lock of all writes."""
    key = desk.office.key("fay", account="fay")
    answers: list[str] = []

    def send(replica: Replica, number: int) -> Callable[[], None]:
        body = {"content": f"Delivery {number} came in.", "request_id": f"delivery-{number}"}
        return lambda: answers.append(replica.answer("memory/log", body, key=key)["id"])

    for number in range(10):
        answers.clear()
        at_once(send(desk.one, number), send(desk.two, number))
        assert len(answers) == 2 and len(set(answers)) == 1

    assert stored(desk.two, key) == Counter(f"Delivery {number} came in." for number in range(10))


def test_keys_and_l0_are_the_same_at_every_replica_from_the_next_request_on(desk: Desk) -> None:
    key, gone = desk.office.key("gil"), desk.office.key("hal")
    assert [replica.ask("memory/search", {"query": "x"}, key=gone).status_code for replica in (desk.one, desk.two)] == [
        200,
        200,
    ]
    desk.office.keys.revoke(gone.split("_")[1], SystemClock().now())
    for replica in (desk.one, desk.two):
        refused = replica.ask("memory/search", {"query": "x"}, key=gone)
        assert refused.status_code == 401 and "was revoked" in refused.text
        assert replica.answer("constitution", {}, key=key)["entries"] == []

    with cheap_keys():
        found = identity_of(
            Settings(), "default", "", data_dir=desk.office.data, clock=SystemClock(), audit=desk.office.audit,
            account="local",
        )  # fmt: skip
        found.approve_first_text(RULES, passphrase=PASSPHRASE)

    for replica in (desk.one, desk.two):
        answer = replica.answer("constitution", {}, key=key)
        assert [entry["content"] for entry in answer["entries"]] == ["Never deploy on a Friday."]
        assert answer["warnings"] == []


def test_a_batch_that_one_replica_accepted_is_done_once_and_reported_by_the_other(desk: Desk) -> None:
    key = desk.office.key("ida", account="ida")
    items = [{"kind": "event", "content": f"Batch line {number}."} for number in range(5)]
    accepted = [
        replica.ask("ingest", {"items": items, "request_id": "b1"}, key=key) for replica in (desk.one, desk.two)
    ]
    assert [answer.status_code for answer in accepted] == [202, 202]
    (batch,) = {answer.json()["id"] for answer in accepted}

    for replica in (desk.two, desk.one):
        until(lambda replica=replica: replica.answer(f"ingest/{batch}", key=key)["state"] == "done", "it is done")
    assert stored(desk.one, key) == Counter(f"Batch line {number}." for number in range(5))


def test_a_purge_at_one_replica_is_gone_from_the_next_answer_of_every_other(desk: Desk) -> None:
    """Purge x replica. The one that purges is a process of its own on the same database."""
    key = desk.office.key("jon", account="jon")
    secret = desk.one.answer("memory/store", {"content": "The heron nests at the mill.", "type": "fact"}, key=key)
    assert desk.two.found("where does the heron nest", key=key) == ["The heron nests at the mill."]
    settings = Settings.model_validate({"database": {"url": desk.url}, "embedder": {"kind": "none"}})
    folder = desk.folder / "third"

    folder.mkdir()
    with (
        DirectoryLock.acquire(folder, role="test") as lock,
        closing(build_core(settings, data_dir=folder, lock=lock)) as core,
    ):
        scope = core.services.store.find("verified_fact", Where((OneOf("id", (secret["id"],)),)), limit=1)[0].scope
        anchor = core.anchor(Actor(Caller.HUMAN, scope))
        shown = anchor.maintenance.preview_purge(ids=[secret["id"]])["memories"]
        anchor.maintenance.purge(ids=[secret["id"]], seen=purge_digest(shown))

    for replica in (desk.one, desk.two):
        assert replica.found("where does the heron nest", key=key) == []
        assert replica.ask("memory/get", {"id": secret["id"]}, key=key).status_code == 404


def runs_the_jobs(desk: Desk) -> int:
    """Return the connection that holds the lock of the jobs, as PostgreSQL tells it; 0 for none. It takes nothing."""
    locks = "select pid from pg_locks where locktype = 'advisory' and objid::bigint = ? and granted"
    found = desk.office.database.rows(locks, (zlib.crc32(b"jobs"),))
    return int(found[0][0]) if found else 0


def test_one_replica_runs_the_jobs_and_nobody_takes_them_from_it(desk: Desk) -> None:
    """An advisory lock: whoever asks meanwhile is told no."""
    first = until(lambda: runs_the_jobs(desk), "somebody runs the jobs")

    assert not desk.office.database.holds("jobs")
    assert runs_the_jobs(desk) == first


@pytest.mark.slow
def test_another_replica_takes_the_jobs_over_when_the_one_that_ran_them_is_gone(desk: Desk) -> None:
    """The lock is a connection's, whose end frees it at once; the other one asks for it once a minute."""
    for gone in (desk.one, desk.two):
        gone.kill()
        until(lambda: runs_the_jobs(desk), "the one that is left runs the jobs", within_s=120)
        gone.start()


def test_a_second_server_on_one_data_directory_is_refused_and_says_what_replicas_need(desk: Desk) -> None:
    command = [sys.executable, "-m", "memory_anchor", "serve", "--port", "0"]
    refused = subprocess.run(command, env=desk.one.env, capture_output=True, text=True, timeout=120)

    assert refused.returncode != 0
    assert re.search(r"is in use by pid \d+.*need PostgreSQL.*`data_dir` each", refused.stderr.replace("\n", " "))


@pytest.mark.slow
def test_a_killed_replica_loses_and_doubles_nothing(desk: Desk) -> None:
    """SIGKILL in the middle of writes; what was not answered is sent again, to whoever answers."""
    writers = Writers(desk.office.key("kai", account="kai"), [desk.one, desk.two])
    with ThreadPoolExecutor(WRITERS + 1) as pool:
        runs = [pool.submit(writers.run, name, 25) for name in range(WRITERS)]
        for replica in (desk.one, desk.two):
            assert writers.enough.wait(120)
            writers.enough.clear()
            replica.kill()
            replica.start()
        for run in runs:
            run.result(300)

    for replica in (desk.one, desk.two):
        assert stored(replica, writers.key) == Counter(writers.acknowledged.keys())
    assert len(writers.acknowledged) == 25 * WRITERS == len(set(writers.acknowledged.values()))


@pytest.mark.slow
def test_a_restart_of_postgresql_under_load_loses_nothing_and_is_said_in_one_sentence(
    desk: Desk, postgres: Cluster
) -> None:
    writers = Writers(desk.office.key("lea", account="lea"), [desk.one, desk.two])
    with ThreadPoolExecutor(WRITERS + 1) as pool:
        runs = [pool.submit(writers.run, name, 20) for name in range(WRITERS)]
        for stop in (postgres.kill, postgres.stop):
            assert writers.enough.wait(120)
            writers.enough.clear()
            stop()
            away = until(lambda: (a := desk.one.ask("ready", key=writers.key)).status_code == 503 and a, "it is away")
            assert "does not answer" in away.json()["message"] and "Retry-After" in away.headers
            postgres.start()
        for run in runs:
            run.result(300)

    for replica in (desk.one, desk.two):
        assert stored(replica, writers.key) == Counter(writers.acknowledged.keys())
    assert len(writers.acknowledged) == 20 * WRITERS
    assert {len(sentence.splitlines()) for sentence in writers.refusals} <= {1}
    assert all("PostgreSQL database" in sentence for sentence in writers.refusals), writers.refusals
