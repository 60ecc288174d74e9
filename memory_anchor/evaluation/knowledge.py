"""Knowledge asked bundled questions: 60 about the project's own `docs/`, half of them in Chinese.

Each question names the document and the heading that must answer. They were written from the headings alone, before any
was asked; where another place states the same fact, it is named beside it with words that the passage must hold. The
documents are not in the wheel: this runs in a checkout of the project.
"""

from __future__ import annotations

import tempfile
import time
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from memory_anchor.errors import BadInput
from memory_anchor.json_values import Json
from memory_anchor.language.terms import is_chinese
from memory_anchor.memory import MemoryAnchor
from memory_anchor.model import Actor, Caller, RetrievedSnippet
from memory_anchor.ports import Embedder
from memory_anchor.settings import Settings

QUESTIONS = "knowledge_questions.tsv"
DEPTH = 10
SYNC_MAX = 1_000


class AnswerPlace(NamedTuple):
    """Where an answer stands. words: what the passage must hold, "" for any passage under the heading."""

    document: str
    heading: str
    words: str = ""

    def holds(self, found: RetrievedSnippet) -> bool:
        """Return whether a passage found is of this place."""
        cited = found.citations[0]
        return cited.ref == self.document and self.heading in cited.locator.heading and self.words in found.text


class DocsQuestion(NamedTuple):
    """A question and the places of its answer, the one it was written for first."""

    query: str
    places: tuple[AnswerPlace, ...]


def questions() -> list[DocsQuestion]:
    """Return the bundled questions: one a line, its document and heading, then other places and their words."""
    text = files("memory_anchor.evaluation").joinpath(QUESTIONS).read_text(encoding="utf-8")
    return [_question(line.split("\t")) for line in text.splitlines() if line]


def _question(cells: list[str]) -> DocsQuestion:
    query, document, heading, *others = cells
    also = [AnswerPlace(*others[start : start + 3]) for start in range(0, len(others), 3)]
    return DocsQuestion(query, (AnswerPlace(document, heading), *also))


def run(docs: Path, settings: Settings, embedder: Embedder | None) -> list[dict[str, Json]]:
    """Return the figures of each language: R@1, R@5, MRR by heading, and of documents, ms a search (median).

    Raises BadInput: `docs` does not hold the documents that are asked for.
    """
    from memory_anchor.adapters.dict_store import DictStore
    from memory_anchor.app import build_core

    asked = questions()
    named = {place.document for question in asked for place in question.places}
    if missing := sorted(name for name in named if not (docs / name).is_file()):
        raise BadInput(f"{docs} lacks {', '.join(missing)}; run this in a checkout of the project")
    with tempfile.TemporaryDirectory(prefix="memory-anchor-eval-") as folder:
        core = build_core(settings, data_dir=Path(folder), store=DictStore(), embedder=embedder)
        try:
            anchor = core.anchor(Actor(Caller.HUMAN))
            anchor.knowledge_add(str(docs), "files")
            for _ in range(SYNC_MAX):
                if not anchor.knowledge_sync("", False)["left"]:
                    break
            while core.knowledge.embed(64):
                pass
            return _figures(anchor, asked)
        finally:
            core.close()


def _figures(anchor: MemoryAnchor, asked: list[DocsQuestion]) -> list[dict[str, Json]]:
    found: dict[str, list[tuple[int, int, float]]] = {"en": [], "zh": []}
    for query, answers in asked:
        started = time.perf_counter()
        snippets = anchor.knowledge_search(query, limit=DEPTH)
        took = 1000 * (time.perf_counter() - started)
        places = [at for at, one in enumerate(snippets, 1) if any(place.holds(one) for place in answers)]
        right = {place.document for place in answers}
        documents = [at for at, one in enumerate(snippets, 1) if one.citations[0].ref in right]
        row = (places[0] if places else 0, documents[0] if documents else 0, took)
        found["zh" if is_chinese(query) else "en"].append(row)
    return [
        {
            "kind": "knowledge",
            "language": language,
            "questions": len(rows),
            "R@1": round(sum(at == 1 for at, _, _ in rows) / len(rows), 3),
            "R@5": round(sum(0 < at <= 5 for at, _, _ in rows) / len(rows), 3),
            "MRR": round(sum(1 / at for at, _, _ in rows if at) / len(rows), 3),
            "document@5": round(sum(0 < at <= 5 for _, at, _ in rows) / len(rows), 3),
            "search_ms": round(sorted(took for _, _, took in rows)[len(rows) // 2], 1),
        }
        for language, rows in found.items()
    ]
