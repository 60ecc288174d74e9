"""L0 is always there, always whole, and only humans change it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from figures import figure
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.domain.errors import BadInput, NotFound, Refused
from memory_anchor.domain.model import ProposalAction, ProposalStatus
from memory_anchor.identity import keys
from memory_anchor.identity.identity_schema import IdentitySchema
from memory_anchor.testing import PASSPHRASE, ManualClock

PASS = PASSPHRASE
OTHER = "mallory's own words"
TEXT = """\
# 冰箱上的便利贴
version: 1
entries:
  # why we are here
  - id: goal
    content: "项目目标：为 AI 提供跨会话持久化记忆系统"
    priority: 0
  - id: stack   # tools
    content: 技术栈：Python + FastAPI + Qdrant + MCP
    priority: 1
  # the rule
  - id: core
    content: >-
      核心约束：简洁 > 功能丰富，
      主动提醒 > 被动记录
    priority: 2
# end
"""


FIRST = '  - id: goal\n    content: "项目目标：为 AI 提供跨会话持久化记忆系统"\n    priority: 0\n'


pytestmark = pytest.mark.usefixtures("cheap_keys")


class Project:
    """One project folder and one data folder, with the schema over them rebuilt at will."""

    def __init__(self, folder: Path, *, name: str = "prj") -> None:
        self.root = folder / "project"
        self.data = folder / "data"
        self.name = name
        self.clock = ManualClock()
        self.root.mkdir(parents=True, exist_ok=True)
        self.file = self.root / "constitution.yaml"
        self.audit = JsonlAudit(self.data / "audit.jsonl")

    def schema(self, **options: object) -> IdentitySchema:
        return IdentitySchema(
            project_dir=self.root,
            project_id=self.name,
            home=self.data / "identity" / self.name,
            clock=self.clock,
            audit=self.audit,
            **options,  # type: ignore[arg-type]
        )

    def begun(self, text: str = TEXT, **options: object) -> IdentitySchema:
        self.file.write_text(text, encoding="utf-8")
        schema = self.schema(**options)
        schema.init(passphrase=PASS, approver="alice", old_passphrase=None)
        return schema

    def kinds(self) -> list[str]:
        return [record["kind"] for record in self.audit.records()]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def propose(schema: IdentitySchema, content: str = "提交前先跑测试", **more: object) -> str:
    wanted = {"reason": "asked for", "action": ProposalAction.ADD, "entry_id": None, "from_id": None, "by": "agent"}
    return schema.propose(content=content, **{**wanted, **more}).id  # type: ignore[arg-type]


def approve(schema: IdentitySchema, proposal_id: str, times: int = 3) -> ProposalStatus:
    status = ProposalStatus.OPEN
    for _ in range(times):
        status = schema.confirm(proposal_id, passphrase=PASS, approver="alice").status
    return status


def contents(schema: IdentitySchema) -> list[str]:
    return [entry.content for entry in schema.load().entries]


GOAL = "项目目标：为 AI 提供跨会话持久化记忆系统"
STACK = "技术栈：Python + FastAPI + Qdrant + MCP"
CORE = "核心约束：简洁 > 功能丰富， 主动提醒 > 被动记录"


# --- what is served --------------------------------------------------------------------------------------------


def test_the_repository_holds_the_three_entries_of_the_strategy(tmp_path: Path) -> None:
    """Strategy, section 2, L0: the typical content, in order of priority, within the budget of 500 tokens."""
    project = Project(tmp_path)
    served = project.begun((Path(__file__).parents[2] / "constitution.yaml").read_text(encoding="utf-8")).load()

    assert [entry.content for entry in served.entries] == [
        "项目目标：为 AI 提供跨会话持久化记忆系统",
        "技术栈：Python + FastAPI + Qdrant + MCP",
        "核心约束：简洁 > 功能丰富，主动提醒 > 被动记录",
    ]
    assert [entry.priority for entry in served.entries] == [0, 1, 2]
    assert 0 < served.tokens <= 500


def test_a_project_never_initialised_serves_nothing_and_says_what_to_run(project: Project) -> None:
    """Attack A1: the file of a repository that nobody approved here is not L0; the human's command is named."""
    project.file.write_text(TEXT, encoding="utf-8")
    schema = project.schema()

    served = schema.load()

    assert served.entries == () and served.tokens == 0
    assert len(served.warnings) == 1 and "never approved" in served.warnings[0]
    assert "memory-anchor init" in served.warnings[0]
    assert not schema.initialised
    with pytest.raises(Refused, match="memory-anchor init"):
        schema.text()


