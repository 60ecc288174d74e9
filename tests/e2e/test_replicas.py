"""Issue 17, replicas: two real `serve` processes with folders of their own on one Qdrant are one service.

The store is the client's local mode behind a server's paths, or the server that `QDRANT_TEST_URL` names.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from figures import figure
from replicas import Owner, Replica

from memory_anchor.adapters.working_copy import FRESH_S
from memory_anchor.domain.credential import Role
from memory_anchor.extensions.knowledge import shared_catalogue

if TYPE_CHECKING:
    from qdrantserver import Place

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
KEYS = 5


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    from qdrantserver import qdrant  # the client is a second and a half to import, for whoever only collects this

    with qdrant() as made:
        yield made


@pytest.fixture(scope="module")
def owner(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Owner:
    return Owner(tmp_path_factory.mktemp("owner"), place)


@pytest.fixture(scope="module")
def pair(place: Place, owner: Owner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Replica, Replica]]:
    del owner
    one, two = (Replica(tmp_path_factory.mktemp(name), place).start(wait=False) for name in ("one", "two"))
    try:
        one.wait()
        two.wait()
        yield one, two
    finally:
        one.close()
        two.close()


def test_a_key_opens_every_replica_at_once_and_none_a_second_after_it_ended(
    pair: tuple[Replica, Replica], owner: Owner
) -> None:
    """Replicas: a revoked key fails on every replica within 1 s."""
    for _ in range(KEYS):
        key, made = owner.key()
        time.sleep(FRESH_S)
        assert [replica.ask("GET", "/v1/ingest/none", key).status_code for replica in pair] == [404, 404]
        owner.revoke(made.id)
        ended, open_at = time.monotonic(), list(pair)
        while open_at and time.monotonic() - ended < 1.0:  # asked all the time, so that looks are of every age
            open_at = [replica for replica in open_at if replica.ask("GET", "/v1/ingest/none", key).status_code != 401]
        assert not open_at


def test_what_a_key_wrote_on_one_replica_is_found_on_the_other(pair: tuple[Replica, Replica], owner: Owner) -> None:
    """Replicas: one memory behind every replica."""
    key, _ = owner.key()
    time.sleep(FRESH_S)
    saved = pair[0].ask("POST", "/v1/memory/store", key, json={"content": "Whales sing at the harbour"})
    assert saved.status_code == 200, saved.text

    found = pair[1].ask("POST", "/v1/memory/search", key, json={"query": "whales harbour"})

    assert "Whales sing" in found.text


def test_a_hundred_requests_cost_the_store_a_look_each_half_second(
    pair: tuple[Replica, Replica], owner: Owner, place: Place
) -> None:
    """Replicas: checking keys puts no network call on each request."""
    if place.local is None:
        pytest.skip("a real server does not tell how often it was asked")
    key, _ = owner.key(role=Role.READER)
    time.sleep(FRESH_S)
    began, asked = time.monotonic(), place.local.asked
    for _ in range(100):
        assert pair[0].ask("GET", "/v1/ingest/none", key).status_code in (403, 404)
    took, busy = time.monotonic() - began, place.local.asked - asked
    time.sleep(took)
    idle = place.local.asked - asked - busy  # what both replicas ask by themselves: leases, jobs, batches

    assert busy - idle <= 2 * (1 + took / FRESH_S) + 10


def _stored(place: Place, mark: str) -> list[str]:
    """Return the content of every current memory and event that holds a word."""
    from qdrant_client import QdrantClient

    client = QdrantClient(url=place.url.split(",")[0], check_compatibility=False)
    contents: list[str] = []
    for name in ("event_log", "verified_fact"):
        records, _ = client.scroll(name, limit=10_000, with_payload=["content", "state"])
        contents += [
            str(record.payload["content"])
            for record in records
            if record.payload and record.payload["state"] != "history"
        ]
    client.close()
    return sorted(record for record in contents if mark in record)


def _finished(replica: Replica, id_: str, key: str) -> dict[str, Any]:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        status: dict[str, Any] = replica.ask("GET", f"/v1/ingest/{id_}", key).json()
        if status.get("state") == "done":
            return status
        time.sleep(0.2)
    raise AssertionError((status, replica.log()))


def test_a_batch_is_one_whichever_replica_is_asked(pair: tuple[Replica, Replica], owner: Owner, place: Place) -> None:
    """Replicas: a request id names one batch of the service, and its report is told by every replica."""
    key, _ = owner.key()
    time.sleep(FRESH_S)
    items = [{"kind": "memory", "content": "Otterfield deploys need two reviews"}]
    body = {"items": items, "request_id": "one"}

    answers = [replica.ask("POST", "/v1/ingest", key, json=body) for replica in (*pair, *pair)]

    assert {replica.status_code for replica in answers} == {202}
    ids = {replica.json()["id"] for replica in answers}
    assert len(ids) == 1
    reports = [_finished(replica, *ids, key) for replica in pair]
    assert reports[0] == reports[1] and "error" not in reports[0]["outcomes"][0]
    assert len(_stored(place, "Otterfield")) == 1
    other = {"items": [{"kind": "memory", "content": "Something else"}], "request_id": "one"}
    assert pair[1].ask("POST", "/v1/ingest", key, json=other).status_code == 400


@pytest.mark.timeout(figure(900, 7_200))
def test_a_batch_whose_replica_is_killed_after_the_answer_is_finished_by_another_once(
    pair: tuple[Replica, Replica], owner: Owner, place: Place, tmp_path: Path
) -> None:
    """Replicas: any replica finishes what one accepted: killed at random points after the 202, 0 lost, 0 doubled."""
    del pair  # they stay and take over
    key, _ = owner.key()
    survivor = Replica(tmp_path / "survivor", place).start()
    doomed = Replica(tmp_path / "doomed", place)
    chance = random.Random(17)
    try:
        for run in range(figure(3, 20)):
            doomed.start()
            mark = f"Kestrel{run}x"
            talk = [{"role": "user", "content": f"I prefer tabs over spaces in {mark} code."}]
            items: list[dict[str, Any]] = [
                {"kind": "event", "content": f"{mark} release number {number} went out"} for number in range(10)
            ]
            items += [{"kind": "memory", "content": f"{mark} keeps its secrets in the vault of rack {run}"}]
            items += [{"kind": "conversation", "messages": talk}]
            body = {"items": items, "request_id": f"kill-{run}"}
            accepted = doomed.ask("POST", "/v1/ingest", key, json=body)
            assert accepted.status_code == 202, accepted.text
            time.sleep(chance.random() * chance.choice((0.0, 0.3, 2.0)))
            doomed.kill()

            again = survivor.ask("POST", "/v1/ingest", key, json=body)

            assert again.json()["id"] == accepted.json()["id"]
            report = _finished(survivor, again.json()["id"], key)
            assert [outcome for outcome in report["outcomes"] if "error" in outcome] == []
            stored = _stored(place, mark)
            assert len(stored) == len(set(stored)), stored
            assert sum("release number" in text for text in stored) == 10, stored
            assert sum("vault" in text for text in stored) == 1 and any("tabs" in text for text in stored), stored
    finally:
        survivor.close()
        doomed.close()


def _passages(place: Place, mark: str) -> list[str]:
    """Return every passage on the server that holds a word."""
    from qdrant_client import QdrantClient

    client = QdrantClient(url=place.url.split(",")[0], check_compatibility=False)
    records, _ = client.scroll("knowledge", limit=10_000, with_payload=["content", "status", "state"])
    client.close()
    return sorted(
        text for record in records if record.payload and mark in (text := str(record.payload.get("content", "")))
    )


def _read(replica: Replica, key: str) -> dict[str, Any]:
    """Return the uploads as a replica lists them, once nothing of them waits."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        listed = replica.ask("GET", "/v1/knowledge/sources", key).json()
        sources: list[dict[str, Any]] = listed.get("sources", [])
        if sources and not any(one.get("waiting") for one in sources):
            return sources[0]
        time.sleep(0.2)
    raise AssertionError((listed, replica.log()))


