"""Adapters for agent frameworks, each against the real package; one that is not installed is skipped in a sentence.

`scripts/integrations` installs them into a folder of its own and runs this file; the nightly run does that.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memory_anchor import Memory

MISSING = "{} is not installed; `scripts/integrations` installs and tests it"


def package(name: str) -> Any:
    return pytest.importorskip(name, reason=MISSING.format(name), exc_type=ImportError)


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    monkeypatch.setenv("MEMORY_ANCHOR_EMBEDDER__KIND", "none")
    with Memory("support-bot", path=tmp_path / "data") as made:
        yield made


# --- LangGraph ---------------------------------------------------------------------------------------------------

NAMESPACES = (("a", "b", "c"), ("a", "b", "d", "e"), ("a", "c", "f"), ("b", "a", "f"), ("users", "1/2"), ("users", "é"))


def told(found: Any) -> Any:
    """Return what a store answered without its times and scores."""
    if isinstance(found, list):
        return [told(one) for one in found]
    return (found.namespace, found.key, found.value) if hasattr(found, "namespace") else found


def fill(store: Any) -> None:
    for number, namespace in enumerate(NAMESPACES):
        store.put(namespace, f"id_{number}", {"data": f"value {number}", "n": number, "nested": {"x": [1, None, True]}})
        store.put(namespace, "same", {"data": "the same in each", "n": 9})
    store.put(("a", "b", "c"), "id_0", {"data": "put again", "n": 0})
    store.delete(("a", "c", "f"), "same")
    store.delete(("a", "c", "f"), "never there")


STEPS: tuple[Callable[[Any], Any], ...] = (
    lambda store: store.get(("a", "b", "c"), "id_0"),
    lambda store: store.get(("a", "c", "f"), "same"),
    lambda store: store.get(("b", "a", "f"), "nothing"),
    lambda store: sorted(told(store.search(("a", "b"))), key=repr),
    lambda store: sorted(told(store.search((), limit=50)), key=repr),
    lambda store: len(store.search((), limit=3, offset=2)),
    lambda store: store.search((), filter={"n": 3}),
    lambda store: sorted(told(store.search((), filter={"n": {"$gte": 2, "$lt": 5}})), key=repr),
    lambda store: store.search(("nowhere",)),
    lambda store: store.list_namespaces(),
    lambda store: store.list_namespaces(prefix=("a", "b")),
    lambda store: store.list_namespaces(suffix=("f",)),
    lambda store: store.list_namespaces(prefix=("a", "*", "f")),
    lambda store: store.list_namespaces(max_depth=1),
    lambda store: store.list_namespaces(limit=2, offset=1),
)


def test_the_langgraph_store_answers_as_langgraphs_own(memory: Memory) -> None:
    """Rule adapters: the same puts, deletes and reads give what `InMemoryStore` gives."""
    package("langgraph")
    from langgraph.store.memory import InMemoryStore

    from memory_anchor.integrations.langgraph import LangGraphStore

    ours, theirs = LangGraphStore(memory), InMemoryStore()
    fill(ours)
    fill(theirs)
    for number, step in enumerate(STEPS):
        assert told(step(ours)) == told(step(theirs)), f"step {number}"


def test_a_langgraph_item_is_found_by_its_words_in_its_namespace_alone(memory: Memory) -> None:
    package("langgraph")
    from langgraph.store.base import InvalidNamespaceError

    from memory_anchor.integrations.langgraph import LangGraphStore

    store = LangGraphStore(memory)
    store.put(("u", "17"), "food", {"text": "likes pineapple pizza"})
    store.put(("u", "18"), "food", {"text": "likes pineapple juice"})
    store.put(("u", "17"), "silent", {"text": "pineapple upside down"}, index=False)

    hits = store.search(("u", "17"), query="pineapple")
    assert [hit.key for hit in hits] == ["food"] and hits[0].score
    assert [item.key for item in asyncio.run(store.asearch(("u", "18"), query="pineapple"))] == ["food"]
    with pytest.raises(InvalidNamespaceError):
        store.put((), "x", {})
    with pytest.raises(NotImplementedError):
        store.put(("u",), "x", {"a": 1}, ttl=5)


def test_a_support_bot_in_langgraph_remembers_its_customer(memory: Memory) -> None:
    """Twenty lines: a graph with the memory as its store, two threads of one customer, another customer."""
    package("langgraph")
    from typing import TypedDict

    from langgraph.graph import END, START, StateGraph
    from langgraph.runtime import get_runtime

    from memory_anchor.integrations.langgraph import LangGraphStore

    class State(TypedDict):
        user: str
        said: str
        answer: str

    def bot(state: State) -> dict[str, str]:  # a scripted model
        store, mine = get_runtime().store, ("users", state["user"])
        assert store is not None
        if "prefer" in state["said"]:
            store.put(mine, "contact", {"text": state["said"]})
            return {"answer": "noted"}
        known = store.search(mine, query=state["said"])
        return {"answer": known[0].value["text"] if known else "I do not know"}

    graph = StateGraph(State).add_node("bot", bot).add_edge(START, "bot").add_edge("bot", END)
    chat = graph.compile(store=LangGraphStore(memory))

    def say(user: str, said: str) -> str:
        return str(chat.invoke({"user": user, "said": said, "answer": ""})["answer"])

    assert say("u-17", "I prefer answers by email") == "noted"
    assert say("u-17", "how do I get answers?") == "I prefer answers by email"
    assert say("u-18", "how do I get answers?") == "I do not know"


# --- Pydantic AI -------------------------------------------------------------------------------------------------


def test_a_support_bot_in_pydantic_ai_remembers_its_customer(memory: Memory) -> None:
    """Twenty lines: an agent with the memory's toolset and a scripted model, in two runs."""
    package("pydantic_ai")
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from memory_anchor.integrations.pydantic_ai import memory_toolset

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        last = messages[-1].parts[-1]
        if last.part_kind == "tool-return":
            return ModelResponse(parts=[TextPart(str(last.content))])
        said = str(last.content)
        tool = ("save_memory", {"content": said, "type": "preference"}) if "prefer" in said else None
        name, given = tool or ("search_memory", {"query": said})
        assert name in {each.name for each in info.function_tools}
        return ModelResponse(parts=[ToolCallPart(name, given)])

    def say(user: str, said: str) -> str:
        bot = Agent(FunctionModel(model), toolsets=[memory_toolset(memory, user=user)])
        return bot.run_sync(said).output

    assert say("u-17", "I prefer answers by email").startswith("added")
    assert "I prefer answers by email" in say("u-17", "how do I get answers?")
    assert say("u-18", "how do I get answers?") == "Nothing is remembered."


