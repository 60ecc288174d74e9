"""A served memory next to the local one: asked first, within hard limits; else the local store answers.

A search goes to the server; where that is late, broken or paused, the local store answers, with a note, and the cost
report gets the decision `km_timeout` or `circuit_open`. A write is done here at once, under this project's rules, and
queued on disk for the server (`Outbox`), whose rules reconcile it on arrival. While a key is refused, each answer says
so, and the server is asked again only after a pause; nothing is dropped meanwhile.

Each call has a limit for connecting, for the whole answer and for its size. It runs on a thread of its own and is
cancelled at its time limit, whatever the other side does (silence, a byte now and then, a name that is not resolved);
cancelling closes its socket, so that the thread ends too. A circuit breaker bounds the number of threads: after three
failures in a row no call is made for a while, then a single probe. Rejected: a client library's timeouts, which limit
each read and not the call.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import socket
import ssl
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from memory_anchor.base.circuit import CircuitBreaker
from memory_anchor.base.files import make_private, read_bounded, remove_durably, write_atomic
from memory_anchor.base.json_values import (
    Json,
    Record,
    items,
    number,
    one_of,
    optional_text,
    parsed,
    record,
    records,
    text,
)
from memory_anchor.context.context_reports import located
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, NotFound, Refused, Unavailable
from memory_anchor.domain.model import (
    CITATION_KINDS,
    FRESHNESS,
    Actor,
    Citation,
    Layer,
    Origin,
    Outcome,
    RetrievedSnippet,
    SearchAnswer,
    Status,
    Strength,
    Tag,
    Trust,
    WriteOutcome,
)
from memory_anchor.domain.requests.fields import BaseRequest
from memory_anchor.extensions.service.settings import RemoteSettings

FAILURES_TO_OPEN = 3
OPEN_FOR_S = 15.0
WAIT_SHARE = 0.9
"""Share of a call's limit within which the answer has to arrive; the rest is for reporting a timeout."""
ANSWER_BYTES = 4 << 20
CHUNK_BYTES = 1 << 16
MESSAGE_CHARS = 300
STATUS_KEY, STATUS_FORBIDDEN, STATUS_NOT_FOUND, STATUS_BROKEN = 401, 403, 404, 500
STATUS_BAD_INPUT = frozenset({400, 409, 413, 422})


class RemoteUnavailable(MemoryAnchorError):
    """The served memory gave no valid answer. decision: its name in the cost report."""

    def __init__(self, decision: str, reason: str) -> None:
        super().__init__(reason)
        self.decision = decision


class RemoteKeyRefused(Refused):
    """The served memory refuses the key; asking again changes nothing."""


