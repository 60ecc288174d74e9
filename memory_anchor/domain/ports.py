"""The ports: what the core needs from outside, such as a store, an embedder, a language model and a clock.

Small protocols, each with at least two implementations; one contract suite in `tests/contract` runs over every adapter
of a port. Vectors are numpy float32; adapters raise our errors only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypedDict, TypeVar, runtime_checkable

from memory_anchor.base.json_values import Json
from memory_anchor.domain.model import Memory, Usage
from memory_anchor.domain.where import Where

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pydantic import BaseModel

    Matrix = NDArray[np.float32]
    """(n, dimensions) rows, or one (dimensions,) row, L2-normalised."""

    Answer = TypeVar("Answer", bound=BaseModel)
else:
    Answer = TypeVar("Answer")

DENSE = "dense"
"""The named vector of the store's embedder."""
DENSE_LOCAL = "dense_local"
"""The bundled model's vector, stored with an API embedder's so that search by meaning works without the API."""
WORDS = "words"
"""The sparse vector of our own tokeniser; the engine multiplies by IDF at query time."""
ABSENT = -(1 << 63)  # in a column of 64-bit integers


class HeldLock(Protocol):
    """An OS lock on a data directory, taken before heavy imports and released after the store is closed."""

    held: bool


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the present instant, aware UTC."""


@dataclass(frozen=True, slots=True)
class SparseVector:
    """Term weights: `indices` are distinct unsigned 32-bit term ids, `values` their weights, same length."""

    indices: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """What makes two vectors comparable; stored with each collection and checked when it is opened."""

    model: str
    dimensions: int
    roles: str = "query/passage"


@dataclass(frozen=True, slots=True)
class CollectionSpec:
    """How a collection is made. embedders: named dense vector -> identity of its embedder."""

    embedders: Mapping[str, EmbedderIdentity]
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One version with its derived vectors. A missing dense vector means: not embedded yet."""

    memory: Memory
    vectors: Mapping[str, Matrix] = field(default_factory=dict)
    words: SparseVector | None = None


@dataclass(frozen=True, slots=True)
class VectorQuery:
    """Who is nearest to a dense row, compared with the vectors named `using`, or who shares terms with a sparse one."""

    vector: Matrix | SparseVector
    limit: int
    using: str = DENSE


@dataclass(frozen=True, slots=True)
class Hit:
    point_id: str
    score: float


@dataclass(frozen=True, slots=True)
class Mark:
    """What may change of a stored version without its text: see `Memory.state` and `Memory.audience`."""

    point_id: str
    state: str
    audience: str


