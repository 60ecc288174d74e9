"""Embedders: any ONNX model through `fastembed`, and what all embedders share; the bundled one is `bundled_embedder`.

fastembed downloads on first use, which a tool call must never do: without a local folder or the caller's consent it
raises `Unavailable` with the command.

Invariant: rows are float32, L2-normalised, one a text, for any list of any strings (empty ones, lone surrogates).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cachetools import LRUCache

from memory_anchor.base.hashing import stable_hash
from memory_anchor.domain.errors import BadInput, Unavailable, extra_missing
from memory_anchor.domain.ports import Embedder, EmbedderIdentity, HasState

if TYPE_CHECKING:
    from fastembed import TextEmbedding

    from memory_anchor.domain.ports import Matrix

ROWS_CACHED = 2_048
"""3 MB at 384 dimensions."""


class CachingEmbedder:
    """Keeps the newest rows by role and text hash, so the same text is not embedded again.

    A fact is embedded once and then compared with its neighbours by the same row; a client that asks the same question
    again pays nothing.
    """

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self.identity = inner.identity
        self._lock = threading.Lock()
        self._rows: LRUCache[str, Matrix] = LRUCache(ROWS_CACHED)

    def available(self) -> bool:
        return self._inner.available()

    def documents(self, texts: Sequence[str]) -> Matrix:
        return self._cached("document", texts, self._inner.documents)

    def queries(self, texts: Sequence[str]) -> Matrix:
        return self._cached("query", texts, self._inner.queries)

    def state(self) -> str:
        return self._inner.state() if isinstance(self._inner, HasState) else ""

    def forget(self, query: str) -> None:
        """Drop the row of a query."""
        with self._lock:
            self._rows.pop(stable_hash("query", query), None)

    def _cached(self, role: str, texts: Sequence[str], embed: Callable[[Sequence[str]], Matrix]) -> Matrix:
        import numpy as np

        keys = [stable_hash(role, text) for text in texts]
        with self._lock:
            rows = {key: self._rows[key] for key in keys if key in self._rows}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in rows}
        if missing:
            rows.update(zip(missing, embed(list(missing.values())), strict=True))
            with self._lock:
                self._rows.update((key, rows[key]) for key in missing)
        if not keys:
            return embed([])
        return np.stack([rows[key] for key in keys])


QUERY_TOKENS = 64
DOCUMENT_TOKENS = 256
BATCH = 8
"""Texts a native call: bounds how long a fact being saved waits for background embedding."""
FASTEMBED_DEFAULT = "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"
_THREADS_CAP = 4


def clean(text: str) -> str:
    """Return text that any tokenizer takes: lone surrogates and NUL become the replacement character."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\ufffd")


def cut(text: str, limit: int, count: Callable[[str], int]) -> str:
    """Return the longest prefix of at most `limit` tokens as `count` counts them; most texts need one count."""
    if count(text) <= limit:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if count(text[:middle]) <= limit:
            low = middle
        else:
            high = middle - 1
    return text[:low]


Model = TypeVar("Model")


class FastEmbedFiles:
    """A model of fastembed: in a local folder, or in `cache_dir` where a download with consent put it.

    allow_download: the caller's consent to fetch the model into `cache_dir` on first use.
    """

    def __init__(self, name: str, path: str | None, cache_dir: str | None, *, allow_download: bool) -> None:
        self._name = name
        self._path = Path(path).expanduser() if path else None
        self._cache = Path(cache_dir).expanduser() if cache_dir else None
        self._allow_download = allow_download

    def available(self) -> bool:
        """Return whether the folder, or the cache, holds a model: nothing would have to be fetched."""
        folder = self._path or self._cache
        return folder is not None and any(folder.rglob("*.onnx"))

    def _require(self, what: str, advice: str) -> None:
        """Raise Unavailable where the model is not here and may not be fetched."""
        if not self.available() and (self._path or not self._allow_download):
            location = self._path or self._cache or "any local folder"
            raise Unavailable(f"fastembed has no {what} {self._name} in {location}; {advice}")

    def _load(self, kind: Callable[..., Model], name: str) -> Model:
        threads = min(os.cpu_count() or 1, _THREADS_CAP)
        try:
            if self._path:
                return kind(name, threads=threads, specific_model_path=str(self._path))
            return kind(name, str(self._cache), threads, local_files_only=not self._allow_download)
        except Exception as error:  # fastembed raises bare ValueError, RuntimeError and onnxruntime's own
            raise Unavailable(f"fastembed could not load {name} ({type(error).__name__}); check its folder.") from error


