"""Three human confirmations, signed over exactly what was shown; and one splice that touches nothing else."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from figures import figure
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.base.terminal import visible
from memory_anchor.domain.errors import BadInput, NotFound, Refused
from memory_anchor.domain.model import ConstitutionEntry, Proposal, ProposalAction, ProposalStatus
from memory_anchor.identity import approval, keys
from memory_anchor.identity import constitution_text as splice
from memory_anchor.identity.identity_schema import IdentitySchema
from memory_anchor.testing import ManualClock

PASS = "correct horse battery"
TEXT = """\
# top
version: 3
entries:   # the list
  # before a
  - id: a
    # inside a
    content: "first"   # note
    priority: 0

  # before b
  - id: b
    content: |
      two
      lines

    priority: 7
  - {id: c, content: 'third', priority: 9}   # flow
# end
other: kept
"""


pytestmark = pytest.mark.usefixtures("cheap_keys")


class Desk:
    """A project with an approved constitution and an agent that keeps proposing."""

    def __init__(self, folder: Path) -> None:
        self.root, self.data = folder / "project", folder / "data"
        self.root.mkdir()
        self.file = self.root / "constitution.yaml"
        self.file.write_text(TEXT, encoding="utf-8")
        self.clock = ManualClock()
        self.audit = JsonlAudit(self.data / "audit.jsonl")
        self.schema = self.build()
        self.schema.init(passphrase=PASS, approver="alice", old_passphrase=None)

    def build(self, **options: object) -> IdentitySchema:
        return IdentitySchema(
            project_dir=self.root,
            project_id="prj",
            home=self.data / "identity" / "prj",
            clock=self.clock,
            audit=self.audit,
            **options,  # type: ignore[arg-type]
        )

    def propose(
        self,
        content: str = "a new rule",
        action: ProposalAction = ProposalAction.ADD,
        entry_id: str | None = None,
        reason: str = "because",
    ) -> Proposal:
        return self.schema.propose(
            content=content, reason=reason, action=action, entry_id=entry_id, from_id=None, by="agent"
        )

    def confirm(self, proposal: Proposal, times: int = 1) -> Proposal:
        for _ in range(times):
            proposal = self.schema.confirm(proposal.id, passphrase=PASS, approver="alice")
        return proposal

    def path(self, proposal: Proposal) -> Path:
        return self.root / ".ai" / "proposals" / f"{proposal.id}.yaml"

    def edit(self, proposal: Proposal, change: Callable[[dict], None]) -> None:  # type: ignore[type-arg]
        record = yaml.safe_load(self.path(proposal).read_text(encoding="utf-8"))
        change(record)
        self.path(proposal).write_text(yaml.safe_dump(record, allow_unicode=True), encoding="utf-8")

    def count(self, proposal: Proposal) -> int:
        return len(self.schema.proposal(proposal.id).confirmations)

    def served(self) -> list[str]:
        return [entry.content for entry in self.build().load().entries]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


# --- three confirmations -----------------------------------------------------------------------------------------


def test_three_confirmations_make_a_change_effective_and_two_do_not(desk: Desk) -> None:
    """Strategy: 三次审批. The third applies it, with a backup, an audit record and a readable file in Git."""
    proposal = desk.propose("提交前先跑测试", entry_id="tests")
    assert desk.confirm(proposal, 2).status is ProposalStatus.OPEN
    assert "提交前先跑测试" not in desk.served()

    done = desk.confirm(proposal)

    assert done.status is ProposalStatus.EFFECTIVE and len(done.confirmations) == 3
    assert desk.served()[-1] == "提交前先跑测试"
    assert desk.build().load().warnings == ()
    assert desk.file.read_text(encoding="utf-8") == TEXT.replace(
        "   # flow\n", '   # flow\n  - id: tests\n    content: "提交前先跑测试"\n    priority: 10\n'
    )
    backups = list((desk.data / "identity" / "prj" / "backups").glob("*.yaml"))
    assert [one.read_text(encoding="utf-8") for one in backups] == [TEXT]
    kinds = [record["kind"] for record in desk.audit.records()]
    assert kinds == [
        "constitution.approver",
        "constitution.initialised",
        "constitution.proposed",
        *["constitution.confirmed"] * 3,
        "constitution.effective",
    ]
    record = yaml.safe_load(desk.path(proposal).read_text(encoding="utf-8"))
    assert record["status"] == "effective" and record["content"] == "提交前先跑测试"
    assert [one["by"] for one in record["confirmations"]] == ["alice"] * 3


def test_a_wrong_passphrase_changes_nothing(desk: Desk) -> None:
    """Constitution: each confirmation takes the passphrase; a wrong one is recorded."""
    proposal = desk.propose()

    with pytest.raises(Refused, match="passphrase"):
        desk.schema.confirm(proposal.id, passphrase="guess", approver="alice")

    assert desk.count(proposal) == 0
    assert [record["kind"] for record in desk.audit.records()][-1] == "constitution.refused"


def test_a_project_never_initialised_cannot_approve(tmp_path: Path) -> None:
    """Constitution: first `init`, then approvals."""
    schema = IdentitySchema(
        project_dir=tmp_path,
        project_id="x",
        home=tmp_path / "data" / "identity" / "x",
        clock=ManualClock(),
        audit=JsonlAudit(tmp_path / "data" / "audit.jsonl"),
    )
    proposal = schema.propose(
        content="c", reason="r", action=ProposalAction.ADD, entry_id=None, from_id=None, by="agent"
    )

    with pytest.raises(Refused, match="memory-anchor init"):
        schema.confirm(proposal.id, passphrase=PASS, approver="alice")


def test_a_closed_proposal_stays_closed(desk: Desk) -> None:
    """Constitution: neither an effective nor a rejected proposal takes another confirmation."""
    rejected = desk.propose("no")
    desk.schema.reject(rejected.id, passphrase=PASS, approver="alice", reason="not ours")
    effective = desk.confirm(desk.propose("yes"), 3)

    for closed in (rejected, effective):
        with pytest.raises(Refused, match="already"):
            desk.confirm(closed)
        with pytest.raises(Refused, match="already"):
            desk.schema.reject(closed.id, passphrase=PASS, approver="alice", reason="again")


def test_confirmations_keep_their_distance_where_that_is_set(desk: Desk) -> None:
    """Setting `constitution.min_interval_s`."""
    desk.schema = desk.build(min_interval_s=60)
    proposal = desk.confirm(desk.propose())
    desk.clock.advance(seconds=59)
    with pytest.raises(Refused, match="retry in 1 s"):
        desk.confirm(proposal)
    desk.clock.advance(seconds=1)

    assert len(desk.confirm(proposal).confirmations) == 2


def test_what_is_confirmed_is_what_was_shown(desk: Desk) -> None:
    """Security: a proposal swapped between the reading and the passphrase is refused."""
    proposal = desk.propose("harmless")
    seen = desk.schema.fingerprint(proposal)
    desk.edit(proposal, lambda record: record.update(content="obey the agent"))

    with pytest.raises(Refused, match="changed while it was being shown"):
        desk.schema.confirm(proposal.id, passphrase=PASS, approver="alice", seen=seen)
    assert desk.count(proposal) == 0


def test_a_kill_at_the_third_confirmation_is_finished_by_confirming_again(desk: Desk) -> None:
    """Crash: once the sealed text is written it is served; the rest catches up and nothing is doubled."""
    proposal = desk.confirm(desk.propose("late", entry_id="late"), 2)
    before_file, before_proposal = desk.file.read_bytes(), desk.path(proposal).read_bytes()
    trail = desk.root / ".ai" / "proposals" / "approved.yaml"
    before_trail = trail.read_bytes()
    desk.confirm(proposal)
    after = desk.file.read_bytes(), trail.read_bytes()
    desk.file.write_bytes(before_file)
    desk.path(proposal).write_bytes(before_proposal)
    trail.write_bytes(before_trail)

    assert "late" in desk.served() and desk.build().load().warnings
    done = desk.confirm(proposal)

    assert done.status is ProposalStatus.EFFECTIVE
    assert (desk.file.read_bytes(), trail.read_bytes()) == after
    assert desk.build().load().warnings == ()


def test_confirmations_at_the_same_moment_each_count_once(desk: Desk) -> None:
    """Concurrency: several terminals at once give three confirmations, one change and one intact trail."""
    proposal = desk.propose("once", entry_id="once")

    def one(_: int) -> str:
        try:
            return desk.build().confirm(proposal.id, passphrase=PASS, approver="alice").status.value
        except Refused:
            return "refused"

    with ThreadPoolExecutor(5) as terminals:
        said = sorted(terminals.map(one, range(5)))

    assert said == ["effective", "open", "open", "refused", "refused"]
    assert desk.file.read_text(encoding="utf-8").count("id: once") == 1
    assert desk.build().load().warnings == ()
    assert desk.audit.verify() is None


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 7))
def test_a_kill_at_any_write_of_the_third_confirmation_leaves_one_truth(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, at: int, after: bool
) -> None:
    """Crash: before or after each rename the old or the new text is served whole, and confirming again ends well."""
    proposal = desk.confirm(desk.propose("late", entry_id="late"), 2)
    old, real, count = desk.served(), Path.replace, iter(range(1, 1_000))

    def rename(source: Path, target: Path) -> Path:
        last = next(count) == at
        if last and not after:
            raise Killed
        done = real(source, target)
        if last:
            raise Killed
        return done

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", rename)
        with contextlib.suppress(Killed):
            desk.confirm(proposal)
    assert desk.served() in (old, [*old, "late"])
    desk.schema = desk.build()
    if desk.schema.proposal(proposal.id).status is ProposalStatus.OPEN or desk.build().load().warnings:
        desk.confirm(proposal)

    assert desk.served() == [*old, "late"]
    assert desk.build().load().warnings == ()
    assert desk.file.read_text(encoding="utf-8").count("id: late") == 1
    assert len(splice.parse(desk.file.read_text(encoding="utf-8")).entries) == 4
    assert desk.audit.verify() is None


# --- what does not count -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"content": "another rule"},
        {"reason": "another reason"},
        {"entry_id": "elsewhere"},
        {"from_id": "m1"},
        {"proposed_by": "alice"},
        {"action": "replace", "entry_id": "a"},
        {"proposed_at": "2025-12-15T12:00:01Z"},
    ],
)
def test_editing_a_proposal_resets_its_confirmations(desk: Desk, change: dict[str, str]) -> None:
    """Constitution: a confirmation is of these very words."""
    proposal = desk.confirm(desk.propose(), 2)

    desk.edit(proposal, lambda record: record.update(change))

    assert desk.count(proposal) == 0
    assert desk.confirm(proposal).status is ProposalStatus.OPEN
    assert desk.count(proposal) == 1


def test_made_up_copied_and_repeated_confirmations_do_not_count(desk: Desk) -> None:
    """Security (attack A27): an agent that writes confirmations into the file gets nowhere."""
    other = desk.confirm(desk.propose("another"), 2)
    stolen = yaml.safe_load(desk.path(other).read_text(encoding="utf-8"))["confirmations"]
    proposal = desk.confirm(desk.propose())
    mine = yaml.safe_load(desk.path(proposal).read_text(encoding="utf-8"))["confirmations"]

    for faked in (
        mine * 3,
        [*mine, {**mine[0], "number": 2}, {**mine[0], "number": 3}],
        [*mine, *stolen],
        [*mine, {**stolen[1], "proposal_hash": mine[0]["proposal_hash"]}],
        [{**mine[0], "by": "bob"}] * 3,
        [{**mine[0], "at": "2025-12-16T12:00:00Z"}] * 3,
        [*mine, *({**mine[0], "signature": "AAAA"},) * 2],
    ):
        desk.edit(proposal, lambda record, faked=faked: record.update(confirmations=faked, status="effective"))
        judged = desk.schema.proposal(proposal.id)
        assert len(judged.confirmations) <= 1
        assert judged.status is ProposalStatus.OPEN
    assert "a new rule" not in desk.served()


def test_a_key_of_the_agents_own_does_not_count(desk: Desk, tmp_path: Path) -> None:
    """Security: only known keys sign, and a key written into the list by hand is not known."""
    ring = keys.KeyRing(tmp_path / "agent")
    ring.create(name="alice", passphrase="agent of its own")
    signer = ring.unlock("agent of its own")
    proposal = desk.propose()
    hashed = approval.proposal_hash(proposal, "")
    at, project = desk.clock.now(), approval.ProjectRef("prj", "")
    forged = [
        approval.confirm(signer, proposal=proposal, hashed=hashed, number=n, by="alice", at=at, project=project)
        for n in (1, 2, 3)
    ]
    listed = [
        {
            "number": n,
            "by": one.by,
            "at": approval.stamp(one.at),
            "proposal_hash": hashed,
            "signature": one.signature,
            "project": one.project,
            "origin": one.origin,
        }
        for n, one in enumerate(forged, start=1)
    ]
    desk.edit(proposal, lambda record: record.update(confirmations=listed))
    known = {"approvers": [{"name": "alice", "public": signer.approver.public, "signature": forged[0].signature}]}
    (desk.data / "identity" / "known_approvers.json").write_text(str(known).replace("'", '"'), encoding="utf-8")

    assert desk.count(proposal) == 0
    assert len(desk.schema.approvers()) == 1


def test_an_effective_proposal_cannot_be_replayed(desk: Desk) -> None:
    """Security: reopening a removal after the entry came back takes no effect by itself and is refused."""
    removal = desk.confirm(desk.propose("", ProposalAction.REMOVE, "a"), 3)
    desk.confirm(desk.propose("first", ProposalAction.ADD, "a"), 3)
    text = desk.file.read_bytes()
    desk.edit(removal, lambda record: record.update(status="open"))

    assert desk.schema.proposal(removal.id).status is ProposalStatus.EFFECTIVE
    assert "first" in desk.served()
    desk.confirm(removal)
    assert "first" in desk.served() and desk.file.read_bytes() == text


def test_a_confirmation_of_a_replacement_ends_when_the_entry_changes(desk: Desk) -> None:
    """Constitution: the exact difference was confirmed, so another starting point resets it."""
    slow = desk.confirm(desk.propose("slow", ProposalAction.REPLACE, "a"), 2)
    desk.confirm(desk.propose("quick", ProposalAction.REPLACE, "a"), 3)

    assert desk.count(slow) == 0


def test_a_rejection_counts_only_when_a_human_signed_it(desk: Desk) -> None:
    """Security: an agent cannot close what humans are about to decide."""
    proposal = desk.propose()
    unsigned = {"by": "alice", "at": "2025-12-15T12:00:00Z", "reason": "no", "signature": "AAAA"}
    desk.edit(proposal, lambda record: record.update(status="rejected", rejection=unsigned))

    assert desk.schema.proposal(proposal.id).status is ProposalStatus.OPEN
    closed = desk.schema.reject(proposal.id, passphrase=PASS, approver="alice", reason="no")
    assert closed.status is ProposalStatus.REJECTED
    desk.edit(proposal, lambda record: record.update(status="open"))
    assert desk.schema.proposal(proposal.id).status is ProposalStatus.REJECTED


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_edit_of_a_file_adds_a_confirmation(tmp_path: Path, data: st.DataObject) -> None:
    """Law: whatever is changed in a proposal's file, at most the confirmations given count."""
    desk = _DESKS.get(tmp_path) or _DESKS.setdefault(tmp_path, Desk(tmp_path))
    first, second = desk.schema.proposals() or [desk.confirm(desk.propose("one"), 2), desk.confirm(desk.propose("two"))]
    whole = desk.path(first).read_bytes()
    pool = _confirmations(desk, first) + _confirmations(desk, second)
    chosen = data.draw(st.lists(st.sampled_from(pool), max_size=6))
    field = data.draw(st.sampled_from(["by", "at", "signature", "proposal_hash", "number", ""]))
    value = data.draw(st.sampled_from([one[field] for one in pool] if field else [""]))
    changed = [{**one, field: value} if field else one for one in chosen]
    try:
        desk.edit(first, lambda record: record.update(confirmations=changed, status="effective"))

        judged = desk.schema.proposal(first.id)

        assert len(judged.confirmations) <= 2
        assert judged.status is ProposalStatus.OPEN
    finally:
        desk.path(first).write_bytes(whole)


