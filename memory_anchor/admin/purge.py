"""Purge erases for good, and reports what it could not reach. Only a human may purge; everything else archives, but
for what was drafted from a source that is forgotten and what nobody let in (`forget_sources`).

Erased are every version of the named memories, or of all that contain a text, in every collection; what jobs wrote
from them, found by citation whatever its length, and what was copied from them into others (`traces`); then records in
the caller's holders: active contexts, the spool, context reports, backups. Files that only humans change (proposals,
the constitution, how-tos) are searched and named. The store's `erase` cleans its log, where deleted text would survive.

Order: files first, the store last, so that an interrupted purge leaves the ids needed to repeat it. Within the store
the neighbours' contexts are emptied first, then the ids to erase are recorded (`STATE`) and erased, each collection in
one step: a purge interrupted before that record erased nothing of the store, one interrupted after it is finished
at the next start (`finish_purge`). The collections of the index are made again without it, which is waited for. Then
everything is searched once more; the certificate says whether anything was
still found, and what is out of reach (Git history, exports, a provider's logs). Certificate and audit hold
ids and counts, never the text. An item of a pushed batch that is being written is waited for (`Upkeep.batch_item`): it
is stored before the search begins, or leaves its batch.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain, groupby
from pathlib import Path
from typing import Protocol

import yaml

from memory_anchor.admin.left_behind import PURGE_STATE as STATE
from memory_anchor.admin.traces import PurgeTraces, is_retelling
from memory_anchor.admin.waiting import BATCHES, WaitingBatch, WholeRecord, texts_in, unescaped
from memory_anchor.base import nofollow
from memory_anchor.base.bounded_yaml import check as check_yaml
from memory_anchor.base.files import remove_durably, write_atomic
from memory_anchor.base.idempotency import FOLDER as REQUESTS
from memory_anchor.base.json_values import Json, Record
from memory_anchor.base.lines import text_lines
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, NotFound, Refused
from memory_anchor.domain.model import COLLECTIONS, Caller, Citation, Layer, Memory, MemoryType, Origin, Scope, Status
from memory_anchor.domain.ports import Entry, SmallRecords
from memory_anchor.domain.rights import Action, check, purge_digest
from memory_anchor.domain.where import OneOf, Where
from memory_anchor.identity.constitution_text import FILE_NAME
from memory_anchor.identity.proposals import FOLDER as PROPOSALS
from memory_anchor.language.indexing import searched_words
from memory_anchor.layers.active_context import ActiveContext
from memory_anchor.store.index_follower import FOLLOWED, IndexFollower
from memory_anchor.upkeep.job_kit import Upkeep, drop_state, pages, save_state
from memory_anchor.upkeep.job_state import STATES, load_state, state_record

PURGE_CUT = "purge_cut"
"""Audit kind of a purge interrupted before anything of the store was erased: it must be requested again."""
PURGE = "purge"
PURGE_BEGUN = "purge_begun"
"""Audit kind recorded first: nothing else would tell of what a killed purge erased."""
LEAST_TEXT = 4
"""A shorter text would match half the store."""
PAGE = 500
EVERYTHING = Where()
OPERATIONS = PROPOSALS.parent / "operations"
OWN_FILES_MAX = 10_000
OWN_DEPTH_MAX = 8
"""Limits of the search below a project's folders."""
IDENTITY = "identity"
COLLECTIONS_BESIDE = "the collections of the search index, which follow"
"""What a certificate names where they could not be made again at once; the engine goes on trying."""
RETELLINGS_MAX = 16
"""Digests of digests that are followed."""
FORGOTTEN = "a session that was forgotten"
"""The title of a source that is not kept any more."""
NEVER_IN_FORCE = (Status.PENDING, Status.ARCHIVED)
"""Of a memory that nobody let in every version is one of these."""
_EMBEDDED_ALONE = (Layer.OPERATIONAL_KNOWLEDGE,)
_Yaml = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
OUT_OF_REACH = (
    "Git history of the project, where a proposal, an approved constitution or an operation file quoted it",
    "exports and copies of backups that were made elsewhere",
    "files and checkouts that knowledge was read from: what stands there still is read again once it changes",
    "reasons that were given with earlier writes, in the append-only audit record",
    "logs of an embedding or model provider, if one was set up",
    "the served memory and the devices that it was sent to: each erases by its own purge, devices by a signed one",
    "what an agent's own transcript keeps, and blocks of the disk that are free but not overwritten",
)


