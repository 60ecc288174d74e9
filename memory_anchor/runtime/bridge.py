"""`memory-anchor mcp`: the process an agent starts; passes JSON-RPC lines to the engine. Standard library only.

One thread and one `select` loop around the pure `Relay`: no locks, no races. It connects to the engine, starts one when
none runs, notices when one dies or hangs, and lets the next one take over. While no engine serves, the handshake is
answered from the packaged file. An SDK client here cost 1.3 s of imports, 66 MB and 6 ms a call; this costs some 50 ms,
11 MB and nothing measurable. stdout is for the protocol only: everything else is printed to stderr.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from contextlib import suppress

from memory_anchor.base import installation
from memory_anchor.runtime import env_names, environment, handshake, launch, wire
from memory_anchor.runtime.relay import INVALID_REQUEST, Relay, error_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_anchor.base.json_values import Record

HOLD_S = 1.5
"""How long a handshake request waits for an engine that serves; for one that is loading it does not wait."""
GREETING_TICK_S = 0.05
POLL_S = 0.01
POLL_SLOW_S = 0.1
QUICK_POLLS_S = 3.0
START_WAIT_S = 20.0
"""From starting an engine until it must listen (it listens before its heavy imports)."""
START_AGAIN_S = 3.0
"""While none listens, another is started this often: the one before may have yielded to an engine that then died."""
LOAD_WAIT_S = 180.0
"""From connecting until a loading engine must serve; loading replays what a kill left unflushed."""
START_PAUSES_S = (0.0, 0.25, 1.0, 4.0)
"""Pause after the n-th loss or failed start in a row; after one more the waiting requests get an error."""
STEADY_S = 30.0
"""An engine that served this long, or answered a request, is healthy: the next loss starts with the first pause."""
QUIET_S = 3.0
"""With a request waiting and no line for this long, the engine is pinged."""
PONG_WAIT_S = 7.0
"""Without a pong for this long it hangs, is killed and replaced. The longest pause of a healthy one was 0.15 s."""
LAST_ANSWERS_S, LAST_ANSWERS_IN_ALL_S = 30.0, 240.0
"""How long after stdin's end, and once an engine serves, the last requests may still be answered; the second counts
from stdin's end and covers an engine's start."""
UNANSWERED = 5
"""Exit code where a request that waited at stdin's end got an error in place of an engine's answer."""
FAILURE_FRESH_S = 5.0
"""A failing engine may be connected to before its socket closes; older failure files are another engine's."""
PART_ASK_S = 0.5
TICK_S = 1.0
MAX_UNSENT_BYTES = 64 << 20
"""With this much unsent to a slow engine, the agent's lines stay in its pipe."""
OPTIONS = {
    "--data-dir": "MEMORY_ANCHOR_DATA_DIR",
    "--project-dir": "MEMORY_ANCHOR_PROJECT_DIR",
    "--profile": "MEMORY_ANCHOR_PROFILE",
    "--answers": "MEMORY_ANCHOR_ANSWERS",
}


