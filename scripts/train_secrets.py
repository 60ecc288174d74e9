#!/usr/bin/env python3
"""Train the model of `language/randomness.py`: is a token machine-made or a name.

Names are the tokens in the source of the installed packages (every fifth is held back); random tokens are generated
here, in eight alphabets and 8 to 64 characters, with and without a short prefix. Two steps: how often one character
follows another in names, in 36 grades; then a logistic regression over the six features of `randomness.figures`. Prints
the share of held-back names and of fresh random tokens on the right side of each threshold, and writes the file.

    .venv/bin/python scripts/train_secrets.py
"""

from __future__ import annotations

import json
import random
import re
import string
import sysconfig
from itertools import pairwise
from pathlib import Path

import numpy as np

from memory_anchor.language import randomness

NAMES_MAX, RANDOM_COUNT, STEPS, RATE = 60_000, 60_000, 4_000, 0.5
FILES_MAX, FILE_CHARS = 6_000, 60_000
TOKEN = re.compile(r"(?<![A-Za-z0-9_.-])[A-Za-z][A-Za-z0-9_.-]{7,63}(?![A-Za-z0-9_.-])")
ALPHABETS = (
    string.ascii_letters + string.digits,
    string.ascii_letters + string.digits + "_-",
    string.ascii_lowercase + string.digits,
    string.ascii_uppercase + string.digits,
    "0123456789abcdef",
    string.ascii_uppercase + "234567",
    string.ascii_letters,
    string.ascii_lowercase,
)
PREFIXES = ("", "", "", "sk_", "pat-", "key_live_", "acme-", "x1.")


def names() -> tuple[list[str], list[str]]:
    """Return the tokens of packages to learn from, and of packages held back; each token once."""
    root = Path(sysconfig.get_paths()["purelib"])
    files = sorted(path for path in root.rglob("*.py") if "memory_anchor" not in path.parts)
    random.Random(0).shuffle(files)
    learned: set[str] = set()
    held: set[str] = set()
    packages = sorted({path.relative_to(root).parts[0] for path in files})
    for path in files[:FILES_MAX]:
        place = packages.index(path.relative_to(root).parts[0])
        found = TOKEN.findall(path.read_text("utf-8", errors="replace")[:FILE_CHARS])
        (held if place % 5 == 0 else learned).update(found)
    rng = random.Random(1)
    return tuple(  # type: ignore[return-value]
        rng.sample(sorted(group), min(NAMES_MAX, len(group))) for group in (learned, held - learned)
    )


def made(count: int, seed: int) -> list[str]:
    """Return random tokens."""
    rng = random.Random(seed)
    return [
        rng.choice(PREFIXES) + "".join(rng.choices(rng.choice(ALPHABETS), k=rng.randint(8, 64))) for _ in range(count)
    ]


def grades(tokens: list[str]) -> str:
    """Return how surprising each sign is behind each other in names, one sign of base 36 a pair, by rows."""
    size = len(randomness.SIGNS)
    counts = np.full((size, size), 0.5)
    for token in tokens:
        signs = randomness.signs(token)
        for one, other in pairwise(signs):
            counts[one, other] += 1
    surprise = -np.log2(counts / counts.sum(axis=1, keepdims=True))
    scaled = np.clip(np.rint(surprise * randomness.GRADES_A_BIT), 0, 35).astype(int)
    return "".join("0123456789abcdefghijklmnopqrstuvwxyz"[grade] for grade in scaled.ravel())


def main() -> None:
    learned, held = names()
    randoms, fresh = made(RANDOM_COUNT, 2), made(RANDOM_COUNT // 4, 3)
    table = grades(learned)
    model = randomness.Model(randomness.rows(table), (0.0,) * (randomness.FIGURES + 1))
    rows = np.array([model.figures(token) for token in learned + randoms])
    wanted = np.array([0.0] * len(learned) + [1.0] * len(randoms))
    mean, spread = rows.mean(axis=0), rows.std(axis=0) + 1e-9
    scaled = np.hstack([np.ones((len(rows), 1)), (rows - mean) / spread])
    weights = np.zeros(scaled.shape[1])
    for _ in range(STEPS):
        weights -= RATE * scaled.T @ (1 / (1 + np.exp(-scaled @ weights)) - wanted) / len(wanted)
    plain = weights[1:] / spread
    numbers = (float(weights[0] - (plain * mean).sum()), *(float(one) for one in plain))
    model = randomness.Model(randomness.rows(table), tuple(round(one, 4) for one in numbers))
    shares = {}
    for limit in (0.5, 0.8, 0.9, 0.95, 0.98, 0.99):
        shares[str(limit)] = {
            "names_taken_for_random": round(float(np.mean([model.chance(one) >= limit for one in held])), 5),
            "random_found": round(float(np.mean([model.chance(one) >= limit for one in fresh])), 5),
        }
        print(limit, shares[str(limit)])
    told = {"learned": len(learned), "held_back": len(held), "random": len(randoms), "held_shares": shares}
    content = {"grades": table, "weights": model.weights, "trained": told}
    randomness.NUMBERS.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
