"""The connection to a Qdrant server or cluster: addresses, time limits, retries, and what each failure means.

Every operation of the store can be repeated with the same result (points have our ids, conditional writes carry
revisions), so one that got no answer is tried again: on the next address where there are several, a few times, and
never beyond twice `timeout_s` in all. Of several addresses each has half of the time, so a silent one leaves some to
the next. Where nothing answered one operation in all its time, those of the next second fail at once: a request that
asks a dead server for several things waits once. Messages name the address without user and password, never the key
nor the server's wording, which may quote a payload. Local mode (a folder, or memory) goes through here too, under one
lock: it is plain Python.
"""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from json import JSONDecodeError
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from memory_anchor.adapters.retries import retried
from memory_anchor.base.files import file_error
from memory_anchor.domain.errors import (
    BadInput,
    DiskFull,
    MemoryAnchorError,
    Refused,
    StoreBusy,
    StoreDamaged,
    Unavailable,
)

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

T = TypeVar("T")
TIMEOUT_S = 10.0
"""Of one operation with all its retries, unless `index.timeout_s` is set."""
TRIES = 6
FIRST_WAIT_S, WAIT_MOST_S = 0.05, 1.0
REST_S = 1.0
"""How long a server that did not answer at all is not asked again."""
OLDEST_SERVER = (1, 18)
"""It can add and drop named vectors and has conditional writes; nothing older was tried."""
PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which a retry may succeed: restarting, overloaded, a replica lost."""
_SIGNS: tuple[tuple[tuple[str, ...], type[MemoryAnchorError], str], ...] = (
    (
        ("no space left", "disk is full", "exceeds available disk space", "not enough disk"),
        DiskFull,
        "{where} has no room left; nothing was acknowledged, free some space there and retry.",
    ),
    (
        ("storage locked", "is locked", "write operations are forbidden", "read-only", "read only"),
        Refused,
        "{where} takes no writes now (locked, or on a read-only disk); unlock it or make that writable, then retry.",
    ),
    (
        ("consensus", "no quorum", "active replicas", "active replica", "leader is not established"),
        Unavailable,
        "{where} is a cluster of which too many nodes are away; start them (its /cluster tells which) and retry.",
    ),
)
"""A server's wording, in lower case -> our error. Read here alone, and never shown."""


