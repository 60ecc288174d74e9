"""What a request does once: counted in functions entered, since seconds differ between machines."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from memory_anchor.front import calls
from memory_anchor.ingest.reconcile import NEIGHBOURS_READ
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.wire import Preamble
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.testing import HashEmbedder, ephemeral_core, memory_store

if TYPE_CHECKING:
    from memory_anchor.domain.ports import Matrix

CALLER = Preamble(client="test", project_dir="", zone="UTC")
HOSTS = ("ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine", "rowan", "yew")


def call(core: Core, name: str, **given: str) -> object:
    return calls.run(core, CALLER, name, given)


def fact(host: str) -> str:
    return f"The importer of the ledger on {host} keeps its queue in memory and writes it out every night"


def entered(work: Callable[[], object]) -> Counter[str]:
    """Return how often this thread entered each function while it did the work, by its qualified name."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            found[frame.f_code.co_qualname] += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


class CountingEmbedder(HashEmbedder):
    def __init__(self) -> None:
        super().__init__()
        self.texts: Counter[str] = Counter()

    def documents(self, texts: Sequence[str]) -> Matrix:
        self.texts.update(texts)
        return super().documents(texts)


def test_a_fact_is_embedded_once_also_where_neighbours_are_looked_for(tmp_path: Path) -> None:
    """Rule write.work: what a write waits for is what it keeps."""
    embedder = CountingEmbedder()
    core = ephemeral_core(tmp_path, embedder=embedder)
    for host in HOSTS:
        call(core, "add", content=fact(host))
    while core.services.searcher.index.embed_pending(8):
        pass
    assert {text: embedder.texts[text] for text in map(fact, HOSTS)} == dict.fromkeys(map(fact, HOSTS), 1)
    core.close()


def test_a_save_lays_a_pair_side_by_side_once_and_counts_no_numbers_of_what_cannot_repeat(core: Core) -> None:
    """Rule write.work: a text is compared with ten neighbours in both orders; what was read of a pair is kept."""
    for host in HOSTS:
        call(core, "add", content=fact(host))
    work = entered(lambda: call(core, "add", content="The importer of the ledger on willow keeps its queue on a disk"))
    assert 0 < work["SequenceMatcher.__init__"] <= 2 * NEIGHBOURS_READ
    assert work["covers"] > NEIGHBOURS_READ / 2
    assert work["numbers"] < work["covers"]


def test_a_search_reads_no_memory_again_for_what_waits_for_review(core: Core) -> None:
    """Rule search.work: whether something that waits would answer well is known before anything of it is read."""
    for host in HOSTS:
        call(core, "add", content=fact(host))
    plain = entered(lambda: call(core, "search", query="who painted the fence behind the house"))
    call(core, "add", content="Perhaps the printer on the second floor is out of toner")
    beside = entered(lambda: call(core, "search", query="who painted the garage behind the house"))
    assert beside["Searcher._waiting"] == 1
    assert beside["Searcher._read"] == plain["Searcher._read"] > 0


def test_a_save_with_its_row_wakes_no_thread_that_embeds_and_an_event_does(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule write.work: a fact comes with its vector; an event gets it in the background."""
    core.services.searcher.index.embed_pending(8)
    woken: list[str] = []
    monkeypatch.setattr(core._embedding, "wake", lambda: woken.append("embed"))
    call(core, "add", content=fact("ash"))
    assert woken == []
    call(core, "log", content="The importer on ash was restarted")
    assert woken == ["embed"]


def test_where_every_vector_is_there_the_background_looks_through_no_table(core: Core) -> None:
    """Rule write.work: whether a version lacks its row is known in memory; the store would look at each of them."""
    index = core.services.searcher.index
    for host in HOSTS:
        call(core, "log", content=fact(host))
    while index.embed_pending(8):
        pass
    assert entered(lambda: index.embed_pending(8))["SqlStore.find"] == 0
    assert index.unembedded() == 0


def test_a_version_without_a_row_from_elsewhere_is_embedded_by_the_next_look(tmp_path: Path) -> None:
    """Rule write.work: what another process left without a row is in memory as such, and gets one."""
    store = memory_store()
    first = ephemeral_core(tmp_path / "first", store=store)
    first.services.searcher.index.embed_pending(8)
    second = ephemeral_core(tmp_path / "second", store=SqlStore(store.database))
    call(second, "log", content=fact("ash"))
    assert first.services.searcher.index.embed_pending(8) == 1
