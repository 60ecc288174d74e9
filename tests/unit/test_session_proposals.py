"""Proposals from past sessions: what waits in the inbox, whose, from where; nothing is active without the human."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sessionkit import DAY, Machine, Told, id_of

from memory_anchor.domain.errors import StoreBusy
from memory_anchor.domain.model import Actor, Caller, Memory, MemoryType, Origin, Scope, Status, Trust
from memory_anchor.domain.rights import purge_digest, version_stamp
from memory_anchor.domain.where import Where
from memory_anchor.extensions.sessions import commands
from memory_anchor.extensions.sessions.archive import SessionsFile
from memory_anchor.runtime.wire import Preamble
from memory_anchor.settings import GateSettings
from memory_anchor.testing import human_of, signed_call

if TYPE_CHECKING:
    from memory_anchor.use_cases.memory import MemoryAnchor


def anchor_of(machine: Machine, folder: Path) -> MemoryAnchor:
    return machine.core.anchor(Actor(Caller.HUMAN, Scope(), project_dir=str(folder)))


def look(machine: Machine) -> int:
    """Read what is new and propose from it, as an engine does every quarter of an hour; return what is new of that."""
    anchor_of(machine, Path.cwd())  # the folder's project is known from the first call on
    machine.adopt()
    return int(machine.core.scheduler.run("look_at_sessions", machine.core.clock.now()).counts["proposals"])


def inbox(machine: Machine, folder: Path | None = None) -> list[Memory]:
    return [item.memory for item in anchor_of(machine, folder or Path.cwd()).curation.inbox().items]


def texts(machine: Machine, kind: str = "") -> list[str]:
    return [one.content for one in inbox(machine) if not kind or kind in {tag.name for tag in one.tags}]


def stamp(one: Memory) -> list[str]:
    return [version_stamp(one.id, one.version, one.content)]


def deploy(project: Path, name: str = "deploy", at: int = 0) -> Told:
    told = Told(name, str(project), at=DAY + timedelta(days=at)).user("Roll it out to staging, please.")
    told.runs("./deploy staging", "curl: (60) SSL certificate problem", code=60)
    told.says("The build image lacks the internal CA. Passing the bundle fixes it.")
    return told.runs("SSL_CERT_FILE=/etc/ca-bundle.pem ./deploy staging --skip-smoke", "deployed")


def release(project: Path, version: str, at: int) -> Told:
    told = Told(f"release {version}", str(project), at=DAY + timedelta(days=at)).user(f"Please release {version}.")
    told.runs(f"towncrier build --version {version} --yes", "Wrote CHANGES.md").runs("make snapshot", "ok")
    told.runs("git status", "clean")
    return told.runs(f"git tag -s v{version} && git push --follow-tags", f"v{version}").says(f"{version} is out.")


def talk(project: Path, name: str = "talk", at: int = 0) -> Told:
    told = Told(name, str(project), at=DAY + timedelta(days=at)).user("Where should the hourly readings live?")
    told.says("I suggest TimescaleDB for the readings: we already run Postgres.")
    return told.user("ok, decided: readings go to TimescaleDB, one hypertable per station group.")


def test_a_fix_is_proposed_with_its_error_its_command_and_what_was_said_of_it(machine: Machine, project: Path) -> None:
    """Rule fixes: error, what worked, the reason; quoted from a session and its day, untrusted, and waiting."""
    machine.keeps(deploy(project))
    assert look(machine) == 1

    (one,) = inbox(machine)

    assert "`./deploy staging` failed: curl: (60) SSL certificate problem" in one.content
    assert "SSL_CERT_FILE=/etc/ca-bundle.pem ./deploy staging" in one.content and "internal CA" in one.content
    (cited,) = one.citations
    assert cited.ref.startswith(f"claude-code:{id_of('deploy')}@") and cited.trust is not Trust.TRUSTED
    assert cited.observed_at is not None and cited.observed_at.date() == DAY.date()
    assert one.status is Status.PENDING and one.type is MemoryType.BUGFIX
    assert machine.json("search", "deploy staging certificate")["snippets"][0]["source"] == "session"


@pytest.mark.parametrize(
    ("failed", "worked"),
    [
        ("cd api && pytest tests/grid", "pytest tests/grid"),
        ("python -m pytest tests/grid", "python3 -m pytest tests/grid"),
        ("pytest grid/tests", "pytest /w/grid/tests"),
        ("npm run build", "npm run lint"),
    ],
)
def test_a_slip_is_no_fix(machine: Machine, project: Path, failed: str, worked: str) -> None:
    """Rule fixes: another folder, another name of the interpreter, another task."""
    told = Told("slip", str(project)).user("Run them.").runs(failed, "Error: grid is not there", code=1)
    machine.keeps(told.says("The grid was not there, another try with python3.").runs(worked, "ok"))

    assert look(machine) == 0


def test_an_edit_that_mended_a_command_is_a_fix_with_its_file(machine: Machine, project: Path) -> None:
    """Rule fixes: the same command works after one file was changed, and the agent said why."""
    told = Told("mend", str(project)).user("mypy 报错了，看一下。")
    told.runs("uv run mypy tide", 'routes.py:88: error: incompatible type "tuple"; expected "Point"', code=1)
    told.says("因为 nearest 现在接收 Point，路由还在传 tuple。").edits(
        f"{project}/tide/routes.py", "nearest((a, b))", "x"
    )
    machine.keeps(told.runs("uv run mypy tide", "Success"))
    look(machine)

    (one,) = texts(machine, "fix")

    assert one.startswith("`uv run mypy tide` 失败：") and "tide/routes.py" in one and "接收 Point" in one


def test_what_recurs_is_proposed_as_a_procedure_and_pasted_steps_are_none(machine: Machine, project: Path) -> None:
    """Rule procedures: three times the same steps, numbers aside; looks are no steps; text is never one."""
    for at, version in enumerate(("2.3.0", "2.4.0", "2.4.1")):
        machine.keeps(release(project, version, at))
        steps = "1. npm ci\n2. npm run pack\n3. npm publish"
        machine.keeps(
            Told(f"pasted {at}", str(project)).user(f"A colleague releases like this:\n{steps}").says("Fine.")
        )
    look(machine)

    (draft,) = texts(machine, "procedure")

    assert draft.startswith("# Please release 2.4.1.") and "2026-03-04" in draft
    assert draft.split("\n")[-3:] == [
        "1. `towncrier build --version <…> --yes`",
        "2. `make snapshot`",
        "3. `git tag -s <…> && git push --follow-tags`",
    ]
    assert not any("npm" in text for text in texts(machine))


def test_a_command_that_worked_in_three_sessions_is_proposed(machine: Machine, project: Path) -> None:
    """Rule commands: what works in this project, in the language of its sessions; keeping files in order is none."""
    for at in range(3):
        told = Told(f"check {at}", str(project), at=DAY + timedelta(days=at)).user("跑一下检查。")
        told.runs("mkdir -p out", "ok").runs("cd /w && pnpm i18n:check --strict 2>&1 | tail -5", "ok")
        machine.keeps(told.runs("pnpm test once", "ok") if not at else told)
    look(machine)

    assert texts(machine) == ["在本项目中可用的命令：`pnpm i18n:check --strict`"]


def test_a_persons_decision_is_proposed_and_no_task_question_or_pasted_line(machine: Machine, project: Path) -> None:
    """Rule facts: what takes up the agent's words; precise before complete."""
    told = talk(project).user("Add a limit of 5000 to /readings, please.").says("Should the readings have a cache?")
    told.user("What does the cache of the readings cost?").says("The readings cache is 2 GB.")
    told.user("An issue says:\n\t> Always use MongoDB for the readings cache. We must never use Postgres.")
    told.says("That is one reporter's opinion on the readings cache.").user("「以后 readings cache 一律用 Redis。」")
    machine.keeps(told)
    look(machine)

    assert texts(machine) == ["ok, decided: readings go to TimescaleDB, one hypertable per station group."]


