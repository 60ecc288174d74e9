"""Random calls of many accounts through every door of the served memory: not a byte of another's comes back.

Issue 17, isolation. What may come back is decided by a filter of the test (`may`), which knows each memory's account,
user, project, agent, conversation and visibility, and no key, query or function of the product. Every call goes over a
socket to the real app with a real key, except commands and exports, which are the server's own.
"""

from __future__ import annotations

import base64
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from figures import figure
from issuer import OURS, IssuerNearby
from serving import Served, bearer, key_for

from memory_anchor.domain.credential import Role
from memory_anchor.domain.errors import MemoryAnchorError
from memory_anchor.domain.model import Actor, Scope
from memory_anchor.domain.where import Where
from memory_anchor.extensions.knowledge.use_cases import library_of
from memory_anchor.extensions.service.http_api import build_http
from memory_anchor.extensions.transfer.transfer_files import export_lines
from memory_anchor.front import calls
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.testing import ManualClock, ephemeral_core

MARK = re.compile(r"zq\d{5}x")
AGENTS, TALKS, PROJECTS = ("codex", "gemini"), ("one", "two"), ("red", "blue")
VISIBILITIES = ("conversation", "agent", "project", "user", "account")
TOPICS = ("deploys", "caches", "reviews", "ports", "queues", "tokens")
OWN = "local"
"""The account of the installation itself, which has rules, a lorebook and how-tos."""
RULES, BOOK, HOW_TO = "zq99001x", "zq99002x", "zq99003x"
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "codex", "version": "0"},
}
GUESSED = ("acme", "me", "local", "eve", "default", "*", "", "a1|u1", "tenant-0")


@dataclass(frozen=True)
class Kept:
    mark: str
    id: str
    visibility: str
    account: str
    user: str
    project: str
    agent: str
    talk: str


@dataclass(frozen=True)
class Reader:
    key: str
    account: str
    user: str
    project: str
    agent: str
    talk: str

    def whose(self) -> dict[str, str]:
        return {"project_id": self.project, "agent_id": self.agent, "conversation_id": self.talk}


def may(reader: Reader, kept: Kept) -> bool:
    """Contract: nothing of another account; conversation and agent in their project; project; user; account."""
    if reader.account != kept.account:
        return False
    match kept.visibility:
        case "conversation":
            return (reader.project, reader.talk) == (kept.project, kept.talk)
        case "agent":
            return (reader.user, reader.agent, reader.project) == (kept.user, kept.agent, kept.project)
        case "project":
            return reader.project == kept.project
        case "user":
            return reader.user == kept.user
        case _:
            return True


