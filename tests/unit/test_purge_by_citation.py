"""Purge by id goes by citation: whatever its length, what was told from a purged memory goes or is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import disk
import pytest
from devicekit import Laptop, settled, texts_of

from memory_anchor.admin import backup
from memory_anchor.admin.backup import unpack
from memory_anchor.domain.model import Actor, Caller, MemoryType, Scope
from memory_anchor.domain.rights import purge_digest
from memory_anchor.domain.where import Where
from memory_anchor.extensions.devices.rows import sync_of
from memory_anchor.extensions.knowledge.use_cases import library_of
from memory_anchor.hooks import brief
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.wire import Preamble
from memory_anchor.settings import LifecycleSettings, Settings
from memory_anchor.testing import ManualClock, ephemeral_core, human_of, signed_call
from memory_anchor.upkeep.forgetting import digest_memory, forget
from memory_anchor.upkeep.job_kit import new_entry
from memory_anchor.use_cases.memory import MemoryAnchor

NUT, CAT, TEA = "他对花生过敏", "猫叫墨墨", "每天喝乌龙茶"
"""Six, four and six characters: no quotation is long enough to be evidence."""

Purge = Callable[..., dict[str, Any]]


@pytest.fixture
def core(tmp_path: Path, clock: ManualClock) -> Iterator[Core]:
    settings = Settings(lifecycle=LifecycleSettings(max_archived_share=1.0))
    with closing(ephemeral_core(tmp_path / "core", clock=clock, settings=settings)) as core:
        yield core


@pytest.fixture
def purge(core: Core, project: Path) -> Purge:
    """Purge as a human who signs, what is given is what `memory-anchor purge` sends."""
    caller, human = Preamble(project_dir=str(project), cwd=str(project)), human_of(core.data_dir)

    def shown_and_purged(*ids: str) -> dict[str, Any]:
        shown = signed_call(core, caller, "purge_preview", {"ids": list(ids)}, human)["memories"]
        return signed_call(core, caller, "purge", {"ids": list(ids), "seen": purge_digest(shown)}, human)

    return shown_and_purged


def logged(anchor: MemoryAnchor, *texts: str) -> list[str]:
    return [str(anchor.log_event(text).id) for text in texts]


def told(core: Core, ids: list[str], *, author: str = "job:forget") -> str:
    """Store a digest of memories, as the nightly job writes it; return its id."""
    memories = [core.services.records.read(name, None) for name in ids]
    digest = digest_memory(memories, at=core.clock.now(), author=author)
    core.services.store.put("event_log", [new_entry(digest)])
    core.services.invalidate_caches()
    return digest.id


def all_texts(core: Core) -> str:
    memories = [e.memory for name in ("event_log", "verified_fact") for e in core.services.store.scan(name, Where())[0]]
    return "\n".join(repr(memory) for memory in memories)


def test_a_digest_of_short_notes_goes_with_one_of_them(
    core: Core, anchor: MemoryAnchor, purge: Purge, clock: ManualClock
) -> None:
    """Rule purge.citation: the nightly digest cites it, so it goes; the other notes stay; the certificate is clean."""
    nut, cat, tea = logged(anchor, NUT, CAT, TEA)
    clock.advance(days=120)
    forget(core.upkeep, core.clock.now())
    assert any(memory.type is MemoryType.SUMMARY for memory in anchor.search_events(limit=10))

    told = purge(nut)

    assert NUT not in all_texts(core)
    assert (told["clean"], told["failed"], told["mentions"]) == (True, [], [])
    assert {memory.id for memory in anchor.curation.listing(status="archived")} == {cat, tea}
    assert disk.holding(core.data_dir, NUT) == []


def test_a_digest_of_a_digest_goes_too_and_one_that_somebody_reworded_is_named(
    core: Core, anchor: MemoryAnchor, purge: Purge
) -> None:
    """Rule purge.citation: followed to the end; what an agent made of it is the agent's text."""
    nut, cat, tea = logged(anchor, NUT, CAT, TEA)
    first = told(core, [nut, cat])
    second = told(core, [first, tea])
    reworded = told(core, [nut, tea])
    anchor.curation.edit(reworded, content=f"饮食：{NUT}；{TEA}")

    answer = purge(nut)

    left = {name for name in (first, second, reworded) if f"'{name}'" in all_texts(core)}
    assert left == {reworded}
    assert answer["mentions"] == [f"{reworded}@1", f"{reworded}@2"]


