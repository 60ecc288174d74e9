"""Export and import of a data directory: as JSON lines with everything, or as pages for people.

JSON lines: memories are read through calls, one payload per line. Other lines have a `kind`: `audit` (the trail, record
by record, so that the chain can be verified at its destination), `proposal` (its file as text, since its hash counts)
and `project` (id and aliases). An import writes only into the caller's own project folder; other proposals, and a trail
that differs from the one here, are stored under `imported/`, and exported from there again.

Pages: Open Knowledge Format 0.2, or one Markdown file. Both contain each memory as an export writes it, so that an
import into a fresh store makes the same memory, and a second export the same files; an edited text has another hash and
comes back as a new memory that waits for review. An OKF page holds it in its front matter, the Markdown mirror in a
hidden file next to it, so that the page stays clean. Only current versions are exported; `export --versions` exports
the rest. Deleting a page forgets nothing.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypedDict

import yaml

from memory_anchor.adapters.projects import Projects
from memory_anchor.base import nofollow
from memory_anchor.base.files import make_private, write_atomic
from memory_anchor.base.json_values import Json, Record, optional_text, record, records, text, whole
from memory_anchor.domain.errors import BadInput, Refused
from memory_anchor.domain.model import COLLECTIONS, MemoryType, Status
from memory_anchor.extensions.transfer.other_tools import MEMORY_KEY, MIRROR, MIRROR_DATA, read_text
from memory_anchor.identity.proposals import FOLDER as PROPOSALS
from memory_anchor.identity.proposals import IMPORTED, MAX_FILE_BYTES, PROPOSAL_ID, proposals_of
from memory_anchor.language.safe_regex import late

if TYPE_CHECKING:
    from memory_anchor.domain.ports import AuditRecord
    from memory_anchor.identity.keys import Signer
    from memory_anchor.store.audit_rows import LocalTrail

Ask = Callable[..., Record]

EXPORTED = tuple(name for name in COLLECTIONS if name != "knowledge")  # which is read again from its sources
CURSOR = late(r"[0-9a-f-]{1,40}")
ALIASES = "project_aliases"
HERE = "here"
"""The word of `--project` for the project of the current folder."""
LINE_BYTES_MAX = 2_000_000
BATCH_LINES = 100
BATCH_BYTES = 2_000_000
"""Of lines sent at once; one connection allows eight times that."""
AUDIT_BATCH = 500
READ_EACH = 10_000
"""Lines between two progress reports while a file is read."""
ERRORS_KEPT = 1_000
_BREAKS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_PROJECT = late(r"[A-Za-z0-9_.-]{1,64}")
BOM = b"\xef\xbb\xbf"
_KIND = late(rb'^\s*\{\s*"kind"\s*:')


def dumped(value: Mapping[str, Json] | OtherLine) -> str:
    """Return one line of JSON; characters that some readers take for a line break are escaped."""
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for sign, escaped in _BREAKS.items():
        line = line.replace(sign, escaped)
    return line


class OtherLine(TypedDict):
    """A record of the audit trail, as a line."""

    kind: str
    record: AuditRecord


# --- out -------------------------------------------------------------------------------------------------------


def export_lines(
    ask: Ask,
    data_dir: Path,
    *,
    versions: bool,
    own_project: bool,
    everything: bool = False,
    human: Signer | None = None,
) -> Iterator[str]:
    """Yield the lines of an export without their line breaks, a page in memory at a time.

    everything: a human's export of everybody's memories, with the trail; else what the caller may read. The first line
    of each project has its aliases, so that an import can say where its memories go.
    """
    start = ask("export_begin", everything=everything, human=human)
    caller_project = text(start["project"])
    project = caller_project if own_project else None
    aliases_left = {} if versions else dict(known_projects(data_dir))
    for collection in EXPORTED:
        after: str | None = None
        while True:
            page = ask(
                "export_page",
                collection=collection,
                instant=datetime.fromisoformat(text(start["instant"])).isoformat(),
                versions=versions,
                own_project=own_project,
                everything=everything,
                after=after,
                human=human,
            )
            for line in records(page["lines"]):
                aliases = aliases_left.pop(text(line["project"]), ())
                yield dumped({**line, ALIASES: list(aliases)} if aliases else line)
            after = optional_text(page["after"])
            if after is None:
                break
            if not CURSOR.fullmatch(after):  # a human signs it: where a page begins, and nothing else
                raise Refused("the engine names no page of an export; nothing more was exported")
    if versions:
        yield from _other_lines(data_dir, project if everything else caller_project)


def _other_lines(data_dir: Path, project: str | None) -> Iterator[str]:
    """Yield the lines with a kind: the whole trail (it cannot be cut), proposals, projects."""
    if project is None:
        from memory_anchor.front.cli.passphrase import audit_trail

        for record in audit_trail(data_dir).records():
            yield dumped({"kind": "audit", "record": record})
    projects = known_projects(data_dir)
    for name in sorted(projects) if project is None else [project]:
        for proposal, content in sorted(proposals_of(data_dir, name, projects.get(name, ())).items()):
            yield dumped({"kind": "proposal", "project": name, "id": proposal, "text": content})
    for name in sorted(projects) if project is None else {project} & projects.keys():
        yield dumped({"kind": "project", "id": name, "aliases": list(projects[name])})


def known_projects(data_dir: Path) -> Mapping[str, tuple[str, ...]]:
    """Return project id -> aliases as stored on disk. Raises StoreDamaged."""
    return Projects(data_dir / "projects.json", lambda: "").all()


# --- in --------------------------------------------------------------------------------------------------------


class WrongLine(TypedDict):
    line: int
    message: str


class LinesOfProject(TypedDict):
    """Where a project's lines went. here: whether this folder sees them."""

    project: str
    to: str
    lines: int
    here: bool


