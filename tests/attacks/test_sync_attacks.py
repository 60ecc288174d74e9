"""A device that an agent holds, or a thief: it has the folder and the device's keys, never the human's passphrase.

What it writes is signed and sealed as the format wants; each test is about one word that it has no right to say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from devicekit import WORDS, Laptop, settled, texts_of

from memory_anchor.adapters.system import new_token
from memory_anchor.extensions.devices import membership, sealing
from memory_anchor.extensions.devices.folder import SegmentNumber, segment_name
from memory_anchor.extensions.devices.membership import Device
from memory_anchor.extensions.devices.rows import sync_of
from memory_anchor.extensions.devices.segments import about_line, purge_statement, shared_fields, version_line
from memory_anchor.identity.statements import Purged
from memory_anchor.testing import cheap_keys

pytestmark = pytest.mark.usefixtures("no_sync")


def device_of(laptop: Laptop) -> Device:
    device = membership.load(laptop.core.data_dir)
    assert device is not None
    return device


def last_of(device: Device) -> SegmentNumber:
    return max(device.sync_folder.listed().segments[device.device])


def forged(laptop: Laptop, lines: Sequence[str], *, place: SegmentNumber | None = None, key: str = "") -> Path:
    """Write a segment as this device would, behind its last one or in `place`; return its file."""
    device = device_of(laptop)
    members = membership.members_for(device, device.sync_folder.listed())
    generation, number = place or (last_of(device)[0], last_of(device)[1] + 1)
    before = sealing.digest(device.sync_folder.segment(device.device, (generation, number - 1))) if number > 1 else ""
    named = key or members.key_to_write()
    head = {
        **{"kind": "segment", "device": device.device, "generation": generation, "number": number},
        **{"before": before, "key": named, "salt": new_token()},
    }
    content = "\n".join([about_line(laptop.clock.now(), {}), *lines]).encode()
    file = sealing.seal_file(head, content, key=members.keys[named], signer=device.keys.signer)
    device.sync_folder.write(segment_name(device.device, (generation, number)), file)
    return device.sync_folder.root / segment_name(device.device, (generation, number))


def test_no_device_erases_elsewhere_without_a_humans_word_on_these_very_memories(
    laptops: Callable[..., Laptop],
) -> None:
    """Rule sync.purge: another key, another set, another time or another folder under the signature erases nothing."""
    one, other = laptops("laptop"), laptops("desktop")
    wanted = str(one.anchor.save_memory("The vault of Ostrava opens at nine.").id)
    trifle = str(one.anchor.save_memory("The office plant is called Ferdinand.").id)
    settled([one, other])
    device, at = device_of(one), one.clock.now().isoformat()
    said = purge_statement(device.folder_id, [wanted], at)
    own_signer = sealing.to_base64(device.keys.signer.public_key().public_bytes_raw())
    by_device = sealing.to_base64(device.keys.signer.sign(sealing.keys.canonical(said)))
    of_trifle = one.human.purge(Purged(device.folder_id, (trifle,), at))
    elsewhere = one.human.purge(Purged("another folder", (wanted,), at))
    tries: list[dict[str, Any]] = [
        {"human": device.human, "signature": by_device},
        {"human": own_signer, "signature": by_device},
        {"human": device.human, "signature": of_trifle},
        {"human": device.human, "signature": elsewhere},
        {"human": device.human, "signature": ""},
    ]
    for number, word in enumerate(tries):
        line = json.dumps({"kind": "purge", "ids": [wanted], "at": at, "by": "human:me", **word})
        file = forged(one, [line])

        done = other.sync()

        assert {wanted, trifle} <= set(texts_of(other.core)), number
        assert any("is not signed by a human of this folder" in note for note in done.notes), done.notes
        assert done.purged == 0
        file.unlink()
    word = {"human": device.human, "signature": one.human.purge(Purged(device.folder_id, (wanted,), at))}
    forged(one, [json.dumps({"kind": "purge", "ids": [wanted], "at": at, "by": "human:me", **word})])
    assert other.sync().purged == 1  # the human's own word on it does erase
    assert trifle in texts_of(other.core) and wanted not in texts_of(other.core)


def test_a_segment_that_brings_a_purge_brings_none_of_what_it_erases(laptops: Callable[..., Laptop]) -> None:
    """Rule sync.purge: the memory itself beside the human's word on it, in one segment, before it and after it."""
    one, other = laptops("laptop"), laptops("desktop")
    name = str(one.anchor.save_memory("The vault of Ostrava opens at nine.").id)
    settled([one, other])
    device, at = device_of(one), one.clock.now().isoformat()
    signature = one.human.purge(Purged(device.folder_id, (name,), at))
    word = {"ids": [name], "at": at, "by": "human:me", "human": device.human, "signature": signature}
    again = replace(one.anchor.get(name), version=2, previous_version_id=f"{name}@1", reason="edited")
    line = version_line(shared_fields(again, device.projects), 2, [])
    forged(one, [line, json.dumps({"kind": "purge", **word}), line])

    done = other.sync()

    assert (done.purged, done.notes) == (1, [])
    assert name not in texts_of(other.core)


