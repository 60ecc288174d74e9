"""A document that is left out is named for as long as it is, and read once nothing speaks against it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

from memory_anchor.base.quarantine import FOLDER, MARKER, RECORD, text_key
from memory_anchor.domain.model import Actor, Caller
from memory_anchor.extensions.knowledge.use_cases import knowledge_of
from memory_anchor.process.app import build_core
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.testing import HashEmbedder, memory_store
from memory_anchor.use_cases.memory import MemoryAnchor
from tests.unit.knowledgekit import read_all

TIDES = "# Tides\n\nHigh water is at noon.\n"


def started(data: Path, store: SqlStore) -> Core:
    return build_core(Settings(), data_dir=data, store=store, embedder=HashEmbedder())


def human(core: Core) -> MemoryAnchor:
    return core.anchor(Actor(Caller.HUMAN))


def died_over(data: Path, text: str, number: int) -> None:
    """Leave what an engine leaves that ends while it reads this text."""
    (data / FOLDER).mkdir(parents=True, exist_ok=True)
    marked = {"step": "", "texts": {text_key(text): "tides.md"}}
    (data / FOLDER / f"{number}-1{MARKER}").write_text(json.dumps(marked), encoding="utf-8")


def left_out(core: Core) -> tuple[str, ...]:
    (state,) = knowledge_of(human(core)).sources()
    return tuple(state.skipped)


def test_a_text_that_ended_the_engine_twice_is_read_once_its_record_is_gone(tmp_path: Path) -> None:
    """Attack A9: the cure that `doctor` names brings the document back at the next sync, unchanged as it is."""
    docs, data, store = tmp_path / "docs", tmp_path / "data", memory_store()
    docs.mkdir()
    (docs / "tides.md").write_text(TIDES, encoding="utf-8")
    store.close = lambda: None  # type: ignore[method-assign]  # what a store on disk leaves
    for number in range(2):
        died_over(data, TIDES, number)
        started(data, store).close()
    with closing(started(data, store)) as core:
        knowledge_of(human(core)).add(str(docs), "files")
        read_all(human(core))
        assert "the engine ended" in left_out(core)[0]
        assert knowledge_of(human(core)).search("high water") == []
    (data / FOLDER / RECORD).unlink()

    with closing(started(data, store)) as core:
        read_all(human(core), begin=True)
        assert left_out(core) == ()
        assert [passage.text for passage in knowledge_of(human(core)).search("high water")] == [TIDES.strip()]


def test_what_cannot_be_read_is_named_after_every_sync(tmp_path: Path) -> None:
    """Issue 16, bad input: a file that is left out is still left out when nothing changed."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "tides.md").write_text(TIDES, encoding="utf-8")
    (docs / "broken.md").write_bytes(b"\0\1\2")
    with closing(started(tmp_path / "data", memory_store())) as core:
        knowledge_of(human(core)).add(str(docs), "files")
        for _ in range(3):
            read_all(human(core), begin=True)
            assert [one.split()[0] for one in left_out(core)] == ["broken.md"]