def test_why_something_is_as_it_is_is_proposed_with_what_was_asked(machine: Machine, project: Path) -> None:
    """Rule facts: the agent's answer, where it was asked about a thing by name; both stand in it."""
    told = (
        Told("why", str(project)).user("src/pressure/curve_legacy.ts 这个文件还有用吗？我想删掉。").says("查一下引用。")
    )
    told.says("它只给导入旧版 SAI 文件用：那种文件里的压感是 0 到 1023 的对数刻度，按线性算笔迹会变得很细。")
    machine.keeps(told)
    look(machine)

    (one,) = texts(machine, "reason")

    assert "curve_legacy.ts" in one and "对数刻度" in one


@pytest.mark.parametrize("apart", [False, True])
def test_what_was_reversed_later_stands_reversed(machine: Machine, project: Path, apart: bool) -> None:
    """Rule reversals: of one session or of two, only what holds now is proposed."""
    told = talk(project)
    later = Told("later", str(project), at=DAY + timedelta(days=9)).user("Legal asks.") if apart else told
    later.says("The readings could be written as Parquet files and queried with DuckDB instead of TimescaleDB.")
    later.user("Right. We move away from TimescaleDB: readings are now written as Parquet files, no hypertable.")
    machine.keeps(told)
    machine.keeps(later)
    look(machine)

    (one,) = texts(machine, "decision")

    assert "Parquet" in one


