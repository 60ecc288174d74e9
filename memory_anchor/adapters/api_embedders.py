"""Embedders behind an HTTP API: OpenAI's and servers that speak it (Zhipu, local ones), Gemini's own and Ollama's.

Text leaves this process here, so it is redacted once more on the way out. The same text is never sent twice while it is
in the cache, which is keyed by a hash of provider, model, width, role and text. Documents may wait and be retried;
a query has one short try, because search goes on without it. Vectors of two models are never compared: the identity
names provider, model, width and prompts, and an answer of another width is refused, not cut.

Formats: OpenAI `POST /embeddings` ({model, input, dimensions}), Zhipu the same at open.bigmodel.cn (at most 64 inputs),
Gemini `POST /models/MODEL:batchEmbedContents` with task types, Ollama `POST /api/embed` ({model, input, keep_alive}),
which keeps the model loaded between queries. Many models want a prompt before a text, one for queries and one for
documents; `embedding_models.toml` has those of models that Ollama serves. Invariant: rows are float32, L2-normalised,
in the order of the texts; every failure is one sentence without key or text.
"""

from __future__ import annotations

import threading
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

from cachetools import LRUCache

from memory_anchor.adapters.embedders import clean
from memory_anchor.adapters.retries import retried
from memory_anchor.base.circuit import CircuitBreaker
from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Json, items
from memory_anchor.domain.embedding_apis import PROVIDERS
from memory_anchor.domain.errors import BadInput, Unavailable, WrongEmbedder
from memory_anchor.domain.ports import EmbedderIdentity
from memory_anchor.language.safety import redact

if TYPE_CHECKING:
    import httpx2
    import numpy as np
    from numpy.typing import NDArray

    from memory_anchor.domain.ports import Embedder, Matrix

    Row = NDArray[np.float32]

Role = Literal["document", "query"]

TEXT_CHARS = 8_000
CACHED_ROWS = 10_000
DOCUMENT_TIMEOUT_S, QUERY_TIMEOUT_S = 30.0, 3.0
MAX_ATTEMPTS = 3
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 8.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Prompts:
    """What a model wants before a query and before a document. dimensions: 0 where not known."""

    query: str = ""
    document: str = ""
    dimensions: int = 0

    def __bool__(self) -> bool:
        return bool(self.query or self.document)


KEEP_ALIVE = "30m"
"""How long Ollama keeps the model in memory after a query: loading it takes longer than a query may wait."""
_TASKS: Mapping[Role, str] = {"document": "RETRIEVAL_DOCUMENT", "query": "RETRIEVAL_QUERY"}


