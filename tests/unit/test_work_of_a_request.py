"""What a request does once: counted in functions entered, since seconds differ between machines."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from memory_anchor.front import calls
from memory_anchor.ingest.reconcile import NEIGHBOURS_READ
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.wire import Preamble
from memory_anchor.testing import HashEmbedder, ephemeral_core

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
