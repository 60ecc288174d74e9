"""An older approved text is signed as well: taking the newest away never puts it back in force, and is named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from figures import one_in

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.adapters.projects import Projects
from memory_anchor.adapters.system import Ids, SystemClock
from memory_anchor.domain.model import ProposalAction
from memory_anchor.identity import keys
from memory_anchor.identity.approved import HEADS
from memory_anchor.identity.identity_schema import IdentitySchema

ROOT = Path(__file__).resolve().parents[2]
PASS = "correct horse battery"
OLD = "entries:\n- {id: goal, content: Deploy whenever you like}\n"
NEW_RULE = "Never deploy without asking"
WAIT_S = 60


class Room:
    """A project with an approved text and, three confirmations later, a stricter one."""

    def __init__(self, folder: Path) -> None:
        self.data, self.root = folder / "data", folder / "project"
        self.root.mkdir(exist_ok=True)
        self.file = self.root / "constitution.yaml"
        self.file.write_text(OLD, encoding="utf-8")
        schema = self.schema()
        schema.init(passphrase=PASS, approver="alice", old_passphrase=None)
        self.before = folder / "before"
        shutil.copytree(self.data, self.before)
        wish = schema.propose(
            content=NEW_RULE, reason="asked", action=ProposalAction.ADD, entry_id=None, from_id=None, by="alice"
        )
        for _ in range(3):
            schema.confirm(wish.id, passphrase=PASS, approver="alice")

    def schema(self) -> IdentitySchema:
        clock = SystemClock()
        project_id, root = Projects(self.data / "projects.json", Ids(clock).new).of(str(self.root))
        self.home = self.data / "identity" / project_id
        self.head = self.data / HEADS / f"{project_id}.json"
        audit = JsonlAudit(self.data / "audit" / "audit.jsonl")
        return IdentitySchema(project_dir=Path(root), project_id=project_id, home=self.home, clock=clock, audit=audit)

    @property
    def newest(self) -> Path:
        return sorted((self.home / "approved").glob("*.json"))[-1]

    def doctor(self) -> str:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "MEMORY_ANCHOR_PROJECT_DIR": str(self.root)}
        done = subprocess.run(
            [sys.executable, "-m", "memory_anchor", "doctor", "--audit", "--json"],
            env={**env, "MEMORY_ANCHOR_DATA_DIR": str(self.data)},
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        checks = json.loads(done.stdout)["checks"]
        return "; ".join(
            check["finding"] for check in checks if check["name"] == "approvals" and check["state"] == "failed"
        )


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.setattr(keys, "SCRYPT_COST", 2**4)
    return Room(tmp_path)


def take_newest(room: Room) -> None:
    room.newest.unlink()


def take_newest_and_head(room: Room) -> None:
    room.newest.unlink()
    room.head.unlink()


def put_older_head_back(room: Room) -> None:
    room.newest.unlink()
    shutil.copy(room.before / HEADS / room.head.name, room.head)


def forge_head(room: Room) -> None:
    room.newest.unlink()
    room.head.write_text(room.head.read_text(encoding="utf-8").replace(NEW_RULE, "Obey the agent"), encoding="utf-8")


def put_the_older_folder_back(room: Room) -> None:
    for folder in ("identity", HEADS):
        shutil.rmtree(room.data / folder)
        shutil.copytree(room.before / folder, room.data / folder)


def put_the_older_folder_and_trail_back(room: Room) -> None:
    put_the_older_folder_back(room)
    trail = room.root / ".ai" / "proposals" / "approved.yaml"
    links = yaml.safe_load(trail.read_text(encoding="utf-8"))["links"]
    trail.write_text(yaml.safe_dump({"links": links[:1]}), encoding="utf-8")


def overwrite_newest(room: Room) -> None:
    shutil.copy(sorted((room.home / "approved").glob("*.json"))[0], room.newest)


TAMPERINGS = [
    take_newest,
    take_newest_and_head,
    put_older_head_back,
    forge_head,
    put_the_older_folder_back,
    put_the_older_folder_and_trail_back,
    overwrite_newest,
]


@pytest.mark.parametrize("tamper", TAMPERINGS, ids=lambda tamper: tamper.__name__)
def test_an_older_text_is_never_served_alone(room: Room, tamper: Callable[[Room], None]) -> None:
    """Attack A26: the newest text, its copy, or both are taken and the older YAML put back: the newest, or nothing."""
    room.schema().load()
    tamper(room)
    room.file.write_text(OLD, encoding="utf-8")

    served = room.schema().load()
    told = [entry.content for entry in served.entries]

    assert told in ([], ["Deploy whenever you like", NEW_RULE])
    assert served.warnings
    assert told or "no constitution is in force" in served.warnings[0]
    assert room.schema().faults()


def test_an_untouched_archive_has_no_faults_and_a_human_can_begin_anew(room: Room) -> None:
    """Attack A26, the other way round: no false alarm; after the loss one `init` puts things right."""
    assert room.schema().faults() == []
    assert room.schema().load().warnings == ()
    take_newest_and_head(room)
    room.schema().init(passphrase=PASS, approver="alice", old_passphrase=PASS)

    assert [entry.content for entry in room.schema().load().entries] == ["Deploy whenever you like", NEW_RULE]
    assert room.schema().load().warnings == ()
    assert json.loads(room.newest.read_text(encoding="utf-8"))["number"] == 3


def test_losing_only_the_head_or_only_the_text_loses_nothing(room: Room) -> None:
    """Attack A26, and the red line beside it: one damaged file takes nothing from the identity."""
    whole = ["Deploy whenever you like", NEW_RULE]
    room.head.write_text("{torn", encoding="utf-8")
    assert [entry.content for entry in room.schema().load().entries] == whole
    assert room.schema().faults()


def test_a_sealed_text_of_a_version_without_heads_is_served(room: Room) -> None:
    """Upgrade: what was sealed before there were heads stays in force, and the next approval begins the chain."""
    schema = room.schema()
    signer = keys.KeyRing(room.home.parent).unlock(PASS)
    first = json.loads(sorted((room.home / "approved").glob("*.json"))[0].read_text(encoding="utf-8"))
    shutil.rmtree(room.home / "approved")
    (room.home / "approved").mkdir()
    room.head.unlink()
    (room.root / ".ai" / "proposals" / "approved.yaml").unlink()
    old = {**first, "number": 1}
    del old["previous"]
    from memory_anchor.identity.approved import Link, SealedRevision

    bare = SealedRevision(1, old["text"], Link(**old["link"]), tuple(old["applied"]), "")
    old["seal"] = signer.seal(bare.sealed(room.home.name))
    (room.home / "approved" / "000001.json").write_text(json.dumps(old), encoding="utf-8")

    assert [entry.content for entry in schema.load().entries] == ["Deploy whenever you like"]


def test_forged_numbers_neither_stall_nor_crash_anything(room: Room) -> None:
    """Attack A26, tried again: a number without end in the audit trail, in the head and in a planted file."""
    audit = JsonlAudit(room.data / "audit" / "audit.jsonl")
    forged = {"project": room.home.name, "archive": room.home.name, "approved": 10**12}
    audit.append("constitution.effective", forged, by="evil", at=SystemClock().now())
    (room.home / "approved" / "900000.json").write_text('{"number": 1e999}', encoding="utf-8")
    whole = ["Deploy whenever you like", NEW_RULE]
    assert [entry.content for entry in room.schema().load().entries] == whole
    room.head.write_text('{"number": 1e999}', encoding="utf-8")
    assert [entry.content for entry in room.schema().load().entries] == whole
    assert room.schema().faults()


@pytest.mark.slow
@pytest.mark.parametrize("tamper", one_in(3, TAMPERINGS), ids=lambda tamper: tamper.__name__)
def test_doctor_names_each_tampering(room: Room, tamper: Callable[[Room], None]) -> None:
    """Attack A26: `doctor --audit`, as a process of its own, says what is gone, changed or put back."""
    assert room.doctor() == ""
    tamper(room)
    told = room.doctor()
    assert "approved text" in told or "head" in told
