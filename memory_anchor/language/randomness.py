"""How likely it is that a token was made by a machine and is no name: a small trained model.

Beside a word such as "key" the question is only whether what follows is a name (`key: user_session_id`) or a value. A
list of thresholds by alphabet misses what is short or of letters alone; a logistic model over six figures reads all
alphabets alike: how surprising each sign is behind the one before, by the pairs of signs in names; the least surprising
window; changes of class; digits; vowels; length. The numbers (2 KB) and what they scored on held-back names stand in
`randomness.json`; `scripts/train_secrets.py` makes them. Rejected: compression (nothing to compress in 20 characters)
and Shannon entropy (a word of 16 letters has as much as 16 hexadecimal digits).
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path

NUMBERS = Path(__file__).with_name("randomness.json")
SIGNS = "abcdefghijklmnopqrstuvwxyz0-"
"""Classes of signs: a letter by itself, capital or small, any digit, any separator."""
GRADES_A_BIT = 3
FIGURES = 6
WINDOW = 8
CHARS_MAX = 64
"""Characters of a token that are read; more say the same."""
_VOWELS = re.compile("[aeiou]")
_LETTERS = re.compile("[a-z]")
_CHANGES = re.compile(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[a-z0-9])|(?<=[0-9])(?=[A-Za-z])")
_DIGIT, _OTHER = len(SIGNS) - 2, len(SIGNS) - 1
_PLACES = bytes(
    SIGNS.index(sign) if (sign := chr(code).lower()) in SIGNS else _DIGIT if sign.isdigit() else _OTHER
    for code in range(128)
) + bytes([_OTHER] * 128)


def signs(token: str) -> bytes:
    """Return the class of each sign of a token."""
    return token[:CHARS_MAX].encode("latin-1", "replace").translate(_PLACES)


@dataclass(frozen=True, slots=True)
class Model:
    """The trained numbers: the grades of pairs of signs, by rows, and the weights, the constant first."""

    grades: tuple[int, ...]
    weights: tuple[float, ...]

    def figures(self, token: str) -> tuple[float, ...]:
        """Return the six figures of a token that has at least two characters."""
        places, size, grades = signs(token), len(SIGNS), self.grades
        surprise = [grades[one * size + other] for one, other in pairwise(places)]
        wide = min(WINDOW, len(surprise))
        least = window = sum(surprise[:wide])
        for gone, come in zip(surprise, surprise[wide:], strict=False):
            window += come - gone
            least = min(least, window)
        cut = token[:CHARS_MAX]
        small = cut.lower()
        return (
            sum(surprise) / len(surprise) / GRADES_A_BIT,
            least / wide / GRADES_A_BIT,
            len(_CHANGES.findall(cut)) / (len(cut) - 1),
            places.count(_DIGIT) / len(cut),
            len(_VOWELS.findall(small)) / max(1, len(_LETTERS.findall(small))),
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
    """Return the model as it ships, read once."""
    numbers = json.loads(NUMBERS.read_text("utf-8"))
    return Model(tuple(int(grade, 36) for grade in numbers["grades"]), tuple(numbers["weights"]))


@lru_cache(maxsize=8)  # one token is asked about up to three times in a row
def machine_made(token: str) -> float:
    """Return the chance that a token was made by a machine and is no name: 0 to 1.

    >>> machine_made("pwuNUoLhZRRAV") > 0.9 > 0.1 > machine_made("user_session_id")
    True
    """
    return trained().chance(token)
