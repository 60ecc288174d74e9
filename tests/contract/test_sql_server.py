"""Two engines on one PostgreSQL: none loses or overlooks a write, and the server may go away under them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pgserver import Cluster
from threads import at_once

from memory_anchor.adapters.system import SystemClock
from memory_anchor.domain.errors import BadInput, ChangedMeanwhile, Refused, StoreBusy, Unavailable
from memory_anchor.domain.model import Actor, Caller, Layer, Memory, MemoryType, Scope, Tag
from memory_anchor.domain.ports import DENSE, CollectionSpec, EmbedderIdentity, Entry
from memory_anchor.domain.where import OneOf, Where
from memory_anchor.recall import index
from memory_anchor.store.postgresql import Postgresql
from memory_anchor.store.record_rows import SqlRecords
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.testing import ephemeral_core

FACTS = "verified_fact"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SPEC = CollectionSpec({DENSE: EmbedderIdentity("tiny", 4)})
THREADS = 3
EACH = 40


def memory(name: str, **changes: Any) -> Memory:
    return Memory(name, f"about {name}", Layer.VERIFIED_FACT, MemoryType.FACT, Scope(), NOON, NOON, **changes)


def opened(server: Cluster) -> SqlStore:
    store = SqlStore(Postgresql(server.url))
    store.open_collection(FACTS, SPEC)
    return store


@pytest.fixture
def engines(postgres: Cluster) -> Iterator[tuple[SqlStore, SqlStore]]:
    postgres.emptied()
    with closing(opened(postgres)) as one, closing(opened(postgres)) as two:
        yield one, two


def test_a_follower_of_the_counter_sees_every_write_of_two_engines(
    engines: tuple[SqlStore, SqlStore], postgres: Cluster
) -> None:
    """`changed` is an order of commits: who has read to a number has missed nothing below it."""
    written = threading.Event()
    seen: list[tuple[int, str]] = []

    def follow() -> None:
        with closing(Postgresql(postgres.url)) as database:
            is_last = False
            while not is_last:
                is_last = written.is_set()
                last = seen[-1][0] if seen else 0
                rows = database.rows("select changed, id from version where changed > ? order by changed", (last,))
                seen.extend((int(str(changed)), str(id)) for changed, id in rows)

    def write(engine: int, thread: int) -> Callable[[], None]:
        def run() -> None:
            for number in range(EACH):
                engines[engine].put(FACTS, [Entry(memory(f"{engine}.{thread}.{number}"))])

        return run

    follower = threading.Thread(target=follow)
    follower.start()
    at_once(*[write(engine, thread) for engine in range(2) for thread in range(THREADS)])
    written.set()
    follower.join(60)

    ids = {f"{engine}.{thread}.{number}" for engine in range(2) for thread in range(THREADS) for number in range(EACH)}
    assert {id for _, id in seen} == ids and len(seen) == len(ids)
    assert engines[0].count(FACTS, Where()) == len(ids)


def test_two_engines_that_count_in_one_memory_lose_no_count(engines: tuple[SqlStore, SqlStore]) -> None:
    """Revisions: who decided on an old state writes nothing, reads again and decides anew."""
    engines[0].put(FACTS, [Entry(memory("counter"))])
    point = memory("counter").point_id

    def count(store: SqlStore) -> Callable[[], None]:
        def once() -> bool:
            (entry,) = store.get(FACTS, [point])
            tags = (*entry.memory.tags, Tag(f"t{len(entry.memory.tags)}"))
            try:
                store.put(FACTS, [Entry(replace(entry.memory, tags=tags))])
            except ChangedMeanwhile:
                return False
            return True

        def run() -> None:
            for _ in range(15):
                while not once():
                    pass

        return run

    at_once(count(engines[0]), count(engines[1]))

    (entry,) = engines[0].get(FACTS, [point])
    assert [tag.name for tag in entry.memory.tags] == [f"t{number}" for number in range(30)]


def test_connections_that_died_idle_are_replaced_without_anyone_seeing_it(
    engines: tuple[SqlStore, SqlStore], postgres: Cluster
) -> None:
    """Server: every connection is ended from there; what had not begun begins on a new one."""
    import psycopg

    store = engines[0]
    store.put(FACTS, [Entry(memory("one"))])
    assert store.count(FACTS, Where()) == 1
    for name in ("two", "three"):
        with psycopg.connect(postgres.url, autocommit=True) as other:
            other.execute("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()")

        store.put(FACTS, [Entry(memory(name))])
        assert store.count(FACTS, Where((OneOf("id", (name,)),))) == 1


def test_a_connection_that_dies_in_a_unit_fails_that_unit_whole(
    engines: tuple[SqlStore, SqlStore], postgres: Cluster
) -> None:
    """Server: what had begun is not begun again, since it decided by what it read; the next one works."""
    import psycopg

    store = engines[0]
    with pytest.raises(Unavailable, match="does not answer"), store.database.unit():
        store.put(FACTS, [Entry(memory("one"))])
        with psycopg.connect(postgres.url, autocommit=True) as other:
            other.execute("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()")
        store.put(FACTS, [Entry(memory("two"))])

    store.put(FACTS, [Entry(memory("three"))])
    assert {each.memory.id for each in store.scan(FACTS, Where())[0]} == {"three"}


def test_a_named_lock_is_one_process_s_until_it_lets_go_or_dies(postgres: Cluster) -> None:
    """Leases: an advisory lock of a connection; the death of its holder frees it at once."""
    import psycopg

    with closing(Postgresql(postgres.emptied())) as one, closing(Postgresql(postgres.url)) as two:
        assert one.holds("jobs") and one.holds("jobs") and not two.holds("jobs")
        assert two.holds("index") and not one.holds("index")

        one.let_go("jobs")
        assert two.holds("jobs") and not one.holds("jobs")

        with psycopg.connect(postgres.url, autocommit=True) as other:
            other.execute("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()")
        assert one.holds("jobs") and not two.holds("jobs")


def test_an_answer_is_kept_by_no_replica_that_does_not_follow_what_others_write(
    postgres: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More memories than a mirror takes x replicas: what another one wrote is in the next answer all the same."""
    monkeypatch.setattr(index, "MAX_ROWS", 2)
    actor = Actor(Caller.AGENT, Scope(account="acme", user="eve", agent="api"), project="site")
    with (
        closing(SqlStore(Postgresql(postgres.emptied()))) as one,
        closing(ephemeral_core(tmp_path / "a", store=one)) as here,
        closing(SqlStore(Postgresql(postgres.url))) as two,
        closing(ephemeral_core(tmp_path / "b", store=two)) as there,
    ):
        for number in range(3):
            here.anchor(actor).log_event(f"Harbour crane {number} was painted red")
        asked = "which crane lifts the containers"
        before = [one.text for one in there.anchor(actor).search(asked, limit=9).snippets]
        here.anchor(actor).log_event("The blue crane lifts the containers")

        found = [one.text for one in there.anchor(actor).search(asked, limit=9).snippets]

        assert "The blue crane lifts the containers" in found and "The blue crane lifts the containers" not in before


