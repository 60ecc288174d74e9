"""How likely a token was made by a machine and is no name: a small trained model.

After a word such as "key" the question is only whether a name follows (`key: user_session_id`) or a value. A list of
thresholds by alphabet misses short values and those of letters alone; a logistic model over six features reads all
alphabets alike: how surprising each character is after the one before, by the character pairs of names; the least
surprising window; changes of class; digits; vowels; length. The weights (2 KB) and their scores on held-back names are
in `randomness.json`; `scripts/train_secrets.py` makes them. Rejected: compression (20 characters are too few)
and Shannon entropy (a word of 16 letters has as much as 16 hexadecimal digits).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from operator import getitem, ne, sub
from pathlib import Path

NUMBERS = Path(__file__).with_name("randomness.json")
SIGNS = "abcdefghijklmnopqrstuvwxyz0-"
"""Classes of characters: a letter in either case, any digit, any separator."""
GRADES_A_BIT = 3
FIGURES = 6
WINDOW = 8
CHARS_MAX = 64
"""Characters of a token that are read; more change nothing."""
_DIGIT, _OTHER = len(SIGNS) - 2, len(SIGNS) - 1
_PLACES = bytes(
    SIGNS.index(sign) if (sign := chr(code).lower()) in SIGNS else _DIGIT if sign.isdigit() else _OTHER
    for code in range(128)
) + bytes([_OTHER] * 128)


_VOWELS = bytes(SIGNS.index(sign) for sign in "aeiou")
_KINDS = (
    bytes(
        ord("d" if (sign := chr(code)).isdigit() else "u" if sign.isupper() else "l")
        if chr(code).isalnum()
        else ord("-")
        for code in range(128)
    )
    + b"-" * 128
)
"""For each character: a digit, a capital, a small letter or none of them."""
_IS_SIGN = bytes(code != ord("-") for code in range(256))


def signs(token: str) -> bytes:
    """Return the class of each character of a token."""
    return token[:CHARS_MAX].encode("latin-1", "replace").translate(_PLACES)


def rows(grades: str) -> tuple[bytes, ...]:
    """Return the grades of character pairs, a row for each first character, from one base-36 digit a pair."""
    size = len(SIGNS)
    return tuple(bytes(int(grade, 36) for grade in grades[at : at + size]) for at in range(0, size * size, size))


def classes(token: str) -> bytes:
    """Return for each character: a small letter (l), a capital (u), a digit (d) or none of them (-)."""
    return token.encode("latin-1", "replace").translate(_KINDS)


def changes(token: str) -> int:
    """Return how often a letter or digit is next to one of another class: capital, small letter, digit."""
    kinds = classes(token)
    signs = kinds.translate(_IS_SIGN)
    return int(sum(map(ne, kinds, kinds[1:])) - sum(map(ne, signs, signs[1:])))


@dataclass(frozen=True, slots=True)
class Model:
    """The trained numbers: the grades of character pairs, by rows, and the weights, the constant first."""

    grades: tuple[bytes, ...]
    weights: tuple[float, ...]

    def figures(self, token: str) -> tuple[float, ...]:
        """Return the six features of a token of at least two characters."""
        cut = token[:CHARS_MAX]
        places = signs(cut)
        upto = [0, *accumulate(map(getitem, map(self.grades.__getitem__, places), places[1:]))]
        pairs = len(cut) - 1
        wide = min(WINDOW, pairs)
        digits = places.count(_DIGIT)
        letters = len(cut) - digits - places.count(_OTHER)
        return (
            upto[-1] / pairs / GRADES_A_BIT,
            min(map(sub, upto[wide:], upto)) / wide / GRADES_A_BIT,
            changes(cut) / pairs,
            digits / len(cut),
            (len(cut) - len(places.translate(None, _VOWELS))) / max(1, letters),
            math.log2(len(cut)),
        )

    def chance(self, token: str) -> float:
        """Return the chance that a token was made by a machine: 0 to 1; 0 for fewer than two characters."""
        if len(token) < 2:
            return 0.0
        total = self.weights[0] + sum(
            weight * figure for weight, figure in zip(self.weights[1:], self.figures(token), strict=True)
        )
        return 1 / (1 + math.exp(-max(-40.0, min(40.0, total))))


@cache
def trained() -> Model:
    """Return the bundled model, read once."""
    numbers = json.loads(NUMBERS.read_text("utf-8"))
    return Model(rows(numbers["grades"]), tuple(numbers["weights"]))


@lru_cache(maxsize=8)  # a token is checked up to three times in a row
def machine_made_chance(token: str) -> float:
    """Return the chance that a token was made by a machine and is no name: 0 to 1.

    >>> machine_made_chance("pwuNUoLhZRRAV") > 0.9 > 0.1 > machine_made_chance("user_session_id")
    True
    """
    return trained().chance(token)
