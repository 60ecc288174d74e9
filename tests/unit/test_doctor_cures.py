"""What `doctor` names for a broken state, and that it mends; the same through real processes in tests/crash."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from stores import core_on_disk
from typer.testing import CliRunner, Result

from memory_anchor.admin import backup
from memory_anchor.base import nofollow
from memory_anchor.domain.errors import Refused, StoreDamaged
from memory_anchor.domain.model import COLLECTIONS
from memory_anchor.domain.where import Where
from memory_anchor.front import doctor, doctor_store
from memory_anchor.front.cli.app import app
from memory_anchor.front.cli.passphrase import key_ring
from memory_anchor.identity.keys import Signer
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.testing import PASSPHRASE, ManualClock, ephemeral_core, human_of
from memory_anchor.use_cases.memory import MemoryAnchor

EVERYTHING = Where()


@pytest.fixture
def core(tmp_path: Path, clock: ManualClock) -> Iterator[Core]:
    """Return a memory whose database lies in its data directory."""
    with closing(core_on_disk(tmp_path / "core", clock=clock)) as made:
        yield made


@pytest.mark.usefixtures("human")
def test_a_missing_key_is_put_back_from_the_newest_backup_that_has_it(core: Core, tmp_path: Path) -> None:
    """Attack N6: the command is whole, a stranger's key is moved aside, and nothing else is restored."""
    identity = core.data_dir / "identity"
    named = backup.create(core, tmp_path / "with.tar.gz")["file"]
    own = (identity / "approver.json").read_bytes()
    other = ephemeral_core(tmp_path / "other")
    human_of(other.data_dir)
    (identity / "approver.json").unlink()
    backup.create(core, tmp_path / "without.tar.gz")
    shutil.copy(other.data_dir / "identity" / "approver.json", identity)
    other.close()

    check = doctor._human_key(core.data_dir)
    assert check.fix == f"memory-anchor backup restore {named} --key"
    moved = backup.put_key_back(Path(named), core.data_dir)

    assert (identity / "approver.json").read_bytes() == own
    assert [path.name for path in Path(moved).iterdir()] == ["approver.json"]
    assert doctor._human_key(core.data_dir).state == "ok" and key_ring(core.data_dir).own() is not None


@pytest.mark.usefixtures("human")
def test_a_key_that_no_backup_has_leaves_a_way_out(core: Core) -> None:
    """Attack N6: no literal FILE, but what to do without one."""
    (core.data_dir / "identity" / "approver.json").unlink()

    fix = doctor._human_key(core.data_dir).fix

    assert "FILE" not in fix and "memory-anchor export" in fix and "memory-anchor init" in fix


def test_a_key_in_its_place_is_not_put_back(human: Signer, run: Callable[..., Result], tmp_path: Path) -> None:
    """Attack A15: `--key` is no way to bring in another key."""
    del human
    said = run("backup", "restore", str(tmp_path / "any"), "--key")

    assert said.exit_code == 4 and "in its place" in said.stderr


def test_an_approval_that_only_the_audit_trail_tells_of_ends_with_init(
    anchor: MemoryAnchor, approve: Callable[..., MemoryAnchor], core: Core, project: Path
) -> None:
    """Attack A26: L0 is empty until a human approves anew; then the number that never was is no fault for ever."""
    goal = 'version: "1"\nentries:\n  - {id: goal, content: "Keep the greenhouse warm", priority: 0}\n'
    (project / "constitution.yaml").write_text(goal)
    approve(anchor)
    schema = anchor.project.identity
    name = next(path.name for path in (core.data_dir / "identity").iterdir() if path.is_dir())
    told = {"project": name, "archive": name, "approved": 2, "proposal": "p"}
    core.audit.append("constitution.effective", told, by="agent:x", at=core.clock.now())

    assert schema.load().entries == () and schema.faults()
    schema.init(passphrase=PASSPHRASE, approver="alice", old_passphrase=PASSPHRASE)

    assert [one.content for one in schema.load().entries] == ["Keep the greenhouse warm"]
    assert schema.faults() == []
    (core.data_dir / "identity" / name / "approved" / "000001.json").unlink()
    assert schema.faults(), "a text that was there and is gone is still named"


