"""Automatic backups: one a night into their own folder, the newest seven kept, and they give everything back."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
from stores import records_in
from typer.testing import CliRunner

from memory_anchor.admin import backup, nightly
from memory_anchor.front.cli.app import app
from memory_anchor.settings import BackupSettings
from memory_anchor.store.database import DATABASE_FILE
from memory_anchor.upkeep.job_kit import Limits
from memory_anchor.upkeep.jobs import Scheduler


@pytest.fixture
def nights(core, clock, anchor):
    """Return what lets a number of nights pass; each returns the report of its backup."""
    nightly.register(core)
    anchor.save_memory("The ferry leaves at nine")

    def pass_by(number):
        reports = []
        for _ in range(number):
            clock.advance(days=1)
            done = {report.job: report for report in core.scheduler.run_due(clock.now())}
            reports.append(done["backup"])
        return reports

    return pass_by


def test_each_night_makes_one_and_seven_are_kept(core, nights):
    """Attack N5: automatic, private, in a folder of their own, the oldest go."""
    reports = nights(9)

    kept = nightly.automatic_backups(core.data_dir)
    assert len(kept) == 7 and {path.parent for path in kept} == {core.data_dir / "backups"}
    assert [report.counts["dropped"] for report in reports] == [0] * 7 + [1, 1]
    assert [one["file"] for one in backup.known_backups(core.data_dir)] == [str(path) for path in kept]
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}
    assert (core.data_dir / "backups").stat().st_mode & 0o777 == 0o700
    assert core.scheduler.run_due(core.clock.now()) == []


def test_a_short_disk_gets_a_note_and_keeps_what_it_has(core, nights, monkeypatch):
    """Attack N5: bounded in space; a backup that does not fit is skipped and older ones stay."""
    nights(2)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(nightly.shutil, "disk_usage", lambda _: usage(1 << 40, 1 << 40, 1 << 20))

    (report,) = nights(1)

    assert "1 MiB are free" in report.notes[0] and not report.counts
    assert len(nightly.automatic_backups(core.data_dir)) == 2


def test_backups_take_a_bounded_share_of_the_disk(core, nights, monkeypatch):
    """Attack N5: below seven, where seven would take more than a tenth of the disk; the newest always stays."""
    nights(3)
    monkeypatch.setattr(nightly, "SHARE_MAX", 0.0)

    nights(1)

    assert len(nightly.automatic_backups(core.data_dir)) == 1


def test_no_memory_and_no_wish_make_none(core, clock):
    """Rule backup.every_h: 0 is none; an empty memory has nothing to keep; a dry run writes nothing."""
    nightly.register(core)
    assert core.scheduler.run("backup", clock.now()).notes == ("there is no memory yet",)
    assert core.scheduler.run("backup", clock.now(), Limits(dry_run=True)).planned
    assert not (core.data_dir / "backups").exists()

    quiet = Scheduler((), core.upkeep, records=records_in(core.data_dir / "none"))
    core.settings = core.settings.model_copy(update={"backup": BackupSettings(every_h=0)})
    core.scheduler = quiet
    nightly.register(core)
    assert "backup" not in quiet.jobs


def test_the_strategy_of_backups_is_a_day_and_seven():
    """Attack N5: the defaults."""
    assert (BackupSettings().every_h, BackupSettings().keep) == (24, 7)


@pytest.mark.slow
def test_a_restore_drill_gives_everything_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack N5: the job's backup, a store damaged beyond salvage, a restore by command: every byte that counts."""
    monkeypatch.setenv("MEMORY_ANCHOR_EMBEDDER__KIND", "none")
    monkeypatch.chdir(tmp_path / "home")
    data = tmp_path / "data"

    def run(*arguments: str):
        return CliRunner().invoke(app, list(arguments))

    first = json.loads(run("add", "The pump is serviced in May", "--json").stdout)["id"]
    assert run("add", "The pump is now serviced in June").exit_code == 0
    assert run("log", "The harbour was closed").exit_code == 0
    assert run("forget", first).exit_code == 0
    sealed = data / "identity" / "p1" / "approved.yaml"
    sealed.parent.mkdir(mode=0o700, parents=True)
    sealed.write_text("entries: []\n")
    before = run("export", "-", "--versions").stdout
    assert "backup: 0 changed" in run("jobs", "run", "backup").stdout
    (made,) = json.loads(run("backup", "list", "--json").stdout)["backups"]
    assert made["automatic"] and made["bytes"] > 0
    checks = {one["name"]: one for one in json.loads(run("doctor", "--json").stdout)["checks"]}
    assert made["file"] in checks["backups"]["finding"]
    (data / DATABASE_FILE).write_bytes(b"\xff" * 40_000)
    shutil.rmtree(data / "identity")
    assert run("export", "-").exit_code == 6

    restored = run("backup", "restore", made["file"], "--force")

    assert restored.exit_code == 0, restored.output
    assert run("export", "-", "--versions").stdout == before
    assert sealed.read_text() == "entries: []\n"
    assert run("doctor", "--audit", "--json").exit_code == 0
