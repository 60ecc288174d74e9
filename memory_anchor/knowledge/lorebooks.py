"""The lorebooks of each project on disk: the files as they came, a list of them, and timed effects.

`lorebooks/PROJECT/` holds `books.json`, a `.book` each with the very bytes (an export equals its input), and
`turns/CONVERSATION.json` with the message count and when each timed entry was admitted. A file is on disk before the
list names it, and gone from the list before it is removed, so a kill leaves at worst a file that nothing names, which
the next change removes; turns are written whole, so it leaves the state before the scan or after it. Rejected: the
store's collections; a book is read whole or not at all, and nothing in it is searched by meaning.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cachetools import LRUCache

from memory_anchor.errors import BadInput, NotFound, StoreDamaged, Unavailable
from memory_anchor.files import make_private, read_bounded, remove_durably, write_atomic
from memory_anchor.hashing import stable_hash
from memory_anchor.knowledge.lorebook import BOOK_BYTES_MAX, Lorebook, read_lorebook
from memory_anchor.knowledge.lorebook_scan import LoreScanner, ScanSettings
from memory_anchor.model import Scope, Trust
from memory_anchor.ports import Sharing

BOOKS_MAX = 64
"""Books of one project."""
NAME_CHARS = 40
STATE_BYTES_MAX = 4 * 1024 * 1024
CONVERSATIONS_KEPT = 500
STARTED_MAX = 5_000
"""Timed entries of one conversation, the newest."""
SCANNERS_KEPT = 8
_LIST = "books.json"


@dataclass(frozen=True, slots=True)
class BookRecord:
    """One book in the list. id: its name here. file: where it came from. by: who added it."""

    id: str
    file: str
    sha: str
    size: int
    trust: str
    by: str
    added_at: str


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """A conversation's message count, when each timed entry was admitted, and its last report."""

    count: int = 0
    started: Mapping[str, int] = field(default_factory=dict)
    report: Mapping[str, Any] | None = None


