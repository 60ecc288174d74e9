"""The write path with a language model: asked outside the lock, believed where it fits, never the cause of a loss."""

from __future__ import annotations

from pathlib import Path

from memory_anchor.domain.errors import Unavailable
from memory_anchor.domain.model import COLLECTIONS, Actor, Outcome, WriteMode
from memory_anchor.domain.ports import CollectionSpec
from memory_anchor.process.app import build_core
from memory_anchor.process.wiring import Adapters, Core
from memory_anchor.settings import Settings
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.testing import HashEmbedder, ManualClock, ScriptedLanguageModel, memory_store

TALK = [
    {"role": "user", "content": "From now on always run the tests with scripts/test."},
    {"role": "assistant", "content": "Understood."},
]


def core_with(model: ScriptedLanguageModel, folder: Path) -> Core:
    return build_core(
        Settings(), data_dir=folder, clock=ManualClock(), store=memory_store(), embedder=HashEmbedder(), model=model
    )


def test_a_ghostwriter_records_its_model_and_mode(tmp_path: Path, agent: Actor) -> None:
    """Rule write-modes: each memory records its mode and the model that wrote it."""
    found = {
        "type": "instruction",
        "content": "I run the tests with scripts/test.",
        "key": "running tests",
        "quote": "always run the tests with scripts/test",
        "message": 0,
        "about": "project",
        "importance": 0.8,
        "needed_when": "running tests",
        "asked_as": ["how are tests run?"],
        "confidence": 0.95,
        "wrong_without": "the wrong command is run",
    }
    model = ScriptedLanguageModel({"memories": [found]}, {"memories": []})
    anchor = core_with(model, tmp_path / "core").anchor(agent)

    (outcomes,), notes = anchor.remember_conversation(TALK, mode="ghostwriter")

    stored = anchor.get(outcomes.outcome.id)
    assert notes == []
    assert stored.write_mode is WriteMode.GHOSTWRITER
    assert stored.extractor_model is not None
    assert stored.extractor_model.startswith(model.name)


def test_a_model_that_cannot_answer_leaves_the_rules_at_work(tmp_path: Path, agent: Actor) -> None:
    """Rule no-loss: too late, never, or nonsense: rules extract, and it is said."""
    anchor = core_with(ScriptedLanguageModel(Unavailable("no answer in time")), tmp_path / "core").anchor(agent)

    outcomes, notes = anchor.remember_conversation(TALK, mode="ghostwriter")

    assert [call.outcome.outcome for call in outcomes] == [Outcome.ADDED]
    assert "by rules" in notes[0]


def test_a_models_invented_target_falls_back_to_rules(tmp_path: Path, agent: Actor) -> None:
    """Rule validated: a target must be one of the neighbours shown; the write is never dropped."""
    wrong = {"operation": "DELETE", "reason": "contradicts", "target": 99}
    anchor = core_with(ScriptedLanguageModel(wrong), tmp_path / "core").anchor(agent)
    anchor.save_memory("The default timeout of the client is 30 seconds")

    outcomes = anchor.save_memory("The default timeout of the client is 60 seconds")

    assert outcomes.id is not None
    assert anchor.get(outcomes.id).content.endswith("60 seconds")


def test_an_agent_may_extract_with_a_model_of_its_own(tmp_path: Path) -> None:
    """Rule agents.extraction.model: the one named is asked, once made, and the others' stays what `llm.model` says."""
    settings = Settings.model_validate({"llm": {"kind": "anthropic", "model": "large", "api_key": "k"}})
    core = build_core(
        settings, data_dir=tmp_path / "core", clock=ManualClock(), store=memory_store(), embedder=HashEmbedder()
    )
    named = core.services.model_named

    assert core.services.model is named("")
    small = named("small")
    assert small is not None
    assert small.name == "small"
    assert small is named("small")


def test_the_model_of_the_agents_settings_is_the_one_that_is_asked(tmp_path: Path, agent: Actor) -> None:
    """Rule agents.extraction.model: through a whole conversation."""
    asked: list[str] = []
    model = ScriptedLanguageModel({"memories": []})
    core = Core(
        Settings.model_validate({"agents": {agent.scope.agent: {"extraction": {"model": "small"}}}}),
        data_dir=tmp_path / "core",
        adapters=Adapters(
            store=_opened(),
            embedder=None,
            model=None,
            clock=ManualClock(),
            model_named=lambda name: asked.append(name) or model,
        ),
    )

    core.anchor(agent).remember_conversation(TALK, mode="ghostwriter")

    assert asked == ["small"]
    assert model.asked


def _opened() -> SqlStore:
    store = memory_store()
    for name in COLLECTIONS:
        store.open_collection(name, CollectionSpec({}))
    return store
