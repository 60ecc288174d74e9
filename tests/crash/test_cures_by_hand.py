"""Broken states whose cure needs a person, their terminal, or another account: `doctor` names it, and it mends.

Every command is a process; what is typed is typed on a pseudo-terminal.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from figures import one_in
from human_seat import Answer, Seat

from memory_anchor.store.audit_rows import LocalTrail
from memory_anchor.testing import PASSPHRASE

ROOT = Path(__file__).resolve().parents[2]
OTHER_UID = 65_534
GIVEN: tuple[Answer, ...] = (("assphrase", PASSPHRASE),)
KILLED = """
import os, sys
from contextlib import closing
from pathlib import Path
from memory_anchor.process.app import build_core
from memory_anchor.admin import purge
from memory_anchor.domain.model import Caller
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import EmbedderSettings, Settings
data, at, memory = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
with DirectoryLock.acquire(data, role="test") as lock:
    core = build_core(Settings(embedder=EmbedderSettings(kind="none")), data_dir=data, lock=lock)
    setattr(purge, at, lambda *_: os._exit(9))
    purge.purge_ids(core.upkeep, [memory], caller=Caller.HUMAN, at=core.clock.now(), by="human:alice")
"""
"""A purge whose process is killed when it comes to the function named."""


@pytest.fixture
def seat(tmp_path: Path) -> Seat:
    return Seat(tmp_path)


def wrong(seat: Seat, *words: str) -> dict[str, dict[str, str]]:
    checks = json.loads(seat.shell("doctor", "--json", *words).stdout)["checks"]
    return {one["name"]: one for one in checks if one["state"] != "ok" and one["name"] != "backups"}


def typed(seat: Seat, fix: str, *answers: Answer) -> str:
    """Type the command that a cure names, as it is printed."""
    command = fix[fix.index("memory-anchor ") :]
    code, screen = seat.human(*shlex.split(command)[1:], answers=answers)
    assert code == 0, (fix, screen)
    return screen


def added(seat: Seat, text: str) -> str:
    return str(json.loads(seat.shell("add", text, "--json").stdout)["id"])


@pytest.mark.slow
def test_a_human_key_that_is_gone(seat: Seat) -> None:
    """Attack N6: the newest backup that has it is named, and gives the key back and nothing else."""
    seat.init()
    assert seat.shell("jobs", "run", "backup").returncode == 0 or added(seat, "The ferry leaves at nine")
    added(seat, "The ferry leaves at nine")
    assert seat.shell("backup", "create", str(seat.root)).returncode == 0
    later = added(seat, "The pump is serviced in May")
    (seat.data / "identity" / "approver.json").unlink()

    found = wrong(seat)

    fix = found["human key"]["fix"]
    assert "is gone" in found["human key"]["finding"] and "never" not in found["constitution"]["finding"]
    assert seat.shell(*shlex.split(fix)[1:]).returncode == 4, "no terminal, no key"
    typed(seat, fix, *GIVEN)
    assert wrong(seat) == {}
    assert "greenhouse" in seat.shell("constitution", "show").stdout
    assert "pump" in seat.shell("show", later).stdout, "what came after the backup stays"


@pytest.mark.slow
def test_another_key_in_the_place_of_the_humans(seat: Seat, tmp_path: Path) -> None:
    """Attack A29, N6: the stranger's key is moved aside, the human's comes back."""
    seat.init()
    added(seat, "The ferry leaves at nine")
    assert seat.shell("backup", "create", str(seat.root)).returncode == 0
    agents = Seat(tmp_path / "agents")
    agents.init("an agent's own passphrase 1")
    shutil.copy(agents.data / "identity" / "approver.json", seat.data / "identity" / "approver.json")

    screen = typed(seat, wrong(seat)["human key"]["fix"], *GIVEN)

    assert "find out whose it is" in screen
    assert wrong(seat) == {}


@pytest.mark.slow
def test_a_human_key_that_no_backup_has(seat: Seat) -> None:
    """Attack N6: what can be read is taken out, a new memory is begun, and it is brought in by the new human."""
    seat.init()
    kept = added(seat, "The ferry leaves at nine")
    (seat.data / "identity" / "approver.json").unlink()

    fix = wrong(seat)["human key"]["fix"]

    assert "put a copy" in fix
    out, moved, begun, brought_in = fix.partition("anew: ")[2].split("; then ")
    assert seat.shell(*shlex.split(out)[1:]).returncode == 0
    subprocess.run(["/bin/sh", "-c", moved], check=True)
    typed(seat, begun, ("Your name", "alice", True), ("New passphrase", PASSPHRASE), ("Once more", PASSPHRASE))
    typed(seat, brought_in, *GIVEN, ("Bring them to", "here", True))
    assert wrong(seat) == {}
    assert "ferry" in seat.shell("show", kept).stdout


@pytest.mark.slow
def test_a_constitution_that_cannot_be_read(seat: Seat) -> None:
    """Attack N6: the approved text goes on being served, and the command brings the file back, from any folder."""
    seat.init()
    file = seat.project / "constitution.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text("version: [\nentries: - {\n", encoding="utf-8")

    found = wrong(seat)["constitution"]

    assert "the approved text is served" in found["finding"]
    command = found["fix"].replace("memory-anchor", f"{sys.executable} -m memory_anchor", 1)
    env = {**seat.env(), "MEMORY_ANCHOR_PROJECT_DIR": str(seat.project)}
    subprocess.run(["/bin/sh", "-c", command], check=True, cwd=seat.root, env=env)
    assert file.read_text(encoding="utf-8") == text
    assert wrong(seat) == {}


@pytest.mark.slow
def test_a_constitution_that_never_could_be_read(seat: Seat) -> None:
    """Attack N6: before the first approval the lines are named; mended, `init` approves it."""
    file = seat.project / "constitution.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text + "  - id: goal\n", encoding="utf-8")

    found = wrong(seat)["constitution"]

    assert "line" in found["finding"] and str(file) in found["fix"]
    file.write_text(text, encoding="utf-8")
    answers = (("Your name", "alice", True), ("New passphrase", PASSPHRASE), ("Once more", PASSPHRASE))
    typed(seat, found["fix"], *answers)
    assert wrong(seat) == {}


@pytest.mark.slow
def test_an_approval_that_somebody_made_up_in_the_audit_trail(seat: Seat) -> None:
    """Attack A26: L0 is empty (closed), the record is named, and the human's `init` ends it, `--audit` included."""
    seat.init()
    project = next(path.name for path in (seat.data / "identity").iterdir() if path.is_dir())
    trail = LocalTrail(seat.data)
    told = {"project": project, "archive": project, "approved": 2, "proposal": "p"}
    trail.append("constitution.effective", told, by="agent:made-up", at=datetime.now(UTC))

    found = wrong(seat)["constitution"]

    assert "may be an older one" in found["finding"] and "by agent:made-up" in found["finding"]
    assert "greenhouse" not in seat.shell("constitution", "show").stdout
    assert seat.shell(*shlex.split(found["fix"])[1:]).returncode == 4, "no terminal, no approval"
    screen = typed(seat, found["fix"], ("Old passphrase", PASSPHRASE), ("New passphrase", ""))
    assert "greenhouse" in screen, "the text is shown before the passphrase is asked for"
    assert "greenhouse" in seat.shell("constitution", "show").stdout
    assert wrong(seat, "--audit") == {}


