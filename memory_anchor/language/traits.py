"""What ranking asks of a memory's text besides its words, worked out once and stored beside them as a few bytes.

Reading a hundred thousand texts again at each start took a quarter of a minute; their traits are read in a tenth of a
second. Bytes of another `FORMAT`, or damaged ones, are left out, and the memory's text is read instead.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.base.hashing import stable_hash
from memory_anchor.domain.model import Tag
from memory_anchor.language.indexing import embedded_text
from memory_anchor.language.shape import shape_of
from memory_anchor.language.terms import is_chinese, normal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.domain.model import Memory

FORMAT = 1
"""To be raised when a trait is derived or stored otherwise."""
_HEAD = struct.Struct("<IBBBBBfqq")
_COLUMNS = np.dtype(
    [("crc", "<u4"), ("format", "u1"), ("script", "u1"), ("flags", "u1", 3), ("said", "<f4"), ("text", "<i8", 2)]
)
"""The same, of many."""
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


@dataclass(frozen=True, slots=True)
class TraitColumns:
    """The traits of many memories, aligned. shapes: (n, 4). named: bytes for `named_of`, b"" where nobody and nothing
    is named. is_known: where it is False, the stored bytes were of another format or damaged."""

    scripts: NDArray[np.int8]
    shapes: NDArray[np.float32]
    texts: NDArray[np.int64]
    said: NDArray[np.int64]
    named: Sequence[bytes]
    is_known: NDArray[np.bool_]


def unpacked(stored: Sequence[bytes]) -> TraitColumns:
    """Return what `packed` gave for each of many memories.

    >>> unpacked([b""]).is_known.tolist()
    [False]
    """
    size, crc32 = _HEAD.size, zlib.crc32
    heads = np.frombuffer(b"".join([each[:size].ljust(size) for each in stored]), _COLUMNS)
    checksums = np.array([crc32(each[4:]) for each in stored], np.uint32)
    is_known = (heads["format"] == FORMAT) & (heads["crc"] == checksums)
    shapes = np.empty((len(stored), 4), np.float32)
    shapes[:, :3], shapes[:, 3] = heads["flags"], heads["said"]
    return TraitColumns(
        heads["script"].astype(np.int8),
        shapes,
        heads["text"][:, 0],
        heads["text"][:, 1],
        [each[size:] for each in stored],
        is_known,
    )


def named_of(named: Sequence[bytes]) -> list[tuple[tuple[Tag, ...], tuple[str, ...]]]:
    """Return the tags and the people of each, as `TraitColumns.named` has them."""
    found = json.loads(b"[" + b",".join([each or b"[[],[]]" for each in named]) + b"]")
    return [(tuple([Tag(*tag) for tag in tags]), tuple(people)) for tags, people in found]


def _number(*parts: str) -> int:
    return int(stable_hash(*parts)[:_TEXT_DIGITS], 16)