class Snapshot(Protocol):
    """Keeps arrays derived from the store for the next process. It may be empty at any time."""

    def read(self) -> Mapping[str, NDArray[np.generic]] | None:
        """Return the arrays; None for none, or none that can be read, which are removed."""

    def put(self, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        """Store these in place of the old ones; where that fails nothing is stored."""

    def drop(self) -> None:
        """Remove the arrays."""


class PageReader(Protocol):
    """What versions are read from, page by page."""

    def scan(
        self, collection: str, where: Where, *, page: int = 500, after: str | None = None, with_vectors: bool = False
    ) -> tuple[list[Entry], str | None]:
        """As of `MemoryStore`."""


class VersionReader(PageReader, Protocol):
    """A store, or a directory of an earlier layout."""

    def get(self, collection: str, point_ids: Sequence[str], *, with_vectors: bool = False) -> list[Entry]:
        """As of `MemoryStore`."""


class MemoryStore(Protocol):
    """Qdrant's vocabulary in our types; thread-safe; an answer to a write means it is durable.

    Every method raises StoreDamaged, Unavailable or DiskFull where that is what happened; writes check the free-space
    reserve first. Collections are those of `model.COLLECTIONS`; an unknown one is a bug.
    """

    kind: str

    def open_collection(self, name: str, spec: CollectionSpec) -> None:
        """Create the collection, or open and check it.

        Raises WrongEmbedder when its stored identity differs, StoreDamaged when it cannot be read.
        """

    def embedders(self, name: str) -> Mapping[str, EmbedderIdentity]:
        """Return the embedders of an open collection: vector name -> identity."""

    def reindex(self, name: str, spec: CollectionSpec) -> None:
        """Give the collection the embedders of `spec` and new indexes; vectors of others are dropped.

        Memories, words and the vectors of unchanged embedders stay. An open collection can be read meanwhile; a store
        of files uses the old one until the new one is complete.
        """

    def put(self, collection: str, entries: Sequence[Entry]) -> None:
        """Insert or replace whole versions: all of them or none, durable on return.

        On a store that several engines write to, a version that was read (`Memory.revision`) is only replaced as it was
        read, and one made of it only inserted. Raises ChangedMeanwhile: another engine was first.
        """

    def set_vectors(self, collection: str, vectors: Mapping[str, Mapping[str, Matrix]]) -> None:
        """Add dense vectors: point id -> vector name -> row. Ids that do not exist are ignored."""

    def set_usage(self, collection: str, usages: Mapping[str, Usage]) -> None:
        """Replace the mutable usage part: point id -> usage."""

    def get(self, collection: str, point_ids: Sequence[str], *, with_vectors: bool = False) -> list[Entry]:
        """Return those that exist, in the order asked. Without vectors `Entry.vectors` is empty and `words` None."""

    def find(
        self,
        collection: str,
        where: Where,
        *,
        limit: int,
        order_by: str | None = None,
        descending: bool = False,
    ) -> list[Memory]:
        """Return matching versions, by an indexed datetime or integer field when `order_by` is given."""

    def scan(
        self, collection: str, where: Where, *, page: int = 500, after: str | None = None, with_vectors: bool = False
    ) -> tuple[list[Entry], str | None]:
        """Return one page in point-id order and the cursor of the next page (None at the end)."""

    def marks(
        self, collection: str, where: Where, *, page: int = 500, after: str | None = None
    ) -> tuple[list[Mark], str | None]:
        """Return the same page as `scan`, of each version only what may change: a tenth of the time."""

    def nearest(self, collection: str, vector: Matrix, where: Where, *, limit: int, using: str = DENSE) -> list[Hit]:
        """Return the versions nearest by cosine, best first; only those that carry the vector."""

    def matching(self, collection: str, words: SparseVector, where: Where, *, limit: int) -> list[Hit]:
        """Return the versions that share terms, best first by sum of query weight * stored weight * IDF."""

    def query_batch(self, collection: str, queries: Sequence[VectorQuery], where: Where) -> list[list[Hit]]:
        """Return what `nearest` or `matching` does for each, in this order: one request where a server answers."""

    def count(self, collection: str, where: Where) -> int: ...

    def facet(self, collection: str, field: str, where: Where, *, limit: int = 1000) -> dict[str, int]:
        """Return the number of matching versions for each value of an indexed keyword field."""

    def erase(self, collection: str, point_ids: Sequence[str]) -> None:
        """Delete for good, so that no file of the store has the text any more. Only `purge` calls this."""

    def size_bytes(self) -> int:
        """Return the real (not apparent) size on disk, 0 where it cannot be known."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FollowedRows:
    """What searching needs of stored versions, as columns aligned with each other; no text of them.

    numbers: the store's, never used twice. changed: of their last writes. points: (n, 16). names: collection, state,
    audience, type, account, project, conversation. times: recorded_at, recorded_to, happened_at, when_at, content_at,
    in microseconds since 1970, -2**63 for none; so are places in conversations. traits: bytes of `language.traits`,
    empty where they are to be worked out. vectors: of each named vector which of these versions have it, and their raw
    rows. terms, weights: the words of all, `sizes` of each. checksums: of all that is stored of each but its usage.
    """

    numbers: NDArray[np.int64]
    changed: NDArray[np.int64]
    points: NDArray[np.uint8]
    names: Mapping[str, Sequence[str]]
    times: Mapping[str, NDArray[np.int64]]
    places: NDArray[np.int64]
    traits: Sequence[bytes]
    vectors: Mapping[str, tuple[NDArray[np.int64], Matrix]]
    terms: NDArray[np.uint32]
    weights: NDArray[np.float32]
    sizes: NDArray[np.int64]
    checksums: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WholePoint:
    """A stored version as an index keeps it. number, changed: as of `FollowedRows`. payload: JSON. names: JSON, vector
    name -> length of its row; dense: float32 rows in that order; words: pairs of a term (u32) and its weight (f32)."""

    number: int
    changed: int
    point_id: str
    payload: str
    names: str
    dense: bytes
    words: bytes


class SearchIndex(Protocol):
    """Collections that any Qdrant client can open, derived from a store and brought after it in sessions.

    All but `name`, `keeps_erased` and `fingerprint` belong to a session, between `begin` and `end`. Raises Unavailable:
    it ended early, and whatever came after the last flush may be lost.
    """

    name: str
    keeps_erased: bool
    """Whether its files keep the text of what was erased, so that a collection is made anew for it."""

    def fingerprint(self) -> str:
        """Return what differs once somebody else touched its files; "" where it cannot be known."""

    def is_torn(self, error: Exception) -> bool:
        """Return whether a session failed since what is there cannot be read, and not since it could not be reached."""

    def check(self, collections: Sequence[str]) -> None:
        """Raise Refused where these collections are there and are not this store's; nothing was changed."""

    def lacks(self, collections: Sequence[str]) -> bool:
        """Return whether one of these collections is not there, of an index that is searched meanwhile."""

    def begin(self, collections: Mapping[str, Mapping[str, EmbedderIdentity]], *, anew: bool) -> None:
        """Open these collections, empty ones where there are none. anew: what is there is removed first."""

    def count(self, collection: str) -> int: ...

    def apply(self, collection: str, points: Sequence[WholePoint]) -> None:
        """Insert or replace whole points."""

    def erase(self, collection: str, point_ids: Sequence[str]) -> None: ...

    def marks(self, collection: str) -> Iterator[Mark]:
        """Yield of every point what may move."""

    def begin_anew(self, collection: str, embedders: Mapping[str, EmbedderIdentity]) -> None:
        """Let what is applied go into an empty collection until `put_in_place`; the old one can be read meanwhile."""

    def put_in_place(self, collection: str) -> None:
        """Put the new collection in the old one's place, of which no byte stays."""

    def query_batch(self, collection: str, queries: Sequence[VectorQuery]) -> list[list[Hit]]: ...

    def flush(self) -> None: ...

    def end(self) -> None:
        """End the session well."""

    def give_up(self) -> None:
        """End the session at once; nothing after the last flush counts."""


class AskedIndex(Protocol):
    """An index that may be asked at any time, also while a session goes on, as a server is."""

    def query_batch(self, collection: str, queries: Sequence[VectorQuery], where: Where) -> list[list[Hit]]:
        """Return what `MemoryStore.query_batch` does, of what was applied."""


class CandidateSearch(Protocol):
    """Whoever answers a store's searches in its place. None: not now, search yourself."""

    def query_batch(self, collection: str, queries: Sequence[VectorQuery], where: Where) -> list[list[Hit]] | None:
        """Return what `MemoryStore.query_batch` does, but for a few that a shortlist may miss among very many; by words
        in a unit also up to `limit` of what it wrote."""


class FollowedStore(MemoryStore, Protocol):
    """A store whose writes are numbered in the order they were committed, erasing included, so that a copy of it can
    follow: whoever has taken in all up to a number has missed none below it. searched_by: who answers its searches."""

    searched_by: CandidateSearch | None

    @property
    def in_unit(self) -> bool:
        """Return whether this thread holds the writers' lock: what it reads may not be committed yet, or never be."""

    def last_change(self) -> int:
        """Return the number of the last write, 0 before the first; as cheap as a query can be."""

    def changes(self, collections: Sequence[str], *, above: int, up_to: int) -> FollowedRows | None:
        """Return versions that were last written in these numbers, in this order, a piece of them; None at the end."""

    def versions(self, collections: Sequence[str], *, above: int) -> FollowedRows | None:
        """Return versions of these collections above a number of theirs, a piece in this order; None at the end."""

    def checksums(self, collections: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers of all versions of these collections, in order, and their checksums."""

    def of_numbers(self, collections: Sequence[str], numbers: Sequence[int]) -> FollowedRows | None:
        """Return the versions of these numbers, not too many of them; None where there are none."""

    def gone(self, *, above: int, up_to: int) -> list[tuple[str, str]]:
        """Return collection and point of what was erased in these numbers."""

    def rows(self, numbers: Sequence[int], using: str) -> dict[int, Matrix]:
        """Return the raw rows of those of these versions that have this named vector, by their numbers."""

    def numbers(self, collection: str, where: Where) -> list[int]:
        """Return the numbers of the collection's versions that fulfil a filter; others' may be among them."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A small named text as it was read. revision: of this content; every write makes another one."""

    name: str
    content: bytes
    revision: str


@dataclass(frozen=True, slots=True)
class ListedRecord:
    """A small named text in a list. at: when it was written, seconds since 1970."""

    name: str
    revision: str
    at: float


class SmallRecords(Protocol):
    """Small named texts that outlive a process, such as `team/ingest/1.json`: replaced whole, listed by folder.

    Revision "": there is no such record. Raises BadInput: a name that is none.
    """

    def read(self, name: str) -> StoredRecord | None: ...

    def revisions(self, names: Sequence[str]) -> dict[str, str]:
        """Return the revisions of those that exist; no content is read."""
        ...

    def write(self, name: str, content: bytes, *, before: str | None) -> str:
        """Write a record where it still has the revision `before` (None: whichever), and return its new one.

        Raises ChangedMeanwhile: it has another revision; nothing was written. TooLarge.
        """
        ...

    def delete(self, name: str, *, before: str | None) -> None:
        """Delete a record where it still has the revision `before` (None: whichever); one that is gone stays so."""
        ...

    def listed(self, folder: str) -> list[ListedRecord]:
        """Return what is below a folder, by name."""
        ...

    def unit(self) -> AbstractContextManager[object]:
        """Make what the block writes one transaction: all of it is stored, or nothing."""
        ...

    def wipe(self) -> None:
        """Remove from the disk what was deleted or replaced. Raises Unavailable: somebody still reads it."""
        ...


class Embedder(Protocol):
    """Turns text into L2-normalised rows. Deterministic, thread-safe; the first call may load the model."""

    identity: EmbedderIdentity

    def documents(self, texts: Sequence[str]) -> Matrix: ...

    def queries(self, texts: Sequence[str]) -> Matrix: ...

    def available(self) -> bool:
        """Return whether embedding works now without a download or a network; never loads anything heavy."""


@runtime_checkable
class CachesQueries(Protocol):
    """An embedder that caches the rows of queries."""

    def forget(self, query: str) -> None:
        """Drop the row of a query."""


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """Tokens of a call. cut: the answer reached its limit, and its complete part was read."""

    input_tokens: int = 0
    output_tokens: int = 0
    cut: bool = False


class LanguageModel(Protocol):
    """A model that fills a strict schema. `name` is recorded with what it writes."""

    name: str

    def fill(self, shape: type[Answer], *, system: str, prompt: str, deadline_s: float) -> tuple[Answer, ModelUsage]:
        """Return one validated answer.

        Raises Unavailable: no model, permission, budget or time, or an answer that does not fit the schema.
        """


@runtime_checkable
class HasState(Protocol):
    """A model that can report its state without a call."""

    def state(self) -> str: ...


class Reranker(Protocol):
    name: str

    def scores(self, query: str, texts: Sequence[str], *, deadline_s: float) -> list[float] | None:
        """Return one score a text, higher is better, or None when the deadline passed."""


class AuditRecord(TypedDict):
    """One line of the audit trail. n: counted from 1; what: no memory's text and no secret; before: hash of the line
    before, hash: of this one without it."""

    n: int
    at: str
    kind: str
    by: str
    what: dict[str, Json]
    before: str
    hash: str


class AuditLog(Protocol):
    def records(self, kinds: str = "") -> Iterator[AuditRecord]:
        """Yield every readable record whose kind begins with `kinds`, oldest first, without verifying it."""

    def append(self, kind: str, what: Mapping[str, Json], *, by: str, at: datetime) -> str:
        """Append one record to the hash chain, durable on return; return its hash."""

    def first(self, kind: str) -> Mapping[str, Json] | None:
        """Return the `what` of the first record of a kind made here (not imported), None without one."""

    def latest(self, kind: str) -> Mapping[str, Json] | None:
        """Return the `what` of the last record of a kind made here, None without one; reads the whole trail."""


class Trail(AuditLog, Protocol):
    """A chain of records beside a store. place: how messages name it."""

    def recording(
        self, kind: str, whats: Sequence[Mapping[str, Json]], *, by: str, at: datetime
    ) -> AbstractContextManager[None]:
        """Wrap a write of versions, so that it is recorded where it was stored, whatever ends the process.

        whats: one record each, `{id, version, layer, content_hash, ...}` or `{memories: [the same]}`.
        """

    @property
    def place(self) -> str: ...

    def size(self) -> int:
        """Return a number that grows with every record, 0 for none."""

    def paused(self) -> AbstractContextManager[None]:
        """Keep everybody from appending during the block."""

    def adopt(self, records: Sequence[Mapping[str, Json]]) -> int:
        """Continue the chain with records of a longer copy of it, durable on return; return how many were new.

        Records that are here already are skipped. Raises BadInput: the copy differs from this chain, and nothing was
        written.
        """

    def __hash__(self) -> int: ...
