"""This device and the other members of a sync folder: how they join, are vouched for, and are revoked.

`sync/device.json` (0600, next to the store) holds this device's keys, its folder keys and the public key of the
folder's authority, pinned at set-up. The sync passphrase vouches (`Authority`): a device's card and a revocation count
only with that signature, so neither another device nor somebody who writes into the folder can add one. A device's card
has the key of its human; a purge counts on other devices only with that key's signature.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path

from memory_anchor.base.files import file_lock, make_private, read_bounded, write_atomic
from memory_anchor.base.json_values import Json, Record, items, record, text, texts, whole
from memory_anchor.domain.errors import BadInput, NotFound, Refused, StoreDamaged
from memory_anchor.extensions.devices import sealing
from memory_anchor.extensions.devices.folder import DEVICES_MAX, FolderHead, FolderListing, SyncFolder
from memory_anchor.extensions.devices.ledger import ChainPosition
from memory_anchor.extensions.devices.sealing import Authority, DeviceKeys, InvalidFile
from memory_anchor.identity import keys

FOLDER = "sync"
DEVICE_FILE = "device.json"
FILE_BYTES = 1 << 20
NAME_MAX = 40


@dataclass(frozen=True, slots=True)
class Card:
    """A device as other members see it. human: the public key that signs purges. projects: shared id -> aliases."""

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

    def statement(self, folder: str) -> dict[str, Json]:
        return {"what": "memory-anchor/sync/device/1", "folder": folder, **asdict(self)}


_CARD_TEXTS = ("device", "name", "opening", "signing", "human", "account", "user", "made_at")


@dataclass(frozen=True, slots=True)
class Revocation:
    """A device whose segments after this one do not count."""

    device: str
    by: str
    at: str
    generation: int
    segment: int

    def statement(self, folder: str) -> dict[str, Json]:
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
    def sync_folder(self) -> SyncFolder:
        return SyncFolder(Path(self.folder))


@dataclass(slots=True)
class Members:
    """The members of a folder, as far as this device can read them. problems: sentences about the others."""

    cards: dict[str, Card] = field(default_factory=dict)
    revoked: dict[str, Revocation] = field(default_factory=dict)
    keys: dict[str, bytes] = field(default_factory=dict)
    excluded: dict[str, frozenset[str]] = field(default_factory=dict)
    """Key -> the revoked devices, for which it was not wrapped."""
    problems: list[str] = field(default_factory=list)

    def name_of(self, device: str) -> str:
        return self.cards[device].name if device in self.cards else f"device {device[:8]}"

    def key_to_write(self) -> str:
        """Return the newest key that no revoked device can open. Raises Refused: there is none."""
        names = [name for name in self.keys if self.excluded[name] >= set(self.revoked)]
        if not names:
            raise Refused(
                "no folder key shuts out every revoked device; run `memory-anchor sync revoke` for one of them again, "
                "or `memory-anchor sync setup` here if that was done on another device"
            )
        return max(names, key=lambda name: (len(self.excluded[name]), name))

    def duplicate_names(self) -> list[str]:
        """Return one sentence for each name that several devices have."""
        names = Counter(card.name for device, card in self.cards.items() if device not in self.revoked)
        return [
            f"{count} devices are called {name!r}; on one of them run `memory-anchor sync setup` with "
            "--name and another name"
            for name, count in sorted(names.items())
            if count > 1
        ]


# --- this device ---------------------------------------------------------------------------------------------------


def load(data_dir: Path) -> Device | None:
    """Return this device, None where sync was never set up. Raises StoreDamaged."""
    path = data_dir / FOLDER / DEVICE_FILE
    try:
        content = read_bounded(path, most_bytes=FILE_BYTES)
        if content is None:
            return None
        fields = json.loads(content)
        device_keys = DeviceKeys(*(sealing.from_base64(fields.pop(name)) for name in ("opening", "signing")))
        folder_keys = {str(name): sealing.from_base64(key) for name, key in fields.pop("folder_keys").items()}
        return Device(keys=device_keys, folder_keys=folder_keys, **fields)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidFile):
        raise StoreDamaged(
            f"{path} is not readable; run `memory-anchor sync setup FOLDER` to join the folder anew"
        ) from None


@contextlib.contextmanager
def exchange_lock(data_dir: Path) -> Iterator[None]:
    """Keep other processes from an exchange, and from changing this device's membership, during the block."""
    with file_lock(data_dir / FOLDER / "lock"):
        yield


