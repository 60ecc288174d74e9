"""Writes that wait to be sent: one small file each, on disk before the caller is answered, gone when the server has it.

A file is named after its place in the order and holds the path, the body and its `request_id`, which the server takes
once: a file that was sent and not removed (a kill) is harmless when it is sent again. What a server refuses for good is
set aside with its sentence, never dropped.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from memory_anchor.errors import BadInput, NotFound, Refused, Unavailable
from memory_anchor.files import make_private, read_bounded, remove_durably, write_whole
from memory_anchor.json_values import Record, parsed, record, text
from memory_anchor.remote.link import Away, WrongKey

FOLDER, REFUSED = "remote/outbox", "remote/refused"
WAITING_MAX = 100_000
FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class WaitingWrite:
    """path: below /v1. local: the id that this memory has here."""

    path: str
    body: Record
    local: str = ""


class Outbox:
    """Thread-safe within one process, which the store's lock makes the only one."""

    def __init__(self, data_dir: Path, new_token: Callable[[], str]) -> None:
        self._folder = data_dir / FOLDER
        self._refused = data_dir / REFUSED
        self._new_token = new_token
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        there = self._files()
        self._last = max((int(path.stem) for path in there), default=0)
        self._waiting = len(there)

    def put(self, path: str, body: Record, *, local: str = "") -> None:
        """Keep a write, durable on return. Raises Unavailable: too many wait."""
        make_private(self._folder)
        with self._lock:
            if self._waiting >= WAITING_MAX:
                raise Unavailable(
                    f"{WAITING_MAX} writes wait for the server; they are kept, and no more is taken until it answers"
                )
            self._last += 1
            kept = WaitingWrite(path, {"request_id": f"outbox-{self._new_token()}", **body}, local)
            write_whole(self._folder / f"{self._last:012d}.json", json.dumps(asdict(kept), ensure_ascii=False).encode())
            self._waiting += 1

    def waiting(self) -> int:
        """Return how many writes wait; every search asks."""
        return self._waiting

    def send(
        self, ask: Callable[[str, Record], Record], arrived: Callable[[WaitingWrite, Record], None]
    ) -> tuple[int, str]:
        """Send what waits, in order, until the server is away; return how many went and why it stopped, "" at the end.

        arrived: told each answer before its file goes.
        """
        sent = 0
        with self._sending:
            for path in sorted(self._files()):
                try:
                    kept = _waiting_write(record(parsed(read_bounded(path, most_bytes=FILE_BYTES) or b"")))
                except (OSError, ValueError, KeyError) as error:
                    self._set_aside(path, f"it cannot be read ({type(error).__name__})")
                    continue
                try:
                    answer = ask(kept.path, kept.body)
                except (Away, WrongKey) as error:
                    return sent, str(error)
                except (BadInput, NotFound, Refused) as error:
                    self._set_aside(path, str(error))
                    continue
                arrived(kept, answer)
                self._remove(path)
                sent += 1
        return sent, ""

    def refused(self) -> int:
        return sum(1 for _ in self._refused.glob("*.json")) if self._refused.is_dir() else 0

    def _set_aside(self, path: Path, why: str) -> None:
        make_private(self._refused)
        content = read_bounded(path, most_bytes=FILE_BYTES) or b""
        write_whole(self._refused / path.name, content)
        write_whole(self._refused / f"{path.stem}.txt", why.encode())
        self._remove(path)

    def _remove(self, path: Path) -> None:
        remove_durably(path)
        with self._lock:
            self._waiting -= 1

    def _files(self) -> list[Path]:
        found = self._folder.glob("*.json") if self._folder.is_dir() else ()
        return [path for path in found if path.stem.isdigit()]


def _waiting_write(kept: Record) -> WaitingWrite:
    return WaitingWrite(text(kept["path"]), record(kept["body"]), text(kept.get("local"), ""))
