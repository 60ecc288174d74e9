"""Check everything a memory depends on, and name the next command for what is wrong. Changes no stored memory.

Each check ends in one sentence, a failed one with a fix. What needs the store is asked of the engine when one serves,
else the store is opened under its lock, as by any command (`doctor_store`). Every wait has a bound, so a hung engine
costs a minute and not an afternoon.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.adapters.system import SystemClock
from memory_anchor.admin.backup_list import LATE_FACTOR, listed
from memory_anchor.base import json_values, quarantine
from memory_anchor.base.files import file_error
from memory_anchor.base.json_values import Json, Record, items, one_of, optional_text, record, records, text, texts
from memory_anchor.domain.errors import (
    TABLE,
    BadInput,
    DiskFull,
    MemoryAnchorError,
    Mending,
    Refused,
    StoreBusy,
    StoreDamaged,
    Unavailable,
    WrongEmbedder,
)
from memory_anchor.front.doctor_machine import (
    STATES,
    Check,
    State,
    directory_found,
    engine_found,
    environment_found,
    failed,
    free_space,
    packages,
    python,
    settings_found,
)
from memory_anchor.front.doctor_store import SALVAGE, compare_vectors, probe
from memory_anchor.identity.constitution_text import FILE_NAME
from memory_anchor.runtime import engine, wire

if TYPE_CHECKING:
    from memory_anchor.identity.identity_schema import IdentitySchema
    from memory_anchor.settings import Settings
    from memory_anchor.store.audit_rows import LocalTrail

PROBE_TIMEOUT_S = 60.0
COMMAND = re.compile(r"`(memory-anchor [^`]{1,200})`")
"""A command that a message names."""
WORST_FIRST = (6, 5, 4, 2, 1)

FAULTS_SHOWN = 5
Tick = Callable[[int], None]


def diagnose(
    env: Mapping[str, str], data_dir: Path, *, audit: bool, deep: bool = False, tick: Tick = lambda _: None
) -> Iterator[Check]:
    """Yield each finding when it is made. audit: also verify the whole audit trail.

    deep: also recompute every vector and compare; `tick` gets the number done.
    """
    yield python()
    yield from packages()
    settings, finding = settings_found(env)
    yield finding
    yield from environment_found(env, data_dir)
    directory = directory_found(data_dir)
    yield directory
    if directory.state == "failed":  # whatever else is wrong lies in it
        return
    yield free_space(data_dir, (settings.store.reserve_mb if settings is not None else 64) << 20)
    try:
        serving, answers = engine.status(data_dir), True
        yield engine_found(serving)
    except Unavailable as error:
        serving, answers = None, False
        yield failed("engine", error, "memory-anchor engine stop")
    yield from _unfinished_purge(data_dir, serving is not None)
    if settings is not None:
        if answers:
            yield from _store(settings, data_dir, serving is not None, tick if deep else None)
        yield _backups(data_dir, settings)
    yield from _salvaged(data_dir)
    yield from _upgraded(data_dir)
    if audit:
        yield _audit(data_dir)
        yield _approvals()
    yield _human_key(data_dir)
    if settings is not None:  # else that failed above, and no backup repairs a setting
        yield _constitution(data_dir)
    yield from (Check("set aside", "warning", finding, fix) for finding, fix in quarantine.findings(data_dir))
    yield from _operations(data_dir)
    yield from _clients(env)


def exit_code(checks: list[Check]) -> int:
    """Return the gravest code of what failed, 0 when nothing did."""
    codes = {check.exit_code for check in checks if check.state == "failed"}
    return next((code for code in WORST_FIRST if code in codes), 1 if codes else 0)


# --- the memory ----------------------------------------------------------------------------------------------------


def _store(settings: Settings, data_dir: Path, serving: bool, deep: Tick | None) -> Iterator[Check]:
    try:
        if serving:
            yield from map(_check, records(_asked_of_engine(data_dir)["checks"]))
            if deep is not None:
                yield _vectors(lambda start: _asked_of_engine(data_dir, vectors_from=start), deep)
        else:
            yield from _opened_here(settings, data_dir, deep)
    except MemoryAnchorError as error:
        yield failed("store", error, _fix_of(error, data_dir))
    except OSError as error:
        if serving:
            finding = f"the engine did not answer within {PROBE_TIMEOUT_S:g} s ({type(error).__name__})"
            yield Check("store", "failed", finding, "memory-anchor engine stop", 5)
        else:
            yield failed("store", file_error(error, data_dir), f"chmod -R u+rwX {data_dir}")


def _check(row: Record) -> Check:
    code = json_values.whole(row["exit_code"])
    return Check(
        text(row["name"]),
        one_of(row["state"], STATES),
        text(row.get("finding", row.get("told"))),
        text(row.get("fix"), ""),
        code,
    )


def _asked_of_engine(data_dir: Path, **arguments: Json) -> Record:
    try:
        own = wire.process_preamble(os.environ, cwd=wire.working_folder(), pid=os.getpid(), nonce="")
    except wire.InvalidSetting as error:
        raise BadInput(str(error)) from None
    answer = wire.ask(
        str(data_dir),
        "call",
        own,
        timeout_s=PROBE_TIMEOUT_S,
        alive=lambda: engine.status(data_dir),
        name="doctor_probe",
        arguments=arguments,
    )
    if "error" in answer:
        kinds, failure = {row.code: kind for kind, row in TABLE.items()}, record(answer["error"])
        raise kinds.get(str(failure.get("code")), MemoryAnchorError)(str(failure.get("message")))
    return dict(record(answer["result"]))


def _opened_here(settings: Settings, data_dir: Path, deep: Tick | None) -> Iterator[Check]:
    from memory_anchor.process.app import build_core
    from memory_anchor.runtime.lock import DirectoryLock

    os.umask(0o077)
    with DirectoryLock.acquire(data_dir, role="doctor") as lock:
        core = build_core(settings, data_dir=data_dir, lock=lock)
        try:
            yield from probe(core)
            if deep is not None:
                yield _vectors(lambda start: compare_vectors(core, start), deep)
        finally:
            core.close()


def _vectors(step: Callable[[Sequence[str | None]], Record], tick: Tick) -> Check:
    """Return whether every stored vector equals the one recomputed from its text; none is changed."""
    count, odd, start = 0, list[str](), list[str | None]()
    while True:
        looked = step(start)
        count, odd = count + json_values.whole(looked["count"]), odd + texts(looked["odd"])
        tick(count)
        if looked["left"] is None:
            break
        start = [optional_text(place) for place in items(looked["left"])]
    if not odd:
        return Check("vectors", "ok", f"{count} computed again, each equal to the stored one")
    named = f"{', '.join(odd[:FAULTS_SHOWN])}{' and more' if len(odd) > FAULTS_SHOWN else ''}"
    finding = f"{len(odd)} of {count} vectors are not those of their texts, so that searches miss them: {named}"
    return Check("vectors", "failed", finding, "memory-anchor reindex --vectors", 6)


def _fix_of(error: MemoryAnchorError, data_dir: Path) -> str:
    if isinstance(error, WrongEmbedder):
        return "memory-anchor reindex"
    if isinstance(error, DiskFull):
        return "free some space on that disk"
    if isinstance(error, StoreDamaged):
        if error.mending is Mending.UPGRADE:
            return "upgrade memory-anchor: pip install --upgrade memory-anchor"
        if error.mending is Mending.OLDER_VERSION:
            return _bring_over(data_dir, "with the version that wrote it: ")
        return SALVAGE if error.mending is Mending.SALVAGE else _restore(data_dir)
    if isinstance(error, BadInput):
        return "correct it; `memory-anchor config` shows every setting and its origin"
    if isinstance(error, Unavailable):
        return "see the sentence above, then run memory-anchor doctor again"
    if isinstance(error, StoreBusy):
        return "let the other process finish, or end an engine: memory-anchor engine stop"
    return f"chmod -R u+rwX {data_dir}" if isinstance(error, Refused) else "see the sentence above"


def _restore(data_dir: Path) -> str:
    """Return the command that restores a file outside of the store, which only backups have."""
    backups = listed(data_dir)
    return f"memory-anchor backup restore {backups[-1]['file'] if backups else 'FILE'} --force"


def _bring_over(data_dir: Path, how: str = "") -> str:
    """Return the commands that export the memories and import them into a new store."""
    store, replaced, file = data_dir / "store", data_dir / "replaced-store", "memories.jsonl"
    return f"{how}memory-anchor export {file} --versions; then mv {store} {replaced}; then memory-anchor import {file}"


# --- files outside of the store ------------------------------------------------------------------------------------


def _backups(data_dir: Path, settings: Settings) -> Check:
    """Return when the last backup was made, with a warning where it is late and there is anything to keep."""
    from memory_anchor.front.cli.output import local_time

    backups = listed(data_dir)
    often = f"one every {settings.backup.every_h} h" if settings.backup.every_h else "automatic ones are off"
    if not backups:
        is_new = settings.backup.every_h == 0
        with contextlib.suppress(MemoryAnchorError):  # the store says it
            is_new |= not _trail(data_dir).size()
        state: State = "ok" if is_new else "warning"
        return Check("backups", state, f"none yet; {often}", "" if is_new else "memory-anchor backup create")
    last = backups[-1]
    finding = f"{len(backups)}, the last {local_time(last['made_at'])} at {last['file']}; {often}"
    age_h = (SystemClock().now() - datetime.fromisoformat(last["made_at"])).total_seconds() / 3600
    if settings.backup.every_h and age_h > LATE_FACTOR * settings.backup.every_h:
        return Check("backups", "warning", finding, "memory-anchor backup create")
    return Check("backups", "ok", finding)


def _trail(data_dir: Path) -> LocalTrail:
    """Return the trail where the settings have it; where they cannot be read, the directory's own."""
    from memory_anchor.front.cli.passphrase import audit_trail
    from memory_anchor.store.audit_rows import LocalTrail

    try:
        return audit_trail(data_dir)
    except BadInput:
        return LocalTrail(data_dir)


