"""An admin's `/v1/keys`: keys of the own account, listed, ended, and made by a signature, never by a key alone."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from serving import Served, bearer, key_for
from typer.testing import CliRunner

from memory_anchor.core import Core
from memory_anchor.front.cli import passphrase
from memory_anchor.front.cli.app import app
from memory_anchor.front.http_api import CHANGES_A_MINUTE
from memory_anchor.identity.keys import Signer
from memory_anchor.requests import AddAccessKey
from memory_anchor.team.credential import Role
from memory_anchor.team.keys import FOLDER, KEYS_FILE, AccessKey, KeyFile, new_key
from memory_anchor.testing import PASSPHRASE, ManualClock, cheap_keys, human_of

pytestmark = pytest.mark.today


@pytest.fixture
def ann(tmp_path: Path) -> Signer:
    """An admin with a passphrase and a data folder of their own, on another machine."""
    return human_of(tmp_path / "anns machine")


def admin_of(held: Core, account: str, signer: Signer) -> tuple[str, AccessKey]:
    return key_for(held, account, user="ann", role=Role.ADMIN, public=signer.approver.public)


def signed_here(signer: Signer, admin: AccessKey, now: datetime, **more: Any) -> tuple[str, AccessKey]:
    given = {"account": admin.account, "made_with": admin.id, **more}
    return new_key(signer, new_bytes=os.urandom, now=now, **given)


def sent(served: Served, key: str, made: AccessKey, **changed: Any) -> Any:
    body = {name: getattr(made, name) for name in AddAccessKey.model_fields}
    return served.ask("POST", "/v1/keys/create", headers=bearer(key), json={**body, "role": made.role.value, **changed})


def asks(served: Served, key: str) -> int:
    return served.ask("POST", "/v1/memory/search", headers=bearer(key), json={"query": "x"}).status_code


def test_an_admin_makes_lists_and_ends_keys_of_the_own_account(served: Served, held: Core, ann: Signer) -> None:
    """Issue 17, keys: made where the passphrase is typed, told once, in no list, file or audit; ended at once."""
    own, admin = admin_of(held, "acme", ann)
    foreign, _ = key_for(held, "globex", user="bob")
    key, made = signed_here(ann, admin, held.clock.now(), user="eve", role=Role.READER, note="for reading")

    answer = sent(served, own, made)
    assert answer.status_code == 200, answer.text
    assert sent(served, own, made).json() == answer.json()
    assert asks(served, key) == 200
    listed = served.ask("GET", "/v1/keys", headers=bearer(own)).json()
    assert listed["account"] == "acme" and {one["user"] for one in listed["keys"]} == {"ann", "eve"}
    shown = json.dumps([listed, answer.json(), list(held.audit.records())], default=str)
    shown += (held.data_dir / FOLDER / KEYS_FILE).read_text()
    assert key.rpartition("_")[2] not in shown and "key.created" in shown

    ended = served.ask("POST", "/v1/keys/revoke", headers=bearer(own), json={"id": made.id})
    assert ended.status_code == 200 and ended.json()["revoked_at"] and asks(served, key) == 401
    other = foreign.split("_")[1]
    away = served.ask("POST", "/v1/keys/revoke", headers=bearer(own), json={"id": other})
    assert away.status_code == 404 and asks(served, foreign) == 200


def test_no_access_key_alone_makes_a_key(served: Served, held: Core, ann: Signer, tmp_path: Path) -> None:
    """Attack: an agent holds an admin's access key, a writer's, another account's; or the human's name with no key."""
    own, admin = admin_of(held, "acme", ann)
    unsigned, plain = key_for(held, "acme", user="dan", role=Role.ADMIN)
    other, theirs = admin_of(held, "globex", ann)
    stranger = human_of(tmp_path / "somebody else")
    now = held.clock.now()
    _, good = signed_here(ann, admin, now, user="eve")
    lower = {role: key_for(held, "acme", role=role)[0] for role in (Role.READER, Role.WRITER, Role.APPROVER)}
    tries = [
        *(sent(served, key, good) for key in lower.values()),
        sent(served, own, good, role="approver"),
        sent(served, own, good, user="mallory"),
        sent(served, own, good, signature=""),
        sent(served, own, signed_here(stranger, admin, now)[1]),
        sent(served, own, signed_here(human_of(held.data_dir), admin, now)[1]),
        sent(served, unsigned, signed_here(ann, plain, now)[1]),
        sent(served, other, good),
        sent(served, own, signed_here(ann, theirs, now)[1]),
        sent(served, own, signed_here(ann, admin, now, account="globex")[1]),
        sent(served, own, signed_here(ann, admin, now - timedelta(hours=1))[1]),
        sent(served, own, signed_here(ann, admin, now, role=Role.ADMIN)[1]),
        served.ask("POST", "/v1/keys/create", headers=bearer(own), json={"user": "eve"}),
    ]
    assert [one.status_code for one in tries[:-2]] == [403] * 5 + [400] + [403] * (len(tries) - 8), [
        one.text for one in tries
    ]
    assert [one.status_code for one in tries[-2:]] == [400, 400]
    assert len(KeyFile.of(held.data_dir, held.audit).all()) == 6
    for key in lower.values():
        assert served.ask("GET", "/v1/keys", headers=bearer(key)).status_code == 403
        assert served.ask("POST", "/v1/keys/revoke", headers=bearer(key), json={"id": admin.id}).status_code == 403


def test_a_line_in_the_file_that_claims_an_admin_opens_nothing(
    held: Core, ann: Signer, clock: ManualClock, tmp_path: Path
) -> None:
    """Attack: records written into the file; an admin that was ended makes nothing afterwards; what it made stays."""
    _, admin = admin_of(held, "acme", ann)
    keys, now = KeyFile.of(held.data_dir, held.audit), held.clock.now()
    _, first = signed_here(ann, admin, now, user="eve")
    keys.accept(first, admin.credential(), now)
    clock.advance(days=1)
    later = held.clock.now()
    keys.revoke(admin.id, later)
    _, late = signed_here(ann, admin, later + timedelta(minutes=1), user="late")
    _, forged = signed_here(human_of(tmp_path / "x"), admin, now, user="forged")
    _, raised = signed_here(ann, admin, now, user="raised", role=Role.ADMIN)
    path = held.data_dir / FOLDER / KEYS_FILE
    known = json.loads(path.read_text())
    broken = replace(forged, created_at="no time")
    known["keys"] += [asdict(one) for one in (late, forged, raised, broken)]
    path.write_text(json.dumps(known))

    assert {one.user for one in KeyFile.of(held.data_dir, held.audit).all().values()} == {"ann", "eve"}


def test_how_many_keys_change_a_minute_is_bounded(served: Served, held: Core, ann: Signer) -> None:
    """Issue 17, limits: an account's admins together; Retry-After says when."""
    own, _ = admin_of(held, "acme", ann)
    answers = [
        served.ask("POST", "/v1/keys/revoke", headers=bearer(own), json={"id": "nobody"})
        for _ in range(CHANGES_A_MINUTE + 5)
    ]
    assert [one.status_code for one in answers[:CHANGES_A_MINUTE]] == [404] * CHANGES_A_MINUTE
    assert answers[-1].status_code == 429 and int(answers[-1].headers["Retry-After"]) >= 1


