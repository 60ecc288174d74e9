"""What replicas have alike, over files in the place of a server: two data directories, one record."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from human_seat import GOAL

from memory_anchor.adapters import working_copy
from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.adapters.file_records import FileRecords
from memory_anchor.adapters.system import new_token
from memory_anchor.adapters.working_copy import CHANGING_FILE, NAME, NOTE_FILE, WorkingCopy
from memory_anchor.admin.waiting import BATCHES
from memory_anchor.base.idempotency import FirstAnswers
from memory_anchor.domain.errors import (
    BadInput,
    ChangedMeanwhile,
    NoCredential,
    NotFound,
    Refused,
    StoreDamaged,
    TooMany,
    Unavailable,
)
from memory_anchor.domain.model import ProposalAction
from memory_anchor.domain.ports import ListedRecord, SharedRecord
from memory_anchor.extensions.service import batches
from memory_anchor.extensions.service.batches import Batches
from memory_anchor.extensions.service.keys import KeyFile, new_key
from memory_anchor.identity.identity_schema import IdentitySchema
from memory_anchor.identity.keys import KeyRing
from memory_anchor.identity.signed_requests import CALLER_FIELDS, GOOD_FOR, Challenges, Proof, SignedCall, sign_request
from memory_anchor.settings import StoreSettings
from memory_anchor.testing import PASSPHRASE, ManualClock, human_of

NOW = datetime(2026, 3, 1, tzinfo=UTC)


class Cuttable:
    """Records that can be cut off, or made to lose the answer of a write that was done."""

    is_shared = True

    def __init__(self, folder: Path) -> None:
        self._inner = FileRecords(folder)
        self.away = False
        self.loses_answers = False
        self.asked = 0

    def _check(self) -> None:
        self.asked += 1
        if self.away:
            raise Unavailable("cut")

    def read(self, name: str) -> SharedRecord | None:
        self._check()
        return self._inner.read(name)

    def revisions(self, names: Sequence[str]) -> dict[str, str]:
        self._check()
        return self._inner.revisions(names)

    def write(self, name: str, content: bytes, *, before: str, durable: bool = True) -> str:
        self._check()
        told = self._inner.write(name, content, before=before, durable=durable)
        if self.loses_answers:
            raise Unavailable("lost")
        return told

    def delete(self, name: str, *, before: str) -> None:
        self._check()
        self._inner.delete(name, before=before)

    def listed(self, folder: str) -> list[ListedRecord]:
        self._check()
        return self._inner.listed(folder)


class Lease:
    """One lease in memory."""

    def __init__(self) -> None:
        self.holder = ""

    def claim(self, _: str, holder: str, seconds: float) -> bool:
        if self.holder in ("", holder):
            self.holder = holder if seconds else ""
            return True
        return False


@pytest.fixture
def records(tmp_path: Path) -> Cuttable:
    return Cuttable(tmp_path / "server")


@pytest.fixture
def replica(tmp_path: Path, records: Cuttable, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], WorkingCopy]:
    monkeypatch.setattr(working_copy, "FRESH_S", 0.0)
    lease = Lease()

    def make(name: str) -> WorkingCopy:
        (tmp_path / name).mkdir(exist_ok=True)
        return WorkingCopy(tmp_path / name, records, lease.claim)

    return make


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_the_first_replica_brings_its_files_and_others_get_them(
    tmp_path: Path, replica: Callable[[str], WorkingCopy]
) -> None:
    """Replicas: a single server becomes one of several by its own files."""
    write(tmp_path / "a", "identity/p/approved/000001.json", "one")
    write(tmp_path / "a", "team/keys.json", "{}")
    write(tmp_path / "a", "identity/refused_tries.json", "mine")
    write(tmp_path / "a", "store/secret", "mine")
    replica("a").fresh()

    replica("b").fresh()

    assert (tmp_path / "b/identity/p/approved/000001.json").read_text() == "one"
    assert (tmp_path / "b/team/keys.json").read_text() == "{}"
    assert not (tmp_path / "b/store").exists() and not (tmp_path / "b/identity/refused_tries.json").exists()
    assert (tmp_path / "b/team/keys.json").stat().st_mode & 0o077 == 0


def test_a_change_is_everywhere_or_nowhere(
    tmp_path: Path, replica: Callable[[str], WorkingCopy], records: Cuttable
) -> None:
    """Replicas: one change of many files is one step: a failure, a cut store and a lost answer leave no half of it."""
    a, b = replica("a"), replica("b")
    with a.changing():
        write(tmp_path / "a", "identity/one", "1")
        write(tmp_path / "a", "identity/two", "1")
    b.fresh()
    assert (tmp_path / "b/identity/two").read_text() == "1"

    with pytest.raises(BadInput), b.changing():
        write(tmp_path / "b", "identity/one", "2")
        (tmp_path / "b/identity/two").unlink()
        raise BadInput("no")
    assert (tmp_path / "b/identity/one").read_text() == (tmp_path / "b/identity/two").read_text() == "1"

    with pytest.raises(Unavailable), b.changing():
        write(tmp_path / "b", "identity/one", "3")
        records.away = True
    assert (tmp_path / "b/identity/one").read_text() == "1"
    with pytest.raises(Unavailable):
        b.fresh()
    records.away = False

    records.loses_answers = True
    with pytest.raises(Unavailable), b.changing():
        write(tmp_path / "b", "identity/one", "4")
    records.loses_answers = False
    a.fresh(), b.fresh()
    assert (tmp_path / "a/identity/one").read_text() == (tmp_path / "b/identity/one").read_text() == "4"


def test_what_a_kill_left_of_a_change_is_taken_back(tmp_path: Path, replica: Callable[[str], WorkingCopy]) -> None:
    """Replicas: a killed change never was."""
    a = replica("a")
    with a.changing():
        write(tmp_path / "a", "identity/one", "1")
    (tmp_path / "a" / CHANGING_FILE).touch()  # as a process leaves it that was killed inside
    write(tmp_path / "a", "identity/one", "half")
    write(tmp_path / "a", "identity/new", "half")

    a.fresh()

    assert (tmp_path / "a/identity/one").read_text() == "1"
    assert not (tmp_path / "a/identity/new").exists() and not (tmp_path / "a" / CHANGING_FILE).exists()


def test_two_who_change_at_once_wait_for_one_another_and_lose_nothing(
    tmp_path: Path, replica: Callable[[str], WorkingCopy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas: a change begins from the newest; one that did not is refused whole."""
    a, b = replica("a"), replica("b")
    for number in range(5):
        for name, one in (("a", a), ("b", b)):
            with one.changing():
                write(tmp_path / name, f"identity/{name}{number}", name)
    assert len(list((tmp_path / "b/identity").iterdir())) == 10

    monkeypatch.setattr(working_copy, "WAIT_S", 0.0)
    with a.changing(), pytest.raises(Unavailable), b.changing():
        pass
    monkeypatch.setattr(b, "_claim", lambda *_: True)  # a lease that ran out
    with pytest.raises(ChangedMeanwhile), a.changing():
        with b.changing():
            write(tmp_path / "b", "identity/b", "b")
        write(tmp_path / "a", "identity/a", "a")
    a.fresh()
    assert (tmp_path / "a/identity/b").exists() and not (tmp_path / "a/identity/a").exists()


