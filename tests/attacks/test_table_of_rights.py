"""The table of rights, walked through the doors: a real engine, its socket, MCP over stdio, commands in a plain shell.

For each use case and caller: a subject that is nobody's in particular, and one that a human guards (wrote, pinned,
archived, or that waits for the user). What the table says must happen, and what it forbids must not. Nothing is mocked.
"""

from __future__ import annotations

import json
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from agent import Agent
from figures import figure, one_in
from human_seat import Engine, Seat
from rights_desk import DONE, REFUSED, WAITS, Desk, outcome, served, stamped, word

from memory_anchor.domain.model import Caller
from memory_anchor.domain.rights import KEY_PRINCIPALS, RIGHTS, Action, Principal, Right, purge_digest, refusal
from memory_anchor.testing import PASSPHRASE, human_of

FREE = {Right.YES, Right.READER, Right.GATE, Right.LOWERED}
NO_DOOR_FOR_A_HUMAN = {Action.NOTE, Action.END_SESSION}
"""No command sets what is in mind or ends a session; a human asks the agent to."""


def expected(right: Right, *, guarded: bool) -> str:
    if right in FREE:
        return DONE
    if right in (Right.NO, Right.LATER):
        return REFUSED
    if right is Right.REVIEW:
        return WAITS
    return REFUSED if guarded else DONE


Try = Callable[[Desk, Principal, bool], str]
TRIES: dict[Action, list[Try]] = {action: [] for action in Action}


def door(action: Action) -> Callable[[Try], Try]:
    def noted(function: Try) -> Try:
        TRIES[action].append(function)
        return function

    return noted


def simple(action: Action, name: str, make: Callable[[Desk, bool], dict[str, Any]]) -> None:
    TRIES[action].append(lambda desk, who, guarded: outcome(desk.ask(who, name, **make(desk, guarded))))


def by_tool(action: Action, name: str, make: Callable[[Desk, bool], dict[str, Any]]) -> None:
    """An MCP tool: an agent's door alone."""

    def tried(desk: Desk, who: Principal, guarded: bool) -> str:
        return outcome(desk.tool(name, **make(desk, guarded))) if who is Principal.AGENT else ""

    TRIES[action].append(tried)


def event(desk: Desk, *, guarded: bool) -> str:
    """Return an event; guarded: that a human archived."""
    name: str = desk.ask(Principal.AGENT, "log", content=word())["id"]
    if guarded:
        desk.ask(Principal.TERMINAL, "forget", id=name)
    return name


LORE = "eyJlbnRyaWVzIjogW119"
"""A lorebook without entries, in base64."""


def lorebook(desk: Desk, who: Principal) -> str:
    """Return the name of a lorebook that this caller has just added."""
    name: str = desk.ask(who, "lorebook_add", file=f"{uuid.uuid4().hex}.json", content=LORE)["name"]
    return name


