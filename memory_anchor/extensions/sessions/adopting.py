"""Adoption: what is here, what was chosen of it, and each look after that.

What a person chose (folders, since when, what not) is kept in the archive, so that an engine, which has another
environment, reads the same files and no others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase

from memory_anchor.base.json_values import Json, Record, record, texts
from memory_anchor.extensions.sessions.agents import FoundSession, find
from memory_anchor.extensions.sessions.archive import SessionsFile
from memory_anchor.extensions.sessions.names import AGENTS
from memory_anchor.extensions.sessions.reading import LookReport, look
from memory_anchor.language.safe_regex import late

CHOICE = "choice"
GLIMPSE_BYTES, GLIMPSES_MAX = 16 * 1024, 2_000
"""Read of a file's beginning, and of how many files, to say which folders there are."""
DAY_S = 86_400.0
_CWD = late(rb'"cwd":\s{0,4}"((?:[^"\\]|\\.){1,400})"')


@dataclass(frozen=True, slots=True)
class AdoptChoice:
    """places: agent -> folders. since: files last written before it are left out. exclude: of a file's path."""

    places: Mapping[str, Sequence[str]]
    since: float = 0.0
    exclude: Sequence[str] = ()

    def found(self) -> list[FoundSession]:
        """Return the files that are read, newest first."""
        return [one for one in find(self.places) if self.takes(one)]

    def takes(self, one: FoundSession) -> bool:
        path = str(one.path)
        if any(fnmatchcase(path, glob) or glob in path for glob in self.exclude):
            return False
        return bool(one.problem) or one.mtime_ns / 1e9 >= self.since

    def encoded(self) -> str:
        return json.dumps({"places": self.places, "since": self.since, "exclude": list(self.exclude)})

    @classmethod
    def stored(cls, archive: SessionsFile) -> AdoptChoice | None:
        if (value := archive.note(CHOICE)) is None:
            return None
        kept = record(json.loads(value))
        places = {agent: texts(folders) for agent, folders in record(kept["places"]).items() if agent in AGENTS}
        return cls(places, float(str(kept["since"])), texts(kept["exclude"]))


def overview(found: Sequence[FoundSession]) -> list[dict[str, Json]]:
    """Return what is here of each agent: files, bytes, the span, and how many folders the sessions were in."""
    rows: list[dict[str, Json]] = []
    for agent in AGENTS:
        own = [one for one in found if one.agent == agent and not one.problem]
        if own:
            times = [one.mtime_ns / 1e9 for one in own]
            folders = {folder for one in own[:GLIMPSES_MAX] if (folder := one.folder.encode() or _folder_of(one))}
            span: Record = {"first": min(times), "last": max(times), "projects": len(folders)}
            size = sum({one.path: one.file_bytes or one.size for one in own}.values())
            rows.append({"agent": agent, "files": len(own), "bytes": size, **span})
    return rows


def _folder_of(one: FoundSession) -> bytes:
    if one.part:
        return b""
    try:
        with one.path.open("rb") as file:
            match = _CWD.search(file.read(GLIMPSE_BYTES))
    except OSError:
        return b""
    return match[1] if match else b""


def read_all(
    archive: SessionsFile,
    choice: AdoptChoice,
    *,
    goes_on: Callable[[], bool] = lambda: True,
    progress: Callable[[LookReport], None] = lambda _: None,
) -> LookReport:
    """Keep what was chosen, and read all that is new of it."""
    archive.keep_note(CHOICE, choice.encoded())
    return look(archive, choice.found(), goes_on=goes_on, progress=progress)


def look_again(archive: SessionsFile, at: datetime, *, keep: str, wait: Callable[[], object]) -> int:
    """Read what is new of what was adopted, and let go what clients deleted as the setting says; return how many
    passages were read. keep: `always`, `never`, or days. wait: lets somebody who waits go first."""
    choice = AdoptChoice.stored(archive)
    if choice is None:
        return 0

    def yields() -> bool:
        wait()
        return True

    present = find(choice.places)
    report = look(archive, [one for one in present if choice.takes(one)], goes_on=yields)
    _let_go(archive, present, choice, at.timestamp(), keep)
    return report.passages


def _let_go(archive: SessionsFile, present: Sequence[FoundSession], choice: AdoptChoice, now: float, keep: str) -> None:
    """Note which files are gone and which are back, and forget the sessions of those that are gone long enough.

    present: all that is there, also what was not chosen. What cannot be looked into now has its sessions still.
    """
    here, closed = {one.key for one in present}, tuple(str(one.path) for one in present if one.problem)
    roots = tuple(folder for folders in choice.places.values() for folder in folders if _may_be_there(folder))
    known = [path for path in archive.sources() if path in here or _is_below(path, roots)]
    there = {path for path in known if path in here or _is_below(path, closed) or _may_be_there(path)}
    archive.note_gone([path for path in known if path not in there], there, now)
    if keep == "always":
        return
    days = 0.0 if keep == "never" else float(keep)
    for session in archive.gone_before(now - days * DAY_S):
        archive.forget(session, for_good=False)


def _is_below(path: str, folders: Sequence[str]) -> bool:
    """Return whether a file is one of these, lies in one, or is a part of one."""
    return any(
        path.startswith((f"{folder.rstrip(os.sep)}{os.sep}", f"{folder}#")) or path == folder for folder in folders
    )


def _may_be_there(path: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return True
    return True