def save(data_dir: Path, device: Device) -> None:
    make_private(data_dir / FOLDER)
    plain = [name for name in Device.__dataclass_fields__ if name not in ("keys", "folder_keys")]
    fields = {name: getattr(device, name) for name in plain} | {"projects": dict(device.projects)}
    fields |= {name: sealing.to_base64(getattr(device.keys, name)) for name in ("opening", "signing")}
    fields |= {"folder_keys": {name: sealing.to_base64(key) for name, key in device.folder_keys.items()}}
    write_atomic(data_dir / FOLDER / DEVICE_FILE, json.dumps(fields, indent=1).encode())


# --- members --------------------------------------------------------------------------------------------------------


def read_members(
    sync_folder: SyncFolder,
    listing: FolderListing,
    folder_id: str,
    authority: str,
    unwrap: Callable[[str, Record], bytes | None],
) -> Members:
    """Return the members of a folder. unwrap: returns the folder key in a key file, None where it is not for us."""
    members = Members()
    for name in listing.keys:
        try:
            fields = sync_folder.key(name)
            if not keys.signed_by(authority, _key_statement(folder_id, fields), str(fields.get("signature"))):
                raise InvalidFile("the passphrase's owner did not sign it")
            key = unwrap(name, fields)
            if key is not None:
                members.keys[name] = key
                members.excluded[name] = frozenset(map(str, items(fields.get("without"))))
        except InvalidFile as error:
            members.problems.append(f"keys/{name}.key is left out: {error.why}; bring it back from another device")
    for device, number in list(listing.cards.items())[:DEVICES_MAX]:
        try:
            file = sync_folder.card(device, number)
            members.cards[device] = _card(file, device, number, members, folder_id, authority)
        except InvalidFile as error:
            members.problems.append(f"device {device[:8]} is left out: its card does not count, since {error.why}")
    for device, by in listing.revoked:
        try:
            file = sync_folder.revocation(device, by)
            revocation = _revocation(file, device, by, members, folder_id, authority)
        except InvalidFile as error:
            members.problems.append(f"a revocation of device {device[:8]} does not count, since {error.why}")
            continue
        other = members.revoked.get(device)
        if other is None or (revocation.generation, revocation.segment) < (other.generation, other.segment):
            members.revoked[device] = revocation
    return members


def members_for(device: Device, listing: FolderListing) -> Members:
    """Return the members of this device's folder."""

    def unwrap(name: str, fields: Record) -> bytes | None:
        wrapped = record(fields.get("devices")).get(device.device)
        if name in device.folder_keys or wrapped is None:
            return device.folder_keys.get(name)
        return sealing.unwrap_for_device(device.keys.opening, wrapped, name=name)

    return read_members(device.sync_folder, listing, device.folder_id, device.authority, unwrap)


def members_by_passphrase(sync_folder: SyncFolder, head: FolderHead, authority: Authority) -> Members:
    """Return the members of a folder whose passphrase is known."""

    def unwrap(name: str, fields: Record) -> bytes | None:
        return sealing.unwrap_by_passphrase(authority.wrapping, fields.get("passphrase"), name=name)

    return read_members(sync_folder, sync_folder.listed(), head.id, authority.public, unwrap)


def _card(file: bytes, device: str, number: int, members: Members, folder: str, authority: str) -> Card:
    fields = _decrypted(file, members, kind="card", public="")
    try:
        texts_by_name = {name: text(fields[name]) for name in _CARD_TEXTS}
        projects = {name: texts(aliases) for name, aliases in record(fields.get("projects")).items()}
        card = Card(**texts_by_name, projects=projects, number=whole(fields.get("number"), 1))
    except (ValueError, KeyError):
        raise InvalidFile("it is of another version") from None
    if (card.device, card.number) != (device, number) or card.signing != sealing.read_head(file).get("by"):
        raise InvalidFile("it is another device's")
    _check_vouched(card, fields, folder, authority)
    return card


def _revocation(file: bytes, device: str, by: str, members: Members, folder: str, authority: str) -> Revocation:
    fields = _decrypted(file, members, kind="revoked", public=members.cards[by].signing if by in members.cards else "")
    try:
        ids = {name: text(fields[name]) for name in ("device", "by", "at")}
        revocation = Revocation(**ids, generation=whole(fields["generation"]), segment=whole(fields["segment"]))
    except (ValueError, KeyError):
        raise InvalidFile("it is of another version") from None
    if (revocation.device, revocation.by) != (device, by):
        raise InvalidFile("it is of another device")
    _check_vouched(revocation, fields, folder, authority)
    return revocation


