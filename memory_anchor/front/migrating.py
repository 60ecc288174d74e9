"""`memory-anchor migrate` from the outside: both stores opened under the directory's lock, no engine in between.

Everything leaves through here, other agents' private memories too, so it is a human's: the passphrase is asked for
unless it is a dry run, which copies nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from memory_anchor.errors import BadInput, Refused, StoreBusy
from memory_anchor.json_values import Json, Record
from memory_anchor.runtime import engine
from memory_anchor.runtime.lock import DirectoryLock

if TYPE_CHECKING:
    from memory_anchor.identity.approval import Signer
    from memory_anchor.ports import MemoryStore
    from memory_anchor.settings import StoreSettings

Tick = Callable[[int, int | None, str], None]
SCHEMES = {"qdrant": "http", "qdrants": "https", "http": "http", "https": "https"}
ALLOWED = "edge, qdrant://HOST:PORT (http), qdrants://HOST:PORT (https), or a folder /… for the client's local mode"


def migrated(data_dir: Path, *, to: str, source: str, dry: bool, human: Callable[[], Signer], tick: Tick) -> Record:
    """Copy and compare; return {from, to, collections, resumed, set}. set: what the settings must say now.

    source: "" for the store of the settings. human: asks for the passphrase; raises Refused.
    Raises StoreBusy: an engine serves. Refused: the same store twice, a target that is not empty.
    """
    from memory_anchor.app import embedder_of, local_of, open_store, settings_of
    from memory_anchor.care.rebuild import Migration, differing, planned
    from memory_anchor.ports import DENSE, DENSE_LOCAL

    settings = settings_of(os.environ)
    there = _chosen(to, settings.store, "--to")
    here = _chosen(source, settings.store, "--from") if source else settings.store
    names = (_named(here, data_dir), _named(there, data_dir))
    if names[0] == names[1]:
        raise Refused(f"memories are in {names[0]} already; nothing to migrate")
    signer = None if dry else human()
    if engine.status(data_dir) is not None:
        raise StoreBusy("an engine serves this memory; run `memory-anchor engine stop`, then this again")
    os.umask(0o077)
    with DirectoryLock.acquire(data_dir, role="migrate") as lock, ExitStack() as opened:

        def store_of(one: StoreSettings) -> MemoryStore:
            chosen = settings.model_copy(update={"store": one})
            return opened.enter_context(closing(open_store(chosen, data_dir, lock)))

        makers = {DENSE: embedder_of(settings, data_dir), DENSE_LOCAL: local_of(settings, data_dir)}
        who = {name: one.identity for name, one in makers.items() if one is not None}
        jobs = data_dir / "jobs"
        told: dict[str, Json] = {"from": names[0], "to": names[1], "resumed": False, "dry_run": dry}
        if dry:
            target = store_of(there) if there.url or Path(names[1]).exists() else None
            plan = planned(store_of(here), target, names=names, embedders=who, state_dir=jobs)
            return {
                **told,
                "resumed": any(one["copied"] for one in plan.values()),
                "collections": {
                    name: {"versions": one["versions"], "vectors": one["vectors"], "copied": one["copied"]}
                    for name, one in plan.items()
                },
                "set": "",
            }
        run = Migration(store_of(here), store_of(there), names=names, embedders=who, state_dir=jobs)
        told["resumed"] = run.is_resumed
        for step in run.copy():
            tick(step.done, step.total, f"{step.collection}: {step.doing}")
        sides: dict[str, Record] = {}
        for one in run.compare():
            if isinstance(one, tuple):
                name, before, after = one
                if not before.holds_as(after):
                    raise differing(name, before, after, names)
                waiting = {v: after.versions - many for v, many in after.embedded.items() if many < before.versions}
                sides[name] = {"versions": after.versions, "history": after.history, "to_embed": waiting}
            else:
                tick(one.done, one.total, f"{one.collection}: {one.doing}")
        _settle(data_dir, told | {"versions": {name: one["versions"] for name, one in sides.items()}}, signer)
        run.finish()
    return {**told, "collections": sides, "set": _settings_for(there)}


def _settle(data_dir: Path, told: Record, signer: Signer | None) -> None:
    """Record the move in the audit trail, and drop what was derived from the store that was left."""
    from memory_anchor.adapters.audit import JsonlAudit
    from memory_anchor.adapters.snapshot_file import SNAPSHOT_FILE
    from memory_anchor.adapters.system import SystemClock

    by = f"human:{signer.approver.name}" if signer is not None else "system"
    what = {name: told[name] for name in ("from", "to", "versions")}
    JsonlAudit(data_dir / "audit" / "audit.jsonl").append("store.migrated", what, by=by, at=SystemClock().now())
    (data_dir / SNAPSHOT_FILE).unlink(missing_ok=True)


def _chosen(text: str, below: StoreSettings, option: str) -> StoreSettings:
    """Return the settings of the store that an option names; key, replicas and the rest are those of the settings."""
    if text == "edge":
        return below.model_copy(update={"kind": "edge", "url": "", "path": ""})
    if text.startswith(("/", "./", "~")):
        return below.model_copy(update={"kind": "qdrant", "url": "", "path": str(Path(text).expanduser().absolute())})
    urls = []
    for one in text.split(","):
        parts = urlsplit(one.strip())
        if parts.scheme not in SCHEMES or not parts.hostname:
            raise BadInput(f"{option} is {text[:80].rpartition('@')[2]!r}; allowed is {ALLOWED}")
        urls.append(f"{SCHEMES[parts.scheme]}://{parts.netloc}{parts.path.rstrip('/')}")
    return below.model_copy(update={"kind": "qdrant", "url": ",".join(urls), "path": ""})


def _named(chosen: StoreSettings, data_dir: Path) -> str:
    """Return what a store is called in messages and records: never with a key."""
    from memory_anchor.adapters.qdrant_link import addresses, shown

    if chosen.kind == "edge":
        return str(data_dir / "store")
    return chosen.path or ", ".join(map(shown, addresses(chosen.url)))


def _settings_for(chosen: StoreSettings) -> str:
    if chosen.kind == "edge":
        return "store.kind=edge"
    return f"store.kind=qdrant, {'store.url' if chosen.url else 'store.path'}={_named(chosen, Path())}"
