"""Attack A14: short passphrases, cheap guesses, and guesses that nobody hears of."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from desk import Desk
from human_seat import Seat

from memory_anchor.domain.errors import BadInput, Refused
from memory_anchor.identity import keys
from memory_anchor.identity.keys import FREE_TRIES, WAIT_MAX_S, KeyRing, RefusedTries, checked_passphrase
from memory_anchor.testing import PASSPHRASE, ManualClock, cheap_keys, human_of

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "weak", ["", "1111", "1111111111111111", "password", "12345678", "abababababab", "aB3$xY", "口令"]
)
def test_a_passphrase_that_is_soon_guessed_is_refused(weak: str) -> None:
    """Attack A14: length times the classes used, with what repeats counted little; the sentence quotes none of it."""
    with pytest.raises(BadInput, match="allowed are") as refused:
        checked_passphrase(weak)
    assert not weak or weak not in str(refused.value)


@pytest.mark.parametrize("good", [PASSPHRASE, "kqzvwrtpmxne", "aB3$xY7!", "温室每天早上浇水", "four plain small words"])
def test_twelve_letters_or_fewer_of_more_kinds_are_taken(good: str) -> None:
    """Attack A14: no list of words, no rule of digits and signs."""
    assert checked_passphrase(good) == good


def test_a_guess_costs_64_mib_and_no_setting_makes_it_cheaper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Attack A14: scrypt's cost is a constant of the code; the environment does not reach it."""
    assert 128 * keys.SCRYPT_BLOCK * keys.SCRYPT_COST >= 64 << 20
    assert keys.SCRYPT_PARALLEL >= 3
    for name in ("SCRYPT_COST", "APPROVAL__SCRYPT_COST", "CONSTITUTION__SCRYPT_COST"):
        monkeypatch.setenv(f"MEMORY_ANCHOR_{name}", "16")
    KeyRing(tmp_path / "identity").create(name="a", passphrase=PASSPHRASE)
    assert json.loads((tmp_path / "identity" / "approver.json").read_text())["cost"] == 2**16


def test_a_key_of_old_opens_and_is_sealed_anew_at_the_next_success(tmp_path: Path) -> None:
    """Attack A14: a key sealed at the cost of before, without rules in its file, under a passphrase of four."""
    human_of(tmp_path)
    path = tmp_path / "identity" / "approver.json"
    held = json.loads(path.read_text())
    del held["rules"]
    path.write_text(json.dumps(held))
    public = held["public"]

    KeyRing(tmp_path / "identity").unlock(PASSPHRASE)

    assert json.loads(path.read_text())["cost"] == keys.SCRYPT_COST
    assert json.loads(path.read_text())["public"] == public
    assert KeyRing(tmp_path / "identity").unlock(PASSPHRASE).approver.public == public


def test_refused_tries_are_counted_slowed_and_told(tmp_path: Path) -> None:
    """Attack A14: on disk, so over processes; the wait grows, has a bound, and ends by itself."""
    tries = RefusedTries(tmp_path)
    assert (tries.wait_s(AT), tries.take()) == (0.0, "")
    waits = []
    for number in range(12):
        RefusedTries(tmp_path).note(AT + timedelta(minutes=number))
        waits.append(RefusedTries(tmp_path).wait_s(AT + timedelta(minutes=number)))
    assert waits[: FREE_TRIES - 1] == [0.0] * (FREE_TRIES - 1)
    assert waits == sorted(waits) and waits[-1] == WAIT_MAX_S
    assert tries.wait_s(AT + timedelta(minutes=12)) == 0.0
    assert tries.wait_s(AT - timedelta(days=400)) <= WAIT_MAX_S, "a clock set back locks nobody out"
    assert tries.take() == (
        "12 refused tries at your passphrase since 2026-01-01 00:00:00 UTC, the last at 2026-01-01 00:11:00 UTC"
    )
    assert tries.take() == ""
    (tmp_path / "refused_tries.json").write_text('{"count": -1, "since": 3}')
    assert (tries.wait_s(AT), tries.take()) == (0.0, "")


def test_who_gets_in_hears_of_refused_approvals(tmp_path: Path) -> None:
    """Attack A14: the constitution's commands count too."""
    with cheap_keys():
        desk = Desk(tmp_path, "first", ManualClock())
        wish = desk.propose()
        for _ in range(2):
            with pytest.raises(Refused):
                desk.schema().confirm(wish.id, passphrase="guessing at random", approver="alice")
        schema = desk.schema()
        schema.confirm(wish.id, passphrase=PASSPHRASE, approver="alice")
        assert schema.human.refused_tries_note().startswith("2 refused tries")
        assert schema.human.refused_tries_note() == ""


@pytest.mark.slow
def test_a_guess_on_the_terminal_is_told_at_the_next_success(tmp_path: Path) -> None:
    """Attack A14: over a real terminal, in two kinds of commands."""
    seat = Seat(tmp_path)
    seat.init()
    for _ in range(2):
        assert seat.human("constitution", "adopt", answers=[("Passphrase", "guessing at random")])[0] == 4
    code, screen = seat.human("add", "The pump hums", "--human", answers=[("Passphrase", "guessing again")])
    assert code == 4, screen
    code, screen = seat.human("add", "The pump hums", "--human", answers=[("Passphrase", PASSPHRASE)])
    assert code == 0 and "3 refused tries at your passphrase since" in screen, screen
    code, screen = seat.human("constitution", "adopt", answers=[("Passphrase", PASSPHRASE)])
    assert code == 0 and "refused tries" not in screen, screen