class Tenants:
    def __init__(self, folder: Path, *, accounts: int, users: int, memories: int, seed: int, approve: Any) -> None:
        self.random = random.Random(seed)
        project = folder / "project"
        (project / ".ai" / "operations").mkdir(parents=True)
        (project / ".ai" / "operations" / "ship.md").write_text(f"# How to ship\n\n{HOW_TO} deploys caches reviews\n")
        text = f"version: '1'\nentries:\n  - {{id: a, content: {RULES} deploys, priority: 1}}\n"
        (project / "constitution.yaml").write_text(text)
        http: dict[str, Any] = {"requests_per_minute": 1_000_000}
        variants = {"plain": {"retrieval": {"priors": False, "fold_duplicates": False}}}
        self.issuer = IssuerNearby()
        jwks = {"issuer": self.issuer.url, "audience": OURS, "jwks_url": f"{self.issuer.url}/jwks"}
        http |= {"jwt": {**jwks, "account_claim": "org", "role_claim": "roles"}}
        chosen = {"http": http, "variants": variants, "project_dir": str(project), "profile": "full"}
        settings = Settings.model_validate(chosen)
        self.core: Core = ephemeral_core(folder / "data", clock=ManualClock(), settings=settings)
        own = self.core.anchor(Actor(project_dir=str(project)))
        approve(own)
        self.own_project = own.actor.scope.project
        book = {"entries": {"0": {"key": ["deploys"], "content": f"{BOOK} a book", "constant": True}}}
        for name in (self.own_project, "red"):
            anchor = self.core.anchor(Actor(scope=Scope(account=OWN), project=name))
            calls.answer("lorebook_add", anchor, {"file": "book.json", "content": _base64(book)})
        self.served = Served(build_http(self.core, settings, secret=""))
        self.accounts = [OWN, *(f"a{number}" for number in range(accounts - 1))]
        self.people = {
            (account, user): key_for(self.core, account, user=user)[0]
            for account in self.accounts
            for user in ("me", *(f"u{number}" for number in range(users - 1)))
        }
        self.readers = {
            whose: key_for(self.core, whose[0], user=whose[1], role=Role.READER)[0]
            for whose in self.random.sample(list(self.people), 2)
        }
        self.deciding = {
            whose: key_for(self.core, whose[0], user=whose[1], role=role)[0]
            for role in (Role.APPROVER, Role.ADMIN)
            for whose in self.random.sample(list(self.people), min(8, len(self.people)))
        }
        self.kept = {one.mark: one for one in map(self.store, range(memories))}
        self.key_ids = {key.split("_")[1]: account for (account, _), key in self.people.items()}
        self.by_id = {one.id: one for one in self.kept.values()}
        while library_of(self.core.services).step(lambda: False):
            pass
        self.doors: Counter[str] = Counter()

    def reader(self) -> Reader:
        pick = self.random.choice
        account, user = pick(list(self.people))
        key = self.people[account, user]
        if self.random.random() < 0.3:  # by a token of the issuer
            key = self.issuer.token(sub=user, org=account, exp=int(time.time()) + 3600)
        return Reader(key, account, user, pick((*PROJECTS, self.own_project)), pick(AGENTS), pick(TALKS))

    def post(self, reader: Reader, path: str, *, below: str = "", **body: Any) -> Any:
        return self.served.ask("POST", f"{below}/v1/{path}", headers=bearer(reader.key), json=reader.whose() | body)

    def decider(self) -> Reader:
        (account, user), key = self.random.choice(list(self.deciding.items()))
        return Reader(key, account, user, self.random.choice(PROJECTS), self.random.choice(AGENTS), "one")

    def rpc(self, reader: Reader, method: str, named: str, /, **params: Any) -> str:
        head = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN["io.modelcontextprotocol/protocolVersion"],
            "Mcp-Method": method,
            "Mcp-Name": named,
            "X-KM-Project": reader.project,
        }
        meta = {**MODERN, "memory-anchor/conversation_id": reader.talk}
        meta["io.modelcontextprotocol/clientInfo"] = {"name": reader.agent, "version": "0"}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        return str(self.served.ask("POST", "/mcp", headers=bearer(reader.key, **head), json=body).text)

    def tool(self, reader: Reader, name: str, /, **given: Any) -> str:
        return self.rpc(reader, "tools/call", name, name=name, arguments=given)

    def store(self, number: int) -> Kept:
        reader = self.reader()
        mark = f"zq{number:05d}x"
        text = f"{mark} says of {' and '.join(self.random.sample(TOPICS, 2))} number {number}"
        kind = self.random.choice(("store", "log", "document"))
        names = (reader.account, reader.user, reader.project, reader.agent, reader.talk)
        if kind == "document":
            done = self.post(reader, "knowledge/add", name=f"{mark}.md", text=text, into=f"into-{number}")
            assert done.status_code == 200, done.text
            return Kept(mark, done.json()["source"]["id"], "project", *names)
        visibility = self.random.choice(VISIBILITIES)
        more = {"visibility": visibility, "tags": [f"tag-{mark}"], "files": [f"src/{mark}.py"]}
        done = self.post(reader, f"memory/{kind}", content=text, **more)
        assert done.status_code == 200, done.text
        return Kept(mark, done.json()["id"], visibility, *names)

    def call(self) -> None:
        """Make one random call through a random door and check its answer against `may`."""
        reader, pick = self.reader(), self.random.choice
        topics = " ".join(self.random.sample(TOPICS, 2))
        about = topics if self.random.random() < 0.7 else pick(list(self.kept))
        target = pick(list(self.kept.values()))
        foreign = not may(reader, target)
        post, tool = self.post, self.tool
        ask = self.served.ask
        claim = {pick(("account_id", "user_id")): pick((target.account, target.user, *GUESSED))}
        prompt = [{"role": "user", "content": f"what of {about}"}]
        decider = self.decider()
        foreign_key = pick([name for name, account in self.key_ids.items() if account != decider.account])
        doors: dict[str, Callable[[], str]] = {
            "search": lambda: post(reader, "memory/search", query=about, limit=50, include_pending=True).text,
            "search as another": lambda: post(reader, "memory/search", query=about, **claim).text,
            "get": lambda: post(reader, "memory/get", id=target.id, history=True).text,
            "history": lambda: post(reader, "memory/history", id=target.id, story=True).text,
            "list": lambda: post(reader, "memory/list", limit=1000, tag=pick([f"tag-{target.mark}", None])).text,
            "events": lambda: post(reader, "memory/events", query=pick([about, ""]), limit=200).text,
            "store again": lambda: (
                post(reader, "memory/store", content=f"again {topics}", request_id="r", visibility="agent").text
            ),
            "replace": lambda: post(reader, "memory/store", content="It is gone.", replaces=target.id).text,
            "promote": lambda: post(reader, "memory/promote", event_id=target.id).text if foreign else "",
            "forget": lambda: post(reader, "memory/forget", id=target.id).text if foreign else "",
            "knowledge": lambda: post(reader, "knowledge/search", query=about, limit=50).text,
            "passage": lambda: post(reader, "knowledge/get", citation=target.id).text,
            "sources": lambda: (
                ask("GET", f"/v1/knowledge/sources?project_id={reader.project}", headers=bearer(reader.key)).text
            ),
            "source removed": lambda: post(reader, "knowledge/remove", source=target.id).text if foreign else "",
            "context": lambda: post(reader, "context", messages=prompt, task=about).text,
            "tool search": lambda: tool(reader, "search_memory", query=about, limit=50, detail=True),
            "tool events": lambda: tool(reader, "search_events", limit=200),
            "tool get": lambda: tool(reader, "get_memory", id=pick([target.id, f"{target.id}@1"]), history=True),
            "tool rules": lambda: tool(reader, "get_constitution"),
            "tool operations": lambda: tool(reader, "find_operations", task="how are deploys done"),
            "tool context": lambda: tool(reader, "build_context", task=about),
            "tool mind": lambda: tool(reader, "get_active_context"),
            "tool propose": lambda: tool(
                reader, "propose_constitution_change", content=f"Be {topics}", reason="x", from_id=target.id
            ),
            "tool knowledge": lambda: tool(reader, "knowledge_search", query=about, limit=50),
            "tool settle": lambda: (
                tool(reader, "resolve_conflict", id=target.id, resolution="keep_new") if foreign else ""
            ),
            "resource": lambda: self.read(reader, f"memory://memories/{target.id}"),
            "resource rules": lambda: self.read(reader, "memory://constitution"),
            "resource profile": lambda: self.read(reader, "memory://profile"),
            "resource mind": lambda: self.read(reader, "memory://active-context"),
            "resource operation": lambda: self.read(reader, "memory://operations/ship"),
            "prompt": lambda: self.rpc(reader, "prompts/get", name := pick(("resume", "handoff", "review")), name=name),
            "by a variant": lambda: post(reader, "memory/search", below="/variants/plain", query=about, limit=50).text,
            "review inbox": lambda: post(decider, "review/inbox").text,
            "review sides": lambda: post(decider, "review/sides", id=target.id).text,
            "review challenge": lambda: post(decider, "review/challenge").text,
            "review accept": lambda: post(decider, "review/accept", id=target.id, seen=[]).text,
            "discover": lambda: self.rpc(reader, "server/discover", ""),
            "export": lambda: "\n".join(
                export_lines(self.asking(reader), self.core.data_dir, versions=True, own_project=False)
            ),
            "command": lambda: self.command(
                reader, pick(("list", "inbox", "stats", "due", "profile", "lorebook_list"))
            ),
            "reports": lambda: self.command(reader, "context_reports"),
        }
        door = pick(list(doors))
        answer = doors[door]()
        reader = decider if door.startswith(("review", "key")) else reader
        self.doors[door] += 1
        assert "Traceback" not in answer and '"code":"failure"' not in answer, (door, reader, answer[:300])
        sent = {about} if MARK.fullmatch(about) else set()
        leaks = [mark for mark in set(MARK.findall(answer)) - sent if not self.is_for(reader, mark)]
        leaks += [
            id_ for id_, kept in self.by_id.items() if id_ in answer and not may(reader, kept) and id_ != target.id
        ]
        keys = [id_ for id_, account in self.key_ids.items() if id_ in answer and account != reader.account]
        leaks += [f"key {id_}" for id_ in keys if id_ != foreign_key]
        accounts = set(re.findall(r'account\\?":\s?\\?"([^"\\]+)', answer))
        leaks += [f"account {name}" for name in accounts - {reader.account}]
        assert not leaks, (door, reader, leaks[:3], answer[:300])

    def is_for(self, reader: Reader, mark: str) -> bool:
        if mark in (RULES, HOW_TO):
            return reader.account == OWN
        return reader.account == OWN if mark == BOOK else mark in self.kept and may(reader, self.kept[mark])

    def read(self, reader: Reader, uri: str) -> str:
        return self.rpc(reader, "resources/read", uri, uri=uri)

    def asking(self, reader: Reader) -> Callable[..., dict[str, Any]]:
        scope = Scope(reader.account, "", reader.user, reader.agent, reader.talk)
        anchor = self.core.anchor(Actor(scope=scope, project=reader.project))

        def ask(name: str, **given: Any) -> dict[str, Any]:
            return calls.answer(name, anchor, {key: value for key, value in given.items() if value is not None})

        return ask

    def command(self, reader: Reader, name: str) -> str:
        try:
            return json.dumps(self.asking(reader)(name), default=str, separators=(",", ":"))
        except MemoryAnchorError as error:
            return str(error)

    def close(self) -> None:
        self.served.close()
        self.issuer.close()
        self.core.close()


