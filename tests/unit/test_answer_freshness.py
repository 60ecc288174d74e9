"""How what is recalled stands now: marked and ranked lower where it does not hold, never hidden."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.domain.freshness import FreshnessChecker, with_line_hash, worst_freshness
from memory_anchor.domain.model import (
    Citation,
    Epistemic,
    Layer,
    Locator,
    MemoryType,
    RetrievedSnippet,
    SearchAnswer,
    Tag,
)
from memory_anchor.ingest.candidates import Candidate, new_candidates, stored_as
from memory_anchor.recall.order import with_freshness
from memory_anchor.recall.snippets import marked
from memory_anchor.use_cases.memory import MemoryAnchor

TEXT = "one\ntwo\nthree\n"


class Files:
    def stamp(self, ref):
        return "0" if ref == "a.py" else None

    def text(self, ref):
        return TEXT if ref == "a.py" else None

    def elsewhere(self, ref):
        return []


def snippet(name, score, *citations, tags=()):
    return RetrievedSnippet(
        name, "t", score, Layer.VERIFIED_FACT, "fact", None, tags=tuple(map(Tag, tags)), citations=citations
    )


def cite(ref="a.py", text=TEXT):
    return with_line_hash(Citation("file", ref, locator=Locator(2, 2)), text)


def test_what_no_longer_stands_in_the_code_ranks_lower_and_is_marked():
    """Rule: checked on recall; stale facts are marked and rank lower."""
    answer = SearchAnswer(
        (
            snippet("stale", 0.9, cite(text="x\nold\n")),
            snippet("gone", 0.8, cite("b.py")),
            snippet("fresh", 0.7, cite()),
            snippet("none", 0.6),
        )
    )

    told = with_freshness(answer, FreshnessChecker(Files()))

    assert [(s.id, s.score) for s in told.snippets] == [("fresh", 0.7), ("none", 0.6), ("stale", 0.54), ("gone", 0.48)]
    assert [worst_freshness(s.citations) for s in told.snippets] == ["fresh", None, "stale", "gone"]


def test_what_is_to_verify_ranks_lower_and_a_refuted_idea_is_a_warning():
    """Rule: faded confidence ranks lower; refuted ideas stay findable as warnings."""
    answer = SearchAnswer(
        (snippet("unsure", 0.9, tags=["to-verify"]), snippet("sure", 0.8), snippet("no", 0.7, tags=["refuted"])),
        notes=("first",),
    )

    told = with_freshness(answer, None)

    assert [s.id for s in told.snippets] == ["sure", "unsure", "no"]
    assert told.notes == ("first", "no was refuted; it is kept as a warning")


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from([(), ("to-verify",), ("refuted",), ("x",)])), max_size=10))
def test_nothing_is_ever_hidden_and_what_stands_keeps_its_order(told):
    """Law: the same snippets, none scored higher, those that stand in the order they had."""
    snippets = [snippet(str(n), score, tags=tags) for n, (score, tags) in enumerate(sorted(told, reverse=True))]

    after = with_freshness(SearchAnswer(tuple(snippets)), None).snippets

    assert {s.id for s in after} == {s.id for s in snippets}
    assert all(s.score <= round(snippets[int(s.id)].score, 4) for s in after)
    sound = [s.id for s in after if not any(t.name == "to-verify" for t in s.tags)]
    assert sound == sorted(sound, key=int)


def test_a_memory_carries_the_mark_of_its_status_and_no_other():
    """Rule: hypothesis, verified, refuted; verified ends to-verify."""
    tags = (Tag("net"), Tag("to-verify"), Tag("hypothesis"))

    assert [t.name for t in marked(tags, Epistemic.REFUTED)] == ["net", "to-verify", "refuted"]
    assert [t.name for t in marked(tags, Epistemic.VERIFIED)] == ["net"]
    assert [t.name for t in marked((), Epistemic.HYPOTHESIS)] == ["hypothesis"]


def test_a_tag_refutes_nothing(anchor: MemoryAnchor) -> None:
    """Rule tags.free: a mark is told of a memory that was judged so, not of one that has the tag by itself."""
    tagged = anchor.save_memory("The cache is cleared by restarting nginx", tags=["refuted", "net"]).id
    judged = anchor.save_memory("The lock file is what made the build hang", tags=["net"]).id
    anchor.curation.judge(judged, "refuted", "make -j4")

    (one,), (other,) = (anchor.search(said, limit=1).snippets for said in ("restarting nginx", "lock file build hang"))

    assert (one.id, [tag.name for tag in one.tags]) == (tagged, ["net"])
    assert (other.id, [tag.name for tag in other.tags]) == (judged, ["net", "refuted"])
    assert not any("refuted" in note for note in anchor.search("restarting nginx", limit=1).notes)


def test_what_a_model_tags_as_read_off_tools_is_a_repeat_all_the_same() -> None:
    """Rule tags.free: a tag that a model chose does not make a repeat of it a memory of its own."""
    said = ("Deploys run `make ship` on Fridays.", "Deploys run `make ship` on fridays")
    found = [
        Candidate(
            text, **stored_as(MemoryType.WORKFLOW, 0.6), quote=text, about="project", seq=at, tags=(Tag("tool-calls"),)
        )
        for at, text in enumerate(said)
    ]

    assert [one.seq for one in new_candidates(found, "", ())] == [0]
