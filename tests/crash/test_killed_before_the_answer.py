"""Promise 1 through the real doors: the engine is killed between a write and its answer, and the request comes again.

A real engine on a real store; MCP over stdio, a command's own calls, hooks as processes. The engine writes down what it
would have answered and what is stored, and kills itself; the bridge or the command sends the request once more.
"""

from __future__ import annotations

import json
import os
import random
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import dying_engine
import pytest
from agent import Agent
from figures import FULL, one_in
from human_seat import Seat
from labs import until

from memory_anchor.domain.model import COLLECTIONS
from memory_anchor.front import mcp_answers
from memory_anchor.front.cli import link
from memory_anchor.runtime import engine, launch

MADE = {"added", "pending", "superseded", "needs_review"}
INSTANT = "2999-01-01T00:00:00+00:00"


def name() -> str:
    return "".join(random.choice("bdfgklmnprstvz") + random.choice("aeiou") for _ in range(4))


def word() -> str:
    """Return a text that shares no word, and so no subject, with any other."""
    return " ".join(name() for _ in range(5)).capitalize()


def talk() -> list[dict[str, str]]:
    """Return a conversation with things worth keeping, that nobody has had."""
    return [
        {"role": "user", "content": f"We decided to use {name().capitalize()} for {name()} {name()}."},
        {"role": "assistant", "content": "Understood."},
        {"role": "user", "content": f"Please remember that {name()} {name()} must never {name()} {name()}."},
        {"role": "user", "content": f"I prefer {name()} {name()} over {name()} {name()}."},
    ]


class Desk:
    """A seat whose engine can be told where to die, an agent on its bridge, and commands."""

    def __init__(self, seat: Seat) -> None:
        self.seat, self.data = seat, seat.data
        agents_settle = {"MEMORY_ANCHOR_CONFLICTS__POLICY__FACT": "merge"}
        self.env = {**seat.env(**agents_settle), "MEMORY_ANCHOR_PROJECT_DIR": str(seat.project)}
        self._agent: Agent | None = None

    @property
    def agent(self) -> Agent:
        if self._agent is None:
            bridge = [sys.executable, dying_engine.__file__, "bridge", "--profile", "full"]
            self._agent = Agent(bridge, {**self.env, "CLAUDE_CODE_SESSION_ID": "conversation-1"})
        return self._agent

    def start(self) -> None:
        launch.reap()
        if engine.status(self.data) is None:
            launch.start(str(self.data), self.env, dying_engine.COMMAND)
            until(lambda: (engine.status(self.data) or {}).get("state") == "serving", "an engine serves")

    def stop(self) -> None:
        engine.stop(self.data, wait_s=20.0)
        launch.reap()

    def leave(self) -> None:
        """End the agent: a bridge that saw engines die by the dozen gives up, as it should."""
        if self._agent is not None:
            self._agent.process.kill()
            self._agent.process.wait()
            self._agent = None

    def close(self) -> None:
        self.leave()
        self.stop()

    def tool(self, name: str, /, **given: Any) -> dict[str, Any]:
        sent = self.agent.tool(name, **given)
        result = sent.get("result", {"isError": True})
        assert not result.get("isError"), sent
        answer: dict[str, Any] = result.get("structuredContent") or json.loads(result["content"][0]["text"])
        return answer

    def die(self, point: str) -> None:
        (self.data / dying_engine.DIED).unlink(missing_ok=True)
        (self.data / dying_engine.DIE).write_text(point)

    def died(self) -> dict[str, Any]:
        launch.reap()
        note: dict[str, Any] = json.loads((self.data / dying_engine.DIED).read_text())
        return note

    def versions(self) -> list[dict[str, Any]]:
        found = []
        for name in COLLECTIONS:
            page: dict[str, Any] = {"after": None}
            while page["after"] or "lines" not in page:
                page = link.call("export_page", collection=name, instant=INSTANT, versions=True, after=page["after"])
                found += page["lines"]
        return found

    def stored(self) -> list[list[Any]]:
        return sorted([one[key] for key in ("id", "version", "status", "content")] for one in self.versions())

    # --- what a request needs -------------------------------------------------------------------------------------

    def fact(self) -> str:
        return str(link.call("add", content=word())["id"])

    def event(self) -> str:
        return str(link.call("log", content=word())["id"])

    def archived(self) -> str:
        name = self.fact()
        link.call("forget", id=name)
        return name

    def pinned(self) -> str:
        name = self.fact()
        link.call("pin", id=name)
        return name

    def disputed(self) -> str:
        old = self.pinned()
        done = link.call("add", content=word(), replaces=old)
        assert done["outcome"] == "needs_review", done
        link.call("unpin", id=old)
        return str(done["id"])

    def lines(self) -> list[list[Any]]:
        name = self.fact()
        link.call("edit", id=name, content=word())
        own = [json.dumps(one) for one in self.versions() if one["id"] == name]
        new = f"0{uuid.uuid4().hex[:12]}"
        return [[n, line.replace(name, new)] for n, line in enumerate([*own, '{"content": "Ports are even"}'], 1)]


