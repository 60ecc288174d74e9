"""The index port on a Qdrant server or cluster, or in the client's local mode: collections beside a database.

The database holds the truth (`store/`); these collections are made of it and may be made again at any time. So a write
here needs no promise of the server's: what was applied and lost is applied again from the watermark. Searches are
answered here only where the mirror of the process is too small (`store.index_search`). The connection, its retries and
errors are in `qdrant_link`; how a collection is laid out is in `qdrant_layout`.

Whose a collection is stands in its metadata. One that holds points of another memory, or of a release that kept its
truth here, is refused and stays as it is: `memory-anchor migrate` carries it into a database, and then hands it over.
A server drops a deleted point's bytes when it next rewrites that segment and log, which a client cannot force.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, assert_never

import numpy as np

from memory_anchor.adapters import qdrant_layout
from memory_anchor.adapters.payload import MARK_FIELDS, mark_of, time_text
from memory_anchor.adapters.qdrant_layout import Layout
from memory_anchor.adapters.qdrant_link import Access, QdrantLink, already_exists
from memory_anchor.base.json_values import parsed, record, whole
from memory_anchor.domain.errors import BadInput, Refused, StoreDamaged
from memory_anchor.domain.model import account_of
from memory_anchor.domain.ports import WORDS, Hit, Mark, SparseVector
from memory_anchor.domain.where import AnyOf, Between, Condition, HasVector, OneOf, StartsWith, Where

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

    from memory_anchor.domain.ports import EmbedderIdentity, VectorQuery, WholePoint

PAGE = 500
EVERYTHING = Where()
VALUES_MAX = 100_000
"""Values of one keyword field among which a prefix is looked up."""
_TERM_WEIGHT = np.dtype([("term", "<u4"), ("weight", "<f4")])


class QdrantIndex:
    """The port `SearchIndex`; `query_batch` may be called by any thread at any time."""

    keeps_erased = False

    def __init__(self, name: str, access: Access, layout: Layout, *, owner: str) -> None:
        """name: what the watermark is kept under; another one for another server. owner: of the database it is for.

        Raises StoreBusy: another process has the folder open. BadInput: an address is none.
        """
        self.name, self._layout, self._owner = name, layout, owner
        self._link = QdrantLink(access)
        self._ask = self._link.ask
        self._embedders: dict[str, Mapping[str, EmbedderIdentity]] = {}
        self._there: dict[str, bool] = {}

    def fingerprint(self) -> str:
        return ""

    # --- collections -------------------------------------------------------------------------------------------------

    def is_torn(self, error: Exception) -> bool:
        return isinstance(error, StoreDamaged)

    def check(self, collections: Sequence[str]) -> None:
        self._link.check_version()
        for name in collections:
            owner = self._ask(partial(_owner_of, name))
            if owner not in (None, self._owner):
                raise Refused(
                    f"{name} at {self._link.place} is of another memory, or of a release that kept its memories there, "
                    "and stays as it is. `memory-anchor migrate` moves the latter; else set index.url to another "
                    "server, or remove the collections there."
                )
            self._there[name] = owner is not None

    def lacks(self, collections: Sequence[str]) -> bool:
        return not all(self._there.get(name) for name in collections)

    def begin(self, collections: Mapping[str, Mapping[str, EmbedderIdentity]], *, anew: bool) -> None:
        if not collections.keys() <= self._there.keys():
            self.check(list(collections))
        for name, embedders in collections.items():
            if anew and self._there[name]:
                self._ask(partial(_dropped, name))
            if anew or not self._there[name]:
                self._create(name, embedders)
            if self._link.is_server:
                self._ask(partial(qdrant_layout.update, name, self._layout))
            self._embedders[name], self._there[name] = embedders, True

    def hand_over(self, followed: Sequence[str], others: Sequence[str]) -> None:
        """Let collections be of this database from now on: what they hold was carried there whole.

        others: those that are no index; they are removed.
        """
        for name in followed:
            self._ask(partial(self._mark, name))
        for name in others:
            self._ask(partial(_dropped, name))

    def _create(self, name: str, embedders: Mapping[str, EmbedderIdentity]) -> None:
        def create(client: QdrantClient) -> bool:
            try:
                qdrant_layout.create(client, name, self._layout, embedders, self._owner)
            except Exception as error:
                if not already_exists(error):
                    raise
                return False
            return True

        if not self._ask(create):  # somebody created it at this moment
            self.check([name])

    def _mark(self, name: str, client: QdrantClient) -> None:
        if client.collection_exists(name):
            client.update_collection(name, metadata=qdrant_layout.metadata(self._owner))

    def count(self, collection: str) -> int:
        return int(self._ask(lambda client: client.count(collection, exact=True)).count)

    # --- a session ---------------------------------------------------------------------------------------------------

    def apply(self, collection: str, points: Sequence[WholePoint]) -> None:
        made = [_point_of(point, self._embedders[collection]) for point in points]
        self._ask(lambda client: client.upsert(collection, made, wait=True))

    def erase(self, collection: str, point_ids: Sequence[str]) -> None:
        from qdrant_client import models

        if point_ids:
            selector = models.PointIdsList(points=list(point_ids))
            self._ask(lambda client: client.delete(collection, selector, wait=True))

    def marks(self, collection: str) -> Iterator[Mark]:
        after: models.ExtendedPointId | None = None
        while True:
            scroll = partial(_scroll, collection, after)
            page, after = self._ask(scroll)
            yield from (mark_of(str(point.id), point.payload or {}) for point in page)
            if after is None:
                return

    def begin_anew(self, collection: str, embedders: Mapping[str, EmbedderIdentity]) -> None:
        raise NotImplementedError("what is erased is erased here; nothing need be made anew for it")

    def put_in_place(self, collection: str) -> None:
        raise NotImplementedError("see begin_anew")

    def flush(self) -> None:
        """Do nothing: a server flushes by itself, local mode with each write."""

    def end(self) -> None:
        """Do nothing: the connection stays open for searches."""

    def give_up(self) -> None:
        """Do nothing: what was applied stays, and is applied again."""

    def close(self) -> None:
        self._link.close()

    # --- searches ----------------------------------------------------------------------------------------------------

    def query_batch(
        self, collection: str, queries: Sequence[VectorQuery], where: Where = EVERYTHING
    ) -> list[list[Hit]]:
        """Ask once for all, and once more for each prefix that the filter has on a server."""
        only = self._filter(collection, where)
        params = qdrant_layout.search_params(self._layout) if self._link.is_server else None
        asked = [_request(query, only, params) for query in queries]
        answers = self._ask(lambda client: client.query_batch_points(collection, asked))
        return [[Hit(str(point.id), float(point.score)) for point in answer.points] for answer in answers]

    def _filter(self, collection: str, where: Where) -> models.Filter | None:
        """Return the server's filter, the account first: it is the tenant, and every reader's audience names it."""
        values = {condition.field: condition.values for condition in where.all_of if isinstance(condition, OneOf)}
        if "audience" in values and qdrant_layout.TENANT not in values:
            accounts = tuple(dict.fromkeys(account_of(str(audience)) for audience in values["audience"]))
            where = Where((OneOf(qdrant_layout.TENANT, accounts), *where.all_of), where.none_of)
        if self._link.is_server:
            where = self._without_prefixes(collection, where)
        return filter_of(where)

    def _without_prefixes(self, collection: str, where: Where) -> Where:
        """Return the filter with every prefix as the values that begin with it: a server of 1.18 knows no prefixes."""
        tenant = Where(
            tuple(one for one in where.all_of if isinstance(one, OneOf) and one.field == qdrant_layout.TENANT)
        )

        def expanded(condition: Condition) -> Condition:
            if isinstance(condition, AnyOf):
                return AnyOf(tuple(self._without_prefixes(collection, option) for option in condition.options))
            if not isinstance(condition, StartsWith):
                return condition
            field, prefix, only = condition.field, condition.prefix, filter_of(tenant)
            values = self._ask(
                lambda client: client.facet(collection, field, facet_filter=only, limit=VALUES_MAX, exact=False)
            ).hits
            if len(values) >= VALUES_MAX:
                raise BadInput(
                    f"{field} has more than {VALUES_MAX} values on this server; a prefix is looked up in fewer"
                )
            return OneOf(field, tuple(str(hit.value) for hit in values if str(hit.value).startswith(prefix)))

        return Where(tuple(map(expanded, where.all_of)), tuple(map(expanded, where.none_of)))


def _dropped(name: str, client: QdrantClient) -> None:
    if client.collection_exists(name):
        client.delete_collection(name)


def _owner_of(name: str, client: QdrantClient) -> str | None:
    """Return the database that a collection is for, "" where none is noted, None where there is no collection."""
    if not client.collection_exists(name):
        return None
    return qdrant_layout.owner_in(client.get_collection(name).config.metadata)


def _scroll(
    collection: str, after: models.ExtendedPointId | None, client: QdrantClient
) -> tuple[list[models.Record], models.ExtendedPointId | None]:
    return client.scroll(collection, limit=PAGE, offset=after, with_payload=list(MARK_FIELDS), with_vectors=False)


def _point_of(point: WholePoint, embedders: Mapping[str, EmbedderIdentity]) -> models.PointStruct:
    from qdrant_client import models

    vectors: dict[str, list[float] | models.SparseVector] = {}
    at = 0
    for name, length in record(parsed(point.names)).items() if point.names else ():
        if name in embedders:
            vectors[name] = np.frombuffer(point.dense, "<f4", count=whole(length), offset=4 * at).tolist()
        at += whole(length)
    if len(words := np.frombuffer(point.words, _TERM_WEIGHT)):
        vectors[WORDS] = _sparse(words["term"].tolist(), words["weight"].tolist())
    return models.PointStruct(id=point.point_id, vector=vectors, payload=dict(record(parsed(point.payload))))


def _request(query: VectorQuery, only: models.Filter | None, params: models.SearchParams | None) -> models.QueryRequest:
    from qdrant_client import models

    vector = query.vector
    asked = _sparse(vector.indices, vector.values) if isinstance(vector, SparseVector) else [*map(float, vector)]
    using = WORDS if isinstance(vector, SparseVector) else query.using
    return models.QueryRequest(
        query=asked, using=using, filter=only, params=params, limit=query.limit, with_payload=False
    )


def _sparse(terms: Sequence[int], weights: Sequence[float]) -> models.SparseVector:
    from qdrant_client import models

    return models.SparseVector(indices=list(terms), values=list(weights))


# --- filters ----------------------------------------------------------------------------------------------------


def filter_of(where: Where) -> models.Filter | None:
    """Return the server's filter, None where everything matches."""
    if not where.all_of and not where.none_of:
        return None
    return _group(where)


