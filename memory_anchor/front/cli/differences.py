"""What changed between two texts, marked for a terminal."""

from __future__ import annotations

from rich.text import Text

from memory_anchor.front.word_diff import word_diff
from memory_anchor.terminal import visible_lines

STYLES = {"gone": "red underline", "new": "green underline", "same": ""}
"""A line of its own text is never rewritten: what changed in it is underlined, so that no text can fake a change."""


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
