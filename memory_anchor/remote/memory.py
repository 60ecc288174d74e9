"""A served memory beside the local one, and the link that asks it within hard limits.

One served memory over HTTP, asked within hard limits: connecting, the whole answer, and its size.

Each call runs on a thread of its own and is given up when its time is over, whatever the other side does (silence, a
byte now and then, a name that is not resolved); giving up closes its socket, so that the thread ends too. A circuit
bounds how many can be at it: after three failures in a row nobody is asked for a while, then one probe alone.
Rejected: a client library's timeouts, which count each read and not the call.

A served memory beside the local one: asked first, within hard limits; the local copy answers where it cannot.

A search goes to the server; where that is late, broken or left alone, the local store answers, with a note, and the
cost report gets the decision `km_timeout` or `km_open`. A write is done here at once, under this project's own rules,
and kept on disk for the server (`outbox`), whose rules reconcile it on arrival. A key that is refused is said in every
answer and not asked with again until the pause is over; nothing is dropped meanwhile.
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

from memory_anchor.context.context_reports import located
from memory_anchor.errors import BadInput, MemoryAnchorError, NotFound, Refused, Unavailable
from memory_anchor.fields import BaseRequest, Moment
from memory_anchor.files import make_private, read_bounded, remove_durably, write_atomic
from memory_anchor.json_values import Json, Record, items, number, one_of, optional_text, parsed, record, records, text
from memory_anchor.model import (
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
    Tag,
    Trust,
    WriteOutcome,
)

FAILURES_TO_OPEN = 3
OPEN_FOR_S = 15.0
WAITED = 0.9
"""Share of a call's limit that is waited for an answer; the rest is for handing back that there is none."""
ANSWER_BYTES = 4 << 20
PIECE_BYTES = 1 << 16
SAID_MAX = 300
STATUS_KEY, STATUS_FORBIDDEN, STATUS_NOT_FOUND, STATUS_BUSY, STATUS_BROKEN = 401, 403, 404, 429, 500
BAD = frozenset({400, 409, 413, 422})


class Away(MemoryAnchorError):
    """The served memory did not answer as one. decision: what the cost report calls it."""

    def __init__(self, decision: str, reason: str) -> None:
        super().__init__(reason)
        self.decision = decision


class WrongKey(Refused):
    """The served memory does not take the key; asking again changes nothing."""


@dataclass(slots=True)
class _Call:
    """One call at work. socket: closed by whoever gives it up."""

    connection: http.client.HTTPConnection | None = None
    given_up: bool = False

    def give_up(self) -> None:
        self.given_up = True
        with contextlib.suppress(OSError, AttributeError):
            if self.connection is not None and self.connection.sock is not None:
                self.connection.sock.shutdown(socket.SHUT_RDWR)


