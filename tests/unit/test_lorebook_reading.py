"""Lorebooks are read from world info, cards and YAML; what is wrong costs its field or entry and is said."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from memory_anchor.domain.errors import BadInput
from memory_anchor.extensions.lorebook import reading
from memory_anchor.extensions.lorebook.reading import read_lorebook
from tests.unit.lorekit import FIXTURES, admitted, scan

V2_BOOK: dict[str, Any] = {
    "name": "Harbour",
    "scan_depth": 3,
    "token_budget": 400,
    "recursive_scanning": True,
    "extensions": {"theirs": [1]},
    "entries": [
        {
            "keys": ["harbour", "港口"],
            "content": "The harbour freezes in winter.",
            "extensions": {
                **{"position": 4, "depth": 2, "role": 1, "selectiveLogic": 3, "probability": 40},
                **{"useProbability": True, "exclude_recursion": True, "sticky": 4, "group": "places"},
                "unknown": {"x": 1},
            },
            "enabled": True,
            "insertion_order": 7,
            "priority": 90,
            "secondary_keys": ["ice", "snow"],
            "selective": True,
            "id": 11,
            "name": "Harbour",
            "position": "after_char",
        },
        {"keys": ["quay"], "content": "x", "enabled": False, "insertion_order": 1, "secondary_keys": ["y"]},
    ],
}


BOMB = "a: &a [x]\n" + "".join(
    f"{chr(at + 1)}: &{chr(at + 1)} [{','.join(['*' + chr(at)] * 9)}]\n" for at in range(97, 107)
)


def card(spec: str, book: Any) -> dict[str, Any]:
    return {
        "spec": spec,
        "spec_version": spec[-1] + ".0",
        "data": {"name": "Ada", "character_book": book, "extensions": {}},
    }


def read(value: Any, name: str = "book.json") -> reading.Lorebook:
    return read_lorebook(json.dumps(value, ensure_ascii=False).encode(), name)


def test_a_card_of_version_two_is_read_with_what_its_extensions_say() -> None:
    """Rule lore.formats: V2; an entry's own field counts before its extensions'."""
    book = read(card("chara_card_v2", V2_BOOK))
    first, second = book.entries

    assert (book.title, book.scan_depth, book.token_budget, book.recursive) == ("Harbour", 3, 400, True)
    assert (first.uid, first.keys, first.secondary_keys, first.logic) == (
        "11",
        ("harbour", "港口"),
        ("ice", "snow"),
        "and_all",
    )
    assert (first.order, first.priority, first.place, first.exclude_recursion) == (7, 90, "prefix", True)
    assert (second.enabled, second.secondary_keys, second.title) == (False, (), "quay")
    assert book.problems == tuple(
        f"{name} of 1 entry has no meaning here: ignored" for name in ("group", "probability", "sticky")
    )


def test_a_card_of_version_three_has_expressions_and_lines_that_decorate() -> None:
    """Rule lore.formats: V3, use_regex; lines that decorate are no text, and each kind is named."""
    entries = [
        {
            "keys": ["drag.n"],
            "use_regex": True,
            "content": "@@depth 2\n@@role user\n@@scan_depth 1\nDragons.",
            "enabled": True,
        },
        {"keys": [], "constant": True, "content": "Always.", "enabled": True, "use_regex": False},
        {"keys": ["x"], "content": "@@dont_activate\nNever.", "enabled": False},
        {"keys": ["x"], "content": "@@dance 3\n@@@fall back\nText", "enabled": True},
    ]
    for value in (card("chara_card_v3", {"entries": entries}), {"spec": "lorebook_v3", "data": {"entries": entries}}):
        book = read(value)

        assert [entry.content for entry in book.entries] == ["Dragons.", "Always.", "Never.", "Text"]
        assert admitted(scan(book, "a dragon x")) == ["1", "0", "3"]
        assert [one for one in book.problems if "@@dance" in one]


def test_our_own_yaml_says_the_same_in_plain_words() -> None:
    """Rule lore.formats: YAML, also in the words of the design: text, regex, priority, budget_weight."""
    book = read_lorebook(
        """
        name: 部署
        scan_depth: 4
        recursive: true
        entries:
          - id: deploy
            keys: [deploy, 部署]
            secondary_keys: [prod]
            selective_logic: and_all
            text: Deploys go out on Tuesdays.
            position: tail
            budget_weight: 2
          - regex: 'v\\d+\\.\\d+'
            text: Versions follow semver.
            priority: 5
        """.encode(),
        "lore.yaml",
    )
    first, second = book.entries

    assert (book.title, book.scan_depth, book.recursive, book.format) == ("部署", 4, True, "book yaml")
    assert (first.uid, first.logic, first.secondary_keys, first.place, first.budget_weight) == (
        "deploy", "and_all", ("prod",), "tail", 2.0
    )  # fmt: skip
    assert (second.keys, second.priority, second.place) == ((r"/v\d+\.\d+/",), 5, "prefix")
    assert admitted(scan(book, "部署 v1.2 to prod")) == ["1", "deploy"]


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.json")), ids=lambda path: path.stem)
def test_a_fixture_is_read_whole(path: Any) -> None:
    """Rule lore.fixtures: no entry and no field of them is refused."""
    book = read_lorebook(path.read_bytes(), path.name)

    assert len(book.entries) == len(json.loads(path.read_text())["entries"])
    assert all(problem.endswith("has no meaning here: ignored") for problem in book.problems)


def test_a_wrong_entry_costs_itself_and_a_wrong_field_its_value() -> None:
    """Rule lore.bad_input: one sentence each with what is allowed; the rest goes in."""
    book = read(
        {
            "scan_depth": "far",
            "entries": [
                "text",
                {"key": ["a"], "content": 7},
                {"key": {"a": 1}, "content": "x"},
                {
                    "key": ["a", None],
                    "content": "x",
                    "order": "high",
                    "disable": "maybe",
                },
                {"key": "b, c", "content": "y", "position": 99, "extensions": 4},
                {"key": ["a"], "content": "z" * 100_001},
                {"content": "nobody calls me"},
                {"key": ["fine"], "content": "fine"},
            ],
        }
    )

    assert [entry.uid for entry in book.entries] == ["2", "3", "4", "6", "7"]
    assert book.entries[1].order == 100
    assert book.entries[2].keys == ("b", "c")
    for what in (
        "entry 0 is text and was left out",
        "entry 1: content is a number",
        "entry 2: keys is {'a': 1}; it should be a valid tuple",
        "entry 3: keys is ['a', None]; it should be a valid string",
        "entry 3: order is 'high'; it should be a valid integer",
        "entry 3: disable is 'maybe'; it should be a valid boolean",
        "entry 4: place is 99; it should be one of 0, 1",
        "entry 5: content has 100001 characters and was left out",
        "entry 6: has no key and is not constant",
        "the book: scan_depth is 'far'",
    ):
        assert [one for one in book.problems if one.startswith(what) and "\n" not in one], what
    assert admitted(scan(book, "fine")) == ["7"]


def test_numbers_that_yaml_reads_where_a_text_was_meant_are_keys_and_halves_of_letters_are_replaced() -> None:
    """Rule lore.bad_input: `keys: [404]` means the text; what no encoding can write stops nothing."""
    book = read_lorebook(b"entries:\n- keys: [404]\n  content: gone\n- keys: [403, no]\n", "b.yaml")
    halves = read_lorebook(b'{"entries": [{"key": ["a"], "content": "x \\ud800 y", "comment": "\\udfff"}]}', "b.json")

    assert admitted(scan(book, "a 404 page")) == ["0"]
    assert [one for one in book.problems if "keys is [403, False]" in one]
    assert (halves.entries[0].content, halves.entries[0].title) == ("x ? y", "?")


def test_numbers_that_an_editor_wrote_as_text_are_numbers_and_empty_fields_are_none() -> None:
    """Rule lore.bad_input: what a page's form saved."""
    fields = {"order": "7", "position": "4", "scanDepth": "", "sticky": "", "selectiveLogic": "3"}
    book = read({"entries": [{"key": ["a"], "content": "x", "disable": "", **fields}]})
    (one,) = book.entries

    assert book.problems == ()
    assert (one.order, one.place) == (7, "tail")
    assert one.logic == "and_all"


