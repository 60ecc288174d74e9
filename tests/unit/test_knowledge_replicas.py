"""Issue 17, replicas: knowledge that one replica of a service has, all have; killed anywhere, nothing is lost."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from figures import one_in
from pairs import LEASE_S, Killed, Life, Replicas, member, replicas
from threads import at_once

from memory_anchor.domain.errors import MemoryAnchorError, NotFound, Refused
from memory_anchor.domain.model import Caller, Status
from memory_anchor.domain.rights import purge_digest
from memory_anchor.domain.where import Where
from memory_anchor.extensions.knowledge import shared_catalogue
from memory_anchor.extensions.knowledge.use_cases import knowledge_of, library_of
from memory_anchor.extensions.lorebook.use_cases import lore_of
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor

WHALES = "# Whales\n\n## Blue\nThe blue whale sings at dusk.\n\n## Fin\nThe fin whale is fast.\n"
SHIPS = "# Ships\n\n## Masts\nThe brig has two masts.\n"


def read_all(core: Core, anchor: MemoryAnchor) -> None:
    """Have one replica read all that waits, as its background thread does."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if not knowledge_of(anchor).sync("", False)["left"] and not library_of(
            core.services
        ).catalogue.unfinished_removals(core.clock.now()):
            break
        time.sleep(LEASE_S / 4)
    library_of(core.services).wake()
    while library_of(core.services).work_a_little(lambda: None):
        pass


def listed(anchor: MemoryAnchor) -> list[tuple[str, int, int, int]]:
    """Return kind, documents, passages and what waits of each source."""
    return [(s.source.kind.value, s.documents, s.passages, s.waiting) for s in knowledge_of(anchor).sources()]


def cited(anchor: MemoryAnchor, query: str) -> list[tuple[str, Any]]:
    """Return text and citations of what is found."""
    return [
        (passage.text, [(c.ref, c.locator) for c in passage.citations])
        for passage in knowledge_of(anchor).search(query)
    ]


def stored(service: Replicas) -> list[str]:
    """Return the text of every passage on the server."""
    found = service.store.find("knowledge", Where(), limit=1_000)
    return sorted(passage.content for passage in found if passage.status is Status.ACTIVE)


def names(service: Replicas) -> list[str]:
    return [record.name for record in service.records.listed("knowledge")]


def test_what_is_pushed_to_one_replica_is_listed_found_and_opened_on_the_other(service: Replicas) -> None:
    """Replicas: one knowledge behind every replica: the same sources, passages, citations and bytes."""
    one, _two, here, there = service.two()
    knowledge_of(here).push("whales.md", WHALES)
    assert listed(there) == [("upload", 0, 0, 1)]

    read_all(one, here)

    assert listed(here) == listed(there) == [("upload", 1, 2, 0)]
    assert cited(there, "blue whale sings") == cited(here, "blue whale sings")
    found = knowledge_of(there).search("blue whale sings")[0]
    opened = knowledge_of(there).open(found.id)
    assert (opened.freshness, opened.lines) == ("fresh", (1, 4)) and "> " in opened.around
    assert opened.text == knowledge_of(here).open(found.id).text


def test_what_changes_on_one_replica_changes_on_the_other(service: Replicas) -> None:
    """Replicas: a document pushed again to another replica is one document, and what is gone of it is told there."""
    one, two, here, there = service.two()
    knowledge_of(here).push("whales.md", WHALES)
    read_all(one, here)
    gone = knowledge_of(there).search("blue whale sings")[0]

    knowledge_of(there).push("whales.md", "# Whales\n\n## Blue\nThe blue whale sleeps at noon.\n")
    read_all(two, there)

    assert listed(here) == listed(there) == [("upload", 1, 1, 0)]
    assert "sleeps at noon" in knowledge_of(here).search("blue whale")[0].text
    for anchor in (here, there):
        opened = knowledge_of(anchor).open(gone.id)
        assert opened.freshness == "changed" and not opened.text
    assert len(stored(service)) == 1


