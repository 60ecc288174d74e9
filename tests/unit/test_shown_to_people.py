"""How a command looks: columns, zones and words, in a terminal and in a pipe."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from rich.cells import cell_len
from rich.text import Text
from typer.testing import Result

from memory_anchor import __main__
from memory_anchor.domain.rights import version_stamp
from memory_anchor.front.cli import output
from memory_anchor.front.cli.output import align_columns, local_time
from memory_anchor.front.cli.review import diff_lines, marked_side, word_diff
from memory_anchor.identity.keys import Signer

Run = Callable[..., Result]


def test_columns_line_up_with_chinese_text() -> None:
    """Rule cli.columns: a sign of two cells counts as two."""
    rows = align_columns([("部署", "L3", "#"), ("deploy", "event", "@")])
    assert len({cell_len(row[: row.index(row)]) for row, row in zip(rows, "#@", strict=True)}) == 1


@pytest.mark.parametrize("columns", [60, 120])
def test_a_list_fits_its_terminal(run: Run, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """N10: at 60 columns the text had a column of two signs."""
    said = "We use uv, not pip, for environments; 部署在星期四，由李雷负责，回滚由韩梅梅负责"
    run("add", said)
    monkeypatch.setattr(output.out.console, "_width", columns)
    monkeypatch.setattr(output.out.console, "_height", 30)
    monkeypatch.setattr(output.out.console, "_force_terminal", True)
    lines = run("list").stdout.splitlines()
    assert all(cell_len(Text.from_ansi(line).plain) <= columns for line in lines)
    assert len(lines) <= 4 and said[:17] in "".join(lines)


def test_a_time_is_shown_in_the_readers_zone_which_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """N14: UTC stood there without a word."""
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    assert local_time("2026-11-23T02:38:41.07Z") == "2026-11-23 10:38 CST"
    assert local_time("9999-12-31T23:59:59Z") == "9999-12-31T23:59:59Z"
    run("log", "The lighthouse was painted", "--when", "2025-06-01T10:00:00+08:00")
    assert "2025-06-01 10:00 CST" in run("list").stdout
    assert "2025-06-01T02:00:00Z" in run("list", "--json").stdout


def test_arguments_are_utf8_whatever_the_locale_made_of_them() -> None:
    """N10: what a Latin-1 or ASCII locale reads from UTF-8 bytes is read again; what is no UTF-8 stays."""
    assert __main__._as_utf8("部署".encode().decode("ascii", "surrogateescape")) == "部署"
    assert __main__._as_utf8("\udcb2\udcbf") == "\udcb2\udcbf"


def test_a_difference_is_shown_word_by_word_and_no_text_fakes_one() -> None:
    """Rule review.diff: every line stays as it is, what changed in it is underlined."""
    lines = diff_lines("@@ -1 +1 @@\n-keep [-21-] degrees\n+keep [-22-] degrees\n rest")
    assert [line.plain for line in lines] == ["@@ -1 +1 @@", "-keep [-21-] degrees", "+keep [-22-] degrees", " rest"]
    assert [lines[2].plain[span.start : span.end] for span in lines[2].spans if "underline" in str(span.style)] == [
        "22"
    ]
    assert marked_side(word_diff("部署在周四", "部署在周五"), "new").plain == "部署在周五"


def test_a_merge_takes_the_text_that_holds(run: Run, human: Signer) -> None:
    """N10: merging joined two texts that contradict each other."""
    old = json.loads(run("add", "The release train leaves on Monday", "--json").stdout)["id"]
    added = json.loads(run("add", "The release train leaves on Thursday", "--json").stdout)
    assert added["outcome"] == "needs_review", added
    from memory_anchor.front.cli.link import call

    sides = call("sides", id=added["id"])["memories"]
    seen = [version_stamp(memory["id"], memory["version"], memory["content"]) for memory in sides]
    text = "It leaves on Monday and Thursday"
    refused = run("review", "--settle", added["id"], "--resolution", "keep_new", "--content", text)
    assert refused.exit_code != 0
    call("settle", id=added["id"], resolution="merge", content=text, seen=seen, human=human)
    listed = json.loads(run("list", "--json").stdout)["memories"]
    assert [(row["content"], row["status"]) for row in listed] == [(text, "active")]
    assert json.loads(run("show", old, "--json").stdout)["memory"]["status"] == "superseded"
