"""What kind of sentence a text is (`language/shape.py`): headings and a date at its head are no part of it."""

from __future__ import annotations

import time

import pytest

from memory_anchor.language.shape import shape_of, wants_time


@pytest.mark.parametrize(
    "text",
    [
        "## 3. Costs\n\n[8 May 2023] Ada: The pump is dear.\n",
        "# Minutes of May 2023\n\n## D1:3\nThe pump is dear.\n",
        "[8 May 2023] The pump is dear.",
    ],
)
def test_a_heading_and_a_date_below_it_tell_neither_a_time_nor_a_number(text: str) -> None:
    """Rule shape.headings: "## 3. Costs" answers no "when" and no "how many"; what is below it may."""
    shape = shape_of(text)
    assert (shape.tells_time, shape.tells_number) == (False, False)


def test_what_stands_below_a_heading_tells_its_time_and_number() -> None:
    """Rule shape.headings: the body counts, a later heading and a tag-like # inside it too."""
    below = shape_of("## Costs\n\n[8 May 2023] Ada: The pump broke last week, three times.\n")
    assert (below.tells_time, below.tells_number) == (True, True)
    assert shape_of("It broke.\n## 3. Costs\nDear.").tells_number
    assert shape_of("#42 is the ticket.\nIt is open.").tells_number  # no heading: nothing stands between
    assert shape_of("## Why does it leak?").asks  # a heading alone is what the text says
    assert not shape_of("## Why does it leak?\nThe seal is worn.").asks


def test_a_thousand_headings_are_read_in_no_time() -> None:
    """Rule shape.bounded: a text of nothing but headings costs one pass."""
    began = time.process_time()
    shape_of("\n".join("# a" for _ in range(100_000)))
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("query", "asks"),
    [
        ("When did we move to the new office?", True),
        ("since when is it so", True),
        ("do you know when Ana comes back", True),
        ("where and when do we meet", True),
        ("when or how often is it cleaned", True),
        ("how long did it take when we moved", True),
        ("what happens when the disk is full", False),
        ("when two engines start at once, which of them serves", False),
        ("Who helps Ana when she is sad?", False),
        ("when is the place where we meet open", True),
        ("When did we find out how the leak starts?", True),
        ("Is it safe to deploy when a migration runs?", False),
        ("Does the cache clear when we restart?", False),
        ("什么时候搬家", True),
    ],
)
def test_when_beside_another_question_word_names_a_case_and_asks_for_no_time(query: str, *, asks: bool) -> None:
    """Rule shape.when: a time in a passage counts only where a time is asked for."""
    assert wants_time(query) is asks