class KmLink:
    """Asks a served memory. Thread-safe. monotonic: seconds that never go back."""

    def __init__(
        self, url: str, key: str, *, connect_s: float, monotonic: Callable[[], float], open_for_s: float = OPEN_FOR_S
    ) -> None:
        """Raises BadInput: no address of a server."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"remote.url is {url[:80]!r}; allowed is http://HOST:PORT or https://HOST")
        self.name = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._host, self._tls = parts.hostname, parts.scheme == "https"
        try:
            self._port = parts.port or (443 if self._tls else 80)
        except ValueError:
            raise BadInput(f"remote.url is {url[:80]!r}; its port is no number") from None
        self._path = parts.path.rstrip("/")
        self._key = key
        self._connect_s = connect_s
        self._monotonic = monotonic
        self._open_for_s = open_for_s
        self._lock = threading.Lock()
        self._failures = 0
        self._until = 0.0
        self._probing = False

    def ask(self, path: str, body: Record, *, limit_s: float) -> Record:
        """Return the answer of `/v1/PATH` within `limit_s`: connecting, sending, reading and parsing together.

        Raises Away: silence, a failure, an answer that is none, or the circuit is open. WrongKey. Refused, NotFound,
        BadInput: what the server said of this very request.
        """
        self._admit()
        ok = False
        try:
            status, answer = self._within(path, json.dumps(dict(body)).encode(), limit_s * WAITED)
            ok = status < STATUS_BROKEN
            return self._read(status, answer)
        except Away:
            ok = False
            raise
        finally:
            self._note(ok=ok)

    @property
    def is_open(self) -> bool:
        with self._lock:
            return self._failures >= FAILURES_TO_OPEN and self._monotonic() < self._until

    def _admit(self) -> None:
        with self._lock:
            if self._failures < FAILURES_TO_OPEN:
                return
            left = self._until - self._monotonic()
            if left > 0 or self._probing:
                raise Away("km_open", f"{self.name} failed {self._failures} times in a row; asked again soon")
            self._probing = True

    def _note(self, *, ok: bool) -> None:
        with self._lock:
            self._probing = False
            self._failures = 0 if ok else self._failures + 1
            if self._failures >= FAILURES_TO_OPEN:
                self._until = self._monotonic() + self._open_for_s

    def _within(self, path: str, body: bytes, limit_s: float) -> tuple[int, Json]:
        done: queue.SimpleQueue[tuple[int, Json] | Exception] = queue.SimpleQueue()
        call = _Call()

        def run() -> None:
            try:
                status, raw = self._asked(call, path, body, limit_s)
                done.put((status, _parsed(raw)))  # here, so that a long answer counts too
            except (OSError, http.client.HTTPException, ValueError) as error:
                done.put(error)

        threading.Thread(target=run, name="remote", daemon=True).start()
        try:
            back = done.get(timeout=limit_s)
        except queue.Empty:
            call.give_up()
            raise Away("km_timeout", f"{self.name} did not answer within {limit_s:g} s") from None
        if isinstance(back, Exception):
            why = "did not answer in time" if isinstance(back, TimeoutError) else "cannot be reached"
            raise Away("km_timeout", f"{self.name} {why} ({type(back).__name__})") from back
        return back

    def _asked(self, call: _Call, path: str, body: bytes, limit_s: float) -> tuple[int, bytes]:
        if self._tls:
            kept = ssl.create_default_context()
            call.connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=min(self._connect_s, limit_s), context=kept
            )
        else:
            call.connection = http.client.HTTPConnection(self._host, self._port, timeout=min(self._connect_s, limit_s))
        with contextlib.closing(call.connection) as connection:
            connection.connect()
            if call.given_up:
                raise TimeoutError
            connection.sock.settimeout(limit_s)
            headers = {"content-type": "application/json", "connection": "close"}
            if self._key:
                headers["authorization"] = f"Bearer {self._key}"
            connection.request("POST", f"{self._path}/v1/{path}", body, headers)
            response = connection.getresponse()
            pieces: list[bytes] = []
            size = 0
            while piece := response.read(PIECE_BYTES):
                size += len(piece)
                if size > ANSWER_BYTES or call.given_up:
                    raise ValueError("the answer is too long")
                pieces.append(piece)
            return response.status, b"".join(pieces)

    def _read(self, status: int, answer: Json) -> Record:
        said = str(answer.get("message", ""))[:SAID_MAX] if isinstance(answer, dict) else ""
        if status == STATUS_KEY:
            raise WrongKey(
                f"{self.name} does not take this key (401): set remote.key to one that "
                "`memory-anchor keys create` printed there"
            )
        if status >= STATUS_BROKEN or status == STATUS_BUSY or not isinstance(answer, dict):
            raise Away("km_timeout", f"{self.name} answered {status}, which is no answer of a memory")
        if status == STATUS_FORBIDDEN:
            raise Refused(said or f"{self.name} refused it (403)")
        if status == STATUS_NOT_FOUND:
            raise NotFound(said or f"{self.name} knows no /v1 path of this version (404); update one of the two")
        if status in BAD:
            raise BadInput(said or f"{self.name} does not take it ({status})")
        if not 200 <= status < 300:
            raise Away("km_timeout", f"{self.name} answered {status}, which is no answer of a memory")
        return answer


def _parsed(raw: bytes) -> Json:
    """Return what an answer says in JSON, None where it is none."""
    try:
        return parsed(raw)
    except (ValueError, RecursionError):
        return None


FOLDER, REFUSED = "remote/outbox", "remote/refused"
WAITING_MAX = 100_000
FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class WaitingWrite:
    """path: below /v1. local: the id that this memory has here."""

    path: str
    body: Record
    local: str = ""


class Outbox:
    """Thread-safe within one process, which the store's lock makes the only one."""

    def __init__(self, data_dir: Path, new_token: Callable[[], str]) -> None:
        self._folder = data_dir / FOLDER
        self._refused = data_dir / REFUSED
        self._new_token = new_token
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        there = self._files()
        self._last = max((int(path.stem) for path in there), default=0)
        self._waiting = len(there)

    def put(self, path: str, body: Record, *, local: str = "") -> None:
        """Keep a write, durable on return. Raises Unavailable: too many wait."""
        make_private(self._folder)
        with self._lock:
            if self._waiting >= WAITING_MAX:
                raise Unavailable(
                    f"{WAITING_MAX} writes wait for the server; they are kept, and no more is taken until it answers"
                )
            self._last += 1
            kept = WaitingWrite(path, {"request_id": f"outbox-{self._new_token()}", **body}, local)
            write_atomic(
                self._folder / f"{self._last:012d}.json", json.dumps(asdict(kept), ensure_ascii=False).encode()
            )
            self._waiting += 1

    def waiting(self) -> int:
        """Return how many writes wait; every search asks."""
        return self._waiting

    def send(
        self, ask: Callable[[str, Record], Record], arrived: Callable[[WaitingWrite, Record], None]
    ) -> tuple[int, str]:
        """Send what waits, in order, until the server is away; return how many went and why it stopped, "" at the end.

        arrived: told each answer before its file goes.
        """
        sent = 0
        with self._sending:
            for path in sorted(self._files()):
                try:
                    kept = _waiting_write(record(parsed(read_bounded(path, most_bytes=FILE_BYTES) or b"")))
                except (OSError, ValueError, KeyError) as error:
                    self._set_aside(path, f"it cannot be read ({type(error).__name__})")
                    continue
                try:
                    answer = ask(kept.path, kept.body)
                except (Away, WrongKey) as error:
                    return sent, str(error)
                except (BadInput, NotFound, Refused) as error:
                    self._set_aside(path, str(error))
                    continue
                arrived(kept, answer)
                self._remove(path)
                sent += 1
        return sent, ""

    def refused(self) -> int:
        return sum(1 for _ in self._refused.glob("*.json")) if self._refused.is_dir() else 0

    def _set_aside(self, path: Path, why: str) -> None:
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
        found = self._folder.glob("*.json") if self._folder.is_dir() else ()
        return [path for path in found if path.stem.isdigit()]


