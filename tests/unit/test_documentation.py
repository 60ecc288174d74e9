"""The documentation: reference pages are the program's own words, and every link inside leads somewhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType, ModuleType

import pytest

from memory_anchor.base.json_values import Json
from memory_anchor.domain.model import Outcome
from memory_anchor.front import mcp_answers
from memory_anchor.front.tool_specs import callable_tools, resolve
from memory_anchor.use_cases.memory import MemoryAnchor

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("README*.md")])
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.*?)\s*#*$", re.MULTILINE)
_FILE = re.compile(r"`((?:\w+/)+\w+\.py)`")
WORDS_OF_THE_MAP = 1_600
"""Two pages; blanks separate words, so bars of tables and arrows count."""
_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


@cache
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "scripts" / "make_reference.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return what a link into a page may name, as Markdown's table of contents makes it."""
    titles = _HEADING.findall(_BLOCK.sub("", page.read_text("utf-8")))
    plain = (re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles)
    return frozenset(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in plain)


def trouble(page: Path, link: str) -> str:
    """Return what is wrong with a link of a page, "" for nothing."""
    if re.match(r"[a-z]+:", link):
        return ""
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.is_file():
        return f"{page.relative_to(ROOT)}: {link} is not there"
    if anchor and anchor not in anchors(target):
        return f"{page.relative_to(ROOT)}: {link} names no heading"
    return ""


@pytest.mark.parametrize("name", sorted(maker().PAGES))
def test_a_reference_page_is_what_the_program_says(name: str) -> None:
    """Issue 18: every command and setting documented, generated, never stale; `scripts/make_reference.py` mends it."""
    assert (DOCS / "reference" / name).read_text("utf-8") == maker().pages()[name]


@pytest.mark.parametrize("name", sorted(maker().PAGES))
def test_no_cell_of_a_reference_table_is_empty(name: str) -> None:
    """Rule docs: every argument, setting and field says what it is and what stands without it."""
    rows = [line for line in maker().pages()[name].splitlines() if line.startswith("| ")]
    cells = [(row, cell) for row in rows for cell in re.split(r"(?<!\\)\|", re.sub(r"`[^`]*`", "name", row))[1:-1]]

    assert [row for row, cell in cells if not cell.strip()] == []


def test_no_sentence_for_an_argument_is_left_over() -> None:
    """Rule docs, the other way round: what is described is an argument that does not describe itself."""
    told = tomllib.loads(maker().ARGUMENTS.read_text("utf-8"))
    maker().pages()
    listed = {("", name) for name, said in told.items() if isinstance(said, str)}
    listed |= {(place, name) for place, said in told.items() if isinstance(said, dict) for name in said}

    assert listed == maker().USED


def test_every_client_that_install_knows_has_a_page() -> None:
    """Issue 18: one page a client; `json` is only shown."""
    from memory_anchor.front.clients.places import CLIENTS

    assert set(maker().CLIENTS) == set(CLIENTS) - {"json"}


def test_every_setting_has_a_sentence_and_no_sentence_is_left_over() -> None:
    """Issue 18: every setting documented."""
    sentences = tomllib.loads(maker().SENTENCES.read_text("utf-8"))
    page = (DOCS / "reference" / "settings.md").read_text("utf-8")
    rows = set(re.findall(r"^\| `([a-z_.]+)` \|", page, re.MULTILINE))

    assert len(rows) > 100
    assert rows == set(sentences["setting"])
    assert set(sentences["about"]) == {name.partition(".")[0] for name in rows if "." in name}


def test_every_link_inside_the_documentation_leads_somewhere() -> None:
    """Issue 18: link check, of pages, pictures and headings."""
    links = [(page, link) for page in PAGES for link in _LINK.findall(_BLOCK.sub("", page.read_text("utf-8")))]

    assert len(links) > 50
    assert [wrong for page, link in links if (wrong := trouble(page, link))] == []
    assert trouble(DOCS / "index.md", "gone.md") and trouble(DOCS / "index.md", "security.md#no-such-heading")


@pytest.mark.parametrize(
    ("page", "known", "said"),
    [
        ("README.md", "The export runs on cron.", "We moved the export from cron to systemd timers"),
        ("README.zh.md", "导出任务用 cron 跑。", "导出任务从 cron 改用 systemd 定时器了"),
    ],
)
def test_the_correction_that_the_readme_shows_replaces_what_it_corrects(
    anchor: MemoryAnchor, page: str, known: str, said: str
) -> None:
    """Claims: README's day, its correction, in each language."""
    former = anchor.save_memory(known)
    outcome = anchor.save_memory(f"{said}.")

    assert said in (ROOT / page).read_text("utf-8")
    assert (outcome.outcome, outcome.target_id) == (Outcome.SUPERSEDED, former.id)
    assert anchor.get(former.id or "").content == known


def test_the_list_of_scripts_names_every_script_and_no_other() -> None:
    """Rule docs: who opens scripts/ reads in its README.md what each file is for."""
    folder = ROOT / "scripts"
    named = set(re.findall(r"`([a-z_]+(?:\.py)?)`", (folder / "README.md").read_text("utf-8")))
    assert named == {path.name for path in folder.iterdir() if path.is_file()} - {"README.md"}


