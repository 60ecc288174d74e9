"""Pushed batches: stored before they are accepted, processed in the background, reported by id.

One file a batch below `team/ingest/`, synced before the answer. A batch is recognised by its request id or its content,
so sending it twice is one batch. Its items are processed in order, each with a nonce of its own, by which the store
recognises an item again after a kill; so outcomes are written once, at the end, and the texts are dropped then.
Bounded: waiting batches (in all, and of one account), and how long a report is kept.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import PurePosixPath

from memory_anchor.admin.waiting import BATCHES, PURGED_ITEM
from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Record, parsed, record, records, text
from memory_anchor.domain.errors import BadInput, ChangedMeanwhile, NotFound, TooMany, Unavailable, retry_on_conflict
from memory_anchor.domain.ports import SmallRecords, StoredRecord

ITEMS_MAX = 500
WAITING_MAX = 256
WAITING_OF_ONE = 32
REPORTS_MAX = 5_000
REPORT_KEPT = timedelta(days=7)
ID_CHARS = 26
BUSY_S = 5


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
    """The batches of a service. Thread-safe; one process at a time processes them."""

    def __init__(self, records: SmallRecords) -> None:
        self._records = records
        self._lock = threading.Lock()
        self._known: dict[str, tuple[str, str]] = {}
        """Name -> revision, and the account of a batch that waits, else ""."""

    def accept(self, owner: Mapping[str, str], request_id: str, items: Sequence[Record], now: datetime) -> Record:
        """Store a batch and return its report; of a known one, its present report.

        Raises BadInput: the request id of other items. TooMany, Unavailable: too many wait.
        """
        what = stable_hash("items", json.dumps(items, ensure_ascii=False, sort_keys=True))
        id_ = stable_hash("batch", json.dumps(owner, sort_keys=True), request_id or what)[:ID_CHARS]
        account = owner["account"]
        batch = Batch(id_, owner, what, now.isoformat(), items)

        def store() -> Record:
            known = self._read(_name(id_))[0]
            if known is not None:
                if known.what != what:
                    raise BadInput(f"request_id {request_id!r} came before with other items; take another one")
                return known.report()
            waiting = self._names()
            if len(waiting) >= WAITING_MAX:
                raise Unavailable(f"{len(waiting)} batches wait already; send it again in {BUSY_S} s")
            if list(waiting.values()).count(account) >= WAITING_OF_ONE:
                raise TooMany(f"{WAITING_OF_ONE} batches of this account wait already; wait {BUSY_S} s", BUSY_S)
            self._prune(now)
            self._records.write(_name(id_), batch.content(), before="")
            return batch.report()

        with self._lock:
            return retry_on_conflict(store)

    def report(self, id_: str, *, account: str, user: str, project: str) -> Record:
        """Return a batch's report. user, project: that the reader is bound to, "" for any.

        Raises NotFound: no such batch, or another's.
        """
        batch = self._read(_name(id_))[0] if len(id_) == ID_CHARS and id_.isalnum() else None
        bound = {"account": account, "user": user, "project": project}
        if batch is None or any(value and batch.owner[name] != value for name, value in bound.items()):
            raise NotFound(f"no batch {id_[:40]!r}; reports are kept {REPORT_KEPT.days} days")
        return batch.report()

    def count(self) -> int:
        with self._lock:
            return len(self._names())

    def waiting(self) -> Iterator[Batch]:
        """Yield the waiting batches, oldest first."""
        with self._lock:
            names = list(self._names())
        batches = [self._read(_name(id_))[0] for id_ in names]
        yield from sorted((batch for batch in batches if batch and batch.state == "accepted"), key=lambda b: b.at)

    def current_item(self, batch: Batch, index: int) -> Record:
        """Return an item as stored at this moment: a purge may have removed it meanwhile."""
        name = _name(batch.id)
        with self._lock:
            revision = self._records.revisions([name]).get(name, "")
            if revision != batch.revision:
                stored = self._read(name)[0]
                batch.items = stored.items if stored is not None else [PURGED_ITEM] * batch.count
                batch.revision = revision
        return PURGED_ITEM if isinstance(batch.items, int) else batch.items[index]

    def finish(self, batch: Batch, outcomes: Sequence[Record]) -> None:
        """Store the outcome of each item, and drop the texts."""
        name = _name(batch.id)

        def end() -> None:
            known, revision = self._read(name)
            if known is None:
                return
            done = replace(known, state="done", items=known.count, outcomes=list(outcomes))
            self._records.write(name, done.content(), before=revision)

        with self._lock:
            retry_on_conflict(end)

    def _names(self) -> dict[str, str]:
        """Return id -> account of waiting batches, those of other replicas too; each content is read once."""
        known: dict[str, tuple[str, str]] = {}
        for row in self._records.listed(BATCHES):
            if (seen := self._known.get(row.name)) is None or seen[0] != row.revision:
                batch, revision = self._read(row.name)
                seen = (revision, batch.account if batch and batch.state == "accepted" else "")
            known[row.name] = seen
        self._known = known
        return {PurePosixPath(name).stem: account for name, (_, account) in known.items() if account}

    def _read(self, name: str) -> tuple[Batch | None, str]:
        """Return a batch and its revision; None for one that is gone or cannot be read."""
        stored: StoredRecord | None = None
        try:
            stored = self._records.read(name)
            return (Batch.of(stored.content, stored.revision), stored.revision) if stored is not None else (None, "")
        except (ValueError, KeyError, RecursionError):
            return None, stored.revision if stored is not None else ""

    def _prune(self, now: datetime) -> None:
        """Delete old reports, and no waiting batch."""
        reports = sorted(self._records.listed(BATCHES), key=lambda row: row.at)
        excess, waiting = len(reports) - REPORTS_MAX, self._names()
        for index, report in enumerate(reports):
            if PurePosixPath(report.name).stem in waiting:
                continue
            if index >= excess and now.timestamp() - report.at < REPORT_KEPT.total_seconds():
                break
            with contextlib.suppress(ChangedMeanwhile):
                self._records.delete(report.name, before=report.revision)


def _name(id_: str) -> str:
    return f"{BATCHES}/{id_}.json"
