"""The files of one project as citations name them: read only, inside the project, of bounded size.

A citation's path was written by an agent and the tree by whoever made the repository. A path is resolved with its
links, refused when it leaves the project or enters `.git`, and what it resolved to is opened without following any link
(`beneath`): nothing that is swapped in between leads out.

Where a file went that is not there any more: a file that the commit checked out does not know and that says mostly the
same (a rename not committed yet), then the renames of the last commit that touched the old path. Else it may be a file
of the same name elsewhere, or one that Git does not know yet; whoever asks compares the text. A bounded walk and a few
quick Git calls the first time, remembered for a minute. Git is asked for objects alone (`adapters.git`): letting it
compare the files themselves would run the filters of whoever wrote the repository's configuration. Rejected:
`git log --follow`, which follows a file back and never forward.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path, PurePosixPath

from cachetools import TTLCache

from memory_anchor import beneath
from memory_anchor.adapters import git

FILE_BYTES_MAX = 4 * 1024 * 1024
RENAMES_FOLLOWED = 5
ELSEWHERE_MAX = 8
"""Places that one vanished file is looked for in, the likeliest first."""
REMEMBERED_S = 60.0
REMEMBERED_MAX = 512
WALKED_MAX = 20_000
FOLDERS_MAX = 5_000
"""Files and folders looked at."""
COMPARED_MAX = 200
"""Files compared with one that vanished, the likeliest by their names first."""
SAME_FILE = 0.5
"""Share of lines in common from which a new file is an old one renamed: what Git takes for one, too."""
SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "target", "build", "dist", "vendor"})
_RENAMES = ("--no-ext-diff", "--no-textconv", "--name-status", "--find-renames", "--no-show-signature", "-z")


class WorkingTree:
    """root: absolute path of the project."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._lock = threading.Lock()
        self._went: TTLCache[str, tuple[tuple[str, bool], ...]] = TTLCache(REMEMBERED_MAX, REMEMBERED_S)

    def stamp(self, ref: str) -> str | None:
        """Return modification time, size and inode of the file; None when it is not a readable file inside."""
        path = self._inside(ref)
        seen = beneath.status(self._root, path) if path is not None else None
        return f"{seen.st_mtime_ns}:{seen.st_size}:{seen.st_ino}" if seen is not None else None

    def text(self, ref: str) -> str | None:
        """Return the file's text; None when it is not there, too large or not UTF-8."""
        path = self._inside(ref)
        try:
            content = beneath.read(self._root, path, most_bytes=FILE_BYTES_MAX) if path is not None else None
            return content.decode("utf-8") if content is not None else None
        except (OSError, UnicodeDecodeError):
            return None

    def elsewhere(self, ref: str) -> tuple[tuple[str, bool], ...]:
        """Return where a file that is not there may be now: (path, whether Git says so), the likeliest first.

        At most `ELSEWHERE_MAX`; remembered for `REMEMBERED_S`.
        """
        with self._lock:
            known = self._went.get(ref)
        if known is None:
            known = self._sought(ref) if self._inside(ref) is not None else ()
            with self._lock:
                self._went[ref] = known
        return known

    def _sought(self, ref: str) -> tuple[tuple[str, bool], ...]:
        ref = os.path.normpath(ref)
        there = [path.relative_to(self._root).as_posix() for path in islice(_files(self._root), WALKED_MAX)]
        history = _History.of(self._root)
        unknown = sorted(set(there) - history.names, key=lambda other: _unlike(ref, other)) if history else []
        renamed = self._renamed(ref, history, unknown) if history else None
        if renamed is not None:
            return ((renamed, True),)
        name, suffix = PurePosixPath(ref).name, PurePosixPath(ref).suffix
        every = {*there, *(history.names if history else ())} - {ref}
        near = sorted((o for o in every if PurePosixPath(o).name == name), key=lambda other: _unlike(ref, other))
        new = sorted(o for o in unknown if PurePosixPath(o).suffix == suffix and o not in {ref, *near})
        return tuple((other, False) for other in (*near, *new)[:ELSEWHERE_MAX])

    def _renamed(self, ref: str, history: _History, unknown: Sequence[str]) -> str | None:
        """Return the path to which the file was renamed, over several renames; None: nothing says so."""
        here, seen = ref, {ref}
        for _ in range(RENAMES_FOLLOWED):
            after = self._uncommitted(here, history, unknown) or history.renamed(here)
            if after is None or after in seen:
                return None
            here = after
            seen.add(here)
            if self.stamp(here) is not None:
                return here
        return None

    def _uncommitted(self, ref: str, history: _History, unknown: Sequence[str]) -> str | None:
        """Return the new file that says mostly what the commit's file said."""
        was = Counter((history.text(ref) or "").splitlines())
        if not was:
            return None
        best, likeness = None, SAME_FILE
        for other in unknown[:COMPARED_MAX]:
            now = Counter((self.text(other) or "").splitlines())
            share = (was & now).total() / max(was.total(), now.total(), 1)
            if share >= likeness and (best is None or share > likeness):
                best, likeness = other, share
        return best

    def _inside(self, ref: str) -> PurePosixPath | None:
        """Return where below the root a path leads, None when it leads out of the project or is Git's own."""
        if not ref or "\x00" in ref:
            return None
        try:
            path = (self._root / ref).resolve()
        except (OSError, RuntimeError):  # a loop of links
            return None
        if not path.is_relative_to(self._root):
            return None
        inside = PurePosixPath(path.relative_to(self._root).as_posix())
        return None if any(part.lower() == ".git" for part in inside.parts) else inside


