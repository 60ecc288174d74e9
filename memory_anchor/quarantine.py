"""Texts over which the engine died twice: set aside, so that no restart meets them again.

While a text is read into what searches need, or embedded, a marker file says so. A process that dies leaves its markers
behind, and the next one counts them: what was alone under a marker had a death of its own, what stood among others is
taken alone next time. After `DEATHS` a text is left out, and `doctor` names it. A new version of Memory Anchor, or
taking the record away, gives it another chance.

A marker is a small file, made and removed in some 60 us. It outlives its process without being synced; a power cut is
no fault of a text. Rejected: catching the death, because SIGKILL and a crash below Python cannot be caught; a count in
the memory, because writing it is work on that very memory. Only whoever holds the store's lock counts and marks.
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

from memory_anchor.files import write_atomic
from memory_anchor.hashing import stable_hash

FOLDER = "quarantine"
RECORD = "set_aside.json"
MARKER = ".reading"
DEATHS = 2
KEY_DIGITS = 32
RECORD_BYTES_MAX = 1 << 20
MARKERS_MAX = 1_000
"""Markers of one death that are counted; a process has a handful of threads."""
Item = TypeVar("Item")


class Suspect(NamedTuple):
    """A text by what a human knows it by, how often a process died over it, and what it did with it the last time."""

    name: str
    deaths: int
    step: str

    @property
    def is_quarantined(self) -> bool:
        return self.deaths >= DEATHS


def text_key(text: str) -> str:
    """Return what a text is known by here: no word of it."""
    return stable_hash(text)[:KEY_DIGITS]


def suspects_of(folder: Path) -> dict[str, Suspect]:
    """Return the suspects of a data folder by their keys; an unreadable record is none. Reads only."""
    return _record(folder / FOLDER / RECORD)[1]


def findings(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield a sentence for each text of a data folder that is left out, and what tries it once more."""
    cure = f"memory-anchor engine stop && rm {shlex.quote(str(folder / FOLDER / RECORD))} tries it once more"
    for suspect in suspects_of(folder).values():
        if suspect.is_quarantined:
            yield (
                f"the engine ended {suspect.deaths} times while it read {suspect.name}, which searches leave out",
                cure,
            )


class Quarantine:
    """Thread-safe. folder: the data folder; None: nothing is marked, nothing is aside.

    release: of this program. run: what no other process was called, since process ids come again.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        release: str = "",
        run: str = "",
        known: Mapping[str, Suspect] | None = None,
    ) -> None:
        self._folder = folder / FOLDER if folder else None
        self._release = release
        self._lock = threading.Lock()
        self._numbers, self._run = count(), run
        self._own: set[Path] = set()
        self._suspects = dict(known or {})
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._count(self._folder)

    def _count(self, folder: Path) -> None:
        """Take the markers of processes that died into account, each once, also where this one dies meanwhile."""
        release, suspects, counted = _record(folder / RECORD)
        self._suspects = suspects if release == self._release else {}
        markers = sorted(folder.glob(f"*{MARKER}"))[:MARKERS_MAX]
        fresh = [marker for marker in markers if marker.name not in counted]
        for marker in fresh:
            step, items = _marked(marker)
            for key, name in items.items():
                before = self._suspects[key].deaths if key in self._suspects else 0
                self._suspects[key] = Suspect(name, before + 1 if len(items) == 1 else max(before, 1), step)
        if fresh or suspects != self._suspects:
            self._keep([marker.name for marker in markers])
        for marker in markers:
            marker.unlink(missing_ok=True)

    def _keep(self, counted: Sequence[str] = ()) -> None:
        if self._folder is not None:
            content = {"release": self._release, "items": self._suspects, "counted": list(counted)}
            write_atomic(self._folder / RECORD, json.dumps(content).encode())

    def is_quarantined(self, text: str) -> bool:
        """Return whether a text is left out; where nothing is suspected this costs nothing."""
        if not self._suspects:
            return False
        suspect = self._suspects.get(text_key(text))
        return suspect is not None and suspect.is_quarantined

    def rename(self, text: str, name: str) -> None:
        """Call a text that is left out by the name it was stored under; what died while it was stored had none."""
        key = text_key(text)
        with self._lock:
            if (suspect := self._suspects.get(key)) and suspect.name != name:
                self._suspects[key] = suspect._replace(name=name)
                self._keep()

    def count_quarantined(self) -> int:
        """Return how many texts are left out."""
        return sum(suspect.is_quarantined for suspect in self._suspects.values())

    def safe_groups(self, items: Iterable[Item], text: Callable[[Item], str]) -> list[list[Item]]:
        """Return what may be read, in groups: all that nothing speaks against together, each suspect alone."""
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
        """Mark texts (name -> text) for as long as the block runs.

        step: what is done with them; a suspect that comes through the step it was suspected for is none any more.
        """
        if self._folder is None or not texts:
            yield
            return
        keys = {text_key(text): name for name, text in texts.items()}
        marker = self._folder / f"{os.getpid()}-{self._run}-{next(self._numbers)}{MARKER}"
        self._own.add(marker)
        with contextlib.suppress(OSError):  # a full disk must not keep anything from being read
            marker.write_bytes(json.dumps({"step": step, "texts": keys}).encode())
        try:
            yield
        finally:
            self._own.discard(marker)
            with contextlib.suppress(OSError):
                marker.unlink(missing_ok=True)
        if any(key in self._suspects and self._suspects[key].step == step for key in keys if self._suspects):
            with self._lock:
                cleared = {key for key in keys if key in self._suspects and self._suspects[key].step == step}
                self._suspects = {key: one for key, one in self._suspects.items() if key not in cleared}
                self._keep()

    def close(self) -> None:
        """Take this process's markers away: it ends in order, and a thread it leaves in the middle is no suspect."""
        for marker in list(self._own):
            with contextlib.suppress(OSError):
                marker.unlink(missing_ok=True)


def _marked(marker: Path) -> tuple[str, dict[str, str]]:
    """Return what was done with which texts (key -> name)."""
    try:
        found = json.loads(marker.read_bytes()[:RECORD_BYTES_MAX])
        return str(found["step"]), {str(key): str(name) for key, name in found["texts"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # cut off: nothing had been read yet
        return "", {}


def _record(path: Path) -> tuple[str, dict[str, Suspect], frozenset[str]]:
    """Return the release that wrote a record, its suspects, and the markers that it counts already."""
    try:
        found = json.loads(path.read_bytes()[:RECORD_BYTES_MAX])
        items = found["items"].items()
        suspects = {str(key): Suspect(str(name), int(deaths), str(step)) for key, (name, deaths, step) in items}
        return str(found["release"]), suspects, frozenset(map(str, found["counted"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "", {}, frozenset()
