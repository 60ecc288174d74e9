"""The six lorebooks of tests/corpora/lorebook (MIT, jasl): what each entry has to do, written from the semantics."""

from __future__ import annotations

from typing import Any

import pytest

from memory_anchor.settings import LorebookSettings
from tests.unit.lorekit import admitted, fixture, scan, verdict, why

ADDS: list[tuple[str, tuple[str, ...], dict[str, Any], list[str]]] = [
    # basic_entries: 0 by either key; 1 only unless both secondary keys are there; 2 always
    ("basic_entries", ("nothing of it",), {}, ["2"]),
    ("basic_entries", ("Where is alice?",), {}, ["2", "0"]),
    ("basic_entries", ("our PROTAGONIST",), {}, ["2", "0"]),
    ("basic_entries", ("Malice",), {}, ["2"]),
    ("basic_entries", ("Bob",), {}, ["2", "1"]),
    ("basic_entries", ("Bob my friend",), {}, ["2", "1"]),
    ("basic_entries", ("Bob, friend and ally",), {}, ["2"]),
    ("basic_entries", ("Bob and Alice",), {}, ["2", "1", "0"]),
    # selective_logic: and-any, not-all, not-any, and-all of one key
    ("selective_logic", ("no key",), {}, []),
    ("selective_logic", ("magic",), {}, ["1", "2"]),
    ("selective_logic", ("magic spell",), {}, ["0", "1", "2"]),
    ("selective_logic", ("magic spell of a wizard",), {}, ["0", "2"]),
    ("selective_logic", ("dark magic",), {}, ["1"]),
    ("selective_logic", ("dark and evil magic",), {}, ["1", "3"]),
    ("selective_logic", ("a dark evil spell",), {}, []),
    # timed_effects, each alone
    ("timed_effects", ("the sticky entry",), {}, ["0"]),
    ("timed_effects", ("a cooldown entry",), {}, ["1"]),
    ("timed_effects", ("a delayed entry",), {}, []),
    ("timed_effects", ("x", "a delayed entry"), {}, ["2"]),
    ("timed_effects", ("combined effects",), {}, ["3"]),
    # st_v1150_fields
    ("st_v1150_fields", ("hello",), {"sources": {"persona_description": "my persona"}}, ["0"]),
    ("st_v1150_fields", ("hello",), {"sources": {"character_description": "a persona"}}, []),
    ("st_v1150_fields", ("hello",), {"sources": {"character_personality": "of character"}}, ["1"]),
    ("st_v1150_fields", ("hello",), {"sources": {"scenario": "a char desc"}}, ["1"]),
    ("st_v1150_fields", ("hello",), {"sources": {"creator_notes": "character"}}, []),
    ("st_v1150_fields", ("Alice only",), {"character": "Alice"}, ["2"]),
    ("st_v1150_fields", ("Alice only",), {"character": "Eve"}, []),
    ("st_v1150_fields", ("fantasy tagged",), {"tags": frozenset({"medieval", "x"})}, ["3"]),
    ("st_v1150_fields", ("fantasy tagged",), {}, []),
    ("st_v1150_fields", ("not for Bob",), {"character": "Bob"}, []),
    ("st_v1150_fields", ("not for Bob",), {"character": "Eve"}, ["4"]),
    ("st_v1150_fields", ("normal gen only",), {}, ["5"]),
    ("st_v1150_fields", ("normal gen only",), {"trigger": "quiet"}, []),
    ("st_v1150_fields", ("continue or impersonate",), {"trigger": "continue"}, ["6"]),
    ("st_v1150_fields", ("continue or impersonate",), {}, []),
    ("st_v1150_fields", ("a probability test",), {}, ["7"]),
    # complete_book: its own scan depth of 4 and recursion; 0 always, 5 never
    ("complete_book", ("nothing",), {}, ["0"]),
    ("complete_book", ("a disabled entry",), {}, ["0"]),
    ("complete_book", ("an ice dragon",), {"tags": frozenset({"fantasy"})}, ["0", "1"]),
    ("complete_book", ("an ice dragon",), {}, ["0"]),
    ("complete_book", ("an ice dragon",), {"tags": frozenset({"fantasy"}), "trigger": "swipe"}, ["0"]),
    ("complete_book", ("a dragon",), {"tags": frozenset({"fantasy"})}, ["0", "1"]),
    ("complete_book", ("forbidden",), {}, ["0", "3"]),
    ("complete_book", ("Forbidden",), {}, ["0"]),
    ("complete_book", ("forbidden necromancy",), {}, ["0"]),
    ("complete_book", ("forbidden", "b", "c"), {}, ["0"]),
    ("complete_book", ("Li is here",), {"names": {"user": "Li"}}, ["4"]),
]