@dataclass(slots=True)
class ImportResult:
    """The result of an import. added, skipped: versions; written, pending, rejected: lines that were new writes."""

    lines: int = 0
    added: int = 0
    skipped: int = 0
    written: int = 0
    pending: int = 0
    rejected: int = 0
    conflicts: int = 0
    """New writes that contradict what is known; counted when nothing is written."""
    audit_records: int = 0
    proposals: int = 0
    projects: int = 0
    failed: int = 0
    stopped_at: int | None = None
    """Last line that was sent before Ctrl-C; 0 where none was."""
    reasons: list[WrongLine] = field(default_factory=list)
    """Why new writes were rejected, the first thousand."""
    went: list[LinesOfProject] = field(default_factory=list)
    errors: list[WrongLine] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add_error(self, line: int, message: str) -> None:
        """Record why a line was not imported; beyond the first thousand only their number."""
        self.failed += 1
        if len(self.errors) < ERRORS_KEPT:
            self.errors.append({"line": line, "message": message})


def import_file(
    ask: Ask,
    file: BinaryIO,
    data_dir: Path,
    *,
    project_dir: str,
    human: Signer | None = None,
    tick: Callable[[int], None],
    to: Mapping[str, str] | None = None,
    choose: Callable[[str, int], str] | None = None,
    dry: bool = False,
    tell: Callable[[str], object] = len,
) -> ImportResult:
    """Import the lines of `file`, which is read twice; a line that cannot be imported is recorded and skipped.

    human: who signs, for `ask`; None for an agent. to: project id in the file -> id here or `HERE`; "" is for all that
    are not known here. choose: returns a target for the others, given their number of lines; without it a file of one
    unknown project goes to the folder's project, and of several each keeps its id. dry: only count the result. tell:
    gets a sentence on each project that has another id here, before a line of it is signed.
    Raises our errors only for what concerns every line: no store, read-only, no space.
    """
    from memory_anchor.front.cli.passphrase import audit_trail

    audit = audit_trail(data_dir)
    projects, audited, lines = _survey(file, audit, tick)
    own_project = text(ask("export_begin")["project"])
    targets = _choose_targets(ask, projects, lines, own_project if project_dir else "", to or {}, choose)
    for name, local_id in targets.items():
        tell(f"project {name} of the file goes to {local_id}")
    aliases_of: dict[str, list[str]] = {}
    for name, aliases in projects.items():
        aliases_of.setdefault(targets.get(name, name), []).extend(aliases)
    answer = ask("import_projects", projects=aliases_of, human=human) if aliases_of and not dry else {}
    renamed = {name: text(local_id) for name, local_id in record(answer.get("renamed")).items()} | targets
    for name, local_id in renamed.items():
        tell(f"project {name} of the file is {local_id} here")
    result = ImportResult(projects=len(projects))
    for name, count in sorted(lines.items()):
        target = renamed.get(name, name)
        result.went.append({"project": name, "to": target, "lines": count, "here": target == own_project})
        if target != own_project and project_dir:
            result.notes.append(
                f"{count} lines are of project {target}, which this folder is not: they are seen in its own folder "
                f"(`memory-anchor projects link {target}` there), or bring them here with --project here"
            )
    other_lines = _OtherLines(audit, data_dir, project_dir, result, adopts=human is not None)
    # The trail first: what it names is then not recorded anew, and what it does not name is.
    for number, raw in _lines(file, None):
        if _KIND.match(raw) and not dry:
            other_lines.take(number, raw)
    other_lines.finish()

    def send(batch: list[tuple[int, str]]) -> None:
        answer = ask("import_lines", lines=batch, projects=renamed, audited=audited, dry=dry, human=human)
        for name in ("added", "skipped", "written", "pending", "rejected", "conflicts"):
            setattr(result, name, getattr(result, name) + whole(answer[name]))
        for error in records(answer["errors"]):
            result.add_error(whole(error["line"]), text(error["message"]))
        for reason in records(answer["reasons"])[: ERRORS_KEPT - len(result.reasons)]:
            result.reasons.append({"line": whole(reason["line"]), "message": text(reason["message"])})

    batch: list[tuple[int, str]] = []
    size = sent = 0
    try:
        for number, raw in _lines(file, result):
            if _KIND.match(raw):
                continue
            if len(batch) >= BATCH_LINES or size + len(raw) > BATCH_BYTES:
                send(batch)
                batch, size, sent = [], 0, batch[-1][0]
                tick(number)
            if raw.strip() and (line := _text(number, raw, result)):
                batch.append((number, _without_aliases(line)))
                size += len(raw)
        if batch:
            send(batch)
    except KeyboardInterrupt:
        result.stopped_at = sent
    return result


