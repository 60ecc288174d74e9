#!/usr/bin/env python3
# ruff: noqa: E501
"""Train the model of `ingest/capture_classifier.py`: is a sentence worth remembering, and as what type.

Sources: our own working sessions (scripts/evaluation/data/sessions_{en,zh}, labels from what a careful reader keeps), our own lines
(scripts/data/capture_lines_{en,zh}.txt, capture_chat_lines_{en,zh}.txt), and MemoryCode's dialogues (Apache-2.0, `--memorycode FILE`; a sentence counts
as a rule where it holds a rule's literal or most of its topic's words). Needs scikit-learn, which nothing else here does.

    python scripts/train_capture.py --memorycode memorycode_dev.json            figures: one source left out at a time
    python scripts/train_capture.py --memorycode memorycode_dev.json --write    also write worth.json, from all of them
    python scripts/train_capture.py --memorycode memorycode_dev.json --check    fail unless worth.json is what it gives
    python scripts/train_capture.py --sets chat --write       short messages' numbers alone, which need no dialogues
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
from bench_capture import CachedRows, literal, messages_of, topic_words
from evaluation.runner import WorkingSession, coverage, holds, nearest, says_item, sessions, words

from memory_anchor.ingest.capture_classifier import (
    KINDS,
    NO_WORTH,
    NUMBERS,
    Utterance,
    Worth,
    alone_features,
    chat_features,
    embedding_features,
    form_features,
)
from memory_anchor.ingest.extraction import memories_of, sentences_of
from memory_anchor.ingest.messages import conversation
from memory_anchor.recall.centring import Centring, script_of

DATA = Path(__file__).parent / "data"
STRENGTH = {"form": (0.3, 0.3), "meaning": (0.25, 0.3), "chat": (0.06, 0.1)}
"""Of the chance and of the kinds: the inverse of how strongly weights are held down."""
WEIGHT = {"mc": 0.3, "lines": 1.0, "s": 1.0}
"""How much a sentence of each source counts: the dialogues have ten times as many."""
LINES_IN_CHAT = 0.5
"""How much a line counts for short messages, where the lines are a quarter: average precision of sessions left out .853
and .916 (1.0: .844 and .906)."""
SETS = ("form", "meaning", "chat")


def sees(what: str, name: str) -> bool:
    """Return whether a set of numbers is trained on a source: short messages not on dialogues of long ones, and the
    others not on what was written for short messages later (sessions 3x, 4x, 6x and 7x, `capture_chat_lines`)."""
    source, _, rest = name.partition("/")
    if what == "chat":
        return source != "mc"
    return source == "mc" or (rest[-1] != "2" if source == "lines" else name.rpartition("/")[2][0] in "01")


FOLDS = 5
LINES_ALONE = 0.3
"""How much a line that was not written for short messages counts for what is said alone."""
ALONE_PRECISION = (0.8, 0.85)
"""Of the lines for short messages, half of which only sound like a rule, from which the keeping thresholds are taken:
of those that say what always holds, and of others."""
SHARE_READ = 0.985
"""Share of what is worth keeping that the form alone must let through to be embedded."""
Labelled = list[tuple[Utterance, str]]
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
        found.append((Utterance(text.removeprefix("a: "), role, before.removeprefix("a: ")), kind.strip()))
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


def name_of(session: WorkingSession) -> str:
    return f"s/{session.language}/{session.half}/{session.name}"


def sources(memorycode: Path | None) -> dict[str, Labelled]:
    found: dict[str, Labelled] = {}
    for language in ("en", "zh"):
        for name, manner in (("capture_lines", ""), ("capture_chat_lines", "2")):
            lines = of_lines(DATA / f"{name}_{language}.txt")
            found |= {f"lines/{part}{language}{manner}": lines[part::FOLDS] for part in range(FOLDS)}
    found |= {name_of(one): of_session(one) for one in sessions() if one.half != "held"}
    if memorycode:
        for number, dialogue in enumerate(json.loads(memorycode.read_text("utf-8"))["dialogues"]):
            found[f"mc/en/{'test' if number % 2 else 'dev'}/{number}"] = of_dialogue(dialogue)
    return found


class Data:
    def __init__(self, found: dict[str, Labelled], embedder: CachedRows, sets: Sequence[str]) -> None:
        self.labels = {name: np.array([kind for _, kind in rows]) for name, rows in found.items()}
        self.chinese = {
            name: np.array([bool(script_of(said.text)) for said, _ in rows]) for name, rows in found.items()
        }
        self.seen: dict[str, dict[str, np.ndarray]] = {"form": {}, "meaning": {}, "chat": {}}
        self.lines = {name: [said for said, _ in labelled] for name, labelled in found.items() if name[:5] == "lines"}
        centring = Centring(embedder.identity)
        for name, labelled in found.items():
            if not any(sees(what, name) for what in sets):
                continue
            rows = self._rows(centring, embedder, [said.embedded_text for said, _ in labelled])
            if "form" in sets and sees("form", name):
                self.seen["form"][name] = np.array([form_features(said) for said, _ in labelled], dtype=np.float32)
            if "meaning" in sets and sees("meaning", name):
                self.seen["meaning"][name] = np.array(
                    [embedding_features(said, row) for (said, _), row in zip(labelled, rows, strict=True)]
                )
            if "chat" in sets and sees("chat", name):
                within = self._rows(centring, embedder, [said.embedded_message for said, _ in labelled])
                seen = [(said, row, around) for (said, _), row, around in zip(labelled, rows, within, strict=True)]
                self.seen["chat"][name] = np.array([chat_features(*one) for one in seen])

    def _rows(self, centring: Centring, embedder: CachedRows, texts: Sequence[str]) -> np.ndarray:
        return centring.documents(
            embedder.documents(texts), np.array([script_of(text) for text in texts], dtype=np.int8)
        )

    def of(self, what: str, names: Sequence[str]) -> np.ndarray:
        return np.concatenate([self.seen[what][name] for name in names])

    def kinds(self, names: Sequence[str]) -> np.ndarray:
        return np.concatenate([self.labels[name] for name in names])


WRITTEN = ("01", "36", "4", "7")
"""First digits of the sessions that were written at one time, in one manner."""
APART = 3.0
"""How freely a manner may be worth more or less as a whole: the scale of its figure."""


def manner(data: Data, names: Sequence[str]) -> np.ndarray:
    """Return of each sentence which manner of `WRITTEN` it is of; none for our lines, which `Utterance.brevity` tells.

    Known in training alone: what a whole manner is worth is told apart from what a sentence says, and forgotten. Of
    sessions of a manner left out, English ranks .836 and Chinese .913 so (average precision), .809 and .878 as one.
    """
    rows = []
    for name in names:
        digit = "-" if name.startswith("lines") else name.split("/")[-1][0]
        rows.append(np.tile([APART * (digit in tens) for tens in WRITTEN], (len(data.labels[name]), 1)))
    return np.concatenate(rows)


def fit(data: Data, names: Sequence[str], what: str) -> np.ndarray:
    """Return (kinds + 1, figures + 1) weights: the chance, then each kind; the constant last."""
    from sklearn.linear_model import LogisticRegression

    seen, kinds = data.of(what, names), data.kinds(names)
    counts = np.concatenate([np.full(len(data.labels[name]), WEIGHT[name.split("/")[0]]) for name in names])
    if what == "chat":
        counts[np.concatenate([np.full(len(data.labels[n]), n.startswith("lines")) for n in names])] *= LINES_IN_CHAT
    known = manner(data, names) if what == "chat" else np.zeros((len(seen), 0), seen.dtype)
    worth = LogisticRegression(C=STRENGTH[what][0], max_iter=600)
    worth.fit(np.concatenate([seen, known], axis=1), kinds != "0", sample_weight=counts)
    own, of_manner = np.split(worth.coef_[0], [seen.shape[1]])
    met = known.any(axis=0)  # a conversation of an unknown manner is worth what sessions are on the average
    constant = worth.intercept_[0] + (APART * of_manner[met].mean() if met.any() else 0)
    kept = kinds != "0"
    kind = LogisticRegression(C=STRENGTH[what][1], max_iter=600, class_weight="balanced")
    kind.fit(seen[kept], kinds[kept], sample_weight=counts[kept])
    rows = np.zeros((len(KINDS) + 1, seen.shape[1] + 1))
    rows[0] = [*own, constant]
    rows[1:, -1] = -99
    for name, weights, constant in zip(kind.classes_, kind.coef_, kind.intercept_, strict=True):
        rows[1 + KINDS.index(name)] = [*weights, constant]
    return rows


def chances(weights: np.ndarray, seen: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-(seen @ weights[0, :-1] + weights[0, -1])))


def alone(data: Data, names: Sequence[str]) -> dict[str, Any]:
    """Return the numbers for what a user says alone, from the lines, each seen with the chance that a model of short
    messages gives it which was not trained on it. Sessions' messages of one sentence made it worse (.904 to .897)."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict

    seen, worth, parts, is_chat = [], [], [], []
    for part in range(FOLDS):
        mine = [name for name in names if name.startswith(f"lines/{part}")]
        weights = fit(data, [name for name in names if name not in mine], "chat")
        for name in mine:
            rows = zip(data.lines[name], chances(weights, data.seen["chat"][name]), data.labels[name], strict=True)
            for said, chance, kind in rows:
                if said.role == "user":
                    seen.append(alone_features(said, float(chance)))
                    worth.append(kind != "0")
                    is_chat.append(name.endswith("2"))
                    parts.append(part)
    figures, truth, chat, at = map(np.array, (seen, worth, is_chat, parts))
    weight = np.where(chat, 1.0, LINES_ALONE)
    model = LogisticRegression(C=1.0, max_iter=2000)
    left = [(np.flatnonzero(at != part), np.flatnonzero(at == part)) for part in range(FOLDS)]
    given = {"params": {"sample_weight": weight}}
    chance = cross_val_predict(model, figures, truth, cv=left, method="predict_proba", **given)[:, 1]
    print("alone:", report(truth[chat], chance[chat]))
    limits: dict[str, Any] = {}
    for place, chosen in enumerate((figures[:, -2] > 0, figures[:, -2] == 0)):  # what says what always holds, and not
        here = chat & chosen
        for limit, precision in (("keep", ALONE_PRECISION[place]), ("join", 0.6), ("sure", 0.9)):
            limits.setdefault(limit, []).append(threshold(truth[here], chance[here], precision))
    print("alone", limits)
    model.fit(figures, truth, sample_weight=weight)
    return stored(np.array([[*model.coef_[0], model.intercept_[0]]]), limits)


