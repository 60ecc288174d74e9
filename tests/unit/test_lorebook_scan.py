"""Lorebooks: each rule of their semantics, by name."""

from __future__ import annotations

import re

import pytest

from memory_anchor.extensions.lorebook.settings import LorebookSettings
from tests.unit.lorekit import admitted, book, scan, verdict, why

RECURSIVE = LorebookSettings(recursive=True)


# --- scan text ---------------------------------------------------------------------------------------------------


def test_the_last_two_messages_are_scanned_unless_told_otherwise() -> None:
    """Rule lore.scan_depth: the default is 2."""
    lore = book({"key": ["first"]}, {"key": ["second"]}, {"key": ["third"]})

    assert admitted(scan(lore, "first", "second", "third")) == ["1", "2"]


def test_a_book_overrides_the_scan_depth() -> None:
    """Rule lore.scan_depth: the book's word counts before the settings'."""
    lore = book({"key": ["far"]}, {"key": ["farthest"]}, scan_depth=3)

    assert admitted(scan(lore, "farthest", "far", "b", "c")) == ["0"]


def test_scan_depth_zero_sees_only_what_recursion_adds() -> None:
    """Rule lore.scan_depth: 0 = only what recursion adds."""
    lore = book({"key": ["gate"], "constant": True, "content": "the tower"}, {"key": ["tower"]}, scan_depth=0)

    assert admitted(scan(lore, "the tower")) == ["0"]
    assert admitted(scan(lore, "nothing", settings=RECURSIVE)) == ["0", "1"]


def test_the_speakers_name_is_scanned_too() -> None:
    """Rule lore.scan_text: it stands before the message."""
    assert admitted(scan(book({"key": ["Ada"]}), "hello", said_by=("Ada",))) == ["0"]


def test_no_key_is_found_across_two_messages() -> None:
    """Rule lore.scan_text: each message is a text of its own."""
    assert admitted(scan(book({"key": ["red door"]}), "red", "door")) == []


# --- keys ----------------------------------------------------------------------------------------------------------


def test_case_counts_only_where_it_is_set() -> None:
    """Rule lore.keys: case-insensitive unless set."""
    lore = book({"key": ["Rose"]}, {"key": ["Rose"], "caseSensitive": True})

    assert admitted(scan(lore, "a rose")) == ["0"]
    assert admitted(scan(lore, "a Rose")) == ["0", "1"]


@pytest.mark.parametrize(
    ("key", "text", "stands"),
    [
        ("cat", "the cat sat", True),
        ("cat", "cat", True),
        ("cat", "a cat!", True),
        ("cat", "category", False),
        ("cat", "bobcat", False),
        ("cat", "cat_food", False),
        ("cat", "category and cat", True),
        ("red cat", "infrared cats", True),
        ("龙", "巨龙来了", True),
        ("部署", "怎么部署这个项目", True),
        ("部署 流程", "部署 流程图", True),
        ("pnpm", "请用pnpm安装", True),
        ("pnpm", "请用xpnpm安装", False),
        ("龙", "a龙b", True),
        ("ＡＰＩ", "the api key", True),
        ("c++", "we write c++.", True),
        ("café", "a cafés", False),
    ],
)
def test_whole_words_are_for_keys_of_one_word_without_cjk(key: str, text: str, stands: bool) -> None:
    """Rule lore.whole_words: one word between signs that are none of a word's, several and CJK by substring."""
    assert admitted(scan(book({"key": [key]}), text)) == (["0"] if stands else [])


def test_an_entry_takes_words_anywhere() -> None:
    """Rule lore.whole_words: it can be turned off."""
    lore = book({"key": ["cat"]}, {"key": ["cat"], "matchWholeWords": False})

    assert admitted(scan(lore, "category")) == ["1"]


