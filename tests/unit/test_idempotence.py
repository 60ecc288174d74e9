"""Promise 1: every write, sent twice, at once or after a kill, has one effect and gets its first answer.

The table names every write tool and every call; one that is missing fails the first test here.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cases import words
from stores import records_in
from threads import at_once

from memory_anchor.adapters.payload import to_payload
from memory_anchor.base.idempotency import FOLDER, KEPT, SLACK, FirstAnswers
from memory_anchor.domain.errors import BadInput, NotFound
from memory_anchor.domain.model import COLLECTIONS, RECEIPTS_KEPT, Actor, Caller
from memory_anchor.domain.where import Where
from memory_anchor.extensions.knowledge.use_cases import knowledge_of
from memory_anchor.front import calls, mcp_answers
from memory_anchor.front.table import ROWS
from memory_anchor.process.wiring import Core
from memory_anchor.runtime import wire
from memory_anchor.settings import Settings
from memory_anchor.store.database import Sqlite
from memory_anchor.store.record_rows import SqlRecords
from memory_anchor.testing import ManualClock, ephemeral_core
from memory_anchor.use_cases.memory import MemoryAnchor

Prepare = Callable[[MemoryAnchor], dict[str, Any]]


def fact(anchor: MemoryAnchor, content: str = "The API listens on port 8080") -> str:
    return str(anchor.save_memory(content, confidence=0.95).id)


def event(anchor: MemoryAnchor) -> str:
    return str(anchor.log_event("CI failed on main because of a missing wheel").id)


def archived(anchor: MemoryAnchor) -> str:
    name = fact(anchor)
    anchor.forget(name)
    return name


def pinned(anchor: MemoryAnchor) -> str:
    name = fact(anchor)
    human = MemoryAnchor(anchor.services, anchor.project, replace(anchor.actor, caller=Caller.HUMAN), anchor._context)
    human.curation.pin(name)
    return name


def disputed(anchor: MemoryAnchor) -> str:
    fact(anchor, "The API listens on port 8080")
    done = anchor.save_memory("The API listens on port 9090", confidence=0.95)
    assert done.outcome.value == "needs_review", done
    return str(done.id)


def exported_elsewhere(anchor: MemoryAnchor) -> list[list[Any]]:
    """Return lines of an export: a memory in two versions that is not here, one that is, and a foreign line."""
    here, gone = fact(anchor), fact(anchor, "The queue holds 500 jobs")
    anchor.curation.edit(gone, "The queue holds 900 jobs")
    store = anchor.services.store
    lines = [
        json.dumps(to_payload(e.memory)) for e in store.scan("verified_fact", Where(), page=99)[0]
        if e.memory.id in (here, gone)
    ]  # fmt: skip
    away = "0123456789ABC"
    return [[n, line.replace(gone, away)] for n, line in enumerate([*lines, '{"content": "Ports are even"}'], 1)]


def in_mind(anchor: MemoryAnchor) -> dict[str, Any]:
    anchor.set_active("topic", "the empty query bug")
    return {"summary": "We fixed the empty query"}


def pushed(anchor: MemoryAnchor) -> str:
    done = knowledge_of(anchor).push("port.md", "# Ports\n\nThe API listens on port 8080.")
    return str(done.id)


BOOK = base64.b64encode(b'{"name": "world", "entries": [{"keys": ["port"], "content": "Ports are even."}]}').decode()
TALK = [
    {"role": "user", "content": "We decided to use Postgres for the job queue."},
    {"role": "assistant", "content": "Understood, Postgres it is."},
]
TOOLS: dict[str, Prepare] = {
    "save_memory": lambda _: {"content": "We use Redis for the cache", "confidence": 0.95},
    "log_event": lambda _: {"content": "Deployed version 2"},
    "promote_to_fact": lambda a: {"event_id": event(a), "content": "Wheels are built before main is tested"},
    "propose_constitution_change": lambda _: {"content": "Always run the tests", "reason": "They caught a bug"},
    "forget_memory": lambda a: {"id": fact(a), "reason": "no longer true"},
    "set_active_context": lambda _: {"key": "topic", "value": {"a": 1}},
    "end_session": in_mind,
    "remember_conversation": lambda _: {"messages": TALK},
    "resolve_conflict": lambda a: {"id": disputed(a), "resolution": "keep_new"},
}
"""Write tool -> what it is asked, after what must be there first."""
CALLS: dict[str, Prepare] = {
    "add": TOOLS["save_memory"],
    "log": TOOLS["log_event"],
    "promote": lambda a: {"event_id": event(a)},
    "forget": TOOLS["forget_memory"],
    "edit": lambda a: {"id": fact(a), "content": "The API listens on port 7070"},
    "judge": lambda a: {"id": fact(a), "epistemic": "verified", "shown_by": "make test"},
    "restore": lambda a: {"id": archived(a)},
    "settle": lambda a: {"id": disputed(a), "resolution": "keep_old"},
    "extract": lambda _: {"messages": TALK, "apply": True},
    "remember": TOOLS["remember_conversation"],
    "undo": lambda a: {"what": "last", "apply": True} if fact(a) else {},
    "import_lines": lambda a: {"lines": exported_elsewhere(a)},
    "backup_create": lambda a: {"file": str(a.services.data_dir.parent / "b.tar.gz")},
    "jobs_run": lambda a: {"name": "expire_events"} if event(a) else {},
    "knowledge_push": lambda _: {"name": "port.md", "text": "# Ports\n\nThe API listens on port 8080."},
    "knowledge_remove": lambda a: {"source": pushed(a)},
    "lorebook_add": lambda _: {"file": "world.json", "content": BOOK},
    "due": lambda a: {"done": fact(a, "TODO until 2031-01-01: renew the certificate")},
}
WRITES_ELSEWISE = {
    "pin", "unpin", "accept", "reject", "purge", "purge_preview", "pause", "jobs_switch", "import_projects", "reindex",
    "sync_now", "sync_reached", "sync_signed", "knowledge_add", "knowledge_sync", "lorebook_remove", "lorebook_scan",
    "doctor_probe", "export_begin", "export_page", "assemble", "context", "projects_link", "projects_merge",
}  # fmt: skip
"""A human's (each signature is for one challenge), or the same however often they run; a repeat in one engine is told
what the first was told."""
A_MOMENT_S, A_LONG_TIME_S = 0.3, 20.0
ANSWERED, WRITTEN = "after the answer was kept", "after the last write"
"""When a kill comes."""
JUDGED_ANEW = {"jobs_run"}
"""Killed between its last write and its answer, a job finds less to do: what it did stays done once."""
GONE = {"knowledge_remove"}
"""Killed there, the repeat is told that there is no such source any more."""


@pytest.fixture
def core(tmp_path: Path, clock: ManualClock) -> Iterator[Core]:
    """Return a memory whose settings let agents settle contradictions of facts."""
    settings = Settings.model_validate({"conflicts": {"policy": {"fact": "merge"}}})
    made = ephemeral_core(tmp_path / "core", clock=clock, settings=settings)
    yield made
    made.close()


@pytest.fixture
def resent(core: Core, agent: Actor) -> MemoryAnchor:
    return core.anchor(replace(agent, nonce="bridge-1/7"))


def stored(core: Core) -> list[tuple[Any, ...]]:
    """Return every version there is, without what use changes."""
    return sorted(
        (name, memory.id, memory.version, memory.status.value, memory.content, memory.pinned)
        for name in COLLECTIONS
        for entry in core.services.store.scan(name, Where(), page=1000)[0]
        for memory in (entry.memory,)
    )


def killed(core: Core, when: str = "", answer: object = None) -> None:
    """Forget what only this process knows; WRITTEN: and the answer, which was not kept yet."""
    core.services.answers._answers.clear()
    if when == WRITTEN:
        for listed in core.records.listed(FOLDER):
            stored = core.records.read(listed.name)
            if stored is not None and json.loads(stored.content) == answer:
                core.records.delete(listed.name, before=None)


def test_every_write_has_a_row() -> None:
    """Promise 1: a new write without a row here fails."""
    assert set(TOOLS) == set(mcp_answers.WRITE_TOOLS)
    reads = {
        *words("""
        search ask_golden list show history events stats saving constitution operations inbox jobs_list
        projects_list why_not context_report context_reports sides profile knowledge_search knowledge_get
        knowledge_sources lorebook_list lorebook_show sync_status sync_unsigned
        variants sessions_search sessions_show sessions_list sessions_handoff hook_preview hook_log context_costs get
    """)
    }
    known = reads | set(CALLS) | WRITES_ELSEWISE
    assert set(ROWS) - calls.TOOLS_ALONE <= known


@pytest.mark.parametrize("kill", ["", ANSWERED, WRITTEN])
@pytest.mark.parametrize("name", sorted(TOOLS))
def test_a_tool_called_again_gets_its_first_answer(
    core: Core, agent: Actor, resent: MemoryAnchor, name: str, kill: str
) -> None:
    """Promise 1: same nonce, one effect, the first answer; receipts hold it over a kill."""
    given = TOOLS[name](core.anchor(agent))
    first = mcp_answers.run(resent, name, given)
    before = stored(core)
    core.anchor(agent).set_active("later", "something new in mind")
    if kill:
        killed(core, kill, first)
    again = mcp_answers.run(core.anchor(replace(agent, nonce="bridge-1/7")), name, given)
    assert stored(core) == before
    assert comparable(again) == comparable(first)
    assert "later" in core.anchor(agent).active()


def comparable(answer: str) -> Any:
    """Return an answer without the texts of similar memories, which receipts do not keep (they may be purged)."""
    parsed = json.loads(answer)
    for outcome in [parsed, *parsed.get("outcomes", ())] if isinstance(parsed, dict) else parsed:
        outcome.pop("similar", None)
    return parsed


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_a_tool_called_many_times_at_once_has_one_effect(
    core: Core, agent: Actor, resent: MemoryAnchor, name: str
) -> None:
    """Promise 1: concurrent sendings of one request wait for the first."""
    given = TOOLS[name](core.anchor(agent))
    before = stored(core)
    answers: list[str] = []
    at_once(*(lambda: answers.append(mcp_answers.run(resent, name, given)) for _ in range(4)))
    assert len(answers) == 4 and len(set(answers)) == 1
    once = stored(core)
    mcp_answers.run(resent, name, given)
    assert stored(core) == once
    assert len(once) - len(before) <= 3, "the versions that one such write makes"


@pytest.mark.parametrize("kill", ["", ANSWERED, WRITTEN])
@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_call_sent_again_gets_its_first_answer(core: Core, agent: Actor, project: Path, name: str, kill: str) -> None:
    """Promise 1: a command sends its call once more when the engine ends over it."""
    caller = wire.Preamble(project_dir=str(project), client="claude-code", conversation="conversation-1", nonce="n1")
    given = CALLS[name](core.anchor(agent))
    first = calls.run(core, caller, name, given)
    before = stored(core)
    if kill:
        killed(core, kill, first)
    if kill == WRITTEN and name in GONE:
        with pytest.raises(NotFound):
            calls.run(core, caller, name, given)
        return
    again = calls.run(core, caller, name, given)
    assert stored(core) == before
    if kill == WRITTEN and name in JUDGED_ANEW:
        return
    assert comparable(json.dumps(again)) == comparable(json.dumps(first))


def test_the_same_nonce_for_something_else_is_another_request(core: Core, resent: MemoryAnchor) -> None:
    """Promise 1: an agent that counts its ids from 1 again loses nothing."""
    one = json.loads(mcp_answers.run(resent, "log_event", {"content": "first"}))
    other = json.loads(mcp_answers.run(resent, "log_event", {"content": "second"}))
    assert one["id"] != other["id"]
    edited = fact(resent)
    resent.curation.edit(edited, "The API listens on port 1")
    assert resent.curation.edit(edited, "The API listens on port 2").outcome.value == "updated"
    assert resent.get(edited).content == "The API listens on port 2"


@pytest.fixture
def strangers(core: Core, agent: Actor, tmp_path: Path) -> Iterator[list[MemoryAnchor]]:
    """Callers that differ from the agent in one thing that a request id is scoped to."""
    (tmp_path / "elsewhere").mkdir()
    yield [
        core.anchor(replace(agent, client="codex", scope=replace(agent.scope, agent="codex"))),
        core.anchor(replace(agent, scope=replace(agent.scope, conversation="conversation-2"))),
        core.anchor(replace(agent, project_dir=str(tmp_path / "elsewhere"))),
        core.anchor(replace(agent, scope=replace(agent.scope, account="other"))),
    ]


def test_a_request_id_is_its_clients_and_conversations_own(anchor: MemoryAnchor, strangers: list[MemoryAnchor]) -> None:
    """Promise 1 (mutation: the request key without client and conversation): no id of another's memory is told."""
    mine = anchor.log_event("we deployed", request_id="r1")
    assert anchor.log_event("we deployed", request_id="r1").id == mine.id
    with pytest.raises(BadInput, match="used before with other content"):
        anchor.log_event("we rolled back", request_id="r1")
    ids = {mine.id, *(other.log_event("we deployed", request_id="r1").id for other in strangers)}
    assert len(ids) == 1 + len(strangers)