def number_of(name: str) -> int:
    return int(name.split("/")[-1][:2])


def folds(names: Sequence[str], what: str) -> list[list[str]]:
    """Return the conversations in parts to be left out in turn; the lines always train. Those of short messages by their
    number, since later sessions of one number tell one story in both languages."""
    talks = [name for name in names if not name.startswith("lines")]
    if what != "chat":
        return [talks[at::FOLDS] for at in range(FOLDS)]
    return [[name for name in talks if number_of(name) % FOLDS == at] for at in range(FOLDS)]


def by_hand(names: Sequence[str]) -> list[list[str]]:
    """Return the sessions in parts that were written at one time, in one manner."""
    talks = [name for name in names if not name.startswith("lines")]
    return [[name for name in talks if name.split("/")[-1][0] in tens] for tens in WRITTEN]


def left_out(
    data: Data, names: Sequence[str], what: str, parts: Sequence[Sequence[str]]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], float]:
    """Return chances and places of the kinds of each conversation from a model that has not seen it, and the share of
    kinds told right."""
    found: dict[str, np.ndarray] = {}
    told: dict[str, np.ndarray] = {}
    right = count = 0
    for part in parts:
        weights = fit(data, [name for name in names if name not in part], what)
        for name in part:
            found[name] = chances(weights, data.seen[what][name])
            kept = data.labels[name] != "0"
            told[name] = np.argmax(data.seen[what][name] @ weights[1:, :-1].T + weights[1:, -1], axis=1)
            right += sum(KINDS[at] == kind for at, kind in zip(told[name][kept], data.labels[name][kept], strict=True))
            count += int(kept.sum())
    return found, told, right / max(1, count)


