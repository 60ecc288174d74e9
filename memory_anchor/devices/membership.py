"""This device, and who else belongs to a sync folder: set up, vouched for with the passphrase, revoked.

`sync/device.json` (0600, beside the store) holds this device's keys, the folder keys it may open and the public key of
the folder's authority, pinned at set-up. Who knows the sync passphrase can vouch (`Authority`): a device's card and a
revocation count only with that signature, so neither another device nor whoever writes into the folder can add one.
The key of each device's human stands in its card; a purge travels only with that key's signature.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from memory_anchor.devices import sealing
from memory_anchor.devices.folder import DEVICES_MAX, FolderHead, FolderListing, SyncFolder
from memory_anchor.devices.ledger import Reached
from memory_anchor.devices.sealing import Authority, DeviceKeys, Unfit
from memory_anchor.errors import BadInput, NotFound, Refused, StoreDamaged
from memory_anchor.files import file_lock, make_private, read_bounded, write_atomic
from memory_anchor.identity import keys
from memory_anchor.json_values import Json, Record, items, record, text, texts, whole

FOLDER = "sync"
DEVICE_FILE = "device.json"
FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Card:
    """A device as others know it. human: the public key whose word on purges counts. projects: shared id -> aliases."""

    device: str
    name: str
    opening: str
    signing: str
    human: str
    account: str
    user: str
    made_at: str
    projects: dict[str, list[str]] = field(default_factory=dict)
    number: int = 1

    def said(self, folder: str) -> dict[str, Json]:
        return {"what": "memory-anchor/sync/device/1", "folder": folder, **asdict(self)}


_CARD_TEXTS = ("device", "name", "opening", "signing", "human", "account", "user", "made_at")


@dataclass(frozen=True, slots=True)
class Revocation:
    """A device counts up to this segment and no further."""

    device: str
    by: str
    at: str
    generation: int
    segment: int

    def said(self, folder: str) -> dict[str, Json]:
        return {"what": "memory-anchor/sync/revoked/1", "folder": folder, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Device:
    """This device in one sync folder. projects: id here -> shared id. everything: new projects are synced too."""

    folder: str
    folder_id: str
    authority: str
    device: str
    name: str
    account: str
    user: str
    human: str
    keys: DeviceKeys
    folder_keys: Mapping[str, bytes]
    projects: Mapping[str, str]
    everything: bool = False
    card_number: int = 1
    git: bool = False

    @property
    def place(self) -> SyncFolder:
        return SyncFolder(Path(self.folder))


@dataclass(slots=True)
class Members:
    """Who belongs to a folder, as far as this device can read it. wrong: sentences about what it cannot."""

    cards: dict[str, Card] = field(default_factory=dict)
    revoked: dict[str, Revocation] = field(default_factory=dict)
    keys: dict[str, bytes] = field(default_factory=dict)
    shut: dict[str, frozenset[str]] = field(default_factory=dict)
    """Key -> the devices that were left out when it was made."""
    wrong: list[str] = field(default_factory=list)

    def names(self, device: str) -> str:
        return self.cards[device].name if device in self.cards else f"device {device[:8]}"

    def key_to_write(self) -> str:
        """Return the newest key that no revoked device can open. Raises Refused: there is none."""
        good = [name for name in self.keys if self.shut[name] >= set(self.revoked)]
        if not good:
            raise Refused(
                "no folder key shuts out every revoked device; run `memory-anchor sync revoke` for one of them again, "
                "or `memory-anchor sync setup` here if that was done on another device"
            )
        return max(good, key=lambda name: (len(self.shut[name]), name))

    def share_a_name(self) -> list[str]:
        """Return one sentence for each name that two devices have."""
        counted = [card.name for device, card in self.cards.items() if device not in self.revoked]
        return [
            f"{counted.count(name)} devices are called {name!r}; on one of them run `memory-anchor sync setup` with "
            "--name and another name"
            for name in sorted({one for one in counted if counted.count(one) > 1})
        ]


# --- this device ---------------------------------------------------------------------------------------------------


def load(data_dir: Path) -> Device | None:
    """Return this device, None where sync was never set up. Raises StoreDamaged."""
    path = data_dir / FOLDER / DEVICE_FILE
    try:
        content = read_bounded(path, most_bytes=FILE_BYTES)
        if content is None:
            return None
        told = json.loads(content)
        keys = DeviceKeys(sealing.raw(told.pop("opening")), sealing.raw(told.pop("signing")))
        folder_keys = {str(name): sealing.raw(key) for name, key in told.pop("folder_keys").items()}
        return Device(keys=keys, folder_keys=folder_keys, **told)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, Unfit):
        raise StoreDamaged(
            f"{path} is not readable; run `memory-anchor sync setup FOLDER` to join the folder anew"
        ) from None


@contextlib.contextmanager
def alone(data_dir: Path) -> Iterator[None]:
    """Keep every process from exchanging, or from changing what this device knows of the folder, meanwhile."""
    with file_lock(data_dir / FOLDER / "lock"):
        yield


def keep(data_dir: Path, device: Device) -> None:
    make_private(data_dir / FOLDER)
    told = {name: getattr(device, name) for name in Device.__dataclass_fields__ if name not in ("keys", "folder_keys")}
    told |= {"projects": dict(device.projects)}
    told |= {"opening": sealing.text(device.keys.opening), "signing": sealing.text(device.keys.signing)}
    told |= {"folder_keys": {name: sealing.text(key) for name, key in device.folder_keys.items()}}
    write_atomic(data_dir / FOLDER / DEVICE_FILE, json.dumps(told, indent=1).encode())


# --- who else ------------------------------------------------------------------------------------------------------


def members_of(
    place: SyncFolder,
    listed: FolderListing,
    folder_id: str,
    authority: str,
    *,
    known: Mapping[str, bytes],
    opens: Callable[[str, dict[str, Json]], bytes | None],
) -> Members:
    """Return who belongs to the folder. opens: gives a folder key out of its file, None where it is not for us."""
    found = Members()
    for name in listed.keys:
        try:
            told = place.key(name)
            if not keys.signed_by(authority, _key_said(folder_id, told), str(told.get("signature"))):
                raise Unfit("the passphrase's owner did not sign it")
            key = known.get(name) or opens(name, told)
            if key is not None:
                found.keys[name], found.shut[name] = key, frozenset(map(str, items(told.get("without"))))
        except Unfit as error:
            found.wrong.append(f"keys/{name}.key is left out: {error.why}; bring it back from another device")
    for device, number in list(listed.cards.items())[:DEVICES_MAX]:
        try:
            found.cards[device] = _card(place.card(device, number), device, number, found, folder_id, authority)
        except Unfit as error:
            found.wrong.append(f"device {device[:8]} is left out: its card does not count, since {error.why}")
    for device, by in listed.revoked:
        try:
            gone = _revocation(place.revocation(device, by), device, by, found, folder_id, authority)
        except Unfit as error:
            found.wrong.append(f"a revocation of device {device[:8]} does not count, since {error.why}")
            continue
        before = found.revoked.get(device)
        if before is None or (gone.generation, gone.segment) < (before.generation, before.segment):
            found.revoked[device] = gone
    return found


def members(device: Device, listed: FolderListing) -> Members:
    """Return who belongs to this device's folder."""

    def opens(name: str, told: dict[str, Json]) -> bytes | None:
        stanza = record(told.get("devices")).get(device.device)
        return sealing.unwrapped_for(device.keys.opening, stanza, name=name) if stanza is not None else None

    known = device.folder_keys
    return members_of(device.place, listed, device.folder_id, device.authority, known=known, opens=opens)


