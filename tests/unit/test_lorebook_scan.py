"""Lorebooks: each rule of their semantics, by name."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from memory_anchor.knowledge.lorebook_scan import budget_for
from memory_anchor.settings import LorebookSettings
from tests.unit.lorekit import admitted, book, scan, verdict, why

RECURSIVE = LorebookSettings(recursive=True)


# --- scan text ---------------------------------------------------------------------------------------------------


def test_the_last_two_messages_are_scanned_unless_told_otherwise() -> None:
    """Rule lore.scan_depth: the default is 2."""
    lore = book({"key": ["first"]}, {"key": ["second"]}, {"key": ["third"]})

    assert admitted(scan(lore, "first", "second", "third")) == ["1", "2"]


def test_a_book_and_then_an_entry_override_the_scan_depth() -> None:
    """Rule lore.scan_depth: the entry's word counts before the book's, the book's before the settings'."""
    lore = book({"key": ["far"]}, {"key": ["far"], "scanDepth": 1}, {"key": ["farthest"], "scanDepth": 4}, scan_depth=3)

    assert admitted(scan(lore, "farthest", "far", "b", "c")) == ["0", "2"]


def test_scan_depth_zero_sees_only_what_recursion_adds() -> None:
    """Rule lore.scan_depth: 0 = only what recursion adds."""
    lore = book({"key": ["gate"], "content": "the tower"}, {"key": ["tower"], "scanDepth": 0})

    assert admitted(scan(lore, "the tower", settings=RECURSIVE)) == []
    assert admitted(scan(lore, "the gate", settings=RECURSIVE)) == ["0", "1"]


def test_the_speakers_name_is_scanned_when_names_are_included() -> None:
    """Rule lore.include_names."""
    lore = book({"key": ["Ada"]})

    assert admitted(scan(lore, "hello", said_by=("Ada",))) == ["0"]
    assert admitted(scan(lore, "hello", said_by=("Ada",), settings=LorebookSettings(include_names=False))) == []


def test_no_key_is_found_across_two_messages() -> None:
    """Rule lore.scan_text: each message is a text of its own."""
    assert admitted(scan(book({"key": ["red door"]}), "red", "door")) == []


# --- keys ----------------------------------------------------------------------------------------------------------


def test_case_counts_only_where_it_is_set() -> None:
    """Rule lore.keys: case-insensitive unless set."""
    lore = book({"key": ["Rose"]}, {"key": ["Rose"], "caseSensitive": True})

    assert admitted(scan(lore, "a rose")) == ["0"]
    assert admitted(scan(lore, "a Rose")) == ["0", "1"]
    assert admitted(scan(lore, "a rose", settings=LorebookSettings(case_sensitive=True))) == []


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
        ("café", "a cafés", False),
    ],
)
def test_whole_words_are_for_keys_of_one_word_without_cjk(key: str, text: str, stands: bool) -> None:
    """Rule lore.whole_words: one word between signs that are none of a word's, several and CJK by substring."""
    assert admitted(scan(book({"key": [key]}), text)) == (["0"] if stands else [])


def test_an_entry_or_the_settings_take_words_anywhere() -> None:
    """Rule lore.whole_words: it can be turned off."""
    lore = book({"key": ["cat"]}, {"key": ["cat"], "matchWholeWords": False})

    assert admitted(scan(lore, "category")) == ["1"]
    assert admitted(scan(lore, "category", settings=LorebookSettings(match_whole_words=False))) == ["0", "1"]


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


def test_names_in_keys_and_texts_stand_for_who_speaks() -> None:
    """Rule lore.macros: {{user}} and {{char}}; what is no name stays as it is."""
    lore = book({"key": ["{{user}}"], "content": "{{user}} knows {{char}} and {{x}}"})

    assert admitted(scan(lore, "Li is here")) == []
    found = scan(lore, "Li is here", names={"user": "Li", "char": "Ada"})
    assert [verdict.text for verdict in found.admitted] == ["Li knows Ada and {{x}}"]


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
    assert {why(held, 0) for held in found[:3] if not held.admitted} <= {"secondary keys"}


def test_without_secondary_keys_a_primary_one_is_enough() -> None:
    """Rule lore.secondary: an empty list suffices, and so does an entry that is not selective."""
    lore = book(
        {"key": ["magic"], "keysecondary": [], "selective": True, "selectiveLogic": 3},
        {"key": ["magic"], "keysecondary": ["fire"], "selective": False},
    )

    assert admitted(scan(lore, "magic")) == ["0", "1"]


