"""What is wrong with a file is one sentence that names it, the line and the cure; the rest goes in, and is in once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from memory_anchor.extensions.transfer import commands as moving
from memory_anchor.extensions.transfer import other_tools
from memory_anchor.front.cli import link
from memory_anchor.process.wiring import Core

Run = Callable[..., Result]
GOOD = ["The boiler holds 21 degrees", "锅炉每周一检修", "Orchids need shade"]


@pytest.fixture(autouse=True)
def _one_memory(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that open the data folder themselves ask the memory of this process, like all the others."""
    monkeypatch.setattr(moving, "open_session", lambda: nullcontext(link.call))


def line(text: str, number: int = 0, **more: Any) -> bytes:
    return json.dumps({"content": text, "cites": [f"notes:{number or text}"], **more}, ensure_ascii=False).encode()


def around(bad: bytes, *, ends: bytes = b"\n") -> bytes:
    """Return a file of good lines with a bad one last."""
    return b"\n".join([*map(line, GOOD), bad]) + ends


FILES: dict[str, tuple[bytes, str]] = {
    "cut in the middle": (around(line("cut")[:-9], ends=b""), "notes.jsonl, line 4 breaks off, the file was cut there"),
    "Latin-1": (around('{"content": "café"}'.encode("latin-1")), "notes.jsonl, line 4 is no UTF-8"),
    "no JSON": (around(b"# a heading"), "notes.jsonl, line 4 is not JSON; allowed is one JSON object a line"),
    "the year 9999": (around(line("x", when="9999-12-31T23:59:59Z")), "allowed are the years 1900 to 9000"),
    "the year 0": (around(line("x", when="0000-01-01")), "allowed is an ISO 8601 time"),
    "a line of 3 MB": (around(line("x" * 3_000_000)), "notes.jsonl, line 4 is over 2000000 bytes"),
    "a text of 9,000": (around(line("x" * 9_000)), "notes.jsonl, line 4: content is 9000 characters"),
}


@pytest.mark.parametrize("what", FILES)
def test_a_bad_line_is_named_with_its_file_and_the_others_are_in_once(
    run: Run, core: Core, tmp_path: Path, what: str
) -> None:
    """Rule moving.bad: JSON lines; the second import adds none."""
    content, sentence = FILES[what]
    (tmp_path / "notes.jsonl").write_bytes(content)

    for pending, skipped in ((3, 0), (0, 3)):
        result = run("import", str(tmp_path / "notes.jsonl"), "--json")
        answer = json.loads(result.stdout)
        assert (result.exit_code, answer["pending"], answer["skipped"], answer["failed"]) == (2, pending, skipped, 1), (
            result
        )
        assert sentence in result.stderr and result.stderr.count("\n") == 1
    assert "�" not in run("list", "--status", "pending").stdout


def test_a_byte_order_mark_a_missing_date_and_one_to_come_are_no_mistakes(run: Run, core: Core, tmp_path: Path) -> None:
    """Rule moving.bad: what is only odd comes in; a fact holds from now at the latest."""
    lines = [line("With a mark"), line("No date", when=None), line("From 2031", when="2031-05-05")]
    (tmp_path / "m.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(lines) + b"\r\n")

    result = json.loads(run("import", str(tmp_path / "m.jsonl"), "--json").stdout)

    assert (result["pending"], result["failed"]) == (3, 0)
    now = core.services.clock.now().isoformat()[:19]
    for memory in json.loads(run("list", "--status", "pending", "--json").stdout)["memories"]:
        shown = json.loads(run("show", memory["id"], "--json").stdout)["memory"]
        assert shown["valid_from"][:19] <= now, memory


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"content": "x"}\n'.encode("utf-16"), "is UTF-16; `iconv -f UTF-16 -t UTF-8` converts it"),
        (b"\x1f\x8b\x08\x00 packed", "is compressed; `gunzip` it"),
        (b"SQLite format 3\0 and more", "is no text; allowed is what `memory-anchor export` wrote, or --from TOOL"),
    ],
)
def test_a_file_that_is_no_lines_at_all_is_one_sentence(
    run: Run, core: Core, tmp_path: Path, content: bytes, sentence: str
) -> None:
    """Rule moving.bad: not a thousand."""
    (tmp_path / "odd.bin").write_bytes(content)
    result = run("import", str(tmp_path / "odd.bin"))
    assert result.exit_code == 2 and sentence in result.stderr and "odd.bin" in result.stderr


@pytest.mark.parametrize(
    ("name", "at", "sentence"),
    [
        ("recorded_at", "9999-12-31T23:59:59+00:00", "a time is of the year 9999"),
        ("recorded_at", "2027-01-01T00:00:00+00:00", "is still to come"),
        ("valid_from", "0001-01-01T00:00:00+00:00", "a time is of the year 1"),
    ],
)
def test_an_exported_line_with_another_time_is_not_the_newest_for_ever(
    run: Run, core: Core, tmp_path: Path, name: str, at: str, sentence: str
) -> None:
    """Rule moving.bad: its hash is of its text alone; the times are held against the clock."""
    file = tmp_path / "out.jsonl"
    run("add", "The boiler holds 21 degrees")
    assert run("export", str(file)).exit_code == 0
    answer = json.loads(file.read_text("utf-8").splitlines()[0])
    file.write_text(json.dumps(answer | {"id": "1m83rmk26f250", name: at}) + "\n")

    result = run("import", str(file))

    assert result.exit_code == 2 and sentence in result.stderr and "out.jsonl, line 1: " in result.stderr
    assert len(json.loads(run("list", "--json").stdout)["memories"]) == 1


