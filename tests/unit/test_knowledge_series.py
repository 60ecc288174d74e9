"""Short passages in a row are read on from one another: each is found by the words of the one before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_anchor.domain.model import Actor
from memory_anchor.extensions.knowledge import library, points
from memory_anchor.extensions.knowledge.catalogue import PassagePlace
from memory_anchor.extensions.knowledge.index import ACTIVE, COLLECTION
from memory_anchor.extensions.knowledge.use_cases import knowledge_of
from memory_anchor.language.indexing import searched_words
from memory_anchor.process.wiring import Core
from memory_anchor.testing import HashEmbedder, ManualClock, ephemeral_core
from memory_anchor.use_cases.memory import MemoryAnchor
from tests.unit.knowledgekit import added, purged, read_all
from tests.unit.test_operations import CountingEmbedder

MINUTES = "## Ada\nShall the walrus move to the harbour pool?\n\n## Tom\nYes, last week!\n\n## Ada\nGood.\n"


@pytest.fixture
def docs(project: Path) -> Path:
    folder = project / "docs"
    folder.mkdir()
    return folder


def indexed(core: Core) -> dict[str, tuple[str, str, object]]:
    """Return content -> what else it is found by."""
    entries, _ = core.services.store.scan(COLLECTION, ACTIVE, page=1_000, with_vectors=True)
    assert all(entry.vectors for entry in entries)
    for entry in entries:
        wanted = searched_words(entry.memory)
        assert entry.words is not None
        assert dict(zip(entry.words.indices, entry.words.values, strict=True)) == pytest.approx(
            dict(zip(wanted.indices, wanted.values, strict=True))
        )
    return {entry.memory.content: (entry.memory.key, entry.memory.context, entry.memory.where) for entry in entries}


def test_a_short_passage_is_found_by_what_stands_before_it(docs: Path, anchor: MemoryAnchor) -> None:
    """Rule Knowledge.series: the passage before counts half, and is no part of what is shown."""
    (docs / "minutes.md").write_text(MINUTES, encoding="utf-8")
    (docs / "other.md").write_text("# Other\nNothing about animals here.\n", encoding="utf-8")
    added(anchor, docs)

    first, second, *_ = knowledge_of(anchor).search("walrus harbour pool")

    assert first.text.endswith("harbour pool?")
    assert second.text == "## Tom\nYes, last week!"


@pytest.mark.parametrize(
    ("above", "below", "follows"),
    [
        (("A",), ("A",), True),
        (("A",), ("A", "B"), True),
        (("A", "B"), ("A", "C"), True),
        ((), (), True),
        (("A", "B"), ("C",), False),
        (("A", "B"), ("C", "B"), False),
        (("A",), ("B", "C"), False),
    ],
)
def test_a_series_stays_within_its_section(above: tuple[str, ...], below: tuple[str, ...], *, follows: bool) -> None:
    """Rule Knowledge.series: the same heading, one beside it or the one above."""
    before, after = (PassagePlace("a.md", n, "", "", n, n, heading=path) for n, path in ((1, above), (2, below)))

    assert bool(points.context_of("What was it?", before, "Yes.", after)) is follows
    assert points.context_of("What was it? " * 40, before, "Yes.", after) == ""
    assert points.context_of("What was it?", before, "Yes. " * 100, after) == ""


def test_after_any_edit_the_index_is_the_one_that_is_made_anew(
    docs: Path, core: Core, agent: Actor, clock: ManualClock, tmp_path: Path
) -> None:
    """Rule Knowledge.series: what stands before a passage moves, goes or is another document's: never an old word."""
    anchor = core.anchor(agent)
    (docs / "a.md").write_text(MINUTES, encoding="utf-8")
    (docs / "b.md").write_text("## Eve\nWho sold the zeppelin?\n\n## Tom\nYes, last week!\n", encoding="utf-8")
    added(anchor, docs)
    for number, (name, text) in enumerate(
        (
            ("a.md", MINUTES.replace("walrus", "otter")),
            ("a.md", MINUTES.replace("## Tom\nYes, last week!\n\n", "")),
            ("a.md", MINUTES),
            ("a.md", ""),
            ("b.md", "## Tom\nYes, last week!\n"),
            ("0.md", "## Tom\nYes, last week!\n\n## Tom\nSo be it.\n"),
        )
    ):
        if text:
            (docs / name).write_text(text, encoding="utf-8")
        else:
            (docs / name).unlink()
        read_all(anchor, begin=True)
        anew = ephemeral_core(tmp_path / f"anew-{number}", clock=clock, embedder=HashEmbedder())
        added(anew.anchor(agent), docs)
        assert indexed(core) == indexed(anew)
        anew.close()


def test_an_index_of_the_version_before_is_read_again_and_embeds_nothing(
    docs: Path, clock: ManualClock, agent: Actor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule Knowledge.series: another index_version reads every source again; a vector holds while its text does."""
    embedder = CountingEmbedder()
    core = ephemeral_core(tmp_path / "old", clock=clock, embedder=embedder)
    (docs / "minutes.md").write_text(MINUTES, encoding="utf-8")
    with monkeypatch.context() as past:
        past.setattr(library, "INDEX_VERSION", "1")
        past.setattr(points, "INDEX_VERSION", "1")
        past.setattr(library, "contexts_in", lambda _: {})
        added(core.anchor(agent), docs)
        assert not any(context for _, context, _ in indexed(core).values())
    before = len(embedder.embedded)

    read_all(core.anchor(agent), begin=True)

    assert [context for _, context, _ in indexed(core).values()].count("") == 1
    assert len(embedder.embedded) == before == 3
    assert knowledge_of(core.anchor(agent)).search("walrus")[0].citations[0].index_version == points.INDEX_VERSION
    core.close()


def test_a_purge_takes_a_text_out_of_the_passage_after_it(docs: Path, core: Core, agent: Actor) -> None:
    """Rule Knowledge.series: a passage keeps no word of a purged one before it."""
    anchor = core.anchor(agent)
    (docs / "minutes.md").write_text(MINUTES, encoding="utf-8")
    added(anchor, docs)

    purged(core, agent, "walrus move")
    read_all(anchor)

    assert set(indexed(core)) == {"## Tom\nYes, last week!", "## Ada\nGood."}
    assert "walrus" not in str(indexed(core))
    assert "## Tom\nYes, last week!" not in [
        passage.text for passage in knowledge_of(anchor).search("walrus") if not passage.weak
    ]