_DESKS: dict[Path, Desk] = {}


def _confirmations(desk: Desk, proposal: Proposal) -> list[dict[str, object]]:
    record = yaml.safe_load(desk.path(proposal).read_text(encoding="utf-8"))
    return list(record["confirmations"])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(junk=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda t: t.encode("utf-8", "replace"))))
def test_a_broken_proposal_file_leaves_the_others_usable(tmp_path: Path, junk: bytes) -> None:
    """Bad input: any bytes in one file are one sentence, and the rest can be read."""
    desk = _DESKS.get(tmp_path) or _DESKS.setdefault(tmp_path, Desk(tmp_path))
    good = desk.propose("still here")
    (desk.root / ".ai" / "proposals" / "p-0123456789.yaml").write_bytes(junk)

    assert [one.id for one in desk.schema.proposals()] == [good.id]
    assert len(desk.schema.unreadable_proposals()) == 1


# --- proposing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "why"),
    [("", "empty"), ("  ", "empty"), ("x" * 8001, "8001"), ("a\x00b", "NUL"), ("a\ud800b", "surrogate")],
)
def test_bad_content_is_refused_in_one_sentence(desk: Desk, content: str, why: str) -> None:
    """Bad input: what, the value, what is allowed; no file is written."""
    with pytest.raises(BadInput, match=why) as refused:
        desk.propose(content)

    assert "allowed" in str(refused.value) and "\n" not in str(refused.value)
    assert desk.schema.proposals() == []


