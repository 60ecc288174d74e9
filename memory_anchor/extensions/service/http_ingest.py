"""`/v1/ingest`: a batch of memories, events, documents, conversations; stored, accepted, processed in the background.

Every item is checked before the batch is accepted, so a batch is accepted whole or not at all; secrets are removed from
a text before it is stored. One thread processes batches in order. What fails for now (the store is down, the disk is
full) is tried again; what can never succeed has its error as its outcome.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Json, Record, record, texts
from memory_anchor.domain import rights
from memory_anchor.domain.errors import BadInput, DiskFull, MemoryAnchorError, NotFound, StoreBusy, Unavailable
from memory_anchor.domain.model import Actor, Scope
from memory_anchor.domain.requests.checks import REQUEST_ID_MAX, shortened
from memory_anchor.domain.requests.fields import BaseRequest
from memory_anchor.domain.rights import Action
from memory_anchor.extensions.service.batches import ITEMS_MAX, Batch, Batches
from memory_anchor.extensions.service.http_access import error_body
from memory_anchor.extensions.service.http_v1 import (
    CLAIMS,
    CLAIMS_SCHEMA,
    ERRORS,
    PRINCIPAL_OF_ROLE,
    REQUEST_ID,
    V1Handler,
    body_schema,
    pop_claims,
    pop_text,
    request_schema,
)
from memory_anchor.extensions.service.variants import VariantChoice
from memory_anchor.front.callers import credential_of, safe_name
from memory_anchor.front.table import ROWS
from memory_anchor.runtime.cleanlog import log_bug

if TYPE_CHECKING:
    from memory_anchor.process.wiring import Core
    from memory_anchor.use_cases.memory import MemoryAnchor

log = logging.getLogger("memory_anchor.ingest")
KINDS = {
    "memory": ("add", Action.SAVE),
    "event": ("log", Action.LOG),
    "document": ("knowledge_push", Action.KNOWLEDGE),
    "conversation": ("remember", Action.LEARN),
}
REDACTIONS = "redactions"
"""Of an item that waits: what was removed from it when it came, for its outcome."""
RETRY_S = 5.0
STOP_WAIT_S = 10.0


class BatchWorker:
    """Processes batches on a thread of its own, from `start` to `stop`."""

    def __init__(self, core: Core, batches: Batches, variants: VariantChoice) -> None:
        self._core = core
        self._variants = variants
        self.batches = batches
        self._lease = core.lease("batches")
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="ingest", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(STOP_WAIT_S)
        with contextlib.suppress(Unavailable):
            self._lease.release()

    def accept(self, actor: Actor, request_id: str, items: Sequence[Record]) -> Record:
        """Store a batch of clean items and return its report."""
        scope = actor.scope
        owner = {
            **{name: getattr(scope, name) for name in ("account", "user", "agent", "conversation")},
            **{name: getattr(actor, name) for name in ("client", "zone", "project", "project_dir", "person")},
        }
        report = self.batches.accept(owner, request_id, items, self._core.clock.now())
        self._wake.set()
        return report

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                self._work_off()
            except (Unavailable, StoreBusy, DiskFull) as error:
                log.warning("batches wait: %s", error)
                self._stopping.wait(RETRY_S)
                continue
            except Exception as bug:
                log_bug("ingest", bug)
                self._stopping.wait(RETRY_S)
            self._wake.wait(RETRY_S)

    def _work_off(self) -> None:
        if not self.batches.count():
            return
        for batch in self.batches.waiting() if self._lease.held() else ():
            if self._stopping.is_set():
                return
            self.batches.finish(batch, self._outcomes(batch))

    def _outcomes(self, batch: Batch) -> list[Record]:
        owner = batch.owner
        scope = Scope(owner["account"], "", owner["user"], owner["agent"], owner["conversation"])
        actor = Actor(
            scope=scope,
            client=owner["client"],
            zone=owner["zone"],
            project=owner["project"],
            project_dir=owner["project_dir"],
            person=owner["person"],
        )
        outcomes: list[Record] = []
        for place in range(batch.count):
            if self._stopping.is_set():
                raise Unavailable("the server ends")
            with self._core.upkeep.batch_item:
                outcomes.append(self._outcome(batch, place, actor))
        return outcomes

    def _outcome(self, batch: Batch, place: int, actor: Actor) -> Record:
        """Return the outcome of one item. Raises Unavailable, StoreBusy, DiskFull: to be tried again."""
        item = self.batches.current_item(batch, place)
        kind = str(item.get("kind"))
        if kind not in KINDS:
            return {"error": error_body(NotFound("it was purged before its turn came"))}
        row = ROWS[KINDS[kind][0]]
        actor = replace(actor, nonce=stable_hash("batch", batch.id, str(place)))
        fields = {name: value for name, value in item.items() if name not in ("kind", REDACTIONS)}
        try:
            request = row.request.read(fields, kind)
            work = partial(row.answer, self._core.anchor(actor), request)
            lasting = kind == "conversation"  # many memories, none of which holds the answer
            answer: Record = self._core.services.answers.once(actor.nonce, repr(request), work, lasting=lasting)
            if lasting:
                self._variants.count_used(actor, fields["messages"])
            removed = texts(item.get(REDACTIONS))
            return {**answer, REDACTIONS: removed} if removed and "outcome" in answer else answer
        except (Unavailable, StoreBusy, DiskFull):
            raise
        except MemoryAnchorError as error:
            return {"error": error_body(error)}
        except Exception as bug:
            log_bug(f"ingest {kind}", bug)
            return {"error": error_body(bug, "internal error; the server's log says where")}


def add_ingest(app: FastAPI, v1: V1Handler, worker: BatchWorker) -> None:
    @app.post(
        "/v1/ingest",
        operation_id="ingest",
        status_code=202,
        openapi_extra=body_schema(_schema()),
        responses=ERRORS,
        summary="Push a batch; accepted means on disk.",
    )
    async def ingest(request: Request) -> JSONResponse:
        body = await v1.body(request)
        claims, request_id = pop_claims(body), pop_text(body, REQUEST_ID, REQUEST_ID_MAX)
        items = body.pop("items", None)
        if body:
            raise BadInput(
                f"ingest got the unknown argument {next(iter(body))[:80]!r}; allowed are items, {REQUEST_ID}"
            )
        if not isinstance(items, list) or not 1 <= len(items) <= ITEMS_MAX:
            raise BadInput(f"items is no list of 1 to {ITEMS_MAX} objects; allowed are {', '.join(KINDS)}")
        actor = v1.actor(request, claims, action=Action.LOG)
        role = PRINCIPAL_OF_ROLE[credential_of(request).role]

        def accept(anchor: MemoryAnchor) -> Record:
            anchor.writes.check_writable()
            clean = []
            for place, item in enumerate(items):
                kind, asked = _asked(item, place)
                rights.check(KINDS[kind][1], role)
                removed = {REDACTIONS: list(asked.redactions)} if asked.redactions else {}
                clean.append({"kind": kind, **removed, **asked.as_body()})
            return worker.accept(actor, request_id, clean)

        return JSONResponse(await v1.run(actor, accept), status_code=202)

    @app.get("/v1/ingest/{batch}", operation_id="ingest_report", responses=ERRORS, summary="Tell how far a batch is.")
    async def report(request: Request, batch: str) -> dict[str, object]:
        credential = credential_of(request)
        rights.check(Action.READ, PRINCIPAL_OF_ROLE[credential.role])
        bound = {"account": credential.account, "user": safe_name(credential.user), "project": credential.project}
        read = partial(worker.batches.report, batch, **bound)
        return dict(await v1.places.run(read))


def _asked(item: Json, place: int) -> tuple[str, BaseRequest]:
    """Return an item's kind and its request. Raises BadInput: it is not valid; one sentence, with its place."""
    kind = item.get("kind") if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(kind, str) or kind not in KINDS:
        raise BadInput(f"items[{place}] has the kind {shortened(repr(kind))}; allowed are {', '.join(KINDS)}")
    try:
        return kind, ROWS[KINDS[kind][0]].request.read({n: value for n, value in item.items() if n != "kind"}, kind)
    except BadInput as error:
        raise BadInput(f"items[{place}]: {error}") from None


def _schema() -> Record:
    items: list[Record] = []
    for kind, (row, _) in KINDS.items():
        schema = request_schema(row)
        fields = {name: field for name, field in record(schema["properties"]).items() if name not in CLAIMS}
        properties: Record = {"kind": {"const": kind}, **fields}
        items.append({**schema, "properties": properties, "required": ["kind", *texts(schema.get("required"))]})
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["items"],
        "properties": {
            "items": {"type": "array", "minItems": 1, "maxItems": ITEMS_MAX, "items": {"oneOf": items}},
            REQUEST_ID: {"type": "string", "maxLength": REQUEST_ID_MAX},
            **CLAIMS_SCHEMA,
        },
    }