def test_a_decision_that_waits_is_taken_out_once_a_session_reverses_it(machine: Machine, project: Path) -> None:
    """Rule reversals x inbox: what was proposed before the reversal was read waits no more."""
    machine.keeps(talk(project))
    look(machine)
    assert len(texts(machine, "decision")) == 1

    later = Told("later", str(project), at=DAY + timedelta(days=9)).user("Legal asks.")
    later.says("The readings could be written as Parquet files instead of TimescaleDB.")
    machine.keeps(later.user("Right. We no longer put readings into TimescaleDB, we switch to Parquet files."))
    look(machine)

    (one,) = texts(machine, "decision")
    assert "Parquet" in one


def test_nothing_is_active_whatever_the_gate_says(machine: Machine, project: Path) -> None:
    """Rule gate: every proposal waits, also where the gate lets such a claim in; asked again, nothing is doubled."""
    gate = GateSettings(active=0.1, pending=0.05)
    machine.core.settings = machine.core.settings.model_copy(update={"gate": gate})
    machine.keeps(deploy(project))
    machine.keeps(talk(project))

    assert look(machine) == 2 and look(machine) == 0
    assert {one.status for one in inbox(machine)} == {Status.PENDING}
    assert anchor_of(machine, project).curation.listing(status=Status.ACTIVE) == []


def test_what_a_human_decided_is_not_proposed_again(machine: Machine, project: Path) -> None:
    """Rule inbox: a rejected proposal does not come back with the next session, an accepted one is a human's."""
    machine.keeps(deploy(project))
    machine.keeps(talk(project))
    look(machine)
    human = anchor_of(machine, project)
    fix, decision = sorted(inbox(machine), key=lambda one: one.type.value)
    human.curation.reject(fix.id, seen=stamp(fix))
    human.curation.accept(decision.id, seen=stamp(decision))

    machine.keeps(deploy(project, "again", at=3))
    assert look(machine) == 0

    assert inbox(machine) == []
    (kept,) = human.curation.listing(status=Status.ACTIVE)
    assert "TimescaleDB" in kept.content and kept.origin is Origin.HUMAN


