"""Attack A30: 340 bad inputs over every door: exactly one clear sentence, the right code, nothing half-written.

The list, `tests/corpora/bad_inputs.jsonl`, was written before anybody looked at what the code does. `⟨x×9⟩` in it
stands for nine times x. The fast tests take the doors that need no process; the slow one takes all of them.
"""

from __future__ import annotations

import json
import queue
import re
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from typing import Any

import pytest
from doors import COMMAND, House, answer
from figures import figure

from memory_anchor.domain.errors import MemoryAnchorError
from memory_anchor.domain.model import COLLECTIONS
from memory_anchor.domain.where import Where
from memory_anchor.front import mcp_answers, tool_specs
from memory_anchor.process.wiring import Core
from memory_anchor.runtime import wire
from memory_anchor.runtime.relay import Relay
from memory_anchor.settings import load_settings
from memory_anchor.use_cases.memory import MemoryAnchor

LIST = Path(__file__).resolve().parents[1] / "corpora" / "bad_inputs.jsonl"
SHORTHAND = re.compile(r"⟨(.+?)×(\d+)⟩")
LEAST_CHARS, MOST_CHARS = 10, 600
WAIT_S, SILENCE_S = 20.0, 8.0
A_PROCESS_EACH = {"command", "setting", "settings file", "import file", "hook"}


def rows(*doors: str) -> list[dict[str, Any]]:
    text = SHORTHAND.sub(lambda found: found.group(1) * int(found.group(2)), LIST.read_text())
    return [row for row in map(json.loads, text.splitlines()) if row["door"] in doors]


def sampled(door: str) -> list[dict[str, Any]]:
    """Return a door's rows; where each takes a process every third, or all of them with the full figures."""
    return rows(door)[:: figure(3, 1) if door in A_PROCESS_EACH else 1]


def is_one_sentence(told: str) -> bool:
    """Return whether a person can read it: one line, words, no traceback, no name of a Python class."""
    return (
        LEAST_CHARS <= len(told.strip()) <= MOST_CHARS
        and "\n" not in told.strip()
        and not re.search(r"Traceback|Error\(|validation error|object at 0x|a bug ended", told)
    )


def fits(given: object, code: object) -> bool:
    return given in code if isinstance(code, list) else given == code


# --- quick: without a process --------------------------------------------------------------------------------------


def test_every_odd_line_is_answered_by_the_bridge_itself(subtests: Any = None) -> None:
    """Attack A30: what no engine would answer is answered here, with the code of JSON-RPC."""
    failed = []
    for row in rows("jsonrpc"):
        if row["code"] not in (-32700, -32600) and "params" not in row["what"] and "with a" not in row["what"]:
            continue
        raw = bytes.fromhex(row["hex"]) if "hex" in row else row["raw"].encode()
        if row["code"] not in (-32700, -32600, -32602) or "call with" in row["what"]:
            continue
        relay = Relay()
        onward, back = relay.from_client(raw + b"\n")
        error = json.loads(back)["error"] if back else {}
        if onward or not fits(error.get("code"), row["code"]) or not is_one_sentence(error.get("message", "")):
            failed.append((row["what"], onward, back))
    assert not failed, "\n".join(map(str, failed))


def test_every_bad_argument_of_a_tool_is_one_sentence_and_writes_nothing(core: Core, anchor: MemoryAnchor) -> None:
    """Attack A30: ours, through the very table that MCP calls."""
    failed = []
    before = stored(core)
    for row in rows("tool"):
        try:
            tool, given = tool_specs.resolve(
                row["name"], row["arguments"], tool_specs.callable_tools(read_only=False, available=mcp_answers.CALLS)
            )
            told = mcp_answers.run(anchor, tool, given)
        except MemoryAnchorError as error:
            told = str(error)
            if is_one_sentence(told):
                continue
        if json.loads(told).get("outcome") != "rejected" if told.startswith("{") else True:
            failed.append((row["what"], told[:200]))
    assert not failed, "\n".join(map(str, failed))
    assert stored(core) == before


