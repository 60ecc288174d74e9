"""Sources are followed as they change, within bounds, and scanned periodically where they cannot be."""

from __future__ import annotations

import importlib.util
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from memory_anchor.core import Core
from memory_anchor.front.doctor import diagnose
from memory_anchor.knowledge import watching
from memory_anchor.knowledge.watching import SourceWatcher, polled_sources
from memory_anchor.memory import MemoryAnchor
from memory_anchor.testing import ManualClock
from tests.unit.knowledgekit import commit, git, read_all

WAIT_S = 20.0
STEP_MS, SETTLE_S = 60, 0.3
"""How often notifications are read here, and after how long one has surely been handled."""
BURST_MS = 300
"""A pause between two of ten thousand writes must not end their burst."""


class Scripted:
    """The system's notifications, sent by the test."""

    def __init__(self) -> None:
        self.folders: list[list[str]] = []
        self.changes: queue.Queue[set[tuple[int, str]]] = queue.Queue()
        self.error: Exception | None = None
        self.open = 0

    def __call__(self, folders: Sequence[str]) -> Scripted:
        if self.error is not None:
            raise self.error
        self.folders.append(list(folders))
        self.open += 1
        return self

    def watch(self, debounce_ms: int, step_ms: int, timeout_ms: int, stop_event: Any) -> Any:
        ends = time.monotonic() + timeout_ms / 1000
        while not stop_event.is_set():
            try:
                return self.changes.get(timeout=0.01)
            except queue.Empty:
                if time.monotonic() > ends:
                    return "timeout"
        return "stop"

    def close(self) -> None:
        self.open -= 1

    def notify(self, path: Path) -> None:
        self.changes.put({(2, str(path))})


def until(is_so: Callable[[], Any]) -> None:
    ends = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < ends, "it never came"
        time.sleep(0.01)


@pytest.fixture
def docs(project: Path) -> Path:
    folder = project / "docs"
    (folder / "inner").mkdir(parents=True)
    (folder / "node_modules" / "big").mkdir(parents=True)
    (folder / "inner" / "ring").symlink_to(folder)
    (folder / "guide.md").write_text("# Guide\nOld words.\n", encoding="utf-8")
    return folder


@pytest.fixture
def system() -> Scripted:
    return Scripted()


@pytest.fixture
def watcher(core: Core, system: Scripted) -> Iterator[SourceWatcher]:
    made = SourceWatcher(core.knowledge, lambda: system, monotonic=time.monotonic, trees=False)
    core.watcher = made
    yield made
    made.end()


class Watched(NamedTuple):
    """A folder of documents, the memory, and a watcher that gets the notifications of a script."""

    docs: Path
    core: Core
    anchor: MemoryAnchor
    system: Scripted
    watcher: SourceWatcher


@pytest.fixture
def watched(docs: Path, core: Core, anchor: MemoryAnchor, system: Scripted, watcher: SourceWatcher) -> Watched:
    return Watched(docs, core, anchor, system, watcher)


@pytest.fixture
def following(core: Core, monkeypatch: pytest.MonkeyPatch) -> Iterator[SourceWatcher]:
    """The real one with the system's notifications, read five times as often."""
    pytest.importorskip("watchfiles")
    monkeypatch.setattr(watching, "STEP_MS", STEP_MS)
    core.watcher = SourceWatcher(core.knowledge, monotonic=time.monotonic)
    yield core.watcher
    core.watcher.end()


def begin(watcher: SourceWatcher, anchor: MemoryAnchor, folder: Path, kind: str = "files") -> None:
    """Add a source, read it, and watch its folders by the system's own notifications."""
    anchor.knowledge_add(str(folder), kind)
    read_all(anchor)
    watcher.start()
    until((anchor.services.data_dir / "knowledge" / watching.FILE).exists)  # written before it watches


def follow(watcher: SourceWatcher, system: Scripted, anchor: MemoryAnchor, *sources: tuple[Path, str]) -> list[str]:
    """Add sources, read them, and watch their folders; return their ids."""
    ids = [anchor.knowledge_add(str(folder), kind).id for folder, kind in sources]
    read_all(anchor)
    watcher.start()
    until(lambda: system.folders)
    return ids


def waiting(core: Core) -> int:
    return core.knowledge.catalogue.count_waiting()


