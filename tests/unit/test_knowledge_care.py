"""Knowledge is backed up, moved with its project, and purged out of what packs its text."""

from __future__ import annotations

import base64
import json
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from memory_anchor.admin import backup
from memory_anchor.domain.model import Actor, Caller
from memory_anchor.domain.where import Where
from memory_anchor.extensions.knowledge.use_cases import knowledge_of, library_of
from memory_anchor.extensions.lorebook.reading import PNG
from memory_anchor.extensions.lorebook.use_cases import lore_of
from memory_anchor.front import calls
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor
from tests.unit.knowledgekit import GUIDE, added, docs, pdf, purged, read_all, texts, word
from tests.unit.test_backup import Shelf, opened, versions
from tests.unit.test_lorebook_commands import encoded, turns

__all__ = ["docs"]  # fixtures


@pytest.mark.parametrize("begins", [b"PK\3\4", b"%PDF", PNG])
def test_a_book_whose_text_is_packed_and_unreadable_leaves_no_purge_clean(
    core: Core, agent: Actor, begins: bytes
) -> None:
    """Lorebook x purge: bytes that do not show their text prove nothing, whatever packed them; removing it does."""
    anchor = core.anchor(agent)
    lore_of(anchor).add(file="ada.json", content=encoded())
    (book,) = (core.data_dir / "lorebooks").rglob("*.book")
    book.write_bytes(begins + b"\0" * 64)

    told = purged(core, agent, "whale Ishmael")

    assert (told["clean"], told["failed"]) == (False, [book.name])
    assert "is damaged" in str(lore_of(anchor).show(name=book.stem)["problems"])
    assert lore_of(anchor).remove(name=book.stem)["clean"]
    assert purged(core, agent, "whale Ishmael")["clean"]


@pytest.mark.parametrize("form", ["pdf", "docx", "utf-16"])
def test_a_purge_finds_a_text_inside_a_packed_upload(core: Core, agent: Actor, form: str) -> None:
    """Issue 16, removal: what was shown out of a PDF or a DOCX is not left in the copy that was pushed."""
    if form != "utf-16":
        pytest.importorskip({"pdf": "pypdfium2", "docx": "mammoth"}[form])
    anchor = core.anchor(agent)
    said = "The whale is called Ishmael."
    content = {"pdf": lambda: pdf(said), "docx": lambda: word(said), "utf-16": lambda: said.encode("utf-16")}[form]()
    name = f"whale.{form}" if form != "utf-16" else "whale.txt"
    knowledge_of(anchor).push(name, base64=base64.b64encode(content).decode())
    knowledge_of(anchor).push("kept.md", "# Kept\nThis stays.\n")
    read_all(anchor)
    assert texts(anchor, "what is the whale called") != []

    assert purged(core, agent, "called Ishmael")["clean"]

    assert len(list((core.data_dir / "knowledge" / "blobs").iterdir())) == 1
    assert texts(anchor, "what is the whale called") == []


def test_a_purge_leaves_no_heading_of_the_text(docs: Path, core: Core, agent: Actor) -> None:
    """Issue 16, removal: headings and titles stand beside the index too."""
    anchor = core.anchor(agent)
    (docs / "whale.md").write_text("# 鲸鱼叫做以实玛利\n\n## Colour\nIt is white all over.\n", encoding="utf-8")
    added(anchor, docs)
    held = core.data_dir / "knowledge" / "knowledge.sqlite"
    assert "以实玛利".encode() in held.read_bytes()

    purged(core, agent, "叫做以实玛利")

    assert "以实玛利".encode() not in held.read_bytes()


