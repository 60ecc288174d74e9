"""What every reader of agents' sessions promises, whatever its agent writes."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agentkit import SUB_AGENTS, WRITERS, Act, Story, cursor_before, opencode_id
from sessionkit import Machine, id_of

from memory_anchor.adapters import client_database
from memory_anchor.adapters.client_database import queried
from memory_anchor.base import nofollow
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.rights import purge_digest
from memory_anchor.extensions.more_agents import aider, jsonl
from memory_anchor.extensions.sessions.adopting import AdoptChoice, look_again
from memory_anchor.extensions.sessions.agents import AGENTS, FoundSession, StoreReader, reader
from memory_anchor.extensions.sessions.archive import FILE, SessionsFile
from memory_anchor.extensions.sessions.steps import Facts
from memory_anchor.runtime.wire import Preamble
from memory_anchor.testing import human_of, signed_call

ACTS: tuple[Act, ...] = (
    ("user", "Why does the station import of the zeppelin fail?"),
    ("agent", "I run the tests first."),
    ("run", "make test-stations", "ImportError: no StationGrid\nmake: *** Error 2", 2),
    ("edit", "a.py", "x = 1", "x = 2"),
    ("agent", "Because the names have umlauts, we read them as latin-1."),
)
MORE: tuple[Act, ...] = (
    ("user", "And what of the walrus table?"),
    ("agent", "It needs no change, walruses have none."),
)
SHOWN = [
    *[("user", ACTS[0][1]), ("agent", ACTS[1][1]), ("call", "make test-stations"), ("result", ACTS[2][2])],
    *[("call", "a.py\n- x = 1\n+ x = 2"), ("result", "ok"), ("agent", ACTS[4][1])],
]
STORES = tuple(agent for agent in AGENTS if isinstance(reader(agent), StoreReader))
DATABASES = {
    "cursor": ".config/Cursor/User/globalStorage/state.vscdb",
    "opencode": ".local/share/opencode/opencode.db",
    "goose": ".local/share/goose/sessions/sessions.db",
}
SECRET = "sk-ant-api03-" + "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5z" * 2 + "AA"


def test_every_reader_is_held_to_this() -> None:
    """Rule readers: an agent without a story here would be read and promise nothing."""
    assert tuple(WRITERS) == AGENTS


@pytest.fixture
def adopt(machine: Machine) -> Callable[[str], Any]:
    def adopted(agent: str) -> Any:
        if agent == "jsonl":
            return machine.adopt("--format", "jsonl", str(machine.home / "exports"))
        return machine.adopt()

    return adopted


def written(agent: str, machine: Machine, *stories: Story) -> None:
    machine.home.mkdir(parents=True, exist_ok=True)
    WRITERS[agent](machine.home, *stories)


def name_of(agent: str, machine: Machine, name: str = "harbour") -> str:
    """Return the id under which a story is listed; aider gives none."""
    if agent == "aider":
        listed = machine.json("sessions", "list")["sessions"]
        return str(listed[-1 if name == "harbour" else 0]["session"])
    return opencode_id(name)[:16] if agent == "opencode" else id_of(name)


def shown(machine: Machine, session: str) -> list[tuple[str, str]]:
    """Return the parts of a session's passages, in order, as they are kept."""
    rows = machine.rows(
        f"select p.parts from passage p join session s on s.id = p.session where s.name = '{session}' "  # noqa: S608
        "order by p.first, p.id"
    )
    return [(kind, text) for (parts,) in rows for kind, text in json.loads(parts)]


@pytest.mark.parametrize("agent", AGENTS)
def test_who_said_and_ran_what_is_read_with_its_folder_and_day(
    agent: str, machine: Machine, adopt: Callable[[str], Any]
) -> None:
    """Rule readers: the same story is the same passages, whichever agent wrote it."""
    written(agent, machine, Story("harbour", ACTS, title="Stations"))

    assert adopt(agent)["problems"] == []

    name = name_of(agent, machine)
    parts = [(kind, text.strip()) for kind, text in shown(machine, name)]
    if agent == "aider":  # Markdown for people: edits stand in what was said, and no output is kept
        parts = [part for part in parts if part != ("call", "edit a.py\n- x = 1\n\n+ x = 2")]
        assert [parts[n] for n in (0, 1, 2)] == [SHOWN[n] for n in (0, 1, 2)] and parts[-1] == SHOWN[-1]
    else:
        plain = [(kind, text.partition(" ")[2] if text.endswith("+ x = 2") else text) for kind, text in parts]
        plain = [(kind, text.removeprefix("Exit code 2\n")) for kind, text in plain if text != "ok"]
        assert plain == [part for part in SHOWN if part[1] != "ok"]
    (one,) = machine.json("sessions", "list")["sessions"]
    assert one["agent"] == agent and one["began"].startswith("2026-03-02T09:0")
    assert one["folder"] == (str(machine.home) if agent == "aider" else "/w/tidepool")
    assert machine.json("adopt", "--status")["problems"] == []


