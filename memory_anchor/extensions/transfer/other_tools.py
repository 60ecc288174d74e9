"""The memories of other tools as lines for an import: one reader per tool, each with its default place.

Nothing is written here and nothing is trusted: what is read goes through `import_lines` like any foreign line, so it
waits in the inbox unless a human imports it, and a second import adds nothing. Each line has its origin (`cites`) and
its date. What cannot be read becomes a `ReadItem` with the reason, and the rest continues. Databases are opened
read-only; pickles, which some of these tools use too, are never opened, since opening one runs its content.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import yaml

from memory_anchor.base.bounded_yaml import LOADER
from memory_anchor.base.bounded_yaml import check as check_yaml
from memory_anchor.base.json_values import Json, items, kind_of
from memory_anchor.base.lines import text_lines
from memory_anchor.domain.errors import BadInput, NotFound
from memory_anchor.domain.model import LAYER_OF_TYPE, Layer, MemoryType
from memory_anchor.domain.requests.checks import CONTENT_MAX, KEY_MAX, TAG_MAX, TAGS_MAX
from memory_anchor.language.safe_regex import late

FILES_MAX = 5_000
"""Files of one folder that are read."""
FILE_BYTES_MAX = 16 << 20
PAGE_BYTES_MAX = 1 << 20
"""Of one Markdown file, parsed in memory: a page of list items takes some 600 times its size."""
LINE_BYTES_MAX = 4 << 20
ROWS_MAX = 1_000_000
YEARS = (1980, 2100)
"""A date outside of these is a mistake of the other tool and left out."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECONDS = 1e11
"""Larger numbers are milliseconds: as seconds they would be after the year 5000."""
SKIPPED = frozenset({".git", "node_modules", ".venv", "venv", "__pycache__"})
FRONT = late(r"\A---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)
TYPES: Mapping[str, str] = {
    **{kind.value: kind.value for kind, home in LAYER_OF_TYPE.items() if home is Layer.VERIFIED_FACT},
    **{"feedback": "instruction", "user": "preference", "project": "project_state", "reference": "bookmark"},
    **{"feature": "project_state", "change": "project_state", "summary": "project_state"},
}
"""Other tools' words for our types; any other is a fact, since all of it waits in the inbox and none expires."""

Line = dict[str, Json]


@dataclass(frozen=True, slots=True)
class ReadItem:
    """One item that was read. location: such as `CLAUDE.md:12`. line: for the import; None if there is a problem."""

    location: str
    line: Line | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class OtherTool:
    """A tool that memories come from. read: yields the items at a path. home: its default place in the user's home."""

    read: Callable[[Path], Iterator[ReadItem]]
    description: str
    home: str = ""


def read_items(name: str, path: Path | None, *, home: Path) -> Iterator[ReadItem]:
    """Yield the items of a tool of `TOOLS` at `path`, by default at its own place.

    Raises BadInput: no such tool, or it has no default place; NotFound: nothing is there.
    """
    tool = TOOLS.get(name)
    if tool is None:
        raise BadInput(f"--from is {name!r}; allowed are {', '.join(TOOLS)}")
    if path is None and not tool.home:
        raise BadInput(f"--from {name} needs a path: {tool.description}")
    source = path or home / tool.home
    if not source.exists():
        raise NotFound(f"there is no {source}; --from {name} reads {tool.description}")
    return tool.read(source)


# --- Markdown that people and agents keep by hand ---------------------------------------------------------------------


def blocks(text: str) -> Iterator[tuple[int, tuple[str, ...], str]]:
    """Yield (line, headings, text) of each list item, paragraph, table and code block of Markdown.

    A paragraph that ends in a colon counts as a heading of what follows; comments and rules are left out.
    """
    from markdown_it import MarkdownIt

    text = re.sub(r"\r\n?", "\n", text)  # as the parser does, whose line numbers are used
    lines = text_lines(text)
    headings: list[tuple[int, str]] = []
    lead = ""
    depth = 0
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for index, token in enumerate(tokens):
        if token.type in ("bullet_list_close", "ordered_list_close", "blockquote_close"):
            depth -= 1
            lead = "" if not depth else lead
        if token.type == "heading_open":
            level = int(token.tag[1:])
            headings = [(n, name) for n, name in headings if n < level] + [(level, tokens[index + 1].content.strip())]
            lead = ""
        if token.type in ("bullet_list_open", "ordered_list_open", "blockquote_open"):
            depth += 1
        is_block = (token.type == "list_item_open" and depth == 1) or (
            token.type in ("paragraph_open", "table_open", "fence", "code_block") and not depth
        )
        if not is_block or token.map is None:
            continue
        start, end = token.map
        block = _dedented(lines[start:end], item=token.type == "list_item_open")
        if not block:
            continue
        if token.type == "paragraph_open" and block.endswith((":", "：")) and len(block) <= KEY_MAX:
            lead = block.rstrip(":：").strip()
            continue
        yield start + 1, (*(name for _, name in headings), *([lead] if lead else [])), block


def _dedented(lines: list[str], *, item: bool) -> str:
    if item and lines:
        marked = re.match(r"\s*(?:[-*+]|\d{1,9}[.)])\s+(?:\[[ xX]\]\s+)?", lines[0])
        width = marked.end() if marked else 0
        lines = [lines[0][width:], *(line[min(width, len(line) - len(line.lstrip())) :] for line in lines[1:])]
    return "\n".join(lines).strip()


@dataclass(frozen=True, slots=True)
class ReadPage:
    """A page of Markdown. front: its front matter. above: lines of the file above the body."""

    front: dict[str, Json]
    body: str
    above: int = 0


def page_of(file: Path) -> ReadPage:
    """Return a page. Raises BadInput: `read_text` cannot read it, or its front matter is no mapping in YAML."""
    text = read_text(file, most_bytes=PAGE_BYTES_MAX).removeprefix("\ufeff")
    text = text.replace("\r\n", "\n") if text.startswith("---\r\n") else text
    match = FRONT.match(text)
    if match is None:
        return ReadPage({}, text)
    try:
        check_yaml(match[1])
        front = yaml.load(match[1], Loader=LOADER)  # noqa: S506 - builds strings, lists and mappings alone
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInput(f"its front matter is no YAML ({str(error).partition(chr(10))[0][:80]})") from None
    if not isinstance(front, dict):
        raise BadInput("its front matter is no mapping")
    return ReadPage(front, text[match.end() :], match[0].count("\n"))


def pages(path: Path, is_wanted: Callable[[Path], bool]) -> Iterator[tuple[str, Path]]:
    """Yield (name, file) of a file or of the files below a folder, in order; no link is followed."""
    if path.is_file():
        yield path.name, path
        return
    paths = []
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        paths += [Path(folder, name) for name in files if is_wanted(Path(name)) and not Path(folder, name).is_symlink()]
    for file in islice(sorted(paths), FILES_MAX):
        yield file.relative_to(path).as_posix(), file


def read_text(file: Path, *, most_bytes: int = FILE_BYTES_MAX) -> str:
    """Return a file's text. Raises BadInput: it is too large, or no UTF-8."""
    try:
        if file.stat().st_size > most_bytes:
            raise BadInput(f"it is over {most_bytes >> 20} MB; split it")
        return file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"it is no UTF-8 (byte {error.start}); `iconv -f LATIN1 -t UTF-8` converts it") from None
    except OSError as error:
        raise BadInput(f"it cannot be read ({error.strerror})") from None


