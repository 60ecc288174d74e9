"""The state of one agent's JSON-RPC with the engine: a pure state machine, no I/O, no clock.

The bridge passes it the lines of both sides and does what it returns. It knows which requests wait for an answer, how
often each was sent, and the handshake, so that a new engine can take over at any time. Both protocol eras are served:
one begins with `initialize`, which is replayed and its answer swallowed; the 2026-07-28 one has no handshake to replay.
Invariant: a request gets exactly one answer, from the engine, from the handshake file or as an error of ours.
"""

from __future__ import annotations

import json
import re

from memory_anchor.base.json_values import kind_of, parsed, record
from memory_anchor.runtime.wire import HOOK_TOOL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn, TypeGuard

    from memory_anchor.base.json_values import Json, Record
    from memory_anchor.runtime.handshake import Handshake

MAX_SENDS = 3
"""A request is sent once and resent at most twice: one that kills the engine must not loop."""
MAX_SUBSCRIPTIONS = 256
MAX_ENGINE_REQUESTS = 256
PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, UNAVAILABLE = -32700, -32600, -32602, -32000
DEPTH_MAX = 100
"""Of objects and lists in one line."""
ID_CHARS_MAX, ID_MAX = 1_000, 1 << 63
SHOWN = 40
PROTOCOL_META = "io.modelcontextprotocol/protocolVersion"
LISTEN = "subscriptions/listen"
"""Never answered while it lives, and without effects: it is resent to every engine, uncounted."""
_ANSWER = re.compile(
    rb'\{"jsonrpc":"2\.0","id":(?:(0|-?[1-9]\d{0,17})|"([\x20\x21\x23-\x5b\x5d-\x7e]{0,200})"),"(?:result|error)":'
)
"""How an engine begins an answer: the id is read without parsing a line that may be long."""


def is_hook(message: Record) -> bool:
    """Return whether a request is a client's hook: no hook waits for an engine, or starts one."""
    params = message.get("params")
    return message.get("method") == "tools/call" and isinstance(params, dict) and params.get("name") == HOOK_TOOL


def silent_line(request: int | str, text: str = "") -> bytes:
    """Return the answer to a hook; without a text the client shows nothing."""
    content: list[Json] = [{"type": "text", "text": text}] if text else []
    return _line({"jsonrpc": "2.0", "id": request, "result": {"content": content}})


class Waiting:
    """One request of the agent that has no answer yet. sends: to how many engines it was sent."""

    __slots__ = ("message", "method", "raw", "sends")

    def __init__(self, raw: bytes, message: Record) -> None:
        self.raw = raw
        self.message = message
        self.method = str(message.get("method"))
        self.sends = 0