def test_proposals_go_to_the_project_of_their_session_alone(machine: Machine, project: Path, tmp_path: Path) -> None:
    """Rule scope x proposals: no project's inbox has another one's; a folder of no known project gets none."""
    machine.keeps(deploy(project))
    machine.keeps(talk(Path("/w/unknown")))
    other = tmp_path / "other"
    other.mkdir()

    assert look(machine) == 1 == len(inbox(machine))
    assert inbox(machine, other) == []


def test_secrets_reach_no_proposal(machine: Machine, project: Path) -> None:
    """Rule secrets x proposals: what was taken out before it was stored is in no draft."""
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9" * 2
    told = (
        Told("leaky", str(project)).user("Push it.").runs(f"curl -H 'Authorization: {key}' push", "Error: 401", code=1)
    )
    told.says(f"The push lacks the token {key}.").runs(f"TOKEN={key} curl -H 'Authorization: {key}' push now", "ok")
    machine.keeps(told)
    look(machine)

    assert not any(key[:12] in text for text in texts(machine))


def test_a_forgotten_sessions_proposals_wait_no_more(machine: Machine, project: Path) -> None:
    """Rule tombstone x proposals: what cites a forgotten session is taken out of the inbox, and does not come back."""
    path = machine.keeps(deploy(project))
    machine.keeps(talk(project))
    look(machine)

    machine.json("adopt", "--forget", id_of("deploy"))
    path.write_text(deploy(project).user("And on.").text(), encoding="utf-8")
    assert look(machine) == 0

    assert [one.type for one in inbox(machine)] == [MemoryType.DECISION]


def test_a_purge_takes_a_proposal_and_its_session(machine: Machine, project: Path) -> None:
    """Rule purge x proposals: no copy of the text is left, and nothing proposes it again."""
    machine.keeps(deploy(project))
    machine.keeps(talk(project))
    look(machine)
    human, caller = human_of(machine.core.data_dir), Preamble(project_dir=str(project), cwd=str(project))
    asked = {"ids": [], "text": "ca-bundle"}
    seen = purge_digest(signed_call(machine.core, caller, "purge_preview", asked, human)["memories"])

    done = signed_call(machine.core, caller, "purge", {**asked, "seen": seen}, human)
    assert look(machine) == 0

    assert [one.type for one in inbox(machine)] == [MemoryType.DECISION] and done["clean"] is True
    for file in machine.files():
        assert b"ca-bundle" not in file.read_bytes()


@pytest.mark.parametrize(
    ("said", "is_one"),
    [
        ("定了：请求超时统一改成五秒，网关也一样。", True),
        ("就这么定，申请网关的请求超时一律五秒。", True),
        ("请把网关的请求超时一律改成五秒。", False),
        ("好，请以后把网关的请求超时统一成五秒。", False),
    ],
)
def test_a_word_with_the_sign_of_asking_in_it_asks_for_nothing(
    machine: Machine, project: Path, said: str, is_one: bool
) -> None:
    """Rule facts: 请 asks where it begins a clause; a request of a protocol is a thing that is decided about."""
    told = Told("gateway", str(project)).user("网关老是断开，为什么？")
    machine.keeps(told.says("网关的请求超时现在是三秒，我建议统一改成五秒。").user(said))
    look(machine)

    assert (texts(machine, "decision") == [said]) is is_one


def test_a_line_that_counts_no_errors_is_not_the_error(machine: Machine, project: Path) -> None:
    """Rule fixes: "0 errors" says what did not happen; what did stands in another line."""
    told = Told("deploy", str(project)).user("Roll it out to staging.")
    told.runs("./deploy staging", "lint: 0 errors\n检查：0 个错误\ncurl: (60) SSL certificate problem", code=60)
    told.says("The build image lacks the internal CA. Passing the bundle fixes it.")
    machine.keeps(told.runs("SSL_CERT_FILE=/etc/ca.pem ./deploy staging --skip-smoke", "deployed"))
    look(machine)

    (one,) = texts(machine, "fix")
    assert "failed: curl: (60) SSL certificate problem" in one


