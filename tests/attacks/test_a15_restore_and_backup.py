"""Attack A15: a key file moved away opened `backup restore --force`, and a backup could be written over any file."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_anchor.domain.errors import Refused
from memory_anchor.front import calls
from memory_anchor.front.cli import keep
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.wire import Preamble
from memory_anchor.testing import PASSPHRASE, ephemeral_core, human_of

CALLER = Preamble(client="cli")


pytestmark = pytest.mark.usefixtures("cheap_keys")


def backed_up(core: Core, folder: Path) -> Path:
    return Path(calls.run(core, CALLER, "backup_create", {"file": str(folder)})["file"])


def typing(monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    """Play the keyboard; the list is what was not asked for yet."""
    left = list(words)
    monkeypatch.setattr(keep, "ask_hidden", lambda _: left.pop(0))
    return left


def test_a_restore_after_the_key_was_moved_needs_the_key_of_the_backup(
    core: Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack A15: the installation's own key in the backup opens the way, with its passphrase."""
    human_of(core.data_dir)
    file = backed_up(core, tmp_path)
    (core.data_dir / "identity" / "approver.json").unlink()

    typing(monkeypatch, "guessing at random")
    with pytest.raises(Refused, match="not the approver's"):
        keep._require_passphrase(core.data_dir, file)
    left = typing(monkeypatch, PASSPHRASE)
    keep._require_passphrase(core.data_dir, file)
    assert left == []


def test_an_agents_own_backup_with_its_own_key_is_refused(
    core: Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack A15: the agent makes an installation of its own, backs it up, and restores that over the human's."""
    human_of(core.data_dir)
    agents = ephemeral_core(tmp_path / "agents")
    human_of(agents.data_dir)
    file = backed_up(agents, tmp_path)
    agents.close()
    left = typing(monkeypatch, PASSPHRASE)
    for moved in ("approver.json", None):
        if moved:
            (core.data_dir / "identity" / moved).unlink()
        else:
            key = tmp_path / "agents" / "identity" / "approver.json"
            key.rename(core.data_dir / "identity" / "approver.json")
        with pytest.raises(Refused, match="nothing was restored"):
            keep._require_passphrase(core.data_dir, file)
    assert left == [PASSPHRASE], "it is not even asked for"


def test_a_restore_with_the_key_in_place_asks_for_it(
    core: Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack A15: whatever the backup holds."""
    human_of(core.data_dir)
    file = backed_up(core, tmp_path)
    typing(monkeypatch, "guessing at random")
    with pytest.raises(Refused, match="not the approver's"):
        keep._require_passphrase(core.data_dir, file)


@pytest.mark.parametrize("kind", ["file", "link", "dangling link"])
def test_a_backup_is_never_written_over_what_is_there(core: Core, tmp_path: Path, kind: str) -> None:
    """Attack A15: by a direct call of the engine, on any path of the user."""
    target, victim = tmp_path / "target", tmp_path / "victim"
    victim.write_text("the user's")
    if kind == "file":
        target = victim
    else:
        target.symlink_to(victim if kind == "link" else tmp_path / "not there")

    with pytest.raises(Refused, match="is there already"):
        calls.run(core, CALLER, "backup_create", {"file": str(target)})

    assert victim.read_text() == "the user's"
    assert not (tmp_path / "not there").exists()
    first, second = backed_up(core, tmp_path), backed_up(core, tmp_path)
    assert first != second and first.exists() and second.exists()