def test_who_waits_for_a_named_lock_asks_on_one_connection(postgres: Cluster) -> None:
    """Leases: a replica that asks every minute whether it runs the jobs logs in once, whatever it asks for."""
    import psycopg

    sql = "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
    with (
        closing(Postgresql(postgres.emptied())) as one,
        closing(Postgresql(postgres.url)) as two,
        psycopg.connect(postgres.url, autocommit=True) as other,
    ):
        assert one.holds("jobs") and not two.holds("jobs")
        before = set(other.execute(sql).fetchall())

        assert not any(two.holds("jobs") for _ in range(20)) and two.holds("index")

        assert set(other.execute(sql).fetchall()) == before
        one.let_go("jobs")
        assert two.holds("jobs") and two.holds("index") and not one.holds("jobs")
        two.let_go("jobs")
        assert one.holds("jobs") and not one.holds("index")


def test_a_purge_lets_the_server_use_the_room_of_every_table_with_texts_again(postgres: Cluster) -> None:
    """Purge: versions, what belongs to them, and records; what was erased is no dead row any more."""
    import psycopg

    postgres.emptied()
    with closing(opened(postgres)) as store:
        records = SqlRecords(store.database, SystemClock().now)
        records.write("requests/1", b"the falcon lands", before="")
        records.delete("requests/1", before=None)

        records.wipe()

    with psycopg.connect(postgres.url, autocommit=True) as other:
        vacuumed = "select relname from pg_stat_user_tables where vacuum_count > 0"
        with_text = """select distinct table_name from information_schema.columns where table_schema = 'public'
          and column_name in ('doc', 'value', 'words', 'content') and table_name <> 'meta'"""
        assert set(other.execute(with_text).fetchall()) == {(n,) for n in ("version", "term", "vec", "used", "record")}
        assert set(other.execute(with_text).fetchall()) <= set(other.execute(vacuumed).fetchall())