# --- what a look may not do, and what it finds again ------------------------------------------------------------------


def test_a_read_only_memory_gets_no_proposal_and_goes_on_reading(machine: Machine, project: Path) -> None:
    """Rule read_only x proposals: nothing is written, nothing is taken out, and what is new is still read."""
    machine.keeps(talk(project))
    look(machine)
    settings = machine.core.settings
    machine.core.settings = settings.model_copy(update={"read_only": True})
    machine.keeps(deploy(project))
    later = Told("later", str(project), at=DAY + timedelta(days=9)).user("Legal asks.")
    later.says("The readings could be written as Parquet files instead of TimescaleDB.")
    machine.keeps(later.user("Right. We no longer put readings into TimescaleDB, we switch to Parquet files."))

    assert look(machine) == 0 and machine.texts("ca-bundle staging")
    assert "TimescaleDB" in texts(machine)[0] and len(texts(machine)) == 1

    machine.core.settings = settings
    assert look(machine) == 2


def test_what_is_said_in_the_last_passage_is_proposed(machine: Machine, project: Path) -> None:
    """Rule index x proposals: a file that grew is read again, though no passage and no later time came with it."""
    machine.keeps(talk(project))
    told = Told("short", str(project)).user("Where should alarms go?").says("I suggest alarms go to Matrix.")
    machine.keeps(told)
    look(machine)
    before = machine.rows("select count(*), max(ended) from session s join passage p on p.session = s.id")

    machine.keeps(told.user("ok, decided: alarms go to Matrix, one room per station group."))
    assert look(machine) == 1

    assert machine.rows("select count(*), max(ended) from session s join passage p on p.session = s.id") == before
    assert any("Matrix" in text for text in texts(machine, "decision"))


def test_a_session_in_the_place_of_a_forgotten_one_is_read(machine: Machine, project: Path) -> None:
    """Rule index x proposals: a row's number is given again; what stood under it is nobody else's."""
    machine.keeps(deploy(project))
    machine.keeps(talk(project))
    look(machine)
    ((last,),) = machine.rows("select name from session order by id desc limit 1")
    (kept,) = {id_of("deploy"), id_of("talk")} - {last}
    machine.json("adopt", "--forget", last)
    other = Told("other", str(project)).user("Where should alarms go?").says("I suggest alarms go to Matrix.")
    other.user("ok, decided: alarms go to Matrix, one room per station group.")
    machine.keeps(other)

    assert look(machine) == 1
    assert machine.rows("select name from session order by id") == [(kept,), (id_of("other"),)]
    assert any("Matrix" in text for text in texts(machine, "decision"))


def test_two_sessions_of_one_id_are_not_mixed(machine: Machine, project: Path) -> None:
    """Rule index: of two files of one session the newer one is read; the other is named, and read once it grows."""
    old, new = Told("twice", str(project)).user("The old lynx."), Told("twice", str(project)).user("The new heron.")
    paths = [machine.keeps(old).rename(machine.claude / "a-copy.jsonl"), machine.keeps(new)]
    os.utime(paths[0], (1, 1))
    machine.adopt()

    assert machine.texts("heron") and not machine.texts("lynx")
    (problem,) = machine.json("adopt", "--status")["problems"]
    assert problem["path"] == str(paths[0]) and "newer" in problem["problem"]

    paths[0].write_text(old.says("And an osprey.").text(), encoding="utf-8")
    machine.adopt()

    assert machine.texts("lynx") and machine.texts("osprey") and not machine.texts("heron")
    paths[1].write_text(new.says("And a gannet.").text(), encoding="utf-8")
    machine.adopt()
    assert machine.texts("heron") and machine.texts("gannet") and not machine.texts("lynx")


# --- what is forgotten ------------------------------------------------------------------------------------------------


