"""A lorebook with a real engine: commands share it, contexts hold it, and it outlives a killed engine."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from homes import EngineHome

pytestmark = pytest.mark.slow

LORE = {
    "entries": {
        "0": {"uid": 0, "key": ["部署", "deploy"], "content": "Deploys go out on Tuesdays."},
        "1": {"uid": 1, "key": ["/(a+)+b/", "quay"], "content": "The quay is closed."},
    }
}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[EngineHome]:
    made = EngineHome(tmp_path, MEMORY_ANCHOR_CONVERSATION="talk-1")
    yield made
    made.close()


def test_a_book_goes_through_the_engine_and_outlives_a_kill(home: EngineHome) -> None:
    """Rule lore.engine: add, scan, context, kill -9, context again."""
    book, prompt = home.folder / "世界.json", home.folder / "prompt.json"
    book.write_text(json.dumps(LORE, ensure_ascii=False), encoding="utf-8")
    said = [{"role": "user", "content": "怎么部署？"}]
    prompt.write_text(json.dumps({"messages": said, "context_window_tokens": 8_000}), encoding="utf-8")
    home.run("stats")
    pid = home.serve()

    assert home.json("lorebook", "add", str(book))["entries"] == 2
    scanned = home.json("lorebook", "scan", "世界", "--messages", "-", stdin=json.dumps(said))
    assert [snippet["text"] for snippet in scanned["snippets"]] == ["Deploys go out on Tuesdays."]
    assert "Tuesdays" in home.json("context", "build", str(prompt))["text"]

    os.kill(pid, signal.SIGKILL)
    home.serve()
    built = home.json("context", "build", str(prompt))

    (decision,) = [one for one in built["report"]["decisions"] if one["action"] == "scan_lorebooks"]
    assert [(verdict["id"], verdict["why"]) for verdict in decision["admitted"]] == [("世界/0", "key")]
    assert home.json("lorebook", "remove", "世界")["clean"] is True
