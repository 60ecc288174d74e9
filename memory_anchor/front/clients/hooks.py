"""`memory-anchor hook EVENT`: what Claude Code and Codex start at their lifecycle events. Standard library only.

It reads the client's JSON from stdin, asks the engine, and prints what the client understands. It never fails its
client: without memory it prints nothing and exits 0, and what must not be lost (a summary, the end of a conversation)
is spooled to disk for the next engine. Each event has a time limit: a prompt must not feel slow, a session's start may
wait for a cold engine, and the client kills a session's end after 1.5 s.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time

from memory_anchor.base.json_values import Record, kind_of, lenient
from memory_anchor.runtime import launch, spool, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

WAIT_S = {
    "SessionStart": 8.0,
    "UserPromptSubmit": 1.5,
    "Statusline": 0.4,
    "PreToolUse": 0.5,
    "PostToolUse": 0.5,
    "PostToolUseFailure": 0.5,
    "PreCompact": 5.0,
    "PostCompact": 3.0,
    "Stop": 1.0,
    "SessionEnd": 0.9,
}
"""How long each event may take in all; a warm engine answers within 0.3 s."""
COLD_WAIT_S = 4.0
"""How long a prompt waits for an engine that it had to start: the first of a conversation brings the brief."""
STARTS_ENGINE = ("SessionStart", "UserPromptSubmit", "PreCompact")
MUST_ARRIVE = ("PreCompact", "PostCompact", "Stop", "SessionEnd")
"""Events that carry something to keep: undelivered, they are spooled."""
RETRY_S = 0.05
MAX_STDIN_BYTES = 8 << 20
STDIN_WAIT_S = 5.0
SILENCE_S = 0.2
"""After so much silence a complete payload is taken, for clients that do not close their end."""
PIECE_BYTES = 1 << 16


def main(event: str) -> int:
    """Answer one hook on this process's stdin and stdout; return the exit code, which is always 0."""
    os.umask(0o077)
    if event not in WAIT_S:
        print(f"memory-anchor: there is no hook {event[:40]!r}; there are {', '.join(WAIT_S)}", file=sys.stderr)
        return 0
    started = time.monotonic()
    try:
        payload = _payload(_read_stdin(sys.stdin.fileno(), until=started + STDIN_WAIT_S))
    except (ValueError, OSError) as error:
        print(f"memory-anchor: {event} goes on without the client's payload ({error})", file=sys.stderr)
        payload = {}
    try:
        caller = caller_of(os.environ, payload, cwd=wire.working_folder(), pid=os.getpid(), nonce=os.urandom(8).hex())
    except wire.InvalidSetting as error:
        print(f"memory-anchor: {event} goes on without memory ({error})", file=sys.stderr)
        return 0
    if caller.memory == "off":
        if event == "Statusline":
            print("memory off")
        return 0
    data = wire.data_dir(os.environ)
    try:
        text = deliver(data, caller, event, payload, until=started + WAIT_S.get(event, 1.0))
    except OSError as error:
        if event == "Statusline":
            print("memory asleep")
            return 0
        _undelivered(data, caller, event, payload, error)
        return 0
    if text:
        sys.stdout.write(wire.hook_output(event, text))
    return 0


def deliver(data: str, caller: wire.Preamble, event: str, payload: Record, *, until: float) -> str:
    """Return the engine's text for this hook; a cold engine is started where the event may wait for it.

    until: monotonic seconds. Raises OSError: not delivered in time.
    """
    began = 0.0
    while True:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the memory engine did not answer in time")
        try:
            timed = {**payload, wire.UNTIL: time.time() + left} if event in wire.ADDS_CONTEXT else payload
            answer = wire.ask(data, "hook", caller, timeout_s=left, event=event, payload=timed)
        except (ConnectionError, FileNotFoundError):
            if event not in STARTS_ENGINE:
                raise
            if not began:
                began = time.time()
                launch.start(data, os.environ)
                until += max(0.0, COLD_WAIT_S - WAIT_S[event])
            elif reason := launch.failure(data, after=began)[0]:
                raise ConnectionError(reason) from None
            time.sleep(RETRY_S)
            continue
        if not answer.get("ok"):
            error = answer.get("error", "the engine refused")
            print(f"memory-anchor: {error.get('message') if isinstance(error, dict) else error}", file=sys.stderr)
            return ""
        return str(answer.get("text", ""))


def caller_of(env: Mapping[str, str], payload: Record, *, cwd: str, pid: int, nonce: str) -> wire.Preamble:
    """Return who this hook runs for: the payload's session and folder come before the environment's.

    After `/clear` or a resume the environment of a long-lived client may still name the old session.
    Raises wire.InvalidSetting: a wrong value.
    """
    here = str(payload.get("cwd") or cwd)
    own = wire.process_preamble(env, cwd=here, pid=pid, nonce=nonce)
    session = payload.get("session_id") or payload.get("thread_id")
    client = own.client or ("codex" if payload.get("turn_id") or env.get("CODEX_HOME") else "claude-code")
    return own._replace(conversation=str(session or own.conversation), client=client)


def _undelivered(data: str, caller: wire.Preamble, event: str, payload: Record, error: OSError) -> None:
    print(f"memory-anchor: {event} goes on without memory ({error})", file=sys.stderr)
    if event not in MUST_ARRIVE:
        return
    try:
        if not spool.keep(data, caller, event, payload):
            print(f"memory-anchor: the spool is full; {event} is lost", file=sys.stderr)
    except OSError as problem:
        print(f"memory-anchor: {event} could not be spooled ({problem.strerror})", file=sys.stderr)


def _read_stdin(source: int, *, until: float) -> bytes:
    """Return what the client wrote until it closed its end, or fell silent after a complete payload.

    Raises ValueError: more than is allowed.
    """
    content = bytearray()
    while len(content) <= MAX_STDIN_BYTES:
        if sys.platform != "win32":
            left = until - time.monotonic()
            if left <= 0:
                break
            if not select.select([source], [], [], min(left, SILENCE_S))[0]:
                if content.rstrip().endswith(b"}") and _is_json(content):
                    break  # complete, although the client keeps its end open
                continue
        piece = os.read(source, PIECE_BYTES)
        if not piece:
            break
        content += piece
    if len(content) > MAX_STDIN_BYTES:
        raise ValueError(f"its payload is longer than {MAX_STDIN_BYTES} bytes")
    return bytes(content)


def _is_json(raw: bytearray) -> bool:
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


def _payload(raw: bytes) -> Record:
    """Return the client's payload, {} for an empty one. Raises ValueError: no JSON object."""
    if not raw.strip():
        return {}
    try:
        value = lenient(raw)
    except (ValueError, RecursionError):
        raise ValueError("its payload is no JSON") from None
    if not isinstance(value, dict):
        raise ValueError(f"its payload is {kind_of(value)}; a hook gets an object")
    return value
