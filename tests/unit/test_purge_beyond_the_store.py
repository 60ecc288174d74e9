"""Purge reaches what lies beside the store, in memory and on disk, and names what only humans change."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import disk
import numpy as np
import pytest
from archives import unpack

from memory_anchor.admin import backup
from memory_anchor.admin.purge import decoded_text
from memory_anchor.admin.waiting import unescaped
from memory_anchor.domain.errors import Refused
from memory_anchor.domain.model import Actor, Scope
from memory_anchor.domain.rights import purge_digest
from memory_anchor.extensions.service.batches import Batches
from memory_anchor.extensions.service.http_ingest import BatchWorker
from memory_anchor.extensions.service.keys import FOLDER
from memory_anchor.extensions.service.variants import VariantChoice
from memory_anchor.identity import proposals
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.wire import Preamble
from memory_anchor.testing import HashEmbedder, ephemeral_core, human_of, signed_call
from memory_anchor.use_cases.memory import MemoryAnchor

if TYPE_CHECKING:
    from memory_anchor.domain.ports import Matrix

Purge = Callable[..., dict[str, Any]]


@pytest.fixture
def purge(core: Core, project: Path) -> Purge:
    """Purge as a human who signs; what is given is what `memory-anchor purge` sends."""
    caller, human = Preamble(project_dir=str(project), cwd=str(project)), human_of(core.data_dir)

    def shown_and_purged(**given: Any) -> dict[str, Any]:
        seen = purge_digest(signed_call(core, caller, "purge_preview", given, human)["memories"])
        return signed_call(core, caller, "purge", {**given, "seen": seen}, human)

    return shown_and_purged


def test_what_conversations_have_in_mind_is_dropped(
    core: Core, agent: Actor, anchor: MemoryAnchor, purge: Purge
) -> None:
    """Rule purge.everywhere: a value, or a key, that holds the text goes in every conversation; the others stay."""
    other = core.anchor(replace(agent, scope=Scope(agent="codex", conversation="another")))
    anchor.set_active("plan", "plan for the atlantis rollout")
    anchor.set_active("deep", {"steps": ["first", {"then": 'the "atlantis"\nrollout'}]})
    anchor.set_active("next", "something else")
    other.set_active("atlantis", 1)
    anchor.log_event("atlantis rollout planned")

    told = purge(text="atlantis")

    assert (told["versions"], told["files"]["active context"], told["clean"]) == (1, 3, True)
    assert list(anchor.active()) == ["next"]
    assert other.active() == {}
    (ended,) = anchor.end_session()
    assert anchor.get(ended.id).content == "next: something else"


def test_a_value_that_quotes_an_erased_memory_is_dropped(anchor: MemoryAnchor, purge: Purge) -> None:
    """Rule purge.everywhere: by id too, what repeats a memory's words or names it goes."""
    text = 'the "atlantis" rollout\nbegins in May'
    event = anchor.log_event(text).id
    anchor.set_active("quote", {"said": f"they told me: {text}"})
    anchor.set_active("named", [event])
    anchor.set_active("next", "something else")

    assert purge(ids=[event])["files"]["active context"] == 2
    assert list(anchor.active()) == ["next"]


def test_what_is_logged_next_is_not_indexed_with_what_was_erased(anchor: MemoryAnchor, purge: Purge) -> None:
    """Rule purge.everywhere: an event's search context is the event before it, as the store has it now."""
    anchor.log_event("atlantis rollout planned")
    purge(text="atlantis")

    after = anchor.get(anchor.log_event("lunch").id)

    assert "atlantis" not in after.context


@pytest.mark.parametrize("by", ["text", "ids"])
def test_a_proposal_that_quotes_it_is_named_and_left_to_humans(
    anchor: MemoryAnchor, project: Path, purge: Purge, by: str
) -> None:
    """Rule purge.told: a proposal is a file in Git that humans decide about; purge says where it lies."""
    text = "The atlantis rollout waits for a signature of the board, whatever the calendar says, and not before May."
    fact = anchor.save_memory(text).id
    quoting = anchor.propose(f"# Rollouts\n\n{text} \nAsk first.", "asked for")
    anchor.propose("Test before you push.", "asked for")
    path = project / proposals.FOLDER / f"{quoting.id}.yaml"

    told = purge(**({"text": text} if by == "text" else {"ids": [fact]}))

    assert told["still_in"] == [str(path)]
    assert path.exists()
    path.unlink()
    assert purge(text=text)["still_in"] == []


