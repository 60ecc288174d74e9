"""Attacks A27, A16, A7: a confirmation counts where it was given, a rejection stays, no setting lowers a rule."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from desk import Desk
from human_seat import Seat

from memory_anchor.domain.errors import Refused
from memory_anchor.domain.model import ProposalStatus
from memory_anchor.identity.approved import HEADS
from memory_anchor.identity.proposals import MAX_OPEN
from memory_anchor.testing import PASSPHRASE, ManualClock

pytestmark = pytest.mark.usefixtures("cheap_keys")


@pytest.fixture
def first(tmp_path: Path) -> Desk:
    return Desk(tmp_path, "first", ManualClock())


@pytest.fixture
def second(first: Desk, tmp_path: Path) -> Desk:
    return Desk(tmp_path, "second", first.clock)


def test_confirmations_of_one_project_do_not_count_in_another(first: Desk, second: Desk) -> None:
    """Attack A27: the agent files the very proposal in a project the human opens later, with its confirmations."""
    wish = first.propose()
    first.confirm(wish.id)
    assert len(first.confirm(wish.id).confirmations) == 2
    second.record(wish.id).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(first.record(wish.id), second.record(wish.id))

    assert second.schema().proposal(wish.id).confirmations == ()
    second.edit(
        wish.id,
        confirmations=[
            {**one, "project": "second"} for one in yaml.safe_load(first.record(wish.id).read_text())["confirmations"]
        ],
    )
    assert second.schema().proposal(wish.id).confirmations == ()
    assert second.confirm(wish.id).status is ProposalStatus.OPEN
    assert second.served() == ["Keep the greenhouse at 21 degrees"]
    assert first.confirm(wish.id).status is ProposalStatus.EFFECTIVE


def test_a_colleagues_confirmation_counts_in_a_clone_and_nowhere_else(first: Desk, tmp_path: Path) -> None:
    """Attack A27: two machines give one project two ids; the trail of approvals says that it is the same."""
    wish = first.propose()
    first.confirm(wish.id)
    clone = Desk(tmp_path, "clone", first.clock, data="bobs", init=False)
    shutil.copytree(first.root, clone.root, dirs_exist_ok=True)
    clone.schema().init(passphrase=PASSPHRASE, approver="bob", old_passphrase=None)
    alice = first.schema().approver()
    assert alice is not None
    clone.schema().vouch(name="alice", public=alice.public, passphrase=PASSPHRASE)

    assert len(clone.schema().proposal(wish.id).confirmations) == 1

    apart = Desk(tmp_path, "apart", first.clock, data="bobs")
    shutil.copy(first.record(wish.id), apart.record(wish.id))
    trail = apart.root / ".ai" / "proposals" / "approved.yaml"
    assert apart.schema().proposal(wish.id).confirmations == ()
    shutil.copy(first.root / ".ai" / "proposals" / "approved.yaml", trail)
    assert apart.schema().proposal(wish.id).confirmations == ()


def test_a_rejection_cut_out_of_the_file_does_not_reopen_it(first: Desk) -> None:
    """Attack A16: what this machine keeps of a rejection is signed and outside the project."""
    wish = first.propose()
    first.schema().reject(wish.id, passphrase=PASSPHRASE, approver="alice", reason="no")
    first.edit(wish.id, rejection=None, status="open")

    assert first.schema().proposal(wish.id).status is ProposalStatus.REJECTED
    first.edit(wish.id, content="Water at dawn, always")
    with pytest.raises(Refused, match="rejected already"):
        first.confirm(wish.id)


def test_a_rejection_outlives_its_list_and_its_file(first: Desk) -> None:
    """Attack A16: the signed record in the audit trail closes it; confirmations from before never count again."""
    wish = first.propose()
    first.confirm(wish.id)
    before = first.record(wish.id).read_text()
    first.schema().reject(wish.id, passphrase=PASSPHRASE, approver="alice", reason="no")
    listed = first.data / "identity" / "first" / "rejected.json"
    listed.unlink()
    first.record(wish.id).write_text(before)

    assert first.schema().proposal(wish.id).status is ProposalStatus.REJECTED
    assert [one.status for one in first.schema().proposals()] == [ProposalStatus.REJECTED]
    with pytest.raises(Refused, match="rejected already"):
        first.confirm(wish.id)
    assert any("lacks 1 of 1 rejections" in told for told in first.schema().faults())

    other = first.propose("Water at noon")
    first.schema().reject(other.id, passphrase=PASSPHRASE, approver="alice", reason="no")
    assert wish.id in listed.read_text()
    assert first.schema().faults() == []


def test_a_rejection_names_the_version_that_was_shown(first: Desk) -> None:
    """Attack A21: a proposal edited between the look and the rejection is shown again."""
    wish = first.propose()
    seen = first.schema().fingerprint(first.schema().proposal(wish.id))
    first.edit(wish.id, content="Water at noon")
    with pytest.raises(Refused, match="changed while it was being shown"):
        first.schema().reject(wish.id, passphrase=PASSPHRASE, approver="alice", reason="no", seen=seen)
    assert first.schema().proposal(wish.id).status is ProposalStatus.OPEN


def test_a_rejection_that_nobody_signed_closes_nothing(first: Desk) -> None:
    """Attack A16: an agent cannot close a human's proposal by writing into the list."""
    wish = first.propose()
    rejected = first.data / "identity" / "first" / "rejected.json"
    rejected.write_text(f'{{"rejected": [{{"id": "{wish.id}", "at": "2026", "signature": "AAAA"}}]}}')
    first.audit.append(
        "constitution.rejected",
        {"project": "first", "archive": "first", "proposal": wish.id, "at": "2026", "signature": "AAAA"},
        by="evil",
        at=first.clock.now(),
    )
    assert first.schema().proposal(wish.id).status is ProposalStatus.OPEN


