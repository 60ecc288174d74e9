"""Every failure a caller can act on, and one table of its code, HTTP status and exit code.

A failure is raised with one sentence: what failed, the value, what is allowed or the next step. Front ends never word
errors themselves: `TABLE` gives the code that tools and HTTP answers carry, the HTTP status and the exit code.
Expected outcomes (a rejected write, an empty search) are values, not errors; anything else is a bug and crashes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from memory_anchor.base.json_values import Record

A = TypeVar("A")
TRIES = 8
"""How often a write is decided anew before the caller gets the conflict."""


class MemoryAnchorError(Exception):
    """A failure of ours, exit code 1: the message says what to do and never quotes a memory or a secret."""


class BadInput(MemoryAnchorError):
    """The caller's value is not allowed; nothing was changed."""


class NotFound(MemoryAnchorError):
    """No such memory, event, proposal or file within the caller's scope."""


class Refused(MemoryAnchorError):
    """The caller may not do this: permission, approval or read-only mode."""


class NoCredential(MemoryAnchorError):
    """The credential is missing, cut, expired, revoked or another server's."""


class TooMany(MemoryAnchorError):
    """The caller sends too many requests. retry_after_s: when it may send the next one."""

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TooLarge(MemoryAnchorError):
    """The request is larger than allowed; nothing of it was read."""


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who holds a lock. role: what that process is, e.g. "engine"; since: as it wrote it."""

    pid: int
    role: str
    since: str


class StoreBusy(MemoryAnchorError):
    """Another process holds the data directory. holder: None where it has not said who it is."""

    def __init__(self, message: str, holder: LockHolder | None = None) -> None:
        super().__init__(message)
        self.holder = holder

    def is_held_by(self, role: str) -> bool:
        """Return whether that kind of process holds it."""
        return self.holder is not None and self.holder.role == role


class VersionConflict(MemoryAnchorError):
    """Somebody else changed this memory first; read it again and retry."""


class ChangedMeanwhile(VersionConflict):
    """Another engine changed it between reading and writing; nothing was written, and a retry decides anew."""


class Unavailable(MemoryAnchorError):
    """A needed part is not available now: the engine, the store's server, a model."""


class BrokenInstallation(Unavailable, ImportError):
    """A part of this installation is missing or damaged; the message has the command that mends it."""


class DiskFull(MemoryAnchorError):
    """Free space is below the reserve; nothing was written."""


class Mending(StrEnum):
    """What mends a store that cannot be read as it is."""

    UPGRADE = "upgrade"
    OLDER_VERSION = "older version"
    SALVAGE = "salvage"
    BACKUP = "backup"


class StoreDamaged(MemoryAnchorError):
    """The store cannot be read as it is; `memory-anchor doctor` says how to mend it."""

    def __init__(self, message: str, mending: Mending = Mending.BACKUP) -> None:
        super().__init__(message)
        self.mending = mending


class WrongEmbedder(MemoryAnchorError):
    """The collection was made with another embedder; `memory-anchor reindex` moves it."""


@dataclass(frozen=True, slots=True)
class Report:
    """How one kind of error is shown: `code` in JSON answers, HTTP `status`, process `exit_code`."""

    code: str
    status: int
    exit_code: int


TABLE: dict[type[MemoryAnchorError], Report] = {
    MemoryAnchorError: Report("failure", 500, 1),
    BadInput: Report("bad_input", 400, 2),
    NotFound: Report("not_found", 404, 3),
    Refused: Report("refused", 403, 4),
    NoCredential: Report("no_credential", 401, 4),
    TooMany: Report("too_many", 429, 5),
    TooLarge: Report("too_large", 413, 2),
    StoreBusy: Report("store_busy", 503, 5),
    VersionConflict: Report("version_conflict", 409, 5),
    Unavailable: Report("unavailable", 503, 5),
    DiskFull: Report("disk_full", 507, 5),
    StoreDamaged: Report("store_damaged", 500, 6),
    WrongEmbedder: Report("wrong_embedder", 500, 6),
}


def reported(failure: Record, default: str) -> MemoryAnchorError:
    """Return the error of ours that another process reported as {code, message}; default: its missing message."""
    code, message = failure.get("code"), str(failure.get("message", default))
    return next((kind for kind, shown in TABLE.items() if shown.code == code), MemoryAnchorError)(message)


def retry_on_conflict(work: Callable[[], A]) -> A:
    """Return the result of `work`, which is done again from its reading on where another engine was first."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(ChangedMeanwhile):
            return work()
    return work()


def report(error: BaseException) -> Report:
    """Return how `error` is shown; anything that is not ours counts as our failure."""
    for kind in type(error).__mro__:
        if kind in TABLE:
            return TABLE[kind]
    return TABLE[MemoryAnchorError]


def extra_missing(extra: str, what: str) -> Unavailable:
    """Return the error for a missing package that an extra installs."""
    return Unavailable(f"{what} needs packages that are not installed; run `pip install 'memory-anchor[{extra}]'`")
