"""`python -m memory_anchor.front.engine`: the engine of the memory itself. Nothing heavy before it holds the lock."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

from memory_anchor.runtime import engine

if TYPE_CHECKING:
    from memory_anchor.runtime.lock import DirectoryLock
    from memory_anchor.runtime.service import Backend


def memory(lock: DirectoryLock) -> Backend:
    """Return the memory of the locked directory as a backend; see `front.backend.build`."""
    from memory_anchor.front.backend import build

    backend = build(lock)
    gc.freeze()  # what is there now stays: later collections need not walk it, and searches wait less
    gc.enable()
    return backend


if __name__ == "__main__":
    sys.exit(engine.main(memory))
