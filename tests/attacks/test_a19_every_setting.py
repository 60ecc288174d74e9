"""Attack A19, every setting: with all that writes or sends switched on, no file and no wire has a secret."""

from __future__ import annotations

import base64
import json
import logging
import tarfile
import time
import typing
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import disk
import pytest
from answering import Answering
from devicekit import Laptop, settled, texts_of
from faultyproxy import FaultyProxy
from pydantic import BaseModel
from serving import Served, bearer, key_for

from memory_anchor.admin import backup
from memory_anchor.domain.errors import MemoryAnchorError
from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.extensions.knowledge.use_cases import knowledge_of
from memory_anchor.extensions.prompts.assembly import assemble
from memory_anchor.extensions.service.http_api import build_http
from memory_anchor.extensions.service.remote import RemoteLink
from memory_anchor.front.table import ROWS
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.process.app import build_core
from memory_anchor.runtime import cleanlog, spool, wire
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.testing import HashEmbedder, ManualClock, ephemeral_core
from memory_anchor.use_cases.memory import MemoryAnchor

SECRET = "ghp_" + "Zq7Xv2Lm9Tr4Wy6Kp1Nd8Bs3Hf5Jc0Ga7Ue"
PRIVATE = "the zanzibar cellar"
SAID = f"<private>it is in {PRIVATE}</private> the deploy token is {SECRET}"
CODED = base64.b64encode(f"# Deploys\n\nNo word of it. {SAID}".encode()).decode()
SIGNS = [sign.encode() for sign in (SECRET[4:24], SECRET[-16:], "zanzibar", CODED[60:90])]
WIDTH = 8

WRITES: dict[str, Any] = {
    "embedder": {"kind": "openai", "model": "m", "dimensions": WIDTH, "api_key": "k", "base_url": "{embedder}"},
    "llm": {"kind": "anthropic", "model": "m", "api_key": "k", "base_url": "{model}", "deadline_s": 5},
    "retrieval": {"reranker": "llm", "lens": 0.5},
    "variants": {"b": {"retrieval": {"priors": False}}},
    "conflicts": {"policy": {"fact": "merge"}},
    "agents": {"codex": {"collection": "", "extraction": {"mode": "factual", "trigger": "per-turn", "min_turns": 1}}},
    "backup": {"every_h": 1, "keep": 2},
    "http": {"port": 0, "requests_per_minute": 100_000},
    "remote": {"url": "{remote}", "key": "{key}", "project": "", "connect_s": 1, "search_s": 2, "write_s": 2},
}
"""Every setting by which something is written or sent, as it is set here."""
QUIET = {
    "where the same is written, or whose it is": "data_dir project_dir database.url index.kind index.url index.path "
    "scope.account scope.user scope.agent scope.project scope.agent_across_projects",
    "how the same is written": "index.timeout_s index.shard_number index.replication_factor index.exact store.sync "
    "index.write_consistency_factor index.quantization store.reserve_mb store.sync_ms agents.extraction.perspective",
    "another model at the same door": "llm.command llm.runs_a_day agents.extraction.model",
    "said by the user, and only read": "index.api_key index.ca_file embedder.model_path embedder.query_prompt "
    "embedder.document_prompt agents.extraction.prompt_template retrieval.reranker_path http.tokens http.tls_cert "
    "http.tls_key http.host http.jwt.issuer http.jwt.audience http.jwt.jwks_url http.jwt.account http.jwt.role "
    "variants.retrieval.reranker_path http.jwt.account_claim http.jwt.user_claim http.jwt.role_claim",
    "less is written": "sessions.keep read_only paused agents.enabled agents.extraction.active collections.usage "
    "engine.idle_exit_s "
    "llm.monthly_tokens",
    "how much, how often, in which order": "profile answers http.at_once http.jwt.leeway_s retrieval.priors "
    "retrieval.conversation retrieval.fold_duplicates retrieval.weights retrieval.reranker_deadline_s "
    "retrieval.cache_ttl_s constitution.min_interval_s constitution.distinct_approvers",
}
"""Why a setting writes and sends nothing of its own -> settings."""
BOUNDS = ("budget.", "gate.", "lifecycle.", "lorebook.", "agents.lifecycle.", "agents.retrieval.", "variants.")
"""Groups of numbers and switches that choose among what is written already; no text is among them."""


