"""Commands that keep memories safe: reindex, migrate, backup, doctor.

`migrate` works under the directory's lock, without an engine. It copies everything, other agents' private memories too,
so it takes a human's passphrase, except for a dry run, which copies nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from memory_anchor.base.json_values import Record, record, whole
from memory_anchor.domain.errors import TABLE, BadInput, Refused, StoreBusy, StoreDamaged, Unavailable
from memory_anchor.front.cli.guide import group
from memory_anchor.front.cli.link import call, data_dir, read_key
from memory_anchor.front.cli.output import (
    JsonOption,
    KeyFileOption,
    ServerOption,
    Ticker,
    err,
    escaped,
    handle_errors,
    local_time,
    out,
    print_dim,
    show_json,
)
from memory_anchor.front.cli.passphrase import PROMPT, ask_hidden, ask_human, key_ring, unlock
from memory_anchor.front.cli.spinner import Spinner
from memory_anchor.runtime import engine
from memory_anchor.runtime.lock import DirectoryLock

if TYPE_CHECKING:
    from memory_anchor.identity.keys import KeyRing, Signer
    from memory_anchor.runtime.salvage import SalvageReport
    from memory_anchor.settings import IndexSettings

SCHEMES = {"qdrant": "http", "qdrants": "https", "http": "http", "https": "https"}
ALLOWED = "qdrant://HOST:PORT (http), qdrants://HOST:PORT (https), or a folder /… for the client's local mode"


def migrate_store(data_dir: Path, *, source: str, dry: bool, human: Callable[[], Signer], tick: Tick) -> Record:
    """Carry what an earlier release kept on a Qdrant server into the database; return {from, versions, dry_run, left}.

    source: "" for the index of the settings. human: asks for the passphrase; raises Refused. left: what its collections
    still are: "index" of this database from now on, or "old".
    Raises StoreBusy: an engine serves. Refused: the database holds other memories.
    """
    from memory_anchor.adapters.system import SystemClock
    from memory_anchor.admin.moving import move, plan
    from memory_anchor.domain.model import COLLECTIONS
    from memory_anchor.process.app import index_server, old_server, open_store, owner_of, settings_of
    from memory_anchor.store.database import DATABASE_FILE
    from memory_anchor.store.index_follower import FOLLOWED

    settings = settings_of(os.environ)
    origin = _server_settings(source, settings.index) if source else settings.index
    if origin.kind != "qdrant":
        raise BadInput(f"--from names no server, and index.kind is {origin.kind!r}; allowed is {ALLOWED}")
    with closing(old_server(origin)) as server:
        if dry:
            return {"from": server.place, "versions": dict(plan(server)), "dry_run": True, "left": "old"}
        signer = human()
        if engine.status(data_dir) is not None:
            raise StoreBusy("an engine serves this memory; run `memory-anchor engine stop`, then this again")
        os.umask(0o077)
        with DirectoryLock.acquire(data_dir, role="migrate") as lock:
            was_there = (data_dir / DATABASE_FILE).exists()
            try:
                with closing(open_store(settings, data_dir, lock, alone=True)) as store:
                    by = f"human:{signer.approver.name}"

                    def told(collection: str, done: int, total: int) -> None:
                        tick(done, total, f"{collection}: copied")

                    versions = move(server, store, data_dir, by=by, now=SystemClock().now(), tick=told)
                    owner = owner_of(store.database, data_dir)
            except BaseException:
                if not was_there:  # an empty one would hide the trail that lies as a file
                    for path in (data_dir / DATABASE_FILE).parent.glob(f"{Path(DATABASE_FILE).name}*"):
                        path.unlink()
                raise
        answer: Record = {"from": server.place, "versions": dict(versions), "dry_run": False}
    if _place_of(origin) != _place_of(settings.index):
        return {**answer, "left": "old"}
    with closing(index_server(origin, owner)) as index:
        index.hand_over(FOLLOWED, [name for name in COLLECTIONS if name not in FOLLOWED])
    return {**answer, "left": "index"}


def _place_of(chosen: IndexSettings) -> tuple[str, ...]:
    """Return where the settings of a server lead to, however it is written."""
    return (*(address.strip().rstrip("/") for address in chosen.url.split(",")), chosen.path)


def _server_settings(text: str, base: IndexSettings) -> IndexSettings:
    """Return the settings of the server that --from names; key, replicas and the rest come from `base`."""
    if text.startswith(("/", "./", "~")):
        return base.model_copy(update={"kind": "qdrant", "url": "", "path": str(Path(text).expanduser().absolute())})
    urls = []
    for address in text.split(","):
        try:
            parts = urlsplit(address.strip())
            is_one = parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_one = False
        if not is_one:
            raise BadInput(f"--from is {text.rpartition('@')[2][:80]!r}; allowed is {ALLOWED}")
        urls.append(f"{SCHEMES[parts.scheme]}://{parts.netloc}{parts.path.rstrip('/')}")
    return base.model_copy(update={"kind": "qdrant", "url": ",".join(urls), "path": ""})


def register(app: typer.Typer) -> None:
    app.command()(reindex)
    app.command()(migrate)
    app.command()(doctor)
    backup = group(app, "backup", "Backups: create one while serving, list, or restore one.")
    backup.command("create")(backup_create)
    backup.command("restore")(backup_restore)
    backup.command("list")(backup_list)


@handle_errors
def reindex(
    vectors: Annotated[bool, typer.Option("--vectors", help="Embed anew although the embedder is the same.")] = False,
    embedder: Annotated[str | None, typer.Option(metavar="KIND", help="As embedder.kind; no engine may run.")] = None,
    model: Annotated[str | None, typer.Option(help="As embedder.model.")] = None,
    json_: JsonOption = False,
) -> None:
    """Rebuild words and indexes, and vectors where the embedder changed; run it again if it was cut off."""

    ticker = Ticker("embedded", every=500)
    result = reindex_store(data_dir(), vectors=vectors, kind=embedder, model=model, tick=ticker.at)
    ticker.end()
    if json_:
        show_json(result)
    else:
        print_dim(f"done; vectors are of {result['embedder'] or 'no embedder'}")
        if result["set"]:
            out.print(f"now set {escaped(result['set'])} in your settings, or the engine will refuse the store")


@handle_errors
def migrate(
    source: Annotated[
        str, typer.Option("--from", metavar="SERVER", help="As qdrant://HOST:PORT; else the index of the settings.")
    ] = "",
    to: Annotated[str, typer.Option("--to", hidden=True)] = "edge",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be copied; no passphrase.")] = False,
    json_: JsonOption = False,
) -> None:
    """Carry what an earlier release kept on a Qdrant server into the database, once. Needs the passphrase."""
    if to != "edge":
        raise BadInput(
            f"--to is {to.rpartition('@')[2][:80]!r}; a Qdrant server holds an index made of the database: set "
            "index.kind=qdrant and index.url, and the engine fills it"
        )
    ticker = Ticker("copied", every=5_000)
    try:
        result = migrate_store(data_dir(), source=source, dry=dry_run, human=ask_human, tick=ticker.at)
    finally:
        ticker.end()
    if json_:
        show_json(result)
        return
    for name, count in record(result["versions"]).items():
        out.print(f"  {name}: {count} versions")
    if dry_run:
        print_dim(f"at {result['from']}; nothing was copied")
        return
    after = "are an index of this database now" if result["left"] == "index" else "were left as they were"
    print_dim(f"the database holds the same; the collections at {result['from']} {after}")


@handle_errors
def backup_create(
    file: Annotated[Path, typer.Argument(metavar="DIR|FILE", help="A folder, or the file to write.")] = Path(),
    json_: JsonOption = False,
) -> None:
    """Write everything that cannot be rebuilt into one private tar.gz, also while an engine serves."""
    with Spinner("writing the backup"):
        answer = call("backup_create", file=str(file.absolute()))
    if json_:
        show_json(answer)
    else:
        print_dim(f"{answer['versions']} versions, {answer['bytes']} bytes in {answer['file']}")
        if answer.get("dump"):
            print_dim(f"a team's server is restored from a dump of its database: {answer['dump']}")


@handle_errors
def backup_list(json_: JsonOption = False) -> None:
    """Show the backups made of this memory that are still there, oldest first."""
    from memory_anchor.admin.backup_list import listed

    backups = listed(data_dir())
    if json_:
        show_json({"backups": backups})
        return
    for backup in backups:
        kind = "automatic" if backup["automatic"] else "by hand"
        about = f"[dim]{kind}, {backup['bytes']} bytes[/]"
        out.print(f"{escaped(local_time(backup['made_at']))} {about} {escaped(backup['file'])}")
    if not backups:
        print_dim("there is none; the engine makes one a night, or run `memory-anchor backup create`")


@handle_errors
def backup_restore(
    file: Annotated[Path, typer.Argument(help="What `backup create` wrote.")],
    force: Annotated[bool, typer.Option("--force", help="Move what is there aside and take its place.")] = False,
    key: Annotated[bool, typer.Option("--key", help="Only put your own key back, which is gone or replaced.")] = False,
    json_: JsonOption = False,
) -> None:
    """Restore the data directory; with --force what is there is moved away, never deleted."""
    os.umask(0o077)
    if key:
        _restore_key(data_dir(), file.absolute(), json_)
        return
    home, ticker = data_dir(), Ticker("restored")
    with contextlib.ExitStack() as held:
        lock = None if force else held.enter_context(DirectoryLock.acquire(home, role="restore"))
        from memory_anchor.admin import backup  # an engine that has the folder is named before anything is loaded
        from memory_anchor.process.app import open_store, settings_of

        settings = settings_of(os.environ)
        if force and not backup.is_empty(home):
            _require_passphrase(home, file)
            engine.stop(home)
        lock = lock or held.enter_context(DirectoryLock.acquire(home, role="restore"))
        opener = partial(open_store, settings, lock=lock, alone=True)
        result = backup.restore(home, file.absolute(), force=force, lock=lock, open_store=opener, tick=ticker.at)
    ticker.end()
    if json_:
        show_json(result)
        return
    print_dim(f"{result['versions']} versions of {local_time(result['made_at'])}")
    if result["replaced"]:
        print_dim(f"the former directory is in {result['replaced']}; delete it when you are sure")


def _restore_key(home: Path, file: Path, as_json: bool) -> None:
    from memory_anchor.admin import backup

    keys = key_ring(home)
    if not keys.warning():
        raise Refused("the key of this installation is in its place, or none yet; nothing was changed")
    _require_passphrase(home, file)
    moved = backup.put_key_back(file, home)
    if as_json:
        show_json({"fingerprint": keys.fingerprint(), "replaced": moved})
        return
    print_dim(f"your key {keys.fingerprint()} is back in its place")
    if moved:
        print_dim(f"the key that lay there is in {moved}; find out whose it is")


def _require_passphrase(home: Path, file: Path) -> None:
    """Ask for the passphrase where a human has a key, since a restore also brings keys and approved texts.

    Where that key is gone or replaced, the backup's key is asked for instead; it must be the installation's first.
    Raises Refused: no terminal, a wrong passphrase, or the backup holds another key as well.
    """
    from memory_anchor.admin import backup

    with tempfile.TemporaryDirectory() as folder:
        keys = _readable_keys(home, Path(folder))
        if keys.own() is not None:
            unlock(keys, lambda: ask_hidden(PROMPT))
        elif warning := keys.warning():
            backup.unpack_keys(file, Path(folder))
            saved = key_ring(Path(folder))
            if saved.own() is None or saved.fingerprint() != keys.fingerprint():
                raise Refused(f"{warning}; the backup holds no such key either, so nothing was restored")
            unlock(saved, lambda: ask_hidden(PROMPT))


def _readable_keys(home: Path, scratch: Path) -> KeyRing:
    """Return the keys of a directory whose database may be what is damaged: by what its trail still tells."""
    from memory_anchor.identity.keys import KeyRing
    from memory_anchor.store.database import DATABASE_FILE
    from memory_anchor.store.salvaging import readable_trail

    keys = key_ring(home)
    try:
        keys.warning()
    except StoreDamaged:
        return KeyRing(home / "identity", readable_trail(home / DATABASE_FILE, scratch / "damaged"))
    return keys


@handle_errors
def doctor(
    audit: Annotated[bool, typer.Option("--audit", help="Also verify the whole audit trail.")] = False,
    salvage: Annotated[
        bool, typer.Option("--salvage", help="Make a new store of what a damaged one still gives; that one is kept.")
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
    """Check everything a memory depends on, and print the next command for what is wrong."""
    from memory_anchor.front import doctor as examine

    if salvage:
        _salvage(json_)
        return
    if fetch_model:
        _fetch_models(yes, json_)
        return
    from memory_anchor.front.doctor_machine import check_server

    checks, ticker = [], Ticker("vectors compared", every=500)
    local = partial(examine.diagnose, os.environ, data_dir(), audit=audit, deep=deep, tick=ticker.at)
    for check in check_server(server, read_key(key_file)) if server else local():
        checks.append(check)
        if not json_:
            mark = {"ok": "[green]✓[/]", "warning": "[yellow]![/]", "failed": "[red]✗[/]"}[check.state]
            out.print(f"{mark} [bold]{escaped(check.name)}[/] {escaped(check.finding)}")
            if check.fix:
                out.print(f"    [dim]next:[/] {escaped(check.fix)}")
    ticker.end()
    code = examine.exit_code(checks)
    if json_:
        show_json({"ok": code == 0, "checks": [asdict(check) for check in checks]})
    if code:
        raise typer.Exit(code)


def _fetch_models(yes: bool, as_json: bool) -> None:
    """Download the models that the settings ask for and this machine lacks, each after a yes."""
    from memory_anchor.adapters.fetched_models import SOURCE, needed_models
    from memory_anchor.process.app import settings_of

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
    rows = []
    for model in models:
        if not model.is_here:
            question = f"Download {model.model} from {SOURCE} into {model.folder}, for {model.setting}?"
            if not yes and not (sys.stdin.isatty() and typer.confirm(question, default=False, err=True)):
                raise Refused(f"{model.model} was not downloaded; say yes on a terminal, or give --yes")
            err.print(f"[dim]· fetching {escaped(model.model)} from {SOURCE}[/]")
            model.fetch()
        rows.append({"model": model.model, "folder": str(model.folder), "was_here": model.is_here})
        if not as_json:
            print_dim(f"{model.model} is {'already ' if model.is_here else ''}in {model.folder}")
    if as_json:
        show_json({"models": rows})


def _salvage(as_json: bool) -> None:
    from memory_anchor.adapters.system import SystemClock
    from memory_anchor.process.app import settings_of
    from memory_anchor.runtime.salvage import salvage

    with Spinner("reading what the store still gives"):
        account = salvage(settings_of(os.environ), data_dir(), now=SystemClock().now())
    if as_json:
        show_json(account.to_json())
    else:
        _show_salvage(account)
    if account.lost or account.unread_lines or account.lost_records:
        raise typer.Exit(TABLE[StoreDamaged].exit_code)


def _show_salvage(account: SalvageReport) -> None:
    counts = ", ".join(f"{name} {many}" for name, many in account.kept.items())
    if not account.changed:
        print_dim(f"the store is whole and was left as it is: {counts}")
        return
    origins = ", ".join(f"{many} from the {name}" for name, many in account.read.items() if many)
    out.print(f"a new store holds what could be read: {counts} ({origins})")
    for memory in account.from_backups:
        out.print(
            f"  [yellow]from a backup[/] {memory.id}@{memory.version} [dim]{memory.layer}[/] {escaped(memory.backup)}"
        )
    for memory in account.lost:
        named = f"{memory.id}@{memory.version}" if memory.version else f"a version of unknown id, point {memory.id}"
        when = f", recorded {memory.recorded_at}" if memory.recorded_at else ""
        out.print(f"  [red]lost[/] {named} [dim]{memory.layer}{escaped(when)}[/]; no known backup has it")
    if account.reopened:
        print_dim(f"an older version replaces a lost one, look at it with review: {', '.join(account.reopened)}")
    if account.unread_lines:
        out.print(
            f"  [red]lost[/] {account.unread_lines} lines of the audit trail, and each version that only they name"
        )
    if account.lost_records:
        out.print(f"  [red]lost[/] {len(account.lost_records)} records: {escaped(', '.join(account.lost_records))}")
    for note in account.notes:
        print_dim(note)
    print_dim(f"the damaged store is in {account.replaced}; delete it when you are sure")


Tick = Callable[[int, int | None, str], None]


def reindex_store(data_dir: Path, *, vectors: bool, kind: str | None, model: str | None, tick: Tick) -> Record:
    """Rebuild indexes and vectors; return {embedder, set}. set: the settings needed from now on.

    Raises StoreBusy: an engine serves and another embedder was asked for. Unavailable: the embedder cannot run.
    """
    if engine.status(data_dir) is not None:
        if kind is not None or model is not None:
            raise StoreBusy(
                "an engine serves with the embedder of its settings; run `memory-anchor engine stop`, then this again"
            )
        while not (answer := call("reindex", vectors=vectors))["finished"]:
            tick(whole(answer["done"]), whole(answer["total"]), f"{answer['collection']}: {answer['stage']}")
        return {"embedder": answer["embedder"], "set": ""}
    os.umask(0o077)
    embedder = {name: value for name, value in (("kind", kind), ("model", model)) if value is not None}
    with DirectoryLock.acquire(data_dir, role="reindex") as lock:
        return _reindex_here(data_dir, lock, vectors, embedder, tick)


def _reindex_here(data_dir: Path, lock: DirectoryLock, vectors: bool, asked: dict[str, str], tick: Tick) -> Record:
    from memory_anchor.admin.rebuild import Reindex
    from memory_anchor.domain.model import COLLECTIONS
    from memory_anchor.domain.ports import CollectionSpec
    from memory_anchor.process.app import embedder_of, local_of, open_store, settings_of

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
        own, jobs = threading.RLock(), data_dir / "jobs"
        run = Reindex(store, embedder, lock=own, state_dir=jobs, vectors=vectors, local=local)
        for progress in run.steps():
            tick(progress.done, progress.total, f"{progress.collection}: {progress.stage}")
    finally:
        store.close()
    return {
        "embedder": embedder.identity.model if embedder is not None else "",
        "set": ", ".join(f"embedder.{name}={value}" for name, value in asked.items()),
    }
