"""The calls behind the command line: name -> function(core, anchor, arguments) -> JSON.

An engine runs them for commands of other processes, a command without an engine runs them itself; both exchange plain
JSON. `human` (see `layers.signed_requests`) makes a call human after it was verified, and no call takes a passphrase;
`at` moves the clock where that is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from memory_anchor import inputs, rights, shapes
from memory_anchor.adapters.system import moved
from memory_anchor.context.context_reports import owner_of
from memory_anchor.core import Core
from memory_anchor.errors import BadInput, NotFound, Refused
from memory_anchor.files import remove_durably, write_whole
from memory_anchor.front.callers import actor_from
from memory_anchor.front.table import ROWS
from memory_anchor.hashing import stable_hash
from memory_anchor.identity.signed_requests import CHALLENGE_CALL, Proof
from memory_anchor.memory import MemoryAnchor
from memory_anchor.model import Citation
from memory_anchor.rights import Deed
from memory_anchor.runtime.wire import Preamble

Json = dict[str, Any]
T = TypeVar("T")
NAMES_SHOWN = 200
Call = Callable[[Core, MemoryAnchor, Json], Json]
CALLS: dict[str, Call] = {}
ANSWERED_FIRST = frozenset({"add", "context", "events", "history", "list", "log", "search", "show"})
"""Calls that somebody waits for; the others are work themselves."""
LASTING = {"extract": "apply", "undo": "apply", "import_lines": "", "jobs_run": "", "backup_create": ""}
"""Writes whose first answer is kept beside the store, being of many memories or none -> what makes them a write."""
MOVES_CLOCK = frozenset({"jobs_run", "show", "search", "why_not", "history", "list", "stats"})


def call(function: Call) -> Call:
    CALLS[function.__name__.removesuffix("_")] = function
    return function


def run(core: Core, preamble: Preamble, name: str, arguments: Mapping[str, Any]) -> Json:
    """Return the answer of one call. Raises our errors; BadInput: no such call."""
    row = ROWS.get(name)
    if name == CHALLENGE_CALL:
        return dict(core.challenge(actor_from(preamble, agent=core.settings.scope.agent)))
    if row is None and name not in CALLS:
        raise BadInput(f"no call {name!r}; there are {', '.join(sorted({*CALLS, *ROWS}))}")
    given = dict(arguments)
    actor = actor_from(preamble, agent=core.settings.scope.agent)
    if "passphrase" in given:
        raise Refused(
            "a passphrase came with the call, which no engine takes; the command signs in its own process: use the "
            "command line of this version"
        )
    proof = given.pop("human", None)
    if proof is not None:
        signed = Proof.of(proof)
        actor = core.as_human(actor, signed, call=name, arguments=given, caller=preamble._asdict())
    elif preamble.nonce:  # a human's call holds a challenge that is used up; an agent's may come again after a kill
        actor = replace(actor, nonce=f"{preamble.nonce}/{name}")
    at = _moved_to(core, name, given)

    def work() -> Json:
        with moved(at), core.foreground if name in ANSWERED_FIRST else nullcontext():
            anchor = core.anchor(actor)
            if row is not None:
                return row.answer(anchor, row.request.read(given, name))
            return CALLS[name](core, anchor, given)

    asked = stable_hash(name, json.dumps(arguments, sort_keys=True, default=str))
    key = stable_hash("call", actor.scope.account, actor.nonce) if actor.nonce else ""
    lasting = name in LASTING and bool(given.get(LASTING[name], not LASTING[name]))
    return core.services.answers.once(key, asked, work, lasting=lasting)


def _moved_to(core: Core, name: str, given: Json) -> datetime | None:
    text = given.pop("at", None)
    if text is None:
        return None
    at = inputs.instant("--at", text, zone="UTC", now=core.clock.now())
    if name not in MOVES_CLOCK:
        raise BadInput(f"--at is given for {name}; allowed are {', '.join(sorted(MOVES_CLOCK))}")
    if not core.test_clock and not given.get("dry_run") and name == "jobs_run":
        raise Refused("--at moves the clock of jobs; allowed with --dry-run, or on a store made for tests")
    return at


# --- reading -------------------------------------------------------------------------------------------------------


@call
def ask_golden(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    """Ask golden questions of this very store; see `evaluation.golden`."""
    from memory_anchor.evaluation.golden import ask

    return ask(anchor, given.get("questions"))


@call
def stats(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    return core.stats(anchor.actor.scope)


# --- writing -------------------------------------------------------------------------------------------------------


@call
def extract(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    """Store what is worth keeping of a conversation, or only show it."""
    row = ROWS["remember" if given.pop("apply", False) else "found_in"]
    return row.answer(anchor, row.request.read(given, "extract"))


@call
def pause(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    """Stop agents from writing, or let them go on, which only a human does; what is on shows in `stats`."""
    off = bool(given.get("off"))
    rights.check(Deed.RESUME if off else Deed.PAUSE, anchor.actor.caller)
    flag = core.data_dir / "paused"
    if off:
        remove_durably(flag)
    else:
        write_whole(flag, b"")
    return {"paused": not off}


# --- looking after -------------------------------------------------------------------------------------------------


@call
def undo(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    from memory_anchor.upkeep import undo as undoing

    reader, human = anchor.actor.scope, rights.may(Deed.UNDO_HUMANS, anchor.actor.caller)
    if given.get("conversation"):
        plan = undoing.plan_conversation(core.upkeep, str(given["conversation"]), reader, human=human)
    elif given.get("agent"):
        since = inputs.instant("since", given.get("since"), zone=anchor.actor.zone, now=core.clock.now())
        plan = undoing.plan_agent(core.upkeep, str(given["agent"]), since, reader, human=human)
    elif given.get("what") == "last":
        plan = undoing.plan_last(core.upkeep, reader, human=human)
    else:
        raise BadInput("undo names nothing; allowed are `last`, --conversation ID, or --agent NAME --since ISO")
    if given.get("apply"):
        anchor.writes.check_writable()
        request = (stable_hash("undo", json.dumps(given, sort_keys=True)), reader.account, anchor.actor.nonce)
        noted = core.services.answers.first(lambda: undoing.noted(plan), *request)
        plan = undoing.as_noted(core.upkeep, noted, plan)
        author = anchor.writes.author
        undoing.apply(core.upkeep, plan, at=core.clock.now(), author=author, written_in=reader.conversation)
    return {
        "what": plan.what,
        "applied": bool(given.get("apply")),
        "steps": [asdict(step) for step in plan.preview()],
        "left": [asdict(left) for left in plan.left],
        "cut": plan.cut,
    }


@call
def purge(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    """Erase memories for good by id or by a text: a human's call alone."""
    from memory_anchor.care import backup
    from memory_anchor.care import purge as purging

    rights.check(Deed.PURGE, anchor.actor.caller)
    folders = (alias.removeprefix("path:") for one in core.projects.all().values() for alias in one)
    left = purging.LeftToHumans(core.data_dir, [Path(folder) for folder in folders if folder.startswith("/")])
    kinds: Json = {
        "caller": anchor.actor.caller,
        "at": core.clock.now(),
        "by": anchor.writes.author,
        "holders": (
            left,
            purging.InMind(core.services.active),
            *purging.beside_store(core.data_dir),
            backup.KnownBackups(core.data_dir),
            purging.Cache("what searches remember", core.services.searcher.invalidate),
            purging.Cache("which tags occur together", core.forget_tags),
            purging.Cache("what was said last", core.services.events.forget),
        ),
    }
    ids, text = inputs.strings("ids", given.get("ids"), most=100, each=inputs.NAME_MAX), given.get("text")
    if bool(ids) == bool(text):
        raise BadInput("purge names nothing, or both ids and a text; allowed is one of them")
    kinds["seen"] = inputs.text("seen", given.get("seen"), most=inputs.NAME_MAX)
    if ids:
        for memory_id in ids:
            anchor.services.records.read(memory_id, anchor.actor.scope)
        done = purging.purge_ids(core.upkeep, ids, **kinds)
    else:
        done = purging.purge_text(core.upkeep, str(text), **kinds)
    still_in = [*left.found, *backup.out_of_reach(core.data_dir)]
    told = {**asdict(done), "versions": done.versions, "still_in": still_in}
    answer: Json = json.loads(json.dumps(told, default=str))
    return answer


