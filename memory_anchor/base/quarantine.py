"""Quarantine: texts that crashed the engine twice are left out, so that no restart processes them again.

While a text is indexed or embedded, a marker file names it. A process that dies leaves its markers, and the next one
counts them: a text alone in its marker is charged with the crash, texts that share a marker are processed alone next
time. After `DEATHS` crashes a text is left out, and `doctor` names it. A new version of Memory Anchor, or removing the
record, gives it another chance.

A marker is a small file, made and removed in some 60 us. It outlives its process without being synced; a power cut is
no fault of a text. Rejected: catching the crash, because SIGKILL and a crash below Python cannot be caught; a count in
the memory, because writing it is work on that very memory. Only the holder of the store's lock counts and marks.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple, TypeVar

from memory_anchor.base.files import write_atomic
from memory_anchor.base.hashing import stable_hash
from memory_anchor.domain.errors import MemoryAnchorError

FOLDER = "quarantine"
RECORD = "set_aside.json"
MARKER = ".reading"
DEATHS = 2
KEY_DIGITS = 32
RECORD_BYTES_MAX = 1 << 20
MARKERS_MAX = 1_000
"""Markers of one crash that are counted; a process has a handful of threads."""
Item = TypeVar("Item")


class Suspect(NamedTuple):
    """A text that may crash the engine. name: for humans. step: what was done with it at the last crash."""

    name: str
    deaths: int
    step: str

    @property
    def is_quarantined(self) -> bool:
        return self.deaths >= DEATHS


def text_key(text: str) -> str:
    """Return the key of a text in the record, which holds no word of it."""
    return stable_hash(text)[:KEY_DIGITS]


def suspects_of(folder: Path) -> dict[str, Suspect]:
    """Return the suspects of a data folder by their keys, none where the record cannot be read. Reads only."""
    return _read_record(folder / FOLDER / RECORD)[1]


def findings(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield a sentence for each quarantined text of a data folder, and the command that tries it once more."""
    cure = f"memory-anchor engine stop && rm {shlex.quote(str(folder / FOLDER / RECORD))} tries it once more"
    for suspect in suspects_of(folder).values():
        if suspect.is_quarantined:
            yield (
                f"the engine ended {suspect.deaths} times while it read {suspect.name}, which is left out",
                cure,
            )