def test_another_service_s_keys_are_never_written_over(tmp_path: Path, replica: Callable[[str], WorkingCopy]) -> None:
    """Replicas: a data directory belongs to one service."""
    write(tmp_path / "a", "identity/approver.json", "a")
    replica("a").fresh()
    write(tmp_path / "b", "identity/approver.json", "b")

    with pytest.raises(Refused, match="another service"):
        replica("b").fresh()
    assert (tmp_path / "b/identity/approver.json").read_text() == "b"

    (tmp_path / "server" / NAME).unlink()  # the store was emptied
    with pytest.raises(Refused, match="emptied"):
        replica("a").fresh()
    assert (tmp_path / "a/identity/approver.json").read_text() == "a"
    (tmp_path / "a" / NOTE_FILE).unlink()
    replica("a").fresh()
    (tmp_path / "server" / NAME).write_text("{")
    with pytest.raises(StoreDamaged):
        replica("a").fresh()


def test_no_key_opens_while_what_others_revoked_cannot_be_known(
    tmp_path: Path, replica: Callable[[str], WorkingCopy], records: Cuttable
) -> None:
    """Replicas: keys fail closed."""
    a, b = replica("a"), replica("b")
    with a.changing():
        human = human_of(tmp_path / "a")
    here = KeyFile.of(tmp_path / "a", None, (records, a))
    there = KeyFile.of(tmp_path / "b", None, (records, b))
    key, made = new_key(human, new_bytes=os.urandom, now=NOW, account="acme")
    here.add(made, NOW)
    assert there.authenticate(key, NOW).account == "acme"
    there.save_use()
    assert here.last_used() == {made.id: NOW.isoformat(timespec="seconds")}

    records.away = True
    with pytest.raises(Unavailable):
        there.authenticate(key, NOW)
    records.away = False
    here.revoke(made.id, NOW)
    with pytest.raises(NoCredential):
        there.authenticate(key, NOW)
    assert KeyRing(tmp_path / "b" / "identity").own() == human.approver


