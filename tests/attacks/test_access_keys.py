"""Access keys of the served memory: what they allow, what they refuse, and that nothing reveals them.

Issue 17, keys: every request goes over a real socket to the real app; nothing is mocked but the clock.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from serving import Served, bearer, core_to_serve, key_for

from memory_anchor.domain.credential import Role
from memory_anchor.domain.errors import NoCredential
from memory_anchor.domain.rights import RIGHTS, Action, Right
from memory_anchor.domain.where import Where
from memory_anchor.extensions.service import http_api
from memory_anchor.extensions.service.http_api import build_http
from memory_anchor.extensions.service.http_v1 import PATHS, PRINCIPAL_OF_ROLE
from memory_anchor.extensions.service.keys import FOLDER, KEY_CHARS, KEYS_FILE, KeyFile
from memory_anchor.extensions.service.limits import TRIES_A_MINUTE
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.testing import ManualClock, ephemeral_core, human_of

A_MINUTE = 40
NEEDS = {
    "memory/search": {"query": "x"},
    "memory/get": {"id": "0000000000000"},
    "memory/history": {"id": "0000000000000"},
    "memory/store": {"content": "Whales sing at night"},
    "memory/log": {"content": "A whale sang"},
    "memory/promote": {"event_id": "0000000000000"},
    "memory/forget": {"id": "0000000000000"},
    "memory/remember": {"messages": [{"role": "user", "content": "Whales sing"}]},
    "memory/context": {"task": "x"},
    "knowledge/search": {"query": "x"},
    "knowledge/get": {"citation": "0000000000000"},
    "knowledge/add": {"name": "a.md", "text": "Whales"},
    "knowledge/ingest": {"name": "a.md", "text": "Whales"},
    "knowledge/remove": {"source": "0000000000000"},
}


@pytest.fixture
def held(tmp_path: Path, project: Path, clock: ManualClock) -> Iterator[Core]:
    with core_to_serve(tmp_path / "core", project, clock, requests_per_minute=A_MINUTE) as made:
        yield made


@pytest.fixture
def served(held: Core) -> Iterator[Served]:
    made = Served(build_http(held, held.settings, secret="path-secret"))
    yield made
    made.close()


def post(served: Served, key: str, path: str, **body: Any) -> Any:
    return served.ask("POST", f"/v1/{path}", headers=bearer(key), json=body)


def test_a_key_decides_whose_memory_a_request_is_about(served: Served, held: Core) -> None:
    """Issue 17, isolation: account and user come from the key; a body that names others is refused."""
    eve, _ = key_for(held, "acme", user="eve")
    bob, _ = key_for(held, "acme", user="bob")
    other, _ = key_for(held, "globex", user="eve")
    saved = post(served, eve, "memory/store", content="The vault opens at nine", visibility="user").json()
    assert saved["outcome"] == "added"

    assert post(served, eve, "memory/search", query="when does the vault open").json()["snippets"]
    assert post(served, bob, "memory/get", id=saved["id"]).status_code == 404
    assert post(served, other, "memory/get", id=saved["id"]).status_code == 404
    for name, value in (("account_id", "globex"), ("user_id", "bob")):
        refused = post(served, eve, "memory/search", query="vault", **{name: value})
        assert (refused.status_code, refused.json()["code"]) == (403, "refused")
        assert f"is not the {name[:-3]} this credential is bound to" in refused.json()["message"]
    own = post(served, eve, "memory/search", query="vault", account_id="acme", user_id="eve")
    assert own.status_code == 200
    by = post(served, eve, "memory/history", id=saved["id"]).json()["versions"][0]
    assert by["scope"]["user"] == "eve" and "for eve" in json.dumps(list(held.audit.records()))


def test_a_key_that_opens_nothing_is_told_why_in_one_sentence(
    served: Served, held: Core, clock: ManualClock, tmp_path: Path
) -> None:
    """Issue 17, bad input: cut, doubled, another server's, expired, revoked; none tells of any other key."""
    key, made = key_for(held, "acme", expires_at=clock.now() + timedelta(hours=1))
    elsewhere = ephemeral_core(tmp_path / "elsewhere", clock=clock)
    foreign, _ = key_for(elsewhere, "acme")
    elsewhere.close()
    for wrong, why in (
        (key[:-1], "it was cut"),
        (key + key, "pasted twice"),
        (foreign, "none of this server's"),
        (key[:-4] + "aaaa", "none of this server's"),
        (f"ma_{key[3:].upper()}", "none of ours"),
        ("-", "no valid bearer token"),
        ("x" * 20_000, "no valid bearer token"),
    ):
        refused = post(served, wrong, "memory/search", query="x")
        assert refused.status_code == 401, wrong[:20]
        assert refused.json()["code"] == "no_credential"
        assert why in refused.json()["message"] and "\n" not in refused.json()["message"]
        assert refused.headers["WWW-Authenticate"] == "Bearer"
    assert post(served, key, "memory/search", query="x").status_code == 200
    KeyFile.of(held.data_dir, held.audit).revoke(made.id, clock.now())
    refused = post(served, key, "memory/search", query="x")
    assert refused.status_code == 401 and f"{made.id} was revoked" in refused.json()["message"]
    later, ends = key_for(held, "acme", expires_at=clock.now() + timedelta(hours=1))
    clock.advance(hours=1)
    assert f"{ends.id} expired" in post(served, later, "memory/search", query="x").json()["message"]