def _unfinished_purge(data_dir: Path, serving: bool) -> Iterator[Check]:
    """Yield an unfinished purge, which the next process to open the store finishes."""
    from memory_anchor.admin.left_behind import PURGE_STATE
    from memory_anchor.store.record_rows import SqlRecords
    from memory_anchor.upkeep.job_state import load_state, state_record

    state = None
    with contextlib.suppress(MemoryAnchorError, OSError, ValueError):  # `_audit` says it
        if (database := _trail(data_dir).database) is not None:
            state = load_state(SqlRecords(database, SystemClock().now), PURGE_STATE)
        else:  # a directory of the old layout
            state = json_values.parsed((data_dir / state_record(PURGE_STATE)).read_bytes())
    if isinstance(state, dict) and "asked" in state:
        finding = f"a purge of {sum(len(ids) for ids in state['asked'].values())} versions did not come to its end; "
        finding += "it is under way, or was cut off" if serving else "whatever opens the store next ends it"
        fix = "if nobody is purging now: memory-anchor engine stop" if serving else "memory-anchor stats"
        yield Check("purge", "warning", finding, fix)


def _salvaged(data_dir: Path) -> Iterator[Check]:
    from memory_anchor.admin.left_behind import ACCOUNT_FILE, REPLACED

    if next(data_dir.glob(f"{REPLACED}*/{ACCOUNT_FILE}"), None) is None:
        return
    from memory_anchor.runtime.salvage import last_account

    if (last := last_account(data_dir)) is not None:
        folder, lost = last
        finding = f"the damaged store of the last salvage is in {folder}; its salvage.json names {lost} lost versions"
        yield Check("salvage", "warning" if lost else "ok", finding, f"rm -r {folder}" if not lost else "")


