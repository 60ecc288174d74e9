"""Measure lorebooks: reading a book, making its index, scanning a message. Prints one JSON object.

    python scripts/bench_lorebook.py [--entries 5000] [--messages 200]

Keys of four kinds (English words, phrases, Chinese, and an expression in each 17th entry); a conversation whose
messages have 2,000 characters and name some of them, one more before each scan; CPU time, median and 95th of 100.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from memory_anchor.extensions.lorebook.reading import read_lorebook
from memory_anchor.extensions.lorebook.scanning import LoreMessage, LoreScanner
from memory_anchor.extensions.lorebook.settings import LorebookSettings

SYLLABLES = ("ka", "lo", "mi", "ren", "tos", "vel", "dra", "zi", "nor", "pha")
HAN = "龙城港雪塔林海火山河桥门剑书影星月风雷云"
MESSAGE_CHARS = 2_000
EXPRESSION_EACH = 17
NAMED = 12


def word(chance: random.Random) -> str:
    return "".join(chance.choice(SYLLABLES) for _ in range(chance.randint(2, 4)))


def entry(number: int, chance: random.Random) -> dict[str, Any]:
    """Return an entry whose text names another entry's key."""
    keys = [
        word(chance) + str(number % 97),
        f"{word(chance)} of {word(chance)}",
        "".join(chance.choice(HAN) for _ in range(3)),
    ]
    if number % EXPRESSION_EACH == 0:
        keys.append(f"/{word(chance)}[ -]?{word(chance)}\\d*/i")
    return {"uid": number, "key": keys, "content": f"{word(chance)} knows {word(chance)}. " * 6}


def message(entries: list[dict[str, Any]], chance: random.Random) -> str:
    named = [chance.choice(chance.choice(entries)["key"][:3]) for _ in range(NAMED)]
    filler = " ".join(word(chance) for _ in range(MESSAGE_CHARS // 7))
    return f"{' '.join(named)} {filler}"[:MESSAGE_CHARS]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.process_time()
    made = work()
    return (time.process_time() - started) * 1_000, made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=5_000)
    parser.add_argument("--messages", type=int, default=200)
    given = parser.parse_args()
    chance = random.Random(16)
    entries = [entry(number, chance) for number in range(given.entries)]
    content = json.dumps({"entries": entries}, ensure_ascii=False).encode()
    read_ms, book = timed(lambda: read_lorebook(content, "bench"))
    told: dict[str, Any] = {
        "entries": given.entries,
        "keys": sum(len(one["key"]) for one in entries),
        "bytes": len(content),
        "read_ms": round(read_ms, 1),
    }
    for name, settings in (("scan", LorebookSettings()), ("scan_recursive", LorebookSettings(recursive=True))):
        index_ms, scanner = timed(lambda settings=settings: LoreScanner([book], settings))  # type: ignore[misc]
        took, admitted = [], 0
        messages = [LoreMessage(message(entries, chance), "Ada") for _ in range(2)]
        for _ in range(given.messages):
            messages = [*messages[-2:], LoreMessage(message(entries, chance), "Ada")]
            ms, found = timed(lambda m=messages, s=scanner: s.scan(m, budget_tokens=2_000))  # type: ignore[misc]
            took.append(ms)
            admitted += len(found.admitted)
        took.sort()
        told |= {
            "index_ms": round(index_ms, 1),
            f"{name}_p50_ms": round(statistics.median(took), 2),
            f"{name}_p95_ms": round(took[int(len(took) * 0.95)], 2),
            f"{name}_admitted": round(admitted / given.messages, 1),
        }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
