"""A correction on another device, in another store and after the night's jobs: the old value leads nowhere."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from devicekit import Laptop, settled

from memory_anchor.domain.model import Actor, Caller, Scope, Status
from memory_anchor.extensions.transfer.transfer_files import export_lines, import_file
from memory_anchor.front import calls
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ephemeral_core
from memory_anchor.use_cases.memory import MemoryAnchor

CORRECTIONS = [
    ("The page size of the list is 25", "The page size of the list was raised from 25 to 50", "page size of the list"),
    ("Terraform state is kept in S3", "Terraform state has moved from S3 to GCS", "where is Terraform state kept"),
    ("The CLI requires Node 16", "The CLI now requires Node 20", "which Node does the CLI require"),
    ("日志保留 7 天", "日志保留改为 30 天", "日志保留多少天"),
    ("发布由王磊负责", "发布以后由赵敏负责", "发布由谁负责"),
    ("镜像存在 Harbor", "镜像从 Harbor 迁到 ACR", "镜像存在哪里"),
]
JOBS = ("merge_duplicates", "reconsolidate", "forget")

pytestmark = pytest.mark.usefixtures("no_sync")


def is_over(anchor: MemoryAnchor, old: str, new: str, question: str) -> None:
    """Assert that the old text is plainly active nowhere and first in no answer, and that the new one is found."""
    answer = anchor.search(question)
    snippets, disputed = answer.snippets, {id for conflict in answer.conflicts for id in conflict}

    assert old not in [memory.content for memory in anchor.curation.listing(status=Status.ACTIVE)]
    assert new in [snippet.text for snippet in snippets]
    assert snippets[0].text == new or snippets[0].id in disputed


def met(devices: Sequence[Laptop]) -> None:
    """Sync, and embed what arrived, as engines do in the background."""
    settled(devices)
    for device in devices:
        device.core.services.searcher.index.embed_pending(8)


def by_night(core: Core) -> None:
    for job in JOBS:
        core.scheduler.run(job, core.clock.now())


@pytest.mark.parametrize(("old", "new", "question"), CORRECTIONS)
def test_a_correction_made_on_one_device_holds_on_the_other(
    laptops: Callable[[str], Laptop], old: str, new: str, question: str
) -> None:
    """Rule sync.union: what one device replaced is replaced on both, whichever of them replaced it."""
    one, other = laptops("laptop"), laptops("desktop")
    one.anchor.save_memory(old)
    met([one, other])
    other.clock.advance(minutes=5)
    other.anchor.save_memory(new)

    met([one, other])

    for device in (one, other):
        is_over(device.anchor, old, new, question)
        by_night(device.core)
        is_over(device.anchor, old, new, question)


@pytest.mark.parametrize(("old", "new", "question"), CORRECTIONS)
def test_an_old_value_that_a_second_device_had_by_itself_does_not_come_back(
    laptops: Callable[[str], Laptop], old: str, new: str, question: str
) -> None:
    """Rule echo: both had noted the old value before they met; one of them corrected it."""
    one, other = laptops("laptop"), laptops("desktop")
    for device in (one, other):
        device.anchor.save_memory(old)
    one.clock.advance(minutes=5)
    one.anchor.save_memory(new)

    met([one, other])
    for device in (one, other):
        by_night(device.core)
    met([one, other])

    for device in (one, other):
        is_over(device.anchor, old, new, question)


def asked_of(core: Core, anchor: MemoryAnchor) -> Callable[..., Any]:
    """Return what a command's process does: it asks by a call, and both sides see JSON."""

    def ask(name: str, **given: Any) -> Any:
        told = {key: value for key, value in given.items() if value is not None and key != "human"}
        return json.loads(json.dumps(calls.answer(name, anchor, json.loads(json.dumps(told)))))

    return ask


@pytest.mark.parametrize("knows_the_old", [False, True])
@pytest.mark.parametrize(("old", "new", "question"), CORRECTIONS)
def test_a_correction_holds_in_another_store_and_by_night(
    core: Core, project: Path, human: object, tmp_path: Path, old: str, new: str, question: str, knows_the_old: bool
) -> None:
    """Rule moving.out: what was replaced is replaced where it is taken in, also where the old value was known."""
    actor = Actor(Caller.HUMAN, Scope(), client="cli", project_dir=str(project))
    mine = core.anchor(actor)
    for text in (old, new):
        mine.save_memory(text)
    fresh = ephemeral_core(tmp_path / "fresh")
    theirs = fresh.anchor(actor)
    if knows_the_old:
        theirs.save_memory(old)

    lines = export_lines(asked_of(core, mine), core.data_dir, versions=False, own_project=False, everything=True)
    file = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
    done = import_file(
        asked_of(fresh, theirs), file, fresh.data_dir, project_dir=str(project), human="signs", tick=lambda _: None
    )

    assert done.failed == 0
    fresh.services.searcher.index.embed_pending(8)
    by_night(fresh)
    is_over(theirs, old, new, question)
    fresh.close()


@pytest.mark.parametrize(("old", "new", "question"), CORRECTIONS)
def test_a_correction_told_before_what_arrived_is_embedded_is_settled_once_both_are_recalled(
    laptops: Callable[[str], Laptop], old: str, new: str, question: str
) -> None:
    """Rule recalled together: an answer that shows both has the job compare them."""
    one, other = laptops("laptop"), laptops("desktop")
    one.anchor.save_memory(old)
    settled([one, other])
    other.clock.advance(minutes=5)
    other.anchor.save_memory(new)
    met([one, other])

    for device in (one, other):
        device.anchor.search(question)
        device.clock.advance(minutes=5)
        by_night(device.core)

    for device in (one, other):
        is_over(device.anchor, old, new, question)
