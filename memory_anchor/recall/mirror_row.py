"""A version as the mirror keeps it, made of a memory, or of what a store that is followed gives without its text."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.domain.model import FOREVER
from memory_anchor.language.indexing import searched_words
from memory_anchor.language.traits import Traits, traits_of
from memory_anchor.recall.row_columns import NEVER, NONE, micros

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.domain.ports import Entry, FollowedRow

Place = tuple[str, int]
"""A conversation on one day, and a place in it."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class MirrorRow:
    """place: None outside of any conversation. number: of the store's version, -1 where the store has none.

    times: microseconds, as `row_columns.TIMES`. checksum, words_checksum: of vectors and
    words, of words alone; -1 where they are not known.
    """

    point: str
    number: int
    collection: str
    state: str
    audience: str
    type: str
    project: str
    place: Place | None
    happened: float
    times: tuple[int, int, int, int]
    traits: Traits
    terms: NDArray[np.uint32]
    weights: NDArray[np.float32]
    checksum: int = NONE
    words_checksum: int = NONE


@dataclass(frozen=True, slots=True)
class RowTraits:
    """What the mirror knows of some rows besides their vectors and words, aligned with them.

    scripts: 1 for Chinese, else 0. conversations: their numbers (a day of one each), -1 outside of any. happened:
    seconds since 1970. shapes: (n, 4) asks, names a time, names a number (0 or 1) and the log of how much is said.
    people: the distinct groups of people of these rows, lower case; group: which of them each row has.
    """

    scripts: NDArray[np.int8]
    conversations: NDArray[np.int32]
    happened: NDArray[np.float64]
    shapes: NDArray[np.float32]
    people: list[tuple[str, ...]]
    group: NDArray[np.intp]


def row_of_entry(point: str, entry: Entry, collection: str, place: Place | None) -> MirrorRow:
    memory, scope = entry.memory, entry.memory.scope
    words = entry.words or searched_words(memory)
    return MirrorRow(
        point,
        NONE,
        collection,
        memory.state,
        memory.audience,
        memory.type.value,
        f"{scope.account}|{scope.project}",
        place,
        memory.happened_at.timestamp(),
        (
            micros(memory.recorded_at),
            micros(memory.recorded_to or FOREVER),
            micros(memory.when),
            micros(memory.content_at),
        ),
        traits_of(memory),
        np.asarray(words.indices, np.uint32),
        np.asarray(words.values, np.float32),
    )


def row_of_followed(row: FollowedRow, traits: Traits) -> MirrorRow:
    place: Place | None = None
    if row.conversation and row.conversation_seq is not None:
        day = (_EPOCH + timedelta(microseconds=row.happened_at)).date().isoformat()
        place = (f"{row.collection}|{row.account}|{row.project}|{row.conversation}|{day}", row.conversation_seq)
    when, content_at = (int(NEVER) if at is None else at for at in (row.when_at, row.content_at))
    return MirrorRow(
        row.point_id,
        row.number,
        row.collection,
        row.state,
        row.audience,
        row.type,
        f"{row.account}|{row.project}",
        place,
        row.happened_at / 1e6,
        (row.recorded_at, row.recorded_to, when, content_at),
        traits,
        row.terms,
        row.weights,
        row.checksum,
        row.words_checksum,
    )
