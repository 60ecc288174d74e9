"""Projects: an assigned id, with paths and normalised Git remotes as aliases.

Worktrees and clones of one repository share their memory, a moved folder is found again by its remote, and adding a
remote loses nothing, because the id was never made from either. Kept in one small JSON file, replaced atomically; the
engine is its only writer.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cachetools import TTLCache

from memory_anchor.adapters import git
from memory_anchor.errors import StoreDamaged
from memory_anchor.files import write_whole
from memory_anchor.inputs import project_id

LOOKUP_TTL_S = 30.0
REMOTES_MAX = 8
_SCP = re.compile(r"^(?:[^@/]+@)?(?P<host>[^:/]+):(?P<path>[^/].*)$")
_URL = re.compile(r"^[a-z][a-z0-9+.-]*://(?:[^@/]*@)?(?P<host>[^:/]+)(?::\d+)?/(?P<path>.+)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Place:
    """What is known about a folder: the top of its checkout (or itself), its shared Git folder and remotes."""

    root: str
    aliases: tuple[str, ...]


def normalised_remote(url: str) -> str | None:
    """Return `host/path` of a Git remote: no scheme, credentials, port, `.git`; None for a local path.

    >>> normalised_remote("https://user:secret@Example.org:8443/Team/app.git")
    'example.org/team/app'
    >>> normalised_remote("git@example.org:team/app.git")
    'example.org/team/app'
    """
    match = _URL.match(url) or _SCP.match(url)
    if match is None or url.startswith("file:"):
        return None
    path = match["path"].strip("/").removesuffix(".git")
    return f"{match['host']}/{path}".lower()


def place_of(folder: Path) -> Place:
    """Return the project folder that `folder` lies in, with every alias it is known by."""
    root = os.path.realpath(folder)
    answer = git.asked(
        root, "rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir", undecodable="replace"
    )
    if not answer or not answer.strip():
        return Place(root, (f"path:{root}",))
    top, common = [os.path.realpath(line) for line in answer.strip().splitlines()[:2]]
    aliases = [f"path:{top}", f"git:{common}"]
    remotes = git.asked(top, "config", "--get-regexp", r"^remote\..*\.url$", undecodable="replace") or ""
    for line in remotes.splitlines()[:REMOTES_MAX]:
        remote = normalised_remote(line.partition(" ")[2].strip())
        if remote:
            aliases.append(f"remote:{remote}")
    return Place(top, tuple(dict.fromkeys(aliases)))


class Projects:
    def __init__(self, file: Path, new_id: Callable[[], str]) -> None:
        self._file = file
        self._new_id = new_id
        self._lock = threading.Lock()
        self._places: TTLCache[str, tuple[str, str]] = TTLCache(256, LOOKUP_TTL_S)
        self._known = self._read()

    def of(self, folder: str) -> tuple[str, str]:
        """Return (project id, project folder) for a folder; assigns an id the first time. "" has id `default`."""
        if not folder:
            return "default", ""
        with self._lock:
            found = self._places.get(folder)
            if found is None:
                place = place_of(Path(folder))
                found = self._places[folder] = (self._assign(place), place.root)
            return found

    def all(self) -> Mapping[str, tuple[str, ...]]:
        """Return project id -> aliases."""
        return {name: tuple(aliases) for name, aliases in self._known.items()}

    def adopt(self, projects: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """Learn projects of another data directory; return their ids -> ids here, where they differ.

        A project that shares an alias with one known here is that one; the others keep their id.
        """
        renamed: dict[str, str] = {}
        for name in projects:
            project_id(name)
        with self._lock:
            for name, aliases in projects.items():
                owners = {alias: own for own, held in self._known.items() for alias in held}
                own = name if name in self._known else next((owners[a] for a in aliases if a in owners), name)
                if own != name:
                    renamed[name] = own
                fresh = [alias for alias in aliases if alias not in owners]
                if fresh or own not in self._known:
                    self._known[own] = [*self._known.get(own, ()), *fresh]
            self._places.clear()
            self._write()
        return renamed

    def _assign(self, place: Place) -> str:
        for alias in place.aliases:  # path first, then the shared Git folder, then remotes
            owner = next((name for name, aliases in self._known.items() if alias in aliases), None)
            if owner is not None:
                taken = {a for aliases in self._known.values() for a in aliases}
                fresh = [a for a in place.aliases if a not in taken]
                if fresh:
                    self._known[owner] = [*self._known[owner], *fresh]
                    self._write()
                return owner
        name = self._new_id()
        self._known[name] = list(place.aliases)
        self._write()
        return name

    def _read(self) -> dict[str, list[str]]:
        if not self._file.exists():
            return {}
        try:
            known = json.loads(self._file.read_text(encoding="utf-8"))["projects"]
            return {str(name): [str(alias) for alias in aliases] for name, aliases in known.items()}
        except (ValueError, KeyError, AttributeError, TypeError):
            raise StoreDamaged(
                f"{self._file} is not readable; restore it with `memory-anchor backup restore` or see "
                "`memory-anchor doctor`"
            ) from None

    def _write(self) -> None:
        write_whole(self._file, json.dumps({"projects": self._known}, ensure_ascii=False, indent=1).encode())