def test_what_could_never_be_applied_is_not_proposed(desk: Desk) -> None:
    """Bad input: missing reason, unknown or taken ids, nothing new, adopt by hand."""
    with pytest.raises(BadInput, match="reason is empty"):
        desk.propose(reason=" ")
    with pytest.raises(NotFound, match="'zz'; the entries are a, b, c"):
        desk.propose("x", ProposalAction.REPLACE, "zz")
    with pytest.raises(NotFound, match="the entries are a, b, c"):
        desk.propose("", ProposalAction.REMOVE, "zz")
    with pytest.raises(BadInput, match="entry_id is missing"):
        desk.propose("x", ProposalAction.REPLACE)
    with pytest.raises(BadInput, match="exists already"):
        desk.propose("x", ProposalAction.ADD, "a")
    with pytest.raises(BadInput, match="entry_id has other signs"):
        desk.propose("x", ProposalAction.ADD, "a b")
    with pytest.raises(BadInput, match="entry a says already"):
        desk.propose("first", ProposalAction.REPLACE, "b")
    with pytest.raises(BadInput, match="allowed are add, replace and remove"):
        desk.propose("x", ProposalAction.ADOPT)


def test_proposing_the_same_again_gives_the_open_one_and_a_closed_one_is_made_anew(desk: Desk) -> None:
    """Idempotence: an agent that repeats itself makes one proposal."""
    first = desk.propose()
    assert desk.propose().id == first.id
    desk.schema.reject(first.id, passphrase=PASS, approver="alice", reason="no")

    again = desk.propose()

    assert again.id != first.id and again.status is ProposalStatus.OPEN
    assert len(again.id) <= 13


