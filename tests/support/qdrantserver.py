"""The client's local mode behind the paths of a Qdrant server, for tests of several processes on one store.

Not a server of its own: every answer is what `QdrantClient(":memory:")` says. Where `QDRANT_TEST_URL` names a real one,
tests take that (`qdrant`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel, TypeAdapter
from qdrant_client import QdrantClient, models
from serving import Served
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from memory_anchor.domain.model import COLLECTIONS

VERSION = "1.18.3"
C = "/collections/{name}"
_FILTER: TypeAdapter[Any] = TypeAdapter(models.PointsSelector)


def _json(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {key: _json(one) for key, one in value.items()}
    return [_json(one) for one in value] if isinstance(value, list | tuple) else value


class LocalServer:
    """asked: how many requests came. away: set, every request is answered 500."""

    def __init__(self) -> None:
        self._client = QdrantClient(":memory:")
        self._lock = threading.Lock()
        self.asked = 0
        self.away = False
        done = {"operation_id": 0, "status": "completed"}
        self._done = done
        routes: list[tuple[str, str, Callable[[str, Any], Any]]] = [
            ("GET", f"{C}/exists", lambda name, _: {"exists": self._client.collection_exists(name)}),
            ("GET", C, lambda name, _: self._client.get_collection(name)),
            ("DELETE", C, lambda name, _: self._client.delete_collection(name)),
            ("PUT", C, self._create),
            ("PATCH", C, lambda name, body: self._client.update_collection(name, metadata=body.get("metadata"))),
            ("PUT", f"{C}/index", lambda *_: done),
            ("PUT", f"{C}/points", self._upsert),
            ("POST", f"{C}/points", self._retrieve),
            ("POST", f"{C}/points/scroll", self._scroll),
            ("POST", f"{C}/points/query/batch", self._query),
            ("POST", f"{C}/points/count", self._count),
            ("POST", f"{C}/facet", self._facet),
            ("POST", f"{C}/points/delete", self._delete),
            ("PUT", f"{C}/points/payload", self._overwrite),
            ("POST", f"{C}/points/batch", self._batch),
            ("PUT", f"{C}/points/vectors", self._vectors),
        ]
        app = Starlette(routes=[Route("/", self._root), *(Route(p, self._to(w), methods=[m]) for m, p, w in routes)])
        self.app = app

    async def _root(self, _: Request) -> JSONResponse:
        return JSONResponse({"title": "qdrant", "version": VERSION})

    def _to(self, work: Callable[[str, Any], Any]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> JSONResponse:
            body = await request.json() if await request.body() else {}

            def locked() -> Any:
                with self._lock:
                    self.asked += 1
                    return _json(work(request.path_params["name"], body))

            if self.away:
                return JSONResponse({"status": {"error": "away"}}, status_code=500)
            try:
                result = await run_in_threadpool(locked)
            except ValueError as error:
                status = 409 if "already exists" in str(error) else 404
                return JSONResponse({"status": {"error": str(error)}}, status_code=status)
            return JSONResponse({"result": result, "status": "ok", "time": 0.0})

        return answer

    def _create(self, name: str, body: Any) -> bool:
        request = models.CreateCollection.model_validate(body)
        return self._client.create_collection(
            name,
            vectors_config=request.vectors or {},
            sparse_vectors_config=request.sparse_vectors,
            metadata=request.metadata,
        )

    def _upsert(self, name: str, body: Any) -> Any:
        request = models.PointsList.model_validate(body)
        self._client.upsert(name, request.points, update_filter=request.update_filter)
        return self._done

    def _retrieve(self, name: str, body: Any) -> Any:
        request = models.PointRequest.model_validate(body)
        return self._client.retrieve(
            name, request.ids, with_payload=request.with_payload or False, with_vectors=request.with_vector or False
        )

    def _scroll(self, name: str, body: Any) -> Any:
        request = models.ScrollRequest.model_validate(body)
        points, following = self._client.scroll(
            name,
            scroll_filter=request.filter,
            limit=request.limit or 10,
            order_by=request.order_by,
            offset=request.offset,
            with_payload=True if request.with_payload is None else request.with_payload,
            with_vectors=request.with_vector or False,
        )
        return {"points": points, "next_page_offset": following}

    def _query(self, name: str, body: Any) -> Any:
        searches = models.QueryRequestBatch.model_validate(body).searches
        for search in searches:
            search.params = None  # local mode warns of it
        return self._client.query_batch_points(name, searches)

    def _count(self, name: str, body: Any) -> Any:
        return self._client.count(name, count_filter=models.CountRequest.model_validate(body).filter, exact=True)

    def _facet(self, name: str, body: Any) -> Any:
        request = models.FacetRequest.model_validate(body)
        return self._client.facet(name, request.key, facet_filter=request.filter, limit=request.limit or 10, exact=True)

    def _delete(self, name: str, body: Any) -> Any:
        self._client.delete(name, _FILTER.validate_python(body))
        return self._done

    def _overwrite(self, name: str, body: Any) -> Any:
        request = models.SetPayload.model_validate(body)
        self._client.overwrite_payload(name, request.payload, request.points or request.filter)
        return self._done

    def _batch(self, name: str, body: Any) -> Any:
        self._client.batch_update_points(name, models.UpdateOperations.model_validate(body).operations)
        return [self._done for _ in body["operations"]]

    def _vectors(self, name: str, body: Any) -> Any:
        self._client.update_vectors(name, models.UpdateVectors.model_validate(body).points)
        return self._done


class Place:
    """A Qdrant for one test. local: the stand-in, None for a real server."""

    def __init__(self, url: str, local: LocalServer | None) -> None:
        self.url, self.local = url, local

    def env(self) -> dict[str, str]:
        """Return the environment of an engine."""
        names = {"KIND": "qdrant", "URL": self.url}
        return {f"MEMORY_ANCHOR_INDEX__{name}": value for name, value in names.items()}


@contextmanager
def qdrant() -> Iterator[Place]:
    """Yield an empty Qdrant: the server of `QDRANT_TEST_URL`, else the stand-in."""
    if url := os.environ.get("QDRANT_TEST_URL"):
        client = QdrantClient(url=url.split(",")[0], check_compatibility=False)
        for name in COLLECTIONS:
            client.delete_collection(name)
        client.close()
        yield Place(url, None)
        return
    local = LocalServer()
    served = Served(local.app)
    try:
        yield Place(served.base, local)
    finally:
        served.close()
