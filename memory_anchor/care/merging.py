"""One project's memories become another's: moved version by version, finished after a kill, undone by its record.

What is to move is written down before the first version moves (`merges/ID.json`), so that a run that was killed is
finished by the next start, a second run of the same merge does nothing, and undoing moves back those alone: what the
target already had stays. Content, history, vectors and use are not touched; only whose a version is. Sources of
knowledge and lorebooks go along. L0 is signed for one project and stays where it was approved.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from memory_anchor.errors import BadInput, NotFound, StoreDamaged, decided_anew
from memory_anchor.files import make_private, write_whole
from memory_anchor.model import Layer
from memory_anchor.ports import Entry, MemoryStore
from memory_anchor.where import OneOf, Where

FOLDER = "merges"
MOVED = (Layer.EVENT_LOG.value, Layer.VERIFIED_FACT.value)
PAGE = 500


class Belonging(Protocol):
    """What a project has beside the store."""

    def of_project(self, project: str, target: str) -> list[str]:
        """Return the name of each thing that a merge of this project into the target takes along."""
        ...

    def move(self, names: Sequence[str], old: str, new: str, *, back: bool = False) -> None:
        """Move these from one project to the other, or back; what was moved already stays."""
        ...


@dataclass(frozen=True, slots=True)
class Merge:
    """One merge. points: collection -> point ids that move. is_done: all of them did. aliases: of the source before.
    beside: what kind of thing -> the names of those that go along."""

    source: str
    target: str
    points: dict[str, list[str]]
    aliases: list[str]
    is_done: bool = False
    beside: dict[str, list[str]] = field(default_factory=dict)

    @property
    def versions(self) -> int:
        return sum(map(len, self.points.values()))


class Merges:
    """The merges of one data directory."""

    def __init__(
        self,
        data_dir: Path,
        store: MemoryStore,
        lock: AbstractContextManager[bool | None],
        beside: Mapping[str, Belonging] | None = None,
    ) -> None:
        self._folder = data_dir / FOLDER
        self._beside = beside or {}
        self._store = store
        self._lock = lock

    def begin(self, source: str, target: str, aliases: Sequence[str]) -> Merge:
        """Write down what is to move and return it; the record of an earlier merge of the same two goes on."""
        earlier = self.of(source)
        if earlier is not None and not earlier.is_done:
            if earlier.target != target:
                raise BadInput(f"{source} is being merged into {earlier.target}; run that merge again, or --undo it")
            return earlier
        points = {name: [entry.memory.point_id for entry in self._entries(name, source)] for name in MOVED}
        before = earlier if earlier is not None and earlier.target == target else Merge(source, target, {}, [])
        points = {name: sorted({*before.points.get(name, ()), *ids}) for name, ids in points.items()}
        along = {
            kind: [*before.beside.get(kind, ()), *things.of_project(source, target)]
            for kind, things in self._beside.items()
        }
        merge = Merge(source, target, points, list(dict.fromkeys([*before.aliases, *aliases])), beside=along)
        self._note(merge)
        return merge

    def carry_out(self, merge: Merge) -> int:
        """Move what has not moved yet; return how many versions did."""
        moved = self._move(merge, merge.source, merge.target)
        self._note(replace(merge, is_done=True))
        return moved

    def undo(self, source: str) -> Merge:
        """Move back what a merge moved. Raises NotFound: there was none."""
        merge = self.of(source)
        if merge is None:
            raise NotFound(f"{source[:80]!r} was not merged into another project here; nothing to undo")
        self._move(merge, merge.target, merge.source)
        return merge

    def forget(self, source: str) -> None:
        """Drop the record of a merge that was undone."""
        self._path(source).unlink(missing_ok=True)

    def unfinished(self) -> list[Merge]:
        """Return the merges that a kill cut off."""
        names = sorted(self._folder.glob("*.json")) if self._folder.is_dir() else []
        return [merge for path in names if (merge := self.of(path.stem)) is not None and not merge.is_done]

    def of(self, source: str) -> Merge | None:
        """Return the merge of a source. Raises StoreDamaged: its record cannot be read."""
        path = self._path(source)
        if not path.is_file():
            return None
        try:
            return Merge(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            raise StoreDamaged(f"{path} is not readable; move it away to go on without undoing that merge") from None

    def _move(self, merge: Merge, old: str, new: str) -> int:
        for kind, names in merge.beside.items():
            if kind in self._beside:
                self._beside[kind].move(names, old, new, back=old == merge.target)
        moved = 0
        for name, ids in merge.points.items():
            for start in range(0, len(ids), PAGE):
                page = ids[start : start + PAGE]
                with self._lock:  # nobody may close a version between reading and writing it
                    moved += decided_anew(partial(self._move_page, name, page, old, new))
        return moved

    def _move_page(self, name: str, ids: list[str], old: str, new: str) -> int:
        page = self._store.get(name, ids, with_vectors=True)
        there = [entry for entry in page if entry.memory.scope.project == old]
        if there:
            self._store.put(name, [_of_project(entry, new) for entry in there])
        return len(there)

    def _entries(self, collection: str, project: str) -> Iterator[Entry]:
        after: str | None = None
        where = Where((OneOf("project", (project,)),))
        while True:
            page, after = self._store.scan(collection, where, page=PAGE, after=after)
            yield from page
            if after is None:
                return

    def _note(self, merge: Merge) -> None:
        make_private(self._folder)
        write_whole(self._path(merge.source), json.dumps(asdict(merge)).encode())

    def _path(self, source: str) -> Path:
        return self._folder / f"{source}.json"


def _of_project(entry: Entry, project: str) -> Entry:
    memory = entry.memory
    return replace(entry, memory=replace(memory, scope=replace(memory.scope, project=project)))
