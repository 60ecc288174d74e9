"""A data directory whose memories lie in Qdrant Edge and whose trail is a file becomes one with a database, once.

At the first start the old store is opened under the lock of its directory (`adapters.old_store`), what a kill left
apart there is put right, and everything is read once: versions with usage, receipts, vectors and words, then the trail
line by line. The new side is made in a folder of its own, read back, counted and hashed against
the old one, and only then takes its place: a journalled move (`adapters.restoring`), which the next start finishes.
A kill before that leaves the old side as it was, and the next start begins anew. The old side is kept in `replaced-N`
until a human removes it; the trail names the folder, and a purge takes its texts there too (`KeptSides`). Rejected: two
truths side by side while pages are copied, which is worse than either.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.adapters.old_store import OldStore
from memory_anchor.adapters.payload import to_payload
from memory_anchor.adapters.restoring import JOURNAL, STAGING
from memory_anchor.adapters.system import SystemClock
from memory_anchor.admin.backup import next_aside, swap_in
from memory_anchor.admin.checks import compare_trail
from memory_anchor.admin.left_behind import REPLACED, UPGRADED
from memory_anchor.admin.purge import IDENTITY, all_text, copied_text
from memory_anchor.admin.waiting import WholeRecord
from memory_anchor.base.json_values import Record
from memory_anchor.domain.errors import StoreDamaged
from memory_anchor.domain.model import COLLECTIONS
from memory_anchor.domain.ports import CollectionSpec, Entry, HeldLock, PageReader
from memory_anchor.domain.where import Where
from memory_anchor.store.audit_rows import SqlAudit, taken_over
from memory_anchor.store.database import DATABASE_FILE, Sqlite
from memory_anchor.store.record_rows import SqlRecords, there_as_files
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.upkeep.job_kit import pages

if TYPE_CHECKING:
    from memory_anchor.admin.traces import PurgeTraces
    from memory_anchor.domain.model import Memory

COPIED_AT_ONCE = 250
AUDIT = "audit"
SALVAGE = "`memory-anchor doctor --salvage` brings back what can be read."
OLD_MIRROR = "mirror.npz"
"""What searches of an old store were loaded from."""
log = logging.getLogger("memory_anchor")


class OldSide(PageReader, Protocol):
    """What is copied from: a directory of an earlier layout, or a server."""

    def count(self, name: str) -> int: ...


def is_old(data_dir: Path, *, with_trail: bool = True) -> bool:
    """Return whether a data directory has the old layout and no database. with_trail: a trail in a file tells it."""
    if (data_dir / DATABASE_FILE).exists():
        return False
    has_trail = with_trail and (data_dir / AUDIT / "audit.jsonl").exists()
    return has_trail or any((data_dir / "store" / name).is_dir() for name in COLLECTIONS)


def upgrade(
    data_dir: Path,
    *,
    lock: HeldLock,
    now: datetime,
    tick: Callable[[str, int, int], None],
) -> None:
    """Give `data_dir` a database with everything that its old layout holds. tick: (collection, done, of how many).

    Raises StoreDamaged: the old side cannot be read, or the new one is not the same; nothing was changed then.
    """
    if not lock.held:
        raise ValueError("an upgrade holds the lock of its directory")
    staging = data_dir / f"{STAGING}{os.getpid()}"
    shutil.rmtree(staging, ignore_errors=True)
    kept = next_aside(data_dir)
    trail = JsonlAudit(data_dir / AUDIT / "audit.jsonl")
    try:
        old_store = OldStore(data_dir / "store")
        with closing(old_store) as old, closing(Sqlite(staging / "new" / DATABASE_FILE)) as database:
            new = SqlStore(database)
            for name in COLLECTIONS:
                old.open_collection(name)
                new.open_collection(name, CollectionSpec(old.embedders(name)))
            compare_trail(old, trail, now)
            versions = {name: copied(name, old, new, tick) for name in COLLECTIONS}
            SqlRecords(database, lambda: now).take_over(data_dir)
            _take_over(trail, SqlAudit(database), {"versions": dict(versions), "kept": kept}, now)
        names = ("store", AUDIT, OLD_MIRROR, *there_as_files(data_dir))
        swap_in(data_dir, staging, [name for name in names if (data_dir / name).exists()])
    finally:
        if not (data_dir / JOURNAL).exists():  # else the next start finishes the move
            shutil.rmtree(staging, ignore_errors=True)
    log.warning("the store was upgraded: %s; what it was before is kept in %s", versions, data_dir / kept)


def _take_over(trail: JsonlAudit, rows: SqlAudit, what: Record, now: datetime) -> None:
    """Copy the trail and record the upgrade in the copy. Raises StoreDamaged: both sides differ."""
    if not taken_over(trail, rows, now):
        raise StoreDamaged("the upgrade of the audit trail did not read back what it wrote; nothing was changed.")
    rows.append(UPGRADED, what, by="system", at=now)
    rows.close()


def copied(
    name: str, old: OldSide, new: SqlStore, tick: Callable[[str, int, int], None], *, advice: str = SALVAGE
) -> int:
    """Copy one collection and read it back; return how many versions.

    Raises StoreDamaged: both sides differ. advice: what to do then.
    """
    total, before = old.count(name), _Hash()
    for page in pages(old, name, Where(), size=COPIED_AT_ONCE, with_vectors=True):
        new.put(name, page)
        before.add(page)
        tick(name, before.count, total)
    after = side_of(new, name)
    if before.side() != after or before.count != total:
        raise StoreDamaged(
            f"{name}: {before.count} of {total} versions were read and {after[0]} written, and they are not the same; "
            f"nothing was changed. {advice}"
        )
    return before.count


def side_of(store: PageReader, name: str) -> tuple[int, str]:
    """Return how many versions one side of a copy has, and their hash."""
    hashed = _Hash()
    for page in pages(store, name, Where(), size=COPIED_AT_ONCE, with_vectors=True):
        hashed.add(page)
    return hashed.side()


class _Hash:
    """A hash over versions in point order: payload with usage and receipts, vectors, words."""

    def __init__(self) -> None:
        self.count = 0
        self._sha = hashlib.sha256()

    def add(self, page: list[Entry]) -> None:
        self.count += len(page)
        for entry in page:
            for part in _parts(entry):
                self._sha.update(part)

    def side(self) -> tuple[int, str]:
        return self.count, self._sha.hexdigest()


def _parts(entry: Entry) -> Iterator[bytes]:
    yield json.dumps(to_payload(entry.memory), sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")
    for name in sorted(entry.vectors):
        yield name.encode() + entry.vectors[name].astype("<f4").tobytes()
    if entry.words is not None:
        yield repr(sorted(zip(entry.words.indices, entry.words.values, strict=True))).encode()


# --- purge -----------------------------------------------------------------------------------------------------------


class KeptSides:
    """What upgrades, restores and salvages left in `replaced-N`, as a holder for a purge.

    Of a database what matches is erased as in the store. Shards of the old layout are not written any more: those with
    a match go whole, and their memories are in the database, or were replaced on purpose. Other files that match go.
    """

    name = "replaced data directories"

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.left: tuple[str, ...] = ()
        """Folders that only a human takes away: approved texts in them match, or their database cannot be read."""

    def erase(self, matches: PurgeTraces) -> int:
        """Erase what matches; return how many versions and files. Raises OSError: not all of it."""
        count, self.left = 0, ()
        for folder in sorted(path for path in self._data_dir.glob(f"{REPLACED}*") if path.is_dir()):
            try:
                count += self._erase_in(folder, matches)
                is_clean = not _matching(folder / IDENTITY, matches)
            except StoreDamaged:
                is_clean = False
            self.left += () if is_clean else (str(folder),)
        return count

    def _erase_in(self, folder: Path, matches: PurgeTraces) -> int:
        count = 0
        if (folder / DATABASE_FILE).exists():
            shutil.rmtree(folder / "index", ignore_errors=True)  # made of the database, which is not used any more
            count += _erase_rows(folder / DATABASE_FILE, matches)
        if is_old(folder, with_trail=False) and (found := _found_in_shards(folder / "store", matches)):
            shutil.rmtree(folder / "store")
            count += found
        (folder / OLD_MIRROR).unlink(missing_ok=True)  # made of the store
        elsewhere = [path for path in folder.iterdir() if path.name not in ("store", AUDIT, IDENTITY)]
        for path in (path for part in elsewhere for path in _matching(part, matches)):
            path.unlink()
            count += 1
        return count


def _matching(root: Path, matches: PurgeTraces) -> list[Path]:
    """Return the files below a folder, or the file itself, that match."""
    paths = sorted(root.rglob("*")) if root.is_dir() else [root]
    return [path for path in paths if path.is_file() and not path.is_symlink() and matches(copied_text(path))]


def _erase_rows(file: Path, matches: PurgeTraces) -> int:
    with closing(SqlStore(Sqlite(file))) as store:
        count = 0
        for name in COLLECTIONS:
            store.open_collection(name, CollectionSpec({}))
            gone: list[str] = []
            for page in pages(store, name, Where(), size=COPIED_AT_ONCE):
                gone += [entry.memory.point_id for entry in page if _is_told_by(entry.memory, matches)]
                rest = [entry.memory for entry in page if not _is_told_by(entry.memory, matches)]
                changed = [new for memory in rest if (new := matches.without(memory)) != memory]
                store.put(name, [Entry(replace(memory, revision=None)) for memory in changed])
                count += len(changed)
            store.erase(name, gone)
            count += len(gone)
        records = SqlRecords(store.database, SystemClock().now)
        count += sum(WholeRecord(records, name).erase(matches) for _, name, _ in records.changes(above=0))
        store.database.wipe()
        return count


def _found_in_shards(directory: Path, matches: PurgeTraces) -> int:
    """Return how many versions of an old store match; those that cannot be read may."""
    count = 0
    try:
        with closing(OldStore(directory)) as old:
            for name in COLLECTIONS:
                old.open_collection(name)
                for page in pages(old, name, Where(), size=COPIED_AT_ONCE):
                    count += sum(_is_told_by(e.memory, matches) or matches.remains_in(e.memory) for e in page)
    except StoreDamaged:
        return max(1, count)
    return count


def _is_told_by(memory: Memory, matches: PurgeTraces) -> bool:
    is_text_in_it = bool(matches.text) and matches.text in all_text(replace(memory, context=""))
    return memory.id in matches.ids or is_text_in_it or matches.retold_in(memory)