def _card(file: bytes, device: str, number: int, found: Members, folder: str, authority: str) -> Card:
    told = _opened(file, found, kind="card", public="")
    try:
        words = {name: text(told[name]) for name in _CARD_TEXTS}
        projects = {name: texts(aliases) for name, aliases in record(told.get("projects")).items()}
        card = Card(**words, projects=projects, number=whole(told.get("number"), 1))
        signature = _vouched(told, Card)
    except (ValueError, KeyError):
        raise Unfit("it is of another version") from None
    if (card.device, card.number) != (device, number) or card.signing != sealing.head_of(file).get("by"):
        raise Unfit("it is another device's")
    if not keys.signed_by(authority, card.said(folder), signature):
        raise Unfit("nobody who knows the passphrase vouched for it")
    return card


def _revocation(file: bytes, device: str, by: str, found: Members, folder: str, authority: str) -> Revocation:
    told = _opened(file, found, kind="revoked", public=found.cards[by].signing if by in found.cards else "")
    try:
        words = {name: text(told[name]) for name in ("device", "by", "at")}
        gone = Revocation(**words, generation=whole(told["generation"]), segment=whole(told["segment"]))
        signature = _vouched(told, Revocation)
    except (ValueError, KeyError):
        raise Unfit("it is of another version") from None
    if (gone.device, gone.by) != (device, by):
        raise Unfit("it is of another device")
    if not keys.signed_by(authority, gone.said(folder), signature):
        raise Unfit("nobody who knows the passphrase signed it")
    return gone