@pytest.mark.timeout(figure(900, 7_200))
def test_what_was_pushed_to_a_replica_that_is_killed_is_read_by_another_once(
    pair: tuple[Replica, Replica], owner: Owner, place: Place, tmp_path: Path
) -> None:
    """Replicas: killed at random points after it accepted documents: 0 lost, 0 doubled, 0 of another account."""
    key, _ = owner.key()
    stranger, _ = owner.key(account="globex")
    doomed = Replica(tmp_path / "doomed", place)
    chance = random.Random(18)
    for run in range(figure(3, 20)):
        doomed.start()
        mark = f"Heron{run}x"
        names = [f"{mark}-{number}.md" for number in range(8)]
        for name in names:
            body = {"name": name, "text": f"# {name}\n\nThe {mark} nests at pond {name}.\n"}
            added = doomed.ask("POST", "/v1/knowledge/add", key, json=body)
            assert added.status_code == 200, added.text
        time.sleep(chance.random() * chance.choice((0.0, 0.3, 2.0)))
        doomed.kill()
        time.sleep(shared_catalogue.FRESH_S)

        for replica in pair:
            source = _read(replica, key)
            assert source["documents"] == 8 * (run + 1), source
            results = replica.ask(
                "POST", "/v1/knowledge/search", key, json={"query": f"where does {mark} nest", "limit": 10}
            )
            assert mark in results.text, results.text
            for_stranger = replica.ask(
                "POST", "/v1/knowledge/search", stranger, json={"query": f"where does {mark} nest"}
            )
            assert (
                mark not in for_stranger.text and mark not in replica.ask("GET", "/v1/knowledge/sources", stranger).text
            )
        stored = _passages(place, mark)
        assert len(stored) == len(set(stored)) == 8, stored
    gone = pair[0].ask("POST", "/v1/knowledge/remove", key, json={"source": "uploads"})
    assert gone.status_code == 200 and gone.json()["clean"], gone.text
    assert _passages(place, "Heron") == []
    time.sleep(1.0)
    assert pair[1].ask("GET", "/v1/knowledge/sources", key).json().get("sources") == []


def test_a_request_sent_to_both_replicas_in_the_same_moment_is_done_once(
    pair: tuple[Replica, Replica], owner: Owner, place: Place
) -> None:
    """Replicas: a request id names one write, whoever is asked and when."""
    key, _ = owner.key()
    time.sleep(FRESH_S)
    for number in range(figure(5, 50)):
        body = {"content": f"Gannet{number}x closes its gate at nine", "request_id": f"both-{number}"}
        with ThreadPoolExecutor(2) as pool:
            answers = list(
                pool.map(lambda replica, body=body: replica.ask("POST", "/v1/memory/store", key, json=body), pair)
            )

        assert {replica.status_code for replica in answers} == {200}, [replica.text for replica in answers]
        assert len({replica.json()["id"] for replica in answers}) == 1, [replica.text for replica in answers]
        assert len(_stored(place, f"Gannet{number}x")) == 1