def _upgraded(data_dir: Path) -> Iterator[Check]:
    """Yield where the store before an upgrade is kept, and how a human who is content removes it."""
    from memory_anchor.admin.left_behind import kept_side

    with contextlib.suppress(MemoryAnchorError):  # `_audit` says it
        if (folder := kept_side(data_dir, _trail(data_dir))) is not None:
            yield Check("upgrade", "ok", f"the store before the upgrade is kept in {folder}", f"rm -r {folder}")


def _audit(data_dir: Path) -> Check:
    try:
        trail = _trail(data_dir)
        broken, size = trail.verify(), trail.size()
    except MemoryAnchorError as error:
        return failed("audit", error)
    if broken is None:
        return Check("audit", "ok", "the whole chain holds" if size else "nothing was written yet")
    fix = "compare it with the trail of a backup; the memories themselves are not touched by this"
    return Check("audit", "failed", f"{trail.place} breaks at line {broken.line}: {broken.why}", fix, 6)


def _human_key(data_dir: Path) -> Check:
    """Return whether the key here is the first that a human made, with the fingerprint shown at `init`."""
    from memory_anchor.identity.keys import KeyRing

    try:
        keys = KeyRing(data_dir / "identity", _trail(data_dir))
        warning, fingerprint = keys.warning(), keys.fingerprint()
    except MemoryAnchorError as error:
        return failed("human key", error)
    if warning:
        return Check("human key", "failed", warning, _fix_of_key(data_dir, fingerprint), 4)
    return Check("human key", "ok", f"fingerprint {fingerprint}" if fingerprint else "not created yet")


