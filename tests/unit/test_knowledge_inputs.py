"""Knowledge of every format, with right lines; and of files that are broken, hostile or far too large."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_anchor.domain.where import Where
from memory_anchor.extensions.knowledge.reading import current_document
from memory_anchor.extensions.knowledge.use_cases import knowledge_of, library_of
from memory_anchor.language.passages import plain
from memory_anchor.use_cases.memory import MemoryAnchor
from tests.unit.knowledgekit import added, pdf, read_all, states, texts, word

FORMATS = ("atx.md", "setext.markdown", "rst", "html", "py", "docx", "pdf", "txt")
NONE = "```sh\n# no heading\n\n## neither\n```\n\n| a | b |\n|---|---|\n| # x | y |\n"
IN_PROCESS = tuple(form for form in FORMATS if form not in ("pdf", "docx"))
NAMES = ("Install", "回滚与恢复", "Choosing a `mode`", "FAQ: what if?", "性能 Figures", "API v2.1")


@pytest.fixture
def docs(project: Path) -> Path:
    folder = project / "docs"
    folder.mkdir()
    return folder


def chapters(number: int) -> list[tuple[int, str, str]]:
    """Return (level, heading, body) of a document; no heading comes twice."""
    chance = random.Random(number)
    found = [(1, f"Title {number}", f"Opening of document {number}.")]
    for at in range(chance.randint(3, 7)):
        body = [
            f"Sentence {part} under heading {at} of {number}. 第{part}句在这里。"
            for part in range(chance.randint(1, 40))
        ]
        found.append((chance.choice((2, 2, 3)), f"{chance.choice(NAMES)} {number}.{at}", " ".join(body)))
    return found


def written(form: str, parts: list[tuple[int, str, str]]) -> bytes:
    """Return a document of these headings; what looks like one and is none stands between them."""
    if form == "pdf":
        return pdf(f"{parts[0][1]}: {parts[0][2]}", pages=3)
    if form == "docx":
        return word(*(one for level, name, body in parts for one in ((f"Heading{level}", _bare(name)), body)))
    said = []
    for level, name, body in parts:
        if form == "atx.md":
            said.append(f"{'#' * level} {name}\n\n{body}\n\n{NONE}")
        elif form == "setext.markdown":
            said.append(f"{name}\n{'=-'[level > 1] * 8}\n{body}\n\n    # indented code\n")
        elif form == "rst":
            wide = "=-~"[level - 1] * (2 * len(name))
            said.append(f"{name}\n{wide}\n\n{body}\n\n::\n\n    literal\n")
        elif form == "html":
            said.append(f"<h{level}>{_bare(name)}</h{level}>\n<p>{body}</p><script>var x = '# no'</script>")
        elif form == "py":
            said.append(f"def f{zlib.crc32(name.encode())}_{level}():\n    # {name}\n    return {body!r}\n")
        else:
            said.append(f"{name}\n\n{body}\n")
    text = "\n".join(said)
    if form == "atx.md":
        text = "---\ntitle: front\n---\n" + text
    return (text.replace("\n", "\r\n") if form == "setext.markdown" else text).encode()


def _bare(name: str) -> str:
    return name.replace("`", "")


def headings(form: str, text: str, parts: list[tuple[int, str, str]]) -> Iterator[tuple[str, int]]:
    """Yield each heading with the line it stands on, found by looking through the text."""
    lines = text.split("\n")
    if form == "py":
        for at, line in enumerate(lines, 1):
            if line.startswith("def "):
                yield line[4:].partition("(")[0], at
        return
    for level, name, _ in parts:
        plain_name = f"{'#' * level} {_bare(name)}"
        wanted = {"atx.md": f"{'#' * level} {name}", "html": plain_name, "docx": plain_name}.get(form, name)
        yield wanted.lstrip("# "), lines.index(wanted) + 1


@pytest.mark.parametrize(
    ("forms", "each"), [(IN_PROCESS, 1), pytest.param(FORMATS, 5, marks=pytest.mark.slow)], ids=["six", "forty"]
)
def test_every_heading_of_a_document_has_its_line(
    docs: Path, anchor: MemoryAnchor, forms: tuple[str, ...], each: int
) -> None:
    """Issue 16, figures: forty documents in eight formats; a passage begins where its heading stands."""
    if forms == FORMATS:
        pytest.importorskip("pypdfium2")
        pytest.importorskip("mammoth")
    written_as: dict[str, tuple[str, list[tuple[int, str, str]]]] = {}
    for form in forms:
        for _ in range(each):
            parts = chapters(len(written_as))
            written_as[f"{len(written_as)}.{form}"] = form, parts
            (docs / f"{len(written_as) - 1}.{form}").write_bytes(written(form, parts))
    source = added(anchor, docs)
    library = library_of(anchor.services)
    checked = 0

    for ref, (form, parts) in written_as.items():
        document = current_document(library, source, ref)
        assert document is not None
        text, places = plain(document.text), library.catalogue.places(source.id, refs=[ref])
        lines = text.split("\n")
        assert places
        for place in places:
            assert 1 <= place.line_start <= place.line_end <= len(lines)
        said = knowledge_of(anchor).open(places[-1].passage)
        assert (said.freshness, said.text in text) == ("fresh", True)
        if form in ("pdf", "txt"):
            assert {place.page for place in places} <= ({1, 2, 3} if form == "pdf" else {None})
            continue
        for name, line in headings(form, text, parts):
            begins = min(place.line_start for place in places if place.heading and place.heading[-1] == name)
            assert begins == line, (ref, name)
            checked += 1

    assert states(anchor)["files"].documents == each * len(forms)
    assert checked > (20 if forms == FORMATS else 15) * each


def encrypted() -> bytes:
    """Return a PDF that wants a password: its /Encrypt entry answers to none."""
    lock = b"<< /Filter /Standard /V 1 /R 2 /P -4 /O <" + b"41" * 32 + b"> /U <" + b"42" * 32 + b"> >>"
    name = b"<" + b"00" * 16 + b">"
    return pdf("secret").replace(b"trailer\n<<", b"trailer\n<< /Encrypt " + lock + b" /ID [" + name + name + b"]")


@pytest.mark.slow
def test_files_far_too_large_are_one_sentence_each(docs: Path, anchor: MemoryAnchor) -> None:
    """Issue 16, bad input: at the sizes the issue names; each sentence names the file and the cure."""
    pytest.importorskip("pypdfium2")
    (docs / "page.html").write_bytes(b"<p>" + b"x" * (50 << 20))
    (docs / "line.md").write_bytes(b"setup words " * ((10 << 20) // 12))
    (docs / "near.md").write_bytes(b"harbour words " * 250_000)
    (docs / "binary.md").write_bytes(bytes(range(256)) * 64)
    (docs / ("长" * 84 + ".md")).write_text("# 长名\n名字有二百五十五个字节。\n", encoding="utf-8")
    (docs / "guide.md").write_text("# Guide\nRun the setup script once.\n", encoding="utf-8")
    (docs / "book.pdf").write_bytes(pdf("x", pages=2_000))
    (docs / "locked.pdf").write_bytes(encrypted())

    added(anchor, docs)

    told = sorted(states(anchor)["files"].skipped)
    expected = {
        "binary.md": "it is binary; give its text",
        "book.pdf": "it has 2000 pages, allowed are 1000; split it",
        "line.md": "characters, allowed are 4194304; split it",
        "locked.pdf": "it is encrypted; save it without a password",
        "page.html": "it has 52428803 bytes, allowed are 16777216; split it",
    }
    assert [sentence.partition(" is left out")[0] for sentence in told] == sorted(expected)
    for sentence, (name, cure) in zip(told, sorted(expected.items()), strict=True):
        assert cure in sentence, name
        assert "\n" not in sentence
    assert texts(anchor, "run the setup script") == ["# Guide\nRun the setup script once."]
    assert texts(anchor, "名字有二百五十五个字节") != []
    assert texts(anchor, "harbour words") != []


def test_a_full_disk_is_one_sentence_and_what_was_accepted_is_read_later(docs: Path, anchor: MemoryAnchor) -> None:
    """Issue 16, bad input: the database has no room for another page; nothing is lost, and nothing is half there."""
    (docs / "guide.md").write_text("# Guide\nRun the setup script once.\n", encoding="utf-8")
    added(anchor, docs)
    catalogue = library_of(anchor.services).catalogue
    assert catalogue._db is not None
    (pages,) = catalogue._db.execute("PRAGMA page_count").fetchone()
    for number in range(150):
        (docs / f"{number}.md").write_text(f"# Part {number}\nWords of part {number}.\n", encoding="utf-8")
    catalogue._db.execute(f"PRAGMA max_page_count={pages}")

    knowledge_of(anchor).sync("", True)

    assert "has no room; nothing was changed; free some space" in states(anchor)["files"].error
    assert texts(anchor, "run the setup script") != []
    catalogue._db.execute("PRAGMA max_page_count=1000000")
    read_all(anchor, begin=True)
    assert (states(anchor)["files"].documents, states(anchor)["files"].passages) == (151, 151)
    assert library_of(anchor.services).store.count("knowledge", Where()) == 151
