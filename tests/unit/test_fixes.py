"""Which stored fix is shown after a failed command."""

from __future__ import annotations

import numpy as np
import pytest

from memory_anchor.domain.model import Actor, Caller, MemoryType, Scope
from memory_anchor.hooks.at_the_act import FIXES
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.language.terms import terms
from memory_anchor.process.wiring import Core
from memory_anchor.recall.fixes import PRINTED_CHARS, Failure, candidates, likely_places, names_in, shared_features
from memory_anchor.use_cases.memory import MemoryAnchor

JDK = "The Android module needs JDK 17: Gradle 8.2 stops at 'Unsupported class file major version 65' with 21."
SPACE = "构建机磁盘被 BuildKit 缓存占满，报 No space left on device 时执行 docker buildx prune。"
OTHERS = (
    "gradle publish needs the token of the release account.",
    "npm ci runs with --legacy-peer-deps until the plugin is upgraded.",
    "Gradle wrapper checksums are verified in CI since March.",
)


def anchor(core: Core, conversation: str = "writer") -> MemoryAnchor:
    return core.anchor(Actor(Caller.AGENT, Scope(agent="claude-code", conversation=conversation)))


def fixes(core: Core, conversation: str, command: str, output: str) -> str:
    """Return what the hook of a failed command prints."""
    payload = {"hook_event_name": "PostToolUseFailure", "tool_input": {"command": command}, "error": output}
    return Hooks().answer(anchor(core, conversation), "PostToolUseFailure", payload)


def save_fixes(core: Core) -> None:
    for text in (JDK, SPACE, *OTHERS):
        anchor(core).save_memory(text, type="bugfix")


def test_a_failure_gets_its_own_fix_and_no_other_of_the_same_tool(core: Core) -> None:
    """Rule fixes.told: by what a fix shares with the output; both languages; nothing where nothing mends it."""
    save_fixes(core)
    failed = "FAILURE: Build failed with an exception.\n> Unsupported class file major version 65\nBUILD FAILED in 3s"
    found = fixes(core, "c1", "./gradlew assemble", failed)
    assert JDK in found and not any(other in found for other in OTHERS)
    full = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
    assert SPACE in fixes(core, "c2", "docker build .", full)
    test = "MoneyTest > rounds() FAILED\n    expected: <2.34> but was: <2.35>\n1 test completed, 1 failed\nBUILD FAILED"
    assert fixes(core, "c3", "./gradlew test", test) == ""
    assert fixes(core, "c4", "npm ci", " \n") == ""


@pytest.mark.parametrize("kind", ["fact", "bugfix", "discovery", "workflow", "instruction"])
def test_a_fix_is_told_of_whatever_type_people_save_one(core: Core, kind: str) -> None:
    """Rule fixes.types: `memory-anchor add` saves a fact where no type is given."""
    anchor(core).save_memory(SPACE, type=kind)
    assert SPACE in fixes(core, "c1", "docker build .", "ERROR: failed to solve: write x: no space left on device")


def test_what_stands_in_the_command_is_no_sign_of_a_fix() -> None:
    """Rule fixes.command: every output of a tool names the tool; only what it says beyond its command counts."""
    idf = {"gradl": 4.0, "publish": 4.0, "token": 4.0}
    named = shared_features(
        "gradle publish needs the token", Failure.of("gradle publish", "gradle publish: failed"), idf
    )
    beyond = shared_features("gradle publish needs the token", Failure.of("gradle", "publish: no token"), idf)
    assert named[:3] == (0.0, 0.0, 0.0) and named[3] > 0
    assert beyond[0] > 0


def test_a_name_that_stands_in_the_command_is_no_sign_either() -> None:
    """Rule fixes.command: the file that was run is printed by whatever fails in it."""
    text, printed = "src/publish.py needs the token", "src/publish.py: no token"
    idf = dict.fromkeys(terms(text), 4.0)
    assert shared_features(text, Failure.of("python src/publish.py", printed), idf)[-1] == 0.0
    assert shared_features(text, Failure.of("make", printed), idf)[-1] > 0


@pytest.mark.parametrize(
    ("chances", "places"), [([0.5, 0.9, 0.4], [1, 0]), ([0.29, 0.32], [1]), ([0.29], []), ([], [])]
)
def test_a_fix_is_told_above_the_bar_and_not_far_below_the_likeliest(chances: list[float], places: list[int]) -> None:
    """Rule fixes.told: the likeliest first; one half as likely as it is no answer beside it."""
    assert likely_places(np.array(chances, dtype=np.float32)) == places


def test_however_much_a_command_prints_its_end_alone_is_read() -> None:
    """Rule fixes.bounded: a hook waits for no log."""
    failure = Failure.of("make " * 10_000, "line of a log\n" * 100_000 + "ECONNRESET")
    assert len(failure.printed) <= PRINTED_CHARS and "ECONNRESET" in failure.names
    assert names_in("plain words, Nothing else") == frozenset()


def test_a_fix_of_another_type_or_nobodys_to_read_is_no_candidate(core: Core) -> None:
    """Rule fixes.types: bugfixes, facts, discoveries, workflows and rules mend; what nobody may read does not."""
    save_fixes(core)
    anchor = core.anchor(Actor(Caller.AGENT, Scope(agent="claude-code", conversation="c9")))
    failure = Failure.of("gradle", "Unsupported class file major version 65")
    searcher = core.services.searcher
    first, *_ = candidates(searcher, anchor.actor, failure, FIXES)
    assert first.memory.content == JDK
    assert candidates(searcher, anchor.actor, failure, (MemoryType.DECISION,)) == []
    stranger = Actor(Caller.AGENT, Scope(account="other", project="elsewhere", agent="x"))
    assert candidates(searcher, stranger, failure, FIXES) == []
