"""An embedder whose rows of memories are kept in a file, so that a second evaluation embeds only its questions.

Questions are never kept: their embedding is part of the time that is measured. A row is found again by the model's
name and a hash of the text; no text is written. A file that cannot be read is simply made anew.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np

from memory_anchor.files import make_private, write_whole
from memory_anchor.hashing import stable_hash

if TYPE_CHECKING:
    from memory_anchor.ports import Embedder, Matrix

ROWS_MAX = 50_000
"""80 MB at 384 dimensions; beyond it further rows are not kept."""


class KeptRows:
    """One file for one model. `save` writes what is new."""

    def __init__(self, inner: Embedder, folder: Path) -> None:
        self._inner = inner
        self.identity = inner.identity
        self._file = folder / f"rows-{stable_hash(inner.identity.model, str(inner.identity.dimensions))[:16]}.npz"
        self._rows: dict[str, Matrix] = self._read()
        self._saved = len(self._rows)

    def available(self) -> bool:
        return self._inner.available()

    def queries(self, texts: Sequence[str]) -> Matrix:
        """Return one row a text, embedded each time."""
        return self._inner.queries(texts)

    def documents(self, texts: Sequence[str]) -> Matrix:
        """Return one row a text, from the file where it is known."""
        if not texts:
            return self._inner.documents(texts)
        keys = [stable_hash(text) for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._rows}
        fresh = dict(zip(missing, self._inner.documents(list(missing.values())), strict=True)) if missing else {}
        rows = np.stack([fresh[key] if key in fresh else self._rows[key] for key in keys])
        self._rows.update(list(fresh.items())[: max(0, ROWS_MAX - len(self._rows))])
        return rows

    def save(self) -> None:
        """Write the file if there is something new. Raises our errors: it cannot be written."""
        if len(self._rows) == self._saved:
            return
        packed = io.BytesIO()
        np.savez(packed, keys=np.array(list(self._rows)), rows=np.stack(list(self._rows.values())))
        make_private(self._file.parent)
        write_whole(self._file, packed.getvalue())
        self._saved = len(self._rows)

    def _read(self) -> dict[str, Matrix]:
        try:
            with np.load(self._file) as stored:
                return dict(zip(stored["keys"].tolist(), stored["rows"], strict=True))
        except (OSError, ValueError, KeyError, BadZipFile):
            return {}