def test_every_bad_setting_is_one_sentence(tmp_path: Path) -> None:
    """Attack A30: of the environment and of a file."""
    failed = []
    for number, row in enumerate(rows("setting", "settings file")):
        file = tmp_path / f"{number}.yaml"
        file.write_text(row.get("text", ""))
        env = {row["name"]: row["value"]} if "name" in row else {}
        try:
            load_settings(env=env, user_file=file)
        except MemoryAnchorError as error:
            if is_one_sentence(str(error)):
                continue
            failed.append((row["what"], str(error)))
        else:
            failed.append((row["what"], "taken"))
    assert not failed, "\n".join(map(str, failed))


def stored(core: Core) -> int:
    return sum(len(core.services.store.scan(name, Where(), page=1000)[0]) for name in COLLECTIONS)


# --- all of them, through the real doors -----------------------------------------------------------------------------


def json_rpc(house: House) -> list[str]:
    agent = house.bridge("here")
    answer(agent, "search_events")
    failed = []
    for number, row in enumerate(rows("jsonrpc")):
        name = f"odd-{number}"
        raw = bytes.fromhex(row["hex"]) if "hex" in row else row["raw"].replace('"ID"', f'"{name}"').encode()
        assert agent.process.stdin is not None
        agent.process.stdin.write(raw + b"\n")
        agent.process.stdin.flush()
        mine = name if f'"{name}"'.encode() in raw else None
        line = None
        while line is None or "method" in line or line.get("id") not in (mine, None, 1):
            try:
                line = agent._lines.get(timeout=SILENCE_S)
            except queue.Empty:
                line = {"id": mine, "error": {"message": "no answer"}}
            if line is None:
                return [*failed, f"{row['what']}: the bridge ended"]
        error = line.get("error", {})
        if not fits(error.get("code"), row["code"]) or not is_one_sentence(error.get("message", "")):
            failed.append(f"{row['what']}: {str(line)[:300]}")
    answer(agent, "search_events")
    return failed


def tools(house: House) -> list[str]:
    agent = house.bridge("here")
    failed = []
    for row in rows("tool"):
        line = agent.tool(row["name"], **row["arguments"])
        result = line.get("result", {})
        told = (result.get("content") or [{}])[0].get("text", "")
        if told.startswith("{") and json.loads(told).get("outcome") == "rejected":
            continue
        if not result.get("isError") or not is_one_sentence(told):
            failed.append(f"{row['what']}: {str(line)[:300]}")
    return failed


def ran(house: House, what: str, code: object, arguments: list[str], **env: str) -> list[str]:
    try:
        done = house.run(*arguments, **env)
    except TimeoutExpired:
        return [f"{what}: did not end"]
    told = done.stderr.decode(errors="replace")
    if fits(done.returncode, code) and "Traceback" not in told and told.strip():
        return []
    return [f"{what}: exit {done.returncode} {told[-300:]!r}"]


def commands(house: House) -> list[str]:
    tries = ((f"command {row['what']}", row["code"], row["arguments"]) for row in sampled("command"))
    return [told for what, code, arguments in tries for told in ran(house, what, code, arguments)]


def settings(house: House) -> list[str]:
    failed = []
    for row in sampled("setting"):
        failed += ran(house, row["what"], row["code"], ["list"], **{row["name"]: row["value"]})
    for row in sampled("settings file"):
        file = house.home / "odd.yaml"
        file.write_text(row["text"])
        failed += ran(house, row["what"], row["code"], ["config"], MEMORY_ANCHOR_CONFIG_FILE=str(file))
    return failed


def imports(house: House) -> list[str]:
    failed = []
    for row in sampled("import file"):
        file = house.home / "odd.jsonl"
        file.write_text(row["text"])
        done = house.run("import", str(file))
        told = (done.stdout + done.stderr).decode()
        if "Traceback" in told or not re.search(r"refused|line 1|error|1 rejected", told):
            failed.append(f"import {row['what']}: exit {done.returncode} {told[-300:]!r}")
    return failed