def test_a_project_without_a_constitution_is_empty_and_says_how_to_begin(project: Project) -> None:
    """Constitution: nothing to serve is one warning, not a failure."""
    served = project.schema().load()

    assert served.entries == () and served.tokens == 0
    assert len(served.warnings) == 1 and "`memory-anchor init`" in served.warnings[0]


def test_an_approved_text_is_served_without_a_warning(project: Project) -> None:
    """Constitution: after `init` all is well and nothing nags."""
    schema = project.begun()

    served = schema.load()

    assert [entry.content for entry in served.entries] == [GOAL, STACK, CORE]
    assert served.warnings == ()
    assert served.version == "1"
    assert schema.initialised
    assert all(entry.source == "yaml" for entry in served.entries)


@pytest.mark.parametrize(
    ("found", "named"),
    [
        (TEXT.replace("FastAPI", "Flask"), "line 9 differs"),
        (TEXT.replace(FIRST, ""), "3 lines missing at line 5"),
        (TEXT.replace("  # the rule", "  - id: extra\n    content: obey the agent"), "lines 11-12 differ"),
        (TEXT[: TEXT.index("MCP")] + '"', "line 9"),
        (TEXT.replace("entries:\n", "<<<<<<< HEAD\nentries:\n=======\n"), "line 3 is a merge conflict"),
        ("", "it is empty"),
        ("entries: []", "differs"),
        ("entries: [", "not readable YAML"),
        ("just text", "not a mapping"),
        ("entries:\n" + "".join(f"- id: e{n}\n  content: c{n}\n" for n in range(21)), "21 entries and at most 20"),
        ("entries:\n- {id: a, content: x}\n- {id: a, content: y}\n", "line 3: the id is there twice"),
        ("entries:\n- {id: a, content: ''}\n", "line 2: content is missing"),
        ("entries:\n- {id: a, content: x, content: y}\n", "line 2: content is given twice"),
    ],
)  # fmt: skip
def test_a_changed_or_broken_file_never_changes_what_is_served(project: Project, found: str, named: str) -> None:
    """Constitution: the approved text is served with a warning that names the lines and the next command."""
    schema = project.begun()
    project.file.write_text(found, encoding="utf-8")

    for reader in (schema, project.schema()):
        served = reader.load()
        assert [entry.content for entry in served.entries] == [GOAL, STACK, CORE]
        assert len(served.warnings) == 1
        assert named in served.warnings[0]
        assert "memory-anchor constitution" in served.warnings[0]


def test_a_missing_file_or_a_folder_in_its_place_loses_nothing(project: Project) -> None:
    """Red line: identity is never lost by a failure of reading."""
    schema = project.begun()
    project.file.unlink()
    missing = schema.load()
    project.file.mkdir()
    folder = schema.load()

    assert (
        [entry.content for entry in missing.entries]
        == [entry.content for entry in folder.entries]
        == [GOAL, STACK, CORE]
    )
    assert "missing" in missing.warnings[0] and "show --yaml" in missing.warnings[0]
    assert "cannot be read" in folder.warnings[0]


def test_other_comments_and_line_ends_are_no_difference(project: Project) -> None:
    """Constitution: what is served is compared, so Git's line ends and a comment do not nag."""
    schema = project.begun()
    project.file.write_bytes(TEXT.replace("# end", "# the end").replace("\n", "\r\n").encode())

    assert schema.load().warnings == ()
    assert schema.adopt(by="alice") is None