def _group(where: Where) -> models.Filter:
    from qdrant_client import models

    return models.Filter(
        must=[_condition(one) for one in where.all_of] or None,
        must_not=[models.Filter(must=[_condition(one)]) for one in where.none_of] or None,  # 1.18 skips a bare twin
    )


def _condition(condition: Condition) -> models.Condition:
    from qdrant_client import models

    match condition:
        case OneOf(field, values):
            if not values:
                return models.HasIdCondition(has_id=[])
            return models.FieldCondition(key=field, match=models.MatchAny(any=list(values)))
        case Between(field, at_least, below):
            if isinstance(at_least, datetime) or isinstance(below, datetime):
                times = models.DatetimeRange(gte=_instant(at_least), lt=_instant(below))
                return models.FieldCondition(key=field, range=times)
            return models.FieldCondition(key=field, range=models.Range(gte=at_least, lt=below))
        case StartsWith(field, prefix):
            return models.FieldCondition(key=field, match=models.MatchPrefix(prefix=prefix))
        case HasVector(name):
            return models.HasVectorCondition(has_vector=name)
        case AnyOf(options):
            if not options:
                return models.HasIdCondition(has_id=[])
            return models.Filter(should=[_group(option) for option in options])
        case _:
            assert_never(condition)


def _instant(instant: datetime | float | None) -> str | None:
    if instant is None:
        return None
    if not isinstance(instant, datetime):
        raise TypeError("a range has instants or numbers on both sides, not one of each")
    return time_text(instant)
