"""The files of one project as citations name them: read only, inside the project, of bounded size.

A citation's path was written by an agent and the tree by whoever made the repository. A path is resolved with its
links, refused when it leaves the project or enters `.git`, and what it resolved to is opened without following any link
(`beneath`): nothing that is swapped in between leads out.

Where a file went that is not there any more, Git says best: the renames not committed yet, then those of the last
commit that touched the old path. Else it may be a file of the same name elsewhere, or one that Git does not know yet;
whoever asks compares the text. Two to four quick Git calls the first time, remembered for a minute; without Git a
bounded walk. Rejected: `git log --follow`, which follows a file back and never forward.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
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
"""Files looked at where there is no Git."""
SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "target", "build", "dist", "vendor"})
_PLAIN = ("--no-ext-diff", "--no-textconv", "--name-status", "--find-renames", "--relative", "-z")


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
        renamed = self._renamed(ref)
        if renamed is not None:
            return ((renamed, True),)
        near = sorted(set(self._namesakes(ref)) - {ref}, key=lambda other: (-_shared(ref, other), len(other), other))
        unknown = sorted(set(self._untracked(ref)) - {ref, *near})
        return tuple((other, False) for other in (*near, *unknown)[:ELSEWHERE_MAX])

    def _renamed(self, ref: str) -> str | None:
        """Return the path to which Git says that the file was renamed, over several renames; None: it does not say."""
        here, seen = ref, {ref}
        uncommitted = _renames(git.asked(str(self._root), "diff", *_PLAIN, "HEAD"))
        for _ in range(RENAMES_FOLLOWED):
            renames = uncommitted
            if here not in renames:  # `--full-diff`: the other side of a rename is outside the path that is asked for
                asked = ("log", "-1", "--format=", "--full-diff", *_PLAIN, "--", f":(literal){here}")
                renames = _renames(git.asked(str(self._root), *asked))
            if here not in renames or renames[here] in seen:
                return None
            here = renames[here]
            seen.add(here)
            if self.stamp(here) is not None:
                return here
        return None

    def _namesakes(self, ref: str) -> Iterator[str]:
        """Yield files of the same name, some of them perhaps not there."""
        name = PurePosixPath(ref).name
        listed = git.asked(
            str(self._root), "ls-files", "-z", "-co", "--exclude-standard", "--", f":(glob)**/{_literal(name)}"
        )
        if listed is not None:
            yield from islice((one for one in listed.split("\0") if one), WALKED_MAX)
            return
        for path in islice(_files(self._root), WALKED_MAX):
            if path.name == name:
                yield path.relative_to(self._root).as_posix()

    def _untracked(self, ref: str) -> Iterator[str]:
        """Yield files of the same kind that Git does not know yet: renamed by hand and not added."""
        suffix = PurePosixPath(ref).suffix
        listed = git.asked(
            str(self._root), "ls-files", "-z", "-o", "--exclude-standard", "--", f":(glob)**/*{_literal(suffix)}"
        )
        yield from islice((one for one in (listed or "").split("\0") if one), ELSEWHERE_MAX)

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


def _shared(one: str, other: str) -> int:
    """Return how many folders two paths have in common, from the top."""
    pairs = zip(PurePosixPath(one).parent.parts, PurePosixPath(other).parent.parts, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def _literal(name: str) -> str:
    """Return a file name as a glob that matches it alone."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", name)


def _files(root: Path) -> Iterator[Path]:
    for folder, inside, names in os.walk(root):
        inside[:] = sorted(name for name in inside if name not in SKIPPED and not name.startswith("."))
        yield from (Path(folder) / name for name in names)