@dataclass(slots=True)
class _Call:
    """One call in progress."""

    connection: http.client.HTTPConnection | None = None
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Close its socket."""
        self.is_cancelled = True
        with contextlib.suppress(OSError, AttributeError):
            if self.connection is not None and self.connection.sock is not None:
                self.connection.sock.shutdown(socket.SHUT_RDWR)


class RemoteLink:
    """Asks a served memory. Thread-safe. monotonic: seconds that never go back."""

    def __init__(
        self, url: str, key: str, *, connect_s: float, monotonic: Callable[[], float], open_for_s: float = OPEN_FOR_S
    ) -> None:
        """Raises BadInput: `url` is no address of a server."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        self.name = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        """Without a name and password, which an address may have."""
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"remote.url is {self.name[:80]!r}; allowed is http://HOST:PORT or https://HOST")
        self._host, self._tls = parts.hostname, parts.scheme == "https"
        try:
            self._port = parts.port or (443 if self._tls else 80)
        except ValueError:
            raise BadInput(f"remote.url is {self.name[:80]!r}; its port is no number") from None
        self._path = parts.path.rstrip("/")
        self._key = key
        self._connect_s = connect_s
        self._circuit = CircuitBreaker(monotonic, failures=FAILURES_TO_OPEN, open_for_s=open_for_s)

    def ask(self, path: str, body: Record, *, limit_s: float) -> Record:
        """Return the answer of `/v1/PATH` within `limit_s`: connecting, sending, reading and parsing together.

        Raises RemoteUnavailable: no answer, a failure, an invalid answer, or the circuit is open. RemoteKeyRefused.
        Refused, NotFound, BadInput: the server's answer to this request.
        """
        if not self._circuit.admits():
            failed = f"{self.name} failed {self._circuit.failures()} times in a row; asked again soon"
            raise RemoteUnavailable("circuit_open", failed)
        ok = False
        try:
            status, answer = self._within(path, json.dumps(dict(body)).encode(), limit_s * WAIT_SHARE)
            ok = status < STATUS_BROKEN
            return self._checked(status, answer)
        except RemoteUnavailable:
            ok = False
            raise
        finally:
            self._circuit.note(ok=ok)

    @property
    def is_open(self) -> bool:
        return self._circuit.retry_in_s() > 0

    def _within(self, path: str, body: bytes, limit_s: float) -> tuple[int, Json]:
        """Return status and parsed answer (None: no JSON) of a call that is cancelled after `limit_s`."""
        results: queue.SimpleQueue[tuple[int, Json] | Exception] = queue.SimpleQueue()
        call = _Call()

        def run() -> None:
            try:
                status, content = self._send(call, path, body, limit_s)
                try:
                    results.put((status, parsed(content)))  # here, so that parsing a long answer counts too
                except (ValueError, RecursionError):
                    results.put((status, None))
            except (OSError, http.client.HTTPException, ValueError) as error:
                results.put(error)

        threading.Thread(target=run, name="remote", daemon=True).start()
        try:
            result = results.get(timeout=limit_s)
        except queue.Empty:
            call.cancel()
            raise RemoteUnavailable("km_timeout", f"{self.name} did not answer within {limit_s:g} s") from None
        if isinstance(result, Exception):
            why = "did not answer in time" if isinstance(result, TimeoutError) else "cannot be reached"
            raise RemoteUnavailable("km_timeout", f"{self.name} {why} ({type(result).__name__})") from result
        return result

    def _send(self, call: _Call, path: str, body: bytes, limit_s: float) -> tuple[int, bytes]:
        connect_s = min(self._connect_s, limit_s)
        if self._tls:
            context = ssl.create_default_context()
            call.connection = http.client.HTTPSConnection(self._host, self._port, timeout=connect_s, context=context)
        else:
            call.connection = http.client.HTTPConnection(self._host, self._port, timeout=connect_s)
        with contextlib.closing(call.connection) as connection:
            connection.connect()
            if call.is_cancelled:
                raise TimeoutError
            connection.sock.settimeout(limit_s)
            headers = {"content-type": "application/json", "connection": "close"}
            headers["authorization"] = f"Bearer {self._key}"
            connection.request("POST", f"{self._path}/v1/{path}", body, headers)
            response = connection.getresponse()
            content = bytearray()
            while chunk := response.read(CHUNK_BYTES):
                content += chunk
                if len(content) > ANSWER_BYTES or call.is_cancelled:
                    raise ValueError("the answer is too long")
            return response.status, bytes(content)

    def _checked(self, status: int, answer: Json) -> Record:
        """Return the answer of a successful call. Raises the error of another status; see `ask`."""
        message = str(answer.get("message", ""))[:MESSAGE_CHARS] if isinstance(answer, dict) else ""
        if status == STATUS_KEY:
            raise RemoteKeyRefused(
                f"{self.name} does not take this key (401): set remote.key to one that "
                "`memory-anchor keys create` printed there"
            )
        if isinstance(answer, dict):
            if 200 <= status < 300:
                return answer
            if status == STATUS_FORBIDDEN:
                raise Refused(message or f"{self.name} refused it (403)")
            if status == STATUS_NOT_FOUND:
                raise NotFound(message or f"{self.name} knows no /v1 path of this version (404); update one of the two")
            if status in STATUS_BAD_INPUT:
                raise BadInput(message or f"{self.name} does not take it ({status})")
        raise RemoteUnavailable("km_timeout", f"{self.name} answered {status}, which is no answer of a memory")


# --- writes that wait for the server ---------------------------------------------------------------------------------

FOLDER, REFUSED = "remote/outbox", "remote/refused"
WAITING_MAX = 100_000
FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class QueuedWrite:
    """A write for the server. path: below /v1. local: the id of the local memory."""

    path: str
    body: Record
    local: str = ""


class Outbox:
    """The queue of writes for the server. Thread-safe; the store's lock keeps other processes away."""

    def __init__(self, data_dir: Path, new_token: Callable[[], str]) -> None:
        self._folder = data_dir / FOLDER
        self._refused = data_dir / REFUSED
        self._new_token = new_token
        self._lock, self._send_lock = threading.Lock(), threading.Lock()
        files = self._files()
        self._last_number = max((int(path.stem) for path in files), default=0)
        self._waiting = len(files)

    def put(self, path: str, body: Record, *, local: str = "") -> None:
        """Queue a write, durable on return. Raises Unavailable: too many wait."""
        make_private(self._folder)
        with self._lock:
            if self._waiting >= WAITING_MAX:
                raise Unavailable(
                    f"{WAITING_MAX} writes wait for the server; they are kept, and no more is taken until it answers"
                )
            self._last_number += 1
            write = QueuedWrite(path, {"request_id": f"outbox-{self._new_token()}", **body}, local)
            content = json.dumps(asdict(write), ensure_ascii=False).encode()
            write_atomic(self._folder / f"{self._last_number:012d}.json", content)
            self._waiting += 1

    def waiting(self) -> int:
        """Return how many writes wait; called by every search."""
        return self._waiting

    def send(
        self, ask: Callable[[str, Record], Record], arrived: Callable[[QueuedWrite, Record], None]
    ) -> tuple[int, str]:
        """Send the queue in order; return how many were sent and why it stopped, "" if all were.

        arrived: called with each answer before its file is removed.
        """
        sent = 0
        with self._send_lock:
            for path in sorted(self._files()):
                try:
                    fields = record(parsed(read_bounded(path, most_bytes=FILE_BYTES) or b""))
                    write = QueuedWrite(text(fields["path"]), record(fields["body"]), text(fields.get("local"), ""))
                except (OSError, ValueError, KeyError) as error:
                    self._move_to_refused(path, f"it cannot be read ({type(error).__name__})")
                    continue
                try:
                    answer = ask(write.path, write.body)
                except (RemoteUnavailable, RemoteKeyRefused) as error:
                    return sent, str(error)
                except (BadInput, NotFound, Refused) as error:
                    self._move_to_refused(path, str(error))
                    continue
                arrived(write, answer)
                self._remove(path)
                sent += 1
        return sent, ""

    def refused(self) -> int:
        return sum(1 for _ in self._refused.glob("*.json")) if self._refused.is_dir() else 0

    def _move_to_refused(self, path: Path, why: str) -> None:
        make_private(self._refused)
        content = read_bounded(path, most_bytes=FILE_BYTES) or b""
        write_atomic(self._refused / path.name, content)
        write_atomic(self._refused / f"{path.stem}.txt", why.encode())
        self._remove(path)

    def _remove(self, path: Path) -> None:
        remove_durably(path)
        with self._lock:
            self._waiting -= 1

    def _files(self) -> list[Path]:
        paths = self._folder.glob("*.json") if self._folder.is_dir() else ()
        return [path for path in paths if path.stem.isdigit()]


