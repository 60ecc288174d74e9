"""Check everything a memory depends on, and name the next command for what is wrong. Changes no stored memory.

Each check ends in one sentence, a failed one with a fix. What needs the store is asked of the engine when one serves,
else the store is opened under its lock, as by any command. The write-read-forget loop runs twice: through the use cases
over a store in memory, and on the real store in a collection that nothing reads, from which it is erased again. Every
wait has a bound, so a hung engine costs a minute and not an afternoon.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.adapters.system import SystemClock
from memory_anchor.base import json_values, quarantine
from memory_anchor.base.files import file_error
from memory_anchor.base.json_values import Json, Record, items, one_of, optional_text, record, records, text, texts
from memory_anchor.domain.errors import (
    TABLE,
    BadInput,
    DiskFull,
    MemoryAnchorError,
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
    joined_found,
    packages,
    python,
    replicas_found,
    settings_found,
)
from memory_anchor.identity.constitution_text import FILE_NAME
from memory_anchor.runtime import engine, wire

if TYPE_CHECKING:
    from memory_anchor.identity.identity_schema import IdentitySchema
    from memory_anchor.process.wiring import Core
    from memory_anchor.settings import Settings

PROBE_TIMEOUT_S = 60.0
SCRATCH = "knowledge"
PAGE = 200
SALVAGE = "memory-anchor doctor --salvage"
COMMAND = re.compile(r"`(memory-anchor [^`]{1,200})`")
"""A command that a message names."""
WORST_FIRST = (6, 5, 4, 2, 1)

DEEP_STEP_S = 2.0
"""How long one step of `--deep` occupies an engine's thread."""
FAULTS_SHOWN = 5
PURGED_AT_ONCE = 100
"""Ids that one call of `purge` takes."""
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
    if audit:
        yield _audit(data_dir)
        if settings is not None and answers:
            yield from replicas_found(settings, data_dir)
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
    return Check(text(row["name"]), one_of(row["state"], STATES), text(row["told"]), text(row.get("fix"), ""), code)


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


def probe(core: Core) -> Iterator[Check]:
    """Yield the checks that only the process with the store can make."""
    yield _tried("store", lambda: _counted(core), SALVAGE)
    yield _tried("memories", lambda: _every_memory(core), SALVAGE)
    yield from _indexes(core)
    yield _tried(
        "embedder", lambda: _embeds(core), "memory-anchor config shows embedder.*; kind=none searches by words"
    )
    yield _tried("language model", lambda: _model(core), "memory-anchor config shows llm.*; kind=none goes by rules")
    waiting = core.services.searcher.index.unembedded()
    if waiting:
        yield Check("embedding", "warning", f"{waiting} memories wait for their vectors; words find them until then")
    unseen = json_values.whole(core.stats()["waiting"])
    if unseen:
        yield Check("review", "ok", f"{unseen} memories wait for you, and no search finds them: memory-anchor review")
    yield from joined_found(core)
    yield from _purge_to_repeat(core)
    yield _tried("write, read, forget", lambda: _use_cases(core), "run it again; if it stays, report it")
    yield _tried("store loop", lambda: _store_loop(core), SALVAGE)


def compare_vectors(core: Core, start: Sequence[str | None]) -> Record:
    """Compare some vectors with their texts; return {count, odd: [version ids], left: where to go on or None}."""
    from memory_anchor.admin.checks import compare_vectors
    from memory_anchor.domain.ports import DENSE, DENSE_LOCAL
    from memory_anchor.settings import API_EMBEDDERS

    main = None if core.settings.embedder.kind in API_EMBEDDERS else core.services.embedder
    makers = {name: maker for name, maker in ((DENSE, main), (DENSE_LOCAL, core.services.local)) if maker is not None}
    until = time.monotonic() + DEEP_STEP_S
    return asdict(compare_vectors(core.services.store, makers, start=start, enough=lambda: time.monotonic() > until))


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


