"""Moving in and out: what other tools left lands in the inbox once, with date and place; pages come back as they were.

`tests/other_tools/` holds stores that those tools made themselves (the server's memory.jsonl; the tables of claude-mem
13.25.3 after two calls of its own API, and of mem0 2.2.1's history, as SQL), and files as their documentation has them.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import Result

from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.extensions.transfer import commands as moving
from memory_anchor.extensions.transfer import other_tools
from memory_anchor.extensions.transfer.commands import TOOL_NAMES
from memory_anchor.extensions.transfer.other_tools import TOOLS, ReadItem, parse_time
from memory_anchor.front.cli import link
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor

STORES = Path(__file__).resolve().parents[1] / "other_tools"
Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _one_memory(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that open the data folder themselves ask the memory of this process, like all the others."""
    monkeypatch.setattr(moving, "open_session", lambda: nullcontext(link.call))


@pytest.fixture
def mine(core: Core, project: Path, human: object) -> MemoryAnchor:
    """The memory as its human at a terminal of the project sees it."""
    return core.anchor(Actor(Caller.HUMAN, Scope(), client="cli", project_dir=str(project)))


def place_of(tool: str, tmp_path: Path) -> Path:
    """Return where a test's store of a tool lies; a database is made from the statements that hold it."""
    for dump in STORES.glob(f"{tool}-*.sql"):
        file = tmp_path / ("history.db" if tool == "mem0" else f"{tool}.db")
        with closing(sqlite3.connect(file)) as base:
            base.executescript(dump.read_text("utf-8"))
        return file
    return {"server-memory": STORES / "memory.jsonl", "claude-auto-memory": STORES / "auto-memory"}.get(
        tool, STORES / tool
    )


def lines_of(tool: str, tmp_path: Path) -> dict[str, dict[str, Any]]:
    """Return what a tool's store gives, by its text."""
    found = list(other_tools.read_items(tool, place_of(tool, tmp_path), home=tmp_path))
    assert [one for one in found if one.problem] == []
    return {one.line["content"]: {**one.line, "place": one.location} for one in found if one.line is not None}


def test_a_list_of_rules_becomes_one_memory_a_rule(tmp_path: Path) -> None:
    """Rule moving.in: items stand under their headings and cite their line; imports and introductions are not rules."""
    rules = lines_of("claude-md", tmp_path)

    assert list(rules) == [
        "The ledger keeps every booking of the shop; amounts are cents in integers.",
        "run `make check`",
        "run `make test`\nand read its last line",
        "```sh\nmake release VERSION=1.2.0\n```",
        "所有金额用分表示，不用浮点数",
        "Never edit `migrations/` by hand",
    ]
    check = rules["run `make check`"]
    assert (check["type"], check["key"]) == ("instruction", "Ledger · Commands · Before a commit")
    assert (check["place"], check["cites"]) == ("CLAUDE.md:11", ["claude-md:CLAUDE.md:11"])


def test_an_agents_own_notes_keep_their_kind(tmp_path: Path) -> None:
    """Rule moving.in: front matter says what a note is; an index that only links to notes is none."""
    (note,) = lines_of("claude-auto-memory", tmp_path).values()

    assert (note["type"], note["key"], note["place"]) == ("instruction", "Deploys", "deploys.md:8")


def test_a_knowledge_graph_becomes_sentences(tmp_path: Path) -> None:
    """Rule moving.in: an observation says of whom it is; a relation is a sentence."""
    graph = lines_of("server-memory", tmp_path)

    assert set(graph) == {
        "Ada: Leads the billing team",
        "Ada: Prefers reviews before noon",
        "Ledger service: Runs on PostgreSQL 16",
        "Ledger service: 部署在上海机房",
        "Ledger service: The nightly export starts at 02:30",
        "Ada is responsible for Ledger service",
    }
    assert graph["Ledger service: 部署在上海机房"]["cites"] == ["server-memory:Ledger service#2"]


