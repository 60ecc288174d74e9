"""Which file `find_operations` puts first for an order or a question, in the same and in the other language.

    python scripts/bench_orders.py [--show]

Prints JSON: for the half that may be looked at and the half that is held back, right first by (language of the order,
language of the file), and how often something is answered where no file fits. --show: each miss of the first half.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path

from memory_anchor.domain.requests import requests as asks
from memory_anchor.front.callers import actor_from
from memory_anchor.language.terms import is_chinese
from memory_anchor.process.app import build_core
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.runtime.wire import Preamble
from memory_anchor.settings import Settings

CORPUS = Path(__file__).parent.parent / "tests" / "corpora" / "orders.toml"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--show", action="store_true", help="the misses of the half that may be looked at")
    options = parser.parse_args()
    corpus = tomllib.loads(CORPUS.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as place:
        root, data = Path(place, "project"), Path(place, "data")
        folder = root / ".ai" / "operations"
        folder.mkdir(parents=True)
        for name, content in corpus["files"].items():
            (folder / name).write_text(content, encoding="utf-8")
        with DirectoryLock.acquire(data, role="bench") as lock:
            core = build_core(Settings(), data_dir=data, lock=lock)
            anchor = core.anchor(actor_from(Preamble(client="bench", project_dir=str(root), zone="UTC"), agent="bench"))
            anchor.find_operations(asks.FindOperations.of("release"))
            while core.nearness.embed_waiting(100):
                pass
            shown = {}
            for half in ("order", "held"):
                right, total = defaultdict(int), defaultdict(int)
                for one in corpus[half]:
                    found = anchor.find_operations(asks.FindOperations.of(one["says"]))
                    first = Path(found[0].path).name if found else ""
                    text = corpus["files"].get(one["file"], "")
                    kind = (
                        f"{'zh' if is_chinese(one['says']) else 'en'}-{'zh' if is_chinese(text) else 'en'}"
                        if one["file"]
                        else "none"
                    )
                    total[kind] += 1
                    right[kind] += first == one["file"]
                    if options.show and half == "order" and first != one["file"]:
                        print(f"{one['says']!r}: {first!r}, not {one['file']!r}")
                fits = [kind for kind in total if kind != "none"]
                shown[half] = {kind: f"{right[kind]} of {total[kind]}" for kind in sorted(total)}
                shown[half]["right first"] = round(sum(right[k] for k in fits) / sum(total[k] for k in fits), 3)
            core.close()
    print(json.dumps(shown, indent=1))


if __name__ == "__main__":
    main()
