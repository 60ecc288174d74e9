"""What was pushed in a batch: kept before it is accepted, worked off behind, told by its id.

One record a batch below `team/ingest/`: a file, synced before the answer, or (of several replicas) on the server, where
whichever works batches off finds it. A batch is known again by its request id, or by what it holds, so sending it twice
is one, whoever is asked. Its items are worked off in order, each under a name of its own, by which the store knows an
item again after a kill; so outcomes are written once, at the end, and then the texts leave. Bounded: batches that wait
(in all, and of one account), and how long a report is kept.

On a server what waits and what is told of it lie apart, so that a list of names says what waits and whose; where both
are there, a kill came between the report and the end of its batch.
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
from memory_anchor.care.waiting import BATCHES, PURGED_ITEM
from memory_anchor.errors import BadInput, ChangedMeanwhile, NotFound, TooMany, Unavailable, retry_on_conflict
from memory_anchor.hashing import stable_hash
from memory_anchor.json_values import Record, parsed, record, records, text
from memory_anchor.ports import MemoryStore, SharedRecord, SharedRecords
from memory_anchor.upkeep.leases import RUNNER_FILE, Lease, NoLease, StoreLease, runner_id

REPORTS = "team/ingested"
"""Of several replicas: what became of batches."""
ITEMS_MAX = 500
WAITING_MAX = 256
WAITING_OF_ONE = 32
REPORTS_MAX = 5_000
REPORT_KEPT = timedelta(days=7)
ID_CHARS = 26
ACCOUNT_CHARS = 12
BUSY_S = 5
LISTED_S = 1.0
"""How old a list of what waits on a server may be when it is counted."""
PRUNED_S = 600.0


@dataclass(slots=True)
class Batch:
    """What was accepted. items: of one that is done only how many there were; owner: whose it is, by name."""

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
        """Return the batch as it is kept."""
        told = asdict(self)
        del told["revision"]
        return json.dumps(told, ensure_ascii=False).encode()

    def report(self) -> Record:
        return {
            "id": self.id,
            "state": self.state,
            "at": self.at,
            "items": self.count,
            "outcomes": list(self.outcomes),
        }

    @classmethod
    def of(cls, content: bytes, revision: str = "") -> Batch:
        """Return a batch as it was kept. Raises ValueError, KeyError, RecursionError: it is none."""
        told = record(parsed(content))
        listed = told["items"]
        return cls(
            text(told["id"]),
            {name: text(one) for name, one in record(told["owner"]).items()},
            text(told["what"]),
            text(told["at"]),
            listed if isinstance(listed, int) else records(listed),
            text(told["state"]),
            records(told["outcomes"]),
            revision,
        )


class Batches:
    """The batches of a service. Thread-safe; one process at a time works them off. monotonic: seconds."""

    def __init__(self, records: SharedRecords, monotonic: Callable[[], float]) -> None:
        self._records, self._monotonic = records, monotonic
        self._lock = threading.Lock()
        self._waiting: dict[str, str] | None = None
        self._listed_at = self._pruned_at = float("-inf")

    def accept(self, owner: Mapping[str, str], request_id: str, items: Sequence[Record], now: datetime) -> Record:
        """Keep a batch and return its report; of one that came before, how far it is.

        Raises BadInput: the request id of other items. TooMany, Unavailable: too many wait.
        """
        held = json.dumps(items, ensure_ascii=False, sort_keys=True)
        whose = json.dumps(owner, sort_keys=True)
        what = stable_hash("items", held)
        id_ = stable_hash("batch", whose, request_id or what)[:ID_CHARS]
        account = owner["account"]
        batch = Batch(id_, owner, what, now.isoformat(), items)

        def kept() -> Record:
            known = self._known(id_, account)
            if known is not None:
                if known.what != what:
                    raise BadInput(f"request_id {request_id!r} came before with other items; take another one")
                return known.report()
            waiting, key = self._names(), self._key(account)
            if len(waiting) >= WAITING_MAX:
                raise Unavailable(f"{len(waiting)} batches wait already; send it again in {BUSY_S} s")
            if sum(one == key for one in waiting.values()) >= WAITING_OF_ONE:
                raise TooMany(f"{WAITING_OF_ONE} batches of this account wait already; wait {BUSY_S} s", BUSY_S)
            self._prune(now)
            self._records.write(self._name(id_, account), batch.content(), before="")
            waiting[id_] = key
            return batch.report()

        with self._lock:
            return retry_on_conflict(kept)

    def report(self, id_: str, *, account: str, user: str) -> Record:
        """Return how far a batch is. Raises NotFound: none of this account and user."""
        known = self._known(id_, account) if len(id_) == ID_CHARS and id_.isalnum() else None
        if known is None or known.account != account or (user and known.owner["user"] != user):
            raise NotFound(f"no batch {id_[:40]!r}; reports are kept {REPORT_KEPT.days} days")
        return known.report()

    def count(self) -> int:
        """Return how many wait."""
        with self._lock:
            return len(self._names())

    def waiting(self) -> Iterator[Batch]:
        """Yield the batches that wait, oldest first; one that another replica ended meanwhile is left out."""
        with self._lock:
            self._listed_at = float("-inf")
            keys = dict(self._names())
        if self._records.is_shared:
            names = [one.name for one in sorted(self._records.listed(BATCHES), key=lambda one: (one.at, one.name))]
            yield from (one for name in names if (one := self._read(name)[0]) is not None)
            return
        held = [self._read(self._name(id_, keys[id_]))[0] for id_ in keys]
        yield from sorted((one for one in held if one and one.state == "accepted"), key=lambda one: one.at)

    def now(self, batch: Batch, place: int) -> Record:
        """Return an item as it stands at this moment: a purge may have taken it meanwhile."""
        name = self._name(batch.id, batch.account)
        with self._lock:
            revision = self._records.revisions([name]).get(name, "")
            if revision != batch.revision:
                known = self._read(name)[0]
                batch.items = known.items if known is not None else [PURGED_ITEM] * batch.count
                batch.revision = revision
        return PURGED_ITEM if isinstance(batch.items, int) else batch.items[place]

    def done(self, batch: Batch, outcomes: Sequence[Record]) -> None:
        """Write what became of each item; its texts leave."""
        name = self._name(batch.id, batch.account)

        def end() -> None:
            known, revision = self._read(name)
            if known is None:
                return
            content = replace(known, state="done", items=known.count, outcomes=list(outcomes)).content()
            if not self._records.is_shared:
                self._records.write(name, content, before=revision)
                return
            with contextlib.suppress(ChangedMeanwhile):  # the report of a replica that was killed before its end
                self._records.write(f"{REPORTS}/{batch.id}.json", content, before="")
            self._records.delete(name, before=revision)

        with self._lock:
            retry_on_conflict(end)
            self._names().pop(batch.id, None)

    def take_over(self, data_dir: Path) -> None:
        """Take what waits in files to the server: of before it was shared, or of a backup."""
        files = FileRecords(data_dir)
        for one in files.listed(BATCHES):
            held = files.read(one.name)
            try:
                known = Batch.of(held.content) if held is not None else None
            except (ValueError, KeyError, RecursionError):
                continue
            if held is not None and known is not None and known.state == "accepted":
                name = self._name(known.id, known.account)
                with contextlib.suppress(ChangedMeanwhile):  # it is there
                    self._records.write(name, held.content, before="")
                files.delete(one.name, before=held.revision)

    # --- records -------------------------------------------------------------------------------------------------

    def is_told(self, batch: Batch) -> bool:
        """Return whether a replica that was killed had ended a batch but for taking it off."""
        name = f"{REPORTS}/{batch.id}.json"
        return self._records.is_shared and bool(self._records.revisions([name]))

    def _names(self) -> dict[str, str]:
        """Return id -> whose, of what waits: files are read the first time, a server's list is a second old at most."""
        if self._records.is_shared:
            if self._waiting is None or self._monotonic() - self._listed_at > LISTED_S:
                parts = [PurePosixPath(one.name) for one in self._records.listed(BATCHES)]
                self._waiting = {path.stem: path.parent.name for path in parts}
                self._listed_at = self._monotonic()
        elif self._waiting is None:
            held = [self._read(one.name)[0] for one in self._records.listed(BATCHES)]
            self._waiting = {one.id: one.account for one in held if one and one.state == "accepted"}
        return self._waiting

    def _key(self, account: str) -> str:
        """Return how an account is named in a list: on a server by a hash, since names of records are bounded."""
        return stable_hash("account", account)[:ACCOUNT_CHARS] if self._records.is_shared else account

    def _name(self, id_: str, account: str) -> str:
        return f"{BATCHES}/{self._key(account)}/{id_}.json" if self._records.is_shared else f"{BATCHES}/{id_}.json"

    def _known(self, id_: str, account: str) -> Batch | None:
        told = self._read(f"{REPORTS}/{id_}.json")[0] if self._records.is_shared else None
        return told or self._read(self._name(id_, account))[0]

    def _read(self, name: str) -> tuple[Batch | None, str]:
        """Return a batch and its revision, None for what is none of ours."""
        held: SharedRecord | None = None
        try:
            held = self._records.read(name)
            revision = held.revision if held is not None else ""
            return (Batch.of(held.content, revision) if held is not None else None), revision
        except (ValueError, KeyError, RecursionError):
            return None, held.revision if held is not None else ""

    def _prune(self, now: datetime) -> None:
        """Remove old reports; what waits stays."""
        if self._records.is_shared and self._monotonic() - self._pruned_at < PRUNED_S:
            return
        self._pruned_at = self._monotonic()
        reports = sorted(self._records.listed(REPORTS if self._records.is_shared else BATCHES), key=lambda one: one.at)
        beyond, waiting = len(reports) - REPORTS_MAX, self._names()
        for place, one in enumerate(reports):
            if PurePosixPath(one.name).stem in waiting:
                continue
            if place >= beyond and now.timestamp() - one.at < REPORT_KEPT.total_seconds():
                break
            with contextlib.suppress(ChangedMeanwhile):
                self._records.delete(one.name, before=one.revision)


NAME = "ingest"
LEASE_S, RENEW_S = 20.0, 5.0
"""A replica that was killed is followed by another one after so long."""


def shift_of(store: MemoryStore, data_dir: Path, *, is_shared: bool) -> Lease:
    """Return the right to work batches off; alone it is always held."""
    if not is_shared:
        return NoLease()
    holder = runner_id(data_dir / RUNNER_FILE, new_token)
    return StoreLease(store, SystemClock(), holder, name=NAME, lasts_s=LEASE_S, renew_s=RENEW_S)
