"""`doctor --salvage` on many damaged copies of one store: nothing is lost without its name, and nothing ends in a bug.

The database is cut short, has a page zeroed or one bit flipped, with the collections of its index and every
other time without them. MEMORY_ANCHOR_FULL_FIGURES=1 damages 100 copies.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from figures import figure

from memory_anchor.domain.model import COLLECTIONS, Actor, Caller, Memory, Scope, Status
from memory_anchor.domain.where import Where
from memory_anchor.front.cli.app import app
from memory_anchor.process.app import build_core
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import EmbedderSettings, Settings

PAGE = 4096
COPIES = figure(3, 100)
SEED = int(os.environ.get("MEMORY_ANCHOR_SALVAGE_SEED", "12"))
HUMAN = Actor(Caller.HUMAN, Scope(agent="a"))


@pytest.fixture
def good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, dict[str, str]]]:
    """A store of twelve facts, two edited, one forgotten, and six events; and the content of each version by its id."""
    monkeypatch.setenv("MEMORY_ANCHOR_EMBEDDER__KIND", "none")
    monkeypatch.chdir(tmp_path / "home")
    data = tmp_path / "good"
    told = in_child(lambda: _written(data))
    yield data, told


@contextmanager
def _opened(data: Path) -> Iterator[Core]:
    with (
        DirectoryLock.acquire(data, role="test") as lock,
        closing(build_core(Settings(embedder=EmbedderSettings(kind="none")), data_dir=data, lock=lock)) as core,
    ):
        yield core


def _written(data: Path) -> dict[str, str]:
    with _opened(data) as core:
        anchor = core.anchor(HUMAN)
        ids = [anchor.save_memory(f"Machine {at} 号机 stands in hall {at * 7}").id for at in range(12)]
        for at in (0, 1):
            anchor.curation.edit(str(ids[at]), f"Machine {at} was sold in year {at}")
        anchor.forget(str(ids[2]))
        for at in range(6):
            anchor.log_event(f"Delivery {at} came through the north gate")
        assert core.services.store.beside.catch_up()
    return _versions(data)


def in_child(act: Callable[[], Any]) -> Any:
    """Return what `act` makes in a process of its own, which damage may end (SIGBUS); that is its wait status then."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            said = json.dumps(act())
        except BaseException:
            said = json.dumps({"traceback": traceback.format_exc()})
        with os.fdopen(writing, "w") as out:
            out.write(said)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    status = os.waitpid(child, 0)[1]
    return json.loads(said) if said else {"ended": status}


def _versions(data: Path) -> dict[str, str]:
    """Return the content of every version. What indexes and words give must be all of them too, or it raises."""
    with _opened(data) as core:
        found: dict[str, Memory] = {}
        for name in COLLECTIONS:
            entries, _ = core.services.store.scan(name, Where(), page=1_000)
            found |= {entry.memory.version_id: entry.memory for entry in entries}
        anchor = core.anchor(HUMAN)
        for status in (Status.ACTIVE, Status.PENDING, Status.ARCHIVED):
            listed = {one.id for one in anchor.curation.listing(status=status.value, limit=200)}
            current = {one.id for one in found.values() if one.is_current and one.status is status}
            assert listed == current, f"silent: {len(listed)} of {len(current)} {status} are listed"
        active = [one for one in found.values() if one.is_current and one.status is Status.ACTIVE]
        for memory in active:
            shown = anchor.search(memory.content, limit=50).snippets
            assert memory.id in {one.id for one in shown}, f"silent: {memory.version_id} is not found by its own words"
        return {name: memory.content for name, memory in found.items()}


def _salvaged(data: Path) -> dict[str, Any]:
    os.environ["MEMORY_ANCHOR_DATA_DIR"] = str(data)
    result = CliRunner().invoke(app, ["doctor", "--salvage", "--json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    account = json.loads(result.stdout) if result.stdout.startswith("{") else None
    return {"code": result.exit_code, "stderr": result.stderr, "account": account}


def damaged(data: Path, rng: random.Random, *, indexed: bool) -> str:
    """Damage the database; return what was done."""
    if not indexed:
        shutil.rmtree(data / "index")
    path = data / "store" / "memory.db"
    content = path.read_bytes()
    live = [at for at, byte in enumerate(content) if byte]
    how = rng.choice(["cut short", "a page zeroed", "bit flipped"])
    at = rng.randrange(PAGE, len(content)) if how == "cut short" else rng.choice(live)
    if how == "cut short":
        os.truncate(path, at)
    else:
        at = at // PAGE * PAGE if how == "a page zeroed" else at
        new = bytes(PAGE) if how == "a page zeroed" else bytes([content[at] ^ 1 << at % 8])
        with path.open("r+b") as file:
            file.seek(at)
            file.write(new)
    return f"{how} at {at}{'' if indexed else ', no index'}"


def judged(data: Path, written: dict[str, str]) -> str:
    """Return what became of one copy: whole, mended, lost and named, refused; anything else starts with `BAD`.

    A version whose line of the trail is lost with it has no name left: that such lines are lost is said.
    """
    told = in_child(lambda: _salvaged(data))
    if "code" not in told:
        return f"BAD {told}"
    account = told["account"]
    if account is None or "error" in account:
        plain = "nothing was changed" in f"{told['stderr']} {account}" and told["code"] == 6
        return "refused" if plain else f"BAD {told}"
    lost = {f"{one['id']}@{one['version']}" for one in account["lost"]}
    found = in_child(lambda: _versions(data))
    unnamed = set(written) - set(found) - lost
    if len(unnamed) > account["unread_lines"] or set(found) - set(written) or set(found) & lost:
        return f"BAD silent: {sorted(set(written) - set(found) - lost)} {str(found)[-300:]}"
    is_lossy = bool(lost or account["unread_lines"] or account["lost_records"])
    if any(written[name] != text for name, text in found.items()) or told["code"] != (6 if is_lossy else 0):
        return f"BAD texts or exit code {told['code']}"
    return "lost and named" if is_lossy else "mended" if account["changed"] else "whole"


@pytest.mark.slow
@pytest.mark.timeout(5_400)
def test_every_damaged_copy_opens_with_all_that_can_be_read_or_names_what_is_lost(
    good: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """Attack N5: found and lost together are what was written, texts as they were, never a bug of ours."""
    data, written = good
    assert len(written) >= 20
    tally: Counter[str] = Counter()
    bad: list[str] = []
    for number in range(COPIES):
        rng = random.Random(f"{SEED}-{number}")
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(data, copy)
        copy.chmod(0o700)
        what = damaged(copy, rng, indexed=number % 2 == 0)
        became = judged(copy, written)
        tally["bad" if became.startswith("BAD") else became] += 1
        bad += [f"{number}: {what}: {became}"] if became.startswith("BAD") else []
        shutil.rmtree(copy)
        print(number, what, "->", became, flush=True)
    print(dict(tally))
    assert bad == []
