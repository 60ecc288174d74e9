"""L0 of a served memory, approved from other machines: three approvers, each with a signature; nothing by a key alone.

Issue 17, the team: proposals by anyone, approvals by approvers, each with its own signing key. Over a real server.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from approver_seat import ACCOUNT, Seat
from serving import Served, bearer, key_for
from typer.testing import CliRunner

from memory_anchor.base.terminal import visible
from memory_anchor.core import Core
from memory_anchor.front.cli import passphrase
from memory_anchor.front.cli.app import app
from memory_anchor.front.cli.served import _read
from memory_anchor.front.cli.setup import identity
from memory_anchor.identity.approval import rejected_statement, stamp
from memory_anchor.identity.approved import SealedRevision, sign_link
from memory_anchor.identity.changes import apply_proposal
from memory_anchor.identity.constitution_text import parse
from memory_anchor.identity.identity_schema import IdentitySchema
from memory_anchor.identity.proposals import REJECTED_FILE
from memory_anchor.identity.remote_approval import approval_json
from memory_anchor.model import Actor, Caller, Scope
from memory_anchor.team.credential import Role
from memory_anchor.team.keys import KeyFile
from memory_anchor.testing import PASSPHRASE, ManualClock, cheap_keys, human_of

TEXT = 'version: "1"\nentries:\n  - id: goal\n    content: "Keep the greenhouse at 21 degrees"\n    priority: 0\n'
NEW = "Water at dawn"
SIGNS = "\x1b[8m\u202e\u200b"
"""A terminal obeys the first, reorders by the second and does not show the third."""
pytestmark = pytest.mark.today


@pytest.fixture
def held(held: Core, project: Path) -> Core:
    """The served memory, with a constitution in force."""
    (project / "constitution.yaml").write_text(TEXT, encoding="utf-8")
    human_of(held.data_dir)
    with cheap_keys():
        schema_of(held).init(passphrase=PASSPHRASE, approver="alice", old_passphrase=None)
    return held


def schema_of(held: Core, account: str = "") -> IdentitySchema:
    folder = "" if account else held.settings.project_dir
    return held.anchor(Actor(Caller.AGENT, Scope(account=account), project_dir=folder)).project.identity


def entries(held: Core) -> list[str]:
    """Return L0 as an agent of the account is told it."""
    schema = schema_of(held)
    assert not schema.load().warnings and not schema.faults()
    return [one.content for one in schema.load().entries]


@pytest.fixture
def seats(held: Core, served: Served, tmp_path: Path) -> list[Seat]:
    return [Seat(held, served, tmp_path / f"{name}s machine", name) for name in ("bob", "carol", "dave")]


@pytest.fixture
def wish(held: Core) -> str:
    anchor = held.anchor(Actor(Caller.AGENT, Scope(), project_dir=held.settings.project_dir))
    return anchor.propose(content=NEW, reason=f"asked by{SIGNS} the gardeners").id


def refused(answer: Any, says: str, held: Core, *, status: int = 403, approvals: int = 0) -> None:
    """Assert one sentence, nothing approved, and a record in the audit trail."""
    assert answer.status_code == status, answer.text
    assert says in answer.json()["message"] and "\n" not in answer.json()["message"], answer.text
    (one,) = schema_of(held).proposals()
    assert len(one.confirmations) == approvals
    assert NEW not in entries(held)
    told = [str(record["kind"]) for record in held.audit.records()]
    assert told[-1] in ("constitution.elsewhere_refused", "human.refused"), told[-3:]


def test_the_third_approver_and_none_before_puts_a_proposal_in_force(
    held: Core, seats: list[Seat], wish: str, clock: ManualClock
) -> None:
    """Issue 17, the team: three approvers on three machines; L0 is served anew after the last; the next one follows."""
    reader, _ = key_for(held, ACCOUNT, role=Role.READER)
    shown = seats[0].served.ask("POST", "/v1/constitution/proposals", headers=bearer(reader), json={}).json()
    assert shown["proposals"][0]["proposal_id"] == wish and f'+    content: "{NEW}"' in shown["proposals"][0]["diff"]

    for number, seat in enumerate(seats, 1):
        assert NEW not in entries(held)
        done = seat.sends(seat.signs(clock.now()))
        assert done.status_code == 200, done.text
        assert (done.json()["confirmations"], done.json()["status"] == "effective") == (number, number == 3)
    assert entries(held)[-1] == NEW
    assert NEW in Path(held.settings.project_dir, "constitution.yaml").read_text(encoding="utf-8")
    told = [one for one in held.audit.records() if str(one["kind"]).startswith("constitution.")]
    assert [one["by"] for one in told if one["kind"] == "constitution.confirmed"] == ["bob", "carol", "dave"]

    anew = IdentitySchema(
        project_dir=Path(held.settings.project_dir),
        project_id=schema_of(held).project_id,
        home=held.data_dir / "identity" / schema_of(held).project_id,
        clock=clock,
        audit=held.audit,
        account=ACCOUNT,
    )
    assert [one.content for one in anew.load().entries][-1] == NEW  # another process, from the files alone
    second = schema_of(held)
    made = held.anchor(Actor(Caller.AGENT, Scope(), project_dir=held.settings.project_dir)).propose(
        content="Prune in March", reason="asked"
    )
    for seat in seats[:2]:
        assert seat.sends(seat.signs(clock.now())).status_code == 200
    with cheap_keys():
        done_here = second.confirm(made.id, passphrase=PASSPHRASE, approver="alice")
    assert done_here.status.value == "effective" and entries(held)[-1] == "Prune in March"


def test_an_access_key_alone_approves_nothing(
    held: Core, served: Served, seats: list[Seat], wish: str, clock: ManualClock, tmp_path: Path
) -> None:
    """Attack: an agent holds an approver's access key, and a signing key of its own; or a writer's key."""
    bob, own = seats[0], human_of(tmp_path / "an agents own key")
    body = bob.signs(clock.now())
    refused(bob.post("constitution/approve", **body), "not readable", held)
    refused(bob.sends(bob.signs(clock.now(), signer=own), signer=own), "not signed", held)
    refused(bob.sends(bob.signs(clock.now(), signer=own)), "not signed by this approver's key", held)
    writer, _ = key_for(held, ACCOUNT, user="eve")
    plain, _ = key_for(held, ACCOUNT, user="eve", role=Role.APPROVER)
    for key, says in ((writer, "may not"), (plain, "no signing key")):
        answer = served.ask(
            "POST", "/v1/constitution/approve", headers=bearer(key), json={**body, "human": bob.proof(body)}
        )
        assert answer.status_code == 403 and says in answer.json()["message"]
    assert not schema_of(held).proposal(wish).confirmations


def test_a_replayed_approval_is_refused(held: Core, seats: list[Seat], wish: str, clock: ManualClock) -> None:
    """Attack: what was sent once is sent again, whole, or with a fresh challenge that the approver never signed."""
    bob, carol = seats[0], seats[1]
    body = bob.signs(clock.now())
    whole = {**body, "human": bob.proof(body)}
    assert bob.post("constitution/approve", **whole).status_code == 200
    refused(bob.post("constitution/approve", **whole), "used before", held, approvals=1)
    refused(carol.sends({**body, "seen": carol.signs(clock.now())["seen"]}), "not signed by", held, approvals=1)
    old = carol.signs(clock.now() - timedelta(minutes=6))
    refused(carol.sends(old), "allowed are 5 minutes", held, approvals=1)
    assert schema_of(held).proposal(wish).confirmations[0].by == "bob"


def test_the_same_approver_counts_once(
    held: Core, served: Served, seats: list[Seat], wish: str, clock: ManualClock, tmp_path: Path
) -> None:
    """Attack: one approver confirms again: anew, under another name, or with another signing key."""
    bob = seats[0]
    assert bob.sends(bob.signs(clock.now())).status_code == 200
    refused(bob.sends(bob.signs(clock.now())), "already", held, approvals=1)
    renamed = Seat(held, served, bob.home, "robert")
    refused(renamed.sends(renamed.signs(clock.now())), "already", held, approvals=1)
    rekeyed = Seat(held, served, tmp_path / "bobs other machine", "bob")
    refused(rekeyed.sends(rekeyed.signs(clock.now())), "already", held, approvals=1)
    assert schema_of(held).proposal(wish).status.value == "open"


def test_an_approval_of_another_proposal_or_text_is_refused(
    held: Core, seats: list[Seat], wish: str, clock: ManualClock
) -> None:
    """Attack: a signature for one proposal is sent for another, or the proposal's words change after it was shown."""
    bob = seats[0]
    told = bob.listed()
    altered = json.loads(json.dumps(told))
    altered["proposals"][0]["content"] = "Water never"
    refused(bob.sends(bob.signs(clock.now(), told=altered)), "changed while it was being shown", held)
    body = bob.signs(clock.now(), told=altered)
    refused(bob.sends({**body, "seen": bob.signs(clock.now())["seen"]}), "not signed by this approver's key", held)
    refused(bob.sends({**bob.signs(clock.now()), "id": "p-0123456789"}), "the proposals are", held, status=404)
    refused(bob.sends({**bob.signs(clock.now()), "installation": "0000"}), "for another server", held)
    file = Path(held.settings.project_dir, ".ai", "proposals", f"{wish}.yaml")
    body, kept = bob.signs(clock.now()), file.read_text(encoding="utf-8")
    file.write_text(kept.replace(NEW, "Water never"), encoding="utf-8")
    refused(bob.sends(body), "changed while it was being shown", held)