simple(Action.SAVE, "add", lambda d, g: {"content": word()})
by_tool(Action.SAVE, "save_memory", lambda d, g: {"content": word()})
simple(Action.SAVE_FOR_ACCOUNT, "add", lambda d, g: {"content": word(), "visibility": "account"})
by_tool(Action.SAVE_FOR_ACCOUNT, "save_memory", lambda d, g: {"content": word(), "visibility": "account"})
by_tool(
    Action.SAVE_FOR_ACCOUNT, "save_memory", lambda d, g: {"content": word(), "type": "event", "visibility": "account"}
)
simple(Action.LOG, "log", lambda d, g: {"content": word()})
by_tool(Action.LOG, "log_event", lambda d, g: {"content": word()})
simple(Action.PROMOTE, "promote", lambda d, g: {"event_id": event(d, guarded=g)})
by_tool(Action.PROMOTE, "promote_to_fact", lambda d, g: {"event_id": event(d, guarded=g)})
by_tool(Action.NOTE, "set_active_context", lambda d, g: {"key": "plan", "value": word()})
by_tool(Action.END_SESSION, "end_session", lambda d, g: {"summary": word()})
simple(Action.LEARN, "extract", lambda d, g: {"messages": [{"role": "user", "content": word()}], "apply": True})
by_tool(Action.LEARN, "remember_conversation", lambda d, g: {"messages": [{"role": "user", "content": word()}]})
by_tool(Action.PROPOSE, "propose_constitution_change", lambda d, g: {"content": word(), "reason": "asked for"})
simple(Action.DISPLACE, "add", lambda d, g: {"content": word(), "replaces": d.held(guarded=g)["id"]})
by_tool(Action.DISPLACE, "save_memory", lambda d, g: {"content": word(), "replaces": d.held(guarded=g)["id"]})
simple(Action.EDIT, "edit", lambda d, g: {"id": d.held(guarded=g)["id"], "content": word()})
simple(Action.JUDGE, "judge", lambda d, g: {"id": d.held(guarded=g)["id"], "epistemic": "hypothesis"})
simple(Action.FORGET, "forget", lambda d, g: {"id": d.held(guarded=g)["id"]})
simple(Action.FORGET, "forget", lambda d, g: {"id": (d.pinned(Principal.TERMINAL) if g else d.fact())["id"]})
by_tool(Action.FORGET, "forget_memory", lambda d, g: {"id": d.held(guarded=g)["id"]})
simple(Action.PIN, "pin", lambda d, g: {"id": d.held(guarded=g)["id"]})
simple(Action.UNPIN, "unpin", lambda d, g: {"id": d.pinned(Principal.TERMINAL if g else Principal.AGENT)["id"]})
simple(Action.JOBS, "jobs_run", lambda d, g: {"name": "expire_events", "dry_run": True})
simple(Action.JOBS, "jobs_switch", lambda d, g: {"on": True})
simple(Action.REINDEX, "reindex", lambda d, g: {})
simple(Action.BACKUP, "backup_create", lambda d, g: {"file": str(d.seat.root / f"{uuid.uuid4().hex}.tar.gz")})
simple(Action.KNOWLEDGE, "lorebook_add", lambda d, g: {"file": f"{uuid.uuid4().hex}.json", "content": LORE})
simple(Action.KNOWLEDGE, "lorebook_remove", lambda d, g: {"name": lorebook(d, Principal.AGENT)})
simple(Action.TRUST_KNOWLEDGE, "lorebook_remove", lambda d, g: {"name": lorebook(d, Principal.TERMINAL)})
simple(Action.TRUST_KNOWLEDGE, "lorebook_add", lambda d, g: {"file": lorebook(d, Principal.TERMINAL), "content": LORE})
simple(Action.EXPORT, "export_begin", lambda d, g: {})
simple(Action.EXPORT_ALL, "export_begin", lambda d, g: {"everything": True})
simple(
    Action.EXPORT_ALL,
    "export_page",
    lambda d, g: {"collection": "event_log", "instant": "2999-01-01T00:00:00+00:00", "everything": True},
)
simple(Action.READ, "search", lambda d, g: {"query": "Fact"})
simple(Action.READ, "list", lambda d, g: {})
simple(Action.READ, "history", lambda d, g: {"id": d.fact()["id"]})
by_tool(Action.READ, "search_memory", lambda d, g: {"query": "Fact"})
simple(Action.CONTEXT, "context", lambda d, g: {"task": "Fact"})
by_tool(Action.CONTEXT, "build_context", lambda d, g: {"task": "Fact"})
simple(Action.PROJECTS, "projects_list", lambda d, g: {})
simple(Action.STATS, "stats", lambda d, g: {})
simple(Action.CONFIG, "doctor_probe", lambda d, g: {})


@door(Action.RESTORE)
def restored(desk: Desk, who: Principal, guarded: bool) -> str:
    made = desk.fact()["id"]
    desk.ask(Principal.TERMINAL if guarded else Principal.AGENT, "forget", id=made)
    return outcome(desk.ask(who, "restore", id=made))


def settled(action: Action, resolution: str) -> None:
    @door(action)
    def by_command(desk: Desk, who: Principal, guarded: bool) -> str:
        sides = desk.disputed(guarded=guarded)
        return outcome(desk.ask(who, "settle", id=sides[0]["id"], resolution=resolution, seen=stamped(*sides)))

    @door(action)
    def by_the_tool(desk: Desk, who: Principal, guarded: bool) -> str:
        if who is not Principal.AGENT:
            return ""
        return outcome(desk.tool("resolve_conflict", id=desk.disputed(guarded=guarded)[0]["id"], resolution=resolution))


