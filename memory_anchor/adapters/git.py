"""A project's repository and its files, read without trusting whoever made them.

The repository is read as Git left it on disk, without ever letting Git read its configuration. An unpacked repository
may carry a stranger's `.git/config`, and Git runs the commands in it: filters, file system monitors, `gpg.program`,
textconv, pagers, hooks, ssh commands, a promisor's upload-pack. Overriding each with `-c` is a list that grows with
every version of Git. So which folder is a checkout, its HEAD and its remotes are read here from a few small files
(`nofollow`: no link is followed, sizes are bounded), and what needs objects asks Git in a new empty repository of our
own that borrows the object folder and nothing else: no configuration, attributes, hooks, index, refs, replacements or
work tree of the other one, no user's or system's configuration, no `GIT_*` of the environment. Missing objects are an
error and never fetched. An object folder that leads out of the checkout, by a link or by its `info/alternates`, is not
read: whoever packed it would see any repository of this user of which they know a commit (`borrowed_objects`).

A `.git` file (worktree, submodule) is believed when the place it names names the folder back; anybody can write the
one, and only Git in that place writes the other. A checkout of another user is none (as with Git's `safe.directory`).

`WorkingTree` reads the files of a project as citations name them: inside the project, of bounded size. An agent wrote
the path and a stranger may have made the tree, so a path is resolved with its links, refused when it leaves the project
or enters `.git`, and opened without following any link (`nofollow`): nothing that is swapped in between leads out.

A file that is gone may have been renamed: to a file that the commit checked out does not know and that has mostly the
same lines (not committed yet), or by the renames of the last commit that touched the old path. Else it may be a file of
the same name in another folder, or one that Git does not know yet; the caller compares the text. That is a bounded walk
and a few quick Git calls, remembered for a minute. Rejected: letting Git compare the files themselves, which would run
the filters of the repository's configuration; `git log --follow`, which follows a file back and never forward.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, takewhile
from pathlib import Path, PurePosixPath

from cachetools import TTLCache

from memory_anchor.base import nofollow
from memory_anchor.base.lines import text_lines

TIMEOUT_S = 2.0
RESTS_S = 60.0
"""How long a repository in which Git took too long is not asked: one stalled request, not one for each citation."""
RESTING_MAX = 256
OUTPUT_BYTES_MAX = 8 * 1024 * 1024
AT_ONCE_MAX = 2
MEMORY_BYTES_MAX = 512 * 1024 * 1024
"""What Git may allocate; an object says its own size, so a small file can ask for any."""
PARENTS_MAX = 64
SMALL_BYTES_MAX = 4_096
CONFIG_BYTES_MAX = 256 * 1024
PACKED_REFS_BYTES_MAX = 32 * 1024 * 1024
SYMREFS_MAX = 5
REMOTES_MAX = 8
OBJECT_FILES_MAX = 500_000
ALTERNATES_MAX = 16

_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF = re.compile(r"refs/[\x21-\x7e\x80-\U0010ffff]{1,250}")
_SECTION = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_SETTINGS = (
    "core.quotePath=false",
    "core.packedGitWindowSize=16m",
    "core.packedGitLimit=256m",
    "core.bigFileThreshold=4m",
    "diff.renameLimit=400",
)
_PASSED = ("PATH", "SYSTEMROOT", "TMPDIR", "TEMP", "TMP")
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_PAGER": "cat",
    "LC_ALL": "C.UTF-8",
}
_resting: TTLCache[str, bool] = TTLCache(RESTING_MAX, RESTS_S)
_resting_lock = threading.Lock()
_borrowed: TTLCache[str, str] = TTLCache(RESTING_MAX, RESTS_S)
"""Object folder and the state of what `borrowed_objects` read -> its answer."""
_slots = threading.BoundedSemaphore(AT_ONCE_MAX)


@dataclass(frozen=True, slots=True)
class Repository:
    """A checkout. top: its folder. own: its Git folder. shared: the one all its worktrees share."""

    top: str
    own: str
    shared: str


def find_repository(folder: str) -> Repository | None:
    """Return the checkout that contains `folder` (absolute, resolved); None: there is none that is this user's."""
    top = folder
    for _ in range(PARENTS_MAX):
        path = os.path.join(top, ".git")  # noqa: PTH118
        try:
            status = os.lstat(path)
        except OSError:
            parent = os.path.dirname(top)  # noqa: PTH120
            if parent == top:
                return None
            top = parent
            continue
        if stat.S_ISDIR(status.st_mode):
            return _checked(Repository(top, path, path))
        return _named_by_file(top) if stat.S_ISREG(status.st_mode) else None
    return None


