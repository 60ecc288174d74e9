"""L3: the gate, repeats, replacing, disputes, review."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cases import by_result
from stores import file_store

from memory_anchor.domain.errors import BadInput, NotFound, Refused, VersionConflict
from memory_anchor.domain.model import Actor, Caller, Layer, Memory, Origin, Outcome, Scope, Status, Visibility
from memory_anchor.domain.rights import version_stamp
from memory_anchor.domain.where import Where
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.testing import HashEmbedder, ephemeral_core
from memory_anchor.use_cases import services
from memory_anchor.use_cases.memory import MemoryAnchor

if TYPE_CHECKING:
    from memory_anchor.domain.ports import Matrix


TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
API_KEY = "sk-ant-api03-" + "Ab3dEf9hIj2kLm5nOp8qRs1tUv4wXy7z"


def human(core: Core, agent: Actor) -> MemoryAnchor:
    return core.anchor(replace(agent, caller=Caller.HUMAN))


@pytest.mark.parametrize(
    ("claimed", "outcome", "status"),
    [
        (0.9, Outcome.ADDED, Status.ACTIVE),
        (0.89, Outcome.PENDING, Status.PENDING),
        (0.7, Outcome.PENDING, Status.PENDING),
        (0.69, Outcome.REJECTED, None),
    ],
)
def test_confidence_decides_what_becomes_of_a_fact(
    anchor: MemoryAnchor, claimed: float, outcome: Outcome, status: Status | None
) -> None:
    """Rule L3.gate: >= 0.9 active, 0.7 to 0.9 pending, below rejected with the reason."""
    done = anchor.save_memory("The project needs a cache", confidence=claimed)

    assert (done.outcome, done.status) == (outcome, status)
    assert (done.id is None) == (outcome is Outcome.REJECTED)
    if outcome is not Outcome.ADDED:
        assert f"{claimed:g}" in done.reason


def test_a_claim_counts_only_as_far_as_its_origin(anchor: MemoryAnchor) -> None:
    """Rule L3.caps: an agent's certainty is capped at 0.95."""
    done = anchor.save_memory("Qdrant is the vector database", confidence=1.0)

    assert anchor.get(done.id).confidence == 0.95


@pytest.mark.parametrize(
    ("origin", "quoted", "cap"),
    [
        (Origin.HUMAN, False, 1.0),
        (Origin.AGENT, False, 0.95),
        (Origin.EXTRACTED, True, 0.9),
        (Origin.EXTRACTED, False, 0.85),
        (Origin.DOCUMENT, False, 0.69),
    ],
)
def test_every_origin_has_its_cap(origin: Origin, quoted: bool, cap: float) -> None:
    """Rule L3.caps: human 1.0, agent 0.95, quoted 0.9, extracted 0.85, document 0.69 (never passes alone).

    The gate is the one that a process makes of its settings, where nobody set anything.
    """
    gate = services.gate(Settings())

    verdict = gate.judge(1.0, origin=origin, caller=Caller.AGENT, visibility=Visibility.PROJECT, quoted=quoted)

    assert verdict.confidence == cap


def test_what_is_visible_to_the_account_waits_for_a_human(anchor: MemoryAnchor) -> None:
    """Rule L3.account: an agent's account-wide write is pending whatever its confidence."""
    done = anchor.save_memory("All teams use trunk-based development", confidence=0.95, visibility="account")

    assert done.outcome is Outcome.PENDING


def test_a_pending_fact_is_found_only_when_asked_for_and_is_marked(anchor: MemoryAnchor) -> None:
    """Rule L3.pending: out of plain searches; marked where it is shown."""
    anchor.save_memory("The importer probably needs a cache", confidence=0.8)

    assert anchor.search("importer cache").snippets == ()
    (found,) = anchor.search("importer cache", include_pending=True).snippets
    assert found.status is Status.PENDING


def test_a_repeat_strengthens_and_never_doubles(anchor: MemoryAnchor, core: Core) -> None:
    """Rule L3.repeat: the same text again is skipped; the first one's id, one more use."""
    first = anchor.save_memory("Tabs, not spaces")

    again = anchor.save_memory("  Tabs,  not spaces ")

    assert (again.outcome, again.id) == (Outcome.SKIPPED, first.id)
    assert core.services.records.read(str(first.id), None).usage.count == 1
    assert len(anchor.curation.listing()) == 1


