"""Attack A26, further on: files planted in the archive, its index, its trail; every later approval still works."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from desk import Desk

from memory_anchor.domain.model import ProposalStatus
from memory_anchor.identity.approved import HEADS
from memory_anchor.identity.keys import KeyRing
from memory_anchor.testing import PASSPHRASE, ManualClock

GOAL, WISH = "Keep the greenhouse at 21 degrees", "Water at dawn"
HUGE = 100_000_000


pytestmark = pytest.mark.usefixtures("cheap_keys")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, "first", ManualClock())


def folder(desk: Desk) -> Path:
    return desk.data / "identity" / desk.name / "approved"


def head(desk: Desk) -> Path:
    return desk.data / HEADS / f"{desk.name}.json"


def thirty_files(desk: Desk) -> None:
    for number in range(999_970, 1_000_000):
        shutil.copy(folder(desk) / "000001.json", folder(desk) / f"{number}.json")


def huge_file(desk: Desk) -> None:
    with (folder(desk) / "999999.json").open("wb") as file:
        file.truncate(HUGE)


def head_made_anew(desk: Desk, make: Callable[[Path], None]) -> None:
    head(desk).unlink()
    make(head(desk))


def another_projects_archive(desk: Desk) -> None:
    other = Desk(desk.data.parent, "other", desk.clock)
    other.file.write_text(other.file.read_text().replace(GOAL, "Obey"))
    shutil.rmtree(folder(desk))
    shutil.copytree(folder(other), folder(desk))


PLANTED: dict[str, Callable[[Desk], object]] = {
    "highest number": lambda desk: (folder(desk) / "999999.json").write_text("{}"),
    "thirty files": thirty_files,
    "pipe": lambda desk: os.mkfifo(folder(desk) / "999999.json"),
    "link": lambda desk: (folder(desk) / "999999.json").symlink_to("/dev/zero"),
    "folder": lambda desk: (folder(desk) / "999999.json").mkdir(),
    "huge file": huge_file,
    "the next number": lambda desk: (folder(desk) / "000002.json").mkdir(),
    "the head a folder": lambda desk: head_made_anew(desk, lambda path: (path / "in").mkdir(parents=True)),
    "the head a pipe": lambda desk: head_made_anew(desk, os.mkfifo),
    "another project's archive": another_projects_archive,
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_planted_stalls_nothing_and_is_named(desk: Desk, planted: str) -> None:
    """Attack A26: the approved text is served, the fault told, and three confirmations still make a text."""
    PLANTED[planted](desk)
    began = time.process_time()
    assert desk.served() == [GOAL]
    assert desk.schema().faults()
    assert desk.approve(WISH).status is ProposalStatus.EFFECTIVE
    assert desk.served() == [GOAL, WISH]
    assert time.process_time() - began < 2

    desk.approve("Water at noon")
    assert desk.served() == [GOAL, WISH, "Water at noon"]


def test_reading_a_planted_folder_leaves_no_descriptor_open(desk: Desk) -> None:
    """Attack A26: a folder where a file belongs cost a descriptor a read, until the engine had none."""
    PLANTED["folder"](desk)
    schema = desk.schema()
    schema.faults()
    fds = Path("/proc/self/fd")
    before = len(list(fds.iterdir())) if fds.exists() else 0
    for _ in range(20):
        schema.faults()
    assert not before or len(list(fds.iterdir())) <= before


def test_forged_numbers_in_the_audit_trail_use_up_no_numbers(desk: Desk) -> None:
    """Attack A26: a record that tells of approved text 999998 leaves room for every later one."""
    forged = {"project": desk.name, "archive": desk.name, "approved": 999_998}
    desk.audit.append("constitution.effective", forged, by="evil", at=desk.clock.now())
    desk.approve(WISH)
    assert sorted(one.name for one in folder(desk).iterdir()) == ["000001.json", "000002.json"]


def test_an_index_that_names_another_archive_serves_nothing_of_it(desk: Desk, tmp_path: Path) -> None:
    """Attack A26: the folder's own archive taken away and its place in the index given to another project."""
    other = Desk(tmp_path, "other", desk.clock)
    index = desk.data / "identity" / "initialised.json"
    listed = json.loads(index.read_text())
    for value in ("first", listed[str(desk.root)]):
        index.write_text(json.dumps({**listed, str(other.root): value}))
        shutil.rmtree(folder(other), ignore_errors=True)
        head(other).unlink(missing_ok=True)
        told = other.schema().load()
        assert (told.entries, other.schema().initialised) == ((), True)
        assert "is gone from this machine" in told.warnings[0]
    other.schema().init(passphrase=PASSPHRASE, approver="alice", old_passphrase=PASSPHRASE)
    assert other.served() == [GOAL]


def test_a_project_whose_id_was_lost_finds_its_archive_by_the_signed_index(desk: Desk) -> None:
    """The other way round: the folder leads to its texts under a new id."""
    desk.name = "renamed"
    assert desk.served() == [GOAL]


def test_a_copied_trail_of_another_project_is_no_lasting_denial(desk: Desk, tmp_path: Path) -> None:
    """Attack A26: a copy that shares the trail is served; where the audit trail does not tell, `init` mends."""
    copy = Desk(tmp_path, "copy", desk.clock, init=False)
    shutil.copytree(desk.root, copy.root, dirs_exist_ok=True)
    copy.schema().init(passphrase=PASSPHRASE, approver="alice", old_passphrase=None)
    desk.approve(WISH)
    proposals = copy.root / ".ai" / "proposals"
    shutil.copy(desk.root / ".ai" / "proposals" / "approved.yaml", proposals / "approved.yaml")
    assert copy.served() == [GOAL]
    assert not any("later approval" in one for one in copy.schema().faults())

    desk.audit.path.write_text("".join(desk.audit.path.read_text().splitlines(keepends=True)[:3]))
    assert copy.served() == []
    assert "memory-anchor init" in copy.schema().load().warnings[0]
    copy.schema().init(passphrase=PASSPHRASE, approver="alice", old_passphrase=PASSPHRASE)
    assert copy.served() == [GOAL]
    shutil.copy(desk.root / ".ai" / "proposals" / "approved.yaml", proposals / "approved.yaml")
    assert copy.served() == [GOAL]


def test_texts_of_the_first_key_stay_in_force_under_a_second_it_vouched_for(desk: Desk, tmp_path: Path) -> None:
    """Attack A29, the other way round: the second key approves on top of what the first one sealed."""
    with_second = KeyRing(tmp_path / "second" / "identity").create(name="second", passphrase=PASSPHRASE)
    desk.schema().vouch(name="second", public=with_second.approver.public, passphrase=PASSPHRASE)
    shutil.copy(tmp_path / "second" / "identity" / "approver.json", desk.data / "identity" / "approver.json")

    assert desk.served() == [GOAL]
    desk.approve(WISH)
    assert desk.served() == [GOAL, WISH]
    assert desk.schema().faults() == []
