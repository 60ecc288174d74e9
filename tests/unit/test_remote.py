"""A served memory beside the local one: no call over its limit, no write lost, the local copy says so."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import disk
import pytest
from faultyproxy import FAULTS, FaultyProxy
from figures import figure
from serving import Served, key_for

from memory_anchor.domain.errors import BadInput, NotFound
from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.domain.where import Where
from memory_anchor.extensions.service.http_api import build_http
from memory_anchor.extensions.service.remote import RemoteLink, RemoteUnavailable
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.testing import ManualClock, ephemeral_core
from memory_anchor.use_cases.memory import MemoryAnchor

SEARCH_S, CONNECT_S, WRITE_S = 0.4, 0.2, 0.6
PATIENCE_S = 30.0
"""The limits of calls that must succeed, however busy the machine is."""
SLACK_S = 1.5
"""Of a busy machine: threads that are not run. What a call may take beyond its limit is checked against this."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Core, Served]]:
    settings = Settings.model_validate({"http": {"port": 0, "requests_per_minute": 100_000}})
    core = ephemeral_core(tmp_path / "server", clock=ManualClock(), settings=settings)
    served = Served(build_http(core, core.settings, secret="path-secret"))
    yield core, served
    served.close()
    core.close()


@pytest.fixture
def behind(server: tuple[Core, Served]) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(server[1].port)
    yield proxy
    proxy.close()


Opened = Callable[..., tuple[Core, MemoryAnchor]]


@pytest.fixture
def opened(server: tuple[Core, Served], behind: FaultyProxy, tmp_path: Path) -> Iterator[Opened]:
    key, _ = key_for(server[0], "acme", user="me", project="app")
    made: list[Core] = []

    def open_one(**more: object) -> tuple[Core, MemoryAnchor]:
        remote = {"url": behind.url, "key": key, "search_s": SEARCH_S, "connect_s": CONNECT_S, "write_s": WRITE_S}
        settings = Settings.model_validate({"remote": {**remote, **more}})
        core = ephemeral_core(tmp_path / "local", clock=ManualClock(), settings=settings)
        made.append(core)
        return core, core.anchor(Actor(Caller.AGENT, Scope(agent="codex", conversation="c1"), client="codex"))

    yield open_one
    for core in made:
        if core.services.remote is not None:
            core.services.remote.close()
        core.close()


def drained(core: Core, *, within_s: float = 60.0) -> None:
    """Wait until everything was sent."""
    remote = core.services.remote
    assert remote is not None
    end = time.monotonic() + within_s
    while remote.outbox.waiting() and time.monotonic() < end:
        remote.send_waiting()
        time.sleep(0.02)
    assert remote.outbox.waiting() == 0


def texts(core: Core) -> set[str]:
    page = core.services.store.scan("verified_fact", Where())[0]
    return {entry.memory.content for entry in page}


def test_a_search_asks_the_server_and_a_write_reaches_it(opened: Opened, server: tuple[Core, Served]) -> None:
    """Rule remote.first: what is written here arrives, and a search finds what the server has."""
    core, anchor = opened(search_s=PATIENCE_S, connect_s=PATIENCE_S, write_s=PATIENCE_S)
    done = anchor.save_memory("Deploys go through staging first.")
    drained(core)
    found = anchor.search("how do deploys go")

    assert texts(server[0]) == {"Deploys go through staging first."}
    assert [snippet.text for snippet in found.snippets] == ["Deploys go through staging first."]
    assert found.notes == ()
    assert found.snippets[0].id != done.id
    anchor.forget(done.id)
    drained(core)
    assert anchor.search("how do deploys go").snippets == ()


def test_what_was_saved_and_forgotten_without_the_server_is_forgotten_there_too(
    opened: Opened, server: tuple[Core, Served], behind: FaultyProxy
) -> None:
    """Rule remote.outbox: a queued request names a memory whose id on the server is known only when it is sent."""
    core, anchor = opened()
    behind.fault = lambda: "silent"
    first = anchor.save_memory("The staging password rotates weekly.")
    done = anchor.save_memory("The staging token rotates daily.", replaces=first.id)
    anchor.forget(done.id)
    behind.fault = lambda: "pass"
    drained(core)

    remote = core.services.remote
    assert remote is not None and remote.outbox.refused() == 0
    page = server[0].services.store.scan("verified_fact", Where())[0]
    current = sorted(entry.memory.status.value for entry in page if entry.memory.state != "history")
    assert current == ["archived", "superseded"]


