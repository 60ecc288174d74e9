"""A disk whose plug can be pulled: ext4 in a file, mounted over a loop device, stopped with the shutdown ioctl.

After `cut` everything that nobody synced is gone, mapped pages and the journal's open transaction included; what was
fsynced is there after the next mount. Needs root, mkfs.ext4 and loop devices (`why_not` says what is missing).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import signal
import struct
import subprocess
import time
from functools import cache
from pathlib import Path

SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = struct.pack("I", 2)
SIZE_MIB = 640
TRIES = 200
PAUSE_S = 0.05


@cache
def why_not() -> str:
    """Return why no plug can be pulled here, "" when it can."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "a power cut needs root"
    if shutil.which("mkfs.ext4") is None:
        return "a power cut needs mkfs.ext4 (e2fsprogs)"
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        try:
            disk = Disk(Path(folder))
            disk.unmount()
        except (OSError, subprocess.CalledProcessError) as error:
            stderr = getattr(error, "stderr", b"") or b""
            return f"a loop device cannot be mounted here: {stderr.decode().strip() or error}"
    return ""


class Disk:
    def __init__(self, folder: Path, *, size_mib: int = SIZE_MIB) -> None:
        self.image, self.mount = folder / "disk.img", folder / "disk"
        self.mount.mkdir()
        with self.image.open("wb") as file:
            file.truncate(size_mib << 20)
        _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=1,nodiscard", str(self.image))
        self.plug_in()

    def plug_in(self) -> None:
        # The journal is committed only by fsync: five seconds, the default, would save what nobody asked for.
        _run("mount", "-o", "loop,commit=600", str(self.image), str(self.mount))

    def write_back_some(self, rng: random.Random) -> None:
        """Bring a random part of what is written to the disk, as the kernel does when it likes."""
        files = [Path(folder) / name for folder, _, names in os.walk(self.mount) for name in names]
        for path in rng.sample(files, min(len(files), rng.choice((1, 5, 40)))):
            with contextlib.suppress(OSError):
                handle = os.open(path, os.O_RDONLY)
                try:
                    os.fdatasync(handle)
                finally:
                    os.close(handle)

    def cut(self) -> None:
        """Pull the plug: from now on nothing reaches the disk, and every write fails."""
        handle = os.open(self.mount, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, SHUTDOWN, NO_LOG_FLUSH)
        finally:
            os.close(handle)

    def repaired(self) -> None:
        """Mount again; the journal is replayed. Who used the disk must have ended."""
        self.unmount()
        self.plug_in()

    def unmount(self) -> None:
        for left in range(TRIES, -1, -1):
            try:
                _run("umount", str(self.mount))
                return
            except subprocess.CalledProcessError:
                if not left:
                    raise
                time.sleep(PAUSE_S)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def processes_of(data: Path) -> list[int]:
    """Return the ids of processes that carry this data directory in their environment: engine, bridges, commands."""
    wanted = f"MEMORY_ANCHOR_DATA_DIR={data}".encode()
    pids = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    pids.append(int(folder.name))
    return pids


def end_all(data: Path) -> None:
    """End every process of this data directory, and return when they are gone."""
    for left in range(TRIES, -1, -1):
        pids = [pid for pid in processes_of(data) if _alive(pid)]
        if not pids:
            return
        assert left, f"still running: {pids}"
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE_S)


def _alive(pid: int) -> bool:
    """Return whether a process still runs; a dead child that nobody waited for does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
