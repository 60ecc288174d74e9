"""L4: how things are done, from `.ai/operations/`."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_anchor.anchor import MemoryAnchor
from memory_anchor.core import Core
from memory_anchor.errors import NotFound
from memory_anchor.model import Actor, Layer


@pytest.fixture
def operations(project: Path) -> Path:
    folder = project / ".ai" / "operations"
    folder.mkdir(parents=True)
    (folder / "release.md").write_text(
        "# Release\n\n## Cut a branch\nCreate release/x.y from main.\n\n## Publish\nTag it and push the tag.\n",
        encoding="utf-8",
    )
    (folder / "error_handling.md").write_text("# 错误处理\n\n遇到存储繁忙时重试三次，然后报告。\n", encoding="utf-8")
    (folder / "limits.yaml").write_text("retries: 3\n", encoding="utf-8")
    return folder


def test_a_task_finds_the_passage_that_says_how(operations: Path, anchor: MemoryAnchor) -> None:
    """Rule L4.find: file name plus passages; the heading's own part comes back."""
    (first, *_) = anchor.find_operations("how do I publish a release tag?")

    assert (first.name, first.path, first.title) == ("release", ".ai/operations/release.md", "Publish")
    assert first.text.startswith("## Publish")


def test_a_chinese_task_finds_a_chinese_passage(operations: Path, anchor: MemoryAnchor) -> None:
    """Rule L4.find: Chinese as well as English."""
    assert [found.name for found in anchor.find_operations("存储繁忙怎么处理")] == ["error_handling"]


def test_nothing_that_fits_is_an_empty_answer(operations: Path, anchor: MemoryAnchor) -> None:
    """Rule empty: not the three least bad."""
    assert anchor.find_operations("knit a sweater") == []


def test_an_edited_file_is_read_again(operations: Path, anchor: MemoryAnchor) -> None:
    """Rule L4.fresh: re-indexed when files change."""
    assert anchor.find_operations("rollback") == []
    (operations / "rollback.md").write_text("# Rollback\nRevert the tag.\n", encoding="utf-8")

    assert [found.name for found in anchor.find_operations("rollback")] == ["rollback"]
    (operations / "rollback.md").unlink()
    assert anchor.find_operations("rollback") == []


def test_a_how_question_reaches_l4_from_a_plain_search(operations: Path, anchor: MemoryAnchor) -> None:
    """Rule routing: "how do I" is answered from L4, a question about what happened is not."""
    anchor.log_event("published release 1.2 with a tag")

    how = anchor.search("how do I publish a release?")
    what = anchor.search("which release was published")

    assert how.snippets[0].layer is Layer.OPERATIONAL_KNOWLEDGE
    assert {snippet.layer for snippet in what.snippets} == {Layer.EVENT_LOG}


def test_a_file_outside_the_folder_is_not_read(operations: Path, anchor: MemoryAnchor, tmp_path: Path) -> None:
    """Rule security: a link out of the folder is not followed."""
    secret = tmp_path / "secret.md"
    secret.write_text("# Vault\nthe vault code\n", encoding="utf-8")
    (operations / "vault.md").symlink_to(secret)

    assert anchor.find_operations("vault code") == []


def test_a_file_is_read_whole_by_its_name(operations: Path, core: Core, agent: Actor) -> None:
    """Rule L4.read: by name; an unknown one lists what there is."""
    room = core.anchor(agent).room

    assert room.operations.read("limits").text == "retries: 3\n"
    with pytest.raises(NotFound, match="error_handling, limits, release"):
        room.operations.read("deploy")


def test_identity_questions_are_answered_from_l0(project: Path, core: Core, agent: Actor) -> None:
    """Rule 7.1: L0 is not searched in the store; a question about identity is answered from it, others are not."""
    (project / "constitution.yaml").write_text(
        'version: "1"\nentries:\n'
        "  - {id: goal, content: 项目目标：为 AI 提供跨会话持久化记忆系统, priority: 0}\n"
        "  - {id: stack, content: 技术栈：Python + FastAPI + Qdrant + MCP, priority: 1}\n",
        encoding="utf-8",
    )
    anchor = core.anchor(agent)
    anchor.save_memory("用户确认使用 Qdrant 作为向量数据库", type="decision")

    assert [s.id for s in anchor.search("项目目标").snippets][:1] == ["goal"]
    assert [s.id for s in anchor.search("技术栈").snippets][:1] == ["stack"]
    assert [s.id for s in anchor.search("What is the goal of this project?").snippets][:1] == ["goal"]
    assert [s.id for s in anchor.search("What is our tech stack?").snippets][:1] == ["stack"]
    assert [s.layer for s in anchor.search("为什么用 Qdrant").snippets][:1] == [Layer.VERIFIED_FACT]
