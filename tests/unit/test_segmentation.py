"""Segmentation: episodes end where topics do, cover everything, and stay bounded."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.domain.errors import BadInput
from memory_anchor.ingest.conversation_learning import MAX_TURNS, episodes
from memory_anchor.ingest.messages import Message


def talk(count: int) -> list[Message]:
    return [
        Message("user" if seq % 2 == 0 else "assistant", f"message number {seq} of the talk", (), seq)
        for seq in range(count)
    ]


def topics(*sizes: int, seed: int = 7) -> np.ndarray:
    """Return rows around one direction a topic."""
    random = np.random.default_rng(seed)
    centres = np.eye(16)
    rows = [centres[topic] + random.normal(0, 0.12, 16) for topic, size in enumerate(sizes) for _ in range(size)]
    matrix = np.asarray(rows, dtype=np.float32)
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def test_an_episode_ends_where_the_topic_does() -> None:
    found = episodes(talk(14), topics(5, 4, 5))
    assert [(episode.start, episode.end) for episode in found] == [(0, 5), (5, 9), (9, 14)]
    assert found[-1].why == "end"
    assert found[0].shift > 0.9


def test_one_topic_is_one_episode_up_to_the_bound() -> None:
    assert len(episodes(talk(12), topics(12))) == 1
    long = episodes(talk(100), topics(100))
    assert max(len(episode) for episode in long) <= MAX_TURNS


def test_a_mere_yes_or_a_tools_answer_opens_no_episode() -> None:
    messages = talk(10)
    messages[5] = Message("user", "ok", (), 5)
    assert all(episode.start != 5 for episode in episodes(messages, topics(5, 5)))
    messages[5] = Message("tool", "a long answer of a tool", (), 5)
    assert all(episode.start != 5 for episode in episodes(messages, topics(5, 5)))


@given(st.integers(0, 130), st.integers(0, 1000))
def test_episodes_cover_the_conversation_without_gap_or_overlap(count: int, seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(count, 8)).astype(np.float32)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    found = episodes(talk(count), rows)
    assert [place for episode in found for place in range(episode.start, episode.end)] == list(range(count))
    assert all(1 <= len(episode) <= MAX_TURNS for episode in found)


def test_another_number_of_vectors_is_refused() -> None:
    with pytest.raises(BadInput, match="3 vectors for 2 messages"):
        episodes(talk(2), topics(3))


@pytest.mark.slow
def test_topics_of_real_talk_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule: thresholds are calibrated on centred cosines of the bundled embedder; F1 on the held-back half >= 0.75."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "scripts")
    assert importlib.import_module("bench_writepath").segmentation()["test"] >= 0.75