# --- the memory that is asked ----------------------------------------------------------------------------------------

IDS = ("id", "replaces")
"""Fields of a queued request that name a memory."""
IDS_FILE = "remote/ids.json"
IDS_KEPT = 10_000
IDS_BYTES = 4 << 20
KEY_PAUSE_S = 60.0
SNIPPETS_MAX = 200
STRENGTHS: tuple[Strength, ...] = ("vivid", "fading", "faded")
RETRY_S = 5.0
"""Between two tries to send."""
Request = TypeVar("Request", bound=BaseRequest)


class RemoteMemory:
    """The served memory of one process. Thread-safe."""

    def __init__(
        self,
        settings: RemoteSettings,
        data_dir: Path,
        *,
        new_token: Callable[[], str],
        monotonic: Callable[[], float],
    ) -> None:
        """Raises BadInput: the URL is no address of a server, or there is no key."""
        key = settings.key.get_secret_value()
        if not key:
            raise BadInput(
                "remote.url is set and remote.key is empty; put there what `memory-anchor keys create` printed"
            )
        self._link = RemoteLink(settings.url, key, connect_s=settings.connect_s, monotonic=monotonic)
        self._settings = settings
        self._monotonic = monotonic
        self._closed = threading.Event()
        self._sender_lock = threading.Lock()
        self._sender: threading.Thread | None = None
        self.outbox = Outbox(data_dir, new_token)
        self._ids_file = data_dir / IDS_FILE
        self._ids = self._read_ids()
        """Local id -> id on the server, where they differ; the oldest first."""
        self._key_refused = ""
        self._key_refused_until = 0.0
        if self.outbox.waiting():
            self._send_soon()

    def search(self, actor: Actor, request: Request, local: Callable[[Request], SearchAnswer]) -> SearchAnswer:
        """Return the server's answer, or the local one with a note that says why.

        Raises BadInput: the server does not take the request.
        """
        try:
            answer = _search_answer(self._ask("memory/search", self._body(actor, request), self._settings.search_s))
        except (RemoteUnavailable, RemoteKeyRefused) as error:
            return self._with_note(local(request), error)
        except (ValueError, KeyError, TypeError, AttributeError):
            invalid = RemoteUnavailable("km_timeout", f"{self._link.name} answered what is no search's answer")
            return self._with_note(local(request), invalid)
        waiting = self.outbox.waiting()
        notes = (f"{waiting} writes of this device wait to be sent to {self._link.name}",) if waiting else ()
        return replace(answer, notes=(*answer.notes, *notes))

    def queue(self, actor: Actor, path: str, request: BaseRequest, outcome: WriteOutcome) -> WriteOutcome:
        """Queue a local write for the server, unless it stored nothing; return the local outcome."""
        if outcome.id is None:
            return outcome
        self.outbox.put(path, self._body(actor, request), local=outcome.id)
        self._send_soon()
        return outcome

    def forget(self, actor: Actor, request: Request, local: Callable[[Request], WriteOutcome]) -> WriteOutcome:
        """Archive a memory locally and on the server; one that only the server has, there."""
        try:
            return self.queue(actor, "memory/forget", request, local(request))
        except NotFound as unknown:
            try:
                answer = self._ask("memory/forget", self._body(actor, request), self._settings.write_s)
                return WriteOutcome(
                    outcome=Outcome(text(answer["outcome"])),
                    id=str(answer["id"]),
                    layer=Layer(text(answer["layer"])),
                    status=Status.ARCHIVED,
                )
            except (RemoteUnavailable, RemoteKeyRefused, ValueError, KeyError) as error:
                raise NotFound(f"{unknown}; and {self._link.name} could not be asked: {error}") from None

    def close(self) -> None:
        """Stop sending; the next process sends the rest of the queue."""
        self._closed.set()

    def _send_soon(self) -> None:
        with self._sender_lock:
            if self._sender is None or not self._sender.is_alive():
                self._sender = threading.Thread(target=self._send_until_empty, name="outbox", daemon=True)
                self._sender.start()

    def _send_until_empty(self) -> None:
        while not self._closed.is_set():
            _, why = self.send_waiting()
            with self._sender_lock:
                if not why and not self.outbox.waiting():
                    self._sender = None
                    return
            if why:
                self._closed.wait(RETRY_S)

    def send_waiting(self) -> tuple[int, str]:
        """Send the queue; return how many were sent and why it stopped, "" if all were."""
        return self.outbox.send(
            lambda path, body: self._ask(path, self._with_remote_ids(body), self._settings.write_s), self._note_id
        )

    def _with_remote_ids(self, body: Record) -> Record:
        """Return a queued request with the server's ids; one that was saved after it was queued has its id by now."""
        return {name: self._ids.get(str(value), value) if name in IDS else value for name, value in body.items()}

    def status(self) -> dict[str, Json]:
        return {
            "url": self._link.name,
            "waiting": self.outbox.waiting(),
            "refused": self.outbox.refused(),
            "open": self._link.is_open,
            "key": self._key_refused,
        }

    def _ask(self, path: str, body: Record, limit_s: float) -> Record:
        if self._key_refused and self._monotonic() < self._key_refused_until:
            raise RemoteKeyRefused(self._key_refused)
        try:
            answer = self._link.ask(path, body, limit_s=limit_s)
        except RemoteKeyRefused as error:
            self._key_refused, self._key_refused_until = str(error), self._monotonic() + KEY_PAUSE_S
            raise
        self._key_refused = ""
        return answer

    def _with_note(self, answer: SearchAnswer, error: MemoryAnchorError) -> SearchAnswer:
        """Return a local answer with the note and the decision that say why it is not the server's."""
        action = error.decision if isinstance(error, RemoteUnavailable) else "km_refused"
        decision = {"action": action, "reason": str(error), "what": "remote"}
        note = f"{error}; the local copy answered"
        return replace(answer, notes=(*answer.notes, note), decisions=(*answer.decisions, decision))

    def _body(self, actor: Actor, request: BaseRequest) -> dict[str, Json]:
        """Return a request as the server takes it, and whose it is."""
        scope = actor.scope
        caller: dict[str, Json] = {
            **{"conversation_id": scope.conversation, "agent_id": scope.agent, "zone": actor.zone},
            "project_id": self._settings.project,
        }
        return {**request.as_body(), **{name: value for name, value in caller.items() if value}}

    def _note_id(self, write: QueuedWrite, answer: Record) -> None:
        remote_id = answer.get("id")
        if write.local and isinstance(remote_id, str) and remote_id != write.local:
            self._ids[write.local] = remote_id
            while len(self._ids) > IDS_KEPT:
                self._ids.popitem(last=False)
            make_private(self._ids_file.parent)
            write_atomic(self._ids_file, json.dumps(self._ids).encode())

    def _read_ids(self) -> OrderedDict[str, str]:
        try:
            ids = json.loads(read_bounded(self._ids_file, most_bytes=IDS_BYTES) or b"{}")
            return OrderedDict((str(local), str(remote)) for local, remote in ids.items())
        except (OSError, ValueError, AttributeError):
            return OrderedDict()


