"""Issue 17, replicas: a purge on one waits for the item of a batch that another writes, and comes before the next."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from pairs import Replicas, member

from memory_anchor.domain.errors import Refused
from memory_anchor.domain.model import Caller
from memory_anchor.domain.rights import purge_digest
from memory_anchor.domain.where import Where
from memory_anchor.upkeep import leases


def test_a_purge_waits_for_the_item_that_another_replica_writes_and_finds_it(service: Replicas) -> None:
    """Replicas: what is purged is not written behind the purge's back by another replica."""
    one, two = service.core(), service.core()
    human = two.anchor(replace(member(), caller=Caller.HUMAN))
    human.save_memory("Zanzibar is where the harbour plan began.")
    seen = purge_digest(human.maintenance.preview_purge(text="Zanzibar")["memories"])
    inside, order = threading.Event(), []

    def item() -> None:
        with one.upkeep.batch_item:
            inside.set()
            time.sleep(0.3)
            one.anchor(member()).log_event("The Zanzibar release went out.")
            order.append("item")

    writing = threading.Thread(target=item)
    writing.start()
    inside.wait()
    with pytest.raises(Refused, match="shown"):  # the item was stored first, and is told
        human.maintenance.purge(text="Zanzibar", seen=seen)
    order.append("purge")
    writing.join()

    assert order == ["item", "purge"]
    assert human.maintenance.purge(
        text="Zanzibar", seen=purge_digest(human.maintenance.preview_purge(text="Zanzibar")["memories"])
    )["clean"]
    for collection in ("event_log", "verified_fact"):
        assert not [m for m in service.store.find(collection, Where(), limit=100) if "Zanzibar" in m.content]


def test_who_waits_comes_before_the_one_that_goes_on(service: Replicas) -> None:
    """Replicas: a long batch lets a purge of another replica in between two items."""
    one, two = service.core(), service.core()
    done, purged = [], threading.Event()

    def batch() -> None:
        for number in range(200):
            with one.upkeep.batch_item:
                done.append(number)
                time.sleep(0.01)
            if purged.is_set():
                return

    working = threading.Thread(target=batch)
    working.start()
    while not done:
        time.sleep(0.001)
    with two.upkeep.batch_item:
        at = len(done)
        purged.set()
        time.sleep(0.05)
        assert len(done) == at
    working.join()

    assert at < 100


def test_a_killed_replica_holds_it_for_as_long_as_its_lease(service: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas: nobody waits for the dead."""
    monkeypatch.setattr(leases, "TURN_LEASE_S", 0.3)
    one, two = service.core(), service.core()
    one.upkeep.batch_item.__enter__()  # never left: killed inside, and what renews it with it
    one.upkeep.batch_item._over.set()  # type: ignore[attr-defined]
    began = time.monotonic()
    with two.upkeep.batch_item:
        assert time.monotonic() - began < 5
