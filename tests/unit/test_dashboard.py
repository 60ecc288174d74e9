"""The dashboard's pages: each answers in both languages, works by forms alone, and is whole in either."""

from __future__ import annotations

import gzip
import html
import json
import re
import string
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, get_args

import pytest
from browser import Browser
from dashhouse import House
from typer.testing import CliRunner

from memory_anchor.admin import nightly
from memory_anchor.domain.errors import DiskFull, MemoryAnchorError
from memory_anchor.domain.model import (
    CITATION_KINDS,
    Actor,
    Epistemic,
    Freshness,
    MemoryType,
    Origin,
    ProposalAction,
    Status,
    Strength,
    Trust,
    Visibility,
)
from memory_anchor.extensions.dashboard import app, wording
from memory_anchor.extensions.dashboard.access import POLICY
from memory_anchor.extensions.dashboard.requests import PreviewHook
from memory_anchor.extensions.dashboard.rows import payload_of
from memory_anchor.extensions.dashboard.wording import LANGUAGES, Words, catalogue, proposal_diff
from memory_anchor.extensions.devices import sync_job
from memory_anchor.front import calls
from memory_anchor.front.backend import MemoryBackend
from memory_anchor.front.cli import app as cli
from memory_anchor.front.cli import link, review
from memory_anchor.front.cli.passphrase import identity
from memory_anchor.front.cli.review import word_diff
from memory_anchor.hooks.hooks import UNPROMPTED
from memory_anchor.layers.links import LinkKind
from memory_anchor.recall import scoring
from memory_anchor.store.audit_rows import SqlAudit
from memory_anchor.testing import PASSPHRASE, human_of
from memory_anchor.use_cases.used_memories import SHOWN_SESSIONS_FILE, USED_MEMORIES_FILE, ShownMemory, ShownSessions

HERE = Path(wording.__file__).parent
TEMPLATES = sorted((HERE / "templates").glob("*.html"))
PATHS = (
    *("/", "/search?q=port", "/timeline", "/sessions", "/sessions?q=port", "/context?task=ports", "/knowledge"),
    *("/health", "/use", "/undo", "/purge"),
)
PAGE_BYTES_MAX = 60_000


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("dashboard"))
    with pytest.MonkeyPatch.context() as patch, made.here(patch):
        made.furnish()
    yield made
    made.core.close()


@pytest.fixture
def browser(house: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    with house.here(monkeypatch):
        yield house.browser()


@cache
def weight_of(loaded: str) -> int:
    return len(gzip.compress((HERE / loaded.removeprefix("/")).read_bytes()))


def test_both_catalogues_have_the_same_keys_and_the_same_places_to_fill() -> None:
    """Issue 18: Chinese and English from two catalogues with the same keys."""
    english, chinese = (catalogue(name) for name in LANGUAGES)

    def places(sentence: str) -> set[str]:
        return {name for _, name, _, _ in string.Formatter().parse(sentence) if name}

    assert english.keys() == chinese.keys()
    assert {key for key in english if key[-4:] != "_one" and places(english[key]) != places(chinese[key])} == set()
    assert all(english.values()) and all(chinese.values())


def test_every_sentence_a_template_or_a_deed_names_is_in_the_catalogue() -> None:
    """Issue 18: no page ends in a missing sentence."""
    files = [*TEMPLATES, *HERE.glob("*.py")]
    named = {
        key
        for file in files
        for key in re.findall(r"""["']([a-z]+\.(?!html)[a-z0-9_]*[a-z0-9])["']""", file.read_text("utf-8"))
    }
    groups = {key.partition(".")[0] for key in catalogue("en")}

    assert len(named) > 100
    assert {key for key in named if key.partition(".")[0] in groups} - catalogue("en").keys() == set()


def test_no_page_has_a_script_or_style_of_its_own() -> None:
    """Issue 18: no inline script or style, no handler, no address of another host."""
    for file in TEMPLATES:
        text = file.read_text("utf-8")
        for wrong in (
            r"<script(?![^>]*\bsrc=)",
            r"<style",
            r"\sstyle=",
            r"\son[a-z]+=",
            r"https?://",
            r"\|safe",
            r"javascript:",
        ):
            assert not re.search(wrong, text), f"{file.name}: {wrong}"
    for name in ("dashboard.js", "dashboard.css"):
        assert "http" not in (HERE / "static" / name).read_text("utf-8")


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_page_answers_in_its_language_and_is_light(house: House, browser: Browser, language: str) -> None:
    """Issue 18: eight pages, two languages, <= 60 KB gzipped with all they load, the policy on each."""
    browser.language = language
    for path in (*PATHS, f"/memory/{house.ids['plain']}"):
        page = browser.get(path)
        loaded = re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text)
        weight = len(gzip.compress(page.text.encode())) + sum(weight_of(one) for one in loaded)
        assert page.status == 200, path
        assert f'<html lang="{language}">' in page.text
        assert page.header("content-security-policy") == POLICY
        assert weight <= PAGE_BYTES_MAX, f"{path} weighs {weight}"
        assert not re.search(r">\s*[{\[]['\"]", page.text), f"{path} shows raw JSON"


