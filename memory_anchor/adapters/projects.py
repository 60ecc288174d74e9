"""Projects: an assigned id, with paths, shared Git folders, normalised remotes and first commits as aliases.

Which project a folder is decides whose memory it reads, and all that an unpacked archive says of itself may be a lie.
A path, and the Git folder that a worktree shares (it names the worktree back), are the file system's word. A remote is
only a claim: a new folder joins the project of its remote when the first commit is the same too, as every clone's is.
A first commit alone says that a folder was moved: it counts when neither side has a remote and nothing is left at the
old place. What matches less is a project of its own, with one line that names the command to link it. Left out: telling
a clone from a copy of a public repository, whose first commit anybody can have (docs/security.md).

The id was never made from any of these, so adding a remote loses nothing. Kept in one small JSON file, replaced
atomically under a lock: an engine and a command may both meet a new folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cachetools import TTLCache

from memory_anchor.adapters import git
from memory_anchor.errors import BadInput, NotFound, StoreDamaged
from memory_anchor.files import file_lock, write_atomic
from memory_anchor.inputs import project_id as checked_id

LOOKUP_TTL_S = 30.0
REMOTE_CHARS_MAX = 300
DEFAULT = "default"
"""The project of what has no folder."""
PATH, SHARED_GIT, REMOTE, ROOT = "path:", "git:", "remote:", "root:"
_SCP = re.compile(r"^(?:[^@/]+@)?(?P<host>[^:/]+):(?P<path>[^/].*)$")
_URL = re.compile(r"^[a-z][a-z0-9+.-]*://(?:[^@/]*@)?(?P<host>[^:/]+)(?::\d+)?/(?P<path>.+)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ProjectPlace:
    """What is known about a folder: the top of its checkout (or itself), its shared Git folder and remotes."""

    root: str
    aliases: tuple[str, ...]
    repository: git.Repository | None = None

    def of_kind(self, kind: str) -> tuple[str, ...]:
        return tuple(alias for alias in self.aliases if alias.startswith(kind))


@dataclass(slots=True)
class Known:
    """One project. likely: another project that this one may be, "" for none. told: whether somebody was told so.

    asked: whether a human was, on a terminal.
    """

    aliases: list[str] = field(default_factory=list)
    likely: str = ""
    why: str = ""
    told: bool = False
    asked: bool = False

    def of_kind(self, kind: str) -> list[str]:
        return [alias.removeprefix(kind) for alias in self.aliases if alias.startswith(kind)]


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
    name = f"{match['host']}/{path}".lower()
    # It is told to people and models: no sentence fits into a name without blanks.
    return name if len(name) <= REMOTE_CHARS_MAX and name.isprintable() and not any(c.isspace() for c in name) else None


def place_of(folder: Path) -> ProjectPlace:
    """Return the project folder that `folder` lies in, with every alias that costs no call of Git."""
    root = os.path.realpath(folder)
    repository = git.found(root)
    if repository is None:
        return ProjectPlace(root, (f"{PATH}{root}",))
    aliases = [f"{PATH}{repository.top}", f"{SHARED_GIT}{repository.shared}"]
    aliases += [f"{REMOTE}{remote}" for url in git.remotes(repository) if (remote := normalised_remote(url))]
    return ProjectPlace(repository.top, tuple(dict.fromkeys(aliases)), repository)


class Projects:
    """joined: told when a folder that was not known is found to be a known project: its id, the folder, and why."""

    def __init__(
        self, file: Path, new_id: Callable[[], str], joined: Callable[[str, str, str], None] | None = None
    ) -> None:
        self._file = file
        self._new_id = new_id
        self._joined = joined
        self._lock = threading.Lock()
        self._places: TTLCache[str, tuple[str, str]] = TTLCache(256, LOOKUP_TTL_S)
        self._known = self._read()

    def of(self, folder: str) -> tuple[str, str]:
        """Return (project id, project folder) for a folder; assigns an id the first time. "" has id `default`."""
        if not folder:
            return DEFAULT, ""
        with self._lock:
            found = self._places.get(folder)
        if found is None:
            place = place_of(Path(folder))
            found = self._assign(place), place.root
            with self._lock:
                self._places[folder] = found
        return found

    def all(self) -> Mapping[str, tuple[str, ...]]:
        """Return project id -> aliases."""
        return {name: tuple(known.aliases) for name, known in self._known.items()}

    def listed(self) -> list[tuple[str, Known]]:
        """Return every project, as on disk now."""
        with self._lock:
            self._known = self._read()
            return list(self._known.items())

    def note(self, project_id: str) -> str:
        """Return the line that says which known project this one may be, the first time it is asked for; else ""."""
        known = self._known.get(project_id)
        if known is None or not known.likely or known.told:
            return ""
        with self._changing():
            mine = self._known.get(project_id)
            if mine is None or not mine.likely or mine.told:
                return ""
            mine.told = True
            return _asks(mine)

    def to_ask(self, folder: str, *, on_terminal: bool) -> tuple[str, str]:
        """Return (the project that this known folder may be, the line that says so), each once; else ("", "").

        on_terminal: a human is asked, whoever was told before.
        """
        if not any(known.likely and not (known.asked if on_terminal else known.told) for known in self._known.values()):
            return "", ""
        place = place_of(Path(folder))
        mine = self._owner(*place.of_kind(PATH), *place.of_kind(SHARED_GIT))
        if mine is None or not on_terminal:
            return "", self.note(mine or "")
        with self._changing():
            known = self._known.get(mine, Known())
            if not known.likely or known.asked:
                return "", ""
            known.asked = known.told = True
            return known.likely, _asks(known)

    def link(self, folder: str, project_id: str, *, moved: bool = False) -> str:
        """Make a folder part of a known project; return the id that it had.

        moved: the project is in this folder now and in none of the old ones. Raises NotFound: no such project.
        """
        if not folder:
            raise BadInput("the folder is empty; allowed is a project's folder")
        place = place_of(Path(folder))
        before = self._assign(place)
        with self._changing():
            target = self._named(project_id)
            mine = [*place.aliases, *_root_of(place)]
            for known in self._known.values():
                dropped = set(mine)
                if known is target and moved:
                    dropped |= {alias for alias in known.aliases if alias.startswith((PATH, SHARED_GIT))}
                elif known is not target:
                    # A remote or first commit stays with the project that has other folders too.
                    others = set(known.of_kind(PATH)) - {place.root}
                    dropped = {alias for alias in mine if not others or alias.startswith((PATH, SHARED_GIT))}
                known.aliases = [alias for alias in known.aliases if alias not in dropped]
            taken = {alias for known in self._known.values() for alias in known.aliases}
            target.aliases += [alias for alias in mine if alias not in taken]
            for name in (before, project_id):
                self._known[name].likely = self._known[name].why = ""
            return before

    def register(self, *project_ids: str) -> None:
        """Know these ids, with no folder yet: memories name them."""
        with self._changing():
            for name in project_ids:
                self._known.setdefault(checked_id(name), Known())

    def unmerge(self, source: str, target: str, aliases: Sequence[str]) -> None:
        """Give back the aliases that a merge took."""
        with self._changing():
            into, out = self._named(target), self._known.setdefault(source, Known())
            into.aliases = [alias for alias in into.aliases if alias not in aliases]
            out.aliases += [alias for alias in aliases if alias not in out.aliases]

    def merge(self, source: str, target: str) -> None:
        """Give a project's aliases to another one; the source stays known, without any. Twice is the same as once."""
        if source == target:
            raise BadInput(f"{source} cannot be merged into itself; name two projects")
        with self._changing():
            into, out = self._named(target), self._named(source)
            into.aliases += [alias for alias in out.aliases if alias not in into.aliases]
            out.aliases, out.likely, out.why = [], "", ""
            for known in self._known.values():
                if known.likely == source:
                    known.likely = target
            into.likely = into.why = ""

    def known(self, project_id: str) -> Known:
        """Return one project. Raises NotFound, naming those there are."""
        with self._lock:
            return self._named(project_id)

    def renamed(self, projects: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """Return ids of another data directory -> ids here, where one is known here by an alias; nothing is learned."""
        with self._lock:
            owners = {alias: own for own, known in self._known.items() for alias in known.aliases}
        found = {name: next((owners[a] for a in aliases if a in owners), name) for name, aliases in projects.items()}
        return {name: own for name, own in found.items() if own != name and name not in self._known}

    def adopt(self, projects: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """Learn projects of another data directory; return their ids -> ids here, where they differ.

        A project that shares an alias with one known here is that one; the others keep their id.
        """
        renamed: dict[str, str] = {}
        for name in projects:
            checked_id(name)
        with self._changing():
            for name, aliases in projects.items():
                owners = {alias: own for own, known in self._known.items() for alias in known.aliases}
                own = name if name in self._known else next((owners[a] for a in aliases if a in owners), name)
                if own != name:
                    renamed[name] = own
                self._known.setdefault(own, Known()).aliases += [a for a in aliases if a not in owners]
        return renamed

    # --- which project a folder is -----------------------------------------------------------------------------------

    def _assign(self, place: ProjectPlace) -> str:
        owner = self._owner(*place.of_kind(PATH), *place.of_kind(SHARED_GIT))
        if owner is not None and self._knows_all(owner, place):
            return owner
        here = ProjectPlace(place.root, (*place.aliases, *_root_of(place)), place.repository)
        joined = ""
        with self._changing():
            owner = self._owner(*here.of_kind(PATH), *here.of_kind(SHARED_GIT))
            likely, why = "", ""
            if owner is None:
                owner, likely, why = self._recognised(here)
                joined = why if owner is not None else ""
            if owner is None:
                owner = self._new_id()
                self._known[owner] = Known(likely=likely, why=why)
            taken = {alias for known in self._known.values() for alias in known.aliases}
            self._known[owner].aliases += [alias for alias in here.aliases if alias not in taken]
        if joined and self._joined is not None:
            self._joined(owner, place.root, joined)
        return owner

    def _recognised(self, place: ProjectPlace) -> tuple[str | None, str, str]:
        """Return (the project a new folder is, the one it may be, why); at most one of the two."""
        root = next(iter(place.of_kind(ROOT)), "")
        claimed = [(alias, owner) for alias in place.of_kind(REMOTE) if (owner := self._owner(alias)) is not None]
        for alias, owner in claimed:
            if root and root in self._known[owner].aliases:
                return owner, "", f"{_said(alias)} and the first commit are the same"
        if claimed:
            alias, owner = claimed[0]
            return None, owner, f"{_said(alias)} is the same, the first commit is not known to be"
        begun = self._owner(root) if root else None
        if begun is None:
            return None, "", ""
        known = self._known[begun]
        if place.of_kind(REMOTE) or known.of_kind(REMOTE):
            return None, begun, "the first commit is the same, the remotes are not"
        if any(_is_checkout(path) for path in known.of_kind(PATH)):
            return None, begun, "the first commit is the same, and the other folder is still there"
        return begun, "", "the first commit is the same, and nothing is left at the old place"

    def _owner(self, *aliases: str) -> str | None:
        for alias in aliases:
            for name, known in self._known.items():
                if alias in known.aliases:
                    return name
        return None

    def _knows_all(self, owner: str, place: ProjectPlace) -> bool:
        """Return whether nothing new can be learnt of a known folder without a call of Git, or with one."""
        taken = {alias for known in self._known.values() for alias in known.aliases}
        has_root = place.repository is None or bool(self._known[owner].of_kind(ROOT))
        return has_root and all(alias in taken for alias in place.aliases)

    def _named(self, project_id: str) -> Known:
        if project_id not in self._known:
            there = ", ".join(sorted(self._known)[:20]) or "none"
            raise NotFound(f"no project {project_id[:80]!r}; there are {there} (`memory-anchor projects list`)")
        return self._known[project_id]

    # --- the file ----------------------------------------------------------------------------------------------------

    def _read(self) -> dict[str, Known]:
        if not self._file.exists():
            return {}
        try:
            stored = json.loads(self._file.read_text(encoding="utf-8"))
            likely = stored.get("likely", {})
            return {
                str(name): Known(
                    [str(alias) for alias in aliases],
                    str(likely.get(name, {}).get("project", "")),
                    str(likely.get(name, {}).get("why", "")),
                    bool(likely.get(name, {}).get("told", False)),
                    bool(likely.get(name, {}).get("asked", False)),
                )
                for name, aliases in stored["projects"].items()
            }
        except (ValueError, KeyError, AttributeError, TypeError):
            raise StoreDamaged(
                f"{self._file} is not readable; restore it with `memory-anchor backup restore` or see "
                "`memory-anchor doctor`"
            ) from None

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Read the file anew, let the caller change what is known, and write it when that changed anything."""
        with self._lock, file_lock(self._file.with_name(f"{self._file.name}.lock")):
            self._known = self._read()
            before = self._json()
            yield
            if (now := self._json()) != before:
                write_atomic(self._file, now)
            self._places.clear()

    def _json(self) -> bytes:
        likely = {
            name: {"project": known.likely, "why": known.why, "told": known.told, "asked": known.asked}
            for name, known in self._known.items()
            if known.likely
        }
        aliases = {name: known.aliases for name, known in self._known.items()}
        return json.dumps({"projects": aliases, "likely": likely}, ensure_ascii=False, indent=1).encode()


def _root_of(place: ProjectPlace) -> tuple[str, ...]:
    root = git.root_commit(place.repository) if place.repository is not None else None
    return (f"{ROOT}{root}",) if root else ()


def _is_checkout(path: str) -> bool:
    repository = git.found(path) if os.path.isdir(path) else None  # noqa: PTH112
    return repository is not None and repository.top == path


def _said(alias: str) -> str:
    kind, _, value = alias.partition(":")
    return f"its {kind} {value}"


def _asks(known: Known) -> str:
    return (
        f"This folder may be project {known.likely} ({known.why}); until somebody says so it has a memory of its own: "
        f"a human runs `memory-anchor projects link {known.likely}` here, on a terminal."
    )
