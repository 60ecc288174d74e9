"""The lorebooks of each project on disk: `lorebooks/PROJECT/` holds a `.book` file each.

Its first line says where the book is from, the rest is the file's bytes as they came, so a book is there whole or not
at all whenever a process is killed. Rejected: the store's collections; nothing in a book is searched by meaning.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

from cachetools import LRUCache

from memory_anchor.admin.purge import WholeFile, decoded_text
from memory_anchor.base.files import make_private, read_bounded, remove_durably, write_atomic
from memory_anchor.base.hashing import stable_hash
from memory_anchor.domain.errors import BadInput, NotFound, StoreDamaged, Unavailable
from memory_anchor.domain.model import Scope, Trust
from memory_anchor.extensions.lorebook.reading import BOOK_BYTES_MAX, Lorebook, read_lorebook
from memory_anchor.extensions.lorebook.scanning import LoreScanner
from memory_anchor.extensions.lorebook.settings import LorebookSettings
from memory_anchor.runtime.lock import is_running
from memory_anchor.use_cases.services import Services

BOOKS_MAX = 64
"""Books of one project."""
NAME_CHARS = 40
LIST, LEFT = "books.json", ".*.tmp"
"""What had the list, while a book's file had its bytes alone; and what a killed process leaves."""
HEAD_BYTES_MAX = 64 * 1024
SCANNERS_KEPT = 8


@dataclass(frozen=True, slots=True)
class BookRecord:
    """One book. id: its name in the project. file: where it was added from. by: who added it. title: what it calls
    itself. sha: of its bytes, "" where its file is damaged."""

    id: str
    file: str = ""
    sha: str = ""
    size: int = 0
    trust: str = Trust.UNTRUSTED.value
    by: str = ""
    added_at: str = ""
    title: str = ""


class LorebookStore:
    """Books of every project below one folder. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._scanners: LRUCache[tuple[object, ...], LoreScanner] = LRUCache(SCANNERS_KEPT)

    def books(self, home: Path) -> list[BookRecord]:
        """Return the books of a project, by name; a damaged one has its file's name."""
        return sorted(self._files(home), key=lambda record: record.id)

    def add(
        self, home: Path, content: bytes, *, file: str, trust: Trust, by: str, at: str
    ) -> tuple[BookRecord, Lorebook]:
        """Add a book under its file's name, replacing an older one. Raises BadInput: no book, or one too many."""
        book = read_lorebook(content, Path(file).name or "the lorebook")
        sha = hashlib.sha256(content).hexdigest()
        record = BookRecord(book_name(file), file, sha, len(content), trust.value, by, at, book.title)
        with self._lock:
            if len({record.id, *(other.id for other in self._files(home))}) > BOOKS_MAX:
                raise BadInput(f"this project has {BOOKS_MAX} lorebooks, as many as are allowed: remove one first")
            _write(home, record, content)
        return record, book.model_copy(update={"id": record.id})

    def remove(self, home: Path, name: str) -> BookRecord:
        """Erase a book. Raises NotFound."""
        record = self.record(home, name)
        remove_durably(self._files(home)[record])
        self.clear_cache()
        return record

    def record(self, home: Path, name: str) -> BookRecord:
        """Return a book. Raises NotFound."""
        records = {record.id: record for record in self.books(home)}
        if name not in records:
            names = ", ".join(records) or "none yet: `memory-anchor lorebook add FILE`"
            raise NotFound(f"no lorebook {name[:NAME_CHARS]!r} in this project; there are {names}")
        return records[name]

    def scanner(
        self, home: Path, records: Sequence[BookRecord], settings: LorebookSettings
    ) -> tuple[LoreScanner, list[str]]:
        """Return a (cached) scanner of these books, and a sentence for each that cannot be read."""
        key = (home, settings, tuple(records))
        with self._lock:
            if (cached := self._scanners.get(key)) is not None:
                return cached, []
        books, problems = [], []
        for record in records:
            try:
                books.append(read_lorebook(self._content(home, record), record.file, book_id=record.id))
            except (StoreDamaged, BadInput) as error:
                problems.append(str(error))
        scanner = LoreScanner(books, settings)
        if not problems:
            with self._lock:
                self._scanners[key] = scanner
        return scanner, problems

    def move(self, home: Path, name: str, to: Path, new_name: str) -> None:
        """Move a book to another project's folder under a new name; one that is gone or damaged stays."""
        with self._lock:
            files = {record.id: (record, path) for record, path in self._files(home).items() if record.sha}
            if name in files:
                record, path = files[name]
                _write(to, replace(record, id=new_name), self._content(home, record))
                remove_durably(path)
        self.clear_cache()

    def clear_cache(self) -> None:
        """Drop the cached scanners."""
        with self._lock:
            self._scanners.clear()

    def _files(self, home: Path) -> dict[BookRecord, Path]:
        with self._lock:
            take_in_listed(home)
        files = {}
        for path in sorted(home.glob("*.book")):
            try:
                with path.open("rb") as file:
                    files[BookRecord(**json.loads(file.readline(HEAD_BYTES_MAX)))] = path
            except (OSError, ValueError, TypeError):
                files[BookRecord(path.stem)] = path
        return files

    def _content(self, home: Path, record: BookRecord) -> bytes:
        """Return a book's original bytes. Raises StoreDamaged: the file is gone or was changed."""
        content = _bytes_in(_book_file(home, record)) if record.sha else b""
        if hashlib.sha256(content).hexdigest() != record.sha:
            raise StoreDamaged(
                f"the lorebook {record.id} is damaged; add {record.file or 'it'} again, or "
                f"`memory-anchor lorebook remove {record.id}`"
            )
        return content


