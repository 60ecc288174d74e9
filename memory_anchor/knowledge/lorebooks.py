"""The lorebooks of each project on disk: the files as they came, what is known of them, and timed effects.

`lorebooks/PROJECT/` holds `books.json`, one `.book` each with the very bytes (an export equals its input), and
`turns/CONVERSATION.json` with the message count and what each timed entry started at. A file is on disk before the
list names it, and gone from the list before it is removed, so a kill leaves at worst a file that nobody names, which
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
    """What is known of one book. id: its name here. file: where it came from. by: who added it."""

    id: str
    file: str
    sha: str
    size: int
    trust: str
    by: str
    added_at: str


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """Where a conversation is: its message count, when each timed entry was admitted, and its last report."""

    count: int = 0
    started: Mapping[str, int] = field(default_factory=dict)
    report: Mapping[str, Any] | None = None


class LorebookShelf:
    """Books and turns of every project below one folder. Thread-safe; one process has the folder.

    sharing: of several replicas, which have the books alike; a conversation's turns are where it is held.
    """

    def __init__(self, sharing: Sharing | None = None) -> None:
        self._sharing = sharing
        self._lock = threading.Lock()
        self._scanners: LRUCache[tuple[object, ...], LoreScanner] = LRUCache(SCANNERS_KEPT)

    def changing(self) -> contextlib.AbstractContextManager[None]:
        """Around a change of books: what is newest is here before, and every replica has it after."""
        return self._sharing.changing() if self._sharing is not None else contextlib.nullcontext()

    def books(self, home: Path) -> list[BookRecord]:
        """Return the books of a project, by name. Raises StoreDamaged: the list cannot be read."""
        if self._sharing is not None:
            with contextlib.suppress(Unavailable):  # what is here is read on
                self._sharing.fresh()
        held = _read(home / _LIST)
        try:
            return [BookRecord(**one) for one in (held or {}).get("books", ())]
        except (TypeError, AttributeError):
            raise StoreDamaged(f"{home / _LIST} cannot be read; add the lorebooks again after deleting it") from None

    def add(
        self, home: Path, content: bytes, *, file: str, trust: Trust, by: str, at: str
    ) -> tuple[BookRecord, Lorebook]:
        """Keep a book under its file's name, in the place of an older one. Raises BadInput: none, or one too many."""
        book = read_lorebook(content, Path(file).name or "the lorebook")
        record = BookRecord(
            book_name(file), file, hashlib.sha256(content).hexdigest(), len(content), trust.value, by, at
        )
        with self._lock, self.changing():
            others = [one for one in self.books(home) if one.id != record.id]
            if len(others) >= BOOKS_MAX:
                raise BadInput(f"this project has {len(others)} lorebooks; allowed are {BOOKS_MAX}: remove one first")
            make_private(home)
            write_atomic(_book_file(home, record), content)
            _write_list(home, sorted([*others, record], key=lambda one: one.id))
        return record, replace(book, id=record.id)

    def remove(self, home: Path, name: str) -> BookRecord:
        """Erase a book and the turns of its entries. Raises NotFound."""
        with self._lock, self.changing():
            record = self.record(home, name)
            _write_list(home, [one for one in self.books(home) if one.id != record.id])
            self._scanners.clear()
            for path in sorted((home / "turns").glob("*.json")):
                turn = self._turn(path)
                kept = {id: at for id, at in turn.started.items() if not id.startswith(f"{record.id}/")}
                if kept != turn.started or record.id in json.dumps(turn.report or {}):
                    _write(path, asdict(replace(turn, started=kept, report=None)))
        return record

    def record(self, home: Path, name: str) -> BookRecord:
        """Return what is known of one book. Raises NotFound."""
        known = self.books(home)
        found = next((one for one in known if one.id == name), None)
        if found is None:
            there = ", ".join(one.id for one in known) or "none yet: `memory-anchor lorebook add FILE`"
            raise NotFound(f"no lorebook {name[:NAME_CHARS]!r} in this project; there are {there}")
        return found

    def is_there(self, home: Path, record: BookRecord) -> bool:
        """Return whether a book's bytes are on disk, or its name is in the list."""
        return _book_file(home, record).exists() or any(one.id == record.id for one in self.books(home))

    def content(self, home: Path, record: BookRecord) -> bytes:
        """Return a book's bytes as they came. Raises StoreDamaged: they are gone, or others."""
        try:
            found = read_bounded(_book_file(home, record), most_bytes=BOOK_BYTES_MAX)
        except OSError:
            found = None
        if found is None or hashlib.sha256(found).hexdigest() != record.sha:
            raise StoreDamaged(
                f"the lorebook {record.id} is gone or damaged; add {record.file} again, or "
                f"`memory-anchor lorebook remove {record.id}`"
            )
        return found

    def scanner(
        self, home: Path, records: Sequence[BookRecord], settings: ScanSettings
    ) -> tuple[LoreScanner, list[str]]:
        """Return what scans these books, made once, and a sentence for each that cannot be read."""
        key = (home, settings, tuple((one.id, one.sha) for one in records))
        with self._lock:
            if (known := self._scanners.get(key)) is not None:
                return known, []
        books, lost = [], []
        for record in records:
            try:
                books.append(read_lorebook(self.content(home, record), record.file, book_id=record.id))
            except (StoreDamaged, BadInput) as error:
                lost.append(str(error))
        made = LoreScanner(books, settings)
        if not lost:
            with self._lock:
                self._scanners[key] = made
        return made, lost

    def turn(self, home: Path, conversation: str) -> ConversationTurn:
        """Return where a conversation is; the beginning where nothing is known or nobody is named."""
        return self._turn(_turn_file(home, conversation)) if conversation else ConversationTurn()

    def keep(self, home: Path, conversation: str, turn: ConversationTurn) -> None:
        """Write where a conversation is, durable on return; the oldest ones beyond what is kept go."""
        with self._lock:
            make_private(home / "turns")
            newest = sorted(turn.started.items(), key=lambda one: -one[1])[:STARTED_MAX]
            _write(_turn_file(home, conversation), asdict(replace(turn, started=dict(newest))))
            paths = sorted((home / "turns").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
            for path in paths[: max(0, len(paths) - CONVERSATIONS_KEPT)]:
                path.unlink(missing_ok=True)

    def move(self, home: Path, name: str, to: Path, new_name: str) -> None:
        """Move a book to another project's folder, and its name with it; nothing where it is gone or there already."""
        with self._lock, self.changing():
            record = next((one for one in self.books(home) if one.id == name), None)
            if record is None:
                return
            moved = replace(record, id=new_name)
            others = [one for one in self.books(to) if one.id != new_name]
            make_private(to)
            write_atomic(_book_file(to, moved), self.content(home, record))
            _write_list(to, sorted([*others, moved], key=lambda one: one.id))
            _write_list(home, [one for one in self.books(home) if one.id != name])
            self._scanners.clear()

    def forget(self) -> None:
        """Let go of what is in memory of every book."""
        with self._lock:
            self._scanners.clear()

    def _turn(self, path: Path) -> ConversationTurn:
        """Return a turn; one that cannot be read counts as none, since an effect lost is a few messages."""
        try:
            held = _read(path) or {}
            started = {str(id): int(at) for id, at in dict(held.get("started") or {}).items()}
            return ConversationTurn(int(held.get("count", 0)), started, held.get("report"))
        except (StoreDamaged, TypeError, ValueError):
            return ConversationTurn()


class ProjectBooks:
    """The books of projects that are merged, in every account; see `care.transfer`."""

    def __init__(self, shelf: LorebookShelf, data_dir: Path, accounts: Callable[[], Iterable[str]]) -> None:
        """accounts: asked when a merge begins, never at a start."""
        self._shelf, self._data_dir, self._accounts = shelf, data_dir, accounts

    def of_project(self, project: str, target: str) -> list[str]:
        """Return [account, name, name in the target] of each book as JSON; one whose name is taken gets another."""
        named = []
        for account in dict.fromkeys(self._accounts()):
            taken = {one.id for one in self._shelf.books(self._home(account, target))}
            for one in self._shelf.books(self._home(account, project)):
                new = f"{one.id[: NAME_CHARS - 9]}-{one.sha[:8]}" if one.id in taken else one.id
                named.append(json.dumps([account, one.id, new], ensure_ascii=False))
        return named

    def move(self, names: Sequence[str], old: str, new: str, *, back: bool = False) -> None:
        for account, *both in map(json.loads, names):
            name, new_name = reversed(both) if back else both
            with contextlib.suppress(StoreDamaged):  # its bytes are gone or others: it stays, and is named where it is
                self._shelf.move(self._home(account, old), name, self._home(account, new), new_name)

    def _home(self, account: str, project: str) -> Path:
        return home_of(self._data_dir, Scope(account=account, project=project))


def home_of(data_dir: Path, scope: Scope) -> Path:
    """Return the folder of an account's project."""
    return data_dir / "lorebooks" / stable_hash(scope.account, scope.project)[:32]


def book_name(file: str) -> str:
    """Return the name under which a file's book is known: its stem, of letters, digits, `-` and `_`.

    >>> book_name("/tmp/My world (2).json"), book_name("世界书.png"), book_name("///")
    ('My-world-2', '世界书', 'lorebook')
    """
    return re.sub(r"[^\w-]+", "-", Path(file).stem).strip("-")[:NAME_CHARS] or "lorebook"


def _book_file(home: Path, record: BookRecord) -> Path:
    return home / f"{record.sha[:32]}-{stable_hash(record.id)[:8]}.book"


def _turn_file(home: Path, conversation: str) -> Path:
    return home / "turns" / f"{stable_hash(conversation)[:32]}.json"


def _write_list(home: Path, records: Sequence[BookRecord]) -> None:
    """Write which books there are; then files that nobody names go, also those that a kill left."""
    _write(home / _LIST, {"books": [asdict(one) for one in records]})
    named = {_book_file(home, one) for one in records}
    for path in (*home.glob("*.book"), *home.glob(".*.tmp")):
        if path not in named:
            remove_durably(path)


def _write(path: Path, value: Any) -> None:
    write_atomic(path, json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def _read(path: Path) -> dict[str, Any] | None:
    """Return an object that was written here, None when there is none. Raises StoreDamaged."""
    try:
        held = json.loads(read_bounded(path, most_bytes=STATE_BYTES_MAX) or b"null")
    except (OSError, ValueError, RecursionError):
        held = []
    if held is not None and not isinstance(held, dict):
        raise StoreDamaged(f"{path} cannot be read; delete it and add the lorebooks again")
    return held