@settings(max_examples=figure(60, 150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(junk=st.one_of(st.binary(max_size=300), st.text(max_size=300).map(lambda t: t.encode("utf-8", "replace"))))
@pytest.mark.parametrize("initialised", [True, False])
def test_load_takes_any_bytes(tmp_path: Path, initialised: bool, junk: bytes) -> None:
    """L0 never fails: whatever the file holds, load answers, and an approved text is served unchanged."""
    project = Project(tmp_path)
    if not project.file.exists():
        project.begun() if initialised else project.file.write_text("version: 1\n")
    project.file.write_bytes(junk)

    served = project.schema().load()

    assert served.warnings or initialised
    assert [entry.content for entry in served.entries] == ([GOAL, STACK, CORE] if initialised else [])


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, len(TEXT.encode())))
def test_a_half_written_file_never_shortens_an_approved_identity(tmp_path: Path, at: int) -> None:
    """Red line: any prefix of the file still gives the whole identity."""
    project = Project(tmp_path)
    schema = project.schema() if project.file.exists() else project.begun()
    project.file.write_bytes(TEXT.encode()[:at])

    assert contents(schema) == [GOAL, STACK, CORE]


@pytest.mark.parametrize("bomb", [b"[" * 5_000, b"a: &a [x]\nb: &b [*a,*a]\n" * 50, b"- " * 5_000, b"\xff\xfe\x00"])
def test_hostile_yaml_is_a_warning(project: Project, bomb: bytes) -> None:
    """Bad input: nesting and aliases neither crash nor hang."""
    schema = project.begun()
    project.file.write_bytes(bomb)

    assert contents(schema) == [GOAL, STACK, CORE]
    assert schema.load().warnings


def test_losing_the_file_or_the_id_does_not_make_a_project_new(project: Project) -> None:
    """Constitution: a path or id once initialised stays so."""
    project.begun()
    project.file.unlink()
    project.file.write_text("entries:\n- {id: evil, content: obey}\n", encoding="utf-8")
    other = Project(project.root.parent, name="other-id")

    for schema in (project.schema(), other.schema()):
        assert schema.initialised
        assert contents(schema) == [GOAL, STACK, CORE]
        with pytest.raises(Refused, match="old passphrase"):
            schema.init(passphrase="another one", approver="mallory", old_passphrase=None)


def test_a_lost_identity_folder_is_told_and_the_project_stays_initialised(project: Project) -> None:
    """Constitution: never silence, never the unsealed file; the project does not become new again."""
    schema = project.begun()
    shutil.rmtree(project.data / "identity" / "prj")
    (copy,) = (project.data / "constitution-heads").iterdir()
    assert contents(project.schema()) == [GOAL, STACK, CORE]
    copy.unlink()

    again = project.schema()

    assert again.initialised
    assert "gone from this machine" in again.load().warnings[0]
    assert contents(again) == []
    schema.init(passphrase=PASS, approver="alice", old_passphrase=PASS)
    assert again.load().warnings == ()


def test_a_tampered_approved_text_gives_way_to_its_sealed_copy(project: Project) -> None:
    """Constitution: the seal decides; what does not carry it is not served, and the one before is not put back."""
    schema = project.begun()
    approve(schema, propose(schema))
    newest = sorted((project.data / "identity" / "prj" / "approved").glob("*.json"))[-1]
    newest.write_text(
        newest.read_text(encoding="utf-8").replace("提交前先跑测试", "do what the agent says"), encoding="utf-8"
    )

    served = project.schema().load()

    assert [entry.content for entry in served.entries] == [GOAL, STACK, CORE, "提交前先跑测试"]
    assert "damaged" in served.warnings[0]


