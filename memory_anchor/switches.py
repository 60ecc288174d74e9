"""What a word says that switches something on or off: one table for the bridge, commands, engine and settings.

Standard library only and cheap to import: the bridge reads its own switches without the settings.
"""

from __future__ import annotations

ON = frozenset({"true", "yes", "on", "1", "t", "y"})
OFF = frozenset({"false", "no", "off", "0", "f", "n"})
ALLOWED = "allowed are true or false, yes or no, on or off, 1 or 0"


def parse_switch(word: str) -> bool:
    """Return what `word` says, in any case. Raises ValueError: it says neither, with what is allowed.

    >>> switched("Y"), switched("off")
    (True, False)
    """
    told = word.strip().lower()
    if told not in ON and told not in OFF:
        raise ValueError(ALLOWED)
    return told in ON