@pytest.mark.parametrize(
    ("key", "text", "stands"),
    [
        ("/drag[oa]n/", "a dragan", True),
        ("/drag[oa]n/", "a Dragon", False),
        ("/drag[oa]n/i", "a DRAGON", True),
        ("/^dragon$/m", "x\ndragon\ny", True),
        ("/a.b/s", "a\nb", True),
        (r"/v\d+\/x/", "v12/x", True),
        ("/龙(王|宫)/", "东海龙宫", True),
        ("/a", "/a", True),
    ],
)
def test_a_key_between_slashes_is_an_expression(key: str, text: str, stands: bool) -> None:
    """Rule lore.regex: /regex/flags; its flags alone say whether case counts."""
    assert admitted(scan(book({"key": [key]}), text)) == (["0"] if stands else [])


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("/(?=look)ahead/", "look-around"),
        (r"/(a)\1/", "backreferences"),
        ("/[/", "unclosed"),
        ("/x/q", "flag"),
        ("/(a{900}){900}/", "repeats"),
        (r"/\w{1000}\w{1000}/", "linear time|repeats"),
    ],
)
def test_an_expression_that_cannot_be_run_is_named_and_the_entrys_other_keys_count(key: str, what: str) -> None:
    """Rule lore.regex: safe matching; what it has no room for is said in one sentence."""
    found = scan(book({"key": [key, "plain"]}), "plain")

    assert admitted(found) == ["0"]
    assert [note for note in found.notes if "entry 0" in note and re.search(what, note) and "\n" not in note]


# --- secondary keys ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("logic", "none", "one", "both"),
    [
        pytest.param(0, False, True, True, id="and-any"),
        pytest.param(1, True, True, False, id="not-all"),
        pytest.param(2, True, False, False, id="not-any"),
        pytest.param(3, False, False, True, id="and-all"),
    ],
)
def test_secondary_keys_decide_after_a_primary_one(logic: int, none: bool, one: bool, both: bool) -> None:
    """Rule lore.secondary: and-any, not-all, not-any, and-all."""
    lore = book({"key": ["magic"], "keysecondary": ["fire", "ice"], "selective": True, "selectiveLogic": logic})
    found = [scan(lore, text) for text in ("magic", "magic fire", "magic fire ice", "fire ice")]

    assert [admitted(one_scan) == ["0"] for one_scan in found] == [none, one, both, False]
    assert why(found[3], 0) == "no key matched"
    assert {why(held, 0) for held in found[:3]} <= {"key", "secondary keys"}


def test_without_secondary_keys_a_primary_one_is_enough() -> None:
    """Rule lore.secondary: an empty list suffices, and so does an entry that is not selective."""
    lore = book(
        {"key": ["magic"], "keysecondary": [], "selective": True, "selectiveLogic": 3},
        {"key": ["magic"], "keysecondary": ["fire"], "selective": False},
    )

    assert admitted(scan(lore, "magic")) == ["0", "1"]


def test_a_disabled_entry_is_not_admitted_because_it_is_constant() -> None:
    """Rule lore.checks: disabled, then constant, then keys; the first that decides is the reason given."""
    lore = book({"constant": True, "disable": True}, {"constant": True, "key": ["go"]}, {"key": ["go"]})

    found = scan(lore, "go")

    assert [why(found, uid) for uid in range(3)] == ["disabled", "constant", "key"]


def test_constants_are_admitted_before_matches_whatever_their_order() -> None:
    """Rule lore.budget: constants before matches."""
    assert admitted(scan(book({"key": ["go"], "order": 900}, {"constant": True, "order": 1}), "go")) == ["1", "0"]


# --- budget --------------------------------------------------------------------------------------------------------


def test_the_higher_order_is_admitted_first_while_it_fits_and_the_first_that_does_not_stops_the_rest() -> None:
    """Rule lore.budget: by order; nothing smaller slips in behind."""
    lore = book(
        {"key": ["go"], "order": 10, "content": "x"},
        {"key": ["go"], "order": 30, "content": "a b c"},
        {"key": ["go"], "order": 20, "content": "a b c d"},
    )

    found = scan(lore, "go", budget=6)

    assert admitted(found) == ["1"]
    assert (why(found, 2), why(found, 0)) == ("budget", "budget")
    assert found.overflowed


def test_direct_matches_come_before_recursive_ones_whatever_their_order() -> None:
    """Rule lore.budget: direct before recursive."""
    lore = book({"key": ["go"], "order": 1, "content": "deep"}, {"key": ["deep"], "order": 999})

    assert admitted(scan(lore, "go", settings=RECURSIVE)) == ["0", "1"]


def test_a_book_bounds_its_own_entries() -> None:
    """Rule lore.budget: a book's token_budget."""
    lore = book({"key": ["go"], "content": "a b c"}, {"key": ["go"], "content": "d e f"}, token_budget=4)
    other = book({"key": ["go"], "content": "g h i"}, name="other").model_copy(update={"id": "other"})

    found = scan([other, lore], "go", budget=100)

    assert [verdict.id for verdict in found.admitted] == ["other/0", "book/0"]


