"""Issue 17, replicas: one request that two replicas get in the same moment is done once."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from pairs import Replicas, member

from memory_anchor.adapters import file_records
from memory_anchor.adapters.file_records import RequestTurns
from memory_anchor.base.json_values import Record
from memory_anchor.domain.errors import Unavailable
from memory_anchor.domain.where import Where
from memory_anchor.front import mcp_answers
from memory_anchor.use_cases.memory import MemoryAnchor

ROUNDS = 12


def test_a_request_sent_to_three_replicas_at_once_is_done_once(service: Replicas) -> None:
    """Replicas: a request id names one write of the service; everybody who sends it gets the first answer."""
    anchors = [service.core().anchor(member()) for _ in range(3)]
    texts = ("The {} closes at nine.", "Nobody may moor at the {} without a permit.")
    for number in range(ROUNDS):
        at_once = threading.Barrier(len(anchors))
        request: Record = {"content": texts[number % 2].format(f"pier{number}x"), "request_id": f"r{number}"}

        def send(anchor: MemoryAnchor, request: Record = request, at_once: threading.Barrier = at_once) -> str:
            at_once.wait()
            return mcp_answers.run(anchor, "save_memory", request)

        with ThreadPoolExecutor(len(anchors)) as pool:
            answers = list(pool.map(send, anchors))

        assert len({json.loads(answer)["id"] for answer in answers}) == 1, answers
        facts = service.store.find("verified_fact", Where(), limit=500)
        assert len([fact for fact in facts if f"pier{number}x" in fact.content]) == 1, facts
    assert service.records.listed("turns") == []


def test_a_turn_whose_replica_was_killed_goes_to_the_next_after_its_time(
    service: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas: nobody waits for the dead for longer than a turn lasts, and nobody for ever."""
    monkeypatch.setattr(file_records, "HELD_S", 0.3)
    turns = RequestTurns(service.records)
    dead = turns.of("a")
    dead.__enter__()
    (turn,) = service.records.listed("turns")
    record = service.records.read(turn.name)
    assert record is not None

    with turns.of("a"):
        entered = time.time()
    with turns.of("b"), turns.of(""):
        pass

    assert entered >= float(json.loads(record.content))
    dead.__exit__(None, None, None)  # it wakes: what another holds by now is not taken away
    monkeypatch.setattr(file_records, "HELD_S", 60.0)
    monkeypatch.setattr(file_records, "WAIT_S", 0.1)
    with turns.of("a"), pytest.raises(Unavailable, match="send it again"), turns.of("a"):
        pass
    assert service.records.listed("turns") == []
