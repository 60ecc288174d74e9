"""An export and an import of a memory on PostgreSQL: its trail is the database's, in both directions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
from pgserver import Cluster
from typer.testing import Result

from memory_anchor.extensions.transfer import commands as moving
from memory_anchor.front.cli import link, passphrase
from memory_anchor.process.wiring import Core
from memory_anchor.store.database import DATABASE_FILE
from memory_anchor.store.postgresql import Postgresql
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.testing import PASSPHRASE, ManualClock, cheap_keys, ephemeral_core

pytestmark = pytest.mark.slow


@pytest.fixture
def core(postgres: Cluster, tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Core]:
    """A memory on a server, with a human at its terminal."""
    monkeypatch.setenv("MEMORY_ANCHOR_DATABASE__URL", postgres.emptied())
    monkeypatch.setenv("MEMORY_ANCHOR_DATA_DIR", str(tmp_path / "core"))
    monkeypatch.setattr(passphrase, "ask_hidden", lambda *_: PASSPHRASE)
    monkeypatch.setattr(moving, "open_session", lambda: nullcontext(link.call))
    with (
        cheap_keys(),
        closing(SqlStore(Postgresql(postgres.url))) as store,
        closing(ephemeral_core(tmp_path / "core", store=store, clock=clock)) as made,
        closing(passphrase.audit_trail(made.data_dir)),
    ):
        passphrase.key_ring(made.data_dir).create(name="alice", passphrase=PASSPHRASE)
        yield made


def test_the_trail_of_a_server_is_exported_and_recognised_when_it_comes_in(
    core: Core, run: Callable[..., Result], tmp_path: Path
) -> None:
    """Round trip: every record, and no second trail in a file of the data directory."""
    file = tmp_path / "all.jsonl"
    assert run("add", "The atlas service listens on port 8443").exit_code == 0
    size = passphrase.audit_trail(core.data_dir).size()

    exported = run("export", str(file), "--versions", "--human")
    taken = run("import", str(file), "--human", "--json")

    assert (exported.exit_code, taken.exit_code) == (0, 0), exported.output + taken.output
    kinds = [json.loads(line).get("kind") for line in file.read_text("utf-8").splitlines()]
    assert kinds.count("audit") >= size > 0
    assert (answer := json.loads(taken.stdout))["audit_records"] == 0 and answer["notes"] == []
    assert not (core.data_dir / DATABASE_FILE).exists()
