"""The dashboard in Debian's Chromium: every page and every action, in both languages, with and without JavaScript."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

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
        WebDriverWait(self.driver, 60, ignored_exceptions=(WebDriverException,)).until(staleness_of(before))

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


@pytest.fixture(params=["en", "zh"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Seat]]:
    if wanting := missing():
        pytest.skip(wanting)
    kept, where = dict(os.environ), Path.cwd()
    try:
        with cheap_keys():
            seat = Seat(tmp_path / "seat", project="shop", goal=GOAL)
            seat.init()
            yield request.param, seat
    finally:
        os.chdir(where)
        os.environ.clear()
        os.environ.update(kept)


@pytest.mark.parametrize("script", [True, False], ids=["with JavaScript", "without"])
def test_every_page_and_action_works(place: tuple[str, Seat], script: bool) -> None:
    """Issue 18: 8 pages x 2 languages x {with, without JavaScript}: all actions work, axe-core 0, CSP violations 0."""
    language, seat = place
    with served(seat) as opened, chromium(language=language, script=script) as driver:
        ids = furnish(seat, language)
        screen = Screen(driver, opened.partition("/open/")[0])
        driver.get(opened)
        assert driver.find_element("tag name", "html").get_attribute("lang") == language
        pages = (
            "/",
            "/?by=agent",
            f"/search?q={quote(ids['ask'])}",
            "/timeline",
            f"/memory/{ids['bugfix']}",
            "/context",
            "/sessions",
        )
        for path in (*pages, "/knowledge", "/health", "/use", f"/purge?id={ids['gone']}", "/undo", "/nothing"):
            screen.open(path)
            assert screen.one("h1").text, path
            assert not script or _axe(driver) == [], path
            assert not script or _too_wide(driver) == [], path
        _inbox(screen, ids)
        _memory(screen, ids)
        _purge(screen, ids)
        _proposal(screen)
        _health(screen)
        _reading(screen, ids)
        if script:
            _keys(screen)
        wrong = [one["message"] for one in driver.get_log("browser") if "Content Security Policy" in one["message"]]
        assert wrong == []


def test_a_browser_without_cookies_is_told_what_to_allow(place: tuple[str, Seat]) -> None:
    """Issue 18, bad input: a browser without cookies: one sentence, nothing lost."""
    language, seat = place
    if language != "en":
        pytest.skip("one language shows it")
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


NARROW = ((400, 1, "400 pixels"), (640, 2, "a window of 1,280 at 200 %"), (320, 4, "the same at 400 %"))


def _too_wide(driver: Any) -> list[str]:
    """Return at which widths and zooms a page has to be scrolled sideways."""
    wrong: list[str] = []
    for width, zoom, name in NARROW:
        size = {"mobile": False, "deviceScaleFactor": zoom, "width": width, "height": 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        beyond = driver.execute_script(
            "return [document.documentElement.scrollWidth - innerWidth, ...[...document.querySelectorAll('main *')]"
            ".filter((one) => !one.closest('.scroll, .hidden, .picture'))"
            ".filter((one) => one.getBoundingClientRect().right > innerWidth + 1)"
            ".map((one) => one.outerHTML.slice(0, 90))]"
        )
        wrong += [f"{name}: {one}" for one in beyond if isinstance(one, str) or one > 0]
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return wrong


def _inbox(screen: Screen, ids: dict[str, Any]) -> None:
    first, second = ids["doubts"]
    screen.open("/")
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
    screen.press("article details:last-of-type summary")
    screen.sign("form[action='/knowledge/remove']")
    assert screen.all(".empty")
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