def test_a_purge_that_did_not_end_is_told_before_and_after_the_store_is_opened(
    core: Core, anchor: MemoryAnchor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack N6: while it waits for the next opening, and until what it was to erase is erased."""
    from memory_anchor.admin import purge
    from memory_anchor.domain.model import Caller

    saved = anchor.save_memory("The ferry leaves at nine").id

    class Cut(BaseException):
        pass

    def cut(*_: object) -> None:
        raise Cut

    monkeypatch.setattr(purge, "_erase_from", cut)
    with pytest.raises(Cut):
        purge.purge_ids(core.upkeep, [saved], caller=Caller.HUMAN, at=core.clock.now(), by="human:alice")
    monkeypatch.undo()

    (waits,) = doctor._unfinished_purge(core.data_dir, serving=False)
    assert waits.fix == "memory-anchor stats"
    purge.finish_purge(core.upkeep, at=core.clock.now())
    assert list(doctor._unfinished_purge(core.data_dir, serving=False)) == []
    (again,) = doctor_store._purge_to_repeat(core)
    assert again.fix == f"memory-anchor purge {saved}"
    purge.purge_ids(core.upkeep, [saved], caller=Caller.HUMAN, at=core.clock.now(), by="human:alice")
    assert list(doctor_store._purge_to_repeat(core)) == []


def test_an_unfinished_purge_of_a_directory_of_the_old_layout_is_named(tmp_path: Path) -> None:
    """Its state is a file there, which the upgrade takes over before the purge is finished."""
    for folder in ("audit", "jobs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "audit" / "audit.jsonl").touch()
    (tmp_path / "jobs" / "purge.json").write_text('{"asked": {"verified_fact": ["a@1", "b@1"]}}')

    (waits,) = doctor._unfinished_purge(tmp_path, serving=False)

    assert "a purge of 2 versions" in waits.finding and waits.fix == "memory-anchor stats"


def test_a_trail_that_cannot_be_read_as_a_file_is_named_and_not_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule exit codes: something else is in the place of a file of the old layout."""
    (tmp_path / "audit" / "audit.jsonl").mkdir(parents=True)
    monkeypatch.setenv("MEMORY_ANCHOR_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("MEMORY_ANCHOR_EMBEDDER__KIND", "none")

    answer = CliRunner().invoke(app, ["doctor", "--audit", "--json"])

    assert answer.exception is None or isinstance(answer.exception, SystemExit)
    states = {check["name"]: check["state"] for check in json.loads(answer.stdout)["checks"]}
    assert states["audit"] == states["human key"] == "failed"


def test_a_collection_that_only_an_older_version_reads_is_left_alone(tmp_path: Path) -> None:
    """Attack N6: neither opened nor salvaged; the cure names every command of the way out."""
    from memory_anchor.adapters.system import SystemClock
    from memory_anchor.process.app import open_store
    from memory_anchor.runtime.salvage import salvage
    from memory_anchor.settings import Settings

    home = tmp_path / "store" / COLLECTIONS[0]
    home.mkdir(parents=True)
    record = '{"format": 1, "shard": "shard-1", "schema_version": 0, "embedders": {}, "kept": []}'
    (home / "collection.json").write_text(record)
    with (
        DirectoryLock.acquire(tmp_path, role="test") as lock,
        pytest.raises(StoreDamaged, match="older memory-anchor") as told,
    ):
        open_store(Settings(), tmp_path, lock)
    with pytest.raises(StoreDamaged, match="older memory-anchor"):
        salvage(Settings(), tmp_path, now=SystemClock().now())
    assert (home / "collection.json").read_text() == record
    fix = doctor._fix_of(told.value, tmp_path)
    assert fix.count("memory-anchor ") == 2 and str(tmp_path / "replaced-store") in fix


@pytest.mark.parametrize(("target", "code"), [("gone/out.jsonl", 3), ("", 2), ("..", 2)])
def test_an_export_to_no_place_says_so(run: Callable[..., Result], tmp_path: Path, target: str, code: int) -> None:
    """Rule exit codes: a folder that is missing is not found, one in the file's place is bad input."""
    said = run("export", str(tmp_path / target))

    assert (said.exit_code, len(said.stderr.strip().splitlines())) == (code, 1)


@pytest.mark.parametrize("ref", ["../out.md", "a/../../out.md", "/etc/out", "a\0b", "", "."])
def test_a_path_that_leaves_its_folder_is_refused_in_our_words(tmp_path: Path, ref: str) -> None:
    """Rule errors: writers turn what the system says into ours."""
    for act in (lambda: nofollow.write(tmp_path / "in", ref, b"x"), lambda: nofollow.make_folder(tmp_path / "in", ref)):
        with pytest.raises(Refused, match="not a path below"):
            act()
    assert list(tmp_path.rglob("out*")) == []


@pytest.mark.parametrize(("word", "code"), [("--help", 0), ("--version", 2)])
def test_an_engine_takes_no_arguments(tmp_path: Path, word: str, code: int) -> None:
    """Rule doors: `--help` says what it is and starts nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "memory_anchor.front.engine", word],
        env={"MEMORY_ANCHOR_DATA_DIR": str(tmp_path / "d"), "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code and "engine stop" in done.stderr and not (tmp_path / "d").exists()


def test_a_vector_that_is_not_its_texts_is_named_and_made_anew(core: Core, anchor: MemoryAnchor) -> None:
    """Rule power: vectors have no checksum, so `--deep` makes them anew and compares; reindexing mends."""
    import threading

    from memory_anchor.admin.rebuild import Reindex
    from memory_anchor.domain.ports import DENSE

    saved = [anchor.save_memory(text).id for text in ("The ferry leaves at nine", "泵五月保养", "word " * 900)]
    anchor.log_event("Delivery one came in")
    anchor.log_event("Delivery two came in")
    while core.nearness.embed_waiting(16) + core.services.searcher.index.embed_pending(16):
        pass
    store, asked = core.services.store, []
    assert doctor._vectors(lambda at: doctor.compare_vectors(core, at), asked.append).state == "ok"
    entry = next(one for one in store.scan("verified_fact", EVERYTHING, with_vectors=True)[0] if one.vectors)
    row = entry.vectors[DENSE].copy()
    row[3] += 1e-3
    store.set_vectors("verified_fact", {entry.memory.point_id: {DENSE: row}})

    check = doctor._vectors(lambda at: doctor.compare_vectors(core, at), asked.append)
    assert (check.state, check.exit_code, check.fix) == ("failed", 6, "memory-anchor reindex --vectors")
    assert entry.memory.version_id in check.finding and check.finding.startswith("1 of ")
    assert asked[-1] >= len(saved) + 2

    run = Reindex(store, core.services.embedder, lock=threading.RLock(), state_dir=core.data_dir / "jobs", vectors=True)
    for _ in run.steps():
        pass
    assert doctor._vectors(lambda at: doctor.compare_vectors(core, at), asked.append).state == "ok"


def test_looking_at_vectors_goes_on_where_it_stopped(core: Core, anchor: MemoryAnchor) -> None:
    """Rule bounds: in steps, so that no engine's thread is kept; every vector once."""
    from memory_anchor.admin import checks
    from memory_anchor.domain.ports import DENSE

    for at in range(40):
        anchor.save_memory(f"Machine {at * 7} stands in hall {at}")
    while core.nearness.embed_waiting(16) + core.services.searcher.index.embed_pending(16):
        pass
    embedder = core.services.embedder
    assert embedder is not None
    count, start, steps = 0, (), 0
    while True:
        turns = iter([False, True])
        looked = checks.compare_vectors(
            core.services.store, {DENSE: embedder}, start=start, enough=lambda t=turns: next(t, True)
        )
        count, steps = count + looked.count, steps + 1
        assert looked.odd == []
        if looked.left is None:
            break
        start = looked.left
    assert count == core.services.store.count("verified_fact", EVERYTHING) and steps > 2
