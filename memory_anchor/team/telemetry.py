"""What a served memory counts of its requests, for Prometheus and by variant; never a text.

What a served memory counts, as Prometheus reads it; needs the extra `memory-anchor[telemetry]`.

Labels are the path of a route, its method and its status: no account, no key, no text. Without the extra nothing is
counted and asking for it is one sentence.

What each way of recall was good for while it served: how long, how dear, and how much of what it told was used.

Counts and times by variant, no text, in one small file beside the store, so that `memory-anchor variants report` can
compare them. Whether a memory was used is read from the conversation's transcript where one is pushed (`heeded`): a
client that pushes none counts in times and tokens alone. Bounded: the newest times and tokens of each variant, and
what of the newest conversations was told. Nothing is counted where no variant is configured.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.errors import extra_missing
from memory_anchor.files import make_private, read_bounded, write_atomic
from memory_anchor.hooks import used_in
from memory_anchor.ingest.messages import conversation as read_messages
from memory_anchor.json_values import Json, Record, items, number, parsed, record, text, whole
from memory_anchor.used_memories import ShownMemory, traces_in

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


USE_FILE = "variants.json"
SAMPLES_KEPT = 1_000
CONVERSATIONS_KEPT = 5_000
TOLD_OF_ONE = 200
WRITE_EVERY_S = 5.0
FILE_BYTES_MAX = 16 << 20
ON_SEARCH = "search"
Conversation = tuple[str, ...]


@dataclass(slots=True)
class VariantCounts:
    """What was counted of one way of recall. ms, tokens: of its newest searches."""

    searches: int = 0
    told: int = 0
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

    def searched(
        self,
        variant: str,
        conversation: Conversation,
        *,
        ms: float,
        tokens: int,
        snippets: Iterable[Record],
    ) -> None:
        """Count one search. conversation: empty for a caller that names none, of whom nothing is known afterwards.

        snippets: what it told, each {id, layer, text, ...}.
        """
        told = [
            ShownMemory(text(one["id"]), text(one["layer"]), ON_SEARCH, traces_in(text(one["text"])))
            for one in snippets
        ]
        with self._lock:
            counts = self._of(variant)
            counts.searches += 1
            counts.ms = [*counts.ms, round(ms, 2)][-SAMPLES_KEPT:]
            counts.tokens = [*counts.tokens, tokens][-SAMPLES_KEPT:]
            if conversation:
                known = self._told.setdefault(conversation, {})
                self._told.move_to_end(conversation)
                known |= {one.id: (variant, one) for one in told if one.traces and len(known) < TOLD_OF_ONE}
                while len(self._told) > CONVERSATIONS_KEPT:
                    self._told.popitem(last=False)
            self._write_now_and_then()

    def heard(self, conversation: Conversation, messages: Json) -> None:
        """Count what of it the agent of a conversation used; what was told counts once. Raises BadInput: no messages.

        messages: a list of {role, content, tool_calls?}, as they were pushed.
        """
        read = read_messages(messages)
        with self._lock:
            known = self._told.pop(conversation, {})
        used = used_in([one for _, one in known.values()], read)
        with self._lock:
            for id_, (variant, _) in known.items():
                counts = self._of(variant)
                counts.told += 1
                counts.heeded += id_ in used
            self._write_now_and_then()

    def counts(self) -> dict[str, Record]:
        """Return variant -> searches, told, heeded, and the newest `ms` and `tokens`."""
        with self._lock:
            return {name: asdict(one) for name, one in self._known().items()}

    def keep(self) -> None:
        """Write what was counted."""
        with self._lock:
            self._write()

    def _of(self, variant: str) -> VariantCounts:
        return self._known().setdefault(variant, VariantCounts())

    def _known(self) -> dict[str, VariantCounts]:
        if self._counts is None:
            try:
                held = record(parsed(read_bounded(self._path, most_bytes=FILE_BYTES_MAX) or b"{}"))
                self._counts = {name: _read(record(one)) for name, one in held.items()}
            except (OSError, ValueError, KeyError, RecursionError):
                self._counts = {}
        return self._counts

    def _write_now_and_then(self) -> None:
        if self._monotonic() - self._written_at >= WRITE_EVERY_S:
            self._write()

    def _write(self) -> None:
        if self._counts:
            make_private(self._path.parent)
            write_atomic(
                self._path,
                json.dumps({name: asdict(one) for name, one in self._counts.items()}).encode(),
                durable=False,
            )
            self._written_at = self._monotonic()


def _read(one: Record) -> VariantCounts:
    return VariantCounts(
        whole(one["searches"]),
        whole(one["told"]),
        whole(one["heeded"]),
        [number(ms) for ms in items(one["ms"])][-SAMPLES_KEPT:],
        [whole(count) for count in items(one["tokens"])][-SAMPLES_KEPT:],
    )


TALKS_KEPT = 20_000


class StickyVariants:
    """Thread-safe; the conversation that was quiet longest is forgotten first."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, ...], str] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, talk: tuple[str, ...], asked: str) -> str:
        """Return the variant of a conversation: what it went by before, else what is asked for now."""
        with self._lock:
            name = self._held.setdefault(talk, asked)
            self._held.move_to_end(talk)
            while len(self._held) > TALKS_KEPT:
                self._held.popitem(last=False)
            return name
