"""A purge where devices exchange: what it erased comes back by no chain, and no chain waits for another for it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from devicekit import Laptop, differences, settled, texts_of

from memory_anchor.adapters.payload import to_payload
from memory_anchor.domain.errors import Refused
from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.extensions.devices import membership
from memory_anchor.extensions.devices.rows import sync_of
from memory_anchor.front import calls
from memory_anchor.identity.statements import Purged

pytestmark = pytest.mark.usefixtures("no_sync")
SECRETISH = "The vault of Ostrava opens at nine."


def edited_on_both(one: Laptop, other: Laptop) -> None:
    """Edit one memory on two devices that do not know of each other's edit."""
    name = str(one.anchor.save_memory("The queue runs on port 8081.").id)
    settled([one, other])
    one.anchor.curation.edit(name, content="The queue runs on port 9000.")
    other.clock.advance(minutes=5)
    other.anchor.curation.edit(name, content="The queue runs on port 9100.")


def test_a_device_that_joins_after_a_purge_reads_everything_that_is_left(laptops: Callable[[str], Laptop]) -> None:
    """Rule sync.purge: the new chain of each device is read without the other's. Both began with a version that was
    written over one of the other, and a third device waited for both for ever."""
    one, other = laptops("laptop"), laptops("desktop")
    gone = str(one.anchor.save_memory(SECRETISH).id)
    edited_on_both(one, other)
    settled([one, other])
    one.purge(gone)
    settled([one, other])

    third = laptops("tablet")
    done = third.sync()

    assert done.notes == []
    assert differences({"laptop": one.state(), "desktop": other.state(), "tablet": third.state()}) == []
    assert gone not in texts_of(third.core)


def test_two_purges_before_another_device_looks_reach_it_both(laptops: Callable[[str], Laptop]) -> None:
    """Rule sync.purge: each purge begins the chain anew; the new one tells of the earlier purge too."""
    one, other = laptops("laptop"), laptops("desktop")
    first, second, kept = (str(one.anchor.save_memory(text).id) for text in (SECRETISH, "Maps lie in Brno.", "Use uv."))
    settled([one, other])

    for name in (first, second):
        one.purge(name)
        one.sync()
    other.sync()

    assert set(texts_of(other.core)) == {kept}


def test_a_purged_memory_that_a_human_imports_again_is_sent_to_nobody(laptops: Callable[[str], Laptop]) -> None:
    """Rule sync.purge: an old export may hold it; the folder does not get it again."""
    one, other = laptops("laptop"), laptops("desktop")
    name = str(one.anchor.save_memory(SECRETISH).id)
    line = json.dumps(to_payload(one.anchor.get(name)))
    settled([one, other])
    one.purge(name)
    settled([one, other])

    human = one.core.anchor(Actor(Caller.HUMAN, Scope(), client="test"))
    assert calls.answer("import_lines", human, {"lines": [[1, line]]})["added"] == 1
    sent = [one.sync().sent, one.sync().sent]

    assert (sent, name in texts_of(one.core)) == ([0, 0], True)
    assert name not in texts_of(other.core)


def test_what_a_purge_emptied_in_other_memories_is_so_on_every_device(laptops: Callable[[str], Laptop]) -> None:
    """Rule sync.purge: a fact that cites the erased event loses its title everywhere and stays one version."""
    one, other = laptops("laptop"), laptops("desktop")
    event = str(one.anchor.log_event("CI failed, the wheel was missing.", key=SECRETISH).id)
    fact = str(one.anchor.promote(event, content="Wheels are built before main is tested.").id)
    settled([one, other])
    assert one.anchor.get(fact).citations[0].title == SECRETISH

    one.purge(event)
    settled([one, other])
    third = laptops("tablet")
    third.sync()

    for device in (one, other, third):
        (version,) = device.anchor.history(fact)
        assert version.citations[0].title is None
    assert differences({"laptop": one.state(), "desktop": other.state(), "tablet": third.state()}) == []
    assert [device.sync().sent for device in (one, other, third)] == [0, 0, 0]


def test_an_older_version_that_a_purge_emptied_is_no_second_side_of_a_dispute(
    laptops: Callable[[str], Laptop],
) -> None:
    """Rule sync.purge, sync.causal: emptied, it has another name; what was written over it still was."""
    one, other = laptops("laptop"), laptops("desktop")
    gone, name = (str(one.anchor.save_memory(text).id) for text in (SECRETISH, "Deploys go through staging."))
    one.anchor.forget(name, reason=f"It is said elsewhere: {SECRETISH}")
    one.anchor.curation.restore(name)
    settled([one, other])

    one.purge(gone)
    settled([one, other])
    other.anchor.curation.edit(name, content="Deploys go through staging, then a canary.")
    settled([one, other])

    for device in (one, other):
        versions = device.anchor.history(name)
        assert [version.reason for version in versions[1:]] == [
            "It is said elsewhere: [purged]",
            "restored",
            "edited",
        ]
        assert not [version for version in versions if version.disputes]
    assert differences({"laptop": one.state(), "desktop": other.state()}) == []


def test_a_signature_erases_elsewhere_only_what_was_purged_here(laptops: Callable[[str], Laptop]) -> None:
    """Rule sync.purge: a human signs what they purged, not what stands here still."""
    one, other = laptops("laptop"), laptops("desktop")
    name, kept = (str(one.anchor.save_memory(text).id) for text in (SECRETISH, "Use uv."))
    settled([one, other])
    one.purge(name, signs=False)
    device = membership.load(one.core.data_dir)
    assert device is not None
    exchange = sync_of(one.core).exchange

    for ids in ((kept,), (kept, name)):
        purged = Purged(device.folder_id, tuple(sorted(ids)), one.clock.now().isoformat())
        with pytest.raises(Refused, match="only what was purged here"):
            exchange.accept_signature(purged.record(), one.human.purge(purged), "human:me")
    settled([one, other])

    assert {kept, name} <= set(texts_of(other.core))