def test_a_key_that_ends_while_a_search_runs_gets_that_answer_and_no_other(
    served: Served, held: Core, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 17, bad input: what was let in is answered whole; the next request is refused in one sentence."""
    key, _ = key_for(held, "acme", expires_at=clock.now() + timedelta(hours=1))
    other, record = key_for(held, "acme")
    for whose, end in (
        (key, lambda: clock.advance(hours=1)),
        (other, lambda: KeyFile.of(held.data_dir, held.audit).revoke(record.id, clock.now())),
    ):
        post(served, whose, "memory/store", content=f"Whales sing at night, heard {clock.now():%H}")
        running, ended = threading.Event(), threading.Event()
        search = held.services.searcher.search

        def slow(*given: Any, search: Any = search, running: Any = running, ended: Any = ended, **named: Any) -> Any:
            running.set()
            assert ended.wait(20)
            return search(*given, **named)

        monkeypatch.setattr(held.services.searcher, "search", slow)
        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(post, served, whose, "memory/search", query="when do whales sing")
            assert running.wait(20)
            end()
            ended.set()
            answer = pending.result(20)
        monkeypatch.setattr(held.services.searcher, "search", search)
        assert answer.status_code == 200 and answer.json()["snippets"], answer.text
        late = post(served, whose, "memory/search", query="when do whales sing")
        assert late.status_code == 401 and late.json()["code"] == "no_credential"


def test_a_line_that_nobody_signed_opens_nothing(held: Core, clock: ManualClock) -> None:
    """Attack: an agent with a shell writes itself a key, or another role and account, into the file."""
    key, made = key_for(held, "acme", user="eve", role=Role.READER)
    keys, file = KeyFile.of(held.data_dir, held.audit), held.data_dir / FOLDER / KEYS_FILE
    assert keys.authenticate(key, clock.now()).role is Role.READER
    assert file.stat().st_mode & 0o777 == 0o600
    whole = file.read_text()
    for old, new in (('"reader"', '"admin"'), ('"acme"', '"globex"'), ('"eve"', '""'), (made.digest, "0" * 64)):
        file.write_text(whole.replace(old, new))
        with pytest.raises(NoCredential):
            keys.authenticate(key, clock.now())
    file.write_text(whole)
    assert keys.authenticate(key, clock.now()).account == "acme"


def test_each_role_may_what_the_table_says_and_nothing_else(served: Served, held: Core) -> None:
    """Issue 17, roles: every path with every role; a refused one is one sentence and wrote nothing."""
    for role in Role:
        key, _ = key_for(held, "acme", user="eve", role=role)
        for path in PATHS:
            ask = {"headers": bearer(key)} | ({"json": NEEDS.get(path.path, {})} if path.method == "POST" else {})
            answer = served.ask(path.method, f"/v1/{path.path}", **ask)
            may = RIGHTS[path.action][PRINCIPAL_OF_ROLE[role]] is not Right.NO
            assert (answer.status_code == 403) is (not may), (role, path, answer.text)
    assert not held.services.store.find("event_log", Where(), limit=9)[3:]


OF_THE_SERVICE = {"health", "ready", "version", "context", "ingest", "ingest/{batch}"}
WITHOUT_A_PROOF = {
    "review/inbox": Action.READ,
    "review/sides": Action.READ,
    "review/challenge": Action.ACCEPT,
    "review/accept": Action.ACCEPT,
    "review/reject": Action.REJECT,
    "review/settle": Action.MERGE,
}
"""What each path of a decision is in the table of rights."""
HANDS_OUT = {"review/inbox", "review/sides", "review/challenge"}
"""Of those, what no signature is asked for."""


def test_each_role_may_decide_what_the_table_says_and_nothing_by_the_role_alone(served: Served, held: Core) -> None:
    """Issue 17, roles: every path of a decision with every role; every path that is served stands in one table here."""
    told = served.ask("GET", "/openapi.json", headers=bearer(key_for(held, "acme")[0])).json()["paths"]
    paths = {path.removeprefix("/v1/"): next(iter(ways)).upper() for path, ways in told.items() if path[:4] == "/v1/"}
    assert paths.keys() - {path.path for path in PATHS} - OF_THE_SERVICE == WITHOUT_A_PROOF.keys()
    for role in Role:
        key, _ = key_for(held, "acme", user="eve", role=role)
        for path, action in WITHOUT_A_PROOF.items():
            answer = served.ask(
                paths[path], f"/v1/{path}", headers=bearer(key), **({} if paths[path] == "GET" else {"json": {}})
            )
            by_role = answer.status_code == 403 and "may not" in answer.json()["message"]
            may = RIGHTS[action][PRINCIPAL_OF_ROLE[role]] is not Right.NO
            assert by_role is (not may), (role, path, answer.text)
            assert path in HANDS_OUT or answer.status_code in (400, 403), (role, path, answer.text)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds by which a server counts, moved by hand: how long a request takes on this machine refills nothing."""
    at = [1_000.0]
    monkeypatch.setattr(http_api, "time", SimpleNamespace(monotonic=lambda: at[0]))
    return at


def test_tries_are_limited_and_who_is_in_stays_in(seconds: list[float], served: Served, held: Core) -> None:
    """Attack: keys are tried; after twenty from one address none is looked at, and a key in use goes on working."""
    key, _ = key_for(held, "acme")
    new, _ = key_for(held, "acme")
    assert post(served, key, "memory/search", query="x").status_code == 200
    codes = [post(served, f"ma_{'a' * 8}_{number:052d}", "memory/search").status_code for number in range(25)]

    assert codes == [401] * TRIES_A_MINUTE + [429] * (25 - TRIES_A_MINUTE)
    assert post(served, key, "memory/search", query="x").status_code == 200
    waits = post(served, new, "memory/search", query="x")
    assert waits.status_code == 429 and int(waits.headers["Retry-After"]) >= 1
    seconds[0] += int(waits.headers["Retry-After"])
    assert post(served, new, "memory/search", query="x").status_code == 200


def test_a_key_asks_so_often_a_minute_and_no_more(seconds: list[float], served: Served, held: Core) -> None:
    """Issue 17, limits: 429 with Retry-After, for this key alone."""
    key, _ = key_for(held, "acme")
    other, _ = key_for(held, "acme")
    ask = partial(served.ask, "GET", "/v1/knowledge/sources", headers=bearer(key))
    codes = [ask().status_code for _ in range(A_MINUTE + 10)]
    last = ask()

    assert codes == [200] * A_MINUTE + [429] * 10
    assert last.json()["code"] == "too_many" and int(last.headers["Retry-After"]) >= 1
    assert post(served, other, "memory/search", query="x").status_code == 200


def test_no_file_and_no_log_line_holds_a_key(served: Served, held: Core, caplog: pytest.LogCaptureFixture) -> None:
    """Issue 17, keys: shown once; what is kept and logged opens nothing, also where a memory quotes the key."""
    caplog.set_level(logging.DEBUG)
    key, _ = key_for(held, "acme", user="eve")
    secret = key.rpartition("_")[2]
    post(served, key, "memory/store", content=f"my key is {key}, do not tell")
    post(served, key, "memory/search", query=key)
    post(served, key[:-1], "memory/search", query="x")
    stored = held.services.store.find("verified_fact", Where(), limit=9)
    assert stored and not any(secret in one.content for one in stored)
    served.close()
    held.close()

    kept = [path for path in held.data_dir.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert kept == [] and secret not in caplog.text


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[1]", "the body is a list"),
        (b'{"query": "a", "query": "b"}', "one name twice"),
        (b'{"query": NaN}', "NaN"),
        (b"[" * 100_000, "nested too deeply"),
        (b"\xff\xfe", "no JSON"),
        (b'{"query": 7}', "query is a number"),
        (b'{"query": "a", "colour": 1}', "unknown argument 'colour'"),
        (b'{"query": "a", "account_id": ["acme"]}', "account_id cannot be taken"),
        (b'{"query": "a", "user_id": "a\\u0000b"}', "user_id cannot be taken"),
        (b'{"query": "a", "project_id": "../up"}', "project id is '../up'"),
        (b'{"query": "a", "project_id": "tenant-0"}', "are this server's own"),
        (b'{"query": "a", "limit": ' + b"9" * 5_000 + b"}", "no JSON"),
    ],
)
def test_a_body_of_the_wrong_shape_is_one_sentence(served: Served, held: Core, body: bytes, why: str) -> None:
    """Issue 17, bad input: wrong types, unknown fields, other names; the code of the one table."""
    key, _ = key_for(held, "acme")
    answer = served.ask("POST", "/v1/memory/search", headers=bearer(key), content=body)

    assert (answer.status_code, answer.json()["code"]) == (400, "bad_input"), answer.text
    assert why in answer.json()["message"] and "\n" not in answer.json()["message"]


