"""Doubles for tests: a clock moved by hand and an embedder without a model.

Both keep the ports' contracts: what passes with them can fail with the real ones only in quality.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from memory_anchor.adapters.system import START as START
from memory_anchor.adapters.system import ManualClock as ManualClock
from memory_anchor.base.json_values import Json, Record
from memory_anchor.base.quarantine import Quarantine
from memory_anchor.domain.activation import DEFAULTS
from memory_anchor.domain.errors import Unavailable
from memory_anchor.domain.ports import EmbedderIdentity, ModelUsage
from memory_anchor.language.terms import term_id, terms
from memory_anchor.recall.cooccurrence import TagNeighbours
from memory_anchor.recall.index import Index
from memory_anchor.recall.query_embedder import QueryEmbedder
from memory_anchor.recall.ranking import SearchOptions
from memory_anchor.recall.search import Searcher

if TYPE_CHECKING:
    from pathlib import Path

    from memory_anchor.domain.ports import Answer, Clock, Embedder, Matrix, Reranker, Snapshot
    from memory_anchor.identity.keys import Signer
    from memory_anchor.process.wiring import Core
    from memory_anchor.runtime.wire import Preamble
    from memory_anchor.settings import Settings
    from memory_anchor.store.sql_store import SqlStore

PASSPHRASE = "correct horse battery"  # noqa: S105 - opens test keys alone
"""What every test's human types."""
CHEAP_COST = 2**4


@contextmanager
def cheap_keys() -> Iterator[None]:
    """Let this process seal keys at next to no cost; no setting or file can do that."""
    from memory_anchor.identity import keys

    cost = keys.SCRYPT_COST
    keys.SCRYPT_COST = CHEAP_COST
    try:
        yield
    finally:
        keys.SCRYPT_COST = cost


def human_of(data_dir: Path) -> Signer:
    """Return the human of a data directory; a missing key is made with `PASSPHRASE`, cheap to open."""
    from memory_anchor.identity.keys import KeyRing
    from memory_anchor.store.audit_rows import LocalTrail

    with cheap_keys():
        keys = KeyRing(data_dir / "identity", LocalTrail(data_dir))
        has_key = keys.own()
        return keys.unlock(PASSPHRASE) if has_key else keys.create(name="alice", passphrase=PASSPHRASE)


def signed_call(core: Core, caller: Preamble, name: str, arguments: Mapping[str, Json], human: Signer) -> Record:
    """Return the answer to a call signed by a human, as the terminal's process does it."""
    from memory_anchor.front.calls import run
    from memory_anchor.identity.signed_requests import CHALLENGE_CALL, sign_request

    challenge = run(core, caller, CHALLENGE_CALL, {})["challenge"]
    return run(
        core, caller, name, {**arguments, "human": sign_request(human, name, arguments, caller._asdict(), challenge)}
    )


class HashEmbedder:
    """Rows whose cosine is the share of common terms: every term adds one pseudo-random direction.

    Deterministic on every machine; texts without terms get one fixed row. dimensions: width of a row.
    """

    def __init__(self, *, dimensions: int = 64, model: str = "hash-test") -> None:
        self.identity = EmbedderIdentity(model=model, dimensions=dimensions, roles="none")

    def available(self) -> bool:
        """Return True: nothing to load."""
        return True

    def documents(self, texts: Sequence[str]) -> Matrix:
        """Return one row a text."""
        return self._rows(texts)

    def queries(self, texts: Sequence[str]) -> Matrix:
        """Return one row a text, the same as for a document."""
        return self._rows(texts)

    def _rows(self, texts: Sequence[str]) -> Matrix:
        import numpy as np

        rows = np.zeros((len(texts), self.identity.dimensions), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for term in set(terms(text)) or {""}:
                row += np.random.default_rng(term_id(term)).standard_normal(len(row), dtype=np.float32)
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def memory_store() -> SqlStore:
    """Return an empty store over a database in memory; what it holds ends with it."""
    from memory_anchor.store.database import IN_MEMORY, Sqlite
    from memory_anchor.store.sql_store import SqlStore

    return SqlStore(Sqlite(IN_MEMORY))


def ephemeral_core(
    data_dir: Path,
    *,
    clock: Clock | None = None,
    settings: Settings | None = None,
    store: SqlStore | None = None,
    embedder: Embedder | None = None,
    reranker: Reranker | None = None,
    local: Embedder | None = None,
) -> Core:
    """Return a whole memory over a database in memory, a hashing embedder and a clock moved by hand.

    data_dir: an empty folder. Nothing runs in the background; `core.services.searcher.index.embed_pending` and
    `core.scheduler.run` do by hand what an engine does.
    """
    from memory_anchor.process.app import build_core
    from memory_anchor.settings import Settings as AllSettings

    return build_core(
        settings or AllSettings(),
        data_dir=data_dir,
        clock=clock or ManualClock(),
        store=store or memory_store(),
        embedder=embedder or HashEmbedder(),
        reranker=reranker,
        local=local,
    )


def make_searcher(
    store: SqlStore,
    embedder: Embedder | None,
    clock: Clock,
    options: SearchOptions | None = None,
    *,
    cache_ttl_s: float = 60.0,
    reranker: Reranker | None = None,
    rerank_deadline_s: float = 1.5,
    tags: TagNeighbours | None = None,
    snapshot: Snapshot | None = None,
) -> Searcher:
    """Return a searcher over a store, without the rest of a memory."""
    return Searcher(
        Index(store, QueryEmbedder(embedder), lambda: None, snapshot, Quarantine()),
        clock,
        options or SearchOptions(),
        cache_ttl_s=cache_ttl_s,
        reranker=reranker,
        rerank_deadline_s=rerank_deadline_s,
        activation=DEFAULTS,
        tags=tags or TagNeighbours(lambda: None),
        variants={},
    )


class ScriptedLanguageModel:
    """A model that gives the answers a test wrote, in order; the last one again when they run out.

    answers: what `fill` validates against its shape (a mapping), or an error to raise. asked: every prompt so far.
    """

    name = "scripted"

    def __init__(self, *answers: Mapping[str, Json] | Exception) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    def fill(self, shape: type[Answer], *, system: str, prompt: str, deadline_s: float) -> tuple[Answer, ModelUsage]:
        """Return the next answer; Unavailable when it does not fit the shape or none was written."""
        from pydantic import ValidationError

        self.asked.append(f"{system}\n{prompt}")
        if not self._answers or deadline_s <= 0:
            raise Unavailable("The scripted model has no answer in time.")
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        try:
            return shape.model_validate(answer), ModelUsage(len(prompt) // 4, 20)
        except ValidationError as wrong:
            raise Unavailable(f"The scripted answer does not fit {shape.__name__}.") from wrong