def _choose_targets(
    ask: Ask,
    projects: Mapping[str, list[str]],
    lines: Mapping[str, int],
    own_project: str,
    requested: Mapping[str, str],
    choose: Callable[[str, int], str] | None,
) -> dict[str, str]:
    """Return project ids of a file -> ids here, for those that are to have another one.

    own: the folder's project, "" when the caller has no folder.
    """
    answer = ask("projects_list", aliases=projects)
    known_ids = {text(row["id"]) for row in records(answer["projects"]) if row["memories"] or row["paths"]}
    known_ids |= set(record(answer["renamed"]))
    unknown_ids = [name for name in lines if name not in known_ids and name != own_project]
    targets: dict[str, str] = {}
    for name in lines:
        target = requested.get(name) or (requested.get("") if name in unknown_ids else None)
        if target is None and name in unknown_ids and own_project:
            target = HERE if len(lines) == 1 else choose(name, lines[name]) if choose is not None else None
        target = own_project if target == HERE else target
        if target and target != name:
            targets[name] = target
    return targets


def _text(number: int, raw: bytes, result: ImportResult) -> str:
    """Return a line as text, "" if it is none or was cut off, which is recorded."""
    try:
        line = raw.decode("utf-8")
        if not raw.endswith(b"\n"):
            json.loads(line)
        return line
    except UnicodeDecodeError as error:
        cure = "`iconv -f LATIN1 -t UTF-8` converts the file"
        result.add_error(number, f"line {number} is no UTF-8 (byte {error.start + 1} of it); {cure}")
    except (ValueError, RecursionError):
        result.add_error(number, f"line {number} breaks off, the file was cut there; get it whole and import it again")
    return ""


def _without_aliases(line: str) -> str:
    if f'"{ALIASES}"' in line:
        try:
            memory = json.loads(line)
            if isinstance(memory, dict) and memory.pop(ALIASES, None) is not None:
                return dumped(memory)
        except (ValueError, RecursionError):
            return line
    return line