def test_the_inbox_decides_by_one_form_and_takes_it_back(house: House, browser: Browser) -> None:
    """Issue 18: edit then accept, settle, batch, undo; with the passphrase, without JavaScript."""
    doubted, port = house.ids["doubted"], house.ids["new port"]
    form = browser.get("/").form("/inbox")
    chosen = {
        f"choice.{doubted}": "accept",
        f"text.{doubted}": "The pump needs a 10 A fuse",
        f"choice.{port}": "keep_new",
    }

    refused = browser.send(form, **chosen)
    assert refused.status == 403
    assert refused.form("/inbox").fields[f"choice.{doubted}"] == "accept"
    assert refused.form("/inbox").fields[f"text.{doubted}"] == "The pump needs a 10 A fuse"

    done = browser.send(refused.form("/inbox"), passphrase=PASSPHRASE)
    assert "1 accepted, 1 contradiction settled" in done.text
    shown = link.call("show", id=doubted)["memory"]
    assert (shown["content"], shown["status"], shown["origin"]) == ("The pump needs a 10 A fuse", "active", "human")
    assert link.call("show", id=house.ids["old port"])["memory"]["status"] == "superseded"

    undone = browser.send(browser.get("/undo").form("/undo"), passphrase=PASSPHRASE)
    assert "3 memories are as they were before." in undone.text
    assert link.call("show", id=doubted)["memory"]["status"] == "pending"
    assert link.call("show", id=port)["memory"]["status"] == "disputed"


def test_a_memory_is_changed_by_forms_and_each_change_is_the_humans(house: House, browser: Browser) -> None:
    """Issue 18: pin, edit, judge, forget, restore; destructive buttons can be undone."""
    path = f"/memory/{house.ids['plain']}"
    for change, more, then in (
        ("edit", {"content": "The boiler is serviced every May"}, "text was changed"),
        ("pin", {}, "Pinned."),
        ("unpin", {}, "Unpinned."),
        ("judge", {"epistemic": "verified", "shown_by": "make heat"}, "Noted."),
        ("forget", {"reason": "sold"}, "can be restored"),
        ("restore", {}, "Restored."),
    ):
        done = browser.send(browser.get(path).form("/memory", change=change), passphrase=PASSPHRASE, **more)
        assert then in done.text, change
    steps = link.call("history", id=house.ids["plain"])["steps"]
    assert {one["by"] for one in steps[1:]} == {"human:me"}


def test_purge_shows_first_and_erases_what_was_shown(house: House, browser: Browser) -> None:
    """Issue 18: purge says that it cannot be undone, and what it will do."""
    name = house.add("doomed", "A secret nobody should have written down", confidence=0.95)
    asked = browser.get(f"/purge?id={name}")
    assert "cannot be undone" in asked.text

    shown = browser.send(asked.form("/purge"), passphrase=PASSPHRASE)
    assert "1 memory would be erased" in shown.text
    unsure = browser.send(shown.form("/purge"), passphrase=PASSPHRASE)
    assert unsure.status == 400
    done = browser.send(shown.form("/purge"), passphrase=PASSPHRASE, sure="yes")

    assert "version is erased" in done.text
    assert browser.get(f"/memory/{name}").status == 404


def test_a_proposal_is_confirmed_three_times_and_shown_word_by_word(house: House, browser: Browser) -> None:
    """Issue 18: constitution proposals with a word diff and n of 3."""
    schema = identity()
    schema.init(passphrase=PASSPHRASE, approver="alice", old_passphrase=None)
    wish = {"content": "Keep the greenhouse at 23 degrees", "reason": "tomatoes", "entry_id": "goal"}
    schema.propose(**wish, action=ProposalAction.REPLACE, from_id=None, by="agent:codex")

    for confirmed in range(3):
        page = browser.get("/")
        assert f"{confirmed} of 3 confirmations" in page.text
        assert "<del>21</del><ins>23</ins>" in page.text
        page = browser.send(page.form("/proposal"), passphrase=PASSPHRASE, verdict="approve")
    assert "it is in force" in page.text
    assert [one.content for one in identity().load().entries] == ["Keep the greenhouse at 23 degrees"]


