"""Attack A5: `run/engine.json` names the socket, so whoever writes it stands between the human and the memory."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from false_engine import FalseEngine
from human_seat import Engine, Seat

from memory_anchor.domain.errors import Refused
from memory_anchor.front import calls
from memory_anchor.identity.keys import KeyRing
from memory_anchor.identity.signed_requests import CHALLENGE_CALL, GOOD_FOR, sign_request
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.wire import Preamble
from memory_anchor.testing import PASSPHRASE, ManualClock, human_of

CALLER = Preamble(client="cli", project_dir="", zone="UTC")
TEXT = "The boiler is checked on Mondays"


def added(_name: str, _given: dict[str, Any]) -> dict[str, Any]:
    return {"outcome": "added", "id": "x", "layer": "verified_fact", "status": "active"}


@pytest.mark.parametrize("kind", ["unix", pytest.param("tcp", marks=pytest.mark.slow)])
def test_a_false_engine_hears_no_passphrase_no_key_and_nothing_it_could_use(tmp_path: Path, kind: str) -> None:
    """Attack A5: on a real terminal, against a socket that records everything."""
    seat = Seat(tmp_path)
    human_of(seat.data)
    with FalseEngine(seat.data, added, kind=kind) as engine:
        code, screen = seat.human("add", TEXT, "--human", answers=[("Passphrase", PASSPHRASE)])
    assert code == 0, screen
    heard = b"".join(engine.heard)
    assert TEXT.encode() in heard, "it did stand there"
    assert PASSPHRASE.encode() not in heard and PASSPHRASE.encode("utf-16-le") not in heard
    key = json.loads((seat.data / "identity" / "approver.json").read_text())
    assert key["sealed"].encode() not in heard

    sent = next(json.loads(line) for line in engine.heard if b"signature" in line)
    (seat.data / "run" / "engine.json").unlink()
    with pytest.raises(Refused, match="another engine's"):
        replayed(seat.data, sent)


def replayed(data: Path, sent: dict[str, Any]) -> None:
    from memory_anchor.testing import ephemeral_core

    core = ephemeral_core(data)
    try:
        calls.run(core, Preamble.from_json(sent["preamble"]), sent["name"], sent["arguments"])
    finally:
        core.close()


# --- what a relay between the terminal and the real engine can do ---------------------------------------------------


def ask(core: Core, caller: Preamble = CALLER, **given: Any) -> dict[str, Any]:
    """Return the arguments of a signed `add`, as a human's terminal sends them."""
    told = calls.run(core, caller, CHALLENGE_CALL, {})["challenge"]
    return {**given, "human": sign_request(human_of(core.data_dir), "add", given, caller._asdict(), told)}


def test_a_signed_request_does_what_was_asked_once(core: Core) -> None:
    """Attack A5: good once; the second time it is refused, and nothing is written."""
    request = ask(core, content=TEXT)
    answer = calls.run(core, CALLER, "add", request)
    shown = calls.run(core, CALLER, "show", {"id": answer["id"]})["memory"]
    assert shown["origin"] == "human"
    with pytest.raises(Refused, match="used before"):
        calls.run(core, CALLER, "add", request)


@pytest.mark.parametrize(
    "change",
    [
        lambda _, caller, given: ("log", caller, given),
        lambda name, caller, given: (name, caller, {**given, "content": "The boiler is never checked"}),
        lambda name, caller, given: (name, caller, {**given, "visibility": "account"}),
        lambda name, caller, given: (name, caller._replace(project="elsewhere"), given),
        lambda name, caller, given: (name, caller._replace(account="another"), given),
        lambda name, caller, given: (name, caller._replace(user="somebody"), given),
        lambda name, caller, given: (name, caller._replace(conversation="another"), given),
        lambda name, caller, given: (name, caller, {**given, "human": {**given["human"], "signature": "AAAA"}}),
        lambda name, caller, given: (name, caller, {**given, "human": {**given["human"], "challenge": "c" * 32}}),
        lambda name, caller, given: (name, caller, {**given, "human": "yes"}),
        lambda name, caller, given: (name, caller, {**given, "human": {}}),
        lambda name, caller, given: (name, caller, {**given, "human": True, "passphrase": PASSPHRASE}),
    ],
)
def test_nothing_of_a_signed_request_can_be_changed_on_its_way(core: Core, change: Any) -> None:
    """Attack A5: call, arguments, caller, project, account, challenge and its end are what is signed."""
    name, caller, given = change("add", CALLER, ask(core, content=TEXT))
    with pytest.raises(Refused):
        calls.run(core, caller, name, given)
    assert calls.run(core, CALLER, "list", {})["memories"] == []


def test_a_signature_by_another_key_or_too_late_does_not_count(core: Core, clock: ManualClock, tmp_path: Path) -> None:
    """Attack A5: the engine checks with the key it trusts, whatever came along, and for a minute."""
    late = ask(core, content=TEXT)
    clock.advance(seconds=GOOD_FOR.total_seconds() + 1)
    with pytest.raises(Refused, match="too old"):
        calls.run(core, CALLER, "add", late)

    told = calls.run(core, CALLER, CHALLENGE_CALL, {})["challenge"]
    other = human_of(tmp_path / "agents")
    with pytest.raises(Refused, match="not signed by this installation's key"):
        proof = sign_request(other, "add", {"content": TEXT}, CALLER._asdict(), told) | {
            "public": other.approver.public
        }
        calls.run(core, CALLER, "add", {"content": TEXT, "human": proof})
    assert "human.refused" in [record["kind"] for record in core.audit.records()]


def test_where_nobody_has_a_key_nobody_is_human(core: Core, tmp_path: Path) -> None:
    """Attack A5: before `init` a signature by whatever key is no human's."""
    told = calls.run(core, CALLER, CHALLENGE_CALL, {})["challenge"]
    proof = sign_request(human_of(tmp_path / "agents"), "add", {"content": TEXT}, CALLER._asdict(), told)
    with pytest.raises(Refused, match="memory-anchor init"):
        calls.run(core, CALLER, "add", {"content": TEXT, "human": proof})


# --- the mutation nobody noticed: a passphrase that is not verified ---------------------------------------------------


def pending(seat: Seat) -> str:
    done = seat.shell("add", TEXT, "--confidence", "0.75", "--json")
    assert json.loads(done.stdout)["outcome"] == "pending", done
    return str(json.loads(done.stdout)["id"])


@pytest.mark.slow
@pytest.mark.parametrize("engine", [False, True])
def test_accept_takes_the_right_passphrase_and_no_other(tmp_path: Path, engine: bool) -> None:
    """Rule human: over a real terminal, with and without an engine, with nothing replaced."""
    seat = Seat(tmp_path)
    human_of(seat.data)
    name = pending(seat)
    with Engine(seat) if engine else nullcontext():
        code, screen = seat.human("review", "--accept", name, answers=[("Passphrase", PASSPHRASE + "!")])
        assert (code, "the passphrase is not the approver's" in screen) == (4, True), screen
        assert json.loads(seat.shell("show", name, "--json").stdout)["memory"]["status"] == "pending"

        code, screen = seat.human("review", "--accept", name, answers=[("Passphrase", PASSPHRASE)])
        assert code == 0, screen
        assert json.loads(seat.shell("show", name, "--json").stdout)["memory"].get("status", "active") == "active"
    assert KeyRing(seat.data / "identity").own() is not None