class Holder(Protocol):
    """Something outside the store that may hold the text: a spool, reports, a cache, a backup."""

    @property
    def name(self) -> str: ...

    def erase(self, matches: PurgeTraces) -> int:
        """Erase every record whose text matches; return how many there were."""
        ...


@dataclass(frozen=True, slots=True)
class LinesFile:
    """A file of one record per line (JSON or plain); it is replaced atomically without the matching lines."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    def erase(self, matches: Callable[[str], bool]) -> int:
        if not self.path.is_file():
            return 0
        lines = text_lines(self.path.read_bytes().decode("utf-8", "surrogateescape"), ends=True)
        clean = [line for line in lines if not matches(unescaped(line))]
        if len(clean) < len(lines):
            write_atomic(self.path, "".join(clean).encode("utf-8", "surrogateescape"))
        return len(lines) - len(clean)


@dataclass(frozen=True, slots=True)
class WholeFile:
    """A file that is removed when it holds the text: a report of one context, a snapshot.

    read: returns all its text; None for `decoded_text`.
    """

    path: Path
    read: Callable[[Path], str] | None = None

    @property
    def name(self) -> str:
        return self.path.name

    def erase(self, matches: Callable[[str], bool]) -> int:
        if not self.path.is_file() or not matches((self.read or decoded_text)(self.path)):
            return 0
        remove_durably(self.path)
        return 1


@dataclass(frozen=True, slots=True)
class Cache:
    """Something in memory that is cleared completely, since its records cannot be told apart."""

    name: str
    clear: Callable[[], None]

    def erase(self, matches: Callable[[str], bool]) -> int:
        del matches
        self.clear()
        return 0


@dataclass(frozen=True, slots=True)
class ActiveContextHolder:
    """The active contexts of conversations: the values that hold the text are dropped, the others stay."""

    active: ActiveContext
    name: str = "active context"

    def erase(self, matches: Callable[[str], bool]) -> int:
        return self.active.drop(lambda key, encoded: matches(key) or matches(unescaped(encoded)))


class HumanFiles:
    """Files that only humans change: searched and named in `found`, never written."""

    name = "left to humans"

    def __init__(self, data_dir: Path, projects: Iterable[Path]) -> None:
        """projects: the folders whose constitution, proposals and how-tos are searched."""
        self._identity = data_dir / IDENTITY
        self._projects = tuple(projects)
        self.found: tuple[str, ...] = ()

    def erase(self, matches: Callable[[str], bool]) -> int:
        """Search again; return 0, for nothing is erased."""
        homes = sorted(self._identity.iterdir()) if self._identity.is_dir() else []
        roots = (*self._projects, *homes)
        found = [str(path) for root in roots for path in _human_files(root) if _may_hold(path, matches)]
        for home in homes:
            searched = set(_human_files(home))
            if any(_may_hold(path, matches) for path in home.rglob("*") if path.is_file() and path not in searched):
                found.append(f"{home} (approved texts; propose a change and keep the folder)")
        self.found = tuple(dict.fromkeys(found))
        return 0


def _may_hold(path: Path, matches: Callable[[str], bool]) -> bool:
    """Return whether a file matches; one that cannot be read may."""
    try:
        return matches(decoded_text(path))
    except OSError:
        return True


def _human_files(root: Path) -> list[Path]:
    """Return the files of a project that people write and agents propose."""
    refs = [FILE_NAME]
    for folder in (PROPOSALS, OPERATIONS):
        with contextlib.suppress(OSError):  # a link, which is not this project's
            entries = nofollow.walk(root, folder, most=OWN_FILES_MAX, depth=OWN_DEPTH_MAX)
            refs += [entry.ref for entry in entries if not entry.problem]
    return [root / ref for ref in refs if root.is_dir() and nofollow.status(root, ref) is not None]


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a purge removed and what it cannot.

    removed: collection -> version ids. emptied: versions that stay without what they had copied. mentions: versions
    that cite or quote the erased ones but were written by somebody, and so wait for a decision. clean: nothing was
    found afterwards and every holder could be searched. failed: the names of those that could not.
    """

    at: datetime
    removed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    emptied: tuple[str, ...] = ()
    files: dict[str, int] = field(default_factory=dict)
    mentions: tuple[str, ...] = ()
    clean: bool = True
    failed: tuple[str, ...] = ()
    out_of_reach: tuple[str, ...] = OUT_OF_REACH

    @property
    def versions(self) -> int:
        return sum(len(ids) for ids in self.removed.values())


