"""The lorebooks of each project on disk: the files as added, and a list of them.

`lorebooks/PROJECT/` holds `books.json` and a `.book` file each with the original bytes (an export equals its input). A
file is on disk before it is in the list, and out of the list before it is deleted, so a kill leaves at worst an
unlisted file, which the next change deletes. Rejected: the store's collections; a book is read whole or not at all, and
nothing in it is searched by meaning.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from cachetools import LRUCache

from memory_anchor.base.files import make_private, read_bounded, remove_durably, write_atomic
from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Json
from memory_anchor.domain.errors import BadInput, NotFound, StoreDamaged, Unavailable
from memory_anchor.domain.model import Scope, Trust
from memory_anchor.extensions.lorebook.lorebook import (
    BOOK_BYTES_MAX,
    PNG,
    Lorebook,
    read_lorebook,
    text_of,
    with_parsed,
)
from memory_anchor.extensions.lorebook.lorebook_scan import LoreScanner
from memory_anchor.settings import LorebookSettings
from memory_anchor.use_cases.services import Services

BOOKS_MAX = 64
"""Books of one project."""
NAME_CHARS = 40
STATE_BYTES_MAX = 4 * 1024 * 1024
SCANNERS_KEPT = 8
_LIST = "books.json"


@dataclass(frozen=True, slots=True)
class BookRecord:
    """One book in the list. id: its name in the project. file: where it was added from. by: who added it. title: what
    it calls itself."""

    id: str
    file: str
    sha: str
    size: int
    trust: str
    by: str
    added_at: str
    title: str = ""


class LorebookStore:
    """Books of every project below one folder. Thread-safe; only one process uses the folder."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scanners: LRUCache[tuple[object, ...], LoreScanner] = LRUCache(SCANNERS_KEPT)

    def books(self, home: Path) -> list[BookRecord]:
        """Return the books of a project, by name. Raises StoreDamaged: the list cannot be read."""
        try:
            return [BookRecord(**fields) for fields in (_read(home / _LIST) or {}).get("books", ())]
        except (TypeError, AttributeError):
            raise StoreDamaged(f"{home / _LIST} cannot be read; add the lorebooks again after deleting it") from None

    def add(
        self, home: Path, content: bytes, *, file: str, trust: Trust, by: str, at: str
    ) -> tuple[BookRecord, Lorebook]:
        """Add a book under its file's name, replacing an older one. Raises BadInput: no book, or one too many."""
        book = read_lorebook(content, Path(file).name or "the lorebook")
        sha = hashlib.sha256(content).hexdigest()
        record = BookRecord(book_name(file), file, sha, len(content), trust.value, by, at, book.name)
        with self._lock:
            books = [other for other in self.books(home) if other.id != record.id]
            if len(books) >= BOOKS_MAX:
                raise BadInput(f"this project has {len(books)} lorebooks; allowed are {BOOKS_MAX}: remove one first")
            make_private(home)
            write_atomic(_book_file(home, record), content)
            _write_list(home, [*books, record])
        return record, replace(book, id=record.id)

    def remove(self, home: Path, name: str) -> BookRecord:
        """Erase a book. Raises NotFound."""
        with self._lock:
            record = self.record(home, name)
            _write_list(home, [other for other in self.books(home) if other.id != record.id])
            self._scanners.clear()
        return record

    def record(self, home: Path, name: str) -> BookRecord:
        """Return a book of the list. Raises NotFound."""
        records = {record.id: record for record in self.books(home)}
        if name not in records:
            names = ", ".join(records) or "none yet: `memory-anchor lorebook add FILE`"
            raise NotFound(f"no lorebook {name[:NAME_CHARS]!r} in this project; there are {names}")
        return records[name]

    def exists(self, home: Path, record: BookRecord) -> bool:
        """Return whether a book's file is on disk, or the book is in the list."""
        return _book_file(home, record).exists() or any(other.id == record.id for other in self.books(home))

    def content(self, home: Path, record: BookRecord) -> bytes:
        """Return a book's original bytes. Raises StoreDamaged: the file is gone or was changed."""
        try:
            content = read_bounded(_book_file(home, record), most_bytes=BOOK_BYTES_MAX)
        except OSError:
            content = None
        if content is None or hashlib.sha256(content).hexdigest() != record.sha:
            raise StoreDamaged(
                f"the lorebook {record.id} is gone or damaged; add {record.file} again, or "
                f"`memory-anchor lorebook remove {record.id}`"
            )
        return content

    def scanner(
        self, home: Path, records: Sequence[BookRecord], settings: LorebookSettings
    ) -> tuple[LoreScanner, list[str]]:
        """Return a (cached) scanner of these books, and a sentence for each that cannot be read."""
        key = (home, settings, tuple((record.id, record.sha) for record in records))
        with self._lock:
            if (cached := self._scanners.get(key)) is not None:
                return cached, []
        books, problems = [], []
        for record in records:
            try:
                books.append(read_lorebook(self.content(home, record), record.file, book_id=record.id))
            except (StoreDamaged, BadInput) as error:
                problems.append(str(error))
        scanner = LoreScanner(books, settings)
        if not problems:
            with self._lock:
                self._scanners[key] = scanner
        return scanner, problems

    def move(self, home: Path, name: str, to: Path, new_name: str) -> None:
        """Move a book to another project's folder under a new name; does nothing where the book is gone."""
        with self._lock:
            record = next((record for record in self.books(home) if record.id == name), None)
            if record is None:
                return
            moved = replace(record, id=new_name)
            make_private(to)
            write_atomic(_book_file(to, moved), self.content(home, record))
            _write_list(to, [*(other for other in self.books(to) if other.id != new_name), moved])
            _write_list(home, [other for other in self.books(home) if other.id != name])
            self._scanners.clear()

    def clear_cache(self) -> None:
        """Drop the cached scanners."""
        with self._lock:
            self._scanners.clear()


