"""How a command reaches the memory: through the engine when one serves, else in this process under the lock.

Both ways run the same table of calls (`front/calls`) and exchange plain JSON, so a command behaves alike whether five
agents are connected or none. A command acts as an agent unless a passphrase was typed on a terminal: that opens the
key here, and the engine gets a signature over this one request (`identity/signed_requests`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.base.files import read_bounded
from memory_anchor.base.json_values import Json, Record, parsed, record
from memory_anchor.domain.errors import BadInput, StoreBusy, Unavailable, reported
from memory_anchor.front.cli.spinner import Spinner
from memory_anchor.runtime import env_names, environment, wire
from memory_anchor.runtime.calling import ask_engine
from memory_anchor.runtime.threads import uncollected

if TYPE_CHECKING:
    from memory_anchor.identity.keys import Signer
    from memory_anchor.process.wiring import Core

CHALLENGE_CALL = "human_challenge"
CLIENT = "cli"
SERVER_TIMEOUT_S = 30.0
KEY_BYTES_MAX = 20_000
_CALLED: set[str] = set()
_NOTED: set[str] = set()
_SERVER: ContextVar[tuple[str, str] | None] = ContextVar("memory_anchor_server", default=None)
"""Address and access key of a served memory that calls go to instead of this machine's."""
_NONCE: ContextVar[str] = ContextVar("memory_anchor_call_nonce", default="")
_PROJECT: ContextVar[tuple[str, str]] = ContextVar("memory_anchor_call_project", default=("", ""))
"""Id and folder of the project that calls are about; both "" for the one of this process's folder."""


def preamble() -> wire.Preamble:
    """Return who this command acts for: the terminal's folder and zone, without a conversation of its own.

    Raises BadInput: the environment or the user's file has a wrong value for it.
    """
    try:
        own = wire.process_preamble(os.environ, cwd=wire.working_folder(), pid=os.getpid(), nonce="")
    except wire.InvalidSetting as error:
        raise BadInput(str(error)) from None
    own = own._replace(client=CLIENT, conversation=os.environ.get("MEMORY_ANCHOR_CONVERSATION", ""))
    name, folder = _PROJECT.get()
    return own._replace(project=name, project_dir=folder, cwd=folder) if name or folder else own


def data_dir() -> Path:
    return Path(wire.data_dir(os.environ))


def check_writable() -> None:
    """Raise Refused: read-only, or paused; for commands that write files without a `call`."""
    from memory_anchor.adapters.projects import locate
    from memory_anchor.base.pausing import check_may_write, pause_of
    from memory_anchor.process.app import settings_of
    from memory_anchor.settings import with_project_file

    caller, settings = preamble(), settings_of(os.environ)
    project = with_project_file(settings, locate(Path(caller.project_dir)).root if caller.project_dir else "")
    paused = settings.paused or pause_of(data_dir(), datetime.now(UTC)) is not None
    check_may_write(read_only=bool(caller.read_only) or project.read_only, paused=paused)


def has_called() -> bool:
    """Return whether this process made a call; no after calls about projects, which name likely ones themselves."""
    return bool(_CALLED) and not any(name.startswith("projects_") for name in _CALLED)


def call(name: str, /, *, human: Signer | None = None, **arguments: Json) -> Record:
    """Return the answer to one call. human: who signs it; None: it is an agent's.

    Raises our errors, whoever ran it; BadInput: a wrong setting.
    """
    env_names.check(os.environ)
    given = {key: value for key, value in arguments.items() if value is not None}
    if server := _SERVER.get():
        return _ask_review_server(*server, name, given, human)
    _CALLED.add(name)
    _NONCE.set(os.urandom(8).hex())
    with Spinner():
        answer = _through_engine(name, given, human)
        return _run_here(name, given, human) if answer is None else answer


@contextmanager
def via_server(server: str, key: str) -> Iterator[None]:
    """Send the calls of this block to a served memory's `/v1/review`; "" keeps them here."""
    token = _SERVER.set((server.rstrip("/"), key) if server else None)
    try:
        yield
    finally:
        _SERVER.reset(token)


@contextmanager
def in_project(name: str, folder: str) -> Iterator[None]:
    """Make the calls of this block those of another project; two "" leave them as they are."""
    token = _PROJECT.set((name, folder))
    try:
        yield
    finally:
        _PROJECT.reset(token)


