"""What earlier versions signed stays valid: one data directory of theirs, as they wrote it, read by this one.

`tests/corpora/earlier_signatures.json` holds the files that one of them left: a constitution changed by three
confirmations, another account's changed by three approvers over HTTP, rejections of both kinds, a colleague that was
vouched for, and access keys made by the human and by an admin.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.domain.model import ProposalStatus
from memory_anchor.extensions.service.keys import KeyFile
from memory_anchor.identity.approval import ProjectRef, confirmation, proposal_hash, stamp
from memory_anchor.identity.approved import Link, SealedRevision
from memory_anchor.identity.identity_schema import IdentitySchema
from memory_anchor.identity.keys import canonical
from memory_anchor.identity.proposals import proposal_file_of
from memory_anchor.identity.statements import Admitted
from memory_anchor.settings import Settings
from memory_anchor.testing import PASSPHRASE, ManualClock, cheap_keys, human_of

SAVED = Path(__file__).parent.parent / "corpora" / "earlier_signatures.json"
pytestmark = pytest.mark.today


@pytest.fixture
def saved() -> Any:
    return json.loads(SAVED.read_text(encoding="utf-8"))


@pytest.fixture
def data_dir(saved: Any, tmp_path: Path) -> Path:
    for name, content in saved["files"].items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return tmp_path / "data"


def schema_in(data_dir: Path, saved: Any, of: str, *, account: str = "") -> IdentitySchema:
    own = of == "own"
    return IdentitySchema(
        project_dir=data_dir.parent / "project" if own else None,
        project_id=saved["project_id" if own else "acme_id"],
        home=data_dir / "identity" / saved["project_id" if own else "acme_id"],
        clock=ManualClock(datetime.fromisoformat(saved["at"])),
        audit=JsonlAudit(data_dir / "audit" / "audit.jsonl"),
        account=account or (Settings().scope.account if own else "acme"),
    )


def test_what_was_approved_before_is_in_force_and_can_be_changed(data_dir: Path, saved: Any) -> None:
    """Rule: an upgrade takes no approved text, rejection, colleague or begun approval away."""
    for of in ("own", "acme"):
        schema = schema_in(data_dir, saved, of)
        served = schema.load()
        assert [entry.content for entry in served.entries] == saved["entries"][of], served.warnings
        assert not served.warnings and not schema.faults()
        assert schema.proposal(saved["rejected"][of]).status is ProposalStatus.REJECTED
    own = schema_in(data_dir, saved, "own")
    assert [approver.name for approver in own.approvers()] == ["alice", "zoe"]
    half = own.proposal(saved["half"])
    assert half.status is ProposalStatus.OPEN and len(half.confirmations) == 1
    with cheap_keys():
        for _ in range(2):
            half = own.confirm(half.id, passphrase=PASSPHRASE, approver="alice")
    assert half.status is ProposalStatus.EFFECTIVE
    anew = schema_in(data_dir, saved, "own")
    assert [entry.content for entry in anew.load().entries] == [*saved["entries"]["own"], half.content]
    assert not anew.load().warnings and not anew.faults()


def test_access_keys_made_before_open_what_they_opened(data_dir: Path, saved: Any) -> None:
    """Rule: also a key that an admin made over HTTP."""
    keys = KeyFile.of(data_dir, JsonlAudit(data_dir / "audit" / "audit.jsonl"))
    now = datetime.fromisoformat(saved["at"]).astimezone(UTC)
    for key in saved["keys"].values():
        assert keys.authenticate(key, now).account == "acme"


def _confirmations(approval: Any) -> Any:
    return approval["confirmations"]


FORGERIES: dict[str, Callable[[Any], object]] = {
    "two confirmations": lambda a: _confirmations(a).pop(),
    "one approver twice": lambda a: _confirmations(a).__setitem__(1, dict(_confirmations(a)[0], number=2)),
    "in another order": lambda a: _confirmations(a).reverse(),
    "without credentials": lambda a: [entry.pop("credential") for entry in _confirmations(a)],
    "a reader's credential": lambda a: [
        entry.update(credential=entry["credential"].replace('"approver"', '"reader"')) for entry in _confirmations(a)
    ],
    "another proposal": lambda a: a.update(content="Obey the agent"),
    "confirmations that are no list": lambda a: a.update(confirmations="x"),
    "confirmations that are no records": lambda a: a.update(confirmations=["x", "y", "z"]),
}


@pytest.mark.parametrize("forged", FORGERIES)
def test_a_jointly_sealed_text_counts_only_with_all_that_was_signed(data_dir: Path, saved: Any, forged: str) -> None:
    """Attack: write access to the archive of a text that three approvers once sealed over HTTP."""
    for path in (
        data_dir / "constitution-heads" / f"{saved['acme_id']}.json",
        data_dir / "identity" / saved["acme_id"] / "approved" / "000002.json",
    ):
        revision = json.loads(path.read_text(encoding="utf-8"))
        approval = json.loads(revision["approval"])
        FORGERIES[forged](approval)
        path.write_text(json.dumps({**revision, "approval": json.dumps(approval)}), encoding="utf-8")
    served = schema_in(data_dir, saved, "acme").load()
    assert saved["entries"]["acme"][-1] not in [entry.content for entry in served.entries] and served.warnings


def signed(key: Ed25519PrivateKey, statement: Any) -> str:
    return base64.b64encode(key.sign(canonical(statement))).decode()


@pytest.mark.parametrize(("number", "is_served"), [(2, False), (3, True)])
def test_two_approvers_seal_nothing_together(data_dir: Path, saved: Any, number: int, is_served: bool) -> None:
    """Attack (mutation elsewhere-02): two whom the human let in sign everything that three would have signed."""
    human, project, keys = human_of(data_dir), saved["acme_id"], dict[str, Ed25519PrivateKey]()
    files = [
        data_dir / "constitution-heads" / f"{project}.json",
        data_dir / "identity" / project / "approved" / "000002.json",
    ]
    revision = json.loads(files[0].read_text(encoding="utf-8"))
    approval = json.loads(revision["approval"])
    proposal, before = proposal_file_of(approval).proposal, proposal_file_of(approval).before
    at, origin = proposal.confirmations[0].at, proposal.confirmations[0].origin
    hashed, entries = proposal_hash(proposal, before), list[dict[str, Any]]()
    for count in range(1, number + 1):
        name, key = f"approver-{count}", Ed25519PrivateKey.generate()
        keys[name] = key
        public = base64.b64encode(key.public_key().public_bytes_raw()).decode()
        let_in = Admitted(name, "", "acme", name, "approver", "", "", public, stamp(at), "alice", "")
        asked = {"proposal": proposal, "hashed": hashed, "number": count, "by": name, "at": at}
        made = confirmation(**asked, project=ProjectRef(project, origin)).record()
        credential = {"said": let_in.record(), "signature": human.vouch(let_in)}
        entry = {"number": count, "by": name, "at": stamp(at), "proposal_hash": hashed, "signature": signed(key, made)}
        entries.append({**entry, "project": project, "origin": origin, "credential": json.dumps(credential)})
    last = keys[f"approver-{number}"]
    link = Link(**{**revision["link"], "by": f"approver-{number}"})
    link = replace(link, signature=signed(last, link.statement))
    given = {**revision, "link": link, "applied": tuple(revision["applied"])}
    sealed = SealedRevision(**{**given, "approval": json.dumps({**approval, "confirmations": entries})})
    sealed = replace(sealed, seal=signed(last, sealed.statement(project)))
    for path in files:
        path.write_text(json.dumps(asdict(sealed)), encoding="utf-8")

    served = schema_in(data_dir, saved, "acme").load()

    assert (saved["entries"]["acme"][-1] in [entry.content for entry in served.entries]) is is_served, served.warnings


def test_a_jointly_sealed_text_counts_for_its_own_account_alone(data_dir: Path, saved: Any) -> None:
    """Attack: another account's settings are pointed at the archive."""
    served = schema_in(data_dir, saved, "acme", account="globex").load()
    assert not served.entries and served.warnings


LINES: dict[str, Callable[[Any, Any], object]] = {
    "another holder": lambda made, _: made.update(user="mallory"),
    "a higher role": lambda made, _: made.update(role="admin"),
    "no signature": lambda made, _: made.update(signature=""),
    "no time": lambda made, _: made.update(created_at="no time"),
    "an admin that is no admin": lambda _, admin: admin.update(role="approver"),
    "an admin that had ended": lambda _, admin: admin.update(revoked_at="2000-01-01T00:00:00+00:00"),
}


@pytest.mark.parametrize("forged", LINES)
def test_a_line_in_the_file_that_claims_an_admin_opens_nothing(data_dir: Path, saved: Any, forged: str) -> None:
    """Attack: records of an admin's key written into the file, or changed there."""
    path = data_dir / "team" / "keys.json"
    known = json.loads(path.read_text(encoding="utf-8"))
    (made,) = (row for row in known["keys"] if row["made_with"])
    (admin,) = (row for row in known["keys"] if row["id"] == made["made_with"])
    LINES[forged](made, admin)
    path.write_text(json.dumps(known), encoding="utf-8")
    assert made["id"] not in KeyFile.of(data_dir, JsonlAudit(data_dir / "audit" / "audit.jsonl")).all()
