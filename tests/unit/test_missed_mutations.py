"""What no quick test noticed when it was changed on purpose: each promise through the public door."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.adapters import git
from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.admin import backup
from memory_anchor.base import nofollow
from memory_anchor.domain.errors import Refused, StoreDamaged
from memory_anchor.domain.model import Actor, Caller, Origin, Outcome, Status
from memory_anchor.front import calls
from memory_anchor.identity.signed_requests import CHALLENGE_CALL, sign_request
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.relay import Relay
from memory_anchor.runtime.wire import Preamble
from memory_anchor.testing import ManualClock, human_of
from memory_anchor.use_cases.memory import MemoryAnchor

# --- gate -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["user", "human", "system"])
def test_an_agent_that_claims_to_be_somebody_else_is_an_agent(anchor: MemoryAnchor, source: str) -> None:
    """Mutation gate-04: `source` never makes an agent's word a human's or the system's."""
    fact = anchor.get(anchor.save_memory("The crane lifts nine tons", confidence=1.0, source=source).id)
    event = anchor.get(anchor.log_event("The crane was greased", source=source).id)

    assert (fact.origin, fact.confidence, event.origin) == (Origin.AGENT, 0.95, Origin.AGENT)


def test_a_projects_stricter_gate_holds_for_a_promotion_too(core: Core, agent: Actor, project: Path) -> None:
    """Mutation gate-05: by whatever door, a fact of this project passes this project's gate."""
    (project / "memory-anchor.yaml").write_text("gate: {active: 0.97}\n", encoding="utf-8")
    anchor = core.anchor(agent)
    event = anchor.log_event("The crane was greased")

    told = anchor.promote(event.id, content="The crane is greased on Mondays", confidence=0.95)

    assert (told.outcome, told.status) == (Outcome.PENDING, Status.PENDING)


# --- a human's word ---------------------------------------------------------------------------------------------


def test_a_signature_for_one_project_is_none_for_the_one_the_folder_is_linked_to_since(
    core: Core, agent: Actor, tmp_path: Path
) -> None:
    """Attack A27: between challenge and request the folder became another project's; nothing was signed for that."""
    shed, barn = tmp_path / "shed", tmp_path / "barn"
    for folder in (shed, barn):
        folder.mkdir()
    barns = core.anchor(replace(agent, project_dir=str(barn))).actor.scope.project
    caller = Preamble(client="cli", project_dir=str(shed), zone="UTC")
    told = calls.run(core, caller, CHALLENGE_CALL, {})["challenge"]
    given: dict[str, Any] = {"content": "The boiler is checked on Mondays"}
    proof = sign_request(human_of(core.data_dir), "add", given, caller._asdict(), told)

    core.projects.link(str(shed), barns)

    with pytest.raises(Refused, match="another account or project"):
        calls.run(core, caller, "add", {**given, "human": proof})
    assert calls.run(core, caller, "list", {})["memories"] == []


def test_saying_it_twice_lets_nothing_in_that_waits_for_a_human(anchor: MemoryAnchor) -> None:
    """Mutation rights-09: an agent's repeat, however sure, strengthens what waits and accepts nothing."""
    first = anchor.save_memory("The importer probably needs a cache", confidence=0.75)

    again = anchor.save_memory("The importer probably needs a cache", confidence=0.95)

    assert (again.outcome, again.id) == (Outcome.SKIPPED, first.id)
    assert anchor.get(first.id).status is Status.PENDING


# --- scope ------------------------------------------------------------------------------------------------------


def test_a_new_process_tells_one_conversation_id_in_two_projects_apart(
    core: Core, anchor: MemoryAnchor, agent: Actor, tmp_path: Path
) -> None:
    """Mutation scope-05: the number and what went before come from this project's own events."""
    (tmp_path / "elsewhere").mkdir()
    elsewhere = core.anchor(replace(agent, project_dir=str(tmp_path / "elsewhere")))
    for text in ("The blue vault was opened", "The blue vault was closed"):
        anchor.log_event(text)
    core.services.events.clear_cache()

    told = elsewhere.get(elsewhere.log_event("Lunch was late").id)

    assert (told.conversation_seq, told.context) == (1, "")


@pytest.mark.parametrize("ref", ["../secret", "a/../../secret", "..", "/etc/passwd"])
def test_no_path_leads_above_the_folder_it_is_read_below(tmp_path: Path, ref: str) -> None:
    """Attack A24: reading and writing below a folder take no step up, link or not."""
    below = tmp_path / "below"
    (below / "a").mkdir(parents=True)
    (tmp_path / "secret").write_text("the vault's number", encoding="utf-8")

    with pytest.raises(OSError, match="not a path below"):
        nofollow.read(below, ref, most_bytes=100)
    with pytest.raises(Refused, match="not a path below"):
        nofollow.write(below, ref, b"forged")
    assert nofollow.status(tmp_path, "secret") is not None
    assert (tmp_path / "secret").read_text(encoding="utf-8") == "the vault's number"


# --- contexts ---------------------------------------------------------------------------------------------------