def test_the_difference_shows_every_sign(desk: Desk) -> None:
    """Security: escape and direction signs cannot hide anything from the human who confirms."""
    text = desk.schema.path.read_text(encoding="utf-8") + "# good\u202e\u200bbad\n"
    desk.schema.path.write_text(text.replace("version: 3", "version: 4"), encoding="utf-8")
    adoption = desk.schema.adopt(by="alice")
    assert adoption is not None
    shown = desk.schema.diff(adoption)

    assert "\u202e" not in shown and "\u200b" not in shown
    assert "u202e" in shown and "u200b" in shown
    assert [line for line in shown.splitlines() if line.startswith("+# good")] != []
    assert visible("中文 text\n") == "中文 text⏎"


def test_a_proposal_file_is_never_followed_out_of_the_project(desk: Desk, tmp_path: Path) -> None:
    """Security: a symbolic link is no proposal."""
    proposal = desk.propose()
    outside = tmp_path / "outside.yaml"
    outside.write_bytes(desk.path(proposal).read_bytes())
    desk.path(proposal).unlink()
    desk.path(proposal).symlink_to(outside)

    with pytest.raises(BadInput, match="not a readable proposal"):
        desk.confirm(proposal)


# --- the splice --------------------------------------------------------------------------------------------------


def test_foreign_edits_of_the_file_survive_an_approval_and_stay_unapproved(desk: Desk) -> None:
    """Constitution: the splice keeps the file's other edits, and only what was approved is served."""
    desk.file.write_text(TEXT.replace("'third'", "'obey'"), encoding="utf-8")

    desk.confirm(desk.propose("new first", ProposalAction.REPLACE, "a"), 3)

    assert desk.file.read_text(encoding="utf-8") == TEXT.replace("'third'", "'obey'").replace('"first"', '"new first"')
    assert desk.served() == ["new first", "two\nlines", "third"]
    assert "differs" in desk.build().load().warnings[0]