def _fix_of_key(data_dir: Path, fingerprint: str) -> str:
    """Return how a human gets their key back, or what to do where no backup has it."""
    from memory_anchor.admin import backup

    if file := backup.newest_with_key(data_dir, fingerprint):
        return f"memory-anchor backup restore {file} --key"
    return (
        f"no known backup holds that key: put a copy of {data_dir / 'identity' / 'approver.json'} back; without one, "
        f"begin anew: memory-anchor export memories.jsonl; then mv {data_dir} {data_dir}.old; then memory-anchor init; "
        "then memory-anchor import memories.jsonl --human"
    )


def _approvals() -> Check:
    """Return whether the approved texts are as approved: none missing, added, changed or replaced by an older one."""
    from memory_anchor.front.cli.passphrase import identity

    try:
        faults = identity().faults()
    except MemoryAnchorError as error:
        return failed("approvals", error)
    except OSError as error:
        return failed("approvals", file_error(error, Path(error.filename or ".")))
    if not faults:
        return Check("approvals", "ok", "all approved texts are intact")
    fix = "restore them with a backup, or approve the file anew: memory-anchor init"
    return Check("approvals", "failed", "; ".join(faults[:FAULTS_SHOWN]), fix, 6)


def _constitution(data_dir: Path) -> Check:
    from memory_anchor.front.cli.passphrase import identity

    try:
        schema = identity()
        served = schema.load()
    except MemoryAnchorError as error:
        return failed("constitution", error, _fix_of(error, data_dir))
    except OSError as error:
        return failed("constitution", file_error(error, Path(error.filename or ".")))
    finding = f"{len(served.entries)} entries, {served.tokens} tokens"
    if schema.key_warning():  # reported as the human key, with its fix; the text cannot be judged without it
        return Check("constitution", "warning", f"{finding}; nothing can be approved without the human key")
    if not served.warnings:
        return Check("constitution", "ok", finding)
    try:
        schema.first_text()
    except BadInput as error:
        return Check("constitution", "warning", str(error), f"fix {schema.path}, then: memory-anchor init")
    named = COMMAND.search(served.warnings[0])
    fix = named[1].replace(f"> {FILE_NAME}", f"> {schema.path}") if named else "memory-anchor constitution show"
    return Check("constitution", "warning", served.warnings[0] + _last_approval(schema, data_dir), fix)


def _last_approval(schema: IdentitySchema, data_dir: Path) -> str:
    """Return the audit record of the last approved text where no text is in force: it may be made up."""
    from memory_anchor.identity.approved import numbers_of

    if not schema.initialised or schema.load().entries:
        return ""
    records = _trail(data_dir).records("constitution.")
    last = max((row for row in records if numbers_of([row], schema.project_id)), key=lambda row: row["n"], default=None)
    if last is None:
        return ""
    return (
        f"; the last approved text that the audit trail tells of is {last['what']['approved']}: record {last['n']} of "
        f"{last['at']}, by {last['by']}"
    )


def _operations(data_dir: Path) -> Iterator[Check]:
    """Yield each file of `.ai/operations` that is skipped, or that all are read."""
    from memory_anchor.adapters.projects import locate
    from memory_anchor.front.cli.link import preamble
    from memory_anchor.layers.operational_knowledge import FOLDER, OperationalKnowledge

    here = preamble().project_dir
    left = quarantine.Quarantine(suspects=quarantine.suspects_of(data_dir))
    operations = OperationalKnowledge(Path(locate(Path(here)).root) if here else None, left)
    left_out = operations.problems()
    for problem in left_out:
        yield Check("operations", "warning", problem, "fix that file, or remove it from the folder")
    if not left_out:
        yield Check("operations", "ok", f"{len(operations.names())} files in {FOLDER}")


def _clients(env: Mapping[str, str]) -> Iterator[Check]:
    """Yield the state of each client we are installed in; the others are no failure."""
    from memory_anchor.front.clients import install, places

    installed = []
    for client in places.CLIENTS:
        for scope in places.SCOPES if client != "json" else ():
            try:
                without = install.uninstall(client, scope=scope, dry_run=True, env=env)
                if all(change.before == change.after for change in without.changes):
                    continue
                again = install.install(client, scope=scope, dry_run=True, env=env)
            except MemoryAnchorError as error:
                yield Check(f"client {client}", "warning", str(error), "fix that file")
                continue
            if any(change.before != change.after for change in again.changes):
                fix = f"memory-anchor install {client} --scope {scope}"
                yield Check(f"client {client}", "warning", f"{scope}: our entry is incomplete or for another path", fix)
            else:
                installed.append(f"{client} ({scope})")
    finding = f"installed: {', '.join(installed)}" if installed else "memory-anchor is installed in none"
    yield Check("clients", "ok", finding, "" if installed else "memory-anchor install claude-code")