# --- checks in order -----------------------------------------------------------------------------------------------

HELD: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("disabled", {"disable": True}, {}),
    ("trigger", {"triggers": ["continue"]}, {}),
    ("scope filter", {"characterFilterNames": ["Bob"]}, {}),
    ("delay", {"delay": 9}, {}),
    ("cooldown", {"cooldown": 5}, {"started": {"book/0": 3}}),
    ("delayed until recursion", {"delayUntilRecursion": True}, {}),
    ("probability", {"probability": 0}, {}),
]


@pytest.mark.parametrize("first", range(len(HELD)), ids=[one[0] for one in HELD])
def test_the_first_check_that_fails_is_the_reason(first: int) -> None:
    """Rule lore.checks: disabled, trigger, filter, delay, cooldown, delayed until recursion, then chance."""
    fields: dict[str, Any] = {"key": ["go"]}
    given: dict[str, Any] = {"count": 4}
    for _, more, context in HELD[first:]:
        fields |= more
        given |= context

    assert why(scan(book(fields), "go", **given), 0) == HELD[first][0]


def test_an_entry_kept_out_by_a_check_is_not_admitted_because_it_is_constant() -> None:
    """Rule lore.checks: they come before forced, constant, sticky and keys."""
    lore = book({"constant": True, "disable": True}, {"constant": True, "delay": 5}, {"constant": True})

    found = scan(lore, "x", forced=frozenset({"book/0"}))

    assert admitted(found) == ["2"]
    assert (why(found, 0), why(found, 1)) == ("disabled", "delay")


def test_forced_comes_before_constant_before_sticky_before_keys() -> None:
    """Rule lore.checks: the first way in is the reason that is told."""
    lore = book({"key": ["go"], "constant": True, "sticky": 9})
    plain = book({"key": ["go"], "sticky": 9})
    sticks = {"started": {"book/0": 3}, "count": 4}

    assert why(scan(lore, "go", forced=frozenset({"book/0"}), **sticks), 0) == "forced"
    assert why(scan(lore, "go", **sticks), 0) == "constant"
    assert why(scan(plain, "go", **sticks), 0) == "sticky"
    assert why(scan(plain, "go"), 0) == "key"


def test_an_entry_is_for_its_kinds_of_generation() -> None:
    """Rule lore.triggers."""
    lore = book({"key": ["go"], "triggers": ["continue", "impersonate"]})

    assert admitted(scan(lore, "go", trigger="impersonate")) == ["0"]
    assert why(scan(lore, "go", trigger="normal"), 0) == "trigger"


def test_an_entry_is_for_a_name_or_a_tag_or_for_everybody_else() -> None:
    """Rule lore.filter: names, tags, and their exclusion; nested and flat fields alike."""
    lore = book(
        {"key": ["go"], "characterFilterNames": ["Ada"], "characterFilterTags": ["mage"]},
        {"key": ["go"], "characterFilter": {"names": ["Bob"], "tags": [], "isExclude": True}},
    )

    assert admitted(scan(lore, "go", character="Ada")) == ["0", "1"]
    assert admitted(scan(lore, "go", character="Eve", tags=frozenset({"mage"}))) == ["0", "1"]
    assert admitted(scan(lore, "go", character="Bob")) == []


def test_texts_beside_the_conversation_count_for_entries_that_ask_for_them() -> None:
    """Rule lore.sources: persona, character, scenario and notes."""
    lore = book({"key": ["knight"], "matchPersonaDescription": True}, {"key": ["knight"], "matchScenario": True})

    assert admitted(scan(lore, "hello", sources={"persona_description": "a knight"})) == ["0"]
    assert admitted(scan(lore, "hello", sources={"scenario": "a knight"})) == ["1"]
    still = book({"key": ["knight"], "matchScenario": True, "scanDepth": 0})
    assert admitted(scan(still, "hello", sources={"scenario": "a knight"})) == []


# --- budget --------------------------------------------------------------------------------------------------------


def test_the_budget_is_a_share_of_the_window_or_tokens_and_capped() -> None:
    """Rule lore.budget."""
    assert budget_for(LorebookSettings(budget_tokens=0, budget_percent=25), 1_000) == 250
    assert budget_for(LorebookSettings(budget_tokens=0, budget_percent=25, budget_cap=100), 1_000) == 100
    assert budget_for(LorebookSettings(budget_tokens=70, budget_cap=0), 1_000) == 70


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