Prepare = Callable[[Desk], dict[str, Any]]
TOOLS: dict[str, Prepare] = {
    "save_memory": lambda _: {"content": word(), "confidence": 0.95},
    "log_event": lambda _: {"content": word()},
    "promote_to_fact": lambda d: {"event_id": d.event(), "content": word()},
    "propose_constitution_change": lambda _: {"content": word(), "reason": "They caught a bug"},
    "forget_memory": lambda d: {"id": d.fact(), "reason": "no longer true"},
    "set_active_context": lambda _: {"key": "topic", "value": {"a": 1}},
    "end_session": lambda d: d.tool("set_active_context", key="topic", value="wheels") and {"summary": word()},
    "remember_conversation": lambda _: {"messages": talk()},
    "resolve_conflict": lambda d: {"id": d.disputed(), "resolution": "keep_new"},
}
CALLS: dict[str, Prepare] = {
    "add": TOOLS["save_memory"],
    "log": TOOLS["log_event"],
    "promote": lambda d: {"event_id": d.event()},
    "forget": TOOLS["forget_memory"],
    "edit": lambda d: {"id": d.fact(), "content": word()},
    "judge": lambda d: {"id": d.fact(), "epistemic": "verified", "shown_by": "make test"},
    "restore": lambda d: {"id": d.archived()},
    "settle": lambda d: {"id": d.disputed(), "resolution": "keep_old"},
    "pin": lambda d: {"id": d.fact()},
    "unpin": lambda d: {"id": d.pinned()},
    "extract": lambda _: {"messages": talk(), "apply": True},
    "import_lines": lambda d: {"lines": d.lines()},
    "import_projects": lambda _: {"projects": {"p-1": ["path:/nowhere"]}},
    "undo": lambda d: {"what": "last", "apply": True} if d.fact() else {},
    "backup_create": lambda d: {"file": str(d.seat.root / f"{uuid.uuid4().hex}.tar.gz")},
    "jobs_run": lambda d: {"name": "expire_events"} if d.event() else {},
    "jobs_switch": lambda _: {"on": False},
    "pause": lambda _: {},
}
"""Every call that writes and that an agent may make; a human's is signed for one challenge and never sent again.

`reindex` goes on for a moment and tells how far it is: each call is a step of its own.
"""


@pytest.fixture(scope="module")
def all_day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = Desk(Seat(tmp_path_factory.mktemp("seat")))
    yield made
    made.close()


