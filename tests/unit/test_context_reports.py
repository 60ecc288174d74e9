"""Cost reports: every assembly can be looked at again, and no memory's text is kept with it."""

from __future__ import annotations

import itertools
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from contextkit import World, event, fact, passage
from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.context.context_reports import ContextReports, from_json, to_json
from memory_anchor.context.sections import ContextCostReport, Section
from memory_anchor.domain.errors import BadInput, NotFound, StoreDamaged
from memory_anchor.domain.model import Citation, Locator, Scope, Trust
from memory_anchor.testing import ManualClock

REPORT = ContextCostReport(4000, 0, {"total": 7, "by_layer": {}}, (Section("rule", "prefix", 7),))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "contexts"


def reports(folder: Path, clock: ManualClock, *, kept: int = 500, prefix: str = "r") -> ContextReports:
    numbers = itertools.count()
    new_id: Callable[[], str] = lambda: f"{prefix}{next(numbers)}"  # noqa: E731
    return ContextReports(folder, now=clock.now, new_id=new_id, kept=kept)


def test_a_recorded_report_reads_back_equal(folder: Path) -> None:
    """ContextCostReport: recorded and replayable."""
    book = reports(folder, ManualClock())
    world = World(
        found=[fact("f1", "Qdrant runs embedded", trust=Trust.UNTRUSTED), event("e1", "Fixed the bug")],
        passages=[passage("release", "Tag it.")],
    )
    builder = world.builder(record=book.record)

    built = builder.build("why Qdrant", 300)

    held = book.load(built.report_id)
    assert held.report == built.report
    assert held.recorded_at == ManualClock().now()


def test_no_text_of_a_memory_is_kept_with_a_report(folder: Path) -> None:
    """What was injected is named by its citation; the text stays in the store, where it can be purged."""
    book = reports(folder, ManualClock())
    secret = "the launch code is ZEBRA-17"
    world = World(identity=[secret], found=[fact("f1", secret), event("e1", secret)], active={"note": secret})

    world.builder(record=book.record).build("what is ZEBRA-17", 5000)

    assert all("ZEBRA" not in path.read_text() for path in folder.iterdir())


def test_reports_are_readable_by_their_owner_alone(folder: Path) -> None:
    """0600 in a 0700 folder."""
    reports(folder, ManualClock()).record(REPORT)

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_the_oldest_reports_go_and_the_newest_are_listed_first(folder: Path) -> None:
    """A bounded folder; the order is that of recording."""
    clock = ManualClock()
    book = reports(folder, clock, kept=3)
    for _ in range(5):
        book.record(REPORT)
        clock.advance(seconds=1)

    assert [id for id, _ in book.list()] == ["r4", "r3", "r2"]
    assert [at for _, at in book.list()] == sorted((at for _, at in book.list()), reverse=True)
    with pytest.raises(NotFound, match="'r0'; the last 3 are kept"):
        book.load("r0")


def test_two_processes_share_a_folder(folder: Path) -> None:
    """Each sees the other's reports, and pruning what the other pruned is no trouble."""
    clock = ManualClock()
    ours, theirs = reports(folder, clock, kept=2), reports(folder, clock, kept=2, prefix="t")
    for book in (ours, theirs, ours, theirs):
        clock.advance(seconds=1)
        book.record(REPORT)

    assert [id for id, _ in ours.list()] == [id for id, _ in theirs.list()] == ["t1", "r1"]


def test_a_folder_that_is_not_there_holds_nothing(folder: Path) -> None:
    """Reading makes no folder."""
    book = reports(folder / "none", ManualClock())

    assert book.list() == ()
    with pytest.raises(NotFound):
        book.load("r0")
    assert not (folder / "none").exists()


@pytest.mark.parametrize("id", ["", "../../etc/passwd", "a/b", "a.json", "x" * 65, "*", 7, None])
def test_what_is_not_an_id_is_refused(folder: Path, id: object) -> None:
    """An id is never a path or a pattern."""
    with pytest.raises(BadInput, match="allowed are 1 to 64 letters"):
        reports(folder, ManualClock()).load(id)  # type: ignore[arg-type]


@pytest.mark.parametrize("content", ["", "{}", "[]", "null", '{"id": "r0", "recorded_at": "x", "report": {}}', "\x00"])
def test_a_broken_report_names_the_file_to_delete(folder: Path, content: str) -> None:
    """A kill cannot leave one; a full disk or an editor can."""
    book = reports(folder, ManualClock())
    book.record(REPORT)
    next(folder.iterdir()).write_text(content)

    with pytest.raises(StoreDamaged, match="cannot be read; delete"):
        book.load("r0")


def test_files_of_others_in_the_folder_are_left_alone(folder: Path) -> None:
    """Pruning touches reports only."""
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    book = reports(folder, ManualClock(), kept=1)
    book.record(REPORT)
    book.record(REPORT)

    assert (folder / "notes.txt").read_text() == "mine"
    assert len(book.list()) == 1


words = st.text(max_size=8)
citations = st.builds(
    Citation,
    kind=st.sampled_from(["file", "event", "memory_entry"]),
    ref=words,
    title=st.none() | words,
    locator=st.builds(Locator, line_start=st.none() | st.integers(0, 9), sha=st.none() | words),
    scope=st.none() | st.builds(Scope, account=words, project=words),
    observed_at=st.none() | st.datetimes(timezones=st.just(UTC)),
    trust=st.sampled_from(Trust),
    freshness=st.sampled_from([None, "fresh", "gone"]),
)


@given(
    st.builds(
        ContextCostReport,
        context_window_tokens=st.integers(0, 10**6),
        reserved_output_tokens=st.integers(0, 10**6),
        estimated_tokens=st.dictionaries(words, st.integers()),
        sections=st.lists(st.builds(Section, words, st.just("tail"), st.integers())).map(tuple),
        decisions=st.lists(st.dictionaries(words, words | st.integers())).map(tuple),
        citations=st.lists(citations).map(tuple),
        stage_ms=st.dictionaries(words, st.floats(allow_nan=False)),
        cache=st.dictionaries(words, st.integers()),
        variant=words,
    )
)
def test_every_report_survives_the_round_trip_through_json(report: ContextCostReport) -> None:
    """from_json(to_json(r)) == r."""
    import json

    assert from_json(json.loads(json.dumps(to_json(report)))) == report


def test_an_early_clock_still_sorts(folder: Path) -> None:
    """A clock before 1970 is a broken clock, not a lost report."""
    clock = ManualClock(datetime(1969, 1, 1, tzinfo=UTC))
    book = reports(folder, clock)

    assert book.load(book.record(REPORT)).report == REPORT