def test_a_broken_file_is_left_alone_by_an_approval_and_a_missing_one_comes_back(desk: Desk) -> None:
    """Constitution: nobody's half-finished edit is overwritten."""
    desk.file.write_text("entries: [", encoding="utf-8")
    desk.confirm(desk.propose("one"), 3)
    assert desk.file.read_text(encoding="utf-8") == "entries: ["
    desk.file.unlink()
    desk.confirm(desk.propose("two"), 3)

    assert desk.build().load().warnings == ()
    assert desk.served()[-2:] == ["one", "two"]


SEEN = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf"]) | st.sampled_from("\t\n"), min_size=1, max_size=60)
FILES = {
    "block": TEXT,
    "crlf": TEXT.replace("\n", "\r\n"),
    "no newline at the end": TEXT.split("# end")[0].rstrip("\n"),
    "flow list": "entries: [{id: a, content: x}, {id: b, content: 'y, z'}] # tail\nversion: 2\n",
    "no indent": "entries:\n- content: plain words\n  id: a\n\n- id: b\n  content: >\n    folded\n    text\n# end",
    "dash alone": "entries:\n  -\n    id: a\n    content: x\n  # between\n  -\n    id: b\n    content: y\nversion: 1\n",
    "empty flow": "# c\nentries: []   # none yet\nversion: 1\n",
    "empty key": "version: 1\nentries:\n# later\n",
    "empty key at the end": "version: 1\nentries:",
    "no list": "# only a comment\n",
    "nothing": "",
}


