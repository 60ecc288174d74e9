"""The tables, in one text for SQLite and PostgreSQL, and what the two say differently.

A version is one row: its payload as JSON text (`doc`), and as columns what is filtered or ordered by often. Other
fields of a filter are read out of `doc`; lists (tags, people, request keys) are rows of `term`; usage, which moves
without the text, and vectors have tables of their own. PostgreSQL keeps `doc` as text too: jsonb would rewrite it.

`changed` is one counter over every write of a row, erasing included (`gone`): who follows the store asks for what is
above the number they have seen. A version's `seq` is the number of its first write, so it is never used twice.

Apart from `tables`, because who opens the database for its trail or its records waits for no numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

LAYOUT = "2"
"""The version of these tables, kept in `meta`."""
TABLES = """
create table if not exists meta(name {text} primary key, value {text} not null){packed};
create table if not exists version(seq {key} primary key, changed bigint not null unique, crc bigint not null,
  collection {text} not null, point {blob} not null, id {text} not null, version bigint not null,
  layer {text} not null, type {text} not null, account {text} not null, project {text} not null,
  audience {text} not null, state {text} not null, conversation {text} not null, conversation_seq bigint,
  hash {text} not null, recorded_at bigint not null, recorded_to bigint not null, valid_from bigint not null,
  valid_to bigint not null, happened_at bigint not null, when_at bigint, expires_at bigint, content_at bigint,
  doc {text} not null,
  unique(collection, point), unique(id, version, collection));
create index if not exists by_state on version(collection, state, audience, happened_at, type, expires_at);
create index if not exists newest on version(collection, happened_at);
create index if not exists by_hash on version(hash);
create index if not exists by_conversation on version(collection, conversation, conversation_seq);
create table if not exists term(field bigint not null, value {text} not null, seq bigint not null,
  primary key(field, value, seq)){packed};
create table if not exists vec(seq {key} primary key references version(seq) on delete cascade,
  crc bigint not null, names {text} not null, dense {blob}, words {blob}, traits {blob});
create table if not exists used(seq {key} primary key references version(seq) on delete cascade,
  crc bigint not null, last_at bigint, doc {text} not null);
create table if not exists gone(changed {key} primary key, collection {text} not null, point {blob} not null);
create table if not exists audit(line {key} primary key, kind {text} not null, imported bigint not null,
  record {blob} not null);
create table if not exists record(name {text} primary key, changed bigint not null unique, at bigint not null,
  crc bigint not null, content {blob});
drop index if exists by_time; drop index if exists latest;
create index if not exists by_record on version(collection, recorded_at, state, audience, expires_at, version);
"""
"""Times are microseconds since 1970, UTC. Each index is a page more that a save writes, so a row's terms are found by
its text, and not by an index of their own. What counts ask of a row stands in an index; two had less before."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class SqlDialect:
    """What the two databases say differently.

    types: names in `TABLES`. json: how a field of `doc` is read, null where it has none.
    """

    name: str
    mark: str
    types: Mapping[str, str]
    json: str

    def tables(self) -> list[str]:
        return TABLES.format(**self.types).split(";")


SQLITE = SqlDialect(
    "sqlite",
    "?",
    {"text": "text", "blob": "blob", "key": "integer", "packed": " without rowid"},
    "json_extract(version.doc, '$.{}')",
)
POSTGRESQL = SqlDialect(
    "postgresql",
    "%s",
    {"text": 'text collate "C"', "blob": "bytea", "key": "bigint", "packed": ""},
    "(version.doc::json ->> '{}')",
)


def micros(instant: datetime) -> int:
    return (instant - _EPOCH) // _MICROSECOND
