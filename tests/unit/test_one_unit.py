"""The writers' lock over a database: what is read, decided and written under it is stored together, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from memory_anchor.domain.model import Actor, Caller, Outcome, Scope
from memory_anchor.domain.ports import Entry
from memory_anchor.process.app import build_core
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.store.audit_rows import SqlAudit
from memory_anchor.testing import HashEmbedder
from memory_anchor.use_cases.memory import MemoryAnchor


@pytest.fixture
def core(tmp_path: Path) -> Iterator[Core]:
    settings = Settings.model_validate({"database": {"url": "sqlite"}})
    with (
        DirectoryLock.acquire(tmp_path / "data", role="test") as lock,
        closing(build_core(settings, data_dir=tmp_path / "data", lock=lock, embedder=HashEmbedder())) as core,
    ):
        yield core


@pytest.fixture
def anchor(core: Core) -> MemoryAnchor:
    return core.anchor(Actor(Caller.AGENT, Scope(agent="codex")))


def found(anchor: MemoryAnchor, query: str) -> list[str]:
    return [one.text for one in anchor.search(query).snippets]


class Broken(Exception):
    """What ends a unit."""


def test_what_a_broken_unit_wrote_is_nowhere_and_hides_nothing_later(core: Core, anchor: MemoryAnchor) -> None:
    """Unit: store, trail and what searches remember; the next writes get its numbers and are found."""
    anchor.save_memory("The harbour opens at seven.")
    with pytest.raises(Broken), core.services.records.lock:
        anchor.save_memory("The ferry leaves from pier nine.")
        again = anchor.save_memory("The ferry leaves from pier nine.")
        assert again.outcome is Outcome.SKIPPED, "a unit sees what it wrote"
        raise Broken
    anchor.save_memory("The lighthouse was painted red.")

    assert not any("pier nine" in text for text in found(anchor, "Where does the ferry leave from?"))
    assert any("painted red" in text for text in found(anchor, "What colour was the lighthouse painted?"))
    assert any("at seven" in text for text in found(anchor, "When does the harbour open?"))
    assert isinstance(core.audit, SqlAudit) and core.audit.verify() is None
    assert sum(1 for record in core.audit.records() if "content_hash" in record["what"]) == 2


def test_a_search_that_fails_to_follow_one_memory_follows_the_others(
    core: Core, anchor: MemoryAnchor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unit: both are stored, so whoever follows hears of each of them, and only then of the failure."""
    heard: list[str] = []

    def broken(entry: Entry) -> None:
        heard.append(entry.memory.content)
        raise Broken

    monkeypatch.setattr(core.services.searcher.index, "note_written", broken)
    texts = ["The ferry leaves from pier nine.", "The bakery is closed on Mondays."]
    with pytest.raises(Broken), core.services.records.lock:
        for text in texts:
            anchor.save_memory(text)
    monkeypatch.undo()

    assert heard == texts
    assert any("closed on Mondays" in text for text in found(anchor, "When is the bakery closed?"))


def test_writers_at_once_store_one_text_once(core: Core, anchor: MemoryAnchor) -> None:
    """Unit: six agents that say the same at once make one memory; whoever is later sees the first one's write."""
    ids: list[str] = []

    def save() -> None:
        ids.append(anchor.save_memory("The bakery is closed on Mondays.").id or "")

    threads = [threading.Thread(target=save) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(ids) == 6 and len(set(ids)) == 1
