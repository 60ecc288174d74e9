"""Several devices over one folder: what one wrote is everywhere, and nothing of a wrong folder is taken half."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from devicedrive import driven
from devicekit import WORDS, Laptop, differences, settled, texts_of

from memory_anchor.adapters.system import new_token
from memory_anchor.domain.errors import MemoryAnchorError, NotFound, Refused
from memory_anchor.domain.model import Actor, Caller, Scope, Status
from memory_anchor.domain.rights import version_stamp
from memory_anchor.extensions.devices import membership
from memory_anchor.extensions.devices.folder import NAME
from memory_anchor.extensions.devices.rows import sync_of
from memory_anchor.identity.statements import Purged
from memory_anchor.testing import ManualClock, cheap_keys

SECRETISH = "The vault of Ostrava opens at nine."


pytestmark = pytest.mark.usefixtures("no_sync")


@pytest.fixture
def folder(tmp_path: Path, laptops: Callable[..., Laptop]) -> Path:
    del laptops  # makes it
    return tmp_path / "shared"


def segments(folder: Path) -> list[Path]:
    return sorted((folder / NAME / "segments").rglob("*.seg"))


def test_what_one_device_wrote_forgot_and_edited_is_so_on_the_other(laptops: Callable[..., Laptop]) -> None:
    """Rule sync.union: versions, history and status arrive; vectors and use are made here."""
    one, other = laptops("laptop"), laptops("desktop")
    kept = one.anchor.save_memory("Deploys go through staging first.").id
    gone = one.anchor.log_event("CI flaked on the search suite").id
    one.anchor.forget(gone)
    one.clock.advance(minutes=1)
    one.anchor.curation.edit(kept, content="Deploys go through staging, then a canary.")

    settled([one, other])

    assert differences({"laptop": one.state(), "desktop": other.state()}) == []
    assert other.anchor.get(gone).status is Status.ARCHIVED
    found = other.anchor.search("canary").snippets
    assert [snippet.id for snippet in found][:1] == [kept]
    assert one.sync().sent == other.sync().sent == 0


def test_one_memory_edited_on_two_devices_stands_newest_and_disputed(laptops: Callable[..., Laptop]) -> None:
    """Rule sync.pointer: causal order, else the newest stands, the other text beside it, disputed, everywhere alike."""
    one, other = laptops("laptop"), laptops("desktop")
    name = one.anchor.save_memory("The queue runs on port 8081.").id
    settled([one, other])
    one.anchor.curation.edit(name, content="The queue runs on port 9000.")
    other.clock.advance(minutes=5)
    other.anchor.curation.edit(name, content="The queue runs on port 9100.")

    settled([one, other])

    assert differences({"laptop": one.state(), "desktop": other.state()}) == []
    for device in (one, other):
        newest = device.anchor.get(name)
        beside = device.anchor.get(newest.disputes[0])
        assert (newest.content, newest.status) == ("The queue runs on port 9100.", Status.DISPUTED)
        assert (beside.content, beside.status) == ("The queue runs on port 9000.", Status.DISPUTED)
        assert [item.memory.id for item in device.anchor.curation.inbox().items] in ([newest.id], [beside.id])


def test_a_dispute_whose_other_side_ended_elsewhere_can_be_settled(laptops: Callable[..., Laptop]) -> None:
    """Rule sync.pointer: settled on one device and edited on the other, it is still a human's to end."""
    one, other = laptops("laptop"), laptops("desktop")
    name = one.anchor.save_memory("The queue runs on port 8081.").id
    settled([one, other])
    for device, port in ((one, 9000), (other, 9100)):
        device.clock.advance(minutes=port - 8999)
        device.anchor.curation.edit(name, content=f"The queue runs on port {port}.")
    settled([one, other])
    human = [one.core.anchor(Actor(Caller.HUMAN, Scope(), client="test")) for one in (one, other)]
    beside = human[0].get(name).disputes[0]
    human[0].forget(beside)

    sides = human[0].curation.sides(name)
    done = human[0].curation.settle(
        name, resolution="keep_old", seen=[version_stamp(x.id, x.version, x.content) for x in sides]
    )

    assert (len(sides), done.status) == (1, Status.ACTIVE)


