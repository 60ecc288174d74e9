"""The tables of what a write does to a memory that is there, and of what becomes of a new one: every cell, every door.

A cell is one change, one target, one caller. It is tried through every door that makes the change: the tool, the
command's call, /v1, the import; for a human, the signed call. Its outcome is read from what is stored afterwards, not
from the answer. Nothing is mocked: in this process over the reference store, over a folder that carries the target from
another device, and (slow) by real processes over MCP, a socket and HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from agent import Agent
from devicekit import Laptop, settled
from figures import figure
from human_seat import Seat
from rights_desk import Desk, NearDesk, served, stamped, word
from serving import Served

from memory_anchor.adapters.payload import from_payload, to_payload
from memory_anchor.base.hashing import content_hash
from memory_anchor.domain.rights import BROUGHT, CHANGES, Alteration, Brought, Effect, Principal, Target
from memory_anchor.extensions.service.http_api import build_http
from memory_anchor.settings import Settings
from memory_anchor.testing import ManualClock, ephemeral_core, human_of

AGENT, HUMAN = Principal.AGENT, Principal.TERMINAL
Record = dict[str, Any]
HUMANS = figure(("let in",), ("wrote", "let in", "kept", "pinned"))
"""How a memory becomes a human's; an event is not let in for the project, so a human writes it."""
STATE = ("version", "status", "content", "pinned", "visibility")


# --- targets ----------------------------------------------------------------------------------------------------------


def saved(desk: Desk, who: Principal = AGENT, content: str = "", **more: Any) -> Record:
    answer = desk.make(who, "add", content=content or word(), **more)
    assert "refused" not in answer, answer
    return answer


def accepted(desk: Desk, name: str) -> None:
    sides = desk.make(HUMAN, "sides", id=name)["memories"]
    done = desk.make(HUMAN, "accept", id=name, seen=stamped(*sides))
    assert "refused" not in done, done


def contradicting(desk: Desk, **more: Any) -> tuple[str, str]:
    """Return two facts of agents that stand as disputed."""
    about = word()
    old = saved(desk, content=f"{about} listens on port 8080", **more)["id"]
    new = saved(desk, content=f"{about} listens on port 9090", **more)
    assert new["outcome"] == "needs_review", new
    return old, new["id"]


def humans(desk: Desk, how: str, **more: Any) -> str:
    if how == "wrote":
        return str(saved(desk, HUMAN, **more)["id"])
    if how == "let in":
        name = saved(desk, **more, confidence=0.8)["id"]
        accepted(desk, name)
    elif how == "kept":
        old, name = contradicting(desk, **more)
        sides = desk.make(HUMAN, "sides", id=old)["memories"]
        done = desk.make(HUMAN, "settle", id=old, resolution="keep_new", seen=stamped(*sides))
        assert "refused" not in done, done
    else:
        name = saved(desk, **more)["id"]
        desk.make(HUMAN, "pin", id=name)
    return str(name)


def target_of(desk: Desk, target: Target, how: str = "wrote", **more: Any) -> str:
    """Return the id of a fact that stands like this."""
    match target:
        case Target.ACTIVE:
            return str(saved(desk, **more)["id"])
        case Target.HUMANS:
            return humans(desk, how, **more)
        case Target.WAITS:
            return str(saved(desk, **more, confidence=0.8)["id"])
        case Target.DISPUTED:
            return contradicting(desk, **more)[0]
        case Target.HUMANS_DISPUTED:
            name = humans(desk, how, **more)
            done = saved(desk, **more, replaces=name)
            assert done["outcome"] == "needs_review", done
            return name
        case Target.ARCHIVED | Target.HUMANS_ARCHIVED:
            name = saved(desk, **more)["id"]
            desk.make(AGENT if target is Target.ARCHIVED else HUMAN, "forget", id=name)
            return str(name)
        case Target.SUPERSEDED:
            name = saved(desk, **more)["id"]
            saved(desk, **more, replaces=name)
            return str(name)


def event_of(desk: Desk, target: Target, how: str = "wrote") -> str:
    """Return the id of an event that stands like this."""
    if target is Target.WAITS:
        return str(saved(desk, type="event", visibility="account")["id"])
    name = desk.make(HUMAN if target is Target.HUMANS and how == "wrote" else AGENT, "log", content=word())["id"]
    if target is Target.HUMANS and how == "pinned":
        desk.make(HUMAN, "pin", id=name)
    if target in (Target.ARCHIVED, Target.HUMANS_ARCHIVED):
        desk.make(AGENT if target is Target.ARCHIVED else HUMAN, "forget", id=name)
    return str(name)


