"""Knowledge of several replicas: whose turn it is to read, and the records they share.

Whose turn it is to read knowledge that waits: of several replicas one at a time, by a lease that ends by itself.

Who has nothing left to do gives it back. A removal on another replica goes first: whoever reads stands aside between
two batches. Alone it is always this process's turn.

Records of shared knowledge: what stands in them, their names, and the rows of the copy that are made of them.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from memory_anchor.adapters.system import SystemClock, new_token
from memory_anchor.errors import MemoryAnchorError, Unavailable
from memory_anchor.hashing import stable_hash
from memory_anchor.knowledge.catalogue import Place
from memory_anchor.knowledge.sources import Source, SourceKind
from memory_anchor.model import Scope, Trust, Visibility
from memory_anchor.upkeep.leases import RUNNER_FILE, Lease, NoLease, StoreLease, runner_id

if TYPE_CHECKING:
    import sqlite3

    from memory_anchor.ports import MemoryStore

NAME = "knowledge"
LEASE_S, RENEW_S = 20.0, 5.0
"""What a replica that was killed had begun goes on elsewhere after so long."""
WAIT_S, PAUSE_S = 30.0, 0.05


class ReadingTurn:
    """Thread-safe. on_taken: called when others may have had it before."""

    def __init__(
        self, lease: Lease | None, monotonic: Callable[[], float], on_taken: Callable[[], None] = lambda: None
    ) -> None:
        """lease: None for the only process there is."""
        self._monotonic = monotonic
        self._lease: Lease = lease or NoLease()
        self._is_shared, self._on_taken = lease is not None, on_taken
        self._had_at = float("-inf")
        self.is_ours = False

    @classmethod
    def of(
        cls, store: MemoryStore, data_dir: Path, monotonic: Callable[[], float], on_taken: Callable[[], None]
    ) -> ReadingTurn:
        """Return the turn of one of several replicas."""
        holder = runner_id(data_dir / RUNNER_FILE, new_token)
        lease = StoreLease(store, SystemClock(), holder, name=NAME, lasts_s=LEASE_S, renew_s=RENEW_S)
        return cls(lease, monotonic, on_taken)

    def held(self) -> bool:
        """Return whether it is ours now, taking it where nobody has it. Raises Unavailable."""
        if not self._is_shared:
            return True
        self.is_ours, was = self._lease.held(), self.is_ours
        now = self._monotonic()
        if self.is_ours and (not was or now - self._had_at > LEASE_S):
            self._on_taken()
        self._had_at = now if self.is_ours else self._had_at
        return self.is_ours

    def renew(self) -> None:
        """Keep it while a step takes long."""
        if self.is_ours and self._lease.held():
            self._had_at = self._monotonic()

    def over(self) -> None:
        """Let others have it."""
        if self.is_ours:
            self.is_ours = False
            self._lease.release()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold it for the block, waiting for who has it. Raises Unavailable: it takes too long."""
        end, pause = self._monotonic() + WAIT_S, threading.Event()
        while not self.held():
            if self._monotonic() > end:
                raise Unavailable("another replica reads knowledge at this moment; ask again in a minute")
            pause.wait(PAUSE_S)
        try:
            yield
        finally:
            with contextlib.suppress(MemoryAnchorError):
                self.over()


class Poll:
    """Keeps a turn while a document takes long, and looks for what others accepted and could not read."""

    def __init__(self, turn: ReadingTurn, look: Callable[[], None]) -> None:
        self._turn, self._look = turn, look
        self._ending = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="knowledge poll", daemon=True).start()

    def end(self) -> None:
        self._ending.set()

    def _run(self) -> None:
        while not self._ending.wait(RENEW_S):
            with contextlib.suppress(MemoryAnchorError):
                if self._turn.is_ours:
                    self._turn.renew()
                self._look()


SOURCES, DOCS, QUEUE, BLOBS = (f"knowledge/{part}" for part in ("sources", "docs", "queue", "blobs"))
BUCKETS = 64
NAME_CHARS = 26
COPIED = """
CREATE TABLE IF NOT EXISTS copied(name TEXT PRIMARY KEY, source TEXT, revision TEXT, content TEXT DEFAULT '');
"""
"""Which revision of each record the copy is made of; of a source its content too."""
Json = dict[str, Any]


def bucket_of(source: str, ref: str) -> str:
    return f"{DOCS}/{source}/{int(stable_hash(ref)[:8], 16) % BUCKETS:02}.json"


