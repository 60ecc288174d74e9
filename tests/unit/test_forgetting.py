"""Forgetting: what may be archived, how much a night, and that it all comes back."""

from __future__ import annotations

import statistics
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timekit import a_memory, archived, change, current, day, put, statuses, undo_last, upkeep, used_at

from memory_anchor.domain.activation import strength_of
from memory_anchor.domain.model import MemoryType, Origin, Scope, Status, Visibility
from memory_anchor.domain.versions import same_meaning
from memory_anchor.settings import Settings
from memory_anchor.testing import ephemeral_core
from memory_anchor.upkeep import forgetting
from memory_anchor.upkeep.forgetting import FORGET_AUTHOR, POLICIES, expire_events, forget
from memory_anchor.upkeep.history import versions_of
from memory_anchor.upkeep.job_kit import Limits

ALL = {"max_archived_share": 1.0}


def test_a_faded_event_is_archived_and_never_erased():
    """Rule: faded below the threshold -> archived, out of search, every version still there."""
    up = upkeep(**ALL)
    put(up, a_memory("old"), a_memory("new", recorded_at=day(58)))

    report = forget(up, day(60))

    assert statuses(up) == {"old": Status.ARCHIVED, "new": Status.ACTIVE}
    assert report.changed == 1
    old, archive = versions_of(up.store, "old", None)
    assert (old.state, archive.state, archive.author) == ("history", "archived", FORGET_AUTHOR)
    assert archive.reason.startswith("faded to strength")


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_safe_stays_under_every_policy(policy: str, monkeypatch: pytest.MonkeyPatch):
    """Rule: pinned, human-written, instructions, recently used and unextracted facts are exempt."""
    monkeypatch.setattr(forgetting, "DROP_SHARE", 1.0)
    up = upkeep(**ALL, policy=policy, max_entries=10)
    safe = [
        a_memory("pinned", pinned=True),
        a_memory("human", origin=Origin.HUMAN),
        a_memory("rule", kind=MemoryType.INSTRUCTION, origin=Origin.EXTRACTED),
        a_memory("used", usage=used_at(395)),
        a_memory("fact", kind=MemoryType.FACT, origin=Origin.AGENT),
        a_memory("pending", status=Status.PENDING),
        a_memory("disputed", status=Status.DISPUTED),
    ]
    put(up, *safe, *(a_memory(f"gone{i}") for i in range(20)))

    forget(up, day(400))

    after = current(up)
    assert all(same_meaning(after[memory.id], memory) for memory in safe)
    assert archived(up) & {m.id for m in safe} == set()


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_forgets_something_where_it_applies(policy: str, monkeypatch: pytest.MonkeyPatch):
    """Rule: five policies, each of which does its work."""
    monkeypatch.setattr(forgetting, "DROP_SHARE", 1.0)
    up = upkeep(**ALL, policy=policy, max_entries=10)
    put(up, *(a_memory(f"e{i}") for i in range(20)))

    forget(up, day(400))

    assert len(archived(up)) >= 10


def test_random_drop_takes_a_share_and_the_same_one_twice(monkeypatch: pytest.MonkeyPatch):
    """Rule: random drop is seeded: the same night drops the same memories."""
    monkeypatch.setattr(forgetting, "DROP_SHARE", 0.3)
    taken = []
    for _ in range(2):
        up = upkeep(**ALL, policy="random_drop")
        put(up, *(a_memory(f"e{i}") for i in range(200)))
        forget(up, day(100))
        taken.append(archived(up))

    assert taken[0] == taken[1]
    assert 30 <= len(taken[0]) <= 90


def test_lru_archives_only_what_exceeds_max_entries_longest_unused_first():
    """Rule: LRU for caches."""
    up = upkeep(**ALL, policy="lru", max_entries=3)
    put(up, *(a_memory(f"e{i}", usage=used_at(i)) for i in range(5)))

    forget(up, day(100))

    assert archived(up) == {"e0", "e1"}