def test_no_device_makes_a_purged_text_again_from_the_two_edits_that_it_came_from(
    laptops: Callable[..., Laptop], tmp_path: Path
) -> None:
    """Rule sync.pointer, sync.purge: each device makes the memory of the other text itself, unless it was purged."""
    one, other, late, phone = (laptops(name) for name in ("laptop", "desktop", "tablet", "phone"))
    name = str(one.anchor.save_memory("The queue runs on port 8081.").id)
    settled([one, other, late])
    before = set((tmp_path / "shared").rglob("*.seg"))
    one.anchor.curation.edit(name, content="The queue runs on port 9000.")
    other.clock.advance(minutes=5)
    other.anchor.curation.edit(name, content="The queue runs on port 9100.")
    settled([one, other])
    beside = one.anchor.get(name).disputes[0]
    edits = {path: path.read_bytes() for path in set((tmp_path / "shared").rglob("*.seg")) - before}
    for path in edits:  # the sync tool is late with them
        path.unlink()
    device, at = device_of(phone), phone.clock.now().isoformat()
    signature = phone.human.purge(Purged(device.folder_id, (beside,), at))
    word = {"ids": [beside], "at": at, "by": "human:me", "human": device.human, "signature": signature}
    forged(phone, [json.dumps({"kind": "purge", **word})], place=(1, 1))
    assert late.sync().notes == []

    for path, content in edits.items():
        path.write_bytes(content)
    late.sync()

    assert late.anchor.get(name).content == "The queue runs on port 9100."
    assert beside not in texts_of(late.core)


def test_what_a_revoked_device_writes_with_the_keys_it_kept_is_not_taken(laptops: Callable[..., Laptop]) -> None:
    """Rule sync.revoke: it still holds the old folder key; its segments behind the last that counted are left out."""
    one, thief = laptops("laptop"), laptops("phone")
    mine = str(thief.anchor.save_memory("Written before the loss.").id)
    settled([one, thief])
    lost = device_of(thief)
    old_key = membership.members_for(lost, lost.sync_folder.listed()).key_to_write()
    with cheap_keys():
        membership.revoke(
            one.core.data_dir,
            device_of(one),
            "phone",
            WORDS,
            position_of=sync_of(one.core).exchange.position_of,
            now=one.clock.now(),
            new_token=new_token,
        )
    at = thief.clock.now().isoformat()
    word = thief.human.purge(Purged(lost.folder_id, (mine,), at))
    line = {"kind": "purge", "ids": [mine], "at": at, "by": "human:me", "human": lost.human, "signature": word}
    forged(thief, [json.dumps(line)], key=old_key)

    for reader in (one, laptops("tablet")):
        done = reader.sync()

        assert mine in texts_of(reader.core)
        assert any("phone is revoked: what it wrote since" in note for note in done.notes), done.notes


def test_a_segment_that_was_read_cannot_be_swapped_for_another_of_the_same_device(
    laptops: Callable[..., Laptop],
) -> None:
    """Rule sync.whole: whoever holds a device's keys cannot tell two readers two stories and go on."""
    one, other = laptops("laptop"), laptops("desktop")
    one.anchor.save_memory("Deploys go through staging first.")
    settled([one, other])
    held = texts_of(other.core)
    last = last_of(device_of(one))
    forged(one, [], place=last)
    forged(one, [])

    done = other.sync()

    assert any("is another one than was read here" in note for note in done.notes), done.notes
    assert texts_of(other.core) == held
    assert sync_of(other.core).exchange.position_of(device_of(one).device).segment == last[1]


def test_an_edit_waits_for_the_version_that_it_was_written_over(laptops: Callable[..., Laptop]) -> None:
    """Rule sync.whole: a segment whose parents have not arrived is taken when they have, and not before."""
    one, other = laptops("laptop"), laptops("desktop")
    name = str(one.anchor.save_memory("Deploys go through staging first.").id)
    settled([one, other])
    other.anchor.curation.edit(name, content="Deploys go through staging first, then one region.")
    other.sync()
    first = device_of(one)
    withheld = {path: path.read_bytes() for path in first.sync_folder.root.rglob("*.seg") if first.device in str(path)}
    assert withheld
    for path in withheld:
        path.unlink()

    third = laptops("tablet")
    done = third.sync()
    assert texts_of(third.core) == {}
    assert any("waits for another device's" in note for note in done.notes), done.notes
    for path, content in withheld.items():
        path.write_bytes(content)
    third.sync()
    assert texts_of(third.core) == texts_of(other.core)