def blob_of(source: str, ref: str) -> str:
    return f"{BLOBS}/{source}/{stable_hash(ref)[:NAME_CHARS]}"


def source_named(name: str) -> str:
    """Return the source of a queued record's name; "" for "".

    >>> source_named("knowledge/queue/0abc/x")
    '0abc'
    """
    return PurePosixPath(name).parent.name


def without(rows: Json, name: str) -> Json:
    return {one: row for one, row in rows.items() if one != name}


def retired_row(place: Place) -> list[Any]:
    return [place.ref, place.sha, place.line_start, place.line_end, list(place.heading), 0]


def as_wanted(told: Json, source: Source) -> Json | None:
    """Return a record with the trust and the options of a source that is added again, None where it has them."""
    wanted = {"trust": source.trust.value, "options": dict(source.options)}
    return None if told["source"] == told["source"] | wanted else {**told, "source": told["source"] | wanted}


def json_of_source(source: Source) -> Json:
    scope = source.scope
    return {
        "id": source.id,
        "kind": source.kind.value,
        "ref": source.ref,
        "trust": source.trust.value,
        **{name: getattr(scope, name) for name in ("account", "project", "user", "agent")},
        "visibility": source.visibility.value,
        "options": dict(source.options),
        "added_at": source.added_at.isoformat(),
    }


def source_of_json(told: Json) -> Source:
    return Source(
        id=told["id"],
        kind=SourceKind(told["kind"]),
        ref=told["ref"],
        trust=Trust(told["trust"]),
        scope=Scope(told["account"], told["project"], told["user"], told["agent"]),
        added_at=datetime.fromisoformat(told["added_at"]),
        visibility=Visibility(told["visibility"]),
        options=told["options"],
    )


def copy_source(db: sqlite3.Connection, name: str, told: Json, revision: str) -> None:
    """Make the copy of a source what its record says."""
    own = told["source"]
    row = [own[field] for field in ("id", "kind", "ref", "trust", "account", "project", "user", "agent", "visibility")]
    row += [json.dumps(own["options"]), own["added_at"], told["state"], told["synced_at"], told["cursor"]]
    row += [json.dumps(told["skipped"]), json.dumps(told["counted"])]
    db.execute(f"INSERT OR REPLACE INTO source VALUES({','.join('?' * len(row))})", row)
    db.execute("DELETE FROM retired WHERE source=?", (own["id"],))
    db.executemany(
        "INSERT OR REPLACE INTO retired VALUES(?,?,?,?,?,?,?,?)",
        [(one, own["id"], *r[:4], json.dumps(r[4], ensure_ascii=False), r[5]) for one, r in told["retired"].items()],
    )
    db.execute("DELETE FROM queue WHERE source=?", (own["id"],))
    db.executemany(
        "INSERT INTO queue(source, what, tries, due, wrong) VALUES(?,?,?,?,?)",
        [(own["id"], one, *tried) for one, tried in told["tries"].items()],
    )
    content = json.dumps(told, ensure_ascii=False)
    db.execute("INSERT OR REPLACE INTO copied VALUES(?,?,?,?)", (name, own["id"], revision, content))


def copy_bucket(db: sqlite3.Connection, source: str, name: str, told: Json, revision: str) -> None:
    """Make the copy of some documents what their record says."""
    held = [row[0] for row in db.execute("SELECT ref FROM document WHERE source=?", (source,))]
    for ref in held:
        if bucket_of(source, ref) == name:
            db.execute("DELETE FROM document WHERE source=? AND ref=?", (source, ref))
            db.execute("DELETE FROM place WHERE source=? AND ref=?", (source, ref))
    for ref, (stamp, sha, title, places) in told.items():
        db.execute("INSERT OR REPLACE INTO document VALUES(?,?,?,?,?)", (source, ref, stamp, sha, title))
        db.executemany(
            "INSERT INTO place VALUES(?,?,?,?,?,?,?,?,?)",
            [(source, ref, *one[:6], json.dumps(one[6], ensure_ascii=False)) for one in places],
        )
    db.execute("DELETE FROM copied WHERE name=?", (name,))
    if revision:
        db.execute("INSERT INTO copied VALUES(?,?,?,'')", (name, source, revision))


def written_json(told: Json) -> bytes:
    return json.dumps(told, ensure_ascii=False).encode("utf-8", "surrogatepass")


def read_json(content: bytes, name: str) -> Json:
    try:
        told: Json = json.loads(content)
    except (ValueError, RecursionError):
        raise Unavailable(f"the record {name} on the server cannot be read; restore a backup of the store") from None
    return told