def head_commit(repository: Repository) -> str | None:
    """Return the id of the commit that is checked out; None: there is none yet, or it cannot be read."""
    content = _small(repository.own, "HEAD")
    for _ in range(SYMREFS_MAX):
        if _ID.fullmatch(content):
            return content
        ref = content.removeprefix("ref:").strip()
        if ref == content or not _REF.fullmatch(ref):
            return None
        content = _small(repository.shared, ref) or _packed(repository.shared, ref)
    return None


def remotes(repository: Repository) -> list[str]:
    """Return the URLs of the remotes in the configuration; includes and rewriting are not followed."""
    settings = _configured(repository.shared)
    return [url for section, key, url in settings if (section, key) == ("remote", "url")][:REMOTES_MAX]


def root_commit(repository: Repository) -> str | None:
    """Return the id of the first commit of HEAD's history, over first parents.

    None: no commit, a shallow clone (its first commit is not here), or a history that takes too long.
    """
    at = head_commit(repository)
    output = run_git(repository, "rev-list", "--first-parent", "--max-parents=0", at, "--") if at else None
    ids = (output or "").split()
    return ids[0] if len(ids) == 1 and _ID.fullmatch(ids[0]) else None


def run_git(repository: Repository, *arguments: str, most_bytes: int = OUTPUT_BYTES_MAX) -> str | None:
    """Return Git's output about objects; None: no Git, an error, too long an output, or none in time.

    There are objects and nothing else: commits are named by their id. Bytes that are not UTF-8 become surrogates.
    """
    program = _program()
    objects = os.path.join(repository.shared, "objects")  # noqa: PTH118
    with _resting_lock:
        rests = repository.shared in _resting
    if program is None or rests or borrowed_objects(repository) or not _slots.acquire(timeout=TIMEOUT_S):
        return None
    try:
        with _empty_repository(len(head_commit(repository) or "") == 64) as ours:
            passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
            command = [program, *(part for setting in _SETTINGS for part in ("-c", setting)), *arguments]
            env = {**passed, **_ENVIRONMENT, "GIT_DIR": ours, "GIT_OBJECT_DIRECTORY": objects, "HOME": ours}
            output = _bounded(command, env, ours, most_bytes)
    except TimeoutError:
        with _resting_lock:
            _resting[repository.shared] = True
        return None
    except (OSError, ValueError):
        return None
    finally:
        _slots.release()
    return output.decode("utf-8", "surrogateescape") if output is not None else None


def borrowed_objects(repository: Repository) -> str:
    """Return what of a checkout's objects lies outside of it, in one clause; "" where nothing does.

    Another folder of objects that the checkout itself holds is its own. Remembered while the folders are unchanged.
    """
    objects = os.path.join(repository.shared, "objects")  # noqa: PTH118
    key = "|".join((objects, repository.top, *(_state(os.path.join(objects, part)) for part in _OBJECT_PARTS)))  # noqa: PTH118
    with _resting_lock:
        known = _borrowed.get(key)
    if known is None:
        homes = tuple(map(os.path.realpath, (repository.top, repository.shared.removesuffix("/.git"))))
        known = _outside(objects, homes, [ALTERNATES_MAX, OBJECT_FILES_MAX])
        with _resting_lock:
            _borrowed[key] = known
    return known


_OBJECT_PARTS = ("", "info", "info/alternates", "pack")


def _state(path: str) -> str:
    try:
        status = os.lstat(path)
    except OSError:
        return ""
    return f"{status.st_mtime_ns}:{status.st_ino}:{status.st_size}"


