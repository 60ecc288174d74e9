"""How long a save, a search and a session's start wait while a burst of events is embedded, beside the same when quiet.

    python scripts/bench_burst.py [--events 24] [--rounds 8] [--memories 0]

One process with the real embedder and its background thread, as an engine has it. Prints JSON: p50 in milliseconds,
and the ratio of the two in this run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from memory_anchor.front import calls
from memory_anchor.front.backend import MemoryBackend
from memory_anchor.process.app import build_core
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.runtime.wire import Preamble
from memory_anchor.settings import Settings

CALLER = Preamble(client="bench", project_dir="", zone="UTC")
WORDS = ("deploy", "upload", "cache", "region", "ledger", "worker", "shard", "token", "invoice", "parser", "queue")


def sentence(chance: random.Random, words: int) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(words)) + f" {chance.randrange(10**6)}"


def session_starts(backend: MemoryBackend, session: str) -> None:
    backend.hook(CALLER, "SessionStart", {"session_id": session, "cwd": "", "source": "startup"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--memories", type=int, default=0, help="events that are stored and embedded before")
    parser.add_argument("--store", choices=("edge", "sqlite"), default=None)
    options = parser.parse_args()
    chance = random.Random(11)
    with tempfile.TemporaryDirectory() as folder, DirectoryLock.acquire(Path(folder), role="bench") as lock:
        settings = Settings() if options.store != "sqlite" else Settings.model_validate({"database": {"url": "sqlite"}})
        core = build_core(settings, data_dir=Path(folder), lock=lock)
        core.start()
        backend = MemoryBackend(core)

        def call(name: str, **given: str) -> None:
            calls.run(core, CALLER, name, given)

        def settle() -> None:
            index = core.services.searcher.index
            while index.unembedded():
                time.sleep(0.05)
            time.sleep(0.3)

        def timed(work: Callable[[], None]) -> float:
            begin = time.perf_counter()
            work()
            return (time.perf_counter() - begin) * 1000

        asked: dict[str, Callable[[], None]] = {
            "save": lambda: call("add", content=sentence(chance, 12)),
            "search": lambda: call("search", query=sentence(chance, 6)),
            "start": lambda: session_starts(backend, str(chance.random())),
        }
        for _ in range(options.memories):
            call("log", content=sentence(chance, 20))
        call("add", content=sentence(chance, 12))
        settle()
        shown = {}
        for name, work in asked.items():
            quiet, busy = [], []
            for _ in range(options.rounds):
                settle()
                quiet.append(timed(work))
                for _ in range(options.events):
                    call("log", content=sentence(chance, 60))
                busy.append(timed(work))
            settle()
            before, after = statistics.median(quiet), statistics.median(busy)
            shown[name] = {
                "quiet_ms": round(before, 1),
                "after_burst_ms": round(after, 1),
                "ratio": round(after / before, 2),
            }
        core.close()
    machine = {
        "memories": options.memories,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }
    print(json.dumps({**machine, "events": options.events, "figures": shown}, indent=1))


if __name__ == "__main__":
    main()
