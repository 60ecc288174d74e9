"""What a served memory counts, as Prometheus reads it; needs the extra `memory-anchor[telemetry]`.

Labels are the path of a route, its method and its status: no account, no key, no text. Without the extra nothing is
counted and asking for it is one sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from memory_anchor.errors import extra_missing

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Telemetry:
    """gauges: name -> (help, what it stands at), read whenever somebody asks."""

    def __init__(self, gauges: dict[str, tuple[str, Callable[[], float]]]) -> None:
        self._registry: CollectorRegistry | None = None
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
        except ImportError:
            return
        self._registry = CollectorRegistry()
        labels = ("path", "method", "status")
        self._requests = Counter("memory_anchor_requests", "Requests answered.", labels, registry=self._registry)
        self._seconds = Histogram(
            "memory_anchor_request_seconds", "Time to answer.", ("path",), registry=self._registry, buckets=SECONDS
        )
        for name, (about, value) in gauges.items():
            Gauge(f"memory_anchor_{name}", about, registry=self._registry).set_function(value)

    def note(self, path: str, method: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        if self._registry is not None:
            self._requests.labels(path, method, str(status)).inc()
            self._seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """Return what Prometheus reads. Raises Unavailable: the extra is not installed."""
        if self._registry is None:
            raise extra_missing("telemetry", "/metrics")
        from prometheus_client import generate_latest

        return bytes(generate_latest(self._registry))
