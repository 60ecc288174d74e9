"""Recalled text worded for its reader: whose "I" it is.

A memory written in the first person (`first-person`, `ghostwriter`) speaks as the agent that had the experience. Read
by that agent it stands as it is; read by anybody else, that "I" would be taken for the reader's own, so the speaker's
name goes before it (the write-back RFC, section 2.6: a memory's perspective is recorded to adjust it when recalled).
Rejected: turning "I" into "it" word by word, which changes what was written, and quotes and code with it.

Invariants: what is stored never changes, and every character of it is in what is told; a fact, a tool call's text and a
memory without an "I" of its own come back unchanged.
"""

from __future__ import annotations

import re

from memory_anchor.model import Memory, Scope, WriteMode

OWN_WORDS = frozenset({WriteMode.FIRST_PERSON, WriteMode.GHOSTWRITER})
_NOT_OWN = re.compile(
    r"```(?:[^`]++|`(?!``))*+(?:```)?+|`[^`\n]*+`|\"[^\"\n]*+\""
    r"|“[^“”\n]*+”|「[^「」\n]*+」|^>.*+$",
    re.S | re.M,
)
"""Code and quotations: an "I" in there is somebody else's."""
_FIRST = re.compile(r"(?<![A-Za-z0-9_])(?:I|I['’](?:m|ve|d|ll)|me|my|mine|myself|we|our|ours|us)(?![A-Za-z0-9_])|我|咱")
_BLOCK = ("```", "~~~", "|", "#", "-", "*", ">", "    ", "\t")
"""How a text begins that must keep its own line."""


def worded_for(memory: Memory, reader: Scope) -> str:
    """Return the memory's text as this reader is told it: `codex: I broke the build` where another's "I" speaks."""
    if memory.write_mode not in OWN_WORDS or memory.scope.agent == reader.agent or not memory.scope.agent:
        return memory.content
    if not _FIRST.search(_NOT_OWN.sub(" ", memory.content)):
        return memory.content
    between = "\n" if memory.content.startswith(_BLOCK) else " "
    return f"{memory.scope.agent}:{between}{memory.content}"