def test_the_last_signature_is_for_the_whole_text(held: Core, seats: list[Seat], wish: str, clock: ManualClock) -> None:
    """Attack: a server or relay tells the last approver another text in force than the one it would change."""
    for seat in seats[:2]:
        assert seat.sends(seat.signs(clock.now())).status_code == 200
    dave, told = seats[2], seats[2].listed()
    told["ground"]["text"] = TEXT.replace("21", "12")
    refused(dave.sends(dave.signs(clock.now(), told=told)), "not signed by this approver's key", held, approvals=2)
    whole = dave.signs(clock.now())
    refused(dave.sends({**whole, "seal": whole["link"]}), "not signed by this approver's key", held, approvals=2)
    assert schema_of(held).proposal(wish).status.value == "open"


def test_an_approver_of_another_account_or_project_approves_nothing(
    held: Core, served: Served, seats: list[Seat], wish: str, clock: ManualClock, tmp_path: Path
) -> None:
    """Attack: an approver of another account on the same server, with a body that another account's approver signed."""
    mallory = Seat(held, served, tmp_path / "mallorys machine", "mallory", account="globex")
    body = seats[0].signs(clock.now())
    answer = mallory.sends(body)
    assert answer.status_code in (403, 404) and wish not in mallory.post("constitution/proposals").text
    proof = seats[0].proof(body)
    crossed = mallory.post("constitution/approve", **body, human=proof)
    refused(crossed, "another account or project", held)
    elsewhere = Seat(held, served, tmp_path / "ninas machine", "nina", project="another")
    refused(elsewhere.post("constitution/approve", **body, human=seats[0].proof(body)), "another account or pr", held)


