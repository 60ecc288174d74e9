"""N8: `init` signed a placeholder as the project's goal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from human_seat import Seat

from memory_anchor.domain.errors import BadInput
from memory_anchor.identity.constitution_text import PLACEHOLDER
from memory_anchor.testing import PASSPHRASE, ManualClock, cheap_keys

NEW = [("New passphrase", PASSPHRASE), ("Once more", PASSPHRASE)]
OLD_STARTER = f'version: "1"\nentries:\n  - id: goal\n    content: "Project goal: {PLACEHOLDER}"\n    priority: 0\n'


def served(seat: Seat) -> list[str]:
    return [entry["content"] for entry in json.loads(seat.shell("constitution", "show", "--json").stdout)["entries"]]


def test_a_placeholder_is_never_approved(tmp_path: Path) -> None:
    """N8: whoever calls."""
    from desk import Desk

    with cheap_keys():
        desk = Desk(tmp_path, "first", ManualClock(), init=False)
        desk.file.write_text(OLD_STARTER)
        with pytest.raises(BadInput, match="init --goal"):
            desk.schema().init(passphrase=PASSPHRASE, approver="alice", old_passphrase=None)
        desk.schema().init(passphrase=PASSPHRASE, approver="alice", old_passphrase=None, without_text=True)
        assert not desk.schema().initialised and desk.served() == []
        assert desk.schema().approver() is not None


@pytest.mark.slow
def test_init_asks_for_the_goal_and_approves_what_is_typed(tmp_path: Path) -> None:
    """N8: in the terminal; what is signed is shown before the passphrase."""
    seat = Seat(tmp_path, goal="")
    asked = [("What is this project for", 'Keep the "greenhouse" warm: 温室', True), *NEW]
    code, screen = seat.human("init", "--approver", "alice", answers=asked)
    assert code == 0, screen
    assert screen.index("│") < screen.index("New passphrase")
    assert served(seat) == ['Keep the "greenhouse" warm: 温室']


@pytest.mark.slow
def test_without_a_goal_l0_waits_and_a_flag_gives_it_later(tmp_path: Path) -> None:
    """N8: the key is made, the text is not; an old placeholder is filled in, and kept otherwise."""
    seat = Seat(tmp_path, goal="# ours\n" + OLD_STARTER)
    code, screen = seat.human("init", "--approver", "a", answers=[("What is this project for", "", True), *NEW])
    assert code == 0 and "no text was approved" in screen, screen
    assert served(seat) == []

    code, screen = seat.human("init", "--goal", "Keep it warm", answers=[("Passphrase", PASSPHRASE)])
    assert code == 0, screen
    assert served(seat) == ["Keep it warm"]
    assert (seat.project / "constitution.yaml").read_text().startswith("# ours\n")
    done = seat.human("init", "--goal", "Another", answers=[])
    assert done[0] == 2 and "constitution propose" in done[1], done