def _waiting_write(kept: Record) -> WaitingWrite:
    return WaitingWrite(text(kept["path"]), record(kept["body"]), text(kept.get("local"), ""))


IDS_FILE = "remote/ids.json"
IDS_KEPT = 10_000
IDS_BYTES = 4 << 20
KEY_PAUSE_S = 60.0
SNIPPETS_MAX = 200
RETRY_S = 5.0
"""From a try to send that stopped to the next one."""
Asked = TypeVar("Asked", bound=BaseRequest)


class RemoteMemory:
    """What one process knows of the served memory. Thread-safe."""

    def __init__(
        self,
        link: KmLink,
        data_dir: Path,
        *,
        search_s: float,
        write_s: float,
        project: str,
        new_token: Callable[[], str],
        monotonic: Callable[[], float],
        retry_s: float = RETRY_S,
    ) -> None:
        """project: the id that this folder's project has on the server, "" for the key's own."""
        self._link = link
        self._search_s = search_s
        self._write_s = write_s
        self._project = project
        self._monotonic = monotonic
        self._retry_s = retry_s
        self._closed = threading.Event()
        self._starting = threading.Lock()
        self._sender: threading.Thread | None = None
        self.outbox = Outbox(data_dir, new_token)
        self._ids_file = data_dir / IDS_FILE
        self._ids = self._read_ids()
        self._key_refused = ""
        self._key_until = 0.0
        if self.outbox.waiting():
            self._send_soon()

    def search(self, actor: Actor, asked: Asked, local: Callable[[Asked], SearchAnswer]) -> SearchAnswer:
        """Return what the server finds, or the local answer with a note that says why.

        Raises BadInput: the server does not take the request.
        """
        try:
            answer = self._ask("memory/search", {**_body(asked), **self._whose(actor)}, self._search_s)
            found = _search_answer(answer)
        except (Away, WrongKey) as error:
            return self._instead(local(asked), error)
        except (ValueError, KeyError, TypeError, AttributeError):
            return self._instead(
                local(asked), Away("km_timeout", f"{self._link.name} answered what is no search's answer")
            )
        waiting = self.outbox.waiting()
        notes = (f"{waiting} writes of this device wait to be sent to {self._link.name}",) if waiting else ()
        return replace(found, notes=(*found.notes, *notes))

    def told(self, actor: Actor, path: str, asked: BaseRequest, done: WriteOutcome) -> WriteOutcome:
        """Keep for the server what was written here; return the local outcome. Nothing stored here is nothing sent."""
        if done.id is None:
            return done
        body = _body(asked)
        if "id" in body:
            body["id"] = self._ids.get(str(body["id"]), body["id"])
        self.outbox.put(path, {**body, **self._whose(actor)}, local=done.id)
        self._send_soon()
        return done

    def forgotten(self, actor: Actor, asked: Asked, local: Callable[[Asked], WriteOutcome]) -> WriteOutcome:
        """Archive a memory here and there; one that only the server has, there."""
        try:
            return self.told(actor, "memory/forget", asked, local(asked))
        except NotFound as unknown:
            try:
                answer = self._ask("memory/forget", {**_body(asked), **self._whose(actor)}, self._write_s)
                return WriteOutcome(
                    outcome=_outcome(answer),
                    id=str(answer["id"]),
                    layer=Layer(text(answer["layer"])),
                    status=Status.ARCHIVED,
                )
            except (Away, WrongKey, ValueError, KeyError) as error:
                raise NotFound(f"{unknown}; and {self._link.name} could not be asked: {error}") from None

    def close(self) -> None:
        """Send no more; what waits is sent by the next process."""
        self._closed.set()

    def _send_soon(self) -> None:
        with self._starting:
            if self._sender is None or not self._sender.is_alive():
                self._sender = threading.Thread(target=self._send_behind, name="outbox", daemon=True)
                self._sender.start()

    def _send_behind(self) -> None:
        while not self._closed.is_set():
            _, why = self.send_waiting()
            with self._starting:
                if not why and not self.outbox.waiting():
                    self._sender = None
                    return
            if why:
                self._closed.wait(self._retry_s)

    def send_waiting(self) -> tuple[int, str]:
        """Send what waits; return how many went and why it stopped, "" when all went."""
        return self.outbox.send(lambda path, body: self._ask(path, body, self._write_s), self._arrived)

    def status(self) -> dict[str, Json]:
        return {
            "url": self._link.name,
            "waiting": self.outbox.waiting(),
            "refused": self.outbox.refused(),
            "open": self._link.is_open,
            "key": self._key_refused,
        }

    def _ask(self, path: str, body: Record, limit_s: float) -> Record:
        if self._key_refused and self._monotonic() < self._key_until:
            raise WrongKey(self._key_refused)
        try:
            answer = self._link.ask(path, body, limit_s=limit_s)
        except WrongKey as error:
            self._key_refused, self._key_until = str(error), self._monotonic() + KEY_PAUSE_S
            raise
        self._key_refused = ""
        return answer

    def _instead(self, answer: SearchAnswer, error: MemoryAnchorError) -> SearchAnswer:
        decision = error.decision if isinstance(error, Away) else "km_refused"
        note = f"{error}; the local copy answered"
        told = {"action": decision, "reason": str(error), "what": "remote"}
        return replace(answer, notes=(*answer.notes, note), decisions=(*answer.decisions, told))

    def _whose(self, actor: Actor) -> dict[str, Json]:
        scope = actor.scope
        told = {"conversation_id": scope.conversation, "agent_id": scope.agent, "zone": actor.zone}
        return {name: value for name, value in {**told, "project_id": self._project}.items() if value}

    def _arrived(self, kept: WaitingWrite, answer: Record) -> None:
        there = answer.get("id")
        if kept.local and isinstance(there, str) and there != kept.local:
            self._ids[kept.local] = there
            while len(self._ids) > IDS_KEPT:
                self._ids.popitem(last=False)
            make_private(self._ids_file.parent)
            write_atomic(self._ids_file, json.dumps(self._ids).encode())

    def _read_ids(self) -> OrderedDict[str, str]:
        try:
            told = json.loads(read_bounded(self._ids_file, most_bytes=IDS_BYTES) or b"{}")
            return OrderedDict((str(one), str(other)) for one, other in told.items())
        except (OSError, ValueError, AttributeError):
            return OrderedDict()


