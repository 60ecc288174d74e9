"""Memories as pages that people read: Open Knowledge Format 0.2, or one Markdown file, and back without a difference.

Both carry each memory as an export writes it, so that an import into a fresh store makes the same memory, and a second
export the same files; a text that somebody edited has another hash and comes back as a new one that waits for review.
An OKF page holds it in its front matter, the Markdown mirror in a hidden file beside it, so that the page stays clean.
Only what is current is told; `export --versions` tells the rest. Taking a page away forgets nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

import yaml

from memory_anchor.care.other_tools import BESIDE, MIRROR, OURS, text_of
from memory_anchor.care.transfer_files import ALIASES
from memory_anchor.errors import BadInput, Refused
from memory_anchor.files import write_whole
from memory_anchor.json_values import Json, optional_text, record, records, text
from memory_anchor.model import MemoryType, Status

WRITTEN = ".memory-anchor-export"
"""Names what an export wrote into a folder: the next one takes away what it wrote and no longer tells."""
TITLE_CHARS, SLUG_CHARS = 80, 40
LIFECYCLE = {Status.ACTIVE: "stable", Status.PENDING: "draft", Status.DISPUTED: "draft"}

Page = tuple[str, str]
"""(path below the folder, text)"""


def okf(memories: Iterable[dict[str, Json]]) -> Iterator[Page]:
    """Yield one concept a memory, and the index that lists them."""
    listed: dict[str, list[str]] = {}
    for memory in memories:
        path = f"{memory['layer']}/{_slug(memory)}-{memory['id']}.md"
        kind, title = str(memory["type"]).replace("_", " ").capitalize(), _title(memory)
        listed.setdefault(kind, []).append(f"* [{title}]({path})")
        yield path, f"---\n{_front(memory, kind, title)}---\n\n{memory['content']}\n"
    parts = [f"# {kind}\n\n" + "\n".join(sorted(lines)) for kind, lines in sorted(listed.items())]
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
    if sources := [{"resource": _resource(one)} for one in records(memory.get("citations"))]:
        front["sources"] = sources
    rest = {name: value for name, value in memory.items() if name != "content"}
    front[OURS] = json.dumps(rest, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    written: str = yaml.safe_dump(front, allow_unicode=True, sort_keys=False, width=10**6)
    return written


def markdown(memories: Iterable[dict[str, Json]]) -> Iterator[Page]:
    """Yield one page of lists by type for people, and beside it what it leaves out."""
    shelves: dict[str, list[str]] = {}
    beside = []
    for memory in memories:
        content = str(memory["content"]).replace("\n", "\n  ").replace("\n  \n", "\n\n")
        item = f"- {content}\n  <!-- {memory['id']}@{memory['version']} -->"
        shelves.setdefault(str(memory["type"]), []).append(item)
        beside.append(json.dumps(memory, ensure_ascii=False, sort_keys=True, separators=(",", ":")))
    parts = [f"## {kind}\n\n" + "\n\n".join(shelves[kind]) for kind in MemoryType if kind in shelves]
    yield MIRROR, "# Memories\n\n" + "\n\n".join(parts) + "\n"
    yield BESIDE, "".join(f"{line}\n" for line in beside)


FORMATS: Mapping[str, Callable[[Iterable[dict[str, Json]]], Iterator[Page]]] = {"okf": okf, "markdown": markdown}


def write(form: str, lines: Iterable[str], folder: Path, *, force: bool = False) -> int:
    """Write an export's lines as pages into a folder, empty or of an earlier export; return how many memories.

    force: also into another one, whose own files stay but where a page has their name.

    Raises Refused: the folder holds something else; BadInput: `form` is none of `FORMATS`. OSError.
    """
    if form not in FORMATS:
        raise BadInput(f"--to is {form!r}; allowed are jsonl, {', '.join(FORMATS)}")
    listed = folder / WRITTEN
    before = set(text_of(listed).split("\n")) - {""} if listed.is_file() else set()
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file; allowed with --to {form} is a folder")
    if not force and folder.exists() and not listed.is_file() and any(folder.iterdir()):
        raise Refused(f"{folder} is not empty and no export of ours; give an empty folder, a new one, or --force")
    memories = sorted((_read(line) for line in lines), key=lambda one: (str(one["recorded_at"]), str(one["id"])))
    pages = dict(FORMATS[form](memories))
    for path, page in pages.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(folder / path, page.encode("utf-8", "replace"))
    write_whole(listed, "".join(f"{path}\n" for path in sorted(pages)).encode())
    for old in before - pages.keys():
        gone = folder / old
        if ".." not in Path(old).parts and not Path(old).is_absolute() and gone.is_file() and not gone.is_symlink():
            gone.unlink()
    return len(memories)


def _read(line: str) -> dict[str, Json]:
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
