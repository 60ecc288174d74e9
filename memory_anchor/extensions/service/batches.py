"""Pushed batches: stored before they are accepted, processed in the background, reported by id.

One record a batch below `team/ingest/`: a file, synced before the answer, or (with several replicas) on the server,
where any replica finds it. A batch is recognised by its request id or its content, so sending it twice is one batch,
whichever replica gets it. Its items are processed in order, each with a nonce of its own, by which the store recognises
an item again after a kill; so outcomes are written once, at the end, and the texts are dropped then. Bounded: waiting
batches (in all, and of one account), and how long a report is kept.

On a server, waiting batches and reports are separate records, so that a list of names says what waits and for which
account; where both exist, a replica was killed between writing the report and deleting the batch.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath

from memory_anchor.adapters.file_records import FileRecords
from memory_anchor.adapters.system import SystemClock, new_token
from memory_anchor.admin.waiting import BATCHES, PURGED_ITEM
from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Record, parsed, record, records, text
from memory_anchor.domain.errors import BadInput, ChangedMeanwhile, NotFound, TooMany, Unavailable, retry_on_conflict
from memory_anchor.domain.ports import MemoryStore, SharedRecord, SharedRecords
from memory_anchor.upkeep.leases import RUNNER_FILE, Lease, NoLease, StoreLease, runner_id

REPORTS = "team/ingested"
"""With several replicas: the folder of reports."""
ITEMS_MAX = 500
WAITING_MAX = 256
WAITING_OF_ONE = 32
REPORTS_MAX = 5_000
REPORT_KEPT = timedelta(days=7)
ID_CHARS = 26
ACCOUNT_CHARS = 12
BUSY_S = 5
LISTED_S = 1.0
"""How old a server's list of waiting batches may be when it is counted."""
PRUNED_S = 600.0


@dataclass(slots=True)
class Batch:
    """An accepted batch. items: of a finished one only their number. owner: the caller's scope, by name."""

    id: str
    owner: Mapping[str, str]
    what: str
    at: str
    items: Sequence[Record] | int
    state: str = "accepted"
    outcomes: Sequence[Record] = ()
    revision: str = ""

    @property
    def count(self) -> int:
        return self.items if isinstance(self.items, int) else len(self.items)

    @property
    def account(self) -> str:
        return self.owner["account"]

    def content(self) -> bytes:
        fields = asdict(self)
        del fields["revision"]
        return json.dumps(fields, ensure_ascii=False).encode()

    def report(self) -> Record:
        outcomes = list(self.outcomes)
        return {"id": self.id, "state": self.state, "at": self.at, "items": self.count, "outcomes": outcomes}

    @classmethod
    def of(cls, content: bytes, revision: str = "") -> Batch:
        """Return a stored batch. Raises ValueError, KeyError, RecursionError: it is none."""
        fields = record(parsed(content))
        items = fields["items"]
        return cls(
            text(fields["id"]),
            {name: text(part) for name, part in record(fields["owner"]).items()},
            text(fields["what"]),
            text(fields["at"]),
            items if isinstance(items, int) else records(items),
            text(fields["state"]),
            records(fields["outcomes"]),
            revision,
        )


