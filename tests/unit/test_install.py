"""Installing into clients: what is written, twice is once, and out again byte for byte."""

from __future__ import annotations

import json
import shutil
import stat
import sys
import tomllib
from pathlib import Path

import pytest

from memory_anchor.domain.errors import BadInput, MemoryAnchorError, Refused
from memory_anchor.front.clients import places
from memory_anchor.front.clients.install import install, uninstall
from memory_anchor.runtime import wire
from memory_anchor.runtime.wire import HOOK_TOOL

CLAUDE_JSON = '{\n    "numStartups": 3,\n    "mcpServers": {"other": {"command": "x"}},\n    "名": "值"\n}'
SETTINGS = '{"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "mine"}]}]}, "model": "opus"}\n'
CODEX_TOML = 'model = "gpt"\n\n[mcp_servers.other]\ncommand = "x" # kept\n\n[tui]\ntheme = "dark"'
FILES = {
    "claude-code": {".claude.json": CLAUDE_JSON, ".claude/settings.json": SETTINGS},
    "codex": {".codex/config.toml": CODEX_TOML, ".codex/hooks.json": SETTINGS},
    "gemini": {".gemini/settings.json": '{"theme": "x"}'},
    "cursor": {".cursor/mcp.json": '{\n\t"mcpServers": {}\n}\n'},
    "vscode": {".config/Code/User/mcp.json": '{"inputs": []}'},
}


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return {
        "HOME": str(tmp_path / "home"),
        "PATH": "",
        "MEMORY_ANCHOR_DATA_DIR": str(tmp_path / "data"),
        "MEMORY_ANCHOR_PROJECT_DIR": str(project),
    }


def put(env: dict[str, str], client: str) -> dict[Path, str]:
    files = {Path(env["HOME"]) / name: text for name, text in FILES[client].items()}
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o640)
    return files


@pytest.mark.parametrize("client", FILES)
def test_out_again_every_file_is_byte_for_byte_what_it_was(client: str, env: dict[str, str]) -> None:
    """Rule install.exact: own formatting, order, comments, modes and a missing last newline come back."""
    files = put(env, client)
    plan = install(client, env=env)
    assert {str(file) for file in files} == set(plan.backups)
    for file, text in files.items():
        assert file.read_text() != text
        assert Path(plan.backups[str(file)]).read_text() == text
        assert str(file) in plan.text()
    uninstall(client, env=env)
    for file, text in files.items():
        assert file.read_text() == text
        assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.parametrize("client", FILES)
@pytest.mark.parametrize("scope", ["user", "project"])
def test_twice_is_once_and_files_we_made_go_again(client: str, scope: str, env: dict[str, str], tmp_path: Path) -> None:
    """Rule install.idempotent: the second time changes nothing; out again, no file of ours is left."""
    install(client, scope=scope, env=env)
    made = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and "data" not in path.parts}
    assert made
    again = install(client, scope=scope, env=env)
    assert all(change.before == change.after for change in again.changes)
    assert "nothing to change" in again.text()
    assert made == {path: path.read_bytes() for path in made}
    uninstall(client, scope=scope, env=env)
    assert not any(path.exists() for path in made)


@pytest.mark.parametrize("client", FILES)
def test_what_the_user_changed_since_stays_when_we_go(client: str, env: dict[str, str]) -> None:
    """Rule install.exact: only our part leaves a file that somebody edited after us."""
    files = put(env, client)
    install(client, env=env)
    for file in files:
        if file.suffix == ".toml":
            file.write_text(file.read_text() + "\n[added]\nlater = 1\n")
        else:
            file.write_text(json.dumps({**json.loads(file.read_text()), "added": {"later": 1}}))
    install(client, env=env)
    uninstall(client, env=env)
    for file, text in files.items():
        load = tomllib.loads if file.suffix == ".toml" else json.loads
        left = {name: value for name, value in load(text).items() if value != {}}
        assert load(file.read_text()) == {**left, "added": {"later": 1}}
        assert "memory" not in file.read_text()


