"""Knowledge for tests: sources that are read, documents of each format, and what they are found by."""

from __future__ import annotations

import io
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.domain.model import Actor, Caller
from memory_anchor.domain.rights import purge_digest
from memory_anchor.extensions.knowledge.use_cases import knowledge_of, library_of
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor

GUIDE = "# Guide\n\n## Install\nRun the setup script once.\n\n## 回滚\n先停止写入，再恢复最近的快照。\n"


def git(folder: Path, *arguments: str, at: str = "2025-12-01T10:00:00Z") -> str:
    env = {
        "PATH": "/usr/bin:/bin:/usr/local/bin",
        "HOME": str(folder),
        **{
            f"GIT_{who}_{what}": value
            for who in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "Ada"), ("EMAIL", "ada@example.org"), ("DATE", at))
        },
    }
    done = subprocess.run(["git", *arguments], cwd=folder, env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, message: str, **files: str) -> str:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def checkout(project: Path) -> Path:
    git(project, "init", "-q", "-b", "main")
    return project


@pytest.fixture
def docs(project: Path) -> Path:
    folder = project / "docs"
    folder.mkdir()
    (folder / "guide.md").write_text(GUIDE, encoding="utf-8")
    return folder


def read_all(anchor: MemoryAnchor, *, begin: bool = False, source: str = "") -> None:
    for _ in range(100):
        if not knowledge_of(anchor).sync(source, begin)["left"]:
            break
        begin = False
    while library_of(anchor.services).embed(64):
        pass


def added(anchor: MemoryAnchor, folder: Path, kind: str = "files", **how: Any) -> Any:
    source = knowledge_of(anchor).add(str(folder), kind, **how)
    read_all(anchor)
    return source


def texts(anchor: MemoryAnchor, query: str, **how: Any) -> list[str]:
    """Return what is found, without what is hardly relevant: weak passages are shown, and marked."""
    return [passage.text for passage in knowledge_of(anchor).search(query, **how) if (passage.relevance or 0.0) >= 0.1]


def states(anchor: MemoryAnchor) -> dict[str, Any]:
    return {state.source.kind.value: state for state in knowledge_of(anchor).sources()}


def pdf(text: str, *, pages: int = 1) -> bytes:
    """Return a PDF with one line of text a page."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    kids = []
    for _ in range(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
        font = "/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {len(objects)} 0 R {font} >>")
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {pages} >>"
    made, places = "%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(made))
        made += f"{number} 0 obj\n{one}\nendobj\n"
    start = len(made)
    made += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n" + "".join(f"{at:010d} 00000 n \n" for at in places)
    return f"{made}trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n".encode()


def word(*paragraphs: str | tuple[str, str]) -> bytes:
    """Return a DOCX of paragraphs, each a text or a style and a text."""
    styled = [("Normal", paragraph) if isinstance(paragraph, str) else paragraph for paragraph in paragraphs]
    said = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>' for style, text in styled
    )
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
        body = f"<w:document {space}><w:body>{said}</w:body></w:document>"
        archive.writestr("word/document.xml", body)
        main = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
        types = '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        archive.writestr(
            "[Content_Types].xml", f'{types}<Override PartName="/word/document.xml" ContentType="{main}"/></Types>'
        )
        office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
        space = 'xmlns="http://schemas.openxmlformats.org/package/2006/relationships"'
        link = f'<Relationship Id="r1" Type="{office}" Target="word/document.xml"/>'
        archive.writestr("_rels/.rels", f"<Relationships {space}>{link}</Relationships>")
    return made.getvalue()


def human(core: Core, agent: Actor) -> MemoryAnchor:
    """Return the memory as the human of an agent's project has it."""
    return core.anchor(replace(agent, caller=Caller.HUMAN))


def purged(core: Core, agent: Actor, text: str) -> Any:
    """Purge a text as a human does; return the certificate."""
    seen = purge_digest(human(core, agent).maintenance.preview_purge(text=text)["memories"])
    return human(core, agent).maintenance.purge(text=text, seen=seen)