def test_receipts_of_many_requests_and_over_revisions_are_kept(
    core: Core, anchor: MemoryAnchor, clock: ManualClock
) -> None:
    """Promise 1 (mutations: only the last receipt kept; a job's revision drops receipts)."""
    first = [anchor.save_memory("We use Redis", confidence=0.95, request_id=f"r{n}") for n in range(RECEIPTS_KEPT)]
    assert {outcome.id for outcome in first} == {first[0].id}
    anchor.curation.edit(first[0].id, "We use Redis 7")
    clock.advance(days=40)
    for job in core.scheduler.jobs:
        calls.run(core, wire.Preamble(), "jobs_run", {"name": job})
    again = [anchor.save_memory("We use Redis", confidence=0.95, request_id=f"r{n}") for n in range(RECEIPTS_KEPT)]
    assert [(outcome.id, outcome.outcome) for outcome in again] == [(outcome.id, outcome.outcome) for outcome in first]


def test_a_write_of_another_kind_keeps_the_answers_given_before(core: Core, agent: Actor, anchor: MemoryAnchor) -> None:
    """Promise 1 (mutation: only the last receipt kept): saved, then edited, then the first sending comes once more."""
    first = anchor.save_memory("We use Redis", confidence=0.95, request_id="r1")
    core.anchor(replace(agent, nonce="bridge-1/8")).curation.edit(first.id, "We use Redis 7")
    killed(core)
    assert anchor.save_memory("We use Redis", confidence=0.95, request_id="r1") == first