def test_a_change_queues_its_source_and_no_other(watched: Watched) -> None:
    """Rule Knowledge.watch: folders one by one, no link followed, nothing of node_modules; a new folder is watched."""
    docs, core, anchor, system, watcher = watched
    other = docs.parent / "other"
    other.mkdir()
    changed, _ = follow(watcher, system, anchor, (docs, "files"), (other, "files"))
    assert system.folders[0] == sorted(map(str, (docs, docs / "inner", other)))

    (docs / "guide.md").write_text("# Guide\nNew words, more of them.\n", encoding="utf-8")
    system.notify(docs / "guide.md")
    until(lambda: waiting(core))

    assert [state.source.id for state in anchor.knowledge_sources() if state.waiting] == [changed]
    read_all(anchor)
    assert "New words" in anchor.knowledge_search("new words")[0].text
    (docs / "later").mkdir()
    system.notify(docs / "later")
    until(lambda: str(docs / "later") in system.folders[-1])
    until(lambda: waiting(core))
    assert system.open == 1


def test_of_a_checkout_only_its_head_counts(
    project: Path, core: Core, anchor: MemoryAnchor, system: Scripted, watcher: SourceWatcher
) -> None:
    """Rule Knowledge.watch: documents of a checkout are read as HEAD has them; the index is rewritten all the time."""
    git(project, "init", "-q", "-b", "main")
    commit(project, "One", guide__md="# Guide\nOld words.\n")
    ids = follow(watcher, system, anchor, (project, "repo_docs"), (project, "git_history"))
    heads = project / ".git" / "refs" / "heads"
    assert {str(project / ".git"), str(heads), str(project)} == set(system.folders[0])

    system.notify(project / ".git" / "index")
    until(system.changes.empty)
    assert waiting(core) == 0
    commit(project, "Two", guide__md="# Guide\nNew words.\n")
    assert waiting(core) == 0
    system.notify(heads / "main")
    until(lambda: waiting(core) == 2)
    assert {state.source.id for state in anchor.knowledge_sources() if state.waiting} == set(ids)


@pytest.mark.parametrize("trees", [False, True])
def test_an_edit_of_what_a_checkout_ignores_is_followed_and_nothing_beside_it(
    project: Path, core: Core, anchor: MemoryAnchor, system: Scripted, *, trees: bool
) -> None:
    """Rule Knowledge.watch: `.memoryignore` counts as it lies there, so its edit alone has the checkout looked at."""
    git(project, "init", "-q", "-b", "main")
    commit(project, "One", guide__md="# Guide\nOld words.\n", __memoryignore="drafts/\n")
    core.watcher = SourceWatcher(core.knowledge, lambda: system, monotonic=time.monotonic, trees=trees)
    docs, _ = follow(core.watcher, system, anchor, (project, "repo_docs"), (project, "git_history"))
    ignoring = project / ".memoryignore"
    assert str(ignoring if trees else project) in system.folders[0]

    (project / "build").mkdir()
    for beside in (project / "build", project / "guide.md", ignoring):  # the last one told of, and not another one
        system.notify(beside)
        until(system.changes.empty)
    time.sleep(SETTLE_S)
    assert waiting(core) == 0
    ignoring.write_text("guide.md\n", encoding="utf-8")
    system.notify(ignoring)
    until(lambda: waiting(core))
    assert {state.source.id for state in anchor.knowledge_sources() if state.waiting} == {docs}
    read_all(anchor)
    assert anchor.knowledge_search("old words") == []
    core.watcher.end()
    assert len(system.folders) == 1


def test_a_single_file_is_followed_and_not_what_lies_beside_it(watched: Watched) -> None:
    """Rule Knowledge.watch: editors replace a file, so its folder is watched; others in it are none of its."""
    docs, core, anchor, system, watcher = watched
    follow(watcher, system, anchor, (docs / "guide.md", "files"))
    assert system.folders[0] == [str(docs)]

    system.notify(docs / "other.md")
    until(system.changes.empty)
    system.notify(docs / "inner" / "guide.md")
    until(system.changes.empty)
    assert waiting(core) == 0
    system.notify(docs / "guide.md")
    until(lambda: waiting(core))


