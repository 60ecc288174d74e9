"""What time does to memories, seen through the door that every front end uses."""

from __future__ import annotations

import pytest

from memory_anchor.domain.model import Actor, MemoryType, Scope, Status
from memory_anchor.process.app import build_core
from memory_anchor.settings import Settings
from memory_anchor.testing import HashEmbedder, ManualClock, memory_store

CODE = "import os\n\n\ndef retry():\n    return 3\n"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def core(tmp_path, clock):
    (tmp_path / "project").mkdir()
    made = build_core(
        Settings(), data_dir=tmp_path / "data", clock=clock, store=memory_store(), embedder=HashEmbedder()
    )
    yield made
    made.close()


def door(core, tmp_path, conversation=""):
    return core.anchor(Actor(project_dir=str(tmp_path / "project"), scope=Scope(conversation=conversation)))


def run(core, name):
    return core.scheduler.run(name, core.clock.now())


def test_fetching_a_memory_keeps_it_and_an_unused_one_fades(core, clock, tmp_path):
    """Rule: what is recalled and used is strengthened; the rest is archived, and found as archived."""
    anchor = door(core, tmp_path)
    kept, faded = (anchor.log_event(text).id for text in ("the kept one", "the faded one"))
    for _ in range(15):
        clock.advance(days=9)
        anchor.get(kept)
    run(core, "flush_usage")

    run(core, "forget")

    assert anchor.get(kept).status is Status.ACTIVE
    assert anchor.get(faded).status is Status.ARCHIVED
    assert [s.id for s in anchor.search("the one").snippets] == [kept]


def test_a_cited_file_is_checked_on_recall(core, tmp_path):
    """Rule: fresh, moved with the new lines, stale, gone."""
    source = tmp_path / "project" / "net.py"
    source.write_text(CODE)
    anchor = door(core, tmp_path)
    memory = anchor.save_memory("retry gives three attempts", files=["net.py:4-5"]).id

    told = []
    for text in (CODE, "# new\n" + CODE, CODE.replace("3", "5"), None):
        source.write_text(text) if text is not None else source.unlink()
        (citation,) = anchor.get(memory).citations
        (found,) = (c for c in anchor.search("retry attempts").snippets[0].citations if c.kind == "file")
        assert found.freshness == citation.freshness
        told.append((citation.freshness, citation.locator.line_start))

    assert told == [("fresh", 4), ("moved", 5), ("stale", 4), ("gone", 4)]


def test_an_ended_conversation_becomes_one_event_and_its_facts_are_saved_once(core, clock, tmp_path):
    """Rule: segment, extract, narrative; another run adds nothing."""
    anchor = door(core, tmp_path, "c1")
    for text in ("Opened the deploy script", "It failed: the disk was full", "Removed old logs", "The deploy passed"):
        anchor.log_event(f"{text}. What else was said of it took a while and changes nothing of what happened.")
        clock.advance(minutes=1)
    clock.advance(hours=1)

    first, again = run(core, "consolidate"), run(core, "consolidate")

    stories = [s for s in anchor.search("deploy disk logs", limit=10).snippets if s.type == MemoryType.SUMMARY]
    assert (first.counts["stories"], again.counts["stories"], len(stories)) == (1, 0, 1)
    assert stories[0].text.index("disk was full") < stories[0].text.index("deploy passed")


def test_statistics_come_from_the_process(core, tmp_path):
    """Rule: stats by layer, type, strength and age, with what was recalled."""
    anchor = door(core, tmp_path)
    anchor.log_event("one event")
    anchor.save_memory("The port is 8377", type="fact")
    anchor.search("port")

    told = core.stats()

    assert (told["total"], told["by_type"]) == (2, {"event": 1, "fact": 1})
    assert told["recalls_per_day"][-1] == 1
    assert told["by_strength"] == {"vivid": 2, "fading": 0, "faded": 0}


def test_what_a_job_archived_an_undo_brings_back_to_search(core, clock, tmp_path):
    """Rule: a night's forgetting is one change; searches see both at once."""
    from memory_anchor.upkeep import history

    anchor = door(core, tmp_path)
    anchor.log_event("an old thing happened")
    clock.advance(days=60)
    run(core, "forget")
    assert anchor.search("old thing").snippets == ()

    plan = history.plan_last(core.upkeep, anchor.actor.scope, human=True)
    history.apply(core.upkeep, plan, at=core.clock.now(), author="human:me")

    assert [s.text for s in anchor.search("old thing").snippets] == ["an old thing happened"]


def test_an_idea_is_verified_with_what_showed_it_or_refuted_and_kept_as_a_warning(core, tmp_path):
    """Rule: hypothesis, verified (with the command or link), refuted; refuted ideas stay findable."""
    from memory_anchor.domain.errors import BadInput

    anchor = door(core, tmp_path)
    idea = anchor.save_memory("The cache makes startup slow").id
    desk = anchor

    desk.curation.judge(idea, "hypothesis")
    with pytest.raises(BadInput, match="shown_by"):
        desk.curation.judge(idea, "verified")
    desk.curation.judge(idea, "refuted", "python -X importtime -m app")
    answer = anchor.search("cache startup")

    assert answer.snippets[0].id == idea
    assert answer.notes == (f"{idea} was refuted; it is kept as a warning",)
    assert [v.reason for v in anchor.history(idea)][1:] == ["hypothesis", "refuted: python -X importtime -m app"]
    desk.curation.judge(idea, "verified", "https://example.org/run/7")
    memory = anchor.get(idea)
    assert (memory.epistemic, memory.tags, memory.citations[-1].ref) == ("verified", (), "https://example.org/run/7")
