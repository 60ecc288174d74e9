"""The briefs: what a session and its first prompt are told, what is due, and what a tool's hook warns of."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.domain.model import Actor, Scope
from memory_anchor.hooks.brief import heads_of, names_in, runs_of
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.language.tokens import count_tokens
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.wire import UNTIL
from memory_anchor.testing import ManualClock

MONDAY = datetime(2026, 11, 23, 9, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(MONDAY)


def anchor(core: Core, conversation: str = "c1") -> Any:
    return core.anchor(Actor(scope=Scope(conversation=conversation, agent="tester")))


def ran(hooks: Hooks, core: Core, command: str, conversation: str = "c1") -> str:
    return hooks.answer(anchor(core, conversation), "PreToolUse", {"tool_input": {"command": command}})


def edited(hooks: Hooks, core: Core, path: str, conversation: str = "c1") -> str:
    return hooks.answer(anchor(core, conversation), "PreToolUse", {"tool_input": {"file_path": path}})


# --- briefs --------------------------------------------------------------------------------------------------------


def test_a_session_is_told_what_changed_since_its_agent_was_last_here(core: Core, clock: ManualClock) -> None:
    """Issue 15, brief: what another wrote meanwhile, and not what was known before."""
    anchor(core, "first").log_event("The old cluster was switched off")
    Hooks().answer(anchor(core, "first"), "SessionStart", {})
    clock.advance(days=1)
    Hooks().answer(anchor(core, "second"), "SessionStart", {})
    clock.advance(days=1)
    anchor(core, "other").log_event("The queue was moved to the new broker")

    text = Hooks().answer(anchor(core, "third"), "SessionStart", {})

    assert "since you were last here" in text
    assert "new broker" in text
    assert "old cluster" not in text


def test_a_first_prompt_is_told_what_names_its_files(core: Core) -> None:
    """Issue 15, brief: decisions about the files that the prompt names, whatever else it says."""
    anchor(core).save_memory("src/billing/round.py rounds half to even because the auditors want it", type="decision")
    prompt = {"prompt": "tidy up src/billing/round.py a little"}
    assert "half to even" in Hooks().answer(anchor(core, "c2"), "UserPromptSubmit", prompt)


def test_a_brief_stays_below_its_tokens(core: Core) -> None:
    """Issue 15, brief: at most 800 tokens, whatever is stored."""
    for number in range(12):
        anchor(core).save_memory(f"Rule {number} of src/a.py: " + "the parser keeps every comment it reads " * 9)
    text = Hooks().answer(anchor(core, "c2"), "UserPromptSubmit", {"prompt": "change the parser in src/a.py"})
    assert 0 < count_tokens(text) <= 800


def test_what_came_too_late_does_not_count_as_told(core: Core, clock: ManualClock) -> None:
    """Issue 15: a client that had stopped waiting was told nothing, and is told with its next prompt."""
    anchor(core).save_memory("The cache keys expire after nine minutes")
    hooks, late = Hooks(), clock.now().timestamp() - 1
    prompt = {"prompt": "when do the cache keys expire?"}
    hooks.answer(anchor(core, "c2"), "UserPromptSubmit", prompt | {UNTIL: late})
    assert "nine minutes" in hooks.answer(anchor(core, "c2"), "UserPromptSubmit", prompt | {UNTIL: late + 5})
    assert hooks.answer(anchor(core, "c2"), "UserPromptSubmit", prompt | {UNTIL: late + 5}) == ""


# --- due -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("The staging certificate expires on 2026-12-05", 11),
        ("预发证书 2026年12月5日 到期", 11),
        ("Hand in the audit report next Wednesday", 1),
        ("下周三之前交审计报告", 8),
        ("The certificate must be renewed by 2026-12-05.", 11),
        ("护照要在 2026-12-06 之前去取", 11),
        ("12月6日前续签合同", 11),
        ("The audit report is due on Thursday", 2),
        ("周四之前交审计报告", 1),
        ("周四前把稿子交上去", 1),
        ("周四前提交稿子", 1),
        ("车险 12 月 5 日到期", 11),
        ("Register before tomorrow", 0),
    ],
)
def test_a_date_in_a_memory_is_told_the_day_before(core: Core, clock: ManualClock, text: str, days: int) -> None:
    """Issue 15, due: a date that lay ahead is told when it is near, and not before."""
    anchor(core).save_memory(text)
    if days > 1:
        assert anchor(core).due() == []
    clock.advance(days=days)
    (due,) = anchor(core).due()
    assert due.memory.content == text
    if "12" in text:
        assert f"{due.at:%m-%d}" == "12-05"


def test_a_date_that_is_long_over_or_was_past_when_written_is_never_due(core: Core, clock: ManualClock) -> None:
    """Issue 15, due: a report of what was is no task, and nobody is reminded for ever."""
    anchor(core).save_memory("On 3 November 2026 the cache cluster fell over")
    anchor(core).save_memory("The licence ends on 2026-11-25")
    anchor(core).log_event("We met on Friday, the fee was due on 3 November")
    anchor(core).log_event("周五前端改了样式，三天前换了滤芯")
    anchor(core).log_event("周一构建失败是因为锁文件丢了")
    anchor(core).log_event("On Monday we lost the lock file")
    assert anchor(core).due() == []
    clock.advance(days=40)
    assert anchor(core).due() == []


def test_what_is_due_is_told_once_a_day_until_it_is_done(core: Core, clock: ManualClock) -> None:
    """Issue 15, due: once a day at most, in whichever session; `due --done` ends it."""
    saved = anchor(core).save_memory("Rotate the signing key", tags=["todo"], type="project_state")
    hooks = Hooks()
    assert "due: open task" in hooks.answer(anchor(core, "c2"), "SessionStart", {})
    assert "due: open task" not in hooks.answer(anchor(core, "c3"), "SessionStart", {})
    clock.advance(days=1)
    assert "due: open task" in hooks.answer(anchor(core, "c4"), "SessionStart", {})
    clock.advance(days=1)
    assert anchor(core).due(done=saved.id) == []
    assert "due: open task" not in hooks.answer(anchor(core, "c5"), "SessionStart", {})


# --- tools ---------------------------------------------------------------------------------------------------------


def test_a_known_trap_of_a_command_is_told_once_before_it_runs(core: Core) -> None:
    """Issue 15, PreToolUse: the rule that names the command, and never twice."""
    anchor(core).save_memory("npm install breaks the workspace links; use pnpm add", type="decision")
    hooks = Hooks()
    assert "pnpm add" in ran(hooks, core, "cd web && npm install lodash")
    assert ran(hooks, core, "npm install left-pad") == ""


def test_a_bare_program_is_warned_of_where_few_memories_name_it(core: Core) -> None:
    """Issue 15, PreToolUse: each program of a line by itself; what is named everywhere warns of nothing."""
    for place in ("the API", "the worker", "the site", "the shop"):
        anchor(core).save_memory(f"{place} is built by vitebuild before its release", type="decision")
    anchor(core).save_memory("tarpack leaves out links; copy them by hand", type="decision")
    text = ran(Hooks(), core, "vitebuild | tarpack -z", "c2")
    assert "by hand" in text
    assert "vitebuild" not in text
    assert ran(Hooks(), core, "vitebuild --watch", "c3") == ""


def test_a_known_trap_of_a_file_is_told_before_it_is_edited(core: Core) -> None:
    """Issue 15, PreToolUse: the file itself, or a folder of it that a rule names."""
    anchor(core).save_memory("Ask before touching anything under legacy/billing", type="instruction")
    assert "Ask before" in edited(Hooks(), core, "/work/shop/legacy/billing/round.py", "c2")
    deep = f"/home/somebody/{'a-long-folder/' * 6}legacy/billing/rules/round.py"
    assert "Ask before" in edited(Hooks(), core, deep, "c2")
    assert edited(Hooks(), core, "/work/shop/web/billing.css", "c2") == ""


def test_what_happened_is_a_trap_where_it_names_what_is_run_in_full(core: Core) -> None:
    """Issue 15, PreToolUse: else it is none; three words are no accident, and another option is another command."""
    anchor(core).log_event("Running `docker volume prune -f` wiped the fixtures")
    anchor(core).log_event("ran terraform apply for the new bucket")
    assert ran(Hooks(), core, "terraform apply") == ""
    assert ran(Hooks(), core, "ls -la") == ""
    assert "wiped" in ran(Hooks(), core, "cd ops && sudo docker volume prune -f", "c2")
    assert "wiped" in ran(Hooks(), core, "FOO=1 env DEBUG=1 nohup docker volume prune -f", "c4")
    assert ran(Hooks(), core, "docker volume ls", "c3") == ""


@pytest.mark.parametrize(
    ("happened", "is_told"),
    [
        ("docker compose down lost the database", True),
        ("`docker compose down` lost the database", True),
        ("docker compose downgrade lost the database", False),
        ("docker compose down-scale lost the database", False),
        ("old-docker compose down lost the database", False),
        ("compose down lost the database", False),
    ],
)
def test_a_command_of_three_words_is_named_in_full_or_not_at_all(core: Core, happened: str, is_told: bool) -> None:
    """Issue 15, PreToolUse: what is run stands there word for word, with nothing joined to it."""
    anchor(core).log_event(happened)
    assert ("lost" in ran(Hooks(), core, "docker compose down -v", "c2")) is is_told


@pytest.mark.parametrize(
    ("fact", "is_told"),
    [
        ("locks/Podfile.lock is generated", True),
        ("app/locks/Podfile.lock is generated", True),
        ("Podfile.lock is generated", False),
        ("old-locks/Podfile.lock is generated", False),
        ("locks/Podfile.lock/parts is generated", False),
    ],
)
def test_a_file_is_named_by_two_parts_of_its_path_or_more(core: Core, fact: str, is_told: bool) -> None:
    """Issue 15, PreToolUse: a file's name alone may be that of many; what happened to a file is no trap."""
    anchor(core).save_memory(fact, type="fact")
    anchor(core).log_event("moved locks/Podfile.lock to its folder")
    text = edited(Hooks(), core, "/somewhere/app/locks/Podfile.lock", "c2")
    assert ("generated" in text) is is_told
    assert "moved" not in text
    assert edited(Hooks(), core, "/somewhere/app/other/Podfile.lock", "c3") == ""