def leaves(model: type[BaseModel], chosen: Any = None, prefix: str = "") -> Iterator[tuple[str, Any, bool]]:
    """Yield the dotted name and the type of every setting, and whether it is chosen; a map of groups is its group."""
    for name, field in model.model_fields.items():
        kinds = (field.annotation, *typing.get_args(field.annotation))
        group = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        value = (chosen or {}).get(name)
        if group is None:
            yield f"{prefix}{name}", field.annotation, name in (chosen or {})
        elif group is field.annotation:
            yield from leaves(group, value, f"{prefix}{name}.")
        else:
            yield from leaves(group, next(iter(value.values())) if value else None, f"{prefix}{name}.")


def test_every_setting_is_switched_on_here_or_writes_nothing() -> None:
    """Attack A19: a new setting is exercised below, or somebody says why it need not be."""
    quiet = {name for names in QUIET.values() for name in names.split()}
    every = list(leaves(Settings, WRITES))
    unsaid = {
        name
        for name, kind, is_on in every
        if not is_on and name not in quiet and not (name.startswith(BOUNDS) and kind is not str)
    }
    assert unsaid == set()
    assert quiet - {name for name, _, _ in every} == set()
    Settings.model_validate(WRITES)


class Wire:
    """A server that answers anything well and keeps every byte that it was sent."""

    def __init__(self) -> None:
        self.taken = bytearray()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                outer.taken += str(self.headers).encode() + self.path.encode() + body
                answer = json.dumps(outer.answer(json.loads(body))).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                return

        self._server = Answering(Handler)
        self.url = self._server.url

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        if "input" in body:
            rows = [[float(len(text) % 7), *range(1, WIDTH)] for text in body["input"]]
            return {"data": [{"index": place, "embedding": row} for place, row in enumerate(rows)]}
        if "tools" in body:
            schema = body["tools"][0]["input_schema"]
            block = {"type": "tool_use", "id": "t", "name": body["tools"][0]["name"], "input": example(schema, schema)}
            usage = {"input_tokens": 9, "output_tokens": 9}
            head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use"}
            return {**head, "content": [block], "stop_sequence": None, "usage": usage}
        return {}

    def close(self) -> None:
        self._server.close()