def _outside(objects: str, homes: tuple[str, ...], left: list[int]) -> str:
    """Return what leads out of `homes` in an object folder and its alternates. left: alternates and files to read."""
    try:
        if link := _link_below(objects, left):
            return f"{link} is a link"
        listed = nofollow.read(Path(objects), "info/alternates", most_bytes=SMALL_BYTES_MAX) or b""
    except OSError as error:
        return f"{objects} cannot be read ({error.strerror})"
    for line in listed.decode("utf-8", "surrogateescape").split("\n"):
        if not line or line.startswith("#"):
            continue
        target = os.path.realpath(os.path.join(objects, line))  # noqa: PTH118
        left[0] -= 1
        if left[0] < 0 or line.startswith('"') or not any(Path(target).is_relative_to(home) for home in homes):
            return f"its info/alternates borrows those of {ascii(target)[1:-1][:200]}"
        if wrong := _outside(target, homes, left):
            return wrong
    return ""


def _link_below(folder: str, left: list[int]) -> str:
    """Return the path of the first link below a folder of objects, "" for none. Raises OSError: it cannot be listed."""
    inner: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            left[1] -= 1
            if left[1] < 0:
                raise OSError(errno.EFBIG, f"more than {OBJECT_FILES_MAX} files")
            if entry.is_symlink():
                return entry.path
            if entry.is_dir(follow_symlinks=False):
                inner.append(entry.path)
    return next(filter(None, (_link_below(path, left) for path in inner)), "")


# --- files of a repository -------------------------------------------------------------------------------------------


def _checked(repository: Repository) -> Repository | None:
    """Return the repository when its folders are this user's and hold what Git keeps there."""
    for folder in (repository.own, repository.shared, os.path.join(repository.shared, "objects")):  # noqa: PTH118
        try:
            status = os.lstat(folder)
        except OSError:
            return None
        if not stat.S_ISDIR(status.st_mode) or (hasattr(os, "geteuid") and status.st_uid != os.geteuid()):
            return None
    return repository if _small(repository.own, "HEAD") else None


def _named_by_file(top: str) -> Repository | None:
    content = _small(top, ".git")
    named = content.removeprefix("gitdir:").strip()
    if named == content:
        return None
    own_dir = os.path.realpath(os.path.join(top, named))  # noqa: PTH118
    back = _small(own_dir, "gitdir")
    if back and os.path.realpath(os.path.join(own_dir, back)) == os.path.join(top, ".git"):  # noqa: PTH118
        worktrees, shared = os.path.dirname(own_dir), os.path.dirname(os.path.dirname(own_dir))  # noqa: PTH120
        return _checked(Repository(top, own_dir, shared)) if os.path.basename(worktrees) == "worktrees" else None  # noqa: PTH119
    for section, key, value in _configured(own_dir):
        if (section, key) == ("core", "worktree") and os.path.realpath(os.path.join(own_dir, value)) == top:  # noqa: PTH118
            return _checked(Repository(top, own_dir, own_dir))
    return None


