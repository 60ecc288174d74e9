"""Traces of a served memory over OTLP: one span a request, sent in the background to the configured collector.

A span has route, method, status and time, and joins the caller's trace (`traceparent`); no account, key, address or
text. OTLP's JSON form over HTTP is a dozen fields; rejected: the OpenTelemetry SDK and its exporter, a dozen packages.
A collector that is down delays no request: spans wait in a bounded queue, the oldest are dropped first, and so is what
could not be sent.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections import deque
from collections.abc import Callable

from memory_anchor.base.json_values import Json, Record

log = logging.getLogger("memory_anchor.traces")
WAITING_MAX = 2_048
SENT_AT_ONCE = 256
SEND_EVERY_S = 2.0
TRACE_BYTES, SPAN_BYTES = 16, 8
SERVER_KIND, ERROR_STATUS = 2, 2
SERVER_ERRORS = 500
_PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


class Traces:
    """Thread-safe. post(body): sends to the collector; raises OSError. now_ns: wall clock. new_bytes: random bytes."""

    def __init__(
        self,
        post: Callable[[bytes], None],
        *,
        version: str,
        now_ns: Callable[[], int],
        new_bytes: Callable[[int], bytes],
    ) -> None:
        self._post = post
        self._now_ns = now_ns
        self._new_bytes = new_bytes
        self._waiting: deque[dict[str, Json]] = deque(maxlen=WAITING_MAX)
        self._wake, self._ended = threading.Event(), threading.Event()
        self._warned = False
        named = {"service.name": "memory-anchor", "service.version": version}
        self._resource = {"attributes": [_attribute(name, value) for name, value in named.items()]}
        self._thread = threading.Thread(target=self._send, name="traces", daemon=True)
        self._thread.start()

    def note(self, route: str, method: str, status: int, seconds: float, *, parent: str = "") -> None:
        """Add the span of a request that has just been answered. parent: its `traceparent`, as received."""
        ended = self._now_ns()
        joined = _PARENT.fullmatch(parent)
        if joined is not None and (set(joined[1]) == {"0"} or set(joined[2]) == {"0"}):
            joined = None
        span: dict[str, Json] = {
            "traceId": joined[1] if joined else self._new_bytes(TRACE_BYTES).hex(),
            "spanId": self._new_bytes(SPAN_BYTES).hex(),
            "name": f"{method} {route}",
            "kind": SERVER_KIND,
            "startTimeUnixNano": str(ended - int(seconds * 1e9)),
            "endTimeUnixNano": str(ended),
            "attributes": [
                _attribute("http.request.method", method),
                _attribute("http.route", route),
                {"key": "http.response.status_code", "value": {"intValue": str(status)}},
            ],
            "status": {"code": ERROR_STATUS} if status >= SERVER_ERRORS else {},
        }
        if joined:
            span["parentSpanId"] = joined[2]
        self._waiting.append(span)
        if len(self._waiting) >= SENT_AT_ONCE:
            self._wake.set()

    def close(self, within_s: float = 2.0) -> None:
        """Send the waiting spans, for at most so long."""
        self._ended.set()
        self._wake.set()
        self._thread.join(within_s)

    def _send(self) -> None:
        while True:
            self._wake.wait(SEND_EVERY_S)
            self._wake.clear()
            while spans := [self._waiting.popleft() for _ in range(min(len(self._waiting), SENT_AT_ONCE))]:
                if not self._sent(spans):
                    break
            if self._ended.is_set():
                return

    def _sent(self, spans: list[dict[str, Json]]) -> bool:
        scoped = {"scope": {"name": "memory_anchor"}, "spans": spans}
        body = json.dumps({"resourceSpans": [{"resource": self._resource, "scopeSpans": [scoped]}]}).encode()
        try:
            self._post(body)
        except OSError as error:
            if not self._warned:
                log.warning("traces are dropped while the collector of http.traces_url is away (%s)", error)
            self._warned = True
            return False
        self._warned = False
        return True


def _attribute(name: str, value: str) -> Record:
    return {"key": name, "value": {"stringValue": value}}