# Agents settle what the settings leave to nobody: here contradictions of facts, see the desk.
settled(Action.SETTLE, "keep_new")
settled(Action.MERGE, "merge")


@door(Action.UNDO)
def undone(desk: Desk, who: Principal, guarded: bool) -> str:
    made = desk.held(guarded=guarded)["id"]
    desk.ask(who, "undo", what="last", apply=True)
    return DONE if desk.show(made)["status"] == "archived" else REFUSED


@door(Action.UNDO_HUMANS)
def undone_a_humans(desk: Desk, who: Principal, _: bool) -> str:
    made = desk.fact()["id"]
    desk.ask(Principal.TERMINAL, "edit", id=made, content=word())
    desk.ask(who, "undo", what="last", apply=True)
    return DONE if desk.show(made)["version"] == 3 else REFUSED


def decided(action: Action, name: str) -> None:
    @door(action)
    def by_command(desk: Desk, who: Principal, guarded: bool) -> str:
        waiting = desk.fact(confidence=0.8)
        return outcome(desk.ask(who, name, id=waiting["id"], seen=stamped(waiting)))


decided(Action.ACCEPT, "accept")
decided(Action.REJECT, "reject")


@door(Action.PURGE)
def purged(desk: Desk, who: Principal, guarded: bool) -> str:
    made = desk.held(guarded=guarded)["id"]
    seen = purge_digest(desk.ask(Principal.TERMINAL, "purge_preview", ids=[made])["memories"])
    shown = desk.ask(who, "purge_preview", ids=[made])
    assert outcome(shown) == outcome(desk.ask(who, "purge", ids=[made], seen=seen))
    return outcome(shown)


@door(Action.PAUSE)
def paused(desk: Desk, who: Principal, _: bool) -> str:
    answer = desk.ask(who, "pause", off=False)
    desk.ask(Principal.TERMINAL, "pause", off=True)
    return outcome(answer)


@door(Action.RESUME)
def resumed(desk: Desk, who: Principal, guarded: bool) -> str:
    desk.ask(Principal.TERMINAL if guarded else Principal.AGENT, "pause", off=False)
    answer = desk.ask(who, "pause", off=True)
    desk.ask(Principal.TERMINAL, "pause", off=True)
    return outcome(answer)


@door(Action.WRITE_PAUSED)
def written_while_paused(desk: Desk, who: Principal, guarded: bool) -> str:
    desk.ask(Principal.TERMINAL, "pause", off=False)
    try:
        if who is Principal.AGENT:
            assert outcome(desk.tool("save_memory", content=word())) == REFUSED
            assert "paused" in str(desk.ask(who, "import_lines", lines=[[1, "{}"]]))
        return outcome(desk.ask(who, "add", content=word()))
    finally:
        desk.ask(Principal.TERMINAL, "pause", off=True)


@door(Action.IMPORT)
def imported(desk: Desk, who: Principal, _: bool) -> str:
    lines = desk.line(origin="system", confidence=1.0)
    told = desk.ask(who, "import_lines", lines=lines)
    if told.get("added") == 1 and who is Principal.AGENT:
        name = json.loads(lines[0][1])["id"]
        assert (desk.show(name)["origin"], desk.show(name)["confidence"]) == ("agent", 0.95)
    return DONE if told.get("added") == 1 else REFUSED


@door(Action.IMPORT_IDENTITY)
def imported_identity(desk: Desk, who: Principal, _: bool) -> str:
    told = desk.ask(who, "import_lines", lines=desk.line(layer="identity_schema"))
    return DONE if told.get("added") == 1 else REFUSED


@door(Action.IMPORT_PROJECTS)
def imported_projects(desk: Desk, who: Principal, _: bool) -> str:
    folder = f"path:/nowhere/{uuid.uuid4().hex}"
    desk.ask(who, "import_projects", projects={f"p-{uuid.uuid4().hex[:8]}": [folder]})
    return DONE if folder in (desk.seat.data / "projects.json").read_text() else REFUSED


