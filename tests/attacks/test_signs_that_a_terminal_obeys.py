"""Attack: ESC, C1 and direction signs of a memory reach a human's screen or a model; a backup's odd names."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.admin import backup
from memory_anchor.domain.errors import StoreDamaged
from memory_anchor.extensions.transfer import commands as moving
from memory_anchor.front import views
from memory_anchor.front.cli import link
from memory_anchor.language.fences import neutralise
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor

OBEYED = "\x1b[8m\x9b2K\u202e\u2066\x7f"
TEXT = f"The gate opens{OBEYED} at nine ❤\ufe0f"


def test_what_a_model_reads_holds_no_sign_that_a_terminal_obeys(anchor: MemoryAnchor) -> None:
    """Rule: spelled out in lines and fences; the structured form and the store keep the text as it is."""
    kept = anchor.save_memory(TEXT).id
    told = views.lines(
        {"snippets": [{"id": "1m8", "text": TEXT, "layer": "verified_fact", "origin": "agent"}]},
        now=anchor.services.clock.now(),
    )
    for shown in (told, neutralise(TEXT)):
        assert not set(OBEYED) & set(shown) - set("[8m2K"), ascii(shown)
        assert "\\u001b[8m" in shown and "❤\ufe0f" in shown and neutralise(shown) == shown
    assert anchor.get(str(kept)).content == TEXT
    as_json = views.compact({"text": TEXT})
    assert not set(OBEYED) & set(as_json) - set("[8m2K") and json.loads(as_json) == {"text": TEXT}


def test_an_export_to_a_screen_is_equal_json_without_them_and_into_a_pipe_as_it_is(
    anchor: MemoryAnchor, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule: a pipe or a file gets every byte; a terminal gets the same JSON with escapes."""
    anchor.save_memory(TEXT)
    monkeypatch.setattr(moving, "open_session", lambda: nullcontext(link.call))
    piped = run("export", "-").stdout
    assert "\u202e" in piped and "\x9b" in piped
    shown = io.BytesIO()
    screen = io.TextIOWrapper(shown, encoding="utf-8")
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(moving.sys, "stdout", screen)
    moving.export("-")
    monkeypatch.setattr(moving.sys, "stdout", sys.__stdout__)
    lines = shown.getvalue().decode()
    assert not set(OBEYED) & set(lines) - set("[8m2K")
    assert json.loads(lines.splitlines()[0])["content"] == json.loads(piped.splitlines()[0])["content"] == TEXT


@pytest.mark.parametrize("name", ["files/RESTORING.json", "files/restoring.json", "files/Run/engine.json", "files/A"])
def test_a_backup_with_a_name_that_differs_in_case_only_is_refused(tmp_path: Path, core: Core, name: str) -> None:
    """Attack: where letter case means nothing, such a member takes the place of the machine's own file."""
    made = backup.create(core, tmp_path / "whole.tar.gz")
    with tarfile.open(made["file"], "r:gz") as archive:
        members = [(member, archive.extractfile(member)) for member in archive.getmembers()]
        content = {member.name: source.read() if source else b"" for member, source in members}
    manifest = json.loads(content.pop(backup.MANIFEST))
    extra = {name: b"{}"} | ({"files/a": b"{}"} if name == "files/A" else {})
    for added, raw in extra.items():
        manifest["files"][added] = [backup.hashlib.sha256(raw).hexdigest(), len(raw)]
    crafted = tmp_path / "crafted.tar.gz"
    with tarfile.open(crafted, "w:gz") as archive:
        for member, raw in ((backup.MANIFEST, json.dumps(manifest).encode()), *content.items(), *extra.items()):
            info = tarfile.TarInfo(member)
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    with pytest.raises(StoreDamaged, match="nothing was changed"):
        backup.unpack(crafted, tmp_path / "into")
