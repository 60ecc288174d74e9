"""Backups: one private tar.gz with everything that cannot be computed again, and its restore.

Made while serving, under the writers' lock: every version with its vectors (so that restoring embeds nothing), the
audit trail, identity, projects, proposals, jobs. Shard files are not copied: they are a hundred times as large as their
content, and change all the time. The manifest, first in the archive, has every member's hash, and nothing is changed
before all of them match.

Restoring builds the new directory next to the old one and then moves entries in under a journal: the old ones to
`replaced-N/`, the new ones to their place. The journal is written when the new side is complete, and the next process
that opens the directory finishes it, so a crash leaves the old or the new. Rejected: renaming the directory itself,
which removes its lock and its running engine's socket, and takes two renames with nothing in between.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, TypedDict

from memory_anchor.adapters.payload import from_payload, to_payload
from memory_anchor.adapters.restoring import JOURNAL, STAGING, finish_restore
from memory_anchor.adapters.snapshot_file import ROWS_FILE, SNAPSHOT_FILE
from memory_anchor.admin.backup_list import KNOWN_FILE, add_known, known_backups, remove_known, remove_left
from memory_anchor.admin.backup_manifest import FORMAT, CollectionPart, Manifest, read_manifest
from memory_anchor.admin.left_behind import REPLACED
from memory_anchor.admin.waiting import texts_in
from memory_anchor.base.files import file_error, make_folder, make_private, replace_durably, write_atomic
from memory_anchor.base.idempotency import FOLDER as REQUESTS
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, NotFound, Refused, StoreDamaged
from memory_anchor.domain.model import COLLECTIONS
from memory_anchor.domain.ports import CollectionSpec, Entry
from memory_anchor.domain.where import Where
from memory_anchor.identity.keys import KeyRing
from memory_anchor.identity.proposals import proposals_of
from memory_anchor.runtime.wire import VERSION
from memory_anchor.store.audit_rows import SqlAudit, move_in
from memory_anchor.store.index_follower import INDEX_OWNER_FILE
from memory_anchor.store.record_rows import SqlRecords
from memory_anchor.store.sql_store import SqlStore

if TYPE_CHECKING:
    from memory_anchor.admin.traces import PurgeTraces
    from memory_anchor.domain.ports import Matrix, MemoryStore
    from memory_anchor.process.wiring import Core
    from memory_anchor.runtime.lock import DirectoryLock

MANIFEST = "manifest.json"
AUDIT = "audit"
STAYS = frozenset(
    {
        *("store.lock", "records.lock", "service.lock", "run", "logs", "handshakes", "backups", "sync"),
        *(REQUESTS, "runner", KNOWN_FILE, JOURNAL, INDEX_OWNER_FILE),
    }
)
"""Entries of a data directory that belong to the machine, not to a backup; the store is backed up as its memories."""
CHUNK = 1_000
"""Versions per member: a restore holds one chunk in memory."""
MANIFEST_BYTES_MAX = 64 << 20
COPY_BYTES = 1 << 20
GZIP_LEVEL = 3
"""Vectors do not compress; a higher level costs time and gains nothing."""
SAME_SECOND_MAX = 100
KEY_MEMBERS = ("identity/approver.json", "identity/known_approvers.json")


# --- create ----------------------------------------------------------------------------------------------------


class MadeBackup(TypedDict):
    """versions: how many it holds."""

    file: str
    bytes: int
    versions: int


class Restored(TypedDict):
    """What a restore came to. replaced: where the old entries lie now, "" for none."""

    versions: int
    made_at: str
    replaced: str


def create(core: Core, target: Path) -> MadeBackup:
    """Write a backup to `target` (in a folder: to a file named after the time); return {file, bytes, versions}.

    Raises DiskFull, Refused: it cannot be written, or the file exists; nothing is left then.
    """
    now = core.clock.now()
    target = free_target(target, now)
    parts = target.with_name(f".{target.name}.{os.getpid()}.parts")
    try:
        make_folder(target.parent)
        add_known(core.data_dir, target, now.isoformat())  # before: what a kill leaves of it is found again
        parts.mkdir(mode=0o700)
        core.services.usage.flush()
        with contextlib.ExitStack() as held:
            for extension in core.running.values():  # before the writers' lock, which what they are at may wait for
                held.enter_context(extension.frozen())
            held.enter_context(core.services.records.lock)
            collections = {name: _write_collection(core.services.store, name, parts) for name in COLLECTIONS}
            with core.audit.paused():
                _copy_files(core, parts)
                core.audit.write_files(parts / "files" / AUDIT)
                core.records.write_files(parts / "files", but=STAYS)
        manifest: Manifest = {
            "format": FORMAT,
            "version": VERSION,
            "made_at": now.isoformat(),
            "store": core.services.store.kind,
            "collections": collections,
            "files": {},
        }
        _pack(parts, manifest, target)
        add_known(core.data_dir, target, now.isoformat())
        versions = sum(part["versions"] for part in collections.values())
        return {"file": str(target), "bytes": target.stat().st_size, "versions": versions}
    except OSError as error:
        raise file_error(error, target) from error
    finally:
        shutil.rmtree(parts, ignore_errors=True)
        if not target.exists():
            remove_known(core.data_dir, target)


def free_target(target: Path, now: datetime) -> Path:
    """Return the file that a backup to `target` writes. Raises Refused: it exists already."""
    if target.is_dir():
        return _free_name(target, f"memory-anchor-{now:%Y%m%dT%H%M%SZ}")
    if os.path.lexists(target):
        raise Refused(f"{target} is there already; a backup is a new file: name another, or a folder")
    return target


def describe_backup(file: Path) -> MadeBackup:
    """Return what `create` returned for this backup."""
    try:
        with tarfile.open(file, mode="r:gz") as archive:
            versions = sum(part["versions"] for part in _manifest(archive)["collections"].values())
    except (OSError, tarfile.TarError, KeyError, ValueError) as error:
        raise Refused(f"{file} is there already and is no backup of ours; name another file") from error
    return {"file": str(file), "bytes": file.stat().st_size, "versions": versions}


def _free_name(folder: Path, name: str) -> Path:
    """Return an unused file name in a folder; several backups may be made in one second."""
    names = (folder / f"{name}{f'-{number}' if number else ''}.tar.gz" for number in range(SAME_SECOND_MAX))
    free = next((path for path in names if not os.path.lexists(path)), None)
    if free is None:
        raise Refused(f"{folder} holds {SAME_SECOND_MAX} backups of this second; try again")
    return free


def _write_collection(store: MemoryStore, name: str, parts: Path) -> CollectionPart:
    """Write one collection's versions and vectors in chunks; return its entry in the manifest."""
    from memory_anchor.upkeep.job_kit import pages

    versions = 0
    for chunk, entries in enumerate(pages(store, name, Where(), size=CHUNK, with_vectors=True)):
        if entries:
            _write_chunk(parts, f"{name}-{chunk:06d}", entries)
        versions += len(entries)
    return {"versions": versions, "embedders": dict(store.embedders(name))}