@pytest.mark.parametrize("pinned", [True, False])
def test_a_pin_set_or_taken_off_twice_gets_its_first_answer(core: Core, agent: Actor, pinned: bool) -> None:
    """Promise 1 (mutation: no replay for pin): sent again, it changed something the first time."""
    name = fact(core.anchor(agent))
    human = replace(agent, caller=Caller.HUMAN)
    if not pinned:
        core.anchor(human).curation.pin(name)
    doors = [core.anchor(replace(human, nonce="n/1")) for _ in range(2)]
    sent = [(door.curation.pin if pinned else door.curation.unpin)(name) for door in doors]
    assert sent[0] == sent[1] and sent[0].outcome.value == "updated"


def test_a_promotion_cut_before_its_event_was_marked_is_finished_by_its_repeat(
    core: Core, agent: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 1: the kill between the two collections."""
    name = event(core.anchor(agent))
    resent = core.anchor(replace(agent, nonce="bridge-1/9"))
    monkeypatch.setattr(type(resent.writes), "_mark_promoted", lambda *_: None)
    first = resent.promote(name)
    monkeypatch.undo()
    killed(core)
    again = core.anchor(replace(agent, nonce="bridge-1/9")).promote(name)
    assert (again.id, again.outcome, again.target_id) == (first.id, first.outcome, first.target_id)
    assert core.anchor(agent).get(name).promoted_to == first.id


def test_a_session_ended_twice_leaves_one_event_over_a_restart(tmp_path: Path, agent: Actor) -> None:
    """Promise 1 (finding 1): L1 is empty the second time and the store is another process's."""
    clock = ManualClock()
    core = ephemeral_core(tmp_path / "c", clock=clock)
    asked = replace(agent, nonce="n/1")
    core.anchor(agent).set_active("topic", "x")
    (first,) = core.anchor(asked).end_session("done")
    killed(core)
    core.anchor(agent).set_active("topic", "later")
    (again,) = core.anchor(asked).end_session("done")
    assert again == first
    assert [m.content for m in core.anchor(agent).curation.listing()] == ["done\ntopic: x"]
    core.close()


def test_a_request_sent_again_while_the_first_is_in_progress_is_not_begun(tmp_path: Path) -> None:
    """Promise 1: it waits for the answer of the first; another request does not."""
    answers, begun, again = FirstAnswers(records_in(tmp_path)), threading.Event(), threading.Event()
    runs: list[str] = []

    def work(name: str) -> str:
        runs.append(name)
        if name == "second":
            again.set()
        begun.set()
        again.wait(A_MOMENT_S)
        return f"told by the {name}"

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(answers.once, "n/1", "asked", lambda: work("first"))
        assert begun.wait(A_LONG_TIME_S)
        second = pool.submit(answers.once, "n/1", "asked", lambda: work("second"))
        assert answers.once("n/2", "asked", lambda: len(runs)) == 1
        told = [one.result(A_LONG_TIME_S) for one in (first, second)]

    assert (runs, told) == (["first"], ["told by the first"] * 2)


def test_answers_beyond_the_bound_go_in_the_transaction_of_the_new_one(tmp_path: Path, clock: ManualClock) -> None:
    """Promise 1: one write to the disk, however many of the oldest go with it; the newest are kept."""
    with closing(Sqlite(tmp_path / "memory.db")) as database:
        commits: list[int] = []
        database.written = lambda: commits.append(1)
        records = SqlRecords(database, clock.now)
        answers = FirstAnswers(records)
        for number in range(KEPT + SLACK):
            clock.advance(seconds=1)
            answers.write_note(number, "asked", f"n/{number}")
        commits.clear()
        clock.advance(seconds=1)

        answers.write_note("new", "asked", "n/new")

        assert len(commits) == 1 and len(records.listed(FOLDER)) == KEPT
        assert answers.read_note("asked", "n/new") == "new" and answers.read_note("asked", "n/0") is None
        assert answers.read_note("asked", f"n/{SLACK + 1}") == SLACK + 1


@pytest.mark.parametrize("change", ["edit", "forget", "restore"])
def test_a_change_that_comes_twice_at_once_is_made_once(
    core: Core, agent: Actor, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Promise 1: sent twice; the second has looked for a first answer before there was
    one, and looks again under the lock."""
    name = archived(core.anchor(agent)) if change == "restore" else fact(core.anchor(agent))
    given = (name, "The API listens on port 1") if change == "edit" else (name,)
    doors = [core.anchor(replace(agent, nonce="bridge-1/7")) for _ in range(2)]
    first, second = (getattr(one if change == "forget" else one.curation, change) for one in doors)
    records, read, told = core.services.records, core.services.records.read, []

    def slow(*wanted: Any) -> Any:
        memory = read(*wanted)
        if not told:
            told.append(None)
            told[0] = first(*given)
        return memory

    monkeypatch.setattr(records, "read", slow)
    before = len(stored(core))
    assert second(*given) == told[0]
    assert len(stored(core)) == before + 1