SECRET = "ghp_" + "Wd5Xk8Qm2Zt7Rv4Np9Lb3Hc6Jf1Sg0YaTeUi"


def test_what_was_written_away_from_the_server_holds_no_secret_on_disk_or_on_the_wire(
    opened: Opened, server: tuple[Core, Served], behind: FaultyProxy, tmp_path: Path
) -> None:
    """Rule safety.door x remote: outbox, wire and refused writes have the clean request, from every field."""
    core, anchor = opened()
    said = f"<private>the cellar door</private> the token is {SECRET}"
    given = {"key": said, "tags": ["deploy", SECRET], "files": [f"{SECRET}.py"], "request_id": SECRET}
    behind.fault = lambda: "silent"
    saved = anchor.save_memory(f"Deploys go through staging; {said}", **given)
    logged = anchor.log_event(f"The mirror moved; {said}", where=said, who=[said], request_id="r2")
    anchor.forget(logged.id, reason=said)
    anchor.search(f"where do deploys go; {said}", tags=[SECRET])
    with pytest.raises(NotFound):
        anchor.forget(f"unknown-{SECRET}")
    waiting = b"".join(disk.content(path) for path in disk.files(tmp_path / "local"))
    behind.fault = lambda: "pass"
    drained(core)
    anchor.search(f"where do deploys go; {said}", tags=[SECRET])
    remote = core.services.remote
    assert remote is not None and (saved.redactions, logged.redactions, remote.outbox.refused()) == (
        ("token",),
        ("token",),
        0,
    )

    assert b"memory/store" in waiting and b"/v1/memory/store" in behind.asked
    everywhere = [waiting, bytes(behind.asked), *(disk.content(path) for path in disk.files(tmp_path))]
    assert not [one for one in everywhere if SECRET[4:].encode() in one or b"cellar" in one]


def test_two_requests_whose_ids_are_secrets_stay_two_on_the_server(
    opened: Opened, server: tuple[Core, Served], behind: FaultyProxy
) -> None:
    """Rule safety.door x remote: an id travels as its hash, so that one is not taken for another's repeat."""
    core, anchor = opened()
    said = {SECRET: "Deploys go through staging first.", SECRET[::-1]: "The whale sang at noon."}
    behind.fault = lambda: "silent"
    for name, content in said.items():
        anchor.save_memory(content, request_id=f"ghp_{name[4:]}")
    behind.fault = lambda: "pass"
    drained(core)

    remote = core.services.remote
    assert remote is not None and remote.outbox.refused() == 0
    assert texts(server[0]) == set(said.values())


def test_what_is_refused_here_for_its_secret_is_not_sent(opened: Opened, behind: FaultyProxy) -> None:
    """Rule safety.door x remote: nothing was stored here, so nothing waits for the server."""
    core, anchor = opened()
    behind.fault = lambda: "silent"

    assert (anchor.save_memory(SECRET).id, anchor.log_event(SECRET).id) == (None, None)

    remote = core.services.remote
    assert remote is not None and remote.outbox.waiting() == 0


def test_a_password_in_the_servers_address_is_shown_nowhere(opened: Opened, behind: FaultyProxy) -> None:
    """Rule safety.door x remote: notes, decisions, status and errors name the server without it."""
    core, anchor = opened(url=behind.url.replace("://", "://me:hunter2secret@"))
    behind.fault = lambda: "error"
    anchor.save_memory("The queue runs on port 8081.")
    found = anchor.search("queue port")
    with pytest.raises(NotFound) as unknown:
        anchor.forget("0000000000000")
    remote = core.services.remote
    assert remote is not None and found.decisions
    shown = [found.notes, found.decisions, remote.status(), remote.send_waiting(), str(unknown.value)]
    for wrong in ("ftp://me:hunter2secret@host", "http://me:hunter2secret@host:port"):
        with pytest.raises(BadInput) as error:
            RemoteLink(wrong, "key", connect_s=1.0, monotonic=time.monotonic)
        shown.append(str(error.value))

    assert "hunter2" not in str(shown) and "127.0.0.1" in str(shown)


