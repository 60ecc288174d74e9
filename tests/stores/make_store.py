"""Make the small store that a release leaves: run with that release's code, once, and keep the two files.

    git archive TAG memory_anchor | tar -x -C /tmp/release
    PYTHONPATH=/tmp/release python -P tests/stores/make_store.py 0.1.0 tests/stores

Needs GNU tar (the files are full of holes) and xz. Writes VERSION.tar.xz (data/ and project/) and VERSION.json: what
the release itself exports, finds and serves of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

PASSPHRASE = "lighthouse keeper 37 灯塔"
PROJECT = "lighthouse"
FACTS = (
    "The lamp of the lighthouse turns once in 12 seconds",
    "灯塔的主灯使用 220 伏电源",
    "Deploys run from the release branch only",
    "发布前必须先运行数据库迁移",
    "The staging database listens on port 5433",
    "日志保留 30 天后自动清理",
    "Pull requests need one review before merging",
    "测试环境的域名是 staging.example.org",
    "The fog horn is tested on Mondays",
    "缓存失效时间设置为五分钟",
    "Alice owns the billing service",
    "前端使用 pnpm 管理依赖",
)
EVENTS = (
    "The fog horn failed its test",
    "凌晨的备份任务失败了",
    "Alice moved the lamp to the east wall",
    "数据库主从切换完成",
    "The deploy of the billing service was rolled back",
    "值班同事更换了保险丝",
    "A storm bent the antenna",
    "新的监控面板上线了",
)
QUERIES = (
    "how often does the lamp turn",
    "主灯的电压",
    "which branch do deploys run from",
    "数据库迁移什么时候运行",
    "who owns billing",
    "日志保留多久",
    "when is the fog horn tested",
)
CONSTITUTION = """\
# kept comment
version: "1"
entries:
  - id: goal
    content: "Keep ships off the rocks 让船只远离礁石"
    priority: 0
  - id: tests
    content: "Run the tests before every commit"
    priority: 1
