"""Merges of one project into another.

A merge moves one project's memories to another, version by version. What is to move is recorded before the first
version moves (`merges/ID.json`): a killed run is finished at the next start, a second run of the same merge does
nothing, and undoing moves back only those. Content, history, vectors and use are not changed; only the project is.
Sources of knowledge and lorebooks move too. L0 is signed for one project and stays where it was approved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from memory_anchor.base.files import make_private, write_atomic
from memory_anchor.domain.errors import BadInput, NotFound, StoreDamaged, retry_on_conflict
from memory_anchor.domain.model import Layer
from memory_anchor.domain.ports import MemoryStore
from memory_anchor.domain.where import OneOf, Where
from memory_anchor.upkeep.job_kit import pages

FOLDER = "merges"
MOVED = (Layer.EVENT_LOG.value, Layer.VERIFIED_FACT.value)
MERGED_AT_ONCE = 500


class ProjectBelongings(Protocol):
    """Things of a project outside the memory store: sources of knowledge, lorebooks."""

    def of_project(self, project: str, target: str) -> list[str]:
        """Return the names of those that a merge of this project into the target moves."""
        ...

    def move(self, names: Sequence[str], old: str, new: str, *, back: bool = False) -> None:
        """Move these from one project to the other, or back; those that moved already stay."""
        ...


@dataclass(frozen=True, slots=True)
class Merge:
    """One merge. points: collection -> point ids that move. is_done: all of them did. aliases: of the source before.

    beside: kind of belongings -> the names of those that move.
    """

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
        belongings: Mapping[str, ProjectBelongings] | None = None,
    ) -> None:
        self._folder = data_dir / FOLDER
        self._belongings = belongings or {}
        self._store = store
        self._lock = lock

    def begin(self, source: str, target: str, aliases: Sequence[str]) -> Merge:
        """Record what is to move and return it; the record of an earlier merge of the same two is continued."""
        earlier = self.find(source)
        if earlier is not None and not earlier.is_done:
            if earlier.target != target:
                raise BadInput(f"{source} is being merged into {earlier.target}; run that merge again, or --undo it")
            return earlier
        before = earlier if earlier is not None and earlier.target == target else Merge(source, target, {}, [])
        where = Where((OneOf("project", (source,)),))
        points = {
            name: [e.memory.point_id for page in pages(self._store, name, where, size=MERGED_AT_ONCE) for e in page]
            for name in MOVED
        }
        points = {name: sorted({*before.points.get(name, ()), *ids}) for name, ids in points.items()}
        belongings = {
            kind: [*before.beside.get(kind, ()), *things.of_project(source, target)]
            for kind, things in self._belongings.items()
        }
        merge = Merge(source, target, points, list(dict.fromkeys([*before.aliases, *aliases])), beside=belongings)
        self._save(merge)
        return merge

    def carry_out(self, merge: Merge) -> int:
        """Move what has not moved yet; return how many versions did."""
        moved = self._move(merge, merge.source, merge.target)
        self._save(replace(merge, is_done=True))
        return moved

    def undo(self, source: str) -> Merge:
        """Move back what a merge moved. Raises NotFound: there was none."""
        merge = self.find(source)
        if merge is None:
            raise NotFound(f"{source[:80]!r} was not merged into another project here; nothing to undo")
        self._move(merge, merge.target, merge.source)
        return merge

    def drop(self, source: str) -> None:
        """Delete the record of a merge that was undone."""
        self._path(source).unlink(missing_ok=True)

    def unfinished(self) -> list[Merge]:
        """Return the merges that a kill interrupted."""
        files = sorted(self._folder.glob("*.json")) if self._folder.is_dir() else []
        return [merge for file in files if (merge := self.find(file.stem)) is not None and not merge.is_done]

    def find(self, source: str) -> Merge | None:
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
            if kind in self._belongings:
                self._belongings[kind].move(names, old, new, back=old == merge.target)
        moved = 0
        for name, ids in merge.points.items():
            for start in range(0, len(ids), MERGED_AT_ONCE):
                page = ids[start : start + MERGED_AT_ONCE]
                with self._lock:  # nobody may close a version between reading and writing it
                    moved += retry_on_conflict(partial(self._move_page, name, page, old, new))
        return moved

    def _move_page(self, name: str, ids: list[str], old: str, new: str) -> int:
        page = self._store.get(name, ids, with_vectors=True)
        there = [entry for entry in page if entry.memory.scope.project == old]
        moved = [replace(e, memory=replace(e.memory, scope=replace(e.memory.scope, project=new))) for e in there]
        if moved:
            self._store.put(name, moved)
        return len(moved)

    def _save(self, merge: Merge) -> None:
        make_private(self._folder)
        write_atomic(self._path(merge.source), json.dumps(asdict(merge)).encode())

    def _path(self, source: str) -> Path:
        return self._folder / f"{source}.json"
