"""Links: what a memory is connected with, shown with it, and never across what its reader may read."""

from __future__ import annotations

from memory_anchor.domain.model import Actor, Scope
from memory_anchor.front.table import ROWS
from memory_anchor.layers.links import EACH_MAX, LINKS_MAX
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ManualClock
from memory_anchor.use_cases.memory import MemoryAnchor


def reader(core: Core, conversation: str = "c1", agent: str = "tester", **scope: str) -> MemoryAnchor:
    return core.anchor(Actor(scope=Scope(conversation=conversation, agent=agent, **scope)))


def shown(here: MemoryAnchor, name: str | None) -> dict[str, set[str]]:
    """Return kind -> ids of the links that `show` tells."""
    row = ROWS["show"]
    answer = row.answer(here, row.request.of(id=name))["memory"]
    kinds: dict[str, set[str]] = {}
    for link in answer.get("links", ()):
        kinds.setdefault(link["kind"], set()).add(link["id"])
    return kinds


def test_what_was_said_in_the_same_half_hour_is_linked(core: Core, clock: ManualClock) -> None:
    """Rule links: same episode; an hour later or in another conversation is none."""
    here = reader(core)
    first = here.save_memory("The gateway retries three times.")
    other = here.log_event("The gateway was restarted by hand.")
    elsewhere = reader(core, "c2").save_memory("Wheels are built by cibuildwheel.")
    clock.advance(hours=1)
    later = here.save_memory("Invoices are sent on Mondays.")

    links = shown(here, first.id)

    assert links == {"same_episode": {other.id}}
    assert elsewhere.id not in str(links)
    assert later.id not in str(links)


def test_what_replaces_contradicts_or_came_of_another_is_linked_both_ways(core: Core) -> None:
    """Rule links: firm ones were written with the memory and come first."""
    here = reader(core)
    event = here.log_event("The deploy failed because the disk was full.")
    fact = here.promote(event.id)
    old = here.save_memory("Deploys go out on Fridays.", type="decision")
    new = here.save_memory("Deploys go out on Mondays.", type="decision", replaces=old.id)

    assert shown(here, fact.id)["caused_by"] == {event.id}
    assert shown(here, event.id)["became"] == {fact.id}
    assert shown(here, new.id)["replaces"] == {old.id}
    assert shown(here, old.id)["replaced_by"] == {new.id}


def test_the_same_file_and_the_same_person_are_linked(core: Core, clock: ManualClock) -> None:
    """Rule links: across conversations, by the file cited and the people named."""
    here = reader(core)
    event = here.log_event("Ana looked at the cache.", who=["Ana"])
    fact = here.save_memory("The cache has no expiry.", files=["src/cache.py:10-20"])
    clock.advance(days=2)
    later = reader(core, "c2")
    again = later.log_event("Ana mended the cache.", who=["Ana"], files=["src/cache.py"])
    near = later.save_memory("Caches are warmed at night.", files=["src/cache_warm.py"])

    links = shown(later, again.id)

    assert links["same_person"] == {event.id}
    assert links["same_file"] == {fact.id}
    assert near.id not in links["same_file"]


def test_links_are_bounded_and_told_to_nobody_who_may_not_read_them(core: Core) -> None:
    """Rule links: at most so many of a kind and in all; another agent's private memory is no link."""
    here = reader(core)
    first = here.save_memory("The queue is Redis.")
    mine = here.save_memory("I broke the queue once.", visibility="agent")
    stranger = reader(core, agent="another")
    assert mine.id not in str(shown(stranger, first.id))
    for number in range(30):
        here.log_event(f"Build {number} passed.", who=["Ana"])

    links = shown(here, first.id)

    assert len(links["same_episode"]) == EACH_MAX
    assert sum(map(len, links.values())) <= LINKS_MAX
