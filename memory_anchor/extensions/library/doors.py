"""How a program reaches a memory: one that is open in its own process, a running engine, or a server over HTTP.

A door takes a call of the table (`front/calls.py`) and gives its answer as JSON. Each call has a nonce of its own, so
that it can be sent again after whoever served it ended.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from memory_anchor.base.json_values import Json, Record, parsed, record
from memory_anchor.domain.errors import BadInput, Unavailable, reported
from memory_anchor.runtime import wire

if TYPE_CHECKING:
    import httpx2

CLIENT = "python"
WAIT_S = 120.0
"""For how long a call is sent again while those who serve the memory end one after the other."""
HTTP_TIMEOUT_S = 60.0
RESENDS, RESEND_PAUSE_S = 4, 0.25
V1 = {
    "add": "memory/store",
    "log": "memory/log",
    "search": "memory/search",
    "events": "memory/events",
    "list": "memory/list",
    "get": "memory/get",
    "history": "memory/history",
    "forget": "memory/forget",
    "remember": "memory/remember",
    "context": "memory/context",
    "constitution": "constitution",
}
"""Call -> its path under /v1."""


@dataclass(frozen=True, slots=True)
class Who:
    """On whose behalf: "" is what the memory itself says."""

    user: str = ""
    agent: str = ""
    conversation: str = ""


class Door(Protocol):
    def call(self, name: str, arguments: Mapping[str, Json], who: Who) -> Record:
        """Return the answer to one call. Raises our errors."""
        ...

    def close(self) -> None: ...


class LocalDoor:
    """The memory of this machine: through a running engine, else opened in this process."""

    def __init__(self, project: str, path: str | os.PathLike[str] | None) -> None:
        self._data = Path(path).expanduser().absolute() if path is not None else Path(wire.data_dir(os.environ))
        try:
            own = wire.process_preamble(os.environ, cwd=wire.working_folder(), pid=os.getpid(), nonce="")
        except wire.InvalidSetting as error:
            raise BadInput(str(error)) from None
        own = own._replace(client=CLIENT, conversation="")
        if "/" in project or os.sep in project or project.startswith("~"):
            folder = os.path.abspath(os.path.expanduser(project))  # noqa: PTH100, PTH111 - cheap to import
            own = own._replace(project_dir=wire.project_of({}, folder) or folder)
        elif project:
            own = own._replace(project=project, project_dir="")
        self._preamble = own

    def call(self, name: str, arguments: Mapping[str, Json], who: Who) -> Record:
        from memory_anchor.extensions.library.stores import make_ready, own_store
        from memory_anchor.runtime.calling import ask_once

        said = {what: value for what in ("user", "agent", "conversation") if (value := getattr(who, what))}
        caller = self._preamble._replace(nonce=os.urandom(8).hex(), **said)
        until = time.monotonic() + WAIT_S
        while True:
            store = own_store(self._data, self)
            try:
                answer = store.call(caller, name, arguments) if store is not None else None
                if answer is None:
                    answer = ask_once(self._data, caller, name, arguments)
                if answer is not None:
                    return answer
            except ConnectionResetError:  # it ended during the call, which the nonce lets another one answer
                if time.monotonic() > until:
                    raise Unavailable("the engine ended while it worked on this; try again") from None
            make_ready(self._data)

    def close(self) -> None:
        from memory_anchor.extensions.library.stores import close_store

        close_store(self._data, self)


class HttpDoor:
    """A served memory (`memory-anchor serve`), by its address and an access key."""

    def __init__(self, project: str, url: str, key: str) -> None:
        self._project, self._url, self._key = project, url.rstrip("/"), key
        self._made: httpx2.Client | None = None
        self._zone = wire.local_zone(os.environ)

    def call(self, name: str, arguments: Mapping[str, Json], who: Who) -> Record:
        import httpx2

        claims = {"project_id": self._project, "user_id": who.user, "agent_id": who.agent, "zone": self._zone}
        claims["conversation_id"] = who.conversation
        body: dict[str, Json] = {**arguments, **{claim: said for claim, said in claims.items() if said}}
        if name in ("add", "log", "remember", "forget") and not body.get("request_id"):
            body["request_id"] = os.urandom(8).hex()  # sent again it is the same write
        content = json.dumps(body)
        for left in range(RESENDS, -1, -1):
            try:
                answer = self._client().post(f"{self._url}/v1/{V1[name]}", content=content)
                break
            except httpx2.TransportError as error:
                if not left or isinstance(error, httpx2.TimeoutException):
                    raise Unavailable(
                        f"{self._url[:80]} did not answer ({type(error).__name__}); is it served?"
                    ) from None
                time.sleep(RESEND_PAUSE_S)
            except httpx2.InvalidURL:
                raise BadInput(
                    f"url is {self._url[:80]!r}; allowed is an address such as http://127.0.0.1:8377"
                ) from None
        try:
            told = record(parsed(answer.content))
        except ValueError:
            raise Unavailable(f"{self._url[:80]} answered no JSON (status {answer.status_code})") from None
        if answer.status_code != 200:
            raise reported(told, "the server failed")
        return told

    def close(self) -> None:
        if self._made is not None:
            self._made.close()

    def _client(self) -> httpx2.Client:
        import httpx2

        if self._made is None or self._made.is_closed:
            head = {"Content-Type": "application/json"} | (
                {"Authorization": f"Bearer {self._key}"} if self._key else {}
            )
            self._made = httpx2.Client(headers=head, timeout=HTTP_TIMEOUT_S)
        return self._made