def _body(asked: BaseRequest) -> dict[str, Json]:
    """Return what was said of a request, as the server reads it."""
    said = asked.asked() | ({"request_id": name} if (name := getattr(asked, "request_id", "")) else {})
    times = {name: one.said for name in said if isinstance(one := getattr(asked, name, None), Moment)}
    given = {**said, **times}
    return {name: value for name, value in given.items() if name in asked.model_fields_set and value is not None}


def _outcome(answer: Record) -> Outcome:
    return Outcome(text(answer["outcome"]))


def _search_answer(answer: Record) -> SearchAnswer:
    """Return a served search's answer. Raises ValueError, KeyError, TypeError, AttributeError: it is none."""
    shown = answer["snippets"]
    if not isinstance(shown, list) or len(shown) > SNIPPETS_MAX:
        raise ValueError("snippets")
    pairs = tuple((str(one), str(other)) for one, other in map(items, items(answer.get("conflicts"))))
    return SearchAnswer(
        tuple(_snippet(record(one)) for one in shown), pairs, tuple(map(str, items(answer.get("notes"))))
    )


def _snippet(one: Record) -> RetrievedSnippet:
    if not (isinstance(one["id"], str) and isinstance(one["text"], str)):
        raise TypeError("id or text")
    strength = one.get("strength", "vivid")
    if strength not in ("vivid", "fading", "faded"):
        raise ValueError("strength")
    return RetrievedSnippet(
        id=one["id"],
        text=one["text"],
        score=number(one["score"]),
        layer=Layer(text(one["layer"])),
        type=str(one["type"]),
        when=datetime.fromisoformat(text(one["when"])) if one.get("when") else None,
        tags=tuple(Tag(str(tag["name"]), number(tag.get("weight", 1.0))) for tag in records(one.get("tags"))),
        status=Status(text(one.get("status"), "active")),
        strength=strength,
        citations=tuple(_citation(cited) for cited in records(one.get("citations"))),
        relevance=number(one["relevance"]) if one.get("relevance") is not None else None,
        weak=bool(one.get("weak", False)),
        origin=Origin(text(one.get("origin"), "agent")),
        before=str(one.get("before", "")),
        linked=str(one.get("linked", "")),
    )