def test_a_failing_command_gets_the_fix_that_is_known(core: Core) -> None:
    """Issue 15, PostToolUse: by the identifiers of what it printed; one that succeeded gets nothing."""
    fix = "ECONNRESET from the uploader is the balancer's idle timeout; switch keep-alive on"
    anchor(core).save_memory(fix, type="bugfix")
    said = "upload failed\nError: read ECONNRESET"
    failed = {"hook_event_name": "PostToolUseFailure", "error": said}
    assert fix in Hooks().answer(anchor(core, "c2"), "PostToolUseFailure", failed)
    exited = {"tool_response": {"stderr": said, "exit_code": 1}}
    assert fix in Hooks().answer(anchor(core, "c3"), "PostToolUse", exited)
    fine = {"tool_response": {"stdout": said, "exit_code": 0}}
    assert Hooks().answer(anchor(core, "c4"), "PostToolUse", fine) == ""


def test_a_known_trap_of_a_file_is_told_before_a_patch_of_codex_touches_it(core: Core) -> None:
    """Issue 15, PreToolUse: Codex names its files in the patch; what the patch says is no command."""
    anchor(core).save_memory("Ask before touching anything under legacy/billing", type="instruction")
    anchor(core).save_memory("npm install breaks the workspace links; use pnpm add", type="decision")
    patch = "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: {}\n-npm install lodash\n+x\n*** End Patch\nEOF"
    assert "Ask before" in ran(Hooks(), core, patch.format("legacy/billing/round.py"), "c2")
    assert ran(Hooks(), core, patch.format("web/billing.css"), "c3") == ""


