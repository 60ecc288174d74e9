"""The dashboard in Debian's Chromium: every page and every action, in both languages, with and without JavaScript."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import crowd
import pytest
from chromium import axe_source, chromium, missing, served
from gallery import furnish
from human_seat import Seat

from memory_anchor.front.cli import link
from memory_anchor.testing import PASSPHRASE, cheap_keys

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
GOAL = 'version: "1"\nentries:\n  - id: goal\n    content: "Orders are never deleted"\n    priority: 0\n'


class Screen:
    """A page as a person has it in front of them. css: of what is used; nothing is done behind the page's back."""

    def __init__(self, driver: Any, base: str) -> None:
        self.driver, self.base = driver, base

    def open(self, path: str) -> None:
        self.driver.get(self.base + path)

    def all(self, css: str) -> list[Any]:
        found: list[Any] = self.driver.find_elements("css selector", css)
        return found

    def one(self, css: str) -> Any:
        return self.driver.find_element("css selector", css)

    def press(self, css: str) -> None:
        """Press Enter on a fold, as one who has no mouse."""
        self.one(css).send_keys("\n")

    def go(self, used: Any, keys: str) -> None:
        """Type what sends a form, and wait for the page that follows."""
        from selenium.common.exceptions import WebDriverException
        from selenium.webdriver.support.expected_conditions import staleness_of
        from selenium.webdriver.support.wait import WebDriverWait

        before = self.one("html")
        used.send_keys(keys)
        WebDriverWait(self.driver, 240, ignored_exceptions=(WebDriverException,)).until(staleness_of(before))

    def pick(self, css: str, value: str) -> None:
        from selenium.webdriver.support.select import Select

        Select(self.one(css)).select_by_value(value)

    def choose(self, css: str) -> None:
        self.one(css).send_keys(" ")

    def unfold(self, css: str) -> None:
        """Open the details that hold this."""
        for fold in self.driver.find_elements("xpath", f"//*[{css}]/ancestor::details[not(@open)]"):
            fold.find_element("css selector", "summary").send_keys("\n")

    def sign(self, within: str) -> None:
        self.go(self.one(f"{within} input[name=passphrase]"), f"{PASSPHRASE}\n")

    def said(self) -> str:
        return " ".join(one.text for one in self.all(".notice"))