def operating_point(
    talks: Sequence[WorkingSession],
    found: dict[str, np.ndarray],
    told: dict[str, np.ndarray],
    join: Sequence[float],
) -> float:
    """Return the least chance from which on `AIM` of the memories of sessions left out by source are right, as the
    evaluation (`extensions/evaluation/runner.py`) counts: one for both languages, which keeps their recalls together."""
    read = [(one, sentences_of(conversation(one.messages))) for one in talks]
    at, counts = 0.0, {"en": np.zeros(4), "zh": np.zeros(4)}
    for at in np.arange(*TRIED).round(2).tolist():
        counts = {language: np.zeros(4) for language in counts}
        for session, every in read:
            least = min(join[session.language == "zh"], at)
            worths = [
                Worth(float(chance), KINDS[kind], chance >= at, chance >= least, sure=False) if one.open else NO_WORTH
                for one, chance, kind in zip(every, found[name_of(session)], told[name_of(session)], strict=True)
            ]
            kept = [one.whole for one in memories_of(every, worths)]
            wanted = [item for item in session.wanted if not item.replaced]
            hit = sum(any(says_item(item, one) for one in kept) for item in wanted)
            about = [nearest(one, session.wanted) for one in kept]
            right = sum(item is not None and not item.replaced for item in about)
            counts[session.language] += (len(wanted), hit, len(kept), right)
        both = counts["en"] + counts["zh"]
        if both[3] >= AIM * both[2]:
            break
    for language, (wanted, hit, kept, right) in counts.items():
        print(
            f"  memories of sources left out, {language}: recall {hit / wanted:.3f}, precision {right / kept:.3f} from {at}"
        )
    return at


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
    for what in (*SETS, "alone"):
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
PRECISION = {"form": (0.78, 0.8), "meaning": (0.78, 0.8), "chat": (0.8, 0.8)}
"""Of single sentences left out, English and Chinese, from which the keeping threshold is taken."""
AIM = 0.87
"""Precision of whole memories of sessions left out by source, from which short messages' keeping threshold is taken."""
TRIED = (0.3, 0.92, 0.02)
"""Chances tried as that threshold: from, below, by."""
LECTURE_KEEP = 0.55
"""From which chance a lecture's sentence is kept, set by hand: between what precision .78 and .85 of single sentences
ask for, because a rule is said in several of them."""