@pytest.mark.parametrize("agent", AGENTS)
def test_a_command_has_its_exit_and_an_edit_both_its_spans(
    agent: str, machine: Machine, adopt: Callable[[str], Any]
) -> None:
    """Rule actions: what the act's own hooks and a handoff need."""
    written(agent, machine, Story("harbour", ACTS))
    adopt(agent)

    ((command, code),) = machine.rows("select text, exit from action where kind = 'command'")
    ((path, old, new),) = machine.rows("select path, old, new from action where kind = 'edit'")

    assert command == "make test-stations" and (code or (0 if agent != "aider" else 1)) > 0
    assert (path, old.strip(), new.strip()) == ("a.py", "x = 1", "x = 2")
    assert "station import of the zeppelin" in machine.json("handoff", name_of(agent, machine))["text"]


@pytest.mark.parametrize("agent", AGENTS)
def test_a_session_that_grew_is_read_on_and_nothing_twice(
    agent: str, machine: Machine, adopt: Callable[[str], Any]
) -> None:
    """Rule index: ids and what was there stay, what is new is found; a look at nothing new reads nothing."""
    story = Story("harbour", [*ACTS, ("agent", "padding " * 200)])
    written(agent, machine, story, Story("other", MORE[:1]))
    adopt(agent)
    first = shown(machine, name_of(agent, machine))
    kept = machine.rows("select id from passage order by id limit 1")

    assert adopt(agent)["read"] == 0
    story.acts = [*story.acts, *MORE]
    written(agent, machine, story, Story("other", MORE[:1]))
    assert adopt(agent)["read"] in (1, 2)

    parts = shown(machine, name_of(agent, machine))
    assert parts[: len(first) - 1] == first[:-1] and len(parts) == len(first) + 2
    assert len(machine.json("sessions", "list")["sessions"]) == 2
    assert agent not in STORES or machine.rows("select id from passage order by id limit 1") == kept
    assert machine.texts("walruses have none")


@pytest.mark.parametrize("agent", sorted(SUB_AGENTS))
def test_a_sub_agent_is_a_session_of_its_own(agent: str, machine: Machine, adopt: Callable[[str], Any]) -> None:
    """Rule readers: what it did stands apart, with its parent's id, and is no newest session to hand over."""
    written(agent, machine, Story("harbour", ACTS), Story("looker", MORE, part_of="harbour"))
    adopt(agent)

    parents = {one["session"]: one.get("parent", "") for one in machine.json("sessions", "list")["sessions"]}

    harbour, looker = name_of(agent, machine), name_of(agent, machine, "looker")
    assert parents == {harbour: "", looker: harbour}
    assert shown(machine, looker) == [("user", MORE[0][1]), ("agent", MORE[1][1])]


@pytest.mark.parametrize("agent", AGENTS)
def test_no_secret_of_any_field_reaches_the_disk(agent: str, machine: Machine, adopt: Callable[[str], Any]) -> None:
    """Rule cleaning x readers: said, run, printed, edited, in a title and in a path."""
    acts: list[Act] = [
        ("user", f"Use {SECRET} please. <private>the blue heron sleeps</private>"),
        ("run", f"export TOKEN={SECRET}", f"{'x y ' * 97}{SECRET} {'z ' * 400} password: Kestrel!42bcdfgk", 1),
        ("edit", "a.env", f"KEY={SECRET}", "KEY="),
        ("agent", f"It is AKIA{'Q3R7' * 4}, and the zeppelin flies."),
    ]
    written(agent, machine, Story("harbour", acts, cwd=f"/w/ghp_{'a1B2' * 9}", title=f"About {SECRET}"))
    adopt(agent)

    held = b"".join(file.read_bytes() for file in machine.files()).decode("utf-8", "replace")

    assert machine.texts("zeppelin flies")
    for secret in (SECRET[:40], SECRET[13:40], "Kestrel!42", "ghp_a1B2", "blue heron", "AKIAQ3R7"):
        assert secret not in held


@pytest.mark.parametrize("agent", AGENTS)
def test_a_forgotten_session_stays_away_while_its_neighbours_stay(
    agent: str, machine: Machine, adopt: Callable[[str], Any]
) -> None:
    """Rule forget x readers: also where both are rows of one file, and the forgotten one goes on."""
    story = Story("harbour", ACTS)
    written(agent, machine, story, Story("other", MORE))
    adopt(agent)

    assert machine.json("adopt", "--forget", name_of(agent, machine))["passages"] > 0
    story.acts = [*ACTS, ("agent", "And on it goes, StationGrid and all.")]
    written(agent, machine, story, Story("other", [*MORE, ("user", "Thanks, walrus.")]))
    adopt(agent)

    assert machine.texts("StationGrid zeppelin") == [] and machine.texts("Thanks, walrus")
    assert b"StationGrid" not in b"".join(file.read_bytes() for file in machine.files())


