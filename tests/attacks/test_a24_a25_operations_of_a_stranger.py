"""A24, A25: whatever lies in `.ai/operations`, a search answers, and nothing outside the repository is read."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.base import nofollow
from memory_anchor.base.quarantine import Quarantine
from memory_anchor.domain.errors import NotFound, Refused
from memory_anchor.domain.model import Actor
from memory_anchor.front import doctor, mcp_answers
from memory_anchor.language.passages import PASSAGE_BYTES
from memory_anchor.layers.operational_knowledge import OperationalKnowledge
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor

SECRET = "oauth_token gho vault credential of the owner"


@pytest.fixture
def operations(project: Path) -> Path:
    folder = project / ".ai" / "operations"
    folder.mkdir(parents=True)
    (folder / "release.md").write_text("# Release\n\n## Publish\nTag the release and push the tag.\n", encoding="utf-8")
    return folder


def doors(anchor: MemoryAnchor, question: str) -> str:
    """Return everything that every door to L4 says about a question and about all names there are."""
    room = anchor.project.operations
    answers = [repr(anchor.search(question)), repr(anchor.search(question, layers=["operational_knowledge"]))]
    answers += [repr(anchor.find_operations(question)), repr(anchor.build_context(question))]
    for name in mcp_answers.completions(anchor, "memory://operations/{name}", ""):
        answers.append(name + mcp_answers.read(anchor, f"memory://operations/{name}", stats=dict).text)
    for name in ("hosts", "hosts.yml", "../../outside/hosts", "linked", "gh/hosts", "..", "/etc/hostname"):
        try:
            answers.append(room.read(name).text)
        except NotFound as error:
            answers.append(str(error))
    return "\n".join(answers)


def test_a_file_without_a_heading_is_a_passage(operations: Path, anchor: MemoryAnchor) -> None:
    """Attack A25: one plain file ended search, find_operations and build_context with an exception."""
    (operations / "notes.md").write_text("Restart the worker with make worker.\n", encoding="utf-8")
    (operations / "empty.md").write_text("", encoding="utf-8")

    assert [one.name for one in anchor.find_operations("restart the worker")] == ["notes"]
    assert "make worker" in repr(anchor.search("how do I restart the worker?"))
    assert "make worker" in repr(anchor.build_context("restart the worker"))


def test_no_file_ends_a_search_and_each_bad_one_is_named(
    operations: Path, anchor: MemoryAnchor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Attack A25: binary, huge, not UTF-8, unreadable, a pipe, a folder, names with odd signs."""
    (operations / "binary.md").write_bytes(b"# Release\0\0\0release")
    (operations / "latin.md").write_bytes("# Release caf\xe9".encode("latin-1"))
    (operations / "huge.md").write_bytes(b"# Release\n" + b"release " * 200_000)
    (operations / "new\nline.md").write_text("# Release\nrelease in two lines\n", encoding="utf-8")
    (Path(os.fsdecode(os.fsencode(operations) + b"/\xff.md"))).write_text("# Release\n", encoding="utf-8")
    (operations / "folder.md").mkdir()
    os.mkfifo(operations / "pipe.md")
    (operations / "one_line.txt").write_text("release " * 20_000, encoding="utf-8")
    (operations / "blank.md").write_text("# " + "\u3000" * 64_000 + "\nrelease", encoding="utf-8")

    found = anchor.find_operations("how do I publish a release?", limit=20)

    assert "release" in {one.name for one in found}
    assert all(len(one.text) <= PASSAGE_BYTES for one in found)
    assert not {"binary", "latin", "huge", "pipe"} & {one.name for one in found}
    doors(anchor, "how do I publish a release?")
    monkeypatch.chdir(operations)
    problems = " ".join(check.finding for check in doctor._operations(tmp_path))
    for name in ("binary.md", "latin.md", "huge.md", r"new\nline.md", r"\udcff.md", "pipe.md"):
        assert f".ai/operations/{name} is left out" in problems, name