def test_an_edit_after_a_sync_is_no_dispute(laptops: Callable[..., Laptop]) -> None:
    """Rule sync.causal: who knew the other's version has the last word, whatever the clocks say."""
    one, other = laptops("laptop"), laptops("desktop")
    one.clock.advance(days=3)
    name = one.anchor.save_memory("The queue runs on port 8081.").id
    settled([one, other])
    other.anchor.curation.edit(name, content="The queue runs on port 9100.")

    settled([one, other])

    assert differences({"laptop": one.state(), "desktop": other.state()}) == []
    assert one.anchor.get(name).content == "The queue runs on port 9100."
    assert one.anchor.get(name).status is Status.ACTIVE


def test_a_purge_goes_everywhere_with_the_humans_signature_and_leaves_the_folder(
    laptops: Callable[..., Laptop], folder: Path
) -> None:
    """Rule sync.purge: signed by the human's key, applied by every device, and its text leaves the segments."""
    one, other = laptops("laptop"), laptops("desktop")
    name = one.anchor.save_memory(SECRETISH).id
    kept = one.anchor.save_memory("Deploys go through staging first.").id
    settled([one, other])
    other.anchor.curation.edit(name, content=f"{SECRETISH} Bring the badge.")
    settled([one, other])
    before = {path.name: path.read_bytes() for path in segments(folder)}

    one.purge(name)
    settled([one, other])

    assert set(texts_of(one.core)) == set(texts_of(other.core)) == {kept}
    assert not {path.read_bytes() for path in segments(folder)} & set(before.values())
    third = laptops("tablet")
    settled([third])
    assert set(texts_of(third.core)) == {kept}


def test_an_unsigned_purge_stays_here_and_says_so(laptops: Callable[..., Laptop]) -> None:
    """Rule sync.purge: without the human's signature no other device erases anything, and nothing comes back."""
    one, other = laptops("laptop"), laptops("desktop")
    name = one.anchor.save_memory(SECRETISH).id
    settled([one, other])

    one.purge(name, signs=False)
    settled([one, other])

    assert name not in texts_of(one.core)
    assert name in texts_of(other.core)
    assert sync_of(one.core).exchange.status()["unsigned"] == [name]
    device = membership.load(one.core.data_dir)
    assert device is not None
    purged = Purged(device.folder_id, (name,), one.clock.now().isoformat())
    for signature in (other.human.purge(purged), ""):
        with pytest.raises(Refused):
            sync_of(one.core).exchange.accept_signature(purged.record(), signature, "human:me")


def test_the_folder_reveals_nothing_without_the_key(laptops: Callable[..., Laptop], folder: Path) -> None:
    """Rule sync.folder: no text, name, project or time in the clear; sizes are powers of two."""
    one = laptops("laptop")
    one.anchor.save_memory(SECRETISH)
    one.sync()

    whole = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    names = " ".join(path.name for path in folder.rglob("*"))
    for word in ("Ostrava", "vault", "laptop", "claude", "2025-", "verified_fact", "default"):
        assert word.encode() not in whole.replace(b'"what"', b""), word
        assert word not in names
    for path in segments(folder):
        head, _, rest = path.read_bytes().partition(b"\n")
        size = json.loads(head)["size"] - 16
        assert size >= 4096 and size & (size - 1) == 0
        assert len(rest) == size + 16 + 64