def _tried(name: str, act: Callable[[], str], fix: str) -> Check:
    try:
        return Check(name, "ok", act())
    except MemoryAnchorError as error:
        return failed(name, error, fix)


def _counted(core: Core) -> str:
    store = core.services.store
    counts = ", ".join(f"{name} {many}" for name, many in record(core.stats()["layers"]).items())
    return f"{store.kind}: {counts}; {store.size_bytes() >> 20} MiB on disk"


def _every_memory(core: Core) -> str:
    """Read every version of every collection once. Raises StoreDamaged."""
    from memory_anchor.base.hashing import content_hash
    from memory_anchor.domain.model import COLLECTIONS
    from memory_anchor.domain.where import Where

    store, read = core.services.store, 0
    for name in COLLECTIONS:
        after: str | None = None
        while True:
            try:
                entries, after = store.scan(name, Where(), page=PAGE, after=after)
            except (StoreDamaged, BadInput) as error:
                raise StoreDamaged(f"{name} holds memories that cannot be read; nothing was changed") from error
            changed = sum(e.memory.content_hash not in ("", content_hash(e.memory.content)) for e in entries)
            if changed:
                raise StoreDamaged(f"{name} holds {changed} or more memories whose text is not as it was written")
            read += len(entries)
            if after is None:
                break
    return f"{read} versions read, all intact"


def _indexes(core: Core) -> Iterator[Check]:
    """Yield whether the indexes of an embedded store agree with its memories, since lists and searches use them."""
    from memory_anchor.domain.model import COLLECTIONS

    compare_vectors = getattr(core.services.store, "inconsistent_indexes", None)
    if compare_vectors is None:
        return
    try:
        odd = [f"{field} of {name}" for name in COLLECTIONS for field in compare_vectors(name)]
    except MemoryAnchorError as error:
        yield failed("indexes", error, SALVAGE)
        return
    if odd:
        finding = (
            f"memories are not found by {', '.join(odd[:FAULTS_SHOWN])}: the index is damaged, the memories are whole"
        )
        yield Check("indexes", "failed", finding, SALVAGE, 6)
    else:
        yield Check("indexes", "ok", "match the stored memories")


def _embeds(core: Core) -> str:
    embedder = core.services.embedder
    if embedder is None:
        return "none: words alone are searched"
    row = embedder.documents(["memory-anchor doctor 记忆"])[0]
    return f"{embedder.identity.model}, {len(row)} dimensions"


def _model(core: Core) -> str:
    """Return the state of the language model, which is not called, so this costs nothing."""
    from memory_anchor.domain.ports import HasState

    model = core.services.model_named("")
    if model is None:
        return "none: rules and small models do the work"
    return model.state() if isinstance(model, HasState) else model.name


def _use_cases(core: Core) -> str:
    """Save, find, get and forget through every layer, over a store in memory."""
    from memory_anchor.adapters.dict_store import DictStore
    from memory_anchor.domain.model import Actor, Caller, Scope
    from memory_anchor.process.app import build_core

    with tempfile.TemporaryDirectory(prefix="memory-anchor-") as folder:
        scratch = build_core(
            core.settings, data_dir=Path(folder), store=DictStore(), embedder=core.services.embedder, clock=core.clock
        )
        try:
            anchor = scratch.anchor(Actor(Caller.AGENT, Scope(agent="doctor", conversation="doctor")))
            saved = anchor.save_memory("The lighthouse keeper repairs the lamp on Tuesdays")
            answer = anchor.search("when is the lamp of the lighthouse repaired")
            if [snippet.id for snippet in answer.snippets] != [saved.id]:
                raise MemoryAnchorError("what was saved is not found again; please report it")
            anchor.forget(saved.id)
            if anchor.search("when is the lamp of the lighthouse repaired").snippets:
                raise MemoryAnchorError("what was forgotten is still found; please report it")
        finally:
            scratch.close()
    return "saved, found, forgotten"