def test_claude_code_gets_the_server_and_the_hooks_it_knows(env: dict[str, str]) -> None:
    """Rule install.claude: beside the user's own servers and hooks, each with a time limit."""
    put(env, "claude-code")
    install("claude-code", env=env)
    home = Path(env["HOME"])
    servers = json.loads((home / ".claude.json").read_text())["mcpServers"]
    assert servers["other"] == {"command": "x"}
    assert servers["memory-anchor"]["args"][-1] == "mcp"
    hooks = json.loads((home / ".claude/settings.json").read_text())["hooks"]
    tools = {"PreToolUse", "PostToolUseFailure"}
    assert set(hooks) == {"SessionStart", "UserPromptSubmit", "PreCompact", "PostCompact", "Stop", "SessionEnd"} | tools
    assert all("Bash" in hooks[event][-1]["matcher"] for event in tools)
    assert next(group["hooks"][0]["command"] for group in hooks["SessionStart"]) == "mine"
    assert hooks["SessionEnd"][0]["hooks"][0]["command"].partition(" || ")[0].endswith("hook SessionEnd")
    assert all(group["hooks"][0]["timeout"] for group in hooks["PreCompact"])


def test_a_tool_call_starts_no_process_in_claude_code(env: dict[str, str]) -> None:
    """Rule install.acts: its hooks go over the connection to our server; what answers nothing is not waited for."""
    put(env, "claude-code")
    install("claude-code", env=env)
    hooks = json.loads((Path(env["HOME"]) / ".claude/settings.json").read_text())["hooks"]
    for event in ("PreToolUse", "PostToolUseFailure"):
        (hook,) = hooks[event][0]["hooks"]
        assert (hook["type"], hook["server"], hook["tool"]) == ("mcp_tool", "memory-anchor", HOOK_TOOL)
        assert hook["input"]["event"] == event and hook["timeout"] <= 2
    assert all(hooks[event][0]["hooks"][0]["async"] for event in ("Stop", "SessionEnd"))
    install("claude-code", scope="project", env=env)
    project = json.loads((Path(env["MEMORY_ANCHOR_PROJECT_DIR"]) / ".claude/settings.json").read_text())["hooks"]
    assert project["PreToolUse"][0]["hooks"][0]["type"] == "command"


def test_a_server_of_another_name_gets_hooks_of_their_own_process(env: dict[str, str]) -> None:
    """Rule install.acts: what somebody wrote by hand may be called anything, and be any version."""
    program = Path(env["HOME"]) / "bin" / "memory-anchor"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    (Path(env["HOME"]) / ".claude.json").write_text(
        json.dumps({"mcpServers": {"mem": {"command": str(program), "args": ["mcp"]}}})
    )
    install("claude-code", env=env)
    hooks = json.loads((Path(env["HOME"]) / ".claude/settings.json").read_text())["hooks"]
    assert hooks["PreToolUse"][0]["hooks"][0]["type"] == "command"


def test_codex_gets_the_hooks_it_knows(env: dict[str, str]) -> None:
    """Rule install.codex: tools too, no event that it lacks, no time limit that it would cut with a warning."""
    install("codex", env=env)
    hooks = json.loads((Path(env["HOME"]) / ".codex/hooks.json").read_text())["hooks"]
    assert {"PreToolUse", "PostToolUse", "SessionEnd"} <= set(hooks)
    assert "PostToolUseFailure" not in hooks
    assert "apply_patch" in hooks["PreToolUse"][0]["matcher"]
    assert hooks["SessionEnd"][0]["hooks"][0]["timeout"] <= 3