def test_how_tos_and_the_constitution_that_quote_it_are_named(
    core: Core, anchor: MemoryAnchor, project: Path, purge: Purge
) -> None:
    """Rule purge.told: what developers and approvers keep is searched, also what is sealed outside the project."""
    anchor.constitution()
    (project / "constitution.yaml").write_text(
        'version: 1\nentries:\n  - {id: a, content: "atl\\x61ntis", priority: 0}\n'
    )
    (project / ".ai" / "operations").mkdir(parents=True)
    (project / ".ai" / "operations" / "rollout.md").write_text("# atlantis\n")
    home = core.data_dir / "identity" / anchor.project.project_id
    home.mkdir(parents=True, exist_ok=True)
    (home / "000001.json").write_text(json.dumps({"text": "the\natlantis"}))

    told = purge(text="atlantis")["still_in"]

    assert told[:2] == [str(project / "constitution.yaml"), str(project / ".ai" / "operations" / "rollout.md")]
    assert told[2].startswith(f"{home} (approved texts")
    assert len(told) == 3


def test_imported_proposals_go_with_the_rest_of_the_data_directory(core: Core, purge: Purge) -> None:
    """Rule purge.everywhere: a copy that an import keeps aside is nobody's decision."""
    kept = core.data_dir / "imported" / "proposals" / "other" / "p-0123456789.yaml"
    kept.parent.mkdir(parents=True)
    kept.write_text('content: "the atlantis\\\n  \\ rollout"\n')

    purge(text="the atlantis rollout")

    assert not kept.exists()


def test_a_text_of_several_lines_goes_out_of_backups_too(
    core: Core, anchor: MemoryAnchor, purge: Purge, tmp_path: Path
) -> None:
    """Rule purge.backups: a chunk of a backup is JSON, where a line break is written otherwise; a neighbour stays."""
    anchor.log_event('the "atlantis"\nrollout')
    beside = anchor.log_event("something else").id
    core.services.searcher.index.embed_pending(9)
    backup.create(core, tmp_path / "b.tar.gz")

    told = purge(text='"atlantis"\nrollout')

    assert (told["files"]["known backups"], told["emptied"]) == (2, [f"{beside}@1"])
    unpack(tmp_path / "b.tar.gz", tmp_path / "parts")
    assert disk.holding(tmp_path / "parts", "rollout") == []
    (line,) = (tmp_path / "parts" / "memories" / "event_log-000000.jsonl").read_text().splitlines()
    assert (json.loads(line)["id"], json.loads(line).get("context", "")) == (beside, "")
    assert json.loads((tmp_path / "parts" / backup.MANIFEST).read_text())["collections"]["event_log"]["versions"] == 1
    with np.load(tmp_path / "parts" / "memories" / "event_log-000000.npz") as arrays:
        assert {name: len(arrays[name]) for name in arrays.files} == {"points|dense": 0, "rows|dense": 0}


def test_what_only_refers_to_an_erased_memory_stays_in_backups(
    core: Core, anchor: MemoryAnchor, purge: Purge, tmp_path: Path
) -> None:
    """Rule purge.backups: a fact that cites an erased event is kept in a backup, as it is in the store."""
    event = anchor.log_event("the atlantis rollout was planned by the board today").id
    fact = anchor.promote(event, content="Rollouts are planned by the board.").id
    backup.create(core, tmp_path / "b.tar.gz")

    told = purge(ids=[event])

    assert anchor.get(fact).citations[0].ref == event
    assert (told["files"]["known backups"], told["versions"]) == (2, 2)
    unpack(tmp_path / "b.tar.gz", tmp_path / "parts")
    kept = (tmp_path / "parts" / "memories" / "verified_fact-000000.jsonl").read_text()
    assert json.loads(kept)["id"] == fact


def test_a_text_is_recognised_however_a_file_writes_it(tmp_path: Path) -> None:
    """Rule purge.everywhere: JSON and YAML escape, indent and fold; an alias that repeats itself ends."""
    text = 'one "two"\nthree 三'
    assert text in unescaped(json.dumps({"a": [{text: 1}]}))
    assert text in unescaped(json.dumps({"a": [{"b": text}]}, ensure_ascii=False))
    (tmp_path / "block.yaml").write_text('a: |-\n  one "two"\n  three 三\n', encoding="utf-8")
    (tmp_path / "loop.yaml").write_text("a: &a [*a, *a, atlantis]\n")
    (tmp_path / "torn.yaml").write_text("a: [atlantis\n")
    assert text in decoded_text(tmp_path / "block.yaml")
    assert "atlantis" in decoded_text(tmp_path / "loop.yaml")
    assert "atlantis" in decoded_text(tmp_path / "torn.yaml")