class Relay:
    """`ready` says whether an engine serves; while it does not, requests wait here.

    handshake: what an engine of this version answered before (see `handshake`), or None.
    """

    def __init__(self, handshake: Handshake | None = None) -> None:
        self.ready = False
        self.handshake = handshake
        self.waiting: dict[int | str, Waiting] = {}
        self._swallow: set[int | str] = set()
        self._asked: set[int | str] = set()
        self._initialize: tuple[int | str, bytes] | None = None
        self._initialized: bytes | None = None
        self._subscriptions: dict[str, bytes] = {}
        self._replays = 0

    def unanswered(self) -> int:
        """Return how many requests wait for an answer that will come; a subscription has none."""
        return sum(waiting.method != LISTEN for waiting in self.waiting.values())

    def from_client(self, raw: bytes) -> tuple[bytes | None, bytes | None]:
        """Take one line of the agent; return what goes to the engine now and what goes back to the agent."""
        try:
            message = _parsed(raw)
        except (ValueError, RecursionError) as error:
            return None, error_line(
                None, PARSE_ERROR, str(error) if isinstance(error, BadLine) else "the message is not JSON"
            )
        if not isinstance(message, dict):
            what = "batches are" if isinstance(message, list) else f"{kind_of(message)} is"
            return None, error_line(None, INVALID_REQUEST, f"{what} not served; send one JSON object at a time")
        if invalid := self._invalid(message):
            code, sentence = invalid
            request = message.get("id")
            known = _is_id(request) and request not in self.waiting and isinstance(message.get("method"), str)
            return None, error_line(request if known else None, code, sentence)
        method, request = message.get("method"), message.get("id")
        if method is None:
            # An answer to a request of the engine: only the engine that asked may hear it.
            if not _is_id(request) or request not in self._asked:
                return None, None
            self._asked.discard(request)
            return raw, None
        if _is_id(request):
            if not self.ready and is_hook(message):
                return None, silent_line(request)
            return self._request(raw, message, request), None
        if method == "notifications/initialized":
            self._initialized = raw
        elif method == "notifications/cancelled":
            cancelled = record(message.get("params")).get("requestId")
            if _is_id(cancelled):
                self.waiting.pop(cancelled, None)
        return (raw if self.ready else None), None

    def _invalid(self, message: Record) -> tuple[int, str] | None:
        """Return the error code and sentence for a message that is not valid MCP, None for a valid one.

        An engine would drop such a line unanswered, and the agent would wait for ever; so it is checked here.
        """
        if message.get("jsonrpc") != "2.0":
            return INVALID_REQUEST, f"jsonrpc is {_short(message.get('jsonrpc'))}; allowed is '2.0'"
        if "id" in message and not _is_id(message["id"]):
            size = f"{ID_CHARS_MAX} characters" if isinstance(message["id"], str) else "64 bits"
            kind = kind_of(message["id"])
            return INVALID_REQUEST, f"id is {_short(message['id'])}, {kind}; allowed is a text or a number of {size}"
        if "method" not in message:
            if "result" in message or "error" in message:
                return None
            return INVALID_REQUEST, "the message has neither a method nor a result"
        if not isinstance(message["method"], str):
            return INVALID_REQUEST, f"method is {_short(message['method'])}; allowed is a text"
        if not isinstance(message.get("params"), dict | None):
            return INVALID_PARAMS, f"params is {kind_of(message['params'])}; allowed is an object"
        if message.get("id") in self.waiting:
            return INVALID_REQUEST, f"id {_short(message['id'])} belongs to a request that still waits for its answer"
        return None

    def _request(self, raw: bytes, message: Record, request: int | str) -> bytes | None:
        waiting = self.waiting[request] = Waiting(raw, message)
        if waiting.method == "initialize":
            self._initialize = (request, raw)
        elif waiting.method in ("resources/subscribe", "resources/unsubscribe"):
            uri = str(record(message.get("params")).get("uri"))
            self._subscriptions.pop(uri, None)
            if waiting.method == "resources/subscribe" and len(self._subscriptions) < MAX_SUBSCRIPTIONS:
                self._subscriptions[uri] = raw
        if not self.ready:
            return None
        waiting.sends += 1
        return raw

    def from_engine(self, raw: bytes) -> bytes | None:
        """Take one line of the engine; return it when it is for the agent."""
        if answer := _ANSWER.match(raw):
            number, name = answer.groups()
            return self._answered(raw, int(number) if number else name.decode())
        try:
            message = parsed(raw)
        except ValueError:
            return None
        request = message.get("id") if isinstance(message, dict) else None
        if not isinstance(message, dict) or not _is_id(request):
            return raw
        if "method" in message:
            if len(self._asked) < MAX_ENGINE_REQUESTS:
                self._asked.add(request)
            return raw
        return self._answered(raw, request)

    def _answered(self, raw: bytes, request: int | str) -> bytes | None:
        if request in self._swallow:
            self._swallow.discard(request)
            return None
        return raw if self.waiting.pop(request, None) is not None else None

    def engine_ready(self) -> list[bytes]:
        """Return what a new engine must hear: the handshake, the subscriptions, then all that waits, in order."""
        self.ready = True
        lines: list[bytes] = []
        if self._initialize is not None and self._initialize[0] not in self.waiting:
            self._swallow.add(self._initialize[0])
            lines.append(self._initialize[1])
            if self._initialized is not None:
                lines.append(self._initialized)
            lines.extend(self._resubscribe())
        for waiting in self.waiting.values():
            waiting.sends += waiting.method != LISTEN
            lines.append(waiting.raw)
        return lines

    def _resubscribe(self) -> list[bytes]:
        lines = []
        waiting = {item.raw for item in self.waiting.values()}
        for raw in self._subscriptions.values():
            if raw not in waiting:
                self._replays += 1
                replay = f"anchor-replay-{self._replays}"
                self._swallow.add(replay)
                lines.append(json.dumps({**record(parsed(raw)), "id": replay}).encode() + b"\n")
        return lines

    def engine_lost(self, *, orderly: bool = False) -> list[bytes]:
        """Forget the engine; return the errors for requests that have now taken three engines with them; hooks end too.

        orderly: the engine said goodbye, so no unanswered request is to blame.
        """
        self.ready = False
        if orderly:
            for waiting in self.waiting.values():
                waiting.sends = max(waiting.sends - 1, 0)
        self._swallow.clear()
        self._asked.clear()
        hooks = [request for request, waiting in self.waiting.items() if is_hook(waiting.message)]
        for request in hooks:
            del self.waiting[request]
        spent = [request for request, waiting in self.waiting.items() if waiting.sends >= MAX_SENDS]
        return [silent_line(request) for request in hooks] + [
            self._fail(request, f"the memory engine ended {MAX_SENDS} times while it worked on this request")
            for request in spent
        ]

    def give_up(self, reason: str) -> list[bytes]:
        """Return an error for every waiting request: no engine is available."""
        return [self._fail(request, f"the memory engine is unavailable: {reason}") for request in list(self.waiting)]

    def _fail(self, request: int | str, text: str) -> bytes:
        del self.waiting[request]
        return error_line(request, UNAVAILABLE, text)

    def from_handshake(self) -> list[bytes]:
        """Return the answers that the handshake file can give now, so that an agent's first turn has its tools."""
        if self.ready or self.handshake is None:
            return []
        answers = []
        for request, waiting in list(self.waiting.items()):
            result = known_result(self.handshake, waiting.message, self._negotiated())
            if result is not None:
                del self.waiting[request]
                answers.append(_line({"jsonrpc": "2.0", "id": request, "result": result}))
        return answers

    def _negotiated(self) -> str:
        if self._initialize is None or self.handshake is None:
            return ""
        return _offered(self.handshake, record(parsed(self._initialize[1])))


