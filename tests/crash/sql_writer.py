"""A child whose threads write to one SQLite store and say on stdout what was acknowledged, until it is killed.

usage: sql_writer.py FILE FIRST BATCH. Thread t writes the batches FIRST + t, FIRST + t + THREADS, and so on. Prints one
line a batch, after `put` returned: the batch's number.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from pathlib import Path

from points import FACTS, NOON, SPEC, entry, member

from memory_anchor.domain.model import Usage
from memory_anchor.store.database import Sqlite
from memory_anchor.store.sql_store import SqlStore

THREADS = 4
USE_EVERY = 7


def main() -> None:
    path, first, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    store = SqlStore(Sqlite(path))
    store.open_collection(FACTS, SPEC)

    def write(thread: int) -> None:
        for batch in itertools.count(first + thread, THREADS):
            store.put(FACTS, [entry(batch, number) for number in range(size)])
            os.write(1, f"{batch}\n".encode())  # one system call: lines of threads do not mix
            if batch % USE_EVERY == 0:
                store.set_usage(FACTS, {member(batch, 0).point_id: Usage(1, 1, NOON, (NOON,))})

    for thread in range(THREADS):
        threading.Thread(target=write, args=(thread,)).start()


if __name__ == "__main__":
    main()