def test_a_command_that_fails_in_codex_gets_the_fix_that_is_known(core: Core, tmp_path: Path) -> None:
    """Issue 15, PostToolUse: Codex tells only what was printed; its transcript tells how the command ended."""
    fix = "ECONNRESET from the uploader is the balancer's idle timeout; switch keep-alive on"
    anchor(core).save_memory(fix, type="bugfix")
    transcript = tmp_path / "rollout.jsonl"
    ended = [{"type": "CommandExecution", "id": f"call_{code}", "exit_code": code} for code in (0, 1)]
    lines = [json.dumps({"type": "event_msg", "payload": {"type": "item_completed", "item": item}}) for item in ended]
    transcript.write_text("\n".join([*lines, '{"broken', ""]))
    said = {"tool_response": "Error: read ECONNRESET", "transcript_path": str(transcript)}
    assert Hooks().answer(anchor(core, "c2"), "PostToolUse", {**said, "tool_use_id": "call_0"}) == ""
    assert fix in Hooks().answer(anchor(core, "c3"), "PostToolUse", {**said, "tool_use_id": "call_1"})
    gone = {**said, "tool_use_id": "call_1", "transcript_path": str(tmp_path / "gone")}
    assert Hooks().answer(anchor(core, "c4"), "PostToolUse", gone) == ""


def test_the_names_and_heads_of_commands_are_read() -> None:
    """Issue 15, PreToolUse: what is looked for in memories."""
    assert names_in("edit src/api/a.py and getUserName") == ["src/api/a.py"]
    assert heads_of(runs_of("FOO=1 sudo git push origin main | tee log.txt; pytest -x")) == (
        ["git push"],
        ["tee", "pytest"],
    )


@pytest.mark.parametrize(
    ("line", "phrase"),
    [
        ("ssh gw17 gwctl erase --yes", "gwctl erase"),
        ('ssh -A root@gw17 "gwctl erase"', "gwctl erase"),
        ("kubectl exec -it web-0 -- flask shell", "flask shell"),
        ("docker compose exec db pg_restore dump", "pg_restore dump"),
        ("uv run alembic upgrade head", "alembic upgrade"),
        ("timeout 60 npm publish", "npm publish"),
        ("sudo nice -n5 terraform apply", "terraform apply"),
    ],
)
def test_a_command_that_another_runs_counts_as_itself(line: str, phrase: str) -> None:
    """Issue 15, PreToolUse: a trap is told over ssh, in a container and under a runner too."""
    assert phrase in heads_of(runs_of(line))[0]
