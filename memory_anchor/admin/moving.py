"""The memories of a release that kept its truth on a Qdrant server are carried into the database, once.

Everything is read from the server, written and read back in one transaction, counted and hashed on both sides: all of
it is there, or nothing is. The server's side is only read. Where the settings name it as the index, it is handed over
afterwards: from then on its collections are made of the database, and an engine of the earlier release refuses them.
Rejected: moving by itself at a start, as a directory does: engines of other people may still write to that server.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.admin.backup import AUDIT, next_aside
from memory_anchor.admin.upgrade import copied, side_of
from memory_anchor.base.files import make_private
from memory_anchor.domain.errors import Refused, StoreDamaged
from memory_anchor.domain.model import COLLECTIONS
from memory_anchor.domain.ports import CollectionSpec
from memory_anchor.domain.where import Where
from memory_anchor.store.audit_rows import SqlAudit, taken_over
from memory_anchor.store.point_source import PointSource
from memory_anchor.store.record_rows import SqlRecords, there_as_files

if TYPE_CHECKING:
    from memory_anchor.adapters.old_server import OldServer
    from memory_anchor.base.json_values import Record
    from memory_anchor.store.sql_store import SqlStore

MIGRATED = "store.migrated"
"""Audit kind of a move: from where, and how many versions."""
AGAIN = "The server is as it was: stop every engine that writes to it, and run this again."


def plan(server: OldServer) -> dict[str, int]:
    """Return how many versions a server holds, by collection. Raises StoreDamaged: a collection is not ours."""
    for name in COLLECTIONS:
        server.embedders(name)
    return {name: server.count(name) for name in COLLECTIONS}


def move(
    server: OldServer,
    store: SqlStore,
    data_dir: Path,
    *,
    by: str,
    now: datetime,
    tick: Callable[[str, int, int], None],
) -> dict[str, int]:
    """Carry everything into an empty database, the trail and the records that lie as files too; return how many
    versions of each collection are there.

    tick: (collection, done, of how many). A database that holds the same already is left as it is. Files that are rows
    now are kept in `replaced-N`.
    Raises Refused: it holds other memories, or another trail. StoreDamaged: both sides differ; nothing was changed.
    DiskFull.
    """
    if not any(plan(server).values()):
        return plan(server)
    source, note = PointSource(store.database), f"moved:{server.place}"
    for name in COLLECTIONS:
        store.open_collection(name, CollectionSpec(server.embedders(name)))
    if any(store.count(name, Where()) for name in COLLECTIONS):
        if source.kept(note) != json.dumps([side_of(server, name) for name in COLLECTIONS]):
            raise Refused(
                f"{store.database.place} holds memories already, and others than {server.place}; nothing was changed. "
                "Set data_dir to a new folder, or database.url to an empty database."
            )
        versions = plan(server)  # all of it came here before, and the database has gone on since
    else:
        with store.database.unit():
            versions = {name: copied(name, server, store, tick, advice=AGAIN) for name in COLLECTIONS}
            source.keep(note, json.dumps([side_of(store, name) for name in COLLECTIONS]))
            _take_in_files(data_dir, store, now)
            what: Record = {"from": server.place, "versions": dict(versions)}
            SqlAudit(store.database).append(MIGRATED, what, by=by, at=now)
    kept = data_dir / next_aside(data_dir)
    for name in (AUDIT, *there_as_files(data_dir)):
        if (data_dir / name).exists():
            make_private(kept)
            (kept / name).parent.mkdir(parents=True, exist_ok=True)
            (data_dir / name).rename(kept / name)
    return versions


def _take_in_files(data_dir: Path, store: SqlStore, now: datetime) -> None:
    rows, folder = SqlAudit(store.database), data_dir / AUDIT
    if folder.is_dir():
        trail = JsonlAudit(folder / "audit.jsonl")
        if rows.size() and not b"".join(rows.lines()).startswith(b"".join(raw for raw, _ in trail.lines())):
            raise Refused(
                f"the database has an audit trail already, and {folder} has another; nothing was changed. Move that "
                "folder away to go on without it, or set database.url to an empty database."
            )
        if not rows.size() and not taken_over(trail, rows, now):
            raise StoreDamaged(f"the audit trail did not read back as it was written; nothing was changed. {AGAIN}")
    SqlRecords(store.database, lambda: now).take_over(data_dir)
