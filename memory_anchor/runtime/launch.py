"""Start an engine, and end one that hangs. Standard library only.

The engine is started in a new session and forks once more, so that it is nobody's child: a client that kills its whole
process tree does not kill the memory of others. It gets the data directory and the settings that are for all its
callers (`environment`), nothing about the one that started it: project, profile and conversation come with each
connection.
"""

from __future__ import annotations

import os
import sys

from memory_anchor.runtime import environment, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

NOT_INHERITED_PREFIXES = ("CLAUDE", "CODEX", "GEMINI_CLI", "CURSOR", "VSCODE", environment.PREFIX)
STDERR_LOG = "engine-stderr.log"
MAX_STDERR_BYTES = 256 * 1024
STDERR_TAIL_BYTES = 2_000
SIGKILL = 9
_STARTED: list[subprocess.Popen[bytes]] = []
"""Engines started here that are not nobody's children yet."""
PACKAGE_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120


def engine_command() -> list[str]:
    """Return the command of the engine that belongs to this very package and interpreter."""
    return [sys.executable, "-P", "-m", "memory_anchor.front.engine"]


def engine_environment(env: Mapping[str, str], data: str) -> dict[str, str]:
    """Return the environment of an engine for `data`: the user's, without what belongs to one caller or project."""
    kept = {name: value for name, value in env.items() if not name.startswith(NOT_INHERITED_PREFIXES)}
    kept |= environment.accepted(env, data).env
    kept["MEMORY_ANCHOR_DATA_DIR"] = data
    if os.path.basename(PACKAGE_ROOT) not in ("site-packages", "dist-packages"):  # noqa: PTH119
        kept["PYTHONPATH"] = os.pathsep.join([PACKAGE_ROOT, *filter(None, [env.get("PYTHONPATH")])])
    return kept


def start(data: str, env: Mapping[str, str], command: Sequence[str] | None = None) -> None:
    """Start an engine for `data` and return at once; losing the election to another one is no failure.

    Raises OSError: the folder cannot be written or the command cannot be run.
    """
    import subprocess

    logs = os.path.join(data, "logs")  # noqa: PTH118
    wire.run_dir(data)
    os.makedirs(logs, mode=0o700, exist_ok=True)  # noqa: PTH103
    path = os.path.join(logs, STDERR_LOG)  # noqa: PTH118
    if os.path.exists(path) and os.path.getsize(path) > MAX_STDERR_BYTES:  # noqa: PTH110, PTH202
        os.replace(path, f"{path}.1")  # noqa: PTH105
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    detached = 0x00000008 | 0x00000200 if sys.platform == "win32" else 0  # DETACHED_PROCESS, CREATE_NEW_PROCESS_GROUP
    try:
        child = subprocess.Popen(
            command or engine_command(),
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            cwd=data,
            env=engine_environment(env, data),
            start_new_session=True,
            creationflags=detached,
        )
    finally:
        os.close(fd)
    if sys.platform == "win32":
        child.returncode = 0  # it lives on by itself; without this the interpreter warns at exit
    else:
        _STARTED.append(child)


def reap() -> int:
    """Return the exit code of an engine started here that failed before it was nobody's child; 0: none did.

    Nothing stays a zombie.
    """
    codes = [code for child in list(_STARTED) if (code := child.poll()) is not None]
    _STARTED[:] = [child for child in _STARTED if child.returncode is None]
    return max(codes, default=0)


def failure(data: str, *, after: float) -> tuple[str, bool]:
    """Return why no engine could start later than `after` (epoch seconds), else "", and whether it may pass.

    An engine writes its reason as soon as its modules are loaded; what ends before that lacks one of them.
    """
    code = reap()
    reason, may_pass = wire.read_failure(data, after=after)
    if reason or code <= 0:
        return reason, may_pass
    from memory_anchor.base.installation import sentence

    with open(os.path.join(data, "logs", STDERR_LOG), "rb") as file:  # noqa: PTH118, PTH123
        file.seek(-min(STDERR_TAIL_BYTES, file.seek(0, os.SEEK_END)), os.SEEK_END)
        return sentence(file.read().decode(errors="replace").strip().rpartition("\n")[2]), False


def kill(pid: int) -> bool:
    """End a process that no longer answers; return whether there was one to end."""
    if pid <= 1 or pid == os.getpid():
        return False
    try:
        os.kill(pid, SIGKILL if sys.platform != "win32" else 15)
    except OSError:
        return False
    return True