def another(desk: Desk) -> str:
    """Return the id of a project that was made just now."""
    folder = desk.seat.root / uuid.uuid4().hex
    folder.mkdir()
    told = desk.seat.shell("stats", MEMORY_ANCHOR_PROJECT_DIR=str(folder))
    assert told.returncode == 0, told.stderr
    known = json.loads((desk.seat.data / "projects.json").read_text())["projects"]
    return next(name for name, one in known.items() if str(folder) in json.dumps(one))


@door(Action.LINK)
def linked(desk: Desk, who: Principal, _: bool) -> str:
    folder = desk.seat.root / uuid.uuid4().hex
    folder.mkdir()
    return outcome(desk.ask(who, "projects_link", project=another(desk), folder=str(folder)))


@door(Action.MERGE_PROJECTS)
def merged(desk: Desk, who: Principal, _: bool) -> str:
    return outcome(desk.ask(who, "projects_merge", source=another(desk), target=another(desk)))


def in_a_shell(action: Action, *words: str) -> None:
    """A command without a terminal: an agent's door alone."""

    @door(action)
    def shell(desk: Desk, who: Principal, _: bool) -> str:
        if who is not Principal.AGENT:
            return ""
        return REFUSED if desk.seat.shell(*words).returncode == 4 else DONE


in_a_shell(Action.APPROVE_PROPOSAL, "constitution", "approve", "p-0123456789")
in_a_shell(Action.REJECT_PROPOSAL, "constitution", "reject", "p-0123456789", "--reason", "no")
in_a_shell(Action.ADOPT, "constitution", "adopt")
in_a_shell(Action.INIT, "init")
in_a_shell(Action.RESUME, "pause", "--off")
in_a_shell(Action.ACCEPT, "review", "--accept", "x")
in_a_shell(Action.PURGE, "purge", "x")
in_a_shell(Action.EXPORT_ALL, "export", "-", "--human")
in_a_shell(Action.MAKE_KEYS, "keys", "create", "--user", "eve")
in_a_shell(Action.REVOKE_KEYS, "keys", "list")
in_a_shell(Action.EXCHANGE, "sync", "now")
in_a_shell(Action.EXCHANGE, "sync", "status")
in_a_shell(Action.JOIN_DEVICES, "sync", "setup", ".", "--name", "desk")
in_a_shell(Action.JOIN_DEVICES, "sync", "now", "--human")
simple(Action.EXCHANGE, "sync_now", lambda desk, guarded: {})
in_a_shell(Action.MIGRATE, "migrate", "--from", "qdrant://127.0.0.1:9")


@door(Action.BACKUP_RESTORE)
def restored_over(desk: Desk, who: Principal, _: bool) -> str:
    if who is not Principal.AGENT:
        return ""
    file = desk.seat.root / f"{uuid.uuid4().hex}.tar.gz"
    desk.ask(who, "backup_create", file=str(file))
    return REFUSED if desk.seat.shell("backup", "restore", str(file), "--force").returncode == 4 else DONE


@door(Action.LOG)
def logged_by_a_hook(desk: Desk, who: Principal, _: bool) -> str:
    """A summary of a compaction becomes an event."""
    if who is not Principal.AGENT:
        return ""
    text = word()
    desk.hook("PostCompact", compact_summary=text)
    return DONE if any(one["content"] == text for one in desk.ask(who, "events")["events"]) else REFUSED


@door(Action.WRITE_PAUSED)
def logged_by_a_hook_while_paused(desk: Desk, who: Principal, guarded: bool) -> str:
    desk.ask(Principal.TERMINAL, "pause", off=False)
    try:
        return logged_by_a_hook(desk, who, guarded)
    finally:
        desk.ask(Principal.TERMINAL, "pause", off=True)


@door(Action.READ)
def read_by_a_hook(desk: Desk, who: Principal, _: bool) -> str:
    if who is not Principal.AGENT:
        return ""
    text = desk.fact()["content"]
    return DONE if text in desk.hook("SessionStart", source="startup").stdout else REFUSED


