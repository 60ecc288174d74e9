"""One memory with everything a page may have to show, and a dashboard over it; shared by every test of a module."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import PORT, Browser

from memory_anchor.adapters.system import SystemClock
from memory_anchor.domain.where import Where
from memory_anchor.extensions.dashboard import actions
from memory_anchor.extensions.dashboard.access import OPEN, Sessions
from memory_anchor.extensions.dashboard.app import Dashboard
from memory_anchor.front import calls
from memory_anchor.front.cli import link
from memory_anchor.identity.keys import TRIES_FILE
from memory_anchor.process.wiring import Core
from memory_anchor.testing import cheap_keys, ephemeral_core, human_of

LAW = 'version: "1"\nentries:\n  - id: goal\n    content: "Keep the greenhouse at 21 degrees"\n    priority: 0\n'
HOSTILE = (
    '<script>alert(1)</script><form action="/inbox" method="post"><input name="passphrase"></form>'
    "</textarea></details><img src=x onerror=alert(1)> \u202egnp.exe\u202c \u200bhidden {{ 1234*5678 }} \"'> "
)
"""What an agent could store: markup, a fake form, direction and unseen signs, a template."""


class House:
    """core: the memory. ids: what was put into it, by name."""

    def __init__(self, root: Path) -> None:
        self.project = root / "greenhouse"
        self.project.mkdir(parents=True)
        (self.project / "constitution.yaml").write_text(LAW, encoding="utf-8")
        self.core: Core = ephemeral_core(root / "data", clock=SystemClock())
        self.data = self.core.data_dir
        self.sessions = Sessions()
        self.ids: dict[str, str] = {}

    def ask(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        sent = json.loads(json.dumps(dict(arguments)))
        answer: dict[str, Any] = json.loads(json.dumps(calls.run(self.core, link.preamble(), name, sent)))
        return answer

    def add(self, name: str, content: str, **more: Any) -> str:
        self.ids[name] = link.call("add", content=content, **more)["id"]
        return self.ids[name]

    def everything(self) -> list[str]:
        """Return every version that there is, to compare what was with what is."""
        versions = [
            f"{one.version_id} {one.status} {one.content} {one.pinned} {one.author}"
            for layer in ("verified_fact", "event_log")
            for one in (entry.memory for entry in self.core.services.store.scan(layer, Where(), page=1_000)[0])
        ]
        return sorted(versions)

    @contextmanager
    def here(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Let this process be the command's, in the project, with the engine's socket left out."""
        monkeypatch.setenv("MEMORY_ANCHOR_DATA_DIR", str(self.data))
        monkeypatch.chdir(self.project)
        monkeypatch.setattr(link, "_ask_engine", self.ask)
        monkeypatch.setattr(actions, "wake", lambda: {"state": "serving", "pid": 4711, "version": "0.1.0"})
        (self.data / "identity" / TRIES_FILE).unlink(missing_ok=True)
        with cheap_keys():
            yield

    def browser(self, *, language: str = "en") -> Browser:
        """Return a browser that came in by a link of its own."""
        browser = Browser(Dashboard(PORT, self.sessions).app, language=language)
        assert browser.get(OPEN + self.sessions.new_link()).status == 200
        return browser

    def furnish(self) -> None:
        human = human_of(self.data)
        self.add("plain", "The boiler is serviced every April", confidence=0.95)
        self.add("doubted", "Maybe the pump needs a bigger fuse", confidence=0.75)
        self.add("hostile", (HOSTILE * 60)[:8_000], confidence=0.75)
        self.add("old port", "The climate API listens on port 8080", confidence=0.95)
        self.add("new port", "The climate API listens on port 9090", confidence=0.95)
        self.ids["human"] = link.call("add", human=human, content="We ship on Thursdays", type="decision")["id"]
        self.add("before", "Deploys go through Jenkins", confidence=0.95)
        self.add("after", "Deploys go through GitHub Actions now, no longer Jenkins", confidence=0.95)
        self.add("gone", "The old greenhouse key is under the mat", confidence=0.95)
        link.call("forget", human=human, id=self.ids["gone"])
        self.ids["event"] = link.call("log", content="Deployed the climate service", who=["Ada"], where="Berlin")["id"]