def test_another_origin_saying_the_same_raises_confidence(anchor: MemoryAnchor, core: Core, agent: Actor) -> None:
    """Rule L3.corroborate: only somebody else raises it, never above the better cap."""
    done = anchor.save_memory("Deploys need a smoke test", confidence=0.9)
    anchor.save_memory("Deploys need a smoke test", confidence=0.95)
    assert anchor.get(done.id).confidence == 0.9

    human(core, agent).save_memory("Deploys need a smoke test", confidence=1.0)

    assert 0.95 < anchor.get(done.id).confidence <= 1.0


def test_replacing_ends_the_old_fact_and_keeps_it_readable(anchor: MemoryAnchor) -> None:
    """Rule L3.supersede: the new one stands, the old one is superseded, nothing is erased."""
    old = anchor.save_memory("The default timeout is 30 seconds")

    new = anchor.save_memory("The default timeout is 60 seconds", replaces=old.id)

    assert (new.outcome, new.target_id) == (Outcome.SUPERSEDED, old.id)
    assert anchor.get(old.id).status is Status.SUPERSEDED
    assert anchor.get(new.id).previous_version_id == f"{old.id}@1"
    assert [s.id for s in anchor.search("default timeout seconds").snippets] == [new.id]


def seen(anchor: MemoryAnchor, *ids: str) -> list[str]:
    """Return what a human names who was shown these."""
    return [version_stamp(one.id, one.version, one.content) for one in map(anchor.get, ids)]


def test_a_human_settles_what_waits_and_an_agent_cannot(core: Core, agent: Actor, anchor: MemoryAnchor) -> None:
    """Rule human, review: an agent's replacement of a human's fact is a dispute that only a human settles."""
    rule = human(core, agent).save_memory("Never deploy on Fridays", type="instruction")
    done = anchor.save_memory("Deploying on Fridays is fine", type="instruction", replaces=rule.id)
    assert done.outcome is Outcome.NEEDS_REVIEW
    assert {anchor.get(rule.id).status, anchor.get(done.id).status} == {Status.DISPUTED}
    with pytest.raises(Refused, match="waits for the user"):
        anchor.curation.settle(done.id, "keep_new")

    human(core, agent).curation.settle(done.id, "keep_old", seen=seen(anchor, done.id, rule.id))

    assert anchor.get(rule.id).status is Status.ACTIVE
    assert anchor.get(done.id).status is Status.SUPERSEDED


def test_only_a_human_accepts_a_pending_fact(core: Core, agent: Actor, anchor: MemoryAnchor) -> None:
    """Rule review: approving is out of an agent's reach."""
    waiting = anchor.save_memory("The importer needs a cache", confidence=0.8)
    with pytest.raises(Refused, match="human"):
        anchor.curation.accept(waiting.id)

    human(core, agent).curation.accept(waiting.id, seen=seen(anchor, waiting.id))

    assert anchor.get(waiting.id).status is Status.ACTIVE


def test_forgetting_archives_and_restoring_brings_back(anchor: MemoryAnchor) -> None:
    """Rule forget: archived, out of search, restorable; nothing is erased."""
    done = anchor.save_memory("The old build used make")

    assert anchor.forget(done.id, "stale").outcome is Outcome.ARCHIVED
    assert anchor.search("old build make").snippets == ()
    anchor.curation.restore(done.id)

    assert [s.id for s in anchor.search("old build make").snippets] == [done.id]
    assert [m.status for m in anchor.history(done.id)] == [Status.ACTIVE, Status.ARCHIVED, Status.ACTIVE]


def test_a_pinned_memory_is_not_forgotten_by_an_agent(anchor: MemoryAnchor) -> None:
    """Rule pin: pinned and human-written memories are out of an agent's reach."""
    done = anchor.save_memory("The licence is Apache-2.0")
    anchor.curation.pin(done.id)

    with pytest.raises(Refused, match="pinned"):
        anchor.forget(done.id)


def test_two_agents_editing_one_memory_do_not_overwrite_each_other(anchor: MemoryAnchor) -> None:
    """Rule versions: an edit of a version that is not current any more is refused."""
    done = anchor.save_memory("The API limit is 100 requests a minute")
    anchor.curation.edit(done.id, "The API limit is 120 requests a minute", expected_version=1)

    with pytest.raises(VersionConflict, match="version 2, not 1"):
        anchor.curation.edit(done.id, "The API limit is 90 requests a minute", expected_version=1)