def test_two_replicas_asked_at_once_make_one_source(service: Replicas) -> None:
    """Replicas: a source is one, whoever is asked; every push that was accepted is read."""
    cores = [service.core() for _ in range(3)]
    anchors = [core.anchor(member()) for core in cores]
    at_once(
        *(
            partial(knowledge_of(anchor).push, f"{number}-{place}.md", f"Note {number} {place} here.")
            for number, anchor in enumerate(anchors)
            for place in range(5)
        )
    )

    read_all(cores[1], anchors[1])

    assert {tuple(listed(anchor)) for anchor in anchors} == {(("upload", 15, 15, 0),)}
    assert stored(service) == sorted(f"Note {number} {place} here." for number in range(3) for place in range(5))


def test_removed_on_one_replica_nothing_is_left_on_any(service: Replicas) -> None:
    """Replicas: a removal is the service's: passages, places, queue and bytes, with a certificate."""
    one, two, here, there = service.two()
    knowledge_of(here).push("whales.md", WHALES)
    knowledge_of(here).push("ships.md", SHIPS)
    read_all(one, here)
    assert knowledge_of(there).search("blue whale sings")
    knowledge_of(here).push("late.md", "Nobody reads this any more.")

    told = knowledge_of(there).remove("uploads")

    assert (told["passages"], told["documents"], told["blobs"], told["clean"]) == (3, 2, 3, True)
    for core, anchor in ((one, here), (two, there)):
        assert listed(anchor) == [] and cited(anchor, "blue whale sings") == []
        read_all(core, anchor)
    assert stored(service) == [] and names(service) == []
    for home in (one.data_dir, two.data_dir):
        held = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
        assert b"whales.md" not in held and b"blue whale" not in held

    knowledge_of(there).push("whales.md", WHALES)
    read_all(two, there)
    assert listed(here) == [("upload", 1, 2, 0)]


def test_a_source_is_removed_while_another_replica_reads_it(service: Replicas) -> None:
    """Replicas: a removal goes before reading: what is in work ends, nothing of it comes back."""
    one, _two, here, there = service.two()
    for number in range(30):
        knowledge_of(here).push(f"{number}.md", f"Entry {number} tells of the harbour.")
    reading = threading.Thread(target=read_all, args=(one, here))
    reading.start()
    while not stored(service):
        time.sleep(0.002)

    told = knowledge_of(there).remove("uploads")
    reading.join()
    read_all(one, here)

    assert told["clean"] and stored(service) == [] and names(service) == []
    assert listed(here) == listed(there) == []


@pytest.mark.parametrize(
    ("after", "each"),
    one_in(3, [(False, 4), (False, 1), (True, 1)]),
)
def test_killed_at_any_change_another_replica_goes_on_and_nothing_is_lost_or_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool, each: int
) -> None:
    """Replicas: accepted means read, whichever replica dies and wherever; no text outlives its successor.

    each: one in so many of the changes is the last one.
    """
    edited = "# Whales\n\n## Blue\nThe blue whale sings at dawn.\n\n## Fin\nThe fin whale is fast.\n"
    wanted = {"whales.md": edited, "ships.md": SHIPS}
    for left in range(1, 200, each):
        with replicas(tmp_path / str(left), monkeypatch) as service:
            life = Life()
            one, two = service.core(life), service.core()
            here, there = one.anchor(member()), two.anchor(member())
            knowledge_of(here).push("whales.md", WHALES)
            read_all(one, here)
            life.left, life.after = left, after
            accepted: list[str] = []
            with contextlib.suppress(Killed):
                for name, text in wanted.items():
                    knowledge_of(here).push(name, text)
                    accepted.append(name)
                read_all(one, here)
            time.sleep(LEASE_S)

            read_all(two, there)

            found = [passage for query in ("blue whale", "two masts") for passage in knowledge_of(there).search(query)]
            assert [state.error for state in knowledge_of(there).sources()] == [""], left
            if "whales.md" in accepted:
                assert "dawn" in str(cited(there, "blue whale")) and "dusk" not in str(stored(service)), left
            if "ships.md" in accepted:
                assert "two masts" in str(cited(there, "two masts")), left
            texts = stored(service)
            assert len(texts) == len(set(texts)), (left, texts)
            (state,) = knowledge_of(there).sources()
            assert not state.error, left
            assert (state.passages, state.waiting, state.error) == (len(texts), 0, ""), (left, state, texts)
            assert {c.ref for passage in found for c in passage.citations} <= {"whales.md", "ships.md"}
            waiting = [name for name in names(service) if "/queue/" in name]
            assert not waiting, (left, waiting)
            third = service.core().anchor(member())
            assert listed(third) == listed(there) and cited(third, "blue whale") == cited(there, "blue whale")
            if life.left:  # it lived to the end
                break
    else:
        raise AssertionError("it never ended")
    assert left > 10


