"""Vectors of queries and of new memories, from whichever embedder can make them now.

With an embedder behind an API the bundled model keeps a second vector of every memory. A write gets that one at once
and the API's in the background, so no acknowledged write waits for a network; a query goes to the API first and, when
that fails, to the bundled model, with a note. Each row comes with the name of its vector: rows of two models are never
compared. Without a bundled model a write waits for one short try, and words alone serve until the API is back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_anchor.domain.errors import Unavailable, WrongEmbedder
from memory_anchor.domain.ports import DENSE, DENSE_LOCAL, CachesQueries

if TYPE_CHECKING:
    from memory_anchor.domain.ports import Embedder, EmbedderIdentity, Matrix

NO_EMBEDDER = "no embedder is configured or installed; `memory-anchor doctor` says which."


@dataclass(frozen=True, slots=True)
class QueryVector:
    """The row of a query and the vector it may be compared with; row None: words alone. note: what was missing."""

    row: Matrix | None
    using: str = DENSE
    note: str = ""


class QueryEmbedder:
    """Thread-safe.

    main: the store's embedder, None for words alone. local: the bundled model kept besides an API. prompt: `main` in
    one short try, for a caller who waits (default: `main`).
    """

    def __init__(self, main: Embedder | None, *, local: Embedder | None = None, prompt: Embedder | None = None) -> None:
        named = ((DENSE, main), (DENSE_LOCAL, local if main is not None else None))
        self.embedders: Mapping[str, Embedder] = {name: embedder for name, embedder in named if embedder is not None}
        self.prompt: Mapping[str, Embedder] = self.embedders | ({DENSE: prompt} if main and prompt else {})
        """The same, for a caller who waits."""
        self.identities: Mapping[str, EmbedderIdentity] = {
            name: embedder.identity for name, embedder in self.embedders.items()
        }
        """Who makes which named vector."""

    def computes_here(self, name: str) -> bool:
        """Return whether an embedder needs this process's time: one behind an API has a short try of its own."""
        return self.prompt[name] is self.embedders[name]

    def embed_query(
        self, query: str, *, topic: str = "", share: float = 0.0, fits: Callable[[EmbedderIdentity], bool] | None = None
    ) -> QueryVector:
        """Return the row of a query, `share` of it the topic's; a failing embedder is a note, never an error.

        fits: whose rows will do, all by default.
        """
        failed = ""
        for name, embedder in self.embedders.items():
            if fits is not None and not fits(embedder.identity):
                continue
            try:
                row: Matrix = embedder.queries([query])[0]
                if topic and share:
                    row = (1 - share) * row + share * embedder.queries([topic])[0]
            except (Unavailable, WrongEmbedder) as error:
                failed = failed or str(error)
                continue
            return QueryVector(row, name, f"Searched by meaning with the bundled model: {failed}" if failed else "")
        return QueryVector(None, note=f"Searched by words only: {failed or NO_EMBEDDER}")

    def forget(self, query: str) -> None:
        """Drop the cached rows of a query."""
        for embedder in self.embedders.values():
            if isinstance(embedder, CachesQueries):
                embedder.forget(query)

    def embed_document(self, text: str) -> tuple[str, Matrix] | None:
        """Return the vector name and the row that a write waits for; None without an embedder.

        Every embedder keeps its newest rows: a write and its search for neighbours need the same one. Raises
        Unavailable, WrongEmbedder.
        """
        if not self.embedders:
            return None
        name = DENSE_LOCAL if DENSE_LOCAL in self.embedders else DENSE
        row: Matrix = self.prompt[name].documents([text])[0]
        return name, row
