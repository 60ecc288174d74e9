"""The calls behind `memory-anchor projects`; they join those of `calls`. Listing is anybody's, the rest a human's."""

from __future__ import annotations

import os
from typing import Any

from memory_anchor import inputs, rights
from memory_anchor.adapters.projects import DEFAULT, PATH, REMOTE, ROOT
from memory_anchor.care.merging import MOVED, Merges
from memory_anchor.core import Core
from memory_anchor.errors import BadInput
from memory_anchor.front.calls import Json, call
from memory_anchor.memory import MemoryAnchor
from memory_anchor.model import HISTORY
from memory_anchor.rights import Deed
from memory_anchor.where import OneOf, Where

PATH_MAX = 4_096


@call
def projects_list(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    """Return every project: where it lies, how it is known, how many memories it has, and which one it may be.

    aliases: of projects elsewhere; `renamed` says which of them are known here under another id.
    """
    held = dict(core.projects.listed())
    counts: dict[str, int] = {}
    for name in MOVED:
        for project, many in core.services.store.facet(
            name, "project", Where((), (OneOf("state", (HISTORY,)),))
        ).items():
            counts[project] = counts.get(project, 0) + many
    aliases = {str(name): [str(one) for one in held] for name, held in (given.get("aliases") or {}).items()}
    return {
        "renamed": core.projects.renamed(aliases),
        "projects": [
            {
                "id": name,
                "here": name == anchor.actor.scope.project,
                "memories": counts.get(name, 0),
                "paths": known.of_kind(PATH) if known else [],
                "remotes": known.of_kind(REMOTE) if known else [],
                "first_commits": known.of_kind(ROOT) if known else [],
                "may_be": known.likely if known else "",
                "why": known.why if known else "",
            }
            for name in sorted({*held, *counts})
            for known in [held.get(name)]
        ],
    }


@call
def projects_link(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    """Make the caller's folder, or `folder`, part of a project; with `moved` it is where that project is now."""
    rights.check(Deed.LINK, anchor.actor.caller)
    target = _target(core, given.get("project"))
    folder = os.path.realpath(inputs.text("folder", given.get("folder") or anchor.actor.project_dir, most=PATH_MAX))
    moved = bool(given.get("moved"))
    before = core.projects.link(folder, target, moved=moved)
    _recorded(core, anchor, "project.linked", {"project": target, "folder": folder, "was": before, "moved": moved})
    left = _count(core, before) if before != target else 0
    return {"project": target, "folder": folder, "was": before, "left_behind": left}


@call
def projects_merge(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    """Move every memory of one project to another, or with `undo` those that a merge moved back."""
    rights.check(Deed.MERGE_PROJECTS, anchor.actor.caller)
    anchor.writes.check_writable()
    merges = Merges(core.data_dir, core.services.store, core.services.records.lock)
    source = inputs.project_id(given.get("source"))
    if given.get("undo"):
        merge = merges.undo(source)
        core.projects.unmerge(merge.source, merge.target, merge.aliases)
        merges.forget(source)
        kind = "project.unmerged"
    else:
        target = _target(core, given.get("target"))
        if source == target:
            raise BadInput(f"{source} cannot be merged into itself; name two projects")
        core.projects.register(source, target)
        merge = merges.begin(source, target, core.projects.known(source).aliases)
        core.projects.merge(source, target)
        merges.carry_out(merge)
        kind = "project.merged"
    core.services.searcher.invalidate()
    _recorded(core, anchor, kind, {"source": source, "target": merge.target, "versions": merge.versions})
    return {"source": source, "target": merge.target, "versions": merge.versions, "undone": bool(given.get("undo"))}


def _target(core: Core, project: object) -> str:
    """Return the id of a project that is known, or that memories here name. Raises NotFound, BadInput."""
    name = inputs.project_id(project)
    if name == DEFAULT or _count(core, name):
        core.projects.register(name)
    core.projects.known(name)
    return name


def _count(core: Core, project: str) -> int:
    where = Where((OneOf("project", (project,)),), (OneOf("state", (HISTORY,)),))
    return sum(core.services.store.count(name, where) for name in MOVED)


def _recorded(core: Core, anchor: MemoryAnchor, kind: str, what: dict[str, Any]) -> None:
    core.audit.append(kind, what, by=anchor.writes.author, at=core.clock.now())