def test_two_devices_of_one_name_and_another_person_are_refused(
    laptops: Callable[..., Laptop], tmp_path: Path, folder: Path
) -> None:
    """Rule sync.names: one sentence each at set-up; nothing is written."""
    laptops("laptop")
    there = sorted(path.name for path in folder.rglob("*"))
    stranger = Laptop(tmp_path / "stranger", ManualClock())
    for given, said in (
        ({"name": "laptop"}, "another device of this folder is called 'laptop'"),
        ({"name": "phone", "user": "mira"}, "what is private stays with one person"),
        ({"name": "phone", "passphrase": "lantern orchard seven quiet river"}, "not the sync passphrase"),
        ({"name": "my phone"}, "allowed are 1 to 40 letters"),
    ):
        with pytest.raises(MemoryAnchorError, match=said):
            stranger.join(folder, **given)
    assert sorted(path.name for path in folder.rglob("*")) == there
    assert not sync_of(stranger.core).is_set_up
    stranger.close()


def test_a_torn_missing_swapped_or_foreign_segment_waits_in_one_sentence(
    laptops: Callable[..., Laptop], folder: Path
) -> None:
    """Rule sync.whole: nothing of it and nothing behind it is taken; mended, it is."""
    one, other = laptops("laptop"), laptops("desktop")
    for number in range(3):
        one.anchor.save_memory(f"Fact number {number} is about the orchard gate {number}.")
        one.sync()
    first, second, third = segments(folder)
    good = {path: path.read_bytes() for path in (first, second, third)}
    broken = {
        "is cut off": lambda: second.write_bytes(good[second][:-100]),
        "has not arrived while later ones have": second.unlink,
        "lies under another number": lambda: second.write_bytes(good[third]),
        "signature does not fit": lambda: second.write_bytes(good[second][:300] + b"x" + good[second][301:]),
        "something was added": lambda: second.write_bytes(good[second] + b"x"),
        "no file of a sync folder": lambda: second.write_bytes(b"hello\n" * 2000),
    }
    for said, breaks in broken.items():
        breaks()
        done = other.sync()
        assert len(texts_of(other.core)) == 1, said
        assert [said in note for note in done.notes] == [True], done.notes
        second.write_bytes(good[second])
    (folder / NAME / "segments" / "notes (conflicted copy).txt").write_text("somebody else's")
    other.sync()
    assert len(texts_of(other.core)) == 3
    assert sync_of(other.core).exchange.status()["foreign_files"] == 1


def test_a_folder_that_goes_back_in_time_is_named_and_healed(
    laptops: Callable[..., Laptop], folder: Path, tmp_path: Path
) -> None:
    """Rule sync.rollback: what was read and is gone again is named; its writer writes it again; nothing is lost."""
    one, other = laptops("laptop"), laptops("desktop")
    one.anchor.save_memory("The gate of the orchard is green.")
    one.sync()
    shutil.copytree(folder / NAME, tmp_path / "yesterday")
    one.anchor.save_memory("The lantern hangs in the barn.")
    settled([one, other])
    shutil.rmtree(folder / NAME / "segments")
    shutil.copytree(tmp_path / "yesterday" / "segments", folder / NAME / "segments")

    done = other.sync()
    assert len(done.notes) == 1 and "went back in time" in done.notes[0]
    assert len(texts_of(other.core)) == 2
    one.sync()
    assert other.sync().notes == []


def test_a_copied_device_and_a_folder_that_is_away_say_what_to_do(
    laptops: Callable[..., Laptop], folder: Path, tmp_path: Path
) -> None:
    """Rule sync.copies: two that write as one are stopped before anything is written."""
    one = laptops("laptop")
    one.anchor.save_memory("The gate of the orchard is green.")
    shutil.copytree(one.core.data_dir / "sync", tmp_path / "kept")
    one.sync()
    shutil.rmtree(one.core.data_dir / "sync")
    shutil.copytree(tmp_path / "kept", one.core.data_dir / "sync")
    with pytest.raises(Refused, match="--new-device"):
        one.sync()
    one.join(folder, "laptop-again", as_new_device=True)
    assert one.sync().notes == []
    assert len(texts_of(one.core)) == 1
    (folder / NAME).rename(folder / "elsewhere")
    with pytest.raises(NotFound, match="plug it in"):
        one.sync()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes into read-only folders")
