"""Attack A29: another key in the place of `approver.json` changes nothing that is served, and every start tells."""

from __future__ import annotations

from pathlib import Path

import pytest
from human_seat import Seat

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.domain.errors import Refused
from memory_anchor.identity.keys import KeyRing
from memory_anchor.store.audit_rows import SqlAudit
from memory_anchor.store.database import IN_MEMORY, Sqlite
from memory_anchor.testing import PASSPHRASE, cheap_keys

OWN = "an agent's own words"


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A data folder whose human has a key, and beside it one that an agent made."""
    with cheap_keys():
        KeyRing(tmp_path / "data" / "identity").create(name="alice", passphrase=PASSPHRASE)
        KeyRing(tmp_path / "agents" / "identity").create(name="bot", passphrase=OWN)
    return tmp_path / "data"


def swap(house: Path) -> Path:
    """Put the agent's key in the place of the human's; return where the human's lies now."""
    kept = house.parent / "kept.json"
    (house / "identity" / "approver.json").rename(kept)
    (house.parent / "agents" / "identity" / "approver.json").rename(house / "identity" / "approver.json")
    return kept


def test_another_key_is_a_stranger_until_the_first_vouches_for_it(house: Path) -> None:
    """Attack A29: not served, not unlocked, named by fingerprint; the first key alone lets it in."""
    with cheap_keys():
        ring = KeyRing(house / "identity")
        first, bots = ring.fingerprint(), KeyRing(house.parent / "agents" / "identity").own()
        assert bots is not None
        kept = swap(house)

        assert ring.own() is None and ring.approvers() == ()
        assert first in ring.warning() and "is not the first one made here" in ring.warning()
        with pytest.raises(Refused, match="not the first one"):
            ring.unlock(OWN)

        other = house / "identity" / "approver.json"
        other.rename(house.parent / "bot.json")
        assert "is gone" in ring.warning()
        with pytest.raises(Refused, match="has a key"):
            ring.create(name="bot", passphrase=OWN)
        kept.rename(other)
        ring.vouch(ring.unlock(PASSPHRASE), name="second", public=bots.public)
        (house.parent / "bot.json").replace(other)
        assert ring.own() == bots and ring.warning() == ""
        with pytest.raises(Refused, match="only the first key"):
            ring.vouch(ring.unlock(OWN), name="third", public=bots.public)


def test_the_chain_remembers_what_a_removed_note_does_not(house: Path) -> None:
    """Attack A29: the first key is in the audit chain too; an imported chain speaks of another installation."""
    from datetime import UTC, datetime

    at = datetime(2026, 1, 1, tzinfo=UTC)
    trail = JsonlAudit(house / "audit" / "audit.jsonl")
    own = KeyRing(house / "identity").own()
    assert own is not None
    trail.append("save", {"n": 1}, by="x", at=at)
    trail.append("constitution.approver", {"key": own.public}, by="alice", at=at)
    (house / "first_key.json").unlink()
    swap(house)

    assert KeyRing(house / "identity", JsonlAudit(trail.path)).own() is None
    assert "not the first one" in KeyRing(house / "identity", trail).warning()

    elsewhere = SqlAudit(Sqlite(IN_MEMORY))
    elsewhere.adopt(list(trail.records()))
    assert elsewhere.first("constitution.approver") is None
    elsewhere.append("constitution.approver", {"key": "native"}, by="x", at=at)
    assert elsewhere.first("constitution.approver") == {"key": "native"}
    assert SqlAudit(elsewhere.database).first("constitution.approver") == {"key": "native"}


def test_with_every_note_removed_the_sealed_texts_still_speak_for_the_first_key(house: Path) -> None:
    """Attack A29: key, note and trail are gone together; no new key is made where another one sealed texts."""
    (house / "identity" / "p" / "approved").mkdir(parents=True)
    (house / "identity" / "p" / "approved" / "000001.json").write_text("{}")
    (house / "identity" / "approver.json").unlink()
    (house / "first_key.json").unlink()
    with cheap_keys(), pytest.raises(Refused, match="not the key that sealed them"):
        KeyRing(house / "identity").create(name="bot", passphrase=OWN)


@pytest.mark.slow
def test_every_start_tells_of_another_key_and_init_makes_none(tmp_path: Path) -> None:
    """Attack A29: the played attack: move the key, `init` again, then the agent's own key in its place."""
    seat = Seat(tmp_path)
    first = seat.init()
    assert "fingerprint" in first
    print_of = KeyRing(seat.data / "identity").fingerprint()
    assert print_of in first
    (seat.data / "identity" / "approver.json").rename(tmp_path / "kept.json")

    code, screen = seat.human("init", "--approver", "bot", answers=[("New passphrase", OWN), ("Once more", OWN)])
    assert code == 4 and "the key of this installation" in screen and "is gone" in screen, screen

    agents = Seat(tmp_path / "agents")
    agents.init(OWN)
    (agents.data / "identity" / "approver.json").rename(seat.data / "identity" / "approver.json")
    for words in (["doctor"], ["doctor", "--audit"], ["constitution", "show"], ["constitution", "list"]):
        done = seat.shell(*words)
        assert "is not the first one made here" in done.stdout + done.stderr, words
    done = seat.shell("hook", "SessionStart", stdin='{"source": "startup"}')
    assert "is not the first one made here" in done.stdout, done
    assert "greenhouse" not in done.stdout
    code, screen = seat.human("add", "x y z", "--human", answers=[("Passphrase", OWN)])
    assert code == 4 and "not the first one" in screen, screen
