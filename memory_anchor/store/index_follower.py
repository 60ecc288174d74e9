"""The thread that brings a search index after the store; nobody waits for it.

A session begins when many changes wait, something was erased, or after a minute's rest: the index is opened, what was
written since the watermark is applied, everything flushed, then the watermark is written into the store, and the index
is let go. So the watermark never says more than the index holds, and whatever ended a session early is applied again:
points are whole.

The index is compared with the store, id by id with what may move, where it may not hold what the watermark says: a
session did not end well, its files are not as the last one left them, or the machine was started since. One that cannot
be opened twice is made again; so is a collection of which something was erased where the engine keeps deleted text.

States of the index: complete, behind (it waits, there is too little space, or it failed: a note says why).
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_anchor.base.json_values import parsed, record, text, whole
from memory_anchor.domain.errors import MemoryAnchorError

if TYPE_CHECKING:
    from pathlib import Path

    from memory_anchor.domain.ports import EmbedderIdentity, SearchIndex
    from memory_anchor.store.point_source import PointSource

FOLLOWED = ("verified_fact", "event_log")
INDEX_OWNER_FILE = "index.owner"
"""In a data directory: by what an index on a server is known as this memory's; no backup carries it elsewhere."""
MANY, MANY_SHARE = 256, 100
"""Changes that begin a session at once: so many, and a hundredth of the store."""
REST_S = 60.0
LOOKS_AGAIN_S = 0.25
"""A look for each of many writes cost as much CPU as the writes did."""
LONGEST_BACK_OFF_S = 600.0
POINTS_AT_ONCE = 64
FAILED_TWICE = 2


@dataclass(frozen=True, slots=True)
class _Watermark:
    """at: everything up to this change is flushed. files: as the last session left them. is_open: one is running, or
    ended early. dimensions: of the vectors that the collections were made with."""

    at: int = 0
    files: str = ""
    is_open: bool = True
    dimensions: str = ""


@dataclass(frozen=True, slots=True)
class IndexState:
    """behind: changes that are not in the index yet. note: why, "" where it only waits for a rest."""

    behind: int
    note: str