def test_extracted_facts_fade_and_other_facts_only_when_their_type_is_opted_in():
    """Rule: an L3 fact only sinks in rank unless the user opts its type in."""
    facts = [
        a_memory("extracted", kind=MemoryType.FACT, origin=Origin.EXTRACTED),
        a_memory("saved", kind=MemoryType.FACT),
        a_memory("bookmark", kind=MemoryType.BOOKMARK),
    ]
    plain, opted = upkeep(**ALL), upkeep(**ALL, forget_facts=("bookmark",))
    for up in (plain, opted):
        put(up, *facts)
        forget(up, day(700))

    assert archived(plain) == {"extracted"}
    assert archived(opted) == {"extracted", "bookmark"}


def test_one_night_archives_at_most_the_cap_and_says_so():
    """Rule: default cap 2 %; it stops, says so, and goes on the next night."""
    up = upkeep()
    put(up, *(a_memory(f"e{i:03}") for i in range(300)))

    first = forget(up, day(90))
    again = forget(up, day(90.2))
    next_night = forget(up, day(91))

    assert (first.changed, again.changed) == (6, 0)
    assert first.left
    assert "stopped at 6" in first.notes[0]
    assert next_night.changed == 5
    assert len(archived(up)) == 11


def test_expiry_is_not_counted_against_the_cap_and_spares_the_pinned():
    """Rule: TTL expiry archives, is outside the cap, and a pinned event stays."""
    up = upkeep()
    put(
        up,
        *(a_memory(f"e{i}", ttl_days=7, expires_at=day(7)) for i in range(50)),
        a_memory("kept", ttl_days=7, expires_at=day(7), pinned=True),
        a_memory("later", ttl_days=30, expires_at=day(30)),
        a_memory("forever"),
    )

    report = expire_events(up, day(8))

    assert report.changed == 50
    assert {k for k, v in statuses(up).items() if v is Status.ACTIVE} == {"kept", "later", "forever"}
    assert versions_of(up.store, "e0", None)[-1].reason == "its time to live of 7 days ended"


@pytest.mark.parametrize("job", [forget, expire_events])
def test_a_dry_run_lists_and_changes_nothing(job):
    """Rule: dry run shows the list first."""
    up = upkeep(**ALL)
    put(up, *(a_memory(f"e{i}", ttl_days=7, expires_at=day(7)) for i in range(5)))

    report = job(up, day(60), Limits(dry_run=True))

    assert sorted(p.id for p in report.planned) == [f"e{i}" for i in range(5)]
    assert all(p.action == "archive" and p.reason for p in report.planned)
    assert report.changed == 0
    assert archived(up) == set()
    assert up.audit.records == []


def test_running_a_job_again_changes_nothing_more():
    """Rule: jobs are idempotent."""
    up = upkeep(**ALL)
    put(up, *(a_memory(f"e{i}", ttl_days=7, expires_at=day(7)) for i in range(5)))

    expire_events(up, day(60))
    before = current(up)

    assert expire_events(up, day(60)).changed == 0
    assert forget(up, day(60)).changed == 0
    assert current(up) == before


def test_events_that_faded_together_leave_one_digest_that_cites_them():
    """Rule: hybrid folds groups into a digest, in order, non-destructively."""
    up = upkeep(**ALL)
    scope = Scope(conversation="c1")
    texts = ["The deploy failed.", "The disk was full.", "Old logs were removed.", "The deploy passed."]
    put(
        up,
        *(
            a_memory(f"e{i}", text, scope=scope, recorded_at=day(i / 100), when=day(i / 100), conversation_seq=i)
            for i, text in enumerate(texts)
        ),
    )

    report = forget(up, day(90))

    (digest,) = [m for m in current(up).values() if m.type is MemoryType.SUMMARY]
    assert report.counts["digests"] == 1
    assert [digest.content.index(text) for text in texts] == sorted(digest.content.index(text) for text in texts)
    assert [c.ref for c in digest.citations] == ["e0@1", "e1@1", "e2@1", "e3@1"]
    assert archived(up) == {"e0", "e1", "e2", "e3"}
    assert all(digest.id in current(up)[f"e{i}"].reason for i in range(4))


def test_a_digest_never_mixes_audiences():
    """Rule: scope never leaks: what one agent alone may read is not told to the project."""
    up = upkeep(**ALL)
    put(up, *(a_memory(f"p{i}") for i in range(3)), *(a_memory(f"a{i}", visibility=Visibility.AGENT) for i in range(3)))

    forget(up, day(90))

    digests = [m for m in current(up).values() if m.type is MemoryType.SUMMARY]
    assert len(digests) == 2
    for digest in digests:
        refs = {c.ref[0] for c in digest.citations}
        assert refs == ({"a"} if digest.visibility is Visibility.AGENT else {"p"})


