"""What scripts/compare says of a tool that keeps its promises, of one that does not, and of one that says no."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any, cast

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
SERVER = """
import json, sys
path, keeps = sys.argv[1] + "/kept.txt", int(sys.argv[2])
for number, line in enumerate(sys.stdin):
    asked = json.loads(line)
    if asked["method"] == "tools/call" and keeps and number % keeps == 0:
        open(path, "a").write(asked["params"]["arguments"]["text"] + "\\n")
    if "id" in asked:
        text = {"content": [{"type": "text", "text": "saved" if keeps else "full"}], "isError": not keeps}
        print(json.dumps({"id": asked["id"], "result": text}), flush=True)
"""


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    loader = SourceFileLoader("compare", str(SCRIPTS / "compare"))
    module = module_from_spec(cast(ModuleSpec, spec_from_loader("compare", loader)))
    loader.exec_module(module)
    return module


def tool(compare: Any, keeps: int) -> Any:
    """Return a tool whose server keeps every text (1), every second one (2), or refuses all (0)."""

    class Tool(compare.Peer):  # type: ignore[misc]
        name = "tool"

        def command(self) -> list[str]:
            return [sys.executable, "-c", SERVER]

        def arguments(self, data: Path, lent: str) -> list[str]:
            return [str(data), str(keeps)]

        def save(self, text: str, name: str, session: str) -> dict[str, Any]:
            return {"name": "save", "arguments": {"text": text}}

        def stored(self, door: Any, data: Path) -> str:
            kept = data / "kept.txt"
            return kept.read_text("utf-8") if kept.exists() else ""

    return Tool


@pytest.mark.parametrize(("keeps", "acknowledged", "lost"), [(1, 40, 0), (2, 40, 20), (0, 0, 0)])
def test_the_comparison_counts_acknowledged_writes_that_are_gone(
    compare: Any, tmp_path: Path, keeps: int, acknowledged: int, lost: int
) -> None:
    """Claims: a loss in docs/comparison.md is a write that was acknowledged and that a new server no longer has."""
    found = compare.at_once(tool(compare, keeps)(tmp_path), tmp_path, None)

    assert found == {"at_once": [40, acknowledged, lost]}
    assert list((tmp_path / "data").iterdir()) == []


def test_an_answer_ranks_the_memories_that_it_quotes_in_its_order(compare: Any, tmp_path: Path) -> None:
    """Claims: recall in docs/comparison.md is read from what the tool answers, as text or as JSON."""
    texts = {"a": compare.squashed("the port is 6543"), "b": compare.squashed("端口是 6543"), "c": "never"}
    peer = tool(compare, 1)(tmp_path)

    assert compare.ranked(peer, "1. 端口是 6543\n2. the port\nis 6543", texts) == ["b", "a"]
    assert compare.ranked(peer, '{"found": ["the port is 6543", "\\u7aef\\u53e3\\u662f 6543"]}', texts) == ["a", "b"]


class Lent:
    url, mark = "http://lent", ""

    def role(self, name: str) -> None:
        """Take whatever is embedded next."""


@pytest.mark.parametrize("embeds", [False, True])
def test_a_tool_without_an_answer_offline_has_its_words_kept_and_its_seconds_with_the_lent_embedder(
    compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embeds: bool
) -> None:
    """Claims: docs/comparison.md says what a tool says offline, and how soon it answers where an embedder is there."""
    monkeypatch.setattr(compare, "NO_NETWORK", [])

    class Needy(tool(compare, 1)):  # type: ignore[misc]
        def arguments(self, data: Path, lent: str) -> list[str]:
            return [str(data), "1" if lent else "0"]

        def ask(self, question: str, limit: int | None) -> dict[str, Any]:
            return self.save(question, "", "")

    peer = Needy(tmp_path)
    peer.embeds = embeds

    found = compare.start(peer, tmp_path, Lent(), Namespace(runs=1))

    assert found["failed"] == "full"
    assert ("first_answer_s" in found) is embeds


def test_each_part_of_the_results_says_what_it_was_measured_of_when_where_and_beside_what(
    compare: Any, tmp_path: Path
) -> None:
    """Claims: version, day, machine and load stand in docs/comparison.json, and one part leaves another as it was."""
    peer, results = tool(compare, 1)(tmp_path), tmp_path / "results.json"
    for version, part in (("1.0", "start"), ("1.1", "cost")):
        peer.version = version
        compare.keep(peer, part, {"save_ms": 2.5}, 0.31, results)

    kept = json.loads(results.read_text("utf-8"))["tool"]

    assert [(part, about["version"], about["load"]) for part, about in kept.items()] == [
        ("start", "1.0", 0.3),
        ("cost", "1.1", 0.3),
    ]
    assert all(about["at"] and about["machine"] and about["save_ms"] == 2.5 for about in kept.values())