def test_uids_that_come_twice_are_told_apart() -> None:
    """Rule lore.bad_input: an id names one entry."""
    book = read({"entries": [{"uid": 1, "key": ["a"], "content": "x"}] * 3})

    assert [entry.uid for entry in book.entries] == ["1", "1#2", "1#3"]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"{", r"is no JSON \(line 1"),
        (b"[1]", "is a list"),
        (b"{}", "has no entries"),
        (b'{"entries": 4}', "has no entries"),
        (b"just words", "holds text"),
        (b"a: [b", r"is no YAML \(line"),
        (b"\xff\xfe\x00", "no UTF-8 text"),
        (b"[" * 200_000, "nested too deep"),
        (b'{"entries": [' + b"1" * 5000 + b"]}", "a number too long"),
        (BOMB.encode(), "values allowed"),
        (json.dumps(card("chara_card_v2", None)).encode(), "without a lorebook"),
        (reading.PNG, "is a picture; allowed is JSON or YAML"),
        (b" " * (reading.BOOK_BYTES_MAX + 1), "split the lorebook"),
    ],
    ids=range(13),
)  # fmt: skip
def test_a_file_that_is_no_lorebook_is_refused_in_one_sentence(content: bytes, what: str) -> None:
    """Rule lore.bad_input: the file is named, and what is allowed."""
    with pytest.raises(BadInput, match=what) as refused:
        read_lorebook(content, "my file.json")

    assert str(refused.value).startswith("my file.json")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


def test_a_million_entries_are_cut_at_what_is_allowed_and_told() -> None:
    """Rule lore.bad_input: the first 20,000 go in."""
    book = read_lorebook(b'{"entries":[' + b",".join([b"{}"] * 1_000_000) + b"]}", "huge.json")

    assert len(book.entries) == reading.ENTRIES_MAX
    assert re.fullmatch(
        r"huge.json has 1000000 entries; the first 20000 were taken: split the lorebook", book.problems[0]
    )
    assert len(book.problems) <= reading.PROBLEMS_KEPT + 1