def test_a_look_is_asked_for_once_in_half_a_second(
    replica: Callable[[str], WorkingCopy], records: Cuttable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas: checking keys puts no network call on each request; a store that is away is asked no oftener."""
    a = replica("a")
    a.fresh()
    monkeypatch.setattr(working_copy, "FRESH_S", 60.0)
    a.fresh()
    before = records.asked
    for _ in range(100):
        a.fresh()
    assert records.asked == before
    monkeypatch.setattr(working_copy, "FRESH_S", 0.05)
    time.sleep(0.1)
    records.away = True
    monkeypatch.setattr(working_copy, "FRESH_S", 60.0)
    monkeypatch.setattr(a, "_looked_at", float("-inf"))
    for _ in range(100):
        with pytest.raises(Unavailable):
            a.fresh()
    assert records.asked == before + 1


def test_sharing_without_a_server_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """Replicas: store.records needs a server."""
    from memory_anchor.process.app import shared_of

    assert shared_of(StoreSettings(), tmp_path) is None
    for more in ({}, {"kind": "qdrant", "path": str(tmp_path)}):
        with pytest.raises(BadInput, match=r"store\.records"):
            shared_of(StoreSettings.model_validate({"records": "store", **more}), tmp_path)


def test_a_challenge_of_one_replica_is_good_once_at_any_other(tmp_path: Path, records: Cuttable) -> None:
    """Replicas: an approver's signed request may come to another replica than its challenge, and counts once."""
    human = human_of(tmp_path / "human")
    one, two = (Challenges(new_token, records) for _ in range(2))
    caller = dict.fromkeys(CALLER_FIELDS, "")

    def asked(challenge: str) -> SignedCall:
        proof = Proof.of(sign_request(human, "accept", {"id": "1"}, caller, challenge))
        return SignedCall("accept", {"id": "1"}, caller, proof)

    call = asked(one.issue(NOW, account="acme", project="p"))
    two.check(call, account="acme", project="p", approver=human.approver, now=NOW)
    for again in (one, two):
        with pytest.raises(Refused, match="used before"):
            again.check(call, account="acme", project="p", approver=human.approver, now=NOW)
    late = asked(one.issue(NOW, account="acme", project="p"))
    with pytest.raises(Refused, match="too old"):
        two.check(late, account="acme", project="p", approver=human.approver, now=NOW + 2 * GOOD_FOR)
    for odd in ("../service.json", "", "x" * 300):
        with pytest.raises(Refused):
            two.check(asked(odd), account="acme", project="p", approver=human.approver, now=NOW)
    assert records.listed("challenges") == []


def test_the_constitution_that_one_replica_approved_is_served_by_the_other(
    tmp_path: Path, replica: Callable[[str], WorkingCopy], clock: ManualClock
) -> None:
    """Replicas: L0 is one for the service: proposals, their confirmations and the sealed chain."""
    copies = {name: replica(name) for name in ("a", "b")}
    human_of(tmp_path / "a")
    copies["a"].fresh()

    def schema(name: str) -> IdentitySchema:
        copies[name].fresh()
        audit = JsonlAudit(tmp_path / name / "audit" / "audit.jsonl")
        home = tmp_path / name / "identity" / "p"
        return IdentitySchema(
            project_dir=None, project_id="p", home=home, clock=clock, audit=audit, sharing=copies[name]
        )

    home = tmp_path / "a" / "identity" / "p"
    home.mkdir(parents=True)
    with copies["a"].changing():
        (home / "constitution.yaml").write_text(GOAL)
    schema("a").init(passphrase=PASSPHRASE, approver="alice", old_passphrase=None)
    assert [one.content for one in schema("b").load().entries] == ["Keep the greenhouse at 21 degrees"]

    said = "Never heat above 30 degrees"
    made = schema("b").propose(
        content=said, reason="it burnt", action=ProposalAction.ADD, entry_id=None, from_id=None, by="agent"
    )
    for name in ("a", "b", "a"):  # one proposal, confirmed here and there
        assert said not in [one.content for one in schema("b").load().entries]
        schema(name).confirm(made.id, passphrase=PASSPHRASE, approver="alice")
    for name in ("a", "b"):
        assert said in [one.content for one in schema(name).load().entries]
        assert schema(name).load().warnings == ()
        assert schema(name).faults() == []


def test_a_batch_that_one_replica_accepted_is_ended_by_another_and_told_by_both(records: Cuttable) -> None:
    """Replicas: accepted batches are the service's: one id, one report, also after a kill in between."""
    one, two = (Batches(records, time.monotonic) for _ in range(2))
    owner = {"account": "acme", "user": "eve"}
    items = [{"kind": "event", "content": "a"}, {"kind": "event", "content": "b"}]
    made = one.accept(owner, "r1", items, NOW)
    assert two.accept(owner, "r1", items, NOW) == made
    with pytest.raises(BadInput):
        two.accept(owner, "r1", items[:1], NOW)
    with pytest.raises(NotFound):
        two.report(made["id"], account="other", user="", project="")
    (waiting,) = two.waiting()
    assert [two.current_item(waiting, place)["content"] for place in (0, 1)] == ["a", "b"]

    kept = records.read(records.listed(BATCHES)[0].name)
    assert kept is not None and not two.has_report(waiting)
    two.finish(waiting, [{"outcome": "logged"}, {"outcome": "logged"}])
    assert one.report(made["id"], account="acme", user="eve", project="")["outcomes"] == [{"outcome": "logged"}] * 2
    assert list(one.waiting()) == [] and records.listed(BATCHES) == []

    records.write(kept.name, kept.content, before="")  # as a kill between the report and the end of the batch leaves it
    (again,) = one.waiting()
    assert one.has_report(again)
    one.finish(again, [])
    assert list(two.waiting()) == []
    assert two.report(made["id"], account="acme", user="eve", project="")["outcomes"] == [{"outcome": "logged"}] * 2
    assert two.accept(owner, "r1", items, NOW)["state"] == "done"


def test_what_waited_in_files_is_taken_over_by_the_server(tmp_path: Path, records: Cuttable) -> None:
    """Replicas: a single server that becomes a replica loses no batch."""
    owner = {"account": "acme", "user": "eve"}
    alone = Batches(FileRecords(tmp_path / "a"), time.monotonic)
    made = alone.accept(owner, "r1", [{"kind": "event", "content": "a"}], NOW)
    shared = Batches(records, time.monotonic)

    shared.adopt_files(tmp_path / "a")

    assert [one.id for one in shared.waiting()] == [made["id"]]
    assert FileRecords(tmp_path / "a").listed(BATCHES) == []


def test_batches_that_wait_are_bounded_over_all_replicas(records: Cuttable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas: an account's batches that wait are counted wherever they were accepted."""
    monkeypatch.setattr(batches, "WAITING_OF_ONE", 2)
    monkeypatch.setattr(batches, "LISTED_S", 0.0)
    one, two = (Batches(records, time.monotonic) for _ in range(2))
    for number, made in enumerate((one, two)):
        made.accept({"account": "acme", "user": ""}, str(number), [{"kind": "event"}], NOW)

    with pytest.raises(TooMany):
        one.accept({"account": "acme", "user": ""}, "3", [{"kind": "event"}], NOW)
    assert two.accept({"account": "other", "user": ""}, "3", [{"kind": "event"}], NOW)["state"] == "accepted"
    assert one.count() == 3


def test_the_first_answer_of_a_deed_is_known_to_the_other_replica(records: Cuttable) -> None:
    """Replicas: a request of many writes goes on at another replica where it was cut off."""
    one, two = (FirstAnswers(None, records) for _ in range(2))
    one.write_note({"from": 3}, "action", "nonce")
    assert two.read_note("action", "nonce") == {"from": 3}
    assert one.once("key", "asked", lambda: {"saved": 1}, lasting=True) == {"saved": 1}
    assert two.once("key", "asked", lambda: {"saved": 2}, lasting=True) == {"saved": 1}