def _small(folder: str, name: str) -> str:
    """Return a small file's text, "" when it cannot be read."""
    try:
        content = nofollow.read(Path(folder), name, most_bytes=SMALL_BYTES_MAX) or b""
        return content.decode("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _packed(shared: str, ref: str) -> str:
    try:
        content = nofollow.read(Path(shared), "packed-refs", most_bytes=PACKED_REFS_BYTES_MAX) or b""
    except OSError:
        return ""
    before, match, _ = content.partition(f" {ref}\n".encode("utf-8", "surrogatepass"))
    return before.rpartition(b"\n")[2].decode("ascii", "replace") if match else ""


def _configured(folder: str) -> Iterator[tuple[str, str, str]]:
    """Yield (section, key, value) of a configuration's plain lines; a subsection's name is left out."""
    try:
        content = nofollow.read(Path(folder), "config", most_bytes=CONFIG_BYTES_MAX) or b""
    except OSError:
        return
    section = ""
    for line in text_lines(content.decode("utf-8", "replace")):
        text = line.strip()
        if match := _SECTION.match(text):
            section, text = match[1].lower(), text[match.end() :].strip()
        key, _, value = text.partition("=")
        value = value.strip()
        if value.startswith('"'):
            value = value[1:].partition('"')[0].replace("\\\\", "\\")
        else:
            value = re.split(r"[#;]", value, maxsplit=1)[0].strip()
        if key and value and key[0] not in "#;":
            yield section, key.strip().lower(), value


# --- asking for objects ----------------------------------------------------------------------------------------------


@cache
def _program() -> str | None:
    """Return Git's absolute path; a relative part of PATH (a hostile folder may be the current one) is skipped."""
    parts = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return shutil.which("git", path=os.pathsep.join(part for part in parts if os.path.isabs(part)))  # noqa: PTH117


@contextlib.contextmanager
def _empty_repository(is_sha256: bool) -> Iterator[str]:
    """Yield the path of an empty bare repository, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="memory-anchor-git-") as folder:
        path = Path(folder)
        (path / "refs").mkdir()
        (path / "objects").mkdir()
        (path / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
        kind = "1\n\tbare = true\n[extensions]\n\tobjectformat = sha256\n" if is_sha256 else "0\n\tbare = true\n"
        (path / "config").write_text(f"[core]\n\trepositoryformatversion = {kind}", encoding="ascii")
        yield folder


def _bounded(command: list[str], env: dict[str, str], cwd: str, most_bytes: int) -> bytes | None:
    """Return what a program printed; None: it failed or printed more than `most_bytes`. Raises TimeoutError."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, cwd=cwd
    )
    late = threading.Event()

    def stop() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(TIMEOUT_S, stop)
    timer.daemon = True
    with process:
        timer.start()
        try:
            if sys.platform == "linux":
                import resource

                with contextlib.suppress(OSError, ValueError):
                    resource.prlimit(process.pid, resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
            content = process.stdout.read(most_bytes + 1) if process.stdout is not None else b""
            if len(content) > most_bytes:
                process.kill()
            process.wait()
        finally:
            process.kill()
            timer.cancel()
    if late.is_set():
        raise TimeoutError
    return content if process.returncode == 0 and len(content) <= most_bytes else None


# --- files of a project ----------------------------------------------------------------------------------------------

FILE_BYTES_MAX = 4 * 1024 * 1024
RENAMES_FOLLOWED = 5
NEW_PLACES_MAX = 8
"""Places offered for one vanished file, the likeliest first."""
REMEMBERED_S = 60.0
REMEMBERED_MAX = 512
WALKED_MAX = 20_000
FOLDERS_MAX = 5_000
"""Folders visited, and files (`WALKED_MAX`)."""
COMPARED_MAX = 200
"""Files compared with a vanished one, the likeliest by their names first."""
SAME_FILE = 0.5
"""Share of lines in common from which a new file counts as a renamed one, as for Git."""
SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "target", "build", "dist", "vendor"})
_RENAMES = ("--no-ext-diff", "--no-textconv", "--name-status", "--find-renames", "--no-show-signature", "-z")


