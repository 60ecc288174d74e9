"""What a hook could not deliver, kept on disk until an engine takes it in. Standard library only.

Kept is what the memory reads of a hook and nothing else that the client sent along; what was said is cleaned first, by
the rules of every write, so that no secret waits on disk. One 0600 file a hook under `spool/`, named by time so that
they are taken in the order they happened. Delivery is at least once: the file goes away after the engine has stored
what it holds, and the preamble's nonce makes a second taking-in harmless.
"""

from __future__ import annotations

import os
import time

from memory_anchor.json_values import parsed, record
from memory_anchor.runtime import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from memory_anchor.json_values import Json, Record

FOLDER = "spool"
MAX_FILES = 1000
MAX_BYTES = 4 << 20
KEPT_DAYS = 7
DAY_NS = 86_400_000_000_000
NAME_DIGITS = 20
TEXTS = ("compact_summary", "summary")
"""What was said; the other fields name things."""
CLEANED = (*TEXTS, "source")
PATH = "transcript_path"
"""Stays as it is, or the transcript would not be found; one that holds a secret is left out."""
FIELDS = (*TEXTS, "source", "stop_hook_active", "transcript_path")
"""What `memory_anchor.hooks` reads of the events that are spooled."""


class SpooledHook:
    """One hook that waits on disk."""

    def __init__(self, path: str, preamble: wire.Preamble, event: str, payload: Record) -> None:
        self.path, self.preamble, self.event, self.payload = path, preamble, event, payload

    def failed(self) -> None:
        """Leave the file for the next time; one that has failed for `KEPT_DAYS` is set aside as `.bad`."""
        name = os.path.basename(self.path)[:NAME_DIGITS]  # noqa: PTH119
        if not name.isdigit() or time.time_ns() - int(name) > KEPT_DAYS * DAY_NS:
            _set_aside(self.path)

    def remove(self) -> None:
        """Take the file away: what it held is stored."""
        _remove(self.path)


def keep(data: str, preamble: wire.Preamble, event: str, payload: Record) -> bool:
    """Write one hook to disk; return whether there was room (at most `MAX_FILES` of `MAX_BYTES`). Raises OSError."""
    kept = {name: _cleaned(payload[name]) if name in CLEANED else payload[name] for name in FIELDS if name in payload}
    if PATH in kept and _cleaned(kept[PATH]) != kept[PATH]:
        del kept[PATH]
    folder = os.path.join(data, FOLDER)  # noqa: PTH118
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    wire.sync_folder(data)
    raw = wire.line_of({"preamble": preamble.to_json(), "event": event, "payload": kept})
    if len(raw) > MAX_BYTES or len(os.listdir(folder)) >= MAX_FILES:  # noqa: PTH208
        return False
    name = f"{time.time_ns():020d}-{os.getpid()}.json"
    wire.write_private(os.path.join(folder, name), raw.decode())  # noqa: PTH118
    return True


def _cleaned(said: Json) -> str:
    if not said:
        return ""
    from memory_anchor.language.safety import cleaned  # 50 ms, where no agent waits any more

    return cleaned(str(said)).text


def waiting(data: Path) -> Iterator[SpooledHook]:
    """Yield the spooled hooks, oldest first; a file that cannot be understood is set aside as `.bad`."""
    folder = os.path.join(data, FOLDER)  # noqa: PTH118
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))  # noqa: PTH208
    except FileNotFoundError:
        return
    for name in names:
        path = os.path.join(folder, name)  # noqa: PTH118
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                kept = record(parsed(file.read(MAX_BYTES + 1)))
            preamble = wire.Preamble.from_json(kept["preamble"])
            event, payload = str(kept["event"]), record(kept["payload"])
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, RecursionError):
            _set_aside(path)
            continue
        yield SpooledHook(path, preamble, event, payload)


def _set_aside(path: str) -> None:
    try:
        os.replace(path, f"{path[:-5]}.bad")  # noqa: PTH105
    except FileNotFoundError:
        return


def _remove(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108
    except FileNotFoundError:
        return