def test_where_the_system_watches_trees_they_are_named_and_the_rest_is_left_out(
    docs: Path, core: Core, anchor: MemoryAnchor, system: Scripted
) -> None:
    """Rule Knowledge.watch: macOS and Windows watch below a folder by themselves, node_modules too."""
    core.watcher = SourceWatcher(core.knowledge, lambda: system, monotonic=time.monotonic, trees=True)
    follow(core.watcher, system, anchor, (docs, "files"))
    assert system.folders == [[str(docs)]]

    system.notify(docs / "node_modules" / "big" / "README.md")
    until(system.changes.empty)
    (docs / "new").mkdir()
    system.notify(docs / "new" / "deep" / "guide.md")
    until(lambda: waiting(core))
    core.watcher.end()
    assert len(system.folders) == 1


def test_a_change_that_comes_while_its_source_is_read_is_queued_after(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule Knowledge.watch: what is queued while it is read would be done with that reading, and the change lost."""
    docs, core, anchor, system, watcher = watched
    source = anchor.knowledge_add(str(docs), "files")
    for number in range(100):  # more than one batch
        (docs / f"{number}.md").write_text(f"# Page {number}\nWords.\n", encoding="utf-8")
    monkeypatch.setattr(watching, "READING_WAIT_S", 0.02)
    core.knowledge.step(lambda: False)
    assert core.knowledge.is_reading(source.id)
    watcher.start()
    until(lambda: system.folders)

    (docs / "0.md").write_text("# Page 0\nSomething about walruses.\n", encoding="utf-8")
    system.notify(docs / "0.md")
    until(lambda: watcher._due)
    while core.knowledge.is_reading(source.id):
        core.knowledge.step(lambda: False)
    until(lambda: waiting(core))
    read_all(anchor)
    assert "walruses" in anchor.knowledge_search("walruses")[0].text


def test_a_source_rests_for_ten_times_as_long_as_its_look_took(watched: Watched) -> None:
    """Rule Knowledge.watch: a folder that changes all the time takes a tenth of one core at most."""
    docs, core, anchor, system, watcher = watched
    (source,) = follow(watcher, system, anchor, (docs, "files"))
    system.notify(docs / "guide.md")
    until(lambda: waiting(core))
    read_all(anchor)

    core.knowledge.scan_seconds[source] = 60.0
    system.notify(docs / "guide.md")
    until(lambda: watcher._due)
    assert waiting(core) == 0
    assert 500 < watcher._due[source] - time.monotonic() <= 600


def test_what_cannot_be_watched_is_named_and_followed_again_when_it_is_back(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule Knowledge.watch: too many folders, and a folder that went away, are polled; `doctor` says why."""
    docs, core, anchor, system, watcher = watched
    monkeypatch.setattr(watching, "FOLDERS_MAX", 2)
    monkeypatch.setattr(watching, "ROOTS_S", 0.05)
    large, gone = docs.parent / "large", docs.parent / "gone"
    for number in range(4):
        (large / str(number)).mkdir(parents=True)
    gone.mkdir()
    ids = [anchor.knowledge_add(str(folder), "files").id for folder in (docs, large, gone)]
    read_all(anchor)
    gone.rmdir()

    watcher.start()
    until(lambda: system.folders)

    assert system.folders[-1] == sorted(map(str, (docs, docs / "inner")))
    until(lambda: len(polled_sources(core.data_dir)) == 2)
    polled = polled_sources(core.data_dir)
    assert "too many folders" in polled[ids[1]]
    assert "is not there now" in polled[ids[2]]
    checks = [check for check in diagnose({}, core.data_dir, audit=False) if check.name == "knowledge"]
    assert {check.state for check in checks} == {"ok"}
    assert all(any(name in check.told for check in checks) for name in ids[1:])

    monkeypatch.setattr(watching, "FOLDERS_MAX", 3)
    gone.mkdir()
    until(lambda: str(gone) in system.folders[-1])
    until(lambda: [state.source.id for state in anchor.knowledge_sources() if state.waiting] == [ids[2]])
    read_all(anchor)
    before = len(system.folders)
    gone.rename(docs.parent / "away")
    gone.mkdir()
    until(lambda: len(system.folders) > before)
    until(lambda: waiting(core))


@pytest.mark.parametrize("error", [OSError("OS file watch limit reached"), RuntimeError("os error 24"), KeyError("x")])
def test_where_the_system_watches_no_more_sources_are_polled(watched: Watched, error: Exception) -> None:
    """Rule Knowledge.watch: the system's limit is a sentence and no failure, and it is tried again."""
    docs, core, anchor, system, watcher = watched
    anchor.knowledge_add(str(docs), "files")
    system.error = error
    watcher.start()

    until(lambda: polled_sources(core.data_dir))
    assert list(polled_sources(core.data_dir)) == ["*"]
    system.error = None
    anchor.knowledge_add(str(docs / "inner"), "files")
    until(lambda: system.folders)
    until(lambda: polled_sources(core.data_dir) == {})


def test_a_folder_that_goes_away_while_it_is_named_is_no_failure(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule Knowledge.watch: the folders are looked for again a second later."""
    docs, core, anchor, system, watcher = watched
    anchor.knowledge_add(str(docs), "files")
    tries: list[int] = []

    def load() -> Scripted:
        tries.append(1)
        system.error = FileNotFoundError("gone") if len(tries) == 1 else None
        return system

    watcher._load = load
    monkeypatch.setattr(watching, "VANISHED_S", 0.01)
    watcher.start()
    until(lambda: system.folders)
    assert len(tries) == 2
    until((core.data_dir / "knowledge" / watching.FILE).exists)
    assert polled_sources(core.data_dir) == {}


def test_the_system_refuses_aloud(docs: Path) -> None:
    """Rule Knowledge.watch: what cannot be watched raises; watchfiles can be asked to keep silent over it."""
    pytest.importorskip("watchfiles")
    made = watching.load_watchfiles()
    assert made is not None
    with pytest.raises(OSError):
        made([str(docs / "nowhere")])


def test_without_watchfiles_sources_are_looked_at_as_ever(
    docs: Path, core: Core, anchor: MemoryAnchor, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule Knowledge.watch: a missing package is a sentence; no thread is left, and a search has sources looked at."""
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    monkeypatch.setitem(sys.modules, "watchfiles._rust_notify", None)
    assert watching.load_watchfiles() is None
    source = anchor.knowledge_add(str(docs), "files")
    read_all(anchor)
    core.watcher.start()
    until(lambda: not core.watcher.is_watching())
    assert "pip install watchfiles" in polled_sources(core.data_dir)[source.id]

    (docs / "guide.md").write_text("# Guide\nA word about walruses.\n", encoding="utf-8")
    clock.advance(minutes=1)
    anchor.knowledge_search("guide")
    assert waiting(core) == 0
    core.knowledge.work_a_little(lambda: None)
    read_all(anchor)
    assert "walruses" in anchor.knowledge_search("walruses")[0].text


def test_a_thread_is_there_only_while_something_is_watched(watched: Watched) -> None:
    """Rule Knowledge.watch: none before the engine has settled, none without a source, none once it has ended."""
    docs, core, anchor, system, watcher = watched
    anchor.knowledge_push("note.md", b"# Note\nWords.\n")
    assert not watcher.is_watching()
    watcher.start()
    until(lambda: not watcher.is_watching())
    assert system.folders == []

    source = anchor.knowledge_add(str(docs), "files")
    until(lambda: system.folders)
    assert watcher.is_watching()
    core.knowledge.remove(source, by="human")
    until(lambda: not watcher.is_watching())
    assert system.open == 0

    anchor.knowledge_add(str(docs), "files")
    until(lambda: len(system.folders) == 2)
    watcher.end()
    assert system.open == 0
    assert "watch" not in [thread.name for thread in threading.enumerate()]
    anchor.knowledge_add(str(docs / "inner"), "files")
    assert "watch" not in [thread.name for thread in threading.enumerate()]


def test_who_uses_no_knowledge_has_nothing_watched(core: Core, system: Scripted, watcher: SourceWatcher) -> None:
    """Rule Knowledge.watch: no file is made, no thread is begun and nothing asked."""
    watcher.start()
    assert not watcher.is_watching()
    watcher.end()

    assert system.folders == []
    assert not (core.data_dir / "knowledge").exists()


def test_watching_begins_once_the_engine_has_settled(docs: Path, core: Core, anchor: MemoryAnchor) -> None:
    """Rule Knowledge.watch: what a search needs is in memory first; `close` ends the thread."""
    pytest.importorskip("watchfiles")
    anchor.knowledge_add(str(docs), "files")
    settled: list[bool] = []
    core.start(settled=lambda: settled.append(core.watcher.is_watching()))
    until(core.watcher.is_watching)
    assert settled == [False]
    core.close()
    assert not {"watch", "embed"} & {thread.name for thread in threading.enumerate()}


def test_the_system_itself_tells_of_a_change_and_of_nothing_else(
    docs: Path, core: Core, anchor: MemoryAnchor, following: SourceWatcher
) -> None:
    """Rule Knowledge.watch: a file that changed is queued by itself; reading it is no change."""
    begin(following, anchor, docs)
    changed = iter(range(1_000_000))
    until(lambda: (docs / "guide.md").write_text(f"# Guide\n{next(changed)}\n") and waiting(core))
    until(lambda: not following._due)

    def is_quiet() -> bool:
        """Read the last changes, and return whether that reading notifies nothing."""
        read_all(anchor)
        time.sleep(SETTLE_S)
        return not waiting(core)

    until(is_quiet)


def test_the_system_itself_tells_of_an_edited_ignore_file(
    project: Path, core: Core, anchor: MemoryAnchor, following: SourceWatcher
) -> None:
    """Rule Knowledge.watch: a `.memoryignore` that is made or deleted is known without a look by the clock."""
    git(project, "init", "-q", "-b", "main")
    commit(project, "One", guide__md="# Guide\nOld words.\n")
    begin(following, anchor, project, "repo_docs")
    ignoring = project / ".memoryignore"
    for change, stays in ((lambda: ignoring.write_text("guide.md\n"), False), (ignoring.unlink, True)):
        change()
        until(lambda: waiting(core))
        read_all(anchor)
        assert bool(anchor.knowledge_search("old words")) is stays


def test_a_root_that_is_deleted_and_made_again_is_followed(
    docs: Path, core: Core, anchor: MemoryAnchor, following: SourceWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule Knowledge.watch: what came into a new folder before it was watched is read as well."""
    monkeypatch.setattr(watching, "ROOTS_S", 0.1)
    root = docs.parent / "notes"
    root.mkdir()
    begin(following, anchor, root)
    for number in range(3):
        root.rmdir()
        time.sleep(0.2 * number)
        root.mkdir()
        (root / "a.md").write_text(f"# Guide\nWords of round {number}.\n", encoding="utf-8")
        until(lambda: waiting(core))
        read_all(anchor)
        until(lambda number=number: f"round {number}" in found(anchor, core))
        (root / "a.md").unlink()


def found(anchor: MemoryAnchor, core: Core) -> str:
    if waiting(core):
        read_all(anchor)
    return " ".join(passage.text for passage in anchor.knowledge_search("words of a round"))


def test_ten_thousand_changes_are_one_look(
    docs: Path, core: Core, anchor: MemoryAnchor, following: SourceWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule Knowledge.watch: a burst is one sync, and threads and open files are as before at the end."""
    monkeypatch.setattr(watching, "STEP_MS", BURST_MS)
    names = [str(docs / f"{number}.bin") for number in range(10_000)]
    for name in names:
        Path(name).touch()
    anchor.knowledge_add(str(docs), "files")
    read_all(anchor)
    threads, handles = threading.active_count(), open_files()
    synced: list[str] = []
    sync = core.knowledge.sync
    monkeypatch.setattr(core.knowledge, "sync", lambda source: (synced.append(source.id), sync(source)))
    following.start()
    until((core.data_dir / "knowledge" / watching.FILE).exists)
    for name in names:
        with open(name, "wb") as file:  # noqa: PTH123
            file.write(b"x")
    until(lambda: synced)
    time.sleep(2 * BURST_MS / 1000)
    assert len(synced) == 1
    following.end()
    until(lambda: threading.active_count() <= threads and open_files() <= handles)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_the_module_is_read_on_every_system(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule Knowledge.watch: nothing of one system is needed to import it, nor its package."""
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    monkeypatch.setattr(sys, "platform", platform)
    spec = importlib.util.find_spec("memory_anchor.knowledge.watching")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    assert (platform != "linux") == module.TREES
    monkeypatch.setattr(module, "SYSTEM_LIMIT", Path("/proc/none"))
    assert module.SourceWatcher._most() == module.FOLDERS_MAX
