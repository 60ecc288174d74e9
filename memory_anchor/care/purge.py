"""Purge erases for good, and says what it could not reach. Only a human may ask; everything else archives.

What goes: every version of the named memories, or of all that contain a text, in every collection; then whatever the
product made of them (digests that quote them are erased, the neighbours' search context is emptied); then the holders
named by the caller: what conversations have in mind, the spool, context reports, backups. What only humans change is
searched and named: proposals, the constitution, how-tos. The store's `erase` sees to its own log, where deleted text
would survive. Order: files first, the store last, so that a purge cut short leaves the ids that let it be repeated.
Within the store the neighbours' contexts are emptied first, then what is doomed is written down by its ids (`STATE`)
and erased, one collection after the other, each in one step: a purge cut off before that note has erased nothing of
the store, one cut off after it is ended by the next start (`finish_purge`). Afterwards everything is looked through
once more; the certificate says whether anything was still found, and what is out of reach (Git history, exports, a
provider's logs). Certificate and audit hold ids and counts, never the text. An item of a pushed batch that is
being written is waited for (`Upkeep.batch_item`): it is stored before anything is looked for, or leaves its batch.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

import yaml

from memory_anchor import beneath
from memory_anchor.bounded_yaml import check as check_yaml
from memory_anchor.care.waiting import BATCHES, WaitingBatch, WholeRecord, texts_in, unescaped
from memory_anchor.errors import BadInput, MemoryAnchorError, NotFound, Refused
from memory_anchor.files import remove_durably, write_atomic
from memory_anchor.hashing import stable_hash
from memory_anchor.identity.constitution_text import FILE_NAME
from memory_anchor.identity.proposals import FOLDER as PROPOSALS
from memory_anchor.json_values import Json
from memory_anchor.language.indexing import conversation_context, searched_words
from memory_anchor.layers.active_context import ActiveContext
from memory_anchor.model import COLLECTIONS, Caller, Layer, Memory, MemoryType, Scope, Status
from memory_anchor.ports import Entry, SharedRecords
from memory_anchor.repeats import FOLDER as REQUESTS
from memory_anchor.rights import Deed, check, stamp
from memory_anchor.upkeep.forgetting import first_sentence
from memory_anchor.upkeep.upkeep import Upkeep, drop_state, load_state, save_state
from memory_anchor.where import OneOf, Where

STATE = "purge"
"""Under this name the running purge is kept: ids of what goes, never a text."""
PURGE_CUT = "purge_cut"
"""Recorded where a purge was cut off before anything of the store was erased: it must be asked for again."""
PURGE = "purge"
PURGE_BEGUN = "purge_begun"
"""Recorded first: a purge that was killed half-way left memories out that nothing else tells of."""
LEAST_TEXT = 4
"""A shorter text would match half the store."""
LEAST_QUOTE = 16
"""An first_sentence shorter than this is not evidence that one text quotes another."""
PAGE = 500
EVERYTHING = Where()
CONTEXT_OPENING = 80
OPERATIONS = PROPOSALS.parent / "operations"
OWN_FILES_MAX = 10_000
OWN_DEPTH_MAX = 8
"""Names below a project's folders that are looked through."""
IDENTITY = "identity"
_Yaml = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
OUT_OF_REACH = (
    "Git history of the project, where a proposal, an approved constitution or an operation file quoted it",
    "exports and copies of backups that were made elsewhere",
    "files and checkouts that knowledge was read from: what stands there still is read again once it changes",
    "reasons that were given with earlier writes, in the append-only audit record",
    "logs of an embedding or model provider, if one was set up",
    "what an agent's own transcript keeps, and blocks of the disk that are free but not overwritten",
)


class Holder(Protocol):
    """Something beside the store that may hold the text: a spool, reports, a cache, a backup."""

    @property
    def name(self) -> str: ...

    def erase(self, matches: Callable[[str], bool]) -> int:
        """Erase every record whose text matches; return how many there were."""
        ...