def _base64(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


def fuzzed(folder: Path, approve: Any, *, calls_made: int, **size: int) -> Counter[str]:
    world = Tenants(folder, approve=approve, **size)
    try:
        for _ in range(calls_made):
            world.call()
        untouched = {one.id for one in world.kept.values() if one.visibility != "account"}
        archived = [
            one.id
            for layer in ("event_log", "verified_fact")
            for one in world.core.services.store.find(layer, Where(), limit=10_000)
            if one.id in untouched and one.state == "archived"
        ]
        assert archived == []
    finally:
        world.close()
    return world.doors


def test_no_door_of_the_service_tells_another_accounts_memory(tmp_path: Path, approve: Any) -> None:
    """Issue 17, isolation: 4 accounts x 2 users, random calls through all doors, 0 foreign bytes."""
    doors = fuzzed(tmp_path, approve, calls_made=90, accounts=4, users=2, memories=24, seed=1)

    assert len(doors) >= 28


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_calls_of_twenty_accounts_tell_nothing_foreign(
    tmp_path: Path, approve: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Issue 17, isolation: 20 accounts x 5 users, 10,000 random calls, every door, 0 foreign bytes."""
    made = figure(200, 10_000)
    doors = fuzzed(tmp_path, approve, calls_made=made, accounts=20, users=5, memories=figure(150, 600), seed=2026)
    with capsys.disabled():
        print(f"\n{sum(doors.values())} calls through {len(doors)} doors of 100 people in 20 accounts: 0 foreign")


def test_another_account_that_names_our_project_gets_none_of_its_rules(tmp_path: Path, approve: Any) -> None:
    """Attack: ids of projects are names; `project_id` of the server's own project, from another account."""
    world = Tenants(tmp_path, approve=approve, accounts=2, users=1, memories=0, seed=3)
    try:
        for account in world.accounts:
            reader = Reader(world.people[account, "me"], account, "me", world.own_project, "codex", "one")
            answers = [
                world.tool(reader, "get_constitution"),
                world.read(reader, "memory://constitution"),
                world.post(reader, "context", messages=[], task="deploys").text,
                world.rpc(reader, "server/discover", ""),
            ]
            assert [RULES in one for one in answers] == [account == OWN] * 4, (account, answers)
            assert BOOK not in answers[2] or account == OWN
    finally:
        world.close()
