"""`doctor --salvage` on real damage: what can be read is back and found again, what cannot is named."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from disk import holding
from figures import one_in
from typer.testing import CliRunner, Result

from memory_anchor.admin import backup, purge
from memory_anchor.domain.errors import NotFound
from memory_anchor.domain.model import Actor, Caller, Scope, Status
from memory_anchor.front.cli.app import app
from memory_anchor.process.app import build_core
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.runtime.salvage import SALVAGE, salvage
from memory_anchor.settings import EmbedderSettings, Settings

HUMAN = Actor(Caller.HUMAN, Scope(agent="a"))
MACHINES = ("lathe", "mill", "press", "saw", "forge", "kiln", "crane", "pump", "drill", "loom")
NOW = datetime(2026, 3, 1, tzinfo=UTC)
SECRET = "swordfish-暗号-9931"
Run = Callable[..., Result]


@contextmanager
def opened(folder: Path) -> Iterator[Core]:
    with (
        DirectoryLock.acquire(folder, role="test") as lock,
        closing(build_core(Settings(embedder=EmbedderSettings(kind="none")), data_dir=folder, lock=lock)) as core,
    ):
        yield core


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory of the real engine: ten facts, one edited, one forgotten, and five events."""
    folder = tmp_path / "data"
    with opened(folder) as core:
        anchor = core.anchor(HUMAN)
        ids = [anchor.save_memory(f"The {one} stands in hall {at}; {SECRET}").id for at, one in enumerate(MACHINES)]
        anchor.curation.edit(ids[0], "The lathe stands in hall 77 now")
        anchor.forget(ids[1])
        for at in range(5):
            anchor.log_event(f"Delivery {at} came through the north gate")
        assert core.services.store.beside.catch_up()
    return folder


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("MEMORY_ANCHOR_EMBEDDER__KIND", "none")
    monkeypatch.chdir(tmp_path / "home")
    return lambda *arguments, **more: CliRunner().invoke(app, list(arguments), **more)


def versions(run: Run) -> list[str]:
    """Return every version as it is exported, without the audit trail, to which a salvage adds itself."""
    return [line for line in run("export", "-", "--versions").stdout.splitlines() if '"kind":"audit"' not in line]


def database(data: Path) -> Path:
    return data / "store" / "memory.db"


def page_with(data: Path, text: bytes) -> int:
    """Return where the page begins that holds a text."""
    return database(data).read_bytes().index(text) // 4096 * 4096


def overwrite(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def drop_index(data: Path) -> None:
    shutil.rmtree(data / "index")


def salvaged(run: Run) -> tuple[int, dict[str, Any]]:
    result = run("doctor", "--salvage", "--json")
    return result.exit_code, json.loads(result.stdout)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a page of texts is zeroed": lambda data: overwrite(database(data), page_with(data, b"The forge"), bytes(4096)),
    "a page of texts is garbage": lambda data: overwrite(database(data), page_with(data, b"The forge"), b"\xff" * 4096),
    "a text is another one": lambda data: overwrite(
        database(data), database(data).read_bytes().index(b"The forge stands"), b"The bench stands"
    ),
    "half of the file is cut off": lambda data: os.truncate(
        database(data), database(data).stat().st_size // 8192 * 4096
    ),
    "the file is empty": lambda data: os.truncate(database(data), 0),
    "the file's head is garbage": lambda data: overwrite(database(data), 0, b"\xff" * 4096),
    "the file is gone": lambda data: database(data).unlink(),
}
PARTIAL = [name for name in DAMAGES if name.startswith("a ")]
"""Those that leave the table of tables: of a file without it nothing is read, its trail neither."""


def test_a_damaged_page_is_named_and_salvaged(data: Path, run: Run) -> None:
    """Attack N5: doctor names the damage, its cure brings every version back, and the facts are found again."""
    before = versions(run)
    DAMAGES["a page of texts is garbage"](data)

    checked = json.loads(run("doctor", "--json").stdout)
    failed = {check["name"]: check["fix"] for check in checked["checks"] if check["state"] == "failed"}
    code, account = salvaged(run)

    assert {failed[name] for name in ("store", "memories") if name in failed} == {"memory-anchor doctor --salvage"}
    assert (code, account["lost"], account["changed"]) == (0, [], True)
    assert account["read"]["index"] >= 1
    assert versions(run) == before
    assert (Path(account["replaced"]) / "store" / "memory.db").is_file()
    assert run("doctor", "--json").exit_code == 0
    assert "forge" in run("search", "where does the forge stand").stdout