def holders_in(data_dir: Path, records: SmallRecords) -> tuple[Holder, ...]:
    """Return what else in a data directory may hold a memory's text: waiting hooks, reports, counts, copies.

    records: where accepted batches wait, jobs keep what they counted, and repeats find their first answers.
    """
    holders: list[Holder] = []
    for folder, files in (
        ("spool", "*"),
        ("contexts", "*"),
        ("remote/outbox", "*"),
        ("remote/refused", "*"),
        ("evaluations", "run-*.json"),
        ("imported/proposals", "*/*.yaml"),
    ):
        if (data_dir / folder).is_dir():
            paths = [path for path in sorted((data_dir / folder).glob(files)) if path.is_file()]
            holders += [WholeFile(path) for path in paths]
    for folder in (STATES, REQUESTS):
        names = [record.name for record in records.listed(folder)]
        holders += [WholeRecord(records, name) for name in names if name != state_record(STATE)]  # names what goes
    for folder in ("backups", "evaluations"):
        if (data_dir / folder).is_dir():
            holders += [LinesFile(path) for path in sorted((data_dir / folder).rglob("*.jsonl"))]
    holders += [WaitingBatch(records, record.name) for record in records.listed(BATCHES)]
    return tuple(holders)


def decoded_text(path: Path) -> str:
    """Return a file's text raw and decoded: JSON and YAML escape, indent and fold a text."""
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    if path.suffix != ".yaml":
        return unescaped(text)
    try:
        check_yaml(text)
        return "\n".join([text, *texts_in(yaml.load(text, Loader=_Yaml))])  # noqa: S506 - strings only, no objects
    except (yaml.YAMLError, RecursionError, ValueError):
        return text


def copied_text(path: Path) -> str:
    """Return the decoded text of a copy of a file: of a database every value, whose pages split a text.

    A database is opened and its log carried over, which only a copy may bear; of a damaged one the bytes are returned.
    """
    if path.suffix != ".db":
        return decoded_text(path)
    import sqlite3

    values: list[str] = []
    try:
        with contextlib.closing(sqlite3.connect(path)) as link:
            tables = link.execute("select name from sqlite_master where type = 'table' and sql not like '% virtual %'")
            for (table,) in tables.fetchall():
                for row in link.execute(f'select * from "{table}"'):  # noqa: S608 - a name of the file itself
                    values += [
                        value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in row
                    ]
    except sqlite3.DatabaseError:
        values.append(path.read_bytes().decode("utf-8", "surrogateescape"))
    return "\n".join(map(unescaped, values))


def all_text(memory: Memory) -> str:
    """Return every text of one version that may hold something secret."""
    parts: list[str] = [memory.content, memory.key, memory.context, memory.reason, memory.where or "", *memory.who]
    parts += [*memory.questions, *(tag.name for tag in memory.tags)]
    parts += [text for c in memory.citations for text in (c.ref, c.title or "")]
    if memory.gap is not None:
        parts.append(json.dumps(dict(memory.gap), ensure_ascii=False, default=str))
    parts += [json.dumps(dict(r.outcome), ensure_ascii=False, default=str) for r in memory.receipts]
    return "\n".join(parts)