@pytest.mark.parametrize("agent", AGENTS)
def test_a_purge_takes_the_sessions_that_repeat_a_text(
    agent: str, machine: Machine, adopt: Callable[[str], Any]
) -> None:
    """Rule purge x readers: no byte is left, and the client's own file brings none back."""
    written(
        agent, machine, Story("harbour", [*ACTS, ("agent", "The code is xylophone forty two.")]), Story("other", MORE)
    )
    adopt(agent)
    human, caller = human_of(machine.core.data_dir), Preamble(project_dir=str(machine.home), cwd=str(machine.home))
    asked: dict[str, Any] = {"ids": [], "text": "xylophone"}
    seen = purge_digest(signed_call(machine.core, caller, "purge_preview", asked, human)["memories"])

    assert signed_call(machine.core, caller, "purge", {**asked, "seen": seen}, human)["clean"] is True
    adopt(agent)

    assert machine.texts("xylophone forty two") == [] and machine.texts("walruses have none")
    assert all(b"xylophone" not in file.read_bytes() for file in machine.files())


DAMAGED: dict[str, tuple[str, bytes]] = {
    **{agent: (path, b"SQLite format 3\x00" + b"\xff" * 4_000) for agent, path in DATABASES.items()},
    "cline": (f".cline/data/sessions/{id_of('other')}/{id_of('other')}.messages.json", b'{"messages": [{"role": "us'),
    "aider": (".aider.chat.history.md", b"no chat was ever started here\n"),
}


@pytest.mark.parametrize("agent", STORES)
def test_damage_is_one_line_and_loses_nothing(agent: str, machine: Machine, adopt: Callable[[str], Any]) -> None:
    """Rule failures: what was read stays, also under `keep: never`; once it is mended nothing is said any more."""
    stories = (Story("harbour", ACTS), Story("other", MORE))
    written(agent, machine, *stories)
    adopt(agent)
    name, content = DAMAGED[agent]
    path = machine.home / name
    whole = path.read_bytes()
    path.write_bytes(content)
    adopt(agent)

    (problem,) = machine.json("adopt", "--status")["problems"]
    archive = SessionsFile(machine.core.data_dir / FILE)
    if agent != "aider":  # whose file is another one now
        look_again(archive, machine.core.clock.now(), keep="never", wait=lambda: None)
    archive.close()

    assert problem["path"].startswith(str(path)) and len(problem["problem"]) < 200
    assert machine.texts("StationGrid") and machine.texts("walruses have none")
    path.write_bytes(whole)
    adopt(agent)
    assert machine.json("adopt", "--status")["problems"] == []


@pytest.mark.parametrize("agent", STORES)
def test_values_of_another_shape_cost_themselves(agent: str, tmp_path: Path) -> None:
    """Rule failures: a format that changed is never a crash."""
    own, odd = reader(agent), [None, 3, "x", [], {}, [None], {"text": 3, "content": {"type": []}}, {"role": {}}]
    assert isinstance(own, StoreReader)
    WRITERS[agent](tmp_path, Story("harbour", ACTS))
    if agent in DATABASES:
        path = tmp_path / DATABASES[agent]
        updates = {
            "cursor": "update cursorDiskKV set value = ? where key like 'bubbleId:%'",
            "opencode": "update part set data = ?",
            "goose": "update messages set content_json = ?, metadata_json = ?1",
        }
        for value in odd:
            with closing(sqlite3.connect(path)) as db:
                db.execute(updates[agent], (json.dumps(value),))
                db.commit()
            for found in own.found(path.parent):
                assert all(step.kind != "result" for step in own.whole(found, Facts()))
    for folder in (home / "x" for home in (tmp_path / f"{n}" for n in range(len(odd)))):
        folder.mkdir(parents=True)
        value = odd[int(folder.parent.name)]
        (folder / "a.messages.json").write_text(json.dumps({"messages": value}))
        if agent == "cline":
            assert list(own.whole(FoundSession(agent, folder / "a.messages.json", 1, 1), Facts())) == []


@pytest.mark.parametrize(
    ("agent", "was", "now", "code"),
    [
        ("gemini", '{"error": "ImportError', '{"output": "Output: ImportError', 2),
        ("gemini", '"status": "error"', '"status": "cancelled"', 1),
        ("qwen", '{"error": "ImportError', '{"output": "Output: ImportError', 2),
        ("copilot", '"success": false', '"success": true', 2),
    ],
)
def test_a_command_that_failed_is_no_success(
    agent: str, was: str, now: str, code: int, machine: Machine, adopt: Callable[[str], Any]
) -> None:
    """Rule actions: its client calls it one, since it could start it; what it printed says how it ended."""
    printed = "ImportError: no StationGrid" + ("\nExit Code: 2\nSignal: (none)" if code == 2 else "")
    written(agent, machine, Story("harbour", [*ACTS[:2], ("run", "make test-stations", printed, 2), *ACTS[3:]]))
    (path,) = machine.home.rglob("*.jsonl")
    text = path.read_text()
    assert was in text
    path.write_text(text.replace(was, now, 1).replace('"status": "error"', '"status": "success"'))
    adopt(agent)

    assert machine.rows("select exit from action where kind = 'command'") == [(code,)]