def _check_vouched(item: Card | Revocation, fields: Record, folder: str, authority: str) -> None:
    """Raise InvalidFile unless the authority signed it and its file has no further fields."""
    if fields.keys() - item.__dataclass_fields__.keys() - {"vouched"}:
        raise InvalidFile("it is of another version")
    if not keys.signed_by(authority, item.statement(folder), str(fields.get("vouched"))):
        raise InvalidFile("nobody who knows the passphrase vouched for it")


def _decrypted(file: bytes, members: Members, *, kind: str, public: str) -> dict[str, Json]:
    head = sealing.read_head(file)
    key = members.keys.get(str(head.get("key")))
    if head.get("kind") != kind:
        raise InvalidFile("it is another kind of file")
    if key is None:
        raise InvalidFile("this device has no key for it (`memory-anchor sync setup` asks the passphrase for it)")
    content = sealing.open_file(file, key=key, public=public or str(head.get("by")))
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise InvalidFile("it is not readable")
    return fields


def _key_statement(folder: str, fields: Record) -> dict[str, Json]:
    signed = {name: value for name, value in fields.items() if name != "signature"}
    return {"what": "memory-anchor/sync/key/1", "folder": folder, **signed}


# --- set up and revoke ---------------------------------------------------------------------------------------------


def unlock(sync_folder: SyncFolder, passphrase: str, *, new_token: Callable[[], str]) -> tuple[FolderHead, Authority]:
    """Return a folder's head and the keys of its passphrase; a folder without a head gets one for this passphrase.

    Raises Refused: the folder has another passphrase. BadInput: it is too weak for a new folder.
    """
    head = sync_folder.head()
    if head is None:
        keys.checked_passphrase(passphrase)
        salt, cost = new_token(), keys.SCRYPT_COST
        authority = sealing.derive_authority(passphrase, salt=bytes.fromhex(salt), cost=cost)
        head = FolderHead(new_token(), salt, cost, authority.public)
        sync_folder.begin(head)
        return head, authority
    authority = sealing.derive_authority(passphrase, salt=bytes.fromhex(head.salt), cost=head.cost)
    if authority.public != head.authority:
        raise Refused(f"this is not the sync passphrase of {sync_folder.root}; nothing was changed")
    return head, authority


def write_folder_key(
    sync_folder: SyncFolder,
    folder: str,
    authority: Authority,
    cards: Sequence[Card],
    *,
    without: Sequence[str],
    new_token: Callable[[], str],
) -> tuple[str, bytes]:
    """Write a new folder key for the passphrase and these devices; return its name and the key."""
    name, key = new_token(), sealing.new_key()
    fields: dict[str, Json] = {
        "name": name,
        "without": sorted(without),
        "passphrase": sealing.wrap_for_passphrase(authority.wrapping, key, name=name),
        "devices": {card.device: sealing.wrap_for_device(card.opening, key, name=name) for card in cards},
    }
    fields["signature"] = authority.sign(_key_statement(folder, fields))
    sync_folder.write(f"keys/{name}.key", json.dumps(fields, indent=1).encode())
    return name, key


def join(
    data_dir: Path,
    sync_folder: SyncFolder,
    *,
    passphrase: str,
    name: str,
    account: str,
    user: str,
    human: str,
    projects: Callable[[Mapping[str, Sequence[str]]], tuple[dict[str, str], dict[str, list[str]]]],
    everything: bool,
    git: bool,
    as_new_device: bool,
    now: datetime,
    new_token: Callable[[], str],
) -> Device:
    """Make this device a member of a folder, or renew its membership, and return it.

    projects: shared id -> aliases of those in the folder -> (id here -> shared id, shared id -> aliases to publish).
    as_new_device: do not renew an earlier membership. Raises Refused, BadInput: see the sentences.
    """
    _check_name(name)
    head, authority = unlock(sync_folder, passphrase, new_token=new_token)
    members = members_by_passphrase(sync_folder, head, authority)
    earlier = None if as_new_device else _earlier_membership(data_dir, head)
    device = earlier.device if earlier is not None else new_token()
    _check_may_join(members, device, name, account, user)
    own_keys = earlier.keys if earlier is not None else DeviceKeys.generate()
    if not members.keys:
        key_name, key = write_folder_key(sync_folder, head.id, authority, [], without=[], new_token=new_token)
        members.keys[key_name], members.excluded[key_name] = key, frozenset()
    shared: dict[str, list[str]] = {}
    for card in members.cards.values():
        for shared_id, aliases in card.projects.items():
            shared.setdefault(shared_id, []).extend(aliases)
    mapped, published = projects(shared)
    number = members.cards[device].number + 1 if device in members.cards else 1
    opening, signing = own_keys.public_keys
    card = Card(device, name, opening, signing, human, account, user, now.isoformat(), published, number)
    _write_vouched(
        sync_folder,
        f"devices/{device}-{number:04d}.card",
        {"kind": "card", "device": device, "by": signing, "key": members.key_to_write(), "salt": new_token()},
        {**asdict(card), "vouched": authority.sign(card.statement(head.id))},
        members,
        own_keys,
    )
    joined = Device(
        *(str(sync_folder.root), head.id, authority.public, device, name, account, user, human),
        keys=own_keys,
        folder_keys=dict(members.keys),
        projects=mapped,
        everything=everything,
        card_number=number,
        git=git,
    )
    save(data_dir, joined)
    return joined