@pytest.mark.slow
def test_doctor_names_what_is_left_out(operations: Path, run: Callable[..., Any]) -> None:
    """Attack A25: through the command, with an exit code of 0: nothing of the memory is wrong."""
    (operations / "binary.md").write_bytes(b"# Release\0\0\0release")

    answer = run("doctor", "--json")

    assert (answer.exit_code, "binary.md is left out: it is binary" in answer.output) == (0, True)


def test_a_file_that_goes_away_while_it_is_read_ends_nothing(
    operations: Path, anchor: MemoryAnchor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack A25: deleted between the listing and the reading."""
    read = nofollow.read

    def late(root: Path, ref: Any, *, most_bytes: int) -> bytes | None:
        (root / ref).unlink(missing_ok=True)
        return read(root, ref, most_bytes=most_bytes)

    monkeypatch.setattr(nofollow, "read", late)
    assert anchor.find_operations("publish a release") == []
    assert anchor.search("how do I publish a release?").snippets == ()


@pytest.mark.parametrize("where", [".ai", ".ai/operations", ".ai/operations/gh", ".ai/operations/linked.md"])
def test_no_link_on_the_way_is_followed(where: str, project: Path, tmp_path: Path, core: Core, agent: Actor) -> None:
    """Attack A24: `.ai/operations` as a link to ~/.config served tokens of gh through every door to L4."""
    outside = tmp_path / "outside"
    (outside / "operations").mkdir(parents=True)
    for folder in (outside, outside / "operations"):
        (folder / "hosts.yml").write_text(SECRET, encoding="utf-8")
    link = project / where
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside / "hosts.yml" if where.endswith(".md") else outside)

    answers = doors(core.anchor(agent), "oauth_token of the owner credential vault")

    assert "gho" not in answers
    assert "links are not followed" in " ".join(core.anchor(agent).project.operations.problems())


def test_a_folder_swapped_for_a_link_while_it_is_read_leads_nowhere(project: Path, tmp_path: Path) -> None:
    """Attack A24: the race between looking and opening, 500 swaps against a reader."""
    real, outside = project / "real", tmp_path / "outside"
    for folder, text in ((real, "ours"), (outside, SECRET)):
        folder.mkdir()
        (folder / "a.md").write_text(text, encoding="utf-8")
    (project / ".ai").mkdir()
    place = project / ".ai" / "operations"
    real.rename(place)
    done = threading.Event()

    def swap() -> None:
        for _ in range(500):
            place.rename(real)
            place.symlink_to(outside)
            place.unlink()
            real.rename(place)
        done.set()

    swapping = threading.Thread(target=swap)
    swapping.start()
    answers = set()
    while not done.is_set():
        answers |= {
            passage.text
            for passage in OperationalKnowledge(project, Quarantine()).find("ours vault credential", limit=5)
        }
    swapping.join()

    assert answers <= {"ours"}


def test_writing_below_a_folder_follows_no_link(project: Path, tmp_path: Path) -> None:
    """Attack A17: what is written for a project stays in it; a link is refused in one sentence."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (project / "dangling.yaml").symlink_to(outside / "made.yaml")
    (project / ".ai").symlink_to(outside)

    for ref in ("dangling.yaml", ".ai/proposals/p.yaml", ".ai/x"):
        with pytest.raises(Refused, match="links are not followed"):
            nofollow.write(project, ref, b"ours")
    with pytest.raises(Refused, match="links are not followed"):
        nofollow.make_folder(project, ".ai/operations")
    assert list(outside.iterdir()) == []

    nofollow.write(project, "a/b/c.yaml", b"ours")
    assert nofollow.read(project, "a/b/c.yaml", most_bytes=9) == b"ours"
    with pytest.raises(OSError, match="not a path below"):
        nofollow.read(project, "../outside/x", most_bytes=9)