def example(schema: dict[str, Any], whole: dict[str, Any]) -> Any:
    """Return a value that fits a JSON Schema."""
    if "$ref" in schema:
        return example(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    if "anyOf" in schema:
        return example(schema["anyOf"][0], whole)
    if "enum" in schema or "const" in schema:
        return schema.get("const", (schema.get("enum") or [None])[0])
    match schema.get("type"):
        case "object":
            return {name: example(inner, whole) for name, inner in schema.get("properties", {}).items()}
        case "array":
            return [example(schema["items"], whole)] if schema.get("minItems") else []
        case "string":
            return "fine"
        case "boolean":
            return False
    return schema.get("minimum", 0)


def filled(value: Any, places: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: filled(inner, places) for name, inner in value.items()}
    return places.get(value[1:-1], value) if isinstance(value, str) and value.startswith("{") else value


@pytest.fixture
def wires() -> Iterator[dict[str, Wire]]:
    made = {name: Wire() for name in ("embedder", "model")}
    yield made
    for one in made.values():
        one.close()


class World:
    """A memory with every writing setting, a served memory behind a proxy, a second device, and a log at DEBUG."""

    def __init__(self, home: Path, wires: dict[str, Wire]) -> None:
        self.home, self.wires = home, wires
        self.server = ephemeral_core(home / "server" / "data", clock=ManualClock())
        self.server_served = Served(build_http(self.server, self.server.settings))
        self.proxy = FaultyProxy(self.server_served.port)
        places = {name: one.url for name, one in wires.items()}
        places |= {"remote": self.proxy.url, "key": key_for(self.server, "acme", user="me", project="app")[0]}
        places["embedder"] += "/v1"
        self.data = home / "laptop" / "data"
        self.lock = DirectoryLock.acquire(self.data, role="test")
        settings = Settings.model_validate(filled(WRITES, places))
        self.clock = ManualClock()
        self.core = build_core(settings, data_dir=self.data, clock=self.clock, lock=self.lock, local=HashEmbedder())
        self.served = Served(build_http(self.core, settings))
        self.key = key_for(self.core, "local", user="me")[0]
        self.project = home / "project"
        (self.project / "docs").mkdir(parents=True)
        self.log = logging.FileHandler(self.data / "debug.log")
        self.log.setFormatter(cleanlog.CleanFormatter("%(levelname)s %(name)s %(message)s"))
        root = logging.getLogger()
        self.level = root.level
        root.addHandler(self.log)
        root.setLevel(logging.DEBUG)
        scope = Scope(agent="codex", conversation="c1")
        self.actor = Actor(Caller.AGENT, scope, client="codex", project_dir=str(self.project), nonce="n0")

    @property
    def anchor(self) -> MemoryAnchor:
        """Return the door for a new request of the agent, which is recognised when it is sent again."""
        from dataclasses import replace

        self.actor = replace(self.actor, nonce=f"n{int(self.actor.nonce[1:]) + 1}")
        return self.core.anchor(self.actor)

    def close(self) -> None:
        logging.getLogger().setLevel(self.level)
        logging.getLogger().removeHandler(self.log)
        self.log.close()
        for one in (self.served, self.server_served, self.proxy):
            one.close()
        assert self.core.services.remote is not None
        self.core.services.remote.close()
        self.core.close()
        self.server.close()
        self.lock.release()

    def held(self) -> Iterator[tuple[str, bytes]]:
        """Yield everything that was written or sent, by name; archives member by member."""
        for path in disk.files(self.home / "laptop", self.home / "server", self.home / "other"):
            yield str(path), disk.content(path)
            if "backups" in path.parts and tarfile.is_tarfile(path):
                with tarfile.open(path) as archive:
                    for member in archive:
                        if (file := archive.extractfile(member)) is not None:
                            yield f"{path}/{member.name}", file.read()
        yield "wire of the served memory", bytes(self.proxy.asked)
        yield from ((f"wire of {name}", bytes(one.taken)) for name, one in self.wires.items())

    def leaks(self) -> list[str]:
        return [
            f"{name}: {content[max(0, content.find(sign) - 60) : content.find(sign) + 40]!r}"
            for name, content in self.held()
            for sign in SIGNS
            if sign in content
        ]


@pytest.fixture
def world(tmp_path: Path, wires: dict[str, Wire], monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setitem(RemoteLink.__init__.__kwdefaults__, "open_for_s", 0.05)
    made = World(tmp_path, wires)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "laptop"))
    yield made
    made.close()


def refused(act: Any, *given: Any, **more: Any) -> None:
    """Do what may be refused; what a refusal says has no secret."""
    try:
        act(*given, **more)
    except MemoryAnchorError as error:
        assert not any(sign.decode() in str(error) for sign in SIGNS), error


PATHS = {"file"}
"""Where the caller has something written: a file gets the name that it is given."""


def through_every_request(world: World) -> None:
    """Say the secret in every field of every request of the table; a name that is looked up may be told back."""
    for row in ROWS.values():
        required = dict.fromkeys(row.request.required(), "x")
        for name in row.request.model_fields.keys() - PATHS:
            for value in (SAID, [SAID], {"note": SAID}, [{"role": "user", "content": SAID}]):
                with suppress(MemoryAnchorError):
                    row.answer(world.anchor, row.request.read({**required, name: value}, "it"))