def test_a_database_that_was_cut_gives_what_is_left_and_says_so(run: Run, core: Core, tmp_path: Path) -> None:
    """Rule moving.bad: another tool's store, copied while the disk was full."""
    file = tmp_path / "history.db"
    dump = Path(__file__).resolve().parents[1] / "other_tools" / "mem0-2.2.1.sql"
    with closing(sqlite3.connect(file)) as base:
        base.executescript(dump.read_text("utf-8"))
        for number in range(200):
            row = (f"r{number}", f"m{number}", f"Shelf {number} holds pots", "ADD", "2025-01-01T00:00:00+00:00")
            names = "id, memory_id, new_memory, event, created_at"
            base.execute(f"INSERT INTO history ({names}) VALUES (?, ?, ?, ?, ?)", row)  # noqa: S608 - ours alone
        base.commit()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])

    result = run("import", str(file), "--from", "mem0", "--dry-run")

    assert result.exit_code == 2
    assert ".recover`" in result.stderr and result.stderr.strip().count("\n") == 0


@pytest.mark.parametrize("when", ["9999-12-31", "0000-00-00", "", None, "2098-01-01T00:00:00Z"])
def test_a_date_that_another_tool_cannot_have_is_none(run: Run, core: Core, tmp_path: Path, when: object) -> None:
    """Rule moving.bad: the memory comes in, as of now."""
    entry = {"id": "a", "memory": "Likes tea", "updated_at": when}
    (tmp_path / "all.json").write_text(json.dumps([entry]))

    result = json.loads(run("import", str(tmp_path / "all.json"), "--from", "mem0", "--json").stdout)
    (id,) = [memory["id"] for memory in json.loads(run("list", "--status", "pending", "--json").stdout)["memories"]]
    imported = json.loads(run("show", id, "--json").stdout)["memory"]

    assert (result["pending"], result["failed"]) == (1, 0)
    assert imported["valid_from"][:16] == core.services.clock.now().isoformat()[:16]


def test_a_page_of_two_megabytes_is_refused_with_the_limit(run: Run, core: Core, tmp_path: Path) -> None:
    """Rule moving.bad: Markdown is read whole, so its size is bounded; the others come in."""
    (tmp_path / "CLAUDE.md").write_text("- a rule\n" * 250_000)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "CLAUDE.md").write_text("- run `make check`\n")

    result = run("import", str(tmp_path), "--from", "claude-md", "--json")

    assert (result.exit_code, json.loads(result.stdout)["pending"]) == (2, 1)
    assert result.stderr.strip().endswith("CLAUDE.md: it is over 1 MB; split it")


def test_a_large_file_is_read_in_little_memory(run: Run, core: Core, tmp_path: Path) -> None:
    """Rule moving.large: a reader holds one thing at a time (here: 20,000 texts of 10 MB in under 3 MB)."""
    import tracemalloc

    file = tmp_path / "memory.jsonl"
    with file.open("w") as stream:
        for number in range(4_000):
            sentence = [
                f"Shelf {number} row {row} holds " + "a hundred pots of the larger kind " * 14 for row in range(5)
            ]
            entry = {"type": "entity", "name": f"Shelf {number}", "entityType": "shelf", "observations": sentence}
            stream.write(json.dumps(entry) + "\n")
    tracemalloc.start()
    try:
        count = sum(line.line is not None for line in other_tools.read_items("server-memory", file, home=tmp_path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert file.stat().st_size > 9_500_000
    assert count == 20_000 and peak < 3_000_000, peak


def test_an_export_takes_the_place_of_an_export_alone(run: Run, core: Core, tmp_path: Path) -> None:
    """Rule moving.out: a file or folder of somebody else's is left as it is, unless --force is said."""
    run("add", "The boiler holds 21 degrees")
    (tmp_path / "notes.md").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")

    for words in (("notes.md",), ("full", "--to", "okf")):
        refused = run("export", str(tmp_path / words[0]), *words[1:])
        assert refused.exit_code == 4 and "--force" in refused.stderr, refused.output
    assert (tmp_path / "notes.md").read_text() == "mine"

    assert run("export", str(tmp_path / "full"), "--to", "okf", "--force").exit_code == 0
    assert (tmp_path / "full" / "mine.txt").read_text() == "mine"
    assert run("export", str(tmp_path / "notes.md"), "--force").exit_code == 0
    assert run("export", str(tmp_path / "notes.md")).exit_code == 0
    assert json.loads((tmp_path / "notes.md").read_text())["content"] == "The boiler holds 21 degrees"
    assert run("export", str(tmp_path / "notes.md"), "--to", "okf").exit_code == 2