def test_a_revoked_or_expired_approver_approves_nothing_and_counts_no_more(
    held: Core, served: Served, seats: list[Seat], wish: str, clock: ManualClock, tmp_path: Path
) -> None:
    """Attack: a key that has ended is used; and what it had confirmed of an open proposal begins anew."""
    bob, carol, dave = seats
    brief = Seat(held, served, tmp_path / "eds machine", "ed", expires_at=clock.now() + timedelta(minutes=2))
    assert brief.sends(brief.signs(clock.now())).status_code == 200
    body, late = bob.signs(clock.now()), brief.signs(clock.now())
    clock.advance(minutes=3)
    answer = brief.post("constitution/approve", **late)
    assert answer.status_code == 401 and "expired" in answer.json()["message"]
    assert bob.listed()["proposals"][0]["confirmations"] == 0
    assert bob.sends(bob.signs(clock.now())).status_code == 200
    KeyFile.of(held.data_dir, held.audit).revoke(bob.record.id, clock.now())
    answer = bob.post("constitution/approve", **body)
    assert answer.status_code == 401 and "revoked" in answer.json()["message"]
    for number, seat in enumerate((carol, dave), 1):
        assert seat.sends(seat.signs(clock.now())).json()["confirmations"] == number
    assert NEW not in entries(held)
    eve = Seat(held, served, tmp_path / "eves machine", "eve")
    assert eve.sends(eve.signs(clock.now())).json()["status"] == "effective"
    assert NEW in entries(held) and wish in schema_of(held).proposal(wish).id