def _search_answer(answer: Record) -> SearchAnswer:
    """Return a served search's answer. Raises ValueError, KeyError, TypeError, AttributeError: it is not valid."""
    snippets = answer["snippets"]
    if not isinstance(snippets, list) or len(snippets) > SNIPPETS_MAX:
        raise ValueError("snippets")
    pairs = tuple((str(first), str(second)) for first, second in map(items, items(answer.get("conflicts"))))
    return SearchAnswer(tuple(map(_snippet, map(record, snippets))), pairs, tuple(map(str, items(answer.get("notes")))))


def _snippet(fields: Record) -> RetrievedSnippet:
    if not (isinstance(fields["id"], str) and isinstance(fields["text"], str)):
        raise TypeError("id or text")
    return RetrievedSnippet(
        id=fields["id"],
        text=fields["text"],
        score=number(fields["score"]),
        layer=Layer(text(fields["layer"])),
        type=str(fields["type"]),
        when=datetime.fromisoformat(text(fields["when"])) if fields.get("when") else None,
        tags=tuple(Tag(str(tag["name"]), number(tag.get("weight", 1.0))) for tag in records(fields.get("tags"))),
        status=Status(text(fields.get("status"), "active")),
        strength=one_of(fields.get("strength", "vivid"), STRENGTHS),
        citations=tuple(map(_citation, records(fields.get("citations")))),
        relevance=number(fields["relevance"]) if fields.get("relevance") is not None else None,
        weak=bool(fields.get("weak", False)),
        origin=Origin(text(fields.get("origin"), "agent")),
        before=str(fields.get("before", "")),
        linked=str(fields.get("linked", "")),
    )


def _citation(fields: Record) -> Citation:
    freshness = fields.get("freshness")
    return Citation(
        kind=one_of(fields["kind"], CITATION_KINDS),
        ref=str(fields["ref"]),
        title=optional_text(fields.get("title")),
        locator=located(record(fields.get("locator"))),
        observed_at=datetime.fromisoformat(text(fields["observed_at"])) if fields.get("observed_at") else None,
        trust=Trust(text(fields.get("trust"), "agent")),
        freshness=None if freshness is None else one_of(freshness, FRESHNESS),
        variant=optional_text(fields.get("variant")),
        index_version=optional_text(fields.get("index_version")),
    )
