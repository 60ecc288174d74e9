"""Doctor: every part is looked at, nothing is harmed, and what fails comes with the next command."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from stores import core_on_disk

from memory_anchor.adapters.payload import to_payload
from memory_anchor.domain.errors import DiskFull, Mending, StoreDamaged, Unavailable
from memory_anchor.domain.model import COLLECTIONS
from memory_anchor.domain.where import Where
from memory_anchor.front import doctor
from memory_anchor.front.clients import install
from memory_anchor.front.doctor import Check, diagnose, exit_code, probe
from memory_anchor.process.wiring import Core
from memory_anchor.testing import HashEmbedder, ManualClock, ephemeral_core


@pytest.fixture
def core(tmp_path: Path, clock: ManualClock) -> Iterator[Core]:
    """Return a memory whose database lies in its data directory."""
    with closing(core_on_disk(tmp_path / "core", clock=clock)) as made:
        yield made


def everything(core):
    return [
        to_payload(entry.memory)
        for name in COLLECTIONS
        for entry in core.services.store.scan(name, Where(), page=10_000)[0]
    ]


def test_the_loop_leaves_no_trace(anchor, core):
    """Rule doctor.harmless: neither a memory nor an audit record nor a count is left behind."""
    anchor.save_memory("The harbour closes at six")
    before, trail = everything(core), list(core.audit.records())

    checks = list(probe(core))

    assert {check.state for check in checks} == {"ok"}
    names = {"store", "memories", "embedder", "language model", "write, read, forget", "store loop"}
    assert {check.name for check in checks} == names
    assert everything(core) == before
    assert list(core.audit.records()) == trail
    assert not any("doctor" in snippet.text for snippet in anchor.search("what about the doctor").snippets)


def test_a_store_that_loses_what_it_was_given_is_told(core, monkeypatch):
    """Rule doctor.loop: an acknowledged write that cannot be read is damage, and the check says so."""
    monkeypatch.setattr(core.services.store, "get", lambda *_args, **_more: [])

    checks = {check.name: check for check in probe(core)}

    assert checks["store loop"].state == "failed"
    assert exit_code(list(checks.values())) == 6
    assert everything(core) == []


def test_an_embedder_that_cannot_run_is_told_and_words_go_on(tmp_path, monkeypatch):
    """Rule doctor.embedder: no model is a failed check of its own, not the end of the examination."""

    class Away(HashEmbedder):
        def documents(self, texts):
            raise Unavailable("the model folder is empty; set embedder.model_path")

        queries = documents

    with closing(ephemeral_core(tmp_path / "x", embedder=Away())) as core:
        checks = {check.name: check for check in probe(core)}

    assert checks["embedder"].state == "failed"
    assert "model_path" in checks["embedder"].finding
    assert checks["store loop"].state == "ok"
    assert exit_code(list(checks.values())) == 5


@pytest.mark.parametrize(("codes", "wanted"), [((), 0), ((1,), 1), ((5, 1), 5), ((5, 6), 6), ((4, 1), 4), ((3,), 1)])
def test_the_gravest_failure_is_the_exit_code(codes, wanted):
    """Rule exit: 6 before 5 before 4 before the rest; a warning is no failure."""
    checks = [Check("x", "failed", "", "", code) for code in codes] + [Check("y", "warning", "", "", 6)]

    assert exit_code(checks) == wanted


def test_a_broken_audit_trail_is_named_by_its_line(core, anchor):
    """Rule doctor.audit: the first broken link, as a damaged store."""
    anchor.save_memory("One")
    anchor.save_memory("Two entirely different things")
    assert doctor._audit(core.data_dir).state == "ok"
    with core.audit.database.unit() as link:
        ((record,),) = link.rows("select record from audit where line = 1")
        link.run("update audit set record = ? where line = 1", (record.replace(b'"version":1', b'"version":2'),))

    check = doctor._audit(core.data_dir)

    assert (check.state, check.exit_code) == ("failed", 6)
    assert "breaks at line 1" in check.finding


def test_unreadable_settings_do_not_end_the_examination(tmp_path, monkeypatch):
    """Rule doctor.settings: one sentence and the rest goes on without the store."""
    monkeypatch.chdir(tmp_path)
    env = {**os.environ, "MEMORY_ANCHOR_COLOUR": "red"}

    checks = list(diagnose(env, tmp_path / "data", audit=True))

    states = {check.name: check for check in checks}
    assert states["settings"].state == "failed"
    assert "colour" in states["settings"].finding
    assert {"python", "packages", "data directory", "free space", "engine", "audit", "clients"} <= set(states)


def test_clients_are_known_by_what_is_in_their_files(tmp_path, monkeypatch):
    """Rule doctor.clients: installed is fine, half taken out is told with the command that mends it."""
    monkeypatch.chdir(tmp_path)
    env = dict(os.environ)
    assert "installed in none" in list(doctor._clients(env))[-1].finding
    install.install("claude-code", env=env)
    assert "claude-code (user)" in list(doctor._clients(env))[-1].finding
    settings = Path(env["HOME"]) / ".claude" / "settings.json"
    settings.write_text("{}")

    states = list(doctor._clients(env))

    assert states[0].state == "warning"
    assert states[0].fix == "memory-anchor install claude-code --scope user"


def test_each_failure_of_a_store_has_its_next_command(tmp_path):
    """Rule doctor.fix: damage names the newest backup there is."""
    assert doctor._fix_of(StoreDamaged("x", Mending.SALVAGE), tmp_path) == "memory-anchor doctor --salvage"
    assert doctor._fix_of(StoreDamaged("x"), tmp_path) == "memory-anchor backup restore FILE --force"
    assert "free some space" in doctor._fix_of(DiskFull("x"), tmp_path)
