"""Tags that occur together: what a question wants by its tags, and for whom."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.domain.model import Tag
from memory_anchor.language.terms import terms
from memory_anchor.recall.cooccurrence import WANTED_MOST, TagNeighbours, TagTable, affinity, count_tags

NAMES = st.sampled_from(["deploy", "nginx", "ci-cd", "部署", "front end", "salary", "oncall"])
TAGGED = st.lists(st.tuples(st.sampled_from(["p|a", "u|me", "u|you"]), st.lists(NAMES, max_size=4)), max_size=20)


def counted(*tagged):
    tags = TagNeighbours(lambda: None)
    tags.replace(count_tags(tagged))
    return tags


def test_a_question_names_a_tag_in_either_language_and_brings_its_neighbours():
    """Rule: tags that occur together help recall."""
    tags = counted(*[("p", ("ci-cd", "runner"))] * 3, *[("p", ("部署", "nginx"))] * 2, ("p", ("nginx",)))

    assert tags.wanted(terms("why is the CI CD so slow?"), ["p"]) == {"ci-cd": 1.0, "runner": 1.0}
    assert tags.wanted(terms("上次部署为什么失败"), ["p"]) == {"部署": 1.0, "nginx": 2 / 3}
    assert tags.wanted(terms("what about lunch"), ["p"]) == {}


def test_counts_of_several_audiences_add_up_for_who_holds_them_all():
    """Rule: an answer is made of the reader's own audiences and of nothing else."""
    tags = counted(*[("p", ("a1", "b1"))] * 2, *[("u", ("a1", "b1"))] * 2, *[("u", ("b1", "c1"))] * 4)

    assert tags.wanted(["a1"], ["p"]) == {"a1": 1.0, "b1": 1.0}
    assert tags.wanted(["a1"], ["p", "u"]) == {"a1": 1.0, "b1": 0.5}


@given(TAGGED, TAGGED, st.lists(NAMES, max_size=4))
def test_what_others_tag_changes_nothing_of_an_answer(tagged, others, query):
    """Rule: tags of memories that the caller may not read are never revealed, not even by what they shift."""
    mine = [one for one in tagged if one[0] != "u|you"]
    theirs = [("u|you", names) for _, names in others]
    query_terms = terms(" ".join(query))

    readers = ["p|a", "u|me"]
    assert counted(*mine, *theirs).wanted(query_terms, readers) == counted(*mine).wanted(query_terms, readers)


@given(TAGGED)
def test_a_table_survives_being_kept(tagged):
    """Rule: round trip."""
    table = count_tags(tagged)
    kept = TagNeighbours(lambda: json.loads(json.dumps(table.as_json())))

    for name in ("deploy", "ci cd", "部署"):
        assert kept.wanted(terms(name), ["p|a", "u|me"]) == counted(*tagged).wanted(terms(name), ["p|a", "u|me"])


def test_a_table_that_is_torn_or_cleared_answers_nothing():
    """Rule: derived, and empty until it is counted anew."""
    assert TagNeighbours(lambda: "torn").wanted(["deploy"], ["p"]) == {}
    tags = counted(("p", ("deploy", "nginx")), ("p", ("deploy", "nginx")))
    tags.clear()
    assert tags.wanted(["deploy"], ["p"]) == {}


def test_an_answer_is_bounded():
    """Rule: every bound is a name."""
    others = [f"tag{i:02}" for i in range(40)]
    tags = TagNeighbours(lambda: None)
    tags.replace(TagTable({"p": dict.fromkeys(["hub", *others], 9)}, {"p": {("hub", other): 9 for other in others}}))

    assert len(tags.wanted(["hub"], ["p"])) == WANTED_MOST


@given(st.lists(st.tuples(NAMES, st.floats(0, 10)), max_size=6), st.dictionaries(NAMES, st.floats(0, 1)))
def test_affinity_grows_with_weight_and_stays_below_one(weighted, wanted):
    """Rule: tag weights count; the measure is 0 to 1."""
    tags = [Tag(name, weight) for name, weight in weighted]
    heavier = [Tag(tag.name, tag.weight + 1) for tag in tags]

    assert 0.0 <= affinity(tags, wanted) <= affinity(heavier, wanted) <= 1.0