@pytest.mark.parametrize(
    ("name", "said", "given", "expected"), ADDS, ids=[f"{one[0]}-{at}" for at, one in enumerate(ADDS)]
)
def test_a_fixtures_entries_do_what_their_fields_say(
    name: str, said: tuple[str, ...], given: dict[str, Any], expected: list[str]
) -> None:
    """Rule lore.fixtures: one conversation, and who is admitted in what order."""
    found = scan(fixture(name), *said, **given)

    if name == "complete_book":  # entry 2 is a matter of chance; what it says of Eldoria calls nobody new
        assert [uid for uid in admitted(found) if uid in {*expected, "1", "3", "4", "5"}] == expected
    else:
        assert admitted(found) == expected


def test_the_entry_with_a_name_in_its_text_says_the_name() -> None:
    """Rule lore.fixtures: complete_book, entry 4."""
    found = scan(fixture("complete_book"), "Li is here", names={"user": "Li"})

    assert verdict(found, 4).text == "Li is a traveler from distant lands, seeking adventure in Eldoria."
    assert why(found, 5) == "disabled"


def test_complete_book_recurses_and_its_chance_and_group_hold() -> None:
    """Rule lore.fixtures: entry 2 comes in four of five messages and loses its group to entry 3, which overrides it;
    it rests for three messages; entry 3 calls nobody."""
    lore = fixture("complete_book")
    drawn = [why(scan(lore, "magic", count=at), 2) for at in range(1, 201)]
    both = scan(lore, "a spell of forbidden kind")
    taken = next(at for at, one in enumerate(drawn, 1) if one == "key")

    assert set(drawn) == {"key", "probability"}
    assert 140 <= drawn.count("key") <= 178
    assert (why(both, 3), verdict(both, 2).detail) == ("key", "magic: 3 was taken")
    assert why(scan(lore, "magic", count=taken + 2, started={"complete_book/2": taken}), 2) == "cooldown"
    assert why(scan(lore, "forbidden", count=1), 3) == "key"
    assert scan(lore, "forbidden").passes == 2


def test_the_dragon_stays_for_its_messages() -> None:
    """Rule lore.fixtures: complete_book, entry 1 is sticky for 2."""
    lore, tags = fixture("complete_book"), frozenset({"fantasy"})
    first = scan(lore, "an ice dragon", count=7, tags=tags)

    assert why(scan(lore, "no", count=8, tags=tags, started=first.started), 1) == "sticky"
    assert why(scan(lore, "no", count=9, tags=tags, started=first.started), 1) == "no key matched"


def test_recursion_settings_each_do_what_they_say() -> None:
    """Rule lore.fixtures: called by an entry, excluded from being called, calling nobody, only when called."""
    lore, recursive = fixture("recursion_settings"), LorebookSettings(recursive=True)

    assert admitted(scan(lore, "a recursion test", settings=recursive)) == ["0", "1"]
    assert admitted(scan(lore, "a recursion test")) == ["0"]
    assert admitted(scan(lore, "no recurse content", settings=recursive)) == ["2"]
    assert admitted(scan(lore, "prevent recurse", settings=recursive)) == ["3"]
    assert why(scan(lore, "delay until recurse", settings=recursive), 4) == "delayed until recursion"
    called = scan(lore, "a recursion test to delay until recurse", settings=recursive)
    assert admitted(called) == ["0", "1", "4"]


@pytest.mark.parametrize(
    ("uid", "key", "reasons"),
    [
        ("0", "sticky entry", ["key", "sticky", "sticky", "no key matched", "no key matched"]),
        ("1", "cooldown entry", ["key", "cooldown", "cooldown", "cooldown", "cooldown", "no key matched"]),
        ("3", "combined effects", ["key", "sticky", "cooldown", "cooldown", "cooldown", "no key matched"]),
    ],
)
def test_timed_effects_run_their_messages(uid: str, key: str, reasons: list[str]) -> None:
    """Rule lore.fixtures: sticky 3; cooldown 5; sticky 2 and then cooldown 3."""
    started: dict[str, int] = {}
    seen = []
    for at in range(len(reasons)):
        found = scan(fixture("timed_effects"), key if not at else "no", count=20 + at, started=started)
        started = dict(found.started)
        seen.append(why(found, uid))

    assert seen == reasons