def test_a_call_that_is_written_while_it_runs_ends_as_it_ends(machine: Machine, adopt: Callable[[str], Any]) -> None:
    """Rule actions x gemini: a message is written again with what came of it."""
    written("gemini", machine, Story("harbour", ACTS))
    (path,) = machine.home.rglob("*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    (at,) = (number for number, line in enumerate(lines) if "make test-stations" in json.dumps(line))
    begun = json.loads(json.dumps(lines[at]))
    begun["toolCalls"][0] |= {"status": "executing", "result": []}
    path.write_text("".join(json.dumps(line) + "\n" for line in (*lines[:at], begun, *lines[at:])))
    adopt("gemini")

    assert machine.rows("select exit from action where kind = 'command'") == [(1,)]
    assert ("result", ACTS[2][2]) in shown(machine, id_of("harbour"))


def test_a_cancelled_command_of_cursor_is_no_success(machine: Machine, adopt: Callable[[str], Any]) -> None:
    """Rule actions: it did not end well."""
    written("cursor", machine, Story("harbour", ACTS))
    with closing(sqlite3.connect(machine.home / DATABASES["cursor"])) as db:
        to = "json_set(value, '$.toolFormerData.status', 'cancelled', '$.toolFormerData.result', '{\"output\": \"x\"}')"
        db.execute(f"update cursorDiskKV set value = {to} where value like '%make test-stations%'")  # noqa: S608
        db.commit()
    adopt("cursor")

    assert machine.rows("select exit from action where kind = 'command'") == [(1,)]


SURROGATE = json.dumps({"command": ["bash", "-lc", "make \ud83d"]})
CALL = {"type": "response_item", "payload": {"type": "function_call", "name": "shell", "arguments": SURROGATE}}
PRINTED = {"type": "response_item", "payload": {"type": "function_call_output", "output": '{"output": "x \\ud83d"}'}}
ODD_LINES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "a list": ("jsonl", ({"tool": "sh", "input": {"command": ["bash", "-lc", "make"], "path": "p"}},)),
    "an object": ("jsonl", ({"tool": "sh", "input": {"command": {"a": 1}, "path": "p"}},)),
    "a large exit": ("jsonl", ({"tool": "sh", "input": {}, "call": "c"}, {"call": "c", "output": "x", "exit": 10**20})),
    "a long time": ("jsonl", ({"text": "hm", "at": 10**400},)),
    "a list as type": ("gemini", ({"id": "m8", "type": ["user"], "content": "hm"},)),
    "half a character": ("codex", (CALL, PRINTED)),
}


@pytest.mark.parametrize("odd", ODD_LINES)
def test_an_odd_line_of_a_transcript_costs_itself(odd: str, machine: Machine, adopt: Callable[[str], Any]) -> None:
    """Rule failures: what stands before it and after it is read, and so is every other file."""
    agent, lines = ODD_LINES[odd]
    written(agent, machine, Story("harbour", [*ACTS, *MORE]), Story("other", MORE))
    path = next(file for file in machine.home.rglob(f"*{id_of('harbour')}.jsonl"))
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([first, *map(json.dumps, lines), *rest]) + "\n")

    assert adopt(agent)["problems"] == []

    assert machine.texts("umlauts latin-1") and len(machine.json("sessions", "list")["sessions"]) == 2


def test_odd_values_of_a_store_cost_themselves(machine: Machine) -> None:
    """Rule failures: an id, a folder or a list of commands of another form."""
    for agent in ("cline", "cursor", "goose"):
        written(agent, machine, Story("harbour", [*ACTS, *MORE]))
    (path,) = machine.home.rglob("*.messages.json")
    path.write_text(path.read_text().replace('"make test-stations"\n', '["ls"]\n', 1))
    with closing(sqlite3.connect(machine.home / DATABASES["cursor"])) as db:
        to = "json_set(value, '$.workspaceUris', json(?))"
        db.execute(f"update cursorDiskKV set value = {to} where key like 'bubbleId%'", ('["file://[x/w"]',))  # noqa: S608
        db.commit()
    with closing(sqlite3.connect(machine.home / DATABASES["goose"])) as db:
        db.executescript(
            "create table m as select 'x' || id id, message_id, session_id, role, content_json, created_timestamp, "
            "timestamp, tokens, metadata_json from messages; drop table messages; alter table m rename to messages"
        )

    assert machine.adopt()["problems"] == []
    assert sorted(machine.rows("select agent from session")) == [("cline",), ("cursor",), ("goose",)]


def test_a_file_s_name_may_be_no_text(machine: Machine, adopt: Callable[[str], Any]) -> None:
    """Rule failures: bytes that are no UTF-8 are told apart all the same."""
    written("jsonl", machine, Story("other", MORE))
    for name in (b"a\xff.jsonl", b"a\xfe.jsonl"):
        path = os.fsencode(machine.home / "exports") + b"/" + name
        Path(os.fsdecode(path)).write_text('{"role": "user", "text": "A quiet pelican."}\n')

    assert adopt("jsonl")["problems"] == []
    assert len(machine.json("sessions", "list")["sessions"]) == 3 and adopt("jsonl")["read"] == 0


