"""Small file systems: refused before anything is written, in one sentence; running out later loses nothing.

Real mounts of tmpfs and of ext4 in a file, so root only (CI here is).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from figures import figure, one_in
from points import FACTS, SPEC, member

from memory_anchor.adapters.edge_index import EdgeIndex
from memory_anchor.adapters.sparse_files import keeps_holes
from memory_anchor.domain.ports import Entry
from memory_anchor.process.app import open_store
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.store.database import Sqlite
from memory_anchor.store.index_follower import IndexFollower
from memory_anchor.store.sql_store import SqlStore

MIB = 1 << 20
UMOUNT_TRIES = 50
RESERVE = 64 * MIB
WRITER = Path(__file__).with_name("sql_writer.py")
Mount = Callable[[str, int], Path]

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.geteuid() != 0, reason="mounting a file system needs root"
)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Return what mounts a file system of a kind and so many MiB."""
    mounted: list[Path] = []

    def mount_one(kind: str, mib: int) -> Path:
        at = tmp_path / f"{kind}-{mib}"
        at.mkdir()
        if kind == "tmpfs":
            command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(at)]
        else:
            image = tmp_path / f"{mib}.img"
            with image.open("wb") as file:
                file.truncate(mib * MIB)
            subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True, capture_output=True)
            command = ["mount", "-o", "loop", str(image), str(at)]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip(f"this machine mounts no {kind}")
        mounted.append(at)
        return at

    yield mount_one
    for at in mounted:
        for _ in range(UMOUNT_TRIES):
            if subprocess.run(["umount", str(at)], check=False, capture_output=True).returncode == 0:
                break
            time.sleep(0.1)


def add(data: Path, text: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "MEMORY_ANCHOR_DATA_DIR": str(data), "MEMORY_ANCHOR_EMBEDDER__KIND": "none"}
    command = [sys.executable, "-P", "-m", "memory_anchor", "add", text, "--json"]
    return subprocess.run(command, env=env, cwd=Path.home(), capture_output=True, text=True, check=False)


def check_first_write(data: Path) -> bool:
    """Write twice; return whether there was room. Either both are kept or the first is refused in one sentence."""
    first = add(data, "The ferry leaves at nine")
    assert first.returncode in (0, 5), (first.returncode, first.stderr)
    if first.returncode == 5:
        assert first.stderr.count("\n") == 1 and "MiB free and needs" in first.stderr
        assert "nothing was written" in first.stderr
        return False
    second = add(data, "The pump is serviced in May")
    assert second.returncode == 0, (second.returncode, second.stderr)
    return True


def test_a_first_write_without_room_is_refused_in_one_sentence(mount: Mount) -> None:
    """Attack N9: below the reserve nothing is written."""
    folder = mount("tmpfs", 50)

    assert not check_first_write(folder / "d")
    assert shutil.disk_usage(folder).used < MIB


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
@pytest.mark.parametrize("mib", one_in(3, figure([5, 60, 100, 220], [5, 20, 60, 80, 100, 160, 220, 300, 600, 900])))
def test_a_file_system_of_any_size_is_enough_or_refused_before(mount: Mount, kind: str, mib: int) -> None:
    """Attack N9: the reserve alone decides; never a signal, never half a store."""
    folder = mount(kind, mib)
    free = shutil.disk_usage(folder).free

    assert check_first_write(folder / "d") == (free >= RESERVE)


@pytest.mark.slow
def test_collections_for_which_a_file_system_in_memory_has_no_room_are_not_begun(mount: Mount) -> None:
    """Attack N9: Edge maps 165 MiB a collection, and tmpfs gives pages to holes: behind, with a note, and no signal."""
    folder = mount("tmpfs", 220)
    assert not keeps_holes(folder)
    with DirectoryLock.acquire(folder / "d", role="test") as lock:
        with closing(open_store(Settings(), folder / "d", lock)) as store:
            for name in ("verified_fact", "event_log"):
                store.open_collection(name, SPEC)
            store.put(FACTS, [Entry(member(1, 1))])
            assert isinstance(beside := store.beside, IndexFollower)

            assert not beside.catch_up()
            assert beside.state().behind and "too little free space" in beside.state().note
            assert not list((folder / "d" / "index").glob("*/segments"))
        assert EdgeIndex(folder / "d" / "index").still_to_allocate() > 220 * MIB


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "mib"), one_in(2, [("ext4", 100), ("tmpfs", 100)]))
def test_a_disk_that_fills_while_writing_loses_nothing_acknowledged(mount: Mount, kind: str, mib: int) -> None:
    """Attack N9: the writer is refused or ended; with room again every acknowledged batch is there."""
    folder = mount(kind, mib)
    store = folder / "s" / "memory.db"
    writer = subprocess.Popen(
        [sys.executable, str(WRITER), str(store), "1", "5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert writer.stdout is not None
    acknowledged = [int(writer.stdout.readline())]
    with (folder / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(b"\xa5" * MIB)
    try:
        rest, _ = writer.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        writer.kill()
        rest, _ = writer.communicate()
    acknowledged += [int(line) for line in rest.split()]
    (folder / "filler").unlink()

    with closing(SqlStore(Sqlite(store))) as opened:
        assert list(opened.faults()) == []
        opened.open_collection(FACTS, SPEC)
        wanted = [member(batch, number).point_id for batch in acknowledged for number in range(5)]
        assert len(opened.get(FACTS, wanted)) == len(wanted)


@pytest.mark.slow
def test_doctor_says_that_there_is_no_room_and_is_whole_when_there_is(mount: Mount) -> None:
    """Attack N6: the full disk's cure is carried out: space is freed, and the state is healthy."""
    folder = mount("ext4", 200)
    assert check_first_write(folder / "d")
    with (folder / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(b"\xa5" * MIB)
    env = {**os.environ, "MEMORY_ANCHOR_DATA_DIR": str(folder / "d"), "MEMORY_ANCHOR_EMBEDDER__KIND": "none"}
    command = [sys.executable, "-P", "-m", "memory_anchor", "doctor", "--json"]

    def doctor() -> tuple[int, dict[str, dict[str, str]]]:
        ran = subprocess.run(command, env=env, cwd=Path.home(), capture_output=True, text=True, check=False)
        return ran.returncode, {one["name"]: one for one in json.loads(ran.stdout)["checks"]}

    code, checks = doctor()
    assert (code, checks["free space"]["state"]) == (5, "failed")
    assert "free some space" in checks["free space"]["fix"]
    (folder / "filler").unlink()
    assert doctor()[0] == 0
