"""Sessions that the agents themselves wrote, against a scripted model: read as what happened in them."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from sessionkit import Machine

RECORDED = Path(__file__).parents[1] / "recorded"


def told(machine: Machine, session: str) -> str:
    passages = machine.json("sessions", "show", session)["passages"]
    return "\n".join(str(passage["text"]) for passage in passages)


def listed(machine: Machine) -> dict[str, dict[str, Any]]:
    return {str(one["session"]): one for one in machine.json("sessions", "list")["sessions"]}


def test_a_session_of_opencode(machine: Machine) -> None:
    """opencode 1.18.33: two prompts, a command that fails, an edit, a sub agent."""
    path = machine.home / ".local/share/opencode/opencode.db"
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as client:
        client.execute("pragma journal_mode = wal")
        client.executescript((RECORDED / "opencode.sql").read_text("utf-8"))
        assert machine.adopt()["problems"] == []

    sessions, main = listed(machine), told(machine, "ses_ddcbb5d77ffe")

    assert {name: one.get("parent", "") for name, one in sessions.items()} == {
        "ses_ddcbb5d77ffe": "",
        "ses_ddcbb370dffe": "ses_ddcbb5d77ffe",
    }
    assert sessions["ses_ddcbb5d77ffe"]["folder"] == "/home/dev/weather"
    assert main.index('user: "Why does the station import fail') < main.index("$ make test-weather\n> make: ***")
    assert main.index("- x = 1\n+ x = 2") < main.index("agent: Because the station import failed on umlauts")
    assert main.endswith('user: "Never push from this machine."\nagent: Understood: never push from here.')
    assert told(machine, "ses_ddcbb370").startswith("user: Find the zebra stations.")
    assert machine.rows("select text, exit from action where kind = 'command' order by id") == [
        ("make test-weather", 2),
        ('python3 -c "print(1+1)"', 0),
    ]


def test_sessions_of_goose(machine: Machine) -> None:
    """Goose 1.34.0: a command that fails, an edit, a session that is resumed, a sub agent that names no parent."""
    path = machine.home / ".local/share/goose/sessions/sessions.db"
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as client:
        client.execute("pragma journal_mode = wal")
        client.executescript((RECORDED / "goose.sql").read_text("utf-8"))
        assert machine.adopt()["problems"] == []

    sessions, main = listed(machine), told(machine, "20261128_1")

    assert {name: one.get("parent", "") for name, one in sessions.items()} == {
        "20261128_1": "", "20261128_2": "", "20261128_3": "20261128_2",
    }  # fmt: skip
    assert sessions["20261128_1"]["folder"] == "/home/dev/trains" and sessions["20261128_1"]["title"] == "Stations"
    assert sessions["20261128_3"]["title"] == "Find the zebra herds."
    assert main.startswith(
        "user: Why does the station import fail? Fix a.py.\nagent: I run the tests first.\n$ make test-"
    )
    assert "- x = 1\n+ x = 2\n> Edited a.py" in main and main.endswith("agent: Understood: never push from here.")
    assert told(machine, "20261128_2").endswith(
        "$ delegate Find the zebra herds.\n> One zebra, in b.py.\nagent: One zebra, in b.py."
    )
    assert machine.rows("select text, exit from action where kind = 'command' order by text") == [
        ("grep -rn zebra .", 0), ("make test-stations", 2),
    ]  # fmt: skip


def test_sessions_of_cline(machine: Machine) -> None:
    """Cline 3.0.65: commands in lists, an edit that was rejected, a patch, a sub agent."""
    shutil.copytree(RECORDED / "cline", machine.home / ".cline/data/sessions")

    assert machine.adopt()["problems"] == []
    sessions = listed(machine)
    first, second = told(machine, "1795888246296"), told(machine, "1795888291887_e2i69")

    looker = "1795888291887_e2i69__agent_1795888292154_g1nj15"
    assert len(sessions) == 3 and sessions[looker]["parent"] == "1795888291887_e2i69"
    assert {one["folder"] for one in sessions.values()} == {"/home/dev/trees"}
    assert first.startswith(
        "user: Why does the tree import fail? Fix a.py.\nagent: I run the tests first.\n$ make test-"
    )
    assert "> Tool call editor was rejected" in first and "user_input" not in first + second
    assert "$ apply_patch a.py\n- x = 1\n+ x = 2\n> Successfully applied patch" in second
    assert machine.rows("select text, exit from action where kind = 'command' order by id")[:2] != []
    assert dict(machine.rows("select text, exit from action where kind = 'command'"))["make test-trees"] == 2
    assert [exit for (exit,) in machine.rows("select exit from action where kind = 'edit' order by exit")] == [0, 1]


def test_a_history_of_aider(machine: Machine) -> None:
    """aider 0.86.2: three starts in one file, an edit that was applied, commands, a prompt of two lines."""
    machine.home.mkdir(parents=True)
    shutil.copy(RECORDED / "aider.md", machine.home / ".aider.chat.history.md")

    assert machine.adopt()["problems"] == []
    last, middle, first = (told(machine, name) for name in listed(machine))

    assert first.startswith("user: add() gives 0 for add(1, 1). Fix it.\nagent: The sign is wrong, because")
    assert "\n$ edit calc.py\n-     return a - b\n" in first and "Aider v0" not in first + middle + last
    assert middle.startswith('$ python3 -c "import calc; print(calc.add(1, 1))"\nuser: How do we release?\nAnd when?')
    assert "$ false" in middle and "/exit" not in middle
    assert last == "user: Never push from this machine.\nagent: Understood."
