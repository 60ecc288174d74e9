"""A gate is open wherever its expression matches: skipping an expression never loses a secret or a date."""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache

import pytest
import secretskit
from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.language import gates, safety, secret_context, secret_rules, terms

EXPRESSIONS: list[re.Pattern[str]] = [
    *(rule.pattern for rule in secret_rules.RULES),
    *(rule.starts for rule in secret_rules.RULES if rule.starts is not None),
    *(
        value
        for room in (safety, secret_context, terms)
        for value in vars(room).values()
        if isinstance(value, re.Pattern)
    ),
    *(pattern for _, pattern in secret_context._SPELT),
    *(pattern for _, _, pattern in secret_context._PLACED),
]


@cache
def corpus() -> list[str]:
    """Return texts with planted secrets and look-alikes, and the same in small letters."""
    planted = [*secretskit.planted(seed=1), *secretskit.planted(secretskit.FRESH, seed=1), *secretskit.crossed("dev")]
    texts = [*(one.text for one in planted), *secretskit.look_alikes(300)]
    return texts + [text.lower() for text in texts]


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda one: one.pattern[:40])
def test_a_gate_is_open_wherever_its_expression_matches(expression: re.Pattern[str]) -> None:
    """Rule gates: over every text of the corpora of secrets and look-alikes."""
    may = gates.built_gate(expression)

    assert [text for text in corpus() if expression.search(text) and not may(text)] == []


@given(st.sampled_from(EXPRESSIONS), st.data())
def test_a_gate_is_open_for_what_an_expression_describes(expression: re.Pattern[str], data: st.DataObject) -> None:
    """Rule gates: also for texts that nobody wrote."""
    text = data.draw(st.from_regex(expression))

    assert gates.built_gate(expression)(text)


SHORTHAND = (r"\w", r"\W", r"[\w-]", r"[^\w]", r"[^\w\s]", r"[\W_]", r"\s", r"\S", r"[^\s:]", r"\d", r"\D", r"[^\d]")


@cache
def signs() -> list[str]:
    """Return some characters of each category that Python knows."""
    found: dict[str, list[str]] = {}
    for number in range(sys.maxunicode + 1):
        found.setdefault(unicodedata.category(chr(number)), []).append(chr(number))
    del found["Cs"], found["Cn"]
    return [sign for of in found.values() for sign in of[:: max(1, len(of) // 60)]]


@pytest.mark.parametrize("shorthand", SHORTHAND)
def test_a_shorthand_means_at_least_what_python_means(shorthand: str) -> None:
    """Rule gates: ² is part of a word, a mark alone is none: two engines differ, and a gate must not."""
    expression = re.compile(shorthand)
    may = gates.built_gate(expression)

    assert [sign for sign in signs() if expression.search(sign) and not may(sign)] == []


def test_a_process_that_cleans_one_text_builds_no_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule gates: seventy automata cost a command a tenth of a second, and a short text is looked through at once."""
    built: list[str] = []
    monkeypatch.setattr(gates, "linear", lambda source: built.append(source) or (lambda _: False))
    may = gates.gate(re.compile("pass"))

    assert [may("a note") for _ in range(gates.UNGATED)] == [True] * gates.UNGATED and built == []
    assert not may("a note") and len(built) == 1
    assert not gates.gate(re.compile("pass"))("a long note " * gates.UNGATED_CHARS), "a long text is asked of the gate"