def test_every_exit_code_is_told() -> None:
    """Rule errors: a script that runs a command finds in docs/repair.md what its exit code means."""
    from memory_anchor.domain.errors import TABLE

    told = (DOCS / "repair.md").read_text("utf-8").partition("every command, exit code ")[2].partition(".\n")[0]

    assert {int(code) for code in re.findall(r"\d", told)} == {kind.exit_code for kind in TABLE.values()}


def test_the_comparison_with_other_tools_is_reached_from_where_readers_begin() -> None:
    """Rule docs: README and the index lead to where this is not the best choice, in both languages."""
    ways = {"README.md": "docs/comparison.md", "docs/index.md": "comparison.md"}
    ways |= {"README.zh.md": "docs/zh/comparison.md", "docs/zh/index.md": "comparison.md"}

    assert [page for page, way in ways.items() if f"]({way})" not in (ROOT / page).read_text("utf-8")] == []


def test_every_page_has_its_place_in_the_site() -> None:
    """Issue 18: no page that nobody finds."""
    nav = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)

    assert sorted(nav) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


@cache
def the_map() -> str:
    return (DOCS / "architecture.md").read_text("utf-8")


def rooms_of_the_map() -> set[str]:
    """Return the rooms that the tree of docs/architecture.md has a line for: `recall`, `extensions/devices`."""
    tree, above, rooms = the_map().partition("\nmemory_anchor/\n")[2].partition("```")[0], "", set()
    for spaces, name in re.findall(r"^( +)([a-z_]+)/ ", tree, re.MULTILINE):
        above = name if len(spaces) == 2 else above
        rooms.add(name if len(spaces) == 2 else f"{above}/{name}")
    return rooms


def test_the_map_has_a_line_for_every_room_and_two_pages() -> None:
    """Rule docs: the map is two pages, of what `ls` shows today."""
    package = ROOT / "memory_anchor"
    folders = {path.parent.relative_to(package).as_posix() for path in package.glob("**/__init__.py")} - {"."}

    assert folders - rooms_of_the_map() <= {"front/cli", "front/clients", "extensions/sessions/readers"}
    assert rooms_of_the_map() <= folders
    assert len(the_map().split()) <= WORDS_OF_THE_MAP


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_every_file_that_a_page_names_by_its_room_is_there(page: Path) -> None:
    """Rule docs: `recall/order.py` is where the page says, from the package, its extensions or the repository."""
    named = sorted(set(_FILE.findall(page.read_text("utf-8"))))
    roots = (ROOT / "memory_anchor", ROOT / "memory_anchor" / "extensions", ROOT)

    assert [name for name in named if not any((root / name).is_file() for root in roots)] == []
    assert page.name != "architecture.md" or len(named) > 25


@contextmanager
def files_entered() -> Iterator[set[str]]:
    """Collect the files of the package whose functions are called, on every thread."""
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            entered.add(frame.f_code.co_filename.partition("/memory_anchor/")[2])

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield entered
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@pytest.mark.parametrize(
    ("heading", "tool", "arguments"),
    [
        ("The life of a save", "save_memory", {"content": "The port is now 9090, no longer 8080.", "confidence": 0.9}),
        ("The life of a search", "search_memory", {"query": "which port since last week?"}),
    ],
)
def test_a_save_and_a_search_enter_the_files_that_the_map_names(
    anchor: MemoryAnchor, heading: str, tool: str, arguments: dict[str, Json]
) -> None:
    """Rule docs: hop by hop, as the code goes; without a connection, its server and the repeats it sends stay out."""
    named = set(_FILE.findall(the_map().partition(f"## {heading}\n")[2].partition("\n## ")[0]))
    anchor.save_memory("The port is 8080.")
    with files_entered() as entered:
        name, request = resolve(tool, arguments, callable_tools(read_only=False, available=mcp_answers.CALLS))
        mcp_answers.run(anchor, name, request)

    assert len(named) > 15
    assert sorted(named - entered - {"front/mcp_server.py", "base/idempotency.py"}) == []


def test_a_stranger_reaches_twenty_behaviours_from_the_map() -> None:
    """Rule docs: the map names the room, the room's listing shows the file, at most one folder deeper."""
    behaviours = tomllib.loads((ROOT / "tests" / "corpora" / "behaviours.toml").read_text("utf-8"))["behaviour"]
    files = [Path(one["file"]) for one in behaviours]
    near = rooms_of_the_map()

    assert len({one["behaviour"] for one in behaviours}) == 20
    assert [str(file) for file in files if not (ROOT / "memory_anchor" / file).is_file()] == []
    assert [str(file) for file in files if not near & {str(file.parent), str(file.parent.parent)}] == []


@pytest.mark.slow
def test_the_site_is_built_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """Issue 18: `scripts/docs` builds without a network, and its pages ask no other host."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed (scripts/setup installs it)")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    result = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    loaded = [
        found
        for page in pages
        for found in re.findall(
            r'<(?:script|link|img)[^>]*(?:src|href)="((?:https?:)?//[^"]*)"', page.read_text("utf-8")
        )
    ]
    assert len(pages) > 20
    assert loaded == []
