"""What only the index on a Qdrant server has: filters of its own, a folder others hold, somebody else's collections."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import oldserver
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labs import until
from qdrant_client import QdrantClient
from qdrantserver import qdrant

from memory_anchor import Memory as AgentMemory
from memory_anchor.adapters.qdrant_index import QdrantIndex, _dropped, filter_of
from memory_anchor.adapters.qdrant_layout import Layout
from memory_anchor.adapters.qdrant_link import Access, QdrantLink, addresses
from memory_anchor.domain.errors import BadInput, DiskFull, Refused, StoreBusy, StoreDamaged, Unavailable
from memory_anchor.domain.model import Layer, Memory, MemoryType, Scope, Status, Tag
from memory_anchor.domain.ports import (
    DENSE,
    CollectionSpec,
    EmbedderIdentity,
    Entry,
    Hit,
    SparseVector,
    VectorQuery,
    WholePoint,
)
from memory_anchor.domain.where import AnyOf, Between, Condition, HasVector, OneOf, StartsWith, Where
from memory_anchor.recall import index as recall_index
from memory_anchor.store.database import IN_MEMORY, Sqlite
from memory_anchor.store.index_follower import FOLLOWED, IndexFollower
from memory_anchor.store.sql_store import SqlStore

FACTS, EVENTS = FOLLOWED
SERVER = os.environ.get("QDRANT_TEST_URL", "")
SPEC = CollectionSpec({DENSE: EmbedderIdentity("tiny", 4)})
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUERY = np.array([0.4, 0.3, 0.2, 0.1], np.float32)


def entry(name: str, **changes: Any) -> Entry:
    memory = Memory(name, f"about {name}", Layer.VERIFIED_FACT, MemoryType.FACT, Scope(), NOON, NOON)
    row = np.random.default_rng(int.from_bytes(name.encode())).random(4).astype(np.float32)
    return Entry(replace(memory, **changes), {DENSE: row / np.linalg.norm(row)}, SparseVector((1, 7), (0.5, 2.0)))


class Beside:
    """A store with an index, on the server of `QDRANT_TEST_URL` or in local mode, which answers what no mirror does."""

    def __init__(self, place: str = "", *, owner: str = "") -> None:
        self.store = SqlStore(Sqlite(IN_MEMORY))
        access = Access(path=place or ":memory:")
        if SERVER and not place:
            access = Access(addresses(SERVER))
            with closing(QdrantClient(url=access.urls[0], check_compatibility=False)) as client:
                for name in FOLLOWED:
                    client.delete_collection(name)
        self.index = QdrantIndex("local", access, Layout(), owner=owner or "me")
        self.store.keep_index(self.index, close=self.index.close, asked=self.index, leads=lambda: False)
        for name in FOLLOWED:
            self.store.open_collection(name, SPEC)
        assert self.store.beside is not None
        self.follower: IndexFollower = self.store.beside

    def put(self, *entries: Entry) -> None:
        self.store.put(FACTS, entries)

    def near(self, where: Where = Where(), limit: int = 50) -> list[str]:  # noqa: B008
        return [hit.point_id for hit in self.store.nearest(FACTS, QUERY, where, limit=limit)]

    def close(self) -> None:
        self.store.close()


@pytest.fixture
def beside() -> Iterator[Beside]:
    with closing(Beside()) as made:
        yield made


WRITTEN = (
    entry("plain"),
    entry("ended", status=Status.ARCHIVED),
    entry("later", recorded_at=NOON + timedelta(days=3), when=NOON + timedelta(days=9)),
    entry("tagged", tags=(Tag("界面", 0.5), Tag("ui")), where="src/app.py"),
    entry("theirs", scope=Scope(account="acme", user="eve"), where="src/app/main.py"),
    replace(entry("bare"), vectors={}),
)
CONDITIONS: tuple[Condition, ...] = (
    OneOf("state", ("active", "disputed")),
    OneOf("account", ("acme",)),
    OneOf("tag", ("ui",)),
    OneOf("type", ()),
    Between("recorded_at", NOON + timedelta(days=1), None),
    Between("recorded_at", None, NOON + timedelta(days=1)),
    StartsWith("where", "src/app"),
    HasVector(DENSE),
    AnyOf((Where((OneOf("tag", ("ui",)),)), Where((), (OneOf("state", ("active",)),)))),
    AnyOf(()),
)


def test_a_filter_lets_through_what_it_does_in_the_database(beside: Beside) -> None:
    """One meaning of a filter: the exact search of the rows is what the index is compared with."""
    beside.put(*WRITTEN)
    assert beside.follower.catch_up()

    @settings(deadline=None)
    @given(
        chosen=st.lists(st.sampled_from(CONDITIONS), max_size=3),
        left_out=st.lists(st.sampled_from(CONDITIONS), max_size=1),
    )
    def lets_the_same_through(chosen: list[Condition], left_out: list[Condition]) -> None:
        where = Where(tuple(chosen), tuple(left_out))
        there = beside.index.query_batch(FACTS, [VectorQuery(QUERY, 50)], where)[0]
        here = beside.store.nearest_here(FACTS, QUERY, where, limit=50)

        assert [hit.point_id for hit in there] == [hit.point_id for hit in here]
        assert np.allclose([hit.score for hit in there], [hit.score for hit in here], atol=1e-5)

    lets_the_same_through()


def test_no_condition_stands_bare_on_both_sides() -> None:
    """Found on a server of 1.18: whatever fulfils `must` is given, if each condition of `must_not` stands there too."""
    made = filter_of(Where(CONDITIONS[:1], CONDITIONS[:1]))

    assert made is not None and made.must and made.must_not and made.must[0] not in made.must_not


def test_a_search_beyond_the_mirror_asks_the_server_once_a_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Costs: by meaning, by words and by words of the other language in one request, through the public API."""
    monkeypatch.setattr(recall_index, "MAX_ROWS", -1)
    monkeypatch.setattr(recall_index.Index, "warm", lambda _: 0)
    monkeypatch.setitem(IndexFollower.__init__.__kwdefaults__, "rest_s", 0.05)
    send, asked = httpx.Client.send, list[str]()

    def counted(client: httpx.Client, request: httpx.Request, **more: Any) -> httpx.Response:
        if request.url.path.endswith(("/query", "/query/batch", "/facet")):
            asked.append(request.url.path.split("/")[2])
        return send(client, request, **more)

    monkeypatch.setattr(httpx.Client, "send", counted)
    with qdrant() as place:
        for name, value in place.env().items():
            monkeypatch.setenv(name, value)
        with AgentMemory("gateway", path=tmp_path) as memory:
            memory.save("The login times out when the clock of the token drifts")
            memory.log("A login timeout was reported")
            until(lambda: memory.search(f"login {time.monotonic()}") and len(asked) > 1, "the index is filled")
            asked.clear()

            found = memory.search("登录为什么超时?")
            of_both = sorted(asked)
            asked.clear()
            memory.search("登录为什么会超时?", layers="L3")

    assert len(found) == 2 and of_both == sorted(FOLLOWED) and asked == [FACTS]