def test_what_was_copied_into_others_is_taken_out_and_they_stay(core: Core, anchor: MemoryAnchor, purge: Purge) -> None:
    """Rule purge.citation: search context, prediction, title of a citation and reason; the fact's own text stays."""
    event = str(anchor.log_event(CAT, key="猫").id)
    after = str(anchor.log_event("对").id)
    fact = str(anchor.promote(event, content="The cat is the office's").id)
    stored = core.services.records.read(fact, None)
    (entry,) = core.services.store.get("verified_fact", [stored.point_id], with_vectors=True)
    gap = {"predicted": CAT, "actual": "the dog", "importance": 0.5}
    changed = replace(stored, gap=gap, reason=f"it says otherwise than {event}: {CAT}")
    core.services.store.put("verified_fact", [replace(entry, memory=changed)])
    assert anchor.get(after).context == CAT and stored.citations[0].title == "猫"

    answer = purge(event)

    (left,) = core.services.store.get("verified_fact", [stored.point_id], with_vectors=True)
    assert CAT not in all_texts(core) and "title='猫'" not in all_texts(core)
    assert (left.memory.content, left.memory.gap, left.memory.citations[0].ref) == (stored.content, None, event)
    assert left.vectors.keys() == entry.vectors.keys()
    assert anchor.get(after).context == ""
    assert (answer["clean"], answer["mentions"]) == (True, [f"{fact}@1"])


def test_nothing_that_is_shown_afterwards_has_it(core: Core, anchor: MemoryAnchor, purge: Purge) -> None:
    """Rule purge.citation: a cached answer, a session's brief, a context, what is in mind."""
    fact = str(anchor.save_memory(NUT, type="preference").id)
    logged(anchor, CAT)
    anchor.set_active("meal", NUT)
    for _ in range(3):
        assert fact in {hit.id for hit in anchor.search("花生").snippets}
    assert NUT in brief.start(anchor, "startup").text

    purge(fact)

    assert fact not in {hit.id for hit in anchor.search("花生").snippets}
    shown = brief.start(anchor, "startup").text + anchor.build_context("他能吃花生吗").text
    assert NUT not in shown + brief.for_prompt(anchor, "他能吃花生吗", frozenset(), first=True).text
    assert disk.holding(core.data_dir, NUT) == []