@dataclass(frozen=True, slots=True)
class _History:
    """What the commit that is checked out knows. prefix: of the project in its checkout. names: below the project."""

    repository: git.Repository
    commit: str
    prefix: str
    names: frozenset[str]

    @staticmethod
    def of(root: Path) -> _History | None:
        repository = git.found(str(root))
        commit = git.head(repository) if repository is not None else None
        if repository is None or commit is None:
            return None
        prefix = "" if (inside := os.path.relpath(root, repository.top)) == "." else f"{inside}/"
        listed = git.asked(repository, "ls-tree", "-r", "-z", "--name-only", "--full-tree", commit)
        if listed is None:
            return None
        names = (name.removeprefix(prefix) for name in listed.split("\0") if name.startswith(prefix) and name)
        return _History(repository, commit, prefix, frozenset(names))

    def text(self, ref: str) -> str | None:
        if ref not in self.names:
            return None
        blob = f"{self.commit}:{self.prefix}{ref}"
        return git.asked(self.repository, "cat-file", "blob", blob, most_bytes=FILE_BYTES_MAX)

    def renamed(self, ref: str) -> str | None:
        """Return the new path that the last commit which touched `ref` gave it."""
        # `--full-diff`: the other side of a rename is outside the path that is asked for
        relative = ("--relative=" + self.prefix,) if self.prefix else ()
        path = f":(literal,top){self.prefix}{ref}"
        asked = ("log", "-1", "--format=", "--full-diff", *_RENAMES, *relative, self.commit, "--", path)
        return _renames(git.asked(self.repository, *asked)).get(ref)


def _renames(listed: str | None) -> dict[str, str]:
    """Return old path -> new path of `--name-status -z`, whose renames are `R100`, old, new."""
    parts = iter((listed or "").split("\0"))
    found: dict[str, str] = {}
    for status in parts:
        status = status.strip()
        if status.startswith(("R", "C")):
            old, new = next(parts, ""), next(parts, "")
            if status.startswith("R"):
                found[old] = new
        elif status:
            next(parts, "")
    return found


def _unlike(one: str, other: str) -> tuple[bool, bool, int, int, str]:
    """Return the order of likelihood in which a path may be the other one: name, kind, folders in common."""
    this, that = PurePosixPath(one), PurePosixPath(other)
    pairs = zip(this.parent.parts, that.parent.parts, strict=False)
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    return this.name != that.name, this.suffix != that.suffix, -shared, len(other), other


def _files(root: Path) -> Iterator[Path]:
    for folder, inside, names in islice(os.walk(root), FOLDERS_MAX):
        inside[:] = sorted(name for name in inside if name not in SKIPPED and not name.startswith("."))
        yield from (Path(folder) / name for name in names)
