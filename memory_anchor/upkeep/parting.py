"""Memories that earlier versions joined from two texts, parted again: each text a memory with its own dates.

Until joining needed a proof, a text that looked like a stored one was appended to it, or took its place without holding
it. Both texts are in the history, so nothing is lost and nothing is guessed: the version that joined names itself by
its reason, and what it added is what the version before it lacks. `doctor` counts them; the job runs only when somebody
asks (`memory-anchor jobs run part_joined`, with `--dry-run` first), and is undone like any other.

Two parts that contradict each other stand as disputed. A text that a human edited since is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice, pairwise

from memory_anchor.base.hashing import content_hash
from memory_anchor.domain.model import Layer, Memory, Status, Usage
from memory_anchor.domain.ports import MemoryStore
from memory_anchor.domain.versions import revise
from memory_anchor.domain.where import Between, OneOf
from memory_anchor.ingest.relations import Kind, compare
from memory_anchor.language.coverage import covers
from memory_anchor.layers.records import newest_versions
from memory_anchor.upkeep.forgetting import stable_id
from memory_anchor.upkeep.job_kit import (
    PAGE,
    PLANNED_SHOWN,
    UNLIMITED,
    Change,
    JobReport,
    Limits,
    Planned,
    Upkeep,
    live,
    pages,
    write,
)

NAME, AUTHOR = "part_joined", "job:part_joined"
APPENDED = "this memory says the same in other words; both wordings stand"
REPLACED = "the new wording says what this memory says, and more"
"""The reasons of the versions that joined two texts."""
_FACTS = Layer.VERIFIED_FACT.value
_VERSIONS_READ = 200


@dataclass(frozen=True, slots=True)
class Joined:
    """memory: as it stands. before: the version whose text it had. joining: the version that brought `added`."""

    memory: Memory
    before: Memory
    joining: Memory
    added: str


def joined(store: MemoryStore, memory: Memory) -> Joined | None:
    """Return the last join of a memory whose text still is the joined one, None where there is none."""
    versions = newest_versions(store, _FACTS, OneOf("id", (memory.id,)))
    known = list(islice(versions, _VERSIONS_READ))
    for joining, before in pairwise(known):
        if joining.content != memory.content or joining.content == before.content:
            continue
        head = before.content.rstrip().rstrip(".。")
        if joining.reason.startswith(APPENDED) and joining.content.startswith(head):
            added = joining.content[len(head) :].lstrip(" .。\n")
        elif joining.reason.startswith(REPLACED) and not covers(joining.content, before.content):
            added = joining.content
        else:
            continue
        return Joined(memory, before, joining, added) if added else None
    return None


def all_joined(store: MemoryStore) -> Iterator[Joined]:
    """Yield every live fact that was joined from two texts."""
    where = live(Between("version", at_least=2), states=(Status.ACTIVE, Status.DISPUTED))
    for page in pages(store, _FACTS, where, size=PAGE):
        for entry in page:
            if (found := joined(store, entry.memory)) is not None:
                yield found


def part_joined(up: Upkeep, at: datetime, limits: Limits = UNLIMITED) -> JobReport:
    """Give each joined memory its earlier text back, and the other text a memory of its own."""
    changed, planned, left = 0, list[Planned](), False
    for number, found in enumerate(all_joined(up.store)):
        if number >= limits.max_changes or limits.should_stop():
            left = True
            break
        if limits.dry_run:
            planned.append(Planned(found.memory.id, "part", f"{found.before.content} / {found.added}"))
            continue
        change, own = _parted(found, at)
        changed += len(write(up, [change], added=[own], kind=NAME, by=AUTHOR, at=at, whole=True))
    planned = planned[:PLANNED_SHOWN]
    return JobReport(NAME, at, changed=changed, left=left, dry_run=limits.dry_run, planned=tuple(planned))


def _parted(found: Joined, at: datetime) -> tuple[Change, Memory]:
    memory, before, joining = found.memory, found.before, found.joining
    own_id = stable_id("p", memory.id, str(joining.version), found.added)
    opposed = compare(before.content, found.added) is not Kind.NONE
    status = Status.DISPUTED if opposed else memory.status
    own = replace(
        memory,
        id=own_id,
        version=1,
        previous_version_id=None,
        content=found.added,
        content_hash=content_hash(found.added),
        recorded_at=joining.recorded_at,
        valid_from=joining.recorded_at,
        first_recorded_at=None,
        content_at=None,
        corroborated_at=None,
        author=joining.author,
        reason=f"parted from {memory.id}, with which an earlier version had joined it",
        status=status,
        disputes=(memory.id,) if opposed else (),
        relations=(),
        usage=Usage(),
        receipts=(),
        revision=None,
    )
    again = replace(
        memory,
        content=before.content,
        content_hash=before.content_hash,
        status=status,
        disputes=tuple(dict.fromkeys((*memory.disputes, own_id))) if opposed else memory.disputes,
    )
    step = revise(memory, again, at=at, author=AUTHOR, reason=f"parted: {own_id} has the other text")
    return Change(step, source=before), own
