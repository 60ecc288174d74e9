"""Untrusted text made safe for a terminal: every character visible, none interpreted.

A terminal interprets escape characters, an editor reorders direction marks, and characters without width are not seen
at all, so that a human would decide about another text than the one that is stored. Everything shown to a human passes
through here; JSON stays exact, by its own escapes.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from itertools import pairwise

SPELLED_OUT = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Control, format (direction, no width), lone surrogate, private, unassigned, line and paragraph separators."""
BLANK = "\u2800"
"""The braille pattern without dots: blank, although its properties say it is a symbol."""
EMOJI_STYLE = "\ufe0f"
DEFAULT_IGNORABLE = (
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)
"""The whole property Default_Ignorable_Code_Point (Unicode 16, DerivedCoreProperties.txt), which Python does not know:
joiners, variation selectors, fillers, tag characters, and code points reserved for more of them."""
BREAK = "⏎"


def visible(text: str) -> str:
    """Return `text` as one line, with every control or invisible character spelled out.

    >>> visible("a\\x1b[2Kb\\nc")
    'a\\\\u001b[2Kb⏎c'
    """
    return visible_lines(text).replace("\n", BREAK)


def visible_lines(text: str) -> str:
    """Return the same with its lines; only for where none of them could be taken for a line of ours."""
    return "".join(_styled(text.replace("\r\n", "\n")))


def visible_json(text: str) -> str:
    """Return an equal JSON text with those characters as JSON's own escapes.

    >>> visible_json('"a\u202eb"')
    '"a\\\\u202eb"'
    """
    odd = {ord(sign): json.dumps(sign)[1:-1] for sign in set(text) if sign != "\n" and _spelled(sign) != sign}
    return text.translate(odd) if odd else text


def is_hidden(sign: str) -> bool:
    """Return whether one character is a control or invisible where text is shown, line ends and tabs too."""
    if unicodedata.category(sign) in SPELLED_OUT or sign == BLANK:
        return True
    return any(first <= ord(sign) <= last for first, last in DEFAULT_IGNORABLE)


def named(sign: str) -> str:
    """Return a character by its code point and name, as a human can look it up.

    >>> named("\ufe0f")
    'U+FE0F (variation selector-16)'
    """
    name = unicodedata.name(sign, "").lower()
    return f"U+{ord(sign):04X} ({name})" if name else f"U+{ord(sign):04X}"


def _styled(text: str) -> Iterator[str]:
    """Yield each character as it is shown; the emoji selector stays after a symbol, which it only colours."""
    for before, sign in pairwise(" " + text):
        of_symbol = sign == EMOJI_STYLE and unicodedata.category(before) == "So" and before != BLANK
        yield sign if of_symbol or (sign.isascii() and sign.isprintable()) else _spelled(sign)


def _spelled(sign: str) -> str:
    if sign in "\n\t" or not is_hidden(sign):
        return sign
    return f"\\u{ord(sign):04x}" if ord(sign) < 0x10000 else f"\\U{ord(sign):08x}"