def test_an_entry_that_ignores_the_budget_goes_in_all_the_same() -> None:
    """Rule lore.budget: unless ignore_budget."""
    lore = book({"key": ["go"], "content": "a b c"}, {"key": ["go"], "content": "d e f", "ignoreBudget": True})

    assert admitted(scan(lore, "go", budget=2)) == ["1"]


def test_sticky_comes_first_then_constants_then_matches_by_order() -> None:
    """Rule lore.budget: sticky first, constants before matches."""
    lore = book({"key": ["go"], "order": 900}, {"constant": True, "order": 1}, {"key": ["no"], "order": 0, "sticky": 9})

    assert admitted(scan(lore, "go", count=4, started={"book/2": 3})) == ["2", "1", "0"]


def test_direct_matches_come_before_recursive_ones_whatever_their_order() -> None:
    """Rule lore.budget: direct before recursive."""
    lore = book({"key": ["go"], "order": 1, "content": "deep"}, {"key": ["deep"], "order": 999})

    assert admitted(scan(lore, "go", settings=RECURSIVE)) == ["0", "1"]


def test_a_book_bounds_its_own_entries() -> None:
    """Rule lore.budget: a book's token_budget."""
    lore = book({"key": ["go"], "content": "a b c"}, {"key": ["go"], "content": "d e f"}, token_budget=4)
    other = replace(book({"key": ["go"], "content": "g h i"}, name="other"), id="other")

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
    assert (why(found, 2), why(found, 3)) == ("excluded from recursion", "no key matched")


def test_an_excluded_entry_never_sees_what_entries_said() -> None:
    """Rule lore.recursion: also not when the scan goes deeper after it."""
    lore = book({"key": ["go"], "content": "b1"}, {"key": ["b1"], "excludeRecursion": True}, {"key": ["deep"]})

    found = scan(lore, "deep", "x", "go", settings=LorebookSettings(recursive=True, min_activations=3))

    assert admitted(found) == ["0", "2"]
    assert why(found, 1) in ("no key matched", "excluded from recursion")


def test_recursion_ends_after_its_steps_and_with_the_budget() -> None:
    """Rule lore.recursion: max_recursion_steps counts passes, 1 is none; a full budget ends it."""
    chain = [{"key": [f"k{at}"], "content": f"k{at + 1}"} for at in range(9)]

    for steps in (1, 2, 3):
        settings = LorebookSettings(recursive=True, max_recursion_steps=steps)
        assert len(scan(book(*chain), "k0", settings=settings).admitted) == steps
    assert len(scan(book(*chain), "k0", settings=RECURSIVE, budget=4).admitted) == 4


def test_levels_of_delay_open_one_by_one() -> None:
    """Rule lore.recursion: an entry delayed until recursion waits for its level."""
    lore = book(
        {"key": ["a1"], "content": "b1"},
        {"key": ["b1"], "delayUntilRecursion": 2},
        {"key": ["b1"], "delayUntilRecursion": True},
        {"key": ["b1"], "delayUntilRecursion": 7},
    )

    found = scan(lore, "a1", settings=RECURSIVE)

    assert [(verdict.entry.uid, verdict.pass_number) for verdict in found.admitted] == [
        ("0", 1),
        ("2", 2),
        ("1", 4),
        ("3", 6),
    ]
    assert why(scan(lore, "b1"), 2) == "delayed until recursion"


def test_a_book_says_itself_whether_its_entries_recurse() -> None:
    """Rule lore.recursion: recursive_scanning of a book."""
    lore = book({"key": ["a1"], "content": "b1"}, {"key": ["b1"]}, recursive_scanning=True)
    still = book({"key": ["a1"], "content": "b1"}, {"key": ["b1"]}, recursive_scanning=False)

    assert admitted(scan(lore, "a1")) == ["0", "1"]
    assert admitted(scan(still, "a1", settings=RECURSIVE)) == ["0"]