def _store_loop(core: Core) -> str:
    """Write, read and erase one version on the real store, in a collection that nothing reads."""
    from memory_anchor.domain.model import Layer, Memory, MemoryType, Scope, Status
    from memory_anchor.domain.where import OneOf, Where

    store, at = core.services.store, core.clock.now()
    own = Scope("doctor", "doctor", "doctor", "doctor", "doctor")
    memory = Memory(
        "doctor", "the doctor was here", Layer.EVENT_LOG, MemoryType.NOTE, own, at, at, author="system:doctor"
    )
    entry = core.services.records.entry(memory, embed=True)
    mine = Where((OneOf("audience", (memory.audience,)), OneOf("state", (Status.ACTIVE.value,))))
    try:
        store.put(SCRATCH, [entry])
        read = store.get(SCRATCH, [memory.point_id], with_vectors=True)
        by_words = store.matching(SCRATCH, entry.words, mine, limit=1) if entry.words else []
        if not read or read[0].memory != memory or not by_words:
            raise StoreDamaged("the store does not give back what was just written; stop the engine, restore a backup")
        store.put(SCRATCH, [replace(entry, memory=replace(memory, status=Status.ARCHIVED))])
        if store.count(SCRATCH, mine):
            raise StoreDamaged("the store still finds what was just archived; run `memory-anchor reindex`")
    finally:
        store.erase(SCRATCH, [memory.point_id])
    return "written, read, archived, erased"


def _fix_of(error: MemoryAnchorError, data_dir: Path) -> str:
    if isinstance(error, WrongEmbedder):
        return "memory-anchor reindex"
    if isinstance(error, DiskFull):
        return "free some space on that disk"
    if isinstance(error, StoreDamaged):
        if "newer memory-anchor" in str(error):
            return "upgrade memory-anchor: pip install --upgrade memory-anchor"
        if "older memory-anchor" in str(error):
            return _bring_over(data_dir, "with the version that wrote it: ")
        return SALVAGE if str(data_dir / "store") in str(error) else _restore(data_dir)
    if isinstance(error, BadInput):
        return "correct it; `memory-anchor config` shows every setting and its origin"
    if isinstance(error, Unavailable):
        return "see the sentence above, then run memory-anchor doctor again"
    if isinstance(error, StoreBusy):
        return "let the other process finish, or end an engine: memory-anchor engine stop"
    return f"chmod -R u+rwX {data_dir}" if isinstance(error, Refused) else "see the sentence above"


def _restore(data_dir: Path) -> str:
    """Return the command that restores a file outside of the store, which only backups have."""
    from memory_anchor.admin import nightly

    backups = nightly.listed(data_dir)
    return f"memory-anchor backup restore {backups[-1]['file'] if backups else 'FILE'} --force"


def _bring_over(data_dir: Path, how: str = "") -> str:
    """Return the commands that export the memories and import them into a new store."""
    store, replaced, file = data_dir / "store", data_dir / "replaced-store", "memories.jsonl"
    return f"{how}memory-anchor export {file} --versions; then mv {store} {replaced}; then memory-anchor import {file}"


# --- files outside of the store ------------------------------------------------------------------------------------


def _backups(data_dir: Path, settings: Settings) -> Check:
    """Return when the last backup was made, with a warning where it is late and there is anything to keep."""
    from memory_anchor.admin import nightly

    backups = nightly.listed(data_dir)
    often = f"one every {settings.backup.every_h} h" if settings.backup.every_h else "automatic ones are off"
    if not backups:
        is_new = not (data_dir / "audit" / "audit.jsonl").exists() or settings.backup.every_h == 0
        state: State = "ok" if is_new else "warning"
        return Check("backups", state, f"none yet; {often}", "" if is_new else "memory-anchor backup create")
    last = backups[-1]
    finding = f"{len(backups)}, the last {last['made_at']} at {last['file']}; {often}"
    age_h = (SystemClock().now() - datetime.fromisoformat(last["made_at"])).total_seconds() / 3600
    if settings.backup.every_h and age_h > nightly.LATE_FACTOR * settings.backup.every_h:
        return Check("backups", "warning", finding, "memory-anchor backup create")
    return Check("backups", "ok", finding)


