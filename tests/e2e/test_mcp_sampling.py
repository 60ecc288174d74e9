"""The client's own model reads a conversation, in a call of the client and nowhere else: real client sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp import types as mcp_types

from memory_anchor.adapters.dict_store import DictStore
from memory_anchor.app import build_core
from memory_anchor.core import Core
from memory_anchor.front.doctor import probe
from memory_anchor.front.mcp_server import build_server
from memory_anchor.ingest.model_calls import EXTRACTION_VERSION
from memory_anchor.settings import Settings
from memory_anchor.testing import HashEmbedder, ManualClock
from memory_anchor.where import Where

TALK = [
    {"role": "user", "content": "We never deploy on Fridays, the on-call person is alone."},
    {"role": "assistant", "content": "Noted."},
]
FOUND = {
    "key": "no Friday deploys",
    "content": "Never deploy on Fridays: the on-call person is alone.",
    "type": "instruction",
    "about": "project",
    "importance": 0.8,
    "confidence": 0.9,
    "message": 0,
    "quote": "We never deploy on Fridays",
    "needed_when": "a deployment is planned",
    "asked_as": ["May we deploy on a Friday?"],
    "wrong_without": "it deploys on a Friday",
}


class ClientModel:
    """What a client answers sampling requests with, and what it was asked."""

    def __init__(self, *answers: str, hangs: bool = False) -> None:
        self.asked: list[Any] = []
        self._answers, self._hangs = list(answers), hangs

    async def __call__(self, _: Any, params: Any) -> Any:
        self.asked.append(params)
        if self._hangs:
            await anyio.sleep_forever()
        if not self._answers:
            return mcp_types.ErrorData(code=-1, message="the user said no")
        text = mcp_types.TextContent(type="text", text=self._answers.pop(0))
        return mcp_types.CreateMessageResult(role="assistant", content=text, model="theirs", stop_reason="endTurn")


def sampled_core(folder: Path, *, deadline_s: float = 20.0) -> Core:
    told: Any = {"kind": "sampling", "deadline_s": deadline_s}
    agents: Any = {"mcp": {"extraction": {"mode": "factual"}}}
    return build_core(
        Settings(llm=told, agents=agents),
        data_dir=folder,
        store=DictStore(),
        embedder=HashEmbedder(),
        clock=ManualClock(),
    )


def served(core: Core, project: Path, model: ClientModel | None, *calls: tuple[str, dict[str, Any]], mode: str) -> Any:
    """Return the parsed answers of tool calls of one client."""
    answers: list[Any] = []

    async def work() -> None:
        server = build_server(core, profile="full", read_only=False, project_dir=str(project))
        async with Client(server, mode=mode, sampling_callback=model) as client:  # type: ignore[arg-type]
            for tool, arguments in calls:
                result = await client.call_tool(tool, arguments)
                assert not result.is_error, result.content[0].text
                answers.append(result.structured_content or json.loads(result.content[0].text))

    anyio.run(work)
    return answers


READ = ("remember_conversation", {"messages": TALK, "mode": "factual"})


def test_a_client_that_offers_sampling_has_its_own_model_read_the_conversation(tmp_path: Path, project: Path) -> None:
    """Rule models.sampling: the text goes out redacted and fenced, the answer is believed no more than any other."""
    core = sampled_core(tmp_path)
    model = ClientModel("Sure, here it is: " + json.dumps({"memories": [FOUND]}), json.dumps({"memories": []}))
    (answer,) = served(core, project, model, READ, mode="legacy")
    (kept,) = answer["outcomes"]
    assert kept["outcome"] == "added"
    (stored,) = core.services.store.find("verified_fact", Where(()), limit=9)
    assert stored.extractor_model == f"sampling/{EXTRACTION_VERSION}"
    assert "We never deploy" in model.asked[0].messages[0].content.text
    assert "JSON" in model.asked[0].system_prompt
    core.close()


BY_RULES = "extracted by rules instead of sampling"


@pytest.mark.parametrize(
    ("mode", "model", "note"),
    [
        pytest.param("legacy", None, BY_RULES, id="no capability"),
        pytest.param("legacy", ClientModel(), BY_RULES, id="a user who says no"),
        pytest.param("auto", ClientModel("{}"), BY_RULES, id="a protocol without requests to the client"),
        pytest.param("legacy", ClientModel(hangs=True), "did not answer in time", id="no answer within the deadline"),
    ],
)
def test_a_client_that_does_not_answer_gets_what_rules_find_and_is_told_so(
    tmp_path: Path, project: Path, mode: str, model: ClientModel | None, note: str
) -> None:
    """Rule models.sampling: every reason is a note, and the wait is bounded."""
    core = sampled_core(tmp_path, deadline_s=20.0 if note == BY_RULES else 0.5)
    (answer,) = served(core, project, model, READ, mode=mode)
    assert note in " ".join(answer["notes"])
    core.close()


def test_a_save_a_search_and_a_job_ask_no_client(tmp_path: Path, project: Path) -> None:
    """Rule models.sampling: the model is the client's; only the reading of a conversation may ask it."""
    core = sampled_core(tmp_path)
    model = ClientModel("{}")
    calls = [
        ("save_memory", {"content": "The API listens on port 8080."}),
        ("save_memory", {"content": "The API listens on port 9090."}),
        ("search_memory", {"query": "port of the API"}),
    ]
    served(core, project, model, *calls, mode="legacy")
    core.scheduler.run_due(core.clock.now())
    assert model.asked == []
    (told,) = [one for one in probe(core) if one.name == "language model"]
    assert "MCP client" in told.told
    core.close()