def test_a_waiting_batch_loses_what_was_purged_and_keeps_the_rest(
    core: Core, anchor: MemoryAnchor, purge: Purge
) -> None:
    """Rule purge.everywhere: accepted over /v1 and not worked off yet; the other items are done as promised."""
    worker = BatchWorker(core, Batches(core.records), VariantChoice(core))
    texts = ("The vault of Ostrava opens at nine", "Deploys need two reviews")
    items = [{"kind": "event", "content": text} for text in texts]
    whose = replace(anchor.actor, project=anchor.actor.scope.project)
    batch = worker.accept(whose, "b1", items)["id"]
    anchor.log_event(texts[0])

    told = purge(text="Ostrava")
    assert told["clean"] and told["files"][f"{batch}.json"] == 1
    assert "Ostrava" not in "".join(path.read_text() for path in (core.data_dir / FOLDER).rglob("*.json"))
    worker.start()
    until = time.monotonic() + 30
    while (done := worker.batches.report(batch, account="local", user="", project=""))["state"] != "done":
        assert time.monotonic() < until
        time.sleep(0.02)
    worker.stop()
    assert done["outcomes"][0]["error"]["message"] == "it was purged before its turn came"
    assert done["outcomes"][1]["outcome"] == "added"
    assert [one.content for one in anchor.search_events()] == [texts[1]]
    assert (
        purge(text="two reviews")["clean"]
        and worker.batches.report(batch, account="local", user="", project="") == done
    )


class Watched:
    """A lock that says when somebody waits for it."""

    def __init__(self, lock: Any, waited_for: threading.Event) -> None:
        self._lock, self._waited_for = lock, waited_for

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waited_for.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class PurgesMeanwhile(HashEmbedder):
    """An embedder at whose first row of an item a human purges it: the item was read and is not stored yet."""

    def __init__(self) -> None:
        super().__init__()
        self.begin: Callable[[], None] | None = None

    def documents(self, texts: Sequence[str]) -> Matrix:
        begin, self.begin = self.begin, None
        if begin is not None and any("Ostrava" in one for one in texts):
            begin()
        return super().documents(texts)


def test_a_purge_does_not_miss_the_item_of_a_batch_that_is_being_written(tmp_path: Path, project: Path) -> None:
    """Rule purge.everywhere: an item that was read and is not stored yet is stored first; the human is shown it."""
    embedder = PurgesMeanwhile()
    core = ephemeral_core(tmp_path / "core", embedder=embedder)
    caller, human = Preamble(project_dir=str(project), cwd=str(project)), human_of(core.data_dir)
    anchor = core.anchor(Actor(scope=Scope(), project_dir=str(project)))
    worker = BatchWorker(core, Batches(core.records), VariantChoice(core))
    items = [{"kind": "memory", "content": "The vault of Ostrava opens at nine"}]
    worker.accept(replace(anchor.actor, project=anchor.actor.scope.project), "b1", items)
    told: list[dict[str, Any]] = []
    either = threading.Event()
    core.upkeep = replace(core.upkeep, batch_item=Watched(core.upkeep.batch_item, either))

    def purge() -> None:
        given = {"text": "Ostrava"}
        seen = purge_digest(signed_call(core, caller, "purge_preview", given, human)["memories"])
        try:
            told.append(signed_call(core, caller, "purge", {**given, "seen": seen}, human))
        except Refused as error:
            told.append({"refused": str(error)})
        either.set()

    at_work = threading.Thread(target=purge, daemon=True)

    def begin() -> None:
        at_work.start()
        assert either.wait(30)

    embedder.begin = begin
    (waiting,) = worker.batches.waiting()
    outcomes = worker._outcomes(waiting)
    worker.batches.finish(waiting, outcomes)
    at_work.join(30)
    assert embedder.begin is None and outcomes[0]["outcome"] == "added"
    assert "changed since it was shown" in told[0].get("refused", "")

    purge()
    assert told[1]["clean"] and told[1]["versions"] == 1
    assert anchor.search("Ostrava").snippets == ()
    assert "Ostrava" not in "".join(one.read_text() for one in core.data_dir.rglob("*.json"))
    core.close()