def _unfinished_purge(data_dir: Path, serving: bool) -> Iterator[Check]:
    """Yield an unfinished purge, which the next process to open the store finishes."""
    from memory_anchor.admin.purge import STATE
    from memory_anchor.upkeep.job_kit import load_state

    state = load_state(data_dir / "jobs", STATE)
    if isinstance(state, dict) and "asked" in state:
        finding = f"a purge of {sum(len(ids) for ids in state['asked'].values())} versions did not come to its end; "
        finding += "it is under way, or was cut off" if serving else "whatever opens the store next ends it"
        fix = "if nobody is purging now: memory-anchor engine stop" if serving else "memory-anchor stats"
        yield Check("purge", "warning", finding, fix)


def _purge_to_repeat(core: Core) -> Iterator[Check]:
    """Yield a purge that was cut off before it erased anything, while its memories are still there."""
    from memory_anchor.admin.purge import PURGE_CUT
    from memory_anchor.domain.model import point_id

    cut = core.audit.latest(PURGE_CUT) or {}
    left: dict[str, None] = {}
    for collection, versions in record(cut.get("asked")).items():
        parts = [version.rpartition("@") for version in texts(versions)]
        points = [point_id(name, int(number)) for name, _, number in parts]
        left |= dict.fromkeys(entry.memory.id for entry in core.services.store.get(collection, points))
    if left:
        finding = f"a purge was cut off before it erased anything; {len(left)} memories that it named are still there"
        yield Check("purge", "warning", finding, f"memory-anchor purge {' '.join(list(left)[:PURGED_AT_ONCE])}")


def _salvaged(data_dir: Path) -> Iterator[Check]:
    from memory_anchor.runtime.salvage import last_account

    if (last := last_account(data_dir)) is not None:
        folder, lost = last
        finding = f"the damaged store of the last salvage is in {folder}; its salvage.json names {lost} lost versions"
        yield Check("salvage", "warning" if lost else "ok", finding, f"rm -r {folder}" if not lost else "")


def _audit(data_dir: Path) -> Check:
    from memory_anchor.adapters.audit import JsonlAudit

    path = data_dir / "audit" / "audit.jsonl"
    if not path.parent.exists():
        return Check("audit", "ok", "nothing was written yet")
    try:
        broken = JsonlAudit(path).verify()
    except MemoryAnchorError as error:
        return failed("audit", error)
    if broken is None and not path.exists():
        return Check("audit", "ok", "nothing was written yet")
    if broken is None:
        return Check("audit", "ok", "the whole chain holds")
    fix = "compare it with a backup's audit.jsonl; the memories themselves are not touched by this"
    return Check("audit", "failed", f"{path} breaks at line {broken.line}: {broken.why}", fix, 6)


def _human_key(data_dir: Path) -> Check:
    """Return whether the key here is the first that a human made, with the fingerprint shown at `init`."""
    from memory_anchor.adapters.audit import JsonlAudit
    from memory_anchor.identity.keys import KeyRing

    try:
        keys = KeyRing(data_dir / "identity", JsonlAudit(data_dir / "audit" / "audit.jsonl"))
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
    from memory_anchor.front.cli.setup import identity

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
    from memory_anchor.front.cli.setup import identity

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
    from memory_anchor.adapters.audit import JsonlAudit
    from memory_anchor.identity.approved import numbers_of

    if not schema.initialised or schema.load().entries:
        return ""
    records = JsonlAudit(data_dir / "audit" / "audit.jsonl").records("constitution.")
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