def _markdown(tool: str, is_wanted: Callable[[Path], bool], kind: str) -> Callable[[Path], Iterator[ReadItem]]:
    """Return a reader of rules and notes in Markdown: one memory an item, under its headings, citing its line."""

    def read(path: Path) -> Iterator[ReadItem]:
        for name, file in pages(path, is_wanted):
            try:
                page = page_of(file)
            except BadInput as error:
                yield ReadItem(name, problem=str(error))
                continue
            type_ = TYPES.get(str(_dict_in(page.front, "metadata").get("type") or page.front.get("type") or ""), kind)
            title = str(page.front.get("name") or page.front.get("title") or "")
            for line, headings, block in blocks(page.body):
                if (block.startswith("@") and " " not in block) or _is_only_links(block):
                    continue  # an import of another file, or a table of contents
                yield _item(
                    f"{name}:{line + page.above}",
                    block,
                    type=type_,
                    key=" · ".join([title, *headings] if title and title not in headings else headings),
                    cites=[f"{tool}:{name}:{line + page.above}"],
                )

    return read


def _is_only_links(block: str) -> bool:
    return bool(re.fullmatch(r"(?:\s*\[[^\]]*\]\([^)]*\.md\)[\s,;|·-]*)+(?:[—–-].*)?", block))