@pytest.mark.parametrize(
    ("layer", "error", "says"),
    [
        ("identity_schema", Refused, "propose_constitution_change"),
        ("constitution", Refused, "propose_constitution_change"),
        ("active_context", BadInput, "set_active_context"),
        ("operational_knowledge", BadInput, ".ai/operations"),
        ("attic", BadInput, "layer is 'attic'"),
    ],
)
def test_a_write_to_the_wrong_layer_names_the_right_way(
    anchor: MemoryAnchor, layer: str, error: type[Exception], says: str
) -> None:
    """Rule L0.write: no write tool changes L0; each refusal names what to call."""
    with pytest.raises(error, match=says.replace(".", r"\.")):
        anchor.save_memory("We are a bank now", layer=layer)


@pytest.mark.parametrize(
    ("kind", "layer"),
    by_result(
        {
            Layer.VERIFIED_FACT: "decision | bugfix | refactor",
            Layer.EVENT_LOG: "event | discovery | note | episodic",
        }
    ),
)
def test_the_type_decides_the_layer(anchor: MemoryAnchor, kind: str, layer: Layer) -> None:
    """Rule 4.2: the type-to-layer map."""
    assert anchor.get(anchor.save_memory(f"a {kind} about the parser", type=kind).id).layer is layer


def test_an_old_layer_name_is_understood(anchor: MemoryAnchor) -> None:
    """Rule 1.1: `fact` and `session` are accepted on input."""
    assert anchor.save_memory("x is y", layer="fact").layer is Layer.VERIFIED_FACT
    assert anchor.save_memory("x was seen", layer="session").layer is Layer.EVENT_LOG


def test_private_text_and_secrets_are_never_stored(anchor: MemoryAnchor) -> None:
    """Rule safety: <private> is left out, secrets are redacted, the outcome lists their kinds."""
    done = anchor.save_memory(f"部署密钥{API_KEY}<private>never this</private>")

    stored = anchor.get(done.id).content
    assert "never this" not in stored
    assert "Ab3dEf9h" not in stored
    assert done.redactions == ("api_key",)


def test_a_memory_out_of_scope_is_not_there(core: Core, anchor: MemoryAnchor, agent: Actor) -> None:
    """Rule scope: another project's memory is not found, not read and not forgotten."""
    done = anchor.save_memory("The staging password rotates weekly")
    other = core.anchor(replace(agent, project_dir="", scope=Scope(agent="codex")))

    assert other.search("staging password rotates").snippets == ()
    with pytest.raises(NotFound):
        other.get(done.id)
    with pytest.raises(NotFound):
        other.forget(done.id)


@pytest.mark.parametrize(
    ("visibility", "same_project", "seen"),
    [
        ("conversation", True, False),
        ("agent", True, False),
        ("project", True, True),
        ("project", False, False),
        ("user", False, True),
    ],
)
def test_visibility_decides_who_reads(
    core: Core, anchor: MemoryAnchor, agent: Actor, visibility: str, same_project: bool, seen: bool
) -> None:
    """Rule visibility: conversation, agent, project, user: one function decides."""
    anchor.save_memory("The coffee machine takes oat milk", visibility=visibility)
    reader = core.anchor(
        replace(
            agent,
            scope=Scope(agent="codex", conversation="other"),
            project_dir=agent.project_dir if same_project else "",
        )
    )

    assert bool(reader.search("coffee machine oat milk").snippets) is seen


def test_a_read_only_connection_writes_nothing(core: Core, agent: Actor) -> None:
    """Rule read-only: every write is refused, reading goes on."""
    reader = core.anchor(replace(agent, read_only=True))

    for write in (
        lambda: reader.save_memory("x"),
        lambda: reader.log_event("x"),
        lambda: reader.set_active("k", 1),
        lambda: reader.end_session("x"),
        lambda: reader.propose("x", "y"),
    ):
        with pytest.raises(Refused, match="read-only"):
            write()
    assert reader.search("x").snippets == ()