class ApiEmbedder:
    """An embedder behind one of `PROVIDERS`, or another server that speaks its format.

    kind: openai, zhipu, gemini or ollama. dimensions: width of a row, 0 for the provider's or the model's usual.
    base_url: another server; it may need no key. prompts: text before each query and document, instead of what Ollama's
    models are known to want. now, sleep: seconds. Raises BadInput: an unknown kind, a width the model does not have or
    that is not known, prompts for an API that has roles of its own.
    """

    def __init__(
        self,
        kind: str,
        *,
        api_key: str = "",
        model: str = "",
        dimensions: int = 0,
        base_url: str = "",
        prompts: Prompts | None = None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if kind not in PROVIDERS:
            raise BadInput(f"embedder.kind is {kind!r}; an API is one of {', '.join(PROVIDERS)}.")
        self._provider = PROVIDERS[kind]
        self._model = model or self._provider.model
        defaults = known_prompts(self._model) if kind == "ollama" else Prompts(dimensions=self._provider.dimensions)
        self._prompts = prompts or defaults
        self._asked_width = dimensions
        width = dimensions or defaults.dimensions
        if not width:
            raise BadInput(f"embedder.dimensions is not set; how long a row of {self._model} is must be set there.")
        if kind == "gemini" and prompts:
            raise BadInput(
                "embedder.query_prompt and embedder.document_prompt are not for gemini, which has task types."
            )
        if self._provider.widths and not model and width not in self._provider.widths:
            allowed = ", ".join(map(str, self._provider.widths))
            raise BadInput(f"embedder.dimensions is {width}; {self._provider.model} has {allowed}.")
        roles = "query/document" if kind == "gemini" else "none"
        if self._prompts:
            roles = f"prompts {stable_hash(self._prompts.query, self._prompts.document)[:8]}"
        self.identity = EmbedderIdentity(model=f"{kind}:{self._model}", dimensions=width, roles=roles)
        self._key = api_key
        self._url = (base_url or self._provider.base_url).rstrip("/")
        self._own_server = bool(base_url) or self._provider.is_local
        self._sleep = sleep
        self._api = f"The embedding API {kind}"
        self._circuit = CircuitBreaker(now)
        self._cache: LRUCache[str, Row] = LRUCache(CACHED_ROWS)
        self._lock = threading.Lock()
        self._client: httpx2.Client | None = None
        self._retries = True

    def available(self) -> bool:
        """Return whether the API can be asked: there is a key, or another server, and it did not just fail."""
        return bool(self._key or self._own_server) and not self._circuit.retry_in_s()

    def documents(self, texts: Sequence[str]) -> Matrix:
        """Return one row a text; waits and retries. Raises Unavailable, WrongEmbedder."""
        attempts, timeout_s = (MAX_ATTEMPTS, DOCUMENT_TIMEOUT_S) if self._retries else (1, QUERY_TIMEOUT_S)
        return self._rows(texts, "document", attempts=attempts, timeout_s=timeout_s)

    def queries(self, texts: Sequence[str]) -> Matrix:
        """Return one row a text, in one short try. Raises Unavailable, WrongEmbedder."""
        return self._rows(texts, "query", attempts=1, timeout_s=QUERY_TIMEOUT_S)

    def with_one_try(self) -> Embedder:
        """Return the same embedder, with its cache and breaker, for a waiting caller: one short try for documents."""
        prompt = copy(self)
        prompt._retries = False
        return prompt

    def _rows(self, texts: Sequence[str], role: Role, *, attempts: int, timeout_s: float) -> Matrix:
        import numpy as np

        cleaned = [_outgoing(text) for text in texts]
        kind = role if self.identity.roles != "none" else "any"
        keys = [stable_hash(self.identity.model, str(self.identity.dimensions), kind, text) for text in cleaned]
        with self._lock:
            rows = {key: self._cache[key] for key in keys if key in self._cache}
        missing = list({key: text for key, text in zip(keys, cleaned, strict=True) if key not in rows}.items())
        for start in range(0, len(missing), self._provider.batch):
            batch = missing[start : start + self._provider.batch]
            answer = self._ask([text for _, text in batch], role, attempts=attempts, timeout_s=timeout_s)
            fresh = {key: row for (key, _), row in zip(batch, answer, strict=True)}
            rows |= fresh
            with self._lock:
                self._cache.update(fresh)
        if not keys:
            return np.zeros((0, self.identity.dimensions), dtype=np.float32)
        return np.stack([rows[key] for key in keys])

    def _ask(self, texts: list[str], role: Role, *, attempts: int, timeout_s: float) -> Matrix:
        """Return the rows of one request, retried where that may help."""
        if not self._key and not self._own_server:
            raise Unavailable(
                f"embedder.api_key is not set, so the embedding API {self._provider.name} cannot be asked."
            )
        self._circuit.check(self._api)
        try:
            answer = retried(
                partial(self._send, texts, role, timeout_s),
                _TransientError,
                attempts=attempts,
                first_wait_s=FIRST_WAIT_S,
                longest_wait_s=LONGEST_WAIT_S,
                sleep=self._sleep,
            )
            rows = self._checked(answer, len(texts))
        except _TransientError as failed:
            self._circuit.note(ok=False)
            raise Unavailable(str(failed)) from None
        self._circuit.note(ok=True)
        return rows

    def _send(self, texts: list[str], role: Role, timeout_s: float) -> list[Json]:
        """Return the raw vectors in order; raises _TransientError or Unavailable."""
        import httpx2

        is_ollama = self._provider.name == "ollama"
        url, headers, body = self._request(texts, role)
        try:
            answer = self._opened().post(url, headers=headers, json=body, timeout=timeout_s)
        except httpx2.TimeoutException:
            raise _TransientError(f"{self._api} did not answer within {timeout_s:g} s.") from None
        except httpx2.HTTPError:
            ollama = "Ollama cannot be reached; start it (`ollama serve`) or check embedder.base_url."
            raise _TransientError(ollama if is_ollama else f"{self._api} cannot be reached.") from None
        status = answer.status_code
        if status in {408, 409, 425, 429} or status >= 500:
            raise _TransientError(f"{self._api} is overloaded or broken ({status}).")
        if status in {401, 403}:
            name = self._provider.name
            raise Unavailable(f"The key for the embedding API {name} was refused ({status}); check embedder.api_key.")
        if status == 404 and is_ollama:
            raise Unavailable(f"Ollama has no model {self._model}; run `ollama pull {self._model}`.")
        if status >= 400:
            raise Unavailable(
                f"{self._api} refused the request ({status}); "
                "check embedder.model, embedder.dimensions and embedder.base_url."
            )
        if len(answer.content) > MAX_ANSWER_BYTES:
            raise _TransientError(f"{self._api} answered with {len(answer.content)} bytes.")
        try:
            content = answer.json()
            if isinstance(content.get("embeddings"), list):
                return [item["values"] if isinstance(item, dict) else item for item in content["embeddings"]]
            return [item["embedding"] for item in sorted(content["data"], key=lambda item: item.get("index", 0))]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise _TransientError(f"{self._api} gave something that is no list of vectors.") from None

    def _request(self, texts: list[str], role: Role) -> tuple[str, dict[str, str], dict[str, Json]]:
        if self._provider.name == "gemini":
            name = f"models/{self._model}"
            requests: list[Json] = [
                {
                    "model": name,
                    "content": {"parts": [{"text": text}]},
                    "taskType": _TASKS[role],
                    "outputDimensionality": self.identity.dimensions,
                }
                for text in texts
            ]
            return f"{self._url}/{name}:batchEmbedContents", {"x-goog-api-key": self._key}, {"requests": requests}
        prefix = self._prompts.query if role == "query" else self._prompts.document
        body: dict[str, Json] = {"model": self._model, "input": [prefix + text for text in texts]}
        if self._provider.name == "ollama":
            body |= {"keep_alive": KEEP_ALIVE, **({"dimensions": self._asked_width} if self._asked_width else {})}
            return f"{self._url}/api/embed", {}, body
        body |= {"encoding_format": "float", "dimensions": self.identity.dimensions}
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        return f"{self._url}/embeddings", headers, body

    def _checked(self, vectors: list[Json], count: int) -> Matrix:
        """Return normalised rows; raises WrongEmbedder on another width, _TransientError where it is no vector."""
        import numpy as np

        if len(vectors) != count:
            raise _TransientError(f"{self._api} gave {len(vectors)} vectors for {count} texts.")
        try:
            widths = {len(items(vector)) for vector in vectors}
            if widths != {self.identity.dimensions}:
                raise WrongEmbedder(
                    f"{self._api} answered with {max(widths)} dimensions instead of "
                    f"{self.identity.dimensions}; set embedder.dimensions and run `memory-anchor reindex`."
                )
            rows = np.asarray(vectors, dtype=np.float32)
        except (TypeError, ValueError):
            raise _TransientError(f"{self._api} gave something that is no vector.") from None
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        if not np.isfinite(rows).all() or (lengths < 1e-9).any():
            raise _TransientError(f"{self._api} gave a vector that is empty or not finite.")
        return np.asarray(rows / lengths, dtype=np.float32)

    def _opened(self) -> httpx2.Client:
        with self._lock:
            if self._client is None:
                import httpx2

                # A proxy from the environment must not see what goes to a server on this machine.
                local = "://127.0.0.1" in self._url or "://localhost" in self._url
                self._client = httpx2.Client(trust_env=not local, follow_redirects=False)
            return self._client


def known_prompts(model: str) -> Prompts:
    """Return the prompts of Ollama's model of this name, with or without a tag; none for an unknown model.

    >>> known_prompts("nomic-embed-text:v1.5").query
    'search_query: '
    """
    return _known_models().get(model.rpartition("/")[2].partition(":")[0], Prompts())


@cache
def _known_models() -> dict[str, Prompts]:
    table = files("memory_anchor.adapters").joinpath("embedding_models.toml").read_text(encoding="utf-8")
    return {name: Prompts(**prompts) for name, prompts in tomllib.loads(table).items()}


class _TransientError(Exception):
    """A failure that a retry may mend."""


def _outgoing(text: str) -> str:
    """Return text as it may leave the machine: redacted, cut, valid UTF-8, never empty."""
    return redact(clean(text[:TEXT_CHARS])).text.strip() or " "