def constitutions(house: House) -> list[str]:
    failed = []
    agent = house.bridge("odd")
    for row in rows("constitution file"):
        (house.project("odd") / "constitution.yaml").write_text(row["text"])
        told = answer(agent, "get_constitution")
        if told.get("entries") or not told.get("warnings") or len(str(told["warnings"])) > 2000:
            failed.append(f"constitution {row['what']}: {str(told)[:300]}")
    (house.project("odd") / "constitution.yaml").unlink()
    return failed


def hooks(house: House) -> list[str]:
    failed = []
    for row in sampled("hook"):
        done = house.run("hook", row["event"], stdin=row["raw"].encode())
        told = done.stderr.decode()
        if done.returncode or done.stdout or "Traceback" in told or told.count("\n") > 1:
            failed.append(f"hook {row['what']}: exit {done.returncode} {told[-300:]!r}")
    return failed


def engine_calls(house: House) -> list[str]:
    failed = []
    for row in rows("engine"):
        link, _ = wire.connect(str(house.data), timeout_s=WAIT_S)
        with link:
            link.settimeout(WAIT_S)
            link.sendall(row["raw"].encode() + b"\n")
            raw = b""
            while b"\n" not in raw and (chunk := link.recv(1 << 16)):
                raw += chunk
        told = json.loads(raw)["error"] if raw else ""
        told = told["message"] if isinstance(told, dict) else told
        if not is_one_sentence(str(told)):
            failed.append(f"engine {row['what']}: {raw[:300]!r}")
    return failed


def http(house: House) -> list[str]:
    env = {"MEMORY_ANCHOR_HTTP__TOKENS": json.dumps({"TOKEN": "local"})}
    with Popen([*COMMAND, "serve", "--port", "0"], env=house.environment("here", **env), stdout=PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            base = re.search(r"http://\S+?:\d+", run.stdout.readline()).group()  # type: ignore[union-attr]
            return [told for row in rows("http") if (told := asked(base, row))]
        finally:
            run.terminate()


def asked(base: str, row: dict[str, Any]) -> str:
    body = row["body"].encode() if row["body"] is not None else None
    request = urllib.request.Request(  # noqa: S310 - of our own server
        base + row["path"], data=body, headers=row["headers"], method=row["method"]
    )
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as got:  # noqa: S310
            return f"http {row['what']}: {got.status}"
    except urllib.error.HTTPError as refused:
        raw = refused.read().decode()
        try:
            told = json.loads(raw)["message"]
        except (ValueError, KeyError, TypeError):
            return f"http {row['what']}: {refused.code} {raw[:300]!r}"
        good = fits(refused.code, row["code"]) and is_one_sentence(told)
        return "" if good else f"http {row['what']}: {refused.code} {told[:300]!r}"


def exported(house: House) -> list[Any]:
    """Return id and content of every memory, whatever project it is of."""
    lines = map(json.loads, house.run("export", "-").stdout.splitlines())
    return [(one["id"], one["content"]) for one in lines if "content" in one]


DOORS: dict[str, Callable[[House], list[str]]] = {
    "jsonrpc": json_rpc,
    "tool": tools,
    "engine": engine_calls,
    "hook": hooks,
    "command": commands,
    "setting": settings,
    "import file": imports,
    "constitution file": constitutions,
    "http": http,
}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_bad_input_is_one_sentence_through_its_real_door(tmp_path: Path) -> None:
    """Attack A30: nothing is written by any of them, and no engine, bridge or server ends."""
    house = House(tmp_path)
    try:
        answer(house.bridge("here"), "log_event", content="there before")
        before = exported(house)
        failed: list[str] = []
        for look in DOORS.values():
            failed += (found := look(house))
            print(*found, sep="\n", flush=True)
        counted = Counter(row["door"] for door in (*DOORS, "settings file") for row in sampled(door))
        print(f"{sum(counted.values()) - len(failed)} of {sum(counted.values())}", *failed, sep="\n")
        assert exported(house) == before
        assert "Traceback" not in (house.data / "logs" / "engine.log").read_text()
        assert not failed, "\n".join(failed)
    finally:
        house.close()