class ProjectBooks:
    """The books of projects that are merged, in every account; see `transfer`."""

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
            with contextlib.suppress(StoreDamaged):  # its file is gone or changed: the book stays
                self._store.move(self._home(account, old), name, self._home(account, new), new_name)

    def _home(self, account: str, project: str) -> Path:
        return home_of(self._data_dir, Scope(account=account, project=project))


def home_of(data_dir: Path, scope: Scope) -> Path:
    """Return the folder of an account's project."""
    return data_dir / "lorebooks" / stable_hash(scope.account, scope.project)[:32]


def book_name(file: str) -> str:
    """Return the name of a file's book: its stem, of letters, digits, `-` and `_`.

    >>> book_name("/tmp/My world (2).json"), book_name("世界书.png"), book_name("///")
    ('My-world-2', '世界书', 'lorebook')
    """
    return re.sub(r"[^\w-]+", "-", Path(file).stem).strip("-")[:NAME_CHARS] or "lorebook"


def _book_file(home: Path, record: BookRecord) -> Path:
    return home / f"{record.sha[:32]}-{stable_hash(record.id)[:8]}.book"


def _write_list(home: Path, records: Sequence[BookRecord]) -> None:
    """Write the list of books, by name; then delete files that are not in it: what a kill or release 0.1 left."""
    _write(home / _LIST, {"books": [asdict(record) for record in sorted(records, key=lambda record: record.id)]})
    listed = {_book_file(home, record) for record in records}
    for path in (*home.glob("*.book"), *home.glob(".*.tmp"), *home.glob("turns/*.json")):
        if path not in listed:
            remove_durably(path)


def _write(path: Path, value: Json) -> None:
    write_atomic(path, json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def _read(path: Path) -> dict[str, Any] | None:
    """Return the object in a file of ours, None when there is no file. Raises StoreDamaged."""
    try:
        value = json.loads(read_bounded(path, most_bytes=STATE_BYTES_MAX) or b"null")
    except (OSError, ValueError, RecursionError):
        value = []
    if value is not None and not isinstance(value, dict):
        raise StoreDamaged(f"{path} cannot be read; delete it and add the lorebooks again")
    return value


def book_text(path: Path) -> str:
    """Return a lorebook's bytes as text and the texts in it. Raises Unavailable: a picture, which is not read."""
    content = path.read_bytes()
    if content.startswith(PNG):
        raise Unavailable(f"{path} is a lorebook in a picture, which cannot be searched; remove it")
    return with_parsed(text_of, content)


def books_of(services: Services) -> LorebookStore:
    """Return this process's lorebooks."""
    return cast("LorebookStore", services.extensions["lorebook"].part)
