"""Small files of a data directory that every replica of a memory has: rows decide, the files are copies.

Keys, approved texts, proposals, access keys, projects and lorebooks are read by many parts that read files, each with
its own checks of seals and signatures. So they stay files, and a change of one (`base.files`) takes the lock of all
writes of the database, brings the copies up to date, and stores a row in the transaction of whatever else the block
writes. Rejected: teaching every one of those readers to read rows, which would put their checks at risk.

Invariants: after `refresh` the copies are what is committed, but for names that a unit of another thread is writing. A
change that was rolled back leaves no trace in the copies after the next `refresh`. What a kill leaves is put right by
`begin`, which deletes nothing but copies of what another replica removed: the rest goes to `replaced-N`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from memory_anchor.base.files import make_private, read_bounded, replace_file, share
from memory_anchor.domain.errors import MemoryAnchorError, Refused
from memory_anchor.store.postgresql import Postgresql
from memory_anchor.store.record_rows import BYTES_MAX

if TYPE_CHECKING:
    from memory_anchor.store.record_rows import SqlRecords

SHARED_FILES = ("first_key.json", "projects.json", "team/keys.json", "team/keys_used.json", "jobs-off", "paused")
SHARED_FOLDERS = ("identity", "constitution-heads", "lorebooks")
LOCKS = ("projects.json.lock", "team/keys.lock")
OWN_PARTS = ("backups", "turns")
"""Folders inside the shared ones that belong to one machine: texts before an edit, turns of a conversation there."""
OWN_ENDINGS = (".lock", ".tmp", ".new")
_FOLDERS = tuple(f"{name}/" for name in SHARED_FOLDERS)
KEY = "identity/approver.json"
JOINED = "replica"
"""The file that says that a data directory has been a replica's before."""
ASIDE = "replaced-"
NAMED_MAX = 5
log = logging.getLogger("memory_anchor")