@dataclass(frozen=True, slots=True)
class LinesFile:
    """A file of one record a line (JSON or plain); matching lines are dropped and the rest replaces the file whole."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    def erase(self, matches: Callable[[str], bool]) -> int:
        if not self.path.is_file():
            return 0
        lines = self.path.read_text(encoding="utf-8", errors="surrogateescape").splitlines(keepends=True)
        kept = [line for line in lines if not matches(unescaped(line))]
        if len(kept) == len(lines):
            return 0
        write_atomic(self.path, "".join(kept).encode("utf-8", "surrogateescape"))
        return len(lines) - len(kept)


@dataclass(frozen=True, slots=True)
class WholeFile:
    """A file that is removed altogether when it holds the text: a report of one context, a snapshot.

    read: returns all that it says; None for what stands in it, JSON and YAML as they read too.
    """

    path: Path
    read: Callable[[Path], str] | None = None

    @property
    def name(self) -> str:
        return self.path.name

    def erase(self, matches: Callable[[str], bool]) -> int:
        if not self.path.is_file() or not matches((self.read or readings)(self.path)):
            return 0
        remove_durably(self.path)
        return 1


@dataclass(frozen=True, slots=True)
class Cache:
    """Something in memory that is cleared whole, since its records cannot be told apart."""

    name: str
    clear: Callable[[], None]

    def erase(self, matches: Callable[[str], bool]) -> int:
        del matches
        self.clear()
        return 0


@dataclass(frozen=True, slots=True)
class InMind:
    """What conversations have in mind: the values that hold the text are dropped, the others stay."""

    active: ActiveContext
    name: str = "active context"

    def erase(self, matches: Callable[[str], bool]) -> int:
        return self.active.drop(lambda key, encoded: matches(key) or matches(unescaped(encoded)))


class LeftToHumans:
    """Files that only humans change: looked through and named in `found`, never written."""

    name = "left to humans"

    def __init__(self, data_dir: Path, projects: Iterable[Path]) -> None:
        """projects: the folders whose constitution, proposals and how-tos are looked through."""
        self._identity = data_dir / IDENTITY
        self._projects = tuple(projects)
        self.found: tuple[str, ...] = ()

    def erase(self, matches: Callable[[str], bool]) -> int:
        """Look anew; return 0, for nothing is erased."""
        homes = sorted(self._identity.iterdir()) if self._identity.is_dir() else []
        found = [
            str(path) for root in (*self._projects, *homes) for path in _own_files(root) if _may_hold(path, matches)
        ]
        for home in homes:
            own = set(_own_files(home))
            if any(_may_hold(path, matches) for path in home.rglob("*") if path.is_file() and path not in own):
                found.append(f"{home} (approved texts; propose a change and keep the folder)")
        self.found = tuple(dict.fromkeys(found))
        return 0


def _may_hold(path: Path, matches: Callable[[str], bool]) -> bool:
    """Return whether a file matches; one that cannot be read may."""
    try:
        return matches(readings(path))
    except OSError:
        return True


def _own_files(root: Path) -> list[Path]:
    """Return the files of a project that people write and agents propose."""
    found = [FILE_NAME]
    for folder in (PROPOSALS, OPERATIONS):
        with contextlib.suppress(OSError):  # a link, which is not this project's
            seen = beneath.walk(root, folder, most=OWN_FILES_MAX, depth=OWN_DEPTH_MAX)
            found += [one.ref for one in seen if not one.problem]
    return [root / ref for ref in found if root.is_dir() and beneath.status(root, ref) is not None]


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a purge removed and what it cannot. removed: collection -> version ids. mentions: ids of memories that
    quote the erased ones but were written by somebody, and so wait for a decision. clean: nothing was found after,
    and every holder could be looked through; failed: the names of those that could not."""

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


def beside_store(data_dir: Path, records: SharedRecords) -> tuple[Holder, ...]:
    """Return what else in a data directory may hold a memory's text: waiting hooks, reports, counts, copies.

    records: where accepted batches wait, and of several replicas what requests noted.
    """
    found: list[Holder] = []
    for folder, files in (
        ("spool", "*"),
        ("contexts", "*"),
        ("jobs", "*"),
        (REQUESTS, "*"),
        ("remote/outbox", "*"),
        ("remote/refused", "*"),
        ("evaluations", "run-*.json"),
        ("imported/proposals", "*/*.yaml"),
        ("lorebooks", "*/turns/*.json"),
    ):
        if (data_dir / folder).is_dir():
            found += [WholeFile(path) for path in sorted((data_dir / folder).glob(files)) if path.is_file()]
    for folder in ("backups", "evaluations"):
        if (data_dir / folder).is_dir():
            found += [LinesFile(path) for path in sorted((data_dir / folder).rglob("*.jsonl"))]
    if records.is_shared:
        found += [WholeRecord(records, one.name) for one in records.listed(REQUESTS)]
    found += [WaitingBatch(records, one.name) for one in records.listed(BATCHES)]
    return tuple(found)


