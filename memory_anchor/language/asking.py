"""Whether a question asks for more than one statement holds: why something is so, or what else was said with it."""

from __future__ import annotations

import re
from enum import StrEnum

from memory_anchor.language.bounded import bounded


class Beyond(StrEnum):
    WHY = "why"
    ELSE = "else"


_WHY = bounded(r"\bwhy\b|\bhow come\b|\breasons?\b|为什么|为何|为啥|怎么会|原因|理由", re.IGNORECASE)
_ELSE = bounded(
    r"\bwhat (?:else|other)\b|\banything else\b|"
    r"还.{0,8}(?:什么|哪些|啥)|(?:别的|其他|其它|另外)的?.{0,4}(?:什么|哪些|吗)",
    re.IGNORECASE,
)


def asks_beyond(query: str) -> Beyond | None:
    """Return what a question asks for beyond the statement that answers it; None for most.

    >>> asks_beyond("What else was agreed?"), asks_beyond("为什么不用缓存？"), asks_beyond("Which port?")
    (<Beyond.ELSE: 'else'>, <Beyond.WHY: 'why'>, None)
    """
    if _ELSE.search(query):
        return Beyond.ELSE
    return Beyond.WHY if _WHY.search(query) else None