class ProjectBooks:
    """The books of projects that are merged, in every account; see `admin/merges`."""

    def __init__(self, store: LorebookStore, data_dir: Path, accounts: Callable[[], Iterable[str]]) -> None:
        """accounts: called when a merge begins, not before."""
        self._store, self._data_dir, self._accounts = store, data_dir, accounts

    def of_project(self, project: str, target: str) -> list[str]:
        """Return [account, name, name in the target] of each book as JSON; a name in use gets a suffix."""
        moves = []
        for account in dict.fromkeys(self._accounts()):
            used_names = {record.id for record in self._store.books(self._home(account, target))}
            for record in self._store.books(self._home(account, project)):
                new = f"{record.id[: NAME_CHARS - 9]}-{record.sha[:8]}" if record.id in used_names else record.id
                moves.append(json.dumps([account, record.id, new], ensure_ascii=False))
        return moves

    def move(self, names: Sequence[str], old: str, new: str, *, back: bool = False) -> None:
        for account, *both in map(json.loads, names):
            name, new_name = reversed(both) if back else both
            self._store.move(self._home(account, old), name, self._home(account, new), new_name)

    def _home(self, account: str, project: str) -> Path:
        return home_of(self._data_dir, Scope(account=account, project=project))


def home_of(data_dir: Path, scope: Scope) -> Path:
    """Return the folder of an account's project."""
    return data_dir / "lorebooks" / stable_hash(scope.account, scope.project)[:32]


def take_in_listed(home: Path) -> None:
    """Rewrite the books that an earlier program named in a list beside them; one that is not as listed is left.

    Another process may do the same: what it took in, or somebody added since, stays as it is.
    """
    listed = home / LIST
    try:
        records = [BookRecord(**fields) for fields in json.loads(listed.read_bytes())["books"]]
    except FileNotFoundError:
        return
    except (OSError, ValueError, TypeError, KeyError):
        raise StoreDamaged(f"{listed} cannot be read; delete it and add the lorebooks again") from None
    for record in records:
        old = home / f"{record.sha[:32]}-{stable_hash(record.id)[:8]}.book"
        content = read_bounded(old, most_bytes=BOOK_BYTES_MAX) or b""
        if hashlib.sha256(content).hexdigest() == record.sha:
            if not _book_file(home, record).exists():
                _write(home, record, content)
            remove_durably(old)
    remove_durably(listed)


def texts_below(folder: Path) -> list[WholeFile]:
    """Return every file of books for a purge: what an earlier program listed is taken in first, what a killed process
    left is one too."""
    for home in folder.glob("*"):
        with suppress(StoreDamaged):
            take_in_listed(home)
    others = [WholeFile(path) for name in (LEFT, LIST) for path in sorted(folder.glob(f"*/{name}"))]
    return [*(WholeFile(path, book_text) for path in sorted(folder.glob("*/*.book"))), *others]


def book_name(file: str) -> str:
    """Return the name of a file's book: its stem, of letters, digits, `-` and `_`.

    >>> book_name("/tmp/My world (2).json"), book_name("世界书.png"), book_name("///")
    ('My-world-2', '世界书', 'lorebook')
    """
    return re.sub(r"[^\w-]+", "-", Path(file).stem).strip("-")[:NAME_CHARS] or "lorebook"


def book_text(path: Path) -> str:
    """Return a book's file as it stands and unescaped, and its entries. Raises Unavailable: it cannot be searched."""
    try:
        entries = read_lorebook(_bytes_in(path), path.name).entries
        return "\n".join([decoded_text(path), *(entry.content for entry in entries)])
    except (OSError, BadInput):
        raise Unavailable(f"{path} is a damaged lorebook, which cannot be searched; remove it") from None


def books_of(services: Services) -> LorebookStore:
    """Return this process's lorebooks."""
    return cast("LorebookStore", services.extensions["lorebook"].part)


def _book_file(home: Path, record: BookRecord) -> Path:
    return home / f"{stable_hash(record.id)[:32]}.book"


def _write(home: Path, record: BookRecord, content: bytes) -> None:
    make_private(home)
    for left in home.glob(LEFT):
        pid = left.name.split(".")[-3]
        if not pid.isdigit() or int(pid) == os.getpid() or not is_running(int(pid)):  # not one that another writes now
            remove_durably(left)
    head = json.dumps(asdict(record), ensure_ascii=False).encode("utf-8", "replace")
    write_atomic(_book_file(home, record), head + b"\n" + content)


def _bytes_in(path: Path) -> bytes:
    """Return what follows the first line of a book's file, nothing where there is no file."""
    try:
        with path.open("rb") as file:
            file.readline(HEAD_BYTES_MAX)
            return file.read(BOOK_BYTES_MAX + 1)
    except OSError:
        return b""