SIZES = (0, 70, *(pytest.param(size, marks=pytest.mark.nightly) for size in (10_000, 100_000)))
"""Memories in the store before the pages are used; what the actions need comes on top of them."""


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Return a folder with a data directory of so many memories, filled once, whose project is `shop` beside it.

    FILLED names a folder that keeps them for later runs: 100,000 take minutes.
    """

    @cache
    def of(size: int) -> Path:
        folder = Path(os.environ.get("FILLED") or tmp_path_factory.mktemp("filled"), str(size))
        if (folder / "shop").is_dir():
            return folder
        folder.mkdir(parents=True)
        seat = Seat(folder, project="shop", goal="")
        with cheap_keys(), pytest.MonkeyPatch.context() as patch:
            patch.setenv("MEMORY_ANCHOR_DATA_DIR", str(seat.data))
            crowd.fill(seat, size)
        return seat.root

    return of


@pytest.fixture(params=["en", "zh"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Seat]]:
    if wanting := missing():
        pytest.skip(wanting)
    kept, where = dict(os.environ), Path.cwd()
    try:
        with cheap_keys():
            yield request.param, Seat(tmp_path / "seat", project="shop", goal=GOAL)
    finally:
        os.chdir(where)
        os.environ.clear()
        os.environ.update(kept)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("script", [True, False], ids=["with JavaScript", "without"])
def test_every_page_and_action_works(
    place: tuple[str, Seat], script: bool, size: int, filled: Callable[[int], Path]
) -> None:
    """Rule pages: each page in 2 languages, with and without JavaScript, with 0 to 100,000 memories: all actions work,
    nothing is cut or wider than the window, axe-core and the content security policy find nothing."""
    language, seat = place
    if size:
        crowd.copied(seat, filled(size) / "data", filled(size) / "shop")
    seat.init()
    with served(seat) as opened, chromium(language=language, script=script) as driver:
        driver.get(opened)
        assert driver.find_element("tag name", "html").get_attribute("lang") == language
        screen = Screen(driver, opened.partition("/open/")[0])
        if not size:
            _look(screen, PAGES, script)
        ids = furnish(seat, language)
        with link.in_project("", str(seat.root / "kitchen")):
            link.call("add", content="The kitchen oven runs at 200 degrees", confidence=0.95)
        told = (f"/search?q={quote(ids['ask'])}", f"/memory/{ids['bugfix']}", f"/memory/{ids['moved'][0]}")
        _look(screen, (*PAGES, *told, f"/purge?id={ids['gone']}"), script)
        _inbox(screen, ids)
        _one_of_a_group(screen)
        _look(screen, ("/undo",), script)
        _memory(screen, ids)
        _adding(screen, seat)
        _import(screen, seat, script)
        _purge(screen, ids)
        _proposal(screen)
        _health(screen)
        _projects(screen)
        _reading(screen, ids)
        if script:
            _keys(screen)
        wrong = [one["message"] for one in driver.get_log("browser") if "Content Security Policy" in one["message"]]
        assert wrong == []


PAGES = (
    *("/", "/?by=agent", "/?by=conversation", "/search", "/timeline", "/context", "/sessions", "/knowledge"),
    *("/health", "/use", "/undo", "/import", "/nothing"),
)


def _look(screen: Screen, paths: Sequence[str], script: bool) -> None:
    """See that each page is there, fits, and is as axe-core wants it."""
    wrong: dict[str, list[str]] = {}
    for path in paths:
        screen.open(path)
        assert screen.one("h1").text, path
        if script and (found := [*_axe(screen.driver), *_misfits(screen.driver)]):
            wrong[path] = found
    assert wrong == {}


def test_a_browser_without_cookies_is_told_what_to_allow(place: tuple[str, Seat]) -> None:
    """Issue 18, bad input: a browser without cookies: one sentence, nothing lost."""
    language, seat = place
    if language != "en":
        pytest.skip("one language shows it")
    seat.init()
    with served(seat) as opened, chromium(cookies=False) as driver:
        driver.get(opened)
        driver.get(opened.partition("/open/")[0] + "/")
        assert "allow cookies for 127.0.0.1" in driver.find_element("tag name", "main").text


def _axe(driver: Any) -> list[str]:
    """Return what axe-core finds, in light and in dark; it needs JavaScript, and the page is the same without."""
    wrong: list[str] = []
    driver.execute_script(axe_source())
    for theme in ("dark", "light"):
        scheme = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
        found = driver.execute_async_script(
            "const done = arguments[arguments.length - 1]; axe.run(document, {resultTypes: ['violations']}).then(done)"
        )
        nodes = [(one["id"], [node["html"][:120] for node in one["nodes"][:3]]) for one in found["violations"]]
        wrong += [f"{theme} {name}: {html}" for name, html in nodes]
    return wrong


WINDOWS = (
    *((400, 1, "400 pixels"), (900, 1, "900 pixels"), (1_600, 1, "1,600 pixels")),
    *((640, 2, "a window of 1,280 at 200 %"), (320, 4, "the same at 400 %")),
)
WRONG = """
const wide = [...document.querySelectorAll("header *, nav *, main *, footer *")]
  .filter((one) => !one.closest(".scroll, .hidden, .picture, .switch form"));