def read_key(file: str) -> str:
    """Return the access key in a file; `-` is standard input, "" no key. Raises BadInput: it cannot be read."""
    if not file:
        return ""
    most = KEY_BYTES_MAX
    try:
        raw = sys.stdin.buffer.read(most) if file == "-" else read_bounded(Path(file), most_bytes=most)
    except OSError as error:
        raise BadInput(f"--key-file {file} cannot be read ({error.strerror}); allowed is a file with one key") from None
    key = (raw or b"").decode("utf-8", "replace").strip()
    if not key.isascii() or not key.isprintable() or not key or " " in key:
        raise BadInput(f"--key-file {file} holds no key; allowed is a file with one key and nothing else")
    return key


def _ask_review_server(url: str, key: str, name: str, given: Record, human: Signer | None) -> Record:
    from memory_anchor.front.callers import REVIEWER

    if human is not None:
        from memory_anchor.domain.credential import key_digest
        from memory_anchor.identity.signed_requests import sign_request

        challenge = ask_server(url, key, "review/challenge", {}).get("challenge")
        given = {**given, "human": sign_request(human, name, given, REVIEWER, challenge, server=key_digest(key))}
    return ask_server(url, key, f"review/{name}", given)


def ask_server(url: str, key: str, path: str, body: Record | None = None) -> Record:
    """Return what a served memory answers to `/v1/PATH`: a GET without a body, else a POST. Raises our errors."""
    import httpx2

    try:
        head = {"Authorization": f"Bearer {key}"}
        method, sent = ("GET", None) if body is None else ("POST", json.dumps(body))
        if sent is not None:
            head["Content-Type"] = "application/json"
        answer = httpx2.request(method, f"{url}/v1/{path}", headers=head, timeout=SERVER_TIMEOUT_S, content=sent)
        content = record(parsed(answer.content))
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError):
        raise Unavailable(f"{url[:80]} did not answer; see `memory-anchor doctor --server {url[:80]}`") from None
    if answer.status_code != 200:
        raise reported(content, "the server failed")
    return content


def _through_engine(name: str, given: Record, human: Signer | None) -> Record | None:
    """Return the engine's answer, None when none runs."""
    if human is None:
        return _ask_engine(name, given)
    challenge = _ask_engine(CHALLENGE_CALL, {})
    if challenge is None:
        return None
    answer = _ask_engine(name, _with_proof(name, given, human, challenge))
    if answer is None:
        raise Unavailable("the engine ended while it worked on this; try again")
    return answer


def run_signed(core: Core, name: str, given: Record, human: Signer | None) -> Record:
    """Return the answer to a call in this process, signed as it would be for an engine."""
    from memory_anchor.front.calls import run

    if human is None:
        return run(core, _agent_preamble(), name, given)
    challenge = run(core, preamble(), CHALLENGE_CALL, {})
    return run(core, preamble(), name, _with_proof(name, given, human, challenge))


def _with_proof(name: str, given: Record, human: Signer, challenge: Record) -> Record:
    from memory_anchor.identity.signed_requests import sign_request

    return {**given, "human": sign_request(human, name, given, preamble()._asdict(), challenge.get("challenge"))}


def _agent_preamble() -> wire.Preamble:
    """Return an agent's preamble for the current call: the same each time that it is sent."""
    return preamble()._replace(nonce=_NONCE.get())


def _ask_engine(name: str, arguments: Record) -> Record | None:
    """Return the engine's answer, None when none runs.

    An agent's call may be sent again (`runtime/calling`); a human's may not, since its signature is for one challenge.
    """
    resends = "human" not in arguments and name != CHALLENGE_CALL
    answer = ask_engine(data_dir(), _agent_preamble() if resends else preamble(), name, arguments, resends=resends)
    if answer is not None:
        _note_settings(str(data_dir()))
    return answer


def _note_settings(data: str) -> None:
    """Say once which settings of this command's environment the engine that answered does not apply."""
    if _NOTED or not environment.engine_settings(os.environ):
        return
    if sentence := environment.not_applied(wire.read_state(data) or {}, os.environ, data):
        _NOTED.add(sentence)
        print(f"memory-anchor: {sentence}", file=sys.stderr)


def _run_here(name: str, arguments: Record, human: Signer | None) -> Record:
    """Run the call in this process, holding the data directory's lock for its duration."""
    os.umask(0o077)
    from memory_anchor.runtime.lock import DirectoryLock

    try:
        lock = DirectoryLock.acquire(data_dir(), role="command")
    except StoreBusy:
        # An engine may have taken the lock since we looked: it is loading and will answer.
        answer = _through_engine(name, arguments, human)
        if answer is None:
            raise
        return answer
    with lock:
        with uncollected():
            from memory_anchor.admin import nightly
            from memory_anchor.process.app import build_core, settings_of

            core = build_core(settings_of(os.environ), data_dir=data_dir(), lock=lock, late=True)
        nightly.register(core)
        try:
            return run_signed(core, name, arguments, human)
        finally:
            core.close()