def known_result(handshake: Handshake, message: Record, negotiated: str) -> Json:
    """Return the recorded result of a handshake request, None when only an engine can answer.

    handshake: {"results": [...], "versions": {protocol version: {method: index in results}}, "latest": version}.
    negotiated: the version `initialize` settled on, "" when there was none.
    """
    method = message.get("method")
    params = message.get("params") or {}
    if not isinstance(params, dict) or params.get("cursor") is not None:
        return None
    if method == "initialize":
        version = _offered(handshake, message)
    else:
        meta = params.get("_meta")
        version = str(meta.get(PROTOCOL_META, negotiated)) if isinstance(meta, dict) else negotiated
    index = handshake["versions"].get(version, {}).get(str(method))
    return None if index is None else handshake["results"][index]


def _offered(handshake: Handshake, initialize: Record) -> str:
    asked = str(record(initialize.get("params")).get("protocolVersion"))
    return asked if "initialize" in handshake["versions"].get(asked, {}) else str(handshake["latest"])


def error_line(request: int | str | None, code: int, text: str) -> bytes:
    """Return one JSON-RPC error as a line."""
    return _line({"jsonrpc": "2.0", "id": request, "error": {"code": code, "message": text}})


def _line(message: Record) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _is_id(value: Json) -> TypeGuard[int | str]:
    if isinstance(value, str):
        return len(value) <= ID_CHARS_MAX
    return isinstance(value, int) and not isinstance(value, bool) and -ID_MAX <= value < ID_MAX


_BRACKETS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*"?|[\[\]{}]', re.DOTALL)


class BadLine(ValueError):
    """Why a line is no JSON, in one sentence."""


def _parsed(raw: bytes) -> Json:
    """Return a line's JSON. Raises BadLine, ValueError, RecursionError: it is no JSON that an engine would read."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise BadLine(f"the message is not UTF-8 (byte {error.start})") from None
    if is_too_deep(text):
        raise BadLine(f"the message is nested deeper than {DEPTH_MAX}")
    value: Json = json.loads(text, parse_constant=_no_number)
    return value


def is_too_deep(text: str) -> bool:
    """Return whether brackets outside of strings are nested deeper than `DEPTH_MAX`."""
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return False
    depth = 0
    for match in _BRACKETS.finditer(text):
        bracket = match.group()
        depth += (bracket in "[{") - (bracket in "]}")
        if depth > DEPTH_MAX:
            return True
    return False


def _no_number(name: str) -> NoReturn:
    raise BadLine(f"the message holds {name}, which is no JSON number")


def _short(value: Json) -> str:
    shown = repr(value) if not isinstance(value, int) or -ID_MAX <= value < ID_MAX else "a larger number"
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"