@pytest.mark.parametrize("text", ["{}", "  {}。", "`{}`\n\n{}", "<private>mine</private> {}"])
def test_a_memory_of_nothing_but_secrets_is_not_stored(anchor: MemoryAnchor, text: str) -> None:
    """Rule safety: a placeholder is no memory; the answer lists what was left out, and quotes nothing."""
    content = text.replace("{}", API_KEY)

    done = [anchor.save_memory(content), anchor.log_event(content), anchor.save_memory(content, type="note")]

    assert {(one.outcome, one.id, one.redactions) for one in done} == {(Outcome.REJECTED, None, ("api_key",))}
    assert done[0].reason == "content says nothing besides what is never stored (api_key)"
    assert anchor.curation.listing() == []
    with pytest.raises(BadInput, match=r"content says nothing besides .* \(api_key\); nothing was stored"):
        anchor.propose(content, "a rule")
    with pytest.raises(BadInput, match="summary says nothing besides"):
        anchor.end_session(content)


def test_an_edit_to_nothing_but_a_secret_changes_nothing(anchor: MemoryAnchor) -> None:
    """Rule safety: the version that stands is not replaced by a placeholder."""
    done = anchor.save_memory("The token is rotated on Mondays")

    with pytest.raises(BadInput, match="says nothing besides"):
        anchor.curation.edit(done.id, TOKEN)

    assert anchor.get(done.id).version == 1


def test_a_secret_in_a_key_or_a_tag_is_redacted_too(anchor: MemoryAnchor) -> None:
    """Rule safety: nothing that is stored holds a secret, whatever field it came in."""
    fact = anchor.get(anchor.save_memory("CI pushes with a token", key=f"push {TOKEN}", tags=[TOKEN]).id)
    event = anchor.get(anchor.log_event("CI pushed", where=f"host {TOKEN}", tags=[TOKEN]).id)

    assert TOKEN not in f"{fact} {event}"
    assert fact.tags[0].name == "[redacted:token]"


def test_nothing_is_extracted_of_a_secret_alone(anchor: MemoryAnchor) -> None:
    """Rule safety: a conversation's secrets leave no placeholders behind."""
    anchor.remember_conversation(
        [
            {"role": "user", "content": f"Remember: {API_KEY}"},
            {"role": "assistant", "content": "Which key should I use for deployment?"},
            {"role": "user", "content": API_KEY},
        ]
    )

    assert anchor.curation.listing() == []


class _Interrupted(HashEmbedder):
    """Does `before` once, while a text is embedded: outside of the writers' lock."""

    before: Callable[[], object] | None = None

    def documents(self, texts: Sequence[str]) -> Matrix:
        work, self.before = self.before, None
        if work is not None:
            work()
        return super().documents(texts)


def _counted_looks(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> list[Where]:
    """Return the list to which every look for the very same text is added from now on."""
    looks: list[Where] = []
    find = store.find

    def counted(collection: str, where: Where, **how: Any) -> list[Memory]:
        if "content_hash" in repr(where):
            looks.append(where)
        return find(collection, where, **how)

    monkeypatch.setattr(store, "find", counted)
    return looks


def test_what_another_saved_while_this_was_embedded_is_found(tmp_path: Path, agent: Actor) -> None:
    """Rule one-look: a request that was answered meanwhile gets that answer: it is looked for again, under the lock."""
    with DirectoryLock.acquire(tmp_path, role="test"):
        embedder = _Interrupted()
        core = ephemeral_core(tmp_path, store=file_store(tmp_path / "store"), embedder=embedder)
        try:
            first, other = core.anchor(agent), core.anchor(agent)
            answers = []
            arguments = {"content": "The cache lives in Redis", "request_id": "r1"}
            embedder.before = lambda: answers.append(other.save_memory(**arguments))
            done = first.save_memory(**arguments)
        finally:
            core.close()

    assert (done, done.outcome) == (answers[0], Outcome.ADDED)


def test_repeats_are_looked_for_once_where_nothing_was_written_meanwhile(
    tmp_path: Path, agent: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule one-look: a second look over a store that nobody wrote to would find what the first one did."""
    with DirectoryLock.acquire(tmp_path, role="test"):
        store = file_store(tmp_path / "store")
        core = ephemeral_core(tmp_path, store=store)
        try:
            core.anchor(agent).save_memory("The queue lives in Kafka")
            looks = _counted_looks(store, monkeypatch)
            done = core.anchor(agent).save_memory("The cache lives in Redis")
        finally:
            core.close()

    assert (done.outcome, len(looks)) == (Outcome.ADDED, 1)
