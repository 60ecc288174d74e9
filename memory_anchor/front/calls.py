"""The calls behind the command line: name -> function(core, anchor, arguments) -> JSON.

An engine runs them for commands of other processes; a command without an engine runs them itself. Both exchange plain
JSON. A verified `human` (see `identity.signed_requests`) makes a call a human's; no call takes a passphrase; `at` moves
the clock where that is allowed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from memory_anchor.adapters.system import clock_set_to
from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Json, Record, items, optional_text
from memory_anchor.context.context_reports import owner_of
from memory_anchor.domain.errors import BadInput, Refused
from memory_anchor.domain.requests import checks
from memory_anchor.domain.requests.requests import CreateBackup, ReadStats
from memory_anchor.extensions import installed
from memory_anchor.front import views
from memory_anchor.front.callers import actor_from
from memory_anchor.front.rows import Row
from memory_anchor.front.table import ROWS
from memory_anchor.identity.signed_requests import CHALLENGE_CALL, Proof, SignedCall
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.wire import Preamble
from memory_anchor.upkeep.statistics import counting
from memory_anchor.use_cases.memory import MemoryAnchor

if TYPE_CHECKING:
    from memory_anchor.admin.backup import MadeBackup

T = TypeVar("T")
Call = Callable[[Core, MemoryAnchor, dict[str, Json]], Record]
TOOLS_ALONE = frozenset({"active", "end_session", "found_in", "get", "propose", "remember", "set_active"})
"""Rows of the table that need a conversation, which a command does not have."""
ANSWERED_FIRST = frozenset({"add", "context", "events", "history", "list", "log", "profile", "search", "show"})
"""Calls that somebody waits for: background jobs yield to them. The others are long work themselves."""
LASTING = {
    **{"extract": "apply", "undo": "apply", "import_lines": "", "jobs_run": "", "backup_create": ""},
    "knowledge_remove": "",
}
"""Writes whose first answer is kept on disk (no single memory holds it) -> the argument that makes them a write."""
MOVES_CLOCK = frozenset({"jobs_run", "show", "search", "why_not", "history", "list", "profile", "stats"})


def _call_of(row: Row) -> Call:
    return lambda _, anchor, given: row.answer(anchor, row.request.read(given, row.name))


CALLS: dict[str, Call] = {name: _call_of(row) for name, row in ROWS.items() if name not in TOOLS_ALONE}
for _extension in installed():
    CALLS.update(_extension.calls())


def call(function: Call) -> Call:
    CALLS[function.__name__.removesuffix("_")] = function
    return function


def run(core: Core, preamble: Preamble, name: str, arguments: Record) -> Record:
    """Return the answer of one call. Raises our errors; BadInput: no such call."""
    if name == CHALLENGE_CALL:
        return dict(core.challenge(actor_from(preamble, agent=core.settings.scope.agent)))
    if name not in CALLS:
        known = f"the {len(CALLS)} calls of this version's own commands (`memory-anchor --help`)"
        raise BadInput(f"no call {name!r}; allowed are {known}")
    given = dict(arguments)
    actor = actor_from(preamble, agent=core.settings.scope.agent)
    if "passphrase" in given:
        raise Refused(
            "a passphrase came with the call, which no engine takes; the command signs in its own process: use the "
            "command line of this version"
        )
    proof = given.pop("human", None)
    if proof is not None:
        actor = core.as_human(actor, SignedCall(name, given, preamble._asdict(), Proof.of(proof)))
    elif preamble.nonce:  # a human's challenge is good once; an agent's call may be sent again after a kill
        actor = replace(actor, nonce=f"{preamble.nonce}/{name}")
    at = _moved_to(core, name, given)

    def work() -> Record:
        with clock_set_to(at), counting(at is None), core.foreground if name in ANSWERED_FIRST else nullcontext():
            return CALLS[name](core, core.anchor(actor), given)

    request = stable_hash(name, json.dumps(arguments, sort_keys=True, default=str))
    key = stable_hash("call", actor.scope.account, actor.nonce) if actor.nonce else ""
    lasting = name in LASTING and bool(given.get(LASTING[name], not LASTING[name]))
    return core.services.answers.once(key, request, work, lasting=lasting)


def _moved_to(core: Core, name: str, given: dict[str, Json]) -> datetime | None:
    text = given.pop("at", None)
    if text is None:
        return None
    at = checks.instant("--at", text, zone="UTC", now=core.clock.now())
    if name not in MOVES_CLOCK:
        raise BadInput(f"--at is given for {name}; allowed are {', '.join(sorted(MOVES_CLOCK))}")
    if not core.test_clock and not given.get("dry_run") and name == "jobs_run":
        raise Refused("--at moves the clock of jobs; allowed with --dry-run, or on a store made for tests")
    return at


# --- reading -------------------------------------------------------------------------------------------------------


@call
def stats(core: Core, anchor: MemoryAnchor, given: dict[str, Json]) -> Record:
    if ReadStats.read(given, "stats").heeded:
        return {"heeded": anchor.used_by_agents()}
    return core.stats(anchor.actor.scope)


@call
def saving(core: Core, anchor: MemoryAnchor, given: dict[str, Json]) -> Record:
    """Return why the last write failed, "" when it did not."""
    return {"failure": core.services.save_health.failure}


# --- writing -------------------------------------------------------------------------------------------------------


@call
def extract(core: Core, anchor: MemoryAnchor, given: dict[str, Json]) -> Record:
    """Store what is worth keeping of a conversation, or only show it."""
    row = ROWS["remember" if given.pop("apply", False) else "found_in"]
    return row.answer(anchor, row.request.read(given, "extract"))


# --- looking after -------------------------------------------------------------------------------------------------


@call
def jobs_list(core: Core, anchor: MemoryAnchor, given: dict[str, Json]) -> Record:
    states = core.scheduler.stats()
    due = {job.name for job in core.scheduler.due(core.clock.now())}
    return {
        "jobs": [
            {
                "name": name,
                "about": job.about,
                "every_s": job.every.total_seconds(),
                "due": name in due,
                "last_at": views.time_text(last) if (last := states[name].last_at) else None,
                "runs": states[name].runs,
                "changed": states[name].changed,
                "failures": states[name].failures,
                "last_failure": states[name].last_failure,
            }
            for name, job in core.scheduler.jobs.items()
        ],
        "running": core.scheduler.started,
    }


@call
def context_reports(core: Core, anchor: MemoryAnchor, given: dict[str, Json]) -> Record:
    reports = core.reports.list(owner_of(anchor.actor.scope))
    return {"reports": [{"id": id, "recorded_at": at.isoformat()} for id, at in reports]}


@call
def backup_create(core: Core, anchor: MemoryAnchor, given: dict[str, Json]) -> Record:
    """Write a backup to the absolute path `file`, a file or a folder; writers wait while memories are read."""
    from memory_anchor.admin import backup

    target = Path(CreateBackup.read(given, "backup").file)
    request = (stable_hash("backup", str(target)), anchor.actor.scope.account, anchor.actor.nonce)
    if (begun := optional_text(core.services.answers.read_note(*request))) is not None and os.path.lexists(begun):
        return _backup(backup.describe_backup(Path(begun)))
    target = backup.free_target(target, core.clock.now())
    core.services.answers.write_note(str(target), *request)
    return _backup(backup.create(core, target))


def _backup(made: MadeBackup) -> Record:
    return {"file": made["file"], "bytes": made["bytes"], "versions": made["versions"]}


@call
def doctor_probe(core: Core, anchor: MemoryAnchor, given: dict[str, Json]) -> Record:
    """Return the checks of `doctor` that need the store; with `vectors_from`, one step of `--deep`."""
    from memory_anchor.front import doctor_store

    if (start := given.get("vectors_from")) is not None:
        return doctor_store.compare_vectors(core, [optional_text(one) for one in items(start)])
    return {"checks": [asdict(check) for check in doctor_store.probe(core)]}