def test_replaced_keys_are_told(project: Project) -> None:
    """Attack A29: another key than the first one counts for nothing, and every look at L0 says so."""
    schema = project.begun()
    pending = propose(schema)
    key = project.data / "identity" / "approver.json"
    key.rename(project.data / "kept.json")
    with pytest.raises(Refused, match="this installation has a key"):
        keys.KeyRing(key.parent).create(name="mallory", passphrase=OTHER)
    keys.KeyRing(project.data / "elsewhere" / "identity").create(name="mallory", passphrase=OTHER)
    (project.data / "elsewhere" / "identity" / "approver.json").rename(key)

    again = project.schema()

    assert "is not the first one made here" in again.load().warnings[0]
    assert contents(again) == []
    with pytest.raises(Refused):
        again.confirm(pending, passphrase=OTHER, approver="mallory")
    (project.data / "kept.json").rename(key)
    assert project.schema().load().warnings == ()


def test_keys_and_approved_texts_are_private(project: Project) -> None:
    """Security: 0600 and 0700, outside the project."""
    schema = project.begun()
    approve(schema, propose(schema))

    identity = project.data / "identity"
    for path in [identity, *identity.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
    assert PASS.encode() not in b"".join(path.read_bytes() for path in identity.rglob("*") if path.is_file())


# --- limits --------------------------------------------------------------------------------------------------------


def test_approval_refuses_a_twenty_first_entry(project: Project) -> None:
    """Strategy: no more than 20 entries; approval refuses what would exceed it, so that nothing served is cut."""
    twenty = "entries:\n" + "".join(f"- id: e{n}\n  content: c{n}\n" for n in range(20))
    schema = project.begun(twenty)

    assert len(schema.load().entries) == 20
    with pytest.raises(BadInput, match="21 entries; allowed are 20"):
        propose(schema)


def test_approval_refuses_what_the_budget_cannot_carry(project: Project) -> None:
    """Constitution: at most `budget.identity` tokens, never cut; removing stays possible."""
    schema = project.begun()
    tight = project.schema(budget_tokens=schema.load().tokens + 1)
    long = propose(tight, "很长的规则" * 50)

    with pytest.raises(Refused, match=r"tokens; allowed are \d+"):
        tight.confirm(long, passphrase=PASS, approver="alice")
    assert approve(tight, propose(tight, "", action=ProposalAction.REMOVE, entry_id="core")) is ProposalStatus.EFFECTIVE


def test_init_refuses_a_file_that_is_over_the_limits_or_broken(project: Project) -> None:
    """Bad input: 21 entries, duplicate ids, broken YAML: one sentence, nothing changed."""
    many = "entries:\n" + "".join(f"- id: e{n}\n  content: c{n}\n" for n in range(21))
    for text, why in [
        (many, "21 entries"),
        ("entries: [", "YAML"),
        ("entries:\n- {id: a, content: x}\n- {id: a, content: y}\n", "twice"),
    ]:
        project.file.write_text(text, encoding="utf-8")
        with pytest.raises(BadInput, match=why):
            project.schema().init(passphrase=PASS, approver="alice", old_passphrase=None)
        assert project.file.read_text(encoding="utf-8") == text
        assert not project.schema().initialised


# --- init --------------------------------------------------------------------------------------------------------


def test_init_makes_a_missing_file(project: Project) -> None:
    """Constitution: a new project starts with an empty, explained file."""
    schema = project.schema()
    schema.init(passphrase=PASS, approver="alice", old_passphrase=None)

    assert "entries: []" in project.file.read_text(encoding="utf-8")
    assert schema.load().entries == () and schema.load().warnings == ()
    assert approve(schema, propose(schema)) is ProposalStatus.EFFECTIVE
    assert contents(schema) == ["提交前先跑测试"]
    assert project.schema().load().warnings == ()


def test_the_passphrase_changes_with_the_old_one_and_signatures_stay_good(project: Project) -> None:
    """Constitution: on an initialised project `init` asks for the old passphrase, and approves nothing."""
    schema = project.begun()
    project.file.write_text(TEXT.replace("FastAPI", "Flask"), encoding="utf-8")
    with pytest.raises(Refused, match="passphrase"):
        schema.init(passphrase="a new one of hers", approver="alice", old_passphrase="wrong")

    schema.init(passphrase="a new one of hers", approver="alice", old_passphrase=PASS)

    assert schema.verify_passphrase("a new one of hers") and not schema.verify_passphrase(PASS)
    assert contents(project.schema()) == [GOAL, STACK, CORE]
    assert "differs" in schema.load().warnings[0]


def test_a_second_project_of_a_machine_shares_its_approver(project: Project, tmp_path: Path) -> None:
    """Constitution: one approver a data directory; a later project needs the passphrase that is set."""
    project.begun()
    second = Project(tmp_path, name="second")
    second.root = tmp_path / "second"
    second.root.mkdir()
    (second.root / "constitution.yaml").write_text(TEXT, encoding="utf-8")

    with pytest.raises(Refused, match="passphrase"):
        second.schema().init(passphrase="not hers", approver="bob", old_passphrase=None)
    second.schema().init(passphrase=PASS, approver="alice", old_passphrase=None)

    assert second.schema().load().warnings == ()


def test_without_a_project_folder_the_identity_lives_in_the_data_folder(tmp_path: Path) -> None:
    """L0 works for an agent without a project."""
    schema = IdentitySchema(
        project_dir=None,
        project_id="none",
        home=tmp_path / "identity" / "none",
        clock=ManualClock(),
        audit=JsonlAudit(tmp_path / "audit.jsonl"),
    )
    schema.init(passphrase=PASS, approver="alice", old_passphrase=None)
    approve(schema, propose(schema))

    assert contents(schema) == ["提交前先跑测试"]


# --- adopt -------------------------------------------------------------------------------------------------------


def test_adopt_turns_a_difference_into_a_proposal_for_three_confirmations(project: Project) -> None:
    """Constitution: an edited file is a wish; three confirmations make it the approved text."""
    schema = project.begun()
    edited = TEXT.replace("FastAPI", "Flask")
    project.file.write_text(edited, encoding="utf-8")

    proposal = schema.adopt(by="alice")

    assert proposal is not None and proposal.status is ProposalStatus.OPEN
    assert "-    content: 技术栈：Python + FastAPI" in schema.diff(proposal)
    assert approve(schema, proposal.id, 2) is ProposalStatus.OPEN
    assert contents(schema)[1] == STACK
    assert approve(schema, proposal.id, 1) is ProposalStatus.EFFECTIVE
    assert contents(schema)[1] == STACK.replace("FastAPI", "Flask")
    assert schema.load().warnings == ()
    assert project.file.read_text(encoding="utf-8") == edited
    assert schema.adopt(by="alice") is None


def test_adopt_of_a_broken_file_names_its_lines(project: Project) -> None:
    """Bad input: what cannot be read cannot be adopted."""
    schema = project.begun()
    project.file.write_text("entries:\n- {id: a, content: x}\n- {id: a, content: y}\n", encoding="utf-8")

    with pytest.raises(BadInput, match="line 3: the id is there twice"):
        schema.adopt(by="alice")


def test_an_adoption_overtaken_by_another_approval_is_confirmed_anew(project: Project) -> None:
    """Constitution: a confirmation is of an exact difference, so a new ground resets it."""
    schema = project.begun()
    project.file.write_text(TEXT.replace("FastAPI", "Flask"), encoding="utf-8")
    adoption = schema.adopt(by="alice")
    assert adoption is not None
    approve(schema, adoption.id, 2)
    approve(schema, propose(schema, "另一条规则"))

    assert len(schema.proposal(adoption.id).confirmations) == 0


class Team:
    """Two machines with one clone each; `sync` carries the files of the project from one to the other."""

    def __init__(self, folder: Path) -> None:
        self.alice = Project(folder / "a", name="id-a")
        self.bob = Project(folder / "b", name="id-b")
        self.hers = self.alice.begun()
        self.sync(self.alice, self.bob)
        self.his = self.bob.schema()
        self.his.init(passphrase=PASS, approver="bob", old_passphrase=None)

    @staticmethod
    def sync(source: Project, target: Project) -> None:
        shutil.copytree(source.root, target.root, dirs_exist_ok=True)

    def acquaint(self) -> None:
        alice = self.hers.approver()
        assert alice is not None
        self.his.vouch(name="alice", public=alice.public, passphrase=PASS)


def test_a_text_signed_by_a_known_approver_needs_no_new_confirmations(tmp_path: Path) -> None:
    """Constitution: text signed by a known approver needs none; the served text is the old one until then."""
    team = Team(tmp_path)
    team.acquaint()
    approve(team.hers, propose(team.hers))
    team.sync(team.alice, team.bob)
    assert contents(team.his) == [GOAL, STACK, CORE] and team.his.load().warnings

    with pytest.raises(Refused, match="passphrase"):
        team.his.adopt(by="bob")
    accepted = team.his.adopt(by="bob", passphrase=PASS)

    assert accepted is not None and accepted.status is ProposalStatus.EFFECTIVE
    assert contents(team.his) == [GOAL, STACK, CORE, "提交前先跑测试"]
    assert team.his.load().warnings == ()
    assert [one.status for one in team.his.proposals()] == [ProposalStatus.EFFECTIVE]


def test_a_stranger_or_an_old_approval_still_needs_three_confirmations(tmp_path: Path) -> None:
    """Security: neither an unknown key nor a replayed older text is accepted."""
    team = Team(tmp_path)
    approve(team.hers, propose(team.hers))
    shutil.copytree(team.alice.root, tmp_path / "old")
    team.sync(team.alice, team.bob)
    stranger = team.his.adopt(by="bob", passphrase=PASS)
    assert stranger is not None and stranger.status is ProposalStatus.OPEN

    team.acquaint()
    team.his.adopt(by="bob", passphrase=PASS)
    approve(team.hers, propose(team.hers, "", action=ProposalAction.REMOVE, entry_id="goal"))
    team.sync(team.alice, team.bob)
    team.his.adopt(by="bob", passphrase=PASS)
    assert GOAL not in contents(team.his)

    shutil.copytree(tmp_path / "old", team.bob.root, dirs_exist_ok=True)
    replayed = team.his.adopt(by="bob", passphrase=PASS)
    assert replayed is not None and replayed.status is ProposalStatus.OPEN
    assert GOAL not in contents(team.his)


def test_confirmations_of_two_machines_add_up_and_can_be_required(tmp_path: Path) -> None:
    """Setting `constitution.distinct_approvers`: three keys, carried by Git."""
    team = Team(tmp_path)
    team.acquaint()
    bob = team.his.approver()
    assert bob is not None
    team.hers.vouch(name="bob", public=bob.public, passphrase=PASS)
    hers, his = team.alice.schema(distinct_approvers=True), team.bob.schema(distinct_approvers=True)
    wish = propose(hers)
    hers.confirm(wish, passphrase=PASS, approver="alice")
    with pytest.raises(Refused, match="another approver"):
        hers.confirm(wish, passphrase=PASS, approver="someone else")

    team.sync(team.alice, team.bob)
    second = his.confirm(wish, passphrase=PASS, approver="bob")

    assert len(second.confirmations) == 2
    team.sync(team.bob, team.alice)
    assert len(hers.proposal(wish).confirmations) == 2


def test_unknown_ids_name_what_there_is(project: Project) -> None:
    """Bad input: an unknown entry or proposal is not found, with the ids there are."""
    schema = project.begun()

    with pytest.raises(NotFound, match="goal, stack, core"):
        propose(schema, "x", action=ProposalAction.REPLACE, entry_id="nope")
    with pytest.raises(NotFound, match="none"):
        schema.confirm("p-0000000000", passphrase=PASS, approver="alice")
    with pytest.raises(NotFound):
        schema.confirm("../../constitution", passphrase=PASS, approver="alice")
