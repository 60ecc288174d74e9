"""Commands that keep memories safe: reindex, migrate, backup, doctor.

`migrate` opens both stores under the directory's lock, with no engine in between. Everything leaves through it, other
agents' private memories too, so it is a human's: the passphrase is asked for unless it is a dry run, which copies
nothing.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from memory_anchor.errors import TABLE, BadInput, Refused, StoreBusy, StoreDamaged, Unavailable
from memory_anchor.front.cli.guide import group
from memory_anchor.front.cli.link import call, data_dir, key_of
from memory_anchor.front.cli.moving import Ticker
from memory_anchor.front.cli.output import (
    JsonOption,
    KeyFileOption,
    ServerOption,
    err,
    guarded,
    local,
    out,
    quiet,
    show_json,
    shown,
)
from memory_anchor.front.cli.passphrase import PROMPT, ask_hidden, ask_human, key_ring, opened
from memory_anchor.json_values import Json, Record, record, whole
from memory_anchor.runtime import engine
from memory_anchor.runtime.lock import DirectoryLock

if TYPE_CHECKING:
    from memory_anchor.identity.keys import Signer
    from memory_anchor.ports import MemoryStore
    from memory_anchor.runtime.salvage import Account
    from memory_anchor.settings import StoreSettings

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
    from memory_anchor.adapters.qdrant_link import addresses, without_credentials

    if chosen.kind == "edge":
        return str(data_dir / "store")
    return chosen.path or ", ".join(map(without_credentials, addresses(chosen.url)))


def _settings_for(chosen: StoreSettings) -> str:
    if chosen.kind == "edge":
        return "store.kind=edge"
    return f"store.kind=qdrant, {'store.url' if chosen.url else 'store.path'}={_named(chosen, Path())}"


def register(app: typer.Typer) -> None:
    app.command()(reindex)
    app.command()(migrate)
    app.command()(doctor)
    backup = group(app, "backup", "Backups: create one while serving, list, or restore one.")
    backup.command("create")(backup_create)
    backup.command("restore")(backup_restore)
    backup.command("list")(backup_list)


@guarded
def reindex(
    vectors: Annotated[bool, typer.Option("--vectors", help="Embed anew although the embedder is the same.")] = False,
    embedder: Annotated[str | None, typer.Option(metavar="KIND", help="As embedder.kind; no engine may run.")] = None,
    model: Annotated[str | None, typer.Option(help="As embedder.model.")] = None,
    json_: JsonOption = False,
) -> None:
    """Make words and indexes anew, and vectors where the embedder changed; run it again if it was cut off."""

    ticker = Ticker("embedded", every=500)
    told = reindexed(data_dir(), vectors=vectors, kind=embedder, model=model, tick=ticker.at)
    ticker.end()
    if json_:
        show_json(told)
    else:
        quiet(f"done; vectors are of {told['embedder'] or 'no embedder'}")
        if told["set"]:
            out.print(f"now set {shown(told['set'])} in your settings, or the engine will refuse the store")


@guarded
def migrate(
    to: Annotated[str, typer.Option("--to", metavar="STORE", help="edge, qdrant://HOST:PORT or qdrants://HOST:PORT.")],
    source: Annotated[
        str, typer.Option("--from", metavar="STORE", help="The same; without it the store of the settings.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be copied; no passphrase.")] = False,
    json_: JsonOption = False,
) -> None:
    """Copy every memory into another store and compare both; run it again if it was cut off. Needs the passphrase."""

    ticker = Ticker("copied", every=5_000)
    try:
        told = migrated(data_dir(), to=to, source=source, dry=dry_run, human=ask_human, tick=ticker.at)
    finally:
        ticker.end()
    if json_:
        show_json(told)
        return
    for name, one in record(told["collections"]).items():
        waiting = ", ".join(
            f"{many} wait for {vector}" for vector, many in record(record(one).get("to_embed", {})).items() if many
        )
        out.print(f"  {name}: {record(one)['versions']} versions{f' [dim]({waiting})[/]' if waiting else ''}")
    if dry_run:
        quiet(f"from {told['from']} to {told['to']}; nothing was copied")
        return
    quiet(f"{told['to']} holds the same as {told['from']}, which was left as it is")
    out.print(f"now set {shown(told['set'])} in your settings, then start the engine")


@guarded
def backup_create(
    file: Annotated[Path, typer.Argument(metavar="DIR|FILE", help="A folder, or the file to write.")] = Path(),
    json_: JsonOption = False,
) -> None:
    """Write everything that cannot be made anew into one private tar.gz, also while an engine serves."""
    ticker = Ticker("backup: versions")
    ticker.at(0)
    told = call("backup_create", file=str(file.absolute()))
    ticker.end()
    if json_:
        show_json(told)
    else:
        quiet(f"{told['versions']} versions, {told['bytes']} bytes in {told['file']}")


@guarded
def backup_list(json_: JsonOption = False) -> None:
    """Show the backups made of this memory that are still there, oldest first."""
    from memory_anchor.care.nightly import listed

    backups = listed(data_dir())
    if json_:
        show_json({"backups": backups})
        return
    for one in backups:
        kind = "automatic" if one["automatic"] else "by hand"
        out.print(f"{shown(local(one['made_at']))} [dim]{kind}, {one['bytes']} bytes[/] {shown(one['file'])}")
    if not backups:
        quiet("there is none; the engine makes one a night, or run `memory-anchor backup create`")


@guarded
def backup_restore(
    file: Annotated[Path, typer.Argument(help="What `backup create` wrote.")],
    force: Annotated[bool, typer.Option("--force", help="Move what is there aside and take its place.")] = False,
    key: Annotated[bool, typer.Option("--key", help="Only put your own key back, which is gone or replaced.")] = False,
    json_: JsonOption = False,
) -> None:
    """Make the data directory what it was; what is there is moved aside with --force, never deleted."""
    from memory_anchor.app import open_store, settings_of
    from memory_anchor.care import backup
    from memory_anchor.runtime import engine
    from memory_anchor.runtime.lock import DirectoryLock

    os.umask(0o077)
    if key:
        _key_put_back(data_dir(), file.absolute(), json_)
        return
    home, settings, ticker = data_dir(), settings_of(os.environ), Ticker("restored")
    if force and not backup.is_empty(home):
        _let_the_human_decide(home, file)
        engine.stop(home)
    with DirectoryLock.acquire(home, role="restore") as lock:
        told = backup.restore(
            home,
            file.absolute(),
            force=force,
            lock=lock,
            open_store=lambda folder: open_store(settings, folder, lock),
            tick=ticker.at,
        )
    ticker.end()
    if json_:
        show_json(told)
        return
    quiet(f"{told['versions']} versions of {local(told['made_at'])}")
    if told["replaced"]:
        quiet(f"what was there lies in {told['replaced']}; delete it when you are sure")


def _key_put_back(home: Path, file: Path, as_json: bool) -> None:
    from memory_anchor.care import backup

    keys = key_ring(home)
    if not keys.warning():
        raise Refused("the key of this installation is in its place, or none was made yet; nothing was changed")
    _let_the_human_decide(home, file)
    moved = backup.put_key_back(file, home)
    if as_json:
        show_json({"fingerprint": keys.fingerprint(), "replaced": moved})
        return
    quiet(f"your key {keys.fingerprint()} is back in its place")
    if moved:
        quiet(f"the key that lay there is in {moved}; find out whose it is")


def _let_the_human_decide(home: Path, file: Path) -> None:
    """Ask for the passphrase where a human has a key: a restore also brings keys and approved texts.

    Where that key was moved away or another one lies there, the backup's opens the way: it must be the installation's
    first one, and its passphrase is asked for.
    Raises Refused: no terminal, another passphrase, or the backup's key is a stranger's too.
    """
    from memory_anchor.care import backup

    keys = key_ring(home)
    if keys.own() is not None:
        opened(keys, lambda: ask_hidden(PROMPT))
    elif warning := keys.warning():
        with tempfile.TemporaryDirectory() as folder:
            backup.unpack_keys(file, Path(folder))
            kept = key_ring(Path(folder))
            if kept.own() is None or kept.fingerprint() != keys.fingerprint():
                raise Refused(f"{warning}; the backup holds no such key either, so nothing was restored")
            opened(kept, lambda: ask_hidden(PROMPT))


@guarded
def doctor(
    audit: Annotated[bool, typer.Option("--audit", help="Also verify the whole audit trail.")] = False,
    salvage: Annotated[
        bool,
        typer.Option("--salvage", help="Make a new store of what a damaged one still gives; that one is kept."),
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also make every vector anew and compare (0.1 s a memory).")
    ] = False,
    fetch_model: Annotated[
        bool, typer.Option("--fetch-model", help="Download the fastembed models that the settings ask for.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Download without asking.")] = False,
    server: ServerOption = "",
    key_file: KeyFileOption = "",
    json_: JsonOption = False,
) -> None:
    """Check everything a memory stands on, and print the next command for what is wrong."""
    from memory_anchor.front import doctor as examine

    if salvage:
        _salvaged(json_)
        return
    if fetch_model:
        _fetched(yes, json_)
        return
    from memory_anchor.front.doctor_machine import look_at

    checks, ticker = [], Ticker("vectors compared", every=500)
    here = partial(examine.diagnose, os.environ, data_dir(), audit=audit, deep=deep, tick=ticker.at)
    for check in look_at(server, key_of(key_file)) if server else here():
        checks.append(check)
        if not json_:
            mark = {"ok": "[green]✓[/]", "warning": "[yellow]![/]", "failed": "[red]✗[/]"}[check.state]
            out.print(f"{mark} [bold]{shown(check.name)}[/] {shown(check.told)}")
            if check.fix:
                out.print(f"    [dim]next:[/] {shown(check.fix)}")
    ticker.end()
    code = examine.exit_code(checks)
    if json_:
        show_json({"ok": code == 0, "checks": [asdict(check) for check in checks]})
    if code:
        raise typer.Exit(code)


def _fetched(yes: bool, as_json: bool) -> None:
    """Download what the settings ask for and this machine lacks, after the user's word for each."""
    from memory_anchor.adapters.fetched_models import SOURCE, needed_models
    from memory_anchor.app import settings_of

    settings = settings_of(os.environ)
    models = needed_models(
        data_dir(),
        kind=settings.embedder.kind,
        model=settings.embedder.model,
        model_path=settings.embedder.model_path,
        reranker=settings.retrieval.reranker,
        reranker_path=settings.retrieval.reranker_path,
    )
    if not models:
        raise BadInput(
            f"--fetch-model has nothing to do with embedder.kind {settings.embedder.kind} and retrieval.reranker "
            f"{settings.retrieval.reranker}; it serves fastembed without a folder of its own"
        )
    os.umask(0o077)
    told = []
    for model in models:
        if not model.is_here:
            question = f"Download {model.model} from {SOURCE} into {model.folder}, for {model.setting}?"
            if not yes and not (sys.stdin.isatty() and typer.confirm(question, default=False, err=True)):
                raise Refused(f"{model.model} was not downloaded; say yes on a terminal, or give --yes")
            err.print(f"[dim]· fetching {shown(model.model)} from {SOURCE}[/]")
            model.fetch()
        told.append({"model": model.model, "folder": str(model.folder), "was_here": model.is_here})
        if not as_json:
            quiet(f"{model.model} is {'already ' if model.is_here else ''}in {model.folder}")
    if as_json:
        show_json({"models": told})


