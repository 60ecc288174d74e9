"""What a served memory counts: requests for Prometheus, and recall by variant; never a text.

Prometheus needs the extra `memory-anchor[telemetry]`. Labels are a route's path, method and status: no account, no key.
Without the extra nothing is counted, and /metrics says so.

For each recall variant: times, tokens, and how many recalled memories were used, in one small file in the data
directory, so that `memory-anchor variants report` can compare them. Whether a memory was used is read from the
conversation's transcript where a client pushes one (`heeded`). Bounded: the newest times and tokens of each variant,
and what the newest conversations recalled. Nothing is counted where no variant is configured.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.base.files import make_private, read_bounded, write_atomic
from memory_anchor.base.json_values import Json, Record, items, number, parsed, record, text, whole
from memory_anchor.domain.errors import extra_missing
from memory_anchor.hooks.hooks import used_in
from memory_anchor.ingest.messages import conversation as read_messages
from memory_anchor.use_cases.used_memories import ShownMemory, traces_in

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Telemetry:
    """gauges: name -> (help, function of its value), read at each scrape."""

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
        if self._registry is not None:
            self._requests.labels(path, method, str(status)).inc()
            self._seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """Return the metrics in Prometheus' format. Raises Unavailable: the extra is not installed."""
        if self._registry is None:
            raise extra_missing("telemetry", "/metrics")
        from prometheus_client import generate_latest

        return bytes(generate_latest(self._registry))


USE_FILE = "variants.json"
SAMPLES_KEPT = 1_000
CONVERSATIONS_KEPT = 5_000
HITS_OF_ONE = 200
WRITE_EVERY_S = 5.0
FILE_BYTES_MAX = 16 << 20
ON_SEARCH = "search"
Conversation = tuple[str, ...]


@dataclass(slots=True)
class VariantCounts:
    """The counts of one variant. ms, tokens: of its newest searches."""

    searches: int = 0
    shown: int = 0
    heeded: int = 0
    ms: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


class VariantUse:
    """Thread-safe; one process serves a data directory. folder: `<data_dir>/team`. monotonic: seconds."""

    def __init__(self, folder: Path, monotonic: Callable[[], float]) -> None:
        self._path = folder / USE_FILE
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._counts: dict[str, VariantCounts] | None = None
        self._told: OrderedDict[Conversation, dict[str, tuple[str, ShownMemory]]] = OrderedDict()
        self._written_at = float("-inf")

    def count_search(
        self, variant: str, conversation: Conversation, *, ms: float, tokens: int, snippets: Iterable[Record]
    ) -> None:
        """Count one search. conversation: empty for a caller that names none, whose use is never known.

        snippets: its answer, each {id, layer, text, ...}.
        """
        hits = [
            ShownMemory(text(hit["id"]), text(hit["layer"]), ON_SEARCH, traces_in(text(hit["text"])))
            for hit in snippets
        ]
        with self._lock:
            counts = self._of(variant)
            counts.searches += 1
            counts.ms = [*counts.ms, round(ms, 2)][-SAMPLES_KEPT:]
            counts.tokens = [*counts.tokens, tokens][-SAMPLES_KEPT:]
            if conversation:
                known = self._told.setdefault(conversation, {})
                self._told.move_to_end(conversation)
                known |= {hit.id: (variant, hit) for hit in hits if hit.traces and len(known) < HITS_OF_ONE}
                while len(self._told) > CONVERSATIONS_KEPT:
                    self._told.popitem(last=False)
            self._write_now_and_then()

    def count_used(self, conversation: Conversation, messages: Json) -> None:
        """Count which recalled memories a conversation's agent used, each once. Raises BadInput: no messages.

        messages: a list of {role, content, tool_calls?}, as pushed.
        """
        transcript = read_messages(messages)
        with self._lock:
            known = self._told.pop(conversation, {})
        used = used_in([hit for _, hit in known.values()], transcript)
        with self._lock:
            for id_, (variant, _) in known.items():
                counts = self._of(variant)
                counts.shown += 1
                counts.heeded += id_ in used
            self._write_now_and_then()

    def counts(self) -> dict[str, Record]:
        """Return variant -> searches, told, heeded, and the newest `ms` and `tokens`."""
        with self._lock:
            return {name: asdict(counts) for name, counts in self._known().items()}

    def keep(self) -> None:
        """Write the counts to disk."""
        with self._lock:
            self._write()

    def _of(self, variant: str) -> VariantCounts:
        return self._known().setdefault(variant, VariantCounts())

    def _known(self) -> dict[str, VariantCounts]:
        if self._counts is None:
            try:
                stored = record(parsed(read_bounded(self._path, most_bytes=FILE_BYTES_MAX) or b"{}"))
                self._counts = {name: _read(record(counts)) for name, counts in stored.items()}
            except (OSError, ValueError, KeyError, RecursionError):
                self._counts = {}
        return self._counts

    def _write_now_and_then(self) -> None:
        if self._monotonic() - self._written_at >= WRITE_EVERY_S:
            self._write()

    def _write(self) -> None:
        if self._counts:
            make_private(self._path.parent)
            counts = {name: asdict(counts) for name, counts in self._counts.items()}
            write_atomic(self._path, json.dumps(counts).encode(), durable=False)
            self._written_at = self._monotonic()


def _read(stored: Record) -> VariantCounts:
    return VariantCounts(
        whole(stored["searches"]),
        whole(stored.get("shown", stored.get("told"))),
        whole(stored["heeded"]),
        [number(ms) for ms in items(stored["ms"])][-SAMPLES_KEPT:],
        [whole(count) for count in items(stored["tokens"])][-SAMPLES_KEPT:],
    )


STICKY_KEPT = 20_000


class StickyVariants:
    """The variant of each conversation. Thread-safe; the conversation idle longest is dropped first."""

    def __init__(self) -> None:
        self._variants: OrderedDict[Conversation, str] = OrderedDict()
        self._lock = threading.Lock()

    def named(self, conversation: Conversation, variant: str, default: str) -> str:
        """Return the variant that a conversation named last; variant: the one it names now, "" for none."""
        with self._lock:
            name = self._variants[conversation] = variant or self._variants.get(conversation, default)
            self._variants.move_to_end(conversation)
            while len(self._variants) > STICKY_KEPT:
                self._variants.popitem(last=False)
            return name
