#!/usr/bin/env python3
# ruff: noqa: E501
"""Train the numbers by which `ingest/worth.py` says whether a sentence is worth remembering, and as what.

Sources: our own working sessions (memory_anchor/evaluation/data/sessions_{en,zh}, labels from what a careful reader keeps), our own lines
(scripts/data/capture_lines_{en,zh}.txt), and MemoryCode's dialogues (Apache-2.0, `--memorycode FILE`; a sentence counts
as a rule where it holds a rule's literal or most of its topic's words). Needs scikit-learn, which nothing else here does.

    python scripts/train_capture.py --memorycode memorycode_dev.json            figures: one source left out at a time
    python scripts/train_capture.py --memorycode memorycode_dev.json --write    also write worth.json, from all of them
    python scripts/train_capture.py --memorycode memorycode_dev.json --check    fail unless worth.json is what it gives
    ... --only dev --write       from the dev halves alone, to score the test halves through the real door

Nothing in it is drawn at random: `--check` asks for every threshold and every weight within one of its 254 steps.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bench_capture import KeptRows, literal, messages_of, topic_words

from memory_anchor.evaluation.capture import WorkingSession, coverage, holds, sessions, words
from memory_anchor.ingest.extraction import sentences_of
from memory_anchor.ingest.messages import conversation
from memory_anchor.ingest.worth import KINDS, NUMBERS, Said, chat_figures, figures, form
from memory_anchor.recall.centring import Centring, script_of

DATA = Path(__file__).parent / "data"
STRENGTH = {"form": 0.3, "meaning": 0.15, "chat": 0.08, "kinds": 0.3}
WEIGHT = {"mc": 0.3, "lines": 1.0, "s": 1.0}
"""How much a sentence of each source counts: the dialogues have ten times as many."""
SETS = ("form", "meaning", "chat")
LEFT_OUT_OF = {"chat": "mc"}
"""What a set of numbers does not see: dialogues of long messages say nothing of short ones."""
FOLDS = 5
SHARE_READ = 0.985
"""Share of what is worth keeping that the form alone must let through to be embedded."""
Labelled = list[tuple[Said, str]]
"""Sentences with their kind, `0` for nothing."""


def of_session(session: WorkingSession) -> Labelled:
    every = sentences_of(conversation(session.messages))
    kinds = ["0"] * len(every)
    for item in session.wanted:
        here = [at for at, one in enumerate(every) if one.seq == item.message]
        asked = words(item.text)

        def share(at: int, asked: frozenset[str] = asked, item: Any = item) -> float:
            text = every[at].said.text
            return coverage(words(text), asked) + 0.4 * any(holds(text, name) for name in item.literals)

        for at in [at for at in here if share(at) >= 0.55] or sorted(here, key=share)[-1:]:
            kinds[at] = item.kind
    return [(one.said, kind) for one, kind in zip(every, kinds, strict=True)]


def of_lines(path: Path) -> Labelled:
    found: Labelled = []
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        kind, text = line.split(" | ", 1)
        before, _, text = text.rpartition(" >> ")
        role = "assistant" if text.startswith("a: ") else "user"
        found.append((Said(text.removeprefix("a: "), role, before.removeprefix("a: ")), kind.strip()))
    return found


def of_dialogue(dialogue: dict[str, Any]) -> Labelled:
    found: Labelled = []
    for session in dialogue["sessions"]:
        topics = [
            topic_words(t) for t, kind in zip(session["topic"], session["type"], strict=True) if "instruction" in kind
        ]
        names = [literal(value).strip("@") for _, value in session["session_regex"] if literal(value)]
        for one in sentences_of(conversation(messages_of(session["text"], dialogue["mentor"]))):
            kind = "0"
            if one.said.role == "user" and topics:
                said = topic_words(one.said.text)
                shared = [len(said & topic) for topic in topics]
                if any(re.search(rf"['\"`@]{re.escape(name)}", one.said.text) for name in names) or any(
                    count >= max(2, 0.6 * len(topic)) for count, topic in zip(shared, topics, strict=True)
                ):
                    kind = "rule"
                elif max(shared) >= 2:
                    kind = "?"
            if kind != "?":
                found.append((one.said, kind))
    return found


def sources(memorycode: Path | None) -> dict[str, Labelled]:
    found = {f"lines/{language}": of_lines(DATA / f"capture_lines_{language}.txt") for language in ("en", "zh")}
    found |= {f"s/{one.language}/{one.half}/{one.name}": of_session(one) for one in sessions() if one.half != "held"}
    if memorycode:
        for number, dialogue in enumerate(json.loads(memorycode.read_text("utf-8"))["dialogues"]):
            found[f"mc/en/{'test' if number % 2 else 'dev'}/{number}"] = of_dialogue(dialogue)
    return found


class Data:
    def __init__(self, found: dict[str, Labelled], embedder: KeptRows) -> None:
        self.labels = {name: np.array([kind for _, kind in rows]) for name, rows in found.items()}
        self.chinese = {
            name: np.array([bool(script_of(said.text)) for said, _ in rows]) for name, rows in found.items()
        }
        self.seen: dict[str, dict[str, np.ndarray]] = {"form": {}, "meaning": {}, "chat": {}}
        centring = Centring(embedder.identity)
        for name, labelled in found.items():
            rows = self._rows(centring, embedder, [said.read_as for said, _ in labelled])
            is_chat = name.split("/")[0] != LEFT_OUT_OF["chat"]
            within = self._rows(centring, embedder, [said.read_within for said, _ in labelled]) if is_chat else rows
            seen = [(said, row, around) for (said, _), row, around in zip(labelled, rows, within, strict=True)]
            self.seen["form"][name] = np.array([form(said) for said, _ in labelled], dtype=np.float32)
            self.seen["meaning"][name] = np.array([figures(said, row) for said, row, _ in seen])
            self.seen["chat"][name] = np.array([chat_figures(*one) for one in seen])

    def _rows(self, centring: Centring, embedder: KeptRows, texts: Sequence[str]) -> np.ndarray:
        return centring.documents(
            embedder.documents(texts), np.array([script_of(text) for text in texts], dtype=np.int8)
        )

    def of(self, what: str, names: Sequence[str]) -> np.ndarray:
        return np.concatenate([self.seen[what][name] for name in names])

    def kinds(self, names: Sequence[str]) -> np.ndarray:
        return np.concatenate([self.labels[name] for name in names])


def fit(data: Data, names: Sequence[str], what: str) -> np.ndarray:
    """Return (kinds + 1, figures + 1) weights: the chance, then each kind; the constant last."""
    from sklearn.linear_model import LogisticRegression

    names = [name for name in names if name.split("/")[0] != LEFT_OUT_OF.get(what)]
    seen, kinds = data.of(what, names), data.kinds(names)
    counts = np.concatenate([np.full(len(data.labels[name]), WEIGHT[name.split("/")[0]]) for name in names])
    worth = LogisticRegression(C=STRENGTH[what], max_iter=600).fit(seen, kinds != "0", sample_weight=counts)
    kept = kinds != "0"
    kind = LogisticRegression(C=STRENGTH["kinds"], max_iter=600, class_weight="balanced")
    kind.fit(seen[kept], kinds[kept], sample_weight=counts[kept])
    rows = np.zeros((len(KINDS) + 1, seen.shape[1] + 1))
    rows[0] = [*worth.coef_[0], worth.intercept_[0]]
    rows[1:, -1] = -99
    for name, weights, constant in zip(kind.classes_, kind.coef_, kind.intercept_, strict=True):
        rows[1 + KINDS.index(name)] = [*weights, constant]
    return rows


def chances(weights: np.ndarray, seen: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-(seen @ weights[0, :-1] + weights[0, -1])))


def folds(names: Sequence[str]) -> list[list[str]]:
    """Return the conversations in parts to be left out in turn; the lines always train."""
    talks = [name for name in names if not name.startswith("lines")]
    return [talks[at::FOLDS] for at in range(FOLDS)]


def left_out(data: Data, names: Sequence[str], what: str) -> tuple[dict[str, np.ndarray], float]:
    """Return the chances of each conversation from a model that has not seen it, and the share of kinds told right."""
    found: dict[str, np.ndarray] = {}
    right = count = 0
    for part in folds(names):
        weights = fit(data, [name for name in names if name not in part], what)
        for name in part:
            found[name] = chances(weights, data.seen[what][name])
            kept = data.labels[name] != "0"
            said = np.argmax(data.seen[what][name][kept] @ weights[1:, :-1].T + weights[1:, -1], axis=1)
            right += sum(KINDS[at] == kind for at, kind in zip(said, data.labels[name][kept], strict=True))
            count += int(kept.sum())
    return found, right / max(1, count)


def threshold(truth: np.ndarray, chance: np.ndarray, precision: float) -> float:
    """Return the least chance from which on at least `precision` of the sentences are worth it."""
    order = np.argsort(-chance)
    share = np.cumsum(truth[order]) / np.arange(1, len(order) + 1)
    good = np.flatnonzero(share >= precision)
    return round(float(chance[order][good[-1]]) if len(good) else 0.99, 3)


def report(truth: np.ndarray, chance: np.ndarray) -> str:
    from sklearn.metrics import average_precision_score

    at = threshold(truth, chance, 0.8)
    recall = (chance[truth] >= at).mean()
    return f"average precision {average_precision_score(truth, chance):.3f}, recall {recall:.3f} at precision .8 (from {at})"


def stored(weights: np.ndarray, limits: dict[str, Any]) -> dict[str, Any]:
    """Return a set of numbers as JSON keeps it: each row as steps of its own size."""
    clipped = np.where(weights[:, -1:] <= -99, 0, weights)
    clipped[:, -1] = np.where(weights[:, -1] <= -99, -np.abs(clipped).max(), weights[:, -1])
    steps = np.abs(clipped).max(axis=1) / 127
    steps[steps == 0] = 1
    rows = np.round(clipped / steps[:, None]).astype(np.int8)
    return {
        "steps": [float(f"{step:.6g}") for step in steps],
        "weights": base64.b85encode(rows.tobytes()).decode(),
        **limits,
    }


def differing(made: dict[str, Any], shipped: dict[str, Any]) -> list[str]:
    """Return the parts of two sets of numbers that differ by more than rounding: a step of a weight, .01 of a chance."""
    odd = [name for name in ("of", "embedder") if made[name] != shipped[name]]
    odd += [name for name in ("read_from", "leans_from") if abs(made[name] - shipped[name]) > CHANCE_STEP]
    for what in SETS:
        mine, theirs = (np.frombuffer(base64.b85decode(one[what]["weights"]), np.int8) for one in (made, shipped))
        same_size = mine.shape == theirs.shape and np.allclose(made[what]["steps"], shipped[what]["steps"], rtol=0.01)
        if not same_size or np.abs(mine.astype(int) - theirs).max() > 1:
            odd.append(f"{what}.weights")
        odd += [
            f"{what}.{limit}"
            for limit in ("keep", "join", "sure")
            if not np.allclose(made[what][limit], shipped[what][limit], atol=CHANCE_STEP)
        ]
    return odd


CHANCE_STEP = 0.01
PRECISION = {"form": (0.78, 0.8), "meaning": (0.78, 0.8), "chat": (0.78, 0.85)}
"""Of single sentences left out, English and Chinese, from which the keeping threshold is taken; memories of several are more often right."""
LECTURE_KEEP = 0.55
"""From which chance a lecture's sentence is kept, set by hand: between what precision .78 and .85 of single sentences
ask for, because a rule is said in several of them."""


def main() -> None:
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memorycode", type=Path)
    parser.add_argument("--only", choices=("", "dev"), default="")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--sources", action="store_true", help="also leave one kind of source out at a time")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "capture_rows.npz")
    chosen = parser.parse_args()
    embedder = KeptRows(chosen.cache)
    data = Data(sources(chosen.memorycode), embedder)
    embedder.keep()
    names = [name for name in data.labels if chosen.only != "dev" or "/test/" not in name]
    numbers: dict[str, Any] = {"from": "own sessions and lines; MemoryCode (Apache-2.0)", "of": len(data.kinds(names))}
    numbers["embedder"] = embedder.identity.model.partition("@")[0]
    for what in SETS:
        found, told = left_out(data, names, what)
        limits: dict[str, Any] = {}
        for language, keeps in zip(("en", "zh"), PRECISION[what], strict=True):
            here = [name for name in found if name.startswith(f"s/{language}")]
            truth, chance = data.kinds(here) != "0", np.concatenate([found[name] for name in here])
            print(what, language, "sessions:", report(truth, chance))
            for limit, precision in (("keep", keeps), ("join", 0.6), ("sure", 0.9)):
                limits.setdefault(limit, []).append(threshold(truth, chance, precision))
        here = [name for name in found if name.startswith("mc")]
        truth, chance = data.kinds(here) != "0", np.concatenate([found[name] for name in here])
        print(what, "dialogues:", report(truth, chance))
        for limit, precision in (("keep", 0.85), ("join", 0.5), ("sure", 0.8)):
            limits[limit].append(threshold(truth, chance, precision))
        if what == "meaning":
            limits["keep"][2] = LECTURE_KEEP
        print(what, f"kinds told right {told:.3f}", limits)
        if what == "form":
            every = np.concatenate([found[name][data.labels[name] != "0"] for name in found])
            numbers["read_from"] = round(float(np.quantile(every, 1 - SHARE_READ)), 4)
            rest = np.concatenate([found[name] for name in found])
            print(f"read from {numbers['read_from']}: {(rest >= numbers['read_from']).mean():.2f} of all sentences")
        numbers[what] = stored(fit(data, names, what), limits)
    numbers["leans_from"] = round(min(numbers["meaning"]["join"]) / 4, 3)
    if chosen.sources:
        for source in ("lines", "s/", "mc"):
            weights = fit(data, [name for name in names if not name.startswith(source)], "meaning")
            for language in ("s/en", "s/zh", "mc"):
                here = [name for name in data.labels if name.startswith(language)]
                if here:
                    print(
                        f"without {source}, on {language}:",
                        report(data.kinds(here) != "0", chances(weights, data.of("meaning", here))),
                    )
    if chosen.check and (odd := differing(numbers, json.loads(NUMBERS.read_text("utf-8")))):
        raise SystemExit(f"{NUMBERS.name} is not what these sources give: {', '.join(odd)}")
    if chosen.write:
        NUMBERS.write_text(json.dumps(numbers) + "\n", encoding="utf-8")
        print(NUMBERS.name, NUMBERS.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