def test_what_changed_is_counted_from_the_last_look(house: House, browser: Browser) -> None:
    """Issue 18: the first page says what changed since I last looked."""
    assert "The newest; next time" in browser.get("/").text
    cookie = next(name for name in browser.cookies if name.startswith("memory_anchor_seen"))
    before = (datetime.now(UTC) - timedelta(hours=2)).isoformat()
    browser.cookies[cookie] = f"before=&now={before}".replace("+", "%2B")
    name = house.add("fresh", "The gutter was cleaned", confidence=0.95)

    page = browser.get("/").text
    assert "Since your last look" in page and name in page[page.index('id="changed"') :]
    ahead = (datetime.now(UTC) + timedelta(hours=2)).isoformat()
    browser.cookies[cookie] = f"before={ahead}&now={ahead}".replace("+", "%2B")
    assert "Nothing changed since you last looked." in browser.get("/").text
    browser.cookies[cookie] = "before=nonsense&now=%00"
    assert browser.get("/").status == 200


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_figure_leads_to_just_as_many_memories(house: House, browser: Browser, language: str) -> None:
    """Issue 18: every figure shown links to the memories behind it."""
    human = human_of(house.data)
    link.call("edit", human=human, id=house.ids["event"], content="Deployed the climate service twice")
    browser.language = language
    followed = 0
    for path in ("/", *PATHS, f"/memory/{house.ids['plain']}"):
        for to, count in re.findall(r'<a class="figure" href="([^"]+)">(\d+)</a>', browser.get(path).text):
            listed = browser.get(html.unescape(to)).text
            status = re.search(r'role="status">(?:[^<\d]*)(\d+)', listed)
            assert status is not None and status[1] == count == str(listed.count('<li class="row')), f"{path}: {to}"
            followed += 1
    inbox = browser.get("/").text
    for place, row in (("waits", '<article class="card item"'), ("changed", '<li class="row">')):
        figure = re.search(rf'<a href="#{place}">(\d+)', inbox)
        shown = inbox[inbox.index(f'<section id="{place}"') :].partition("</section>")[0].count(row)
        assert figure is not None and int(figure[1]) == shown > 0, place
    assert followed >= 10


def test_a_figure_of_the_timeline_is_asked_for_in_one_sentence(browser: Browser) -> None:
    """Issue 18, bad input: one sentence, nothing lost."""
    assert "allowed is an instant" in browser.get("/timeline?changed=yesterdayish").text
    assert browser.get("/timeline?written=nonsense..&limit=-1").status == 200
    assert "allowed" in browser.get("/timeline?status=lively").text