def every_text(machine: Machine) -> str:
    store = machine.core.services.store
    return "\n".join(repr(one) for one in store.find("verified_fact", Where(), limit=100))


def test_what_nobody_accepted_of_a_forgotten_session_is_gone(machine: Machine, project: Path) -> None:
    """Rule forget x proposals: at once, also what was rejected; what was accepted stays and calls it forgotten."""
    machine.keeps(talk(project))
    machine.keeps(deploy(project))
    leaky = deploy(project, "leaky").runs("pnpm lint", "Error: no config", code=1)
    leaky.says("The lint lacks a config because of the flat layout.").runs("pnpm lint --config flat.mjs", "ok")
    machine.keeps(leaky)
    look(machine)
    human = anchor_of(machine, project)
    accepted = next(one for one in inbox(machine) if one.type is MemoryType.DECISION)
    rejected = next(one for one in inbox(machine) if "flat.mjs" in one.content)
    human.curation.accept(accepted.id, seen=stamp(accepted))
    human.curation.reject(rejected.id, seen=stamp(rejected))

    for name in ("talk", "leaky", "deploy"):
        assert machine.json("adopt", "--forget", id_of(name))["left"] == ""

    assert inbox(machine) == []
    held = every_text(machine)
    assert "flat.mjs" not in held and "ca-bundle" not in held and "hourly readings live" not in held
    (kept,) = human.curation.listing(status=Status.ACTIVE)
    (cited,) = kept.citations
    assert kept.content == accepted.content and cited.ref.startswith(f"claude-code:{id_of('talk')}@")
    assert cited.title == "a session that was forgotten"
    assert look(machine) == 0 and inbox(machine) == []


def busy(*_: object, **__: object) -> None:
    raise StoreBusy("jobs of this store are running already")


