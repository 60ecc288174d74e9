"""What the replicas of one service have alike: files of each data directory, kept whole in one record on the server.

The record is what holds; the files are a copy of it, so that keys, constitution and their chains are read as ever. A
look at the record's revision, at most `FRESH_S` old, says whether the copy is the newest. A change takes a lease, takes
the newest, is made in the files, and counts once the record was written over the very revision that it began from; a
failure puts the files back, and a kill leaves a note, after which the copy is made anew. So one change of many files is
there whole or not at all, and nobody sees half of it but a process on the same disk for a moment.

A data directory belongs to one service: what was made elsewhere (another human's key) is never written over.
Rejected: a record a file, whose changes together are no one step; a shared volume, which replicas on three machines
lack; merging what two changed at once, where the second is a signature over what the first replaced.
"""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from memory_anchor.adapters.file_records import HIDDEN
from memory_anchor.adapters.system import new_token
from memory_anchor.errors import MemoryAnchorError, Refused, StoreDamaged, TooLarge, Unavailable
from memory_anchor.files import file_lock, make_private, ours, read_bounded, remove_durably, write_atomic
from memory_anchor.json_values import parsed, record, text
from memory_anchor.ports import SharedRecords

NAME = "service.json"
"""The record."""
NOTE_FILE = "service.json"
"""Of a data directory: which service it is a copy of."""
CHANGING_FILE = "service.changing"


@dataclass(frozen=True, slots=True)
class SharedPart:
    """Files that change together. name: of their record, note and lock. files: files and folders; first the one without
    which the others would be taken for rolled back. own: names below them that are each machine's."""

    name: str
    files: tuple[str, ...]
    own: frozenset[str]


RULES = SharedPart(
    "service",
    ("constitution-heads", "first_key.json", "identity", "team/keys.json"),
    frozenset({"refused_tries.json"}),
)
"""What is small and read often."""
LOREBOOKS = SharedPart("lorebooks", ("lorebooks",), frozenset({"turns"}))
"""Books of every project, without where their conversations are."""
FRESH_S = 0.5
"""How old a look may be: what another replica changed holds here after this, also where the look itself is slow."""
BYTES_MAX = 48 << 20
FILES_MAX = 20_000
LEASE_S = 60.0
WAIT_S = 20.0
PAUSE_S = 0.05
Claim = Callable[[str, str, float], bool]
"""Takes the lease of a name for a holder and so many seconds (0 gives it back); says whether it is theirs."""