def _citation(cited: Record) -> Citation:
    freshness = cited.get("freshness")
    return Citation(
        kind=one_of(cited["kind"], CITATION_KINDS),
        ref=str(cited["ref"]),
        title=optional_text(cited.get("title")),
        locator=located(record(cited.get("locator"))),
        observed_at=datetime.fromisoformat(text(cited["observed_at"])) if cited.get("observed_at") else None,
        trust=Trust(text(cited.get("trust"), "agent")),
        freshness=None if freshness is None else one_of(freshness, FRESHNESS),
        variant=optional_text(cited.get("variant")),
        index_version=optional_text(cited.get("index_version")),
    )


def linked(
    url: str,
    key: str,
    data_dir: Path,
    *,
    connect_s: float,
    search_s: float,
    write_s: float,
    project: str,
    new_token: Callable[[], str],
    monotonic: Callable[[], float],
) -> RemoteMemory:
    """Return the served memory at an address. Raises BadInput: no address, or no key."""
    if not key:
        raise BadInput("remote.url is set and remote.key is empty; put there what `memory-anchor keys create` printed")
    link = KmLink(url, key, connect_s=connect_s, monotonic=monotonic)
    return RemoteMemory(
        link,
        data_dir,
        search_s=search_s,
        write_s=write_s,
        project=project,
        new_token=new_token,
        monotonic=monotonic,
    )