# --- changes ----------------------------------------------------------------------------------------------------------


Try = Callable[[Desk, Principal, str], Record]
"""Makes the change to the target with this id; returns the answer of the door."""


def command(name: str, given: Callable[[Desk, str], Record] = lambda desk, id: {}, **more: Any) -> Try:
    return lambda desk, who, id: desk.ask(who, name, **{"id": id, **more, **given(desk, id)})


def by_tool(name: str, **more: Any) -> Try:
    return lambda desk, who, id: desk.tool(name, **{"id": id, **more}) if who is AGENT else {}


def by_v1(path: str, **more: Any) -> Try:
    return lambda desk, who, id: desk.v1(path, **{"id": id, **more}) if who is AGENT and desk.base else {}


def replacing(**more: Any) -> list[Try]:
    def given(id: str) -> Record:
        return {"content": word(), "replaces": id, **more}

    doors: list[Try] = [
        lambda desk, who, id: desk.ask(who, "add", **given(id)),
        lambda desk, who, id: desk.tool("save_memory", **given(id)) if who is AGENT else {},
        lambda desk, who, id: desk.v1("memory/store", **given(id)) if who is AGENT and desk.base else {},
    ]
    return doors


def promoting(name: str, door: str) -> Try:
    def tried(desk: Desk, who: Principal, id: str) -> Record:
        if door == "command":
            return desk.ask(who, name, event_id=id)
        if who is not AGENT or (door == "v1" and not desk.base):
            return {}
        return desk.tool(name, event_id=id) if door == "tool" else desk.v1(name, event_id=id)

    return tried


def following(desk: Desk, who: Principal, id: str) -> Record:
    """Import a next version of the target: an agent's, active, with another text."""
    found: Record = {}
    for name in ("verified_fact", "event_log"):
        page: Record = {"after": None}
        while not found and ("lines" not in page or page["after"]):
            asked = {"collection": name, "instant": "2999-01-01T00:00:00+00:00", "after": page["after"]}
            page = desk.ask(HUMAN, "export_page", **asked)
            found = next((one for one in page["lines"] if one["id"] == id), {})
    text, at = word(), datetime.fromisoformat(found["recorded_at"])
    line = {
        **{name: value for name, value in found.items() if name not in ("usage", "last_at", "receipts", "disputes")},
        "version": found["version"] + 1,
        "previous_version_id": f"{id}@{found['version']}",
        "first_recorded_at": found.get("first_recorded_at", found["recorded_at"]),
        "recorded_at": (at + timedelta(minutes=1)).isoformat(),
        **{"status": "active", "state": "active", "pinned": "no", "origin": "agent", "author": "agent:x"},
        **{"confidence": 0.95, "content": text, "content_hash": content_hash(text)},
    }
    told = desk.ask(who, "import_lines", lines=[[1, json.dumps(to_payload(from_payload(line)))]])
    return told if told.get("added") or "refused" in told else {"refused": told["errors"][0]["message"], "exit": 4}


def undoing(desk: Desk, who: Principal, id: str) -> Record:
    told = desk.ask(who, "undo", what="last", apply=True)
    left = [one["reason"] for one in told.get("left", ()) if one["id"] == id]
    return {"refused": left[0], "exit": 4} if left else told


def with_sides(desk: Desk, id: str) -> Record:
    return {"seen": stamped(*desk.ask(HUMAN, "sides", id=id)["memories"])}


DOORS: dict[Alteration, list[Try]] = {
    Alteration.REPLACE: replacing(),
    Alteration.REPLACE_WIDER: replacing(visibility="project"),
    Alteration.REPLACE_NARROWER: [*replacing(visibility="agent"), *replacing(visibility="user")],
    Alteration.EDIT: [command("edit", lambda desk, id: {"content": word()})],
    Alteration.JUDGE: [command("judge", epistemic="hypothesis")],
    Alteration.PIN: [command("pin")],
    Alteration.FORGET: [command("forget"), by_tool("forget_memory"), by_v1("memory/forget")],
    Alteration.PROMOTE: [
        promoting("promote", "command"),
        promoting("promote_to_fact", "tool"),
        promoting("memory/promote", "v1"),
    ],
    Alteration.RESTORE: [command("restore")],
    Alteration.SETTLE: [
        door
        for resolution in ("keep_new", "keep_old", "merge")
        for door in (
            command("settle", with_sides, resolution=resolution),
            by_tool("resolve_conflict", resolution=resolution),
        )
    ],
    Alteration.ACCEPT: [command("accept", with_sides)],
    Alteration.REJECT: [command("reject", with_sides)],
    Alteration.UNDO: [undoing],
    Alteration.FOLLOW: [following],
}