class IndexFollower:
    """Thread-safe. start: begins the thread; wake: something was written; catch_up: a session now, in this thread."""

    def __init__(
        self,
        source: PointSource,
        index: SearchIndex,
        embedders: Callable[[str], Mapping[str, EmbedderIdentity]],
        *,
        has_space: Callable[[], bool] = lambda: True,
        rest_s: float = REST_S,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """leads: whether this process brings the index after the store, of several on one store."""
        self._source, self._index, self._embedders = source, index, embedders
        self._has_space, self._rest_s, self._leads = has_space, rest_s, leads
        self._woken, self._stopped = threading.Event(), threading.Event()
        self._session = threading.Lock()
        self._thread: threading.Thread | None = None
        self._failures, self._torn, self._note = 0, 0, ""

    # --- the thread ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="index", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        """Stop; a session that runs is given up, and the next process brings the index after the store."""
        self._stopped.set()
        self._woken.set()
        if self._thread is not None and self._thread.is_alive():  # Ctrl-C may fall into its start
            self._thread.join()

    def state(self) -> IndexState:
        """Return how far the index is, without opening it."""
        return IndexState(max(0, self._source.last_change() - self._watermark().at), self._note)

    def applied(self) -> int:
        """Return the number up to which the index holds what the store does; 0 where it cannot be searched yet."""
        mark = self._watermark()
        return mark.at if mark.dimensions == _dimensions({name: self._embedders(name) for name in FOLLOWED}) else 0

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                wait_s = self._step()
            except MemoryAnchorError as error:  # the store is busy, or cannot be read: it says so to those who ask it
                self._note, wait_s = str(error), self._back_off_s()
            if wait_s != 0 and not self._stopped.is_set():
                self._woken.wait(wait_s)
                self._woken.clear()

    def _step(self) -> float | None:
        """Do what is due; return for how long to wait for another write, None for as long as it takes."""
        if not self._leads():
            return self._rest_s
        mark = self._watermark()
        waiting = self._source.last_change() - mark.at
        if waiting <= 0 and not mark.is_open and mark.files == self._index.fingerprint():
            return None
        if not self._is_urgent(mark.at, waiting) and self._woken.wait(self._rest_s):
            self._stopped.wait(LOOKS_AGAIN_S)
            self._woken.clear()
            return 0
        if self._stopped.is_set():
            return 0
        return 0 if self.catch_up() else self._back_off_s()

    def _is_urgent(self, at: int, waiting: int) -> bool:
        """Return whether something was erased, or much was written: then alone everything is counted."""
        if any(self._source.gone(name, above=at, up_to=at + waiting) for name in FOLLOWED):
            return True
        return waiting >= MANY and waiting >= sum(map(self._source.count, FOLLOWED)) // MANY_SHARE

    def _back_off_s(self) -> float:
        return float(min(LONGEST_BACK_OFF_S, 2 ** min(self._failures, 10)))

    # --- a session -------------------------------------------------------------------------------------------------

    def catch_up(self) -> bool:
        """Bring the index after the store; return whether that went well. Never raises what the index failed with."""
        with self._session:
            if not self._has_space():
                self._note = "there is too little free space on its disk"
                self._failures += 1
                return False
            try:
                self._run_session()
            except (MemoryAnchorError, OSError, ValueError) as error:
                self._note = str(error)
                self._failures += 1
                self._torn += self._index.is_torn(error)
                with contextlib.suppress(MemoryAnchorError, OSError):
                    self._index.give_up()
                return False
            self._failures, self._torn, self._note = 0, 0, ""
            return True

    def _run_session(self) -> None:
        mark, last = self._watermark(), self._source.last_change()
        embedders = {name: self._embedders(name) for name in FOLLOWED}
        dimensions = _dimensions(embedders)
        is_doubtful = mark.is_open or mark.files != self._index.fingerprint()
        is_new = mark.dimensions != dimensions or self._torn >= FAILED_TWICE
        self._index.check(FOLLOWED)
        if is_new or self._index.lacks(FOLLOWED):  # from here on nobody searches it, until all is there
            mark = _Watermark(files=mark.files)
        self._keep(_Watermark(mark.at, mark.files, True, "" if is_new else dimensions))
        self._index.begin(embedders, anew=is_new)
        self._keep(_Watermark(mark.at, mark.files, True, dimensions))
        for name in FOLLOWED:
            gone = self._source.gone(name, above=mark.at, up_to=last)
            if gone and self._index.keeps_erased and self._index.count(name):
                self._index.begin_anew(name, embedders[name])
                self._apply_all(name)
                self._index.put_in_place(name)
            elif mark.at == 0:
                self._apply_all(name)
            else:
                self._erase(name, gone)
                self._apply_changes(name, mark.at, last)
            is_other = self._index.count(name) != self._source.count(name) and self._source.last_change() == last
            if is_other and not is_new:
                self._keep(
                    _Watermark(0, mark.files, True, dimensions)
                )  # it may lack what was there: nobody searches it
            if (is_other or is_doubtful) and not is_new:
                self._mend(name)
        self._index.flush()
        self._keep(_Watermark(last, "", True, dimensions))
        self._index.end()
        self._keep(_Watermark(last, self._index.fingerprint(), False, dimensions))

    def _apply_all(self, name: str) -> None:
        above = 0
        while points := self._source.all(name, above=above):
            self._continue_or_raise()
            self._index.apply(name, points)
            above = points[-1].number

    def _apply_changes(self, name: str, above: int, last: int) -> None:
        while points := self._source.changed(name, above=above, up_to=last):
            self._continue_or_raise()
            self._index.apply(name, points)
            above = points[-1].changed

    def _mend(self, name: str) -> None:
        """Make the ids of the index those of the store, and what may move of each the same."""
        there = {mark.point_id: mark for mark in self._index.marks(name)}
        here = {mark.point_id: mark for mark in self._source.marks(name)}
        wrong = [point for point, mark in here.items() if there.get(point) != mark]
        for first in range(0, len(wrong), POINTS_AT_ONCE):
            self._continue_or_raise()
            self._index.apply(name, self._source.points(name, wrong[first : first + POINTS_AT_ONCE]))
        self._erase(name, [point for point in there if point not in here])

    def _erase(self, name: str, points: Sequence[str]) -> None:
        for first in range(0, len(points), POINTS_AT_ONCE):
            self._continue_or_raise()
            self._index.erase(name, points[first : first + POINTS_AT_ONCE])

    def _continue_or_raise(self) -> None:
        if self._stopped.is_set():
            raise _Stopped("the engine ends")
        if not self._has_space():
            raise _Stopped("there is too little free space on its disk")

    def _watermark(self) -> _Watermark:
        try:
            kept = record(parsed(self._source.kept(self._kept_as)))
            return _Watermark(
                whole(kept["at"]), text(kept["files"]), bool(whole(kept["is_open"])), text(kept["dimensions"])
            )
        except (ValueError, KeyError, TypeError):
            return _Watermark()

    def _keep(self, mark: _Watermark) -> None:
        kept = {"at": mark.at, "files": mark.files, "is_open": int(mark.is_open), "dimensions": mark.dimensions}
        self._source.keep(self._kept_as, json.dumps(kept))

    @property
    def _kept_as(self) -> str:
        return f"index:{self._index.name}"


def _dimensions(embedders: Mapping[str, Mapping[str, EmbedderIdentity]]) -> str:
    sizes = {name: {vector: one.dimensions for vector, one in found.items()} for name, found in embedders.items()}
    return json.dumps(sizes)


class _Stopped(OSError):
    """A session is given up."""


def space_above(folder: Path, reserve_bytes: int, *, more: Callable[[], int] = lambda: 0) -> Callable[[], bool]:
    """Return a function that says whether a folder's disk has more free than the reserve and `more` bytes."""

    def has_space() -> bool:
        there = folder
        while not there.exists():
            there = there.parent
        return shutil.disk_usage(there).free > reserve_bytes + more()

    return has_space
