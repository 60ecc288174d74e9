"""Sources followed as they change, by file system notifications (watchfiles).

One thread, which exists only while a source can be watched, sleeps until a folder of a source, or the Git folder of a
checkout, changes; then that source is queued, as `sync` would. Changes that come together are one scan, and a source
rests after a scan for ten times as long as that took. Of a checkout only HEAD counts, since documents are read from it,
and the `.memoryignore` of the work tree: `git status` rewrites the index and queues nothing.

On Linux folders are watched one by one and no link is followed, so a cycle of links does no harm, their number has a
bound, and nothing of `node_modules` is watched. macOS and Windows watch whole trees; there the same folders are
filtered out of the notifications. Roots are checked every ten seconds, because the system sends no notification when a
folder above was renamed, or when a folder that was gone is back.

Periodic scans (after searches, and the job `look_at_sources`) go on as well, so what is not watched, or not notified,
is read later: watchfiles is missing, too many folders, the system's own limit, a folder that is gone.
`polled_sources` says why, and so does `doctor`. Files of `.ai/operations/` are not watched: each search reads them.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Protocol

from memory_anchor.adapters import git
from memory_anchor.errors import MemoryAnchorError
from memory_anchor.files import write_atomic
from memory_anchor.knowledge.library import SCANNED_KINDS
from memory_anchor.knowledge.sources import DEPTH_MAX, IGNORE_FILE, SKIPPED_FOLDERS, Source, SourceKind

if TYPE_CHECKING:
    from memory_anchor.knowledge.library import Library

log = logging.getLogger("memory_anchor")
FOLDERS_MAX = 4_096
"""Of all sources together: adding one blocks other Python threads for 12 us, so 50 ms for all."""
SYSTEM_SHARE = 4
"""We take at most this fraction of the watches that the system allows a user; editors need theirs."""
SYSTEM_LIMIT = Path("/proc/sys/fs/inotify/max_user_watches")
STEP_MS = 300
"""How often the thread polls for notifications: three times a second, some 50 us each."""
GATHER_MS = 5_000
"""Changes are one scan once none came for `STEP_MS`; the first of them waits for at most so long."""
REST_SHARE = 10
"""A source is scanned again, and folders are listed again, only after ten times the duration of the last time."""
REST_MAX_S = 900.0
READING_WAIT_S = 1.0
"""A source that is being read is queued later: queued now, it would be dropped when that reading ends."""
ROOTS_S = 10.0
RETRY_S = 900.0
VANISHED_MAX, VANISHED_S = 3, 1.0
"""Tries, and the pause between them, to watch folders of which one went away meanwhile."""
POLL_MS = 60_000
"""Where the system has no notifications at all, watchfiles polls each folder at this interval."""
STOP_WAIT_S = 2.0
FILE = "watched.json"
MISSING = "watchfiles is not installed; `pip install watchfiles` and a new start of the engine follow it at once"
TREES = sys.platform in ("darwin", "win32")
"""Whether the system watches whole trees."""


Changes = set[tuple[int, str]] | str
"""(kind, path) of each change; a word when watching was stopped or timed out."""


class FolderWatch(Protocol):
    """Folders that are watched."""

    def watch(self, debounce_ms: int, step_ms: int, timeout_ms: int, stop_event: threading.Event) -> Changes: ...

    def close(self) -> None: ...


StartWatch = Callable[[Sequence[str]], FolderWatch]


def load_watchfiles() -> StartWatch | None:
    """Return a function that watches folders, None where watchfiles is not installed."""
    try:
        rust_notify = importlib.import_module("watchfiles._rust_notify").RustNotify
    except (ImportError, AttributeError):
        return None
    # Not with ignore_permission_denied: 1.3.0 then reports no error at all, the system's limit included.
    return lambda folders: rust_notify(list(folders), False, False, POLL_MS, TREES, False)


@dataclass(slots=True)
class _Plan:
    """folders, files: path -> the sources that a change in it, or of it, concerns. polled: source -> why.

    roots: source -> device and inode of its root; any other value counts as a change.
    """

    watched: list[str] = field(default_factory=list)
    folders: dict[str, set[str]] = field(default_factory=dict)
    files: dict[str, set[str]] = field(default_factory=dict)
    polled: dict[str, str] = field(default_factory=dict)
    roots: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()

    def concerned(self, paths: Iterable[str]) -> set[str]:
        """Return the sources that changes at these paths concern."""
        concerned: set[str] = set()
        parents: set[str] = set()
        for path in paths:
            concerned |= self.files.get(path, set()) | self.folders.get(path, set())
            parent, name = os.path.split(path)
            if name not in SKIPPED_FOLDERS:
                parents.add(parent)
        for changed in map(PurePath, parents):
            for folder in (changed, *changed.parents):
                concerned |= self.folders.get(str(folder), set())
                if folder.name in SKIPPED_FOLDERS:  # it may be a source itself, but is no part of one above it
                    break
        return concerned


class SourceWatcher:
    """Queues sources as they change. Thread-safe. load: see `load_watchfiles`."""

    def __init__(
        self,
        library: Library,
        load: Callable[[], StartWatch | None] = load_watchfiles,
        *,
        monotonic: Callable[[], float],
        trees: bool = TREES,
    ) -> None:
        self._library, self._load, self._monotonic, self._trees = library, load, monotonic, trees
        self._lock = threading.Lock()
        self._ending, self._sources_changed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._may_begin = False
        self._states: dict[str, str | None] = {}
        """Source -> the state of its checkout when it was queued; see `_state`."""
        self._due: dict[str, float] = {}
        """Source -> when it is to be queued."""
        self._queued_at: dict[str, float] = {}

    def start(self) -> None:
        """Watch from now on, as soon as there is a source."""
        self._may_begin = True
        self.renew()

    def renew(self) -> None:
        """Watch anew: sources came or went."""
        with self._lock:
            self._sources_changed.set()
            begins = self._may_begin and not self._ending.is_set() and self._library.is_used
            if not begins or self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="watch", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the system has no thread left; periodic scans go on
                log.warning("sources are not watched: %s", error)
            else:
                self._thread = thread

    def end(self) -> None:
        """End the thread and wait for it."""
        with self._lock:
            self._ending.set()
            self._sources_changed.set()
            thread = self._thread
        if thread is not None:
            thread.join(timeout=STOP_WAIT_S)

    def is_watching(self) -> bool:
        with self._lock:
            return self._thread is not None

    def _run(self) -> None:
        vanished = 0
        while True:
            self._sources_changed.clear()
            if self._ending.is_set():
                return
            rests_s: float | None = RETRY_S
            try:
                rests_s = self._watch()
                vanished = 0
            except (FileNotFoundError, PermissionError) as error:
                vanished += 1
                if vanished % VANISHED_MAX:
                    rests_s = VANISHED_S
                else:
                    self._note({"*": _why(error)})
            except (OSError, MemoryAnchorError, RuntimeError) as error:
                log.warning("sources are not watched: %s", error)
                self._note({"*": _why(error)})
            except Exception as error:  # from another version of watchfiles: log it, keep the thread
                log.exception("sources are not watched")
                self._note({"*": f"watchfiles failed ({type(error).__name__})"})
            if rests_s is not None:
                self._sources_changed.wait(rests_s)
                continue
            with self._lock:
                if not self._sources_changed.is_set():
                    self._thread = None
                    return

    def _watch(self) -> float | None:
        """Queue what changes until other folders are to be watched; return how long to rest, None: nothing to watch."""
        began = self._monotonic()
        start_watch = self._load()
        plan = self._plan()
        if not plan.sources:
            self._note({})
            return None
        if start_watch is None:
            self._note(dict.fromkeys(plan.roots, MISSING))
            return None
        watch = start_watch(plan.watched) if plan.watched else None
        try:
            self._note(plan.polled)
            listing_s = self._monotonic() - began
            while not self._sources_changed.is_set():
                self._queue(plan.sources)
                now = self._monotonic()
                wait_s = min([ROOTS_S, *(at - now for at in self._due.values())])
                changes: Changes = "none"
                if watch is None:
                    self._sources_changed.wait(max(0.001, wait_s))
                else:
                    wait_ms = max(1, int(1000 * wait_s))
                    changes = watch.watch(GATHER_MS, STEP_MS, wait_ms, self._sources_changed)
                if self._sources_changed.is_set():
                    break
                if isinstance(changes, str):
                    changed = {source.id for source in plan.sources if _root(source) != plan.roots[source.id]}
                    must_relist = bool(changed)
                else:
                    paths = {path for _, path in changes}
                    changed = plan.concerned(paths)
                    must_relist = any(self._must_relist(plan, path) for path in paths)
                for name in changed:
                    self._due.setdefault(name, self._queued_at.get(name, -REST_MAX_S) + self._rest_s(name))
                if must_relist:  # queued once new folders are watched: changes in them before that are not notified
                    return min(REST_MAX_S, REST_SHARE * listing_s)
        finally:
            if watch is not None:
                watch.close()
        return 0.0

    def _must_relist(self, plan: _Plan, path: str) -> bool:
        """Return whether folders have to be listed anew for this path."""
        if path in plan.folders:
            return not self._trees or not Path(path).is_dir()
        parent, name = os.path.split(path)
        return not self._trees and parent in plan.folders and name not in SKIPPED_FOLDERS and Path(path).is_dir()

    def _rest_s(self, name: str) -> float:
        return min(REST_MAX_S, REST_SHARE * self._library.scan_seconds.get(name, 0.0))

    def _queue(self, sources: Iterable[Source]) -> None:
        """Queue what is due; a checkout only if its HEAD or `.memoryignore` changed."""
        now = self._monotonic()
        for source in sources:
            if self._due.get(source.id, now + 1) > now:
                continue
            if self._library.is_reading(source.id):
                self._due[source.id] = now + READING_WAIT_S
                continue
            state = _state(source) if source.kind is not SourceKind.FILES else None
            if state is None or state != self._states.get(source.id):
                self._library.sync(source)
                self._queued_at[source.id] = now
                self._states[source.id] = state
            del self._due[source.id]

    def _plan(self) -> _Plan:
        """Return what to watch; sources that cannot be watched are in `polled`."""
        plan = _Plan()
        most = self._most()
        plan.sources = tuple(source for source in self._library.catalogue.sources() if source.kind in SCANNED_KINDS)
        plan.roots = {source.id: _root(source) for source in plan.sources}
        for by_source in (self._states, self._due, self._queued_at):
            for name in by_source.keys() - plan.roots.keys():
                del by_source[name]
        watched: dict[str, None] = {}
        for source in plan.sources:
            if self._ending.is_set():
                break
            ref = os.path.realpath(source.ref)
            is_file = source.kind is SourceKind.FILES and Path(ref).is_file()
            if is_file:
                folders = [ref if self._trees else str(Path(ref).parent)]
            elif source.kind is SourceKind.FILES:
                folders = list(self._below(ref, most))
            else:
                folders = list(self._of_git(source))
            if not folders:
                is_there = Path(ref).is_dir() and source.kind is not SourceKind.FILES
                plan.polled[source.id] = f"{source.ref} is {'no Git checkout' if is_there else 'not there'} now"
            elif len(watched.keys() | set(folders)) > most:
                plan.polled[source.id] = f"{source.ref} has too many folders: {most} are watched in all"
            else:
                watched.update(dict.fromkeys(folders))
                for path in [ref] if is_file else folders:
                    (plan.files if is_file else plan.folders).setdefault(path, set()).add(source.id)
                if source.kind is SourceKind.REPO_DOCS and (path_to_watch := self._ignore_path(ref)):
                    watched[path_to_watch] = None
                    plan.files.setdefault(os.path.join(ref, IGNORE_FILE), set()).add(source.id)  # noqa: PTH118
        plan.watched = sorted(watched)
        return plan

    @staticmethod
    def _most() -> int:
        try:
            allowed = int(SYSTEM_LIMIT.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return FOLDERS_MAX
        return min(FOLDERS_MAX, allowed // SYSTEM_SHARE)

    def _below(self, root: str, most: int) -> Iterator[str]:
        """Yield a folder and, where they are watched one by one, those below it. No link is followed."""
        waiting = [(root, 0)] if Path(root).is_dir() else []
        count = 0
        while waiting and count <= most and not self._ending.is_set():
            folder, depth = waiting.pop()
            inner: list[str] = []
            try:
                with os.scandir(folder) as entries:
                    if not self._trees and depth < DEPTH_MAX:
                        inner = [entry.path for entry in entries if _is_followed(entry)]
            except OSError:  # it may not be read, so it cannot be watched
                continue
            yield folder
            count += 1
            waiting += [(path, depth + 1) for path in inner]

    def _of_git(self, source: Source) -> Iterator[str]:
        """Yield the folders in which a checkout's HEAD moves."""
        repository = git.find_repository(os.path.realpath(source.ref))
        if repository is None:
            return
        self._states.setdefault(source.id, _state(source))
        yield repository.own
        if repository.shared != repository.own:
            yield repository.shared
        if not self._trees:
            yield from self._below(str(Path(repository.shared, "refs", "heads")), FOLDERS_MAX)

    def _ignore_path(self, root: str) -> str:
        """Return the path to watch for edits of `.memoryignore`: its folder, or the file itself where folders are
        watched with all below them; "" where there is none."""
        file = Path(root, IGNORE_FILE)
        return root if not self._trees else str(file) if file.is_file() else ""

    def _note(self, polled: dict[str, str]) -> None:
        """Write a file of what is only polled, for `doctor`; nothing where there never was a source."""
        if self._library.is_used and not self._ending.is_set():
            with contextlib.suppress(OSError, MemoryAnchorError):
                content = json.dumps({"polled": polled}, ensure_ascii=False).encode(errors="replace")
                write_atomic(self._library.catalogue.folder / FILE, content, durable=False)