class WorkingCopy:
    """Thread-safe, and safe across processes of one data directory."""

    is_shared = True

    def __init__(self, data_dir: Path, records: SharedRecords, claim: Claim, part: SharedPart = RULES) -> None:
        self._part, self._name = part, f"{part.name}.json"
        self._note_file, self._changing_file = data_dir / f"{part.name}.json", data_dir / f"{part.name}.changing"
        self._lock_file = data_dir / f"{part.name}.lock"
        self._root, self._records, self._claim = data_dir, records, claim
        self._lock = threading.RLock()
        self._revision: str | None = None
        """None until the files were compared with the record in this process."""
        self._looked_at = float("-inf")
        self._failed: MemoryAnchorError | None = None
        self._inside = False

    def lorebooks(self) -> WorkingCopy:
        """Return the same for the lorebooks of this directory."""
        return WorkingCopy(self._root, self._records, self._claim, LOREBOOKS)

    @property
    def is_fresh(self) -> bool:
        """Return whether `fresh` would ask nobody."""
        return time.monotonic() - self._looked_at < FRESH_S

    def fresh(self) -> None:
        """Bring what others changed, unless that was looked at a moment ago.

        Raises Unavailable: the server does not answer, or did not a moment ago. Refused: see `_taken_over`.
        """
        if self.is_fresh and self._failed is None and not self._inside:
            return
        with self._lock:
            if self._inside:
                return
            if not self.is_fresh:
                at = time.monotonic()
                try:
                    self._look()
                    self._failed = None
                except MemoryAnchorError as error:
                    self._failed = error
                self._looked_at = at if self._failed is None else time.monotonic()
            if self._failed is not None:
                raise self._failed

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        with self._lock:
            if self._inside:  # part of a larger change
                yield
                return
            with file_lock(self._lock_file), self._leased():
                self._take()
                before = self._files()
                write_atomic(self._changing_file, b"")
                self._inside = True
                try:
                    yield
                    self._give(before)
                except BaseException:
                    self._put(before)
                    raise
                finally:
                    self._inside = False
                remove_durably(self._changing_file)

    # --- the record and the files --------------------------------------------------------------------------------

    def _look(self) -> None:
        found = self._records.revisions([self._name]).get(self._name, "")
        if found != self._revision or (self._changing_file).exists():
            with file_lock(self._lock_file):  # who is changing here ends first
                self._take()

    def _take(self) -> None:
        """Make the files what the record says; of a service that has none yet, make the record of the files."""
        if (self._changing_file).exists():
            self._revision = None
        found = self._records.revisions([self._name]).get(self._name, "")
        if self._revision is not None and found == self._revision:
            return
        held = self._records.read(self._name)
        if held is None:
            held_files, revision = self._first(), self._revision
        else:
            revision = held.revision
            service, held_files = _read(held.content, self._name)
            self._check_ours(service, held_files)
        self._put(held_files)
        self._revision = revision
        with contextlib.suppress(OSError):
            remove_durably(self._changing_file)

    def _first(self) -> Mapping[str, bytes]:
        """Give the server what is here: the first replica of a service brings its keys and texts along."""
        if self._service():
            raise Refused(
                f"the store has no keys and texts of the service that {self._root} belongs to: it was emptied, or "
                f"store.url names another. Restore it, or remove {self._note_file.name} there to give it what is here"
            )
        service, files = new_token(), self._files()
        self._revision = self._records.write(self._name, _written(service, files), before="")
        self._note(service)
        return files

    def _check_ours(self, service: str, theirs: Mapping[str, bytes]) -> None:
        known = self._service()
        if known == service:
            return
        own = self._files()
        if known or any(theirs.get(name) != content for name, content in own.items()):
            raise Refused(
                f"{self._root} holds keys or texts of another service than the one on this store (store.records); "
                "nothing was changed: start this replica with an empty MEMORY_ANCHOR_DATA_DIR"
            )
        self._note(service)

    def _give(self, before: Mapping[str, bytes]) -> None:
        files = self._files()
        if files == before:
            return
        revision, self._revision = self._revision or "", None  # what comes of it is not known if this fails
        self._revision = self._records.write(self._name, _written(self._service(), files), before=revision)

    def _files(self) -> dict[str, bytes]:
        """Return what is here. Raises TooLarge."""
        found: dict[str, bytes] = {}
        for part in self._part.files:
            place = self._root / part
            for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
                if path.is_symlink() or not path.is_file() or path.suffix in HIDDEN or self._is_own(path):
                    continue
                try:
                    content = read_bounded(path, most_bytes=BYTES_MAX)
                except OSError as error:
                    raise ours(error, path) from error
                if content is not None:
                    found[path.relative_to(self._root).as_posix()] = content
        if len(found) > FILES_MAX or sum(map(len, found.values())) > BYTES_MAX:
            raise TooLarge(f"keys and texts of {self._root} are more than {FILES_MAX} files or {BYTES_MAX} bytes")
        return found

    def _is_own(self, path: Path) -> bool:
        return not self._part.own.isdisjoint(path.relative_to(self._root).parts)

    def _put(self, wanted: Mapping[str, bytes]) -> None:
        """Make the files these; what is the same is not touched."""
        here = self._files()
        for part in self._part.files:
            for name, content in wanted.items():
                if (name == part or name.startswith(f"{part}/")) and here.get(name) != content:
                    path = self._root / name
                    if ".." in path.parts:
                        raise StoreDamaged(
                            f"the record {self._name} names {name[:80]!r}; restore a backup of the store"
                        )
                    make_private(path.parent)
                    write_atomic(path, content)
        for name in here.keys() - wanted.keys():
            with contextlib.suppress(FileNotFoundError):
                remove_durably(self._root / name)

    # --- whose ---------------------------------------------------------------------------------------------------

    def _service(self) -> str:
        try:
            told = json.loads(read_bounded(self._note_file, most_bytes=4_000) or b"{}")
            return str(told.get("service", ""))
        except (OSError, ValueError, AttributeError):
            return "?"

    def _note(self, service: str) -> None:
        write_atomic(self._note_file, (json.dumps({"service": service}) + "\n").encode())

    @contextlib.contextmanager
    def _leased(self) -> Iterator[None]:
        """Hold the right to change, so that two humans at two replicas wait for one another."""
        holder, end = new_token(), time.monotonic() + WAIT_S
        while not self._claim(self._name, holder, LEASE_S):
            if time.monotonic() > end:
                raise Unavailable("another replica changes keys or texts all the time; try again")
            time.sleep(PAUSE_S)
        try:
            yield
        finally:
            with contextlib.suppress(MemoryAnchorError):
                self._claim(self._name, holder, 0.0)


def _written(service: str, files: Mapping[str, bytes]) -> bytes:
    told = {name: base64.b64encode(content).decode() for name, content in files.items()}
    return json.dumps({"format": 1, "service": service, "files": told}).encode()


def _read(content: bytes, name: str) -> tuple[str, dict[str, bytes]]:
    """Return whose service a record is of, and its files."""
    try:
        told = record(parsed(content))
        if told["format"] != 1:
            raise StoreDamaged(f"the record {name} was written by a newer memory-anchor; upgrade this one")
        files = {name: base64.b64decode(text(one)) for name, one in record(told["files"]).items()}
        return text(told["service"]), files
    except (ValueError, KeyError, RecursionError):
        raise StoreDamaged(f"the record {name} on the server cannot be read; restore a backup of it") from None
