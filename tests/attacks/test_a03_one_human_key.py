"""Attack A3: an id that names a folder would give an agent a key ring of its own, and so a human's rights."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from human_seat import Seat

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.requests.checks import project_id
from memory_anchor.front.callers import actor_from
from memory_anchor.identity.identity_schema import IdentitySchema
from memory_anchor.identity.keys import KeyRing
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.wire import Preamble
from memory_anchor.testing import PASSPHRASE, ManualClock, cheap_keys

ODD = ("evil/own", "../own", "..", ".", "/abs", "a\\b", "a|b", "a\nb", "a\x00b", ".hidden", "a" * 65, "a:b", "～/x")


@pytest.mark.parametrize("name", ODD)
def test_no_project_id_leads_out_of_its_folder(name: str, core: Core, tmp_path: Path) -> None:
    """Attack A3: refused in one sentence at the one place every request and every schema passes."""
    with pytest.raises(BadInput, match="allowed are 1 to 64 letters"):
        project_id(name)
    if "|" not in name and name.isprintable():  # what a transport says is made safe before
        with pytest.raises(BadInput):
            core.anchor(actor_from(Preamble(project=name))).search("x")
    with pytest.raises(BadInput):
        IdentitySchema(
            project_dir=None,
            project_id="p",
            home=tmp_path / "identity" / "x" / name.replace("\x00", "\n"),
            clock=ManualClock(),
            audit=JsonlAudit(tmp_path / "audit.jsonl"),
        ) if "/" not in name and name not in ("..", ".", "~") else project_id(name)


@pytest.mark.parametrize("name", ["default", "team-app_2", "v1.2", "我的项目", "my app", "0123456789abc"])
def test_ids_that_stores_hold_stay_valid(name: str) -> None:
    """Attack A3: letters of any script, digits, - and _, with a dot or a blank inside."""
    assert project_id(name) == name


def test_an_agent_gets_no_key_of_its_own_by_naming_a_project(tmp_path: Path) -> None:
    """Attack A3: `init` under another project's id takes the installation's one key or nothing."""
    seat = Seat(tmp_path)
    seat.init()
    mine = [("New passphrase", "agents own words"), ("Once more", "agents own words")]

    code, screen = seat.human("init", "--approver", "bot", answers=mine, MEMORY_ANCHOR_SCOPE__PROJECT="evil/own")
    assert (code, "allowed are 1 to 64 letters" in screen) == (2, True), screen
    code, screen = seat.human(
        "init",
        "--approver",
        "bot",
        answers=[("Old passphrase", "agents own words")],
        MEMORY_ANCHOR_SCOPE__PROJECT="evil",
    )
    assert (code, "is not the approver's" in screen) == (4, True), screen

    assert [path.name for path in seat.data.rglob("approver.json")] == ["approver.json"]
    assert not (seat.data / "identity" / "evil").exists()


# --- the layout of before: a slash in scope.project made `identity/<first part>/` a key ring


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A data folder of the old layout: two key rings below `identity`, none in it, and no note of a first key."""
    with cheap_keys():
        for name, at in (("team", 1_000), ("late", 2_000)):
            ring = KeyRing(tmp_path / name / "identity")
            ring.create(name=name, passphrase=f"{name} passphrase of old")
            (tmp_path / "data" / "identity" / name).mkdir(parents=True)
            moved = tmp_path / "data" / "identity" / name / "approver.json"
            (tmp_path / name / "identity" / "approver.json").rename(moved)
            held = json.loads(moved.read_text())
            moved.write_text(json.dumps(held))
            os.utime(moved, (at, at))
    return tmp_path / "data"


def test_the_oldest_key_of_the_old_layout_becomes_the_installations(old: Path) -> None:
    """Attack A3: migrated at the first right passphrase, remembered from then on; the other keys count no more."""
    with cheap_keys():
        ring = KeyRing(old / "identity")
        own = ring.own()
        assert own is not None and own.name == "team"

        ring.unlock("team passphrase of old")

    assert KeyRing(old / "identity").own() == own
    assert (old / "identity" / "approver.json").exists()
    (old / "identity" / "approver.json").rename(old / "kept.json")
    (old / "identity" / "team" / "approver.json").unlink()
    assert KeyRing(old / "identity").own() is None, "the younger key does not step into the first one's place"
    (old / "kept.json").rename(old / "identity" / "approver.json")
    assert KeyRing(old / "identity").own() == own


def test_a_key_that_lies_where_keys_always_lay_goes_on_counting(tmp_path: Path) -> None:
    """Attack A3: an installation made before there were notes is taken as it stands at its first human act."""
    with cheap_keys():
        ring = KeyRing(tmp_path / "identity")
        ring.create(name="alice", passphrase=PASSPHRASE)
        (tmp_path / "first_key.json").unlink()

        signer = KeyRing(tmp_path / "identity").unlock(PASSPHRASE)

    assert KeyRing(tmp_path / "identity").own() == signer.approver
    assert json.loads((tmp_path / "first_key.json").read_text())["public"] == signer.approver.public