def test_the_first_card_says_when_saving_fails(house: House, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 18: the first page says at a glance whether it works; a write that did not arrive is told first."""
    store = house.core.services.store

    def full(*_: Any, **__: Any) -> None:
        raise DiskFull("no room is left on /data; nothing was written")

    with monkeypatch.context() as broken:
        broken.setattr(type(store), "put", full)
        with pytest.raises(MemoryAnchorError):
            link.call("log", content="The fuse was changed")
    for path, place in (("/", 'class="tile unsaved"'), ("/health", "did not arrive")):
        page = browser.get(path).text
        assert place in page and "Saving fails" in page and "no room is left" in page, path

    link.call("log", content="The fuse was changed again")
    assert "Saving fails" not in browser.get("/").text


def test_the_first_card_says_how_many_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule: what waits for a human is counted in full at first sight, with a way to it; one page shows twenty."""
    house = House(tmp_path)
    with house.here(monkeypatch):
        browser = house.browser()
        for number, told in ((1, "1 decision"), (23, "23 decisions")):
            for room in range(len(house.ids), number):
                house.add(f"room {room}", f"Maybe room {room} gets a new door", confidence=0.75)
            page = browser.get("/").text
            first = page[page.index('id="g1"') : page.index('id="g2"')]
            assert f'<a href="#waits">{number} wait for you</a>' in first
            assert f'<a href="#waits">{told}</a>' in page
            assert page.count('class="card item"') == min(number, 20)


def test_every_job_has_a_name_and_a_sentence_in_both_languages(house: House, browser: Browser) -> None:
    """Issue 18: no raw identifier, nothing left untranslated."""
    jobs = {one["name"] for one in link.call("jobs_list")["jobs"]} | {nightly.JOB, sync_job.JOB}
    for language in LANGUAGES:
        assert jobs <= {key.partition(".")[2] for key in catalogue(language) if key.startswith("job.")}
        assert jobs <= {key.partition(".")[2] for key in catalogue(language) if key.startswith("job_does.")}
    browser.language = "zh"
    assert "merge_duplicates<" not in browser.get("/health").text


def test_use_says_how_much_of_what_was_shown_was_used_and_what_contexts_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule figures: both numbers of each hook, and the costs of thirty contexts in one question."""
    house = House(tmp_path)
    with house.here(monkeypatch):
        kept = {"by": {"verified_fact/SessionStart": [8, 2]}, "memories": {}}
        (house.data / USED_MEMORIES_FILE).write_text(json.dumps(kept), "utf-8")
        costs = [link.call("context_report", id=link.call("context", task="pump")["report_id"]) for _ in range(3)]
        asked: list[str] = []

        def ask(name: str, given: dict[str, Any]) -> dict[str, Any]:
            asked.append(name)
            return house.ask(name, given)

        browser = house.browser()
        monkeypatch.setattr(link, "_ask_engine", ask)
        page = browser.get("/use").text

    assert '<td class="n">8</td><td class="n">2 (25 %)</td>' in page
    assert [page.count(f'href="/report/{one["id"]}"') for one in costs] == [1, 1, 1]
    assert f'<td class="n">{costs[0]["report"]["estimated_tokens"]["total"]}</td>' in page
    assert "context_report" not in asked and len(asked) <= 5, asked


def test_no_page_reads_the_whole_audit_trail(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 18: the first page stays quick at 100,000 memories, whose trail has as many lines."""
    read: list[str] = []
    records = SqlAudit.records

    def watched(self: SqlAudit, kinds: str = "") -> Any:
        read.append(kinds)
        return records(self, kinds)

    monkeypatch.setattr(SqlAudit, "records", watched)
    browser.get("/")

    assert "" not in read


def test_the_language_is_chosen_by_cookie_and_never_leads_away(browser: Browser) -> None:
    """Issue 18: `lang` by cookie, then Accept-Language."""
    assert browser.get("/language/zh?back=//evil.example/").header("location") == "/"
    assert browser.get("/language/zh?back=/use").header("location") == "/use"
    assert '<html lang="zh">' in browser.get("/").text
    assert browser.get("/language/xx").status == 404


def test_times_are_said_as_people_say_them_with_the_exact_one_beside() -> None:
    """Issue 18: dates as people read them with the exact one on hover."""
    now = datetime(2026, 11, 23, 12, tzinfo=UTC)
    words = Words("en", zone="Europe/Berlin", now=now)

    assert words.ago("2026-11-23T11:59:30Z") == "just now"
    assert words.ago("2026-11-23T11:00:00Z") == "1 hour ago"
    assert words.ago("2026-11-26T12:00:00Z") == "in 3 days"
    assert Words("zh", zone="", now=now).ago("2026-09-01T12:00:00") == "2 个月前"
    assert words.exact("2026-11-23T11:59:30Z") == "2026-11-23 12:59:30 CET"
    assert words.date("2026-11-22") == "Yesterday · Sunday, 22 November 2026"
    assert Words("zh", zone="", now=now).date("2026-09-01") == "2026年9月1日 星期二"


def test_differences_are_told_word_by_word_in_both_languages() -> None:
    """Issue 18: every version with a word diff; long texts stay quick."""
    assert word_diff("部署到东京", "部署到大阪") == [("same", "部署到"), ("gone", "东京"), ("new", "大阪")]
    assert proposal_diff("--- a\n+++ b\n@@ -1 +1 @@\n-use npm\n+use pnpm\n same")[0][1:] == [
        ("gone", "npm"),
        ("new", "pnpm"),
    ]
    assert word_diff("长" * 8_000, "短" * 8_000)[0][0] == "gone"


def test_129_memories_of_five_sessions_are_decided_in_a_dozen_actions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule: what waits is counted exactly and decided by the group after one look; what is left out waits on."""
    house = House(tmp_path)
    with house.here(monkeypatch):
        human_of(house.data)
        ids: dict[int, list[str]] = {}
        for number in range(129):
            caller = link.preamble()._replace(conversation=f"session {number % 5}", agent="codex")
            text = {"content": f"Maybe room {number} gets door number {number * 7}", "confidence": 0.75}
            ids.setdefault(number % 5, []).append(calls.run(house.core, caller, "add", text)["id"])
        browser = house.browser()
        page = browser.get("/?by=conversation")
        form = page.form("/inbox")
        groups = [name.removeprefix("members.") for name in form.fields if name.startswith("members.")]
        decisions = {f"group.{number}": "reject" if at else "accept" for at, number in enumerate(groups)}
        left = form.fields["members.1"].partition("@")[0]

        assert "129 wait for you" in page.text and len(groups) == 5
        assert all(text in page.text for text in ("Maybe room 0 gets door number 0", "Maybe room 128 gets"))
        done = browser.send(form, passphrase=PASSPHRASE, **decisions, **{f"skip.{left}": "1"})
        looks_choices_and_signature = 2 * len(groups) + 2

        assert looks_choices_and_signature <= 30
        assert "25 accepted, 103 rejected" in done.text
        assert link.call("inbox")["total"] == 1
        assert link.call("show", id=left)["memory"]["status"] == "pending"
        undone = browser.send(browser.get("/undo").form("/undo"), passphrase=PASSPHRASE)
        assert "128 memories are as they were before." in undone.text
        assert link.call("inbox", limit=1)["total"] == 129


def test_each_of_a_group_has_an_undo_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule: after a group is decided, one of it is taken back alone; the rest stays, and still can be, all at once."""
    house = House(tmp_path)
    with house.here(monkeypatch):
        human_of(house.data)
        for number in range(6):
            house.add(str(number), f"Maybe bench {number} needs {number * 3} screws", confidence=0.75)
        browser = house.browser()
        browser.send(browser.get("/?by=agent").form("/inbox"), passphrase=PASSPHRASE, **{"group.1": "accept"})
        page = browser.get("/undo")
        offered = re.findall(r'href="(/undo\?id=[^"]+)"', page.text)
        assert len(offered) == 6 and "Undo all 6" in page.text

        before = house.everything()
        alone = browser.get(offered[2])
        assert "Maybe bench 2 needs 6 screws" in alone.text and "Maybe bench 3" not in alone.text
        assert browser.send(alone.form("/undo")).status == 403
        assert house.everything() == before
        undone = browser.send(alone.form("/undo"), passphrase=PASSPHRASE)
        assert "1 memory is as it was before." in undone.text and "Undo all 5" in undone.text
        states = [link.call("show", id=house.ids[str(number)])["memory"]["status"] for number in range(6)]
        assert states == ["active", "active", "pending", "active", "active", "active"]
        gone = browser.send(alone.form("/undo"), passphrase=PASSPHRASE)
        assert gone.status == 400 and "nothing of yours to undo" in gone.text

        browser.send(browser.get("/undo").form("/undo"), passphrase=PASSPHRASE)
        assert link.call("inbox", limit=1)["total"] == 6


def test_an_undo_of_all_leaves_what_its_human_did_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule: the page takes back what it did; a command of the same human since then stays."""
    house = House(tmp_path)
    with house.here(monkeypatch):
        human = human_of(house.data)
        stale = house.add("stale", "The boiler is serviced every April", confidence=0.95)
        for number in range(3):
            house.add(str(number), f"Maybe bench {number} needs {number * 3} screws", confidence=0.75)
        browser = house.browser()
        browser.send(browser.get("/?by=agent").form("/inbox"), passphrase=PASSPHRASE, **{"group.1": "accept"})
        link.call("forget", id=stale, human=human)
        undone = browser.send(browser.get("/undo").form("/undo"), passphrase=PASSPHRASE)

        assert "3 memories are as they were before." in undone.text
        assert link.call("inbox", limit=1)["total"] == 3
        assert link.call("show", id=stale)["memory"]["status"] == "archived"


def test_what_changed_together_goes_back_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule: the undo of one memory takes with it the one that was ended for it, so that never two hold or neither."""
    house = House(tmp_path)
    with house.here(monkeypatch):
        human_of(house.data)
        old = house.add("old", "The pump API listens on port 8080", confidence=0.95)
        new = house.add("new", "The pump API listens on port 9090", confidence=0.95)
        other = house.add("other", "Maybe the vents need oil", confidence=0.75)
        browser = house.browser()
        chosen = {f"choice.{new}": "keep_new", f"choice.{other}": "accept"}
        browser.send(browser.get("/").form("/inbox"), passphrase=PASSPHRASE, **chosen)
        browser.send(browser.get(f"/undo?id={new}").form("/undo"), passphrase=PASSPHRASE)

        states = {name: link.call("show", id=house.ids[name])["memory"]["status"] for name in house.ids}
        assert states == {"old": "disputed", "new": "disputed", "other": "active"}, old


def test_every_item_of_a_long_inbox_is_on_one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule: pages of twenty, the oldest first, each item once; the pages are named, and a group has pages too."""
    house = House(tmp_path)
    with house.here(monkeypatch):
        for number in range(45):
            house.add(str(number), f"Maybe shelf {number} holds {number * 3} pots", confidence=0.75)
        browser = house.browser()
        for view in ("/?", "/?by=conversation&group=&"):
            shown = [re.findall(r'id="m-([^"]+)"', browser.get(f"{view}page={page}").text) for page in (1, 2, 3)]
            assert [len(items) for items in shown] == [20, 20, 5]
            assert [name for items in shown for name in items] == list(house.ids.values())
            assert f'href="{html.escape(view[1:])}page=2#waits"' in browser.get(view).text


def test_words_of_fixed_sets_are_those_that_the_program_gives() -> None:
    """Rule: no raw word on a page, and no word that nothing says: links, reasons, trust, kinds, states, hooks."""
    source = "\n".join(file.read_text("utf-8") for file in HERE.parents[1].rglob("*.py") if HERE not in file.parents)
    given = {
        "tie": get_args(LinkKind),
        "trust": tuple(Trust),
        "type": tuple(MemoryType),
        "status": (*Status, "live"),
        "strength": get_args(Strength),
        "origin": tuple(Origin),
        "epistemic": tuple(Epistemic),
        "visibility": tuple(Visibility),
        "fresh": (*get_args(Freshness), "none"),
        "cited": CITATION_KINDS,
        "hook": UNPROMPTED,
    }
    scored = re.findall(r"""parts\["(\w+)"\]|^ +"(\w+)": (?:np|ranking)\.""", Path(scoring.__file__).read_text(), re.M)
    given["part"] = (*(one or other for one, other in scored), "recency", "prior", "lens")
    words = catalogue("en")
    for group, values in given.items():
        known = {key.partition(".")[2] for key in words if key.partition(".")[0] == group}
        assert known == {str(value) for value in values}, group
    for group in ("stage", "decision"):
        for key in (key for key in words if key.partition(".")[0] == group):
            assert re.search(rf"""["']{re.escape(key.partition(".")[2])}["']""", source), key


def test_no_sentence_is_without_a_use() -> None:
    """Rule: a key that neither a template nor a page names, whole or by its group, is a word nobody reads."""
    text = "\n".join(file.read_text("utf-8") for file in (*TEMPLATES, *HERE.glob("*.py")))
    groups = set(re.findall(r"""(?:word|badge|select)\((?:[^()"']*)["']([a-z_]+)["']""", text)) | {
        "conversation",
        "ago",
        "ahead",
        "pinned",
        "said",
    }
    groups |= set(re.findall(r"""select\([^)]*["']([a-z_]+)["'](?:, any=false)?\)""", text))
    begun = set(re.findall(r"""["']([a-z]+\.(?:[a-z_]+_)?)["'] ~|f["']([a-z]+\.(?:[a-z_]+_)?)\{""", text))
    prefixes = tuple(one for pair in begun for one in pair if one)
    unused = [
        key
        for key in catalogue("en")
        if f'"{key}"' not in text
        and f"'{key}'" not in text
        and not (key.endswith("_one") and key[:-4] in catalogue("en"))
        and not key.startswith(prefixes)
        and key.partition(".")[0] not in groups
    ]
    assert unused == []


def test_a_human_adds_a_memory_and_a_source_from_the_page(house: House, browser: Browser, tmp_path: Path) -> None:
    """Rule: what is added in the page is the human's own, after the passphrase; without it nothing is."""
    (tmp_path / "pumps.md").write_text("# Pumps\n\nThe main pump takes 16 A.\n", encoding="utf-8")
    before = house.everything()
    asked = browser.send(browser.get("/timeline").form("/add"), content="Pumps run at night", type="decision")
    assert (asked.status, house.everything()) == (403, before)

    saved = browser.send(asked.form("/add"), passphrase=PASSPHRASE)
    assert "Saved." in saved.text and "Pumps run at night" in saved.text
    (memory,) = [one for one in link.call("list")["memories"] if one["content"] == "Pumps run at night"]
    assert (memory["origin"], memory["type"], memory["status"]) == ("human", "decision", "active")

    source = browser.get("/knowledge").form("/knowledge/add")
    added = browser.send(source, ref=str(tmp_path / "pumps.md"), kind="files", trust="trusted", passphrase=PASSPHRASE)
    assert "Added; it is being read." in added.text
    assert "trusted" in [one["trust"] for one in link.call("knowledge_sources")["sources"]]


def test_a_timeline_is_narrowed_to_a_tag_or_a_person(house: House, browser: Browser) -> None:
    """Rule: tags and people lead to what bears them."""
    page = browser.get("/timeline?person=ada").text
    assert "Deployed the climate service" in page and "The boiler" not in page
    assert "Nothing here." in browser.get("/timeline?tag=nothing-has-it").text


def test_colours_are_the_readers_choice(browser: Browser) -> None:
    """Rule: as the system, light or dark; kept, and leading nowhere else."""
    assert "data-theme" not in browser.get("/").text
    browser.get("/theme/dark?back=//elsewhere.example")
    assert '<html lang="en" data-theme="dark">' in browser.get("/use").text
    assert browser.get("/theme/pink").status == 404


PORTS = ("8080", "9090", "7070")


def test_a_chain_of_replacements_is_drawn_whole_from_each_of_its_memories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule: who replaced whom, over several memories, as a picture with a table beside it that says the same."""
    house = House(tmp_path)
    with house.here(monkeypatch):
        human = human_of(house.data)
        alone = house.add("alone", "The vents are oiled in May", confidence=0.95)
        for port in PORTS:
            house.add(port, f"The pump API now listens on port {port}, no longer on the one before", confidence=0.95)
            if record := next(iter(link.call("inbox")["items"]), None):
                memory = record["memory"]
                link.call("settle", human=human, id=memory["id"], resolution="keep_new", seen=stamps_of(record))
        names = [house.ids[port] for port in PORTS]
        states = [link.call("show", id=name)["memory"]["status"] for name in names]
        assert states == ["superseded", "superseded", "active"]
        browser = house.browser()
        for name in names:
            page = browser.get(f"/memory/{name}").text
            section = page[page.index('id="h-chain"') :].partition("</section>")[0]
            drawn, listed = (part for part in section.split("<tbody>"))
            assert re.findall(r"port (\d+), no longer on the one before</title>", drawn) == list(PORTS)
            assert re.findall(r"port (\d+),", listed) == list(PORTS)
            assert listed.count("this one") == 1
        told = browser.get(f"/memory/{names[0]}").text
        assert f'replaced by <a href="/memory/{names[1]}">' in told and "[]" not in told and "['" not in told
        assert 'id="h-chain"' not in browser.get(f"/memory/{alone}").text


def stamps_of(item: dict[str, Any]) -> list[str]:
    return review.version_stamps([item["memory"], *item["against"]])


def test_an_open_page_is_told_what_is_written_meanwhile(
    house: House, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule: the feed brings what agents write from now on, escaped as every page is, and nothing from before."""
    monkeypatch.setattr(app, "FEED_S", 0.0)
    wrote = partial(house.add, "new", "The vents open at 28 degrees <b>now</b>")
    feed = browser.watch("/feed", wrote, until="The vents open")

    assert feed.header("content-type").startswith("text/event-stream")
    assert "The vents open at 28 degrees &lt;b&gt;now&lt;/b&gt;" in feed.text
    assert "boiler" not in feed.text
    assert all(line == "" or line.startswith(("data: ", ": ")) for line in feed.text.split("\n"))


MEMORIES = (
    ("Never run `docker compose down -v`: it wipes the orders database", "instruction"),
    ("Releases are cut on Thursdays, never before the smoke test", "decision"),
    ("src/pump.py must not import asyncio, the controller has no loop", "instruction"),
    ("迁移脚本放在 db/migrations 目录，不要手改已发布的文件", "instruction"),
    ("`make flash` failed with E42 until the serial cable was replugged", "bugfix"),
)
ASKED = (
    *("how do we release on Thursdays?", "what did we decide about the pump import?", "迁移脚本应该放在哪里？"),
    *("thanks", "why does make flash fail with E42", "clean up the orders database"),
)
RUN = ("docker compose down -v", "docker compose logs", "make flash", "rm -rf db/migrations", "ls", "git push")
EDITED = ("src/pump.py", "db/migrations/0001.sql", "README.md")
FAILED = ("error: E42 while flashing", "ModuleNotFoundError: no module named asyncio")


def test_a_preview_is_what_the_hook_prints_byte_for_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule: for each moment the page shows the very text of the hook, and showing it changes nothing of it."""
    house = House(tmp_path)
    with house.here(monkeypatch):
        for content, kind in MEMORIES:
            house.add(content[:20], content, type=kind, confidence=0.95)
        moments = [
            *(("start", "", ""), ("after_compaction", "", "")),
            *((moment, text, "") for moment in ("first_prompt", "prompt") for text in ASKED),
            *(("command", text, "") for text in RUN),
            *(("edit", "", file) for file in EDITED),
            *(("failure", text, "") for text in FAILED),
        ]
        told = 0
        for client in ("claude-code", "codex"):
            for number, (moment, text, file) in enumerate(moments):
                asked = PreviewHook(moment=moment, text=text, file=file, client=client)
                costs = house.core.services.costs.kept(house.data)
                first, again = (link.call("hook_preview", **asked.model_dump()) for _ in range(2))
                assert house.core.services.costs.kept(house.data) == costs
                caller = link.preamble()._replace(conversation=f"{client} {number}", agent=client, client=client)
                hook = MemoryBackend(house.core).hook
                if moment == "prompt":
                    hook(caller, "UserPromptSubmit", {"prompt": "The prompt before"})
                printed = hook(caller, *payload_of(asked))
                assert first == again
                assert first["text"] == printed, (client, moment, text, file)
                told += bool(printed)
        assert 2 * len(moments) >= 50 and told >= 20
        page = browser_text(house.browser(), "/context?moment=command&text=docker+compose+down+-v")
        assert MEMORIES[0][0] in page and f"/memory/{house.ids[MEMORIES[0][0][:20]]}" in page


def browser_text(browser: Browser, path: str) -> str:
    return html.unescape(browser.get(path).text)


def test_the_terminal_decides_by_the_group_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule: the terminal's review is the page's equal: all that waits, group by group, after one look."""
    house = House(tmp_path)
    with house.here(monkeypatch):
        human = human_of(house.data)
        monkeypatch.setattr(review, "ask_human", lambda: human)
        for number in range(66):
            caller = link.preamble()._replace(conversation=f"session {number % 3}", agent="codex")
            text = {"content": f"Maybe tray {number} needs {number * 7} ml", "confidence": 0.75}
            calls.run(house.core, caller, "add", text)

        listed = CliRunner().invoke(cli.app, ["review", "--list", "--json"])
        assert len(json.loads(listed.stdout)["items"]) == 66
        walked = CliRunner().invoke(cli.app, ["review", "--by", "conversation"], input="A\ny\nR\ny\nq\n")
        assert "22 accepted, 22 rejected" in walked.stdout, walked.output
        assert link.call("inbox")["total"] == 22
        wrong = CliRunner().invoke(cli.app, ["review", "--by", "mood"])
        assert wrong.exit_code == 2 and "--by is 'mood'; allowed are conversation" in wrong.output


@pytest.mark.parametrize(
    ("typed", "waits", "said"),
    [
        ("A\ny\nu\n2\ns\nq\n", {1}, "undone"),
        ("A\ny\nu\na\nq\n", {0, 1, 2}, "undone"),
        ("A\ny\nu\n2\nr\nq\n", set(), "3 accepted, 1 rejected"),
        ("A\ny\nu\n9\nq\n", set(), "nothing was undone"),
        ("A\ny\nu\n1\ns\nu\na\nq\n", {0, 1, 2}, "undone"),
    ],
)
def test_the_terminal_takes_back_one_of_many_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, waits: set[int], said: str
) -> None:
    """Rule: after a group, `u` takes back all of it or the one that is named, and asks about that one again."""
    house = House(tmp_path)
    with house.here(monkeypatch):
        human = human_of(house.data)
        monkeypatch.setattr(review, "ask_human", lambda: human)
        for number in range(3):
            house.add(str(number), f"Maybe tray {number} needs {number * 7} ml", confidence=0.75)
        walked = CliRunner().invoke(cli.app, ["review"], input=typed)
        pending = {
            number
            for number in range(3)
            if link.call("show", id=house.ids[str(number)])["memory"]["status"] == "pending"
        }
        assert (walked.exit_code, pending) == (0, waits), walked.output
        assert said in walked.output


def test_the_terminal_takes_back_any_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule: what one answer decided, one answer undoes, however many."""
    house = House(tmp_path)
    with house.here(monkeypatch):
        human = human_of(house.data)
        monkeypatch.setattr(review, "ask_human", lambda: human)
        for number in range(104):
            house.add(str(number), f"Maybe tray {number} needs {number * 7} ml", confidence=0.75)

        walked = CliRunner().invoke(cli.app, ["review"], input="A\ny\nu\na\nq\n")

        assert walked.exit_code == 0, walked.output
        assert link.call("inbox", limit=1)["total"] == 104


def test_what_a_session_was_shown_is_listed_and_looking_is_no_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule: each memory with its text and whether it was used; an erased one is counted and not shown."""
    house = House(tmp_path)
    with house.here(monkeypatch):
        kept = house.add("kept", "Pump three is primed by hand", confidence=0.95)
        scope = house.core.anchor(Actor(project_dir=str(house.project))).actor.scope
        shown = [ShownMemory(name, "verified_fact", "PreToolUse", ()) for name in (kept, "erased")]
        log = ShownSessions(house.data / SHOWN_SESSIONS_FILE)
        log.note(replace(scope, agent="codex"), datetime.now(UTC), shown, frozenset({kept}))
        log.note(replace(scope, project="elsewhere"), datetime.now(UTC), shown, frozenset())
        before = link.call("show", id=kept)["memory"].get("access_count")
        page = house.browser().get("/context").text

        assert "codex · " in page and "2 memories shown · 1 used" in page
        assert page.count(f'href="/memory/{kept}">Pump three is primed by hand</a>') >= 1
        assert "/memory/erased" not in page and page.count("memories shown") == 1
        assert link.call("show", id=kept)["memory"].get("access_count") == before