@pytest.mark.parametrize("where", ["whole", "found", "keep"])
def test_a_format_that_is_not_known_is_one_line(where: str, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule failures: whatever a reader raises, the other files and agents are read."""
    written("goose", machine, Story("harbour", ACTS), Story("third", MORE))
    written("codex", machine, Story("other", MORE))

    def odd(*given: Any) -> Any:
        raise KeyError(given)

    if where == "keep":
        written("jsonl", machine, Story("harbour", ACTS))
        kept = jsonl.resulted
        too_large = lambda *given, **named: replace(kept(*given, **named), exit=10**20)  # noqa: E731
        monkeypatch.setattr(jsonl, "resulted", too_large)
        machine.adopt("--format", "jsonl", str(machine.home / "exports"))
    else:
        with monkeypatch.context() as patch:
            patch.setattr(reader("goose"), where, odd)
            machine.adopt()

    problems = machine.json("adopt", "--status")["problems"]
    assert {one["problem"] for one in problems} == {"its format is not known here"}
    assert where == "found" or len(problems) == (2 if where == "whole" else 1)
    assert where == "keep" or machine.texts("walruses have none")
    if where == "found":
        machine.adopt()
        left = {one["path"] for one in machine.json("adopt", "--status")["problems"]}
        assert str(machine.home / DATABASES["goose"]).rpartition("/")[0] not in left and machine.texts("StationGrid")


@pytest.mark.parametrize("writes", [cursor_before, WRITERS["cursor"]])
def test_a_conversation_of_cursor_has_its_name_folder_and_parent_wherever_they_stand(
    writes: Callable[..., None], machine: Machine
) -> None:
    """Rule readers.cursor: in itself and one value for all, or in a table."""
    writes(machine.home, Story("harbour", ACTS, title="Stations"), Story("looker", MORE, part_of="harbour"))
    machine.adopt()

    listed = {one["session"]: one for one in machine.json("sessions", "list")["sessions"]}
    harbour, looker = listed[id_of("harbour")], listed[id_of("looker")]
    assert (harbour["title"], harbour["folder"], harbour.get("parent")) == ("Stations", "/w/tidepool", None)
    assert (looker["folder"], looker["parent"]) == ("/w/tidepool", id_of("harbour"))


@pytest.mark.parametrize("writes", [cursor_before, WRITERS["cursor"]])
def test_of_conversations_of_cursor_each_text_is_read_once(
    writes: Callable[..., None], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule bounds x readers.cursor: what a session needs of the list of all does not grow with the others."""
    stories = [Story(f"story {number}", MORE, title=f"Told {number}") for number in range(40)]
    writes(machine.home, *stories)
    monkeypatch.setattr(client_database, "ALL_BYTES_MAX", 9_000)  # the whole list holds more

    machine.adopt()

    assert machine.json("adopt", "--status")["problems"] == []
    titles = {one["title"] for one in machine.json("sessions", "list", "--limit", "100")["sessions"]}
    assert titles == {f"Told {number}" for number in range(40)}


def _without_parents(machine: Machine, *others: str) -> None:
    """Make the sub agents of Goose ones that name no parent, each with what others say after it."""
    with closing(sqlite3.connect(machine.home / DATABASES["goose"])) as db:
        db.execute("update sessions set parent_session_id = null")
        for number, said in enumerate(others, 1):
            row = (id_of("harbour"), said, 5_000 + number)
            db.execute("insert into messages(session_id, content_json, id, role) values (?, ?, ?, 'user')", row)
        db.commit()


def test_a_sub_agent_of_goose_that_nobody_tells_of_has_no_parent(machine: Machine) -> None:
    """Rule readers.goose: none is invented; who told of it once the session goes on is its parent, and stays it."""
    written("goose", machine, Story("harbour", ACTS), Story("looker", MORE, title="Delegated", part_of="harbour"))
    _without_parents(machine)
    machine.adopt()
    parent = lambda: machine.rows("select parent, title from session where title <> '' or parent <> ''")  # noqa: E731
    assert parent() == []

    told = json.dumps([{"_meta": {"subagent_session_id": id_of("looker")}}], separators=(",", ":"))
    written("goose", machine, Story("looker", [*MORE, ("agent", "And so on.")], part_of="harbour"))
    _without_parents(machine, "[]", told)
    machine.adopt()
    assert parent() == [(id_of("harbour"), "")]

    written("goose", machine, Story("looker", [*MORE, *MORE, ("agent", "And so on.")], part_of="harbour"))
    _without_parents(machine)
    with closing(sqlite3.connect(machine.home / DATABASES["goose"])) as db:
        db.execute("delete from messages where session_id = ?", (id_of("harbour"),))
        db.commit()
    machine.adopt()
    assert parent() == [(id_of("harbour"), "")]


def test_what_goose_shows_the_person_and_the_model_is_one_output(machine: Machine) -> None:
    """Rule readers.goose: releases before 1.30 give it twice."""
    written("goose", machine, Story("harbour", ACTS))
    with closing(sqlite3.connect(machine.home / DATABASES["goose"])) as db:
        ((id, content),) = db.execute(
            "select id, content_json from messages where content_json like '%toolResp%no StationGrid%'"
        ).fetchall()
        told = json.loads(content)
        value = told[0]["toolResult"]["value"]
        value["content"] = [value["content"][0] | {"annotations": {"audience": [who]}} for who in ("assistant", "user")]
        db.execute("update messages set content_json = ? where id = ?", (json.dumps(told), id))
        db.commit()
    machine.adopt()

    assert next(text for kind, text in shown(machine, id_of("harbour")) if kind == "result") == ACTS[2][2]


# --- what is let go ---------------------------------------------------------------------------------------------------


@pytest.fixture
def looks(machine: Machine) -> Iterator[Callable[[str], int]]:
    archive = SessionsFile(machine.core.data_dir / FILE)
    yield lambda keep: look_again(archive, machine.core.clock.now(), keep=keep, wait=lambda: None)
    archive.close()


@pytest.mark.parametrize("agent", AGENTS)
def test_a_file_that_comes_back_is_there(
    agent: str, machine: Machine, adopt: Callable[[str], Any], looks: Callable[[str], int]
) -> None:
    """Rule sessions.keep: gone is counted from the last time; and what was let go is read again."""
    written(agent, machine, Story("harbour", ACTS))
    adopt(agent)
    (name,) = {one.path for one in AdoptChoice.stored(SessionsFile(machine.core.data_dir / FILE)).found()}  # type: ignore[union-attr]
    away = name.with_name("away")
    name.rename(away)
    looks("always")
    assert machine.json("adopt", "--status")["gone"] == 1

    away.rename(name)
    looks("always")
    assert machine.json("adopt", "--status")["gone"] == 0
    looks("never")
    assert machine.texts("StationGrid" if agent != "aider" else "umlauts")

    name.rename(away)
    looks("never")
    assert machine.texts("StationGrid umlauts") == []
    away.rename(name)
    looks("never")
    assert machine.texts("StationGrid umlauts")


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("words", [("--since", "2999-01-01"), ("--exclude", "/")])
def test_what_is_no_longer_chosen_is_not_gone(
    agent: str, words: tuple[str, str], machine: Machine, adopt: Callable[[str], Any], looks: Callable[[str], int]
) -> None:
    """Rule sessions.keep x choice: it is still there."""
    written(agent, machine, Story("harbour", ACTS))
    adopt(agent)
    archive = SessionsFile(machine.core.data_dir / FILE)
    chosen = AdoptChoice.stored(archive)
    assert chosen is not None
    narrow = {"since": 3e10} if words[0] == "--since" else {"exclude": ["/"]}
    archive.keep_note("choice", replace(chosen, **narrow).encoded())
    archive.close()

    looks("never")

    assert machine.texts("StationGrid umlauts") and machine.json("adopt", "--status")["gone"] == 0


@pytest.mark.parametrize("agent", AGENTS)
def test_what_cannot_be_looked_into_is_not_gone(
    agent: str,
    machine: Machine,
    adopt: Callable[[str], Any],
    looks: Callable[[str], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rule sessions.keep x failures: in a folder that cannot be listed, or where a file cannot be asked for."""
    written(agent, machine, Story("harbour", ACTS))
    adopt(agent)

    def shut(*given: Any, **named: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(nofollow, "walk", shut)
        looks("never")
    assert machine.texts("StationGrid umlauts")

    status, lstat = os.stat, os.lstat
    paths = {path for (path,) in machine.rows("select path from source where problem = ''")}
    with monkeypatch.context() as patch:
        patch.setattr(nofollow, "walk", lambda *given, **named: iter(()))
        patch.setattr(os, "stat", lambda path, **more: shut() if str(path) in paths else status(path, **more))
        patch.setattr(os, "lstat", lambda path, **more: shut() if str(path) in paths else lstat(path, **more))
        looks("never")
    assert machine.texts("StationGrid umlauts")


def test_a_later_id_does_not_rename_a_session(machine: Machine, adopt: Callable[[str], Any]) -> None:
    """Rule forget x jsonl: what was read, or forgotten, under its file's name keeps it."""
    folder = machine.home / "exports"
    folder.mkdir(parents=True)
    for name in ("kept", "gone"):
        (folder / f"{name}.jsonl").write_text(
            json.dumps({"role": "user", "text": f"A quiet pelican is {name}."}) + "\n"
        )
    adopt("jsonl")
    machine.json("adopt", "--forget", "gone")
    for name in ("kept", "gone"):
        lines = [{"session": f"x-{name}", "role": "user", "text": f"A quiet pelican, {name} and changed."}]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines * 2))
    adopt("jsonl")

    assert machine.rows("select name from session") == [("kept",)]
    assert b"gone and changed" not in b"".join(file.read_bytes() for file in machine.files())


# --- databases that a client has open ---------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", sorted(DATABASES))
def test_a_database_is_read_while_its_client_writes_and_nothing_of_it_changes(agent: str, machine: Machine) -> None:
    """Rule clients: no lock that it waits for, no file beside its own, its log as it was."""
    written(agent, machine, Story("harbour", ACTS))
    path = machine.home / DATABASES[agent]
    table = "composerHeaders" if agent == "cursor" else "session" if agent == "opencode" else "sessions"
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as client:
        client.execute("create table own(x)")
        client.execute("begin immediate")
        client.execute("insert into own values ('not committed')")
        before = {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}
        assert machine.adopt()["problems"] == []
        rows = queried(
            path,
            lambda select: (client.in_transaction and client.commit(), list(select("select count(*) n from own")))[1],
        )
        after = {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}

    assert machine.texts("StationGrid") and rows[0]["n"] in (0, 1)
    assert {name: before[name] for name in before if not name.endswith(("-journal", "-wal"))}.keys() <= after.keys()
    at_rest = sorted(file.name for file in path.parent.iterdir())
    assert queried(path, lambda select: list(select(f"select count(*) n from {table}")))[0]["n"] == 1  # noqa: S608
    assert sorted(file.name for file in path.parent.iterdir()) == at_rest == [path.name]


def test_what_a_client_has_only_in_its_log_is_read_and_the_log_is_left(machine: Machine) -> None:
    """Rule clients: the newest rows of a running client are in the log, whose bytes stay."""
    written("opencode", machine, Story("harbour", ACTS))
    path = machine.home / DATABASES["opencode"]
    with closing(sqlite3.connect(path)) as client:
        client.execute("pragma wal_autocheckpoint = 0")
        client.execute("update session set title = 'From the log'")
        client.commit()
        before = [path.read_bytes(), Path(f"{path}-wal").read_bytes()]
        machine.adopt()
        after = [path.read_bytes(), Path(f"{path}-wal").read_bytes()]

    assert before == after and len(before[1]) > 0
    assert machine.json("sessions", "list")["sessions"][0]["title"] == "From the log"


def test_a_database_without_a_log_that_changes_meanwhile_is_read_again(tmp_path: Path) -> None:
    """Rule clients: one moment, or a sentence; never half of two."""
    path = tmp_path / "state.vscdb"
    with closing(sqlite3.connect(path, isolation_level=None)) as client:
        client.execute("create table t(x)")
        client.execute("insert into t values (0)")
        often, once = [0], [0]

        def writes(count: list[int], most: int) -> list[Any]:
            def body(select: Any) -> list[Any]:
                rows = list(select("select x from t"))
                if count[0] < most:
                    count[0] += 1
                    client.execute("update t set x = x + 1")
                return rows

            return queried(path, body)

        assert writes(once, 1) == [{"x": 1}]
        with pytest.raises(BadInput, match="being written"):
            writes(often, 99)
    assert often == [3]


def test_a_database_that_holds_too_much_is_one_line(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule bounds: of one text, and of a session; the others are read."""
    written("goose", machine, Story("harbour", [*ACTS, ("agent", "p" * 9_000)]), Story("other", MORE))
    monkeypatch.setattr(client_database, "ALL_BYTES_MAX", 8_000)
    machine.adopt()
    (problem,) = machine.json("adopt", "--status")["problems"]
    monkeypatch.setattr(client_database, "TEXT_BYTES_MAX", 8_500)
    monkeypatch.setattr(client_database, "ALL_BYTES_MAX", 80_000)
    written("goose", machine, Story("harbour", [*ACTS, ("agent", "p" * 9_000), *MORE]), Story("other", MORE))
    machine.adopt()
    (left_out,) = machine.json("adopt", "--status")["problems"]

    assert problem["path"].endswith(f"#{id_of('harbour')}") and "8000 bytes of text" in problem["problem"]
    assert left_out["path"] == problem["path"] and "above 8 MB" in left_out["problem"]
    assert machine.texts("StationGrid") and machine.texts("walruses have none")


def test_an_id_that_holds_a_secret_is_a_digest(machine: Machine) -> None:
    """Rule cleaning: also of what a session is called, and of its parent."""
    lines = [{"session": f"a {SECRET}", "parent": SECRET, "role": "user", "text": "A quiet pelican."}]
    (machine.home / "exports").mkdir(parents=True)
    (machine.home / "exports" / "one.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    machine.adopt("--format", "jsonl", str(machine.home / "exports"))

    (one,) = machine.json("sessions", "list")["sessions"]
    assert machine.json("sessions", "show", one["session"])["passages"]
    assert all(SECRET[13:40].encode() not in file.read_bytes() for file in machine.files())


def test_a_link_and_a_stranger_s_database_are_not_opened(machine: Machine, tmp_path: Path) -> None:
    """Rule failures: nothing outside the folder is opened."""
    written("goose", machine, Story("harbour", ACTS))
    path = machine.home / DATABASES["goose"]
    path.rename(tmp_path / "elsewhere.db")
    path.symlink_to(tmp_path / "elsewhere.db")
    machine.adopt()

    (problem,) = machine.json("adopt", "--status")["problems"]
    assert "link" in problem["problem"] and machine.rows("select count(*) from session") == [(0,)]
    with pytest.raises(BadInput, match="no regular file"):
        queried(path, lambda select: None)


# --- aider -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stopped", "parts"),
    [
        ("> ^C again to exit  \n\n#### And the walrus?  \n\nIt hums.\n", ["And the walrus?", "It hums."]),
        ("#### And the walrus?  \n\nIt hums.\n", ["And the walrus?", "It hums."]),
        ("#### And the walrus?  \n\n```\nhum()\n```\n", ["And the walrus?", "```\nhum()\n```"]),
        ("#### No question  \n```\n\n#### And the walrus?  \n\nIt hums.\n", ["And the walrus?", "It hums."]),
        ("", []),
    ],
)
def test_a_block_of_code_that_was_left_open_takes_nothing_with_it(
    stopped: str, parts: list[str], machine: Machine
) -> None:
    """Rule readers.aider: neither what is typed next, nor the next start, nor what was answered so far."""
    machine.home.mkdir(parents=True, exist_ok=True)
    start = "# aider chat started at 2026-03-02 {}:00:00\n\n"
    begun = "#### Write a pelican.  \n\nHere:\n\n```python\nfly()\n\n"
    later = "#### Where is the heron?  \n\nAsleep.\n"
    path = machine.home / ".aider.chat.history.md"
    path.write_text(f"{start.format('09')}{begun}{stopped}{start.format('10')}{later}")
    machine.adopt()

    rows = machine.rows("select p.parts from passage p join session s on s.id = p.session order by s.began, p.first")
    read = [(kind, text.strip("\n")) for (of_one,) in rows for kind, text in json.loads(of_one)]
    code = "Here:\n\n```python\nfly()" + ("\n\n#### No question  \n```" if "No question" in stopped else "")
    said = [("user", "Write a pelican."), ("agent", code), *zip(("user", "agent"), parts, strict=False)]
    assert read == [*said, ("user", "Where is the heron?"), ("agent", "Asleep.")]


def test_a_history_is_read_once_however_often_it_was_started(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule bounds x aider: and again once it changed."""
    reads: list[Path] = []
    read_own_file = aider.read_own_file

    def counted(path: Path, **limits: Any) -> bytes:
        reads.append(path)
        return read_own_file(path, **limits)

    monkeypatch.setattr(aider, "read_own_file", counted)
    written("aider", machine, *(Story(f"s{number}", MORE) for number in range(9)))
    machine.adopt()
    assert len(reads) == 1 and machine.rows("select count(*) from session") == [(9,)]

    written("aider", machine, *(Story(f"s{number}", [*MORE, ("agent", "And more.")]) for number in range(9)))
    assert machine.adopt()["read"] == 9 and len(reads) == 2


# --- the neutral format -----------------------------------------------------------------------------------------------


def test_a_folder_of_lines_joins_what_was_chosen_and_stays_chosen(machine: Machine) -> None:
    """Rule adopt x jsonl: an engine looks there too, and a later `adopt` without it does not drop it."""
    written("codex", machine, Story("harbour", ACTS))
    machine.adopt()
    written("jsonl", machine, Story("other", MORE))
    machine.adopt("--format", "jsonl", str(machine.home / "exports"))
    machine.adopt()
    machine.adopt("--only", "codex")
    written("jsonl", machine, Story("other", [*MORE, ("user", "And the pelican?")]))
    archive = SessionsFile(machine.core.data_dir / FILE)
    look_again(archive, machine.core.clock.now(), keep="always", wait=lambda: None)
    archive.close()

    assert machine.texts("pelican") and machine.texts("StationGrid")


@pytest.mark.parametrize(
    "words", [("--format", "jsonl"), ("--format", "xml", "."), (".",), ("--format", "jsonl", "/no/such")]
)
def test_a_format_and_its_folder_go_together(machine: Machine, words: tuple[str, ...]) -> None:
    """Rule adopt: one without the other is a mistake that is named."""
    done = machine.run("adopt", "--yes", *words)

    assert done.exit_code == 2 and "--format jsonl FOLDER" in done.output


def test_aider_is_found_in_the_projects_that_are_known(machine: Machine, project: Path) -> None:
    """Rule adopt x projects: it writes where it was started, and nowhere that a home would tell."""
    machine.core.projects.of(str(project))
    WRITERS["aider"](machine.home, Story("harbour", ACTS))
    (machine.home / ".aider.chat.history.md").rename(project / ".aider.chat.history.md")
    machine.adopt()

    (one,) = machine.json("sessions", "list")["sessions"]
    assert one["agent"] == "aider" and one["folder"] == str(project)