def test_of_a_history_the_newest_that_was_not_deleted_counts(tmp_path: Path) -> None:
    """Rule moving.in: a memory of mem0 has its last text and that text's time."""
    memories = lines_of("mem0", tmp_path)

    assert {text: one["when"] for text, one in memories.items()} == {
        "User is vegetarian": "2025-03-01T10:00:00+00:00",
        "User lives in Porto": "2025-03-03T10:00:00+00:00",
        "用户每天早上跑步": "2025-03-06T10:00:00+00:00",
    }


def test_what_mem0_gave_as_json_is_read_too(tmp_path: Path) -> None:
    """Rule moving.in: `get_all()` saved to a file, in either of its shapes."""
    one = {"id": "a", "memory": "Likes tea", "created_at": "2025-01-02T03:04:05Z", "categories": ["food"]}
    for shape in ([one], {"results": [one]}):
        (tmp_path / "all.json").write_text(json.dumps(shape))
        (found,) = other_tools.read_items("mem0", tmp_path / "all.json", home=tmp_path)
        assert found.line == {
            "content": "Likes tea",
            "type": "fact",
            "cites": ["mem0:a"],
            "tags": ["food"],
            "when": "2025-01-02T03:04:05+00:00",
        }


def test_observations_keep_title_project_and_time(tmp_path: Path) -> None:
    """Rule moving.in: claude-mem's own words for kinds are not ours; a discovery is a fact that waits."""
    seen = lines_of("claude-mem", tmp_path)

    first = seen["Nightly export window\nThe nightly export runs at 02:30 and must finish before 04:00"]
    assert (first["type"], first["cites"]) == ("fact", ["claude-mem:observation:1"])
    assert first["tags"] == ["project:ledger", "discovery"]
    assert first["when"].startswith("2026-11-22T23:53:24")
    assert any("逻辑复制" in text for text in seen)


def test_a_note_gives_its_observations_relations_and_prose(tmp_path: Path) -> None:
    """Rule moving.in: `- [category] text #tag` says of its note; the note's date is the memory's."""
    notes = lines_of("basic-memory", tmp_path)

    assert set(notes) == {
        "We ship on Tuesdays.",
        "Deploy day: Releases go out on Tuesday mornings   (agreed with ops)",
        "Deploy day: 缓存使用 Redis 7",
        "Deploy day depends on Ledger service",
    }
    assert notes["Deploy day: 缓存使用 Redis 7"]["tags"] == ["技术", "cache", "ops"]
    assert {one["when"] for one in notes.values()} == {"2025-03-04T09:00:00+00:00"}


def test_a_store_that_basic_memory_made_gives_its_notes_with_the_files_own_time(tmp_path: Path) -> None:
    """Rule moving.in: its tags carry a `#`, its notes no date: the file's own time is the memory's."""
    at = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
    place = tmp_path / "notes"
    shutil.copytree(STORES / "basic-memory-0.12.3", place)
    for file in place.rglob("*.md"):
        os.utime(file, (at.timestamp(), at.timestamp()))
    notes = [one.line or {} for one in other_tools.read_items("basic-memory", place, home=tmp_path)]

    assert {one["content"]: one.get("tags", []) for one in notes} == {
        "We ship on Tuesdays.": ["ops", "release"],
        "Deploy day: Releases go out on Tuesday mornings   (agreed with ops)": ["process", "deploy", "ops", "release"],
        "Deploy day: 缓存使用 Redis 7": ["技术", "cache", "ops", "release"],
        "Deploy day depends on Ledger service": ["ops", "release"],
        "Deploy day is related to Ada": ["ops", "release"],
        "Ledger service: Runs on PostgreSQL 16": ["db"],
        "Ledger service: Amounts are cents in integers, never floats": ["rule"],
    }
    assert {one["when"] for one in notes} == {at.isoformat()}


