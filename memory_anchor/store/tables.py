"""A memory as rows of the tables (`layout`); a `Where` as their SQL.

Each row carries a checksum over its columns and its text, each vector another one: `integrity_check` finds nothing
wrong with a flipped bit inside a text, and one in an audience would show a memory to the wrong reader.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, assert_never, cast

import numpy as np

from memory_anchor.adapters.payload import from_payload, to_payload, usage_payload
from memory_anchor.base.json_values import Record, items, parsed, record
from memory_anchor.domain.errors import BadInput, Mending, StoreDamaged, WrongEmbedder
from memory_anchor.domain.model import FOREVER, Memory, Usage
from memory_anchor.domain.ports import ABSENT, WORDS, EmbedderIdentity, FollowedRows, SparseVector
from memory_anchor.domain.where import INDEXED_FIELDS, AnyOf, Between, Condition, HasVector, OneOf, StartsWith, Where
from memory_anchor.language.traits import packed, traits_of
from memory_anchor.store.group_commit import Row, Value
from memory_anchor.store.layout import SqlDialect, micros
from memory_anchor.store.revisions import with_revision

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.domain.ports import Entry, Matrix

COLUMNS = (
    *("collection", "point", "id", "version", "layer", "type", "account", "project", "audience", "state"),
    *("conversation", "conversation_seq", "hash", "recorded_at", "recorded_to", "valid_from", "valid_to"),
    *("happened_at", "when_at", "expires_at", "content_at", "doc"),
)
"""What the checksum of a version covers, in this order."""
SELECTED = f"{', '.join(f'version.{name}' for name in COLUMNS)}, version.crc, used.last_at, used.doc, used.crc"
SELECTED_COUNT = len(COLUMNS) + 4
"""What `memory_of` reads, from `STORED`."""
STORED = "version left join used on used.seq = version.seq"
VECTOR = "vec.names, vec.dense, vec.words, vec.crc"
"""What `vectors_of` reads."""
_FOLLOWED_NAMES = ("collection", "state", "audience", "type", "account", "project", "conversation")
_FOLLOWED_TIMES = ("recorded_at", "recorded_to", "happened_at", "when_at", "content_at")
_FOLLOWED = ("seq", "changed", "crc", "point", "conversation_seq", *_FOLLOWED_NAMES, *_FOLLOWED_TIMES)
FOLLOWED = f"{', '.join(f'version.{name}' for name in _FOLLOWED)}, vec.traits, {VECTOR}"
"""What `followed_of` reads, from `version left join vec`."""
FEW = 2_000
"""Rows that are looked up one by one rather than sought in an index of all."""
TERMS = {"tag": 1, "who": 2, "request_keys": 3}
"""Fields of several values -> their number in `term`."""
_LAST_AT = "(select last_at from used where used.seq = version.seq)"
_RENAMED = {"content_hash": "hash", "when": "happened_at", "last_at": _LAST_AT}
"""Fields of a filter whose column has another name; `when` is ordered by what the index has."""
_THERE = {"when": "when_at"}
"""Fields that a version has only where this column holds something."""
_NOT_IN_DOC = ("usage", "last_at")
_TERM_WEIGHT = np.dtype([("term", "<u4"), ("weight", "<f4")])
_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _micros_of(instant: datetime | None) -> int | None:
    return None if instant is None else micros(instant)


def point_bytes(point_id: str) -> bytes:
    return bytes.fromhex(point_id.replace("-", ""))


def point_text(point: bytes) -> str:
    digits = point.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


# --- rows ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewRow:
    """A version to be written. columns: as `COLUMNS`; vector: as `VECTOR`; used: as `used_of`, None while unused.

    traits: of its text, for who searches (`language.traits`); they have a checksum of their own.
    """

    memory: Memory
    point: bytes
    columns: Row
    crc: int
    terms: frozenset[tuple[int, str]]
    vector: Row | None
    traits: bytes
    used: Row | None


def row_of(collection: str, entry: Entry, rows: Mapping[str, Matrix]) -> NewRow:
    """Return the version of an entry as it is stored. rows: its dense vectors, checked.

    Raises BadInput: a text holds half a character.
    """
    memory = entry.memory
    point = point_bytes(memory.point_id)
    payload = with_revision(to_payload(memory))
    doc = {name: value for name, value in payload.items() if name not in _NOT_IN_DOC}
    columns: Row = (
        *(collection, point, memory.id, memory.version, memory.layer.value, memory.type.value, memory.scope.account),
        *(memory.scope.project, memory.audience, memory.state, memory.scope.conversation, memory.conversation_seq),
        *(memory.content_hash, micros(memory.recorded_at), micros(memory.recorded_to or FOREVER)),
        *(micros(memory.valid_from), micros(memory.valid_to or FOREVER), micros(memory.happened_at)),
        *(_micros_of(memory.when), _micros_of(memory.expires_at)),
        *(_micros_of(memory.content_at), _compact(doc)),
    )
    try:
        crc = _checksum(columns)
    except UnicodeEncodeError as error:
        raise BadInput(f"memory {memory.id!r} holds half a character, which no store keeps; leave it out.") from error
    vector = vector_of(point, rows, entry.words)
    return NewRow(
        memory,
        point,
        columns,
        crc,
        terms_of(doc),
        vector,
        packed(traits_of(memory)) if vector is not None else b"",  # what may not be read has neither words nor a row
        used_of(memory.usage) if memory.usage != Usage() else None,
    )


def terms_of(doc: Record) -> frozenset[tuple[int, str]]:
    """Return the terms of a version: the numbers of their fields, and the values."""
    return frozenset((number, str(value)) for name, number in TERMS.items() for value in items(doc.get(name, [])))


def used_of(usage: Usage) -> Row:
    """Return the columns of `used`: last_at, JSON, checksum."""
    columns: Row = (_micros_of(usage.last_at), _compact(usage_payload(usage)))
    return (*columns, _checksum(columns))


def vector_of(point: bytes, rows: Mapping[str, Matrix], words: SparseVector | None) -> Row | None:
    """Return the columns of `vec`: lengths by name, float32 rows one after the other, terms with weights, checksum.

    None: nothing to be stored.
    """
    if not rows and not (words and words.indices):
        return None
    names = _compact({name: len(rows[name]) for name in sorted(rows)})
    dense = b"".join(np.asarray(rows[name], "<f4").tobytes() for name in sorted(rows)) or None
    weights = None
    if words and words.indices:
        weights = np.array(list(zip(words.indices, words.values, strict=True)), _TERM_WEIGHT).tobytes()
    return names, dense, weights, _vector_checksum(point, names, dense, weights)


def memory_of(row: Row, place: str) -> Memory:
    """Return the memory of a row that starts with `SELECTED`. Raises StoreDamaged: it is not as it was written."""
    count = len(COLUMNS)
    columns, crc, used = row[:count], row[count], row[count + 1 : SELECTED_COUNT]
    if _checksum(columns) != crc or (used[2] is not None and _checksum(used[:2]) != used[2]):
        raise damaged(place, columns[1], str(columns[2]))
    try:
        payload = str(columns[-1])
        return from_payload(payload if used[2] is None else f"{payload[:-1]},{str(used[1])[1:]}")
    except (ValueError, BadInput) as error:
        raise damaged(place, columns[1], str(columns[2])) from error


def vectors_of(point: bytes, vector: Row, place: str) -> tuple[dict[str, Matrix], SparseVector | None]:
    """Return the dense rows and the words of a row that starts with `VECTOR`. Raises StoreDamaged."""
    names, dense, words, crc = cast("tuple[str | None, bytes | None, bytes | None, int]", vector[:4])
    if names is None:
        return {}, None
    if _vector_checksum(point, names, dense, words) != crc:
        raise damaged(place, point)
    rows: dict[str, Matrix] = {}
    at = 0
    for name, length in record(parsed(names)).items():
        rows[name] = np.frombuffer(dense or b"", "<f4", count=cast("int", length), offset=4 * at).astype(np.float32)
        at += cast("int", length)
    return rows, None if words is None else _words_of(words)


def followed_of(rows: Sequence[Row]) -> FollowedRows:
    """Return what whoever follows the store keeps of rows of `FOLLOWED`, at least one.

    Vectors and words that are not as they were written are left out: one flipped bit could outweigh all others.
    """
    columns = list(zip(*rows, strict=True))
    found = dict(zip(_FOLLOWED, columns, strict=False))
    points = cast("tuple[bytes, ...]", found["point"])
    traits, names, dense, _, checksums = columns[len(_FOLLOWED) :]
    # `_vector_checksum` without a call more: there are a hundred thousand of them.
    crc32, heads = zlib.crc32, {named: str(named).encode("utf-8", "surrogateescape") for named in set(names)}
    vectors = cast("Iterable[tuple[str | None, bytes | None, bytes | None, int]]", zip(*columns[-4:], strict=True))
    read = [
        own or b"" if crc32(own or b"", crc32(row or b"", crc32(heads[named], crc32(point)))) == crc else None
        for point, (named, row, own, crc) in zip(points, vectors, strict=True)
    ]
    by_names: dict[str, list[int]] = {}
    for named in heads.keys() - {None}:
        by_names[str(named)] = [at for at, own in enumerate(read) if own is not None and names[at] == named]
    sound = [own or b"" for own in read]
    both = np.frombuffer(b"".join(sound), _TERM_WEIGHT)
    return FollowedRows(
        _whole(found["seq"]),
        _whole(found["changed"]),
        np.frombuffer(b"".join(points), np.uint8).reshape(len(rows), -1),
        {name: cast("tuple[str, ...]", found[name]) for name in _FOLLOWED_NAMES},
        {name: _whole(found[name]) for name in _FOLLOWED_TIMES},
        _whole(found["conversation_seq"]),
        [each or b"" for each in cast("tuple[bytes | None, ...]", traits)],
        _rows_by_name(by_names, cast("tuple[bytes | None, ...]", dense)),
        both["term"],
        both["weight"],
        np.array(list(map(len, sound)), np.int64) // _TERM_WEIGHT.itemsize,
        checksums_of(found["crc"], checksums),
    )


def checksums_of(of_versions: Sequence[Value], of_vectors: Sequence[Value]) -> NDArray[np.int64]:
    """Return one checksum of each version and its vectors, None for none."""
    vectors = _whole([crc or 0 for crc in of_vectors])
    return _whole(of_versions) << 32 | vectors


def _rows_by_name(
    by_names: Mapping[str, list[int]], dense: Sequence[bytes | None]
) -> dict[str, tuple[NDArray[np.int64], Matrix]]:
    """Return of each named vector which versions have it, and their rows. by_names: versions of the same lengths."""
    parts: dict[str, list[tuple[np.ndarray, Matrix]]] = {}
    for names, versions in by_names.items():
        raw = b"".join([dense[at] or b"" for at in versions])
        together = np.frombuffer(raw, "<f4").reshape(len(versions), sum(length for _, length in _lengths(names)))
        first = 0
        for name, length in _lengths(names):
            parts.setdefault(name, []).append((np.array(versions, np.int64), together[:, first : first + length]))
            first += length
    return {
        name: found[0]
        if len(found) == 1
        else (np.concatenate([at for at, _ in found]), np.concatenate([row for _, row in found]))
        for name, found in parts.items()
    }


def _whole(column: Sequence[Value]) -> NDArray[np.int64]:
    try:
        return np.array(column, np.int64)
    except TypeError:  # one of them is null
        return np.array([ABSENT if value is None else value for value in column], np.int64)


def vector_row(point: bytes, vector: Row, name: str) -> Matrix | None:
    """Return one dense row of a row that starts with `VECTOR`; None without it, and where it is damaged."""
    names, dense, words, crc = cast("tuple[str, bytes | None, bytes | None, int]", vector[:4])
    first = 0
    for each, length in _lengths(names) if _vector_checksum(point, names, dense, words) == crc else ():
        if each == name:
            return np.frombuffer(dense or b"", "<f4", count=length, offset=4 * first)
        first += length
    return None


@lru_cache(maxsize=64)
def _lengths(names: str) -> tuple[tuple[str, int], ...]:
    return tuple((name, cast("int", length)) for name, length in record(parsed(names)).items())


def _words_of(words: bytes) -> SparseVector:
    weights = np.frombuffer(words, _TERM_WEIGHT)
    return SparseVector(tuple(weights["term"].tolist()), tuple(weights["weight"].tolist()))


def joined_words(blobs: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the terms and the weights of many rows' words in one array each, and of each the number of its row."""
    weights = np.frombuffer(b"".join(blobs), _TERM_WEIGHT)
    owner = np.repeat(np.arange(len(blobs)), [len(blob) // _TERM_WEIGHT.itemsize for blob in blobs])
    return weights["term"], weights["weight"].astype(np.float64), owner


def _checksum(columns: Row) -> int:
    return zlib.crc32("\x1f".join(map(str, columns)).encode("utf-8", "surrogateescape"))


def _vector_checksum(point: bytes, names: str, dense: bytes | None, words: bytes | None) -> int:
    head = zlib.crc32(names.encode("utf-8", "surrogateescape"), zlib.crc32(point))
    return zlib.crc32(words or b"", zlib.crc32(dense or b"", head))


def damaged(place: str, point: Value, id: str = "") -> StoreDamaged:
    """Return the error that names a version which is not as it was written."""
    named = point_text(point) if isinstance(point, bytes) else str(point)
    return StoreDamaged(
        f"{place}: version {named}{f' of memory {id}' if id else ''} is not as it was written; nothing was changed. "
        "`memory-anchor doctor --salvage` brings back what can be read.",
        Mending.SALVAGE,
    )


# --- filters ---------------------------------------------------------------------------------------------------------


def condition_of(where: Where, dialect: SqlDialect) -> tuple[str, list[Value]]:
    """Return the SQL that is true of the rows of `version` that fulfil `where`, and its values."""
    parts: list[str] = []
    values: list[Value] = []
    for is_wanted, conditions in ((True, where.all_of), (False, where.none_of)):
        for condition in conditions:
            sql, more = _test(condition, dialect)
            parts.append(sql if is_wanted else f"not coalesce({sql}, 1=0)")
            values += more
    return " and ".join(parts) or "1=1", values


def collection_test(where: Where, rows: Callable[[str, Row], list[Row]]) -> str:
    """Return the test of the collection beside `where`. rows: tells how many have a tag, a person or a request.

    SQLite knows nothing of how often a value occurs, and would read all of a collection by an index that begins with
    it rather than look for ids: 25 ms for each memory of 100,000. It is kept from that where few are named.
    """
    named = any(isinstance(one, OneOf) and one.field in ("id", "content_hash") for one in where.all_of)
    for sql, values in filter(None, (terms_alone(Where((one,))) for one in where.all_of)):
        named = named or rows(f"select count(*) from ({sql} limit {FEW}) as few", tuple(values)) != [(FEW,)]
    return "(version.collection || '') = ?" if named else "version.collection = ?"


def order_term(column: str, where: Where) -> str:
    """Return what rows are ordered by, so that of states which few have those few are read and sorted.

    By the index of times SQLite would look through the whole collection for them, as above.
    """
    few = any(isinstance(one, OneOf) and one.field == "state" and "active" not in one.values for one in where.all_of)
    return f"{column} + 0" if few and column == "version.recorded_at" else column


def terms_alone(where: Where) -> tuple[str, list[Value]] | None:
    """Return the SQL of the numbers of all versions that fulfil lists of values, from `term` alone; None for others."""
    parts: list[str] = []
    values: list[Value] = []
    for condition in where.all_of:
        if where.none_of or not isinstance(condition, OneOf) or condition.field not in TERMS:
            return None
        wanted = [value for value in condition.values if isinstance(value, str)]
        parts.append(
            f"select seq from term where field = {TERMS[condition.field]} and value in ({', '.join('?' * len(wanted))})"
            if wanted
            else "select seq from term where 1=0"
        )
        values += wanted
    return (" intersect ".join(parts), values) if parts else None


def ordering_of(field: str, dialect: SqlDialect) -> tuple[str, str]:
    """Return what a field is ordered by, and the condition that a version has it."""
    column = _column(field, dialect)
    return column, f"{_THERE.get(field, column)} is not null"


def facet_of(field: str, dialect: SqlDialect) -> tuple[str, str]:
    """Return the value that a keyword field is counted by, and the tables it is read from."""
    if number := TERMS.get(field):
        return "term.value", f"version join term on term.seq = version.seq and term.field = {number}"
    return _column(field, dialect), "version"


def _test(condition: Condition, dialect: SqlDialect) -> tuple[str, list[Value]]:
    match condition:
        case OneOf(field, wanted):
            kind = int if INDEXED_FIELDS[field] == "integer" else str
            values: list[Value] = [value for value in wanted if isinstance(value, kind)]
            marks = ", ".join("?" * len(values))
            return (_of_field(field, "{} in " + f"({marks})", dialect), values) if values else ("1=0", [])
        case StartsWith(field, prefix):
            return _of_field(field, "substr({}, 1, ?) = ?", dialect), [len(prefix), prefix]
        case Between(field, at_least, below):
            column, is_there = ordering_of(field, dialect)
            bounds = [(">=", at_least), ("<", below)]
            parts = [f"{column} {sign} ?" for sign, bound in bounds if bound is not None]
            return f"({' and '.join([*parts, is_there])})", [_bound(bound) for _, bound in bounds if bound is not None]
        case HasVector(name):
            test = "vec.words is not null" if name == WORDS else "vec.names like ?"
            sql = f"exists(select 1 from vec where vec.seq = version.seq and {test})"
            return sql, [] if name == WORDS else [f'%"{name}":%']
        case AnyOf(options):
            tests = [condition_of(option, dialect) for option in options]
            values = [value for _, more in tests for value in more]
            return f"({' or '.join(f'({sql})' for sql, _ in tests) or '1=0'})", values
        case _:
            assert_never(condition)


def _of_field(field: str, test: str, dialect: SqlDialect) -> str:
    if number := TERMS.get(field):
        return f"version.seq in (select seq from term where field = {number} and {test.format('value')})"
    return f"({test.format(_column(field, dialect))})"


def _column(field: str, dialect: SqlDialect) -> str:
    if field in _RENAMED:
        return _RENAMED[field]
    return f"version.{field}" if field in COLUMNS else dialect.json.format(field)


def _bound(bound: datetime | float) -> Value:
    return micros(bound) if isinstance(bound, datetime) else bound


def inverse_frequency(documents_with: int, documents: int) -> float:
    """Return ln((N - df + 0.5) / (df + 0.5) + 1), Qdrant's IDF; N counts the points that carry the sparse vector."""
    return math.log((documents - documents_with + 0.5) / (documents_with + 0.5) + 1.0)


# --- what is checked of vectors before they are written --------------------------------------------------------------


def checked_rows(rows: Mapping[str, Matrix], embedders: Mapping[str, EmbedderIdentity]) -> dict[str, Matrix]:
    """Return the rows as float32, each as long as its embedder says.

    Raises WrongEmbedder: a name the collection has not, or a wrong length. BadInput: a number that is not finite.
    An engine would refuse these too, but only after the batch is in its write-ahead log.
    """
    checked: dict[str, Matrix] = {}
    for name, row in rows.items():
        identity = embedders.get(name)
        flat = np.asarray(row, dtype=np.float32).reshape(-1)
        if identity is None:
            raise WrongEmbedder(
                f"vector {name!r}: this collection has {sorted(embedders)}; run `memory-anchor reindex`."
            )
        if flat.shape[0] != identity.dimensions:
            raise WrongEmbedder(
                f"vector {name!r} has {flat.shape[0]} dimensions, {identity.model} has {identity.dimensions}; "
                "run `memory-anchor reindex` after changing the embedder."
            )
        if not np.isfinite(flat).all():
            raise BadInput(f"vector {name!r} holds a number that is not finite; nothing was written.")
        checked[name] = flat
    return checked


def identity_conflict(
    collection: str, stored: Mapping[str, EmbedderIdentity], wanted: Mapping[str, EmbedderIdentity]
) -> WrongEmbedder | None:
    """Return the error when a vector of `stored` was made by another embedder than `wanted` says, else None."""
    for name, identity in wanted.items():
        made_with = stored.get(name, identity)
        if made_with != identity:
            return WrongEmbedder(
                f"collection {collection!r} was made with {_named(made_with)}, now the embedder is {_named(identity)}; "
                "run `memory-anchor reindex` to move it, or set the embedder back."
            )
    return None


def _named(identity: EmbedderIdentity) -> str:
    return f"{identity.model} ({identity.dimensions} dimensions, roles {identity.roles})"