def test_words_are_weighed_as_in_the_database(beside: Beside) -> None:
    """One meaning of a score, in one shard."""
    beside.put(*WRITTEN, replace(entry("rare"), words=SparseVector((3,), (1.0,))))
    assert beside.follower.catch_up()
    words = SparseVector((3, 7), (1.0, 0.5))

    there = beside.index.query_batch(FACTS, [VectorQuery(words, 50)])[0]
    here = beside.store.matching_here(FACTS, words, Where(), limit=50)

    assert there[0].point_id == here[0].point_id == entry("rare").memory.point_id
    assert {hit.point_id: round(hit.score, 4) for hit in there} == {hit.point_id: round(hit.score, 4) for hit in here}


def test_a_search_finds_what_was_written_since_and_not_what_was_ended_or_erased(beside: Beside) -> None:
    """Own writes: the index is behind, the answer is not."""
    beside.put(*(entry(f"m{number}") for number in range(30)))
    assert beside.follower.catch_up()
    archived, erased = entry("m3", status=Status.ARCHIVED), entry("m4")
    beside.put(entry("new"), archived)
    beside.store.erase(FACTS, [erased.memory.point_id])
    assert beside.follower.state().behind > 0
    active = Where((OneOf("state", ("active",)),))

    found = beside.near(active)

    assert found == [hit.point_id for hit in beside.store.nearest_here(FACTS, QUERY, active, limit=50)]
    assert entry("new").memory.point_id in found and len(found) == 29
    by_words = {hit.point_id for hit in beside.store.matching(FACTS, SparseVector((7,), (1.0,)), active, limit=50)}
    assert by_words == set(found)