def _check_name(name: str) -> None:
    """Raise BadInput unless a device may have this name."""
    if not (1 <= len(name) <= NAME_MAX and all(char.isalnum() or char in "-_." for char in name)):
        raise BadInput(f"the device's name is {name[:NAME_MAX]!r}; allowed are 1 to {NAME_MAX} letters, digits, - _ .")


def _check_may_join(members: Members, device: str, name: str, account: str, user: str) -> None:
    """Raise Refused, BadInput where a device of this id, name and person cannot join."""
    if device in members.revoked:
        raise Refused(
            "this device was revoked; run `memory-anchor sync setup` with --new-device to join as another one"
        )
    others = [card for card in members.cards.values() if card.device != device and card.device not in members.revoked]
    if any(card.name == name for card in others):
        raise Refused(f"another device of this folder is called {name!r}; choose another --name")
    stranger = next((card for card in others if (card.account, card.user) != (account, user)), None)
    if stranger is not None:
        raise Refused(
            f"this folder is of account {stranger.account!r}, user {stranger.user!r}, and here it is {account!r}, "
            f"{user!r}: what is private stays with one person; set scope.user and scope.account alike, or use another "
            "folder"
        )
    if len(members.cards) >= DEVICES_MAX:
        raise BadInput(f"the folder has {len(members.cards)} devices; allowed are {DEVICES_MAX}: begin a new folder")


def _earlier_membership(data_dir: Path, head: FolderHead) -> Device | None:
    """Return this device as it is in the folder already, None where it is not."""
    try:
        device = load(data_dir)
    except StoreDamaged:
        return None
    return device if device is not None and device.folder_id == head.id else None


def _write_vouched(
    sync_folder: SyncFolder, name: str, head: dict[str, Json], fields: Record, members: Members, own_keys: DeviceKeys
) -> None:
    key = members.keys[str(head["key"])]
    sync_folder.write(name, sealing.seal_file(head, json.dumps(fields).encode(), key=key, signer=own_keys.signer))


def revoke(
    data_dir: Path,
    device: Device,
    name: str,
    passphrase: str,
    *,
    position_of: Callable[[str], ChainPosition],
    now: datetime,
    new_token: Callable[[], str],
) -> Card:
    """Revoke a device and return its card: what it writes from now on does not count, and it can decrypt no new file.

    Raises NotFound: no such device. Refused: another passphrase, or this device itself.
    """
    sync_folder = device.sync_folder
    sync_folder.check_available()
    head, authority = unlock(sync_folder, passphrase, new_token=new_token)
    members = members_by_passphrase(sync_folder, head, authority)
    live = {card.name: card for card in members.cards.values() if card.device not in members.revoked}
    target = live.get(name) or next((card for card in live.values() if card.device == name), None)
    if target is None:
        raise NotFound(f"no device {name[:40]!r} in this folder; there are {', '.join(sorted(live)) or 'none'}")
    if target.device == device.device:
        raise Refused("this device cannot revoke itself; revoke it from another one")
    last = position_of(target.device)
    revocation = Revocation(target.device, device.device, now.isoformat(), last.generation, last.segment)
    key = members.key_to_write()  # the revoked device has it too and learns of the revocation
    others = [card for card in live.values() if card.device != target.device]
    without = [*members.revoked, target.device]
    key_name, new_key = write_folder_key(sync_folder, head.id, authority, others, without=without, new_token=new_token)
    _write_vouched(
        sync_folder,
        f"revoked/{target.device}-{device.device}.gone",
        {"kind": "revoked", "device": target.device, "by": device.keys.public_keys[1], "key": key, "salt": new_token()},
        {**asdict(revocation), "vouched": authority.sign(revocation.statement(head.id))},
        members,
        device.keys,
    )
    save(data_dir, replace(device, folder_keys={**members.keys, key_name: new_key}))
    return target