def test_both_forms_of_one_mem0_store_are_one(run: Run, core: Core, tmp_path: Path) -> None:
    """Rule moving.in: what get_all() gave of a store is what its history tells, by the same ids."""
    memories = [one.line or {} for one in other_tools.read_items("mem0", STORES / "mem0-2.2.1.json", home=tmp_path)]

    assert {one["content"] for one in memories} == {"User is vegetarian", "User lives in Porto", "用户每天早上跑步"}
    assert [one["when"] for one in memories if "Porto" in one["content"]] == ["2026-11-23T08:27:01.845477+00:00"]
    first = json.loads(run("import", str(STORES / "mem0-2.2.1.json"), "--from", "mem0", "--json").stdout)
    again = json.loads(run("import", str(STORES / "mem0-2.2.1.json"), "--from", "mem0", "--json").stdout)
    assert (first["pending"], again["pending"], again["skipped"]) == (3, 0, 3)


def test_a_concept_keeps_its_sources(tmp_path: Path) -> None:
    """Rule moving.in: an OKF page of another tool is one memory; index pages are none."""
    (orders,) = lines_of("okf", tmp_path).values()

    assert orders["content"] == "One row per completed customer order.\n\n`order_id` is unique over all shops."
    assert orders["cites"] == ["okf:tables/orders", "https://wiki.example/orders"]
    assert (orders["tags"], orders["when"]) == (["sales", "orders"], "2025-05-28T14:30:00+00:00")


@pytest.mark.parametrize(
    "tool", [name for name in TOOL_NAMES if name not in ("agents-md", "codex-memories", "markdown")]
)
def test_all_of_it_waits_in_the_inbox_and_a_second_import_adds_nothing(
    run: Run, core: Core, tmp_path: Path, tool: str
) -> None:
    """Rule moving.in: nothing that a file says is believed, and nothing is stored twice."""
    place = str(place_of(tool, tmp_path))
    count = len(lines_of(tool, tmp_path / "again" if tool not in ("mem0", "claude-mem") else _made(tmp_path / "again")))

    dry = json.loads(run("import", place, "--from", tool, "--dry-run", "--json").stdout)
    assert (dry["pending"] + dry["written"], dry["skipped"], dry["failed"]) == (count, 0, 0)
    assert json.loads(run("list", "--status", "pending", "--json").stdout)["memories"] == []

    first = json.loads(run("import", place, "--from", tool, "--json").stdout)
    assert (first["pending"], first["failed"]) == (count, 0), json.dumps(first)
    again = json.loads(run("import", place, "--from", tool, "--json").stdout)
    assert (again["skipped"], again["pending"], again["written"], again["failed"]) == (count, 0, 0, 0)
    assert len(json.loads(run("list", "--status", "pending", "--limit", "50", "--json").stdout)["memories"]) == count


def test_a_dry_run_says_what_would_be_turned_away_and_what_speaks_against_what_is_known(
    run: Run, core: Core, mine: MemoryAnchor, tmp_path: Path
) -> None:
    """Rule moving.in: the dry run passes the gate that the import passes; nothing is written by it."""
    mine.save_memory("The API listens on port 8080")
    (tmp_path / "lines.jsonl").write_text('{"content": "Deploys happen on Tuesdays"}\n')
    (tmp_path / "CLAUDE.md").write_text("- The API listens on port 9090\n- The API listens on port 8080\n")

    lines = json.loads(run("import", str(tmp_path / "lines.jsonl"), "--dry-run", "--json").stdout)
    rules = json.loads(run("import", str(tmp_path / "CLAUDE.md"), "--from", "claude-md", "--dry-run", "--json").stdout)

    assert (lines["rejected"], lines["written"], lines["pending"]) == (1, 0, 0)
    assert (rules["conflicts"], rules["skipped"], rules["written"]) == (1, 1, 0)
    assert len(mine.curation.listing(limit=50)) == 1


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_memory_says_where_it_comes_from_and_since_when(
    run: Run, core: Core, mine: MemoryAnchor, tmp_path: Path
) -> None:
    """Rule moving.in: provenance and date are kept, and shown."""
    run("import", str(place_of("mem0", tmp_path)), "--from", "mem0")

    (porto,) = [one for one in mine.curation.listing(status="pending", limit=50) if "Porto" in one.content]
    shown = mine.get(porto.id)
    assert [one.ref for one in shown.citations] == ["mem0:a2"]
    assert shown.valid_from == datetime(2025, 3, 3, 10, tzinfo=UTC)


