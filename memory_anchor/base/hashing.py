"""Hashes that recognise the same text and the same request again.

`content_hash` defines an exact repeat: it ignores Unicode compatibility forms and spacing, and nothing else. Case is
kept, because `Path` and `path` are two facts in a code base.
"""

from __future__ import annotations

import hashlib
import unicodedata

_SEPARATOR = "\x1f"
"""ASCII unit separator between the parts of `stable_hash`; part lengths are hashed too, so no two lists meet."""


def content_hash(text: str) -> str:
    """Return the SHA-256 of a text as 64 hex digits, in NFKC with every run of white space as one space.

    >>> content_hash("Ｑdrant  is fast\\n") == content_hash("Qdrant is fast")
    True
    """
    folded = " ".join(unicodedata.normalize("NFKC", text).split())
    return hashlib.sha256(folded.encode("utf-8", "surrogatepass")).hexdigest()


def stable_hash(*parts: str) -> str:
    """Return the SHA-256 of these parts, in this order, as 64 hex digits.

    >>> stable_hash("ab", "c") == stable_hash("a", "bc")
    False
    """
    framed = _SEPARATOR.join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(framed.encode("utf-8", "surrogatepass")).hexdigest()