def through_each_layer(world: World) -> None:
    anchor = world.anchor
    fact = anchor.save_memory(
        f"Deploys go through staging; {SAID}", key=SAID, tags=[SECRET, "deploy"], files=[f"docs/{SECRET}"]
    )
    world.anchor.save_memory(f"Deploys do not go through staging any more; {SAID}", request_id=SECRET, author=SAID)
    world.anchor.save_memory(f"Deploys go through staging twice; {SAID}", replaces=fact.id, source="extracted")
    event = world.anchor.log_event(f"The mirror moved; {SAID}", where=SAID, who=[SAID], ttl_days=1)
    world.anchor.promote(event.id, content=f"The mirror stands in rack nine; {SAID}")
    refused(world.anchor.curation.edit, fact.id, content=f"Deploys go through staging first; {SAID}")
    refused(
        world.anchor.curation.judge, fact.id, epistemic="verified", shown_by=f"https://ci.example/run?token={SECRET}"
    )
    world.anchor.set_active("current_topic", {"token": SECRET, "nested": [SAID], SAID: 1})
    world.anchor.search(f"how do deploys go; {SAID}", tags=[SECRET])
    world.anchor.search_events(query=SAID, where=SAID, who=[SAID])
    world.anchor.build_context(f"move the mirror; {SAID}")
    assemble(world.anchor, messages=[{"role": "user", "content": SAID}], task=SAID)
    world.anchor.why_not(fact.id, query=SAID)
    refused(world.anchor.propose, content=f"Never print it: {SAID}", reason=SAID)
    messages = [
        {"role": "user", "content": f"Remember: the staging mirror is in rack nine. {SAID}"},
        {"role": "assistant", "content": "Noted.", "tool_calls": [{"name": "Bash", "arguments": {"command": SAID}}]},
    ]
    world.anchor.remember_conversation(messages)
    world.anchor.end_session(f"We moved the mirror; {SAID}")
    world.anchor.forget(event.id, reason=SAID)
    refused(world.anchor.forget, f"unknown {SECRET}")
    refused(world.anchor.maintenance.preview_purge, text=SECRET)


def through_knowledge(world: World) -> None:
    (world.project / "docs" / "deploy.md").write_text(f"# Deploys\n\nRun the pipeline. {SAID}\n")
    (world.project / "docs" / "late.md").write_text("# Later\n\n" + "Nothing here.\n" * 700 + SAID)
    knowledge_of(world.anchor).add(str(world.project / "docs"), kind="files")
    knowledge_of(world.anchor).push(name="notes.md", text=f"# Notes\n\n{SAID}")
    knowledge_of(world.anchor).push(name="coded.md", base64=CODED)
    knowledge_of(world.anchor).push(name=f"https://wiki.example/page?token={SECRET}", text=f"<p>{SAID}</p>")
    refused(knowledge_of(world.anchor).push, name="broken.bin", base64=SAID)
    for _ in range(5):
        knowledge_of(world.anchor).sync(embed=True)
    for passage in knowledge_of(world.anchor).search(f"deploys {SAID}"):
        refused(knowledge_of(world.anchor).open, passage.id)