class Bridge:
    """One agent's connection, for as long as its stdin stays open.

    source: what `select` can wait on for the agent's lines. sink: file descriptor of the agent's stdout.
    engine: command that starts an engine, None for the one of this package.
    """

    def __init__(
        self,
        data: str,
        preamble: wire.Preamble,
        *,
        source: int | socket.socket,
        sink: int,
        engine: Sequence[str] | None = None,
    ) -> None:
        self.data = data
        self.preamble = preamble
        self.relay = Relay()
        self._source, self._sink, self._engine = source, sink, engine
        self._typed = bytearray()
        self._skipping = False
        self._closed_at: float | None = None
        self._failed_last = False  # a request that waited at the end of input got an error
        self._link: socket.socket | None = None
        self._state: Record = {}
        self._heard = bytearray()
        self._unsent = bytearray()
        self._linked_at = self._linked_epoch = self._heard_at = self._ready_at = 0.0
        self._asked_at: float | None = None
        self._started_at: float | None = None
        self._start_again = 0.0
        self._started_epoch = 0.0
        self._fails = 0
        self._resting = False  # no engine wanted until the agent asks something
        self._next_try = 0.0
        self._read_file = False
        self._told_version = ""
        self._unapplied = ""  # what was said of settings that the engine does not apply
        self._parted: tuple[int, float] | None = None  # the engine asked to hand over for its settings, and when

    def run(self) -> int:
        """Pump until the agent closes its stdin and its last requests are answered; return the exit code."""
        self._read_agent(0.0)
        while not self._finished(time.monotonic()):
            self._tend(time.monotonic())
            self._wait(time.monotonic())
        if left := self.relay.unanswered():
            self._note(f"stdin was closed, and {left} of its last requests were not answered in time")
            self._fail(self.relay.give_up("stdin was closed before it answered"))
        return UNANSWERED if self._failed_last else 0

    def _finished(self, now: float) -> bool:
        if self._closed_at is None:
            return False
        if not (self.relay.unanswered() or self._unsent):
            return True
        if self.relay.ready and now - max(self._closed_at, self._ready_at) > LAST_ANSWERS_S:
            return True
        return now - self._closed_at > LAST_ANSWERS_IN_ALL_S

    # --- what is due -------------------------------------------------------------------------------------------

    def _tend(self, now: float) -> None:
        if self._link is None:
            if now >= self._next_try and (self.relay.waiting or not self._resting):
                self._try_link(now)
        elif not self.relay.ready:
            self._tend_greeting(now)
        else:
            self._tend_heartbeat(now)

    def _tend_greeting(self, now: float) -> None:
        waited = now - self._linked_at
        loading = (wire.read_state(self.data) or {}).get("state") == "loading"
        if loading or waited > HOLD_S:
            self._answer_from_file()
        if loading and waited < LOAD_WAIT_S:
            self._heard_at = now  # silence only counts once it serves
        elif now - self._heard_at > PONG_WAIT_S:
            self._replace_hung("did not greet")

    def _tend_heartbeat(self, now: float) -> None:
        if now - self._ready_at > STEADY_S:
            self._fails = 0
        if not self.relay.waiting:
            self._asked_at = None
        elif self._asked_at is not None and now - self._asked_at > PONG_WAIT_S:
            self._replace_hung("did not answer the heartbeat")
        elif self._asked_at is None and now - self._heard_at > QUIET_S:
            self._asked_at = now
            self._unsent += wire.PING

    def _replace_hung(self, why: str) -> None:
        link = self._link
        pid = (wire.peer_pid(link) if link is not None else 0) or _pid(self._state)
        launch.kill(pid)
        self._note(f"the engine (pid {pid}) {why} and was ended")
        self._lost(time.monotonic())

    # --- the engine --------------------------------------------------------------------------------------------

    def _try_link(self, now: float) -> None:
        try:
            link, self._state = wire.connect(self.data)
        except OSError:
            self._no_engine(now)
            return
        uid = wire.peer_uid(link)
        if uid is not None and uid != os.getuid():
            link.close()
            self._give_up(now, "its socket belongs to another user")
            return
        if environment.differs(self._state, os.environ, self.data):
            link.close()
            self._part(now)
            return
        if (sentence := environment.not_applied(self._state, os.environ, self.data)) and sentence != self._unapplied:
            self._unapplied = sentence
            self._note(sentence)
        link.setblocking(False)
        self._link = link
        self._linked_at, self._linked_epoch, self._heard_at = now, time.time(), now
        self._asked_at = None
        self._heard.clear()
        self._unsent[:] = wire.greeting("mcp", self.preamble, self._state)

    def _part(self, now: float) -> None:
        """Ask an engine with settings that this bridge does not have to hand over to one without them."""
        self._answer_from_file()
        self._started_at = None
        pid = _pid(self._state)
        if self._parted is None or self._parted[0] != pid:
            self._parted = (pid, now)
            self._note("the engine took settings from another project's environment; it hands over to one without them")
        elif now - self._parted[1] > START_WAIT_S:
            self._give_up(now, "it holds settings of another project's environment; run `memory-anchor engine stop`")
            return
        self._next_try = now + POLL_SLOW_S
        with suppress(OSError):  # it is loading or ending: asked again until it is gone
            wire.ask(self.data, "stop", wire.Preamble(), timeout_s=PART_ASK_S)

    def _no_engine(self, now: float) -> None:
        self._answer_from_file()
        if self._started_at is None:
            self._started_at, self._started_epoch = now, time.time()
            self._launch(now)
            return
        waited = now - self._started_at
        reason, may_pass = launch.failure(self.data, after=self._started_epoch)
        if not reason and now >= self._start_again:
            reason, may_pass = installation.lacking(), False
        if reason:
            self._failed(now, reason, may_pass=may_pass)
        elif waited > START_WAIT_S:  # a client waits 30 s for an answer
            self._failed(now, f"it did not start within {START_WAIT_S:.0f} s; see {self.data}/logs", may_pass=False)
        elif now >= self._start_again:
            self._launch(now)
        else:
            self._next_try = now + (POLL_S if waited < QUICK_POLLS_S else POLL_SLOW_S)

    def _launch(self, now: float) -> None:
        self._next_try = now + POLL_S
        self._start_again = now + START_AGAIN_S
        try:
            launch.start(self.data, os.environ, self._engine)
        except OSError as error:
            self._failed(now, f"it cannot be started: {error.strerror} ({error.filename})")

    def _lost(self, now: float, *, orderly: bool = False) -> None:
        was_ready, epoch = self.relay.ready, self._linked_epoch - FAILURE_FRESH_S
        if self._link is not None:
            self._link.close()
        self._link, self._started_at = None, None
        self._unsent.clear()
        self._fail(self.relay.engine_lost(orderly=orderly))
        if orderly:
            self._resting = True
            self._next_try = now + POLL_S  # the next one is started when there is a request
            return
        reason, may_pass = ("", True) if was_ready else wire.read_failure(self.data, after=epoch)
        self._failed(now, reason or "it ended unexpectedly", may_pass=may_pass)

    def _failed(self, now: float, reason: str, *, may_pass: bool = True) -> None:
        self._started_at = None
        self._fails += 1
        self._note(f"the engine is not there: {reason}")
        if may_pass and self._fails <= len(START_PAUSES_S):
            self._next_try = now + START_PAUSES_S[self._fails - 1]
        else:
            self._give_up(now, reason)

    def _give_up(self, now: float, reason: str) -> None:
        # The agent keeps its tools: each later request is one more attempt, answered with the reason if it fails.
        self._fails = len(START_PAUSES_S)
        self._resting = True
        self._next_try = now
        self._fail(self.relay.give_up(reason))

    # --- bytes -------------------------------------------------------------------------------------------------

    def _wait(self, now: float) -> None:
        reading: list[int | socket.socket] = []
        if self._closed_at is None and len(self._unsent) < MAX_UNSENT_BYTES:
            reading.append(self._source)
        writing: list[socket.socket] = []
        if self._link is not None:
            reading.append(self._link)
            if self._unsent:
                writing.append(self._link)
        readable, writable, _ = select.select(reading, writing, [], self._pause(now))
        if writable:
            self._send()
        if self._link is not None and self._link in readable:
            self._read_engine()
        if self._source in readable:
            self._read_agent(None)

    def _pause(self, now: float) -> float:
        if self._link is None and (self.relay.waiting or not self._resting):
            return min(max(self._next_try - now, 0.0), TICK_S)
        if self._link is not None and not self.relay.ready:
            return GREETING_TICK_S
        return TICK_S

    def _send(self) -> None:
        if self._link is None:
            return
        try:
            sent = self._link.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._lost(time.monotonic())
            return
        del self._unsent[:sent]

    def _read_engine(self) -> None:
        if self._link is None:
            return
        try:
            chunk = self._link.recv(wire.READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            chunk = b""
        now = time.monotonic()
        if not chunk:
            self._lost(now)
            return
        self._heard_at, self._asked_at = now, None
        self._heard += chunk
        for line in wire.split_lines(self._heard):
            if line.startswith(wire.PRIVATE):
                if self._private(line, now):
                    return
            elif (answer := self.relay.from_engine(line)) is not None:
                self._fails = 0
                self._tell(answer)

    def _private(self, line: bytes, now: float) -> bool:
        """Act on a private line; return whether it ended the connection."""
        if line == wire.PONG:
            return False
        if line == wire.BYE:
            self._lost(now, orderly=True)
            return True
        if b'"retiring"' in line or self.relay.ready:
            self._lost(now, orderly=True)
            self._resting = False
            return True
        if b'"refused"' in line:
            self._refused(now, line)
            return True
        self._ready_at, self._started_at = now, None
        self._compare_versions(line)
        for waiting in self.relay.engine_ready():
            self._unsent += waiting
        self._send()
        return False

    def _compare_versions(self, line: bytes) -> None:
        """Print once what to do when the engine is of a newer memory-anchor; it serves this bridge all the same."""
        version = str(json.loads(line).get("version", ""))
        if self._told_version == version or not wire.is_newer(version, than=wire.VERSION):
            return
        self._told_version = version
        self._note(
            f"the engine is version {version} and this bridge {wire.VERSION}; it works, but restart this client to use "
            "the newer one. If this comes again, run `memory-anchor install CLIENT` with the newer memory-anchor"
        )

    def _refused(self, now: float, line: bytes) -> None:
        reason = str(json.loads(line).get("refused"))
        self._lost(now, orderly=True)
        self._note(reason)
        self._give_up(now, reason)

    def _read_agent(self, wait_s: float | None) -> None:
        if wait_s is not None and not select.select([self._source], [], [], wait_s)[0]:
            return
        source = self._source
        chunk = os.read(source, wire.READ_BYTES) if isinstance(source, int) else source.recv(wire.READ_BYTES)
        if not chunk:
            self._closed_at = time.monotonic()
            return
        self._typed += chunk
        for line in wire.split_lines(self._typed):
            if self._skipping:
                self._skipping = False
            elif line.strip():
                self._from_agent(line)
        if len(self._typed) > wire.MAX_LINE_BYTES:
            self._typed.clear()
            if not self._skipping:
                self._tell(error_line(None, INVALID_REQUEST, f"a line is longer than {wire.MAX_LINE_BYTES} bytes"))
            self._skipping = True

    def _from_agent(self, line: bytes) -> None:
        if not self.relay.waiting:
            self._heard_at = time.monotonic()  # silence counts from the request, not from the last answer
        onward, back = self.relay.from_client(line)
        if back is not None:
            self._tell(back)
        if onward is not None:
            idle = not self._unsent
            self._unsent += onward
            if idle:
                self._send()

    def _answer_from_file(self) -> None:
        if self.relay.waiting and self.relay.handshake is None and not self._read_file:
            self._read_file = True
            self.relay.handshake = handshake.load(self.data, self.preamble)
        self._tell_all(self.relay.from_handshake())

    def _fail(self, lines: Sequence[bytes]) -> None:
        """Pass on the errors for requests that no engine answers."""
        self._failed_last |= bool(lines) and self._closed_at is not None
        self._tell_all(lines)

    def _tell_all(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            self._tell(line)

    def _tell(self, line: bytes) -> None:
        view = memoryview(line)
        while view:
            view = view[os.write(self._sink, view) :]

    def _note(self, text: str) -> None:
        print(f"memory-anchor: {text}", file=sys.stderr, flush=True)


def _pid(state: Record) -> int:
    pid = state.get("pid")
    return pid if isinstance(pid, int) else 0


def arguments(argv: Sequence[str]) -> dict[str, str]:
    """Return the environment variables that the options of `memory-anchor mcp` set.

    Raises ValueError: an option that does not exist, or one without its value.
    """
    variables: dict[str, str] = {}
    remaining = list(argv)
    while remaining:
        name, equals, value = remaining.pop(0).partition("=")
        if name == "--read-only" and not equals:
            variables["MEMORY_ANCHOR_READ_ONLY"] = "true"
        elif name == "--no-memory" and not equals:
            variables[wire.NO_MEMORY_NAME] = "true"
        elif name in OPTIONS and (equals or remaining):
            variables[OPTIONS[name]] = value if equals else remaining.pop(0)
        else:
            options = ", ".join(["--read-only", "--no-memory", *OPTIONS, "--in-process", "--transport"])
            raise ValueError(f"option {name!r} of `memory-anchor mcp` is unknown or lacks its value; known: {options}")
    return variables


def main(argv: Sequence[str], *, engine: Sequence[str] | None = None) -> int:
    """Run the bridge on this process's stdin and stdout; return the exit code."""
    nonce = os.urandom(8).hex()
    try:
        os.environ.update(arguments(argv))
        if unknown := env_names.unknown_setting(os.environ):
            raise ValueError(unknown)
        preamble = wire.process_preamble(os.environ, cwd=wire.working_folder(), pid=os.getpid(), nonce=nonce)
    except ValueError as error:
        print(f"memory-anchor: {error}", file=sys.stderr)
        return 2
    os.umask(0o077)
    sink = os.dup(1)
    os.dup2(2, 1)
    data = wire.data_dir(os.environ)
    _note_environment(data, preamble.project_dir)
    bridge = Bridge(data, preamble, source=_selectable_stdin(), sink=sink, engine=engine)
    try:
        return bridge.run()
    except (KeyboardInterrupt, BrokenPipeError):
        return 130


def _note_environment(data: str, project: str) -> None:
    """Note this project's settings."""
    with suppress(OSError):  # starting the engine meets the same error and reports it
        environment.remember(os.environ, data, project)


def _selectable_stdin() -> int | socket.socket:
    """Return stdin as something that `select` can wait on; Windows only waits on sockets, so a thread copies."""
    if sys.platform == "win32":
        import threading

        ours, theirs = socket.socketpair()

        def copy() -> None:
            while chunk := os.read(0, wire.READ_BYTES):
                theirs.sendall(chunk)
            theirs.close()

        threading.Thread(target=copy, daemon=True).start()
        return ours
    return 0