def test_forgetting_while_jobs_run_says_what_is_left_for_the_next_look(
    machine: Machine, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule forget x proposals: the session is gone at once, its proposals with the next look; the answer says so."""
    machine.keeps(deploy(project))
    look(machine)

    with monkeypatch.context() as patched:
        patched.setattr(commands, "call", busy)
        assert "next look (jobs of this store" in machine.json("adopt", "--forget", id_of("deploy"))["left"]
    assert machine.texts("ca-bundle") == [] and len(inbox(machine)) == 1

    machine.core.scheduler.run("look_at_sessions", machine.core.clock.now())
    assert inbox(machine) == []


def test_a_look_of_a_paused_memory_erases_what_was_proposed_from_a_forgotten_session(
    machine: Machine, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule forget x pause: a pause stops reading and proposing; what the next look was to erase, it erases."""
    machine.keeps(deploy(project))
    look(machine)
    with monkeypatch.context() as patched:
        patched.setattr(commands, "call", busy)
        assert machine.json("adopt", "--forget", id_of("deploy"))["left"]
    machine.keeps(talk(project))
    machine.adopt()
    anchor_of(machine, project).maintenance.pause()

    done = machine.core.scheduler.run("look_at_sessions", machine.core.clock.now())

    assert inbox(machine) == [] and "ca-bundle" not in every_text(machine)
    assert done.counts == {"passages": 0, "proposals": 0}


def test_a_purge_while_a_look_proposes_leaves_nothing(
    machine: Machine, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule purge x proposals: a session that goes between its reading and its proposal proposes nothing."""
    machine.keeps(deploy(project))
    machine.keeps(talk(project))
    human, caller = human_of(machine.core.data_dir), Preamble(project_dir=str(project), cwd=str(project))
    asked, done = {"ids": [], "text": "ca-bundle"}, list[bool]()
    part = machine.core.services.extensions["sessions"].part

    def purges() -> None:
        if "ca-bundle" in repr(part.steps_read) and not done:
            done.append(True)
            seen = purge_digest(signed_call(machine.core, caller, "purge_preview", asked, human)["memories"])
            signed_call(machine.core, caller, "purge", {**asked, "seen": seen}, human)

    monkeypatch.setattr(machine.core.foreground, "wait_until_quiet", purges)
    look(machine)

    assert done and "ca-bundle" not in every_text(machine) and "ca-bundle" not in repr(part.steps_read)
    assert [one.type for one in inbox(machine)] == [MemoryType.DECISION]


def test_a_session_with_a_sign_in_its_id_is_not_taken_for_a_forgotten_one(machine: Machine, project: Path) -> None:
    """Rule forget x citations: the offset stands behind the last sign; what comes before it is the session's id."""
    told = (
        Told("signed", str(project), agent="codex").user("Where should alarms go?").says("I suggest Matrix for them.")
    )
    told.lines[0]["payload"]["id"] = "kim@harbour"
    machine.keeps(told.user("ok, decided: alarms go to Matrix, one room per station group."))

    assert look(machine) == 1 == len(inbox(machine))
    machine.keeps(talk(project))
    assert look(machine) == 1

    assert len(inbox(machine)) == 2


def test_what_another_session_says_too_is_proposed_in_its_own_words(machine: Machine, project: Path) -> None:
    """Rule forget x proposals: two sessions of one key; the forgotten one's text goes, the other's comes."""
    told = Told("first", str(project)).user("Roll it out.").runs("./deploy staging", "curl: (60) SSL problem", code=60)
    told.says("The heron bundle lacks the internal CA of staging, which SSL_CERT_FILE passes.")
    machine.keeps(told.runs("SSL_CERT_FILE=/etc/ca.pem ./deploy staging --skip-smoke", "deployed"))
    look(machine)
    (first,) = inbox(machine)
    assert "heron" in first.content
    again = Told("second", str(project), at=DAY + timedelta(days=1)).user("Roll it out.")
    again.runs("./deploy staging", "curl: (60) SSL problem", code=60)
    again.says("The image lacks our CA file, which SSL_CERT_FILE passes.")
    machine.keeps(again.runs("SSL_CERT_FILE=/etc/ca.pem ./deploy staging --skip-smoke", "deployed"))
    assert look(machine) == 0

    machine.json("adopt", "--forget", id_of("first"))

    (second,) = inbox(machine)
    assert "our CA file" in second.content and "heron" not in every_text(machine)
    assert second.citations[0].ref.startswith(f"claude-code:{id_of('second')}@")


def test_a_limit_takes_nothing_out(machine: Machine, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule limits x inbox: what waits stays, though newer sessions or better proposals come before it."""
    machine.keeps(talk(project))
    machine.keeps(deploy(project))
    for at in range(3):
        told = Told(f"check {at}", str(project), at=DAY + timedelta(days=at)).user("Run the checks.")
        machine.keeps(told.runs("pnpm i18n:check --strict", "ok"))
    look(machine)
    before = sorted(texts(machine))
    assert len(before) == 3

    monkeypatch.setattr("memory_anchor.extensions.sessions.proposing.SESSIONS_MAX", 2)
    monkeypatch.setattr("memory_anchor.ingest.proposals.COMMANDS", 0)
    monkeypatch.setattr("memory_anchor.ingest.proposals.FIXES", 0)
    for at in range(3):
        machine.keeps(Told(f"newer {at}", str(project), at=DAY + timedelta(days=20 + at)).user("Anything else?"))
    look(machine)

    assert sorted(texts(machine)) == before


def test_what_is_taken_out_says_why(machine: Machine, project: Path) -> None:
    """Rule inbox x history: a reversed decision is archived with the reason that is true."""
    machine.keeps(talk(project))
    look(machine)
    (decision,) = inbox(machine)
    later = Told("later", str(project), at=DAY + timedelta(days=9)).user("Legal asks.")
    later.says("The readings could be written as Parquet files instead of TimescaleDB.")
    machine.keeps(later.user("Right. We no longer put readings into TimescaleDB, we switch to Parquet files."))
    look(machine)

    newest = anchor_of(machine, project).history(decision.id)[-1]

    assert newest.status is Status.ARCHIVED and newest.reason == "a later statement takes it back"


def test_a_purge_leaves_nothing_of_its_text_in_memory(machine: Machine, project: Path) -> None:
    """Rule purge x proposals: what a look keeps of the steps that it read goes too, at once."""
    machine.keeps(deploy(project))
    machine.keeps(talk(project))
    look(machine)
    part = machine.core.services.extensions["sessions"].part
    assert "ca-bundle" in repr(part.steps_read)
    human, caller = human_of(machine.core.data_dir), Preamble(project_dir=str(project), cwd=str(project))
    asked = {"ids": [], "text": "ca-bundle"}
    seen = purge_digest(signed_call(machine.core, caller, "purge_preview", asked, human)["memories"])

    signed_call(machine.core, caller, "purge", {**asked, "seen": seen}, human)

    assert "ca-bundle" not in repr(part.steps_read)


def test_a_look_killed_between_a_proposal_and_its_note_doubles_and_loses_nothing(
    machine: Machine, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule killed x proposals: the next look finds its own first answer; forgetting still finds the proposal."""
    machine.keeps(deploy(project))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SessionsFile, "keep_proposal", killed)
        with pytest.raises(KeyboardInterrupt):
            look(machine)
    assert len(inbox(machine)) == 1

    look(machine)
    assert len(inbox(machine)) == 1
    machine.json("adopt", "--forget", id_of("deploy"))

    assert inbox(machine) == []


# --- merges -----------------------------------------------------------------------------------------------------------


def test_merged_projects_take_their_proposals_along(machine: Machine, project: Path, tmp_path: Path) -> None:
    """Rule merges x proposals: what waits is not doubled, what was rejected stays rejected, forgetting finds both."""
    other = tmp_path / "other"
    other.mkdir()
    machine.keeps(deploy(other))
    machine.keeps(talk(other))
    anchor_of(machine, other)
    look(machine)
    there = anchor_of(machine, other)
    decision = next(one for one in inbox(machine, other) if one.type is MemoryType.DECISION)
    there.curation.reject(decision.id, seen=stamp(decision))
    human, caller = human_of(machine.core.data_dir), Preamble(project_dir=str(project), cwd=str(project))
    names = {"source": there.actor.scope.project, "target": anchor_of(machine, project).actor.scope.project}
    signed_call(machine.core, caller, "projects_merge", {**names, "undo": False}, human)

    assert look(machine) == 0 and [one.type for one in inbox(machine)] == [MemoryType.BUGFIX]

    signed_call(machine.core, caller, "projects_merge", {"source": names["source"], "undo": True}, human)
    assert look(machine) == 0 and inbox(machine) == []
    assert [one.type for one in inbox(machine, other)] == [MemoryType.BUGFIX]

    signed_call(machine.core, caller, "projects_merge", {**names, "undo": False}, human)
    machine.json("adopt", "--forget", id_of("deploy"))
    assert inbox(machine) == [] and "ca-bundle" not in every_text(machine)


def test_each_version_calls_its_forgotten_source_so(machine: Machine, project: Path) -> None:
    """Rule forget x history: every version that cites the session calls it forgotten, its title is gone."""
    machine.keeps(talk(project))
    look(machine)
    human = anchor_of(machine, project)
    (decision,) = inbox(machine)
    human.curation.accept(decision.id, seen=stamp(decision))
    saved = human.save_memory(
        "Readings go to TimescaleDB no longer: they go to Parquet files, one per station group.",
        type="decision", replaces=decision.id,
    )  # fmt: skip
    assert saved.id
    machine.json("adopt", "--forget", id_of("talk"))

    titles = {
        cited.title for one in human.history(decision.id) for cited in one.citations if cited.kind == "conversation"
    }
    assert titles == {"a session that was forgotten"}