class Batches:
    """The batches of a service. Thread-safe; one process at a time processes them. monotonic: seconds."""

    def __init__(self, records: SharedRecords, monotonic: Callable[[], float]) -> None:
        self._records, self._monotonic = records, monotonic
        self._lock = threading.Lock()
        self._waiting: dict[str, str] | None = None
        self._listed_at = self._pruned_at = float("-inf")

    def accept(self, owner: Mapping[str, str], request_id: str, items: Sequence[Record], now: datetime) -> Record:
        """Store a batch and return its report; of a known one, its present report.

        Raises BadInput: the request id of other items. TooMany, Unavailable: too many wait.
        """
        what = stable_hash("items", json.dumps(items, ensure_ascii=False, sort_keys=True))
        id_ = stable_hash("batch", json.dumps(owner, sort_keys=True), request_id or what)[:ID_CHARS]
        account = owner["account"]
        batch = Batch(id_, owner, what, now.isoformat(), items)

        def store() -> Record:
            known = self._known(id_, account)
            if known is not None:
                if known.what != what:
                    raise BadInput(f"request_id {request_id!r} came before with other items; take another one")
                return known.report()
            waiting, key = self._names(), self._key(account)
            if len(waiting) >= WAITING_MAX:
                raise Unavailable(f"{len(waiting)} batches wait already; send it again in {BUSY_S} s")
            if list(waiting.values()).count(key) >= WAITING_OF_ONE:
                raise TooMany(f"{WAITING_OF_ONE} batches of this account wait already; wait {BUSY_S} s", BUSY_S)
            self._prune(now)
            self._records.write(self._name(id_, account), batch.content(), before="")
            waiting[id_] = key
            return batch.report()

        with self._lock:
            return retry_on_conflict(store)

    def report(self, id_: str, *, account: str, user: str, project: str) -> Record:
        """Return a batch's report. user, project: that the reader is bound to, "" for any.

        Raises NotFound: no such batch, or another's.
        """
        batch = self._known(id_, account) if len(id_) == ID_CHARS and id_.isalnum() else None
        bound = {"account": account, "user": user, "project": project}
        if batch is None or any(value and batch.owner[name] != value for name, value in bound.items()):
            raise NotFound(f"no batch {id_[:40]!r}; reports are kept {REPORT_KEPT.days} days")
        return batch.report()

    def count(self) -> int:
        with self._lock:
            return len(self._names())

    def waiting(self) -> Iterator[Batch]:
        """Yield the waiting batches, oldest first; one that another replica finished meanwhile is left out."""
        with self._lock:
            self._listed_at = float("-inf")
            keys = dict(self._names())
        if self._records.is_shared:
            names = [row.name for row in sorted(self._records.listed(BATCHES), key=lambda row: (row.at, row.name))]
            yield from (batch for name in names if (batch := self._read(name)[0]) is not None)
            return
        batches = [self._read(self._name(id_, keys[id_]))[0] for id_ in keys]
        yield from sorted((batch for batch in batches if batch and batch.state == "accepted"), key=lambda b: b.at)

    def current_item(self, batch: Batch, index: int) -> Record:
        """Return an item as stored at this moment: a purge may have removed it meanwhile."""
        name = self._name(batch.id, batch.account)
        with self._lock:
            revision = self._records.revisions([name]).get(name, "")
            if revision != batch.revision:
                stored = self._read(name)[0]
                batch.items = stored.items if stored is not None else [PURGED_ITEM] * batch.count
                batch.revision = revision
        return PURGED_ITEM if isinstance(batch.items, int) else batch.items[index]

    def finish(self, batch: Batch, outcomes: Sequence[Record]) -> None:
        """Store the outcome of each item, and drop the texts."""
        name = self._name(batch.id, batch.account)

        def end() -> None:
            known, revision = self._read(name)
            if known is None:
                return
            content = replace(known, state="done", items=known.count, outcomes=list(outcomes)).content()
            if not self._records.is_shared:
                self._records.write(name, content, before=revision)
                return
            with contextlib.suppress(ChangedMeanwhile):  # of a replica killed before it deleted the batch
                self._records.write(f"{REPORTS}/{batch.id}.json", content, before="")
            self._records.delete(name, before=revision)

        with self._lock:
            retry_on_conflict(end)
            self._names().pop(batch.id, None)

    def adopt_files(self, data_dir: Path) -> None:
        """Move batches that wait in files to the server: from before it was shared, or from a backup."""
        files = FileRecords(data_dir)
        for row in files.listed(BATCHES):
            if (stored := files.read(row.name)) is None:
                continue
            try:
                batch = Batch.of(stored.content)
            except (ValueError, KeyError, RecursionError):
                continue
            if batch.state == "accepted":
                with contextlib.suppress(ChangedMeanwhile):  # already there
                    self._records.write(self._name(batch.id, batch.account), stored.content, before="")
                files.delete(row.name, before=stored.revision)

    # --- records -------------------------------------------------------------------------------------------------

    def has_report(self, batch: Batch) -> bool:
        """Return whether a killed replica had written a batch's report without deleting the batch."""
        name = f"{REPORTS}/{batch.id}.json"
        return self._records.is_shared and bool(self._records.revisions([name]))

    def _names(self) -> dict[str, str]:
        """Return id -> account of waiting batches; files are read once, a server's list is at most a second old."""
        if self._records.is_shared:
            if self._waiting is None or self._monotonic() - self._listed_at > LISTED_S:
                paths = [PurePosixPath(row.name) for row in self._records.listed(BATCHES)]
                self._waiting = {path.stem: path.parent.name for path in paths}
                self._listed_at = self._monotonic()
        elif self._waiting is None:
            batches = [self._read(row.name)[0] for row in self._records.listed(BATCHES)]
            self._waiting = {batch.id: batch.account for batch in batches if batch and batch.state == "accepted"}
        return self._waiting

    def _key(self, account: str) -> str:
        """Return an account's part of a record's name: on a server a hash, since those names are bounded."""
        return stable_hash("account", account)[:ACCOUNT_CHARS] if self._records.is_shared else account

    def _name(self, id_: str, account: str) -> str:
        return f"{BATCHES}/{self._key(account)}/{id_}.json" if self._records.is_shared else f"{BATCHES}/{id_}.json"

    def _known(self, id_: str, account: str) -> Batch | None:
        finished = self._read(f"{REPORTS}/{id_}.json")[0] if self._records.is_shared else None
        return finished or self._read(self._name(id_, account))[0]

    def _read(self, name: str) -> tuple[Batch | None, str]:
        """Return a batch and its revision; None for one that is gone or cannot be read."""
        stored: SharedRecord | None = None
        try:
            stored = self._records.read(name)
            return (Batch.of(stored.content, stored.revision), stored.revision) if stored is not None else (None, "")
        except (ValueError, KeyError, RecursionError):
            return None, stored.revision if stored is not None else ""

    def _prune(self, now: datetime) -> None:
        """Delete old reports, and no waiting batch."""
        if self._records.is_shared and self._monotonic() - self._pruned_at < PRUNED_S:
            return
        self._pruned_at = self._monotonic()
        reports = sorted(self._records.listed(REPORTS if self._records.is_shared else BATCHES), key=lambda row: row.at)
        excess, waiting = len(reports) - REPORTS_MAX, self._names()
        for index, report in enumerate(reports):
            if PurePosixPath(report.name).stem in waiting:
                continue
            if index >= excess and now.timestamp() - report.at < REPORT_KEPT.total_seconds():
                break
            with contextlib.suppress(ChangedMeanwhile):
                self._records.delete(report.name, before=report.revision)


NAME = "ingest"
LEASE_S, RENEW_S = 20.0, 5.0
"""After a kill another replica takes over after this long."""


def batch_lease(store: MemoryStore, data_dir: Path, *, is_shared: bool) -> Lease:
    """Return the lease for processing batches; without replicas it is always granted."""
    if not is_shared:
        return NoLease()
    holder = runner_id(data_dir / RUNNER_FILE, new_token)
    return StoreLease(store, SystemClock(), holder, name=NAME, lasts_s=LEASE_S, renew_s=RENEW_S)