def readings(path: Path) -> str:
    """Return a file's text as it stands and as it reads: JSON and YAML escape, indent and fold a text."""
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    if path.suffix != ".yaml":
        return unescaped(text)
    try:
        check_yaml(text)
        return "\n".join([text, *texts_in(yaml.load(text, Loader=_Yaml))])  # noqa: S506 - strings only, no objects
    except (yaml.YAMLError, RecursionError, ValueError):
        return text


def all_text(memory: Memory) -> str:
    """Return every text of one version in which something secret may stand."""
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

    seen: the `digest` of what the human was shown. Raises Refused: the caller is not a human, or what would be erased
    is not what was shown. NotFound: none of the ids exists (nothing was erased).
    """
    check(Deed.PURGE, caller)
    with up.batch_item:
        return _purge_ids(up, ids, at=at, by=by, holders=holders, seen=seen)


def _purge_ids(
    up: Upkeep, ids: Sequence[str], *, at: datetime, by: str, holders: Iterable[Holder], seen: str | None
) -> Certificate:
    named = doomed(up, ids=ids)
    _check_seen(named, seen)
    if not named:
        raise NotFound(f"none of {len(ids)} ids is a memory here; `memory-anchor list` gives the ids there are")
    texts = [m.content for members in named.values() for m in members]
    quotes = tuple({q for text in texts for q in (text, first_sentence(text)) if len(q) >= LEAST_QUOTE})
    before = tuple({conversation_context(m.content) for members in named.values() for m in members})
    known = set(ids)

    def in_files(text: str) -> bool:
        return any(f'"{one}"' in text for one in known) or any(q in text for q in quotes)

    return _purge(
        up,
        named,
        is_quoted=lambda m: m.id not in known and any(q in m.content for q in quotes),
        in_context=lambda m: _quotes_before(m, before),
        remains=lambda m: m.id in known or _quotes_before(m, before),
        in_files=in_files,
        at=at,
        by=by,
        holders=holders,
    )


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

    seen: as in `purge_ids`. Raises Refused: as there. BadInput: a text too short to mean anything.
    """
    check(Deed.PURGE, caller)
    with up.batch_item:
        named = doomed(up, text=text)
        _check_seen(named, seen)
        return _purge(
            up,
            named,
            is_quoted=_never,
            in_context=lambda m: text in m.context,
            remains=lambda m: text in all_text(m),
            in_files=lambda line: text in line,
            at=at,
            by=by,
            holders=holders,
        )


def doomed(up: Upkeep, *, ids: Sequence[str] = (), text: str = "") -> dict[str, list[Memory]]:
    """Return collection -> every version of the memories that a purge of these ids, or of this text, erases.

    Raises BadInput: a text too short to mean anything.
    """
    if not text:
        return _versions(up, ids)
    if len(text.strip()) < LEAST_TEXT:
        raise BadInput(f"the text to purge has {len(text.strip())} characters; allowed are at least {LEAST_TEXT}")
    named: dict[str, list[Memory]] = {}
    for collection in COLLECTIONS:
        hit = {m.id for m in _every_version(up, collection) if text in all_text(replace(m, context=""))}
        if hit:
            named[collection] = [m for m in _every_version(up, collection) if m.id in hit]
    return named


def digest(named: Mapping[str, Sequence[Memory]]) -> str:
    """Return what names these very versions, to be given back with the human's yes."""
    return stable_hash(*sorted(stamp(m.id, m.version, m.content) for members in named.values() for m in members))


def _check_seen(named: Mapping[str, Sequence[Memory]], seen: str | None) -> None:
    if seen is not None and seen != digest(named):
        raise Refused("what would be erased changed since it was shown; nothing was erased, look at it again")


def _never(memory: Memory) -> bool:
    """Matching by text finds every quotation as such."""
    del memory
    return False


def _quotes_before(memory: Memory, before: Sequence[str]) -> bool:
    """Return whether the search context of a memory is (or holds) one of these texts that came before it."""
    return any(
        text
        and (text == memory.context.strip() or (len(text) >= LEAST_QUOTE and text[:CONTEXT_OPENING] in memory.context))
        for text in before
    )


def _versions(up: Upkeep, ids: Sequence[str]) -> dict[str, list[Memory]]:
    found: dict[str, list[Memory]] = {}
    for collection in COLLECTIONS:
        wanted = Where((OneOf("id", tuple(ids)),))
        versions = list(_every_version(up, collection, wanted))
        if versions:
            found[collection] = versions
    return found


def _every_version(up: Upkeep, collection: str, where: Where = EVERYTHING) -> Iterable[Memory]:
    after: str | None = None
    while True:
        entries, after = up.store.scan(collection, where, page=PAGE, after=after)
        yield from (entry.memory for entry in entries)
        if after is None:
            return


