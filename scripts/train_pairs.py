"""Train the model of `ingest/reconcile.py`: are two statements a repeat, a contradiction, or different facts.

Training data, all our own: tests/corpora/pairs.tsv, the dev half of scripts/data/writer_pairs.tsv,
scripts/data/writer_train.tsv, writer_near.tsv (other facts in shared words) and writer_moved.tsv (changes of something
else), the output of scripts/pair_slots.py, and unrelated neighbours in our own stores, which a save meets most often.
The test parts of writer_pairs.tsv and writer_near.tsv and the neighbours of the bundled evaluation are only scored at
the end. Needs scikit-learn, which nothing needs at run time.

    .venv/bin/python scripts/train_pairs.py            print the scores
    .venv/bin/python scripts/train_pairs.py --write    write memory_anchor/ingest/pair_model.json too
    .venv/bin/python scripts/train_pairs.py --check    fail unless pair_model.json is what it gives (nothing is drawn)
"""

from __future__ import annotations

import argparse
import json
import tempfile
from itertools import permutations
from pathlib import Path
from typing import Any

import moments_data
import numpy as np
import pair_slots
import yaml
from bench_writer import DATA, RememberedEmbedder
from evaluation.cases import bundled
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from memory_anchor.ingest.reconcile import CLASSES, CONTRADICTS_FROM, NUMBERS, pair_features
from memory_anchor.language.coverage import alike
from memory_anchor.recall.centring import Centring, script_of

ROOT = Path(__file__).parent.parent
CLASS_OF = {"dup": 0, "enrich": 0, "conflict": 1, "changed": 2, "hold": 3, "related": 3, "unrelated": 3}
NEIGHBOUR = 0.28
"""Centred cosine from which two memories of one store are looked at."""
WEIGHT = {"beside": 0.5, "beside more": 0.02, "slots": 0.35, "dev": 2.0, "train": 2.0, "rules": 2.0, "more": 2.0}
STRENGTH = 0.03
WEIGHT_STEP = 0.005
"""How much a weight may differ from one machine to another: they stop at another last step of the same descent."""
Row = tuple[str, str, str, str]


def rows() -> list[Row]:
    """Return (source, kind, first, second)."""
    found: list[Row] = []
    for line in (ROOT / "tests/corpora/pairs.tsv").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            split, _, label, marker, _, first, second = line.split("\t")
            kind = "changed" if label == "conflict" and marker == "yes" else label
            found.append((f"pairs:{split}", kind, first, second))
    for name in ("writer_pairs.tsv", "writer_train.tsv", "writer_near.tsv", "writer_moved.tsv"):
        for line in (DATA / name).read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                split, kind, first, second = line.split("\t")
                found.append((split, kind, first, second))
    found += [("slots", kind, first, second) for _, kind, first, second in pair_slots.pairs()]
    return found


def cosines(found: list[Row], vectors: Path) -> list[float]:
    """Return the centred cosine of each pair, as the first memories of a store see it."""
    embedder = RememberedEmbedder(vectors)
    texts = list(dict.fromkeys(text for row in found for text in row[2:]))
    scripts = np.array([script_of(text) for text in texts], dtype=np.int8)
    centred = Centring(embedder.identity).documents(embedder.documents(texts), scripts)
    embedder.keep()
    at = dict(zip(texts, centred, strict=True))
    return [float(at[first] @ at[second]) for _, _, first, second in found]


def beside(vectors: Path) -> tuple[list[Row], list[float]]:
    """Return neighbours of one store, all of different facts, and their cosines; "beside held" is for scoring."""
    stores = {f"beside:{path.stem}": list(_read(path)["memories"].values()) for path in DATA.glob("relevance_*.yaml")}
    for name in ("prompts_train", "unasked"):
        for language, part in _read(DATA / f"{name}.yaml").items():
            stores[f"beside:{name}:{language}"] = [memory for _, memory, _ in part["decides"]]
    stores["bundled"] = [one.text for one in bundled().memories]
    decisive = [rule.text for language in ("en", "zh") for rule in moments_data.read(language)[0]]
    stores["beside more"] = list(dict.fromkeys(decisive))
    found: list[Row] = []
    for name, texts in stores.items():
        held = any(word in name for word in ("test", "unasked", "bundled"))
        source = "beside held" if held else name if name in WEIGHT else "beside"
        found += [(source, "unrelated", first, second) for first, second in permutations(texts, 2)]
    kept = [pair for pair in zip(found, cosines(found, vectors), strict=True) if pair[1] >= NEIGHBOUR]
    return [row for row, _ in kept], [cosine for _, cosine in kept]


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def score(name: str, kinds: np.ndarray, shares: np.ndarray) -> str:
    """Return what a share of the pairs was taken for."""
    said = np.where(shares[:, 1] + shares[:, 2] >= CONTRADICTS_FROM, 1, np.where(shares[:, 0] >= shares[:, 3], 0, 3))
    true = np.array([{2: 1}.get(CLASS_OF[kind], CLASS_OF[kind]) for kind in kinds])
    pairs = (kinds != "enrich") & (kinds != "hold")
    same, really = said < 2, true < 2
    hit = (same & really & pairs).sum()
    missed = (~same & really & pairs).sum() + (same & ~really & pairs).sum()
    both = same & really & pairs
    parts = [f"{kind} {(said == true)[kinds == kind].sum()}/{(kinds == kind).sum()}" for kind in sorted(set(kinds))]
    silent = (said[true == 1] != 1).sum()
    return (
        f"{name}: same slot F1 {2 * hit / max(1, 2 * hit + missed):.3f}, repeat or contradiction "
        f"{(said == true)[both].mean():.3f}, silent {silent}/{(true == 1).sum()}; {', '.join(parts)}"
    )