def test_too_few_entries_deepen_the_scan_by_one_message_a_pass() -> None:
    """Rule lore.min_activations."""
    lore = book({"key": ["one"]}, {"key": ["two"]}, {"key": ["three"]}, {"key": ["four"]})
    said = ("four", "three", "two", "one", "zero")

    few = scan(lore, *said, settings=LorebookSettings(min_activations=2))
    capped = scan(lore, *said, settings=LorebookSettings(min_activations=4, min_activations_depth=4))
    every = scan(lore, *said, settings=LorebookSettings(min_activations=9))

    assert ([(verdict.entry.uid, verdict.pass_number) for verdict in few.admitted], few.passes) == (
        [("0", 1), ("1", 2)],
        2,
    )
    assert admitted(capped) == ["0", "1", "2"]
    assert admitted(every) == ["0", "1", "2", "3"]


# --- timed effects, chance, groups ---------------------------------------------------------------------------------


def test_a_sticky_entry_stays_for_its_messages_and_then_rests() -> None:
    """Rule lore.timed: sticky, then cooldown after sticky, counted in messages of the conversation."""
    lore = book({"key": ["go"], "sticky": 3, "cooldown": 2})
    started: dict[str, int] = {}
    reasons = []
    for count in range(10, 18):
        found = scan(lore, "go" if count in (10, 14, 15) else "no", count=count, started=started)
        started = dict(found.started)
        reasons.append(why(found, 0))

    assert reasons == ["key", "sticky", "sticky", "cooldown", "cooldown", "key", "sticky", "sticky"]


def test_a_sticky_entry_is_admitted_whatever_its_probability() -> None:
    """Rule lore.timed: chance was taken when it came in."""
    lore = book({"key": ["go"], "sticky": 5, "probability": 0})

    assert admitted(scan(lore, "no", count=4, started={"book/0": 3})) == ["0"]


def test_a_conversation_too_short_holds_an_entry_back() -> None:
    """Rule lore.timed: delay."""
    lore = book({"key": ["go"], "delay": 3})

    assert why(scan(lore, "x", "go"), 0) == "delay"
    assert admitted(scan(lore, "x", "y", "go")) == ["0"]


def test_the_same_message_scanned_again_and_one_taken_back_start_nothing_twice() -> None:
    """Rule lore.timed: effects follow the message count; going back undoes them."""
    lore = book({"key": ["go"], "cooldown": 5})
    first = scan(lore, "go", count=10)
    again = scan(lore, "go", count=10, started=first.started)

    assert dict(again.started) == dict(first.started) == {"book/0": 10}
    assert admitted(again) == ["0"]
    assert why(scan(lore, "go", count=12, started=first.started), 0) == "cooldown"
    assert admitted(scan(lore, "go", count=8, started=first.started)) == ["0"]
    assert dict(scan(lore, "go", count=20, started=first.started).started) == {"book/0": 20}


def test_chance_is_drawn_from_the_conversation_and_the_message() -> None:
    """Rule lore.probability: the same for the same message, about as often as it says over many."""
    lore = book({"key": ["go"], "probability": 30})
    drawn = [bool(scan(lore, "go", count=at).admitted) for at in range(1, 401)]

    assert drawn == [bool(scan(lore, "go", count=at).admitted) for at in range(1, 401)]
    assert 80 < sum(drawn) < 160
    assert drawn != [bool(scan(lore, "go", count=at, conversation="other").admitted) for at in range(1, 401)]


def test_chance_is_not_asked_where_it_is_switched_off_and_is_lost_once_a_scan() -> None:
    """Rule lore.probability: useProbability; what failed is not tried again in a later pass."""
    lore = book(
        {"key": ["go"], "probability": 0, "useProbability": False}, {"key": ["go", "content"], "probability": 0}
    )

    found = scan(lore, "go", settings=RECURSIVE)

    assert admitted(found) == ["0"]
    assert why(found, 1) == "probability"


def test_an_entry_that_lost_its_chance_takes_no_group_in_a_later_pass() -> None:
    """Rule lore.checks: what failed its probability is out before groups are looked at again."""
    lore = book(
        {"key": ["go"], "group": "g", "groupOverride": True, "probability": 0},
        {"key": ["go"], "group": "g"},
        {"key": ["go"], "content": "on and on"},
    )

    found = scan(lore, "go", settings=RECURSIVE)

    assert [(verdict.entry.uid, verdict.pass_number) for verdict in found.admitted] == [("2", 1), ("1", 2)]
    assert (why(found, 0), scan(lore, "go").admitted[0].entry.uid) == ("probability", "2")