def test_two_credentials_in_one_request_are_none(served: Served, held: Core) -> None:
    """Issue 17, bad input: a proxy that looks at the one and a server that takes the other would disagree."""
    first, second = (bearer(key_for(held, account)[0])["Authorization"] for account in ("acme", "other"))
    for keys in ((first, second), (first, first)):
        answer = served.ask(
            "POST", "/v1/memory/search", headers=[("Authorization", key) for key in keys], json={"query": "whales"}
        )
        assert (answer.status_code, answer.json()["code"]) == (401, "no_credential")
        assert "two Authorization headers" in answer.json()["message"]


def test_a_hundred_megabytes_are_refused_before_they_are_read(served: Served, held: Core) -> None:
    """Issue 17, bad input: by what the request says of itself, and while it is read where it says nothing."""
    key, _ = key_for(held, "acme")

    def drip() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * (1 << 20)

    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as said:
        head = f"POST /v1/memory/search HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        said.sendall(f"{head}Content-Length: 104857600\r\n\r\n".encode())
        assert b" 413 " in said.recv(100)
    silent = served.ask("POST", "/v1/memory/search", headers=bearer(key), content=drip())
    assert silent.status_code == 413


def test_a_write_with_a_request_id_is_one_write(served: Served, held: Core) -> None:
    """Issue 17, limits: idempotency by request_id, also where the request itself has none, and never for two people."""
    eve, _ = key_for(held, "acme", user="eve")
    bob, _ = key_for(held, "acme", user="bob")
    said = {"content": "Deploys need two reviews", "request_id": "r1", "visibility": "user"}
    first, again = (post(served, eve, "memory/store", **said).json() for _ in range(2))
    theirs = post(served, bob, "memory/store", **said).json()
    assert first == again and theirs["id"] != first["id"]
    gone, more = (post(served, eve, "memory/forget", id=first["id"], request_id="r2").json() for _ in range(2))
    assert gone == more and gone["outcome"] == "archived"