class WorkingTree:
    """root: absolute path of the project."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._lock = threading.Lock()
        self._moved: TTLCache[str, tuple[tuple[str, bool], ...]] = TTLCache(REMEMBERED_MAX, REMEMBERED_S)

    def stamp(self, ref: str) -> str | None:
        """Return modification time, size and inode of the file; None when it is not a readable file inside."""
        path = self._inside(ref)
        status = nofollow.status(self._root, path) if path is not None else None
        return f"{status.st_mtime_ns}:{status.st_size}:{status.st_ino}" if status is not None else None

    def text(self, ref: str) -> str | None:
        """Return the file's text; None when it is not there, too large or not UTF-8."""
        path = self._inside(ref)
        try:
            content = nofollow.read(self._root, path, most_bytes=FILE_BYTES_MAX) if path is not None else None
            return content.decode("utf-8") if content is not None else None
        except (OSError, UnicodeDecodeError):
            return None

    def elsewhere(self, ref: str) -> tuple[tuple[str, bool], ...]:
        """Return where a vanished file may be now: (path, whether Git says so), the likeliest first.

        At most `NEW_PLACES_MAX`; remembered for `REMEMBERED_S`.
        """
        with self._lock:
            cached = self._moved.get(ref)
        if cached is None:
            cached = self._search(ref) if self._inside(ref) is not None else ()
            with self._lock:
                self._moved[ref] = cached
        return cached

    def _search(self, ref: str) -> tuple[tuple[str, bool], ...]:
        ref = os.path.normpath(ref)
        files = [path.relative_to(self._root).as_posix() for path in islice(_files(self._root), WALKED_MAX)]
        history = _History.of(self._root)
        unknown = sorted(set(files) - history.names, key=lambda path: _unlike(ref, path)) if history else []
        renamed = self._renamed(ref, history, unknown) if history else None
        if renamed is not None:
            return ((renamed, True),)
        name, suffix = PurePosixPath(ref).name, PurePosixPath(ref).suffix
        names = {*files, *(history.names if history else ())} - {ref}
        same_name = sorted(
            (path for path in names if PurePosixPath(path).name == name), key=lambda path: _unlike(ref, path)
        )
        new = sorted(p for p in unknown if PurePosixPath(p).suffix == suffix and p not in {ref, *same_name})
        return tuple((name, False) for name in (*same_name, *new)[:NEW_PLACES_MAX])

    def _renamed(self, ref: str, history: _History, unknown: Sequence[str]) -> str | None:
        """Return the path to which the file was renamed, over several renames; None: it was not."""
        path, seen = ref, {ref}
        for _ in range(RENAMES_FOLLOWED):
            after = self._uncommitted(path, history, unknown) or history.renamed(path)
            if after is None or after in seen:
                return None
            path = after
            seen.add(path)
            if self.stamp(path) is not None:
                return path
        return None

    def _uncommitted(self, ref: str, history: _History, unknown: Sequence[str]) -> str | None:
        """Return the new file that has mostly the lines of the commit's file."""
        old_lines = Counter(text_lines(history.text(ref) or ""))
        if not old_lines:
            return None
        shares: dict[str, float] = {}
        for candidate in unknown[:COMPARED_MAX]:
            lines = Counter(text_lines(self.text(candidate) or ""))
            shares[candidate] = (old_lines & lines).total() / max(old_lines.total(), lines.total(), 1)
        best = max(shares, key=lambda candidate: shares[candidate], default=None)
        return best if best is not None and shares[best] >= SAME_FILE else None

    def _inside(self, ref: str) -> PurePosixPath | None:
        """Return a path below the root, its links resolved; None when it leaves the project or is Git's own."""
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
    """The files of the commit that is checked out. prefix: of the project in its checkout. names: below the project."""

    repository: Repository
    commit: str
    prefix: str
    names: frozenset[str]

    @staticmethod
    def of(root: Path) -> _History | None:
        repository = find_repository(str(root))
        commit = head_commit(repository) if repository is not None else None
        if repository is None or commit is None:
            return None
        prefix = "" if (inside := os.path.relpath(root, repository.top)) == "." else f"{inside}/"
        listing = run_git(repository, "ls-tree", "-r", "-z", "--name-only", "--full-tree", commit)
        if listing is None:
            return None
        names = (name.removeprefix(prefix) for name in listing.split("\0") if name.startswith(prefix) and name)
        return _History(repository, commit, prefix, frozenset(names))

    def text(self, ref: str) -> str | None:
        if ref not in self.names:
            return None
        blob = f"{self.commit}:{self.prefix}{ref}"
        return run_git(self.repository, "cat-file", "blob", blob, most_bytes=FILE_BYTES_MAX)

    def renamed(self, ref: str) -> str | None:
        """Return the new path that the last commit which touched `ref` gave it."""
        # `--full-diff`: the other side of a rename is outside the wanted path
        relative = ("--relative=" + self.prefix,) if self.prefix else ()
        path = f":(literal,top){self.prefix}{ref}"
        arguments = ("log", "-1", "--format=", "--full-diff", *_RENAMES, *relative, self.commit, "--", path)
        parts = iter((run_git(self.repository, *arguments) or "").split("\0"))
        for status in map(str.strip, parts):  # of a rename `R100`, old, new; of a copy `C100`; else a letter and a path
            if status.startswith(("R", "C")):
                old, new = next(parts, ""), next(parts, "")
                if status.startswith("R") and old == ref:
                    return new
            elif status:
                next(parts, "")
        return None


def _unlike(first: str, second: str) -> tuple[bool, bool, int, int, str]:
    """Return the sort key by which a path is likely to be the other one: name, suffix, folders in common."""
    this, that = PurePosixPath(first), PurePosixPath(second)
    pairs = zip(this.parent.parts, that.parent.parts, strict=False)
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    return this.name != that.name, this.suffix != that.suffix, -shared, len(second), second


def _files(root: Path) -> Iterator[Path]:
    for folder, inside, names in islice(os.walk(root), FOLDERS_MAX):
        inside[:] = sorted(name for name in inside if name not in SKIPPED and not name.startswith("."))
        yield from (Path(folder) / name for name in names)