# --- stores of other servers ------------------------------------------------------------------------------------------


def _server_memory(path: Path) -> Iterator[ReadItem]:
    """The reference server's knowledge graph: JSON lines of entities with observations, and relations."""
    file = path / "memory.jsonl" if path.is_dir() else path
    for line_number, raw in _json_lines(file):
        where = f"line {line_number}"
        if isinstance(raw, str):
            yield ReadItem(where, problem=raw)
        elif raw.get("type") == "entity" and isinstance(raw.get("observations"), list):
            name, kind = str(raw.get("name") or ""), str(raw.get("entityType") or "")
            for number, observation in enumerate(items(raw["observations"]), 1):
                said = observation.get("content") if isinstance(observation, Mapping) else observation
                text = "" if said is None else str(said)
                since = (observation if isinstance(observation, Mapping) else raw).get("createdAt")
                content = text if not text.strip() or name.lower() in text.lower() else f"{name}: {text}"
                cites = [f"server-memory:{name}#{number}"]
                yield _item(f"{where}, observation {number}", content, key=name, tags=[kind], cites=cites, since=since)
        elif raw.get("type") == "relation" and all(raw.get(end) for end in ("from", "to", "relationType")):
            verb = str(raw["relationType"]).replace("_", " ")
            cites = [f"server-memory:{raw['from']}-{raw['to']}"]
            yield _item(where, f"{raw['from']} {verb} {raw['to']}", key=str(raw["from"]), cites=cites)
        else:
            yield ReadItem(where, problem="it is neither an entity with observations nor a relation")


def _json_lines(file: Path) -> Iterator[tuple[int, dict[str, Json] | str]]:
    """Yield (number, object) of each line, or what is wrong with it."""
    with file.open("rb") as stream:
        number = 0
        while raw := stream.readline(LINE_BYTES_MAX + 1):
            number += 1
            raw = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
            if len(raw) > LINE_BYTES_MAX:
                while raw and not raw.endswith(b"\n"):
                    raw = stream.readline(LINE_BYTES_MAX)
                yield number, f"it is over {LINE_BYTES_MAX >> 20} MB"
            elif raw.strip():
                try:
                    value = json.loads(raw.decode("utf-8"))
                    yield number, value if isinstance(value, dict) else "it is no JSON object"
                except UnicodeDecodeError:
                    yield number, "it is no UTF-8; `iconv -f LATIN1 -t UTF-8` converts the file"
                except (ValueError, RecursionError):
                    cut = "" if raw.endswith(b"\n") else ": the file breaks off there, get it whole"
                    yield number, f"it is no JSON{cut}"


