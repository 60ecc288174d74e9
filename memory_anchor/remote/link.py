"""One served memory over HTTP, asked within hard limits: connecting, the whole answer, and its size.

Each call runs on a thread of its own and is given up when its time is over, whatever the other side does (silence, a
byte now and then, a name that is not resolved); giving up closes its socket, so that the thread ends too. A circuit
bounds how many can be at it: after three failures in a row nobody is asked for a while, then one probe alone.
Rejected: a client library's timeouts, which count each read and not the call.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from memory_anchor.errors import BadInput, MemoryAnchorError, NotFound, Refused
from memory_anchor.json_values import Json, Record, parsed

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