def test_an_admin_works_from_their_own_machine(
    served: Served, held: Core, ann: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 17: `keys create|list|revoke --server URL --key-file FILE`; only the keyboard is played."""
    own, _ = admin_of(held, "acme", ann)
    (tmp_path / "key").write_text(f"{own}\n")
    monkeypatch.setenv("MEMORY_ANCHOR_DATA_DIR", str(tmp_path / "anns machine"))
    monkeypatch.setattr(passphrase, "ask_hidden", lambda *_: PASSPHRASE)
    there = ("--server", served.base, "--key-file", str(tmp_path / "key"), "--json")

    with cheap_keys():
        done = CliRunner().invoke(app, ["keys", "create", "--user", "eve", "--expires", "90d", *there])
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout)
    assert asks(served, made["key"]) == 200
    listed = json.loads(CliRunner().invoke(app, ["keys", "list", *there]).stdout)["keys"]
    assert {one["user"] for one in listed} == {"ann", "eve"}
    assert CliRunner().invoke(app, ["keys", "revoke", made["id"], *there]).exit_code == 0
    assert asks(served, made["key"]) == 401
    wrong = CliRunner().invoke(app, ["keys", "create", "--account", "globex", *there])
    assert wrong.exit_code == 2 and "leave it out" in wrong.output
