"""Attack A10: a text of 16,000 characters that makes an expression, or what reads a text, take seconds.

The expressions and functions are found by walking the package (`pathological`), the texts are made from the
expressions' own trees. Before the mend 143 of 458 expressions had a repetition without an end, `numbers` took 8 s for
one word of 16,000 letters and `estimate_tokens` 5 s for as many full-width blanks.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pathological
import pytest
from figures import FULL, figure
from pathological import CPU_S, RUNS, cpu_s, expressions, long_texts, read_with, slowest

from memory_anchor.front.clients.hooks import WAIT_S
from memory_anchor.hooks import compaction
from memory_anchor.language.safe_regex import BLANKS_MAX, bounded
from memory_anchor.language.timerules import AHEAD, RULES

FUNCTIONS = pathological.functions()
TEXTS_EACH = figure(12, 0)
"""How many of the made texts each expression and function reads in the slow suite, seeded by its name; 0 is all."""
QUICK_RUNS = (" ", "\u3000", "a", "1", "“", "[", "a ")


def test_no_expression_repeats_without_end_what_something_behind_may_refuse() -> None:
    """Attack A10: checked on every expression's tree, so a new one cannot forget its bound."""
    assert len(expressions()) > 400
    found = {
        name: endless
        for name, pattern in expressions().items()
        if not pathological.tried_in_one_place(name) and (endless := pathological.endless(pattern))
    }
    assert found == {}


def test_no_expression_hides_from_the_walk() -> None:
    """Attack A10: what a fresh process compiles while it imports all modules is among what is walked."""
    known = {(pattern.pattern, pattern.flags) for pattern in expressions().values()}
    compiled = pathological.compiled_at_import()
    assert len(compiled) > 400
    assert [where for where, pattern in compiled if (pattern.pattern, pattern.flags) not in known] == []


def test_what_is_built_where_it_is_used_ends_its_repetitions() -> None:
    """Attack A10: expressions made of an f-string, of which no module holds anything."""
    built = pathological.built_where_used()
    assert {where: ends for where, pattern in built.items() if (ends := pathological.endless(pattern))} == {}


def test_no_expression_means_another_thing_to_another_patch_release() -> None:
    """README: Python 3.11 or newer, so Debian 12's 3.11.2 too, which reads groups that give nothing back wrongly."""
    everywhere = {**expressions(), **dict(pathological.compiled_at_import()), **pathological.built_where_used()}
    found = {where: groups for where, one in everywhere.items() if (groups := pathological.by_patch_release(one))}
    assert found == {}


@pytest.mark.parametrize(
    "unsound", [r"(?:a|bc)*+", r"x(?:ab)?+", r"(?>a|ab)c", r"(?=(?:a++b)++)", r"(?:(?:(?>a)|b)c|d)"]
)
def test_the_check_of_trees_sees_what_depends_on_the_patch_release(unsound: str) -> None:
    """The check itself: possessive groups and atomic ones at any depth, and none in repetitions of a single sign."""
    assert pathological.by_patch_release(re.compile(unsound))
    assert pathological.by_patch_release(re.compile(r"a*+[bc]++(?:d)?+(?:\d++e)*")) == []


def test_the_check_of_trees_sees_what_is_quadratic() -> None:
    """Attack A10: the check itself: blanks before a word, an unclosed quotation, a long word before a digit."""
    for slow in (r"\s*on\b", r"“([^”]+)”", r"[a-z]+\d", r"(?:a+)+b", r"x(?=\s*y)"):
        assert pathological.endless(bounded(slow)) == []
        assert pathological.endless(re.compile(slow))


def test_a_bounded_rule_reads_blanks_as_people_write_them() -> None:
    """Attack A10: between two words of a rule so many blanks may stand, and a sentence is read as before."""
    rule = bounded(r"moved\s*to\s+\w+")
    assert rule.search("it moved  to   Qdrant")
    assert not rule.search(f"moved{' ' * (BLANKS_MAX + 1)}to x")


def test_what_a_time_rule_says_it_needs_is_in_every_match() -> None:
    """Attack A10: a text without these characters is passed over, so no match may do without all of them."""
    needing = [(pattern, needs) for pattern, _, _, needs in (*RULES, *AHEAD) if needs]
    assert len(needing) > 10
    assert [pattern.pattern for pattern, needs in needing if not pathological.always_has(pattern, needs)] == []
    assert not pathological.always_has(re.compile("a|b?c"), frozenset("ab"))


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_what_reads_a_text_is_done_with_16000_characters_in_50_ms(name: str) -> None:
    """Attack A10: every public function over text, a few runs here, all of them in the slow suite."""
    cpu_s(lambda: FUNCTIONS[name]("warm"))
    texts = [text for run in QUICK_RUNS for text in long_texts(run)]
    took, text = slowest(FUNCTIONS[name], texts)
    assert took <= CPU_S, f"{took * 1000:.0f} ms for {text[:20]!r} x {len(text)}"


def sample(name: str, texts: list[str]) -> list[str]:
    return texts if FULL or len(texts) <= TEXTS_EACH else random.Random(name).sample(texts, TEXTS_EACH)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_expression_reads_its_own_pieces_in_50_ms() -> None:
    """Attack A10: repeated samples, parts and classes of each expression, 16,000 characters."""
    slow = {}
    for name, pattern in expressions().items():
        texts = sample(name, [text for piece in (*RUNS, *pathological.pieces(pattern)) for text in long_texts(piece)])
        took, text = slowest(read_with(name, pattern), texts)
        if took > CPU_S:
            slow[name] = (round(took * 1000), text[:20])
    assert slow == {}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_function_reads_the_pieces_of_every_expression_in_50_ms() -> None:
    """Attack A10: each function of text, with every run and with samples of the expressions of its own module."""
    slow = {}
    for name, function in FUNCTIONS.items():
        cpu_s(lambda function=function: function("warm"))
        module = name.rsplit(".", 1)[0]
        own = [pattern for label, pattern in expressions().items() if label.startswith(f"{module}.")]
        found = {piece: None for pattern in own for piece in pathological.pieces(pattern, samples=1)}
        texts = sample(name, [text for piece in (*RUNS, *found) for text in long_texts(piece)])
        took, text = slowest(function, texts)
        if took > CPU_S:
            slow[name] = (round(took * 1000), text[:20])
    assert slow == {}


@pytest.mark.slow
def test_the_end_of_a_long_talk_is_read_while_its_hook_is_waited_for(tmp_path: Path) -> None:
    """Attack A10: 4 MB of speech alone took 25 s after a compaction, every sentence compared with every other."""
    talk, draw = tmp_path / "talk.jsonl", random.Random(1)
    with talk.open("w", encoding="utf-8") as file:
        while file.tell() < compaction.READ_BYTES:
            said = ". ".join(f"We always use w{draw.randrange(3000)} for w{draw.randrange(3000)}" for _ in range(9))
            file.write(json.dumps({"type": "user", "message": {"role": "user", "content": said}}) + "\n")

    assert (
        cpu_s(lambda: compaction.given_back(str(talk)), best_of=1, enough=WAIT_S["SessionStart"] / 2)
        <= WAIT_S["SessionStart"] / 2
    )
