"""Projects: an assigned id, with paths, shared Git folders, normalised remotes and first commits as aliases.

Which project a folder belongs to decides whose memory it reads, and an unpacked archive may lie about itself. A path,
and the Git folder that a worktree shares (it names the worktree back), are facts of the file system. A remote is only a
claim: a new folder joins the project of its remote when the first commit is the same too, as every clone's is. A first
commit alone says that a folder was moved: it counts when neither side has a remote and nothing is left at the old
place. What matches less becomes a project of its own, with one line that names the command to link it; so does a
folder without Git, where the only such project beside it is gone: it may have been renamed. Left out:
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
from memory_anchor.base.files import file_lock, write_atomic
from memory_anchor.domain.errors import BadInput, NotFound, StoreDamaged
from memory_anchor.domain.requests.checks import project_id as checked_id

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
        self._is_stale = False
        self._cache: TTLCache[str, tuple[str, str]] = TTLCache(256, LOOKUP_TTL_S)
        self._known = self._read()

    def of(self, folder: str) -> tuple[str, str]:
        """Return (project id, project folder) for a folder; assigns an id the first time. "" has id `default`."""
        if not folder:
            return DEFAULT, ""
        self._renew()
        with self._lock:
            project = self._cache.get(folder)
        if project is None:
            location = locate(Path(folder))
            project = self._assign(location), location.root
            with self._lock:
                self._cache[folder] = project
        return project

    def all(self) -> Mapping[str, tuple[str, ...]]:
        """Return project id -> aliases."""
        self._renew()
        return {name: tuple(project.aliases) for name, project in self._known.items()}

    def file_changed(self) -> None:
        """Note that another process wrote the file; whoever asks next reads it."""
        self._is_stale = True

    def _renew(self) -> None:
        if self._is_stale:
            with self._lock:
                self._is_stale = False
                self._known = self._read()
                self._cache.clear()

    def listed(self) -> list[tuple[str, KnownProject]]:
        """Return every project, read from disk."""
        with self._lock:
            self._known = self._read()
            return list(self._known.items())

    def note(self, project_id: str, *, looks: bool = False) -> str:
        """Return the line that says which known project this one may be, once; else "". looks: it is not told yet."""

        def pending() -> KnownProject | None:
            candidate = self._known.get(project_id)
            return candidate if candidate is not None and candidate.maybe and not candidate.is_hinted else None

        if pending() is None:
            return ""
        with self._locked_change():
            if (project := pending()) is None:
                return ""
            project.is_hinted = not looks
            return _hint(project)

    def link_question(self, folder: str, *, on_terminal: bool) -> tuple[str, str]:
        """Return (the project that this known folder may be, the line that says so), each once; else ("", "").

        on_terminal: a human is asked, even where somebody saw the hint before.
        """
        if not any(p.maybe and not (p.is_asked if on_terminal else p.is_hinted) for p in self._known.values()):
            return "", ""
        location = locate(Path(folder))
        project_id = self._owner(*location.of_kind(PATH), *location.of_kind(SHARED_GIT))
        if project_id is None or not on_terminal:
            return "", self.note(project_id or "")
        with self._locked_change():
            project = self._known.get(project_id, KnownProject())
            if not project.maybe or project.is_asked:
                return "", ""
            project.is_asked = project.is_hinted = True
            return project.maybe, _hint(project)

    def link(self, folder: str, project_id: str, *, moved: bool = False) -> str:
        """Make a folder part of a known project; return the id that it had.

        moved: the project is in this folder now and no longer in the old ones. Raises NotFound: no such project.
        """
        if not folder:
            raise BadInput("the folder is empty; allowed is a project's folder")
        location = locate(Path(folder))
        earlier_id = self._assign(location)
        with self._locked_change():
            target = self._named(project_id)
            aliases = [*location.aliases, *_root_alias(location)]
            for project in self._known.values():
                dropped = set(aliases)
                if project is target and moved:
                    dropped |= {alias for alias in project.aliases if alias.startswith((PATH, SHARED_GIT))}
                elif project is not target:
                    # A remote or first commit stays with the project that has other folders too.
                    other_paths = set(project.of_kind(PATH)) - {location.root}
                    dropped = {alias for alias in aliases if not other_paths or alias.startswith((PATH, SHARED_GIT))}
                project.aliases = [alias for alias in project.aliases if alias not in dropped]
            owners = self._owners()
            target.aliases += [alias for alias in aliases if alias not in owners]
            for name in (earlier_id, project_id):
                self._known[name].maybe = self._known[name].why = ""
            return earlier_id

    def register(self, *project_ids: str) -> None:
        """Add these ids, with no folder yet: memories name them."""
        with self._locked_change():
            for name in project_ids:
                self._known.setdefault(checked_id(name), KnownProject())

    def unmerge(self, source: str, target: str, aliases: Sequence[str]) -> None:
        """Give back the aliases that a merge moved."""
        with self._locked_change():
            target_project, source_project = self._named(target), self._known.setdefault(source, KnownProject())
            target_project.aliases = [alias for alias in target_project.aliases if alias not in aliases]
            source_project.aliases += [alias for alias in aliases if alias not in source_project.aliases]

    def merge(self, source: str, target: str) -> None:
        """Move a project's aliases to another one; the source stays known, without any. Twice is the same as once."""
        if source == target:
            raise BadInput(f"{source} cannot be merged into itself; name two projects")
        with self._locked_change():
            target_project, source_project = self._named(target), self._named(source)
            target_project.aliases += [alias for alias in source_project.aliases if alias not in target_project.aliases]
            source_project.aliases, source_project.maybe, source_project.why = [], "", ""
            for project in self._known.values():
                if project.maybe == source:
                    project.maybe = target
            target_project.maybe = target_project.why = ""

    def known(self, project_id: str) -> KnownProject:
        """Return one project. Raises NotFound, with the known ones."""
        with self._lock:
            return self._named(project_id)

    def renamed(self, projects: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """Return ids of another data directory -> ids here, where an alias is known here; nothing is stored."""
        with self._lock:
            owners = self._owners()
        ids = {name: next((owners[a] for a in aliases if a in owners), name) for name, aliases in projects.items()}
        return {name: local_id for name, local_id in ids.items() if local_id != name and name not in self._known}

    def adopt(self, projects: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """Store projects of another data directory; return their ids -> ids here, where they differ.

        A project that shares an alias with one known here is that one; the others keep their id.
        """
        renamed: dict[str, str] = {}
        for name in projects:
            checked_id(name)
        with self._locked_change():
            for name, aliases in projects.items():
                owners = self._owners()
                local_id = name if name in self._known else next((owners[a] for a in aliases if a in owners), name)
                if local_id != name:
                    renamed[name] = local_id
                self._known.setdefault(local_id, KnownProject()).aliases += [a for a in aliases if a not in owners]
        return renamed

    # --- which project a folder is -----------------------------------------------------------------------------------

    def _assign(self, folder: ProjectFolder) -> str:
        owner = self._owner(*folder.of_kind(PATH), *folder.of_kind(SHARED_GIT))
        if owner is not None and self._has_every_alias(owner, folder):
            return owner
        full = ProjectFolder(folder.root, (*folder.aliases, *_root_alias(folder)), folder.repository)
        reason = ""
        with self._locked_change():
            owner = self._owner(*full.of_kind(PATH), *full.of_kind(SHARED_GIT))
            if owner is None:
                owner, maybe, why = self._recognise(full)
                reason = why if owner is not None else ""
                if owner is None:
                    owner = self._new_id()
                    self._known[owner] = KnownProject(maybe=maybe, why=why)
            owners = self._owners()
            self._known[owner].aliases += [alias for alias in full.aliases if alias not in owners]
        if reason and self._joined is not None:
            self._joined(owner, folder.root, reason)
        return owner

    def _recognise(self, folder: ProjectFolder) -> tuple[str | None, str, str]:
        """Return (the project a new folder is, the one it may be, why); at most one of the two."""
        if folder.repository is None:
            renamed = self._gone_beside(folder.root)
            return None, renamed, "its folder, beside this one, is gone" if renamed else ""
        root = next(iter(folder.of_kind(ROOT)), "")
        claimed = [(alias, owner) for alias in folder.of_kind(REMOTE) if (owner := self._owner(alias)) is not None]
        for alias, owner in claimed:
            if root and root in self._known[owner].aliases:
                return owner, "", f"{_alias_text(alias)} and the first commit are the same"
        if claimed:
            alias, owner = claimed[0]
            return None, owner, f"{_alias_text(alias)} is the same, the first commit is not known to be"
        owner_of_root = self._owner(root) if root else None
        if owner_of_root is None:
            return None, "", ""
        project = self._known[owner_of_root]
        if folder.of_kind(REMOTE) or project.of_kind(REMOTE):
            return None, owner_of_root, "the first commit is the same, the remotes are not"
        if any(_is_checkout(path) for path in project.of_kind(PATH)):
            return None, owner_of_root, "the first commit is the same, and the other folder is still there"
        return owner_of_root, "", "the first commit is the same, and nothing is left at the old place"

    def _gone_beside(self, root: str) -> str:
        """Return the only project without Git whose folders are all gone, one from beside this one; else ""."""
        gone = [
            name
            for name, project in self._known.items()
            if (paths := project.of_kind(PATH)) == [alias.removeprefix(PATH) for alias in project.aliases]
            and any(os.path.dirname(path) == os.path.dirname(root) for path in paths)  # noqa: PTH120
            and not any(os.path.lexists(path) for path in paths)
        ]
        return gone[0] if len(gone) == 1 else ""

    def _owners(self) -> dict[str, str]:
        """Return alias -> the project that has it."""
        return {alias: name for name, project in self._known.items() for alias in project.aliases}

    def _owner(self, *aliases: str) -> str | None:
        """Return the project that has one of these aliases, the first one first."""
        owners = self._owners()
        return next((owners[alias] for alias in aliases if alias in owners), None)

    def _has_every_alias(self, owner: str, folder: ProjectFolder) -> bool:
        """Return whether every alias of a folder is known, also the one that costs a call of Git."""
        has_root = folder.repository is None or bool(self._known[owner].of_kind(ROOT))
        return has_root and self._owners().keys() >= set(folder.aliases)

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
                    bool(maybe.get("hinted", maybe.get("told", False))),
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
    def _locked_change(self) -> Iterator[None]:
        """Read the file again, let the caller change the known projects, and write it when that changed anything."""
        with self._lock, file_lock(self._file.with_name(f"{self._file.name}.lock")):
            self._known = self._read()
            stored = self._json()
            yield
            if (now := self._json()) != stored:
                write_atomic(self._file, now)
            self._cache.clear()

    def _json(self) -> bytes:
        likely = {
            name: {"project": project.maybe, "why": project.why, "hinted": project.is_hinted, "asked": project.is_asked}
            for name, project in self._known.items()
            if project.maybe
        }
        aliases = {name: project.aliases for name, project in self._known.items()}
        return json.dumps({"projects": aliases, "likely": likely}, ensure_ascii=False, indent=1).encode(
            "utf-8", "backslashreplace"
        )


def _root_alias(folder: ProjectFolder) -> tuple[str, ...]:
    root = git.root_commit(folder.repository) if folder.repository is not None else None
    return (f"{ROOT}{root}",) if root else ()


def _is_checkout(path: str) -> bool:
    repository = git.find_repository(path) if os.path.isdir(path) else None  # noqa: PTH112
    return repository is not None and repository.top == path


def _alias_text(alias: str) -> str:
    kind, _, value = alias.partition(":")
    return f"its {kind} {value}"


def _hint(project: KnownProject) -> str:
    return (
        f"This folder may be project {project.maybe} ({project.why}); until somebody says so it has a memory of its "
        f"own: a human runs `memory-anchor projects link {project.maybe}` here, on a terminal."
    )