def test_weighted_entries_share_what_is_left_fairly() -> None:
    """Rule lore.budget_weight: trimmed by weight; what one does not need goes to the others."""
    long = " ".join(f"w{number}" for number in range(400))
    lore = book(
        {"key": ["go"], "content": long, "budgetWeight": 1},
        {"key": ["go"], "content": long, "budgetWeight": 3},
        {"key": ["go"], "content": "short one", "budgetWeight": 1},
        {"key": ["go"], "content": "taken whole"},
    )

    found = scan(lore, "go", budget=204)
    tokens = {verdict.entry.uid: verdict.tokens for verdict in found.admitted}

    assert tokens["3"] == 2
    assert tokens["2"] == 2
    assert 45 <= tokens["0"] <= 50 < 140 <= tokens["1"] <= 150
    assert verdict(found, 0).detail == "trimmed from 400 tokens"
    assert verdict(found, 0).text.endswith("[…]")
    assert found.tokens <= 204


# --- recursion -----------------------------------------------------------------------------------------------------


def test_what_was_admitted_is_the_next_passs_text_until_nothing_is_new() -> None:
    """Rule lore.recursion."""
    lore = book({"key": ["a1"], "content": "b1"}, {"key": ["b1"], "content": "c1"}, {"key": ["c1"], "content": "a1"})

    found = scan(lore, "a1", settings=RECURSIVE)

    assert [(verdict.entry.uid, verdict.pass_number) for verdict in found.admitted] == [("0", 1), ("1", 2), ("2", 3)]
    assert admitted(scan(lore, "a1")) == ["0"]


def test_prevented_entries_call_nobody_and_excluded_ones_are_not_called() -> None:
    """Rule lore.recursion: prevent_recursion, and excluded from recursion."""
    lore = book(
        {"key": ["a1"], "content": "b1 c1"},
        {"key": ["b1"], "content": "d1", "preventRecursion": True},
        {"key": ["c1"], "excludeRecursion": True},
        {"key": ["d1"]},
    )

    found = scan(lore, "a1", settings=RECURSIVE)

    assert admitted(found) == ["0", "1"]
    assert (why(found, 2), why(found, 3)) == ("no key matched", "no key matched")


def test_recursion_ends_after_its_steps_and_with_the_budget() -> None:
    """Rule lore.recursion: max_recursion_steps counts passes, 1 is none; a full budget ends it."""
    chain = [{"key": [f"k{at}"], "content": f"k{at + 1}"} for at in range(9)]

    for steps in (1, 2, 3):
        settings = LorebookSettings(recursive=True, max_recursion_steps=steps)
        assert len(scan(book(*chain), "k0", settings=settings).admitted) == steps
    assert len(scan(book(*chain), "k0", settings=RECURSIVE, budget=4).admitted) == 4


def test_a_book_says_itself_whether_its_entries_recurse() -> None:
    """Rule lore.recursion: recursive_scanning of a book."""
    lore = book({"key": ["a1"], "content": "b1"}, {"key": ["b1"]}, recursive_scanning=True)
    still = book({"key": ["a1"], "content": "b1"}, {"key": ["b1"]}, recursive_scanning=False)

    assert admitted(scan(lore, "a1")) == ["0", "1"]
    assert admitted(scan(still, "a1", settings=RECURSIVE)) == ["0"]


# --- positions, report ---------------------------------------------------------------------------------------------


def test_positions_become_prefix_or_tail_by_order() -> None:
    """Rule lore.positions: the higher order stands later; what world info calls an outlet is the tail."""
    lore = book(
        {"constant": True, "position": 4, "order": 1},
        {"constant": True, "position": 1, "order": 50},
        {"constant": True, "position": 0, "order": 40},
        {"constant": True, "position": 7, "order": 3},
    )

    placed = scan(lore, "x").in_prompt_order()

    assert [(verdict.entry.uid, verdict.entry.place) for verdict in placed] == [
        ("2", "prefix"), ("1", "prefix"), ("0", "tail"), ("3", "tail")
    ]  # fmt: skip


def test_the_report_has_every_entry_that_a_text_names_with_its_reason() -> None:
    """Rule lore.report: admitted with why, key, pass and tokens; dropped with why."""
    lore = book({"key": ["go"], "content": "one two"}, {"key": ["no"]}, {"constant": True, "disable": True})

    found = scan(lore, "Go!")

    first = found.admitted[0]
    assert (first.why.value, first.key, first.pass_number, first.tokens) == ("key", "go", 1, 2)
    assert [(verdict.entry.uid, verdict.why.value) for verdict in found.dropped] == [("2", "disabled")]