def test_a_short_text_is_found_in_files_as_a_whole_value(core: Core, anchor: MemoryAnchor, purge: Purge) -> None:
    """Rule purge.everywhere: what waits in files cites nothing; a short text counts where it is all that is said."""
    cat = logged(anchor, CAT)[0]
    files = {"spool/1.json": CAT, "spool/2.json": f"{CAT}吗？不是", "remote/outbox/3.json": CAT}
    for name, text in files.items():
        (core.data_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (core.data_dir / name).write_text(json.dumps({"content": text}))

    answer = purge(cat)

    assert [name for name in files if (core.data_dir / name).exists()] == ["spool/2.json"]
    assert answer["clean"]


def test_a_file_that_has_the_first_sentence_of_it_goes(core: Core, anchor: MemoryAnchor, purge: Purge) -> None:
    """Rule purge.everywhere: so much of a memory is what a digest tells, and a file cites nothing."""
    told = str(anchor.log_event("The vault of Ostrava opens at nine. The key is with Jana.").id)
    file = core.data_dir / "spool" / "1.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"content": "Digest: The vault of Ostrava opens at nine. Nothing else."}))

    purge(told)

    assert not file.exists()


def test_a_short_text_goes_from_what_was_said_of_it_elsewhere(core: Core, anchor: MemoryAnchor, purge: Purge) -> None:
    """Rule purge.citation: the reason of a change that names it, of a memory that disputes it or that replaced it."""
    cat, dog = logged(anchor, CAT, "The dog is grey")
    anchor.forget(dog, reason=f"{cat} 说：{CAT}")

    purge(cat)

    assert CAT not in all_texts(core)
    assert [step.reason for step in anchor.history(dog)][-1].startswith(cat)


def test_an_answer_that_is_kept_for_a_repeat_quotes_it_no_more(core: Core, anchor: MemoryAnchor, purge: Purge) -> None:
    """Rule purge.citation x idempotency: a repeat still gets its first answer, without the text."""
    old = str(anchor.save_memory("The API listens on port 8080").id)
    new = str(anchor.save_memory("The API now listens on port 9090", replaces=old).id)
    scope = replace(anchor.actor.scope, conversation="another")
    other = core.anchor(replace(anchor.actor, scope=scope))
    said = {"content": "The API listens on port 8080", "request_id": "r1"}
    first = other.save_memory(**said)
    memory = core.services.records.read(str(first.id), None)
    (kept,) = memory.receipts  # as earlier versions of this program wrote it
    quoting = replace(
        kept, outcome={**kept.outcome, "reason": "replaced by what says: The API now listens on port 9090"}
    )
    (entry,) = core.services.store.get("verified_fact", [memory.point_id], with_vectors=True)
    core.services.store.put("verified_fact", [replace(entry, memory=replace(memory, receipts=(quoting,)))])

    answer = purge(new)

    again = other.save_memory(**said)
    assert "9090" not in first.reason and first.similar[0].id == new
    assert (again.id, again.outcome) == (first.id, first.outcome) and "9090" not in again.reason
    assert "9090" not in all_texts(core) and answer["clean"]


@pytest.mark.parametrize("stays", [True, False])
def test_a_backup_loses_the_digest_and_what_was_copied_and_keeps_the_rest(
    core: Core, anchor: MemoryAnchor, purge: Purge, tmp_path: Path, stays: bool
) -> None:
    """Rule purge.backups: by citation as in the store; it still restores."""
    nut, cat = logged(anchor, NUT, CAT)
    digest = core.services.records.read(told(core, [nut, cat]), None)
    backup.create(core, tmp_path / "b.tar.gz")
    if not stays:  # the backup alone has it
        core.services.store.erase("event_log", [digest.point_id])

    answer = purge(nut)

    unpack(tmp_path / "b.tar.gz", tmp_path / "parts")
    lines = (tmp_path / "parts" / "memories" / "event_log-000000.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [cat]
    assert disk.holding(tmp_path / "parts", NUT) == []
    assert answer["clean"]


@pytest.mark.parametrize("why", ["torn backup", "missing backup", "set aside by a restore", "unreadable upload"])
def test_a_place_that_could_not_be_searched_is_named_and_the_certificate_is_not_clean(
    core: Core, anchor: MemoryAnchor, purge: Purge, tmp_path: Path, why: str
) -> None:
    """Rule purge.certificate: clean says that every place was searched."""
    nut = logged(anchor, NUT)[0]
    file, blobs = tmp_path / "b.tar.gz", library_of(core.services).catalogue.blobs
    match why:
        case "unreadable upload":
            blobs.mkdir(parents=True, exist_ok=True)
            (blobs / ("0" * 64)).write_bytes(b"%PDF-1.7 torn")
        case "set aside by a restore":
            (core.data_dir / "replaced-1" / "store").mkdir(parents=True)
            (core.data_dir / "replaced-1" / "store" / "memory.db").write_bytes(b"no database")
        case _:
            backup.create(core, file)
            file.write_bytes(file.read_bytes()[:200]) if why == "torn backup" else file.unlink()

    answer = purge(nut)

    assert answer["versions"] == 1 and answer["clean"] is False
    named = {"torn backup": "known backups", "unreadable upload": "0" * 64}
    assert answer["failed"] == ([named[why]] if why in named else [])
    left = {"missing backup": str(file), "set aside by a restore": str(core.data_dir / "replaced-1")}
    assert answer["still_in"] == ([left[why]] if why in left else [])


# --- sync ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def laptops(tmp_path: Path) -> Iterator[list[Laptop]]:
    folder = tmp_path / "shared"
    folder.mkdir()
    made = [Laptop(tmp_path / name, ManualClock()) for name in ("laptop", "desktop")]
    for one, name in zip(made, ("laptop", "desktop"), strict=True):
        one.join(folder, name)
    yield made
    for one in made:
        one.close()


@pytest.mark.usefixtures("no_sync")
def test_a_purged_text_does_not_come_back_in_another_devices_digest(laptops: list[Laptop]) -> None:
    """Rule purge.sync: a device that knew of no purge yet told the notes again; its digest is not taken, then goes."""
    one, other = laptops
    nut, cat, tea = logged(one.anchor, NUT, CAT, TEA)
    settled(laptops)
    one.purge(nut)
    told(other.core, [nut, cat, tea])
    other.sync()  # the digest is in the folder before the purge is
    one.sync()
    one.sync()
    assert NUT not in "".join(text for texts in texts_of(one.core).values() for text in texts)

    settled(laptops)

    for device in laptops:
        assert set(texts_of(device.core)) == {cat, tea}
        assert sync_of(device.core).exchange.run().notes == []


@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize("writer", [0, 1])
def test_what_a_purge_took_out_of_a_memory_does_not_come_back(laptops: list[Laptop], writer: int) -> None:
    """Rule purge.sync: a version that told what had been expected is rewritten alike on every device."""
    one, _ = laptops
    old = str(one.anchor.save_memory(NUT).id)
    settled(laptops)
    device = laptops[writer]
    fact = str(device.anchor.save_memory("The allergy is over since the treatment in March").id)
    stored = device.core.services.records.read(fact, None)
    (entry,) = device.core.services.store.get("verified_fact", [stored.point_id], with_vectors=True)
    changed = replace(stored, gap={"predicted": NUT, "actual": "over"}, reason=f"it ends what {old} says")
    device.core.services.store.put("verified_fact", [replace(entry, memory=changed)])
    settled(laptops)
    assert all(NUT in all_texts(each.core) for each in laptops)

    one.purge(old)
    settled(laptops, rounds=6)

    for each in laptops:
        assert set(texts_of(each.core)) == {fact}
        assert NUT not in all_texts(each.core)
        human = each.core.anchor(Actor(Caller.HUMAN, Scope(), client="test"))
        assert len(human.history(fact)) == 1
