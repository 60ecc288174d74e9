"""What text from elsewhere looks like on a terminal: all there is, and nothing that the terminal obeys.

A terminal obeys escape signs, an editor reorders direction signs, and signs without width are not seen at all, so that
a human would decide about another text than the one that is stored. Whatever is shown to a human passes here; JSON
stays exact, by its own escapes.
"""

from __future__ import annotations

import json
import unicodedata

SPELLED_OUT = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Control, format (direction, no width), lone surrogate, line and paragraph separators."""
BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0\u2800")
"""Letters and marks that show nothing, whatever their category says."""
BREAK = "⏎"


def visible(text: str) -> str:
    """Return `text` as one line, with every sign spelled out that would be obeyed or not be seen.

    >>> visible("a\\x1b[2Kb\\nc")
    'a\\\\u001b[2Kb⏎c'
    """
    return visible_lines(text).replace("\n", BREAK)


def visible_lines(text: str) -> str:
    """Return `text` with its lines as they are; only for where a line of it cannot pass for one of ours."""
    text = text.replace("\r\n", "\n")
    return "".join(sign if sign.isascii() and sign.isprintable() else _spelled(sign) for sign in text)


def visible_json(text: str) -> str:
    """Return a JSON text that says exactly the same, with those signs as JSON's own escapes.

    >>> visible_json('"a\u202eb"')
    '"a\\u202eb"'
    """
    odd = {ord(sign): json.dumps(sign)[1:-1] for sign in set(text) if sign != "\n" and _spelled(sign) != sign}
    return text.translate(odd) if odd else text


def _spelled(sign: str) -> str:
    if sign in "\n\t" or (unicodedata.category(sign) not in SPELLED_OUT and sign not in BLANK):
        return sign
    return f"\\u{ord(sign):04x}" if ord(sign) < 0x10000 else f"\\U{ord(sign):08x}"