def _mem0(path: Path) -> Iterator[ReadItem]:
    """mem0: its history.db (each memory's newest text), or the answer of `get_all()`, saved as JSON."""
    file = path / "history.db" if path.is_dir() else path
    if file.suffix == ".json":
        try:
            answer = json.loads(read_text(file))
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{file}: {error if isinstance(error, BadInput) else 'it is no JSON'}") from None
        names = ("results", "memories")
        memories = next((answer[n] for n in names if n in answer), []) if isinstance(answer, dict) else answer
        if not isinstance(memories, list):
            raise BadInput(f"{file} holds {kind_of(memories)}; allowed is what get_all() gave: a list of memories")
        for number, memory in enumerate(memories, 1):
            fields = memory if isinstance(memory, dict) else {}
            text = next((fields[name] for name in ("memory", "text", "data") if fields.get(name)), "")
            if not text:
                yield ReadItem(f"memory {number}", problem="it has no text")
                continue
            tags = fields.get("categories")
            tags = tags if isinstance(tags, list) else []
            since = fields.get("updated_at") or fields.get("created_at")
            cites = [f"mem0:{fields.get('id', number)}"]
            yield _item(f"memory {number}", str(text), tags=tags, cites=cites, since=since)
        return
    newest = (
        "SELECT * FROM (SELECT *, COALESCE(updated_at, created_at) AS at, ROW_NUMBER() OVER ("
        "PARTITION BY memory_id ORDER BY COALESCE(updated_at, created_at) DESC, rowid DESC) AS nth FROM history) "
        "WHERE nth = 1 ORDER BY at, memory_id"
    )
    for row in _rows(file, {"history": newest}):
        if isinstance(row, ReadItem):
            yield row
        elif row["event"] != "DELETE" and not row["is_deleted"] and row["new_memory"]:
            name = row["memory_id"]
            yield _item(f"memory {name}", str(row["new_memory"]), cites=[f"mem0:{name}"], since=row["at"])


def _claude_mem(path: Path) -> Iterator[ReadItem]:
    """claude-mem: observations as what happened, with their facts; a session's summary as one event."""
    file = path / "claude-mem.db" if path.is_dir() else path
    queries = {
        "observations": "SELECT * FROM observations ORDER BY id",
        "session_summaries": "SELECT * FROM session_summaries ORDER BY id",
    }
    for row in _rows(file, queries):
        if isinstance(row, ReadItem):
            yield row
            continue
        since = row.get("created_at_epoch") or row.get("created_at")
        if "request" in row:
            names = ("request", "investigated", "learned", "completed", "next_steps")
            parts = [f"{name.replace('_', ' ').capitalize()}: {row[name]}" for name in names if row.get(name)]
            content = "\n".join(parts)
            where, kind, title, tags = f"summary {row['id']}", TYPES["summary"], str(row.get("request") or ""), []
        else:
            where, kind = f"observation {row['id']}", TYPES.get(str(row.get("type")), "fact")
            title, tags = str(row.get("title") or ""), [str(row.get("type")), *_as_list(row.get("concepts"))]
            facts = "\n".join(f"- {fact}" for fact in _as_list(row.get("facts")))
            texts = (title, row.get("narrative") or row.get("text") or row.get("subtitle"), facts)
            content = "\n".join(dict.fromkeys(str(text) for text in texts if text))
        if not content.strip():
            yield ReadItem(where, problem="it has no text")
            continue
        tags = [f"project:{row['project']}", *tags] if row.get("project") else tags
        cites = [f"claude-mem:{where.replace(' ', ':')}"]
        yield _item(where, content, type=kind, key=title, tags=tags, cites=cites, since=since)


