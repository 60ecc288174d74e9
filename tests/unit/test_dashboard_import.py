"""Importing from the page: shown first, signed then, bounded, and refused in one sentence."""

from __future__ import annotations

import html
import json
import re
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from browser import Answer, Browser
from dashhouse import House

from memory_anchor.extensions.dashboard import actions
from memory_anchor.extensions.dashboard.access import REFUSALS_MAX
from memory_anchor.extensions.dashboard.wording import LANGUAGES
from memory_anchor.extensions.transfer.transfer_files import export_lines
from memory_anchor.front.cli import link
from memory_anchor.testing import PASSPHRASE, human_of

RULES = b"# Rules\n\n- Never restart the pump by hand\n- Vents open at 28 degrees\n\n## Night\n\n- Lamps are off\n"
NOTICE = re.compile(r'<(?:div|p) class="notice (?:bad|warning|good)"[^>]*>(.*?)</(?:div|p)>', re.S)


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    made = House(tmp_path)
    with made.here(monkeypatch):
        human_of(made.data)
        yield made
    made.core.close()


def shown(browser: Browser, name: str, content: bytes, tool: str = "export") -> Answer:
    return browser.upload(browser.get("/import").form("/import"), name, content, tool=tool)


def counts(page: Answer) -> list[int]:
    """Return what the preview counts: new, known, against what is known, left out."""
    return [int(count) for count in re.findall(r"<dd>(\d+)</dd>", page.text)]


def exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Return the export of another memory: two facts, one of them a human's."""
    other = House(tmp_path / "other")
    with other.here(monkeypatch):
        other.add("plain", "The boiler is serviced every April", confidence=0.95)
        link.call("add", human=human_of(other.data), content="We ship on Thursdays", type="decision")
        lines = list(export_lines(link.call, other.data, versions=False, own_project=True))
    other.core.close()
    return "".join(f"{line}\n" for line in lines).encode()


def test_a_file_is_shown_first_and_waits_in_the_inbox_once_it_is_signed(house: House) -> None:
    """Rule import.page: the preview writes nothing; each item of it comes in, and a second time none."""
    browser, before = house.browser(), house.everything()
    page = shown(browser, "CLAUDE.md", RULES, "claude-md")
    assert counts(page) == [3, 0, 0, 0] and house.everything() == before
    assert all(text in page.text for text in ("Never restart the pump by hand", "Vents open at 28", "Lamps are off"))

    form = page.form("/import/do")
    assert browser.send(form).status == 403 and house.everything() == before
    done = browser.send(form, passphrase=PASSPHRASE)
    assert "Imported: 0 stored, 3 wait for you, 0 were here already." in done.text
    waiting = [item["memory"] for item in link.call("inbox")["items"]]
    assert {memory["content"] for memory in waiting} == {
        "Never restart the pump by hand",
        "Vents open at 28 degrees",
        "Lamps are off",
    }
    assert {memory["status"] for memory in waiting} == {"pending"}
    again = shown(browser, "CLAUDE.md", RULES, "claude-md")
    assert counts(again) == [0, 3, 0, 0] and "Nothing in it is new." in again.text


