"""Purge: a human erases for good, everywhere it can reach, and is told where it cannot."""

from __future__ import annotations

import json
from dataclasses import replace

import disk
import pytest
from stores import records_in
from timekit import EMBEDDER, a_memory, current, day, put, upkeep

from memory_anchor.admin.purge import Cache, LinesFile, WholeFile, holders_in, purge_ids, purge_text
from memory_anchor.domain.errors import BadInput, NotFound, Refused
from memory_anchor.domain.model import COLLECTIONS, Caller, Citation, MemoryType, Scope, Status, Tag
from memory_anchor.domain.versions import revise
from memory_anchor.domain.where import Where
from memory_anchor.upkeep.forgetting import forget
from memory_anchor.upkeep.job_kit import Change, write

SECRET = "hunter2-密码"
HUMAN = {"caller": Caller.HUMAN, "at": day(9), "by": "human:me"}


def everything(up):
    return [e.memory for name in COLLECTIONS for e in up.store.scan(name, Where(), page=10_000)[0]]


def edit(up, memory_id, **changes):
    now = current(up)[memory_id]
    step = revise(now, replace(now, **changes), at=day(1), author="agent:a", reason="edit")
    write(up, [Change(step)], kind="edit", by="agent:a", at=day(1))


def test_a_memory_is_erased_in_every_version():
    """Rule: purge erases every version; others stay."""
    up = upkeep()
    put(up, a_memory("m", "first wording of it"), a_memory("other", "unrelated words"))
    edit(up, "m", content="second wording")
    edit(up, "m", status=Status.ARCHIVED)

    told = purge_ids(up, ["m"], **HUMAN)

    assert {m.id for m in everything(up)} == {"other"}
    assert told.removed == {"event_log": ("m@1", "m@2", "m@3")}
    assert (told.versions, told.clean) == (3, True)


@pytest.mark.parametrize("caller", [Caller.AGENT, Caller.SYSTEM])
def test_only_a_human_purges(caller):
    """Rule: nothing an agent does erases."""
    up = upkeep()
    put(up, a_memory("m", SECRET))
    for purge, what in ((purge_ids, ["m"]), (purge_text, SECRET)):
        with pytest.raises(Refused, match="for humans"):
            purge(up, what, caller=caller, at=day(1), by="agent:a")

    assert len(everything(up)) == 1


def test_everything_that_contains_a_secret_goes_wherever_it_stands():
    """Rule: everything matching a secret, in every version, field and collection."""
    up = upkeep()
    put(
        up,
        a_memory("content", f"the key is {SECRET}"),
        a_memory("key", key=SECRET),
        a_memory("tag", tags=(Tag(SECRET),)),
        a_memory("cited", citations=(Citation("url", f"https://x.org/?k={SECRET}"),)),
        a_memory("reason", reason=f"because {SECRET}"),
        a_memory("fact", f"{SECRET} again", MemoryType.FACT),
        a_memory("was", SECRET),
        a_memory("clean"),
    )
    edit(up, "was", content="no secret any more")

    told = purge_text(up, SECRET, **HUMAN)

    assert {m.id for m in everything(up)} == {"clean"}
    assert told.clean
    assert set(told.removed) == {"event_log", "verified_fact"}


def test_the_search_context_of_neighbours_is_emptied_but_they_stay():
    """Rule: a neighbour keeps its own text; what it was indexed with goes, words and vectors too."""
    up = upkeep()
    put(up, a_memory("m", SECRET), a_memory("next", "Yes.", context=SECRET))

    told = purge_ids(up, ["m"], **HUMAN)

    (left,) = everything(up)
    entry = up.store.get("event_log", [left.point_id], with_vectors=True)[0]
    assert (left.content, left.context, told.emptied) == ("Yes.", "", ("next@1",))
    assert entry.vectors == {}
    assert told.clean


def test_digests_made_of_an_erased_memory_go_too_and_people_s_quotations_are_listed():
    """Rule: what the product derived is erased; what somebody wrote waits for a decision."""
    up = upkeep(max_archived_share=1.0)
    scope = Scope(conversation="c")
    put(up, *(a_memory(f"m{i}", f"A long enough opening number {i}.", scope=scope) for i in range(3)))
    put(up, a_memory("quote", "He said: A long enough opening number 1. I agree.", recorded_at=day(88)))
    forget(up, day(90))
    assert any(m.type is MemoryType.SUMMARY for m in everything(up))

    told = purge_ids(up, ["m1"], **HUMAN)

    assert not any(m.type is MemoryType.SUMMARY for m in everything(up))
    assert told.mentions == ("quote@1",)
    assert {m.id for m in everything(up)} == {"m0", "m2", "quote"}


