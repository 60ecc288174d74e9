"""What lies in a sync folder, and how it is read and written; nothing in it is ever edited.

    folder.json                              format, id, salt and cost of the passphrase, the authority's public key
    keys/NAME.key                            one folder key, wrapped for the passphrase and for devices
    devices/DEVICE-0001.card                 a device: name, keys, person, projects; vouched for by the authority
    revoked/DEVICE-BY.gone                   a device that counts no more, and up to which segment it did
    segments/DEVICE/000001-00000001.seg      generation and number of one closed piece of a device's chain

Each file is written beside its place and renamed, and has a name that no other device writes, so no sync tool can make
a conflict of it. Names are random; what is not of this form is left alone and counted. Whoever has the folder sees:
that it is one of ours, how many devices there are, how many files each wrote when, and a power of two of their sizes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from memory_anchor.devices.sealing import Unfit
from memory_anchor.errors import BadInput, MemoryAnchorError, NotFound, Refused, Unavailable
from memory_anchor.files import SHARED, read_bounded, write_atomic
from memory_anchor.json_values import Json

NAME = "memory-anchor-sync"
FORMAT = 1
FOLDER_FILE = "folder.json"
HEAD_BYTES = 64_000
SEGMENT_BYTES = 64 << 20
ENTRIES_MAX = 1_000_000
DEVICES_MAX = 64
COSTS = frozenset(2**n for n in range(4, 18))
_SEGMENT = re.compile(r"(\d{6})-(\d{8})\.seg")
_ID = re.compile(r"[0-9a-f]{32}")
_CARD = re.compile(r"([0-9a-f]{32})-(\d{4})\.card")
_KEY = re.compile(r"([0-9a-f]{32})\.key")
_GONE = re.compile(r"([0-9a-f]{32})-([0-9a-f]{32})\.gone")
Place = tuple[int, int]
"""Generation and number of a segment."""


@dataclass(frozen=True, slots=True)
class FolderHead:
    id: str
    salt: str
    cost: int
    authority: str


@dataclass(slots=True)
class FolderListing:
    """What of the folder is ours. cards: device -> its newest number. foreign: files that are not."""

    keys: list[str] = field(default_factory=list)
    cards: dict[str, int] = field(default_factory=dict)
    revoked: list[tuple[str, str]] = field(default_factory=list)
    segments: dict[str, set[Place]] = field(default_factory=dict)
    foreign: int = 0


class SyncFolder:
    """One folder that a sync tool, a stick or Git carries between devices."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def below(cls, chosen: Path) -> SyncFolder:
        """Return the sync folder of what a person named: itself, or one of our name in it."""
        is_ours = chosen.name == NAME or (chosen / FOLDER_FILE).is_file()
        return cls(chosen if is_ours else chosen / NAME)

    def head(self) -> FolderHead | None:
        """Return what the folder says of itself, None when it says nothing yet. Raises BadInput, Unavailable."""
        content = self._read(self.root / FOLDER_FILE, HEAD_BYTES)
        if content is None:
            return None
        try:
            told = json.loads(content)
            head = FolderHead(str(told["id"]), str(told["salt"]), int(told["cost"]), str(told["authority"]))
            if told["memory_anchor_sync"] != FORMAT:
                raise BadInput(
                    f"{self.root} has format {told['memory_anchor_sync']!r}, this version knows {FORMAT}; "
                    "update Memory Anchor here"
                )
            if not _ID.fullmatch(head.id) or not _ID.fullmatch(head.salt) or head.cost not in COSTS:
                raise ValueError
            return head
        except (ValueError, KeyError, TypeError, RecursionError):
            raise BadInput(
                f"{self.root / FOLDER_FILE} is not a sync folder's; name another folder, or bring that file back"
            ) from None

    def begin(self, head: FolderHead) -> None:
        told = {"memory_anchor_sync": FORMAT, "id": head.id, "salt": head.salt, "cost": head.cost}
        self.write(FOLDER_FILE, json.dumps({**told, "authority": head.authority}, indent=1).encode() + b"\n")

    def listed(self) -> FolderListing:
        """Return what lies there. Raises Unavailable: the folder is away or cannot be read."""
        found = FolderListing()
        left = ENTRIES_MAX
        for path in self._entries(self.root):
            match path.name:
                case "keys":
                    found.keys += [form[1] for form in self._of_form(path, _KEY, found)]
                case "devices":
                    for form in self._of_form(path, _CARD, found):
                        found.cards[form[1]] = max(found.cards.get(form[1], 0), int(form[2]))
                case "revoked":
                    found.revoked += [(form[1], form[2]) for form in self._of_form(path, _GONE, found)]
                case "segments":
                    for device in self._of_form(path, _ID, found):
                        places = [
                            (int(one[1]), int(one[2])) for one in self._of_form(path / device[0], _SEGMENT, found)
                        ]
                        found.segments[device[0]] = set(places[:left])
                        found.foreign += len(places[left:])
                        left = max(0, left - len(places))
                case _:
                    found.foreign += path.name != FOLDER_FILE and path.name != ".git"
        return found

    def key(self, name: str) -> dict[str, Json]:
        """Return one key file. Raises Unfit."""
        content = self._read(self.root / "keys" / f"{name}.key", HEAD_BYTES)
        try:
            told = json.loads(content or b"")
            if isinstance(told, dict) and told.get("name") == name:
                return told
        except (ValueError, RecursionError):
            raise Unfit("it is cut off or changed", torn=True) from None
        raise Unfit("it is not under its own name")

    def card(self, device: str, number: int) -> bytes:
        return self.content(f"devices/{device}-{number:04d}.card", HEAD_BYTES)

    def revocation(self, device: str, by: str) -> bytes:
        return self.content(f"revoked/{device}-{by}.gone", HEAD_BYTES)

    def segment(self, device: str, place: Place) -> bytes:
        return self.content(segment_name(device, place), SEGMENT_BYTES)

    def content(self, name: str, most: int) -> bytes:
        """Return the bytes of a file that was listed. Raises Unfit: it is too large, or gone meanwhile."""
        content = self._read(self.root / name, most)
        if content is None:
            raise Unfit("it is gone again", torn=True)
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write a new file. Raises Refused, DiskFull, Unavailable: it cannot be."""
        try:
            write_atomic(self.root / name, content, mode=SHARED)
        except MemoryAnchorError as error:
            raise type(error)(
                f"the sync folder {self.root} cannot be written: {error} Nothing is lost: it is sent when it can be."
            ) from error

    def remove(self, name: str) -> None:
        try:
            (self.root / name).unlink(missing_ok=True)
        except OSError as error:
            raise Refused(f"the sync folder {self.root} cannot be written ({error.strerror}); retry") from error

    def check_there(self) -> None:
        """Raise NotFound: the folder is away, as a stick is that is not plugged in."""
        if not (self.root / FOLDER_FILE).is_file():
            raise NotFound(
                f"the sync folder {self.root} is not there; plug it in or start its sync tool and run "
                "`memory-anchor sync now`, or name another with `memory-anchor sync setup FOLDER`"
            )

    def _of_form(self, folder: Path, form: re.Pattern[str], found: FolderListing) -> Iterator[re.Match[str]]:
        """Yield the names in a folder that have a form of ours; others count as foreign."""
        for one in self._entries(folder):
            if match := form.fullmatch(one.name):
                yield match
            else:
                found.foreign += 1

    def _entries(self, folder: Path) -> Iterator[Path]:
        try:
            yield from sorted(folder.iterdir()) if folder.is_dir() else []
        except OSError as error:
            raise Unavailable(f"the sync folder {folder} cannot be read ({error.strerror}); retry later") from error

    def _read(self, path: Path, most: int) -> bytes | None:
        try:
            return read_bounded(path, most_bytes=most)
        except OSError as error:
            raise Unfit(f"it cannot be read ({error.strerror})") from error


def segment_name(device: str, place: Place) -> str:
    return f"segments/{device}/{place[0]:06d}-{place[1]:08d}.seg"