def _purge(
    up: Upkeep,
    named: dict[str, list[Memory]],
    *,
    is_quoted: Callable[[Memory], bool],
    in_context: Callable[[Memory], bool],
    remains: Callable[[Memory], bool],
    in_files: Callable[[str], bool],
    at: datetime,
    by: str,
    holders: Iterable[Holder],
) -> Certificate:
    asked = {name: [m.version_id for m in members] for name, members in named.items()}
    up.audit.append(PURGE_BEGUN, {"removing": asked}, by=by, at=at)
    save_state(up, STATE, {"by": by, "asked": asked})
    beside = list(holders)
    files, failed = _erased_from(beside, in_files)
    mentions: list[str] = []
    emptied: list[str] = []
    with up.lock:
        doomed = {name: {m.point_id: m for m in members} for name, members in named.items()}
        points: dict[str, list[str]] = {}
        for collection in COLLECTIONS:
            own = doomed.setdefault(collection, {})
            touched: list[Memory] = []
            for memory in _every_version(up, collection):
                if memory.point_id in own:
                    continue
                if is_quoted(memory):
                    if memory.author.startswith("job:"):
                        own[memory.point_id] = memory
                        continue
                    mentions.append(memory.version_id)
                if in_context(memory):
                    touched.append(memory)
            emptied += [m.version_id for m in touched]
            _empty_context(up, collection, touched)
            # The store's own log is rebuilt only when something is erased from it.
            points[collection] = list(own) or ([_marker(up, collection, at)] if touched else [])
        removed = {name: sorted(m.version_id for m in own.values()) for name, own in doomed.items() if own}
        told: dict[str, Json] = {"removed": removed, "emptied": sorted(emptied), "files": files}
        told |= {"failed": failed} if failed else {}
        save_state(up, STATE, {"by": by, "asked": asked, "points": points, "told": told})
        _erase(up, points)
        clean = not any(remains(m) for collection in COLLECTIONS for m in _every_version(up, collection))
    for holder in beside:  # what was answered meanwhile
        if isinstance(holder, Cache):
            holder.erase(in_files)
    certificate = Certificate(
        at,
        {name: tuple(ids) for name, ids in removed.items()},
        tuple(sorted(emptied)),
        files,
        tuple(sorted(mentions)),
        clean and not failed,
        failed=tuple(failed),
    )
    up.audit.append(PURGE, told, by=by, at=at)
    drop_state(up, STATE)
    return certificate


def _erased_from(holders: Iterable[Holder], in_files: Callable[[str], bool]) -> tuple[dict[str, int], list[str]]:
    """Return how many records each holder erased, and the names of those that could not: the others still go."""
    files: dict[str, int] = {}
    failed: list[str] = []
    for holder in holders:
        try:
            files[holder.name] = files.get(holder.name, 0) + holder.erase(in_files)
        except (OSError, MemoryAnchorError):
            failed.append(holder.name)
    return files, failed


def _erase(up: Upkeep, points: Mapping[str, Sequence[str]]) -> None:
    for collection, ids in points.items():
        if ids:
            up.store.erase(collection, ids)


def finish_purge(up: Upkeep, *, at: datetime) -> bool:
    """End a purge that was cut off, or name the one that erased nothing yet; return whether there was one.

    Called at the start, before anything is written.
    """
    state = load_state(up.state_dir, STATE)
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
    """Store an empty memory to erase, so that the log in which emptied texts survive is rebuilt; return its point."""
    empty = Memory(
        "purge-marker",
        "-",
        Layer.EVENT_LOG,
        MemoryType.NOTE,
        Scope(),
        at,
        at,
        status=Status.ARCHIVED,
        author="job:purge",
    )
    up.store.put(collection, [Entry(empty)])
    return empty.point_id


def _empty_context(up: Upkeep, collection: str, memories: Sequence[Memory]) -> None:
    """Take the neighbouring text out of these versions, and out of the words and vectors made with it."""
    for start in range(0, len(memories), PAGE):
        part = memories[start : start + PAGE]
        fresh = [replace(m, context="") for m in part]
        # Without vectors: they were made of the text that must go, and are made anew by the embedding job. That of a
        # passage is of its own text alone, and stays.
        passages = [m.point_id for m in part if m.layer is Layer.OPERATIONAL_KNOWLEDGE]
        held = {e.memory.point_id: e.vectors for e in up.store.get(collection, passages, with_vectors=True)}
        up.store.put(collection, [Entry(m, held.get(m.point_id, {}), searched_words(m)) for m in fresh])