@pytest.fixture
def desk(all_day: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    for name in [one for one in os.environ if one.startswith("MEMORY_ANCHOR")]:
        monkeypatch.delenv(name)
    for name, value in all_day.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(all_day.seat.project)
    (all_day.data / "paused").unlink(missing_ok=True)
    all_day.start()
    yield all_day
    all_day.leave()


def comparable(answer: Any) -> Any:
    """Return an answer without the texts of similar memories, which receipts do not keep (they may be purged)."""
    told = json.loads(answer) if isinstance(answer, str) else json.loads(json.dumps(answer))
    for one in [told, *told.get("outcomes", ())] if isinstance(told, dict) else told:
        one.pop("similar", None)
    return told


def sampled(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return what to kill and when: each name once, in turn during its work and after it; in full figures both."""
    return [
        (name, point)
        for place, name in enumerate(sorted(names))
        for turn, point in enumerate(("work", "answer"))
        if FULL or place % 2 == turn
    ]


def test_every_write_is_killed() -> None:
    """Promise 1: a new write tool without a row here fails."""
    assert set(TOOLS) == set(mcp_answers.WRITE_TOOLS)


def killed_tool(desk: Desk, name: str, point: str) -> None:
    given = TOOLS[name](desk)
    _ = desk.agent
    desk.die(point)
    again = desk.tool(name, **given)
    note = desk.died()
    assert again.get("outcomes", [again]), "something was learned"
    assert comparable(again) == comparable(note["answer"]), (name, point)
    assert desk.stored() == note["stored"], (name, point)


def killed_call(desk: Desk, name: str, point: str) -> None:
    given = CALLS[name](desk)
    desk.die(point)
    again = link.call(name, **given)
    note = desk.died()
    if (name, point) == ("jobs_run", "work"):  # it finds less to do: what it did stays done once
        note["answer"] |= {key: again[key] for key in ("at", "changed")}
    assert comparable(again) == comparable(note["answer"]), (name, point)
    assert desk.stored() == note["stored"], (name, point)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "point"), one_in(3, sampled(TOOLS)))
def test_a_tool_whose_engine_died_before_the_answer_gets_the_first_answer(desk: Desk, name: str, point: str) -> None:
    """Promise 1: SIGKILL between the write and the answer; the bridge sends it once more: one effect."""
    killed_tool(desk, name, point)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "point"), one_in(4, sampled(CALLS)))
def test_a_command_whose_engine_died_before_the_answer_gets_the_first_answer(desk: Desk, name: str, point: str) -> None:
    """Promise 1: SIGKILL between the write and the answer; the command sends it once more: one effect."""
    killed_call(desk, name, point)


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(2, ["remember_conversation", "extract", "import_lines", "undo"]))
def test_a_kill_after_each_write_of_a_deed_of_many_comes_to_the_same_end(desk: Desk, name: str) -> None:
    """Promise 1: wherever it was cut off, the repeat ends it, and tells of all of it."""
    for number in range(1, 4):
        given = (TOOLS | CALLS)[name](desk)
        before = desk.stored()
        desk.leave()
        desk.start()
        _ = desk.agent
        desk.die(f"put:{number}")
        told = desk.tool(name, **given) if name in TOOLS else link.call(name, **given)
        if (desk.data / dying_engine.DIE).exists():
            (desk.data / dying_engine.DIE).unlink()
            assert number > 1
            return
        desk.died()
        new = [one for one in desk.stored() if one not in before]
        match name:
            case "undo":
                assert [len(told["steps"]), *(one[2] for one in new)] == [1, "archived"]
            case "import_lines":
                assert (told["added"], told["skipped"]) == (2, 0)
                assert len(new) == 2 + told["pending"]
            case _:
                made = [one["id"] for one in told["outcomes"] if one["outcome"] in MADE]
                assert sorted(made) == sorted({one[0] for one in new if one[1] == 1})
                assert len(made) == len(set(made)) >= 1


def summary(desk: Desk) -> tuple[str, dict[str, Any]]:
    return "PostCompact", {"compact_summary": word()}


def ended(desk: Desk) -> tuple[str, dict[str, Any]]:
    desk.tool("set_active_context", key="topic", value=word())
    return "SessionEnd", {}


def compacted(desk: Desk) -> tuple[str, dict[str, Any]]:
    file = desk.seat.root / "transcript.jsonl"
    lines = [{"type": one["role"], "message": one} for one in talk()]
    file.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return "PreCompact", {"transcript_path": str(file)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hook", "point"),
    one_in(3, [(summary, "work"), (summary, "put:1"), (ended, "work"), (ended, "stored:1"), (compacted, "work")]),
)
def test_a_hook_whose_engine_died_has_one_effect(desk: Desk, hook: Callable[[Desk], Any], point: str) -> None:
    """Promise 1: a hook that was not answered waits on disk and is taken by the next engine; nothing is there twice."""
    event, payload = hook(desk)
    before = desk.stored()
    desk.die(point)
    given = json.dumps({"hook_event_name": event, "session_id": "conversation-1", **payload})
    desk.seat.shell("hook", event, stdin=given, CLAUDE_CODE_SESSION_ID="conversation-1")
    until(lambda: not (desk.data / dying_engine.DIE).exists(), "the engine died")
    note = desk.died()
    desk.start()
    until(lambda: not list((desk.data / "spool").glob("*.json")), "what waited on disk was taken")

    until(lambda: desk.stored() != before, "what it held is stored")
    after = desk.stored()
    texts = [one[3] for one in after if one not in before]
    assert len(texts) == len(set(texts)) >= 1
    if point == "work" and event != "PreCompact":  # that one is answered first, and learned from behind
        assert after == note["stored"]