def test_tags_sources_and_decay_reach_the_server(opened: Opened, server: tuple[Core, Served]) -> None:
    """Rule remote.outbox: a write arrives with everything it was given; none is refused for its form."""
    core, anchor = opened()
    anchor.save_memory(
        "Deploys go through staging first.",
        tags=["deploy", {"name": "ops", "weight": 3}],
        sources=[{"kind": "file", "ref": "docs/deploy.md", "locator": {"line_start": 3, "line_end": 9}}],
        decay={"half_life_days": 30},
        scope={"user_id": "me"},
    )
    drained(core)

    remote = core.services.remote
    assert remote is not None and remote.outbox.refused() == 0
    ((memory,),) = ([entry.memory for entry in server[0].services.store.scan("verified_fact", Where())[0]],)
    assert [(tag.name, tag.weight) for tag in memory.tags] == [("deploy", 1.0), ("ops", 3.0)]
    assert [(cited.ref, cited.locator.line_start) for cited in memory.citations] == [("docs/deploy.md", 3)]
    assert memory.half_life_days == 30


def test_a_time_goes_to_the_server_as_it_was_said(opened: Opened, server: tuple[Core, Served]) -> None:
    """Rule remote.first: what a search or an event says of time is asked of the server too."""
    core, anchor = opened(search_s=10.0)
    done = anchor.log_event("The outage of the billing queue began", when="2025-11-02T09:00:00Z")
    drained(core)

    found = anchor.search("billing queue outage", since="2025-11-01", until="2025-11-03T00:00:00Z")
    before = anchor.search("billing queue outage", until="2025-11-01")

    assert [snippet.text for snippet in found.snippets] == ["The outage of the billing queue began"]
    assert (found.notes, before.snippets) == ((), ())
    assert found.snippets[0].id != done.id


def test_without_the_server_the_local_copy_answers_within_the_limit_and_says_so(
    opened: Opened, behind: FaultyProxy
) -> None:
    """Rule remote.fallback: km_timeout, after three failures circuit_open; the context's cost report tells which."""
    _, anchor = opened()
    behind.fault = lambda: "silent"
    anchor.save_memory("The queue runs on port 8081.")
    told = []
    for _ in range(4):
        started = time.monotonic()
        found = anchor.search("which port does the queue run on")
        assert time.monotonic() - started < SEARCH_S + SLACK_S
        assert [snippet.text for snippet in found.snippets] == ["The queue runs on port 8081."]
        assert "the local copy answered" in found.notes[-1]
        told.append(found.decisions[-1]["action"])
    assert told[0] == "km_timeout" and told[-1] == "circuit_open"
    report = anchor.build_context("which port does the queue run on").report
    assert "circuit_open" in [decision["action"] for decision in report.decisions]


def test_every_fault_keeps_the_limit_and_loses_no_write(
    opened: Opened, behind: FaultyProxy, server: tuple[Core, Served]
) -> None:
    """Rule remote.limits: each fault once; the slow test has 200 at random."""
    core, anchor = opened()
    remote = core.services.remote
    assert remote is not None
    for number, fault in enumerate(FAULTS):
        behind.fault = lambda fault=fault: fault  # type: ignore[misc]
        remote._link._circuit.note(ok=True)  # each fault is met, not only the first three
        anchor.save_memory(f"Gate {number} of the orchard opens for cart {number * 17}.")
        started = time.monotonic()
        anchor.search("which gate")
        assert time.monotonic() - started < SEARCH_S + SLACK_S, fault
    behind.fault = lambda: "pass"
    remote._link._circuit.note(ok=True)
    drained(core)
    assert len(texts(server[0])) == len(FAULTS)


def test_a_half_open_circuit_lets_one_probe_through(behind: FaultyProxy, server: tuple[Core, Served]) -> None:
    """Rule remote.circuit: three failures open it; after the pause one call alone probes; success closes it."""
    now = [0.0]
    key, _ = key_for(server[0], "acme", user="me", project="app")
    link = RemoteLink(behind.url, key, connect_s=1.0, monotonic=lambda: now[0], open_for_s=10.0)
    behind.fault = lambda: "error"
    for _ in range(3):
        with pytest.raises(RemoteUnavailable) as failed:
            link.ask("memory/search", {"query": "gate"}, limit_s=5.0)
        assert failed.value.decision == "km_timeout"
    met = len(behind.met)
    with pytest.raises(RemoteUnavailable) as shut:
        link.ask("memory/search", {"query": "gate"}, limit_s=5.0)
    assert shut.value.decision == "circuit_open" and len(behind.met) == met
    now[0] = 11.0
    behind.fault = lambda: "pass"
    assert link.ask("memory/search", {"query": "gate"}, limit_s=20.0)["snippets"] == []
    assert not link.is_open