def _salvaged(as_json: bool) -> None:
    from memory_anchor.adapters.system import SystemClock
    from memory_anchor.app import settings_of
    from memory_anchor.runtime.salvage import salvage

    account = salvage(settings_of(os.environ), data_dir(), now=SystemClock().now())
    if as_json:
        show_json(account.to_json())
    else:
        _show_account(account)
    if account.lost:
        raise typer.Exit(TABLE[StoreDamaged].exit_code)


def _show_account(account: Account) -> None:
    counts = ", ".join(f"{name} {many}" for name, many in account.kept.items())
    if not account.changed:
        quiet(f"the store is whole and was left as it is: {counts}")
        return
    told = ", ".join(f"{many} from the {name}" for name, many in account.read.items() if many)
    out.print(f"a new store holds what could be read: {counts} ({told})")
    for one in account.from_backups:
        out.print(f"  [yellow]from a backup[/] {one.id}@{one.version} [dim]{one.layer}[/] {shown(one.backup)}")
    for one in account.lost:
        named = f"{one.id}@{one.version}" if one.version else f"a version of unknown id, point {one.id}"
        when = f", recorded {one.recorded_at}" if one.recorded_at else ""
        out.print(f"  [red]lost[/] {named} [dim]{one.layer}{shown(when)}[/]; no known backup has it")
    if account.reopened:
        quiet(f"an older version stands for a lost one, look at it with review: {', '.join(account.reopened)}")
    for note in account.notes:
        quiet(note)
    quiet(f"the damaged store lies in {account.replaced}; delete it when you are sure")


