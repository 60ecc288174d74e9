"""Issue 17, replicas: the audit trail of each is on the server, complete, and verifies by itself from anywhere."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pairs import Killed, Life, Replicas, member, replicas

from memory_anchor.adapters import shared_audit
from memory_anchor.adapters.shared_audit import SharedAudit
from memory_anchor.domain.errors import MemoryAnchorError, Unavailable
from memory_anchor.domain.ports import AuditRecord, SharedRecord
from memory_anchor.front.doctor_machine import replicas_found
from memory_anchor.process.wiring import Core


def trail_of(core: Core) -> SharedAudit:
    assert isinstance(core.audit, SharedAudit)
    return core.audit


def written(core: Core) -> list[bytes]:
    path = core.data_dir / "audit" / "audit.jsonl"
    return path.read_bytes().splitlines() if path.exists() else []


def verified(core: Core) -> dict[str, tuple[int, str]]:
    """Return each chain that a replica sees: how many records it has, and what is wrong with it."""
    return {path.stem: (count, broken.why if broken else "") for path, count, broken in trail_of(core).verify_all()}


def served(service: Replicas) -> dict[str, bytes]:
    """Return chain -> its bytes on the server."""
    chains: dict[str, bytes] = {}
    for listed in service.records.listed("audit"):
        chain = listed.name.split("/")[1]
        chains[chain] = chains.get(chain, b"") + stored(service, listed.name).content
    return chains


def stored(service: Replicas, name: str) -> SharedRecord:
    record = service.records.read(name)
    assert record is not None
    return record


def all_records(core: Core) -> list[AuditRecord]:
    trail = trail_of(core)
    return [record for chain in trail.chains() for record in trail.downloaded(chain).records()]


def save(core: Core, text: str) -> None:
    core.anchor(member()).save_memory(text)


def test_every_replica_reads_and_verifies_the_trail_of_each(service: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas: one trail, a chain a replica."""
    monkeypatch.setattr(shared_audit, "SEGMENT_BYTES", 1_000)
    one, two = service.core(), service.core()
    for number in range(6):
        save(one, f"The lighthouse number {number} stands at pier {number}.")
        save(two, f"The harbour number {number} closes at {number} pm.")

    assert verified(one) == verified(two) and {why for _, why in verified(one).values()} == {""}
    files = {(core.data_dir / "audit" / "audit.jsonl").read_bytes() for core in (one, two)}
    assert set(served(service).values()) == files and len(files) == 2
    assert len(service.records.listed("audit")) > 4
    assert "save" in {record["kind"] for record in all_records(two)}
    assert not any(b"recovered" in line for core in (one, two) for line in written(core))


def test_a_changed_line_on_the_server_is_named(service: Replicas) -> None:
    """Replicas: a chain verifies by itself."""
    one, two = service.core(), service.core()
    for number in range(3):
        save(one, f"The lighthouse number {number} stands at pier {number}.")
    (segment,) = service.records.listed("audit")
    lines = stored(service, segment.name).content.splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"by":"', b'"by":"x')
    service.records.write(segment.name, b"".join(lines), before=segment.revision)

    ((count, why),) = verified(two).values()

    assert count == len(lines) and why


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_change_no_acknowledged_line_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """Replicas: the folder of a replica may be lost with it: what was answered is in the chain on the server."""
    for left in range(1, 100):
        with replicas(tmp_path / str(left), monkeypatch) as service:
            life = Life()
            one, two = service.core(life), service.core()
            life.left, life.after = left, after
            answered: list[str] = []
            with contextlib.suppress(Killed, MemoryAnchorError):
                for number in range(4):
                    text = f"The lighthouse number {number} stands at pier {number}."
                    answered.append(str(one.anchor(member()).save_memory(text).id))
            shutil.rmtree(one.data_dir)

            recorded = json.dumps(all_records(two))
            assert all(id in recorded for id in answered), left
            assert {why for _, why in verified(two).values()} <= {""}
            if life.left:
                return
    raise AssertionError("it never ended")


def test_a_folder_that_went_back_in_time_begins_another_chain(service: Replicas, tmp_path: Path) -> None:
    """Replicas: nothing on the server is written over by an older trail."""
    one = service.core()
    save(one, "The lighthouse stands at pier one.")
    shutil.copytree(one.data_dir / "audit", tmp_path / "kept")
    save(one, "The harbour closes at two.")
    before = served(service)
    runner = trail_of(one)._replica
    old = SharedAudit(tmp_path / "kept" / "audit.jsonl", service.records, runner)

    old.append("note", {"n": 1}, by="x", at=service.clock.now())

    assert len(served(service)) == 2 and before.items() <= served(service).items()
    assert {why for _, why in verified(one).values()} == {""}


def test_a_server_that_takes_no_lines_stops_writing_here_and_loses_none(
    service: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas: lines wait on disk, writing waits for them, and it goes on by itself."""
    one = service.core()
    save(one, "The lighthouse stands at pier one.")
    real = service.records.write

    def away(name: str, *given: Any, **named: Any) -> str:
        if name.startswith("audit/"):
            raise Unavailable("away")
        return real(name, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(service.records, "write", away)
        save(one, "The harbour closes at two.")  # on disk; it is the next that waits
        with pytest.raises(MemoryAnchorError):
            save(one, "The ferry leaves at three.")
    save(one, "The buoy is painted red and white.")

    assert set(served(service).values()) == {(one.data_dir / "audit" / "audit.jsonl").read_bytes()}


def test_doctor_names_the_chain_of_another_replica_that_breaks(
    service: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas: `doctor --audit` on one replica looks at all, and leaves them to read."""
    one, two = service.core(), service.core()
    for place, core in enumerate((one, two)):
        save(core, f"The lighthouse {place} stands at pier {place}.")
        save(core, f"The harbour {place} closes at {place} pm.")
    monkeypatch.setattr("memory_anchor.process.app.shared_of", lambda *_: (service.records, None))
    checks = list(replicas_found(one.settings, one.data_dir))
    assert [(check.state, check.exit_code) for check in checks] == [("ok", 0), ("ok", 0)]
    theirs = one.data_dir / "audit" / "replicas" / f"{trail_of(two)._replica}.jsonl"
    assert theirs.read_bytes() == (two.data_dir / "audit" / "audit.jsonl").read_bytes()

    name = f"audit/{trail_of(two)._replica}/000000000000.jsonl"
    segment = stored(service, name)
    service.records.write(name, segment.content.replace(b'"by":"', b'"by":"x', 1), before=segment.revision)

    states = {check.state: check for check in replicas_found(one.settings, one.data_dir)}
    assert states["failed"].exit_code == 6 and trail_of(two)._replica in states["failed"].told
