"""The calls behind the command line: rows of the table, asked as JSON.

An engine runs them for commands of other processes; a command without an engine runs them itself. Both exchange plain
JSON. A verified `human` (see `identity.signed_requests`) makes a call a human's; no call takes a passphrase; `at` moves
the clock where that is allowed.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime

from memory_anchor.adapters.system import clock_set_to
from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Json, Record
from memory_anchor.domain.errors import BadInput, Refused
from memory_anchor.domain.requests import checks
from memory_anchor.front.callers import actor_from
from memory_anchor.front.table import ROWS
from memory_anchor.identity.signed_requests import CHALLENGE_CALL, Proof, SignedCall
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.wire import Preamble
from memory_anchor.upkeep.statistics import counting
from memory_anchor.use_cases.memory import MemoryAnchor

TOOLS_ALONE = frozenset({"active", "end_session", "found_in", "propose", "set_active"})
"""Rows of the table that need a conversation, which neither a command nor a program has."""
ANSWERED_FIRST = frozenset({"add", "context", "events", "get", "history", "list", "log", "profile", "search", "show"})
"""Calls that somebody waits for: background jobs yield to them. The others are long work themselves."""
LASTING = {
    **{"extract": "apply", "undo": "apply", "import_lines": "", "jobs_run": "", "backup_create": ""},
    **{"knowledge_remove": "", "remember": ""},
}
"""Writes whose first answer is kept on disk (no single memory holds it) -> the argument that makes them a write."""
MOVES_CLOCK = frozenset({"jobs_run", "show", "search", "why_not", "history", "list", "profile", "stats"})


def answer(name: str, anchor: MemoryAnchor, given: Record) -> Record:
    """Return the answer of one row of the table."""
    row = ROWS[name]
    return row.answer(anchor, row.request.read(given, name))


def run(core: Core, preamble: Preamble, name: str, arguments: Record) -> Record:
    """Return the answer of one call. Raises our errors; BadInput: no such call."""
    if name == CHALLENGE_CALL:
        return dict(core.challenge(actor_from(preamble, agent=core.settings.scope.agent)))
    if name not in ROWS or name in TOOLS_ALONE:
        known = f"the {len(ROWS) - len(TOOLS_ALONE)} calls of this version's own commands (`memory-anchor --help`)"
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
            return answer(name, core.anchor(actor), given)

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