def test_while_the_index_does_not_answer_the_rows_are_searched() -> None:
    """Store failure: an index is a help, not a need."""
    with closing(Beside(":memory:")) as beside:  # a client of a server says nothing of being closed
        beside.put(*WRITTEN)
        assert beside.follower.catch_up()
        expected = beside.near()
        beside.index.close()

        assert beside.near() == expected
        assert not beside.follower.catch_up() and "closed" in beside.follower.state().note


def test_what_ends_while_the_index_answers_is_not_in_the_answer(beside: Beside) -> None:
    """Correction x a large index: the index says what was so when it was asked; the rows say what is."""
    beside.put(*WRITTEN)
    assert beside.follower.catch_up()
    active, ask = Where((OneOf("state", ("active",)),)), beside.index.query_batch
    plain = WRITTEN[0]
    assert plain.memory.point_id in beside.near(active)

    def asked(*words: Any) -> list[list[Hit]]:
        hits = ask(*words)
        beside.put(replace(plain, memory=replace(plain.memory, status=Status.ARCHIVED)))
        return hits

    beside.index.query_batch = asked  # type: ignore[method-assign]

    assert plain.memory.point_id not in beside.near(active)


def test_what_is_erased_is_erased_and_nothing_is_made_anew_for_it(beside: Beside) -> None:
    """Purge x a large index: one request, not all points again."""
    beside.put(*WRITTEN)
    assert beside.follower.catch_up()
    beside.index.apply = None  # type: ignore[method-assign, assignment]

    beside.store.erase(FACTS, [WRITTEN[0].memory.point_id])

    assert beside.follower.catch_up(), beside.follower.state()
    assert beside.index.count(FACTS) == len(WRITTEN) - 1


def test_while_the_index_is_filled_again_the_rows_are_searched(beside: Beside) -> None:
    """Emptied meanwhile: what is not there yet is missing in no answer."""
    beside.put(*(entry(f"m{number}") for number in range(80)))
    assert beside.follower.catch_up()
    expected, seen = set(beside.near(limit=100)), []
    for name in FOLLOWED:
        beside.index._ask(partial(_dropped, name))
    apply = beside.index.apply

    def applied(collection: str, points: Sequence[WholePoint]) -> None:
        apply(collection, points)
        seen.append(set(beside.near(limit=100)))

    beside.index.apply = applied  # type: ignore[method-assign]
    beside.put(entry("m0"))

    assert beside.follower.catch_up(), beside.follower.state()
    assert seen and all(found == expected for found in seen) and set(beside.near(limit=100)) == expected


def test_what_others_took_out_of_it_is_missing_in_no_answer_once_it_is_noticed(beside: Beside) -> None:
    """Points that somebody erased: told by their number, and applied again."""
    beside.put(*(entry(f"m{number}") for number in range(80)))
    assert beside.follower.catch_up()
    expected, seen = set(beside.near(limit=100)), []
    beside.index.erase(FACTS, [entry(f"m{number}").memory.point_id for number in range(70)])
    apply = beside.index.apply

    def applied(collection: str, points: Sequence[WholePoint]) -> None:
        apply(collection, points)
        if beside.index.count(FACTS) > 11:
            seen.append(set(beside.near(limit=100)))

    beside.index.apply = applied  # type: ignore[method-assign]
    beside.put(entry("m79"))

    assert beside.follower.catch_up(), beside.follower.state()
    assert seen and all(found == expected for found in seen) and beside.index.count(FACTS) == 80