def test_clients_that_show_a_model_only_the_json_are_answered_in_lines_alone(env: dict[str, str]) -> None:
    """Rule answers.lines: what Claude Code and Codex show their model of a search is what costs least."""
    home = Path(env["HOME"])
    install("claude-code", env=env)
    install("codex", env=env)
    install("gemini", env=env)
    claude = next(file for file in (home / ".claude.json", home / ".claude" / ".claude.json") if file.exists())
    entries = [
        json.loads(claude.read_text())["mcpServers"]["memory-anchor"],
        tomllib.loads((home / ".codex" / "config.toml").read_text())["mcp_servers"]["memory_anchor"],
        json.loads((home / ".gemini" / "settings.json").read_text())["mcpServers"]["memory-anchor"],
    ]
    assert [entry.get("env", {}).get("MEMORY_ANCHOR_ANSWERS") for entry in entries] == ["lines", "lines", None]


@pytest.mark.parametrize("client", FILES)
@pytest.mark.parametrize("name", ["XDG_DATA_HOME", "XDG_CONFIG_HOME"])
def test_where_the_terminal_keeps_its_files_no_client_is_told(
    name: str, client: str, env: dict[str, str], tmp_path: Path
) -> None:
    """Rule install.codex: a terminal's folders are its own; Codex passes its own on to the server, as to its hooks."""
    env[name] = str(tmp_path / "elsewhere")
    plan = install(client, env=env)
    texts = [change.after or "" for change in plan.changes]
    assert not any(env[name] in text for text in texts) and plan.note == ""
    if client == "codex":
        server = tomllib.loads(texts[0])["mcp_servers"]["memory_anchor"]
        assert name in server["env_vars"]


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="snaps are of Linux")
def test_a_terminal_of_a_snap_begins_no_memory_in_the_folder_of_its_revision(
    env: dict[str, str], tmp_path: Path
) -> None:
    """Rule install.stays: VS Code's snap sets them, and the folder goes with its revision; a memory there is kept."""
    home, snap = Path(env["HOME"]), Path(env["HOME"]) / "snap" / "code" / "185"
    del env["MEMORY_ANCHOR_DATA_DIR"]
    env |= {"XDG_DATA_HOME": f"{snap}/.local/share", "XDG_CONFIG_HOME": f"{snap}/.config"}

    plan = install("vscode", env=env)

    assert plan.note.startswith("XDG_DATA_HOME and XDG_CONFIG_HOME: folders that go with a snap's revision")
    assert plan.note in plan.text() and plan.as_dict()["note"] == plan.note
    assert [change.file for change in plan.changes] == [home / ".config" / "Code" / "User" / "mcp.json"]
    assert wire.data_dir(env) == str(home / ".local" / "share" / "memory-anchor") and not snap.exists()
    (snap / ".local" / "share" / "memory-anchor").mkdir(parents=True)
    assert wire.data_dir(env) == f"{snap}/.local/share/memory-anchor"


def test_server_and_hooks_are_told_the_same_folder(env: dict[str, str]) -> None:
    """Rule install.codex: Codex gives servers fewer variables than hooks; both must find one memory."""
    name = "MEMORY_ANCHOR_DATA_DIR"
    place = env[name]
    install("codex", env=env)
    folder = Path(env["HOME"]) / ".codex"
    server = tomllib.loads((folder / "config.toml").read_text())["mcp_servers"]["memory_anchor"]
    assert server["env"][name] == place
    hook = json.loads((folder / "hooks.json").read_text())["hooks"]["SessionStart"][0]["hooks"][0]["command"]
    assert f"{name}={place} " in hook
    assert stat.S_IMODE(Path(env["MEMORY_ANCHOR_DATA_DIR"]).stat().st_mode) == 0o700