def purge_ids(
    up: Upkeep,
    ids: Sequence[str],
    *,
    caller: Caller,
    at: datetime,
    by: str,
    holders: Iterable[Holder] = (),
    seen: str | None = None,
) -> Certificate:
    """Erase every version of these memories everywhere.

    seen: the `purge_digest` of what the human was shown. Raises Refused: the caller is not a human, or what would be
    erased is not what was shown. NotFound: none of the ids exists (nothing was erased).
    """
    check(Action.PURGE, caller)
    with up.batch_item:
        versions = versions_to_erase(up, ids=ids)
        _check_seen(versions, seen)
        if not versions:
            raise NotFound(f"none of {len(ids)} ids is a memory here; `memory-anchor list` gives the ids there are")
        return _purge(up, versions, ids=ids, at=at, by=by, holders=holders)


def purge_text(
    up: Upkeep,
    text: str,
    *,
    caller: Caller,
    at: datetime,
    by: str,
    holders: Iterable[Holder] = (),
    seen: str | None = None,
) -> Certificate:
    """Erase everything that contains `text` (case counts), in every version and collection.

    seen: as in `purge_ids`. Raises Refused: as there. BadInput: a text too short to be specific.
    """
    check(Action.PURGE, caller)
    with up.batch_item:
        versions = versions_to_erase(up, text=text)
        _check_seen(versions, seen)
        return _purge(up, versions, text=text, at=at, by=by, holders=holders)


def versions_to_erase(up: Upkeep, *, ids: Sequence[str] = (), text: str = "") -> dict[str, list[Memory]]:
    """Return collection -> every version of the memories that a purge of these ids, or of this text, erases.

    Raises BadInput: a text too short to be specific.
    """
    if text and len(text.strip()) < LEAST_TEXT:
        raise BadInput(f"the text to purge has {len(text.strip())} characters; allowed are at least {LEAST_TEXT}")
    versions: dict[str, list[Memory]] = {}
    where, wanted_ids = EVERYTHING if text else Where((OneOf("id", tuple(ids)),)), set(ids)
    for collection in COLLECTIONS:
        if text:
            wanted_ids = {m.id for m in _every_version(up, collection) if text in all_text(replace(m, context=""))}
        if wanted_ids and (members := [m for m in _every_version(up, collection, where) if m.id in wanted_ids]):
            versions[collection] = members
    return versions


def shown_versions(versions: Mapping[str, Sequence[Memory]]) -> list[Record]:
    """Return what a human must be shown before a purge: every memory with the text of each of its versions."""
    every = sorted(chain.from_iterable(versions.values()), key=lambda memory: (memory.id, memory.version))
    return [
        {"id": name, "versions": [{"version": m.version, "content": m.content} for m in members]}
        for name, members in groupby(every, key=lambda memory: memory.id)
    ]


def _check_seen(versions: Mapping[str, Sequence[Memory]], seen: str | None) -> None:
    if seen is not None and seen != purge_digest(shown_versions(versions)):
        raise Refused("what would be erased changed since it was shown; nothing was erased, look at it again")


def _every_version(up: Upkeep, collection: str, where: Where = EVERYTHING) -> Iterable[Memory]:
    return (entry.memory for page in pages(up.store, collection, where, size=PAGE) for entry in page)


