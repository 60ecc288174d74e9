"""The dashboard's project switch: one project at a time, on every page, and nothing of another is shown or changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser
from dashhouse import House

from memory_anchor.extensions.dashboard.wording import LANGUAGES
from memory_anchor.front.cli import link
from memory_anchor.testing import PASSPHRASE, human_of

PATHS = (
    *("/", "/?by=type", "/?by=conversation&group=", "/search?q=port", "/timeline", "/timeline?tag=deploy"),
    *(
        "/sessions",
        "/sessions?q=port",
        "/context?task=which+port",
        "/knowledge",
        "/health",
        "/use",
        "/undo",
        "/use.csv",
    ),
)
"""Every page, and the ways into it."""


class Two(House):
    """A house of two projects with the same kinds of memories: `greenhouse`, where the command runs, and `orchard`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.orchard = root / "orchard"
        (self.orchard / ".ai").mkdir(parents=True)

    def fill(self) -> None:
        human = human_of(self.data)
        for name, folder in (("greenhouse", ""), ("orchard", str(self.orchard))):
            with link.in_project("", folder):
                self.add(f"{name} fact", f"The {name} API listens on port 8080", confidence=0.95, tags=["deploy"])
                self.add(f"{name} doubt", f"Maybe the {name} port is blocked at night", confidence=0.75)
                self.ids[f"{name} own"] = link.call("add", human=human, content=f"The {name} port stays closed")["id"]
                link.call("log", content=f"Opened the port of the {name}")

    def switch(self, browser: Browser, name: str, back: str = "/") -> str:
        page = browser.get(back)
        (named,) = re.findall(rf'<button name="project" value="([^"]+)"[^>]*>{name}', page.text)
        return browser.send(page.form("/project"), project=named).text


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    made = Two(tmp_path_factory.mktemp("two"))
    with pytest.MonkeyPatch.context() as patch, made.here(patch):
        made.fill()
    yield made
    made.core.close()


@pytest.fixture
def browser(house: Two, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    with house.here(monkeypatch):
        yield house.browser()


def body(text: str) -> str:
    """Return a page without its list of projects, which names them all."""
    return re.sub(r'<details class="switch">.*?</details>', "", text, flags=re.S)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_project_is_switched_by_one_click_and_kept_over_every_page(
    house: Two, browser: Browser, language: str
) -> None:
    """Rule: a form of buttons on every page, without JavaScript; the same page of the other project follows."""
    browser.language = language
    assert "orchard API" in house.switch(browser, "orchard", "/timeline")
    for path in ("/", "/timeline", "/search?q=port", "/nothing"):
        page = browser.get(path).text
        current = re.search(r'aria-current="true">(\w+)<span', page)
        assert current is not None and current[1] == "orchard", path
    assert "greenhouse API" in house.switch(browser, "greenhouse", "/timeline")


@pytest.mark.parametrize(("shown", "other"), [("orchard", "greenhouse"), ("greenhouse", "orchard")])
def test_no_page_shows_anything_of_another_project(house: Two, browser: Browser, shown: str, other: str) -> None:
    """Rule scope.switch: what is of another project is not listed, found, counted, or opened by its address."""
    house.switch(browser, "orchard")
    house.switch(browser, shown)
    for path in PATHS:
        page = body(browser.get(path).text)
        assert not re.search(rf"{other} (API|port)|of the {other}", page), path
        assert all(house.ids[f"{other} {kind}"] not in page for kind in ("fact", "doubt", "own")), path
    for kind in ("fact", "doubt", "own"):
        assert browser.get(f"/memory/{house.ids[f'{other} {kind}']}").status == 404
        assert browser.get(f"/memory/{house.ids[f'{shown} {kind}']}").status == 200
    assert "1 wait" in browser.get("/").text


def test_a_form_changes_nothing_once_its_session_shows_another_project(house: Two, browser: Browser) -> None:
    """Rule scope.switch: a tab that still shows the one project can act on neither; its passphrase is not used."""
    own, doubt = house.ids["greenhouse own"], house.ids["greenhouse doubt"]
    memory, inbox = browser.get(f"/memory/{own}"), browser.get("/").form("/inbox")
    forms = [
        (inbox, {f"choice.{doubt}": "accept"}),
        *((memory.form("/memory", change=change), {}) for change in ("edit", "pin", "forget")),
        (browser.get("/timeline").form("/add"), {"content": "The port is open"}),
        (browser.get(f"/purge?id={own}").form("/purge"), {}),
        (browser.get("/health").form("/pause"), {}),
        (browser.get("/knowledge").form("/knowledge/add"), {"ref": "."}),
    ]
    house.switch(browser, "orchard")
    before = house.everything()
    for form, fields in forms:
        refused = browser.send(form, passphrase=PASSPHRASE, **fields)
        assert refused.status == 403 and "another session or project" in refused.text, form.action
    assert house.everything() == before


def test_what_is_decided_in_one_project_is_not_undone_in_another(house: Two, browser: Browser) -> None:
    """Rule scope.switch: each project has its own last action; back in the first, it can still be taken back."""
    own = house.ids["greenhouse own"]
    pinned = browser.send(browser.get(f"/memory/{own}").form("/memory", change="pin"), passphrase=PASSPHRASE)
    assert "Pinned." in pinned.text
    house.switch(browser, "orchard")
    assert "There is nothing of yours to undo." in browser.get("/undo").text

    house.switch(browser, "greenhouse")
    assert "Pinned." in browser.get("/undo").text
    browser.send(browser.get("/undo").form("/undo"), passphrase=PASSPHRASE)
    assert not link.call("show", id=own)["memory"].get("pinned")


def test_what_is_done_after_a_switch_is_done_in_that_project(house: Two, browser: Browser) -> None:
    """Rule scope.switch: a memory that a human adds is of the project that the page shows."""
    house.switch(browser, "orchard", "/timeline")
    added = browser.send(browser.get("/timeline").form("/add"), content="Apples first", passphrase=PASSPHRASE)
    assert "Saved." in added.text
    assert "Apples first" not in str(link.call("list"))
    with link.in_project("", str(house.orchard)):
        assert "Apples first" in str(link.call("list"))


def test_only_projects_of_this_memory_can_be_chosen_and_only_by_its_own_form(house: Two, browser: Browser) -> None:
    """Rule scope.switch: no other folder of this machine, and no link, opens a project."""
    form = browser.get("/").form("/project")
    for name in ("", "/etc", "..", "default; drop", str(house.orchard)):
        assert "There is no such project here" in browser.send(form, project=name).text, name
    assert browser.get("/project").status in (404, 405)
    assert browser.post("/project", form.fields | {"project": "x", "csrf": ""}).status == 403
    away = browser.post("/project", form.fields | {"project": "", "back": "//elsewhere.example"})
    assert away.status == 400
    assert "greenhouse API" in browser.get("/timeline").text


def test_the_count_of_another_project_does_not_reach_an_open_page(house: Two, browser: Browser) -> None:
    """Rule scope.switch: the piece that an open page asks for again is of its own project, or nothing."""
    (asked,) = re.findall(r'hx-get="([^"]+)"', browser.get("/").text)
    assert browser.get(asked).text == "1"
    house.switch(browser, "orchard")
    assert browser.get(asked).status == 404
