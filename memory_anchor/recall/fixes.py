"""Which stored fix solves a command's failure: a small model of its own over words, since an error is no question.

Output of one tool resembles every memory of that tool, so nearness finds an unrelated fix in three of four cases. What
helps is what a fix shares with the output and not with the command: rare words, several in a row ("class file major
version 65"), and names that no prose has, by the store's own rarity, where what failing commands print anyway ("error")
counts little. The numbers (2 KB, `fixes.json`) are made by scripts/train_failures.py from other tools than those of its
test; docs/retrieval.md has what they score. Rejected: what a search calls strong (learned on questions), the vector
next to the words (no better in five parts, and an embedding for each failure), and lists of errors by tool.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.domain.model import Actor, Memory, MemoryType
from memory_anchor.language.safe_regex import bounded
from memory_anchor.language.terms import terms
from memory_anchor.recall.ranking import sigmoid
from memory_anchor.recall.unprompted import of_terms, sharing_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from memory_anchor.recall.search import Searcher

    Numbers = NDArray[np.float32]

NUMBERS = Path(__file__).with_name("fixes.json")
BAR = 0.3
"""How likely a fix must be: one too many costs a line, one too few another try."""
BELOW_BEST = 0.5
"""Share of the likeliest one's chance that another must have."""
PRINTED_CHARS, COMMAND_CHARS = 4_000, 400
TERMS_MAX = 240
CANDIDATES = 24
STORE_LEAST = 100
"""A word is as rare in a smaller store as in one of so many memories: of three, none is rare."""
RUNS = (2, 3, 4, 6)
"""Words in a row that are looked for."""
_NAME = bounded(r"[A-Za-z_][A-Za-z0-9_./-]{3,80}")
_NAMES = bounded(r"[a-z][A-Z]|_|[A-Z]{4}|\d|[./]\w")
"""What makes a token one that no prose has: an error's code, an identifier, a path, a setting."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What was run and the end of what it printed: terms, those printed in reading order, `RUNS` of them in a row, and
    the names among them."""

    command: frozenset[str]
    printed: tuple[str, ...]
    runs: frozenset[tuple[str, ...]]
    names: frozenset[str]

    @classmethod
    def of(cls, command: str, output: str) -> Failure:
        end = output[-PRINTED_CHARS:]
        printed = terms(end)
        return cls(frozenset(terms(command[:COMMAND_CHARS])), tuple(printed), _runs(printed), names_in(end))


@dataclass(frozen=True, slots=True)
class PossibleFix:
    """A candidate. shared: `EVIDENCE` features of its words."""

    memory: Memory
    shared: tuple[float, ...]


def names_in(text: str) -> frozenset[str]:
    """Return the tokens of a text that are names, as written.

    >>> sorted(names_in("read ECONNRESET in src/api.py. Then retry."))
    ['ECONNRESET', 'src/api.py']
    """
    tokens = (token.rstrip("./-") for token in _NAME.findall(text))
    return frozenset(token for token in tokens if _NAMES.search(token))


def _runs(words: Sequence[str]) -> frozenset[tuple[str, ...]]:
    return frozenset(tuple(words[at : at + n]) for n in RUNS for at in range(len(words) - n + 1))


def shared_features(text: str, failure: Failure, idf: Mapping[str, float]) -> tuple[float, ...]:
    """Return what a fix shares with a failure: the rarity of its words in the output, of the rarest, of the rarest
    words in a row, of its words in the command, the part of its Latin words that is in either, the rarity of names."""
    own = terms(text)
    printed = frozenset(failure.printed) - failure.command
    both = {term for term in own if term in printed and term in idf}
    called = {term for term in own if term in failure.command and term in idf}
    mass = sum(idf[term] for term in both)
    best = max((idf[term] for term in both), default=0.0)
    here = _runs(own) & failure.runs
    row = max((sum(idf.get(term, 0.0) for term in set(one) - failure.command) for one in here), default=0.0)
    latin = {term for term in own if term.isascii()}
    part = len(latin & (both | called)) / (len(latin) + 2)
    named = [name for name in names_in(text) & failure.names if not failure.command.issuperset(terms(name))]
    rare = sum(min((idf.get(term, 0.0) for term in terms(name)), default=0.0) for name in named)
    return mass, best, row, sum(idf[term] for term in called), part, rare


def candidates(searcher: Searcher, actor: Actor, failure: Failure, kinds: Collection[MemoryType]) -> list[PossibleFix]:
    """Return the memories of these types that share words with a failure and that the caller may read."""
    words = tuple(dict.fromkeys([*failure.command, *reversed(failure.printed)]))[:TERMS_MAX]
    question = of_terms(actor, words)
    result = sharing_words(searcher, actor, question, most=CANDIDATES)
    if result is None:
        return []
    scored, memories = result
    rarer, often = np.log((max(len(scored.rows), STORE_LEAST) + 1) / (len(scored.rows) + 1)), common()
    rarities = zip(question.terms, (scored.idf + rarer).tolist(), strict=True)
    idf = {term: min(rarity, often.get(term, rarity)) for term, rarity in rarities}
    return [PossibleFix(fix, shared_features(fix.content, failure, idf)) for fix in memories if fix.type in kinds]


def features(fixes: Sequence[PossibleFix]) -> Numbers:
    """Return (n, 11) features, a constant first."""
    mass, best, row, called, part, rare = np.asarray([fix.shared for fix in fixes], dtype=np.float32).T
    mass, named, part = np.log1p(mass), np.log1p(rare), np.sqrt(part)
    others = np.asarray([max([0.0, *np.delete(mass, at)]) for at in range(len(fixes))], dtype=np.float32)
    ones = np.ones(len(fixes), dtype=np.float32)
    words = (ones, mass, best / 5, np.log1p(row), np.log1p(called), part, mass - others, part * mass, best * part)
    return np.stack([*words, named, named * part], axis=1).astype(np.float32)


@cache
def _stored() -> tuple[Numbers, dict[str, float]]:
    stored = json.loads(NUMBERS.read_text(encoding="utf-8"))
    return np.asarray(stored["words"], dtype=np.float32), dict(stored["common"])


def common() -> Mapping[str, float]:
    """Return how rare a word is in what failing commands print, of words that several of them say ("error")."""
    return _stored()[1]


def probabilities(fixes: Sequence[PossibleFix]) -> Numbers:
    """Return how likely each of these solves the failure, 0 to 1."""
    return sigmoid(features(fixes) @ _stored()[0]) if fixes else np.zeros(0, dtype=np.float32)


def likely_places(likely: Numbers) -> list[int]:
    """Return the places of what is likely enough to be shown, the likeliest first."""
    bar = max(BAR, BELOW_BEST * float(likely.max(initial=0.0)))
    return [int(place) for place in np.argsort(-likely, kind="stable") if likely[place] >= bar]


def fixes_for(searcher: Searcher, actor: Actor, failure: Failure, kinds: Collection[MemoryType]) -> list[Memory]:
    """Return the stored fixes of a failed command, the likeliest first; nothing where none seems to fit.

    What shares words with the command alone is about its tool, and no fix of this failure.
    """
    found = [fix for fix in candidates(searcher, actor, failure, kinds) if fix.shared[0] > 0]
    return [found[place].memory for place in likely_places(probabilities(found))]
