"""What every store checks about vectors before it writes: names, shapes, finite numbers, and who made them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.domain.errors import BadInput, WrongEmbedder
from memory_anchor.domain.ports import EmbedderIdentity

if TYPE_CHECKING:
    from memory_anchor.domain.ports import Matrix


def checked_rows(rows: Mapping[str, Matrix], embedders: Mapping[str, EmbedderIdentity]) -> dict[str, Matrix]:
    """Return the rows as float32, each as long as its embedder says.

    Raises WrongEmbedder: a name the collection has not, or a wrong length. BadInput: a number that is not finite.
    An engine would refuse these too, but only after the batch is in its write-ahead log.
    """
    checked: dict[str, Matrix] = {}
    for name, row in rows.items():
        identity = embedders.get(name)
        flat = np.asarray(row, dtype=np.float32).reshape(-1)
        if identity is None:
            raise WrongEmbedder(
                f"vector {name!r}: this collection has {sorted(embedders)}; run `memory-anchor reindex`."
            )
        if flat.shape[0] != identity.dimensions:
            raise WrongEmbedder(
                f"vector {name!r} has {flat.shape[0]} dimensions, {identity.model} has {identity.dimensions}; "
                "run `memory-anchor reindex` after changing the embedder."
            )
        if not np.isfinite(flat).all():
            raise BadInput(f"vector {name!r} holds a number that is not finite; nothing was written.")
        checked[name] = flat
    return checked


def identity_conflict(
    collection: str, stored: Mapping[str, EmbedderIdentity], wanted: Mapping[str, EmbedderIdentity]
) -> WrongEmbedder | None:
    """Return the error when a vector of `stored` was made by another embedder than `wanted` says, else None."""
    for name, identity in wanted.items():
        made_with = stored.get(name, identity)
        if made_with != identity:
            return WrongEmbedder(
                f"collection {collection!r} was made with {_named(made_with)}, now the embedder is {_named(identity)}; "
                "run `memory-anchor reindex` to move it, or set the embedder back."
            )
    return None


def _named(identity: EmbedderIdentity) -> str:
    return f"{identity.model} ({identity.dimensions} dimensions, roles {identity.roles})"