def test_knowledge_comes_back_from_a_backup_made_while_it_was_read(
    docs: Path, core: Core, agent: Actor, tmp_path: Path
) -> None:
    """Issue 16, removal: index, catalogue, queue and blobs of one moment, words and vectors as they were."""
    anchor = core.anchor(agent)
    for number in range(120):
        (docs / f"{number}.md").write_text(f"# Part {number}\nWords of part {number}.\n", encoding="utf-8")
    knowledge_of(anchor).push("note.md", "# Kept\nThe lighthouse keeper counts the ships.\n")
    knowledge_of(anchor).add(str(docs), "files")
    library = library_of(anchor.services)
    library.step(lambda: False)
    library.step(lambda: False)
    ends = threading.Event()
    reading = threading.Thread(target=lambda: [library.step(lambda: False) for _ in iter(ends.is_set, True)])
    reading.start()
    archive = Path(backup.create(core, tmp_path / "kept.tar.gz")["file"])
    ends.set()
    reading.join()

    shelf = Shelf(tmp_path / "shelf")
    shelf.restore(archive)
    with closing(opened(shelf.data_dir, store=shelf.present())) as again:
        back = again.anchor(replace(agent, scope=anchor.actor.scope, project_dir=agent.project_dir))
        read_all(back)
        read_all(anchor)
        assert versions(again.services.store).keys() == versions(core.services.store).keys()
        found = again.services.store.scan("knowledge", Where(), page=1_000, with_vectors=True)[0]
        assert {entry.memory.id: entry.words for entry in found} == {
            one.memory.id: one.words
            for one in core.services.store.scan("knowledge", Where(), page=1_000, with_vectors=True)[0]
        }
        assert texts(back, "who counts the ships") == ["# Kept\nThe lighthouse keeper counts the ships."]
        assert [state.passages for state in knowledge_of(back).sources()] == [1, 122]


def test_merging_projects_takes_knowledge_and_lorebooks_along_and_back(
    tmp_path: Path, core: Core, agent: Actor
) -> None:
    """Issue 16, removal: what belongs to a project goes where its memories go; a name that is taken gets another."""
    folders = tmp_path / "old", tmp_path / "new"
    for folder in folders:
        (folder / "docs").mkdir(parents=True)
        (folder / "docs" / "guide.md").write_text(GUIDE, encoding="utf-8")

    def at(folder: Path) -> MemoryAnchor:
        return core.anchor(replace(agent, project_dir=str(folder)))

    def books(folder: Path) -> list[str]:
        return [book["name"] for book in lore_of(at(folder)).books()["books"]]

    old, new = folders
    added(at(old), old / "docs")
    at(old).save_memory("The password lives in the blue vault.")
    lore_of(at(old)).add(file="harbour.json", content=encoded())
    lore_of(at(old)).add(file="quay.json", content=encoded())
    other = encoded({"entries": {"0": {"uid": 0, "key": ["crane"], "content": "The crane is red."}}})
    lore_of(at(new)).add(file="harbour.json", content=other)
    source, target = at(old).actor.scope.project, at(new).actor.scope.project
    human = replace(agent, project_dir=str(new), caller=Caller.HUMAN)

    calls.answer("projects_merge", core.anchor(human), {"source": source, "target": target})

    assert texts(at(new), "run the setup script")[0].startswith("# Guide")
    assert [state.source.scope.project for state in knowledge_of(at(new)).sources()] == [target]
    (name,) = [one for one in books(new) if one.startswith("harbour-")]
    assert books(new) == ["harbour", name, "quay"]
    (old / "docs" / "guide.md").write_text(GUIDE.replace("once", "twice"), encoding="utf-8")
    read_all(at(new), begin=True)
    assert "twice" in texts(at(new), "run the setup script")[0]
    scanned = lore_of(at(new)).scan(messages=turns("deploy and crane"), name="harbour")
    assert [snippet.text for snippet in scanned["snippets"]] == ["The crane is red."]

    calls.answer("projects_merge", core.anchor(human), {"source": source, "undo": True})

    assert (books(old), books(new)) == (["harbour", "quay"], ["harbour"])
    assert "twice" in texts(at(old), "run the setup script")[0]
    assert texts(at(new), "run the setup script") == []
    assert json.loads(base64.b64decode(encoded()))["entries"]["0"]["content"]