def _is_followed(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder to watch: no link, and with a name in UTF-8, as watchfiles requires."""
    try:
        entry.name.encode()
    except UnicodeEncodeError:
        return False
    return entry.name not in SKIPPED_FOLDERS and entry.is_dir(follow_symlinks=False)


def _why(error: Exception) -> str:
    message = str(error)
    if any(sign in message for sign in ("watch limit", "os error 28", "os error 24", "Too many open files")):
        return f"the system watches no more folders ({message[:120]}); raise fs.inotify.max_user_watches or _instances"
    return message[:200]


def _root(source: Source) -> tuple[int, int] | None:
    """Return device and inode of a source's folder, or of a checkout's Git folder."""
    path: str | None = source.ref
    if source.kind is not SourceKind.FILES:
        repository = git.find_repository(os.path.realpath(source.ref))
        path = repository.own if repository is not None else None
    try:
        status = os.stat(path) if path is not None else None  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if status is not None else None


def _state(source: Source) -> str | None:
    """Return the state that decides which documents a checkout has: HEAD and `.memoryignore`; None without a HEAD."""
    repository = git.find_repository(os.path.realpath(source.ref))
    head = git.head_commit(repository) if repository is not None else None
    if head is None or source.kind is not SourceKind.REPO_DOCS:
        return head
    try:
        status = Path(os.path.realpath(source.ref), IGNORE_FILE).lstat()
    except (OSError, ValueError):
        return head
    return f"{head}:{status.st_mtime_ns}:{status.st_size}:{status.st_ino}"


def polled_sources(data_dir: Path) -> dict[str, str]:
    """Return source -> why it is not watched ("*": none is), from the engine's last note."""
    try:
        polled = json.loads((data_dir / "knowledge" / FILE).read_text(encoding="utf-8"))["polled"]
        return {str(name): str(why) for name, why in polled.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