def _rows(file: Path, queries: Mapping[str, str]) -> Iterator[dict[str, Json] | ReadItem]:
    """Yield the rows of queries by table; a table that is not there has none, damage ends with a sentence."""
    uri = f"file:{quote(str(file.absolute()))}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as base:
            base.row_factory = sqlite3.Row
            base.text_factory = lambda raw: raw.decode("utf-8", "replace")
            tables = {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not tables & queries.keys():
                raise BadInput(f"{file} has none of the tables {', '.join(queries)}; is it this tool's?")
            for table in [name for name in queries if name in tables]:
                try:
                    yield from (dict(row) for row in islice(base.execute(queries[table]), ROWS_MAX))
                except sqlite3.Error as error:
                    cure = "`sqlite3 FILE .recover` may"
                    yield ReadItem(table, problem=f"the rest of it cannot be read ({error}); {cure}")
    except sqlite3.Error as error:
        cure = "`sqlite3 FILE .recover` may save some"
        raise BadInput(f"{file} is no database that can be read ({error}); {cure}") from None


def _basic_memory(path: Path) -> Iterator[ReadItem]:
    """basic-memory: Markdown notes with observations (`- [tech] text #tag`), relations, and prose."""
    for name, file in pages(path, _is_page):
        try:
            page = page_of(file)
        except BadInput as error:
            yield ReadItem(name, problem=str(error))
            continue
        front = page.front
        title = str(front.get("title") or file.stem)
        page_tags = [str(tag).removeprefix("#") for tag in _as_list(front.get("tags"))]
        since = front.get("modified") or front.get("created") or file.stat().st_mtime
        for line, headings, block in blocks(page.body):
            where = f"{name}:{line + page.above}"
            cites = [f"basic-memory:{front.get('permalink') or name}"]
            relation = re.fullmatch(r"(.*?)\s*\[\[([^\]]+)\]\](.*)", block)
            noted = re.fullmatch(r"\[([^\]]+)\]\s+(.+)", block, re.DOTALL)
            tags = [*re.findall(r"(?<!\S)#([\w/-]+)", block), *page_tags]
            if noted is not None and relation is None:
                text = re.sub(r"(?<!\S)#[\w/-]+", "", noted[2]).strip()
                yield _item(where, f"{title}: {text}", key=title, tags=[noted[1], *tags], cites=cites, since=since)
            elif relation is not None and len(block) <= KEY_MAX:
                words = relation[1].strip().replace("_", " ") or "is related to"
                text = f"{title} {words} {relation[2]}{relation[3]}"
                yield _item(where, text, key=title, tags=page_tags, cites=cites, since=since)
            else:
                key = " · ".join(dict.fromkeys((title, *headings)))
                yield _item(where, block, key=key, tags=tags, cites=cites, since=since)


def _okf(path: Path) -> Iterator[ReadItem]:
    """Open Knowledge Format 0.2: one concept a page; a page that `export --to okf` wrote is the memory it was."""
    for name, file in pages(path, lambda file: _is_page(file) and file.name not in ("index.md", "log.md")):
        try:
            page = page_of(file)
        except BadInput as error:
            yield ReadItem(name, problem=str(error))
            continue
        front, body = page.front, page.body
        if isinstance(memory := front.get(MEMORY_KEY), str):
            try:
                yield ReadItem(name, {**json.loads(memory), "content": body.removeprefix("\n").removesuffix("\n")})
            except (ValueError, TypeError, RecursionError):
                yield ReadItem(name, problem=f"its {MEMORY_KEY} is not what an export writes")
            continue
        if not front.get("type"):
            yield ReadItem(name, problem="its front matter has no type; OKF asks for one")
            continue
        if front.get("status") == "deprecated":
            yield ReadItem(name, problem="its status is deprecated: it was left out")
            continue
        title = str(front.get("title") or file.stem)
        sources = [source.get("resource") for source in _as_list(front.get("sources")) if isinstance(source, dict)]
        item = partial(
            _item,
            type=TYPES.get(str(front["type"]).lower(), "fact"),
            tags=[str(tag) for tag in _as_list(front.get("tags"))],
            cites=[f"okf:{name.removesuffix('.md')}", *(str(source) for source in sources if source)],
            since=_dict_in(front, "generated").get("at") or front.get("timestamp"),
        )
        content = "\n\n".join(text for text in (str(front.get("description") or ""), body.strip()) if text)
        if len(content) <= CONTENT_MAX:
            yield item(name, content or title, key=title)
            continue
        for line, headings, block in blocks(body):
            yield item(f"{name}:{line + page.above}", block, key=" · ".join((title, *headings)))


def _mirror(path: Path) -> Iterator[ReadItem]:
    """Yield the memories of a mirror: an unchanged one as it was exported, an edited one as a new one of its type."""
    page = path / MIRROR if path.is_dir() else path
    offsets: dict[str, int] = {}
    with (page.parent / MIRROR_DATA).open("rb") if (page.parent / MIRROR_DATA).is_file() else nullcontext() as data:
        while data is not None and (offset := data.tell()) >= 0 and (raw := data.readline(LINE_BYTES_MAX)):
            try:
                memory = json.loads(raw)
                offsets[f"{memory['id']}@{memory['version']}"] = offset
            except (ValueError, KeyError, TypeError, RecursionError):
                yield ReadItem(f"{MIRROR_DATA}, byte {offset}", problem="it is not what an export writes")
        yield from _mirror_items(page, offsets, data)


def _mirror_items(page: Path, offsets: Mapping[str, int], data: BinaryIO | None) -> Iterator[ReadItem]:
    """known: id and version of each exported memory -> its position in `data`."""
    kind = MemoryType.FACT.value
    for number, item in _items(_mirror_lines(page)):
        if isinstance(item, str):
            kind = item if item in set(MemoryType) else MemoryType.FACT.value
            continue
        *lines, last = item
        mark = _MARK.fullmatch(last.strip())
        content = "\n".join(lines if mark else item).rstrip()
        exported = None
        if mark and data is not None and (offset := offsets.get(f"{mark[1]}@{mark[2]}")) is not None:
            data.seek(offset)
            exported = json.loads(data.readline(LINE_BYTES_MAX))
        if exported is not None and str(exported["content"]).replace("\r\n", "\n").rstrip() == content:
            yield ReadItem(f"{page.name}:{number}", exported)
        elif content:
            is_fact = LAYER_OF_TYPE[MemoryType(kind)] is LAYER_OF_TYPE[MemoryType.FACT]
            cites = [f"memory-anchor:{mark[1]}"] if mark else []
            type_ = kind if is_fact else MemoryType.FACT.value
            yield ReadItem(f"{page.name}:{number}", {"content": content, "type": type_, "cites": cites})


def _mirror_lines(page: Path) -> Iterator[str]:
    """Yield the lines of a page that may be large. Raises BadInput: it cannot be read, or is no UTF-8."""
    try:
        with page.open(encoding="utf-8-sig", newline="") as stream:
            while line := stream.readline(LINE_BYTES_MAX):
                yield line.removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise BadInput(f"{page} is no UTF-8; `iconv -f LATIN1 -t UTF-8` converts it") from None
    except OSError as error:
        raise BadInput(f"{page} cannot be read ({error.strerror})") from None


def _items(lines: Iterable[str]) -> Iterator[tuple[int, list[str] | str]]:
    """Yield (line, the lines of an item, without its indent) and (line, heading), as they stand."""
    item: list[str] = []
    start = 0
    for number, line in enumerate(lines, 1):
        if line.startswith(("- ", "#")):
            if item:
                yield start, _trimmed(item)
            item, start = ([line[2:]], number) if line.startswith("- ") else ([], number)
            if line.startswith("#"):
                yield number, line.lstrip("#").strip()
        elif item:
            item.append(line.removeprefix("  "))
    if item:
        yield start, _trimmed(item)


def _trimmed(item: list[str]) -> list[str]:
    while len(item) > 1 and not item[-1].strip():
        item.pop()
    return item


MIRROR, MIRROR_DATA = "memories.md", ".memories.jsonl"
"""What `export --to markdown` writes: the page, and its memories as an export writes them."""
_MARK = late(r"<!-- ([0-9a-z]+)@(\d+) -->")
MEMORY_KEY = "memory_anchor"
"""Key of an OKF page's front matter: the memory as an export writes it, as JSON, but for its text."""


# --- lines ------------------------------------------------------------------------------------------------------------


def _item(
    where: str,
    content: str,
    *,
    type: str = "fact",
    key: str = "",
    tags: Iterable[object] = (),
    cites: Iterable[str] = (),
    since: Json = None,
) -> ReadItem:
    content = content.strip()
    if not content:
        return ReadItem(where, problem="it has no text")
    if len(content) > CONTENT_MAX:
        return ReadItem(
            where, problem=f"it is {len(content)} characters long; allowed are 1 to {CONTENT_MAX}: split it"
        )
    time = parse_time(since)
    names = [name for text in tags if text and (name := str(text).strip()[:TAG_MAX])]
    line: Line = {"content": content, "type": type, "cites": [text[:KEY_MAX] for text in cites if text]}
    line |= {"key": key.strip()[:KEY_MAX]} if key.strip() else {}
    line |= {"tags": list(dict.fromkeys(names))[:TAGS_MAX]} if names else {}
    line |= {"when": time.isoformat()} if time is not None else {}
    return ReadItem(where, line)


def parse_time(value: Json) -> datetime | None:
    """Return a time given as ISO 8601, a date, or seconds or milliseconds since 1970; None for what is none."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            time = EPOCH + timedelta(seconds=value / (1_000 if value > MILLISECONDS else 1))
        else:
            time = datetime.fromisoformat(str(value).strip().replace(" UTC", "+00:00"))
    except (ValueError, OverflowError, OSError):
        return None
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return time if YEARS[0] <= time.year < YEARS[1] else None


def _dict_in(front: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    value = front.get(name)
    return value if isinstance(value, dict) else {}


def _as_list(value: Json) -> list[Json]:
    """Return a list that may be written as JSON, as words between commas, or be no list at all."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = [part.strip() for part in str(value).split(",") if part.strip()]
    return value if isinstance(value, list) else [value] if isinstance(value, dict) else []


def _has_name(*names: str) -> Callable[[Path], bool]:
    return lambda path: path.name in names


def _is_page(path: Path) -> bool:
    return path.suffix == ".md"


TOOLS: Mapping[str, OtherTool] = {
    "claude-md": OtherTool(
        _markdown("claude-md", _has_name("CLAUDE.md", "CLAUDE.local.md"), "instruction"),
        "a CLAUDE.md, or a folder with some",
        ".claude/CLAUDE.md",
    ),
    "agents-md": OtherTool(
        _markdown("agents-md", _has_name("AGENTS.md", "AGENTS.override.md", "GEMINI.md"), "instruction"),
        "an AGENTS.md, or a folder with some",
        ".codex/AGENTS.md",
    ),
    "claude-auto-memory": OtherTool(
        _markdown("claude-auto-memory", _is_page, "fact"),
        "the memory folder of a project below ~/.claude/projects",
        ".claude/projects",
    ),
    "codex-memories": OtherTool(
        _markdown("codex-memories", _is_page, "fact"), "Codex's folder of memories", ".codex/memories"
    ),
    "server-memory": OtherTool(_server_memory, "its memory.jsonl (MEMORY_FILE_PATH)"),
    "mem0": OtherTool(_mem0, "its history.db, or what get_all() gave as .json", ".mem0/history.db"),
    "claude-mem": OtherTool(_claude_mem, "its claude-mem.db", ".claude-mem/claude-mem.db"),
    "basic-memory": OtherTool(_basic_memory, "its folder of notes", "basic-memory"),
    "okf": OtherTool(_okf, "a folder of Open Knowledge Format pages"),
    "markdown": OtherTool(_mirror, f"a folder with the {MIRROR} of an export"),
}
"""The tools that are known, by the word for --from."""
