"""Files become passages in the archive, newest first, in batches; a look compares sizes and times, and reads the rest.

Everything of a batch is one transaction with the files' offsets: a killed run loses the batch that it was at, and the
next one reads it again. The first batch is small, so that there are answers before a second has passed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from pydantic_core import from_json

from memory_anchor.base.files import read_own_file
from memory_anchor.base.json_values import Json, Record, lenient
from memory_anchor.domain.errors import BadInput, NotFound
from memory_anchor.extensions.sessions.agents import ODD, UNKNOWN_FORMAT, FoundSession, StoreReader, reader
from memory_anchor.extensions.sessions.archive import KnownSource, ReadFile, ReadSession, SessionsFile, Titles
from memory_anchor.extensions.sessions.passages import Cutter, SessionPassage, clean_id, clean_name, resume_at
from memory_anchor.extensions.sessions.steps import Facts, TranscriptStep

FILE_BYTES_MAX = 256 * 1024 * 1024
LINE_BYTES_MAX = 8 * 1024 * 1024
FIRST_BATCH_BYTES, BATCH_BYTES, BATCH_FILES = 256 * 1024, 8 * 1024 * 1024, 200
"""Read before what was read is stored: at first, and from then on."""
READERS = "3"
"""Which readers these are, together: what earlier ones could not read is read anew. Raised with what one learns."""
TORN = "its last line is not complete: it is being written, or was cut off"
LONG = "a line above 8 MB was left out"
UNREAD = "nothing in it is a message that this version reads"
NO_JSON = "some lines are no JSON"


@dataclass(slots=True)
class LookReport:
    """What a look did. left: files that are still to be read; problems: path and why, of this look."""

    files: int = 0
    read: int = 0
    bytes: int = 0
    passages: int = 0
    left: int = 0
    problems: list[tuple[str, str]] = field(default_factory=list)


def look(
    archive: SessionsFile,
    found: Sequence[FoundSession],
    *,
    goes_on: Callable[[], bool] = lambda: True,
    progress: Callable[[LookReport], None] = lambda _: None,
) -> LookReport:
    """Read what is new in these files; goes_on is asked after each batch. Raises what storing raises."""
    archive.read_anew(READERS)
    known = archive.sources()
    waiting = [one for one in found if _is_new(one, known.get(one.key))]
    report, batch, size, most = LookReport(len(found), left=len(waiting)), list[ReadFile](), 0, FIRST_BATCH_BYTES
    titles: dict[tuple[str, str], str] = {}
    for one in waiting:
        try:
            read, count = read_file(archive, one, known.get(one.key))
        except ODD:
            read, count = _unknown(one.agent, one.key, one.size, one.mtime_ns), 0
        batch.append(read)
        titles |= read.titles
        size += count
        report.left -= 1
        report.read += 1
        report.bytes += count
        report.passages += sum(len(session.passages) for session in read.sessions)
        if read.problem:
            report.problems.append((read.path, read.problem))
        if size >= most or len(batch) >= BATCH_FILES:
            report.problems += _keep(archive, batch, titles)
            batch, size, most = [], 0, BATCH_BYTES
            progress(report)
            if not goes_on():
                return report
    opened = {str(one.path if one.part else one.path.parent) for one in found if not one.problem}
    within = [f"{path}{os.sep}" for path in opened]
    mended = [path for path, _ in archive.problems() if any(one.startswith(f"{path}{os.sep}") for one in within)]
    report.problems += _keep(archive, [*batch, *(ReadFile("", path, 0, 0, 0, "") for path in mended)], titles)
    progress(report)
    return report


def _keep(archive: SessionsFile, batch: Sequence[ReadFile], titles: Titles) -> list[tuple[str, str]]:
    """Store a batch; where something in it cannot be stored, each file alone. Return the files that could not be."""
    try:
        archive.keep(batch, titles)
    except ODD:
        if len(batch) > 1:
            return [problem for one in batch for problem in _keep(archive, [one], titles)]
        (one,) = batch
        archive.keep([_unknown(one.agent, one.path, one.size, one.mtime_ns)], {})
        return [(one.path, UNKNOWN_FORMAT)]
    return []


def _unknown(agent: str, path: str, size: int, mtime_ns: int) -> ReadFile:
    return ReadFile(agent, path, size, mtime_ns, 0, UNKNOWN_FORMAT)


def _is_new(found: FoundSession, known: KnownSource | None) -> bool:
    return known is None or (known.size, known.mtime_ns) != (found.size, found.mtime_ns)


def read_file(archive: SessionsFile, found: FoundSession, known: KnownSource | None) -> tuple[ReadFile, int]:
    """Return what a file holds beyond what is known of it, and how many bytes were read."""
    path = found.key
    read = ReadFile(found.agent, path, found.size, found.mtime_ns, 0, found.problem)
    if found.problem:
        return read, 0
    own = reader(found.agent)
    if isinstance(own, StoreReader):
        return read, _read_whole(archive, own, found, read)
    resume = known.resume if own.GROWS and known is not None and known.resume < found.size else 0
    try:
        raw = read_own_file(found.path, most=FILE_BYTES_MAX, start=max(0, resume - 1))
    except (BadInput, NotFound) as error:
        read.problem = clean_name(str(error))
        return read, 0
    facts = archive.facts_of(path) if resume else Facts()
    facts.file = found.path.stem
    lines, cutter = _lines(raw, resume - 1 if resume else 0, own.SKIPPED, facts), Cutter()
    passages = _cut(cutter, own.steps(lines, facts), found, facts)
    if archive.is_named(path, own_name := clean_id(facts.file)):
        facts.name = own_name  # whatever a later line calls it
    if resume and not (raw.startswith(b"\n") and passages and passages[0].parts[0] == archive.part_at(path, resume)):
        return read_file(archive, found, None)  # it was rewritten
    read.titles = {(found.agent, clean_id(leaf)): clean_name(title) for leaf, title in facts.titles.items()}
    if passages:
        read.sessions = [ReadSession(facts, passages, resume, cutter.ended)]
    read.resume = resume_at(passages) if passages else resume
    read.problem = facts.problem or ("" if passages or resume or facts.titles or not raw.strip() else UNREAD)
    return read, len(raw)


def _cut(cutter: Cutter, steps: Iterable[TranscriptStep], found: FoundSession, facts: Facts) -> list[SessionPassage]:
    passages = list(cutter.cut(iter(steps)))
    for passage in passages:
        passage.at = passage.at or found.mtime_ns / 1e9
    facts.cwd, facts.branch, facts.title = (clean_name(name) for name in (facts.cwd, facts.branch, facts.title))
    facts.name, facts.parent, facts.leaf = map(clean_id, (facts.name or facts.file, facts.parent, facts.leaf))
    return passages


def _read_whole(archive: SessionsFile, own: StoreReader, found: FoundSession, read: ReadFile) -> int:
    """Read a session that changed, and store it from the first passage that is another one; return its characters.

    Its client may have changed a message in place, so nothing says where to read on; what stays keeps its vectors.
    """
    facts, cutter = Facts(file=found.part or found.path.stem, cwd=found.folder), Cutter()
    try:
        steps = [replace(step, offset=number) for number, step in enumerate(own.whole(found, facts))]
    except (BadInput, NotFound) as error:
        read.problem = clean_name(str(error))
        return 0
    passages = _cut(cutter, steps, found, facts)
    stored = archive.parts_of_session(found.agent, facts.name)
    pairs = enumerate(zip(passages, stored, strict=False))
    unlike = (number for number, (one, was) in pairs if (one.first, one.parts) != was)
    same = next(unlike, min(len(passages), len(stored)))
    while 0 < same < len(passages) and passages[same - 1].first == passages[same].first:
        same -= 1  # pieces of one step go together
    begin = passages[same].first if same < len(passages) else len(steps)
    ended = cutter.ended | {a.call: a for one in passages[:same] for a in one.actions if a.exit is not None}
    if passages:
        read.sessions = [ReadSession(facts, passages[same:], begin, ended)]
    read.problem = facts.problem or ("" if passages or stored else UNREAD)
    return sum(len(step.text) for step in steps)


def _value(line: bytes) -> Json:
    """Return the value of a line, quickly where it is sound. Raises as `lenient` does."""
    try:
        value: Json = from_json(line, cache_strings="keys")
    except ValueError:
        return lenient(line)
    return value


def _lines(raw: bytes, start: int, skipped: tuple[bytes, ...], facts: Facts) -> Iterator[tuple[int, Record]]:
    """Yield the objects of JSON lines with their offsets; what is none is left out, and noted in the facts."""
    at = 0
    while at < len(raw):
        end = raw.find(b"\n", at)
        is_whole = end >= 0
        end = end if is_whole else len(raw)
        line, offset, at = raw[at:end], start + at, end + 1
        if not line.strip() or line.startswith(skipped):
            continue
        if len(line) > LINE_BYTES_MAX:
            facts.problem = LONG
            continue
        try:
            value = _value(line)
        except (ValueError, RecursionError):
            facts.problem = NO_JSON if is_whole else TORN
            continue
        if isinstance(value, dict):
            yield offset, value