def test_two_posts_of_one_file_bring_it_in_once(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule import.page: both wait for the passphrase; the second one finds that the file came in."""
    browser, line = house.browser(), threading.Barrier(2, timeout=20)
    rules = "".join(f"- Pump {n} takes {n * 3} bars\n" for n in range(40)).encode()
    form = shown(browser, "CLAUDE.md", rules, "claude-md").form("/import/do")
    signer = actions._signer

    def together(*given: Any) -> Any:
        signed = signer(*given)
        line.wait()
        return signed

    monkeypatch.setattr(actions, "_signer", together)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: browser.send(form, passphrase=PASSPHRASE).status, range(2)))

    assert sorted(answers) == [200, 400], "a redirect is followed"
    assert link.call("inbox")["total"] == 40


@pytest.mark.parametrize(
    ("lines", "name"), [("\n" + "{}\n" * 501, "many.jsonl"), ("# x\n", ".."), ("# x\n", "𝕏" * 90 + ".md")]
)
def test_a_blank_line_hides_no_other_and_any_name_is_a_name(house: House, lines: str, name: str) -> None:
    """Rule import.page: the bound counts what is said; a name is only shown."""
    answer = shown(house.browser(), name, lines.encode(), "export" if name == "many.jsonl" else "claude-md")

    assert answer.status in (200, 400)
    assert "500 memories" in answer.text or name != "many.jsonl"


def test_a_human_may_take_a_file_in_as_a_word_of_their_own(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule import.page: what an agent may not bring in is counted and named, and comes in as the human's own word."""
    browser = house.browser()
    lines = exported(tmp_path, monkeypatch)
    with house.here(monkeypatch):
        page = shown(browser, "other.jsonl", lines)
        assert counts(page) == [1, 0, 0, 1] and "speaks for a human" in page.text

        done = browser.send(page.form("/import/do"), passphrase=PASSPHRASE, how="own")
        assert "Imported: 2 stored, 0 wait for you" in done.text
        assert {one["content"] for one in link.call("list")["memories"]} == {
            "The boiler is serviced every April",
            "We ship on Thursdays",
        }
        assert counts(shown(browser, "other.jsonl", lines)) == [0, 2, 0, 0]


def test_what_an_agent_may_not_bring_in_stays_out_of_an_import_into_the_inbox(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule import.page: the preview counts what will come of it."""
    browser = house.browser()
    lines = exported(tmp_path, monkeypatch)
    with house.here(monkeypatch):
        page = shown(browser, "other.jsonl", lines)
        done = browser.send(page.form("/import/do"), passphrase=PASSPHRASE, how="inbox")
        assert "1 was left out:" in done.text
        assert "We ship on Thursdays" not in str(link.call("list"))


def test_a_database_of_another_tool_comes_in_by_the_page_too(house: House, tmp_path: Path) -> None:
    """Rule import.page: the readers are the command's."""
    file = tmp_path / "history.db"
    with sqlite3.connect(file) as base:
        base.execute(
            "CREATE TABLE history (memory_id TEXT, new_memory TEXT, event TEXT, is_deleted INT, created_at TEXT, "
            "updated_at TEXT)"
        )
        base.execute("INSERT INTO history VALUES ('m1', 'Beds are watered at six', 'ADD', 0, '2026-01-02', NULL)")
    base.close()
    page = shown(house.browser(), "history.db", file.read_bytes(), "mem0")
    assert counts(page) == [1, 0, 0, 0] and "Beds are watered at six" in page.text


BAD = {
    "no file": ("", b"", "export", "Choose a file, and what it is."),
    "no such kind": ("a.jsonl", b"{}", "notes", "Choose a file, and what it is."),
    "compressed": ("a.jsonl.gz", b"\x1f\x8b\x08\x00", "export", "is compressed"),
    "a picture": ("a.png", b"\x89PNG\x00\x01", "export", "is no text"),
    "UTF-16": ("a.jsonl", "é".encode("utf-16"), "export", "is UTF-16"),
    "no database": ("history.db", b"not a database", "mem0", "history.db"),
    "too many": ("a.jsonl", b'{"content":"x"}\n' * 501, "export", "more than 500 memories"),
    "too large": ("a.jsonl", b"x" * (actions.IMPORT_BYTES_MAX + 1), "export", "more than a page takes in at once"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_come_in_is_refused_in_one_sentence(house: House, case: str) -> None:
    """Rule import.page, bad input: one sentence that names the file and no folder; nothing written or kept."""
    name, content, tool, said = BAD[case]
    browser, before = house.browser(), house.everything()
    page = shown(browser, name, content, tool)
    (sentence,) = [html.unescape(re.sub("<[^>]+>", "", one)).strip() for one in NOTICE.findall(page.text)]
    assert said in sentence and "/tmp" not in sentence and str(house.data.parent) not in sentence
    assert page.status in (400, 413) and house.everything() == before


def test_lines_that_cannot_be_read_are_counted_and_named(house: House) -> None:
    """Rule import.page: what is left out is said before anything comes in."""
    good = json.dumps({"content": "Beds are watered at six", "cites": ["notes:1"]}).encode()
    bare = json.dumps({"content": "Beds are watered at seven"}).encode()
    wrong = b'\n{"content": 5}\nnonsense\n' + bare + b'\n{"content": "cut off'
    page = shown(house.browser(), "mixed.jsonl", good + wrong)
    assert counts(page) == [1, 0, 0, 4]
    assert all(f"line {number}" in page.text for number in (2, 3, 4, 5))
    assert "line 4: comes in as your own word alone" in page.text


def test_hostile_text_of_a_file_is_text(house: House) -> None:
    """Rule import.page: a file's text and name are escaped and spelled out."""
    line = json.dumps({"content": "<script>alert(1)</script> \u202egnp.exe {{ 7*7 }}"}).encode()
    page = shown(house.browser(), "<b>x</b>.jsonl", line)
    assert "<script>alert" not in page.text and "<b>x" not in page.text and "\u202e" not in page.text
    assert "\\u202e" in page.text and "{{ 7*7 }}" in html.unescape(page.text)


def test_only_what_was_shown_last_is_imported(house: House) -> None:
    """Rule import.page: another file shown meanwhile, in another tab, voids the form; so does a second use of it."""
    browser, before = house.browser(), house.everything()
    first = shown(browser, "one.md", b"- The first rule of pumps\n", "claude-md").form("/import/do")
    second = shown(browser, "two.md", b"- The second rule of vents\n", "claude-md").form("/import/do")
    refused = browser.send(first, passphrase=PASSPHRASE)
    assert refused.status == 400 and "another one was shown since" in refused.text and house.everything() == before
    assert "1 wait" in browser.send(second, passphrase=PASSPHRASE).text
    assert "Nothing was imported" in browser.send(second, passphrase=PASSPHRASE).text


def test_an_upload_without_its_token_or_from_elsewhere_is_refused(house: House) -> None:
    """Rule import.page: the door of every form: Origin, token, kind, and tries of the passphrase."""
    browser = house.browser()
    form = browser.get("/import").form("/import")
    assert browser.upload(form, "a.md", RULES, tool="claude-md", csrf="").status == 403
    assert browser.post("/import", form.fields).status == 415
    assert browser.ask("POST", "/import", b"", {"content-type": "multipart/form-data; boundary=x"}).status == 403
    mine = {"origin": f"http://{browser.host}", "content-type": "multipart/form-data; boundary=x"}
    assert browser.ask("POST", "/import", b"--x\r\nnonsense", mine).status in (400, 403)
    do = shown(browser, "a.md", RULES, "claude-md").form("/import/do")
    answers = [browser.send(do, passphrase="wrong " * 3) for _ in range(REFUSALS_MAX)]
    assert {one.status for one in answers} == {403}
    assert link.call("inbox")["total"] == 0


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_ways_to_it_are_in_both_languages(house: House, language: str) -> None:
    """Rule import.page: from the timeline, where a memory is added by hand."""
    browser = Browser(house.browser().app, language=language)
    browser.get(f"/open/{house.sessions.new_link()}")
    assert 'href="/import"' in browser.get("/timeline").text
    page = browser.get("/import")
    assert f'<html lang="{language}">' in page.text and page.text.count("<option") == len(actions.IMPORTED)
