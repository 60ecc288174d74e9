"""Projects: an assigned id, with paths, shared Git folders, normalised remotes and first commits as aliases.

Which project a folder belongs to decides whose memory it reads, and an unpacked archive may lie about itself. A path,
and the Git folder that a worktree shares (it names the worktree back), are facts of the file system. A remote is only a
claim: a new folder joins the project of its remote when the first commit is the same too, as every clone's is. A first
commit alone says that a folder was moved: it counts when neither side has a remote and nothing is left at the old
place. What matches less becomes a project of its own, with one line that names the command to link it. Left out:
telling a clone from a copy of a public repository, whose first commit anybody can have (docs/security.md).

The id was never made from any of these, so adding a remote loses nothing. Stored in one small JSON file, replaced
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
"""The project of callers without a folder."""
PATH, SHARED_GIT, REMOTE, ROOT = "path:", "git:", "remote:", "root:"
_SCP = re.compile(r"^(?:[^@/]+@)?(?P<host>[^:/]+):(?P<path>[^/].*)$")
_URL = re.compile(r"^[a-z][a-z0-9+.-]*://(?:[^@/]*@)?(?P<host>[^:/]+)(?::\d+)?/(?P<path>.+)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ProjectFolder:
    """A folder and what identifies it. root: the top of its checkout, or itself."""

    root: str
    aliases: tuple[str, ...]
    repository: git.Repository | None = None

    def of_kind(self, kind: str) -> tuple[str, ...]:
        return tuple(alias for alias in self.aliases if alias.startswith(kind))


@dataclass(slots=True)
class KnownProject:
    """One project. maybe: another project that this one may be, "" for none, and why.

    is_hinted: an agent or a human saw the hint. is_asked: a human was asked on a terminal.
    """

    aliases: list[str] = field(default_factory=list)
    maybe: str = ""
    why: str = ""
    is_hinted: bool = False
    is_asked: bool = False

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
    # People and models read it: no sentence fits into a name without blanks.
    return name if len(name) <= REMOTE_CHARS_MAX and name.isprintable() and not any(c.isspace() for c in name) else None


def locate(folder: Path) -> ProjectFolder:
    """Return the project folder that `folder` is in, with every alias that costs no call of Git."""
    root = os.path.realpath(folder)
    repository = git.find_repository(root)
    if repository is None:
        return ProjectFolder(root, (f"{PATH}{root}",))
    aliases = [f"{PATH}{repository.top}", f"{SHARED_GIT}{repository.shared}"]
    aliases += [f"{REMOTE}{remote}" for url in git.remotes(repository) if (remote := normalised_remote(url))]
    return ProjectFolder(repository.top, tuple(dict.fromkeys(aliases)), repository)


class Projects:
    """joined: called when a new folder turns out to be a known project, with its id, the folder, and why."""

    def __init__(
        self, file: Path, new_id: Callable[[], str], joined: Callable[[str, str, str], None] | None = None
    ) -> None:
        self._file = file
        self._new_id = new_id
        self._joined = joined
        self._lock = threading.Lock()
        self._cache: TTLCache[str, tuple[str, str]] = TTLCache(256, LOOKUP_TTL_S)
        self._known = self._read()

    def of(self, folder: str) -> tuple[str, str]:
        """Return (project id, project folder) for a folder; assigns an id the first time. "" has id `default`."""
        if not folder:
            return DEFAULT, ""
        with self._lock:
            project = self._cache.get(folder)
        if project is None:
            place = locate(Path(folder))
            project = self._assign(place), place.root
            with self._lock:
                self._cache[folder] = project
        return project

    def all(self) -> Mapping[str, tuple[str, ...]]:
        """Return project id -> aliases."""
        return {name: tuple(known.aliases) for name, known in self._known.items()}

    def listed(self) -> list[tuple[str, KnownProject]]:
        """Return every project, read from disk."""
        with self._lock:
            self._known = self._read()
            return list(self._known.items())

    def note(self, project_id: str) -> str:
        """Return the line that says which known project this one may be, once; else ""."""

        def pending() -> KnownProject | None:
            known = self._known.get(project_id)
            return known if known is not None and known.maybe and not known.is_hinted else None

        if pending() is None:
            return ""
        with self._changing():
            if (project := pending()) is None:
                return ""
            project.is_hinted = True
            return _hint(project)

    def link_question(self, folder: str, *, on_terminal: bool) -> tuple[str, str]:
        """Return (the project that this known folder may be, the line that says so), each once; else ("", "").

        on_terminal: a human is asked, even where somebody saw the hint before.
        """
        if not any(p.maybe and not (p.is_asked if on_terminal else p.is_hinted) for p in self._known.values()):
            return "", ""
        place = locate(Path(folder))
        mine = self._owner(*place.of_kind(PATH), *place.of_kind(SHARED_GIT))
        if mine is None or not on_terminal:
            return "", self.note(mine or "")
        with self._changing():
            known = self._known.get(mine, KnownProject())
            if not known.maybe or known.is_asked:
                return "", ""
            known.is_asked = known.is_hinted = True
            return known.maybe, _hint(known)

    def link(self, folder: str, project_id: str, *, moved: bool = False) -> str:
        """Make a folder part of a known project; return the id that it had.

        moved: the project is in this folder now and no longer in the old ones. Raises NotFound: no such project.
        """
        if not folder:
            raise BadInput("the folder is empty; allowed is a project's folder")
        place = locate(Path(folder))
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
            taken = self._owners()
            target.aliases += [alias for alias in mine if alias not in taken]
            for name in (before, project_id):
                self._known[name].maybe = self._known[name].why = ""
            return before

    def register(self, *project_ids: str) -> None:
        """Add these ids, with no folder yet: memories name them."""
        with self._changing():
            for name in project_ids:
                self._known.setdefault(checked_id(name), KnownProject())

    def unmerge(self, source: str, target: str, aliases: Sequence[str]) -> None:
        """Give back the aliases that a merge moved."""
        with self._changing():
            into, out = self._named(target), self._known.setdefault(source, KnownProject())
            into.aliases = [alias for alias in into.aliases if alias not in aliases]
            out.aliases += [alias for alias in aliases if alias not in out.aliases]

    def merge(self, source: str, target: str) -> None:
        """Move a project's aliases to another one; the source stays known, without any. Twice is the same as once."""
        if source == target:
            raise BadInput(f"{source} cannot be merged into itself; name two projects")
        with self._changing():
            into, out = self._named(target), self._named(source)
            into.aliases += [alias for alias in out.aliases if alias not in into.aliases]
            out.aliases, out.maybe, out.why = [], "", ""
            for known in self._known.values():
                if known.maybe == source:
                    known.maybe = target
            into.maybe = into.why = ""

    def known(self, project_id: str) -> KnownProject:
        """Return one project. Raises NotFound, with the known ones."""
        with self._lock:
            return self._named(project_id)

    def renamed(self, projects: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """Return ids of another data directory -> ids here, where an alias is known here; nothing is stored."""
        with self._lock:
            owners = self._owners()
        here = {name: next((owners[a] for a in aliases if a in owners), name) for name, aliases in projects.items()}
        return {name: own for name, own in here.items() if own != name and name not in self._known}

    def adopt(self, projects: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """Store projects of another data directory; return their ids -> ids here, where they differ.

        A project that shares an alias with one known here is that one; the others keep their id.
        """
        renamed: dict[str, str] = {}
        for name in projects:
            checked_id(name)
        with self._changing():
            for name, aliases in projects.items():
                owners = self._owners()
                own = name if name in self._known else next((owners[a] for a in aliases if a in owners), name)
                if own != name:
                    renamed[name] = own
                self._known.setdefault(own, KnownProject()).aliases += [a for a in aliases if a not in owners]
        return renamed

    # --- which project a folder is -----------------------------------------------------------------------------------

    def _assign(self, place: ProjectFolder) -> str:
        owner = self._owner(*place.of_kind(PATH), *place.of_kind(SHARED_GIT))
        if owner is not None and self._knows_all(owner, place):
            return owner
        here = ProjectFolder(place.root, (*place.aliases, *_root_of(place)), place.repository)
        joined = ""
        with self._changing():
            owner = self._owner(*here.of_kind(PATH), *here.of_kind(SHARED_GIT))
            if owner is None:
                owner, maybe, why = self._recognised(here)
                joined = why if owner is not None else ""
                if owner is None:
                    owner = self._new_id()
                    self._known[owner] = KnownProject(maybe=maybe, why=why)
            taken = self._owners()
            self._known[owner].aliases += [alias for alias in here.aliases if alias not in taken]
        if joined and self._joined is not None:
            self._joined(owner, place.root, joined)
        return owner

    def _recognised(self, place: ProjectFolder) -> tuple[str | None, str, str]:
        """Return (the project a new folder is, the one it may be, why); at most one of the two."""
        root = next(iter(place.of_kind(ROOT)), "")
        claimed = [(alias, owner) for alias in place.of_kind(REMOTE) if (owner := self._owner(alias)) is not None]
        for alias, owner in claimed:
            if root and root in self._known[owner].aliases:
                return owner, "", f"{_alias_text(alias)} and the first commit are the same"
        if claimed:
            alias, owner = claimed[0]
            return None, owner, f"{_alias_text(alias)} is the same, the first commit is not known to be"
        same = self._owner(root) if root else None
        if same is None:
            return None, "", ""
        known = self._known[same]
        if place.of_kind(REMOTE) or known.of_kind(REMOTE):
            return None, same, "the first commit is the same, the remotes are not"
        if any(_is_checkout(path) for path in known.of_kind(PATH)):
            return None, same, "the first commit is the same, and the other folder is still there"
        return same, "", "the first commit is the same, and nothing is left at the old place"

    def _owners(self) -> dict[str, str]:
        """Return alias -> the project that has it."""
        return {alias: name for name, known in self._known.items() for alias in known.aliases}

    def _owner(self, *aliases: str) -> str | None:
        """Return the project that has one of these aliases, the first one first."""
        owners = self._owners()
        return next((owners[alias] for alias in aliases if alias in owners), None)

    def _knows_all(self, owner: str, place: ProjectFolder) -> bool:
        """Return whether every alias of a folder is known, also the one that costs a call of Git."""
        has_root = place.repository is None or bool(self._known[owner].of_kind(ROOT))
        return has_root and self._owners().keys() >= set(place.aliases)

    def _named(self, project_id: str) -> KnownProject:
        if project_id not in self._known:
            known = ", ".join(sorted(self._known)[:20]) or "none"
            raise NotFound(f"no project {project_id[:80]!r}; there are {known} (`memory-anchor projects list`)")
        return self._known[project_id]

    # --- the file ----------------------------------------------------------------------------------------------------

    def _read(self) -> dict[str, KnownProject]:
        if not self._file.exists():
            return {}
        try:
            stored = json.loads(self._file.read_text(encoding="utf-8"))
            return {
                str(name): KnownProject(
                    [str(alias) for alias in aliases],
                    str(maybe.get("project", "")),
                    str(maybe.get("why", "")),
                    bool(maybe.get("told", False)),
                    bool(maybe.get("asked", False)),
                )
                for name, aliases in stored["projects"].items()
                for maybe in [stored.get("likely", {}).get(name, {})]
            }
        except (ValueError, KeyError, AttributeError, TypeError):
            raise StoreDamaged(
                f"{self._file} is not readable; restore it with `memory-anchor backup restore` or see "
                "`memory-anchor doctor`"
            ) from None

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Read the file again, let the caller change the known projects, and write it when that changed anything."""
        with self._lock, file_lock(self._file.with_name(f"{self._file.name}.lock")):
            self._known = self._read()
            before = self._json()
            yield
            if (now := self._json()) != before:
                write_atomic(self._file, now)
            self._cache.clear()

    def _json(self) -> bytes:
        likely = {
            name: {"project": known.maybe, "why": known.why, "told": known.is_hinted, "asked": known.is_asked}
            for name, known in self._known.items()
            if known.maybe
        }
        aliases = {name: known.aliases for name, known in self._known.items()}
        return json.dumps({"projects": aliases, "likely": likely}, ensure_ascii=False, indent=1).encode()


def _root_of(place: ProjectFolder) -> tuple[str, ...]:
    root = git.root_commit(place.repository) if place.repository is not None else None
    return (f"{ROOT}{root}",) if root else ()


def _is_checkout(path: str) -> bool:
    repository = git.find_repository(path) if os.path.isdir(path) else None  # noqa: PTH112
    return repository is not None and repository.top == path


def _alias_text(alias: str) -> str:
    kind, _, value = alias.partition(":")
    return f"its {kind} {value}"


def _hint(known: KnownProject) -> str:
    return (
        f"This folder may be project {known.maybe} ({known.why}); until somebody says so it has a memory of its own: "
        f"a human runs `memory-anchor projects link {known.maybe}` here, on a terminal."
    )
