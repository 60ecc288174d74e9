"""Which memories a prompt should bring up unasked: a small model of its own, since a prompt is no question.

"Ship it tomorrow, the tests are green" and "no releases on Fridays" share neither words nor a question's shape. Three
things tell: whether the prompt needs to know anything of this project at all (read from its vector: small talk, general
knowledge and small edits do not), how near a memory is once the direction that all prompts share is taken off (first
among 240 memories for 42 % instead of 21 % of our English prompts), and how far it stands above the store's own level.
The numbers (3 KB) are made by scripts/train_moments.py; docs/retrieval.md has what they score.

Rejected: the relevance of a search (a question's answer), one bar for the cosine (each store has its own level), and a
learned map from prompts to memories (fewer right than without it, on the pairs we have).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.hashing import stable_hash
from memory_anchor.language.terms import normal
from memory_anchor.recall.relevance import spread_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.ports import EmbedderIdentity, Matrix
    from memory_anchor.recall.relevance import Evidence

    Numbers = NDArray[np.float32]

NUMBERS = Path(__file__).with_name("moments.npz")
BAR, SURE = 0.02, 0.3
"""How likely a memory must be to decide a prompt: one that needs to know anything of the project, and one that does not
seem to. The first is low, since whatever such a prompt is about, knowing a rule too many costs a line."""
BELOW_BEST = 0.1
"""Share of the likeliest one's chance that another must have beside it."""
BACKGROUND = slice(5, 40)
"""By falling cosine, the memories that stand for the store's own level."""
FORM_PARTS = 7
"""The last parts of a path, by which a memory may name it."""


@cache
def _numbers() -> dict[str, Numbers]:
    with np.load(NUMBERS) as stored:
        return {name: stored[name].astype(np.float32) for name in stored.files}


def is_known(identity: EmbedderIdentity) -> bool:
    """Return whether the numbers were learned with this embedder's vectors."""
    return bool(_numbers()["model"].view(np.uint32)[0] == _mark(identity)) and identity.dimensions == _width()


def _mark(identity: EmbedderIdentity) -> int:
    return int(stable_hash(identity.model)[:8], 16)


def _width() -> int:
    return int(_numbers()["prompts"].shape[1])


@dataclass(frozen=True, slots=True)
class PromptRow:
    """A prompt's row less what all prompts share, as a search takes it; needs: log-odds that it needs any memory."""

    row: Matrix
    needs: float


def prompt_row(row: Matrix, script: int, means: Numbers) -> PromptRow:
    """Return what a prompt's raw query row says. means: (scripts, dimensions) that a search takes off queries."""
    numbers = _numbers()
    own = row - numbers["prompts"][script]
    unit = own / max(float(np.linalg.norm(own)), 1e-9)
    needs = float(unit @ numbers["needs"] + numbers["bias"][script])
    return PromptRow(own + means[script], needs)


def figures(seen: Evidence, needs: float) -> Numbers:
    """Return (n, 14) figures of the memories that a prompt may bring up, a constant first."""
    count = len(seen.cosines)
    near, share, level, best, most, few = spread_of(seen, BACKGROUND)

    def whole(value: float) -> Numbers:
        return np.full(count, value, dtype=np.float32)

    both = (
        whole(1),
        near,
        near - level,
        near - best,
        share,
        share - most,
        near * share,
        share * few,
        whole(seen.coverage),
        whole(few),
        whole(np.clip(needs, -4, 4)),
        (near - level) * np.float32(np.clip(needs, -4, 4)),
        seen.same_script.astype(np.float32),
        whole(best - level),
    )
    return np.stack(both, axis=1).astype(np.float32)


def bar_of(chances: Numbers, needs: float) -> float:
    """Return how likely a memory must be to be brought up. needs: log-odds that the prompt needs any."""
    return max(BAR if needs >= 0 else SURE, BELOW_BEST * float(chances.max(initial=0.0)))


def judged(seen: Evidence, needs: float) -> Numbers:
    """Return how likely each memory decides what the prompt asks for, 0 to 1."""
    if not len(seen.cosines):
        return np.zeros(0, dtype=np.float32)
    logit = figures(seen, needs) @ _numbers()["pair"]
    return np.asarray(1 / (1 + np.exp(-np.clip(logit, -30, 30))), dtype=np.float32)


def named_by(names: Sequence[str]) -> re.Pattern[str] | None:
    """Return what finds any of these names in normalised text as words of their own, None for no names."""
    forms = {normal(form) for name in names for form in forms_of(name)}
    if not forms:
        return None
    return re.compile("|".join(rf"(?<![a-z0-9_]){re.escape(form)}(?![a-z0-9_])" for form in sorted(forms)))


def forms_of(name: str) -> list[str]:
    """Return how a memory may name this: itself, and of a path its file's name and its folders of two parts or more.

    >>> forms_of("src/billing/round.py")
    ['src/billing/round.py', 'billing/round.py', 'round.py', 'src/billing']
    """
    parts = [part for part in name.split("/") if part not in ("", ".", "..")][-FORM_PARTS:]
    if len(parts) < 2:
        return [name] if name.strip() else []
    ends = ["/".join(parts[start:]) for start in range(len(parts) - 1)]
    file = [parts[-1]] if "." in parts[-1] else []
    folders = ["/".join(parts[start:end]) for end in range(len(parts) - 1, 1, -1) for start in range(end - 1)]
    return list(dict.fromkeys([*ends, *file, *folders]))