def test_an_older_entry_of_ours_is_replaced_and_not_doubled(env: dict[str, str]) -> None:
    """Rule install.idempotent: after moving to another interpreter there is one entry, the new one."""
    files = put(env, "codex")
    toml, hooks = files
    install("codex", env=env)
    moved = json.loads(hooks.read_text())
    for groups in moved["hooks"].values():
        for group in groups:
            group["hooks"][0]["command"] = group["hooks"][0]["command"].replace("python", "python-old")
    hooks.write_text(json.dumps(moved))
    toml.write_text(toml.read_text().replace('"mcp"', '"old"'))

    install("codex", env=env)

    assert toml.read_text().count("[mcp_servers.memory_anchor]") == 1
    assert tomllib.loads(toml.read_text())["mcp_servers"]["memory_anchor"]["args"][-1] == "mcp"
    assert len(json.loads(hooks.read_text())["hooks"]["PreCompact"]) == 1
    uninstall("codex", env=env)
    assert "memory" not in hooks.read_text() + toml.read_text()


COMMANDS = {
    "script": ("/opt/my tools/memory-anchor",),
    "script on Windows": (r"C:\Program Files\Python\Scripts\memory-anchor.exe",),
    "module": ("/usr/bin/python3", "-P", "-m", "memory_anchor"),
    "module on Windows": (r"C:\Program Files\Python\python.exe", "-P", "-m", "memory_anchor"),
}


@pytest.mark.parametrize("how", COMMANDS)
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("client", ["claude-code", "codex"])
def test_out_again_whatever_command_started_us(
    client: str, recorded: bool, how: str, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule install.exact: also `python -P -m memory_anchor hook`, quoted as Windows does, and without our record."""
    files = put(env, client)
    monkeypatch.setattr("memory_anchor.front.clients.install.own_command", lambda _: COMMANDS[how])
    if "Windows" in how:
        monkeypatch.setattr("memory_anchor.front.clients.places.sys.platform", "win32")
    install(client, env=env)
    install(client, env=env)
    hooks = next(file for file in files if "hooks" in file.read_text())
    assert len(json.loads(hooks.read_text())["hooks"]["SessionStart"]) == 2
    if not recorded:
        shutil.rmtree(Path(env["MEMORY_ANCHOR_DATA_DIR"]))

    monkeypatch.setattr("memory_anchor.front.clients.install.own_command", lambda _: ("/elsewhere/memory-anchor",))
    uninstall(client, env=env)

    for file, text in files.items():
        load = tomllib.loads if file.suffix == ".toml" else json.loads
        assert file.read_text() == text if recorded else load(file.read_text()) == load(text)


@pytest.mark.skipif(sys.platform == "win32", reason="its stand-in for uv is a shell script")
def test_what_uvx_runs_is_installed_as_a_tool_before_a_client_starts_it(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule install.stays: uv empties its cache some day; a dry run installs nothing, a failure changes nothing."""
    prefix, bins, uv = tmp_path / "cache" / "archive" / "x", tmp_path / "bin", tmp_path / "uv"
    prefix.mkdir(parents=True)
    (tmp_path / "cache" / "CACHEDIR.TAG").touch()
    monkeypatch.setattr("sys.prefix", str(prefix))
    env["UV"] = str(uv)
    (file,) = put(env, "cursor")
    dir_ = f'[ "$2" = dir ] && echo {bins}'

    def uv_does(last: str) -> None:
        uv.write_text(f"#!/bin/sh\n{dir_} && exit 0\n{last}\n", encoding="utf-8")
        uv.chmod(0o755)

    uv_does("echo no network >&2; exit 2")
    plan = install("cursor", dry_run=True, env=env)
    assert str(bins / "memory-anchor") in plan.text() and plan.tool == ""
    with pytest.raises(Refused, match=r"uv tool install .+ failed \(no network\); nothing was changed"):
        install("cursor", env=env)
    assert file.read_text() == FILES["cursor"][".cursor/mcp.json"]

    uv_does(f'echo "$@" > {tmp_path / "asked"}')
    plan = install("cursor", env=env)

    assert (
        plan.tool == json.loads(file.read_text())["mcpServers"]["memory-anchor"]["command"] == f"{bins}/memory-anchor"
    )
    assert (tmp_path / "asked").read_text().startswith("tool install --quiet --compile-bytecode --python 3.")
    (tmp_path / "asked").unlink()
    shown = install("json", env=env | {"ANOTHER": "run"})
    assert (tmp_path / "asked").exists() and shown.tool in shown.snippet and "installed as" in shown.text()


@pytest.mark.parametrize(
    "command", ["echo memory-anchor hooked", "my-hook # about the memory-anchor hook", "x hook Stop"]
)
def test_hooks_of_others_stay(command: str, env: dict[str, str]) -> None:
    """Rule install.careful: what only speaks of us is the user's."""
    (hooks,) = [file for file in put(env, "codex") if file.suffix == ".json"]
    text = json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}})
    hooks.write_text(text)
    install("codex", env=env)
    shutil.rmtree(Path(env["MEMORY_ANCHOR_DATA_DIR"]))
    uninstall("codex", env=env)
    assert json.loads(hooks.read_text()) == json.loads(text)