def test_other_addresses_than_loopback_need_a_key_or_a_token(held: Core) -> None:
    """Issue 17: `serve` refuses to listen beyond loopback without keys; one that has ended is none."""
    everywhere = Settings.model_validate({"http": {"host": "0.0.0.0"}})  # noqa: S104 - only named here
    with pytest.raises(Exception, match="no key and http"):
        build_http(held, everywhere)
    _, made = key_for(held, "acme")
    build_http(held, everywhere)
    KeyFile.of(held.data_dir, held.audit).revoke(made.id, held.clock.now())
    with pytest.raises(Exception, match="no key and http"):
        build_http(held, everywhere)


def test_commands_make_show_and_end_keys(human: Any, run: Any) -> None:
    """Issue 17: `keys create|list|revoke`, `--json`; the key is told once and whole."""
    made = json.loads(run("keys", "create", "--account", "acme", "--user", "eve", "--expires", "90d", "--json").stdout)
    assert len(made["key"]) == KEY_CHARS and made["role"] == "writer"
    (row,) = json.loads(run("keys", "list", "--json").stdout)["keys"]
    assert row["user"] == "eve" and made["key"].rpartition("_")[2] not in json.dumps(row)
    assert run("keys", "revoke", made["id"]).exit_code == 0
    assert json.loads(run("keys", "list", "--json").stdout)["keys"][0]["ended"]
    for wrong, code in (
        (("create", "--role", "king"), 2),
        (("create", "--expires", "soon"), 2),
        (("create", "--account", "a|b"), 2),
        (("create", "--expires", "2001-01-01T00:00:00Z"), 2),
        (("revoke", "nobody"), 3),
    ):
        assert run("keys", *wrong).exit_code == code, wrong


def test_the_human_of_another_machine_makes_no_keys_here(held: Core, clock: ManualClock, tmp_path: Path) -> None:
    """Attack: a key file that another installation signed is copied over."""
    elsewhere = ephemeral_core(tmp_path / "elsewhere", clock=clock)
    human_of(held.data_dir)
    key, _ = key_for(elsewhere, "acme")
    target = held.data_dir / FOLDER
    target.mkdir()
    (target / KEYS_FILE).write_bytes((elsewhere.data_dir / FOLDER / KEYS_FILE).read_bytes())
    elsewhere.close()

    with pytest.raises(NoCredential, match="none of this server's"):
        KeyFile.of(held.data_dir, held.audit).authenticate(key, clock.now())