class Quarantine:
    """Thread-safe. folder: the data folder; None: nothing is marked or quarantined.

    release: of this program. run: unique to this process, since process ids are reused.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        release: str = "",
        run: str = "",
        suspects: Mapping[str, Suspect] | None = None,
    ) -> None:
        self._folder = folder / FOLDER if folder else None
        self._release = release
        self._lock = threading.Lock()
        self._numbers, self._run = count(), run
        self._markers: set[Path] = set()
        self._suspects = dict(suspects or {})
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._count(self._folder)

    def _count(self, folder: Path) -> None:
        """Count the markers of dead processes, each once, even if this process dies meanwhile."""
        release, suspects, counted = _read_record(folder / RECORD)
        self._suspects = suspects if release == self._release else {}
        markers = sorted(folder.glob(f"*{MARKER}"))[:MARKERS_MAX]
        new = [marker for marker in markers if marker.name not in counted]
        for marker in new:
            step, names = _read_marker(marker)
            for key, name in names.items():
                before = self._suspects[key].deaths if key in self._suspects else 0
                self._suspects[key] = Suspect(name, before + 1 if len(names) == 1 else max(before, 1), step)
        if new or suspects != self._suspects:
            self._save([marker.name for marker in markers])
        for marker in markers:
            marker.unlink(missing_ok=True)

    def _save(self, counted: Sequence[str] = ()) -> None:
        if self._folder is not None:
            content = {"release": self._release, "items": self._suspects, "counted": list(counted)}
            write_atomic(self._folder / RECORD, json.dumps(content).encode())

    def is_quarantined(self, text: str) -> bool:
        """Return whether a text is left out."""
        suspect = self._suspects.get(text_key(text)) if self._suspects else None
        return suspect is not None and suspect.is_quarantined

    def rename(self, text: str, name: str) -> None:
        """Record the name a quarantined text was stored under; one that crashed while it was stored had none yet."""
        key = text_key(text)
        with self._lock:
            if (suspect := self._suspects.get(key)) and suspect.name != name:
                self._suspects[key] = suspect._replace(name=name)
                self._save()

    def deaths(self, text: str) -> int:
        """Return how many deaths a text is charged with."""
        suspect = self._suspects.get(text_key(text))
        return suspect.deaths if suspect is not None else 0

    def charge(self, name: str, text: str, deaths: int, *, step: str = "") -> None:
        """Set how many deaths a text is charged with: it survived, but nobody would have waited. 0: try it again."""
        key = text_key(text)
        with self._lock:
            others = {other: suspect for other, suspect in self._suspects.items() if other != key}
            suspects = others | ({key: Suspect(name, deaths, step)} if deaths else {})
            if suspects != self._suspects:
                self._suspects = suspects
                self._save()

    def count_quarantined(self) -> int:
        """Return how many texts are quarantined."""
        return sum(suspect.is_quarantined for suspect in self._suspects.values())

    def safe_groups(self, items: Iterable[Item], text: Callable[[Item], str]) -> list[list[Item]]:
        """Return what may be read, in groups: all without suspicion together, each suspect alone."""
        if not self._suspects:
            return [group] if (group := list(items)) else []
        clear: list[Item] = []
        alone: list[list[Item]] = []
        for item in items:
            suspect = self._suspects.get(text_key(text(item)))
            if suspect is None:
                clear.append(item)
            elif not suspect.is_quarantined:
                alone.append([item])
        return [clear, *alone] if clear else alone

    @contextlib.contextmanager
    def reading(self, texts: Mapping[str, str], *, step: str = "") -> Iterator[None]:
        """Mark texts (name -> text) while the block runs.

        step: what is done with them; a suspect that survives the step it was suspected for is cleared.
        """
        if self._folder is None or not texts:
            yield
            return
        keys = {text_key(text): name for name, text in texts.items()}
        marker = self._folder / f"{os.getpid()}-{self._run}-{next(self._numbers)}{MARKER}"
        self._markers.add(marker)
        with contextlib.suppress(OSError):  # a full disk must not keep anything from being read
            marker.write_bytes(json.dumps({"step": step, "texts": keys}).encode())
        try:
            yield
        finally:
            self._markers.discard(marker)
            with contextlib.suppress(OSError):
                marker.unlink(missing_ok=True)
        with self._lock:
            if cleared := {key for key in keys if key in self._suspects and self._suspects[key].step == step}:
                self._suspects = {key: suspect for key, suspect in self._suspects.items() if key not in cleared}
                with contextlib.suppress(MemoryAnchorError):  # a full disk, again: the texts were read
                    self._save()

    def close(self) -> None:
        """Remove this process's markers: after an orderly end, a text still being read is no suspect."""
        for marker in list(self._markers):
            with contextlib.suppress(OSError):
                marker.unlink(missing_ok=True)


def _read_marker(path: Path) -> tuple[str, dict[str, str]]:
    """Return the step of a marker and its texts (key -> name)."""
    try:
        marker = json.loads(path.read_bytes()[:RECORD_BYTES_MAX])
        return str(marker["step"]), {str(key): str(name) for key, name in marker["texts"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # incomplete: nothing had been read yet
        return "", {}


def _read_record(path: Path) -> tuple[str, dict[str, Suspect], frozenset[str]]:
    """Return the release that wrote a record, its suspects, and the markers that it counted already."""
    try:
        record = json.loads(path.read_bytes()[:RECORD_BYTES_MAX])
        items = record["items"].items()
        suspects = {str(key): Suspect(str(name), int(deaths), str(step)) for key, (name, deaths, step) in items}
        return str(record["release"]), suspects, frozenset(map(str, record["counted"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "", {}, frozenset()
