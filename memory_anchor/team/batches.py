"""What was pushed in a batch: on disk before it is accepted, worked off behind, told by its id.

One file a batch below `team/ingest/`, synced before the answer. A batch is known again by its request id, or by what it
holds, so sending it twice is one. Its items are worked off in order, each under a name of its own, by which the store
knows an item again after a kill; so outcomes are written once, at the end, and then the texts leave the disk. Bounded:
batches that wait (in all, and of one account), and how long a report is kept.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from memory_anchor.care.purge import PURGED_ITEM
from memory_anchor.errors import BadInput, NotFound, TooMany, Unavailable
from memory_anchor.files import make_private, read_bounded, remove_durably, write_whole
from memory_anchor.hashing import stable_hash

FOLDER = "ingest"
ITEMS_MAX = 500
WAITING_MAX = 256
WAITING_OF_ONE = 32
REPORTS_MAX = 5_000
REPORT_KEPT = timedelta(days=7)
FILE_BYTES_MAX = 64 << 20
ID_CHARS = 26
BUSY_S = 5
Json = dict[str, Any]


class Batches:
    """The batches of one data directory. Thread-safe; one process works them off. folder: `<data_dir>/team`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._lock = threading.Lock()
        self._waiting: dict[str, str] | None = None

    def accept(self, owner: Mapping[str, Any], request_id: str, items: Sequence[Json], now: datetime) -> Json:
        """Keep a batch and return its report; of one that came before, how far it is.

        Raises BadInput: the request id of other items. TooMany, Unavailable: too many wait.
        """
        held = json.dumps(items, ensure_ascii=False, sort_keys=True)
        whose = json.dumps(owner, sort_keys=True)
        what = stable_hash("items", held)
        id_ = stable_hash("batch", whose, request_id or what)[:ID_CHARS]
        with self._lock:
            known = self._read(id_)
            if known is not None:
                if known["what"] != what:
                    raise BadInput(f"request_id {request_id!r} came before with other items; take another one")
                return _report(known)
            waiting = self._known()
            if len(waiting) >= WAITING_MAX:
                raise Unavailable(f"{len(waiting)} batches wait already; send it again in {BUSY_S} s")
            account = str(owner["account"])
            if sum(one == account for one in waiting.values()) >= WAITING_OF_ONE:
                raise TooMany(f"{WAITING_OF_ONE} batches of this account wait already; wait {BUSY_S} s", BUSY_S)
            batch = {"id": id_, "owner": dict(owner), "what": what, "at": now.isoformat(), "state": "accepted"}
            make_private(self._folder.parent)
            make_private(self._folder)
            self._prune(now)
            self._write({**batch, "items": list(items), "outcomes": []})
            waiting[id_] = account
            return _report({**batch, "items": items, "outcomes": []})

    def report(self, id_: str, *, account: str, user: str) -> Json:
        """Return how far a batch is. Raises NotFound: none of this account and user."""
        known = self._read(id_) if len(id_) == ID_CHARS and id_.isalnum() else None
        if known is None or known["owner"]["account"] != account or (user and known["owner"]["user"] != user):
            raise NotFound(f"no batch {id_[:40]!r}; reports are kept {REPORT_KEPT.days} days")
        return _report(known)

    def count(self) -> int:
        """Return how many wait."""
        with self._lock:
            return len(self._known())

    def waiting(self) -> Iterator[Json]:
        """Yield the batches that wait, oldest first."""
        with self._lock:
            ids = list(self._known())
        held = [one for id_ in ids if (one := self._read(id_)) is not None and one["state"] == "accepted"]
        yield from sorted(held, key=lambda one: str(one["at"]))

    def now(self, batch: Json, place: int) -> Json:
        """Return an item as it stands on disk at this moment: a purge may have taken it meanwhile."""
        path = self._folder / f"{batch['id']}.json"
        with self._lock:
            stamp = _stamp(path)
            if stamp != batch.get("stamp"):
                known = self._read(batch["id"])
                batch["items"] = known["items"] if known is not None else [PURGED_ITEM] * len(batch["items"])
                batch["stamp"] = stamp
        item: Json = batch["items"][place]
        return item

    def done(self, id_: str, outcomes: Sequence[Json]) -> None:
        """Write what became of each item; its texts leave the disk."""
        with self._lock:
            batch = self._read(id_)
            if batch is not None:
                self._write({**batch, "state": "done", "items": len(batch["items"]), "outcomes": list(outcomes)})
            self._known().pop(id_, None)

    def _known(self) -> dict[str, str]:
        """Return id -> account of what waits; the disk is read the first time."""
        if self._waiting is None:
            held = [one for path in self._folder.glob("*.json") if (one := self._read(path.stem)) is not None]
            self._waiting = {one["id"]: one["owner"]["account"] for one in held if one["state"] == "accepted"}
        return self._waiting

    def _read(self, id_: str) -> Json | None:
        try:
            raw = read_bounded(self._folder / f"{id_}.json", most_bytes=FILE_BYTES_MAX)
            known = json.loads(raw) if raw is not None else None
        except (OSError, ValueError, RecursionError):
            return None
        whole = isinstance(known, dict) and {"id", "owner", "what", "at", "state", "items", "outcomes"} <= known.keys()
        return known if whole else None

    def _write(self, batch: Json) -> None:
        write_whole(self._folder / f"{batch['id']}.json", json.dumps(batch, ensure_ascii=False).encode())

    def _prune(self, now: datetime) -> None:
        """Remove old reports; what waits stays."""
        files = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        beyond = len(files) - REPORTS_MAX
        for place, path in enumerate(files):
            if path.stem in self._known():
                continue
            if place >= beyond and now.timestamp() - path.stat().st_mtime < REPORT_KEPT.total_seconds():
                break
            remove_durably(path)


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _report(batch: Mapping[str, Any]) -> Json:
    items = batch["items"]
    return {
        "id": batch["id"],
        "state": batch["state"],
        "at": batch["at"],
        "items": items if isinstance(items, int) else len(items),
        "outcomes": list(batch["outcomes"]),
    }
