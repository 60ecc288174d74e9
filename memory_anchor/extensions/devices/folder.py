"""The files of a sync folder, and how they are read and written; no file is ever edited.

    folder.json                              format, id, salt and cost of the passphrase, the authority's public key
    keys/NAME.key                            one folder key, wrapped for the passphrase and for devices
    devices/DEVICE-0001.card                 a device: name, keys, person, projects; vouched for by the authority
    revoked/DEVICE-BY.gone                   a device that is revoked, and up to which segment it counts
    segments/DEVICE/000001-00000001.seg      generation and number of one closed segment of a device's chain

Each file is written under a temporary name and renamed, and only one device writes a file of its name, so a sync tool
never sees a conflict. Names are random; files with other names are left alone and counted. Somebody who has the folder
sees that it is one of ours, how many devices there are, how many files each wrote when, and their sizes rounded up to a
power of two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from memory_anchor.base.files import SHARED, read_bounded, write_atomic
from memory_anchor.base.json_values import Json
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, NotFound, Refused, Unavailable
from memory_anchor.extensions.devices.sealing import InvalidFile
from memory_anchor.language.safe_regex import late

NAME = "memory-anchor-sync"
FORMAT = 1
FOLDER_FILE = "folder.json"
HEAD_BYTES = 64_000
SEGMENT_BYTES = 64 << 20
ENTRIES_MAX = 1_000_000
DEVICES_MAX = 64
COSTS = frozenset(2**n for n in range(4, 18))
_SEGMENT = late(r"(\d{6})-(\d{8})\.seg")
_ID = late(r"[0-9a-f]{32}")
_CARD = late(r"([0-9a-f]{32})-(\d{4})\.card")
_KEY = late(r"([0-9a-f]{32})\.key")
_GONE = late(r"([0-9a-f]{32})-([0-9a-f]{32})\.gone")
SegmentNumber = tuple[int, int]
"""Generation and number of a segment."""


@dataclass(frozen=True, slots=True)
class FolderHead:
    id: str
    salt: str
    cost: int
    authority: str


@dataclass(slots=True)
class FolderListing:
    """Our files in the folder. cards: device -> its newest number. foreign: the number of other files."""

    keys: list[str] = field(default_factory=list)
    cards: dict[str, int] = field(default_factory=dict)
    revoked: list[tuple[str, str]] = field(default_factory=list)
    segments: dict[str, set[SegmentNumber]] = field(default_factory=dict)
    foreign: int = 0


class SyncFolder:
    """One folder that a sync tool, a stick or Git carries between devices."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def below(cls, chosen: Path) -> SyncFolder:
        """Return the sync folder for a chosen folder: that one, or a folder of our name in it."""
        is_ours = chosen.name == NAME or (chosen / FOLDER_FILE).is_file()
        return cls(chosen if is_ours else chosen / NAME)

    def head(self) -> FolderHead | None:
        """Return the folder's head, None when it has none yet. Raises BadInput: it is not valid."""
        content = self._read(self.root / FOLDER_FILE, HEAD_BYTES)
        if content is None:
            return None
        try:
            fields = json.loads(content)
            head = FolderHead(str(fields["id"]), str(fields["salt"]), int(fields["cost"]), str(fields["authority"]))
            if (form := fields["memory_anchor_sync"]) != FORMAT:
                raise BadInput(
                    f"{self.root} has format {form!r}, this version knows {FORMAT}; update Memory Anchor here"
                )
            if not _ID.fullmatch(head.id) or not _ID.fullmatch(head.salt) or head.cost not in COSTS:
                raise ValueError
            return head
        except (ValueError, KeyError, TypeError, RecursionError):
            raise BadInput(
                f"{self.root / FOLDER_FILE} is not a sync folder's; name another folder, or bring that file back"
            ) from None

    def begin(self, head: FolderHead) -> None:
        content = json.dumps({"memory_anchor_sync": FORMAT, **asdict(head)}, indent=1)
        self.write(FOLDER_FILE, content.encode() + b"\n")

    def listed(self) -> FolderListing:
        """Return our files in the folder. Raises Unavailable: it is not there or cannot be read."""
        listing = FolderListing()
        remaining = ENTRIES_MAX
        for path in self._entries(self.root):
            match path.name:
                case "keys":
                    listing.keys += [match[1] for match in self._matching(path, _KEY, listing)]
                case "devices":
                    for match in self._matching(path, _CARD, listing):
                        listing.cards[match[1]] = max(listing.cards.get(match[1], 0), int(match[2]))
                case "revoked":
                    listing.revoked += [(match[1], match[2]) for match in self._matching(path, _GONE, listing)]
                case "segments":
                    for device in self._matching(path, _ID, listing):
                        segments = self._matching(path / device[0], _SEGMENT, listing)
                        numbers = [(int(match[1]), int(match[2])) for match in segments]
                        listing.segments[device[0]] = set(numbers[:remaining])
                        listing.foreign += len(numbers[remaining:])
                        remaining = max(0, remaining - len(numbers))
                case _:
                    listing.foreign += path.name not in (FOLDER_FILE, ".git")
        return listing

    def key(self, name: str) -> dict[str, Json]:
        """Return one key file. Raises InvalidFile."""
        content = self._read(self.root / "keys" / f"{name}.key", HEAD_BYTES)
        try:
            fields = json.loads(content or b"")
            if isinstance(fields, dict) and fields.get("name") == name:
                return fields
        except (ValueError, RecursionError):
            raise InvalidFile("it is cut off or changed", is_partial=True) from None
        raise InvalidFile("it is not under its own name")

    def card(self, device: str, number: int) -> bytes:
        return self.content(f"devices/{device}-{number:04d}.card", HEAD_BYTES)

    def revocation(self, device: str, by: str) -> bytes:
        return self.content(f"revoked/{device}-{by}.gone", HEAD_BYTES)

    def segment(self, device: str, number: SegmentNumber) -> bytes:
        return self.content(segment_name(device, number), SEGMENT_BYTES)

    def content(self, name: str, most: int) -> bytes:
        """Return the bytes of a listed file. Raises InvalidFile: it is too large, or not there any more."""
        content = self._read(self.root / name, most)
        if content is None:
            raise InvalidFile("it is gone again", is_partial=True)
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write a new file. Raises Refused, DiskFull, Unavailable: it cannot be written."""
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

    def check_available(self) -> None:
        """Raise NotFound where the folder is not there, as on a stick that is not plugged in."""
        if not (self.root / FOLDER_FILE).is_file():
            raise NotFound(
                f"the sync folder {self.root} is not there; plug it in or start its sync tool and run "
                "`memory-anchor sync now`, or name another with `memory-anchor sync setup FOLDER`"
            )

    def _matching(self, folder: Path, form: re.Pattern[str], listing: FolderListing) -> Iterator[re.Match[str]]:
        """Yield the names in a folder that match; others count as foreign."""
        for path in self._entries(folder):
            if match := form.fullmatch(path.name):
                yield match
            else:
                listing.foreign += 1

    def _entries(self, folder: Path) -> Iterator[Path]:
        try:
            yield from sorted(folder.iterdir()) if folder.is_dir() else []
        except OSError as error:
            raise Unavailable(f"the sync folder {folder} cannot be read ({error.strerror}); retry later") from error

    def _read(self, path: Path, most: int) -> bytes | None:
        try:
            return read_bounded(path, most_bytes=most)
        except OSError as error:
            raise InvalidFile(f"it cannot be read ({error.strerror})") from error


def segment_name(device: str, number: SegmentNumber) -> str:
    return f"segments/{device}/{number[0]:06d}-{number[1]:08d}.seg"