def walked_by_hand(root: Path) -> set[tuple[Action, Principal]]:
    """Return the cells of the human whose door is a terminal of its own, each walked with the passphrase typed."""
    seat = Seat(root)
    typed = [("Passphrase", PASSPHRASE)]
    seat.init()
    cells = {Action.INIT}
    names = []
    for number in range(2):
        code, screen = seat.human("constitution", "propose", f"Water bed {number}", "--reason", "asked", "--json")
        assert code == 0, screen
        names += re.findall(r"p-[0-9a-z]{6,}", screen)[:1]
        cells.add(Action.PROPOSE)
    done = [
        (Action.APPROVE_PROPOSAL, ("constitution", "approve", names[0])),
        (Action.REJECT_PROPOSAL, ("constitution", "reject", names[1], "--reason", "no")),
    ]
    file = seat.root / "kept.tar.gz"
    assert seat.shell("backup", "create", str(file)).returncode == 0
    done.append((Action.BACKUP_RESTORE, ("backup", "restore", str(file), "--force")))
    done.append((Action.MIGRATE, ("migrate", "--from", str(seat.root / "elsewhere"))))
    done.append((Action.MAKE_KEYS, ("keys", "create", "--user", "eve", "--json")))
    for action, words in done:
        code, screen = seat.human(*words, answers=typed)
        assert code == 0, (action, screen)
        cells.add(action)
    words = [*typed, *((prompt, "lantern orchard seven quiet rivers") for prompt in ("Sync passphrase", "Once more"))]
    (seat.root / "carried").mkdir()
    code, screen = seat.human("sync", "setup", str(seat.root / "carried"), "--name", "desk", answers=words)
    assert code == 0, screen
    cells.add(Action.JOIN_DEVICES)
    made = json.loads(seat.shell("keys", "list", "--json").stdout)["keys"]
    assert seat.shell("keys", "revoke", made[0]["id"]).returncode == 0
    cells.add(Action.REVOKE_KEYS)
    text = seat.project / "constitution.yaml"
    text.write_text(text.read_text() + '  - id: dawn\n    content: "Water at dawn"\n    priority: 1\n')
    code, screen = seat.human("constitution", "adopt", answers=typed)
    assert code == 0, screen
    return {(action, Principal.TERMINAL) for action in (*cells, Action.ADOPT)}