def test_of_a_group_one_is_admitted_by_weight() -> None:
    """Rule lore.group: by weight, the same for the same message."""
    lore = book(
        {"key": ["go"], "group": "g", "groupWeight": 300},
        {"key": ["go"], "group": "g", "groupWeight": 100},
        {"key": ["go"], "group": "g", "groupWeight": 0},
    )
    winners = [admitted(scan(lore, "go", count=at)) for at in range(1, 301)]

    assert {len(winner) for winner in winners} == {1}
    assert 190 < sum(winner == ["0"] for winner in winners) < 260
    assert not any(winner == ["2"] for winner in winners)


def test_of_a_group_one_that_overrides_wins_by_order_and_a_sticky_one_before_it() -> None:
    """Rule lore.group: override; sticky first."""
    lore = book(
        {"key": ["go"], "group": "g", "groupWeight": 100_000},
        {"key": ["go"], "group": "g", "groupOverride": True, "order": 5},
        {"key": ["go"], "group": "g", "groupOverride": True, "order": 6},
        {"key": ["no"], "group": "g", "sticky": 9},
    )

    found = scan(lore, "go")
    assert admitted(found) == ["2"]
    assert verdict(found, 0).detail == "g: 2 was taken"
    assert admitted(scan(lore, "go", count=5, started={"book/3": 4})) == ["3"]


def test_of_a_group_the_one_with_more_keys_wins_where_scores_count() -> None:
    """Rule lore.group: scoring by primary keys, and secondary ones by their logic."""
    lore = book(
        {"key": ["go", "now"], "group": "g"},
        {"key": ["go", "now", "here"], "group": "g"},
        {"key": ["go"], "keysecondary": ["now", "here", "too"], "selective": True, "selectiveLogic": 3, "group": "g"},
    )
    scoring = LorebookSettings(group_scoring=True)

    assert admitted(scan(lore, "go now here", settings=scoring)) == ["1"]
    assert admitted(scan(lore, "go now here too", settings=scoring)) == ["2"]


def test_a_group_that_has_one_takes_no_other_in_a_later_pass_and_an_entry_must_win_all_its_groups() -> None:
    """Rule lore.group: one a scan; several groups of one entry."""
    lore = book({"key": ["a1"], "group": "g", "content": "b1"}, {"key": ["b1"], "group": "g"})
    both = book(
        {"key": ["a1"], "group": "g, h", "groupWeight": 0}, {"key": ["a1"], "group": "h", "groupOverride": True}
    )

    assert admitted(scan(lore, "a1", settings=RECURSIVE)) == ["0"]
    assert admitted(scan(both, "a1")) == ["1"]


# --- positions, report ---------------------------------------------------------------------------------------------


def test_positions_become_prefix_tail_or_an_outlet_by_order() -> None:
    """Rule lore.positions: the higher order stands later; at a depth, the deeper one first."""
    lore = book(
        {"constant": True, "position": 4, "depth": 1, "order": 1},
        {"constant": True, "position": 1, "order": 50},
        {"constant": True, "position": 0, "order": 40},
        {"constant": True, "position": 7, "outletName": "map", "order": 3},
        {"constant": True, "position": 4, "depth": 9, "role": 1, "order": 99},
    )

    placed = scan(lore, "x").in_prompt_order()

    assert [(verdict.entry.uid, verdict.entry.place) for verdict in placed] == [
        ("2", "prefix"), ("1", "prefix"), ("4", "tail"), ("0", "tail"), ("3", "outlet")
    ]  # fmt: skip
    assert (placed[2].entry.role, placed[4].entry.outlet) == ("user", "map")


def test_the_report_has_every_entry_once_with_its_reason() -> None:
    """Rule lore.report: admitted with why, key, pass and tokens; dropped with why."""
    lore = book({"key": ["go"], "content": "one two"}, {"key": ["no"]}, {"constant": True, "disable": True})

    found = scan(lore, "Go!")

    assert [verdict.entry.uid for verdict in (*found.admitted, *found.dropped)] == ["0", "2", "1"]
    first = found.admitted[0]
    assert (first.why.value, first.key, first.pass_number, first.tokens) == ("key", "go", 1, 2)
    assert [(verdict.entry.uid, verdict.why.value) for verdict in found.dropped] == [
        ("2", "disabled"),
        ("1", "no key matched"),
    ]
