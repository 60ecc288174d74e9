"""What ranking asks of a memory's text besides its words, worked out once and stored beside them as a few bytes.

Reading a hundred thousand texts again at each start took a quarter of a minute; their traits are read in a tenth of a
second. Bytes of another `FORMAT`, or damaged ones, are left out, and the memory's text is read instead.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_anchor.base.hashing import stable_hash
from memory_anchor.domain.model import Tag
from memory_anchor.language.indexing import embedded_text
from memory_anchor.language.shape import shape_of
from memory_anchor.language.terms import is_chinese, normal

if TYPE_CHECKING:
    from memory_anchor.domain.model import Memory

FORMAT = 1
"""To be raised when a trait is derived or stored otherwise."""
_HEAD = struct.Struct("<IBBBBBfqq")
_TEXT_DIGITS = 15
"""Hexadecimal digits of a hash that fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class Traits:
    """script: 1 for Chinese, else 0. shape: asks, names a time, names a number (0 or 1), log of how much is said.

    text: a number of all that a repeated text repeats. said: a number of its conversation, 0 outside of any. people:
    as they are compared.
    """

    script: int
    shape: tuple[float, float, float, float]
    text: int
    said: int
    tags: tuple[Tag, ...]
    people: tuple[str, ...]


def traits_of(memory: Memory) -> Traits:
    """Return a memory's traits; linear in its text."""
    scope, shape = memory.scope, shape_of(memory.content)
    about = (
        memory.key,
        memory.where or "",
        "|".join(memory.who),
        "|".join(tag.name for tag in memory.tags),
        *(citation.ref for citation in memory.citations),
    )
    return Traits(
        int(is_chinese(embedded_text(memory))),
        (float(shape.asks), float(shape.tells_time), float(shape.tells_number), shape.said),
        _number(memory.content, *about),
        _number(scope.account, scope.project, scope.conversation) if scope.conversation else 0,
        memory.tags,
        tuple(map(normal, memory.who)),
    )


def packed(traits: Traits) -> bytes:
    """Return the bytes of these traits."""
    asks, tells_time, tells_number, said = traits.shape
    names = [[[tag.name, tag.weight] for tag in traits.tags], traits.people]
    rest = json.dumps(names, ensure_ascii=False).encode() if traits.tags or traits.people else b""
    flags = int(asks), int(tells_time), int(tells_number)
    head = _HEAD.pack(0, FORMAT, traits.script, *flags, said, traits.text, traits.said)[4:]
    return zlib.crc32(rest, zlib.crc32(head)).to_bytes(4, "little") + head + rest


def unpacked(stored: bytes) -> Traits | None:
    """Return the traits of these bytes, None where they are of another format or damaged.

    >>> unpacked(b"") is None
    True
    """
    if (
        len(stored) < _HEAD.size
        or stored[4] != FORMAT
        or zlib.crc32(stored[4:]) != int.from_bytes(stored[:4], "little")
    ):
        return None
    _, _, script, asks, tells_time, tells_number, said, text, conversation = _HEAD.unpack_from(stored)
    tags, people = json.loads(stored[_HEAD.size :]) if len(stored) > _HEAD.size else ((), ())
    shape = (float(asks), float(tells_time), float(tells_number), said)
    return Traits(script, shape, text, conversation, tuple(Tag(*tag) for tag in tags), tuple(people))


def _number(*parts: str) -> int:
    return int(stable_hash(*parts)[:_TEXT_DIGITS], 16)