@pytest.fixture(params=figure(["engine"], ["engine", "server"]))
def desk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    seat = Seat(tmp_path / "seat")
    plain = seat.env
    monkeypatch.setattr(seat, "env", lambda **more: plain(MEMORY_ANCHOR_CONFLICTS__POLICY__FACT="merge", **more))
    human_of(seat.data)
    with Engine(seat) if request.param == "engine" else served(seat) as running:
        for name in [one for one in os.environ if one.startswith("MEMORY_ANCHOR")]:
            monkeypatch.delenv(name)
        for name, value in seat.env().items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(seat.project)
        command = [sys.executable, "-m", "memory_anchor", "mcp", "--profile", "full"]
        agent = Agent(command, {**seat.env(), "MEMORY_ANCHOR_PROJECT_DIR": str(seat.project)})
        made = Desk(seat, agent)
        made.http = running if isinstance(running, str) else ""
        yield made
        agent.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_table_is_walked_through_every_door(desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Issue 12, who may do what: cells tested = all cells, and each does what it says."""
    wrong, cells, tries = [], set(), 0
    for action in Action:
        for who in (Principal.AGENT, Principal.TERMINAL):
            for guarded in (False, True):
                for number, tried in enumerate(TRIES[action]):
                    wanted, got = expected(RIGHTS[action][who], guarded=guarded), tried(desk, who, guarded)
                    if got:
                        tries += 1
                        cells.add((action, who))
                        wrong += [(action.value, who.value, guarded, number, wanted, got)] if got != wanted else []
    assert not wrong
    # Jobs: every one that there is, over what humans guard; they do nothing that the table does not give them.
    humans = [desk.fact(Principal.TERMINAL), desk.pinned(Principal.TERMINAL), *desk.disputed(guarded=True)]
    guarded = [*humans, desk.fact(confidence=0.8)]
    before = [desk.show(one["id"]) for one in guarded]
    for job in desk.ask(Principal.AGENT, "jobs_list")["jobs"]:
        assert "refused" not in desk.ask(Principal.AGENT, "jobs_run", name=job["name"]), job
    for was in before:
        now = desk.show(was["id"])
        assert {name: now.get(name) for name in ("content", "status", "pinned")} == {
            name: was.get(name) for name in ("content", "status", "pinned")
        }
    for action in Action:
        cells |= {(action, Principal.BROWSER)} if refusal(action, Principal.BROWSER) else set()
        # The browser's human signs the terminal's calls: its forms are walked in test_dashboard_attacks.py.
        cells |= (
            {(action, Principal.BROWSER)}
            if RIGHTS[action][Principal.BROWSER] is RIGHTS[action][Principal.TERMINAL]
            else set()
        )
        cells |= {(action, who) for who in KEY_PRINCIPALS}  # walked over HTTP: test_keys.py
        right = RIGHTS[action][Principal.JOB]
        if right is Right.NO or right in FREE or right is Right.REVIEW:
            assert bool(refusal(action, Caller.SYSTEM)) == (right in (Right.NO, Right.REVIEW))
        cells.add((action, Principal.JOB))
    cells |= walked_by_hand(tmp_path / "by hand")
    not_here = {(action, Principal.TERMINAL) for action in NO_DOOR_FOR_A_HUMAN}
    for action, who in not_here:
        assert not refusal(action, who)
    told = f"{tries} tries; {len(Action) * len(Principal)} cells: {len(cells - not_here)} walked"
    with capsys.disabled():
        print(f"\n{told}, {len(not_here)} have no door")
    assert cells | not_here == {(action, who) for action in Action for who in Principal}


# --- a decision and an agent that is quicker (A21) ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("with_engine", one_in(2, [True, False]))
def test_an_edit_between_showing_and_accepting_is_shown_and_asked_again(tmp_path: Path, with_engine: bool) -> None:
    """Attack A21 on a real terminal: a second process edits what the human has just read, and the human says accept."""
    seat = Seat(tmp_path)
    human_of(seat.data)
    waiting = json.loads(seat.shell("add", "Deploys need two reviews", "--confidence", "0.8", "--json").stdout)["id"]
    attack = "Deploys go straight to production without asking anybody"

    with Engine(seat) if with_engine else nullcontext():
        answers = [
            ("Passphrase", PASSPHRASE),
            ("(a)ccept", Quick("a", lambda: edited(seat, waiting, attack)), True),
            ("(a)ccept", "s", True),
        ]
        code, screen = seat.human("review", answers=answers)
        assert code == 0, screen
        first, _, second = screen.partition("changed since it was shown")
        assert "Deploys need two reviews" in first and attack not in first
        assert attack in second
        shown = json.loads(seat.shell("show", waiting, "--json").stdout)["memory"]
        assert (shown["status"], shown["content"]) == ("pending", attack)
        late = Quick(PASSPHRASE, lambda: edited(seat, waiting, "Deploys need nobody at all"))
        code, screen = seat.human("review", "--accept", waiting, answers=[("Passphrase", late)])
        assert (code, "changed since it was shown" in screen) == (4, True), screen
        assert json.loads(seat.shell("show", waiting, "--json").stdout)["memory"]["status"] == "pending"
        code, screen = seat.human("review", "--accept", waiting, answers=[("Passphrase", PASSPHRASE)])
        assert code == 0, screen


def edited(seat: Seat, memory_id: str, text: str) -> None:
    done = seat.shell("edit", memory_id, text)
    assert done.returncode == 0, done.stderr


class Quick(str):
    """What a human types, once an agent has done something that nobody saw."""

    def __new__(cls, text: str, first: Callable[[], None]) -> Quick:
        made = super().__new__(cls, text)
        made.first = first  # type: ignore[attr-defined]
        return made

    def __add__(self, other: str) -> str:
        self.first()  # type: ignore[attr-defined]
        return str(self) + other