def test_a_memory_used_while_the_job_was_thinking_is_written_with_its_use():
    """Rule: usage is never lost to a job's stale copy."""
    up = upkeep(**ALL)
    put(up, a_memory("e1"))
    memory = current(up)["e1"]
    up.store.set_usage("event_log", {memory.point_id: used_at(1)})

    change(up, "e1", day(60), "job:x", of=memory, status=Status.ARCHIVED)

    assert current(up)["e1"].usage.count == 1


def test_a_memory_recalled_while_the_job_was_thinking_stays(monkeypatch: pytest.MonkeyPatch):
    """Rule: what became safe between choosing and archiving is not archived."""
    up = upkeep(**ALL)
    put(up, a_memory("e1"), a_memory("e2"))
    point, chosen = current(up)["e1"].point_id, forgetting.choose

    def recalled_meanwhile(*given, **more):
        choice = chosen(*given, **more)
        up.store.set_usage("event_log", {point: used_at(59)})
        return choice

    monkeypatch.setattr(forgetting, "choose", recalled_meanwhile)
    forget(up, day(60))

    assert archived(up) == {"e2"}


def test_a_memory_changed_while_the_job_was_thinking_is_left_alone():
    """Rule: two writers are compared, never overwritten."""
    up = upkeep(**ALL)
    put(up, a_memory("e1"))
    stale = current(up)["e1"]
    change(up, "e1", day(1), "agent:b", pinned=True)

    written = change(up, "e1", day(60), "job:forget", of=stale, status=Status.ARCHIVED)

    assert written == []
    assert current(up)["e1"].pinned
    assert len(versions_of(up.store, "e1", None)) == 2


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "kind": st.sampled_from(list(MemoryType)),
                "origin": st.sampled_from(list(Origin)),
                "pinned": st.booleans(),
                "importance": st.floats(0, 1),
                "recorded_at": st.integers(0, 300).map(day),
            }
        ),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from(POLICIES),
)
def test_archiving_then_undoing_is_the_identity(memories, policy):
    """Law: archiving then restoring gives back every memory exactly."""
    up = upkeep(**ALL, policy=policy, max_entries=5)
    put(up, *(a_memory(f"m{index}", **fields) for index, fields in enumerate(memories)))
    before = current(up)
    report = forget(up, day(400))
    if report.changed:
        undo_last(up, day(401))

    after = current(up)
    assert all(same_meaning(before[memory_id], after[memory_id]) for memory_id in before)
    assert all(after[m].status is Status.ARCHIVED for m in set(after) - set(before))


def test_restoring_brings_back_the_vectors_too():
    """Rule: a restored memory is found by meaning at once."""
    up = upkeep(**ALL)
    put(up, a_memory("e1"))
    before = up.store.get("event_log", [current(up)["e1"].point_id], with_vectors=True)[0]

    forget(up, day(60))
    undo_last(up, day(61))

    after = up.store.get("event_log", [current(up)["e1"].point_id], with_vectors=True)[0]
    assert after.memory.version == 3
    assert (after.vectors["dense"] == before.vectors["dense"]).all()
    assert after.words == before.words


def test_an_unknown_policy_is_refused():
    """Rule: a setting that cannot be is an error, not a default."""
    with pytest.raises(ValueError, match="policy 'fifo'"):
        forget(upkeep(policy="fifo"), day(1))


def test_what_a_human_restored_is_not_forgotten_again():
    """Rule: human-written memories are exempt, and bringing one back by hand is a human's word."""
    up = upkeep(**ALL)
    put(up, a_memory("e1"))
    forget(up, day(60))
    restored = undo_last(up, day(61))

    assert [m.status for m in restored] == [Status.ACTIVE]
    assert [forget(up, day(d)).changed for d in (61.5, 100, 1000)] == [0, 0, 0]