def test_one_approvers_signature_and_write_access_put_nothing_in_force(
    held: Core, seats: list[Seat], wish: str, clock: ManualClock
) -> None:
    """Attack: the sealed text's file is written by hand: with fewer approvals, or with an access key nobody signed."""
    for seat in seats:
        assert seat.sends(seat.signs(clock.now())).status_code == 200
    assert NEW in entries(held)
    identity = held.data_dir / "identity" / schema_of(held).project_id
    newest = max((identity / "approved").glob("*.json"))
    whole = json.loads(newest.read_text(encoding="utf-8"))
    approval = json.loads(whole["approval"])
    fewer = {**approval, "confirmations": approval["confirmations"][1:]}
    forged = json.loads(json.dumps(approval).replace("approver", "reader"))
    twice = {**approval, "confirmations": [approval["confirmations"][0], *approval["confirmations"][:2]]}
    heads = held.data_dir / "constitution-heads" / f"{identity.name}.json"
    for tampered in (fewer, forged, twice):
        for file in (newest, heads):
            file.write_text(json.dumps({**whole, "approval": json.dumps(tampered)}), encoding="utf-8")
        assert NEW not in [one.content for one in schema_of(held).load().entries]
    for file in (newest, heads):
        file.write_text(json.dumps(whole), encoding="utf-8")
    assert NEW in entries(held) and wish


def test_one_approver_alone_seals_no_text(held: Core, seats: list[Seat], wish: str, clock: ManualClock) -> None:
    """Attack: an approver who can write the server's files seals the text with one own, good confirmation."""
    bob = seats[0]
    told = bob.listed()
    assert bob.sends(bob.signs(clock.now(), told=told)).status_code == 200
    proposal, ground, _ = _read(told["proposals"][0], told)
    text, at, signer = apply_proposal(ground.text, proposal), stamp(clock.now()), bob.signer
    link = sign_link(signer, digest=parse(text).digest, previous=ground.link, proposal=wish, by="bob", at=at)
    approval = approval_json(schema_of(held).proposal(wish), "")
    bare = SealedRevision(ground.number, text, link, (*ground.applied, wish), "", ground.follows, approval)
    forged = asdict(replace(bare, seal=signer.sign(bare.statement(ground.project))))
    for file in (
        held.data_dir / "identity" / ground.project / "approved" / f"{ground.number:06d}.json",
        held.data_dir / "constitution-heads" / f"{ground.project}.json",
    ):
        file.write_text(json.dumps(forged), encoding="utf-8")
    assert NEW not in [one.content for one in schema_of(held).load().entries]


