"""What the replicas of one service share: files of each data directory, kept whole in one record on the server.

The record is the truth; the files are a copy of it, so that keys, constitution and their chains are read as ever. A
look at the record's revision, at most `FRESH_S` old, says whether the copy is the newest. A change takes a lease, loads
the newest, is made in the files, and counts once the record was written over the very revision that it began from. A
failure puts the files back, and a kill leaves a marker, after which the copy is made again. So one change of many files
is there whole or not at all, and nobody sees half of it but a process on the same disk for a moment.

A data directory belongs to one service: what was made elsewhere (another human's key) is never overwritten. Rejected: a
record a file, whose changes together are no one step; a shared volume, which replicas on three machines lack; merging
what two changed at once, where the second is a signature over what the first replaced.
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
from memory_anchor.base.files import file_error, file_lock, make_private, read_bounded, remove_durably, write_atomic
from memory_anchor.base.json_values import parsed, record, text
from memory_anchor.domain.errors import MemoryAnchorError, Mending, Refused, StoreDamaged, TooLarge, Unavailable
from memory_anchor.domain.ports import SharedRecords

NAME = "service.json"
"""The record."""
NOTE_FILE = "service.json"
"""In a data directory: which service it is a copy of."""
CHANGING_FILE = "service.changing"


@dataclass(frozen=True, slots=True)
class SharedPart:
    """Files that change together. name: of their record, note and lock. files: files and folders; first the one without
    which the others would be taken for rolled back. local: names below them that each machine has for itself."""

    name: str
    files: tuple[str, ...]
    local: frozenset[str]


_RULES = ("constitution-heads", "first_key.json", "identity", "team/keys.json")
RULES = SharedPart("service", _RULES, frozenset({"refused_tries.json"}))
"""What is small and read often."""
LOREBOOKS = SharedPart("lorebooks", ("lorebooks",), frozenset({"turns"}))
"""Books of every project, without where their conversations are."""
FRESH_S = 0.5
"""How old a look may be: what another replica changed is seen here after this, also where the look itself is slow."""
BYTES_MAX = 48 << 20
FILES_MAX = 20_000
LEASE_S = 60.0
WAIT_S = 20.0
PAUSE_S = 0.05
Claim = Callable[[str, str, float], bool]
"""Takes the lease of a name for a holder and so many seconds (0 gives it back); returns whether it is theirs."""


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
        self._is_changing = False

    def lorebooks(self) -> WorkingCopy:
        """Return the same for the lorebooks of this directory."""
        return WorkingCopy(self._root, self._records, self._claim, LOREBOOKS)

    @property
    def is_fresh(self) -> bool:
        """Return whether `fresh` would not ask the server."""
        return time.monotonic() - self._looked_at < FRESH_S

    def fresh(self) -> None:
        """Load what others changed, unless that was checked a moment ago.

        Raises Unavailable: the server does not answer, or did not a moment ago. Refused: see `_check_ours`.
        """
        if self.is_fresh and self._failed is None and not self._is_changing:
            return
        with self._lock:
            if self._is_changing:
                return
            if not self.is_fresh:
                at = time.monotonic()
                try:
                    if self._stored_revision() != self._revision or self._changing_file.exists():
                        with file_lock(self._lock_file):  # after a change under way here
                            self._load()
                    self._failed = None
                except MemoryAnchorError as error:
                    self._failed = error
                self._looked_at = at if self._failed is None else time.monotonic()
            if self._failed is not None:
                raise self._failed

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        with self._lock:
            if self._is_changing:  # part of a larger change
                yield
                return
            with file_lock(self._lock_file), self._leased():
                self._load()
                before = self._files()
                write_atomic(self._changing_file, b"")
                self._is_changing = True
                try:
                    yield
                    self._save(before)
                except BaseException:
                    self._replace_files(before)
                    raise
                finally:
                    self._is_changing = False
                remove_durably(self._changing_file)

    # --- the record and the files --------------------------------------------------------------------------------

    def _stored_revision(self) -> str:
        return self._records.revisions([self._name]).get(self._name, "")

    def _load(self) -> None:
        """Make the files what the record says; where the service has no record yet, make it of the files."""
        if self._changing_file.exists():
            self._revision = None
        if self._revision is not None and self._stored_revision() == self._revision:
            return
        stored = self._records.read(self._name)
        if stored is None:
            files, revision = self._save_first(), self._revision
        else:
            revision = stored.revision
            service, files = _decoded(stored.content, self._name)
            self._check_ours(service, files)
        self._replace_files(files)
        self._revision = revision
        with contextlib.suppress(OSError):
            remove_durably(self._changing_file)

    def _save_first(self) -> Mapping[str, bytes]:
        """Give the server what is here: the first replica of a service brings its keys and texts along."""
        if self._service():
            raise Refused(
                f"the store has no keys and texts of the service that {self._root} belongs to: it was emptied, or "
                f"store.url names another. Restore it, or remove {self._note_file.name} there to give it what is here"
            )
        service, files = new_token(), self._files()
        self._revision = self._records.write(self._name, _encoded(service, files), before="")
        self._note(service)
        return files

    def _check_ours(self, service: str, theirs: Mapping[str, bytes]) -> None:
        """Raise Refused where the files here are another service's."""
        recorded = self._service()
        if recorded == service:
            return
        if recorded or any(theirs.get(name) != content for name, content in self._files().items()):
            raise Refused(
                f"{self._root} holds keys or texts of another service than the one on this store (store.records); "
                "nothing was changed: start this replica with an empty MEMORY_ANCHOR_DATA_DIR"
            )
        self._note(service)

    def _save(self, before: Mapping[str, bytes]) -> None:
        files = self._files()
        if files == before:
            return
        revision, self._revision = self._revision or "", None  # unknown where the write fails
        self._revision = self._records.write(self._name, _encoded(self._service(), files), before=revision)

    def _files(self) -> dict[str, bytes]:
        """Return the shared files that are here. Raises TooLarge."""
        files: dict[str, bytes] = {}
        for part in self._part.files:
            part_path = self._root / part
            for path in sorted(part_path.rglob("*")) if part_path.is_dir() else [part_path]:
                inside = path.relative_to(self._root)
                if path.is_symlink() or not path.is_file() or path.suffix in HIDDEN:
                    continue
                if not self._part.local.isdisjoint(inside.parts):
                    continue
                try:
                    content = read_bounded(path, most_bytes=BYTES_MAX)
                except OSError as error:
                    raise file_error(error, path) from error
                if content is not None:
                    files[inside.as_posix()] = content
        if len(files) > FILES_MAX or sum(map(len, files.values())) > BYTES_MAX:
            raise TooLarge(f"keys and texts of {self._root} are more than {FILES_MAX} files or {BYTES_MAX} bytes")
        return files

    def _replace_files(self, files: Mapping[str, bytes]) -> None:
        """Make the files here these; what is the same is not touched."""
        current = self._files()
        for part in self._part.files:
            for name, content in files.items():
                if (name == part or name.startswith(f"{part}/")) and current.get(name) != content:
                    path = self._root / name
                    if ".." in path.parts:
                        raise StoreDamaged(
                            f"the record {self._name} names {name[:80]!r}; restore a backup of the store"
                        )
                    make_private(path.parent)
                    write_atomic(path, content)
        for name in current.keys() - files.keys():
            with contextlib.suppress(FileNotFoundError):
                remove_durably(self._root / name)

    # --- whose ---------------------------------------------------------------------------------------------------

    def _service(self) -> str:
        """Return the service that this directory belongs to; "" for none yet, "?" where that cannot be read."""
        try:
            note = json.loads(read_bounded(self._note_file, most_bytes=4_000) or b"{}")
            return str(note.get("service", ""))
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


def _encoded(service: str, files: Mapping[str, bytes]) -> bytes:
    content = {name: base64.b64encode(content).decode() for name, content in files.items()}
    return json.dumps({"format": 1, "service": service, "files": content}).encode()


def _decoded(content: bytes, name: str) -> tuple[str, dict[str, bytes]]:
    """Return whose service a record is of, and its files."""
    try:
        stored = record(parsed(content))
        if stored["format"] != 1:
            raise StoreDamaged(
                f"the record {name} was written by a newer memory-anchor; upgrade this one", Mending.UPGRADE
            )
        files = {path: base64.b64decode(text(encoded)) for path, encoded in record(stored["files"]).items()}
        return text(stored["service"]), files
    except (ValueError, KeyError, RecursionError):
        raise StoreDamaged(f"the record {name} on the server cannot be read; restore a backup of it") from None