"""
OPERATION = "# Changing the lamp\n\n## Steps\n\nSwitch the power off, wait ten minutes, then change the bulb.\n"


def main(version: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        os.environ |= {
            "HOME": str(root),
            "MEMORY_ANCHOR_DATA_DIR": str(root / "data"),
            "MEMORY_ANCHOR_PROJECT_DIR": str(root / "project"),
            "MEMORY_ANCHOR_SCOPE__PROJECT": PROJECT,
        }
        ids, resent = _filled(root)
        told = _told(ids) | {"resent": resent}
        archive = folder.absolute() / f"{version}.tar.xz"
        beside = ["--exclude=data/run", "--exclude=data/logs", "--exclude=*.lock"]
        pack = ["tar", "--sparse", "--format=gnu", *beside, "-cf", "-", "-C", str(root), "data", "project"]
        with archive.open("wb") as out, subprocess.Popen(pack, stdout=subprocess.PIPE) as tar:
            subprocess.run(["xz", "-9e"], stdin=tar.stdout, stdout=out, check=True)
        (folder / f"{version}.json").write_text(json.dumps(told, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        print(archive.stat().st_size, "bytes")


def _filled(root: Path) -> tuple[dict[str, list[str]], list[dict[str, Any]]]:
    from memory_anchor.domain.model import Actor, Caller, MemoryType, ProposalAction, Scope
    from memory_anchor.process.app import build_core, settings_of
    from memory_anchor.runtime.lock import DirectoryLock

    project = root / "project"
    (project / ".ai" / "operations").mkdir(parents=True)
    (project / ".ai" / "operations" / "lamp.md").write_text(OPERATION, encoding="utf-8")
    (project / "constitution.yaml").write_text(CONSTITUTION, encoding="utf-8")
    data = root / "data"
    os.umask(0o077)
    with (
        DirectoryLock.acquire(data, role="test") as lock,
        closing(build_core(settings_of(os.environ), data_dir=data, lock=lock)) as core,
    ):
        agent = Actor(Caller.AGENT, Scope(agent="claude-code", conversation="talk-1"), "claude-code", str(project))
        human = Actor(Caller.HUMAN, Scope(agent="claude-code", user="keeper"), project_dir=str(project))
        door, keeper = core.anchor(agent), core.anchor(human)
        identity = keeper.project.identity
        identity.init(passphrase=PASSPHRASE, approver="Keeper", old_passphrase=None)
        proposal = identity.propose(
            content="Never switch the lamp off at night",
            reason="it happened",
            action=ProposalAction.ADD,
            entry_id=None,
            from_id=None,
            by="claude-code",
        )
        for _ in range(3):
            identity.confirm(proposal.id, passphrase=PASSPHRASE, approver="Keeper")
        waiting = identity.propose(
            content="Paint the tower red",
            reason="a wish",
            action=ProposalAction.ADD,
            entry_id=None,
            from_id=None,
            by="claude-code",
        )
        facts = [
            (keeper if at % 3 == 0 else door).save_memory(text, type=MemoryType.FACT.value, request_id=f"fact-{at}").id
            for at, text in enumerate(FACTS)
        ]
        door.save_memory("Perhaps the tower is 31 metres high", confidence=0.75)
        events = [door.log_event(text, request_id=f"event-{at}").id for at, text in enumerate(EVENTS)]
        door.log_event("A boat passed", ttl_days=3650)
        keeper.curation.edit(facts[0], "The lamp of the lighthouse turns once in 15 seconds")
        keeper.forget(facts[9])
        door.promote(events[2], content="The lamp stands at the east wall")
        door.set_active("task", "change the bulb")
        core.services.searcher.index.embed_pending(100)
        core.end_conversation(agent)
        core.services.searcher.index.embed_pending(100)
        ids = {
            "facts": [str(one) for one in facts],
            "events": [str(one) for one in events],
            "proposals": [proposal.id, waiting.id],
        }
        resent = [answered(core, call) for call in _calls(ids)]
        core.services.searcher.index.embed_pending(100)
    return ids, resent


def _calls(ids: dict[str, list[str]]) -> list[dict[str, Any]]:
    """Return calls as a client sends them, each to be sent again to a later version, which must know it again."""
    fact, event = ids["facts"], ids["events"]
    cited = {"files": [".ai/operations/lamp.md:1-3"], "tags": ["lamp", "灯塔"], "key": "The lens"}
    tools: list[tuple[str, dict[str, Any]]] = [
        (
            "save_memory",
            {"content": "The lens is cleaned every Friday", "type": "workflow", "importance": 0.8, **cited},
        ),
        ("save_memory", {"content": "主灯的镜片由 Bob 负责", "visibility": "agent", "confidence": 0.92}),
        ("save_memory", {"content": "The pier is 80 metres long", "replaces": fact[4], "request_id": "pier-1"}),
        ("save_memory", {"content": "A ship hooted twice", "type": "note", "request_id": "note-1"}),
        ("log_event", {"content": "The keeper fell ill", "when": "2026-01-02", "where": "tower", "who": ["Bob"]}),
        ("log_event", {"content": "夜里下了大雨", "when": "2026-01-03T04:05:06+08:00", "ttl_days": 9000, **cited}),
        ("log_event", {"content": "The boat came back", "source": "user", "request_id": "boat-1"}),
        ("promote_to_fact", {"event_id": event[3], "content": "主数据库在二号机房"}),
        ("set_active_context", {"key": "task", "value": {"lamp": 1}}),
        ("end_session", {"summary": "Changed the bulb, the horn is open"}),
        ("forget_memory", {"id": event[6], "reason": "it is long ago"}),
        ("forget_memory", {"id": event[7]}),
    ]
    commands: list[tuple[str, dict[str, Any]]] = [
        ("add", {"content": "The flag is taken down at dusk", "type": "instruction", "tags": ["flag"]}),
        ("edit", {"id": fact[1], "content": "灯塔的主灯使用 110 伏电源"}),
        ("judge", {"id": fact[2], "epistemic": "verified", "shown_by": "https://example.org/runs/7"}),
        ("pin", {"id": fact[5]}),
        ("unpin", {"id": fact[5]}),
        ("forget", {"id": fact[7], "reason": "moved"}),
        ("restore", {"id": fact[7]}),
    ]
    named = [("tool", *one) for one in tools] + [("command", *one) for one in commands]
    return [
        {"door": door, "name": name, "arguments": given, "nonce": f"sent-{at}", "conversation": "talk-2"}
        for at, (door, name, given) in enumerate(named)
    ]


def answered(core: Any, call: dict[str, Any], project_dir: str = "") -> dict[str, Any]:
    """Return the call with the answer that this version gives."""
    from memory_anchor.front import calls, mcp_answers, tool_specs
    from memory_anchor.front.callers import actor_from
    from memory_anchor.runtime.wire import Preamble

    caller = Preamble(
        client="claude-code",
        conversation=call["conversation"],
        project_dir=project_dir or os.environ["MEMORY_ANCHOR_PROJECT_DIR"],
        zone="Asia/Shanghai",
        nonce=call["nonce"],
    )
    if call["door"] == "command":
        return {**call, "answer": calls.run(core, caller, call["name"], call["arguments"])}
    anchor = core.anchor(actor_from(caller, request_id=7))
    every = tool_specs.callable_tools(read_only=False, available=mcp_answers.CALLS)
    asked = tool_specs.resolve(call["name"], call["arguments"], every)
    return {**call, "answer": json.loads(mcp_answers.run(anchor, *asked))}


def _told(ids: dict[str, list[str]]) -> dict[str, Any]:
    def run(*arguments: str) -> str:
        command = [sys.executable, "-P", "-m", "memory_anchor", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    lines = [json.loads(line) for line in run("export", "-", "--versions").splitlines()]
    found = {query: [one["id"] for one in json.loads(run("search", query, "--json"))["snippets"]] for query in QUERIES}
    return {
        "ids": ids,
        "lines": [line for line in lines if line.get("kind") not in ("audit", "proposal")],
        "found": found,
        "constitution": json.loads(run("constitution", "show", "--json")),
    }


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