@call
def jobs_list(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    states = core.scheduler.stats()
    due = {job.name for job in core.scheduler.due(core.clock.now())}
    return {
        "jobs": [
            {
                "name": name,
                "about": job.about,
                "every_s": job.every.total_seconds(),
                "due": name in due,
                "last_at": shapes.time_text(last) if (last := states[name].last_at) else None,
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
def jobs_run(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    from memory_anchor.upkeep.upkeep import Limits

    report = core.scheduler.run(
        str(given.get("name", "")), core.clock.now(), Limits(dry_run=bool(given.get("dry_run")))
    )
    return {
        "job": report.job,
        "at": shapes.time_text(report.at),
        "changed": report.changed,
        "left": report.left,
        "dry_run": report.dry_run,
        "notes": list(report.notes),
        "counts": dict(report.counts),
        "planned": [asdict(step) for step in report.planned],
    }


@call
def jobs_switch(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    """Keep the engine from running jobs by itself, or let it again; remembered over restarts."""
    core.let_jobs_run(bool(given.get("on")))
    return {"running": bool(given.get("on"))}


@call
def context_report(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    found = core.reports.load(str(given.get("id", "")), owner_of(anchor.actor.scope))
    told = tuple(one for one in found.report.citations if _may_show(anchor, one))
    return {
        "id": found.id,
        "recorded_at": found.recorded_at.isoformat(),
        "report": shapes.report(replace(found.report, citations=told), reader=anchor.actor.scope),
    }


def _may_show(anchor: MemoryAnchor, cited: Citation) -> bool:
    """Return whether a report of this project may tell this reader what it cites.

    Memories are those that this reader reads now. For whom the memory was that a file or link stands in, a report does
    not hold: it tells of what that reader wrote itself.
    """
    reader = anchor.actor.scope
    if cited.kind not in ("memory_entry", "event"):
        return cited.scope is None or cited.scope.agent == reader.agent
    try:
        anchor.services.records.read(cited.ref.partition("@")[0], reader)
    except NotFound:
        return False
    return True


@call
def context_reports(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    kept = core.reports.list(owner_of(anchor.actor.scope))
    return {"reports": [{"id": id, "recorded_at": at.isoformat()} for id, at in kept]}


@call
def assemble(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    built = core.assemble(anchor, given.get("prompt"))
    return {
        "messages": built.messages,
        "tools": built.tools,
        "text": built.text,
        "report": shapes.report(built.report, reader=anchor.actor.scope),
        "report_id": built.report_id,
        "notes": list(built.notes),
    }


from memory_anchor.front import project_calls as _projects  # noqa: E402, F401 - they register themselves above
from memory_anchor.front import transfer_calls as _more  # noqa: E402, F401 - they register themselves above