Tick = Callable[[int, int | None, str], None]


def reindexed(data_dir: Path, *, vectors: bool, kind: str | None, model: str | None, tick: Tick) -> Record:
    """Do the whole work, telling how far it is; return {embedder, set}. set: what the settings must say now.

    Raises StoreBusy: an engine serves and another embedder was asked for. Unavailable: the embedder cannot run.
    """
    if engine.status(data_dir) is not None:
        if kind is not None or model is not None:
            raise StoreBusy(
                "an engine serves with the embedder of its settings; run `memory-anchor engine stop`, then this again"
            )
        return _in_the_engine(vectors, tick)
    os.umask(0o077)
    asked = {name: value for name, value in (("kind", kind), ("model", model)) if value is not None}
    with DirectoryLock.acquire(data_dir, role="reindex") as lock:
        return _here(data_dir, lock, vectors, asked, tick)


def _in_the_engine(vectors: bool, tick: Tick) -> Record:
    from memory_anchor.front.cli.link import call

    told = call("reindex", vectors=vectors)
    while not told["finished"]:
        tick(whole(told["done"]), whole(told["total"]), f"{told['collection']}: {told['stage']}")
        told = call("reindex", vectors=vectors)
    return {"embedder": told["embedder"], "set": ""}


def _here(data_dir: Path, lock: DirectoryLock, vectors: bool, asked: dict[str, str], tick: Tick) -> Record:
    from memory_anchor.app import embedder_of, local_of, open_store, settings_of
    from memory_anchor.care.rebuild import Reindex
    from memory_anchor.model import COLLECTIONS
    from memory_anchor.ports import CollectionSpec

    settings = settings_of(os.environ, {"embedder": asked} if asked else None)
    embedder, local = embedder_of(settings, data_dir), local_of(settings, data_dir)
    if embedder is not None and not embedder.available():
        raise Unavailable(
            f"embedder {embedder.identity.model} cannot run here without a download; run `memory-anchor doctor "
            "--fetch-model`, set embedder.model_path, or choose another with --embedder"
        )
    store = open_store(settings, data_dir, lock)
    try:
        for name in COLLECTIONS:
            store.open_collection(name, CollectionSpec({}))
        run = Reindex(
            store,
            embedder,
            lock=threading.RLock(),
            state_dir=data_dir / "jobs",
            vectors=vectors,
            local=local,
        )
        for progress in run.steps():
            tick(progress.done, progress.total, f"{progress.collection}: {progress.stage}")
    finally:
        store.close()
    return {
        "embedder": embedder.identity.model if embedder is not None else "",
        "set": ", ".join(f"embedder.{name}={value}" for name, value in asked.items()),
    }