def test_a_dry_run_shows_the_change_and_touches_nothing(env: dict[str, str], tmp_path: Path) -> None:
    """Rule install.dry: the same plan, no file and no record."""
    files = put(env, "codex")
    plan = install("codex", dry_run=True, env=env)
    assert "+[mcp_servers.memory_anchor]" in plan.text()
    assert plan.as_dict()["dry_run"] is True
    assert all(file.read_text() == text for file, text in files.items())
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("client", "name", "text"),
    [
        ("vscode", ".config/Code/User/mcp.json", '{ // mine\n "servers": {}, "a" 1}'),
        ("cursor", ".cursor/mcp.json", "[]"),
        ("gemini", ".gemini/settings.json", '{"mcpServers": 3}'),
        ("codex", ".codex/config.toml", "a = = 1"),
        ("codex", ".codex/config.toml", 'mcp_servers = { memory_anchor = { command = "x" } }'),
    ],
)
def test_a_file_we_cannot_read_is_named_and_left_alone(client: str, name: str, text: str, env: dict[str, str]) -> None:
    """Rule install.careful: another shape, broken syntax: one sentence, nothing written."""
    file = Path(env["HOME"]) / name
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.raises(MemoryAnchorError, match=file.name.replace(".", r"\.")):
        install(client, env=env)
    assert file.read_text() == text


def test_a_symlinked_configuration_stays_a_symlink(env: dict[str, str], tmp_path: Path) -> None:
    """Rule install.careful: dotfile folders keep the real file elsewhere."""
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    link = Path(env["HOME"]) / ".gemini" / "settings.json"
    link.parent.mkdir(parents=True)
    link.symlink_to(real)
    install("gemini", env=env)
    assert link.is_symlink()
    assert "memory-anchor" in real.read_text()
    uninstall("gemini", env=env)
    assert (link.is_symlink(), real.read_text()) == (True, "{}")


def test_unknown_clients_and_scopes_are_refused(env: dict[str, str]) -> None:
    """Rule install.input: one sentence with what is allowed."""
    with pytest.raises(BadInput, match="claude-code, codex"):
        install("emacs", env=env)
    with pytest.raises(BadInput, match="user, project"):
        install("codex", scope="world", env=env)
    assert json.loads(install("json", env=env).snippet)["mcpServers"]["memory-anchor"]["args"][-1] == "mcp"
    assert issubclass(Refused, MemoryAnchorError)


def test_who_has_the_plugin_gets_no_second_set_of_hooks(env: dict[str, str]) -> None:
    """Rule install.one: the plugin brings the same server and hooks; both at once would tell everything twice."""
    settings = Path(env["HOME"]) / ".claude" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"enabledPlugins": {"memory-anchor@team": true}}')

    with pytest.raises(Refused, match="has the plugin memory-anchor@team"):
        install("claude-code", env=env)
    settings.write_text('{"enabledPlugins": {"memory-anchor@team": false}}')
    assert install("claude-code", env=env).backups


JSONC = """// ours, by hand
{
    "theme": "x", // dark
    "mcpServers": {
        /* the other one */
        "other": {"command": "y"}, // kept
    },
}
"""