def _traced(
    up: Upkeep, versions: Mapping[str, Sequence[Memory]], ids: Sequence[str], text: str
) -> tuple[dict[str, list[Memory]], PurgeTraces, list[str]]:
    """Return the versions to erase, with those of memories that jobs wrote from them; what tells of all these; and the
    versions that tell of them in somebody's own words."""
    doomed = {collection: list(versions.get(collection, ())) for collection in COLLECTIONS}
    for _ in range(RETELLINGS_MAX):
        traces = PurgeTraces.of(chain.from_iterable(doomed.values()), ids, text)
        telling: list[Memory] = []
        retold = 0
        for collection in COLLECTIONS:
            told = [m for m in _every_version(up, collection) if m.id not in traces.ids and traces.told_by(m)]
            whole: dict[str, list[Memory]] = {memory.id: [] for memory in told}
            for memory in _every_version(up, collection, Where((OneOf("id", tuple(whole)),))) if whole else ():
                whole[memory.id].append(memory)
            by_jobs = {name for name, members in whole.items() if is_retelling(members)}
            doomed[collection] += chain.from_iterable(whole[name] for name in sorted(by_jobs))
            telling += [memory for memory in told if memory.id not in by_jobs]
            retold += len(by_jobs)
        if not retold:
            break
    return doomed, traces, sorted(memory.version_id for memory in telling)


def _purge(
    up: Upkeep,
    versions: dict[str, list[Memory]],
    *,
    ids: Sequence[str] = (),
    text: str = "",
    at: datetime,
    by: str,
    holders: Iterable[Holder],
) -> Certificate:
    asked = {name: [m.version_id for m in members] for name, members in versions.items()}
    up.audit.append(PURGE_BEGUN, {"removing": asked}, by=by, at=at)
    save_state(up, STATE, {"by": by, "asked": asked})
    holders = list(holders)
    _, traces, _ = _traced(up, versions, ids, text)
    files, failed = _erase_from(holders, traces)
    emptied: list[str] = []
    rewritten: list[str] = []
    removed: dict[str, list[str]] = {}
    points: dict[str, list[str]] = {}
    with up.lock:
        doomed, traces, mentions = _traced(up, versions, ids, text)
        for collection in COLLECTIONS:
            gone = {memory.point_id for memory in doomed[collection]}
            touched = [
                (memory, without)
                for memory in _every_version(up, collection)
                if memory.point_id not in gone and (without := traces.without(memory)) != memory
            ]
            emptied += [memory.version_id for memory, _ in touched]
            own = [(replace(old, context=new.context, receipts=new.receipts), new) for old, new in touched]
            rewritten += [new.version_id for old, new in own if old != new]  # context and receipts are not sent
            _rewrite(up, collection, touched)
            # The store's own log is rebuilt only when something is erased from it.
            points[collection] = sorted(gone) or ([_marker(up, collection, at)] if touched else [])
            if gone:
                removed[collection] = sorted(memory.version_id for memory in doomed[collection])
        record: dict[str, Json] = {"removed": removed, "emptied": sorted(emptied), "files": files}
        record |= {"rewritten": sorted(rewritten)} if rewritten else {}
        record |= {"failed": failed} if failed else {}
        save_state(up, STATE, {"by": by, "asked": asked, "points": points, "told": record})
        _erase(up, points)
        left = (m for collection in COLLECTIONS for m in _every_version(up, collection))
        clean = not any(traces.remains_in(m) or (traces.text and traces.text in all_text(m)) for m in left)
    beside = getattr(up.store, "beside", None)
    if points.keys() & set(FOLLOWED) and isinstance(beside, IndexFollower) and not beside.catch_up():
        failed.append(COLLECTIONS_BESIDE)
        record |= {"failed": failed}
    for holder in holders:  # caches may have been filled meanwhile
        if isinstance(holder, Cache):
            holder.erase(traces)
    up.audit.append(PURGE, record, by=by, at=at)
    drop_state(up, STATE)
    gone_from = {name: tuple(names) for name, names in removed.items()}
    clean = clean and not failed
    return Certificate(at, gone_from, tuple(sorted(emptied)), files, tuple(mentions), clean, failed=tuple(failed))