def test_a_server_that_was_away_is_not_filled_anew(beside: Beside) -> None:
    """An outage tears nothing: what is there stays, and the one new row is applied."""
    beside.put(*(entry(f"m{number}") for number in range(80)))
    assert beside.follower.catch_up()
    apply, sent = beside.index.apply, []

    def away(*_: Any) -> None:
        raise Unavailable("it does not answer")

    beside.put(entry("new"))
    beside.index.apply = away  # type: ignore[method-assign]
    assert [beside.follower.catch_up() for _ in range(3)] == [False] * 3

    def counted(collection: str, points: Sequence[WholePoint]) -> None:
        sent.append(len(points))
        apply(collection, points)

    beside.index.apply = counted  # type: ignore[method-assign]
    assert beside.follower.catch_up() and sum(sent) == 1


def test_a_layer_that_is_no_index_is_searched_by_its_rows(beside: Beside) -> None:
    """What nobody follows answers nothing."""
    supplements = "identity_schema"
    beside.store.open_collection(supplements, SPEC)
    beside.put(*WRITTEN)
    assert beside.follower.catch_up()
    beside.store.put(supplements, [entry("kept")])

    found = beside.store.nearest(supplements, QUERY, Where(), limit=5)

    assert [hit.point_id for hit in found] == [entry("kept").memory.point_id]


@pytest.mark.parametrize("url", ["http://[::1:6333", "http://h:99999", "http://h:abc", "admin:s3cretword@h:6333"])
def test_an_address_that_is_none_is_one_sentence_without_a_password(url: str) -> None:
    """Bad input: whatever it looks like."""
    with pytest.raises(BadInput, match="allowed is http://HOST:PORT") as refused:
        QdrantIndex("none", Access((url,)), Layout(), owner="me")
    assert "s3cretword" not in str(refused.value)


def test_collections_of_an_earlier_release_stay_as_they_are(tmp_path: Path) -> None:
    """No harm: what nobody else holds is not made anew."""
    oldserver.leave(tmp_path, [replace(entry("one"), vectors={})])
    with closing(Beside(str(tmp_path))) as beside:
        beside.put(entry("other"))

        assert not beside.follower.catch_up()

        assert "of a release that kept its memories there, and stays as it is" in beside.follower.state().note
        assert beside.index.count(FACTS) == 1 and beside.near() == [entry("other").memory.point_id]


def test_collections_of_another_database_stay_as_they_are(tmp_path: Path) -> None:
    """No harm: two memories on one server do not overwrite each other."""
    with closing(Beside(str(tmp_path), owner="theirs")) as theirs:
        theirs.put(*WRITTEN)
        assert theirs.follower.catch_up()
    with closing(Beside(str(tmp_path), owner="mine")) as mine:
        mine.put(entry("other"))

        assert not mine.follower.catch_up() and "is of another memory" in mine.follower.state().note
        assert mine.index.count(FACTS) == len(WRITTEN)


def test_a_folder_in_use_is_busy(tmp_path: Path) -> None:
    """Store: a second one is refused and nothing is harmed."""
    with closing(Beside(str(tmp_path))) as beside:
        with pytest.raises(StoreBusy, match="nothing was changed"):
            QdrantIndex("local", Access(path=str(tmp_path)), Layout(), owner="me")
        beside.put(entry("one"))
        assert beside.follower.catch_up()


def test_a_server_that_is_away_is_unavailable() -> None:
    """Store failure: one sentence with the address and what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refuses at once
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with closing(QdrantIndex("away", Access((url,)), Layout(), owner="me")) as index:
            told = pytest.raises(Unavailable, match=f"{url} does not answer")
            with told:
                index.begin({FACTS: SPEC.embedders}, anew=False)


@pytest.mark.parametrize(
    ("status", "ours"), [(401, Refused), (403, Refused), (404, StoreDamaged), (507, DiskFull), (500, Unavailable)]
)
def test_each_answer_of_a_server_is_one_of_our_errors(status: int, ours: type[Exception]) -> None:
    """HTTP status -> our error, without the server's wording."""
    with closing(QdrantLink(Access(("http://127.0.0.1:1",)))) as link:
        error = link.error_of_status(status, b"secret")
    assert type(error) is ours and f"HTTP {status}" in str(error) and "secret" not in str(error)
