"""The one process that owns a data directory. Light until it holds the lock.

Order matters: detach, take the OS lock, listen, write the state file, and only then import what is heavy (1.3 s): of
six engines started at once five are gone after 30 ms, and a bridge connects while the winner is still loading.
The serving is in `service`; what is served is a `Backend`, the memory in production and a small lab in tests.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import time
from pathlib import Path

from memory_anchor.base.installation import lacking
from memory_anchor.base.json_values import whole
from memory_anchor.domain.errors import MemoryAnchorError, StoreBusy, Unavailable
from memory_anchor.runtime import environment, launch, wire
from memory_anchor.runtime.listening import tcp_listener
from memory_anchor.runtime.lock import DirectoryLock, in_use
from memory_anchor.runtime.state_file import StateFile, write_failure
from memory_anchor.runtime.threads import one_for_algebra

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType
    from typing import TypeVar

    from memory_anchor.base.json_values import Json, Record
    from memory_anchor.runtime.service import Backend

    B = TypeVar("B", bound=Backend)

ROLE = "engine"
SERVER = "HTTP server"
"""A server that is the engine as well: an engine hands over to it, it to nobody."""
CLAIM_FILE = "run/server.lock"
"""Locked by a server from before it waits for the data directory until it ends, so that no engine starts meanwhile."""
CLAIM_TRIES = 100
"""An engine locks it for an instant, to see whether a server does."""
SOCKET_FILE = "engine.sock"
BACKLOG = 128
LOCK_WAIT_S = 30.0
"""How long a new engine waits for one that is draining; for any other holder it does not wait."""
LOCK_PAUSE_S = 0.05
HAND_OVER_PAUSE_S = 0.01
LOG_FILE = "engine.log"
LOG_BYTES, LOGS_KEPT = 1_000_000, 3
START_WAIT_S = 30.0
STOP_WAIT_S = 30.0
STOP_ASK_S = 5.0
STATUS_WAIT_S = 10.0
"""A live engine answers at once, whatever it works on: this is for a machine under load."""
KILL_WAIT_S = 3.0
SWITCH_S = 0.0005
"""A request passes between some five threads and waits this long for each that computes (Python's default: 5 ms)."""


def main(make_backend: Callable[[DirectoryLock], Backend], *, detach: bool = True) -> int:
    """Serve until idle, told to stop, or replaced; return the exit code. Another engine's presence is no failure.

    make_backend: builds what is served once the lock is held; what is heavy is imported there.
    """
    data = Path(wire.data_dir(os.environ))
    os.umask(0o077)
    run = Path(wire.run_dir(str(data)))
    try:
        if detach and hasattr(os, "fork") and os.fork():
            os._exit(0)  # the parent: the bridge reaps it, and the engine is nobody's child
        lock = lock_for_engine(data)
    except (MemoryAnchorError, OSError) as error:
        write_failure(run, error)
        return 1
    if lock is None:
        return 0
    with lock:
        try:
            listener, address = listen(run)
        except OSError as error:
            write_failure(run, error)
            return 1
        state_file = StateFile(run, address, took=environment.digests(environment.engine_settings(os.environ)))
        state_file.publish("loading")
        try:
            _log_to(data / "logs")
            sys.setswitchinterval(SWITCH_S)
            one_for_algebra()
            gc.disable()  # importing makes a million lasting objects: collecting among them costs 7 % of a cold start
            from memory_anchor.runtime import service

            service.run(lambda: make_backend(lock), data=data, listener=listener, state_file=state_file)
        except MemoryAnchorError:
            return 1  # its reason is in the failure file
        except Exception as error:
            write_failure(run, error)  # also of what could not be imported
            raise
        finally:
            listener.close()
            state_file.remove()
        return 0


@contextlib.contextmanager
def serve_in_thread(
    lock: DirectoryLock, make_backend: Callable[[], B], *, when_ended: Callable[[], None] | None = None
) -> Iterator[B]:
    """Serve bridges, hooks and commands from a thread of this process while the block runs, as an engine would.

    lock: taken as `ROLE`. make_backend: builds what is served, after the socket listens, so that bridges wait for it;
    closed on leaving. when_ended: called when the engine ends first (`engine stop`); without it this process gets a
    SIGTERM then, and the block must be in the main thread.
    Raises OSError: no socket can be had. Raises what `make_backend` raises.
    """
    import threading
    from concurrent.futures import Future

    import anyio

    from memory_anchor.runtime.service import Service

    backend: Future[B] = Future()

    def build() -> B:
        backend.set_result(make_backend())
        return backend.result()

    run = Path(wire.run_dir(str(lock.directory)))
    listener, address = listen(run)
    state_file = StateFile(run, address)
    state_file.publish("loading")
    service = Service(build, data=lock.directory, listener=listener, state_file=state_file)
    leaving = threading.Event()

    def serve() -> None:
        try:
            anyio.run(service.serve)
        except Exception as error:
            if backend.done():
                raise
            backend.set_exception(error)
            return
        finally:
            if backend.done() and not backend.exception() and not leaving.is_set():
                (when_ended or _terminate)()

    thread = threading.Thread(target=serve, name="engine", daemon=True)
    old_handler = signal.signal(signal.SIGTERM, _exit_on_signal) if when_ended is None else None
    thread.start()
    try:
        yield backend.result()
    finally:
        leaving.set()
        service.end("the server ends")
        thread.join(STOP_WAIT_S)
        if backend.done() and not backend.exception():
            backend.result().close()
        listener.close()
        state_file.remove()
        if when_ended is None:
            signal.signal(signal.SIGTERM, old_handler)


def _terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _exit_on_signal(number: int, _: FrameType | None) -> None:
    # A web server restores the handler it found and raises the signal again: ours unwinds, the default one would not.
    raise SystemExit(128 + number)


def lock_for_engine(data: Path) -> DirectoryLock | None:
    """Return the lock, or None when another engine serves, or a server does or is about to.

    Raises StoreBusy: something that is no engine holds it. Raises Refused, DiskFull, Unavailable: see `lock`.
    """
    until = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            if not _is_claimed(data):
                return DirectoryLock.acquire(data, role=ROLE)
        except StoreBusy as error:
            if not error.is_held_by(ROLE):
                raise
        state = wire.read_state(str(data)) or {}
        if state.get("state") != "draining" or time.monotonic() > until:
            return None
        time.sleep(LOCK_PAUSE_S)


@contextlib.contextmanager
def take_over_lock(data: Path, *, wait_s: float = LOCK_WAIT_S) -> Iterator[DirectoryLock]:
    """Hold the lock for a server that is the engine as well; a running engine is asked to hand over.

    That one answers the requests in progress and ends; its bridges wait for the server and resend the rest.
    Raises StoreBusy: another server, or something that is no engine, holds it, or the engine keeps it for `wait_s`.
    """
    with _claim(data), _handed_over(data, wait_s) as lock:
        yield lock


def _claim(data: Path) -> DirectoryLock:
    wire.run_dir(str(data))
    for _ in range(CLAIM_TRIES):
        try:
            return DirectoryLock.acquire(data, role=SERVER, file=CLAIM_FILE)
        except StoreBusy as error:
            busy = error
        if busy.is_held_by(SERVER):
            break
        time.sleep(HAND_OVER_PAUSE_S)
    raise StoreBusy(
        f"{in_use(data, busy.holder)}; nothing was changed. Use the address it printed, or end it with "
        "`memory-anchor engine stop` and try again. Several servers of one memory need PostgreSQL (`database.url`) and "
        "a `data_dir` each.",
        busy.holder,
    ) from busy


def _is_claimed(data: Path) -> bool:
    """Return whether a server holds the data directory, or waits for an engine to hand it over."""
    if not (data / CLAIM_FILE).exists():
        return False
    try:
        DirectoryLock.acquire(data, role=ROLE, file=CLAIM_FILE).release()
    except StoreBusy as error:
        return error.is_held_by(SERVER)
    return False


def _handed_over(data: Path, wait_s: float) -> DirectoryLock:
    until = time.monotonic() + wait_s
    requests: list[tuple[Json, Json]] = []
    while True:
        try:
            return DirectoryLock.acquire(data, role=ROLE)
        except StoreBusy as error:
            busy = error
        late = time.monotonic() > until
        if not busy.is_held_by(ROLE) and (late or not requests):
            raise busy
        if late:
            raise StoreBusy(
                f"{in_use(data, busy.holder)} and was not handed over within {wait_s:g} s; nothing was changed. "
                "Run `memory-anchor engine stop`, then try again.",
                busy.holder,
            ) from busy
        state = wire.read_state(str(data)) or {}
        engine = (state.get("pid"), state.get("started_at"))
        if engine not in requests and busy.holder is not None and busy.holder.pid == engine[0]:
            with contextlib.suppress(OSError):  # it may be about to listen, or ending already
                wire.ask(str(data), "stop", wire.Preamble(), timeout_s=min(wait_s, STOP_ASK_S))
                requests.append(engine)
        time.sleep(HAND_OVER_PAUSE_S)


def listen(run: Path) -> tuple[socket.socket, Record]:
    """Return a listening socket and the address to publish. Raises OSError: none can be had.

    A Unix socket where there are any, else a loopback port with a random token, which every greeting must repeat.
    """
    if hasattr(socket, "AF_UNIX") and sys.platform != "win32" and os.environ.get("ANCHOR_WIRE") != "tcp":
        path = socket_path(run)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(BACKLOG)
        return listener, {"unix": str(path)}
    listener = tcp_listener("127.0.0.1", 0, backlog=BACKLOG)
    return listener, {"tcp": listener.getsockname()[1], "token": os.urandom(32).hex()}


def socket_path(run: Path) -> Path:
    """Return where the socket goes: the 0700 folder `run`, or one in /tmp when that path is too long for the kernel.

    Raises PermissionError: the one in /tmp is not ours alone.
    """
    path = run / SOCKET_FILE
    if len(os.fsencode(path)) <= wire.MAX_SOCKET_PATH_BYTES:
        return path
    import hashlib

    folder = Path("/tmp") / f"memory-anchor-{os.getuid()}"  # noqa: S108 - checked below; TMPDIR may be long as well
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if folder.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(13, "the folder for the engine's socket is not private", str(folder))
    return folder / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.sock"


def _log_to(folder: Path) -> None:
    import faulthandler
    import logging
    from logging.handlers import RotatingFileHandler

    from memory_anchor.runtime.cleanlog import CleanFormatter

    folder.mkdir(mode=0o700, exist_ok=True)
    handler = RotatingFileHandler(folder / LOG_FILE, maxBytes=LOG_BYTES, backupCount=LOGS_KEPT, encoding="utf-8")
    handler.setFormatter(CleanFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    with contextlib.suppress(OSError, ValueError):  # stderr may be closed
        faulthandler.enable()


# --- for the command line ----------------------------------------------------------------------------------------


def status(data: Path, *, timeout_s: float = STATUS_WAIT_S) -> Record | None:
    """Return the running engine's status: pid, version, state, uptime_s, bridges; None when none runs.

    Raises Unavailable: one listens and does not answer, as when it was suspended or hangs.
    """
    try:
        return wire.ask(str(data), "status", wire.Preamble(), timeout_s=timeout_s)
    except (TimeoutError, BlockingIOError):  # the latter: its queue of connections is full
        pid = (wire.read_state(str(data)) or {}).get("pid", "unknown")
        raise Unavailable(
            f"the engine (pid {pid}) does not answer; `memory-anchor engine stop` ends it, and the next command or "
            "agent starts another. What was answered is stored."
        ) from None
    except OSError:
        return None


def start(data: Path, env: Mapping[str, str], *, wait_s: float = START_WAIT_S) -> bool:
    """Start an engine and return whether none ran, once it listens. Raises Unavailable: it does not start."""
    if status(data) is not None:
        return False
    began = time.time()
    try:
        launch.start(str(data), env)
    except OSError as error:
        raise Unavailable(f"the engine cannot be started: {error.strerror} ({error.filename})") from error
    until = time.monotonic() + wait_s
    while status(data) is None:
        late = f"not within {wait_s:g} s; see {data}/logs" if time.monotonic() > until else ""
        if reason := launch.failure(str(data), after=began)[0] or (late and lacking()) or late:
            raise Unavailable(f"the engine did not start: {reason}")
        time.sleep(LOCK_PAUSE_S)
    launch.reap()
    return True


def stop(data: Path, *, wait_s: float = STOP_WAIT_S) -> bool:
    """Stop the engine and return whether one ran; requests in progress are answered first.

    An engine that hangs is killed after `wait_s`: an answered write is durable, so nothing is lost. A process is only
    killed while it holds the data directory, since its pid may be another's by now.
    Raises Unavailable: it could not be ended.
    """
    until = time.monotonic() + wait_s
    state = wire.read_state(str(data))
    try:
        wire.ask(str(data), "stop", wire.Preamble(), timeout_s=min(wait_s, STOP_ASK_S))
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    except OSError:
        pass  # it runs and does not answer: the wait below decides
    pid = whole((state or {}).get("pid"), 0)
    while time.monotonic() < until:
        if (wire.read_state(str(data)) or {}).get("pid") != pid:
            return True
        time.sleep(LOCK_PAUSE_S)
    if pid > 1 and _holds(data, pid):
        with contextlib.suppress(OSError):
            os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        until = time.monotonic() + KILL_WAIT_S
        while _holds(data, pid):
            if time.monotonic() > until:
                raise Unavailable(f"the engine (pid {pid}) could not be ended; end that process, then try again")
            time.sleep(LOCK_PAUSE_S)
    return True


def _holds(data: Path, pid: int) -> bool:
    try:
        DirectoryLock.acquire(data, role="command").release()
    except StoreBusy as error:
        return error.holder is not None and error.holder.pid == pid
    return False