class _Passing(Exception):
    """A failure that a retry may mend. silent: nothing answered."""

    def __init__(self, ours: MemoryAnchorError, *, silent: bool = False) -> None:
        super().__init__()
        self.ours, self.silent = ours, silent


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a server. urls: nodes of one cluster, any of which answers; ca_file: whose certificates to trust."""

    urls: tuple[str, ...] = ()
    path: str | None = None
    api_key: str | None = None
    ca_file: str = ""
    timeout_s: float = TIMEOUT_S


class QdrantLink:
    """Thread-safe. `ask` runs one operation against whichever node answers."""

    def __init__(self, access: Access) -> None:
        """Raises StoreBusy: another process has the folder open. BadInput: an address is none."""
        self.access = access
        self.is_server = bool(access.urls)
        self.place = ", ".join(map(without_credentials, access.urls)) if access.urls else str(access.path)
        self._guard: contextlib.AbstractContextManager[bool | None] = (
            contextlib.nullcontext() if self.is_server else threading.RLock()
        )
        self._at = 0
        self._answered = self._silent_at = float("-inf")
        with self._translated():
            self._clients = [self._connect(url) for url in access.urls] or [self._local()]

    def ask(self, work: Callable[[QdrantClient], T]) -> T:
        """Return the result of `work` with a client. It may run twice, and must come to the same result."""
        began = time.monotonic()
        if began - self._silent_at < REST_S:
            raise self._away()
        try:
            answer = retried(
                partial(self._once, work),
                _Passing,
                attempts=TRIES * len(self._clients),
                first_wait_s=FIRST_WAIT_S,
                longest_wait_s=WAIT_MOST_S,
                may_wait=lambda _: time.monotonic() - began < self.access.timeout_s,
            )
        except _Passing as error:
            if error.silent and self._answered < began:
                self._silent_at = time.monotonic()
            raise error.ours from error.__cause__
        self._answered = time.monotonic()
        return answer

    def _once(self, work: Callable[[QdrantClient], T]) -> T:
        at = self._at
        try:
            with self._guard, self._translated():
                return work(self._clients[at])
        except _Passing:
            if self._at == at:  # others may have moved on already
                self._at = (at + 1) % len(self._clients)
            raise

    def check_version(self) -> None:
        """Raise Unavailable where the server is too old, or is no Qdrant."""
        if not self.is_server:
            return
        version = str(getattr(self.ask(lambda client: client.info()), "version", ""))
        try:
            numbers = tuple(int(part) for part in version.split("-")[0].split(".")[:2])
        except ValueError:
            numbers = ()
        if numbers < OLDEST_SERVER:
            oldest = ".".join(map(str, OLDEST_SERVER))
            raise Unavailable(
                f"the Qdrant server at {self.place} is version {version[:20] or 'unknown'}; this one asks for "
                f"{oldest} or newer, so nothing was changed: upgrade the server, one minor version at a time."
            )

    def close(self) -> None:
        with self._guard, self._translated():
            for client in self._clients:
                client.close()

    def _connect(self, url: str) -> QdrantClient:
        QdrantClient = _client_class()  # noqa: N806
        if not _is_address(url):
            raise BadInput(
                f"index.url holds {without_credentials(url)!r}; allowed is http://HOST:PORT or https://HOST:PORT, "
                "several with commas"
            )
        # It warns of a key over http on every start; docs/qdrant.md says when that is fine.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return QdrantClient(
                    url=url,
                    api_key=self.access.api_key,
                    timeout=max(1, round(self.access.timeout_s / min(2, len(self.access.urls)))),
                    check_compatibility=False,
                    verify=self.access.ca_file or True,
                )
            except OSError as error:
                raise BadInput(
                    f"index.ca_file {self.access.ca_file} cannot be read ({error.strerror}); name a file of CAs"
                ) from error

    def _local(self) -> QdrantClient:
        QdrantClient = _client_class()  # noqa: N806
        if self.access.path == ":memory:":
            return QdrantClient(":memory:")
        try:
            return QdrantClient(path=self.access.path, force_disable_check_same_thread=True)
        except OSError as error:
            raise file_error(error, Path(str(self.access.path))) from error

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn the client's exceptions into ours, or into `_Passing`; this is the one place that knows them."""
        _client_class()
        from pydantic import ValidationError
        from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
        from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

        try:
            yield
        except UnexpectedResponse as error:
            ours = self.error_of_status(error.status_code or 0, error.content)
            if isinstance(ours, Unavailable) and error.status_code in PASSING:
                raise _Passing(ours) from error
            raise ours from error
        except ResourceExhaustedResponse as error:
            raise _Passing(self.error_of_status(429, b"")) from error
        except ResponseHandlingException as error:
            if isinstance(error.source, ValidationError):
                raise self._is_no_qdrant() from error
            raise _Passing(self._away(), silent=True) from error
        except (ValidationError, JSONDecodeError) as error:
            raise self._is_no_qdrant() from error
        except (ConnectionError, TimeoutError) as error:
            raise _Passing(self._away(), silent=True) from error
        except ValueError as error:  # what local mode says in a server's place
            if "not found" in str(error):
                raise StoreDamaged(f"{self.place} has no such collection; run `memory-anchor doctor`.") from error
            raise
        except RuntimeError as error:
            if "already accessed" in str(error):
                raise StoreBusy(
                    f"{self.place} is in use by another process; nothing was changed, "
                    "let it finish or use a Qdrant server."
                ) from error
            if "closed" in str(error):
                raise Unavailable(f"the store at {self.place} is closed; open it again.") from error
            raise

    def _is_no_qdrant(self) -> Unavailable:
        return Unavailable(
            f"what answers at {self.place} does not speak as Qdrant does; check index.url, and any proxy."
        )

    def _away(self) -> Unavailable:
        if len(self.access.urls) > 1:
            return Unavailable(f"no node of the Qdrant cluster at {self.place} answers, or too few do; start them.")
        return Unavailable(f"the Qdrant server at {self.place} does not answer; start it, or set index.kind to edge.")

    def error_of_status(self, status: int, content: bytes) -> MemoryAnchorError:
        """Return our error for an answer of a server."""
        where = f"the Qdrant server at {self.place}"
        message = content[:4_000].decode("utf-8", "replace").lower()
        for signs, kind, sentence in _SIGNS:
            if any(sign in message for sign in signs):
                return kind(sentence.format(where=f"{where} (HTTP {status})"))
        if status in (401, 403):
            return Refused(
                f"{where} refused the request (HTTP {status}); check index.api_key, and that the key may write."
            )
        if status == 507:
            return DiskFull(f"{where} has no room left (HTTP {status}); free some space and retry.")
        if status == 413:
            return BadInput(f"{where} takes no request of that size (HTTP {status}); raise its max_request_size_mb.")
        if status == 429:
            return Unavailable(f"{where} has too much to do (HTTP {status}); retry later.")
        if status in (301, 302, 307, 308):
            return Unavailable(f"{where} sends us elsewhere (HTTP {status}); set index.url to where it really is.")
        if 400 <= status < 500 and status != 408:
            return StoreDamaged(f"{where} cannot do what was asked (HTTP {status}); run `memory-anchor doctor`.")
        return Unavailable(f"{where} failed (HTTP {status}); retry, and see its log.")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets without an end, a port that is none
        return False


def without_credentials(url: str) -> str:
    """Return an address without user, password and path."""
    if not _is_address(url):
        return url.rpartition("@")[2][:80]
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"


def addresses(url: str) -> tuple[str, ...]:
    """Return the addresses of `index.url`, which may name several nodes of one cluster with commas."""
    return tuple(address.strip() for address in url.split(",") if address.strip())


def already_exists(error: BaseException) -> bool:
    """Return whether a server refused to create what another engine has just created."""
    from qdrant_client.http.exceptions import UnexpectedResponse

    return isinstance(error, UnexpectedResponse) and error.status_code == 409


def _client_class() -> type[QdrantClient]:
    from qdrant_client import QdrantClient  # late: it takes half a second

    return QdrantClient