def test_a_server_that_ends_before_the_text_is_sealed_is_finished_by_the_last_approver(
    held: Core, seats: list[Seat], wish: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 17, half-done: three confirmations are on disk and the old text is served; the third again ends it."""
    for seat in seats[:2]:
        assert seat.sends(seat.signs(clock.now())).status_code == 200
    bob, dave = seats[0], seats[2]
    with monkeypatch.context() as dying:
        dying.setattr("memory_anchor.identity.approved.move_aside", cut_off)
        assert dave.sends(dave.signs(clock.now())).status_code >= 500
    assert schema_of(held).proposal(wish).status.value == "open" and NEW not in entries(held)
    refused(bob.sends(bob.signs(clock.now())), "do not seal this text together", held, approvals=3)
    assert dave.sends(dave.signs(clock.now())).json()["status"] == "effective"
    assert entries(held)[-1] == NEW


def cut_off(*_: Any, **__: Any) -> None:
    raise RuntimeError("the process ends here")


def test_a_revoked_approvers_earlier_approval_counts_for_no_local_confirmation(
    held: Core, seats: list[Seat], wish: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: a key is revoked after its holder approved, and the server's human gives the third; and with two left."""
    for seat in seats[:2]:
        assert seat.sends(seat.signs(clock.now())).status_code == 200
    KeyFile.of(held.data_dir, held.audit).revoke(seats[1].record.id, clock.now())
    monkeypatch.setenv("MEMORY_ANCHOR_DATA_DIR", str(held.data_dir))
    monkeypatch.chdir(held.settings.project_dir)
    here = identity()
    assert here.project_id == schema_of(held).project_id
    assert [len(one.proposal(wish).confirmations) for one in (here, schema_of(held))] == [1, 1]
    for number in (2, 3):
        with cheap_keys():
            done = here.confirm(wish, passphrase=PASSPHRASE, approver="alice")
        assert (len(done.confirmations), done.status.value) == (number, "open" if number < 3 else "effective")
        assert (NEW in entries(held)) is (number == 3)
    KeyFile.of(held.data_dir, held.audit).revoke(seats[0].record.id, clock.now())
    assert entries(held)[-1] == NEW and not identity().faults()  # what is in force stays


def test_an_approver_elsewhere_rejects_a_proposal_for_good(
    held: Core, seats: list[Seat], wish: str, clock: ManualClock
) -> None:
    """Issue 17, the team: signed like an approval; closed at once, also where its file or the list is lost."""
    bob, carol = seats[0], seats[1]
    assert carol.sends(carol.signs(clock.now())).status_code == 200
    done = bob.refuses(bob.signs_no(clock.now()))
    assert done.status_code == 200 and done.json()["status"] == "rejected", done.text
    assert not carol.listed()["proposals"] and schema_of(held).proposal(wish).status.value == "rejected"
    (told,) = (one for one in held.audit.records() if one["kind"] == "constitution.rejected")
    assert told["by"] == "bob" and told["what"]["proposal"] == wish

    file = Path(held.settings.project_dir, ".ai", "proposals", f"{wish}.yaml")
    kept = file.read_text(encoding="utf-8")
    assert '"rejection":' in kept
    file.write_text(kept.split('"rejection":')[0].replace('"status": "rejected"', '"status": "open"'), encoding="utf-8")
    assert schema_of(held).proposal(wish).status.value == "rejected"  # by the list
    (held.data_dir / "identity" / schema_of(held).project_id / REJECTED_FILE).unlink()
    assert schema_of(held).proposal(wish).status.value == "rejected"  # by the audit trail
    KeyFile.of(held.data_dir, held.audit).revoke(bob.record.id, clock.now())
    assert schema_of(held).proposal(wish).status.value == "rejected"  # what is closed stays


def test_nobody_but_an_approver_who_signs_rejects(
    held: Core, served: Served, seats: list[Seat], wish: str, clock: ManualClock, tmp_path: Path
) -> None:
    """Attack: a key alone, another's signature, a replay, another text or server, an ended key, a false file."""
    bob, carol = seats[0], seats[1]
    own = human_of(tmp_path / "an agents own key")
    mallory = Seat(held, served, tmp_path / "mallorys machine", "mallory", account="globex")
    writer, _ = key_for(held, ACCOUNT, user="eve")
    body = bob.signs_no(clock.now())
    refused(bob.post("constitution/reject", **body), "not readable", held)
    refused(bob.refuses(bob.signs_no(clock.now(), signer=own)), "not signed by this approver's key", held)
    refused(bob.refuses(body, signer=own), "not signed", held)
    refused(carol.refuses(body), "not signed by this approver's key", held)
    refused(bob.refuses({**body, "reason": "another"}), "not signed by this approver's key", held)
    refused(bob.refuses({**body, "closing": body["signature"]}), "not signed by this approver's key", held)
    refused(bob.refuses({**body, "seen": "0" * 64}), "changed while it was being shown", held)
    refused(bob.refuses({**body, "installation": "0000"}), "for another server", held)
    refused(bob.refuses(bob.signs_no(clock.now() - timedelta(minutes=6))), "allowed are 5 minutes", held)
    refused(bob.refuses(bob.signs(clock.now())), "lacks the argument 'reason'", held, status=400)
    answer = served.ask("POST", "/v1/constitution/reject", headers=bearer(writer), json={**body, "human": {}})
    assert answer.status_code == 403 and "may not" in answer.json()["message"]
    assert mallory.refuses(body).status_code in (403, 404)
    KeyFile.of(held.data_dir, held.audit).revoke(carol.record.id, clock.now())
    assert carol.post("constitution/reject", **body).status_code == 401
    (one,) = schema_of(held).proposals()
    assert one.status.value == "open"

    # What a file claims: bob's own words, signed by a key that no access key's record names.
    home = held.data_dir / "identity" / schema_of(held).project_id
    entry = {"id": wish, "at": stamp(clock.now())}
    said = rejected_statement(project=home.name, proposal_id=wish, at=entry["at"])
    entry |= {"signature": own.sign(said), "credential": KeyFile.of(held.data_dir, held.audit).record(bob.record.id)}
    (home / REJECTED_FILE).write_text(json.dumps({"rejected": [entry]}))
    assert schema_of(held).proposal(wish).status.value == "open"
    assert bob.refuses(bob.signs_no(clock.now())).json()["status"] == "rejected"


def test_an_approver_confirms_on_their_own_terminal(
    held: Core, served: Served, seats: list[Seat], wish: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 17: `memory-anchor constitution review --server URL --key-file FILE`; only the keyboard is played."""
    monkeypatch.setattr(passphrase, "ask_hidden", lambda *_: PASSPHRASE)
    monkeypatch.setattr("memory_anchor.front.cli.served.check_terminal", lambda **_: None)
    for number, seat in enumerate(seats, 1):
        file = tmp_path / f"key{number}"
        file.write_text(f"{seat.key}\n")
        monkeypatch.setenv("MEMORY_ANCHOR_DATA_DIR", str(seat.home))
        there = ("--server", served.base, "--key-file", str(file))
        listed = CliRunner().invoke(app, ["constitution", "review", "--list", *there])
        assert wish in listed.stdout and f"{number - 1}/3" in listed.stdout and NEW in listed.stdout
        whole = CliRunner().invoke(app, ["constitution", "review", "--json", *there])
        assert json.loads(whole.stdout)["proposals"][0]["confirmations"] == number - 1
        with cheap_keys():
            done = CliRunner().invoke(app, ["constitution", "review", *there], input="c\n")
        assert done.exit_code == 0 and f"This is confirmation {number} of 3" in done.output, done.output
        shown = listed.output + whole.output + done.output
        assert "asked by" in shown and not [one for one in shown if one != "\n" and visible(one) != one]
    assert NEW in entries(held)
    again = held.anchor(Actor(Caller.AGENT, Scope(), project_dir=held.settings.project_dir))
    other = again.propose(content="Prune in March", reason="asked").id
    mute = CliRunner().invoke(app, ["constitution", "review", "--reject", other, *there])
    assert mute.exit_code == 2 and "reason" in mute.output
    with cheap_keys():
        no = CliRunner().invoke(app, ["constitution", "review", *there], input="r\nnot our way\n")
    assert no.exit_code == 0 and f"{other}  rejected" in no.output and "Prune in March" in no.output, no.output
    third = again.propose(content="Prune in April", reason="asked").id
    with cheap_keys():
        no = CliRunner().invoke(app, ["constitution", "review", "--reject", third, "--reason", "no", "--json", *there])
    assert json.loads(no.stdout)["outcomes"][0]["status"] == "rejected", no.output
    nothing = CliRunner().invoke(app, ["constitution", "review", "--approve", wish, *there])
    assert nothing.exit_code == 3 or "no proposal" in nothing.output, nothing.output
    assert CliRunner().invoke(app, ["constitution", "review"]).exit_code == 2