def effect_of(desk: Desk, change: Alteration, before: Record, answer: Record) -> Effect:
    """Return what came of it, from what is stored now."""
    after = desk.show(before["id"])
    if "refused" in answer:
        assert {name: after.get(name) for name in STATE} == {name: before.get(name) for name in STATE}, answer
        return Effect.NOTHING if answer.get("exit", 4) == 2 else Effect.REFUSED
    if change is Alteration.PROMOTE:
        fact = desk.show(answer["id"])
        assert after["promoted_to"] == fact["id"]
        return Effect.WAITS if fact["status"] == "pending" else Effect.DONE
    if change in (Alteration.REPLACE, Alteration.REPLACE_WIDER, Alteration.REPLACE_NARROWER):
        new = desk.show(answer["id"])
        stand = (after["status"], new["status"])
        if stand == ("superseded", "disputed"):
            return Effect.INHERITS
        if stand == ("disputed", "disputed"):
            assert after["id"] in new["disputes"] and new["id"] in after["disputes"]
            return Effect.DISPUTES
        assert stand == ("superseded", "active"), stand
        return Effect.DONE
    return Effect.NOTHING if after["version"] == before["version"] else Effect.DONE


def walk(desk: Desk, change: Alteration, callers: tuple[Principal, ...] = (AGENT, HUMAN)) -> tuple[int, int]:
    """Walk a row through every door; return how many cells and tries. Asserts that each is as the table says."""
    wrong, cells, tries = [], 0, 0
    for target, cell in CHANGES[change].items():
        if not exists(change, target):
            assert set(cell) == {Effect.NOTHING}
            continue
        for who in callers:
            cells += 1
            tried = 0
            for how in ways_of(change, target):
                for number, door in enumerate(DOORS[change]):
                    answer, got = through(desk, change, target, how, who, door)
                    tried += bool(answer)
                    wanted = cell[who is HUMAN]
                    told_apart = "exit" in answer or "refused" not in answer
                    if answer and got is not wanted and (told_apart or wanted is not Effect.NOTHING):
                        wrong.append(f"{target.value}, {who.value}, {how}, door {number}: {wanted} not {got}: {answer}")
            assert tried, (change, target, who)
            tries += tried
    assert not wrong, "\n".join([change.value, *wrong])
    return cells, tries


def through(
    desk: Desk, change: Alteration, target: Target, how: str, who: Principal, door: Try
) -> tuple[Record, Effect]:
    """Return what a door answers to a change of a fresh target, and what came of it; an empty answer for no door."""
    if change is Alteration.PROMOTE:
        name = event_of(desk, target, how)
    else:
        name = target_of(desk, target, how, **({"visibility": "agent"} if change is Alteration.REPLACE_WIDER else {}))
    desk.carry()
    before = desk.show(name)
    answer = door(desk, who, name)
    return answer, effect_of(desk, change, before, answer) if answer else Effect.NOTHING


def ways_of(change: Alteration, target: Target) -> tuple[str, ...]:
    """Return how the target became what it is; what is pinned is not pinned again."""
    if target not in (Target.HUMANS, Target.HUMANS_DISPUTED):
        return ("",)
    if change is Alteration.PROMOTE:
        return ("wrote", "pinned")
    return tuple(way for way in HUMANS if (change, way) != (Alteration.PIN, "pinned"))


def exists(change: Alteration, target: Target) -> bool:
    """Return whether there is such a target: an event is in no dispute, a source is an agent's or a human's."""
    if change is Alteration.ERASE:
        return target in (Target.ACTIVE, Target.HUMANS)
    no_event = (Target.DISPUTED, Target.HUMANS_DISPUTED, Target.SUPERSEDED)
    return change is not Alteration.PROMOTE or target not in no_event


# --- what is new ------------------------------------------------------------------------------------------------------