def _vouched(told: Record, form: type[Card | Revocation]) -> str:
    """Return the authority's signature. Raises ValueError: there is more than the form has."""
    if strange := told.keys() - form.__dataclass_fields__.keys() - {"vouched"}:
        raise ValueError(min(strange))
    return str(told["vouched"])


def _opened(file: bytes, found: Members, *, kind: str, public: str) -> dict[str, Json]:
    head = sealing.head_of(file)
    key = found.keys.get(str(head.get("key")))
    if head.get("kind") != kind:
        raise Unfit("it is another kind of file")
    if key is None:
        raise Unfit("this device has no key for it (`memory-anchor sync setup` asks the passphrase for it)")
    content = sealing.opened_file(file, key=key, public=public or str(head.get("by")))
    try:
        told = json.loads(content)
    except (ValueError, RecursionError):
        raise Unfit("it is not readable") from None
    if not isinstance(told, dict):
        raise Unfit("it is not readable")
    return told


def _key_said(folder: str, told: Mapping[str, Json]) -> dict[str, Json]:
    return {
        "what": "memory-anchor/sync/key/1",
        "folder": folder,
        **{name: value for name, value in told.items() if name != "signature"},
    }


# --- set up and revoke ---------------------------------------------------------------------------------------------


def unlocked(place: SyncFolder, passphrase: str, *, new_token: Callable[[], str]) -> tuple[FolderHead, Authority]:
    """Return the folder and what its passphrase opens; a folder that is none of ours yet is begun with this one.

    Raises Refused: another passphrase. BadInput: too weak a one for a new folder.
    """
    head = place.head()
    if head is None:
        keys.checked_passphrase(passphrase)
        salt, cost = new_token(), keys.SCRYPT_COST
        authority = sealing.authority_of(passphrase, salt=bytes.fromhex(salt), cost=cost)
        head = FolderHead(new_token(), salt, cost, authority.public)
        place.begin(head)
        return head, authority
    authority = sealing.authority_of(passphrase, salt=bytes.fromhex(head.salt), cost=head.cost)
    if authority.public != head.authority:
        raise Refused(f"this is not the sync passphrase of {place.root}; nothing was changed")
    return head, authority


def all_members(place: SyncFolder, head: FolderHead, authority: Authority) -> Members:
    """Return who belongs to a folder whose passphrase is known."""

    def opens(name: str, told: dict[str, Json]) -> bytes | None:
        return sealing.unwrapped_by(authority.wrapping, told.get("passphrase"), name=name)

    return members_of(place, place.listed(), head.id, authority.public, known={}, opens=opens)


def new_folder_key(
    place: SyncFolder,
    folder: str,
    authority: Authority,
    cards: Sequence[Card],
    *,
    without: Sequence[str],
    new_token: Callable[[], str],
) -> tuple[str, bytes]:
    """Write a folder key for the passphrase and these devices; return its name and itself."""
    name, key = new_token(), sealing.new_key()
    told: dict[str, Json] = {
        "name": name,
        "without": sorted(without),
        "passphrase": sealing.wrapped_by(authority.wrapping, key, name=name),
        "devices": {one.device: sealing.wrapped_for(one.opening, key, name=name) for one in cards},
    }
    told["signature"] = authority.sign(_key_said(folder, told))
    place.write(f"keys/{name}.key", json.dumps(told, indent=1).encode())
    return name, key