def test_a_salvage_brings_back_neither_what_was_purged_nor_a_changed_text(data: Path) -> None:
    """Attack N5: a purge that was cut short is not undone, and no text is told that is not the one written."""
    with opened(data) as core:
        facts = core.anchor(HUMAN).curation.listing(layer="verified_fact")
        named = {one.content.split()[1]: one.id for one in facts}
        told = {"removed": {"verified_fact": [f"{named['press']}@1"]}}
        core.audit.append("purge", told, by="human:me", at=core.clock.now())
    overwrite(database(data), database(data).read_bytes().index(b"The saw stands"), b"The cat stands")
    drop_index(data)

    account = salvage(Settings(embedder=EmbedderSettings(kind="none")), data, now=NOW)

    assert account.changed and [one.id for one in account.lost] == [named["saw"]]
    with opened(data) as core:
        left = {one.id for one in core.anchor(HUMAN).curation.listing(layer="verified_fact")}
    assert named["forge"] in left
    assert {named["press"], named["saw"]}.isdisjoint(left)


@pytest.mark.parametrize("damage", ["a text is another one", "a page is zeroed"])
def test_a_record_that_cannot_be_read_is_counted_and_named(data: Path, run: Run, damage: str) -> None:
    """Attack N5: an accepted batch, a first answer or a job's state is named, never by text; others are back."""
    with opened(data) as core:
        for name, text in (("team/ingest/1.json", "an accepted batch"), ("requests/2", "an answer" * 900)):
            core.records.write(name, json.dumps({"items": [text]}).encode(), before=None)
        core.records.write("requests/gone", b"{}", before=None)
        core.records.delete("requests/gone", before=None)
    content = database(data).read_bytes()
    at = content.index(b"an accepted batch")
    if damage == "a page is zeroed":
        overwrite(database(data), at // 4096 * 4096, bytes(4096))
    else:
        overwrite(database(data), at, b"an acceqted batch")

    result = run("doctor", "--salvage", "--json")

    account = json.loads(result.stdout)
    assert result.exit_code == 6 and account["changed"] and account["lost"] == []
    assert "team/ingest/1.json" in account["lost_records"]
    assert "accepted" not in result.output and "answer" not in result.output
    with opened(data) as core:
        kept = {name for name in ("team/ingest/1.json", "requests/2") if core.records.read(name) is not None}
        assert kept.isdisjoint(account["lost_records"]) and kept | set(account["lost_records"]) >= {"requests/2"}
        if damage == "a text is another one":
            assert account["lost_records"] == ["team/ingest/1.json"]
        (told,) = core.audit.records("salvage")
        assert told["what"]["lost_records"] == account["lost_records"]


@pytest.mark.slow
@pytest.mark.parametrize("damage", one_in(2, DAMAGES))
def test_one_damage_loses_nothing_while_the_collections_are_there(data: Path, run: Run, damage: str) -> None:
    """Attack N5: whatever one file holds, rows, collections and the newest backup together give every version."""
    run("backup", "create", str(data.parent))
    before = versions(run)
    DAMAGES[damage](data)

    code, account = salvaged(run)

    assert (code, account["lost"]) == (0, [])
    assert versions(run) == before
    assert run("doctor", "--json").exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("damage", PARTIAL)
def test_what_no_source_has_is_named_by_id(data: Path, run: Run, damage: str) -> None:
    """Attack N5: without collections what cannot be read is named by id, version, layer and time, never by text."""
    before = [json.loads(line) for line in versions(run)]
    written = {(one["id"], one["version"]) for one in before}
    drop_index(data)
    DAMAGES[damage](data)

    result = run("doctor", "--salvage", "--json")
    account = json.loads(result.stdout)

    lost = {(one["id"], one["version"]) for one in account["lost"]}
    after = [json.loads(line) for line in versions(run)]
    kept = {(one["id"], one["version"]) for one in after}
    assert (kept | lost, kept & lost) == (written, set())
    assert all(one["layer"] == "verified_fact" and one["recorded_at"] for one in account["lost"])
    assert result.exit_code == (6 if lost else 0)
    assert not holding(data / "logs", SECRET) and SECRET not in result.output
    assert SECRET not in (Path(account["replaced"]) / "salvage.json").read_text()
    assert salvaged(run)[1]["changed"] is False


@pytest.mark.slow
def test_what_the_store_lost_comes_from_the_newest_backup_that_has_it(data: Path, run: Run, tmp_path: Path) -> None:
    """Attack N5: a version is taken from a backup and named with it; what came later is lost and named."""
    made = json.loads(run("backup", "create", str(tmp_path), "--json").stdout)
    before = versions(run)
    late = json.loads(run("add", "The spindle came after the backup", "--json").stdout)["id"]
    drop_index(data)
    overwrite(database(data), page_with(data, b"The spindle"), bytes(4096))

    code, account = salvaged(run)

    assert code == 6
    assert [(one["id"], one["version"], one["backup"]) for one in account["lost"]] == [(late, 1, "")]
    assert {one["backup"] for one in account["from_backups"]} == {made["file"]}
    assert versions(run) == before


def test_what_a_human_erased_or_forgot_since_a_backup_does_not_come_back_from_it(data: Path, tmp_path: Path) -> None:
    """Attack N5: a backup that a purge did not reach gives none of it; what comes from one is named in the trail."""
    with opened(data) as core:
        made = backup.create(core, tmp_path / "out.tar.gz")["file"]
        anchor = core.anchor(HUMAN)
        press, saw, forge = (anchor.search(f"where does the {one} stand").snippets[0].id for one in MACHINES[2:5])
        purge.purge_ids(core.upkeep, [press], caller=Caller.HUMAN, at=core.clock.now(), by="human:me")
        anchor.forget(saw)
    drop_index(data)
    content = database(data).read_bytes()
    for text in (b"The saw stands", b"The forge stands"):
        content = content.replace(text, b"?" * len(text))
    database(data).write_bytes(content)

    account = salvage(Settings(embedder=EmbedderSettings(kind="none")), data, now=NOW)

    assert {(one.id, one.backup) for one in account.from_backups} == {(saw, made), (forge, made)}
    with opened(data) as core:
        assert core.services.records.read(saw, None).status is Status.ARCHIVED
        assert core.services.records.read(forge, None).status is Status.ACTIVE
        with pytest.raises(NotFound):
            core.services.records.read(press, None)
        told = core.audit.latest(SALVAGE) or {}
        taken = told["from_backups"]
        assert (told["from_backups_count"], told["lost_records_count"]) == (2, 0)
        assert {file: sorted(names) for file, names in taken.items()} == {made: sorted([f"{saw}@1", f"{forge}@1"])}
    assert holding(data, "The press stands") == []


@pytest.mark.parametrize("damage", ["half of the file is cut off", "the file's head is garbage", "the file is gone"])
@pytest.mark.parametrize("has_index", [True, False])
def test_where_the_trail_is_lost_what_comes_from_a_backup_waits_for_a_human(
    data: Path, run: Run, tmp_path: Path, damage: str, has_index: bool
) -> None:
    """Attack N5: a backup's own trail tells no later purge, so no answer has what one gave until a human took it."""
    with opened(data) as core:
        backup.create(core, tmp_path / "out.tar.gz")
        anchor = core.anchor(HUMAN)
        press, saw, forge = (anchor.search(f"where does the {one} stand").snippets[0].id for one in MACHINES[2:5])
        purge.purge_ids(core.upkeep, [press], caller=Caller.HUMAN, at=core.clock.now(), by="human:me")
        anchor.forget(saw)
        assert core.services.store.beside.catch_up()
    if not has_index:
        drop_index(data)
    DAMAGES[damage](data)

    _, account = salvaged(run)

    waiting = {one["memory"]["id"] for one in json.loads(run("review", "--list", "--json").stdout)["items"]}
    live = {one["id"] for one in json.loads(run("list", "--json").stdout)["memories"]} - waiting
    assert any("memory-anchor purge" in note for note in account["notes"])
    assert press in waiting and {press, saw}.isdisjoint(live)
    assert (saw in waiting, forge in waiting, forge in live) == (not has_index, not has_index, has_index)
    assert press not in run("search", "where does the press stand", "--json").stdout


@pytest.mark.slow
def test_a_store_of_which_nothing_is_left_is_said_to_be_so(data: Path, run: Run) -> None:
    """Attack N5: exit 6, nothing was changed."""
    drop_index(data)
    DAMAGES["the file's head is garbage"](data)

    result = run("doctor", "--salvage")

    assert result.exit_code == 6
    assert "nothing could be brought back" in result.stderr and "nothing was changed" in result.stderr
    assert not list(data.glob("replaced-*")) and not list(data.glob("restore-*"))


@pytest.mark.slow
def test_a_whole_store_is_left_as_it_is(data: Path, run: Run) -> None:
    """Attack N5: exit 0, and the very files stay."""
    files = sorted(path.relative_to(data) for path in (data / "store").rglob("*") if path.is_file())

    code, account = salvaged(run)

    assert (code, account["changed"], account["replaced"]) == (0, False, "")
    assert sorted(path.relative_to(data) for path in (data / "store").rglob("*") if path.is_file()) == files


@pytest.mark.slow
def test_an_older_version_never_stands_unseen_for_a_lost_one(data: Path, run: Run, tmp_path: Path) -> None:
    """Attack N5: the text before a lost edit waits for review; what was put away stays put away."""
    run("backup", "create", str(tmp_path))
    with opened(data) as core:
        anchor = core.anchor(HUMAN)
        saw, forge = (anchor.search(f"where does the {one} stand").snippets[0].id for one in ("saw", "forge"))
        anchor.curation.edit(saw, "The saw was sold")
        anchor.forget(forge)
    drop_index(data)
    content = database(data).read_bytes()
    for text in (b"The saw was sold", b"The forge stands"):
        content = content.replace(text, b"?" * len(text))
    database(data).write_bytes(content)

    _, account = salvaged(run)

    assert {(one["id"], one["version"]) for one in account["lost"]} == {(saw, 2), (forge, 2)}
    assert sorted(account["reopened"]) == sorted([saw, forge])
    assert json.loads(run("show", saw, "--json").stdout)["memory"]["status"] == "pending"
    assert json.loads(run("show", forge, "--json").stdout)["memory"]["status"] == "archived"
    assert [one["memory"]["id"] for one in json.loads(run("review", "--list", "--json").stdout)["items"]] == [saw]
