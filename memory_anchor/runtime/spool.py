"""Hooks that could not be delivered, kept on disk until an engine processes them. Standard library only.

Only the fields that are read are kept; texts are redacted first, as in every write, so that no secret is on disk. One
0600 file a hook under `spool/`, named by time so that they are processed in order. Delivery is at least once: the file
is deleted after the engine has stored its content, and the preamble's nonce makes a second delivery harmless.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from memory_anchor.base.json_values import parsed, record
from memory_anchor.runtime import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from memory_anchor.base.json_values import Json, Record

FOLDER = "spool"
MAX_FILES = 1000
MAX_BYTES = 4 << 20
KEPT_DAYS = 7
DAY_NS = 86_400_000_000_000
NAME_DIGITS = 20
TEXTS = ("compact_summary", "summary")
"""Fields with text; the others name things."""
CLEANED = (*TEXTS, "source")
PATH = "transcript_path"
"""Never changed, or the transcript would not be found; a path with a secret is left out."""
FIELDS = (*TEXTS, "source", "stop_hook_active", "transcript_path")
"""Fields that `memory_anchor.hooks.hooks` reads."""


class SpooledHook:
    """One hook that waits on disk."""

    def __init__(self, path: str, preamble: wire.Preamble, event: str, payload: Record) -> None:
        self.path, self.preamble, self.event, self.payload = path, preamble, event, payload

    def failed(self) -> None:
        """Keep the file for the next attempt; after `KEPT_DAYS` it is renamed to `.bad`."""
        name = os.path.basename(self.path)[:NAME_DIGITS]  # noqa: PTH119
        if not name.isdigit() or time.time_ns() - int(name) > KEPT_DAYS * DAY_NS:
            _rename_to_bad(self.path)

    def remove(self) -> None:
        """Delete the file: its content is stored."""
        with suppress(OSError):  # else it is processed once more, which its nonce makes harmless
            os.unlink(self.path)  # noqa: PTH108


def keep(data: str, preamble: wire.Preamble, event: str, payload: Record) -> bool:
    """Write one hook to disk; return whether there was room (at most `MAX_FILES` of `MAX_BYTES`). Raises OSError.

    Files that were renamed to `.bad` make room, the oldest first.
    """
    fields = {name: _cleaned(payload[name]) if name in CLEANED else payload[name] for name in FIELDS if name in payload}
    if PATH in fields and _cleaned(fields[PATH]) != fields[PATH]:
        del fields[PATH]
    folder = os.path.join(data, FOLDER)  # noqa: PTH118
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    wire.sync_folder(data)
    raw = wire.line_of({"preamble": preamble.to_json(), "event": _cleaned(event), "payload": fields})
    names = sorted(os.listdir(folder))  # noqa: PTH208
    bad = [name for name in names if name.endswith(".bad")]
    if len(raw) > MAX_BYTES or len(names) - len(bad) >= MAX_FILES:
        return False
    if bad and len(names) >= MAX_FILES:
        os.unlink(os.path.join(folder, bad[0]))  # noqa: PTH108, PTH118
    name = f"{time.time_ns():020d}-{os.getpid()}.json"
    wire.write_private(os.path.join(folder, name), raw.decode())  # noqa: PTH118
    return True


def _cleaned(text: Json) -> str:
    if not text:
        return ""
    from memory_anchor.language.safety import cleaned  # 50 ms, when no agent waits any more

    return cleaned(str(text)).text


def waiting(data: Path) -> Iterator[SpooledHook]:
    """Yield the spooled hooks, oldest first; an unreadable file is renamed to `.bad`."""
    folder = os.path.join(data, FOLDER)  # noqa: PTH118
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))  # noqa: PTH208
    except FileNotFoundError:
        return
    for name in names:
        path = os.path.join(folder, name)  # noqa: PTH118
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                stored = record(parsed(file.read(MAX_BYTES + 1)))
            preamble = wire.Preamble.from_json(stored["preamble"])
            event, payload = str(stored["event"]), record(stored["payload"])
        except OSError:  # gone, or not to be opened now
            continue
        except (ValueError, KeyError, RecursionError):
            _rename_to_bad(path)
            continue
        yield SpooledHook(path, preamble, event, payload)


def _rename_to_bad(path: str) -> None:
    with suppress(OSError):
        os.replace(path, f"{path[:-5]}.bad")  # noqa: PTH105
