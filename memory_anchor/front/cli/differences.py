"""What changed between two texts, word by word, for a terminal."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from rich.text import Text

from memory_anchor.terminal import visible_lines

COMPARED_MAX = 3_000
"""Words a side; beyond it lines are compared."""
_WORD = re.compile(r"[^\W\u2e80-\u9fff\uac00-\ud7af\u3040-\u30ff]+|\s+|.", re.DOTALL)
"""A word, white space, or a sign; Chinese, Japanese and Korean sign by sign."""
STYLES = {"gone": "red underline", "new": "green underline", "same": ""}
"""A line of its own text is never rewritten: what changed in it is underlined, so that no text can fake a change."""


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


def side(parts: list[tuple[str, str]], kind: str) -> Text:
    """Return one side of a difference whole, with what only it says underlined. kind: gone (the old one) or new."""
    text = Text()
    for one, part in parts:
        if one in ("same", kind):
            text.append(visible_lines(part), STYLES[one])
    return text


def diff_lines(unified: str) -> list[Text]:
    """Return the lines of a unified diff as they are; where one line took another's place, its words are marked."""
    shown: list[Text] = []
    gone: list[int] = []
    for line in unified.split("\n"):
        if line.startswith(("--- ", "+++ ", "@@")):
            shown.append(Text(line, "dim"))
        elif line.startswith("-"):
            gone.append(len(shown))
            shown.append(Text(line, "red"))
        elif line.startswith("+"):
            if gone:
                place = gone.pop(0)
                parts = word_diff(shown[place].plain[1:], line[1:])
                shown[place] = Text("-", "red") + side(parts, "gone")
                shown.append(Text("+", "green") + side(parts, "new"))
            else:
                shown.append(Text(line, "green"))
        else:
            gone = []
            shown.append(Text(line))
    return shown
