"""What changed between two texts, word by word: for the terminal's `review` and the dashboard alike."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

COMPARED_MAX = 3_000
"""Words a side; beyond it lines are compared."""
_WORD = re.compile(r"[^\W\u2e80-\u9fff\uac00-\ud7af\u3040-\u30ff]+|\s+|.", re.DOTALL)
"""A word, white space, or a sign; Chinese, Japanese and Korean sign by sign."""


def word_diff(before: str, after: str) -> list[tuple[str, str]]:
    """Return the parts of both texts in order: ("same" | "gone" | "new", text).

    >>> word_diff("port 8080 now", "port 9090 now")
    [('same', 'port '), ('gone', '8080'), ('new', '9090'), ('same', ' now')]
    """
    old, new = _WORD.findall(before), _WORD.findall(after)
    if max(len(old), len(new)) > COMPARED_MAX:
        old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    parts: list[tuple[str, str]] = []
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=len(old) > 400).get_opcodes():
        if kind == "equal":
            parts.append(("same", "".join(old[a:b])))
            continue
        parts += [("gone", "".join(old[a:b]))] * (b > a)
        parts += [("new", "".join(new[c:d]))] * (d > c)
    return parts