def test_comments_and_trailing_commas_stay_where_they_are(env: dict[str, str]) -> None:
    """N11: JSONC was refused; now only our lines are new, and out again every byte is what it was."""
    file = Path(env["HOME"]) / ".gemini" / "settings.json"
    file.parent.mkdir(parents=True)
    file.write_text(JSONC)
    install("gemini", env=env)
    lines = file.read_text().splitlines()
    assert [line for line in JSONC.splitlines() if line not in lines] == []
    assert places.read(file.read_text())["mcpServers"]["memory-anchor"]["args"] == ["mcp"]
    file.write_text(file.read_text().replace("dark", "light"))
    uninstall("gemini", env=env)
    assert file.read_text() == JSONC.replace("dark", "light")


@pytest.mark.parametrize("made", [{}, {"a": 1}, {"a": {"b": [1, {"c": 2}]}, "d": []}, {"hooks": {"E": [{}]}}])
@pytest.mark.parametrize("indent", [None, 2, "\t"])
def test_what_is_put_is_read_and_what_is_dropped_is_gone(made: dict[str, object], indent: int | str | None) -> None:
    """Rule install.jsonc: an edit means what an edit of the value means, and undoes to the text it was."""
    text = json.dumps(made, indent=indent)
    put_in = places.put(text, ("hooks", "New", 0), {"x": 1})
    wanted = json.loads(text)
    wanted.setdefault("hooks", {})["New"] = [{"x": 1}]
    assert places.read(put_in) == wanted
    again = places.drop(put_in, ("hooks", "New")) if "hooks" in made else places.drop(put_in, ("hooks",))
    assert places.read(again) == made
    assert again == text or indent is None


@pytest.mark.parametrize(
    ("client", "name", "text"),
    [
        ("codex", ".codex/config.toml", '[mcp_servers.memory-anchor]\ncommand = "PROGRAM" # mine\nargs = ["mcp"]\n'),
        (
            "codex",
            ".codex/config.toml",
            '[mcp_servers.memory-anchor]\ncommand = "PROGRAM"\nargs = ["mcp", "--answers", "lines"]\n',
        ),
        ("gemini", ".gemini/settings.json", '{"mcpServers": {"mem": {"command": "PROGRAM", "args": ["mcp"]}}}'),
        ("cursor", ".cursor/mcp.json", '{"mcpServers": {"memory-anchor": {"command": "PROGRAM", "args": ["mcp"]}}}'),
    ],
)
def test_a_server_that_was_made_by_hand_is_adopted(client: str, name: str, text: str, env: dict[str, str]) -> None:
    """N11: the README's own Codex entry beside ours made two servers, and was lost at uninstall."""
    program = Path(env["HOME"]) / "bin" / "memory-anchor"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    file = Path(env["HOME"]) / name
    file.parent.mkdir(parents=True)
    file.write_text(text.replace("PROGRAM", str(program)))
    before = file.read_bytes()
    for _ in range(2):
        plan = install(client, env=env)
        assert file.read_bytes() == before and "stays as it is" in plan.text()
    uninstall(client, env=env)
    assert file.read_bytes() == before
    program.unlink()  # it starts nothing any more: ours takes its place
    install(client, env=env)
    assert file.read_bytes() != before
    uninstall(client, env=env)
    assert file.read_bytes() == before


def test_another_server_of_our_name_comes_back_when_we_go(env: dict[str, str]) -> None:
    """N11: also from a file that somebody changed after us."""
    file = Path(env["HOME"]) / ".cursor" / "mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"mcpServers": {"memory-anchor": {"url": "https://example.org/mcp"}}}')
    install("cursor", env=env)
    assert "url" not in file.read_text()
    file.write_text(json.dumps({**json.loads(file.read_text()), "added": 1}))
    uninstall("cursor", env=env)
    left = {"mcpServers": {"memory-anchor": {"url": "https://example.org/mcp"}}, "added": 1}
    assert json.loads(file.read_text()) == left