def main() -> None:
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memorycode", type=Path)
    parser.add_argument("--sets", choices=SETS, nargs="+", default=SETS, help="these; the others stay as they are")
    parser.add_argument("--only", choices=("", "dev"), default="")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--sources", action="store_true", help="also leave one kind of source out at a time")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "capture_rows.npz")
    chosen = parser.parse_args()
    embedder = CachedRows(chosen.cache)
    data = Data(sources(chosen.memorycode), embedder, chosen.sets)
    embedder.keep()
    every = [name for name in data.labels if chosen.only != "dev" or "/test/" not in name]
    shipped = json.loads(NUMBERS.read_text("utf-8"))
    numbers: dict[str, Any] = {**shipped, "from": "own sessions and lines; MemoryCode (Apache-2.0)"}
    numbers["embedder"] = embedder.identity.model.partition("@")[0]
    for what in chosen.sets:
        names = [name for name in every if sees(what, name)]
        found, _, right = left_out(data, names, what, folds(names, what))
        limits: dict[str, Any] = {}
        for language, keeps in zip(("en", "zh"), PRECISION[what], strict=True):
            here = [name for name in found if name.startswith(f"s/{language}")]
            truth, chance = data.kinds(here) != "0", np.concatenate([found[name] for name in here])
            print(what, language, "sessions:", report(truth, chance))
            for limit, precision in (("keep", keeps), ("join", 0.6), ("sure", 0.9)):
                limits.setdefault(limit, []).append(threshold(truth, chance, precision))
        here = [name for name in found if name.startswith("mc" if what != "chat" else "s/")]
        truth, chance = data.kinds(here) != "0", np.concatenate([found[name] for name in here])
        print(what, "dialogues:" if what != "chat" else "sessions:", report(truth, chance))
        for limit, precision in (("keep", 0.85), ("join", 0.5), ("sure", 0.8)):
            limits[limit].append(threshold(truth, chance, precision))
        if what == "meaning":
            limits["keep"][2] = LECTURE_KEEP
        if what == "chat":
            by_source, told, _ = left_out(data, names, what, by_hand(names))
            at = operating_point([one for one in sessions() if name_of(one) in found], by_source, told, limits["join"])
            limits["keep"] = [at] * 3
            limits["sure"] = [max(at, sure) for sure in limits["sure"]]
        print(what, f"kinds told right {right:.3f}", limits)
        if what == "form":
            worthy = np.concatenate([found[name][data.labels[name] != "0"] for name in found])
            numbers["read_from"] = round(float(np.quantile(worthy, 1 - SHARE_READ)), 4)
            rest = np.concatenate([found[name] for name in found])
            print(f"read from {numbers['read_from']}: {(rest >= numbers['read_from']).mean():.2f} of all sentences")
        if what == "chat":
            numbers["alone"] = alone(data, names)
        numbers[what] = stored(fit(data, names, what), limits)
        numbers["of"] = {**shipped["of"], **numbers["of"], what: len(data.kinds(names))}
    numbers["leans_from"] = round(min(numbers["meaning"]["join"]) / 4, 3)
    if chosen.sources:
        names = [name for name in every if sees("meaning", name)]
        for source in ("lines", "s/", "mc"):
            weights = fit(data, [name for name in names if not name.startswith(source)], "meaning")
            for language in ("s/en", "s/zh", "mc"):
                here = [name for name in names if name.startswith(language)]
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