class LorebookStore:
    """Books and turns of every project below one folder. Thread-safe; one process has the folder.

    sharing: of several replicas, which have the same books; a conversation's turns are with the replica that has it.
    """

    def __init__(self, sharing: Sharing | None = None) -> None:
        self._sharing = sharing
        self._lock = threading.Lock()
        self._scanners: LRUCache[tuple[object, ...], LoreScanner] = LRUCache(SCANNERS_KEPT)

    def changing(self) -> contextlib.AbstractContextManager[None]:
        """Return the context of a change of books: the newest list is here before, and with every replica after."""
        return self._sharing.changing() if self._sharing is not None else contextlib.nullcontext()

    def books(self, home: Path) -> list[BookRecord]:
        """Return the books of a project, by name. Raises StoreDamaged: the list cannot be read."""
        if self._sharing is not None:
            with contextlib.suppress(Unavailable):  # the copy here is read instead
                self._sharing.fresh()
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
        record = BookRecord(book_name(file), file, sha, len(content), trust.value, by, at)
        with self._lock, self.changing():
            others = [other for other in self.books(home) if other.id != record.id]
            if len(others) >= BOOKS_MAX:
                raise BadInput(f"this project has {len(others)} lorebooks; allowed are {BOOKS_MAX}: remove one first")
            make_private(home)
            write_atomic(_book_file(home, record), content)
            _write_list(home, [*others, record])
        return record, replace(book, id=record.id)

    def remove(self, home: Path, name: str) -> BookRecord:
        """Erase a book and the turns of its entries. Raises NotFound."""
        with self._lock, self.changing():
            record = self.record(home, name)
            _write_list(home, [other for other in self.books(home) if other.id != record.id])
            self._scanners.clear()
            for path in sorted((home / "turns").glob("*.json")):
                turn = _read_turn(path)
                kept = {id: at for id, at in turn.started.items() if not id.startswith(f"{record.id}/")}
                if kept != turn.started or record.id in json.dumps(turn.report or {}):
                    _write(path, asdict(replace(turn, started=kept, report=None)))
        return record

    def record(self, home: Path, name: str) -> BookRecord:
        """Return a book's line of the list. Raises NotFound."""
        records = {record.id: record for record in self.books(home)}
        if name not in records:
            there = ", ".join(records) or "none yet: `memory-anchor lorebook add FILE`"
            raise NotFound(f"no lorebook {name[:NAME_CHARS]!r} in this project; there are {there}")
        return records[name]

    def exists(self, home: Path, record: BookRecord) -> bool:
        """Return whether a book's bytes are on disk, or its name is in the list."""
        return _book_file(home, record).exists() or any(other.id == record.id for other in self.books(home))

    def content(self, home: Path, record: BookRecord) -> bytes:
        """Return a book's bytes as they came. Raises StoreDamaged: they are gone, or others."""
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
        self, home: Path, records: Sequence[BookRecord], settings: ScanSettings
    ) -> tuple[LoreScanner, list[str]]:
        """Return a scanner of these books, made once, and a sentence for each that cannot be read."""
        key = (home, settings, tuple((record.id, record.sha) for record in records))
        with self._lock:
            if (known := self._scanners.get(key)) is not None:
                return known, []
        books, lost = [], []
        for record in records:
            try:
                books.append(read_lorebook(self.content(home, record), record.file, book_id=record.id))
            except (StoreDamaged, BadInput) as error:
                lost.append(str(error))
        scanner = LoreScanner(books, settings)
        if not lost:
            with self._lock:
                self._scanners[key] = scanner
        return scanner, lost

    def turn(self, home: Path, conversation: str) -> ConversationTurn:
        """Return a conversation's turn; an empty one where nothing is known or no conversation is named."""
        return _read_turn(_turn_file(home, conversation)) if conversation else ConversationTurn()

    def save_turn(self, home: Path, conversation: str, turn: ConversationTurn) -> None:
        """Write a conversation's turn, durable on return, and drop the oldest beyond the bound."""
        with self._lock:
            make_private(home / "turns")
            newest = sorted(turn.started.items(), key=lambda item: -item[1])[:STARTED_MAX]
            _write(_turn_file(home, conversation), asdict(replace(turn, started=dict(newest))))
            paths = sorted((home / "turns").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
            for path in paths[: max(0, len(paths) - CONVERSATIONS_KEPT)]:
                path.unlink(missing_ok=True)

    def move(self, home: Path, name: str, to: Path, new_name: str) -> None:
        """Move a book to another project's folder, and its name with it; nothing where it is gone or there already."""
        with self._lock, self.changing():
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
        """Drop every book from memory."""
        with self._lock:
            self._scanners.clear()


def _read_turn(path: Path) -> ConversationTurn:
    """Return a turn; one that cannot be read counts as none, since a lost effect is a few messages."""
    try:
        fields = _read(path) or {}
        started = {str(id): int(at) for id, at in dict(fields.get("started") or {}).items()}
        return ConversationTurn(int(fields.get("count", 0)), started, fields.get("report"))
    except (StoreDamaged, TypeError, ValueError):
        return ConversationTurn()


class ProjectBooks:
    """The books of projects that are merged, in every account; see `care.transfer`."""

    def __init__(self, store: LorebookStore, data_dir: Path, accounts: Callable[[], Iterable[str]]) -> None:
        """accounts: asked when a merge begins, never at a start."""
        self._store, self._data_dir, self._accounts = store, data_dir, accounts

    def of_project(self, project: str, target: str) -> list[str]:
        """Return [account, name, name in the target] of each book as JSON; one whose name is taken gets another."""
        named = []
        for account in dict.fromkeys(self._accounts()):
            taken = {record.id for record in self._store.books(self._home(account, target))}
            for record in self._store.books(self._home(account, project)):
                new = f"{record.id[: NAME_CHARS - 9]}-{record.sha[:8]}" if record.id in taken else record.id
                named.append(json.dumps([account, record.id, new], ensure_ascii=False))
        return named

    def move(self, names: Sequence[str], old: str, new: str, *, back: bool = False) -> None:
        for account, *both in map(json.loads, names):
            name, new_name = reversed(both) if back else both
            with contextlib.suppress(StoreDamaged):  # its bytes are gone or changed: it stays where it is
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


def _turn_file(home: Path, conversation: str) -> Path:
    return home / "turns" / f"{stable_hash(conversation)[:32]}.json"


def _write_list(home: Path, records: Sequence[BookRecord]) -> None:
    """Write the list of books, by name; then remove files that it does not name, also those that a kill left."""
    _write(home / _LIST, {"books": [asdict(record) for record in sorted(records, key=lambda record: record.id)]})
    named = {_book_file(home, record) for record in records}
    for path in (*home.glob("*.book"), *home.glob(".*.tmp")):
        if path not in named:
            remove_durably(path)


def _write(path: Path, value: Any) -> None:
    write_atomic(path, json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def _read(path: Path) -> dict[str, Any] | None:
    """Return an object that was written here, None when there is none. Raises StoreDamaged."""
    try:
        value = json.loads(read_bounded(path, most_bytes=STATE_BYTES_MAX) or b"null")
    except (OSError, ValueError, RecursionError):
        value = []
    if value is not None and not isinstance(value, dict):
        raise StoreDamaged(f"{path} cannot be read; delete it and add the lorebooks again")
    return value
