"""A private PostgreSQL: a cluster in a folder of its own, reached by a socket there, gone at the end.

The server refuses to run as root: a test that does so starts it as another user, into whose hands the folder goes.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DEBIAN = Path("/usr/lib/postgresql")
USERS = ("postgres", "nobody")
STARTS_S = 60
MISSING = "PostgreSQL's initdb is not on this machine (Debian: apt install postgresql)"


def program(name: str) -> Path | None:
    """Return a program of PostgreSQL; Debian keeps them out of PATH, one folder a version."""
    found = shutil.which(name) or max(map(str, DEBIAN.glob(f"*/bin/{name}")), default=None)
    return Path(found).resolve() if found else None


class Cluster:
    """url: of its database. Raises LookupError: PostgreSQL, psycopg or a user to run it is missing."""

    def __init__(self, folder: Path) -> None:
        initdb, postgres = program("initdb"), program("postgres")
        if initdb is None or postgres is None:
            raise LookupError(MISSING)
        self.folder, self._postgres = folder, postgres
        self._as: list[str] = []
        if os.geteuid() == 0:
            self._as = _other_user(folder)
        self.url = f"postgresql:///postgres?host={folder}&user=postgres"
        self._run(str(initdb), "--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "data")
        self.process = self._started()

    def emptied(self) -> str:
        """Return the address once nothing is in it."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as server:
            server.execute("drop schema public cascade; create schema public")
        return self.url

    def kill(self) -> None:
        """SIGKILL; its children see that and end by themselves. `start` brings it back."""
        self.process.kill()
        self.process.wait(STARTS_S)

    def start(self) -> None:
        self.process = self._started()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(STARTS_S)

    def _started(self) -> subprocess.Popen[bytes]:
        """Start it until it answers: while children of a killed one still hold its memory, it ends again."""
        import psycopg

        options = {"listen_addresses": "", "unix_socket_directories": str(self.folder), "fsync": "off"}
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        command = [*self._as, str(self._postgres), "-D", "data", *arguments]
        process: subprocess.Popen[bytes] | None = None
        with (self.folder / "log").open("ab") as log:
            for _ in range(STARTS_S * 20):
                if process is None or process.poll() is not None:
                    process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
                with suppress(psycopg.OperationalError):
                    psycopg.connect(self.url, connect_timeout=2).close()
                    return process
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.05)
        raise RuntimeError((self.folder / "log").read_text(errors="replace")[-2_000:])

    def _run(self, *command: str) -> None:
        done = subprocess.run([*self._as, *command], cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)


def _other_user(folder: Path) -> list[str]:
    """Give the folder to a user who is not root; return what a command of theirs begins with."""
    for name in USERS:
        with suppress(KeyError):
            user = pwd.getpwnam(name)
            if setpriv := shutil.which("setpriv"):
                os.chown(folder, user.pw_uid, user.pw_gid)
                return [setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]
    raise LookupError("PostgreSQL does not run as root, and there is no setpriv or no other user to run it as")


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Run one; its folder is short, for a socket's path has 107 bytes, and every user may pass through those above."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise LookupError("psycopg is not installed (the extra server)") from error
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp", ignore_cleanup_errors=True) as folder:
        made = Cluster(Path(folder))
        try:
            yield made
        finally:
            made.stop()