@pytest.mark.parametrize("after", one_in(2, [False, True]))
def test_killed_at_any_change_of_a_removal_another_replica_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """Replicas: a removal that began is ended, whoever dies."""
    for left in range(1, 100):
        with replicas(tmp_path / str(left), monkeypatch) as service:
            life = Life()
            one, two = service.core(life), service.core()
            here, there = one.anchor(member()), two.anchor(member())
            knowledge_of(here).push("whales.md", WHALES)
            read_all(one, here)
            knowledge_of(here).push("ships.md", SHIPS)
            lore_of(here).books()  # makes their record
            life.left, life.after = left, after
            with contextlib.suppress(Killed):
                knowledge_of(here).remove("uploads")
            time.sleep(LEASE_S)
            began = left > 1 or after
            service.clock.advance(seconds=shared_catalogue.REMOVING_S + 1)

            read_all(two, there)

            assert bool(listed(there)) is not began
            assert bool(names(service)) is not began and bool(stored(service)) is not began, left
            if life.left:
                break
    else:
        raise AssertionError("it never ended")
    assert left > 4


def test_one_that_slept_past_its_turn_changes_nothing_that_counts(
    service: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas: what a replica read before it slept is not written over what another read meanwhile."""
    one, two, here, there = service.two()
    knowledge_of(here).push("whales.md", WHALES)
    slept: list[Any] = []
    asleep = library_of(one.services).catalogue.replace

    def sleeps(*given: Any, **named: Any) -> Any:
        if not slept:
            slept.append(True)
            time.sleep(2 * LEASE_S)
            read_all(two, there)
            knowledge_of(there).push("whales.md", "# Whales\n\n## Blue\nThe blue whale dives.\n")
            read_all(two, there)
        return asleep(*given, **named)

    monkeypatch.setattr(library_of(one.services).catalogue, "replace", sleeps)
    read_all(one, here)
    read_all(two, there)

    assert slept and listed(here) == listed(there) == [("upload", 1, 1, 0)]
    assert "dives" in str(cited(here, "blue whale")) and len(stored(service)) == 1


def test_one_that_slept_through_a_removal_brings_nothing_back(
    service: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas: a removal holds against a replica that wakes."""
    one, _two, here, there = service.two()
    knowledge_of(here).push("whales.md", WHALES)
    put, slept = library_of(one.services).put, []

    def sleeps(entries: Any) -> None:
        if not slept:
            slept.append(True)
            time.sleep(2 * LEASE_S)
            knowledge_of(there).remove("uploads")
        put(entries)

    monkeypatch.setattr(library_of(one.services), "put", sleeps)
    read_all(one, here)

    assert slept and stored(service) == [] and names(service) == [] and listed(here) == []


def test_knowledge_of_one_account_is_seen_by_no_other_through_any_replica(service: Replicas) -> None:
    """Replicas: an account's knowledge stays its own: search, open, list, sync and removal, asked of each replica."""
    one, two = service.core(), service.core()
    mine, theirs = member("acme"), member("globex")
    knowledge_of(one.anchor(mine)).push("whales.md", WHALES)
    read_all(one, one.anchor(mine))
    knowledge_of(two.anchor(theirs)).push("whales.md", SHIPS)
    read_all(two, two.anchor(theirs))
    ours = knowledge_of(one.anchor(mine)).search("blue whale sings")[0].id
    assert ours

    for core in (one, two):
        other = core.anchor(theirs)
        assert listed(other) == [("upload", 1, 1, 0)]
        assert "whale sings" not in str(cited(other, "blue whale sings"))
        with pytest.raises(NotFound):
            knowledge_of(other).open(ours)
        for state in knowledge_of(core.anchor(mine)).sources():
            with pytest.raises(NotFound):
                knowledge_of(other).remove(state.source.id)
            with pytest.raises(NotFound):
                knowledge_of(other).sync(state.source.id, True)
    knowledge_of(two.anchor(theirs)).remove("uploads")
    for core in (one, two):
        assert listed(core.anchor(mine)) == [("upload", 1, 2, 0)]
        assert "whale sings" in str(cited(core.anchor(mine), "blue whale sings"))


def test_private_knowledge_and_two_users_of_one_account(service: Replicas) -> None:
    """Replicas: one project's uploads are one source for its account, and no other project's."""
    one, two = service.core(), service.core()
    knowledge_of(one.anchor(member(user="eve"))).push("a.md", "Eve wrote of anchors.")
    knowledge_of(two.anchor(member(user="bob"))).push("b.md", "Bob wrote of buoys.")
    read_all(two, two.anchor(member(user="bob")))
    assert listed(one.anchor(member(user="bob"))) == [("upload", 2, 2, 0)]
    assert listed(two.anchor(member(project="other"))) == []


def test_a_path_of_one_machine_is_no_source_of_a_service(service: Replicas, tmp_path: Path) -> None:
    """Replicas: what lies on one machine is refused in one sentence that says what to do."""
    core = service.core()
    human = replace(member(), caller=Caller.HUMAN)
    (tmp_path / "docs").mkdir()
    for kind in ("files", "repo_docs", "git_history"):
        with pytest.raises(Refused, match="push its documents"):
            knowledge_of(core.anchor(human)).add(str(tmp_path / "docs"), kind)
    assert names(service) == []


def test_a_document_that_cannot_be_read_is_told_on_every_replica(service: Replicas) -> None:
    """Replicas: what is left out is told everywhere, and keeps nothing waiting."""
    one, _two, here, there = service.two()
    knowledge_of(there).push("bad.bin", base64=base64.b64encode(b"\0" * 100).decode())
    knowledge_of(there).push("whales.md", WHALES)
    read_all(one, here)
    (state,) = knowledge_of(there).sources()
    assert "binary" in state.skipped[0] and (state.documents, state.passages, state.waiting) == (1, 2, 0)


def test_a_copy_that_is_damaged_or_lost_is_made_anew(service: Replicas) -> None:
    """Replicas: the copy is derived."""
    one = service.core()
    here = one.anchor(member())
    knowledge_of(here).push("whales.md", WHALES)
    read_all(one, here)
    before = listed(here)
    library_of(one.services).catalogue.close()
    path = one.data_dir / "knowledge-copy" / "knowledge.sqlite"
    path.write_bytes(b"no database at all" * 100)
    assert listed(here) == before
    assert cited(here, "blue whale sings")


def test_a_purge_reaches_what_was_pushed_and_names_on_the_server(service: Replicas) -> None:
    """Replicas: purge: passages, headings, waiting pushes and kept bytes of every replica's server."""
    one, two, here, there = service.two()
    knowledge_of(here).push("secret.md", "# Zanzibar plan\n\n## Zanzibar plan\nThe harbour opens at nine.\n")
    read_all(one, here)
    knowledge_of(here).push("late.md", "The Zanzibar plan is late.")

    human = two.anchor(replace(member(), caller=Caller.HUMAN))
    told = human.maintenance.purge(
        text="Zanzibar plan", seen=purge_digest(human.maintenance.preview_purge(text="Zanzibar plan")["memories"])
    )

    assert told["clean"]
    service.clock.advance(seconds=1)
    held = b"".join(record.content for name in names(service) if (record := service.records.read(name)) is not None)
    assert b"Zanzibar" not in held
    read_all(two, there)
    for home in (one.data_dir, two.data_dir):
        library_of(one.services).catalogue.refresh(everything=True)
        for path in (home / "knowledge-copy").rglob("*"):
            assert b"Zanzibar" not in path.read_bytes()


DOCUMENTS = 12
"""More than a look may ask for one by one."""


def test_of_many_documents_a_look_asks_little(service: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas: a look costs two lists while nothing changes."""
    one, two, here, there = service.two()
    for number in range(DOCUMENTS):
        knowledge_of(here).push(f"{number}.md", f"Entry {number} tells of the harbour.")
    read_all(one, here)
    assert listed(there) == [("upload", DOCUMENTS, DOCUMENTS, 0)]
    asked: list[str] = []
    for name in ("read", "listed", "revisions"):
        real = getattr(service.records, name)
        monkeypatch.setattr(
            service.records, name, lambda *a, real=real, name=name, **k: (asked.append(name), real(*a, **k))[1]
        )
    monkeypatch.setattr(shared_catalogue, "FRESH_S", 60.0)
    library_of(two.services).catalogue._compared_at = float("-inf")  # type: ignore[attr-defined]
    for _ in range(5):
        knowledge_of(there).search("harbour")
    assert [one for one in asked if one != "revisions"] == ["listed", "listed"]


def test_a_server_that_is_away_takes_no_push_and_loses_none(service: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas: accepted or refused, nothing between."""
    _one, two, here, there = service.two()
    knowledge_of(here).push("whales.md", WHALES)

    def away(*_: Any, **__: Any) -> Any:
        raise MemoryAnchorError("away")

    with monkeypatch.context() as patch:
        patch.setattr(service.records, "write", away)
        with pytest.raises(MemoryAnchorError):
            knowledge_of(there).push("ships.md", SHIPS)
    read_all(two, there)
    assert listed(here) == [("upload", 1, 2, 0)]


def test_a_push_sent_again_while_its_source_is_being_removed_is_refused(
    service: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas: accepted or refused: a repeat is not called accepted when the removal takes its document along."""
    one, two = service.core(), service.core()
    knowledge_of(one.anchor(member())).push("late.md", "The brig is late.")
    (state,) = knowledge_of(one.anchor(member())).sources()
    write = service.records.write

    def removed_first(name: str, *args: Any, **kinds: Any) -> Any:
        if name.startswith("knowledge/queue/"):
            library_of(one.services).catalogue.mark_removing(state.source.id, now=service.clock.now())
        return write(name, *args, **kinds)

    with monkeypatch.context() as patch:
        patch.setattr(service.records, "write", removed_first)
        with pytest.raises(MemoryAnchorError, match="being removed"):
            knowledge_of(two.anchor(member())).push("late.md", "The brig is late.")


def test_a_lorebook_that_one_replica_takes_speaks_on_the_other_until_it_is_removed_anywhere(service: Replicas) -> None:
    """Replicas: lorebooks are the service's: added, listed, scanned, exported, purged and removed on any replica."""
    one, two, here, there = service.two()
    entries = [{"keys": ["whale"], "content": "The whale Ishmael is white.", "enabled": True}]
    book = json.dumps({"spec": "lorebook_v3", "data": {"name": "sea", "entries": entries}}).encode()
    lore_of(here).add(file="sea.json", content=base64.b64encode(book).decode())
    asked: list[Any] = [{"role": "user", "content": "Tell me of the whale."}]

    assert "Ishmael" in str(lore_of(there).scan(messages=asked))
    assert base64.b64decode(lore_of(there).export("sea")["content"]) == book
    assert lore_of(two.anchor(member("globex"))).books()["books"] == []

    lore_of(there).add(file="land.json", content=base64.b64encode(book.replace(b"Ishmael", b"Zanzibar")).decode())
    human = two.anchor(replace(member(), caller=Caller.HUMAN))
    assert human.maintenance.purge(
        text="Zanzibar", seen=purge_digest(human.maintenance.preview_purge(text="Zanzibar")["memories"])
    )["clean"]
    assert "Zanzibar" not in str(lore_of(here).scan(messages=asked))
    for core in (one, two):
        lore_of(core.anchor(member())).books()
        assert not any(b"Zanzibar" in path.read_bytes() for path in core.data_dir.rglob("*.book"))

    lore_of(here).remove("sea")
    assert [book["name"] for book in lore_of(there).books()["books"]] == ["land"]
    assert "Ishmael" not in str(lore_of(there).scan(messages=asked))


def test_what_a_killed_push_left_of_a_source_that_is_gone_goes_with_the_next_removal(service: Replicas) -> None:
    """Replicas: bytes that belong to no source are not kept."""
    core = service.core()
    anchor = core.anchor(member())
    service.records.write("knowledge/queue/gone/one", b"{}\nThe whale is white.", before="")
    service.records.write("knowledge/docs/gone/07.json", b"{}", before="")
    service.clock.advance(days=10_000)  # records are as old as this machine's clock says
    knowledge_of(anchor).push("whales.md", WHALES)
    knowledge_of(anchor).remove("uploads")

    assert names(service) == []