def through_hooks(world: World) -> None:
    talk = world.home / "talk.jsonl"
    lines = [("user", f"Remember: we ship on Mondays. {SAID}"), ("assistant", f"Noted: {SAID}")]
    talk.write_text(
        "\n".join(
            json.dumps({"type": who, "uuid": f"u{n}", "sessionId": "c1", "message": {"role": who, "content": words}})
            for n, (who, words) in enumerate(lines)
        )
    )
    hooks = Hooks()
    long = "We moved the mirror. " * 390 + f"<private>{PRIVATE} " + "x" * 400 + f" {PRIVATE}</private> done. "
    payload = {"transcript_path": str(talk), "prompt": SAID, "compact_summary": long + SAID, "source": SECRET}
    payload |= {"tool_input": {"command": SAID, "file_path": SECRET}, "tool_response": {"stderr": SAID, "exit_code": 1}}
    for event in (
        *("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "PreCompact"),
        *("PostCompact", "Stop", "SessionEnd", "Statusline"),
    ):
        refused(hooks.answer, world.anchor, event, payload)
        refused(hooks.in_background, world.anchor, event, payload)
        spool.keep(str(world.data), wire.Preamble(conversation="c1"), event, {**payload, "summary": SAID})
    spool.keep(str(world.data), wire.Preamble(), SECRET, {"transcript_path": f"/tmp/{SECRET}", "summary": SAID})


def through_http(world: World) -> None:
    head = bearer(world.key, **{"x-request-id": SECRET, "traceparent": SECRET})
    items = [
        {"kind": "memory", "content": f"Batches are read at night; {SAID}", "tags": [SECRET]},
        {"kind": "event", "content": f"A batch came; {SAID}", "where": SAID},
        {"kind": "document", "name": "b.md", "text": SAID},
        {"kind": "document", "name": "c.md", "base64": CODED},
        {"kind": "conversation", "messages": [{"role": "user", "content": f"I like tea. {SAID}"}]},
    ]
    for path, body in (
        ("memory/store", {"content": f"Served deploys wait; {SAID}", "request_id": SECRET}),
        ("memory/search", {"query": SAID}),
        ("memory/store", {"content": SAID, SECRET: SAID}),
        ("memory/log", {"content": "x", "when": SAID}),
        ("memory/forget", {"id": SECRET, "reason": SAID}),
        ("context", {"task": SAID}),
        (f"ingest/{SECRET}", {}),
        (SECRET, {"x": SAID}),
        ("ingest", {"items": items, "request_id": SECRET}),
        ("ingest", {"items": [*items, {"kind": SECRET}]}),
    ):
        answer = world.served.ask("POST", f"/v1/{path}?token={SECRET}", headers=head, json=body)
        assert SECRET in path or not any(sign in answer.content for sign in SIGNS), answer.text
    world.served.ask("POST", f"/v1/memory/store?x={SECRET}", headers=head, content=b"{" + SAID.encode())
    other = {**head, "X-KM-Variant": SECRET, "Authorization": f"Bearer {SECRET}", "Host": SECRET}
    for name, value in other.items():
        world.served.ask("POST", "/v1/memory/search", headers={**head, name: value}, json={"query": "tea"})


def through_jobs(world: World) -> None:
    world.clock.advance(days=3)
    for job in world.core.scheduler.jobs:
        refused(world.anchor.maintenance.run_job, job)
    backup.create(world.core, world.data / "backups")
    log = logging.getLogger("memory_anchor.anything")
    log.debug("said %s", SAID)
    with suppress(ValueError):
        try:
            raise ValueError(SAID)
        except ValueError:
            log.exception("failed")
            raise


@pytest.mark.timeout(300)
def test_no_file_and_no_wire_has_a_secret_with_every_setting_that_writes(world: World, no_sync: None) -> None:
    """Rule safety.door: every door, every layer, every job, twice: the served memory away, then there."""
    doors = (through_each_layer, through_knowledge, through_hooks, through_http, through_jobs, through_every_request)
    world.proxy.fault = lambda: "refuse"
    for door in doors:
        door(world)
        assert (door.__name__, world.leaks()) == (door.__name__, [])
    remote = world.core.services.remote
    assert remote is not None and remote.outbox.waiting() > 3
    world.proxy.fault = lambda: "pass"
    world.clock.advance(minutes=5)
    for door in doors[:1]:
        door(world)
    until = time.monotonic() + 30
    while remote.outbox.waiting() and time.monotonic() < until:
        remote.send_waiting()
        time.sleep(0.05)
    assert (remote.outbox.waiting(), remote.outbox.refused()) == (0, 0)
    one, other = Laptop(world.data, world.clock, core=world.core), Laptop(world.home / "other", ManualClock())
    folder = world.home / "laptop" / "folder"
    folder.mkdir()
    for device, name in ((one, "laptop"), (other, "desktop")):
        device.join(folder, name)
    settled([one, other])

    assert world.leaks() == []
    everything = json.dumps(
        [sorted(map(sorted, texts_of(core).values())) for core in (world.core, other.core, world.server)]
    )
    assert "Deploys go through staging" in everything
    assert not any(sign.decode() in everything for sign in SIGNS)
    assert any("memories" in name for name, _ in world.held() if "/backups/" in name)
    names = [name for name, _ in world.held()]
    for part in ("/outbox", "/audit", "/spool", "/ingest", "/knowledge", "debug.log", "/store", "/backups/", "/sync"):
        assert any(part in name for name in names), part
    sent = dict(world.held())
    for wired, word in (
        ("embedder", b"staging"),
        ("model", b"mirror"),
        ("the served memory", b"staging"),
    ):
        assert word in sent[f"wire of {wired}"], wired
    other.close()