BROKEN: dict[str, tuple[str, str, bytes, str]] = {
    "cut JSON line": ("server-memory", "m.jsonl", b'{"type":"entity","name":"A","obser', "line 1: it is no JSON"),
    "Latin-1": ("claude-md", "CLAUDE.md", "- caf\xe9 rule".encode("latin-1"), "CLAUDE.md: it is no UTF-8"),
    "no database": ("claude-mem", "c.db", b"SQLite format 3\0garbage", "is no database that can be read"),
    "front matter": ("basic-memory", "n.md", b"---\n[\n---\n- [a] b\n", "n.md: its front matter is no YAML"),
    "no type": ("okf", "n.md", b"---\ntitle: x\n---\ntext\n", "n.md: its front matter has no type"),
    "too long": ("claude-md", "CLAUDE.md", b"- " + b"x" * 9_000, "CLAUDE.md:1: it is 9000 characters long"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_one_sentence_and_the_rest_comes_in(run: Run, core: Core, tmp_path: Path, what: str) -> None:
    """Rule moving.bad: what cannot be read is named with its place."""
    tool, name, content, said = BROKEN[what]
    (tmp_path / name).write_bytes(content)

    done = run("import", str(tmp_path / name), "--from", tool, "--json")

    assert done.exit_code == 2, done.output
    assert said in done.output.replace("\n", " ")


def test_whoever_names_no_tool_or_no_place_is_told_which_there_are(run: Run, core: Core, tmp_path: Path) -> None:
    """Rule moving.bad: one sentence with what is allowed."""
    assert "allowed are claude-md, agents-md" in run("import", "x", "--from", "notion").stderr.replace("\n", " ")
    assert "reads its history.db" in run("import", str(tmp_path / "no"), "--from", "mem0").stderr.replace("\n", " ")
    assert "FILE is missing" in run("import").stderr
    assert tuple(TOOLS) == TOOL_NAMES


@settings(max_examples=40)
@given(st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=12), st.booleans()))
def test_no_date_is_made_up(value: object) -> None:
    """Rule moving.in: a time of another tool is one between 1980 and 2100, with a zone, or none."""
    at = parse_time(value)
    assert at is None or (at.tzinfo is not None and 1980 <= at.year < 2100)


def _read(form: str, folder: Path) -> list[ReadItem]:
    return list(other_tools.read_items(form, folder, home=folder))


def test_a_text_that_a_human_edited_in_the_mirror_waits_as_a_new_one(
    run: Run, core: Core, mine: MemoryAnchor, tmp_path: Path
) -> None:
    """Rule moving.out: the mirror is edited by hand and read back; what was not touched is what it was."""
    mine.save_memory("The gate opens at nine", type="decision")
    mine.save_memory("Tests run before every commit")
    assert run("export", str(tmp_path / "m"), "--to", "markdown", "--human").exit_code == 0
    page = tmp_path / "m" / other_tools.MIRROR
    page.write_text(page.read_text("utf-8").replace("opens at nine", "opens at eight") + "\n- A new rule\n")

    found = _read("markdown", tmp_path / "m")

    assert [one.line["content"] for one in found if one.line and "version" not in one.line] == [
        "The gate opens at eight",
        "A new rule",
    ]
    assert [one.line["content"] for one in found if one.line and "version" in one.line] == [
        "Tests run before every commit"
    ]


def test_a_folder_of_somebody_elses_is_left_alone(run: Run, core: Core, mine: MemoryAnchor, tmp_path: Path) -> None:
    """Rule moving.out: of an earlier export only its own pages vanish."""
    mine.save_memory("The gate opens at nine")
    assert run("export", str(tmp_path / "new"), "--to", "okf").exit_code == 0
    (tmp_path / "new" / "mine.txt").write_text("mine")
    (old,) = (tmp_path / "new" / "verified_fact").glob("*.md")
    mine.forget(old.stem.rpartition("-")[2])
    assert run("export", str(tmp_path / "new"), "--to", "okf").exit_code == 0
    assert (tmp_path / "new" / "mine.txt").read_text() == "mine"
