"""The six lorebooks of tests/corpora/lorebook (MIT, jasl): what each entry has to do, written from the semantics."""

from __future__ import annotations

import pytest

from memory_anchor.extensions.lorebook.settings import LorebookSettings
from tests.unit.lorekit import admitted, fixture, scan

ADDS: list[tuple[str, str, list[str]]] = [
    # basic_entries: 0 by either key; 1 only unless both secondary keys are there; 2 always
    ("basic_entries", "nothing of it", ["2"]),
    ("basic_entries", "Where is alice?", ["2", "0"]),
    ("basic_entries", "our PROTAGONIST", ["2", "0"]),
    ("basic_entries", "Malice", ["2"]),
    ("basic_entries", "Bob", ["2", "1"]),
    ("basic_entries", "Bob my friend", ["2", "1"]),
    ("basic_entries", "Bob, friend and ally", ["2"]),
    ("basic_entries", "Bob and Alice", ["2", "1", "0"]),
    # selective_logic: and-any, not-all, not-any, and-all of one key
    ("selective_logic", "no key", []),
    ("selective_logic", "magic", ["1", "2"]),
    ("selective_logic", "magic spell", ["0", "1", "2"]),
    ("selective_logic", "magic spell of a wizard", ["0", "2"]),
    ("selective_logic", "dark magic", ["1"]),
    ("selective_logic", "dark and evil magic", ["1", "3"]),
    ("selective_logic", "a dark evil spell", []),
    # complete_book: its own scan depth of 4 and recursion; 0 always, which names what calls 2; 5 never
    ("complete_book", "nothing", ["0", "2"]),
    ("complete_book", "a disabled entry", ["0", "2"]),
    ("complete_book", "a dragon", ["0", "1", "2"]),
    ("complete_book", "forbidden", ["0", "3", "2"]),
    ("complete_book", "Forbidden", ["0", "2"]),
    ("complete_book", "forbidden necromancy", ["0", "2"]),
]


@pytest.mark.parametrize(("name", "said", "expected"), ADDS, ids=[f"{one[0]}-{at}" for at, one in enumerate(ADDS)])
def test_a_fixtures_entries_do_what_their_fields_say(name: str, said: str, expected: list[str]) -> None:
    """Rule lore.fixtures: one conversation, and who is admitted in what order."""
    assert admitted(scan(fixture(name), said)) == expected


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("timed_effects", {"sticky", "cooldown", "delay"}),
        ("st_v1150_fields", {"character_filter_names", "character_filter_tags", "triggers", "match_scenario"}),
        ("complete_book", {"group", "probability", "cooldown"}),
        ("basic_entries", set()),
    ],
)
def test_a_fixtures_fields_without_a_meaning_here_are_named_and_its_entries_stay(name: str, fields: set[str]) -> None:
    """Rule lore.ignored: once a book, with a count; a field at its neutral value says nothing."""
    lore = fixture(name)
    named = {problem.split(" of ")[0] for problem in lore.problems if "no meaning here" in problem}

    assert fields <= named if fields else not named
    assert all(entry.keys or entry.constant for entry in lore.entries)


def test_recursion_settings_each_do_what_they_say() -> None:
    """Rule lore.fixtures: called by an entry, excluded from being called, calling nobody."""
    lore, recursive = fixture("recursion_settings"), LorebookSettings(recursive=True)

    assert admitted(scan(lore, "a recursion test", settings=recursive)) == ["0", "1"]
    assert admitted(scan(lore, "a recursion test")) == ["0"]
    assert admitted(scan(lore, "no recurse content", settings=recursive)) == ["2"]
    assert admitted(scan(lore, "prevent recurse", settings=recursive)) == ["3"]