def _write_chunk(parts: Path, name: str, entries: list[Entry]) -> None:
    import numpy as np

    make_private(parts / "memories")
    lines = [json.dumps(to_payload(entry.memory), ensure_ascii=False) + "\n" for entry in entries]
    (parts / "memories" / f"{name}.jsonl").write_bytes("".join(lines).encode())
    arrays: dict[str, Any] = {}
    for vector in sorted({key for entry in entries for key in entry.vectors}):
        embedded = [entry for entry in entries if vector in entry.vectors]
        arrays[f"points|{vector}"] = np.asarray([entry.memory.point_id for entry in embedded])
        arrays[f"rows|{vector}"] = np.stack([entry.vectors[vector] for entry in embedded]).astype(np.float32)
    with (parts / "memories" / f"{name}.npz").open("wb") as file:
        np.savez(file, **arrays)


def _copy_files(core: Core, parts: Path) -> None:
    """Copy everything but the store: files are small, and replaced atomically or appended to."""
    skipped = ("store", "index", SNAPSHOT_FILE, ROWS_FILE)  # the store is exported; derived files are not backed up
    for path in sorted(core.data_dir.iterdir()):
        if not _belongs(path.name) or path.name in skipped:
            continue
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            name = file.relative_to(core.data_dir).as_posix()
            if file.is_symlink() or not file.is_file() or file.suffix in (".lock", ".tmp", ".new"):
                continue
            (parts / "files" / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copyfile(file, parts / "files" / name)
    for project, aliases in core.projects.all().items():
        for proposal, content in proposals_of(core.data_dir, project, aliases).items():
            copy = parts / "files" / "imported" / "proposals" / project / f"{proposal}.yaml"
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            copy.write_text(content, encoding="utf-8", newline="")


def _belongs(name: str) -> bool:
    return name not in STAYS and not name.startswith((REPLACED, STAGING))


def _pack(parts: Path, manifest: Manifest, target: Path) -> None:
    """Write the archive next to its place, durable, and rename it."""
    files = {path.relative_to(parts).as_posix(): path for path in sorted(parts.rglob("*")) if path.is_file()}
    full: Manifest = {**manifest, "files": {name: _fingerprint(path) for name, path in files.items()}}
    head = json.dumps(full, default=asdict, ensure_ascii=False, indent=1).encode("utf-8", "backslashreplace")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with (
            os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as raw,
            tarfile.open(fileobj=raw, mode="w:gz", compresslevel=GZIP_LEVEL) as archive,
        ):
            archive.addfile(_member(MANIFEST, len(head)), io.BytesIO(head))
            for name, path in files.items():
                with path.open("rb") as content:
                    archive.addfile(_member(name, path.stat().st_size), content)
        replace_durably(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    return member


def _fingerprint(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size


# --- read --------------------------------------------------------------------------------------------------------


def unpack(file: Path, folder: Path) -> Manifest:
    """Unpack a backup into the new folder `folder` and return its manifest, which every byte was compared with.

    Raises NotFound: no such file. StoreDamaged: it is no backup of ours, or was changed.
    """
    if not file.is_file():
        raise NotFound(f"no backup {file}; `memory-anchor backup create` writes one")
    make_private(folder)
    try:
        with tarfile.open(file, mode="r:gz") as archive:
            manifest = _manifest(archive)
            missing = dict(manifest["files"])
            folded = {name.casefold(): name.casefold().partition("/")[2].partition("/")[0] for name in missing}
            if len(folded) < len(missing) or STAYS & set(folded.values()):  # somewhere letter case means nothing
                raise ValueError("names")
            for member in archive:
                if member.name == MANIFEST:
                    continue
                digest, size = missing.pop(member.name)
                source = archive.extractfile(member)
                if source is None or not _stays_inside(member.name) or member.size != size:
                    raise ValueError(member.name)
                _unpack(source, folder / member.name, digest)
            if missing:
                raise ValueError(min(missing))
            return manifest
    except (tarfile.TarError, OSError, EOFError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise file_error(error, folder) from error
        raise StoreDamaged(
            f"{file} is not a whole backup of memory-anchor ({type(error).__name__}); nothing was changed, use another."
        ) from error


def unpack_keys(file: Path, folder: Path) -> None:
    """Copy only a backup's key files below the new folder `folder`; see `unpack` for what it raises."""
    make_private(folder)
    try:
        with tarfile.open(file, mode="r:gz") as archive:
            digests = _manifest(archive)["files"]
            remaining = {f"files/{name}" for name in KEY_MEMBERS} & digests.keys()
            while remaining and (member := archive.next()) is not None:
                source = archive.extractfile(member) if member.name in remaining else None
                if source is not None:
                    remaining.remove(member.name)
                    _unpack(source, folder / member.name.removeprefix("files/"), digests[member.name][0])
    except (tarfile.TarError, OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise StoreDamaged(f"{file} is not a whole backup of memory-anchor ({type(error).__name__})") from error


def newest_with_key(data_dir: Path, fingerprint: str) -> str:
    """Return the newest known backup that holds the human's key of this fingerprint, "" for none."""
    for backup in reversed(known_backups(data_dir)):
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(MemoryAnchorError):
            unpack_keys(Path(backup["file"]), Path(folder))
            if KeyRing(Path(folder) / "identity").fingerprint() == fingerprint:
                return str(backup["file"])
    return ""


def put_key_back(file: Path, data_dir: Path) -> str:
    """Put a backup's key into its place, and the list of vouched colleagues if that is missing.

    Return where another key that was there was moved, "" for none. The caller has checked whose key it is.
    """
    aside, moved = data_dir / next_aside(data_dir), ""
    with tempfile.TemporaryDirectory() as folder:
        unpack_keys(file, Path(folder))
        try:
            for name in KEY_MEMBERS:
                target, copy = data_dir / name, Path(folder) / name
                if not copy.is_file() or (os.path.lexists(target) and name != KEY_MEMBERS[0]):
                    continue
                if os.path.lexists(target):
                    make_private(aside)
                    target.replace(aside / target.name)
                    moved = str(aside)
                write_atomic(target, copy.read_bytes())
        except OSError as error:
            raise file_error(error, data_dir) from error
    return moved


def _stays_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name and "\0" not in name


def _manifest(archive: tarfile.TarFile) -> Manifest:
    first = archive.next()
    content = archive.extractfile(first) if first is not None and first.name == MANIFEST else None
    if first is None or content is None or first.size > MANIFEST_BYTES_MAX:
        raise ValueError("the manifest is missing")
    return read_manifest(content.read())


def _unpack(source: IO[bytes], path: Path, digest: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    hashed = hashlib.sha256()
    with path.open("xb") as target:
        while chunk := source.read(COPY_BYTES):
            hashed.update(chunk)
            target.write(chunk)
    if hashed.hexdigest() != digest:
        raise ValueError(path.name)


def chunks(folder: Path, manifest: Manifest) -> Iterator[tuple[str, list[Entry]]]:
    """Yield (collection, entries) of an unpacked backup, with new words and the stored vectors."""
    from memory_anchor.language.indexing import searched_words

    for collection in manifest["collections"]:
        for path in sorted((folder / "memories").glob(f"{collection}-*.jsonl")):
            with path.open("rb") as file:
                memories = [from_payload(json.loads(line)) for line in file]
            rows = _rows(path.with_suffix(".npz"))
            yield collection, [Entry(m, rows.get(m.point_id, {}), searched_words(m)) for m in memories]


def _rows(path: Path) -> dict[str, dict[str, Matrix]]:
    """Return point id -> vector name -> row."""
    import numpy as np

    rows: dict[str, dict[str, Matrix]] = {}
    with np.load(path, allow_pickle=False) as arrays:
        for key in arrays.files:
            kind, _, vector = key.partition("|")
            if kind == "points":
                for point, row in zip(arrays[key].tolist(), arrays[f"rows|{vector}"], strict=True):
                    rows.setdefault(point, {})[vector] = row
    return rows


# --- restore -------------------------------------------------------------------------------------------------------


def is_empty(data_dir: Path) -> bool:
    """Return whether a directory holds no memory: nothing but what processes leave."""
    return not data_dir.exists() or not any(_belongs(path.name) for path in data_dir.iterdir())


def restore(
    data_dir: Path,
    file: Path,
    *,
    force: bool,
    lock: DirectoryLock,
    open_store: Callable[[Path], SqlStore],
    tick: Callable[[int, int], None],
) -> Restored:
    """Replace `data_dir` by the backup. lock: held for `data_dir`. open_store: opens the store of a data directory.

    Raises Refused: the directory holds a memory and `force` is False. See `unpack` for the rest.
    """
    finish_restore(data_dir)
    if not is_empty(data_dir) and not force:
        raise Refused(
            f"{data_dir} holds a memory; nothing was changed. With --force it is moved aside, never deleted, "
            "or set MEMORY_ANCHOR_DATA_DIR to an empty folder."
        )
    if not lock.held:
        raise Refused(f"{data_dir} is not locked; a restore holds its lock")
    staging = data_dir / f"{STAGING}{os.getpid()}"
    try:
        manifest = unpack(file, staging / "archive")
        new = staging / "new"
        new.mkdir(mode=0o700)
        total = sum(part["versions"] for part in manifest["collections"].values())
        _fill(open_store(new), staging / "archive", manifest, lambda done: tick(done, total))
        for path in (staging / "archive" / "files").glob("*"):
            if _belongs(path.name):
                path.replace(new / path.name)
        shutil.rmtree(staging / "archive")
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    old = [path.name for path in data_dir.iterdir() if _belongs(path.name)]
    return {"versions": total, "made_at": manifest["made_at"], "replaced": swap_in(data_dir, staging, old)}


def swap_in(data_dir: Path, staging: Path, old: list[str]) -> str:
    """Move the `old` entries aside and those of `staging/new` to their place; return the old ones' folder, "" for none.

    Once the journal is written, the next process that opens the directory finishes what a kill interrupts.
    """
    if hasattr(os, "sync"):
        os.sync()  # every file of the new side, before the journal announces it
    aside = next_aside(data_dir) if old else ""
    journal = {"staging": staging.name, "aside": aside, "old": old}
    write_atomic(data_dir / JOURNAL, json.dumps(journal).encode())
    finish_restore(data_dir)
    return str(data_dir / aside) if aside else ""


def _fill(store: SqlStore, archive: Path, manifest: Manifest, tick: Callable[[int], None]) -> None:
    try:
        for name in COLLECTIONS:
            part = manifest["collections"].get(name)
            store.open_collection(name, CollectionSpec(part["embedders"] if part is not None else {}))
            if store.count(name, Where()):
                raise Refused(f"collection {name!r} of the store holds memories already; restore into an empty one")
        done = 0
        for collection, entries in chunks(archive, manifest):
            store.put(collection, entries)
            done += len(entries)
            tick(done)
        made_at = datetime.fromisoformat(manifest["made_at"])
        move_in(archive / "files" / AUDIT, SqlAudit(store.database), made_at)
        for name in SqlRecords(store.database, lambda: made_at).take_over(archive / "files"):
            (archive / "files" / name).unlink()
    except BadInput as error:
        raise StoreDamaged(f"the backup holds what is no memory ({error}); nothing was changed.") from error
    finally:
        store.close()


def next_aside(data_dir: Path) -> str:
    """Return an unused name for the folder that replaced entries move to."""
    names = [path.name.removeprefix(REPLACED) for path in data_dir.glob(f"{REPLACED}*")]
    return f"{REPLACED}{1 + max((int(name) for name in names if name.isdigit()), default=0)}"


# --- purge ---------------------------------------------------------------------------------------------------------


class KnownBackups:
    """The known backups as a holder for a purge: they are rewritten without what matches."""

    name = "known backups"

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def erase(self, matches: PurgeTraces) -> int:
        """Erase versions and what was copied into others as in the store, and whole other files that match; return how
        many there were."""
        remove_left(self._data_dir)
        return sum(
            _rewrite(Path(backup["file"]), matches)
            for backup in known_backups(self._data_dir)
            if Path(backup["file"]).is_file()
        )


def out_of_reach(data_dir: Path) -> list[str]:
    """Return the copies of this directory that a purge cannot rewrite: backups not found."""
    return [backup["file"] for backup in known_backups(data_dir) if not Path(backup["file"]).is_file()]


def _rewrite(file: Path, matches: PurgeTraces) -> int:
    from memory_anchor.admin.purge import copied_text

    parts = file.with_name(f".{file.name}.{os.getpid()}.parts")
    shutil.rmtree(parts, ignore_errors=True)
    try:
        manifest = unpack(file, parts)
        count = sum(_rewrite_chunk(path, manifest, matches) for path in sorted((parts / "memories").glob("*.jsonl")))
        for path in sorted((parts / "files").rglob("*")):
            if path.is_file() and path.parent.name != "audit" and matches(copied_text(path)):
                for part in (path, *path.parent.glob(f"{path.name}-*")):  # a database goes with its log
                    part.unlink()
                count += 1
        if count:
            _pack(parts, manifest, file)
        return count
    except OSError as error:
        raise file_error(error, file) from error
    finally:
        shutil.rmtree(parts, ignore_errors=True)


def _rewrite_chunk(path: Path, manifest: Manifest, matches: PurgeTraces) -> int:
    """Rewrite one chunk without what matches, update the manifest's count, and return how many versions changed.

    As in the store, a version that matches only by its search context stays, without that and its vectors.
    """
    import numpy as np

    with path.open("rb") as stored:
        lines = list(stored)
    clean = [_without_match(line, matches) for line in lines]
    unchanged = [line for line, old in zip(clean, lines, strict=True) if line == old]
    if len(unchanged) == len(lines):
        return 0
    path.write_bytes(b"".join(clean))
    points = {from_payload(json.loads(line)).point_id for line in unchanged}
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as archive:
        arrays = {key: archive[key] for key in archive.files}
    for key in [key for key in arrays if key.startswith("points|")]:
        stays = np.asarray([point in points for point in arrays[key].tolist()], dtype=bool)
        rows = key.replace("points|", "rows|", 1)
        arrays[key], arrays[rows] = arrays[key][stays], arrays[rows][stays]
    with path.with_suffix(".npz").open("wb") as file:
        np.savez(file, **arrays)
    manifest["collections"][path.name.rpartition("-")[0]]["versions"] -= clean.count(b"")
    return len(lines) - len(unchanged)


def _without_match(line: bytes, matches: PurgeTraces) -> bytes:
    """Return a version's line as it may stay in a backup, empty when it may not."""
    payload = json.loads(line)
    memory = from_payload(payload)
    is_text_in_it = bool(matches.text) and matches("\n".join(texts_in({**payload, "context": ""})))
    if memory.id in matches.ids or is_text_in_it or matches.retold_in(memory):
        return b""
    without = matches.without(memory)
    return line if without == memory else (json.dumps(to_payload(without), ensure_ascii=False) + "\n").encode()