def main() -> None:
    """Print the scores of each half left out in turn and of the test half; write the numbers."""
    asks = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asks.add_argument("--vectors", type=Path, default=Path(tempfile.gettempdir()) / "writer-vectors.npz")
    asks.add_argument("--write", action="store_true")
    asks.add_argument("--check", action="store_true")
    given = asks.parse_args()
    found = rows()
    near = cosines(found, given.vectors)
    neighbours, their = beside(given.vectors)
    found, near = found + neighbours, near + their
    table = [pair_features(*pair[2:], cosine) for pair, cosine in zip(found, near, strict=True)]
    # Once more as it is without an embedder, so that the words alone carry it too.
    table += [pair_features(first, second, alike(first, second)) for _, _, first, second in found]
    found, by_words = found * 2, np.arange(2 * len(found)) >= len(found)
    names = list(table[0])
    matrix = np.array([[row[name] for name in names] for row in table])
    sources, kinds = np.array([row[0] for row in found]), np.array([row[1] for row in found])
    classes = np.array([CLASS_OF[kind] for kind in kinds])
    weights = np.array([WEIGHT.get(source, 1.0) for source in sources]) * np.where(by_words, 0.5, 1.0)
    # Words alone cannot tell these apart, and would unlearn repeats.
    weights[by_words & np.isin(sources, ("near", "moved"))] = 0.0

    def fitted(chosen: np.ndarray) -> tuple[StandardScaler, LogisticRegression]:
        scaler = StandardScaler().fit(matrix[chosen])
        model = LogisticRegression(C=STRENGTH, max_iter=4000)
        return scaler, model.fit(scaler.transform(matrix[chosen]), classes[chosen], sample_weight=weights[chosen])

    known = ~np.isin(sources, ("test", "near test", "beside held"))
    for name in ("dev", "train", "near", "moved", "more", "pairs:held", "pairs:later", "pairs:fresh", "pairs:work"):
        scaler, model = fitted(known & (sources != name))
        left = (sources == name) & ~by_words
        print(score(f"{name} left out", kinds[left], model.predict_proba(scaler.transform(matrix[left]))))
    scaler, model = fitted(known)
    tested = []
    test, near_test, held = sources == "test", sources == "near test", sources == "beside held"
    for name, asked in (
        ("test", test & ~by_words),
        ("test by words alone", test & by_words),
        ("in shared words", near_test & ~by_words),
        ("in shared words by words alone", near_test & by_words),
        ("neighbours", held & ~by_words),
    ):
        tested.append(score(name, kinds[asked], model.predict_proba(scaler.transform(matrix[asked]))))
    print("\n".join(tested))
    slopes = model.coef_ / scaler.scale_
    constants = model.intercept_ - slopes @ scaler.mean_
    numbers = [
        [round(float(one), 4) for one in (constant, *row)] for constant, row in zip(constants, slopes, strict=True)
    ]
    if given.check:
        shipped = json.loads(NUMBERS.read_text(encoding="utf-8"))
        same = shipped["figures"] == names and np.abs(np.array(shipped["weights"]) - numbers).max() <= WEIGHT_STEP
        if not same:
            raise SystemExit(f"{NUMBERS.name} is not what these pairs give")
        print(f"{NUMBERS.name} is what these pairs give")
    if given.write:
        report = {
            "made_by": "scripts/train_pairs.py",
            "trained_on": f"{int((known & ~by_words).sum())} pairs of our own",
            "scores": tested,
            "classes": CLASSES,
            "figures": names,
            "weights": numbers,
        }
        NUMBERS.write_text(json.dumps(report, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
        print(NUMBERS.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
