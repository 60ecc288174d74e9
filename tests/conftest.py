"""Fixtures every test may use: a whole memory without processes, models or a real clock."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from figures import figure
from hypothesis import settings
from typer import testing as typer_testing
from typer.main import get_command
from typer.testing import CliRunner, Result

from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.front import calls
from memory_anchor.front.cli import link, passphrase
from memory_anchor.front.cli.app import app
from memory_anchor.identity import keys
from memory_anchor.identity.keys import REQUIRED_CONFIRMATIONS, Signer
from memory_anchor.process.wiring import Core
from memory_anchor.testing import PASSPHRASE, ManualClock, cheap_keys, ephemeral_core, human_of
from memory_anchor.use_cases.memory import MemoryAnchor

sys.path[:0] = [str(Path(__file__).parent / "support"), str(Path(__file__).parents[1] / "scripts")]

if TYPE_CHECKING:
    from devicekit import Laptop
    from pgserver import Cluster
    from sessionkit import Machine

settings.register_profile(
    "unhurried",
    deadline=None,  # the first example loads a tokenizer, 300 ms on a busy machine
    max_examples=figure(40, 100),
)
settings.load_profile("unhurried")

typer_testing._get_command = cache(get_command)  # type: ignore[attr-defined]
"""The tree of all commands takes 80 ms to make and never changes; a runner makes it anew for every command it runs."""

GARBAGE_AFTER = 20_000
"""New objects between two garbage collections; at Python's 700 they took 6 % of the suite."""
SLOW_S = 900
"""When a slow test is ended that names no time of its own: many processes on a machine that does other things too."""


gc.set_threshold(GARBAGE_AFTER)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A private PostgreSQL for the tests of this process; skipped where it is missing."""
    from pgserver import cluster

    with ExitStack() as stack:
        try:
            server = stack.enter_context(cluster())
        except LookupError as missing:
            pytest.skip(str(missing))
        yield server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("nightly"):
            item.add_marker("slow")
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_S))


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: no garbage collection need look at it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test reads or writes the memory, settings or client files of whoever runs it."""
    for name in list(os.environ):
        if name.startswith(("MEMORY_ANCHOR_", "CLAUDE", "CODEX", "GEMINI")):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / ".local" / "share"))
    monkeypatch.setenv("MEMORY_ANCHOR_DATA_DIR", str(tmp_path / "data"))


@pytest.fixture
def clock(request: pytest.FixtureRequest) -> ManualClock:
    return ManualClock(datetime.now(UTC)) if request.node.get_closest_marker("today") else ManualClock()


@pytest.fixture
def core(tmp_path: Path, clock: ManualClock) -> Iterator[Core]:
    made = ephemeral_core(tmp_path / "core", clock=clock)
    yield made
    made.close()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def agent(project: Path) -> Actor:
    scope = Scope(agent="claude-code", conversation="conversation-1")
    return Actor(Caller.AGENT, scope, client="claude-code", project_dir=str(project))


@pytest.fixture
def anchor(core: Core, agent: Actor) -> MemoryAnchor:
    return core.anchor(agent)


@pytest.fixture
def approve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., MemoryAnchor]:
    """Return a function that approves and seals the constitutions of memories' projects, with a cheap key."""
    monkeypatch.setattr(keys, "SCRYPT_COST", 2**4)

    def approved(*anchors: MemoryAnchor) -> MemoryAnchor:
        for schema in (anchor.project.identity for anchor in anchors):
            if not schema.initialised:
                schema.init(passphrase=PASSPHRASE, approver="alice", old_passphrase=None)
            elif proposal := schema.adopt(by="alice", passphrase=PASSPHRASE):
                for _ in range(REQUIRED_CONFIRMATIONS):
                    schema.confirm(proposal.id, passphrase=PASSPHRASE, approver="alice")
        return anchors[0]

    return approved


@pytest.fixture(name="cheap_keys")
def _cheap_keys() -> Iterator[None]:
    """Keys of this process are sealed at next to no cost."""
    with cheap_keys():
        yield


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no disk: kills and power cuts are tried in `tests/crash`."""
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture
def laptops(tmp_path: Path) -> Iterator[Callable[..., Laptop]]:
    """Make devices of one person by name; each joins the folder `shared`."""
    from devicekit import Laptop

    made: list[Laptop] = []
    folder = tmp_path / "shared"
    folder.mkdir()

    def laptop(name: str, **more: object) -> Laptop:
        one = Laptop(tmp_path / name, ManualClock())
        one.join(folder, name, **more)
        made.append(one)
        return one

    yield laptop
    for one in made:
        one.close()


@pytest.fixture
def human(core: Core, monkeypatch: pytest.MonkeyPatch) -> Iterator[Signer]:
    """A human with a real key at the terminal of this memory; only the keyboard is played."""
    monkeypatch.setenv("MEMORY_ANCHOR_DATA_DIR", str(core.data_dir))
    with cheap_keys():
        signer = human_of(core.data_dir)
        for keyboard in ("ask_hidden", "_ask_on_tty"):
            monkeypatch.setattr(passphrase, keyboard, lambda *_: PASSPHRASE)
        yield signer


@pytest.fixture
def run(core: Core, project: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command against a memory in this process, as it would through an engine's socket: JSON both ways."""
    monkeypatch.chdir(project)

    def engine(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        sent = json.loads(json.dumps(dict(arguments)))
        answer: dict[str, Any] = json.loads(json.dumps(calls.run(core, link.preamble(), name, sent)))
        return answer

    monkeypatch.setattr(link, "_ask_engine", engine)
    return lambda *arguments, **more: CliRunner().invoke(app, list(arguments), **more)


@pytest.fixture
def machine(
    core: Core, run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_sync: None
) -> Machine:
    """A home with agents' sessions, and the commands that read them."""
    from sessionkit import Machine

    monkeypatch.setenv("HOME", str(tmp_path / "adopter"))
    monkeypatch.setenv("MEMORY_ANCHOR_DATA_DIR", str(core.data_dir))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return Machine(tmp_path / "adopter", core, run)