class SharedFiles:
    """Copies of one data directory. Thread-safe. changed: called with the names that others changed."""

    def __init__(self, data_dir: Path, records: SqlRecords, changed: Callable[[set[str]], None] = lambda _: None):
        self._root, self._records, self._changed = data_dir, records, changed
        self._seen = 0
        self._applying = threading.RLock()
        self._open: dict[str, int] = {}
        """Names that a unit is writing -> its thread."""
        self._doubtful: set[str] = set()
        """Names whose change was rolled back."""
        self._depth = threading.local()

    def begin(self) -> None:
        """Make the copies what the rows say, and share from now on; rows without any are made of the files.

        Raises Refused: the directory has another installation's key. Unavailable, StoreDamaged.
        """
        with self._records.database.unit():
            self._seen = self._records.last_change()
            rows = {name: content for _, name, content in self._rows(above=0)}
            here = {name: path for path in self._paths() if is_shared(name := self._name(path))}
            if not any(content is not None for content in rows.values()):
                for name, path in here.items():
                    self._records.write(name, path.read_bytes(), before=None)
            else:
                self._check_key(rows.get(KEY))
                self._put_aside([path for name, path in here.items() if self._is_own(name, path, rows)])
                for name, content in rows.items():
                    self._apply(name, content)
        replace_file(self._root / JOINED, b"")
        share(self._root, self)

    def end(self) -> None:
        share(self._root, None)

    # --- the port `SharedFolder` -------------------------------------------------------------------------------------

    def shares(self, path: Path) -> bool:
        name = self._name(path)
        return is_shared(name) or name in LOCKS or (path.suffix == ".lock" and name.startswith(_FOLDERS))

    def refresh(self) -> None:
        inside = self._records.database.groups.inside is not None
        last = self._records.last_change()
        if last == self._seen and not self._doubtful:
            return
        with self._applying:
            names = set()
            if last != self._seen:
                for _, name, content in self._rows(above=min(self._seen, last)):
                    if self._open.get(name, self._thread) == self._thread:
                        names |= {name} if self._apply(name, content) else set()
            for name in self._doubtful - self._open.keys():
                stored = self._records.read(name)
                names |= {name} if self._apply(name, stored.content if stored is not None else None) else set()
                self._doubtful.discard(name)
            if not inside and not self._open:  # what a unit sees may be rolled back, its numbers given again
                self._seen = last
        if names:
            self._changed(names)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        depth = getattr(self._depth, "value", 0)
        self._depth.value = depth + 1
        try:
            with self._records.database.unit():
                if not depth:
                    self.refresh()
                yield
        except BaseException:
            self._doubtful |= self._own()
            raise
        finally:
            self._depth.value = depth
            if not depth:
                for name in self._own():
                    del self._open[name]
                if self._doubtful:
                    with contextlib.suppress(MemoryAnchorError):
                        self.refresh()

    def change(self, path: Path, content: bytes | None, here: Callable[[], None]) -> None:
        name = self._name(path)
        with self.lock():
            self._open[name] = self._thread
            if content is None:
                self._records.delete(name, before=None)
            else:
                self._records.write(name, content, before=None)
            here()

    # --- helpers -----------------------------------------------------------------------------------------------------

    @property
    def _thread(self) -> int:
        return threading.get_ident()

    def _own(self) -> set[str]:
        return {name for name, thread in list(self._open.items()) if thread == self._thread}

    def _rows(self, *, above: int) -> Iterator[tuple[int, str, bytes | None]]:
        rows = self._records.changes(above=above, names=(*SHARED_FILES, *_FOLDERS))
        return (row for row in rows if is_shared(row[1]))

    def _paths(self) -> Iterator[Path]:
        places = [self._root / name for name in (*SHARED_FILES, *SHARED_FOLDERS)]
        for path in places:
            yield from (inner for inner in (path, *path.rglob("*")) if inner.is_file())

    def _name(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()

    def _apply(self, name: str, content: bytes | None) -> bool:
        """Make one copy what its row says; return whether it was another."""
        path = self._root / name
        with contextlib.suppress(OSError):
            if content == read_bounded(path, most_bytes=BYTES_MAX):
                return False
        if content is None:
            path.unlink(missing_ok=True)
        else:
            make_private(path.parent)
            replace_file(path, content)
        return True

    def _check_key(self, stored: bytes | None) -> None:
        own = _public_of((self._root / KEY).read_bytes()) if (self._root / KEY).is_file() else ""
        theirs = _public_of(stored or b"")
        if own and theirs and own != theirs:
            raise Refused(
                f"{self._root} has the key of another installation than {self._records.database.place}; nothing was "
                "changed. A replica begins with an empty data directory: set another `data_dir`."
            )

    def _is_own(self, name: str, path: Path, rows: Mapping[str, bytes | None]) -> bool:
        """Return whether a file may be nobody's copy: of a replica one that was never a row, its key whatever the rows
        say; of another directory each that differs."""
        if (self._root / JOINED).exists():
            return name not in rows or (name == KEY and _public_of(path.read_bytes()) != _public_of(rows[KEY] or b""))
        return rows.get(name) != path.read_bytes()

    def _put_aside(self, paths: list[Path]) -> None:
        """Move files out of the way, and say so; a killed process of a replica leaves some too."""
        numbers = [path.name.removeprefix(ASIDE) for path in self._root.glob(f"{ASIDE}*")]
        aside = self._root / f"{ASIDE}{1 + max((int(number) for number in numbers if number.isdigit()), default=0)}"
        for path in paths:
            target = aside / self._name(path)
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.rename(target)
        if paths:
            log.warning(
                "%s has no row in %s: moved to %s, nothing was deleted.",
                ", ".join(map(self._name, paths[:NAMED_MAX])) + (", ..." if len(paths) > NAMED_MAX else ""),
                self._records.database.place,
                aside,
            )


def is_served_by_many(records: SqlRecords) -> bool:
    """Return whether other machines may serve the same memory."""
    return isinstance(records.database, Postgresql)


def is_shared(name: str) -> bool:
    """Return whether every replica has a file of this name."""
    parts = PurePosixPath(name).parts
    if name.endswith(OWN_ENDINGS) or any(part in OWN_PARTS for part in parts):
        return False
    return name in SHARED_FILES or parts[0] in SHARED_FOLDERS


def _public_of(content: bytes) -> str:
    """Return the public half in a key file, "" for none."""
    try:
        return str(json.loads(content)["public"])
    except (ValueError, KeyError, TypeError):
        return ""