def test_files_and_caches_named_by_the_caller_are_purged(tmp_path):
    """Rule: the spool, reports, backups and caches it knows of; escaped text is recognised."""
    up = upkeep()
    put(up, a_memory("m", SECRET))
    spool, report, backup = tmp_path / "spool.jsonl", tmp_path / "report.json", tmp_path / "backup.jsonl"
    spool.write_text(json.dumps({"text": SECRET}) + "\n" + json.dumps({"text": "kept"}) + "\n{torn")
    report.write_text(json.dumps({"text": SECRET}))
    backup.write_text(json.dumps({"text": "nothing"}) + "\n")
    cleared = []
    holders = [
        LinesFile(spool),
        WholeFile(report),
        LinesFile(backup),
        LinesFile(tmp_path / "none"),
        Cache("answers", lambda: cleared.append(1)),
    ]

    told = purge_text(up, SECRET, holders=holders, **HUMAN)

    assert spool.read_text() == json.dumps({"text": "kept"}) + "\n{torn"
    assert not report.exists()
    assert told.files == {"spool.jsonl": 1, "report.json": 1, "backup.jsonl": 0, "none": 0, "answers": 0}
    assert cleared == [1, 1]


def test_neither_certificate_nor_audit_holds_the_text():
    """Rule: messages never quote memory text or secrets; what is out of reach is said."""
    up = upkeep()
    put(up, a_memory("m", SECRET))

    told = purge_text(up, SECRET, **HUMAN)

    assert SECRET not in str(told)
    assert SECRET not in str(up.audit.records)
    assert up.audit.records[-1]["kind"] == "purge"
    assert any("Git history" in line for line in told.out_of_reach)


def test_a_text_too_short_and_an_unknown_id_erase_nothing():
    """Rule: one sentence with what is allowed."""
    up = upkeep()
    put(up, a_memory("m", "ok"))

    with pytest.raises(BadInput, match="at least 4"):
        purge_text(up, " ok ", **HUMAN)
    with pytest.raises(NotFound):
        purge_ids(up, ["nope"], **HUMAN)
    assert len(everything(up)) == 1


def test_purging_twice_is_the_same_as_once():
    """Rule: a purge cut short can be repeated; a text that is nowhere leaves a clean certificate."""
    up = upkeep()
    put(up, a_memory("m", SECRET))
    purge_text(up, SECRET, **HUMAN)

    again = purge_text(up, SECRET, **HUMAN)

    assert (again.removed, again.clean) == ({}, True)


def test_a_short_memory_does_not_empty_every_context_that_contains_it():
    """Rule: erase what quotes it, not what shares two letters."""
    up = upkeep()
    put(up, a_memory("m", "ok"), a_memory("a", "x", context="looking around"), a_memory("b", "y", context="ok"))

    assert purge_ids(up, ["m"], **HUMAN).emptied == ("b@1",)


def test_no_file_of_the_embedded_store_holds_the_text_afterwards(tmp_path):
    """Rule: deleted text survives in the database's log, so that is cut, for an emptied context too."""
    from stores import file_store

    from memory_anchor.domain.ports import DENSE, CollectionSpec

    store = file_store(tmp_path / "data" / "store")
    for name in COLLECTIONS:
        store.open_collection(name, CollectionSpec({DENSE: EMBEDDER.identity}))
    up = upkeep(store)
    put(up, a_memory("m", "xylophone-secret-one"), a_memory("only", "kept", context="xylophone-secret-two"))

    for secret in ("xylophone-secret-one", "xylophone-secret-two"):
        assert purge_text(up, secret, **HUMAN).clean
    store.close()

    assert disk.holding(tmp_path / "data", "xylophone") == []


def test_what_lies_beside_the_store_is_found(tmp_path):
    """Rule: the spool, the reports, the evaluations and the backups it knows of."""
    held = ("spool/1.json", "contexts/a.json", "backups/b/all.jsonl", "backups/b/other.bin")
    for name in (*held, "evaluations/golden.jsonl", "evaluations/run-golden-1.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps({"text": SECRET}))
    up = upkeep()

    records = records_in(tmp_path)
    records.write("jobs/tags.json", json.dumps({"text": SECRET}).encode(), before=None)

    told = purge_text(up, SECRET, holders=holders_in(tmp_path, records), **HUMAN)

    assert told.files == {
        "1.json": 1,
        "a.json": 1,
        "all.jsonl": 1,
        "golden.jsonl": 1,
        "run-golden-1.json": 1,
        "tags.json": 1,
    }
    assert holders_in(tmp_path / "nothing", records_in(tmp_path / "nothing")) == ()