def test_a_wrong_key_is_said_and_not_asked_with_again(opened: Opened, behind: FaultyProxy) -> None:
    """Rule remote.key: 401 is no silence: the note names the cure, the server is left alone, the writes wait."""
    core, anchor = opened(key="ma_wrong_key")
    anchor.save_memory("The queue runs on port 8081.")
    remote = core.services.remote
    assert remote is not None
    remote.send_waiting()
    notes = [anchor.search("queue port").notes[-1] for _ in range(3)]
    met = len(behind.met)
    anchor.search("queue port")

    assert all("does not take this key (401)" in note and "remote.key" in note for note in notes)
    assert len(behind.met) == met
    assert remote.outbox.waiting() == 1
    assert remote.status()["key"]


def test_a_write_is_sent_once_however_often_and_what_is_refused_is_kept(
    opened: Opened, server: tuple[Core, Served]
) -> None:
    """Rule remote.outbox: a kill between sending and noting it sends again, and the server knows the request."""
    core, _ = opened()
    remote = core.services.remote
    assert remote is not None
    remote.close()
    kept: list[tuple[str, dict[str, object]]] = []
    remote.outbox.put("memory/store", {"content": "Deploys go through staging first."})
    remote.outbox.put("memory/store", {"content": "", "type": "nonsense"})

    def once(path: str, body: dict[str, object]) -> dict[str, object]:
        kept.append((path, body))
        return remote._ask(path, body, WRITE_S * 20)

    remote.outbox.send(once, remote._note_id)
    again = remote._ask(*kept[0], WRITE_S * 20)

    assert again["outcome"] == "added"
    assert len(texts(server[0])) == 1
    assert remote.outbox.waiting() == 0 and remote.outbox.refused() == 1


def test_an_address_or_key_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    """Rule remote.settings: said at the start, not at the first search."""
    for remote, said in (
        ({"url": "ftp://host", "key": "k"}, "allowed is http"),
        ({"url": "http://host:port", "key": "k"}, "port is no number"),
        ({"url": "http://127.0.0.1:1"}, "remote.key is empty"),
    ):
        with pytest.raises(BadInput, match=said):
            ephemeral_core(tmp_path, settings=Settings.model_validate({"remote": remote}))


@pytest.mark.slow
def test_random_faults_lose_nothing_and_keep_the_limits(
    opened: Opened, behind: FaultyProxy, server: tuple[Core, Served]
) -> None:
    """Issue 17, remote adapter: 60 or 200 faults; no call over its limit, no write lost, the fallback says so."""
    core, anchor = opened()
    remote = core.services.remote
    assert remote is not None
    chance = random.Random(17)
    calls: list[float] = []
    waits: list[float] = []
    ask = remote._link.ask

    def timed(path: str, body: dict[str, object], *, limit_s: float) -> dict[str, object]:
        """The whole of what a caller waits on the server for: admission, connecting, answer, parsing, giving up."""
        started = time.monotonic()
        try:
            return ask(path, body, limit_s=limit_s)
        finally:
            calls.append(time.monotonic() - started - limit_s)

    remote._link.ask = timed  # type: ignore[method-assign, assignment]
    behind.fault = lambda: chance.choice(FAULTS)
    local, number = 0, 0
    while sum(1 for one in behind.met if one != "pass") < figure(60, 200):
        number += 1
        if number % 4:
            remote._link._circuit.note(ok=True)
        anchor.log_event(f"Cart {number} came through gate {number * 7919 % 1000}", request_id=f"cart-{number}")
        found = anchor.search(f"cart {number}")
        answered = any("the local copy answered" in note for note in found.notes)
        assert answered == bool(found.decisions)
        local += answered
        started = time.monotonic()
        threading.Event().wait(0.02)
        waits.append(time.monotonic() - started - 0.02)  # how late this machine wakes anybody
    behind.fault = lambda: "pass"
    remote._link._circuit.note(ok=True)
    drained(core, within_s=300)
    there, after = [], None
    while True:
        page, after = server[0].services.store.scan("event_log", Where(), after=after)
        there += [entry.memory.content for entry in page]
        if after is None:
            break
    over = [one for one in calls if one > 0]
    print(
        f"{number} writes, {local} local answers, {len(calls)} calls, {len(over)} over their limit, the latest by "
        f"{max(calls):.3f} s; a plain wait here ended up to {max(waits):.3f} s late"
    )
    assert sorted(there) == sorted(f"Cart {n} came through gate {n * 7919 % 1000}" for n in range(1, number + 1))
    assert max(calls) < SLACK_S