def test_twenty_entries_of_l0_stand_in_a_context_whole(
    anchor: MemoryAnchor, project: Path, approve: Callable[..., MemoryAnchor]
) -> None:
    """Mutation budget-03: never cut, whatever the budget of the rest."""
    rules = [f"Rule {number} of the mill" for number in range(20)]
    entries = "".join(f"  - {{id: r{number}, content: {rule}}}\n" for number, rule in enumerate(rules))
    (project / "constitution.yaml").write_text(f"entries:\n{entries}", encoding="utf-8")
    approve(anchor)

    for budget in (None, 400):
        text = anchor.build_context("grease the crane", budget_tokens=budget).text
        assert [rule for rule in rules if f"- {rule}\n" not in text + "\n"] == []


# --- projects ---------------------------------------------------------------------------------------------------


def test_taking_a_merge_back_leaves_what_went_on_to_another_project(core: Core, agent: Actor, tmp_path: Path) -> None:
    """Issue 12, project identity: an undo moves what is still where the merge put it, and nothing else."""
    folders = [tmp_path / name for name in ("one", "two", "three")]
    for folder in folders:
        folder.mkdir()
    one, two, three = (core.anchor(replace(agent, project_dir=str(folder))) for folder in folders)
    kept = str(one.save_memory("The password lives in the blue vault").id)
    ids = [each.actor.scope.project for each in (one, two, three)]
    human = core.anchor(replace(agent, project_dir=str(folders[2]), caller=Caller.HUMAN))
    for source, target in pairwise(ids):
        calls.answer("projects_merge", human, {"source": source, "target": target})

    calls.answer("projects_merge", human, {"source": ids[0], "undo": True})

    assert three.get(kept).scope.project == ids[2]


# --- audit ------------------------------------------------------------------------------------------------------


def trail(folder: Path) -> JsonlAudit:
    return JsonlAudit(folder / "audit.jsonl")


def test_a_forged_last_record_is_named_before_and_after_the_next_write(tmp_path: Path, clock: ManualClock) -> None:
    """Mutations audit-02, audit-03: its own hash made right, and something written behind it."""
    for number in range(3):
        trail(tmp_path).append("save", {"number": number}, by="agent:a", at=clock.now())
    path = tmp_path / "audit.jsonl"
    *kept, last = path.read_bytes().splitlines(keepends=True)
    forged = {**json.loads(last), "what": {"number": 9}}
    del forged["hash"]
    body = json.dumps(forged, separators=(",", ":")).encode()
    hashed = hashlib.sha256(body).hexdigest()
    path.write_bytes(b"".join(kept) + json.dumps({**forged, "hash": hashed}, separators=(",", ":")).encode() + b"\n")

    assert trail(tmp_path).verify() is not None
    trail(tmp_path).append("save", {"number": 4}, by="agent:a", at=clock.now())
    assert trail(tmp_path).verify() is not None


def test_a_blank_added_to_a_record_is_named(tmp_path: Path, clock: ManualClock) -> None:
    """Mutation audit-05: the bytes are those that were written, not only what they say."""
    for number in range(2):
        trail(tmp_path).append("save", {"number": number}, by="agent:a", at=clock.now())
    path = tmp_path / "audit.jsonl"
    path.write_bytes(path.read_bytes().replace(b'{"n":1,', b'{"n": 1,'))

    broken = trail(tmp_path).verify()

    assert broken is not None and broken.line == 1


# --- bridge, Git, backups ---------------------------------------------------------------------------------------


def test_an_answer_that_comes_twice_is_told_once() -> None:
    """Mutation bridge-02: an engine that answered and is asked again by mistake."""
    relay = Relay()
    relay.engine_ready()
    relay.from_client(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n')
    answer = b'{"jsonrpc":"2.0","id":1,"result":{}}\n'

    assert [relay.from_engine(answer), relay.from_engine(answer)] == [answer, None]


def test_no_variable_of_git_reaches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation git-02: what a client's configuration sets for Git runs or writes nothing."""
    subprocess.run(["git", "init", "-q", str(tmp_path / "repo")], check=True)
    monkeypatch.setenv("GIT_TRACE", str(tmp_path / "traced"))
    repository = git.find_repository(str(tmp_path / "repo"))

    assert repository is not None
    git.run_git(repository, "rev-list", "--all")

    assert not (tmp_path / "traced").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("files/a", b"content"),
        ("files/a", b"another content"),
        ("files/../../outside", b"content"),
        ("/tmp/outside", b"content"),
    ],
)
def test_a_crafted_backup_unpacks_nothing(tmp_path: Path, name: str, said: bytes) -> None:
    """Mutations backup-01, backup-02: a whole archive whose member is not what it says, or leads elsewhere. The first
    is what it says."""
    digest = hashlib.sha256(said).hexdigest()
    about_it = {"format": 1, "version": "0", "made_at": "2026-01-01T00:00:00+00:00", "store": "edge", "collections": {}}
    manifest = {**about_it, "files": {name: [digest, len(b"content")]}}
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz") as archive:
        for member, content in (("manifest.json", json.dumps(manifest).encode()), (name, b"content")):
            about = tarfile.TarInfo(member)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))

    is_whole = (name, said) == ("files/a", b"content")
    with contextlib.nullcontext() if is_whole else pytest.raises(StoreDamaged):
        backup.unpack(tmp_path / "b.tar.gz", tmp_path / "new" / "unpacked")

    assert (tmp_path / "new" / "unpacked" / "files" / "a").exists() is (name == "files/a")
    assert not (tmp_path / "new" / "outside").exists() and not Path("/tmp/outside").exists()