const box = (one) => one.getBoundingClientRect();
const name = (what, one) => what + " " + one.outerHTML.slice(0, 120);
const drawn = [...document.querySelectorAll("svg[viewBox] text")].filter((one) => box(one).width);
return [
  ...(document.documentElement.scrollWidth > innerWidth ? ["the page scrolls sideways"] : []),
  ...wide.filter((one) => box(one).right > innerWidth + 1 || (box(one).width && box(one).left < -1))
    .map((one) => name("beyond the window:", one)),
  ...wide.filter((one) => getComputedStyle(one).overflowX !== "visible" && !/INPUT|TEXTAREA|SELECT/.test(one.tagName)
    && one.scrollWidth > one.clientWidth + 1).map((one) => name("cut:", one)),
  ...drawn.filter((one) => box(one).left < box(one.closest("svg")).left - 1
    || box(one).right > box(one.closest("svg")).right + 1).map((one) => name("beyond its picture:", one)),
  ...drawn.filter((one) => drawn.some((other) => other !== one && other.closest("svg") === one.closest("svg")
    && box(one).left < box(other).right - 1 && box(other).left < box(one).right - 1
    && box(one).top < box(other).bottom - 3 && box(other).top < box(one).bottom - 3))
    .map((one) => name("over another text:", one)),
];
"""


def _misfits(driver: Any) -> list[str]:
    """Return at which widths and zooms a page scrolls sideways, or a text of it is cut or covered."""
    wrong: list[str] = []
    for width, zoom, name in WINDOWS:
        size = {"mobile": False, "deviceScaleFactor": zoom, "width": width, "height": 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        wrong += [f"{name}: {one}" for one in driver.execute_script(WRONG)]
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return wrong


OURS = "/?by=agent&group=cli"
"""What waits of the commands themselves, whatever else does."""


def _inbox(screen: Screen, ids: dict[str, Any]) -> None:
    first, second = ids["doubts"]
    screen.open(OURS)
    screen.press(f"#m-{first} details.edit summary")
    text = screen.one(f"#t-{first}")
    text.clear()
    text.send_keys("The cache is too small")
    screen.choose(f"#m-{first} input[value=accept]")
    screen.choose(f"#m-{second} input[value=reject]")
    screen.choose(f"#m-{ids['ports'][1]} input[value=keep_new]")
    screen.sign(".sign")
    assert len(screen.all(".notice.good")) == 1, screen.said()
    shown = link.call("show", id=first)["memory"]
    assert (shown["status"], shown["content"]) == ("active", "The cache is too small")
    assert link.call("show", id=second)["memory"]["status"] == "archived"
    assert link.call("show", id=ids["ports"][0])["memory"]["status"] == "superseded"
    screen.go(screen.one(".notice a.button"), "\n")
    screen.sign("main form")
    assert [link.call("show", id=one)["memory"]["status"] for one in ids["doubts"]] == ["pending", "pending"]


def _one_of_a_group(screen: Screen) -> None:
    """Accept a whole group, take one of it back, then the rest."""
    screen.open("/?by=agent")
    (group,) = [one for one in screen.all("article.group") if one.find_element("tag name", "h3").text.startswith("cli")]
    group.find_element("css selector", "input[value=accept]").send_keys(" ")
    screen.sign(".sign")
    assert len(screen.all(".notice.good")) == 1, screen.said()
    screen.open("/undo")
    of_each = screen.all(".rows a.button")
    screen.go(of_each[0], "\n")
    screen.sign("main form")
    assert screen.all(".notice.good") and len(screen.all(".rows a.button")) in (0, len(of_each) - 1), screen.said()
    screen.sign("main form")
    assert screen.all(".notice.good"), screen.said()
    screen.open(OURS)
    assert len(screen.all("article input[value=accept]")) == len(of_each)


def _adding(screen: Screen, seat: Seat) -> None:
    screen.open("/timeline")
    screen.unfold("@id='add-text'")
    screen.one("#add-text").send_keys("The oven is cleaned on Fridays")
    screen.sign("form[action='/add']")
    assert screen.all(".notice.good"), screen.said()
    (seat.root / "notes.md").write_text("# Oven\n\nIt takes 16 A.\n", "utf-8")
    screen.open("/knowledge")
    screen.unfold("@id='ref'")
    screen.one("#ref").send_keys(str(seat.root / "notes.md"))
    screen.pick("#f-kind", "files")
    screen.sign("form[action='/knowledge/add']")
    assert not screen.all(".notice.bad"), screen.said()


def _import(screen: Screen, seat: Seat, script: bool) -> None:
    (seat.root / "CLAUDE.md").write_text("# Rules\n\n- The oven door stays shut\n- 炉子每周五清洗\n", "utf-8")
    screen.open("/import")
    screen.pick("#f-tool", "claude-md")
    screen.one("#file").send_keys(str(seat.root / "CLAUDE.md"))
    screen.go(screen.one("form[action='/import'] button"), "\n")
    assert [one.text for one in screen.all(".facts dd")] == ["2", "0", "0", "0"], screen.said()
    assert not script or (_axe(screen.driver), _misfits(screen.driver)) == ([], [])
    screen.sign("form[action='/import/do']")
    assert len(screen.all(".notice.good")) == 1, screen.said()


def _projects(screen: Screen) -> None:
    screen.open("/timeline")
    screen.press(".switch summary")
    screen.go(screen.one(".switch button:not([aria-current])"), "\n")
    assert [one.text for one in screen.all(".row .line")] == ["The kitchen oven runs at 200 degrees"]
    screen.open("/")
    assert screen.one(".switch summary").text.endswith("kitchen")
    screen.press(".switch summary")
    screen.go(screen.one(".switch button:not([aria-current])"), "\n")
    assert screen.one(".switch summary").text.endswith("shop")


def _memory(screen: Screen, ids: dict[str, Any]) -> None:
    name = ids["bugfix"]
    for change, state in (
        ("edit", {"content": "Prices are whole cents"}),
        ("pin", {"pinned": True}),
        ("unpin", {}),
        ("judge", {"epistemic": "verified"}),
        ("forget", {"status": "archived"}),
        ("restore", {"status": "active"}),
    ):
        screen.open(f"/memory/{name}")
        screen.unfold(f"@name='change' and @value='{change}'")
        form = f"form.act:has(input[value={change}])"
        if change == "edit":
            screen.one("#edit-text").clear()
            screen.one("#edit-text").send_keys("Prices are whole cents")
        if change == "judge":
            screen.one("#shown-by").send_keys("make test")
        screen.sign(form)
        assert len(screen.all(".notice.good")) == 1, f"{change}: {screen.said()}"
        assert state.items() <= link.call("show", id=name)["memory"].items(), change


def _purge(screen: Screen, ids: dict[str, Any]) -> None:
    screen.open(f"/purge?id={ids['gone']}")
    screen.sign("main form")
    screen.choose("input[name=sure]")
    screen.sign("main form")
    assert screen.all(".notice.good"), screen.said()
    screen.open(f"/memory/{ids['gone']}")
    assert screen.all(".notice.bad")


def _proposal(screen: Screen) -> None:
    for _ in range(2):
        screen.open("/")
        screen.sign("form[action='/proposal']")
        assert screen.all(".notice.good"), screen.said()
    assert not screen.all("form[action='/proposal']")


def _health(screen: Screen) -> None:
    for action in ("/backup", "/job", "/doctor", "/pause"):
        screen.open("/health")
        screen.go(screen.one(f"form[action='{action}'] button"), "\n")
        assert screen.one("h1").text
        assert not screen.all(".notice.bad"), screen.said()
    assert screen.all("form[action='/pause'] input[name=passphrase]")
    screen.sign("form[action='/pause']")
    assert screen.all(".notice.good"), screen.said()
    screen.open("/health")
    assert screen.all("#h-doctor ~ .scroll tbody tr")


def _reading(screen: Screen, ids: dict[str, Any]) -> None:
    screen.open("/search")
    screen.go(screen.one("#q"), ids["ask"] + "\n")
    assert len(screen.all(".answers li.card")) > 0
    screen.go(screen.one("#why"), ids["pinned"] + "\n")
    assert ids["pinned"] in screen.one("#h-why ~ .card").text
    screen.open("/timeline?type=decision")
    assert len(screen.all(".row .line")) == 1
    screen.go(screen.one(".row .line"), "\n")
    assert f"/memory/{ids['pinned']}" in screen.driver.current_url
    screen.open("/context")
    screen.go(screen.one("#task"), "importer\n")
    assert screen.all("tfoot")
    screen.open("/knowledge")
    screen.go(screen.one("form[action='/knowledge/sync'] button"), "\n")
    assert screen.all(".notice.good"), screen.said()
    before = len(screen.all("article"))
    screen.press("article details:last-of-type summary")
    screen.sign("form[action='/knowledge/remove']")
    assert len(screen.all("article")) == before - 1
    other = "zh" if screen.one("html").get_attribute("lang") == "en" else "en"
    screen.go(screen.one(f".languages a[lang={other}]"), "\n")
    assert screen.one("html").get_attribute("lang") == other


def _keys(screen: Screen) -> None:
    """j, a, e, r and / do what the foot of each page says."""
    screen.open("/")
    body = screen.one("body")
    body.send_keys("j")
    first = screen.driver.switch_to.active_element
    assert "item" in first.get_attribute("class")
    first.send_keys("r")
    assert screen.all(".item input[value=reject]:checked")
    screen.driver.switch_to.active_element.send_keys("e")
    assert screen.driver.switch_to.active_element.tag_name == "textarea"
    assert screen.all(".item input[value=accept]:checked")
    screen.driver.switch_to.active_element.send_keys("\ue00c")
    screen.one("body").send_keys("/")
    assert screen.driver.switch_to.active_element.get_attribute("id") == "find"