def join(
    data_dir: Path,
    place: SyncFolder,
    *,
    passphrase: str,
    name: str,
    account: str,
    user: str,
    human: str,
    projects: Callable[[Mapping[str, Sequence[str]]], tuple[dict[str, str], dict[str, list[str]]]],
    everything: bool,
    git: bool,
    anew: bool,
    now: datetime,
    new_token: Callable[[], str],
) -> Device:
    """Make this device part of a folder, or renew what it knows of it, and return it.

    projects: shared id -> aliases of those in the folder -> (id here -> shared id, shared id -> aliases to tell).
    anew: as a device of its own, whatever it was before. Raises Refused, BadInput: see the sentences.
    """
    sealing.checked_name(name)
    head, authority = unlocked(place, passphrase, new_token=new_token)
    there = all_members(place, head, authority)
    before = None if anew else _before(data_dir, head)
    device = before.device if before is not None else new_token()
    if device in there.revoked:
        raise Refused(
            "this device was revoked; run `memory-anchor sync setup` with --new-device to join as another one"
        )
    live = [card for card in there.cards.values() if card.device != device and card.device not in there.revoked]
    if any(card.name == name for card in live):
        raise Refused(f"another device of this folder is called {name!r}; choose another --name")
    stranger = next((card for card in live if (card.account, card.user) != (account, user)), None)
    if stranger is not None:
        raise Refused(
            f"this folder is of account {stranger.account!r}, user {stranger.user!r}, and here it is {account!r}, "
            f"{user!r}: what is private stays with one person; set scope.user and scope.account alike, or use another "
            "folder"
        )
    if len(there.cards) >= DEVICES_MAX:
        raise BadInput(f"the folder has {len(there.cards)} devices; allowed are {DEVICES_MAX}: begin a new folder")
    keys = before.keys if before is not None else DeviceKeys.made()
    if not there.keys:
        name_of_key, key = new_folder_key(place, head.id, authority, [], without=[], new_token=new_token)
        there.keys[name_of_key], there.shut[name_of_key] = key, frozenset()
    shared: dict[str, list[str]] = {}
    for one in there.cards.values():
        for shared_id, aliases in one.projects.items():
            shared.setdefault(shared_id, []).extend(aliases)
    mapped, told = projects(shared)
    number = there.cards[device].number + 1 if device in there.cards else 1
    opening, signing = keys.publics
    card = Card(device, name, opening, signing, human, account, user, now.isoformat(), told, number)
    _write_card(place, head.id, card, authority, keys.signer, there, new_token)
    made = Device(
        *(str(place.root), head.id, authority.public, device, name, account, user, human),
        keys=keys,
        folder_keys=dict(there.keys),
        projects=mapped,
        everything=everything,
        card_number=number,
        git=git,
    )
    keep(data_dir, made)
    return made


def _before(data_dir: Path, head: FolderHead) -> Device | None:
    try:
        before = load(data_dir)
    except StoreDamaged:
        return None
    return before if before is not None and before.folder_id == head.id else None


def _write_card(
    place: SyncFolder,
    folder: str,
    card: Card,
    authority: Authority,
    signer: Ed25519PrivateKey,
    there: Members,
    new_token: Callable[[], str],
) -> None:
    key = there.key_to_write()
    content = json.dumps({**asdict(card), "vouched": authority.sign(card.said(folder))}).encode()
    head = {"kind": "card", "device": card.device, "by": card.signing, "key": key, "salt": new_token()}
    file = sealing.sealed_file(head, content, key=there.keys[key], signer=signer)
    place.write(f"devices/{card.device}-{card.number:04d}.card", file)


def revoke(
    data_dir: Path,
    device: Device,
    name: str,
    passphrase: str,
    *,
    reached: Callable[[str], Reached],
    now: datetime,
    new_token: Callable[[], str],
) -> Card:
    """Shut a device out: what it wrote up to now counts, nothing later does, and no later file opens for it.

    Raises NotFound: no such device. Refused: another passphrase, or this very device.
    """
    place = device.place
    place.check_there()
    head, authority = unlocked(place, passphrase, new_token=new_token)
    there = all_members(place, head, authority)
    live = {card.name: card for card in there.cards.values() if card.device not in there.revoked}
    named = live.get(name) or next((one for one in live.values() if one.device == name), None)
    if named is None:
        raise NotFound(f"no device {name[:40]!r} in this folder; there are {', '.join(sorted(live)) or 'none'}")
    if named.device == device.device:
        raise Refused("this device cannot revoke itself; revoke it from another one")
    last = reached(named.device)
    gone = Revocation(named.device, device.device, now.isoformat(), last.generation, last.segment)
    content = json.dumps({**asdict(gone), "vouched": authority.sign(gone.said(head.id))}).encode()
    # With a key that the revoked device has too, so that it learns of it; what follows is sealed with a new one.
    key = there.key_to_write()
    told = {"kind": "revoked", "device": named.device, "by": device.keys.publics[1], "key": key, "salt": new_token()}
    staying = [card for card in live.values() if card.device != named.device]
    without = [*there.revoked, named.device]
    fresh, opened = new_folder_key(place, head.id, authority, staying, without=without, new_token=new_token)
    file = sealing.sealed_file(told, content, key=there.keys[key], signer=device.keys.signer)
    place.write(f"revoked/{named.device}-{device.device}.gone", file)
    keep(data_dir, replace(device, folder_keys={**there.keys, fresh: opened}))
    return named