LINES: dict[Brought, Record] = {
    Brought.LINE: {"confidence": 0.95},
    Brought.LINE_UNSURE: {"confidence": 0.8},
    Brought.LINE_DOUBTED: {"confidence": 0.2},
    Brought.LINE_DOCUMENT: {"origin": "document", "confidence": 0.95},
    Brought.LINE_PENDING: {"status": "pending", "state": "pending", "confidence": 0.95},
    Brought.LINE_DISPUTED: {
        "status": "disputed",
        "state": "disputed",
        "confidence": 0.95,
        "disputes": ["0NOBODY000001"],
    },
    Brought.LINE_ARCHIVED: {"status": "archived", "state": "archived", "confidence": 0.95},
    Brought.LINE_SUPERSEDED: {"status": "superseded", "state": "superseded", "confidence": 0.95},
    Brought.LINE_HUMANS: {"origin": "human"},
    Brought.LINE_PINNED: {"pinned": "yes"},
    Brought.LINE_ACCOUNT: {"visibility": "account"},
    Brought.LINE_ELSEWHERE: {"project": "another"},
}
OF_STATUS = {
    **{"active": Effect.DONE, "pending": Effect.WAITS, "disputed": Effect.DISPUTES},
    **{"superseded": Effect.NOTHING, "archived": Effect.NOTHING},
}


def brought_line(desk: Desk, who: Principal, row: Brought) -> Effect:
    (line,) = desk.line()
    given = to_payload(from_payload({**json.loads(line[1]), **LINES[row]}))
    told = desk.ask(who, "import_lines", lines=[[1, json.dumps(given)]])
    name = str(given["id"])
    if not told.get("added"):
        assert told["errors"], told
        return Effect.REFUSED
    if row is Brought.LINE_ELSEWHERE:
        return Effect.DONE
    desk.ask(AGENT, "jobs_run", name="reconsolidate")
    if row is Brought.LINE_ARCHIVED:
        assert "refused" not in desk.ask(who, "restore", id=name)
    return OF_STATUS[desk.show(name)["status"]]


def brought_ways(desk: Desk, who: Principal, row: Brought) -> list[Effect]:
    """Return what became of it through every door."""
    if row in LINES:
        return [brought_line(desk, who, row)]
    kept = row.value.rpartition(" ")[2]
    answers = [] if kept == "conversation" else [desk.ask(who, "add", content=word(), visibility=kept)]
    if who is AGENT:
        answers.append(desk.tool("save_memory", content=word(), visibility=kept))
    if who is AGENT and desk.base and kept != "conversation":
        answers.append(desk.v1("memory/store", content=word(), visibility=kept))
    return [OF_STATUS[answer["status"]] for answer in answers]


def erased(desk: Desk, who: Principal, owner: Principal) -> list[Effect]:
    """Return what came of removing a source of this owner, through every door."""
    doors: list[Callable[[str], Record]] = [lambda name: desk.ask(who, "knowledge_remove", source=name)]
    if who is AGENT and desk.base:
        doors.append(lambda name: desk.v1("knowledge/remove", source=name))
    effects = []
    for door in doors:
        into = word().replace(" ", "-")
        pushed = desk.ask(owner, "knowledge_push", name="rules.md", text=f"# Rules\n\n{word()}.", into=into)
        effects.append(Effect.REFUSED if "refused" in door(pushed["source"]["id"]) else Effect.DONE)
    return effects


def walk_erasing(desk: Desk) -> tuple[int, int]:
    tries = 0
    for target, cell in CHANGES[Alteration.ERASE].items():
        for who in (AGENT, HUMAN) if exists(Alteration.ERASE, target) else ():
            effects = erased(desk, who, AGENT if target is Target.ACTIVE else HUMAN)
            assert set(effects) == {cell[who is HUMAN]}, (target, who)
            tries += len(effects)
    return 4, tries


def walk_brought(desk: Desk) -> tuple[int, int]:
    tries = 0
    for row, pair in BROUGHT.items():
        for who in (AGENT, HUMAN):
            ways = brought_ways(desk, who, row)
            if row is Brought.CONVERSATION and who is HUMAN:
                assert not ways  # a terminal is in no conversation
            else:
                assert set(ways) == {pair[who is HUMAN]}, (row, who, ways)
            tries += len(ways)
    return 2 * len(BROUGHT) - 1, tries


def walk_row(desk: Desk, row: Alteration | None) -> tuple[int, int]:
    """Walk one row of the table of changes; None: the table of what is new."""
    if row is None:
        return walk_brought(desk)
    return walk_erasing(desk) if row is Alteration.ERASE else walk(desk, row)


ROWS = [*Alteration, None]
CELLS = sum(2 for change in Alteration for target in Target if exists(change, target)) + 2 * len(BROUGHT) - 1


# --- the walks --------------------------------------------------------------------------------------------------------