# --- OpenAI Agents -----------------------------------------------------------------------------------------------


def test_a_session_of_the_openai_agents_sdk_keeps_its_history(memory: Memory) -> None:
    package("agents")
    from agents import Session

    from memory_anchor.integrations.openai_agents import MemorySession

    async def life() -> None:
        session, other = MemorySession("s-1", memory, user="u-17"), MemorySession("s-2", memory, user="u-17")
        assert isinstance(session, Session)
        items = [{"role": "user", "content": f"question {n} " + "x" * 9_000 * (n == 1)} for n in range(3)]
        await session.add_items(items)
        await other.add_items([{"role": "user", "content": "elsewhere"}])
        assert await session.get_items() == items and await session.get_items(limit=2) == items[1:]
        assert await session.get_items(limit=0) == []
        assert await session.pop_item() == items[2] and await session.get_items() == items[:2]
        again = MemorySession("s-1", memory, user="u-17")
        assert await again.get_items() == items[:2]
        await session.clear_session()
        assert await session.get_items() == [] and await session.pop_item() is None
        assert await other.get_items() == [{"role": "user", "content": "elsewhere"}]

    asyncio.run(life())
    assert not memory.search("question elsewhere", user="u-18", limit=9)


def test_what_a_customer_said_in_a_session_is_known_in_the_next(memory: Memory) -> None:
    package("agents")
    from agents.tool_context import ToolContext

    from memory_anchor.integrations.openai_agents import MemorySession, memory_tools

    said = [{"role": "user", "content": "I prefer phone calls to letters, always."}]
    asyncio.run(MemorySession("s-1", memory, user="u-17").add_items(said))

    search, save, log = memory_tools(memory, user="u-17")
    assert [tool.name for tool in (search, save, log)] == ["search_memory", "save_memory", "log_event"]
    assert search.params_json_schema["required"] and "query" in search.params_json_schema["properties"]
    given = json.dumps({"query": "phone calls or letters?", "limit": 5})
    context = ToolContext(context=None, tool_name="search_memory", tool_call_id="1", tool_arguments=given)
    assert "I prefer phone calls to letters" in asyncio.run(search.on_invoke_tool(context, given))


# --- Strands -----------------------------------------------------------------------------------------------------


def test_a_strands_memory_manager_searches_adds_and_learns(memory: Memory) -> None:
    package("strands")
    from strands.memory import MemoryManager

    from memory_anchor.integrations.strands import StrandsStore

    async def life() -> None:
        store = StrandsStore(memory, user="u-17")
        manager = MemoryManager(stores=[store], add_tool_config=True)
        await manager.add("Prefers answers by email")
        found = await manager.search("answers by email")
        assert found[0].content == "Prefers answers by email" and found[0].store_name == "memory-anchor"
        await store.add_messages([{"role": "user", "content": [{"text": "I prefer phone calls to letters, always."}]}])
        assert "phone calls" in (await store.search("phone calls or letters?", {"max_search_results": 1}))[0].content
        assert await StrandsStore(memory, user="u-18").search("answers by email") == []

    asyncio.run(life())