def test_a_folder_that_is_read_only_by_its_mode_is_one_sentence(laptops: Callable[..., Laptop], folder: Path) -> None:
    """Issue 17, bad input: a stick that is write-protected; what was written goes once it is not."""
    one = laptops("laptop")
    one.anchor.save_memory("The gate of the orchard is green.")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    with pytest.raises(MemoryAnchorError) as refused:
        one.sync()
    assert "\n" not in str(refused.value) and str(folder) in str(refused.value)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    one.sync()
    other = laptops("desktop")
    other.sync()
    assert texts_of(other.core) == texts_of(one.core) and len(texts_of(one.core)) == 1


def test_a_folder_that_refuses_writing_is_one_sentence_and_nothing_is_lost(
    laptops: Callable[..., Laptop], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 17, bad input: the same as the disk itself says it (EROFS), for whoever may write everywhere."""
    one = laptops("laptop")
    one.anchor.save_memory("The gate of the orchard is green.")
    real = os.open

    def read_only(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and str(folder) in str(path):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(MemoryAnchorError) as refused:
        one.sync()
    assert "\n" not in str(refused.value) and "ead-only" in str(refused.value)
    monkeypatch.setattr(os, "open", real)
    one.sync()
    other = laptops("desktop")
    other.sync()
    assert texts_of(other.core) == texts_of(one.core) and len(texts_of(one.core)) == 1


def test_a_wrong_clock_is_named_and_nothing_is_lost(laptops: Callable[..., Laptop]) -> None:
    """Rule sync.clock: a device three days ahead is taken and named."""
    one, other = laptops("laptop"), laptops("desktop")
    one.clock.advance(days=3)
    one.anchor.save_memory("The gate of the orchard is green.")
    one.sync()
    done = other.sync()
    assert len(done.notes) == 1 and "the clock of laptop is 3 days ahead" in done.notes[0]
    assert len(texts_of(other.core)) == 1


def test_a_revoked_device_counts_no_more_and_opens_nothing_new(laptops: Callable[..., Laptop], folder: Path) -> None:
    """Rule sync.revoke: what it wrote before stays; what it writes later is left out, and it opens nothing new."""
    one, other = laptops("laptop"), laptops("desktop")
    other.anchor.save_memory("Written before the loss.")
    settled([one, other])
    device = membership.load(one.core.data_dir)
    assert device is not None

    with cheap_keys():
        membership.revoke(
            *(one.core.data_dir, device, "desktop", WORDS),
            position_of=sync_of(one.core).exchange.position_of,
            now=one.clock.now(),
            new_token=new_token,
        )
    one.anchor.save_memory("Written after the loss.")
    one.sync()
    other.anchor.save_memory("Written by a thief.")
    with pytest.raises(Refused, match="this device was revoked on"):
        other.sync()
    lost = membership.load(other.core.data_dir)
    assert lost is not None
    opens = set(membership.members_for(lost, lost.sync_folder.listed()).keys)
    used = [json.loads(path.read_bytes().partition(b"\n")[0])["key"] for path in segments(folder)]
    assert len(set(used) - opens) == 1
    third = laptops("tablet")
    settled([one, third])
    said = {text for texts in texts_of(third.core).values() for text in texts}
    assert said == {"Written before the loss.", "Written after the loss."}


def test_only_chosen_projects_and_no_constitution_travel(laptops: Callable[..., Laptop]) -> None:
    """Rule sync.scope: a project that was not named stays here; L0 never travels."""
    one, other = laptops("laptop"), laptops("desktop")
    elsewhere = one.core.anchor(Actor(Caller.AGENT, Scope(agent="claude-code"), project="privateproject"))
    elsewhere.save_memory("This project stays on the laptop.")
    one.anchor.save_memory("This one travels.")
    settled([one, other])
    assert {text for texts in texts_of(other.core).values() for text in texts} == {"This one travels."}


def test_random_interleavings_come_to_the_same_state_and_lose_nothing(tmp_path: Path) -> None:
    """Rule sync.converges: the small run; `tests/crash/test_devices_soak.py` has the 1,000."""
    assert driven(tmp_path, [7], devices=2, rounds=1, steps=14) == []