def test_what_cannot_be_folded_within_the_cap_waits():
    """Rule: reflection-summary archives only what a digest keeps; `max_entries` holds all the same."""
    up = upkeep(policy="reflection_summary", max_archived_share=0.05)
    put(up, *(a_memory(f"{c}{i}", scope=Scope(conversation=c)) for c in "ab" for i in range(5)))
    report = forget(up, day(60))
    assert (len(archived(up)), report.left, report.counts["digests"]) == (3, True, 1)
    assert len({name[0] for name in archived(up)}) == 1

    roomy = upkeep(policy="reflection_summary", max_archived_share=0.1)
    put(roomy, *(a_memory(f"e{i}", scope=Scope(conversation="c")) for i in range(40)))
    assert forget(roomy, day(60)).counts["digests"] == 1
    assert len(archived(roomy)) == 4

    full = upkeep(policy="reflection_summary", max_archived_share=0.05, max_entries=10)
    put(full, *(a_memory(f"e{i}", scope=Scope(conversation=f"c{i}")) for i in range(40)))
    forget(full, day(60))
    assert len(archived(full)) == 3


@pytest.mark.slow
def test_a_memory_lives_as_long_as_its_shown_strength_says():
    """Rule forgetting.shown: what `show` gives decides; the median life is what the formula without noise says."""
    rules = {"max_archived_share": 1.0, "recent_days": 0.0}
    up = upkeep(**rules, policy="priority_decay")
    put(up, *(a_memory(f"e{i}") for i in range(400)), embed=False)
    lives: dict[str, int] = {}
    for night in range(1, 60):
        shown = {key: strength_of(memory, day(night), up.activation) for key, memory in current(up).items()}
        forget(up, day(night))
        gone = archived(up) - set(lives)
        lives |= dict.fromkeys(gone, night)
        assert all(shown[key] < up.lifecycle.forget_below for key in gone)
        assert all(shown[key] >= up.lifecycle.forget_below for key in set(current(up)) - archived(up))

    calm = replace(up.activation, noise=0.0)
    told = next(
        night for night in range(60) if strength_of(a_memory("e"), day(night), calm) < up.lifecycle.forget_below
    )
    assert 0.95 <= statistics.median(lives.values()) / told <= 1.05


def test_a_small_store_folds_too():
    """Rule forgetting.fold: the night's cap leaves room for one digest, however few memories there are."""
    up = upkeep()
    put(up, *(a_memory(f"e{i}") for i in range(5)))

    assert forget(up, day(90)).counts["digests"] == 1


def test_rates_noise_intervals_and_grace_are_settings(tmp_path: Path):
    """Rule settings.real: what is set is what fades, by how much it varies, and when jobs run."""
    own = {"half_life_days": {"event": 30}, "noise": 0, "intervals_h": {"forget": 6}, "recent_days": 1}
    core = ephemeral_core(tmp_path, settings=Settings.model_validate({"lifecycle": own}))
    activation = core.upkeep.activation

    assert strength_of(a_memory("e"), day(30), activation) == pytest.approx(50)
    assert activation.rates[MemoryType.EPISODE] == 0.10
    assert core.scheduler.jobs["forget"].every == timedelta(hours=6)
    assert core.upkeep.lifecycle.recent_days == 1


def test_a_store_of_events_alone_loses_what_it_gains_and_no_more():
    """Rule forgetting.balance: the cap leaves room for what is written a day, so that shown strength decides there too;
    where nothing is written any more it is the share alone."""
    up = upkeep(policy="priority_decay")
    up = replace(up, activation=replace(up.activation, noise=0.0))
    told = next(night for night in range(60) if strength_of(a_memory("e"), day(night), up.activation) < 20)
    lives: dict[str, int] = {}
    for night in range(1, 3 * told):
        if night <= 2 * told:
            put(up, *(a_memory(f"e{night}n{i}", recorded_at=day(night - 1)) for i in range(7)), embed=False)
        forget(up, day(night))
        lives |= dict.fromkeys(archived(up) - set(lives), night)

    spans = [night - int(key[1:].partition("n")[0]) + 1 for key, night in lives.items() if night <= 2 * told]
    assert statistics.median(spans) == told
    quiet = upkeep()
    put(quiet, *(a_memory(f"q{i}") for i in range(500)), embed=False)
    assert forget(quiet, day(90)).counts["cap"] == 10
