"""A real browser on the real dashboard: Debian's Chromium by selenium, axe-core by npm, and a served memory to look at.

What is missing is named, so that a skipped test says what to install.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from human_seat import Seat

AXE = "axe-core@4.14.1"
AXE_SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
CACHE = Path(sys.prefix) / "share" / "memory-anchor-tests"
ANSWER_S = 600
"""How long a page may take: a backup of 100,000 memories on a busy machine."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def missing() -> str:
    """Return what a browser test needs and this machine has not, "" for nothing."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed (scripts/setup installs it)"
    if not any(map(shutil.which, BROWSERS)):
        return "no Chromium here (`apt-get install chromium chromium-driver fonts-noto-cjk`)"
    if not shutil.which("chromedriver"):
        return "no chromedriver here (`apt-get install chromium-driver`)"
    return "" if axe_source() else f"no {AXE} here: neither kept nor to be fetched (`npm pack {AXE}`)"


def axe_source() -> str:
    """Return axe-core's script, fetched once with npm and held against its hash; "" where it cannot be had."""
    kept = CACHE / "axe.min.js"
    if not kept.exists() and shutil.which("npm"):
        CACHE.mkdir(parents=True, exist_ok=True)
        got = subprocess.run(["npm", "pack", "--silent", AXE], cwd=CACHE, capture_output=True, check=False, timeout=120)
        packed = CACHE / f"{AXE.replace('@', '-')}.tgz"
        if got.returncode == 0 and packed.exists():
            with tarfile.open(packed) as archive:
                kept.write_bytes(archive.extractfile("package/axe.min.js").read())  # type: ignore[union-attr]
    source = kept.read_bytes() if kept.exists() else b""
    return source.decode() if hashlib.sha256(source).hexdigest() == AXE_SHA256 else ""


@contextmanager
def served(seat: Seat, **env: str) -> Iterator[str]:
    """Serve a seat's dashboard as its human would, and yield the link that opens once."""
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "memory_anchor", "dashboard", "--json"],
        cwd=seat.project,
        env=seat.env(**env),
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert child.stdout is not None
        yield json.loads(child.stdout.readline())["url"]
    finally:
        child.terminate()
        child.wait(30)
        seat.end_engine()


@contextmanager
def chromium(
    *, script: bool = True, cookies: bool = True, language: str = "en", dark: bool = False, width: int = 1_200
) -> Iterator[Any]:
    """Yield a driver of a fresh profile. script, cookies: whether pages may run JavaScript, and keep cookies."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = next(found for found in map(shutil.which, BROWSERS) if found)
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-gpu"):
        options.add_argument(flag)
    options.add_argument(f"--window-size={width},900")
    options.add_argument(f"--lang={language}")
    wanted: dict[str, Any] = {"intl.accept_languages": language}
    if not script:
        wanted["profile.managed_default_content_settings.javascript"] = 2
    if not cookies:
        wanted["profile.default_content_setting_values.cookies"] = 2
    options.add_experimental_option("prefs", wanted)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.command_executor._client_config.timeout = ANSWER_S
    try:
        driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]},
        )
        yield driver
    finally:
        driver.quit()


def whole_page(driver: Any, width: int, *, most: int = 4_000) -> bytes:
    """Return a picture of the page at this width, down to its end or `most` pixels."""
    size = {"mobile": False, "deviceScaleFactor": 1, "width": width, "height": 900}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    height = min(most, driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]["height"])
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**size, "height": int(height)})
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "clip": clip})
    return base64.b64decode(shot["data"])


def here(seat: Seat) -> None:
    """Let this process speak to the seat's engine, as a command of its project."""
    for name, value in seat.env().items():
        if name.startswith("MEMORY_ANCHOR") or name in ("HOME", "XDG_CONFIG_HOME"):
            os.environ[name] = value
    os.chdir(seat.project)