class FastEmbedEmbedder(FastEmbedFiles):
    """An embedding model of fastembed.

    model: a name fastembed knows. model_path: folder with model.onnx, tokenizer.json and its configuration files.
    Creating one imports fastembed (2 s) for the model's width. Raises BadInput: an unknown model without a folder.
    Raises Unavailable on first use: nothing local and no consent.
    """

    def __init__(
        self,
        model: str = FASTEMBED_DEFAULT,
        *,
        model_path: str | None = None,
        cache_dir: str | None = None,
        allow_download: bool = False,
    ) -> None:
        super().__init__(model, model_path, cache_dir, allow_download=allow_download)
        self._model: TextEmbedding | None = None
        self._lock = threading.Lock()
        self.identity = EmbedderIdentity(model=f"{model}@fastembed", dimensions=self._dimensions())

    def documents(self, texts: Sequence[str]) -> Matrix:
        """Return one row a text; e5 models get their `passage:` prefix."""
        return self._rows(texts, "passage: ", DOCUMENT_TOKENS)

    def queries(self, texts: Sequence[str]) -> Matrix:
        """Return one row a text; e5 models get their `query:` prefix."""
        return self._rows(texts, "query: ", QUERY_TOKENS)

    def _dimensions(self) -> int:
        try:
            from fastembed import TextEmbedding
        except ImportError:
            raise extra_missing("fastembed", "embedder.kind fastembed") from None

        dimensions = {entry["model"].lower(): int(entry["dim"]) for entry in TextEmbedding.list_supported_models()}
        if self._name.lower() in dimensions:
            return dimensions[self._name.lower()]
        if self.available():
            return int(self._raw(["dimensions"]).shape[1])
        raise BadInput(f"embedder.model {self._name!r} is not one fastembed knows; give embedder.model_path with it.")

    def _rows(self, texts: Sequence[str], prefix: str, limit: int) -> Matrix:
        import numpy as np

        from memory_anchor.language.tokens import cut_to_tokens

        if not texts:
            return np.zeros((0, self.identity.dimensions), dtype=np.float32)
        role = prefix if "e5" in self._name.lower() else ""
        return normalised(self._raw([role + (cut_to_tokens(clean(text), limit) or " ") for text in texts]))

    def _raw(self, texts: list[str]) -> Matrix:
        import numpy as np

        with self._lock:
            self._model = model = self._model or self._open()
            return np.asarray(list(model.embed(texts, batch_size=BATCH)), dtype=np.float32)

    def _open(self) -> TextEmbedding:
        self._require(
            "model", "set embedder.model_path to a folder that holds it, or run `memory-anchor doctor --fetch-model`."
        )
        from fastembed import TextEmbedding

        if self._path:
            self._register(TextEmbedding, self._path)
        return self._load(TextEmbedding, self._name)

    def _register(self, registry: type[TextEmbedding], folder: Path) -> None:
        """Register a model that fastembed does not list: its width is read from the model file itself."""
        if self._name.lower() in {entry["model"].lower() for entry in registry.list_supported_models()}:
            return
        import onnxruntime  # type: ignore[import-untyped]
        from fastembed.common.model_description import ModelSource, PoolingType

        file = min(folder.rglob("*.onnx"))
        outputs = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"]).get_outputs()
        registry.add_custom_model(
            model=self._name,
            pooling=PoolingType.MEAN,
            normalization=True,
            sources=ModelSource(url="file:///unused"),
            dim=int(outputs[0].shape[-1]),
            model_file=file.name,
        )


def normalised(rows: Matrix) -> Matrix:
    import numpy as np

    rows = np.nan_to_num(np.asarray(rows, dtype=np.float32))
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, np.float32(1e-9)), dtype=np.float32)


def has_fastembed() -> bool:
    """Return whether the extra is installed; nothing is imported."""
    return find_spec("fastembed") is not None