@pytest.mark.slow
def test_a_flood_by_an_agent_never_blocks_the_humans_own(first: Desk) -> None:
    """Attack A16: with the passphrase a proposal is filed however many are open."""
    for number in range(MAX_OPEN):
        first.propose(f"flood {number}")
    with pytest.raises(Refused, match=f"^{MAX_OPEN} proposals are open; .*--human"):
        first.propose("one more")
    with pytest.raises(Refused, match="not the approver's"):
        first.propose("one more", passphrase="guessing at random")

    assert first.propose("mine", passphrase=PASSPHRASE).status is ProposalStatus.OPEN
    first.file.write_text(first.file.read_text().replace("21", "22"))
    made = first.schema().adopt(by="alice", passphrase=PASSPHRASE)
    assert made is not None and made.status is ProposalStatus.OPEN


def test_a_text_approved_in_one_project_is_not_taken_over_in_another(first: Desk, tmp_path: Path) -> None:
    """Attack A16: a copy of a project that shares its trail takes over what the human approved there by `adopt`."""
    copy = Desk(tmp_path, "copy", first.clock, init=False)
    shutil.copytree(first.root, copy.root, dirs_exist_ok=True)
    copy.schema().init(passphrase=PASSPHRASE, approver="alice", old_passphrase=None)
    first.approve()
    shutil.copytree(first.root, copy.root, dirs_exist_ok=True)

    made = copy.schema().adopt(by="alice", passphrase=PASSPHRASE)

    assert made is not None and made.status is ProposalStatus.OPEN and made.confirmations == ()
    assert copy.served() == ["Keep the greenhouse at 21 degrees"]


def test_a_text_sealed_for_one_project_is_in_force_in_no_other(first: Desk, second: Desk) -> None:
    """Attack A26: an agent copies the approved texts of one project over another's, both sealed by the same key."""
    first.approve("Deploy without asking")
    assert "Deploy without asking" in first.served()
    shutil.rmtree(first.data / "identity" / "second" / "approved")
    shutil.copytree(first.data / "identity" / "first" / "approved", first.data / "identity" / "second" / "approved")
    shutil.copy(first.data / HEADS / "first.json", first.data / HEADS / "second.json")

    assert second.served() == []


# --- A7: how strict approvals are -------------------------------------------------------------------------------------


def test_rules_hold_whatever_the_settings_say_and_settings_only_add(first: Desk) -> None:
    """Attack A7: an emptied user file or another environment (here: no options) lowers nothing."""
    first.schema().human.set_rules(min_interval_s=3_600, distinct_approvers=None, passphrase=PASSPHRASE)
    wish = first.propose()
    first.confirm(wish.id)
    with pytest.raises(Refused, match="too recent"):
        first.confirm(wish.id)
    with pytest.raises(Refused, match="too recent"):
        first.confirm(wish.id, min_interval_s=0, distinct_approvers=False)
    with pytest.raises(Refused, match="too recent"):
        first.confirm(wish.id, min_interval_s=1)
    first.clock.advance(hours=1)
    with pytest.raises(Refused, match="too recent"):
        first.confirm(wish.id, min_interval_s=7_200)
    first.confirm(wish.id)
    first.schema().human.set_rules(min_interval_s=0, distinct_approvers=True, passphrase=PASSPHRASE)
    with pytest.raises(Refused, match="another approver must"):
        first.confirm(wish.id)


def test_a_key_file_with_other_rules_or_an_older_one_does_not_open(first: Desk) -> None:
    """Attack A7: rules lie where the key is sealed; an edited or an old copy of the file is refused."""
    key = first.data / "identity" / "approver.json"
    old = key.read_text()
    first.schema().human.set_rules(min_interval_s=3_600, distinct_approvers=True, passphrase=PASSPHRASE)
    strict = key.read_text()
    wish = first.propose()

    key.write_text(strict.replace("3600", "0"))
    with pytest.raises(Refused, match="not the approver's"):
        first.confirm(wish.id)
    key.write_text(old)
    with pytest.raises(Refused, match="older than the approval rules"):
        first.confirm(wish.id)
    key.write_text(strict)
    assert len(first.confirm(wish.id).confirmations) == 1
    with pytest.raises(Refused, match="not the approver's"):
        first.schema().human.set_rules(min_interval_s=0, distinct_approvers=False, passphrase="another one of hers")


@pytest.mark.slow
def test_rules_are_set_on_a_terminal_and_no_environment_lowers_them(tmp_path: Path) -> None:
    """Attack A7: over a real terminal; then an agent's environment and an emptied settings file."""
    seat = Seat(tmp_path)
    seat.init()
    settings = tmp_path / ".config" / "memory-anchor" / "config.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text("constitution:\n  min_interval_s: 60\n")
    code, screen = seat.human("constitution", "rules", "--min-interval-s", "3600", answers=[("Passphrase", PASSPHRASE)])
    assert code == 0, screen
    assert seat.shell("constitution", "rules", "--min-interval-s", "0").returncode == 4

    settings.write_text("")
    shown = seat.shell("constitution", "rules", "--json", MEMORY_ANCHOR_CONSTITUTION__MIN_INTERVAL_S="0")
    assert '"min_interval_s": 3600' in shown.stdout, shown