def test_a_killed_server_comes_back_with_every_acknowledged_write(postgres: Cluster) -> None:
    """Durability: SIGKILL while two engines write; what was answered is there, whole, and they write on."""
    postgres.emptied()
    acknowledged: set[str] = set()
    failed = 0
    with ExitStack() as stack:
        stores = [stack.enter_context(closing(opened(postgres))) for _ in range(2)]
        enough = threading.Event()

        def write(store: SqlStore, name: str) -> Callable[[], None]:
            def run() -> None:
                row = np.ones(4, dtype=np.float32)
                for number in range(10_000):
                    pair = [memory(f"{name}.{number}.{half}", tags=(Tag(name),)) for half in range(2)]
                    try:
                        store.put(FACTS, [Entry(each, {DENSE: row}) for each in pair])
                    except Unavailable:
                        return
                    acknowledged.update(each.id for each in pair)
                    if len(acknowledged) > 100:
                        enough.set()

            return run

        def kill() -> None:
            enough.wait(60)
            postgres.kill()

        at_once(kill, *[write(stores[n], f"{n}.{thread}") for n in range(2) for thread in range(THREADS)])
        postgres.start()
        for store in stores:
            for _ in range(THREADS + 1):  # a connection of each reader is found dead
                try:
                    store.put(FACTS, [Entry(memory(f"after {store is stores[0]}"))])
                    store.count(FACTS, Where())
                except Unavailable:
                    failed += 1

        found = {each.memory.id for each in stores[0].scan(FACTS, Where(), page=100_000, with_vectors=True)[0]}
        assert acknowledged <= found and {"after True", "after False"} <= found
        pairs = [id for id in found if not id.startswith("after")]
        assert all(f"{id[:-1]}{1 - int(id[-1])}" in found for id in pairs), "a write is there by half"
        assert list(stores[0].faults()) == []
        assert failed <= 2 * THREADS


def test_an_engine_that_writes_for_long_is_waited_for_and_then_said(
    engines: tuple[SqlStore, SqlStore], postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One lock for every write, taken before the first read; reading goes on."""
    import psycopg

    monkeypatch.setattr("memory_anchor.store.postgresql.WAIT_MS", 1_000)
    with psycopg.connect(postgres.url) as other, closing(opened(postgres)) as store:
        other.execute("select pg_advisory_xact_lock(%s)", (0x6D656D6F7279,))
        with pytest.raises(StoreBusy, match="nothing was written"):
            store.put(FACTS, [Entry(memory("early"))])
        assert store.count(FACTS, Where()) == 0
        other.rollback()

        store.put(FACTS, [Entry(memory("later"))])

        assert store.count(FACTS, Where((OneOf("id", ("later",)),))) == 1


def test_a_text_that_the_server_refuses_is_bad_input_and_costs_nobody_else(engines: tuple[SqlStore, SqlStore]) -> None:
    """Values: a NUL in a tag is no text there; the group's other writes are stored."""
    with pytest.raises(BadInput, match="NUL"):
        engines[0].put(FACTS, [Entry(memory("bad", tags=(Tag("a\0b"),)))])
    engines[0].put(FACTS, [Entry(memory("good", recorded_to=NOON + timedelta(days=1), is_current=False))])

    assert [each.id for each in engines[1].find(FACTS, Where(), limit=9)] == ["good"]


def test_no_server_and_a_wrong_address_are_unavailable_without_the_password(postgres: Cluster) -> None:
    """`database.url` is not shown; what the server says of it is: whoever starts a replica must know which is wrong."""
    for url, why in (
        ("postgresql://me:hunter2@127.0.0.1:1/x", "Connection refused"),
        ("postgresql://me:hun@ter2@nowhere.invalid/x", "no server at this address"),
        (f"postgresql://me:hunter2@/none?host={postgres.folder}", 'role "me" does not exist'),
        (f"postgresql://postgres:hunter2@/none?host={postgres.folder}", 'database "none" does not exist'),
        (f"{postgres.url}&target_session_attrs=standby", "server is not in hot standby mode"),
    ):
        with pytest.raises(Unavailable, match=rf"does not answer \({why}\); nothing.*database.url") as refused:
            Postgresql(url)
        assert "ter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("granted", "why"),
    [("usage", "permission denied for schema public"), ("", "no schema has been selected to create in")],
)
def test_a_role_that_may_not_make_tables_is_told_what_to_be_granted(postgres: Cluster, granted: str, why: str) -> None:
    """A first start by a role without rights is one sentence: what the server refuses, and to whom to grant it."""
    import psycopg

    postgres.emptied()
    with psycopg.connect(postgres.url, autocommit=True) as server:
        server.execute("drop role if exists guest")
        server.execute("create role guest login")
        if granted:
            server.execute("grant usage on schema public to guest")
    with pytest.raises(Refused, match=rf"\({why}\), nothing was changed; grant it to the role of database.url"):
        Postgresql(f"postgresql://guest@/postgres?host={postgres.folder}")
    postgres.emptied()