@pytest.mark.slow
def test_a_purge_that_was_cut_off_while_it_erased(seat: Seat) -> None:
    """Attack N6: told, and ended by the command that is named. Its rows are gone at once, in one transaction; the index
    beside them and the last record come after it (`getattr` finds the index)."""
    seat.init()
    gone, stays = added(seat, "The ferry leaves at nine"), added(seat, "The pump is serviced in May")
    killed(seat, "getattr", gone)

    fix = seat_purge(seat)["fix"]

    assert seat.shell(*shlex.split(fix)[1:]).returncode == 0
    assert wrong(seat, "--audit") == {}
    assert seat.shell("show", gone).returncode == 3 and "pump" in seat.shell("show", stays).stdout


@pytest.mark.slow
def test_a_purge_that_was_cut_off_before_it_erased(seat: Seat) -> None:
    """Attack N6: nothing was erased, which is told until the human repeats it with the command that is named."""
    seat.init()
    gone = added(seat, "The ferry leaves at nine")
    killed(seat, "_erase_from", gone)
    seat_purge(seat)

    found = wrong(seat)["purge"]

    assert "before it erased anything" in found["finding"] and "ferry" in seat.shell("show", gone).stdout
    typed(seat, f"{found['fix']} --yes", *GIVEN)
    assert wrong(seat, "--audit") == {}
    assert seat.shell("show", gone).returncode == 3


def killed(seat: Seat, at: str, memory: str) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(seat.data), at, memory], env=seat.env(), check=False)
    assert ended.returncode == 9


def seat_purge(seat: Seat) -> dict[str, str]:
    """Return what is told of a purge before the store is opened; `doctor` opens it afterwards."""
    return wrong(seat)["purge"]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other accounts may pass through."""
    folder = Path(tempfile.mkdtemp(prefix="memory-anchor-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="another account needs root")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="another account needs setpriv")
@pytest.mark.parametrize(
    "state", one_in(3, ["a folder that may not be written", "a store that may not be", "another owner"])
)
def test_a_data_folder_that_cannot_be_written(open_folder: Path, state: str) -> None:
    """Attack N6: the folder or its owner is named; what is printed mends it (the owner's as root)."""
    data = open_folder / "data"
    env = {**Seat(open_folder).env(), "MEMORY_ANCHOR_DATA_DIR": str(data), "USER": str(OTHER_UID)}
    for path in (open_folder, *open_folder.rglob("*")):
        os.chown(path, OTHER_UID, OTHER_UID)
    drop = ["setpriv", f"--reuid={OTHER_UID}", f"--regid={OTHER_UID}", "--clear-groups"]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [*drop, sys.executable, "-m", "memory_anchor", *words]
        return subprocess.run(
            command, env=env, cwd=open_folder / "project", capture_output=True, text=True, check=False
        )

    first = run("add", "The ferry leaves at nine")
    if first.returncode and "Permission denied" in first.stderr and str(ROOT) in first.stderr:
        pytest.skip("another account cannot read this source")
    assert first.returncode == 0, first.stderr
    if state == "another owner":
        os.chown(data, 0, 0)
    elif state == "a store that may not be":
        for path in (data / "store").rglob("*"):
            path.chmod(0o500 if path.is_dir() else 0o400)
    else:
        data.chmod(0o500)

    found = run("doctor", "--json")

    assert found.returncode == 4, found.stdout + found.stderr
    checks = {one["name"]: one for one in json.loads(found.stdout)["checks"] if one["state"] == "failed"}
    named = checks["store" if state == "a store that may not be" else "data directory"]
    assert str(data) in named["finding"]
    as_owner = [] if state == "another owner" else drop
    subprocess.run([*as_owner, "/bin/sh", "-c", named["fix"]], check=True, env=env)
    again = run("doctor", "--json")
    assert again.returncode == 0, again.stdout
    assert "ferry" in run("list").stdout