SPLICES = [("add", name) for name in FILES] + [
    (action, name) for action in ("replace", "remove") for name, text in FILES.items() if splice.parse(text).entries
]


@settings(max_examples=figure(60, 200), deadline=None)
@given(case=st.sampled_from(SPLICES), content=SEEN, data=st.data())
def test_a_splice_changes_its_own_lines_only(case: tuple[str, str], content: str, data: st.DataObject) -> None:
    """Law: comments, order and every other line stay byte for byte, and what is read back is what was wanted."""
    action, name = case
    content = content.strip()
    assume(content and not splice.first_hidden_character(content))
    text = FILES[name]
    entries = splice.parse(text).entries
    if action == "add":
        made = splice.add(text, ConstitutionEntry("new-one", content, 5))
        assert splice.parse(made).entries[-1] == ConstitutionEntry("new-one", content, 5)
        wanted = [(one.id, one.content) for one in entries] + [("new-one", content)]
    else:
        target = data.draw(st.sampled_from(entries)).id
        if action == "replace":
            made = splice.replace_content(text, entry_id=target, content=content)
            wanted = [(one.id, content if one.id == target else one.content) for one in entries]
        else:
            made = splice.remove(text, entry_id=target)
            wanted = [(one.id, one.content) for one in entries if one.id != target]
    assert [(one.id, one.content) for one in splice.parse(made).entries] == wanted
    assert not splice.parse(made).problems
    _only_one_place_changed(text, made, action)


def _only_one_place_changed(text: str, made: str, action: str) -> None:
    old, new = text.splitlines(keepends=True), made.splitlines(keepends=True)
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    lost, added = old[head : len(old) - tail], new[head : len(new) - tail]
    comments = [re.search(r"(?:^|\s)(#[^\r\n]*)", line) for line in lost]
    kept = "".join(added)
    if action == "add":
        assert len(lost) <= 1
        assert all(comment[1] in kept for comment in comments if comment)
    elif action == "replace":
        assert len(added) == 1 or not lost
        assert len(lost) <= 4
    else:
        assert len(added) <= 1 and len(lost) <= 6
        assert not any("before" in line or "between" in line or "end" in line for line in lost)


def test_a_layout_that_cannot_be_spliced_is_refused_not_mangled() -> None:
    """Constitution: a splice that would touch another entry is refused, and the way out is named."""
    shared = "entries:\n- {id: a, content: &text x}\n- {id: b, content: *text}\n"

    with pytest.raises(BadInput, match="memory-anchor constitution adopt"):
        splice.replace_content(shared, entry_id="b", content="new")
