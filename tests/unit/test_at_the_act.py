"""What a hook tells at the act: before a command or an edit what is known of exactly that, after a failure its fix."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.domain.model import Actor, Scope
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.language.acts import ActText, Concern, acts_of, concern
from memory_anchor.language.commands import commands_of
from memory_anchor.process.wiring import Core

CORPUS = Path(__file__).resolve().parents[1] / "corpora" / "acts.jsonl"
"""Fifty memories with two acts near each: one that it is about, and one that it says nothing of. Ours."""


def anchor(core: Core, conversation: str = "c1") -> Any:
    return core.anchor(Actor(scope=Scope(conversation=conversation, agent="tester")))


def ran(hooks: Hooks, core: Core, command: str, conversation: str = "c1") -> str:
    return hooks.answer(anchor(core, conversation), "PreToolUse", {"tool_input": {"command": command}})


def edited(hooks: Hooks, core: Core, path: str, conversation: str = "c1") -> str:
    return hooks.answer(anchor(core, conversation), "PreToolUse", {"tool_input": {"file_path": path}})


def about(memory: str, line: str) -> Concern:
    acts = acts_of(commands_of(line), line)
    return max((concern(ActText.of(memory), act) for act in acts), key=lambda found: found.value)


@pytest.mark.parametrize(
    ("memory", "told", "silent"),
    [
        ("docker compose down -v deletes the volumes", "docker compose -f a.yml down --volumes", "docker compose logs"),
        ("docker compose down -v deletes the volumes", "sudo docker compose down -v", "docker compose down"),
        ("装前端依赖用 pnpm，别用 npm", "npm install dayjs", "pnpm install dayjs"),
        ("Force-pushing is forbidden", "git push --force-with-lease origin main", "git push origin feature"),
        ("Wiping a schema needs a ticket", "psql -c 'DROP SCHEMA a CASCADE'", "psql -c 'CREATE SCHEMA a'"),
        ("清空队列之前先通知运营", "rabbitmqctl purge_queue orders", "rabbitmqctl list_queues"),
        ("Use rg instead of grep -r here", "grep -rn TODO .", "grep -c TODO a.log"),
        ("helm upgrade without --atomic left half a release", "helm upgrade a .", "helm upgrade a . --atomic"),
        ("pg_restore needs --no-owner", "docker exec -i pg pg_restore -d a b", "docker exec -i pg psql -d a"),
        ("Restarting the broker drops all sessions", "kubectl rollout restart sts/broker", "kubectl logs broker-0"),
        ("The staging database is shared: ask before resetting it", "PGHOST=staging dropdb a", "PGHOST=prod dropdb a"),
    ],
)
def test_the_act_is_matched_and_not_its_tool(memory: str, told: str, silent: str) -> None:
    """PreToolUse: program, subcommand, options, place and effect, in words of one's own too."""
    assert about(memory, told) is not Concern.NONE
    assert about(memory, silent) is Concern.NONE


@pytest.mark.parametrize(
    ("line", "programs"),
    [
        ("ssh gw17 gwctl erase --yes", ["ssh", "gwctl"]),
        ('ssh -A -i key root@gw17 "gwctl erase | tee log"', ["ssh", "gwctl", "tee"]),
        ("kubectl exec -it web-0 -- flask shell", ["kubectl", "flask"]),
        ("docker compose exec db pg_restore dump", ["docker", "pg_restore"]),
        ("uv run alembic upgrade head", ["uv", "alembic"]),
        ("timeout 60 npm publish", ["npm"]),
        ("A=1 sudo -u app nice -n 5 terraform apply", ["terraform"]),
        ("bash -lc 'cd a && make b'", ["bash", "cd", "make"]),
        ("(cd a; python -m pytest) > log 2>&1", ["cd", "python", "pytest"]),
        ("psql <<SQL\nDROP TABLE a;\nSQL", ["psql", "sql"]),
        ("echo 'open", ["echo"]),
    ],
)
def test_each_command_of_a_line_counts_by_itself(line: str, programs: list[str]) -> None:
    """PreToolUse: over ssh, in a container, under a runner, in a subshell and in a text for a shell."""
    named = [command.program for command in commands_of(line) if command.program not in ("timeout", "nice")]
    assert [name for name in named if name != "sql" or "sql" in programs][: len(programs)] == programs


def test_what_a_memory_is_about_is_told_and_what_is_near_it_is_not(core: Core) -> None:
    """The corpus of acts: at least 45 of 50 told, and at most one of 50 in vain."""
    stores: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for line in CORPUS.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        stores[case["store"]].append(case)
    results = [result for name, cases in stores.items() for result in told_of(core, name, cases)]
    assert sum(is_told for is_told, _ in results) >= 45
    assert sum(in_vain for _, in_vain in results) <= 1


def told_of(core: Core, store: str, cases: list[Mapping[str, Any]]) -> Iterator[tuple[bool, bool]]:
    """Yield of each case whether its own memory was told, and whether anything was in vain."""

    def at(conversation: str) -> Any:
        return core.anchor(Actor(scope=Scope(project=store, conversation=conversation, agent="tester")))

    for case in cases:
        memory = case["memory"]
        at("first").save_memory(memory["text"], type=memory["type"], files=tuple(memory.get("files", ())))

    def said(case: Mapping[str, Any], want: str) -> str:
        act = case[want]
        given = {name: str(value).replace("{P}", "/somewhere") for name, value in act["input"].items()}
        payload = {"hook_event_name": act["event"], "tool_input": given, "error": act.get("error", "")}
        return Hooks().answer(at(f"{case['id']}-{want}"), act["event"], payload)

    for case in cases:
        yield case["memory"]["text"][:40] in said(case, "told"), bool(said(case, "silent"))


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
    assert "Ask before" in edited(Hooks(), core, "/home/ada/shop/legacy/billing/round.py", "c2")
    deep = f"/home/somebody/{'a-long-folder/' * 6}legacy/billing/rules/round.py"
    assert "Ask before" in edited(Hooks(), core, deep, "c2")
    assert edited(Hooks(), core, "/home/ada/shop/web/billing.css", "c2") == ""


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


def test_a_failure_that_shares_only_its_command_with_a_fix_is_told_nothing(core: Core) -> None:
    """PostToolUseFailure: the fix of exactly this, and nothing else."""
    fix = "Alembic complains of multiple heads after a merge: alembic merge heads, then upgrade"
    anchor(core).save_memory(fix, type="bugfix")
    run = {"tool_input": {"command": "uv run alembic upgrade head"}, "hook_event_name": "PostToolUseFailure"}
    other = "sqlalchemy.exc.OperationalError: could not translate host name to address"
    assert Hooks().answer(anchor(core, "c2"), "PostToolUseFailure", {**run, "error": other}) == ""
    own = "FAILED: Multiple head revisions are present for given argument 'head'"
    assert fix in Hooks().answer(anchor(core, "c3"), "PostToolUseFailure", {**run, "error": own})
