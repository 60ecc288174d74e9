"""Words that switch something on or off: one table for the bridge, commands, engine and settings.

Standard library only and cheap to import: the bridge reads its own switches without the settings.
"""

from __future__ import annotations

ON = frozenset({"true", "yes", "on", "1", "t", "y"})
OFF = frozenset({"false", "no", "off", "0", "f", "n"})
ALLOWED = "allowed are true or false, yes or no, on or off, 1 or 0"


def parse_switch(word: str) -> bool:
    """Return whether `word` means on, in any case. Raises ValueError: neither on nor off, with what is allowed.

    >>> parse_switch("Y"), parse_switch("off")
    (True, False)
    """
    word = word.strip().lower()
    if word not in ON | OFF:
        raise ValueError(ALLOWED)
    return word in ON