def forget_sources(up: Upkeep, sources: Collection[str], *, at: datetime, by: str) -> set[str]:
    """Erase the facts that cite conversations which were forgotten and that nobody let in, and take the titles of these
    out of what stays; return the ids of those that were erased. sources: as `source_of` names them. Recorded as a
    purge, which other devices ask a human to sign.
    """
    collection = Layer.VERIFIED_FACT.value

    def without(memory: Memory) -> Memory:
        cited = [replace(c, title=FORGOTTEN) if source_of(c) in sources else c for c in memory.citations]
        return replace(memory, citations=tuple(cited))

    with up.lock:
        citing = [(old, new) for old in _every_version(up, collection) if (new := without(old)) != old]
        if not citing:
            return set()
        let_in = {old.id for old, _ in citing if old.origin is Origin.HUMAN or old.status not in NEVER_IN_FORCE}
        drafts = {old.id for old, _ in citing} - let_in
        kept = [pair for pair in citing if pair[0].id not in drafts]
        gone = [old for old, _ in citing if old.id in drafts]
        _rewrite(up, collection, kept)
        points = [old.point_id for old in gone] or ([_marker(up, collection, at)] if kept else [])
        record: dict[str, Json] = {"removed": {collection: sorted(old.version_id for old in gone)}} if gone else {}
        record |= {"rewritten": sorted(old.version_id for old, _ in kept)} if kept else {}
        save_state(up, STATE, {"by": by, "asked": {}, "points": {collection: points}, "told": record})
        _erase(up, {collection: points})
    if record:
        up.audit.append(PURGE, record, by=by, at=at)
    drop_state(up, STATE)
    return drafts


def source_of(cited: Citation) -> str:
    """Return the conversation that is cited, "" for none."""
    return cited.ref.rpartition("@")[0] if cited.kind == "conversation" else ""


def _erase_from(holders: Iterable[Holder], traces: PurgeTraces) -> tuple[dict[str, int], list[str]]:
    """Return how many records each holder erased, and the names of those that failed, which stop no other."""
    files: dict[str, int] = {}
    failed: list[str] = []
    for holder in holders:
        try:
            files[holder.name] = files.get(holder.name, 0) + holder.erase(traces)
        except (OSError, MemoryAnchorError):
            failed.append(holder.name)
    return files, failed


def _erase(up: Upkeep, points: Mapping[str, Sequence[str]]) -> None:
    for collection, ids in points.items():
        if ids:
            up.store.erase(collection, ids)
    up.records.wipe()  # of records that went before, where no memory went


def finish_purge(up: Upkeep, *, at: datetime) -> bool:
    """Finish an interrupted purge, or record that it erased nothing yet; return whether there was one.

    Called at the start, before anything is written.
    """
    state = load_state(up.records, STATE)
    if not isinstance(state, dict) or "asked" not in state:
        return False
    by = str(state.get("by", "system"))
    if "points" in state:
        _erase(up, state["points"])
        up.audit.append(PURGE, {**state["told"], "finished_at": at.isoformat()}, by=by, at=at)
    else:
        up.audit.append(PURGE_CUT, {"asked": state["asked"]}, by=by, at=at)
    drop_state(up, STATE)
    return True


def _marker(up: Upkeep, collection: str, at: datetime) -> str:
    """Store an empty memory to erase, so that the log that still has emptied texts is rebuilt; return its point."""
    layer, kind = Layer.EVENT_LOG, MemoryType.NOTE
    marker = Memory("purge-marker", "-", layer, kind, Scope(), at, at, status=Status.ARCHIVED, author="job:purge")
    up.store.put(collection, [Entry(marker)])
    return marker.point_id


def _rewrite(up: Upkeep, collection: str, changed: Sequence[tuple[Memory, Memory]]) -> None:
    """Store versions without what they had of others, in words and vectors too. changed: each before and after."""
    for start in range(0, len(changed), PAGE):
        part = changed[start : start + PAGE]
        # A vector that was made with a search context must go; the embedding job makes a new one. A passage's vector is
        # made of its own text alone, and stays.
        kept = [old.point_id for old, new in part if old.context == new.context or old.layer in _EMBEDDED_ALONE]
        vectors = {e.memory.point_id: e.vectors for e in up.store.get(collection, kept, with_vectors=True)}
        up.store.put(collection, [Entry(new, vectors.get(new.point_id, {}), searched_words(new)) for _, new in part])