@pytest.fixture
def near(tmp_path: Path, project: Path, clock: ManualClock) -> Iterator[NearDesk]:
    chosen = {"scope": {"agent": "desk"}, "project_dir": str(project), "http": {"requests_per_minute": 100_000}}
    core = ephemeral_core(tmp_path / "near", clock=clock, settings=Settings.model_validate(chosen))
    served_here = Served(build_http(core, core.settings, secret="way-in"))
    desk = NearDesk(core, str(project), clock)
    desk.base = f"{served_here.base}/s/way-in"
    yield desk
    served_here.close()
    core.close()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name.lower() if row else "what is new")
def test_every_cell_is_what_its_table_says(near: NearDesk, row: Alteration | None) -> None:
    """Rule rights: what is written x who reads it x whose the target is and how it stands x who calls."""
    walk_row(near, row)


CARRIED = figure([Alteration.REPLACE, Alteration.EDIT, Alteration.RESTORE, Alteration.FOLLOW], list(DOORS))


@pytest.mark.parametrize("row", CARRIED, ids=lambda row: row.name.lower())
def test_what_a_folder_carries_keeps_its_rights(tmp_path: Path, clock: ManualClock, row: Alteration) -> None:
    """Rule rights, sync: the target is made on one device and tried on another; no agent there may do more."""
    chosen = Settings.model_validate({"scope": {"agent": "desk"}})
    here, there = (
        Laptop(tmp_path / name, clock, core=ephemeral_core(tmp_path / name, clock=clock, settings=chosen))
        for name in ("here", "there")
    )
    for laptop in (here, there):
        laptop.join(tmp_path / "folder", laptop.home.name)
    desk = NearDesk(there.core, "", clock, made_at=here.core)
    desk.carry = lambda: settled((here, there), rounds=1)  # type: ignore[method-assign]
    try:
        walk(desk, row, (AGENT,))
    finally:
        here.close()
        there.close()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_cell_is_what_its_table_says_for_real(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same by real processes: a server, MCP over stdio and over HTTP, commands, hooks, files."""
    import os
    import sys

    monkeypatch.setenv("MEMORY_ANCHOR_SCOPE__AGENT", "desk")
    seat = Seat(tmp_path / "seat")
    plain = seat.env
    monkeypatch.setattr(seat, "env", lambda **more: plain(MEMORY_ANCHOR_SCOPE__AGENT="desk", **more))
    human_of(seat.data)
    with served(seat) as base:
        for name in [one for one in os.environ if one.startswith("MEMORY_ANCHOR")]:
            monkeypatch.delenv(name)
        for name, value in seat.env().items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(seat.project)
        command = [sys.executable, "-m", "memory_anchor", "mcp", "--profile", "full"]
        env = {**seat.env(), "MEMORY_ANCHOR_PROJECT_DIR": str(seat.project), "CLAUDE_CODE_SESSION_ID": "c-1"}
        agent = Agent(command, env)
        desk = Desk(seat, agent)
        desk.base, cells, tries = base, 0, 0
        for row in ROWS:
            walked = walk_row(desk, row)
            cells, tries = cells + walked[0], tries + walked[1]
        check_the_hook(desk)
        check_the_file(desk)
        desk.http = base  # tools over HTTP, without a session
        for change in (
            Alteration.REPLACE,
            Alteration.REPLACE_NARROWER,
            Alteration.FORGET,
            Alteration.PROMOTE,
            Alteration.SETTLE,
        ):
            tries += walk(desk, change, (AGENT,))[1]
        agent.close()
    with capsys.disabled():
        print(f"\n{cells} of {CELLS} cells walked through every door, {tries} tries")
    assert cells == CELLS


def check_the_hook(desk: Desk) -> None:
    """What a hook brings: an event of the project, active; nothing for the account and nothing that replaces."""
    text = word()
    desk.hook("PostCompact", compact_summary=text)
    (event,) = [one for one in desk.ask(AGENT, "events")["events"] if one["content"] == text]
    assert (event.get("visibility", "project"), event.get("status", "active")) == ("project", "active")


def check_the_file(desk: Desk) -> None:
    """What `import FILE` brings in an agent's shell: each line as the table says."""
    lines = {row: json.loads(desk.line()[0][1]) | claims for row, claims in LINES.items()}
    lines = {row: to_payload(from_payload(line)) for row, line in lines.items()}
    file = desk.seat.root / "lines.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines.values()))
    desk.seat.shell("import", str(file))
    for row, line in lines.items():
        answer = desk.ask(AGENT, "show", id=line["id"])
        got = Effect.REFUSED if "refused" in answer else OF_STATUS[answer["memory"]["status"]]
        wanted = Effect.NOTHING if row is Brought.LINE_ARCHIVED else BROUGHT[row][0]
        assert got is wanted, (row, got)
