"""Laws of lorebooks: they hold for any book and any conversation."""

from __future__ import annotations

import json
import random
from typing import Any

from cases import words
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_anchor.extensions.lorebook.key_index import KeyIndex
from memory_anchor.extensions.lorebook.reading import read_lorebook
from memory_anchor.extensions.lorebook.settings import LorebookSettings
from tests.unit.lorekit import admitted, scan

WORDS = ("a1", "b1", "c1", "d1", "龙", "red door", "Rose", "/a./")
word = st.sampled_from(WORDS)
text = st.lists(word, max_size=6).map(" ".join)
entry = st.fixed_dictionaries(
    {"key": st.lists(word, max_size=3), "content": text},
    optional={
        "keysecondary": st.lists(word, max_size=2),
        "selectiveLogic": st.integers(0, 3),
        "constant": st.booleans(),
        "order": st.integers(0, 3),
        "excludeRecursion": st.booleans(),
        "preventRecursion": st.booleans(),
        "budgetWeight": st.integers(0, 2),
    },
)
book = st.lists(entry, max_size=12).map(
    lambda entries: read_lorebook(json.dumps({"entries": entries}).encode(), "book", book_id="book")
)
ways = st.builds(
    LorebookSettings,
    recursive=st.booleans(),
    max_recursion_steps=st.integers(0, 4),
)
NAMES = tuple(
    words("""
    content key order position extensions characterFilter scanDepth group triggers uid
""")
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=3), one, max_size=2),
    max_leaves=5,
)
said = st.lists(text, min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(book, said, ways, st.integers(0, 20))
def test_the_same_input_gives_the_same_output_and_no_budget_is_exceeded(
    lore: Any, texts: list[str], way: LorebookSettings, budget: int
) -> None:
    """Rule lore.laws: determinism; the budget; each entry has one verdict."""
    found = scan(lore, *texts, settings=way, budget=budget)
    again = scan(lore, *texts, settings=way, budget=budget)
    uids = [verdict.entry.uid for verdict in (*found.admitted, *found.dropped)]

    assert (found.admitted, found.dropped) == (again.admitted, again.dropped)
    assert sum(verdict.tokens for verdict in found.admitted) <= budget
    assert len(uids) == len(set(uids)) <= len(lore.entries)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(word, text), min_size=1, max_size=8), said, st.randoms(use_true_random=False))
def test_entries_of_equal_order_keep_the_books_order(
    pairs: list[tuple[str, str]], texts: list[str], chance: random.Random
) -> None:
    """Rule lore.laws: a permutation of equal entries changes nothing but their places among each other."""
    entries = [{"uid": at, "key": [key], "content": body} for at, (key, body) in enumerate(pairs)]
    shuffled = chance.sample(entries, len(entries))
    first = admitted(scan(read_lorebook(json.dumps({"entries": entries}).encode(), "b"), *texts))
    second = admitted(scan(read_lorebook(json.dumps({"entries": shuffled}).encode(), "b"), *texts))
    places = {str(one["uid"]): at for at, one in enumerate(shuffled)}

    assert first == sorted(first, key=int)
    assert second == sorted(first, key=lambda uid: places[uid])


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.text("ab c龙", min_size=1, max_size=7).filter(str.strip), max_size=20), st.text("ab c龙", max_size=60)
)
def test_keys_that_match_anywhere_are_found_wherever_they_are(keys: list[str], where: str) -> None:
    """Rule lore.index: no key is lost by looking for a few of them."""
    lore = read_lorebook(
        json.dumps({"entries": [{"key": [key], "matchWholeWords": False} for key in keys]}).encode(), "b"
    )
    index = KeyIndex(lore.entries)

    found = {key.text for key in index.keys_in(where)}

    assert found == {key.text for key in index.entries_of if key.text in where}


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(max_size=8) | st.sampled_from(NAMES), anything, max_size=6), said)
def test_whatever_an_entry_holds_it_is_read_or_named_and_scanned(fields: dict[str, Any], texts: list[str]) -> None:
    """Rule lore.laws: nothing in an entry's fields raises."""
    lore = read_lorebook(json.dumps({"entries": [{"key": ["a1"], **fields}]}).encode(), "b")

    found = scan(lore, *texts)

    assert len(lore.entries) == 1 or lore.problems
    assert len(found.admitted) + len(found.dropped) <= len(lore.entries)