def _survey(
    file: BinaryIO, audit: LocalTrail, tick: Callable[[int], None]
) -> tuple[dict[str, list[str]], bool, dict[str, int]]:
    """Return a file's projects, whether its trail continues (or is) the one here, and its lines per project."""
    last = next(iter(deque(audit.records(), maxlen=1)), {"n": 0, "hash": ""})
    projects: dict[str, list[str]] = {}
    lines: dict[str, int] = {}
    trail = continues = False
    for number, raw in _lines(file, None):
        if number % READ_EACH == 0:
            tick(number)
        try:
            line = json.loads(raw)
            if not _KIND.match(raw):
                name = line["project"]
                if isinstance(name, str) and "version" in line:
                    lines[name] = lines.get(name, 0) + 1
                    projects.setdefault(name, []).extend(map(str, line.get(ALIASES, ())))
            elif line["kind"] == "project":
                projects[str(line["id"])] = [str(alias) for alias in line["aliases"]]
            elif line["kind"] == "audit":
                trail = True
                continues = continues or line["record"]["hash"] == last["hash"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue  # reported when it is imported
    return {n: a for n, a in projects.items() if a}, trail and (continues or last["n"] == 0), lines


class _OtherLines:
    """Imports the lines with a kind. The trail is continued batch by batch, or stored apart once it does not fit."""

    def __init__(
        self, audit: LocalTrail, data_dir: Path, project_dir: str, result: ImportResult, *, adopts: bool
    ) -> None:
        """adopts: a human brings the file, so its trail may continue the one here."""
        self._audit = audit
        self._adopts = adopts
        self._data_dir = data_dir
        self._proposals = Path(project_dir) / PROPOSALS if project_dir else None
        self._result = result
        self._records: list[dict[str, Json]] = []
        self._apart: BinaryIO | None = None

    def take(self, number: int, raw: bytes) -> None:
        try:
            line = json.loads(raw)
            match line["kind"]:
                case "audit":
                    self._records.append(dict(line["record"]))
                    if len(self._records) >= AUDIT_BATCH:
                        self._continue()
                case "proposal":
                    self._keep_proposal(str(line["project"]), str(line["id"]), str(line["text"]))
                case "project":
                    pass  # imported before the first memory
                case _:
                    allowed = "allowed are audit, proposal, project"
                    self._result.add_error(number, f"line {number}: its kind is unknown; {allowed}")
        except (ValueError, KeyError, TypeError, RecursionError):
            self._result.add_error(number, f"line {number} is not what an export writes; its kind needs other fields")

    def finish(self) -> None:
        """Write the records of the last batch."""
        self._continue()
        if self._apart is not None:
            self._apart.close()

    def _continue(self) -> None:
        batch, self._records = self._records, []
        if not batch:
            return
        if not self._adopts:
            note = "the audit trail of the file was left out; a human brings it in: run the import with --human"
            self._result.notes += [] if note in self._result.notes else [note]
            return
        if self._apart is None:
            try:
                self._result.audit_records += self._audit.adopt(batch)
                return
            except BadInput as error:
                self._result.notes.append(str(error))
                folder = self._data_dir / IMPORTED
                make_private(folder)
                self._apart = (folder / f"audit-{str(batch[0].get('hash'))[:16]}.jsonl").open("wb")
        self._apart.writelines(dumped(record).encode() + b"\n" for record in batch)

    def _keep_proposal(self, project: str, name: str, content: str) -> None:
        if not PROPOSAL_ID.fullmatch(name) or not _PROJECT.fullmatch(project) or len(content) > MAX_FILE_BYTES:
            raise ValueError("no proposal's id, project or size")
        aliases = known_projects(self._data_dir).get(project, ())
        if proposals_of(self._data_dir, project, aliases).get(name) == content:
            return
        folder = self._proposals
        if folder is not None and f"path:{folder.parent.parent}" in aliases and not (folder / f"{name}.yaml").exists():
            nofollow.write(folder.parent.parent, PROPOSALS / f"{name}.yaml", content.encode())
        else:
            write_atomic(self._data_dir / IMPORTED / "proposals" / project / f"{name}.yaml", content.encode())
        self._result.proposals += 1


def _lines(file: BinaryIO, result: ImportResult | None) -> Iterator[tuple[int, bytes]]:
    """Yield numbered lines from the start; one that is too long is recorded and skipped."""
    file.seek(0)
    number = 0
    while raw := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        raw = raw.removeprefix(BOM) if number == 1 else raw
        if len(raw) > LINE_BYTES_MAX:
            while raw and not raw.endswith(b"\n"):
                raw = file.readline(LINE_BYTES_MAX)
            if result is not None:
                result.add_error(number, f"line {number} is over {LINE_BYTES_MAX} bytes; no export writes one so long")
            continue
        if result is not None:
            result.lines = number
        yield number, raw


PAGES_LIST = ".memory-anchor-export"
"""Lists what an export wrote into a folder: the next one deletes those that it no longer writes."""
TITLE_CHARS, SLUG_CHARS = 80, 40
LIFECYCLE = {Status.ACTIVE: "stable", Status.PENDING: "draft", Status.DISPUTED: "draft"}

Page = tuple[str, str]
"""(path below the folder, text)"""


def okf(memories: Iterable[dict[str, Json]]) -> Iterator[Page]:
    """Yield one page per memory, and the index that lists them."""
    entries: dict[str, list[str]] = {}
    for memory in memories:
        path = f"{memory['layer']}/{_slug(memory)}-{memory['id']}.md"
        kind, title = str(memory["type"]).replace("_", " ").capitalize(), _title(memory)
        entries.setdefault(kind, []).append(f"* [{title}]({path})")
        yield path, f"---\n{_front(memory, kind, title)}---\n\n{memory['content']}\n"
    parts = [f"# {kind}\n\n" + "\n".join(sorted(lines)) for kind, lines in sorted(entries.items())]
    yield "index.md", '---\nokf_version: "0.2"\n---\n\n' + "\n\n".join(parts) + "\n"


def _front(memory: dict[str, Json], kind: str, title: str) -> str:
    by = str(memory["author"]).replace("agent:", "memory-anchor/") or "process:memory-anchor"
    front: dict[str, Json] = {"type": kind, "title": title}
    if memory.get("tag"):
        front["tags"] = memory["tag"]
    front["generated"] = {"by": by, "at": memory["recorded_at"]}
    if by.startswith("human:"):
        front["verified"] = [{"by": by, "at": memory["recorded_at"]}]
    front["status"] = LIFECYCLE.get(Status(text(memory["status"])), "deprecated")
    if expires_at := optional_text(memory.get("expires_at")):
        front["stale_after"] = datetime.fromisoformat(expires_at).date().isoformat()
    if sources := [{"resource": _resource(citation)} for citation in records(memory.get("citations"))]:
        front["sources"] = sources
    fields = {name: value for name, value in memory.items() if name != "content"}
    front[MEMORY_KEY] = json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    yaml_text: str = yaml.safe_dump(front, allow_unicode=True, sort_keys=False, width=10**6)
    return yaml_text


def markdown(memories: Iterable[dict[str, Json]]) -> Iterator[Page]:
    """Yield one page of lists by type for people, and a file with the memories themselves."""
    items: dict[str, list[str]] = {}
    data = []
    for memory in memories:
        content = str(memory["content"]).replace("\n", "\n  ").replace("\n  \n", "\n\n")
        item = f"- {content}\n  <!-- {memory['id']}@{memory['version']} -->"
        items.setdefault(str(memory["type"]), []).append(item)
        data.append(json.dumps(memory, ensure_ascii=False, sort_keys=True, separators=(",", ":")))
    parts = [f"## {kind}\n\n" + "\n\n".join(items[kind]) for kind in MemoryType if kind in items]
    yield MIRROR, "# Memories\n\n" + "\n\n".join(parts) + "\n"
    yield MIRROR_DATA, "".join(f"{line}\n" for line in data)


FORMATS: Mapping[str, Callable[[Iterable[dict[str, Json]]], Iterator[Page]]] = {"okf": okf, "markdown": markdown}


def write_pages(form: str, lines: Iterable[str], folder: Path, *, force: bool = False) -> int:
    """Write an export's lines as pages into a folder, empty or of an earlier export; return how many memories.

    force: also into another folder, whose files stay unless a page has their name.
    Raises Refused: the folder holds something else; BadInput: `form` is none of `FORMATS`. OSError.
    """
    if form not in FORMATS:
        raise BadInput(f"--to is {form!r}; allowed are jsonl, {', '.join(FORMATS)}")
    list_file = folder / PAGES_LIST
    earlier = set(read_text(list_file).split("\n")) - {""} if list_file.is_file() else set()
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file; allowed with --to {form} is a folder")
    if not force and folder.exists() and not list_file.is_file() and any(folder.iterdir()):
        raise Refused(f"{folder} is not empty and no export of ours; give an empty folder, a new one, or --force")
    memories = sorted((_parsed(line) for line in lines), key=lambda m: (str(m["recorded_at"]), str(m["id"])))
    pages = dict(FORMATS[form](memories))
    for path, page in pages.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(folder / path, page.encode("utf-8", "replace"))
    write_atomic(list_file, "".join(f"{path}\n" for path in sorted(pages)).encode())
    for old in earlier - pages.keys():
        stale = folder / old
        if ".." not in Path(old).parts and not Path(old).is_absolute() and stale.is_file() and not stale.is_symlink():
            stale.unlink()
    return len(memories)


def _parsed(line: str) -> dict[str, Json]:
    memory: dict[str, Json] = json.loads(line)
    memory.pop(ALIASES, None)
    return memory


def _title(memory: Mapping[str, Json]) -> str:
    first = str(memory.get("key") or memory["content"]).strip().split("\n")[0]
    plain = re.sub(r"[\[\]<>`*_]", "", first)
    return plain if len(plain) <= TITLE_CHARS else plain[: TITLE_CHARS - 1].rstrip() + "…"


def _slug(memory: Mapping[str, Json]) -> str:
    words = re.sub(r"[^\w]+", "-", _title(memory).lower()).strip("-_")
    return words[:SLUG_CHARS].strip("-_") or "memory"


def _resource(citation: Mapping[str, Json]) -> str:
    locator = record(citation.get("locator"))
    ends = [f"L{locator[name]}" for name in ("line_start", "line_end") if name in locator]
    return "#".join(filter(None, (str(citation["ref"]), "-".join(dict.fromkeys(ends)))))
